"""Symmetric kernels h(x, y) of two points of one sample: the variance, Gini's mean difference, a user's function."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Array, Local, OfMatrix, PairSum, Points, Total, as_rows, refuse_close
from mpi_ustat.kernels.layouts import PairMargins, tiles
from mpi_ustat.kernels.user_pairs import DEFAULT_TILE, BlockFunction, Gini, UserKernel, checked_values, fixed_rows
from mpi_ustat.user.guards import read_only, real_numbers, refuse_asymmetric

FEWEST = 4
"""Points that a block needs for components of one sample."""

_PAIRS_TILE = 8


class OneSampleKernel(OfMatrix):
    """A kernel of two points of one sample, whose blocks also meet each other.

    Attributes
    ----------
    across : OnePart
        The same h as a kernel of two samples, for the pairs with one point in each of two disjoint blocks.
    """

    degrees = (2,)
    across: OfMatrix

    def cross_total(self, x: Points, y: Points) -> Total:
        """Return scale times the sum of h over the pairs that take a point from each of two disjoint blocks."""
        return self.across.block_total(x, y)

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        """Return the sum over those pairs, with their number."""
        return (PairSum(self.cross_total(x, y), len(x) * len(y)),)

    def cross_local(self, x: Points, y: Points) -> Local:
        """Return `cross_sums`, and ζ₁ and δ of the layout that the two blocks make, where there is one.

        Its rows and columns are effects of one law: ζ₁ is the mean of var_x and var_z, δ is var_xz.
        """
        sums, found = self.across.local(x, y)
        return Local(sums, None if found is None else np.array([(found[0] + found[1]) / 2.0, found[2]]))

    def matrix(self, x: Points, y: Points) -> Array:
        """Return h for all pairs of two blocks."""
        return self.across.matrix(x, y)


class Variance(OneSampleKernel):
    """h(x, y) = ½(x - y)², whose mean over pairs is the sample variance with divisor n - 1.

    (Without the ½ it is twice the variance.) In the squared unit of the points.
    """

    name = "variance"
    limits = (0.0, math.inf)
    complete_route = "variance"
    n_coordinates = 1

    def __init__(self) -> None:
        self.across = _HalfSquare()

    def check_range(self, low: Array, high: Array) -> None:
        """Refuse points so near to each other that squares vanish."""
        refuse_close(low, high, 2.0**-510)

    def block_total(self, x: Points) -> float:
        """Return ½ n Σ (x - x̄)² in O(n)."""
        return len(x) * float(np.sum(centred(x) ** 2)) / 2 if len(x) else 0.0

    def pairs_total(self, x: Points, y: Points) -> float:
        """Return Σ_b ½(x_b - y_b)²."""
        return float(np.sum((x - y) ** 2)) / 2

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on, in O(n)."""
        if len(x) < FEWEST:
            return Local(self.block_sums(x), None)
        squares = centred(x) ** 2
        total = float(np.sum(squares))
        return variance_local(len(x), total, float(np.sum((squares - total / len(x)) ** 2)))


class OneSampleGini(OneSampleKernel):
    """h(x, y) = |x - y|: Gini's mean difference, in the unit of the points."""

    name = "gini"
    limits = (0.0, math.inf)
    complete_route = "gini"
    n_coordinates = 1

    def __init__(self) -> None:
        self.across = Gini()

    def block_total(self, x: Points) -> float:
        """Return Σ_{i<j} |x_i - x_j| in O(n log n)."""
        return gap_total(*_own_gaps(np.sort(x)))

    def pairs_total(self, x: Points, y: Points) -> float:
        """Return Σ_b |x_b - y_b|."""
        return float(np.sum(np.abs(x - y)))

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


