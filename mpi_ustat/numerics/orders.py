"""Orders of points by several columns, the runs of equal ones, and sums over these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Floats, Integers, Ints

_PLACE_BITS = 32
_INTERVALS_EACH, _MOST_INTERVALS = 64, 1 << 20
_SEVERAL = np.iinfo(np.int64).min
_CHUNK = 1 << 16  # numbers at a time, which fit into fast memory


def whole_numbers(values: Floats) -> Ints:
    """Return whole numbers in the order of doubles, equal where these are."""
    bits = np.asarray(values + 0.0).view(np.int64)  # -0.0 becomes 0.0
    signs = bits >> 63
    signs &= np.int64(2**63 - 1)
    bits ^= signs
    return bits


def doubles_of(numbers: Ints) -> Floats:
    """Return the doubles whose `whole_numbers` these are."""
    return np.asarray(numbers ^ ((numbers >> 63) & np.int64(2**63 - 1))).view(np.float64)


def in_order(numbers: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
    """Return an order of doubles without NaN, or of int64, and these in it: in half of argsort's time.

    Their first bits are sorted with their places behind them. Where these don't tell all numbers apart, and only there,
    the others are looked at.
    """
    bits = max(len(numbers) - 1, 0).bit_length()
    words = whole_numbers(numbers) if numbers.dtype.kind == "f" else numbers.copy()
    places = np.arange(len(numbers))
    words &= np.int64(-1 << bits)
    words |= places
    words.sort()
    order = np.bitwise_and(words, np.int64((1 << bits) - 1), out=places)
    ordered = numbers[order]
    wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
    if len(wrong):
        words >>= bits
        run = np.cumsum(starts_of_runs(words))
        in_disorder = np.zeros(run[-1] + 1, dtype=bool)
        in_disorder[run[wrong]] = True
        some = np.flatnonzero(in_disorder[run])
        anew = some[np.argsort(ordered[some])]
        order[some], ordered[some] = order[anew], ordered[anew]
    return order, ordered


def twice_middle_places(few: Floats, queries: Floats) -> Ints:
    """Return how many of a few ascending numbers are below each query, plus how many are at most it.

    The queries may lie in any order: equal intervals of the numbers' range tell it, and where there is one number in an
    interval, that number. Queries in intervals with several, and these alone, are sorted and looked up.
    """
    n = min(_INTERVALS_EACH * len(few), _MOST_INTERVALS)
    with np.errstate(all="ignore"):
        scale = n / (few[-1:] - few[:1])
        if not np.isfinite(scale).all() or not scale.all():  # the same or infinite numbers: one interval has all
            scale, n = scale[:0], 0
        counts = np.bincount(_intervals(few, few[:1], scale, n), minlength=n + 1)
        below = 2 * (np.cumsum(counts) - counts)
        below[counts == 1] = ~below[counts == 1]
        below[counts > 1] = _SEVERAL
        found = np.empty(len(queries), dtype=np.int64)
        for start in range(0, len(queries), _CHUNK):
            at = _intervals(queries[start : start + _CHUNK], few[:1], scale, n)
            below.take(at, out=found[start : start + _CHUNK], mode="clip")  # none is clipped, and none is checked
    unsure = np.flatnonzero(found < 0)
    known = found[unsure]
    one, several = unsure[known != _SEVERAL], unsure[known == _SEVERAL]
    places, some = ~found[one], queries[one]
    nearest = few[places >> 1]
    found[one] = places + (nearest < some) + (nearest <= some)
    order, ordered = in_order(queries[several])
    found[several[order]] = look_up(few, ordered, "left") + look_up(few, ordered, "right")
    return found


def _intervals(values: Floats, lowest: Floats, scale: Floats, n: int) -> Ints:
    """Return in which of n + 1 intervals values are: a function of them that doesn't decrease."""
    if n == 0:
        return np.zeros(len(values), dtype=np.int64)
    places = values - lowest
    places *= scale
    return np.clip(places, 0, n, out=places).astype(np.int64)


class Merged(NamedTuple):
    """Two arrays of numbers in one order.

    Attributes
    ----------
    orders : (ndarray of int64, ndarray of int64)
        Of each array.
    below, up_to : (ndarray of int64, ndarray of int64)
        How many numbers of the other array are less than, and at most, each number in that order.
    """

    orders: tuple[Ints, Ints]
    below: tuple[Ints, Ints]
    up_to: tuple[Ints, Ints]

    @classmethod
    def of(cls, x: Floats, z: Floats) -> Self:
        """Sort both together, instead of looking each up in the other."""
        order, ordered = in_order(np.concatenate([x, z]))
        new = starts_of_runs(ordered)
        is_x = order < len(x)
        places = np.flatnonzero(is_x), np.flatnonzero(~is_x)
        orders = order[places[0]], order[places[1]] - len(x)
        if new.all():
            apart = places[0] - np.arange(len(x)), places[1] - np.arange(len(z))
            return cls(orders, apart, apart)
        starts = np.append(np.flatnonzero(new), len(order))
        run = np.cumsum(new)
        z_before, x_before = (np.searchsorted(at, starts) for at in places[::-1])
        of_x, of_z = (run[at] for at in places)
        return cls(orders, (z_before[of_x - 1], x_before[of_z - 1]), (z_before[of_x], x_before[of_z]))


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


def running(sums: Ints) -> Ints:
    """Return the sums of the first 0, 1, … of each row, (k, n + 1)."""
    found = np.zeros((len(sums), sums.shape[1] + 1), dtype=np.int64)
    np.cumsum(sums, axis=1, out=found[:, 1:])
    return found


def placed(values: NDArray[Any], order: Any) -> NDArray[Any]:
    """Return values that are in this order where they belong."""
    found = np.empty_like(values)
    found[order] = values
    return found


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
