"""The example for XGBoost runs as its page tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, Mpirun

pytest.importorskip("xgboost", reason="XGBoost isn't installed: pip install 'mpi_ustat[boosters]'")


def test_the_script_prints_what_the_page_says(mpirun: Mpirun, shared_data: Path) -> None:
    page = (REPOSITORY / "docs" / "boosters.md").read_text(encoding="utf-8")
    told = re.findall(r"```output\n(training rows .*?)```", page, flags=re.DOTALL)[0]
    script = str(REPOSITORY / "scripts" / "example_xgboost.py")
    files = [shared_data / "a9a.libsvm.gz", shared_data / "a9a.t.libsvm.gz"]
    done = mpirun(4, *files, program=(script,), timeout=200, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for line in told.splitlines():
        assert line in printed
