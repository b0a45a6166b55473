"""Arrays in files: what every format that holds arrays offers of each."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

ROWS_AT_A_TIME = 1 << 16
"""Rows that are read at once, so that copies stay small."""


class StoredArray(Protocol):
    """An array of one or two dimensions in a file."""

    shape: tuple[int, ...]
    holds: str
    rows_at_a_time: int | None
    """How many rows to read at once, to keep copies small; None: all, because reading on means starting afresh."""

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        """Return rows ``first:last`` of columns ``left:right``, as a 2-d array."""


def holds(dtype: np.dtype[Any]) -> str:
    """Return what a column of this type holds, as `Column.holds` says it."""
    if dtype.kind in "biuf":
        return "numbers"
    if dtype.kind in "US":
        return "text"
    return "Python objects" if dtype.kind == "O" else f"values of type {dtype}"
