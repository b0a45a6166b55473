"""Kernels by name: for which numbers of samples, with which options, and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.concordance import Concordance
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.gini import Gini, OneSampleGini
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import Kernel, PairSum, n_tuples
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.registry import KERNELS, make_kernel, n_samples_of, options_of
from mpi_ustat.kernels.similarity_histogram import SimilarityHistogram
from mpi_ustat.kernels.tuples import UserTuples
from mpi_ustat.kernels.user_pairs import UserKernel, UserPairs
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.wording import count_of

MADE: dict[tuple[str, int], tuple[type[Kernel], tuple[int, ...]]] = {
    ("auc", 2): (AUC, (1, 1)),
    ("vus", 2): (VUS, (1, 1)),
    ("vus", 3): (VUS, (1, 1, 1)),
    ("vus", 5): (VUS, (1,) * 5),
    ("gini", 1): (OneSampleGini, (2,)),
    ("gini", 2): (Gini, (1, 1)),
    ("variance", 1): (Variance, (2,)),
    ("kendall", 1): (Kendall, (2,)),
    ("concordance", 1): (Concordance, (2,)),
    ("product", 2): (Product, (1, 1)),
    ("energy", 2): (EnergyDistance, (2, 2)),
    ("mmd", 2): (MMD, (2, 2)),
    ("fmr", 1): (FalseMatchRate, (2,)),
    ("fmr", 2): (FalseMatchRate, (1, 1)),
    ("similarity-histogram", 1): (SimilarityHistogram, (2,)),
    ("similarity-histogram", 2): (SimilarityHistogram, (1, 1)),
}
"""Class and degrees of each kernel, by its name and the number of samples."""


def refusal(action: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Return the sentence that a call is refused with."""
    with pytest.raises(UserError) as caught:
        action(*arguments, **options)
    sentence = str(caught.value)
    assert sentence
    assert "\n" not in sentence
    return sentence


# ---------------------------------------------------------------------------------------------------------------------
# Numbers of samples


@pytest.mark.parametrize(("name", "n_samples"), MADE)
def test_every_kernel_for_every_number_of_samples_that_it_can_have(name: str, n_samples: int) -> None:
    kernel = make_kernel(name, n_samples)
    kind, degrees = MADE[name, n_samples]
    assert type(kernel) is kind
    assert kernel.degrees == degrees
    assert len(degrees) == n_samples
    assert kernel.name == name
    assert callable(kernel.route([50] * n_samples).load())


def test_no_kernel_is_forgotten() -> None:
    assert {name for name, _ in MADE} == set(KERNELS)
    for name, named in KERNELS.items():
        assert named.samples == () or {k for other, k in MADE if other == name} == set(named.samples)


@pytest.mark.parametrize("name", KERNELS)
def test_other_numbers_of_samples_are_refused(name: str) -> None:
    allowed = n_samples_of(name)
    for n_samples in (0, 1, 2, 3, 4):
        if n_samples >= 2 if allowed is None else n_samples in allowed:
            assert len(make_kernel(name, n_samples).degrees) == n_samples
            continue
        wanted = {None: "2 or more", (1,): "1", (2,): "2", (1, 2): "1 or 2"}[allowed]
        told = refusal(make_kernel, name, n_samples)
        assert told.startswith(f"the kernel {name} is for {count_of(wanted, 'sample')}, not {n_samples}: ")


@pytest.mark.parametrize(("name", "n_samples"), MADE)
def test_a_kernel_works_on_points_of_its_samples(name: str, n_samples: int) -> None:
    """The number of parts that is announced is the number that is found: of sums, of a mean, of local components."""
    kernel = make_kernel(name, n_samples)
    generator = np.random.default_rng(n_samples)
    width = kernel.n_coordinates or 2
    shape = (7,) if width == 1 else (7, width)
    blocks = [generator.normal(size=shape) for _ in range(n_samples)]
    local = kernel.local(*blocks)
    assert len(local.sums) == kernel.n_parts
    assert local.sums == kernel.block_sums(*blocks)
    assert kernel.combine(np.ones(kernel.n_parts)).shape == (len(kernel.gradient(np.ones(kernel.n_parts))),)
    if local.components is not None:
        assert local.components.shape[1:] == (kernel.n_parts, kernel.n_parts)
    tuples = [block for block, degree in zip(blocks, kernel.degrees, strict=True) for _ in range(degree)]
    sampled = kernel.tuple_sums(*(np.roll(points, j, axis=0) for j, points in enumerate(tuples)))
    assert len(sampled) == kernel.n_parts
    assert all(type(each) is PairSum for each in sampled)
    if kernel.degrees != (2, 2):  # whose tuples are made of pairs of three kinds
        assert kernel.evaluations(local.sums) == n_tuples(kernel.degrees, [7] * n_samples)


