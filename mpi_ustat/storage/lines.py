"""Lines of a text file by their numbers: how many there are, and blocks of whole ones, without reading those before."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.types import Flags, Ints
from mpi_ustat.storage.opening import opened_text, stamp_of
from mpi_ustat.storage.packed import UTF8, from_beginning

_STRIDE = 1 << 20
_BLANKS = b" \t\r\n"
_NEWLINE = ord("\n")
_BOM = b"\xef\xbb\xbf"
_LARGE = 16 * _STRIDE


@dataclass(frozen=True)
class Lines:
    """Where lines are in a file."""

    ends: Ints = field(repr=False)
    """How many lines end before each stretch of `_STRIDE` bytes: ranks find their lines without reading all others."""
    of_file: int
    """How many lines there are, but for blank ones at the end."""
    left_out: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """Those that are no part of the table, such as comments, from 0; the others are counted without them."""

    @property
    def count(self) -> int:
        """How many lines the table has."""
        return self.of_file - len(self.left_out)

    def number(self, line: int) -> int:
        """Return which line of the file a line of the table is; both from 0."""
        before = self.left_out - np.arange(len(self.left_out))  # how many lines of the table are before each
        return line + int(np.searchsorted(before, line, side="right"))

    def without(self, lines: Sequence[int]) -> Lines:
        """Return the lines without some of the file."""
        return replace(self, left_out=np.unique([*self.left_out.tolist(), *lines]).astype(np.int64))

    def blocks(self, stream: BinaryIO, first: int, count: int, size: int) -> Iterator[tuple[bytes, int]]:
        """Yield `count` lines of the table in an open file from line `first` on, some `size` bytes at a time.

        Of each block the bytes and how many lines they are; all end with a newline, but for the last of a file. The
        mark of byte order is no part of the first line.
        """
        begin, end = self.number(first), self.number(first + count - 1) + 1
        stretch = max(int(np.searchsorted(self.ends, begin)) - 1, 0)
        stream.seek(stretch * _STRIDE)
        for _ in range(begin - int(self.ends[stretch])):
            stream.readline()
        while begin < end and (data := stream.read(size)):
            if data[-1:] != b"\n":
                data += stream.readline()
            n_lines = _n_ends(data) + (data[-1:] != b"\n")
            if n_lines > end - begin:
                n_lines = end - begin
                data = data[: np.flatnonzero(_are_ends(data))[n_lines - 1] + 1]
            if begin == 0:
                data = data.removeprefix(_BOM)
            left_out = self.left_out[slice(*np.searchsorted(self.left_out, (begin, begin + n_lines)))] - begin
            begin += n_lines
            if left_out.size:
                gone = set(left_out.tolist())
                data = b"".join(line for i, line in enumerate(io.BytesIO(data)) if i not in gone)
            if data:
                yield data, n_lines - len(left_out)


def split_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of a block as text, with the ends that they have."""
    return map(bytes.decode, io.BytesIO(data))


def count_lines(path: str, kind: str, encoding: str = UTF8) -> Lines:
    """Count the lines of a file of text."""
    with opened_text(path, kind, encoding) as stream:
        return _joined([_counted(stream)])


def lines_with(path: str, kind: str, encoding: str, sign: str) -> list[int]:
    """Return which lines of a file of text begin with a sign, or with blanks and then the sign."""
    begin = sign.encode()
    with opened_text(path, kind, encoding) as stream:
        lines = (line.removeprefix(_BOM) if i == 0 else line for i, line in enumerate(stream))
        return [i for i, line in enumerate(lines) if line.lstrip(_BLANKS).startswith(begin)]


def counted_together(comm: Any, path: str, kind: str) -> Lines | None:
    """Count the lines of a large file of text, every rank those of its share.  Collective.

    None of other files, which one rank counts alone: small or packed ones, and those that not all ranks can read, which
    are refused when they are.
    """
    size = comm.bcast(_plain_size(path) if comm.rank == 0 else 0)
    if comm.size == 1 or size < _LARGE:
        return None
    n_stretches = -(-size // _STRIDE)
    begin, end = (n_stretches * rank // comm.size for rank in (comm.rank, comm.rank + 1))
    own: Counted | None = None
    with together(comm, f"reading {os.path.basename(path)}"), suppress(UserError), opened_text(path, kind) as stream:
        stream.seek(begin * _STRIDE)
        own = _counted(stream, end - begin)
    found = comm.allgather(own)
    if None in found or sum(len(ends) for ends, _ in found) != n_stretches:
        return None
    return _joined(found)


Counted = tuple[list[int], int]
"""How many lines have ended by the end of each of some stretches, and how many there are but for blank ones at last."""


def _counted(stream: BinaryIO, n_stretches: int | None = None) -> Counted:
    ends: list[int] = []
    n_ends = n_lines = 0
    while len(ends) != n_stretches and (data := stream.read(_STRIDE)):
        n_here = _n_ends(data)
        filled = len(data.rstrip(_BLANKS))
        if filled:
            n_lines = n_ends + n_here - data.count(b"\n", filled) + 1
        n_ends += n_here
        ends.append(n_ends)
    return ends, n_lines


def _are_ends(data: bytes) -> Flags:
    ends: Flags = np.frombuffer(data, dtype=np.uint8) == _NEWLINE
    return ends


def _n_ends(data: bytes) -> int:
    return int(np.count_nonzero(_are_ends(data)))  # several times as fast as bytes.count


def _joined(shares: Sequence[Counted]) -> Lines:
    ends, count = [0], 0
    for of_share, n_lines in shares:
        before = ends[-1]
        count = before + n_lines if n_lines else count
        ends += [before + each for each in of_share]
    return Lines(np.array(ends[: max(len(ends) - 1, 1)], dtype=np.int64), count)


def _plain_size(path: str) -> int:
    """Return the bytes of a file, 0 of one whose lines are not where its bytes are or that can't be read."""
    try:
        return 0 if from_beginning(path) else stamp_of(path).size
    except UserError:
        return 0
