"""Sums of doubles as whole numbers in several int64, exact in any order: prefix sums, sums of runs, sums over ranks.

Doubles are whole multiples of a power of two, 2^e, common to all of them. Such a multiple is cut into *limbs* of b
bits, the lowest first; with b + log2(n) <= 62, sums of n limbs stay within an int64. Weights that are whole numbers, or
nothing but ones, take one limb each, and cost what counts cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats, Ints

_MANTISSA_BITS = 53
_SUM_BITS = 62


class Extremes(NamedTuple):
    """What is known of doubles, not all of which are 0, before they are written as limbs.

    Attributes
    ----------
    lowest : int
        An exponent of which they all are multiples: as if the smallest had all its bits.
    highest : int
        That of the first bit above all of them.
    whole : bool
        Whether they are whole numbers of up to 53 bits.
    """

    lowest: int
    highest: int
    whole: bool


ONES = Extremes(1 - _MANTISSA_BITS, 1, True)
"""Of nothing but ones."""


def exponents(values: Floats) -> Extremes | None:
    """Return the extremes of the values' exponents; None if all are zero."""
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    if largest == 0.0:
        return None
    smallest = float(np.min(sizes, where=sizes > 0.0, initial=largest))
    highest = int(np.frexp(largest)[1])
    whole = highest <= _MANTISSA_BITS and np.array_equal(np.rint(sizes), sizes)
    return Extremes(int(np.frexp(smallest)[1]) - _MANTISSA_BITS, highest, whole)


@dataclass(frozen=True)
class Grid:
    """How doubles are written as limbs.

    Attributes
    ----------
    exponent : int
        e: all values are multiples of 2^e.
    bits : int
        b, of a limb.
    n_limbs : int
    """

    exponent: int = 0
    bits: int = _SUM_BITS
    n_limbs: int = 1

    @classmethod
    def of(cls, extremes: Iterable[Extremes | None], n_terms: int) -> Self:
        """Return the grid of values with these `exponents` (of several ranks), of which up to n_terms are added.

        It is the same however the values are dealt to the ranks.
        """
        known = [each for each in extremes if each is not None]
        lowest = 0 if all(each.whole for each in known) else min(each.lowest for each in known)
        highest = max((each.highest for each in known), default=1)
        exponent = min(lowest, 0) if highest <= _SUM_BITS else lowest
        bits = _SUM_BITS - max(int(n_terms) - 1, 1).bit_length()
        return cls(exponent, bits, max(1, -(-(highest - exponent) // bits)))

    @classmethod
    def rounding(cls, largest: float, n_terms: int) -> Self:
        """Return a grid of one limb, onto which values up to the largest are rounded, of which up to n_terms are added.

        Their sum is off by at most n 2^(log2 n - 62) of the largest, and the same in any order.
        """
        bits = _SUM_BITS - max(int(n_terms) - 1, 1).bit_length()
        return cls(int(np.frexp(largest)[1]) - bits, bits, 1)

    def rounded(self, values: Floats) -> Ints:
        """Return values as limbs of a `rounding` grid, (1, n)."""
        return np.rint(_scaled(values, -self.exponent)).astype(np.int64)[None]

    @property
    def counts(self) -> bool:
        """Whether a limb is the value itself."""
        return self.n_limbs == 1 and self.exponent == 0

    def limbs(self, values: Floats) -> Ints:
        """Return the limbs of values, shape (n_limbs, n); those of negative values are not positive."""
        found = np.empty((self.n_limbs, len(values)), dtype=np.int64)
        rest = np.array(values)
        for k in range(self.n_limbs - 1, -1, -1):
            place = self.exponent + k * self.bits
            upper = np.trunc(_scaled(rest, -place))
            found[k] = upper
            if k:  # exact: what is left are the lower bits
                rest -= _scaled(upper, place)
        return found

    def whole(self, multiples: Floats) -> Ints:
        """Return the limbs of whole multiples of 2^exponent of up to 62 bits, all but the last not negative."""
        rest = multiples.astype(np.int64)
        found = np.empty((self.n_limbs, len(rest)), dtype=np.int64)
        for k in range(self.n_limbs - 1):
            np.bitwise_and(rest, (1 << self.bits) - 1, out=found[k])
            rest >>= self.bits
        found[-1] = rest
        return found

    def floats(self, sums: Ints) -> Floats:
        """Return sums of limbs, shape (n_limbs, …), as doubles, within 2^-52 of their size."""
        if self.n_limbs == 1:
            return _scaled(sums[0], self.exponent)
        carried = self._carried(sums)
        negative = carried[-1] < 0
        if negative.any():
            carried = self._carried(np.where(negative, -sums, sums))
        total = _scaled(carried[0], self.exponent)
        for k in range(1, self.n_limbs):
            total += _scaled(carried[k], self.exponent + k * self.bits)
        return np.where(negative, -total, total) if negative.any() else total

    def told(self, sums: Ints) -> NDArray[Any]:
        """Return sums of limbs, (n_limbs, …), as whole numbers where these are the values, otherwise as doubles."""
        return sums[0] if self.counts else self.floats(sums)

    def _carried(self, sums: Ints) -> Ints:
        """Return the limbs of sums with all but the last in 0 … 2^b - 1: one way to write a number only."""
        found = np.array(sums)
        for k in range(self.n_limbs - 1):
            found[k + 1] += found[k] >> self.bits
            found[k] &= (1 << self.bits) - 1
        return found

    def fraction(self, sums: Ints) -> Fraction:
        """Return one sum of limbs, shape (n_limbs,), as a rational number."""
        whole = sum(int(limb) << (k * self.bits) for k, limb in enumerate(sums.tolist()))
        return Fraction(whole) * Fraction(2) ** self.exponent


def _scaled(values: NDArray[Any], exponent: int) -> Floats:
    """Return 2^exponent times the values; where the power is a normal double, in a fifth of ldexp's time."""
    return values * 2.0**exponent if abs(exponent) < 1000 else np.ldexp(values.astype(np.float64), exponent)