def test_the_pairs_of_an_energy_distance_are_of_three_kinds() -> None:
    kernel = make_kernel("energy", 2)
    sums = kernel.block_sums(np.arange(5.0), np.arange(4.0))
    assert [each.n_pairs for each in sums] == [10, 6, 20]
    assert kernel.evaluations(sums) == 36


# ---------------------------------------------------------------------------------------------------------------------
# Options


def test_options_reach_the_kernel() -> None:
    assert make_kernel("auc", 2, ties="strict").ties == "strict"
    assert make_kernel("auc", 2).ties == "half"
    assert make_kernel("vus", 3, ties="shared").ties == "shared"
    assert make_kernel("vus", 3).ties == "strict"
    assert make_kernel("auc", 2, columns=3).n_parts == 3
    assert make_kernel("kendall", 1, options={"tau": "a"}).tau == "a"
    assert make_kernel("kendall", 1).tau == "b"
    made = make_kernel("mmd", 2, options={"kernel": "linear", "bandwidth": 2.5})
    assert (made.kernel, made.bandwidth) == ("linear", 2.5)
    assert (make_kernel("mmd", 2).kernel, make_kernel("mmd", 2).bandwidth) == ("gaussian", 1.0)
    for n_samples in (1, 2):
        made = make_kernel("fmr", n_samples, options={"threshold": 0.25, "metric": "inner"})
        assert (made.threshold, made.metric) == (0.25, "inner")
        assert make_kernel("fmr", n_samples).threshold == 0.5
        made = make_kernel("similarity-histogram", n_samples, options={"edges": [-1, 0.5, 1], "metric": "inner"})
        assert (made.edges, made.metric) == ((-1.0, 0.5, 1.0), "inner")
        edges = make_kernel("similarity-histogram", n_samples).edges
        assert (edges[0], edges[-1], len(edges)) == (-1.0, 1.0, 21)
        assert np.allclose(np.diff(edges), 0.1)


def test_an_option_that_is_given_twice_is_not_overridden() -> None:
    assert make_kernel("auc", options={"ties": "strict"}).ties == "strict"
    assert make_kernel("auc", ties="strict", options={"ties": "strict"}).ties == "strict"
    assert make_kernel("vus", 3, options={"ties": "shared"}).ties == "shared"
    assert refusal(make_kernel, "auc", ties="half", options={"ties": "strict"}) == (
        "ties of the kernel auc is 'half', and 'strict' among its options: give one of them"
    )
    assert refusal(make_kernel, "auc", columns=2, options={"columns": 3}) == (
        "columns of the kernel auc is 2, and 3 among its options: give one of them"
    )


def test_the_callers_options_stay_as_they_are() -> None:
    options = {"threshold": 0.25}
    for _ in range(2):
        assert make_kernel("fmr", 2, options=options).threshold == 0.25
    assert options == {"threshold": 0.25}


EVERY_OPTION = sorted({option.name for named in KERNELS.values() for option in named.options} - {"ties", "columns"})


@pytest.mark.parametrize(("name", "n_samples"), [(name, min(k for n, k in MADE if n == name)) for name in KERNELS])
def test_options_of_other_kernels_are_refused(name: str, n_samples: int) -> None:
    for option in (*EVERY_OPTION, "nonsense"):
        if option not in options_of(name):
            told = refusal(make_kernel, name, n_samples, options={option: 1})
            assert told.startswith(f"the kernel {name} has no option {option}: ")


@pytest.mark.parametrize(
    ("name", "n_samples", "given", "message"),
    [
        ("auc", 2, {"ties": "shared"}, "ties must be half or strict, not 'shared'"),
        ("vus", 3, {"ties": "half"}, "ties must be strict or shared, not 'half'"),
        ("vus", 21, {}, "a VUS needs 2 to 20 classes, not 21"),
        ("auc", 2, {"columns": 0}, "an AUC needs at least one column of scores, not 0"),
        ("gini", 2, {"columns": 2}, "the kernel gini gives one estimate, not one for each of 2 columns: use auc"),
        ("vus", 3, {"columns": 2}, "the kernel vus gives one estimate, not one for each of 2 columns"),
        ("kendall", 1, {"options": {"tau": "c"}}, "Kendall's tau must be a or b, not 'c'"),
        (
            "mmd",
            2,
            {"options": {"kernel": "cubic"}},
            "the MMD's kernel must be gaussian or laplace or linear, not 'cubic'",
        ),
        ("mmd", 2, {"options": {"bandwidth": 0.0}}, "the bandwidth must be a positive number"),
        ("mmd", 2, {"options": {"bandwidth": float("nan")}}, "the bandwidth must be a positive number"),
        ("fmr", 1, {"options": {"threshold": 1.5}}, "the threshold of a cosine similarity can't be 1.5"),
        ("fmr", 2, {"options": {"threshold": float("inf"), "metric": "inner"}}, "the threshold of a inner similarity"),
        ("fmr", 2, {"options": {"metric": "angle"}}, "the metric must be cosine or inner, not 'angle'"),
        ("similarity-histogram", 1, {"options": {"edges": [0.0]}}, "the edges of a histogram must be at least two"),
        ("similarity-histogram", 2, {"options": {"edges": [0.5, 0.5]}}, "each larger than the last"),
        ("similarity-histogram", 2, {"options": {"edges": [0.0, float("nan")]}}, "two finite numbers"),
    ],
)
def test_values_of_options_are_checked(name: str, n_samples: int, given: dict[str, Any], message: str) -> None:
    assert message in refusal(make_kernel, name, n_samples, **given)


