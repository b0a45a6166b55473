"""Lines of a text file by their numbers: how many there are, and blocks of whole ones, without reading those before."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.types import Flags, Ints
from mpi_ustat.storage.opening import is_packed, opened_text, stamp_of

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
    count: int
    """How many lines there are, but for blank ones at the end."""

    def blocks(self, stream: BinaryIO, first: int, count: int, size: int) -> Iterator[tuple[bytes, int]]:
        """Yield `count` lines of an open file from line `first` (from 0) on, some `size` bytes at a time.

        Of each block the bytes and how many lines they are; all end with a newline, but for the last of a file. The
        mark of byte order is no part of the first line.
        """
        stretch = max(int(np.searchsorted(self.ends, first)) - 1, 0)
        stream.seek(stretch * _STRIDE)
        for _ in range(first - int(self.ends[stretch])):
            stream.readline()
        while count > 0 and (data := stream.read(size)):
            if data[-1:] != b"\n":
                data += stream.readline()
            n_lines = _n_ends(data) + (data[-1:] != b"\n")
            if n_lines > count:
                n_lines = count
                data = data[: np.flatnonzero(_are_ends(data))[count - 1] + 1]
            yield data.removeprefix(_BOM) if first == 0 else data, n_lines
            count -= n_lines
            first += n_lines


def split_lines(data: bytes) -> Iterator[str]:
    """Yield the lines of a block as text, with the ends that they have."""
    return map(bytes.decode, io.BytesIO(data))


def count_lines(path: str, kind: str) -> Lines:
    """Count the lines of a file of text."""
    with opened_text(path, kind) as stream:
        return _joined([_counted(stream)])


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
        return 0 if is_packed(path) else stamp_of(path).size
    except UserError:
        return 0
