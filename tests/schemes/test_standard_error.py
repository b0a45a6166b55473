"""Coefficients of variances against the closed forms they come from, brute force and simulation; pilots.

The formulas for K samples are tested in `test_k_samples`, those for two samples and one in `test_theory`.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import paper_variances as reference
import pytest
from numpy.typing import NDArray
from references import normal_half_square

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.paper import models
from mpi_ustat.paper.models import Components, OneSampleComponents
from mpi_ustat.paper.theory import variance_standard_error
from mpi_ustat.schemes import k_samples, one_sample
from mpi_ustat.schemes.designs import even_sizes, sampling_factor
from mpi_ustat.schemes.one_sample import multiplicity_sums
from mpi_ustat.schemes.partition import Ordered, Partition
from mpi_ustat.schemes.registry import SCHEMES
from mpi_ustat.schemes.variance import (
    Design,
    NoClosedForm,
    Spread,
    coefficients,
    covariance_from_workers,
    pilot_rows,
)

Array = NDArray[Any]

LIMIT = 4.5
"""Standard errors: with normal limits one check refuses a right formula with probability 7·10⁻⁶."""

TWO = Components(0.7, -0.2, 1.3)
VECTOR = np.array([TWO.var_x, TWO.var_z, TWO.var_xz])
ONE = OneSampleComponents(0.6, -0.3)


def front(degrees: tuple[int, ...], sizes: tuple[int, ...], **design: Any) -> Any:
    """Return the variance from the front's coefficients, with 3 for the expectation."""
    found, square = coefficients(degrees, sizes, Design(**design))
    components = {3: VECTOR, 2: np.array([ONE.zeta1, ONE.delta])}[len(found)]
    return pytest.approx(float(found @ components) + square * 3.0**2, rel=1e-12)


def holders(blocks: Any) -> Array:
    """Return the worker of each row."""
    assert isinstance(blocks, Ordered) and blocks.order is not None
    found = np.empty(len(blocks.order), dtype=np.int64)
    found[blocks.order] = np.repeat(np.arange(len(blocks.bounds) - 1), np.diff(blocks.bounds))
    return found


