"""Kernels of pairs that a user gives as a function of two blocks: of two samples, or of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.kernel import UNIT, Points, Total, as_rows
from mpi_ustat.kernels.tiled import DEFAULT_TILE, ByTiles, Tiled, TiledPairs
from mpi_ustat.numerics.types import Floats
from mpi_ustat.user.guards import called, read_only, real_numbers, refuse_asymmetric

BlockFunction = Callable[[Points, Points], Floats]

_HOW = (
    "it gets blocks of points, (a, columns) and (b, columns), and returns h of all their pairs, (a, b), as "
    "np.abs(x[:, :1] - z[:, 0]) does; np.where takes the place of if, and np.vectorize(h, signature='(d),(d)->()')("
    "x[:, None], z) calls an h of two points for each pair, slowly"
)
_HOW_ALIGNED = "its attribute pairs gets two arrays of B points, (B, columns), and returns h of the B pairs, (B,)"


class _OfFunction(ByTiles):
    """What kernels of functions of two blocks have in common."""

    allows_infinite = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        if tile < 1:
            raise UserError(f"the tile side must be at least 1, not {tile}")
        self.function = function
        self.name = name
        self.tile = tile
        self._aligned = getattr(function, "pairs", None)
        if getattr(function, "bounded", False):
            self.limits = UNIT

    def ready(self, x: Points, y: Points) -> tuple[Points, Points]:
        """Return rows that the function can't write to."""
        return read_only(as_rows(x)), read_only(as_rows(y))

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs."""
        return checked_values(self.name, self.values(x, y), (len(x), len(y)), _HOW)

    def values(self, x: Points, y: Points) -> Any:
        """Return the function's values for all pairs."""
        return called(self.name, self.function, self.ready(x, y), _HOW)

    def pairs_total(self, x: Points, z: Points) -> Total:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        if self._aligned is None:
            return super().pairs_total(x, z)
        values = called(self.name, self._aligned, self.ready(x, z), _HOW_ALIGNED)
        return float(np.sum(checked_values(self.name, values, (len(x),), _HOW_ALIGNED)))


class UserKernel(_OfFunction, Tiled):
    """A kernel given as a function of two blocks.

    Parameters
    ----------
    function : callable
        Takes blocks of shapes (a, d) and (b, d), which it can't write to, and returns h for all their pairs, shape
        (a, b). If it has an attribute `pairs`, a function of two (B, d) arrays that returns h for the B aligned pairs,
        sampled pairs use that. An attribute `bounded` that is true says that h lies in [0, 1].
    name : str
        What messages and results call it.
    tile : int
        Side of the square tiles in which a block is evaluated: memory stays at 8·tile² bytes a matrix.
    """


class UserPairs(_OfFunction, TiledPairs):
    """A kernel of two points of one sample, given as a function of two blocks.

    The function must be symmetric, h(x, y) = h(y, x), because the order in which the points of a pair come depends on
    where they lie: `check_points` refuses it where a few points show that it isn't. What it returns for a point and
    itself is not used, and may be anything; not so for the copies of a point that a block drawn with replacement has.

    Parameters
    ----------
    function, name, tile
        As of `UserKernel`.
    """

    def trial(self, x: Points, y: Points) -> Floats:
        """Return the function's values for all pairs, finite or not and of any shape."""
        return real_numbers(f"the kernel {self.name}", self.values(x, y))

    def inside(self, x: Points) -> Floats:
        """Return h for all pairs inside a small block, 0 where i >= j, before it is checked that it is finite."""
        values = self.trial(x, x)
        return checked_values(self.name, np.triu(values, 1) if values.ndim == 2 else values, (len(x), len(x)), _HOW)

    def aligned_values(self, x: Points, y: Points) -> Floats:
        """Return h of aligned pairs from a square tile, whose other values may be of a point with itself."""
        values = self.trial(x, y)
        if values.shape == (len(x), len(x)):
            values = values.diagonal()
            return checked_values(self.name, values, (len(x),), _HOW)
        return checked_values(self.name, values, (len(x), len(x)), _HOW)

    def check_points(self, blocks: Sequence[Points], stream: Any) -> None:
        """Refuse a function that is not symmetric, by all pairs of a few points, and by aligned ones."""
        super().check_points(blocks, stream)
        x, _ = self.ready(blocks[0], blocks[0])
        if self._aligned is not None:
            both = (x[1:], x[:-1]), (x[:-1], x[1:])
            ways = [real_numbers(f"the kernel {self.name}", self._aligned(*pair)) for pair in both]
            if all(way.shape == (len(x) - 1,) for way in ways):
                refuse_asymmetric(self.name, *ways)


def checked_values(name: str, values: object, shape: tuple[int, ...], how: str) -> Floats:
    """Return a user's kernel's values as doubles; refuse all but finite real numbers of that shape, and say `how`."""
    array = real_numbers(f"the kernel {name}", values)
    if array.shape != shape:
        raise UserError(f"the kernel {name} returned shape {array.shape} instead of {shape}: {how}")
    if not np.isfinite(array).all():
        raise UserError(f"the kernel {name} returned a value that is not finite: mend it or the points that cause it")
    return array
