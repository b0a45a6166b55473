"""Closed-form variances against exact enumeration, the paper's statements, and impossible requests.

Enumeration runs over all outcomes of tiny samples of a discrete law, all deals to the workers and all draws of pairs,
with rational numbers, from the definitions of the estimators alone. Simulations are in `test_theory_simulated`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from paper_variances import variance, variance_complete
from references import normal_half_square

from mpi_ustat.paper import models, theory
from mpi_ustat.paper.models import Components, OneSampleComponents
from mpi_ustat.paper.theory import dominance_gap, variance_standard_error
from mpi_ustat.schemes import one_sample
from mpi_ustat.schemes.designs import even_sizes
from mpi_ustat.schemes.swor import swor_bias_factor
from mpi_ustat.schemes.variance import Design

# ---------------------------------------------------------------------------------------------------------------------
# A discrete law, and its exact Hoeffding components

LAW_X = (Fraction(1, 2), Fraction(1, 3), Fraction(1, 6))
LAW_Z = (Fraction(1, 4), Fraction(3, 4))
KERNEL = ((1, -2), (3, 0), (2, 5))
MEAN = sum(p * q * KERNEL[x][z] for x, p in enumerate(LAW_X) for z, q in enumerate(LAW_Z))

SYMMETRIC = ((0, 1, 4), (1, -1, 2), (4, 2, 3))
SYMMETRIC_MEAN = sum(p * q * SYMMETRIC[x][y] for x, p in enumerate(LAW_X) for y, q in enumerate(LAW_X))


def exact_components() -> Components:
    given_x = [sum(q * KERNEL[x][z] for z, q in enumerate(LAW_Z)) for x in range(3)]
    given_z = [sum(p * KERNEL[x][z] for x, p in enumerate(LAW_X)) for z in range(2)]
    total = sum(p * q * (KERNEL[x][z] - MEAN) ** 2 for x, p in enumerate(LAW_X) for z, q in enumerate(LAW_Z))
    var_x = sum(p * (v - MEAN) ** 2 for p, v in zip(LAW_X, given_x, strict=True))
    var_z = sum(q * (v - MEAN) ** 2 for q, v in zip(LAW_Z, given_z, strict=True))
    return Components(float(var_x), float(var_z), float(total - var_x - var_z))


def exact_one_sample() -> OneSampleComponents:
    given = [sum(q * SYMMETRIC[x][y] for y, q in enumerate(LAW_X)) for x in range(3)]
    total = sum(
        p * q * (SYMMETRIC[x][y] - SYMMETRIC_MEAN) ** 2 for x, p in enumerate(LAW_X) for y, q in enumerate(LAW_X)
    )
    zeta1 = sum(p * (v - SYMMETRIC_MEAN) ** 2 for p, v in zip(LAW_X, given, strict=True))
    return OneSampleComponents(float(zeta1), float(total - 2 * zeta1))


COMPONENTS = exact_components()
ONE_SAMPLE = exact_one_sample()

# ---------------------------------------------------------------------------------------------------------------------
# Enumeration

Values = tuple[int, ...]
Round = tuple[Fraction, Fraction, Fraction]
"""A round's weight in the estimate; its conditional mean and variance, given the data and what the rounds share."""
Scenario = tuple[Fraction, list[Round]]
"""What the rounds share happens with a probability; given it, the rounds are independent."""


def samples(law: Sequence[Fraction], size: int) -> Iterator[tuple[Fraction, Values]]:
    for outcome in itertools.product(range(len(law)), repeat=size):
        yield math.prod((law[v] for v in outcome), start=Fraction(1)), outcome


def exact_moments(n: int, m: int, scenarios: Callable[[Values, Values], list[Scenario]]) -> tuple[Fraction, Fraction]:
    """Return mean and variance of an estimator: E Û² = E[Σ r_t² Var_t + (Σ r_t M_t)²]."""
    first = second = Fraction(0)
    for p, x in samples(LAW_X, n):
        for q, z in samples(LAW_Z, m):
            for chance, rounds in scenarios(x, z):
                center = sum((r * mean for r, mean, _ in rounds), start=Fraction(0))
                first += p * q * chance * center
                second += p * q * chance * (center**2 + sum((r * r * v for r, _, v in rounds), start=Fraction(0)))
    return first, second - first**2


@cache
def local(x: Values, z: Values, n_pairs: int | None, distinct: bool) -> tuple[Fraction, Fraction]:
    """Return mean and variance, over all draws of pairs, of the local statistic on a block."""
    values = [KERNEL[a][b] for a in x for b in z]
    return drawn(tuple(values), n_pairs, distinct)


