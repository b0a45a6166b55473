"""Moving whole blocks of rows from worker to worker, while the ranks compute."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import post, row_type, starts_of
from mpi_ustat.numerics.types import Ints, Rows
from mpi_ustat.schemes.partition import block_bounds

_TAG = 1948  # tells messages between two ranks from others; those of one move arrive in the order of their blocks


class Ring:
    """N blocks of rows, one at each worker, that change places: any permutation of them, of which a shift is one.

    Only blocks that change ranks are sent, each in one message straight from where it lies to where it will lie. They
    go and come while the caller computes: `start` posts them, `finish` waits for them.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    rows : ndarray, shape (n_local,) or (n_local, d)
        The blocks of this rank's workers, one after the other: worker i has block i. They are not copied before blocks
        leave the rank; till then `blocks` and `stored` are views of them.
    bounds : ndarray of int64, shape (N + 1,)
        Block sizes, on all ranks, are their differences.

    Attributes
    ----------
    holding : ndarray of int64, shape (N,)
        Worker i has block ``holding[i]``.
    bytes_sent : int
        Bytes this rank has sent to other ranks in the moves that are finished.
    rows_moved : int
        Rows that have changed worker, counted by the rank that hosts the worker they came to.

    Notes
    -----
    `start` and `finish` are collective. All ranks start the same moves in the same order.
    """

    def __init__(self, comm: Any, rows: Rows, bounds: Ints) -> None:
        self._comm = comm
        n_workers = len(bounds) - 1
        self._hosts = block_bounds(n_workers, comm.size)
        self._mine = slice(int(self._hosts[comm.rank]), int(self._hosts[comm.rank + 1]))
        self._sizes = np.diff(bounds)
        self.holding: Ints = np.arange(n_workers)
        self.bytes_sent = self.rows_moved = 0
        # Where this rank's blocks are in `_rows`, and where there is room for others.
        self._rows = rows
        self._starts: Ints = bounds[self._mine] - bounds[self._mine.start]
        self._free: list[int] = []
        self._requests: list[Any] = []
        self._next: tuple[Ints, Ints, int] | None = None
        # Memory must outlive what is under way, also when an error ends the caller.
        weakref.finalize(self, _wait, self._requests)

    def start(self, holding: Ints) -> None:
        """Begin to move the blocks so that worker i gets block ``holding[i]``.  Collective.

        A move that is under way is finished first, unless it is this one. The present `blocks` stay what they are, and
        must not be written to, until `finish`.
        """
        if self._next is not None:
            if np.array_equal(self._next[0], holding):
                return
            self.finish()
        if np.array_equal(self.holding, holding):
            return
        comm, mine = self._comm, self._mine
        carriers, future = _inverse(self.holding), _inverse(holding)  # the worker that has each block
        wanted, given = holding[mine], self.holding[mine]
        sources, targets = (
            np.searchsorted(self._hosts, workers, side="right") - 1 for workers in (carriers[wanted], future[given])
        )
        arriving = np.flatnonzero(sources != comm.rank)
        leaving = np.flatnonzero(targets != comm.rank)
        if len(arriving) > len(self._free):
            self._make_room(len(arriving))
        starts = np.empty_like(self._starts)
        stays = sources == comm.rank
        starts[stays] = self._starts[carriers[wanted[stays]] - mine.start]
        starts[arriving] = [self._free.pop() for _ in range(len(arriving))]
        sent = 0
        if len(arriving) or len(leaving):
            sent = self._post(
                [(int(wanted[i]), int(sources[i]), int(starts[i])) for i in arriving],
                [(int(given[i]), int(targets[i]), int(self._starts[i])) for i in leaving],
            )
        self._free += self._starts[leaving].tolist()  # for the move after this one
        self._next = holding.copy(), starts, sent

    def finish(self) -> None:
        """Wait for the move that was started, if any; then `blocks` are the new ones, and the old may be overwritten.

        Collective.
        """
        if self._next is None:
            return
        _wait(self._requests)
        holding, self._starts, sent = self._next
        moved = holding[self._mine] != self.holding[self._mine]
        self.rows_moved += int(self._sizes[holding[self._mine]][moved].sum())
        self.bytes_sent += sent
        self.holding, self._next = holding, None

    @property
    def sizes(self) -> Ints:
        """Rows in each block of this rank's workers."""
        return self._sizes[self.holding[self._mine]]

    @property
    def blocks(self) -> list[Rows]:
        """The blocks of this rank's workers, in worker order; views, which may be written to when nothing moves."""
        starts = self._starts.tolist()
        return [self._rows[start : start + n] for start, n in zip(starts, self.sizes.tolist(), strict=True)]

    @property
    def stored(self) -> tuple[Rows, Ints | None]:
        """Rows, and the places among them of all rows of `blocks`, block after block; None where they are all rows."""
        starts, sizes = self._starts, self.sizes
        if len(starts) == 1:
            return self._rows[starts[0] : starts[0] + sizes[0]], None
        return self._rows, np.repeat(starts - starts_of(sizes), sizes) + np.arange(sizes.sum())

    def _make_room(self, arriving: int) -> None:
        """Copy the blocks into memory that has room for so many more."""
        longest, blocks = int(self._sizes.max()), self.blocks
        starts = np.arange(len(blocks) + arriving) * longest
        rows = np.empty((len(starts) * longest, *self._rows.shape[1:]), self._rows.dtype)
        for start, block in zip(starts.tolist(), blocks, strict=False):
            rows[start : start + len(block)] = block
        self._rows, self._starts = rows, starts[: len(blocks)]
        self._free = starts[len(blocks) :].tolist()

    def _post(self, receives: list[tuple[int, int, int]], sends: list[tuple[int, int, int]]) -> int:
        """Post messages of (block, other rank, first row), in the order of the blocks on either side; return bytes."""
        sent = 0
        with row_type(self._rows) as of_row:
            for method, messages in ((self._comm.Irecv, receives), (self._comm.Isend, sends)):
                for block, rank, start in sorted(messages):
                    rows = self._rows[start : start + int(self._sizes[block])]
                    self._requests += post(method, rows, of_row, rank, _TAG)
                    sent += rows.nbytes if messages is sends else 0
        return sent


def _inverse(holding: Ints) -> Ints:
    inverse = np.empty_like(holding)
    inverse[holding] = np.arange(len(holding))
    return inverse


def _wait(requests: list[Any]) -> None:
    if requests:
        from mpi4py import MPI

        if not MPI.Is_finalized():
            MPI.Request.Waitall(requests)
        requests.clear()
