"""Rows that were counted are read, or refused: files that change or differ between ranks; pipes and devices."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_array_equal

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.storage import data, delimited, results
from mpi_ustat.storage.data import DataSource, read_samples
from mpi_ustat.storage.formats import scan
from mpi_ustat.storage.table import FileTable

SERIAL = SerialComm()
OTHER = "than when its rows were counted: it changed meanwhile, or hosts have different files"


def write_text(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def write_csv(path: Path, rows: np.ndarray) -> None:
    write_text(path, "s,y\n" + "".join(f"{s!r},{y:.0f}\n" for s, y in rows.tolist()))


def write_libsvm(path: Path, rows: np.ndarray) -> None:
    write_text(path, "".join(f"{y:.0f} 1:{s!r}\n" for s, y in rows.tolist()))


def write_hdf5(path: Path, rows: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["s"], file["y"] = rows.T


def write_parquet(path: Path, rows: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"s": rows[:, 0], "y": rows[:, 1]}), path, row_group_size=4)


WRITERS: dict[str, Callable[[Path, np.ndarray], None]] = {
    "a.csv": write_csv,
    "a.tsv.gz": write_csv,
    "a.libsvm": write_libsvm,
    "a.svm.gz": write_libsvm,
    "a.npy": np.save,
    "a.npz": lambda path, rows: np.savez(path, s=rows[:, 0], y=rows[:, 1]),
    "packed.npz": lambda path, rows: np.savez_compressed(path, X=rows),
    "fortran.npy": lambda path, rows: np.save(path, np.asfortranarray(rows)),
    "a.mat": lambda path, rows: scipy.io.savemat(path, {"X": rows}),
    "a.h5": write_hdf5,
    "a.parquet": write_parquet,
}
needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="the package pyarrow is not installed")
FORMATS = [pytest.param(name, marks=needs_pyarrow if name.endswith("parquet") else ()) for name in WRITERS]


def rows_of(n: int, offset: float = 0.0) -> np.ndarray:
    return np.column_stack([np.arange(n) / 4 + offset, np.arange(n) % 2])


def source_of(path: Path, *, labelled: bool) -> DataSource:
    by_number = path.suffix in (".npy", ".mat") or path.name == "packed.npz"
    column, label = ("1", "label") if "svm" in path.name else ("0", "1") if by_number else ("s", "y")
    return DataSource(str(path), label=label if labelled else None, one_sample=not labelled, columns=(column,))


@pytest.fixture
def before_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen between the scan of a file and the reading of its rows."""

    def register(happen: Callable[[], None]) -> None:
        def choose(*arguments: Any, **options: Any) -> Any:
            happen()
            return original(*arguments, **options)

        original = data.choose
        monkeypatch.setattr(data, "choose", choose)

    return register


CHANGES: dict[str, Callable[[str, Path], None]] = {
    "shorter": lambda name, path: WRITERS[name](path, rows_of(7)),
    "a single row": lambda name, path: WRITERS[name](path, rows_of(1)),
    "longer": lambda name, path: WRITERS[name](path, rows_of(30)),
    "cut off": lambda name, path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda name, path: path.write_bytes(b""),
    "another": lambda name, path: os.utime(path, ns=(0, 0)),
}


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_changes_after_its_rows_were_counted(
    tmp_path: Path, before_reading: Any, name: str, change: str, labelled: bool
) -> None:
    path = tmp_path / name
    WRITERS[name](path, rows_of(12))
    before_reading(lambda: CHANGES[change](name, path))
    with pytest.raises(UserError, match=f"'{name}' has another (size|time of its last change) {OTHER}"):
        read_samples(SERIAL, source_of(path, labelled=labelled), 3)


