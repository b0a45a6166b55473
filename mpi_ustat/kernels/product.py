"""The product of two samples' means."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_ustat.kernels.kernel import Array, Local, OfMatrix, Points, as_rows
from mpi_ustat.kernels.layouts import product_components
from mpi_ustat.kernels.route import Route, ranges_of_rows


class Product(OfMatrix):
    """h(x, z) = x·z, the inner product for points of several coordinates: U_n is the product of the means."""

    name = "product"
    complete_route = Route("sums", "mpi_ustat.complete.sums:sums", ranges_of_rows)
    influence_route = "mpi_ustat.influence.product:product"

    def influence_options(self) -> dict[str, Any]:
        """Return none."""
        return {}

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
