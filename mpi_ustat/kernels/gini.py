"""Gini's mean difference, between two samples or within one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.kernel import Kernel, Local, OfMatrix, PairSum, Points
from mpi_ustat.kernels.one_sample import FEWEST, OneSampleKernel, centred
from mpi_ustat.kernels.route import Route, ranges_of_rows
from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.rankstat import absolute_difference_sum
from mpi_ustat.numerics.types import Floats


class Gini(OfMatrix):
    """h(x, z) = |x - z|: the two-sample Gini mean difference, in the unit of the points."""

    name = "gini"
    samples = (1, 2)
    limits = (0.0, math.inf)
    complete_route = Route("ranges", "mpi_ustat.complete.gini:gini", ranges_of_rows)
    influence_route = "mpi_ustat.influence.gini:gini"
    n_coordinates = 1

    @classmethod
    def of_samples(cls, n_samples: int, **options: Any) -> Kernel:
        """Return the kernel between two samples, or within one."""
        return OneSampleGini() if n_samples == 1 else cls()

    def influence_options(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def block_total(self, x: Points, z: Points) -> float:
        """Return Σ_kl |x_k - z_l| in O(n log n)."""
        return absolute_difference_sum(np.sort(x), np.sort(z))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, in O(n log n)."""
        x, z = (np.sort(block) for block in blocks)
        return Local(self.block_sums(x, z), gini_components(x, z) if min(len(x), len(z)) > 1 else None)

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return |x - z| for all pairs."""
        return np.abs(np.subtract.outer(x, y))

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b |x_b - z_b|."""
        return float(np.sum(np.abs(x - z)))


def gini_components(x: Floats, z: Floats) -> Floats:
    """Return the components of h(x, z) = |x - z| for two *sorted* arrays of 2 finite numbers or more, in O(n log n).

    h being symmetric, let x̄ >= z̄. With d = x_k - z_l and its parts d⁺, d⁻ >= 0, h = d + 2d⁻ and |d|² = d², so that

        r̄_k - h̄ = x'_k + 2 (ē_k - ē),   c̄_l - h̄ = -z'_l + 2 (ē_l - ē),   e = d⁻,   x' = x - x̄,   z' = z - z̄,
        Σ (h - h̄)² = Σ (d - d̄)² - 4 Σd⁺ Σd⁻/(nm),   Σ (d - d̄)² = m Σ x'² + n Σ z'²,

    the second line because h̄² - d̄² = 4 d̄⁺ d̄⁻. The sums of d⁻ over a row or a column are sums of the sorted values
    beyond its point, centred. Points far from zero, and samples far apart, where Σd⁻ = 0, lose no digits.
    """
    n, m = len(x), len(z)
    centred_x, centre_x, mean_x = _centred(x)
    centred_z, centre_z, mean_z = _centred(z)
    shift = (centre_x - centre_z) + (mean_x - mean_z)
    if shift < 0.0:
        return gini_components(z, x)[[1, 0, 2]]
    above = look_up(z, x, "right")  # the z from here on exceed x_k
    below = look_up(x, z, "left")  # the x before here are exceeded by z_l
    tail = np.append(np.cumsum(centred_z[::-1])[::-1], 0.0)
    head = np.append(0.0, np.cumsum(centred_x))
    row_excess = (tail[above] - (m - above) * (centred_x + shift)) / m
    column_excess = (below * (centred_z - shift) - head[below]) / n
    mean_excess = float(row_excess.mean())
    rows = centred_x + 2.0 * (row_excess - mean_excess)
    columns = 2.0 * (column_excess - float(column_excess.mean())) - centred_z
    squares = m * (centred_x @ centred_x) + n * (centred_z @ centred_z)
    squares -= 4.0 * n * m * mean_excess * (mean_excess + shift)
    return two_sample_components(n, m, rows @ rows, columns @ columns, squares)


