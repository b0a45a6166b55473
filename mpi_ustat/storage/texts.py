"""Texts in files: how messages show them, and which of them are numbers, missing, or the name of an index."""

from __future__ import annotations

import re
from math import isinf

from mpi_ustat.points.rows import EXACT_INTEGERS, is_float64

_LONGEST_TEXT = 40
_INTEGER = re.compile(r"[+-]?([0-9]+)(?:\.0*)?")
_DIGIT = frozenset("123456789")
_INDEX = re.compile(r"Unnamed: [0-9]+(\.[0-9]+)*|__index_level_[0-9]+__")
_MISSING = {"", "nan", "+nan", "-nan", "na", "n/a", "<na>", "null", "?"}
MOST_DIGITS = 400  # a float64 has 309, and Python converts no more than 4300


def brief(text: str) -> str:
    """Return a text from a file, or its beginning if it is long, as a message can have it."""
    return shown(text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…")


def shown(text: str) -> str:
    """Return a text from a file as a message can have it: in one line, without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def as_number(text: str) -> float | None:
    """Return the number that a text writes, by the rules of NumPy's parser: no underscores, no digits beyond ASCII."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def is_index(name: str) -> bool:
    """Return whether pandas or Arrow calls the index of the rows so, where it has no name."""
    return _INDEX.fullmatch(name) is not None


def is_missing(text: str) -> bool:
    """Return whether a text stands for a value that is not there."""
    return text.strip().lower() in _MISSING


def is_rounded(number: float, text: str) -> bool:
    """Return whether a text writes an integer that no float64 equals, or a number beyond the range of float64.

    `number` is the nearest float64: infinite, or 0, where the text is beyond the range. Of other fractions the nearest
    one is what is meant.
    """
    if number == 0.0 or isinf(number):
        return not _DIGIT.isdisjoint(text.lower().partition("e")[0])
    if abs(number) < EXACT_INTEGERS:
        return False
    integer = _INTEGER.fullmatch(text)
    return integer is not None and (len(integer[1]) > MOST_DIGITS or not is_float64(int(integer[1])))
