"""Kernels of two points of one sample, against all pairs in rational numbers, all samples of a law, and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.gini import OneSampleGini
from mpi_ustat.kernels.kernel import PairSum
from mpi_ustat.kernels.one_sample import OneSampleKernel
from mpi_ustat.kernels.user_pairs import UserPairs
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.paper.models import OneSampleComponents
from mpi_ustat.schemes import one_sample

Floats = NDArray[np.float64]
Function = Callable[[Any, Any], Any]

Z = 5.0
"""Standard errors that a simulated mean may be off: one seeded check in 1.7 million would fail by chance."""


def half_square(x: Any, y: Any) -> Any:
    return (x - y) * (x - y) / 2


def distance(x: Any, y: Any) -> Any:
    return abs(x - y)


def squared_sum(x: Any, y: Any) -> Any:
    return x * x * y * y + x + y


def of_blocks(h: Function) -> Function:
    """The function of two blocks of single numbers that a user would write for h."""
    return lambda x, y: h(x, y.T)


KERNELS: dict[str, tuple[OneSampleKernel, Function]] = {
    "variance": (Variance(), half_square),
    "gini": (OneSampleGini(), distance),
    "user": (UserPairs(of_blocks(squared_sum), "user", tile=3), squared_sum),
}
every_kernel = pytest.mark.parametrize("name", list(KERNELS))

SAMPLES = {
    "four": [-3.0, -1.0, 0.0, 4.0],
    "ties": [2.0, 2.0, 0.0, 2.0, 5.0, 0.0, 7.0],
    "constant": [0.1] * 6,
    "two values": [1.0, 0.0, 0.0, 1.0, 1.0],
    "outlier": [1e8, 1.0, 2.0, 4.0, -3.0],
    "far away": [1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6, 1e9 - 5.5],
    "neighbouring doubles": [1e9, 1e9 + 2**-23, 1e9 + 2**-22, 1e9, 1e9 + 3 * 2**-23],
    "long": np.random.default_rng(1).normal(size=40).round(3).tolist(),
}
every_sample = pytest.mark.parametrize("sample", list(SAMPLES))


def fractions(values: Any) -> list[Fraction]:
    return [Fraction(value) for value in values]


def all_pairs(h: Function, x: Any) -> Fraction:
    return sum((h(a, b) for a, b in itertools.combinations(fractions(x), 2)), Fraction(0))


def exact_components(h: Function, x: Any) -> tuple[Fraction, Fraction]:
    """ζ̂₁ and δ̂ by the least-squares fit of a + b_i + b_j, straight from the matrix of all values."""
    points = fractions(x)
    n = len(points)
    mean = all_pairs(h, x) / math.comb(n, 2)
    effects = [(sum(h(points[i], points[j]) for j in range(n) if j != i) - (n - 1) * mean) / (n - 2) for i in range(n)]
    left = sum(
        (h(points[i], points[j]) - mean - effects[i] - effects[j]) ** 2 for i, j in itertools.combinations(range(n), 2)
    )
    delta = Fraction(left) / Fraction(n * (n - 3), 2)
    return sum(effect**2 for effect in effects) / Fraction(n - 1) - delta / (n - 2), delta


def exact_layout(h: Function, x: Any, y: Any) -> tuple[Fraction, Fraction]:
    """ζ̂₁ and δ̂ by the two-way analysis of variance of the pairs between two blocks."""
    n, m = len(x), len(y)
    table = [[h(a, b) for b in fractions(y)] for a in fractions(x)]
    rows = [sum(row) / m for row in table]
    columns = [sum(column) / n for column in zip(*table, strict=True)]
    mean = sum(rows) / n
    places = itertools.product(range(n), range(m))
    delta = sum((table[k][j] - rows[k] - columns[j] + mean) ** 2 for k, j in places) / Fraction((n - 1) * (m - 1))
    of_rows = sum((row - mean) ** 2 for row in rows) / Fraction(n - 1) - delta / m
    of_columns = sum((column - mean) ** 2 for column in columns) / Fraction(m - 1) - delta / n
    return (of_rows + of_columns) / 2, delta


def tolerance(kernel: OneSampleKernel, expected: list[float]) -> float:
    """A user's values of a constant sample are alike, but their mean is rounded: 1e-32 are the squares of that."""
    return 1e-13 * max(map(abs, expected)) + (1e-32 if isinstance(kernel, UserPairs) else 0.0)


