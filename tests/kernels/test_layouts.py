"""Components of two-sample kernels on one block, against the block's whole matrix in exact arithmetic."""

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
from mpi_ustat.inference.components import two_sample_components
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.auc_margins import Margins, auc_local, auc_margins
from mpi_ustat.kernels.gini import Gini
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.registry import make_kernel
from mpi_ustat.kernels.user_pairs import UserKernel
from mpi_ustat.paper import models
from mpi_ustat.paper.models import Components

Array = NDArray[Any]
Matrix = list[list[Fraction]]
SIGMAS = 4.5
"""Of a simulation: a right mean is refused with probability 7e-6 per comparison."""

HALF = Fraction(1, 2)


def auc(half: bool) -> Callable[[float, float], Fraction]:
    return lambda x, z: Fraction(int(z < x)) + (HALF if half and x == z else 0)


def exact_matrix(h: Callable[[Any, Any], Any], x: Array, z: Array) -> Matrix:
    return [[Fraction(h(a, b)) for b in z.tolist()] for a in x.tolist()]


def gini(x: float, z: float) -> Fraction:
    return abs(Fraction(x) - Fraction(z))


def inner(x: Any, z: Any) -> Fraction:
    return sum(
        (Fraction(a) * Fraction(b) for a, b in zip(np.ravel(x).tolist(), np.ravel(z).tolist(), strict=True)),
        Fraction(0),
    )


def exact_components(a: Matrix, b: Matrix | None = None) -> tuple[Fraction, Fraction, Fraction]:
    """Return the components of a matrix, or the covariance components of two, from their mean squares."""
    b = a if b is None else b
    n, m = len(a), len(a[0])

    def parts(h: Matrix) -> tuple[list[Fraction], list[Fraction], Matrix]:
        mean = sum(map(sum, h)) / Fraction(n * m)
        rows = [sum(row) / Fraction(m) - mean for row in h]
        columns = [sum(column) / Fraction(n) - mean for column in zip(*h, strict=True)]
        return (
            rows,
            columns,
            [[v - r - c - mean for v, c in zip(row, columns, strict=True)] for row, r in zip(h, rows, strict=True)],
        )

    (rows_a, columns_a, rest_a), (rows_b, columns_b, rest_b) = parts(a), parts(b)
    ms_rows = m * sum(map(Fraction.__mul__, rows_a, rows_b)) / Fraction(n - 1)
    ms_columns = n * sum(map(Fraction.__mul__, columns_a, columns_b)) / Fraction(m - 1)
    rest = sum(p * q for row_a, row_b in zip(rest_a, rest_b, strict=True) for p, q in zip(row_a, row_b, strict=True))
    ms_rest = Fraction(rest) / ((n - 1) * (m - 1))
    return (ms_rows - ms_rest) / m, (ms_columns - ms_rest) / n, ms_rest


def assert_close(found: Array | None, exact: tuple[Fraction, ...], relative: float) -> None:
    """Compare each component with the largest: one is a difference of mean squares and has their rounding errors."""
    assert found is not None and found.shape == (3, 1, 1)
    bound = relative * max(abs(float(each)) for each in exact)
    for ours, theirs in zip(found.ravel().tolist(), exact, strict=True):
        assert abs(Fraction(ours) - theirs) <= bound


# --- AUC

scores = st.lists(
    st.one_of(st.sampled_from([-math.inf, -1.0, 0.0, -0.0, 1.0, 2.0, math.inf]), st.floats(-9.0, 9.0)), max_size=12
).map(lambda values: np.array(values, dtype=np.float64))


def counted(x: Array, z: Array, half: bool) -> Margins:
    """Return the margins by comparing all pairs."""
    won, tied = z < x[:, None], z == x[:, None]
    doubled = 2 * won + (tied if half else 0)
    rows, columns = doubled.sum(axis=1), doubled.sum(axis=0)
    return Margins(int(won.sum()), int(tied.sum()), int(rows @ rows), int(columns @ columns))


@pytest.mark.parametrize("half", [True, False])
@given(x=scores, z=scores)
def test_margins_of_an_auc_are_those_of_all_pairs(half: bool, x: Array, z: Array) -> None:
    found = auc_margins(np.sort(x), np.sort(z), half)
    assert found == counted(x, z, half)
    assert all(type(each) is int for each in found)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(("n", "m"), [(30, 2000), (2000, 30), (300, 300)])
