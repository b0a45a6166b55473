"""README.md and the pages of docs: every block of code is run, and prints what the page says."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from commands import write_csv
from conftest import REPOSITORY, SIZE
from pages import Block, agrees, blocks, pages, pictures, retold, words

Here = Callable[..., CompletedProcess[str]]

EXAMPLES = REPOSITORY / "docs" / "examples"
REFRESH = "MPI_USTAT_REFRESH" in os.environ
"""Whether pages are to be brought up to date: their numbers are replaced, and pictures copied into docs/pictures."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a page's commands, with the examples' files; its modules are forgotten afterwards."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "examples").symlink_to(EXAMPLES)
    for path in EXAMPLES.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run_console(block: Block, here: Here) -> None:
    more = block.said.removeprefix("with: ").split() if block.said.startswith("with: ") else []
    for command, said in block.commands:
        program, *arguments = words(command)
        if program == "python":
            done = run_script(arguments)
        else:
            assert program == "mpi-ustat", f"{block}: `{command}` is not run by this test: mark the block"
            done = here(*arguments, *more)
        fails = block.said == "fails"
        assert (done.returncode == 0) != fails, f"{block}: {command}\n{done.stderr}"
        printed = (done.stderr if fails else done.stdout).splitlines()
        if REFRESH and not agrees(said, printed):
            replace(block, said, retold(said, printed))
        else:
            assert more or agrees(said, printed), f"{block}: {command}\n{done.stdout}{done.stderr}"


def replace(block: Block, said: list[str], now: list[str]) -> None:
    lines = block.page.read_text(encoding="utf-8").split("\n")
    places = range(block.line, len(lines))
    place = next(
        at for at in places if lines[at : at + len(said)] == said and lines[at - 1].startswith(("$", " ", "```output"))
    )
    lines[place : place + len(said)] = now
    block.page.write_text("\n".join(lines), encoding="utf-8")


def run_script(arguments: list[str]) -> CompletedProcess[str]:
    import runpy

    said = io.StringIO()
    argv, sys.argv = sys.argv, arguments
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = argv
    return CompletedProcess(arguments, 0, said.getvalue(), "")


def run_python(block: Block, names: dict[str, Any]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block.text, str(block), "exec"), names)
    if block.output is not None:
        told, printed = block.output.splitlines(), said.getvalue().splitlines()
        if REFRESH and not agrees(told, printed):
            replace(block, told, printed)
        else:
            assert agrees(told, printed), f"{block}\n{said.getvalue()}"


def run(block: Block, folder: Path, here: Here, names: dict[str, Any]) -> None:
    if block.elsewhere:
        return
    if block.said.startswith("file: "):
        name, _, encoding = block.said.removeprefix("file: ").partition(" in ")
        (folder / name).write_text(block.text, encoding=encoding or "utf-8")
    elif block.language == "console":
        run_console(block, here)
    elif block.language == "python":
        run_python(block, names)
    else:
        assert block.language == "toml", f"{block}: nothing runs a block of '{block.language}'"
        tomllib.loads(block.text)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_block_of_a_page_does_what_the_page_says(
    page: Path, folder: Path, here: Here, request: pytest.FixtureRequest
) -> None:
    if SIZE > 1:
        pytest.skip("pages are run by pytest in one process")
    content = page.read_text(encoding="utf-8")
    if "concordance.csv" in content:
        survival = request.getfixturevalue("shared_data") / "survival"
        (folder / "concordance.csv").symlink_to(survival / "concordance.csv")
        with open(survival / "lung.csv", newline="") as lung:  # as the page's `write.csv` writes it
            rows = [(row["time"], int(row["status"]) - 1, row["age"]) for row in csv.DictReader(lung)]
        write_csv(folder / "lung.csv", rows, "time,event,age")
    if " shuttle " in content:
        pytest.importorskip("river")
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        run(block, folder, here, names)
    for picture in pictures(page):
        made = folder / picture.name
        assert made.is_file(), f"no command of {page.name} makes {picture.name}"
        if REFRESH:
            picture.parent.mkdir(exist_ok=True)
            shutil.copy(made, picture)
        assert picture.is_file(), f"set MPI_USTAT_REFRESH=1 to make {picture}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    content = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", content):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_blocks_of_other_tests_name_a_test_that_is_there() -> None:
    for page in pages():
        for block in blocks(page):
            if block.said.startswith("run by "):
                assert (REPOSITORY / block.said.removeprefix("run by ")).is_file(), str(block)


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("a b", "a b", True),
        ("a", "a b", False),
        ("a …", "a b c", True),
        ("… c", "a b c", True),
        ("… b", "a b c", False),
        ("a … c", "a b c", True),
        ("a … c …", "a b c d", True),
        ("… b … a …", "a b c", False),
        ("…", "", True),
        ("", "a", False),
        ("p=0.1234567890123", "p=0.1234567890124", True),
        ("p=0.12345", "p=0.12346", False),
        ("p=0.5", "q=0.5", False),
    ],
)
def test_what_is_printed_is_compared_with_what_a_page_says(said: str, printed: str, same: bool) -> None:
    assert agrees(said.split(), printed.split()) == same


def test_the_readme_is_short_and_four_commands_lead_to_an_auc() -> None:
    readme, *_ = pages()
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 100
    (first,) = [block for block in blocks(readme) if block.said == "run by scripts/newcomer.sh"]
    commands = first.text.splitlines()
    assert len(commands) <= 4
    assert commands[0].startswith("git clone ") and "mpi-ustat estimate " in commands[-1]


def test_a_newcomer_s_tasks_are_all_there() -> None:
    page = (REPOSITORY / "docs" / "tasks.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    numbers = [int(number) for number in re.findall(r"(?:^|; |[:;]\n)(\d+)\\?\. ", prose, re.MULTILINE)]
    assert sorted(numbers) == list(range(1, 37))


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.sh")), ids=lambda path: path.name)
def test_shell_scripts_of_examples_are_shell(script: Path) -> None:
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
