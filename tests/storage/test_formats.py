"""Every format of input gives the same samples, as one file or several, at every number of ranks."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from conftest import REPOSITORY
from numpy.testing import assert_array_equal

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage import arrays, libsvm
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.several import as_given, matching

N_ROWS = 211
SERIAL = SerialComm()
needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="the package pyarrow is not installed")


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return 3 columns, ±inf and zeros among them, and labels −1 and 1."""
    generator = np.random.Generator(np.random.Philox(13))
    values = generator.normal(size=(N_ROWS, 3)) * [1.0, 1e-200, 1e200]
    values[5, 1], values[6, 2] = np.inf, -np.inf
    values[generator.random((N_ROWS, 3)) < 0.3] = 0.0
    return values, np.where(generator.random(N_ROWS) < 0.2, 1, -1)


# ---------------------------------------------------------------------------------------------------------------------
# Writers


def libsvm_text(values: np.ndarray, labels: np.ndarray, sign: str = "+") -> str:
    """Write zeros by leaving them out, and what a reader has to pass over."""
    lines = ["# a comment"]
    for k, (row, label) in enumerate(zip(values.tolist(), labels.tolist(), strict=True)):
        pairs = [f"{j}:{value!r}" for j, value in enumerate(row, 1) if value]
        qid = [f"qid:{k // 7}"] if k % 3 else []
        lines.append(" ".join([f"{sign if label > 0 else ''}{label}", *qid, *pairs]) + " # a" * (k % 5 == 0))
        lines += ["", "  # b 1:1"] * (k % 50 == 0)
    return "\n".join(lines) + "\n"


