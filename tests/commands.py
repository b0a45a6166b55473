"""What tests of the command line share: files to read, and what a finished command said and left."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest


def write_csv(path: Path, rows: Sequence[Sequence[Any]], header: str = "score,label") -> Path:
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def some_rows(n_rows: int = 60) -> list[tuple[float, int]]:
    rng = np.random.default_rng(n_rows)
    labels = rng.random(n_rows) < 0.4
    return list(zip((rng.normal(size=n_rows) + labels).tolist(), labels.astype(int).tolist(), strict=True))


def result_of(done: CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    return json.loads(done.stdout)


def refusal(done: CompletedProcess[str]) -> str:
    """The one sentence that the program printed before it exited with 2; the launcher may add lines of its own."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    ours = [line for line in lines if line.startswith("mpi-ustat: ")]
    assert len(ours) == 1, done.stderr
    assert "Error:" not in "".join(line for line in lines if line not in ours), done.stderr
    if done.args[0] == sys.executable:
        assert lines == ours
    return ours[0].removeprefix("mpi-ustat: ")


def processes_with(marker: str) -> list[str]:
    """The command lines that contain `marker`, of all running processes."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("the list of processes is read from /proc")
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder.name.isdecimal() and marker in command:
            found.append(command)
    return found


def processes_left(marker: str) -> list[str]:
    """The same, but for processes that are about to end: launchers may return before their ranks are gone."""
    deadline = time.monotonic() + 60
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def listing(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, but for the bytecode that Python keeps beside modules."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }
