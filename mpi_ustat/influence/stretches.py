"""Sums over the points that lie below and at each point, of values sorted over the ranks, within each group.

Every rank sorts its own points by (group, value), joins equal ones, and sends each of these *runs* once, to the rank
that has its range of the order; what is found there for the run goes back the same way. Weights travel as limbs
(`numerics.limbs`), whose sums are exact, so that nothing depends on the ranks. A group may lie on many ranks, and a
rank may have many groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.orders import joined, lexicographic_order, run_sums, starts_of_equal
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import block_bounds

_SAMPLES_PER_RANK = 256


def _columns(keys: Ints | None, values: Floats) -> list[NDArray[Any]]:
    return [values] if keys is None else [keys, values]


@dataclass(frozen=True)
class Own:
    """Points of one sample on one rank, sorted, equal ones joined.

    Attributes
    ----------
    keys : ndarray of int64, shape (r,), or None
        Groups.
    values : ndarray, shape (r,)
    sums : ndarray of int64, shape (k, r)
        Of what the points bring, as whole numbers.
    order, starts : ndarray of int64, shapes (n,) and (r,)
        The points in order, and where among them each run starts.
    """

    keys: Ints | None
    values: Floats
    sums: Ints
    order: Ints
    starts: Ints

    @classmethod
    def of(cls, keys: Ints | None, values: Floats, brought: Ints) -> Own:
        """Sort and join points that bring whole numbers, shape (k, n)."""
        order = lexicographic_order(_columns(keys, values))
        ordered, of_group = values[order], None if keys is None else keys[order]
        starts = starts_of_equal(_columns(of_group, ordered))
        sums = joined(np.take(brought, order, axis=1), starts)
        return cls(None if of_group is None else of_group[starts], ordered[starts], sums, order, starts)

    def of_points(self, of_runs: NDArray[Any]) -> NDArray[Any]:
        """Return what belongs to each point, from what belongs to its run; along the last axis."""
        found = np.empty((*of_runs.shape[:-1], len(self.order)), dtype=of_runs.dtype)
        if len(self.starts) < len(self.order):
            of_runs = np.repeat(of_runs, np.diff(self.starts, append=len(self.order)), axis=-1)
        found[..., self.order] = of_runs
        return found


class Stretch:
    """The distinct (group, value) of several samples in this rank's range of the order.  Collective.

    Attributes
    ----------
    keys, values : ndarray, shape (r,)
        Groups (None if there are none) and values.
    sums : list of ndarray of int64, shape (k, r)
        Of each sample, what its points at each of the r values bring.
    groups : ndarray of int64
        Where among the values each group starts.
    """

    def __init__(self, comm: Any, samples: Sequence[Own]) -> None:
        entering("exchange")
        self._comm, self._samples = comm, samples
        bounds = _splitters(comm, samples)
        self._trips = [
            Trip(comm, None, np.diff(_cuts(own, bounds), prepend=0, append=len(own.values))) for own in samples
        ]
        arrived = [trip.out(own.values) for trip, own in zip(self._trips, samples, strict=True)]
        values = np.concatenate(arrived)
        own_keys = [(trip, own.keys) for trip, own in zip(self._trips, samples, strict=True) if own.keys is not None]
        keys = np.concatenate([trip.out(each) for trip, each in own_keys]) if own_keys else None
        order = lexicographic_order(_columns(keys, values))
        starts = starts_of_equal([each[order] for each in _columns(keys, values)])
        self._places = np.empty(len(order), dtype=np.int64)
        if len(starts) == len(order):
            self._places[order] = np.arange(len(order))
        else:
            self._places[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        self.values = values[order[starts]]
        self.keys = None if keys is None else keys[order[starts]]
        self.groups = np.arange(min(1, len(starts))) if self.keys is None else starts_of_equal([self.keys])
        self._limits = np.cumsum([0, *map(len, arrived)])
        self.sums = []
        for k, (trip, own) in enumerate(zip(self._trips, samples, strict=True)):
            brought = np.zeros((len(own.sums), len(order)), dtype=np.int64)
            brought[:, self._limits[k] : self._limits[k + 1]] = [trip.out(sums) for sums in own.sums]
            self.sums.append(joined(np.take(brought, order, axis=1), starts))

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to others."""
        return sum(trip.bytes_sent for trip in self._trips)

    def home(self, sample: int, of_values: NDArray[Any]) -> NDArray[Any]:
        """Return what belongs to each own point of a sample, (k, n), from what belongs to each value, (k, r).

        Collective.
        """
        trip, places = self._trips[sample], self._places[self._limits[sample] : self._limits[sample + 1]]
        return self._samples[sample].of_points(np.array([trip.back(each[places]) for each in of_values]))

    def below(self, sums: Ints) -> tuple[Ints, Ints]:
        """Return the sums over lower values of the same group, and over all of the group, each (k, r).  Collective."""
        first, last = (0 if self.keys is None or not len(self.keys) else int(self.keys[at]) for at in (0, -1))
        return sums_in_groups(self._comm, self.groups, (first, last), sums)

    def gaps(self) -> Floats:
        """Return how far above each value the next of its group lies, 0 at the last of a group.  Collective."""
        found = np.zeros(len(self.values))
        firsts = self._comm.allgather((self._key(0), float(self.values[0])) if len(self.values) else None)
        if len(self.values):
            found[:-1] = np.diff(self.values)
            found[self.groups[1:] - 1] = 0.0
            above = next((each for each in firsts[self._comm.rank + 1 :] if each is not None), None)
            if above is not None and above[0] == self._key(-1):
                found[-1] = above[1] - self.values[-1]
        return found

    def _key(self, group: int) -> int:
        return 0 if self.keys is None else int(self.keys[self.groups[group]])


