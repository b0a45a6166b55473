"""The energy distance of two samples."""

from __future__ import annotations

import math

import numpy as np

from mpi_ustat.kernels.discrepancy import Discrepancy, squared
from mpi_ustat.kernels.kernel import Points, refuse_close
from mpi_ustat.numerics.types import Floats

_NEAREST = 2.0**-480  # below it what underflows in squares is more than rounding beside the largest distance


class EnergyDistance(Discrepancy):
    """2 E|X - Z| - E|X - X'| - E|Z - Z'| with Euclidean distances, in the unit of the points (Székely and Rizzo).

    Zero for equal distributions only, if they have a mean.
    """

    name = "energy"
    sign = -1

    def fill(self, left: Points, right: Points, out: Floats) -> None:
        """Write distances, from differences of coordinates.

        |a|² + |b|² - 2 a·b would be quicker, and loses close points that are far from the origin.
        """
        from scipy.spatial.distance import cdist

        cdist(left, right, out=out)

    def aligned(self, left: Points, right: Points) -> Floats:
        """Return distances."""
        return np.asarray(np.sqrt(squared(left - right)))

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points so near to each other that squares of their distances vanish."""
        refuse_close(low, high, _NEAREST)

    def bound(self, low: Floats, high: Floats) -> float:
        """Return the diagonal of the box."""
        return math.dist(low.tolist(), high.tolist())
