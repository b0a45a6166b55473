"""Partition schemes: one object each, whose parts must all be there, and which the program asks instead of its name."""

from __future__ import annotations

import ast
import json
import math
import re
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
from mpi_ustat import SerialComm, UserError, estimate, learn
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, travelling
from mpi_ustat.schemes.registry import COMPLETE, SCHEMES, scheme_of
from mpi_ustat.schemes.scheme import Scheme
from mpi_ustat.schemes.variance import Design, coefficients

Floats = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

N, M, N_WORKERS = 40, 24, 4
PARTS = ("name", "summary", "round", "coefficients", "pair_coefficients")


class Stuck(Scheme):
    """A toy: the blocks of round 0 in every round, which don't get better by that. Only for blocks of equal sizes."""

    name = "stuck"
    summary = "the same blocks in every round"
    in_plans = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        return tuple(partition.spread(k, 0) for k in range(len(partition.sizes)))

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        n, m = sizes
        assert design.n_pairs is None
        return np.array([1 / n, 1 / m, design.n_workers / (n * m)])

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        of_block = n // design.n_workers
        return np.array([4 / of_block, 2 / (of_block * (of_block - 1))]) / design.n_workers


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Scheme:
    monkeypatch.setitem(SCHEMES, Stuck.name, Stuck())
    return SCHEMES[Stuck.name]


def samples() -> tuple[Floats, Floats]:
    rng = np.random.default_rng(7)
    return rng.normal(0.5, 1.0, size=N), rng.normal(size=M)


@pytest.mark.parametrize("part", PARTS)
def test_a_scheme_without_a_part_is_an_error_that_names_it(part: str) -> None:
    parts = {name: getattr(Stuck, name) for name in PARTS if name != part}
    with pytest.raises(TypeError, match=rf"\b{part}\b"):
        type("Half", (Scheme,), parts)()
    type("Whole", (Scheme,), {name: getattr(Stuck, name) for name in PARTS})()


def test_a_scheme_without_formulas_for_a_design_has_none_of_another(stuck: Scheme) -> None:
    """More workers than points, of which it says nothing."""
    design = Design(scheme="stuck", n_workers=30, n_rounds=2, empty="skip")
    with pytest.raises(mpi_ustat.schemes.scheme.NoClosedForm, match="30 workers can't each have a point"):
        coefficients((1, 1), (N, M), design)


@pytest.mark.parametrize("kernel", ["auc", "gini", "product"])
def test_an_added_scheme_gives_its_own_values_and_standard_errors(kernel: str, stuck: Scheme) -> None:
    options: dict[str, Any] = {"kernel": kernel, "n_workers": N_WORKERS, "seed": 5}
    x, z = samples()
    given = (x,) if kernel == "gini" else (x, z)
    found = estimate(SerialComm(), *given, scheme="stuck", n_rounds=3, **options)
    once = estimate(SerialComm(), *given, scheme="prop-swor", n_rounds=1, **options)
    thrice = estimate(SerialComm(), *given, scheme="prop-swor", n_rounds=3, **options)
    assert found.value == pytest.approx(once.value, rel=1e-15)
    assert set(found.per_round.tolist()) == {once.value} and len(set(thrice.per_round.tolist())) == 3
    assert found.stderr == pytest.approx(once.stderr, rel=1e-12) and found.stderr != pytest.approx(thrice.stderr)
    assert found.error is not None and found.error.components is not None
    sizes = tuple(map(len, given))
    factors = stuck.pair_coefficients(N, once_of(3)) if kernel == "gini" else stuck.coefficients(sizes, once_of(3))
    assert found.stderr == pytest.approx(math.sqrt(factors @ found.error.components[:, 0, 0]), rel=1e-12)


class Carousel(Stuck):
    """A toy whose blocks travel, of one sample: both workers of a meeting evaluate all of its pairs."""

    name = "carousel"
    summary = "blocks that go round, and meet on both sides"
    aggregate = "pooled"
    blocks_travel = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        base = partition.kept.setdefault("base", partition.spread(0, 0))
        return base, travelling(base, (np.arange(partition.n_workers) + t) % partition.n_workers)


