"""Sums over the points that lie below and at each point, of values sorted over the ranks, within each group.

Every rank sorts its own points by (group, value), joins equal ones, and sends each of these *runs* once, to the rank that
has its range of the order; what is found there for the run goes back the same way. Weights travel as limbs
(`numerics.limbs`), whose sums are exact, so that nothing depends on the ranks. A group may lie on many ranks, and a rank
may have many groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SAMPLES_PER_RANK = 256


def lexicographic_order(keys: Ints | None, values: Floats) -> Ints:
    """Return an order of points by (key, value); without keys, by value. Equal points come in any order."""
    by_value = np.argsort(values)
    if keys is None:
        return by_value
    n = len(keys)
    if n >= 1 << 31:
        return np.lexsort((values, keys))
    by_key = np.argsort(keys)
    codes = np.empty(n, dtype=np.int64)
    codes[by_key] = np.cumsum(starts_of_runs(keys[by_key]))
    words = codes[by_value]
    words <<= 32
    words |= np.arange(n)
    words.sort()
    words &= (1 << 32) - 1
    return by_value[words]


@dataclass(frozen=True)
class Own:
    """This rank's points of one sample, sorted, equal ones joined.

    Attributes
    ----------
    keys : ndarray of int64, shape (r,), or None
        Groups.
    values : ndarray, shape (r,)
    sums : ndarray of int64, shape (k, r)
        Of what the points bring, as whole numbers.
    order, run_of : ndarray of int64, shape (n,)
        The points in order, and the run that each of these belongs to.
    """

    keys: Ints | None
    values: Floats
    sums: Ints
    order: Ints
    starts: Ints

    @classmethod
    def of(cls, keys: Ints | None, values: Floats, brought: Ints) -> Own:
        """Sort and join points that bring whole numbers, shape (k, n)."""
        order = lexicographic_order(keys, values)
        ordered, of_group = values[order], None if keys is None else keys[order]
        new = starts_of_runs(ordered)
        if of_group is not None:
            new |= starts_of_runs(of_group)
        starts = np.flatnonzero(new)
        sums = brought[:, order]
        if len(starts) < len(order):
            sums = np.add.reduceat(sums, starts, axis=1)
        return cls(None if of_group is None else of_group[starts], ordered[starts], sums, order, starts)

    def of_points(self, of_runs: NDArray[Any]) -> NDArray[Any]:
        """Return what belongs to each point, from what belongs to its run; along the last axis."""
        lengths = np.diff(self.starts, append=len(self.order))
        found = np.empty((*of_runs.shape[:-1], len(self.order)), dtype=of_runs.dtype)
        found[..., self.order] = (
            of_runs if len(self.starts) == len(self.order) else np.repeat(of_runs, lengths, axis=-1)
        )
        return found


class Stretch:
    """The distinct (group, value) of several samples in this rank's range of the order.  Collective.

    Attributes
    ----------
    sums : list of ndarray of int64, shape (k, r)
        Of each sample, what its points at each of the r values bring.
    """

    def __init__(self, comm: Any, samples: Sequence[Own]) -> None:
        entering("exchange")
        self._comm, self._samples = comm, samples
        self._grouped = samples[0].keys is not None
        bounds = _splitters(comm, samples)
        parts, self._trips = [], []
        for own in samples:
            trip = Trip(comm, None, np.diff(_cuts(own, bounds), prepend=0, append=len(own.values)))
            columns = [own.values.view(np.int64), *own.sums]
            parts.append(trip.out(np.column_stack(columns if own.keys is None else [own.keys, *columns])))
            self._trips.append(trip)
        rows = np.concatenate(parts)
        keys, values = (rows[:, 0] if self._grouped else None), rows[:, int(self._grouped)].view(np.float64)
        order = lexicographic_order(keys, values)
        new = starts_of_runs(values[order])
        if keys is not None:
            new |= starts_of_runs(keys[order])
        self._starts = np.flatnonzero(new)
        self._places = np.empty(len(order), dtype=np.int64)
        self._places[order] = np.cumsum(new) - 1
        self.values = values[order[self._starts]]
        self.keys = None if keys is None else keys[order[self._starts]]
        self.sums = []
        sample_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[order]
        brought = rows[:, int(self._grouped) + 1 :].T[:, order]
        for k in range(len(parts)):
            of_sample = np.where(sample_of == k, brought, 0)
            self.sums.append(np.add.reduceat(of_sample, self._starts, axis=1) if len(self._starts) else of_sample)
        self._limits = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        #: Where each group starts among the values, and the group of each value.
        self.groups = (
            np.flatnonzero(starts_of_runs(self.keys)) if self.keys is not None else np.arange(min(1, len(new)))
        )

    def home(self, sample: int, of_values: Ints) -> Ints:
        """Return what belongs to each of this rank's points of a sample, (k, n), from what belongs to each value, (k, r).

        Collective.
        """
        places = self._places[self._limits[sample] : self._limits[sample + 1]]
        return self._samples[sample].of_points(self._trips[sample].back(of_values[:, places].T).T)

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to others."""
        return sum(trip.bytes_sent for trip in self._trips)

    def below(self, sums: Ints) -> tuple[Ints, Ints]:
        """Return the sums over lower values of the same group, and over all of the group, each (k, r).  Collective."""
        r = sums.shape[1]
        cumulative = np.zeros((len(sums), r + 1), dtype=np.int64)
        np.cumsum(sums, axis=1, out=cumulative[:, 1:])
        starts = self.groups
        stops = np.append(starts[1:], r)[: len(starts)]
        totals = cumulative[:, stops] - cumulative[:, starts]
        before = np.zeros_like(totals)
        if self._comm.size > 1:
            ends = [] if not len(starts) else [(self._key(0), totals[:, 0]), (self._key(-1), totals[:, -1])]
            everyone = self._comm.allgather(ends[:1] if len(starts) == 1 else ends)
            for g in {0, len(starts) - 1} if len(starts) else ():
                of_ranks = [[own for key, own in told if key == self._key(g)] for told in everyone]
                before[:, g] = sum(
                    (own for told in of_ranks[: self._comm.rank] for own in told), np.zeros_like(before[:, g])
                )
                totals[:, g] = sum(own for told in of_ranks for own in told)
        sizes = stops - starts
        below = cumulative[:, :-1] - np.repeat(cumulative[:, starts] - before, sizes, axis=1)
        return below, np.repeat(totals, sizes, axis=1)

    def _key(self, group: int) -> int:
        return 0 if self.keys is None else int(self.keys[self.groups[group]])


def _splitters(comm: Any, samples: Sequence[Own]) -> tuple[Ints, Floats]:
    """Return the keys and values that begin the ranges of ranks 1, 2, …, about equally many runs each.  Collective."""
    keys, values, weights = [], [], []
    for own in samples if comm.size > 1 else ():
        places = block_bounds(len(own.values), _SAMPLES_PER_RANK)[:-1]
        places = np.unique(places[places < len(own.values)])
        keys.append(np.zeros(len(places), dtype=np.int64) if own.keys is None else own.keys[places])
        values.append(own.values[places])
        weights.append(np.diff(places, append=len(own.values)))
    if comm.size == 1:
        return np.empty(0, dtype=np.int64), np.empty(0)
    everyone = comm.allgather(tuple(map(np.concatenate, (keys, values, weights))))
    all_keys, all_values, all_weights = (np.concatenate([each[k] for each in everyone]) for k in range(3))
    order = np.lexsort((all_values, all_keys))
    reached = np.cumsum(all_weights[order])
    targets = np.arange(1, comm.size) * (int(reached[-1]) if len(reached) else 0) // comm.size
    places = order[np.minimum(np.searchsorted(reached, targets), len(order) - 1)] if len(order) else order
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
