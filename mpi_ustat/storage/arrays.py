"""Tables in files of arrays: HDF5, NPZ and NPY.

A 1-d array is a column by its name. The columns of the 2-d array go by their numbers; that is the array named X, or
else the only 2-d array (the only one wider than one column, if there is one). Columns of further 2-d arrays are named
like ``test/features[3]``. The name of a 2-d array stands for all its columns.

A rank reads its own rows. HDF5 and NPY are made for it, and so are uncompressed members of an NPZ, which are mapped
into memory; a compressed member is decompressed up to the last row that is wanted, and only wanted rows are kept.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.table import Column, Rows, exact_float64, readable, refuse_missing_label, refuse_nan

_ROWS_AT_A_TIME = 1 << 16
_BYTES_TO_SKIP = 1 << 20


@dataclass(frozen=True)
class ArrayTable:
    """A file of arrays, with the columns it offers."""

    path: str
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last`` of some columns.

        Raises
        ------
        UserError
            If the file is damaged, a value or label is missing, or an integer has no exact float64.
        """
        values = np.empty((last - first, len(columns)))
        codes: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        texts: tuple[str, ...] = ()
        if first == last:
            return Rows(values, codes, texts)
        with readable(self.path, _kind(self.path)), _opened(self.path) as arrays:
            for array in dict.fromkeys(column.array for column in columns):
                places = [j for j, column in enumerate(columns) if column.array == array]
                self._read_array(arrays[array], [columns[j] for j in places], first, values, places)
            if label is not None:
                raw = arrays[label.array].block(first, last, label.index, label.index + 1)
                codes, texts = _encode(raw[:, 0])
                refuse_missing_label(codes, texts, label, lambda row: self._place(first + row))
        return Rows(values, codes, texts)

    def _read_array(
        self, array: _Array, columns: Sequence[Column], first: int, values: NDArray[np.float64], places: list[int]
    ) -> None:
        """Fill the columns `places` of `values` with `columns`, all of the same array."""
        indices = np.array([column.index for column in columns])
        left, right = int(indices.min()), int(indices.max()) + 1
        step = array.rows_at_a_time or len(values)
        for start in range(0, len(values), step):
            stop = min(start + step, len(values))

            def place(row: int, start: int = first + start) -> str:
                return self._place(start + row)

            block = exact_float64(
                array.block(first + start, first + stop, left, right)[:, indices - left], columns, place
            )
            refuse_nan(block, columns, place)
            values[start:stop, places] = block

    def _place(self, row: int) -> str:
        return f"'{self.name}', row {row} (counted from 0)"


def scan(path: str) -> ArrayTable:
    """Find out which columns a file of arrays offers.

    Raises
    ------
    UserError
        If the file can't be read.
    """
    with readable(path, _kind(path)), _opened(path) as arrays:
        shapes = {name: (array.shape, array.holds) for name, array in arrays.items()}
    return ArrayTable(path, tuple(_offer(shapes)))


