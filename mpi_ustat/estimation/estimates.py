"""What an estimation gives: rounds, the estimate with its error bar, and how biased the shards are as they lie."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import brief
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.printed import as_text, estimate_rows
from mpi_ustat.estimation.records import Record
from mpi_ustat.estimation.round_sums import RoundSums
from mpi_ustat.inference.hypotheses import Omnibus, WaldTest, omnibus, wald_test
from mpi_ustat.inference.intervals import Difference, Interval
from mpi_ustat.inference.judge import Judge
from mpi_ustat.influence.analysis import Analysis
from mpi_ustat.kernels.registry import find_kernel, options_of
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.variance import Spread

Value = float | Floats
Bounds = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Round:
    """What one partition gave, the same on every rank but for the record.

    Attributes
    ----------
    sums : RoundSums
        What all workers found together.
    record : Record or None
        What each worker found, in worker order, on ranks that keep it (`Problem.keeps_records`).
    value : ndarray, shape (q,)
        The round's estimate.
    components : ndarray, shape (c, p, p), or None
        Mean of the workers' estimates of the Hoeffding components, weighted by how much each knows; None where no
        worker had one.
    sizes : tuple of ndarray of int64, shapes (N,)
        Each sample's block sizes.
    rows_moved : int
        Rows whose worker is not the one that they started on.
    bytes_moved : int
        Bytes that went from one rank to another.
    multiplicities : tuple
        Of blocks of one sample drawn with replacement: `one_sample.multiplicity_sums` of each.
    spread : Spread or None
        How the workers' values differ, where an error bar is asked for.
    """

    sums: RoundSums
    record: Record | None
    value: Floats
    components: Floats | None
    sizes: tuple[Ints, ...]
    rows_moved: int
    bytes_moved: int
    multiplicities: tuple[tuple[int, int, int, int], ...] = ()
    spread: Spread | None = None


@dataclass(frozen=True)
class ErrorBar:
    """How far an estimate may be from what it estimates: the value of the population that the points are a sample of.

    Its standard error says what other points of the same population would have given; `stderr_to_complete`, how far
    the estimate is from U_n, the statistic of all pairs of these points: what more rounds would remove.

    Attributes
    ----------
    covariance : ndarray, shape (q, q), or None
        Estimated covariance of the q statistics, unbiased, so that its diagonal may be negative; None: not known.
    method : str
        Where it comes from: ``components`` (of all that was evaluated), ``pilot`` (of a small complete sample),
        ``workers`` (from how the local values differ), ``sample`` (an estimate of the whole variance at once), or
        ``none``.
    intervals : tuple of Interval
        Of each statistic.
    components : ndarray, shape (c, p, p), or None
        The estimated Hoeffding components that it was made of.
    flags : tuple of str
        What makes it doubtful, in sentences.
    dof : tuple of float or None
        Degrees of freedom of each variance; None: so many that the normal law stands for Student's.
    covariance_to_complete : ndarray, shape (q, q), or None
        Estimated covariance of the q statistics around U_n over the seeds, unbiased too; 0 where they are U_n; None:
        not known (`inference.error_bars.covariance_to_complete`).
    judge : Judge
        By what it is judged, also of differences.
    """

    covariance: Floats | None
    method: str
    intervals: tuple[Interval, ...]
    components: Floats | None
    flags: tuple[str, ...]
    dof: tuple[float | None, ...]
    covariance_to_complete: Floats | None
    judge: Judge = field(repr=False, compare=False)

    @property
    def stderr(self) -> tuple[float | None, ...]:
        """Standard error of each statistic; None where the estimated variance is not positive."""
        if self.covariance is None:
            return (None,) * len(self.intervals)
        return tuple(float(np.sqrt(v)) if 0.0 < v < np.inf else None for v in np.diagonal(self.covariance))

    @property
    def stderr_to_complete(self) -> tuple[float | None, ...]:
        """Standard error of each statistic against U_n, 0 of U_n itself; None: not known, or its square below 0."""
        if self.covariance_to_complete is None:
            return (None,) * len(self.intervals)
        return tuple(float(np.sqrt(v)) if 0.0 <= v < np.inf else None for v in np.diagonal(self.covariance_to_complete))


@dataclass(frozen=True)
class Bias:
    """How far local averages of the shards as they lie are from the complete statistic.

    Attributes
    ----------
    aggregate : str
        ``mean`` of the shards' values, or ``pooled``: weighted by their numbers of pairs.
    difference : float
        Local minus complete.
    stderr : float or None
        What its standard deviation would be if the points lay over the shards by chance.
    z : float or None
        Their quotient: beyond 3 in size, the shards differ from each other by more than chance.
    """

    aggregate: str
    difference: float
    stderr: float | None
    z: float | None


@dataclass(frozen=True, repr=False)
class Estimate:
    """An estimated U-statistic and what it was made of; `print` shows it as a short table.

    Attributes
    ----------
    value : float, or ndarray of shape (q,) for q columns
        The estimate, in the unit of the kernel.
    sizes : tuple of int
        Sizes of the samples; `n` and `m` are the first two.
    n_evaluations : int
        Pairs (or longer tuples) evaluated, over all workers and rounds.
    per_round : ndarray, shape (T,) or (T, q)
        Each round's value.
    per_worker : ndarray, shape (T, N) or (T, N, q)
        Each worker's local average; NaN where a worker had no pair. Shape (0, 0) when complete, or not to be kept.
    evaluations : ndarray of int, shape (T, N)
        Pairs (or longer tuples) behind each local average; doubles where those of a round pass 2⁶³. Of rounds that all
        have the same, a read-only array that holds them once. Shape (0, 0) as above.
    evaluations_per_round : ndarray of int, shape (T,)
        Pairs (or longer tuples) evaluated in each round; doubles where any has 2⁶³ or more. Empty when complete.
    empty_workers : int
        Workers, over all rounds, that had no pair.
    rows_moved, bytes_moved : ndarray of int, shape (T,)
        Rows that changed worker in each round, and bytes that went between ranks.
    error : ErrorBar or None
        Its standard errors and confidence interval, where they were asked for.
    complete_value : float, ndarray or None
        U_n, where it was computed.
    complete_error : ErrorBar or None
        The error bar of U_n.
    bias : tuple of Bias
        Of the shards as they lie, where that was asked for; of one statistic, not of several.
    route : str or None
        How U_n was found: see `mpi_ustat.complete`.
    complete_bytes_moved : int
        Bytes that went between ranks for U_n.
    seconds : dict of str to float
        Seconds per phase, of the slowest rank.
    n_ranks : int
        P.
    config : EstimateConfig
        What was asked for.
    columns : tuple of str
        Names of the statistics, where there are several.
    expectation_factor : float
        p, where workers without a pair count 0 and the estimate's mean is p times the statistic; otherwise 1.
    unit : str
        What the kernel takes, for people: a ``pair`` of points, or a longer ``tuple``.
    analysis : Analysis or None
        What there is more of weighted, clustered, stratified or grouped points: clusters, groups, influence.
    learnt : dict
        What was taken from the points first: ``bandwidth``, ``bandwidth_points``, ``scales`` of columns; or nothing.
    """

    value: Value
    sizes: tuple[int, ...]
    n_evaluations: int
    per_round: Floats
    per_worker: Floats
    evaluations: NDArray[Any]
    evaluations_per_round: NDArray[Any]
    empty_workers: int
    rows_moved: Ints
    bytes_moved: Ints
    error: ErrorBar | None
    complete_value: Value | None
    complete_error: ErrorBar | None
    bias: tuple[Bias, ...]
    route: str | None
    complete_bytes_moved: int
    seconds: dict[str, float]
    n_ranks: int
    config: EstimateConfig
    columns: tuple[str, ...] = ()
    expectation_factor: float = 1.0
    unit: str = "pair"
    analysis: Analysis | None = None
    learnt: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return as_text(estimate_rows(self))

    def __repr__(self) -> str:
        shown = {"value": _plain(self.value), "stderr": self.stderr, "interval": self.interval}
        shown |= {"kernel": self.config.kernel, "sizes": self.sizes, "n_workers": self.config.n_workers}
        shown |= {"complete": True} if self.config.complete else {"n_rounds": self.config.n_rounds}
        return brief(f"Estimate({', '.join(f'{name}={each!r}' for name, each in shown.items())})")

    @property
    def values(self) -> Floats:
        """The estimate as an array, of shape (q,), also where it is one number."""
        return np.atleast_1d(self.value)

    @property
    def n(self) -> int:
        """Size of the first sample, x."""
        return self.sizes[0]

    @property
    def m(self) -> int | None:
        """Size of the second sample, z; None where there is one sample only."""
        return self.sizes[1] if len(self.sizes) > 1 else None

    @property
    def stderr(self) -> float | tuple[float | None, ...] | None:
        """Standard error against the population, None where it is not known; a tuple of them for several columns."""
        return self._of(self.error)

    @property
    def stderr_to_complete(self) -> float | tuple[float | None, ...] | None:
        """Standard error against U_n, the statistic of all pairs of these points: what more rounds would remove.

        Exactly 0 for `complete` and a whole rotation; None where it is not known; a tuple for several columns.
        """
        if self.error is None:
            return None
        return self.error.stderr_to_complete if np.ndim(self.value) else self.error.stderr_to_complete[0]

    @property
    def z_to_complete(self) -> float | tuple[float | None, ...] | None:
        """How far the estimate is from `complete_value`, in units of `stderr_to_complete`; a tuple for several columns.

        None where either is not known, or the unit is 0.
        """
        if self.error is None or self.complete_value is None:
            return None
        found = tuple(
            (value - complete) / unit if unit else None
            for value, complete, unit in zip(
                self.values.tolist(),
                np.atleast_1d(self.complete_value).tolist(),
                self.error.stderr_to_complete,
                strict=True,
            )
        )
        return found if np.ndim(self.value) else found[0]

    @property
    def interval(self) -> Bounds | tuple[Bounds | None, ...] | None:
        """Confidence interval, (lower, upper), None where it is not known; a tuple of them for several columns."""
        if self.error is None:
            return None
        bounds = tuple(each.bounds for each in self.error.intervals)
        return bounds if np.ndim(self.value) else bounds[0]

    @property
    def covariance(self) -> Floats | None:
        """Covariance matrix of the statistics, (q, q)."""
        return None if self.error is None else self.error.covariance

    def differences(self, margin: float | None = None) -> Iterator[Difference]:
        """Yield the differences of every two of several statistics, (0, 1), (0, 2), …, each with its own interval.

        Paired: what two statistics owe to the same points cancels. There are none without a covariance. Each has a test
        that it is 0; with a `margin`, one-sided, that the first is worse than the second by that or more.
        """
        error = self.error
        if error is not None and error.covariance is not None:
            for a, b in itertools.combinations(range(np.size(self.value)), 2):
                yield error.judge.difference(self.values, error.covariance, self.config.confidence, a, b, margin)

    def tests(self, null: float | None = None) -> tuple[WaldTest | None, ...]:
        """Return the two-sided test that the population's value is `null`, of each statistic; None without an interval.

        By the law that the interval is made by: the normal one, or Student's. By default `null` is the kernel's value
        of no association: 0.5 of the AUC and concordance, 0 of tau; nothing is tested of kernels that have none.
        """
        if null is None:
            known = find_kernel(self.config.kernel)
            null = None if known is None else known.null
        if null is None:
            return ()
        if self.error is None:
            return (None,) * np.size(self.value)
        return tuple(
            None if stderr is None or within.bounds is None else wald_test(value, stderr, null, dof=dof)
            for value, stderr, within, dof in zip(
                self.values.tolist(), self.error.stderr, self.error.intervals, self.error.dof, strict=True
            )
        )

    def omnibus(self) -> Omnibus | None:
        """Return the test that all of several statistics are equal; None where there is none, or no covariance."""
        if self.error is None or self.covariance is None or any(each.bounds is None for each in self.error.intervals):
            return None
        known = [dof for dof in self.error.dof if dof is not None]
        return omnibus(self.values, self.covariance, dof=min(known, default=None))

    @property
    def flags(self) -> tuple[str, ...]:
        """What makes the estimate or its interval doubtful, in sentences; also without an error bar."""
        return tuple(biased_note(self.expectation_factor)) if self.error is None else self.error.flags

    def _of(self, error: ErrorBar | None) -> float | tuple[float | None, ...] | None:
        if error is None:
            return None
        return error.stderr if np.ndim(self.value) else error.stderr[0]

    def summary(self, null: float | None = None) -> dict[str, Any]:
        """Return the estimate as a JSON-able dictionary, without the per-worker values."""
        config = self.config
        by_rounds, several = not config.complete, bool(np.ndim(self.value))
        summary = {
            "estimate": _plain(self.value),
            "columns": list(self.columns) or None,
            "stderr": _plain(self.stderr),
            "confidence": config.confidence,
            "interval": _plain(self.interval),
            "interval_method": None if self.error is None else self.error.intervals[0].method,
            "stderr_method": None if self.error is None else self.error.method,
            "stderr_dof": None if self.error is None else _plain(self.error.dof if several else self.error.dof[0]),
            "stderr_against": None if self.error is None else "population",
            "stderr_to_complete": _plain(self.stderr_to_complete),
            "covariance": _plain(self.covariance) if np.ndim(self.value) else None,
            "flags": list(self.flags),
            "tests": [test and vars(test) for test in self.tests(null)],
            "complete_flags": None if self.complete_error is None else list(self.complete_error.flags),
            "kernel": config.kernel,
            "kernel_options": config.kernel_options,
            "ties": config.ties if "ties" in options_of(config.kernel) else None,
            "complete": config.complete,
            "scheme": config.scheme if by_rounds else None,
            "aggregate": config.aggregate if by_rounds else None,
            "n": self.n,
            "m": self.m,
            "sizes": list(self.sizes),
            "n_workers": config.n_workers,
            "n_ranks": self.n_ranks,
            "n_rounds": config.n_rounds,
            "pairs_per_worker": config.n_pairs,
            "n_pairs": self.n_evaluations or None,
            "empty_workers": self.empty_workers,
            "expectation_factor": self.expectation_factor,
            "complete_value": _plain(self.complete_value),
            "complete_stderr": _plain(self._of(self.complete_error)),
            "z_to_complete": _plain(self.z_to_complete),
            "complete_route": self.route,
            "seed": config.seed,
            "rows_moved": int(self.rows_moved.sum()),
            "bytes_moved": int(self.bytes_moved.sum()) + self.complete_bytes_moved,
            "seconds": self.seconds,
            "per_round": self.per_round.tolist(),
        }
        summary |= {"learnt": self.learnt} if self.learnt else {}
        return summary | ({"bias": [vars(each) for each in self.bias]} if self.bias else {})


def biased_note(factor: float) -> list[str]:
    """Return the sentence about an estimate that has that factor; none if it is 1."""
    if factor == 1.0:
        return []
    return [
        f"workers without a pair count 0: the estimate's mean is {factor:.6g} times the statistic, of which there is "
        'no interval then; use empty="skip"'
    ]


def _plain(value: Any) -> Any:
    """Return arrays and tuples as lists, which JSON knows."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
