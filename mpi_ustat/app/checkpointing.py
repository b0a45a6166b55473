"""What commands with --checkpoint share: stopping on a signal, writing and reading."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from numpy.typing import NDArray

from mpi_ustat.app.exit_codes import STOPPED
from mpi_ustat.app.output_files import check_names, keep_places
from mpi_ustat.app.sample_options import given_files
from mpi_ustat.errors import UserError
from mpi_ustat.mpi.interrupts import interrupt_of_all, is_of_all
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.storage.checkpoint import Claim, read_checkpoint, read_records
from mpi_ustat.storage.files import check_target, locked
from mpi_ustat.storage.results import as_written, load


class Checkpoints:
    """The checkpoints of a run, if it keeps any; a step of it is an iteration or a round.

    Attributes
    ----------
    resuming : bool
        Whether there is one to go on from.
    seed : int
        The given seed, the one of the run that is resumed, or a fresh one.
    """

    def __init__(self, comm: Any, arguments: argparse.Namespace, step: str) -> None:
        self.path: str | None = arguments.checkpoint
        self.every: int | None = arguments.checkpoint_every
        self.resuming, self.seed = False, 0
        self._comm, self._step = comm, step
        self._claim: Claim | None = None
        self._identity: Mapping[str, Any] = {}

    @classmethod
    @contextmanager
    def begun(cls, comm: Any, arguments: argparse.Namespace, step: str) -> Iterator[Checkpoints]:
        """Yield them; impossible files are refused.  Collective.

        As long as the context lasts, no other run writes them. The outputs' paths become absolute.
        """
        with ExitStack() as held:
            with together(comm, "checking the output files"):
                resuming, seed = check_files(comm.rank, arguments, step), 0
                keep_places(arguments)
                found = cls(comm, arguments, step)
                if comm.rank == 0:
                    if found.path is not None:
                        held.enter_context(locked(found.path))
                        found._claim = Claim(found.path)
                    seed = choose_seed(arguments, resuming)
            found.resuming, found.seed = comm.bcast((resuming, seed))
            yield found

    def go_on(
        self, identity: Mapping[str, Any], last: int, restore: Callable[[list[dict[str, NDArray[Any]]]], object]
    ) -> None:
        """Know what they belong to, and go on from the one that there is, if there is one.  Collective.

        Parameters
        ----------
        identity : mapping
            All that the steps depend on.
        last : int
            The last step.
        restore : callable
            Takes the arrays of the checkpoint, and of its records, which go on from each other; refuses what can't be
            meant. The one that is called as the step tells how far it is.

        Raises
        ------
        UserError
            On every rank, if it can't be read, belongs to something else, or is past the last step.
        """
        self._identity = identity
        if not self.resuming or self.path is None:
            return
        parts: list[dict[str, NDArray[Any]]] = []
        with together(self._comm, f"reading the checkpoint {self.path}"):
            parts = [read_checkpoint(self.path, identity, self._step), *read_records(self.path)]
            reached, step = int(parts[-1][self._step]), self._step
            if reached > last:
                raise UserError(
                    f"{self.path} is of {step} {reached}, past the last one: ask for at least {reached} {step}s"
                )
        with together(self._comm, f"going on from {self.path}"), as_written(self.path):
            restore(parts)

    def write(self, snapshot: Callable[[int], Mapping[str, NDArray[Any]]], n_steps: int, *, whole: bool = True) -> None:
        """Add what is new to the checkpoint, or replace it.  Collective.

        Parameters
        ----------
        snapshot : callable
            Returns, on rank 0, what a run needs to go on, of its steps only those from a given one on.  Collective.
        n_steps : int
            How many steps there are by now.
        whole : bool
            Whether the file is to be replaced, as in the end, when it becomes HDF5 and nothing else.
        """
        since = self._comm.bcast(0 if whole or self._claim is None else self._claim.steps())
        arrays = snapshot(since)
        with together(self._comm, f"writing the checkpoint {self.path}"):
            if self._claim is not None:
                self._claim.keep(self._identity, arrays, since, n_steps)

    @contextmanager
    def kept(self, save: Callable[[], int]) -> Iterator[None]:
        """Write one when all ranks are interrupted together; `save` does, and tells how far it is.  Collective."""
        try:
            yield
        except KeyboardInterrupt as error:
            if self.path is None or not is_of_all(error):
                raise
            raise interrupt_of_all(self._how_far(save())) from error

    def tell_stopped(self, reached: int) -> int:
        """Say on rank 0 that there is one to go on from, and return the exit code that says so."""
        return tell_stopped(self._comm, self._how_far(reached))

    def _how_far(self, reached: int) -> str:
        return f" at {self._step} {reached}, checkpoint in {self.path}: go on with --resume"


def check_files(rank: int, arguments: argparse.Namespace, step: str) -> bool:
    """Refuse impossible files; tell, on rank 0, whether there is a checkpoint to go on from."""
    if arguments.checkpoint is None and (arguments.resume or arguments.checkpoint_every is not None):
        raise UserError("--resume and --checkpoint-every need the checkpoint's name: add --checkpoint F")
    if arguments.checkpoint_every is not None and arguments.checkpoint_every < 1:
        raise UserError(f"checkpoints every {arguments.checkpoint_every} {step}s make no sense: give at least 1")
    if rank != 0:
        return False
    outputs = {"output": arguments.output, "checkpoint": arguments.checkpoint}
    check_names(outputs, given_files(arguments), tables=arguments.tables)
    if arguments.output is not None:
        check_target(arguments.output, arguments.overwrite)
    if arguments.checkpoint is None:
        return False
    check_target(arguments.checkpoint, True)
    exists = os.path.exists(arguments.checkpoint)
    if exists and not (arguments.resume or arguments.overwrite):
        raise UserError(f"{arguments.checkpoint} exists: go on from it with --resume, or replace it with --overwrite")
    if arguments.resume and not exists and not arguments.quiet:
        print(f"mpi-ustat: there is no {arguments.checkpoint} yet: starting afresh", file=sys.stderr, flush=True)
    return exists and bool(arguments.resume)


def choose_seed(arguments: argparse.Namespace, resuming: bool) -> int:
    """Return the given seed, the one of the run that is resumed, or a fresh one."""
    if arguments.seed is not None:
        return int(arguments.seed)
    if resuming:
        stored = load(arguments.checkpoint).config.get("seed")
        if isinstance(stored, int):
            return stored
    return fresh_seed()


def keeps_checkpoints(arguments: argparse.Namespace) -> bool:
    """Tell whether a command can be stopped with what it has: `reproduce` unless it only prints, others if asked to."""
    if arguments.command == "reproduce":
        return not arguments.cells or arguments.folder is not None
    return getattr(arguments, "checkpoint", None) is not None


def tell_stopped(comm: Any, how_far: str) -> int:
    """Say on rank 0 how far the run has come and how it goes on; return the exit code that says so."""
    if comm.rank == 0:
        print(f"mpi-ustat: stopped{how_far}", file=sys.stderr, flush=True)
    return STOPPED
