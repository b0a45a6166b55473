"""Counting dominated points, against all pairs one by one and against merging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.numerics import dominance
from mpi_ustat.numerics.dominance import count_dominated, inverse, lower_left

Array = NDArray[Any]

coordinates = st.one_of(st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf]), st.floats(allow_nan=False))
points = st.lists(st.tuples(coordinates, coordinates), max_size=30)


def by_comparing(ranks: Array) -> Array:
    n = len(ranks)
    return np.count_nonzero((ranks[:, None] < ranks) & (np.arange(n)[:, None] < np.arange(n)), axis=0)


def by_merging(ranks: Array, width: int = 256) -> int:
    """The pairs in the order of the ranks, by comparing within blocks and merging them: an independent count."""
    n = len(ranks)
    padded = np.append(ranks, np.arange(n, -(-n // width) * width))
    rows = padded.reshape(-1, width)
    pairs = sum(int(np.count_nonzero(rows[:, :-k] < rows[:, k:])) for k in range(1, width))
    while width < len(padded):
        for start in range(0, len(padded) - width, 2 * width):
            left, right = np.sort(padded[start : start + width]), np.sort(padded[start + width : start + 2 * width])
            pairs += int(np.searchsorted(left, right).sum())
        width *= 2
    return pairs - sum(range(n, len(padded)))


def dominated(a: Array, b: Array) -> int:
    return sum(ax < bx and ay < by for ax, ay in a.tolist() for bx, by in b.tolist())


# --- permutations


@given(ranks=st.integers(0, 70).flatmap(lambda n: st.permutations(range(n))))
def test_earlier_lower_ranks_are_those_of_all_pairs(ranks: list[int]) -> None:
    assert lower_left(ranks).tolist() == [sum(other < rank for other in ranks[:i]) for i, rank in enumerate(ranks)]


# 4096 is the largest size whose halves are compared directly; the next ones recur, with and without padding.
@pytest.mark.parametrize("n", [63, 64, 65, 127, 1000, 1023, 1025, 4095, 4096, 4097, 4225, 6000])
def test_all_sizes(n: int) -> None:
    ranks = np.random.default_rng(n).permutation(n)
    assert np.array_equal(lower_left(ranks), by_comparing(ranks))


@pytest.mark.parametrize("leaf", [2, 4, 16])
@pytest.mark.parametrize("chunk", [1, 100, 1 << 17])
def test_neither_the_depth_of_the_recursion_nor_the_chunks_matter(
    leaf: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dominance, "_LEAF", leaf)
    monkeypatch.setattr(dominance, "_CHUNK", chunk)
    for n in (2, 3, 17, 300, 1001):
        ranks = np.random.default_rng(n).permutation(n)
        assert np.array_equal(lower_left(ranks), by_comparing(ranks))


def test_ascending_and_descending_ranks() -> None:
    for n in (1, 100, 10_000):
        assert np.array_equal(lower_left(np.arange(n)), np.arange(n))
        assert not lower_left(np.arange(n)[::-1]).any()


def test_a_permutation_too_long_for_words_of_32_bits() -> None:
    n = (1 << 21) + 3
    ranks = np.arange(n) * 1_234_567 % n
    ranks[: n // 2] = np.sort(ranks[: n // 2])[::-1]
    counts = lower_left(ranks)
    assert int(counts.sum(dtype=np.int64)) == by_merging(ranks)
    # The same points with their coordinates exchanged.
    assert np.array_equal(lower_left(inverse(ranks))[ranks], counts)


# --- two sets of points


@given(a=points, b=points)
def test_dominated_points_are_those_of_all_pairs(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
    left, right = np.array(a).reshape(-1, 2), np.array(b).reshape(-1, 2)
    expected = dominated(left, right)
    assert count_dominated(*left.T, *right.T) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dominance, "_FEW_PAIRS", -1)  # the sorting way, which larger sets take
        assert count_dominated(*left.T, *right.T) == expected


@pytest.mark.parametrize("n_values", [1, 2, 30, 10**9])
@pytest.mark.parametrize(("n", "m"), [(400, 300), (5, 4000), (4000, 5), (0, 10), (3000, 3000)])
def test_larger_sets_of_points(n: int, m: int, n_values: int) -> None:
    rng = np.random.default_rng(n + n_values)
    a, b = (rng.integers(0, n_values, (2, size)).astype(float) for size in (n, m))
    a[rng.random(a.shape) < 0.05], b[rng.random(b.shape) < 0.05] = -np.inf, np.inf
    count = count_dominated(*a, *b)
    assert isinstance(count, int)
    assert count == np.count_nonzero((a[0][:, None] < b[0]) & (a[1][:, None] < b[1]))


def test_equal_points_dominate_nothing() -> None:
    one = np.zeros(1000)
    assert count_dominated(one, one, one, one) == 0
    assert count_dominated(one, one, one + 1, one) == 0
    assert count_dominated(one, one, one + 1, one + 1) == 10**6
