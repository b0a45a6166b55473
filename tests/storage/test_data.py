"""Samples from files: the same for every format and number of ranks, and refused rather than guessed."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from conftest import REPOSITORY
from numpy.testing import assert_array_equal

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage import arrays, delimited, dialect, lines
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.formats import scan
from mpi_ustat.storage.labels import label_value, positive_label
from mpi_ustat.storage.text_format import TextFormat

N_ROWS = 301
SERIAL = SerialComm()


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return 3 columns with ±inf, large and tiny numbers, and labels 0 and 1."""
    generator = np.random.Generator(np.random.Philox(7))
    values = generator.normal(size=(N_ROWS, 3)) * [1.0, 1e-200, 1e200]
    values[5, 1], values[6, 2] = np.inf, -np.inf
    return values, (generator.random(N_ROWS) < 0.2).astype(np.int64)


def write_text(
    path: Path,
    values: np.ndarray,
    labels: Sequence[Any],
    delimiter: str = ",",
    names: Sequence[str] = (),
    end: str = "\n",
) -> None:
    lines = [delimiter.join(names)] if names else []
    lines += [delimiter.join([*map(repr, row), str(label)]) for row, label in zip(values.tolist(), labels, strict=True)]
    data = (end.join(lines) + end).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_hdf5(path: Path, **datasets: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file.create_dataset(name.replace("__", "/"), data=data)


NAMES = ("a", "b", "c", "y")
WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray], None]] = {
    "header.csv": lambda path, v, y: write_text(path, v, y, names=NAMES),
    "header.csv.gz": lambda path, v, y: write_text(path, v, y, names=NAMES),
    "semicolon.csv": lambda path, v, y: write_text(path, v, y, ";"),
    "tab.tsv": lambda path, v, y: write_text(path, v, y, "\t"),
    "tab.tsv.gz": lambda path, v, y: write_text(path, v, y, "\t", names=NAMES, end="\r\n"),
    "blanks.txt": lambda path, v, y: write_text(path, v, y, "   "),
    "savetxt.txt": lambda path, v, y: np.savetxt(path, np.column_stack([v, y]), header="a b c y", fmt="%.17g"),
    "commas.txt": lambda path, v, y: np.savetxt(
        path, np.column_stack([v, y]), header="a,b,c,y", delimiter=",", fmt="%.17g"
    ),
    "crlf.csv": lambda path, v, y: write_text(path, v, y, names=NAMES, end="\r\n"),
    "plain.npz": lambda path, v, y: np.savez(path, X=v, y=y),
    "fortran.npz": lambda path, v, y: np.savez(path, X=np.asfortranarray(v), y=y),
    "packed.npz": lambda path, v, y: np.savez_compressed(path, X=v, y=y),
    "packed_fortran.npz": lambda path, v, y: np.savez_compressed(path, X=np.asfortranarray(v), y=y),
    "big_endian.npz": lambda path, v, y: np.savez(path, X=v.astype(">f8"), y=y.astype(">i2")),
    "matrix.h5": lambda path, v, y: write_hdf5(path, X=v, y=y),
    "other_names.hdf5": lambda path, v, y: write_hdf5(path, features=v, y=y.astype(np.float32)[:, np.newaxis]),
    "big_endian.h5": lambda path, v, y: write_hdf5(path, X=v.astype(">f8"), y=y.astype(bool)),
}


def write(comm: Any, folder: Path, name: str, values: np.ndarray, labels: np.ndarray) -> Path:
    if comm.rank == 0:
        WRITERS[name](folder / name, values, labels)
    comm.barrier()
    return folder / name


def gathered(comm: Any, source: DataSource, n_workers: int) -> tuple[Samples, list[np.ndarray]]:
    """Return this rank's samples, and x, z, x_sizes, z_sizes of all ranks."""
    own = read_samples(comm, source, n_workers)
    assert len(own.sizes[0]) == len(own.sizes[1]) == len(hosted_workers(n_workers, comm.size, comm.rank))
    assert own.sizes[0].sum() == len(own.x)
    assert own.sizes[1].sum() == len(own.z)
    assert own.x.dtype == own.z.dtype == np.float64
    assert own.sizes[0].dtype == own.sizes[1].dtype == np.int64
    assert own.x.flags.c_contiguous
    assert own.z.flags.c_contiguous
    parts = comm.allgather((own.x, own.z, own.sizes[0], own.sizes[1]))
    return own, [np.concatenate(part) for part in zip(*parts, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# The same samples from every format, at every number of ranks


@pytest.mark.parametrize("n_workers", [1, 5, 400])
@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_rows_of_the_file(comm: Any, shared_tmp_path: Path, name: str, n_workers: int) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, name, values, labels)
    label = "y" if path.suffix in (".npz", ".h5", ".hdf5") else "3"
    source = DataSource(str(path), label=label, columns=("2", "0"))
    own, (x, z, x_sizes, z_sizes) = gathered(comm, source, n_workers)
    assert_array_equal(x, values[labels == 1][:, [2, 0]])
    assert_array_equal(z, values[labels == 0][:, [2, 0]])
    bounds = block_bounds(N_ROWS, n_workers)
    assert_array_equal(x_sizes, [labels[a:b].sum() for a, b in pairwise(bounds)])
    assert_array_equal(x_sizes + z_sizes, np.diff(bounds))
    assert own.description["n_rows"] == N_ROWS
    assert own.description["n_x"] == labels.sum()
    assert own.description["files"] == [name]
    assert own.description["positive"] in ("1", "True")
    assert str(shared_tmp_path) not in json.dumps(own.description)


@pytest.mark.parametrize("name", ["header.csv.gz", "packed.npz", "matrix.h5"])
def test_one_column_is_one_dimensional(comm: Any, shared_tmp_path: Path, name: str) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, name, values, labels)
    own, (x, z, _, _) = gathered(comm, DataSource(str(path), label="y", columns=("1",), positive="0"), 3)
    assert_array_equal(x, values[labels == 0, 1])
    assert_array_equal(z, values[labels == 1, 1])
    assert own.description["positive"] == "0"


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".h5"])
def test_one_file_per_sample(comm: Any, shared_tmp_path: Path, suffix: str) -> None:
    paths = [shared_tmp_path / f"x{suffix}", shared_tmp_path / f"z{suffix}"]
    samples = [np.arange(11) / 7, np.arange(4) / 3]
    if comm.rank == 0:
        for path, sample in zip(paths, samples, strict=True):
            if suffix == ".csv":
                path.write_text("score\n" + "\n".join(map(repr, sample.tolist())))
            elif suffix == ".npy":
                np.save(path, sample)
            else:
                write_hdf5(path, score=sample)
    comm.barrier()
    own, (x, z, x_sizes, z_sizes) = gathered(comm, DataSource(x_path=str(paths[0]), z_path=str(paths[1])), 3)
    assert_array_equal(x, samples[0])
    assert_array_equal(z, samples[1])
    assert_array_equal(x_sizes, [4, 4, 3])
    assert_array_equal(z_sizes, [2, 1, 1])
    assert own.description["files"] == [f"x{suffix}", f"z{suffix}"]
    assert (own.description["n_x"], own.description["n_z"], own.description["n_rows"]) == (11, 4, 15)


