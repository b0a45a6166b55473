"""The standard error against U_n: by every relabelling of a few points, and by many seeds on one data set.

Of one fixed data set, over the seeds, the estimate has the mean U_n and the variance that the coefficients beyond those
of the complete statistic give with the components of all its points: not on average over data only, but exactly. So one
data set is enough, and a check is sharp. Two ways to see it, neither of which uses the formulas: `relabelled` goes
through all orders of the points and forms the estimate by hand; `seeds` runs `estimate`.

A Monte Carlo check refuses a right mean with probability 7·10⁻⁶ (`LIMIT`, with normal limits), so that the two of
each of the 33 cells, of few seeds and of many, refuse one with probability 0.1 %.
Means of few seeds are skewed, which adds to that. The seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import Estimate, SerialComm, estimate, estimate_samples
from mpi_ustat.estimation.estimates import ErrorBar
from mpi_ustat.schemes.variance import Design, coefficients_to_complete, is_complete

Floats = NDArray[np.float64]

LIMIT = 4.5
SEEDS = 2000

RNG = np.random.default_rng(14)
X, Z, W = RNG.normal(size=13) + 0.6, RNG.normal(size=9), RNG.normal(size=10) + 1.1
TIED_X, TIED_Z = np.round(2 * X), np.round(2 * Z)


def error_of(result: Estimate) -> ErrorBar:
    assert result.error is not None
    return result.error


def variance_to_complete(result: Estimate) -> float:
    found = error_of(result).covariance_to_complete
    assert found is not None
    return float(found[0, 0])


# ---------------------------------------------------------------------------------------------------------------------
# Every relabelling


def anova(h: Floats) -> Floats:
    """Return var_x, var_z, var_xz by the mean squares of the two-way layout."""
    n, m = h.shape
    rows, columns = h.mean(axis=1) - h.mean(), h.mean(axis=0) - h.mean()
    residual = h - h.mean() - rows[:, None] - columns
    ms = (residual**2).sum() / ((n - 1) * (m - 1))
    return np.array([(rows @ rows) / (n - 1) - ms / m, (columns @ columns) / (m - 1) - ms / n, ms])


def cut(order: tuple[int, ...], n_workers: int) -> list[Floats]:
    return np.array_split(np.array(order), n_workers)


def prop_swor(h: Floats, n_workers: int, pooled: bool) -> Iterator[float]:
    for x, z in itertools.product(*(itertools.permutations(range(size)) for size in h.shape)):
        yield average([h[np.ix_(a, b)] for a, b in zip(cut(x, n_workers), cut(z, n_workers), strict=True)], pooled)


def rotation(h: Floats, n_workers: int, n_rounds: int) -> Iterator[float]:
    for x, z in itertools.product(*(itertools.permutations(range(size)) for size in h.shape)):
        home, visiting = cut(x, n_workers), cut(z, n_workers)
        yield average(
            [h[np.ix_(home[i], visiting[(i - t) % n_workers])] for t in range(n_rounds) for i in range(n_workers)], True
        )


def average(blocks: list[Floats], pooled: bool) -> float:
    if pooled:
        return sum(float(each.sum()) for each in blocks) / sum(each.size for each in blocks)
    return sum(float(each.mean()) for each in blocks) / len(blocks)


def smaller(h: Floats, pooled: bool) -> Iterator[float]:
    """Two rounds of two workers, of which the second spreads z only."""
    orders = list(itertools.permutations(range(h.shape[1])))
    for x in itertools.permutations(range(h.shape[0])):
        of_rounds = [
            average([h[np.ix_(a, b)] for a, b in zip(cut(x, 2), cut(z, 2), strict=True)], pooled) for z in orders
        ]
        yield from (float(np.mean(pair)) for pair in itertools.product(of_rounds, repeat=2))


RELABELLED: dict[str, tuple[tuple[int, int], Callable[[Floats], Iterator[float]], dict[str, Any]]] = {
    "prop-swor": ((4, 4), lambda h: prop_swor(h, 2, False), {"scheme": "prop-swor", "n_workers": 2}),
    "prop-swor, uneven": ((5, 3), lambda h: prop_swor(h, 3, False), {"scheme": "prop-swor", "n_workers": 3}),
    "pooled, uneven": (
        (5, 3),
        lambda h: prop_swor(h, 2, True),
        {"scheme": "prop-swor", "n_workers": 2, "aggregate": "pooled"},
    ),
    "the smaller, uneven": (
        (5, 3),
        lambda h: smaller(h, False),
        {"scheme": "prop-swor", "n_workers": 2, "n_rounds": 2, "move": "smaller"},
    ),
    "the smaller, pooled": (
        (5, 3),
        lambda h: smaller(h, True),
        {"scheme": "prop-swor", "n_workers": 2, "n_rounds": 2, "move": "smaller", "aggregate": "pooled"},
    ),
    "rotation, uneven": (
        (5, 4),
        lambda h: rotation(h, 3, 2),
        {"scheme": "rotation", "n_workers": 3, "n_rounds": 2, "aggregate": "pooled"},
    ),
}


@pytest.mark.parametrize("name", RELABELLED)
def test_coefficients_beyond_the_complete_are_the_variance_over_all_orders_of_given_points(name: str) -> None:
    sizes, estimates, options = RELABELLED[name]
    h = np.exp(np.random.default_rng(5).normal(size=sizes))  # any matrix of values: no structure is needed
    found = np.array(list(estimates(h)))
    assert found.mean() == pytest.approx(h.mean(), rel=1e-12)
    expected = float(((found - h.mean()) ** 2).mean())
    formula = coefficients_to_complete((1, 1), sizes, Design(**options)) @ anova(h)
    assert formula == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("n", "n_workers"), [(6, 2), (7, 3)])
def test_of_one_sample_too(n: int, n_workers: int) -> None:
    points = np.random.default_rng(3).exponential(size=n)
    pairs = np.abs(np.subtract.outer(points, points))
    u_n = pairs.sum() / (n * (n - 1))

    def local(block: Floats) -> float:
        of_block = pairs[np.ix_(block, block)]
        return float(of_block.sum()) / (len(block) * (len(block) - 1))

    found = np.array(
        [np.mean([local(block) for block in cut(order, n_workers)]) for order in itertools.permutations(range(n))]
    )
    components = estimate(SerialComm(), points, kernel="gini", complete=True).error.components[:, 0, 0]
    design = Design(scheme="prop-swor", n_workers=n_workers)
    formula = coefficients_to_complete((2,), (n,), design) @ components
    assert formula == pytest.approx(float(((found - u_n) ** 2).mean()), rel=1e-11)


# ---------------------------------------------------------------------------------------------------------------------
# Many seeds on one data set

SCHEMES: dict[str, dict[str, Any]] = {
    "one round": {},
    "three rounds": {"n_rounds": 3},
    "by matrix": {"shuffle": "matrix", "n_rounds": 2},
    "pooled": {"aggregate": "pooled", "n_rounds": 2},
    "the smaller": {"move": "smaller", "n_rounds": 3},
    "the smaller, pooled": {"move": "smaller", "aggregate": "pooled", "n_rounds": 3},
    "sampled": {"n_pairs": 5},
    "sampled, three rounds": {"n_pairs": 5, "n_rounds": 3},
    "distinct, pooled": {"n_pairs": 4, "distinct": True, "aggregate": "pooled", "n_rounds": 2},
    "rotation": {"scheme": "rotation", "n_rounds": 2},
    "rotation, sampled": {"scheme": "rotation", "n_rounds": 2, "n_pairs": 5},
    "swor": {"scheme": "swor", "n_rounds": 2},
    "swor, sampled": {"scheme": "swor", "n_rounds": 2, "n_pairs": 5},
    "prop-swr": {"scheme": "prop-swr", "n_rounds": 2},
    "prop-swr, sampled": {"scheme": "prop-swr", "n_pairs": 5},
    "fixed-shuffle": {"scheme": "fixed-shuffle", "n_rounds": 3},
}
ONE_SAMPLE = [name for name, options in SCHEMES.items() if "move" not in options]
CELLS = [*(("auc", name) for name in SCHEMES), *(("gini", name) for name in ONE_SAMPLE)]


def of_kernel(kernel: str, **options: Any) -> Estimate:
    if kernel == "auc":
        return estimate(SerialComm(), TIED_X, TIED_Z, "auc", **options)
    if kernel == "vus":
        return estimate_samples(SerialComm(), (Z, X, W), "vus", **options)
    return estimate(SerialComm(), X, kernel="gini", **options)


def check_mean(values: Floats, expected: float = 0.0) -> None:
    spread = float(values.std(ddof=1)) / math.sqrt(len(values))
    assert abs(float(values.mean()) - expected) <= LIMIT * spread + 1e-12


def check_seeds(kernel: str, options: dict[str, Any], n_seeds: int) -> None:
    if kernel == "gini" and options.get("scheme") == "prop-swr":
        options = options | {"n_workers": 2}  # smaller blocks are copies of one point now and then, without a pair
    u_n = float(of_kernel(kernel, complete=True).value)
    results = [of_kernel(kernel, **{"n_workers": 3, "seed": seed, **options}) for seed in range(n_seeds)]
    apart = np.array([float(each.value) for each in results]) - u_n
    told = np.array([variance_to_complete(each) for each in results])
    check_mean(apart)
    check_mean(apart**2 - told)
    assert np.mean(apart**2) == pytest.approx(np.mean(told), rel=8.0 / math.sqrt(n_seeds))


@pytest.mark.parametrize("n_seeds", [100, pytest.param(SEEDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kernel", "name"), CELLS)
def test_over_the_seeds_the_estimate_is_as_far_from_the_complete_statistic_as_told(
    kernel: str, name: str, n_seeds: int
) -> None:
    check_seeds(kernel, SCHEMES[name], n_seeds)


@pytest.mark.parametrize("options", [{"n_rounds": 2}, {"scheme": "rotation", "n_rounds": 2}, {"n_pairs": 6}])
def test_of_three_samples_too(options: dict[str, Any]) -> None:
    check_seeds("vus", options, 200)


@pytest.mark.parametrize("n_seeds", [400, pytest.param(SEEDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["one round", "pooled", "rotation", "sampled", "distinct, pooled"])
def test_components_of_all_points_give_the_variance_of_this_data_set(name: str, n_seeds: int) -> None:
    """One pilot of all points, or the complete statistic: the formula has no error but the Monte Carlo's."""
    options = SCHEMES[name]
    whole = error_of(of_kernel("auc", complete=True)).components
    assert whole is not None
    u_n = float(of_kernel("auc", complete=True).value)
    apart = np.array(
        [float(of_kernel("auc", n_workers=3, seed=s, stderr=False, **options).value) for s in range(n_seeds)]
    )
    aggregate = {"aggregate": "pooled"} if name == "rotation" else {}
    design = Design(**{"scheme": "prop-swor", "n_workers": 3} | options | aggregate)
    formula = float(coefficients_to_complete((1, 1), (13, 9), design) @ whole[:, 0, 0])
    check_mean((apart - u_n) ** 2, formula)


