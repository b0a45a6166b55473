"""The code blocks of README.md and of the pages in docs: what each is, and whether it does what the page says.

    ```console      `$ command` lines, each followed by what it prints
    ```python       run with what the page's earlier blocks have defined; an ```output block is what it prints
    ```toml, ```ini parsed

A line `…` stands for any lines. A comment before a block says more:

    <!-- file: name.py -->         the block is the content of a file, which later blocks use (… in latin-1)
    <!-- fails -->                 the block's commands end with an error, which is what they print
    <!-- cluster -->               needs a batch system, a registry or another machine
    <!-- run by tests/….py -->     a test, or script, of its own runs it
    <!-- with: --quick -->         the test adds these options to the block's commands, and looks at no numbers
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conftest import REPOSITORY

ANYTHING = "…"
PROSE = {"r", "output"}
"""Languages of blocks that say what something else prints, or run where R is."""

_FENCE = re.compile(r"^(```+)([\w{}:-]*)[^\n]*\n(.*?)^\1 *$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (.+?) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    said: str
    """The comment before it, or an empty text."""
    output: str | None = field(default=None)

    def __str__(self) -> str:
        return f"{self.page.name}, line {self.line}"

    @property
    def elsewhere(self) -> bool:
        """Whether the block is not run here."""
        return self.said == "cluster" or self.said.startswith("run by ") or self.language in PROSE

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a console block, and the lines that each prints."""
        found: list[tuple[str, list[str]]] = []
        for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
        return found


def pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, each with the output block that follows it."""
    content = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(content):
        language, text = match[2], match[3]
        before = _COMMENT.search(content[: match.start()])
        line = content.count("\n", 0, match.start()) + 1
        if language.startswith("{"):  # a directive of Sphinx's
            continue
        if language == "output" and found and not before:
            last = found.pop()
            found.append(Block(page, last.line, last.language, last.text, last.said, text))
            continue
        found.append(Block(page, line, language, text, before[1] if before else ""))
    return found


def words(command: str) -> list[str]:
    """Return the words of a command without the launcher before `mpi-ustat` or `python`."""
    found = shlex.split(command)
    if found[0] == "mpiexec":
        found = found[3:]
    return found


_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


def alike(said: list[str], printed: list[str]) -> bool:
    """Return whether lines are the same, but for last digits of numbers, which other versions of NumPy may round."""
    one, other = ("\n".join(lines) for lines in (said, printed))
    if one == other:
        return True
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-9) for a, b in pairs)


def agrees(said: list[str], printed: list[str]) -> bool:
    """Return whether what was printed is what a page says, where `…` stands for any lines."""
    pieces: list[list[str]] = [[]]
    for line in said:
        if line == ANYTHING:
            pieces.append([])
        else:
            pieces[-1].append(line)
    first, *later = pieces
    if not alike(first, printed[: len(first)]) or (not later and len(printed) != len(first)):
        return False
    at = len(first)
    for number, piece in enumerate(later):
        last = number == len(later) - 1
        places = [len(printed) - len(piece)] if last and piece else range(at, len(printed) - len(piece) + 1)
        place = next((p for p in places if p >= at and alike(piece, printed[p : p + len(piece)])), None)
        if place is None:
            return False
        at = place + len(piece)
    return True


def retold(said: list[str], printed: list[str]) -> list[str]:
    """Return what a page should say: the printed lines whose beginnings the page has, and `…` for the rest."""
    if ANYTHING not in said:
        return printed
    beginnings = [line[:18] for line in said if line != ANYTHING]
    kept: list[str] = []
    for line in printed:
        if line[:18] in beginnings:
            beginnings.remove(line[:18])
            kept.append(line)
        elif kept[-1:] != [ANYTHING]:
            kept.append(ANYTHING)
    return kept


def pictures(page: Path) -> Iterator[Path]:
    """Yield the pictures of a page that its commands make."""
    for name in re.findall(r"!\[[^\]]*\]\(([^)]*pictures/[^)]+\.png)\)", page.read_text(encoding="utf-8")):
        yield page.parent / name
