"""Sums over the points that lie below and at each point, of values sorted over the ranks, within each group.

Each of several ranks sorts its own points by (group, value), joins equal ones, and sends each of these *runs* once, to
the rank that has its range of the order; what is found there for the run goes back the same way. Weights travel as
limbs (`numerics.limbs`), whose sums are exact, so that nothing depends on the ranks. A group may lie on many ranks, and
a rank may have many groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.orders import lexicographic_order, narrow, run_sums, starts_of_equal
from mpi_ustat.numerics.types import Floats, Integers, Ints
from mpi_ustat.schemes.partition import block_bounds

_SAMPLES_PER_RANK = 256


class Own(NamedTuple):
    """Points of one sample on one rank.

    Attributes
    ----------
    keys : ndarray of int64, shape (n,), or None
        Groups.
    values : ndarray, shape (n,)
    brought : ndarray of int64, shape (k, n)
        What the points bring, as whole numbers.
    """

    keys: Ints | None
    values: Floats
    brought: Ints

    @property
    def columns(self) -> list[NDArray[Any]]:
        """By which the points are ordered."""
        return [self.values] if self.keys is None else [self.keys, self.values]


@dataclass(frozen=True)
class Joined:
    """Points of which equal ones are joined, in order, with the sums of what they bring; or all points as they are.

    Attributes
    ----------
    keys, brought : list of ndarray, shape (m,)
    order, starts : ndarray of int, shapes (n,) and (m,), or None
        Of the points, and where among them equal ones start; None: they are as they were.
    """

    keys: list[NDArray[Any]]
    brought: list[Ints]
    order: Integers | None = None
    starts: Ints | None = None

    @classmethod
    def of(cls, keys: list[NDArray[Any]], brought: list[Ints]) -> Self:
        """Sort and join points; in the lists, so that no two arrays more than needed are there at a time."""
        order = lexicographic_order(keys)
        for columns in (keys, brought):
            for at, each in enumerate(columns):
                columns[at] = each[order]
        order, starts = narrow(order), starts_of_equal(keys)
        if len(starts) == len(order):
            return cls(keys, brought, order)
        for at, each in enumerate(keys):
            keys[at] = each[starts]
        for at, each in enumerate(brought):
            brought[at] = np.add.reduceat(each, starts, dtype=each.dtype)  # the same on all ranks
        return cls(keys, brought, order, starts)

    def of_points(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of each point, (n,), from those of the joined ones, (m,)."""
        if self.order is None:
            return values
        found = np.empty(len(self.order), dtype=values.dtype)
        found[self.order] = (
            values if self.starts is None else np.repeat(values, np.diff(self.starts, append=len(found)))
        )
        return found


