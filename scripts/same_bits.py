"""Write what 296 runs of the command line give, or tell where they give something else than was written.

For changes that are to keep every bit: `same_bits.py write before.json` ahead of them, then after each step
`same_bits.py compare before.json`, and the same in several ranks: `mpiexec -n 3 python scripts/same_bits.py …`.
There are runs of every kernel under every scheme, descents, and runs that go on from a checkpoint. What is kept is what
they print as JSON, and a digest of each dataset of their result files; not times and traffic.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

THREE = ["--label", "y", "--classes", "1,2,3"]
KERNELS: dict[str, list[str]] = {
    "auc": ["two.csv", "--label", "y", "--positive", "1", "--columns", "a"],
    "auc, strict": ["two.csv", "--label", "y", "--positive", "1", "--columns", "b", "--ties", "strict"],
    "auc of columns": ["two.csv", "--label", "y", "--positive", "1", "--columns", "a,b,c", "--difference"],
    "gini of two": ["two.csv", "--label", "y", "--columns", "b", "--kernel", "gini"],
    "product": ["two.csv", "--label", "y", "--columns", "a,b", "--kernel", "product"],
    "energy": ["two.csv", "--label", "y", "--columns", "a,c", "--kernel", "energy"],
    "mmd": ["two.csv", "--label", "y", "--columns", "a,c", "--kernel", "mmd", "--bandwidth", "0.7"],
    "mmd, linear": ["two.csv", "--label", "y", "--columns", "a,c", "--kernel", "mmd", "--mmd-kernel", "linear"],
    "fmr of two": ["two.csv", "--label", "y", "--columns", "a,b,c", "--kernel", "fmr"],
    "gini": ["two.csv", "--columns", "b", "--kernel", "gini"],
    "variance": ["two.csv", "--columns", "a", "--kernel", "variance"],
    "tau-a": ["two.csv", "--columns", "a,b", "--kernel", "kendall", "--tau", "a"],
    "tau-b": ["two.csv", "--columns", "a,b", "--kernel", "kendall"],
    "fmr": ["two.csv", "--columns", "a,b,c", "--kernel", "fmr", "--metric", "inner", "--threshold", "0.1"],
    "histogram": ["two.csv", "--columns", "a,b,c", "--kernel", "similarity-histogram", "--edges=-0.5,0,0.5"],
    "vus": ["three.csv", *THREE, "--columns", "a", "--kernel", "vus"],
    "vus, shared": ["three.csv", *THREE, "--columns", "b", "--kernel", "vus", "--ties", "shared"],
    "a pair kernel": ["two.csv", "--label", "y", "--columns", "a", "--kernel", "same_bits_kernels:greater"],
    "a kernel of three": ["two.csv", "--columns", "a", "--kernel", "same_bits_kernels:median_is_mean"],
}
ONE_SAMPLE = {"gini", "variance", "tau-a", "tau-b", "fmr", "histogram", "a kernel of three"}

SCHEMES: dict[str, list[str]] = {
    "prop-swor": ["--workers", "5", "--rounds", "3"],
    "by matrix": ["--workers", "4", "--rounds", "2", "--shuffle", "matrix", "--aggregate", "pooled"],
    "the smaller": ["--workers", "4", "--rounds", "2", "--move", "smaller"],
    "sampled": ["--workers", "5", "--rounds", "2", "--pairs", "40"],
    "distinct": ["--workers", "3", "--rounds", "2", "--pairs", "30", "--distinct", "--aggregate", "pooled"],
    "rotation": ["--workers", "6", "--scheme", "rotation", "--rounds", "3"],
    "all of two rotated": ["--workers", "4", "--scheme", "rotation", "--rounds", "4"],
    "all of one rotated": ["--workers", "4", "--scheme", "rotation", "--rounds", "3"],
    "swor": ["--workers", "30", "--scheme", "swor", "--rounds", "2"],
    "swor, zero": ["--workers", "30", "--scheme", "swor", "--empty", "zero"],
    "prop-swr": ["--workers", "5", "--scheme", "prop-swr", "--rounds", "2"],
    "prop-swr, sampled": ["--workers", "5", "--scheme", "prop-swr", "--rounds", "2", "--pairs", "25"],
    "fixed-shuffle": ["--workers", "5", "--scheme", "fixed-shuffle"],
    "as-is": ["--workers", "3", "--scheme", "as-is", "--empty", "skip"],
    "complete": ["--complete", "--workers", "4"],
}

LEARNING = [
    "two.csv",
    "--label",
    "y",
    "--positive",
    "1",
    "--columns",
    "a,b,c",
    "--iterations",
    "12",
    "--eval-every",
    "4",
]
DESCENTS = {
    "hinge": ["--workers", "4", "--repartition-every", "3"],
    "squared hinge": ["--workers", "4", "--loss", "squared-hinge", "--l2", "0.01", "--standardize"],
    "logistic": ["--workers", "3", "--loss", "logistic", "--repartition-every", "1", "--momentum", "0"],
    "all pairs": ["--workers", "3", "--batch-pairs", "all", "--repartition-every", "never", "--init", "zeros"],
    "rotation": ["--workers", "4", "--scheme", "rotation", "--repartition-every", "2", "--decay", "0.1"],
    "swor": ["--workers", "6", "--scheme", "swor", "--repartition-every", "4"],
    "prop-swr": ["--workers", "4", "--scheme", "prop-swr", "--repartition-every", "4"],
    "the smaller": ["--workers", "4", "--move", "smaller", "--shuffle", "matrix"],
    "fixed shuffle": ["--workers", "4", "--scheme", "fixed-shuffle", "--repartition-every", "never"],
    "as it lies": ["--workers", "4", "--scheme", "as-is", "--repartition-every", "never", "--test-fraction", "0"],
}

KERNELS_OF_A_USER = """
import numpy as np
def greater(x, z):
    return (x > z.T) + 0.25 * (x - z.T) ** 2