def write_text(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def write_csv(path: Path, values: np.ndarray, labels: np.ndarray) -> None:
    rows = [",".join([*map(repr, row), str(y)]) for row, y in zip(values.tolist(), labels.tolist(), strict=True)]
    write_text(path, "\n".join(["a,b,c,label", *rows]) + "\n")


def write_mat73(path: Path, **matrices: np.ndarray) -> None:
    """Write what MATLAB's ``save -v7.3`` does: HDF5 behind 512 bytes of its own, matrices transposed."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, matrix in matrices.items():
            dataset = file.create_dataset(name, data=np.atleast_2d(matrix).T if matrix.ndim == 2 else matrix[None])
            kinds = {"f8": "double", "f4": "single", "b1": "logical"}
            kind = kinds.get(matrix.dtype.str[1:], matrix.dtype.name)
            dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64 HDF5 schema 1.00 .".ljust(124) + b"\0\2IM")


def write_hdf5(path: Path, **datasets: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file[name] = data


def write_parquet(path: Path, **columns: Any) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, path, row_group_size=50)


def named(values: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    return {**dict(zip("abc", values.T, strict=True)), "label": labels}


WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray], None]] = {
    "v5.mat": lambda path, v, y: scipy.io.savemat(path, {"X": v, "label": y[:, None]}),
    "v5_row.mat": lambda path, v, y: scipy.io.savemat(path, {"X": v, "label": y[None, :]}, do_compression=True),
    "sparse.mat": lambda path, v, y: scipy.io.savemat(path, {"X": scipy.sparse.csc_matrix(v), "label": y}),
    "v73.mat": lambda path, v, y: write_mat73(path, X=v, label=y),
    "v73_row.mat": lambda path, v, y: write_mat73(path, X=v.astype(">f8"), label=y.astype(np.int8)[None, :]),
    "t.libsvm": lambda path, v, y: write_text(path, libsvm_text(v, y)),
    "t.svm.gz": lambda path, v, y: write_text(path, "\ufeff" + libsvm_text(v, y, "").replace("\n", "\r\n")),
    "t.svmlight": lambda path, v, y: write_text(path, libsvm_text(v, y).rstrip("\n")),
    "t.csv": write_csv,
    "t.dat.gz": write_csv,
    "t.npz": lambda path, v, y: np.savez(path, X=v, label=y),
    "t.h5": lambda path, v, y: write_hdf5(path, X=np.asfortranarray(v), label=y),
    "t.parquet": lambda path, v, y: write_parquet(path, **named(v, y)),
}
FORMATS = [pytest.param(name, marks=needs_pyarrow if name.endswith("parquet") else ()) for name in WRITERS]


def column(name: str, j: int) -> str:
    """Return what column j of the example is chosen by."""
    return str(j + 1) if "svm" in name else str(j)


def write(comm: Any, folder: Path, name: str, *parts: tuple[np.ndarray, np.ndarray]) -> Path:
    """Write one file, or files with numbers before their names; return the file or the pattern."""
    if comm.rank == 0:
        for k, part in enumerate(parts):
            WRITERS[name](folder / (name if len(parts) == 1 else f"{k}-{name}"), *part)
    comm.barrier()
    return folder / (name if len(parts) == 1 else f"*-{name}")


def gathered(comm: Any, source: DataSource, n_workers: int) -> tuple[Samples, list[np.ndarray], list[np.ndarray]]:
    """Return this rank's samples, and all ranks' rows and worker sizes of each sample."""
    own = read_samples(comm, source, n_workers)
    for rows, sizes in zip(own.rows, own.sizes, strict=True):
        assert rows.dtype == np.float64 and rows.flags.c_contiguous
        assert len(sizes) == len(hosted_workers(n_workers, comm.size, comm.rank)) and sizes.sum() == len(rows)
    everyone = comm.allgather((own.rows, own.sizes, own.columns, own.description))
    assert {json.dumps(each[2:]) for each in everyone} == {json.dumps([own.columns, own.description])}
    rows, sizes = (
        [np.concatenate(parts) for parts in zip(*(each[k] for each in everyone), strict=True)] for k in (0, 1)
    )
    return own, rows, sizes


def assert_is_the_example(
    comm: Any, source: DataSource, values: np.ndarray, labels: np.ndarray, n_workers: int
) -> Samples:
    own, (x, z), (x_sizes, z_sizes) = gathered(comm, source, n_workers)
    assert_array_equal(x, values[labels == 1])
    assert_array_equal(z, values[labels == -1])
    bounds = block_bounds(len(labels), n_workers)
    assert_array_equal(x_sizes, [np.count_nonzero(labels[a:b] == 1) for a, b in pairwise(bounds)])
    assert_array_equal(x_sizes + z_sizes, np.diff(bounds))
    assert own.description["n_rows"] == len(labels)
    return own


# ---------------------------------------------------------------------------------------------------------------------
# One file and several


@pytest.mark.parametrize("n_workers", [1, 6, 300])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_rows_of_the_file(comm: Any, shared_tmp_path: Path, name: str, n_workers: int) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, name, (values, labels))
    source = DataSource(str(path), label="label", columns=(column(name, 2), column(name, 0)))
    own = assert_is_the_example(comm, source, values[:, [2, 0]], labels, n_workers)
    assert own.description["files"] == [name]


@pytest.mark.parametrize("cuts", [[100], [3, 3, 3, 150, 208, 209, 210, 210, 211, 211, 211]])
@pytest.mark.parametrize("name", [param for param in FORMATS if "row" not in param.values[0]])
def test_several_files_are_one_data_set(comm: Any, shared_tmp_path: Path, name: str, cuts: list[int]) -> None:
    """Also files without rows where the format has them, and with fewer rows than ranks."""
    values, labels = example()
    if "svm" in name or name.endswith(".mat"):
        cuts = [3, 5, 80, 82, 90, 120, 150, 170, 172, 200]  # no file may be empty, nor a matrix look like a vector
    parts = list(zip(np.split(values, cuts), np.split(labels, cuts), strict=True))
    path = write(comm, shared_tmp_path, name, *parts)
    for n_workers in (1, 5, 300):
        source = DataSource(str(path), label="label", columns=tuple(column(name, j) for j in range(3)))
        own = assert_is_the_example(comm, source, values, labels, n_workers)
        assert own.description["files"] == [f"{k}-{name}" for k in range(len(parts))]  # 2 before 10
    # A worker's bounds fall anywhere: one sample, two columns, files in an order of one's own.
    chosen = tuple(str(shared_tmp_path / f"{k}-{name}") for k in (1, 0))
    source = DataSource(chosen, one_sample=True, columns=(column(name, 2), column(name, 1)))
    _, (rows,), _ = gathered(comm, source, 7)
    assert_array_equal(rows, np.concatenate([parts[1][0], parts[0][0]])[:, [2, 1]])


def test_a_pattern_for_each_sample(comm: Any, shared_tmp_path: Path) -> None:
    """An array in NPY goes by the name of its file, which differs."""
    x, z = np.arange(13.0), -np.arange(5.0)
    if comm.rank == 0:
        for name, sample in (("x", x), ("z", z)):
            for k, part in enumerate(np.array_split(sample, 3)):
                np.save(shared_tmp_path / f"{name}{k}.npy", part)
    comm.barrier()
    source = DataSource(x_path=str(shared_tmp_path / "x?.npy"), z_path=str(shared_tmp_path / "z[0-9].npy"))
    own, rows, sizes = gathered(comm, source, 4)
    assert_array_equal(rows[0], x)
    assert_array_equal(rows[1], z)
    assert [each.tolist() for each in sizes] == [[4, 3, 3, 3], [2, 1, 1, 1]]
    assert own.description["files"] == [f"{name}{k}.npy" for name in "xz" for k in range(3)]


AB = {"a": [0.0, 1.0, 2.0], "b": [5.0, 7.0, 9.0]}


def write_columns(path: Path, names: str) -> None:
    """Write columns with these names, of which blanks stand for none."""
    columns = [AB["b" if name == "b" else "a"] for name in names]
    if path.suffix in (".csv", ".gz"):
        rows = [",".join(map(repr, row)) for row in zip(*columns, strict=True)]
        write_text(path, "\n".join([",".join(names)] * (" " not in names) + rows))
    elif path.suffix == ".parquet":
        write_parquet(path, **dict(zip(names, columns, strict=True)))
    elif path.suffix == ".npy":
        np.save(path, np.column_stack(columns))
    else:
        np.savez(path, **dict(zip(names, map(np.array, columns), strict=True)))


@pytest.mark.parametrize("columns", [("all",), ("a", "b"), ("0", "1")])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", pytest.param("t.parquet", marks=needs_pyarrow)])
def test_columns_of_two_files_are_paired_by_name(
    comm: Any, shared_tmp_path: Path, name: str, columns: tuple[str, ...]
) -> None:
    """Also if one of the files are several, and whichever way the columns are chosen."""
    if comm.rank == 0:
        write_columns(shared_tmp_path / f"x{name}", "ab")
        for k in range(2):
            write_columns(shared_tmp_path / f"z{k}{name}", "ba")
    comm.barrier()
    source = DataSource(
        x_path=str(shared_tmp_path / f"x{name}"), z_path=str(shared_tmp_path / f"z?{name}"), columns=columns
    )
    own, (x, z), _ = gathered(comm, source, 3)
    assert own.columns == ("a", "b")
    assert_array_equal(x, np.column_stack([AB["a"], AB["b"]]))
    assert_array_equal(z, np.concatenate([x, x]))


@pytest.mark.parametrize(
    ("x", "z", "columns", "expected"),
    [
        (("x.csv", "a"), ("z.csv", "a"), (), True),
        (("x.csv", "a"), ("z.csv", "b"), (), True),  # a name of its own for each file's only column
        (("x.csv", "ab"), ("z.csv", "ba"), ("0",), False),  # a is not b, which both files have
        (("x.csv", "ab"), ("z.csv", "c"), ("0",), True),
        (("x.csv", "ab"), ("z.csv", "b"), ("0",), False),
        (("x.csv", "ab"), ("z.csv", "ac"), ("all",), False),
        (("x.csv", "ab"), ("z.csv", "  "), ("all",), False),  # names in one file only
        (("x.csv", "  "), ("z.csv", "  "), ("all",), True),
        (("x.csv", "  "), ("1.npy", "  "), ("all",), True),
        (("x.npy", "  "), ("0.npy", "  "), ("all",), True),
        (("x.npz", "ab"), ("z.csv", "ba"), ("all",), True),
        (("x.csv", "aab"), ("z.csv", "aab"), ("all",), True),
        (("x.csv", "aab"), ("z.csv", "baa"), ("all",), False),  # which a is which
    ],
)
def test_names_of_two_files(
    tmp_path: Path, x: tuple[str, str], z: tuple[str, str], columns: tuple[str, ...], expected: bool
) -> None:
    for name, names in (x, z):
        write_columns(tmp_path / name, names)
    source = DataSource(x_path=str(tmp_path / x[0]), z_path=str(tmp_path / z[0]), columns=columns)
    if expected:
        samples = read_samples(SERIAL, source, 1)
        if sorted(x[1]) == sorted(z[1]):
            assert_array_equal(samples.x, samples.z)
    else:
        with pytest.raises(UserError, match="the data columns of 'x.csv' are .*, those of 'z.csv' .*: give both files"):
            read_samples(SERIAL, source, 1)


def test_files_with_numbers_for_names(tmp_path: Path) -> None:
    """A column's number is no part of its file's name."""
    for k in range(2):
        np.save(tmp_path / f"{k}.npy", np.column_stack([AB["a"], AB["b"]]))
    source = DataSource(str(tmp_path / "[01].npy"), one_sample=True, columns=("all",))
    assert read_samples(SERIAL, source, 1).rows[0].shape == (6, 2)


def test_formats_can_be_mixed(tmp_path: Path) -> None:
    values, labels = example()
    write_csv(tmp_path / "a.csv", values[:50], labels[:50])
    write_csv(tmp_path / "b.tsv.gz", values[50:], labels[50:])
    np.savez(tmp_path / "c.npz", a=values[:9, 0], b=values[:9, 1], c=values[:9, 2], label=labels[:9])
    source = DataSource(str(tmp_path / "*.*"), label="label", columns=("a", "2"))
    everything = np.concatenate([values, values[:9]])[:, [0, 2]], np.concatenate([labels, labels[:9]])
    assert_is_the_example(SERIAL, source, *everything, 3)


def test_the_order_of_a_pattern(tmp_path: Path) -> None:
    names = ["part-10.csv", "part-2.csv", "part-02.csv", "part-1b.csv", "part-.csv", "party.csv", "part-1.csv"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "part-3.csv").mkdir()
    found = [os.path.basename(each) for each in matching(str(tmp_path / "part*.csv"))]
    assert found == [
        "part-1.csv",
        "part-1b.csv",
        "part-02.csv",
        "part-2.csv",
        "part-10.csv",
        "part-.csv",
        "party.csv",
    ]
    assert matching((str(tmp_path / "part-1.csv"), str(tmp_path / "part-*b.csv"))) == (
        str(tmp_path / "part-1.csv"),
        str(tmp_path / "part-1b.csv"),
    )
    (tmp_path / "part[1].csv").touch()
    assert matching(str(tmp_path / "part[1].csv")) == (str(tmp_path / "part[1].csv"),)


def test_files_in_the_order_of_a_shell_are_in_that_of_the_pattern() -> None:
    numbered = ("p-1.csv", "p-2.csv", "p-10.csv")
    assert as_given(["p-1.csv"]) == "p-1.csv"
    assert as_given(["p-1.csv", "p-10.csv", "p-2.csv"]) == numbered  # where LC_ALL is C
    assert as_given(["p-10.csv", "p-1.csv", "p-2.csv"]) == numbered  # where it is en_US: its letters and digits first
    for by_hand in (["p-2.csv", "p-1.csv", "p-10.csv"], ["b.csv", "a.csv"], list(numbered)):
        assert as_given(by_hand) == tuple(by_hand)


@pytest.mark.parametrize(
    ("files", "source", "message"),
    [
        ({}, {}, "there is no file that matches '{}/*.csv': check its name and folder"),
        ({}, {"path": ()}, "there is no input: give a file"),
        (
            {"1.csv": "s,y\n1,0\n", "2.csv": "t,y\n2,1\n"},
            {},
            "'2.csv' has other columns (t, y) than '1.csv' (s, y): give files with the same columns, in the same order",
        ),
        ({"1.csv": "s,y\n1,0\n", "2.csv": "2,1\n"}, {}, "'2.csv' has other columns (0, 1) than '1.csv' (s, y): give"),
        ({"1.csv": "s,y\n1,0\n", "2.csv": "s,y,u\n2,1,3\n"}, {}, "'2.csv' has other columns (s, y, u) than '1.csv'"),
        ({"1.csv": "s,y\n1,0\n", "2.csv": ""}, {}, "'2.csv' is empty: give a file with data"),
        ({"1.csv": "s,y\n", "2.csv": "s,y\n"}, {}, "'*.csv' has no rows of data: give a file with data"),
        ({"1.csv": "s,y\n1,0\n", "2.csv": "s,y\n2,1\nx,1\n"}, {}, "'2.csv', line 3: column 's' has 'x', which is not"),
        ({"1.csv": "s,y\n1,0\n", "2.csv": "s,y\n2,2\n"}, {}, "the label 'y' of '*.csv' has the values '0', '2': say"),
        (
            {"1.csv": "s,y\n1,0\n", "2.csv": "s,y\n2,2\n"},
            {"columns": ("t",)},
            "'*.csv' has no column 't': choose among",
        ),
    ],
)
def test_refused_files(
    comm: Any, shared_tmp_path: Path, files: dict[str, str], source: dict[str, Any], message: str
) -> None:
    if comm.rank == 0:
        for name, text in files.items():
            (shared_tmp_path / name).write_text(text)
    comm.barrier()
    with pytest.raises(UserError) as caught:
        read_samples(comm, DataSource(**{"path": str(shared_tmp_path / "*.csv"), "label": "y", **source}), 2)
    assert message.format(shared_tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_of_one_file_have_one_length(comm: Any, shared_tmp_path: Path) -> None:
    """Even if the sums over all files agree: the rows would belong to other labels."""
    if comm.rank == 0:
        np.savez(shared_tmp_path / "0.npz", s=np.ones(5), y=np.ones(4))
        np.savez(shared_tmp_path / "1.npz", s=np.ones(4), y=np.zeros(5))
    comm.barrier()
    with pytest.raises(UserError, match=r"columns 'y' and 's' of '0\.npz' have 4 and 5 rows: give files whose columns"):
        read_samples(comm, DataSource(str(shared_tmp_path / "*.npz"), label="y"), 3)


# ---------------------------------------------------------------------------------------------------------------------
# LIBSVM


def load_libsvm(folder: Path, text: str | bytes, **source: Any) -> Samples:
    path = folder / "t.svm"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_samples(SERIAL, DataSource(str(path), **{"columns": ("all",), **source}), 1)


def test_libsvm_label_and_columns(tmp_path: Path) -> None:
    text = "-1 3:1 11:-2.5e1\n+1 qid:4 2:7 # 5:5\n\n-1\n1 1:4 2:5\t3:6 \n"
    samples = load_libsvm(tmp_path, text)
    assert samples.columns == tuple(str(j) for j in range(1, 12))
    expected = np.zeros((4, 11))
    expected[0, [2, 10]], expected[1, 1], expected[3, :3] = [1, -25], 7, [4, 5, 6]
    assert_array_equal(samples.x, expected[[1, 3]])
    assert_array_equal(samples.z, expected[[0, 2]])
    assert samples.description["label"] == "label"
    samples = load_libsvm(tmp_path, text, columns=("2", "label", "11"), one_sample=True)
    assert_array_equal(samples.rows[0], [[0, -1, -25], [7, 1, 0], [0, -1, 0], [5, 1, 0]])
    samples = load_libsvm(tmp_path, text, one_sample=True)
    assert_array_equal(samples.rows[0], expected)
    samples = load_libsvm(tmp_path, text, label="2", classes=("0", "5", "7"), columns=("label",))
    assert [rows.tolist() for rows in samples.rows] == [[-1, -1], [1], [1]]


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        ("", {}, "'t.svm' is empty: give a file with data"),
        ("\n # 1 1:1\n", {}, "'t.svm' is empty: give a file with data"),
        ("1 1:1\n-1 2:x\n", {}, "'t.svm', line 2: column '2' has 'x', which is not a number: correct it or choose"),
        ("1 1:1\n-1 2:nan\n", {}, "'t.svm', line 2: column '2' is NaN: remove the row or fill in the value"),
        ("1 1:1\n\n-1 2:1_0\n", {}, "'t.svm', line 3: column '2' has '1_0', which is not a number"),
        ("1 1:1\n2:1 3:1\n", {}, "'t.svm', line 2 begins with '2:1', which is no label: write the label, a number"),
        ("1 1:1\nspam 3:1\n", {}, "'t.svm', line 2 begins with 'spam', which is no label"),
        ("1 1:1\nnan 3:1\n", {}, "'t.svm', line 2: column 'label' is NaN: remove the row or fill in the value"),
        ("1 1:1\n-1 3:1 2:1\n", {}, "'t.svm', line 2 has feature 2 out of order: they ascend within a line, correct"),
        ("1 1:1\n-1 3:1 3:1\n", {}, "'t.svm', line 2 has feature 3 out of order: they ascend within a line, correct"),
        ("1 0:1 1:2\n", {}, "'t.svm', line 1 has feature 0 out of order: they are numbered from 1, correct the file"),
        ("1 1:1\n-1 -2:1 3:1\n", {}, "'t.svm', line 2 has '-2:1', which is no feature:value: correct the line"),
        ("1 1:1\n-1 2\n", {}, "'t.svm', line 2 has '2', which is no feature:value: correct the line"),
        ("1 1:1\n-1 1:1 qid:3\n", {}, "'t.svm', line 2 has 'qid:3', which is no feature:value: correct the line"),
        ("1 1:1\n-1 99999999:1\n", {}, "'t.svm', line 2 has feature 99999999, of at most 4194304: correct the line"),
        ("1 1:9007199254740993\n", {}, "'t.svm', line 1: 9007199254740993 in column '1' has no exact float64"),
        ("1 1:" + "9" * 500 + "\n", {}, "in column '1' has no exact float64"),
        ("1 1:1e400\n", {}, "'t.svm', line 1: 1e400 in column '1' has no exact float64"),
        ("1 1:0e0\n2 1:-1E-400\n", {}, "'t.svm', line 2: -1E-400 in column '1' has no exact float64"),
        ("1 1:1\n-1 2:1\n", {"columns": ("3",)}, "'t.svm' has no column '3': choose among label, 1, 2"),
        ("1 1:1\n-1 2:1\n", {"columns": ("0",)}, "'t.svm' has no column '0': choose among label, 1, 2"),
        ("1 1:1\n-1 2:1\n", {"columns": ()}, "'t.svm' has several data columns: choose with columns= among label, 1"),
        ("1\n-1\n", {}, "'t.svm' has no data column of numbers: it offers label"),
        ("2 1:1\n1 2:1\n", {}, "the label 'label' of 't.svm' has the values '1', '2': say with positive= which one"),
    ],
)
def test_refused_libsvm(tmp_path: Path, text: str, source: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_libsvm(tmp_path, text, **source)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "can't be read" not in str(caught.value)


def test_libsvm_columns_that_are_not_read_may_hold_anything(tmp_path: Path) -> None:
    samples = load_libsvm(tmp_path, "1 1:x 2:3\n-1 1: 2:4\n", columns=("2",))
    assert_array_equal(samples.x, [3.0])


def test_long_libsvm_is_read_from_the_middle(comm: Any, shared_tmp_path: Path) -> None:
    path = shared_tmp_path / "t.libsvm.gz"
    n = 3 * libsvm._STRIDE + 5
    score, labels = np.arange(1, n + 1) / 64, np.where(np.arange(n) % 3 == 0, 1, -1)
    if comm.rank == 0:
        write_text(path, libsvm_text(score[:, None], labels))
    comm.barrier()
    for n_workers in (4, 7):
        assert_is_the_example(comm, DataSource(str(path)), score, labels, n_workers)


def test_files_of_libsvm_need_not_have_the_last_features(comm: Any, shared_tmp_path: Path) -> None:
    if comm.rank == 0:
        for k, text in enumerate(["1 2:5\n-1\n", "-1 4:7\n", "1\n"]):
            (shared_tmp_path / f"{k}.svm").write_text(text)
    comm.barrier()
    own, (x, z), _ = gathered(comm, DataSource(str(shared_tmp_path / "*.svm"), columns=("all",)), 2)
    assert own.columns == ("1", "2", "3", "4")
    assert_array_equal(x, [[0, 5, 0, 0], [0, 0, 0, 0]])
    assert_array_equal(z, [[0, 0, 0, 0], [0, 0, 0, 7]])


def test_a_file_with_millions_of_features_costs_what_is_read(tmp_path: Path) -> None:
    samples = load_libsvm(tmp_path, "1 7:1\n-1 4000000:2\n", columns=("4000000", "7"))
    assert_array_equal(samples.x, [[0.0, 1.0]])
    assert_array_equal(samples.z, [[2.0, 0.0]])


# ---------------------------------------------------------------------------------------------------------------------
# MATLAB and Parquet


@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u2", "i4", "u8", "b1"])
@pytest.mark.parametrize("version", [5, 7.3])
def test_every_type_of_matlab(tmp_path: Path, version: float, kind: str) -> None:
    path = tmp_path / "t.mat"
    score, labels = np.array([0, 1, 1, 0, 1]).astype(kind), np.array([1.0, 1, 0, 0, 0])
    if version == 5:
        scipy.io.savemat(path, {"score": score, "y": labels, "scalar": 3.0, "cube": np.zeros((2, 2, 2)), "E": []})
    else:
        write_mat73(path, score=score, y=labels, scalar=np.ones((1, 1)))
    samples = read_samples(SERIAL, DataSource(str(path), label="y"), 2)
    assert_array_equal(samples.x, [0.0, 1.0])
    assert samples.columns == ("score",)


def test_texts_of_matlab(tmp_path: Path) -> None:
    path = tmp_path / "t.mat"
    cells = np.array(["spam", "ham", "ham"], dtype=object)[:, None]
    scipy.io.savemat(path, {"s": np.arange(3.0), "cells": cells, "rows": np.array(["spam", "ham", "ham"])})
    for label in ("cells", "rows"):
        samples = read_samples(SERIAL, DataSource(str(path), label=label, positive="spam", columns=("s",)), 2)
        assert_array_equal(samples.x, [0.0])


def test_matlab_on_a_machine_of_the_other_byte_order(tmp_path: Path) -> None:
    """Written here, element by element, as the format has it: a name of one letter shares the four bytes of its tag."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack(">II", kind, len(data)) + data + bytes(-len(data) % 8)

    def matrix(name: bytes, stored: int, values: np.ndarray) -> bytes:
        flags, dims = struct.pack(">II", 6, 0), struct.pack(">ii", len(values), 1)
        short_name = struct.pack(">HH", 1, 1) + name.ljust(4, b"\0")
        return element(14, element(6, flags) + element(5, dims) + short_name + element(stored, values.tobytes()))

    score, labels = np.array([0.5, 2.0, -1.25]), np.array([1, 0, 0])
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI"
    content = matrix(b"s", 9, score.astype(">f8")) + element(15, zlib.compress(matrix(b"y", 3, labels.astype(">i2"))))
    (tmp_path / "t.mat").write_bytes(head + content)
    assert_array_equal(scipy.io.loadmat(tmp_path / "t.mat")["s"][:, 0], score)
    samples = read_samples(SERIAL, DataSource(str(tmp_path / "t.mat"), label="y"), 2)
    assert samples.x.tolist() == [0.5]
    assert samples.z.tolist() == [2.0, -1.25]


def test_points_in_columns_are_no_points(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.zeros((2, arrays.MOST_COLUMNS + 1), dtype="i1"), y=[0, 1])
    with pytest.raises(
        UserError, match=r"column 'X' of 't\.npz' holds 1048577 columns, of at most 1048576, not numbers"
    ):
        read_samples(SERIAL, DataSource(str(tmp_path / "t.npz"), label="y", columns=("X",)), 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"s": [1.0, np.nan], "y": [0, 1]}, "'t.mat', row 1 (counted from 0): column 's' is NaN: remove the row"),
        ({"s": [1, 2**53 + 1], "y": [0, 1]}, "row 1 (counted from 0): 9007199254740993 in column 's' has no exact"),
        ({"s": {"a": 1.0}, "y": [0, 1]}, "column 's' of 't.mat' holds a MATLAB structure or object, not numbers"),
        ({"s": np.array([1, "a"], object), "y": [0, 1]}, "column 's' of 't.mat' holds a MATLAB cell array of other"),
        ({"s": [1j, 2], "y": [0, 1]}, "column 's' of 't.mat' holds complex numbers, not numbers: choose another"),
        ({"s": [1.0, 2, 3], "y": [0, 1]}, "columns 's' and 'y' of 't.mat' have 3 and 2 rows: choose columns of one"),
        ({"y": [0, 1]}, "'t.mat' has no column 's': choose among y"),
    ],
)
def test_refused_matlab(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    scipy.io.savemat(tmp_path / "t.mat", content)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(tmp_path / "t.mat"), label="y", columns=("s",)), 1)
    assert message in str(caught.value)


