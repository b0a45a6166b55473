"""Standard errors: what they are made of, whether they are right on average, and when there is none to be had.

The populations are discrete, so that the statistic's expectation and its Hoeffding components are exact sums over their
values. In each simulated run the exact variance of the estimate, given who had how many points, is known; the squared
error of the estimate and the reported variance must both have it as their mean. A check accepts a mean within `LIMIT`
standard errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import Estimate, SerialComm, estimate, estimate_samples
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import ErrorBar, Round
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.estimation.round_sums import RoundSums
from mpi_ustat.inference.components import subsets
from mpi_ustat.inference.error_bars import Findings, bias, design_of, error_bar
from mpi_ustat.inference.intervals import UNLIMITED, difference
from mpi_ustat.inference.pilots import PILOT_ROWS, pilot
from mpi_ustat.inference.tails import kurtosis
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.tuples import make_user_kernel
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.meetings import holdings
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.swor import swor_bias_factor
from mpi_ustat.schemes.variance import Design, Spread, coefficients

Floats = NDArray[np.float64]

LIMIT = 4.5
"""Standard errors: with normal limits one check refuses a right mean with probability 7·10⁻⁶."""


def check_mean(values: Floats, expectation: float = 0.0) -> None:
    distance = abs(float(values.mean()) - expectation)
    assert distance <= LIMIT * float(values.std(ddof=1)) / math.sqrt(len(values)) + 1e-15


# ---------------------------------------------------------------------------------------------------------------------
# Coefficients times components


def config(**options: Any) -> EstimateConfig:
    return EstimateConfig(**{"n_workers": 2, "seed": 0, **options})


def spreads(values: Floats) -> list[Spread]:
    """Return how the values of one statistic in each round, (T, N), lie."""
    return [Spread.of(of_round[:, None]) for of_round in values]


def bar(kernel: Any, sizes: Sequence[int], design: Design, **given: Any) -> ErrorBar:
    """Return the error bar of an estimate with value and means 0.3, unless given."""
    asked = given.pop("config", config())
    value = given.pop("value", np.array([0.3]))
    arguments: dict[str, Any] = {"components": None, "method": "components", "means": value, **given}
    return error_bar(kernel, sizes, design, value, Findings(**arguments), asked)


def scalars(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)[:, None, None]


def test_the_variance_is_the_components_times_the_coefficients() -> None:
    sizes, found = (12, 8), scalars(0.06, 0.04, 0.15)
    complete = bar(AUC(), sizes, Design(scheme="complete"), components=found)
    assert complete.covariance == pytest.approx(np.array([[0.06 / 12 + 0.04 / 8 + 0.15 / 96]]), rel=1e-14)
    assert complete.stderr == (pytest.approx(math.sqrt(float(complete.covariance[0, 0]))),)  # type: ignore[index]
    assert complete.method == "components" and complete.components is found

    # T = 2 rounds of N = 2 blocks: V_n + (N - 1) σ₀²/(n m T); B = 3 pairs: + σ²/(N T B) - V_local/(T B).
    two = Design(scheme="prop-swor", n_workers=2, n_rounds=2)
    whole = 0.06 / 12 + 0.04 / 8 + 0.15 / 96 + 0.15 / (2 * 96)
    assert bar(AUC(), sizes, two, components=found).covariance == pytest.approx(np.array([[whole]]), rel=1e-14)
    sampled = Design(scheme="prop-swor", n_workers=2, n_rounds=2, n_pairs=3)
    more = 0.25 / (2 * 2 * 3) - (0.06 / 12 + 0.04 / 8 + 2 * 0.15 / 96) / (2 * 3)
    assert bar(AUC(), sizes, sampled, components=found).covariance == pytest.approx(np.array([[whole + more]]))

    zeros = Design(scheme="swor", n_workers=4, empty="zero")
    factors, square = coefficients((1, 1), sizes, zeros)
    assert square > 0.0
    expected = float(factors @ found[:, 0, 0]) + square * 0.3**2
    assert bar(AUC(), sizes, zeros, components=found).covariance == pytest.approx(np.array([[expected]]), rel=1e-14)


def test_a_quotient_has_the_variance_of_its_linear_part() -> None:
    """tau-b = C/√(AB) at C = 0.3, A = 0.8, B = 0.5, with ζ₁ of rank one, so that the parts' variation is a vector."""
    kernel, n, means = Kendall("b"), 20, np.array([0.3, 0.8, 0.5])
    first, rest = np.array([0.2, 0.1, -0.3]), np.array([0.5, 0.1, 0.2])
    found = np.array([np.outer(first, first), np.outer(rest, rest)])
    slope = np.array([1.0, -0.3 / (2 * 0.8), -0.3 / (2 * 0.5)]) / math.sqrt(0.8 * 0.5)
    expected = 4 / n * (slope @ first) ** 2 + 2 / (n * (n - 1)) * (slope @ rest) ** 2
    made = bar(kernel, (n,), Design(scheme="complete"), value=kernel.combine(means), means=means, components=found)
    assert made.covariance == pytest.approx(np.array([[expected]]), rel=1e-13)


