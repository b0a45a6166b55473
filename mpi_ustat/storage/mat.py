"""Arrays in MATLAB files: those of versions 5 to 7, and those of version 7.3, which are HDF5.

A matrix of the older versions is one stretch of bytes, mostly compressed, that can only be read from its beginning to
its end: every rank reads the whole matrices that it needs columns of, and keeps its rows. For large data save with
``-v7.3``, of which each rank reads its part.

MATLAB has no vectors: a matrix with a single row or a single column is taken for one. Sparse matrices are read; a cell
array of texts and the rows of a character matrix are texts.

The format is MathWorks' "MAT-File Format": a header of 128 bytes and a row of elements, each with its type and size
before it; a matrix is an element made of elements: flags, dimensions, name, values. It is read here, and not by
`scipy.io.loadmat`, because that reads outside its memory, and so ends the process, when some bytes of a file are wrong.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.hdf5 import opened_matlab
from mpi_ustat.storage.stored import StoredArray
from mpi_ustat.wording import count_of

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED, _UTF8, _UTF16, _UTF32 = 14, 15, 16, 17, 18
_CELL, _CHAR, _SPARSE, _DOUBLE, _UINT64, _OPAQUE = 1, 4, 5, 6, 15, 17  # classes of matrices
_HEADER = 128
_PREFIX = 4096
"""More than what stands before a matrix's values."""


@contextmanager
def opened(path: str) -> Iterator[Mapping[str, StoredArray]]:
    """Open a MATLAB file and give its matrices of two dimensions by name."""
    with open(path, "rb") as stream:
        head = stream.read(520)
        if b"\x89HDF\r\n\x1a\n" in head:
            with opened_matlab(path) as arrays:
                yield arrays
            return
        order = {b"IM": "<", b"MI": ">"}.get(head[_HEADER - 2 : _HEADER])
        if order is None:
            raise ValueError("it is not of version 5 or later")
        matrices = [_Matrix(element) for element in _elements(stream, order, os.path.getsize(path))]
        yield {each.name: each for each in matrices if each.name and each.is_flat}


# ---------------------------------------------------------------------------------------------------------------------
# Elements


@dataclass(frozen=True)
class _Element:
    """A matrix in a file: `size` bytes from `begin` on, perhaps compressed."""

    stream: IO[bytes]
    order: str
    begin: int
    size: int
    is_compressed: bool

    def content(self, n_bytes: int | None = None) -> bytes:
        """Return the elements that the matrix is made of; or about the first `n_bytes` of them."""
        self.stream.seek(self.begin)
        data = self.stream.read(self.size if n_bytes is None else min(self.size, n_bytes))
        if not self.is_compressed:
            return data
        data = zlib.decompress(data) if n_bytes is None else zlib.decompressobj().decompress(data, n_bytes)
        kind, _, begin, _ = _tag(data, 0, self.order)
        if kind != _MATRIX:
            raise ValueError("what is compressed is no matrix")
        return data[begin:]


def _elements(stream: IO[bytes], order: str, n_bytes: int) -> Iterator[_Element]:
    at = _HEADER
    while at < n_bytes:
        stream.seek(at)
        kind, size = struct.unpack(order + "II", stream.read(8).ljust(8, b"\0"))
        if at + 8 + size > n_bytes:
            raise EOFError("it ends too early")
        if kind not in (_MATRIX, _COMPRESSED):
            raise ValueError(f"it has an element of type {kind} among its matrices")
        yield _Element(stream, order, at + 8, size, kind == _COMPRESSED)
        at += 8 + size


def _tag(data: bytes, at: int, order: str) -> tuple[int, int, int, int]:
    """Return an element's type and size, and where its bytes and the next element begin."""
    if len(data) < at + 8:
        raise EOFError("a matrix ends too early")
    kind, size = struct.unpack_from(order + "II", data, at)
    if kind >> 16:  # both in four bytes, and the element in the next four
        return kind & 0xFFFF, min(kind >> 16, 4), at + 4, at + 8
    return kind, size, at + 8, at + 8 + size + -size % 8


