"""Variances of K-sample statistics: enumeration for K = 3, `paper_variances` for K = 2, simulation, equal blocks.

Enumeration runs over all outcomes of tiny samples of a discrete law, all deals to the workers and all draws of tuples,
with rational numbers, from the definitions of the estimators alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import paper_variances as reference
import pytest
from numpy.typing import NDArray

from mpi_ustat.inference.components import subsets
from mpi_ustat.paper.models import Components
from mpi_ustat.paper.theory import variance_standard_error
from mpi_ustat.schemes import k_samples

Array = NDArray[Any]
Sample = tuple[int, ...]
Data = tuple[Sample, ...]

# ---------------------------------------------------------------------------------------------------------------------
# Three samples of two-valued points, and the exact Hoeffding components

LAWS = [(Fraction(1, 4), Fraction(3, 4)), (Fraction(2, 5), Fraction(3, 5)), (Fraction(1, 2), Fraction(1, 2))]
KERNEL = (((3, -1), (0, 2)), ((1, 4), (5, -2)))


def h(points: Sequence[int]) -> int:
    return KERNEL[points[0]][points[1]][points[2]]


def outcomes(sizes: Sequence[int]) -> Iterator[tuple[Fraction, Data]]:
    per_sample = [list(itertools.product((0, 1), repeat=size)) for size in sizes]
    for data in itertools.product(*per_sample):
        chance = Fraction(1)
        for law, sample in zip(LAWS, data, strict=True):
            chance *= math.prod((law[v] for v in sample), start=Fraction(1))
        yield chance, data


def exact_components() -> Array:
    def variance_given(chosen: tuple[int, ...]) -> Fraction:
        second = first = Fraction(0)
        for given in itertools.product((0, 1), repeat=len(chosen)):
            chance, mean = Fraction(1), Fraction(0)
            for law, v in zip([LAWS[k] for k in chosen], given, strict=True):
                chance *= law[v]
            for p, point in outcomes((1, 1, 1)):
                values = [sample[0] for sample in point]
                if all(values[k] == v for k, v in zip(chosen, given, strict=True)):
                    mean += p * h(values) / chance
            first, second = first + chance * mean, second + chance * mean**2
        return second - first**2

    total = {chosen: variance_given(chosen) for chosen in ((), *subsets(3))}
    return np.array(
        [float(sum((-1) ** (len(s) - len(r)) * v for r, v in total.items() if set(r) <= set(s))) for s in subsets(3)]
    )


COMPONENTS = exact_components()
MEAN = sum(p * h([sample[0] for sample in point]) for p, point in outcomes((1, 1, 1)))

# ---------------------------------------------------------------------------------------------------------------------
# Enumeration

Moments = tuple[Fraction, Fraction]
Round = tuple[Fraction, Moments]
"""A round's weight in the estimate; its mean and variance given the data and what the rounds share."""


def exact_variance(sizes: Sequence[int], scenarios: Callable[[Data], list[tuple[Fraction, list[Round]]]]) -> float:
    """Return the variance of an estimator, having checked its mean; given a scenario the rounds are independent."""
    first = second = Fraction(0)
    for p, data in outcomes(sizes):
        for chance, rounds in scenarios(data):
            center = sum((r * mean for r, (mean, _) in rounds), start=Fraction(0))
            first += p * chance * center
            second += p * chance * (center**2 + sum((r * r * v for r, (_, v) in rounds), start=Fraction(0)))
    assert first == MEAN
    return float(second - first**2)


@cache
def local(blocks: Data, n_pairs: int | None, distinct: bool) -> Moments:
    """Return mean and variance, over all draws of tuples, of the local statistic."""
    values = [h(points) for points in itertools.product(*blocks)]
    mean = Fraction(sum(values), len(values))
    if n_pairs is None:
        return mean, Fraction(0)
    draws: Any = itertools.product(values, repeat=n_pairs)
    if distinct:
        n_pairs = min(n_pairs, len(values))
        draws = itertools.combinations(values, n_pairs)
    means = [Fraction(sum(draw), n_pairs) for draw in draws]
    return mean, sum(((v - mean) ** 2 for v in means), start=Fraction(0)) / len(means)


