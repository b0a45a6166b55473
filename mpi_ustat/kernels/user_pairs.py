"""Kernels h(x, z) of two-sample U-statistics, each with its reductions over blocks and over sampled pairs.

A kernel sums; what the sums are divided by is the caller's. Sums are `scale` times the sum of h: the AUC kernel takes
half-integers, so with ``scale = 2`` its sums are Python integers, exact at any size and in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.auc_columns import auc_columns_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import UNIT, Array, Local, OfMatrix, OnePart, PairSum, Points, Total, as_rows
from mpi_ustat.kernels.layouts import (
    auc_local,
    auc_margins,
    gini_components,
    product_components,
    tiled_layout,
    tiled_margins,
    tiles,
)
from mpi_ustat.numerics.rankstat import absolute_difference_sum, count_wins
from mpi_ustat.user.guards import read_only, real_numbers

BlockFunction = Callable[[Points, Points], NDArray[np.float64]]

DEFAULT_TILE = 128  # matrices of 128 KiB stay in a core's cache; larger ones cost a page fault each time
_PAIRS_TILE = 8


class AUC(OnePart):
    """h(x, z) = 1{z < x} + ½·1{z = x}: U_n is the area under the ROC curve, x being the scores of the positives.

    With ``ties="strict"`` ties count 0, the paper's kernel (Section 2, eq. for the AUC).

    Several scores of the same points are `columns`, each with an AUC and a part of its own: points have shape (n, q).
    """

    name = "auc"
    scale = 2
    complete_route = "ranges"
    allows_infinite = True
    limits = UNIT
    projection_rows = 20_000

    def __init__(self, ties: str = "half", columns: int = 1) -> None:
        if ties not in ("half", "strict"):
            raise UserError(f"ties must be half or strict, not {ties!r}")
        if columns < 1:
            raise UserError(f"an AUC needs at least one column of scores, not {columns}")
        self.ties = ties
        self.n_coordinates = self.n_parts = columns

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Return each column's sum over all pairs of the blocks."""
        x, z = blocks
        return tuple(PairSum(self.block_total(a, b), len(x) * len(z)) for a, b in _columns(x, z))

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Return each column's sum over aligned pairs."""
        x, z = points
        return tuple(PairSum(self.pairs_total(a, b), len(x)) for a, b in _columns(x, z))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, from integer counts."""
        x, z = blocks
        n, m, half = len(x), len(z), self.ties == "half"
        if min(n, m) < 2:
            return Local(self.block_sums(x, z), None)
        if x.ndim > 1:
            return Local(self.block_sums(x, z), auc_columns_components(x, z, half))
        return auc_local(auc_margins(np.sort(x), np.sort(z), half), n, m, half)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Array:
        """Return the shares of the others, of the other class, that each point wins against (k = 0) or loses to."""
        half, against = self.ties == "half", as_rows(others[1 - k])
        found = np.empty((len(points), self.n_parts))
        for j, scores in enumerate(as_rows(points).T):
            ordered = np.sort(against[:, j])
            below, up_to = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
            wins = below if k == 0 else len(ordered) - up_to
            found[:, j] = (wins + (0.5 * (up_to - below) if half else 0.0)) / len(ordered)
        return found

    def block_total(self, x: Points, z: Points) -> int:
        """Return twice the number of pairs won, plus the number tied, in O(n log n)."""
        return self.sorted_total(np.sort(x), np.sort(z))

    def sorted_total(self, x: Points, z: Points) -> int:
        """Return `block_total` of blocks that are sorted already."""
        wins, ties = count_wins(x, z)
        return 2 * wins + (ties if self.ties == "half" else 0)

    def pairs_total(self, x: Points, z: Points) -> int:
        """Return twice the number of pairs won, plus the number tied."""
        wins = 2 * int(np.count_nonzero(z < x))
        return wins + int(np.count_nonzero(z == x)) if self.ties == "half" else wins


def _columns(x: Points, z: Points) -> Iterator[tuple[Points, Points]]:
    return zip(as_rows(x).T, as_rows(z).T, strict=True)


class Product(OfMatrix):
    """h(x, z) = x·z, the inner product for points of several coordinates: U_n is the product of the means."""

    name = "product"
    complete_route = "sums"

    def block_total(self, x: Points, z: Points) -> float:
        """Return (Σ x)·(Σ z) in O(n + m)."""
        return float(np.sum(x.sum(axis=0) * z.sum(axis=0)))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, in O(n + m)."""
        x, z = blocks
        return Local(self.block_sums(x, z), product_components(x, z) if min(len(x), len(z)) > 1 else None)

    def matrix(self, x: Points, y: Points) -> Array:
        """Return x·z for all pairs."""
        return as_rows(x) @ as_rows(y).T

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b x_b·z_b."""
        return float(np.sum(x * z))


class Gini(OfMatrix):
    """h(x, z) = |x - z|: the two-sample Gini mean difference, in the unit of the points."""

    name = "gini"
    limits = (0.0, math.inf)
    complete_route = "ranges"
    n_coordinates = 1

    def block_total(self, x: Points, z: Points) -> float:
        """Return Σ_kl |x_k - z_l| in O(n log n)."""
        return absolute_difference_sum(np.sort(x), np.sort(z))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, in O(n log n)."""
        x, z = (np.sort(block) for block in blocks)
        return Local(self.block_sums(x, z), gini_components(x, z) if min(len(x), len(z)) > 1 else None)

    def matrix(self, x: Points, y: Points) -> Array:
        """Return |x - z| for all pairs."""
        return np.abs(np.subtract.outer(x, y))

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b |x_b - z_b|."""
        return float(np.sum(np.abs(x - z)))


class UserKernel(OfMatrix):
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

    complete_route = "ring"
    allows_infinite = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        if tile < 1:
            raise UserError(f"the tile side must be at least 1, not {tile}")
        self.function = function
        self.name = name
        self.tile = tile
        if getattr(function, "bounded", False):
            self.limits = UNIT

    def block_total(self, x: Points, z: Points) -> Total:
        """Return Σ_kl h(x_k, z_l), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(h)) for _, _, h in tiles(self.matrix, *fixed_rows(x, z), self.tile))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, from one evaluation of every pair."""
        x, z = blocks
        if min(len(x), len(z)) < 2:
            return Local(self.block_sums(x, z), None)
        total, components = tiled_layout(self.matrix, *fixed_rows(x, z), self.tile)
        return Local((PairSum(total, len(x) * len(z)),), components)

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        x, z = fixed_rows(x, z)
        aligned = getattr(self.function, "pairs", None)
        if aligned is not None:
            return float(np.sum(checked_values(self.name, aligned(x, z), (len(x),))))
        return math.fsum(
            float(np.trace(self.matrix(x[i : i + _PAIRS_TILE], z[i : i + _PAIRS_TILE])))
            for i in range(0, len(x), _PAIRS_TILE)
        )

    def margins(self, *blocks: Points) -> tuple[tuple[PairSum, ...], tuple[Array, ...], Array]:
        """Return what `complete.ring.HasMargins` asks for."""
        x, z = blocks
        return tiled_margins(self.matrix, *fixed_rows(x, z), self.tile)

    def matrix(self, x: Points, y: Points) -> Array:
        """Return h for all pairs."""
        return checked_values(self.name, self.function(*fixed_rows(x, y)), (len(x), len(y)))


def fixed_rows(x: Points, y: Points) -> tuple[Points, Points]:
    """Return two blocks as rows that a user's function can't write to."""
    return read_only(as_rows(x)), read_only(as_rows(y))


def checked_values(name: str, values: object, shape: tuple[int, ...]) -> Array:
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
