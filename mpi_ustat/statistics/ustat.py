"""The U-statistic of one worker's blocks: over all its pairs, or over pairs sampled from them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.statistics.kernel import OnePart, PairSum, Points, Total

_CHUNK = 1 << 18  # sampled pairs gathered at a time: bounds memory, and is no rank's business


def complete_sum(kernel: OnePart, x: Points, z: Points) -> PairSum:
    """Sum h over all pairs of two blocks."""
    return PairSum(kernel.block_total(x, z), len(x) * len(z))


def incomplete_sum(
    kernel: OnePart, x: Points, z: Points, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> PairSum:
    """Sum h over the sampled pairs (x[rows[b]], z[columns[b]])."""
    totals = [
        kernel.pairs_total(np.take(x, rows[i : i + _CHUNK], axis=0), np.take(z, columns[i : i + _CHUNK], axis=0))
        for i in range(0, len(rows), _CHUNK)
    ]
    return PairSum(add(totals), len(rows))


def add(totals: Iterable[Total]) -> Total:
    """Add sums without rounding before the end: integers exactly, floats as `math.fsum` does; NaN if they overflow."""
    totals = list(totals)
    if all(isinstance(total, int) for total in totals):
        return sum(totals)
    try:
        return math.fsum(totals)
    except (OverflowError, ValueError):  # passes the largest double, or has infinities of both signs
        return math.nan


def pool(sums: Iterable[PairSum]) -> PairSum:
    """Join sums over separate sets of pairs."""
    sums = list(sums)
    return PairSum(add(each.total for each in sums), sum(each.n_pairs for each in sums))


def mean(pairs: PairSum, scale: int) -> float:
    """Return the average of h, the quotient of integers correctly rounded where the sum is one.

    An average over no pair is NaN.
    """
    return pairs.total / (scale * pairs.n_pairs) if pairs.n_pairs else math.nan
