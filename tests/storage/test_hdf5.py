"""HDF5 files as they come: numbers that nobody stored are refused, links lead to what they name, labels stay small."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.storage import hdf5, results
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.formats import scan

SERIAL = SerialComm()
N = 10
VALUES = np.arange(float(N))
LABELS = np.arange(N) % 2
ANY = h5py.h5s.UNLIMITED


def source(path: Path, column: str = "s", label: str | None = "y") -> DataSource:
    return DataSource(str(path), label=label, positive="1", columns=(column,))


def read(path: Path, column: str = "s", label: str | None = "y") -> Samples:
    return read_samples(SERIAL, source(path, column, label), 3)


def refusal(path: Path, column: str = "s", label: str | None = "y") -> str:
    with pytest.raises(UserError) as caught:
        read(path, column, label)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# Numbers that nobody stored. Each writer puts a dataset `s` of VALUES, or of what is there of them, beside `y` and `t`.


def chunked(file: h5py.File, **options: Any) -> None:
    file.create_dataset("s", data=VALUES, chunks=(3,), **options)


def with_a_hole(file: h5py.File, **options: Any) -> None:
    stored = file.create_dataset("s", (N,), "f8", chunks=(3,), **options)
    stored[:3], stored[6:] = VALUES[:3], VALUES[6:]


def extended(file: h5py.File) -> None:
    file.create_dataset("s", data=VALUES[:6], chunks=(3,), maxshape=(None,))
    file["s"].resize((N,))


def matrix_with_a_hole(file: h5py.File) -> None:
    file.create_dataset("s", (N, 1), "f8", chunks=(4, 1))[:8, 0] = VALUES[:8]


def external(file: h5py.File, n_bytes: int | None = 40) -> None:
    folder = Path(file.filename).parent
    os.chdir(folder)
    parts = [("1.raw", 0, 40), ("2.raw", 8, ANY)]
    file.create_dataset("s", data=VALUES, external=parts)
    file.flush()
    if n_bytes is None:
        (folder / "2.raw").unlink()
    else:
        os.truncate(folder / "2.raw", 8 + n_bytes)


def virtual(
    file: h5py.File, *parts: tuple[slice, str, slice], stored: np.ndarray = VALUES, name: str = "s", grows: bool = False
) -> None:
    """Write a virtual dataset of parts of `a.h5` or of this file itself (``.``)."""
    with h5py.File(Path(file.filename).parent / "a.h5", "w") as other:
        other.create_dataset("t", data=stored, maxshape=(None,))
    layout = h5py.VirtualLayout((N,), "f8", maxshape=(None,) if grows else None)
    for to, where, of in parts:
        shown = h5py.VirtualSource(*where.split(":"), (N,), maxshape=(None,))
        layout[to] = shown[of]
    file.create_virtual_dataset(name, layout, fillvalue=-1.0)


def of_a_pattern(file: h5py.File, n_files: int = 2) -> None:
    folder = Path(file.filename).parent
    for j in range(n_files):
        with h5py.File(folder / f"part-{j}.h5", "w") as part:
            part["t"] = VALUES[j * 5 : j * 5 + 5]
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    space = h5py.h5s.create_simple((N,), (ANY,))
    space.select_hyperslab((0,), (ANY,), (5,), (5,))
    properties.set_virtual(space, b"part-%b.h5", b"t", h5py.h5s.create_simple((5,)))
    h5py.h5d.create(file.id, b"s", h5py.h5t.IEEE_F64LE, space, properties)


def virtual_of_a_hole(file: h5py.File) -> None:
    file.create_dataset("hole", (N,), "f8", chunks=(3,))[:3] = VALUES[:3]
    virtual(file, (np.s_[:], ".:hole", np.s_[:]))


def in_a_circle(file: h5py.File, n: int, grows: bool = False) -> None:
    names = ["s", *(f"s{j}" for j in range(1, n))]
    for j, name in enumerate(names):
        whole = np.s_[0:ANY] if grows else np.s_[:]
        virtual(file, (whole, f".:{names[(j + 1) % n]}", whole), name=name, grows=grows)


def with_an_unknown_filter(file: h5py.File) -> None:
    file.create_dataset("s", (N,), "f8", chunks=(N,), compression=32015, allow_unknown_filter=True)
    file["s"].id.write_direct_chunk((0,), VALUES.tobytes())


def with_a_name_for(path: str) -> Callable[[h5py.File], None]:
    def write(file: h5py.File) -> None:
        file["elsewhere"] = VALUES
        file["s"] = h5py.SoftLink(path)

    return write


ALL, HALF, REST = np.s_[:], np.s_[:5], np.s_[5:]
WHOLE: dict[str, Callable[[h5py.File], None]] = {
    "contiguous": lambda file: file.create_dataset("s", data=VALUES),
    "early": lambda file: file.create_dataset("s", (N,), "f8", fillvalue=70.0).__setitem__(slice(None), VALUES),
    "chunked": chunked,
    "packed": lambda file: chunked(file, compression="gzip", shuffle=True, fletcher32=True),
    "lzf": lambda file: chunked(file, compression="lzf"),
    "shrunk": lambda file: (file.create_dataset("s", data=np.arange(99.0), chunks=(3,)), file["s"].resize((N,))),
    "matrix": lambda file: file.create_dataset("s", data=VALUES[:, None], chunks=(3, 1), maxshape=(None, None)),
    "external": external,
    "virtual": lambda file: virtual(file, (ALL, "a.h5:t", ALL)),
    "virtual in halves": lambda file: virtual(file, (HALF, "a.h5:t", HALF), (REST, "a.h5:t", REST)),
    "virtual in turns": lambda file: virtual(
        file, (np.s_[::2], "a.h5:t", np.s_[::2]), (np.s_[1::2], "a.h5:t", np.s_[1::2])
    ),
    "virtual, overlapping": lambda file: virtual(file, (ALL, "a.h5:t", ALL), (HALF, "a.h5:t", HALF)),
    "virtual of this file": lambda file: (file.create_dataset("t2", data=VALUES), virtual(file, (ALL, ".:t2", ALL))),
    "virtual that grows": lambda file: virtual(file, (np.s_[0:ANY], "a.h5:t", np.s_[0:ANY]), grows=True),
    "virtual of a pattern": of_a_pattern,
    "virtual of a virtual": lambda file: (
        virtual(file, (ALL, "a.h5:t", ALL), name="first"),
        virtual(file, (ALL, ".:first", ALL)),
    ),
}
NEVER = "would read as fill values: write"
ABSENT: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "never written": (lambda file: file.create_dataset("s", (N,), "f8"), f"was never written, and {NEVER} it"),
    "a chunk": (with_a_hole, f"lacks 1 of its 4 chunks, which {NEVER} them"),
    "a packed chunk": (lambda file: with_a_hole(file, compression="gzip", fillvalue=3.0), "lacks 1 of its 4 chunks"),
    "a chunk, extensible": (lambda file: with_a_hole(file, maxshape=(None,)), "lacks 1 of its 4 chunks"),
    "all chunks": (lambda file: file.create_dataset("s", (N,), "f8", chunks=(3,)), "lacks 4 of its 4 chunks"),
    "extended": (extended, "lacks 2 of its 4 chunks"),
    "of a matrix": (matrix_with_a_hole, "lacks 1 of its 3 chunks"),
    "an external file": (lambda file: external(file, None), "lies in the file '2.raw', which is not there: put it"),
    "external bytes": (lambda file: external(file, 39), "lies in the file '2.raw', which has 47 bytes of 48: write it"),
    "a source file": (
        lambda file: virtual(file, (HALF, "a.h5:t", HALF), (REST, "b.h5:t", REST)),
        "is virtual, and its source 't' of 'b.h5' is not there, or can't be opened: put it back",
    ),
    "a source dataset": (lambda file: virtual(file, (ALL, "a.h5:u", ALL)), "its source 'u' of 'a.h5' is not there"),
    "a region": (lambda file: virtual(file, (HALF, "a.h5:t", HALF)), "and 5 of its 10 values have no source: map them"),
    "a region, overlapping": (
        lambda file: virtual(file, (HALF, "a.h5:t", HALF), (HALF, "a.h5:t", REST)),
        "and 5 of its 10 values have no source",
    ),
    "rows of a source": (
        lambda file: virtual(file, (ALL, "a.h5:t", ALL), stored=VALUES[:7]),
        "its source 't' of 'a.h5' has only 7 values for 10: write them",
    ),
    "rows of a source that grows": (
        lambda file: (
            file.create_dataset("short", data=VALUES[:3], maxshape=(None,)),
            virtual(
                file,
                (np.s_[0:ANY:2], "a.h5:t", np.s_[0:ANY]),
                (np.s_[1:ANY:2], ".:short", np.s_[0:ANY]),
                grows=True,
                stored=VALUES[:5],
            ),
        ),
        "its source 'short' has only 3 values for 4: write them",
    ),
    "chunks of a source": (virtual_of_a_hole, "its source 'hole' lacks 3 of its 4 chunks"),
    "itself": (lambda file: in_a_circle(file, 1), "its source 's' is a virtual dataset of itself"),
    "itself, growing": (lambda file: in_a_circle(file, 1, grows=True), "is a virtual dataset of itself"),
    "itself over another": (lambda file: in_a_circle(file, 2), "is a virtual dataset of itself"),
    "itself over many": (lambda file: in_a_circle(file, 40), "is a virtual dataset of itself, or of virtual ones over"),
    "a filter": (with_an_unknown_filter, "is compressed with the filter 'zstd' (number 32015), which HDF5 lacks here"),
}


def write(path: Path, put: Callable[[h5py.File], Any], libver: str | None = None) -> Path:
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("y", data=LABELS)
        file.create_dataset("u", data=VALUES)
        put(file)
    return path


@pytest.mark.parametrize("libver", [None, "latest"])
@pytest.mark.parametrize("case", WHOLE)
def test_whole_datasets_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, libver: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    samples = read(write(tmp_path / "t.h5", WHOLE[case], libver))
    assert_array_equal(samples.x, VALUES[1::2])
    assert_array_equal(samples.z, VALUES[::2])


@pytest.mark.parametrize("libver", [None, "latest"])
@pytest.mark.parametrize("case", ABSENT)
def test_numbers_that_nobody_stored_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, libver: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    put, message = ABSENT[case]
    path = write(tmp_path / "t.h5", put, libver)
    told = refusal(path)
    assert told.startswith("'t.h5': dataset 's' ")
    assert message in told
    if "grows" not in case:  # it has another length
        assert refusal(path, "all").startswith("'t.h5': dataset ")
    assert refusal(path, "u", "s") == told  # as a label
    assert len(read(path, "u").x) == N / 2  # and other columns are none the worse for it


@pytest.mark.parametrize("case", ["contiguous", "a chunk", "never written"])
def test_matlab_files_are_looked_at_too(tmp_path: Path, case: str) -> None:
    path = tmp_path / "t.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["y"] = LABELS[None]
        stored = file.create_dataset("s", (1, N), "f8", chunks=(1, 3) if case == "a chunk" else None)
        if case != "never written":
            stored[0, : N if case == "contiguous" else 4] = VALUES[: N if case == "contiguous" else 4]
    with open(path, "r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(512))
    if case == "contiguous":
        assert_array_equal(read(path).x, VALUES[1::2])
    else:
        assert f", which {NEVER}" in refusal(path) or f", and {NEVER}" in refusal(path)


def test_one_hole_in_several_files(tmp_path: Path) -> None:
    write(tmp_path / "part-1.h5", chunked)
    write(tmp_path / "part-2.h5", with_a_hole)
    assert refusal(tmp_path / "part-*.h5").startswith("'part-2.h5': dataset 's' lacks 1 of its 4 chunks")


def test_what_has_no_numbers_to_lose(tmp_path: Path) -> None:
    def put(file: h5py.File) -> None:
        chunked(file)
        file["scalar"] = 1.0
        file.create_dataset("unset", (), "f8")
        file["null"] = h5py.Empty("f8")
        file.create_dataset("none", (0,), "f8")
        file.create_dataset("no chunks", (0, 2), "f8", chunks=True, maxshape=(None, 2))

    assert_array_equal(read(write(tmp_path / "t.h5", put)).x, VALUES[1::2])


@pytest.mark.parametrize("attribute", ["_FillValue", "missing_value"])
@pytest.mark.parametrize(
    ("kind", "declared", "row"),
    [
        ("f8", -999.0, 4),
        ("f4", np.float32([-999.9]), 4),
        (">f4", np.float64(-999.9), 4),
        ("i2", np.int16([[-1, -999]]), 4),
        ("u1", 255, 4),
        ("i4", -999.0, 4),
        ("f4", "none", None),
        ("i2", -999.5, None),  # which no integer is
        ("u1", 255 + 256, None),
        ("f8", -998.0, None),
        ("f8", np.nan, None),
        ("f8", "none", None),
    ],
)
def test_a_declared_value_is_none(tmp_path: Path, attribute: str, kind: str, declared: Any, row: int | None) -> None:
    def put(file: h5py.File) -> None:
        values = VALUES.astype(kind)
        values[4] = 255 if kind == "u1" else -999.9 if "f4" in kind else -999
        file.create_dataset("s", data=values).attrs[attribute] = declared
        virtual(file, (ALL, ".:s", ALL), name="shown")

    path = write(tmp_path / "t.h5", put)
    for column in ("s", "shown"):
        if row is None:
            assert len(read(path, column).x) == N / 2
            continue
        told = refusal(path, column)
        assert told.startswith(f"'t.h5', row {row} (counted from 0): column '{column}' is ")
        assert told.endswith(
            f", which its attribute {attribute} declares to be missing: remove the row or fill in the value"
        )


@pytest.mark.parametrize("chunks", [None, (N,), (4,)])
@pytest.mark.parametrize(("kind", "fill", "row"), [("f8", -999.0, 6), (">f4", 9.969209968386869e36, 6), ("i4", -1, 6)])
def test_a_fill_value_in_a_part_that_was_not_written_is_none(
    tmp_path: Path, kind: str, fill: float, row: int, chunks: tuple[int, ...] | None
) -> None:
    def put(file: h5py.File) -> None:
        file.create_dataset("s", (N,), kind, chunks=chunks, fillvalue=fill)
        file["s"][:6], file["s"][9:] = np.arange(6), 7
        if chunks == (4,):
            file["s"][8] = 0
        virtual(file, (ALL, ".:s", ALL), name="shown")

    path = write(tmp_path / "t.h5", put)
    for column in ("s", "shown"):
        told = refusal(path, column)
        assert told.startswith(f"'t.h5', row {row} (counted from 0): column '{column}' is ")
        assert "which the fill value of its dataset declares to be missing" in told


@pytest.mark.parametrize(("kind", "fill"), [("f8", 0.0), ("u1", 7), ("?", True), ("f8", np.nan), ("i4", 8)])
def test_a_fill_value_that_is_usual_or_nowhere_is_none_to_refuse(tmp_path: Path, kind: str, fill: Any) -> None:
    def put(file: h5py.File) -> None:
        file.create_dataset("s", data=(np.arange(N) % 8).astype(kind), fillvalue=fill)

    assert len(read(write(tmp_path / "t.h5", put)).x) == N / 2


def test_what_a_virtual_dataset_declares_itself_counts_too(tmp_path: Path) -> None:
    def put(file: h5py.File) -> None:
        virtual(file, (ALL, "a.h5:t", ALL))
        file["s"].attrs["_FillValue"] = VALUES[4]

    assert "row 4 (counted from 0): column 's' is " in refusal(write(tmp_path / "t.h5", put))


BEHIND: dict[str, tuple[Callable[[h5py.File], None], str]] = {
    "a link": (lambda file: link_to_hole(file), "a.h5"),
    "virtual": (lambda file: virtual(file, (ALL, "a.h5:t", ALL)), "a.h5"),
    "external bytes": (external, "2.raw"),
}


def link_to_hole(file: h5py.File) -> None:
    virtual(file, (ALL, "a.h5:t", ALL), name="unused")
    file["s"] = h5py.ExternalLink("a.h5", "t")


@pytest.mark.parametrize("case", BEHIND)
def test_files_behind_that_are_others_where_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    put, behind = BEHIND[case]
    table = scan(str(write(tmp_path / "t.h5", put)))
    columns = [column for column in table.columns if column.name == "s"]
    assert_array_equal(table.read(columns, None, 0, N).values[:, 0], VALUES)
    before = os.stat(behind)
    os.utime(behind, ns=(before.st_atime_ns, before.st_mtime_ns + 10**10))
    with pytest.raises(UserError, match=f"'{behind}' has another time of its last change than when its rows were"):
        table.read(columns, None, 0, N)
    if behind == "2.raw":
        os.truncate(behind, 9)
    else:
        with h5py.File(behind, "w") as file:
            file.create_dataset("t", (N,), "f8", chunks=(2,), maxshape=(None,))[:2] = VALUES[:2]
    os.utime(behind, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match=r"dataset 's' .*(lacks \d of its \d chunks|has 9 bytes of)"):
        table.read(columns, None, 0, N)


def test_a_declared_label_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "t.h5", chunked)
    with h5py.File(path, "a") as file:
        file["y"].attrs["_FillValue"] = np.int64(1)
        file["word"] = ["cat", "dog"] * (N // 2)
        file["short"] = np.array([b"cat", b"dog"] * (N // 2))
        file["short"].attrs["missing_value"] = "dog"
        file["word"].attrs["missing_value"] = "dog"
    assert "row 1 (counted from 0): column 'y' is 1, which its attribute _FillValue declares" in refusal(path)
    for label in ("word", "short"):
        assert f"row 1 (counted from 0): column '{label}' is dog, which its attribute" in refusal(path, label=label)


@pytest.mark.parametrize(("attribute", "neutral"), [("scale_factor", 1.0), ("add_offset", 0)])
def test_packed_numbers_of_netcdf(tmp_path: Path, attribute: str, neutral: float) -> None:
    def put(file: h5py.File) -> None:
        file["s"], file["same"] = VALUES, VALUES
        file["s"].attrs[attribute] = np.float32([0.5])
        file["same"].attrs[attribute] = neutral
        virtual(file, (ALL, ".:s", ALL), name="shown")

    path = write(tmp_path / "t.h5", put)
    for name in ("s", "shown"):
        assert f"'t.h5': dataset '{name}' has the attribute {attribute}, by which other numbers" in refusal(path, name)
    assert_array_equal(read(path, "same").x, VALUES[1::2])


def test_a_dimension_of_netcdf_is_no_column(tmp_path: Path) -> None:
    def put(file: h5py.File) -> None:
        chunked(file)
        file.create_dataset("n", (N,), "f4").attrs["CLASS"] = np.bytes_(b"DIMENSION_SCALE")
        file["n"].attrs["NAME"] = np.bytes_(b"This is a netCDF dimension but not a netCDF variable.        10")
        del file["u"]

    assert_array_equal(read(write(tmp_path / "t.h5", put), "all").x, VALUES[1::2])


def test_packed_chunks_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 would unpack one that is too large for its cache as often as a part of it is read."""
    monkeypatch.setattr("mpi_ustat.storage.arrays.ROWS_AT_A_TIME", 700)
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        for name, data in (("s", np.arange(1e5)), ("y", np.arange(100_000) % 3 == 1)):
            file.create_dataset(name, data=data, chunks=(100_000,), compression="gzip")
        file.create_dataset("small", data=np.arange(1e5), chunks=(30_000,), compression="lzf")
    with hdf5.opened(str(path)) as arrays:
        assert {name: array.rows_at_a_time for name, array in arrays.items()} == {
            "s": 100_000,
            "small": 90_000,
            "y": 100_000,
        }
    assert_array_equal(read(path).x, np.arange(1.0, 1e5, 3))


