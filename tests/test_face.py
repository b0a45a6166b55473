"""The library's face: it speaks Python, and the command line says the same in flags."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import mpi_ustat
from mpi_ustat.app.flags import as_flags, in_flags

PACKAGE = Path(mpi_ustat.__file__).parent

# Everything that a program calls, and not the commands, their files, or what belongs to mpiexec.
LIBRARY = ("estimation", "learning", "planning", "complete", "kernels", "schemes", "inference", "points", "user", "mpi")
OF_OTHERS = {"--mpi4py", "--mpi-lib-version", "--mpi", "--no-cache"}


def test_no_sentence_of_the_library_names_a_flag_of_the_command_line() -> None:
    found = [
        (path.name, node.lineno, flag)
        for room in LIBRARY
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", node.value)
        if flag not in OF_OTHERS
    ]
    assert not found


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ("use at most 3 workers (n_workers=)", "use at most 3 workers (--workers)"),
        ("ask for fewer n_rounds= or n_workers=", "ask for fewer --rounds or --workers"),
        ("ask for fewer iterations=, or a larger eval_every=", "ask for fewer --iterations, or a larger --eval-every"),
        ("ask for fewer batch_pairs=", "ask for fewer --batch-pairs"),
        ('choose empty="skip" or "zero"', "choose --empty skip or zero"),
        ('(scheme="prop-swor", aggregate="mean"), whose', "(--scheme prop-swor --aggregate mean), whose"),
        ('use complete=True, or scheme="prop-swor"', "use --complete, or --scheme prop-swor"),
        ('use move="smaller" with prop-swor', "use --move smaller with prop-swor"),
        ("choose fewer columns, or stderr=False", "choose fewer columns, or --no-stderr"),
        ("sample some of them (n_pairs=), or", "sample some of them (--pairs), or"),
        # What is no option, or a text of the user's, stays.
        ("the file 'scheme=swor/complete=True.csv' has n=3", "the file 'scheme=swor/complete=True.csv' has n=3"),
        (
            "data/complete=True/seed=1/x.csv: seed=7, my_tile=True",
            "data/complete=True/seed=1/x.csv: seed=7, my_tile=True",
        ),
        ("the column 'complete=True' has no numbers", "the column 'complete=True' has no numbers"),
    ],
)
def test_options_become_flags_and_nothing_else_does(python: str, flags: str) -> None:
    assert in_flags(python) == flags


def test_options_become_words_of_a_command_line() -> None:
    options = {"complete": True, "stderr": False, "n_workers": 7, "scheme": "as-is", "batch_pairs": 3}
    assert as_flags(options) == [
        "--complete",
        "--no-stderr",
        "--workers",
        "7",
        "--scheme",
        "as-is",
        "--batch-pairs",
        "3",
    ]
