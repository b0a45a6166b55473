"""What tells that a file is as it was written: a digest of its bytes, after its end; and a digest of any parts.

HDF5 keeps no checksums of what our files are made of, and its library may crash on a damaged one. So the bytes are
checked before it opens the file. Programs that write an HDF5 file anew leave out what follows its end.

Records may follow that digest: how long one is, with a digest of that, what it holds, and a digest of it all and of the
digest before. So each belongs to its file and its place in it. The last one may be cut short, as a process that is
killed leaves it, and then counts as not written; whatever else is not as it was written is refused.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

_MARK = b"\nmpi_ustat blake2b "
_HEX = 32
_LENGTH = len(_MARK) + _HEX + 1
_BLOCK = 1 << 20
_NUMBER = 8
_HEAD = _NUMBER + _HEX // 2
"""Bytes before what a record holds: its length, and their digest, without which a changed length would look cut off."""
_SUPERBLOCK = b"\x89HDF\r\n\x1a\n\0"
"""How HDF5 files of our version begin; the 8 bytes from 40 on say where they end."""


def digest_of(parts: Iterable[bytes]) -> str:
    """Return a digest of some parts and where each ends, 128 bits as text."""
    found = hashlib.blake2b(digest_size=_HEX // 2)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def sealed(content: bytes) -> bytes:
    """Return the content of a file with the digest of its bytes after it."""
    return content + _seal(hashlib.blake2b(content, digest_size=_HEX // 2))


def seal(file: BinaryIO) -> None:
    """Add the digest of its bytes to the end of a file that is open for reading and writing."""
    found = hashlib.blake2b(digest_size=_HEX // 2)
    file.seek(0)
    while block := file.read(_BLOCK):
        found.update(block)
    file.write(_seal(found))


def seal_of(path: str | os.PathLike[str]) -> bytes | None:
    """Return the last bytes of a file, which differ where its content does; None if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _LENGTH, 0))
            return file.read()
    except FileNotFoundError:
        return None
    except OSError:
        return b""


def record(seal: bytes, content: bytes) -> bytes:
    """Return the bytes to write after a file that ends in `seal`, so that `records_of` finds the content."""
    head = _head(seal, len(content))
    return head + content + _seal_of_record(seal, head + content)


def records_of(path: str | os.PathLike[str]) -> list[bytes]:
    """Compare the bytes of a file with the digests in it, if it has any, and return what its records hold.

    Raises
    ------
    ValueError
        If they differ.
    OSError
        If something else follows the end of an HDF5 file, such as a part of a digest, or what another program writes.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(48)
        ends = struct.unpack_from("<Q", head, 40)[0] if head.startswith(_SUPERBLOCK) and len(head) == 48 else size
        left = ends if ends + _LENGTH <= size else max(size - _LENGTH, 0)
        file.seek(left)
        seal = file.read(_LENGTH)
        if not seal.startswith(_MARK):
            if ends < size:
                raise OSError("something follows the end of the file")
            return []
        file.seek(0)
        found = hashlib.blake2b(digest_size=_HEX // 2)
        while left > 0:
            block = file.read(min(left, _BLOCK))
            found.update(block)
            left -= len(block) or left  # shorter than it was
        if _seal(found) != seal:
            raise ValueError("the bytes are not those that were written")
        file.seek(_LENGTH, os.SEEK_CUR)
        return list(_records(file, seal))


def _records(file: BinaryIO, seal: bytes) -> Iterator[bytes]:
    while len(head := file.read(_HEAD)) == _HEAD:
        length = int.from_bytes(head[:_NUMBER], "little")
        if head != _head(seal, length):
            raise ValueError("the length of a record is not the one that was written")
        content, end = file.read(length), file.read(_LENGTH)
        if len(end) < _LENGTH:  # cut short
            return
        seal = _seal_of_record(seal, head + content)
        if end != seal:
            raise ValueError("a record is not the one that was written")
        yield content


def _head(seal: bytes, length: int) -> bytes:
    number = length.to_bytes(_NUMBER, "little")
    return number + hashlib.blake2b(seal + number, digest_size=_HEAD - _NUMBER).digest()


def _seal_of_record(seal: bytes, content: bytes) -> bytes:
    return _seal(hashlib.blake2b(seal + content, digest_size=_HEX // 2))


def _seal(found: hashlib.blake2b) -> bytes:
    return _MARK + found.hexdigest().encode() + b"\n"
