"""Text that has to be read from its beginning: compressed, or in another encoding than UTF-8."""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from mpi_ustat.errors import UserError
from mpi_ustat.wording import count_of

_AT_ONCE = 1 << 18
UTF8 = "utf-8"


@contextmanager
def _zip(path: str) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if not each.is_dir()]
        if len(members) != 1:
            raise UserError(
                f"'{os.path.basename(path)}' holds {count_of(len(members), 'file')}: pack one alone, or unpack them"
            )
        try:
            member = archive.open(members[0])
        except (NotImplementedError, RuntimeError) as error:  # of another compression, or with a password
            raise ValueError(str(error)) from error
        with member as stream:
            yield cast(BinaryIO, stream)


@contextmanager
def _zstd(path: str) -> Iterator[BinaryIO]:
    with open(path, "rb") as file:
        try:
            import pyarrow
        except ImportError as error:
            raise UserError(
                f"'{os.path.basename(path)}' is unpacked by the package pyarrow: pip install 'mpi_ustat[parquet]', or "
                "unpack it"
            ) from error

        def parts() -> Iterator[bytes]:
            file.seek(0)
            unpacked = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")
            while part := unpacked.read(_AT_ONCE):
                yield part

        yield buffered(parts)


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstd,
    ".zip": _zip,
}
SUFFIXES = tuple(_OPENERS)
"""How the names of compressed files end."""

DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""What is raised by files that are not what their names say."""


def from_beginning(path: str, encoding: str = UTF8) -> bool:
    """Return whether places in a file of text are found by reading all that is before them."""
    return path.lower().endswith(SUFFIXES) or encoding != UTF8


@contextmanager
def unpacked(path: str, encoding: str = UTF8) -> Iterator[BinaryIO]:
    """Open a file of text, compressed if its name says so, for reading its bytes in UTF-8."""
    opener = _OPENERS.get(os.path.splitext(path)[1].lower(), functools.partial(open, mode="rb"))
    with opener(path) as stream:
        yield stream if encoding == UTF8 else buffered(lambda: _in_utf8(stream, encoding))


def _in_utf8(stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    stream.seek(0)
    decoder = codecs.getincrementaldecoder(encoding)()
    while part := stream.read(_AT_ONCE):
        yield decoder.decode(part).encode()
    yield decoder.decode(b"", True).encode()


def buffered(parts: Callable[[], Iterator[bytes]]) -> BinaryIO:
    """Return a stream of bytes that come in parts, from their beginning each time that `parts` is called."""
    return cast(BinaryIO, io.BufferedReader(_Again(parts), _AT_ONCE))


class _Again(io.RawIOBase):
    """A stream that goes back by starting anew."""

    def __init__(self, parts: Callable[[], Iterator[bytes]]) -> None:
        self._start = parts
        self._parts, self._rest, self._at = parts(), b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        self._at += len(taken)
        return len(taken)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        if offset < self._at:
            self._parts, self._rest, self._at = self._start(), b"", 0
        while self._at < offset and self.readinto(bytearray(min(_AT_ONCE, offset - self._at))):
            pass
        return self._at

    def tell(self) -> int:
        return self._at
