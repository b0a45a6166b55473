"""Estimates by rotation: how far they are from the complete statistic, when they are it, and what moves.

Given the data, an estimate over random partitions has the mean U_n. So E(Û - U_n)² = Var(Û) - Var(U_n), the *excess*,
which is simulated as it stands: a difference of two simulated variances would be lost in their errors.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import paper_variances as reference
import pytest
from numpy.typing import NDArray

from mpi_ustat import SerialComm, estimate, estimate_samples
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.estimation.rounds import step
from mpi_ustat.inference.components import subsets
from mpi_ustat.kernels.kernel import Kernel, OnePart, Points
from mpi_ustat.kernels.product import Product
from mpi_ustat.paper.models import Components
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]

LIMIT = 4.5
"""Standard errors: with normal limits one check refuses a right formula with probability 7·10⁻⁶."""

ROUNDS = (1, 2, 4, 8)
N_WORKERS = 8
MEANS = (0.3, 0.2)


class ProductOfThree(OnePart):
    """h(x, y, z) = x·y·z of three samples of numbers."""

    name = "product of three"
    degrees = (1, 1, 1)
    n_coordinates = 1

    def block_total(self, *blocks: Points) -> float:
        return math.prod(float(block.sum()) for block in blocks)

    def pairs_total(self, *points: Points) -> float:
        return float(np.prod(points, axis=0).sum())


@functools.cache
def simulated(
    make: type[Kernel], scheme: str, means: tuple[float, ...], sizes: tuple[int, ...], n_workers: int, n_runs: int
) -> tuple[Floats, Floats]:
    """Return Û_T - U_n after T = 1 … N rounds, shape (runs, N), and U_n, of products of normal numbers."""
    rng = np.random.default_rng([*sizes, n_workers])
    config = EstimateConfig(kernel="", scheme=scheme, n_workers=n_workers, n_rounds=n_workers, seed=3, stderr=False)
    differences, complete = np.empty((n_runs, n_workers)), np.empty(n_runs)
    for r in range(n_runs):
        samples = [rng.normal(mean, 1.0, size) for mean, size in zip(means, sizes, strict=True)]
        complete[r] = math.prod(float(sample.mean()) for sample in samples)
        sums = [
            each.sums.parts
            for each in run(Estimation(set_up(SerialComm(), samples, config, kernel=make(), replicate=r)))
        ]
        totals, counts = np.array([(float(part.total), part.n_pairs) for (part,) in sums]).T
        differences[r] = totals.cumsum() / counts.cumsum() - complete[r]
    return differences, complete


def check_mean(values: Floats, expectation: float) -> None:
    """Refuse an expectation that is `LIMIT` standard errors or more from the mean of independent values."""
    assert abs(values.mean() - expectation) < LIMIT * values.std(ddof=1) / math.sqrt(len(values))


# ---------------------------------------------------------------------------------------------------------------------
# The excess over the complete statistic


@pytest.mark.parametrize("n_rounds", ROUNDS)
@pytest.mark.parametrize("sizes", [(24, 16), (27, 17), (9, 31)], ids=str)
def test_the_excess_of_two_samples_is_that_of_the_formula(sizes: tuple[int, int], n_rounds: int) -> None:
    differences, complete = simulated(Product, "rotation", MEANS, sizes, N_WORKERS, 300)
    found = differences[:, n_rounds - 1]
    components = Components(MEANS[1] ** 2, MEANS[0] ** 2, 1.0)
    blocks = [np.diff(block_bounds(size, N_WORKERS)) for size in sizes]
    if sizes[0] < sizes[1]:  # the smaller sample moves; in the formula it is the second
        components, blocks = Components(MEANS[0] ** 2, MEANS[1] ** 2, 1.0), blocks[::-1]
    excess = reference.variance_rotation(components, *blocks, n_rounds)
    excess -= reference.variance_complete(components, max(sizes), min(sizes))
    if sizes == (24, 16):
        assert excess == pytest.approx((N_WORKERS / n_rounds - 1) / (24 * 16), abs=1e-15)
    if n_rounds == N_WORKERS:
        assert excess == pytest.approx(0.0, abs=1e-15)
        np.testing.assert_allclose(found, 0.0, rtol=0, atol=1e-14)
        return
    check_mean(found**2, excess)
    check_mean(found, 0.0)
    # Uncorrelated with U_n, so that the excess is the excess of the variance.
    check_mean(found * (complete - MEANS[0] * MEANS[1]), 0.0)


def test_rotation_is_between_the_complete_statistic_and_prop_swor() -> None:
    """Half of the pairs, met once each, against as many that are met by chance: 1 to 7/4 in reference."""
    sizes = (24, 16)
    by_rotation, by_chance = (
        simulated(Product, scheme, MEANS, sizes, N_WORKERS, 300)[0][:, 3] ** 2 for scheme in ("rotation", "prop-swor")
    )
    check_mean(by_chance, (N_WORKERS - 1) / (4 * 24 * 16))
    check_mean(by_chance - 7 / 4 * by_rotation, 0.0)
    assert by_rotation.mean() < by_chance.mean()


def test_the_excess_of_three_samples_is_of_third_order_only() -> None:
    """N = T = 5: every two blocks of two samples meet, each triple of blocks in one of five cases."""
    means, n_workers, sizes = (1.0, 0.5, 0.7), 5, (10, 10, 10)
    exact = {"rotation": 0.0, "prop-swor": 0.0}
    for chosen in subsets(3):
        component = math.prod(means[k] ** 2 for k in range(3) if k not in chosen) / 10 ** len(chosen)
        exact["prop-swor"] += component * (n_workers ** (len(chosen) - 1) - 1) / n_workers
        exact["rotation"] += component * (n_workers**2 / n_workers - 1) * (len(chosen) == 3)
    assert exact["rotation"] == pytest.approx(0.0040) and exact["prop-swor"] == pytest.approx(0.01872)
    squares = {}
    for scheme, excess in exact.items():
        differences, _ = simulated(ProductOfThree, scheme, means, sizes, n_workers, 600)
        squares[scheme] = differences[:, -1] ** 2
        check_mean(squares[scheme], excess)
    # Of the same samples: their difference in each run is what is known best.
    check_mean(squares["prop-swor"] / 4 - squares["rotation"], exact["prop-swor"] / 4 - exact["rotation"])
    assert exact["rotation"] < exact["prop-swor"] / 4


# ---------------------------------------------------------------------------------------------------------------------
# When it is complete


def mine(comm: Any, rows: Floats) -> Floats:
    bounds = block_bounds(len(rows), comm.size)
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


@pytest.mark.parametrize("sizes", [(24, 16), (23, 9), (7, 30), (11, 11)], ids=str)
def test_as_many_rounds_as_workers_give_the_auc_bit_for_bit(comm: Any, sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes)
    x, z = (rng.integers(0, 8, size) / 4.0 for size in sizes)
    wins = np.count_nonzero(z[:, None] < x) * 2 + np.count_nonzero(z[:, None] == x)
    exact = float(Fraction(int(wins), 2 * math.prod(sizes)))
    for n_workers in (1, 2, 3, 5, 7):
        options: dict[str, Any] = {"scheme": "rotation", "n_workers": n_workers, "n_rounds": n_workers, "seed": 2}
        result = estimate(comm, mine(comm, x), mine(comm, z), "auc", **options)
        assert result.value == exact
        assert result.n_evaluations == math.prod(sizes)
        assert result.config.aggregate == "pooled"
        sampled = estimate(comm, mine(comm, x), mine(comm, z), n_pairs=10**6, distinct=True, stderr=False, **options)
        assert sampled.value == pytest.approx(exact, rel=1e-14)  # all pairs of every block, weighted by their number
    # The mean of local averages gives points of small blocks more weight.
    if any(size % 5 for size in sizes):
        averaged = estimate(
            comm, mine(comm, x), mine(comm, z), **{**options, "n_workers": 5, "n_rounds": 5}, aggregate="mean"
        )
        assert averaged.value != exact


@pytest.mark.parametrize("n", [24, 23, 17])
@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 5, 8])
def test_half_as_many_rounds_of_one_sample_are_complete(comm: Any, n_workers: int, n: int) -> None:
    rng = np.random.default_rng([n, n_workers])
    points = np.column_stack([rng.integers(0, 6, n), rng.integers(0, 6, n)]).astype(np.float64)
    numbers = rng.normal(size=n)
    options: dict[str, Any] = {"scheme": "rotation", "n_workers": n_workers, "seed": 2}
    i, j = np.triu_indices(n, 1)
    signs = np.sign(points[i] - points[j]).prod(axis=1)
    for n_rounds in range(1, n_workers // 2 + 2):
        tau = estimate(
            comm, mine(comm, points), kernel="kendall", n_rounds=n_rounds, kernel_options={"tau": "a"}, **options
        )
        gini = estimate(comm, mine(comm, numbers), kernel="gini", n_rounds=n_rounds, **options)
        complete = n_rounds == n_workers // 2 + 1
        assert (tau.n_evaluations == math.comb(n, 2)) == (gini.n_evaluations == math.comb(n, 2)) == complete
    assert tau.value == float(Fraction(int(signs.sum()), math.comb(n, 2)))
    assert gini.value == pytest.approx(float(np.mean(np.abs(numbers[i] - numbers[j]))), rel=1e-12)
    whole = estimate(comm, mine(comm, numbers), kernel="gini", complete=True, seed=0)
    assert gini.value == pytest.approx(whole.value, rel=1e-12)
    # So is the standard error: that of the complete statistic, from what the blocks say about the components.
    for result in (tau, gini):
        assert result.error is not None and result.error.components is not None
        zeta1, delta = result.error.components[:, 0, 0].tolist()
        assert result.covariance == pytest.approx(4 * zeta1 / n + 2 * delta / (n * (n - 1)), rel=1e-9, abs=1e-15)


def test_three_samples_are_complete_when_every_three_blocks_have_met(comm: Any) -> None:
    rng = np.random.default_rng(5)
    classes = [rng.integers(0, 9, size).astype(np.float64) for size in (7, 5, 8)]
    mine_ = [mine(comm, rows) for rows in classes]
    a, b, c = np.meshgrid(*classes)
    exact = np.count_nonzero((a < b) & (b < c)) / a.size
    for n_workers in (1, 2, 3, 4):
        options: dict[str, Any] = {"scheme": "rotation", "n_workers": n_workers, "n_rounds": n_workers**2, "seed": 1}
        result = estimate_samples(comm, mine_, "vus", **options)
        assert result.value == exact and result.n_evaluations == a.size


# ---------------------------------------------------------------------------------------------------------------------
# What moves


def test_a_round_moves_the_smaller_sample_once(comm: Any) -> None:
    rng = np.random.default_rng(1)
    for n, m in ((40, 24), (23, 45)):
        x, z = rng.normal(size=n), rng.normal(size=m)
        options: dict[str, Any] = {"scheme": "rotation", "n_workers": 6, "n_rounds": 6, "seed": 4}
        result = estimate(comm, mine(comm, x), mine(comm, z), **options)
        assert result.rows_moved[1:].tolist() == [min(n, m)] * 5
        assert (result.bytes_moved[1:].sum() > 0) == (comm.size > 1)
        assert (result.bytes_moved[1:] <= 8 * min(n, m)).all()
    single = estimate(comm, mine(comm, x), kernel="gini", scheme="rotation", n_workers=6, n_rounds=4, seed=4)
    assert single.rows_moved[1:].tolist() == [len(x)] * 3


def test_prop_swor_moves_nearly_all_of_both() -> None:
    n, m, n_workers, n_rounds = 40, 23, 6, 400
    rng = np.random.default_rng(2)
    samples = rng.normal(size=n), rng.normal(size=m)
    options: dict[str, Any] = {"n_workers": n_workers, "seed": 4, "stderr": False}
    moved = estimate(SerialComm(), *samples, n_rounds=n_rounds, **options).rows_moved.astype(np.float64)
    # A row stays with probability Σ_i (n_i/n)²: 1/N if N divides n.
    stays = sum(float((np.diff(block_bounds(size, n_workers)) ** 2).sum()) / size for size in (n, m))
    assert n + m - stays == pytest.approx((1 - 1 / n_workers) * (n + m), abs=0.2)
    check_mean(moved, n + m - stays)
    first = [
        estimate(SerialComm(), *samples, scheme="rotation", **{**options, "seed": seed}).rows_moved[0]
        for seed in range(300)
    ]
    check_mean(np.array(first, dtype=np.float64), n + m - stays)


@pytest.mark.parametrize("scheme", ["prop-swor", "rotation"])
def test_a_step_maps_a_state_to_the_next_and_leaves_it_as_it_was(comm: Any, scheme: str) -> None:
    x, z = np.random.default_rng(3).normal(size=(2, 24))
    config = EstimateConfig(kernel="product", scheme=scheme, n_workers=4, n_rounds=3, seed=2)
    estimation = Estimation(set_up(comm, (mine(comm, x), mine(comm, z)), config))
    first = estimation.step()
    state = estimation.state
    nexts = [step(estimation.problem, state, estimation.clock) for _ in range(2)]
    assert [len(each.rounds) for each in nexts] == [2, 2]
    assert nexts[0].rounds[1].sums == nexts[1].rounds[1].sums != first.sums
    assert state.rounds == (first,) and all(each.rounds[0] is first for each in nexts)
