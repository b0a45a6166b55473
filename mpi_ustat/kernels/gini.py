"""Gini's mean difference, between two samples or within one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.kernel import Array, Kernel, Local, OfMatrix, PairSum, Points
from mpi_ustat.kernels.layouts import gini_components
from mpi_ustat.kernels.one_sample import FEWEST, OneSampleKernel, centred
from mpi_ustat.kernels.route import Route, ranges_of_rows
from mpi_ustat.numerics.rankstat import absolute_difference_sum


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

    def matrix(self, x: Points, y: Points) -> Array:
        """Return |x - z| for all pairs."""
        return np.abs(np.subtract.outer(x, y))

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b |x_b - z_b|."""
        return float(np.sum(np.abs(x - z)))


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


def weighted_gaps(values: Points, below: Array, n: int, next_value: float | None = None) -> tuple[Array, Array, Array]:
    """Return the gap above each of a stretch of sorted values, and how many points lie below and above the gap.

    Parameters
    ----------
    values : ndarray, shape (k,)
        Sorted in ascending order, finite.
    below : ndarray, shape (k,)
        How many points of the whole sample lie up to each value; within a run of equal ones, any number in between.
    n : int
        Size of the whole sample.
    next_value : float, optional
        The first value above the stretch, None above the last one.

    Returns
    -------
    gaps, below, above : ndarray, shape (k,)
        above = n - below.
    """
    return np.diff(values, append=values[-1:] if next_value is None else next_value), below, n - below


def _own_gaps(values: Points) -> tuple[Array, Array, Array]:
    return weighted_gaps(values, np.arange(1.0, len(values) + 1.0), len(values))


def gap_total(gaps: Array, below: Array, above: Array) -> float:
    """Return a stretch's share of Σ_{i<j} |x_i - x_j| = Σ_gaps gap·below·above.

    A gap is part of the distance of the pairs that it separates. No term is negative: nothing cancels, however far
    from 0 the values lie.
    """
    return float(np.sum(gaps * (below * above)))


def distance_sums(gaps: Array, below: Array, above: Array, *, left: float = 0.0, right: float = 0.0) -> Array:
    """Return Σ_j |x_i - x_j| for the points i of a stretch of sorted values.

    Point i is separated by a gap on its left from the points below that gap, by one on its right from those above:

        Σ_j |x_i - x_j| = Σ_{gaps left of i} gap·below + Σ_{gaps right of i} gap·above.

    Parameters
    ----------
    gaps, below, above : ndarray, shape (k,)
        From `weighted_gaps`.
    left, right : float
        Σ gap·below over the gaps left of the stretch, Σ gap·above over those right of it.
    """
    sums = np.cumsum((gaps * above)[::-1])[::-1] + (left + right)
    sums[1:] += np.cumsum((gaps * below)[:-1])
    return sums


def gini_local(n: int, total: float, rows: float, squares: float) -> Local:
    """Return what `OneSampleGini` gives for n >= 4 points.

    Σ_{i<j} (|x_i - x_j| - U)² = n S - C(n,2) U², for Σ_{i<j} (x_i - x_j)² = n S. The difference is at least (n-2)/3·S:
    by Cauchy–Schwarz total² = [Σ_i (2i-n-1) x_(i)]² <= S Σ (2i-n-1)² = S n(n²-1)/3, so C(n,2) U² <= ⅔(n+1) S. Little
    can cancel.

    Parameters
    ----------
    n : int
    total : float
        Σ_{i<j} |x_i - x_j|.
    rows : float
        Σ_i (r̄_i - U)², r̄_i the mean distance of point i from the others.
    squares : float
        S = Σ (x - x̄)².
    """
    n_pairs = math.comb(n, 2)
    return Local((PairSum(total, n_pairs),), one_sample_components(n, rows, n * squares - total * (total / n_pairs)))
