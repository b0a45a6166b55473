"""Kernels and the U-statistic of one worker's blocks, against all pairs one by one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels import blocks as ustat
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.blocks import add, mean, pool, sampled_sums
from mpi_ustat.kernels.gini import Gini
from mpi_ustat.kernels.kernel import Kernel, PairSum
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.registry import KERNELS, make_kernel
from mpi_ustat.kernels.user_pairs import UserKernel

Array = NDArray[Any]
UNIT = 2.0**-53
"""The largest relative error of one rounding."""

coordinates = st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.floats(min_value=-1e100, max_value=1e100))
scalars = st.lists(coordinates, max_size=20).map(lambda values: np.array(values, dtype=np.float64))


def one_by_one(h: Callable[[Any, Any], Any], x: Array, z: Array) -> Fraction:
    """Return Σ_k Σ_l h(x_k, z_l) in exact arithmetic."""
    return sum((Fraction(h(a, b)) for a in x.tolist() for b in z.tolist()), Fraction(0))


def half_auc(x: float, z: float) -> Fraction:
    return Fraction(int(z < x)) + Fraction(int(z == x), 2)


def strict_auc(x: float, z: float) -> int:
    return int(z < x)


def gini(x: float, z: float) -> Fraction:
    return abs(Fraction(x) - Fraction(z))


def distance(x: Array, z: Array) -> Array:
    """Return |x - z| for all pairs, the coordinates' distances added up."""
    return np.abs(x[:, None, :] - z[None, :, :]).sum(axis=2)


# --- named kernels


@pytest.mark.parametrize(("ties", "h"), [("half", half_auc), ("strict", strict_auc)])
@given(x=scalars, z=scalars)
def test_the_auc_of_a_block_counts_all_its_pairs(ties: str, h: Callable[..., Any], x: Array, z: Array) -> None:
    total = AUC(ties).block_total(x, z)
    assert type(total) is int  # exact at any size
    assert total == 2 * one_by_one(h, x, z)
    assert AUC(ties).sorted_total(np.sort(x), np.sort(z)) == total


@pytest.mark.parametrize(("ties", "h"), [("half", half_auc), ("strict", strict_auc)])
@given(pairs=st.lists(st.tuples(coordinates, coordinates)))
def test_the_auc_of_aligned_pairs_counts_them(
    ties: str, h: Callable[..., Any], pairs: list[tuple[float, float]]
) -> None:
    x, z = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    total = AUC(ties).pairs_total(x, z)
    assert type(total) is int
    assert total == 2 * sum(h(a, b) for a, b in pairs)


def test_the_auc_compares_infinities_as_usual() -> None:
    x, z = np.array([np.inf, 2.0, -np.inf]), np.array([np.inf, 1.0, -np.inf])
    total = AUC().block_total(x, z)
    assert mean(PairSum(total, 9), AUC.scale) == 5 / 9
    assert AUC().pairs_total(x, z) == 4  # a tie, a win, a tie: 1 + 2 + 1


def test_unknown_ties_are_refused() -> None:
    with pytest.raises(UserError, match="half or strict, not 'lax'"):
        AUC("lax")


@given(x=scalars, z=scalars)
def test_the_gini_difference_of_a_block_is_that_of_all_its_pairs(x: Array, z: Array) -> None:
    exact = one_by_one(gini, x, z)
    # Non-negative terms: see the bound in the tests of rank statistics.
    assert abs(Fraction(Gini().block_total(x, z)) - exact) <= exact * (len(x) + len(z) + 2) * Fraction(UNIT)


@given(pairs=st.lists(st.tuples(coordinates, coordinates)))
def test_the_gini_difference_of_aligned_pairs_is_theirs(pairs: list[tuple[float, float]]) -> None:
    x, z = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    exact = sum((gini(a, b) for a, b in pairs), Fraction(0))
    assert abs(Fraction(Gini().pairs_total(x, z)) - exact) <= exact * (len(pairs) + 1) * Fraction(UNIT)


def test_named_kernels_sort_copies_and_leave_their_points_alone() -> None:
    x, z = np.array([3.0, 1.0, 2.0]), np.array([2.0, 5.0])
    for kernel in (AUC(), AUC("strict"), Gini(), Product()):
        kernel.block_total(x, z)
        assert x.tolist() == [3.0, 1.0, 2.0] and z.tolist() == [2.0, 5.0]