# --- values


def test_known_values() -> None:
    # By hand: Σ (x - 3)² = 14 of 3 degrees of freedom; the distances are 2, 3, 7, 1, 5, 4.
    assert Variance().block_total(np.array([1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6])) / 6 == 14 / 3
    assert OneSampleGini().block_total(np.array([-3.0, -1.0, 0.0, 4.0])) / 6 == 11 / 3
    assert UserPairs(of_blocks(distance), "d").block_total(np.array([0.0, 4.0, -3.0, -1.0])) / 6 == 11 / 3


@every_kernel
@every_sample
def test_the_sum_over_all_pairs(name: str, sample: str) -> None:
    kernel, h = KERNELS[name]
    x = np.array(SAMPLES[sample])
    expected = float(all_pairs(h, x))
    total = kernel.block_total(x)
    assert total == pytest.approx(expected, rel=1e-13, abs=0)
    assert kernel.block_sums(x) == (PairSum(total, math.comb(len(x), 2)),) == kernel.local(x).sums
    assert kernel.block_total(x[::-1]) == pytest.approx(expected, rel=1e-13, abs=0)


scalars = st.lists(
    st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.floats(min_value=-1e70, max_value=1e70)), max_size=20
).map(lambda values: np.array(values, dtype=np.float64))


@given(x=scalars)
def test_any_block_of_numbers(x: Floats) -> None:
    tiny = 1e-300  # squares below it underflow
    assert Variance().block_total(x) == pytest.approx(float(all_pairs(half_square, x)), rel=1e-13, abs=tiny)
    assert OneSampleGini().block_total(x) == pytest.approx(float(all_pairs(distance, x)), rel=1e-14, abs=0)


@every_kernel
def test_blocks_that_are_too_small(name: str) -> None:
    kernel, h = KERNELS[name]
    for n in range(5):
        x = np.array([1.5, 4.0, -2.0, 7.0])[:n]
        sums, components = kernel.local(x)
        assert [each.n_pairs for each in sums] == [math.comb(n, 2)]
        assert sums[0].total == pytest.approx(float(all_pairs(h, x)), rel=1e-15)
        assert (components is None) == (n < 4)
        assert kernel.block_total(x) == sums[0].total
    one = np.ones(1)
    assert kernel.cross_total(one, one[:0]) == kernel.cross_total(one[:0], one) == 0


@every_kernel
def test_the_points_are_left_alone(name: str) -> None:
    x, y = np.array([3.0, 1.0, 2.0, 9.0]), np.array([5.0, 4.0])
    kernel = KERNELS[name][0]
    kernel.local(x), kernel.block_total(x), kernel.cross_total(x, y)
    assert x.tolist() == [3.0, 1.0, 2.0, 9.0] and y.tolist() == [5.0, 4.0]


@every_kernel
def test_the_sum_over_aligned_pairs(name: str) -> None:
    kernel, h = KERNELS[name]
    x, y = np.random.default_rng(2).integers(-50, 50, (2, 45)).astype(float)
    expected = float(sum(map(h, fractions(x), fractions(y))))
    assert kernel.tuple_sums(x, y) == (PairSum(expected, 45),)
    assert kernel.tuple_sums(x[:0], y[:0]) == (PairSum(0, 0),)


# --- components


@every_kernel
@every_sample
def test_components_of_a_block(name: str, sample: str) -> None:
    kernel, h = KERNELS[name]
    x = SAMPLES[sample]
    expected = [float(value) for value in exact_components(h, x)]
    components = kernel.local(np.array(x)).components
    assert components is not None and components.shape == (2, 1, 1)
    if name == "user" and sample in ("far away", "neighbouring doubles"):
        return  # h itself is rounded
    assert components.ravel() == pytest.approx(expected, rel=1e-9, abs=tolerance(kernel, expected))


