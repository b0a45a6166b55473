"""A test by several bandwidths: the largest studentised value, as exact as the test by one, found in one pass."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, shards

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.testing.several import together

Floats = NDArray[np.float64]
ALONE = SerialComm()


def gaussian(points: Floats, bandwidth: float) -> Floats:
    return np.array([[np.exp(-np.sum((a - b) ** 2) / (2 * bandwidth**2)) for b in points] for a in points])


def mmd(k: Floats, of_x: tuple[int, ...]) -> float:
    """Return the unbiased squared MMD of points that are x's and the others, by loops."""
    of_z = [i for i in range(len(k)) if i not in of_x]
    within = [
        sum(k[i, j] for i, j in itertools.permutations(each, 2)) / (len(each) * (len(each) - 1))
        for each in (of_x, of_z)
    ]
    across = sum(k[i, j] for i in of_x for j in of_z) / (len(of_x) * len(of_z))
    return float(within[0] + within[1] - 2 * across)


def two(n: int, m: int, shift: float = 0.5, seed: int = 1) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(shift, 1.0, size=(m, 2))


def test_of_tiny_samples_it_is_the_largest_of_all_labellings_by_loops(comm: Any) -> None:
    x, z = two(4, 5)
    bandwidths = [0.3, 1.0, 4.0]
    found = mpi_ustat.test(comm, *shards(comm, (x, z)), "mmd", kernel_options={"bandwidth": bandwidths}, seed=1)
    pooled = np.concatenate([x, z])
    every = list(itertools.combinations(range(9), 4))
    values = np.array([[mmd(gaussian(pooled, w), each) for each in every] for w in bandwidths])
    assert found.exact and found.n_permutations == len(every) == 126
    studentised = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
    largest, own = studentised.max(axis=0), every.index((0, 1, 2, 3))
    assert np.sort(found.relabelled) == pytest.approx(np.sort(largest), abs=1e-9)
    assert found.p == np.mean(largest >= largest[own] - 1e-9)
    assert found.value == pytest.approx(largest[own], abs=1e-9) and found.unit == "1"
    assert found.several is not None
    assert found.several.used == found.several.asked == tuple(bandwidths)
    assert found.several.estimates == pytest.approx(values[:, own], abs=1e-13)
    assert found.several.studentised == pytest.approx(studentised[:, own], abs=1e-9)
    assert found.several.means == pytest.approx(values.mean(axis=1), abs=1e-13)
    assert found.several.deviations == pytest.approx(values.std(axis=1), abs=1e-13)
    assert found.several.largest == studentised[:, own].argmax()


@pytest.mark.parametrize("spread", SPREADS)
def test_the_bits_are_the_same_at_every_number_of_ranks(comm: Any, spread: str) -> None:
    x, z = two(97, 141, 0.2)
    given: dict[str, Any] = {
        "kernel_options": {"bandwidth": [0.5, "median", 3.0], "standardize": "sd"},
        "n_permutations": 499,
        "n_workers": 50,
        "seed": 5,
    }
    found = mpi_ustat.test(comm, *shards(comm, (x, z), spread), "mmd", **given)
    alone = mpi_ustat.test(ALONE, x, z, "mmd", **given)
    assert (found.value, found.p, found.several) == (alone.value, alone.p, alone.several)
    assert np.array_equal(found.relabelled, alone.relabelled)