def sums_in_groups(comm: Any, starts: Ints, ends: tuple[Any, Any], sums: Ints) -> tuple[Ints, Ints]:
    """Return the sums over what stands before each in its group, and over all of the group, each (k, r).  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    starts : ndarray of int64
        Where each group starts among this rank's stretch of what lies sorted by group over the ranks.
    ends : pair
        What the first and the last group of this rank are called.
    sums : ndarray of int64, shape (k, r)
    """

    def elsewhere(totals: Ints) -> Ints:
        before = np.zeros_like(totals)
        own_ends = [(ends[0], totals[:, 0]), (ends[1], totals[:, -1])] if len(starts) else []
        everyone = comm.allgather(own_ends[:1] if len(starts) == 1 else own_ends)
        for g, name in {0: ends[0], len(starts) - 1: ends[1]}.items() if len(starts) else ():
            of_ranks = [[own for key, own in told if key == name] for told in everyone]
            before[:, g] = sum(own for told in of_ranks[: comm.rank] for own in told)
            totals[:, g] = sum(own for told in of_ranks for own in told)
        return before

    return run_sums(sums, starts, elsewhere if comm.size > 1 else None)


def splitting_values(comm: Any, samples: Sequence[Floats]) -> Floats:
    """Return the values that begin the ranges of ranks 1, 2, …, of sorted values of each sample.  Collective."""
    none = np.empty(0, dtype=np.int64)
    sums = np.empty((0, 0), dtype=np.int64)
    return _splitters(comm, [Own(None, values, sums, none, none) for values in samples])[1]


def _splitters(comm: Any, samples: Sequence[Own]) -> tuple[Ints, Floats]:
    """Return the keys and values that begin the ranges of ranks 1, 2, …, about equally many runs each.  Collective."""
    if comm.size == 1:
        return np.empty(0, dtype=np.int64), np.empty(0)
    drawn = []
    for own in samples:
        places = np.unique(block_bounds(len(own.values), _SAMPLES_PER_RANK)[:-1])
        places = places[places < len(own.values)]
        keys = np.zeros(len(places), dtype=np.int64) if own.keys is None else own.keys[places]
        drawn.append((keys, own.values[places], np.diff(places, append=len(own.values))))
    everyone = [each for of_rank in comm.allgather(drawn) for each in of_rank]
    all_keys, all_values, stand_for = (np.concatenate([each[k] for each in everyone]) for k in range(3))
    order = np.lexsort((all_values, all_keys))
    reached = np.cumsum(stand_for[order])
    targets = np.arange(1, comm.size) * int(reached[-1]) // comm.size
    places = order[np.searchsorted(reached, targets)]
    return all_keys[places], all_values[places]


def _cuts(own: Own, bounds: tuple[Ints, Floats]) -> Ints:
    """Return where a rank's runs are cut for the ranks; a run that equals a splitter goes to the rank above it."""
    keys, values = bounds
    if own.keys is None:
        return np.searchsorted(own.values, values, side="left")
    cuts = np.empty(len(keys), dtype=np.int64)
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        start, stop = (int(np.searchsorted(own.keys, key, side=side)) for side in ("left", "right"))
        cuts[i] = start + np.searchsorted(own.values[start:stop], value, side="left")
    return cuts
