"""Samples of other kinds than two: all rows of a file as one, and one of each of several ordered classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.labels import MOST_CLASSES, ordered_labels

N_ROWS = 211
SERIAL = SerialComm()
LEVELS = (-2.0, 0.5, 3.0, 9.0, 10.0)  # as texts they would come in another order


def example() -> tuple[np.ndarray, np.ndarray]:
    """Return 3 columns of numbers, ±inf among them, and labels of 5 classes."""
    generator = np.random.Generator(np.random.Philox(11))
    values = generator.normal(size=(N_ROWS, 3)) * [1.0, 1e-200, 1e200]
    values[5, 1], values[6, 2] = np.inf, -np.inf
    return values, generator.choice(LEVELS, size=N_ROWS, p=[0.3, 0.05, 0.3, 0.3, 0.05])


def write_text(path: Path, values: np.ndarray, labels: Sequence[Any], header: str = "a,b,c,y") -> None:
    rows = [",".join([*map(repr, row), str(y)]) for row, y in zip(values.tolist(), labels, strict=True)]
    text = "\n".join([header, *rows]) + "\n"
    if path.suffix == ".gz":
        import gzip

        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text.replace(",", "\t") if path.suffix == ".tsv" else text)


def write_hdf5(path: Path, **datasets: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            file[name] = data


WRITERS: dict[str, Callable[[Path, np.ndarray, np.ndarray], None]] = {
    "t.csv": lambda path, v, y: write_text(path, v, y.tolist()),
    "t.csv.gz": lambda path, v, y: write_text(path, v, y.tolist()),
    "t.tsv": lambda path, v, y: write_text(path, v, y.tolist()),
    "plain.npz": lambda path, v, y: np.savez(path, X=v, y=y),
    "packed.npz": lambda path, v, y: np.savez_compressed(path, X=np.asfortranarray(v), y=y),
    "t.h5": lambda path, v, y: write_hdf5(path, X=v, y=y),
    "t.npy": lambda path, v, y: np.save(path, np.column_stack([v, y])),
}


def write(comm: Any, folder: Path, name: str, values: np.ndarray, labels: np.ndarray) -> Path:
    if comm.rank == 0:
        WRITERS[name](folder / name, values, labels)
    comm.barrier()
    return folder / name


def gathered(comm: Any, source: DataSource, n_workers: int) -> tuple[Samples, list[np.ndarray], list[np.ndarray]]:
    """Return this rank's samples; all ranks' rows and worker sizes, of each sample."""
    own = read_samples(comm, source, n_workers)
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    for rows, sizes in zip(own.rows, own.sizes, strict=True):
        assert rows.dtype == np.float64 and rows.flags.c_contiguous
        assert sizes.dtype == np.int64 and sizes.shape == (len(hosted),)
        assert sizes.sum() == len(rows)
    everyone = comm.allgather((own.rows, own.sizes, own.columns, own.description))
    assert {json.dumps(each[2:]) for each in everyone} == {json.dumps([own.columns, own.description])}
    rows, sizes = (
        [np.concatenate(parts) for parts in zip(*(each[k] for each in everyone), strict=True)] for k in (0, 1)
    )
    return own, rows, sizes


# ---------------------------------------------------------------------------------------------------------------------
# One sample


@pytest.mark.parametrize("n_workers", [1, 5, 300])
@pytest.mark.parametrize("name", WRITERS)
def test_all_rows_of_a_file_are_one_sample(comm: Any, shared_tmp_path: Path, name: str, n_workers: int) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, name, values, labels)
    own, (rows,), (sizes,) = gathered(comm, DataSource(str(path), one_sample=True, columns=("2", "0")), n_workers)
    assert_array_equal(rows, values[:, [2, 0]])
    bounds = block_bounds(N_ROWS, n_workers)
    assert_array_equal(sizes, np.diff(bounds))
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    assert_array_equal(own.rows[0], values[bounds[hosted.start] : bounds[hosted.stop]][:, [2, 0]])
    assert {"files": [name], "n_rows": N_ROWS, "label": None, "positive": None}.items() <= own.description.items()
    assert str(shared_tmp_path) not in json.dumps(own.description)


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".h5"])
def test_the_only_column_is_one_dimensional(comm: Any, shared_tmp_path: Path, suffix: str) -> None:
    path = shared_tmp_path / f"t{suffix}"
    price = np.arange(23) / 7
    if comm.rank == 0:
        if suffix == ".csv":
            path.write_text("price\n" + "\n".join(map(repr, price.tolist())))
        elif suffix == ".npy":
            np.save(path, price)
        elif suffix == ".npz":
            np.savez(path, price=price)
        else:
            write_hdf5(path, price=price)
    comm.barrier()
    own, (rows,), (sizes,) = gathered(comm, DataSource(str(path), one_sample=True), 4)
    assert_array_equal(rows, price)
    assert_array_equal(sizes, [6, 6, 6, 5])
    assert len(own.columns) == 1


def test_a_label_column_is_a_column_like_others(tmp_path: Path) -> None:
    values, labels = example()
    WRITERS["t.csv"](tmp_path / "t.csv", values, labels)
    samples = read_samples(SERIAL, DataSource(str(tmp_path / "t.csv"), one_sample=True, columns=("all",)), 3)
    assert samples.columns == ("a", "b", "c", "y")
    assert_array_equal(samples.rows[0], np.column_stack([values, labels]))
    samples = read_samples(SERIAL, DataSource(str(tmp_path / "t.csv"), one_sample=True, columns=("y",)), 3)
    assert_array_equal(samples.rows[0], labels)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"label": "y"}, "a label is given for a statistic of one sample: leave it out"),
        ({"positive": "1"}, "a label is given for a statistic of one sample: leave it out"),
        ({"classes": ("0", "1")}, "a label is given for a statistic of one sample: leave it out"),
        ({"columns": ()}, "'t.csv' has several data columns: choose with columns= among s, y, word"),
        ({"columns": ("word",)}, "column 'word' has 'w0', which is not a number"),
        ({"columns": ("x",)}, "'t.csv' has no column 'x': choose among s, y, word"),
        ({"path": None}, "there is no input: give a file"),
        ({"path": "absent.csv"}, "there is no file 'absent.csv': check its name and folder"),
    ],
)
def test_one_sample_refusals(tmp_path: Path, source: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("s,y,word\n" + "".join(f"{k},{k % 2},w{k}\n" for k in range(9)))
    with pytest.raises(UserError) as caught:
        read_samples(SERIAL, DataSource(**{"path": str(path), "one_sample": True, "columns": ("s",), **source}), 2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["t.csv", "plain.npz", "t.h5"])
def test_an_error_on_one_rank_is_raised_on_all(comm: Any, shared_tmp_path: Path, name: str) -> None:
    values, labels = example()
    values[-3, 1] = np.nan
    path = write(comm, shared_tmp_path, name, values, labels)
    place = f"line {N_ROWS - 1}" if name == "t.csv" else f"row {N_ROWS - 3} (counted from 0)"
    for source in (
        DataSource(str(path), one_sample=True, columns=("1",)),
        DataSource(str(path), label="y", classes=(), columns=("1",)),
    ):
        with pytest.raises(UserError) as caught:
            read_samples(comm, source, 4)
        assert f"'{name}', {place}: column " in str(caught.value)
        assert "is NaN: remove the row or fill in the value" in str(caught.value)


@pytest.mark.skipif(find_spec("river") is None, reason="the package river, which ships the Shuttle data, is missing")
def test_shuttle_is_one_sample_too(comm: Any) -> None:
    own, (rows,), (sizes,) = gathered(comm, DataSource("shuttle", one_sample=True, columns=("f9", "f1")), 7)
    assert rows.shape == (49097, 2)
    assert_array_equal(sizes, np.diff(block_bounds(49097, 7)))
    assert own.description["name"] == "shuttle"
    samples = read_samples(SERIAL, DataSource("shuttle", one_sample=True, columns=("all",)), 1)
    assert samples.columns == tuple(f"f{j}" for j in range(1, 10))  # the label is none of the numbers


# ---------------------------------------------------------------------------------------------------------------------
# Classes


@pytest.mark.parametrize("n_workers", [1, 5, 300])
@pytest.mark.parametrize("name", [name for name in WRITERS if name != "t.npy"])
def test_numbers_come_in_ascending_order(comm: Any, shared_tmp_path: Path, name: str, n_workers: int) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, name, values, labels)
    source = DataSource(str(path), label="y", classes=(), columns=("2", "0"))
    own, rows, sizes = gathered(comm, source, n_workers)
    assert len(rows) == len(LEVELS)
    bounds = block_bounds(N_ROWS, n_workers)
    for level, of_class, of_workers in zip(LEVELS, rows, sizes, strict=True):
        assert_array_equal(of_class, values[labels == level][:, [2, 0]])
        assert_array_equal(of_workers, [np.count_nonzero(labels[a:b] == level) for a, b in pairwise(bounds)])
    assert_array_equal(np.sum(sizes, axis=0), np.diff(bounds))
    hosted = hosted_workers(n_workers, comm.size, comm.rank)
    here = slice(bounds[hosted.start], bounds[hosted.stop])
    assert_array_equal(own.rows[0], values[here][labels[here] == LEVELS[0]][:, [2, 0]])
    assert own.description["classes"] == ["-2", "0.5", "3", "9", "10"]
    assert own.description["n_of_classes"] == [np.count_nonzero(labels == level) for level in LEVELS]
    assert own.description["positive"] is None
    assert str(shared_tmp_path) not in json.dumps(own.description)


@pytest.mark.parametrize(
    ("classes", "levels"),
    [
        (("10", "-2", "3"), (10.0, -2.0, 3.0)),
        (("3.0", " 9"), (3.0, 9.0)),  # labels are numbers, however they are written
        (("1e1", "+0.5"), (10.0, 0.5)),
    ],
)
def test_some_classes_in_the_order_that_is_given(
    comm: Any, shared_tmp_path: Path, classes: tuple[str, ...], levels: tuple[float, ...]
) -> None:
    values, labels = example()
    path = write(comm, shared_tmp_path, "t.csv", values, labels)
    own, rows, sizes = gathered(comm, DataSource(str(path), label="y", classes=classes, columns=("a",)), 4)
    bounds = block_bounds(N_ROWS, 4)  # of the whole file: left out rows belong to a worker too
    for level, of_class, of_workers in zip(levels, rows, sizes, strict=True):
        assert_array_equal(of_class, values[labels == level, 0])
        assert_array_equal(of_workers, [np.count_nonzero(labels[a:b] == level) for a, b in pairwise(bounds)])
    assert own.description["n_of_classes"] == [np.count_nonzero(labels == level) for level in levels]


def test_two_classes_are_the_lower_and_the_upper(tmp_path: Path) -> None:
    """Unlike the positives of a pair of labels, which come first."""
    (tmp_path / "t.csv").write_text("s,y\n1,0\n2,1\n3,1\n4,0\n")
    path = str(tmp_path / "t.csv")
    pair = read_samples(SERIAL, DataSource(path, label="y"), 2)
    ordered = read_samples(SERIAL, DataSource(path, label="y", classes=()), 2)
    assert pair.x.tolist() == ordered.z.tolist() == [2.0, 3.0]
    assert pair.z.tolist() == ordered.x.tolist() == [1.0, 4.0]


@pytest.mark.parametrize("name", ["t.csv", "t.npz", "t.h5"])
def test_texts_come_in_the_order_that_is_given(comm: Any, shared_tmp_path: Path, name: str) -> None:
    path = shared_tmp_path / name
    score = np.arange(40.0)
    words = np.array(["low"] * 20 + ["mid"] * 10 + ["high"] * 9 + ["low"])  # sorted: most ranks lack most classes
    if comm.rank == 0:
        if name == "t.csv":
            path.write_text("s,y\n" + "".join(f"{s},{word}\n" for s, word in zip(score.tolist(), words, strict=True)))
        elif name == "t.npz":
            np.savez(path, s=score, y=words)
        else:
            write_hdf5(path, s=score, y=words.astype("S"))
    comm.barrier()
    source = DataSource(str(path), label="y", classes=("low", "mid", "high"), columns=("s",))
    own, rows, sizes = gathered(comm, source, 4)
    for word, of_class in zip(("low", "mid", "high"), rows, strict=True):
        assert_array_equal(of_class, score[words == word])
    assert [each.tolist() for each in sizes] == [[10, 10, 0, 1], [0, 0, 10, 0], [0, 0, 0, 9]]
    assert own.description["classes"] == ["low", "mid", "high"]
    with pytest.raises(UserError) as caught:
        read_samples(comm, DataSource(str(path), label="y", classes=(), columns=("s",)), 4)
    assert str(caught.value) == (
        f"the label 'y' of '{name}' has the values 'high', 'low', 'mid': say their order with classes=, the lowest "
        "first"
    )


def test_a_class_of_a_single_row_is_none_the_less_a_sample(comm: Any, shared_tmp_path: Path) -> None:
    path = shared_tmp_path / "t.csv"
    if comm.rank == 0:
        path.write_text("s,y\n" + "".join(f"{k},{0 if k < 20 else 1}\n" for k in range(39)) + "39,2\n")
    comm.barrier()
    _, rows, sizes = gathered(comm, DataSource(str(path), label="y", classes=()), 8)
    assert rows[2].tolist() == [39.0]
    assert sizes[2].tolist() == [0] * 7 + [1]
    assert all(len(of_class) for of_class in rows)


def test_as_many_classes_as_there_may_be(comm: Any, shared_tmp_path: Path) -> None:
    path = shared_tmp_path / "t.csv"
    if comm.rank == 0:
        path.write_text("s,y\n" + "".join(f"{k},{k % MOST_CLASSES}\n" for k in range(200)))
    comm.barrier()
    _, rows, _ = gathered(comm, DataSource(str(path), label="y", classes=()), 3)
    assert MOST_CLASSES == 32
    for k, of_class in enumerate(rows):
        assert_array_equal(of_class, np.arange(k, 200, MOST_CLASSES))


def test_more_labels_are_refused_but_some_of_them_can_be_chosen(comm: Any, shared_tmp_path: Path) -> None:
    """Also labels that are not among the lowest, on ranks that have many others."""
    path = shared_tmp_path / "t.csv"
    labels = np.concatenate([np.arange(100, 140), np.full(3, 90), np.arange(40), np.full(4, 139)])
    if comm.rank == 0:
        path.write_text("s,y\n" + "".join(f"{k},{y}\n" for k, y in enumerate(labels.tolist())))
    comm.barrier()
    with pytest.raises(UserError) as caught:
        read_samples(comm, DataSource(str(path), label="y", classes=()), 4)
    assert str(caught.value) == (
        "the label 'y' of 't.csv' has more than 32 values: choose classes with classes=, or another column"
    )
    for classes in (("38", "90", "139"), ("0", "39"), ("139", "100", "5", "90")):
        own, rows, _ = gathered(comm, DataSource(str(path), label="y", classes=classes), 4)
        for label, of_class in zip(classes, rows, strict=True):
            assert_array_equal(of_class, np.flatnonzero(labels == int(label)))
        assert own.description["n_of_classes"] == [len(of_class) for of_class in rows]
    with pytest.raises(UserError, match=r"has the values '0', '1', '2', '3', '4', …, not '95': give some of them to"):
        read_samples(comm, DataSource(str(path), label="y", classes=("0", "95")), 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"classes": ("0", "1", "7")}, "the label 'y' of 't.csv' has the values '0', '1', '2', not '7': give some of"),
        ({"classes": ("0", "", "1")}, "has the values '0', '1', '2', not '': give some of them to classes="),
        ({"classes": ("0", "1", "0")}, "the class '0' is given twice: name each class once"),
        ({"classes": ("1", "1.0")}, "the class '1' is given twice: name each class once"),
        ({"classes": ("2",)}, "the label 'y' of 't.csv' gives one class only: two or more are needed, choose another"),
        ({"classes": (), "label": "one"}, "the label 'one' of 't.csv' gives one class only: two or more are needed"),
        ({"classes": (), "label": None}, "no label column of 't.csv' is chosen: choose with label= among s, y, one"),
        ({"classes": ("0", "1"), "positive": "1"}, "the classes say already which label comes first"),
        ({"classes": (), "path": None}, "there is no input: give a file with a label column"),
    ],
)
def test_refused_classes(comm: Any, shared_tmp_path: Path, source: dict[str, Any], message: str) -> None:
    path = shared_tmp_path / "t.csv"
    if comm.rank == 0:
        path.write_text("s,y,one\n" + "".join(f"{k},{k % 3},1\n" for k in range(12)))
    comm.barrier()
    with pytest.raises(UserError) as caught:
        read_samples(comm, DataSource(**{"path": str(path), "label": "y", "columns": ("s",), **source}), 2)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_beside_a_file_per_sample(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4.0))
    paths = {"x_path": str(tmp_path / "x.npy"), "z_path": str(tmp_path / "x.npy")}
    assert read_samples(SERIAL, DataSource(**paths), 1).x.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(UserError, match="a label is given beside a file per sample"):
        read_samples(SERIAL, DataSource(**paths, classes=("0", "1")), 1)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([10, 9, -1], (), [-1, 9, 10]),
        ([2, 0.5, 1.0], (), [0.5, 1, 2]),
        ([1, True, 0], (), [0, 1]),
        (["b", "a", 3], ("b", "3", "a"), ["b", 3, "a"]),
        ([0, 1, 2], ("True", "false"), [1, 0]),
        ([2**53, 2**53 + 1], (), [2**53, 2**53 + 1]),
        (range(33), ("32", "0"), [32, 0]),
    ],
)
def test_ordered_labels(labels: Any, classes: tuple[str, ...], expected: list[Any]) -> None:
    assert ordered_labels(labels, classes, "y", "t.csv") == expected


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (range(33), (), "has more than 32 values: choose classes with classes=, or another column"),
        (range(40), tuple(map(str, range(33))), "has more than 32 values"),
        ([1, "a"], (), "has the values '1', 'a': say their order with classes=, the lowest first"),
        ([], (), "gives one class only"),
        ([5], (), "gives one class only"),
        ("abcdefg", ("a", "z"), "has the values 'a', 'b', 'c', 'd', 'e', …, not 'z': give some of them to classes="),
    ],
)
def test_labels_without_an_order(labels: Any, classes: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match="'y' of 't.csv'") as caught:
        ordered_labels(labels, classes, "y", "t.csv")
    assert message in str(caught.value)


def test_real_data(shared_data: Path) -> None:
    cuts = ("Fair", "Good", "Very Good", "Premium", "Ideal")
    source = DataSource(str(shared_data / "diamonds.csv.gz"), label="cut", classes=cuts, columns=("price",))
    samples = read_samples(SERIAL, source, 10)
    assert [len(rows) for rows in samples.rows] == samples.description["n_of_classes"]
    one = read_samples(
        SERIAL, DataSource(str(shared_data / "diamonds.csv.gz"), one_sample=True, columns=("price",)), 10
    )
    assert sum(len(rows) for rows in samples.rows) == len(one.rows[0]) == 53940
    assert_array_equal(np.sort(np.concatenate(samples.rows)), np.sort(one.rows[0]))
