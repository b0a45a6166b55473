"""What a newcomer types first, and what is said about it: one sentence of what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import refusal

Here = Callable[..., CompletedProcess[str]]

SCORES = ("--label", "label", "--columns", "score")
WORDS: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "COMMAND is missing: give it (see mpi-ustat --help)"),
    "no file": (("plot",), "F.h5 is missing: give it (see mpi-ustat plot --help)"),
    "one column": (
        ("estimate", "one.csv"),
        "'one.csv' has one column only: two samples need a label column beside it, or a file for each; of one sample "
        "there is --kernel gini or variance",
    ),
    "a label alone": (
        ("estimate", "one.csv", "--label", "score"),
        "'one.csv' has the label 'score' and no other column: give data",
    ),
    "one file twice": (
        ("estimate", "s.csv", "./s.csv", *SCORES),
        "the file 's.csv' is given twice: its rows would count twice",
    ),
    "a word for a number": (
        ("estimate", "s.csv", *SCORES, "--rounds", "many"),
        "--rounds is 'many': give a whole number (see mpi-ustat estimate --help)",
    ),
    "an option without its value": (
        ("estimate", "s.csv", "--label"),
        "--label is given without a value: give one (see mpi-ustat estimate --help)",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_refusal_says_what_to_do(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.csv").write_text("score\n0.5\n0.7\n0.9\n")
    (tmp_path / "s.csv").write_text("score,label\n2,1\n1,0\n3,1\n")
    words, told = WORDS[case]
    done = here(*words)
    assert (refusal(done) if words else done.stderr.removeprefix("mpi-ustat: ")).strip() == told
    assert done.returncode == 2
