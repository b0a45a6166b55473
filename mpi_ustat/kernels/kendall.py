"""Kendall's rank correlation of two columns: tau-a, a U-statistic, and tau-b, a quotient of three.

Notation: of the pairs of points of one sample, C is the number of concordant ones less that of discordant ones, A and B
are the numbers of pairs that are not tied in x and in y, D is the number of those tied in neither. A letter with an
index counts the pairs of that point, so that Σ_i C_i = 2 C and so on. All of them are integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Points
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.dominance import lower_left
from mpi_ustat.numerics.exactsum import exact_dot
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Bools, Floats, Ints

_FEW = 128
"""Up to so many points, comparing all of them is faster than sorting."""

_FEWEST = 4
"""Points that a block needs for components."""


TAU = Option("tau", "which of Kendall's", "b", choices=("a", "b"), label="Kendall's tau")


class Kendall(Kernel):
    """The sign of (x₁ - x₂)(y₁ - y₂) for points (x, y) of one sample: +1 for concordant pairs, -1 for discordant ones.

    With n points and the notation of the module,

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
    limits = (-1.0, 1.0)
    projection_rows = 20_000

    def __init__(self, tau: str = TAU.default) -> None:
        self.tau = TAU.checked(tau)
        self.n_parts = 1 if tau == "a" else 3
        self.pooled_only = tau == "b"

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
        whole, *inside = (self.block_sums(block) for block in (np.concatenate([x, y]), x, y))
        return tuple(
            PairSum(union.total - sum(part.total for part in parts), len(x) * len(y))
            for union, *parts in zip(whole, *inside, strict=True)
        )

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
        """Return tau, shape (1,), from the averages of h_C, or of h_C, h_A and h_B."""
        if self.tau == "a":
            return means
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
        if n < _FEWEST:
            return Local(of_parts, None)
        untied = sums[p] // 2
        pairs = [[untied]]
        if p == 3:
            c, a, b = totals
            pairs = [[untied, c, c], [c, a, untied], [c, untied, b]]
        points = dict(zip(_products(p), sums[p + 1 :], strict=True))
        rows, squares = np.empty((p, p)), np.empty((p, p))
        for (i, j), product in points.items():
            both = totals[i] * totals[j]
            rows[i, j] = rows[j, i] = (n * product - 4 * both) / (n * (n - 1) ** 2)
            squares[i, j] = squares[j, i] = (q * pairs[i][j] - both) / q
        return Local(of_parts, one_sample_components(n, rows, squares))

    def _point_sums(self, block: Points) -> list[int]:
        x, y = block[:, 0], block[:, 1]
        counts = _compare_all(x, y) if len(block) <= _FEW else _count_by_sorting(x, y)
        return point_sums(len(block), self.n_parts, counts)

    def _denominator(self, means: Floats) -> float:
        for column, untied in zip("xy", means[1:], strict=True):
            if untied == 0:
                raise UserError(
                    f"Kendall's tau-b is not defined: all pairs of column {column} that were looked at are tied; "
                    "choose another column, tau-a, or more pairs"
                )
        return math.sqrt(means[1] * means[2])


class PointCounts(NamedTuple):
    """What each point has in its pairs: integers, shape (n,); any order of the points that is common to all.

    Attributes
    ----------
    signs : ndarray
        C_i, concordant pairs less discordant ones.
    x_untied, y_untied, untied : ndarray
        A_i, B_i and D_i. One number alone stands for n equal ones.
    """

    signs: Ints
    x_untied: Ints
    y_untied: Ints
    untied: Ints


def counts_from(n: int, discordant: Ints, x_equal: Ints, y_equal: Ints, equal: Ints) -> PointCounts:
    """Return the counts of points from the numbers of their discordant pairs and of points equal to them.

    Of the n points, e agree with a point in x, f in y and g in both, itself included, so that A_i = n - e, B_i = n - f,
    D_i = n - e - f + g, and of the D_i pairs that are tied in neither those that aren't discordant are concordant.
    """
    untied = n - x_equal - y_equal + equal
    return PointCounts(untied - 2 * discordant, n - x_equal, n - y_equal, untied)


