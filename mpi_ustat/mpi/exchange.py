"""Moving rows to the workers that a partition gives them to: plan, then one Alltoallv; or whole blocks, in a ring.

All ranks derive the same partition, so no index travels. Rows that stay on their rank are never packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.collectives import exchange_rows, row_bytes, starts_of
from mpi_ustat.mpi.launch import keep_freed_memory
from mpi_ustat.mpi.moves import (
    copy_runs,
    count_moved,
    grouped,
    moves_into,
    overlaps,
    steps_and_chunks,
    take_runs,
    tally,
)
from mpi_ustat.mpi.ring import Ring
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.types import Ints, Rows
from mpi_ustat.schemes.partition import Blocks, Dealt, Ordered, Travelling, block_bounds, bounds_of
from mpi_ustat.wording import count_of


class Exchange:
    """Brings the rows of one distributed sample to the workers of any partition of it, round after round.

    Every round starts from the rows as they were given, which are kept; buffers are kept too, because half the time of
    a large exchange would go into the page faults of fresh ones. Only blocks that travel start from where they were in
    the round before, and may be on their way to the next while the caller computes: see `prefetch`.

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
        self.rows = self._kept(rows, shape, dtype)
        self._offsets = bounds_of([shape[2] for shape in shapes])
        self._hosts = block_bounds(n_workers, comm.size)
        self._home = block_bounds(self.n_rows, n_workers)
        self._workspace = self._received = self._packed = self._blocks = np.empty((0, *shape), dtype)
        self._partition: Blocks | None = None
        self._current: list[Rows] | None = None
        self._source: Rows | None = self.rows  # None: at the places where the ring has stored them
        self._placement: Ints | None = None
        self._homes: tuple[Ints, Ints, NDArray[np.uint64]] | None = None
        self._ring: tuple[Blocks, Ring] | None = None
        self.bytes_sent = 0
        self.rows_moved = 0

    @staticmethod
    def _kept(rows: Rows, shape: tuple[int, ...], dtype: str) -> Rows:
        """Return the rows as they are kept; an empty shard's are of the kind that the others have."""
        return np.ascontiguousarray(rows) if len(rows) else np.empty((0, *shape), dtype)

    @property
    def n_rows(self) -> int:
        """Rows on all ranks together."""
        return int(self._offsets[-1])

    @property
    def n_workers(self) -> int:
        """N."""
        return len(self._home) - 1

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

    def visiting_blocks(self, partition: Travelling) -> list[Rows]:
        """Return the blocks that visit this rank's workers, in order, while those of the base are at home.  Collective.

        The base is brought, if it isn't the current partition, and stays it. The arrays are views that the next
        visitors may overwrite.
        """
        self.bring(partition.base)
        ring = self._ring_of(partition.base)
        self._move(ring, partition.holding)
        return ring.blocks

    def prefetch(self, partition: Blocks) -> None:
        """Begin to move blocks to where the next `bring` or `visiting_blocks` will want them.  Collective.

        What is current, or visiting, stays valid until then. Nothing happens but for blocks that travel, and whose base
        is here.
        """
        if isinstance(partition, Travelling) and (
            partition.base is self._partition or (self._ring is not None and self._ring[0] is partition.base)
        ):
            self._ring_of(partition.base).start(partition.holding)

    def bring(self, partition: Blocks) -> None:
        """Move the rows to where a partition wants them; nothing moves for the same `Blocks` object again.  Collective.

        They are put in order when they are asked for: `current`, `put_in_order`.
        """
        if partition is self._partition:
            return
        if isinstance(partition, Travelling):
            self._move(self._ring_of(partition.base), partition.holding)
            self._partition, self._current = partition, None
            self._source = self._placement = None
            return
        if self._ring is not None:
            self._move(self._ring[1])
            self._ring = None
        self._partition, self._current = partition, None
        if isinstance(partition, Dealt):
            self._source, self._placement = self._deal(partition), None
        elif partition.order is None and np.array_equal(partition.bounds[self._hosts], self._offsets):
            self._source, self._placement = self.rows, None
        elif partition.order is None:
            self._source, self._placement = self._shift(partition.bounds[self._hosts]), None
        else:
            self._source, self._placement = self._reorder(partition.bounds, partition.order)

    def put_in_order(self) -> Rows:
        """Bring the rows of this rank's workers into the order of the current partition, once, and return them."""
        source = self._located()
        if self._placement is None:
            return source
        n_rows = len(self._placement)
        if isinstance(self._partition, Travelling):  # the ring may have its blocks where others are put in order
            self._received = _grown(self._received, n_rows, self.rows)
            ordered = self._received[:n_rows]
        else:
            self._blocks = _grown(self._blocks, n_rows, self.rows)
            ordered = self._blocks[:n_rows]
        source.take(self._placement, axis=0, out=ordered, mode="clip")
        self._source, self._placement = ordered, None
        return ordered

    @property
    def current(self) -> list[Rows]:
        """The blocks of this rank's workers in the current partition, in worker order."""
        if self._current is None and self._source is None and self._ring is not None:
            self._current = self._ring[1].blocks
        if self._current is None:
            rows, bounds = self.put_in_order(), self._home if self._partition is None else self._partition.bounds
            cuts = (bounds[self.workers.start : self.workers.stop + 1] - bounds[self.workers.start]).tolist()
            self._current = [rows[start:stop] for start, stop in pairwise(cuts)]
        return self._current

    def rows_at(self, places: Ints) -> Rows:
        """Return copies of the rows at these places of the current partition, without putting all in order."""
        source = self._located()
        if self._placement is not None:
            places = self._placement.take(places, mode="clip")
        return source.take(places, axis=0, mode="clip")

    def _ring_of(self, base: Ordered | Dealt) -> Ring:
        """Return the ring in which the blocks of `base` travel, which starts where `base` brings them."""
        if self._ring is None or self._ring[0] is not base:
            self.bring(base)
            self._ring = base, Ring(self._comm, self.put_in_order(), base.bounds)
        return self._ring[1]

    def _move(self, ring: Ring, holding: Ints | None = None) -> None:
        """Finish what is under way, and go on to `holding`; count what is moved."""
        bytes_before, rows_before = ring.bytes_sent, ring.rows_moved
        if holding is not None:
            ring.start(holding)
        ring.finish()
        self.bytes_sent += ring.bytes_sent - bytes_before
        self.rows_moved += ring.rows_moved - rows_before

    def _located(self) -> Rows:
        """Return where the rows are, of which the ring may hold them."""
        if self._source is None:
            assert self._ring is not None
            self._source, self._placement = self._ring[1].stored
        return self._source

    def _shift(self, wanted: Ints) -> Rows:
        """Return the rows of this rank's blocks, which are a run of the global order, as those of every rank are."""
        rank, (first, last) = self._comm.rank, wanted[self._comm.rank : self._comm.rank + 2].tolist()
        send_counts = overlaps(wanted, self.first_row, self.first_row + len(self.rows))
        self._blocks = _grown(self._blocks, last - first, self.rows)
        blocks, longest = self._blocks[: last - first], int(max(np.diff(self._offsets).max(), np.diff(wanted).max()))
        receive_counts = overlaps(self._offsets, first, last)
        exchange_rows(self._comm, self.rows, send_counts, blocks, receive_counts, longest)
        self.bytes_sent += (len(self.rows) - int(send_counts[rank])) * row_bytes(self.rows)
        return blocks

    def _reorder(self, bounds: Ints, order: Ints) -> tuple[Rows, Ints]:
        """Return the rows that are here now, and the places of this rank's blocks among them."""
        first_at_home, at_home = self._homes_of_places(bounds)
        mine = order[bounds[self.workers.start] : bounds[self.workers.stop]]
        self.rows_moved += int(np.count_nonzero((mine - first_at_home).view(np.uint64) >= at_home))
        if self._comm.size == 1:
            return self.rows, order
        todo = moves_into(order, self._offsets, bounds[self._hosts], self._comm.rank)
        n_own, n_received = len(self.rows), int(todo.receive_counts.sum())
        if len(self._workspace) < n_own + n_received:
            self._workspace = _grown(self._workspace, n_own + n_received, self.rows)
            self._workspace[:n_own] = self.rows
        self._packed = _grown(self._packed, len(todo.send_rows), self.rows)
        packed = self.rows.take(todo.send_rows, axis=0, out=self._packed[: len(todo.send_rows)], mode="clip")
        self._exchange(packed, todo.send_counts, self._workspace[n_own:], todo.receive_counts, int(bounds[-1]))
        return self._workspace, todo.placement  # the received rows lie behind the rank's own

    def _homes_of_places(self, bounds: Ints) -> tuple[Ints, NDArray[np.uint64]]:
        """Return, for each place in this rank's blocks, the first row at its worker's home and the number of them."""
        known = self._homes
        if known is None or known[0] is not bounds:
            hosted = slice(self.workers.start, self.workers.stop)
            sizes = np.diff(bounds)[hosted]
            first, n_rows = self._home[:-1][hosted], np.diff(self._home)[hosted]
            known = self._homes = (bounds, np.repeat(first, sizes), np.repeat(n_rows, sizes).view(np.uint64))
        return known[1], known[2]

    def _deal(self, partition: Dealt) -> Rows:
        """Return the rows of this rank's blocks, which are filled step by step with a part of every rank's rows."""
        comm, own, n_workers = self._comm, slice(self.workers.start, self.workers.stop), len(partition.bounds) - 1
        labels = partition.workers_of(self.first_row, self.first_row + len(self.rows))
        self.rows_moved += count_moved(labels, self._home, self.first_row)
        longest = int(np.diff(self._offsets).max())
        n_steps, n_chunks = steps_and_chunks(longest, row_bytes(self.rows), n_workers)
        at_most = max(longest, int(np.diff(partition.bounds[self._hosts]).max()))
        chunks = list(pairwise(block_bounds(len(labels), n_steps * n_chunks).tolist()))
        counts = np.stack([tally(labels[first:last], n_workers) for first, last in chunks])
        # A block has the rows of rank after rank, chunk after chunk.
        pieces = self._share_counts(counts)  # (ranks, chunks, workers hosted here)
        places = starts_of(pieces.transpose(2, 0, 1).ravel()).reshape(len(self.workers), comm.size, len(chunks))
        n_rows, places = int(pieces.sum()), places.transpose(1, 2, 0)
        # Where of each chunk, grouped by worker, the rows of one rank's workers end and those of the next begin.
        cuts = np.insert(np.cumsum(counts, axis=1), 0, 0, axis=1)[:, self._hosts]
        others = np.arange(comm.size) != comm.rank
        sent, arriving = np.diff(cuts, axis=1) * others, pieces.sum(axis=2).T * others
        send_counts, receive_counts = (each.reshape(n_steps, n_chunks, -1).sum(axis=1) for each in (sent, arriving))
        # Behind the blocks there is room for what leaves in a step.
        self._blocks = _grown(self._blocks, n_rows + int(send_counts.sum(axis=1).max()), self.rows)
        self._received = _grown(self._received, int(receive_counts.sum(axis=1).max()), self.rows)
        for step in range(n_steps):
            some = range(step * n_chunks, (step + 1) * n_chunks)
            packed = self._blocks[n_rows : n_rows + int(send_counts[step].sum())]
            # To each rank, its rows of chunk after chunk.
            starts = starts_of(sent[some].T.ravel()).reshape(comm.size, n_chunks)
            for chunk in some:
                first, last = chunks[chunk]
                rows, order = grouped(self.rows[first:last], labels[first:last], n_workers)
                start, stop = cuts[chunk, comm.rank : comm.rank + 2].tolist()
                take_runs(rows, order, slice(start, stop), counts[chunk, own], self._blocks, places[comm.rank, chunk])
                below, above = (slice(start), slice(comm.rank)), (slice(stop, None), slice(comm.rank + 1, None))
                for of_others, to in below, above:
                    take_runs(rows, order, of_others, sent[chunk, to], packed, starts[to, chunk - some.start])
            received = self._received[: int(receive_counts[step].sum())]
            self._exchange(packed, send_counts[step], received, receive_counts[step], at_most)
            arrived = np.flatnonzero(others)[:, None], np.array(some)
            copy_runs(received, pieces[arrived].ravel(), self._blocks, places[arrived].ravel())
        return self._blocks[:n_rows]

    def _share_counts(self, counts: Ints) -> Ints:
        """Tell every rank how many rows of each chunk its workers get from here; return what the others say.

        Collective. `counts` has shape (chunks, workers), the result (ranks, chunks, workers hosted here).
        """
        if self._comm.size == 1:
            return counts[None]
        size, n_chunks, n_own = self._comm.size, len(counts), len(self.workers)
        hosted = np.diff(self._hosts)
        # As many to each rank, which a library may pass on in log P messages instead of P.
        most = int(hosted.max())
        told, heard = (np.zeros((size, most, n_chunks), dtype=np.int64) for _ in range(2))
        told[np.arange(most) < hosted[:, None]] = counts.T
        self._comm.Alltoall(told, heard)
        return heard[:, :n_own].transpose(0, 2, 1)

    def _exchange(self, packed: Rows, send_counts: Ints, received: Rows, receive_counts: Ints, n_rows: int) -> None:
        """Send what is packed to the other ranks, and count it."""
        if self._comm.size > 1:
            exchange_rows(self._comm, packed, send_counts, received, receive_counts, n_rows)
            self.bytes_sent += packed.nbytes