def test_several_statistics_have_a_covariance_matrix() -> None:
    kernel, means = AUC(columns=2), np.array([0.7, 0.6])
    found = np.array([[[0.06, 0.02], [0.02, 0.05]], [[0.04, 0.01], [0.01, 0.03]], [[0.15, -0.02], [-0.02, 0.2]]])
    made = bar(kernel, (12, 8), Design(scheme="complete"), value=means, components=found)
    expected = found[0] / 12 + found[1] / 8 + found[2] / 96
    np.testing.assert_allclose(made.covariance, expected, rtol=1e-14)
    assert made.stderr == pytest.approx(tuple(np.sqrt(np.diagonal(expected))))
    assert [each.method for each in made.intervals] == ["logit", "logit"]


def test_without_components_the_workers_or_the_whole_tell_the_variance() -> None:
    blocks = Design(scheme="prop-swor", n_workers=4)
    values = np.array([[0.1, 0.4, 0.2, 0.5]])
    made = bar(AUC(), (12, 8), blocks, spreads=spreads(values), config=config(interval="wald"))
    variance = float(values.var(ddof=1)) / 4
    assert made.method == "workers" and made.components is None
    assert made.covariance == pytest.approx(np.array([[variance]]), rel=1e-14)
    from scipy.stats import t

    width = float(t.ppf(0.975, 3)) * math.sqrt(variance)
    assert (made.intervals[0].lower, made.intervals[0].upper) == pytest.approx((0.3 - width, 0.3 + width))

    # Workers that share points say nothing; nor do pooled ones of different weights; nor does one.
    for design, local in (
        (Design(scheme="prop-swr", n_workers=4), values),
        (Design(scheme="prop-swor", n_workers=4, aggregate="pooled"), values),
        (Design(scheme="prop-swor", n_workers=1), values[:, :1]),
    ):
        none = bar(AUC(), (13, 8), design, spreads=spreads(local))
        assert (none.method, none.covariance, none.stderr) == ("none", None, (None,))
        assert none.flags and none.intervals[0].lower is None
    assert (
        bar(AUC(), (12, 8), Design(scheme="prop-swor", n_workers=4, aggregate="pooled"), spreads=spreads(values)).method
        == "workers"
    )

    of_one = {"limits": UNLIMITED, "gradient": lambda means: np.eye(1), "doubts_about": lambda value: []}
    whole = bar(SimpleNamespace(**of_one, degrees=(2, 2)), (5, 6), Design(scheme="complete"), variance=0.04)
    assert whole.method == "sample" and whole.stderr == (pytest.approx(0.2),)
    assert whole.intervals[0].method == "wald"
    # Degrees without a closed form: components would be of no use.
    odd = SimpleNamespace(**of_one, degrees=(2, 1), has_own_variance=False, finds_components=lambda sizes: False)
    assert bar(odd, (5, 6), Design(scheme="complete"), components=scalars(1.0)).method == "none"


def test_a_variance_that_is_not_positive_is_said_to_be_so() -> None:
    made = bar(AUC(), (12, 8), Design(scheme="complete"), components=scalars(-0.02, 0.0, 0.1))
    assert made.covariance is not None and made.covariance[0, 0] < 0.0
    assert made.stderr == (None,) and made.intervals[0].lower is None
    assert "the estimated variance is not positive" in made.flags
    assert any("first-order part" in flag for flag in made.flags)


@pytest.mark.parametrize("infinite", [math.inf, math.nan])
def test_a_variance_that_is_not_finite_is_none(infinite: float) -> None:
    made = bar(Product(), (12, 8), Design(scheme="complete"), components=scalars(1.0, 1.0, infinite))
    assert made.stderr == (None,) and made.intervals[0].lower is None
    assert any("no finite estimate of the variance" in flag for flag in made.flags)


def round_of(sizes: Sequence[Sequence[int]], multiplicities: Any = ()) -> Round:
    return Round(RoundSums((), 0, 0), None, np.empty(0), None, tuple(map(np.array, sizes)), 0, 0, multiplicities)


def test_the_design_says_what_the_variance_depends_on() -> None:
    sizes = ((3, 5), (4, 2))
    asked = config(scheme="as-is", empty="skip", aggregate="pooled", n_pairs=3, distinct=True)
    design = design_of(asked, (8, 6), [round_of(sizes)])
    assert design == Design(
        scheme="as-is",
        n_workers=2,
        n_pairs=3,
        distinct=True,
        aggregate="pooled",
        empty="skip",
        block_sizes=(sizes,),
    )
    assert hash(design) == hash(design_of(asked, (8, 6), [round_of(sizes)]))
    assert design_of(asked, (8, 6), []) == Design(scheme="complete")

    swor = design_of(config(scheme="swor", n_rounds=2), (8, 6), [round_of(sizes), round_of(sizes[::-1])])
    assert swor.block_sizes == (sizes, sizes[::-1]) and swor.empty == "skip" and swor.n_rounds == 2
    moved = design_of(config(move="smaller"), (8, 6), [round_of(sizes)])
    assert moved.move == "smaller" and moved.block_sizes is None

    classes = ((2, 2), (3, 2), (2, 1))
    turned = design_of(config(scheme="rotation", n_rounds=3), (4, 5, 3), [round_of(classes)] * 3)
    assert turned.aggregate == "pooled"
    held = [
        [tuple(range(2)) if each is None else tuple(each.tolist()) for each in holdings((4, 5, 3), 2, t)]
        for t in range(3)
    ]
    assert turned.holdings == tuple(map(tuple, held))
    assert design_of(config(scheme="rotation"), (8, 6), [round_of(sizes)]).holdings is None

    times = ((4, 6, 10, 18), (4, 4, 4, 4))
    drawn = design_of(config(scheme="prop-swr"), (8,), [round_of(((4, 4),), times)])
    assert drawn.multiplicities == (times,)


