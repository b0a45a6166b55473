"""The page that shows the same numbers in R: its commands print what it says, and R's numbers are R's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "same-number-in-r.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
RUNS = [
    (command.strip(), printed.splitlines())
    for (_, command), (_, printed) in pairwise(BLOCKS)
    if command.startswith("mpi-ustat estimate concordance.csv ")
]


def test_every_command_of_the_page_is_tried() -> None:
    assert len(RUNS) == PAGE.count("\nmpi-ustat ") > 8


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_commands_print_what_the_page_says(
    here: Callable[..., CompletedProcess[str]], shared_data: Path, number: int
) -> None:
    command, printed = RUNS[number]
    _, name, file, *options = shlex.split(command)
    done = here(name, shared_data / "survival" / file, *options)
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    for line in printed:
        assert line in found
