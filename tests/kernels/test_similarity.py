"""False-match rates and histograms of similarities: against whole matrices, rational numbers and simulation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from numpy.typing import NDArray

from mpi_ustat import estimate
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.kernel import inner_products
from mpi_ustat.kernels.similarities import SimilarityCounts
from mpi_ustat.kernels.similarity_histogram import SimilarityHistogram

Floats = NDArray[np.float64]

EDGES = (-1.0, -0.3, 0.0, 0.05, 0.5, 1.0)


def embeddings(n: int, d: int, seed: int = 0, offset: float = 0.3) -> Floats:
    return np.random.default_rng([seed, n, d]).normal(offset, 1.0, size=(n, d))


def directions(points: Floats) -> Floats:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def indicators(kernel: SimilarityCounts, similarities: Floats) -> Floats:
    """h of every pair and bin, shape (n, m, p), from the definitions."""
    if isinstance(kernel, FalseMatchRate):
        return (similarities >= kernel.threshold)[:, :, None].astype(float)
    assert isinstance(kernel, SimilarityHistogram)
    low, high = np.array(kernel.edges[:-1]), np.array(kernel.edges[1:])
    inside = (similarities[:, :, None] >= low) & (similarities[:, :, None] < high)
    inside[:, :, -1] |= similarities == high[-1]
    return inside.astype(float)


# --- counts


@pytest.mark.parametrize(("n", "m", "d"), [(300, 700, 20), (128, 256, 130), (1, 5, 3), (129, 513, 1), (40, 3, 300)])
@pytest.mark.parametrize("metric", ["cosine", "inner"])
@pytest.mark.parametrize("make", ["fmr", "histogram"])
def test_counts_against_the_whole_matrix(n: int, m: int, d: int, metric: str, make: str) -> None:
    x, z = embeddings(n, d), embeddings(m, d, 1)
    kernels = [
        FalseMatchRate(0.2, metric, one_sample=one)
        if make == "fmr"
        else SimilarityHistogram(EDGES, metric, one_sample=one)
        for one in (False, True)
    ]
    u, v = (directions(x), directions(z)) if metric == "cosine" else (x, z)
    across, within = np.clip(u @ v.T, -1, 1) if metric == "cosine" else u @ v.T, v @ v.T
    if metric == "cosine":
        within = np.clip(within, -1, 1)

    h = indicators(kernels[0], across)
    sums, (rows, columns) = kernels[0].counted(x, z)
    assert [tuple(each) for each in sums] == [(total, n * m) for total in h.sum(axis=(0, 1))]
    np.testing.assert_array_equal(rows, h.sum(axis=1))
    np.testing.assert_array_equal(columns, h.sum(axis=0))
    assert kernels[0].block_sums(x, z) == sums == kernels[0].local(x, z).sums

    h = indicators(kernels[1], within)
    h[np.arange(m), np.arange(m)] = 0
    sums, (rows,) = kernels[1].counted(z)
    assert [tuple(each) for each in sums] == [(total / 2, math.comb(m, 2)) for total in h.sum(axis=(0, 1))]
    np.testing.assert_array_equal(rows, h.sum(axis=1))
    assert kernels[1].block_sums(z) == sums == kernels[1].local(z).sums
    assert all(isinstance(each.total, int) for each in sums)


@pytest.mark.parametrize("one_sample", [False, True])
def test_sampled_pairs(one_sample: bool) -> None:
    x, z = embeddings(90, 7), embeddings(90, 7, 1)
    cosines = (directions(x) * directions(z)).sum(axis=1)
    kernel = SimilarityHistogram(EDGES, one_sample=one_sample)
    expected = np.histogram(cosines, EDGES)[0]
    assert [tuple(each) for each in kernel.tuple_sums(x, z)] == [(count, 90) for count in expected]
    assert FalseMatchRate(0.1).tuple_sums(x, z) == ((np.count_nonzero(cosines >= 0.1), 90),)
    assert FalseMatchRate(0.1).tuple_sums(x[:, 0], z[:, 0]) == ((np.count_nonzero(x[:, 0] * z[:, 0] > 0), 90),)


@pytest.mark.parametrize("d", [5, 64, 300])
def test_counts_over_blocks_add_up_even_for_pairs_at_the_threshold(d: int) -> None:
    x, z = embeddings(260, d), embeddings(530, d, 1)
    cosines = np.empty((128, 256))
    unit = SimilarityCounts((0.0,), "cosine", False)._ready
    inner_products(unit(x)[:128], unit(z)[:256], cosines)
    # Thresholds that are the computed cosines of some pairs: counting them depends on every bit.
    edges = np.sort(cosines[::17, ::19].ravel())[::3]
    cuts_x, cuts_z = (0, 1, 130, 260), (0, 13, 270, 530)
    for kernel in (SimilarityHistogram(edges), FalseMatchRate(float(edges[5]))):
        sums, (rows, columns) = kernel.counted(x, z)
        of_rows, of_columns = np.zeros_like(rows), np.zeros_like(columns)
        totals = np.zeros(len(sums), dtype=int)
        for (a, b), (i, j) in itertools.product(itertools.pairwise(cuts_x), itertools.pairwise(cuts_z)):
            block, (some_rows, some_columns) = kernel.counted(x[a:b], z[i:j])
            totals += [each.total for each in block]
            of_rows[a:b] += some_rows
            of_columns[i:j] += some_columns
        assert [each.total for each in sums] == totals.tolist()
        np.testing.assert_array_equal(rows, of_rows)
        np.testing.assert_array_equal(columns, of_columns)
        # One sample: the pairs inside blocks and across them, the blocks in either order.
        sums, (rows,) = kernel.counted(z)
        of_points, total = np.zeros_like(rows), np.zeros(len(sums), dtype=int)
        blocks = [slice(i, j) for i, j in itertools.pairwise(cuts_z)]
        for block in blocks:
            inside, (some_rows,) = kernel.counted(z[block])
            of_points[block] += some_rows
            total += [each.total for each in inside]
        for left, right in ((blocks[0], blocks[1]), (blocks[2], blocks[0]), (blocks[2], blocks[1])):
            between, (some_rows, some_columns) = kernel.counted(z[left], z[right])
            of_points[left] += some_rows
            of_points[right] += some_columns
            total += [each.total for each in between]
        assert [each.total for each in sums] == total.tolist()
        np.testing.assert_array_equal(rows, of_points)


@pytest.mark.parametrize("d", [10, 300])
def test_threads_of_the_blas_change_no_bit(d: int) -> None:
    left, right = embeddings(128, d), embeddings(256, d, 1)
    found = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads):
            found.append(np.empty((128, 256)))
            inner_products(left, right, found[-1])
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], np.einsum("id,jd->ij", left, right), atol=1e-11)


def test_the_last_bin_is_closed_and_cosines_beyond_one_are_in_it() -> None:
    x = embeddings(200, 3)
    whole = SimilarityHistogram((-1.0, 0.0, 1.0))
    for other in (x, -x, 3 * x, 1e-300 * x, 1e300 * x):
        assert sum(each.total for each in whole.block_sums(x, other)) == 200 * 200
    assert sum(each.total for each in SimilarityHistogram((-1.0, 1.0), one_sample=True).block_sums(x)) == 19900
    assert FalseMatchRate(-1.0).block_sums(x, -x) == ((40000, 40000),)
    line = np.array([[1.0], [2.0], [3.0]])
    sums = SimilarityHistogram((1.0, 2.0, 6.0, 9.0), "inner").block_sums(line, line)
    assert [each.total for each in sums] == [1, 5, 3]
    sums = SimilarityHistogram((1.0, 2.0, 6.0), "inner").block_sums(line, line)
    assert [each.total for each in sums] == [1, 7]


def test_counting_in_small_integers_does_not_overflow() -> None:
    x = np.ones((1000, 2))
    sums, (rows, columns) = FalseMatchRate(0.5).counted(x, x)
    assert (sums, rows.tolist(), columns.tolist()) == (((10**6, 10**6),), [[1000]] * 1000, [[1000]] * 1000)
    assert FalseMatchRate(0.5, one_sample=True).counted(x)[1][0].tolist() == [[999]] * 1000


def test_empty_blocks() -> None:
    kernel, x, none = SimilarityHistogram(EDGES), embeddings(5, 3), np.empty((0, 3))
    for blocks in ((x, none), (none, x), (none, none)):
        assert kernel.local(*blocks) == (((0, 0),) * 5, None)
    assert FalseMatchRate(0.5, one_sample=True).block_sums(x[:1]) == ((0, 0),)
    assert kernel.tuple_sums(none, none) == ((0, 0),) * 5


# --- components


def rational_two_sample(h: Floats) -> list[list[list[Fraction]]]:
    """var_x, var_z, var_xz of all pairs of bins from the two-way layout, in rational numbers; h has shape (n, m, p)."""
    n, m, p = h.shape
    values = [[[Fraction(int(each)) for each in cell] for cell in row] for row in h.tolist()]
    components: list[list[list[Fraction]]] = [[[Fraction()] * p for _ in range(p)] for _ in range(3)]
    means = [sum((values[k][j][a] for k in range(n) for j in range(m)), Fraction()) / (n * m) for a in range(p)]
    rows = [[sum((values[k][j][a] for j in range(m)), Fraction()) / m for a in range(p)] for k in range(n)]
    columns = [[sum((values[k][j][a] for k in range(n)), Fraction()) / n for a in range(p)] for j in range(m)]
    for a, b in itertools.product(range(p), repeat=2):
        ms_rows = m * sum((r[a] - means[a]) * (r[b] - means[b]) for r in rows) / (n - 1)
        ms_columns = n * sum((c[a] - means[a]) * (c[b] - means[b]) for c in columns) / (m - 1)
        rest = sum(
            math.prod(values[k][j][i] - rows[k][i] - columns[j][i] + means[i] for i in (a, b))
            for k in range(n)
            for j in range(m)
        ) / Fraction((n - 1) * (m - 1))
        components[0][a][b], components[1][a][b] = (ms_rows - rest) / m, (ms_columns - rest) / n
        components[2][a][b] = Fraction(rest)
    return components


def rational_one_sample(h: Floats) -> list[list[list[Fraction]]]:
    """ζ₁ and δ of all pairs of bins, from the residuals of the least-squares fit, in rational numbers."""
    n, _, p = h.shape
    values = [[[Fraction(int(each)) for each in cell] for cell in row] for row in h.tolist()]
    pairs = list(itertools.combinations(range(n), 2))
    means = [sum((values[i][j][a] for i, j in pairs), Fraction()) / len(pairs) for a in range(p)]
    rows = [
        [sum((values[min(i, j)][max(i, j)][a] for j in range(n) if j != i), Fraction()) / (n - 1) for a in range(p)]
        for i in range(n)
    ]
    fit = [[Fraction(n - 1, n - 2) * (row[a] - means[a]) for a in range(p)] for row in rows]
    components: list[list[list[Fraction]]] = [[[Fraction()] * p for _ in range(p)] for _ in range(2)]
    for a, b in itertools.product(range(p), repeat=2):
        rest = sum(math.prod(values[i][j][k] - means[k] - fit[i][k] - fit[j][k] for k in (a, b)) for i, j in pairs)
        delta = Fraction(rest) / Fraction(n * (n - 3), 2)
        explained = (n - 2) * sum(each[a] * each[b] for each in fit) / (n - 1)
        components[0][a][b], components[1][a][b] = (explained - delta) / (n - 2), delta
    return components


@pytest.mark.parametrize("kernel", [FalseMatchRate(0.1), SimilarityHistogram(EDGES)], ids=["fmr", "histogram"])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (7, 5), (6, 19)])
def test_two_sample_components_in_rational_numbers(kernel: SimilarityCounts, n: int, m: int) -> None:
    x, z = embeddings(n, 3), embeddings(m, 3, 1)
    found = kernel.local(x, z).components
    expected = rational_two_sample(indicators(kernel, directions(x) @ directions(z).T))
    assert found is not None
    np.testing.assert_allclose(found, np.array(expected, dtype=float), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [4, 11])
def test_one_sample_components_in_rational_numbers(n: int) -> None:
    x = embeddings(n, 3)
    for kernel in (FalseMatchRate(0.1, one_sample=True), SimilarityHistogram(EDGES, one_sample=True)):
        found = kernel.local(x).components
        expected = rational_one_sample(indicators(kernel, directions(x) @ directions(x).T))
        assert found is not None
        np.testing.assert_allclose(found, np.array(expected, dtype=float), rtol=0, atol=1e-14)


def test_blocks_without_components() -> None:
    x = embeddings(9, 3)
    assert FalseMatchRate(0.1).local(x, x[:1]).components is None
    assert FalseMatchRate(0.1, one_sample=True).local(x[:3]).components is None
    for n_bins, expected in ((64, (3, 64, 64)), (65, None)):
        found = SimilarityHistogram(np.linspace(-1, 1, n_bins + 1)).local(x, x).components
        assert (None if found is None else found.shape) == expected


def test_over_simulated_samples_value_and_variance_are_unbiased() -> None:
    # Directions uniform on the circle but for x, which prefer one half. 5 standard errors: false alarms are 1 in 1.7
    # million for each of the comparisons.
    rng = np.random.default_rng(20240917)
    n, m, runs, kernel = 7, 6, 1500, FalseMatchRate(0.5)
    values, variances, one_values, one_variances = [], [], [], []
    for _ in range(runs):
        angles = rng.uniform(-np.pi / 2, np.pi / 2, n) * rng.uniform(0.2, 1.0, n), rng.uniform(-np.pi, np.pi, m) / 2
        x, z = (np.column_stack([np.cos(each), np.sin(each)]) for each in angles)
        sums, components = kernel.local(x, z)
        values.append(sums[0].total / (n * m))
        assert components is not None
        variances.append(float(components[:, 0, 0] @ [1 / n, 1 / m, 1 / (n * m)]))
        sums, components = FalseMatchRate(0.5, one_sample=True).local(x)
        one_values.append(sums[0].total / math.comb(n, 2))
        assert components is not None
        one_variances.append(float(components[:, 0, 0] @ [4 / n, 2 / (n * (n - 1))]))
    for statistic, estimated in ((values, variances), (one_values, one_variances)):
        differences = estimated - (statistic - np.mean(statistic)) ** 2 * runs / (runs - 1)
        assert abs(differences.mean()) < 5 * differences.std() / math.sqrt(runs)
    # For any x, the share of the circle within π/3 of it is 1/3.
    uniform = rng.uniform(-np.pi, np.pi, 4000)
    z = np.column_stack([np.cos(uniform), np.sin(uniform)])
    share = kernel.block_sums(x[:1], z)[0].total / 4000
    assert abs(share - 1 / 3) < 5 * math.sqrt(2 / 9 / 4000)


# --- what can't be


def test_requests_that_are_refused() -> None:
    with pytest.raises(UserError, match="cosine or inner, not 'euclidean'"):
        FalseMatchRate(0.5, "euclidean")
    for threshold, metric in ((1.5, "cosine"), (math.nan, "cosine"), (math.inf, "inner")):
        with pytest.raises(UserError, match="threshold of a .* similarity can't be"):
            FalseMatchRate(threshold, metric)
    assert FalseMatchRate(1.5, "inner").threshold == 1.5
    for edges in ((), (0.5,), (0.0, 0.0), (0.5, 0.1), (0.0, math.nan), (-math.inf, 0.0)):
        with pytest.raises(UserError, match="edges of a histogram must be"):
            SimilarityHistogram(edges)
    with pytest.raises(UserError, match="3 and 2 coordinates"):
        FalseMatchRate(0.5).block_sums(np.ones((4, 3)), np.ones((4, 2)))
    zero = np.array([[1.0, 1.0], [0.0, 0.0]])
    for call in (FalseMatchRate(0.5).block_sums, FalseMatchRate(0.5).tuple_sums, FalseMatchRate(0.5).local):
        with pytest.raises(UserError, match="zero vector, which has no direction and no cosine: remove it"):
            call(zero, zero)
    assert FalseMatchRate(0.5, "inner").block_sums(zero, zero) == ((1, 4),)


def test_what_the_kernels_say_of_themselves() -> None:
    assert (FalseMatchRate(0.5).name, FalseMatchRate(0.5).degrees) == ("fmr", (1, 1))
    assert (SimilarityHistogram(EDGES).name, SimilarityHistogram(EDGES, one_sample=True).degrees) == (
        "similarity-histogram",
        (2,),
    )


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e200, 1e-310])
def test_a_vector_reaches_similarity_one_with_its_own_direction_whatever_its_length(scale: float) -> None:
    rng = np.random.default_rng(5)
    for d in (2, 3, 130, 700):
        x = scale * rng.normal(size=(12, d))
        z = 0.3 * x
        if scale < 1e-300:  # subnormal numbers have few digits, and 0.3·x another direction
            z = x
        for threshold in (1.0, 1.0 - 2e-16, 1.0 - 1e-12):
            for one_sample in (False, True):
                kernel = FalseMatchRate(threshold, one_sample=one_sample)
                for a, b in zip(x, z, strict=True):
                    blocks = (np.array([a, b]),) if one_sample else (a[None], b[None])
                    assert kernel.block_sums(*blocks)[0] == (1, 1)
                    assert kernel.tuple_sums(a[None], b[None])[0] == (1, 1)
        opposite = SimilarityHistogram((-1.0, -1.0 + 2e-16, 1.0)).block_sums(x[:1], -z[:1])
        assert [each.total for each in opposite] == [1, 0]


def test_edges_at_one_bound_the_bins_of_equal_directions() -> None:
    x = np.random.default_rng(6).normal(size=(9, 5))
    for edges, expected in [
        ((0.5, 1.0), [9]),
        ((0.5, 1.0, 2.0), [0, 9]),
        ((0.5, 1.0 - 2e-16, 1.0), [0, 9]),
        ((0.5, 1.0 - 2e-16), [0]),
        ((1.5, 2.0), [0]),
        ((-3.0, -2.0), [0]),
    ]:
        found = [SimilarityHistogram(edges).block_sums(each[None], each[None]) for each in x]
        assert [sum(sums[k].total for sums in found) for k in range(len(expected))] == expected


def test_inner_products_that_overflow_are_refused(comm: Any) -> None:
    x, z = np.array([[1e200, -1e200]]), np.array([[1e200, 1e200]])
    if comm.rank > 0:
        x, z = x[:0], z[:0]
    for name, options in (("fmr", {"threshold": -1.0}), ("similarity-histogram", {"edges": [-1.0, 1.0]})):
        with pytest.raises(UserError, match="inner products of the points overflow"):
            estimate(comm, x, z, name, kernel_options={"metric": "inner", **options}, n_workers=1, seed=0)
