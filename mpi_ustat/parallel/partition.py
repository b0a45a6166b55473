"""Who holds which rows in which round: pure functions of (scheme, sizes, number of workers, random streams)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.parallel.countmatrix import count_matrix
from mpi_ustat.parallel.rng import Streams

Indices = NDArray[np.int64]
Labels = NDArray[np.unsignedinteger]

_MATRIX_ROWS = 1 << 17
_LARGEST_MATRIX_TOTAL = 10**9 - 1


def block_bounds(total: int, parts: int) -> Indices:
    """Return the bounds (length ``parts + 1``) that cut ``total`` items into runs whose lengths differ by at most one.

    The first ``total % parts`` runs are the longer ones; run i is ``bounds[i]:bounds[i+1]``.
    """
    quotient, remainder = divmod(total, parts)
    i = np.arange(parts + 1)
    return i * quotient + np.minimum(i, remainder)


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

    bounds: Indices
    order: Indices | None


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

    bounds: Indices
    workers_of: Callable[[int, int], Labels]


Blocks = Ordered | Dealt


class Partition:
    """A partition scheme for samples of given sizes: `round(t)` says how they lie over the workers in round t.

    Round t is a function of (scheme, sizes, n_workers, seed, replicate, t) alone: it needs neither the rounds before
    it nor the ranks, so every rank derives the same one, and a resumed run needs no replay.

    Parameters
    ----------
    scheme : {"prop-swor", "swor", "prop-swr", "fixed-shuffle"}
        ``prop-swor``: each sample is spread afresh over N blocks whose sizes differ by at most one, all assignments
        being equally likely (the paper's proportional sampling without replacement).
        ``swor``: the points of all samples are permuted together and cut into N blocks, so that the numbers of each
        sample in a block are random (multivariate hypergeometric), and may be 0.
        ``prop-swr``: every worker draws as many points as a prop-swor block has, with replacement, from the whole of
        each sample.
        ``fixed-shuffle``: round 0 is a prop-swor permutation, and from each round to the next every row is dealt out by
        its place in the order, place g to worker g mod N, as the repartitioning of data-processing engines does
        without drawing anything. It is soon periodic. The k-th of samples of equal sizes is dealt from worker k⌊N/2⌋
        on, or the samples would travel together for ever and the same pairs meet in every round.
    sizes : sequence of int
        Rows of each sample.
    n_workers : int
        N.
    streams : Streams
        The common seed's.
    move : {"both", "smaller"}
        For prop-swor: ``smaller`` leaves the other samples where round 0 put them, and spreads only the smallest (of
        equal ones the last) afresh, which moves fewer rows for the same variance where N divides their sizes.
    shuffle : {"auto", "permutation", "matrix"}
        How prop-swor spreads a sample. ``permutation``: every rank draws the same full permutation, as in the paper,
        O(n) a rank. ``matrix``: the global order is cut into S source blocks, every rank draws the same S×N matrix of
        block-to-block counts and deals out the source blocks of its own rows, O(n/P + n/S + S·N) a rank with S near
        √(n/64N), whatever the ranks; the law is the same, the draws are not. ``auto``: ``matrix`` for samples of 2¹⁷
        to 10⁹ rows.
    replicate : int
        Which of several independent repetitions of the whole run this is.

    Raises
    ------
    UserError
        If some worker would be without a row of some sample (but under ``swor``, where that is left to chance).
    """

    def __init__(
        self,
        scheme: str,
        sizes: Sequence[int],
        n_workers: int,
        streams: Streams,
        *,
        move: str = "both",
        shuffle: str = "auto",
        replicate: int = 0,
    ) -> None:
        rounds = {
            "prop-swor": self._prop_swor,
            "swor": self._swor,
            "prop-swr": self._prop_swr,
            "fixed-shuffle": self._fixed_shuffle,
        }
        if scheme not in rounds:
            raise UserError(f"there is no partition scheme {scheme!r}: use as-is, {', '.join(rounds)}")
        smallest = min(sizes) if scheme != "swor" else sum(sizes)
        if n_workers > smallest:
            raise UserError(
                f"{n_workers} workers can't each have a point of a sample of {smallest}: use at most {smallest} "
                "workers (--workers)"
            )
        self.sizes = tuple(sizes)
        self.n_workers = n_workers
        self.replicate = replicate
        self._round = rounds[scheme]
        self._streams = streams
        self._bounds = tuple(block_bounds(size, n_workers) for size in sizes)
        self._by_matrix = tuple(_use_matrix(shuffle, size) for size in sizes)
        self._orders = [np.empty(0, dtype=np.int64) for _ in sizes]
        moving = len(sizes) - 1 - int(np.argmin(self.sizes[::-1]))
        self._fixed = set(range(len(sizes))) - {moving} if move == "smaller" else set()
        self._kept: dict[int, Blocks] = {}
        self._dealt: tuple[int, list[Indices]] | None = None

    def round(self, t: int) -> tuple[Blocks, ...]:
        """Return the blocks of every sample in round `t`.

        They share memory with those of other rounds: use them before asking for the next. A sample that stays where it
        was has the same `Blocks` object as before.
        """
        return self._round(t)

    def _prop_swor(self, t: int) -> tuple[Blocks, ...]:
        for k in self._fixed - self._kept.keys():
            self._kept[k] = self._spread(k, 0)
        return tuple(self._kept[k] if k in self._fixed else self._spread(k, t) for k in range(len(self.sizes)))

    def _swor(self, t: int) -> tuple[Blocks, ...]:
        pooled = self._streams.open("permute all samples", **self._where(t)).permutation(sum(self.sizes))
        cuts = block_bounds(len(pooled), self.n_workers)
        blocks, first = [], 0
        for size in self.sizes:
            ours = np.flatnonzero((pooled >= first) & (pooled < first + size))
            blocks.append(Ordered(np.searchsorted(ours, cuts).astype(np.int64), pooled[ours] - first))
            first += size
        return tuple(blocks)

    def _prop_swr(self, t: int) -> tuple[Blocks, ...]:
        blocks = []
        for k, (size, bounds) in enumerate(zip(self.sizes, self._bounds, strict=True)):
            draws = [
                self._streams.open(f"draw from sample {k}", worker=i, **self._where(t)).integers(size, n_rows)
                for i, n_rows in enumerate(np.diff(bounds).tolist())
            ]
            blocks.append(Ordered(bounds, np.concatenate(draws)))
        return tuple(blocks)

    def _fixed_shuffle(self, t: int) -> tuple[Blocks, ...]:
        if self._dealt is None or self._dealt[0] > t:
            self._dealt = 0, [self._permute(k, 0).copy() for k in range(len(self.sizes))]
        done, orders = self._dealt
        deals = [_deal_order(size, self.n_workers, start) for size, start in zip(self.sizes, self._starts, strict=True)]
        for _ in range(done, t):
            orders = [order[deal] for order, deal in zip(orders, deals, strict=True)]
        self._dealt = t, orders
        bounds = (_deal_bounds(*each, self.n_workers) for each in zip(self.sizes, self._starts, strict=True))
        return tuple(map(Ordered, bounds, orders))

    @property
    def _starts(self) -> tuple[int, ...]:
        """The worker from which each sample is dealt."""
        return tuple(
            k * (self.n_workers // 2) % self.n_workers if size in self.sizes[:k] else 0
            for k, size in enumerate(self.sizes)
        )

    def _where(self, t: int) -> dict[str, int]:
        return {"replicate": self.replicate, "round": t}

    def _spread(self, k: int, t: int) -> Blocks:
        return self._deal(k, t) if self._by_matrix[k] else Ordered(self._bounds[k], self._permute(k, t))

    def _permute(self, k: int, t: int) -> Indices:
        if not len(self._orders[k]):
            self._orders[k] = np.empty(self.sizes[k], dtype=np.int64)
        return self._streams.open(f"permute sample {k}", **self._where(t)).permutation(
            self.sizes[k], out=self._orders[k]
        )

    def _deal(self, k: int, t: int) -> Dealt:
        size, bounds, where = self.sizes[k], self._bounds[k], self._where(t)
        sources = block_bounds(size, _source_blocks(size, self.n_workers))

        def workers_of(first: int, last: int) -> Labels:
            workers = np.arange(self.n_workers, dtype=np.min_scalar_type(self.n_workers - 1))
            if first == last:
                return workers[:0]
            counts = count_matrix(
                np.diff(sources), np.diff(bounds), self._streams.generator(f"count matrix {k}", **where)
            )
            # A source block that straddles two ranks is dealt out by both.
            start = int(np.searchsorted(sources, first, side="right")) - 1
            stop = int(np.searchsorted(sources, last, side="left"))
            labels = np.zeros_like(workers, shape=int(sources[stop] - sources[start]))
            for i in range(start, stop):
                block = labels[sources[i] - sources[start] : sources[i + 1] - sources[start]]
                order = self._streams.open(f"shuffle sample {k}", worker=i, **where).permutation(len(block))
                block[order] = np.repeat(workers, counts[i])
            return labels[first - sources[start] : last - sources[start]]

        return Dealt(bounds, workers_of)


def _deal_order(size: int, n_workers: int, start: int) -> Indices:
    """Return the places, worker after worker, when place g is dealt to worker (g + start) mod N."""
    return np.concatenate([np.arange((i - start) % n_workers, size, n_workers) for i in range(n_workers)])


def _deal_bounds(size: int, start: int, n_workers: int) -> Indices:
    """Return the bounds of the blocks that such a deal makes: sizes don't change from round to round."""
    sizes = np.roll(np.diff(block_bounds(size, n_workers)), start)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _source_blocks(size: int, n_workers: int) -> int:
    """Return S: a draw of the count matrix costs as much as shuffling 64 rows, and powers of two suit the ranks."""
    return 1 << round(math.log2(max(size / (64 * n_workers), 1)) / 2)


def _use_matrix(shuffle: str, size: int) -> bool:
    if shuffle == "auto":
        return _MATRIX_ROWS <= size <= _LARGEST_MATRIX_TOTAL
    if shuffle not in ("permutation", "matrix"):
        raise UserError(f"the shuffle is {shuffle!r}: use auto, permutation or matrix")
    if shuffle == "matrix" and size > _LARGEST_MATRIX_TOTAL:
        raise UserError(f"the matrix shuffle deals out fewer than 10^9 rows, not {size}: use --shuffle permutation")
    return shuffle == "matrix"
