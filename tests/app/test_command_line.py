"""`mpi-ustat` as its users run it: one rank or several, what it prints and writes, and how it fails."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from commands import listing, processes_left, processes_with, refusal, result_of, some_rows, write_csv
from conftest import WORLD, Mpirun, scrubbed_environment

import mpi_ustat
from mpi_ustat import SerialComm, estimate
from mpi_ustat.app import cli
from mpi_ustat.app import progress as progress_module
from mpi_ustat.app.progress import progress
from mpi_ustat.mpi.launch import library_version
from mpi_ustat.storage.provenance import short_library_name
from mpi_ustat.storage.results import load

TWO_RANKS = [(1, 1), (2, 1), (3, 0), (4, 0), (10, 1), (5, 0), (6, 0), (7, 0)]
"""Score and label; cut in two, each half has pairs, and the mean, pooled and complete AUC are 1/2, 3/7 and 1/3."""

KEYS = {
    "estimate",
    "kernel",
    "ties",
    "scheme",
    "n",
    "m",
    "n_workers",
    "n_ranks",
    "n_rounds",
    "n_pairs",
    "complete",
    "aggregate",
    "seed",
    "bytes_moved",
    "seconds",
    "per_round",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", some_rows())


Here = Callable[..., CompletedProcess[str]]


# --- results


def test_the_number_of_ranks_changes_nothing_but_what_moved(mpirun: Mpirun, tmp_path: Path, data: Path) -> None:
    results, files = [], []
    for n_ranks in (1, 2, 4):
        output = tmp_path / f"{n_ranks}.h5"
        options = ["--label", "label", "--kernel", "gini", "--workers", 4, "--rounds", 3, "--seed", 7, "--reference"]
        result = result_of(mpirun(n_ranks, "estimate", data, *options, "--output", output, "--json"))
        assert result.pop("n_ranks") == n_ranks
        assert (result.pop("bytes_moved") > 0) == (n_ranks > 1)
        del result["seconds"]
        results.append(result)
        datasets = load(output).datasets
        files.append({name: datasets[name].values.tobytes() for name in datasets if name.startswith("per_worker/")})
        assert set(files[-1]) == {"per_worker/value", "per_worker/n_pairs"}
    assert results[1:] == results[:1] * 2
    assert files[1:] == files[:1] * 2


def test_the_workers_are_the_ranks_unless_told(mpirun: Mpirun, data: Path) -> None:
    result = result_of(mpirun(3, "estimate", data, "--label", "label", "--rounds", 1, "--json"))
    assert (result["n_workers"], result["n_ranks"], result["complete"]) == (3, 3, False)


def test_json_is_one_object_that_says_what_was_done(mpirun: Mpirun, data: Path) -> None:
    options = ["--ties", "strict", "--workers", 5, "--rounds", 2, "--pairs", 6, "--aggregate", "pooled", "--seed", 3]
    result = result_of(mpirun(2, "estimate", data, "--label", "label", *options, "--json"))
    assert result.keys() >= KEYS
    rows = np.array(some_rows())
    x, z = (rows[rows[:, 1] == label, 0] for label in (1, 0))
    expected = estimate(
        SerialComm(), x, z, ties="strict", n_workers=5, n_rounds=2, n_pairs=6, aggregate="pooled", seed=3
    )
    assert {
        "estimate": expected.value,
        "kernel": "auc",
        "ties": "strict",
        "scheme": "prop-swor",
        "n": len(x),
        "m": len(z),
        "n_workers": 5,
        "n_ranks": 2,
        "n_rounds": 2,
        "n_pairs": 60,
        "complete": False,
        "aggregate": "pooled",
        "seed": 3,
        "per_round": expected.per_round.tolist(),
    }.items() <= result.items()
    assert {"load", "partition", "exchange", "evaluate", "reduce"} <= result["seconds"].keys()


def test_json_has_the_same_keys_when_complete(here: Here, data: Path) -> None:
    result = result_of(here("estimate", data, "--label", "label", "--complete", "--json"))
    assert result.keys() >= KEYS
    assert result["complete"] is True
    assert result["n_pairs"] == result["n"] * result["m"]
    assert result["per_round"] == [result["estimate"]]
    assert result["scheme"] is result["aggregate"] is None


def test_local_means_pooled_pairs_and_all_pairs_are_told_apart(mpirun: Mpirun, tmp_path: Path) -> None:
    file = write_csv(tmp_path / "two.csv", TWO_RANKS)
    for options, told, expected, n_pairs in (
        (["--scheme", "as-is"], ("as-is", "mean", False), 1 / 2, 7),
        (["--scheme", "as-is", "--aggregate", "pooled"], ("as-is", "pooled", False), 3 / 7, 7),
        (["--complete"], (None, None, True), 1 / 3, 15),
    ):
        result = result_of(mpirun(2, "estimate", file, "--label", "label", *options, "--json"))
        assert (result["scheme"], result["aggregate"], result["complete"]) == told
        assert (result["estimate"], result["n_pairs"]) == (expected, n_pairs)


def test_a_file_sorted_by_label_leaves_no_rank_without_pairs(mpirun: Mpirun, tmp_path: Path) -> None:
    rows = sorted(some_rows(), key=lambda row: -row[1])
    file = write_csv(tmp_path / "sorted.csv", rows)
    for shuffle in ("permutation", "matrix"):
        options = ["--label", "label", "--shuffle", shuffle, "--seed", 0, "--json"]
        result = result_of(mpirun(3, "estimate", file, *options))
        n, m = result["n"], result["m"]
        assert n + m == 60
        assert result["n_pairs"] >= 3 * (n // 3) * (m // 3)
        x, z = (np.array([score for score, label in rows if label == wanted]) for wanted in (1, 0))
        assert result["estimate"] == estimate(SerialComm(), x, z, n_workers=3, shuffle=shuffle, seed=0).value
    refused = mpirun(3, "estimate", file, "--label", "label", "--scheme", "as-is")
    assert "have no pair" in refusal(refused)
    assert "prop-swor" in refusal(refused)
    # Of five runs the one with both labels has pairs.
    done = mpirun(2, "estimate", file, "--label", "label", "--scheme", "as-is", "--empty", "skip", "--workers", 5)
    assert done.returncode == 0
    assert "4 local values, left out" in done.stdout


def test_the_seed_is_drawn_once_and_recorded(mpirun: Mpirun, here: Here, tmp_path: Path, data: Path) -> None:
    options = ["estimate", data, "--label", "label", "--kernel", "gini", "--workers", 6, "--json"]
    output = tmp_path / "drawn.h5"
    first = result_of(mpirun(3, *options, "--output", output))
    again = result_of(here(*options, "--seed", first["seed"]))
    assert again["per_round"] == first["per_round"]
    assert load(output).provenance["seed"] == load(output).config["seed"] == first["seed"]
    zero, one = (result_of(here(*options, "--seed", seed)) for seed in (0, 1))
    assert len({each["estimate"] for each in (first, zero, one)}) == 3


def test_of_all_pairs_the_same_command_says_the_same(here: Here, data: Path) -> None:
    # The tails of this kernel are judged by some points, drawn at random.
    options = ["estimate", data, "--label", "label", "--kernel", "gini", "--json"]
    first, again = (result_of(here(*options)) for _ in range(2))
    assert first["seed"] == 0
    assert all(first[name] == again[name] for name in first if name != "seconds")
    assert result_of(here(*options, "--seed", 5))["seed"] == 5


def test_the_formats_of_a_data_set_agree_to_the_last_bit(
    mpirun: Mpirun, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(11)
    y = (rng.random(50) < 0.4).astype(int)
    X = rng.normal(size=(50, 3)) + y[:, None]
    rows = [(*x, label) for x, label in zip(X.tolist(), y.tolist(), strict=True)]
    write_csv(tmp_path / "named.csv", rows, "a,b,c,y")
    with gzip.open(tmp_path / "named.tsv.gz", "wt") as stream:
        stream.write((tmp_path / "named.csv").read_text().replace(",", "\t"))
    np.savez(tmp_path / "columns.npz", a=X[:, 0], b=X[:, 1], c=X[:, 2], y=y)
    np.savez_compressed(tmp_path / "matrix.npz", X=X, y=y)
    with h5py.File(tmp_path / "matrix.h5", "w") as file:
        file["X"], file["y"] = X, y
    with h5py.File(tmp_path / "columns.hdf5", "w") as file:
        file["a"], file["b"], file["c"], file["y"] = *X.T, y.astype(bool)
    np.save(tmp_path / "positives.npy", X[y == 1])
    write_csv(tmp_path / "negatives.csv", X[y == 0].tolist(), "a,b,c")
    np.savez(tmp_path / "one.npz", v=X[:, 1], y=y)

    ways = [
        *([name, "--score", "b", "--label", "y"] for name in ("named.csv", "named.tsv.gz")),
        *([name, "--columns", "1", "--label", "3"] for name in ("named.csv", "named.tsv.gz")),
        *([name, "--score", "b", "--label", "y"] for name in ("columns.npz", "columns.hdf5")),
        *([name, "--score", "1", "--label", "y", "--positive", "1"] for name in ("matrix.npz", "matrix.h5")),
        ["one.npz", "--label", "y"],
        ["--x", "positives.npy", "--z", "negatives.csv", "--columns", "1"],
    ]
    found = []
    for way in ways:
        options = ["--kernel", "gini", "--workers", 6, "--rounds", 2, "--seed", 5, "--json"]
        found.append(result_of(here("estimate", *way, *options))["per_round"])
        if way[0] in ("named.tsv.gz", "matrix.npz", "columns.hdf5", "--x") and way[1] != "--columns":
            found.append(result_of(mpirun(2, "estimate", *way, *options))["per_round"])
    expected = estimate(SerialComm(), X[y == 1, 1], X[y == 0, 1], "gini", n_workers=6, n_rounds=2, seed=5)
    assert found == [expected.per_round.tolist()] * (len(ways) + 4)


def test_several_columns_make_a_point(mpirun: Mpirun, tmp_path: Path) -> None:
    rows = [(1, 10, 1, 0), (2, 20, 1, 0), (3, 30, 0, 5), (4, 40, 0, 6)]
    write_csv(tmp_path / "points.csv", rows, "a,b,y,c")
    options = ["--label", "y", "--columns", "b,c", "--kernel", "product", "--complete", "--json"]
    result = result_of(mpirun(2, "estimate", tmp_path / "points.csv", *options))
    assert result["estimate"] == 15 * 35.0


def test_a_kernel_of_the_users(mpirun: Mpirun, here: Here, tmp_path: Path, data: Path) -> None:
    (tmp_path / "my_kernels.py").write_text("import numpy as np\ndef distance(x, z):\n    return np.abs(x - z.T)\n")
    options = ["--label", "label", "--workers", 6, "--seed", 0, "--json"]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))}
    mine = result_of(mpirun(2, "estimate", data, *options, "--kernel", "my_kernels:distance", env=env))
    named = result_of(here("estimate", data, *options, "--kernel", "gini"))
    assert mine["estimate"] == pytest.approx(named["estimate"], rel=1e-13)
    assert (mine["kernel"], mine["ties"]) == ("my_kernels:distance", None)


# --- what is printed and written


def test_a_table_for_people(mpirun: Mpirun, data: Path) -> None:
    done = mpirun(2, "estimate", data, "--label", "label", "--rounds", 2, "--reference", "--seed", 4)
    assert (done.returncode, done.stderr) == (0, "")
    table = {line[:18].strip(): line[18:] for line in done.stdout.splitlines()}
    assert float(table["estimate"].split(" ± ")[0]) > 0.5
    assert table["interval"] == "95 %, logit, from components; for the population's value"
    assert table["scheme"] == "prop-swor, 2 rounds of 2 workers"
    assert table["seed"] == "4"
    assert {"kernel", "points", "aggregate", "pairs", "moved", "complete value", "seconds"} <= table.keys()


def test_quiet_prints_the_number_alone(mpirun: Mpirun, data: Path) -> None:
    done = mpirun(2, "estimate", data, "--label", "label", "--complete", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert 0.5 < float(done.stdout) < 1


def test_the_output_file_holds_all_values(mpirun: Mpirun, tmp_path: Path, data: Path) -> None:
    output = tmp_path / "result.h5"
    options = ["--label", "label", "--workers", 7, "--rounds", 3, "--reference", "--seed", 2]
    result = result_of(mpirun(2, "estimate", data, *options, "--output", output, "--json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "result.h5"]

    rows = np.array(some_rows())
    x, z = (rows[rows[:, 1] == label, 0] for label in (1, 0))
    expected = estimate(SerialComm(), x, z, n_workers=7, n_rounds=3, reference=True, seed=2)
    file = load(output)
    values = {name: dataset.values for name, dataset in file.datasets.items()}
    assert values["estimate"] == expected.value == result["estimate"]
    assert values["complete_value"] == expected.complete_value
    assert (values["n"], values["m"], values["n_pairs"]) == (len(x), len(z), expected.n_evaluations)
    assert values["per_round/value"].tobytes() == expected.per_round.tobytes()
    assert values["per_worker/value"].tobytes() == expected.per_worker.tobytes()
    assert values["per_worker/n_pairs"].tolist() == expected.evaluations.tolist()
    assert values["per_round/rows_moved"].tolist() == expected.rows_moved.tolist()
    assert values["per_round/bytes_moved"].sum() + values["complete_bytes_moved"] == result["bytes_moved"]
    assert {name: float(values[f"seconds/{name}"]) for name in result["seconds"]} == result["seconds"]
    assert file.kind == "estimate"
    assert file.datasets["per_worker/value"].dims == ("round", "worker")
    assert {"kernel": "auc", "n_workers": 7, "n_rounds": 3, "seed": 2}.items() <= file.config.items()
    origin = file.provenance
    assert (origin["n_ranks"], origin["n_workers"], origin["seed"]) == (2, 7, 2)
    assert origin["command"].startswith("mpi-ustat estimate ")
    assert origin["wall_seconds"] > 0
    assert {"version", "started"} <= origin.keys()
    assert not any(str(tmp_path) in str(value) for value in (*origin.values(), *file.config.values()))


def test_an_existing_file_is_replaced_when_told(here: Here, tmp_path: Path, data: Path) -> None:
    output = tmp_path / "result.h5"
    output.write_text("precious")
    options = ["estimate", data, "--label", "label", "--complete", "--output", output, "--quiet"]
    assert "exists" in refusal(here(*options))
    assert output.read_text() == "precious"
    done = here(*options, "--overwrite")
    assert done.returncode == 0, done.stderr
    assert float(load(output).datasets["estimate"].values) == float(done.stdout)


def test_info_and_plot_need_no_mpi(mpirun: Mpirun, tmp_path: Path, data: Path) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / "result.h5"
    options = ["--label", "label", "--workers", 4, "--rounds", 3, "--seed", 2, "--reference", "--output", output]
    result = result_of(mpirun(1, "estimate", data, *options, "--json"))
    # An mpi4py that can't be imported stands before the real one.
    (tmp_path / "no_mpi" / "mpi4py").mkdir(parents=True)
    (tmp_path / "no_mpi" / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path / "no_mpi"), os.environ.get("PYTHONPATH")]))
    env = {"PYTHONPATH": path, "PATH": os.defpath}

    shown = mpirun(0, "info", output, env=env)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert repr(result["estimate"]) in shown.stdout
    assert repr(result["complete_value"]) in shown.stdout

    drawn = mpirun(0, "plot", output, env=env)
    assert (drawn.returncode, drawn.stdout) == (0, f"{tmp_path / 'result.png'}\n"), drawn.stderr
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert "exists" in refusal(mpirun(0, "plot", output, env=env))
    done = mpirun(0, "plot", output, "--output", tmp_path / "other.svg", env=env)
    assert done.returncode == 0, done.stderr
    assert "<svg" in (tmp_path / "other.svg").read_text()

    alone = mpirun(0, "estimate", data, *options, "--overwrite", "--json", env=env)
    assert result_of(alone)["per_round"] == result["per_round"]


def test_several_ranks_show_and_draw_once(mpirun: Mpirun, tmp_path: Path, data: Path) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / "result.h5"
    assert mpirun(0, "estimate", data, "--label", "label", "--complete", "--output", output).returncode == 0
    shown = mpirun(3, "info", output)
    assert (shown.returncode, shown.stdout.count("kind: estimate")) == (0, 1)
    drawn = mpirun(3, "plot", output)
    assert (drawn.returncode, drawn.stdout) == (0, f"{tmp_path / 'result.png'}\n"), drawn.stderr


def test_help_and_version_are_printed_once(mpirun: Mpirun) -> None:
    for arguments, start in ((["--help"], "usage: mpi-ustat"), (["estimate", "--help"], "usage: mpi-ustat estimate")):
        done = mpirun(4, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(start)
        assert done.stdout.count("usage:") == 1
    assert mpirun(0, "--version").stdout == f"mpi-ustat {mpi_ustat.__version__}\n"
    told = mpirun(2, "--version", "-v").stdout
    assert told.startswith(f"mpi-ustat         {mpi_ustat.__version__}\nPython ") and told.count("mpi-ustat ") == 1
    assert f"\nnumpy             {np.__version__}\n" in told and " with HDF5 " in told
    library = short_library_name(library_version(WORLD))
    assert f"\nMPI               {library or 'none ('}" in told
    # What isn't installed is told with how it can be, and is what the extras have.
    extras = {line.split()[0] for line in told.splitlines()} & {"pyarrow", "matplotlib", "xgboost", "torch", "river"}
    assert len(extras) == 5 and "pytest" not in told


def test_help_loads_no_more_than_it_says() -> None:
    """Nothing of other commands, and of none for the list of them, which is that of what they say of themselves."""
    assert cli.build_parser("").format_help() == cli.build_parser().format_help()
    code = "import sys, runpy; sys.argv[1:] = ['--help']\ntry: runpy.run_module('mpi_ustat', run_name='__main__')\n"
    code += "except SystemExit: print(*(name for name in sys.modules if name.startswith(('mpi_ustat.', 'h5py'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "mpi_ustat.app.cli" in loaded
    assert not [name for name in loaded if name.endswith("_command") or ".kernels" in name or "h5py" in name]


# --- failing together


KERNEL_MODULE = """\
import sys
import numpy as np

