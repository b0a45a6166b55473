"""Which rows go where: one rank's part in a partition, worked out without a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Ints, Labels, Rows

# What is dealt out by labels is exchanged in steps of so many bytes a rank, which are little beside all rows, and
# grouped by worker in chunks that fit into fast memory.
_STEP_BYTES = 1 << 24
_MOST_STEPS = 12  # whose buffers are a sixth of the rows, while ranks seldom wait for each other
_CHUNK_ROWS = 1 << 17
_CHUNK_BYTES = 1 << 20
_PIECE_ROWS = 1 << 8  # what a worker should get of a chunk, or finding its place takes longer than taking it
_FEW_ROWS = 1 << 12
_FEW_WORKERS = 16  # for which counting one after the other is faster
_FEWEST_WORKERS = 4  # for which finding the rows of one after the other is faster, too
_COUNTABLE = tuple(np.dtype(each) for each in "bBhHiIqQfd")  # what SciPy's sparse matrices hold as it is

SHORT_RUN = 1 << 7
"""So many rows are put in their places one by one sooner than a run of them begins."""


@dataclass(frozen=True)
class Moves:
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

    send_rows: Ints
    send_counts: Ints
    receive_counts: Ints
    placement: Ints


def moves_into(order: Ints, offsets: Ints, destinations: Ints, rank: int) -> Moves:
    """Derive one rank's part in bringing rows into `order`; pure.

    `order` has global row numbers, perhaps repeated. Rank r has the rows ``offsets[r]:offsets[r+1]``, and wants those
    of ``order[destinations[r]:destinations[r+1]]``.
    """
    first, last = offsets[rank : rank + 2].tolist()
    own = order[destinations[rank] : destinations[rank + 1]]
    # One unsigned comparison: rows below `first` wrap round to huge numbers.
    (leaving,) = ((order - first).view(np.uint64) < np.uint64(last - first)).nonzero()
    ends = np.searchsorted(leaving, destinations)
    sources = _ranks_of(own, offsets)
    arriving, receive_counts = by_worker(sources, len(offsets) - 1), tally(sources, len(offsets) - 1)
    starts = int(receive_counts[:rank].sum())
    # Rows of one source arrive in the order in which they are wanted.
    arriving = _without(arriving, starts, starts + int(receive_counts[rank]))
    placement = own - first
    placement[arriving] = np.arange(last - first, last - first + len(arriving))
    send_counts = np.diff(ends)
    send_counts[rank] = receive_counts[rank] = 0
    return Moves(order[_without(leaving, *ends[rank : rank + 2])] - first, send_counts, receive_counts, placement)


def _ranks_of(rows: Ints, offsets: Ints) -> Labels:
    """Return the rank that has each row."""
    n_ranks = len(offsets) - 1
    if n_ranks > _FEW_WORKERS:
        return (np.searchsorted(offsets, rows, side="right") - 1).astype(np.min_scalar_type(n_ranks))
    ranks = np.zeros(len(rows), dtype=np.uint8)
    for offset in offsets[1:-1].tolist():
        ranks += rows >= offset
    return ranks


def _without(items: Ints, start: int, stop: int) -> Ints:
    return np.concatenate([items[:start], items[stop:]])


def overlaps(bounds: Ints, first: int, last: int) -> Ints:
    """Return how many of the rows first … last-1 each run has, of those that lie between the bounds."""
    return np.diff(bounds.clip(first, last))


def steps_and_chunks(longest: int, bytes_of_row: int, n_workers: int) -> tuple[int, int]:
    """Return in how many steps to exchange shards of at most so many rows, and the number of chunks in a step."""
    n_steps = max(min(-(-longest * bytes_of_row // _STEP_BYTES), _MOST_STEPS), 1)
    in_chunk = max(min(_CHUNK_ROWS, _CHUNK_BYTES // max(bytes_of_row, 1)), _PIECE_ROWS * n_workers)
    return n_steps, max(-(-longest // (n_steps * max(in_chunk, 1))), 1)


def tally(labels: Labels, n_workers: int) -> Ints:
    """Return the number of rows of each worker."""
    if n_workers > _FEW_WORKERS:
        return np.bincount(labels, minlength=n_workers)
    return np.array([np.count_nonzero(labels == i) for i in range(n_workers)])  # a byte a row, where bincount needs 8


def by_worker(labels: Labels, n_workers: int) -> Ints:
    """Return the places of all rows, worker after worker, in order for each: a stable argsort of the labels."""
    if n_workers <= _FEWEST_WORKERS:
        return np.concatenate([np.flatnonzero(labels == i) for i in range(n_workers)])
    if _are_counted(labels):
        return _counted(np.zeros(len(labels), dtype=np.int8), labels, n_workers)[1].astype(np.int64)
    return np.argsort(labels, kind="stable")  # a byte by radix, in one pass


def grouped(rows: Rows, labels: Labels, n_workers: int) -> tuple[Rows, Ints | None]:
    """Return the rows worker after worker, in order for each, and None; or copies of them as they are, and that order.

    What is cheaper: single numbers of many workers are put in order while the order is found.
    """
    if _are_counted(labels) and rows.ndim == 1 and rows.dtype in _COUNTABLE:
        return _counted(rows, labels, n_workers)[0], None
    return rows.copy(), by_worker(labels, n_workers)  # read once in order, to be taken from fast memory


def _are_counted(labels: Labels) -> bool:
    return labels.dtype.itemsize > 1 and len(labels) >= _FEW_ROWS


def _counted(numbers: Rows, labels: Labels, n_workers: int) -> tuple[Rows, NDArray[np.signedinteger[Any]]]:
    """Return numbers, and their places, in the order of their labels, which is found in one pass by counting.

    SciPy does so when it puts a sparse matrix in the order of its rows: number i is in column i, in the row of its
    label.
    """
    from scipy import sparse  # takes long to import, and few exchanges need it

    integer = np.int32 if max(len(labels), n_workers) < np.iinfo(np.int32).max else np.int64
    columns = np.arange(len(labels) + 1, dtype=integer)
    by_column = sparse.csc_array((numbers, labels.astype(integer), columns), shape=(n_workers, len(labels)))
    by_row = by_column.tocsr()
    return by_row.data, by_row.indices


def take_runs(rows: Rows, order: Ints | None, some: slice, counts: Ints, out: Rows, places: Ints) -> None:
    """Put some rows, in this order if there is one, in their places: consecutive runs of so many."""
    if order is None:
        copy_runs(rows[some], counts, out, places)
        return
    order, (counts, places) = order[some], _joined(counts, places)
    if len(order) < SHORT_RUN * len(counts):
        copy_runs(rows.take(order, axis=0, mode="clip"), counts, out, places)
        return
    start = 0
    for count, place in zip(counts.tolist(), places.tolist(), strict=True):
        rows.take(order[start : start + count], axis=0, out=out[place : place + count], mode="clip")
        start += count


def copy_runs(rows: Rows, counts: Ints, blocks: Rows, places: Ints) -> None:
    """Copy consecutive runs of rows to their places in the blocks."""
    counts, places = _joined(counts, places)
    if len(rows) < SHORT_RUN * len(counts):
        starts = np.cumsum(counts) - counts
        at_once = max(_CHUNK_ROWS * len(counts) // max(len(rows), 1), 1)
        for i in range(0, len(counts), at_once):
            some = slice(i, i + at_once)
            begin, end = int(starts[i]), int(starts[some][-1] + counts[some][-1])
            blocks[np.repeat(places[some] - starts[some], counts[some]) + np.arange(begin, end)] = rows[begin:end]
        return
    start = 0
    for count, place in zip(counts.tolist(), places.tolist(), strict=True):
        blocks[place : place + count] = rows[start : start + count]
        start += count


def _joined(counts: Ints, places: Ints) -> tuple[Ints, Ints]:
    """Return the runs with those that lie side by side at their places as one."""
    first = np.flatnonzero(np.append(True, places[1:] != (places + counts)[:-1])[: len(counts)])
    return (counts, places) if len(first) == len(counts) else (np.add.reduceat(counts, first), places[first])


def count_moved(labels: Labels, home: Ints, first_row: int) -> int:
    """Count the rows first_row, first_row + 1, … whose label is not their home worker."""
    stays = 0
    last_row = first_row + len(labels)
    start = int(np.searchsorted(home, first_row, side="right")) - 1
    stop = int(np.searchsorted(home, last_row, side="left"))
    if (stop - start) * _FEW_ROWS > len(labels):  # workers of few rows each are compared all at once
        sizes: Ints = np.diff(home[start : stop + 1].clip(first_row, last_row))
        return int(np.count_nonzero(labels != np.repeat(np.arange(start, stop, dtype=labels.dtype), sizes)))
    for i in range(start, stop):
        own = labels[max(int(home[i]) - first_row, 0) : int(home[i + 1]) - first_row]
        stays += int(np.count_nonzero(own == i))
    return len(labels) - stays
