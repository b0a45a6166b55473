"""Sums, gathers and sends of arrays, with results that don't depend on the number of ranks.

Rows are sent as items of an MPI type of a row, so that counts stay below 2³¹ for as long as can be: MPI 3.1 takes no
larger count or displacement. From there on, rows go from rank to rank in pieces.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np

from mpi_ustat.numerics.types import Floats, Ints, Rows
from mpi_ustat.schemes.partition import block_bounds

_MOST_GATHERED = 8192  # numbers that every rank may gather at every step of a descent
_LARGEST_COUNT = 2**31 - 1  # a C int
_TAG = 1949


def starts_of(counts: Ints) -> Ints:
    """Return where each of consecutive runs of these lengths starts."""
    return np.cumsum(counts) - counts


def add_integers(comm: Any, values: Ints) -> Ints:
    """Return the sum over the ranks of int64 arrays of one shape, which must not overflow.  Collective."""
    return _reduced(comm, values, "SUM")


def largest_integers(comm: Any, values: Ints) -> Ints:
    """Return the largest over the ranks of each of as many int64.  Collective."""
    return _reduced(comm, values, "MAX")


def on_any_rank(comm: Any, is_so: bool) -> bool:
    """Tell whether something is so on any rank, in a message that doesn't grow with their number.  Collective."""
    return bool(largest_integers(comm, np.array([is_so]))[0])


def _reduced(comm: Any, values: Ints, operation: str) -> Ints:
    found = np.array(values, dtype=np.int64)
    if comm.size > 1:
        from mpi4py import MPI

        comm.Allreduce(MPI.IN_PLACE, found, getattr(MPI, operation))
    return found


def add_exactly(comm: Any, values: Sequence[Fraction]) -> list[Fraction]:
    """Return the sums over the ranks of rational numbers, as many on each.  Collective."""
    return [sum(of_ranks, Fraction()) for of_ranks in zip(*comm.allgather(values), strict=True)]


def row_bytes(rows: Rows) -> int:
    """Return the bytes of one row."""
    return rows.dtype.itemsize * math.prod(rows.shape[1:])


@contextmanager
def row_type(rows: Rows) -> Iterator[Any]:
    """Give the MPI type of a row while it is needed; what is under way with it may end later."""
    from mpi4py import MPI

    of_row = MPI.BYTE.Create_contiguous(row_bytes(rows)).Commit()
    try:
        yield of_row
    finally:
        of_row.Free()


def exchange_rows(comm: Any, rows: Rows, send_counts: Ints, received: Rows, receive_counts: Ints, n_rows: int) -> None:
    """Send the first ``send_counts[0]`` rows to rank 0, the next to rank 1, …; receive likewise.  Collective.

    The arrays are C-contiguous, of one dtype and number of columns on all ranks. No rank sends or receives more than
    `n_rows`, which is the same on all ranks, and may be those of all together. Alltoallv passes over pairs of ranks
    that have nothing to exchange, in less time than messages for the other pairs would be posted in here: MPICH's and
    Open MPI's do.
    """
    if n_rows > _LARGEST_COUNT:
        most = max(int(send_counts.sum()), int(receive_counts.sum()))
        n_rows = int(largest_integers(comm, np.array([most]))[0])
    if n_rows > _LARGEST_COUNT:
        exchange_by_messages(comm, rows, send_counts, received, receive_counts)
        return
    with row_type(rows) as of_row:
        comm.Alltoallv([rows, send_counts, of_row], [received, receive_counts, of_row])


def exchange_by_messages(comm: Any, rows: Rows, send_counts: Ints, received: Rows, receive_counts: Ints) -> None:
    """Do the same with messages for each pair of ranks that has rows to exchange, as many as they are.  Collective."""
    requests = []
    with row_type(rows) as of_row:
        for method, buffer, counts in ((comm.Irecv, received, receive_counts), (comm.Isend, rows, send_counts)):
            starts = starts_of(counts)
            for rank in np.flatnonzero(counts).tolist():
                requests += post(method, buffer[starts[rank] : starts[rank] + counts[rank]], of_row, rank, _TAG)
    from mpi4py import MPI

    MPI.Request.Waitall(requests)