def test_long_text_is_read_from_the_middle(comm: Any, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks count lines, and find their own again; blank ones at the end are none."""
    for name in ("_STRIDE", "_LARGE"):
        monkeypatch.setattr(lines, name, 1 << 17)
    path = shared_tmp_path / "long.csv"
    n = 200_000
    score = np.arange(n) / 64
    labels = np.arange(n) % 3 == 0
    if comm.rank == 0:
        write_text(path, score[:, np.newaxis], labels.astype(int), names=("score", "label"))
        assert path.stat().st_size > 15 * lines._STRIDE
        with path.open("a") as file:
            file.write(" \n" * 200_000)
    comm.barrier()
    _, (x, z, _, _) = gathered(comm, DataSource(str(path), label="label"), 7)
    assert_array_equal(x, score[labels])
    assert_array_equal(z, score[~labels])


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.h5"])
def test_an_error_on_one_rank_is_raised_on_all(comm: Any, shared_tmp_path: Path, name: str) -> None:
    values, labels = example()
    values[-3, 1] = np.nan
    path = shared_tmp_path / name
    if comm.rank == 0:
        WRITERS[{".csv": "header.csv", ".npz": "plain.npz", ".h5": "matrix.h5"}[path.suffix]](path, values, labels)
    comm.barrier()
    place = f"line {N_ROWS - 1}:" if path.suffix == ".csv" else rf"row {N_ROWS - 3} \(counted from 0\):"
    with pytest.raises(UserError, match=rf"'{name}', {place} column '(b|1)' is NaN: remove"):
        read_samples(comm, DataSource(str(path), label="y", columns=("1",)), 4)


@pytest.mark.parametrize(("bad", "sentence"), [(np.nan, "is NaN: remove"), (np.inf, "holds an infinite value, with")])
@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.h5", "*.csv"])
def test_a_bad_value_is_told_in_the_same_sentence_by_any_number_of_ranks(
    comm: Any, shared_tmp_path: Path, name: str, bad: float, sentence: str
) -> None:
    values, labels = example()
    finite = np.nan_to_num(values, posinf=0.0, neginf=0.0)
    values = finite.copy()
    values[[N_ROWS // 2, -3], 1] = bad  # on several ranks
    path = shared_tmp_path / name.replace("*", "rows")
    if comm.rank == 0:
        WRITERS[{".csv": "header.csv", ".npz": "plain.npz", ".h5": "matrix.h5"}[path.suffix]](path, values, labels)
        if name.startswith("*"):
            WRITERS["header.csv"](shared_tmp_path / "first.csv", finite, labels)
    comm.barrier()
    row = N_ROWS // 2
    place = f"line {row + 2}:" if path.suffix == ".csv" else f"row {row} (counted from 0):"
    source = DataSource(str(shared_tmp_path / name), label="y", columns=("1",), finite=True)
    for communicator in (comm, SerialComm()):
        with pytest.raises(UserError) as caught:
            read_samples(communicator, source, 4)
        assert str(caught.value).startswith(f"'{path.name}', {place} column '")
        assert sentence in str(caught.value)
    if np.isinf(bad):  # where infinities compare, they are values like others
        assert np.isinf(np.concatenate(read_samples(SerialComm(), replace(source, finite=False), 1).rows)).any()


def test_a_missing_file_reads_the_same_on_any_number_of_ranks(comm: Any, shared_tmp_path: Path) -> None:
    path = str(shared_tmp_path / "absent.h5")
    with pytest.raises(UserError) as caught:
        read_samples(comm, DataSource(path, label="y"), 2)
    assert str(caught.value) == f"there is no file '{path}': check its name and folder"


def test_classes_are_judged_over_all_ranks(comm: Any, shared_tmp_path: Path) -> None:
    path = shared_tmp_path / "sorted.csv"
    if comm.rank == 0:
        path.write_text("".join(f"{i},{'cat' if i < 20 else 'dog'}\n" for i in range(40)))
    comm.barrier()
    _, (x, z, x_sizes, _) = gathered(comm, DataSource(str(path), label="1", positive="dog"), 4)
    assert_array_equal(x, np.arange(20, 40))
    assert_array_equal(z, np.arange(20))
    assert_array_equal(x_sizes, [0, 0, 10, 10])
    with pytest.raises(UserError, match=r"has the values 'cat', 'dog', not 'cow': give one of them to positive="):
        read_samples(comm, DataSource(str(path), label="1", positive="cow"), 4)


def test_real_data(shared_data: Path) -> None:
    samples = read_samples(SERIAL, DataSource(str(shared_data / "shuttle.npz"), label="y", columns=("8",)), 10)
    assert (len(samples.x), len(samples.z)) == (3511, 45586)
    samples = read_samples(SERIAL, DataSource(str(shared_data / "shuttle.npz"), label="y", columns=("X",)), 10)
    assert samples.z.shape == (45586, 9)
    source = DataSource(str(shared_data / "diamonds.csv.gz"), label="cut", positive="Fair", columns=("price",))
    with pytest.raises(UserError, match=r"more than two values \('Fair', 'Good', 'Ideal', 'Premium', 'Very Good'\)"):
        read_samples(SERIAL, source, 10)


# ---------------------------------------------------------------------------------------------------------------------
# The Shuttle data by name


@pytest.mark.skipif(
    find_spec("river") is None, reason="the package river, which ships the Shuttle data, is not installed"
)
def test_shuttle(comm: Any) -> None:
    own, (x, z, _, _) = gathered(comm, DataSource("shuttle"), 7)
    assert x.shape == (3511, 9)
    assert z.shape == (45586, 9)
    assert own.columns == tuple(f"f{j}" for j in range(1, 10))
    assert own.description["label"] == "anomaly"
    assert own.description["name"] == "shuttle"
    _, (x8, _, _, _) = gathered(comm, DataSource("shuttle", columns=("f9",)), 7)
    assert_array_equal(x8, x[:, 8])
    assert "river.datasets" not in sys.modules


def test_shuttle_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi_ustat.storage.shuttle.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'mpi_ustat\[data\]'"):
        read_samples(SERIAL, DataSource("shuttle"), 2)


# ---------------------------------------------------------------------------------------------------------------------
# Text


def load_text(folder: Path, text: str | bytes, name: str = "t.csv", **source: Any) -> Samples:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_samples(SERIAL, DataSource(str(path), **{"label": "1", **source}), 1)


@pytest.mark.parametrize(
    ("text", "n_rows", "columns"),
    [
        ("0.5,1\n0.6,0\n", 2, ("0",)),
        ("score,label\n0.5,1\n0.6,0\n", 2, ("score",)),
        ("0.5,cat\n0.6,dog\n0.7,cat\n", 3, ("0",)),  # text labels in every row: no header
        ("0.5,cat\n0.6,dog\n", 2, ("0",)),
        ("score,kind\n0.5,cat\n0.6,dog\n", 2, ("score",)),
        ("0.5,1\n0.6,0", 2, ("0",)),  # no end of line at the end
        ("0.5,1\n0.6,0\n\n \r\n\n", 2, ("0",)),
        ("\ufeffscore,label\r\n0.5,1\r\n0.6,0\r\n", 2, ("score",)),
        ("\ufeff0.5,1\n0.6,0\n", 2, ("0",)),
        ("# score, label\n0.5, 1\n0.6, 0\n", 2, ("score",)),
        ('"sc,ore","label"\n"0.5",1\n0.6,"0"\n', 2, ("sc,ore",)),
        ('0.5\t"a b"\n0.6\t"c d"\n', 2, ("0",)),
        ('s, "y"\n0.5, "a b"\n0.6, "c d"\n', 2, ("s",)),
        ('0.5 "a b"\n  0.6   "c d"\n', 2, ("0",)),
        ("größe;y\n.5;1\n-6e-1;0\n", 2, ("größe",)),
        ("0,1\n0.5,cat\n0.6,dog\n", 2, ("0",)),  # pandas' names of columns without names
        ("#0.5,1\n0.5,1\n0.6,0\n", 2, ("0.5",)),
        ("0,label\n0.5,1\n0.6,0\n", 2, ("0",)),  # names that count the columns
        ("nan_share,y\n0.5,1\n0.6,0\n", 2, ("nan_share",)),
        ("5min,label\n0.5,1\n0.6,0\n", 2, ("5min",)),
    ],
)
def test_header_and_dialect(tmp_path: Path, text: str, n_rows: int, columns: tuple[str, ...]) -> None:
    labels = {"cat", "a b"}
    positive = next((label for label in labels if label in text), None)
    samples = load_text(tmp_path, text, positive=positive)
    assert samples.description["n_rows"] == n_rows
    assert samples.columns == columns
    assert samples.x[0] == 0.5


@pytest.mark.parametrize(
    ("first", "below", "verdict"),
    [
        (["x", "y"], [["1", "0"], ["2", "1"]], "header"),
        (["1", "0"], [["1", "0"], ["2", "1"]], "data"),
        (["a", "b"], [["c", "d"], ["e", "f"]], "data"),  # nothing tells names from values
        (["1", "cat"], [["2", "dog"], ["3", "cat"]], "data"),
        (["1", "emu"], [["2", "dog"], ["3", "cat"]], "data"),
        (["score", "kind"], [["2", "dog"], ["3", "cat"]], "header"),
        (["n/a", "1"], [["2", "0"], ["3", "1"]], "unclear"),  # a value is missing, or a name is 1
        (["", "1"], [["2", "0"], ["3", "1"]], "unclear"),
        (["n/a", "cat"], [["2", "dog"], ["3", "cat"]], "unclear"),
        (["O.5", "cat"], [["2", "dog"], ["3", "cat"]], "unclear"),  # cat occurs below: a row with a typing error
        (["1.2.3", "1"], [["2", "0"]], "unclear"),
        (["0", "1", "y"], [["2", "0", "7"], ["3", "1", "7"]], "header"),  # numbers that count the columns
        (["score", "1"], [["2", "0"], ["3", "1"]], "unclear"),  # a name, or a word in the place of a number
        (["O.5", "1"], [["2", "0"], ["3", "1"]], "unclear"),
        (["None", "y"], [["2", "0"], ["3", "1"]], "unclear"),
        (["2019", "2020"], [["2", "0"], ["3", "1"]], "data"),
        (["0", "1", "2"], [["2.5", "0.5", "1.0"], ["3.0", "1e-3", "2.0"]], "header"),  # of a data frame without names
        (["0", "1", "2"], [["2.5", "0", "1"], ["3.0", "1", "2"]], "header"),
        (["0", "1"], [["2.5", "0.5"], ["3.0", "1.0"]], "header"),
        (["0", "1"], [["2.5", "0.5"], ["3", "1.0"]], "unclear"),  # who writes 3 for 3.0 may write 0 for 0.0
        (["0", "1"], [["2.5", "0"], ["3.0", "1"]], "unclear"),
        (["0", "1", "2"], [["2", "0", "7"], ["3", "1", "7"]], "unclear"),
        (["0", "1", "2"], [["0", "1", "2"], ["1", "1", "2"]], "unclear"),
        (["0", "1"], [["2", "dog"], ["3", "cat"]], "header"),  # 1 is no kind of animal
        (["0", "1"], [["2", "dog"], ["3", "1"]], "unclear"),
        (["0"], [["2.5"], ["3.0"]], "data"),
        (["0"], [["2.5"], ["3"]] * 9, "data"),
        (["0"], [["2.5"], ["3.0"]] * 9, "unclear"),  # of a series without a name
        (["1", "2"], [["2.5", "0.5"], ["3.0", "1.0"]], "data"),
        (["", "0", "1"], [["0", "2", "1"], ["1", "3", "0"]], "header"),  # with its row index
        (["", "0"], [["0", "2.5"], ["1", "3.0"], ["2", "4.0"]], "header"),
        (["", "0"], [["anna", "2"], ["bob", "3"]], "header"),
        (["", "0", "1"], [["5", "2", "1"], ["1", "3", "0"]], "unclear"),  # or a value is missing
        (["2019", "y"], [["2", "0"], ["3", "1"]], "unclear"),
        (["", "score", "y"], [["0", "2", "1"], ["1", "3", "0"]], "header"),  # a data frame with its row index
        (["", "0", "y"], [["0", "2", "1"], ["1", "3", "0"]], "header"),
        (["1,5", "1"], [["2,5", "0"]], "data"),
        (["score", "y"], [["NA", "1"], ["2", "0"]], "header"),
        (["score", "y"], [["2", "1"], ["2"]], "header"),  # a ragged row is reported when it is read
        (["y", "score", "g"], [["1", "0.5", "j"], ["0", "0.2", "g"]], "header"),  # a group is called as its column
        (["score", "g"], [["0.5", "j"], ["0.2", "g"]], "unclear"),
        (["n/a", "unknown", "g"], [["1", "0.5", "j"], ["0", "0.2", "g"]], "unclear"),
        (["x", "y"], [], "header"),
        (["1", "y"], [], "data"),
    ],
)
def test_first_row(first: list[str], below: list[list[str]], verdict: str) -> None:
    assert dialect.judge_first_row(first, below) == verdict


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("", {}, "'t.csv' is empty: give a file with data"),
        ("\n \n", {}, "'t.csv' is empty: give a file with data"),
        ("a,b\n", {}, "'t.csv' has no rows of data: give a file with data"),
        ("\n1,2\n", {}, "'t.csv', line 1 is blank: remove the line"),
        ("1,0\n\n2,1\n", {}, "'t.csv', line 2 is blank: remove the line"),
        ("1,0\n2,1,1\n3,1\n", {}, "'t.csv', line 2 has 3 cells where line 1 has 2: correct the line"),
        ("a,b\n1,0\n2\n3,1\n", {}, "'t.csv', line 3 has 1 cell where line 1 has 2: correct the line"),
        ("a,b\n1,0\n,1\n", {}, "'t.csv', line 3: column 'a' is empty: remove the row or fill in the value"),
        ("a,b\n1,0\n2x,1\n", {}, "'t.csv', line 3: column 'a' has '2x', which is not a number: correct it"),
        ("a,b\n1,0\n1_0,1\n", {}, "'t.csv', line 3: column 'a' has '1_0', which is not a number"),
        ("a,b\n1,0\nNaN,1\n", {}, "'t.csv', line 3: column 'a' is NaN: remove the row or fill in the value"),
        ("a,b\n1,0\n2,\n3,1\n", {}, "'t.csv', line 3: the label 'b' is missing: remove the row or fill in"),
        ("a,b\n1,0\n2,NA\n", {}, "'t.csv', line 3: the label 'b' is missing: remove the row or fill in"),
        (
            "1,5;0\n2,5;1\n",
            {},
            "'t.csv', line 1: column '0' has '1,5' with a decimal comma: give decimal=\"comma\", or write",
        ),
        ("a\n1,5\n2,5\n", {"label": "a", "columns": ("0",)}, "column 'a' of 't.csv' is the label: leave it out"),
        (
            "n/a,1\n2,0\n3,1\n",
            {},
            "line 1 ('n/a,1') is neither a header nor a row of data like those below: correct its cells, or put a line",
        ),
        (
            "0,1\n2,0\n3,1\n",
            {},
            "line 1 ('0,1') may be a row of data, or names that pandas has given to columns: put a",
        ),
        (
            "0\n" + "0.5\n" * 10,
            {"label": "0"},
            "line 1 ('0') may be a row of data, or names that pandas has given to col",
        ),
        ("sep=\na;b\n1;0\n2;1\n", {}, "'t.csv' begins with the line 'sep=', which is meant for Excel: remove it"),
        ("# made by hand\na,b\n1,0\n2,1\n", {}, "'t.csv' begins with a line of comment, '# made by hand': remove it"),
        ("% made by hand\n1,0\n2,1\n", {}, "'t.csv' begins with a line of comment, '% made by hand': remove it"),
        (
            "# made, by\n# hand\n1,0\n2,1\n",
            {},
            "begins with 2 lines of comment, the first of which is '# made, by': rem",
        ),
        ("a,b\n1,0\n# half\n2,1\n", {}, "'t.csv', line 3 is a comment, '# half': remove the line"),
        ("My table\na,b\n1,0\n2,1\n", {}, "line 1 of 't.csv' ('My table') has 1 cell where those below have 2: write"),
        (
            "My,own,table\na,b\n1,0\n2,1\n",
            {},
            "('My,own,table') has 3 cells where those below have 2: remove it if it is",
        ),
        ("a,b\nx,1,0\ny,2,1\n", {}, "line 1 of 't.csv' ('a,b') has 2 cells where those below have 3: write a name for"),
        ('"a" "b"\n"1" 1 0\n"2" 2 1\n', {}, "has 2 cells where those below have 3: write a name for the first column"),
        (
            f"{'title' * 50}\na,b,c\n1,0,1\n2,1,1\n",
            {},
            f"({'title' * 8!r:.41}…') has 1 cell where those below have 3: re",
        ),
        (
            "a,b\r\r\n1,0\r\r\n",
            {},
            "'t.csv' ends lines with CR CR LF, as when line ends are converted twice",
        ),
        ("a,b\n1,0\r\r\n", {}, "'t.csv' ends lines with CR CR LF"),
        (f"1,{'cat' * 50}\n2,dog\n", {}, f"has the values '{'cat' * 13}c…', 'dog': say with positive= which one"),
        ("1,cat\n2,dog\n", {"positive": "cow" * 50}, f"'dog', not '{'cow' * 13}c…': give one of them to positive="),
        (
            f"{'a' * 90},{'y' * 90},b\n1,0,2\n",
            {"label": "y"},
            f"no column 'y': choose among {'a' * 40}…, {'y' * 40}…, b",
        ),
        ('1,"0\n2,1\n', {}, "'t.csv', line 1 has a quotation mark out of place: correct the line"),
        ("1,0\r2,1\r", {}, "'t.csv' ends lines with carriage returns only: convert it"),
        ("1,0\n2\r,1\n\n3,1\n", {}, "'t.csv', line 2 has a carriage return inside: correct the line"),
        (b"gr\xf6sse,y\n1,0\n2,1\n", {}, "'t.csv' is not UTF-8 text: convert it, for example with iconv -t UTF-8"),
        ("9007199254740993,0\n2,1\n", {}, "'t.csv', line 1: 9007199254740993 in column '0' has no exact float64"),
        ("9007199254740993.0,0\n2,1\n", {}, "line 1: 9007199254740993.0 in column '0' has no exact float64"),
        ("a,b\n1,0\n1e400,1\n", {}, "'t.csv', line 3: 1e400 in column 'a' has no exact float64: subtract an offset"),
        ("a,b\n-1E+400,0\n1,1\n", {}, "'t.csv', line 2: -1E+400 in column 'a' has no exact float64"),
        ("a,b\n0.0,0\n-1.5E-400,1\n", {}, "'t.csv', line 3: -1.5E-400 in column 'a' has no exact float64"),
        ('a,b\n0,0\n"1e-0400",1\n', {}, "'t.csv', line 3: 1e-0400 in column 'a' has no exact float64"),
        ("a;b\n0,5;0\n9007199254740993,0;1\n", {"decimal": "comma"}, "line 3: 9007199254740993,0 in column 'a' has no"),
        ("a;b\n0,5;0\n1,5e400;1\n", {"decimal": "comma"}, "line 3: 1,5e400 in column 'a' has no exact float64"),
        (
            f"a,b\n1,0\n1{'0' * 500}1,1\n",
            {},
            f"line 3: 1{'0' * 39}… in column 'a' has no exact float64: subtract an offset",
        ),
        (
            "a,a,y\n1,2,0\n1,2,1\n",
            {"label": "y", "columns": ("a",)},
            "has 2 columns 'a': choose by number, one of 0, 1",
        ),
        ("a,b,y\n1,2,0\n", {"label": "y"}, "'t.csv' has several data columns: choose with columns= among a, b, y"),
        ("a,y\n1,0\n", {"label": "z"}, "'t.csv' has no column 'z': choose among a, y"),
        ("a,y\n1,0\n", {"columns": ("2",)}, "'t.csv' has no column '2': choose among a, y"),
        ("a,y\n1,0\n", {"label": None}, "no label column of 't.csv' is chosen: choose with label= among a, y"),
        ("a,y\n1,3\n2,3\n", {}, "the label 'y' of 't.csv' has one value only, '3': two classes are needed"),
        ("1,1\n2,2\n3,3\n", {}, "has more than two values ('1', '2', '3'): choose or make a label column with two"),
        ("1,c\n2,a\n3,10\n1,d\n2,2\n3,b\n", {"positive": "a"}, "two values ('2', '10', 'a', 'b', 'c', …): choose"),
        ("1,cat\n2,dog\n", {}, "the label '1' of 't.csv' has the values 'cat', 'dog': say with positive= which one"),
        ("1,1\n2,2\n", {}, "the label '1' of 't.csv' has the values '1', '2': say with positive= which one"),
    ],
)
def test_refused_text(tmp_path: Path, text: str | bytes, source: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_text(tmp_path, text, **source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "can't be read" not in str(caught.value)  # the cause is told as it is, not wrapped in another


@pytest.mark.parametrize(
    ("text", "said", "x"),
    [
        ("sep=;\na;b\n1;0\n2;1\n", {}, [2]),
        ('\ufeff"sep=|"\r\n1|0\r\n2|1\r\n', {}, [2]),
        ("sep=,\na;b\n1;0\n2;1\n", {"separator": "semicolon"}, [2]),
        ("1:0\n2:1\n", {"separator": ":"}, [2]),
        ("a b;y\n1;0\n2;1\n", {"separator": ";"}, [2]),
        ("1  0\n2\t1\n", {"separator": "blank"}, [2]),
        ("# by hand\n  # at night\na,b\n1,0\n#2,1\n3,1\n# end\n\n", {"comment": "#"}, [3]),
        ("\ufeff// by hand\n1,0\n2,1\n", {"comment": "//"}, [2]),
        ("0,1\n5,0\n2,1\n", {"header": "no"}, [0, 2]),
        ("0,1\n5,0\n2,1\n", {"header": "yes", "label": "1"}, [2]),
        ("1.234,5;0\n-1.234.567,25e1;1\n12;1\n", {"decimal": "comma", "thousands": "."}, [-12345672.5, 12]),
        ('"1,234.5",0\n"12,345",1\n1234,1\n', {"thousands": ","}, [12345, 1234]),
        ("a;b\n1'234;0\n2'000'000;1\n", {"thousands": "'"}, [2e6]),
        ("1\u202f234,5;0\n1\u202f234\u202f567;1\n", {"decimal": "comma", "thousands": "\u202f"}, [1234567]),
        ("größe;b\n1;0\n2;1\n".encode("latin-1"), {"encoding": "latin-1", "columns": ("größe",)}, [2]),
        ("größe;b\r\n1;0\r\n2;1\r\n".encode("utf-16"), {"encoding": "UTF-16", "columns": ("größe",)}, [2]),
    ],
)
def test_what_is_said_of_text(tmp_path: Path, text: str | bytes, said: dict[str, str], x: list[float]) -> None:
    assert load_text(tmp_path, text, **said).x.tolist() == x


@pytest.mark.parametrize(
    ("text", "said", "message"),
    [
        ("# c\na,b\n1,0\n# d\n2x,1\n", {"comment": "#"}, "'t.csv', line 5: column 'a' has '2x', which is not a number"),
        ("# c\na,b\n1,0\n# d\n2,1,1\n", {"comment": "#"}, "'t.csv', line 5 has 3 cells where line 2 has 2: correct"),
        ("sep=;\na;b\n1;0\n;1\n", {}, "'t.csv', line 4: column 'a' is empty: remove the row or fill in the value"),
        (
            "1;0\n1.23;1\n",
            {"thousands": ".", "decimal": "comma"},
            "line 2: column '0' has '1.23', whose digits are not",
        ),
        ("1;0\n1'23;1\n", {"thousands": "'"}, "line 2: column '0' has '1'23', which is not a number"),
        ("9.007.199.254.740.993;0\n1;1\n", {"thousands": ".", "decimal": "comma"}, "has no exact float64"),
        ("1,0\n2,1\n", {"separator": ";;"}, "the separator is ';;', which is no sign of one character: give one"),
        ("1,0\n2,1\n", {"separator": "5"}, "the separator is '5', which is no sign of one character: give one"),
        ("1,0\n2,1\n", {"header": "maybe"}, "the header is 'maybe': choose yes or no"),
        ("1,0\n2,1\n", {"comment": " "}, "comments begin with no visible sign: give one, such as comment="),
        ("1,0\n2,1\n", {"thousands": "."}, "'.' is the sign both of decimals and of thousands: choose another"),
        ("1,0\n2,1\n", {"separator": ",", "decimal": "comma"}, "',' is the sign both of decimals and between cells"),
        ("1,0\n2,1\n", {"separator": "blank", "thousands": " "}, "' ' is the sign both of thousands and between cells"),
        ("1,0\n2,1\n", {"encoding": "klingon"}, "the encoding 'klingon' is not known: choose one that Python knows"),
        (b"1,0\n2,\x81\n", {"encoding": "cp1252"}, "'t.csv' is no text in the encoding that is given: give another"),
    ],
)
def test_what_is_said_wrongly_of_text(tmp_path: Path, text: str | bytes, said: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        load_text(tmp_path, text, **said)


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def zipped(*parts: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for k, part in enumerate(parts):
            archive.writestr(f"{k}.csv", part)
    return stream.getvalue()


def in_zstd(data: bytes) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    return b"".join(pyarrow.compress(part, "zstd", asbytes=True) for part in (data[:1000], data[1000:]))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst", ".zip"])
def test_compressed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, encoding: str) -> None:
    """Read from the middle, and refused when a part is missing."""
    monkeypatch.setattr(lines, "_STRIDE", 1 << 10)
    text = "score,label\n" + "".join(f"{k},{k % 2}\n" for k in range(2000))
    packed = ({**PACKERS, ".zst": in_zstd, ".zip": zipped}[suffix])(text.encode(encoding))
    path = tmp_path / f"t.csv{suffix}"
    path.write_bytes(packed)
    table = scan(str(path), TextFormat(encoding=encoding))
    for first, last in ((1500, 1503), (0, 2), (1998, 2000)):
        assert table.read(table.columns[:1], None, first, last).values[:, 0].tolist() == list(range(first, last))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError, match=r"^'t\.csv\.\w+' can't be read as delimited text \(.*\): check the file"):
        scan(str(path), TextFormat(encoding=encoding))


def test_an_archive_of_several_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'t\.csv\.zip' holds 2 files: pack one alone, or unpack them"):
        load_text(tmp_path, zipped(b"1,0\n", b"2,1\n"), "t.csv.zip")


def test_a_column_is_found_by_its_name_before_its_number(tmp_path: Path) -> None:
    samples = load_text(tmp_path, ",0,1,y\n5,6,7,1\n7,8,9,0\n", label="3", columns=("0", "2"))
    assert_array_equal(samples.x, [[6.0, 7.0]])
    assert samples.columns == ("0", "1")


def test_all_columns(tmp_path: Path) -> None:
    samples = load_text(tmp_path, "a,y,b\n1,0,2\n3,1,4\n", label="y", columns=("all",))
    assert samples.columns == ("a", "b")
    assert_array_equal(samples.x, [[3.0, 4.0]])


@pytest.mark.parametrize(
    ("text", "wanted", "columns", "left_out"),
    [
        (",a,b,y\n0,3.5,2.5,1\n1,1.5,4.5,0\n", ("all",), ("a", "b"), ["(column 0)"]),
        (",a,y\n0,3.5,1\n1,1.5,0\n", (), ("a",), ["(column 0)"]),
        ('"","a","y"\n"1",3.5,1\n"2",1.5,0\n', (), ("a",), ["(column 0)"]),  # R's row names
        (",a,y\n0,3.5,1\n1,1.5,0\n", ("0", "a"), ("(column 0)", "a"), None),
        (",Unnamed: 0,a,y\n0,0,3.5,1\n1,1,1.5,0\n", ("all",), ("a",), ["(column 0)", "Unnamed: 0"]),
        ("a,Unnamed: 0.1,y\n3.5,0,1\n1.5,1,0\n", ("all",), ("a",), ["Unnamed: 0.1"]),
        (",0,1,y\n0,3.5,2.5,1\n1,1.5,4.5,0\n", ("all",), ("0", "1"), ["(column 0)"]),
        ("0.5,1\n0.6,0\n", ("all",), ("0",), None),
    ],
)
def test_the_index_of_a_data_frame_is_left_out(
    tmp_path: Path, text: str, wanted: tuple[str, ...], columns: tuple[str, ...], left_out: list[str] | None
) -> None:
    label = "y" if "y" in text else "1"
    samples = load_text(tmp_path, text, label=label, columns=wanted)
    assert samples.columns == columns
    assert samples.description.get("left_out") == left_out
    assert len(samples.x) == 1


def test_an_index_alone_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no data column of numbers but the index '\(column 0\)': choose"):
        load_text(tmp_path, ",y\n0,1\n1,0\n", label="y")


def test_labels_with_quotation_marks(tmp_path: Path) -> None:
    """Only the marks around a text are none of it."""
    labels = ['5"', '"5"', '"5"""', ' "5"', ' "5"""', '"""5"""', '5" ', '" 5"']
    values = ['5"', 5, '5"', 5, '5"', '"5"', '5"', 5]
    for delimiter in ",;\t":
        text = "".join(f"{k + 0.5}{delimiter}{label}\n" for k, label in enumerate(labels))
        for value, shown in ((5, "5"), ('5"', '5"'), ('"5"', '"5"')):
            samples = load_text(tmp_path, text, positive=None, classes=(shown, "5" if shown != "5" else '5"'))
            assert_array_equal(samples.rows[0], [k + 0.5 for k in range(len(labels)) if values[k] == value])


def test_columns_that_are_not_read_may_hold_anything(tmp_path: Path) -> None:
    samples = load_text(tmp_path, 'id,y,s\n"a,""b""",1,2\n,0,3\nx,0,inf\n', label="y", columns=("s",))
    assert_array_equal(samples.x, [2.0])
    assert_array_equal(samples.z, [3.0, np.inf])


def test_many_columns_are_listed_in_part(tmp_path: Path) -> None:
    row = ",".join(map(str, range(1, 51)))
    with pytest.raises(UserError, match=r"choose among 0, 1, .* 19, … \(50 in all\)"):
        load_text(tmp_path, f"{row}\n{row}\n", label="y")


def test_text_is_read_as_the_csv_module_reads_it(tmp_path: Path) -> None:
    values, labels = example()
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(np.column_stack([values, labels]).tolist())
    samples = read_samples(SERIAL, DataSource(str(path), label="3", columns=("0", "1", "2")), 3)
    assert_array_equal(samples.x, values[labels == 1])


def test_a_truncated_gzip(tmp_path: Path) -> None:
    values, labels = example()
    path = tmp_path / "t.csv.gz"
    write_text(path, values, labels)
    for data in (path.read_bytes()[:-300], b"1,2\n3,4\n"):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"^'t\.csv\.gz' can't be read as delimited text \(.*\): check the file"):
            read_samples(SERIAL, DataSource(str(path), label="3"), 1)


