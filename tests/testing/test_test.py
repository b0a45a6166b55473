"""The test that samples are alike: exact, the same at every number of ranks, as powerful as that of single points."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, shards

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.testing.result import TestResult

Floats = NDArray[np.float64]
ALONE = SerialComm()


def energy(distances: Floats, of_x: NDArray[np.intp]) -> float:
    """Return the energy distance from all distances, of the points that are x's and the others, as one writes it."""
    of_z = np.setdiff1d(np.arange(len(distances)), of_x)
    n, m = len(of_x), len(of_z)
    xx, zz = (distances[np.ix_(each, each)].sum() for each in (of_x, of_z))
    return float(2 * distances[np.ix_(of_x, of_z)].mean() - xx / (n * (n - 1)) - zz / (m * (m - 1)))


def distances_of(x: Floats, z: Floats) -> Floats:
    pooled = np.concatenate([x, z])
    return np.sqrt(((pooled[:, None] - pooled[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    ("n", "m", "kernel", "n_workers"),
    [
        (97, 141, "energy", None),
        (20, 20, "mmd", None),
        (300, 61, "energy", 40),
        (5, 700, "energy", 100),
        (3, 4, "mmd", None),
    ],
)
def test_the_bits_are_the_same_at_every_number_of_ranks(
    comm: Any, n: int, m: int, kernel: str, n_workers: int | None, spread: str
) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(n, 2)), rng.normal(0.2, 1.0, size=(m, 2))
    options: dict[str, Any] = {"n_permutations": 499, "n_workers": n_workers, "seed": 5}
    found = mpi_ustat.test(comm, *shards(comm, (x, z), spread), kernel, **options)
    alone = mpi_ustat.test(ALONE, x, z, kernel, **options)
    assert (found.value, found.p, found.n_blocks) == (alone.value, alone.p, alone.n_blocks)
    assert np.array_equal(found.relabelled, alone.relabelled)
    assert len(found.relabelled) == found.n_permutations
    whole = mpi_ustat.estimate(ALONE, x, z, kernel, complete=True, stderr=False)
    assert found.value == pytest.approx(whole.value, rel=1e-12, abs=1e-14)
    assert found.n_ranks == comm.size and (found.bytes_moved > 0) == (comm.size > 1)


def test_of_tiny_samples_all_labellings_are_taken(comm: Any) -> None:
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(4, 2)), rng.normal(0.7, 1.0, size=(6, 2))
    found = mpi_ustat.test(comm, *shards(comm, (x, z)), "energy", seed=1)
    distances = distances_of(x, z)
    every = [energy(distances, np.array(each)) for each in itertools.combinations(range(10), 4)]
    assert found.exact and found.n_permutations == math.comb(10, 4)
    assert np.sort(found.relabelled) == pytest.approx(np.sort(every), abs=1e-13)
    assert found.p == np.mean(np.array(every) >= energy(distances, np.arange(4)) - 1e-12)
    assert "all 210, of 4 and 6 blocks of 1 point" in str(found)
    drawn = mpi_ustat.test(comm, *shards(comm, (x, z)), "energy", seed=1, n_permutations=209)
    assert not drawn.exact and drawn.p == (1 + np.sum(drawn.relabelled >= found.value - 1e-12)) / 210


def test_random_labellings_of_single_points_have_the_law_of_all() -> None:
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(9, 1)), rng.normal(1.0, 1.0, size=(10, 1))
    every = mpi_ustat.test(ALONE, x, z, seed=1, n_permutations=math.comb(19, 9))
    some = mpi_ustat.test(ALONE, x, z, seed=1, n_permutations=20_000)
    assert every.exact and not some.exact
    assert some.p == pytest.approx(every.p, abs=4.5 * math.sqrt(every.p * (1 - every.p) / 20_000) + 1e-4)
    for level, value in every.quantiles.items():
        below = np.mean(some.relabelled < value), np.mean(some.relabelled <= value)
        assert below[0] - 0.015 <= level <= below[1] + 0.015


def test_quantiles_are_values() -> None:
    found = mpi_ustat.test(ALONE, np.arange(4.0), np.arange(5.0), seed=1)
    assert found.quantile(1.0) == found.relabelled.max()
    assert np.mean(found.relabelled <= found.quantile(0.9)) >= 0.9 > np.mean(found.relabelled < found.quantile(0.9))


