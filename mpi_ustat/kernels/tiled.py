"""Kernels of two samples that write h for all pairs of two small blocks: of these tiles all else is made."""

from __future__ import annotations

import math

import numpy as np

from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Local, Meeting, OfMatrix, PairSum, Points, Total
from mpi_ustat.kernels.layouts import tiled_layout, tiled_margins, tiles

DEFAULT_TILE = 128  # matrices of 128 KiB stay in a core's cache; larger ones cost a page fault each time
_PAIRS_TILE = 8


class Tiled(OfMatrix):
    """A kernel that is evaluated tile by tile, in bounded memory: a class that has `matrix` is whole.

    Aligned pairs are read off the diagonal of small square tiles, at eight evaluations of h a pair: `pairs_total` is
    worth writing.
    """

    tile = DEFAULT_TILE
    has_margins = True

    def block_total(self, x: Points, z: Points) -> Total:
        """Return Σ_kl h(x_k, z_l), tile by tile; the tiles' sums are added without rounding."""
        return add(float(np.sum(h)) for _, _, h in tiles(self.matrix, *self.ready(x, z), self.tile))

    def pairs_total(self, x: Points, z: Points) -> Total:
        """Return Σ_b h(x_b, z_b) over aligned pairs."""
        x, z = self.ready(x, z)
        return math.fsum(
            float(np.trace(self.matrix(x[i : i + _PAIRS_TILE], z[i : i + _PAIRS_TILE])))
            for i in range(0, len(x), _PAIRS_TILE)
        )

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, from one evaluation of every pair."""
        x, z = blocks
        if min(len(x), len(z)) < 2:
            return Local(self.block_sums(x, z), None)
        total, components = tiled_layout(self.matrix, *self.ready(x, z), self.tile)
        return Local((PairSum(total, len(x) * len(z)),), components)

    def margins(self, *blocks: Points) -> Meeting:
        """Return what the pairs across two blocks add up to, for each point too."""
        return tiled_margins(self.matrix, *self.ready(*blocks), self.tile)
