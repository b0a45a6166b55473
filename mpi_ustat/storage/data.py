"""Two samples from files: each rank reads the rows of the workers it hosts.

The rows of a file are cut into one contiguous run per worker, in the order of the file, so that the samples and their
blocks are the same for every number of ranks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.parallel.partition import block_bounds
from mpi_ustat.parallel.runtime import hosted_workers, together
from mpi_ustat.storage import arrays, delimited
from mpi_ustat.storage.labels import Label, in_order, label_value, positive_label, show
from mpi_ustat.storage.table import Column, Rows, Selection, Table, choose, choose_label

SHUTTLE = "shuttle"
"""The name of the Shuttle anomaly data (ODDS): 49097 rows, of which 3511 are outliers."""

_SHUTTLE_COLUMNS = tuple(f"f{j}" for j in range(1, 10))
_SHUTTLE_LABEL = "anomaly"

_SCANNERS: dict[str, Callable[[str], Table]] = {
    **dict.fromkeys((".h5", ".hdf5", ".npz", ".npy"), arrays.scan),
    **dict.fromkeys((".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"), delimited.scan),
}

Value = TypeVar("Value")


@dataclass(frozen=True)
class DataSource:
    """Where two samples are: in one file with a label, or in two files.

    Attributes
    ----------
    path : str or None
        One file with both samples, or ``"shuttle"``.
    label : str or None
        The label column: a name, or a number counted from 0.
    positive : str or None
        The label of the sample x; None: 1 of the labels {0, 1} or {−1, 1}.
    columns : tuple of str
        Data columns: names, or numbers counted from 0, or ``("all",)``; empty: the only one.
    x_path, z_path : str or None
        Or two files, one per sample.
    """

    path: str | None = None
    label: str | None = None
    positive: str | None = None
    columns: tuple[str, ...] = ()
    x_path: str | None = None
    z_path: str | None = None


@dataclass(frozen=True)
class Samples:
    """A rank's part of two samples.

    Attributes
    ----------
    x, z : ndarray of float64, shape (rows, columns), or (rows,) when there is one column
        The rows of the workers that this rank hosts, worker after worker.
    x_sizes, z_sizes : ndarray of int64, shape (hosted workers,)
        How many of these rows each worker has.
    columns : tuple of str
        The names of the columns.
    description : dict
        Where the samples come from, for the results file: no absolute paths.
    """

    x: NDArray[np.float64]
    z: NDArray[np.float64]
    x_sizes: NDArray[np.int64]
    z_sizes: NDArray[np.int64]
    columns: tuple[str, ...]
    description: dict[str, Any]


def load(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read this rank's part of two samples.  Collective.

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
    if source.x_path is not None or source.z_path is not None:
        return _load_two(comm, source, n_workers)
    return _load_labelled(comm, source, n_workers)


def _load_labelled(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read one file and split its rows by their labels.  Collective."""
    path = source.path
    if path is None:
        raise UserError("there is no input: give a file with a label column, or two files, one per sample")
    doing = f"reading {os.path.basename(path)}"
    table, label, selection, origin = _on_master(comm, doing, lambda: _find_labelled(path, source))
    bounds = _own_bounds(comm, selection.n_rows, n_workers)
    with together(comm, doing):
        rows = table.read(selection.columns, label, int(bounds[0]), int(bounds[-1]))

    values = [label_value(text) for text in rows.label_texts]
    positive, census = _census(comm, rows, values, source.positive, label.name, table.name)
    is_positive = np.array([value == positive for value in values], dtype=bool)[rows.label_codes]
    before = np.concatenate([[0], np.cumsum(is_positive)])[bounds - bounds[0]]  # positives before each worker's run
    x_sizes = np.diff(before).astype(np.int64)
    description = {
        **origin,
        "n_rows": selection.n_rows,
        "n_x": census[positive],
        "n_z": selection.n_rows - census[positive],
        "label": label.name,
        "positive": show(positive),
        "columns": list(selection.names),
    }
    return Samples(
        x=_sample(rows.values[is_positive]),
        z=_sample(rows.values[~is_positive]),
        x_sizes=x_sizes,
        z_sizes=np.diff(bounds) - x_sizes,
        columns=selection.names,
        description=description,
    )


