"""How delimited text is to be read, by its first lines: what cuts them into cells, and whether line 1 is a header.

Delimiters are tried in the order tab, semicolon, comma, runs of blanks; the
first that cuts all these lines into the same number (two or more) of cells is taken. Line 1 is a header when

- above the columns of numbers it holds no number and no sign of a missing value, and at least one name that begins
  with a letter (numbers that count the columns from 0 on are names too: 0, 1, 2, y), and
- in the other columns no cell of it occurs again below (else it is a row like them: ``cat`` above ``cat`` and ``dog``),
  unless two or more columns of numbers all have different names above them;

it is data when all cells above columns of numbers are numbers, or there are no such columns. Anything in between, such
as ``n/a,1`` above numbers, is refused: it could be a row of data. A first line that starts with ``#`` is a header when
it has as many cells as the others, and the second doesn't.

pandas calls columns without names 0, 1, 2, …. Such a line is a header where a row would look different: where it has an
integer above fractions, or a number above texts. Otherwise it is refused, as a lone 0 is above ten fractions or more.
An unnamed first column is a data frame's index, and so is one called ``Unnamed: 0``, as pandas calls it when it has
read and written it.

Numbers have a decimal point. With a decimal comma, which has to be asked for, no comma delimits cells and no number may
have a point, which could group digits. Signs between thousands have to be asked for too, and stand before every three
digits in the numbers that have any. What a `TextFormat` says is not looked for.
"""

from __future__ import annotations

import csv
import functools
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from mpi_ustat.errors import UserError
from mpi_ustat.storage.text_format import OF_THOUSANDS, TextFormat
from mpi_ustat.storage.texts import as_number, brief, is_missing
from mpi_ustat.wording import count_of

BLANKS = " "
"""Stands for a delimiter of one or more blanks or tabs."""

_DELIMITERS = ("\t", ";", ",", BLANKS)
_ONE_COLUMN = "\t"  # splits no line that has a single cell
_MANY = 10
_NOT_NAMES = {"none", "nil", "nat", "missing", "undefined", "unknown"}  # nor missing values: a class may be called so
SEPARATOR = re.compile(r'"?sep=(.?)"?', re.IGNORECASE)
COMMENTS = ("#", "%", "//")
_INTEGER = re.compile(r"[+-]?[0-9]+")
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Dialect:
    """How the lines of a file are to be read."""

    delimiter: str
    """A character, or `BLANKS`."""
    said: TextFormat
    """Among others, how numbers are written: if with a decimal comma, none has a point."""
    has_header: bool
    first: tuple[str, ...]
    """The cells of the first line."""

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers are written with a decimal comma."""
        return self.said.decimal == "comma"

    @property
    def plain_numbers(self) -> bool:
        """Whether numbers are written as NumPy's parser takes them."""
        return not self.decimal_comma and self.said.thousands is None

    def with_point(self, cell: str) -> str:
        """Return a number as Python writes it; what is none may look like one."""
        cell = ungrouped(cell, self.said)
        return cell.replace(",", ".") if self.decimal_comma else cell

    def number(self, cell: str) -> float | None:
        """Return the number that a cell writes."""
        cell = ungrouped(cell, self.said)
        return None if self.decimal_comma and "." in cell else as_number(self.with_point(cell))


def ungrouped(cell: str, said: TextFormat) -> str:
    """Return a number without the signs between its thousands, if all are where they belong."""
    if said.thousands is None or said.thousands not in cell or not _grouped(said).fullmatch(cell):
        return cell
    return cell.replace(said.thousands, "")


@functools.cache
def _grouped(said: TextFormat) -> re.Pattern[str]:
    sign, point = re.escape(said.thousands or ""), re.escape(said.decimal_sign)
    return re.compile(rf"\s*[+-]?[0-9]{{1,3}}(?:{sign}[0-9]{{3}})+(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?\s*")


def ways_to_read(cell: str, said: TextFormat) -> list[str]:
    """Return the options with which a cell would be a number, those of each way as one text; none if there is none."""
    other = "point" if said.decimal == "comma" else "comma"
    found = []
    for decimal, thousands in itertools.product((said.decimal, other), (None, *OF_THOUSANDS)):
        if thousands == decimal or (decimal, thousands) == (said.decimal, None):
            continue
        way = Dialect(_ONE_COLUMN, TextFormat(decimal=decimal, thousands=thousands), False, ())
        needed = decimal == said.decimal or thousands == said.decimal or way.said.decimal_sign in cell
        groups = thousands is None or ungrouped(cell, way.said) != cell
        if needed and groups and way.number(cell) is not None:
            options = {"decimal": decimal} if decimal != said.decimal else {}
            options |= {} if thousands is None else {"thousands": thousands}
            found.append(", ".join(f'{name}="{value}"' for name, value in options.items()))
    return found


