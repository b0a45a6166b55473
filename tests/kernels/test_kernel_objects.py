"""Kernels as objects: one that another package registers goes all the way, and one that lacks a part says which."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import h5py
import numpy as np
import pytest
from commands import write_csv
from numpy.typing import NDArray

import mpi_ustat
from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.kernels.kernel import UNIT, Kernel, Local, PairSum, Points, Whole
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.registry import ENTRY_POINTS, KERNELS, installed, make_kernel
from mpi_ustat.kernels.route import Route
from mpi_ustat.kernels.tiled import Tiled, TiledPairs

Floats = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

COMMAND = ("estimate",)


class Near(Tiled):
    """h(x, z) = 1{|x - z| <= radius}: a toy, with all that a kernel needs."""

    name = "near"
    options = (Option("radius", "how near is near", 1.0, float, metavar="R"),)
    unit = "1"
    limits = UNIT
    n_coordinates = 1

    def __init__(self, radius: float) -> None:
        self.radius = radius

    def matrix(self, x: Points, y: Points) -> Floats:
        return (np.abs(np.subtract.outer(x, y)) <= self.radius).astype(np.float64)


def counted(comm: Any, samples: Any, kernel: Near, n_workers: int, streams: Any, *, components: bool = True) -> Whole:
    """A complete route of the toy's own, of one process."""
    x, z = (sample.rows.reshape(-1) for sample in samples)
    return Whole(kernel.local(x, z) if components else Local(kernel.block_sums(x, z), None))


class Routed(Near):
    name = "routed"
    complete_route = Route("counted", counted)


class Close(TiledPairs):
    """h(x, y) = 1{|x - y| <= radius} of one sample: a toy whose h of a point and itself has no value."""

    name = "close"
    options = (Option("radius", "how near is near", 1.0, float, metavar="R"),)
    unit = "1"
    limits = UNIT
    n_coordinates = 1
    tile = 16

    def __init__(self, radius: float) -> None:
        self.radius = radius

    def matrix(self, x: Points, y: Points) -> Floats:
        apart = np.abs(np.subtract.outer(x, y))
        return np.where(apart > 0.0, apart <= self.radius, np.nan)


class Upward(Tiled):
    """h(x, z) = 1{z < x}, with ties of its own."""

    name = "upward"
    options = (Option("ties", "upward up or down", "down", choices=("up", "down")),)
    n_coordinates = 1

    def __init__(self, ties: str) -> None:
        self.ties = ties

    def matrix(self, x: Points, y: Points) -> Floats:
        less = np.greater_equal if self.ties == "up" else np.greater
        return less.outer(x, y).astype(np.float64)


class Half(Tiled):
    name = "half"


class HalfPairs(TiledPairs):
    name = "half-pairs"


class Lopsided(TiledPairs):
    name = "lopsided"
    n_coordinates = 1

    def matrix(self, x: Points, y: Points) -> Floats:
        return np.subtract.outer(x, y)


class Nameless(Near):
    name = ""


class NoLocal(Kernel):
    name = "no-local"
    n_coordinates = 1

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        return (PairSum(0.0, len(blocks[0]) * len(blocks[-1])),)

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        return (PairSum(0.0, len(points[0])),)


class NoCrossSums(NoLocal):
    name = "no-cross-sums"
    samples = (1,)
    degrees = (2,)
    has_components = False


class Promised(NoLocal):
    name = "promised"
    has_components = False
    has_margins = True


class Seeded(Near):
    """Its option is one of the command's."""

    name = "seeded"
    options = (Option("seed", "which is taken", 1.0, float),)


