"""Arrays in NumPy's files: NPY, and NPZ, which is a zip archive of them.

What lies in the file as it is gets read from where the wanted rows begin (not mapped into memory: of a file that is cut
off meanwhile the system would end the process); a compressed member of an archive is decompressed up to the last row
that is wanted. Only wanted rows are kept.
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
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.stored import ROWS_AT_A_TIME, StoredArray, holds

_BYTES_TO_SKIP = 1 << 20
_BYTES_AT_A_TIME = 1 << 22


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
    yield {os.path.splitext(os.path.basename(path))[0]: _PlainArray(path, offset, header)}


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
            yield name, _PlainArray(path, _data_offset(path, info) + offset, header)
        else:
            yield name, _CompressedArray(archive, info, offset, header)


def _data_offset(path: str, info: zipfile.ZipInfo) -> int:
    """Return where a stored member's bytes begin: after its local header, 30 bytes, a name and an extra field."""
    with open(path, "rb") as stream:
        stream.seek(info.header_offset + 26)
        name_length, extra_length = struct.unpack("<HH", stream.read(4))
    return int(info.header_offset + 30 + name_length + extra_length)


class _PlainArray(StoredArray):
    """An array whose bytes lie in a file as they are."""

    def __init__(self, path: str, offset: int, header: _Header) -> None:
        self.shape = header.shape
        self.holds = holds(header.dtype)
        self._path, self._offset, self._header = path, offset, header
        _check_size(header, os.path.getsize(path) - offset)

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        n_rows, n_columns = (*self.shape, 1)[:2]
        found = np.empty((last - first, right - left), self._header.dtype)
        with open(self._path, "rb") as stream:
            if self._header.is_fortran and len(self.shape) == 2:
                for j in range(left, right):
                    found[:, j - left] = self._values(stream, j * n_rows + first, last - first)
                return found
            step = max(1, _BYTES_AT_A_TIME // max(1, n_columns * found.itemsize))  # rows come with all their columns
            for start in range(first, last, step):
                stop = min(start + step, last)
                rows = self._values(stream, start * n_columns, (stop - start) * n_columns)
                found[start - first : stop - first] = rows.reshape(-1, n_columns)[:, left:right]
        return found

    def _values(self, stream: IO[bytes], start: int, count: int) -> NDArray[Any]:
        """Return `count` values from number `start` on, in the order of the file."""
        dtype = self._header.dtype
        stream.seek(self._offset + start * dtype.itemsize)
        return np.frombuffer(_read_all(stream, count * dtype.itemsize), dtype)


class _CompressedArray(StoredArray):
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
        return np.frombuffer(_read_all(self._stream, count * dtype.itemsize), dtype)


def _read_all(stream: IO[bytes], n_bytes: int) -> bytes:
    data = stream.read(n_bytes)
    if len(data) != n_bytes:
        raise EOFError("it ends too early")
    return data
