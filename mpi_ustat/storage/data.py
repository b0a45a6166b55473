"""Samples from files: each rank reads the rows of the workers it hosts.

The rows of a file, or of several files one after the other, are cut into one contiguous run per worker, in that order,
so that the samples and their blocks are the same for every number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import hosted_workers, together
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.classes import classes_of
from mpi_ustat.storage.columns import Selection, choose, choose_label, has_name, in_short
from mpi_ustat.storage.formats import lines_counted_together, scan
from mpi_ustat.storage.labels import Label, show
from mpi_ustat.storage.several import Path, SeveralTables, described, fitting, join, matching, names_of, sparse_table
from mpi_ustat.storage.shuttle import SHUTTLE, SHUTTLE_LABEL, river_version, shuttle
from mpi_ustat.storage.stored import ROWS_AT_A_TIME
from mpi_ustat.storage.table import Column, LabelledRows, Table
from mpi_ustat.storage.text_format import TextFormat, refuse_if_said
from mpi_ustat.storage.texts import brief

Value = TypeVar("Value")

NUMBERS = ("weights", "counts")
"""What only numbers can say."""

_ROLES = {"clusters": "cluster", "strata": "stratum", "groups": "group"}
"""What a row has of what texts can say."""


@dataclass(frozen=True)
class DataSource:
    """Where the samples are: in one file with a label, in one file without (one sample), or in two files.

    Wherever a file is, there may be several with the same columns, whose rows follow each other: a tuple of files, in
    the order given, or a pattern such as ``"scores-*.csv"``, in the order of their names (part-2 before part-10).
    """

    path: Path | None = None
    """One file with both samples, or ``"shuttle"``."""
    label: str | None = None
    """The label column: a name, or a number counted from 0. None: the one the format has (LIBSVM's does)."""
    positive: str | None = None
    """The label of the sample x; None: 1 of the labels {0, 1} or {−1, 1}."""
    classes: tuple[str, ...] | None = None
    """For a sample of each of several labels: the labels in order, the lowest class first; empty: all of them, in
    ascending order. None: two samples, or one."""
    highest_first: bool = False
    """Whether the samples of the classes come the other way round, as those of two-sample kernels do: of two classes
    the last one is x, the positives."""
    rest: bool = False
    """Whether all labels but the positive one, however many, are together the sample z."""
    by_name: bool = False
    """Whether classes are names, without an order of their own: then texts too are in ascending order."""
    or_all: bool = False
    """Whether a label with more than two values, of which none is chosen, makes a sample of each of them."""
    one_sample: bool = False
    """Whether all rows of the file are one sample."""
    columns: tuple[str, ...] = ()
    """Data columns: names, or numbers counted from 0, ranges of them (``"0-63"``, ``"a..f"``), or ``("all",)``; empty:
    the only one."""
    columns_of: str = ""
    """Whose columns these are, such as ``"the model 'scorer.h5'"``; then data that lack some are refused as its."""
    otherwise_all: bool = False
    """Whether no data columns mean all but the label, instead of the only one."""
    x_path: Path | None = None
    """Or two files, one per sample: that of x."""
    z_path: Path | None = None
    decimal: str = "point"
    """``"point"`` or ``"comma"``, in the numbers of delimited text."""
    separator: str | None = None
    """The sign between cells of delimited text: one character, or ``"tab"``, or ``"blank"`` for runs of blanks. None:
    the one that its lines show."""
    comment: str | None = None
    """What lines of delimited text begin with that are left out."""
    header: str | None = None
    """``"yes"`` or ``"no"``: whether the first line of delimited text names the columns. None: as it looks."""
    thousands: str | None = None
    """The sign between groups of three digits in numbers of delimited text. None: they have none."""
    encoding: str = "utf-8"
    """The encoding of delimited text, as Python calls it."""
    finite: bool = False
    """Whether infinite values are refused."""
    sparse: bool = False
    """Whether labelled rows of a format that writes no zeros, LIBSVM's, are `SparseRows`."""
    said: tuple[tuple[str, str], ...] = ()
    """What is said about the rows, such as ``"weights"``, and the column that says it, by name or number."""

    @property
    def text_format(self) -> TextFormat:
        """What is said about delimited text; what contradicts itself is refused."""
        return TextFormat(self.decimal, self.separator, self.comment, self.header, self.thousands, self.encoding)


@dataclass(frozen=True)
class Samples:
    """A rank's part of one or several samples: of two the first is x; of several classes, the lowest."""

    rows: tuple[Any, ...]
    """For each sample, the rows of the workers that this rank hosts, worker after worker: (rows, columns), or (rows,)
    when there is one column; or `SparseRows`."""
    sizes: tuple[Ints, ...]
    """For each sample, how many of these rows each worker has."""
    columns: tuple[str, ...]
    description: dict[str, Any]
    """Where the samples come from, for the results file: no absolute paths. Its ``left_out``, if there is one, are the
    columns that were not read because they are an index of the rows, which nobody has asked for."""
    names: tuple[str, ...] = ()
    """What messages call the samples, where their labels tell more than their order; or empty."""
    said: dict[str, tuple[NDArray[Any], ...]] = field(default_factory=dict)
    """What is said about the rows of each sample, numbers or text, by what it is."""
    labels: tuple[Label, ...] = ()
    """The label of each sample; the second may be ``"rest"``."""

    @property
    def x(self) -> Any:
        """The first sample."""
        return self.rows[0]

    @property
    def z(self) -> Any:
        """The second sample."""
        return self.rows[1]


def read_samples(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read this rank's part of the samples.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    source : DataSource
    n_workers : int
        The number of logical workers, N; each file's rows are cut into N contiguous runs.

    Raises
    ------
    UserError
        On all ranks, if a file can't be read, a column or the classes are not what the source says, or a value is
        missing.
    """
    is_labelled = source.rest or any(each is not None for each in (source.label, source.positive, source.classes))
    if source.x_path is not None or source.z_path is not None:
        if source.path is not None:
            raise UserError(
                f"'{described(source.path)}' is given beside a file per sample: give one file, or one for each sample"
            )
        if source.x_path is None or source.z_path is None:
            raise UserError(
                "only one of the two samples has a file: give one for each sample, or one file with a label"
            )
        if is_labelled:
            raise UserError(
                "a label is given beside a file per sample: leave it out, or give one file with both samples"
            )
        return _of_two_files(comm, (source.x_path, source.z_path), source, n_workers)
    if source.one_sample:
        if source.path is None:
            raise UserError("there is no input: give a file")
        if is_labelled:
            raise UserError("a label is given for a statistic of one sample: leave it out")
        table, origin, source = located(comm, source.path, source)
        label = None if source.label is None else choose_label(table, source.label)  # known of data with a name
        return _unlabelled(comm, [(table, choose_columns(table, source, label))], origin, source, n_workers)
    if source.path is None:
        raise UserError("there is no input: give a file with a label column, or two files, one per sample")
    if source.classes is not None and source.rest:
        raise UserError("the classes say which labels make a sample: leave out rest=True, which takes all the others")
    if source.classes is not None and source.positive is not None:
        raise UserError("the classes say already which label comes first: leave out the positive one")
    return _labelled(comm, *located(comm, source.path, source), n_workers)


def _labelled(comm: Any, table: Table, origin: dict[str, Any], source: DataSource, n_workers: int) -> Samples:
    """Read one file and split its rows by their labels.  Collective."""
    label = choose_label(table, source.label)
    selection = choose_columns(table, source, label)
    rows, bounds = _own_rows(comm, table, selection, label, source, n_workers)
    chosen, census, of_rest, members, source = classes_of(comm, rows, label.name, table.name, source)
    samples: list[Any] = []
    sizes, picked = [], []
    about = _said(comm, table, selection, rows, bounds, source)
    for is_wanted in members:
        sizes.append(_run_counts(is_wanted, bounds - bounds[0]))
        if isinstance(rows.values, SparseRows):
            samples.append(rows.values[is_wanted])
        else:
            samples.append(_sample(_picked(rows.values[:, : len(selection.columns)], is_wanted)))
        picked.append({what: said[is_wanted] for what, said in about.items()})
    first = show(chosen[0]) if source.classes is None or source.highest_first else None
    description = {**origin, "n_rows": selection.n_rows, **_columns_of(source, [selection], label.name, first)}
    if source.classes is None:
        description |= {"n_x": census[chosen[0]], "n_z": selection.n_rows - census[chosen[0]]}
        description |= {"rest": True} if of_rest else {}
    else:
        ordered = chosen[::-1] if source.highest_first else chosen
        description |= {"classes": [show(each) for each in ordered], "n_of_classes": [census[each] for each in ordered]}
    names = tuple(f"of the class '{brief(show(each))}'" for each in chosen)
    if of_rest:
        names = (names[0], "of the rest")
    labels = (chosen[0], "rest") if of_rest else tuple(chosen)
    return Samples(tuple(samples), tuple(sizes), selection.names, description, names, _by_what(picked), labels)


def _of_two_files(comm: Any, paths: tuple[Path, Path], source: DataSource, n_workers: int) -> Samples:
    """Read each sample from a file of its own.  Collective."""
    x_table, z_table = tables = [_table(comm, path, source.text_format) for path in paths]
    x, z = (choose_columns(table, source, None) for table in tables)
    files = [name for table in tables for name in _files(table)]
    parts = [(x_table, x), (z_table, _paired(x_table, x, z_table, z))]
    return _unlabelled(comm, parts, {"files": files}, source, n_workers)


def _unlabelled(
    comm: Any, parts: Sequence[tuple[Table, Selection]], origin: dict[str, Any], source: DataSource, n_workers: int
) -> Samples:
    """Read tables of which each is a sample.  Collective."""
    samples, sizes, about = [], [], []
    for table, selection in parts:
        rows, bounds = _own_rows(comm, table, selection, None, source, n_workers)
        samples.append(_sample(rows.values[:, : len(selection.columns)]))
        about.append(_said(comm, table, selection, rows, bounds, source))
        sizes.append(np.diff(bounds))
    selections = [selection for _, selection in parts]
    counts = [selection.n_rows for selection in selections]
    of_each = dict(zip(("n_x", "n_z"), counts, strict=True)) if len(counts) > 1 else {}
    description = {**origin, "n_rows": sum(counts), **of_each, **_columns_of(source, selections, None, None)}
    return Samples(tuple(samples), tuple(sizes), selections[0].names, description, said=_by_what(about))


def _columns_of(
    source: DataSource, selections: Sequence[Selection], label: str | None, positive: str | None
) -> dict[str, Any]:
    """Return the label, its positive value, and the columns' names, with those left out as an index of the rows."""
    left_out = list(dict.fromkeys(name for selection in selections for name in selection.left_out))
    told: dict[str, Any] = {"label": label, "positive": positive, "columns": list(selections[0].names)}
    whats = [what for what, _ in source.said]
    said = {what: column.name for what, column in zip(whats, selections[0].said, strict=True)}
    return told | ({"left_out": left_out} if left_out else {}) | ({"said": said} if said else {})


def _paired(x_table: Table, x: Selection, z_table: Table, z: Selection) -> Selection:
    """Return the columns of z in the order of those of x that have the same names.

    A single column may have another name in each file (scores of positives, and of negatives), unless it is clear that
    another one is meant; others are refused.
    """
    if len(x.columns) != len(z.columns):
        raise UserError(
            f"'{x_table.name}' has {len(x.columns)} data columns and '{z_table.name}' {len(z.columns)}: "
            "choose the same ones with columns="
        )
    x_names, z_names = names_of(x_table, x.columns), names_of(z_table, z.columns)
    if x_names == z_names:
        return z
    if len(x_names) > 1 and sorted(x_names) == sorted(set(z_names)):
        return replace(z, columns=tuple(z.columns[z_names.index(name)] for name in x_names))
    if len(x_names) > 1 or has_name(z_table, x_names[0]) or has_name(x_table, z_names[0]):
        raise UserError(
            f"the data columns of '{x_table.name}' are {in_short(x.names)}, those of '{z_table.name}' "
            f"{in_short(z.names)}: give both files the same names, in any order, or choose columns with columns="
        )
    return z


# ---------------------------------------------------------------------------------------------------------------------
# Finding the file and its columns


def located(comm: Any, path: Path, source: DataSource) -> tuple[Table, dict[str, Any], DataSource]:
    """Return a table, where it comes from, and the source with what is known of data with a name.  Collective."""
    if path == SHUTTLE and _on_master(comm, "looking for the data", lambda: not os.path.exists(SHUTTLE)):
        refuse_if_said(SHUTTLE, source.text_format, "files of text such as CSV")
        table: Table = _on_master(comm, "reading the Shuttle data", shuttle)
        origin = {"files": [table.name], "name": SHUTTLE, "package": river_version()}
        source = replace(source, label=source.label or SHUTTLE_LABEL, columns=source.columns or ("all",))
        if source.columns_of:
            table = fitting(table, source.columns, source.columns_of)
        return table, origin, source
    table = _table(comm, path, source.text_format)
    if source.columns_of:
        table = fitting(table, source.columns, source.columns_of)
    return table, {"files": _files(table)}, source


def _table(comm: Any, path: Path, said: TextFormat) -> Table:
    """Describe the files that a path means as one table; each rank looks at some of them.  Collective.

    A refusal is that of the first file that has one, the same for every number of ranks.
    """
    doing = f"reading {described(path)}"
    paths = _on_master(comm, doing, lambda: matching(path))
    found: dict[int, Table | str] = {}
    lines = lines_counted_together(comm, paths[0], said) if len(paths) == 1 else None
    with together(comm, doing):
        for number in range(comm.rank, len(paths), comm.size):
            try:
                found[number] = scan(paths[number], said, lines)
            except UserError as error:
                found[number] = str(error)
    for of_rank in comm.allgather(found):
        found |= of_rank
    tables = []
    for _, table in sorted(found.items()):
        if isinstance(table, str):
            raise UserError(table)
        tables.append(table)
    return join(tables, described(path))


def _files(table: Table) -> list[str]:
    return [each.name for each in table.tables] if isinstance(table, SeveralTables) else [table.name]


def choose_columns(table: Table, source: DataSource, label: Column | None) -> Selection:
    """Find the data columns that are meant, and note whether they may hold infinities."""
    about = [column for _, column in source.said]
    found = choose(table, source.columns, label, about, otherwise_all=source.otherwise_all)
    said = zip((what for what, _ in source.said), found.said, strict=True)
    return replace(
        found,
        columns=tuple(replace(column, finite=source.finite) for column in found.columns),
        said=tuple(replace(column, role=_ROLES.get(what, what)) for what, column in said),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Ranks


def _on_master(comm: Any, doing: str, find: Callable[[], Value]) -> Value:
    """Return, on all ranks, what rank 0 found; a refusal is the same for all of them.  Collective."""
    found: Value | None = None
    with together(comm, doing, of_data=True):
        if comm.rank == 0:
            found = find()
    return cast(Value, comm.bcast(found))


def _own_rows(
    comm: Any, table: Table, selection: Selection, label: Column | None, source: DataSource, n_workers: int
) -> tuple[LabelledRows, Ints]:
    """Return the rows of the workers that this rank hosts, and the bounds of their runs.  Collective."""
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    bounds = block_bounds(selection.n_rows, n_workers)[hosted.start : hosted.stop + 1]
    sparse = sparse_table(table) if source.sparse and label is not None else None
    with together(comm, f"reading {table.name}"):
        if sparse is not None:
            rows = sparse.read_sparse(selection.columns, label, int(bounds[0]), int(bounds[-1]))
            return rows, bounds
        rows = table.read(
            (*selection.columns, *(column for _, column in _numbers(source, selection))),
            label,
            int(bounds[0]),
            int(bounds[-1]),
        )
    return rows, bounds


def _said(
    comm: Any, table: Table, selection: Selection, rows: LabelledRows, bounds: Ints, source: DataSource
) -> dict[str, NDArray[Any]]:
    """Return the columns about this rank's rows (weights, clusters, …), texts as objects.  Collective."""
    said: dict[str, NDArray[Any]] = {}
    if not isinstance(rows.values, SparseRows):
        for j, (what, _) in enumerate(_numbers(source, selection), start=len(selection.columns)):
            said[what] = np.ascontiguousarray(rows.values[:, j])
    first, last = int(bounds[0]), int(bounds[-1])

    def numbers(column: Column) -> NDArray[Any]:
        return table.read((column,), None, first, last).values[:, 0]

    def texts(column: Column) -> NDArray[Any]:
        found = table.read(selection.columns[:1], column, first, last)
        return np.array(found.label_texts, dtype=object)[found.label_codes]

    for (what, _), column in zip(source.said, selection.said, strict=True):
        if what not in said:
            said[what] = _tried(comm, table, column, [numbers, texts] if column.holds == "numbers" else [texts])
    return said


def _numbers(source: DataSource, selection: Selection) -> list[tuple[str, Column]]:
    """Return the columns about rows that hold numbers, and are read behind the data's own."""
    both = zip((what for what, _ in source.said), selection.said, strict=True)
    return [(what, column) for what, column in both if what in NUMBERS]


def _tried(comm: Any, table: Table, column: Column, ways: Sequence[Callable[[Column], NDArray[Any]]]) -> NDArray[Any]:
    """Return a column read in the first way in which all ranks can.  Collective."""
    for read in ways[:-1]:
        with suppress(UserError), together(comm, f"reading {table.name}"):
            return read(column)
    with together(comm, f"reading {table.name}"):
        found = ways[-1](column)
    return found


def _by_what(about: Sequence[dict[str, NDArray[Any]]]) -> dict[str, tuple[NDArray[Any], ...]]:
    """Return the columns about rows of each sample, by their role."""
    return {what: tuple(of_sample[what] for of_sample in about) for what in about[0]}


def _picked(values: Floats, is_wanted: Flags) -> Floats:
    """Return some of the rows, a few at a time: NumPy makes a list of their numbers, as long as a column of values."""
    picked = np.empty((np.count_nonzero(is_wanted), values.shape[1]))
    done = 0
    for start in range(0, len(values), ROWS_AT_A_TIME):
        rows = np.flatnonzero(is_wanted[start : start + ROWS_AT_A_TIME])
        part = picked[done : done + len(rows)]
        np.take(values[start : start + ROWS_AT_A_TIME], rows, axis=0, out=part, mode="clip")  # others make a copy first
        done += len(rows)
    return picked


def _run_counts(chosen: Flags, bounds: Ints) -> Ints:
    """Return how many rows of each run are chosen."""
    if len(bounds) > len(chosen):  # of more workers than rows
        return np.diff(np.searchsorted(np.flatnonzero(chosen), bounds)).astype(np.int64)
    runs = pairwise(bounds.tolist())
    return np.array([np.count_nonzero(chosen[begin:end]) for begin, end in runs], dtype=np.int64)


def _sample(values: Floats) -> Floats:
    """Return the rows as a sample: a single column becomes a 1-d array."""
    return np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else values)
