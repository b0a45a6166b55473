"""Closed-form variances against simulation, scheme by scheme and estimator by estimator.

Each cell draws R independent runs of an estimator with NumPy alone. It accepts if the empirical variance is within 4
of its standard errors √[(μ₄ - σ⁴ (R - 3)/(R - 1))/R] of the formula, and the empirical mean within 4 of its own of the
expectation. With normal limits either check refuses a right formula with probability 6·10⁻⁵, all the cells together
with probability below 5 %; the seeds are fixed, so that what has passed passes again. R = 10⁴ for a third of the cells,
and 10⁵ (marked slow) for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from paper_variances import variance
from references import normal_half_square

from mpi_ustat.paper import models
from mpi_ustat.paper.models import Components
from mpi_ustat.schemes import one_sample
from mpi_ustat.schemes.swor import swor_bias_factor

Array = NDArray[Any]
CHUNK = 10_000


def standard_error_of_variance(values: Array) -> float:
    runs = len(values)
    spread = values.var(ddof=1)
    fourth = ((values - values.mean()) ** 4).mean()
    return float(np.sqrt((fourth - spread**2 * (runs - 3) / (runs - 1)) / runs))


def distance(values: Array, formula: float) -> float:
    """Return how many standard errors lie between the empirical variance and the formula."""
    return float(abs(values.var(ddof=1) - formula) / standard_error_of_variance(values))


def mean_distance(values: Array, expectation: float) -> float:
    return float(abs(values.mean() - expectation) / (values.std(ddof=1) / np.sqrt(len(values))))


# ---------------------------------------------------------------------------------------------------------------------
# Kernels of the form c₀ + c₁ a(x) b(z): a complete statistic on a block is c₀ + c₁ ā b̄


@dataclass(frozen=True)
class Kernel:
    name: str
    constant: float
    factor: float
    expectation: float
    components: Components
    draw: Callable[[np.random.Generator, int, int], tuple[Array, Array]]
    """(rng, runs, size) → values a of x-points and b of z-points."""

    def sample(self, rng: np.random.Generator, runs: int, n: int, m: int) -> tuple[Array, Array]:
        return self.draw(rng, runs, n)[0], self.draw(rng, runs, m)[1]


def product_kernel(mean_x: float, mean_z: float) -> Kernel:
    expectation, components = models.normal_product(mean_x, mean_z)

    def draw(rng: np.random.Generator, runs: int, size: int) -> tuple[Array, Array]:
        values = rng.standard_normal((runs, size))
        return values + mean_x, values + mean_z

    return Kernel("product", 0.0, 1.0, expectation, components, draw)


def auc_kernel(epsilon: float) -> Kernel:
    """1{z < x} in the two-point model is 1 - 1{X = 0} 1{Z = 1}."""
    expectation, components = models.two_point_auc(epsilon)

    def draw(rng: np.random.Generator, runs: int, size: int) -> tuple[Array, Array]:
        values = (rng.random((runs, size)) < epsilon).astype(float)
        return values, values

    return Kernel("auc", 1.0, -1.0, expectation, components, draw)


KERNELS = [product_kernel(0.5, 0.3), auc_kernel(0.3)]

# ---------------------------------------------------------------------------------------------------------------------
# Estimators


def cut(total: int, parts: int) -> Array:
    """Return the sizes of runs as equal as can be."""
    return np.array([len(run) for run in np.array_split(np.arange(total), parts)])


def block_means(a: Array, sizes: Array) -> Array:
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    sums = np.add.reduceat(a, np.minimum(starts, a.shape[1] - 1), axis=1)
    return np.where(sizes > 0, sums, 0.0) / np.maximum(sizes, 1)


def sampled_means(
    rng: np.random.Generator, a: Array, b: Array, size_x: int, size_z: int, n_pairs: int, distinct: bool
) -> Array:
    """Return, for the two blocks of every run, the mean of a b over sampled pairs."""
    runs = len(a)
    if distinct:
        pairs = rng.random((runs, size_x * size_z)).argsort(axis=1)[:, :n_pairs]
        i, j = pairs // size_z, pairs % size_z
    else:
        i, j = rng.integers(0, size_x, (runs, n_pairs)), rng.integers(0, size_z, (runs, n_pairs))
    return (np.take_along_axis(a, i, 1) * np.take_along_axis(b, j, 1)).mean(axis=1)


def round_value(
    rng: np.random.Generator,
    kernel: Kernel,
    a: Array,
    b: Array,
    sizes_x: Array,
    sizes_z: Array,
    options: dict[str, Any],
) -> Array:
    """Return the aggregated value of one round of all runs; block i is the i-th run of columns of a and b."""
    pairs = sizes_x * sizes_z
    ok = pairs > 0
    if options.get("n_pairs") is None:
        product = block_means(a, sizes_x) * block_means(b, sizes_z)
    else:
        product = np.zeros((len(a), len(pairs)))
        for i in np.flatnonzero(ok):
            x = a[:, sizes_x[:i].sum() : sizes_x[: i + 1].sum()]
            z = b[:, sizes_z[:i].sum() : sizes_z[: i + 1].sum()]
            product[:, i] = sampled_means(
                rng, x, z, sizes_x[i], sizes_z[i], options["n_pairs"], options.get("distinct", False)
            )
    values = kernel.constant + kernel.factor * product
    weights = pairs / pairs.sum() if options.get("aggregate") == "pooled" else ok / ok.sum()
    return values @ weights


def dealt_assignments(sizes: Array, n_rounds: int, offset: int) -> Array:
    """Return who holds each point when rows are dealt in turn, by their global index, round after round."""
    n_workers = len(sizes)
    holder = np.repeat(np.arange(n_workers), sizes)
    order = np.arange(sizes.sum())
    found = [holder]
    for _ in range(n_rounds - 1):
        dealt = np.empty(len(order), dtype=int)
        dealt[order] = (np.arange(len(order)) + offset) % n_workers
        found.append(dealt)
        order = order[np.argsort(dealt[order], kind="stable")]
    return np.array(found)


@dataclass(frozen=True)
class Cell:
    scheme: str
    kernel: Kernel
    n: int
    m: int
    n_workers: int
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        chosen = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.scheme}-{self.kernel.name}-{self.n}/{self.m}/{self.n_workers}-{chosen}"


def simulate(cell: Cell, rng: np.random.Generator, runs: int) -> Array:
    """Return `runs` independent values of the cell's estimator."""
    kernel, n, m, n_workers, options = cell.kernel, cell.n, cell.m, cell.n_workers, dict(cell.options)
    n_rounds = options.get("n_rounds", 1)
    sizes_x, sizes_z = cut(n, n_workers), cut(m, n_workers)
    a, b = kernel.sample(rng, runs, n, m)
    if cell.scheme in ("prop-swor", "as-is"):
        values = []
        for t in range(n_rounds):
            if cell.scheme == "prop-swor":
                # z is the smaller sample in every cell.
                a = a if options.get("move") == "smaller" and t > 0 else rng.permuted(a, axis=1)
                b = rng.permuted(b, axis=1)
            values.append(round_value(rng, kernel, a, b, sizes_x, sizes_z, options))
        return np.mean(values, axis=0)
    if cell.scheme == "prop-swr":
        values = []
        for _ in range(n_rounds):
            x = np.take_along_axis(a, rng.integers(0, n, (runs, n)), 1)
            z = np.take_along_axis(b, rng.integers(0, m, (runs, m)), 1)
            values.append(round_value(rng, kernel, x, z, sizes_x, sizes_z, options))
        return np.mean(values, axis=0)
    if cell.scheme == "rotation":
        rounds, weights = [], []
        starts = np.concatenate(([0], np.cumsum(sizes_z)))
        for t in range(n_rounds):
            visitors = (np.arange(n_workers) - t) % n_workers
            columns = np.concatenate([np.arange(starts[j], starts[j + 1]) for j in visitors])
            pooled = {**options, "aggregate": "pooled"}
            rounds.append(round_value(rng, kernel, a, b[:, columns], sizes_x, sizes_z[visitors], pooled))
            weights.append((sizes_x * sizes_z[visitors]).sum())
        return np.average(rounds, axis=0, weights=weights)
    if cell.scheme == "fixed-shuffle":
        values = []
        for hold_x, hold_z in zip(*fixed_assignments(cell), strict=True):
            x, z = a[:, np.argsort(hold_x, kind="stable")], b[:, np.argsort(hold_z, kind="stable")]
            now_x, now_z = np.bincount(hold_x, minlength=n_workers), np.bincount(hold_z, minlength=n_workers)
            values.append(round_value(rng, kernel, x, z, now_x, now_z, options))
        return np.mean(values, axis=0)
    if cell.scheme == "swor":
        values = [swor_round(rng, kernel, a, b, n_workers, options.get("n_pairs")) for _ in range(n_rounds)]
        return np.mean(values, axis=0)
    if cell.scheme == "swor-realised":
        values = []
        for now_x, now_z in zip(*realised_sizes(cell), strict=True):
            a, b = rng.permuted(a, axis=1), rng.permuted(b, axis=1)
            values.append(round_value(rng, kernel, a, b, now_x, now_z, options))
        return np.mean(values, axis=0)
    assert cell.scheme == "complete"
    if "n_pairs" not in options:
        return kernel.constant + kernel.factor * a.mean(axis=1) * b.mean(axis=1)
    drawn = sampled_means(rng, a, b, n, m, options["n_pairs"], options.get("distinct", False))
    return kernel.constant + kernel.factor * drawn


