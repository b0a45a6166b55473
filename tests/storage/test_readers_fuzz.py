"""Damaged files of every format: read with the right number of rows, or refused in one sentence; nothing else.

And HDF5 files with holes: what nobody stored is not read.
"""

from __future__ import annotations

import gzip
import io
import itertools
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.storage import delimited, simple_lines
from mpi_ustat.storage.data import DataSource, read_samples

N_ROWS = 24
SERIAL = SerialComm()


# ---------------------------------------------------------------------------------------------------------------------
# Whole files, small


def example() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.Generator(np.random.Philox(29))
    return generator.normal(size=(N_ROWS, 2)).round(3), np.arange(N_ROWS) % 2


def csv_bytes(delimiter: str = ",", header: str = "", end: str = "\n") -> bytes:
    lines = [header.replace(",", delimiter)] if header else []
    for row, label in zip(*(each.tolist() for each in example()), strict=True):
        lines.append(delimiter.join([*map(repr, row), str(label)]))
    return (end.join(lines) + end).encode()


def libsvm_bytes() -> bytes:
    lines = ["# label, two features"]
    for (a, b), label in zip(*(each.tolist() for each in example()), strict=True):
        lines.append(f"{label} qid:{label} 1:{a} 2:{b} # a" if a > 0 else f"{label} 1:{a} 2:{b}")
    return ("\n".join(lines) + "\n").encode()


def npz_bytes(save: Callable[..., None]) -> bytes:
    stream = io.BytesIO()
    values, labels = example()
    save(stream, X=values, y=labels.astype("i1"))
    return stream.getvalue()


def npy_bytes(order: str) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(np.column_stack(example()), order="F" if order == "F" else "C"))
    return stream.getvalue()


def hdf5_bytes(userblock: int = 0, libver: str | None = None, **options: object) -> bytes:
    stream = io.BytesIO()
    values, labels = example()
    with h5py.File(stream, "w", userblock_size=userblock, libver=libver) as file:
        is_matlab = userblock > 0
        file.create_dataset("X", data=values.T if is_matlab else values, **options)
        file.create_dataset("y", data=labels[None] if is_matlab else labels.astype("i2"))
    data = stream.getvalue()
    return b"MATLAB 7.3 MAT-file".ljust(userblock) + data[userblock:] if userblock else data


def linked_hdf5_bytes() -> bytes:
    """Behind links: values with a declared missing one, and labels as texts; beside them values that can't be used."""
    stream = io.BytesIO()
    values, labels = example()
    with h5py.File(stream, "w") as file:
        file.create_dataset("raw/values", data=values, chunks=(7, 2)).attrs["_FillValue"] = -999.0
        file["raw/labels"] = np.array([str(label) for label in labels.tolist()], "S1")
        file["raw/pairs"] = np.zeros(3, [("a", "f8"), ("b", "i4")])
        file["a"], file["X"] = file["raw"], h5py.SoftLink("/a/values")
        file["y"] = h5py.SoftLink("raw/labels")
    return stream.getvalue()


def mat_bytes(compressed: bool) -> bytes:
    stream = io.BytesIO()
    values, labels = example()
    scipy.io.savemat(stream, {"X": values, "y": labels, "word": "abc"}, do_compression=compressed)
    return stream.getvalue()


def sparse_mat_bytes() -> bytes:
    stream = io.BytesIO()
    values, labels = example()
    texts = np.array([str(label) for label in labels.tolist()], dtype=object)[:, None]
    scipy.io.savemat(stream, {"X": scipy.sparse.csc_matrix(values), "y": texts})
    return stream.getvalue()


def parquet_bytes() -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    values, labels = example()
    table = pyarrow.table({"0": values[:, 0], "1": values[:, 1], "y": labels})
    pyarrow.parquet.write_table(table, sink, row_group_size=10)
    return bytes(sink.getvalue())