class Cauchy(Discrepancy):
    """A kernel of a user's own: k = 1/(1 + |x - y|²), in one dimension."""

    name = "cauchy"

    def fill(self, left: Floats, right: Floats, out: Floats) -> None:
        out[:] = 1.0 / (1.0 + np.subtract.outer(left[:, 0], right[:, 0]) ** 2)

    def aligned(self, left: Floats, right: Floats) -> Floats:
        return 1.0 / (1.0 + (left[:, 0] - right[:, 0]) ** 2)

    def bound(self, low: Floats, high: Floats) -> float:
        return 1.0


def test_a_kernel_of_ones_own(comm: Any) -> None:
    rng = np.random.default_rng(4)
    x, z = rng.normal(size=150), rng.normal(1.0, 1.0, size=130)
    found = mpi_ustat.test(comm, *shards(comm, (x, z)), Cauchy(), n_permutations=999, seed=2)
    assert found.kernel == "cauchy" and found.p == 0.001
    assert found.value == pytest.approx(mpi_ustat.estimate(ALONE, x, z, Cauchy(), complete=True, stderr=False).value)


def test_kernel_options_reach_the_kernel(comm: Any) -> None:
    x, z = np.arange(6.0), np.arange(8.0) + 0.5
    wide = mpi_ustat.test(comm, *shards(comm, (x, z)), "mmd", kernel_options={"bandwidth": 3.0}, seed=1)
    whole = mpi_ustat.estimate(ALONE, x, z, "mmd", kernel_options={"bandwidth": 3.0}, complete=True, stderr=False)
    assert wide.value == pytest.approx(whole.value, rel=1e-12)
    assert "mmd, bandwidth 3.0" in str(wide)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"kernel": "auc"},
            "the kernel auc is no discrepancy of two samples, .*: use energy or mmd, or a subclass of D",
        ),
        ({"kernel": lambda x, z: x - z.T}, "the kernel <lambda> is no discrepancy"),
        ({"kernel": "nosuch:kernel"}, "the kernel nosuch:kernel is no discrepancy"),
        (
            {"n_permutations": 18},
            "the number of permutations is 18: give from 19, with which p can be 0.05, to 10000000",
        ),
        ({"n_permutations": 10_000_001}, "permutations is 10000001"),
        ({"n_permutations": 99.0}, "the number of permutations is 99.0: give a whole number"),
        ({"n_workers": 31}, "31 blocks can't each have one of 30 points"),
        ({"n_workers": True}, "the number of workers is True: give a whole number"),
        ({"seed": -1}, "the seed is -1"),
        ({"kernel_options": {"bandwidth": 1.0}}, "the kernel energy has no option bandwidth"),
        ({"x": np.array([1.0, np.nan])}, "row 1 of the sample x"),
        ({"z": np.zeros((3, 2))}, "can't be paired"),
        ({"x": np.array([1.0])}, "the sample x has only 1 point"),
        ({"z": None}, "energy is for 2 sample"),
        ({"x": np.arange(9.0) * 1e307, "z": np.arange(9.0) * -1e307}, "overflow|finite|range"),
    ],
)
def test_what_can_not_be_tested_is_refused_on_every_rank(comm: Any, change: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"x": np.arange(10.0), "z": np.arange(20.0)} | change
    x, z = given.pop("x"), given.pop("z")
    own = [None if each is None else shards(comm, (each,))[0] for each in (x, z)]
    with np.errstate(all="ignore"), pytest.raises(UserError, match=text):
        mpi_ustat.test(comm, *own, **given)


LAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(size=(n, 1)),
    "t3": lambda rng, n: rng.standard_t(3, size=(n, 1)),
    "exponential": lambda rng, n: rng.exponential(size=(n, 1)),
    "four values": lambda rng, n: rng.integers(0, 4, size=(n, 1)).astype(np.float64),
    "10 dimensions": lambda rng, n: rng.normal(size=(n, 10)),
}
R = 199
"""(R + 1)·5 % and (R + 1)·1 % are whole numbers."""


def p_values(law: str, n: int, m: int, n_workers: int | None, n_sets: int) -> Floats:
    rng = np.random.default_rng([n, m, n_sets])
    options: dict[str, Any] = {"n_permutations": R, "n_workers": n_workers}
    draw = LAWS[law]
    return np.array([mpi_ustat.test(ALONE, draw(rng, n), draw(rng, m), seed=i, **options).p for i in range(n_sets)])


