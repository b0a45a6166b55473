"""The statistic of K samples under other labels of their blocks. Pure numbers.

With the discrepancies T_kl of every two samples, as unbiased as that of two alone, and the weights of Rizzo and Székely
(2010, DISCO analysis, Annals of Applied Statistics 4, 1034-1055), the statistic is

    Q = Σ_{k<l} n_k n_l / (2N) T_kl,  N = Σ n_k.

(Theirs is that of V-statistics, whose pairs within samples include each point with itself: the test of two samples
relabels the U-statistic, and Q is a multiple of it where K is 2.) Let W_k be the sum of k(p, q) over p ≠ q of sample k,
and W that over all points; the sums across samples are W - Σ W_k, and A_k = W_k/(n_k(n_k-1)) comes with the weight
n_k (N - n_k), so that for T_kl = ± (A_k + A_l - 2 D_kl)

    ± 2N Q = Σ_k W_k (N - n_k)/(n_k - 1) - (W - Σ_k W_k) = (N - 1) Σ_k W_k/(n_k - 1) - W,

in which W is the same under all labels, and 0 once the mean is taken away from k.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice, pairwise

import numpy as np

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.testing.blocks import Layout
from mpi_ustat.testing.relabelled import OnGrid, quadratic_form

_ENTRIES = 1 << 18


def weights(sizes: tuple[int, ...]) -> dict[tuple[int, int], float]:
    """Return n_k n_l / (2N) of every two samples."""
    every = combinations(range(len(sizes)), 2)
    return {(i, j): sizes[i] * sizes[j] / (2 * sum(sizes)) for i, j in every}


@dataclass(frozen=True)
class Omnibus:
    """Q as a function of an order of all blocks: first those of the sample that has fewest, then of the next.

    Attributes
    ----------
    layout : Layout
    linear : tuple of OnGrid, each of shape (S,)
        Of each sample, twice the sums of blocks with its rest.
    quadratic : OnGrid, shape (S, S)
    constants : tuple of float
        Of each sample, the sum within its rest.
    factors : tuple of float
        Q = Σ_k factor_k · (constant_k + gᵀ linear_k + gᵀ quadratic g), g telling which blocks are sample k's.
    tolerance : float
        How far apart rounding may put values that are equal.
    """

    layout: Layout
    linear: tuple[OnGrid, ...]
    quadratic: OnGrid
    constants: tuple[float, ...]
    factors: tuple[float, ...]
    tolerance: float

    @classmethod
    def of(cls, sums: Floats, layout: Layout, sign: int) -> Omnibus:
        """Return Q as a form of finite sums over pairs of blocks, and of the rests behind them."""
        n_blocks, n_points = sum(layout.n_blocks), sum(layout.sizes)
        points = np.array([layout.block_size] * n_blocks + list(layout.rests), dtype=np.float64)
        counts = np.outer(points, points) - np.diag(points)
        n_pairs = float(counts.sum())
        centred = sums - float(sums.sum()) / n_pairs * counts
        of_rests = range(n_blocks, n_blocks + len(layout.sizes))
        linear = tuple(OnGrid.of(2.0 * centred[rest, :n_blocks]) for rest in of_rests)
        quadratic = OnGrid.of(centred[:n_blocks, :n_blocks])
        factors = tuple(sign * (n_points - 1) / (2 * n_points * (n - 1)) for n in layout.sizes)
        # As that of two samples: of each discrepancy, by the rounding of sums of k, and to the grids.
        of_sums = math.ldexp(float(np.abs(sums).sum()) / n_pairs, -40) * sum(weights(layout.sizes).values())
        units = [each.unit if each.whole.any() else 0.0 for each in linear]  # of 0 there is no grid
        of_grids = sum(abs(factor) * (unit + quadratic.unit) for factor, unit in zip(factors, units, strict=True))
        constants = tuple(float(centred[rest, rest]) for rest in of_rests)
        return cls(layout, linear, quadratic, constants, factors, of_sums + 4.0 * n_blocks * of_grids)

    @property
    def order(self) -> list[int]:
        """The samples, by their numbers of blocks."""
        return sorted(range(len(self.layout.sizes)), key=lambda k: self.layout.n_blocks[k])

    @property
    def own(self) -> Ints:
        """All blocks as they are labelled, shape (1, S)."""
        return np.concatenate([self.layout.place(k)[:-1] for k in self.order])[None]

    def values(self, blocks: Ints) -> Floats:
        """Return Q of several labellings, shape (R,); each row of `blocks`, (R, S), is an order of all."""
        found = np.zeros(len(blocks))
        bounds = np.cumsum([0, *(self.layout.n_blocks[k] for k in self.order)]).tolist()
        for k, (start, stop) in zip(self.order, pairwise(bounds), strict=True):
            of_sample = blocks[:, start:stop]
            linear = self.linear[k].numbers(self.linear[k].whole[of_sample].sum(axis=1))
            quadratic = self.quadratic.numbers(quadratic_form(self.quadratic.whole, of_sample))
            found += self.factors[k] * (self.constants[k] + linear + quadratic)
        return found + 0.0  # not -0

    @property
    def at_once(self) -> int:
        """How many labellings are evaluated together, in bounded memory."""
        return max(1, _ENTRIES // sum(self.layout.n_blocks))

    def every(self) -> Iterator[Ints]:
        """Yield all labellings, the one that is there included, so many at once."""
        counts = [self.layout.n_blocks[k] for k in self.order]
        every = _orders(tuple(range(sum(counts))), counts)
        while True:
            some = np.fromiter(chain.from_iterable(islice(every, self.at_once)), dtype=np.int64)
            if not len(some):
                return
            yield some.reshape(-1, sum(counts))

    def drawn(self, streams: Streams, numbers: range) -> Ints:
        """Return the random labellings of these numbers: of two samples the same as `Relabelling` draws."""
        orders = streams.permutations("relabelled blocks", sum(self.layout.n_blocks), numbers, 1)
        return orders[:, 0].copy()


def _orders(blocks: tuple[int, ...], counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to share out blocks, so many to each sample, one after the other."""
    if len(counts) == 1:
        yield blocks
        return
    for first in combinations(blocks, counts[0]):
        others = tuple(each for each in blocks if each not in first)
        for order in _orders(others, counts[1:]):
            yield first + order


def holm(p: Floats) -> Floats:
    """Return p-values that are corrected for how many there are, whatever their dependence (Holm 1979)."""
    order = np.argsort(p, kind="stable")
    stepwise = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.maximum.accumulate(stepwise)
    return found
