"""Counting which points of the plane lie below and to the left of which, in O(n log n) and without a loop over points.

The points are the places 0 … n-1 of a permutation and the ranks that stand there. The point i is above and to the right
of j when j < i and rank_j < rank_i. Runs of s = 2^h places, and of s ranks, cut the plane into squares; with (u, v) the
square of a point, those below and to the left of point i are of exactly one of three kinds:

- u_j < u_i and v_j < v_i: their number is a sum of a histogram of the squares, over a corner of it;
- u_j = u_i: the same problem within a run of s places;
- u_j < u_i and v_j = v_i: the same problem within a run of s ranks, whose points are taken in the order of their ranks
  and compared by their u.

So a problem of b bits is a histogram and two families of problems of b/2 bits, and those of up to 6 bits compare all
their points: T(b) = O(n) + 2 T(b/2) = O(n b). Most of it runs in a core's cache, several times faster than merging.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.numerics.types import Flags, Integers, Ints

_LEAF = 64
"""Problems of up to so many points compare all of them; the counts fit in a byte."""

_CHUNK = 1 << 17
"""Points of smaller problems that are solved together: their arrays stay in a core's cache."""

_FEW_PAIRS = 1 << 14


def lower_left(ranks: ArrayLike) -> Integers:
    """Return for each place of a permutation the number of earlier places that have a lower rank.

    The inversions that the point at place i has a part in are i + rank_i - 2·(its count): of the i earlier points those
    of higher rank, and of the rank_i lower points those that come later. int32, or int64 where n needs it.
    """
    ranks = np.asarray(ranks)
    n = len(ranks)
    if n < 2:
        return np.zeros(n, dtype=np.int32)
    h = _half_bits(n)
    size = -(-n >> h) << h
    # Points put behind all others, in both coordinates, change no count.
    padded: Integers = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64)
    padded[:n] = ranks
    return _lower_left(padded[None, :], inverse(padded)[None, :])[0, :n]


def count_dominated(ax: ArrayLike, ay: ArrayLike, bx: ArrayLike, by: ArrayLike) -> int:
    """Return #{(i, j): ax_i < bx_j and ay_i < by_j}, exactly, in O((n + m) log(n + m)); infinities compare as usual.

    Ties are broken in favour of b in both coordinates, so that a < b there means what it means here. Let L(·) be the
    number of pairs of a set of points of which one is below and to the left of the other. Of the union's pairs those
    inside a and inside b are not wanted; what remains is D + D', with D' the pairs in which b is below and to the left
    of a. For one pair, with u = 1{a < b in x} and v = 1{a < b in y}, the difference of the two indicators is
    uv - (1-u)(1-v) = u + v - 1. Hence D - D' = W_x + W_y - n m, W the numbers of pairs with a < b in one coordinate:

        2 D = L(a ∪ b) - L(a) - L(b) + W_x + W_y - n m.
    """
    ax, ay, bx, by = (np.asarray(values) for values in (ax, ay, bx, by))
    n, m = len(ax), len(bx)
    if n * m <= _FEW_PAIRS:
        return int(np.count_nonzero((ax[:, None] < bx) & (ay[:, None] < by)))
    by_x = _argsort_stable(np.concatenate([bx, ax]))
    by_y = _argsort_stable(np.concatenate([by, ay]))
    ranks = inverse(by_y)[by_x]
    of_a = by_x >= m
    a_first = sum(_count_first(order >= m) for order in (by_x, by_y))
    inside = sum(_pairs_in_order(_compressed(ranks[chosen], n + m)) for chosen in (of_a, ~of_a))
    return (_pairs_in_order(ranks) - inside + a_first - n * m) // 2


def inverse(permutation: Integers) -> Integers:
    """Return the permutation that undoes this one: an array of the same dtype."""
    undone = np.empty_like(permutation)
    undone[permutation] = np.arange(len(permutation), dtype=permutation.dtype)
    return undone