# ---------------------------------------------------------------------------------------------------------------------
# Links


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["g/far"] = VALUES * 10
        file["g/up"] = h5py.ExternalLink("t.h5", "/")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["raw/score"] = VALUES
        file["raw/y"] = LABELS
        file["raw/two"] = np.column_stack([VALUES, -VALUES])
        file["raw/loop"] = file["raw"]
        file["raw/around"] = h5py.SoftLink("/raw")
        file["again"] = file["raw/score"]
        file["a soft one"] = h5py.SoftLink("raw/score")
        file["latest"] = h5py.SoftLink("/raw")
        file["a/b/two"] = file["raw/two"]
        file["far"] = h5py.ExternalLink("other.h5", "/g/far")
        file["others"] = h5py.ExternalLink("other.h5", "/g")
        file["own"] = h5py.ExternalLink("t.h5", "/raw")
        file["gone"] = h5py.SoftLink("/nowhere")
        file["gone far"] = h5py.ExternalLink("nowhere.h5", "/x")
        file["ping"] = h5py.SoftLink("/pong")
        file["pong"] = h5py.SoftLink("/ping")
    return tmp_path / "t.h5"


@pytest.mark.parametrize(
    "name",
    [
        "raw/score",
        "/raw/score",
        "again",
        "/again",
        "a soft one",
        "latest/score",
        "raw/loop/around/loop/score",
        "own/score",
        "others/up/raw/score",
        "raw/two[0]",
        "latest/two[0]",
        "/a/b/two[0]",
        "0",
    ],
)
def test_links_are_further_names(linked: Path, name: str) -> None:
    assert_array_equal(read(linked, name, "own/y").x, VALUES[1::2])
    assert read(linked, "all", "latest/y").x.shape == (N // 2, 4)  # everything once


def test_links_to_other_files_lead_there(linked: Path) -> None:
    assert_array_equal(read(linked, "far", "raw/y").x, VALUES[1::2] * 10)
    assert_array_equal(read(linked, "others/far", "raw/y").x, VALUES[1::2] * 10)


def test_a_label_by_another_name_is_no_data(linked: Path) -> None:
    assert "is the label: leave it out of the data columns" in refusal(linked, "latest/y", "raw/y")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gone", "a link to '/nowhere', which is not there or can't be opened"),
        ("gone far", "a link to '/x' of 'nowhere.h5', which is not there or can't be opened"),
        ("ping", "a link to '/pong', which is not there or can't be opened"),
    ],
)
def test_links_that_lead_nowhere(linked: Path, name: str, what: str) -> None:
    assert f"column '{name}' of 't.h5' holds {what}, not numbers" in refusal(linked, name, "raw/y")
    assert f"the label column '{name}' of 't.h5' holds {what}: convert" in refusal(linked, "raw/score", name)