def test_the_bias_is_the_difference_in_units_of_chance() -> None:
    sizes, found = (10, 6), scalars(0.06, 0.04, 0.15)
    blocks = ((3, 7), (4, 2))
    design = Design(scheme="as-is", n_workers=2, block_sizes=(blocks,))
    values = {"mean": np.array([0.9]), "pooled": np.array([0.6])}
    made = bias(AUC(), sizes, design, values, 0.7, Findings(np.array([0.7]), found))
    complete = 0.06 / 10 + 0.04 / 6 + 0.15 / 60
    mean = sum(0.06 / n + 0.04 / m + 0.15 / (n * m) for n, m in zip(*blocks, strict=True)) / 4
    pooled = sum((n * m / 26) ** 2 * (0.06 / n + 0.04 / m + 0.15 / (n * m)) for n, m in zip(*blocks, strict=True))
    for each, name, away, variance in zip(made, ("mean", "pooled"), (0.2, -0.1), (mean, pooled), strict=True):
        assert each.aggregate == name and each.difference == pytest.approx(away)
        assert each.stderr == pytest.approx(math.sqrt(variance - complete))
        assert each.z == pytest.approx(away / math.sqrt(variance - complete))
    for unknown in (None, scalars(0.0, 0.0, -0.1)):
        (each, _) = bias(AUC(), sizes, design, values, 0.7, Findings(np.array([0.7]), unknown))
        assert (each.difference, each.stderr, each.z) == (pytest.approx(0.2), None, None)


# ---------------------------------------------------------------------------------------------------------------------
# Populations whose components are known


@dataclass(frozen=True)
class Population:
    """A kernel, and samples of points with finitely many values.

    Attributes
    ----------
    support : tuple of ndarray, one for each sample
        The values that points may take.
    weights : tuple of tuple of float
        Their probabilities.
    h : callable
        The kernel of aligned points, written anew.
    """

    kernel: Any
    sizes: tuple[int, ...]
    degrees: tuple[int, ...]
    support: tuple[Floats, ...]
    weights: tuple[tuple[float, ...], ...]
    h: Callable[..., Floats]
    options: dict[str, Any] = field(default_factory=dict)

    def draw(self, rng: np.random.Generator) -> list[Floats]:
        return [
            values[np.searchsorted(np.cumsum(p[:-1]), rng.random(size), side="right")]
            for values, p, size in zip(self.support, self.weights, self.sizes, strict=True)
        ]

    def exact(self) -> tuple[float, Floats]:
        """Return the expectation of h, and its components in their order."""
        of_points = np.repeat(np.arange(len(self.sizes)), self.degrees).tolist()
        shapes = [len(self.weights[k]) for k in of_points]
        places = np.indices(shapes).reshape(len(shapes), -1)
        h = self.h(*(self.support[k][at] for k, at in zip(of_points, places, strict=True))).reshape(shapes)
        p = [np.array(self.weights[k]) for k in of_points]

        def mean_given(known: Sequence[int]) -> tuple[Floats, Any]:
            """Return E[h | these points] for all their values, and the probabilities of these."""
            values, joint = h, np.ones(())
            for k in reversed(range(len(shapes))):
                if k not in known:
                    values = np.tensordot(values, p[k], axes=(k, 0))
            for k in known:
                joint = np.multiply.outer(joint, p[k])
            return values, joint

        def variance_given(known: Sequence[int]) -> float:
            values, joint = mean_given(known)
            return float(((values - mean) ** 2 * joint).sum())

        mean = float(mean_given([])[0])
        if self.degrees == (2,):
            first = variance_given([0])
            return mean, np.array([first, variance_given([0, 1]) - 2 * first])
        if set(self.degrees) != {1}:
            return mean, np.empty(0)
        found: dict[tuple[int, ...], float] = {}
        for chosen in subsets(len(shapes)):
            smaller = sum(found[each] for each in found if set(each) < set(chosen))
            found[chosen] = variance_given(list(chosen)) - smaller
        return mean, np.array(list(found.values()))


def h_auc(x: Floats, z: Floats) -> Floats:
    return (z < x) + 0.5 * (z == x)


def h_tau(p: Floats, q: Floats) -> Floats:
    return np.sign(p[:, 0] - q[:, 0]) * np.sign(p[:, 1] - q[:, 1])


def h_energy(x1: Floats, x2: Floats, z1: Floats, z2: Floats) -> Floats:
    across = sum(np.abs(x - z) for x in (x1, x2) for z in (z1, z2)) / 2
    return across - np.abs(x1 - x2) - np.abs(z1 - z2)


def above(x: Floats, y: Floats, z: Floats) -> Floats:
    """Two points of the first sample and one of the second."""
    return (z > np.maximum(x, y))[:, 0] * 1.0