@every_kernel
@every_sample
def test_pairs_between_two_blocks(name: str, sample: str) -> None:
    kernel, h = KERNELS[name]
    x, y = SAMPLES[sample][:2], SAMPLES[sample][2:]
    total = sum((h(a, b) for a, b in itertools.product(fractions(x), fractions(y))), Fraction(0))
    ((found, n_pairs),) = kernel.cross_sums(np.array(x), np.array(y))
    assert found == kernel.cross_total(np.array(x), np.array(y)) == pytest.approx(float(total), rel=1e-13, abs=0)
    assert n_pairs == len(x) * len(y)


@every_kernel
def test_a_block_is_its_halves_and_what_is_between_them(name: str) -> None:
    kernel = KERNELS[name][0]
    x = np.random.default_rng(3).integers(-9, 9, 30).astype(float)
    parts = kernel.block_total(x[:11]) + kernel.block_total(x[11:]) + kernel.cross_total(x[:11], x[11:])
    assert kernel.block_total(x) == pytest.approx(parts, rel=1e-13)


@pytest.mark.parametrize("name", ["variance", "gini"])
def test_components_do_not_change_far_from_zero(name: str) -> None:
    kernel = KERNELS[name][0]
    x = np.random.default_rng(4).integers(-1000, 1000, 200) / 8.0  # with 2^33 added they are still exact
    near, far = kernel.local(x), kernel.local(x + 2.0**33)
    assert far.sums[0].total == pytest.approx(near.sums[0].total, rel=1e-14)
    assert far.components == pytest.approx(near.components, rel=1e-12)


LAW = {0.0: 0.5, 1.0: 0.3, 4.0: 0.2}
"""A law on three points: all samples of it can be gone through, with their probabilities."""


def samples_of_law(n: int) -> list[tuple[float, Floats]]:
    return [
        (math.prod(LAW[value] for value in values), np.array(values)) for values in itertools.product(LAW, repeat=n)
    ]


def true_components(h: Function) -> OneSampleComponents:
    first = {a: sum(p * h(a, b) for b, p in LAW.items()) for a in LAW}
    mean = sum(p * first[a] for a, p in LAW.items())
    zeta1 = sum(p * (first[a] - mean) ** 2 for a, p in LAW.items())
    total = sum(p * q * (h(a, b) - mean) ** 2 for a, p in LAW.items() for b, q in LAW.items())
    return OneSampleComponents(zeta1, total - 2 * zeta1)


@every_kernel
@pytest.mark.parametrize("n", [4, 5])
def test_estimates_are_unbiased_over_all_samples(name: str, n: int) -> None:
    kernel, h = KERNELS[name]
    truth = true_components(h)
    mean = square = 0.0
    estimated = np.zeros(2)
    for probability, x in samples_of_law(n):
        sums, components = kernel.local(x)
        assert components is not None
        value = sums[0].total / sums[0].n_pairs
        mean, square = mean + probability * value, square + probability * value**2
        estimated += probability * components.ravel()
    assert estimated == pytest.approx([truth.zeta1, truth.delta], rel=1e-12)
    zeta1, delta = estimated
    assert square - mean**2 == pytest.approx(4 * zeta1 / n + 2 * delta / (n * (n - 1)), rel=1e-11)


def normal_gini_variance(n: int) -> float:
    """Variance of Gini's mean difference of n standard normal numbers (Nair, Biometrika 28, 1936)."""
    inside = (n + 1) / 3 + 2 * math.sqrt(3) * (n - 2) / math.pi - 2 * (2 * n - 3) / math.pi
    return 4 * inside / (n * (n - 1))


@pytest.mark.parametrize(
    ("name", "truth"), [("variance", 2 / 29), ("gini", normal_gini_variance(30))], ids=["variance", "gini"]
)
def test_the_variance_of_normal_samples_is_estimated_without_bias(name: str, truth: float) -> None:
    kernel, n, runs = KERNELS[name][0], 30, 4000
    rng = np.random.default_rng([5, len(name)])
    values, estimates = np.empty(runs), np.empty(runs)
    for r in range(runs):
        sums, components = kernel.local(rng.normal(size=n) + 100.0)
        assert components is not None
        values[r] = sums[0].total / sums[0].n_pairs
        estimates[r] = one_sample.complete(n) @ components.ravel()
    assert abs(estimates.mean() - truth) < Z * estimates.std() / math.sqrt(runs)
    fourth = np.mean((values - values.mean()) ** 4)
    error = math.sqrt((fourth - values.var() ** 2) / runs)
    assert abs(values.var(ddof=1) - truth) < Z * error


