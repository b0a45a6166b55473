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
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.orders import lexicographic_order, starts_of_equal
from mpi_ustat.numerics.types import Ints
from mpi_ustat.numerics.weighted_dominance import weighted_inversions
from mpi_ustat.schemes.partition import block_bounds

_SAMPLES_PER_RANK = 256


class Crossings:
    """Distinct points in this rank's range of the order by (stratum, first, second).  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    strata : ndarray of int64, shape (n,), or None
    first, second : ndarray of int64, shape (n,)
        Of this rank's points.
    later : ndarray of int64, shape (k, n)
        What a point brings to those of a lower first value.
    earlier : ndarray of int64, shape (l, n)
        What it brings to those of a higher first value.

    Attributes
    ----------
    first : ndarray, shape (m,)
    later, earlier : ndarray, shapes (k, m) and (l, m)
        Of the distinct points.
    crossed, level : pair of ndarray, shapes (k, m) and (l, m)
        Sums of `later` over the points of higher first value, of `earlier` over those of lower one, where these are
        inverted, and where the second values are equal.
    """

    def __init__(self, comm: Any, strata: Ints | None, first: Ints, second: Ints, later: Ints, earlier: Ints) -> None:
        entering("exchange")
        self._comm, k, both = comm, len(later), len(later) + len(earlier)
        keys = [first, second] if strata is None else [strata, first, second]
        own = Joined.of(keys, [*later, *earlier]) if _tied(keys) else Joined(keys, [*later, *earlier])
        self._trip = Trip(comm, _ranges(comm, own.keys))
        here = Joined.of(*([self._trip.out(each) for each in columns] for columns in (own.keys, own.brought)))
        self._own, self._here = Joined([], [], own.order, own.starts), Joined([], [], here.order, here.starts)
        *self._groups, self.first, second = here.keys
        brought = np.array(here.brought)
        del own, here, keys
        self.later, self.earlier = brought[:k], brought[k:]

        entering("counting pairs")
        order = lexicographic_order([*self._groups, second], stable=True)
        crossed = np.concatenate(weighted_inversions(order, self.later, self.earlier))
        swapped = [each[order] for each in (*self._groups, second, self.first)]
        del second
        found, sent = _across(comm, swapped, brought[:, order], k)
        for each in found:
            each[order] = each.copy()
        level = found[:both]
        if comm.size > 1:
            crossed += found[both:]
        self.crossed, self.level = (crossed[:k], crossed[k:]), (level[:k], level[k:])
        self.bytes_sent = self._trip.bytes_sent + sent

    def in_order(self) -> tuple[Ints, Ints]:
        """Return the sums of `later` over all points of the stratum, and over those of the first value.  Collective."""
        _, in_stratum = _run_sums(self._comm, self.later, self._groups)
        _, in_first = _run_sums(self._comm, self.later, [*self._groups, self.first])
        return in_stratum, in_first

    def beyond(self) -> tuple[Ints, Ints]:
        """Return the sums of `later` over all points of higher first value, of `earlier` of lower one.  Collective."""
        k, brought = len(self.later), np.concatenate([self.later, self.earlier])
        before, totals = _run_sums(self._comm, brought, self._groups)
        with_first, in_first = _run_sums(self._comm, brought, [*self._groups, self.first])
        before = before - with_first
        return totals[:k] - before[:k] - in_first[:k], before[k:]

    def home(self, of_points: NDArray[Any]) -> NDArray[Any]:
        """Return what belongs to each of the points given, (c, n), from what belongs to each distinct one, (c, m).

        Collective.
        """
        before = self._trip.bytes_sent
        back = [self._own.of_points(self._trip.back(self._here.of_points(each))) for each in of_points]
        self.bytes_sent += self._trip.bytes_sent - before
        return np.array(back)


def _tied(columns: Sequence[Ints]) -> bool:
    """Tell whether many points seem equal: equal ones go to one rank, which should get few."""
    drawn = np.array([each[:: max(len(each) // _SAMPLES_PER_RANK, 1)] for each in columns])
    return bool(4 * np.unique(drawn, axis=1).shape[1] < 3 * drawn.shape[1])


def _across(comm: Any, keys: list[Ints], brought: Ints, k: int) -> tuple[Ints, int]:
    """Return what is found for points in the order of the second values of all ranks, and bytes sent.  Collective.

    For each point `level` and, of several ranks, what is `crossed` in other ranges of the first order.

    Parameters
    ----------
    keys : list of ndarray of int64, shape (m,)
        Stratum (if there are strata), second and first value of this rank's distinct points, sorted.
    brought : ndarray of int64, shape (k + l, m)
    k : int
    """
    trip = Trip(comm, _ranges(comm, keys))
    if comm.size == 1:
        return _level(comm, keys[:-1], brought, k), 0
    keys, brought = [trip.out(each) for each in keys], np.array([trip.out(each) for each in brought])
    order = lexicographic_order(keys)
    keys = [each[order] for each in keys[:-1]]
    crossed = np.concatenate(weighted_inversions(order, brought[:k], brought[k:]))
    crossed += _of_whole_ranges(comm, trip.arrived, brought, k)
    level = np.empty_like(brought)
    level[:, order] = _level(comm, keys, brought[:, order], k)
    return np.array([trip.back(each) for each in (*level, *crossed)]), trip.bytes_sent


def _level(comm: Any, keys: Sequence[Ints], brought: Ints, k: int) -> Ints:
    """Return the first k sums over what is behind in a run of equal keys, the others over what is before.

    Collective.
    """
    before, totals = _run_sums(comm, brought, keys)
    before[:k] += brought[:k]
    np.subtract(totals[:k], before[:k], out=before[:k])
    return before


def _of_whole_ranges(comm: Any, arrived: Ints, brought: Ints, k: int) -> Ints:
    """Return for each point the sums over points that are in other ranges of both orders, and inverted with it.

    Parameters
    ----------
    arrived : ndarray of int64, shape (P,)
        How many points came from each range of the first order, one range after the other.
    """
    stops = np.cumsum(arrived)
    running = np.zeros((len(brought), brought.shape[1] + 1), dtype=np.int64)
    np.cumsum(brought, axis=1, out=running[:, 1:])
    table = np.array(comm.allgather(running[:, stops] - running[:, stops - arrived]))  # range of the second, sum, range
    own = comm.rank
    later = table[:own, :k].sum(axis=0)  # lower in the second order …
    earlier = table[own + 1 :, k:].sum(axis=0)
    behind = later.sum(axis=1, keepdims=True) - np.cumsum(later, axis=1)  # … and of a higher range of the first
    before = np.cumsum(earlier, axis=1) - earlier
    return np.repeat(np.concatenate([behind, before]), arrived, axis=1)


def _run_sums(comm: Any, brought: Ints, keys: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return `sums_in_groups` of the runs of points that agree in keys; without keys all do."""
    n = brought.shape[1]
    starts = starts_of_equal(keys) if keys else np.arange(min(1, n))
    first, last = (tuple(int(each[at]) for each in keys) if n else () for at in (0, -1))
    return sums_in_groups(comm, starts, (first, last), brought)


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