def test_margins_of_an_auc_with_many_ties_are_those_of_all_pairs(half: bool, n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    x, z = rng.integers(0, 40, n) / 7, rng.integers(0, 40, m) / 7
    assert auc_margins(np.sort(x), np.sort(z), half) == counted(x, z, half)


@pytest.mark.parametrize("half", [True, False])
@given(x=scores, z=scores, cuts=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]), max_size=4))
def test_margins_of_stretches_add_up_to_the_whole(half: bool, x: Array, z: Array, cuts: list[float]) -> None:
    x, z = np.sort(x), np.sort(z)
    pieces = [np.split(values, np.searchsorted(values, sorted(cuts))) for values in (x, z)]
    total = np.zeros(4, dtype=object)
    z_below, x_above = 0, len(x)
    for a, b in zip(*pieces, strict=True):
        x_above -= len(a)
        own = auc_margins(a, b, half).of_stretch(len(a), len(b), half, z_below=z_below, x_above=x_above)
        total += np.array(own, dtype=object)
        z_below += len(b)
    assert tuple(total) == counted(x, z, half)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_margins_are_exact_beyond_64_bits(tied: bool, half: bool) -> None:
    n, m = 2_200_000, 2_300_000
    found = auc_margins(np.ones(n), np.full(m, 1.0 if tied else 0.0), half)
    worth = (1 if half else 0) if tied else 2
    assert n * m**2 > 2**63
    assert found == (0 if tied else n * m, n * m if tied else 0, worth**2 * n * m**2, worth**2 * m * n**2)


@pytest.mark.parametrize("half", [True, False])
@given(x=scores.filter(lambda v: len(v) > 1), z=scores.filter(lambda v: len(v) > 1))
def test_components_of_an_auc_are_the_exact_ones_rounded_once(half: bool, x: Array, z: Array) -> None:
    kernel = AUC("half" if half else "strict")
    local = kernel.local(x, z)
    assert local.sums == kernel.block_sums(x, z)
    assert local.components is not None
    exact = exact_components(exact_matrix(auc(half), x, z))
    assert local.components.ravel().tolist() == [float(each) for each in exact]