def test_links_of_a_kind_that_is_not_known_lead_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        file["score"] = VALUES
        file["y"] = LABELS
        file["odd"] = h5py.ExternalLink("other.h5", "/g")
    external, unknown = b"\x40\x03odd", b"\x41\x03odd"  # the type of a link, and the length of its name
    assert path.read_bytes().count(external) == 1
    path.write_bytes(path.read_bytes().replace(external, unknown))
    assert_array_equal(read(path, "score", "y").x, VALUES[1::2])
    assert "column 'odd' of 't.h5' holds something that can't be opened, not numbers" in refusal(path, "odd", "y")


def test_links_of_several_files_lead_to_the_same(tmp_path: Path) -> None:
    for j in (1, 2):
        with h5py.File(tmp_path / f"part-{j}.h5", "w") as file:
            file["a"], file["b"], file["y"] = VALUES, -VALUES, LABELS
            file["same"], file["other"] = h5py.SoftLink("/a"), h5py.SoftLink("/ab"[j : j + 1] or "/a")
    assert_array_equal(read(tmp_path / "part-*.h5", "same").x, np.tile(VALUES[1::2], 2))
    assert "has no column 'other'" in refusal(tmp_path / "part-*.h5", "other")


# ---------------------------------------------------------------------------------------------------------------------
# Types


