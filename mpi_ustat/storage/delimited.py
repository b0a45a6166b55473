"""Tables in delimited text: CSV, TSV and the like, plain or compressed.

Blank lines are accepted at the end only. Text becomes the nearest float64, but an integer that has none is refused, and
so is a number beyond the range of float64.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.rows import EXACT_INTEGERS
from mpi_ustat.storage.dialect import (
    BLANKS,
    COMMENTS,
    DECIMAL_COMMA,
    SEPARATOR,
    Dialect,
    bare,
    dialect_of,
    split,
    ways_to_read,
)
from mpi_ustat.storage.lines import Lines, count_lines, lines_with, split_lines
from mpi_ustat.storage.opening import changed, opened_text
from mpi_ustat.storage.simple_lines import cells_by_arrow, has_cells, simplified
from mpi_ustat.storage.table import (
    Codes,
    Column,
    FileTable,
    LabelledRows,
    no_codes,
    not_float64,
    recoded,
    refuse_bad_values,
    refuse_missing_label,
)
from mpi_ustat.storage.text_format import ONLY_LINES, TextFormat
from mpi_ustat.storage.texts import brief, is_index, is_rounded, shown
from mpi_ustat.wording import count_of

KIND = "delimited text"
_SAMPLE, _BYTES_OF_SAMPLE = 100, 1 << 16
_BLOCK = 1 << 22
# Two patterns, because each is found by its first bytes, ten times as fast as one pattern with a choice of letters.
# Without an exponent of three digits, a number is tiny after more than 200 zeros.
_TINY = (re.compile(rb"e-0*[1-9][0-9]{2}"), re.compile(rb"E-0*[1-9][0-9]{2}"))
_ZEROS = b"0" * 200


@dataclass(frozen=True)
class DelimitedTable(FileTable):
    """A delimited text file, and where its lines are."""

    dialect: Dialect
    columns: tuple[Column, ...]
    lines: Lines = field(repr=False, compare=False)

    default_label = None

    @property
    def unnamed(self) -> str:
        """The cells of the first line, if these are data."""
        return "" if self.dialect.has_header else " ".join(self.dialect.first)

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        values = np.empty((last - first, len(columns)))
        label_codes = [no_codes()]
        texts = _Texts(self.dialect)
        rounding: UserError | None = None
        row = first
        with opened_text(self.path, KIND, self.dialect.said.encoding) as stream:
            for data, n_rows in self.lines.blocks(stream, first + self.dialect.has_header, last - first, _BLOCK):
                entering(f"reading {self.name}")  # each block is progress
                own = values[row - first : row - first + n_rows]
                label_codes.append(self._fill(own, data, row, columns, label, texts))
                rounding = rounding or self._rounding(own, data, columns, row)
                row += n_rows
        if row < last:
            raise changed(self.path, "another number of lines")
        # Lines that can't be read at all come before what can't be used, wherever they are: they may be why.
        if rounding is not None:
            raise rounding

        def place(row: int) -> str:
            return self._place(first + row)

        refuse_bad_values(values, columns, place)
        if label is None:
            return LabelledRows(values)
        codes = np.concatenate(label_codes)
        refuse_missing_label(codes, tuple(texts.codes), label, place)
        return LabelledRows(values, codes, tuple(texts.codes))

    def _fill(
        self, values: Floats, data: bytes, row: int, columns: Sequence[Column], label: Column | None, texts: _Texts
    ) -> Codes:
        """Fill in the numbers of a block of lines, the first of which is `row`, and return its label codes."""
        delimiter, n_cells = self.dialect.delimiter, len(self.columns)
        of_label = None if label is None else label.index
        wanted = dict.fromkeys(column.index for column in columns)
        simple = simplified(data, delimiter)
        if simple is not None and of_label not in wanted:
            found = cells_by_arrow(simple, delimiter, self.dialect.said.decimal_sign, n_cells, list(wanted), of_label)
            if found is not None and len(found[0][columns[0].index]) == len(values):
                numbers, codes, of_codes = found
                for j, column in enumerate(columns):
                    values[:, j] = numbers[column.index]
                return recoded(codes, [texts.bare(text) for text in of_codes], texts.codes)
        if simple is not None and b'"' not in simple and has_cells(simple, delimiter, n_cells):
            lines: Iterable[str] = data.decode().removesuffix("\n").split("\n")
        else:
            lines = self._checked_lines(data, row)
        converters: dict[int | str, Callable[[str], float]] = {}
        if not self.dialect.plain_numbers:
            converters = {column.index: self._number for column in columns}
        if label is not None:
            converters[label.index] = texts.__getitem__
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells = np.loadtxt(
                    lines,
                    delimiter=None if delimiter == BLANKS else delimiter,
                    usecols=[column.index for column in (columns if label is None else [*columns, label])],
                    converters=converters,
                    comments=None,
                    quotechar='"',
                    ndmin=2,
                    encoding=None,
                )
        except ValueError as error:
            self._explain(columns, data, row)
            raise UserError(f"'{self.name}' can't be read as a table of numbers ({error}): check the file") from error
        if len(cells) != len(values):  # NumPy's parser skips blank lines
            self._explain(columns, data, row)
        values[:] = cells[:, : len(columns)]
        return no_codes() if label is None else cells[:, -1].astype(np.min_scalar_type(len(texts.codes)))

    def _place(self, row: int) -> str:
        return f"'{self.name}', line {self.lines.number(row + self.dialect.has_header) + 1}"

    def _number(self, text: str) -> float:
        """Convert a cell; NumPy passes it on with quotation marks that follow a blank."""
        number = self.dialect.number(bare(text))
        if number is None:
            raise ValueError("not a number")
        return number

    def _checked_lines(self, data: bytes, row: int) -> Iterator[str]:
        """Yield the lines of a block, the first of which is `row`, each with as many cells as there are columns."""
        n_cells = len(self.columns)
        delimiter = self.dialect.delimiter
        by_blanks = delimiter == BLANKS
        for i, line in enumerate(split_lines(data), row):
            # NumPy's parser skips blank lines, and doesn't count the cells it is not asked for.
            n_found = len(line.split()) if by_blanks else line.count(delimiter) + 1
            if n_found != n_cells or '"' in line or line.isspace():
                self._check_line(line, i)
            yield line

    def _check_line(self, line: str, row: int) -> None:
        if line.isspace():
            raise PlacedError(f"{self._place(row)} is blank: remove the line")
        n_found = len(self._cells(line, row))
        if n_found != len(self.columns):
            place, has = self._place(row), count_of(n_found, "cell")
            if line.startswith(COMMENTS):
                begin = brief(line.strip())
                raise PlacedError(f"{place} is a comment, '{begin}': remove the line, or leave it out with comment=")
            first = f"line {self.lines.number(0) + 1} has {len(self.columns)}"
            raise PlacedError(f"{place} has {has} where {first}: correct the line")

    def _cells(self, line: str, row: int) -> list[str]:
        try:
            return split(line, self.dialect.delimiter, strict=True)
        except csv.Error as error:
            raise PlacedError(f"{self._place(row)} has a quotation mark out of place: correct the line") from error

    def _explain(self, columns: Sequence[Column], data: bytes, row: int) -> None:
        """Raise a UserError about the first cell of a block that is not a number, if there is one."""
        for i, line in enumerate(self._checked_lines(data, row), row):
            cells = self._cells(line, i)
            for column in columns:
                fault = self._fault(cells[column.index].strip())
                if fault:
                    raise PlacedError(f"{self._place(i)}: column '{brief(column.name)}' {fault}")
            if "\r" in line.removesuffix("\n").removesuffix("\r") and '"' not in line:
                raise PlacedError(f"{self._place(i)} has a carriage return inside: correct the line")

    def _fault(self, cell: str) -> str:
        """Return the fault of a cell that should be a number; nothing if it is one."""
        if not cell:
            return "is empty: remove the row or fill in the value"
        if self.dialect.number(cell) is not None:
            return ""
        if self.dialect.said.thousands in (".", ",") and self.dialect.said.thousands in cell:
            return f"has '{brief(cell)}', whose digits are not in groups of three: correct it or choose another column"
        ways = ways_to_read(cell, self.dialect.said)
        if ways == ['decimal="comma"']:
            return f"has '{brief(cell)}' with a decimal comma: give decimal=\"comma\", or write numbers with a point"
        if ways == ['decimal="point"'] or (self.dialect.decimal_comma and "." in cell and not ways):
            return f"has '{brief(cell)}' with a point: leave out decimal=\"comma\", or write all numbers with a comma"
        if ways:
            return f"has '{brief(cell)}', which is a number with {' or '.join(ways)}: give that, or correct the cell"
        return f"has '{brief(cell)}', which is not a number: correct it or choose another column"

    def _rounding(self, values: Floats, data: bytes, columns: Sequence[Column], row: int) -> UserError | None:
        """Return the error about the first number of a block that became another one than its text says."""
        suspicious = np.abs(values) >= EXACT_INTEGERS
        if not values.all() and (_ZEROS in data or any(tiny.search(data) for tiny in _TINY)):
            suspicious |= values == 0.0
        if not suspicious.any():
            return None
        lines = data.split(b"\n")
        for i in np.flatnonzero(suspicious.any(axis=1)).tolist():
            cells = self._cells(lines[i].decode(), row + i)
            for j, column in enumerate(columns):
                cell = cells[column.index].strip()
                if is_rounded(values[i, j], self.dialect.with_point(cell)):
                    return not_float64(cell, self._place(row + i), column)
        return None


def _sample(path: str, said: TextFormat, lines: Lines) -> list[str]:
    sample: list[str] = []
    with opened_text(path, KIND, said.encoding) as stream:
        for data, _ in lines.blocks(stream, 0, min(lines.count, _SAMPLE), _BYTES_OF_SAMPLE):
            sample += split_lines(data)
    return sample


class _Texts(dict[str, float]):
    """The code of the label in a cell, found once for each way to write it."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self.codes: dict[str, int] = {}
        self._dialect = dialect

    def __missing__(self, cell: str) -> float:
        self[cell] = code = self.codes.setdefault(self.bare(cell), len(self.codes))
        return code

    def bare(self, cell: str) -> str:
        """Return the label that a cell means."""
        text = bare(cell)
        if self._dialect.decimal_comma and DECIMAL_COMMA.fullmatch(text):
            text = text.replace(",", ".")
        return text


