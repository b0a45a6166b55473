"""The variance of one sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.kernel import Local, OfMatrix, PairSum, Points, refuse_close
from mpi_ustat.kernels.one_sample import FEWEST, OneSampleKernel, centred
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.types import Floats


class Variance(OneSampleKernel):
    """h(x, y) = ½(x - y)², whose mean over pairs is the sample variance with divisor n - 1.

    (Without the ½ it is twice the variance.) In the squared unit of the points.
    """

    name = "variance"
    limits = (0.0, math.inf)
    complete_route = Route("variance", "mpi_ustat.complete.one_sample:variance")
    influence_route = "mpi_ustat.influence.variance:variance"
    n_coordinates = 1

    def __init__(self) -> None:
        self.across = _HalfSquare()

    def influence_options(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points so near to each other that squares vanish."""
        refuse_close(low, high, 2.0**-510)

    def block_total(self, x: Points) -> float:
        """Return ½ n Σ (x - x̄)² in O(n)."""
        return len(x) * float(np.sum(centred(x) ** 2)) / 2 if len(x) else 0.0

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on, in O(n)."""
        if len(x) < FEWEST:
            return Local(self.block_sums(x), None)
        squares = centred(x) ** 2
        total = float(np.sum(squares))
        return variance_local(len(x), total, float(np.sum((squares - total / len(x)) ** 2)))


class _HalfSquare(OfMatrix):
    """h(x, y) = ½(x - y)² for x and y in two blocks, of which nothing cancels, however far from 0 the points lie.

    With e = x - x̄ (n of them, S_e = Σ e²), f = y - ȳ (m, S_f) and D = x̄ - ȳ,

        h = ½(e_k - f_l + D)²,    Σ_kl h = ½(m S_e + n S_f + n m D²).
    """

    name = "variance"
    n_coordinates = 1
    has_components = False

    def block_total(self, x: Points, y: Points) -> float:
        """Return Σ_kl ½(x_k - y_l)² in O(n + m)."""
        n, m = len(x), len(y)
        if not n or not m:
            return 0.0
        e, f = centred(x), centred(y)
        apart = float((x[0] - y[0]) - (e[0] - f[0]))  # from one point of each: the means themselves are rounded
        return (m * float(np.sum(e**2)) + n * float(np.sum(f**2)) + n * m * apart * apart) / 2

    def pairs_total(self, x: Points, y: Points) -> float:
        """Return Σ_b ½(x_b - y_b)²."""
        return float(np.sum((x - y) ** 2)) / 2

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return ½(x - y)² for all pairs."""
        return 0.5 * np.subtract.outer(x, y) ** 2


def variance_local(n: int, squares: float, fourths: float) -> Local:
    """Return the sums of `Variance` for n >= 4 points with d = x - x̄, S = Σ d² and Q = Σ (d² - S/n)².

    U = S/(n-1). From Σ d = 0, the mean of h over the pairs of point i is r̄_i = (n d_i² + S)/(2(n-1)), hence

        Σ_i (r̄_i - U)² = n² Q/(4(n-1)²).

    Σ_{i<j} h² = ⅛ Σ_ij (d_i - d_j)⁴ = ¼(n Σ d⁴ + 3 S²), Σ d⁴ = Q + S²/n, and C(n,2) U² = n S²/(2(n-1)), hence

        Σ_{i<j} (h - U)² = n Q/4 + S² (n-2)/(2(n-1)),

    both sums of terms that are not negative.
    """
    rows = n * n * fourths / (4 * (n - 1) ** 2)
    around = n * fourths / 4 + squares * squares * (n - 2) / (2 * (n - 1))
    return Local((PairSum(n * squares / 2, math.comb(n, 2)),), one_sample_components(n, rows, around))