def test_what_matlab_73_has_beside_matrices(tmp_path: Path) -> None:
    path = tmp_path / "t.mat"
    write_mat73(path, s=np.arange(3.0), y=np.array([0.0, 1, 1]))
    with h5py.File(path, "a") as file:
        file.create_dataset("word", data=np.array([[97], [98]], np.uint16)).attrs["MATLAB_class"] = np.bytes_("char")
        file.create_dataset("none", data=np.array([0, 0], np.uint64)).attrs["MATLAB_empty"] = 1
        file.create_dataset("#refs#/a", data=np.ones((1, 3)))
        file.create_dataset("sparse/data", data=np.ones(3))
    assert_array_equal(read_samples(SERIAL, DataSource(str(path), label="y", columns=("s",)), 1).x, [1.0, 2.0])
    for name, message in (
        ("word", "column 'word' of 't.mat' holds MATLAB values of class char, not numbers"),
        ("sparse", "column 'sparse' of 't.mat' holds a MATLAB structure or sparse matrix, not numbers"),
        ("none", "'t.mat' has no column 'none': choose among s, sparse, word, y"),
    ):
        with pytest.raises(UserError) as caught:
            read_samples(SERIAL, DataSource(str(path), label="y", columns=(name,)), 1)
        assert message in str(caught.value)