above.degrees = (2, 1)  # type: ignore[attr-defined]

SCORES = np.array([0.0, 1.0, 2.0, 3.0])
RISING, FALLING = (0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1)
GRID = np.array([(x, y) for x in (0.0, 1.0, 2.0) for y in (0.0, 1.0, 2.0)])

POPULATIONS = {
    "auc": Population("auc", (24, 16), (1, 1), (SCORES, SCORES), (RISING, FALLING), h_auc),
    "product": Population(
        "product", (23, 17), (1, 1), (SCORES - 1.0, SCORES - 2.0), (RISING, FALLING), lambda x, z: x * z
    ),
    "gini of one": Population("gini", (24,), (2,), (SCORES**2,), (FALLING,), lambda x, y: np.abs(x - y)),
    "kendall a": Population(
        "kendall",
        (25,),
        (2,),
        (GRID,),
        ((0.2, 0.1, 0.05, 0.05, 0.2, 0.1, 0.05, 0.05, 0.2),),
        h_tau,
        {"kernel_options": {"tau": "a"}},
    ),
    "vus": Population(
        "vus",
        (13, 9, 12),
        (1, 1, 1),
        (SCORES, SCORES + 0.5, SCORES + 1.0),
        (FALLING, (0.25,) * 4, RISING),
        lambda x, y, z: ((x < y) & (y < z)) * 1.0,
    ),
}

# Kernels without components.
OTHERS = {
    "energy": Population("energy", (16, 12), (2, 2), (SCORES, SCORES), (RISING, FALLING), h_energy),
    "user's (2, 1)": Population(
        above, (16, 12), (2, 1), (SCORES, SCORES), (FALLING, RISING), lambda x, y, z: (z > np.maximum(x, y)) * 1.0
    ),
}

N_WORKERS = {"vus": 3}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "complete": {"complete": True},
    "one round": {},
    "three rounds": {"n_rounds": 3},
    "the smaller sample only": {"n_rounds": 3, "move": "smaller"},
    "pooled": {"n_rounds": 2, "aggregate": "pooled"},
    "sampled": {"n_pairs": 5},
    "sampled, distinct, three rounds": {"n_pairs": 5, "distinct": True, "n_rounds": 3},
    "prop-swr": {"scheme": "prop-swr", "n_rounds": 2},
    "prop-swr, sampled": {"scheme": "prop-swr", "n_pairs": 5},
    "rotation": {"scheme": "rotation", "n_rounds": 2},
    "rotation, sampled": {"scheme": "rotation", "n_rounds": 2, "n_pairs": 5},
    "swor, skipped": {"scheme": "swor", "n_rounds": 2, "empty": "skip"},
    "fixed-shuffle": {"scheme": "fixed-shuffle", "n_rounds": 3},
    "as-is": {"scheme": "as-is"},
    "as-is, pooled": {"scheme": "as-is", "aggregate": "pooled"},
}


def shards_of(size: int, n_workers: int) -> list[int]:
    """Return uneven block sizes, the smallest of two points, in different orders for different sizes."""
    sizes = [2] * n_workers
    for i in range(size - 2 * n_workers):
        sizes[(i * i + size) % n_workers] += 1
    return sizes


@dataclass
class Simulated:
    """Of each run: the estimate less its expectation, its exact variance, the reported variance, and the estimates."""

    errors: Floats
    exact: Floats
    reported: Floats
    results: list[Estimate]


def simulate(population: Population, n_workers: int, n_runs: int, **options: Any) -> Simulated:
    expectation, components = population.exact()
    asked = (
        {"kernel": population.kernel, **population.options, **options}
        if isinstance(population.kernel, str)
        else options
    )
    chosen = EstimateConfig(n_workers=n_workers, seed=11, **asked)
    rng = np.random.default_rng([n_runs, *population.sizes])
    blocks = None
    if chosen.scheme == "as-is":
        blocks = [np.array(shards_of(size, n_workers)) for size in population.sizes]
    made = None if isinstance(population.kernel, str) else make_user_kernel(population.kernel, "user's")
    errors, exact, reported, results = [], [], [], []
    for r in range(n_runs):
        estimation = Estimation(
            set_up(SerialComm(), population.draw(rng), chosen, kernel=made, block_sizes=blocks, replicate=r)
        )
        for _ in run(estimation):
            pass
        result = estimation.result()
        errors.append(result.value - expectation)
        reported.append(0.0 if result.covariance is None else float(result.covariance[0, 0]))
        if len(components):
            design = design_of(chosen, population.sizes, estimation.state.rounds)
            factors, square = coefficients(population.degrees, population.sizes, design)
            exact.append(float(factors @ components) + square * expectation**2)
        results.append(result)
    return Simulated(np.array(errors), np.array(exact), np.array(reported), results)


def check_calibration(name: str, estimator: str, n_runs: int) -> None:
    population = POPULATIONS[name]
    found = simulate(population, N_WORKERS.get(name, 4), n_runs, **ESTIMATORS[estimator])
    check_mean(found.errors)
    check_mean(found.errors**2 - found.exact)
    check_mean(found.reported - found.exact)
    # Not by a margin that would hide a factor of the number of workers, rounds or pairs.
    assert abs(found.reported.mean() / found.exact.mean() - 1.0) < 0.5


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_reported_variance_is_the_estimates_on_average(name: str, estimator: str) -> None:
    if estimator == "the smaller sample only" and len(POPULATIONS[name].sizes) == 1:
        pytest.skip("one sample has no smaller one")
    check_calibration(name, estimator, 80)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_reported_variance_is_the_estimates_on_average_in_many_runs(name: str, estimator: str) -> None:
    check_calibration(name, estimator, 4000)