def scan(path: str, said: TextFormat = ONLY_LINES, lines: Lines | None = None) -> DelimitedTable:
    """Find out the dialect, the columns and the number of rows of a delimited text file.

    Its lines are counted unless they are known.
    """
    lines = count_lines(path, KIND, said.encoding) if lines is None else lines
    if said.comment is not None:
        lines = lines.without(lines_with(path, KIND, said.encoding, said.comment))
    sample = _sample(path, said, lines)
    excel = SEPARATOR.fullmatch(sample[0].rstrip("\r\n")) if sample else None
    if excel is not None and excel[1]:
        said = said if said.separator is not None else replace(said, separator=excel[1])
        lines = lines.without([lines.number(0)])
        sample = _sample(path, said, lines)
    dialect = dialect_of(os.path.basename(path), sample, said, lines.number(0) + 1)
    columns = [Column(str(j), j, j, "", lines.count) for j in range(len(dialect.first))]
    if dialect.has_header:
        columns = [
            Column(
                shown(cell) or f"(column {j})",
                j,
                j,
                "",
                lines.count - 1,
                is_index=is_index(cell) or (cell == "" and j == 0),
            )
            for j, cell in enumerate(dialect.first)
        ]
    return DelimitedTable(path, dialect, tuple(columns), lines)
