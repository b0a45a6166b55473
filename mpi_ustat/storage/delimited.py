"""Tables in delimited text: CSV, TSV and the like, plain or gzip'd.

Blank lines are accepted at the end only. Text becomes the nearest float64, but an integer that has none is refused, and
so is a number beyond the range of float64.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.points.rows import EXACT_INTEGERS
from mpi_ustat.storage.dialect import BLANKS, COMMENTS, DECIMAL_COMMA, Dialect, bare, dialect_of, is_number, split
from mpi_ustat.storage.opening import changed, opened_text
from mpi_ustat.storage.table import Column, FileTable, LabelledRows, not_float64, refuse_missing_label, refuse_nan
from mpi_ustat.storage.texts import as_number, brief, is_index, is_rounded, shown

_KIND = "delimited text"
_SAMPLE = 100
_BLOCK = 1 << 20
# Two patterns, because each is found by its first bytes, ten times as fast as one pattern with a choice of letters.
# Without an exponent of three digits, a number is tiny after more than 200 zeros.
_TINY = (re.compile(rb"e-0*[1-9][0-9]{2}"), re.compile(rb"E-0*[1-9][0-9]{2}"))
_ZEROS = b"0" * 200
_LONGEST_TINY = len(_ZEROS)


@dataclass(frozen=True)
class DelimitedTable(FileTable):
    """A delimited text file, with an index to its lines."""

    dialect: Dialect
    columns: tuple[Column, ...]
    newlines: Ints = field(repr=False, compare=False)
    """How many lines end before each block of the file: ranks find their rows without reading those of others."""
    has_tiny: bool = False
    """Whether there are exponents, or as many zeros, with which a number may be too small for a float64."""

    default_label = None

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        codes: dict[str, int] = {}

        def encode(text: str) -> float:
            text = bare(text)
            if self.dialect.decimal_comma and DECIMAL_COMMA.fullmatch(text):
                text = text.replace(",", ".")
            return codes.setdefault(text, len(codes))

        converters: dict[int | str, Callable[[str], float]] = {}
        if self.dialect.decimal_comma:
            converters = {column.index: _number_with_comma for column in columns}
        if label is not None:
            converters[label.index] = encode
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells = np.loadtxt(
                    self._checked_lines(first, last),
                    delimiter=None if self.dialect.delimiter == BLANKS else self.dialect.delimiter,
                    usecols=[column.index for column in (columns if label is None else [*columns, label])],
                    converters=converters,
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
            return LabelledRows(values)
        label_codes = cells[:, -1].astype(np.intp)
        refuse_missing_label(label_codes, tuple(codes), label, place)
        return LabelledRows(values, label_codes, tuple(codes))

    def _place(self, row: int) -> str:
        return f"'{self.name}', line {row + 1 + self.dialect.has_header}"

    def _checked_lines(self, first: int, last: int) -> Iterator[str]:
        """Yield the lines of rows, each with as many cells as there are columns."""
        n_cells = len(self.columns)
        delimiter = self.dialect.delimiter
        by_blanks = delimiter == BLANKS
        row = first - 1
        with _lines(self.path, self.newlines, first + self.dialect.has_header, last - first) as lines:
            for row, line in enumerate(lines, first):
                # NumPy's parser skips blank lines, and doesn't count the cells it is not asked for.
                n_found = len(line.split()) if by_blanks else line.count(delimiter) + 1
                if n_found != n_cells or '"' in line or line.isspace():
                    self._check_line(line, row)
                yield line
        if row + 1 < last:  # NumPy's parser makes no rows of no lines, and refuses them in words about columns
            raise changed(self.path, "another number of lines")

    def _check_line(self, line: str, row: int) -> None:
        if line.isspace():
            raise PlacedError(f"{self._place(row)} is blank: remove the line")
        n_found = len(self._cells(line, row))
        if n_found != len(self.columns):
            if line.startswith(COMMENTS):
                raise PlacedError(f"{self._place(row)} is a comment, '{brief(line.strip())}': remove the line")
            raise PlacedError(
                f"{self._place(row)} has {n_found} cell{'s' * (n_found != 1)} where line 1 has {len(self.columns)}: "
                "correct the line"
            )

    def _cells(self, line: str, row: int) -> list[str]:
        try:
            return split(line, self.dialect.delimiter, strict=True)
        except csv.Error as error:
            raise PlacedError(f"{self._place(row)} has a quotation mark out of place: correct the line") from error

    def _explain(self, columns: Sequence[Column], first: int, last: int) -> None:
        """Raise a UserError about the first cell that is not a number, if there is one."""
        for row, line in enumerate(self._checked_lines(first, last), first):
            cells = self._cells(line, row)
            for column in columns:
                fault = self._fault(cells[column.index].strip())
                if fault:
                    raise PlacedError(f"{self._place(row)}: column '{brief(column.name)}' {fault}")

    def _fault(self, cell: str) -> str:
        """Return what is wrong with a cell that should be a number; nothing if it is one."""
        if not cell:
            return "is empty: remove the row or fill in the value"
        if self.dialect.decimal_comma and "." in cell:
            return f"has '{brief(cell)}' with a point: leave out decimal=\"comma\", or write all numbers with a comma"
        if DECIMAL_COMMA.fullmatch(cell) and not self.dialect.decimal_comma:
            return f"has '{brief(cell)}' with a decimal comma: give decimal=\"comma\", or write numbers with a point"
        if not is_number(self.dialect.with_point(cell)):
            return f"has '{brief(cell)}', which is not a number: correct it or choose another column"
        return ""

    def _refuse_rounded(self, values: Floats, columns: Sequence[Column], first: int, last: int) -> None:
        """Raise a UserError if a number in the text became another one."""
        suspicious = np.abs(values) >= EXACT_INTEGERS
        if self.has_tiny:
            suspicious |= values == 0.0
        suspects = set(np.flatnonzero(suspicious.any(axis=1)).tolist())
        if not suspects:
            return
        for i, line in enumerate(self._checked_lines(first, last)):
            if i not in suspects:
                continue
            cells = self._cells(line, first + i)
            for j, column in enumerate(columns):
                cell = cells[column.index].strip()
                if is_rounded(values[i, j], self.dialect.with_point(cell)):
                    raise not_float64(cell, self._place(first + i), column)


def _number_with_comma(text: str) -> float:
    """Convert a cell with a decimal comma; NumPy passes it on with quotation marks that follow a blank."""
    number = None if "." in text else as_number(bare(text).replace(",", "."))
    if number is None:
        raise ValueError("not a number with a decimal comma")
    return number


def _count_lines(path: str) -> tuple[Ints, int, bool]:
    """Return what can be counted without cutting lines into cells.

    That is how many lines end before each block; how many there are, but for blank ones at the end; and whether any has
    an exponent, or zeros, for tiny numbers.
    """
    newlines, n_lines = [0], 0
    has_tiny, before = False, b""
    with opened_text(path, _KIND) as stream:
        while block := stream.read(_BLOCK):
            filled = block.rstrip(b" \t\r\n")
            if filled:
                n_lines = newlines[-1] + filled.count(b"\n") + 1
            newlines.append(newlines[-1] + block.count(b"\n"))
            block = before + block
            has_tiny = has_tiny or _ZEROS in block or any(tiny.search(block) for tiny in _TINY)
            before = block[-_LONGEST_TINY:]
    return np.array(newlines[:-1] or [0], dtype=np.int64), n_lines, has_tiny


@contextmanager
def _lines(path: str, newlines: Ints, first: int, count: int) -> Iterator[Iterator[str]]:
    """Open a file at its line `first` (from 0) and give `count` lines."""
    with opened_text(path, _KIND) as stream:
        block = max(int(np.searchsorted(newlines, first)) - 1, 0)
        stream.seek(block * _BLOCK)
        for _ in range(first - int(newlines[block])):
            stream.readline()
        with TextIOWrapper(stream, encoding="utf-8-sig" if first == 0 else "utf-8", newline="\n") as text:
            yield islice(text, count)


def scan(path: str, *, decimal_comma: bool = False) -> DelimitedTable:
    """Find out the dialect, the columns and the number of rows of a delimited text file."""
    newlines, n_lines, has_tiny = _count_lines(path)
    with _lines(path, newlines, 0, min(n_lines, _SAMPLE)) as lines:
        sample = list(lines)
    found = dialect_of(os.path.basename(path), sample, decimal_comma)
    columns = [Column(str(j), j, j, "", n_lines) for j in range(len(found.first))]
    if found.has_header:
        columns = [
            Column(
                shown(cell) or f"(column {j})",
                j,
                j,
                "",
                n_lines - 1,
                is_index=is_index(cell) or (cell == "" and j == 0),
            )
            for j, cell in enumerate(found.first)
        ]
    return DelimitedTable(path, found, tuple(columns), newlines, has_tiny)
