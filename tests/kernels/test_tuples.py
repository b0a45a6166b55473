"""Tuples of any degrees: all of them against `itertools`, and samples of them against the uniform law."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels import tuples
from mpi_ustat.kernels.kernel import PairSum, n_tuples
from mpi_ustat.kernels.tuples import UserTuples, make_user_kernel, sample_tuples
from mpi_ustat.kernels.user_pairs import UserKernel, UserPairs
from mpi_ustat.numerics.rng import Stream, Streams

Array = NDArray[Any]
Z = 5.0
"""Standard errors that a simulated mean may be off: one seeded check in 1.7 million would fail by chance."""

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (7,)),
    ((2,), (5,)),
    ((1,), (4,)),
    ((4,), (4,)),
    ((5,), (7,)),
    ((2, 1), (5, 4)),
    ((1, 3), (3, 6)),
    ((2, 2), (4, 5)),
    ((1, 1, 1), (3, 4, 5)),
    ((2, 1, 1), (4, 1, 3)),
]
shapes = pytest.mark.parametrize(("degrees", "sizes"), SHAPES, ids=str)


def stream(*, replicate: int = 0, seed: int = 7) -> Stream:
    return Streams(seed).open("tuples", replicate=replicate)


def every_tuple(degrees: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The tuples of indices, those of one sample ascending."""
    parts = [itertools.combinations(range(n), degree) for degree, n in zip(degrees, sizes, strict=True)]
    return [tuple(itertools.chain(*each)) for each in itertools.product(*parts)]


def as_sets(indices: Iterable[Array], degrees: Sequence[int]) -> list[tuple[int, ...]]:
    """Drawn tuples as `every_tuple` writes them."""
    parts = np.split(np.array(list(indices)), np.cumsum(degrees)[:-1])
    return list(zip(*np.concatenate([np.sort(part, axis=0) for part in parts]).tolist(), strict=True))


def mixed(*points: Array) -> Array:
    """A function of points of one coordinate that knows its samples apart: Σ_j (j + 1) x_j² is not symmetric."""
    return np.asarray(sum((j + 1) * each[:, 0] ** 2 for j, each in enumerate(points)))


# --- all tuples


@shapes
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_block_is_summed_over_all_its_tuples(degrees: tuple[int, ...], sizes: tuple[int, ...], chunk: int) -> None:
    rng = np.random.default_rng(1)
    blocks = [rng.integers(-9, 9, n).astype(float) for n in sizes]
    seen: list[tuple[float, ...]] = []

    def weights(*points: Array) -> Array:
        assert len(points) == sum(degrees) and all(each.shape == (len(points[0]), 1) for each in points)
        assert len(points[0]) <= chunk
        seen.extend(zip(*(each[:, 0].tolist() for each in points), strict=True))
        return mixed(*points)

    kernel = UserTuples(weights, degrees, "weights", chunk)
    of_column = np.repeat(np.arange(len(sizes)), degrees)
    expected = Counter(
        tuple(blocks[k][i] for k, i in zip(of_column, indices, strict=True)) for indices in every_tuple(degrees, sizes)
    )
    total = kernel.block_total(*blocks)
    assert Counter(seen) == expected  # with the points of a sample in the order of the block
    assert total == sum(count * sum((j + 1) * x * x for j, x in enumerate(key)) for key, count in expected.items())
    assert kernel.block_sums(*blocks) == (PairSum(total, n_tuples(degrees, sizes)),)
    assert kernel.local(*blocks) == ((PairSum(total, n_tuples(degrees, sizes)),), None)