FILES: dict[str, Callable[[], bytes]] = {
    "bare.csv": csv_bytes,
    "header.csv": lambda: csv_bytes(header="a,b,y"),
    "quoted.csv": lambda: csv_bytes(";", header='"a","b","y"', end="\r\n"),
    "blanks.txt": lambda: csv_bytes("  "),
    "packed.tsv.gz": lambda: gzip.compress(csv_bytes("\t"), mtime=0),
    "t.svm": libsvm_bytes,
    "packed.libsvm.gz": lambda: gzip.compress(libsvm_bytes(), mtime=0),
    "stored.npz": lambda: npz_bytes(np.savez),
    "packed.npz": lambda: npz_bytes(np.savez_compressed),
    "c.npy": lambda: npy_bytes("C"),
    "f.npy": lambda: npy_bytes("F"),
    "plain.h5": hdf5_bytes,
    "chunked.h5": lambda: hdf5_bytes(chunks=(7, 1), compression="gzip", shuffle=True, fletcher32=True),
    "linked.h5": linked_hdf5_bytes,
    "latest.h5": lambda: hdf5_bytes(libver="latest"),
    "v5.mat": lambda: mat_bytes(False),
    "packed.mat": lambda: mat_bytes(True),
    "sparse.mat": sparse_mat_bytes,
    "v73.mat": lambda: hdf5_bytes(512),
}
if find_spec("pyarrow") is not None:
    FILES["t.parquet"] = parquet_bytes
WHOLE = {name: write() for name, write in FILES.items()}


def source_of(path: Path) -> DataSource:
    label = "y" if path.suffix in (".npz", ".h5", ".mat", ".parquet") else None if "svm" in path.name else "2"
    columns = ("1", "2") if "svm" in path.name else ("X",) if path.name == "linked.h5" else ("0", "1")
    return DataSource(str(path), label=label, positive="1", columns=columns)


# ---------------------------------------------------------------------------------------------------------------------
# Rows that a text has, by other means than the reader's


def rows_of_text(name: str, data: bytes) -> int:
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if "svm" in name:
        return sum(1 for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.split(b"#")[0].strip())
    lines = data.decode("utf-8-sig").split("\n")
    while not lines[-1].strip():
        lines.pop()
    delimiter = {"quoted.csv": ";", "blanks.txt": None, "packed.tsv.gz": "\t"}.get(name, ",")
    return len(lines) - (not all(map(is_number, lines[0].split(delimiter))))


def is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------------
# Damage


PLACES = st.integers(0, 2**16)


