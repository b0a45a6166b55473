"""Confidence intervals: their formulas, where there are none, and the data sets that are flagged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components, subsets
from mpi_ustat.inference.doubts import flags
from mpi_ustat.inference.intervals import UNLIMITED, Interval, difference, interval
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.kernel import UNIT, Kernel
from mpi_ustat.kernels.product import Product
from mpi_ustat.paper import models

Array = NDArray[Any]
Draw = Callable[[np.random.Generator], tuple[Array, Array]]

Z95 = 1.959963984540054
N, M = 500, 200


def limits(found: Interval) -> tuple[float, float]:
    assert found.lower is not None and found.upper is not None and found.note is None
    return found.lower, found.upper


# --- intervals


@pytest.mark.parametrize("value", [-3.0, 0.0, 0.5, 1.0, 7.0])
def test_a_wald_interval_is_symmetric_about_the_estimate(value: float) -> None:
    found = interval(value, 0.04, 0.95)
    assert found.method == "wald"
    assert limits(found) == pytest.approx((value - Z95 * 0.2, value + Z95 * 0.2), rel=1e-14)


@pytest.mark.parametrize("value", [0.001, 0.3, 0.5, 0.97])
def test_a_logit_interval_is_symmetric_on_the_logit_scale(value: float) -> None:
    found = interval(value, 1e-4, 0.9, limits=UNIT)
    lower, upper = limits(found)
    assert found.method == "logit"
    assert 0.0 < lower < value < upper < 1.0
    scale = 1.6448536269514722 * 0.01 / (value * (1 - value))
    for limit, sign in ((lower, -1), (upper, 1)):
        bound = 1e-14 + 1e-15 / (limit * (1 - limit))  # of a limit near 1 few digits of the distance are left
        assert math.log(limit / (1 - limit)) == pytest.approx(math.log(value / (1 - value)) + sign * scale, abs=bound)


def test_a_logit_interval_of_an_estimate_and_of_its_complement_are_complements() -> None:
    lower, upper = limits(interval(0.2, 0.003, 0.95, limits=UNIT))
    mirrored = limits(interval(0.8, 0.003, 0.95, limits=UNIT))
    assert (1 - upper, 1 - lower) == pytest.approx(mirrored, rel=1e-13)


def test_a_small_variance_makes_both_intervals_the_same() -> None:
    assert limits(interval(0.7, 1e-10, 0.95, limits=UNIT)) == pytest.approx(
        limits(interval(0.7, 1e-10, 0.95)), abs=1e-9
    )


def test_a_huge_variance_leaves_a_logit_interval_inside_0_and_1() -> None:
    lower, upper = limits(interval(0.5, 1e12, 0.95, limits=UNIT))
    assert 0.0 <= lower < 1e-12 and 1.0 - 1e-12 < upper <= 1.0


def test_the_method_can_be_forced() -> None:
    assert interval(0.5, 0.01, 0.95, limits=UNIT, method="wald") == interval(0.5, 0.01, 0.95)
    assert interval(0.5, 0.01, 0.95, method="logit") == interval(0.5, 0.01, 0.95, limits=UNIT)


@pytest.mark.parametrize(("dof", "quantile"), [(1, 12.706204736174694), (4, 2.7764451051977934), (math.inf, Z95)])
def test_degrees_of_freedom_widen_an_interval(dof: float, quantile: float) -> None:
    lower, upper = limits(interval(1.0, 0.25, 0.95, dof=dof))
    assert (upper - lower) / 2 == pytest.approx(quantile * 0.5, rel=1e-9)
    centre = [math.log(limit / (1 - limit)) for limit in limits(interval(0.5, 1e-4, 0.95, limits=UNIT, dof=dof))]
    assert (centre[1] - centre[0]) / 2 == pytest.approx(quantile * 0.04, rel=1e-9)


@pytest.mark.parametrize("variance", [None, math.nan, math.inf])
def test_without_a_variance_there_is_no_interval(variance: float | None) -> None:
    assert interval(0.5, variance, 0.95) == Interval(None, None, "none", "there is no finite estimate of the variance")


@pytest.mark.parametrize("variance", [0.0, -1e-9])
@pytest.mark.parametrize("limits", [UNIT, UNLIMITED])
def test_a_variance_that_is_not_positive_gives_no_interval(limits: tuple[float, float], variance: float) -> None:
    assert interval(0.5, variance, 0.95, limits=limits) == Interval(
        None, None, "none", "the estimated variance is not positive"
    )


@pytest.mark.parametrize("method", [None, "logit", "wald"])
@pytest.mark.parametrize(("value", "where"), [(0.0, "exactly 0"), (1.0, "exactly 1"), (1.2, "outside [0, 1]")])
def test_an_estimate_at_an_end_has_no_interval(value: float, where: str, method: str | None) -> None:
    found = interval(value, 0.01, 0.95, limits=UNIT, method=method)
    assert (found.lower, found.upper, found.method) == (None, None, "none")
    assert found.note is not None and where in found.note


def test_a_forced_logit_of_an_estimate_outside_0_and_1_has_no_interval() -> None:
    assert interval(-0.3, 0.01, 0.95, method="logit").method == "none"
    assert interval(-0.3, 0.01, 0.95).method == "wald"


def test_an_estimate_that_is_not_a_number_has_no_interval() -> None:
    assert interval(math.nan, 0.01, 0.95).note == "the estimate is not finite"


@pytest.mark.parametrize("dof", [None, 1e9])
def test_a_confidence_next_to_one_has_a_quantile(dof: float | None) -> None:
    # The last doubles below 1: half the last one is a tail of 2^-54, and 1 - 2^-54 rounds to 1.
    for confidence, quantile in ((1 - 2**-52, 8.20954), (1 - 2**-53, 8.29236), (0.95, 1.959964)):
        found = interval(0.5, 0.01, confidence, method="wald", dof=dof)
        assert found.upper == pytest.approx(0.5 + 0.1 * quantile, rel=1e-5)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -1.0, math.nan])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(UserError, match="confidence must lie between 0 and 1"):
        interval(0.5, 0.01, confidence, limits=UNIT)


def test_unknown_methods_and_degrees_of_freedom_are_refused() -> None:
    with pytest.raises(UserError, match="logit or wald, not 'probit'"):
        interval(0.5, 0.01, 0.95, limits=UNIT, method="probit")
    with pytest.raises(UserError, match="degrees of freedom must be positive, not 0"):
        interval(0.5, 0.01, 0.95, limits=UNIT, dof=0)


# --- differences


def test_a_difference_takes_the_covariance_into_account() -> None:
    found = difference([0.8, 0.7], [[0.04, 0.03], [0.03, 0.05]], 0.95)
    assert (found.first, found.second) == (0, 1)
    assert found.value == pytest.approx(0.1)
    assert found.stderr == pytest.approx(math.sqrt(0.03))
    assert found.interval == interval(0.8 - 0.7, 0.04 + 0.05 - 2 * 0.03, 0.95)


def test_a_difference_without_variance_has_no_interval() -> None:
    for covariance in (np.ones((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]]), np.full((2, 2), math.nan)):
        found = difference([0.5, 0.7], covariance, 0.95)
        assert found.stderr is None
        assert found.interval.method == "none"


@pytest.mark.parametrize("pair", [(0, 0), (0, 2), (-1, 1)])
def test_a_difference_of_other_than_two_statistics_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="have no difference"):
        difference([0.5, 0.7], np.eye(2), 0.95, *pair)


# --- flags


def test_a_first_order_part_must_be_six_times_the_rest() -> None:
    # σ₁²/10 + σ₂²/20 = 0.3, against σ₀²/200.
    assert flags([2.0, 2.0, 9.9], (10, 20), (1, 1)) == ()
    (sentence,) = flags([2.0, 2.0, 10.1], (10, 20), (1, 1))
    assert "told from zero" in sentence
    # 4ζ₁/10 = 0.4, against 2δ/90.
    assert flags([1.0, 2.9], (10,), (2,), limits=(-1.0, 1.0)) == ()
    assert flags([1.0, 3.1], (10,), (2,), limits=(-1.0, 1.0)) == (sentence,)
    # Three samples: 3/10, against 3/100 + 1/1000·σ².
    assert subsets(3)[:3] == ((0,), (1,), (2,))
    assert flags([1.0] * 6 + [19.0], (10, 10, 10), (1, 1, 1)) == ()
    assert flags([1.0] * 6 + [21.0], (10, 10, 10), (1, 1, 1)) == (sentence,)


@pytest.mark.parametrize("components", [[0.0, 0.0, 0.0], [-1.0, 0.0, -9.0], [-0.1, 0.2, 1.0]])
def test_a_first_order_part_that_is_not_positive_is_flagged(components: list[float]) -> None:
    assert len(flags(components, (50, 50), (1, 1), kurtosis=(3.0, 3.0))) == 1


@pytest.mark.parametrize(("degrees", "components"), [((2, 2), [0.1]), ((3,), [-1.0]), ((2, 1), [0.0])])
def test_kernels_without_components_have_no_flags(degrees: tuple[int, ...], components: list[float]) -> None:
    assert flags(components, (9,) * len(degrees), degrees, value=0.5, limits=UNIT) == ()


def test_components_may_be_matrices_of_one_entry() -> None:
    components = np.array([2.0, 2.0, 11.0])
    assert flags(components[:, None, None], (10, 20), (1, 1)) == flags(components, (10, 20), (1, 1)) != ()


def test_points_that_decide_are_counted_exactly_when_few_have_all_the_losses() -> None:
    # j of n points lose all their pairs: the row means of 1 - h have mean q = j/n and variance q(1-q).
    for n, j in ((1000, 9), (1000, 11)):
        q = j / n
        for value in (q, 1 - q):
            found = flags([q * (1 - q), 1e-9, 0.0], (n, 300), (1, 1), value=value, limits=UNIT)
            assert len(found) == (j < 10)
            if found:
                assert f"about {j:.1f} points of the sample 1" in found[0]
                assert f"from {'0' if value < 0.5 else '1'}" in found[0]
    assert flags([0.09, 1e-9, 0.0], (20, 300), (1, 1), value=0.9) == ()
    assert flags([0.09, 1e-9, 0.0], (20, 300), (1, 1), limits=UNIT) == ()


def test_an_estimate_at_an_end_has_no_point_that_decides() -> None:
    found = flags([0.0, 0.0, 0.0], (N, M), (1, 1), value=1.0, limits=UNIT)
    assert [sentence.split(" of")[0] for sentence in found[1:]] == ["about 0.0 points"] * 2


def test_heavy_tails_make_the_variance_uncertain() -> None:
    # One sample of 100: √((κ-1)/100) passes 0.3 at κ = 10; of 400, 0.55 at κ = 122.
    assert flags([1.0, 1.0], (100,), (2,), kurtosis=[9.9]) == flags([1.0, 1.0], (400,), (2,), kurtosis=[121.9]) == ()
    (sentence,) = flags([1.0, 1.0], (100,), (2,), kurtosis=[10.1])
    assert sentence.startswith("heavy tails") and "about 30 %" in sentence
    assert len(flags([1.0, 1.0], (400,), (2,), kurtosis=[122.1])) == 1
    # Two samples with shares 3/4 and 1/4.
    error = math.sqrt((9 / 16 * 3 + 1 / 16 * 139) / 100)
    assert error > 0.3
    assert len(flags([3.0, 1.0, 0.0], (100, 100), (1, 1), kurtosis=[4.0, 140.0])) == 1
    assert flags([3.0, 1.0, 0.0], (100, 100), (1, 1), kurtosis=[4.0, 4.0]) == ()
    # Of values between limits 16 points are enough.
    for within in (UNIT, (-1.0, 1.0)):
        assert flags([0.03, 0.01, 0.0], (100, 100), (1, 1), kurtosis=[4.0, 20.0], value=0.5, limits=within) == ()
        assert len(flags([0.03, 0.01, 0.0], (100, 100), (1, 1), kurtosis=[20.0, 20.0], value=0.5, limits=within)) == 1
    # What matters is how many points the variance was estimated from, not how many there are.
    assert len(flags([1.0, 1.0], (20_000,), (2,), kurtosis=[20.0], rows=(500,))) == 1
    assert flags([1.0, 1.0], (20_000,), (2,), kurtosis=[20.0]) == ()
    assert len(flags([1.0, 1.0], (100,), (2,), kurtosis=[math.nan])) == 1


# --- flags of simulated data

RUNS = 400
MOST, FEW = 0.9, 0.1
"""A rate that is truly 0.95, or 0.05, is on the wrong side of these with probability 1e-5 in 400 runs."""


def two_point(epsilon: float) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[Array, Array]:
        return np.where(rng.random(N) < epsilon, 0.0, 2.0), np.where(rng.random(M) < epsilon, 1.0, -1.0)

    return draw


def normal(mean_x: float, mean_z: float) -> Draw:
    return lambda rng: (mean_x + rng.standard_normal(N), mean_z + rng.standard_normal(M))


def flagged(kernel: Kernel, draw: Draw) -> float:
    rng, count = np.random.default_rng(7), 0
    for _ in range(RUNS):
        x, z = draw(rng)
        local = kernel.local(x, z)
        assert local.components is not None
        value = local.sums[0].total / (kernel.scale * N * M)
        count += bool(flags(local.components, (N, M), (1, 1), value=value, limits=kernel.limits))
    return count / RUNS


@pytest.mark.parametrize(
    ("kernel", "draw"),
    [(AUC(), two_point(0.02)), (Product(), normal(0.0, 0.0))],
    ids=["auc of two points, ε = 0.02", "product, means 0"],
)
def test_data_for_which_asymptotics_fail_are_flagged(kernel: Kernel, draw: Draw) -> None:
    assert flagged(kernel, draw) >= MOST


@pytest.mark.parametrize(
    ("kernel", "draw"),
    [
        (AUC(), two_point(0.1)),
        (AUC(), normal(1.0, 0.0)),
        (AUC(), normal(0.0, 0.0)),
        (AUC(), normal(3.0, 0.0)),
        (Product(), normal(1.0, 1.0)),
        (Product(), normal(1.0, 0.0)),
    ],
    ids=["auc of two points, ε = 0.1", "auc, shift 1", "auc, no shift", "auc, shift 3", "product", "one mean 0"],
)
def test_data_for_which_asymptotics_hold_are_not_flagged(kernel: Kernel, draw: Draw) -> None:
    assert flagged(kernel, draw) <= FEW


def gini_flagged(draw: Callable[[np.random.Generator], Array]) -> float:
    rng, count = np.random.default_rng(8), 0
    for _ in range(RUNS):
        x = np.sort(draw(rng))
        n = len(x)
        below = np.arange(n)
        head = np.cumsum(x) - x
        sums = x * (2 * below - n) + x.sum() - 2 * head  # Σ_j |x_i - x_j|
        rows = sums / (n - 1) - sums.sum() / (n * (n - 1))
        squares = n * ((x - x.mean()) ** 2).sum() - sums.sum() ** 2 / (2 * n * (n - 1))
        kurtosis = float((rows**4).mean() / (rows**2).mean() ** 2)
        count += bool(flags(one_sample_components(n, rows @ rows, squares), (n,), (2,), kurtosis=[kurtosis]))
    return count / RUNS


def test_the_tails_of_gini_differences_are_told_apart() -> None:
    assert gini_flagged(lambda rng: rng.standard_normal(N)) <= FEW
    assert gini_flagged(lambda rng: rng.exponential(size=N)) <= FEW
    assert gini_flagged(lambda rng: rng.pareto(0.5, size=N)) >= MOST


def test_kendalls_tau_is_not_flagged() -> None:
    rng, count = np.random.default_rng(9), 0
    n, runs = 200, 100
    for _ in range(runs):
        x = rng.standard_normal(n)
        y = 0.5 * x + math.sqrt(0.75) * rng.standard_normal(n)
        signs = np.sign(x[:, None] - x) * np.sign(y[:, None] - y)
        rows = signs.sum(axis=1) / (n - 1)
        tau = float(rows.mean())
        squares = n * (n - 1) / 2 * (1 - tau**2)
        count += bool(flags(one_sample_components(n, (rows - tau) @ (rows - tau), squares), (n,), (2,), value=tau))
    assert count <= 0.1 * runs


def test_logit_intervals_cover_where_wald_intervals_do_not() -> None:
    # Coverage of 95 % intervals of the AUC near its end; 2000 runs know it to ± 0.5 %, times 4.5.
    epsilon, n, m, runs = 0.1, N, M, 2000
    truth, rng = models.two_point_auc(epsilon)[0], np.random.default_rng(10)
    covered = {"logit": 0, "wald": 0}
    for _ in range(runs):
        local = AUC().local(*two_point(epsilon)(rng))
        assert local.components is not None
        var_x, var_z, var_xz = local.components.ravel().tolist()
        variance = var_x / n + var_z / m + var_xz / (n * m)
        for method in covered:
            found = interval(local.sums[0].total / (2 * n * m), variance, 0.95, limits=UNIT, method=method)
            covered[method] += found.lower is not None and limits(found)[0] <= truth <= limits(found)[1]
    error = 4.5 * math.sqrt(0.95 * 0.05 / runs)
    assert abs(covered["logit"] / runs - 0.95) <= error
    assert covered["wald"] < covered["logit"]
