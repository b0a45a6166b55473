"""Who holds which rows in which round: pure functions of (scheme, sizes, number of workers, random streams)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.arrangement import arrange
from mpi_ustat.numerics.rng import Stream, Streams
from mpi_ustat.numerics.types import Ints, Labels
from mpi_ustat.schemes.countmatrix import count_matrix
from mpi_ustat.schemes.counttree import walk
from mpi_ustat.wording import count_of

if TYPE_CHECKING:
    from mpi_ustat.schemes.scheme import Scheme


DRAWS = 3
"""Which way partitions are drawn: another number when a seed gives others; a checkpoint goes on with its own."""

_MATRIX_ROWS = 1 << 17
_ROWS_PER_DRAW = 64  # rows that take as long to shuffle as an entry of the count matrix to draw
_WHOLE_MATRIX = 1 << 13  # entries of a count matrix that is drawn whole, in fewer steps than a tree
_WHOLE_ROWS = 10**9  # from which NumPy refuses hypergeometric draws, for want of precision
_BOTTOM_ROWS = 1 << 19


def block_bounds(total: int, parts: int) -> Ints:
    """Return the bounds (length ``parts + 1``) that cut ``total`` items into runs whose lengths differ by at most one.

    The first ``total % parts`` runs are the longer ones; run i is ``bounds[i]:bounds[i+1]``.
    """
    quotient, remainder = divmod(total, parts)
    i = np.arange(parts + 1)
    return i * quotient + np.minimum(i, remainder)


def bounds_of(sizes: Sequence[int] | Ints) -> Ints:
    """Return the bounds (one more than there are sizes) of consecutive runs of these sizes."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64, copy=False)


@dataclass(frozen=True, eq=False)
class Ordered:
    """How one sample lies over the workers in one round, said by the order of all its rows.

    Attributes
    ----------
    bounds : ndarray of int64, shape (N + 1,)
    order : ndarray of int64 or None
        Row numbers in the sample's global order: worker i's block is ``order[bounds[i]:bounds[i+1]]``, in that order.
        None: the rows as they lie.
    """

    bounds: Ints
    order: Ints | None


@dataclass(frozen=True, eq=False)
class Dealt:
    """How one sample lies over the workers in one round, said by the worker of each row; blocks keep the global order.

    Attributes
    ----------
    bounds : ndarray of int64, shape (N + 1,)
        Block sizes are their differences.
    workers_of : callable
        ``workers_of(first, last)`` gives the workers of the rows first … last-1, at a cost that doesn't depend on the
        other rows.
    """

    bounds: Ints
    workers_of: Callable[[int, int], Labels]


@dataclass(frozen=True, eq=False)
class Travelling:
    """How one sample lies over the workers in one round, said by the block of an earlier partition that each one has.

    Attributes
    ----------
    bounds : ndarray of int64, shape (N + 1,)
        Block sizes are their differences.
    base : Ordered or Dealt
        The partition whose blocks travel: the same object for as long as the blocks stay together.
    holding : ndarray of int64, shape (N,)
        Worker i has block ``holding[i]`` of the base; a permutation of 0 … N-1.
    """

    bounds: Ints
    base: Ordered | Dealt
    holding: Ints


Blocks = Ordered | Dealt | Travelling


def travelling(base: Ordered | Dealt, holding: Ints) -> Travelling:
    """Return the blocks of `base` with block ``holding[i]`` on worker i."""
    return Travelling(bounds_of(np.diff(base.bounds)[holding]), base, holding)


