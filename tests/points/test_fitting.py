"""What a discrepancy takes from the points before it is evaluated: the same on any ranks, and by definition."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from statistics import median
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sharding import SPREADS, shards

from mpi_ustat import Estimate, SerialComm, UserError, estimate
from mpi_ustat.points.quartiles import quartiles

Array = NDArray[np.float64]

RNG = np.random.default_rng(5)
X, Z = RNG.normal(size=(23, 3)) * [1.0, 20.0, 0.1], RNG.normal(0.5, 1.0, size=(31, 3)) * [1.0, 20.0, 0.1]


def of(comm: Any, x: Array, z: Array, name: str, spread: str = "even", **options: Any) -> Estimate:
    """The complete statistic; other options than `weights` are the kernel's."""
    more = {"weights": shards(comm, options.pop("weights"), spread)} if "weights" in options else {}
    way = options.pop("way", {"complete": True})
    return estimate(comm, *shards(comm, (x, z), spread), name, seed=3, kernel_options=options, **way, **more)


def refusal(comm: Any, x: Array, z: Array, name: str, **options: Any) -> str:
    """The one sentence on every rank."""
    with pytest.raises(UserError) as refused:
        of(comm, x, z, name, **options)
    (sentence,) = set(comm.allgather(str(refused.value)))
    return sentence


def distances(points: Array) -> list[float]:
    return [math.dist(a, b) for a, b in combinations(points.tolist(), 2)]


def by_definition(x: Array, z: Array, k: Any) -> float:
    """The mean of k within x and within z, less twice that across."""
    within = [float(np.mean([k(a, b) for a, b in combinations(each, 2)])) for each in (x, z)]
    return sum(within) - 2.0 * float(np.mean([k(a, b) for a, b in product(x, z)]))


# --- the bandwidth


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_the_bandwidth_is_the_median_of_the_distances_within_both_samples_together(
    comm: Any, kernel: str, spread: str
) -> None:
    wide = median(distances(np.concatenate([X, Z])))
    for way in ({"complete": True}, {"n_workers": 3, "n_rounds": 2}, {"n_workers": 3, "n_pairs": 20}):
        found = of(comm, X, Z, "mmd", spread, kernel=kernel, bandwidth="median", way=way)
        alone = of(SerialComm(), X, Z, "mmd", kernel=kernel, bandwidth="median", way=way)
        assert found.learnt == alone.learnt == {"bandwidth": pytest.approx(wide, rel=1e-15), "bandwidth_points": 54}
        given = of(SerialComm(), X, Z, "mmd", kernel=kernel, bandwidth=found.learnt["bandwidth"], way=way)
        assert (found.value, found.stderr, found.flags) == (given.value, given.stderr, given.flags)
        assert found.value == alone.value
    power = {
        "gaussian": lambda a, b: -0.5 * (math.dist(a, b) / wide) ** 2,
        "laplace": lambda a, b: -math.dist(a, b) / wide,
    }
    expected = by_definition(X, Z, lambda a, b: math.exp(power[kernel](a, b)))
    assert of(comm, X, Z, "mmd", kernel=kernel, bandwidth="median").value == pytest.approx(expected, rel=1e-11)
    weights = tuple(np.ones(len(each)) for each in (X, Z))
    weighted = of(comm, X, Z, "mmd", spread, kernel=kernel, bandwidth="median", weights=weights)
    assert weighted.value == pytest.approx(expected, rel=1e-11)
    assert weighted.learnt["bandwidth"] == found.learnt["bandwidth"]


def test_of_many_points_a_thousand_random_ones_stand_for_all(comm: Any) -> None:
    rng = np.random.default_rng(6)
    x, z = rng.normal(size=2500), rng.normal(size=500)
    found = of(comm, x, z, "mmd", bandwidth="median", way={"n_workers": 5, "n_pairs": 10})
    assert found.learnt == of(SerialComm(), x, z, "mmd", bandwidth="median", way={"n_workers": 5, "n_pairs": 10}).learnt
    assert found.learnt["bandwidth_points"] == 1000
    # |N(0, 2)| has the median 0.9539; of 1000 points that of the distances has a standard error of about 0.02.
    assert found.learnt["bandwidth"] == pytest.approx(0.9539, abs=0.1)


def test_points_without_a_median_distance_are_refused(comm: Any) -> None:
    told = refusal(comm, np.ones(30), np.ones(20), "mmd", bandwidth="median")
    assert told == (
        "half or more of the distances between 50 of the points are 0, and so is their median: give a number as the "
        "bandwidth"
    )
    told = refusal(comm, 1e-170 * X, 1e-170 * Z, "mmd", bandwidth="median")
    assert told.startswith("the median distance of the points is 1.") and told.endswith("rescale the points")


def test_a_bandwidth_of_very_large_points() -> None:
    found = of(SerialComm(), 1e148 * X, 1e148 * Z, "mmd", bandwidth="median").learnt["bandwidth"]
    assert found == pytest.approx(1e148 * median(distances(np.concatenate([X, Z]))), rel=1e-14)