class UserPairs(OneSampleKernel):
    """A kernel of two points of one sample, given as a function of two blocks.

    The function must be symmetric, h(x, y) = h(y, x), because the order in which the points of a pair come depends on
    where they lie: `check_points` refuses it where a few points show that it isn't. What it returns for a point and
    itself is not used, and may be anything; not so for the copies of a point that a block drawn with replacement has.

    Parameters
    ----------
    function, name, tile
        As of `kernels.UserKernel`.
    """

    allows_infinite = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        self.across: UserKernel = UserKernel(function, name, tile)
        self.function = function
        self.name = name
        self.tile = tile
        self.limits = self.across.limits

    def block_total(self, x: Points) -> Total:
        """Return Σ_{i<j} h(x_i, x_j), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(pairs)) for *_, pairs in self._tiles(read_only(as_rows(x))))

    def pairs_total(self, x: Points, y: Points) -> Total:
        """Return Σ_b h(x_b, y_b) over aligned pairs."""
        x, y = fixed_rows(x, y)
        if hasattr(self.function, "pairs"):
            return self.across.pairs_total(x, y)
        return add(
            float(np.sum(self._diagonal(x[i : i + _PAIRS_TILE], y[i : i + _PAIRS_TILE])))
            for i in range(0, len(x), _PAIRS_TILE)
        )

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on; every pair is evaluated once."""
        n = len(x)
        if n < FEWEST:
            return Local(self.block_sums(x), None)
        sums, (of_points,), squares = self.margins(x)
        mean = sums[0].total / sums[0].n_pairs
        rows_squares = float(np.sum((of_points[:, 0] / (n - 1) - mean) ** 2))
        return Local(sums, one_sample_components(n, rows_squares, squares))

    def matrix(self, x: Points, y: Points) -> Array:
        """Return h for all pairs of two blocks, 0 where a block's point meets itself, of which h may be anything."""
        values = np.array(self._values(*fixed_rows(x, y)))  # a copy, which may be written to
        if x is y and values.ndim == 2:
            np.fill_diagonal(values, 0.0)
        return checked_values(self.name, values, (len(x), len(y)))

    def check_points(self, blocks: Sequence[Points], stream: Any) -> None:
        """Refuse a function that is not symmetric, by all pairs of a few points."""
        x = read_only(as_rows(blocks[0]))
        values = np.zeros((len(x), len(x)))
        for rows, columns, h in tiles(self._values, x, x, self.tile):
            if h.shape != values[rows, columns].shape:
                return  # which its evaluation refuses
            values[rows, columns] = h
        np.fill_diagonal(values, 0.0)
        refuse_asymmetric(self.name, values, values.T)
        aligned = getattr(self.function, "pairs", None)
        if aligned is not None:
            both = (x[1:], x[:-1]), (x[:-1], x[1:])
            ways = [real_numbers(f"the kernel {self.name}", aligned(*pair)) for pair in both]
            if all(way.shape == (len(x) - 1,) for way in ways):
                refuse_asymmetric(self.name, *ways)

    def margins(self, *blocks: Points) -> tuple[tuple[PairSum, ...], tuple[Array, ...], Array]:
        """Return what `complete.ring.HasMargins` asks for."""
        if len(blocks) == 2:
            return self.across.margins(*blocks)
        x = read_only(as_rows(blocks[0]))
        of_points, found = np.zeros((len(x), 1)), PairMargins()
        for rows, columns, values, pairs in self._tiles(x):
            of_points[rows, 0] += values.sum(axis=1)
            of_points[columns, 0] += values.sum(axis=0)
            found.add(pairs)
        whole, squares = found.result()
        return (whole,), (of_points,), np.array([[squares]])

    def _tiles(self, x: Points) -> Iterator[tuple[slice, slice, Array, Array]]:
        """Yield the upper triangle of tiles: rows, columns, h with 0 where i >= j, and the values with i < j."""
        starts = range(0, len(x), self.tile)
        for i in starts:
            rows = slice(i, min(i + self.tile, len(x)))
            if rows.stop - i > 1:
                values = self._values(x[rows], x[rows])
                # Zeros in the place of h(x, x), before it is checked that the values are finite.
                values = np.triu(values, 1) if values.ndim == 2 else values
                values = checked_values(self.name, values, (rows.stop - i,) * 2)
                yield rows, rows, values, values[np.triu_indices(rows.stop - i, 1)]
            for j in starts[i // self.tile + 1 :]:
                columns = slice(j, min(j + self.tile, len(x)))
                values = self.across.matrix(x[rows], x[columns])
                yield rows, columns, values, values

    def _values(self, x: Points, y: Points) -> Array:
        return real_numbers(f"the kernel {self.name}", self.function(x, y))

    def _diagonal(self, x: Points, y: Points) -> Array:
        """Return h of aligned pairs from a square tile, whose other values may be of a point with itself."""
        values = self._values(x, y)
        square = (len(x), len(x))
        if values.shape == square:
            return checked_values(self.name, np.diagonal(values), (len(x),))
        return checked_values(self.name, values, square)


class _HalfSquare(OfMatrix):
    """h(x, y) = ½(x - y)² for x and y in two blocks, of which nothing cancels, however far from 0 the points lie.

    With e = x - x̄ (n of them, S_e = Σ e²), f = y - ȳ (m, S_f) and D = x̄ - ȳ,

        h = ½(e_k - f_l + D)²,    Σ_kl h = ½(m S_e + n S_f + n m D²).
    """

    name = "variance"
    n_coordinates = 1

    def block_total(self, x: Points, y: Points) -> float:
        """Return Σ_kl ½(x_k - y_l)² in O(n + m)."""
        return self._total(*self._centre(x, y)) if len(x) and len(y) else 0.0

    def pairs_total(self, x: Points, y: Points) -> float:
        """Return Σ_b ½(x_b - y_b)²."""
        return float(np.sum((x - y) ** 2)) / 2

    def _centre(self, x: Points, y: Points) -> tuple[Points, Points, float]:
        """Return e, f and D, which is found from one point of each block: the means themselves are rounded."""
        e, f = centred(x), centred(y)
        return e, f, float((x[0] - y[0]) - (e[0] - f[0]))

    def matrix(self, x: Points, y: Points) -> Array:
        """Return ½(x - y)² for all pairs."""
        return 0.5 * np.subtract.outer(x, y) ** 2

    def _total(self, e: Points, f: Points, apart: float) -> float:
        n, m = len(e), len(f)
        return (m * float(np.sum(e**2)) + n * float(np.sum(f**2)) + n * m * apart * apart) / 2


def centred(x: Points) -> Points:
    """Return x - x̄, rounded in the last bits of differences between points, however far from 0 they lie."""
    differences = x - x[0]
    return np.asarray(differences - differences.mean())


def variance_local(n: int, squares: float, fourths: float) -> Local:
    """Return what `Variance` gives for n >= 4 points with d = x - x̄, S = Σ d² and Q = Σ (d² - S/n)².

    U = S/(n-1). From Σ d = 0, the mean of h over the pairs of point i is r̄_i = (n d_i² + S)/(2(n-1)), hence

        Σ_i (r̄_i - U)² = n² Q/(4(n-1)²).

    Σ_{i<j} h² = ⅛ Σ_ij (d_i - d_j)⁴ = ¼(n Σ d⁴ + 3 S²), Σ d⁴ = Q + S²/n, and C(n,2) U² = n S²/(2(n-1)), hence

        Σ_{i<j} (h - U)² = n Q/4 + S² (n-2)/(2(n-1)),

    both sums of terms that are not negative.

    Parameters
    ----------
    n : int
    squares, fourths : float
        S and Q.
    """
    rows = n * n * fourths / (4 * (n - 1) ** 2)
    around = n * fourths / 4 + squares * squares * (n - 2) / (2 * (n - 1))
    return Local((PairSum(n * squares / 2, math.comb(n, 2)),), one_sample_components(n, rows, around))


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