def outcome(
    workers: Sequence[Data], n_pairs: int | None = None, distinct: bool = False, aggregate: str = "mean"
) -> Moments:
    """Return mean and variance over the draws of one round's value; workers without a tuple are left out."""
    tuples = [math.prod(map(len, blocks)) for blocks in workers]
    raw = tuples if aggregate == "pooled" else [int(count > 0) for count in tuples]
    center = spread = Fraction(0)
    for blocks, weight in zip(workers, raw, strict=True):
        if weight:
            mean, var = local(blocks, n_pairs, distinct)
            center += Fraction(weight, sum(raw)) * mean
            spread += Fraction(weight, sum(raw)) ** 2 * var
    return center, spread


def mixture(cases: list[Moments]) -> Moments:
    center = sum((mean for mean, _ in cases), start=Fraction(0)) / len(cases)
    return center, sum((var + (mean - center) ** 2 for mean, var in cases), start=Fraction(0)) / len(cases)


@cache
def deals(sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    labels = [worker for worker, size in enumerate(sizes) for _ in range(size)]
    return sorted(set(itertools.permutations(labels)))


def workers_of(data: Data, holders: Sequence[Sequence[int]], n_workers: int) -> list[Data]:
    return [
        tuple(
            tuple(v for v, w in zip(sample, holder, strict=True) if w == i)
            for sample, holder in zip(data, holders, strict=True)
        )
        for i in range(n_workers)
    ]


def drawing(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in ("n_rounds", "move")}


def agrees(found: Array, exact: float) -> bool:
    return float(found @ COMPONENTS) == pytest.approx(exact, rel=1e-11)


def test_the_law_has_all_components() -> None:
    """Nothing below is tested by a component that vanishes."""
    assert (COMPONENTS > 0.01).all()


OPTIONS: list[dict[str, Any]] = [
    {"n_rounds": 3},
    {"n_pairs": 2, "n_rounds": 2},
    {"aggregate": "pooled", "n_rounds": 2},
    {"aggregate": "pooled", "n_pairs": 1},
    {"distinct": True, "n_pairs": 2, "n_rounds": 2},
]
SIZES = [((1, 1), (1, 1), (1, 1)), ((2, 1), (1, 1), (1, 2)), ((2,), (1,), (2,))]


@pytest.mark.parametrize(("n_pairs", "distinct"), [(None, False), (1, False), (2, False), (2, True), (9, True)])
def test_complete_and_blom(n_pairs: int | None, distinct: bool) -> None:
    sizes = (2, 2, 1)
    exact = exact_variance(sizes, lambda data: [(Fraction(1), [(Fraction(1), local(data, n_pairs, distinct))])])
    assert agrees(k_samples.complete(sizes, n_pairs=n_pairs, distinct=distinct), exact)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_prop_swor(sizes: tuple[Sample, ...], options: dict[str, Any]) -> None:
    n_rounds = options.get("n_rounds", 1)

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        ways = itertools.product(*map(deals, sizes))
        cases = [outcome(workers_of(data, way, len(sizes[0])), **drawing(options)) for way in ways]
        return [(Fraction(1), [(Fraction(1, n_rounds), mixture(cases))] * n_rounds)]

    exact = exact_variance([sum(row) for row in sizes], scenarios)
    assert agrees(k_samples.prop_swor(sizes, **options), exact)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("sizes", "moving"), [(((2, 1), (1, 1), (1, 1)), 2), (((1, 2), (1, 1), (2, 1)), 1)], ids=lambda v: str(v)
)
def test_only_the_smallest_moves(sizes: tuple[Sample, ...], moving: int, options: dict[str, Any]) -> None:
    n_rounds = options.get("n_rounds", 1)
    others = [k for k in range(3) if k != moving]

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        found = []
        fixed_ways = list(itertools.product(*(deals(sizes[k]) for k in others)))
        for fixed in fixed_ways:
            cases = []
            for moved in deals(sizes[moving]):
                way = list(fixed)
                way.insert(moving, moved)
                cases.append(outcome(workers_of(data, way, 2), **drawing(options)))
            rounds = [(Fraction(1, n_rounds), mixture(cases))] * n_rounds
            found.append((Fraction(1, len(fixed_ways)), rounds))
        return found

    exact = exact_variance([sum(row) for row in sizes], scenarios)
    assert agrees(k_samples.prop_swor(sizes, move="smaller", **options), exact)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("n_points", "sizes"), [((2, 2, 1), ((1, 1),) * 3), ((2, 1, 2), ((2,), (1,), (2,)))])
