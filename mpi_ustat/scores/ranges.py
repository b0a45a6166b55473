"""Sums over what lies above or below each value, of values sorted over the ranks by ranges: each moves once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.wins import parted
from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.orders import placed, running
from mpi_ustat.numerics.types import Floats, Ints

Told = Callable[[Ints, Floats, int], NDArray[Any]]


def beyond(
    comm: Any, values: tuple[Floats, Floats], brought: Sequence[Ints] | None, told: Told
) -> tuple[list[NDArray[Any]], NDArray[Any], int]:
    """Return the sums over the t above each a, and over the a below each t; the weight of all t; and the bytes sent.

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
    trips = parted(comm, values)
    arrived = [np.asarray(trip.out(each)) for trip, each in zip(trips, values, strict=True)]
    orders = [np.argsort(each) for each in arrived]
    a, t = (each[order] for each, order in zip(arrived, orders, strict=True))
    of_a, of_t = (
        np.arange(len(order) + 1)[None]
        if brought is None
        else running(np.array([trip.out(each)[order] for each in brought[k]]))
        for k, (trip, order) in enumerate(zip(trips, orders, strict=True))
    )
    totals = comm.allgather((of_a[:, -1], of_t[:, -1]))
    nothing = np.zeros(len(of_a), dtype=np.int64)
    lower = sum((each for each, _ in totals[: comm.rank]), nothing)[:, None]
    from_here = sum((each for _, each in totals[comm.rank :]), nothing)[:, None]
    found = (
        told(from_here - of_t.take(look_up(t, a, "right"), axis=1), a, 1),
        told(lower + of_a.take(look_up(a, t, "left"), axis=1), t, -1),
    )
    home = [trip.back(placed(each, order)) for trip, each, order in zip(trips, found, orders, strict=True)]
    all_t = sum((each for _, each in totals), nothing)
    return home, all_t, sum(trip.bytes_sent for trip in trips)