# ---------------------------------------------------------------------------------------------------------------------
# Zero, unknown, several


def median_minus_mean(x: Floats, y: Floats, z: Floats) -> Floats:
    return np.asarray(np.median([x, y, z], axis=0) - (x + y + z) / 3).reshape(-1)


median_minus_mean.degrees = (3,)  # type: ignore[attr-defined]


WHOLE: dict[str, dict[str, Any]] = {
    "complete": {"complete": True},
    "one worker": {"n_workers": 1},
    "one worker, again": {"n_workers": 1, "n_rounds": 2},
    "one worker's shard": {"n_workers": 1, "scheme": "as-is"},
    "a whole rotation": {"n_workers": 4, "n_rounds": 4, "scheme": "rotation"},
}


@pytest.mark.parametrize("kernel", ["auc", "product", "gini"])
@pytest.mark.parametrize("name", WHOLE)
def test_of_the_complete_statistic_it_is_exactly_zero(kernel: str, name: str) -> None:
    result = estimate(SerialComm(), X, Z, kernel, seed=1, reference=True, **WHOLE[name])
    assert result.stderr_to_complete == 0.0
    assert result.z_to_complete is None
    assert result.stderr is not None
    assert result.stderr > 0.0
    assert float(result.value) == pytest.approx(float(np.asarray(result.complete_value)), rel=1e-13)
    assert "to U_n            0: it is U_n, of all pairs of these points" in str(result)