def raises_at_nine(x, z):
    if 9.0 in x:
        raise ZeroDivisionError("nine is not for me")
    return x - z.T

def leaves_at_nine(x, z):
    if 9.0 in x:
        sys.exit(0)
    return x - z.T

def interrupted_at_nine(x, z):
    if 9.0 in x:
        raise KeyboardInterrupt
    return x - z.T

def wrong_shape(x, z):
    return x + z
"""

DATA = ["rows.csv", "--label", "y", "--columns", "s"]

FAILURES: dict[str, tuple[list[str], str]] = {
    "missing file": (["missing.csv", "--label", "y"], "there is no file 'missing.csv'"),
    "missing file of a sample": (["--x", "missing.npy", "--z", "rows.csv"], "there is no file 'missing.npy'"),
    "unknown format": (["rows.doc", "--label", "y"], "the format of 'rows.doc' is not known"),
    "unknown column": (["rows.csv", "--label", "y", "--columns", "height"], "'rows.csv' has no column 'height'"),
    "unknown label column": (["rows.csv", "--label", "why", "--columns", "s"], "'rows.csv' has no column 'why'"),
    "no label column": (["rows.csv", "--columns", "s"], "no label column of 'rows.csv' is chosen"),
    "several columns": (["rows.csv", "--label", "y"], "'rows.csv' has several data columns"),
    "text column": (["rows.csv", "--label", "y", "--columns", "word"], "'rows.csv', line 2: column 'word' has 'w0'"),
    "nan first": (["nan_first.csv", "--label", "y"], "'nan_first.csv', line 2: column 's' is NaN"),
    "nan last": (["nan_last.csv", "--label", "y"], "'nan_last.csv', line 13: column 's' is NaN"),
    "nan first, npz": (["nan_first.npz", "--label", "y"], "'nan_first.npz', row 0 (counted from 0): column 's' is NaN"),
    "nan last, npz": (["nan_last.npz", "--label", "y"], "'nan_last.npz', row 11 (counted from 0): column 's' is NaN"),
    "text in the last row": (["text_last.csv", "--label", "y"], "'text_last.csv', line 13: column 's' has 'high'"),
    "one class": (["one_class.csv", "--label", "y"], "has one value only, '1'"),
    "no rows": (["no_rows.csv", "--label", "y"], "'no_rows.csv' has no rows of data"),
    "empty file": (["empty.csv", "--label", "y"], "'empty.csv' is empty"),
    "third label": (["third.csv", "--label", "y"], "has more than two values ('0', '1', '2')"),
    "unknown positive": ([*DATA, "--positive", "yes"], "has the values '0', '1', not 'yes'"),
    "too many workers": ([*DATA, "--workers", "7"], "7 workers can't each have a point of a sample of 6"),
    "workers without pairs": (["sorted.csv", "--label", "y", "--scheme", "as-is"], "no worker has a pair"),
    "infinite": (["infinite.csv", "--label", "y", "--kernel", "gini"], "an infinite value"),
    "unknown kernel": ([*DATA, "--kernel", "acu"], "there is no kernel 'acu'"),
    "no such module": ([*DATA, "--kernel", "not_there:k"], "the kernel not_there:k can't be imported"),
    "raising": ([*DATA, "--kernel", "nines:raises_at_nine"], "ZeroDivisionError: nine is not for me"),
    "raising, complete": (
        [*DATA, "--kernel", "nines:raises_at_nine", "--complete"],
        "ZeroDivisionError: nine is not for me",
    ),
    "leaving": ([*DATA, "--kernel", "nines:leaves_at_nine"], "SystemExit: 0"),
    "a module that leaves": ([*DATA, "--kernel", "leaving:k"], "leaving:k can't be imported (SystemExit: 3)"),
    "wrong shape": ([*DATA, "--kernel", "nines:wrong_shape"], "returned shape"),
    "no such folder": ([*DATA, "--output", "nowhere/out.h5"], "the folder of 'nowhere/out.h5' does not exist"),
    "no such folder, nor data": (["missing.csv", "--label", "y", "--output", "nowhere/out.h5"], "'nowhere' or choose"),
    "existing output": ([*DATA, "--output", "precious.h5"], "the output 'precious.h5' exists"),
    "existing output, no data": (["missing.csv", "--label", "y", "--output", "precious.h5"], "'precious.h5' exists"),
    "a folder as output": ([*DATA, "--output", "."], "is a folder"),
    "unknown option": ([*DATA, "--round", "2", "--nonsense"], "there is no option --nonsense"),
    "not a number": ([*DATA, "--rounds", "two"], "--rounds is 'two': give a whole number"),
    "no such choice": ([*DATA, "--ties", "third"], "invalid choice: 'third'"),
    "no rounds": ([*DATA, "--rounds", "0"], "the number of rounds is 0"),
    "negative seed": ([*DATA, "--seed", "-1"], "the seed is -1"),
    "complete with rounds": ([*DATA, "--complete", "--rounds", "2"], "leave out --rounds"),
    "complete with pairs": ([*DATA, "--complete", "--pairs", "2"], "leave out --pairs"),
    "complete with scheme": ([*DATA, "--complete", "--scheme", "as-is"], "leave out --scheme"),
    "as-is with rounds": ([*DATA, "--scheme", "as-is", "--rounds", "2"], "one partition only"),
    "data and samples": ([*DATA, "--x", "rows.csv", "--z", "rows.csv"], "is given beside a file per sample"),
    "one sample only": (["--x", "rows.csv"], "only one of the two samples has a file"),
    "samples with a label": (["--x", "rows.csv", "--z", "rows.csv", "--label", "y"], "beside a file per sample: leave"),
    "no data": ([], "there is no input: give a file with a label column, or two files"),
}


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A folder with the files that the failures are about."""
    labels = [k % 2 for k in range(12)]
    good = [(float(k), labels[k], f"w{k}") for k in range(12)]
    write_csv(tmp_path / "rows.csv", [(9.0 if s == 10 else s, y, w) for s, y, w in good], "s,y,word")
    rows = [(s, y) for s, y, _ in good]
    write_csv(tmp_path / "nan_first.csv", [("nan", 0), *rows[1:]], "s,y")
    write_csv(tmp_path / "nan_last.csv", [*rows[:-1], ("NaN", 1)], "s,y")
    write_csv(tmp_path / "text_last.csv", [*rows[:-1], ("high", 1)], "s,y")
    write_csv(tmp_path / "infinite.csv", [*rows[:-1], ("-inf", 1)], "s,y")
    write_csv(tmp_path / "one_class.csv", [(s, 1) for s, _ in rows], "s,y")
    write_csv(tmp_path / "third.csv", [*rows[:-1], (3.0, 2)], "s,y")
    write_csv(tmp_path / "sorted.csv", sorted(rows, key=lambda row: row[1]), "s,y")
    write_csv(tmp_path / "no_rows.csv", [], "s,y")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "rows.doc").touch()
    for name, row in (("nan_first.npz", 0), ("nan_last.npz", 11)):
        values = np.arange(12.0)
        values[row] = np.nan
        np.savez(tmp_path / name, s=values, y=labels)
    (tmp_path / "precious.h5").write_text("precious")
    (tmp_path / "nines.py").write_text(KERNEL_MODULE)
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)")
    return tmp_path