@cache
def drawn(values: Values, n_pairs: int | None, distinct: bool) -> tuple[Fraction, Fraction]:
    if n_pairs is None:
        return Fraction(sum(values), len(values)), Fraction(0)
    if distinct:
        n_pairs = min(n_pairs, len(values))
        draws = list(itertools.combinations(values, n_pairs))
    else:
        draws = list(itertools.product(values, repeat=n_pairs))
    means = [Fraction(sum(draw), n_pairs) for draw in draws]
    mean = sum(means, start=Fraction(0)) / len(means)
    return mean, sum(((v - mean) ** 2 for v in means), start=Fraction(0)) / len(means)


def deals(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all the equally likely ways to deal sum(sizes) points to workers: entry k is the holder of point k."""
    labels = [worker for worker, size in enumerate(sizes) for _ in range(size)]
    return sorted(set(itertools.permutations(labels)))


def block(sample: Values, holder: Sequence[int], worker: int) -> Values:
    return tuple(v for v, h in zip(sample, holder, strict=True) if h == worker)


def outcome(
    blocks: Sequence[tuple[Values, Values]],
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: str = "mean",
    empty: str = "error",
) -> tuple[Fraction, Fraction]:
    """Return mean and variance over the draws of pairs of one round's value."""
    pairs = [len(x) * len(z) for x, z in blocks]
    center = spread = Fraction(0)
    for (x, z), count in zip(blocks, pairs, strict=True):
        if count == 0:
            assert empty != "error"
            continue
        divisor = len(blocks) if empty != "skip" else sum(c > 0 for c in pairs)
        weight = Fraction(count, sum(pairs)) if aggregate == "pooled" else Fraction(1, divisor)
        mean, var = local(x, z, n_pairs, distinct)
        center += weight * mean
        spread += weight**2 * var
    return center, spread


def mixture(outcomes: list[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    """Return mean and variance of a value whose equally likely cases have these means and variances."""
    count = len(outcomes)
    center = sum((mean for mean, _ in outcomes), start=Fraction(0)) / count
    return center, sum((var + (mean - center) ** 2 for mean, var in outcomes), start=Fraction(0)) / count


def blocks_of(x: Values, z: Values, hold_x: Sequence[int], hold_z: Sequence[int], n_workers: int) -> Any:
    return [(block(x, hold_x, i), block(z, hold_z, i)) for i in range(n_workers)]


def agrees(value: float, exact: Fraction) -> bool:
    return value == pytest.approx(float(exact), rel=1e-11)


SIZES = [((2, 2), (1, 1)), ((2, 1), (2, 1)), ((1, 3), (2, 1)), ((1, 1, 1), (1, 1, 1)), ((3,), (2,))]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"n_rounds": 3},
    {"n_pairs": 1},
    {"n_pairs": 2, "n_rounds": 2},
    {"aggregate": "pooled", "n_rounds": 2},
    {"aggregate": "pooled", "n_pairs": 2, "n_rounds": 3},
    {"distinct": True, "n_pairs": 2, "n_rounds": 2},
]


def round_options(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key != "n_rounds"}


def repeat(chance: Fraction, moments: tuple[Fraction, Fraction], n_rounds: int) -> Scenario:
    return chance, [(Fraction(1, n_rounds), *moments)] * n_rounds


@pytest.mark.parametrize("n_pairs", [None, 1, 2, 3])
@pytest.mark.parametrize("distinct", [False, True])
def test_complete_and_blom_by_enumeration(n_pairs: int | None, distinct: bool) -> None:
    n, m = 3, 2
    mean, exact = exact_moments(n, m, lambda x, z: [repeat(Fraction(1), local(x, z, n_pairs, distinct), 1)])
    assert mean == MEAN
    assert agrees(variance(COMPONENTS, scheme="complete", n=n, m=m, n_pairs=n_pairs, distinct=distinct), exact)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("sizes_x", "sizes_z"), SIZES, ids=str)
def test_prop_swor_by_enumeration(sizes_x: Values, sizes_z: Values, options: dict[str, Any]) -> None:
    n_workers = len(sizes_x)
    ways = list(itertools.product(deals(sizes_x), deals(sizes_z)))

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        cases = [outcome(blocks_of(x, z, a, b, n_workers), **round_options(options)) for a, b in ways]
        return [repeat(Fraction(1), mixture(cases), options.get("n_rounds", 1))]

    mean, exact = exact_moments(sum(sizes_x), sum(sizes_z), scenarios)
    assert mean == MEAN
    assert agrees(variance(COMPONENTS, scheme="prop-swor", sizes_x=sizes_x, sizes_z=sizes_z, **options), exact)


def test_two_rounds_of_prop_swor_deal_by_deal() -> None:
    """Without using that rounds are independent given the data: every pair of deals is an outcome."""
    ways = list(itertools.product(deals((1, 1)), deals((1, 1))))

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        values = [outcome(blocks_of(x, z, a, b, 2))[0] for a, b in ways]
        return [repeat(Fraction(1, len(ways) ** 2), ((u + v) / 2, Fraction(0)), 1) for u in values for v in values]

    _, exact = exact_moments(2, 2, scenarios)
    assert agrees(variance(COMPONENTS, scheme="prop-swor", n=2, m=2, n_workers=2, n_rounds=2), exact)


