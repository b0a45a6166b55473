"""How heavy the tails are that a standard error has to be estimated from, and whether shards differ; pure."""

from __future__ import annotations

import numpy as np

from mpi_ustat.numerics.types import Floats, Ints


def kurtosis(values: Floats) -> float:
    """Return E(r - Er)⁴/Var(r)²; that of a constant is 1, the smallest there is."""
    centred = values - values.mean()
    largest = float(np.abs(centred).max(initial=0.0))
    if largest == 0.0 or not np.isfinite(largest):
        return 1.0 if largest == 0.0 else np.inf
    squares = (centred / largest) ** 2  # in units that can't overflow
    return float(np.mean(squares**2) / np.mean(squares) ** 2)


def tail_index(values: Floats) -> float:
    """Return the index ξ of the tail of |r - Er|: P(|r - Er| > t) falls off like t^(-1/ξ) if ξ > 0.

    From ξ = 1/2 on there is no variance, from 1/4 on no kurtosis, whose estimate, however large, is then a matter of
    the largest points that happened to be drawn. ξ is that of all of a tenth of the points, not of a few: the excesses
    over the largest but those tend to the generalised Pareto law, of which a₀ = σ/(1 - ξ) is the mean and
    a₁ = σ/(2(2 - ξ)) the mean weighted by 1 - F, whence ξ = 2 - a₀/(a₀ - 2 a₁) (Hosking and Wallis 1987).
    """
    sizes = np.sort(np.abs(values - values.mean()))
    k = len(sizes) // 10
    if k < 2 or not 0.0 < sizes[-1] < np.inf:
        return 0.0
    excesses = (sizes[-k:] - sizes[-k - 1]) / sizes[-1]
    mean = float(excesses.mean())
    weighted = float(np.mean(excesses * (1.0 - (np.arange(1, k + 1) - 0.35) / k)))
    return 2.0 - mean / (mean - 2.0 * weighted) if mean > 0.0 else 0.0


def middle_ranks(values: Floats) -> Floats:
    """Return how many values are smaller, and half of those that are equal."""
    ordered = np.sort(values)
    smaller, none_larger = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray((smaller + none_larger) / 2.0)


def differ(values: Floats, groups: Ints) -> float:
    """Return the p-value of the F test that groups of independent values have one mean; 1 where there is none.

    F = [Σ_g n_g (v̄_g - v̄)²/(G - 1)]/[Σ_g Σ_{i∈g} (v_i - v̄_g)²/(n - G)], with the law F(G - 1, n - G) of normal values,
    and near it of many.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    n_groups, n = len(counts), len(values)
    if n_groups < 2 or n <= n_groups or values.min() == values.max():
        return 1.0
    centred = values - values.mean()
    means = np.bincount(group, weights=centred) / counts
    between = float(np.sum(counts * means**2)) / (n_groups - 1)
    within = float(np.sum((centred - means[group]) ** 2)) / (n - n_groups)
    if within == 0.0:
        return 0.0 if between > 0.0 else 1.0
    from scipy.special import fdtrc

    return float(fdtrc(n_groups - 1, n - n_groups, between / within))