REGISTERED = (Near, Routed, Close, Upward, Half, HalfPairs, Lopsided, Nameless, NoLocal, NoCrossSums, Promised, Seeded)


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package that registers the toys, and some things that are none."""
    lines = [f"{each.name or 'nameless'} = {__name__}:{each.__name__}" for each in REGISTERED]
    lines += ["number = math:pi", f"absent = {__name__}:Absent", f"auc = {__name__}:Near"]
    about = tmp_path / "site" / "toys-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINTS}]", *lines]))
    monkeypatch.syspath_prepend(tmp_path / "site")
    installed.cache_clear()
    yield
    installed.cache_clear()


def points() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(4)
    return rng.normal(0.5, 1.0, 60), rng.normal(size=45)


def by_definition(radius: float) -> tuple[float, float]:
    """U_n and the unbiased estimate of its variance, from the whole matrix as a two-way layout."""
    x, z = points()
    h = (np.abs(x[:, None] - z) <= radius) * 1.0
    n, m = h.shape
    rows, columns = h.mean(axis=1), h.mean(axis=0)
    rest = ((h - rows[:, None] - columns + h.mean()) ** 2).sum() / ((n - 1) * (m - 1))
    # var_x/n + var_z/m + var_xz/(nm), where var_x = var(rows) - var_xz/m, and var_z likewise.
    return h.mean(), rows.var(ddof=1) / n + columns.var(ddof=1) / m - rest / (n * m)


def by_pairs(radius: float) -> tuple[float, float]:
    """U_n of the first sample alone and the unbiased estimate of its variance, U_n² less the estimate of θ².

    Two disjoint pairs are independent, so that the mean of h_ij h_kl over all of them, here by subtracting the others
    from the square of Σ h, estimates θ² without bias.
    """
    x = points()[0]
    n = len(x)
    h = (np.abs(x[:, None] - x) <= radius) * 1.0
    np.fill_diagonal(h, 0.0)
    total, of_points, both = h.sum() / 2, h.sum(axis=1), (h**2).sum() / 2
    disjoint = total**2 - (of_points**2).sum() + both
    value = total / math.comb(n, 2)
    return value, value**2 - disjoint / (math.comb(n, 2) * math.comb(n - 2, 2))


def data(tmp_path: Path) -> Path:
    x, z = points()
    return write_csv(
        tmp_path / "d.csv", [*((each, 1) for each in x.tolist()), *((each, 0) for each in z.tolist())], "a,y"
    )


@pytest.mark.parametrize("name", ["near", "routed"])
def test_the_complete_statistic_and_its_standard_error(name: str) -> None:
    value, variance = by_definition(0.7)
    found = estimate(SerialComm(), *points(), name, kernel_options={"radius": 0.7}, complete=True, n_workers=4, seed=1)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.stderr == pytest.approx(np.sqrt(variance), rel=1e-9)
    assert found.route == {"near": "ring", "routed": "counted"}[name]


def test_the_complete_statistic_of_one_sample_and_its_standard_error() -> None:
    value, variance = by_pairs(0.7)
    for n_workers in (1, 4, 7):
        found = estimate(
            SerialComm(),
            points()[0],
            kernel="close",
            kernel_options={"radius": 0.7},
            complete=True,
            n_workers=n_workers,
            seed=1,
        )
        assert found.value == pytest.approx(value, rel=1e-12)
        assert found.stderr == pytest.approx(np.sqrt(variance), rel=1e-9)
        assert found.route == "ring"


@pytest.mark.parametrize("scheme", ["prop-swor", "rotation"])
def test_rounds_of_one_sample(scheme: str) -> None:
    options: dict[str, Any] = {"n_workers": 5, "n_rounds": 3, "seed": 2, "scheme": scheme}
    found = estimate(SerialComm(), points()[0], kernel="close", kernel_options={"radius": 0.7}, **options)
    itself = estimate(SerialComm(), points()[0], kernel=Close(0.7), **options)
    assert (found.value, found.stderr) == (itself.value, itself.stderr)
    value, variance = by_pairs(0.7)
    assert found.value == pytest.approx(value, abs=0.05)
    assert found.stderr == pytest.approx(np.sqrt(variance), rel=0.25)
    sampled = estimate(SerialComm(), points()[0], kernel="close", n_pairs=60, **options)
    assert sampled.value == pytest.approx(by_pairs(1.0)[0], abs=0.1) and sampled.stderr is not None


def test_a_symmetric_kernel_has_to_be_symmetric() -> None:
    with pytest.raises(UserError, match="the kernel lopsided is not symmetric"):
        estimate(SerialComm(), points()[0], kernel="lopsided", complete=True, n_workers=2)


def test_rounds_give_the_same_by_name_and_by_object() -> None:
    options: dict[str, Any] = {"n_workers": 5, "n_rounds": 4, "seed": 2}
    by_name = estimate(SerialComm(), *points(), "near", kernel_options={"radius": 0.7}, **options)
    itself = estimate(SerialComm(), *points(), Near(0.7), **options)
    assert (by_name.value, by_name.stderr) == (itself.value, itself.stderr)
    value, variance = by_definition(0.7)
    assert by_name.value == pytest.approx(value, abs=0.05)
    assert by_name.stderr == pytest.approx(np.sqrt(variance), rel=0.25)
    sampled = estimate(SerialComm(), *points(), "near", n_pairs=200, **options)
    assert sampled.value == pytest.approx(by_definition(1.0)[0], abs=0.1) and sampled.stderr is not None


def one_column(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "one.csv", [(each,) for each in points()[0].tolist()], "a")


KINDS = {
    "near": (data, ["--label", "y", "--columns", "a", "--kernel", "near"], by_definition),
    "close": (one_column, ["--columns", "a", "--kernel", "close"], by_pairs),
}
"""Of two samples and of one: a file, the words that say what it has, and what it is to give."""


@pytest.mark.parametrize("name", KINDS)
def test_the_command_line_knows_its_options(here: Here, tmp_path: Path, name: str) -> None:
    write, words, expected = KINDS[name]
    words, file = [write(tmp_path), *words, "--seed", 1], tmp_path / "out.h5"
    done = here(*words, "--radius", "0.7", "--complete", "--json", "--output", file)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["estimate"] == pytest.approx(expected(0.7)[0], rel=1e-12)
    assert told["stderr"] ** 2 == pytest.approx(expected(0.7)[1], rel=1e-9)
    assert told["kernel_options"] == {"radius": 0.7}
    with h5py.File(file) as stream:
        assert stream["estimate"].attrs["unit"] == "1"
    for command in ("info", "plot"):
        assert here(file, command=(command,)).returncode == 0
    assert name in here(file, command=("info",)).stdout
    by_default = json.loads(here(*words, "--complete", "--json").stdout)
    assert by_default["estimate"] == pytest.approx(expected(1.0)[0], rel=1e-12)


def test_an_estimate_goes_on_from_a_checkpoint(here: Here, tmp_path: Path) -> None:
    words = [data(tmp_path), "--label", "y", "--columns", "a", "--kernel=near", "--radius=0.7", "--seed", 1, "--json"]
    words += ["--workers", 4, "--checkpoint", tmp_path / "c.ck"]
    assert here(*words, "--rounds", 2, "--checkpoint-every", 1).returncode == 0
    resumed, at_once = here(*words, "--rounds", 5, "--resume"), here(*words[:-2], "--rounds", 5)
    assert json.loads(resumed.stdout)["estimate"] == json.loads(at_once.stdout)["estimate"]


@pytest.mark.parametrize("name", KINDS)
def test_a_plan_recommends_a_command_that_runs(here: Here, tmp_path: Path, name: str) -> None:
    write, words, _ = KINDS[name]
    words = [write(tmp_path), *words, "--radius", "0.7", "--seed", 1]
    done = here(*words, "--workers", 4, "--target-stderr", "0.2", "--json", command=("plan",))
    assert done.returncode == 0, done.stderr
    command = json.loads(done.stdout)["command"]
    assert "--radius 0.7" in command and f"--kernel {name}" in command
    after = command.split()[command.split().index("estimate") + 1 :]
    assert here(*after).returncode == 0


def test_help_has_the_options_of_registered_kernels(here: Here) -> None:
    """Whatever is wrong with others that are registered."""
    done = here("--help")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert "--radius R how near is near (default 1)" in text and "similarity-histogram, near, routed" in text


def test_a_kernel_has_its_own_options_only(here: Here, tmp_path: Path) -> None:
    done = here(data(tmp_path), "--label", "y", "--radius", 1)
    assert done.returncode == 2 and "there is no option --radius" in done.stderr
    done = here(data(tmp_path), "--label", "y", "--kernel", "near", "--radius", "x")
    assert done.returncode == 2 and "--radius is 'x': give a number" in done.stderr
    done = here(data(tmp_path), "--label", "y", "--kernel", "near", "--ties", "half")
    assert done.returncode == 2 and "the kernel near has no option ties" in done.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("half", "the kernel half has no matrix: write it in its class"),
        ("half-pairs", "the kernel half-pairs has no matrix: write it in its class"),
        ("nameless", "which has another name or none: set its name"),
        ("number", "the kernel number is registered as math:pi, which is no subclass of Kernel"),
        ("absent", "can't be imported (AttributeError"),
    ],
)
def test_what_lacks_a_part_is_an_error_that_names_it(here: Here, tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        make_kernel(name)
    assert told in str(caught.value)
    done = here(data(tmp_path), "--label", "y", "--columns", "a", "--kernel", name)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("no-local", {}, "the kernel no-local has no method local: write it in its class, or declare has_components"),
        ("no-cross-sums", {"complete": True}, "the kernel no-cross-sums has no method cross_sums: write it"),
        ("promised", {"complete": True}, "the kernel promised has no method margins: write it"),
    ],
)
def test_what_is_promised_and_not_there_is_named_when_it_is_asked_for(
    name: str, options: dict[str, Any], told: str
) -> None:
    samples = points()[:1] if name == "no-cross-sums" else points()
    with pytest.raises(UserError) as caught:
        mpi_ustat.estimate(
            SerialComm(), samples[0], samples[1] if len(samples) > 1 else None, name, n_workers=3, **options
        )
    assert told in str(caught.value)


@pytest.mark.parametrize(("given", "wins"), [({}, 3), ({"ties": "up"}, 5), ({"kernel_options": {"ties": "up"}}, 5)])
def test_ties_are_what_the_kernel_declares(given: dict[str, Any], wins: int) -> None:
    x, z = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 7.0])
    found = estimate(SerialComm(), x, z, "upward", complete=True, n_workers=1, **given)
    assert found.value == pytest.approx(wins / 9, rel=1e-14)
    assert found.config.ties == ("up" if given else "down")
    with pytest.raises(UserError, match="ties must be up or down, not 'half'"):
        estimate(SerialComm(), x, z, "upward", complete=True, n_workers=1, ties="half")


def test_options_are_checked_by_what_is_declared() -> None:
    with pytest.raises(UserError, match="radius must be a number, not 'wide'"):
        make_kernel("near", options={"radius": "wide"})
    with pytest.raises(UserError, match="the kernel near has no option width: it has radius"):
        make_kernel("near", options={"width": 1.0})


def test_a_flag_that_is_taken_is_refused(here: Here, tmp_path: Path) -> None:
    done = here(data(tmp_path), "--label", "y", "--columns", "a", "--kernel", "seeded")
    assert done.returncode == 2 and "--seed means something else already" in done.stderr


def test_no_package_takes_the_name_of_one_of_ours() -> None:
    assert "auc" not in installed()
    assert type(make_kernel("auc")) is KERNELS["auc"]


def test_no_module_asks_what_class_a_kernel_is_of() -> None:
    """But whether it is one at all: what differs is declared."""

    def all_below(kind: type) -> Iterator[str]:
        for each in kind.__subclasses__():
            yield each.__name__
            yield from all_below(each)

    names = {*all_below(Kernel)} - {each.__name__ for each in REGISTERED}
    root = Path(mpi_ustat.__file__).parent
    strays = [
        f"{path.relative_to(root)}, line {node.lineno}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and names & {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
    ]
    assert len(names) > 10 and strays == []
