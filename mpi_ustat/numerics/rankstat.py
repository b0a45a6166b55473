"""Statistics that depend on order alone, from sorted values instead of pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.exactsum import exact_count
from mpi_ustat.numerics.lookup import below_and_at, look_up
from mpi_ustat.numerics.types import Flags, Floats


def count_wins(x: Floats, z: Floats) -> tuple[int, int]:
    """Count the pairs with z < x and the pairs with z = x, for two *sorted* arrays without NaN, exactly at any size.

    The shorter array is looked up in the longer one.
    """
    few, many = (x, z) if len(x) <= len(z) else (z, x)
    if len(few) == 0:
        return 0, 0
    below, at = below_and_at(many, few)
    beaten, ties = (0 if each is None else exact_count(each, len(many)) for each in (below, at))
    return beaten if few is x else len(x) * len(z) - beaten - ties, ties


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
    up_to = look_up(x, pooled[:-1], "right")
    f = up_to.astype(np.float64)
    # Within a run of equal values G is off, but the gaps there are 0.
    g = (np.arange(1, len(pooled)) - up_to).astype(np.float64)
    return float(np.sum(np.diff(pooled) * (f * (len(z) - g) + g * (len(x) - f))))
