"""Rows of which only the numbers that are not 0 are kept, and products with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Flags, Floats, Ints


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of doubles in compressed form (CSR); they are taken and cut like those of an array, and never made one.

    Attributes
    ----------
    starts : ndarray of int64, shape (n + 1,)
        Where in `columns` and `values` each row begins, and where the last one ends.
    columns : ndarray of int32 or int64
        The columns of what is kept, ascending within a row.
    values : ndarray of float64
    n_columns : int
        d.
    """

    starts: Ints
    columns: NDArray[np.signedinteger[Any]]
    values: Floats
    n_columns: int

    dtype = np.dtype(np.float64)
    ndim = 2

    @classmethod
    def of_lengths(cls, lengths: Ints, columns: NDArray[Any], values: Floats, n_columns: int) -> Self:
        """Return rows that have so many numbers each."""
        starts = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])
        return cls(starts, columns.astype(np.int32 if n_columns < 2**31 else np.int64, copy=False), values, n_columns)

    @classmethod
    def of_dense(cls, rows: Floats) -> Self:
        """Return the rows of an array, shape (n, d)."""
        places, columns = np.nonzero(rows)
        return cls.of_lengths(np.bincount(places, minlength=len(rows)), columns, rows[places, columns], rows.shape[1])

    @classmethod
    def none(cls, n_columns: int) -> Self:
        """Return no rows."""
        return cls.of_lengths(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0), n_columns)

    @classmethod
    def joined(cls, parts: Sequence[SparseRows]) -> Self:
        """Return the rows of several, at least one, of as many columns."""
        columns, values = (np.concatenate(each) for each in zip(*((p.columns, p.values) for p in parts), strict=True))
        return cls.of_lengths(np.concatenate([part.lengths for part in parts]), columns, values, parts[0].n_columns)

    @property
    def lengths(self) -> Ints:
        """How many numbers each row has."""
        return np.diff(self.starts)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self), self.n_columns

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return self.starts.nbytes + self.columns.nbytes + self.values.nbytes

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("sparse rows are not made an array")

    def __getitem__(self, which: slice | Flags) -> SparseRows:
        """Return a run of rows, which shares their numbers, or copies of those that are flagged."""
        if not isinstance(which, slice):
            return self.take(np.flatnonzero(which))
        first, last, step = which.indices(len(self))
        if step != 1:
            raise ValueError("sparse rows are cut into runs")
        last = max(first, last)
        if last - first == len(self):
            return self
        begin, end = int(self.starts[first]), int(self.starts[last])
        starts = self.starts[first : last + 1] - begin
        return SparseRows(starts, self.columns[begin:end], self.values[begin:end], self.n_columns)

    def take(self, places: Ints, axis: int = 0) -> SparseRows:
        """Return copies of the rows at these places."""
        assert axis == 0
        lengths = self.lengths.take(places)
        ends = np.cumsum(lengths)
        kept = np.repeat(self.starts.take(places) - (ends - lengths), lengths)
        kept += np.arange(len(kept))
        return SparseRows.of_lengths(lengths, self.columns.take(kept), self.values.take(kept), self.n_columns)

    def divided(self, by: Floats) -> SparseRows:
        """Return the rows with each column divided by its number, (d,)."""
        return SparseRows(self.starts, self.columns, self.values / by[self.columns], self.n_columns)

    def times(self, vector: Floats) -> Floats:
        """Return the product of each row with a vector, (n,): SciPy adds a row's terms one by one, by themselves."""
        found: Floats = self._matrix @ vector
        return found

    def summed(self, coefficients: Floats) -> Floats:
        """Return Σ_i c_i row_i, (d,), added row after row."""
        found: Floats = self._transposed @ coefficients
        return found

    @cached_property
    def _matrix(self) -> Any:
        from scipy.sparse import csr_array

        return csr_array((self.values, self.columns, self.starts), shape=self.shape)

    @cached_property
    def _transposed(self) -> Any:
        return self._matrix.T
