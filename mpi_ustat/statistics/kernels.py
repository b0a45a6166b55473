"""Kernels h(x, z) of two-sample U-statistics, each with its reductions over blocks and over sampled pairs.

A kernel sums; what the sums are divided by is the caller's. Sums are `scale` times the sum of h: the AUC kernel takes
half-integers, so with ``scale = 2`` its sums are Python integers, exact at any size and in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.statistics.importing import load_named
from mpi_ustat.statistics.kernel import OnePart, Points, as_rows
from mpi_ustat.statistics.rankstat import absolute_difference_sum, count_wins

BlockFunction = Callable[[Points, Points], NDArray[np.float64]]

DEFAULT_TILE = 128  # matrices of 128 KiB stay in a core's cache; larger ones cost a page fault each time
_PAIRS_TILE = 8


class AUC(OnePart):
    """h(x, z) = 1{z < x} + ½·1{z = x}: U_n is the area under the ROC curve, x being the scores of the positives.

    With ``ties="strict"`` ties count 0, the paper's kernel (Section 2, eq. for the AUC).
    """

    name = "auc"
    scale = 2
    complete_route = "ranges"
    allows_infinite = True
    n_coordinates = 1
    bounded = True

    def __init__(self, ties: str = "half") -> None:
        if ties not in ("half", "strict"):
            raise UserError(f"ties must be half or strict, not {ties!r}")
        self.ties = ties

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


class Product(OnePart):
    """h(x, z) = x·z, the inner product for points of several coordinates: U_n is the product of the means."""

    name = "product"
    complete_route = "sums"

    def block_total(self, x: Points, z: Points) -> float:
        """Return (Σ x)·(Σ z) in O(n + m)."""
        return float(np.sum(x.sum(axis=0) * z.sum(axis=0)))

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b x_b·z_b."""
        return float(np.sum(x * z))


class Gini(OnePart):
    """h(x, z) = |x - z|: the two-sample Gini mean difference, in the unit of the points."""

    name = "gini"
    complete_route = "ranges"
    n_coordinates = 1

    def block_total(self, x: Points, z: Points) -> float:
        """Return Σ_kl |x_k - z_l| in O(n log n)."""
        return absolute_difference_sum(np.sort(x), np.sort(z))

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b |x_b - z_b|."""
        return float(np.sum(np.abs(x - z)))


class UserKernel(OnePart):
    """A kernel given as a function of two blocks.

    Parameters
    ----------
    function : callable
        Takes blocks of shapes (a, d) and (b, d), returns h for all their pairs, shape (a, b). If it has an attribute
        `pairs`, a function of two (B, d) arrays that returns h for the B aligned pairs, sampled pairs use that;
        without it they are read off the diagonal of small square tiles, at eight evaluations of h a pair.
    name : str
        What messages and results call it.
    tile : int
        Side of the square tiles in which a block is evaluated: memory stays at 8·tile² bytes a matrix.
    """

    complete_route = "gather"
    allows_infinite = True

    def __init__(self, function: BlockFunction, name: str, tile: int = DEFAULT_TILE) -> None:
        if tile < 1:
            raise UserError(f"the tile side must be at least 1, not {tile}")
        self.function = function
        self.name = name
        self.tile = tile

    def block_total(self, x: Points, z: Points) -> float:
        """Return Σ_kl h(x_k, z_l), tile by tile; the tiles' sums are added without rounding."""
        x, z = as_rows(x), as_rows(z)
        return math.fsum(
            float(np.sum(self._evaluate(x[i : i + self.tile], z[j : j + self.tile])))
            for i in range(0, len(x), self.tile)
            for j in range(0, len(z), self.tile)
        )

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        x, z = as_rows(x), as_rows(z)
        aligned = getattr(self.function, "pairs", None)
        if aligned is not None:
            return float(np.sum(self._check(aligned(x, z), (len(x),))))
        return math.fsum(
            float(np.trace(self._evaluate(x[i : i + _PAIRS_TILE], z[i : i + _PAIRS_TILE])))
            for i in range(0, len(x), _PAIRS_TILE)
        )

    def _evaluate(self, x: Points, z: Points) -> NDArray[np.float64]:
        return self._check(self.function(x, z), (len(x), len(z)))

    def _check(self, values: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
        array = np.asarray(values, dtype=np.float64)
        if array.shape != shape:
            raise UserError(f"the kernel {self.name} returned shape {array.shape} instead of {shape}: mend the kernel")
        if not np.isfinite(array).all():
            raise UserError(
                f"the kernel {self.name} returned a value that is not finite: mend it or the points that cause it"
            )
        return array


#: The kernels that go by a name.
KERNELS: dict[str, Callable[[], OnePart]] = {"auc": AUC, "product": Product, "gini": Gini}


def make_kernel(kernel: str | BlockFunction | OnePart, *, ties: str = "half", tile: int = DEFAULT_TILE) -> OnePart:
    """Return the kernel of that name, at ``module:function``, or made from a function of two blocks.

    Raises
    ------
    UserError
        If there is no such kernel, module or function.
    """
    if not isinstance(kernel, str):
        if isinstance(kernel, OnePart):
            return kernel
        return UserKernel(kernel, getattr(kernel, "__name__", "user kernel"), tile)
    if kernel == "auc":
        return AUC(ties)
    if kernel in KERNELS:
        return KERNELS[kernel]()
    function = load_named("kernel", kernel, ", ".join(KERNELS))
    if not callable(function):
        raise UserError(f"the kernel {kernel} is not a function: give one of two blocks of points")
    return UserKernel(function, kernel, tile)