def swor_round(
    rng: np.random.Generator, kernel: Kernel, a: Array, b: Array, n_workers: int, n_pairs: int | None
) -> Array:
    """Return one round's mean over all workers, of which those that lack a class contribute 0."""
    runs, total = len(a), a.shape[1] + b.shape[1]
    order = rng.permuted(np.tile(np.arange(total), (runs, 1)), axis=1)
    is_x = order < a.shape[1]
    dealt = np.take_along_axis(np.concatenate([a, b], axis=1), order, 1)
    value = np.zeros(runs)
    for columns in np.array_split(np.arange(total), n_workers):
        inside, mine = is_x[:, columns], dealt[:, columns]
        count_x, count_z = inside.sum(axis=1), (~inside).sum(axis=1)
        ok = (count_x > 0) & (count_z > 0)
        if n_pairs is None:
            product = (mine * inside).sum(axis=1) * (mine * ~inside).sum(axis=1) / np.maximum(count_x * count_z, 1)
        else:
            # Columns of x first, then of z; a uniform rank below the count picks a point of the class.
            sorted_ = np.take_along_axis(mine, np.argsort(~inside, axis=1, kind="stable"), 1)
            i = (rng.random((runs, n_pairs)) * count_x[:, None]).astype(int)
            j = count_x[:, None] + (rng.random((runs, n_pairs)) * count_z[:, None]).astype(int)
            j = np.minimum(j, len(columns) - 1)
            product = (np.take_along_axis(sorted_, i, 1) * np.take_along_axis(sorted_, j, 1)).mean(axis=1)
        value += np.where(ok, kernel.constant + kernel.factor * product, 0.0)
    return value / n_workers