def test_workers_without_a_pair_that_count_zero_are_in_the_error_bar() -> None:
    """The variance has a multiple of U², for which the square of an estimate stands: too large by its variance."""
    population = Population("auc", (12, 8), (1, 1), (SCORES, SCORES), (RISING, FALLING), h_auc)
    found = simulate(population, 5, 300, scheme="swor", n_rounds=2, empty="zero")
    factor = swor_bias_factor(12, 8, 5)
    assert 0.5 < factor < 0.95
    expectation, _ = population.exact()
    errors = found.errors + (1.0 - factor) * expectation
    check_mean(errors)
    check_mean(errors**2 - found.exact)
    _, square = coefficients((1, 1), (12, 8), Design(scheme="swor", n_workers=5, n_rounds=2, empty="zero"))
    pooled = simulate(population, 5, 300, scheme="swor", n_rounds=2, empty="zero", aggregate="pooled")
    check_mean(found.reported - square * pooled.errors**2 - found.exact)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"aggregate": "pooled"},
        {"n_pairs": 6},
        {"scheme": "fixed-shuffle"},
        {"scheme": "swor", "empty": "skip"},
        {"scheme": "as-is"},
    ],
    ids=str,
)
def test_local_values_tell_the_variance_of_kernels_without_components(name: str, options: dict[str, Any]) -> None:
    found = simulate(OTHERS[name], 4, 150, **options)
    # Where all workers find the same there is no estimate; here it counts as the 0 that it would be.
    methods = [result.error.method for result in found.results if result.error is not None]
    assert set(methods) <= {"workers", "none"} and methods.count("none") < 3
    check_mean(found.errors)
    check_mean(found.errors**2 - found.reported)


def test_the_variance_of_a_complete_discrepancy_is_right_on_average() -> None:
    found = simulate(OTHERS["energy"], 1, 250, complete=True)
    assert {result.error.method for result in found.results if result.error is not None} == {"sample"}
    check_mean(found.errors)
    check_mean(found.errors**2 - found.reported)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("name", POPULATIONS)
def test_shards_that_differ_by_chance_have_a_bias_of_the_size_that_is_told(name: str, aggregate: str) -> None:
    population, n_workers = POPULATIONS[name], N_WORKERS.get(name, 4)
    _, components = population.exact()
    found = simulate(population, n_workers, 120, scheme="as-is", reference=True)
    blocks = (tuple(tuple(shards_of(size, n_workers)) for size in population.sizes),)
    design = Design(scheme="as-is", n_workers=n_workers, block_sizes=blocks, aggregate=aggregate)
    local, whole = (
        coefficients(population.degrees, population.sizes, d)[0] for d in (design, Design(scheme="complete"))
    )
    of_runs = [next(b for b in result.bias if b.aggregate == aggregate) for result in found.results]
    differences = np.array([each.difference for each in of_runs])
    check_mean(differences)
    check_mean(differences**2, float((local - whole) @ components))
    told = np.array([0.0 if each.stderr is None else each.stderr**2 for each in of_runs])
    if all(each.stderr is not None for each in of_runs):
        check_mean(told, float((local - whole) @ components))


# ---------------------------------------------------------------------------------------------------------------------
# Pilots


def test_a_pilot_takes_different_random_rows_of_all_ranks_and_is_the_same_on_each(comm: Any) -> None:
    rng = np.random.default_rng(8)
    x, z = rng.normal(size=(30, 2)), rng.normal(size=(9, 2))
    seen: list[Floats] = []

    class Watched(Product):
        def local(self, *blocks: Floats) -> Any:
            seen.extend(blocks)
            return super().local(*blocks)

    mine = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank :][:2])] for rows in (x, z)]
    found = pilot(comm, [Exchange(comm, rows, 4) for rows in mine], Watched(), Streams(5), most=12)
    assert [len(block) for block in seen] == [12, 9]
    assert len(np.unique(seen[0], axis=0)) == 12
    assert {tuple(row) for row in seen[0]} <= {tuple(row) for row in x}
    assert seen[1].tobytes() == z.tobytes()
    alone = pilot(SerialComm(), [Exchange(SerialComm(), rows, 4) for rows in (x, z)], Product(), Streams(5), most=12)
    assert found.sums == alone.sums and found.components is not None and alone.components is not None
    assert found.components.tobytes() == alone.components.tobytes()


def test_components_of_a_pilot_are_those_of_all_rows_on_average() -> None:
    rng = np.random.default_rng(3)
    x, z = rng.normal(0.5, 1.0, 40), rng.normal(0.0, 1.0, 30)
    samples = [Exchange(SerialComm(), rows, 1) for rows in (x, z)]
    whole = AUC().local(x, z).components
    found = np.array(
        [pilot(SerialComm(), samples, AUC(), Streams(1), most=9, replicate=r).components for r in range(400)]
    )
    assert whole is not None
    for c in range(3):
        check_mean(found[:, c, 0, 0], float(whole[c, 0, 0]))


def test_components_from_blocks_with_repeats_are_those_of_all_rows_on_average() -> None:
    """Blocks drawn with replacement know the empirical law, whose components are smaller: here by a third."""
    rng = np.random.default_rng(3)
    x, z = rng.normal(0.5, 1.0, 6), rng.normal(0.2, 1.0, 5)
    whole = Product().local(x, z).components
    asked = EstimateConfig(kernel="product", scheme="prop-swr", n_workers=1, n_rounds=2, seed=1)
    found = []
    for r in range(400):
        estimation = Estimation(set_up(SerialComm(), (x, z), asked, replicate=r))
        for _ in run(estimation):
            pass
        error = estimation.result().error
        assert error is not None and error.method == "components"
        found.append(error.components)
    assert whole is not None
    for c in range(3):
        check_mean(np.array(found)[:, c, 0, 0], float(whole[c, 0, 0]))


def test_large_samples_of_sampled_pairs_have_a_pilot(comm: Any) -> None:
    rng = np.random.default_rng(4)
    x, z = rng.normal(0.5, 1.0, 3 * PILOT_ROWS), rng.normal(0.0, 1.0, 2 * PILOT_ROWS)
    mine = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank :][:2])] for rows in (x, z)]
    sampled = estimate(comm, *mine, n_workers=3, n_pairs=400, seed=1)
    complete = estimate(comm, *mine, n_workers=3, seed=1)
    assert sampled.error is not None and complete.error is not None
    assert (sampled.error.method, complete.error.method) == ("pilot", "components")
    assert sampled.stderr > complete.stderr > 0.0
    # σ²/(N B) dominates: σ² = U(1 - U) for scores without ties.
    assert sampled.stderr**2 == pytest.approx(complete.stderr**2 + 0.23 / 1200, rel=0.2)


# ---------------------------------------------------------------------------------------------------------------------
# The AUC's variance; several columns


def delong(x: Floats, z: Floats) -> tuple[float, float]:
    """Return DeLong's variance of the AUC, and the mean square of what rows and columns leave of h."""
    h = h_auc(x[:, None], z[None, :])
    rows, columns = h.mean(axis=1), h.mean(axis=0)
    residual = h - rows[:, None] - columns + h.mean()
    n, m = h.shape
    return float(rows.var(ddof=1) / n + columns.var(ddof=1) / m), float((residual**2).sum() / ((n - 1) * (m - 1)))


@pytest.mark.parametrize("sizes", [(2, 2), (5, 3), (40, 23), (300, 4)], ids=str)
def test_the_variance_of_the_complete_auc_is_delongs_less_the_residual(comm: Any, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes)
    samples = [np.round(rng.normal(0.3 * (k == 0), 1.0, size), 1) for k, size in enumerate(sizes)]
    mine = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank :][:2])] for rows in samples]
    variance, residual = delong(*samples)
    for options in ({"complete": True}, {"n_workers": 1}, {"n_workers": 1, "scheme": "rotation"}):
        result = estimate(comm, *mine, seed=0, **options)
        assert result.covariance is not None and result.error is not None and result.error.method == "components"
        assert result.covariance[0, 0] == pytest.approx(variance - residual / math.prod(sizes), rel=1e-10, abs=1e-14)


def three_columns(n: int, m: int) -> tuple[Floats, Floats]:
    """Three scores of the same points: two alike, the third the first again."""
    rng = np.random.default_rng([n, m])
    common = rng.normal(0.5, 1.0, n), rng.normal(0.0, 1.0, m)
    scores = [np.column_stack([c, c + rng.normal(0.0, 0.6, len(c)), c]) for c in common]
    return np.round(scores[0], 1), np.round(scores[1], 1)


def covariance_by_layout(x: Floats, z: Floats) -> Floats:
    """Return the covariance matrix of U_n of all columns, from products of rows, columns and residuals."""
    h = np.array([h_auc(a[:, None], b[None, :]) for a, b in zip(x.T, z.T, strict=True)])
    q, n, m = h.shape
    rows, columns = h.mean(axis=2), h.mean(axis=1)
    residual = (h - rows[:, :, None] - columns[:, None, :] + h.mean(axis=(1, 2), keepdims=True)).reshape(q, -1)
    left = residual @ residual.T / ((n - 1) * (m - 1))
    return np.cov(rows) / n + np.cov(columns) / m - left / (n * m)


def test_columns_have_the_covariance_of_the_layout(comm: Any) -> None:
    x, z = three_columns(31, 17)
    mine = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank :][:2])] for rows in (x, z)]
    expected = covariance_by_layout(x, z)
    for options in ({"complete": True}, {"n_workers": 1}):
        result = estimate(comm, *mine, columns=("a", "b", "a again"), seed=0, **options)
        assert result.covariance is not None
        np.testing.assert_allclose(result.covariance, expected, rtol=1e-9, atol=1e-15)
        assert result.stderr == pytest.approx(tuple(np.sqrt(np.diagonal(expected))))
        assert result.value.tolist() == pytest.approx(
            [h_auc(a[:, None], b).mean() for a, b in zip(x.T, z.T, strict=True)]
        )