def _load_two(comm: Any, source: DataSource, n_workers: int) -> Samples:
    """Read each sample from a file of its own.  Collective."""
    x_path, z_path = source.x_path, source.z_path
    if source.path is not None:
        raise UserError(f"'{source.path}' is given beside a file per sample: give one file, or one for each sample")
    if x_path is None or z_path is None:
        raise UserError("only one of the two samples has a file: give one for each sample, or one file with a label")
    if source.label is not None or source.positive is not None:
        raise UserError("a label is given beside a file per sample: leave it out, or give one file with both samples")

    def find() -> list[tuple[Table, Selection]]:
        found = []
        for path in (x_path, z_path):
            table = _scan(path)
            found.append((table, choose(table, source.columns, None)))
        n_x, n_z = (len(selection.columns) for _, selection in found)
        if n_x != n_z:
            raise UserError(
                f"'{found[0][0].name}' has {n_x} data columns and '{found[1][0].name}' {n_z}: "
                "choose the same ones with --columns"
            )
        return found

    names = [os.path.basename(path) for path in (x_path, z_path)]
    found = _on_master(comm, f"reading {names[0]} and {names[1]}", find)
    samples, sizes = [], []
    for table, selection in found:
        bounds = _own_bounds(comm, selection.n_rows, n_workers)
        with together(comm, f"reading {table.name}"):
            rows = table.read(selection.columns, None, int(bounds[0]), int(bounds[-1]))
        samples.append(_sample(rows.values))
        sizes.append(np.diff(bounds))
    columns = found[0][1].names
    n_x, n_z = (selection.n_rows for _, selection in found)
    description = {
        "files": names,
        "n_rows": n_x + n_z,
        "n_x": n_x,
        "n_z": n_z,
        "label": None,
        "positive": None,
        "columns": list(columns),
    }
    return Samples(samples[0], samples[1], sizes[0], sizes[1], columns, description)


# ---------------------------------------------------------------------------------------------------------------------
# Finding the file and its columns


def _find_labelled(path: str, source: DataSource) -> tuple[Table, Column, Selection, dict[str, Any]]:
    """Return the table, its label column, its data columns, and where it comes from."""
    if path == SHUTTLE and not os.path.exists(path):
        table = _shuttle()
        origin = {"files": [table.name], "name": SHUTTLE, "package": _river_version()}
        source = replace(source, label=source.label or _SHUTTLE_LABEL, columns=source.columns or ("all",))
    else:
        table = _scan(path)
        origin = {"files": [table.name]}
    label = choose_label(table, source.label)
    return table, label, choose(table, source.columns, label), origin


def _scan(path: str) -> Table:
    name = os.path.basename(path).lower()
    for suffix, scan in _SCANNERS.items():
        if name.endswith(suffix):
            return scan(path)
    known = ", ".join(_SCANNERS)
    if not os.path.exists(path):
        raise UserError(f"there is no file '{path}': check its name and folder")
    raise UserError(f"the format of '{path}' is not known from its name: use a file that ends in one of {known}")


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
    table = delimited.scan(path)
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


def _own_bounds(comm: Any, n_rows: int, n_workers: int) -> NDArray[np.int64]:
    """Return the bounds of the runs of the workers that this rank hosts, one more than workers."""
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    return block_bounds(n_rows, n_workers)[hosted.start : hosted.stop + 1]


def _census(
    comm: Any, rows: Rows, labels: list[Label], positive: str | None, column: str, file: str
) -> tuple[Label, Counter[Label]]:
    """Return the positive label and how many rows of the whole file have each label.  Collective."""
    counts: Counter[Label] = Counter()
    for label, count in zip(labels, np.bincount(rows.label_codes, minlength=len(labels)).tolist(), strict=True):
        counts[label] += count
    # A column that is no label may have millions of values; the smallest few tell as much.
    few = in_order(counts)[:6]
    census: Counter[Label] = Counter()
    for counts_of_rank in comm.allgather({label: counts[label] for label in few}):
        census.update(counts_of_rank)
    return positive_label(census, positive, column, file), census


def _sample(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows as a sample: a single column becomes a 1-d array."""
    return np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else values)