@st.composite
def damages(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw what became of a file: bytes changed, cut out, doubled or put in, lines lost or doubled, its end cut off."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("flip", "byte", "cut", "double", "put", "drop line", "double line", "end")))
        at = draw(PLACES) % (len(data) + 1)
        length = draw(st.integers(1, 12))
        if kind in ("drop line", "double line"):
            at = data.rfind(b"\n", 0, at) + 1
            length = len(data) - at if (end := data.find(b"\n", at)) < 0 else end + 1 - at
        piece = bytes(data[at : at + length])
        if kind == "flip":
            data[at : at + 1] = bytes(each ^ (1 << length % 8) for each in piece[:1])
        elif kind == "byte":
            data[at : at + 1] = draw(
                st.sampled_from([b"\0", b"\xff", b"\n", b"\r", b'"', b",", b"#", b" ", b"9", b"x"])
            )
        elif kind in ("cut", "drop line"):
            del data[at : at + length]
        elif kind in ("double", "double line"):
            data[at:at] = piece
        elif kind == "put":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        else:
            del data[at:]
    return bytes(data)


def check(folder: Path, name: str, data: bytes) -> str:
    """Read a file of these bytes; return what became of it."""
    path = folder / name
    path.unlink(missing_ok=True)  # a file that is written over goes to the disk at once, which takes its time
    path.write_bytes(data)
    try:
        samples = read_samples(SERIAL, source_of(path), 3)
    except UserError as error:
        message = str(error)
        assert len(message.splitlines()) == 1
        assert message.isprintable()
        assert message.strip() == message
        return "refused"
    n_rows = samples.description["n_rows"]
    assert sum(map(len, samples.rows)) == n_rows
    assert not any(np.isnan(rows).any() for rows in samples.rows)
    assert all(rows.shape[1] == 2 for rows in samples.rows)
    if name.endswith((".csv", ".txt", ".gz", ".svm")):
        assert n_rows == rows_of_text(name, data)
    return "read"


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_are_read(tmp_path: Path, name: str) -> None:
    """So that the damaged ones are refused for their damage."""
    assert check(tmp_path, name, WHOLE[name]) == "read"
    samples = read_samples(SERIAL, source_of(tmp_path / name), 3)
    values, labels = example()
    np.testing.assert_array_equal(samples.x, values[labels == 1])
    np.testing.assert_array_equal(samples.z, values[labels == 0])


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=20)
@given(data=st.data())
def test_damaged_files(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    check(tmp_path_factory.getbasetemp(), name, data.draw(damages(WHOLE[name])))


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=10_000 // len(WHOLE) + 1)
@given(data=st.data())
def test_many_damaged_files(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    check(tmp_path_factory.getbasetemp(), name, data.draw(damages(WHOLE[name])))


# ---------------------------------------------------------------------------------------------------------------------
# Delimited text: read alike by the careful parser and the fast ones, in blocks of any size


def outcome(path: Path, said: dict[str, str], way: str, size: int) -> tuple[Any, ...]:
    """Return what a file has, to the bit, or the sentence that refuses it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK", size)
        patch.setattr(simple_lines, "_FROM", 0)
        if way == "careful":
            patch.setattr(delimited, "simplified", lambda *_: None)
        elif way == "NumPy":
            patch.setattr(delimited, "cells_by_arrow", lambda *_: None)
        source = DataSource(str(path), "2", classes=(), or_all=True, columns=("1", "0"), **said)
        try:
            samples = read_samples(SERIAL, source, 3)
        except UserError as error:
            return (str(error),)
    return (*(rows.tobytes() for rows in samples.rows), samples.labels, samples.description)


NUMBERS_AS_TEXT = (
    *("1,234", "1.234", '"1,234.5"', "1.234,5", "1,23", "1.23", '"12,34"', "1,2345", "1.234.567", "12e3", '"1,234"'),
    *("0.5", "-1", "+2.5", ".5", "5.", "1e5", "1E-3", " 7 ", "\t8", '"9"', '" 1"', ' "2"', "00012.50", "-0", "0.1"),
    *("0.30000000000000004", "2.2250738585072014e-308", "9007199254740991", "9007199254740993", "1e400", "1e-400"),
    *("1.7976931348623159e308", "4.9e-324", "0" * 210 + "." + "0" * 210 + "1", "inf", "-Infinity", "INF", "nan"),
    *("nan(1)", "NA", "", '""', "1_0", "0x10", "1.2.3", "1,5", "1;5", "1 5", "1.5abc", "#1", "\x0b1", "\xa01", "1\x00"),
    *(
        "\ufeff1",
        "\u0661",
        '"1',
        '1"',
        '1""',
        '"1""2"',
        "1\r",
        "\udcff",
        "1e",
        "-",
        "True",
        "1d5",
        "1f",
        "12345678901234567890123",
    ),
)
LABELS_AS_TEXT = (
    "a",
    "b",
    " a ",
    '"a"',
    '"a,b"',
    '"a;b"',
    "é",
    "1",
    "1.0",
    "1,0",
    'a"',
    "",
    "NA",
    "a\x85",
    "#",
    "\udc80",
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[bytes, dict[str, str]]:
    """Draw lines of three cells, mostly good ones, and what is said of them."""
    delimiter = draw(st.sampled_from((",", ";", "\t", " ", "  ")))
    decimal = draw(st.sampled_from(("point", "point", "comma")))
    good = ("0.5", "1.25", "-3e2") if decimal == "point" else ("0,5", "1,25", "-3")
    odd = draw(st.booleans())
    number = st.one_of(*[st.sampled_from(good)] * 3, st.sampled_from(NUMBERS_AS_TEXT) if odd else st.sampled_from(good))
    label = st.sampled_from(LABELS_AS_TEXT[:5])
    label = st.one_of(*[label] * 5, st.sampled_from(LABELS_AS_TEXT) if odd else label)
    row = st.tuples(number, number, label).map(delimiter.join)
    line = st.one_of(*[row] * 9, st.sampled_from(("", " ", "1", "#", delimiter.join("1111"))) if odd else row)
    end = draw(st.sampled_from(("\n", "\n", "\r\n")))
    header = draw(st.sampled_from(("", delimiter.join(("u", "v", "w")) + end, "\ufeff")))
    found = header + end.join(draw(st.lists(line, min_size=4, max_size=12))) + draw(st.sampled_from(("", end)))
    said = {"decimal": decimal}
    if draw(st.booleans()):
        found = "".join(("# 1,2\n" if draw(st.booleans()) else "") + line for line in found.splitlines(keepends=True))
        said["comment"] = "#"
    if draw(st.integers(0, 3)) == 0:
        said["thousands"] = "." if decimal == "comma" else ","
    return found.encode(errors="surrogateescape"), said


@settings(max_examples=60)
@given(text=texts(), size=st.integers(1, 200))
def test_ways_to_read_text_agree(tmp_path_factory: pytest.TempPathFactory, text: Any, size: int) -> None:
    data, said = text
    path = tmp_path_factory.getbasetemp() / "ways.csv"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    expected = outcome(path, said, "careful", 1 << 20)
    for way, of_blocks in (("careful", size), ("NumPy", size), ("pyarrow", size), ("pyarrow", 1 << 20)):
        assert outcome(path, said, way, of_blocks) == expected, way


# ---------------------------------------------------------------------------------------------------------------------
# HDF5 files that are not damaged, but have holes: chunks that were never written, virtual datasets of parts of others


NUMBERS = 1.0 + np.arange(12)
CHUNK = 4
STORED, VIRTUAL = ("a", "b"), ("v", "w")


def stored_datasets() -> st.SearchStrategy[dict[str, tuple[int, list[int]]]]:
    """Return lengths, and which chunks were written; mostly all."""
    chunks = st.one_of(st.just([0, 1, 2]), st.just([0, 1, 2]), st.lists(st.integers(0, 2), unique=True))
    return st.fixed_dictionaries({name: st.tuples(st.integers(5, 12), chunks) for name in STORED})


def virtual_datasets() -> st.SearchStrategy[dict[str, list[tuple[str, int, int]]]]:
    """Return the sources, each with the rows that it is mapped to: every row mostly has one."""
    cuts = st.lists(st.integers(1, 11), max_size=2, unique=True).map(lambda inner: [0, *sorted(inner), 12])
    source = st.sampled_from((*STORED, *STORED, *VIRTUAL, "nothing"))
    parts = cuts.flatmap(
        lambda bounds: st.tuples(
            *(st.tuples(source, st.just(begin), st.just(end)) for begin, end in itertools.pairwise(bounds))
        )
    )
    lost = st.integers(0, 9).map(lambda number: number == 0)
    return st.fixed_dictionaries(
        {name: st.tuples(parts, lost).map(lambda each: list(each[0])[each[1] :]) for name in VIRTUAL}
    )


def is_whole(name: str, stored: Any, virtual: Any, above: tuple[str, ...] = ()) -> bool:
    if name in stored:
        length, chunks = stored[name]
        return set(chunks) >= set(range(-(-length // CHUNK)))
    if name in above or name not in virtual:
        return False
    mapped = {row for _, begin, end in virtual[name] for row in range(begin, end)}
    return len(mapped) == 12 and all(
        is_whole(source, stored, virtual, (*above, name)) and end <= (stored[source][0] if source in stored else 12)
        for source, _, end in virtual[name]
    )


@settings(max_examples=60)
@given(stored=stored_datasets(), virtual=virtual_datasets(), elsewhere=st.booleans())
def test_holes(tmp_path_factory: pytest.TempPathFactory, stored: Any, virtual: Any, elsewhere: bool) -> None:
    """What is read was stored: each row of a virtual dataset shows the same row of its source."""
    path = tmp_path_factory.mktemp("holes") / "t.h5"
    with ExitStack() as files:
        file = files.enter_context(h5py.File(path, "w"))
        other = files.enter_context(h5py.File(path.with_name("other.h5"), "w")) if elsewhere else file
        for name, (length, chunks) in stored.items():
            dataset = other.create_dataset(name, (length,), "f8", chunks=(CHUNK,))
            for chunk in chunks:
                if chunk * CHUNK < length:
                    rows = np.s_[chunk * CHUNK : (chunk + 1) * CHUNK]
                    dataset[rows] = NUMBERS[:length][rows]
        for name, parts in virtual.items():
            layout = h5py.VirtualLayout((12,), "f8")
            for source, begin, end in parts:
                of_file = "other.h5" if elsewhere and source in stored else "."
                layout[begin:end] = h5py.VirtualSource(of_file, source, (12,))[begin:end]
            file.create_virtual_dataset(name, layout, fillvalue=-1.0)
    for name in (*VIRTUAL, *(() if elsewhere else STORED)):
        source = DataSource(str(path), one_sample=True, columns=(name,))
        if is_whole(name, stored, virtual):
            rows = read_samples(SERIAL, source, 3).rows[0]
            np.testing.assert_array_equal(rows, NUMBERS[: stored[name][0] if name in stored else 12])
        else:
            with pytest.raises(UserError, match=f"'t.h5': dataset '{name}' "):
                read_samples(SERIAL, source, 3)
