"""The logistic loss: no sum over pairs of scores is shorter than the pairs."""

from __future__ import annotations

import numpy as np

from mpi_ustat.learning.losses.loss import Array, Loss

_LARGEST_EXPONENT = 700.0  # exp of it is finite, and 1/(1 + exp) of it is 0 beside any other term


class Logistic(Loss):
    """φ(u) = log(1 + exp(-u)), φ'(u) = -1/(1 + exp(u)); it has no margin."""

    name = "logistic"

    def values(self, u: Array) -> Array:
        """Return log(1 + exp(-u)), for any u without overflow."""
        found: Array = np.log1p(np.exp(-np.abs(u))) - np.minimum(u, 0.0)
        return found

    def slopes(self, u: Array) -> Array:
        """Overwrite u by 1/(1 + exp(u))."""
        np.minimum(u, _LARGEST_EXPONENT, out=u)
        np.exp(u, out=u)
        u += 1.0
        np.divide(1.0, u, out=u)
        return u
