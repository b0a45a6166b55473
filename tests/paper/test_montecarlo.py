"""Monte-Carlo runs: the same numbers however they are spread, and models that have the laws they claim.

Statistical checks refuse a right implementation with probability 10⁻⁶ each (`SIGMAS` standard errors of a normal
estimate, or the p-value of a χ²), those of variances with probability 6·10⁻⁵ (4 standard errors); the seeds are fixed,
so that what has passed passes again.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from mpi_ustat import estimate
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import SimulationConfig
from mpi_ustat.estimation.evaluation import Evaluation
from mpi_ustat.estimation.problem import Problem
from mpi_ustat.kernels.kernel import Local, PairSum
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics import rng
from mpi_ustat.numerics.rng import Stream, Streams
from mpi_ustat.paper import montecarlo, theory
from mpi_ustat.paper.experiments import _variance
from mpi_ustat.paper.models import Components, two_point_auc_informative
from mpi_ustat.paper.montecarlo import NormalProduct, Simulation, TwoPointAUC, Values, make_model, simulate

Array = NDArray[Any]

ERROR = 1e-6
SIGMAS = float(stats.norm.isf(ERROR / 2))
"""How many standard errors a normal estimate strays with probability `ERROR`: 4.89."""

AUC: dict[str, Any] = {"model": "two-point-auc", "epsilon": 0.3}
RARE_AUC: dict[str, Any] = {"model": "two-point-auc", "epsilon": 0.05, "conditional": True}
PRODUCT: dict[str, Any] = {"model": "normal-product", "mean_x": 0.5, "mean_z": -0.3}

SCHEMES: dict[str, dict[str, Any]] = {
    "prop-swor": {"scheme": "prop-swor"},
    "prop-swor by matrix": {"scheme": "prop-swor", "shuffle": "matrix"},
    "prop-swor of the smaller": {"scheme": "prop-swor", "move": "smaller"},
    "swor, empty workers 0": {"scheme": "swor", "empty": "zero"},
    "swor, empty workers skipped": {"scheme": "swor", "empty": "skip"},
    "prop-swr": {"scheme": "prop-swr"},
    "fixed-shuffle": {"scheme": "fixed-shuffle"},
}
CASES: dict[str, dict[str, Any]] = {
    f"{name}, {model['model']}, {aggregate}": {
        **{"n": 11, "m": 7, "n_workers": 3, "n_rounds": 2, "pairs": (2, 5), "total_pairs": (4,)},
        **{"aggregate": aggregate},
        **scheme,
        **model,
    }
    for (name, scheme), model, aggregate in itertools.product(SCHEMES.items(), (AUC, PRODUCT), ("mean", "pooled"))
}
# What has a fast way on one rank, and what comes close.
CASES |= {
    "fast": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, **AUC},
    "fast, conditional": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, **RARE_AUC},
    "fast, the smaller moved, pooled": {
        **{"n": 6, "m": 12, "n_workers": 3, "n_rounds": 3, "move": "smaller", "aggregate": "pooled"},
        **AUC,
    },
    "nearly fast, sampled pairs too": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, "pairs": (2,), **AUC},
    "nearly fast, undistributed too": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, "total_pairs": (2,), **AUC},
    "nearly fast, no rounds": {"n": 12, "m": 6, "n_workers": 3, "local": False, **AUC},
    "nearly fast, uneven": {"n": 12, "m": 7, "n_workers": 3, "n_rounds": 3, **AUC},
    "nearly fast, swor": {"n": 12, "m": 6, "n_workers": 2, "n_rounds": 3, "scheme": "swor", **AUC},
    "nearly fast, by matrix": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, "shuffle": "matrix", **AUC},
    "nearly fast, product": {"n": 12, "m": 6, "n_workers": 3, "n_rounds": 3, **PRODUCT},
}


def experiment(case: dict[str, Any], **options: Any) -> SimulationConfig:
    return SimulationConfig(**{"n_runs": 4, "seed": 11, **case, **options})


def joined(parts: list[Values]) -> Values:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def all_runs(config: SimulationConfig) -> Values:
    return joined([values for _, values in simulate(SerialComm(), config)])


def assert_same_bits(values: Values, expected: Values) -> None:
    assert values.keys() == expected.keys()
    for name, column in expected.items():
        assert values[name].dtype == column.dtype == np.float64
        assert values[name].shape == column.shape
        assert values[name].tobytes() == column.tobytes(), name


# ---------------------------------------------------------------------------------------------------------------------
# However they are spread


@pytest.mark.parametrize("case", CASES)
def test_numbers_depend_neither_on_the_ranks_nor_on_how_the_runs_are_spread_and_cut(
    comm: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = experiment(CASES[case])
    # Run by run, on one rank, with the estimators of `mpi_ustat.estimation`.
    expected = joined([values for _, values in simulate(SerialComm(), config, spread="workers")])
    assert {name: column.shape[1:] for name, column in expected.items()} == Simulation(config).shapes()
    for spread, start, seconds in (("runs", 0, 0.0), ("runs", 1, math.inf), ("workers", 2, math.inf)):
        monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", seconds)
        chunks = list(simulate(comm, config, start=start, spread=spread))
        assert [run for runs, _ in chunks for run in runs] == list(range(start, config.n_runs))
        if comm.rank == 0:
            assert all(len(values["complete"]) == len(runs) for runs, values in chunks)
            together = joined([values for _, values in chunks])
            assert_same_bits(together, {name: column[start:] for name, column in expected.items()})


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("model", ["auc", "product"])
def test_the_first_run_is_what_estimate_gives_for_its_samples(scheme: str, model: str) -> None:
    config = experiment(CASES[f"{scheme}, {(AUC if model == 'auc' else PRODUCT)['model']}, mean"], n_runs=1)
    law = make_model(config)
    x, z = law.draw(Streams(config.seed), 0, config.n, config.m)
    options = {
        name: getattr(config, name) for name in ("scheme", "shuffle", "move", "empty", "n_workers", "n_rounds", "seed")
    }
    values = all_runs(config)
    local, *sampled = (
        estimate(SerialComm(), x, z, model, ties="strict", n_pairs=n_pairs, **options)
        for n_pairs in (None, *config.pairs)
    )
    assert values["complete"][0] == estimate(SerialComm(), x, z, model, ties="strict", complete=True, seed=1).value
    np.testing.assert_array_equal(values["local"][0], local.per_round)
    np.testing.assert_array_equal(values["incomplete"][0], [each.per_round for each in sampled])
    h = np.less.outer(z, x).T if model == "auc" else np.outer(x, z)
    rows, columns = Streams(config.seed).open("sampled pairs").pairs(config.n, config.m, 4)
    assert values["sampled"][0, 0] == pytest.approx(h[rows, columns].mean(), rel=1e-14)
    assert values["complete"][0] == pytest.approx(h.mean(), rel=1e-13)


def test_chunks_grow_while_they_take_less_than_half_a_second(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment(CASES["fast"], n_runs=20 * comm.size)

    def sizes(start: int) -> list[float]:
        return [len(runs) / comm.size for runs, _ in simulate(comm, config, start=start)]

    monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", math.inf)
    assert sizes(0) == [1, 2, 4, 8, 5]
    assert sizes(20 * comm.size) == []
    monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", 0.0)
    assert sizes(4 * comm.size) == [1] * 16


def test_runs_differ_and_seeds_differ() -> None:
    config = experiment(CASES["prop-swor, normal-product, mean"])
    values, others = all_runs(config), all_runs(experiment(CASES["prop-swor, normal-product, mean"], seed=12))
    for name, column in values.items():
        numbers = np.concatenate([column.ravel(), others[name].ravel()])
        assert len(np.unique(numbers)) == len(numbers)


# ---------------------------------------------------------------------------------------------------------------------
# The fast way


@pytest.mark.parametrize("ties", [False, True], ids=["few ties", "many ties"])
@pytest.mark.parametrize("conditional", [False, True], ids=["plain", "conditional"])
@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("move", ["both", "smaller"])
@pytest.mark.parametrize(("n", "m", "n_workers"), [(12, 6, 3), (6, 12, 3), (35, 35, 5), (4, 8, 1), (4, 4, 4)])
def test_runs_of_the_two_point_model_in_batches_are_those_made_one_by_one(
    n: int,
    m: int,
    n_workers: int,
    move: str,
    aggregate: str,
    conditional: bool,
    ties: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if ties:
        full = rng._halves
        monkeypatch.setattr(rng, "_halves", lambda words: full(words) & np.uint64(0x3))
    config = SimulationConfig(
        model="two-point-auc",
        epsilon=0.15,
        conditional=conditional,
        n=n,
        m=m,
        n_workers=n_workers,
        n_rounds=3,
        move=move,
        aggregate=aggregate,
        n_runs=100,
        seed=21,
    )
    study = Simulation(config)
    generic = study.by_all_ranks(SerialComm())
    for words in (1, 5 * (n + m), montecarlo._BATCH_WORDS):
        monkeypatch.setattr(montecarlo, "_BATCH_WORDS", words)
        fast = study.by_one_rank()
        assert isinstance(fast, montecarlo._Batches)
        for runs in (range(6), range(93, 94), range(4, 4)):
            assert_same_bits(fast(runs), generic(runs))


def test_batches_are_as_large_as_the_words_in_flight_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    both, smaller = (experiment(CASES["fast"], move=move) for move in ("both", "smaller"))
    monkeypatch.setattr(montecarlo, "_BATCH_WORDS", 300)
    model = TwoPointAUC(0.3)
    assert montecarlo._Batches(Simulation(both), model).batch == 5  # 3 (12 + 6) = 54 words a run
    assert montecarlo._Batches(Simulation(smaller), model).batch == 10  # 12 + 3 · 6 = 30


# ---------------------------------------------------------------------------------------------------------------------
# The two-point model


def rare_points(model: TwoPointAUC, sample: str, n_runs: int, size: int, seed: int = 31) -> NDArray[np.bool_]:
    streams = Streams(seed)
    return np.stack([model.rare(streams, sample, run, size) for run in range(n_runs)])


def chi_square_p(counts: Array, probabilities: Array) -> float:
    wanted = counts.sum() * probabilities
    assert wanted.min() > 5
    return float(stats.chi2.sf(((counts - wanted) ** 2 / wanted).sum(), len(counts) - 1))


def patterns(rare: NDArray[np.bool_]) -> Array:
    """Number the patterns of each row."""
    return rare @ (1 << np.arange(rare.shape[1]))


def pattern_probabilities(size: int, epsilon: float) -> Array:
    n_rare = np.array([i.bit_count() for i in range(1 << size)])
    return epsilon**n_rare * (1.0 - epsilon) ** (size - n_rare)


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 0.8])
def test_rare_points_are_independent_with_the_probability_given(epsilon: float) -> None:
    model = TwoPointAUC(epsilon)
    x, z = (rare_points(model, sample, 4000, 25) for sample in "xz")
    for rare in (x, z):
        assert abs(rare.mean() - epsilon) < SIGMAS * math.sqrt(epsilon * (1.0 - epsilon) / rare.size)
        first = patterns(rare[:, :3])  # every pattern of three points
        assert chi_square_p(np.bincount(first, minlength=8), pattern_probabilities(3, epsilon)) > ERROR
    number_x, number_z = x.sum(axis=1), z.sum(axis=1)
    for left, right in ((number_x, number_z), (number_x[1:], number_x[:-1]), (number_z[1:], number_x[:-1])):
        assert abs(np.corrcoef(left, right)[0, 1]) < SIGMAS / math.sqrt(len(left))


@pytest.mark.parametrize(("epsilon", "size"), [(0.02, 2), (0.1, 4), (0.3, 4), (0.8, 4)])
def test_given_a_rare_point_every_pattern_is_as_likely_as_among_the_samples_that_have_one(
    epsilon: float, size: int
) -> None:
    """What rejection gives: the probabilities of the patterns but the empty one, over their sum."""
    found = patterns(rare_points(TwoPointAUC(epsilon, conditional=True), "x", 20_000, size))
    counts = np.bincount(found, minlength=1 << size)
    assert counts[0] == 0
    probabilities = pattern_probabilities(size, epsilon)[1:]
    assert chi_square_p(counts[1:], probabilities / probabilities.sum()) > ERROR


@pytest.mark.parametrize(("epsilon", "size"), [(0.3, 5), (0.3, 1), (0.02, 42), (1e-4, 38), (1e-12, 7), (0.999, 3)])
def test_the_first_rare_point_is_that_of_the_truncated_geometric_law(
    epsilon: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P(first = j) = ε (1-ε)^j / (1 - (1-ε)^size), by the inverse of its distribution function."""
    weights = epsilon * (1.0 - epsilon) ** np.arange(size)
    upto = np.cumsum(weights) / weights.sum()
    model = TwoPointAUC(epsilon, conditional=True)
    uniform = np.random.default_rng(7).random(200)
    answers = [*uniform.tolist(), 0.0, 1.0 - 2.0**-53]
    expected = [*np.searchsorted(upto, uniform, side="right").tolist(), 0, size - 1]
    for u, first in zip(answers, expected, strict=True):
        monkeypatch.setattr(Stream, "uniform", lambda self, number, u=u: np.full(number, u))
        rare = model.rare(Streams(1), "x", 0, size)
        assert int(np.argmax(rare)) == first and rare[first]