@pytest.mark.parametrize("d", [None, 1, 3])
@pytest.mark.parametrize(("n", "m"), [(6, 9), (40, 1), (1, 1), (0, 4)])
def test_the_product_of_a_block_is_that_of_all_its_pairs(d: int | None, n: int, m: int) -> None:
    rng = np.random.default_rng(3)
    x, z = (rng.standard_normal(size if d is None else (size, d)) for size in (n, m))
    rows = (
        [[Fraction(v) for v in np.atleast_1d(row)] for row in x],
        [[Fraction(v) for v in np.atleast_1d(r)] for r in z],
    )
    terms = [a * b for ours in rows[0] for theirs in rows[1] for a, b in zip(ours, theirs, strict=True)]
    # Sums of n, of m and of d terms, and a product.
    bound = sum(map(abs, terms), Fraction(0)) * (n + m + (d or 1) + 1) * Fraction(UNIT)
    assert abs(Fraction(Product().block_total(x, z)) - sum(terms, Fraction(0))) <= bound


@pytest.mark.parametrize("d", [None, 1, 3])
def test_the_product_of_aligned_pairs_is_theirs(d: int | None) -> None:
    rng = np.random.default_rng(4)
    x, z = (rng.standard_normal(30 if d is None else (30, d)) for _ in range(2))
    terms = [Fraction(a) * Fraction(b) for a, b in zip(x.ravel().tolist(), z.ravel().tolist(), strict=True)]
    bound = sum(map(abs, terms)) * (len(terms) + 1) * Fraction(UNIT)
    assert abs(Fraction(Product().pairs_total(x, z)) - sum(terms)) <= bound


@pytest.mark.parametrize("name", list(KERNELS))
def test_a_kernel_is_made_by_its_name(name: str) -> None:
    kernel = make_kernel(name, min(KERNELS[name].samples or (3,)))
    assert isinstance(kernel, Kernel)
    assert kernel.name == name


def test_ties_reach_the_auc() -> None:
    one = np.ones(1)
    assert make_kernel("auc").block_total(one, one) == 1
    assert make_kernel("auc", ties="half").block_total(one, one) == 1
    assert make_kernel("auc", ties="strict").block_total(one, one) == 0


def test_an_unknown_kernel_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(
        UserError,
        match=r"no kernel 'acu' \(did you mean 'auc'\?\): use one of auc, vus, gini, .*, or .* module:function",
    ):
        make_kernel("acu")


# --- user kernels


@pytest.mark.parametrize("tile", [1, 7, 4096])
def test_a_user_kernel_on_integers_has_the_same_bits_for_every_tile(tile: int) -> None:
    rng = np.random.default_rng(6)
    x, z = rng.integers(-(10**6), 10**6, 500), rng.integers(-(10**6), 10**6, 500)
    kernel = make_kernel(lambda a, b: np.abs(a - b.T), tile=tile)
    total = kernel.block_total(x.astype(np.float64), z.astype(np.float64))
    assert total == int(np.abs(x[:, None] - z).sum())


@pytest.mark.parametrize("tile", [1, 3, 4, 100])
@pytest.mark.parametrize("d", [None, 1, 2])
@pytest.mark.parametrize(("n", "m"), [(8, 5), (0, 3), (3, 0), (1, 9)])
def test_a_user_kernel_sees_every_pair_once_in_tiles_of_bounded_size(tile: int, d: int | None, n: int, m: int) -> None:
    x, z = (
        np.arange(size * (d or 1), dtype=np.float64).reshape((size,) if d is None else (size, d)) for size in (n, m)
    )
    seen: list[tuple[float, float]] = []

    def function(a: Array, b: Array) -> Array:
        assert a.shape[1:] == b.shape[1:] == (d or 1,)
        assert max(len(a), len(b)) <= tile
        seen.extend((p, q) for p in a[:, 0] for q in b[:, 0])
        return distance(a, b)

    total = make_kernel(function, tile=tile).block_total(x, z)
    rows_x, rows_z = x.reshape(n, d or 1), z.reshape(m, d or 1)
    assert total == distance(rows_x, rows_z).sum()  # small integers: exact
    assert sorted(seen) == sorted((p, q) for p in rows_x[:, 0] for q in rows_z[:, 0])


def test_the_sums_of_tiles_are_added_without_rounding() -> None:
    x, z = np.array([1e100, 1.0, -1e100]), np.zeros(1)
    assert make_kernel(lambda a, b: a + b.T, tile=1).block_total(x, z) == 1.0


@pytest.mark.parametrize("d", [None, 2])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 30])
def test_a_user_kernel_evaluates_aligned_pairs_in_small_tiles(size: int, d: int | None) -> None:
    rng = np.random.default_rng(7)
    x, z = (rng.integers(-100, 100, size if d is None else (size, d)).astype(np.float64) for _ in range(2))
    evaluations = 0

    def function(a: Array, b: Array) -> Array:
        nonlocal evaluations
        evaluations += len(a) * len(b)
        return distance(a, b)

    assert make_kernel(function).pairs_total(x, z) == np.abs(x - z).sum()
    assert evaluations <= 8 * size


