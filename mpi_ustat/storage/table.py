"""What a table is, whatever the file: named columns of equal length, and the rules every format keeps.

The rules: numbers become float64 and no integer is rounded silently, NaN is refused with its place, ±inf is a number
like others, and a column is chosen by its exact name or by its number, counted from 0.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isinf
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.rows import EXACT_INTEGERS, is_float64, rounded

NO_LINKS: Mapping[str, str] = MappingProxyType({})

_LISTED_COLUMNS = 20
_LONGEST_TEXT = 40
_SECOND = 10**9
_INTEGER = re.compile(r"[+-]?([0-9]+)(?:\.0*)?")
_DIGIT = frozenset("123456789")
_MOST_DIGITS = 400  # a float64 has 309, and Python converts no more than 4300
_INDEX = re.compile(r"Unnamed: [0-9]+(\.[0-9]+)*|__index_level_[0-9]+__")
_MISSING = {"", "nan", "+nan", "-nan", "na", "n/a", "<na>", "null", "?"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column on offer in a file.

    Attributes
    ----------
    name : str
        What it is called in messages and results.
    index : int
        Its place among the cells of a line, or among the columns of its array.
    number : int or None
        The number by which it can be chosen, if there is one.
    array : str
        The array it is part of, for files of arrays.
    n_rows : int
        Its length.
    holds : str
        ``"numbers"``, ``"text"``, or the name of another data type, which can't be used.
    refusal : str
        The sentence that refuses a column of which not all can be read; empty if it can.
    is_index : bool
        Whether it numbers or names the rows, as far as the file tells: never meant unless it is asked for.
    finite : bool
        Whether infinite values are refused.
    """

    name: str
    index: int
    number: int | None
    array: str
    n_rows: int
    holds: str = "numbers"
    refusal: str = ""
    is_index: bool = False
    finite: bool = False


@dataclass(frozen=True)
class NumberedColumns(Sequence[Column]):
    """A column with a name, and columns named ``1``, ``2``, …; made when they are looked at: there may be millions.

    Attributes
    ----------
    first : str
    n_others, n_rows : int
    """

    first: str
    n_others: int
    n_rows: int

    def __len__(self) -> int:
        return self.n_others + 1

    @overload
    def __getitem__(self, index: int) -> Column: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Column]: ...
    def __getitem__(self, index: int | slice) -> Column | Sequence[Column]:
        if isinstance(index, slice):
            return [self[j] for j in range(*index.indices(len(self)))]
        j = range(len(self))[index]
        return Column(str(j) if j else self.first, j, None, "", self.n_rows)

    def named(self, name: str) -> list[Column]:
        """Return the columns of this name, without looking at the others."""
        j = int(name) if name.isdecimal() and len(name) < _MOST_DIGITS else 0
        return [column for column in self[j : j + 1] if column.name == name]


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a table.

    Attributes
    ----------
    values : ndarray of float64, shape (rows, columns)
        The data columns, without NaN.
    label_codes : ndarray of int, shape (rows,)
        Each row's label, as an index into `label_texts`, of a type that need not be wider; empty when no label was
        asked for.
    label_texts : tuple of str
        The distinct labels of these rows.
    """

    values: Floats
    label_codes: NDArray[np.integer[Any]]
    label_texts: tuple[str, ...]


def no_codes(n_rows: int = 0) -> NDArray[np.integer[Any]]:
    """Return codes of labels of the narrowest type, not set yet."""
    return np.empty(n_rows, dtype=np.uint8)


class Table(Protocol):
    """A file, described: small, picklable, and able to read any run of its rows."""

    @property
    def name(self) -> str:
        """The file's name without its folder."""

    @property
    def columns(self) -> Sequence[Column]:
        """All columns on offer."""

    @property
    def default_label(self) -> str | None:
        """The column that holds the label by the rules of the format, if they say so."""

    @property
    def links(self) -> Mapping[str, str]:
        """Further names of arrays, or of groups of them."""

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last`` of some columns."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells a file from what it was before: its size in bytes, and when it last changed, in nanoseconds."""

    size: int
    changed: int


