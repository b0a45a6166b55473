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
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.storage import hdf5, mat, npy, parquet
from mpi_ustat.storage.opening import Stamp, changed, compare, readable, stamp_of
from mpi_ustat.storage.stored import ROWS_AT_A_TIME, LinkedArrays, StoredArray
from mpi_ustat.storage.table import (
    Column,
    FileTable,
    LabelledRows,
    exact_float64,
    no_codes,
    recoded,
    refuse_bad_values,
    refuse_missing_label,
)
from mpi_ustat.storage.texts import is_index, shown

Opened = AbstractContextManager[Mapping[str, StoredArray]]

_OPENERS: dict[str, tuple[str, Callable[[str], Opened]]] = {
    ".h5": ("HDF5", hdf5.opened),
    ".hdf5": ("HDF5", hdf5.opened),
    ".mat": ("MAT", mat.opened),
    ".npz": ("NPZ", npy.opened_archive),
    ".npy": ("NPY", npy.opened_array),
    ".parquet": ("Parquet", parquet.opened),
}

_FIRST = 1 << 10

MOST_COLUMNS = 1 << 20
"""Columns that an array can have; one with more has probably its points in columns."""

SUFFIXES = tuple(_OPENERS)
"""How the names of files of arrays end."""


@dataclass(frozen=True)
class ArrayTable(FileTable):
    """A file of arrays, with the columns it offers."""

    columns: tuple[Column, ...]
    links: Mapping[str, str] = field(default_factory=dict, hash=False)
    behind: Mapping[str, Stamp] = field(default_factory=dict, repr=False, compare=False)
    """Of other files that hold what this one shows, by their path from its folder."""

    default_label = None

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        codes = [no_codes()]
        known: dict[str, int] = {}
        kind, opened = _opener(self.path)
        with readable(self.path, kind, binary=True), opened(self.path) as arrays:
            values = np.empty((last - first, len(columns)))
            for array in dict.fromkeys(column.array for column in columns):
                places = [j for j, column in enumerate(columns) if column.array == array]
                some, to = [columns[j] for j in places], _run(places)
                for start, raw, place in self._blocks(arrays, some, first, last):
                    block = exact_float64(raw, some, place)
                    refuse_bad_values(block, some, place)
                    values[start : start + len(block), to] = block
            if label is not None:
                for _, raw, place in self._blocks(arrays, [label], first, last):
                    distinct, own = _distinct(raw.reshape(-1))
                    texts = [
                        each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in distinct.tolist()
                    ]
                    refuse_missing_label(own, texts, label, place)
                    codes.append(recoded(own, texts, known))
        return LabelledRows(values, np.concatenate(codes), tuple(known))

    def _array(self, arrays: Mapping[str, StoredArray], column: Column) -> StoredArray:
        """Return a column's array, which has as many rows as were counted, in the files as they were then."""
        array = arrays.get(column.array)
        if array is None or array.shape[0] != column.n_rows:
            raise changed(self.path, "another number of rows")
        if why := _refusal(self.path, column.array, array):  # here, on this host
            raise UserError(why)
        for file, stamp in _behind(self.path, array).items():
            compare(file, self.behind.get(file, stamp), stamp)
        return array

    def _blocks(
        self, arrays: Mapping[str, StoredArray], columns: Sequence[Column], first: int, last: int
    ) -> Iterator[tuple[int, NDArray[Any], Callable[[int], str]]]:
        """Yield blocks of rows of columns of one array, without values that are declared to be missing.

        Each comes with its place among the rows that are wanted, and with what tells how a row of it is called.
        """
        array = self._array(arrays, columns[0])
        missing = array.declared_missing()
        indices = [column.index for column in columns]
        left, right = min(indices), max(indices) + 1
        wanted = _run([index - left for index in indices])
        step = array.rows_at_a_time or max(1, last - first)
        for start in announced(range(first, last, step), f"reading {self.name}"):
            stop = min(start + step, last)
            block = array.block(start, stop, left, right)
            if len(block) != stop - start:  # slices end where an array does, and a single row would be spread over all
                raise changed(self.path, "another number of rows")
            for begin in range(start, stop, ROWS_AT_A_TIME):

                def place(row: int, begin: int = begin) -> str:
                    return f"'{self.name}', row {begin + row} (counted from 0)"

                raw = block[begin - start : begin - start + ROWS_AT_A_TIME][:, wanted]
                _refuse_declared(raw, missing, columns, place)
                yield begin - first, raw, place


