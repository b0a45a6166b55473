"""Data from files, against other readers of them and against reading their bytes.

    mpiexec -n 2 python scripts/bench_reading.py

10⁷ rows of two scores with 17 digits and a label, as CSV, Parquet and HDF5. Printed: seconds by alternating runs, those
of this package by all ranks, each with its share of the rows, and of the others by rank 0 alone, which has the machine
to itself; and the peak memory of a rank, measured where Linux tells it. Readers that are not installed (pandas, Polars)
are left out. Files come from the page cache, which is warm: what is timed is decoding.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from _bench import alone, alternate, machine
from mpi4py import MPI

from mpi_ustat.storage.data import DataSource, read_samples

ROWS_AT_A_TIME = 1_000_000
NAMES = ("score", "other", "y")
Writer = Callable[[Path, tuple[np.ndarray, ...]], None]


def write_csv(path: Path, columns: tuple[np.ndarray, ...]) -> None:
    """Write columns with the shortest decimals that are the doubles."""
    with path.open("w") as file:
        file.write(",".join(NAMES) + "\n")
        for start in range(0, len(columns[0]), ROWS_AT_A_TIME):
            part = (column[start : start + ROWS_AT_A_TIME].tolist() for column in columns)
            file.writelines(f"{a!r},{b!r},{y}\n" for a, b, y in zip(*part, strict=True))


def write_parquet(path: Path, columns: tuple[np.ndarray, ...]) -> None:
    """Write columns of a Parquet file, uncompressed, as they are random."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(zip(NAMES, columns, strict=True)))
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=["y"])


def write_hdf5(path: Path, columns: tuple[np.ndarray, ...]) -> None:
    """Write columns as datasets."""
    with h5py.File(path, "w") as file:
        for name, column in zip(NAMES, columns, strict=True):
            file[name] = column


def read_bytes(path: Path) -> None:
    """Read a file and do nothing with it."""
    buffer = bytearray(1 << 22)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def with_pandas(path: Path) -> None:
    """Read a CSV file; of older versions the last digit may be wrong."""
    import pandas

    pandas.read_csv(path)


def with_polars(path: Path) -> None:
    """Read a CSV file with all processors."""
    import polars

    polars.read_csv(path)


def with_pyarrow(path: Path, *, threads: bool) -> None:
    """Read a CSV file."""
    from pyarrow import csv

    csv.read_csv(path, csv.ReadOptions(use_threads=threads))


def parquet_with_pyarrow(path: Path) -> None:
    """Read a Parquet file with one thread, into arrays."""
    from pyarrow import parquet

    table = parquet.read_table(path, use_threads=False)
    [column.to_numpy() for column in table.columns]


def hdf5_with_h5py(path: Path) -> None:
    """Read the datasets of an HDF5 file."""
    with h5py.File(path) as file:
        [file[name][:] for name in NAMES]


def main() -> None:
    """Print a line for each file and reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as own:
        folder = Path(comm.bcast(own))
        run(comm, folder, options.rows, options.runs)
        comm.barrier()


def run(comm: Any, folder: Path, n_rows: int, runs: int) -> None:
    """Write the files and read them."""
    writers: dict[str, Writer] = {"scores.csv": write_csv, "scores.h5": write_hdf5}
    if find_spec("pyarrow") is not None:
        writers["scores.parquet"] = write_parquet
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}; {n_rows} rows of 3 columns, medians of {runs} runs")

    def write() -> None:
        rng = np.random.default_rng(1)
        y = (rng.random(n_rows) < 0.2).astype(np.int8)
        columns = (rng.normal(size=n_rows) + y, rng.normal(size=n_rows), y)
        for name, writer in writers.items():
            writer(folder / name, columns)

    _in_child(comm, write)
    ours = {
        name: partial(read_samples, comm, DataSource(str(folder / name), label="y", columns=NAMES[:2]), comm.size)
        for name in writers
    }
    peaks = {name: _peak_of(comm, read) for name, read in ours.items()}
    others: dict[str, dict[str, Callable[[Path], None]]] = {
        ".csv": {
            "pandas": with_pandas,
            "polars, all cores": with_polars,
            "pyarrow, one thread": partial(with_pyarrow, threads=False),
            "pyarrow, all cores": partial(with_pyarrow, threads=True),
        },
        ".parquet": {"pyarrow, one thread": parquet_with_pyarrow},
        ".h5": {"h5py": hdf5_with_h5py},
    }
    for name in writers:
        path = folder / name
        theirs = {what: read for what, read in others[path.suffix].items() if find_spec(what.split(",")[0]) is not None}
        seconds = alternate(
            comm,
            {
                "mpi_ustat": ours[name],
                "its bytes alone": partial(alone, comm, partial(read_bytes, path)),
                **{what: partial(alone, comm, partial(read, path)) for what, read in theirs.items()},
            },
            runs,
        )
        if comm.rank == 0:
            size = path.stat().st_size / 1e6
            before, peak = peaks[name]
            print(
                f"{name}, {size:.0f} MB; a rank has {before:.0f} MiB, {peak:.0f} at most while it reads; "
                f"its rows are {n_rows / comm.size * 16 / 2**20:.0f}"
            )
            for what, took in seconds.items():
                print(f"  {what:20s} {took:7.3f} s  {size / took:7.0f} MB/s  {seconds['mpi_ustat'] / took:6.2f}")


def _peak_of(comm: Any, read: Callable[[], object]) -> tuple[float, float]:
    """Return the memory of the largest rank before and, at most, while it reads, in MiB.  Collective."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # peaks begin anew
    before = _status("VmRSS")
    read()
    return max(comm.allgather(before)), max(comm.allgather(_status("VmHWM")))


def _status(what: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))
    except (OSError, StopIteration):
        return float("nan")


def _in_child(comm: Any, work: Callable[[], None]) -> None:
    """Do something on rank 0, in a process whose memory is not counted.  Collective."""

    def fork() -> None:
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException:
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError("the files could not be written")

    alone(comm, fork)


if __name__ == "__main__":
    main()
