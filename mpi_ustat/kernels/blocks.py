"""The U-statistic of one worker's blocks: over all its pairs, or over pairs sampled from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mpi_ustat.kernels.kernel import Kernel, PairSum, Points, Total
from mpi_ustat.numerics.types import Ints

_CHUNK = 1 << 18  # sampled pairs gathered at a time: bounds memory, and is no rank's business


def sampled_sums(
    kernel: Kernel,
    blocks: Sequence[Points],
    places: Sequence[Ints],
    degrees: Sequence[int] | None = None,
) -> tuple[PairSum, ...]:
    """Sum h over sampled tuples of points, of which Σ d_k arrays of B `places` in the blocks tell.

    The places in the block of the first sample come first; how many there are in each block say the kernel's degrees,
    or other `degrees`.
    """
    return sums_in_parts(kernel, blocks, [places], degrees)


def sums_in_parts(
    kernel: Kernel,
    blocks: Sequence[Points],
    parts: Iterable[Sequence[Ints]],
    degrees: Sequence[int] | None = None,
) -> tuple[PairSum, ...]:
    """Return `sampled_sums` of places that come in parts, all but the last of a size that the chunk's divides."""
    sources = [block for block, d in zip(blocks, degrees or kernel.degrees, strict=True) for _ in range(d)]
    chunks = [
        kernel.tuple_sums(
            *(np.take(block, at[i : i + _CHUNK], axis=0) for block, at in zip(sources, places, strict=True))
        )
        for places in parts
        for i in range(0, max(len(places[0]), 1), _CHUNK)
    ]
    return tuple(pool(part) for part in zip(*chunks, strict=True))


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
    """Return the average of h, the quotient of integers correctly rounded where the sum is one; NaN over no pair."""
    return pairs.total / (scale * pairs.n_pairs) if pairs.n_pairs else math.nan
