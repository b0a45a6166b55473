"""Sparse rows on their way to their workers' homes."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Rows
from mpi_ustat.schemes.partition import Blocks, Ordered


class SparseExchange(Exchange):
    """An exchange of rows that are sparse, in their order only: no partition that deals or shuffles them is brought.

    Parameters
    ----------
    rows : SparseRows
        This rank's rows.
    """

    rows: Any

    def bring(self, partition: Blocks) -> None:
        """Move the rows to the blocks of consecutive ones that a partition consists of.  Collective."""
        if not isinstance(partition, Ordered) or partition.order is not None:
            raise NotImplementedError("sparse rows are moved in their order only")
        cuts = partition.bounds[self._hosts]
        self._partition, self._brought = partition, self.rows
        if np.array_equal(cuts, self._offsets):
            return
        here = slice(self.first_row, self.first_row + len(self.rows))
        own = np.clip(cuts, here.start, here.stop) - here.start
        rows = Trip(self._comm, None, np.diff(own))
        numbers = Trip(self._comm, None, np.diff(self.rows.starts[own]))
        columns, values = numbers.out(self.rows.columns), numbers.out(self.rows.values)
        self._brought = SparseRows.of_lengths(rows.out(self.rows.lengths), columns, values, self.rows.n_columns)
        self.bytes_sent += rows.bytes_sent + numbers.bytes_sent

    def put_in_order(self) -> Rows:
        """Return the rows of this rank's workers."""
        found: Any = self._brought
        return found

    @staticmethod
    def _kept(rows: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return rows if len(rows) else SparseRows.none(*shape)


def exchange_of(comm: Any, rows: Rows | SparseRows, n_workers: int) -> Exchange:
    """Return the exchange of rows of either kind.  Collective."""
    return (SparseExchange if isinstance(rows, SparseRows) else Exchange)(comm, rows, n_workers)  # type: ignore[arg-type]