def test_a_locale_without_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("größe,y\n1,0\n2,1\n", encoding="utf-8")
    program = (
        "from mpi_ustat.storage.data import *; from mpi_ustat.mpi.runtime import SerialComm;"
        "print(ascii(read_samples(SerialComm(), DataSource('t.csv', label='y'), 1).columns))"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "HYDRA"))},
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "('gr\\xf6\\xdfe',)", done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i4", ">i8", "<u8", "<f2", ">f4", "g", "?"])
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_every_number_type_becomes_float64(tmp_path: Path, dtype: str, suffix: str) -> None:
    score = np.array([0, 1, 1, 0, 1]).astype(dtype)
    path = tmp_path / f"t{suffix}"
    (np.savez if suffix == ".npz" else write_hdf5)(path, score=score, y=np.array([1, 1, 0, 0, 0]))
    samples = read_samples(SERIAL, DataSource(str(path), label="y"), 2)
    assert_array_equal(samples.x, [0.0, 1.0])
    assert samples.columns == ("score",)


@pytest.mark.parametrize(
    "labels", [["cat", "dog", "dög"], [b"cat", b"dog", b"dog"], np.array(["cat", "dog", "dog"], "S")]
)
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_text_labels_in_arrays(tmp_path: Path, labels: Any, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    labels = [*labels[:2], labels[1]] if isinstance(labels[0], str) else labels
    (np.savez if suffix == ".npz" else write_hdf5)(path, score=np.arange(3.0), y=labels)
    samples = read_samples(SERIAL, DataSource(str(path), label="y", positive="cat"), 2)
    assert_array_equal(samples.x, [0.0])
    assert samples.description["positive"] == "cat"


def test_groups_and_several_matrices(tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    train, test = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2)
    write_hdf5(path, train__f=train, train__y=[1, 0, 0, 1], test__f=test, test__y=[1, 0, 0])
    samples = read_samples(SERIAL, DataSource(str(path), label="train/y", columns=("train/f[1]",)), 2)
    assert_array_equal(samples.x, [1.0, 7.0])
    samples = read_samples(SERIAL, DataSource(str(path), label="test/y", columns=("test/f",)), 2)
    assert_array_equal(samples.z, test[1:])
    samples = read_samples(SERIAL, DataSource(str(path), label="test/y", columns=("all",)), 2)  # as long as it
    assert samples.columns == ("test/f[0]", "test/f[1]")
    with pytest.raises(UserError, match=r"has no column '1': choose among test/y, train/y, test/f\[0\], test/f\[1\]"):
        read_samples(SERIAL, DataSource(str(path), label="test/y", columns=("1",)), 2)


def test_the_array_named_x_has_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, A=np.zeros((3, 4)), X=np.arange(6.0).reshape(3, 2), y=[0, 1, 1], scalar=3, cube=np.zeros((2, 2, 2)))
    samples = read_samples(SERIAL, DataSource(str(path), label="y", columns=("1", "A[2]")), 2)
    assert_array_equal(samples.x, [[3.0, 0.0], [5.0, 0.0]])
    assert samples.columns == ("1", "A[2]")


