"""The logistic loss: no sum over pairs of scores is shorter than the pairs."""

from __future__ import annotations

import numpy as np

from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.numerics.types import Floats

_LARGEST_EXPONENT = 700.0  # exp of it is finite, and 1/(1 + exp) of it is 0 beside any other term


class Logistic(Loss):
    """φ(u) = log(1 + exp(-u)), φ'(u) = -1/(1 + exp(u)); it has no margin."""

    name = "logistic"

    def values(self, u: Floats) -> Floats:
        """Return log(1 + exp(-u)), for any u without overflow."""
        found: Floats = np.log1p(np.exp(-np.abs(u))) - np.minimum(u, 0.0)
        return found

    def slopes(self, u: Floats) -> Floats:
        """Overwrite u by 1/(1 + exp(u))."""
        np.minimum(u, _LARGEST_EXPONENT, out=u)
        np.exp(u, out=u)
        u += 1.0
        np.divide(1.0, u, out=u)
        return u
