"""Tables in delimited text: CSV, TSV and the like, plain or gzip'd.

The dialect is read off the first lines. Delimiters are tried in the order tab, semicolon, comma, runs of blanks; the
first that cuts all these lines into the same number (two or more) of cells is taken. Line 1 is a header when

- above the columns of numbers it holds no number and no sign of a missing value, and at least one name that begins
  with a letter (numbers that count the columns from 0 on are names too: 0, 1, 2, y), and
- in the other columns no cell of it occurs again below (else it is a row like them: ``cat`` above ``cat`` and ``dog``);

it is data when all cells above columns of numbers are numbers, or there are no such columns. Anything in between, such
as ``n/a,1`` above numbers, is refused: it could be a row of data. A first line that starts with ``#`` is a header when
it has as many cells as the others, and the second doesn't.

pandas calls columns without names 0, 1, 2, …. Such a line is a header where a row would look different: where it has an
integer above fractions, or a number above texts. Otherwise it is refused, as a lone 0 is above ten fractions or more.
An unnamed first column is a data frame's index, and so is one called ``Unnamed: 0``, as pandas calls it when it has
read and written it.

Numbers have a decimal point. With a decimal comma, which has to be asked for, no comma delimits cells and no number may
have a point, which could group digits.

Blank lines are accepted at the end only. Text becomes the nearest float64, but an integer that has none is refused, and
so is a number beyond the range of float64.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice, takewhile
from typing import Literal

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.points.rows import EXACT_INTEGERS
from mpi_ustat.storage.table import (
    Column,
    FileTable,
    Rows,
    as_number,
    brief,
    changed,
    is_index,
    is_missing,
    is_rounded,
    not_float64,
    open_bytes,
    readable,
    refuse_missing_label,
    refuse_nan,
    shown,
)

BLANKS = " "
"""Stands for a delimiter of one or more blanks or tabs."""

_DELIMITERS = ("\t", ";", ",", BLANKS)
_ONE_COLUMN = "\t"  # splits no line that has a single cell
_SAMPLE = 100
_MANY = 10
_BLOCK = 1 << 20
_NOT_NAMES = {"none", "nil", "nat", "missing", "undefined", "unknown"}  # nor missing values: a class may be called so
# Two patterns, because each is found by its first bytes, ten times as fast as one pattern with a choice of letters.
# Without an exponent of three digits, a number is tiny after more than 200 zeros.
_TINY = (re.compile(rb"e-0*[1-9][0-9]{2}"), re.compile(rb"E-0*[1-9][0-9]{2}"))
_ZEROS = b"0" * 200
_LONGEST_TINY = len(_ZEROS)
_SEPARATOR = re.compile(r'"?sep=.?"?', re.IGNORECASE)
_COMMENTS = ("#", "%", "//")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class DelimitedTable(FileTable):
    """A delimited text file, with an index to its lines.

    Attributes
    ----------
    delimiter : str
        A character, or `BLANKS`.
    has_header : bool
    columns : tuple of Column
    decimal_comma : bool
        Whether numbers are written with a decimal comma, and none with a point.
    newlines : ndarray of int64
        How many lines end before each block of the file: ranks find their rows without reading those of others.
    has_tiny : bool
        Whether there are exponents, or as many zeros, with which a number may be too small for a float64.
    """

    delimiter: str
    has_header: bool
    columns: tuple[Column, ...]
    decimal_comma: bool
    newlines: Ints = field(repr=False, compare=False)
    has_tiny: bool = False

    default_label = None

    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last``.

        Raises
        ------
        UserError
            Naming the line, if a line has too few or too many cells, or a cell is empty, not a number or NaN.
        """
        codes: dict[str, int] = {}

        def encode(text: str) -> float:
            text = _bare(text)
            if self.decimal_comma and _DECIMAL_COMMA.fullmatch(text):
                text = text.replace(",", ".")
            return codes.setdefault(text, len(codes))

        converters: dict[int | str, Callable[[str], float]] = {}
        if self.decimal_comma:
            converters = {column.index: _number_with_comma for column in columns}
        if label is not None:
            converters[label.index] = encode
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells = np.loadtxt(
                    self._checked_lines(first, last),
                    delimiter=None if self.delimiter == BLANKS else self.delimiter,
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
        row = first - 1
        with _lines(self.path, self.newlines, start, last - first) as lines:
            for row, line in enumerate(lines, first):
                # NumPy's parser skips blank lines, and doesn't count the cells it is not asked for.
                n_found = len(line.split()) if by_blanks else line.count(self.delimiter) + 1
                if n_found != n_cells or '"' in line or line.isspace():
                    self._check_line(line, row)
                yield line
        if row + 1 < last:  # NumPy's parser makes no rows of no lines, and refuses them in words about columns
            raise changed(self.path, "another number of lines")

    def _check_line(self, line: str, row: int) -> None:
        if line.isspace():
            raise PlacedError(f"{self._place(row)} is blank: remove the line")
        n_found = len(self._cells(line, row))
        if n_found != len(self.columns) and line.startswith(_COMMENTS):
            raise PlacedError(f"{self._place(row)} is a comment, '{brief(line.strip())}': remove the line")
        if n_found != len(self.columns):
            raise PlacedError(
                f"{self._place(row)} has {n_found} cell{'s' * (n_found != 1)} where line 1 has {len(self.columns)}: "
                "correct the line"
            )

    def _cells(self, line: str, row: int) -> list[str]:
        try:
            return _split(line, self.delimiter, strict=True)
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
        if self.decimal_comma and "." in cell:
            return f"has '{brief(cell)}' with a point: leave out decimal=\"comma\", or write all numbers with a comma"
        if _DECIMAL_COMMA.fullmatch(cell) and not self.decimal_comma:
            return f"has '{brief(cell)}' with a decimal comma: give decimal=\"comma\", or write numbers with a point"
        if not _is_number(cell.replace(",", ".") if self.decimal_comma else cell):
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
                if is_rounded(values[i, j], cell.replace(",", ".") if self.decimal_comma else cell):
                    raise not_float64(cell, self._place(first + i), column)


def scan(path: str, *, decimal_comma: bool = False) -> DelimitedTable:
    """Find out the dialect, the header and the number of rows of a delimited text file.

    Parameters
    ----------
    path : str
    decimal_comma : bool
        Whether numbers are written with a decimal comma; then no comma delimits cells.

    Raises
    ------
    UserError
        If it can't be read, is empty, or its first line is neither a header nor a row of data.
    """
    name = os.path.basename(path)
    with readable(path, "delimited text"):
        newlines, n_lines, has_tiny = _count_lines(path)
        with _lines(path, newlines, 0, min(n_lines, _SAMPLE)) as lines:
            sample = list(lines)
    if not "".join(sample).strip():
        raise UserError(f"'{name}' is empty: give a file with data")
    _refuse_line_ends(name, sample)
    if sample[0].isspace():
        raise UserError(f"'{name}', line 1 is blank: remove the line")
    n_comments = len(list(takewhile(lambda line: line.startswith(_COMMENTS), sample)))
    is_comment = sample[0].startswith("#") and not (len(sample) > 1 and sample[1].startswith("#"))
    begin = brief(sample[0].strip())
    if is_comment:
        sample[0] = sample[0].lstrip("# ")
    delimiter = _sniff(sample, decimal_comma)
    if n_comments > 1 or _SEPARATOR.fullmatch(begin) or not _cuts_alike(sample[:2], delimiter):
        _refuse_preamble(name, begin, n_comments, sample, decimal_comma)
    if decimal_comma and len(_split(sample[0], delimiter)) == 1 and not all(map(_is_one_cell, sample)):
        raise UserError(
            f"'{name}' has commas between its cells, where decimal=\"comma\" has them inside numbers: "
            'leave out decimal="comma", or write ; or tabs between the cells'
        )
    first, *below = ([_bare(cell) for cell in _split(line, delimiter)] for line in sample)
    verdict = "header" if is_comment else judge_first_row(first, below)
    if verdict == "unclear":
        what = (
            "may be a row of data, or names that pandas has given to columns: put"
            if _counts(first) or first == ["0"]
            else "is neither a header nor a row of data like those below: correct its cells, or put"
        )
        raise UserError(f"'{name}', line 1 ('{begin}') {what} a line with the names of all columns before it")
    has_header = verdict == "header"
    names = (
        [shown(cell) or f"(column {j})" for j, cell in enumerate(first)]
        if has_header
        else [str(j) for j in range(len(first))]
    )
    columns = tuple(
        Column(column, j, j, "", n_lines - has_header, is_index=has_header and _is_index(first[j], j))
        for j, column in enumerate(names)
    )
    return DelimitedTable(path, delimiter, has_header, columns, decimal_comma, newlines, has_tiny)


def _refuse_line_ends(name: str, lines: Sequence[str]) -> None:
    """Refuse lines that end with something else than LF or CR LF."""
    if any(line.endswith("\r\r\n") for line in lines):
        raise UserError(
            f"'{name}' ends lines with CR CR LF, as when line ends are converted twice: remove the CRs, for example "
            "with tr -d '\\r'"
        )
    if "\r" in lines[0].rstrip("\r\n"):
        raise UserError(f"'{name}' ends lines with carriage returns only: convert it, for example with tr '\\r' '\\n'")


def _refuse_preamble(name: str, begin: str, n_comments: int, lines: Sequence[str], decimal_comma: bool) -> None:
    """Refuse first lines that are no part of the table, and say what they look like.

    Parameters
    ----------
    name, begin : str
        The file, and the beginning of its first line.
    n_comments : int
        How many lines of comment it begins with.
    lines : sequence of str
        The first, without the sign of a comment if it may be a header.
    decimal_comma : bool
    """
    begins = f"'{name}' begins with "
    if _SEPARATOR.fullmatch(begin):
        raise UserError(f"{begins}the line '{begin}', which is meant for Excel: remove it")
    if 1 < n_comments < len(lines):
        raise UserError(f"{begins}{n_comments} lines of comment, the first of which is '{begin}': remove them")
    below = lines[1:]
    if len(below) < 2:
        return
    delimiter = _sniff(below, decimal_comma)
    width, count = Counter(len(_split(line, delimiter)) for line in below).most_common(1)[0]
    found = len(_split(lines[0], delimiter))
    if width < 2 or found == width or 2 * count <= len(below):
        return
    if n_comments:
        raise UserError(f"{begins}a line of comment, '{begin}': remove it")
    if all(_DECIMAL_COMMA.fullmatch(line.strip()) for line in below):
        return  # one column, which is told when it is read
    cells = f"line 1 of '{name}' ('{begin}') has {found} cell{'s' * (found != 1)} where those below have {width}: "
    if found == width - 1:
        raise UserError(
            f"{cells}write a name for the first column before the others (R leaves it out above the names of rows: "
            "row.names = FALSE)"
        )
    raise UserError(f"{cells}remove it if it is a title, or correct it")


def _cuts_alike(lines: Sequence[str], delimiter: str) -> bool:
    widths = {len(_split(line, delimiter)) for line in lines}
    return len(widths) == 1 and widths != {1}


def _is_index(cell: str, place: int) -> bool:
    return (cell == "" and place == 0) or is_index(cell)


def judge_first_row(first: Sequence[str], below: Sequence[Sequence[str]]) -> Literal["header", "data", "unclear"]:
    """Say whether the first row is a header, by the rule that the module's docstring gives."""
    if not below:
        return "header" if all(_is_name(cell) for cell in first) else "data"
    columns = list(zip(first, *(row for row in below if len(row) == len(first)), strict=True))
    holds_numbers = [_holds_numbers(cells) for _, *cells in columns]
    over_numbers = [(j, first[j]) for j in range(len(first)) if holds_numbers[j]]
    if _counts(first):
        return _judge_counting_row(columns, holds_numbers)
    if list(first) == ["0"] and len(below) >= _MANY and not any(_INTEGER.fullmatch(row[0]) for row in below):
        return "unclear"
    if all(_looks_like_number(cell) for _, cell in over_numbers):
        return "data"
    over_text = [column for column, is_numeric in zip(columns, holds_numbers, strict=True) if not is_numeric]
    if any(cell in cells for cell, *cells in over_text):
        return "unclear"
    # An unnamed first column is the row index of a data frame; then the counted names start after it.
    shift = int(first[0] == "" and len(first) > 1)
    counted = sum(1 for _ in takewhile(lambda pair: pair[1] == str(pair[0]), enumerate(first[shift:])))
    names = [cell for j, cell in over_numbers if not shift <= j < shift + counted and not (j == 0 and shift)]
    if any(_looks_like_number(cell) or _says_nothing(cell) for cell in names) or not any(map(_is_name, names)):
        return "unclear"
    return "header"


def _counts(first: Sequence[str]) -> bool:
    """Return whether a row counts its cells from 0 on, two or more, or any after an empty one."""
    shift = int(first[0] == "")
    return len(first) > 1 and all(cell == str(j) for j, cell in enumerate(first[shift:]))


def _judge_counting_row(
    columns: Sequence[Sequence[str]], holds_numbers: Sequence[bool]
) -> Literal["header", "unclear"]:
    """Say whether a row that counts its cells is the header that pandas writes above columns without names."""
    first = [column[0] for column in columns]
    if first[0] == "":
        rows = [str(k) for k in range(len(columns[0]) - 1)]
        return "header" if list(columns[0][1:]) == rows or not holds_numbers[0] else "unclear"
    if any(not numeric and column[0] not in column[1:] for column, numeric in zip(columns, holds_numbers, strict=True)):
        return "header"
    # Whoever writes fractions writes 0 as 0.0, or writes them shorter, when other zeros and ones would be seen below.
    fractions = [all(_INTEGER.fullmatch(cell) is None for cell in column[1:]) for column in columns]
    return "header" if all(fractions) or (any(fractions) and len(first) > 2) else "unclear"


def _says_nothing(cell: str) -> bool:
    return is_missing(cell) or cell.lower() in _NOT_NAMES


def _holds_numbers(cells: Sequence[str]) -> bool:
    present = [cell for cell in cells if _looks_like_number(cell) or not is_missing(cell)]
    return bool(present) and all(map(_looks_like_number, present))


def _is_number(cell: str) -> bool:
    """Return whether NumPy's parser takes `cell` for a number."""
    return as_number(cell) is not None


def _looks_like_number(cell: str) -> bool:
    return _is_number(cell) or _DECIMAL_COMMA.fullmatch(cell) is not None


def _is_name(cell: str) -> bool:
    return (cell[:1].isalpha() or cell[:1] == "_") and not _is_number(cell) and not _says_nothing(cell)


def _number_with_comma(text: str) -> float:
    """Convert a cell with a decimal comma; NumPy passes it on with quotation marks that follow a blank."""
    number = None if "." in text else as_number(_bare(text).replace(",", "."))
    if number is None:
        raise ValueError("not a number with a decimal comma")
    return number


def _is_one_cell(line: str) -> bool:
    return "," not in line or _DECIMAL_COMMA.fullmatch(line.strip().strip('"').strip()) is not None


def _sniff(lines: Sequence[str], decimal_comma: bool) -> str:
    """Return the delimiter of the first that cuts all lines alike, or else most of them, the first among them."""
    best, best_share = _ONE_COLUMN, 0.5
    for delimiter in _DELIMITERS:
        if decimal_comma and delimiter == ",":
            continue
        widths = [len(_split(line, delimiter)) for line in lines]
        width, count = Counter(widths).most_common(1)[0]
        share = count / len(lines)
        if widths[0] > 1 and width > 1 and share > best_share:
            best, best_share = delimiter, share
    return best


def _bare(cell: str) -> str:
    """Return a text without blanks around it or the quotation marks that parsers leave when they follow a blank."""
    text = cell.strip()
    if cell[:1].isspace() and len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text


def _split(line: str, delimiter: str, strict: bool = False) -> list[str]:
    line = line.rstrip("\r\n")
    if delimiter == BLANKS:
        if '"' not in line:
            return line.split()
        line = line.replace("\t", " ").strip()
    elif '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == BLANKS, strict=strict))


def _count_lines(path: str) -> tuple[Ints, int, bool]:
    """Return what can be counted without cutting lines into cells.

    Returns
    -------
    newlines : ndarray of int64
        How many lines end before each block.
    n_lines : int
        How many there are, but for blank ones at the end.
    has_tiny : bool
        Whether any has an exponent, or zeros, for tiny numbers.
    """
    newlines, n_lines = [0], 0
    has_tiny, before = False, b""
    with open_bytes(path) as stream:
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
    with readable(path, "delimited text"), open_bytes(path) as stream:
        block = max(int(np.searchsorted(newlines, first)) - 1, 0)
        stream.seek(block * _BLOCK)
        for _ in range(first - int(newlines[block])):
            stream.readline()
        with TextIOWrapper(stream, encoding="utf-8-sig" if first == 0 else "utf-8", newline="\n") as text:
            yield islice(text, count)
