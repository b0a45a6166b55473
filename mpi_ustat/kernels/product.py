"""The product of two samples' means."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_ustat.inference.components import k_sample_components
from mpi_ustat.kernels.kernel import Local, OfMatrix, Points, as_rows
from mpi_ustat.kernels.route import Route, ranges_of_rows
from mpi_ustat.numerics.types import Floats


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
        """Return `block_sums` and the components, in O(n + m).

        With x' = x - x̄ and z' = z - z̄, x·z - x̄·z̄ = x'·z̄ + x̄·z' + x'·z': row effects, column effects and residuals,
        whose squares are sums of squares of their own,

            SS_rows = m Σ_k (x'_k·z̄)²,   SS_columns = n Σ_l (x̄·z'_l)²,
            SS_residual = Σ_kl (x'_k·z'_l)² = Σ_ab S_ab S'_ab,

        with S = Σ_k x'_k x'_kᵀ and S' the same of z. Nothing is subtracted after squaring, so the residual keeps its
        digits however large the means are.
        """
        sums = self.block_sums(*blocks)
        x, z = map(as_rows, blocks)
        if min(len(x), len(z)) < 2:
            return Local(sums, None)
        mean_x, mean_z = x.mean(axis=0), z.mean(axis=0)
        x, z = x - mean_x, z - mean_z
        rows, columns = x @ mean_z, z @ mean_x
        squares = {
            (0,): len(z) * (rows @ rows),
            (1,): len(x) * (columns @ columns),
            (0, 1): np.vdot(x.T @ x, z.T @ z),
        }
        return Local(sums, k_sample_components((len(x), len(z)), squares))

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return x·z for all pairs."""
        return as_rows(x) @ as_rows(y).T

    def pairs_total(self, x: Points, z: Points) -> float:
        """Return Σ_b x_b·z_b."""
        return float(np.sum(x * z))