def post(method: Any, rows: Rows, of_row: Any, rank: int, tag: int) -> list[Any]:
    """Post the rows with `method`, a communicator's Isend or Irecv, and return the requests; none for no rows."""
    return [method([piece, len(piece), of_row], rank, tag) for piece in _pieces(rows)]


def _pieces(rows: Rows) -> Iterator[Rows]:
    for start in range(0, len(rows), _LARGEST_COUNT):
        yield rows[start : start + _LARGEST_COUNT]


def _lengths(comm: Any, rows: Rows) -> Ints:
    """Return the rows of each rank."""
    lengths = np.empty(comm.size, dtype=np.int64)
    comm.Allgather(np.array([len(rows)], dtype=np.int64), lengths)
    return lengths


def gather_rows(comm: Any, rows: Rows) -> Rows:
    """Return the rows of all ranks, of one dtype and number of columns, in rank order on every rank.  Collective."""
    if comm.size == 1:
        return rows
    counts = _lengths(comm, rows)
    whole, own = np.empty((int(counts.sum()), *rows.shape[1:]), rows.dtype), np.ascontiguousarray(rows)
    with row_type(rows) as of_row:
        if len(whole) <= _LARGEST_COUNT:
            comm.Allgatherv([own, len(own), of_row], [whole, (counts, starts_of(counts)), of_row])
            return whole
        for rank, part in enumerate(np.split(whole, np.cumsum(counts)[:-1])):
            if rank == comm.rank:
                part[...] = own
            for piece in _pieces(part):
                comm.Bcast([piece, len(piece), of_row], rank)
    return whole


def gather_known(comm: Any, values: Floats, counts: Ints) -> Floats:
    """Return the doubles of all ranks, of which each knows how many the others have.  Collective."""
    if comm.size == 1:
        return values
    from mpi4py import MPI

    received = np.empty(int(counts.sum()))
    comm.Allgatherv(values, [received, (counts, starts_of(counts)), MPI.DOUBLE])
    return received


def send_segments(comm: Any, rows: Rows, counts: Sequence[int] | Ints) -> list[Rows]:
    """Send the first ``counts[0]`` rows to rank 0, the next to rank 1, …; return what each rank sent here.  Collective.

    `rows` is a one-dimensional array, of one dtype on all ranks.
    """
    if comm.size == 1:
        return [rows]
    send_counts = np.asarray(counts, dtype=np.int64)
    told = np.column_stack([send_counts, np.full(comm.size, send_counts.sum())])
    heard = np.empty_like(told)
    comm.Alltoall(told, heard)
    receive_counts, of_ranks = heard.T.copy()
    received = np.empty(int(receive_counts.sum()), dtype=rows.dtype)
    exchange_rows(comm, np.ascontiguousarray(rows), send_counts, received, receive_counts, int(of_ranks.sum()))
    return np.split(received, np.cumsum(receive_counts)[:-1])


class Status(IntEnum):
    """How a rank stands when it hands in its workers' numbers; of all ranks the worst counts."""

    FINE = 0
    STOP = 1
    FAILED = 2


