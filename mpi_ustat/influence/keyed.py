"""Sums over points of one key, wherever these are: a key's points may lie on any ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import Sample
from mpi_ustat.influence.trips import Trip
from mpi_ustat.numerics.limbs import Grid, exponents
from mpi_ustat.numerics.orders import in_order
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Floats, Ints

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads whole numbers that follow each other
_MOST, _FEW = 1.25, 1 << 12  # a rank may get so many times its share, and so many points beside it


def ranks_of_keys(comm: Any, keys: Ints) -> Ints:
    """Return the rank that has each key, by a hash: its highest bits, as the low ones of whole doubles are all 0."""
    hashed = (keys.view(np.uint64) * _ODD) >> np.uint64(32)
    return ((hashed * np.uint64(comm.size)) >> np.uint64(32)).astype(np.int64)


def strata_together(comm: Any, samples: Sequence[Sample]) -> tuple[list[Sample], int]:
    """Bring all points of a stratum to one rank, by a hash of it, and return them, and the bytes sent.  Collective.

    Where strata are so large that a rank would get many more points than others, they stay.
    """
    strata = [sample.strata for sample in samples if sample.strata is not None]
    if comm.size == 1 or len(strata) < len(samples):
        return [*samples], 0
    trips = [Trip(comm, ranks_of_keys(comm, each)) for each in strata]
    sizes = comm.allgather(sum(int(trip.arrived.sum()) for trip in trips))
    if max(sizes) > _MOST * sum(sizes) / comm.size + _FEW:
        return [*samples], 0
    found = []
    for sample, of_strata, trip in zip(samples, strata, trips, strict=True):
        weights = None if sample.weights is None else trip.out(sample.weights)
        found.append(Sample(trip.out(sample.rows), weights, trip.out(of_strata), together=True))
    return found, sum(trip.bytes_sent for trip in trips)


def sums_by_key(
    comm: Any, keys: Ints, values: Sequence[Floats] | Floats, *, exact: bool = True, apart: bool = True
) -> tuple[Ints, Floats]:
    """Return the keys that belong to this rank, ascending, and the sums over the points of each, (k, C).  Collective.

    Sums are of whole numbers and rounded once, so that nothing depends on the ranks. A rank sends one row for each of
    its keys, however many points have it.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    keys : ndarray of int64, shape (n,)
    values : ndarray, shape (k, n), or sequence of k
        Finite.
    exact : bool
        Otherwise values are first rounded to a part in 2^62/n of the largest (`Grid.rounding`), in a third of the time.
    apart : bool
        Whether points of one key may lie on several ranks.
    """
    known = [exponents(each) if exact else float(np.abs(each).max(initial=0.0)) for each in values]
    everyone = comm.allgather((known, len(keys)))
    n, of_rows = sum(each[1] for each in everyone), [[each[0][k] for each in everyone] for k in range(len(values))]
    if exact:
        grids = [Grid.of(each, n) for each in of_rows]
        limbs = np.concatenate([grid.limbs(each) for grid, each in zip(grids, values, strict=True)])
    else:
        grids = [Grid.rounding(max(each), n) for each in of_rows]
        limbs = np.concatenate([grid.rounded(each) for grid, each in zip(grids, values, strict=True)])
    found_keys, found = _summed(keys, limbs)
    if apart and comm.size > 1:
        trip = Trip(comm, ranks_of_keys(comm, found_keys))
        found_keys, found = _summed(trip.out(found_keys), np.array([trip.out(each) for each in found]))
    stops = np.cumsum([grid.n_limbs for grid in grids])[:-1]
    sums = [grid.floats(each) for grid, each in zip(grids, np.split(found, stops), strict=True)]
    return found_keys, np.array(sums).reshape(len(values), -1)


def union(found: Sequence[tuple[Ints, Floats]]) -> Ints:
    """Return all keys of several arrays of sums, ascending."""
    every = np.sort(np.concatenate([keys for keys, _ in found]))
    return every[starts_of_runs(every)]


def aligned(every: Ints, found: Sequence[tuple[Ints, Floats]]) -> Floats:
    """Return sums (S, k, C) of ascending keys that include those of S arrays of sums; 0 where one has no such key."""
    sums = np.zeros((len(found), len(found[0][1]), len(every)))
    for out, (keys, own) in zip(sums, found, strict=True):
        out[:, np.searchsorted(every, keys)] = own
    return sums


def _summed(keys: Ints, values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys and the sums of the values of each."""
    order, ordered = in_order(keys)
    starts = np.flatnonzero(starts_of_runs(ordered))
    if not len(starts):
        return keys, values
    return ordered[starts], np.array([np.add.reduceat(each[order], starts) for each in values])
