"""Which reader a file is for: the end of its name says so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.storage import arrays, delimited, libsvm
from mpi_ustat.storage.lines import Lines, counted_together
from mpi_ustat.storage.opening import unchanged
from mpi_ustat.storage.packed import SUFFIXES as PACKED
from mpi_ustat.storage.packed import UTF8
from mpi_ustat.storage.text_format import ONLY_LINES, TextFormat, refuse_if_said

_TEXT = tuple(
    suffix + packed for packed in ("", *PACKED) for suffix in (".csv", ".tsv", ".txt", ".dat", ".data", ".trn", ".tst")
)
_LIBSVM = tuple(suffix + packed for packed in ("", *PACKED) for suffix in (".libsvm", ".svm", ".svmlight"))

OneFile = delimited.DelimitedTable | libsvm.LibsvmTable | arrays.ArrayTable


def lines_counted_together(comm: Any, path: str, said: TextFormat) -> Lines | None:
    """Count the lines of a large file of delimited text on all ranks; None of other files.  Collective."""
    if not path.lower().endswith(_TEXT) or said.encoding != UTF8:
        return None
    return counted_together(comm, path, delimited.KIND)


def scan(path: str, said: TextFormat = ONLY_LINES, lines: Lines | None = None) -> OneFile:
    """Describe the table in a file, which must not change meanwhile.

    What is `said` is for delimited text, whose `lines` are counted unless they are known.
    """
    with unchanged(path) as stamp:
        return replace(_scan(path, said, lines), stamp=stamp)


def _scan(path: str, said: TextFormat, lines: Lines | None) -> OneFile:
    name = os.path.basename(path).lower()
    if name.endswith(_TEXT):
        return delimited.scan(path, said, lines)
    if not name.endswith(arrays.SUFFIXES + _LIBSVM):
        known = ", ".join((*arrays.SUFFIXES, *_TEXT, *_LIBSVM))
        raise UserError(f"the format of '{path}' is not known from its name: use a file that ends in one of {known}")
    refuse_if_said(path, said, "delimited text such as CSV")
    return libsvm.scan(path) if name.endswith(_LIBSVM) else arrays.scan(path)
