"""Shares of pairs of embeddings that are similar: false-match rates, and histograms of similarities.

A pair falls in a bin or not, so everything about a block is whole numbers: how many pairs fall in each bin, and how
many of each point. They add up over blocks exactly, and give the Hoeffding components with a single rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.kernel import UNIT, Kernel, Local, Meeting, PairSum, Points, as_pair, inner_products
from mpi_ustat.kernels.options import Option
from mpi_ustat.numerics.exactsum import products
from mpi_ustat.numerics.types import Floats, Ints

Sums = tuple[PairSum, ...]

_ROWS, _COLUMNS = 128, 256  # rows counted in uint8 and columns in uint16 can't overflow
_MOST_PARTS = 64  # with components: p × p matrices
_LEAST = 2.0**-510  # products of numbers below it are no normal doubles
_ROUNDING = 2.0**-44  # of cosines, with thousands of coordinates


METRIC = Option("metric", "similarity of embeddings", "cosine", choices=("cosine", "inner"), label="the metric")


class SimilarityCounts(Kernel):
    """Shares of pairs whose similarity s reaches thresholds, or lies between them; s is computed by matrix products.

    Matrix products are made in padded tiles of one shape: the similarity of a pair then has the same bits wherever its
    points lie, and pairs as near a threshold as rounding are counted alike in any block. Of 20000 × 20000 points with
    128 coordinates, one core counts 1.9·10⁸ pairs a second, for each point too, in 60 MiB; the whole matrix at once,
    compared and summed, makes 0.4·10⁸ the first time and 1.4·10⁸ from then on, in 3.4 GiB.

    Parameters
    ----------
    thresholds : sequence of float
        Ascending.
    metric : {"cosine", "inner"}
        s(a, b) = a·b/(|a||b|), or a·b. Rounding touches pairs at a threshold only. A cosine within 6·10⁻¹⁴ of 1 is 1,
        as that of a vector with itself would be without rounding, and within as much of -1 it is -1.
    one_sample : bool
        Whether the pairs are those inside one sample, degrees (2,), instead of (1, 1).
    """

    samples = (1, 2)
    unit = "1"
    has_margins = True
    limits = UNIT
    projection_rows = 2000

    def __init__(self, thresholds: Sequence[float], metric: str, one_sample: bool) -> None:
        self.degrees = (2,) if one_sample else (1, 1)
        self.metric = METRIC.checked(metric)
        self._thresholds = tuple(thresholds)
        self.n_parts = len(self._bins(np.zeros(len(self._thresholds), dtype=np.int64)))

    @classmethod
    def of_samples(cls, n_samples: int, **options: Any) -> Kernel:
        """Return the kernel between two samples, or within one."""
        return cls(**options, one_sample=n_samples == 1)

    def block_sums(self, *blocks: Points) -> Sums:
        """Return the numbers of pairs in each bin."""
        reached = np.zeros(len(self._thresholds), dtype=np.int64)
        for _, _, tile in self._tiles(*blocks):
            reached += [np.count_nonzero(tile >= threshold) for threshold in self._thresholds]
        return self._sums(reached, *blocks)

    def tuple_sums(self, *points: Points) -> Sums:
        """Return the numbers of aligned pairs in each bin."""
        left, right = (self._ready(each) for each in as_pair(*points))
        similarities = np.einsum("ij,ij->i", left, right)
        reached = np.array([np.count_nonzero(similarities >= threshold) for threshold in self._thresholds])
        return tuple(PairSum(total, len(left)) for total in self._bins(reached).tolist())

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums`, and the components of up to 64 bins where the block has enough points.

        With r_ka the pairs of point k in bin a, T_a all of them, and because bins are disjoint (Σ h_a h_b = T_a for a
        = b and 0 otherwise), the sums of squares and products about the means are whole numbers over whole numbers:

            Σ_k (r_ka/m - T_a/nm)(r_kb/m - T_b/nm) = [n Σ_k r_ka r_kb - T_a T_b]/(n m²),
            Σ_kl (h_a - T_a/nm)(h_b - T_b/nm) = [nm T_a 1{a = b} - T_a T_b]/(nm);

        for one sample Σ_k r_ka = 2 T_a and each point has n - 1 pairs: [n Σ_k r_ka r_kb - 4 T_a T_b]/(n (n-1)²).
        """
        sums, points = self.counted(*blocks)
        within, sizes, n_pairs = len(blocks) == 1, [len(each) for each in points], sums[0].n_pairs
        if min(sizes) < (4 if within else 2) or len(sums) > _MOST_PARTS:
            return Local(sums, None)
        totals = np.array([each.total for each in sums], dtype=object)
        both = np.outer(totals, totals)
        of_points = []
        for counts, n_partners in zip(points, [sizes[0] - 1] if within else sizes[::-1], strict=True):
            n = len(counts)
            centred = n * products(counts.T, n_partners).astype(object) - (4 if within else 1) * both
            of_points.append(_quotient(centred, n * n_partners**2))
        squares = _quotient(n_pairs * np.diag(totals) - both, n_pairs)
        if within:
            return Local(sums, one_sample_components(sizes[0], of_points[0], squares))
        return Local(sums, two_sample_components(sizes[0], sizes[1], of_points[0], of_points[1], squares))

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points whose inner products may overflow, as infinities of both signs have no sum, or vanish."""
        if self.metric == "inner":
            farthest = float(np.max(np.maximum(np.abs(low), np.abs(high)), initial=0.0))
            if 0.0 < farthest < _LEAST:
                raise UserError(
                    f"the points are within {_LEAST:.0e} of 0, where inner products vanish: rescale the points and the "
                    "threshold or edges"
                )
        with np.errstate(over="ignore"):
            largest = float(np.sum(np.maximum(np.abs(low), np.abs(high)) ** 2))
        if self.metric == "inner" and not math.isfinite(largest):
            raise UserError("inner products of the points overflow: rescale the points and the threshold or edges")

    def cross_sums(self, x: Points, y: Points) -> Sums:
        """Return the numbers of pairs across two blocks of one sample in each bin."""
        return self.block_sums(x, y)

    def margins(self, *blocks: Points) -> Meeting:
        """Return the sums over pairs: bins are disjoint, so Σ h_a h_b = T_a for a = b or 0."""
        sums, points = self.counted(*blocks)
        totals = np.array([float(each.total) for each in sums])
        return Meeting(sums, points, np.diag(totals) - np.outer(totals, totals / sums[0].n_pairs))

    def value_tiles(self, *blocks: Points) -> Iterator[tuple[slice, slice, Floats]]:
        """Yield which pairs are in each bin."""
        for i, j, tile in self._tiles(*blocks):
            reached = np.stack([tile >= threshold for threshold in self._thresholds], axis=-1).astype(np.int64)
            h = np.moveaxis(self._bins(reached), -1, 0).astype(np.float64)
            yield slice(i, i + h.shape[1]), slice(j, j + h.shape[2]), h

    def counted(self, *blocks: Points) -> tuple[Sums, tuple[Ints, ...]]:
        """Return the pairs in each bin: of all points, and of each point of each block, shapes (n, p)."""
        rows, columns = self._count(*blocks)
        of_points = (rows + columns,) if len(blocks) == 1 else (rows, columns)
        return self._sums(rows.sum(axis=1), *blocks), tuple(self._bins(each.T) for each in of_points)

    def _bins(self, reached: Ints) -> Ints:
        """Return the numbers in each bin, last axis, from those that reach each threshold."""
        return reached

    def _sums(self, reached: Ints, *blocks: Points) -> Sums:
        sizes = [len(block) for block in blocks]
        n_pairs = math.comb(sizes[0], 2) if len(sizes) == 1 else math.prod(sizes)
        return tuple(PairSum(total, n_pairs) for total in self._bins(reached).tolist())

    def _count(self, *blocks: Points) -> tuple[Ints, Ints]:
        """Return how many pairs of each row and each column reach each threshold, shapes (q, n) and (q, m)."""
        rows, columns = (
            np.zeros((len(self._thresholds), len(points)), dtype=np.int64) for points in (blocks[0], blocks[-1])
        )
        mask = np.empty((_ROWS, _COLUMNS), dtype=np.bool_)
        for i, j, tile in self._tiles(*blocks):
            n_rows, n_columns = tile.shape
            reaches = mask[:n_rows, :n_columns]
            bits = reaches.view(np.uint8)
            for k, threshold in enumerate(self._thresholds):
                np.greater_equal(tile, threshold, out=reaches)
                rows[k, i : i + n_rows] += np.add.reduce(bits, axis=1, dtype=np.uint16)
                columns[k, j : j + n_columns] += np.add.reduce(bits, axis=0, dtype=np.uint8)
        return rows, columns

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the shares of the others with which each point makes a pair in each bin."""
        blocks = (others[0], points) if k else (points, others[-1])
        return self.margins(*blocks).points[k] / len(others[1 - k if len(others) > 1 else 0])

    def _tiles(self, *blocks: Points) -> Iterator[tuple[int, int, Floats]]:
        """Yield first row, first column and similarities of each tile; -∞ for what is no pair, in one sample.

        The tile is a view of a buffer, which the next one overwrites.
        """
        within = len(blocks) == 1
        x, z = as_pair(blocks[0], blocks[-1])
        n, m = len(x), len(z)
        left = _padded(self._ready(x))
        right = left if within else _padded(self._ready(z))
        buffer = np.empty((_ROWS, _COLUMNS))
        for i in range(0, n, _ROWS):
            n_rows = min(_ROWS, n - i)
            for j in range(i - i % _COLUMNS if within else 0, m, _COLUMNS):
                inner_products(left[i : i + _ROWS], right[j : j + _COLUMNS], buffer)
                tile = buffer[:n_rows, : min(_COLUMNS, m - j)]
                if within and j < i + n_rows:
                    tile[np.arange(j, j + tile.shape[1]) <= np.arange(i, i + n_rows)[:, None]] = -np.inf
                yield i, j, tile

    def _ready(self, points: Points) -> Points:
        """Return points whose inner products are the similarities."""
        if self.metric == "inner" or not len(points):
            return points
        largest = np.abs(points).max(axis=1, keepdims=True)
        if (largest == 0.0).any():
            raise UserError("a point is the zero vector, which has no direction and no cosine: remove it")
        scaled = points / largest  # squares of the others might overflow
        return np.asarray(scaled / np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None])


def at_least(edge: float, metric: str) -> float:
    """Return the threshold for s >= edge, away from what rounding may make of a cosine of -1 or 1."""
    if metric != "cosine" or abs(edge) < 1.0 - _ROUNDING:
        return edge
    if abs(edge) > 1.0:
        return math.copysign(2.0, edge)  # all cosines reach it, or none
    return -2.0 if edge == -1.0 else math.copysign(1.0 - _ROUNDING, edge)


def _padded(points: Points) -> Points:
    """Return rows with zeros below, so that tiles of either side are full."""
    rows = np.zeros((-(-len(points) // _COLUMNS) * _COLUMNS, points.shape[1]))
    rows[: len(points)] = points
    return rows


def _quotient(numerators: NDArray[Any], denominator: int) -> Floats:
    """Return quotients of Python integers, each rounded once."""
    return np.asarray(numerators / denominator, dtype=np.float64)
