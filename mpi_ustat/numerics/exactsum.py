"""Sums without rounding or overflow, which depend neither on order nor on how the terms are spread."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats, Ints

_MANTISSA_BITS = 53
_LIMB_BITS = 26
_EXACT = 2**53  # whole numbers up to here are doubles
_CHUNK = 1 << 20  # terms at a time: sums of up to 2^26 limbs stay below 2^53, exact as doubles
_DOT_CHUNK = 1 << 16
_LARGEST_TERM = 2**83
_NARROW = 8
_HALF = 31
_LOW = 2**_HALF - 1

Integers = NDArray[Any]
"""int64, or Python's integers (dtype object)."""


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


def exact_count(counts: NDArray[np.integer], largest: int) -> int:
    """Sum non-negative integer counts, none above `largest`, into a Python integer that can't overflow."""
    step = max(1, (2**63 - 1) // max(largest, 1))
    if len(counts) <= step:
        return int(counts.sum(dtype=np.int64))
    return sum(int(counts[i : i + step].sum(dtype=np.int64)) for i in range(0, len(counts), step))


def exact_dot(a: Integers, b: Integers, largest: int | None = None) -> int:
    """Return Σ a·b of integers as a Python integer that can't overflow.

    Products that may pass 2⁶³, or of which few fit below it, are added in pieces of 2¹⁶. Of the sum of a piece, S,
    integer arithmetic keeps S mod 2⁶⁴, and floating arithmetic finds S to 2⁻³⁶ of the sizes of its terms, so within 2⁶³
    if these are below 2⁸³. The two have one integer in common. For larger ones a is taken apart, and then b.

    Parameters
    ----------
    a, b : ndarray of int64, or of Python integers
    largest : int, optional
        No product is above it in size; by default that of the two largest of numbers that are not negative.
    """
    if a.dtype == object:
        return int((a * b).sum())
    if largest is None:
        largest = int(a.max(initial=0)) * int(b.max(initial=0))
    if largest >= _LARGEST_TERM:
        return (exact_dot(b, a >> _HALF) << _HALF) + exact_dot(b, a & _LOW)
    step = (2**63 - 1) // max(largest, 1)
    if step >= min(len(a), _DOT_CHUNK):
        return sum(int(a[i : i + step] @ b[i : i + step]) for i in range(0, len(a), step or 1))
    total = 0
    for i in range(0, len(a), _DOT_CHUNK):
        p, q = a[i : i + _DOT_CHUNK], b[i : i + _DOT_CHUNK]
        near, modular = int(p.astype(np.float64) @ q.astype(np.float64)), int(p @ q)
        total += near + (modular - near + 2**63) % 2**64 - 2**63
    return total


def products(sums: Ints, largest: int) -> Integers:
    """Return Σ_k S_ka S_kb for all columns a and b of whole numbers from 0 to `largest`, shape (q, q).

    int64, or Python's integers where those may overflow.
    """
    n, q = sums.shape
    step = _EXACT // max(1, largest * largest)  # doubles hold the sums of so many rows, whatever their order
    if step < 1:
        found = np.empty((q, q), dtype=object)
        for a, b in itertools.combinations_with_replacement(range(q), 2):
            found[a, b] = found[b, a] = exact_dot(sums[:, a], sums[:, b])
        return found
    high, low = np.zeros((q, q), dtype=np.int64), np.zeros((q, q), dtype=np.int64)
    for start in range(0, n, step):
        some = sums[start : start + step].astype(np.float64)
        # Of narrow matrices BLAS multiplies vectors in a fraction of the time.
        whole = some.T @ some if q > _NARROW else np.array([column @ some for column in some.T])
        part = whole.astype(np.int64)
        high += part >> _HALF
        low += part & _LOW
    if n * largest * largest < 2**63:
        return np.asarray((high << _HALF) + low)
    return np.asarray(high.astype(object) * 2**_HALF + low.astype(object))
