"""What is estimated where nobody says it: all pairs, unless an option is about rounds, or it would take long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mpi_ustat.complete.timing import timed_parts
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.problem import Problem, quiet_overflow
from mpi_ustat.kernels.kernel import Kernel, n_tuples
from mpi_ustat.mpi.limits import duration

ABOUT_ROUNDS = (
    "n_workers",
    "n_rounds",
    "n_pairs",
    "distinct",
    "scheme",
    "aggregate",
    "empty",
    "move",
    "shuffle",
    "reference",
)
"""Options that ask for an estimate by rounds, whatever they say."""

_MOST_SECONDS = 60.0
"""What takes longer is begun only if it is asked for."""

_LONG_ENOUGH = 0.5
"""Seconds of a part that all is judged by; of a shorter one only that all is quick."""

_FEW = 1 << 16
"""Pairs that are not timed beforehand."""

_SMALLEST_PART = 32  # rows of each rank and sample: a kernel may be slow


def asks_for_rounds(options: Mapping[str, Any]) -> bool:
    """Tell whether any of the options of `mpi_ustat.estimate` that are given is about rounds.

    >>> asks_for_rounds({"n_rounds": 1}), asks_for_rounds({"n_rounds": None, "scheme": "", "seed": 1})
    (True, False)
    """
    return any(
        options.get(name) is not None and options[name] is not False and options[name] != "" for name in ABOUT_ROUNDS
    )


def refuse_a_long_wait(problem: Problem) -> None:
    """Refuse a complete statistic that nobody asked for, if it is predicted to take over a minute.  Collective.

    Only of kernels that look at every pair, or longer tuple: a part of the rows of each rank is timed. Within strata
    and groups, where pairs are fewer, nothing is predicted.

    Raises
    ------
    UserError
        That says what it would take, and what to choose from.
    """
    comm, kernel, sizes, about = problem.comm, problem.kernel, problem.sizes, problem.about
    route = kernel.route(sizes)
    if not route.by_tuples or about.strata is not None or about.groups is not None:
        return
    n_evaluations = _evaluations(kernel, sizes)
    if n_evaluations <= _FEW:
        return

    def n_blocks(sizes: Sequence[int]) -> int:
        return comm.size if route.n_blocks is None else route.n_blocks(sizes)

    def busiest(sizes: Sequence[int]) -> float:
        """Return the share of all pairs that falls to the rank with most of them."""
        return -(-n_blocks(sizes) // comm.size) / n_blocks(sizes)

    parts = timed_parts(
        comm,
        problem.exchanges,
        kernel,
        problem.streams,
        n_blocks,
        smallest=max(_SMALLEST_PART // (comm.size if kernel.chunk else 1), 1),
        growth=16.0 ** (1.0 / sum(kernel.degrees) if kernel.chunk else 0.5),  # each part is sixteen times the work
        components=problem.config.stderr,
    )
    seconds = 0.0
    with quiet_overflow():
        for part in parts:
            pairs_more = n_evaluations / _evaluations(kernel, part.sizes)
            seconds = part.seconds * pairs_more * busiest(sizes) / busiest(part.sizes)
            if seconds <= _MOST_SECONDS:
                return
            if part.seconds > _LONG_ENOUGH:  # what is short may have been disturbed
                break
    of_each = "tuple" if kernel.chunk else "pair"
    planned = kernel.has_components and kernel.degrees in ((2,), (1,) * len(sizes))
    compare = "; plan tells what either gives" if planned else ""
    raise UserError(
        f"the kernel {kernel.name} looks at every {of_each}, and all {n_evaluations:.3g} would take about "
        f"{duration(seconds)}: give complete=True to have that, or n_workers= and n_rounds= for an estimate by "
        f"rounds{compare}"
    )


def _evaluations(kernel: Kernel, sizes: Sequence[int]) -> int:
    """Return how often h is evaluated; a discrepancy is made of the pairs within and between its samples."""
    of_pairs_of_samples = sum(kernel.degrees) > 2 and not kernel.chunk
    return math.comb(sum(sizes), 2) if of_pairs_of_samples else n_tuples(kernel.degrees, sizes)
