"""The package's own estimators against the closed forms: every scheme, kernel and estimator, by `simulate`.

A cell is a scheme, a kernel, sizes that the number of workers divides or doesn't, and an estimator. It accepts if the
empirical variance of R independent runs is within 4 of its standard errors √[(μ₄ - σ⁴ (R - 3)/(R - 1))/R] of the
formula, and the empirical mean within 4 of its own of the expectation. With normal limits each of the two refuses a
right estimator with probability 6·10⁻⁵: the 30 cells of R = 2500 refuse one with probability below 0.4 %, the 84 of
R = 10⁵ (marked slow) below 1.1 %. The seeds are fixed, so that what has passed passes again.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import paper_variances as reference
import pytest
from numpy.typing import NDArray

from mpi_ustat.estimation.config import EstimateConfig, SimulationConfig
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.paper.models import Components
from mpi_ustat.paper.montecarlo import Values, make_model, simulate
from mpi_ustat.paper.theory import printed_prop_swr, variance_prop_swr, variance_standard_error
from mpi_ustat.schemes import fixed_shuffle
from mpi_ustat.schemes.designs import even_sizes
from mpi_ustat.schemes.partition import Ordered, Partition
from mpi_ustat.schemes.registry import SCHEMES
from mpi_ustat.schemes.swor import swor_bias_factor

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Assignments = tuple[Ints, Ints]

LIMIT = 4.0
"""Standard errors between simulation and formula."""


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def mean_distance(values: Floats, expectation: float) -> float:
    """Return how many standard errors lie between the empirical mean and the expectation."""
    return float(abs(values.mean() - expectation) / (values.std(ddof=1) / math.sqrt(len(values))))


def distance(values: Floats, formula: float) -> float:
    """Return how many standard errors lie between the empirical variance and the formula."""
    spread = float(values.var(ddof=1))
    fourth = float(((values - values.mean()) ** 4).mean())
    return abs(spread - formula) / variance_standard_error(spread, fourth, len(values))


def all_runs(config: SimulationConfig) -> Values:
    chunks = [values for _, values in simulate(SerialComm(), config)]
    return {name: np.concatenate([values[name] for values in chunks]) for name in chunks[0]}


# ---------------------------------------------------------------------------------------------------------------------
# Cells

VARIANTS: dict[str, dict[str, Any]] = {
    "prop-swor by permutation": {"scheme": "prop-swor"},
    "prop-swor by matrix": {"scheme": "prop-swor", "shuffle": "matrix"},
    "prop-swor of the smaller": {"scheme": "prop-swor", "move": "smaller"},
    "swor, empty workers 0": {"scheme": "swor", "empty": "zero"},
    "swor, empty workers skipped": {"scheme": "swor", "empty": "skip"},
    "prop-swr": {"scheme": "prop-swr"},
    "fixed-shuffle": {"scheme": "fixed-shuffle"},
}
MODELS: dict[str, dict[str, Any]] = {
    "auc": {"model": "two-point-auc", "epsilon": 0.3},
    "product": {"model": "normal-product", "mean_x": 0.5, "mean_z": 0.3},
}
N_WORKERS = 3
SIZES = {"even": (9, 6), "uneven": (11, 4)}
# Of equal samples fixed-shuffle deals the second from another worker on; in both cases its formula isn't prop-swor's.
FIXED_SHUFFLE_SIZES = {"even": (9, 9), "uneven": (11, 5)}
N_PAIRS, TOTAL_PAIRS = 3, 6
ESTIMATORS: dict[str, dict[str, Any]] = {
    "all local pairs": {"local": True},
    "sampled pairs": {"local": False, "pairs": (N_PAIRS,), "total_pairs": (TOTAL_PAIRS,)},
}


@dataclass(frozen=True)
class Experiment:
    """One simulation, which fills three cells."""

    variant: str
    model: str
    estimators: str
    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.variant}, {self.model}, {self.estimators}, {self.n}+{self.m}"

    def config(self, n_runs: int, seed: int) -> SimulationConfig:
        return SimulationConfig(
            n=self.n,
            m=self.m,
            n_workers=N_WORKERS,
            n_rounds=3 if self.variant == "fixed-shuffle" else 2,
            n_runs=n_runs,
            seed=seed,
            **VARIANTS[self.variant],
            **MODELS[self.model],
            **ESTIMATORS[self.estimators],
        )


# Each scheme meets both kinds of sizes with each kernel and with each half of the estimators.
EXPERIMENTS = [
    Experiment(variant, model, estimators, *(FIXED_SHUFFLE_SIZES if variant == "fixed-shuffle" else SIZES)[kind])
    for variant in VARIANTS
    for model, estimators, kind in (
        ("auc", "all local pairs", "even"),
        ("auc", "sampled pairs", "uneven"),
        ("product", "all local pairs", "uneven"),
        ("product", "sampled pairs", "even"),
    )
]


def assignments_of(n: int, m: int, n_workers: int, n_rounds: int, seed: int) -> Assignments:
    """Return the worker of every row in every round of a fixed-shuffle, shapes (T, n) and (T, m)."""
    partition = Partition(SCHEMES["fixed-shuffle"], (n, m), n_workers, Streams(seed))
    found = np.full((n_rounds, n), -1), np.full((n_rounds, m), -1)
    for t in range(n_rounds):
        for holder, blocks in zip(found, partition.round(t), strict=True):
            assert isinstance(blocks, Ordered) and blocks.order is not None
            holder[t, blocks.order] = np.repeat(np.arange(n_workers), np.diff(blocks.bounds))
    return found


def variance_skipping(components: Components, config: SimulationConfig, n_rounds: int, **more: Any) -> float:
    """Return the variance under swor without the empty workers: that given the block sizes, over the law of the sizes.

    The mean given the sizes is U whatever they are, and the rounds are independent given the data, so that
    Var = V_n + (E V₁ - V_n)/T, with the expectation over all sizes of one round.
    """
    n, m = config.n, config.m
    dealt = even_sizes(n + m, config.n_workers)
    one_round = total = 0.0
    for of_x in itertools.product(*(range(size + 1) for size in dealt.tolist())):
        if sum(of_x) != n:
            continue
        probability = math.prod(math.comb(s, k) for s, k in zip(dealt.tolist(), of_x, strict=True)) / math.comb(
            n + m, n
        )
        sizes = {"sizes_x": [of_x], "sizes_z": [dealt - of_x]}
        one_round += probability * reference.variance(components, scheme="swor", empty="skip", **sizes, **more)
        total += probability
    assert total == pytest.approx(1.0)
    complete = reference.variance_complete(components, n, m)
    return complete + (one_round - complete) / n_rounds


def expected(config: SimulationConfig, n_rounds: int, n_pairs: int | None) -> tuple[float, float]:
    """Return expectation and variance of the mean of the first `n_rounds` rounds."""
    model = make_model(config)
    components, mean = model.components, model.mean
    sizes = {"n": config.n, "m": config.m, "n_workers": config.n_workers}
    if config.scheme == "fixed-shuffle":
        # Whatever round 0 is: the deals after it act on places.
        holders = assignments_of(**sizes, n_rounds=n_rounds, seed=31)
        return mean, reference.variance(
            components, scheme="fixed-shuffle", n_workers=config.n_workers, assignments=holders, n_pairs=n_pairs
        )
    if config.scheme == "swor" and config.empty == "skip":
        return mean, variance_skipping(components, config, n_rounds, n_pairs=n_pairs)
    options: dict[str, Any] = {"scheme": config.scheme, "n_rounds": n_rounds, "n_pairs": n_pairs}
    if config.move != "both":
        options["move"] = config.move
    if config.scheme == "swor":
        factor = swor_bias_factor(**sizes)
        assert factor < 0.98  # the bias is there to be seen
        return mean * factor, reference.variance(components, **sizes, **options, empty="zero", expectation=mean)
    return mean, reference.variance(components, **sizes, **options)


def cells(config: SimulationConfig, values: Values) -> dict[str, tuple[Floats, float, float]]:
    """Return the runs, the expectation and the variance of each estimator that was simulated."""
    model = make_model(config)
    T = config.n_rounds
    if config.local:
        complete = reference.variance_complete(model.components, config.n, config.m)
        return {
            "U_n": (values["complete"], model.mean, complete),
            "U_{n,N}": (values["local"][:, 0], *expected(config, 1, None)),
            "Û_{n,N,T}": (values["local"].mean(axis=1), *expected(config, T, None)),
        }
    sampled = reference.variance_incomplete(model.components, config.n, config.m, TOTAL_PAIRS)
    return {
        "Ũ_B": (values["sampled"][:, 0], model.mean, sampled),
        "Ũ_{n,N,B}": (values["incomplete"][:, 0, 0], *expected(config, 1, N_PAIRS)),
        "Ũ_{n,N,B,T}": (values["incomplete"][:, 0].mean(axis=1), *expected(config, T, N_PAIRS)),
    }


def check(experiment: Experiment, n_runs: int, seed: int) -> None:
    config = experiment.config(n_runs, seed)
    for name, (column, expectation, formula) in cells(config, all_runs(config)).items():
        assert len(column) == n_runs
        assert mean_distance(column, expectation) < LIMIT, f"{name}: {column.mean():.6g}, not {expectation:.6g}"
        assert distance(column, formula) < LIMIT, f"{name}: {column.var(ddof=1):.6g}, not {formula:.6g}"


@pytest.mark.parametrize("number", range(0, len(EXPERIMENTS), 3), ids=lambda i: str(EXPERIMENTS[i]))
def test_moments_of_a_third_of_the_cells(number: int) -> None:
    check(EXPERIMENTS[number], n_runs=1_500, seed=1000 + number)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(len(EXPERIMENTS)), ids=lambda i: str(EXPERIMENTS[i]))
def test_moments_of_every_cell(number: int) -> None:
    check(EXPERIMENTS[number], n_runs=100_000, seed=2000 + number)


def test_a_third_of_the_cells_has_every_scheme_and_both_kinds_of_sizes() -> None:
    chosen = EXPERIMENTS[::3]
    assert {each.variant for each in chosen} == set(VARIANTS)
    assert {each.n % N_WORKERS + each.m % N_WORKERS == 0 for each in chosen} == {True, False}
    assert {(each.model, each.estimators) for each in chosen} == set(itertools.product(MODELS, ESTIMATORS))


# ---------------------------------------------------------------------------------------------------------------------
# What the paper prints


@pytest.mark.parametrize("n_runs", [10_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_the_printed_incomplete_formula_of_prop_swr_is_refused(n_runs: int) -> None:
    """Corrected 2.0410, printed 1.8389: 6 standard errors of 10⁴ runs apart, 20 of 10⁵."""
    config = SimulationConfig(
        model="normal-product",
        mean_x=2.0,
        mean_z=2.0,
        n=40,
        m=20,
        n_workers=5,
        scheme="prop-swr",
        local=False,
        pairs=(1,),
        n_runs=n_runs,
        seed=41,
    )
    values = all_runs(config)["incomplete"][:, 0, 0]
    sizes: dict[str, Any] = {"n": 40, "m": 20, "n_workers": 5}
    components = make_model(config).components
    corrected, printed = (formula(components, n_pairs=1, **sizes) for formula in (variance_prop_swr, printed_prop_swr))
    assert (corrected, printed) == (pytest.approx(2.0410, abs=5e-5), pytest.approx(1.8389, abs=5e-5))
    assert mean_distance(values, 4.0) < LIMIT
    assert distance(values, corrected) < LIMIT
    assert distance(values, printed) > LIMIT


# ---------------------------------------------------------------------------------------------------------------------
# fixed-shuffle


@pytest.mark.parametrize(("n", "m", "n_workers"), [(9, 9, 3), (11, 5, 3), (10, 10, 5), (23, 17, 4)])
def test_the_variance_of_a_fixed_shuffle_is_the_same_whatever_round_0(n: int, m: int, n_workers: int) -> None:
    components = Components(0.3, 0.5, 2.0)
    holders = [assignments_of(n, m, n_workers, 4, seed) for seed in range(5)]
    assert len({each[0].tobytes() for each in holders}) == 5
    variances = [
        reference.variance(components, scheme="fixed-shuffle", n_workers=n_workers, assignments=each)
        for each in holders
    ]
    assert variances == pytest.approx([variances[0]] * 5, rel=1e-12)


def test_equal_samples_dealt_in_step_have_the_variance_of_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dealt from the same worker on, x and z travel together: σ₀²'s factor is 2 times what the offset makes it.

    n = m = 10, N = 5, T = 3 and a product of centred normals, so that the variance is σ₀²'s part alone: 1/30 in step,
    1/60 apart.
    """
    config = SimulationConfig(
        model="normal-product", n=10, m=10, n_workers=5, n_rounds=3, scheme="fixed-shuffle", n_runs=1000, seed=51
    )
    components = make_model(config).components

    def outcome() -> tuple[Floats, float]:
        holders = assignments_of(10, 10, 5, 3, seed=32)
        formula = reference.variance(components, scheme="fixed-shuffle", n_workers=5, assignments=holders)
        return all_runs(config)["local"].mean(axis=1), formula

    apart, formula_apart = outcome()
    monkeypatch.setattr(fixed_shuffle, "deal_starts", lambda sizes, n_workers: (0,) * len(sizes))
    in_step, formula_in_step = outcome()
    assert (formula_apart, formula_in_step) == (pytest.approx(1 / 60), pytest.approx(1 / 30))
    assert distance(apart, formula_apart) < LIMIT
    assert distance(in_step, formula_in_step) < LIMIT
    assert distance(apart, formula_in_step) > LIMIT
    assert distance(in_step, formula_apart) > LIMIT