def _numbers(data: bytes, at: int, order: str) -> tuple[NDArray[Any], int]:
    """Return the numbers in an element, and where the next one begins."""
    kind, size, begin, end = _tag(data, at, order)
    kind = {_UTF16: 4, _UTF32: 6}.get(kind, kind)
    if kind not in _NUMBERS:
        raise ValueError(f"numbers can't be of type {kind}")
    dtype = np.dtype(order + _NUMBERS[kind])
    if begin + size > len(data):
        raise EOFError("a matrix ends too early")
    return np.frombuffer(data, dtype, size // dtype.itemsize, begin), end


# ---------------------------------------------------------------------------------------------------------------------
# Matrices


@dataclass(frozen=True)
class _Header:
    """What stands before a matrix's values, which begin at byte `end`."""

    kind: int
    is_complex: bool
    dims: tuple[int, ...]
    name: str
    end: int


def _read_header(data: bytes, order: str) -> _Header:
    flags, at = _numbers(data, 0, order)
    kind = int(flags[0]) & 0xFF
    dims: tuple[int, ...] = (0, 0)
    if kind != _OPAQUE:
        sizes, at = _numbers(data, at, order)
        dims = tuple(sizes.tolist())
        if min(dims, default=-1) < 0:
            raise ValueError("a matrix has no size")
    name, at = _numbers(data, at, order)
    return _Header(kind, bool(int(flags[0]) & 0x800), dims, name.tobytes().decode("latin-1"), at)


class _Matrix(StoredArray):
    def __init__(self, element: _Element) -> None:
        prefix = element.content(_PREFIX)
        header = _read_header(prefix, element.order)
        self.name = header.name
        self.is_flat = len(header.dims) == 2
        self.shape: tuple[int, ...] = (math.prod(header.dims),) if 1 in header.dims else header.dims
        self._element = element
        if header.is_complex:
            self.holds = "complex numbers"
        elif header.kind == _CHAR:
            self.shape, self.holds = (header.dims[0] if math.prod(header.dims) else 0,), "text"
        elif header.kind == _CELL:
            self.holds = "a MATLAB cell array of other things than text" if self._texts is None else "text"
        elif header.kind == _SPARSE:
            self.holds = "numbers"
        elif _DOUBLE <= header.kind <= _UINT64:
            self.holds = "numbers"
            if math.prod(header.dims) > _tag(prefix, header.end, element.order)[1]:
                raise EOFError("a matrix ends too early")
        else:
            self.holds = "a MATLAB structure or object"

    def block(self, first: int, last: int, left: int, right: int) -> NDArray[Any]:
        header, data = self._content
        if self.holds == "text":
            texts = self._texts or []
            return np.array(texts[first:last], dtype=np.str_)[:, np.newaxis]
        if header.kind == _SPARSE:
            if len(self.shape) == 2:
                return _sparse_block(header, data, self._element.order, (first, last), (left, right))
            n_rows, n_columns = header.dims
            rows, columns = ((0, 1), (first, last)) if n_rows == 1 else ((first, last), (0, n_columns))
            return _sparse_block(header, data, self._element.order, rows, columns).reshape(-1, 1)
        values = _numbers(data, header.end, self._element.order)[0]
        if len(values) != math.prod(header.dims):
            raise ValueError(f"'{self.name}' has {count_of(len(values), 'value')}, not {math.prod(header.dims)}")
        return values.reshape((*self.shape, 1)[:2], order="F")[first:last, left:right]

    @cached_property
    def _content(self) -> tuple[_Header, bytes]:
        data = self._element.content()
        return _read_header(data, self._element.order), data

    @cached_property
    def _texts(self) -> list[str] | None:
        """The rows of a character matrix or the cells of a cell array; None if one of these is no text."""
        header, data = self._content
        order = self._element.order
        if header.kind == _CHAR:
            return _rows_of_characters(header, data, order)
        texts = []
        at = header.end
        for _ in range(math.prod(header.dims)):
            _, size, begin, at = _tag(data, at, order)
            cell = data[begin : begin + size]
            inner = _read_header(cell, order) if size else None
            if inner is not None and inner.kind != _CHAR:
                return None
            texts.append("".join(_rows_of_characters(inner, cell, order)) if inner is not None else "")
        return texts


def _rows_of_characters(header: _Header, data: bytes, order: str) -> list[str]:
    kind, size, begin, _ = _tag(data, header.end, order)
    if kind == _UTF8:
        text = data[begin : begin + size].decode("utf-8")
    else:
        text = "".join(map(chr, _numbers(data, header.end, order)[0].tolist()))
    if len(text) != math.prod(header.dims):
        raise ValueError(f"a text of {count_of(math.prod(header.dims), 'character')} has {len(text)}")
    n_rows = header.dims[0] if text else 0  # an empty matrix may have any number of empty rows
    return [text[row::n_rows] for row in range(n_rows)]


def _sparse_block(header: _Header, data: bytes, order: str, rows: tuple[int, int], columns: tuple[int, int]) -> Floats:
    """Return a part of a sparse matrix: its values lie column by column, `starts` says from where to where."""
    places, at = _numbers(data, header.end, order)
    starts, at = _numbers(data, at, order)
    values, _ = _numbers(data, at, order)
    n_rows, n_columns = header.dims
    if len(starts) != n_columns + 1 or not np.all((places >= 0) & (places < n_rows)):
        raise ValueError("the places in a sparse matrix are outside of it")
    block = np.zeros((rows[1] - rows[0], columns[1] - columns[0]))
    for j in range(*columns):
        begin, end = int(starts[j]), int(starts[j + 1])
        if not 0 <= begin <= end <= min(len(places), len(values)):
            raise ValueError("the places in a sparse matrix are outside of it")
        inside = (rows[0] <= places[begin:end]) & (places[begin:end] < rows[1])
        block[places[begin:end][inside] - rows[0], j - columns[0]] = values[begin:end][inside]
    return block
