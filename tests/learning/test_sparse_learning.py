"""Learning from sparse rows: what arrays give, at every number of ranks, without ever making one."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from numpy.typing import NDArray
from scipy import sparse
from sharding import SPREADS, shards

from mpi_ustat import Fit, SerialComm, UserError, learn
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.training import set_up
from mpi_ustat.storage.results import load

Floats = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)

OPTIONS: list[dict[str, Any]] = [
    {"loss": "hinge", "batch_points": 4},
    {"loss": "logistic", "batch_points": 3, "weights": True},
    {"loss": "squared-hinge", "batch_points": None, "optimizer": "lbfgs", "l2": 0.01},
    {"loss": "squared-hinge", "batch_points": None, "optimizer": "lbfgs", "weights": True, "groups": True},
]


def data(sizes: tuple[int, int] = (37, 58), d: int = 9) -> list[Floats]:
    """Return samples of which most numbers are 0, the first one's being larger."""
    generator = np.random.default_rng([*sizes, d])
    return [
        np.where(generator.random((n, d)) < 0.3, generator.normal(size=(n, d)) + (1 - k), 0.0)
        for k, n in enumerate(sizes)
    ]


def learnt(comm: Any, samples: list[Floats], options: dict[str, Any], make: Any, spread: str = "even") -> Fit:
    generator = np.random.default_rng(0)
    said = {
        "weights": [generator.exponential(size=len(each)) for each in samples],
        "groups": [generator.choice(["a", "b"], len(each)) for each in samples],
    }
    own = {name: shards(comm, each, spread) for name, each in said.items() if name in options}
    x, z = (make(each) for each in shards(comm, samples, spread))
    x_test, z_test = (make(each) for each in shards(comm, data((11, 8)), spread))
    given = {"exchange": "scores", "n_workers": 5, "seed": 3, "iterations": 12, "eval_every": 4}
    return learn(comm, x, z, x_test=x_test, z_test=z_test, **(given | options | own))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_arrays_give_and_the_same_bits_at_every_number_of_ranks(
    comm: Any, options: dict[str, Any], spread: str
) -> None:
    samples = data()
    dense, whole = (learnt(SerialComm(), samples, options, make) for make in (np.asarray, sparse.csr_array))
    found = learnt(comm, samples, options, sparse.csr_array, spread)
    assert found.parameters.tobytes() == whole.parameters.tobytes()
    assert found.parameters == pytest.approx(dense.parameters, rel=1e-12, abs=1e-12)
    for name in ("iteration", "train_loss", "train_auc", "test_loss", "test_auc"):
        assert found.history[name].tobytes() == whole.history[name].tobytes(), name
        assert found.history[name] == pytest.approx(dense.history[name], rel=1e-12), name
    assert found.optimum == whole.optimum


def test_a_rank_may_pass_an_array_or_nothing(comm: Any) -> None:
    x, z = data()
    whole = learn(SerialComm(), sparse.csr_array(x), z, exchange="scores", iterations=5, seed=1, n_workers=2)
    mine = comm.rank == comm.size - 1
    empty = np.empty((0, 0))
    found = learn(
        comm,
        sparse.csr_matrix(x) if mine else empty,
        z if mine else sparse.csr_array((0, 9)),
        exchange="scores",
        iterations=5,
        seed=1,
        n_workers=2,
    )
    assert found.parameters.tobytes() == whole.parameters.tobytes()


def test_what_goes_on_from_a_snapshot_ends_where_the_whole_run_does(comm: Any) -> None:
    samples = [sparse.csr_array(each) for each in shards(comm, data())]
    config = LearnConfig(exchange="scores", n_workers=4, seed=3, iterations=9, eval_every=3, batch_points=3)
    whole, first, second = (begun(set_up(comm, samples, config)) for _ in range(3))
    list(whole.run())
    list(first.run(4))
    second.restore(first.snapshot())
    list(second.run())
    assert second.state.parameters.tobytes() == whole.state.parameters.tobytes()


class Dense(PairObjective):
    """An objective of a user, who thinks of arrays."""

    name = "theirs"
    phi: Any = object()

    def n_parameters(self, n_columns: int) -> int:
        return n_columns

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        raise AssertionError


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, 'sparse rows stay where they are: use exchange="scores", or make arrays of them'),
        ({"exchange": "scores", "objective": Dense()}, "the objective theirs takes no sparse rows: make arrays"),
    ],
)
def test_what_needs_arrays_is_refused(comm: Any, options: dict[str, Any], sentence: str) -> None:
    x, z = data()
    mine = sparse.csr_array(x) if comm.rank == 0 else x[:0]
    with pytest.raises(UserError, match=sentence):
        learn(comm, mine, z if comm.rank == 0 else z[:0], **options)


