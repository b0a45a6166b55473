"""Moving rows to the workers that a partition gives them to: plan, then one Alltoallv.

All ranks derive the same partition, so no index travels. Rows that stay on their rank are never packed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.parallel.collectives import starts_of
from mpi_ustat.parallel.partition import Blocks, Dealt, Indices, Labels, Ordered, block_bounds
from mpi_ustat.parallel.runtime import keep_freed_memory, together

Rows = NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """What one rank sends, receives and keeps.

    Attributes
    ----------
    send_rows : ndarray of int64
        Local rows to send, destination after destination.
    send_counts, receive_counts : ndarray of int64, shape (n_ranks,)
        Rows to and from each rank; 0 for the rank itself.
    placement : ndarray of int64
        For each row of this rank's blocks, its place in [own rows, received rows].
    """

    send_rows: Indices
    send_counts: Indices
    receive_counts: Indices
    placement: Indices


def plan(order: Indices, offsets: Indices, destinations: Indices, rank: int) -> Plan:
    """Derive one rank's part in bringing rows into `order`; pure.

    Parameters
    ----------
    order : ndarray of int64
        Global row numbers in the wanted order (repeats allowed).
    offsets : ndarray of int64, shape (n_ranks + 1,)
        Rank r has the global rows ``offsets[r]:offsets[r+1]``.
    destinations : ndarray of int64, shape (n_ranks + 1,)
        Rank r wants ``order[destinations[r]:destinations[r+1]]``.
    rank : int
        Whose part.
    """
    n_ranks = len(offsets) - 1
    first, last = int(offsets[rank]), int(offsets[rank + 1])
    sends: list[Indices] = []
    for r in range(n_ranks):
        wanted = order[destinations[r] : destinations[r + 1]]
        here = np.flatnonzero(_within(wanted, first, last)) if r != rank else wanted[:0]
        sends.append(np.take(wanted, here, mode="clip") - first)
    wanted = order[destinations[rank] : destinations[rank + 1]]
    placement = wanted - first
    receive_counts = np.zeros(n_ranks, dtype=np.int64)
    received = last - first
    for r in range(n_ranks):
        if r == rank or offsets[r] == offsets[r + 1]:
            continue
        # Rows of one source arrive in the order in which they are wanted.
        positions = np.flatnonzero(_within(wanted, int(offsets[r]), int(offsets[r + 1])))
        receive_counts[r] = len(positions)
        placement[positions] = np.arange(received, received + len(positions))
        received += len(positions)
    return Plan(np.concatenate(sends), np.array([len(rows) for rows in sends]), receive_counts, placement)


def _within(rows: Indices, first: int, last: int) -> NDArray[np.bool_]:
    # One unsigned comparison: rows below `first` wrap round to huge numbers.
    return (rows - first).view(np.uint64) < np.uint64(last - first)


class Exchange:
    """Brings the rows of one distributed sample to the workers of any partition of it, round after round.

    Every round starts from the rows as they were given, which are kept; buffers are kept too, because half the time of
    a large exchange would go into the page faults of fresh ones.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    rows : ndarray, shape (n_local,) or (n_local, d)
        This rank's rows; the global order is that of the ranks. All ranks pass the same number of dimensions, the same
        d and dtype.
    n_workers : int
        N; the workers are hosted in contiguous runs by the ranks.

    Attributes
    ----------
    rows : ndarray
        This rank's rows, as given.
    n_rows : int
        Rows on all ranks.
    first_row : int
        Global number of this rank's first row.
    bytes_sent : int
        Bytes this rank has sent to other ranks so far.
    rows_moved : int
        Rows seen by this rank, over all rounds so far, whose worker in the round is not their home: the worker that
        has them when the global order is cut into N equal runs. Summed over the ranks, these are the rows that move
        when every worker is a rank of its own.

    Notes
    -----
    Construction is collective, and so are `bring` and `blocks`.
    """

    def __init__(self, comm: Any, rows: Rows, n_workers: int) -> None:
        keep_freed_memory()
        shapes = comm.allgather((rows.shape[1:], rows.dtype.str, len(rows)))
        # An empty shard may not know how many columns the others have.
        kinds = {shape[:2] for shape in shapes if shape[2]} or {shapes[0][:2]}
        if len(kinds) > 1:
            raise UserError(f"the ranks hold rows of different kinds ({sorted(map(str, kinds))}): pass the same on all")
        shape, dtype = kinds.pop()
        self._comm = comm
        self.rows = np.ascontiguousarray(rows) if len(rows) else np.empty((0, *shape), dtype)
        self._offsets = np.concatenate([[0], np.cumsum([shape[2] for shape in shapes])]).astype(np.int64)
        self._hosts = block_bounds(n_workers, comm.size)
        self._home = block_bounds(self.n_rows, n_workers)
        self._workspace = self._received = self._packed = self._blocks = np.empty_like(self.rows[:0])
        self._partition: Blocks | None = None
        self._current: list[Rows] | None = None
        self._source: Rows = self.rows
        self._placement: Indices | None = None
        self._homes: tuple[Indices, Indices, NDArray[np.uint64]] | None = None
        self.bytes_sent = 0
        self.rows_moved = 0

    @property
    def n_rows(self) -> int:
        """Rows on all ranks together."""
        return int(self._offsets[-1])

    @property
    def first_row(self) -> int:
        """Global number of this rank's first row."""
        return int(self._offsets[self._comm.rank])

    @property
    def workers(self) -> range:
        """The workers hosted by this rank."""
        return range(int(self._hosts[self._comm.rank]), int(self._hosts[self._comm.rank + 1]))

    def blocks(self, partition: Blocks) -> list[Rows]:
        """Bring the rows of a partition here and return the blocks of this rank's workers, in order.  Collective.

        The arrays are views of a buffer that the next partition's overwrite.
        """
        self.bring(partition)
        return self.current

    def bring(self, partition: Blocks) -> None:
        """Move the rows to where a partition wants them; nothing moves for the same `Blocks` object again.  Collective.

        They are put in order when they are asked for: `current`, `current_rows`, `rows_at`.
        """
        if partition is self._partition:
            return
        self._partition, self._current = partition, None
        if isinstance(partition, Dealt):
            self._source, self._placement = self._deal(partition), None
        elif partition.order is None and np.array_equal(partition.bounds[self._hosts], self._offsets):
            self._source, self._placement = self.rows, None
        else:
            self._source, self._placement = self._reorder(partition)

    @property
    def current_rows(self) -> Rows:
        """The rows of this rank's workers in the current partition, block after block."""
        if self._placement is not None:
            self._blocks = _grown(self._blocks, len(self._placement), self.rows)
            ordered = self._blocks[: len(self._placement)]
            np.take(self._source, self._placement, axis=0, out=ordered, mode="clip")
            self._source, self._placement = ordered, None
        return self._source

    @property
    def current(self) -> list[Rows]:
        """The blocks of this rank's workers in the current partition, in worker order."""
        if self._current is None:
            rows, bounds = self.current_rows, self._bounds
            cuts = (bounds[self.workers.start : self.workers.stop + 1] - bounds[self.workers.start]).tolist()
            self._current = [rows[start:stop] for start, stop in pairwise(cuts)]
        return self._current

    def rows_at(self, places: Indices) -> Rows:
        """Return copies of the rows at these places of `current_rows`, without putting all rows in order."""
        if self._placement is not None:
            places = np.take(self._placement, places, mode="clip")
        return np.take(self._source, places, axis=0, mode="clip")

    @property
    def _bounds(self) -> Indices:
        return self._home if self._partition is None else self._partition.bounds

    def _reorder(self, partition: Ordered) -> tuple[Rows, Indices]:
        """Return the rows that are here now, and the places of this rank's blocks among them."""
        bounds = partition.bounds
        order = np.arange(self.n_rows) if partition.order is None else partition.order
        if partition.order is not None:
            first_at_home, at_home = self._homes_of_places(bounds)
            mine = order[bounds[self.workers.start] : bounds[self.workers.stop]]
            moved = (mine - first_at_home).view(np.uint64) >= at_home
            self.rows_moved += int(np.count_nonzero(moved))
        if self._comm.size == 1:
            return self.rows, order
        todo = plan(order, self._offsets, bounds[self._hosts], self._comm.rank)
        n_own, n_received = len(self.rows), int(todo.receive_counts.sum())
        if len(self._workspace) < n_own + n_received:
            self._workspace = _grown(self._workspace, n_own + n_received, self.rows)
            self._workspace[:n_own] = self.rows
        self._packed = _grown(self._packed, len(todo.send_rows), self.rows)
        packed = np.take(self.rows, todo.send_rows, axis=0, out=self._packed[: len(todo.send_rows)], mode="clip")
        self._alltoallv(packed, todo.send_counts, self._workspace[n_own:], todo.receive_counts)
        return self._workspace, todo.placement  # the received rows lie behind the rank's own

    def _homes_of_places(self, bounds: Indices) -> tuple[Indices, NDArray[np.uint64]]:
        """Return, for each place in this rank's blocks, the first row at its worker's home and the number of them."""
        known = self._homes
        if known is None or known[0] is not bounds:
            hosted = slice(self.workers.start, self.workers.stop)
            sizes = np.diff(bounds)[hosted]
            first, n_rows = self._home[:-1][hosted], np.diff(self._home)[hosted]
            known = self._homes = (bounds, np.repeat(first, sizes), np.repeat(n_rows, sizes).view(np.uint64))
        return known[1], known[2]

    def _deal(self, partition: Dealt) -> Rows:
        comm, hosts = self._comm, self._hosts
        labels = partition.workers_of(self.first_row, self.first_row + len(self.rows))
        self.rows_moved += _count_moved(labels, self._home, self.first_row)
        order = _grouped(labels)
        counts = np.bincount(labels, minlength=len(partition.bounds) - 1)
        starts = np.concatenate([[0], np.cumsum(counts)])
        pieces = self._share_counts(counts)  # rows from each rank (row) to each worker hosted here (column)
        away = starts[hosts]
        send_counts, receive_counts = np.diff(away), pieces.sum(axis=1)
        send_counts[comm.rank] = receive_counts[comm.rank] = 0
        stay_first, stay_last = int(away[comm.rank]), int(away[comm.rank + 1])
        n_sent, n_received = int(send_counts.sum()), int(receive_counts.sum())
        self._packed = _grown(self._packed, n_sent, self.rows)
        for part, rows in (
            (self._packed[:stay_first], order[:stay_first]),
            (self._packed[stay_first:n_sent], order[stay_last:]),
        ):
            np.take(self.rows, rows, axis=0, out=part, mode="clip")
        self._received = _grown(self._received, n_received, self.rows)
        received = self._received[:n_received]
        self._alltoallv(self._packed[:n_sent], send_counts, received, receive_counts)
        self._blocks = _grown(self._blocks, int(pieces.sum()), self.rows)
        source = np.zeros(comm.size, dtype=np.int64)
        source[:] = starts_of(receive_counts)
        place = 0
        for column, worker in enumerate(self.workers):
            for rank, n_rows in enumerate(pieces[:, column].tolist()):
                target = self._blocks[place : place + n_rows]
                if rank == comm.rank:
                    np.take(self.rows, order[starts[worker] : starts[worker + 1]], axis=0, out=target, mode="clip")
                else:
                    target[...] = received[source[rank] : source[rank] + n_rows]
                    source[rank] += n_rows
                place += n_rows
        return self._blocks[:place]

    def _share_counts(self, counts: Indices) -> Indices:
        if self._comm.size == 1:
            return counts[None, :]
        n_own = len(self.workers)
        received = np.empty((self._comm.size, n_own), dtype=np.int64)
        from mpi4py import MPI

        to_each = np.diff(self._hosts)
        self._comm.Alltoallv(
            [counts.astype(np.int64), (to_each, starts_of(to_each)), MPI.INT64_T],
            [received, (np.full(self._comm.size, n_own), np.arange(self._comm.size) * n_own), MPI.INT64_T],
        )
        return received

    def _alltoallv(self, packed: Rows, send_counts: Indices, received: Rows, receive_counts: Indices) -> None:
        if self._comm.size == 1:
            return
        from mpi4py import MPI

        # Counting in rows keeps counts below 2**31 for as long as can be.
        row_bytes = self.rows.dtype.itemsize * math.prod(self.rows.shape[1:])
        row_type = MPI.BYTE.Create_contiguous(row_bytes).Commit()
        try:
            self._comm.Alltoallv(
                [packed, (send_counts, starts_of(send_counts)), row_type],
                [received, (receive_counts, starts_of(receive_counts)), row_type],
            )
        finally:
            row_type.Free()
        self.bytes_sent += len(packed) * row_bytes