@pytest.mark.parametrize(
    ("kernel", "n_rounds"), [("gini", 3), ("variance", 3)]
)  # of one sample two blocks meet once: ⌊4/2⌋ + 1 rounds
def test_after_a_whole_rotation_of_one_sample_it_is_exactly_zero(kernel: str, n_rounds: int) -> None:
    for rounds in range(1, n_rounds + 1):
        result = estimate(SerialComm(), X, None, kernel, n_workers=4, n_rounds=rounds, scheme="rotation", seed=3)
        assert (result.stderr_to_complete == 0.0) == (rounds == n_rounds)


def test_after_a_whole_rotation_of_three_samples_it_is_exactly_zero() -> None:
    for rounds in (8, 9):
        result = of_kernel("vus", n_workers=3, n_rounds=rounds, scheme="rotation", seed=3)
        assert (result.stderr_to_complete == 0.0) == (rounds == 9)


@pytest.mark.parametrize(("sizes", "whole"), [((8, 4), True), ((9, 4), False)])
def test_a_mean_over_a_rotation_is_complete_if_the_blocks_are_equal(sizes: tuple[int, int], whole: bool) -> None:
    result = estimate(
        SerialComm(), X[: sizes[0]], Z[: sizes[1]], n_workers=4, n_rounds=4, scheme="rotation", aggregate="mean", seed=1
    )
    assert (result.stderr_to_complete == 0.0) == whole
    design = Design(scheme="rotation", n_workers=4, n_rounds=4)
    assert is_complete((1, 1), sizes, design) == whole
    assert (coefficients_to_complete((1, 1), sizes, design) == 0.0).all() == whole