SEVERAL: dict[str, dict[str, Any]] = {
    "complete": {"complete": True},
    "prop-swor": {"n_rounds": 3},
    "sampled": {"n_pairs": 7},
    "prop-swr": {"scheme": "prop-swr", "n_rounds": 2},
    "rotation": {"scheme": "rotation", "n_rounds": 2},
    "swor": {"scheme": "swor", "n_rounds": 2},
    "fixed-shuffle": {"scheme": "fixed-shuffle", "n_rounds": 2},
    "workers": {"scheme": "fixed-shuffle", "n_workers": 20, "empty": "skip"},  # no closed form: how their values differ
}


@pytest.mark.parametrize("how", SEVERAL)
def test_a_column_has_the_error_bar_that_it_has_alone_and_a_difference_that_of_its_kernel(comm: Any, how: str) -> None:
    x, z = three_columns(31, 17)
    mine = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank :][:2])] for rows in (x, z)]
    options: dict[str, Any] = {"n_workers": 4, "seed": 2, **SEVERAL[how]}
    result = estimate(comm, *mine, columns=("a", "b", "a again"), **options)
    covariance = result.covariance
    assert covariance is not None and (covariance == covariance.T).all()
    for j in range(2):
        alone = estimate(comm, *(rows[:, j] for rows in mine), **options)
        assert alone.value == result.value[j] and alone.interval == pytest.approx(result.interval[j])
        assert alone.covariance == pytest.approx(covariance[j : j + 1, j : j + 1], rel=1e-9)

    def apart(x: Floats, z: Floats) -> Floats:
        return h_auc(x[:, :1], z[:, 0]) - h_auc(x[:, 1:2], z[:, 1])

    # A user's complete statistic has its components from the workers' blocks: from one block, as the AUC's.
    of_one = {**options, "n_workers": 1} if how == "complete" else options
    kernel = estimate(comm, *mine, apart, **of_one)
    found = difference(result.value, covariance, 0.95, 0, 1)
    assert found.value == pytest.approx(kernel.value, rel=1e-9, abs=1e-12)
    assert found.stderr == pytest.approx(kernel.stderr, rel=1e-6)

    # A column and its copy: no difference, of no variance, and so no interval.
    same = difference(result.value, covariance, 0.95, 0, 2)
    assert (same.value, same.stderr, same.interval.lower) == (0.0, None, None)
    assert same.interval.note is not None
    assert json.dumps(result.summary(), allow_nan=False)


# ---------------------------------------------------------------------------------------------------------------------
# When there is no standard error