def point_sums(n: int, n_parts: int, counts: PointCounts) -> list[int]:
    """Return Σ_i C_i (A_i, B_i), Σ_i D_i, and Σ_i of all products of the parts, as exact integers.

    n is the number of points of the whole sample, of which `counts` may have some: such sums add up.
    """
    own = len(counts.signs)
    parts = [np.broadcast_to(each, own) for each in counts[:n_parts]]
    firsts = [int(part.sum()) for part in (*parts, np.broadcast_to(counts.untied, own))]
    return [*firsts, *(exact_dot(parts[i], parts[j], n**2) for i, j in _products(n_parts))]


class PairOrder(NamedTuple):
    """Points in two orders: by x, and by y where x is equal; and by y, and by x where y is equal.

    Pairs tied in either column are in the same order in both: only discordant pairs are inversions.

    Attributes
    ----------
    places : ndarray of int, shape (n,)
        For each point in the order of y, its place in the order of x.
    y : ndarray, shape (n,)
        Ascending.
    x_starts, y_starts, starts : ndarray of bool, shape (n,)
        In the order of x, of y and of x: where a value of x, of y and of (x, y) occurs first.
    ends : tuple of ((float, float), (float, float)), or of nothing
        The first and the last point, (x, y), in the order of x.
    """

    places: Ints
    y: Floats
    x_starts: Bools
    y_starts: Bools
    starts: Bools
    ends: tuple[tuple[float, float], ...]

    def discordant(self) -> Ints:
        """Return the number of discordant pairs of each point, in the order of y."""
        lower = lower_left(self.places)
        counts = np.arange(len(lower)) + self.places
        counts -= lower
        counts -= lower
        return counts


def order_pairs(x: Floats, y: Floats) -> PairOrder:
    """Sort points by x and by y, without NaN.

    Unstable sorts of numbers are fast, so ties are put in order after them: words of (number of the value of x, of y)
    are the points in the order of x, and words of (number of the value of y, place) sort to their places by y.
    """
    by_x = np.argsort(x)
    x, y = x[by_x], y[by_x]
    places = np.argsort(y)
    y = y[places]
    x_starts, y_starts = starts_of_runs(x), starts_of_runs(y)
    starts = x_starts
    if not (x_starts.all() and y_starts.all()):
        words = (np.cumsum(x_starts) - 1)[places]
        words <<= 32
        words |= np.cumsum(y_starts) - 1
        words.sort()
        starts = starts_of_runs(words)
        words <<= 32  # the number of the value of x leaves at the top
        words |= np.arange(len(words))
        words.sort()
        places = words & (2**32 - 1)
    ends: tuple[tuple[float, float], ...] = ()
    if len(x):
        of_first, of_last = (int(np.flatnonzero(places == place)[0]) for place in (0, len(x) - 1))
        ends = ((float(x[0]), float(y[of_first])), (float(x[-1]), float(y[of_last])))
    return PairOrder(places, y, x_starts, y_starts, starts, ends)


def run_sizes(starts: Bools, more: tuple[int, int] = (0, 0)) -> Ints:
    """Return for each of sorted values how many are equal to it; a single 1 if none has an equal.

    A run of equal values is where it `starts`; of the first and of the last value there may be `more` elsewhere.
    """
    if starts.all() and not any(more):
        return np.array(1)
    here = np.diff(np.append(np.flatnonzero(starts), len(starts)))
    sizes = here.copy()
    sizes[0] += more[0]
    sizes[-1] += more[1]
    return np.repeat(sizes, here)


def at_places(sizes: Ints, places: Ints) -> Ints:
    """Bring what `run_sizes` gives for the order of x into the order of y."""
    return sizes[places] if sizes.ndim else sizes


def _count_by_sorting(x: Floats, y: Floats) -> PointCounts:
    order = order_pairs(x, y)
    x_equal, equal = (at_places(run_sizes(starts), order.places) for starts in (order.x_starts, order.starts))
    return counts_from(len(x), order.discordant(), x_equal, run_sizes(order.y_starts), equal)


def _compare_all(x: Floats, y: Floats) -> PointCounts:
    above_x, above_y = (np.greater.outer(values, values).view(np.int8) for values in (x, y))
    x_signs, y_signs = above_x - above_x.T, above_y - above_y.T
    signs = x_signs * y_signs
    untied = (np.count_nonzero(each, axis=1) for each in (x_signs, y_signs, signs))
    return PointCounts(signs.sum(axis=1), *untied)


def _products(p: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(p) for j in range(i, p)]
