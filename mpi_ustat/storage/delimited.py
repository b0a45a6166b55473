"""Tables in delimited text: CSV, TSV and the like, plain or gzip'd.

The dialect is read off the first lines. Delimiters are tried in the order tab, semicolon, comma, runs of blanks; the
first that cuts all these lines into the same number (two or more) of cells is taken. Line 1 is a header when

- above the columns of numbers it holds no number and no sign of a missing value, and at least one name that begins
  with a letter (numbers that count the columns, 0, 1, 2…, are names too), and
- in the other columns no cell of it occurs again below (else it is a row like them: ``cat`` above ``cat`` and ``dog``);

it is data when all cells above columns of numbers are numbers, or there are no such columns. Anything in between, such
as ``n/a,1`` above numbers, is refused: it could be a row of data. A first line that starts with ``#`` is a header when
the second doesn't.

Blank lines are accepted at the end only. Text becomes the nearest float64, but an integer that has none is refused.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from typing import BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.statistics.points import EXACT_INTEGERS, is_float64
from mpi_ustat.storage.table import (
    Column,
    Rows,
    as_number,
    is_missing,
    not_float64,
    readable,
    refuse_missing_label,
    refuse_nan,
)

BLANKS = " "
"""Stands for a delimiter of one or more blanks or tabs."""

_DELIMITERS = ("\t", ";", ",", BLANKS)
_ONE_COLUMN = "\t"  # splits no line that has a single cell
_SAMPLE = 100
_BLOCK = 1 << 20
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class DelimitedTable:
    """A delimited text file, with an index to its lines.

    Attributes
    ----------
    path : str
    delimiter : str
        A character, or `BLANKS`.
    has_header : bool
    columns : tuple of Column
    newlines : ndarray of int64
        How many lines end before each block of the file: ranks find their rows without reading those of others.
    """

    path: str
    delimiter: str
    has_header: bool
    columns: tuple[Column, ...]
    newlines: NDArray[np.int64] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last`` of some columns.

        Raises
        ------
        UserError
            Naming the line, if a line has too few or too many cells, or a cell is empty, not a number or NaN.
        """
        codes: dict[str, int] = {}

        def encode(text: str) -> float:
            return codes.setdefault(_bare(text), len(codes))

        if first == last:
            return Rows(np.empty((0, len(columns))), np.empty(0, dtype=np.intp), ())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells = np.loadtxt(
                    self._checked_lines(first, last),
                    delimiter=None if self.delimiter == BLANKS else self.delimiter,
                    usecols=[column.index for column in (columns if label is None else [*columns, label])],
                    converters=None if label is None else {label.index: encode},
                    comments=None,
                    quotechar='"',
                    ndmin=2,
                    encoding=None,
                )
        except ValueError as error:
            self._explain(columns, first, last)
            raise UserError(f"'{self.name}' can't be read as a table of numbers ({error}): check the file") from error

        def place(row: int) -> str:
            return self._place(first + row)

        values = np.ascontiguousarray(cells[:, : len(columns)])
        self._refuse_rounded(values, columns, first, last)
        refuse_nan(values, columns, place)
        if label is None:
            return Rows(values, np.empty(0, dtype=np.intp), ())
        label_codes = cells[:, -1].astype(np.intp)
        refuse_missing_label(label_codes, tuple(codes), label, place)
        return Rows(values, label_codes, tuple(codes))

    def _place(self, row: int) -> str:
        return f"'{self.name}', line {row + 1 + self.has_header}"

    def _checked_lines(self, first: int, last: int) -> Iterator[str]:
        """Yield the lines of rows, each with as many cells as there are columns."""
        n_cells = len(self.columns)
        by_blanks = self.delimiter == BLANKS
        start = first + self.has_header
        with _lines(self.path, self.newlines, start, last - first) as lines:
            for row, line in enumerate(lines, first):
                # NumPy's parser skips blank lines, and doesn't count the cells it is not asked for.
                n_found = len(line.split()) if by_blanks else line.count(self.delimiter) + 1
                if n_found != n_cells or '"' in line or line.isspace():
                    self._check_line(line, row)
                yield line

    def _check_line(self, line: str, row: int) -> None:
        if line.isspace():
            raise UserError(f"{self._place(row)} is blank: remove the line")
        n_found = len(self._cells(line, row))
        if n_found != len(self.columns):
            raise UserError(
                f"{self._place(row)} has {n_found} cell{'s' * (n_found != 1)} where line 1 has {len(self.columns)}: "
                "correct the line"
            )

    def _cells(self, line: str, row: int) -> list[str]:
        try:
            return _split(line, self.delimiter, strict=True)
        except csv.Error as error:
            raise UserError(f"{self._place(row)} has a quotation mark out of place: correct the line") from error

    def _explain(self, columns: Sequence[Column], first: int, last: int) -> None:
        """Raise a UserError about the first cell that is not a number, if there is one."""
        for row, line in enumerate(self._checked_lines(first, last), first):
            cells = self._cells(line, row)
            for column in columns:
                cell = cells[column.index].strip()
                if not cell:
                    raise UserError(
                        f"{self._place(row)}: column '{column.name}' is empty: remove the row or fill in the value"
                    )
                if _DECIMAL_COMMA.fullmatch(cell):
                    raise UserError(
                        f"{self._place(row)}: column '{column.name}' has '{cell}' with a decimal comma: "
                        "write numbers with a point"
                    )
                if not _is_number(cell):
                    raise UserError(
                        f"{self._place(row)}: column '{column.name}' has '{cell[:40]}', which is not a number: "
                        "correct it or choose another column"
                    )

    def _refuse_rounded(self, values: NDArray[np.float64], columns: Sequence[Column], first: int, last: int) -> None:
        """Raise a UserError if an integer in the text became another one."""
        large = np.isfinite(values) & (np.abs(values) >= EXACT_INTEGERS)
        suspects = set(np.flatnonzero(large.any(axis=1)).tolist())
        if not suspects:
            return
        for i, line in enumerate(self._checked_lines(first, last)):
            if i not in suspects:
                continue
            cells = self._cells(line, first + i)
            for j, column in enumerate(columns):
                cell = cells[column.index].strip()
                if large[i, j] and _INTEGER.fullmatch(cell) and not is_float64(int(cell)):
                    raise not_float64(cell, self._place(first + i), column)