def dialect_of(name: str, lines: Sequence[str], said: TextFormat, number: int = 1) -> Dialect:
    """Find out how a file that begins with these lines is to be read, the first of which has a number for messages.

    Files without text are refused, and those whose first line is neither a header nor a row of data.
    """
    decimal_comma = said.decimal == "comma"
    if not "".join(lines).strip():
        raise UserError(f"'{name}' is empty: give a file with data")
    _refuse_line_ends(name, lines)
    if lines[0].isspace():
        raise UserError(f"'{name}', line {number} is blank: remove the line")
    n_comments = len(list(takewhile(lambda line: line.startswith(COMMENTS), lines)))
    is_comment = lines[0].startswith("#") and not (len(lines) > 1 and lines[1].startswith("#"))
    begin = brief(lines[0].strip())
    if is_comment:
        lines = [lines[0].lstrip("# "), *lines[1:]]
    delimiter = said.separator or _sniff(lines, decimal_comma)
    widths = {len(split(line, delimiter)) for line in lines[:2]}
    if said.separator is None and (n_comments > 1 or SEPARATOR.fullmatch(begin) or len(widths) > 1 or widths == {1}):
        _refuse_preamble(name, begin, n_comments, lines, decimal_comma)
    if decimal_comma and len(split(lines[0], delimiter)) == 1 and not all(map(_is_one_cell, lines)):
        raise UserError(
            f"'{name}' has commas between its cells, where decimal=\"comma\" has them inside numbers: "
            'leave out decimal="comma", or write ; or tabs between the cells'
        )
    first, *below = ([bare(cell) for cell in split(line, delimiter)] for line in lines)
    if said.header is not None:
        verdict: str = "header" if said.header == "yes" else "data"
    else:
        rows = ([ungrouped(cell, said) for cell in row] for row in (first, *below))
        verdict = "header" if is_comment else judge_first_row(next(rows), list(rows))
    if verdict == "unclear":
        what = (
            "may be a row of data, or names that pandas has given to columns: put"
            if _counts(first) or first == ["0"]
            else "is neither a header nor a row of data like those below: correct its cells, or put"
        )
        raise UserError(
            f"'{name}', line {number} ('{begin}') {what} a line with the names of all columns before it, or say with "
            "header= whether it has these"
        )
    return Dialect(delimiter, said, verdict == "header", tuple(first))


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

    The first one begins with `begin`, also where `lines` have it without the sign of a comment, as it may be a header.
    """
    begins = f"'{name}' begins with "
    if SEPARATOR.fullmatch(begin):
        raise UserError(f"{begins}the line '{begin}', which is meant for Excel: remove it")
    if 1 < n_comments < len(lines):
        comments = f"{count_of(n_comments, 'line')} of comment, the first of which is '{begin}'"
        raise UserError(f"{begins}{comments}: remove them, or leave them out with comment=")
    below = lines[1:]
    if len(below) < 2:
        return
    delimiter = _sniff(below, decimal_comma)
    width, count = Counter(len(split(line, delimiter)) for line in below).most_common(1)[0]
    found = len(split(lines[0], delimiter))
    if width < 2 or found == width or 2 * count <= len(below):
        return
    if n_comments:
        raise UserError(f"{begins}a line of comment, '{begin}': remove it, or leave it out with comment=")
    if all(DECIMAL_COMMA.fullmatch(line.strip()) for line in below):
        return  # one column, which is told when it is read
    cells = f"line 1 of '{name}' ('{begin}') has {count_of(found, 'cell')} where those below have {width}: "
    if found == width - 1:
        raise UserError(
            f"{cells}write a name for the first column before the others (R leaves it out above the names of rows: "
            "row.names = FALSE)"
        )
    raise UserError(f"{cells}remove it if it is a title, or correct it")


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
    of_numbers = {cell for _, cell in over_numbers if _is_name(cell) and not _says_nothing(cell)}
    surely_names = len(of_numbers) == len(over_numbers) > 1  # which no row of data has in the place of all its numbers
    if not surely_names and any(cell in cells for cell, *cells in over_text):
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


def is_number(cell: str) -> bool:
    """Return whether NumPy's parser takes `cell` for a number."""
    return as_number(cell) is not None


def _looks_like_number(cell: str) -> bool:
    return is_number(cell) or DECIMAL_COMMA.fullmatch(cell) is not None


def _is_name(cell: str) -> bool:
    return (cell[:1].isalpha() or cell[:1] == "_") and not is_number(cell) and not _says_nothing(cell)


def _is_one_cell(line: str) -> bool:
    return "," not in line or DECIMAL_COMMA.fullmatch(line.strip().strip('"').strip()) is not None


def _sniff(lines: Sequence[str], decimal_comma: bool) -> str:
    """Return the delimiter of the first that cuts all lines alike, or else most of them, the first among them."""
    best, best_share = _ONE_COLUMN, 0.5
    for delimiter in _DELIMITERS:
        if decimal_comma and delimiter == ",":
            continue
        widths = [len(split(line, delimiter)) for line in lines]
        width, count = Counter(widths).most_common(1)[0]
        share = count / len(lines)
        if widths[0] > 1 and width > 1 and share > best_share:
            best, best_share = delimiter, share
    return best


def bare(cell: str) -> str:
    """Return a text without blanks around it or the quotation marks that parsers leave when they follow a blank."""
    text = cell.strip()
    if cell[:1].isspace() and len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text


def split(line: str, delimiter: str, strict: bool = False) -> list[str]:
    """Return the cells of a line."""
    line = line.rstrip("\r\n")
    if delimiter == BLANKS:
        if '"' not in line:
            return line.split()
        line = line.replace("\t", " ").strip()
    elif '"' not in line:
        return line.split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == BLANKS, strict=strict))
