"""Tables in files of arrays: HDF5, NPZ, NPY, MATLAB's and Parquet.

A 1-d array is a column by its name. The columns of the 2-d array go by their numbers; that is the array named X, or
else the only 2-d array (the only one wider than one column, if there is one). Columns of further 2-d arrays are named
like ``test/features[3]``. The name of a 2-d array stands for all its columns. The columns of a Parquet file have an
order, and so go by their names and numbers.

A rank reads its own rows, as far as the format lets it: see the module of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage import hdf5, mat, npy, parquet
from mpi_ustat.storage.stored import StoredArray
from mpi_ustat.storage.table import (
    Column,
    FileTable,
    Rows,
    changed,
    exact_float64,
    readable,
    refuse_missing_label,
    refuse_nan,
    shown,
)

_OPENERS: dict[str, tuple[str, Callable[[str], AbstractContextManager[Mapping[str, StoredArray]]]]] = {
    ".h5": ("HDF5", hdf5.opened),
    ".hdf5": ("HDF5", hdf5.opened),
    ".mat": ("MAT", mat.opened),
    ".npz": ("NPZ", npy.opened_archive),
    ".npy": ("NPY", npy.opened_array),
    ".parquet": ("Parquet", parquet.opened),
}

MOST_COLUMNS = 1 << 20
"""Columns that an array can have; one with more has probably its points in columns."""

SUFFIXES = tuple(_OPENERS)
"""How the names of files of arrays end."""


@dataclass(frozen=True)
class ArrayTable(FileTable):
    """A file of arrays, with the columns it offers."""

    columns: tuple[Column, ...]

    default_label = None

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last``.

        Raises
        ------
        UserError
            If the file is damaged, a value or label is missing, or an integer has no exact float64.
        """
        codes: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        texts: tuple[str, ...] = ()
        kind, opened = _opener(self.path)
        with readable(self.path, kind, binary=True), opened(self.path) as arrays:
            values = np.empty((last - first, len(columns)))
            for array in dict.fromkeys(column.array for column in columns):
                places = [j for j, column in enumerate(columns) if column.array == array]
                self._read_array(arrays, [columns[j] for j in places], first, values, places)
            if label is not None:
                raw = self._block(arrays, label, first, last, label.index, label.index + 1)
                codes, texts = _encode(raw[:, 0])
                refuse_missing_label(codes, texts, label, lambda row: self._place(first + row))
        return Rows(values, codes, texts)

    def _read_array(
        self,
        arrays: Mapping[str, StoredArray],
        columns: Sequence[Column],
        first: int,
        values: NDArray[np.float64],
        places: list[int],
    ) -> None:
        """Fill the columns `places` of `values` with `columns`, all of the same array."""
        indices = np.array([column.index for column in columns])
        left, right = int(indices.min()), int(indices.max()) + 1
        step = arrays[columns[0].array].rows_at_a_time or len(values)
        for start in range(0, len(values), step):
            stop = min(start + step, len(values))

            def place(row: int, start: int = first + start) -> str:
                return self._place(start + row)

            raw = self._block(arrays, columns[0], first + start, first + stop, left, right)
            block = exact_float64(raw[:, indices - left], columns, place)
            refuse_nan(block, columns, place)
            values[start:stop, places] = block

    def _block(
        self, arrays: Mapping[str, StoredArray], column: Column, first: int, last: int, left: int, right: int
    ) -> NDArray[Any]:
        """Return a part of a column's array, which has as many rows as were counted."""
        array = arrays.get(column.array)
        if array is not None and array.shape[0] == column.n_rows:
            block = array.block(first, last, left, right)
            if len(block) == last - first:  # slices end where an array does, and a single row would be spread over all
                return block
        raise changed(self.path, "another number of rows")

    def _place(self, row: int) -> str:
        return f"'{self.name}', row {row} (counted from 0)"


def scan(path: str) -> ArrayTable:
    """Find out which columns a file of arrays offers.

    Raises
    ------
    UserError
        If the file can't be read.
    """
    kind, opened = _opener(path)
    with readable(path, kind, binary=True), opened(path) as arrays:
        columns = tuple(_offer({name: (array.shape, array.holds) for name, array in arrays.items()}))
    if kind == "Parquet":
        columns = tuple(replace(column, number=j) for j, column in enumerate(columns))
    return ArrayTable(path, columns)


def _opener(path: str) -> tuple[str, Callable[[str], AbstractContextManager[Mapping[str, StoredArray]]]]:
    """Return the name of a file's format, and what opens it."""
    return _OPENERS[os.path.splitext(path)[1].lower()]


def _offer(shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> Iterator[Column]:
    """Yield the columns of arrays of these shapes: single ones first, then those of 2-d arrays."""
    flat = {name: shape for name, (shape, _) in shapes.items() if len(shape) == 1}
    matrices = {name: shape for name, (shape, _) in shapes.items() if len(shape) == 2}
    numbered = _numbered(matrices)
    for name, shape in flat.items():
        yield Column(shown(name), 0, None, name, shape[0], shapes[name][1])
    for name, (n_rows, n_columns) in matrices.items():
        if n_columns > MOST_COLUMNS:
            yield Column(shown(name), 0, None, name, n_rows, f"{n_columns} columns, of at most {MOST_COLUMNS}")
            continue
        for j in range(n_columns):
            if name == numbered:
                yield Column(str(j), j, j, name, n_rows, shapes[name][1])
            else:
                yield Column(shown(name if n_columns == 1 else f"{name}[{j}]"), j, None, name, n_rows, shapes[name][1])


def _numbered(matrices: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return the name of the 2-d array whose columns go by their numbers."""
    if "X" in matrices:
        return "X"
    wide = [name for name, shape in matrices.items() if shape[1] > 1]
    candidates = wide or list(matrices)
    return candidates[0] if len(candidates) == 1 else None


def _encode(values: NDArray[Any]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return the labels as indices into their distinct texts."""
    if values.dtype.kind == "S":
        values = np.array([value.decode("utf-8") for value in values.tolist()], dtype=np.str_)
    distinct, codes = np.unique(values, return_inverse=True)
    return codes.reshape(-1).astype(np.intp), tuple(str(value) for value in distinct.tolist())
