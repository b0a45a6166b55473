"""How heavy the tails are that a standard error has to be estimated from, and whether shards differ; pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.statistics.kernel import Array


def kurtosis(values: Array) -> float:
    """Return E(r - Er)⁴/Var(r)²; that of a constant is 1, the smallest there is."""
    centred = values - values.mean()
    largest = float(np.abs(centred).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return 1.0 if largest == 0.0 else np.inf
    squares = (centred / largest) ** 2  # in units that can't overflow
    return float(np.mean(squares**2) / np.mean(squares) ** 2)


def differ(values: Array, groups: NDArray[np.int64]) -> float:
    """Return the p-value of the F test that groups of independent values have one mean; 1 where there is none.

    F = [Σ_g n_g (v̄_g - v̄)²/(G - 1)]/[Σ_g Σ_{i∈g} (v_i - v̄_g)²/(n - G)], with the law F(G - 1, n - G) of normal values,
    and near it of many.

    Parameters
    ----------
    values : ndarray, shape (n,)
    groups : ndarray of int64, shape (n,)
        The group of each.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    n_groups, n = len(counts), len(values)
    if n_groups < 2 or n <= n_groups:
        return 1.0
    centred = values - values.mean()
    means = np.bincount(group, weights=centred) / counts
    between = float(np.sum(counts * means**2)) / (n_groups - 1)
    within = float(np.sum((centred - means[group]) ** 2)) / (n - n_groups)
    if within == 0.0:
        return 0.0 if between > 0.0 else 1.0
    from scipy.special import fdtrc

    return float(fdtrc(n_groups - 1, n - n_groups, between / within))
