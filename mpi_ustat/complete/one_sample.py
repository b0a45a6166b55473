"""Complete statistics of one distributed sample that need no pairs: the variance and Gini's mean difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from mpi_ustat.complete.sorting import exchange_runs, hosted_ranges, splitters
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.gini import distance_sums, gap_total, gini_local, weighted_gaps
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Whole
from mpi_ustat.kernels.one_sample import FEWEST
from mpi_ustat.kernels.variance import variance_local
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import hosted_workers
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats


def variance(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the sum of ½(x - y)² over all pairs of a distributed sample, and its components.  Collective.

    Two passes without rounding between ranks: the mean, rounded to a double c, and s_j = Σ (x - c)^j for j = 1 … 4,
    whose terms are rounded one by one and added exactly. No row moves. With e = s₁/n, the part of the mean that c
    misses,

        S = Σ (x - x̄)² = s₂ - n e²,    Σ (x - x̄)⁴ = s₄ - 4 e s₃ + 6 e² s₂ - 3 n e⁴,

    evaluated in rational numbers and rounded at the end. (e is at most half a unit in the last place of c: it matters
    for points that agree in nearly all their digits.)
    """
    (sample,) = samples
    x, n = sample.rows.reshape(-1), sample.n_rows
    if n < 2:
        return Whole(Local((PairSum(0, 0),), None))
    mean = float(sum(comm.allgather(exact_sum(x)), Fraction(0)) / n)
    with np.errstate(over="ignore", under="ignore"):
        differences = x - mean
        squares = differences * differences
        # Not `power`, whose last bits may depend on where a number lies in its array.
        own = [_finite_sum(each) for each in (differences, squares, differences * squares, squares * squares)]
    powers = (_add_fractions(of_ranks) for of_ranks in zip(*comm.allgather(own), strict=True))
    return Whole(_from_powers(n, *powers))


def _finite_sum(values: Floats) -> Fraction | None:
    return exact_sum(values) if np.isfinite(values).all() else None


def _add_fractions(sums: Sequence[Fraction | None]) -> Fraction | None:
    return None if None in sums else sum((each for each in sums if each is not None), Fraction(0))


def _from_powers(n: int, s1: Fraction | None, s2: Fraction | None, s3: Fraction | None, s4: Fraction | None) -> Local:
    """Return the statistic from power sums; None stands for those that pass the largest double."""
    if s1 is None or s2 is None:
        return Local((PairSum(math.inf, math.comb(n, 2)),), None if n < FEWEST else np.full((2, 1, 1), np.nan))
    missed = s1 / n
    squares = s2 - n * missed**2
    if n < FEWEST:
        return Local((PairSum(_double(n * squares / 2), math.comb(n, 2)),), None)
    fourths = math.nan
    if s3 is not None and s4 is not None:
        powers4 = s4 - 4 * missed * s3 + 6 * missed**2 * s2 - 3 * n * missed**4
        fourths = _double(powers4 - squares**2 / n)
    return variance_local(n, _double(squares), fourths)


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def gini(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the sum of |x - y| over all pairs of a distributed sample, and its components.  Collective.

    Every value moves once, to the one of N ranges of values that it lies in. There the gaps between neighbouring
    values have weights that follow from the sizes of the other ranges, and the points' mean distances from all others
    follow from those ranges' Σ gap·below and Σ gap·above (`gini.distance_sums`). What is rounded has a
    range's shape and is put together in the order of the ranges. O(n log n / P).
    """
    (sample,) = samples
    n = sample.n_rows
    if n < 2:
        return Whole(Local((PairSum(0, 0),), None))
    bounds = splitters(comm, samples, n_workers, streams)
    (stretch,), sent = exchange_runs(comm, samples, bounds)
    own = [each.distinct() for each in hosted_ranges(comm, stretch, bounds)]
    first = hosted_workers(n_workers, comm.size, comm.rank).start

    sizes, lowest = _of_ranges(comm, [(each.n_points, each.values[0] if each.n_points else np.nan) for each in own])
    gaps = [_gaps(each, sizes, lowest, j) for j, each in enumerate(own, start=first)]
    origin = float(np.nanmin(lowest))
    totals, left, right, means, inside = _of_ranges(
        comm, [(*_gap_sums(*of_range), *_spread(each, origin)) for of_range, each in zip(gaps, own, strict=True)]
    )
    total = float(add(totals.tolist()))
    if n < FEWEST:
        return Whole(Local((PairSum(total, math.comb(n, 2)),), None), sent)

    overall = float(add((sizes * means).tolist())) / n
    squares = float(add([*inside.tolist(), *(sizes * (means - overall) ** 2).tolist()]))
    before = list(accumulate(left.tolist(), initial=0.0))
    after = list(accumulate(right[::-1].tolist(), initial=0.0))[-2::-1]
    rows = []
    for j, (of_range, each) in enumerate(zip(gaps, own, strict=True), start=first):
        distances = distance_sums(*of_range, left=before[j], right=after[j]) / (n - 1)
        rows.append((float(np.sum(_counts(each) * (distances - total / math.comb(n, 2)) ** 2)),))
    (rows_of_ranges,) = _of_ranges(comm, rows)
    return Whole(gini_local(n, total, float(add(rows_of_ranges.tolist())), squares), sent)


def _of_ranges(comm: Any, facts: Sequence[tuple[float, ...]]) -> Floats:
    """Return the facts of every range, shape (facts, ranges), in the order of the ranges.  Collective."""
    return np.array([fact for of_rank in comm.allgather(list(facts)) for fact in of_rank], dtype=np.float64).T


def _counts(runs: Runs) -> Floats:
    return np.asarray(runs.counts, dtype=np.float64)


def _gaps(runs: Runs, sizes: Floats, lowest: Floats, j: int) -> tuple[Floats, Floats, Floats]:
    """Return the gaps above the values of range j, the last one up to the next range that has any."""
    above = lowest[j + 1 :]
    above = above[~np.isnan(above)]
    below = sizes[:j].sum() + np.cumsum(_counts(runs))
    return weighted_gaps(runs.values, below, int(sizes.sum()), float(above[0]) if len(above) else None)


def _gap_sums(gaps: Floats, below: Floats, above: Floats) -> tuple[float, float, float]:
    """Return Σ gap·below·above, Σ gap·below and Σ gap·above."""
    return gap_total(gaps, below, above), float(np.sum(gaps * below)), float(np.sum(gaps * above))


def _spread(runs: Runs, origin: float) -> tuple[float, float]:
    """Return the mean of a range, counted from the origin, and Σ (x - mean)² within it."""
    if not runs.n_points:
        return 0.0, 0.0
    values, counts = runs.values - origin, _counts(runs)
    mean = float(np.sum(counts * values)) / runs.n_points
    return mean, float(np.sum(counts * (values - mean) ** 2))