ARRAY_REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"s": [1.0, np.nan], "y": [0, 1]}, {}, "row 1 (counted from 0): column 's' is NaN: remove the row or fill in"),
    ({"s": [1.0, 2.0], "y": [0, np.nan]}, {}, "row 1 (counted from 0): the label 'y' is missing: remove the row"),
    ({"s": [1.0, 2.0], "y": ["a", ""]}, {}, "row 1 (counted from 0): the label 'y' is missing: remove the row"),
    ({"s": [1.0, 2.0], "y": [0, 1, 1]}, {"columns": ("s",)}, "columns 's' and 'y' of '{}' have 2 and 3 rows: choose"),
    ({"s": ["1", "2"], "y": [0, 1]}, {"columns": ("s",)}, "column 's' of '{}' holds text, not numbers: choose another"),
    ({"s": ["1", "2"], "y": [0, 1]}, {}, "'{}' has no data column of numbers: choose with columns= among s, y"),
    (
        {"s": [1j, 2], "y": [0, 1]},
        {"columns": ("s",)},
        "column 's' of '{}' holds values of type complex128, not numbers",
    ),
    ({"s": [1.0], "y": [1j]}, {}, "the label column 'y' of '{}' holds values of type complex128: convert it to"),
    (
        {"s": [1, 2**53 + 1], "y": [0, 1]},
        {},
        "row 1 (counted from 0): 9007199254740993 in column 's' has no exact float64",
    ),
    ({"s": np.array([1, 2**64 - 1], "u8"), "y": [0, 1]}, {}, "18446744073709551615 in column 's' has no exact float64"),
    ({"s": [1, -(2**63) + 1], "y": [0, 1]}, {}, "-9223372036854775807 in column 's' has no exact float64"),
    *[
        ({"s": np.array([1, 2]) + odd, "y": [0, 1]}, {}, "in column 's' has no exact float64")
        for odd in (np.longdouble(2) ** -60, np.longdouble(10) ** 400, -(np.longdouble(10) ** 400))
        if np.finfo(np.longdouble).nmant > 52
    ],
    ({"s": [1.0, 2.0], "y": [0, 1]}, {"columns": ("t",)}, "'{}' has no column 't': choose among s, y"),
    ({"s": [1.0, 2.0], "y": [0, 1]}, {"columns": ("0",)}, "'{}' has no column '0': choose among s, y"),
    (
        {"s": [1.0, 2.0], "t": [1.0, 2.0], "y": [0, 1]},
        {},
        "'{}' has several data columns: choose with columns= among s",
    ),
    ({"X": np.ones((2, 3)), "y": [0, 1]}, {}, "'{}' has several data columns: choose with columns= among y, 0, 1, 2"),
    ({"X": np.ones((2, 3))}, {"label": "X", "columns": ("0",)}, "'X' of '{}' has 3 columns: name one label column"),
    ({"s": np.empty(0), "y": np.empty(0)}, {}, "'{}' has no rows of data: give a file with data"),
    ({"k": 3.0}, {}, "'{}' has no column 'y': choose among (nothing)"),
]


