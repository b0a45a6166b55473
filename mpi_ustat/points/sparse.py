"""Sparse matrices as the ranks give them, checked by all ranks together, and the moments of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.collectives import add_integers, on_any_rank
from mpi_ustat.numerics.limbs import Grid, exponents
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.rows import BadRowError, as_rows_of_points, rounded
from mpi_ustat.wording import count_of


def is_sparse(rows: Any) -> bool:
    """Tell whether something is a sparse matrix, SciPy's or our own."""
    return isinstance(rows, SparseRows) or hasattr(rows, "tocsr")


def checked_rows(comm: Any, names: Sequence[str], samples: Sequence[ArrayLike | SparseRows]) -> list[Any]:
    """Return this rank's finite points, each sample (n, d): all sparse if any is on any rank.  Collective.

    Raises
    ------
    UserError
        On every rank, if the points of any can't be used, as `checked_points` says.
    """
    sparse = on_any_rank(comm, any(map(is_sparse, samples)))
    return checked_points(comm, names, samples, as_sparse_rows if sparse else as_rows_of_points)  # type: ignore[arg-type]


def as_sparse_rows(sample: str, rows: Any) -> SparseRows:
    """Return one rank's points of a sample as sparse rows of finite doubles.

    Raises
    ------
    BadRowError
        For the first row that would be rounded, or holds a NaN or an infinite value.
    UserError
        If they are not numbers, or no matrix; the message names the sample.
    """
    if isinstance(rows, SparseRows):
        return rows
    if not is_sparse(rows):
        return SparseRows.of_dense(as_rows_of_points(sample, rows))
    if rows.dtype.kind not in "biuf":
        raise UserError(f"the sample {sample} has the type {rows.dtype}: pass real numbers")
    if rows.ndim != 2:
        raise UserError(
            f"the sample {sample} has {count_of(rows.ndim, 'dimension')}: pass a sparse matrix of shape (n, d)"
        )
    matrix = rows.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    with np.errstate(over="ignore"):  # infinite is what is refused
        values = matrix.data.astype(np.float64, copy=False)
    kind = "a number" if matrix.data.dtype.kind == "f" else "an integer"
    repair = "remove or repair that row"
    flaws = (
        (rounded(matrix.data), f"{kind} that no double equals", "rescale the points"),
        (np.isnan(values), "NaN", repair),
        (np.isinf(values), "an infinite value", repair),
    )
    found = [(int(np.argmax(bad)), what, remedy) for bad, what, remedy in flaws if bad.any()]
    if found:
        place, what, remedy = min(found)
        raise BadRowError(int(np.searchsorted(matrix.indptr, place, side="right")) - 1, sample, what, remedy)
    return SparseRows(matrix.indptr.astype(np.int64), matrix.indices, values, matrix.shape[1])


def column_moments(comm: Any, samples: Sequence[SparseRows]) -> tuple[Floats, Floats]:
    """Return the means of the columns of all samples together, and their standard deviations (divisor n).  Collective.

    From exact sums, and so the bits that `standardisation` finds of the same rows as arrays.
    """
    d = samples[0].n_columns
    columns, values = (np.concatenate([getattr(rows, name) for rows in samples]) for name in ("columns", "values"))
    n = sum(comm.allgather(sum(map(len, samples))))
    largest = np.zeros(d)
    np.maximum.at(largest, columns, np.abs(values))
    exponent = np.frexp(np.max(comm.allgather(largest), axis=0))[1]
    scaled = np.ldexp(values, -exponent[columns])
    mean = np.array([float(each / n) for each in _column_sums(comm, columns, scaled, d)])
    zeros = n - add_integers(comm, np.bincount(columns, minlength=d))
    squares = _column_sums(comm, columns, (scaled - mean[columns]) ** 2, d)
    of_zeros = ((0.0 - mean) ** 2).tolist()
    terms = zip(squares, zeros.tolist(), of_zeros, strict=True)
    variance = np.array([float((total + count * Fraction(square)) / n) for total, count, square in terms])
    return np.ldexp(mean, exponent), np.ldexp(np.sqrt(variance), exponent)


def _column_sums(comm: Any, columns: Ints, values: Floats, n_columns: int) -> list[Fraction]:
    """Return the exact sum of what all ranks have in each column.  Collective."""
    everyone = comm.allgather((exponents(values), len(values)))
    grid = Grid.of([known for known, _ in everyone], sum(n for _, n in everyone))
    order = np.argsort(columns, kind="stable")
    sums = np.zeros((grid.n_limbs, n_columns), dtype=np.int64)
    if len(order):
        ordered = columns[order]
        runs = np.flatnonzero(starts_of_runs(ordered))
        sums[:, ordered[runs]] = np.add.reduceat(grid.limbs(values)[:, order], runs, axis=1)
    total = add_integers(comm, sums)
    found = [Fraction(0)] * n_columns
    for j in np.flatnonzero(total.any(axis=0)).tolist():
        found[j] = grid.fraction(total[:, j])
    return found
