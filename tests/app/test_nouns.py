"""Numbers and their nouns agree in what is printed: 1 worker, 2 workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from commands import write_csv
from conftest import REPOSITORY

from mpi_ustat import load
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import estimate
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.wording import count_of, plural

Here = Callable[..., CompletedProcess[str]]

OF_ONE = re.compile(
    r"(?<![\w.,+-])1 (?!class\b|process\b|is\b)((sampled|different|local|disjoint) )?[a-z]+s\b|\w\(e?s\)"
)
"""One of several, or a noun that leaves it to the reader."""

SCORES = ("s.csv", "--label", "label", "--columns", "score")
ONE_ROUND = ("--workers", 1, "--rounds", 1, "--seed", 1)
RUNS = {
    "a round of one pair": ("estimate", *SCORES, *ONE_ROUND, "--pairs", 1),
    "a round of different pairs": ("estimate", *SCORES, *ONE_ROUND, "--pairs", 1, "--distinct"),
    "workers of whom one has no pair": ("estimate", *SCORES, "--workers", 4, "--scheme", "as-is", "--empty", "skip"),
    "the same refused": ("estimate", *SCORES, "--workers", 4, "--scheme", "as-is"),
    "more workers than points": ("estimate", *SCORES, "--workers", 9, "--rounds", 1),
    "all pairs": ("estimate", *SCORES),
    "a cluster": ("estimate", *SCORES, "--cluster", "who"),
    "a group": ("estimate", *SCORES, "--group", "who"),
    "a class of one point": ("estimate", "s.csv", "--label", "who", "--positive", "c", "--rest", "--columns", "score"),
    "a test of two blocks": ("estimate", "t.csv", *SCORES[1:], "--kernel", "energy", "--test", "--workers", 13),
    "a test that has too few": ("estimate", *SCORES, "--kernel", "energy", "--test"),
    "a difference of two": (
        *("estimate", "t.csv", "--label", "label", "--columns", "score,other", "--difference"),
        *("--null", "0.5", "--test"),
    ),
    "a step": (
        *("learn", "t.csv", "--label", "label", "--columns", "score,other", "--iterations", 1),
        *("--repartition-every", 1, "--batch-pairs", 1, "--workers", 1, "--seed", 1),
    ),
    "a step of scores": (
        *("learn", "t.csv", "--label", "label", "--columns", "score,other", "--iterations", 1, "--exchange", "scores"),
        *("--batch-points", 1, "--seed", 1),
    ),
    "a plan": ("plan", "t.csv", "--label", "label", "--columns", "score", "--workers", 1),
    "a plan to learn": (
        *("plan", "t.csv", "--label", "label", "--columns", "score,other", "--learn", "--workers", 1),
        *("--batch-pairs", 1),
    ),
    "a kernel of other samples": ("estimate", *SCORES, "--kernel", "variance"),
    "the machine": ("doctor",),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    few = [(0.1, 0, "a"), (0.4, 1, "b"), (0.35, 0, "a"), (0.8, 1, "b"), (0.3, 1, "b"), (0.2, 0, "c"), (0.9, 1, "a")]
    write_csv(tmp_path / "s.csv", few, "score,label,who")
    rng = np.random.default_rng(1)
    more = [(*rng.normal(size=2).tolist(), int(k % 2)) for k in range(13)]
    write_csv(tmp_path / "t.csv", more, "score,other,label")
    return tmp_path


def of_one(text: str) -> list[str]:
    return [found[0] for found in OF_ONE.finditer(text)]


def test_the_scan_finds_what_it_is_for() -> None:
    wrong = ("1 workers", "2 of 1 rank(s)", "p of 1 sampled pairs a worker", "1 class(es)", "of 1 clusters have")
    right = (
        "1 worker",
        "21 workers",
        "1.0 points",
        "0 and 1 rounds"[:7],
        "1 class",
        "chi = 1, 2 rows",
        "1 process runs",
    )
    assert all(of_one(text) for text in wrong)
    assert not any(of_one(text) for text in right)


@pytest.mark.parametrize("run", RUNS)
def test_numbers_and_nouns_agree(here: Here, folder: Path, run: str) -> None:
    command = RUNS[run]
    kept = command[0] in ("estimate", "learn", "plan")
    done = here(*command, *(("--output", "out.h5") if kept else ()))
    assert of_one(done.stdout + done.stderr) == [], done.stdout + done.stderr
    assert done.returncode in (0, 2)
    if kept and done.returncode == 0:
        told = here("info", "out.h5").stdout + str(load("out.h5"))
        assert told and of_one(told) == []


def test_what_is_doubtful_names_samples_in_whole_sentences(here: Here, folder: Path) -> None:
    told = here("estimate", *SCORES, "--cluster", "who").stdout
    assert "only 2 clusters have a point of the sample of the class '1': a standard error wants 30 or more" in told
    told = here("estimate", *SCORES).stdout
    assert "points of the sample of the class '1' decide how far the estimate is from 1: fewer than 10 are" in told
    told = here("estimate", *SCORES, "--group", "who").stdout
    assert "interval          none\n" in told
    assert "there is one group only: a standard error wants several" in told and "cluster" not in told


def test_no_message_leaves_the_number_to_the_reader() -> None:
    left = [
        f"{path.name}: {line.strip()}"
        for path in sorted((REPOSITORY / "mpi_ustat").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"""["'].*[a-z}]\(e?s\).*["']""", line)
    ]
    assert left == []


def test_the_verb_agrees_with_a_single_cluster() -> None:
    x, z = np.arange(3.0), np.arange(2.0) + 0.5
    found = estimate(SerialComm(), x, z, complete=True, clusters=[np.array([0, 1, 2]), np.array([7, 7])])
    assert "only 1 cluster has a point of the sample z: a standard error wants 30 or more" in found.flags
    with pytest.raises(UserError, match="^the sample x has only 1 point: the kernel variance takes 2 of it$"):
        estimate(SerialComm(), np.ones(1), kernel="variance", complete=True)


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 rows"), (1, "1 row"), (1.0, "1.0 rows"), ("1 or 2", "1 or 2 rows")]
)
def test_what_is_written_decides(number: object, told: str) -> None:
    assert count_of(number, "row") == told
    assert plural(number, "has", "have") == ("has" if told == "1 row" else "have")
