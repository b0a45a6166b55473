"""The examples for PyTorch run as they are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, Mpirun

pytest.importorskip("torch", reason="PyTorch isn't installed: pip install 'mpi_ustat[torch]'")


def test_the_page_s_example_lowers_its_loss(mpirun: Mpirun, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "torch.md").read_text(encoding="utf-8")
    program = tmp_path / "rank.py"
    program.write_text(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0], encoding="utf-8")
    done = mpirun(2, program=(str(program),), timeout=120, env={"OMP_NUM_THREADS": "1"})
    losses = re.findall(r"^step (?:0|50|100): loss ([0-9.]+)$", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, done.stderr
    assert len(losses) == 3 and float(losses[2]) < 0.1 * float(losses[0])


def test_the_script_trains_on_shuttle(mpirun: Mpirun) -> None:
    pytest.importorskip("river", reason="the Shuttle data come with river: pip install 'mpi_ustat[data]'")
    script = str(REPOSITORY / "scripts" / "example_torch.py")
    done = mpirun(2, "--steps", 60, program=(script,), timeout=120, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    aucs = re.findall(r"^test AUC (?:before|after): ([0-9.]+) ± 0\.\d+, \[0\.\d+, 0\.\d+\]$", done.stdout, re.MULTILINE)
    assert len(aucs) == 2 and float(aucs[1]) > 0.95


def test_the_script_says_what_is_wrong_in_one_sentence(mpirun: Mpirun) -> None:
    script = str(REPOSITORY / "scripts" / "example_torch.py")
    done = mpirun(2, "nothing.csv", program=(script,), timeout=120)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "example_torch.py: error: there is no file 'nothing.csv': check its name and folder"
    ]