# ---------------------------------------------------------------------------------------------------------------------
# Moving the smaller sample only


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize(("n", "m"), [(60, 15), (15, 60), (20, 20)])
def test_moving_the_smaller_sample_moves_its_share_of_the_rows(n: int, m: int, shuffle: str) -> None:
    """After round 0, when both are spread: m/(n + m) of prop-swor's (m the smaller), (1 - 1/N) m of the m rows.

    The rounds are independent and alike, so that the standard errors are those of means of independent numbers.
    """
    n_rounds = 401
    rng = np.random.default_rng(6)
    x, z = rng.standard_normal(n), rng.standard_normal(m)
    moved = {}
    for move in ("both", "smaller"):
        config = EstimateConfig(kernel="product", n_workers=5, n_rounds=n_rounds, move=move, shuffle=shuffle, seed=61)
        estimation = Estimation(set_up(SerialComm(), (x, z), config))
        moved[move] = np.array([estimation.step().rows_moved for _ in range(n_rounds)], dtype=np.float64)
    assert moved["smaller"][0] == moved["both"][0]
    both, smaller = moved["both"][1:], moved["smaller"][1:]
    share = min(n, m) / (n + m)
    assert mean_distance(both, 0.8 * (n + m)) < LIMIT
    assert mean_distance(smaller, 0.8 * min(n, m)) < LIMIT
    assert mean_distance(smaller - share * both, 0.0) < LIMIT
    assert smaller.max() <= min(n, m)


