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

from mpi_ustat.influence.stretches import sums_in_groups
from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.orders import joined, lexicographic_order, starts_of_equal
from mpi_ustat.numerics.weighted_dominance import weighted_inversions
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
    behind, before : ndarray, shapes (k, m) and (l, m)
        Sums of `later` over the points of higher first value, of `earlier` over those of lower one.
    in_stratum, in_first, in_second : ndarray, shape (k, m)
        Sums of `later` over all points of the stratum, and of the same first value, and of the same second one.
    crossed : pair of ndarray, shapes (k, m) and (l, m)
        `behind` of those of lower second value, `before` of those of higher one.
    level : pair of ndarray, shapes (k, m) and (l, m)
        `behind` and `before` of those of equal second value.
    """

    def __init__(self, comm: Any, strata: Ints | None, first: Ints, second: Ints, later: Ints, earlier: Ints) -> None:
        entering("exchange")
        k, n_keys = len(later), 2 if strata is None else 3
        columns = [first, second] if strata is None else [strata, first, second]
        self._trip = Trip(comm, _ranges(comm, columns))
        columns = [self._trip.out(each) for each in (*columns, *later, *earlier)]
        self._order = lexicographic_order(columns[:n_keys])
        columns = [each[self._order] for each in columns]
        self._starts = starts_of_equal(columns[:n_keys])
        keys = [each[self._starts] for each in columns[:n_keys]]
        brought = joined(np.array(columns[n_keys:]), self._starts)
        self.first, self.later, self.earlier = keys[-2], brought[:k], brought[k:]

        entering("counting pairs")
        of_strata, in_stratum = _run_sums(comm, brought, keys[:-2])
        of_first, in_first = _run_sums(comm, brought, keys[:-1])
        self.in_stratum, self.in_first = in_stratum[:k], in_first[:k]
        self.behind = self.in_stratum - of_strata[:k] - (self.in_first - of_first[:k])
        self.before = of_strata[k:] - of_first[k:]

        swapped = [*keys[:-2], keys[-1], keys[-2]]
        order = lexicographic_order(swapped[:-1], stable=True)
        crossed = np.concatenate(weighted_inversions(order, self.later, self.earlier))
        across, sent = _across(comm, [each[order] for each in swapped], brought[:, order], k)
        found = np.empty_like(across)
        found[:, order] = across
        level, self.in_second = found[: len(brought)], found[len(brought) : len(brought) + k]
        if comm.size > 1:
            crossed += found[len(brought) + k :]
        self.crossed, self.level = (crossed[:k], crossed[k:]), (level[:k], level[k:])
        self.bytes_sent = self._trip.bytes_sent + sent

    def home(self, of_points: NDArray[Any]) -> NDArray[Any]:
        """Return what belongs to each of the points given, (c, n), from what belongs to each distinct one, (c, m).

        Collective.
        """
        lengths = np.diff(self._starts, append=len(self._order))
        arrived = np.empty((len(of_points), len(self._order)), dtype=of_points.dtype)
        arrived[:, self._order] = np.repeat(of_points, lengths, axis=1) if (lengths > 1).any() else of_points
        before = self._trip.bytes_sent
        back = np.array([self._trip.back(each) for each in arrived])
        self.bytes_sent += self._trip.bytes_sent - before
        return back


def _across(comm: Any, keys: list[Ints], brought: Ints, k: int) -> tuple[Ints, int]:
    """Return what is found for points in the order of the second values of all ranks, and bytes sent.  Collective.

    For each point: `level`, `in_second` and, of several ranks, what is `crossed` in other ranges of the first order.

    Parameters
    ----------
    keys : list of ndarray of int64, shape (m,)
        Stratum (if there are strata), second and first value of this rank's distinct points, sorted.
    brought : ndarray of int64, shape (k + l, m)
    k : int
    """
    trip = Trip(comm, _ranges(comm, keys))
    keys, brought = [trip.out(each) for each in keys], np.array([trip.out(each) for each in brought])
    order = np.arange(len(keys[0])) if comm.size == 1 else lexicographic_order(keys)
    sorted_brought = brought[:, order]
    before, totals = _run_sums(comm, sorted_brought, [each[order] for each in keys[:-1]])
    behind = totals[:k] - before[:k] - sorted_brought[:k]
    found = np.empty((len(brought) + k, len(order)), dtype=np.int64)
    found[:, order] = np.concatenate([behind, before[k:], totals[:k]])
    if comm.size == 1:
        return found, 0
    crossed = np.concatenate(weighted_inversions(order, brought[:k], brought[k:]))
    crossed += _of_whole_ranges(comm, trip.arrived, brought, k)
    return np.array([trip.back(each) for each in (*found, *crossed)]), trip.bytes_sent


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