def test_parquet_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(tmp_path / "t.parquet"), label="y"), 1)
    assert str(caught.value) == "Parquet is read by the package pyarrow: pip install 'mpi_ustat[parquet]'"


@needs_pyarrow
def test_types_of_parquet(tmp_path: Path) -> None:
    import pyarrow

    path = tmp_path / "t.parquet"
    score = np.arange(120)
    words = pyarrow.array(np.array(["spam", "ham"])[score % 2].tolist())
    for kind in (pyarrow.int8(), pyarrow.uint64(), pyarrow.float32(), pyarrow.float64()):
        for texts in (words, words.cast(pyarrow.large_string()), words.dictionary_encode()):
            write_parquet(path, **{"a.b": pyarrow.array(score, kind), "y": texts})
            samples = read_samples(SERIAL, DataSource(str(path), label="y", positive="ham", columns=("0",)), 3)
            assert_array_equal(samples.x, score[1::2])
            assert samples.columns == ("a.b",)
    write_parquet(path, s=score, y=score % 2 == 0)
    assert_array_equal(read_samples(SERIAL, DataSource(str(path), label="y"), 3).x, score[::2])


@needs_pyarrow
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"s": [1.0, None] * 40, "y": [0, 1] * 40},
            "row 1 (counted from 0): column 's' is NaN: remove the row or fill",
        ),
        ({"s": [1, None] * 40, "y": [0, 1] * 40}, "row 1 (counted from 0): column 's' is NaN: remove the row or fill"),
        ({"s": [1, 2] * 40, "y": [0, None] * 40}, "row 1 (counted from 0): the label 'y' is missing: remove the row"),
        ({"s": [1, 2] * 40, "y": ["a", None] * 40}, "row 1 (counted from 0): the label 'y' is missing: remove the row"),
        (
            {"s": [1, 2] * 40, "y": [True, None] * 40},
            "row 1 (counted from 0): the label 'y' is missing: remove the row",
        ),
        ({"s": [2**53 + 1, 2] * 40, "y": [0, 1] * 40}, "row 0 (counted from 0): 9007199254740993 in column 's' has no"),
        ({"s": ["a", "b"] * 40, "y": [0, 1] * 40}, "column 's' of 't.parquet' holds text, not numbers: choose another"),
        ({"s": [[1], [2]] * 40, "y": [0, 1] * 40}, "column 's' of 't.parquet' holds values of type list<"),
    ],
)
def test_refused_parquet(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    write_parquet(tmp_path / "t.parquet", **columns)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(tmp_path / "t.parquet"), label="y", columns=("s",)), 1)
    assert message in str(caught.value)