def _run(places: Sequence[int]) -> slice | list[int]:
    """Return places that follow each other as a slice, which NumPy takes less time for."""
    ends = places[0], places[0] + len(places)
    return slice(*ends) if list(places) == list(range(*ends)) else list(places)


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the values and places of ``np.unique``, sooner where the first values are all that there are."""
    few = np.unique(values[:_FIRST])
    if len(few) <= 2:
        codes = values == few[-1]
        if (codes | (values == few[0])).all():
            return few, codes.view(np.uint8) if len(few) == 2 else np.zeros(len(values), dtype=np.uint8)
    elif 2 * len(few) <= _FIRST:
        codes = np.minimum(np.searchsorted(few, values), len(few) - 1)
        if (few[codes] == values).all():
            return few, codes
    return np.unique(values, return_inverse=True)


def scan(path: str) -> ArrayTable:
    """Find out which columns a file of arrays offers; refuse one that can't be read."""
    kind, opened = _opener(path)
    with readable(path, kind, binary=True), opened(path) as arrays:
        columns = tuple(_offer(path, arrays))
        links = arrays.links if isinstance(arrays, LinkedArrays) else {}
        behind = {file: stamp for array in arrays.values() for file, stamp in _behind(path, array).items()}
    if kind == "Parquet":
        columns = tuple(replace(column, number=j) for j, column in enumerate(columns))
    return ArrayTable(path, columns, links, behind)


def files_behind(path: str) -> set[str]:
    """Return the files that hold what a file of arrays shows, by links or as sources; none if it can't be read."""
    with suppress(Exception), _opener(path)[1](path) as arrays:  # what is wrong is told when it is read
        return {file for array in arrays.values() for file in array.files()}
    return set()


def _behind(path: str, array: StoredArray) -> dict[str, Stamp]:
    """Return the stamps of other files that an array lies in, by their path from the folder of the file it is in."""
    others = [file for file in array.files() if not os.path.samefile(file, path)]
    return {os.path.relpath(file, os.path.dirname(path) or os.curdir): stamp_of(file) for file in others}


def _opener(path: str) -> tuple[str, Callable[[str], Opened]]:
    """Return the name of a file's format, and what opens it."""
    return _OPENERS[os.path.splitext(path)[1].lower()]


def _offer(path: str, arrays: Mapping[str, StoredArray]) -> Iterator[Column]:
    """Yield the columns of arrays: single ones first, then those of 2-d arrays, of which one goes by numbers."""
    widths = {name: array.shape[1] for name, array in arrays.items() if len(array.shape) == 2}
    candidates = ["X"] if "X" in widths else [name for name, width in widths.items() if width > 1] or list(widths)
    for name, array in sorted(arrays.items(), key=lambda item: item[0] in widths):
        n_rows, width = (*array.shape, 1)[:2]
        holds = array.holds if width <= MOST_COLUMNS else f"{width} columns, of at most {MOST_COLUMNS}"
        refusal = _refusal(path, name, array)
        indexes = array.is_index or is_index(name.rpartition("/")[2])
        for j in range(width if width <= MOST_COLUMNS else 1):
            number = j if candidates == [name] and width <= MOST_COLUMNS else None
            called = str(j) if number is not None else shown(f"{name}[{j}]" if 1 < width <= MOST_COLUMNS else name)
            yield Column(called, j, number, name, n_rows, holds, refusal, indexes)


def _refusal(path: str, name: str, array: StoredArray) -> str:
    """Return the sentence about an array of which not all can be read."""
    why = array.why_unreadable() if array.holds in ("numbers", "text") else ""
    return f"'{os.path.basename(path)}': dataset '{shown(name)}' {why}" if why else ""


def _refuse_declared(
    block: NDArray[Any],
    missing: Mapping[str, NDArray[Any]],
    columns: Sequence[Column],
    place: Callable[[int], str],
) -> None:
    """Raise a UserError that names the first row with a value that stands for a missing one, if there is one."""
    for what, values in missing.items():
        for value in values:
            for row, j in np.argwhere(block == value):
                text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
                raise PlacedError(
                    f"{place(int(row))}: column '{columns[j].name}' is {shown(text)}, which {what} declares to be "
                    "missing: remove the row or fill in the value"
                )