def test_the_points_after_the_first_rare_one_are_those_of_the_plain_model() -> None:
    """So they are independent again: only what is up to the first is made anew."""
    plain, given = (rare_points(TwoPointAUC(0.2, conditional=c), "z", 500, 20) for c in (False, True))
    firsts = np.argmax(given, axis=1)
    assert len(np.unique(firsts)) > 10
    for before, after, first in zip(plain, given, firsts, strict=True):
        np.testing.assert_array_equal(after[first + 1 :], before[first + 1 :])
        assert after[first] and not after[:first].any()


def test_samples_have_the_values_of_the_model() -> None:
    model = TwoPointAUC(0.4)
    x, z = model.draw(Streams(8), 3, 500, 400)
    rare_x, rare_z = (model.rare(Streams(8), name, 3, size) for name, size in (("x", 500), ("z", 400)))
    np.testing.assert_array_equal(x, np.where(rare_x, 0.0, 2.0))
    np.testing.assert_array_equal(z, np.where(rare_z, 1.0, -1.0))
    assert 0 < rare_x.sum() < 500 and 0 < rare_z.sum() < 400
    misordered = int(rare_x.sum()) * int(rare_z.sum())
    assert model.kernel.block_total(x, z) == model.kernel.scale * (500 * 400 - misordered)