# ---------------------------------------------------------------------------------------------------------------------
# Kernels of the user's


MODULE = """\
import numpy as np

def distance(x, z):
    return np.abs(x - z.T)

def within(x, y):
    return np.abs(x - y.T)

within.degrees = (2,)

def ordered(x, y, z):
    return ((x < y) & (y < z))[:, 0].astype(float)

ordered.degrees = (1, 1, 1)
ordered.bounded = True

def mixed(a, b, c):
    return (a * b * c)[:, 0]

mixed.degrees = (2, 1)

def odd(x, z):
    return x

odd.degrees = (1, 0)
constant = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return the name of a module of kernels that can be imported, a new one for each test."""
    name = f"kernels_of_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(
    ("function", "kind", "degrees"),
    [
        ("distance", UserKernel, (1, 1)),
        ("within", UserPairs, (2,)),
        ("ordered", UserTuples, (1, 1, 1)),
        ("mixed", UserTuples, (2, 1)),
    ],
)
def test_a_function_says_how_many_samples_it_takes(
    module: str, function: str, kind: type[Kernel], degrees: tuple[int, ...]
) -> None:
    path = f"{module}:{function}"
    assert n_samples_of(path) == (len(degrees),)
    kernel = make_kernel(path, len(degrees), tile=7)
    assert type(kernel) is kind
    assert (kernel.degrees, kernel.name, kernel.bounded) == (degrees, path, function == "ordered")
    blocks = [np.array([1.0, 2.0, 4.0])] * len(degrees)
    expected = {"distance": 12.0, "within": 6.0, "ordered": 1.0, "mixed": 14.0 * 7.0}
    assert kernel.block_sums(*blocks) == (PairSum(expected[function], n_tuples(degrees, [3] * len(degrees))),)
    for other in {0, 1, 2, 3, 4} - {len(degrees)}:
        told = refusal(make_kernel, path, other)
        assert told.startswith(f"the kernel {path} is for {count_of(len(degrees), 'sample')}, not {other}: ")


def test_functions_and_kernels_need_no_name() -> None:
    def difference(x: np.ndarray, z: np.ndarray) -> np.ndarray:
        return x - z.T

    made = make_kernel(difference, 2)
    assert (type(made), made.name) == (UserKernel, "difference")
    assert make_kernel(lambda x, z: x - z.T, 2).name == "<lambda>"
    kendall = Kendall("a")
    assert make_kernel(kendall, 1) is kendall
    assert "is for 1 sample, not 2" in refusal(make_kernel, kendall, 2)
    assert refusal(make_kernel, kendall, 1, options={"tau": "b"}).startswith(
        "the kernel kendall has no option tau: it is made already"
    )
    assert "gives one estimate, not one for each of 2 columns" in refusal(make_kernel, difference, 2, columns=2)


def test_what_is_no_kernel_is_refused(module: str) -> None:
    known = ", ".join(KERNELS)
    for action in (make_kernel, n_samples_of):
        assert refusal(action, "acu") == (
            f"there is no kernel 'acu' (did you mean 'auc'?): use one of {known}, or your own as "
            "module:function or ./file.py:function"
        )
        assert refusal(action, f"{module}:absent").startswith(
            f"the kernel {module}:absent can't be imported (AttributeError: "
        )
        assert "can't be imported (ModuleNotFoundError: " in refusal(action, "no_such_module:k")
        assert refusal(action, f"{module}:constant") == (
            f"the kernel {module}:constant is not a function: give one of points"
        )
        assert "has degrees (1, 0): give a tuple of the numbers of points" in refusal(action, f"{module}:odd")
    told = refusal(make_kernel, f"{module}:distance", 2, options={"tau": "a"})
    assert f"{module}:distance can't be made by distance(tau='a') (TypeError: " in told


@pytest.mark.parametrize(
    ("name", "expected"),
    [("auc", (2,)), ("gini", (1, 2)), ("kendall", (1,)), ("energy", (2,)), ("fmr", (1, 2)), ("vus", None)],
)
def test_numbers_of_samples_by_name(name: str, expected: tuple[int, ...] | None) -> None:
    assert n_samples_of(name) == expected
