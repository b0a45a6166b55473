"""Several classes on the command line: one or each against the rest, every two; shown, stored, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, result_of, write_csv
from conftest import Mpirun
from numpy.testing import assert_allclose

from mpi_ustat import SerialComm, estimate, estimate_samples
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]

RNG = np.random.default_rng(6)
N = 140
CLASSES = np.array(["cat", "dog", "owl"])
LABELS = RNG.integers(0, 3, N)
SCORES = np.round(RNG.normal(size=(N, 3)) + np.eye(3)[LABELS], 1)
WEIGHTS, PATIENTS = np.round(RNG.exponential(size=N), 2), RNG.integers(0, 50, N)
COLUMNS = ("--label", "y", "--columns", "a,b,c")
OVR = ("class cat", "class dog", "class owl", "macro", "weighted")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [[*s, CLASSES[y], w, p] for s, y, w, p in zip(SCORES.tolist(), LABELS, WEIGHTS, PATIENTS, strict=True)]
    return write_csv(tmp_path / "rows.csv", rows, "a,b,c,y,w,patient")


def each_class(values: Any) -> list[Any]:
    return [values[k == LABELS] for k in range(3)]


@pytest.mark.parametrize(
    ("how", "names"), [("ovr", OVR), ("ovo", ("cat, dog", "cat, owl", "dog, owl", "M"))], ids=["ovr", "ovo"]
)
def test_the_command_gives_what_the_library_does_at_every_p(
    mpirun: Mpirun, here: Here, data: Path, tmp_path: Path, how: str, names: tuple[str, ...]
) -> None:
    output = tmp_path / "out.h5"
    options = (*COLUMNS, "--multiclass", how, "--seed", "1", "--difference", "--json")
    found = result_of(mpirun(4, "estimate", data, *options, "--output", output))
    alone = result_of(here("estimate", data, *options))
    want = estimate_samples(SerialComm(), each_class(SCORES), complete=True, multiclass=how)
    for each in (found, alone):
        assert each["estimate"] == want.values.tolist()
        assert each["stderr"] == list(want.stderr)  # type: ignore[arg-type]
        assert each["covariance"] == want.covariance.tolist()  # type: ignore[union-attr]
        assert tuple(each["columns"]) == names
        assert each["complete"]
        assert each["kernel_options"] == {"multiclass": how}
        assert len(each["differences"]) == len(names) * (len(names) - 1) / 2
    stored = load(str(output))
    assert stored.config["columns"] == list(names)
    assert_allclose(stored.datasets["estimate"].values, want.values, rtol=0)
    table = here("info", output)
    assert table.returncode == 0
    assert names[0] in table.stdout
    assert here("plot", output, "--output", tmp_path / "out.png").returncode == 0


def test_weights_and_clusters_are_spread_over_the_classes(here: Here, data: Path) -> None:
    options = (*COLUMNS, "--multiclass", "ovo", "--weights", "w", "--cluster", "patient", "--json")
    found = result_of(here("estimate", data, *options))
    said = {"weights": each_class(WEIGHTS), "clusters": each_class(PATIENTS)}
    want = estimate_samples(SerialComm(), each_class(SCORES), complete=True, multiclass="ovo", **said)
    assert (found["estimate"], found["stderr"]) == (want.values.tolist(), list(want.stderr))  # type: ignore[arg-type]


def test_the_classes_option_orders_classes_and_columns(here: Here, data: Path) -> None:
    options = ("--label", "y", "--columns", "c,a", "--classes", "owl,cat", "--multiclass", "ovr", "--json")
    found = result_of(here("estimate", data, *options))
    want = estimate_samples(
        SerialComm(), [SCORES[k == LABELS][:, [2, 0]] for k in (2, 0)], complete=True, multiclass="ovr"
    )
    assert found["estimate"] == want.values.tolist()
    assert found["columns"][:2] == ["class owl", "class cat"]


@pytest.mark.parametrize("more", [(), ("--complete",)])
def test_rest_is_all_other_labels(mpirun: Mpirun, data: Path, more: tuple[str, ...]) -> None:
    options = ("--label", "y", "--columns", "b", "--positive", "dog", "--rest", "--seed", "1", "--workers", "3", *more)
    found = result_of(mpirun(2, "estimate", data, *options, "--json"))
    assert found["sizes"] == [int((LABELS == 1).sum()), int((LABELS != 1).sum())]
    x, z = SCORES[LABELS == 1, 1], SCORES[LABELS != 1, 1]
    want = estimate(SerialComm(), x, z, complete=True)
    if more:
        assert (found["estimate"], found["stderr"]) == (want.value, want.stderr)
    else:
        assert abs(found["estimate"] - want.value) < 0.1


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "several labels": (
        ("--columns", "a"),
        "take one against all others with --rest, or estimate each of them with --mult",
    ),
    "rest of what": (("--columns", "a", "--rest"), "say with --positive which one is the sample x, not the rest"),
    "rest, classes": (
        ("--columns", "a", "--rest", "--classes", "cat,dog"),
        "leave out --rest, which takes all the other",
    ),
    "too few columns": (("--columns", "a,b", "--multiclass", "ovr"), "there are 3 classes and 2 columns of scores"),
    "one column": (("--columns", "a", "--multiclass", "ovr"), "there are 3 classes and 1 column of scores"),
    "rounds": (
        (*COLUMNS, "--multiclass", "ovr", "--rounds", "2"),
        "--multiclass takes all pairs, once: leave out --rounds",
    ),
    "pairs": (
        (*COLUMNS, "--multiclass", "ovo", "--pairs", "2"),
        "--multiclass takes all pairs, once: leave out --pairs",
    ),
    "bias": ((*COLUMNS, "--multiclass", "ovr", "--bias-report"), "all pairs, once: leave out --bias-report"),
    "kernel": ((*COLUMNS, "--multiclass", "ovr", "--kernel", "vus"), "is of the AUC: leave out --kernel vus"),
    "files": (("--multiclass", "ovr", "--x", "a", "--z", "b"), "one file with a label column: leave out --x and --z"),
    "positive": ((*COLUMNS, "--multiclass", "ovr", "--positive", "cat"), "leave out the positive one"),
    "groups": ((*COLUMNS, "--multiclass", "ovr", "--group", "patient"), "AUCs of several classes have no groups"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_is_refused(here: Here, data: Path, name: str) -> None:
    options, sentence = REFUSED[name]
    assert sentence in refusal(here("estimate", data, "--label", "y", *options))


def test_one_label_against_the_rest_is_learnt(here: Here, data: Path, tmp_path: Path) -> None:
    options = ("--label", "y", "--columns", "a,b,c", "--positive", "owl", "--rest", "--iterations", "5", "--seed", "1")
    done = here("learn", data, *options)
    assert done.returncode == 0, done.stderr
