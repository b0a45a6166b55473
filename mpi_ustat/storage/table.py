"""What a table is, whatever the file: named columns of equal length, and the rules every format keeps.

The rules: numbers become float64 and no integer is rounded silently, NaN is refused with its place, and ±inf is a
number like others.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import PlacedError
from mpi_ustat.numerics.multiplicity import COUNTS_MUST, WEIGHTS_MUST, are_counts, are_weights
from mpi_ustat.numerics.types import Flags, Floats
from mpi_ustat.points.rows import rounded
from mpi_ustat.storage.opening import Stamp, changed, unchanged
from mpi_ustat.storage.texts import MOST_DIGITS, brief, is_missing

NO_LINKS: Mapping[str, str] = MappingProxyType({})
Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """One column on offer in a file."""

    name: str
    """What it is called in messages and results."""
    index: int
    """Its place among the cells of a line, or among the columns of its array."""
    number: int | None
    """The number by which it can be chosen, if there is one."""
    array: str
    """The array it is part of, for files of arrays."""
    n_rows: int
    holds: str = "numbers"
    """``"numbers"``, ``"text"``, or the name of another data type, which can't be used."""
    refusal: str = ""
    """The sentence that refuses a column of which not all can be read; empty if it can."""
    is_index: bool = False
    """Whether it numbers or names the rows, as far as the file tells: never meant unless it is asked for."""
    finite: bool = False
    """Whether infinite values are refused."""
    role: str = "label"
    """What it says about the rows."""


_MUST: Mapping[str, tuple[Callable[[Floats], Flags], str]] = {
    "weights": (are_weights, f"{WEIGHTS_MUST}: mend that row"),
    "counts": (are_counts, f"{COUNTS_MUST}: give other weights as weights="),
}
"""What the numbers of a column with such a role must be."""


@dataclass(frozen=True)
class NumberedColumns(Sequence[Column]):
    """A column with a name, and columns named ``1``, ``2``, …; made when they are looked at: there may be millions."""

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
        j = int(name) if name.isdecimal() and len(name) < MOST_DIGITS else 0
        return [column for column in self[j : j + 1] if column.name == name]


def no_codes() -> Codes:
    """Return the labels of no rows, in the narrowest type."""
    return np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class LabelledRows:
    """Consecutive rows of a table."""

    values: Any
    """The data columns, (rows, columns), without NaN: an array, or `SparseRows` where these were asked for."""
    label_codes: Codes = field(default_factory=no_codes)
    """Each row's label, as an index into `label_texts`, in any type of integer; empty when no label was asked for."""
    label_texts: tuple[str, ...] = ()
    """The distinct labels of these rows."""


def recoded(codes: Codes, texts: Sequence[str], known: dict[str, int]) -> Codes:
    """Return labels as indices into all texts that are known, to which these are added."""
    numbers = [known.setdefault(text, len(known)) for text in texts]
    return np.array(numbers, dtype=np.min_scalar_type(len(known)))[codes]


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

    @property
    def unnamed(self) -> str:
        """The first line, where none names the columns, and one could; otherwise empty."""

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the rows ``first:last`` of some columns."""


@dataclass(frozen=True)
class FileTable(ABC):
    """A table in one file, whose rows are those that were counted, or are refused."""

    path: str
    stamp: Stamp | None = field(default=None, kw_only=True, repr=False, compare=False)
    """That of the file whose rows were counted, on whichever rank; None: not known."""

    links = NO_LINKS

    @property
    def unnamed(self) -> str:
        """The first line, where none names the columns, and one could; otherwise empty."""
        return ""

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return os.path.basename(self.path)

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the rows ``first:last`` of some columns, of the file whose rows were counted, and no other one."""
        if first == last:
            return LabelledRows(np.empty((0, len(columns))))
        with unchanged(self.path, self.stamp):
            rows = self._read(columns, label, first, last)
        if len(rows.values) != last - first or (label is not None and len(rows.label_codes) != last - first):
            raise changed(self.path, "another number of rows")
        return rows

    @abstractmethod
    def _read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the rows ``first:last``, of which there is one at least."""


def exact_float64(values: NDArray[Any], columns: Sequence[Column], place: Callable[[int], str]) -> Floats:
    """Convert a block of numbers to float64; refuse those that none equals: rounding would make ties of others.

    `columns` are those of the block, and `place` tells where a row of it is in its file, for messages.
    """
    refused = rounded(values)
    if refused.any():
        row, j = np.argwhere(refused)[0].tolist()
        raise not_float64(str(values[row, j]), place(row), columns[j])
    return values.astype(np.float64, copy=False)


def not_float64(number: str, place: str, column: Column) -> PlacedError:
    """Return the error about a number that would be rounded, or is beyond the range of float64."""
    return PlacedError(
        f"{place}: {brief(number)} in column '{brief(column.name)}' has no exact float64: "
        "subtract an offset or rescale the column"
    )


def refuse_bad_values(values: Floats, columns: Sequence[Column], place: Callable[[int], str]) -> None:
    """Raise a UserError that names the first row with a NaN, or with what the role of a column doesn't allow."""
    bad = ~np.isfinite(values)
    if bad.any():
        bad &= np.isnan(values) | [column.finite for column in columns]
    if bad.any():
        row, j = (int(i) for i in np.argwhere(bad)[0])
        what = "is NaN: remove the row or fill in the value"
        if not np.isnan(values[row, j]):
            what = "holds an infinite value, with which nothing can be computed here: remove or repair that row"
        raise PlacedError(f"{place(row)}: column '{brief(columns[j].name)}' {what}")
    for j, column in enumerate(columns):
        if column.role in _MUST:
            is_allowed, must = _MUST[column.role]
            if (rows := np.flatnonzero(~is_allowed(values[:, j]))).size:
                row = int(rows[0])
                raise PlacedError(f"{place(row)}: column '{brief(column.name)}' holds {values[row, j]:g}, and {must}")


def refuse_missing_label(codes: Codes, texts: Sequence[str], label: Column, place: Callable[[int], str]) -> None:
    """Raise a UserError that names the first row without a label, if there is one."""
    missing = [code for code, text in enumerate(texts) if is_missing(text)]
    if missing and (rows := np.flatnonzero(np.isin(codes, missing))).size:
        raise PlacedError(
            f"{place(int(rows[0]))}: the {label.role} '{brief(label.name)}' is missing: "
            f"remove the row or fill in the {label.role}"
        )