def test_every_bandwidth_has_the_values_of_its_own_test() -> None:
    x, z = two(80, 90, 0.3)
    given: dict[str, Any] = {"n_permutations": 999, "seed": 3, "n_workers": 34}
    bandwidths = [0.5, "median", 3.0]
    found = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": bandwidths}, **given)
    ones = [mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": each}, **given) for each in bandwidths]
    assert found.several is not None
    assert found.several.estimates == tuple(each.value for each in ones)
    values = np.array([np.append(each.relabelled, each.value) for each in ones])
    studentised = (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)
    assert found.relabelled == pytest.approx(studentised.max(axis=0)[:-1], abs=1e-9)
    assert found.p == np.mean(studentised.max(axis=0) >= studentised[:, -1].max() - 1e-9)
    assert isinstance(found.several.used[1], float) and found.several.asked[1] == "median"
    assert found.summary()["several"]["used"] == found.several.used
    assert f"median ({found.several.used[1]!r}): {ones[1].value:.6g}, studentised" in str(found)
    one = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": [0.5]}, **given)
    assert one.p == ones[0].p


def test_a_bandwidth_at_which_nothing_differs_has_no_say() -> None:
    x, z = two(40, 40, 0.6)
    given: dict[str, Any] = {"n_permutations": 199, "seed": 3}
    alone = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": [1.0]}, **given)
    found = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": [1e-9, 1.0, 1e9]}, **given)
    assert found.several is not None
    assert found.several.studentised[0] == found.several.studentised[2] == 0.0
    assert found.several.largest == 1 and found.p <= alone.p + 1e-12
    same = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": [1e-9, 1e-8]}, **given)
    assert same.p == 1.0


def test_studentised_values_do_not_depend_on_where_all_values_are() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(2, 200))
    near = together(values[:, 0], values, np.full(2, 1e-15), exact=True)
    far = together(values[:, 0] + 2.0**20, values + 2.0**20, np.full(2, 1e-9), exact=True)
    assert far.relabelled == pytest.approx(near.relabelled, abs=1e-8)
    assert near.own == pytest.approx((values[:, 0] - values.mean(axis=1)) / values.std(axis=1), abs=1e-12)


def test_alike_samples_are_told_apart_no_more_often_than_the_level() -> None:
    from scipy.stats import binom

    rng, n_sets = np.random.default_rng(6), 400
    given: dict[str, Any] = {"n_permutations": 99, "n_workers": 24, "kernel_options": {"bandwidth": [0.3, 1.0, 3.0]}}
    samples = [(rng.standard_t(3, size=41), rng.standard_t(3, size=67)) for _ in range(n_sets)]
    p = np.array([mpi_ustat.test(ALONE, *each, "mmd", seed=i, **given).p for i, each in enumerate(samples)])
    for level in (0.05, 0.2, 0.5):
        low, high = binom.ppf([1e-5, 1 - 1e-5], n_sets, level)
        assert low <= np.count_nonzero(p <= level) <= high


def test_it_finds_what_one_bandwidth_misses() -> None:
    """A fine structure, by the narrow kernel of a list; by itself the wide one sees nothing."""
    rng = np.random.default_rng(3)
    cells = np.repeat(np.arange(10.0), 30)
    x, z = cells + rng.uniform(0, 1, size=300), cells + rng.uniform(0.35, 0.65, size=300)
    given: dict[str, Any] = {"n_permutations": 199, "seed": 1}
    wide = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": 5.0}, **given)
    both = mpi_ustat.test(ALONE, x, z, "mmd", kernel_options={"bandwidth": [0.1, 5.0]}, **given)
    assert wide.p > 0.05 and both.p == 0.005
    assert both.several is not None and both.several.largest == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bandwidth": []}, "no value in the list of the bandwidth: give one or several"),
        ({"bandwidth": [1.0, 2, 1]}, "the bandwidth 1.0 is there twice: leave one out"),
        ({"bandwidth": [1.0, "mean"]}, "the bandwidth must be a number or median, not 'mean'"),
        ({"bandwidth": [1.0, -2.0]}, "the bandwidth must be a positive number"),
        ({"bandwidth": [1.0, [2.0]]}, "a list of values of the bandwidth"),
        ({"bandwidth": [1.0, 2.0], "kernel": "linear"}, "the linear kernel of the MMD has no bandwidth: leave it out"),
        ({"kernel": ["gaussian", "laplace"]}, "the MMD's kernel must be"),
    ],
)
def test_lists_that_can_not_be_meant_are_refused(comm: Any, options: dict[str, Any], text: str) -> None:
    x, z = two(20, 20)
    with pytest.raises(UserError, match=text):
        mpi_ustat.test(comm, *shards(comm, (x, z)), "mmd", kernel_options=options)


def test_an_estimate_takes_one_bandwidth() -> None:
    x, z = two(20, 20)
    with pytest.raises(UserError, match="a list of values of the bandwidth is for a test: give one"):
        mpi_ustat.estimate(ALONE, x, z, "mmd", kernel_options={"bandwidth": [1.0, 2.0]}, complete=True)