def most_rejected(level: float, n_sets: int) -> int:
    """Return the number of rejections that an exact test passes once in 100 000."""
    from scipy.stats import binom

    return int(binom.ppf(1 - 1e-5, n_sets, level))


@pytest.mark.parametrize(("law", "n", "m", "n_workers"), [("t3", 41, 67, 24), ("four values", 20, 20, None)])
def test_alike_samples_are_told_apart_no_more_often_than_the_level(law: str, n: int, m: int, n_workers: Any) -> None:
    p = p_values(law, n, m, n_workers, 600)
    for level in (0.05, 0.2, 0.5):
        rejected = np.count_nonzero(p <= level)
        assert rejected <= most_rejected(level, len(p))
        if law == "t3":  # with a density there are no ties, and the test is not conservative
            assert rejected >= len(p) - most_rejected(1 - level, len(p))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "m", "n_workers"), [(20, 20, None), (100, 100, 64), (103, 250, 64), (64, 1001, 40)])
@pytest.mark.parametrize("law", LAWS)
def test_size_over_ten_thousand_data_sets(law: str, n: int, m: int, n_workers: int | None) -> None:
    p = p_values(law, n, m, n_workers, 10_000)
    for level in (0.01, 0.05):
        rejected = np.count_nonzero(p <= level)
        assert rejected <= most_rejected(level, len(p))
        if law != "four values":
            assert rejected >= len(p) - most_rejected(1 - level, len(p))


def test_power_is_that_of_single_points() -> None:
    """A few hundred data sets, each tested by blocks and by labels of points exchanged in a loop."""
    rng = np.random.default_rng(7)
    n, n_sets = 60, 200
    by_blocks, by_points = 0, 0
    for i in range(n_sets):
        x, z = rng.normal(size=(n, 2)), rng.normal(0.38, 1.0, size=(n, 2))
        by_blocks += mpi_ustat.test(ALONE, x, z, n_permutations=99, n_workers=40, seed=i).p <= 0.05
        distances = distances_of(x, z)
        values = [energy(distances, rng.permutation(2 * n)[:n]) for _ in range(99)]
        by_points += (1 + np.sum(np.array(values) >= energy(distances, np.arange(n)))) / 100 <= 0.05
    assert 0.4 < by_points / n_sets < 0.95
    # The two decide alike on most data sets: the difference of the counts has a deviation of some 0.03 n_sets.
    assert abs(by_blocks - by_points) / n_sets < 0.1


@pytest.mark.parametrize(
    ("scale", "alpha"), [(1e-150, 1.0), (1e-280, 1.0), (5e-170, 1.0), (1e140, 1.0), (1e-290, 0.5), (1e140, 1.5)]
)
def test_p_is_the_same_at_every_scale(comm: Any, scale: float, alpha: float) -> None:
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=(60, 2)), rng.normal(0.3, 1.0, size=(50, 2))
    options: dict[str, Any] = {"n_permutations": 199, "seed": 1, "kernel_options": {"alpha": alpha}}
    found = mpi_ustat.test(comm, *shards(comm, (x * scale, z * scale)), **options)
    usual = mpi_ustat.test(ALONE, x, z, **options)
    assert found.p == usual.p
    assert found.value == pytest.approx(usual.value * scale**alpha, rel=1e-9)


def test_numbers_of_numpy_are_numbers() -> None:
    x, z = np.arange(30.0), np.arange(40.0)
    options: dict[str, Any] = {"n_permutations": np.int64(99), "n_workers": np.int32(20), "seed": np.int64(1)}
    assert json.loads(json.dumps(mpi_ustat.test(ALONE, x, z, **options).summary()))["n_blocks"] == [10, 10]


def test_an_error_on_one_rank_is_raised_on_all(comm: Any) -> None:
    class Broken(EnergyDistance):
        def fill(self, left: Floats, right: Floats, out: Floats) -> None:
            if comm.rank == comm.size - 1:
                raise MemoryError("no room")
            super().fill(left, right, out)

    with pytest.raises(UserError, match="evaluating the kernel energy failed.*: MemoryError: no room"):
        mpi_ustat.test(comm, *shards(comm, (np.arange(900.0), np.arange(900.0))), Broken(), seed=1)


def test_the_class_is_no_test_of_pytest() -> None:
    assert TestResult.__test__ is False