@pytest.mark.parametrize("d", [None, 2])
def test_a_user_kernel_evaluates_aligned_pairs_by_its_own_function_for_them(d: int | None) -> None:
    def function(a: Array, b: Array) -> Array:
        raise AssertionError("called for aligned pairs")

    def pairs(a: Array, b: Array) -> Array:
        assert a.shape == b.shape == (30, d or 1)
        return np.abs(a - b).sum(axis=1)

    function.pairs = pairs  # type: ignore[attr-defined]
    rng = np.random.default_rng(8)
    x, z = (rng.integers(-100, 100, 30 if d is None else (30, d)).astype(np.float64) for _ in range(2))
    assert make_kernel(function).pairs_total(x, z) == np.abs(x - z).sum()


def with_pairs(pairs: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Array]:
    def function(a: Array, b: Array) -> Array:
        return distance(a, b)

    function.pairs = pairs  # type: ignore[attr-defined]
    return function


@pytest.mark.parametrize(
    "values",
    [
        lambda a, b: np.zeros((len(b), len(a))),
        lambda a, b: np.zeros(len(a)),
        lambda a, b: 0.0,
        lambda a, b: np.zeros((len(a), len(b), 1)),
    ],
    ids=["transposed", "vector", "number", "third axis"],
)
def test_values_of_a_wrong_shape_are_refused(values: Callable[[Array, Array], Any]) -> None:
    kernel = UserKernel(values, "mine:h")
    with pytest.raises(UserError, match=r"kernel mine:h returned shape .* instead of \(3, 4\)"):
        kernel.block_total(np.zeros(3), np.zeros(4))


def test_values_of_a_wrong_shape_for_aligned_pairs_are_refused() -> None:
    with pytest.raises(UserError, match=r"mine:h returned shape \(3, 1\) instead of \(3,\)"):
        UserKernel(with_pairs(lambda a, b: a - b), "mine:h").pairs_total(np.zeros(3), np.zeros(3))
    with pytest.raises(UserError, match=r"mine:h returned shape \(3,\) instead of \(3, 3\)"):
        UserKernel(lambda a, b: np.zeros(len(a)), "mine:h").pairs_total(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_wherever_they_come_up(value: float) -> None:
    def function(a: Array, b: Array) -> Array:
        return np.where((a == 8) & (b.T == 8), value, 0.0)

    points = np.arange(9.0)
    kernel = UserKernel(function, "mine:h", tile=2)
    assert kernel.block_total(points[:8], points) == 0
    for evaluate in (kernel.block_total, kernel.pairs_total):
        with pytest.raises(UserError, match="mine:h returned a value that is not finite"):
            evaluate(points, points)
    with pytest.raises(UserError, match="mine:h returned a value that is not finite"):
        UserKernel(with_pairs(lambda a, b: np.where(a[:, 0] == 8, value, 0.0)), "mine:h").pairs_total(points, points)


def test_a_kernel_that_returns_integers_or_truth_values_is_summed() -> None:
    x, z = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    assert make_kernel(lambda a, b: a > b.T).block_total(x, z) == 4
    assert make_kernel(lambda a, b: (a - b.T).astype(np.int32)).block_total(x, z) == 6


def test_a_tile_without_side_is_refused() -> None:
    with pytest.raises(UserError, match="tile side must be at least 1, not 0"):
        make_kernel(distance, tile=0)


def test_a_function_and_a_kernel_are_taken_as_they_are() -> None:
    assert make_kernel(distance).name == "distance"
    kernel = AUC("strict")
    assert make_kernel(kernel) is kernel


def test_a_kernel_is_imported_from_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernel_package_for_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "kernels.py").write_text("def larger(a, b):\n    return (a > b.T) * 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    kernel = make_kernel("kernel_package_for_test.kernels:larger", tile=1)
    assert kernel.name == "kernel_package_for_test.kernels:larger"
    assert kernel.block_total(np.array([1.0, 3.0]), np.array([2.0, 0.0])) == 3


@pytest.mark.parametrize(
    ("source", "name", "cause"),
    [
        (None, "broken_kernel_for_test:h", "ModuleNotFoundError: No module named 'broken_kernel_for_test'"),
        ("g = abs\n", "broken_kernel_for_test:h", "AttributeError: .*has no attribute 'h'"),
        ("1 / 0\n", "broken_kernel_for_test:h", "ZeroDivisionError"),
        ("def h(:\n", "broken_kernel_for_test:h", "SyntaxError"),
        ("", "broken_kernel_for_test:", "AttributeError"),
        ("", ":h", "ValueError"),
    ],
    ids=["no module", "no function", "raises", "no Python", "no function name", "no module name"],
)
def test_a_kernel_that_cannot_be_imported_is_refused_with_cause_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | None, name: str, cause: str
) -> None:
    if source is not None:
        (tmp_path / "broken_kernel_for_test.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_kernel_for_test", raising=False)
    with pytest.raises(
        UserError, match=rf"(?s)the kernel {name} can't be imported \({cause}.*check the name and PYTHON"
    ):
        make_kernel(name)