def put_of_no_type(file: h5py.File) -> None:
    h5py.h5d.create(file.id, b"odd", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((N,)))


UNUSABLE: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "time": (put_of_no_type, "values of a type that NumPy doesn't have"),
    "compound": (
        lambda file: file.create_dataset("odd", data=np.zeros(N, [("a", "f8"), ("b", "i4")])),
        "compound values of the fields a, b",
    ),
    "references": (
        lambda file: file.create_dataset("odd", (N,), h5py.ref_dtype).__setitem__(0, file["y"].ref),
        "references",
    ),
    "regions": (lambda file: file.create_dataset("odd", (N,), h5py.regionref_dtype), "references"),
    "sequences": (lambda file: file.create_dataset("odd", (N,), h5py.vlen_dtype("f8")), "sequences of any length"),
    "opaque": (lambda file: file.create_dataset("odd", data=np.zeros(N, "V4")), "opaque bytes"),
    "dates": (
        lambda file: file.create_dataset("odd", data=np.zeros(N, "M8[s]").astype(h5py.opaque_dtype("M8[s]"))),
        "values of type datetime64[s]",
    ),
    "arrays": (lambda file: file.create_dataset("odd", (N,), "(3,)f8"), "values of type ('<f8', (3,))"),
    "complex": (lambda file: file.create_dataset("odd", data=VALUES * 1j), "values of type complex128"),
    "text": (lambda file: file.create_dataset("odd", data=["a"] * N), "text"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_types_that_are_no_numbers(tmp_path: Path, case: str) -> None:
    put, what = UNUSABLE[case]
    path = write(tmp_path / "t.h5", put)
    assert_array_equal(read(path, "all").x, VALUES[1::2])
    assert f"column 'odd' of 't.h5' holds {what}, not numbers" in refusal(path, "odd")


def put_scaled(file: h5py.File) -> None:
    file.create_dataset("s", data=VALUES, chunks=(4,), scaleoffset=2)


USABLE: dict[str, Callable[[h5py.File], Any]] = {
    "big-endian": lambda file: file.create_dataset("s", data=VALUES.astype(">f8")),
    "half": lambda file: file.create_dataset("s", data=VALUES.astype(">f2")),
    "long double": lambda file: file.create_dataset("s", data=VALUES.astype(np.longdouble)),
    "enumerated": lambda file: file.create_dataset(
        "s", data=VALUES.astype("i2"), dtype=h5py.enum_dtype({f"n{j}": j for j in range(N)}, "i2")
    ),
    "scaled": put_scaled,
    "a bit field": lambda file: h5py.h5d.create(file.id, b"s", h5py.h5t.STD_B8LE, h5py.h5s.create_simple((N,))).write(
        h5py.h5s.ALL, h5py.h5s.ALL, VALUES.astype("u1"), h5py.h5t.STD_B8LE
    ),
}


@pytest.mark.parametrize("case", USABLE)
def test_types_that_are_numbers(tmp_path: Path, case: str) -> None:
    assert_array_equal(read(write(tmp_path / "t.h5", USABLE[case])).x, VALUES[1::2])


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.astype(bool),
        LABELS.astype(">i8"),
        LABELS.astype("f2"),
        [str(label) for label in LABELS],
        np.array([str(label) for label in LABELS], "S1"),
        np.array([f"{label}   " for label in LABELS], "S4"),
        np.array([f"{label}.0" for label in LABELS], h5py.string_dtype("ascii")),
        LABELS.astype("u1").astype(h5py.enum_dtype({"no": 0, "yes": 1}, "u1")),
    ],
)
def test_types_of_labels(tmp_path: Path, labels: Any) -> None:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        file["s"], file["y"] = VALUES, labels
    assert_array_equal(read(path).x, VALUES[1::2])


