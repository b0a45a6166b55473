"""Sums of doubles without rounding, so that they depend neither on order nor on how the terms are spread."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 53
_LIMB_BITS = 26


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """Return the exact sum of finite doubles as a rational number.

    Each double is m·2^e with an integer |m| < 2^53. Terms of equal exponent are added as integers, high and low half
    apart so that 2^36 terms fit in 64 bits, and the few sums that remain are joined in Python's integers. Such sums can
    be added across blocks, workers and ranks in any order and rounded once, at the end.
    """
    if values.size == 0:
        return Fraction(0)
    if not np.isfinite(values).all():
        raise ValueError("only finite numbers have an exact sum")
    fraction, exponent = np.frexp(values.ravel())
    mantissa = np.ldexp(fraction, _MANTISSA_BITS).astype(np.int64)
    low = mantissa & ((1 << _LIMB_BITS) - 1)
    high = mantissa >> _LIMB_BITS  # an arithmetic shift: mantissa = high·2^26 + low with low ≥ 0
    total = Fraction(0)
    for e in np.unique(exponent).tolist():
        chosen = exponent == e
        integer = (int(high[chosen].sum()) << _LIMB_BITS) + int(low[chosen].sum())
        shift = e - _MANTISSA_BITS
        total += Fraction(integer << shift) if shift >= 0 else Fraction(integer, 1 << -shift)
    return total
