"""What a file needs to be told of is named where it is refused: the sign of thousands, of decimals, between cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import refusal

from mpi_ustat.storage.dialect import ways_to_read
from mpi_ustat.storage.text_format import TextFormat

Here = Callable[..., CompletedProcess[str]]

COLUMNS = ("--label", "label", "--columns", "score", "--quiet")
CELLS = {
    "1,234.5": ["--thousands", "comma"],
    "1.234,5": ["--decimal", "comma", "--thousands", "point"],
    "1 234.5": ["--thousands", "blank"],
    "1'234.5": ["--thousands", "apostrophe"],
    "1 234,5": ["--decimal", "comma", "--thousands", "blank"],
    "1234,5": ["--decimal", "comma"],
}
"""1234.5, and the options with which it is read."""


@pytest.mark.parametrize("cell", CELLS)
def test_a_refused_number_names_the_options_that_read_it(here: Here, tmp_path: Path, cell: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"score;label\n{cell};1\n{cell};0\n999;0\n999;1\n")
    options = CELLS[cell]
    told = refusal(here("estimate", path, *COLUMNS))
    assert told.startswith(f"'t.csv', line 2: column 'score' has '{cell}'") and " ".join(options) in told
    done = here("estimate", path, *COLUMNS, *options)
    assert (done.returncode, done.stdout) == (0, "0.5\n")


def test_a_number_that_can_be_read_in_two_ways_names_both() -> None:
    point, comma = TextFormat(), TextFormat(decimal="comma")
    assert ways_to_read("1,234", point) == ['thousands="comma"', 'decimal="comma"']
    assert ways_to_read("1.234", comma) == ['thousands="point"', 'decimal="point"']
    assert ways_to_read("1.234.567", point) == ['decimal="comma", thousands="point"']
    assert [ways_to_read(cell, said) for cell in ("abc", "12,34.5", "1_0", "") for said in (point, comma)] == [[]] * 8


@pytest.mark.parametrize(
    ("sign", "options"), [("|", ()), (":", ()), ("^", ()), (";", ("--sep", ",")), (",", ("--sep", "semicolon"))]
)
def test_lines_that_are_not_cut_name_the_sign_at_which_they_would_be(
    here: Here, tmp_path: Path, sign: str, options: tuple[str, ...]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(sign.join(row) for row in (("score", "label"), ("2", "1"), ("1", "0"))) + "\n")
    told = refusal(here("estimate", path, *COLUMNS, *options))
    lacks = f"'t.csv' has no column 'label', as its lines were not cut at '{sign}'"
    assert told.strip() == f"{lacks}: give the sign with --separator"
    assert here("estimate", path, *COLUMNS, "--separator", sign).stdout == "1.0\n"


def test_a_file_without_names_says_so(here: Here, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1.5,1\n2.5,0\n")
    told = refusal(here("estimate", tmp_path / "t.csv", *COLUMNS))
    assert told.strip() == "'t.csv' has no column 'label', and no line with names: choose among 0, 1"
