"""Counts of concordant, discordant and tied pairs of points of the plane, for each point, by sorting.

Notation: of the pairs of points of one sample, C is the number of concordant ones less that of discordant ones, A and B
are the numbers of pairs that are not tied in x and in y, D is the number of those tied in neither. A letter with an
index counts the pairs of that point, so that Σ_i C_i = 2 C and so on. All of them are integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_ustat.numerics.dominance import lower_left
from mpi_ustat.numerics.exactsum import exact_dot
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Flags, Floats, Ints


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
    return [*firsts, *(exact_dot(parts[i], parts[j], n**2) for i, j in products_of(n_parts))]


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
    x_starts: Flags
    y_starts: Flags
    starts: Flags
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


def run_sizes(starts: Flags, more: tuple[int, int] = (0, 0)) -> Ints:
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


def count_by_sorting(x: Floats, y: Floats) -> PointCounts:
    """Return the counts of points (x, y), in O(n log n)."""
    order = order_pairs(x, y)
    x_equal, equal = (at_places(run_sizes(starts), order.places) for starts in (order.x_starts, order.starts))
    return counts_from(len(x), order.discordant(), x_equal, run_sizes(order.y_starts), equal)


def compare_all(x: Floats, y: Floats) -> PointCounts:
    """Return the counts of a few points (x, y), from all their pairs."""
    above_x, above_y = (np.greater.outer(values, values).view(np.int8) for values in (x, y))
    x_signs, y_signs = above_x - above_x.T, above_y - above_y.T
    signs = x_signs * y_signs
    untied = (np.count_nonzero(each, axis=1) for each in (x_signs, y_signs, signs))
    return PointCounts(signs.sum(axis=1), *untied)


def products_of(p: int) -> list[tuple[int, int]]:
    """Return the pairs of p parts."""
    return [(i, j) for i in range(p) for j in range(i, p)]
