"""Sums of k over the pairs of every two blocks of samples: one pass over all pairs, shared by the ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np

from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import announced, succeed
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import block_bounds, bounds_of
from mpi_ustat.testing.blocks import Group, Layout

_ROWS, _COLUMNS = 128, 512  # a tile of 512 KiB stays in a core's cache
_WHOLE = 256  # a segment of so many points meets itself in one piece
_FEW = 6  # columns of a block that are quicker added as columns of all blocks than block by block
_PORTION = 1 << 31  # coordinates of pairs that a rank goes through before it waits for the others: a second or so


def block_sums(comm: Any, points: Points, layout: Layout, kernels: Sequence[Discrepancy]) -> Floats:
    """Return B of each kernel, B_st = Σ k(p, q) over points p of block s and q of block t, p ≠ q.  Collective.

    Two groups of segments at a time are one rank's, so that what they add up to, and hence every bit, is the same for
    every number of ranks. Blocks that don't meet have the sum 0. Overflow gives infinities or NaN.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    points : ndarray, shape (n + m, d)
        All points, in the order of `Layout.arranged`.
    layout : Layout or Ring
        Its `meetings` are the groups of segments that meet.
    kernels : sequence of K Discrepancies
        Of one class.

    Returns
    -------
    ndarray, shape (K, S + 2, S + 2)
        Symmetric; after the S blocks come the rests of x and z (or of all samples), whose sums are 0 where there is
        none; of a `Ring` the pieces of the rests. Within a block, each pair counts in both orders.
    """
    n_segments = layout.n_segments
    found = np.zeros((len(kernels), n_segments, n_segments))
    buffers = np.empty((2, _ROWS * _COLUMNS))

    def evaluated(portion: Iterator[tuple[Group, tuple[Group, ...]]]) -> None:
        for left, others in announced(portion):
            if len(others) > 1:
                _add_gathered(kernels, points, left, others, found, buffers)
                continue
            left, right = sorted((left, *others))
            out = found[:, left.first : left.first + left.n_segments, right.first : right.first + right.n_segments]
            _add_pairs(kernels, points, points, left, right, out, buffers)

    doing = f"evaluating the kernel {' and '.join(dict.fromkeys(kernel.name for kernel in kernels))}"
    portions = _portions(comm, layout, layout.n_pairs * len(kernels) * max(points.shape[1], 8))
    with np.errstate(over="ignore", invalid="ignore"):
        for portion in portions:
            succeed(comm, functools.partial(evaluated, portion), doing, of_data=True)
        # Each entry is one rank's, and 0 elsewhere: as integers the bits of doubles add up to themselves.
        whole = add_integers(comm, found.view(np.int64)).view(np.float64) if comm.size > 1 else found
        return succeed(comm, lambda: layout.joined(_symmetric(whole)), doing)


def _portions(comm: Any, layout: Layout, work: int) -> Iterator[Iterator[tuple[Group, tuple[Group, ...]]]]:
    """Yield this rank's share of the groups that meet, dealt out one by one, in portions, as many on every rank."""
    own = islice(layout.meetings(), comm.rank, None, comm.size)
    n_portions = max(1, min(work // (comm.size * _PORTION), layout.n_meetings // comm.size))
    for count in np.diff(block_bounds(len(range(comm.rank, layout.n_meetings, comm.size)), n_portions)).tolist():
        yield islice(own, count)


def _add_gathered(
    kernels: Sequence[Discrepancy], points: Points, left: Group, others: Sequence[Group], found: Floats, buffers: Floats
) -> None:
    """Add the sums of one group with several others of one size, whose points are brought together: in fewer calls."""
    gathered = np.concatenate([points[each.start : each.stop] for each in others])
    bounds = bounds_of([each.n_segments for each in others]).tolist()
    out = np.zeros((len(kernels), left.n_segments, bounds[-1]))
    _add_pairs(kernels, points, gathered, left, Group(0, 0, others[0].size, bounds[-1]), out, buffers)
    own = slice(left.first, left.first + left.n_segments)
    for each, (start, stop) in zip(others, pairwise(bounds), strict=True):
        place, sums = slice(each.first, each.first + each.n_segments), out[:, :, start:stop]
        if left.first < each.first:
            found[:, own, place] += sums
        else:
            found[:, place, own] += sums.transpose(0, 2, 1)


def _add_pairs(
    kernels: Sequence[Discrepancy],
    points: Points,
    others: Points,
    left: Group,
    right: Group,
    out: Floats,
    buffers: Floats,
) -> None:
    """Add the sums over the pairs of the segments of two groups, or of one group, to `out`, one for each kernel.

    The points of `right` are in `others`.

    Of one group the sums below the diagonal are not all there, and to be left out.
    """
    for start, stop, first, count in _tiles(left, _ROWS):
        rows = points[start:stop]
        begin, times = right.start, 1.0
        columns = _tiles(right, _COLUMNS)
        if left is right and right.size <= _WHOLE:  # from the rows' own segment on
            begin = right.start + first * right.size
            columns = iter([(begin, right.stop, first, right.n_segments - first)])
        elif left is right:
            for of_kernel, tile in zip(out, _filled(kernels, rows, rows, buffers), strict=True):
                np.fill_diagonal(tile, 0.0)
                of_kernel[0, 0] += np.add.reduce(tile, axis=1).sum()
            times = 2.0
            columns = ((low, high, 0, 1) for low, high in _cuts(stop, right.stop, _COLUMNS))
        for low, high, first_column, n_columns in columns:
            for of_kernel, tile in zip(out, _filled(kernels, rows, others[low:high], buffers), strict=True):
                if left is right and times == 1.0:
                    np.fill_diagonal(tile[:, start - begin :], 0.0)
                block = of_kernel[first : first + count, first_column : first_column + n_columns]
                block += times * _reduced(tile, count, n_columns)


def _filled(kernels: Sequence[Discrepancy], rows: Points, columns: Points, buffers: Floats) -> Iterator[Floats]:
    """Yield k of all pairs, kernel by kernel, in the same memory."""
    tile, spare = buffers[:, : len(rows) * len(columns)].reshape(2, len(rows), len(columns))
    return type(kernels[0]).fill_each(kernels, rows, columns, tile, spare)


def _reduced(tile: Floats, n_rows: int, n_columns: int) -> Floats | float:
    """Return the sums of the blocks of a tile that is so many blocks high and wide."""
    height, width = len(tile) // n_rows, tile.shape[1] // n_columns
    if n_rows == n_columns == 1:
        return float(np.add.reduce(tile, axis=1).sum())
    if height > 1:  # rows first: adding them needs no call for each block
        tile = np.add.reduce(tile.reshape(n_rows, height, -1), axis=1)
    if width > _FEW:
        return np.asarray(np.add.reduceat(tile, np.arange(0, tile.shape[1], width), axis=1))
    return functools.reduce(np.add, [tile[:, j::width] for j in range(width)])


def _tiles(group: Group, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the points, from and to, of up to so many of a group, with the segments they are or lie in."""
    if group.size <= most:
        together = most // group.size
        for first in range(0, group.n_segments, together):
            count = min(together, group.n_segments - first)
            yield group.start + first * group.size, group.start + (first + count) * group.size, first, count
        return
    for segment in range(group.n_segments):
        start = group.start + segment * group.size
        for low, high in _cuts(start, start + group.size, most):
            yield low, high, segment, 1


def _cuts(start: int, stop: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of parts of about equal lengths, none longer than `most`."""
    bounds = (start + block_bounds(stop - start, max(1, -(-(stop - start) // most)))).tolist()
    for low, high in pairwise(bounds):
        if low < high:
            yield low, high


def _symmetric(sums: Floats) -> Floats:
    """Return the sums on both sides of the diagonal."""
    return np.asarray(np.triu(sums) + np.triu(sums, 1).transpose(0, 2, 1))
