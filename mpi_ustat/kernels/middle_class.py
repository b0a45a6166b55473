"""Sums over the tuples of two or three ordered classes, from what lies around the points of the middle one.

Every number here is an integer, found exactly: sums over ranges of scores, blocks or ranks may be joined in any way.
Given the numbers of lower and higher points around each point of the middle class, all margins of the VUS and their
sums of squares are sums of products of prefix sums (`margin_sums`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.exactsum import exact_count, exact_dot
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.runs import Runs

Counts = NDArray[Any]
"""int64; Python integers (dtype object) where products of two counts might not fit into 64 bits."""

Dot = Callable[[Counts, Counts], int]

_INT64 = 1 << 63
_PIECE = 1 << 14  # scores whose sums are found at a time: what comes in between stays in a core's cache


class Credits(NamedTuple):
    """What h gives, times the kernel's scale: Credits(1, 0, 0), or (K!, K!/2, K!/6) where ties share."""

    in_order: int
    one_tie: int
    all_tied: int


class Around(NamedTuple):
    """What lies around the points of the middle class, in ascending order of these.

    Attributes
    ----------
    values : ndarray of float64, shape (D,)
        The points.
    copies : ndarray of int, shape (D,), or None
        How many points have each value, the values being distinct; None: every entry is one point.
    counts : tuple of 2 or 4 ndarrays of int, shape (D,)
        Points of the lower class below each value, and of the higher class above it; and, unless no tie earns a
        credit, of the lower class and of the higher class at it.
    """

    values: Points
    copies: Counts | None
    counts: tuple[Counts, ...]

    def piece(self, start: int, stop: int) -> Around:
        """Return a run of entries."""
        cut = slice(start, stop)
        copies = None if self.copies is None else self.copies[cut]
        return Around(self.values[cut], copies, tuple(each[cut] for each in self.counts))

    def joined(self) -> Around:
        """Return the distinct values with the numbers of their copies."""
        if self.copies is not None:
            return self
        starts = np.flatnonzero(starts_of_runs(self.values))
        copies = np.diff(starts, append=len(self.values))
        return Around(self.values[starts], copies, tuple(each[starts] for each in self.counts))

    def within(self, n_below: int, n_above: int) -> Around:
        """Return the counts around the points when there are so many more lower and higher points further away."""
        below, above, *ties = self.counts
        return self._replace(counts=(below + n_below, above + n_above, *ties))


def look_around(classes: Sequence[Runs], credits: Credits) -> Around:
    """Return how many points of the first and third class lie around each of the second.

    Two classes are taken for three, the third being a single point above everything: h and its margins are the same.
    """
    lower, middle = classes[:2]
    higher = classes[2] if len(classes) == 3 else Runs(np.array([np.nan]))  # NaN is sorted after infinity
    values, copies = middle.values, middle.counts
    if credits.one_tie == 0:
        above = higher.n_points - higher.up_to(values)
        return Around(values, copies, (lower.below(values), above))
    below, tied_below = lower.below_and_at(values)
    under, tied_above = higher.below_and_at(values)
    if tied_below is None and tied_above is None:
        return Around(values, copies, (below, higher.n_points - under))
    tied_below, tied_above = (np.zeros_like(below) if at is None else at for at in (tied_below, tied_above))
    return Around(values, copies, (below, higher.n_points - under - tied_above, tied_below, tied_above))


def side_sums(around: Around, credits: Credits, sizes: Sequence[int]) -> tuple[int, int]:
    """Return Σ L and Σ R over the points of the middle class, which `margin_sums` of neighbouring ranges want."""
    below, above, *ties = _whole(around.counts, credits, sizes)
    left, right = credits.in_order * below, credits.in_order * above
    if ties:
        left, right = left + credits.one_tie * ties[0], right + credits.one_tie * ties[1]
    if around.copies is not None:
        left, right = left * around.copies, right * around.copies
    return int(left.sum()), int(right.sum())  # at most α times the product of two sizes: see `_whole`


def margin_sums(
    around: Around, credits: Credits, sizes: Sequence[int], *, before: int = 0, after: int = 0
) -> dict[tuple[int, ...], int]:
    """Return the sums of squares of all margins of h over two or three classes, exactly, from a range of scores.

    The margin m_S is the sum of the scaled h over the points of the classes outside S, a function of one point of each
    class in S. All sums are sums over the points y of the middle class, here over the distinct values v of them, d in
    number: with lt lower points below v, ex at v, gt higher points above v and ez at v, and with α, β, γ the credits
    (in order, one tie, all tied),

        R = α gt + β ez   is the sum of h over the higher class for y = v and an x below v, R' = β gt + γ ez for x = v;
        L = α lt + β ex   is that over the lower class for a z above v, and L' = β lt + γ ex for z = v.

    So m_2 = lt R + ex R', m_12 = R (lt times) and R' (ex times), m_23 likewise, and q = Σ_xz h² = α² lt gt + β² (lt ez
    + ex gt) + γ² ex ez. Summing them or their squares gives the total, Σ m_2², Σ m_12², Σ m_23², Σ m_123² = Σ d q.

    m_13² counts pairs of points of the middle class: two at v < v' both lie between the same x and z in L_v R_v' ways
    (x is then below v', and z above v), two at the same v in q ways: Σ m_13² = Σ d² q + 2 Σ_{v<v'} d_v L_v d_v' R_v'.

    m_1 falls as x rises: below v, but not below its predecessor, it is S_v = Σ_{v'≥v} d R; at v it is Y_v = S_{v+1} +
    d R'; above, S_{v+1}. Adding up squares by these steps instead of by x (Abel),

        Σ m_1² = Σ_v [lt (S_v² - Y_v²) + (lt + ex)(Y_v² - S_{v+1}²)]
               = Σ_v d [lt (R - R')(S_v + Y_v) + (lt + ex) R' (Y_v + S_{v+1})],

    a sum over the middle class again; Σ m_3² is its mirror image. No values need be joined where no tie earns a credit
    (ex = ez = 0): each copy of a value may then be taken for a value of its own.

    Parameters
    ----------
    around : Around
        Of a range of scores, its numbers being those of the whole samples, of these sizes.
    before, after : int
        Σ L over the points of the middle class below the range, and Σ R over those above it.

    Returns
    -------
    dict
        S to Σ m_S² for the non-empty subsets S of {0, …, K-1}, and () to the total, m_∅; of ranges they add up.
    """
    if len(around.counts) > 2:
        around = around.joined()
    pieces = [around.piece(i, i + _PIECE) for i in range(0, len(around.values), _PIECE)] or [around]
    # No sum here is above (α Π n)²: each is a part of some Σ m_S².
    dot = _dot if (credits.in_order * math.prod(sizes)) ** 2 < _INT64 else exact_dot
    margins: dict[tuple[int, ...], int] = {}
    sides = [side_sums(piece, credits, sizes) for piece in pieces]
    after += sum(right for _, right in sides)
    for piece, (left, right) in zip(pieces, sides, strict=True):
        after -= right
        found = _untied_margin_sums if piece.copies is None else _tied_margin_sums
        for s, value in found(piece, credits, _whole(piece.counts, credits, sizes), dot, before, after).items():
            margins[s] = margins.get(s, 0) + value
        before += left
    return margins if len(sizes) == 3 else {s: value for s, value in margins.items() if 2 not in s}


