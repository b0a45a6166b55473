"""Kendall's rank correlation of two columns: tau-a, a U-statistic, and tau-b, a quotient of three."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Points
from mpi_ustat.kernels.one_sample import FEWEST, sums_across
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.pair_counts import compare_all, count_by_sorting, point_sums, products_of
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.types import Floats

_FEW = 128
"""Up to so many points, comparing all of them is faster than sorting."""


TAU = Option("tau", "tau-a or tau-b", "b", choices=("a", "b"), label="Kendall's tau")


class Kendall(Kernel):
    """The sign of (x₁ - x₂)(y₁ - y₂) for points (x, y) of one sample: +1 for concordant pairs, -1 for discordant ones.

    With n points and the notation of `pair_counts`,

        tau-a = C / (n(n-1)/2),          tau-b = C / √(A B),

    the first with one part, h_C = sign((x₁ - x₂)(y₁ - y₂)), the second with three: h_C, h_A = 1{x₁ ≠ x₂}, h_B = 1{y₁ ≠
    y₂}. Without ties they agree. tau-b is ±1 exactly where one column is a monotone function of the other and back;
    what is averaged is pooled before the quotient is taken.

    Parameters
    ----------
    tau : {"b", "a"}
    """

    name = "kendall"
    samples = (1,)
    options = (TAU,)
    unit = "1"
    degrees = (2,)
    complete_route = Route("kendall", "mpi_ustat.complete.kendall:kendall")
    allows_infinite = True
    n_coordinates = 2
    influence_route = "mpi_ustat.influence.kendall:kendall"
    limits = (-1.0, 1.0)
    null = 0.0
    projection_rows = 20_000

    def __init__(self, tau: str = TAU.default) -> None:
        self.tau = TAU.checked(tau)
        self.n_parts = 1 if tau == "a" else 3
        self.pooled_only = tau == "b"

    def influence_options(self) -> dict[str, Any]:
        """Return which tau it is."""
        return {"tau": self.tau}

    @classmethod
    def pools(cls, options: Mapping[str, Any]) -> bool:
        """Tell whether it is tau-b, a quotient."""
        return bool(options.get(TAU.name, TAU.default) == "b")

    def block_sums(self, block: Points) -> tuple[PairSum, ...]:  # type: ignore[override]
        """Return C, or C, A and B, over all pairs of a block, shape (n, 2), in O(n log n)."""
        return self.local_from(len(block), self._point_sums(block)).sums

    def tuple_sums(self, first: Points, second: Points) -> tuple[PairSum, ...]:  # type: ignore[override]
        """Return C, or C, A and B, over B aligned pairs, shapes (B, 2)."""
        above, below = first > second, first < second
        agree = np.count_nonzero(above[:, 0] & above[:, 1]) + np.count_nonzero(below[:, 0] & below[:, 1])
        differ = np.count_nonzero(above[:, 0] & below[:, 1]) + np.count_nonzero(below[:, 0] & above[:, 1])
        untied = np.count_nonzero(above | below, axis=0)
        totals = (agree - differ, *untied.tolist())
        return tuple(PairSum(int(total), len(first)) for total in totals[: self.n_parts])

    def local(self, block: Points) -> Local:  # type: ignore[override]
        """Return `block_sums`, and ζ₁ and δ of the parts from 4 points on, in O(n log n)."""
        return self.local_from(len(block), self._point_sums(block))

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        """Return C, or C, A and B, over the pairs that take a point from each of two disjoint blocks."""
        return sums_across(self, x, y)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the means of h_C, or of h_C, h_A and h_B, over the pairs of each point with the others."""
        (against,) = others
        found = np.empty((len(points), 3))
        for i in range(0, len(points), _FEW):
            some = points[i : i + _FEW, None]
            signs = (some > against).astype(np.int8) - (some < against)
            found[i : i + _FEW, 0] = (signs[:, :, 0] * signs[:, :, 1]).mean(axis=1)
            found[i : i + _FEW, 1:] = (signs != 0).mean(axis=1)
        return found[:, : self.n_parts]

    def combine(self, means: Floats) -> Floats:
        """Return tau, shape (1,), from the averages of h_C, or of h_C, h_A and h_B; of several, (p, g), NaN if tied."""
        if self.tau == "a":
            return means
        if means.ndim > 1:
            values = np.full((1, means.shape[1]), np.nan)
            both = means[1:2] * means[2:]
            np.divide(means[:1], np.sqrt(both), out=values, where=both > 0.0)
            return values
        return np.array([means[0] / self._denominator(means)])

    def gradient(self, means: Floats) -> Floats:
        """Return the derivatives of tau by the averages, shape (1, p): for tau-b 1/√(AB)·(1, -C/(2A), -C/(2B)).

        They make h_C/√(AB) - (τ_b/2)(h_A/A + h_B/B), whose average has the variance of tau-b to first order.
        """
        if self.tau == "a":
            return np.eye(1)
        denominator = self._denominator(means)
        c, a, b = means
        return np.array([[1.0, -c / (2.0 * a), -c / (2.0 * b)]]) / denominator

    def local_from(self, n: int, sums: Sequence[int]) -> Local:
        """Return the parts' sums and components of n points from the sums over points of `point_sums`.

        Of the values over pairs that `one_sample_components` asks for, h_C² = h_A h_B = 1{tied in neither}, h_A² = h_A,
        h_C h_A = h_C h_B = h_C. Centred sums are taken in integers and divided once: with S the totals, q = n(n-1)/2
        the number of pairs and U = S/q,

            Σ_i (C_i/(n-1) - U)² = (n Σ C_i² - 4 S²)/(n (n-1)²),     Σ_{i<j} (h - U)² = (q Σ h² - S²)/q,

        products of different parts alike.
        """
        p, q = self.n_parts, math.comb(n, 2)
        totals = [total // 2 for total in sums[:p]]
        of_parts = tuple(PairSum(total, q) for total in totals)
        if n < FEWEST:
            return Local(of_parts, None)
        untied = sums[p] // 2
        pairs = [[untied]]
        if p == 3:
            c, a, b = totals
            pairs = [[untied, c, c], [c, a, untied], [c, untied, b]]
        points = dict(zip(products_of(p), sums[p + 1 :], strict=True))
        rows, squares = np.empty((p, p)), np.empty((p, p))
        for (i, j), product in points.items():
            both = totals[i] * totals[j]
            rows[i, j] = rows[j, i] = (n * product - 4 * both) / (n * (n - 1) ** 2)
            squares[i, j] = squares[j, i] = (q * pairs[i][j] - both) / q
        return Local(of_parts, one_sample_components(n, rows, squares))

    def _point_sums(self, block: Points) -> list[int]:
        x, y = block[:, 0], block[:, 1]
        counts = compare_all(x, y) if len(block) <= _FEW else count_by_sorting(x, y)
        return point_sums(len(block), self.n_parts, counts)

    def _denominator(self, means: Floats) -> float:
        for column, untied in zip("xy", means[1:], strict=True):
            if untied == 0:
                raise UserError(
                    f"Kendall's tau-b is not defined: all pairs of column {column} that were looked at are tied; "
                    "choose another column, tau-a, or more pairs"
                )
        return math.sqrt(means[1] * means[2])
