"""How two samples lie over equal blocks whose labels a test exchanges.

Where both samples are of one law, blocks of equally many of their points are exchangeable, whatever the law and the
statistic. Points beyond the blocks make up one rest of each sample, which keeps its label: given the rests, the blocks
are exchangeable all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints
from mpi_ustat.schemes.partition import block_bounds

MOST_BLOCKS = 4096
"""The sums over all pairs of blocks are one matrix, on every rank."""

LEAST_RELABELLINGS = 20
"""With fewer p is never 5 % or less."""

_BLOCKS_OF_SMALLER = 128  # beyond as many, finer blocks add hardly any power
_LEAST_OF_SMALLER = 16
_MOST_UNASKED = 512
_MOST_PIECES, _POINTS_OF_A_PIECE = 256, 512
_TOGETHER = 512  # points of small segments that are evaluated together


class Group(NamedTuple):
    """Consecutive segments of equally many points, that are evaluated together.

    Attributes
    ----------
    first : int
        Number of the first segment.
    start : int
        Number of its first point, in the order of `Layout.arranged`.
    size : int
        Points of each segment.
    n_segments : int
    """

    first: int
    start: int
    size: int
    n_segments: int

    @property
    def stop(self) -> int:
        """Number of the point after the last."""
        return self.start + self.size * self.n_segments


@dataclass(frozen=True)
class Layout:
    """Two samples over equal blocks: first those of x, then those of z, the rest of x and the rest of z.

    Attributes
    ----------
    sizes : (int, int)
        Points of the samples, n and m.
    block_size : int
        b.
    n_blocks : (int, int)
        Blocks of each sample, s_x and s_z.
    """

    sizes: tuple[int, int]
    block_size: int
    n_blocks: tuple[int, int]

    @property
    def rests(self) -> tuple[int, int]:
        """Points of each sample that are in none of the blocks."""
        n, m = (size - self.block_size * k for size, k in zip(self.sizes, self.n_blocks, strict=True))
        return n, m

    @property
    def n_relabellings(self) -> int:
        """In how many ways s_x of all blocks can be called blocks of x."""
        return math.comb(sum(self.n_blocks), self.n_blocks[0])

    @property
    def pieces(self) -> tuple[Ints, Ints]:
        """Bounds of the pieces that each rest is cut into: a rest may be most of a sample, and no rank's alone."""
        length = max(self.block_size, _POINTS_OF_A_PIECE)
        x, z = (block_bounds(rest, min(_MOST_PIECES, -(-rest // length))) if rest else _NONE for rest in self.rests)
        return x, z

    @property
    def groups(self) -> list[Group]:
        """All segments, which are the blocks and then the pieces of the rests: small blocks several together."""
        b, n_blocks = self.block_size, sum(self.n_blocks)
        together = max(1, _TOGETHER // b)
        found = [Group(first, first * b, b, min(together, n_blocks - first)) for first in range(0, n_blocks, together)]
        segment, start = n_blocks, n_blocks * b
        for bounds in self.pieces:
            for piece in np.diff(bounds).tolist():
                found.append(Group(segment, start, piece, 1))
                segment, start = segment + 1, start + piece
        return found

    def arranged(self, x: Points, z: Points, streams: Streams) -> Points:
        """Return the points of both samples, (n + m, d), in the order of blocks and rests.

        Each sample is spread uniformly, as by prop-swor: no order in which points came has a part in their blocks.
        """
        found, start = np.empty((sum(self.sizes), x.shape[1]), dtype=x.dtype), 0
        spread = [streams.open(f"blocks of sample {k}").permutation(size) for k, size in enumerate(self.sizes)]
        cuts = [self.block_size * k for k in self.n_blocks]
        for rest in (False, True):
            for points, order, cut in zip((x, z), spread, cuts, strict=True):
                some = order[cut:] if rest else order[:cut]
                points.take(some, axis=0, out=found[start : start + len(some)], mode="clip")
                start += len(some)
        return found


_NONE = np.zeros(1, dtype=np.int64)


def lay_out(n: int, m: int, n_blocks: int | None = None) -> Layout:
    """Return how samples of n and m points lie over blocks.

    Parameters
    ----------
    n, m : int
        At least 1.
    n_blocks : int, optional
        How many there are to be of both samples together, about; by default 128 to 255 of the smaller sample, and as
        many of the larger one as their size gives, up to 512 in all. The smaller sample gets 16 at least, if it has as
        many points and there are to be twice as many; what then is too much of the larger one is rest.

    Raises
    ------
    UserError
        If there are fewer points than blocks, or too few blocks for a test.
    """
    small = min(n, m)
    if n_blocks is None:
        wanted, size = _MOST_UNASKED, max(1, small // _BLOCKS_OF_SMALLER)
    else:
        if n_blocks > n + m:
            raise UserError(
                f"{n_blocks} blocks can't each have one of {n + m} points: use at most {n + m} workers (n_workers=)"
            )
        if not 2 <= n_blocks <= MOST_BLOCKS:
            raise UserError(
                f"a test relabels from 2 to {MOST_BLOCKS} blocks of both samples, not {n_blocks}: use other n_workers="
            )
        least = min(_LEAST_OF_SMALLER, n_blocks // 2)
        wanted, size = n_blocks, max(1, min(round((n + m) / n_blocks), small // least))
        while n // size + m // size > MOST_BLOCKS and size < small // least:
            size += 1
    of_smaller = small // size
    most = max(wanted - of_smaller, of_smaller)
    x, z = (min(points // size, of_smaller if points == small else most) for points in (n, m))
    found = Layout((n, m), size, (x, z))
    if (ways := found.n_relabellings) < LEAST_RELABELLINGS:
        more = "more points" if size == 1 else "more blocks (n_workers=)"
        raise UserError(
            f"{x} block(s) of x and {z} of z can be relabelled in {ways} ways only, and p is {1 / ways:.2g} at least: "
            f"use {more}"
        )
    return found
