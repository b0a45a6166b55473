"""How two samples lie over workers on a ring, of which only some meet: an exact test for a part of the price.

Each of N workers holds blocks of both samples; blocks exchange their labels with those of the same worker. In every
round each worker meets the one that is so many places further on the ring, another number each round. A statistic that
is made of what has met has the same pairs under all these labellings, and is as exchangeable as the blocks: its test is
exact for every choice of who meets whom that does not look at the points (`mpi_ustat.testing.met`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import block_bounds, bounds_of
from mpi_ustat.testing.blocks import LEAST_RELABELLINGS, MOST_BLOCKS, NO_PIECES, Group, Layout, shared_out

MOST_WORKERS = 1024
"""So that there are no more than `MOST_BLOCKS` blocks."""

_LEAST_WORKERS, _MOST_WORKERS_UNASKED = 33, 129
_POINTS_OF_A_WORKER = 64  # of the smaller sample; with fewer, calls cost more than pairs
_LEAST_OF_SMALLER = 64  # blocks, where there are as many points
_MOST_UNASKED = 512
_TOGETHER = 4096  # points of workers that are met together


@dataclass(frozen=True)
class Ring(Layout):
    """Two samples over N workers: the blocks of worker 0, x's before z's, of worker 1, …, and then pieces of the rests.

    What is not in blocks keeps its label, and is with the last workers. Segments are numbered in this order.

    Attributes
    ----------
    n_workers : int
        N.
    offsets : tuple of int
        By how many places those who meet are apart, in each round; from 1 to (N-1)/2, none twice.
    """

    n_workers: int
    offsets: tuple[int, ...]

    @cached_property
    def held(self) -> Ints:
        """Blocks of x and of z at each worker, shape (2, N)."""
        return np.array([np.diff(block_bounds(count, self.n_workers)) for count in self.n_blocks])

    @property
    def n_relabellings(self) -> int:
        """In how many ways each worker can call as many of its blocks x's as it has of x."""
        return math.prod(math.comb(x + z, x) for x, z in self.held.T.tolist())

    @property
    def pieces(self) -> tuple[Ints, ...]:
        """Bounds of the pieces of each rest, one of a worker."""
        counts = [min(self.n_workers, -(-rest // self.block_size)) for rest in self.rests]
        return tuple(
            block_bounds(rest, count) if rest else NO_PIECES for rest, count in zip(self.rests, counts, strict=True)
        )

    @cached_property
    def worker_of(self) -> Ints:
        """The worker of each segment."""
        workers = np.arange(self.n_workers)
        return np.concatenate(
            [
                np.repeat(workers, self.held.sum(axis=0)),
                *(workers[len(workers) - len(each) + 1 :] for each in self.pieces),
            ]
        )

    @cached_property
    def points_of(self) -> Ints:
        """The points of each segment."""
        return np.concatenate([np.full(sum(self.n_blocks), self.block_size), *map(np.diff, self.pieces)])

    @cached_property
    def sample_of(self) -> Ints:
        """The sample that each segment is of, 0 or 1."""
        blocks = np.repeat(np.tile([0, 1], self.n_workers), self.held.T.ravel())
        return np.concatenate([blocks, *(np.full(len(each) - 1, k) for k, each in enumerate(self.pieces))])

    @property
    def points_at(self) -> Floats:
        """Points of x and of z at each worker, shape (2, N)."""
        place = self.worker_of + self.n_workers * self.sample_of
        return np.asarray(np.bincount(place, self.points_of, 2 * self.n_workers).reshape(2, -1), dtype=np.float64)

    @cached_property
    def _groups_at(self) -> list[list[Group]]:
        """The segments of each worker."""
        bounds, starts = bounds_of(self.held.sum(axis=0)).tolist(), bounds_of(self.points_of).tolist()
        found = [
            [Group(first, first * self.block_size, self.block_size, last - first)]
            for first, last in itertools.pairwise(bounds)
        ]
        for segment in range(bounds[-1], len(self.worker_of)):
            found[self.worker_of[segment]].append(Group(segment, starts[segment], int(self.points_of[segment]), 1))
        return found

    def meetings(self) -> Iterator[tuple[Group, tuple[Group, ...]]]:
        """Yield the groups of each worker with those that it meets: blocks of several workers together."""
        together = max(1, _TOGETHER * self.n_workers // sum(self.sizes))
        for i, own in enumerate(self._groups_at):
            others = [self._groups_at[(i + offset) % self.n_workers] for offset in self.offsets]
            for left in own:
                for start in range(0, len(others), together):
                    yield left, tuple(groups[0] for groups in others[start : start + together])
                yield from ((left, (piece,)) for groups in others for piece in groups[1:])

    @cached_property
    def n_meetings(self) -> int:
        """How many of them there are."""
        return sum(1 for _ in self.meetings())

    @property
    def n_pairs(self) -> int:
        """Pairs of points that are evaluated."""
        counts = self.points_at.sum(axis=0).astype(np.int64)
        return sum(int(counts @ np.roll(counts, -offset)) for offset in self.offsets)

    @property
    def met(self) -> Floats:
        """Which workers have met, 1 or 0, shape (N, N)."""
        found, own = np.zeros((self.n_workers, self.n_workers)), np.arange(self.n_workers)
        for offset in self.offsets:
            other = np.roll(own, -offset)
            found[own, other] = found[other, own] = 1.0
        return found

    def joined(self, sums: Floats) -> Floats:
        """Return sums over pairs of segments as they are: the pieces of a rest are with several workers."""
        return sums

    def arranged(self, samples: Sequence[Points], streams: Streams) -> Points:
        """Return the points of both samples, (n + m, d), in the order of segments; each sample is spread uniformly."""
        found, sample_of_row = (
            np.empty((sum(self.sizes), samples[0].shape[1])),
            np.repeat(self.sample_of, self.points_of),
        )
        for k, points in enumerate(samples):
            found[sample_of_row == k] = points[streams.open(f"blocks of sample {k}").permutation(len(points))]
        return found


def lay_ring(n: int, m: int, n_rounds: int, n_workers: int | None = None) -> Ring:
    """Return how two samples, of n and m points, lie over workers that meet in so many rounds.

    Parameters
    ----------
    n, m : int
    n_rounds : int
        T, up to (N-1)/2, with which all workers have met (of an even N, all but those who are opposite).
    n_workers : int, optional
        N; by default from 33 to 129, so that each has 64 points of the smaller sample, but not more than this has
        points; odd. A worker has one block of the smaller sample, of few workers several, so that there are 64 of
        them; and as many of the larger one as its size gives, up to 512 blocks in all.

    Raises
    ------
    UserError
        If there are fewer points than workers, too many rounds, or too few labellings for a test.
    """
    small = min(n, m)
    if n_workers is None:
        n_workers = min(small, max(_LEAST_WORKERS, min(_MOST_WORKERS_UNASKED, small // _POINTS_OF_A_WORKER)))
        n_workers -= n_workers % 2 == 0
    elif n_workers > small:
        raise UserError(
            f"{n_workers} workers can't each have a point of both samples, of which the smaller has {small}: use at "
            f"most {min(small, MOST_WORKERS)} (n_workers=)"
        )
    elif not 3 <= n_workers <= MOST_WORKERS:
        raise UserError(
            f"a test by rounds is of 3 to {MOST_WORKERS} workers, not {n_workers}: use other n_workers=, or no rounds"
        )
    most = (n_workers - 1) // 2
    if not 1 <= n_rounds <= most:
        raise UserError(
            f"{n_workers} workers can meet in 1 to {most} rounds, not {n_rounds}: use other rounds (n_rounds=), more "
            "workers (n_workers=), or no rounds to take all pairs"
        )
    wanted = n_workers * -(-_LEAST_OF_SMALLER // n_workers)
    size = max(1, small // wanted)
    blocks = shared_out((n, m), size, min(MOST_BLOCKS, max(_MOST_UNASKED, 4 * n_workers)))
    found = Ring((n, m), size, blocks, n_workers, offsets(n_workers, n_rounds))
    alike = bool(np.array_equal(*found.held))  # then T is the same where all labels are exchanged
    if (ways := found.n_relabellings // (1 + alike)) < LEAST_RELABELLINGS:
        raise UserError(
            f"blocks of {n_workers} workers can be relabelled in {ways} ways only, and p is {1 / ways:.2g} at least: "
            f"use more {'points' if n_workers == small else 'workers (n_workers=)'}"
        )
    return found


def offsets(n_workers: int, n_rounds: int) -> tuple[int, ...]:
    """Return T different numbers from 1 to (N-1)/2 whose sums and differences, modulo N, are about as many as can be.

    A sum of degenerate terms over the pairs (i, i + o) is nearer to the normal law the fewer rings of four are among
    these pairs (o₁ + o₂ = o₃ + o₄ modulo N, up to signs, beyond what any offsets give): its upper quantiles are then
    lowest. Consecutive offsets have the most. Each here is the lowest that adds fewest of them to those before it.
    """
    half = (n_workers - 1) // 2
    both = np.zeros(n_workers)  # 1 at the offsets, in both directions
    found: list[int] = []
    for _ in range(n_rounds):
        transform = np.fft.rfft(both)
        threes = np.rint(np.fft.irfft(transform**3, n_workers))[1 : half + 1]  # in how many ways of three offsets
        threes[[each - 1 for each in found]] = np.inf
        found.append(int(np.argmin(threes)) + 1)
        both[[found[-1], -found[-1]]] = 1.0
    return tuple(found)
