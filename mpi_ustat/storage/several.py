"""Several files as one table: their rows one after the other, file by file."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.storage.columns import alike, common_length, in_short, lacking, listing
from mpi_ustat.storage.libsvm import LABEL, MOST_FEATURES, LibsvmTable
from mpi_ustat.storage.table import Column, LabelledRows, NumberedColumns, Table, no_codes, recoded
from mpi_ustat.storage.texts import MOST_DIGITS
from mpi_ustat.wording import plural

Path = str | tuple[str, ...]
"""A file, a pattern of their names such as ``scores-*.csv``, or several files."""


def is_pattern(path: str) -> bool:
    """Tell whether a path stands for the files that it matches; one that is a file's name doesn't."""
    return any(sign in path for sign in "*?[") and not os.path.exists(path)


def matching(path: Path) -> tuple[str, ...]:
    """Return the files that a path means.

    Those of a pattern come in the order of their names, with the numbers in them in the order of numbers: part-2 before
    part-10. A file whose name is the pattern itself is meant before all others. Several files come as they are given.
    """
    if not isinstance(path, str):
        if not path:
            raise UserError("there is no input: give a file")
        files = tuple(file for each in path for file in matching(each))
        known: dict[str, str] = {}
        for file in files:
            if known.setdefault(os.path.realpath(file), file) is not file:
                raise UserError(f"the file '{os.path.basename(file)}' is given twice: its rows would count twice")
        return files
    if not is_pattern(path):
        return (path,)
    found = [each for each in glob.glob(path) if not os.path.isdir(each)]
    if not found:
        raise UserError(f"there is no file that matches '{path}': check its name and folder")
    return tuple(sorted(found, key=_natural))


def as_given(files: Sequence[str]) -> Path:
    """Return the data set that files on a command line are, where a shell may have put them in the place of a pattern.

    Files in the order in which a shell sorts names come in that of `matching`, so that part-2 is before part-10 whether
    the pattern was quoted or not. In any other order they have been written by hand, and stay in it.
    """
    if len(files) == 1:
        return files[0]
    orders = (str, _as_dictionaries_do)  # of the locale C, and of others, which look at letters and digits first
    by_shell = any(list(files) == sorted(files, key=order) for order in orders)
    return tuple(sorted(files, key=_natural) if by_shell else files)


def _as_dictionaries_do(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def described(path: Path) -> str:
    """Return the name of what a path means, without folders, for messages."""
    if isinstance(path, str):
        return os.path.basename(path)
    return os.path.basename(path[0]) + (f" and {len(path) - 1} more" if len(path) > 1 else "") if path else "no file"


def _natural(name: str) -> tuple[list[str | int], str]:
    # Splitting at numbers gives texts and numbers in turn, so that like is compared with like.
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if j % 2 else part for j, part in enumerate(parts)], name


@dataclass(frozen=True)
class SeveralTables:
    """Several tables with the same columns, as one."""

    name: str
    """What messages call them all; those about a line or row name its file."""
    tables: tuple[Table, ...] = field(repr=False)
    columns: Sequence[Column] = field(repr=False)
    """Those of the first table, with the rows of all."""

    @property
    def default_label(self) -> str | None:
        """The label of the first: the same for all, whose columns are."""
        return self.tables[0].default_label

    @property
    def unnamed(self) -> str:
        """The first line of the first, which names columns where those of the others do."""
        return self.tables[0].unnamed

    @property
    def links(self) -> Mapping[str, str]:
        """Those that lead to the same in all files."""
        shared = set.intersection(*(set(table.links.items()) for table in self.tables))
        return {name: target for name, target in self.tables[0].links.items() if (name, target) in shared}

    def read(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the rows ``first:last`` of some columns, of one length in every file, from those that hold them."""
        values = np.empty((last - first, len(columns)))
        label_codes = [no_codes()]
        codes: dict[str, int] = {}
        done = 0
        for table, own, of_label, begin, end in self._parts(columns, label, first, last):
            rows = table.read(own, of_label, begin, end)
            values[done : done + len(rows.values)] = rows.values
            label_codes.append(recoded(rows.label_codes, rows.label_texts, codes))
            done += len(rows.values)
        return LabelledRows(values, np.concatenate(label_codes), tuple(codes))

    def read_sparse(self, columns: Sequence[Column], label: Column | None, first: int, last: int) -> LabelledRows:
        """Return the same of files in LIBSVM's format, as sparse rows."""
        values, label_codes = [SparseRows.none(len(columns))], [no_codes()]
        codes: dict[str, int] = {}
        for table, own, of_label, begin, end in self._parts(columns, label, first, last):
            assert isinstance(table, LibsvmTable)
            rows = table.read_sparse(own, of_label, begin, end)
            values.append(rows.values)
            label_codes.append(recoded(rows.label_codes, rows.label_texts, codes))
        return LabelledRows(SparseRows.joined(values), np.concatenate(label_codes), tuple(codes))

    def _parts(
        self, columns: Sequence[Column], label: Column | None, first: int, last: int
    ) -> Iterator[tuple[Table, list[Column], Column | None, int, int]]:
        """Yield the tables that hold the rows ``first:last``, with their columns and label, and which rows of each."""
        wanted = list(columns) if label is None else [*columns, label]
        if isinstance(self.columns, NumberedColumns):
            numbers = [column.index for column in wanted]
        else:
            places = {(column.array, column.index): j for j, column in enumerate(self.columns)}
            numbers = [places[column.array, column.index] for column in wanted]
        start = 0
        for table in self.tables:
            own = [
                replace(table.columns[j], finite=column.finite, role=column.role)
                for j, column in zip(numbers, wanted, strict=True)
            ]
            n_rows = common_length(table, own, own[0], "give files whose columns have one length")
            begin, end = max(first - start, 0), min(last - start, n_rows)
            if begin < end:
                yield table, own[: len(columns)], None if label is None else own[-1], begin, end
            start += n_rows