def test_components_from_counts_of_huge_samples_do_not_overflow() -> None:
    # x is 0 or 2, z is 1, all in halves: h is x/2, a function of x alone, with sample variance n/(4(n-1)).
    n, m = 10**10, 10**9
    wins = n // 2 * m
    found = auc_local(Margins(wins, 0, n // 2 * (2 * m) ** 2, m * n**2), n, m, True).components
    assert found is not None and found.ravel().tolist() == [0.25 * (n / (n - 1)), 0.0, 0.0]


def test_points_stay_in_their_order() -> None:
    x, z = np.array([3.0, 1.0, 2.0]), np.array([2.0, 5.0])
    for name in ("auc", "gini", "product"):
        make_kernel(name).local(x, z)
        assert x.tolist() == [3.0, 1.0, 2.0] and z.tolist() == [2.0, 5.0]


# --- AUCs of several columns


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_components_of_several_aucs_are_the_exact_ones_rounded_once(seed: int, half: bool) -> None:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 9, 2)
    values = np.array([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf]) if seed % 2 else rng.standard_normal(40)
    x, z = rng.choice(values, (n, 3)), rng.choice(values, (m, 3))
    kernel = AUC("half" if half else "strict", columns=3)
    local = kernel.local(x, z)
    assert local.sums == kernel.block_sums(x, z)
    assert local.components is not None and local.components.shape == (3, 3, 3)
    for a, b in itertools.product(range(3), repeat=2):
        exact = exact_components(*(exact_matrix(auc(half), x[:, j], z[:, j]) for j in (a, b)))
        assert local.components[:, a, b].tolist() == [float(each) for each in exact]


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_columns_of_several_aucs_on_their_own_are_aucs(ties: str) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.integers(0, 90, (400, 2)) / 7, rng.integers(0, 90, (300, 2)) / 7  # long enough for no brute force
    kernel, alone = AUC(ties, columns=2), AUC(ties)
    local = kernel.local(x, z)
    assert local.components is not None
    for j in range(2):
        of_one = alone.local(x[:, j], z[:, j])
        assert local.sums[j : j + 1] == of_one.sums
        assert of_one.components is not None
        assert local.components[:, j, j].tolist() == of_one.components.ravel().tolist()
        aligned = alone.tuple_sums(x[:300, j], z[:, j])
        assert kernel.tuple_sums(x[:300], z)[j : j + 1] == aligned
    h = [(z[:, j] < x[:, None, j]) + (0.5 if ties == "half" else 0.0) * (z[:, j] == x[:, None, j]) for j in range(2)]
    plus, minus = (np.cov(h[0].ravel(), sign * h[1].ravel(), ddof=0)[0, 1] for sign in (1, -1))
    assert plus == -minus
    centred = [each - each.mean() for each in h]
    rows, columns = ([each.mean(axis=axis) for each in centred] for axis in (1, 0))
    off = two_sample_components(400, 300, rows[0] @ rows[1], columns[0] @ columns[1], np.vdot(*centred)).ravel()
    np.testing.assert_allclose(local.components[:, 0, 1], off, rtol=1e-9, atol=1e-13)


def test_a_score_and_its_negative_have_opposite_components() -> None:
    rng = np.random.default_rng(2)
    x, z = rng.integers(0, 9, 50) * 1.0, rng.integers(0, 9, 40) * 1.0
    found = AUC(columns=2).local(np.stack([x, -x], axis=1), np.stack([z, -z], axis=1)).components
    assert found is not None
    np.testing.assert_array_equal(found[:, 0, 1], -found[:, 0, 0])
    np.testing.assert_array_equal(found[:, 1, 1], found[:, 0, 0])


def test_several_aucs_have_points_of_as_many_numbers() -> None:
    kernel = AUC(columns=4)
    assert kernel.n_coordinates == kernel.n_parts == 4
    assert AUC().n_coordinates == AUC().n_parts == 1
    means = np.array([0.5, 0.25, 1.0, 0.0])
    np.testing.assert_array_equal(kernel.combine(means), means)
    with pytest.raises(UserError, match="at least one column of scores, not 0"):
        AUC(columns=0)


# --- kernels of real values


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("offset", [0.0, 1e9, -1e9, 1e15])
def test_components_of_gini_are_those_of_the_matrix_however_far_from_zero(offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 30, 2)
    x, z = offset + 3.0 * rng.standard_normal(n), offset + rng.standard_normal(m) + (seed % 3)
    local = Gini().local(x, z)
    assert local.sums == Gini().block_sums(x, z)
    assert_close(local.components, exact_components(exact_matrix(gini, x, z)), 1e-12)


@pytest.mark.parametrize("gap", [5.0, -5.0, 1e6, -1e6, 1e9, -1e9])
def test_components_of_gini_keep_their_digits_for_samples_far_apart(gap: float) -> None:
    rng = np.random.default_rng(4)
    x, z = gap + rng.standard_normal(20), rng.standard_normal(30)
    exact = exact_components(exact_matrix(gini, x, z))
    assert_close(Gini().local(x, z).components, exact, 1e-12)
    if abs(gap) > 5:  # h = ±(x - z): no interaction at all
        assert exact[2] == 0


@pytest.mark.parametrize("d", [None, 1, 3])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (6, 9), (20, 2), (5, 40)])
@pytest.mark.parametrize("mean", [0.0, 1.0, 1e5])
def test_components_of_the_product_keep_each_its_own_digits(d: int | None, n: int, m: int, mean: float) -> None:
    rng = np.random.default_rng(n)
    x, z = (mean + rng.standard_normal(size if d is None else (size, d)) for size in (n, m))
    local = Product().local(x, z)
    assert local.sums == Product().block_sums(x, z)
    exact = exact_components(exact_matrix(inner, x, z))
    assert_close(local.components, exact, 1e-10)
    assert local.components is not None
    # Of the residual not even the cancellation against large means: x - x̄ is wrong by 1e-16 of the mean.
    assert math.isclose(local.components[2, 0, 0], float(exact[2]), rel_tol=1e-13 * max(mean, 1e3))


@pytest.mark.parametrize("tile", [1, 3, 7, 100])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_components_of_a_user_kernel_are_those_of_the_matrix(tile: int, offset: float) -> None:
    rng = np.random.default_rng(tile)
    x, z = np.sort(rng.standard_normal((23, 2)), axis=0), np.sort(rng.standard_normal((17, 2)), axis=0)

    def function(a: Array, b: Array) -> Array:
        return offset + np.sin(a[:, :1] * b[:, 1]) + a[:, 1:] ** 2 - b[:, 0]

    kernel = UserKernel(function, "mine", tile)
    local = kernel.local(x, z)
    assert local.sums == kernel.block_sums(x, z)
    matrix = [[Fraction(v) for v in row] for row in function(x, z).tolist()]
    assert_close(local.components, exact_components(matrix), 1e-12 * max(1.0, offset))


@pytest.mark.parametrize(("n", "m"), [(8, 5), (2, 9), (1, 4), (0, 3)])
def test_a_user_kernel_is_evaluated_once_a_pair_in_tiles_of_bounded_size(n: int, m: int) -> None:
    seen: list[tuple[float, float]] = []

    def function(a: Array, b: Array) -> Array:
        assert max(len(a), len(b)) <= 3
        seen.extend((p, q) for p in a[:, 0] for q in b[:, 0])
        return a + b.T

    UserKernel(function, "mine", 3).local(np.arange(float(n)), np.arange(float(m)))
    assert sorted(seen) == sorted(itertools.product(range(n), range(m)))


