"""Sums, gathers and sends of arrays, with results that don't depend on the number of ranks. All are collective."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.parallel.partition import block_bounds

Indices = NDArray[np.int64]
Rows = NDArray[Any]

_MOST_GATHERED = 8192  # numbers that every rank may gather at every step of a descent


def starts_of(counts: Indices) -> Indices:
    """Return where each of consecutive runs of these lengths starts."""
    return np.cumsum(counts) - counts


def add_integers(comm: Any, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum over the ranks of int64 arrays of one shape, which must not overflow.  Collective."""
    total = np.array(values, dtype=np.int64)
    if comm.size > 1:
        from mpi4py import MPI

        comm.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
    return total


def gather_rows(comm: Any, rows: Rows) -> Rows:
    """Return the rows of all ranks in rank order, on every rank.  Collective.

    All ranks pass the same dtype and number of columns.
    """
    if comm.size == 1:
        return rows
    from mpi4py import MPI

    counts = np.array(comm.allgather(len(rows)), dtype=np.int64)
    whole = np.empty((int(counts.sum()), *rows.shape[1:]), rows.dtype)
    row_type = MPI.BYTE.Create_contiguous(rows.dtype.itemsize * int(np.prod(rows.shape[1:]))).Commit()
    try:
        own = np.ascontiguousarray(rows)
        comm.Allgatherv([own, len(own), row_type], [whole, (counts, starts_of(counts)), row_type])
    finally:
        row_type.Free()
    return whole


def send_segments(comm: Any, rows: Rows, counts: Sequence[int] | Indices) -> list[Rows]:
    """Send the first ``counts[0]`` rows to rank 0, the next to rank 1, …; return what each rank sent here.  Collective.

    `rows` is a one-dimensional array of doubles.
    """
    if comm.size == 1:
        return [rows]
    from mpi4py import MPI

    send_counts = np.asarray(counts, dtype=np.int64)
    receive_counts = np.empty(comm.size, dtype=np.int64)
    comm.Alltoall(send_counts, receive_counts)
    received = np.empty(int(receive_counts.sum()), dtype=np.float64)
    comm.Alltoallv(
        [np.ascontiguousarray(rows), (send_counts, starts_of(send_counts)), MPI.DOUBLE],
        [received, (receive_counts, starts_of(receive_counts)), MPI.DOUBLE],
    )
    return np.split(received, np.cumsum(receive_counts)[:-1])


def sum_over_workers(
    comm: Any, values: NDArray[np.float64], n_workers: int, signal: float
) -> tuple[NDArray[np.float64], float]:
    """Return the sum of the workers' rows, (p,), the same bits at any number of ranks, and the largest signal.

    Collective. `values` (hosted workers, p) has a row for each worker that the rank hosts. A sum of the ranks' own sums
    would depend on the ranks. Few numbers are gathered and added in worker order. Many, which would flood the network,
    are rounded to a common grid of 2⁻⁶²·N times the power of two above the largest, and added as integers, whose order
    doesn't matter: an error below a unit in the last place of the largest, and p numbers to send.
    """
    if n_workers * values.shape[1] > _MOST_GATHERED:
        return _sum_on_grid(comm, values, n_workers, signal)
    if comm.size == 1:
        return values.sum(axis=0), signal
    from mpi4py import MPI

    p = values.shape[1]
    counts, starts, of_workers, of_signals = _gathered_layout(n_workers, comm.size, p)
    own, received = np.empty(values.size + 1), np.empty(n_workers * p + comm.size)
    own[:-1], own[-1] = values.ravel(), signal
    comm.Allgatherv(own, [received, (counts, starts), MPI.DOUBLE])
    rows = np.take(received, of_workers).reshape(n_workers, p)
    return rows.sum(axis=0), float(received[of_signals].max())


@functools.lru_cache(maxsize=4)
def _gathered_layout(n_workers: int, n_ranks: int, p: int) -> tuple[Indices, Indices, Indices, Indices]:
    """Return counts and starts of what each rank contributes, and where in it the workers' numbers and signals are."""
    counts = np.diff(block_bounds(n_workers, n_ranks)) * p + 1
    signals = np.cumsum(counts) - 1
    return counts, starts_of(counts), np.delete(np.arange(counts.sum()), signals), signals


def reduction_bytes(n_ranks: int, n_hosted: int, n_workers: int, p: int) -> int:
    """Return the bytes that a rank has to send at least for `sum_over_workers`."""
    if n_ranks == 1:
        return 0
    if n_workers * p > _MOST_GATHERED:
        return 8 * (p + 2)
    return 8 * (n_hosted * p + 1) * (n_ranks - 1)


def _sum_on_grid(
    comm: Any, values: NDArray[np.float64], n_workers: int, signal: float
) -> tuple[NDArray[np.float64], float]:
    own = float(np.abs(values).max(initial=0.0))
    extremes = np.array([np.inf if np.isnan(own) else own, signal])
    if comm.size > 1:
        from mpi4py import MPI

        comm.Allreduce(MPI.IN_PLACE, extremes, MPI.MAX)
    largest, worst = extremes.tolist()
    if not np.isfinite(largest):
        return np.full(values.shape[1], np.nan), worst
    # The sum of N numbers below 2^(62 - log2 N) fits in 63 bits.
    exponent = 62 - (n_workers - 1).bit_length() - int(np.frexp(largest)[1])
    total = np.rint(np.ldexp(values, exponent)).astype(np.int64).sum(axis=0)
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
    return np.ldexp(total.astype(np.float64), -exponent), worst


def gather_on_master(comm: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of all ranks, in rank order, on rank 0; this rank's own elsewhere.  Collective."""
    if comm.size == 1:
        return values
    from mpi4py import MPI

    counts = np.array(comm.gather(len(values)) or [0])
    received = np.empty(int(counts.sum()), dtype=np.float64)
    comm.Gatherv(values, [received, (counts, starts_of(counts)), MPI.DOUBLE] if comm.rank == 0 else None)
    return received if comm.rank == 0 else values
