"""Scores of all ranks that meet on every one of them, in one message a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import gather_known, gather_rows
from mpi_ustat.scores.side import Side


class Meeting:
    """Where in what all ranks send the scores of each class are.  Construction is collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    sides : sequence of Side
        How many points this rank has of each class, and their weights and groups, which stay the same.

    Attributes
    ----------
    mine : list of slice
        Where this rank's points are among those of each class.
    n_points : int
        Of all classes and ranks.
    """

    def __init__(self, comm: Any, sides: Sequence[Side]) -> None:
        self._comm = comm
        sizes = np.array(comm.allgather([len(side.scores) for side in sides]), dtype=np.int64)
        before = sizes[: comm.rank].sum(axis=0)
        self.mine = [
            slice(first, first + n) for first, n in zip(before.tolist(), sizes[comm.rank].tolist(), strict=True)
        ]
        self.n_points = int(sizes.sum())
        self._counts = sizes.sum(axis=1)
        starts = (np.cumsum(sizes.ravel()) - sizes.ravel()).reshape(sizes.shape)
        self._places = [
            np.concatenate([np.arange(first, first + n) for first, n in zip(starts[:, k], sizes[:, k], strict=True)])
            for k in range(len(sides))
        ]
        self._said = [
            Side(
                np.empty(0),
                None if side.weights is None else gather_rows(comm, side.weights),
                None if side.groups is None else gather_rows(comm, side.groups),
            )
            for side in sides
        ]

    def all_of(self, sides: Sequence[Side]) -> tuple[list[Side], int]:
        """Return the classes of all ranks, and the bytes that this one has sent.  Collective."""
        own = np.concatenate([side.scores for side in sides])
        received = gather_known(self._comm, own, self._counts)
        wholes = [replace(said, scores=received[at]) for said, at in zip(self._said, self._places, strict=True)]
        return wholes, (self._comm.size - 1) * own.nbytes