class Stretch:
    """The distinct (group, value) of several samples in this rank's range of the order.  Collective.

    Attributes
    ----------
    values : ndarray, shape (r,)
    sums : list of ndarray of int64, shape (k, r)
        Of each sample, what its points at each of the r values bring.
    groups : ndarray of int64
        Where among the values each group starts.
    """

    def __init__(self, comm: Any, samples: Sequence[Own]) -> None:
        entering("exchange")
        self._comm = comm
        if comm.size > 1:
            own = [Joined.of(each.columns, [*each.brought]) for each in samples]
        else:
            own = [Joined(each.columns, [*each.brought]) for each in samples]
        bounds = _splitters(comm, [each.keys for each in own])
        self._trips = [
            Trip(comm, None, np.diff(_cuts(each.keys, bounds), prepend=0, append=len(each.keys[-1]))) for each in own
        ]
        both = [*zip(self._trips, own, strict=True)]
        columns = [
            np.concatenate([trip.out(each.keys[at]) for trip, each in both]) for at in range(len(samples[0].columns))
        ]
        arrived = [[trip.out(row) for row in each.brought] for trip, each in both]
        self._own = [Joined([], [], each.order, each.starts) for each in own]
        del own, both
        order = lexicographic_order(columns)
        columns = [each[order] for each in columns]
        starts = starts_of_equal(columns)
        places = narrow(np.arange(len(starts)))
        if len(starts) < len(order):
            places = np.repeat(places, np.diff(starts, append=len(order)))
        places[order] = places.copy()
        del order
        *keys, self.values = (each[starts] for each in columns)
        del columns
        self.groups = starts_of_equal(keys) if keys else np.arange(min(1, len(starts)))
        self._ends = (int(keys[0][0]), int(keys[0][-1])) if keys and len(starts) else (0, 0)
        self._places = np.split(places, np.cumsum([len(each[0]) for each in arrived])[:-1])
        self.sums = []
        for at, brought in zip(self._places, arrived, strict=True):
            self.sums.append(np.zeros((len(brought), len(starts)), dtype=np.int64))
            for total, each in zip(self.sums[-1], brought, strict=True):
                np.add.at(total, at, each)

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to others."""
        return sum(trip.bytes_sent for trip in self._trips)

    def home(self, sample: int, of_values: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of each own point of a sample, (k, n), from those of each value, (k, r).

        Collective.
        """
        trip, places, own = self._trips[sample], self._places[sample], self._own[sample]
        return np.array([own.of_points(trip.back(each[places])) for each in of_values])

    def below(self, sums: Ints) -> tuple[Ints, Ints]:
        """Return the sums over lower values of the same group, and over all of the group, each (k, r).  Collective."""
        return sums_in_groups(self._comm, self.groups, self._ends, sums)

    def gaps(self) -> Floats:
        """Return how far above each value the next of its group lies, 0 at the last of a group.  Collective."""
        found = np.zeros(len(self.values))
        firsts = self._comm.allgather((self._ends[0], float(self.values[0])) if len(self.values) else None)
        if len(self.values):
            found[:-1] = np.diff(self.values)
            found[self.groups[1:] - 1] = 0.0
            above = next((each for each in firsts[self._comm.rank + 1 :] if each is not None), None)
            if above is not None and above[0] == self._ends[1]:
                found[-1] = above[1] - self.values[-1]
        return found


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
    return _splitters(comm, [[values] for values in samples])[-1]


def _splitters(comm: Any, samples: Sequence[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Return the columns of what begins the ranges of ranks 1, 2, …, about equally many runs each.  Collective.

    Samples are columns, sorted, the first first.
    """
    if comm.size == 1:
        return [each[:0] for each in samples[0]]
    drawn = []
    for columns in samples:
        n = len(columns[0])
        places = np.unique(block_bounds(n, _SAMPLES_PER_RANK)[:-1])
        places = places[places < n]
        drawn.append([*(each[places] for each in columns), np.diff(places, append=n)])
    everyone = [each for of_rank in comm.allgather(drawn) for each in of_rank]
    *columns, stand_for = (np.concatenate(each) for each in zip(*everyone, strict=True))
    order = np.lexsort(columns[::-1])
    reached = np.cumsum(stand_for[order])
    targets = np.arange(1, comm.size) * int(reached[-1]) // comm.size
    places = order[np.searchsorted(reached, targets)]
    return [each[places] for each in columns]


def _cuts(columns: Sequence[NDArray[Any]], bounds: Sequence[NDArray[Any]]) -> Ints:
    """Return where a rank's runs are cut for the ranks; a run that equals a splitter goes to the rank above it."""
    if len(columns) == 1:
        return np.searchsorted(columns[0], bounds[0], side="left")
    keys, values = columns
    cuts = np.empty(len(bounds[0]), dtype=np.int64)
    for i, (key, value) in enumerate(zip(*bounds, strict=True)):
        start, stop = (int(np.searchsorted(keys, key, side=side)) for side in ("left", "right"))
        cuts[i] = start + np.searchsorted(values[start:stop], value, side="left")
    return cuts
