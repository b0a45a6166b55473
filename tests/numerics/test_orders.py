"""Orders by several columns against NumPy's, and sums over runs by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mpi_ustat.numerics.orders import (
    Merged,
    in_order,
    lexicographic_order,
    run_sums,
    starts_of_equal,
    twice_middle_places,
    whole_numbers,
)


def test_whole_numbers_are_in_the_order_of_doubles() -> None:
    values = np.array([-np.inf, -1e300, -2.0, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.5, 1e300, np.inf])
    exact = whole_numbers(values)
    assert_array_equal(exact[:, None] < exact, values[:, None] < values)
    assert_array_equal(exact[:, None] == exact, values[:, None] == values)


@pytest.mark.parametrize("n", [0, 1, 200])
@pytest.mark.parametrize("n_columns", [1, 2, 3])
def test_lexicographic_order(n: int, n_columns: int) -> None:
    columns = [*np.random.default_rng(n).integers(-2, 3, (n_columns, n))]
    expected = np.lexsort(columns[::-1])
    assert_array_equal(lexicographic_order(columns, stable=True), expected)
    order = lexicographic_order(columns)
    assert_array_equal(np.sort(order), np.arange(n))
    for column in columns:
        assert_array_equal(column[order], column[expected])
    rows = np.array(columns).T[expected]
    new = [i for i in range(n) if i == 0 or (rows[i] != rows[i - 1]).any()]
    assert_array_equal(starts_of_equal([column[expected] for column in columns]), new)


@pytest.mark.parametrize("starts", [[0], [0, 1, 5], [0, 7]])
def test_sums_of_runs(starts: list[int]) -> None:
    sums = np.random.default_rng(1).integers(0, 99, (2, 8))
    runs = np.searchsorted(starts, np.arange(8), side="right")
    before, totals = run_sums(sums, np.array(starts))
    for i in range(8):
        assert_array_equal(before[:, i], sums[:, (runs == runs[i]) & (np.arange(8) < i)].sum(axis=1))
        assert_array_equal(totals[:, i], sums[:, runs == runs[i]].sum(axis=1))


def test_no_runs() -> None:
    before, totals = run_sums(np.zeros((1, 0), dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert before.shape == totals.shape == (1, 0)


@pytest.mark.parametrize(
    "keys",
    [
        np.array([3, 1, 2, 1, 3, 0]),
        np.array([3.0, 1.0, 2.0, 1.0, 3.0, 0.0]).view(np.int64),
        np.array([-3, 1, 2, 1, -3, 0]),
        np.array([0.5, 1.0, 2.0, 1.0, 0.5, 0.0]).view(np.int64),
        np.array([-0.5, 1.0, 2.0, 1.0, np.nan, np.inf]).view(np.int64),
        np.array([2**40, 1, 2**31, 2**31 - 1, 2**40, 0]),
        np.array([2.0**31, 1.0, 2.0**31 - 1.0, 2.0**40, 2.0**31, 0.0]).view(np.int64),
    ],
)
@pytest.mark.parametrize("stable", [False, True])
def test_keys_of_all_kinds_are_in_the_order_of_whole_numbers(keys: Any, stable: bool) -> None:
    values = np.array([1.0, 2.0, 0.5, 1.5, 0.0, 3.0])
    assert_array_equal(lexicographic_order([keys, values], stable=stable), np.lexsort([values, keys]))


SCALES = pytest.mark.parametrize(
    "numbers",
    [
        np.random.default_rng(1).normal(size=1000),
        np.random.default_rng(2).integers(-3, 3, 1000) * 1.0,
        np.random.default_rng(3).integers(-3, 3, 1000),
        1.0 + np.random.default_rng(4).integers(0, 50, 1000) * 2.0**-52,
        np.append(np.random.default_rng(5).normal(size=1000), 1.0 + np.arange(9)[::-1] * 2.0**-52),
        np.random.default_rng(6).integers(-(2**62), 2**62, 1000),
        np.array([0.0, -0.0, -np.inf, np.inf, 5e-324, -5e-324]),
        np.array([1.0]),
        np.empty(0),
    ],
)


@SCALES
def test_numbers_in_order_also_where_only_their_last_bits_differ(numbers: Any) -> None:
    order, ordered = in_order(numbers)
    assert_array_equal(np.sort(order), np.arange(len(numbers)))
    assert_array_equal(numbers[order], ordered)
    assert_array_equal(ordered, np.sort(numbers))


@SCALES
@pytest.mark.parametrize("share", [0, 3, 2])
def test_two_arrays_in_one_order(numbers: Any, share: int) -> None:
    of_x = np.arange(len(numbers)) % share == 0 if share else np.zeros(len(numbers), dtype=bool)
    both = numbers[of_x], numbers[~of_x]
    merged = Merged.of(*both)
    for k, order in enumerate(merged.orders):
        ordered, others = np.sort(both[k]), np.sort(both[1 - k])
        assert_array_equal(both[k][order], ordered)
        assert_array_equal(merged.below[k], np.searchsorted(others, ordered, side="left"))
        assert_array_equal(merged.up_to[k], np.searchsorted(others, ordered, side="right"))


@SCALES
@pytest.mark.parametrize("few", [0, 1, 2, 30])
def test_places_among_a_few(numbers: Any, few: int) -> None:
    values = np.unique(numbers[::7][:few].astype(np.float64))
    queries = np.concatenate([numbers, np.nextafter(values, np.inf), values, [-np.inf, np.inf, 1e308, -1e308]])
    for these in (values, np.unique(np.append(values, [np.inf])), np.unique(np.append(values, [-1e308, 1e308]))):
        expected = np.searchsorted(these, queries, side="left") + np.searchsorted(these, queries, side="right")
        assert_array_equal(twice_middle_places(these, queries), expected)