def _grouped(labels: Labels) -> Indices:
    """Return the positions of the labels, grouped by label in ascending order: `np.argsort(labels, kind="stable")`.

    Sorting words of (label, position) takes a half to a third of argsort's time.
    """
    bits = max(len(labels) - 1, 0).bit_length()
    word = np.dtype(np.uint32 if bits + 8 * labels.dtype.itemsize <= 32 else np.uint64).type
    words = labels.astype(word)
    words <<= word(bits)
    words |= np.arange(len(labels), dtype=word)
    words.sort()
    words &= word((1 << bits) - 1)
    return words.astype(np.int64)


def _count_moved(labels: Labels, home: Indices, first_row: int) -> int:
    """Count the rows first_row, first_row + 1, … whose label is not their home worker."""
    stays = 0
    last_row = first_row + len(labels)
    start = int(np.searchsorted(home, first_row, side="right")) - 1
    for i in range(start, len(home) - 1):
        if home[i] >= last_row:
            break
        own = labels[max(int(home[i]) - first_row, 0) : int(home[i + 1]) - first_row]
        stays += int(np.count_nonzero(own == i))
    return len(labels) - stays


def _roomy(needed: int) -> int:
    return needed + needed // 32  # numbers of rows to receive vary a little from round to round


def _grown(buffer: Rows, needed: int, like: Rows) -> Rows:
    return buffer if len(buffer) >= needed else np.empty((_roomy(needed), *like.shape[1:]), like.dtype)