def variances(epsilon: float, conditional: bool, n_runs: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return the simulated variance of U_n, U_{n,N} and Û_{n,N,T}, its standard error, and the exact one."""
    sizes: dict[str, Any] = {"n": 12, "m": 6, "n_workers": 3}
    config = SimulationConfig(
        model="two-point-auc", epsilon=epsilon, conditional=conditional, n_rounds=2, n_runs=n_runs, seed=seed, **sizes
    )
    values, components = all_runs(config), make_model(config).components
    chance = two_point_auc_informative(epsilon, 12, 6) if conditional else 1.0
    columns = {
        "complete": (values["complete"], theory.variance_complete(components, 12, 6)),
        "local": (values["local"][:, 0], theory.variance_prop_swor(components, **sizes)),
        "repartitioned": (
            values["local"].mean(axis=1),
            theory.variance_prop_swor(components, n_rounds=2, **sizes),
        ),
    }
    return {name: (*_variance(1.0 - column, chance), exact) for name, (column, exact) in columns.items()}


def test_conditional_and_plain_runs_give_the_same_variance() -> None:
    plain, given = (variances(0.1, conditional, 30_000, 41 + conditional) for conditional in (False, True))
    for name, (variance, error, exact) in given.items():
        other, of_other, _ = plain[name]
        assert abs(variance - exact) < 4.0 * error
        assert abs(other - exact) < 4.0 * of_other
        assert abs(variance - other) < 4.0 * math.hypot(error, of_other)
        assert error < 0.03 * exact


def test_conditional_runs_resolve_what_plain_ones_hardly_meet() -> None:
    """At ε = 10⁻³ one of 14 000 plain runs has a misordered pair; given one, 10⁴ runs tell the variance to 5 %."""
    assert 1.0 / two_point_auc_informative(1e-3, 12, 6) == pytest.approx(14_000, rel=0.01)
    for variance, error, exact in variances(1e-3, True, 10_000, 43).values():
        assert abs(variance - exact) < 4.0 * error
        assert error < 0.05 * exact


# ---------------------------------------------------------------------------------------------------------------------
# The normal model


def test_normal_samples_have_their_means_and_unit_variance_and_are_independent() -> None:
    model = NormalProduct(2.0, -0.5)
    streams = Streams(51)
    drawn = [model.draw(streams, run, 31, 17) for run in range(1500)]
    x, z = np.stack([each[0] for each in drawn]), np.stack([each[1] for each in drawn])
    assert x.shape == (1500, 31) and z.shape == (1500, 17)
    for rows, mean in ((x, 2.0), (z, -0.5)):
        centred = rows - mean
        assert abs(centred.mean()) < SIGMAS / math.sqrt(rows.size)
        assert abs((centred**2).mean() - 1.0) < SIGMAS * math.sqrt(2.0 / rows.size)
        assert abs((centred**4).mean() - 3.0) < SIGMAS * math.sqrt(96.0 / rows.size)
        of_runs = centred.mean(axis=1) * math.sqrt(rows.shape[1])  # independent points: variance 1
        assert abs((of_runs**2).mean() - 1.0) < SIGMAS * math.sqrt(2.0 / len(rows))
    for left, right in ((x[:, :17], z), (x[1:], x[:-1]), (z[1:], z[:-1]), (z[1:], x[:-1, :17]), (x[:, 1:], x[:, :-1])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < SIGMAS / math.sqrt(left.size)
    assert model.mean == -1.0
    assert model.components == Components(0.25, 4.0, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize("case", ["fast", "prop-swor, two-point-auc, mean"])
def test_a_run_that_fails_on_one_rank_fails_on_all(comm: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = comm.size - 1
    plain = TwoPointAUC.rare

    def rare(self: TwoPointAUC, streams: Streams, sample: str, run: int, size: int) -> NDArray[np.bool_]:
        if run == 2 * comm.size - 1:  # of the second chunk, the last rank's
            raise MemoryError("no room")
        return plain(self, streams, sample, run, size)

    monkeypatch.setattr(TwoPointAUC, "rare", rare)
    monkeypatch.setattr(montecarlo, "_SECONDS_PER_CHUNK", 0.0)
    runs = simulate(comm, experiment(CASES[case], n_runs=20))
    assert next(runs)[0] == range(comm.size)
    where = f" on rank {faulty}" if comm.size > 1 else ""
    with pytest.raises(UserError, match=f"^simulating failed{where}: MemoryError: no room$"):
        next(runs)
    assert comm.allgather(comm.rank) == list(range(comm.size))  # the ranks are still in step


def test_a_worker_that_fails_on_one_rank_fails_on_all(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def local(problem: Problem, t: int, worker: int, *_: Any) -> Evaluation:
        if worker == 3:
            raise MemoryError("no room")
        return Evaluation(Local((PairSum(1, 1),), None), 1)

    monkeypatch.setattr("mpi_ustat.estimation.rounds.of_worker", local)
    config = experiment({"n": 8, "m": 8, "n_workers": 4, **PRODUCT})
    where = f" on rank {comm.size - 1}" if comm.size > 1 else ""
    with pytest.raises(UserError, match=f"failed{where}: MemoryError: no room$"):
        list(simulate(comm, config, spread="workers"))
    assert comm.allgather(comm.rank) == list(range(comm.size))


@pytest.mark.parametrize("spread", ["runs", "workers"])
def test_a_round_without_any_pair_is_told_on_all_ranks(comm: Any, spread: str) -> None:
    """Two points of each class dealt to two workers at random: with probability 1/3 each gets one class."""
    config = experiment({"n": 2, "m": 2, "n_workers": 2, "scheme": "swor", **AUC}, n_runs=60)
    with pytest.raises(UserError, match="no worker has a pair"):
        list(simulate(comm, config, spread=spread))
    assert comm.allgather(comm.rank) == list(range(comm.size))


# ---------------------------------------------------------------------------------------------------------------------
# Configuration


@pytest.mark.parametrize("case", CASES)
def test_json_keeps_a_simulation(case: str) -> None:
    config = experiment(CASES[case])
    written = json.loads(json.dumps(config.to_json()))
    lists = {name: tuple(written[name]) for name in ("pairs", "total_pairs")}
    assert SimulationConfig(**(written | lists)) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "cauchy"}, "model is 'cauchy': use one of two-point-auc, normal-product"),
        ({"epsilon": -0.1}, "epsilon is -0.1"),
        ({"epsilon": 1.0}, "epsilon is 1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": 0.0, "conditional": True}, "epsilon is 0.0"),
        ({**PRODUCT, "epsilon": 0.1, "conditional": True}, "only the two-point model is simulated conditionally"),
        ({"n": 0}, "the n is 0"),
        ({"m": -1}, "the m is -1"),
        ({"n_runs": 0}, "the number of runs is 0"),
        ({"pairs": (3, 0)}, "the number of pairs is 0"),
        ({"total_pairs": (0,)}, "the number of pairs is 0"),
        ({"scheme": "random"}, "scheme is 'random'"),
        ({"scheme": "swor", "move": "smaller"}, "the scheme swor moves all samples"),
        ({"n_rounds": 0}, "the number of rounds is 0"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_simulation_that_can_not_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        experiment(CASES["fast"], **options)
