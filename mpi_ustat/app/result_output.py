"""What commands give: result files that say where they come from, and one JSON object or a table."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from mpi_ustat.api.tables import names_of
from mpi_ustat.estimation.printed import Rows, as_text
from mpi_ustat.estimation.tidy import tidy
from mpi_ustat.mpi.launch import library_version
from mpi_ustat.mpi.runtime import together
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import ResultFile, save
from mpi_ustat.storage.table_files import SUFFIXES, suffix_of, write_table


def add_output_arguments(parser: argparse.ArgumentParser, what: str, *, step: str = "", tables: bool = False) -> None:
    """Add the options of output; with a `step`, which is an iteration or a round, those of checkpoints too.

    With `tables` the output may be a table instead of HDF5.
    """
    group = parser.add_argument_group("output")
    others = "; a table to F.csv or F.parquet, what --json prints to F.json" if tables else ""
    group.add_argument("--output", metavar="F.h5", help=f"write {what}{others}")
    parser.set_defaults(tables=tables)
    group.add_argument("--overwrite", action="store_true", help="replace an existing file")
    if step:
        every = f"{step}s between checkpoints"
        group.add_argument(
            "--checkpoint", metavar="F", help="write checkpoints there, on SIGUSR1, SIGTERM and Ctrl-C too"
        )
        group.add_argument("--checkpoint-every", type=int, metavar="K", help=every)
        group.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    if step:
        group.add_argument("--quiet", action="store_true", help="no progress and no table")


def print_result(arguments: argparse.Namespace, summary: Mapping[str, Any], rows: Rows, quiet: str = "") -> None:
    """Print the summary, or the rows of a table and where the result is, or if asked to be quiet, just that."""
    if arguments.json:
        text = json.dumps(summary, allow_nan=False)
    elif getattr(arguments, "quiet", False):
        text = quiet
    else:
        text = as_text(rows if arguments.output is None else [*rows, ("written to", arguments.output)])
    if text:
        print(text, flush=True)


class Origin:
    """The beginning of a command, to be told in its result file.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    arguments : argparse.Namespace
        With the command line as `invocation`.
    """

    def __init__(self, comm: Any, arguments: argparse.Namespace) -> None:
        self._comm, self._arguments = comm, arguments
        self._started, self._clock = time.time(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._clock

    def attributes(self, **numbers: Any) -> dict[str, str | int | float]:
        """Return the attributes of the result file, up to now, with `n_workers` and `seed` if there are any."""
        return provenance(
            self._arguments.invocation,
            started=self._started,
            wall_seconds=self.seconds,
            mpi_library=library_version(self._comm),
            numbers={"n_ranks": self._comm.size, **numbers},
        )

    def save(
        self, config: Any, content: Callable[[], ResultFile], summary: Callable[[], Mapping[str, Any]] | None = None
    ) -> None:
        """Write the result of a run with a config, if it is wanted.  Collective; rank 0 calls what makes it.

        Parameters
        ----------
        config : EstimateConfig or LearnConfig
        content : callable
            Returns what an HDF5 file holds.
        summary : callable, optional
            Returns what JSON holds, of which tables are made, where the output may be one.
        """
        with together(self._comm, "writing the result"):
            output, overwrite = self._arguments.output, self._arguments.overwrite
            if self._comm.rank == 0 and output is not None:
                result, origin = content(), self.attributes(n_workers=config.n_workers, seed=config.seed)
                if summary is not None and suffix_of(output) in SUFFIXES:
                    found = summary()
                    told = {"kind": result.kind, **found, "config": result.config, "provenance": origin}
                    names = names_of(result) if "estimate" in result.datasets else ()
                    write_table(output, tidy(found, names), told, overwrite=overwrite)
                    return
                result.provenance.update(origin)
                save(output, result, overwrite=overwrite)