def scan(path: str) -> DelimitedTable:
    """Find out the dialect, the header and the number of rows of a delimited text file.

    Raises
    ------
    UserError
        If it can't be read, is empty, or its first line is neither a header nor a row of data.
    """
    name = os.path.basename(path)
    with readable(path, "delimited text"):
        newlines, n_lines = _count_lines(path)
        with _lines(path, newlines, 0, min(n_lines, _SAMPLE)) as lines:
            sample = list(lines)
    if not "".join(sample).strip():
        raise UserError(f"'{name}' is empty: give a file with data")
    if "\r" in sample[0].rstrip("\r\n"):
        raise UserError(f"'{name}' ends lines with carriage returns only: convert it, for example with tr '\\r' '\\n'")
    if sample[0].isspace():
        raise UserError(f"'{name}', line 1 is blank: remove the line")
    is_comment = sample[0].startswith("#") and not (len(sample) > 1 and sample[1].startswith("#"))
    if is_comment:
        sample[0] = sample[0].lstrip("# ")
    delimiter = _sniff(sample)
    first, *below = ([_bare(cell) for cell in _split(line, delimiter)] for line in sample)
    verdict = "header" if is_comment else judge_first_row(first, below)
    if verdict == "unclear":
        raise UserError(
            f"'{name}', line 1 is neither a header nor a row of data like those below: "
            "correct its cells, or put a line with the names of all columns before it"
        )
    has_header = verdict == "header"
    names = (
        [cell or f"(column {j})" for j, cell in enumerate(first)] if has_header else [str(j) for j in range(len(first))]
    )
    columns = tuple(Column(column, j, j, "", n_lines - has_header) for j, column in enumerate(names))
    return DelimitedTable(path, delimiter, has_header, columns, newlines)