@dataclass(frozen=True)
class FileTable(ABC):
    """A table in one file, whose rows are those that were counted, or are refused.

    Attributes
    ----------
    path : str
    stamp : Stamp or None
        That of the file whose rows were counted, on whichever rank; None: not known.
    """

    path: str
    stamp: Stamp | None = field(default=None, kw_only=True, repr=False, compare=False)

    links = NO_LINKS

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last`` of some columns.

        Raises
        ------
        UserError
            If the file is another one than that whose rows were counted, or changes meanwhile; and for what the rules
            of its format refuse.
        """
        if first == last:
            return Rows(np.empty((0, len(columns))), np.empty(0, dtype=np.intp), ())
        with unchanged(self.path, self.stamp):
            rows = self._read(columns, label, first, last)
        if len(rows.values) != last - first or (label is not None and len(rows.label_codes) != last - first):
            raise changed(self.path, "another number of rows")
        return rows

    @abstractmethod
    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> Rows:
        """Return the rows ``first:last``, of which there is one at least."""


@dataclass(frozen=True)
class Selection:
    """The data columns to be read from a table, and the label column if there is one; all of `n_rows` rows.

    Attributes
    ----------
    columns : tuple of Column
    n_rows : int
    left_out : tuple of str
        The names of columns that would have been read if they were no index of the rows.
    """

    columns: tuple[Column, ...]
    n_rows: int
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data columns."""
        return tuple(column.name for column in self.columns)


def choose(table: Table, wanted: Sequence[str], label: Column | None) -> Selection:
    """Find the data columns that are meant.

    Parameters
    ----------
    table : Table
    wanted : sequence of str
        Names or 0-based numbers of data columns, or ``"all"`` for every column but the label; empty for the only one.
    label : Column or None
        The label column, which is no data column and has as many rows.

    Raises
    ------
    UserError
        If a column is unknown, ambiguous, of another length or not numeric, or none is named where there are several.
    """
    # A format's own label is never meant by "all", not even where no label is asked for.
    candidates = (
        column
        for column in table.columns
        if column.holds == "numbers"
        and (column.name != table.default_label if label is None else column != label)
        and (label is None or column.n_rows == label.n_rows)
    )
    left_out: list[str] = []
    data = _without_index(candidates, left_out)
    if not wanted:
        columns = list(islice(data, 2))
        if len(columns) != 1:
            which = "several data columns" if columns else "no data column of numbers"
            which += f" but the index '{brief(left_out[0])}'" if left_out and not columns else ""
            raise UserError(f"'{table.name}' has {which}: choose with columns= among {listing(table)}")
    elif tuple(wanted) == ("all",) and not any("all" in (column.name, column.array) for column in table.columns):
        columns = list(data)
    else:
        columns = [column for name in wanted for column in _find(table, name)]
    if not columns:
        raise UserError(f"'{table.name}' has no data column of numbers: it offers {listing(table)}")
    for column in columns:
        if column == label:
            raise UserError(
                f"column '{brief(column.name)}' of '{table.name}' is the label: leave it out of the data columns"
            )
        if column.holds != "numbers":
            raise UserError(
                f"column '{brief(column.name)}' of '{table.name}' holds {column.holds}, not numbers: "
                "choose another or convert it"
            )
        if column.refusal:
            raise UserError(column.refusal)
    last = columns[-1] if label is None else label
    for column in columns:
        if column.n_rows != last.n_rows:
            raise UserError(
                f"columns '{brief(column.name)}' and '{brief(last.name)}' of '{table.name}' have {column.n_rows} and "
                f"{last.n_rows} rows: choose columns of one length"
            )
    if last.n_rows == 0:
        raise UserError(f"'{table.name}' has no rows of data: give a file with data")
    return Selection(tuple(columns), last.n_rows, tuple(left_out))


def _without_index(columns: Iterable[Column], left_out: list[str]) -> Iterator[Column]:
    """Yield columns, but add the names of those that are an index to `left_out` instead."""
    for column in columns:
        if column.is_index:
            left_out.append(column.name)
        else:
            yield column


