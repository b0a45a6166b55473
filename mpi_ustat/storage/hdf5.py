"""Arrays in HDF5 files, and in MATLAB's from version 7.3 on, which are HDF5 with every array transposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.stored import ROWS_AT_A_TIME, StoredArray, holds

_USABLE_IN_MATLAB = {
    "double",
    "single",
    "logical",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


@contextmanager
def opened(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open an HDF5 file and give its arrays of one or two dimensions by name."""
    import h5py

    with open(path, "rb"):  # Python's errors say more than HDF5's when there is no such file
        pass
    with h5py.File(path, "r") as file:
        found: dict[str, StoredArray] = {}

        def collect(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None and 1 <= len(item.shape) <= 2:
                found[name] = _Dataset(item, h5py.check_string_dtype(item.dtype) is not None)

        file.visititems(collect)
        yield found


@contextmanager
def opened_matlab(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open a MATLAB file of version 7.3 and give its matrices by name; those with one row or column as vectors."""
    import h5py

    with h5py.File(path, "r") as file:
        found: dict[str, StoredArray] = {}
        for name, item in file.items():
            # '#refs#' holds what cells point to, and an empty matrix is stored as its size.
            if name.startswith("#") or "MATLAB_empty" in item.attrs:
                continue
            if isinstance(item, h5py.Group) or (item.shape is not None and len(item.shape) == 2):
                found[name] = _Matrix(item)
        yield found


class _Dataset:
    rows_at_a_time: int | None = ROWS_AT_A_TIME

    def __init__(self, dataset: Any, is_text: bool) -> None:
        self.shape: tuple[int, ...] = dataset.shape
        self.holds = "text" if is_text else holds(dataset.dtype)
        self._dataset = dataset.asstr() if is_text else dataset

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        if len(self.shape) == 1:
            values = self._dataset[first:last][:, np.newaxis]
        else:
            values = self._dataset[first:last, left:right]
        return values.astype(np.str_) if self.holds == "text" else values


class _Matrix:
    rows_at_a_time: int | None = ROWS_AT_A_TIME

    shape: tuple[int, ...]
    holds: str

    def __init__(self, item: Any) -> None:
        kind = item.attrs.get("MATLAB_class", b"")
        kind = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else str(kind)
        if not hasattr(item, "shape"):  # a structure, or a sparse matrix, whose class is that of its values
            self.shape, self.holds = (0,), "a MATLAB structure or sparse matrix"
            return
        n_columns, n_rows = item.shape
        self._dataset, self._is_row = item, n_rows == 1
        self.shape = (item.size,) if 1 in item.shape else (n_rows, n_columns)
        self.holds = holds(item.dtype) if not kind or kind in _USABLE_IN_MATLAB else f"MATLAB values of class {kind}"

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        if self._is_row:
            return np.asarray(self._dataset[first:last, :])
        return np.asarray(self._dataset[left:right, first:last]).T
