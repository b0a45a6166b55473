"""What tells that a file is as it was written: a digest of its bytes, after its end; and a digest of any parts.

HDF5 keeps no checksums of what our files are made of, and its library may crash on a damaged one. So the bytes are
checked before it opens the file. Programs that write an HDF5 file anew leave out what follows its end.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable

_MARK = b"\nmpi_ustat blake2b "
_HEX = 32
_LENGTH = len(_MARK) + _HEX + 1
_BLOCK = 1 << 20
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


def check_seal(path: str | os.PathLike[str]) -> None:
    """Compare the bytes of a file with the digest at its end, if it has one.

    Raises
    ------
    ValueError
        If they differ.
    OSError
        If something else follows the end of an HDF5 file, such as a part of a digest, or what another program writes.
    """
    seal = seal_of(path) or b""
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size - _LENGTH
        if not seal.startswith(_MARK):
            head = file.read(48)
            if head.startswith(_SUPERBLOCK) and struct.unpack_from("<Q", head, 40)[0] < left + _LENGTH:
                raise OSError("something follows the end of the file")
            return
        found = hashlib.blake2b(digest_size=_HEX // 2)
        while left > 0:
            block = file.read(min(left, _BLOCK))
            found.update(block)
            left -= len(block) or left  # shorter than it was
    if _seal(found) != seal:
        raise ValueError("the bytes are not those that were written")


def _seal(found: hashlib.blake2b) -> bytes:
    return _MARK + found.hexdigest().encode() + b"\n"