@pytest.mark.parametrize(("content", "source", "message"), ARRAY_REFUSALS)
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_refused_arrays(
    tmp_path: Path, content: dict[str, Any], source: dict[str, Any], message: str, suffix: str
) -> None:
    path = tmp_path / f"t{suffix}"
    (np.savez if suffix == ".npz" else write_hdf5)(path, **content)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(path), **{"label": "y", **source}), 1)
    assert message.format(path.name) in str(caught.value)
    assert "can't be read" not in str(caught.value)


def test_text_that_doubles_can_hold(tmp_path: Path) -> None:
    """Infinities and zeros that are written as such, the ends of the range, and what programs write for doubles."""
    texts = ["inf", "-Infinity", "0e-400", "-0.0", "1e308", "5e-324", "4e-320", "1.2345678901234567e+25", "0.1", "1e23"]
    samples = load_text(tmp_path, "".join(f"{text},{k % 2}\n" for k, text in enumerate(texts)))
    assert_array_equal(np.concatenate([samples.x, samples.z]), [float(text) for text in texts[1::2] + texts[::2]])


def test_a_tiny_number_in_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLOCK", 16)
    for filler in range(16):
        with pytest.raises(UserError, match=r"line 3: 1e-400 in column '0' has no exact float64"):
            load_text(tmp_path, f"0.5,{'1' * (filler + 1)}\n0,0\n1e-400,0\n", positive="0")


