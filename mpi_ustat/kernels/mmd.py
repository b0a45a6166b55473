"""The unbiased squared maximum mean discrepancy of two samples."""

from __future__ import annotations

import math

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import Discrepancy, squared
from mpi_ustat.kernels.kernel import Points, inner_products, refuse_close
from mpi_ustat.kernels.options import Option
from mpi_ustat.numerics.types import Floats

KERNEL = Option(
    "kernel", "of the MMD", "gaussian", choices=("gaussian", "linear"), label="the MMD's kernel", flag="mmd-kernel"
)
BANDWIDTH = Option(
    "bandwidth", "of the Gaussian kernel exp(-|x-y|²/2W²)", 1.0, float, label="the bandwidth", metavar="W"
)


class MMD(Discrepancy):
    """The squared maximum mean discrepancy E k(X, X') + E k(Z, Z') - 2 E k(X, Z) (Gretton and others, 2012).

    Parameters
    ----------
    kernel : {"gaussian", "linear"}
        k(a, b) = exp(-|a - b|²/(2 bandwidth²)), or a·b, for which the statistic estimates |E X - E Z|².
    bandwidth : float
        In the unit of the points; the Gaussian's only.
    """

    name = "mmd"
    options = (KERNEL, BANDWIDTH)

    def __init__(self, kernel: str = KERNEL.default, bandwidth: float = BANDWIDTH.default) -> None:
        if not 1e-150 <= bandwidth <= 1e150:
            raise UserError(f"the bandwidth must be a positive number from 1e-150 to 1e150, not {bandwidth}")
        self.kernel = KERNEL.checked(kernel)
        self.bandwidth = bandwidth
        self.wants_centre = kernel == "linear"
        self._exponent = -0.5 / bandwidth**2

    def fill(self, left: Points, right: Points, out: Floats) -> None:
        """Write k of all pairs; squared distances from differences, as for the energy distance."""
        if self.kernel == "linear":
            inner_products(left, right, out)
            return
        from scipy.spatial.distance import cdist

        cdist(left, right, "sqeuclidean", out=out)
        out *= self._exponent
        np.exp(out, out=out)

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points so near to each other that their squares vanish; the Gaussian has none of their unit."""
        if self.kernel == "linear":
            refuse_close(low, high, 2.0**-510)

    def aligned(self, left: Points, right: Points) -> Floats:
        """Return k of aligned pairs."""
        if self.kernel == "linear":
            return np.asarray(np.einsum("ij,ij->i", left, right))
        return np.asarray(np.exp(self._exponent * squared(left - right)))

    def bound(self, low: Floats, high: Floats) -> float:
        """Return 1, or the largest squared norm in the box."""
        largest = math.hypot(*np.maximum(-low, high).tolist())
        return 1.0 if self.kernel == "gaussian" else largest * largest
