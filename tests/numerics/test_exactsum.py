"""Sums without rounding, against rational arithmetic and Python's integers."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_ustat.numerics.exactsum import exact_count, exact_dot, exact_sum, finite_sum, products, rounded

doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1.0, 1.0),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, sys.float_info.min, sys.float_info.max, -sys.float_info.max]),
    st.sampled_from([2.0**53 - 1, 1 - 2.0**53, 2.0**53, -(2.0**53), 0.1, 1e16, 1.0]),
)
"""Of both signs and all sizes, subnormal to the largest."""


@given(st.lists(doubles))
def test_the_sum_is_that_of_the_fractions(values: list[float]) -> None:
    total = exact_sum(np.array(values, dtype=np.float64))
    assert isinstance(total, Fraction)
    assert total == sum(map(Fraction, values))


@given(st.lists(doubles, min_size=1), st.data())
def test_the_sum_depends_neither_on_order_nor_on_how_the_terms_are_spread(
    values: list[float], data: st.DataObject
) -> None:
    whole = exact_sum(np.array(values))
    shuffled = data.draw(st.permutations(values))
    assert exact_sum(np.array(shuffled)) == whole
    cut = data.draw(st.integers(0, len(values)))
    assert exact_sum(np.array(shuffled[:cut])) + exact_sum(np.array(shuffled[cut:])) == whole


@pytest.mark.parametrize("value", [2.0**53 - 1, 1 - 2.0**53, -(2.0**52), 1.0, -0.1, 5e-324, sys.float_info.max])
def test_many_terms_of_one_exponent_do_not_overflow(value: float) -> None:
    # As 64-bit integers, 2²⁰ mantissas of 53 bits would.
    assert exact_sum(np.full(2**20, value)) == 2**20 * Fraction(value)


def test_terms_that_cancel_leave_the_small_one() -> None:
    assert exact_sum(np.array([1e308, 1e-300, 1.0, -1e308, -1.0])) == Fraction(1e-300)


def test_all_axes_are_summed_and_the_values_left_alone() -> None:
    values = np.random.default_rng(0).standard_normal((4, 5, 3))
    before = values.copy()
    assert exact_sum(values[:, ::2]) == sum(map(Fraction, values[:, ::2].ravel().tolist()))
    assert np.array_equal(values, before)


@given(st.lists(doubles))
def test_a_sum_that_is_rounded_once_is_that_of_fsum(values: list[float]) -> None:
    try:
        expected = math.fsum(values)
    except OverflowError:  # of the sum, or on the way to it
        return
    assert rounded(finite_sum(np.array(values, dtype=np.float64))) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_sum_that_is_no_number_is_nan(value: float) -> None:
    assert math.isnan(rounded(finite_sum(np.array([1.0, value]))))
    assert math.isnan(rounded(2 * finite_sum(np.array([sys.float_info.max]))))


def test_nothing_sums_to_zero() -> None:
    assert exact_sum(np.empty(0)) == 0


@pytest.mark.parametrize(("count", "largest"), [(2**62, 2**62), (2**61, 2**61), (2**61, 2**62), (2**63 - 1, 2**63 - 1)])
def test_counts_are_summed_exactly_beyond_64_bits(count: int, largest: int) -> None:
    assert exact_count(np.full(11, count, dtype=np.int64), largest) == 11 * count


@given(counts=st.lists(st.integers(0, 9)), largest=st.sampled_from([9, 100, 2**62]))
def test_small_counts_are_summed_whatever_the_largest(counts: list[int], largest: int) -> None:
    assert exact_count(np.array(counts, dtype=np.int64), largest) == sum(counts)


@pytest.mark.parametrize("largest", [1, 2**20, 2**31, 2**41])
def test_dot_products_of_integers_are_exact(largest: int) -> None:
    rng = np.random.default_rng(largest)
    for size in (0, 1, 1000, 150_000):
        a, b = (rng.integers(-largest, largest, size, endpoint=True) for _ in range(2))
        for one, other in ((a, b), (abs(a), abs(b))):
            expected = sum(p * q for p, q in zip(one.tolist(), other.tolist(), strict=True))
            assert exact_dot(one, other, largest**2) == exact_dot(one, other, 2**83) == expected
    full = np.full(150_000, largest)
    assert exact_dot(full, full, largest**2) == 150_000 * largest**2


@pytest.mark.parametrize("largest", [1, 2**20, 2**42, 2**50, 2**63 - 1])
def test_dot_products_of_counts_are_exact_whatever_their_size(largest: int) -> None:
    rng = np.random.default_rng(largest % 1000)
    for size in (0, 1, 70_000):
        a, b = (rng.integers(0, largest, size, endpoint=True) for _ in range(2))
        expected = sum(p * q for p, q in zip(a.tolist(), b.tolist(), strict=True))
        assert exact_dot(a, b) == exact_dot(a.astype(object), b.astype(object)) == expected
    full = np.full(70_000, largest)
    assert exact_dot(full, full) == 70_000 * largest**2


@pytest.mark.parametrize("largest", [1, 2**20, 2**26, 2**27 + 1, 2**31, 2**40])
@pytest.mark.parametrize("q", [2, 11])
def test_products_are_exact_at_any_size(largest: int, q: int) -> None:
    rng = np.random.default_rng(largest)
    sums = np.vstack([np.full((3, q), largest), rng.integers(0, largest, (50, q), endpoint=True)])
    as_integers = sums.astype(object)
    assert products(sums.T, largest).tolist() == (as_integers.T @ as_integers).tolist()