def test_prop_swr(n_points: Sample, sizes: tuple[Sample, ...], options: dict[str, Any]) -> None:
    n_rounds = options.get("n_rounds", 1)

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        draws = [
            list(itertools.product(*(list(itertools.product(sample, repeat=size)) for size in row)))
            for sample, row in zip(data, sizes, strict=True)
        ]
        cases = [outcome(list(zip(*ways, strict=True)), **drawing(options)) for ways in itertools.product(*draws)]
        return [(Fraction(1), [(Fraction(1, n_rounds), mixture(cases))] * n_rounds)]

    assert agrees(k_samples.prop_swr(n_points, sizes, **options), exact_variance(n_points, scenarios))


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_shards_as_they_lie_some_without_a_tuple(aggregate: Any, n_pairs: int | None) -> None:
    holders = [(0, 0, 1), (0, 1, 2), (0, 1, 1)]

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        moments = outcome(workers_of(data, holders, 3), n_pairs=n_pairs, aggregate=aggregate)
        return [(Fraction(1), [(Fraction(1), moments)])]

    sizes = [np.bincount(holder, minlength=3) for holder in holders]
    options: dict[str, Any] = {"aggregate": aggregate, "n_pairs": n_pairs}
    assert agrees(k_samples.blocks(sizes, empty="skip", **options), exact_variance((3, 3, 3), scenarios))
    with pytest.raises(ValueError, match="no pair"):
        k_samples.blocks(sizes, **options)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_swor_given_the_sizes(aggregate: Any, n_pairs: int | None) -> None:
    rounds_of_sizes = [((2, 1), (2, 0), (1, 1)), ((1, 2), (1, 1), (1, 1))]
    totals = [2 * 2 * 1, 1 * 1 * 1 + 2 * 1 * 1]
    shares = [Fraction(q, sum(totals)) if aggregate == "pooled" else Fraction(1, 2) for q in totals]

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        rounds = []
        for share, sizes in zip(shares, rounds_of_sizes, strict=True):
            ways = itertools.product(*map(deals, sizes))
            cases = [outcome(workers_of(data, way, 2), n_pairs=n_pairs, aggregate=aggregate) for way in ways]
            rounds.append((share, mixture(cases)))
        return [(Fraction(1), rounds)]

    found = k_samples.swor(rounds_of_sizes, aggregate=aggregate, n_pairs=n_pairs)
    assert agrees(found, exact_variance((3, 2, 2), scenarios))


def enumerated_rounds(
    sizes: Sequence[int], rounds: Sequence[Sequence[Sequence[int]]], n_workers: int, **options: Any
) -> float:
    """Return the exact variance over rounds that are known: the worker of every point of every sample."""
    totals = []
    for holders in rounds:
        counts = np.array([np.bincount(holder, minlength=n_workers) for holder in holders])
        totals.append(int(counts.prod(axis=0).sum()) if options.get("aggregate") == "pooled" else 1)

    def scenarios(data: Data) -> list[tuple[Fraction, list[Round]]]:
        return [
            (
                Fraction(1),
                [
                    (Fraction(q, sum(totals)), outcome(workers_of(data, holders, n_workers), **options))
                    for q, holders in zip(totals, rounds, strict=True)
                ],
            )
        ]

    return exact_variance(sizes, scenarios)


FIXED_OPTIONS: list[dict[str, Any]] = [
    {"aggregate": "pooled"},
    {"aggregate": "mean"},
    {"aggregate": "pooled", "n_pairs": 2},
    {"aggregate": "mean", "n_pairs": 2, "distinct": True},
]


