"""Sparse matrices as users give them: what is taken, what is refused, and the moments of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sharding import SPREADS, shards

from mpi_ustat import SerialComm, UserError
from mpi_ustat.mpi.fingerprint import fingerprint
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.points.preparation import standardisation
from mpi_ustat.points.sparse import checked_rows

Floats = NDArray[np.float64]


def two(sizes: tuple[int, int] = (17, 24), d: int = 6) -> list[Floats]:
    generator = np.random.default_rng([*sizes, d])
    found = [np.where(generator.random((n, d)) < 0.4, generator.normal(3.0, 1.0, (n, d)), 0.0) for n in sizes]
    for rows in found:
        rows[:, 2] *= 1e-250
        rows[:, 3] *= 1e200
        rows[:, 4] = 0.1
        rows[:, 5] = 0.0
    return found


@pytest.mark.parametrize("spread", SPREADS)
def test_columns_have_the_moments_of_those_of_arrays_to_the_bit(comm: Any, spread: str) -> None:
    samples = two()
    wanted = standardisation(SerialComm(), tuple(samples))
    found = standardisation(comm, tuple(map(SparseRows.of_dense, shards(comm, samples, spread))))
    assert found.mean.tobytes() == wanted.mean.tobytes()
    assert found.deviation.tobytes() == wanted.deviation.tobytes()
    assert found.deviation[4] == found.deviation[5] == 1.0
    w, rows = np.array([1.0, -2.0, 0.5, 3.0, 7.0, 1.0]), samples[0]
    scores, centred = found.apply(SparseRows.of_dense(rows)).times(w), wanted.apply(rows) @ w
    assert scores - scores[0] == pytest.approx(centred - centred[0], abs=1e-12)


def test_the_fingerprint_is_of_the_rows_not_of_their_ranks(comm: Any) -> None:
    samples = [SparseRows.of_dense(each) for each in two()]
    whole = fingerprint(SerialComm(), samples)
    for spread in SPREADS:
        assert fingerprint(comm, shards(comm, samples, spread)) == whole
    x, z = samples
    changed = SparseRows(x.starts, x.columns, x.values + np.eye(1, len(x.values))[0], x.n_columns)
    moved = SparseRows(x.starts, x.columns[::-1], x.values, x.n_columns)
    wider = SparseRows(x.starts, x.columns, x.values, x.n_columns + 1)
    for others in ([changed, z], [moved, z], [wider, z], [x[1:], z], [z, x]):
        assert fingerprint(SerialComm(), others) != whole


def test_matrices_of_every_kind_are_the_same_rows() -> None:
    array = np.array([[0.0, 3.0], [1.0, 0.0], [0.0, 0.0]])
    for each in (
        sparse.csr_array(array),
        sparse.csc_matrix(array),
        sparse.lil_array(array),
        sparse.csr_array(array.astype(np.int8)),
        sparse.coo_matrix(([1.0, 2.0, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(3, 2)),
        sparse.csr_matrix(([2.0, 1.0, 1.0], [1, 1, 0], [0, 2, 3, 3]), shape=(3, 2)),
        array,
    ):
        rows, _ = checked_rows(SerialComm(), "xz", (each, sparse.csr_array(array)))
        assert rows.starts.tolist() == [0, 1, 2, 2] and rows.columns.tolist() == [1, 0]
        assert rows.values.tolist() == [3.0, 1.0] and rows.shape == (3, 2)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (
            sparse.csr_array([[0.0, 1.0], [0.0, np.nan]]),
            "row 1 of the sample x, counted from 0, holds NaN: remove or repair that row",
        ),
        (
            sparse.csr_array([[0.0, 1.0], [-np.inf, np.nan]]),
            "row 1 of the sample x, counted from 0, holds an infinite value",
        ),
        (
            sparse.csr_array([[0, 1], [0, 2**53 + 1]]),
            "row 1 of the sample x, counted from 0, holds an integer that no double equals",
        ),
        (sparse.csr_array([[1j]]), "the sample x has the type complex128: pass real numbers"),
        (sparse.coo_array(np.ones(3)), "the sample x has 1 dimension: pass a sparse matrix"),
    ],
)
def test_what_is_no_row_is_refused_as_for_arrays(comm: Any, matrix: Any, sentence: str) -> None:
    mine = matrix if comm.rank == comm.size - 1 else np.empty((0, 2))
    with pytest.raises(UserError, match=sentence):
        checked_rows(comm, "x", (mine,))
