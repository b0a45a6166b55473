"""Pairwise SGD: exact steps, the same bits at every number of ranks, the definition by brute force, and what fails."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shards

from mpi_ustat import DivergedError, Fit, SerialComm, UserError, learn, learn_samples
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning import monitoring
from mpi_ustat.learning.descent import Learning, step
from mpi_ustat.learning.objectives import LinearRanking, Mahalanobis, PairObjective, consecutive_pairings
from mpi_ustat.learning.training import set_up
from mpi_ustat.mpi.runtime import hosted_workers
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, Travelling
from mpi_ustat.schemes.registry import scheme_of

Array = NDArray[np.float64]
Members = list[list[NDArray[np.int64]]]
"""Row numbers, by sample and worker."""

N_WORKERS = 7
SEED = 20190916


# --- problems: an objective, its samples, and the same objective by definition


class Absolute(PairObjective):
    """h = |w·(x - z) - v|, with parameters (w, v): a user's objective that has no scores."""

    name = "absolute"

    def n_parameters(self, n_columns: int) -> int:
        return n_columns + 1

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        residual = (x - z) @ parameters[:-1] - parameters[-1]
        sign = np.sign(residual)
        return float(np.abs(residual).sum()), np.append(sign @ (x - z), -sign.sum())

    def initial(self, normals: Array) -> Array:
        return 1.0 + normals  # at 0 there is no gradient


@dataclass(frozen=True)
class Problem:
    samples: tuple[Array, ...]
    tests: tuple[Array, ...]
    objective: str | PairObjective = "linear"
    options: dict[str, Any] = field(default_factory=dict)
    pairings: Sequence[tuple[int, int]] = ((0, 1),)


def normals(*sizes: int, d: int = 4) -> tuple[Array, ...]:
    """Samples of overlapping normal points, the first ones higher."""
    rng = np.random.default_rng([*sizes, d])
    return tuple(rng.normal(0.3 * (len(sizes) - k), 1.0, (n, d)) for k, n in enumerate(sizes))


def classed(*sizes: int) -> tuple[Array, ...]:
    """The same, and in the last column a class."""
    rng = np.random.default_rng(sizes)
    return tuple(np.column_stack([rows, rng.integers(0, 2, len(rows))]) for rows in normals(*sizes, d=3))


PROBLEMS: dict[str, Problem] = {
    "hinge": Problem(normals(53, 38), normals(17, 11), options={"loss": "hinge"}),
    "squared-hinge": Problem(normals(53, 38), normals(17, 11), options={"loss": "squared-hinge", "l2": 0.01}),
    "logistic": Problem(normals(38, 53), normals(11, 17), options={"loss": "logistic", "monitor_pairs": 300}),
    "absolute": Problem(normals(53, 38), normals(17, 11), Absolute(), {"monitor_pairs": 300}),
    "mahalanobis": Problem(classed(38, 38), classed(9, 17), Mahalanobis(), {"monitor_pairs": 300, "l2": 0.02}),
    "three classes": Problem(normals(31, 26, 40), normals(9, 12, 8), pairings=consecutive_pairings(3)),
}

SCHEMES: dict[str, dict[str, Any]] = {
    "permutation": {"shuffle": "permutation"},
    "matrix": {"shuffle": "matrix"},
    "the smaller sample only": {"move": "smaller"},
    "the smaller sample only, matrix": {"move": "smaller", "shuffle": "matrix"},
    "swor": {"scheme": "swor"},
    "prop-swr": {"scheme": "prop-swr"},
    "fixed-shuffle": {"scheme": "fixed-shuffle"},
    "rotation": {"scheme": "rotation"},
    "never repartitioned": {"repartition_every": None},
}

DESCENT: dict[str, Any] = {"iterations": 9, "eval_every": 6, "repartition_every": 2, "learning_rate": 0.05}


def by_definition(name: str, theta: Array, x: Array, z: Array) -> tuple[Array, Array]:
    """h and ∇h of aligned pairs, shapes (B,) and (B, p)."""
    difference = x - z
    if name == "absolute":
        residual = difference @ theta[:-1] - theta[-1]
        return np.abs(residual), np.sign(residual)[:, None] * np.column_stack([difference, -np.ones(len(x))])
    if name == "mahalanobis":
        y = np.where(x[:, -1] == z[:, -1], 1.0, -1.0)
        difference = difference[:, :-1]
        factor = theta.reshape(-1, difference.shape[1])
        squares = ((difference @ factor.T) ** 2).sum(axis=1)
        losses = np.maximum(0.0, 1.0 + y * (squares - 2.0))
        outer = np.einsum("rc,bc,bd->brd", factor, difference, difference)
        return losses, ((losses > 0) * 2.0 * y)[:, None] * outer.reshape(len(x), -1)
    u = difference @ theta
    if name == "logistic":
        losses, slopes = np.logaddexp(0.0, -u), -1.0 / (1.0 + np.exp(u))
    else:
        short = np.maximum(0.0, 1.0 - u)
        losses, slopes = (short**2, -2.0 * short) if name == "squared-hinge" else (short, -1.0 * (u < 1.0))
    return losses, slopes[:, None] * difference


def all_pairs(x: Array, z: Array) -> tuple[Array, Array]:
    return np.repeat(x, len(z), axis=0), np.tile(z, (len(x), 1))


def goal(name: str, theta: Array, samples: Sequence[Array], pairings: Sequence[tuple[int, int]], l2: float) -> float:
    """The regularised loss over all pairs."""
    means = [by_definition(name, theta, *all_pairs(samples[a], samples[b]))[0].mean() for a, b in pairings]
    return float(sum(means) + l2 * (theta @ theta))


def area(theta: Array, x: Array, z: Array) -> float:
    positive, negative = x @ theta, z @ theta
    return float(((negative < positive[:, None]) + 0.5 * (negative == positive[:, None])).mean())


# --- shards


def fitted(comm: Any, problem: Problem, spread: str = "even", **options: Any) -> Fit:
    return learn_samples(
        comm,
        shards(comm, problem.samples, spread),
        problem.objective,
        tests=shards(comm, problem.tests, spread),
        pairings=problem.pairings,
        **{"n_workers": N_WORKERS, "seed": SEED, **DESCENT, **problem.options, **options},
    )


def prepared(comm: Any, name: str, spread: str = "even", **options: Any) -> Learning:
    problem = PROBLEMS[name]
    objective = problem.objective if isinstance(problem.objective, PairObjective) else None
    options = {"n_workers": N_WORKERS, "seed": SEED, **DESCENT, **problem.options, **options}
    return Learning(
        set_up(
            comm,
            shards(comm, problem.samples, spread),
            LearnConfig(**options),
            tests=shards(comm, problem.tests, spread),
            objective=objective,
            pairings=problem.pairings,
        )
    )


LOSSES = ("train_loss", "train_auc", "test_loss", "test_auc")


def learnt(fit: Fit) -> dict[str, Any]:
    """What must not depend on the number of ranks, nor on an interruption, to the last bit."""
    return {
        "parameters": fit.parameters.tobytes(),
        "iterations": fit.iterations,
        "sizes": fit.sizes,
        "config": fit.config,
        **{name: fit.history[name].tobytes() for name in ("iteration", *LOSSES)},
    }