@pytest.mark.parametrize("name", FAILURES)
def test_a_users_mistake_is_told_in_one_sentence(
    faulty: Path, here: Here, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arguments, sentence = FAILURES[name]
    if name == "workers without pairs":
        arguments = [*arguments, "--workers", "2"]
    monkeypatch.chdir(faulty)
    monkeypatch.syspath_prepend(faulty)
    before = listing(faulty)
    done = here("estimate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("mpi-ustat: ")
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    assert listing(faulty) == before


IN_RANKS = {
    "missing file": 4,
    "text in the last row": 3,
    "text column": 2,
    "nan last": 2,
    "nan first, npz": 3,
    "one class": 2,
    "third label": 3,
    "no rows": 2,
    "too many workers": 2,
    "workers without pairs": 2,
    "infinite": 2,
    "no such module": 2,
    "raising": 4,
    "raising, complete": 3,
    "leaving": 2,
    "a module that leaves": 3,
    "no such folder": 2,
    "existing output, no data": 4,
    "not a number": 4,
    "unknown option": 2,
    "data and samples": 3,
}


@pytest.mark.parametrize("name", IN_RANKS)
def test_several_ranks_fail_together(mpirun: Mpirun, faulty: Path, name: str) -> None:
    arguments, sentence = FAILURES[name]
    marker = f"run-of-{faulty.name}-{os.getpid()}"  # an option that tells our processes from others'
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(faulty), os.environ.get("PYTHONPATH")]))}
    program = ("-X", f"marker={marker}", "-m", "mpi_ustat")
    before = listing(faulty)
    done = mpirun(IN_RANKS[name], "estimate", *arguments, program=program, cwd=faulty, env=env, timeout=120)
    assert sentence in refusal(done)
    assert listing(faulty) == before
    assert processes_left(marker) == []