class Partition:
    """A partition scheme for samples of given sizes: `round(t)` says how they lie over the workers in round t.

    Round t is a function of (scheme, sizes, n_workers, seed, replicate, t) alone: it needs neither the rounds before
    it nor the ranks, so every rank derives the same one, and a resumed run needs no replay.

    Parameters
    ----------
    scheme : Scheme
        One of `mpi_ustat.schemes.registry.SCHEMES`.
    sizes : sequence of int
        Rows of each sample.
    n_workers : int
        N.
    streams : Streams
        The common seed's.
    move : {"both", "smaller"}
        Which samples a round spreads afresh: ``smaller``, the smallest (of equal ones the last).
    shuffle : {"auto", "permutation", "matrix"}
        How a sample is spread. ``permutation``: every rank draws the same full permutation, as in the paper,
        O(n) a rank. ``matrix``: the global order is cut into ranges, and the numbers of rows that go from each of these
        to each block are drawn: of few blocks and ranges (`draws_whole_matrix`) all of them by every rank, otherwise by
        halving ranges (`counttree.walk`), of which a rank goes down to its own rows only. The ranges that hold its
        rows, of at most 2¹⁹ or 64N rows, are dealt out then: O(n/P + N log(n/64N)) a rank, whatever the ranks; the law
        is the same, the draws are not. No array has a number for every row of the sample: this is the way to 10⁹ points
        a sample and more. ``auto``: ``matrix`` from 2¹⁷ rows on.
    replicate : int
        Which of several independent repetitions of the whole run this is.
    may_be_empty : bool
        Whether there may be more workers than rows of a sample.

    Raises
    ------
    UserError
        If some worker would be without a row of some sample, where that is not left to chance, and none may.

    Attributes
    ----------
    bounds : tuple of ndarray
        Of equal blocks of each sample.
    kept : dict
        What the scheme keeps for later rounds: never needed, but to save time and to give the same objects.
    """

    def __init__(
        self,
        scheme: Scheme,
        sizes: Sequence[int],
        n_workers: int,
        streams: Streams,
        *,
        move: str = "both",
        shuffle: str = "auto",
        replicate: int = 0,
        may_be_empty: bool = False,
    ) -> None:
        smallest = sum(sizes) if scheme.random_counts else min(sizes)
        if n_workers > smallest and not may_be_empty:
            raise UserError(
                f"{n_workers} workers can't each have a point of a sample of {smallest}: use at most "
                f"{count_of(smallest, 'worker')} (n_workers=)"
            )
        self.sizes = tuple(sizes)
        self.n_workers = n_workers
        self.move = move
        self.bounds = tuple(block_bounds(size, n_workers) for size in sizes)
        self._by_matrix = tuple(_use_matrix(shuffle, size) for size in sizes)
        self._orders = [np.empty(0, dtype=np.int64) for _ in sizes]
        self.kept: dict[Any, Any] = {}
        self._scheme, self._streams, self._replicate = scheme, streams, replicate

    def round(self, t: int) -> tuple[Blocks, ...]:
        """Return the blocks of every sample in round `t`.

        They share memory with those of other rounds: use them before asking for the next. A sample that stays where it
        was has the same `Blocks` object as before.
        """
        return self._scheme.round(self, t)

    def _where(self, t: int) -> dict[str, int]:
        return {"replicate": self._replicate, "round": t}

    def open(self, purpose: str, t: int, worker: int = 0) -> Stream:
        """Return the stream of random numbers of a purpose in a round."""
        return self._streams.open(purpose, worker=worker, **self._where(t))

    def spread(self, k: int, t: int) -> Ordered | Dealt:
        """Return sample `k` spread uniformly over equal blocks, afresh for round `t`."""
        return self._deal(k, t) if self._by_matrix[k] else Ordered(self.bounds[k], self.permute(k, t))

    def permute(self, k: int, t: int) -> Ints:
        """Return a uniform order of the rows of sample `k`, in memory that the next one overwrites."""
        if not len(self._orders[k]):
            self._orders[k] = np.empty(self.sizes[k], dtype=np.int64)
        return self.open(f"permute sample {k}", t).permutation(self.sizes[k], out=self._orders[k])

    def _deal(self, k: int, t: int) -> Dealt:
        return Dealt(self.bounds[k], partial(self._workers_of, k, t))

    def _workers_of(self, k: int, t: int, first: int, last: int) -> Labels:
        """Return the workers of the rows first … last-1 of a sample in a round by matrix."""
        labels = np.empty(last - first, dtype=np.min_scalar_type(self.n_workers))
        if first == last:
            return labels
        for start, stop, counts in self._parts(k, t, first, last):
            stream = self.open(f"shuffle sample {k}", t, worker=start)
            if first <= start and stop <= last:
                arrange(stream, counts, labels[start - first : stop - first])
            else:  # rows of this part are on other ranks, which arrange it too
                part = np.empty_like(labels, shape=stop - start)
                arrange(stream, counts, part)
                low, high = max(start, first), min(stop, last)
                labels[low - first : high - first] = part[low - start : high - start]
        return labels

    def _parts(self, k: int, t: int, first: int, last: int) -> Iterator[tuple[int, int, Ints]]:
        """Give the bounds of the parts that hold the rows first … last-1, and their numbers of rows of each worker.

        A part is what fits into fast memory: a range at the bottom of the tree, or a source block, which has at most
        2²⁰ rows where the whole matrix is drawn.
        """
        size, where, sizes = self.sizes[k], self._where(t), np.diff(self.bounds[k])

        def generator(purpose: str, worker: int = 0) -> np.random.Generator:
            return self._streams.generator(f"{purpose} {k}", worker=worker, **where)

        if not draws_whole_matrix(size, self.n_workers):
            yield from walk(sizes, first, last, bottom_rows(self.n_workers), partial(generator, "halve sample"))
            return
        sources = block_bounds(size, source_blocks(size, self.n_workers))
        matrix = count_matrix(np.diff(sources), sizes, generator("count matrix"))
        for (start, stop), counts in zip(pairwise(sources.tolist()), matrix, strict=True):
            if start < last and first < stop:
                yield start, stop, counts


def draws_whole_matrix(size: int, n_workers: int) -> bool:
    """Tell whether every rank draws the whole count matrix, or a tree down to its own rows."""
    return source_blocks(size, n_workers) * n_workers <= _WHOLE_MATRIX and size < _WHOLE_ROWS


def bottom_rows(n_workers: int) -> int:
    """Return the most rows of a range at the bottom of the tree: another split would cost more than it saves."""
    return max(_BOTTOM_ROWS, _ROWS_PER_DRAW * n_workers)


def source_blocks(size: int, n_workers: int) -> int:
    """Return S, the number for which the count matrix takes as long as a source block; powers of 2 suit the ranks."""
    return 1 << round(math.log2(max(size / (_ROWS_PER_DRAW * n_workers), 1)) / 2)


def _use_matrix(shuffle: str, size: int) -> bool:
    if shuffle == "auto":
        return size >= _MATRIX_ROWS
    if shuffle not in ("permutation", "matrix"):
        raise UserError(f"the shuffle is {shuffle!r}: use auto, permutation or matrix")
    return shuffle == "matrix"