def realised_sizes(cell: Cell) -> tuple[Array, Array]:
    """Return block sizes as swor could deal them, with workers that lack a class."""
    rng = np.random.default_rng(12)
    sizes_x, sizes_z = [], []
    for _ in range(dict(cell.options).get("n_rounds", 1)):
        holder = rng.permutation(np.repeat(np.arange(cell.n_workers), cut(cell.n + cell.m, cell.n_workers)))
        sizes_x.append(np.bincount(holder[: cell.n], minlength=cell.n_workers))
        sizes_z.append(np.bincount(holder[cell.n :], minlength=cell.n_workers))
    # One z-point for each worker but the first, which has none.
    sizes_z[0] = np.array([0, *cut(cell.m, cell.n_workers - 1)])
    return np.array(sizes_x), np.array(sizes_z)


def fixed_assignments(cell: Cell) -> tuple[Array, Array]:
    n_rounds = dict(cell.options).get("n_rounds", 1)
    offset = cell.n_workers // 2 if cell.n == cell.m else 0
    return (
        dealt_assignments(cut(cell.n, cell.n_workers), n_rounds, 0),
        dealt_assignments(cut(cell.m, cell.n_workers), n_rounds, offset),
    )


def formula(cell: Cell) -> tuple[float, float]:
    """Return expectation and variance of the cell's estimator."""
    options: dict[str, Any] = dict(cell.options)
    scheme: Any = cell.scheme
    sizes: dict[str, Any] = {"n": cell.n, "m": cell.m, "n_workers": cell.n_workers}
    expectation = cell.kernel.expectation
    if scheme == "swor":
        options |= {"empty": "zero", "expectation": expectation}
        expectation *= swor_bias_factor(cell.n, cell.m, cell.n_workers)
    elif scheme == "swor-realised":
        sizes_x, sizes_z = realised_sizes(cell)
        scheme, sizes = "swor", {"sizes_x": sizes_x, "sizes_z": sizes_z, "empty": "skip"}
        options.pop("n_rounds", None)
    elif scheme == "fixed-shuffle":
        sizes = {"n_workers": cell.n_workers, "assignments": fixed_assignments(cell)}
        options.pop("n_rounds", None)
    return expectation, variance(cell.kernel.components, scheme=scheme, **sizes, **options)