def test_running_processes_are_found(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()", str(tmp_path)], stdin=subprocess.PIPE)
    deadline = time.monotonic() + 60
    try:
        # It may not have its command line yet.
        while not (found := processes_with(str(tmp_path))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == 1
    finally:
        process.kill()
        process.communicate()
    assert processes_left(str(tmp_path)) == []


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path, data: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "mpi_ustat", "estimate", str(data), "--label", "label", "--json"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=scrubbed_environment())
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


THREADS = """\
import threading, time
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)

def leaves_a_thread(x, z):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return x - z.T

def leaves_a_pool(x, z):
    return pool.submit(lambda: x - z.T).result()
"""


@pytest.mark.parametrize(("function", "left"), [("leaves_a_thread", True), ("leaves_a_pool", False)])
def test_a_thread_that_a_kernel_leaves_does_not_keep_the_job(
    mpirun: Mpirun, faulty: Path, function: str, left: bool
) -> None:
    (faulty / "threads.py").write_text(THREADS)
    write_csv(faulty / "rows.csv", [(float(k), int(k > 7)) for k in range(12)], "s,y")
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(faulty), os.environ.get("PYTHONPATH")]))}
    done = mpirun(2, "estimate", *DATA, "--kernel", f"threads:{function}", "--json", "--quiet", cwd=faulty, env=env)
    assert done.returncode == 0
    assert json.loads(done.stdout)["n"] == 4
    assert ("a thread that a kernel has started still runs" in done.stderr) == left