# --- statistics of one block


@pytest.mark.parametrize("kernel", [AUC(), Gini(), Product(), make_kernel(distance)], ids=lambda kernel: kernel.name)
def test_a_complete_sum_is_over_all_pairs_of_the_block(kernel: Kernel) -> None:
    x, z = np.array([2.0, 5.0, 9.0]), np.array([1.0, 5.0, 6.0, 8.0])
    h = {"auc": half_auc, "gini": gini, "product": lambda a, b: a * b, "distance": gini}[kernel.name]
    assert kernel.block_sums(x, z)[0] == (kernel.scale * one_by_one(h, x, z), 12)


def test_a_complete_sum_over_an_empty_block_is_over_no_pair() -> None:
    assert AUC().block_sums(np.empty(0), np.ones(3))[0] == (0, 0)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9, 50])
@pytest.mark.parametrize(
    "kernel",
    [AUC(), AUC("strict"), Gini(), Product(), make_kernel(distance)],
    ids=["auc", "strict auc", "gini", "product", "user"],
)
def test_an_incomplete_sum_is_over_the_sampled_pairs_in_chunks_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, size: int
) -> None:
    monkeypatch.setattr(ustat, "_CHUNK", 4)
    chunks: list[int] = []
    whole = kernel.pairs_total

    def pairs_total(x: Array, z: Array) -> int | float:
        chunks.append(len(x))
        return whole(x, z)

    monkeypatch.setattr(kernel, "pairs_total", pairs_total)
    rng = np.random.default_rng(size)
    x, z = rng.integers(0, 20, 11).astype(np.float64), rng.integers(0, 20, 7).astype(np.float64)
    rows, columns = rng.integers(0, 11, size), rng.integers(0, 7, size)
    (found,) = sampled_sums(kernel, (x, z), (rows, columns))
    assert found == (whole(x[rows], z[columns]), size)  # integers: exact
    assert sum(chunks) == size and max(chunks, default=0) <= 4
    if isinstance(kernel, AUC):
        assert type(found.total) is int


def test_an_incomplete_sum_takes_rows_of_several_coordinates() -> None:
    x, z = np.arange(12.0).reshape(4, 3), np.arange(15.0).reshape(5, 3)
    rows, columns = np.array([3, 0, 3]), np.array([1, 1, 4])
    assert sampled_sums(Product(), (x, z), (rows, columns))[0] == (float((x[rows] * z[columns]).sum()), 3)


def test_integers_are_added_exactly() -> None:
    assert add([2**62, 2**62, 2**62, 1]) == 3 * 2**62 + 1
    assert add([2**53, 1]) == 2**53 + 1
    assert type(add([])) is int and add([]) == 0


def test_floats_are_added_without_rounding_before_the_end() -> None:
    assert add([1e100, 1.0, -1e100]) == 1.0
    assert add(iter([0.1] * 10)) == 1.0
    assert add([1e100, 1, -1e100]) == 1.0


def test_floats_beyond_the_largest_double_add_up_to_no_number() -> None:
    assert math.isnan(add([1e308, 1e308]))
    assert math.isnan(add([math.inf, -math.inf]))


def test_sums_over_separate_pairs_are_pooled() -> None:
    assert pool([PairSum(2**62, 5), PairSum(2**62 + 1, 7), PairSum(0, 0)]) == (2**63 + 1, 12)
    assert pool([PairSum(1e100, 1), PairSum(1.0, 2), PairSum(-1e100, 3)]) == (1.0, 6)
    assert pool([]) == (0, 0)


@given(total=st.integers(0, 10**40), n_pairs=st.integers(1, 10**20), scale=st.sampled_from([1, 2]))
def test_the_mean_of_counts_is_correctly_rounded(total: int, n_pairs: int, scale: int) -> None:
    assert mean(PairSum(total, n_pairs), scale) == float(Fraction(total, scale * n_pairs))


def test_the_mean_divides_by_pairs_and_scale() -> None:
    assert mean(PairSum(4.5, 3), 1) == 1.5
    assert mean(PairSum(11, 9), 2) == 11 / 18


def test_the_mean_of_no_pair_is_not_a_number() -> None:
    assert math.isnan(mean(PairSum(0, 0), 2))
