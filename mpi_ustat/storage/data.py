"""Samples from files: each rank reads the rows of the workers it hosts.

The rows of a file, or of several files one after the other, are cut into one contiguous run per worker, in that order,
so that the samples and their blocks are the same for every number of ranks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import hosted_workers, together
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage import delimited
from mpi_ustat.storage.formats import DECIMALS, scan
from mpi_ustat.storage.labels import (
    MOST_CLASSES,
    Label,
    in_order,
    label_value,
    ordered_labels,
    positive_label,
    show,
)
from mpi_ustat.storage.several import Path, SeveralTables, described, join, matching, names_of
from mpi_ustat.storage.stored import ROWS_AT_A_TIME
from mpi_ustat.storage.table import Column, Rows, Selection, Table, brief, choose, choose_label, has_name, in_short

SHUTTLE = "shuttle"
"""The name of the Shuttle anomaly data (ODDS): 49097 rows, of which 3511 are outliers."""

_SHUTTLE_COLUMNS = tuple(f"f{j}" for j in range(1, 10))
_SHUTTLE_LABEL = "anomaly"

Value = TypeVar("Value")


@dataclass(frozen=True)
class DataSource:
    """Where the samples are: in one file with a label, in one file without (one sample), or in two files.

    Wherever a file is, there may be several with the same columns, whose rows follow each other: a tuple of files, in
    the order given, or a pattern such as ``"scores-*.csv"``, in the order of their names (part-2 before part-10).

    Attributes
    ----------
    path : str, tuple of str or None
        One file with both samples, or ``"shuttle"``.
    label : str or None
        The label column: a name, or a number counted from 0. None: the one the format has (LIBSVM's does).
    positive : str or None
        The label of the sample x; None: 1 of the labels {0, 1} or {−1, 1}.
    classes : tuple of str or None
        For a sample of each of several labels: the labels in order, the lowest class first; empty: all of them, in
        ascending order. None: two samples, or one.
    highest_first : bool
        Whether the samples of the classes come the other way round, as those of two-sample kernels do: of two
        classes the last one is x, the positives.
    one_sample : bool
        Whether all rows of the file are one sample.
    columns : tuple of str
        Data columns: names, or numbers counted from 0, or ``("all",)``; empty: the only one.
    x_path, z_path : str, tuple of str or None
        Or two files, one per sample.
    decimal : str
        ``"point"`` or ``"comma"``, in the numbers of delimited text.
    finite : bool
        Whether infinite values are refused.
    """

    path: Path | None = None
    label: str | None = None
    positive: str | None = None
    classes: tuple[str, ...] | None = None
    highest_first: bool = False
    one_sample: bool = False
    columns: tuple[str, ...] = ()
    x_path: Path | None = None
    z_path: Path | None = None
    decimal: str = "point"
    finite: bool = False


@dataclass(frozen=True)
class Samples:
    """A rank's part of one or several samples.

    Attributes
    ----------
    rows : tuple of ndarray of float64, shape (rows, columns), or (rows,) when there is one column
        For each sample, the rows of the workers that this rank hosts, worker after worker. Of two samples the first is
        x; of several classes, the lowest.
    sizes : tuple of ndarray of int64, shape (hosted workers,)
        For each sample, how many of these rows each worker has.
    columns : tuple of str
        The names of the columns.
    description : dict
        Where the samples come from, for the results file: no absolute paths. Its ``left_out``, if there is one, are the
        columns that were not read because they are an index of the rows, which nobody has asked for.
    names : tuple of str
        What messages call the samples, where their labels tell more than their order; or empty.
    """

    rows: tuple[Floats, ...]
    sizes: tuple[Ints, ...]
    columns: tuple[str, ...]
    description: dict[str, Any]
    names: tuple[str, ...] = ()

    @property
    def x(self) -> Floats:
        """The first sample."""
        return self.rows[0]

    @property
    def z(self) -> Floats:
        """The second sample."""
        return self.rows[1]

    @property
    def x_sizes(self) -> Ints:
        """Rows of the first sample by worker."""
        return self.sizes[0]

    @property
    def z_sizes(self) -> Ints:
        """Rows of the second sample by worker."""
        return self.sizes[1]


def load(comm: Any, source: DataSource, n_workers: int) -> Samples:
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
    if source.decimal not in DECIMALS:
        raise UserError(f"the decimal sign is '{source.decimal}': choose point or comma")
    if source.x_path is not None or source.z_path is not None:
        return _load_two(comm, source, n_workers)
    if source.one_sample:
        return _load_one(comm, source, n_workers)
    return _load_labelled(comm, source, n_workers)


def _load_one(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read one file whose rows are one sample.  Collective."""
    path = source.path
    if path is None:
        raise UserError("there is no input: give a file")
    if source.label is not None or source.positive is not None or source.classes is not None:
        raise UserError("a label is given for a statistic of one sample: leave it out")
    table, origin, source = _located(comm, path, source)
    label = None if source.label is None else choose_label(table, source.label)  # known of data with a name
    selection = _choose(table, source, label)
    rows, bounds = _own_rows(comm, table, selection, None, n_workers)
    description = {
        **origin,
        "n_rows": selection.n_rows,
        "label": None,
        "positive": None,
        "columns": list(selection.names),
        **_left_out(selection),
    }
    return Samples((_sample(rows.values),), (np.diff(bounds),), selection.names, description)


def _load_labelled(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read one file and split its rows by their labels.  Collective."""
    path = source.path
    if path is None:
        raise UserError("there is no input: give a file with a label column, or two files, one per sample")
    if source.classes is not None and source.positive is not None:
        raise UserError("the classes say already which label comes first: leave out the positive one")
    table, origin, source = _located(comm, path, source)
    label = choose_label(table, source.label)
    selection = _choose(table, source, label)
    rows, bounds = _own_rows(comm, table, selection, label, n_workers)
    values = [label_value(text) for text in rows.label_texts]
    census = _census(comm, rows, values, [label_value(text) for text in source.classes or ()])
    if source.classes is not None:
        ordered = ordered_labels(census, source.classes, label.name, table.name)
        chosen = ordered[::-1] if source.highest_first else ordered
    else:
        positive = positive_label(census, source.positive, label.name, table.name)
        chosen = [positive, *(each for each in in_order(census) if each != positive)]
    samples, sizes = [], []
    for wanted in chosen:
        is_wanted = np.zeros(len(rows.label_codes), dtype=bool)
        for code in (code for code, value in enumerate(values) if value == wanted):
            is_wanted |= rows.label_codes == code
        sizes.append(_run_counts(is_wanted, bounds - bounds[0]))
        samples.append(_sample(_picked(rows.values, is_wanted)))
    description = {
        **origin,
        "n_rows": selection.n_rows,
        "label": label.name,
        "positive": show(chosen[0]) if source.classes is None or source.highest_first else None,
        "columns": list(selection.names),
        **_left_out(selection),
    }
    if source.classes is None:
        description |= {"n_x": census[chosen[0]], "n_z": census[chosen[1]]}
    else:
        description |= {"classes": [show(each) for each in ordered], "n_of_classes": [census[each] for each in ordered]}
    names = tuple(f"of the class '{brief(show(each))}'" for each in chosen)
    return Samples(tuple(samples), tuple(sizes), selection.names, description, names)


def _load_two(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read each sample from a file of its own.  Collective."""
    x_path, z_path = source.x_path, source.z_path
    if source.path is not None:
        raise UserError(
            f"'{described(source.path)}' is given beside a file per sample: give one file, or one for each sample"
        )
    if x_path is None or z_path is None:
        raise UserError("only one of the two samples has a file: give one for each sample, or one file with a label")
    if source.label is not None or source.positive is not None or source.classes is not None:
        raise UserError("a label is given beside a file per sample: leave it out, or give one file with both samples")

    found = []
    for path in (x_path, z_path):
        table = _table(comm, path, source.decimal)
        found.append((table, _choose(table, source, None)))
    found[1] = (found[1][0], _paired(*found[0], *found[1]))
    samples, sizes = [], []
    for table, selection in found:
        rows, bounds = _own_rows(comm, table, selection, None, n_workers)
        samples.append(_sample(rows.values))
        sizes.append(np.diff(bounds))
    columns = found[0][1].names
    n_x, n_z = (selection.n_rows for _, selection in found)
    description = {
        "files": [name for table, _ in found for name in _files(table)],
        "n_rows": n_x + n_z,
        "n_x": n_x,
        "n_z": n_z,
        "label": None,
        "positive": None,
        "columns": list(columns),
        **_left_out(*(selection for _, selection in found)),
    }
    return Samples(tuple(samples), tuple(sizes), columns, description)


def _left_out(*selections: Selection) -> dict[str, Any]:
    """Return the columns that were left out as an index of the rows, if there are any, for the description."""
    names = list(dict.fromkeys(name for selection in selections for name in selection.left_out))
    return {"left_out": names} if names else {}


def _paired(x_table: Table, x: Selection, z_table: Table, z: Selection) -> Selection:
    """Return the columns of z in the order of those of x that have the same names.

    A single column may have another name in each file (scores of positives, and of negatives), unless it is clear that
    another one is meant.

    Raises
    ------
    UserError
        If they are not as many, or their names differ.
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


def _located(comm: Any, path: Path, source: DataSource) -> tuple[Table, dict[str, Any], DataSource]:
    """Return a table, where it comes from, and the source with what is known of data with a name.  Collective."""
    if path == SHUTTLE and _on_master(comm, "looking for the data", lambda: not os.path.exists(SHUTTLE)):
        if source.decimal == "comma":
            raise UserError(f"decimal=\"comma\" is for files of text such as CSV, not for '{SHUTTLE}': leave it out")
        table = _on_master(comm, "reading the Shuttle data", _shuttle)
        origin = {"files": [table.name], "name": SHUTTLE, "package": _river_version()}
        source = replace(source, label=source.label or _SHUTTLE_LABEL, columns=source.columns or ("all",))
        return table, origin, source
    table = _table(comm, path, source.decimal)
    return table, {"files": _files(table)}, source


def _table(comm: Any, path: Path, decimal: str) -> Table:
    """Describe the files that a path means as one table; each rank looks at some of them.  Collective.

    A refusal is that of the first file that has one, the same for every number of ranks.
    """
    doing = f"reading {described(path)}"
    paths = _on_master(comm, doing, lambda: matching(path))
    found: dict[int, Table] = {}
    refused: dict[int, str] = {}
    with together(comm, doing):
        for number in range(comm.rank, len(paths), comm.size):
            try:
                found[number] = scan(paths[number], decimal)
            except UserError as error:
                refused[number] = str(error)
    for of_rank, refused_by_rank in comm.allgather((found, refused)):
        found |= of_rank
        refused |= refused_by_rank
    if refused:
        raise UserError(refused[min(refused)])
    return join([found[number] for number in range(len(paths))], described(path))


def _files(table: Table) -> list[str]:
    return [each.name for each in table.tables] if isinstance(table, SeveralTables) else [table.name]


def _shuttle() -> Table:
    """Describe the Shuttle data in the installed package `river`, which need not be imported for it.

    Raises
    ------
    UserError
        If it is not installed, or its file is another one than expected.
    """
    spec = find_spec("river")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    paths = [os.path.join(folder, "datasets", "shuttle.csv.gz") for folder in folders]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path is None:
        raise UserError("the Shuttle data come with the package river: pip install 'mpi_ustat[data]'")
    table = delimited.scan(path)  # without a stamp: hosts may have the package installed at different times
    names = (*_SHUTTLE_COLUMNS, _SHUTTLE_LABEL)
    if len(table.columns) != len(names):
        raise UserError(
            f"'{table.name}' of the installed river has {len(table.columns)} columns, not {len(names)}: "
            "pip install 'river>=0.26'"
        )
    columns = tuple(replace(column, name=name) for column, name in zip(table.columns, names, strict=True))
    return replace(table, columns=columns)


def _river_version() -> str:
    try:
        return f"river {version('river')}"
    except PackageNotFoundError:
        return "river"


def _choose(table: Table, source: DataSource, label: Column | None) -> Selection:
    """Find the data columns that are meant, and note whether they may hold infinities."""
    found = choose(table, source.columns, label)
    return replace(found, columns=tuple(replace(column, finite=source.finite) for column in found.columns))


# ---------------------------------------------------------------------------------------------------------------------
# Ranks


def _on_master(comm: Any, doing: str, find: Callable[[], Value]) -> Value:
    """Return, on all ranks, what rank 0 found; a refusal is the same for all of them.  Collective."""
    found: Value | None = None
    refusal: str | None = None
    with together(comm, doing):
        if comm.rank == 0:
            try:
                found = find()
            except UserError as error:
                refusal = str(error)
    value, refusal = comm.bcast((found, refusal))
    if refusal is not None:
        raise UserError(refusal)
    return value


def _own_rows(comm: Any, table: Table, selection: Selection, label: Column | None, n_workers: int) -> tuple[Rows, Ints]:
    """Return the rows of the workers that this rank hosts, and the bounds of their runs.  Collective."""
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    bounds = block_bounds(selection.n_rows, n_workers)[hosted.start : hosted.stop + 1]
    with together(comm, f"reading {table.name}"):
        rows = table.read(selection.columns, label, int(bounds[0]), int(bounds[-1]))
    return rows, bounds


def _census(comm: Any, rows: Rows, labels: list[Label], chosen: list[Label]) -> Counter[Label]:
    """Return how many rows of all have each label, of those chosen and the lowest few.  Collective."""
    counts: Counter[Label] = Counter()
    for label, count in zip(labels, np.bincount(rows.label_codes, minlength=len(labels)).tolist(), strict=True):
        counts[label] += count
    # A column that is no label may have millions of values; the smallest few tell as much.
    few = {*in_order(counts)[: MOST_CLASSES + 1], *(label for label in chosen if label in counts)}
    census: Counter[Label] = Counter()
    for counts_of_rank in comm.allgather({label: counts[label] for label in few}):
        census.update(counts_of_rank)
    return census


def _picked(values: Floats, is_wanted: Flags) -> Floats:
    """Return some of the rows, a few at a time: NumPy makes a list of their numbers, as long as a column of values."""
    picked = np.empty((np.count_nonzero(is_wanted), values.shape[1]))
    done = 0
    for start in range(0, len(values), ROWS_AT_A_TIME):
        part = values[start : start + ROWS_AT_A_TIME][is_wanted[start : start + ROWS_AT_A_TIME]]
        picked[done : done + len(part)] = part
        done += len(part)
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