def test_rounding_is_no_difference() -> None:
    """Of many uneven blocks, pooled over a whole rotation, sums of thousands of shares are the complete's."""
    design = Design(scheme="rotation", n_workers=97, n_rounds=97, aggregate="pooled")
    assert not coefficients_to_complete((1, 1), (1001, 330), design).any()
    one_round = Design(scheme="prop-swor", n_workers=10)
    factors = coefficients_to_complete((1, 1), (10**6, 10**4), one_round)
    assert factors == pytest.approx([0.0, 0.0, 9e-10], rel=1e-9)
    assert not factors[:2].any()


def test_kernels_without_components_have_it_of_all_points_only() -> None:
    for kernel in ("energy", median_minus_mean):
        points = (X, Z) if kernel == "energy" else (X, None)
        by_rounds = estimate(SerialComm(), *points, kernel, n_workers=3, n_rounds=2, seed=1, reference=True)
        assert by_rounds.stderr_to_complete is None
        assert by_rounds.z_to_complete is None
        assert "to U_n            not known" in str(by_rounds)
        assert estimate(SerialComm(), *points, kernel, complete=True).stderr_to_complete == 0.0


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "as-is", "block_sizes": ([5, 4, 4], [3, 3, 3])},
        {"scheme": "swor", "empty": "zero"},
        {"n_workers": 11, "empty": "zero"},
    ],
)
def test_where_the_mean_over_the_seeds_is_not_the_complete_statistic_it_is_not_known(options: dict[str, Any]) -> None:
    result = estimate(SerialComm(), X, Z, **{"n_workers": 3, "seed": 1, **options})
    assert result.stderr_to_complete is None


def test_workers_that_never_lack_a_pair_may_count_zero() -> None:
    zero, refuse = (estimate(SerialComm(), X, Z, n_workers=3, seed=1, empty=empty) for empty in ("zero", "refuse"))
    assert zero.stderr_to_complete == refuse.stderr_to_complete is not None


