"""Sums of doubles without rounding, so that they depend neither on order nor on how the terms are spread."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mpi_ustat.numerics.types import Floats

_MANTISSA_BITS = 53
_LIMB_BITS = 26
_CHUNK = 1 << 20  # terms at a time: sums of up to 2^26 limbs stay below 2^53, exact as doubles


def exact_sum(values: Floats) -> Fraction:
    """Return the exact sum of finite doubles as a rational number.

    Each double is m·2^e with an integer |m| < 2^53. The halves of m, below 2^27 in size, are added apart for each
    exponent, as doubles that are whole numbers below 2^53, and the few sums that remain are joined in Python's
    integers. Such sums can be added across blocks, workers and ranks in any order and rounded once, at the end.
    """
    if not np.isfinite(values).all():
        raise ValueError("only finite numbers have an exact sum")
    flat = values.ravel()
    return sum((_chunk_sum(flat[i : i + _CHUNK]) for i in range(0, len(flat), _CHUNK)), Fraction(0))


def _chunk_sum(values: Floats) -> Fraction:
    fraction, exponent = np.frexp(values)
    mantissa = np.ldexp(fraction, _MANTISSA_BITS).astype(np.int64)
    lowest = int(exponent.min())
    place = exponent - lowest
    low = np.bincount(place, weights=mantissa & ((1 << _LIMB_BITS) - 1))
    high = np.bincount(place, weights=mantissa >> _LIMB_BITS)  # mantissa = high·2^26 + low with low ≥ 0
    total = 0
    for k, (upper, lower) in enumerate(zip(high.tolist(), low.tolist(), strict=True)):
        total += ((int(upper) << _LIMB_BITS) + int(lower)) << k
    shift = lowest - _MANTISSA_BITS
    return Fraction(total << shift) if shift >= 0 else Fraction(total, 1 << -shift)
