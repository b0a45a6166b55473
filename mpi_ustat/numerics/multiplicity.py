"""What a point may count: as a weight, or as often as it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Flags

WEIGHTS_MUST = "weights must be finite and not negative"
COUNTS_MUST = "counts must be whole numbers from 0 on"

_MOST_TIMES = 2**53  # up to which doubles hold all whole numbers


def are_weights(values: NDArray[Any]) -> Flags:
    """Tell which numbers can be weights."""
    return np.asarray(np.isfinite(values) & (values >= 0))


def are_counts(values: NDArray[Any]) -> Flags:
    """Tell which numbers can be counts."""
    return np.asarray((values >= 0) & (values < _MOST_TIMES) & (np.rint(values) == values))