def _centred(values: Floats) -> tuple[Floats, float, float]:
    """Return values minus their mean, and the mean as a value near it and what is missing: rounded less than a mean."""
    centre = float(values[len(values) // 2])
    values = values - centre
    rest = float(values.mean())
    return values - rest, centre, rest


class OneSampleGini(OneSampleKernel):
    """h(x, y) = |x - y|: Gini's mean difference, in the unit of the points."""

    name = "gini"
    limits = (0.0, math.inf)
    complete_route = Route("gini", "mpi_ustat.complete.one_sample:gini", ranges_of_rows)
    influence_route = "mpi_ustat.influence.gini:gini"
    n_coordinates = 1

    def __init__(self) -> None:
        self.across = Gini()

    def influence_options(self) -> dict[str, Any]:
        """Return none."""
        return {}

    def block_total(self, x: Points) -> float:
        """Return Σ_{i<j} |x_i - x_j| in O(n log n)."""
        return gap_total(*_own_gaps(np.sort(x)))

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on, in O(n log n)."""
        n = len(x)
        if n < FEWEST:
            return Local(self.block_sums(x), None)
        values = np.sort(x)
        gaps, below, above = _own_gaps(values)
        total = gap_total(gaps, below, above)
        means = distance_sums(gaps, below, above) / (n - 1)
        rows = float(np.sum((means - total / math.comb(n, 2)) ** 2))
        return gini_local(n, total, rows, float(np.sum(centred(values) ** 2)))


def weighted_gaps(
    values: Points, below: Floats, n: int, next_value: float | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return the gap above each of a stretch of sorted values, and how many of n points lie below and above the gap.

    `below` is how many points of the whole sample lie up to each value, within a run of equal ones any number in
    between; `next_value` the first value above the stretch, None above the last one.
    """
    return np.diff(values, append=values[-1:] if next_value is None else next_value), below, n - below


def _own_gaps(values: Points) -> tuple[Floats, Floats, Floats]:
    return weighted_gaps(values, np.arange(1.0, len(values) + 1.0), len(values))


def gap_total(gaps: Floats, below: Floats, above: Floats) -> float:
    """Return a stretch's share of Σ_{i<j} |x_i - x_j| = Σ_gaps gap·below·above.

    A gap is part of the distance of the pairs that it separates. No term is negative: nothing cancels, however far
    from 0 the values lie.
    """
    return float(np.sum(gaps * (below * above)))


def distance_sums(gaps: Floats, below: Floats, above: Floats, *, left: float = 0.0, right: float = 0.0) -> Floats:
    """Return Σ_j |x_i - x_j| for the points i of a stretch of sorted values.

    Point i is separated by a gap on its left from the points below that gap, by one on its right from those above:

        Σ_j |x_i - x_j| = Σ_{gaps left of i} gap·below + Σ_{gaps right of i} gap·above,

    of which `left` and `right` are those beyond the stretch.
    """
    sums = np.cumsum((gaps * above)[::-1])[::-1] + (left + right)
    sums[1:] += np.cumsum((gaps * below)[:-1])
    return sums


def gini_local(n: int, total: float, rows: float, squares: float) -> Local:
    """Return the sums of `OneSampleGini` for n >= 4 points, with rows = Σ_i (r̄_i - U)² and squares = S = Σ (x - x̄)².

    Σ_{i<j} (|x_i - x_j| - U)² = n S - C(n,2) U², for Σ_{i<j} (x_i - x_j)² = n S. The difference is at least (n-2)/3·S:
    by Cauchy–Schwarz total² = [Σ_i (2i-n-1) x_(i)]² <= S Σ (2i-n-1)² = S n(n²-1)/3, so C(n,2) U² <= ⅔(n+1) S. Little
    can cancel.
    """
    n_pairs = math.comb(n, 2)
    return Local((PairSum(total, n_pairs),), one_sample_components(n, rows, n * squares - total * (total / n_pairs)))
