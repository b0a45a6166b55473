"""Weighted inversions by definition, in problems of one chunk and of many."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mpi_ustat.numerics import weighted_dominance
from mpi_ustat.numerics.weighted_dominance import weighted_inversions


@pytest.mark.parametrize("chunk_bits", [0, 2, 15])
@pytest.mark.parametrize("largest", [3, 2**40], ids=["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 31, 64, 65])
def test_sums_over_inverted_pairs(n: int, largest: int, chunk_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted_dominance, "_CHUNK_BITS", chunk_bits)
    rng = np.random.default_rng([n, largest])
    order = rng.permutation(n)
    later, earlier = rng.integers(-largest, largest, (2, n)), rng.integers(0, largest, (1, n))
    places, ranks = np.arange(n), np.argsort(order)
    inverted = (places[:, None] < places) & (ranks[:, None] > ranks)
    behind, before = weighted_inversions(order, later, earlier)
    assert_array_equal(behind, later @ inverted.T)
    assert_array_equal(before, earlier @ inverted)


def test_sorted_chunks_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted_dominance, "_CHUNK_BITS", 3)
    order = np.concatenate([np.arange(8, 30), np.arange(8)])
    ones = np.ones((1, 30), dtype=np.int64)
    behind, before = weighted_inversions(order, ones, ones)
    assert_array_equal(behind[0], np.repeat([22, 0], [8, 22]))
    assert_array_equal(before[0], np.repeat([0, 8], [8, 22]))