def test_overflow_of_a_user_kernel_is_not_an_exception() -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        local = UserKernel(lambda a, b: 1e308 * (a + b.T), "huge", 1).local(np.ones(4) / 2, np.ones(3) / 2)
    assert math.isnan(local.sums[0].total)


@pytest.mark.parametrize(("n", "m"), [(1, 5), (5, 1), (1, 1), (0, 4), (4, 0)])
@pytest.mark.parametrize(
    "kernel",
    [AUC(), AUC("strict"), AUC(columns=2), Gini(), Product(), make_kernel(lambda a, b: np.abs(a - b.T))],
    ids=["auc", "strict auc", "two aucs", "gini", "product", "user"],
)
def test_a_block_with_less_than_two_points_of_a_sample_has_sums_only(kernel: Kernel, n: int, m: int) -> None:
    shape = (2,) if kernel.n_coordinates == 2 else ()
    x, z = np.ones((n, *shape)), np.zeros((m, *shape))
    local = kernel.local(x, z)
    assert local.components is None
    assert local.sums == kernel.block_sums(x, z)
    assert [each.n_pairs for each in local.sums] == [n * m] * len(local.sums)


def test_kernels_say_whether_their_values_lie_between_0_and_1() -> None:
    def share(a: Array, b: Array) -> Array:
        return (a > b.T) * 1.0

    assert AUC().bounded and not Gini().bounded and not Product().bounded
    assert not make_kernel(share).bounded
    share.bounded = True  # type: ignore[attr-defined]
    assert make_kernel(share).bounded


# --- unbiased


def simulate(
    kernel: Kernel, draw: Callable[[np.random.Generator], tuple[Array, Array]], truth: Array, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(6000):
        components = kernel.local(*draw(rng)).components
        assert components is not None
        values.append(components.ravel())
    error = np.std(values, axis=0, ddof=1) / math.sqrt(len(values))
    assert (error > 0).all()
    assert (np.abs(np.mean(values, axis=0) - truth) <= SIGMAS * error).all()


def of_model(components: Components) -> Array:
    return np.array([components.var_x, components.var_z, components.var_xz])


def test_components_are_right_on_average() -> None:
    def two_point(rng: np.random.Generator) -> tuple[Array, Array]:
        return np.where(rng.random(20) < 0.3, 0.0, 2.0), np.where(rng.random(15) < 0.3, 1.0, -1.0)

    def normal(rng: np.random.Generator) -> tuple[Array, Array]:
        return 0.5 + rng.standard_normal(12), 0.5 + rng.standard_normal(9)

    of_gini = models.normal_gini()[1]  # one law for both samples
    simulate(AUC("strict"), two_point, of_model(models.two_point_auc(0.3)[1]), 1)
    simulate(Product(), normal, of_model(models.normal_product(0.5, 0.5)[1]), 2)
    simulate(Gini(), normal, np.array([of_gini.zeta1, of_gini.zeta1, of_gini.delta]), 3)
    simulate(
        UserKernel(lambda a, b: np.abs(a - b.T), "mine", 8),
        normal,
        np.array([of_gini.zeta1, of_gini.zeta1, of_gini.delta]),
        4,
    )


def test_covariance_components_of_two_aucs_are_right_on_average() -> None:
    # Two-point scores with losers {X=0}, {Z=1} in both columns: h_j = 1 - A_j C_j with independent A, C of
    # probability ε_j that coincide in x with probability ρ, and not at all in z.
    def draw(rng: np.random.Generator) -> tuple[Array, Array]:
        u, v = rng.random(14), rng.random((12, 2))
        losers = np.stack([u < 0.4, u < 0.2], axis=1)  # A_2 implies A_1
        return np.where(losers, 0.0, 2.0), np.where(v < [0.3, 0.5], 1.0, -1.0)

    # g(x) = -(A - EA) EC, so Cov = EC_1 EC_2 Cov(A_1, A_2); C_1, C_2 are independent, hence no other covariance.
    cov_a = 0.2 - 0.4 * 0.2
    truth = np.empty((3, 2, 2))
    for j, (a, c) in enumerate([(0.4, 0.3), (0.2, 0.5)]):
        var_a, var_c = a * (1 - a), c * (1 - c)
        truth[:, j, j] = [c**2 * var_a, a**2 * var_c, var_a * var_c]
    truth[:, 0, 1] = truth[:, 1, 0] = [0.3 * 0.5 * cov_a, 0.0, 0.0]
    simulate(AUC(columns=2), draw, truth.ravel(), 5)
