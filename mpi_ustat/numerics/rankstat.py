"""Statistics that depend on order alone, from sorted values instead of pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.exactsum import exact_count
from mpi_ustat.numerics.types import Flags, Floats


def count_wins(x: Floats, z: Floats) -> tuple[int, int]:
    """Count the pairs with z < x and the pairs with z = x, for two *sorted* arrays without NaN, exactly at any size.

    The shorter array is looked up in the longer one: min(n, m) binary searches, whose queries are sorted and therefore
    walk through memory in order. The second search, for ties, is made only for values that do occur on both sides.
    """
    if len(x) == 0 or len(z) == 0:
        return 0, 0
    if len(x) <= len(z):
        below = np.searchsorted(z, x, side="left")
        ties = _count_equal(z, x, below)
        return exact_count(below, len(z)), ties
    below = np.searchsorted(x, z, side="left")
    ties = _count_equal(x, z, below)
    return len(x) * len(z) - exact_count(below, len(x)) - ties, ties


def _count_equal(haystack: Floats, queries: Floats, left: NDArray[np.intp]) -> int:
    found = haystack[np.minimum(left, len(haystack) - 1)] == queries
    if not found.any():
        return 0
    right = np.searchsorted(haystack, queries[found], side="right")
    return exact_count(right - left[found], len(haystack))


def starts_of_runs(ordered: NDArray[np.generic]) -> Flags:
    """Return where sorted values differ from the one before; the first does."""
    starts = np.empty(len(ordered), dtype=np.bool_)
    starts[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    return starts


def absolute_difference_sum(x: Floats, z: Floats) -> float:
    """Return Σ_kl |x_k - z_l| of two *sorted*, finite arrays, in the unit of the values.

    Each pair contributes the gaps between neighbouring pooled values that lie between its two points, so

        Σ_kl |x_k - z_l| = Σ_j (v_{j+1} - v_j) [F_j (m - G_j) + G_j (n - F_j)],

    with v the sorted pooled values, F_j and G_j the numbers of x and z up to v_j. All terms are non-negative: unlike
    the form with signed ranks nothing cancels, however far from 0 the values lie.
    """
    pooled = np.concatenate([x, z])
    pooled.sort()
    if len(pooled) < 2:
        return 0.0
    up_to = np.searchsorted(x, pooled[:-1], side="right")
    f = up_to.astype(np.float64)
    # Within a run of equal values G is off, but the gaps there are 0.
    g = (np.arange(1, len(pooled)) - up_to).astype(np.float64)
    return float(np.sum(np.diff(pooled) * (f * (len(z) - g) + g * (len(x) - f))))
