"""Sums of k over the pairs of every two blocks of samples: one pass over all pairs, shared by the ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, islice, pairwise
from typing import Any

import numpy as np

from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import announced, attempt, in_portions
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.testing.blocks import Group, Layout

_ROWS, _COLUMNS = 128, 512  # a tile of 512 KiB stays in a core's cache
_WHOLE = 256  # a segment of so many points meets itself in one piece
_FEW = 6  # columns of a block that are quicker added as columns of all blocks than block by block
_PORTION = 1 << 31  # coordinates of pairs that a rank goes through before it waits for the others: a second or so


def block_sums(comm: Any, points: Points, layout: Layout, kernels: Sequence[Discrepancy]) -> Floats:
    """Return B of each kernel, B_st = Σ k(p, q) over points p of block s and q of block t, p ≠ q.  Collective.

    Two groups of segments at a time are one rank's, so that what they add up to, and hence every bit, is the same for
    every number of ranks. Overflow gives infinities or NaN.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    points : ndarray, shape (n + m, d)
        All points, in the order of `Layout.arranged`.
    layout : Layout
    kernels : sequence of K Discrepancies

    Returns
    -------
    ndarray, shape (K, S + 2, S + 2)
        Symmetric; after the S blocks come the rests of x and z (or of all samples), whose sums are 0 where there is
        none. Within a block, each pair counts in both orders.
    """
    groups = layout.groups
    n_segments = groups[-1].first + groups[-1].n_segments
    found = np.zeros((len(kernels), n_segments, n_segments))
    buffer = np.empty(_ROWS * _COLUMNS)

    def evaluated(portion: Iterator[tuple[Group, Group]]) -> None:
        for left, right in announced(portion):
            block = found[:, left.first : left.first + left.n_segments, right.first : right.first + right.n_segments]
            for kernel, out in zip(kernels, block, strict=True):
                _add_pairs(kernel, points, left, right, out, buffer)

    doing = f"evaluating the kernel {' and '.join(dict.fromkeys(kernel.name for kernel in kernels))}"
    portions = _portions(comm, groups, len(kernels) * max(points.shape[1], 8))
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in in_portions(comm, portions, evaluated, doing=doing):
            pass
        # Each entry is one rank's, and 0 elsewhere: as integers the bits of doubles add up to themselves.
        whole = add_integers(comm, found.view(np.int64)).view(np.float64) if comm.size > 1 else found
        return attempt(comm, lambda: _joined(whole, layout), doing, share=lambda _: None)[0]


def _portions(comm: Any, groups: Sequence[Group], per_pair: int) -> Iterator[Iterator[tuple[Group, Group]]]:
    """Yield this rank's share of every two groups, dealt out one by one, in portions, as many on every rank."""
    n_points, n_tasks = groups[-1].stop, len(groups) * (len(groups) + 1) // 2
    own = islice(combinations_with_replacement(groups, 2), comm.rank, None, comm.size)
    work = n_points * n_points // 2 * per_pair
    n_portions = max(1, min(work // (comm.size * _PORTION), n_tasks // comm.size))
    n_own = len(range(comm.rank, n_tasks, comm.size))
    for count in np.diff(block_bounds(n_own, n_portions)).tolist():
        yield islice(own, count)


def _add_pairs(kernel: Discrepancy, points: Points, left: Group, right: Group, out: Floats, buffer: Floats) -> None:
    """Add the sums over the pairs of the segments of two groups, or of one group, to `out`.

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
            tile = _filled(kernel, rows, rows, buffer)
            np.fill_diagonal(tile, 0.0)
            out[0, 0] += np.add.reduce(tile, axis=1).sum()
            times = 2.0
            columns = ((low, high, 0, 1) for low, high in _cuts(stop, right.stop, _COLUMNS))
        for low, high, first_column, n_columns in columns:
            tile = _filled(kernel, rows, points[low:high], buffer)
            if left is right and times == 1.0:
                np.fill_diagonal(tile[:, start - begin :], 0.0)
            block = out[first : first + count, first_column : first_column + n_columns]
            block += times * _reduced(tile, count, n_columns)


def _filled(kernel: Discrepancy, rows: Points, columns: Points, buffer: Floats) -> Floats:
    tile = buffer[: len(rows) * len(columns)].reshape(len(rows), len(columns))
    kernel.fill(rows, columns, tile)
    return tile


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


def _joined(sums: Floats, layout: Layout) -> Floats:
    """Return the sums on both sides of the diagonal, with the pieces of each rest added up."""
    sums = np.triu(sums) + np.triu(sums, 1).transpose(0, 2, 1)
    cuts = np.cumsum([sum(layout.n_blocks), *(len(bounds) - 1 for bounds in layout.pieces[:-1])])
    for axis in (1, 2):
        blocks, *rests = np.split(sums, cuts, axis=axis)
        sums = np.concatenate([blocks, *(each.sum(axis=axis, keepdims=True) for each in rests)], axis=axis)
    return sums