def _lower_left(ranks: Integers, order: Integers) -> Integers:
    """Return `lower_left` of each row; a row is a whole number of runs of 2^h places. `order` undoes `ranks`."""
    n_rows, size = ranks.shape
    h = _half_bits(size)
    side = 1 << h
    squares, corners = _corners(ranks, h)
    counts = np.take(corners, squares).reshape(-1, side)
    in_places = ranks.reshape(-1, side)
    in_ranks = (order >> h).reshape(-1, side)
    if side <= _LEAF:
        counts += _compare_all(in_places.astype(_smallest(size)))
        counts_in_ranks = np.ascontiguousarray(_compare_all(in_ranks.astype(_smallest(size >> h))))
    else:
        counts_in_ranks = np.empty(counts.shape, counts.dtype)
        step = max(1, _CHUNK // side)
        for start in range(0, len(counts), step):
            chunk = slice(start, start + step)
            counts[chunk] += _lower_left(*_rank_rows(in_places[chunk], h))
            counts_in_ranks[chunk] = _lower_left(*_rank_rows(in_ranks[chunk], h))
    counts = counts.reshape(n_rows, size)
    counts += np.take(counts_in_ranks, _flat(ranks))
    return counts


def _corners(ranks: Integers, h: int) -> tuple[Ints, Integers]:
    """Return each point's square, and for each square the number of points in squares before and below it."""
    n_rows, size = ranks.shape
    across = size >> h
    strips = np.arange(n_rows * across, dtype=np.int64).reshape(n_rows, across, 1)
    squares = (ranks >> h).reshape(n_rows, across, -1) + strips * across
    histogram = np.bincount(squares.ravel(), minlength=n_rows * across**2).astype(ranks.dtype)
    histogram = histogram.reshape(n_rows, across, across)
    below = np.zeros_like(histogram)
    np.cumsum(histogram[:, :, :-1], axis=2, out=below[:, :, 1:])
    corners = np.zeros_like(below)
    for u in range(1, across):  # whole rows at a time: cumsum along this axis would walk down columns
        np.add(corners[:, u - 1], below[:, u - 1], out=corners[:, u])
    return squares, corners


def _compare_all(values: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return, along each row, the number of earlier values that are lower."""
    columns = np.ascontiguousarray(values.T)
    counts = np.zeros(columns.shape, dtype=np.uint8)
    lower = np.empty(columns.shape, dtype=np.bool_)
    for k in range(1, len(columns)):
        np.less(columns[:-k], columns[k:], out=lower[k:])
        counts[k:] += lower[k:].view(np.uint8)
    return counts.T


def _rank_rows(values: Integers, h: int) -> tuple[Integers, Integers]:
    """Return the ranks of the 2^h values of each row, the later of equals being the lower, and what undoes them."""
    last = (1 << h) - 1
    word = np.dtype(np.uint32 if int(values.max()).bit_length() + h <= 32 else np.uint64).type
    words = values.astype(word)
    words <<= word(h)
    words |= np.arange(last, -1, -1, dtype=word)
    words.sort(axis=1)
    words &= word(last)
    words ^= word(last)
    order = words.astype(np.int32)
    ranks = np.empty_like(order)
    ranks.ravel()[_flat(order)] = np.arange(last + 1, dtype=np.int32)
    return ranks, order


def _flat(places: Integers) -> Integers:
    """Return where the places of each row are when the rows are put end to end."""
    if len(places) == 1:
        return places
    first = np.arange(len(places), dtype=np.int64)[:, None] * places.shape[1]
    return np.asarray(places + first)


def _half_bits(size: int) -> int:
    return ((size - 1).bit_length() + 1) // 2


def _smallest(limit: int) -> type[np.unsignedinteger]:
    return np.uint8 if limit <= 2**8 else np.uint16


def _argsort_stable(values: NDArray[np.generic]) -> Ints:
    """Return a stable argsort, quicker than NumPy's, which takes several times as long as an unstable one."""
    order = np.argsort(values)
    ordered = values[order]
    new = ordered[1:] != ordered[:-1]
    if new.all():
        return order
    words = np.zeros(len(values), dtype=np.int64)
    np.cumsum(new, out=words[1:])
    words <<= 32
    words |= order
    words.sort()
    words &= (1 << 32) - 1
    return words


def _compressed(ranks: Integers, size: int) -> Integers:
    """Return the ranks of some of a permutation's points among themselves."""
    present = np.zeros(size, dtype=np.int64)
    present[ranks] = 1
    return (np.cumsum(present) - 1)[ranks]


def _pairs_in_order(ranks: Integers) -> int:
    return int(lower_left(ranks).sum(dtype=np.int64))


def _count_first(of_a: Flags) -> int:
    """Return the number of pairs of a point of a and a later one of b."""
    return int(np.cumsum(of_a, dtype=np.int64)[~of_a].sum())
