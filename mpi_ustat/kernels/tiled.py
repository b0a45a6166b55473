"""Kernels that write h for all pairs of two small blocks: of these tiles of a matrix all else is made."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Local, Meeting, OfMatrix, PairSum, Points, Total
from mpi_ustat.kernels.one_sample import FEWEST, OneSampleKernel
from mpi_ustat.numerics.types import Floats
from mpi_ustat.user.guards import refuse_asymmetric

DEFAULT_TILE = 128  # matrices of 128 KiB stay in a core's cache; larger ones cost a page fault each time
_PAIRS_TILE = 8


class ByTiles(OfMatrix):
    """A kernel that is evaluated tile by tile, in bounded memory.

    Aligned pairs are read off the diagonal of small square tiles, at eight evaluations of h a pair: `pairs_total` is
    worth writing.
    """

    tile = DEFAULT_TILE
    has_margins = True

    def ready(self, x: Points, z: Points) -> tuple[Points, Points]:
        """Return blocks as `matrix` takes parts of them."""
        return x, z

    def aligned_values(self, x: Points, z: Points) -> Floats:
        """Return h of a few aligned pairs."""
        return self.matrix(x, z).diagonal()

    def pairs_total(self, x: Points, z: Points) -> Total:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        x, z = self.ready(x, z)
        return add(
            float(self.aligned_values(x[i : i + _PAIRS_TILE], z[i : i + _PAIRS_TILE]).sum())
            for i in range(0, len(x), _PAIRS_TILE)
        )


class Tiled(ByTiles):
    """A kernel of two samples that is evaluated tile by tile: a class that has `matrix` is whole."""

    def block_total(self, x: Points, z: Points) -> Total:
        """Return Σ_kl h(x_k, z_l), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(h)) for _, _, h in tiles(self.matrix, *self.ready(x, z), self.tile))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, from one evaluation of every pair.

        Squares and margins are of h - c, c the mean of the first tile: close enough to h̄ for Σ(h - h̄)² = Σ(h - c)² -
        nm (h̄ - c)² to be a difference without cancellation.
        """
        x, z = blocks
        n, m = len(x), len(z)
        if min(n, m) < 2:
            return Local(self.block_sums(x, z), None)
        sums: list[float] = []
        squares: list[float] = []
        row_sums, column_sums = np.zeros(n), np.zeros(m)
        centre = None
        for rows, columns, values in tiles(self.matrix, *self.ready(x, z), self.tile):
            sums.append(float(np.sum(values)))
            if centre is None:
                centre = sums[0] / values.size
            centred = values - centre
            row_sums[rows] += centred.sum(axis=1)
            column_sums[columns] += centred.sum(axis=0)
            squares.append(float(np.vdot(centred, centred)))
        row_means, column_means = row_sums / m, column_sums / n
        off_centre = float(row_means.mean())
        row_means -= off_centre
        column_means -= float(column_means.mean())
        about_mean = add([*squares, -n * m * off_centre**2])
        components = two_sample_components(n, m, row_means @ row_means, column_means @ column_means, about_mean)
        return Local((PairSum(add(sums), n * m),), components)

    def margins(self, *blocks: Points) -> Meeting:
        """Return the sums over the pairs across two blocks, for each point too."""
        x, z = self.ready(*blocks)
        rows, columns, found = np.zeros((len(x), 1)), np.zeros((len(z), 1)), _PairMargins()
        for i, j, values in tiles(self.matrix, x, z, self.tile):
            rows[i, 0] += values.sum(axis=1)
            columns[j, 0] += values.sum(axis=0)
            found.add(values)
        return found.meeting(rows, columns)


class TiledPairs(ByTiles, OneSampleKernel):
    """A symmetric kernel of two points of one sample, evaluated tile by tile: a class that has `matrix` is whole.

    h of a point and itself plays no part, and may be anything.
    """

    @functools.cached_property
    def across(self) -> OfMatrix:  # type: ignore[override]
        """The same h for the pairs with one point in each of two disjoint blocks."""
        return _Across(self)

    @abstractmethod
    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs of two small blocks, (a, b)."""

    def trial(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs of two small blocks of the same points, which may have no value where they meet."""
        return self.matrix(x, y)

    def inside(self, x: Points) -> Floats:
        """Return h for all pairs inside a small block, 0 where i >= j."""
        return np.triu(self.matrix(x, x), 1)

    def block_total(self, x: Points) -> Total:
        """Return Σ_{i<j} h(x_i, x_j), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(pairs)) for *_, pairs in self._tiles(self.ready(x, x)[0]))

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on; every pair is evaluated once."""
        n = len(x)
        if n < FEWEST:
            return Local(self.block_sums(x), None)
        sums, (of_points,), squares = self.margins(x)
        mean = sums[0].total / sums[0].n_pairs
        rows_squares = float(np.sum((of_points[:, 0] / (n - 1) - mean) ** 2))
        return Local(sums, one_sample_components(n, rows_squares, squares))

    def margins(self, *blocks: Points) -> Meeting:
        """Return the sums over the pairs across two blocks, or inside one, for each point too."""
        if len(blocks) == 2:
            return self.across.margins(*blocks)
        x, _ = self.ready(blocks[0], blocks[0])
        of_points, found = np.zeros((len(x), 1)), _PairMargins()
        for rows, columns, values, pairs in self._tiles(x):
            of_points[rows, 0] += values.sum(axis=1)
            of_points[columns, 0] += values.sum(axis=0)
            found.add(pairs)
        return found.meeting(of_points)

    def check_points(self, blocks: Sequence[Points], stream: Any) -> None:
        """Refuse a kernel that is not symmetric, by all pairs of a few points."""
        x, _ = self.ready(blocks[0], blocks[0])
        values = np.zeros((len(x), len(x)))
        for rows, columns, h in tiles(self.trial, x, x, self.tile):
            if h.shape != values[rows, columns].shape:
                return  # which its evaluation refuses
            values[rows, columns] = h
        np.fill_diagonal(values, 0.0)
        refuse_asymmetric(self.name, values, values.T)

    def _tiles(self, x: Points) -> Iterator[tuple[slice, slice, Floats, Floats]]:
        """Yield the upper triangle of tiles: rows, columns, h with 0 where i >= j, and the values with i < j."""
        starts = range(0, len(x), self.tile)
        for i in starts:
            rows = slice(i, min(i + self.tile, len(x)))
            if rows.stop - i > 1:
                values = self.inside(x[rows])
                yield rows, rows, values, values[np.triu_indices(rows.stop - i, 1)]
            for j in starts[i // self.tile + 1 :]:
                columns = slice(j, min(j + self.tile, len(x)))
                values = self.matrix(x[rows], x[columns])
                yield rows, columns, values, values


class _Across(Tiled):
    """A kernel of one sample for the pairs that take a point from each of two disjoint blocks."""

    def __init__(self, within: TiledPairs) -> None:
        self._within, self.name, self.tile = within, within.name, within.tile

    def ready(self, x: Points, z: Points) -> tuple[Points, Points]:
        return self._within.ready(x, z)

    def matrix(self, x: Points, y: Points) -> Floats:
        return self._within.matrix(x, y)


def tiles(
    evaluate: Callable[[Points, Points], Floats], x: Points, z: Points, side: int
) -> Iterator[tuple[slice, slice, Floats]]:
    """Yield the matrix h(x_k, z_l) of a block in square tiles: the rows, the columns, and the values there."""
    for i, j in itertools.product(range(0, len(x), side), range(0, len(z), side)):
        rows, columns = slice(i, i + side), slice(j, j + side)
        yield rows, columns, evaluate(x[rows], z[columns])


class _PairMargins:
    """What the values of h on parts of a layout of pairs add up to, part by part.

    Σ (h - h̄)² is put together from the parts' own: with c_t values of mean h̄_t in part t it is
    Σ_t [Σ (h - h̄_t)² + c_t (h̄_t - h̄)²], in which nothing cancels.
    """

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._inside: list[float] = []
        self._sizes: list[int] = []

    def add(self, values: Floats) -> None:
        """Take the values of a part."""
        self._sums.append(float(np.sum(values)))
        self._sizes.append(values.size)
        self._inside.append(float(np.sum((values - self._sums[-1] / values.size) ** 2)))

    def meeting(self, *of_points: Floats) -> Meeting:
        """Return the sum of all values, Σ (h - h̄)², and the sums of each point."""
        total, n_pairs = add(self._sums), sum(self._sizes)
        mean = total / n_pairs
        between = [size * (value / size - mean) ** 2 for value, size in zip(self._sums, self._sizes, strict=True)]
        return Meeting((PairSum(total, n_pairs),), of_points, np.array([[add(self._inside + between)]]))