def median_is_mean(x, y, z):
    points = np.stack([x[:, 0], y[:, 0], z[:, 0]])
    return np.median(points, axis=0) - points.mean(axis=0)
median_is_mean.degrees = (3,)
"""


def commands() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield names, and the commands to run in turn, of which the last writes the file to look at."""
    for (kernel, data), (scheme, options) in itertools.product(KERNELS.items(), SCHEMES.items()):
        if kernel in ONE_SAMPLE and (scheme == "the smaller" or scheme == "all of two rotated"):
            continue
        yield f"{kernel}; {scheme}", [["estimate", *data, *options, "--seed", "7"]]
    for kernel in ("auc", "gini", "tau-b", "vus", "energy"):
        base = ["estimate", *KERNELS[kernel], "--workers", "5", "--seed", "3", "--checkpoint", "run.ck"]
        first = [*base, "--rounds", "2", "--checkpoint-every", "1", "--overwrite"]
        yield f"{kernel}; resumed", [first, [*base, "--rounds", "5", "--resume"]]
    for name, options in DESCENTS.items():
        yield f"learn: {name}", [["learn", *LEARNING, *options, "--seed", "5"]]
        base = ["learn", *LEARNING, *options, "--seed", "5", "--checkpoint", "run.ck", "--overwrite"]
        begun = [*base, "--iterations", "7", "--checkpoint-every", "3"]
        yield f"learn: {name}; resumed", [begun, [*base, "--resume"]]


def write_data() -> None:
    """Write the data sets, of which one column has ties, and the kernels to the current folder."""
    rng = np.random.default_rng(2019)
    for name, n_classes in (("two", 2), ("three", 3)):
        n = 83
        classes = rng.permutation(np.arange(n) % (2 * n_classes - 1)) % n_classes + (n_classes == 3)
        points = rng.normal(size=(n, 3)) + 0.4 * classes[:, None]
        points[:, 1] = np.round(2 * points[:, 1])
        table = np.column_stack([classes, points])
        np.savetxt(
            f"{name}.csv", table, delimiter=",", header="y,a,b,c", comments="", fmt=["%d", "%.17g", "%d", "%.17g"]
        )
    Path("same_bits_kernels.py").write_text(KERNELS_OF_A_USER)


def outcome(comm: Any, calls: list[list[str]]) -> dict[str, Any]:
    """Return, on rank 0, what the last command prints and writes, or how one ends that fails.  Collective."""
    from mpi_ustat.app.cli import main
    from mpi_ustat.storage.results import load

    for call in calls:
        output = ["--output", "out.h5"] if call is calls[-1] else []
        with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()) as printed:
            code = main([*call, *output, "--json"])
        if code:
            return {"exit": code, "told": told.getvalue().strip()}
    comm.barrier()
    found: dict[str, Any] = {}
    if comm.rank == 0:
        found = {name: value for name, value in json.loads(printed.getvalue()).items() if is_kept(name)}
        for name, dataset in sorted(load("out.h5").datasets.items()):
            if is_kept(name):
                values = np.ascontiguousarray(dataset.values)
                content = repr((values.dtype.str, values.shape)).encode() + values.tobytes()
                found[f"dataset {name}"] = hashlib.sha256(content).hexdigest()
        for path in ("out.h5", "run.ck"):
            Path(path).unlink(missing_ok=True)
    comm.barrier()
    return found


def is_kept(name: str) -> bool:
    return not any(word in name for word in ("seconds", "moved", "bytes", "n_ranks"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("file")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    file = Path(arguments.file).absolute()
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    os.chdir(folder)
    sys.path.insert(0, folder)
    if comm.rank == 0:
        write_data()
    comm.barrier()
    found = {name: outcome(comm, calls) for name, calls in commands()}
    if comm.rank != 0:
        return 0
    if arguments.action == "write":
        file.write_text(json.dumps(found, indent=1, default=str))
        refused = sum("exit" in each for each in found.values())
        print(f"{len(found)} runs, {refused} of which are refused, are in {file}")
        return 0
    before, found = json.loads(file.read_text()), json.loads(json.dumps(found, default=str))
    differing = [name for name in before if found.get(name) != before[name]]
    for name in differing:
        now = found.get(name, {})
        for each in sorted({*before[name], *now}):
            if before[name].get(each) != now.get(each):
                print(f"{name}: {each}: {before[name].get(each)} was, {now.get(each)} is")
    print(f"{len(before)} runs, {len(differing)} differ")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