def test_points_of_several_coordinates() -> None:
    """Twice the mean squared area of the triangles of four points: |(b - a) × (c - a)|."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])

    def area(a: Array, b: Array, c: Array) -> Array:
        u, v = b - a, c - a
        return np.asarray(np.abs(u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]))

    # By hand: without the last point 2, without the third 3, without the second 6, without the first 7.
    assert UserTuples(area, (3,), "area").block_total(square) == 2 + 3 + 6 + 7


@pytest.mark.parametrize("sizes", [(0, 4), (1, 4), (3, 0)])
def test_blocks_without_a_tuple(sizes: tuple[int, int]) -> None:
    kernel = UserTuples(mixed, (2, 1), "mixed")
    blocks = [np.ones(n) for n in sizes]
    assert kernel.block_total(*blocks) == 0
    assert kernel.block_sums(*blocks) == (PairSum(0, 0),)


@shapes
def test_tuples_are_numbered_one_by_one(degrees: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    numbering = tuples._Numbering(sizes, degrees)
    whole = numbering.tuples(np.arange(numbering.count))
    found = list(zip(*(column.tolist() for column in whole), strict=True))
    assert sorted(found) == sorted(every_tuple(degrees, sizes))
    backwards = numbering.tuples(np.arange(numbering.count)[::-1])
    assert list(zip(*(column.tolist() for column in backwards), strict=True)) == found[::-1]


def rank(combination: Sequence[int]) -> int:
    return sum(math.comb(point, j) for j, point in enumerate(combination, start=1))


@pytest.mark.parametrize(("n", "degree"), [(70, 66), (2**21, 3), (4_000_000, 2), (66, 33), (100, 99)])
def test_numbers_of_large_combinations(n: int, degree: int) -> None:
    count = math.comb(n, degree)
    assert count < 2**63
    numbers = [0, 1, count // 3, count // 2 + 1, count - 2, count - 1]
    columns = tuples._Numbering([n], [degree]).tuples(np.array(numbers))
    for number, combination in zip(numbers, np.array(columns).T.tolist(), strict=True):
        assert combination == sorted(set(combination)) and combination[0] >= 0 and combination[-1] < n
        assert rank(combination) == number


def test_too_many_tuples_to_go_through_are_refused() -> None:
    with pytest.raises(UserError, match="tuples are too many to go through: draw some of them instead"):
        UserTuples(mixed, (1,) * 7, "mixed").block_total(*[np.ones(600)] * 7)


# --- aligned points and what a function may return


@pytest.mark.parametrize("chunk", [1, 4, 5, 100])
def test_aligned_tuples(chunk: int) -> None:
    points = [np.arange(13.0), np.arange(13.0) - 5, np.arange(13.0) * 2]
    kernel = UserTuples(mixed, (2, 1), "mixed", chunk)
    assert kernel.tuple_sums(*points) == (PairSum(mixed(*(each[:, None] for each in points)).sum(), 13),)
    assert kernel.tuple_sums(*(each[:0] for each in points)) == (PairSum(0, 0),)


@pytest.mark.parametrize("shape", [(7,), (8, 1), (1, 8), ()], ids=str)
def test_values_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    kernel = UserTuples(lambda a, b, c: np.zeros(shape), (2, 1), "odd", 8)
    message = r"the kernel odd returned shape .* instead of \(8,\): it gets 3 arrays of B points, "
    with pytest.raises(UserError, match=message):
        kernel.block_total(np.ones(4), np.ones(5))
    with pytest.raises(UserError, match=message):
        kernel.pairs_total(*[np.ones(8)] * 3)


def test_values_that_are_not_finite_are_refused() -> None:
    kernel = UserTuples(lambda a, b, c: np.where(c == 3, np.nan, a)[:, 0], (2, 1), "gap")
    assert kernel.block_total(np.ones(3), np.ones(2)) == 6
    with pytest.raises(UserError, match="the kernel gap returned a value that is not finite"):
        kernel.block_total(np.ones(3), np.arange(4.0))


def test_kernels_are_made_by_their_degrees() -> None:
    def function(*points: Array) -> Array:
        return points[0]

    two = make_user_kernel(function, "two", 16)
    assert isinstance(two, UserKernel) and (two.degrees, two.tile, two.bounded) == ((1, 1), 16, False)
    function.degrees = (1, 1)  # type: ignore[attr-defined]
    function.bounded = True  # type: ignore[attr-defined]
    two = make_user_kernel(function, "two", 16)
    assert isinstance(two, UserKernel) and two.bounded
    function.degrees = (2,)  # type: ignore[attr-defined]
    one = make_user_kernel(function, "one", 16)
    assert isinstance(one, UserPairs) and (one.degrees, one.tile, one.bounded) == ((2,), 16, True)
    for degrees in ((1,), (3,), (2, 1), (1, 1, 1)):
        function.degrees = degrees  # type: ignore[attr-defined]
        many = make_user_kernel(function, "many", 16)
        assert isinstance(many, UserTuples) and (many.degrees, many.chunk, many.bounded) == (degrees, 256, True)
        assert many.name == "many" and many.n_coordinates is None and many.allows_infinite
    for wrong in (2, (), (0, 1), (1, 1.0), (True, 1), [1, 1], "11", None):
        function.degrees = wrong  # type: ignore[attr-defined]
        with pytest.raises(UserError, match="the kernel many has degrees .*: give a tuple"):
            make_user_kernel(function, "many")
    function.degrees = (1, 2)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="at least 1 at a time, not 0"):
        make_user_kernel(function, "many", 0)


# --- samples of tuples


def test_simple_degrees_keep_the_draws_they_had() -> None:
    drawn, expected = sample_tuples(stream(), (50, 7), (1, 1), 99), stream().pairs(50, 7, 99)
    assert [each.tolist() for each in drawn] == [each.tolist() for each in expected]
    source = stream()
    expected = tuple(source.integers(n, 99) for n in (5, 60, 7))  # type: ignore[assignment]
    drawn = sample_tuples(stream(), (5, 60, 7), (1, 1, 1), 99)
    assert [each.tolist() for each in drawn] == [each.tolist() for each in expected]


@shapes
@pytest.mark.parametrize("distinct", [False, True])
def test_samples_are_tuples(degrees: tuple[int, ...], sizes: tuple[int, ...], distinct: bool) -> None:
    count = n_tuples(degrees, sizes)
    possible = set(every_tuple(degrees, sizes))
    for size in {0, 1, count // 2, count}:
        drawn = sample_tuples(stream(), sizes, degrees, size, distinct=distinct)
        assert len(drawn) == sum(degrees)
        assert all(each.dtype == np.int64 and each.shape == (size,) for each in drawn)
        found = as_sets(drawn, degrees)
        assert set(found) <= possible
        if distinct:
            assert len(set(found)) == size
        again = sample_tuples(stream(), sizes, degrees, size, distinct=distinct)
        assert np.array_equal(drawn, again)


def uniform(counts: Counter[Any], possible: int, runs: int) -> bool:
    """Whether counts are those of a uniform law, by Pearson's chi-square; a true one fails one time in ten million."""
    from scipy.stats import chi2

    if possible == 1:
        return list(counts.values()) == [runs]
    expected = runs / possible
    statistic = sum((count - expected) ** 2 for count in counts.values()) / expected
    statistic += (possible - len(counts)) * expected
    return len(counts) <= possible and statistic < chi2.isf(1e-7, possible - 1)


