"""Choosing scheme, rounds and pairs: predicted standard errors and seconds, from a pilot and a short measurement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import configured, one_or_two
from mpi_ustat.kernels.kernel import Kernel, Points, n_tuples
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.user_pairs import BlockFunction
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.numerics.types import Floats
from mpi_ustat.planning.measurements import Machine
from mpi_ustat.planning.table import plan_lines
from mpi_ustat.schemes.registry import COMPLETE, DEFAULT_SCHEME, SCHEMES, scheme_of
from mpi_ustat.schemes.variance import Design, coefficients

_SAMPLED = (100, 1000, 10_000, 100_000)


@dataclass(frozen=True)
class Choice:
    """One way to estimate, and what it is predicted to give.

    Attributes
    ----------
    scheme : str
        A partition scheme, or ``complete``.
    move : {"both", "smaller"}
    n_rounds : int
        T.
    n_pairs : int or None
        B; None: all local pairs.
    stderr : float
        Predicted standard error, in the unit of the kernel.
    seconds : float
        Predicted seconds, of the slowest rank, without reading the data.
    bytes_moved : float
        Predicted bytes from one rank to another, of all ranks.
    """

    scheme: str
    move: str
    n_rounds: int
    n_pairs: int | None
    stderr: float
    seconds: float
    bytes_moved: float

    def options(self) -> dict[str, Any]:
        """Return the options of `mpi_ustat.estimate` that ask for it."""
        if scheme_of(self.scheme).all_pairs:
            return {"complete": True}
        options: dict[str, Any] = {"scheme": self.scheme, "n_rounds": self.n_rounds}
        options |= {"move": self.move} if self.move != "both" else {}
        return options | ({} if self.n_pairs is None else {"n_pairs": self.n_pairs})


@dataclass(frozen=True, repr=False)
class Plan:
    """What there is to choose from; `print` shows it as a table.

    Attributes
    ----------
    choices : tuple of Choice
        In the order of predicted seconds.
    recommended : Choice or None
        The quickest within the target, or the most exact within the budget; None where there is none.
    components : ndarray, shape (c,)
        Hoeffding components, from the pilot.
    pilot_sizes, sizes : tuple of int
        Rows of each sample, in the pilot and in all.
    measured : dict of str to float
        Seconds of what was timed.
    n_workers, n_ranks : int
    uncertainty : float or None
        Relative standard error of all predicted standard errors, as the pilot is small; None where it is not told.
    flags : tuple of str
        What makes the predictions doubtful, in sentences.
    """

    choices: tuple[Choice, ...]
    recommended: Choice | None
    components: Floats
    pilot_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    measured: dict[str, float]
    n_workers: int
    n_ranks: int
    uncertainty: float | None = None
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        options = {} if self.recommended is None else self.recommended.options() | {"n_workers": self.n_workers}
        call = f"estimate(…, {', '.join(f'{name}={value!r}' for name, value in options.items())})"
        return "\n".join([*plan_lines(self), call if options else "No way is quick, or exact, enough."])

    def __repr__(self) -> str:
        return f"Plan(recommended={self.recommended!r}, choices of {len(self.choices)}, n_workers={self.n_workers})"

    def summary(self) -> dict[str, Any]:
        """Return the plan as a JSON-able dictionary."""
        return {
            "choices": [asdict(choice) for choice in self.choices],
            "recommended": None if self.recommended is None else asdict(self.recommended),
            "components": self.components.tolist(),
            "pilot_sizes": list(self.pilot_sizes),
            "sizes": list(self.sizes),
            "measured": self.measured,
            "n_workers": self.n_workers,
            "n_ranks": self.n_ranks,
            "uncertainty": self.uncertainty,
            "flags": list(self.flags),
        }


@deferred()
def plan(
    comm: Any,
    x: Points,
    z: Points | None = None,
    kernel: str | BlockFunction | Kernel = "auc",
    *,
    target_stderr: float | None = None,
    budget_seconds: float | None = None,
    n_workers: int | None = None,
    aggregate: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    tile: int = DEFAULT_TILE,
) -> Plan:
    """Predict what ways to estimate would give, and choose one.  Collective.

    Standard errors follow from Hoeffding components, estimated on a pilot of up to `measurements.PLAN_ROWS` rows of
    each sample, and the closed forms of `mpi_ustat.schemes.variance`. Seconds follow from rounds that are really run,
    of every scheme, and from blocks and numbers of pairs that are timed and extrapolated.

    Parameters
    ----------
    comm, x, z, kernel, n_workers, aggregate, ties, kernel_options, seed, tile
        As in `mpi_ustat.estimate`, which takes the options of a choice as they are:
        ``estimate(comm, x, z, n_workers=n_workers, **found.recommended.options())``.
    target_stderr : float, optional
        The standard error that is wanted, in the unit of the kernel.
    budget_seconds : float, optional
        The seconds that there are. One of the two at most.

    Returns
    -------
    Plan
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the variance of the kernel has no closed form, or the options contradict each other.
    """
    given = dict(locals())
    return _plan(samples=one_or_two(comm, given.pop("x"), given.pop("z")), **given)


@deferred()
def plan_samples(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel = "auc",
    *,
    target_stderr: float | None = None,
    budget_seconds: float | None = None,
    n_workers: int | None = None,
    aggregate: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    tile: int = DEFAULT_TILE,
) -> Plan:
    """Like `plan`, for any number of samples.  Collective."""
    return _plan(**locals())


def _plan(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel,
    *,
    target_stderr: float | None,
    budget_seconds: float | None,
    **options: Any,
) -> Plan:
    config, made = configured(comm, samples, kernel, **options)
    return choose(comm, samples, config, kernel=made, target_stderr=target_stderr, budget_seconds=budget_seconds)


def choose(
    comm: Any,
    samples: Sequence[Points],
    config: EstimateConfig,
    *,
    kernel: Kernel | None = None,
    target_stderr: float | None = None,
    budget_seconds: float | None = None,
) -> Plan:
    """Return the plan for a configuration, of which scheme, rounds and pairs play no part.  Collective."""
    if target_stderr is not None and budget_seconds is not None:
        raise UserError("a target and a budget are given: leave one of them out")
    for name, value in (("standard error", target_stderr), ("number of seconds", budget_seconds)):
        if value is not None and not value > 0.0:
            raise UserError(f"the {name} is {value!r}: give a positive number")
    base = replace(config, complete=False, reference=False, n_rounds=1, n_pairs=None, distinct=False, move="both")
    timed = Machine(comm, samples, replace(base, scheme=DEFAULT_SCHEME), kernel)
    kernel, sizes = timed.kernel, timed.sizes
    judge, value = timed.pilot_judge()
    components, doubts = judge.of(judge.gradient[0]), judge.flags(judge.gradient[0], value=value)
    measured: dict[str, float] = {}
    choices = []
    for design in _designs(kernel, sizes, base):
        scheme, move = design.scheme, design.move
        factors, _ = coefficients(kernel.degrees, sizes, design)
        variance = float(factors @ components)
        if not 0.0 < variance < math.inf:
            continue
        seconds, moved = timed.cost(scheme, move, design.n_rounds, design.n_pairs, measured)
        choices.append(Choice(scheme, move, design.n_rounds, design.n_pairs, math.sqrt(variance), seconds, moved))
    if not choices:
        raise UserError("the pilot's variance is not positive, or overflows: use complete=True, or rescale the points")
    choices.sort(key=lambda choice: (choice.seconds, choice.stderr))
    return Plan(
        choices=tuple(choices),
        recommended=recommend(choices, target_stderr=target_stderr, budget_seconds=budget_seconds),
        components=components,
        pilot_sizes=timed.pilot_sizes(),
        sizes=sizes,
        measured=measured,
        n_workers=config.n_workers,
        n_ranks=comm.size,
        uncertainty=judge.stderr_error(judge.gradient[0]),
        flags=tuple(doubts),
    )


def recommend(
    choices: Sequence[Choice], *, target_stderr: float | None = None, budget_seconds: float | None = None
) -> Choice | None:
    """Return the quickest choice within the target, or the most exact within the budget; None where there is none.

    Without either, the most exact, and of equal ones the quickest.
    """
    if target_stderr is not None:
        kept = [choice for choice in choices if choice.stderr <= target_stderr]
        return min(kept, key=lambda choice: choice.seconds, default=None)
    kept = [choice for choice in choices if budget_seconds is None or choice.seconds <= budget_seconds]
    best = min((choice.stderr for choice in kept), default=0.0) * (1.0 + 1e-9)  # beyond it, more than rounding differs
    return min((choice for choice in kept if choice.stderr <= best), key=lambda choice: choice.seconds, default=None)


def _designs(kernel: Kernel, sizes: Sequence[int], config: EstimateConfig) -> Iterator[Design]:
    """Yield the designs to choose from."""
    yield Design(scheme=COMPLETE.name)
    n_workers = config.n_workers
    if min(size // degree for size, degree in zip(sizes, kernel.degrees, strict=True)) < n_workers:
        return
    block = n_tuples(kernel.degrees, [size // n_workers for size in sizes])
    for scheme, move in ((each, move) for each in SCHEMES.values() if each.in_plans for move in each.moves):
        if move != "both" and len(sizes) != 2:
            continue
        most = scheme.n_rounds_complete(kernel.degrees, n_workers) or math.inf
        for n_rounds in sorted({int(min(most, 1 << k)) for k in range(7)}):
            for n_pairs in (None, *(b for b in _SAMPLED if b < block / 2)):
                yield Design(
                    scheme=scheme.name,
                    n_workers=n_workers,
                    n_rounds=n_rounds,
                    n_pairs=n_pairs,
                    aggregate="pooled" if scheme.aggregate == "pooled" or kernel.pooled_only else config.aggregate,
                    move=move,
                    holdings=scheme.holdings_table(sizes, n_workers, n_rounds),
                )