def test_of_points_of_which_more_is_said_it_is_zero() -> None:
    clusters = np.arange(13) // 2, np.arange(9) // 2
    assert estimate(SerialComm(), X, Z, complete=True, clusters=clusters).stderr_to_complete == 0.0


def test_without_an_error_bar_there_is_none() -> None:
    result = estimate(SerialComm(), X, Z, n_workers=3, seed=1, stderr=False, reference=True)
    assert (result.stderr_to_complete, result.z_to_complete) == (None, None)
    assert "to U_n" not in str(result)
    assert "estimate - U_n" in str(result)


def test_of_several_columns_each_has_its_own() -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(30, 3)) + 0.7, rng.normal(size=(20, 3))
    options: dict[str, Any] = {"n_workers": 4, "n_rounds": 2, "seed": 5, "reference": True}
    together = estimate(SerialComm(), x, z, columns=("a", "b", "c"), **options)
    alone = [estimate(SerialComm(), x[:, j], z[:, j], **options) for j in range(3)]
    assert together.stderr_to_complete == pytest.approx([each.stderr_to_complete for each in alone], rel=1e-9)
    assert together.z_to_complete == pytest.approx([each.z_to_complete for each in alone], rel=1e-6)
    summary = together.summary()
    assert summary["stderr_to_complete"] == list(together.stderr_to_complete)  # type: ignore[arg-type]
    assert summary["z_to_complete"] == list(together.z_to_complete)  # type: ignore[arg-type]


def test_of_a_quotient_it_is_right_to_the_first_order() -> None:
    rng = np.random.default_rng(8)
    points = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], size=60).round(1)
    u_n = estimate(SerialComm(), points, None, "kendall", complete=True).value
    options: dict[str, Any] = {"n_workers": 4, "aggregate": "pooled"}
    results = [estimate(SerialComm(), points, None, "kendall", seed=seed, **options) for seed in range(600)]
    squares = (np.array([each.value for each in results]) - u_n) ** 2
    spread = squares.std(ddof=1) / math.sqrt(len(squares))
    told = np.mean([variance_to_complete(each) for each in results])
    assert abs(squares.mean() - told) <= LIMIT * spread + 0.05 * told


def test_the_population_s_variance_is_the_two_together() -> None:
    """Var(Û) = Var(U_n) + E(Û - U_n)²: the first bar is no smaller than the second."""
    design = Design(scheme="prop-swor", n_workers=3, n_rounds=2)
    result = estimate(SerialComm(), X, Z, n_workers=3, n_rounds=2, seed=4)
    error = error_of(result)
    assert error.components is not None
    assert error.covariance is not None
    of_complete = error.components[:, 0, 0] @ np.array([1 / 13, 1 / 9, 1 / 117])
    assert error.covariance[0, 0] == pytest.approx(of_complete + variance_to_complete(result), rel=1e-12)
    assert coefficients_to_complete((1, 1), (13, 9), design).min() >= 0.0


def test_the_table_says_which_is_which() -> None:
    result = estimate(SerialComm(), X, Z, n_workers=3, n_rounds=2, seed=4, reference=True)
    rows = dict(
        line.split(None, 1) if line[18:] == "" else (line[:18].strip(), line[18:]) for line in str(result).split("\n")
    )
    bar, to_complete = result.stderr, result.stderr_to_complete
    assert f"± {bar:.3g}, [" in rows["estimate"]
    assert rows["to U_n"] == f"± {to_complete:.3g}, what more rounds would remove; the ± above is to the population"
    apart = float(result.value) - float(np.asarray(result.complete_value))
    assert rows["estimate - U_n"] == f"{apart:.3g}, {apart / float(np.asarray(to_complete)):.2f} times the ± to U_n"
    sampled = str(estimate(SerialComm(), X, Z, n_workers=3, n_pairs=4, seed=4))
    assert "what more rounds or pairs would remove" in sampled