@pytest.mark.parametrize("options", FIXED_OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("sizes", "shifts"),
    [
        (((1, 2), (2, 1), (1, 1)), [(0, 0, 0), (0, 1, 0), (0, 0, 1)]),
        (((2, 1), (1, 1), (1, 2)), [(0, 0, 0), (0, 1, 1), (1, 1, 0), (0, 0, 0)]),  # the last meets what the first met
        (((1, 1, 1), (1, 1, 1), (1, 1, 1)), [(0, t, 2 * t) for t in range(3)]),
    ],
    ids=["N=2", "repeated", "N=3"],
)
def test_rotation(sizes: tuple[Sample, ...], shifts: list[tuple[int, int, int]], options: dict[str, Any]) -> None:
    n_workers = len(sizes[0])
    holdings = np.array([[[(i - a) % n_workers for i in range(n_workers)] for a in shift] for shift in shifts])
    rounds = [
        [
            [int(np.flatnonzero(held == block)[0]) for block, size in enumerate(row) for _ in range(size)]
            for row, held in zip(sizes, table, strict=True)
        ]
        for table in holdings
    ]
    exact = enumerated_rounds([sum(row) for row in sizes], rounds, n_workers, **options)
    assert agrees(k_samples.rotation(sizes, holdings, **options), exact)


@pytest.mark.parametrize("options", FIXED_OPTIONS, ids=str)
@pytest.mark.parametrize("n_points", [(3, 3, 2), (2, 3, 3)], ids=str)
def test_fixed_shuffle(n_points: Sample, options: dict[str, Any]) -> None:
    n_workers, n_rounds = 2, 3
    starts = [1 if size in n_points[:k] and k % 2 else 0 for k, size in enumerate(n_points)]
    rounds = []
    orders = [list(range(size)) for size in n_points]
    for _ in range(n_rounds):
        holders = []
        for k, order in enumerate(orders):
            counts = [sum((g + starts[k]) % n_workers == i for g in range(len(order))) for i in range(n_workers)]
            places = [i for i, count in enumerate(counts) for _ in range(count)]
            holders.append([places[order.index(point)] for point in range(len(order))])
            orders[k] = [order[g] for i in range(n_workers) for g in range(len(order)) if (g + starts[k]) % 2 == i]
        rounds.append(holders)
    exact = enumerated_rounds(n_points, rounds, n_workers, **options)
    assert agrees(k_samples.fixed_shuffle(n_points, n_workers, n_rounds, **options), exact)


# ---------------------------------------------------------------------------------------------------------------------
# K = 2 is `paper_variances`; K = 1 a mean

TWO = Components(0.7, -0.2, 1.3)


def as_theory(found: Array) -> float:
    return float(found @ np.array([TWO.var_x, TWO.var_z, TWO.var_xz]))


TWO_OPTIONS: list[dict[str, Any]] = [
    {},
    {"aggregate": "pooled"},
    {"n_pairs": 3},
    {"n_pairs": 4, "distinct": True, "aggregate": "pooled"},
]


@pytest.mark.parametrize("options", TWO_OPTIONS, ids=str)
@pytest.mark.parametrize(("sizes_x", "sizes_z"), [((4, 4, 3), (2, 2, 2)), ((2, 2, 3), (5, 4, 3))], ids=str)
def test_two_samples(sizes_x: Sample, sizes_z: Sample, options: dict[str, Any]) -> None:
    sizes = np.array([sizes_x, sizes_z])
    both: dict[str, Any] = {"sizes_x": sizes_x, "sizes_z": sizes_z, **options}
    n_points = sizes.sum(axis=1).tolist()

    def expected(scheme: Any, **more: Any) -> Any:
        return pytest.approx(reference.variance(TWO, scheme=scheme, **(both | more)), rel=1e-12)

    assert as_theory(k_samples.blocks(sizes, **options)) == expected("as-is")
    for move in ("both", "smaller"):
        found = k_samples.prop_swor(sizes, n_rounds=3, move=move, **options)
        assert as_theory(found) == expected("prop-swor", n_rounds=3, move=move)
    swr = as_theory(k_samples.prop_swr(n_points, sizes, n_rounds=3, **options))
    assert swr == expected("prop-swr", n_rounds=3, n=n_points[0], m=n_points[1])
    for n_rounds in (1, 2, 3):
        workers = np.arange(3)
        holdings = [[workers, (workers - t) % 3] for t in range(n_rounds)]
        rotated = as_theory(k_samples.rotation(sizes, holdings, **{"aggregate": "mean", **options}))
        assert rotated == expected("rotation", n_rounds=n_rounds, aggregate=options.get("aggregate", "mean"))
    del both["sizes_x"], both["sizes_z"]
    rows = {"sizes_x": sizes[:1], "sizes_z": sizes[1:]}
    assert as_theory(k_samples.swor(sizes[None], **options)) == expected("swor", empty="skip", **rows)