# ---------------------------------------------------------------------------------------------------------------------
# Labels take a byte


@pytest.mark.parametrize(
    ("suffix", "labels"),
    [(".h5", "i8"), (".h5", "f8"), (".h5", "?"), (".h5", "S1"), (".npz", "i8"), (".npy", "f8")],
)
def test_labels_take_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, labels: str) -> None:
    """At most 2.5 times what the scores do."""
    monkeypatch.setattr("mpi_ustat.storage.stored.StoredArray.rows_at_a_time", 4096)
    monkeypatch.setattr("mpi_ustat.storage.data.ROWS_AT_A_TIME", 4096)
    n = 400_000
    path = tmp_path / f"t{suffix}"
    scores, y = np.arange(float(n)), (np.arange(n) % 3 == 0).astype("i8").astype(labels)
    if suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["s"], file["y"] = scores, y
    elif suffix == ".npz":
        np.savez(path, s=scores, y=y)
    else:
        np.save(path, np.column_stack([scores, y]))
    given = ("0", "1") if suffix == ".npy" else ("s", "y")
    read(path, *given)  # what is imported for it
    tracemalloc.start()
    samples = read(path, *given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_array_equal(samples.x, np.arange(0.0, n, 3))
    assert peak < 2.5 * 8 * n


def test_labels_that_appear_late_and_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than a byte has values, in blocks of which none has all."""
    monkeypatch.setattr("mpi_ustat.storage.stored.StoredArray.rows_at_a_time", 100)
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        file["s"], file["y"] = np.arange(70_000.0), np.arange(70_000) // 2
    samples = read_samples(SERIAL, DataSource(str(path), label="y", classes=("7", "299", "34999")), 3)
    assert [rows.tolist() for rows in samples.rows] == [[14.0, 15.0], [598.0, 599.0], [69998.0, 69999.0]]


# ---------------------------------------------------------------------------------------------------------------------
# Files that somebody else writes, or that keep HDF5 busy for ever


HOLD = """
import sys, h5py
with h5py.File(sys.argv[1], "w", libver=sys.argv[2] or None) as file:
    file["s"] = [1.0, 2.0]
    if sys.argv[2]:
        file.flush()
    print("open", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("libver", ["", "latest"])
def test_a_file_that_is_open_elsewhere(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "t.h5"
    words = [sys.executable, "-c", HOLD, str(path), libver]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        told = "'t.h5' is open in another program: wait until that has closed it"
        assert refusal(path).startswith(told)
        with pytest.raises(UserError, match=told):
            results.load(path)
        process.kill()
    if libver:  # which marks files that are open
        assert refusal(path).startswith("'t.h5' is marked as open for writing: close it in the program that writes it")


def test_a_damaged_string_heap(tmp_path: Path, mpirun: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """On which HDF5 never comes to an end: that of a text whose length takes it nowhere."""
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        file["s"], file["y"] = VALUES, ["cat", "dog"] * (N // 2)
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    struct.pack_into("<Q", data, heap + 24, 2**64 - 16)
    path.write_bytes(data)
    done = mpirun(0, "estimate", path, "--label", "y", "--positive", "cat", "--timeout", 0.5, timeout=30)
    assert done.returncode == 1
    assert "no progress for 0.5 s in phase 'reading t.h5'" in done.stderr
    assert done.stderr.endswith("give a longer --timeout if it needs longer, or check the file: it may be damaged\n")


# ---------------------------------------------------------------------------------------------------------------------
# At every number of ranks


@pytest.mark.parametrize("case", ["virtual in halves", "packed", "a chunk", "itself", "external bytes"])
def test_on_every_rank(comm: Any, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(shared_tmp_path)
    path = shared_tmp_path / "t.h5"
    if comm.rank == 0:
        write(path, WHOLE[case] if case in WHOLE else ABSENT[case][0])
    comm.barrier()
    if case in ABSENT:
        with pytest.raises(UserError) as caught:
            read_samples(comm, source(path), 5)
        assert str(caught.value).startswith("'t.h5': dataset 's' ")
        return
    samples = read_samples(comm, source(path), 5)
    assert len(samples.sizes[0]) == len(hosted_workers(5, comm.size, comm.rank))
    assert_array_equal(np.concatenate(comm.allgather(samples.x)), VALUES[1::2])