@shapes
def test_tuples_drawn_with_replacement_are_uniform(degrees: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    possible = n_tuples(degrees, sizes)
    runs = max(200 * possible, 20 * math.perm(sizes[0], degrees[0]))
    drawn = sample_tuples(stream(), sizes, degrees, runs)
    assert uniform(Counter(as_sets(drawn, degrees)), possible, runs)
    if degrees[0] > 1:  # every order of the points of a sample is as likely
        first = Counter(zip(*(column.tolist() for column in drawn[: degrees[0]]), strict=True))
        assert uniform(first, math.perm(sizes[0], degrees[0]), runs)


def test_tuples_drawn_with_replacement_are_independent() -> None:
    drawn = as_sets(sample_tuples(stream(), (4,), (2,), 20_000), (2,))
    assert uniform(Counter(zip(drawn[::2], drawn[1::2], strict=True)), 36, 10_000)


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("degrees", "sizes"), [((2,), (4,)), ((1, 1), (2, 3)), ((2, 1), (3, 2))], ids=str)
def test_sets_of_distinct_tuples_are_uniform(degrees: tuple[int, ...], sizes: tuple[int, ...], wanted: int) -> None:
    # All three have 6 tuples; with 4 and 5 of them the others are drawn.
    runs, source = 3000, stream(seed=wanted)
    sets = [as_sets(sample_tuples(source, sizes, degrees, wanted, distinct=True), degrees) for _ in range(runs)]
    assert uniform(Counter(frozenset(each) for each in sets), math.comb(6, wanted), runs)