def test_two_samples_complete_and_several_rounds_of_swor() -> None:
    assert as_theory(k_samples.complete((7, 4))) == pytest.approx(reference.variance_complete(TWO, 7, 4))
    for distinct in (False, True):
        expected = reference.variance_incomplete(TWO, 7, 4, 9, distinct=distinct)
        assert as_theory(k_samples.complete((7, 4), n_pairs=9, distinct=distinct)) == pytest.approx(expected)
    sizes_x, sizes_z = np.array([(3, 0, 2), (1, 2, 2)]), np.array([(1, 2, 1), (2, 0, 2)])
    found = k_samples.swor(np.stack([sizes_x, sizes_z], axis=1), n_pairs=2)
    expected = reference.variance_swor_realised(TWO, sizes_x, sizes_z, n_pairs=2)
    assert as_theory(found) == pytest.approx(expected)


def test_one_sample_of_degree_one_is_a_mean() -> None:
    assert k_samples.complete((5,)) == pytest.approx([1 / 5])
    assert k_samples.prop_swor([(2, 2, 2)], n_rounds=4) == pytest.approx([1 / 6])
    assert k_samples.prop_swr((6,), [(2, 2, 2)], n_rounds=4) == pytest.approx([1 / 6 + (1 - 1 / 6) / 24])


# ---------------------------------------------------------------------------------------------------------------------
# Equal blocks, and shifts of them


def shifted(shifts: Sequence[Sequence[int]], n_workers: int) -> Array:
    workers = np.arange(n_workers)
    return np.array([[(workers - a) % n_workers for a in shift] for shift in shifts])


