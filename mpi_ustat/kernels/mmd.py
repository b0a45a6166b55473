"""The unbiased squared maximum mean discrepancy of two samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import STANDARDIZE, Discrepancy, squared
from mpi_ustat.kernels.kernel import Data, Points, as_rows, inner_products, refuse_close
from mpi_ustat.kernels.options import Option
from mpi_ustat.numerics.types import Floats

KERNEL = Option(
    "kernel",
    "kernel of the MMD",
    "gaussian",
    choices=("gaussian", "laplace", "linear"),
    label="the MMD's kernel",
    flag="mmd-kernel",
)
MEDIAN = "median"
BANDWIDTH = Option(
    "bandwidth",
    "width of the Gaussian kernel exp(-|x-y|²/2W²) and Laplace's exp(-|x-y|/W), |x-y| Euclidean; median: that of the "
    "distances between up to 1000 random points of both samples together; for a test also a list, W,W",
    1.0,
    float,
    label="the bandwidth",
    metavar="W",
    words=(MEDIAN,),
    several=True,
)

MEDIAN_POINTS = 1000
"""Points whose distances have the median: 499 500 distances."""

_SMALLEST, _LARGEST = 1e-150, 1e150
_SQUARED = 400  # points whose range has an exponent up to this have distances whose squares are doubles


class MMD(Discrepancy):
    """The squared maximum mean discrepancy E k(X, X') + E k(Z, Z') - 2 E k(X, Z) (Gretton and others, 2012).

    Parameters
    ----------
    kernel : {"gaussian", "laplace", "linear"}
        k(a, b) = exp(-|a - b|²/(2 bandwidth²)), exp(-|a - b|/bandwidth), or a·b, for which the statistic estimates
        |E X - E Z|². |a - b| is the Euclidean distance.
    bandwidth : float or "median"
        In the unit of the points, of the Gaussian and Laplace's kernel; or the median of the distances of some points
        (`fitted`).
    standardize : {"none", "sd", "iqr"}
        See `Kernel`.
    """

    name = "mmd"
    options = (KERNEL, BANDWIDTH, STANDARDIZE)

    def __init__(
        self,
        kernel: str = KERNEL.default,
        bandwidth: float | str = BANDWIDTH.default,
        standardize: str = STANDARDIZE.default,
    ) -> None:
        self.kernel = KERNEL.checked(kernel)
        self.standardize = STANDARDIZE.checked(standardize)
        self.wants_centre = kernel == "linear"
        self.bandwidth = BANDWIDTH.checked(bandwidth)
        if isinstance(self.bandwidth, str):
            if kernel == "linear":
                raise UserError("the linear kernel of the MMD has no bandwidth: leave it out")
            self._factor = math.nan  # there is no value before it is fitted
            return
        if not _SMALLEST <= self.bandwidth <= _LARGEST:
            raise UserError(f"the bandwidth must be a positive number from 1e-150 to 1e150, not {bandwidth}")
        self._factor = -0.5 / self.bandwidth**2 if kernel == "gaussian" else -1.0 / self.bandwidth

    def fitted(self, data: Data) -> MMD:
        """Return the kernel whose bandwidth is the median distance between points of both samples together.

        Raises
        ------
        UserError
            If that is 0, or no bandwidth.
        """
        if not isinstance(self.bandwidth, str):
            return self
        some = data.some(MEDIAN_POINTS)
        median = median_distance(as_rows(some))
        if median == 0.0:
            raise UserError(
                f"half or more of the distances between {len(some)} of the points are 0, and so is their median: give "
                "a number as the bandwidth"
            )
        if not _SMALLEST <= median <= _LARGEST:
            raise UserError(
                f"the median distance of the points is {median:.3g}, which is no bandwidth: rescale the points"
            )
        fitted = MMD(self.kernel, median, self.standardize)
        fitted.learnt = MappingProxyType({"bandwidth": median, "bandwidth_points": len(some)})
        return fitted

    def fill(self, left: Points, right: Points, out: Floats) -> None:
        """Write k of all pairs; distances from differences, as for the energy distance."""
        if self.kernel == "linear":
            inner_products(left, right, out)
            return
        self._distances(left, right, out)
        out *= self._factor
        np.exp(out, out=out)

    @classmethod
    def fill_each(
        cls, kernels: Sequence[MMD], left: Points, right: Points, out: Floats, spare: Floats
    ) -> Iterator[Floats]:
        """Yield k of all pairs by kernels that differ in their bandwidths, from distances that are found once."""
        if len(kernels) == 1 or len({kernel.kernel for kernel in kernels}) > 1 or kernels[0].kernel == "linear":
            yield from super().fill_each(kernels, left, right, out, spare)
            return
        kernels[0]._distances(left, right, spare)
        for kernel in kernels:
            np.multiply(spare, kernel._factor, out=out)
            np.exp(out, out=out)
            yield out

    def _distances(self, left: Points, right: Points, out: Floats) -> None:
        """Write what k is a function of: squared distances, or distances."""
        from scipy.spatial.distance import cdist

        cdist(left, right, "sqeuclidean" if self.kernel == "gaussian" else "euclidean", out=out)

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points so near to each other that their squares vanish; the others have none of their unit."""
        if self.kernel == "linear":
            refuse_close(low, high, 2.0**-510)

    def aligned(self, left: Points, right: Points) -> Floats:
        """Return k of aligned pairs."""
        if self.kernel == "linear":
            return np.asarray(np.einsum("ij,ij->i", left, right))
        found = squared(left - right)
        return np.asarray(np.exp(self._factor * (found if self.kernel == "gaussian" else np.sqrt(found))))

    def bound(self, low: Floats, high: Floats) -> float:
        """Return 1, or the largest squared norm in the box."""
        largest = math.hypot(*np.maximum(-low, high).tolist())
        return largest * largest if self.kernel == "linear" else 1.0


def median_distance(points: Floats) -> float:
    """Return the median of the Euclidean distances between all points, (n, d)."""
    from scipy.spatial.distance import pdist

    if len(points) < 2:
        return 0.0
    low, high = points.min(axis=0), points.max(axis=0)
    exponent = math.frexp(float(np.max(high / 2.0 - low / 2.0)))[1]
    if abs(exponent) <= _SQUARED:
        return float(np.median(pdist(points)))
    with np.errstate(over="ignore"):  # what is no double is no bandwidth either
        return float(np.ldexp(np.median(pdist(np.ldexp(points / 2.0 - low / 2.0, -exponent))), exponent + 1))