def test_moving_the_smaller_sample_costs_nothing_where_the_workers_divide_the_other() -> None:
    """So that the cells of even sizes compare it with prop-swor's variance, and those of uneven ones with another."""
    for model in MODELS:
        for kind, (n, m) in SIZES.items():
            config = Experiment("prop-swor of the smaller", model, "all local pairs", n, m).config(1, 1)
            components = make_model(config).components
            sizes: dict[str, Any] = {"n": n, "m": m, "n_workers": N_WORKERS, "n_rounds": 2}
            ours = expected(config, 2, None)[1]
            both = reference.variance(components, scheme="prop-swor", **sizes)
            assert (ours == pytest.approx(both, rel=1e-12)) == (kind == "even")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
def test_moving_the_smaller_sample_costs_something_where_the_workers_do_not_divide(aggregate: str) -> None:
    """Blocks of 2, 1, 1 of both samples: prop-swor's variance is 7 % less (averaged or pooled), and is refused."""
    config = SimulationConfig(
        model="normal-product",
        mean_z=1.0,
        n=4,
        m=4,
        n_workers=3,
        n_rounds=4,
        move="smaller",
        aggregate=aggregate,
        n_runs=100_000,
        seed=71,
    )
    values = all_runs(config)["local"].mean(axis=1)
    both, smaller = (
        reference.variance(
            make_model(config).components,
            scheme="prop-swor",
            n=4,
            m=4,
            n_workers=3,
            n_rounds=4,
            move=move,
            aggregate=aggregate,
        )
        for move in ("both", "smaller")
    )
    assert distance(values, smaller) < LIMIT
    assert distance(values, both) > LIMIT