def numbers(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


DEGENERATE: dict[str, tuple[list[Floats], Any, dict[str, Any]]] = {
    "one positive": ([numbers(1.0), numbers(0.0, 2.0, 3.0)], "auc", {}),
    "one of each": ([numbers(1.0), numbers(0.0)], "auc", {}),
    "all won": ([numbers(5.0, 6.0, 7.0), numbers(1.0, 2.0)], "auc", {}),
    "none won": ([numbers(1.0, 2.0), numbers(5.0, 6.0, 7.0)], "auc", {}),
    "all tied": ([numbers(1.0, 1.0, 1.0), numbers(1.0, 1.0)], "auc", {}),
    "a negative variance": ([numbers(1.0, -1.0), numbers(1.0, -1.0)], "product", {}),
    "in order": ([numbers(1.0, 2.0), numbers(3.0, 4.0), numbers(5.0, 6.0)], "vus", {}),
    "out of order": ([numbers(5.0, 6.0), numbers(3.0, 4.0), numbers(1.0, 2.0)], "vus", {}),
    "a class of one": ([numbers(1.0, 2.0), numbers(3.0), numbers(0.0, 6.0)], "vus", {}),
    "four classes of one": ([numbers(float(k)) for k in range(4)], "vus", {}),
    "constant": ([numbers(2.0, 2.0, 2.0, 2.0, 2.0)], "gini", {}),
    "constant, squared": ([numbers(2.0, 2.0, 2.0, 2.0, 2.0)], "variance", {}),
    "three points": ([numbers(1.0, 2.0, 4.0)], "variance", {}),
    "a straight line": ([np.column_stack([np.arange(6.0), np.arange(6.0)])], "kendall", {}),
    "a straight line, tau-a": (
        [np.column_stack([np.arange(6.0), np.arange(6.0)])],
        "kendall",
        {"kernel_options": {"tau": "a"}},
    ),
    "products of zeros": ([numbers(0.0, 0.0, 0.0), numbers(0.0, 0.0)], "product", {}),
    "no distance": ([numbers(1.0, 1.0, 1.0, 1.0), numbers(1.0, 1.0, 1.0, 1.0)], "energy", {}),
    "few points": ([numbers(0.0, 1.0), numbers(1.0, 5.0)], "energy", {}),
    "no match": ([np.eye(5)], "fmr", {}),
    "nothing but matches": ([np.ones((5, 2)), np.ones((4, 2))], "fmr", {}),
    "squares that overflow": ([numbers(1e120, -1e120, 3e120), numbers(1e120, 2e120, -1e120)], "product", {}),
    "fourth powers that overflow": ([numbers(1e100, 2e100, -1e100, 0.0, 3e100)], "variance", {}),
    "squares of differences that overflow": ([numbers(1e160, 2e160, 0.0, -1e160, 5.0)], "gini", {}),
    "a user's of three points": ([numbers(0.0, 1.0, 2.0), numbers(0.0, 4.0)], above, {}),
}


@pytest.mark.parametrize(
    "options", [{"complete": True}, {}, {"n_pairs": 3}, {"scheme": "prop-swr", "empty": "skip"}], ids=str
)
@pytest.mark.parametrize("what", DEGENERATE)
def test_without_a_standard_error_there_is_a_sentence_and_never_a_nan_or_zero(
    what: str, options: dict[str, Any]
) -> None:
    samples, kernel, more = DEGENERATE[what]
    degrees = getattr(kernel, "degrees", (2, 2) if kernel == "energy" else ())
    if options.get("scheme") == "prop-swr" and max(degrees, default=1) > 1:
        return  # refused
    with np.errstate(all="ignore"):
        result = estimate_samples(SerialComm(), samples, kernel, n_workers=1, seed=3, **more, **options)
    text = json.dumps(result.summary(), allow_nan=False)
    assert result.error is not None
    assert np.isfinite(result.value)
    if result.stderr is None:
        (given,) = result.error.intervals
        assert given.note is not None
        # Where every tuple has an extreme value there is an exact bound, and nothing to doubt.
        assert (given.method == "exact") == (given.note not in result.error.flags) == (result.interval is not None)
        assert all(flag and flag[0].islower() and not flag.endswith(".") for flag in result.error.flags)
        assert json.loads(text)["stderr"] is None
        # A VUS of 0 may come from classes out of order.
        assert bool(json.loads(text)["flags"]) == (given.method != "exact" or what == "out of order")
    else:
        assert 0.0 < result.stderr < math.inf
    none_expected = what not in ("a class of one", "few points") and "overflow" not in what
    if options.get("complete") and none_expected:
        assert result.stderr is None


def test_samples_that_may_be_alike_are_said_to_be_so() -> None:
    """The first-order part of the variance of an energy distance vanishes where the laws are equal."""
    rng = np.random.default_rng(0)
    alike = estimate(SerialComm(), rng.normal(size=60), rng.normal(size=50), "energy", complete=True, seed=0)
    apart = estimate(SerialComm(), rng.normal(size=60), rng.normal(2.0, 1.0, 50), "energy", complete=True, seed=0)
    assert alike.error is not None and any("first-order part" in flag for flag in alike.error.flags)
    assert apart.error is not None and apart.error.flags == ()


def test_the_summary_has_numbers_for_one_statistic_and_lists_for_several() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(20, 2)), rng.normal(size=(16, 2))
    points = rng.normal(size=(20, 2))
    for result in (
        estimate(SerialComm(), x[:, 0], z[:, 0], n_workers=3, reference=True, seed=0),
        estimate(SerialComm(), points, kernel="kendall", n_workers=3, reference=True, seed=0),
        estimate(SerialComm(), x, z, "energy", n_workers=3, reference=True, seed=0),
    ):
        summary = result.summary()
        for name in ("estimate", "stderr", "complete_value", "complete_stderr"):
            assert isinstance(summary[name], float), name
        assert len(summary["interval"]) == 2 and summary["covariance"] is None
    several = estimate(SerialComm(), x, z, columns=("a", "b"), n_workers=3, reference=True, seed=0).summary()
    for name in ("estimate", "stderr", "complete_value", "complete_stderr", "interval", "covariance", "columns"):
        assert isinstance(several[name], list) and len(several[name]) == 2, name


def test_without_stderr_there_is_no_error_bar(comm: Any) -> None:
    x = np.arange(8.0) if comm.rank == 0 else np.empty(0)
    for options in ({}, {"complete": True}, {"scheme": "as-is", "n_workers": comm.size, "empty": "skip"}):
        result = estimate(comm, x, x + 0.5, seed=0, stderr=False, **{"n_workers": 2, **options})
        assert (result.error, result.stderr, result.interval, result.covariance) == (None, None, None, None)
        assert json.dumps(result.summary(), allow_nan=False)


def test_tails_ask_nothing_of_a_point_and_itself() -> None:
    """A user's kernel of two points may be infinite there, and give an array that can't be written to."""
    x = np.random.default_rng(5).normal(size=40)

    def inverse(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(divide="ignore"):
            return 1.0 / np.abs(a - b.T)

    def constant(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(2.0, (len(a), len(b)))

    for function in (inverse, constant):
        function.degrees = (2,)  # type: ignore[attr-defined]
        result = estimate(SerialComm(), x, None, function, n_workers=2, seed=1)
        assert math.isfinite(result.value) and result.error is not None
    rows = np.array([np.delete(row, i).mean() for i, row in enumerate(inverse(x[:, None], x[:, None]))])
    centred = rows - rows.mean()
    assert kurtosis(rows) == pytest.approx((centred**4).mean() / (centred**2).mean() ** 2, rel=1e-12)
    kernel = make_user_kernel(inverse, "inverse")
    found = kernel.projections(0, x[:7], [x[7:]])
    assert found == pytest.approx(inverse(x[:7, None], x[7:, None]).mean(axis=1)[:, None], rel=1e-12)
