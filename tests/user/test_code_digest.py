"""The digest of a user's function: another for other code, the same for the same, in any process."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ustat import SerialComm, UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.learning.user_objectives import make_objective
from mpi_ustat.user.code_digest import code_digest
from mpi_ustat.user.importing import load_named

KERNEL = """\
import numpy as np
import {helper}
from {helper} import power

def h(x, y):
    return np.abs(x - y.T) ** power(1)
"""
HELPER = "SCALE = 2\ndef power(k):\n    return SCALE * k\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Write a kernel's module and one beside it, import them afresh, and return the kernel's digest."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def digest(kernel: str = KERNEL, helper: str = HELPER) -> str:
        for name in ("digested", "beside_digested"):
            sys.modules.pop(name, None)
        (tmp_path / "beside_digested.py").write_text(helper)
        (tmp_path / "digested.py").write_text(kernel.format(helper="beside_digested"))
        importlib.invalidate_caches()
        return code_digest(load_named("kernel", "digested:h", ""), "digested:h")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return digest


def test_the_source_of_a_named_function_and_of_what_lies_beside_it_counts(modules: Callable[..., str]) -> None:
    first = modules()
    changed = [
        modules(KERNEL.replace("power(1)", "power(2)")),
        modules(KERNEL + "\n# a remark\n"),
        modules(helper=HELPER.replace("2", "3")),
    ]
    assert len({first, *changed}) == 4
    assert modules() == first


def test_a_module_counts_of_which_only_a_number_is_imported(modules: Callable[..., str]) -> None:
    kernel = "from beside_digested import SCALE\n\ndef h(x, y):\n    return SCALE * x\n"
    assert modules(kernel) != modules(kernel, helper=HELPER.replace("2", "3"))


def test_of_a_package_all_that_is_used_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "digested_package" / "kernels").mkdir(parents=True)
    (tmp_path / "digested_package" / "kernels" / "own.py").write_text("from .. import above\ndef h(x, y): pass\n")
    digests = []
    for text in ("STEP = 1\n", "STEP = 2\n"):
        (tmp_path / "digested_package" / "above.py").write_text(text)
        for name in [name for name in sys.modules if name.startswith("digested_package")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        name = "digested_package.kernels.own:h"
        digests.append(code_digest(load_named("kernel", name, ""), name))
    assert digests[0] != digests[1]


def kernel_of(power: float, base: Any = None, *, weights: Any = None) -> Callable[..., Any]:
    def h(x: Any, y: Any, shift: float = 0.0) -> Any:
        def inner(a: Any) -> Any:
            return np.abs(a) ** power

        return inner(x - y.T) + shift if base is None else base(x, y)

    h.weights = weights  # type: ignore[attr-defined]
    return h


class Adding:
    def __init__(self, step: float) -> None:
        self.step = step

    def __call__(self, x: Any, y: Any) -> Any:
        return x + y.T + self.step


def made(power: float, kind: str) -> Any:
    """An object whose class, or one above it, tells how it computes."""
    raised = {
        "property": property(lambda self: power),
        "static": staticmethod(lambda: power),
        "number": power,
    }[kind]
    above = type("Above", (), {"_power": raised, "__call__": lambda self, x, y: x ** float(self._power)})
    return type("Below", (above,), {})()


class Slotted:
    __slots__ = ("power",)

    def __init__(self, power: float) -> None:
        self.power = power


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "a constant in its closure": lambda: kernel_of(2.0),
    "another constant": lambda: kernel_of(3.0),
    "a function in its closure": lambda: kernel_of(2.0, kernel_of(1.0)),
    "an array": lambda: kernel_of(2.0, weights=np.arange(3.0)),
    "another array": lambda: kernel_of(2.0, weights=np.arange(3.0) + 1),
    "a default": lambda: functools.partial(kernel_of(2.0), shift=1.0),
    "another default": lambda: functools.partial(kernel_of(2.0), shift=2.0),
    "an expression": lambda: lambda x, y: x + y.T,
    "a constant in it": lambda: lambda x, y: x + 2 * y.T,
    "another in it": lambda: lambda x, y: x + 3 * y.T,
    "a set": lambda: lambda x, y: x + y.T if "a" in {"a", "b", "c"} else y,
    "an object": lambda: Adding(1.0),
    "another object": lambda: Adding(2.0),
    "a method": lambda: Adding(1.0).__call__,
    **{
        f"{kind} {power:g}": functools.partial(made, power, kind)
        for kind in ("property", "static", "number")
        for power in (1.0, 2.0)
    },
    "a slot": lambda: Slotted(1.0),
    "another slot": lambda: Slotted(2.0),
    "a number of NumPy's": lambda: kernel_of(2.0, weights=np.float32(1.0)),
    "another of NumPy's": lambda: kernel_of(2.0, weights=np.float32(2.0)),
    "names in any order": lambda: kernel_of(2.0, weights=dict.fromkeys({"a", "b", "c", "d", "e"})),
    "a whole package": lambda: kernel_of(2.0, weights=pytest),
    "its objects, whose code is long": lambda: kernel_of(2.0, weights=[pytest.Config, pytest.raises]),
    "a ufunc": lambda: np.subtract.outer,
    "another ufunc": lambda: np.add.outer,
}


def test_code_without_a_file_is_told_apart_by_constants_closures_and_defaults() -> None:
    digests = {name: code_digest(make(), "own") for name, make in FUNCTIONS.items()}
    assert len(set(digests.values()) - {digests["a ufunc"]}) >= len(digests) - 2  # ufuncs' names tell nothing
    assert {name: code_digest(make(), "own") for name, make in FUNCTIONS.items()} == digests


def test_there_is_no_limit_to_how_deep_values_are() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert code_digest(kernel_of(1.0, weights=deep), "own") == code_digest(kernel_of(1.0, weights=deep), "own")


def test_the_digest_is_the_same_in_another_process() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_code_digest as t; "
        "print([t.code_digest(f(), 'own') for f in t.FUNCTIONS.values()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([code_digest(make(), "own") for make in FUNCTIONS.values()])


def test_a_descent_does_not_go_on_with_another_objective() -> None:
    def objective(weight: float) -> Any:
        def difference(parameters: Any, x: Any, z: Any) -> Any:
            gradient = weight * np.sum(x - z, axis=0)
            return float(gradient @ parameters), gradient

        return difference

    def learning(weight: float) -> Learning:
        config = LearnConfig(iterations=4, n_workers=1, seed=0)
        rows = np.arange(8.0).reshape(4, 2)
        return Learning(set_up(SerialComm(), (rows, rows[:3] + 1), config, objective=make_objective(objective(weight))))

    begun = learning(1.0)
    for _ in begun.run(2):
        pass
    snapshot = begun.snapshot()
    again = learning(1.0)
    again.restore(snapshot)
    assert again.state.iteration == 2
    with pytest.raises(UserError, match="another code of the objective difference"):
        learning(1.5).restore(snapshot)


def test_a_descent_goes_on_with_an_objective_that_counts_its_calls() -> None:
    class Counting:
        def __init__(self) -> None:
            self.n_calls = 0

        def n_parameters(self, n_columns: int) -> int:
            return n_columns

        def pairs(self, parameters: Any, x: Any, z: Any) -> Any:
            self.n_calls += 1
            gradient = np.sum(x - z, axis=0)
            return float(gradient @ parameters), gradient

    def learning() -> Learning:
        config, rows = LearnConfig(iterations=4, n_workers=1, seed=0), np.arange(8.0).reshape(4, 2)
        return Learning(set_up(SerialComm(), (rows, rows[:3] + 1), config, objective=make_objective(Counting())))

    begun = learning()
    for _ in begun.run(2):
        pass
    again = learning()
    again.restore(begun.snapshot())
    assert again.state.iteration == 2