def sum_over_workers(comm: Any, values: Floats, n_workers: int, status: Status = Status.FINE) -> tuple[Floats, Status]:
    """Return the sum of the workers' rows, (p,), the same bits at any number of ranks, and the worst status.

    Collective. `values` (hosted workers, p) has a row for each worker that the rank hosts. A sum of the ranks' own sums
    would depend on the ranks. Few numbers are gathered and added in worker order. Many, which would flood the network,
    are rounded to a common grid of 2⁻⁶²·N times the power of two above the largest, and added as integers, whose order
    doesn't matter: an error below a unit in the last place of the largest, and p numbers to send.
    """
    if n_workers * values.shape[1] > _MOST_GATHERED:
        return _sum_on_grid(comm, values, n_workers, status)
    if comm.size == 1:
        return values.sum(axis=0), status
    from mpi4py import MPI

    message = _Message.of(n_workers, comm.size, values.shape[1])
    received = np.empty(n_workers * values.shape[1] + comm.size)
    comm.Allgatherv(message.pack(values, status), [received, (message.counts, message.starts), MPI.DOUBLE])
    rows, worst = message.unpack(received)
    return rows.sum(axis=0), worst


@dataclass(frozen=True)
class _Message:
    """Each rank's rows of p numbers, a worker each, with its status behind them: one collective call less a step."""

    p: int
    counts: Ints
    starts: Ints
    of_workers: Ints
    of_status: Ints

    @classmethod
    @functools.lru_cache(maxsize=4)
    def of(cls, n_workers: int, n_ranks: int, p: int) -> _Message:
        """Return how long the ranks' parts are, where they start, and what is where in them."""
        counts = np.diff(block_bounds(n_workers, n_ranks)) * p + 1
        last = np.cumsum(counts) - 1
        return cls(p, counts, starts_of(counts), np.delete(np.arange(counts.sum()), last), last)

    @staticmethod
    def pack(rows: Floats, status: Status) -> Floats:
        """Return this rank's part."""
        own = np.empty(rows.size + 1)
        own[:-1], own[-1] = rows.ravel(), status
        return own

    def unpack(self, received: Floats) -> tuple[Floats, Status]:
        """Return the rows of all workers, (n_workers, p), and the worst status."""
        return received.take(self.of_workers).reshape(-1, self.p), Status(int(received[self.of_status].max()))


def reduction_bytes(n_ranks: int, n_hosted: int, n_workers: int, p: int) -> int:
    """Return the bytes that a rank has to send at least for `sum_over_workers`."""
    if n_ranks == 1:
        return 0
    if n_workers * p > _MOST_GATHERED:
        return 8 * (p + 2)
    return 8 * (n_hosted * p + 1) * (n_ranks - 1)


def _sum_on_grid(comm: Any, values: Floats, n_workers: int, status: Status) -> tuple[Floats, Status]:
    own = float(np.abs(values).max(initial=0.0))
    extremes = np.array([np.inf if np.isnan(own) else own, status])
    if comm.size > 1:
        from mpi4py import MPI

        comm.Allreduce(MPI.IN_PLACE, extremes, MPI.MAX)
    largest, worst = float(extremes[0]), Status(int(extremes[1]))
    if not np.isfinite(largest):
        return np.full(values.shape[1], np.nan), worst
    # The sum of N numbers below 2^(62 - log2 N) fits in 63 bits.
    exponent = 62 - (n_workers - 1).bit_length() - int(np.frexp(largest)[1])
    total = add_integers(comm, np.rint(np.ldexp(values, exponent)).astype(np.int64).sum(axis=0))
    return np.ldexp(total.astype(np.float64), -exponent), worst


def gather_on_master(comm: Any, values: Floats) -> Floats:
    """Return the values of all ranks, in rank order, on rank 0; this rank's own elsewhere.  Collective."""
    if comm.size == 1:
        return values
    counts = _lengths(comm, values)
    n_values, is_master = int(counts.sum()), comm.rank == 0
    received = np.empty(n_values if is_master else 0, dtype=np.float64)
    if n_values <= _LARGEST_COUNT:
        from mpi4py import MPI

        comm.Gatherv(values, [received, (counts, starts_of(counts)), MPI.DOUBLE] if is_master else None)
    else:
        to_master = np.where(np.arange(comm.size) == 0, len(values), 0)
        exchange_rows(comm, values, to_master, received, counts if is_master else 0 * counts, n_values)
    return received if is_master else values
