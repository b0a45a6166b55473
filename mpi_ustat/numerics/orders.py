"""Orders of points by several columns, the runs of equal ones, and sums over these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Floats, Integers, Ints

_PLACE_BITS = 32


def whole_numbers(values: Floats) -> Ints:
    """Return whole numbers in the order of doubles, equal where these are."""
    bits = (values + 0.0).view(np.int64)  # -0.0 becomes 0.0
    return np.asarray(bits ^ ((bits >> 63) & np.int64(2**63 - 1)))


def narrow(places: Ints) -> Integers:
    """Return places of points as int32 if these hold their number: half the memory."""
    return places.astype(np.int32) if len(places) < 2**31 else places


def lexicographic_order(columns: Sequence[NDArray[Any]], stable: bool = False) -> Ints:
    """Return an order of points by their columns, the first first; `stable` leaves equal points as they lie."""
    n = len(columns[0])
    if n >> (_PLACE_BITS - 1):
        return np.lexsort(columns[::-1])
    order = None if stable else np.argsort(columns[-1])
    for column in reversed(columns if stable else columns[:-1]):
        words = _ranks(column)
        words = words << _PLACE_BITS if order is None else words[order] << _PLACE_BITS
        words |= np.arange(n)
        words.sort()
        words &= (1 << _PLACE_BITS) - 1
        order = words if order is None else order[words]
    assert order is not None
    return order


def _ranks(column: NDArray[Any]) -> Ints:
    """Return whole numbers from 0 to below 2^31 in the order of a column: its own, where it has such."""
    if column.dtype == np.int64 and len(column) and column.min() >= 0:
        most = 1 << (_PLACE_BITS - 1)
        if column.max() < most:
            return column
        numbers = column.view(np.float64)  # positive doubles are in the order of their bits
        if numbers.max() < most and np.array_equal(numbers, np.trunc(numbers)):
            return numbers.astype(np.int64)
    by_column = np.argsort(column)
    ranks = np.empty(len(column), dtype=np.int64)
    ranks[by_column] = np.cumsum(starts_of_runs(column[by_column]))
    return ranks


def starts_of_equal(columns: Sequence[NDArray[Any]]) -> Ints:
    """Return where sorted points differ from the one before in any of their columns."""
    new = starts_of_runs(columns[0])
    for column in columns[1:]:
        new |= starts_of_runs(column)
    return np.flatnonzero(new)


def run_sums(sums: Ints, starts: Ints, elsewhere: Callable[[Ints], Ints] | None = None) -> tuple[Ints, Ints]:
    """Return the sums over what stands before each in its run, and over all of its run, each (k, n).

    Parameters
    ----------
    sums : ndarray of int64, shape (k, n)
    starts : ndarray of int64, shape (g,)
        Where each run starts.
    elsewhere : callable, optional
        Gets the sums over the runs, (k, g), adds what stands elsewhere, and returns how much of that stands before.
    """
    if len(starts) == sums.shape[1]:  # nothing but runs of one
        totals = sums.astype(np.int64)
        return np.zeros_like(totals) if elsewhere is None else elsewhere(totals), totals
    sizes = np.diff(starts, append=sums.shape[1])
    before = np.cumsum(sums, axis=1, dtype=np.int64)
    totals = before[:, starts + sizes - 1]
    before -= sums
    first = before[:, starts]
    totals -= first
    if elsewhere is not None:
        first -= elsewhere(totals)
    if len(starts) == 1:
        before -= first
        return before, np.broadcast_to(totals, sums.shape)
    for row, of_runs in zip(before, first, strict=True):
        row -= np.repeat(of_runs, sizes)
    return before, np.repeat(totals, sizes, axis=1)