ESTIMATORS: list[dict[str, Any]] = [{}, {"n_rounds": 3}, {"n_pairs": 4}, {"n_pairs": 4, "n_rounds": 3}]
CELLS = [
    Cell(scheme, kernel, n, m, n_workers, tuple({**estimator, **extra}.items()))
    for (scheme, extra), estimator, kernel, (n, m, n_workers) in itertools.product(
        [
            ("prop-swor", {}),
            ("prop-swor", {"aggregate": "pooled"}),
            ("prop-swor", {"move": "smaller"}),
            ("prop-swr", {}),
            ("swor", {}),
            ("swor-realised", {"aggregate": "pooled"}),
            ("swor-realised", {"aggregate": "mean"}),
            ("fixed-shuffle", {}),
            ("rotation", {}),
        ],
        ESTIMATORS,
        KERNELS,
        [(40, 20, 5), (23, 11, 4), (12, 12, 4)],
    )
]
CELLS += [
    Cell(scheme, kernel, 13, 8, n_workers, tuple(options.items()))
    for kernel in KERNELS
    for scheme, n_workers, options in [
        ("complete", 1, {}),
        ("complete", 1, {"n_pairs": 6}),
        ("complete", 1, {"n_pairs": 60, "distinct": True}),
        ("as-is", 3, {}),
        ("as-is", 3, {"n_pairs": 2}),
        ("prop-swor", 4, {"n_pairs": 5, "distinct": True, "n_rounds": 2}),
        ("prop-swr", 4, {"n_pairs": 5, "distinct": True, "n_rounds": 2}),
        ("prop-swor", 4, {"n_pairs": 3, "aggregate": "pooled", "move": "smaller", "n_rounds": 2}),
        ("prop-swr", 4, {"n_pairs": 3, "aggregate": "pooled", "n_rounds": 2}),
    ]
]


def simulate_in_chunks(cell: Cell, seed: int, runs: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.concatenate([simulate(cell, rng, min(CHUNK, runs - done)) for done in range(0, runs, CHUNK)])


def check(cell: Cell, seed: int, runs: int) -> None:
    values = simulate_in_chunks(cell, seed, runs)
    expectation, expected = formula(cell)
    assert mean_distance(values, expectation) < 4
    assert distance(values, expected) < 4, f"simulated {values.var(ddof=1):.6g}, formula {expected:.6g}"


@pytest.mark.parametrize("number", range(0, len(CELLS), 3), ids=lambda i: str(CELLS[i]))
def test_variance_of_a_third_of_the_cells(number: int) -> None:
    check(CELLS[number], seed=1000 + number, runs=10_000)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CELLS)), ids=lambda i: str(CELLS[i]))
def test_variance_of_every_cell(number: int) -> None:
    check(CELLS[number], seed=5000 + number, runs=100_000)


# ---------------------------------------------------------------------------------------------------------------------
# What the paper prints, and what this project adds


