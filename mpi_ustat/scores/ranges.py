"""Sums over what lies above or below each value, of values sorted over the ranks by ranges: each moves once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.stretches import splitting_values
from mpi_ustat.influence.trips import Trip
from mpi_ustat.numerics.types import Floats, Ints

Told = Callable[[Ints, Floats, int], NDArray[Any]]


def beyond(
    comm: Any, values: tuple[Floats, Floats], brought: Sequence[Ints] | None, told: Told
) -> tuple[list[NDArray[Any]], NDArray[Any], int]:
    """Return what is told of the t above each a, and of the a below each t; the weight of all t; and the bytes sent.

    Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    values : tuple of ndarray
        This rank's a and t.
    brought : sequence of ndarray of int64, shape (k, n), or None
        What each a and each t adds to the sums; None: a one.
    told : callable
        Gets sums (k, r), the values (r,) that they belong to, and 1 for an a, -1 for a t.
    """
    ways = [_Way(each) for each in values]
    bounds = splitting_values(comm, [way.ordered for way in ways])
    arrived = [way.sent(comm, bounds) for way in ways]
    orders = [slice(None) if comm.size == 1 else np.argsort(each) for each in arrived]
    a, t = (each[order] for each, order in zip(arrived, orders, strict=True))
    of_a, of_t = (
        np.arange(len(each) + 1)[None] if brought is None else running(way.out(brought[k])[:, orders[k]])
        for k, (way, each) in enumerate(zip(ways, (a, t), strict=True))
    )
    totals = comm.allgather((of_a[:, -1], of_t[:, -1]))
    nothing = np.zeros(len(of_a), dtype=np.int64)
    lower = sum((each for each, _ in totals[: comm.rank]), nothing)[:, None]
    from_here = sum((each for _, each in totals[comm.rank :]), nothing)[:, None]
    found = (
        told(from_here - of_t.take(np.searchsorted(t, a, side="right"), axis=1), a, 1),
        told(lower + of_a.take(np.searchsorted(a, t, side="left"), axis=1), t, -1),
    )
    home = [way.home(each, order) for way, each, order in zip(ways, found, orders, strict=True)]
    all_t = sum((each for _, each in totals), nothing)
    return home, all_t, sum(way.trip.bytes_sent for way in ways)


class _Way:
    """The way of one class's values to the ranks of their ranges, and back."""

    trip: Trip

    def __init__(self, values: Floats) -> None:
        self._order = np.argsort(values)
        self.ordered = values[self._order]

    def sent(self, comm: Any, bounds: Floats) -> Floats:
        """Return the values that come to this rank."""
        cuts = np.searchsorted(self.ordered, bounds, side="left")
        self.trip = Trip(comm, None, np.diff(cuts, prepend=0, append=len(self.ordered)))
        return np.asarray(self.trip.out(self.ordered))

    def out(self, brought: Ints) -> Ints:
        """Return what the values bring that have come, (k, r)."""
        return np.array([self.trip.out(each[self._order]) for each in brought])

    def home(self, found: NDArray[Any], order: Any) -> NDArray[Any]:
        """Return what was found for each own value, given in the order of those that have come."""
        of_arrived = np.empty_like(found)
        of_arrived[order] = found
        of_own = np.empty(len(self._order), dtype=found.dtype)
        of_own[self._order] = self.trip.back(of_arrived)
        return of_own


def running(brought: Ints) -> Ints:
    """Return the sums of the first 0, 1, … of each row, (k, r + 1)."""
    sums = np.zeros((len(brought), brought.shape[1] + 1), dtype=np.int64)
    np.cumsum(brought, axis=1, out=sums[:, 1:])
    return sums
