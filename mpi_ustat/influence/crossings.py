"""Sums over the pairs of distributed points that two orders put differently, within each stratum.

Points have two values. Those that agree in both and in the stratum are joined, and bring what they bring together. The
distinct ones are in one order by (stratum, first, second), and in another by (stratum, second, first). A pair that is
the other way round in the second, *inverted*, is of one stratum, tied in neither value, and the point with the lower
first value has the higher second one.

Every point goes to the rank that has its range of the one order, where inverted pairs inside the range are counted
(`numerics.weighted_dominance`), and from there to the rank that has its range of the other order, where those of
different ranges of the first are: there the same count, of points that came in the order of (range, second order),
finds no pair of one range. Pairs that are in different ranges of both orders are counted from a table of sums.
O(n log n / P).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.stretches import Joined, sums_in_groups
from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.orders import lexicographic_order, narrow, starts_of_equal
from mpi_ustat.numerics.types import Integers, Ints
from mpi_ustat.numerics.weighted_dominance import weighted_inversions
from mpi_ustat.schemes.partition import block_bounds

_SAMPLES_PER_RANK = 256
_FEW = 1 << 28


class Crossings:
    """Distinct points in this rank's range of the order by (stratum, first, second).  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    keys : list of ndarray of int64, shape (n,)
        Stratum (if there are strata), first and second value of this rank's points.
    later : list of k ndarray of int64, shape (n,)
        What a point brings to those of a lower first value.
    earlier : list of l ndarray of int64, shape (n,)
        What it brings to those of a higher first value. None of these is negative. All lists are emptied: what has been
        sent need not be kept.

    Attributes
    ----------
    first : ndarray, shape (m,)
    later, earlier : ndarray, shapes (k, m) and (l, m)
        Of the distinct points.
    crossed, level : pair of ndarray, shapes (k, m) and (l, m)
        Sums of `later` over the points of higher first value, of `earlier` over those of lower one, where these are
        inverted, and where the second values are equal.
    """

    def __init__(self, comm: Any, keys: list[Ints], later: list[Ints], earlier: list[Ints]) -> None:
        entering("exchange")
        self._comm, k = comm, len(later)
        own = Joined(keys, _narrow(comm, later, earlier))
        if _tied(keys):
            own = Joined.of(own.keys, own.brought)
        self._trip = Trip(comm, _ranges(comm, own.keys))
        here = Joined.of(_sent(self._trip, own.keys), _sent(self._trip, own.brought))
        self._own, self._here = Joined([], [], own.order, own.starts), Joined([], [], here.order, here.starts)
        *self._groups, self.first, second = here.keys
        brought = np.array(here.brought)
        del own, here
        self.later, self.earlier = brought[:k], brought[k:]

        entering("counting pairs")
        order = narrow(lexicographic_order([*self._groups, second], stable=True))
        crossed = np.concatenate(weighted_inversions(order, self.later, self.earlier))
        swapped = [each[order] for each in (*self._groups, second, self.first)]
        del second
        level, across, sent = _across(comm, swapped, [each[order] for each in brought], k)
        for each in (*level, *across):
            each[order] = each.copy()
        for each, more in zip(crossed, across, strict=False):
            each += more
        self.crossed, self.level = (crossed[:k], crossed[k:]), (np.array(level[:k]), np.array(level[k:]))
        self.bytes_sent = self._trip.bytes_sent + sent

    def in_order(self) -> tuple[Ints, Ints]:
        """Return the sums of `later` over all points of the stratum, and over those of the first value.  Collective."""
        _, in_first, in_stratum = self._around(self.later)
        return in_stratum, in_first

    def beyond(self) -> tuple[Ints, Ints]:
        """Return the sums of `later` over all points of higher first value, of `earlier` of lower one.  Collective."""
        lower, in_first, in_stratum = self._around(self.later)
        return in_stratum - lower - in_first, self._around(self.earlier)[0]

    def _around(self, brought: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the sums over points of lower first value, of the same, and of all of the stratum.  Collective."""
        lower, in_stratum = sums_in_groups(self._comm, *_runs(self._groups, brought.shape[1]), brought)
        before, in_first = sums_in_groups(self._comm, *_runs([*self._groups, self.first], brought.shape[1]), brought)
        lower -= before
        return lower, in_first, in_stratum

    def home(self, of_points: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of each point given, (c, n), from those of each distinct one, (c, m).

        Collective.
        """
        before = self._trip.bytes_sent
        back = [self._own.of_points(self._trip.back(self._here.of_points(each))) for each in of_points]
        self.bytes_sent += self._trip.bytes_sent - before
        return np.array(back, dtype=np.result_type(of_points.dtype, np.int64))


def _sent(trip: Trip, columns: list[Ints]) -> list[Ints]:
    """Return the columns that come to this rank, and empty the list of what goes, one by one.  Collective."""
    found = []
    while columns:
        found.append(trip.out(columns.pop(0)))
    return found


def _narrow(comm: Any, later: list[Ints], earlier: list[Ints]) -> list[Ints]:
    """Return all that points bring, as int32 where these hold a few times the sum of it, and empty the lists.

    Collective.
    """
    brought = [*later, *earlier]
    later.clear()
    earlier.clear()
    total = add_integers(comm, np.array([each.sum(dtype=np.int64) for each in brought]))
    if len(brought) == 2 and total.max() < _FEW:  # one limb of each: a value itself
        for at, each in enumerate(brought):
            brought[at] = each.astype(np.int32)
    return brought


def _tied(columns: Sequence[Ints]) -> bool:
    """Tell whether many points seem equal: equal ones go to one rank, which should get few."""
    drawn = np.array([each[:: max(len(each) // _SAMPLES_PER_RANK, 1)] for each in columns])
    return bool(4 * np.unique(drawn, axis=1).shape[1] < 3 * drawn.shape[1])


def _across(comm: Any, keys: list[Ints], brought: list[Ints], k: int) -> tuple[list[Ints], list[Ints], int]:
    """Return the sums of points in the order of the second values of all ranks, and bytes sent.  Collective.

    For each point `level` and, of several ranks, what is `crossed` in other ranges of the first order.

    Parameters
    ----------
    keys : list of ndarray of int64, shape (m,)
        Stratum (if there are strata), second and first value of this rank's distinct points, sorted; emptied.
    brought : list of k + l ndarray of int, shape (m,)
        Emptied.
    k : int
    """
    trip = Trip(comm, _ranges(comm, keys))
    if comm.size == 1:
        return _level(comm, _runs(keys[:-1], len(keys[0])), brought, k), [], 0
    keys, arrived = _sent(trip, keys), np.array(_sent(trip, brought))
    order = narrow(lexicographic_order(keys))
    del keys[-1]
    runs = _runs([each[order] for each in keys], len(order))
    del keys
    level = _level(comm, runs, [each[order] for each in arrived], k)
    del runs
    for each in level:
        each[order] = each.copy()
    level = [trip.back(each) for each in level]
    crossed = np.concatenate(weighted_inversions(order, arrived[:k], arrived[k:]))
    for each, more in zip(crossed, _of_whole_ranges(comm, trip.arrived, arrived, k), strict=True):
        each += np.repeat(more.astype(each.dtype), trip.arrived)
    return level, [trip.back(each) for each in crossed], trip.bytes_sent


def _level(comm: Any, runs: tuple[Ints, tuple[Any, Any]], brought: list[Ints], k: int) -> list[Ints]:
    """Return the first k sums over what is behind in a run, the others over what is before.  Collective."""
    found = []
    for at, each in enumerate(brought):
        before, total = sums_in_groups(comm, *runs, each[None])
        found.append((total - before - each if at < k else before)[0].astype(each.dtype))
    return found


def _of_whole_ranges(comm: Any, arrived: Ints, brought: Integers, k: int) -> Ints:
    """Return the sums, (k + l, P), over points that are in other ranges of both orders, and inverted with those here.

    They are those of the points here that came from each of P ranges of the first order.

    Parameters
    ----------
    arrived : ndarray of int64, shape (P,)
        How many points came from each range of the first order, one range after the other.
    """
    stops = np.cumsum(arrived)[:-1]
    sums = [[part.sum(dtype=np.int64) for part in np.split(each, stops)] for each in brought]
    table = np.array(comm.allgather(np.array(sums)))  # range of the second, sum, range of the first
    own = comm.rank
    later = table[:own, :k].sum(axis=0)  # lower in the second order …
    earlier = table[own + 1 :, k:].sum(axis=0)
    behind = later.sum(axis=1, keepdims=True) - np.cumsum(later, axis=1)  # … and of a higher range of the first
    before = np.cumsum(earlier, axis=1) - earlier
    return np.concatenate([behind, before])


def _runs(keys: Sequence[Ints], n: int) -> tuple[Ints, tuple[Any, Any]]:
    """Return where runs of points that agree in keys start, and what the first and the last are called.

    Without keys all agree.
    """
    starts = starts_of_equal(keys) if keys else np.arange(min(1, n))
    first, last = (tuple(int(each[at]) for each in keys) if n else () for at in (0, -1))
    return starts, (first, last)


def _ranges(comm: Any, columns: Sequence[Ints]) -> Ints | None:
    """Return for each point the rank that has its range of the order by columns; equal points have one.  Collective."""
    if comm.size == 1:
        return None
    n = len(columns[0])
    places = np.unique(block_bounds(n, _SAMPLES_PER_RANK)[:-1])
    places = places[places < n]
    everyone = comm.allgather((np.array([each[places] for each in columns]), np.diff(places, append=n)))
    drawn, stand_for = (np.concatenate([each[at] for each in everyone], axis=-1) for at in (0, 1))
    order = np.lexsort(drawn[::-1])
    reached = np.cumsum(stand_for[order])
    if not len(reached):
        return np.zeros(n, dtype=np.int64)
    bounds = drawn[:, order[np.searchsorted(reached, np.arange(1, comm.size) * int(reached[-1]) // comm.size)]]
    # A number of at most 2P values each for a point's columns, among those of the bounds, compares as the columns do.
    words, of_bounds = np.zeros(n, dtype=np.int64), np.zeros(comm.size - 1, dtype=np.int64)
    for column, each in zip(columns, bounds, strict=True):
        known = np.unique(each)
        for codes, values in ((words, column), (of_bounds, each)):
            at = np.searchsorted(known, values)
            codes *= 2 * len(known) + 1
            codes += 2 * at + (known[np.minimum(at, len(known) - 1)] == values)
    return np.searchsorted(of_bounds, words, side="right")