def sparse_table(table: Table) -> LibsvmTable | SeveralTables | None:
    """Return a table that reads sparse rows, or None of one that doesn't."""
    if isinstance(table, LibsvmTable):
        return table
    if isinstance(table, SeveralTables) and all(isinstance(each, LibsvmTable) for each in table.tables):
        return table
    return None


def join(tables: Sequence[Table], name: str) -> Table:
    """Return several tables as one, whose columns agree in number, name and type; a single one as it is.

    Of files in LIBSVM's format, which need not mention their last features, all get as many as the one with most.
    """
    if len(tables) == 1:
        return tables[0]
    narrow = [table for table in tables if isinstance(table, LibsvmTable)]
    if len(narrow) == len(tables):
        return _of_width(narrow, name, max(table.n_features for table in narrow))
    layout = _layout(tables[0])
    for table in tables[1:]:
        if _layout(table) != layout:
            raise UserError(
                f"'{table.name}' has other columns ({listing(table)}) than '{tables[0].name}' ({listing(tables[0])}): "
                "give files with the same columns, in the same order"
            )
    joined = (
        replace(
            of_files[0],
            n_rows=sum(column.n_rows for column in of_files),
            refusal=next((column.refusal for column in of_files if column.refusal), ""),
        )
        for of_files in zip(*(table.columns for table in tables), strict=True)
    )
    return SeveralTables(name, tuple(tables), tuple(joined))


def _of_width(tables: Sequence[LibsvmTable], name: str, n_features: int) -> Table:
    """Return tables in LIBSVM's format as one of at least so many features, those that no row mentions being 0."""
    n_features = max(n_features, *(table.n_features for table in tables))
    wide = tuple(replace(table, n_features=n_features) for table in tables)
    columns = NumberedColumns(LABEL, n_features, sum(table.n_rows for table in tables))
    return wide[0] if len(wide) == 1 else SeveralTables(name, wide, columns)


def fitting(table: Table, names: Sequence[str], whose: str) -> Table:
    """Return a table in which all these columns are, or refuse it.

    In LIBSVM's format rows need not mention their last features, which are 0 then.

    Parameters
    ----------
    table : Table
    names : sequence of str
        The columns' names.
    whose : str
        What has such columns, for the message: ``the model 'scorer.h5'``.
    """
    parts = table.tables if isinstance(table, SeveralTables) else (table,)
    narrow = [part for part in parts if isinstance(part, LibsvmTable)]
    numbers = [int(name) for name in names if name.isdecimal() and len(name) < MOST_DIGITS]
    if len(narrow) == len(parts) and numbers and max(numbers) <= MOST_FEATURES:
        table = _of_width(narrow, table.name, max(numbers))
    lacks = lacking(table, names)
    if lacks:
        raise UserError(
            f"'{table.name}' lacks the {plural(len(lacks), 'column')} {in_short(lacks)} of {whose}"
            f"{alike(table, lacks[0])}: give data with these columns; there are {listing(table)}"
        )
    return table


def names_of(table: Table, columns: Sequence[Column]) -> list[str]:
    """Return the names of columns, by which they can be paired with those of another file.

    In an NPY file the name of the file stands for none.
    """
    stem, suffix = os.path.splitext(table.name)
    unnamed = stem if suffix.lower() == ".npy" else ""
    return [column.name.removeprefix(unnamed) if column.number is None else column.name for column in columns]


def _layout(table: Table) -> list[tuple[str, str]]:
    """Return the columns' names and types."""
    columns = table.columns
    return list(zip(names_of(table, columns), (column.holds for column in columns), strict=True))
