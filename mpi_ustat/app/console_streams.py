"""Streams that take whatever is printed: characters that their encoding lacks, readers that have gone, full disks."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any, TextIO

from mpi_ustat.errors import UserError

_PLAIN = {"±": "+-", "≤": "<=", "≥": ">=", "×": "x", "·": "*", "–": "-", "—": "-", "−": "-", "…": "...", "‖": "|"}
_PLAIN |= {"²": "^2", "½": "1/2", "µ": "u", "μ": "mu", "σ": "sigma", "λ": "lambda", "θ": "theta", "ε": "epsilon"}


class _Output(io.FileIO):
    """Standard output or error, on which nothing fails but, once, what has to be written."""

    def __init__(self, descriptor: int, *, needed: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._needed = needed

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            # A reader that has gone (head, less) is no error of ours.
            told, self._needed = self._needed and not isinstance(error, BrokenPipeError), False
            if told:
                raise UserError(
                    f"the output can't be written ({error.strerror}): free some space, or send it elsewhere"
                ) from error
            return len(data)


def prepare() -> None:
    """Make stdout and stderr such streams; a closed one swallows what it is given."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # or the next file that is opened would take its place, and what is printed
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    codecs.register_error("plain", _plain)
    sys.stdout = _stream(sys.stdout, 1, needed=True)
    sys.stderr = _stream(sys.stderr, 2, needed=False)


def _stream(given: TextIO | None, descriptor: int, *, needed: bool) -> TextIO:
    encoding = given.encoding if given is not None else "utf-8"
    if given is not None:
        given.flush()
    lines = given is not None and (not needed or given.isatty())
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(descriptor, needed=needed)), encoding=encoding, errors="plain", line_buffering=lines
    )


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that an encoding lacks by plain ones; give bytes of names that were no text as they were."""
    assert isinstance(error, UnicodeEncodeError)
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    plain = _PLAIN.get(character)
    return character.encode("ascii", "backslashreplace").decode() if plain is None else plain, error.start + 1