def _offer(shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> Iterator[Column]:
    """Yield the columns of arrays of these shapes: single ones first, then those of 2-d arrays."""
    flat = {name: shape for name, (shape, _) in shapes.items() if len(shape) == 1}
    matrices = {name: shape for name, (shape, _) in shapes.items() if len(shape) == 2}
    numbered = _numbered(matrices)
    for name, shape in flat.items():
        yield Column(name, 0, None, name, shape[0], shapes[name][1])
    for name, (n_rows, n_columns) in matrices.items():
        for j in range(n_columns):
            if name == numbered:
                yield Column(str(j), j, j, name, n_rows, shapes[name][1])
            else:
                yield Column(name if n_columns == 1 else f"{name}[{j}]", j, None, name, n_rows, shapes[name][1])


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


# ---------------------------------------------------------------------------------------------------------------------
# Arrays in files


class _Array(Protocol):
    """An array of one or two dimensions in a file."""

    shape: tuple[int, ...]
    holds: str
    rows_at_a_time: int | None
    """How many rows to read at once, to keep copies small; None: all, because reading on means starting afresh."""

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        """Return rows ``first:last`` of columns ``left:right``, as a 2-d array."""


def _kind(path: str) -> str:
    return os.path.splitext(path)[1].lstrip(".").upper().replace("H5", "HDF5")


@contextmanager
def _opened(path: str) -> Iterator[Mapping[str, _Array]]:
    """Open a file of arrays and give those of one or two dimensions by name."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            yield {name: array for name, array in _members(archive, path) if 1 <= len(array.shape) <= 2}
    elif suffix == ".npy":
        with open(path, "rb") as stream:
            header = _read_header(stream)
            offset = stream.tell()
        if header is None or not 1 <= len(header.shape) <= 2:
            raise ValueError("it holds no array of one or two dimensions")
        yield {os.path.splitext(os.path.basename(path))[0]: _MappedArray(path, offset, header)}
    else:
        import h5py

        with open(path, "rb"):  # Python's errors say more than HDF5's when there is no such file
            pass
        with h5py.File(path, "r") as file:
            found: dict[str, _Array] = {}

            def collect(name: str, item: Any) -> None:
                if isinstance(item, h5py.Dataset) and item.shape is not None and 1 <= len(item.shape) <= 2:
                    found[name] = _HDF5Array(item, h5py.check_string_dtype(item.dtype) is not None)

            file.visititems(collect)
            yield found


def _holds(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "biuf":
        return "numbers"
    if dtype.kind in "US":
        return "text"
    return "Python objects" if dtype.kind == "O" else f"values of type {dtype}"


class _HDF5Array:
    rows_at_a_time: int | None = _ROWS_AT_A_TIME

    def __init__(self, dataset: Any, is_text: bool) -> None:
        self.shape: tuple[int, ...] = dataset.shape
        self.holds = "text" if is_text else _holds(dataset.dtype)
        self._dataset = dataset.asstr() if is_text else dataset

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        if len(self.shape) == 1:
            values = self._dataset[first:last][:, np.newaxis]
        else:
            values = self._dataset[first:last, left:right]
        return values.astype(np.str_) if self.holds == "text" else values


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]


def _read_header(stream: IO[bytes]) -> _Header | None:
    """Read what stands before the values of an array in NPY format; None if they can't be numbers or text."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return _Header(*np.lib.format.read_array_header_1_0(stream))
    if version == (2, 0):
        return _Header(*np.lib.format.read_array_header_2_0(stream))
    return None  # version 3 is for structures whose fields have names beyond Latin-1


def _members(archive: zipfile.ZipFile, path: str) -> Iterator[tuple[str, _Array]]:
    for info in archive.infolist():
        if not info.filename.endswith(".npy"):
            continue
        with archive.open(info) as stream:
            header = _read_header(stream)
            offset = stream.tell()
        if header is None:
            continue
        name = info.filename.removesuffix(".npy")
        if info.compress_type == zipfile.ZIP_STORED:
            yield name, _MappedArray(path, _data_offset(path, info) + offset, header)
        else:
            yield name, _CompressedArray(archive, info, offset, header)


def _data_offset(path: str, info: zipfile.ZipInfo) -> int:
    """Return where a stored member's bytes begin: after its local header, 30 bytes, a name and an extra field."""
    with open(path, "rb") as stream:
        stream.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", stream.read(4))
    return int(info.header_offset + 30 + name_length + extra_length)


class _MappedArray:
    """An array whose bytes lie in a file as they are."""

    rows_at_a_time: int | None = _ROWS_AT_A_TIME

    def __init__(self, path: str, offset: int, header: _Header) -> None:
        self.shape = header.shape
        self.holds = _holds(header.dtype)
        self._path, self._offset, self._header = path, offset, header

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        order: Literal["F", "C"] = "F" if self._header.is_fortran else "C"
        mapped: NDArray[Any] = np.memmap(self._path, self._header.dtype, "r", self._offset, self.shape, order)
        part = mapped[first:last, np.newaxis] if len(self.shape) == 1 else mapped[first:last, left:right]
        return np.array(part)


class _CompressedArray:
    """An array in a compressed member of a zip archive, which can only be read forwards."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, offset: int, header: _Header) -> None:
        self.shape = header.shape
        self.holds = _holds(header.dtype)
        self._archive, self._info, self._offset, self._header = archive, info, offset, header
        self._stream: IO[bytes] | None = None
        self._by_columns = header.is_fortran and len(header.shape) == 2
        self.rows_at_a_time = None if self._by_columns else _ROWS_AT_A_TIME

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        n_rows, n_columns = (*self.shape, 1)[:2]
        if self._by_columns:
            return np.stack([self._values(j * n_rows + first, last - first) for j in range(left, right)], axis=1)
        values = self._values(first * n_columns, (last - first) * n_columns)
        return values.reshape(last - first, n_columns)[:, left:right]

    def _values(self, start: int, count: int) -> NDArray[Any]:
        """Return `count` values from number `start` on, in the order of the file."""
        dtype = self._header.dtype
        target = self._offset + start * dtype.itemsize
        if self._stream is None or self._stream.tell() > target:
            self._stream = self._archive.open(self._info)
        while (distance := target - self._stream.tell()) > 0:  # its own seek would hold 16 MiB at a time, twice
            if not self._stream.read(min(distance, _BYTES_TO_SKIP)):
                raise EOFError("it ends too early")
        data = self._stream.read(count * dtype.itemsize)
        if len(data) != count * dtype.itemsize:
            raise EOFError("it ends too early")
        return np.frombuffer(data, dtype)