# --- a function of the user's


@pytest.mark.parametrize("tile", [1, 2, 3, 7, 19, 20, 128])
def test_tiles_change_nothing(tile: int) -> None:
    x = np.random.default_rng(6).integers(-9, 9, (20, 2)).astype(float)

    def inner(a: Floats, b: Floats) -> Floats:
        assert len(a) <= tile and len(b) <= tile
        return a @ b.T + 3

    kernel = UserPairs(inner, "inner", tile)
    matrix = x @ x.T + 3
    expected = matrix[np.triu_indices(20, 1)].sum()
    sums, components = kernel.local(x)
    assert kernel.block_total(x) == sums[0].total == expected
    whole = UserPairs(lambda a, b: a @ b.T + 3, "inner", 20).local(x).components
    assert components == pytest.approx(whole, rel=1e-12)
    assert kernel.cross_total(x[:13], x[13:]) == matrix[:13, 13:].sum()


def test_every_pair_is_evaluated_once_beside_the_diagonal_tiles() -> None:
    seen = []

    def first(a: Floats, b: Floats) -> Floats:
        seen.append(len(a) * len(b))
        return np.zeros((len(a), len(b)))

    kernel = UserPairs(first, "first", 10)
    kernel.local(np.zeros(35))
    assert sum(seen) == (35**2 + 3 * 10**2 + 5**2) // 2


def inverse(x: Floats, y: Floats) -> Floats:
    """Without a value for a point and itself."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / np.abs(x - y.T))


def test_a_point_is_never_paired_with_itself() -> None:
    x = np.array([0.0, 1.0, 3.0, 7.0, 15.0])
    kernel = UserPairs(inverse, "inverse", 2)
    expected = float(sum(1 / abs(Fraction(a) - Fraction(b)) for a, b in itertools.combinations(x, 2)))
    assert kernel.block_total(x) == pytest.approx(expected, rel=1e-14)
    components = kernel.local(x).components
    assert components is not None and np.isfinite(components).all()
    # Sampled pairs come in small tiles, with the values of other pairs of these points: of a point with itself, too.
    assert kernel.pairs_total(x[[0, 1, 2]], x[[1, 2, 0]]) == pytest.approx(1 + 1 / 2 + 1 / 3, rel=1e-14)
    with pytest.raises(UserError, match="the kernel inverse returned a value that is not finite"):
        kernel.block_total(x[[0, 1, 0]])
    with pytest.raises(UserError, match="the kernel inverse returned a value that is not finite"):
        kernel.pairs_total(x[[0, 1]], x[[1, 1]])


@pytest.mark.parametrize("call", ["block_total", "local", "pairs_total"])
@pytest.mark.parametrize("shape", [(5,), (5, 1), (4, 4), (1, 5, 5), ()], ids=str)
def test_values_of_another_shape_are_refused(call: str, shape: tuple[int, ...]) -> None:
    kernel = UserPairs(lambda x, y: np.zeros(shape), "odd")
    blocks = [np.arange(5.0)] * (2 if call == "pairs_total" else 1)
    with pytest.raises(
        UserError, match=r"the kernel odd returned shape .* instead of \(5, 5\): it gets blocks of points, "
    ):
        getattr(kernel, call)(*blocks)


def test_aligned_values_of_the_users_own_are_taken() -> None:
    def function(x: Floats, y: Floats) -> Floats:
        raise AssertionError("not for sampled pairs")

    function.pairs = lambda x, y: np.abs(x - y)[:, 0]  # type: ignore[attr-defined]
    x, y = np.array([1.0, 2.0, 9.0]), np.array([4.0, 2.0, 3.0])
    assert UserPairs(function, "own").pairs_total(x, y) == 9.0
    function.pairs = lambda x, y: np.abs(x - y)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"returned shape \(3, 1\) instead of \(3,\)"):
        UserPairs(function, "own").pairs_total(x, y)


def test_a_tile_needs_a_side() -> None:
    with pytest.raises(UserError, match="tile side must be at least 1, not 0"):
        UserPairs(inverse, "inverse", 0)