def write_libsvm(path: Path, rows: Floats, labels: NDArray[Any]) -> Path:
    lines = []
    for row, label in zip(rows.tolist(), labels.tolist(), strict=True):
        lines.append(f"{label} " + " ".join(f"{j}:{value!r}" for j, value in enumerate(row, 1) if value) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("more", [(), ("--standardize",), ("--columns", "f7,f2,f3")], ids=str)
def test_the_command_line_reads_sparse_rows(here: Here, tmp_path: Path, more: tuple[str, ...]) -> None:
    x, z = data((60, 90))
    order = np.random.default_rng(2).permutation(150)
    rows, labels = np.concatenate([x, z])[order], np.repeat([1, -1], [60, 90])[order]
    text = write_csv(tmp_path / "d.csv", np.column_stack([rows, labels]).tolist(), "f1,f2,f3,f4,f5,f6,f7,f8,f9,label")
    whole = write_libsvm(tmp_path / "d.libsvm", rows, labels)
    write_libsvm(tmp_path / "p-1.libsvm", rows[:70], labels[:70])
    write_libsvm(tmp_path / "p-2.libsvm", rows[70:], labels[70:])
    options = ("--label", "label", "--positive", "1", "--exchange", "scores", "--seed", 1, "--loss", "squared-hinge")
    options += ("--batch-points", "all", "--iterations", 8, "--workers", 3, "--json")
    dense = result_of(here(text, *options, *more, "--output", tmp_path / "dense.h5"))
    of_sparse = (*options, *(each.replace("f", "") for each in more))
    found = result_of(here(whole, *of_sparse, "--output", tmp_path / "sparse.h5"))
    thresholds = [load(tmp_path / f"{name}.h5").config["threshold"] for name in ("sparse", "dense")]
    assert thresholds[0] == pytest.approx(thresholds[1], rel=1e-10)
    for name in ("weights", "train_loss", "test_auc", "column_mean", "column_deviation"):
        wanted = dense[name] if dense[name] is None else pytest.approx(dense[name], rel=1e-10, abs=1e-12)
        assert found[name] == wanted, name
    assert found["column_mean"] == dense["column_mean"]
    parts = result_of(here(str(tmp_path / "p-*.libsvm"), *of_sparse))
    assert parts["weights"] == found["weights"]
    scored = []
    for name, file in (("dense", text), ("sparse", tmp_path / "p-*.libsvm"), ("sparse", whole)):
        for label in ((), ("--label", "label")):
            predicted = tmp_path / f"scores-{len(scored)}.csv"
            model = tmp_path / f"{name}.h5"
            assert here(model, file, *label, "--output", predicted, command=("predict",)).returncode == 0
            scored.append(np.loadtxt(predicted, skiprows=1))
    assert len(scored[0]) == 150
    for each in scored[1:]:
        assert each == pytest.approx(scored[0], rel=1e-9, abs=1e-11)


def test_resuming_on_the_command_line(here: Here, tmp_path: Path) -> None:
    x, z = data((60, 90))
    file = write_libsvm(tmp_path / "d.libsvm", np.concatenate([x, z]), np.repeat([1, -1], [60, 90]))
    options = (file, "--exchange", "scores", "--batch-points", "all", "--seed", 1, "--json")
    kept = ("--checkpoint", tmp_path / "c.h5", "--checkpoint-every", 2)
    whole = result_of(here(*options, "--iterations", 9))
    assert here(*options, *kept, "--iterations", 4).returncode == 0
    assert result_of(here(*options, *kept, "--iterations", 9, "--resume"))["weights"] == whole["weights"]
    write_libsvm(file, np.concatenate([x, z[::-1]]), np.repeat([1, -1], [60, 90]))
    assert "data" in refusal(here(*options, *kept, "--iterations", 11, "--resume"))


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "x", "9007199254740993"])
def test_what_no_row_holds_is_refused_in_the_words_for_arrays(here: Here, tmp_path: Path, value: str) -> None:
    file = tmp_path / "d.libsvm"
    file.write_text(f"1 1:2\n-1 2:1\n\n# that was all?\n1 1:0 2:{value}\n")
    options = (file, "--iterations", 1, "--test-fraction", 0, "--seed", 1)
    found = refusal(here(*options, "--exchange", "scores"))
    assert found == refusal(here(*options)) and "line 5" in found


def test_a_wide_file_never_becomes_an_array(tmp_path: Path) -> None:
    n, d = 4000, 50_000  # 1.6 GB as an array
    generator = np.random.default_rng(3)
    with gzip.open(tmp_path / "wide.libsvm.gz", "wt") as stream:
        for i in range(n):
            columns = np.unique(generator.integers(1, d + 1, 5))
            stream.write(f"{i % 2} " + " ".join(f"{j}:1" for j in columns.tolist()) + f" {d + 1}:{i % 2 + 0.5}\n")
    code = (
        "from mpi_ustat.__main__ import console\n"
        "import resource, sys\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "sys.argv = ['mpi-ustat', 'learn', *sys.argv[1:]]\n"
        "try:\n    console()\n"
        "except SystemExit as done:\n    assert not done.code, done.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)\n"
    )
    options = ["--exchange", "scores", "--batch-points", "all", "--iterations", "5", "--seed", "1", "--standardize"]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "wide.libsvm.gz"), *options, "--json", "--quiet"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    added = int(done.stderr.split()[-1]) / 1024
    assert added < 300, f"{added} MiB"