class Counting:
    """A stream that counts the integers it gives."""

    def __init__(self) -> None:
        self.source, self.given = stream(), 0

    def integers(self, bound: int, size: int) -> NDArray[np.int64]:
        self.given += size
        return self.source.integers(bound, size)

    def pairs(self, n: int, m: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        raise AssertionError("not for distinct tuples")


@pytest.mark.parametrize("wanted", [1, 500, 990, 1980, 1981, 3900, 3960])
def test_distinct_tuples_take_few_draws(wanted: int) -> None:
    # Half of the 99·40 tuples are found in 1.39 times as many draws, on average; with more, the others are drawn.
    source = Counting()
    drawn = sample_tuples(source, (99, 40), (1, 1), wanted, distinct=True)
    assert len(set(as_sets(drawn, (1, 1)))) == wanted
    assert source.given <= 2 * min(wanted, 99 * 40 - wanted)


def test_sets_of_tuples_too_many_to_number_are_uniform() -> None:
    # The procedure for M >= 2^63, on few.
    runs, source = 3000, stream()
    sets = [as_sets(tuples._different_columns(source, (3, 2), (2, 1), 3), (2, 1)) for _ in range(runs)]
    assert all(len(set(each)) == 3 for each in sets)
    assert uniform(Counter(frozenset(each) for each in sets), math.comb(6, 3), runs)


def test_distinct_tuples_of_huge_blocks() -> None:
    sizes = (3_000_000,) * 3
    assert n_tuples((1, 1, 1), sizes) > 2**63
    drawn = sample_tuples(stream(), sizes, (1, 1, 1), 1000, distinct=True)
    assert len(set(as_sets(drawn, (1, 1, 1)))) == 1000
    for column in drawn:  # uniform on 0 … n-1: the mean has standard deviation n/√(12·1000)
        assert abs(column.mean() / sizes[0] - 0.5) < Z / math.sqrt(12 * 1000)


@pytest.mark.parametrize(
    ("degrees", "sizes", "wanted", "distinct", "message"),
    [
        ((2,), (4,), 7, True, "7 distinct tuples can't be drawn from a block that has 6"),
        ((2, 1), (1, 9), 1, False, "1 tuples can't be drawn from a block that has 0"),
        ((1, 1), (0, 9), 3, True, "3 distinct tuples can't be drawn from a block that has 0"),
    ],
)
def test_more_tuples_than_there_are(
    degrees: tuple[int, ...], sizes: tuple[int, ...], wanted: int, distinct: bool, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        sample_tuples(stream(), sizes, degrees, wanted, distinct=distinct)


@pytest.mark.parametrize("distinct", [False, True])
def test_an_incomplete_statistic_is_unbiased_with_the_variance_of_its_sampling(distinct: bool) -> None:
    """Given the points, the mean of B values has mean U and variance s²/B, or s² (M - B)/(B (M - 1)) if distinct."""
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=6), rng.normal(size=4)

    def h(a: Array, b: Array, c: Array) -> Array:
        return np.asarray(((a - b) ** 2 * np.exp(c))[:, 0])

    kernel = UserTuples(h, (2, 1), "h")
    indices = np.array(every_tuple((2, 1), (6, 4))).T
    values = h(x[indices[0], None], x[indices[1], None], z[indices[2], None])
    wanted, runs, source = 20, 4000, stream()
    means = np.empty(runs)
    for r in range(runs):
        i, j, k = sample_tuples(source, (6, 4), (2, 1), wanted, distinct=distinct)
        means[r] = kernel.pairs_total(x[i], x[j], z[k]) / wanted
    assert abs(means.mean() - kernel.block_total(x, z) / 60) < Z * means.std() / math.sqrt(runs)
    truth = values.var() / wanted * ((60 - wanted) / 59 if distinct else 1)
    error = math.sqrt((np.mean((means - means.mean()) ** 4) - means.var() ** 2) / runs)
    assert abs(means.var(ddof=1) - truth) < Z * error


def test_the_order_of_a_samples_points_does_not_matter() -> None:
    """What is drawn and what is enumerated may list the points of a set differently."""
    calls: list[Callable[..., Any]] = [lambda a, b, c: (a * b * c)[:, 0], lambda a, b, c: (a + b + c)[:, 0]]
    x = np.array([1.0, 2.0, 4.0, 8.0])
    for function in calls:
        kernel = UserTuples(function, (3,), "symmetric")
        drawn = sample_tuples(stream(), (4,), (3,), 4, distinct=True)
        assert kernel.pairs_total(*(x[each] for each in drawn)) == kernel.block_total(x)
