"""`mpi-ustat learn`: test points of another file, validation points, and labels of more than two values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from conftest import Mpirun
from numpy.typing import NDArray

from mpi_ustat import SerialComm, learn
from mpi_ustat.learning.learn import learn_samples
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.points.preparation import split
from mpi_ustat.storage.results import load

Array = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)

OPTIONS = ["--label", "y", "--workers", 4, "--batch-pairs", 6, "--repartition-every", 3, "--iterations", 42]
OPTIONS += ["--learning-rate", 0.4, "--eval-every", 5, "--seed", 8, "--json"]
AS_PYTHON: dict[str, Any] = {
    "n_workers": 4,
    "batch_pairs": 6,
    "repartition_every": 3,
    "iterations": 42,
    "learning_rate": 0.4,
    "eval_every": 5,
    "seed": 8,
}


def table(seed: int, n_rows: int = 70, n_classes: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_rows) % n_classes).astype(float)
    return np.round(rng.normal(size=(n_rows, 6)) + 0.3 * y[:, None], 3), y


def written(path: Path, X: Array, labels: Any, order: str = "abcdef") -> Path:
    rows = list(zip(labels, *(X[:, "abcdef".index(name)].tolist() for name in order), strict=True))
    return write_csv(path, rows, "y," + ",".join(order))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    X, y = table(1)
    return written(tmp_path / "data.csv", X, y.astype(int).tolist())


def test_test_points_of_another_file_are_found_by_the_names_of_columns(here: Here, data: Path, tmp_path: Path) -> None:
    X, y = table(1)
    X_test, y_test = table(2, 33)
    test = written(tmp_path / "test.csv", X_test, y_test.astype(int).tolist(), "fdbace")
    found = result_of(here(data, *OPTIONS, "--test-data", test, "--output", tmp_path / "m.h5"))
    fit = learn(SerialComm(), X[y == 1], X[y == 0], x_test=X_test[y_test == 1], z_test=X_test[y_test == 0], **AS_PYTHON)
    assert (found["n"], found["m"]) == (35, 35)
    assert found["weights"] == fit.parameters.tolist()
    assert found["test_loss"] == fit.history["test_loss"][-1]
    assert found["test_auc"] == fit.history["test_auc"][-1]
    described = load(tmp_path / "m.h5").config["data"]
    assert (described["test_data"], described["test_fraction"]) == (["test.csv"], 0.0)


def test_test_points_stand_beside_rows_that_stay_where_they_lie(here: Here, data: Path, tmp_path: Path) -> None:
    X_test, y_test = table(2, 33)
    test = written(tmp_path / "test.csv", X_test, y_test.astype(int).tolist())
    options = [*OPTIONS, "--scheme", "as-is", "--repartition-every", "never"]
    with_test = result_of(here(data, *options, "--test-data", test))
    assert with_test["weights"] == result_of(here(data, *options, "--test-fraction", 0))["weights"]
    assert with_test["test_loss"] is not None


def test_validation_points_are_set_apart_after_the_test_points(here: Here, data: Path, tmp_path: Path) -> None:
    X, y = table(1)
    parts: dict[str, list[Array]] = {"train": [], "test": [], "validation": []}
    for k, label in enumerate((1, 0)):
        rows, tests = split(SerialComm(), X[y == label], 0.2, Streams(8), k)
        rows, validation = split(SerialComm(), rows, 0.25, Streams(8), k, "validation")
        for name, each in zip(parts, (rows, tests, validation), strict=True):
            parts[name].append(each)
    assert [len(each) for each in parts["validation"]] == [7, 7]
    found = result_of(
        here(data, *OPTIONS, "--validation-fraction", 0.25, "--early-stopping", 3, "--output", tmp_path / "m.h5")
    )
    fit = learn(
        SerialComm(),
        *parts["train"],
        x_test=parts["test"][0],
        z_test=parts["test"][1],
        x_validation=parts["validation"][0],
        z_validation=parts["validation"][1],
        early_stopping=3,
        **AS_PYTHON,
    )
    assert found["weights"] == fit.parameters.tolist()
    assert (found["kept_iteration"], found["iterations"]) == (fit.kept, fit.iterations)
    place = fit.history["iteration"].tolist().index(fit.kept)
    for name in ("train_loss", "test_loss", "test_auc", "validation_loss", "validation_auc"):
        assert found[name] == fit.history[name][place]
    stored = load(tmp_path / "m.h5")
    assert stored.provenance["kept_iteration"] == fit.kept
    assert stored.config["data"]["validation_fraction"] == 0.25
    assert (stored.config["early_stopping"], stored.config["keep"]) == (3, "best")
    for name in ("validation_loss", "validation_auc"):
        np.testing.assert_array_equal(stored.datasets[f"history/{name}"].values, fit.history[name])
    last = result_of(here(data, *OPTIONS, "--validation-fraction", 0.25, "--keep", "last"))
    assert last["kept_iteration"] == last["iterations"] == 42


def test_a_run_that_goes_on_ends_and_keeps_as_a_whole_one_does(mpirun: Mpirun, data: Path, tmp_path: Path) -> None:
    options = [
        data,
        *OPTIONS,
        "--validation-fraction",
        0.25,
        "--early-stopping",
        2,
        "--learning-rate",
        0.02,
        "--seed",
        2,
    ]
    whole = result_of(mpirun(1, "learn", *options))
    kept = ["--checkpoint", tmp_path / "run.ck"]
    reached = [7, 23, 28]
    assert 42 > whole["iterations"] > max(reached) > whole["kept_iteration"] > 0
    for n_ranks, t in zip((2, 1, 3), reached, strict=True):
        resume = ["--resume"] if t > 7 else []
        assert (
            mpirun(n_ranks, "learn", *options, *kept, "--checkpoint-every", 4, "--iterations", t, *resume).returncode
            == 0
        )
    again = result_of(mpirun(2, "learn", *options, *kept, "--resume"))
    done = result_of(mpirun(1, "learn", *options, *kept, "--resume"))  # nothing is left to do
    for each in (again, done):
        for name in ("weights", "kept_iteration", "iterations", "validation_loss", "test_auc"):
            assert each[name] == whole[name]


def test_one_label_against_all_others(here: Here, tmp_path: Path) -> None:
    X, kinds = table(3, 90, 3)
    names = np.array(["cat", "dog", "owl"])[kinds.astype(int)]
    data = written(tmp_path / "pets.csv", X, names.tolist())
    found = result_of(here(data, *OPTIONS, "--positive", "dog", "--rest", "--test-fraction", 0))
    fit = learn(SerialComm(), X[names == "dog"], X[names != "dog"], **AS_PYTHON)
    assert found["weights"] == fit.parameters.tolist()
    assert (found["n"], found["m"], found["positive"]) == (30, 60, "dog")


@pytest.mark.parametrize("order", ["low,mid,high", "high,low"])
def test_ordered_classes_are_paired_with_those_just_below(
    mpirun: Mpirun, here: Here, tmp_path: Path, order: str
) -> None:
    X, kinds = table(3, 90, 3)
    names = np.array(["low", "mid", "high"])[kinds.astype(int)]
    rows = written(tmp_path / "grades.csv", X, names.tolist())
    chosen = order.split(",")
    options = [*OPTIONS, "--classes", order, "--test-fraction", 0.2, "--validation-fraction", 0.2]
    found = result_of(here(rows, *options))
    assert found["weights"] == result_of(mpirun(2, "learn", rows, *options))["weights"]
    parts = [split(SerialComm(), X[names == name], 0.2, Streams(8), k) for k, name in enumerate(chosen)]
    apart = [split(SerialComm(), part[0], 0.2, Streams(8), k, "validation") for k, part in enumerate(parts)]
    fit = learn_samples(
        SerialComm(),
        [each[0] for each in apart],
        tests=[each[1] for each in parts],
        validation=[each[1] for each in apart],
        pairings=[(k + 1, k) for k in range(len(chosen) - 1)],
        **AS_PYTHON,
    )
    assert found["weights"] == fit.parameters.tolist()
    assert found["classes"] == chosen
    assert found["n_of_classes"] == [len(each[0]) for each in apart]
    assert found["validation_loss"] == fit.history["validation_loss"].min()
    w = fit.parameters
    scores = [each[1] @ w for each in parts]
    wins = [np.sign(scores[k + 1][:, None] - scores[k]).mean() for k in range(len(chosen) - 1)]
    assert found["test_auc"] == pytest.approx((np.mean(wins) + 1.0) / 2.0, abs=1e-12)


def test_what_two_classes_are_is_told_whichever_way_they_are_named(here: Here, data: Path) -> None:
    by_classes = here(data, *OPTIONS[:-1], "--classes", "0,1")
    assert by_classes.returncode == 0
    assert "of the class '0'" in by_classes.stdout
    assert "of the class '1'" in by_classes.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--test-data", "t.csv", "--test-fraction", 0.2],
            "--test-data are the test points: leave out --test-fraction",
        ),
        (
            ["--early-stopping", 3],
            "--early-stopping goes by the loss of validation points: set some apart by --validation-fraction",
        ),
        (["--validation-fraction", 1.5], "the validation fraction is 1.5: give a number of at least 0 and below 1"),
        (["--validation-fraction", 0.001], "a validation fraction of 0.001 takes 0 of the 28 points of the sample 0"),
        (
            ["--scheme", "as-is", "--repartition-every", "never", "--test-fraction", 0, "--validation-fraction", 0.2],
            "as-is keeps the file's blocks, a validation set breaks them: use --validation-fraction 0 or prop-swor",
        ),
        (["--classes", "0,1", "--positive", "1"], "the classes say already which label comes first"),
        (["--validation-fraction", 0.2, "--early-stopping", 0], "the number of evaluations before an early stop is 0"),
        (["--test-data", "other.csv"], "'other.csv' lacks the columns e, f of the training points"),
        (["--test-data", "none.csv"], "there is no file 'none.csv'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    here: Here, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    X, y = table(1)
    written(tmp_path / "other.csv", X, y.astype(int).tolist(), "abcd")
    assert sentence in refusal(here(data, *OPTIONS, *words))


def test_the_test_file_is_not_written_over(here: Here, data: Path, tmp_path: Path) -> None:
    X, y = table(2)
    test = written(tmp_path / "test.h5.csv", X, y.astype(int).tolist())
    os.link(test, tmp_path / "out.h5")
    said = refusal(here(data, *OPTIONS, "--test-data", test, "--output", tmp_path / "out.h5", "--overwrite"))
    assert "is also read" in said
