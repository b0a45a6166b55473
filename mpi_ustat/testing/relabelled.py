"""The statistic under other labels of the blocks, and the p-value that comes of it. Pure numbers.

With the sums B over the pairs of every two blocks (`block_sums`), and g ∈ {0, 1} telling which blocks are x's,

    T_g = gᵀBg / (n(n-1)) + (1-g)ᵀB(1-g) / (m(m-1)) - 2 gᵀB(1-g) / (nm),

or its negative, is the U-statistic of the points so labelled. It is a constant, a linear function of g, and a multiple
of gᵀBg, over the blocks that may change their label; and so it is of 1-g: of the sample with fewer blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, islice

import numpy as np

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.testing.blocks import Layout

_WHOLE_BITS = 52  # doubles that are whole numbers up to 2^53 add up exactly, in any order
_GATHERED = 100  # an entry that is gathered takes as long as so many of a matrix product
_ENTRIES = 1 << 18


@dataclass(frozen=True)
class OnGrid:
    """Numbers rounded to multiples of 2^-exponent whose absolute values add up to less than 2⁵² of them.

    However some of them are added up, by any library on any number of ranks, there is no rounding error.

    Attributes
    ----------
    whole : ndarray
        The multiples.
    exponent : int
    """

    whole: Floats
    exponent: int

    @classmethod
    def of(cls, values: Floats) -> OnGrid:
        """Return finite numbers on their grid."""
        largest = float(np.abs(values).sum())
        exponent = _WHOLE_BITS - math.frexp(largest)[1] if largest else 0
        return cls(np.rint(np.ldexp(values, exponent)), exponent)

    def numbers(self, multiples: Floats) -> Floats:
        """Return the values of these sums of multiples."""
        return np.asarray(np.ldexp(multiples, -self.exponent))

    @property
    def unit(self) -> float:
        """The distance between neighbours."""
        return math.ldexp(1.0, -self.exponent)


@dataclass(frozen=True)
class Relabelling:
    """T_g as a function of which blocks are those of the sample that has fewer of them, the chosen one.

    Attributes
    ----------
    layout : Layout
    constant : float
    linear : OnGrid, shape (S,)
    quadratic : OnGrid, shape (S, S)
    factor : float
        T_g = constant + gᵀ linear + factor · gᵀ quadratic g.
    typical : float
        The size of k, which tells how large rounding errors of sums of k are.
    """

    layout: Layout
    constant: float
    linear: OnGrid
    quadratic: OnGrid
    factor: float
    typical: float

    @classmethod
    def of(cls, sums: Floats, layout: Layout, sign: int) -> Relabelling:
        """Return T as a form of finite sums over pairs of blocks, and of the rests behind them.

        Let u be g with 1 for the chosen sample's rest, a and c the sizes of this sample and of the other, and r = B1:

            ± T = α uᵀBu + β uᵀr + 1ᵀr / (c(c-1)),  α = 1/(a(a-1)) + 1/(c(c-1)) + 2/(ac),  β = -2/(c(c-1)) - 2/(ac).

        A constant that is added to k leaves T as it is: the mean of k is taken away first, and digits are won.
        """
        n_blocks, chosen = sum(layout.n_blocks), _chosen(layout)
        points = np.array([layout.block_size] * n_blocks + list(layout.rests), dtype=np.float64)
        counts = np.outer(points, points) - np.diag(points)
        n_pairs = float(counts.sum())
        centred = sums - float(sums.sum()) / n_pairs * counts
        a, c = layout.sizes[chosen], layout.sizes[1 - chosen]
        alpha = 1.0 / (a * (a - 1)) + 1.0 / (c * (c - 1)) + 2.0 / (a * c)
        beta = -2.0 / (c * (c - 1)) - 2.0 / (a * c)
        rest, of_all = centred[n_blocks + chosen], centred.sum(axis=1)
        linear = 2.0 * alpha * rest + beta * of_all
        constant = alpha * rest[n_blocks + chosen] + beta * of_all[n_blocks + chosen] + of_all.sum() / (c * (c - 1))
        return cls(
            layout,
            sign * float(constant),
            OnGrid.of(sign * linear[:n_blocks]),
            OnGrid.of(centred[:n_blocks, :n_blocks]),
            sign * alpha,
            float(np.abs(sums).sum()) / n_pairs,
        )

    @property
    def n_chosen(self) -> int:
        """How many blocks the chosen sample has."""
        return min(self.layout.n_blocks)

    @property
    def own(self) -> Ints:
        """Its blocks as they are labelled, shape (1, s)."""
        first = 0 if _chosen(self.layout) == 0 else self.layout.n_blocks[0]
        return np.arange(first, first + self.n_chosen)[None]

    def values(self, blocks: Ints) -> Floats:
        """Return T of several labellings, shape (R,); each row of `blocks`, (R, s), has those of the chosen sample."""
        linear = self.linear.numbers(self.linear.whole[blocks].sum(axis=1))
        quadratic = self.quadratic.numbers(quadratic_form(self.quadratic.whole, blocks))
        return np.asarray(self.constant + linear + self.factor * quadratic + 0.0)  # not -0

    @property
    def _gathers(self) -> bool:
        return _gathers(self.n_chosen, len(self.quadratic.whole))

    @property
    def tolerance(self) -> float:
        """How far apart rounding may put values that are equal: that of sums of k, and that to the grids."""
        of_grids = self.linear.unit + abs(self.factor) * self.quadratic.unit
        return math.ldexp(self.typical, -40) + 4.0 * len(self.linear.whole) * of_grids

    @property
    def at_once(self) -> int:
        """How many labellings are evaluated together, in bounded memory."""
        per_labelling = self.n_chosen**2 if self._gathers else len(self.linear.whole)
        return max(1, _ENTRIES // per_labelling)

    def every(self) -> Iterator[Ints]:
        """Yield all labellings, the one that is there included, so many at once."""
        s = self.n_chosen
        every = combinations(range(len(self.linear.whole)), s)
        while True:
            some = np.fromiter(chain.from_iterable(islice(every, self.at_once)), dtype=np.int64).reshape(-1, s)
            if not len(some):
                return
            yield some

    def drawn(self, streams: Streams, numbers: range) -> Ints:
        """Return the random labellings of these numbers: each has a stream of its own."""
        orders = streams.permutations("relabelled blocks", len(self.linear.whole), numbers, 1)
        return orders[:, 0, : self.n_chosen].copy()


def quadratic_form(matrix: Floats, blocks: Ints) -> Floats:
    """Return gᵀ matrix g, shape (R,), for g with 1 at these blocks, (R, s), and 0 elsewhere; of whole numbers."""
    if _gathers(blocks.shape[1], len(matrix)):
        return np.asarray(matrix[blocks[:, :, None], blocks[:, None, :]].sum(axis=(1, 2)))
    labels = np.zeros((len(blocks), len(matrix)))
    np.put_along_axis(labels, blocks, 1.0, axis=1)
    return np.einsum("ij,ij->i", labels @ matrix, labels)


def _gathers(n_chosen: int, n_blocks: int) -> bool:
    return _GATHERED * n_chosen**2 < n_blocks**2


def _chosen(layout: Layout) -> int:
    x, z = layout.n_blocks
    return 0 if x <= z else 1


def p_value(value: float, others: Floats, tolerance: float, *, exact: bool) -> float:
    """Return the share of labellings whose value is as large as the one that is there, which is one of them.

    Parameters
    ----------
    value : float
    others : ndarray
        Those of all labellings, if `exact`; otherwise of R random ones, without the one that is there.
    tolerance : float
        Values that are lower by no more count as equal, which can only raise p.
    exact : bool
    """
    as_large = int(np.count_nonzero(others >= value - tolerance))
    return as_large / len(others) if exact else (1 + as_large) / (len(others) + 1)