def choose_label(table: Table, label: str | None) -> Column:
    """Find the label column by its name or number, or else the one that the format has.

    Raises
    ------
    UserError
        If there is none, or it is unknown, ambiguous or neither text nor numbers.
    """
    label = table.default_label if label is None else label
    if label is None:
        raise UserError(f"no label column of '{table.name}' is chosen: choose with label= among {listing(table)}")
    found = _find(table, label)
    if len(found) > 1:
        raise UserError(f"'{label}' of '{table.name}' has {len(found)} columns: name one label column")
    if found[0].holds not in ("numbers", "text"):
        raise UserError(
            f"the label column '{brief(found[0].name)}' of '{table.name}' holds {found[0].holds}: "
            "convert it to text or numbers"
        )
    if found[0].refusal:
        raise UserError(found[0].refusal)
    return found[0]


def _find(table: Table, wanted: str) -> list[Column]:
    """Return the columns called `wanted`: a whole array's by its name, else one by its name, else by its number."""
    columns = table.columns
    if isinstance(columns, NumberedColumns):
        by_array, by_name, by_number = [], columns.named(wanted), []
    else:
        by_array = [column for column in columns if column.array and column.array == wanted]
        by_name = [column for column in columns if column.name == wanted]
        by_name = by_name or [column for column in columns if f"{column.array}[{column.index}]" == wanted]
        number = int(wanted) if wanted.isdecimal() and len(wanted) < _MOST_DIGITS else None
        by_number = [column for column in columns if column.number == number is not None]
        if not (by_array or by_name or by_number) and columns and columns[0].array:
            target = _followed(table.links, wanted)
            if target != wanted:
                return _find(table, target)
    if len(by_name) > 1 and not by_array:
        numbers = ", ".join(str(column.number) for column in by_name)
        raise UserError(
            f"'{table.name}' has {len(by_name)} columns '{brief(wanted)}': choose by number, one of {numbers}"
        )
    if not (by_array or by_name or by_number):
        raise UserError(f"'{table.name}' has no column '{brief(wanted)}': choose among {listing(table)}")
    return by_array or by_name or by_number


def has_name(table: Table, name: str) -> bool:
    """Return whether a column is called `name`."""
    if isinstance(table.columns, NumberedColumns):
        return bool(table.columns.named(name))
    return any(column.name == name for column in table.columns)


def _followed(links: Mapping[str, str], name: str) -> str:
    """Return the path of what a name means, which may begin with a slash and go through links."""
    name, bracket, column = name.partition("[") if name not in links else (name, "", "")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    n_known = 0  # of the parts, as a path without links
    while n_known < len(parts):
        n_known += 1
        target = links.get("/".join(parts[:n_known]))
        if target is not None:
            known = target.split("/") if target else []
            parts, n_known = [*known, *parts[n_known:]], len(known)
    return "/".join(parts) + bracket + column


def listing(table: Table) -> str:
    """Name the columns on offer, or the first of them."""
    return in_short([column.name for column in islice(table.columns, _LISTED_COLUMNS)], len(table.columns))


def in_short(names: Sequence[str], n_names: int | None = None) -> str:
    """Return the first of some names of columns, and how many there are."""
    n_names = len(names) if n_names is None else n_names
    more = f", … ({n_names} in all)" if n_names > _LISTED_COLUMNS else ""
    return ", ".join(map(brief, names[:_LISTED_COLUMNS])) + more or "(nothing)"


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


def exact_float64(values: NDArray[Any], columns: Sequence[Column], place: Callable[[int], str]) -> Floats:
    """Convert a block of numbers to float64.

    Parameters
    ----------
    values : ndarray, shape (rows, columns)
    columns : sequence of Column
        What the block's columns are, for messages.
    place : callable
        The place of a row of the block in its file, for messages.

    Raises
    ------
    UserError
        If a number, such as an integer, is not a float64: rounding would make ties of different values.
    """
    for row, j in np.argwhere(rounded(values)):
        raise not_float64(str(values[row, j]), place(int(row)), columns[j])
    return values.astype(np.float64)


def not_float64(number: str, place: str, column: Column) -> UserError:
    """Return the error about a number that would be rounded, or is beyond the range of float64."""
    return PlacedError(
        f"{place}: {brief(number)} in column '{brief(column.name)}' has no exact float64: "
        "subtract an offset or rescale the column"
    )


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
    return integer is not None and (len(integer[1]) > _MOST_DIGITS or not is_float64(int(integer[1])))