@needs_pyarrow
@pytest.mark.parametrize(
    ("index", "metadata", "left_out"),
    [
        ("__index_level_0__", None, True),
        ("key", '{"index_columns": ["key"]}', True),
        ("key", '{"index_columns": [{"kind": "range", "name": null, "start": 0, "stop": 4, "step": 1}]}', False),
        ("key", '{"index_columns": 5', False),
        ("key", '["index_columns"]', False),
        ("key", None, False),
    ],
)
@pytest.mark.parametrize("k", [1, 2])
def test_the_index_of_a_data_frame_is_left_out(
    tmp_path: Path, index: str, metadata: str | None, left_out: bool, k: int
) -> None:
    """Also of several files; it can be asked for by name."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"s": [3.5, 1.5, 0.5, 2.5], "y": [0, 0, 1, 1], index: [0, 1, 2, 3]})
    table = table.replace_schema_metadata(None if metadata is None else {"pandas": metadata})
    for j in range(k):
        pyarrow.parquet.write_table(table, tmp_path / f"{j}.parquet")
    source = DataSource(str(tmp_path / "*.parquet"), label="y", columns=("all",))
    samples = read_samples(SERIAL, source, 1)
    assert samples.columns == (("s",) if left_out else ("s", index))
    assert samples.description.get("left_out") == ([index] if left_out else None)
    asked = read_samples(SERIAL, DataSource(source.path, label="y", columns=("s", index)), 1)
    assert asked.x.tolist() == [[0.5, 2.0], [2.5, 3.0]] * k
    assert "left_out" not in asked.description


@pytest.mark.parametrize("file", ["t.npz", "t.h5"])
def test_an_array_called_as_an_index_is_left_out(tmp_path: Path, file: str) -> None:
    arrays = {"s": [3.5, 1.5, 0.5, 2.5], "y": [0, 0, 1, 1], "__index_level_0__": [0, 1, 2, 3]}
    if file == "t.npz":
        np.savez(tmp_path / file, **{name: np.array(values) for name, values in arrays.items()})
    else:
        with h5py.File(tmp_path / file, "w") as stored:
            stored.update({f"frame/{name}": values for name, values in arrays.items()})
    folder = "" if file == "t.npz" else "frame/"
    samples = read_samples(SERIAL, DataSource(str(tmp_path / file), label=f"{folder}y", columns=("all",)), 1)
    assert samples.columns == (f"{folder}s",)
    assert samples.description["left_out"] == [f"{folder}__index_level_0__"]


@pytest.mark.parametrize("command", ["estimate", "learn", "plan"])
def test_commands_tell_what_they_leave_out(
    tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]], command: str
) -> None:
    rows = [f"{k},{k % 7 / 4},{int(k % 3 == 0)}" for k in range(80)]
    write_text(tmp_path / "t.csv", "\n".join([",s,y", *rows]))
    extra = ["--iterations", "5"] if command == "learn" else ["--json"]
    done = here(command, tmp_path / "t.csv", "--label", "y", *extra)
    assert done.returncode == 0
    assert "'(column 0)' is left out as the index of the rows: name it with --columns if it is data" in done.stderr
    asked = here(command, tmp_path / "t.csv", "--label", "y", "--columns", "(column 0)", *extra)
    assert asked.returncode == 0
    assert "left out" not in asked.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Delimited text, from the command line


CSV = "score,y\n1.5,1\n2.25,1\n1.5,0\n0.75,0\n"
VARIANTS = {
    "header.csv": CSV,
    "headerless.csv": CSV.partition("\n")[2],
    "bom.csv": "\ufeff" + CSV,
    "semicolon.csv": CSV.replace(",", ";"),
    "crlf.csv": CSV.replace("\n", "\r\n"),
    "tabs.tsv": CSV.replace(",", "\t"),
    "empty_line.csv": CSV + "\n",
    "largely é.csv": CSV.replace("score", "größe"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_same_estimate_from_every_dialect(
    tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    folder = tmp_path / "données é"
    folder.mkdir()
    (folder / name).write_text(VARIANTS[name], encoding="utf-8")
    done = here("estimate", folder / name, "--label", "1", "--complete", "--json")
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    assert (estimate["estimate"], estimate["n"], estimate["m"]) == (0.875, 2, 2)


def test_a_decimal_comma_takes_an_option(tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    with_comma = CSV.replace(",", ";").replace(".", ",")
    for name, text in (("a.csv", with_comma), ("b.csv", with_comma.replace(";", "\t")), ("c.csv", with_comma[8:])):
        path = tmp_path / name
        path.write_text(text)
        done = here("estimate", path, "--label", "1", "--complete", "--json", "--decimal", "comma")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["estimate"] == 0.875
        done = here("estimate", path, "--label", "1", "--complete", "--json")
        assert done.returncode == 2
        first_row = 1 if name == "c.csv" else 2
        assert f"'{name}', line {first_row}: column " in done.stderr
        assert "has '1,5' with a decimal comma: give --decimal comma, or write numbers with a point" in done.stderr


@pytest.mark.parametrize(
    "command", [("learn", "--iterations", 20, "--workers", 1), ("plan", "--learn", "--workers", 1)], ids=lambda c: c[0]
)
def test_whatever_reads_data_takes_decimal_commas(
    tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]], command: tuple[object, ...]
) -> None:
    """The numbers are read to the bits of the same file with points."""
    rows = [(k * 0.37 % 1.0, k * 0.71 % 1.0 + k % 2, k % 2) for k in range(40)]
    with_point = "a;b;y\n" + "".join(f"{a};{b};{y}\n" for a, b, y in rows)
    told = []
    for name, text, more in (
        ("p.csv", with_point, []),
        ("c.csv", with_point.replace(".", ","), ["--decimal", "comma"]),
    ):
        path = tmp_path / name
        path.write_text(text)
        done = here(*command[:1], path, "--label", "y", "--columns", "a,b", *command[1:], "--seed", 5, "--json", *more)
        assert done.returncode == 0, done.stderr
        measured = ("seconds", "ways", "recommended")
        told.append({key: value for key, value in json.loads(done.stdout).items() if key not in measured})
    assert told[0] == told[1]
    done = here(*command[:1], tmp_path / "c.csv", "--label", "y", "--columns", "a,b", *command[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert "with a decimal comma: give --decimal comma" in done.stderr


def test_libsvm_takes_no_label_option(tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for k, text in enumerate(["1 1:1.5\n1 1:2.25\n", "-1 1:1.5\n-1 1:.75\n"]):
        (tmp_path / f"{k}.svm").write_text(text)
    done = here("estimate", tmp_path / "[01].svm", "--complete", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimate"] == 0.875


def test_a_locale_without_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "données é"
    folder.mkdir()
    (folder / "größe-1.csv").write_text(VARIANTS["largely é.csv"], encoding="utf-8")
    (folder / "größe-2.csv").write_text("größe,y\n", encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "HYDRA"))},
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(REPOSITORY),
    }
    command = [sys.executable, "-m", "mpi_ustat", "estimate", str(folder / "größe-*.csv"), "--label", "y"]
    done = subprocess.run(
        [*command, "--complete", "--json"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["estimate"] == 0.875


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("score,y\n1.5,1\n,0\n", "line 3: column 'score' is empty: remove the row or fill in the value"),
        ("score,y\n1.5,1\n2.5\n", "line 3 has 1 cell where line 1 has 2: correct the line"),
        ("score,y\n1.5,1\n2.5,0,\n", "line 3 has 3 cells where line 1 has 2: correct the line"),
    ],
)
def test_refusals_name_the_file_and_the_line(
    tmp_path: Path, here: Callable[..., subprocess.CompletedProcess[str]], text: str, place: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    done = here("estimate", tmp_path / "t.csv", "--label", "y", "--complete", "--json")
    assert done.returncode == 2
    assert done.stderr.strip() == f"mpi-ustat: 't.csv', {place}"


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("s;y\n1,5;1\n-2;0\n,5;1\n1e3;0\n+1,25e-1;0\n", "s", [[1.5, 0.5], [-2.0, 1000.0, 0.125]]),
        ("1,5\t1\n2,5\t0\n", "0", [[1.5], [2.5]]),
        ("1,5  1\n2,5  0\n", "0", [[1.5], [2.5]]),
        ('s;y\n"1,5";"1,0"\n2,5;0,0\n', "s", [[1.5], [2.5]]),  # the label is a number too
        ("s;t;y\n1,5;a,b;1\n2,5;c.d;0\n", "s", [[1.5], [2.5]]),
    ],
)
def test_decimal_commas(tmp_path: Path, text: str, column: str, expected: list[list[float]]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    last = str(text.partition("\n")[0].count(";") or 1)
    samples = read_samples(SERIAL, DataSource(str(path), label=last, columns=(column,), decimal="comma"), 1)
    assert [rows.tolist() for rows in samples.rows] == expected


def test_one_column_of_decimal_commas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,5\n2\n0,25\n")
    samples = read_samples(SERIAL, DataSource(str(tmp_path / "t.csv"), one_sample=True, decimal="comma"), 1)
    assert samples.rows[0].tolist() == [1.5, 2.0, 0.25]
    (tmp_path / "t.csv").write_text("s;y\n1,5;a,b\n2,5;c.d\n")
    source = DataSource(str(tmp_path / "t.csv"), label="y", positive="a,b", decimal="comma")
    assert read_samples(SERIAL, source, 1).x.tolist() == [1.5]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.csv",
            "s;y\n1.500;1\n2,5;0\n",
            "'t.csv', line 2: column 's' has '1.500', which is a number with thousands=",
        ),
        ("t.csv", "s;y\n1,5,0;1\n2,5;0\n", "'t.csv', line 2: column 's' has '1,5,0', which is not a number: correct"),
        (
            "t.csv",
            "s,y\n1.5,1\n2.5,0\n",
            "'t.csv' has commas between its cells, where decimal=\"comma\" has them inside",
        ),
        ("t.csv", "1,5,1\n2,5,0\n", "'t.csv' has commas between its cells, where decimal=\"comma\" has them inside"),
        ("t.svm", "1 1:1\n", "decimal=\"comma\" is for delimited text such as CSV, not for '{}/t.svm': leave it out"),
        ("t.h5", "", "decimal=\"comma\" is for delimited text such as CSV, not for '{}/t.h5': leave it out"),
    ],
)
def test_refused_decimal_commas(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(str(tmp_path / name), label="y", decimal="comma"), 1)
    assert message.format(tmp_path) in str(caught.value)
    with pytest.raises(UserError, match="decimal=\"comma\" is for files of text such as CSV, not for 'shuttle'"):
        read_samples(SERIAL, DataSource("shuttle", decimal="comma"), 1)
    with pytest.raises(UserError, match="the decimal sign is ',': choose point or comma"):
        read_samples(SERIAL, DataSource(str(tmp_path / name), label="y", decimal=","), 1)


# ---------------------------------------------------------------------------------------------------------------------
# Real data


def real(folder: Path, *names: str) -> list[str]:
    for name in names:
        if not (folder / name).exists():
            pytest.skip(f"{name} is missing in {folder}")
    return [str(folder / name) for name in names]


def test_a9a(shared_data: Path) -> None:
    train, test = real(shared_data, "a9a.libsvm.gz", "a9a.t.libsvm.gz")
    samples = read_samples(SERIAL, DataSource((train, test), columns=("83", "123", "4")), 10)
    assert (len(samples.x), len(samples.z)) == (7841 + 3846, 24720 + 12435)
    assert samples.description["n_rows"] == 32561 + 16281
    assert set(np.unique(np.concatenate(samples.rows))) == {0.0, 1.0}
    with pytest.raises(UserError, match=r"'a9a\.t\.libsvm\.gz' has no column '123'"):
        read_samples(SERIAL, DataSource(test, columns=("123",)), 1)


def test_w8a_is_what_scikit_learn_reads(shared_data: Path) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    (path,) = real(shared_data, "w8a.libsvm.gz")
    features, labels = datasets.load_svmlight_file(path)
    some = np.arange(0, 300, 13)
    samples = read_samples(SERIAL, DataSource(path, columns=tuple(str(j + 1) for j in some)), 10)
    assert (len(samples.x), len(samples.z)) == (1479, 48270)
    assert_array_equal(samples.x, features[labels == 1][:, some].toarray())
    assert_array_equal(samples.z, features[labels == -1][:, some].toarray())


def test_shuttle_in_three_formats(shared_data: Path) -> None:
    mat, npz, train, test = real(shared_data, "shuttle.mat", "shuttle.npz", "uci_shuttle.trn.gz", "uci_shuttle.tst.gz")
    from_mat = read_samples(SERIAL, DataSource(mat, label="y", columns=("X",)), 7)
    from_npz = read_samples(SERIAL, DataSource(npz, label="y", columns=("X",)), 7)
    for k in (0, 1):
        assert_array_equal(from_mat.rows[k], from_npz.rows[k])
        assert_array_equal(from_mat.sizes[k], from_npz.sizes[k])
    original = DataSource((train, test), label="9", classes=("1", "2", "3", "5", "6", "7"), columns=tuple("012345678"))
    by_class = read_samples(SERIAL, original, 7)
    assert [len(rows) for rows in by_class.rows] == [45586, 50, 171, 3267, 10, 13]
    assert by_class.description["n_rows"] == 58000
    assert_array_equal(by_class.rows[0], from_mat.z)


def test_cover(shared_data: Path) -> None:
    (path,) = real(shared_data, "cover.npz")
    samples = read_samples(SERIAL, DataSource(path, label="y", columns=("0", "9")), 4)
    assert (samples.x.shape, samples.z.shape) == ((2747, 2), (286048 - 2747, 2))
