"""Kernels of pairs that a user gives as a function of two blocks: of two samples, or of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import UNIT, Local, Meeting, Points, Total, as_rows
from mpi_ustat.kernels.layouts import PairMargins, tiles
from mpi_ustat.kernels.one_sample import FEWEST, OneSampleKernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE, Tiled
from mpi_ustat.numerics.types import Floats
from mpi_ustat.user.guards import read_only, real_numbers, refuse_asymmetric

BlockFunction = Callable[[Points, Points], Floats]


_PAIRS_TILE = 8


class UserKernel(Tiled):
    """A kernel given as a function of two blocks.

    Parameters
    ----------
    function : callable
        Takes blocks of shapes (a, d) and (b, d), which it can't write to, and returns h for all their pairs, shape
        (a, b). If it has an attribute
        `pairs`, a function of two (B, d) arrays that returns h for the B aligned pairs, sampled pairs use that;
        without it they are read off the diagonal of small square tiles, at eight evaluations of h a pair. An attribute
        `bounded` that is true says that h lies in [0, 1].
    name : str
        What messages and results call it.
    tile : int
        Side of the square tiles in which a block is evaluated: memory stays at 8·tile² bytes a matrix.
    """

    allows_infinite = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        if tile < 1:
            raise UserError(f"the tile side must be at least 1, not {tile}")
        self.function = function
        self.name = name
        self.tile = tile
        if getattr(function, "bounded", False):
            self.limits = UNIT

    def ready(self, x: Points, z: Points) -> tuple[Points, Points]:
        """Return rows that the function can't write to."""
        return fixed_rows(x, z)

    def pairs_total(self, x: Points, z: Points) -> Total:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        aligned = getattr(self.function, "pairs", None)
        if aligned is None:
            return super().pairs_total(x, z)
        return float(np.sum(checked_values(self.name, aligned(*fixed_rows(x, z)), (len(x),))))

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs."""
        return checked_values(self.name, self.function(*fixed_rows(x, y)), (len(x), len(y)))


class UserPairs(OneSampleKernel):
    """A kernel of two points of one sample, given as a function of two blocks.

    The function must be symmetric, h(x, y) = h(y, x), because the order in which the points of a pair come depends on
    where they lie: `check_points` refuses it where a few points show that it isn't. What it returns for a point and
    itself is not used, and may be anything; not so for the copies of a point that a block drawn with replacement has.

    Parameters
    ----------
    function, name, tile
        As of `UserKernel`.
    """

    allows_infinite = True
    has_margins = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        self.across: UserKernel = UserKernel(function, name, tile)
        self.function = function
        self.name = name
        self.tile = tile
        self.limits = self.across.limits

    def block_total(self, x: Points) -> Total:
        """Return Σ_{i<j} h(x_i, x_j), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(pairs)) for *_, pairs in self._tiles(read_only(as_rows(x))))

    def pairs_total(self, x: Points, y: Points) -> Total:
        """Return Σ_b h(x_b, y_b) over aligned pairs."""
        x, y = fixed_rows(x, y)
        if hasattr(self.function, "pairs"):
            return self.across.pairs_total(x, y)
        return add(
            float(np.sum(self._diagonal(x[i : i + _PAIRS_TILE], y[i : i + _PAIRS_TILE])))
            for i in range(0, len(x), _PAIRS_TILE)
        )

    def local(self, x: Points) -> Local:  # type: ignore[override]
        """Return the sum over all pairs, and ζ₁ and δ from 4 points on; every pair is evaluated once."""
        n = len(x)
        if n < FEWEST:
            return Local(self.block_sums(x), None)
        sums, (of_points,), squares = self.margins(x)
        mean = sums[0].total / sums[0].n_pairs
        rows_squares = float(np.sum((of_points[:, 0] / (n - 1) - mean) ** 2))
        return Local(sums, one_sample_components(n, rows_squares, squares))

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs of two blocks, 0 where a block's point meets itself, of which h may be anything."""
        values = np.array(self._values(*fixed_rows(x, y)))  # a copy, which may be written to
        if x is y and values.ndim == 2:
            np.fill_diagonal(values, 0.0)
        return checked_values(self.name, values, (len(x), len(y)))

    def check_points(self, blocks: Sequence[Points], stream: Any) -> None:
        """Refuse a function that is not symmetric, by all pairs of a few points."""
        x = read_only(as_rows(blocks[0]))
        values = np.zeros((len(x), len(x)))
        for rows, columns, h in tiles(self._values, x, x, self.tile):
            if h.shape != values[rows, columns].shape:
                return  # which its evaluation refuses
            values[rows, columns] = h
        np.fill_diagonal(values, 0.0)
        refuse_asymmetric(self.name, values, values.T)
        aligned = getattr(self.function, "pairs", None)
        if aligned is not None:
            both = (x[1:], x[:-1]), (x[:-1], x[1:])
            ways = [real_numbers(f"the kernel {self.name}", aligned(*pair)) for pair in both]
            if all(way.shape == (len(x) - 1,) for way in ways):
                refuse_asymmetric(self.name, *ways)

    def margins(self, *blocks: Points) -> Meeting:
        """Return what the pairs add up to, for each point too."""
        if len(blocks) == 2:
            return self.across.margins(*blocks)
        x = read_only(as_rows(blocks[0]))
        of_points, found = np.zeros((len(x), 1)), PairMargins()
        for rows, columns, values, pairs in self._tiles(x):
            of_points[rows, 0] += values.sum(axis=1)
            of_points[columns, 0] += values.sum(axis=0)
            found.add(pairs)
        whole, squares = found.result()
        return Meeting((whole,), (of_points,), np.array([[squares]]))

    def _tiles(self, x: Points) -> Iterator[tuple[slice, slice, Floats, Floats]]:
        """Yield the upper triangle of tiles: rows, columns, h with 0 where i >= j, and the values with i < j."""
        starts = range(0, len(x), self.tile)
        for i in starts:
            rows = slice(i, min(i + self.tile, len(x)))
            if rows.stop - i > 1:
                values = self._values(x[rows], x[rows])
                # Zeros in the place of h(x, x), before it is checked that the values are finite.
                values = np.triu(values, 1) if values.ndim == 2 else values
                values = checked_values(self.name, values, (rows.stop - i,) * 2)
                yield rows, rows, values, values[np.triu_indices(rows.stop - i, 1)]
            for j in starts[i // self.tile + 1 :]:
                columns = slice(j, min(j + self.tile, len(x)))
                values = self.across.matrix(x[rows], x[columns])
                yield rows, columns, values, values

    def _values(self, x: Points, y: Points) -> Floats:
        return real_numbers(f"the kernel {self.name}", self.function(x, y))

    def _diagonal(self, x: Points, y: Points) -> Floats:
        """Return h of aligned pairs from a square tile, whose other values may be of a point with itself."""
        values = self._values(x, y)
        square = (len(x), len(x))
        if values.shape == square:
            return checked_values(self.name, np.diagonal(values), (len(x),))
        return checked_values(self.name, values, square)


def fixed_rows(x: Points, y: Points) -> tuple[Points, Points]:
    """Return two blocks as rows that a user's function can't write to."""
    return read_only(as_rows(x)), read_only(as_rows(y))


def checked_values(name: str, values: object, shape: tuple[int, ...]) -> Floats:
    """Return what a user's kernel gave, as doubles.

    Raises
    ------
    UserError
        If it holds anything but finite real numbers, or has another shape.
    """
    array = real_numbers(f"the kernel {name}", values)
    if array.shape != shape:
        raise UserError(f"the kernel {name} returned shape {array.shape} instead of {shape}: mend the kernel")
    if not np.isfinite(array).all():
        raise UserError(f"the kernel {name} returned a value that is not finite: mend it or the points that cause it")
    return array