def _grown(buffer: Rows, needed: int, like: Rows) -> Rows:
    roomy = needed + needed // 32  # numbers of rows to receive vary a little from round to round
    return buffer if len(buffer) >= needed else np.empty((roomy, *like.shape[1:]), like.dtype)


def as_they_lie(
    comm: Any, samples: Mapping[str, Exchange], block_sizes: Sequence[Ints] | None, n_workers: int
) -> tuple[Ordered, ...]:
    """Return the partition that leaves every sample's rows where they are.  Collective.

    The samples go by the names that messages give them. `block_sizes` are, for each sample, the sizes of the blocks of
    this rank's workers, or refused on all ranks if they don't fit; None: each rank's rows are one worker's.
    """
    if block_sizes is None:
        if comm.size != n_workers:
            raise UserError(
                f"taken as they lie, each rank's points are one worker's: use {count_of(comm.size, 'worker')} or pass "
                "block_sizes"
            )
        block_sizes = [np.array([len(sample.rows)]) for sample in samples.values()]
    with together(comm, "checking the block sizes"):
        if len(block_sizes) != len(samples):
            given = count_of(len(block_sizes), "sample")
            raise UserError(f"block sizes are given for {given}, not for {len(samples)}")
        for (name, sample), sizes in zip(samples.items(), block_sizes, strict=True):
            if len(sizes) != len(sample.workers) or np.min(sizes, initial=0) < 0:
                workers = count_of(len(sample.workers), "worker")
                raise UserError(f"{name} needs one block size for each of the {workers} here")
            if np.sum(sizes) != len(sample.rows):
                raise UserError(
                    f"the block sizes of {name} add up to {np.sum(sizes)} instead of "
                    + count_of(len(sample.rows), "point")
                )
    everyone = comm.allgather(list(block_sizes))
    of_all = (np.concatenate([rank[k] for rank in everyone]) for k in range(len(samples)))
    return tuple(Ordered(bounds_of(each), None) for each in of_all)