# --- the unit of each column


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("by", ["sd", "iqr"])
def test_columns_in_units_of_their_spread(comm: Any, by: str, spread: str) -> None:
    pooled = np.concatenate([X, Z])
    scales = pooled.std(axis=0) if by == "sd" else np.subtract(*np.quantile(pooled, [0.75, 0.25], axis=0))
    for kernel, options in (("energy", {}), ("mmd", {"bandwidth": 0.8}), ("mmd", {"bandwidth": "median"})):
        found = of(comm, X, Z, kernel, spread, standardize=by, **options)
        alone = of(SerialComm(), X, Z, kernel, standardize=by, **options)
        assert (found.value, found.stderr, found.learnt) == (alone.value, alone.stderr, alone.learnt)
        assert_allclose(found.learnt["scales"], scales, rtol=1e-14)
        by_hand = of(comm, X / found.learnt["scales"], Z / found.learnt["scales"], kernel, spread, **options)
        assert (by_hand.value, by_hand.stderr) == (found.value, found.stderr)
        assert by_hand.learnt.get("bandwidth") == found.learnt.get("bandwidth")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 101])
def test_quartiles_are_those_of_all_values(comm: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    columns = [
        rng.normal(size=n),
        rng.integers(-2, 3, n) * 1.0,
        rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
    ]
    columns += [np.full(n, -0.0), -rng.exponential(size=n)]
    rows = np.column_stack(columns)
    for spread in SPREADS:
        cut = n // 3
        found = quartiles(comm, shards(comm, (rows[:cut], rows[cut:]), spread))
        # As rational numbers, and rounded once less than numpy.quantile.
        for quarter, values in zip((1, 3), found, strict=True):
            whole, rest = divmod(quarter * (n - 1), 4)
            for column, value in zip(rows.T, values, strict=True):
                ordered = [Fraction(each) for each in sorted(column.tolist())]
                upper = ordered[min(whole + 1, n - 1)]
                expected = ordered[whole] + Fraction(rest, 4) * (upper - ordered[whole])
                assert value == pytest.approx(float(expected), rel=1e-14, abs=1e-300)


def test_constant_columns_are_refused_by_their_names(comm: Any) -> None:
    x, z = X.copy(), Z.copy()
    x[:, 1] = z[:, 1] = 0.1
    told = refusal(comm, x, z, "energy", standardize="sd")
    assert told == "column 1 has a standard deviation of 0 over all samples together: leave it out of the columns"
    x[:18, 2] = z[:24, 2] = 0.0
    assert of(comm, x[:, ::2], z[:, ::2], "energy", standardize="sd").learnt["scales"][1] > 0.0
    told = refusal(comm, x, z, "mmd", standardize="iqr")
    assert told == (
        "columns 1, 2 have an interquartile range of 0 over all samples together: leave them out of the columns, "
        'or use standardize="sd"'
    )


class Frame:
    """What matters of a data frame."""

    columns = ("age", "dose", "site")

    def __init__(self, rows: Array) -> None:
        self.rows = rows

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return np.asarray(self.rows, dtype=dtype)

    def __len__(self) -> int:
        return len(self.rows)


def test_columns_without_a_scale_are_called_by_the_names_of_a_data_frame(comm: Any) -> None:
    x, z = X.copy(), Z.copy()
    x[:, 2] = z[:, 2] = 4.0
    frames = [Frame(each) for each in shards(comm, (x, z), "apart")]
    with pytest.raises(UserError, match="column 'site' has a standard deviation of 0"):
        estimate(comm, *frames, "energy", complete=True, kernel_options={"standardize": "sd"})


# --- the energy distance in units that squares can be taken in


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("scale", [5e-170, 1e-280, 1e170, 1e290])
def test_distances_count_however_small_or_large(comm: Any, scale: float, alpha: float) -> None:
    x, z = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0])
    exact = -by_definition(x[:, None], z[:, None], lambda a, b: math.dist(a, b) ** alpha)
    if alpha * math.log10(scale) > 308.0 or alpha * math.log10(scale) < -290.0:
        assert "rescale the points" in refusal(comm, scale * x, scale * z, "energy", alpha=alpha)
        return
    for way in ({"complete": True}, {"n_workers": 1}):
        found = of(comm, scale * x, scale * z, "energy", alpha=alpha, way=way)
        assert found.value == pytest.approx(exact * scale**alpha, rel=1e-12)
        assert found.value == of(SerialComm(), scale * x, scale * z, "energy", alpha=alpha, way=way).value


@pytest.mark.parametrize("scale", [2.0**-560, 2.0**560])
def test_a_variance_that_no_double_holds_is_none(comm: Any, scale: float) -> None:
    whole = of(SerialComm(), X, Z, "energy")
    assert whole.stderr is not None
    for way in ({"complete": True}, {"n_workers": 4}, {"n_workers": 4, "n_pairs": 20}):
        found = of(comm, scale * X, scale * Z, "energy", way=way)
        if way.get("complete"):
            assert found.value == whole.value * scale
        assert found.stderr is None and found.interval is None
        assert any("variance" in flag for flag in found.flags)


def test_squares_of_distances_are_those_of_the_means(comm: Any) -> None:
    """For α = 2 the unbiased statistic is twice the linear MMD."""
    squares = of(comm, X, Z, "energy", alpha=2.0).value
    assert squares == pytest.approx(2.0 * of(comm, X, Z, "mmd", kernel="linear").value, rel=1e-11)