def refuse_nan(values: Floats, columns: Sequence[Column], place: Callable[[int], str]) -> None:
    """Raise a UserError that names the first row with a NaN, or an infinity where there may be none."""
    bad = ~np.isfinite(values)
    if bad.any():
        bad &= np.isnan(values) | [column.finite for column in columns]
    if bad.any():
        row, j = (int(i) for i in np.argwhere(bad)[0])
        what = "is NaN: remove the row or fill in the value"
        if not np.isnan(values[row, j]):
            what = "holds an infinite value, with which nothing can be computed here: remove or repair that row"
        raise PlacedError(f"{place(row)}: column '{brief(columns[j].name)}' {what}")


def refuse_missing_label(
    codes: NDArray[np.integer[Any]], texts: Sequence[str], label: Column, place: Callable[[int], str]
) -> None:
    """Raise a UserError that names the first row without a label, if there is one."""
    missing = [code for code, text in enumerate(texts) if is_missing(text)]
    rows = np.flatnonzero(np.isin(codes, missing)) if missing else np.empty(0, dtype=np.intp)
    if rows.size:
        raise PlacedError(
            f"{place(int(rows[0]))}: the label '{brief(label.name)}' is missing: remove the row or fill in the label"
        )


@contextmanager
def readable(path: str, kind: str, *, binary: bool = False) -> Iterator[None]:
    """Turn what opening and decoding a file of some kind can raise into one sentence.

    Parameters
    ----------
    path, kind : str
        The file, and the name of its format.
    binary : bool
        Whether a library decodes it: of a damaged file they raise whatever their code meets.
    """
    name = os.path.basename(path)
    undecoded = () if binary else (UnicodeDecodeError,)
    damaged = (Exception,) if binary else (OSError, EOFError, ValueError, zlib.error)
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"there is no file '{path}': check its name and folder") from error
    except IsADirectoryError as error:
        raise UserError(f"'{path}' is a folder: name a file in it") from error
    except PermissionError as error:
        raise UserError(f"'{path}' may not be read: change its permissions") from error
    except undecoded as error:
        raise UserError(f"'{name}' is not UTF-8 text: convert it, for example with iconv -t UTF-8") from error
    except damaged as error:
        reason = shown((str(error).strip().splitlines() or [type(error).__name__])[0])
        raise UserError(f"'{name}' can't be read as {kind} ({reason}): check the file or write it again") from error


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file.

    Raises
    ------
    UserError
        If there is none, or it is a pipe, a device or a socket: these have no rows that could be read again, and
        whoever opens one may wait for ever.
    """
    with readable(path, "a file"):
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError
    if not stat.S_ISREG(found.st_mode):
        kind = "pipe" if stat.S_ISFIFO(found.st_mode) else "socket" if stat.S_ISSOCK(found.st_mode) else "device"
        raise UserError(f"'{path}' is a {kind}, which can be read only once or without end: give a regular file")
    return Stamp(found.st_size, found.st_mtime_ns)


@contextmanager
def unchanged(path: str, expected: Stamp | None = None) -> Iterator[Stamp]:
    """Give the stamp of a file, which stays the same as long as the context lasts, or the file is refused.

    Parameters
    ----------
    path : str
    expected : Stamp or None
        What it has to be.
    """
    before = stamp_of(path)
    compare(path, expected or before, before)
    try:
        yield before
    finally:  # what went wrong meanwhile did so because the file changed
        compare(path, before, stamp_of(path))


def compare(path: str, expected: Stamp, found: Stamp) -> None:
    """Refuse a file that has another stamp than is expected."""
    if found.size != expected.size:
        raise changed(path, "another size")
    whole = {stamp.changed - stamp.changed % _SECOND for stamp in (expected, found)}
    # Some of what copies files (scp -p, tar) keeps whole seconds only.
    if found.changed != expected.changed and (len(whole) > 1 or whole.isdisjoint((expected.changed, found.changed))):
        raise changed(path, "another time of its last change")


def changed(path: str, what: str) -> UserError:
    """Return the error about a file that is not the one that was looked at first."""
    return UserError(
        f"'{os.path.basename(path)}' has {what} than when its rows were counted: it changed meanwhile, or hosts have "
        "different files; give all of them the same (copies by cp -p), complete, and start again"
    )


def open_bytes(path: str) -> BinaryIO:
    """Open a file of text, plain or gzip'd, for reading."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.lower().endswith(".gz") else open(path, "rb")