def test_a_kernel_that_fails_on_one_rank_is_reported_as_by_any_number_of_them(mpirun: Mpirun, faulty: Path) -> None:
    write_csv(faulty / "rows.csv", [(float(k), int(k > 7)) for k in range(12)], "s,y")  # 9 is in one block only
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(faulty), os.environ.get("PYTHONPATH")]))}
    options = ["--kernel", "nines:raises_at_nine", "--scheme", "prop-swor", "--seed", "0"]
    told = {refusal(mpirun(n, "estimate", *DATA, *options, "--workers", "4", cwd=faulty, env=env)) for n in (1, 4)}
    assert len(told) == 1
    assert told.pop().startswith("evaluating the kernel nines:raises_at_nine failed: ")


@pytest.mark.parametrize("failure", ["raise ImportError('not here')", "raise SystemExit(0)"])
@pytest.mark.parametrize("command", ["estimate", "plan"])
def test_a_kernel_that_is_missing_on_one_rank_is_told(mpirun: Mpirun, faulty: Path, command: str, failure: str) -> None:
    module = f"from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1: {failure}\ndef k(x, z): return x - z.T"
    (faulty / "partly.py").write_text(module)
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(faulty), os.environ.get("PYTHONPATH")]))}
    done = mpirun(2, command, *DATA, "--kernel", "partly:k", cwd=faulty, env=env)
    told = refusal(done)
    assert told.startswith("finding the kernel failed on rank 1: the kernel partly:k can't be imported (")
    assert "abort" not in done.stderr.lower()


