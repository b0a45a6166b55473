"""The page that shows the same numbers in R: its commands print what it says, and R's numbers are R's."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import write_csv
from conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "same-number-in-r.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
RUNS = [
    (command.strip(), printed.splitlines())
    for (_, command), (_, printed) in pairwise(BLOCKS)
    if command.startswith("mpi-ustat estimate ")
]


def test_every_command_of_the_page_is_tried() -> None:
    assert len(RUNS) == PAGE.count("\nmpi-ustat ") > 8


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_commands_print_what_the_page_says(
    here: Callable[..., CompletedProcess[str]], shared_data: Path, tmp_path: Path, number: int
) -> None:
    command, printed = RUNS[number]
    _, name, file, *options = shlex.split(command)
    path = shared_data / "survival" / file
    if file == "lung.csv":  # as the page's `write.csv` writes it
        with open(path, newline="") as lung:
            rows = [(row["time"], int(row["status"]) - 1, row["age"]) for row in csv.DictReader(lung)]
        path = write_csv(tmp_path / file, rows, "time,event,age")
    done = here(name, path, *options)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    for line in printed:
        assert line in found


def test_the_library_prints_what_the_page_says(shared_data: Path) -> None:
    ((code, printed),) = [
        (code, printed)
        for (_, code), (_, printed) in pairwise(BLOCKS)
        if "concordance.csv" in code and "print(" in code
    ]
    folder = shared_data / "survival"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