@pytest.mark.parametrize("runs", [40_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_printed_prop_swr_incomplete_formula_fails(runs: int) -> None:
    """The printed formula fails a check that the corrected one passes.

    Corrected 2.0410, printed 1.8389; simulated 2.0475 with standard error 0.0050 in 4·10⁵ runs.
    """
    kernel = product_kernel(2.0, 2.0)
    values = simulate_in_chunks(Cell("prop-swr", kernel, 40, 20, 5, (("n_pairs", 1),)), 77, runs)
    components = kernel.components
    arguments: dict[str, Any] = {"scheme": "prop-swr", "n": 40, "m": 20, "n_workers": 5, "n_pairs": 1}
    assert distance(values, variance(components, **arguments)) < 4
    assert distance(values, variance(components, **arguments, printed=True)) > 8


@pytest.mark.parametrize("runs", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_rotation_beats_fresh_deals(runs: int) -> None:
    """Means 0.3 and 0.2, n = 240, m = 40, N = 8, T = 4: rotation 0.0026250, prop-SWOR 0.0027031."""
    kernel = product_kernel(0.3, 0.2)
    for seed, scheme, expected in [(3, "rotation", 0.0026250), (4, "prop-swor", 0.0027031)]:
        cell = Cell(scheme, kernel, 240, 40, 8, (("n_rounds", 4),))
        assert formula(cell)[1] == pytest.approx(expected, abs=5e-8)
        assert distance(simulate_in_chunks(cell, seed, runs), expected) < 4


def test_equal_samples_dealt_in_step_travel_together() -> None:
    """Two samples of equal size, dealt alike, keep the same points together for ever; an offset of N/2 parts them.

    σ₀²'s factor, in units of 1/(nm), at n = m = 100, N = 10, T = 3: 6.00 in step, 3.78 apart, 4.00 for fresh deals.
    """
    sizes = cut(100, 10)
    x, together, apart = (dealt_assignments(sizes, 3, offset) for offset in (0, 0, 5))
    assert (x == together).all()
    second_order = Components(0.0, 0.0, 100.0**2)
    factor = {
        name: variance(second_order, scheme="fixed-shuffle", n_workers=10, assignments=(x, z))
        for name, z in (("together", together), ("apart", apart))
    }
    fresh = variance(second_order, scheme="prop-swor", n=100, m=100, n_workers=10, n_rounds=3)
    assert factor["together"] == pytest.approx(6.0)
    assert factor["apart"] == pytest.approx(3.778, abs=5e-4)
    assert fresh == pytest.approx(4.0)


@pytest.mark.parametrize("runs", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", ["gini", "half square"])
def test_one_sample_variances(model: str, runs: int) -> None:
    """U_n, one and three rounds of prop-SWOR on unequal blocks, and rotation, for normal samples."""
    gini = model == "gini"
    expectation, components = models.normal_gini() if gini else normal_half_square()
    rng = np.random.default_rng(8 if gini else 9)
    x = rng.standard_normal((runs, 11))
    sizes = cut(11, 3)
    bounds = np.concatenate(([0], np.cumsum(sizes)))

    def total(left: Array, right: Array) -> Array:
        gap = left[:, :, None] - right[:, None, :]
        return (np.abs(gap) if gini else gap**2 / 2).sum(axis=(1, 2))

    def within(block: Array) -> Array:
        return total(block, block) / (block.shape[1] * (block.shape[1] - 1))

    def blocks(sample: Array) -> list[Array]:
        return [sample[:, bounds[i] : bounds[i + 1]] for i in range(3)]

    rounds = [np.mean([within(b) for b in blocks(rng.permuted(x, axis=1))], axis=0) for _ in range(3)]
    first, second, third = blocks(x)
    inside = sum(total(b, b) / 2 for b in (first, second, third))
    pairs_inside = sum(int(s) * (int(s) - 1) // 2 for s in sizes)
    assert (inside + total(first, second) + total(second, third) + total(third, first)) / 55 == pytest.approx(within(x))
    for values, expected in [
        (within(x), one_sample.complete(11) @ components),
        (rounds[0], one_sample.prop_swor(sizes) @ components),
        (np.mean(rounds, axis=0), one_sample.prop_swor(sizes, n_rounds=3) @ components),
        (inside / pairs_inside, one_sample.rotation(sizes, 1) @ components),
    ]:
        assert mean_distance(values, expectation) < 4
        assert distance(values, expected) < 4


def test_four_standard_errors_reject_a_wrong_formula() -> None:
    """The check has teeth: at R = 10⁵ a variance that is 4 % off is refused."""
    values = np.random.default_rng(2).standard_normal(100_000)
    assert distance(values, 1.0) < 4
    assert distance(values, 1.04) > 4
    assert distance(values, 0.96) > 4