@pytest.mark.parametrize("n_rounds", [1, 3])
def test_equal_blocks(n_rounds: int) -> None:
    n_workers, n_points = 4, np.array([8, 12, 4])
    sizes = np.repeat(n_points[:, None] // n_workers, n_workers, axis=1)
    swor = k_samples.prop_swor(sizes, n_rounds=n_rounds)
    swr = k_samples.prop_swr(n_points.tolist(), sizes, n_rounds=n_rounds)
    a = (1 + n_workers * (1 - 1 / n_points)) / n_points
    for position, s in enumerate(subsets(3)):
        exact = 1 / n_points[list(s)].prod()
        assert swor[position] == pytest.approx(exact * (1 + (n_workers ** (len(s) - 1) - 1) / n_rounds))
        v_r = a[list(s)].prod()
        assert swr[position] == pytest.approx(exact + (v_r - exact) / (n_workers * n_rounds))


@pytest.mark.parametrize("n_workers", [4, 5])
@pytest.mark.parametrize("slopes", [(0, 1, 2), (0, 1, 1), (0, 2, 3)], ids=str)
def test_shifts(n_workers: int, slopes: tuple[int, int, int]) -> None:
    for n_rounds in (1, 2, n_workers):
        shifts = [[a * t for a in slopes] for t in range(n_rounds)]
        found = k_samples.rotation(np.full((3, n_workers), 2), shifted(shifts, n_workers))
        for position, s in enumerate(subsets(3)):
            seen = [tuple((shift[k] - shift[s[0]]) % n_workers for k in s) for shift in shifts]
            phi = sum(seen.count(d) ** 2 for d in set(seen)) / n_rounds**2
            expected = n_workers ** (len(s) - 1) * phi / (2 * n_workers) ** len(s)
            assert found[position] == pytest.approx(expected)


def test_excess_of_five_rounds_over_the_complete_statistic() -> None:
    n_workers, n_points = 5, (10, 10, 10)
    means = np.array([1.0, 0.5, 0.7])
    components = np.array([np.delete(means, s).prod() ** 2 for s in subsets(3)])
    sizes = np.full((3, n_workers), 2)
    complete = k_samples.complete(n_points) @ components

    def excess(found: Array) -> Any:
        return pytest.approx(float(found @ components - complete), rel=1e-9)

    even, uneven = ([(0, t, b * t) for t in range(5)] for b in (2, 1))
    assert excess(k_samples.rotation(sizes, shifted(even, n_workers))) == 0.0040
    assert excess(k_samples.rotation(sizes, shifted(uneven, n_workers))) == 0.0440
    assert excess(k_samples.prop_swor(sizes, n_rounds=5)) == 0.01872


def test_all_combinations_of_blocks_make_the_complete_statistic() -> None:
    """N² rounds of three samples, pooled, for unequal blocks and repeated visits alike."""
    sizes = [(3, 2, 2), (1, 4, 2), (2, 2, 1)]
    every = [(0, a, b) for a in range(3) for b in range(3)]
    complete = k_samples.complete([sum(row) for row in sizes])
    for repeats in (1, 2):
        found = k_samples.rotation(sizes, shifted(every * repeats, 3))
        assert found == pytest.approx(complete, rel=1e-12)


def test_numbers_of_tuples_beyond_an_integer() -> None:
    sizes = np.full((3, 2), 10**8)
    assert k_samples.blocks(sizes, aggregate="pooled", n_pairs=100) == pytest.approx([1 / 200] * 7, rel=1e-5)
    many = np.tile(np.arange(3000), (2, 6, 1))  # 3000⁶ combinations of blocks
    assert k_samples.rotation(np.ones((6, 3000)), many)[-1] == pytest.approx(1 / 3000)


# ---------------------------------------------------------------------------------------------------------------------
# Simulation: the product of three normal points, whose complete statistic on a block is the product of the means

MEANS = (1.0, 0.5, 0.7)
N_POINTS, N_WORKERS = (11, 7, 6), 3
LIMIT = 4.5
"""Standard errors: with normal limits one check refuses a right formula with probability 7·10⁻⁶."""


def cut(total: int) -> Array:
    return np.array([len(run) for run in np.array_split(np.arange(total), N_WORKERS)])


def round_value(rng: np.random.Generator, ordered: list[Array], sizes: Array, options: dict[str, Any]) -> Array:
    """Return one round's value in every run; block i of sample k is the i-th run of columns of ordered[k]."""
    bounds = np.concatenate([np.zeros((3, 1), int), np.cumsum(sizes, axis=1)], axis=1)
    tuples = sizes.prod(axis=0)
    runs, n_pairs = len(ordered[0]), options.get("n_pairs")
    values = np.zeros((runs, len(tuples)))
    for i in np.flatnonzero(tuples):
        blocks = [x[:, bounds[k, i] : bounds[k, i + 1]] for k, x in enumerate(ordered)]
        if n_pairs is None:
            values[:, i] = np.prod([b.mean(axis=1) for b in blocks], axis=0)
            continue
        if options.get("distinct"):
            chosen = rng.random((runs, tuples[i])).argsort(axis=1)[:, :n_pairs]
        else:
            chosen = rng.integers(0, tuples[i], (runs, n_pairs))
        columns = np.unravel_index(chosen, sizes[:, i])
        drawn = [np.take_along_axis(b, c, axis=1) for b, c in zip(blocks, columns, strict=True)]
        values[:, i] = np.prod(drawn, axis=0).mean(axis=1)
    weights = tuples if options.get("aggregate") == "pooled" else tuples > 0
    return values @ (weights / weights.sum())


def simulate(scheme: str, rng: np.random.Generator, runs: int, n_rounds: int, options: dict[str, Any]) -> Array:
    data = [rng.standard_normal((runs, n)) + mean for n, mean in zip(N_POINTS, MEANS, strict=True)]
    sizes = np.array([cut(n) for n in N_POINTS])
    values, weights = [], []
    for t in range(n_rounds):
        now = sizes
        if scheme in ("prop-swor", "smaller", "swor"):
            data = [x if scheme == "smaller" and t and k < 2 else rng.permuted(x, axis=1) for k, x in enumerate(data)]
            ordered = data
            now = np.array(REALISED[t]) if scheme == "swor" else sizes
        elif scheme == "prop-swr":
            ordered = [np.take_along_axis(x, rng.integers(0, x.shape[1], x.shape), axis=1) for x in data]
        elif scheme == "rotation":
            held = shifted([[0, t, 2 * t]], N_WORKERS)[0]
            columns = [np.array_split(np.arange(n), N_WORKERS) for n in N_POINTS]
            ordered = [x[:, np.concatenate([columns[k][b] for b in held[k]])] for k, x in enumerate(data)]
            now = np.take_along_axis(sizes, held, axis=1)
        else:
            assert scheme == "fixed-shuffle"
            ordered = data
            data = [
                x[:, np.concatenate([np.arange(i, n, 3) for i in range(3)])]
                for x, n in zip(data, N_POINTS, strict=True)
            ]
        values.append(round_value(rng, ordered, now, options))
        weights.append(now.prod(axis=0).sum() if options.get("aggregate") == "pooled" else 1)
    return np.average(values, axis=0, weights=weights)


REALISED = [((4, 5, 2), (3, 0, 4), (1, 3, 2)), ((3, 3, 5), (2, 3, 2), (3, 2, 1)), ((11, 0, 0), (2, 2, 3), (3, 2, 1))]


def formula(scheme: str, n_rounds: int, options: dict[str, Any]) -> float:
    sizes = [cut(n) for n in N_POINTS]
    components = np.array([np.delete(MEANS, s).prod() ** 2 for s in subsets(3)])
    found = {
        "prop-swor": lambda: k_samples.prop_swor(sizes, n_rounds=n_rounds, **options),
        "smaller": lambda: k_samples.prop_swor(sizes, n_rounds=n_rounds, move="smaller", **options),
        "swor": lambda: k_samples.swor(REALISED[:n_rounds], **options),
        "prop-swr": lambda: k_samples.prop_swr(N_POINTS, sizes, n_rounds=n_rounds, **options),
        "rotation": lambda: k_samples.rotation(
            sizes, shifted([[0, t, 2 * t] for t in range(n_rounds)], N_WORKERS), **{"aggregate": "mean", **options}
        ),
        "fixed-shuffle": lambda: k_samples.fixed_shuffle(N_POINTS, N_WORKERS, n_rounds, **options),
    }[scheme]()
    return float(found @ components)


def check(scheme: str, options: dict[str, Any], runs: int, seed: int) -> None:
    values = simulate(scheme, np.random.default_rng(seed), runs, 3, options)
    spread, fourth = float(values.var(ddof=1)), float(((values - values.mean()) ** 4).mean())
    assert abs(values.mean() - np.prod(MEANS)) < LIMIT * math.sqrt(spread / runs)
    error = variance_standard_error(spread, fourth, runs)
    assert abs(spread - formula(scheme, 3, options)) < LIMIT * error


SCHEMES = ["prop-swor", "smaller", "swor", "prop-swr", "rotation", "fixed-shuffle"]
SIMULATED: list[dict[str, Any]] = [{}, {"aggregate": "pooled", "n_pairs": 4}, {"n_pairs": 5, "distinct": True}]


@pytest.mark.parametrize("options", SIMULATED, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_simulated(scheme: str, options: dict[str, Any]) -> None:
    check(scheme, options, 5_000, seed=40 + SCHEMES.index(scheme))


@pytest.mark.slow
@pytest.mark.parametrize("options", SIMULATED, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_simulated_at_length(scheme: str, options: dict[str, Any]) -> None:
    check(scheme, options, 100_000, seed=80 + SCHEMES.index(scheme))


# ---------------------------------------------------------------------------------------------------------------------
# What can't be


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: k_samples.complete((3, 0, 2)), "no pair"),
        (lambda: k_samples.prop_swor([(1, 1), (2, 0)]), "no pair"),
        (lambda: k_samples.prop_swor([(1, 1), (2, 1)], n_rounds=0), "at least 1"),
        (lambda: k_samples.prop_swor([(1, 1), (2, 1)], move="larger"), "larger"),  # type: ignore[arg-type]
        (lambda: k_samples.swor([[(1, 1), (2, 0)], [(1, 1), (1, 2)]]), "hold all the points"),
        (lambda: k_samples.swor([[(2, 0), (0, 2)]]), "no pair at all"),
        (lambda: k_samples.rotation([(1, 1), (2, 1)], [[(0, 1)]]), "shape"),
        (lambda: k_samples.rotation([(1, 1), (2, 1)], [[(0, 1), (0, 2)]]), "blocks 0 to 1"),
        (lambda: k_samples.fixed_shuffle((3, 1), 2, 3), "some would get none"),
    ],
)
def test_impossible_requests(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