def test_a_scheme_whose_blocks_travel_says_itself_which_rows_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as in the half round of a rotation, where each of two workers has half of the pairs of their blocks."""
    monkeypatch.setitem(SCHEMES, Carousel.name, Carousel())
    x, _ = samples()
    found = estimate(SerialComm(), x, kernel="gini", scheme="carousel", n_workers=2, n_rounds=2, seed=5, stderr=False)
    (blocks,) = Partition(SCHEMES["prop-swor"], (N,), 2, Streams(5)).round(0)
    assert isinstance(blocks, Ordered) and blocks.order is not None
    a, b = x[blocks.order[: N // 2]], x[blocks.order[N // 2 :]]
    inside = sum(float(np.abs(np.subtract.outer(each, each)).sum()) / 2 for each in (a, b))
    across = 2 * float(np.abs(np.subtract.outer(a, b)).sum())
    assert found.value == pytest.approx((inside + across) / (N // 2 * (N // 2 - 1) + 2 * (N // 2) ** 2), rel=1e-12)


def test_a_scheme_of_random_counts_that_does_not_say_how_many_count_is_an_error_that_names_it() -> None:
    parts = {name: getattr(Stuck, name) for name in PARTS}
    chancy = type("Chancy", (Scheme,), parts | {"random_counts": True})()
    with pytest.raises(NotImplementedError, match="Chancy has random counts, and needs share_with_tuples"):
        chancy.share_with_tuples((5, 4), (1, 1), 3)


def once_of(n_rounds: int) -> Design:
    return Design(scheme="stuck", n_workers=N_WORKERS, n_rounds=n_rounds)


def test_an_added_scheme_learns(stuck: Scheme) -> None:
    """From the same blocks after each repartition, to the same bits as without any."""
    x, z = (np.column_stack([each, each**2]) for each in samples())
    options: dict[str, Any] = {"n_workers": N_WORKERS, "iterations": 20, "batch_pairs": None, "seed": 3}
    found = learn(SerialComm(), x, z, scheme="stuck", repartition_every=5, **options)
    kept = learn(SerialComm(), x, z, scheme="prop-swor", repartition_every=None, **options)
    again = learn(SerialComm(), x, z, scheme="prop-swor", repartition_every=5, **options)
    assert found.parameters.tobytes() == kept.parameters.tobytes() != again.parameters.tobytes()


def test_an_added_scheme_goes_through_the_command_line(stuck: Scheme, here: Here, tmp_path: Path) -> None:
    x, z = samples()
    data = write_csv(tmp_path / "d.csv", [*((each, 1) for each in x.tolist()), *((each, 0) for each in z.tolist())])
    source = [data, "--score", "score", "--label", "label", "--positive", 1, "--workers", N_WORKERS, "--seed", 5]
    file, planned = tmp_path / "out.h5", tmp_path / "plan.h5"
    options = ["--scheme", "stuck", "--rounds", 3, "--json", "--output", file]
    done = here(*source, *options, command=("estimate",))
    assert done.returncode == 0, done.stderr
    found, library = json.loads(done.stdout), estimate(SerialComm(), x, z, n_workers=N_WORKERS, seed=5)
    assert found["scheme"] == "stuck"
    assert (found["estimate"], found["stderr"]) == pytest.approx((library.value, library.stderr), rel=1e-12)
    with h5py.File(file) as stream:
        assert json.loads(str(stream.attrs["config"]))["scheme"] == "stuck"
    done = here(*source, "--json", "--output", planned, command=("plan",))
    assert done.returncode == 0 and "stuck" in {each["scheme"] for each in json.loads(done.stdout)["choices"]}
    for each in (file, planned):
        assert here(each, command=("plot",)).returncode == 0
        assert here(each, command=("info",)).returncode == 0
    assert "stuck" in here(file, command=("info",)).stdout
    helped = here("--help", command=("estimate",))
    assert helped.returncode == 0 and stuck.summary in helped.stdout


@pytest.mark.parametrize("ask", [scheme_of, lambda name: estimate(SerialComm(), *samples(), scheme=name)])
def test_what_is_no_scheme_is_refused_with_what_there_is(ask: Callable[[str], Any], stuck: Scheme) -> None:
    with pytest.raises(UserError, match="scheme is 'swap': use one of prop-swor, .*, as-is, stuck$"):
        ask("swap")


SENTENCES = re.compile(r"(?<![\w-])(as-is|fixed-shuffle|prop-swor|prop-swr)(?![\w-])")
"""Names that are no words of other things."""


def documentation(tree: ast.AST) -> set[ast.AST]:
    """Return the strings that stand alone: docstrings of modules, classes, functions and names."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def places_of_names(path: Path) -> Iterator[str]:
    """Yield what a module says of a scheme by its name, but for `_SCHEMES`, the places that experiments have."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = documentation(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_SCHEMES":
            silent |= set(ast.walk(node))
    for node in ast.walk(tree):
        compared = isinstance(node, ast.Compare) and ast.unparse(node.left).rpartition(".")[2] == "scheme"
        given = isinstance(node, ast.keyword) and node.arg == "scheme" and isinstance(node.value, ast.Constant)
        text = isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in silent
        if compared or given or (text and (node.value in SCHEMES or SENTENCES.search(node.value))):
            yield f"{path.name}: {ast.unparse(node)}"


def test_no_module_but_its_own_knows_a_scheme_by_name() -> None:
    """Experiments of the paper are about certain schemes; all others, and all sentences, ask the object."""
    root = Path(mpi_ustat.__file__).parent
    rest = [path for path in sorted(root.rglob("*.py")) if path.parent.name != "schemes"]
    strays = [each for path in rest if path.name != "interval_coverage.py" for each in places_of_names(path)]
    assert strays == []
    assert COMPLETE.name not in SCHEMES


def test_no_scheme_knows_another_by_name() -> None:
    for path in sorted(Path(mpi_ustat.__file__).parent.glob("schemes/*.py")):
        own = next((name for name in SCHEMES if path.stem == name.replace("-", "_")), None)
        strays = [each for each in places_of_names(path) if own is None or own not in each]
        assert strays == [], path
