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

from mpi_ustat.storage.stored import StoredArray, holds

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


class _Array(StoredArray):
    """An array whose bytes begin somewhere among those of a file or of a member of an archive."""

    def __init__(self, offset: int, header: _Header, n_bytes: int) -> None:
        self.shape, self.holds = header.shape, holds(header.dtype)
        self._offset, self._dtype = offset, header.dtype
        self._by_columns = header.is_fortran and len(header.shape) == 2
        # Refused before memory is asked for it.
        if min(header.shape, default=0) < 0 or math.prod(header.shape) * header.dtype.itemsize > n_bytes - offset:
            raise EOFError("it ends too early")

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        n_rows, n_columns = (*self.shape, 1)[:2]
        found = np.empty((last - first, right - left), self._dtype)
        if self._by_columns:
            for j in range(left, right):
                found[:, j - left] = self._values(j * n_rows + first, last - first)
            return found
        step = max(1, _BYTES_AT_A_TIME // max(1, n_columns * found.itemsize))  # rows come with all their columns
        for start in range(first, last, step):
            stop = min(start + step, last)
            rows = self._values(start * n_columns, (stop - start) * n_columns)
            found[start - first : stop - first] = rows.reshape(-1, n_columns)[:, left:right]
        return found

    def _values(self, start: int, count: int) -> NDArray[Any]:
        """Return `count` values from number `start` on, in the order of the file."""
        size = self._dtype.itemsize
        data = self._at(self._offset + start * size, count * size)
        if len(data) != count * size:
            raise EOFError("it ends too early")
        return np.frombuffer(data, self._dtype)

    def _at(self, place: int, n_bytes: int) -> bytes:
        """Return the bytes from a place on, as many as there are."""
        raise NotImplementedError


class _PlainArray(_Array):
    """An array whose bytes lie in a file as they are."""

    def __init__(self, path: str, offset: int, header: _Header) -> None:
        super().__init__(offset, header, os.path.getsize(path))
        self._path = path

    def _at(self, place: int, n_bytes: int) -> bytes:
        with open(self._path, "rb") as stream:
            stream.seek(place)
            return stream.read(n_bytes)


class _CompressedArray(_Array):
    """An array in a compressed member of a zip archive, which can only be read forwards."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, offset: int, header: _Header) -> None:
        super().__init__(offset, header, info.file_size)
        self._archive, self._info = archive, info
        self._stream: IO[bytes] | None = None
        if self._by_columns:
            self.rows_at_a_time = None

    def _at(self, place: int, n_bytes: int) -> bytes:
        if self._stream is None or self._stream.tell() > place:
            self._stream = self._archive.open(self._info)
        while (distance := place - self._stream.tell()) > 0:  # its own seek would hold 16 MiB at a time, twice
            if not self._stream.read(min(distance, _BYTES_TO_SKIP)):
                return b""
        return self._stream.read(n_bytes)
