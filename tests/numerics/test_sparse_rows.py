"""Rows without their zeros: taken, cut and multiplied like those of an array."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.numerics.sparse_rows import SparseRows

Floats = NDArray[np.float64]


def some(n: int = 23, d: int = 7) -> Floats:
    generator = np.random.default_rng([n, d])
    return np.where(generator.random((n, d)) < 0.3, generator.normal(size=(n, d)), 0.0)


def dense(rows: SparseRows) -> Floats:
    """Write the rows out by a loop."""
    found = np.zeros(rows.shape)
    for i, (begin, end) in enumerate(zip(rows.starts[:-1], rows.starts[1:], strict=True)):
        found[i, rows.columns[begin:end]] += rows.values[begin:end]
    return found


def test_rows_are_taken_and_cut_like_those_of_an_array() -> None:
    array = some()
    rows = SparseRows.of_dense(array)
    assert len(rows) == 23 and rows.shape == (23, 7) and rows.nbytes < array.nbytes
    flags, places = np.arange(23) % 3 == 1, np.array([4, 4, 0, 22])
    for found, wanted in (
        (rows, array),
        (rows[flags], array[flags]),
        (rows.take(places), array.take(places, axis=0)),
        (rows.take(places[:0]), array[:0]),
        *((rows[i:j], array[i:j]) for i, j in ((3, 9), (0, 23), (5, 5), (9, 3), (-2, 40))),
        (rows[2:9][1:4].take(np.array([2, 0])), array[2:9][1:4][[2, 0]]),
        (SparseRows.joined([rows[:3], rows[3:3], rows[20:]]), np.concatenate([array[:3], array[20:]])),
        (rows.divided(np.arange(1.0, 8.0)), array / np.arange(1.0, 8.0)),
        (SparseRows.none(4), np.empty((0, 4))),
        (SparseRows.of_dense(np.zeros((2, 3))), np.zeros((2, 3))),
    ):
        assert np.array_equal(dense(found), wanted)


def test_products() -> None:
    array = some()
    rows, w, c = SparseRows.of_dense(array), np.arange(7.0) - 2.5, np.sin(np.arange(23.0))
    assert rows.times(w) == pytest.approx(array @ w, rel=1e-13)
    assert rows.summed(c) == pytest.approx(c @ array, rel=1e-13)
    assert SparseRows.none(7).times(w).shape == (0,)
    assert np.array_equal(SparseRows.none(7).summed(np.empty(0)), np.zeros(7))


def test_the_bits_of_a_score_do_not_depend_on_the_other_rows() -> None:
    rows, w = SparseRows.of_dense(some(200, 90)), np.random.default_rng(0).normal(size=90)
    whole = rows.times(w)
    for i in range(0, 200, 7):
        for j in (i + 1, i + 5, 200):
            assert rows[i:j].times(w).tobytes() == whole[i:j].tobytes()
    places = np.random.default_rng(1).integers(200, size=50)
    assert rows.take(places).times(w).tobytes() == whole[places].tobytes()


def test_they_are_never_made_an_array() -> None:
    with pytest.raises(TypeError, match="not made an array"):
        np.asarray(SparseRows.of_dense(some()))
