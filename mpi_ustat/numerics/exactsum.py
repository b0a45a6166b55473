"""Sums without rounding or overflow, which depend neither on order nor on how the terms are spread."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats, Ints

_MANTISSA_BITS = 53
_LEVEL_BITS = 38
_CHUNK = 1 << 15  # terms at a time, which fit into fast memory
_LOWEST = -1074  # exponent of the smallest double
_HUGE = 2.0**900
_EXACT = 2**53  # whole numbers up to here are doubles
_DOT_CHUNK = 1 << 16
_LARGEST_TERM = 2**83
_NARROW = 8
_HALF = 31
_LOW = 2**_HALF - 1

Integers = NDArray[Any]
"""int64, or Python's integers (dtype object)."""


def exact_sum(values: Floats) -> Fraction:
    """Return the exact sum of finite doubles as a rational number.

    From below the largest's size on, 38 bits at a time are split off (Rump, Ogita and Oishi, SIAM Journal on Scientific
    Computing 31, 2008): by adding, and taking away again, a number so large that its doubles are as far apart as the
    lowest of them. 2^15 such heads add up to less than 2^53 units, as doubles without rounding, and the sums of a level
    to an integer. Such sums can be added across blocks, workers and ranks in any order and rounded once, at the end.
    """
    flat = np.asarray(values, dtype=np.float64).ravel()
    largest = max(float(flat.max(initial=0.0)), -float(flat.min(initial=0.0)))
    if not math.isfinite(largest):
        raise ValueError("only finite numbers have an exact sum")
    if largest >= _HUGE:
        huge = np.abs(flat) >= _HUGE
        return exact_sum(flat[huge] / _HUGE) * Fraction(_HUGE) + exact_sum(flat[~huge])
    sums: list[int] = []
    of_levels: list[int] = []
    for start in range(0, len(flat), _CHUNK):
        rest = flat[start : start + _CHUNK]
        for level in itertools.count():
            if level == len(sums):
                sums.append(0)
                of_levels.append(max(math.frexp(largest)[1] - (level + 1) * _LEVEL_BITS, _LOWEST))
            exponent = of_levels[level]
            far = 1.5 * 2.0 ** (exponent + _MANTISSA_BITS - 1)
            heads = rest + far
            heads -= far
            sums[level] += int(math.ldexp(float(heads.sum()), -exponent))
            rest = rest - heads
            if not rest.any():
                break
    return sum((each * Fraction(2) ** k for each, k in zip(sums, of_levels, strict=True)), Fraction(0))


def finite_sum(values: Floats) -> Fraction | float:
    """Return `exact_sum`, or NaN where a number is not finite."""
    try:
        return exact_sum(values)
    except ValueError:
        return math.nan


def rounded(total: Fraction | float) -> float:
    """Return the double nearest to a sum; NaN where it passes the largest."""
    try:
        return float(total)
    except OverflowError:
        return math.nan


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
    if step >= len(a):
        return int(a @ b)
    if step >= _DOT_CHUNK:
        return sum(int(a[i : i + step] @ b[i : i + step]) for i in range(0, len(a), step))
    total = 0
    for i in range(0, len(a), _DOT_CHUNK):
        p, q = a[i : i + _DOT_CHUNK], b[i : i + _DOT_CHUNK]
        near, modular = int(p.astype(np.float64) @ q.astype(np.float64)), int(p @ q)
        total += near + (modular - near + 2**63) % 2**64 - 2**63
    return total


def gram(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the products of all rows, (q, n), with each other, (q, q)."""
    if len(rows) > _NARROW:
        return np.asarray(rows @ rows.T)
    return np.array([rows @ row for row in rows])  # of few rows in a fraction of BLAS's time


def products(sums: Sequence[Ints] | Ints, largest: int) -> Integers:
    """Return Σ_k S_ak S_bk for all a and b of q arrays of whole numbers from 0 to `largest`, shape (q, q).

    int64, or Python's integers where those may overflow.
    """
    n, q = len(sums[0]), len(sums)
    step = _EXACT // max(1, largest * largest)  # doubles hold the sums of so many rows, whatever their order
    if step < 1:
        found = np.empty((q, q), dtype=object)
        for a, b in itertools.combinations_with_replacement(range(q), 2):
            found[a, b] = found[b, a] = exact_dot(sums[a], sums[b])
        return found
    high, low = np.zeros((q, q), dtype=np.int64), np.zeros((q, q), dtype=np.int64)
    step = min(step, _DOT_CHUNK)
    for start in range(0, n, step):
        some = np.array([each[start : start + step] for each in sums], dtype=np.float64)
        part = gram(some).astype(np.int64)
        high += part >> _HALF
        low += part & _LOW
    if n * largest * largest < 2**63:
        return np.asarray((high << _HALF) + low)
    return np.asarray(high.astype(object) * 2**_HALF + low.astype(object))