@pytest.mark.parametrize("tiny", [f"0.{'0' * 330}1", f"-.{'0' * 240}1e-90"])
def test_a_number_that_is_tiny_without_an_exponent_is_refused(tmp_path: Path, tiny: str) -> None:
    with pytest.raises(UserError, match=r"line 3: .* in column '0' has no exact float64"):
        load_text(tmp_path, f"0.5,1\n0,0\n{tiny},0\n", positive="0")


def test_exact_large_integers_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, s=[2**60, -(2**63), 2**53 + 2], y=[0, 1, 1])
    samples = read_samples(SERIAL, DataSource(str(path), label="y"), 1)
    assert samples.x.tolist() == [-(2.0**63), 2.0**53 + 2]
    assert load_text(tmp_path, f"{2**60},1\n1e30,0\n").x == [2.0**60]


def test_python_objects_are_not_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, s=[1.0, 2.0], y=np.array(["a", "b"], dtype=object))
    with pytest.raises(UserError, match=r"the label column 'y' of 't\.npz' holds Python objects: convert it to text"):
        read_samples(SERIAL, DataSource(str(path), label="y"), 1)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.h5", b"no HDF5", "'t.h5' can't be read as HDF5 ("),
        ("t.h5", b"", "'t.h5' can't be read as HDF5 ("),
        (
            "t.npz",
            b"no archive",
            "'t.npz' can't be read as NPZ (File is not a zip file): check the file or write it again",
        ),
        ("t.npy", b"no array", "'t.npy' can't be read as NPY ("),
        ("t.mat", b"no matrices", "'t.mat' can't be read as MAT ("),
        ("t.xlsx", b"", "the format of '{}' is not known from its name: use a file that ends in one of .h5, .hdf5"),
    ],
)
def test_not_that_format(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(path), label="y"), 1)
    assert message.format(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_archive(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "t.npz"
    values, labels = example()
    save(path, X=values, y=labels)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("X.npy").header_offset
    data = bytearray(path.read_bytes())
    data[start + 60 : start + 260] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"^'t\.npz' can't be read as NPZ"):
        read_samples(SERIAL, DataSource(str(path), label="y", columns=("0",)), 1)


def test_an_absent_file_in_every_format(tmp_path: Path) -> None:
    for suffix in (".h5", ".mat", ".npz", ".npy", ".csv", ".txt.gz", ".svm", ".libsvm.gz", ".parquet", ".xlsx", ""):
        path = tmp_path / f"absent{suffix}"
        with pytest.raises(UserError, match=rf"^there is no file '{path}': check its name and folder$"):
            read_samples(SERIAL, DataSource(str(path), label="y"), 1)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(UserError, match="is a folder: name a file in it"):
        read_samples(SERIAL, DataSource(str(tmp_path / "t.csv"), label="y"), 1)


# ---------------------------------------------------------------------------------------------------------------------
# Sources and labels


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (DataSource(), "there is no input"),
        (DataSource(x_path="x.csv"), "only one of the two samples has a file"),
        (DataSource("t.csv", x_path="x.csv", z_path="z.csv"), "'t.csv' is given beside a file per sample"),
        (DataSource(x_path="x.csv", z_path="z.csv", label="y"), "a label is given beside a file per sample"),
    ],
)
def test_sources_that_contradict_themselves(source: DataSource, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_samples(SERIAL, source, 1)


def test_two_files_of_different_width(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    np.save(tmp_path / "z.npy", np.ones((4, 3)))
    source = DataSource(x_path=str(tmp_path / "x.npy"), z_path=str(tmp_path / "z.npy"), columns=("all",))
    with pytest.raises(UserError, match=r"'x\.npy' has 2 data columns and 'z\.npy' 3: choose the same ones"):
        read_samples(SERIAL, source, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1.0", 1),
        (" +1 ", 1),
        ("True", 1),
        ("false", 0),
        ("1e0", 1),
        ("0.5", 0.5),
        ("cat", "cat"),
        ("1_0", "1_0"),
        (str(2**53 + 1), 2**53 + 1),
        (f"{2**53 + 1}.0", f"{2**53 + 1}.0"),
        ("1e400", "1e400"),
        ("inf", np.inf),
    ],
)
def test_label_values(text: str, value: object) -> None:
    assert label_value(text) == value


@pytest.mark.parametrize(
    ("labels", "positive", "expected"),
    [
        ([0, 1], None, 1),
        ([-1, 1.0], None, 1),
        ([0, 1], "True", 1),
        ([0, 1], "0.0", 0),
        ([1, 2], "2", 2),
        (["cat", "dog"], "cat", "cat"),
        (["b", "g"], "g", "g"),
    ],
)
def test_positive_label(labels: list[Any], positive: str | None, expected: object) -> None:
    assert positive_label(labels, positive, "y", "t.csv") == expected


def test_a_column_of_many_values_is_no_label(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, s=np.arange(1000.0), y=np.arange(1000)[::-1])
    with pytest.raises(UserError, match=r"more than two values \('0', '1', '2', '3', '4', …\)"):
        read_samples(SERIAL, DataSource(str(path), label="y"), 3)


def test_a_compressed_member_is_not_held_whole(tmp_path: Path) -> None:
    """Reading a few rows of a large member takes memory for those rows."""
    import tracemalloc

    path = tmp_path / "t.npz"
    n = 1_000_000
    np.savez_compressed(path, s=np.zeros(n), y=np.arange(n) % 2)
    table = arrays.scan(str(path))
    by_name = {column.name: column for column in table.columns}
    tracemalloc.start()
    rows = table.read([by_name["s"]], by_name["y"], n - 1000, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(rows.values) == 1000
    assert peak < 4e6  # of 8e6 in the array


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (("0-2",), ("a", "b", "c")),
        (("a..c",), ("a", "b", "c")),
        (("1 - 2",), ("b", "c")),
        (("b .. b",), ("b",)),
        (("d", "0-1"), ("d", "a", "b")),
        (("1..d",), ("b", "c", "d")),
    ],
)
def test_ranges_of_columns(tmp_path: Path, wanted: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert load_text(tmp_path, RANGED, label="y", positive="1", columns=wanted).columns == names


RANGED = "a,b,c,d,y\n1,2,3,4,0\n5,6,7,8,1\n"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("0-9", "has no column '9': choose among a, b, c, d, y"),
        ("2-1", "'2-1' begins after its end in 't.csv': give the first column first"),
        ("c..a", "'c..a' begins after its end"),
        ("a..e", "has no column 'e'"),
        ("3-4", "column 'y' of 't.csv' is the label: leave it out of the data columns"),
        ("a-b", "has no column 'a-b'"),
        ("..b", "has no column '..b'"),
    ],
)
def test_refused_ranges_of_columns(tmp_path: Path, wanted: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        load_text(tmp_path, RANGED, label="y", positive="1", columns=(wanted,))
    assert message in str(refused.value)


def test_what_is_a_name_is_no_range(tmp_path: Path) -> None:
    text = "0-1,b,a..b,y\n1,2,3,0\n5,6,7,1\n"
    assert load_text(tmp_path, text, label="y", positive="1", columns=("0-1", "a..b")).columns == ("0-1", "a..b")


def test_ranges_of_numbered_columns(tmp_path: Path) -> None:
    path = tmp_path / "d.svm"
    path.write_text("1 1:1 2:2 3:3 4:4\n0 1:5 2:6 3:7 4:8\n")
    found = read_samples(SerialComm(), DataSource(path=str(path), positive="1", columns=("2-4",)), 1)
    assert found.columns == ("2", "3", "4")
    assert found.x.tolist() == [[2.0, 3.0, 4.0]]


def test_without_columns_all_but_the_label_where_the_kernel_takes_them(tmp_path: Path) -> None:
    assert load_text(tmp_path, RANGED, label="y", positive="1", otherwise_all=True).columns == ("a", "b", "c", "d")
    about = (("weights", "c"),)
    assert load_text(tmp_path, RANGED, label="y", positive="1", otherwise_all=True, said=about).columns == (
        "a",
        "b",
        "d",
    )
