"""The squared hinge loss."""

from __future__ import annotations

import numpy as np

from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.losses.pooling import first_sums, partners, pool
from mpi_ustat.numerics.types import Floats


class SquaredHinge(Loss):
    """φ(u) = max(0, c - u)², φ'(u) = -2 max(0, c - u)."""

    name = "squared-hinge"
    by_sorting = True
    degree = 2
    slope_unit = 2.0

    def values(self, u: Floats) -> Floats:
        """Return max(0, c - u)²."""
        short = np.maximum(self.margin - u, 0.0)
        return short * short

    def slopes(self, u: Floats) -> Floats:
        """Overwrite u by max(0, c - u)."""
        np.subtract(self.margin, u, out=u)
        np.maximum(u, 0.0, out=u)
        return u

    def total(self, positive: Floats, negative: Floats) -> float:
        """Return Σ_kl max(0, t_l - a_k)²: of each a_k Σt² - 2 a_k Σt + #·a_k² over its partners."""
        a, from_above, counts = partners(positive, negative, self.margin)
        sums, squares = first_sums(from_above, counts), first_sums(from_above * from_above, counts)
        return float(np.sum(squares - 2.0 * a * sums + counts * (a * a)))

    def sums(self, positive: Floats, negative: Floats) -> tuple[float, Floats, Floats]:
        """Return the sum of squares and of slopes, from the gaps of the pooled order (see `pooling`).

        With A_j and Q_j the sums of v_j - a_k and of its square over the a_k up to v_j,

            A_{j+1} = A_j + d_j F_j,   Q_{j+1} = Q_j + d_j (2 A_j + d_j F_j),

        the sum of squares is that of Q over the places of t.
        """
        pooled = pool(positive, negative, self.margin)
        n, gaps, f = len(pooled.f) + 1, pooled.gaps, pooled.f
        before, after, squares = np.zeros(n), np.zeros(n), np.zeros(n)
        np.cumsum(gaps * f, out=before[1:])
        np.cumsum((gaps * pooled.h)[::-1], out=after[-2::-1])
        np.cumsum(gaps * (2.0 * before[:-1] + gaps * f), out=squares[1:])
        a_slopes, t_slopes = np.empty(len(positive)), np.empty(len(negative))
        a_slopes[pooled.a_order] = 2.0 * after[pooled.a_place]
        t_slopes[pooled.t_order] = 2.0 * before[pooled.t_place]
        return float(np.sum(squares[pooled.t_place])), a_slopes, t_slopes
