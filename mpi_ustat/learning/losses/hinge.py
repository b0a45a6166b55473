"""The hinge loss."""

from __future__ import annotations

import math

import numpy as np

from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.losses.pooling import first_sums, partners, pool
from mpi_ustat.numerics.types import Floats


class Hinge(Loss):
    """φ(u) = max(0, c - u), φ'(u) = -1{u < c}: subgradient 0 at its kink u = c."""

    name = "hinge"
    by_sorting = True
    degree = 1

    def values(self, u: Floats) -> Floats:
        """Return max(0, c - u)."""
        found: Floats = np.maximum(self.margin - u, 0.0)
        return found

    def slopes(self, u: Floats) -> Floats:
        """Overwrite u by 1{u < c}."""
        if math.isnan(u.max(initial=-math.inf)):  # NaN < c is False: the gradient would be 0 and training stall
            return np.where(np.isnan(u), u, u < self.margin)
        np.copyto(u, u < self.margin)
        return u

    def total(self, positive: Floats, negative: Floats) -> float:
        """Return Σ_kl max(0, t_l - a_k): of each a_k the sum of its partners, less their number times a_k."""
        a, from_above, counts = partners(positive, negative, self.margin)
        return float(np.sum(first_sums(from_above, counts) - counts * a))

    def sums(self, positive: Floats, negative: Floats) -> tuple[float, Floats, Floats]:
        """Return Σ_j d_j F_j H_j (see `pooling`), and the numbers of partners."""
        pooled = pool(positive, negative, self.margin)
        a_slopes, t_slopes = np.empty(len(positive)), np.empty(len(negative))
        a_slopes[pooled.a_order] = pooled.n_above
        t_slopes[pooled.t_order] = pooled.n_below
        return float(np.sum(pooled.gaps * (pooled.f * pooled.h))), a_slopes, t_slopes
