"""Arrays in NumPy's files: NPY, and NPZ, which is a zip archive of them.

What lies in the file as it is gets mapped into memory; a compressed member of an archive is decompressed up to the last
row that is wanted, and only wanted rows are kept.
"""

from __future__ import annotations

import math
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.stored import ROWS_AT_A_TIME, StoredArray, holds

_BYTES_TO_SKIP = 1 << 20


@contextmanager
def opened_archive(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open an NPZ file and give its arrays of one or two dimensions by name."""
    with zipfile.ZipFile(path) as archive:
        yield {name: array for name, array in _members(archive, path) if 1 <= len(array.shape) <= 2}


@contextmanager
def opened_array(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open an NPY file and give its array by the name of the file."""
    with open(path, "rb") as stream:
        header = _read_header(stream)
        offset = stream.tell()
    if header is None or not 1 <= len(header.shape) <= 2:
        raise ValueError("it holds no array of one or two dimensions")
    yield {os.path.splitext(os.path.basename(path))[0]: _MappedArray(path, offset, header)}


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]


def _read_header(stream: IO[bytes]) -> _Header | None:
    """Read what stands before the values of an array in NPY format; None if they can't be numbers or text."""
    version = np.lib.format.read_magic(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files that Python 2 wrote
        if version == (1, 0):
            return _Header(*np.lib.format.read_array_header_1_0(stream))
        if version == (2, 0):
            return _Header(*np.lib.format.read_array_header_2_0(stream))
    return None  # version 3 is for structures whose fields have names beyond Latin-1


def _check_size(header: _Header, n_bytes: int) -> None:
    """Refuse an array that can't be in so many bytes, before memory is asked for it."""
    if min(header.shape, default=0) < 0 or math.prod(header.shape) * header.dtype.itemsize > n_bytes:
        raise EOFError("it ends too early")


def _members(archive: zipfile.ZipFile, path: str) -> Iterator[tuple[str, StoredArray]]:
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

    rows_at_a_time: int | None = ROWS_AT_A_TIME

    def __init__(self, path: str, offset: int, header: _Header) -> None:
        self.shape = header.shape
        self.holds = holds(header.dtype)
        self._path, self._offset, self._header = path, offset, header
        _check_size(header, os.path.getsize(path) - offset)

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        order: Literal["F", "C"] = "F" if self._header.is_fortran else "C"
        mapped: NDArray[Any] = np.memmap(self._path, self._header.dtype, "r", self._offset, self.shape, order)
        part = mapped[first:last, np.newaxis] if len(self.shape) == 1 else mapped[first:last, left:right]
        return np.array(part)


class _CompressedArray:
    """An array in a compressed member of a zip archive, which can only be read forwards."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, offset: int, header: _Header) -> None:
        self.shape = header.shape
        self.holds = holds(header.dtype)
        self._archive, self._info, self._offset, self._header = archive, info, offset, header
        self._stream: IO[bytes] | None = None
        _check_size(header, info.file_size - offset)
        self._by_columns = header.is_fortran and len(header.shape) == 2
        self.rows_at_a_time = None if self._by_columns else ROWS_AT_A_TIME

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
