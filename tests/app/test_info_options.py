"""`mpi-ustat info` lists the options that a result depends on, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import some_rows, write_csv

from mpi_ustat.estimation.by_default import ABOUT_ROUNDS

Here = Callable[..., CompletedProcess[str]]

LISTED = {
    "complete": ((), {"kernel", "confidence", "interval"}, {*ABOUT_ROUNDS, "tile", "columns", "flags"}),
    "by rounds": (("--rounds", 2, "--workers", 2), {"scheme", "n_rounds", "aggregate", "confidence"}, {"tile"}),
    "no error": (("--rounds", 2, "--workers", 2, "--no-stderr"), {"stderr"}, {"confidence", "interval"}),
    "in tiles": (("--kernel", "./own.py:near", "--complete"), {"tile"}, {*ABOUT_ROUNDS}),
}


@pytest.mark.parametrize("case", LISTED)
def test_info_lists_what_was_used(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "s.csv", some_rows())
    (tmp_path / "own.py").write_text("import numpy as np\n\n\ndef near(x, z):\n    return np.abs(x - z.T)\n")
    options, used, unused = LISTED[case]
    done = here("estimate", "s.csv", "--label", "label", "--columns", "score", *options, "--output", "out.h5")
    assert done.returncode == 0, done.stderr
    told = here("info", "out.h5").stdout
    listed = {line.split()[0] for line in told.split("\noptions\n")[1].split("\n\n")[0].splitlines()}
    assert used <= listed and not unused & listed
