"""The energy distance of two samples."""

from __future__ import annotations

import math

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import STANDARDIZE, Discrepancy, squared
from mpi_ustat.kernels.kernel import Data, Points, refuse_close
from mpi_ustat.kernels.options import Option
from mpi_ustat.numerics.types import Floats

ALPHA = Option(
    "alpha", "exponent of the distances, above 0, up to 2", 1.0, float, label="the exponent alpha", metavar="A"
)

_NEAREST = 2.0**-480  # below it what underflows in squares is more than rounding beside the largest distance
_SQUARED = 400  # points whose range has an exponent up to this have distances whose squares are doubles
_LARGEST = 1000
_SMALLEST = -960


class EnergyDistance(Discrepancy):
    """2 E|X - Z|^α - E|X - X'|^α - E|Z - Z'|^α with Euclidean distances, in the points' unit^α (Székely and Rizzo).

    For α < 2 it is zero for equal distributions only, if they have a mean of |X|^α; for α = 2 it is 2 |E X - E Z|².

    Parameters
    ----------
    alpha : float
        α, in (0, 2].
    standardize : {"none", "sd", "iqr"}
        See `Kernel`.
    exponent : int
        Distances are found in the unit 2^exponent, which loses no bit, so that none of their squares under- or
        overflows.
    """

    name = "energy"
    options = (ALPHA, STANDARDIZE)
    sign = -1

    def __init__(
        self, alpha: float = ALPHA.default, standardize: str = STANDARDIZE.default, *, exponent: int = 0
    ) -> None:
        if not 0.0 < alpha <= 2.0:
            raise UserError(f"the exponent alpha must be a number above 0 and up to 2, not {alpha}")
        self.alpha = float(alpha)
        self.standardize = STANDARDIZE.checked(standardize)
        self._exponent = exponent
        power = exponent * self.alpha
        self._unit = 2.0**power if power < 1024.0 else math.inf

    def fitted(self, data: Data) -> EnergyDistance:
        """Return the distance in a unit of the size of the points' range, if that is a very small or large number."""
        low, high = data.ends()
        exponent = math.frexp(float(np.max(high / 2.0 - low / 2.0, initial=0.0)))[1]
        farthest = math.frexp(float(np.max(np.maximum(-low, high), initial=0.0)))[1]
        if abs(exponent) <= _SQUARED or farthest - exponent > _LARGEST:
            return self
        return EnergyDistance(self.alpha, self.standardize, exponent=exponent)

    def fill(self, left: Points, right: Points, out: Floats) -> None:
        """Write distances, from differences of coordinates.

        |a|² + |b|² - 2 a·b would be quicker, and loses close points that are far from the origin.
        """
        from scipy.spatial.distance import cdist

        if self._exponent:
            left, right = np.ldexp(left, -self._exponent), np.ldexp(right, -self._exponent)
        cdist(left, right, "sqeuclidean" if self.alpha == 2.0 else "euclidean", out=out)
        if self.alpha not in (1.0, 2.0):
            np.power(out, self.alpha, out=out)
        if self._exponent:
            out *= self._unit

    def aligned(self, left: Points, right: Points) -> Floats:
        """Return distances."""
        if self._exponent:
            left, right = np.ldexp(left, -self._exponent), np.ldexp(right, -self._exponent)
        found = squared(left - right)
        if self.alpha != 2.0:
            found = np.sqrt(found)
        if self.alpha not in (1.0, 2.0):
            found = found**self.alpha
        return np.asarray(found * self._unit if self._exponent else found)

    def check_range(self, low: Floats, high: Floats) -> None:
        """Refuse points so near to each other that their distances vanish, or squares of these that are needed."""
        least = 2.0 ** max(_SMALLEST / self.alpha, -_LARGEST) if self._exponent else _NEAREST
        refuse_close(low, high, least)

    def bound(self, low: Floats, high: Floats) -> float:
        """Return the power of the diagonal of the box."""
        try:
            return math.pow(math.dist(low.tolist(), high.tolist()), self.alpha)
        except OverflowError:
            return math.inf
