"""How a kernel of one's own is named, and what is said where the name, or what it stands for, is not enough."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, write_csv

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import estimate
from mpi_ustat.mpi.runtime import SerialComm

Here = Callable[..., CompletedProcess[str]]

FILE = """
import numpy as np

def apart(x, z):
    return np.abs(x - z.T)

def make():
    return apart

def within(radius=1.0):
    return lambda x, z: (np.abs(x - z.T) < radius) * 1.0

def by_name(*, radius=1.0):
    return within(radius)

def needs(radius):
    return within(radius)

def fails(x, z):
    return 1 / 0

def _hidden():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels_here.py").write_text(FILE)
    write_csv(tmp_path / "s.csv", [(0.0, 0), (0.5, 1), (2.0, 0), (4.0, 1)])
    return tmp_path


def run(here: Here, kernel: str, *options: str) -> CompletedProcess[str]:
    words = ("--label", "label", "--columns", "score", "--complete", "--quiet")
    return here("estimate", "s.csv", *words, "--kernel", kernel, *options)


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("apart", (), 2.0),
        ("make", (), 2.0),
        ("within", (), 0.25),
        ("by_name", (), 0.25),
        ("within", ("radius=1.75",), 0.5),
        ("needs", ("radius=1.75",), 0.5),
    ],
)
def test_what_makes_a_kernel_is_called(
    here: Here, folder: Path, name: str, options: tuple[str, ...], value: float
) -> None:
    told = [word for option in options for word in ("--kernel-option", option)]
    assert float(run(here, f"./kernels_here.py:{name}", *told).stdout) == value


def test_options_that_are_missing_are_named(here: Here, folder: Path) -> None:
    told = refusal(run(here, "./kernels_here.py:needs"))
    assert "takes radius, and has no place for 2 points: give it options of the kernel if it makes one" in told


def test_a_file_without_a_function_says_what_it_has(here: Here, folder: Path) -> None:
    has = "write ./kernels_here.py:function with one of apart, make, within, by_name, needs, fails"
    for name in ("./kernels_here.py", "kernels_here.py", "./kernels_here.py:"):
        told = refusal(run(here, name))
        assert told.strip() == f"the kernel '{name.removesuffix(':')}' names no function in the file: {has}"
    assert "there is no file './absent.py'" in refusal(run(here, "./absent.py"))
    (folder / "broken.py").write_text("def f(:\n")
    assert refusal(run(here, "./broken.py")).strip().endswith("write ./broken.py:function")


X = np.arange(4.0)
PLAIN: dict[str, Callable[[], Any]] = {
    "text": lambda: mpi_ustat.auc([0, 1, 1], ["a", "b", "c"]),
    "nothing": lambda: mpi_ustat.gini(None),
    "lengths": lambda: mpi_ustat.auc([0, 1], [1, 2, 3]),
    "ragged": lambda: mpi_ustat.gini([[1, 2], [3]]),
    "no kernel": lambda: estimate(SerialComm(), X, X, "nope"),
    "no option": lambda: estimate(SerialComm(), X, X, kernel_options={"radius": 1}),
    "no function": lambda: estimate(SerialComm(), X, X, "./kernels_here.py:absent"),
    "no file": lambda: estimate(SerialComm(), X, X, "./absent.py:f"),
    "no result": lambda: mpi_ustat.load("absent.h5"),
    "a shape": lambda: estimate(SerialComm(), X, X, lambda x, z: 3.0),
    "a table": lambda: mpi_ustat.load("s.csv"),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_refusal_is_one_traceback(folder: Path, case: str) -> None:
    with pytest.raises(UserError) as told:
        PLAIN[case]()
    assert "".join(traceback.format_exception(told.value)).count("Traceback (most recent") == 1


def test_what_failed_in_a_users_code_is_shown_below(folder: Path) -> None:
    with pytest.raises(UserError) as told:
        estimate(SerialComm(), X, X, "./kernels_here.py:fails")
    text = "".join(traceback.format_exception(told.value))
    assert "ZeroDivisionError" in text and "in fails" in text and text.count("Traceback (most recent") == 2