@pytest.mark.parametrize(
    ("sizes_x", "sizes_z"),
    [((2, 2), (1, 1)), ((2, 2), (1, 2)), ((3, 1), (1, 1)), ((1, 1), (1, 2)), ((2, 1), (2, 2))],
    ids=str,
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_move_smaller_by_enumeration(sizes_x: Values, sizes_z: Values, options: dict[str, Any]) -> None:
    n, m = sum(sizes_x), sum(sizes_z)
    fixed, moved = (sizes_x, sizes_z) if m <= n else (sizes_z, sizes_x)

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        found = []
        for a in deals(fixed):
            cases = []
            for b in deals(moved):
                hold_x, hold_z = (a, b) if m <= n else (b, a)
                cases.append(outcome(blocks_of(x, z, hold_x, hold_z, 2), **round_options(options)))
            found.append(repeat(Fraction(1, len(deals(fixed))), mixture(cases), options.get("n_rounds", 1)))
        return found

    mean, exact = exact_moments(n, m, scenarios)
    assert mean == MEAN
    arguments: dict[str, Any] = {"scheme": "prop-swor", "sizes_x": sizes_x, "sizes_z": sizes_z, **options}
    smaller, both = variance(COMPONENTS, move="smaller", **arguments), variance(COMPONENTS, **arguments)
    assert agrees(smaller, exact)
    decisive = moved if options.get("aggregate") == "pooled" else fixed
    nothing_lost = len(set(decisive)) == 1 or options.get("n_rounds", 1) == 1
    assert (smaller == pytest.approx(both, rel=1e-12)) == nothing_lost
    assert smaller >= both * (1 - 1e-12)


@pytest.mark.parametrize(("sizes_x", "sizes_z"), [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((2,), (2,))], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 2)])
def test_prop_swr_by_enumeration(n: int, m: int, sizes_x: Values, sizes_z: Values, options: dict[str, Any]) -> None:
    def scenarios(x: Values, z: Values) -> list[Scenario]:
        draws = [itertools.product(x, repeat=size) for size in sizes_x]
        draws += [itertools.product(z, repeat=size) for size in sizes_z]
        half = len(sizes_x)
        cases = [
            outcome(list(zip(blocks[:half], blocks[half:], strict=True)), **round_options(options))
            for blocks in itertools.product(*draws)
        ]
        return [repeat(Fraction(1), mixture(cases), options.get("n_rounds", 1))]

    mean, exact = exact_moments(n, m, scenarios)
    assert mean == MEAN
    arguments: dict[str, Any] = {"n": n, "m": m, "sizes_x": sizes_x, "sizes_z": sizes_z}
    assert agrees(variance(COMPONENTS, scheme="prop-swr", **arguments, **options), exact)


@pytest.mark.parametrize("options", [o for o in OPTIONS if "aggregate" not in o], ids=str)
@pytest.mark.parametrize(("n", "m", "n_workers"), [(3, 2, 2), (2, 3, 3), (3, 3, 3), (1, 3, 1)])
def test_swor_with_empty_blocks_as_zero_by_enumeration(n: int, m: int, n_workers: int, options: dict[str, Any]) -> None:
    ways = deals(tuple(even_sizes(n + m, n_workers).tolist()))

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        cases = [
            outcome(blocks_of(x, z, way[:n], way[n:], n_workers), empty="zero", **round_options(options))
            for way in ways
        ]
        return [repeat(Fraction(1), mixture(cases), options.get("n_rounds", 1))]

    mean, exact = exact_moments(n, m, scenarios)
    assert agrees(swor_bias_factor(n, m, n_workers), mean / MEAN)
    arguments: dict[str, Any] = {"n": n, "m": m, "n_workers": n_workers, "expectation": float(MEAN)}
    assert agrees(variance(COMPONENTS, scheme="swor", empty="zero", **arguments, **options), exact)
    assert agrees(theory.variance_swor(COMPONENTS, **arguments, **options), exact)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_swor_given_realised_sizes_by_enumeration(aggregate: Any, n_pairs: int | None) -> None:
    sizes_x, sizes_z = [(2, 1, 0), (1, 1, 1)], [(0, 2, 1), (1, 1, 1)]

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        rounds: list[Round] = []
        for row_x, row_z in zip(sizes_x, sizes_z, strict=True):
            ways = itertools.product(deals(row_x), deals(row_z))
            cases = [
                outcome(blocks_of(x, z, a, b, 3), n_pairs=n_pairs, aggregate=aggregate, empty="skip") for a, b in ways
            ]
            rounds.append((Fraction(1, 2), *mixture(cases)))
        return [(Fraction(1), rounds)]

    mean, exact = exact_moments(3, 3, scenarios)
    assert mean == MEAN
    value = variance(
        COMPONENTS,
        scheme="swor",
        empty="skip",
        sizes_x=sizes_x,
        sizes_z=sizes_z,
        n_pairs=n_pairs,
        aggregate=aggregate,
    )
    assert agrees(value, exact)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_as_is_with_skipped_shards_by_enumeration(aggregate: Any, n_pairs: int | None) -> None:
    hold_x, hold_z = (0, 0, 1, 3), (0, 1, 1, 2)

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        blocks = blocks_of(x, z, hold_x, hold_z, 4)
        return [repeat(Fraction(1), outcome(blocks, n_pairs=n_pairs, aggregate=aggregate, empty="skip"), 1)]

    _, exact = exact_moments(4, 4, scenarios)
    options: dict[str, Any] = {"scheme": "as-is", "n_pairs": n_pairs, "aggregate": aggregate}
    assert agrees(variance(COMPONENTS, sizes_x=(2, 1, 0, 1), sizes_z=(1, 2, 1, 0), empty="skip", **options), exact)
    with pytest.raises(ValueError, match="no pair"):
        variance(COMPONENTS, sizes_x=(2, 1, 0, 1), sizes_z=(1, 2, 1, 0), **options)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 2])
