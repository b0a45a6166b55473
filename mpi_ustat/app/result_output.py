"""Where a result comes from: when its command began, and on what."""

from __future__ import annotations

import argparse
import time
from typing import Any

from mpi_ustat.mpi.runtime import library_version
from mpi_ustat.storage.results import provenance


class Origin:
    """The beginning of a command, to be told in its result file.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    arguments : argparse.Namespace
        With the command line as `invocation`.
    """

    def __init__(self, comm: Any, arguments: argparse.Namespace) -> None:
        self._comm, self._invocation = comm, arguments.invocation
        self._started, self._clock = time.time(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._clock

    def attributes(self, *, n_workers: int | None = None, seed: int | None = None) -> dict[str, str | int | float]:
        """Return the attributes of the result file, up to now."""
        return provenance(
            self._invocation,
            started=self._started,
            wall_seconds=self.seconds,
            n_ranks=self._comm.size,
            n_workers=n_workers,
            seed=seed,
            mpi_library=library_version(self._comm),
        )