def _whole(counts: Sequence[Counts], credits: Credits, sizes: Sequence[int]) -> list[Counts]:
    """Return counts in a type that holds twice the product of two, times the square of the largest credit."""
    huge = 2 * credits.in_order**2 * max(sizes) ** 2 >= _INT64
    return [each.astype(object) if huge else each for each in counts]


def _dot(a: Counts, b: Counts) -> int:
    return int(a @ b)


def _untied_margin_sums(
    around: Around, credits: Credits, counts: Sequence[Counts], dot: Dot, before: int, after: int
) -> dict[tuple[int, ...], int]:
    alpha = credits.in_order
    below, above = counts
    left, right = alpha * below, alpha * above
    both = below * right
    to_left, to_right = np.cumsum(left), np.cumsum(right)
    twice_before = 2 * (to_left + before) - left
    twice_after = 2 * (right.sum() - to_right + after) + right
    total = dot(left, right) // alpha
    return {
        (): total,
        (0,): dot(both, twice_after),
        (1,): dot(both, both),
        (2,): dot(both, twice_before),
        (0, 1): dot(both, right),
        (0, 2): dot(left, twice_after),
        (1, 2): dot(both, left),
        (0, 1, 2): alpha * total,
    }


def _tied_margin_sums(
    around: Around, credits: Credits, counts: Sequence[Counts], dot: Dot, before: int, after: int
) -> dict[tuple[int, ...], int]:
    alpha, beta, gamma = credits
    assert around.copies is not None
    nothing = np.zeros_like(around.copies)
    d = around.copies.astype(counts[0].dtype)
    lt, gt, ex, ez = (*counts, nothing, nothing)[:4]
    right, right_tied = alpha * gt + beta * ez, beta * gt + gamma * ez
    left, left_tied = alpha * lt + beta * ex, beta * lt + gamma * ex
    from_here, up_to_here = d * right, d * left
    behind = from_here.sum() - np.cumsum(from_here) + after  # S of the next value
    ahead = np.cumsum(up_to_here) - up_to_here + before
    at_x, at_z = behind + d * right_tied, ahead + d * left_tied
    both = lt * right + ex * right_tied
    squares = alpha**2 * lt * gt + beta**2 * (lt * ez + ex * gt) + gamma**2 * ex * ez

    def weighted(*pairs: tuple[Counts, Counts]) -> int:
        return sum(_weighted_dot(dot, d, a, b) for a, b in pairs)

    return {
        (): weighted((both, np.ones_like(d))),
        (0,): weighted((lt * (right - right_tied), behind + from_here + at_x), ((lt + ex) * right_tied, at_x + behind)),
        (1,): weighted((both, both)),
        (2,): weighted((gt * (left - left_tied), ahead + up_to_here + at_z), ((gt + ez) * left_tied, at_z + ahead)),
        (0, 1): weighted((lt * right, right), (ex * right_tied, right_tied)),
        (0, 2): weighted((d, squares), (2 * left, behind)),
        (1, 2): weighted((gt * left, left), (ez * left_tied, left_tied)),
        (0, 1, 2): weighted((squares, np.ones_like(d))),
    }


def _weighted_dot(dot: Dot, d: Counts, a: Counts, b: Counts) -> int:
    """Return Σ d·a·b; where d·a may not fit into 64 bits, by the halves of a."""
    if dot is _dot or a.dtype == object or int(d.max(initial=0)) * int(a.max(initial=0)) < _INT64:
        return dot(d * a, b)
    return (_weighted_dot(dot, d, a >> 32, b) << 32) + _weighted_dot(dot, d, a & (2**32 - 1), b)


def scaled_total(around: Around, credits: Credits, sizes: Sequence[int]) -> int:
    """Return the scaled sum of h, each entry of `around` being one point."""
    alpha, beta, gamma = credits
    below, above, *ties = _whole(around.counts, credits, sizes)
    terms = alpha * below * above
    if ties:
        terms += beta * (below * ties[1] + ties[0] * above) + gamma * ties[0] * ties[1]
    return sum(terms.tolist()) if terms.dtype == object else exact_count(terms, alpha * max(sizes) ** 2)
