"""Opening files that are read: what can go wrong in one sentence each, and that they stay what they were."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from mpi_ustat.errors import UserError
from mpi_ustat.storage.packed import DAMAGED, UTF8, unpacked
from mpi_ustat.storage.texts import shown

_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells a file from what it was before: its size in bytes, and when it last changed, in nanoseconds."""

    size: int
    changed: int


@contextmanager
def readable(path: str, kind: str, *, binary: bool = False) -> Iterator[None]:
    """Turn what opening and decoding a file of some kind can raise into one sentence.

    Libraries, which decode what is `binary`, raise whatever their code meets in a damaged file.
    """
    name = os.path.basename(path)
    undecoded = () if binary else (UnicodeDecodeError,)
    damaged = (Exception,) if binary else DAMAGED
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"there is no file '{path}': check its name and folder") from None
    except IsADirectoryError:
        raise UserError(f"'{path}' is a folder: name a file in it") from None
    except PermissionError:
        raise UserError(f"'{path}' may not be read: change its permissions") from None
    except undecoded as error:
        if getattr(error, "encoding", UTF8) != UTF8:
            raise UserError(f"'{name}' is no text in the encoding that is given: give another encoding=") from None
        convert = "convert it, for example with iconv -t UTF-8"
        raise UserError(f"'{name}' is not UTF-8 text: {convert}; encoding= says what delimited text is in") from None
    except damaged as error:
        reason = shown((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise UserError(f"'{name}' can't be read as {kind} ({reason}): check the file or write it again") from None


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file.

    Pipes, devices and sockets are refused: they have no rows that could be read again, and whoever opens one may wait
    for ever.
    """
    with readable(path, "a file"):
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError
    if not stat.S_ISREG(found.st_mode):
        kind = "pipe" if stat.S_ISFIFO(found.st_mode) else "socket" if stat.S_ISSOCK(found.st_mode) else "device"
        raise UserError(f"'{path}' is a {kind}, which can be read only once or without end: give a regular file")
    return Stamp(found.st_size, found.st_mtime_ns)


@contextmanager
def unchanged(path: str, expected: Stamp | None = None) -> Iterator[Stamp]:
    """Give the stamp of a file, which is the expected one and stays so while the context lasts, or refuse the file."""
    before = stamp_of(path)
    compare(path, expected or before, before)
    try:
        yield before
    finally:  # what went wrong meanwhile did so because the file changed
        compare(path, before, stamp_of(path))


def compare(path: str, expected: Stamp, found: Stamp) -> None:
    """Refuse a file that has another stamp than is expected."""
    if found.size != expected.size:
        raise changed(path, "another size")
    whole = {stamp.changed - stamp.changed % _SECOND for stamp in (expected, found)}
    # Some of what copies files (scp -p, tar) keeps whole seconds only.
    if found.changed != expected.changed and (len(whole) > 1 or whole.isdisjoint((expected.changed, found.changed))):
        raise changed(path, "another time of its last change")


def changed(path: str, what: str) -> UserError:
    """Return the error about a file that is not the one that was looked at first."""
    return UserError(
        f"'{os.path.basename(path)}' has {what} than when its rows were counted: it changed meanwhile, or hosts have "
        "different files; give all of them the same (copies by cp -p), complete, and start again"
    )


@contextmanager
def opened_text(path: str, kind: str, encoding: str = UTF8) -> Iterator[BinaryIO]:
    """Open a file of text of some kind, plain or compressed, for reading its bytes in UTF-8."""
    with readable(path, kind), unpacked(path, encoding) as stream:
        yield stream
