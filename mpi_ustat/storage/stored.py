"""Arrays in files: what every format that holds arrays offers of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS_AT_A_TIME = 1 << 16
"""Rows that are read at once, so that copies stay small."""


class StoredArray:
    """An array of one or two dimensions in a file."""

    shape: tuple[int, ...]
    holds: str
    rows_at_a_time: int | None = ROWS_AT_A_TIME
    """How many rows to read at once, to keep copies small; None: all, because reading on means starting afresh."""

    is_index = False
    """Whether the file says that it numbers or names the rows."""

    def why_unreadable(self) -> str:
        """Return why its values can't be had, or not all of them, with the remedy; nothing if they can."""
        return ""

    def declared_missing(self) -> Mapping[str, NDArray[Any]]:
        """Return the values that stand for one that is not there, by what says so."""
        return {}

    def files(self) -> Iterable[str]:
        """Return the files that its values lie in, where these may be others than that which shows it."""
        return ()

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        """Return rows ``first:last`` of columns ``left:right``, as a 2-d array."""
        raise TypeError(f"{self.holds} has no rows")


class LinkedArrays(dict[str, StoredArray]):
    """The arrays of a file, and further names of theirs, or of groups of them."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[str, str] = {}


def holds(dtype: np.dtype[Any]) -> str:
    """Return the kind of a column's values, as `Column.holds` names it."""
    if dtype.kind in "biuf":
        return "numbers"
    if dtype.kind in "US":
        return "text"
    return "Python objects" if dtype.kind == "O" else f"values of type {dtype}"