def as_they_lie(
    comm: Any, samples: Mapping[str, Exchange], block_sizes: Sequence[Indices] | None, n_workers: int
) -> tuple[Ordered, ...]:
    """Return the partition that leaves every sample's rows where they are.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : dict of str to Exchange
        By the name that messages give them.
    block_sizes : sequence of int arrays, optional
        For each sample, the sizes of the blocks of this rank's workers; None: each rank's rows are one worker's.
    n_workers : int

    Raises
    ------
    UserError
        On every rank, if any rank's sizes don't fit its workers or rows.
    """
    if block_sizes is None:
        if comm.size != n_workers:
            raise UserError(
                f"as-is takes each rank's points for one worker's: use {comm.size} workers or pass block_sizes"
            )
        block_sizes = [np.array([len(sample.rows)]) for sample in samples.values()]
    with together(comm, "checking the block sizes"):
        for (name, sample), sizes in zip(samples.items(), block_sizes, strict=True):
            if len(sizes) != len(sample.workers) or np.min(sizes, initial=0) < 0:
                raise UserError(f"{name} needs one block size for each of {len(sample.workers)} workers here")
            if np.sum(sizes) != len(sample.rows):
                raise UserError(
                    f"the block sizes of {name} add up to {np.sum(sizes)} instead of {len(sample.rows)} points"
                )
    everyone = comm.allgather(list(block_sizes))
    of_all = (np.concatenate([rank[k] for rank in everyone]) for k in range(len(samples)))
    return tuple(Ordered(np.append(0, np.cumsum(each)).astype(np.int64), None) for each in of_all)
