"""Kernels of the user's: the page about them, from the current folder and from files, with options."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import refusal, result_of
from conftest import REPOSITORY

from mpi_ustat import SerialComm, estimate

PAGE = (REPOSITORY / "docs" / "own-kernels.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
ROWS = re.findall(r"^\| [^|]+ \| `(--[^`]+)` \| ([^|]+) \|$", PAGE, re.MULTILINE)
Here = Callable[..., CompletedProcess[str]]
TWO = ["points.csv", "--columns", "a", "--label", "group", "--classes", "0,1"]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder, made the current one, with the page's files; what is imported from it is forgotten."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    runpy.run_path("points.py")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("number", range(7))
def test_commands_print_what_the_page_says(here: Here, page: Path, number: int) -> None:
    assert len(ROWS) == 7
    options, printed = ROWS[number]
    done = here("estimate", "points.csv", "--columns", "a", *shlex.split(options))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].partition(", [")[0].split(maxsplit=1) == ["estimate", printed]


def test_longer_tuples_have_a_standard_error_by_rounds(here: Here, page: Path) -> None:
    (options,) = re.findall(r"`(--kernel mykernels:skewed --workers [^`]+)`", PAGE)
    assert result_of(here("estimate", "points.csv", "--columns", "a", *options.split(), "--json"))["stderr"] > 0.0


def test_a_file_is_found_and_so_is_what_lies_beside_it(here: Here, page: Path) -> None:
    (page / "folder").mkdir()
    (page / "folder" / "beside.py").write_text("radius = 0.25")
    # Called as a module of Python's, which it doesn't hide.
    (page / "folder" / "code.py").write_text("import beside, mykernels\nh = mykernels.near(beside.radius)\n")
    (page / "folder" / "mykernels.py").write_text(FILES["mykernels.py"])
    found = result_of(here("estimate", *TWO, "--kernel", "folder/code.py:h", "--json"))
    assert found["estimate"] == 0.1325
    assert hasattr(sys.modules["code"], "interact") if "code" in sys.modules else True
    told = refusal(here("estimate", *TWO, "--kernel", "code:h"))
    assert "module 'code' has no attribute 'h'" in told
    (page / "code.py").write_text("")
    assert "to take the file of this folder, write ./code.py:h" in refusal(here("estimate", *TWO, "--kernel", "code:h"))


def test_the_options_are_in_the_checkpoint_and_in_the_plan(here: Here, page: Path) -> None:
    options = [*TWO, "--kernel", "mykernels:near", "--kernel-option", "radius=0.25"]
    planned = result_of(here("plan", *options, "--workers", "4", "--json"))
    assert "--kernel-option=radius=0.25" in planned["command"].split()
    kept = ["--workers", "4", "--rounds", "2", "--seed", "1", "--checkpoint", "c.ck", "--checkpoint-every", "1"]
    assert here("estimate", *options, *kept).returncode == 0
    told = refusal(here("estimate", *TWO, *options[-4:-1], "radius=0.5", *kept, "--resume"))
    assert "radius" in told or "kernel_options" in told


def test_in_the_library_a_factory_is_given_its_options(page: Path) -> None:
    x, z = [0.0, 1.0, 2.0], [0.1, 1.4]
    for kernel in ("mykernels:near", runpy.run_path("mykernels.py")["near"]):
        found = estimate(SerialComm(), x, z, kernel, kernel_options={"radius": 0.5}, seed=1)  # type: ignore[arg-type]
        assert found.value == 2 / 6
        assert found.config.kernel_options == {"radius": 0.5}


REFUSED = {
    "no value": (["--kernel-option", "radius"], "give it as name=value, such as radius=0.5"),
    "twice": (["--kernel-option", "radius=1", "--kernel-option", "radius=2"], "the option radius of .* is given twice"),
    "another option": (["--kernel-option", "width=1"], r"can't be made by near\(width=1\) \(TypeError: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_refused(here: Here, page: Path, name: str) -> None:
    options, message = REFUSED[name]
    assert re.search(message, refusal(here("estimate", *TWO, "--kernel", "mykernels:near", *options)))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("h = lambda x, y, z: 1.0 if x < y < z else 0.0\nh.degrees = (3,)", r"np\.where .*'\(d\),\(d\),\(d\)->\(\)'"),
        ("h = lambda x, y, z: float(x + y + z)\nh.degrees = (1, 2)", "it gets 3 arrays of B points"),
        ("h = lambda x, y, z: 1.0\nh.degrees = (3,)", r"returned shape \(\) instead of .*: it gets 3 arrays"),
        ("h = lambda x, z: 1.0 if x > z else 0.0", r"\(a, columns\) and \(b, columns\), and returns h of all their"),
        ("h = lambda x, z: max(x, z)\nh.degrees = (2,)", "it gets blocks of points"),
    ],
)
def test_a_kernel_of_single_points_is_told_how_to_take_many(here: Here, page: Path, code: str, message: str) -> None:
    (page / "single.py").write_text(code)
    data = TWO if "(1, 2)" in code or "degrees" not in code else ["points.csv", "--columns", "a"]
    assert re.search(message, refusal(here("estimate", *data, "--kernel", "single:h")))