@pytest.mark.parametrize("n_rows", [1, 11])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_every_reader_compares_its_rows_with_those_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, labelled: bool, n_rows: int
) -> None:
    """Also where nothing else tells that the file is another one."""
    path = tmp_path / name
    WRITERS[name](path, rows_of(12))
    table = scan(str(path))
    WRITERS[name](path, rows_of(n_rows))
    monkeypatch.setattr("mpi_ustat.storage.opening.compare", lambda *arguments: None)
    monkeypatch.setattr(data, "_table", lambda *arguments: table)
    with pytest.raises(UserError, match=f"'{name}' has another number of (rows|lines) {OTHER}"):
        read_samples(SERIAL, source_of(path, labelled=labelled), 3)


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("name", ["a.csv", "a.libsvm", "a.npy", "a.h5"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, refuses: bool
) -> None:
    """What the reader makes of it doesn't matter, nor whether it refuses it."""
    path = tmp_path / name
    WRITERS[name](path, rows_of(12))
    reader = type(scan(str(path)))
    original = reader._read

    def read(self: Any, *arguments: Any) -> Any:
        found = original(self, *arguments)
        os.utime(path, ns=(0, 0))
        if refuses:
            raise UserError("half a line")
        return found

    monkeypatch.setattr(reader, "_read", read)
    with pytest.raises(UserError, match=f"'{name}' has another time of its last change {OTHER}"):
        read_samples(SERIAL, source_of(path, labelled=False), 3)


@pytest.mark.parametrize(
    ("counted", "read", "same"),
    [
        (5_250_000_000, 5_250_000_000, True),
        (5_250_000_000, 5_000_000_000, True),  # a copy that keeps whole seconds only
        (5_000_000_000, 5_250_000_000, True),
        (5_250_000_000, 5_500_000_000, False),
        (5_250_000_000, 6_000_000_000, False),
        (5_000_000_000, 6_000_000_000, False),
    ],
)
def test_times_of_copies(tmp_path: Path, before_reading: Any, counted: int, read: int, same: bool) -> None:
    path = tmp_path / "a.csv"
    write_csv(path, rows_of(4))
    os.utime(path, ns=(counted, counted))
    before_reading(lambda: os.utime(path, ns=(read, read)))
    if same:
        assert len(read_samples(SERIAL, source_of(path, labelled=False), 1).rows[0]) == 4
    else:
        with pytest.raises(UserError, match="another time of its last change"):
            read_samples(SERIAL, source_of(path, labelled=False), 1)


def test_a_file_that_grows_while_its_rows_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    write_csv(path, rows_of(12))

    def count(*arguments: Any) -> Any:
        found = original(*arguments)
        with path.open("a") as stream:
            stream.write("1.0,1\n")
        return found

    original = delimited.count_lines
    monkeypatch.setattr("mpi_ustat.storage.delimited.count_lines", count)
    with pytest.raises(UserError, match=OTHER):
        read_samples(SERIAL, source_of(path, labelled=False), 3)


@pytest.fixture
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this rank's own, in which it works: as a rank on another host, which has another disk."""
    folder = tmp_path_factory.mktemp("host")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(("labelled", "several"), [(False, False), (True, True)])
@pytest.mark.parametrize("name", FORMATS)
def test_ranks_with_different_files(comm: Any, own_folder: Path, name: str, labelled: bool, several: bool) -> None:
    """The last rank is behind: refused on all; copies are welcome."""
    path = own_folder / name
    WRITERS[name](path, rows_of(40))
    os.utime(path, ns=(10**18, 10**18))
    source = source_of(Path(name), labelled=labelled)
    if several:
        source = DataSource((name, name), source.label, one_sample=not labelled, columns=source.columns)
    whole = read_samples(comm, source, 5)
    assert sum(comm.allgather(sum(map(len, whole.rows)))) == 40 * (1 + several)
    if comm.size == 1:
        return
    for change in ("shorter", "empty", "another", "longer", "absent"):
        if comm.rank == comm.size - 1:
            path.unlink() if change == "absent" else CHANGES[change](name, path)
        # Of several files the ranks count some each, so that one may see at once that something is wrong.
        with pytest.raises(UserError, match=f"'{name}'" if several or change == "absent" else f"'{name}' has another"):
            read_samples(comm, source, 5)


@pytest.mark.parametrize("name", ["a.csv", "a.libsvm"])
def test_a_file_that_is_read_again_gives_the_same(comm: Any, own_folder: Path, name: str) -> None:
    WRITERS[name](own_folder / name, rows_of(40))
    os.utime(own_folder / name, ns=(10**18, 10**18))
    found = comm.allgather(read_samples(comm, source_of(Path(name), labelled=False), 7).rows[0])
    assert_array_equal(np.concatenate(found), rows_of(40)[:, 0])


# ---------------------------------------------------------------------------------------------------------------------
# What is no file


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # names of sockets are short


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    SPECIAL[kind](tmp_path / name)
    pattern = str(tmp_path / f"*{name[1:]}")
    for path in (str(tmp_path / name), pattern, (str(tmp_path / name),) * 2):
        for source in (DataSource(path, label="y"), DataSource(x_path=path, z_path=path)):
            with pytest.raises(UserError, match=f"'.*{name}' is a {kind}, which can be read only once or without end"):
                read_samples(SERIAL, source, 1)


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_result_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    SPECIAL[kind](tmp_path / "r.h5")
    with pytest.raises(UserError, match=f"'r.h5' is a {kind}"):
        results.load("r.h5")


@pytest.mark.parametrize("command", ["estimate", "learn", "plan"])
def test_commands_refuse_pipes(tmp_path: Path, here: Any, command: str) -> None:
    os.mkfifo(tmp_path / "a.csv")
    done = here(command, tmp_path / "*.csv", "--label", "y")
    assert done.returncode == 2
    assert "is a pipe" in done.stderr


def test_no_rows_are_no_reading(tmp_path: Path) -> None:
    """Who reads no rows needs no file."""
    path = tmp_path / "a.csv"
    write_csv(path, rows_of(3))
    table = scan(str(path))
    assert isinstance(table, FileTable)
    path.unlink()
    assert table.read(table.columns[:1], table.columns[1], 2, 2).values.shape == (0, 1)
