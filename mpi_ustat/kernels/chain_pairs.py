"""Sums of squares of the margins of the VUS of any number of classes, from sorted scores: pairs of chains, counted.

The square of a margin, m_S², counts pairs of tuples that have their points of the classes in S in common; so Σ m_S²
over all choices of these points is the number of pairs of chains x_1 < … < x_K and x'_1 < … < x'_K with x_k = x'_k for
k in S, and whatever they like elsewhere. They are counted by a walk through the scores in ascending order, which knows
how many pairs have come how far.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Ints

Counts = NDArray[Any]
"""int64, or Python integers (dtype object) where a sum over a piece might not fit into 64 bits."""

Classes = tuple[int, ...]

Limbs = list[Counts]
"""A non-negative integer at each of some scores, low limbs first; none if all are 0."""

Term = tuple[Limbs, tuple[Counts, ...]]
"""A product of numbers of limbs and of factors that fit into one."""

_PIECE = 1 << 12  # scores walked through at a time: what comes in between stays in a core's cache
_SHORT = 1 << 8  # scores, of which longer pieces are halved …
_NARROW = 24  # … if their limbs have fewer bits; with less than half of these, Python integers are faster
_LONG = 1 << 12  # bits of a limb that is a Python integer
_BITS = 61  # of a limb's largest growth; what it starts with and is carried from the one below it adds less than one


class ChainPairs:
    """Counts the pairs of chains with common points, for all sets S of classes at once, range after range of scores.

    Let F_S(i, j), S ⊆ {0, …, min(i, j) - 1}, be the number of pairs of a chain through classes 0 … i-1 and a chain
    through classes 0 … j-1, of points below a score v, that have their points of the classes in S in common. With
    c_l points of class l at v it grows from v to the next score by

        Σ_{a≤i, b≤j} F_{S∩[0,a)}(a, b) Π_{a≤l<i} c_l Π_{b≤l<j, l∉S} c_l          (not both a = i and b = j)

    over the (a, b) from which both chains can go on at v: with S∩[0,a) = S∩[0,b), for both pass a common point at once,
    and, where ties are strict, with a ≥ i-1 and b ≥ j-1. Where ties share the credit a chain gets 1/g! for g points at
    v. Then i! j! F_S(i, j) are whole numbers, in whose growth the term has the factor C(i, a) C(j, b).

    Σ m_S² is F_S(K, K) above all scores. F is symmetric in i and j, and all S with the same beginning share what comes
    before, so that about 4·2^K numbers are followed, each by a cumulative sum over the scores. They are exact: numbers
    that 64 bits might not hold are split into limbs.

    Parameters
    ----------
    n_classes : int
        K.
    shared : bool
        Whether ties share the credit.
    part, n_parts : int
        Which of so many shares of the sets S are counted. All take about the same work.
    """

    def __init__(self, n_classes: int, *, shared: bool, part: int = 0, n_parts: int = 1) -> None:
        self._n_classes, self._shared = n_classes, shared
        every = list(_depth_first(n_classes, ()))
        work = list(itertools.accumulate(math.comb(n_classes - _end(s) + 2, 2) for s in every))
        first, last = (bisect.bisect_right(work, work[-1] * k // n_parts) for k in (part, part + 1))
        self._wanted = every[first:last]
        needed = {s[:length] for s in self._wanted for length in range(len(s) + 1)}
        self._sets = [s for s in every if s in needed]
        self._reached: dict[tuple[Classes, int, int], int] = {}

    def walk(self, counts: NDArray[np.integer[Any]]) -> None:
        """Go through the next range of scores, with the number of points, (K, D), that each class has at each."""
        for start in range(0, counts.shape[1], _PIECE):
            self._walk(counts[:, start : start + _PIECE].astype(np.int64))

    def sums_of_squares(self) -> dict[Classes, int]:
        """Return Σ m_S² over all scores so far, for the sets S of this part; for S = () that is the total's square.

        All of h times its scale: 1, or K! where ties share.
        """
        return {s: self._reached.get((s, self._n_classes, self._n_classes), 0) for s in self._wanted}

    def _walk(self, counts: Ints) -> None:
        piece = _Piece(counts, shared=self._shared)
        if piece.crowded and piece.n_scores > _SHORT:
            for half in np.array_split(counts, 2, axis=1):
                self._walk(half)
            return
        last = self._n_classes
        path: list[dict[tuple[int, int], Limbs]] = []  # F of S[:0], S[:1], …, S at the scores of the piece
        for s in self._sets:
            here: dict[tuple[int, int], Limbs] = {} if s else {(0, 0): [np.ones_like(piece.counts[0])]}
            path[len(s) :] = [here]
            for i, j in itertools.combinations_with_replacement(range(_end(s), last + 1), 2):
                if j == 0:
                    continue
                start = self._reached.get((s, i, j), 0)
                growth = self._growth(piece, path, s, i, j)
                if i < last:
                    here[i, j], reached = piece.accumulated(growth, start)
                else:
                    reached = start + piece.total(growth)
                if reached:
                    self._reached[s, i, j] = reached

    def _growth(
        self, piece: _Piece, path: list[dict[tuple[int, int], Limbs]], s: Classes, i: int, j: int
    ) -> list[Term]:
        """Return the growth of F_S(i, j) at each score."""
        terms = []
        for a in range(i, max(i - piece.longest, 0) - 1, -1):
            done = bisect.bisect_left(s, a)
            for b in range(j, max(j - piece.longest, a if i == j else 0) - 1, -1):
                if (a == i and b == j) or bisect.bisect_left(s, b) != done:
                    continue
                numbers = path[done][min(a, b), max(a, b)]
                factors = piece.factors((a, i), (b, j), s[done:]) if numbers else None
                if factors is not None:
                    terms.append((numbers, factors))
        return terms


class _Piece:
    """A short range of scores, with arithmetic on a number at each of them.

    Attributes
    ----------
    counts : ndarray of int, shape (K, D)
    n_scores : int
        D.
    longest : int
        How many points of a chain can have the same score.
    width : int
        Bits w of a limb. Over the piece an F grows by less than W times the largest number that it grows from, and
        2^w W ≤ 2⁶¹ lets no sum of limbs pass 64 bits. If w would be too small the limbs are Python integers.
    crowded : bool
        Whether a shorter piece would be walked through faster.
    """

    def __init__(self, counts: Ints, *, shared: bool) -> None:
        self._shared = shared
        n_classes, self.n_scores = counts.shape
        self.longest = 0
        chain = np.ones(self.n_scores)  # no less than the sum of all that a chain is multiplied by at a score
        products = counts.astype(np.float64)
        while self.longest < (n_classes if shared else 1) and products.any():
            self.longest += 1
            most = max(math.comb(i, self.longest) for i in range(self.longest, n_classes + 1)) if shared else 1
            chain += most * products.max(axis=0)
            products = products[:-1] * counts[self.longest :]
        self.width = _BITS - math.frexp(min(float(chain @ chain), sys.float_info.max))[1]
        self.crowded = self.width < _NARROW
        self.counts: Counts = counts
        if self.width < _NARROW // 2:
            self.counts, self.width = counts.astype(object), _LONG
        self._mask = (1 << self.width) - 1
        self._products: dict[tuple[int, int, Classes, int], tuple[Counts, ...] | None] = {}
        self._meet: dict[tuple[tuple[int, int], tuple[int, int]], bool] = {}

    def factors(self, first: tuple[int, int], second: tuple[int, int], common: Classes) -> tuple[Counts, ...] | None:
        """Return the factor of a pair of chains of which one goes from a to i classes, the other from b to j.

        None if that is 0 at all scores. Where i = j the pair (b, a) is counted with (a, b).
        """
        (a, i), (b, j) = first, second
        one = self._product(a, i, (), 2 if i == j and a != b else 1)
        other = self._product(b, j, common, 1)
        if one is None or other is None:
            return None
        if one and other and (first, second) not in self._meet:
            self._meet[first, second] = bool((one[0] * other[0]).any())
        return (*one, *other) if self._meet.get((first, second), True) else None

    def _product(self, a: int, i: int, common: Classes, times: int) -> tuple[Counts, ...] | None:
        """Return times · C(i, a) · Π_{a≤l<i, l∉common} c_l, without elements for 1, None for 0 everywhere."""
        key = (a, i, common, times)
        if key not in self._products:
            times *= math.comb(i, a) if self._shared else 1
            classes = [k for k in range(a, i) if k not in common]
            product = self.counts[classes].prod(axis=0) * times
            found = (product,) if classes or times > 1 else ()
            self._products[key] = found if product.any() else None
        return self._products[key]

    def accumulated(self, growth: list[Term], start: int) -> tuple[Limbs, int]:
        """Return numbers that are `start` at the first score and grow at each, and the one after the last score."""
        limbs: Limbs = []
        end, carried = 0, None
        for k in itertools.count():
            terms = [_weighted(numbers[k], factors) for numbers, factors in growth if k < len(numbers)]
            if not terms and not start and carried is None:
                break
            limb = np.zeros(self.n_scores + 1, dtype=self.counts.dtype)
            if terms:
                np.cumsum(functools.reduce(operator.iadd, terms), out=limb[1:])
            limb += start & self._mask
            start >>= self.width
            if carried is not None:
                limb += carried
            carried = limb >> self.width
            if not carried[-1]:  # the largest of what no limb holds yet
                carried = None
            limb &= self._mask
            limbs.append(limb[:-1])
            end += int(limb[-1]) << (k * self.width)
        return limbs, end

    def total(self, growth: list[Term]) -> int:
        """Return the sum of what numbers grow by over all scores."""
        return sum(
            int(_weighted(limb, factors[1:]) @ factors[0]) << (k * self.width)
            for numbers, factors in growth
            for k, limb in enumerate(numbers)
        )


def _weighted(limb: Counts, factors: tuple[Counts, ...]) -> Counts:
    return functools.reduce(operator.mul, factors, limb)


def _depth_first(n_classes: int, s: Classes) -> Iterator[Classes]:
    """Yield s, and after it all larger sets that begin with it."""
    yield s
    for k in range(_end(s), n_classes):
        yield from _depth_first(n_classes, (*s, k))


def _end(s: Classes) -> int:
    """Return how many classes are done once the last common point is passed."""
    return s[-1] + 1 if s else 0
