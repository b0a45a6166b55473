"""Rank statistics from sorted values, against all pairs one by one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.numerics.rankstat import absolute_difference_sum, count_wins

Array = NDArray[Any]

with_ties = st.lists(
    st.one_of(st.sampled_from([-1.0, -0.0, 0.0, 1.0, math.inf, -math.inf]), st.floats(allow_nan=False)), max_size=25
)
"""Values of which many agree, infinities among them."""

finite = st.lists(
    st.one_of(st.sampled_from([-1.0, 0.0, 0.1, 1.0, 1e9, 1e9 + 1]), st.floats(min_value=-1e290, max_value=1e290)),
    max_size=25,
)


def sorted_array(values: list[float]) -> Array:
    return np.sort(np.array(values, dtype=np.float64))


# --- wins and ties


@given(x=with_ties, z=with_ties)
def test_wins_and_ties_are_those_of_all_pairs(x: list[float], z: list[float]) -> None:
    wins, ties = count_wins(sorted_array(x), sorted_array(z))
    assert isinstance(wins, int) and isinstance(ties, int)
    assert wins == sum(b < a for a in x for b in z)
    assert ties == sum(b == a for a in x for b in z)


@pytest.mark.parametrize(("n", "m"), [(3, 400), (400, 3), (300, 300)])
def test_wins_and_ties_are_those_of_all_pairs_whichever_sample_is_the_longer(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    x, z = np.sort(rng.integers(0, 20, n) / 7), np.sort(rng.integers(0, 20, m) / 7)
    assert count_wins(x, z) == (np.count_nonzero(z < x[:, None]), np.count_nonzero(z == x[:, None]))


def test_ties_in_4900000000_pairs_give_an_auc_of_0_65_exactly() -> None:
    x = np.repeat([1.0, 2.0], [35_000, 35_000])
    z = np.repeat([1.0, 2.0], [56_000, 14_000])
    wins, ties = count_wins(x, z)
    assert (wins, ties) == (35_000 * 56_000, 35_000 * 56_000 + 35_000 * 14_000)
    assert Fraction(2 * wins + ties, 2 * len(x) * len(z)) == Fraction(65, 100)


def test_half_way_values_win_just_short_of_half_the_pairs() -> None:
    values = np.arange(100_000.0)
    assert count_wins(values, values + 0.5) == (99_999 * 100_000 // 2, 0)
    assert count_wins(values + 0.5, values) == (100_001 * 100_000 // 2, 0)


# --- absolute differences


def exact_differences(x: Array, z: Array) -> Fraction:
    ours, theirs = [Fraction(a) for a in x.tolist()], [Fraction(b) for b in z.tolist()]
    return sum((abs(a - b) for a in ours for b in theirs), Fraction(0))


def assert_accurate(value: float, exact: Fraction, n_values: int) -> None:
    """Check the error against its bound.

    All terms are non-negative. A gap and its product with an exact integer round once each, and a sum of k terms at
    most k-1 times: relative error at most (n_values + 1)·2⁻⁵³, up to terms of second order.
    """
    assert abs(Fraction(value) - exact) <= exact * (n_values + 2) / 2**53


@given(x=finite, z=finite)
def test_absolute_differences_sum_to_those_of_all_pairs(x: list[float], z: list[float]) -> None:
    ours, theirs = sorted_array(x), sorted_array(z)
    assert_accurate(absolute_difference_sum(ours, theirs), exact_differences(ours, theirs), len(x) + len(z))


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e15])
def test_absolute_differences_are_accurate_far_from_zero(offset: float) -> None:
    rng = np.random.default_rng(5)
    x, z = np.sort(offset + rng.standard_normal(150)), np.sort(offset + rng.standard_normal(100))
    exact = exact_differences(x, z)
    assert exact > 0
    assert_accurate(absolute_difference_sum(x, z), exact, 250)


def test_absolute_differences_of_half_way_values_are_exact() -> None:
    n = 1000
    values = np.arange(float(n))
    exact = sum(abs(Fraction(k) - Fraction(1, 2)) * (n - abs(k)) for k in range(-n + 1, n))
    assert absolute_difference_sum(values, values + 0.5) == exact
