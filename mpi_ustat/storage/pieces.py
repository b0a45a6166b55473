"""Data that are read a piece at a time: consecutive rows, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpi_ustat.storage.columns import Selection, choose_label
from mpi_ustat.storage.data import DataSource, choose_columns, located
from mpi_ustat.storage.libsvm import LibsvmTable
from mpi_ustat.storage.packed import from_beginning
from mpi_ustat.storage.several import SeveralTables, sparse_table
from mpi_ustat.storage.table import Column, LabelledRows, Table

_BYTES = 1 << 25
_MOST_ROWS = 1 << 18
_LEAST_ROWS = 16
_OF_SPARSE_ROWS = 512  # numbers that room is left for in each, of several bytes for one

_FROM_THE_BEGINNING = (".npz", ".mat")
"""How names of further files end of which the beginning may have to be read again for every piece."""
_TIMES_LONGER = 4


@dataclass(frozen=True)
class Pieces:
    """The rows of some data as consecutive pieces, the same for every number of ranks."""

    table: Table
    selection: Selection
    label: Column | None
    origin: dict[str, Any]
    """Where the data come from, for results: no absolute paths."""
    rows_of_each: int

    def __len__(self) -> int:
        return -(-self.selection.n_rows // self.rows_of_each)

    def read(self, piece: int) -> tuple[int, LabelledRows]:
        """Return the number of the first row of a piece, and its rows."""
        first = piece * self.rows_of_each
        last = min(first + self.rows_of_each, self.selection.n_rows)
        read = self.table.read if self.sparse is None else self.sparse.read_sparse
        return first, read(self.selection.columns, self.label, first, last)

    @property
    def sparse(self) -> LibsvmTable | SeveralTables | None:
        """The table, if its rows are read sparse."""
        return sparse_table(self.table)


def pieces_of(comm: Any, source: DataSource, *, labelled: bool) -> Pieces:
    """Describe the data of a source in one file, or in several one after the other.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    source : DataSource
    labelled : bool
        Whether the label is read too, if the source doesn't name it the one that the format has. Without, the label
        that data with a name are known to have is.
    """
    assert source.path is not None
    table, origin, source = located(comm, source.path, source)
    label = choose_label(table, source.label) if labelled or source.label is not None else None
    selection = choose_columns(table, source, label)
    n_numbers = len(selection.columns) if sparse_table(table) is None else min(len(selection.columns), _OF_SPARSE_ROWS)
    n_rows = max(_LEAST_ROWS, min(_MOST_ROWS, _BYTES // (8 * n_numbers)))
    if any(
        name.lower().endswith(_FROM_THE_BEGINNING) or from_beginning(name, source.encoding) for name in origin["files"]
    ):
        n_rows *= _TIMES_LONGER
    return Pieces(table, selection, label, origin, n_rows)