def test_a_rank_that_leaves_alone_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Though rank 0 usually speaks for all."""
    job = cli._Job()
    job.comm, job.speaks = SimpleNamespace(size=2, rank=1), False

    def not_all(comm: Any, code: int, *, last_words: Callable[[], object]) -> int:
        last_words()
        return code

    monkeypatch.setattr(cli, "leave_together", not_all)
    assert job.leave(2, "something is wrong") == 2
    assert capsys.readouterr().err == "mpi-ustat: something is wrong (on rank 1 only)\n"


UNFORESEEN = """\
import sys
from mpi4py import MPI
from mpi_ustat.app import cli, estimate_command

original = estimate_command.{function}

def broken(*arguments, **options):
    if MPI.COMM_WORLD.rank == {rank}:
        raise {error}
    return original(*arguments, **options)

estimate_command.{function} = broken
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("function", "rank", "error"),
    [
        ("load_samples", 2, "RuntimeError('out of luck')"),
        ("_config", 0, "MemoryError"),
        ("run", 1, "KeyboardInterrupt"),
    ],
)
def test_what_nobody_foresaw_on_one_rank_ends_the_whole_job(
    mpirun: Mpirun, tmp_path: Path, data: Path, function: str, rank: int, error: str
) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(UNFORESEEN.format(function=function, rank=rank, error=error))
    output = tmp_path / "out.h5"
    done = mpirun(3, "estimate", data, "--label", "label", "--output", output, program=[str(driver)])
    assert done.returncode not in (0, 2)
    assert f"rank {rank} of 3:" in done.stderr
    assert error.split("(")[0] in done.stderr
    assert not output.exists()
    assert processes_left(str(driver)) == []


