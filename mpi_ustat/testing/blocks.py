"""How samples lie over equal blocks whose labels a test exchanges.

Where all samples are of one law, blocks of equally many of their points are exchangeable, whatever the law and the
statistic. Points beyond the blocks make up one rest of each sample, which keeps its label: given the rests, the blocks
are exchangeable all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.wording import count_of

MOST_BLOCKS = 4096
"""The sums over all pairs of blocks are one matrix, on every rank."""

MOST_SAMPLES = 128
"""With up to 31 blocks of the smallest there are no more than `MOST_BLOCKS`."""

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
    """Samples over equal blocks: first those of x, then those of z, the rest of x and the rest of z; or of K samples.

    Attributes
    ----------
    sizes : tuple of int
        Points of the samples, n and m.
    block_size : int
        b.
    n_blocks : tuple of int
        Blocks of each sample, s_x and s_z.
    """

    sizes: tuple[int, ...]
    block_size: int
    n_blocks: tuple[int, ...]

    @property
    def rests(self) -> tuple[int, ...]:
        """Points of each sample that are in none of the blocks."""
        return tuple(size - self.block_size * k for size, k in zip(self.sizes, self.n_blocks, strict=True))

    @property
    def n_relabellings(self) -> int:
        """In how many ways as many of all blocks as each sample has can be called its blocks."""
        return math.prod(math.comb(upto, k) for upto, k in zip(accumulate(self.n_blocks), self.n_blocks, strict=True))

    @property
    def pieces(self) -> tuple[Ints, ...]:
        """Bounds of the pieces that each rest is cut into: a rest may be most of a sample, and no rank's alone."""
        length = max(self.block_size, _POINTS_OF_A_PIECE)
        return tuple(
            block_bounds(rest, min(_MOST_PIECES, -(-rest // length))) if rest else NO_PIECES for rest in self.rests
        )

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

    @property
    def n_segments(self) -> int:
        """Blocks and pieces of rests."""
        return sum(self.n_blocks) + sum(len(bounds) - 1 for bounds in self.pieces)

    def meetings(self) -> Iterator[tuple[Group, tuple[Group, ...]]]:
        """Yield each group with another, or itself, or several of segments of one size: what is evaluated."""
        return ((left, (right,)) for left, right in combinations_with_replacement(self.groups, 2))

    @property
    def n_meetings(self) -> int:
        """How many of them there are."""
        return math.comb(len(self.groups) + 1, 2)

    @property
    def n_pairs(self) -> int:
        """Pairs of points that are evaluated, about."""
        return sum(self.sizes) ** 2 // 2

    def joined(self, sums: Floats) -> Floats:
        """Return sums over pairs of segments, (K, segments, segments), with the pieces of each rest added up."""
        cuts = np.cumsum([sum(self.n_blocks), *(len(bounds) - 1 for bounds in self.pieces[:-1])])
        for axis in (1, 2):
            blocks, *rests = np.split(sums, cuts, axis=axis)
            sums = np.concatenate([blocks, *(each.sum(axis=axis, keepdims=True) for each in rests)], axis=axis)
        return sums

    def place(self, k: int) -> Ints:
        """Return which rows of sums over pairs of blocks are sample k's: those of its blocks, and of its rest."""
        first = sum(self.n_blocks[:k])
        return np.append(np.arange(first, first + self.n_blocks[k]), sum(self.n_blocks) + k)

    def arranged(self, samples: Sequence[Points], streams: Streams) -> Points:
        """Return the points of all samples, (n + m, d), in the order of blocks and rests.

        Each sample is spread uniformly, as by prop-swor: no order in which points came has a part in their blocks.
        """
        found, start = np.empty((sum(self.sizes), samples[0].shape[1]), dtype=samples[0].dtype), 0
        spread = [streams.open(f"blocks of sample {k}").permutation(size) for k, size in enumerate(self.sizes)]
        cuts = [self.block_size * k for k in self.n_blocks]
        for rest in (False, True):
            for points, order, cut in zip(samples, spread, cuts, strict=True):
                some = order[cut:] if rest else order[:cut]
                points.take(some, axis=0, out=found[start : start + len(some)], mode="clip")
                start += len(some)
        return found


NO_PIECES = np.zeros(1, dtype=np.int64)


def lay_out(n: int, m: int, n_blocks: int | None = None) -> Layout:
    """Return how two samples, of n and m points, lie over blocks: see `lay_out_all`."""
    return lay_out_all((n, m), n_blocks)


def lay_out_all(sizes: Sequence[int], n_blocks: int | None = None) -> Layout:
    """Return how K samples of one point or more lie over blocks.

    Parameters
    ----------
    sizes : sequence of int
    n_blocks : int, optional
        How many there are to be of all samples together, about; by default of two samples 128 to 255 of the smaller
        one, and as many of the larger one as their size gives, up to 512 in all; of K samples 256/K to 512/K of the
        smallest, but 16. The smallest sample gets 16 at least, if it has as many points and there are to be K times as
        many; what then is too much of larger ones is rest.

    Raises
    ------
    UserError
        If there are fewer points than blocks, or too few blocks for a test.
    """
    small, n_points, n_samples = min(sizes), sum(sizes), len(sizes)
    if not 2 <= n_samples <= MOST_SAMPLES:
        raise UserError(f"a test is of 2 to {MOST_SAMPLES} samples, not {n_samples}: give fewer, or put some together")
    whom = "both" if n_samples == 2 else "all"
    if n_blocks is None:
        least = max(_LEAST_OF_SMALLER, 2 * _BLOCKS_OF_SMALLER // n_samples)
        wanted, size = _MOST_UNASKED, max(1, small // least)
    else:
        if n_blocks > n_points:
            raise UserError(
                f"{n_blocks} blocks can't each have one of {n_points} points: use at most {n_points} workers "
                "(n_workers=)"
            )
        if not n_samples <= n_blocks <= MOST_BLOCKS:
            raise UserError(
                f"a test relabels from {n_samples} to {MOST_BLOCKS} blocks of {whom} samples, not {n_blocks}: use "
                "other n_workers="
            )
        least = min(_LEAST_OF_SMALLER, n_blocks // n_samples)
        wanted, size = n_blocks, max(1, min(round(n_points / n_blocks), small // least))
        while sum(points // size for points in sizes) > MOST_BLOCKS and size < small // least:
            size += 1
    found = Layout(tuple(sizes), size, shared_out(sizes, size, wanted))
    if (ways := found.n_relabellings) < LEAST_RELABELLINGS:
        more = "more points" if size == 1 else "more blocks (n_workers=)"
        x, *others = found.n_blocks
        of_whom = (
            f"{count_of(x, 'block')} of x and {others[0]} of z"
            if n_samples == 2
            else f"{', '.join(map(str, found.n_blocks))} blocks"
        )
        raise UserError(
            f"{of_whom} can be relabelled in {count_of(ways, 'way')} only, and p is {1 / ways:.2g} at least: use {more}"
        )
    return found


def shared_out(sizes: Sequence[int], block_size: int, wanted: int) -> tuple[int, ...]:
    """Return how many blocks each sample has: the smallest all it can, the others as many at least, and what is left.

    Small samples leave more to the larger ones.
    """
    of_smallest = min(sizes) // block_size
    found, left = [0] * len(sizes), wanted
    for i, k in enumerate(sorted(range(len(sizes)), key=lambda k: sizes[k])):
        most = max(left // (len(sizes) - i), of_smallest)
        found[k] = min(sizes[k] // block_size, most)
        left -= found[k]
    return tuple(found)