def finish(learning: Learning) -> Fit:
    for _ in learning.run():
        pass
    return learning.fit()


# --- exact steps


POSITIVES, NEGATIVES = np.tile([3.0, 0.0], (4, 1)), np.tile([1.0, 1.0], (4, 1))
EXACT: dict[str, Any] = {
    "loss": "hinge",
    "learning_rate": 1 / 1024,
    "momentum": 0.9,
    "init": "zeros",
    "n_workers": 4,
    "seed": 0,
}
STEPS = {
    1: (0.001953125, -0.0009765625),
    2: (0.0056640625, -0.00283203125),
    10: (0.0808223820488281, -0.0404111910244141),
    20: (0.236214646314749, -0.118107323157374),
}


def step_by_hand(t: int) -> Array:
    """All margins stay below 1, so every gradient is -(2, -1): w_t = (2, -1)/1024 · Σ_{s ≤ t} (1 + μ + … + μ^{s-1})."""
    momentum = Fraction(0.9)
    total = sum((sum((momentum**k for k in range(s)), Fraction(0)) for s in range(1, t + 1)), Fraction(0))
    return np.array([float(2 * total / 1024), float(-total / 1024)])


@pytest.mark.parametrize("spread", ["even", "uneven", "apart"])
@pytest.mark.parametrize("batch_pairs", [None, 1, 5])
def test_the_steps_are_those_computed_by_hand(comm: Any, batch_pairs: int | None, spread: str) -> None:
    for t, expected in STEPS.items():
        x, z = shards(comm, (POSITIVES, NEGATIVES), spread)
        fit = learn(comm, x, z, **EXACT, batch_pairs=batch_pairs, repartition_every=3, iterations=t)
        np.testing.assert_allclose(fit.parameters, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(fit.parameters, step_by_hand(t), rtol=1e-14)
        alone = learn(SerialComm(), POSITIVES, NEGATIVES, **EXACT, batch_pairs=batch_pairs, iterations=t)
        assert fit.parameters.tobytes() == alone.parameters.tobytes()
        # u = w·(2, -1) for every pair.
        assert fit.history["train_loss"][-1] == pytest.approx(1 - 2.5 * expected[0], abs=1e-12)
        assert fit.history["train_auc"].tolist() == [0.5, 1.0]


# --- the same bits at every number of ranks


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_number_of_ranks_and_the_shards_change_no_bit(comm: Any, name: str, scheme: str) -> None:
    # In turns: every problem and every scheme gets all of them.
    i, j = list(PROBLEMS).index(name), list(SCHEMES).index(scheme)
    options = {
        **SCHEMES[scheme],
        "batch_pairs": (None, 6)[(i + j) % 2],
        "init": ("zeros", "normal")[(i + j // 2) % 2],
        "decay": (0.0, 0.3)[(i + j // 4) % 2],
        "momentum": (0.9, 0.0)[(i // 2 + j) % 2],
    }
    alone = fitted(SerialComm(), PROBLEMS[name], **options)
    here = fitted(comm, PROBLEMS[name], ("even", "uneven", "apart")[(i + j) % 3], **options)
    assert learnt(here) == learnt(alone)
    assert here.history["rows_moved"].tolist() == alone.history["rows_moved"].tolist()
    assert (here.n_ranks, here.stopped) == (comm.size, False)
    assert here.parameters.tobytes() != fitted(SerialComm(), PROBLEMS[name], **options, seed=1).parameters.tobytes()


@pytest.mark.parametrize("batch_pairs", [None, 6])
def test_many_draws_and_rounds_change_no_bit(comm: Any, batch_pairs: int | None) -> None:
    # Draws are made for many iterations at once: these are more.
    for scheme in ("permutation", "swor"):
        options = {"iterations": 150, "eval_every": 50, "batch_pairs": batch_pairs, "repartition_every": 13}
        alone = fitted(SerialComm(), PROBLEMS["hinge"], **{**options, **SCHEMES[scheme]})
        assert learnt(fitted(comm, PROBLEMS["hinge"], "uneven", **{**options, **SCHEMES[scheme]})) == learnt(alone)


@pytest.mark.parametrize("n_workers", [1, 2, 38])
def test_any_number_of_workers_changes_no_bit(comm: Any, n_workers: int) -> None:
    for batch_pairs in (None, 3):
        options = {"n_workers": n_workers, "batch_pairs": batch_pairs}
        alone = fitted(SerialComm(), PROBLEMS["hinge"], **options)
        assert learnt(fitted(comm, PROBLEMS["hinge"], "uneven", **options)) == learnt(alone)


def test_many_parameters_of_many_workers_change_no_bit(comm: Any) -> None:
    # More numbers than are gathered at every step: they are rounded to a common grid, and added in any order.
    rng = np.random.default_rng(6)
    samples = tuple(np.column_stack([rng.normal(size=(n, 12)), rng.integers(0, 2, n)]) for n in (90, 70))
    problem = Problem(samples, samples, Mahalanobis(), {"monitor_pairs": 300, "n_workers": 60, "batch_pairs": None})
    alone = fitted(SerialComm(), problem, iterations=3)
    assert learnt(fitted(comm, problem, "uneven", iterations=3)) == learnt(alone)
    learning = Learning(set_up(SerialComm(), samples, alone.config, objective=Mahalanobis()))
    before = learning.state.parameters.copy()
    for _ in learning.run(1):
        pass
    expected = mean_gradient("mahalanobis", before, problem, blocks_of_rounds(alone.config, (90, 70), 1)[0], "refuse")
    np.testing.assert_allclose(learning.state.parameters, before - 0.05 * expected, rtol=1e-12, atol=1e-14)


AS_THEY_LIE = ([5, 12, 0, 20, 16], [9, 7, 8, 0, 14])
"""Block sizes; workers 2 and 3 have no pair."""


def as_is(comm: Any, sizes: tuple[list[int], ...], **options: Any) -> Learning:
    hosted = hosted_workers(len(sizes[0]), comm.size, comm.rank)
    local = []
    for rows, each in zip(PROBLEMS["hinge"].samples, sizes, strict=True):
        bounds = np.concatenate([[0], np.cumsum(each)])
        local.append(rows[: bounds[-1]][bounds[hosted.start] : bounds[hosted.stop]])
    config = LearnConfig(
        **{**DESCENT, "scheme": "as-is", "repartition_every": None, "n_workers": len(sizes[0]), "seed": 3, **options}
    )
    block_sizes = [np.array(each[hosted.start : hosted.stop], dtype=np.int64) for each in sizes]
    return Learning(set_up(comm, local, config, block_sizes=block_sizes))


@pytest.mark.parametrize("empty", ["skip", "zero"])
@pytest.mark.parametrize("batch_pairs", [None, 6])
def test_blocks_as_they_lie_change_no_bit_and_move_nothing(comm: Any, batch_pairs: int | None, empty: str) -> None:
    options = {"batch_pairs": batch_pairs, "empty": empty}
    alone, here = finish(as_is(SerialComm(), AS_THEY_LIE, **options)), finish(as_is(comm, AS_THEY_LIE, **options))
    assert learnt(here) == learnt(alone)
    assert not here.history["rows_moved"].any() and not here.history["bytes_moved"].any()


def test_as_is_takes_the_shards_for_the_workers_blocks(comm: Any) -> None:
    samples = normals(20, 13)
    options = {"scheme": "as-is", "repartition_every": None, "batch_pairs": None, "iterations": 1, "init": "zeros"}
    mine = [rows[comm.rank :: comm.size] for rows in samples]
    fit = learn(comm, *mine, **options, seed=0, learning_rate=1.0)
    blocks = [[rows[i :: comm.size] for rows in samples] for i in range(comm.size)]
    gradients = [by_definition("hinge", np.zeros(4), *all_pairs(*block))[1].mean(axis=0) for block in blocks]
    np.testing.assert_allclose(fit.parameters, -np.mean(gradients, axis=0), rtol=1e-12)
    with pytest.raises(UserError, match="taken as they lie, each rank's points are one worker's"):
        learn(comm, *mine, **options, seed=0, n_workers=comm.size + 1)
    with pytest.raises(UserError, match="as-is has one partition only"):
        learn(comm, *mine, scheme="as-is", seed=0)


# --- the definition


def members(blocks: Blocks, n_rows: int) -> list[NDArray[np.int64]]:
    if isinstance(blocks, Travelling):
        of_base = members(blocks.base, n_rows)
        return [of_base[i] for i in blocks.holding]
    if isinstance(blocks, Ordered):
        assert blocks.order is not None
        return [blocks.order[i:j].copy() for i, j in itertools.pairwise(blocks.bounds.tolist())]
    workers = blocks.workers_of(0, n_rows)
    return [np.flatnonzero(workers == i) for i in range(len(blocks.bounds) - 1)]


def blocks_of_rounds(config: LearnConfig, sizes: Sequence[int], n_rounds: int) -> list[Members]:
    partition = Partition(
        scheme_of(config.scheme),
        sizes,
        config.n_workers,
        Streams(config.seed),
        move=config.move,
        shuffle=config.shuffle,
    )
    rounds = (partition.round(t) for t in range(n_rounds))
    return [[members(each, size) for each, size in zip(blocks, sizes, strict=True)] for blocks in rounds]


def mean_gradient(name: str, theta: Array, problem: Problem, blocks: Members, empty: str) -> Array:
    """The average over workers of the averages over their pairs, summed over the pairings."""
    total, n_contributing = np.zeros(len(theta)), 0
    for i in range(len(blocks[0])):
        local = [rows[of[i]] for rows, of in zip(problem.samples, blocks, strict=True)]
        if all(len(local[a]) and len(local[b]) for a, b in problem.pairings):
            n_contributing += 1
            for a, b in problem.pairings:
                total += by_definition(name, theta, *all_pairs(local[a], local[b]))[1].mean(axis=0)
    return total / (len(blocks[0]) if empty == "zero" else n_contributing)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_step_follows_the_definition(name: str, scheme: str) -> None:
    problem = PROBLEMS[name]
    options = {"l2": 0.03, "decay": 0.25, "momentum": 0.8, "init": "normal", **SCHEMES[scheme], "batch_pairs": None}
    if scheme == "swor":
        options["n_workers"] = 25  # some have no pair, and are left out
    learning = prepared(SerialComm(), name, **options)
    config = learning.training.config
    every = config.repartition_every or config.iterations
    rounds = blocks_of_rounds(config, learning.training.sizes, 1 + config.iterations // every)
    pairs = [[len(of[a][i]) * len(of[b][i]) for a, b in problem.pairings] for of in rounds for i in range(len(of[0]))]
    assert (np.min(pairs) == 0) == (scheme == "swor")
    theta, velocity = learning.state.parameters.copy(), np.zeros(len(learning.state.parameters))
    for t in range(config.iterations):
        gradient = mean_gradient(name, theta, problem, rounds[t // every], config.empty) + 2 * 0.03 * theta
        velocity = 0.8 * velocity + gradient
        theta = theta - 0.05 / (1 + 0.25 * t) * velocity
        for _ in learning.run(t + 1):
            pass
        assert learning.state.iteration == t + 1
        np.testing.assert_allclose(learning.state.parameters, theta, rtol=1e-10, atol=1e-12)
    assert np.abs(theta - prepared(SerialComm(), name, **options).state.parameters).max() > 0.01


def test_workers_without_pairs_are_zero_or_skipped_or_refused() -> None:
    problem, theta = PROBLEMS["hinge"], np.zeros(4)
    for empty in ("zero", "skip"):
        learning = prepared(
            SerialComm(), "hinge", scheme="swor", n_workers=30, empty=empty, init="zeros", batch_pairs=None
        )
        blocks = blocks_of_rounds(learning.training.config, learning.training.sizes, 1)[0]
        lacking = sum(len(x) == 0 or len(z) == 0 for x, z in zip(*blocks, strict=True))
        assert 0 < lacking < 30
        for _ in learning.run(1):
            pass
        expected = mean_gradient("hinge", theta, problem, blocks, empty)
        np.testing.assert_allclose(learning.state.parameters, -0.05 * expected, rtol=1e-12)
    with pytest.raises(UserError, match=f"^{lacking} of 30 workers have no pair"):
        finish(prepared(SerialComm(), "hinge", scheme="swor", n_workers=30, empty="refuse"))
    assert prepared(SerialComm(), "hinge", scheme="swor").training.config.empty == "skip"
    assert prepared(SerialComm(), "hinge").training.config.empty == "refuse"


def test_a_worker_without_a_class_is_refused_everywhere_unless_told(comm: Any) -> None:
    with pytest.raises(UserError, match=r"2 of 5 workers have no pair \(the first is worker 2\)"):
        finish(as_is(comm, AS_THEY_LIE))
    assert finish(as_is(comm, AS_THEY_LIE, empty="skip")).iterations == 9
    for empty in ("refuse", "skip", "zero"):
        with pytest.raises(UserError, match="no worker has a pair|5 of 5 workers have no pair"):
            finish(as_is(comm, ([10, 0, 0, 20, 0], [0, 7, 8, 0, 14]), empty=empty))


class Recorder(LinearRanking):
    """The hinge, keeping the pairs that it is asked about."""

    def __init__(self) -> None:
        super().__init__("hinge")
        self.seen: list[tuple[Array, Array]] = []

    def gradients(self, parameters: Array, x: Array, z: Array) -> Array:
        self.seen.append((x.copy(), z.copy()))
        return super().gradients(parameters, x, z)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sampled_pairs_are_of_the_workers_blocks_and_make_the_step(comm: Any, scheme: str) -> None:
    samples, n_pairs = PROBLEMS["hinge"].samples, 5
    options = {**DESCENT, **SCHEMES[scheme], "iterations": 7, "n_workers": N_WORKERS, "batch_pairs": n_pairs}
    config = LearnConfig(**options, seed=11, l2=0.1, momentum=0.5)
    recorder = Recorder()
    learning = Learning(set_up(comm, shards(comm, samples, "uneven"), config, objective=recorder))
    theta, velocity = learning.state.parameters.copy(), np.zeros(4)
    every = config.repartition_every or config.iterations
    rounds = blocks_of_rounds(config, learning.training.sizes, 1 + config.iterations // every)
    for t in range(config.iterations):
        for _ in learning.run(t + 1):
            pass
        x, z = (np.concatenate(comm.allgather(recorder.seen[t][side])) for side in (0, 1))
        assert x.shape == z.shape == (N_WORKERS, n_pairs, 4)
        for i in range(N_WORKERS):
            for rows, drawn, of in zip(samples, (x, z), rounds[t // every], strict=True):
                block = {row.tobytes() for row in rows[of[i]]}
                assert {row.tobytes() for row in drawn[i]} <= block
        _, gradients = by_definition("hinge", theta, x.reshape(-1, 4), z.reshape(-1, 4))
        velocity = 0.5 * velocity + gradients.reshape(N_WORKERS, n_pairs, 4).mean(axis=1).mean(axis=0) + 0.2 * theta
        theta = theta - 0.05 * velocity
        np.testing.assert_allclose(learning.state.parameters, theta, rtol=1e-10, atol=1e-12)


def test_pairs_are_drawn_uniformly_and_afresh_by_every_worker_and_iteration() -> None:
    from scipy.stats import chi2

    # Both workers have the same number of points, told apart by their first and second coordinates.
    x, z = (np.column_stack([np.arange(n), np.arange(n)]).astype(np.float64) for n in (6, 8))
    n_iterations, n_pairs = 1000, 6
    recorder = Recorder()
    options = {"n_workers": 2, "batch_pairs": n_pairs, "iterations": n_iterations, "learning_rate": 0.0}
    config = LearnConfig(**options, repartition_every=None, eval_every=n_iterations, seed=5)
    finish(Learning(set_up(SerialComm(), (x, z), config, objective=recorder)))
    cells = np.array([[8 * a[:, :, 0] + b[:, :, 0]] for a, b in recorder.seen]).astype(int).reshape(-1, 2, n_pairs)
    assert len(cells) == n_iterations
    for worker in range(2):
        own, counts = np.unique(cells[:, worker], return_counts=True)
        assert len(own) == 12
        statistic = ((counts - n_iterations * n_pairs / 12) ** 2 / (n_iterations * n_pairs / 12)).sum()
        assert 1e-6 < chi2.sf(statistic, 11) < 1 - 1e-6
        # With replacement: 1 - 12!/(6! 12^6) of the batches have a pair twice.
        share = 1 - math.perm(12, 6) / 12**6
        repeats = sum(len(set(batch)) < n_pairs for batch in cells[:, worker].tolist())
        assert abs(repeats - n_iterations * share) < 5 * math.sqrt(n_iterations * share * (1 - share))
        # 12^6 different batches: equal ones are chance, about n²/2·12⁻⁶ = 0.17 of them.
        assert len({tuple(batch) for batch in cells[:, worker].tolist()}) > n_iterations - 5
    ranks = [np.unique(cells[:, worker], return_inverse=True)[1].reshape(-1, n_pairs) for worker in range(2)]
    same = np.count_nonzero(ranks[0] == ranks[1])  # by chance 1 of 12
    n = n_iterations * n_pairs
    assert abs(same - n / 12) < 5 * math.sqrt(n / 12)


def test_initial_parameters_are_standard_normal_or_zeros(comm: Any) -> None:
    from scipy.stats import kstest

    drawn = [prepared(SerialComm(), "hinge", seed=seed).state.parameters for seed in range(100)]
    assert len({each.tobytes() for each in drawn}) == 100
    assert kstest(np.concatenate(drawn), "norm").pvalue > 1e-4
    assert prepared(comm, "hinge", seed=99).state.parameters.tobytes() == drawn[99].tobytes()
    assert not prepared(comm, "hinge", init="zeros").state.parameters.any()
    # At 0 the gradients of metric learning vanish: it starts from the identity.
    assert prepared(comm, "mahalanobis", init="zeros").state.parameters.tolist() == np.eye(3).ravel().tolist()


# --- the optimum


@pytest.mark.parametrize("name", ["squared-hinge", "logistic"])
def test_full_batches_lead_to_the_optimum(name: str) -> None:
    """F is 2λ-strongly convex: w is within ‖∇F(w)‖/2λ of the optimum, and F(w) within ‖∇F(w)‖²/4λ of the least."""
    from scipy.optimize import minimize

    x, z = normals(14, 11, d=3)
    l2 = 0.05
    pairs = all_pairs(x, z)

    def value_and_gradient(w: Array) -> tuple[float, Array]:
        losses, gradients = by_definition(name, w, *pairs)
        return float(losses.mean() + l2 * (w @ w)), gradients.mean(axis=0) + 2 * l2 * w

    options = {"learning_rate": 0.05, "momentum": 0.9, "iterations": 3000, "eval_every": 1000, "n_workers": 1}
    fit = learn(SerialComm(), x, z, loss=name, l2=l2, batch_pairs=None, seed=1, **options)
    least = minimize(value_and_gradient, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9})
    value, gradient = value_and_gradient(fit.parameters)
    assert np.linalg.norm(gradient) < 1e-12
    slack = (np.linalg.norm(gradient) + np.linalg.norm(least.jac)) / (2 * l2)
    assert slack < 1e-6
    np.testing.assert_allclose(fit.parameters, least.x, rtol=0, atol=slack)
    assert value <= least.fun + 1e-14
    if name == "squared-hinge":
        assert fit.history["train_loss"][-1] == pytest.approx(least.fun, rel=1e-12)


def test_full_batches_of_the_hinge_descend_as_fast_as_theory_says() -> None:
    """With μ = 2λ, steps 1/(μ(t+1)) and subgradients up to G, the mean of F is within G²(1 + ln T)/(2μT) of the least.

    Steps of that size keep ‖w‖ ≤ R/μ, R the largest ‖x - z‖, so that G = 2R. The dual bounds the least from below.
    """
    from scipy.optimize import minimize

    rng = np.random.default_rng(8)
    x, z = rng.normal((1.0, 0.0), 0.3, (9, 2)), rng.normal((-0.3, 0.0), 0.3, (8, 2))
    l2, n_iterations = 0.3, 1500
    first, second = all_pairs(x, z)
    differences = first - second

    def dual(alpha: Array) -> tuple[float, Array]:
        pull = differences.T @ alpha
        return float(pull @ pull / (4 * l2) - alpha.sum()), differences @ pull / (2 * l2) - 1.0

    n_pairs = len(differences)
    found = minimize(dual, np.zeros(n_pairs), jac=True, method="L-BFGS-B", bounds=[(0, 1 / n_pairs)] * n_pairs)
    least = -found.fun
    primal = goal("hinge", differences.T @ found.x / (2 * l2), (x, z), ((0, 1),), l2)
    assert least - 1e-12 <= primal < least + 1e-5
    active = found.x > 0
    assert active.any() and not active.all()

    options = {"learning_rate": 1 / (2 * l2), "decay": 1.0, "momentum": 0.0, "eval_every": 1, "n_workers": 1}
    fit = learn(SerialComm(), x, z, l2=l2, batch_pairs=None, seed=1, iterations=n_iterations, **options)
    radius = np.linalg.norm(differences, axis=1).max()
    bound = (2 * radius) ** 2 * (1 + math.log(n_iterations)) / (4 * l2 * n_iterations)
    assert bound < 0.1 < fit.history["train_loss"][0] - least
    losses = fit.history["train_loss"][1:]
    assert (losses >= least - 1e-9).all()
    assert losses.mean() <= primal + bound
    assert losses[-1] <= primal + bound


# --- what is monitored


@pytest.mark.parametrize("name", ["hinge", "squared-hinge", "three classes"])
def test_losses_and_areas_are_over_all_pairs(comm: Any, name: str) -> None:
    problem, l2 = PROBLEMS[name], 0.07
    learning = prepared(comm, name, "uneven", l2=l2, learning_rate=0.3, init="zeros", batch_pairs=5)
    loss = "hinge" if name == "three classes" else name
    n_records = 0
    for record in learning.run():
        n_records += 1
        theta = learning.state.parameters
        if comm.rank > 0:
            assert all(math.isnan(getattr(record, each)) for each in LOSSES)
            continue
        for which, samples in (("train", problem.samples), ("test", problem.tests)):
            expected = goal(loss, theta, samples, problem.pairings, l2)
            assert getattr(record, f"{which}_loss") == pytest.approx(expected, rel=1e-12)
            areas = [area(theta, samples[a], samples[b]) for a, b in problem.pairings]
            assert getattr(record, f"{which}_auc") == pytest.approx(np.mean(areas), abs=1e-12)
    assert n_records == 3
    assert [record.iteration for record in learning.records] == [0, 6, 9]


def test_ties_count_half(comm: Any) -> None:
    rng = np.random.default_rng(3)
    samples = tuple(rng.integers(-2, 3, (n, 2)).astype(np.float64) for n in (30, 40))
    options = {"init": "zeros", "learning_rate": 1.0, "momentum": 0.0, "eval_every": 1, "iterations": 1}
    # A pair a worker, the same for all: the step is a whole number.
    fit = learn(comm, *shards(comm, samples), **options, n_workers=1, batch_pairs=1, seed=2)
    assert fit.history["train_auc"][0] == 0.5
    assert np.count_nonzero(samples[0] @ fit.parameters == (samples[1] @ fit.parameters)[:, None]) > 50
    assert fit.history["train_auc"][1] == area(fit.parameters, *samples)


def refuse_to_gather(*arguments: Any) -> None:
    raise AssertionError("no row is gathered")


@pytest.mark.parametrize("name", ["logistic", "absolute", "mahalanobis"])
def test_other_losses_are_monitored_on_a_fixed_sample_of_pairs(
    comm: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_MOST_TEST_PAIRS", 100)  # of 187 of the logistic loss's test set
    if name == "logistic":  # sampled pairs of scores
        monkeypatch.setattr(monitoring, "_rows_on_master", refuse_to_gather)
    problem, n_pairs = PROBLEMS[name], 20_000
    still = {"learning_rate": 0.0, "init": "normal", "l2": 0.0, "eval_every": 1, "iterations": 2}
    fit = fitted(comm, problem, "uneven", **{**still, "monitor_pairs": n_pairs})
    other = fitted(comm, problem, "uneven", **{**still, "monitor_pairs": n_pairs - 1})
    for which, samples in (("train", problem.samples), ("test", problem.tests)):
        found = fit.history[f"{which}_loss"]
        assert fit.sampled_pairs[which] == n_pairs
        assert len(set(found.tolist())) == 1
        assert found[0] != other.history[f"{which}_loss"][0]
        losses, _ = by_definition(name, fit.parameters, *all_pairs(*samples))
        assert abs(found[0] - losses.mean()) < 5 * losses.std() / math.sqrt(n_pairs)
        areas = fit.history[f"{which}_auc"]
        if name == "logistic":
            assert areas == pytest.approx([area(fit.parameters, *samples)] * 3, abs=1e-12)
        else:
            assert np.isnan(areas).all()


@pytest.mark.parametrize("d", [4, 40])
def test_a_logistic_test_loss_is_over_all_pairs_of_scores(comm: Any, monkeypatch: pytest.MonkeyPatch, d: int) -> None:
    monkeypatch.setattr(monitoring, "_rows_on_master", refuse_to_gather)
    samples, tests = normals(38, 53, d=d), normals(300, 140, d=d)  # of 3 by 2 tiles, cut at the ends
    options = {"loss": "logistic", "iterations": 2, "eval_every": 1, "l2": 0.0, "init": "normal", "seed": 3}
    ours = shards(comm, tests)
    fit = learn(comm, *shards(comm, samples), x_test=ours[0], z_test=ours[1], n_workers=4, **options)
    whole = learn(SerialComm(), *samples, x_test=tests[0], z_test=tests[1], n_workers=4, **options)
    assert fit.history["test_loss"].tolist() == whole.history["test_loss"].tolist()
    expected = goal("logistic", fit.parameters, tests, ((0, 1),), 0.0)
    assert fit.history["test_loss"][-1] == pytest.approx(expected, rel=1e-12)
    assert fit.sampled_pairs == {"train": 450_000, "test": None}


def test_wide_points_are_laid_side_by_side_in_parts(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(comm, PROBLEMS["mahalanobis"], "uneven")
    monkeypatch.setattr(monitoring, "_EXPANDED", 7 * 2 * 4 * 8)  # 7 of 300 pairs of 4 columns at a time
    parts = fitted(comm, PROBLEMS["mahalanobis"], "uneven")
    assert parts.history["train_loss"] == pytest.approx(whole.history["train_loss"], rel=1e-12)


def test_without_a_test_set_there_is_no_test_loss(comm: Any) -> None:
    fit = learn(comm, *shards(comm, normals(20, 20)), n_workers=4, iterations=2, eval_every=1, l2=0.1, seed=0)
    assert np.isnan(fit.history["test_loss"]).all() and np.isnan(fit.history["test_auc"]).all()
    assert np.isfinite(fit.history["train_loss"]).all()


def test_seconds_and_bytes_are_counted_by_phase(comm: Any) -> None:
    n_iterations = 10
    fit = fitted(comm, PROBLEMS["hinge"], iterations=n_iterations, eval_every=3)
    history = fit.history
    assert history["iteration"].tolist() == [0, 3, 6, 9, 10]
    assert {len(values) for values in history.values()} == {5}
    # Each rank sends its workers' gradients, and whether it is to go on, to every other rank.
    reduced = 8 * (4 * N_WORKERS + comm.size) * (comm.size - 1)
    assert history["bytes_reduced"].tolist() == [reduced * t for t in (0, 3, 6, 9, 10)]
    assert (history["bytes_moved"][1:] > 0).all() == (comm.size > 1)
    # A round every other iteration, of nearly all rows.
    assert np.diff(history["rows_moved"]).tolist() != [0] * 4
    rounds = np.array([0, 2, 3, 5, 5])
    assert (history["rows_moved"] <= 91 * rounds).all() and (history["rows_moved"] >= 91 * rounds * 0.6).all()
    for phase in ("repartition", "gradient", "reduce", "evaluate"):
        seconds = history[f"seconds/{phase}"]
        assert (np.diff(seconds) >= 0).all() and seconds[-1] > 0
    assert history["seconds/gradient"][0] == 0.0
    own = {name: values.tobytes() for name, values in history.items()}
    assert comm.allgather(own) == [own] * comm.size


def test_never_moves_once_and_the_smaller_sample_moves_less(comm: Any) -> None:
    moved = {
        name: fitted(comm, PROBLEMS["hinge"], **SCHEMES[name]).history["rows_moved"][-1]
        for name in ("permutation", "the smaller sample only", "never repartitioned")
    }
    assert 0 < moved["never repartitioned"] <= 91
    assert moved["never repartitioned"] < moved["the smaller sample only"] <= 91 + 4 * 38 < moved["permutation"]


@pytest.mark.parametrize("scheme", ["permutation", "matrix", "swor", "prop-swr", "fixed-shuffle"])
def test_rows_that_no_pair_uses_stay_where_they_are(comm: Any, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # 7 workers use 3 of their 7 or 8 points of one sample and, of the other, 3 of 5 or 6: too many for this.
    options = {**SCHEMES[scheme], "repartition_every": 1, "batch_pairs": 3, "n_workers": 7}
    problem = PROBLEMS["hinge"]
    assert prepared(comm, "hinge", **options).training.sparse == (True, False)
    sparse = fitted(comm, problem, **options)
    monkeypatch.setattr("mpi_ustat.learning.training.used_sparsely", lambda *_: (False, False))
    whole = fitted(comm, problem, **options)
    assert learnt(sparse) == learnt(whole)
    if scheme == "matrix":  # every rank knows the places of its own rows only
        assert sparse.history["bytes_moved"].tolist() == whole.history["bytes_moved"].tolist()
    else:
        assert (sparse.history["rows_moved"][1:] < 0.9 * whole.history["rows_moved"][1:]).all()
        assert comm.size == 1 or (sparse.history["bytes_moved"][1:] < whole.history["bytes_moved"][1:]).all()


# --- stopping, and going on


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ten_steps_and_ten_more_are_twenty(comm: Any, scheme: str) -> None:
    cases = (("hinge", 6), ("mahalanobis", None), ("three classes", 4), ("squared-hinge", None))
    name, batch_pairs = cases[list(SCHEMES).index(scheme) % len(cases)]
    options = {**SCHEMES[scheme], "batch_pairs": batch_pairs, "iterations": 20, "decay": 0.1, "eval_every": 4}
    whole = learnt(finish(prepared(SerialComm(), name, **options)))
    # From this number of ranks to one, and from one to this number.
    for before, after in ((comm, SerialComm()), (SerialComm(), comm)):
        interrupted = prepared(before, name, "uneven", **options)
        for _ in interrupted.run(10):
            pass
        snapshot = comm.bcast(interrupted.snapshot())
        assert int(snapshot["iteration"]) == 10
        resumed = prepared(after, name, **options)
        resumed.restore(snapshot)
        assert learnt(finish(resumed)) == whole
        # The state handed out is a copy.
        assert snapshot["parameters"].tobytes() == interrupted.state.parameters.tobytes() != whole["parameters"]


def test_ten_exact_steps_and_ten_more_are_twenty(comm: Any) -> None:
    x, z = shards(comm, (POSITIVES, NEGATIVES))
    # The step of the shorter run's end is evaluated too, which the longer one would not do.
    short = Learning(set_up(comm, (x, z), LearnConfig(**EXACT, iterations=10)))
    assert finish(short).history["iteration"].tolist() == [0, 10]
    np.testing.assert_allclose(short.state.parameters, STEPS[10], rtol=0, atol=1e-12)
    long = Learning(set_up(comm, (x, z), LearnConfig(**EXACT, iterations=20)))
    long.restore(short.snapshot())
    whole = learn(comm, x, z, **EXACT, iterations=20)
    assert learnt(finish(long)) == learnt(whole)
    np.testing.assert_allclose(whole.parameters, STEPS[20], rtol=0, atol=1e-12)


def test_a_finished_run_goes_on_to_the_same_result(comm: Any) -> None:
    first = prepared(comm, "hinge")  # 9 iterations, evaluated every 6
    whole = learnt(finish(first))
    again = prepared(comm, "hinge")
    again.restore(first.snapshot())
    assert learnt(finish(again)) == whole


def test_counters_go_on_after_an_interruption(comm: Any) -> None:
    options = {"iterations": 20, "repartition_every": 5, "eval_every": 5}
    whole = finish(prepared(comm, "hinge", **options))
    first = prepared(comm, "hinge", **options)
    for _ in first.run(10):
        pass
    second = prepared(comm, "hinge", **options)
    second.restore(first.snapshot())
    resumed = finish(second)
    for name in ("bytes_moved", "bytes_reduced", "rows_moved"):
        assert resumed.history[name].tolist() == whole.history[name].tolist()
    for name in (name for name in whole.history if name.startswith("seconds/")):
        assert (np.diff(resumed.history[name]) >= 0).all()


@pytest.mark.parametrize("iteration", [0, 5, 7])
@pytest.mark.parametrize("move", ["both", "smaller"])
def test_an_interrupted_step_is_counted_once(comm: Any, iteration: int, move: str) -> None:
    class Interrupted(Absolute):
        iteration = -1

        def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
            if learning.state.iteration == self.iteration:
                raise KeyboardInterrupt
            return super().pairs(parameters, x, z)

    def begun() -> Learning:
        config = LearnConfig(n_workers=N_WORKERS, batch_pairs=5, iterations=15, repartition_every=5, move=move, seed=1)
        return Learning(set_up(comm, shards(comm, normals(40, 24)), config, objective=Interrupted()))

    learning = begun()
    whole = finish(learning)
    learning = begun()
    for _ in learning.run(iteration):
        pass
    Interrupted.iteration = iteration
    with pytest.raises(KeyboardInterrupt):
        finish(learning)
    Interrupted.iteration = -1
    snapshot = learning.snapshot()
    learning = begun()
    learning.restore(snapshot)
    resumed = finish(learning)
    for name in ("bytes_moved", "bytes_reduced", "rows_moved"):
        assert resumed.history[name].tolist() == whole.history[name].tolist()


@pytest.mark.parametrize("asker", [0, -1])
def test_when_one_rank_asks_all_stop_after_that_step(comm: Any, asker: int) -> None:
    options = {"iterations": 20, "eval_every": 4}
    learning = prepared(comm, "hinge", **options)
    learning.stop_requested = lambda: comm.rank == asker % comm.size and learning.state.iteration == 5
    fit = finish(learning)
    assert (fit.stopped, fit.iterations) == (True, 6)
    assert fit.history["iteration"].tolist() == [0, 4, 6]
    assert fit.parameters.tobytes() == fitted(SerialComm(), PROBLEMS["hinge"], iterations=6).parameters.tobytes()
    resumed = prepared(comm, "hinge", **options)
    resumed.restore(learning.snapshot())
    assert learnt(finish(resumed)) == learnt(fitted(SerialComm(), PROBLEMS["hinge"], **options))


# --- what fails, fails on all ranks


@pytest.mark.parametrize("batch_pairs", [None, 5])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_a_diverging_descent_stops_on_all_ranks(comm: Any, loss: str, batch_pairs: int | None) -> None:
    options = {"loss": loss, "batch_pairs": batch_pairs, "learning_rate": 1e308, "monitor_pairs": 50}
    with pytest.raises(DivergedError) as caught:
        fitted(comm, PROBLEMS["hinge"], **options, iterations=50)
    alone: list[int] = []
    try:
        fitted(SerialComm(), PROBLEMS["hinge"], **options, iterations=50)
    except DivergedError as error:
        alone.append(error.iteration)
    assert alone == [caught.value.iteration]
    assert str(caught.value).startswith(f"diverged at iteration {alone[0]}: ")
    assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size


def test_the_iteration_of_a_divergence(comm: Any) -> None:
    x, z = shards(comm, (POSITIVES, NEGATIVES))
    with pytest.raises(DivergedError, match="diverged at iteration 1: "):  # (2, -1) times 1e308
        learn(comm, x, z, **{**EXACT, "learning_rate": 1e308})
    # The first step, of 2e307, leaves no pair with a loss, but the momentum goes on: w_t = 2e307 (1 - μ^t)/(1 - μ).
    least = next(t for t in range(100) if 2e307 * (1 - 0.9**t) / 0.1 > np.finfo(np.float64).max)
    assert least > 20
    with pytest.raises(DivergedError, match=f"diverged at iteration {least}: "):
        learn(comm, x, z, **{**EXACT, "learning_rate": 1e307})
    fit = learn(comm, x, z, **{**EXACT, "learning_rate": 1e307}, iterations=least - 1)
    assert np.isfinite(fit.parameters).all()


class Nines(PairObjective):
    """A linear hinge that fails where it meets a 9, in the way and the method that it is told."""

    name = "nines"

    def __init__(self, method: str, failure: object) -> None:
        self.method = method
        self.failure = failure
        self.hinge = LinearRanking("hinge")

    def n_parameters(self, n_columns: int) -> int:
        return n_columns

    def _fails(self, method: str, rows: Array) -> bool:
        if method != self.method or not (rows == 9.0).any():
            return False
        if isinstance(self.failure, BaseException):
            raise self.failure
        return True

    def pairs(self, parameters: Array, x: Array, z: Array) -> Any:
        return self.failure if self._fails("pairs", x) else self.hinge.pairs(parameters, x, z)

    def scores(self, parameters: Array, rows: Array) -> Any:
        return self.failure if self._fails("scores", rows) else self.hinge.scores(parameters, rows)

    def scored_loss(self, positive: Array, negative: Array) -> Any:
        if self.method == "scored_loss" and len(positive) > 1:
            if isinstance(self.failure, BaseException):
                raise self.failure
            return self.failure
        return self.hinge.scored_loss(positive, negative)


FAILURES: dict[str, tuple[object, str]] = {
    "an exception": (ZeroDivisionError("nine is not for me"), "ZeroDivisionError: nine is not for me"),
    "a user error": (UserError("no nines: take eights"), "no nines: take eights"),
    "an exit": (SystemExit(0), "SystemExit: 0"),
    "an interrupt": (KeyboardInterrupt(), "on all ranks"),
    "NaN": (np.nan, "returned"),
    "nothing": (None, "the objective nines"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("method", ["pairs", "scores", "scored_loss"])
def test_an_objective_that_fails_on_one_rank_fails_on_all(comm: Any, method: str, failure: str) -> None:
    outcome, sentence = FAILURES[failure]
    if failure == "nothing" and method != "pairs":
        pytest.skip("None says that there are no scores")
    if failure == "NaN":
        outcome = {"pairs": (1.0, np.full(3, np.nan)), "scores": np.full(99, np.nan), "scored_loss": np.nan}[method]
    samples = normals(20, 16, d=3)
    samples[0][-1, 0] = 9.0
    for batch_pairs in (None, 400):
        options = {"n_workers": 4, "batch_pairs": batch_pairs, "init": "zeros", "iterations": 3, "seed": 1}
        with pytest.raises(KeyboardInterrupt if failure == "an interrupt" else UserError) as caught:
            learn(comm, *shards(comm, samples), Nines(method, outcome), **options)
        assert sentence in str(caught.value)
        assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size
        with pytest.raises(type(caught.value)) as alone:  # the same sentence, whichever rank met it, but for its rows
            learn(SerialComm(), *samples, Nines(method, outcome), **options)
        assert re.sub(r"\d+", "", str(caught.value)) == re.sub(r"\d+", "", str(alone.value))
        # All ranks are still in step.
        fit = learn(comm, *shards(comm, samples), Nines("none", None), **options)
        assert learnt(fit) == learnt(learn(SerialComm(), *samples, Nines("none", None), **options))


def test_a_sum_over_scores_that_always_fails_is_a_users_error(comm: Any) -> None:
    class Hopeless(Nines):
        def scored_loss(self, positive: Array, negative: Array) -> Any:
            raise ZeroDivisionError("hopeless")

    with pytest.raises(UserError, match="ZeroDivisionError: hopeless"):
        learn(comm, *shards(comm, normals(20, 16, d=3)), Hopeless("none", None), n_workers=4, iterations=2, seed=1)


def broken(kind: str, comm: Any) -> tuple[Any, Any]:
    """Points of which only the last rank's are wrong."""
    x, z = (rows.copy() for rows in shards(comm, normals(20, 16)))
    if comm.rank == comm.size - 1:
        if kind in ("nan", "inf"):
            z[1, 2] = float(kind)
        elif kind == "text":
            return x.astype(str), z
        elif kind == "columns":
            x = x[:, :3] if comm.size > 1 else x[:, :0]
        elif kind == "dimensions":
            x = x[None]
    if kind == "samples":
        z = z[:, :2]
    return (x[:0], z) if kind == "empty" else (x, z)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("nan", "of the sample 1, counted from 0, holds NaN"),
        ("inf", "of the sample 1, counted from 0, holds an infinite value"),
        ("text", "pass real numbers"),
        ("columns", "different"),
        ("dimensions", "has 3 dimensions"),
        ("samples", "different numbers of columns"),
        ("empty", "training sample 0 has no points"),
    ],
)
def test_points_of_one_rank_that_cannot_be_used_are_refused_by_all(comm: Any, kind: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        learn(comm, *broken(kind, comm), n_workers=4, iterations=2, seed=0)
    assert sentence in str(caught.value)
    lengths = comm.allgather(len(broken(kind, comm)[1]))
    if kind in ("nan", "inf"):  # the row among those of all ranks
        assert str(caught.value).startswith(f"row {sum(lengths[:-1]) + 1} of the sample 1, ")
    assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size


@pytest.mark.parametrize("kind", ["nan", "inf", "columns"])
def test_test_points_are_checked_too(comm: Any, kind: str) -> None:
    x, z = broken(kind, comm)
    train = shards(comm, normals(20, 16))
    with pytest.raises(UserError):
        learn(comm, *train, x_test=x, z_test=z, n_workers=4, iterations=2, seed=0)


def test_an_empty_shard_need_not_know_how_many_columns_the_others_have(comm: Any) -> None:
    x, z = (rows if len(rows) else np.empty(0) for rows in shards(comm, PROBLEMS["hinge"].samples, "apart"))
    fit = learn(comm, x, z, n_workers=N_WORKERS, seed=SEED, **DESCENT)
    alone = learn(SerialComm(), *PROBLEMS["hinge"].samples, n_workers=N_WORKERS, seed=SEED, **DESCENT)
    assert learnt(fit) == learnt(alone)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "loss": ({"loss": "hinges"}, "loss"),
    "scheme": ({"scheme": "prop"}, "scheme is 'prop'"),
    "move": ({"move": "none"}, "move is 'none'"),
    "move without prop-swor": ({"scheme": "swor", "move": "smaller"}, "moves all samples"),
    "shuffle": ({"shuffle": "cards"}, "shuffle is 'cards'"),
    "empty": ({"empty": "fill"}, "empty is 'fill'"),
    "init": ({"init": "ones"}, "initialisation is 'ones'"),
    "no pairs": ({"batch_pairs": 0}, "pairs per worker is 0"),
    "half a pair": ({"batch_pairs": 0.5}, "pairs per worker is 0.5"),
    "no workers": ({"n_workers": 0}, "number of workers is 0"),
    "too many workers": ({"n_workers": 39}, "39 workers can't each have a point of a sample of 38"),
    "no iterations": ({"iterations": 0}, "iterations is 0"),
    "true iterations": ({"iterations": True}, "iterations is True"),
    "no evaluation": ({"eval_every": 0}, "eval every is 0"),
    "no monitored pairs": ({"monitor_pairs": 0}, "monitor pairs is 0"),
    "repartition every 0": ({"repartition_every": 0}, "between repartitions is 0"),
    "negative rate": ({"learning_rate": -0.1}, "learning rate is -0.1"),
    "infinite rate": ({"learning_rate": math.inf}, "learning rate is inf"),
    "nan rate": ({"learning_rate": math.nan}, "learning rate is nan"),
    "negative decay": ({"decay": -1.0}, "decay is -1.0"),
    "negative penalty": ({"l2": -1e-9}, "l2 is -1e-09"),
    "momentum 1": ({"momentum": 1.0}, "momentum is 1.0: give a number of at least 0 and below 1"),
    "negative momentum": ({"momentum": -0.1}, "momentum is -0.1"),
    "negative seed": ({"seed": -1}, "seed is -1"),
    "large seed": ({"seed": 2**63}, "below 2^63"),
    "no such objective": ({"objective": "quadratic"}, "there is no objective 'quadratic'"),
    "no such module": ({"objective": "not_there:f"}, "can't be imported"),
    "not an objective": ({"objective": 3.0}, "no method n_parameters"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_impossible_option_is_refused_by_name(comm: Any, name: str) -> None:
    options, sentence = OPTIONS[name]
    with pytest.raises(UserError) as caught:
        learn(comm, *shards(comm, PROBLEMS["hinge"].samples), **{"n_workers": 4, "iterations": 2, "seed": 1, **options})
    assert sentence in str(caught.value)


# --- small things


def test_the_seed_is_drawn_once_and_kept(comm: Any) -> None:
    samples = shards(comm, PROBLEMS["hinge"].samples)
    options = {"n_workers": N_WORKERS, "iterations": 4}
    first, second = learn(comm, *samples, **options), learn(comm, *samples, **options)
    assert len(set(comm.allgather(first.config.seed))) == 1
    assert first.config.seed != second.config.seed
    assert learnt(learn(comm, *samples, **options, seed=first.config.seed)) == learnt(first)


def test_the_workers_are_the_ranks_unless_told(comm: Any) -> None:
    fit = learn(comm, *shards(comm, PROBLEMS["hinge"].samples), iterations=1, seed=0)
    assert (fit.config.n_workers, fit.n_ranks, fit.sizes) == (comm.size, comm.size, (53, 38))
    assert LearnConfig(**fit.config.to_json()) == fit.config


def test_the_callers_arrays_stay_as_they_are_and_may_be_read_only(comm: Any) -> None:
    options = {"n_workers": N_WORKERS, **DESCENT, "iterations": 2, "seed": 1}
    ways = [SCHEMES["permutation"], SCHEMES["matrix"], {"scheme": "as-is", "n_workers": comm.size}]
    for (name, problem), batch_pairs in itertools.product(PROBLEMS.items(), (None, 5)):
        local = [rows.copy() for rows in shards(comm, problem.samples)]
        before = [rows.tobytes() for rows in local]
        for rows in local:
            rows.flags.writeable = False
        for way in ways:
            asked = {**options, **problem.options, "repartition_every": None, "batch_pairs": batch_pairs, **way}
            learn_samples(comm, local, problem.objective, pairings=problem.pairings, **asked)
        assert [rows.tobytes() for rows in local] == before, name


def test_whole_numbers_and_single_columns_are_points_too(comm: Any) -> None:
    x, z = np.arange(3, 12), np.array([5, 1, 2, 4, 7])
    options = {"n_workers": 3, "iterations": 5, "seed": 2}
    flat = learn(comm, *shards(comm, (x, z)), **options)
    column = learn(SerialComm(), x[:, None].astype(np.float64), z[:, None].astype(np.float64), **options)
    assert flat.parameters.shape == (1,)
    assert learnt(flat) == learnt(column)


def test_a_function_is_an_objective(comm: Any) -> None:
    def hinge(w: Array, x: Array, z: Array) -> tuple[float, Array]:
        losses, gradients = by_definition("hinge", w, x, z)
        return float(losses.sum()), gradients.sum(axis=0)

    samples = shards(comm, PROBLEMS["hinge"].samples)
    options: dict[str, Any] = {"n_workers": N_WORKERS, "seed": 4, **DESCENT, "batch_pairs": None}
    call: Callable[..., Fit] = learn
    found, expected = (call(comm, *samples, objective, **options) for objective in (hinge, "linear"))
    np.testing.assert_allclose(found.parameters, expected.parameters, rtol=1e-10)
    assert found.config.objective == "hinge"


# --- the state


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_maps_a_state_to_the_next_and_leaves_it_as_it_was(comm: Any, scheme: str) -> None:
    learning = prepared(comm, "hinge", **{"empty": "skip", **SCHEMES[scheme]})
    for _ in learning.run(4):
        pass
    state = learning.state
    before = (state.parameters.tobytes(), state.velocity.tobytes(), state.counters.tolist(), state.empty_workers)
    nexts = [step(learning.training, state, learning.clock, lambda: False) for _ in range(2)]
    assert [each.iteration for each in nexts] == [5, 5]
    assert nexts[0].parameters.tobytes() == nexts[1].parameters.tobytes() != before[0]
    after = (state.parameters.tobytes(), state.velocity.tobytes(), state.counters.tolist(), state.empty_workers)
    assert (state.iteration, after) == (4, before)
