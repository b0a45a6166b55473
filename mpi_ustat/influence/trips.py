"""Rows that go to ranks chosen one by one, and what is found for them there, which comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.mpi.collectives import exchange_rows, row_bytes
from mpi_ustat.mpi.moves import by_worker, tally
from mpi_ustat.numerics.orders import narrow
from mpi_ustat.numerics.types import Integers, Ints


class Trip:
    """A way of this rank's rows to other ranks and back.  Construction and methods are collective.

    Where rows arrive, those of rank 0 come first, and those of a rank in their order: the order of all rows.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    targets : ndarray of int, shape (n,), or None
        The rank of each row; None: `counts` says it, of rows in the order of their ranks.
    counts : ndarray of int64, shape (P,), optional

    Attributes
    ----------
    bytes_sent : int
        Bytes that this rank has sent to others.
    """

    def __init__(self, comm: Any, targets: NDArray[Any] | None, counts: Ints | None = None) -> None:
        self._comm, self.bytes_sent = comm, 0
        self._order: Integers | None = None
        if comm.size == 1:
            return
        if targets is not None:
            ranks = targets.astype(np.min_scalar_type(comm.size), copy=False)
            self._order, counts = narrow(by_worker(ranks, comm.size)), tally(ranks, comm.size)
        assert counts is not None
        self._out = counts.astype(np.int64)
        told = np.column_stack([self._out, np.full(comm.size, self._out.sum())])
        heard = np.empty_like(told)
        comm.Alltoall(told, heard)
        self._in, of_ranks = heard.T.copy()
        self._all = int(of_ranks.sum())

    def out(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that come to this rank."""
        if self._comm.size == 1:
            return rows
        return self._moved(rows if self._order is None else rows[self._order], self._out, self._in)

    @property
    def arrived(self) -> Ints:
        """How many rows come from each of several ranks."""
        return self._in

    def back(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return, in the order of this rank's rows, what other ranks found for them."""
        if self._comm.size == 1:
            return rows
        received = self._moved(rows, self._in, self._out)
        if self._order is None:
            return received
        found = np.empty_like(received)
        found[self._order] = received
        return found

    def _moved(self, rows: NDArray[Any], out: Ints, into: Ints) -> NDArray[Any]:
        received = np.empty((int(into.sum()), *rows.shape[1:]), dtype=rows.dtype)
        exchange_rows(self._comm, np.ascontiguousarray(rows), out, received, into, self._all)
        own = self._comm.rank
        self.bytes_sent += (int(out.sum()) - int(out[own])) * row_bytes(rows)
        return received