def dealt(sizes: tuple[int, ...], n_workers: int, n_rounds: int) -> list[Array]:
    """Return, for each sample, the worker of each row in each round of the package's own fixed-shuffle."""
    partition = Partition(SCHEMES["fixed-shuffle"], sizes, n_workers, Streams(5))
    rounds = [[holders(blocks) for blocks in partition.round(t)] for t in range(n_rounds)]
    return [np.array(rows) for rows in zip(*rounds, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# Two samples: `paper_variances.variance` gets what it should

DRAWINGS: list[dict[str, Any]] = [{}, {"n_pairs": 3}, {"n_pairs": 4, "distinct": True}]
AGGREGATES: list[Any] = ["mean", "pooled"]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
@pytest.mark.parametrize(("n", "m"), [(23, 11), (11, 23), (12, 12)])
def test_two_samples_of_every_scheme(n: int, m: int, drawing: dict[str, Any]) -> None:
    def agree(scheme: Any, more: dict[str, Any], **expected: Any) -> None:
        arguments: dict[str, Any] = {"scheme": scheme, "n": n, "m": m, "n_workers": 4, **drawing, **more, **expected}
        assert reference.variance(TWO, **arguments) == front(
            (1, 1), (n, m), scheme=scheme, n_workers=4, **drawing, **more
        ), (scheme, more)

    agree("complete", {})
    agree("swor", {"n_rounds": 3, "empty": "zero"}, expectation=3.0)
    for aggregate in AGGREGATES:
        agree("as-is", {"aggregate": aggregate})
        agree("prop-swr", {"n_rounds": 3, "aggregate": aggregate})
        for move in ("both", "smaller"):
            agree("prop-swor", {"n_rounds": 3, "aggregate": aggregate, "move": move})
        assignments = dealt((n, m), 4, 3)
        shuffled: dict[str, Any] = {"scheme": "fixed-shuffle", "n_workers": 4, "aggregate": aggregate, **drawing}
        expected = reference.variance(TWO, assignments=(assignments[0], assignments[1]), **shuffled)
        assert expected == front((1, 1), (n, m), n_rounds=3, **shuffled)
        # The smaller sample moves; `paper_variances` moves the second.
        components = TWO if m <= n else Components(TWO.var_z, TWO.var_x, TWO.var_xz)
        rotation: dict[str, Any] = {"scheme": "rotation", "n_workers": 4, "n_rounds": 3, "aggregate": aggregate}
        expected = reference.variance(components, n=max(n, m), m=min(n, m), **rotation, **drawing)
        assert expected == front((1, 1), (n, m), **rotation, **drawing)


@pytest.mark.parametrize("drawing", DRAWINGS[:2], ids=str)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_two_samples_of_given_block_sizes(aggregate: Any, drawing: dict[str, Any]) -> None:
    options: dict[str, Any] = {"aggregate": aggregate, **drawing}
    shards = ((5, 0, 2, 3), (1, 2, 2, 4))
    arguments: dict[str, Any] = {"scheme": "as-is", "empty": "skip", **options}
    expected = reference.variance(TWO, sizes_x=shards[0], sizes_z=shards[1], **arguments)
    sizes, design = (10, 9), {"n_workers": 4, "block_sizes": (shards,), **options}
    assert expected == front((1, 1), sizes, scheme="as-is", empty="skip", **design)
    zeros = expected * (3 / 4) ** 2 if aggregate == "mean" else expected
    assert zeros == front((1, 1), sizes, scheme="as-is", empty="zero", **design)
    with pytest.raises(ValueError, match="no pair"):
        coefficients((1, 1), sizes, Design(scheme="as-is", **design))

    one = {"scheme": "swor", "n_workers": 4, "block_sizes": (shards,), **options}
    expected = reference.variance_swor_realised(TWO, shards[:1], shards[1:], **options)
    assert expected == front((1, 1), sizes, empty="skip", **one)
    more = (shards, ((1, 3, 3, 3), (3, 2, 3, 1)))
    several = k_samples.swor(more, **options) @ VECTOR
    assert several == front((1, 1), sizes, empty="skip", **(one | {"n_rounds": 2, "block_sizes": more}))
    if aggregate == "pooled":  # where the paper's zeros mean nothing
        assert expected == front((1, 1), sizes, empty="zero", **one)


def test_three_samples() -> None:
    sizes, n_workers, n_rounds = (13, 7, 9), 3, 2
    even = np.array([even_sizes(size, n_workers) for size in sizes])
    shared: dict[str, Any] = {"n_pairs": 5, "distinct": True, "aggregate": "pooled"}
    rounds: dict[str, Any] = {"n_rounds": n_rounds, **shared}
    holdings = tuple(tuple(tuple((i - k * t) % 3 for i in range(3)) for k in range(3)) for t in range(n_rounds))
    realised = (((13, 0, 0), (3, 2, 2), (3, 3, 3)), ((4, 4, 5), (3, 3, 1), (2, 2, 5)))
    drawn = {key: shared[key] for key in ("n_pairs", "distinct")}
    for scheme, expected, more in (
        ("complete", k_samples.complete(sizes, **drawn), shared),
        ("as-is", k_samples.blocks(even, **shared), shared),
        ("prop-swor", k_samples.prop_swor(even, move="smaller", **rounds), rounds | {"move": "smaller"}),
        ("prop-swr", k_samples.prop_swr(sizes, even, **rounds), rounds),
        ("rotation", k_samples.rotation(even, holdings, **shared), rounds | {"holdings": holdings}),
        ("swor", k_samples.swor(realised, **shared), rounds | {"block_sizes": realised, "empty": "skip"}),
        ("fixed-shuffle", k_samples.fixed_shuffle(sizes, n_workers, **rounds), rounds),
    ):
        found, square = coefficients((1, 1, 1), sizes, Design(scheme=scheme, n_workers=n_workers, **more))
        assert square == 0
        assert found == pytest.approx(expected, rel=1e-14), scheme


def test_equal_designs_are_found_again_and_kept_from_harm() -> None:
    design: dict[str, Any] = {"scheme": "prop-swor", "n_workers": 3, "block_sizes": (((2, 1, 1), (1, 1, 2)),)}
    first, _ = coefficients([1, 1], np.array([4, 4]), Design(**design))
    second, _ = coefficients((1, 1), (4, 4), Design(**design))
    assert first is second
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0.0


# ---------------------------------------------------------------------------------------------------------------------
# One sample


@pytest.mark.parametrize("drawing", DRAWINGS, ids=str)
@pytest.mark.parametrize("n", [24, 25])
def test_one_sample_of_every_scheme(n: int, drawing: dict[str, Any]) -> None:
    sizes = even_sizes(n, 4)
    for aggregate in AGGREGATES:
        options: dict[str, Any] = {"aggregate": aggregate, **drawing}
        dealt_once = one_sample.prop_swor(sizes, **options) @ ONE
        assert dealt_once == front((2,), (n,), scheme="as-is", n_workers=4, **options)
        dealt_often = one_sample.prop_swor(sizes, n_rounds=3, **options) @ ONE
        for scheme in ("prop-swor", "swor"):
            assert dealt_often == front((2,), (n,), scheme=scheme, n_workers=4, n_rounds=3, **options)
    rotation = one_sample.rotation(sizes, 3, **drawing) @ ONE
    assert rotation == front((2,), (n,), scheme="rotation", n_workers=4, n_rounds=3, aggregate="pooled", **drawing)
    complete = one_sample.complete(n) @ ONE
    factor = float(sampling_factor(drawing.get("n_pairs"), n * (n - 1) // 2, distinct="distinct" in drawing))
    expected = complete + factor * (ONE.total - complete)
    assert expected == front((2,), (n,), scheme="complete", **drawing)


def test_one_sample_with_shards_of_one_point() -> None:
    block_sizes, options = (((1, 4, 3),),), {"scheme": "as-is", "n_workers": 3}
    skipped = (one_sample.complete(4) @ ONE + one_sample.complete(3) @ ONE) / 4
    assert skipped == front((2,), (8,), block_sizes=block_sizes, empty="skip", **options)
    assert skipped * (2 / 3) ** 2 == front((2,), (8,), block_sizes=block_sizes, empty="zero", **options)
    with pytest.raises(ValueError, match="no pair"):
        coefficients((2,), (8,), Design(block_sizes=block_sizes, **options))
    # Blocks of 2, 2 and 1 points, round after round.
    complete = one_sample.complete(5) @ ONE
    again = complete + (one_sample.complete(2) @ ONE / 2 - complete) / 3
    assert again == front((2,), (5,), scheme="prop-swor", n_workers=3, n_rounds=3, empty="skip")


def inner(sample: tuple[int, ...], pairs: Any) -> list[int]:
    return [SYMMETRIC[sample[a]][sample[b]] for a, b in pairs]


LAW = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))
SYMMETRIC = ((0, 1, 4), (1, -1, 2), (4, 2, 3))


def drawn(values: list[int], n_pairs: int | None, distinct: bool) -> tuple[Fraction, Fraction]:
    """Return mean and variance of the average of values, over all draws of B of them."""
    if n_pairs is None or distinct:
        n_pairs = min(n_pairs or len(values), len(values))
        draws: Any = itertools.combinations(values, n_pairs)
    else:
        draws = itertools.product(values, repeat=n_pairs)
    means = [Fraction(sum(draw), n_pairs) for draw in draws]
    mean = sum(means, start=Fraction(0)) / len(means)
    return mean, sum(((v - mean) ** 2 for v in means), start=Fraction(0)) / len(means)


def exact_one_sample(n: int, cases_of: Any) -> float:
    """Return the variance of Σ r_t R_t for independent R_t given the data, each a mixture of equally likely cases."""
    first = second = Fraction(0)
    for sample in itertools.product(range(3), repeat=n):
        p = math.prod((LAW[v] for v in sample), start=Fraction(1))
        center, spread = Fraction(0), Fraction(0)
        for r, cases in cases_of(sample):
            mean = sum((m for m, _ in cases), start=Fraction(0)) / len(cases)
            center += r * mean
            spread += r * r * sum((v + (m - mean) ** 2 for m, v in cases), start=Fraction(0)) / len(cases)
        first, second = first + p * center, second + p * (center**2 + spread)
    mean = sum(p * q * SYMMETRIC[x][y] for x, p in enumerate(LAW) for y, q in enumerate(LAW))
    assert first == mean
    return float(second - first**2)


def exact_components() -> Array:
    given = [sum(q * SYMMETRIC[x][y] for y, q in enumerate(LAW)) for x in range(3)]
    square = sum(p * q * SYMMETRIC[x][y] ** 2 for x, p in enumerate(LAW) for y, q in enumerate(LAW))
    mean = sum(p * v for p, v in zip(LAW, given, strict=True))
    zeta1 = sum(p * v * v for p, v in zip(LAW, given, strict=True)) - mean**2
    return np.array([float(zeta1), float(square - mean**2 - 2 * zeta1)])


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("drawing", [{}, {"n_pairs": 2}, {"n_pairs": 2, "distinct": True}], ids=str)
def test_one_sample_drawn_with_replacement(drawing: dict[str, Any], aggregate: Any) -> None:
    """Given the patterns of multiplicities, over all the points that can have them; the last block has one point."""
    n = 3
    draws = [[(0, 0, 2), (2, 0, 1)], [(1, 0, 1), (2, 2, 2)]]
    patterns = [[tuple(sorted(np.unique(block, return_counts=True)[1])) for block in row] for row in draws]
    pairs = {(1, 2): 2, (1, 1, 1): 3, (3,): 0}
    if aggregate == "pooled":
        weights = [[Fraction(pairs[pattern], 2 + 3 + 2) for pattern in row] for row in patterns]
    else:
        weights = [[Fraction(1, 4), Fraction(1, 4)], [Fraction(1, 2), Fraction(0)]]

    def cases_of(sample: tuple[int, ...]) -> Any:
        chain = itertools.chain.from_iterable
        for pattern, weight in zip(chain(patterns), chain(weights), strict=True):
            if weight == 0:
                continue
            cases = []
            for ids in itertools.permutations(range(n), len(pattern)):
                positions = [k for k, c in zip(ids, pattern, strict=True) for _ in range(c)]
                values = inner(sample, [(a, b) for a, b in itertools.combinations(positions, 2) if a != b])
                cases.append(drawn(values, drawing.get("n_pairs"), drawing.get("distinct", False)))
            yield weight, cases

    design: dict[str, Any] = {
        "scheme": "prop-swr",
        "n_workers": 2,
        "n_rounds": 2,
        "aggregate": aggregate,
        "multiplicities": tuple(tuple(multiplicity_sums(block) for block in row) for row in draws),
        **drawing,
    }
    found, _ = coefficients((2,), (n,), Design(empty="skip", **design))
    assert float(found @ exact_components()) == pytest.approx(exact_one_sample(n, cases_of), rel=1e-11)
    with pytest.raises(ValueError, match="same point"):
        coefficients((2,), (n,), Design(**design))
    if aggregate == "mean":
        with pytest.raises(NoClosedForm, match="count zero"):
            coefficients((2,), (n,), Design(empty="zero", **design))


def test_one_sample_rotation_of_distinct_pairs() -> None:
    """Blocks with no more than B pairs evaluate them all, others B of them."""
    tasks = [[(0, 1)], [(2, 3)], [(0, 2), (0, 3)], [(1, 2), (1, 3)]]  # worker 0, worker 1, and the two half rounds

    def cases_of(sample: tuple[int, ...]) -> Any:
        for task in tasks:
            yield Fraction(len(task), 6), [drawn(inner(sample, task), 1, True)]

    design = Design(scheme="rotation", n_workers=2, n_rounds=2, aggregate="pooled", n_pairs=1, distinct=True)
    found, _ = coefficients((2,), (4,), design)
    assert float(found @ exact_components()) == pytest.approx(exact_one_sample(4, cases_of), rel=1e-11)


@pytest.mark.parametrize("n", [12, 13])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_one_sample_fixed_shuffle_from_its_weights(n_pairs: int | None, aggregate: Any, n: int) -> None:
    """Var = ζ₁ Σ_k w_k.² + δ Σ_{k<l} w_kl², with every weight written down."""
    n_workers, n_rounds = 3, 4
    (assignments,) = dealt((n,), n_workers, n_rounds)
    weights, excess = np.zeros((n, n)), np.zeros(2)
    for row in assignments:
        sizes = np.bincount(row)
        pairs = sizes * (sizes - 1) / 2
        omega = pairs / pairs.sum() / n_rounds if aggregate == "pooled" else np.full(n_workers, 1 / 12)
        weights += (row[:, None] == row) * (omega / pairs)[row]
        if n_pairs is not None:
            block = np.array([2 - 4 / sizes, 1 - 1 / pairs])  # Var h less the block's variance, for ζ₁ and δ
            excess += block @ omega**2 / n_pairs
    np.fill_diagonal(weights, 0.0)
    expected = np.array([(weights.sum(axis=1) ** 2).sum(), (np.triu(weights) ** 2).sum()]) + excess
    design = Design(scheme="fixed-shuffle", n_workers=3, n_rounds=4, aggregate=aggregate, n_pairs=n_pairs)
    assert coefficients((2,), (n,), design)[0] == pytest.approx(expected, rel=1e-12)


def check_variance(values: Array, mean: float, variance: float, error: float = 0.0) -> None:
    """Compare the mean and variance of independent values with theory; `error` is that of an estimated variance."""
    spread, fourth = float(values.var(ddof=1)), float(((values - values.mean()) ** 4).mean())
    assert abs(values.mean() - mean) < LIMIT * math.sqrt(spread / len(values))
    assert abs(spread - variance) < LIMIT * math.hypot(variance_standard_error(spread, fourth, len(values)), error)


def half_squares(x: Array, counts: Array) -> tuple[Array, Array]:
    """Return sum and number of (x_k - x_l)²/2 over the pairs of different points; point k is there counts[k] times."""
    size = counts.sum(axis=-1)
    total = (size * (counts * x**2).sum(axis=-1) - (counts * x).sum(axis=-1) ** 2) / 2
    return total, (size**2 - (counts**2).sum(axis=-1)) / 2


def test_one_sample_simulated_with_replacement() -> None:
    """Over the draws, the variance is the mean of the variances given the draws."""
    n, n_workers, n_rounds, runs = 12, 3, 2, 4000
    mean, components = normal_half_square()
    rng = np.random.default_rng(6)
    x = rng.standard_normal((runs, n))
    ids = rng.integers(0, n, (runs, n_rounds, n_workers, n // n_workers))
    counts = (ids[..., None] == np.arange(n)).sum(axis=3)
    total, pairs = half_squares(x[:, None, None], counts)
    assert (pairs == 0).any()
    local = np.where(pairs > 0, total, np.nan) / np.maximum(pairs, 1)
    given = np.empty(runs)
    for run in range(runs):
        sums = tuple(tuple(map(multiplicity_sums, row)) for row in ids[run])
        design = Design(scheme="prop-swr", n_workers=n_workers, n_rounds=n_rounds, multiplicities=sums, empty="skip")
        given[run] = coefficients((2,), (n,), design)[0] @ (components.zeta1, components.delta)
    check_variance(np.nanmean(local, axis=2).mean(axis=1), mean, given.mean(), given.std() / math.sqrt(runs))


def test_one_sample_simulated_fixed_shuffle() -> None:
    n, n_workers, n_rounds, runs = 13, 3, 4, 20_000
    mean, components = normal_half_square()
    x = np.random.default_rng(7).standard_normal((runs, n))
    (assignments,) = dealt((n,), n_workers, n_rounds)
    values = []
    for row in assignments:
        blocks = [x[:, row == i] for i in range(n_workers)]
        values.append(np.mean([block.var(axis=1, ddof=1) for block in blocks], axis=0))
    found, _ = coefficients((2,), (n,), Design(scheme="fixed-shuffle", n_workers=n_workers, n_rounds=n_rounds))
    check_variance(np.mean(values, axis=0), mean, float(found @ (components.zeta1, components.delta)))


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


@pytest.mark.parametrize(
    ("degrees", "sizes", "design"),
    [
        ((2, 1), (9, 9), {"scheme": "complete"}),
        ((2, 2), (9, 9), {"scheme": "prop-swor"}),
        ((3,), (9,), {"scheme": "prop-swor"}),
        ((1, 1, 1), (9, 9, 9), {"scheme": "swor", "empty": "zero", "n_workers": 3}),
        ((2,), (9,), {"scheme": "prop-swr", "n_workers": 3}),
    ],
)
def test_no_closed_form(degrees: tuple[int, ...], sizes: tuple[int, ...], design: dict[str, Any]) -> None:
    with pytest.raises(NoClosedForm):
        coefficients(degrees, sizes, Design(**design))


@pytest.mark.parametrize(
    ("degrees", "sizes", "design", "message"),
    [
        ((1, 1), (9, 9), {"scheme": "shuffle"}, "prop-swor"),
        ((1, 1), (9, 9), {"scheme": "prop-swor", "aggregate": "median"}, "median"),
        ((1, 1), (9, 9), {"scheme": "prop-swor", "empty": "error"}, "refuse"),
        ((1, 1), (9, 9), {"scheme": "as-is", "n_rounds": 2}, "one round"),
        ((1, 1), (9,), {"scheme": "complete"}, "1 sample sizes"),
        ((1, 1), (9, 3), {"scheme": "prop-swor", "n_workers": 4}, "can't each have a point"),
        ((1, 1), (9, 9), {"scheme": "swor", "n_workers": 3, "empty": "skip"}, "realised"),
        ((1, 1), (9, 9), {"scheme": "rotation", "n_workers": 3, "n_rounds": 4}, "too many"),
        ((1, 1, 1), (9, 9, 9), {"scheme": "rotation", "n_workers": 3}, "holdings"),
        ((1, 1), (9, 9), {"scheme": "rotation", "n_workers": 3, "holdings": (((0, 1, 2),),)}, "shape"),
        ((1, 1), (9, 9), {"scheme": "as-is", "n_workers": 2, "block_sizes": (((4, 5), (4, 4)),)}, "add up"),
        ((1, 1), (9, 9), {"scheme": "as-is", "n_workers": 3, "block_sizes": (((4, 5), (4, 5)),)}, "shape"),
        ((2,), (9,), {"scheme": "rotation", "n_workers": 3}, "pooled"),
        ((2,), (9,), {"scheme": "prop-swr", "n_workers": 3, "multiplicities": (((3, 3, 3, 3),),)}, "given for"),
    ],
)
def test_impossible_designs(
    degrees: tuple[int, ...], sizes: tuple[int, ...], design: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        coefficients(degrees, sizes, Design(**design))
    assert not isinstance(caught.value, NoClosedForm)


# ---------------------------------------------------------------------------------------------------------------------
# From the workers' values

N, M, N_WORKERS = 123, 98, 40
MEAN_X, MEAN_Z = 1.0, 0.7  # what rounds add is a sixth of the variance, and no estimate is negative, hence left out


def simulated_workers(scheme: str, n_rounds: int, runs: int) -> tuple[Array, float]:
    """Return local values, shape (runs, T, N), of the product kernel, and the variance of their mean over both."""
    _, components = models.normal_product(MEAN_X, MEAN_Z)
    rng = np.random.default_rng(70)
    x, z = rng.standard_normal((runs, N)) + MEAN_X, rng.standard_normal((runs, M)) + MEAN_Z
    even = [even_sizes(size, N_WORKERS) for size in (N, M)]
    design: dict[str, Any] = {"scheme": scheme, "n_rounds": n_rounds}
    assignments = dealt((N, M), N_WORKERS, n_rounds)
    values = np.full((runs, n_rounds, N_WORKERS), np.nan)
    for t in range(n_rounds):
        (now_x, now_z), x_t, z_t = even, x, z
        if scheme in ("prop-swor", "smaller", "swor"):
            x = x if scheme == "smaller" and t else rng.permuted(x, axis=1)
            x_t, z_t = x, rng.permuted(z, axis=1)
        if scheme == "smaller":
            design |= {"scheme": "prop-swor", "move": "smaller"}
        elif scheme == "swor":
            now_x, now_z = np.repeat([3, 2, 3, 4], [3, 9, 16, 12]), np.repeat([0, 2, 3], [3, 13, 24])
            design |= {"empty": "skip", "block_sizes": ((tuple(now_x.tolist()), tuple(now_z.tolist())),) * n_rounds}
        elif scheme == "fixed-shuffle":
            (now_x, x_t), (now_z, z_t) = (
                (np.bincount(rows[t]), sample[:, np.argsort(rows[t], kind="stable")])
                for rows, sample in zip(assignments, (x, z), strict=True)
            )
        elif scheme == "rotation":
            visitors = (np.arange(N_WORKERS) - t) % N_WORKERS
            places = np.split(np.arange(M), np.cumsum(now_z)[:-1])
            now_z, z_t = now_z[visitors], z[:, np.concatenate([places[j] for j in visitors])]
        starts_x, starts_z = np.cumsum(now_x) - now_x, np.cumsum(now_z) - now_z
        for i in np.flatnonzero(now_x * now_z):
            block_x = x_t[:, starts_x[i] : starts_x[i] + now_x[i]]
            block_z = z_t[:, starts_z[i] : starts_z[i] + now_z[i]]
            values[:, t, i] = block_x.mean(axis=1) * block_z.mean(axis=1)
    found, _ = coefficients((1, 1), (N, M), Design(n_workers=N_WORKERS, **design))
    return values, float(found @ (components.var_x, components.var_z, components.var_xz))


def variance_from_workers(values: Any, *, independent: bool) -> tuple[float, float] | None:
    """Return the estimated variance, and its degrees of freedom, from one statistic's values in each round, (T, N)."""
    spreads = [Spread.of(np.array([of_round]).T) for of_round in values]
    found = covariance_from_workers(spreads, independent=independent)
    return None if found is None else (float(found[0][0, 0]), found[1])


@pytest.mark.parametrize(
    ("scheme", "n_rounds"),
    [("as-is", 1), ("prop-swor", 5), ("smaller", 5), ("rotation", 5), ("fixed-shuffle", 5), ("swor", 5)],
)
def test_variance_from_workers_is_unbiased(scheme: str, n_rounds: int) -> None:
    values, expected = simulated_workers(scheme, n_rounds, 2000)
    check_variance(np.nanmean(values, axis=2).mean(axis=1), MEAN_X * MEAN_Z, expected)
    found = [variance_from_workers(run, independent=True) for run in values]
    estimates = np.array([each[0] for each in found if each is not None])
    assert len(estimates) == len(values)
    assert abs(estimates.mean() - expected) < LIMIT * estimates.std() / math.sqrt(len(estimates))
    dofs = np.array([each[1] for each in found if each is not None])
    assert (dofs == N_WORKERS - 1).all() if n_rounds == 1 else ((dofs > 0) & (dofs < N_WORKERS - 1 + n_rounds)).all()


def test_variance_from_workers_by_hand() -> None:
    assert variance_from_workers([[1.0, 2.0, 6.0]], independent=True) == pytest.approx((7.0 / 3.0, 2.0))
    # Rounds with means 3 and 4: V̂₁ = (7/3 + 2/2)/2, S² = 1/2.
    within, between = (7.0 / 3.0 + 2.0 / 2.0) / 2.0, 0.25
    total = within - between
    expected = (total, total**2 / (within**2 / 1.0 + between**2 / 1.0))
    values = [[1.0, 2.0, 6.0], [3.0, 5.0, math.nan]]
    assert variance_from_workers(values, independent=True) == pytest.approx(expected)


def test_covariance_from_workers_is_what_variances_of_sums_tell() -> None:
    rng = np.random.default_rng(0)
    for n_rounds in (1, 3):
        values = rng.normal(size=(n_rounds, 12, 1)) + 0.3 * rng.normal(size=(n_rounds, 12, 3))
        values[0, 5] = math.nan
        found = covariance_from_workers(list(map(Spread.of, values)), independent=True)
        assert found is not None
        for a, b in itertools.product(range(3), repeat=2):
            of_sum = variance_from_workers(values[:, :, a] + values[:, :, b], independent=True)
            assert of_sum is not None
            whole = found[0][a, a] + found[0][b, b] + 2.0 * found[0][a, b]
            assert whole == pytest.approx(of_sum[0], rel=1e-12)
            if a == b:
                assert found[1] <= of_sum[1]
    values[:, :, 2] = 1.0
    assert covariance_from_workers(list(map(Spread.of, values)), independent=True) is None


def test_no_variance_from_workers() -> None:
    assert variance_from_workers([[1.0, 2.0, 6.0]], independent=False) is None
    assert variance_from_workers([[1.0]], independent=True) is None
    assert variance_from_workers([[1.0, 2.0], [1.0, math.nan]], independent=True) is None
    assert variance_from_workers([[2.0, 2.0]], independent=True) is None
    assert variance_from_workers([[0.0, 0.1], [5.0, 5.1]], independent=True) is None
    with pytest.raises(ValueError, match="shape"):
        Spread.of([1.0, 2.0])
    with pytest.raises(ValueError, match="a round"):
        covariance_from_workers([], independent=True)


def test_intervals_from_workers_cover() -> None:
    """Normal means of five workers: Student's interval is exact."""
    runs, quantile = 20_000, 2.776445105  # of Student's law with 4 degrees of freedom, at 97.5 %
    values = np.random.default_rng(3).standard_normal((runs, 1, 5))
    covered = 0
    for run in values:
        found = variance_from_workers(run, independent=True)
        assert found is not None and found[1] == 4.0
        covered += bool(abs(run.mean()) <= quantile * math.sqrt(found[0]))
    assert abs(covered / runs - 0.95) < LIMIT * math.sqrt(0.95 * 0.05 / runs)


# ---------------------------------------------------------------------------------------------------------------------
# Pilots


def test_pilot_rows() -> None:
    sizes = (3, 200, 201, 5000, 10**12)
    rows = pilot_rows(Streams(8).open("pilot"), sizes)
    for size, chosen in zip(sizes, rows, strict=True):
        assert chosen.dtype == np.int64
        assert len(chosen) == min(size, 200)
        assert (np.diff(chosen) > 0).all()
        assert chosen[0] >= 0 and chosen[-1] < size
    assert all((a == b).all() for a, b in zip(rows, pilot_rows(Streams(8).open("pilot"), sizes), strict=True))
    assert (pilot_rows(Streams(9).open("pilot"), (5000,))[0] != rows[3]).any()


def test_every_pilot_is_as_likely() -> None:
    """All the 10 subsets of 3 of 5 rows: a χ² of 9 degrees of freedom, refused at 10⁻⁶."""
    streams, draws = Streams(21), 5000
    seen: dict[tuple[int, ...], int] = {}
    for replicate in range(draws):
        (rows,) = pilot_rows(streams.open("pilot", replicate=replicate), (5,), most=3)
        seen[tuple(rows.tolist())] = seen.get(tuple(rows.tolist()), 0) + 1
    assert len(seen) == 10
    assert sum((count - draws / 10) ** 2 for count in seen.values()) / (draws / 10) < 45.08


@pytest.mark.parametrize(("empty", "factor"), [("skip", 1.0), ("zero", 0.25)])
def test_the_variance_with_more_workers_than_points(empty: str, factor: float) -> None:
    """Of 4 workers 2 have a pair of 3 × 2 points; a point of x is in it with 2/3, a pair with 1/3, in each of 2 rounds.

    Their weights over the rounds are (A + B)/4, so that the sums of squares are 3·(20/9)/16, 2·4/16 and 6·(8/9)/16.
    """
    design = Design(scheme="prop-swor", n_workers=4, n_rounds=2, empty=empty)
    found, square = coefficients((1, 1), (3, 2), design)
    np.testing.assert_allclose(found, np.array([5 / 12, 1 / 2, 1 / 3]) * factor, rtol=1e-14)
    assert square == 0.0
    with pytest.raises(NoClosedForm):
        coefficients((1, 1), (3, 2), Design(scheme="rotation", n_workers=4, empty=empty))