@pytest.mark.parametrize("announced", ["OMPI_COMM_WORLD", "SLURM_STEP"])
def test_the_launcher_of_another_mpi_is_refused(mpirun: Mpirun, data: Path, announced: str) -> None:
    size, rank = {
        "OMPI_COMM_WORLD": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        "SLURM_STEP": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    }[announced]
    told = []
    for number in (0, 3):
        env = {size: "4", rank: str(number), "PYTHONWARNINGS": "ignore"}  # mpi4py warns too
        done = mpirun(0, "estimate", data, "--label", "label", "--json", env=env)
        assert (done.returncode, done.stdout) == (2, "")
        told += done.stderr.splitlines()
    assert len(told) == 1
    assert told[0].startswith("mpi-ustat: the launcher started 4 processes but MPI sees 1: use the mpiexec that")


# --- progress


class FakeClock(SimpleNamespace):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


def lines_of_progress(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float], **options: Any
) -> list[str]:
    """What is printed when the items take so many seconds each."""
    stderr = StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    comm = options.pop("comm", SerialComm())
    done = []
    for item in progress(comm, range(len(seconds)), len(seconds), "round", **options):
        clock.now += seconds[item]
        done.append(item)
    assert done == list(range(len(seconds)))
    return stderr.getvalue().splitlines()


def test_a_pipe_gets_a_line_every_ten_seconds(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of_progress(clock, monkeypatch, [0.5] * 19) == []
    assert lines_of_progress(clock, monkeypatch, [0.5] * 50) == [
        "round 20 of 50, about 15 seconds to go",
        "round 40 of 50, about 5 seconds to go",
    ]
    assert lines_of_progress(clock, monkeypatch, [12.0, 1.0, 9.5]) == [
        "round 1 of 3, about 24 seconds to go",
        "round 3 of 3",
    ]


def test_quiet_runs_and_other_ranks_show_no_progress(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of_progress(clock, monkeypatch, [20.0] * 3, quiet=True) == []
    assert lines_of_progress(clock, monkeypatch, [20.0] * 3, comm=SimpleNamespace(rank=1, size=2)) == []


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert list(progress(SerialComm(), iter(range(3)), 3, "round")) == [0, 1, 2]
    assert "round" in stderr.getvalue() and "/3" in stderr.getvalue()
