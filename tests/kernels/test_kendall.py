"""Kendall's tau of one block: by definition, against SciPy, and its components over all samples of small laws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat import UserError
from mpi_ustat.kernels import kendall
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import PairSum
from mpi_ustat.kernels.pair_counts import PointCounts, point_sums

Array = NDArray[Any]

FIVE = np.array([[1.0, 2.0], [1.0, 1.0], [2.0, 2.0], [3.0, 4.0], [3.0, 4.0]])
"""Of 10 pairs 7 are concordant and none discordant; 8 are untied in x, 8 in y: tau-a is 7/10, tau-b 7/8."""

# Few values, so that many agree, and infinities among them.
coordinates = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 7.0, math.inf])
blocks = st.lists(st.tuples(coordinates, coordinates), max_size=20)


def sign(x: float, y: float) -> int:
    return int(x > y) - int(x < y)


def h(p: Any, q: Any) -> tuple[int, int, int]:
    """h_C, h_A and h_B of two points."""
    return sign(p[0], q[0]) * sign(p[1], q[1]), int(p[0] != q[0]), int(p[1] != q[1])


def means(sums: tuple[PairSum, ...]) -> Array:
    return np.array([each.total / each.n_pairs for each in sums])


def tau(block: Array, variant: str = "b") -> float:
    kernel = Kendall(variant)
    return float(kernel.combine(means(kernel.block_sums(block)))[0])


def tied(rng: np.random.Generator, n: int, n_values: int = 6) -> Array:
    block = np.column_stack([rng.integers(0, n_values, n), rng.integers(0, n_values, n)]).astype(float)
    block[:, 1] += np.where(rng.random(n) < 0.5, block[:, 0], 0)
    return block


# --- values


def test_five_points_with_ties() -> None:
    assert Kendall("a").block_sums(FIVE) == (PairSum(7, 10),)
    assert Kendall("b").block_sums(FIVE) == (PairSum(7, 10), PairSum(8, 10), PairSum(8, 10))
    assert tau(FIVE, "a") == 0.7
    assert tau(FIVE, "b") == pytest.approx(7 / 8, rel=1e-15)


def test_200000_points_of_three_kinds() -> None:
    n = 200_000
    i = np.arange(n)
    block = np.column_stack([i >= n // 2, (i >= n // 2) | (i % 2 == 1)]).astype(float)
    (sum_a,) = Kendall("a").block_sums(block)
    assert Fraction(sum_a.total, sum_a.n_pairs) == Fraction(50_000, 199_999)
    assert tau(block) == pytest.approx(1 / math.sqrt(3), rel=1e-15)


@given(block=blocks)
def test_sums_are_those_of_all_pairs(block: list[tuple[float, float]]) -> None:
    pairs = [h(p, q) for p, q in itertools.combinations(block, 2)]
    expected = [PairSum(sum(values[k] for values in pairs), len(pairs)) for k in range(3)]
    for few in (128, -1):  # by comparing all points, and by sorting them
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kendall, "_FEW", few)
            sums = Kendall("b").block_sums(np.array(block).reshape(-1, 2))
            assert list(sums) == expected and all(isinstance(each.total, int) for each in sums)


@pytest.mark.parametrize("n", [2, 3, 50, 129, 3000])
def test_tau_b_is_scipys(n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(n)
    smooth = rng.normal(size=(n, 2)) @ np.array([[1, 0.5], [0, 1]])
    heavy = tied(rng, n)
    one_tied = np.column_stack([smooth[:, 0], rng.integers(0, 3, n)])
    infinite = heavy.copy()
    infinite[rng.random((n, 2)) < 0.2] = math.inf
    infinite[rng.random((n, 2)) < 0.1] = -math.inf
    for block in (smooth, heavy, one_tied, one_tied[:, ::-1], infinite, -heavy):
        ranks = [np.unique(column, return_inverse=True)[1] for column in block.T]  # older ones take no infinities
        theirs = float(stats.kendalltau(*ranks).statistic)
        if math.isnan(theirs):  # of two or three points all may agree
            with pytest.raises(UserError, match="are tied"):
                tau(block)
        else:
            assert tau(block) == pytest.approx(theirs, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("column", ["x", "y"])
def test_a_constant_column_has_no_tau_b(column: str) -> None:
    block = np.column_stack([np.arange(9.0), np.arange(9.0)])
    block[:, "xy".index(column)] = math.inf
    with pytest.raises(UserError, match=f"all pairs of column {column} "):
        tau(block)
    with pytest.raises(UserError, match=f"all pairs of column {column} "):
        Kendall("b").gradient(means(Kendall("b").block_sums(block)))
    assert tau(block, "a") == 0.0


def test_monotone_columns() -> None:
    x = np.arange(1000.0)
    for variant in ("a", "b"):
        assert tau(np.column_stack([x, np.sqrt(x)]), variant) == 1.0
        assert tau(np.column_stack([x, -x]), variant) == -1.0
    assert tau(np.column_stack([x // 10, x // 10])) == 1.0


def test_blocks_without_pairs() -> None:
    for n in (0, 1):
        assert Kendall("b").local(np.zeros((n, 2))).sums == (PairSum(0, 0),) * 3


def test_only_a_and_b_are_known() -> None:
    with pytest.raises(UserError, match="a or b"):
        Kendall("c")
    assert not Kendall("a").pooled_only and Kendall("b").pooled_only


@given(pairs=st.lists(st.tuples(coordinates, coordinates, coordinates, coordinates), min_size=1, max_size=20))
def test_sums_over_aligned_pairs(pairs: list[tuple[float, ...]]) -> None:
    first, second = np.array(pairs)[:, :2], np.array(pairs)[:, 2:]
    values = [h(p, q) for p, q in zip(first, second, strict=True)]
    expected = [PairSum(sum(each[k] for each in values), len(pairs)) for k in range(3)]
    assert list(Kendall("b").tuple_sums(first, second)) == expected
    assert list(Kendall("a").tuple_sums(first, second)) == expected[:1]


def test_sums_over_pairs_of_two_blocks() -> None:
    rng = np.random.default_rng(4)
    x, y = tied(rng, 30), tied(rng, 17)
    values = [h(p, q) for p in x for q in y]
    assert list(Kendall("b").cross_sums(x, y)) == [PairSum(sum(each[k] for each in values), 30 * 17) for k in range(3)]


# --- derivatives


def test_the_gradient_of_tau_b() -> None:
    kernel, at = Kendall("b"), np.array([0.3, 0.8, 0.6])
    step = 1e-6
    for k, exact in enumerate(kernel.gradient(at)[0]):
        up, down = at + step * np.eye(3)[k], at - step * np.eye(3)[k]
        assert (kernel.combine(up) - kernel.combine(down))[0] / (2 * step) == pytest.approx(exact, rel=1e-8)
    assert kernel.gradient(at).shape == (1, 3)
    assert Kendall("a").gradient(at[:1]).tolist() == [[1.0]]


# --- components


def components_by_definition(block: list[tuple[float, float]]) -> list[list[list[Fraction]]]:
    """ζ̂₁ and δ̂ of the three parts, in rational numbers from all pairs (formula F8 for p parts)."""
    n = len(block)
    values = {(i, j): h(block[i], block[j]) for i in range(n) for j in range(n) if i != j}
    pairs = [values[pair] for pair in itertools.combinations(range(n), 2)]
    u = [Fraction(sum(value[a] for value in pairs), len(pairs)) for a in range(3)]
    r = [[Fraction(sum(values[i, j][a] for j in range(n) if j != i), n - 1) for a in range(3)] for i in range(n)]
    zeta1, delta = ([[Fraction(0)] * 3 for _ in range(3)] for _ in range(2))
    for a, b in itertools.product(range(3), repeat=2):
        ss = Fraction((n - 1) ** 2, n - 2) * sum((each[a] - u[a]) * (each[b] - u[b]) for each in r)
        total = sum((value[a] - u[a]) * (value[b] - u[b]) for value in pairs)
        delta[a][b] = (total - ss) / Fraction(n * (n - 3), 2)
        zeta1[a][b] = (ss / (n - 1) - delta[a][b]) / (n - 2)
    return [zeta1, delta]


@given(block=st.lists(st.tuples(coordinates, coordinates), min_size=4, max_size=10))
def test_components_are_those_of_all_pairs(block: list[tuple[float, float]]) -> None:
    expected = np.array(components_by_definition(block), dtype=float)
    for few in (128, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kendall, "_FEW", few)
            of_b, of_a = (Kendall(variant).local(np.array(block)).components for variant in ("b", "a"))
        assert of_b is not None and of_a is not None
        np.testing.assert_allclose(of_b, expected, rtol=0, atol=1e-14)
        np.testing.assert_allclose(of_a, expected[:, :1, :1], rtol=0, atol=1e-14)


def test_components_need_four_points() -> None:
    assert Kendall("b").local(FIVE[:3]).components is None
    assert Kendall("b").local(FIVE[:4]).components is not None


def population(law: list[tuple[float, float]]) -> Array:
    """ζ₁ and δ of the uniform law on some points, by definition."""
    values = np.array([[h(p, q) for q in law] for p in law], dtype=float)
    g = values.mean(axis=1) - values.mean(axis=(0, 1))
    zeta1 = np.einsum("ia,ib->ab", g, g) / len(law)
    centred = values - values.mean(axis=(0, 1))
    return np.array([zeta1, np.einsum("ija,ijb->ab", centred, centred) / len(law) ** 2 - 2 * zeta1])


@pytest.mark.parametrize("n", [4, 5])
def test_components_are_unbiased_over_all_samples_of_a_law(n: int) -> None:
    law = [(0.0, 0.0), (0.0, 1.0), (1.0, 3.0), (2.0, 1.0)]
    samples = [np.array(chosen) for chosen in itertools.product(law, repeat=n)]
    average = np.mean([Kendall("b").local(sample).components for sample in samples], axis=0)
    np.testing.assert_allclose(average, population(law), atol=1e-13)


def test_comparing_and_sorting_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cases = [block for n in (4, 64, 100, 300) for block in (tied(rng, n), rng.normal(size=(n, 2)))]
    compared, by_sorting = [], []
    for few, results in ((1000, compared), (-1, by_sorting)):
        monkeypatch.setattr(kendall, "_FEW", few)
        results += [Kendall(variant).local(block) for variant in ("a", "b") for block in cases]
    for one, other in zip(compared, by_sorting, strict=True):
        assert one.sums == other.sums
        assert np.array_equal(one.components, other.components)


def test_sums_of_products_beyond_64_bits() -> None:
    n = 2**31 - 1
    counts = PointCounts(*(np.array(each) for each in ([n - 1, 1 - n, n - 2], [n - 1] * 3, [n - 1, 0, 5], [n - 1] * 3)))
    c, a, b, d = (each.tolist() for each in counts)
    products = [(c, c), (c, a), (c, b), (a, a), (a, b), (b, b)]
    expected = [sum(c), sum(a), sum(b), sum(d), *(sum(p * q for p, q in zip(*two, strict=True)) for two in products)]
    assert point_sums(n, 3, counts) == expected
    assert expected[4] > 2**63


# --- simulated


def test_values_and_components_of_a_normal_law() -> None:
    """tau = 2 asin(ρ)/π, ζ₁ = 1/9 - 4 asin²(ρ/2)/π² (Esscher 1924): means of 1500 blocks, 5 standard errors each.

    Three checks: the probability of a false alarm is below 2·10⁻⁶.
    """
    rho, n, n_runs = 0.5, 30, 1500
    rng = np.random.default_rng(1)
    theta = 2 / math.pi * math.asin(rho)
    zeta1 = 1 / 9 - 4 * math.asin(rho / 2) ** 2 / math.pi**2
    kernel = Kendall("a")
    found = []
    for _ in range(n_runs):
        x, noise = rng.normal(size=(2, n))
        local = kernel.local(np.column_stack([x, rho * x + math.sqrt(1 - rho**2) * noise]))
        assert local.components is not None
        found.append([means(local.sums)[0], *local.components.ravel()])
    deviations = np.mean(found, axis=0) - [theta, zeta1, 1 - theta**2 - 2 * zeta1]
    assert (np.abs(deviations) < 5 * np.std(found, axis=0, ddof=1) / math.sqrt(n_runs)).all()


def test_the_standard_error_of_tau_b_with_ties() -> None:
    """First-order variances of 1500 blocks of 300 points against the variance of their tau-b, 4.5 standard errors.

    The relative error of the latter, 3.7 %, exceeds what the first order leaves out, about 1/300. The probability of a
    false alarm is below 10⁻⁵.
    """
    n, n_runs = 300, 1500
    rng = np.random.default_rng(2)
    kernel = Kendall("b")
    taus, variances = [], []
    for _ in range(n_runs):
        local = kernel.local(tied(rng, n, 4))
        assert local.components is not None
        at = means(local.sums)
        zeta1, delta = (float((kernel.gradient(at) @ each @ kernel.gradient(at).T)[0, 0]) for each in local.components)
        taus.append(float(kernel.combine(at)[0]))
        variances.append(4 * zeta1 / n + 2 * delta / (n * (n - 1)))
    squares = (np.array(taus) - np.mean(taus)) ** 2 * n_runs / (n_runs - 1)
    error = math.hypot(float(np.std(squares)), float(np.std(variances))) / math.sqrt(n_runs)
    assert abs(np.mean(squares) - np.mean(variances)) < 4.5 * error
    assert 4.5 * error < 0.2 * np.mean(variances)
