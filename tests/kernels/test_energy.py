"""Energy distance and MMD of one block: against all tuples, rational numbers, whole populations and simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from references import sums_and_variance
from scipy.spatial.distance import cdist

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.discrepancy import Discrepancy, Variance, estimate_variance, strips, sweep
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD

Floats = NDArray[np.float64]
Rational = Callable[[Fraction, Fraction], Fraction]

KERNELS = [
    EnergyDistance(),
    MMD(),
    MMD(bandwidth=3.0),
    MMD("linear"),
    MMD("laplace", 0.7),
    EnergyDistance(0.5),
    EnergyDistance(2.0),
]
IDS = ["energy", "gaussian", "wide gaussian", "linear", "laplace", "root", "squares"]


def value(kernel: Discrepancy, x: Floats, z: Floats) -> float:
    """The statistic of a block."""
    return float(kernel.combine(np.array([each.total / each.n_pairs for each in kernel.block_sums(x, z)]))[0])


def k(kernel: Discrepancy, a: Floats, b: Floats) -> float:
    """k of two points, by its definition."""
    distance = float(np.sqrt(np.sum((a - b) ** 2)))
    if isinstance(kernel, EnergyDistance):
        return distance**kernel.alpha
    assert isinstance(kernel, MMD)
    assert isinstance(kernel.bandwidth, float)
    if kernel.kernel == "linear":
        return float(np.sum(a * b))
    if kernel.kernel == "laplace":
        return math.exp(-distance / kernel.bandwidth)
    return math.exp(-float(np.sum((a - b) ** 2)) / (2 * kernel.bandwidth**2))


def samples(n: int, m: int, d: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(0.4, 1.3, size=(m, d))


# --- the statistic


def test_an_unbiased_statistic_may_be_negative() -> None:
    x, z = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0])
    assert value(MMD("linear"), x, z) == pytest.approx(-7 / 3, rel=1e-15)
    assert [tuple(each) for each in MMD("linear").block_sums(x, z)] == [(5, 3), (2, 1), (18, 6)]
    assert value(EnergyDistance(), x, z) == pytest.approx(2 * 11 / 6 - 10 / 3 - 1, rel=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
@pytest.mark.parametrize("d", [1, 3])
def test_all_tuples_of_two_and_two_points(kernel: Discrepancy, d: int) -> None:
    x, z = samples(6, 5, d)
    sign = -1 if isinstance(kernel, EnergyDistance) else 1
    values, tuples = [], []
    for (i, p), (j, q) in itertools.product(itertools.combinations(x, 2), itertools.combinations(z, 2)):
        across = k(kernel, i, j) + k(kernel, i, q) + k(kernel, p, j) + k(kernel, p, q)
        values.append(sign * (k(kernel, i, p) + k(kernel, j, q) - across / 2))
        tuples.append((i, p, j, q))
    expected = sum(values) / len(values)
    assert value(kernel, x, z) == pytest.approx(expected, rel=1e-12)
    aligned = kernel.tuple_sums(*(np.array(points) for points in zip(*tuples, strict=True)))
    assert [each.n_pairs for each in aligned] == [len(values), len(values), 4 * len(values)]
    means = np.array([each.total / each.n_pairs for each in aligned])
    assert kernel.combine(means) == pytest.approx([expected], rel=1e-12)
    assert kernel.gradient(means) @ means == pytest.approx([expected], rel=1e-12)
    if d == 1:
        assert kernel.block_sums(x[:, 0], z[:, 0]) == kernel.block_sums(x, z)
        assert kernel.tuple_sums(*(np.array(points)[:, 0] for points in zip(*tuples, strict=True))) == aligned


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
@pytest.mark.parametrize(("n", "m", "d"), [(300, 701, 4), (128, 512, 2), (129, 641, 130), (1, 700, 2), (700, 1, 3)])
def test_many_tiles_against_the_whole_matrix(kernel: Discrepancy, n: int, m: int, d: int) -> None:
    x, z = samples(n, m, d)

    def whole(a: Floats, b: Floats) -> Floats:
        if isinstance(kernel, EnergyDistance):
            return cdist(a, b) ** kernel.alpha
        assert isinstance(kernel, MMD) and isinstance(kernel.bandwidth, float)
        if kernel.kernel == "laplace":
            return np.asarray(np.exp(-cdist(a, b) / kernel.bandwidth))
        return a @ b.T if kernel.kernel == "linear" else np.exp(-(cdist(a, b) ** 2) / (2 * kernel.bandwidth**2))

    expected = [np.triu(whole(x, x), 1), np.triu(whole(z, z), 1), whole(x, z)]
    sums = kernel.block_sums(x, z)
    assert [each.n_pairs for each in sums] == [math.comb(n, 2), math.comb(m, 2), n * m]
    for found, matrix in zip(sums, expected, strict=True):
        assert found.total == pytest.approx(matrix.sum(), rel=1e-12, abs=1e-12 * np.abs(matrix).sum())
    assert sums_and_variance(kernel, x, z)[0] == sums
    assert kernel.local(x, z) == (sums, None)


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=IDS[:3])
def test_points_far_from_the_origin_keep_their_distances(kernel: Discrepancy) -> None:
    # Multiples of 2⁻¹⁰ near 10⁸ are doubles, so all differences are those of the points near 0, to the bit.
    x, z = (np.round(points * 64) / 1024 for points in samples(150, 140, 3))
    here, far = sums_and_variance(kernel, x, z), sums_and_variance(kernel, x + 1e8, z + 1e8)
    assert here == far
    assert here[0][0].total > 0


def test_a_point_at_the_same_place_is_at_distance_zero() -> None:
    x = np.full((300, 2), 1 / 3)
    assert sums_and_variance(EnergyDistance(), x, x) == (
        ((0.0, 44850), (0.0, 44850), (0.0, 90000)),
        (0.0, 0.0, (0.0, 0.0), (0.0, 0.0, 0.0)),
    )


# --- its variance


def reference(k: Rational, x: tuple[Fraction, ...], z: tuple[Fraction, ...]) -> tuple[Fraction, Fraction, Fraction]:
    """A + C - 2D, its estimated variance and the first-order part of that, term by term in rational numbers."""
    n, m = len(x), len(z)

    def within(points: tuple[Fraction, ...]) -> tuple[Fraction, list[Fraction], Fraction]:
        size = len(points)
        pairs = {(i, j): k(points[i], points[j]) for i in range(size) for j in range(size) if i != j}
        mean = sum(pairs.values(), Fraction()) / (size * (size - 1))
        rows = [sum((pairs[i, j] for j in range(size) if j != i), Fraction()) / (size - 1) for i in range(size)]
        explained = Fraction((size - 1) ** 2, size - 2) * sum((row - mean) ** 2 for row in rows)
        squares = sum((pairs[i, j] - mean) ** 2 for i in range(size) for j in range(i))
        return mean, rows, (squares - explained) / Fraction(size * (size - 3), 2)

    mean_a, a, delta_a = within(x)
    mean_c, c, delta_c = within(z)
    d = [sum((k(p, q) for q in z), Fraction()) / m for p in x]
    e = [sum((k(p, q) for p in x), Fraction()) / n for q in z]
    mean_d = sum(d, Fraction()) / n
    residuals = sum((k(p, q) - d[i] - e[j] + mean_d) ** 2 for i, p in enumerate(x) for j, q in enumerate(z))
    delta_d = residuals / ((n - 1) * (m - 1))
    u = [2 * Fraction(n - 1, n - 2) * (a[i] - mean_a) - 2 * (d[i] - mean_d) for i in range(n)]
    v = [2 * Fraction(m - 1, m - 2) * (c[j] - mean_c) - 2 * (e[j] - mean_d) for j in range(m)]
    first = (sum(each**2 for each in u) / (n - 1) - 4 * delta_a / (n - 2) - 4 * delta_d / m) / n
    first += (sum(each**2 for each in v) / (m - 1) - 4 * delta_c / (m - 2) - 4 * delta_d / n) / m
    second = 2 * delta_a / (n * (n - 1)) + 2 * delta_c / (m * (m - 1)) + 4 * delta_d / (n * m)
    return mean_a + mean_c - 2 * mean_d, first + second, first


def every_sample(law: dict[int, Fraction], size: int) -> Iterator[tuple[tuple[Fraction, ...], Fraction]]:
    """All samples of that size from a finite population, without regard to order, with their probabilities."""
    for points in itertools.combinations_with_replacement(sorted(law), size):
        orders = math.factorial(size)
        for point in set(points):
            orders //= math.factorial(points.count(point))
        yield tuple(map(Fraction, points)), orders * math.prod(law[point] for point in points)


HALF, THIRD, SIXTH = Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)
POPULATIONS = {
    "different": ({0: HALF, 1: THIRD, 4: SIXTH}, {0: THIRD, 2: 2 * THIRD}),
    "equal": ({0: THIRD, 3: 2 * THIRD}, {0: THIRD, 3: 2 * THIRD}),
}


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize(
    ("kernel", "exact"),
    [(EnergyDistance(), lambda a, b: abs(a - b)), (MMD("linear"), lambda a, b: a * b)],
    ids=["energy", "linear"],
)
@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 4)])
def test_over_all_samples_from_a_population_the_variance_is_unbiased(
    population: str, kernel: Discrepancy, exact: Rational, n: int, m: int
) -> None:
    law_x, law_z = POPULATIONS[population]
    mean = square = total = first = Fraction()
    for (x, p), (z, q) in itertools.product(every_sample(law_x, n), every_sample(law_z, m)):
        statistic, variance, first_order = reference(exact, x, z)
        mean, square = mean + p * q * statistic, square + p * q * statistic**2
        total, first = total + p * q * variance, first + p * q * first_order
        sums, found = sums_and_variance(kernel, np.array(x, dtype=float), np.array(z, dtype=float))
        parts = np.array([each.total / each.n_pairs for each in sums])
        sign = -1 if isinstance(kernel, EnergyDistance) else 1
        assert kernel.combine(parts) == pytest.approx([sign * float(statistic)], abs=1e-13)
        assert found is not None
        assert found[:2] == pytest.approx((float(variance), float(first_order)), abs=1e-12)
    assert total == square - mean**2
    # The first-order terms' variance, from the population.
    mean_of = [
        [sum(exact(a, b) * p for b, p in law.items()) for a in own] for own in (law_x, law_z) for law in (law_x, law_z)
    ]
    u = [2 * (inside - across) for inside, across in zip(mean_of[0], mean_of[1], strict=True)]
    v = [2 * (inside - across) for inside, across in zip(mean_of[3], mean_of[2], strict=True)]
    expected = Fraction()
    for values, law, size in ((u, law_x, n), (v, law_z, m)):
        centre = sum(p * each for each, p in zip(values, law.values(), strict=True))
        expected += sum(p * (each - centre) ** 2 for each, p in zip(values, law.values(), strict=True)) / size
    assert first == expected
    assert (expected == 0) == (population == "equal")


@pytest.mark.parametrize("kernel", [EnergyDistance(), MMD(bandwidth=0.7)], ids=["energy", "gaussian"])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_over_simulated_samples_the_variance_is_unbiased(kernel: Discrepancy, shift: float) -> None:
    # 5 standard errors: a false alarm once in 1.7 million.
    rng = np.random.default_rng([20240917, int(shift > 0)])
    runs, values, variances = 1500, [], []
    for _ in range(runs):
        sums, variance = sums_and_variance(kernel, rng.normal(size=(6, 2)), rng.normal(shift, 1.2, size=(5, 2)))
        values.append(kernel.combine(np.array([each.total / each.n_pairs for each in sums]))[0])
        assert variance is not None
        variances.append(variance.total)
    differences = variances - (values - np.mean(values)) ** 2 * runs / (runs - 1)
    assert abs(differences.mean()) < 5 * differences.std() / math.sqrt(runs)
    assert np.mean(variances) > 20 * np.std(variances) / runs  # there is something to estimate


def test_a_variance_far_below_the_square_of_the_mean_keeps_its_digits() -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1024, 40) / 1024
    z = 2.0**20 + rng.integers(0, 1024, 31) / 1024
    exact = reference(lambda a, b: abs(a - b), tuple(map(Fraction, x)), tuple(map(Fraction, z)))
    found = sums_and_variance(EnergyDistance(), x, z)[1]
    assert found is not None
    assert found.total == pytest.approx(float(exact[1]), rel=1e-9)
    assert found.second_order == pytest.approx(float(exact[1] - exact[2]), rel=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_the_variance_over_many_tiles(kernel: Discrepancy) -> None:
    # The sample twice: a term-by-term reference of 300 points would take long, this one takes whole matrices.
    x, z = samples(200, 660, 2, seed=4)
    within_x, within_z, across = (
        np.array([[k(kernel, a, b) for b in right] for a in left])
        for left, right in ((x[:140], x[:140]), (z[:150], z[:150]), (x[:140], z[:150]))
    )
    for matrix in (within_x, within_z):
        np.fill_diagonal(matrix, 0.0)
    n, m = across.shape
    small = sums_and_variance(kernel, x[:n], z[:m])[1]
    assert small is not None
    assert small[:2] == pytest.approx(dense_variance(within_x, within_z, across), rel=1e-9)
    # Scaling all distances scales the variance; here the tiles are others too.
    if isinstance(kernel, EnergyDistance):
        large, scaled = sums_and_variance(kernel, x, z)[1], sums_and_variance(kernel, 8 * x[::-1], 8 * z[::-1])[1]
        assert large is not None and scaled is not None
        times = 64**kernel.alpha
        assert scaled[:2] == pytest.approx([times * each for each in large[:2]], rel=1e-11)
        assert scaled.of_points == pytest.approx([times * each for each in large.of_points], rel=1e-11)
        assert scaled.of_remainders == pytest.approx([times * each for each in large.of_remainders], rel=1e-11)


def dense_variance(within_x: Floats, within_z: Floats, across: Floats) -> tuple[float, float]:
    n, m = across.shape

    def of_sample(matrix: Floats) -> tuple[Floats, float]:
        size = len(matrix)
        rows = matrix.sum(axis=1) / (size - 1)
        fit = (size - 1) / (size - 2) * (rows - rows.mean())
        residuals = (matrix - rows.mean() - fit[:, None] - fit)[np.triu_indices(size, 1)]
        return fit, float((residuals**2).sum()) / (size * (size - 3) / 2)

    (a, delta_a), (c, delta_c) = of_sample(within_x), of_sample(within_z)
    d, e = across.mean(axis=1, keepdims=True), across.mean(axis=0, keepdims=True)
    delta_d = float(((across - d - e + across.mean()) ** 2).sum()) / ((n - 1) * (m - 1))
    u, v = 2 * a - 2 * d[:, 0], 2 * c - 2 * e[0]
    first = (u.var(ddof=1) - 4 * delta_a / (n - 2) - 4 * delta_d / m) / n
    first += (v.var(ddof=1) - 4 * delta_c / (m - 2) - 4 * delta_d / n) / m
    return first + 2 * delta_a / (n * (n - 1)) + 2 * delta_c / (m * (m - 1)) + 4 * delta_d / (n * m), first


# --- sharing the work


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
def test_strips_can_be_shared_out_in_any_way(kernel: Discrepancy) -> None:
    x, z = samples(700, 300, 3)
    whole = sums_and_variance(kernel, x, z)
    shares = np.random.default_rng(5).integers(0, 3, len(strips(700, 300)))
    parts = [
        sweep(kernel, x, z, [s for s, i in zip(strips(700, 300), shares, strict=True) if i == share], variance=True)
        for share in range(3)
    ]
    totals, squares = (
        [add(tile for part in parts for tile in getattr(part, name)[each]) for each in range(3)]
        for name in ("totals", "squares")
    )
    assert tuple(totals) == tuple(each.total for each in whole[0])
    assert estimate_variance(kernel, x, z, totals, squares, sum(part.points for part in parts)) == whole[1]


# --- what can't be


def test_small_samples_have_fewer_parts_and_no_variance() -> None:
    kernel = EnergyDistance()
    assert sums_and_variance(kernel, np.arange(3.0), np.arange(9.0))[1] is None
    assert sums_and_variance(kernel, np.arange(4.0), np.arange(4.0))[1] is not None
    sums, variance = sums_and_variance(kernel, np.array([2.0]), np.array([5.0, 6.0]))
    assert ([tuple(each) for each in sums], variance) == ([(0, 0), (1, 1), (7, 2)], None)
    assert [each.n_pairs for each in kernel.block_sums(np.empty(0), np.arange(5.0))] == [0, 10, 0]
    assert [each.n_pairs for each in kernel.block_sums(np.empty((0, 3)), np.empty(0))] == [0, 0, 0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e160, 1e306])
def test_distances_that_overflow_have_no_value(scale: float) -> None:
    x, z = np.arange(-100.0, 100.0)[:, None] * [scale, 1.0], np.arange(5.0)[:, None] * [1.0, 1.0]
    for kernel in (EnergyDistance(), MMD("linear")):
        sums, variance = sums_and_variance(kernel, x, z)
        assert math.isnan(sums[0].total)
        assert isinstance(variance, Variance) and math.isnan(variance.total)
    assert sums_and_variance(MMD(), x, z)[0][0] == (0.0, 19900)


def test_requests_that_are_refused() -> None:
    with pytest.raises(UserError, match="gaussian or laplace or linear, not 'cosine'"):
        MMD("cosine")
    for bandwidth in (0.0, -1.0, math.inf, math.nan, 1e-200):
        with pytest.raises(UserError, match="bandwidth must be a positive number"):
            MMD(bandwidth=bandwidth)
    for alpha in (0.0, -1.0, 2.1, math.nan):
        with pytest.raises(UserError, match="exponent alpha must be a number above 0 and up to 2"):
            EnergyDistance(alpha)
    with pytest.raises(UserError, match="the bandwidth must be a number or median, not 'mean'"):
        MMD(bandwidth="mean")
    with pytest.raises(UserError, match="linear kernel of the MMD has no bandwidth: leave it out"):
        MMD("linear", "median")
    with pytest.raises(UserError, match="3 and 2 coordinates: pass points of one space"):
        EnergyDistance().block_sums(np.zeros((5, 3)), np.zeros((5, 2)))