def judge_first_row(first: Sequence[str], below: Sequence[Sequence[str]]) -> Literal["header", "data", "unclear"]:
    """Say whether the first row is a header, by the rule that the module's docstring gives."""
    if not below:
        return "header" if all(_is_name(cell) for cell in first) else "data"
    columns = list(zip(first, *(row for row in below if len(row) == len(first)), strict=True))
    holds_numbers = [_holds_numbers(cells) for _, *cells in columns]
    over_numbers = [(j, first[j]) for j in range(len(first)) if holds_numbers[j]]
    if all(_looks_like_number(cell) for _, cell in over_numbers):
        return "data"
    over_text = [column for column, is_numeric in zip(columns, holds_numbers, strict=True) if not is_numeric]
    if any(cell in cells for cell, *cells in over_text):
        return "unclear"
    # An unnamed first column is the row index of a data frame; then the counted names start after it.
    shift = int(first[0] == "" and len(first) > 1)
    names = [cell for j, cell in over_numbers if cell != str(j - shift) and not (j == 0 and shift)]
    if any(_looks_like_number(cell) or is_missing(cell) for cell in names) or not any(map(_is_name, names)):
        return "unclear"
    return "header"


def _holds_numbers(cells: Sequence[str]) -> bool:
    present = [cell for cell in cells if _looks_like_number(cell) or not is_missing(cell)]
    return bool(present) and all(map(_looks_like_number, present))


def _is_number(cell: str) -> bool:
    """Return whether NumPy's parser takes `cell` for a number."""
    return as_number(cell) is not None


def _looks_like_number(cell: str) -> bool:
    return _is_number(cell) or _DECIMAL_COMMA.fullmatch(cell) is not None


def _is_name(cell: str) -> bool:
    return (cell[:1].isalpha() or cell[:1] == "_") and not _is_number(cell) and not is_missing(cell)


def _sniff(lines: Sequence[str]) -> str:
    """Return the delimiter of the first that cuts all lines alike, or else most of them, the first among them."""
    best, best_share = _ONE_COLUMN, 0.5
    for delimiter in _DELIMITERS:
        widths = [len(_split(line, delimiter)) for line in lines]
        width, count = Counter(widths).most_common(1)[0]
        share = count / len(lines)
        if widths[0] > 1 and width > 1 and share > best_share:
            best, best_share = delimiter, share
    return best


def _bare(cell: str) -> str:
    """Return a text without blanks around it or quotation marks, which parsers leave when they follow a blank."""
    return cell.strip().strip('"').strip()


def _split(line: str, delimiter: str, strict: bool = False) -> list[str]:
    line = line.rstrip("\r\n")
    if delimiter == BLANKS:
        if '"' not in line:
            return line.split()
        line = line.replace("\t", " ").strip()
    elif '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == BLANKS, strict=strict))


def _count_lines(path: str) -> tuple[NDArray[np.int64], int]:
    """Return how many lines end before each block of a file, and the number of lines but for blank ones at the end."""
    newlines, n_lines = [0], 0
    with _open(path) as stream:
        while block := stream.read(_BLOCK):
            filled = block.rstrip(b" \t\r\n")
            if filled:
                n_lines = newlines[-1] + filled.count(b"\n") + 1
            newlines.append(newlines[-1] + block.count(b"\n"))
    return np.array(newlines[:-1] or [0], dtype=np.int64), n_lines


@contextmanager
def _lines(path: str, newlines: NDArray[np.int64], first: int, count: int) -> Iterator[Iterator[str]]:
    """Open a file at its line `first` (from 0) and give `count` lines."""
    with readable(path, "delimited text"), _open(path) as stream:
        block = max(int(np.searchsorted(newlines, first)) - 1, 0)
        stream.seek(block * _BLOCK)
        for _ in range(first - int(newlines[block])):
            stream.readline()
        with TextIOWrapper(stream, encoding="utf-8-sig" if first == 0 else "utf-8", newline="\n") as text:
            yield islice(text, count)


def _open(path: str) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.lower().endswith(".gz") else open(path, "rb")
