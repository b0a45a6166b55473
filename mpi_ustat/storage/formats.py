"""Which reader a file is for: the end of its name says so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.storage import arrays, delimited, libsvm
from mpi_ustat.storage.lines import Lines, counted_together
from mpi_ustat.storage.opening import unchanged

_TEXT = tuple(
    suffix + packed for packed in ("", ".gz") for suffix in (".csv", ".tsv", ".txt", ".dat", ".data", ".trn", ".tst")
)
_LIBSVM = tuple(suffix + packed for packed in ("", ".gz") for suffix in (".libsvm", ".svm", ".svmlight"))

OneFile = delimited.DelimitedTable | libsvm.LibsvmTable | arrays.ArrayTable

DECIMALS = ("point", "comma")
"""The signs that delimited text can have before the fraction of a number."""


def lines_counted_together(comm: Any, path: str) -> Lines | None:
    """Count the lines of a large file of delimited text on all ranks; None of other files.  Collective."""
    return counted_together(comm, path, delimited.KIND) if path.lower().endswith(_TEXT) else None


def scan(path: str, decimal: str = "point", lines: Lines | None = None) -> OneFile:
    """Describe the table in a file, which must not change meanwhile.

    `decimal` is for delimited text, whose `lines` are counted unless they are known.
    """
    with unchanged(path) as stamp:
        return replace(_scan(path, decimal, lines), stamp=stamp)


def _scan(path: str, decimal: str, lines: Lines | None) -> OneFile:
    name = os.path.basename(path).lower()
    if name.endswith(_TEXT):
        return delimited.scan(path, decimal_comma=decimal == "comma", lines=lines)
    if not name.endswith(arrays.SUFFIXES + _LIBSVM):
        known = ", ".join((*arrays.SUFFIXES, *_TEXT, *_LIBSVM))
        raise UserError(f"the format of '{path}' is not known from its name: use a file that ends in one of {known}")
    if decimal == "comma":
        raise UserError(f"decimal=\"comma\" is for delimited text such as CSV, not for '{path}': leave it out")
    return libsvm.scan(path) if name.endswith(_LIBSVM) else arrays.scan(path)