def test_fixed_partitions_by_enumeration(aggregate: Any, n_pairs: int | None) -> None:
    hold_x = [(0, 0, 1, 1), (0, 1, 0, 1), (1, 0, 0, 0)]
    hold_z = [(0, 1, 1), (0, 0, 1), (1, 0, 1)]
    totals = [sum(a.count(i) * b.count(i) for i in (0, 1)) for a, b in zip(hold_x, hold_z, strict=True)]
    share = [Fraction(q, sum(totals)) if aggregate == "pooled" else Fraction(1, 3) for q in totals]

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        rounds = [
            (r, *outcome(blocks_of(x, z, a, b, 2), n_pairs=n_pairs, aggregate=aggregate))
            for r, a, b in zip(share, hold_x, hold_z, strict=True)
        ]
        return [(Fraction(1), rounds)]

    mean, exact = exact_moments(4, 3, scenarios)
    assert mean == MEAN
    options: dict[str, Any] = {"n_pairs": n_pairs, "aggregate": aggregate}
    value = variance(COMPONENTS, scheme="fixed-shuffle", n_workers=2, assignments=(hold_x, hold_z), **options)
    assert agrees(value, exact)


@pytest.mark.parametrize("aggregate", ["mean", "pooled"])
@pytest.mark.parametrize("n_pairs", [None, 1])
@pytest.mark.parametrize("n_rounds", [1, 2, 3])
@pytest.mark.parametrize(("sizes_x", "sizes_z"), [((1, 1, 1), (1, 1, 1)), ((1, 2, 1), (2, 1, 1))], ids=str)
def test_rotation_by_enumeration(
    sizes_x: Values, sizes_z: Values, n_rounds: int, n_pairs: int | None, aggregate: Any
) -> None:
    # In round t worker i sees z-block i - t, that is: block j visits worker j + t.
    hold_x = [i for i, size in enumerate(sizes_x) for _ in range(size)]
    hold_z = [[(j + t) % 3 for j, size in enumerate(sizes_z) for _ in range(size)] for t in range(n_rounds)]
    totals = [sum(sizes_x[i] * sizes_z[(i - t) % 3] for i in range(3)) for t in range(n_rounds)]
    share = [Fraction(q, sum(totals)) if aggregate == "pooled" else Fraction(1, n_rounds) for q in totals]

    def scenarios(x: Values, z: Values) -> list[Scenario]:
        rounds = [
            (r, *outcome(blocks_of(x, z, hold_x, b, 3), n_pairs=n_pairs, aggregate=aggregate))
            for r, b in zip(share, hold_z, strict=True)
        ]
        return [(Fraction(1), rounds)]

    n, m = sum(sizes_x), sum(sizes_z)
    mean, exact = exact_moments(n, m, scenarios)
    assert mean == MEAN
    options: dict[str, Any] = {"n_pairs": n_pairs, "aggregate": aggregate}
    value = variance(COMPONENTS, scheme="rotation", sizes_x=sizes_x, sizes_z=sizes_z, n_rounds=n_rounds, **options)
    assert agrees(value, exact)
    fixed = variance(
        COMPONENTS, scheme="fixed-shuffle", n_workers=3, assignments=([hold_x] * n_rounds, hold_z), **options
    )
    assert fixed == pytest.approx(value, rel=1e-13)
    if n_pairs is None and n_rounds == 3 and aggregate == "pooled":
        assert value == pytest.approx(variance_complete(COMPONENTS, n, m), rel=1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# One sample, degree 2


def exact_one_sample_moments(n: int, rounds: Callable[[Values], list[Round]]) -> tuple[Fraction, Fraction]:
    first = second = Fraction(0)
    for p, x in samples(LAW_X, n):
        parts = rounds(x)
        center = sum((r * mean for r, mean, _ in parts), start=Fraction(0))
        first += p * center
        second += p * (center**2 + sum((r * r * v for r, _, v in parts), start=Fraction(0)))
    return first, second - first**2


def inner(x: Values) -> Values:
    return tuple(SYMMETRIC[a][b] for a, b in itertools.combinations(x, 2))


@pytest.mark.parametrize(
    ("sizes", "options"),
    [(sizes, o) for sizes in [(2, 2), (3, 2), (4,)] for o in OPTIONS if not o.get("distinct") or min(sizes) > 2],
    ids=str,
)
def test_one_sample_prop_swor_by_enumeration(sizes: Values, options: dict[str, Any]) -> None:
    n_rounds = options.get("n_rounds", 1)
    pairs = [size * (size - 1) // 2 for size in sizes]
    pooled = options.get("aggregate") == "pooled"
    weights = [Fraction(q, sum(pairs)) if pooled else Fraction(1, len(sizes)) for q in pairs]

    def rounds(x: Values) -> list[Round]:
        cases = []
        for way in deals(sizes):
            parts = [
                drawn(inner(block(x, way, i)), options.get("n_pairs"), options.get("distinct", False))
                for i in range(len(sizes))
            ]
            center = sum((w * mean for w, (mean, _) in zip(weights, parts, strict=True)), start=Fraction(0))
            cases.append(
                (center, sum((w * w * v for w, (_, v) in zip(weights, parts, strict=True)), start=Fraction(0)))
            )
        return [(Fraction(1, n_rounds), *mixture(cases))] * n_rounds

    mean, exact = exact_one_sample_moments(sum(sizes), rounds)
    assert mean == SYMMETRIC_MEAN
    assert agrees(one_sample.prop_swor(sizes, **options) @ ONE_SAMPLE, exact)


@pytest.mark.parametrize("n_pairs", [None, 1, 2])
@pytest.mark.parametrize(
    ("sizes", "n_rounds"),
    [
        ((2, 2), 1),
        ((2, 2), 2),
        ((3, 2), 2),
        ((2, 1, 1), 1),
        ((2, 1, 1), 2),
        ((2, 1, 1, 1), 2),
        ((2, 1, 1, 1), 3),
        ((1, 2), 2),
    ],
)
def test_one_sample_rotation_by_enumeration(sizes: Values, n_rounds: int, n_pairs: int | None) -> None:
    count = len(sizes)
    starts = [sum(sizes[:i]) for i in range(count + 1)]
    home = [list(range(starts[i], starts[i + 1])) for i in range(count)]
    tasks = [list(itertools.combinations(points, 2)) for points in home]
    for shift in range(1, n_rounds):
        for i in range(count):
            j = (i + shift) % count
            rows = home[i]
            if 2 * shift == count:
                half = -(-sizes[min(i, j)] // 2)
                rows, j = (home[i][:half], j) if i < j else (home[j][half:], i)
            tasks.append([(k, other) for k in rows for other in home[j]])
    tasks = [task for task in tasks if task]
    total = sum(map(len, tasks))

    def rounds(x: Values) -> list[Round]:
        # Every worker's task is a part of its own: its pairs are drawn independently of the others'.
        return [
            (Fraction(len(task), total), *drawn(tuple(SYMMETRIC[x[a]][x[b]] for a, b in task), n_pairs, False))
            for task in tasks
        ]

    mean, exact = exact_one_sample_moments(sum(sizes), rounds)
    assert mean == SYMMETRIC_MEAN
    value = one_sample.rotation(sizes, n_rounds, n_pairs=n_pairs) @ ONE_SAMPLE
    assert agrees(value, exact)
    if n_rounds == count // 2 + 1 and n_pairs is None:
        assert value == pytest.approx(one_sample.complete(sum(sizes)) @ ONE_SAMPLE, rel=1e-13)


def test_one_sample_prop_swr_by_enumeration() -> None:
    """Given the patterns of multiplicities (2, 1) and (1, 1, 1), over all the points that can have them."""
    n = 3

    def rounds(x: Values) -> list[Round]:
        found: list[Round] = []
        for counts in ((2, 1), (1, 1, 1)):
            cases = []
            for ids in itertools.permutations(range(n), len(counts)):
                positions = [k for k, c in zip(ids, counts, strict=True) for _ in range(c)]
                values = [SYMMETRIC[x[a]][x[b]] for a, b in itertools.combinations(positions, 2) if a != b]
                cases.append((Fraction(sum(values), len(values)), Fraction(0)))
            found.append((Fraction(1, 2), *mixture(cases)))
        return found

    mean, exact = exact_one_sample_moments(n, rounds)
    assert mean == SYMMETRIC_MEAN
    drawn_twice, all_once = (one_sample.multiplicity_sums(ids) for ids in ([0, 0, 2], [2, 0, 1]))
    assert agrees(one_sample.multiplicities(n, [[drawn_twice, all_once]]) @ ONE_SAMPLE, exact)


# ---------------------------------------------------------------------------------------------------------------------
# The paper's statements

GRID = [
    (n, m, n_workers)
    for n_workers in (1, 2, 3, 5)
    for n in (n_workers, 2 * n_workers, 12 * n_workers)
    for m in (n_workers, 3 * n_workers)
]
CASES = [
    Components(0.7, 0.2, 1.3),
    Components(0.0, 0.0, 1.0),
    Components(1.0, 0.0, 0.0),
    Components(0.0, 3.0, 1e-3),
    COMPONENTS,
]


@pytest.mark.parametrize("components", CASES, ids=str)
def test_theorems_1_to_4_as_printed_where_they_are_right(components: Components) -> None:
    c = components
    for (n, m, n_workers), n_rounds, n_pairs in itertools.product(GRID, (1, 2, 7), (1, 3)):
        blocks: dict[str, Any] = {"n": n, "m": m, "n_workers": n_workers}
        v_n = c.var_x / n + c.var_z / m + c.var_xz / (n * m)
        v_one = v_n + (n_workers - 1) * c.var_xz / (n * m)
        v_t = v_n + (n_workers - 1) * c.var_xz / (n * m * n_rounds)
        v_tb = v_t - v_one / (n_rounds * n_pairs) + c.total / (n_workers * n_rounds * n_pairs)
        assert theory.variance_complete(c, n, m) == pytest.approx(v_n)
        assert theory.variance_prop_swor(c, **blocks) == pytest.approx(v_one)
        assert theory.variance_prop_swor(c, **blocks, n_rounds=n_rounds) == pytest.approx(v_t)
        assert theory.variance_prop_swor(c, **blocks, n_rounds=n_rounds, n_pairs=n_pairs) == pytest.approx(v_tb)
        blom = (1 - 1 / n_pairs) * v_n + c.total / n_pairs
        assert theory.variance_incomplete(c, n, m, n_pairs) == pytest.approx(blom)
        v_r = (
            c.var_x / n * (1 + n_workers * (1 - 1 / n))
            + c.var_z / m * (1 + n_workers * (1 - 1 / m))
            + c.var_xz / (n * m) * (1 + n_workers**2 * (1 - 1 / n) * (1 - 1 / m) + n_workers * (2 - 1 / n - 1 / m))
        )
        swr = v_n + (v_r - v_n) / (n_workers * n_rounds)
        assert theory.variance_prop_swr(c, **blocks, n_rounds=n_rounds) == pytest.approx(swr)
        drawn = (c.total - v_r) / (n_workers * n_rounds * n_pairs)
        found = theory.variance_prop_swr(c, **blocks, n_rounds=n_rounds, n_pairs=n_pairs)
        assert found == pytest.approx(swr + drawn)
        rotated = min(n_rounds, n_workers)
        design = Design(scheme="rotation", n_workers=n_workers, n_rounds=rotated, aggregate="pooled")
        rotation = c.var_x / n + c.var_z / m + c.var_xz * n_workers / (n * m * rotated)
        assert theory.variance(c, n, m, design) == pytest.approx(rotation)


@pytest.mark.parametrize("options", [{}, {"n_rounds": 3}, {"n_pairs": 2}, {"n_rounds": 2, "n_pairs": 3}], ids=str)
@pytest.mark.parametrize(("n", "m", "n_workers"), [(8, 4, 2), (7, 5, 3), (5, 9, 4)])
def test_the_papers_names_give_the_reference(n: int, m: int, n_workers: int, options: dict[str, Any]) -> None:
    sizes: dict[str, Any] = {"n": n, "m": m, "n_workers": n_workers, **options}
    swor = {**sizes, "expectation": float(MEAN)}
    for found, scheme, more in (
        (theory.variance_prop_swor(COMPONENTS, **sizes), "prop-swor", sizes),
        (theory.variance_prop_swr(COMPONENTS, **sizes), "prop-swr", sizes),
        (theory.variance_swor(COMPONENTS, **swor), "swor", {"empty": "zero", **swor}),
    ):
        assert found == pytest.approx(variance(COMPONENTS, scheme=scheme, **more), rel=1e-12)


def test_printed_prop_swr_differs_from_what_is_right() -> None:
    _, components = models.normal_product(2.0, 2.0)
    blocks: dict[str, Any] = {"n": 40, "m": 20, "n_workers": 5}
    assert theory.variance_prop_swr(components, **blocks, n_pairs=1) == pytest.approx(2.0410, abs=5e-5)
    assert theory.printed_prop_swr(components, **blocks, n_pairs=1) == pytest.approx(1.8389, abs=5e-5)
    many = {"n_rounds": 4, "n_pairs": 3}
    printed = theory.printed_prop_swr(components, **blocks, **many)
    assert printed == pytest.approx(variance(components, scheme="prop-swr", printed=True, **blocks, **many), rel=1e-12)
    gap = theory.variance_prop_swr(components, **blocks, **many) - printed
    assert gap == pytest.approx((2.0410 - 1.8389) / 12, rel=1e-3)
    with pytest.raises(ValueError, match="divide"):
        theory.printed_prop_swr(components, **{**blocks, "n": 41}, n_pairs=1)


@pytest.mark.parametrize("components", CASES, ids=str)
def test_dominance(components: Components) -> None:
    for (n, m, n_workers), n_pairs in itertools.product(GRID, (1, 2, 5)):
        # B T' N = K = T n m / N with whole T and T'.
        t_incomplete, t_complete = n * m, n_workers**2 * n_pairs
        total = n_workers * n_pairs * t_incomplete
        gap = dominance_gap(components, n, m, n_workers, n_pairs, total)
        blocks: dict[str, Any] = {"scheme": "prop-swor", "n": n, "m": m, "n_workers": n_workers}
        incomplete = variance(components, **blocks, n_rounds=t_incomplete, n_pairs=n_pairs)
        complete = variance(components, **blocks, n_rounds=t_complete)
        assert gap == pytest.approx(incomplete - complete, rel=1e-9, abs=1e-13 * components.total)
        assert gap >= 0
        if components.var_xz > 0 and n_workers > 1:
            assert (gap == 0) == (n_pairs == 1 and n * m == n_workers**2)


def test_rotation_is_between_complete_and_prop_swor() -> None:
    for (n, m, n_workers), components in itertools.product(GRID, CASES):
        blocks: dict[str, Any] = {"n": n, "m": m, "n_workers": n_workers}
        for n_rounds in range(1, n_workers + 1):
            rotation = variance(components, scheme="rotation", **blocks, n_rounds=n_rounds)
            dealt = variance(components, scheme="prop-swor", **blocks, n_rounds=n_rounds)
            assert variance_complete(components, n, m) <= rotation * (1 + 1e-14)
            assert rotation <= dealt * (1 + 1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Models

PUBLISHED = {
    0.00016: (5.978, 2.244),
    0.0008: (2.785, 1.446),
    0.004: (1.423, 1.106),
    0.02: (1.086, 1.022),
    0.1: (1.016, 1.004),
    0.5: (1.002, 1.000),
}


@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_two_point_relative_variances(epsilon: float) -> None:
    _, components = models.two_point_auc(epsilon)
    for n_rounds, expected in zip((1, 4), PUBLISHED[epsilon], strict=True):
        ratio = models.two_point_auc_relative_variance(epsilon, 5000, 50, 10, n_rounds)
        assert ratio == pytest.approx(expected, abs=5.1e-4)
        general = variance(components, scheme="prop-swor", n=5000, m=50, n_workers=10, n_rounds=n_rounds)
        assert ratio == pytest.approx(general / variance_complete(components, 5000, 50), rel=1e-12)


def test_two_point_components_by_enumeration() -> None:
    epsilon = Fraction(1, 7)
    law_x, law_z = {2: 1 - epsilon, 0: epsilon}, {1: epsilon, -1: 1 - epsilon}
    given_x = {x: sum(q for z, q in law_z.items() if z < x) for x in law_x}
    given_z = {z: sum(p for x, p in law_x.items() if z < x) for z in law_z}
    mean = sum(law_x[x] * v for x, v in given_x.items())
    var_x = sum(law_x[x] * (v - mean) ** 2 for x, v in given_x.items())
    var_z = sum(law_z[z] * (v - mean) ** 2 for z, v in given_z.items())
    value, components = models.two_point_auc(float(epsilon))
    assert value == pytest.approx(float(mean))
    assert (components.var_x, components.var_z) == pytest.approx((float(var_x), float(var_z)))
    assert components.total == pytest.approx(float(mean * (1 - mean)))


def test_two_point_informative_runs() -> None:
    """Of 5000 runs about 22 have a misordered pair; so few that their variance is uncertain by about a third."""
    assert 5000 * models.two_point_auc_informative(0.00016, 5000, 50) == pytest.approx(22, abs=0.5)
    assert models.two_point_auc_informative(0.5, 1, 1) == pytest.approx(0.25)
    assert models.two_point_auc_informative(1.0, 3, 2) == 1.0


def test_normal_product_components() -> None:
    mean, components = models.normal_product(2.0, -0.5, 3.0, 0.25)
    second_moment = (2.0**2 + 3.0**2) * (0.5**2 + 0.25**2)
    assert mean == -1.0
    assert components.total == pytest.approx(second_moment - mean**2)
    assert components.var_x == pytest.approx(0.5**2 * 3.0**2)
    assert components.var_z == pytest.approx(2.0**2 * 0.25**2)


def test_one_sample_models() -> None:
    _, square = normal_half_square(1.5)
    for n in (2, 5, 40):
        assert one_sample.complete(n) @ square == pytest.approx(2 * 1.5**4 / (n - 1))
    # Gauss–Hermite quadrature of the projection's variance.
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    density = np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    cumulative = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in nodes])
    projection = 2 * density + nodes * (2 * cumulative - 1)
    weights = weights / weights.sum()
    center = (weights * projection).sum()
    mean, gini = models.normal_gini()
    assert center == pytest.approx(mean, rel=1e-6)
    assert gini.zeta1 == pytest.approx((weights * (projection - center) ** 2).sum(), rel=1e-6)
    assert gini.total == pytest.approx(2 - 4 / math.pi)
    assert models.normal_gini(3.0)[1].delta == pytest.approx(9 * gini.delta)


def test_standard_error_of_a_variance() -> None:
    # Normal: Var(S²) = 2σ⁴/(R - 1).
    assert variance_standard_error(2.0, 12.0, 101) == pytest.approx(math.sqrt(2 * 4 / 100))
    with pytest.raises(ValueError, match="two runs"):
        variance_standard_error(1.0, 3.0, 1)


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def test_even_sizes() -> None:
    assert even_sizes(11, 4).tolist() == [3, 3, 3, 2]
    assert even_sizes(4, 4).tolist() == [1, 1, 1, 1]


def test_swor_bias_at_the_papers_sizes() -> None:
    """n = 100 000, m = 200, N = 100: 13.4 % of the blocks have no point of the small class."""
    n, m, n_workers = 100_000, 200, 100
    s = (n + m) // n_workers
    lacking = Fraction(math.comb(n, s), math.comb(n + m, s))
    assert 1 - swor_bias_factor(n, m, n_workers) == pytest.approx(float(lacking), rel=1e-9)
    assert float(lacking) == pytest.approx(0.134, abs=5e-4)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"scheme": "prop-swor", "n": 3, "m": 9, "n_workers": 4}, "each have a point"),
    ({"scheme": "prop-swr", "n": 9, "m": 3, "n_workers": 4}, "each have a point"),
    ({"scheme": "swor", "n": 2, "m": 3, "n_workers": 6, "empty": "zero"}, "some would get none"),
    ({"scheme": "prop-swor", "n": 3, "m": 9, "n_workers": 0}, "at least 1"),
    ({"scheme": "prop-swor", "n_rounds": 0}, "at least 1"),
    ({"scheme": "prop-swor", "n_pairs": 0}, "at least 1"),
    ({"scheme": "prop-swor", "block_sizes": (((2, 2), (1, 1, 1)),)}, "block sizes|inhomogeneous"),
    ({"scheme": "prop-swor", "block_sizes": (((4, 0), (2, 2)),)}, "no pair"),
    ({"scheme": "prop-swor", "block_sizes": (((5, -1), (2, 2)),)}, "not negative"),
    ({"scheme": "prop-swor", "aggregate": "median"}, "median"),
    ({"scheme": "prop-swor", "move": "larger"}, "larger"),
    ({"scheme": "as-is", "n_rounds": 2}, "one round"),
    ({"scheme": "rotation", "n_rounds": 3}, "too many"),
    ({"scheme": "swor", "empty": "skip"}, "realised"),
    ({"scheme": "swor", "empty": "skip", "block_sizes": (((4, 0), (0, 4)),)}, "no pair at all"),
    ({"scheme": "shuffle"}, "scheme is one of"),
]


@pytest.mark.parametrize(("request_", "message"), IMPOSSIBLE, ids=lambda v: str(v)[:60])
def test_impossible_requests(request_: dict[str, Any], message: str) -> None:
    design = {"n_workers": 2, **request_}
    n, m = design.pop("n", 4), design.pop("m", 4)
    with pytest.raises(ValueError, match=message):
        theory.variance(COMPONENTS, n, m, Design(**design))


def test_impossible_one_sample_requests() -> None:
    with pytest.raises(ValueError, match="two points"):
        one_sample.complete(1)
    with pytest.raises(ValueError, match="no pair"):
        one_sample.prop_swor((2, 1))
    with pytest.raises(ValueError, match="too many"):
        one_sample.rotation((2, 2, 2), 3)
    with pytest.raises(ValueError, match="same point"):
        one_sample.multiplicities(4, [list(map(one_sample.multiplicity_sums, [[1, 1]]))])
    with pytest.raises(ValueError, match="no pair is met"):
        one_sample.rotation((1, 1, 1), 1)
    with pytest.raises(ValueError, match="probability"):
        models.two_point_auc(1.5)
    with pytest.raises(ValueError, match="divide"):
        dominance_gap(COMPONENTS, 5, 4, 2, 1, 10)
