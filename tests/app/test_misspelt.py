"""A name that is none is answered with the one that is meant, in one sentence, wherever names are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import h5py
import numpy as np
import pytest
from commands import refusal, write_csv

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.estimation.estimate import estimate
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.mpi.runtime import SerialComm

Here = Callable[..., CompletedProcess[str]]

TWO = ("estimate", "t.csv", "--label", "label", "--columns", "score")
JOB = ("batch", "slurm", "--ntasks", "1", "--")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [(k / 7, k % 2, ["cat", "dog", "owl"][k % 3]) for k in range(12)]
    write_csv(tmp_path / "t.csv", rows, "score,label,animal")
    (tmp_path / "mine.py").write_text("def nearness(x, z):\n    return x - z.T\n")
    with h5py.File("t.h5", "w") as file:
        file["embedding"], file["label"] = np.eye(12)[:, :4], np.arange(12) % 2


MISSPELT = {
    "a command": (["estmate", "t.csv"], "'estimate'"),
    "an option before it": (["--versoin"], "'--version'"),
    "an option": ([*TWO, "--kernl", "gini"], "'--kernel'"),
    "an option with its value": ([*TWO, "--kernl=gini"], "'--kernel'"),
    "an option with one dash": ([*TWO, "-kernel", "gini"], "'--kernel'"),
    "an option that another needs": (["batch", "slurm", "--ntaks", "2", "--", "plan", "t.csv"], "'--ntasks'"),
    "an option of a kernel": ([*TWO, "--kernel", "mmd", "--bandwith", "2"], "'--bandwidth'"),
    "an option in a job": ([*JOB, *TWO, "--ruonds", "2"], "'--rounds'"),
    "a choice": ([*TWO, "--scheme", "rotatoin"], "'rotation'"),
    "a figure": (["reproduce", "coverge"], "'coverage'"),
    "a loss": (["learn", "t.csv", "--label", "label", "--columns", "score", "--loss", "hnge"], "'hinge'"),
    "a kernel": ([*TWO, "--kernel", "enrgy"], "'energy'"),
    "a kernel of one's own": ([*TWO, "--kernel", "./mine.py:nearnes"], "'nearness'"),
    "a column": ([*TWO[:-1], "scroe"], "'score'"),
    "a column in capitals": ([*TWO[:-1], "SCORE"], "'score'"),
    "an end of a range": ([*TWO[:-1], "score..anmal"], "'animal'"),
    "the label's column": (["estimate", "t.csv", "--label", "labl", "--columns", "score"], "'label'"),
    "weights": ([*TWO, "--complete", "--weights", "scor"], "'score'"),
    "a label": (
        ["estimate", "t.csv", "--label", "animal", "--positive", "dgo", "--rest", "--columns", "score"],
        "'dog'",
    ),
    "a class": (["estimate", "t.csv", "--label", "animal", "--classes", "cat,Owl", "--columns", "score"], "'owl'"),
    "an array": (
        ["estimate", "t.h5", "--label", "label", "--columns", "embeding", "--kernel", "energy"],
        "'embedding'",
    ),
    "another's range": ([*TWO[:-1], "score-label"], "the range 'score..label'"),
    "NumPy's range": ([*TWO[:-1], "0:1"], "the range '0..1'"),
    "a range in an array": (
        ["estimate", "t.h5", "--label", "label", "--columns", "embedding[0-3]", "--kernel", "energy"],
        "the range 'embedding[0]..embedding[3]'",
    ),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_the_name_that_is_meant_is_told(here: Here, folder: None, case: str) -> None:
    words, meant = MISSPELT[case]
    told = refusal(here(*words))
    assert told.count(f"did you mean {meant}?") == 1


def test_what_is_like_nothing_is_refused_as_it_is(here: Here, folder: None) -> None:
    for words in (["--qqq"], ["--columns", "zebra"], ["--columns", "17"], ["--kernel", "wilcoxon"]):
        assert "did you mean" not in refusal(here("estimate", "t.csv", "--label", "label", *words))
    assert did_you_mean("10", ["1", "100"]) == ""
    assert did_you_mean("x" * 10**6, ["x"]) == ""


def test_columns_are_chosen_once(here: Here, folder: None) -> None:
    assert "chosen twice" in refusal(here("estimate", "t.csv", "--label", "label", "--columns", "score,0"))
    assert "give --columns all alone" in refusal(
        here("estimate", "t.csv", "--label", "label", "--columns", "all,score")
    )


def test_a_file_apart_from_the_others_is_told(here: Here, folder: None) -> None:
    told = refusal(here(*TWO, "more.csv"))
    assert told.startswith("'more.csv' stands where nothing takes it: give the files next to each other")


def test_python_is_told_too() -> None:
    x = np.arange(4.0)
    for options in ({"kernel": "agini"}, {"scheme": "rotaton"}, {"kernel": "mmd", "kernel_options": {"bandwith": 2}}):
        with pytest.raises(UserError, match="did you mean '(gini|rotation|bandwidth)'"):
            estimate(SerialComm(), x, x + 1, **{"seed": 0, "n_workers": 1} | options)
    with pytest.raises(UserError, match="did you mean 'logistic'"):
        LinearRanking("logistc")
