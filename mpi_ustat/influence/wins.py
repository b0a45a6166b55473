"""How many of the other class each score beats, where every point counts once: the fast way of `stretches`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_ustat.influence.stretches import splitting_values
from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.types import Floats, Ints


def wins(comm: Any, x: Floats, z: Floats, half: bool) -> tuple[Ints, Ints, int]:
    """Return twice the z that each own x beats, twice the x that each own z is beaten by, and the bytes sent.

    Collective. Ties count 1 with `half`. Every score moves once, to the rank of its range, and its count comes back.
    There the values of each class are sorted without their places: those of a rank have come in order, and are looked
    up in the other class's as they are.
    """
    entering("exchange")
    orders = [np.argsort(scores) for scores in (x, z)]
    ordered = [scores[order] for scores, order in zip((x, z), orders, strict=True)]
    bounds = splitting_values(comm, ordered)
    trips = [
        Trip(comm, None, np.diff(np.searchsorted(own, bounds, side="left"), prepend=0, append=len(own)))
        for own in ordered
    ]
    of_x, of_z = (trip.out(own) for trip, own in zip(trips, ordered, strict=True))
    sizes = comm.allgather((len(of_x), len(of_z)))
    z_lower, x_higher = sum(z for _, z in sizes[: comm.rank]), sum(x for x, _ in sizes[comm.rank + 1 :])
    x_sorted, z_sorted = (of_x, of_z) if comm.size == 1 else (np.sort(of_x), np.sort(of_z))
    below, at = _below_and_at(z_sorted, of_x)
    won = 2 * (below + z_lower) + (at if half else 0)
    below, at = _below_and_at(x_sorted, of_z)
    lost = 2 * (len(of_x) - below - at + x_higher) + (at if half else 0)
    found = []
    for trip, order, counts in zip(trips, orders, (won, lost), strict=True):
        home = np.empty(len(order), dtype=np.int64)
        home[order] = trip.back(counts)
        found.append(home)
    return found[0], found[1], sum(trip.bytes_sent for trip in trips)


def _below_and_at(ordered: Floats, queries: Floats) -> tuple[Ints, Ints]:
    """Return how many of some sorted values are below each query, and how many are equal to it."""
    below = np.searchsorted(ordered, queries, side="left")
    at = np.zeros(len(queries), dtype=np.int64)
    if len(ordered):
        tied = np.flatnonzero(ordered[np.minimum(below, len(ordered) - 1)] == queries)
        at[tied] = np.searchsorted(ordered, queries[tied], side="right") - below[tied]
    return below, at
