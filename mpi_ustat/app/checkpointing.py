"""What commands with --checkpoint share: their options, stopping on a signal, writing and reading."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from numpy.typing import NDArray

from mpi_ustat.app.output_files import check_names, keep_places
from mpi_ustat.app.sample_options import given_files
from mpi_ustat.errors import UserError
from mpi_ustat.mpi.interrupts import interrupt_of_all, is_of_all
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.storage.checkpoint import Claim, read_checkpoint, read_records
from mpi_ustat.storage.files import check_target, locked
from mpi_ustat.storage.results import as_written, load

INTERRUPTED = 130
"""Exit code of an interrupted run: 128 and the number of SIGINT, as shells have it."""

STOPPED = 75
"""Exit code of a run that wrote a checkpoint and is to be resumed (sysexits' EX_TEMPFAIL)."""


def add_output_arguments(parser: argparse.ArgumentParser, what: str, step: str) -> None:
    """Add the options of output, some of which the functions below read; a `step` is an iteration or a round."""
    group = parser.add_argument_group("output")
    group.add_argument("--output", metavar="F.h5", help=f"write {what} there")
    group.add_argument("--overwrite", action="store_true", help="replace an existing file")
    group.add_argument("--checkpoint", metavar="F", help="write checkpoints there, on SIGUSR1, SIGTERM and Ctrl-C too")
    group.add_argument("--checkpoint-every", type=int, metavar="K", help=f"{step}s between checkpoints")
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    group.add_argument("--quiet", action="store_true", help="no progress and no table")


@contextmanager
def begun(comm: Any, arguments: argparse.Namespace, step: str) -> Iterator[tuple[bool, int]]:
    """Yield whether there is a checkpoint to go on from, and the seed; impossible files are refused.  Collective.

    As long as the context lasts, no other run writes the checkpoint. The outputs' paths become absolute, and
    `write` finds its claim of it in the arguments.
    """
    found = False, 0
    with ExitStack() as held:
        with together(comm, "checking the output files"):
            resuming = check_files(comm.rank, arguments, step)
            keep_places(arguments)
            if comm.rank == 0:
                if arguments.checkpoint is not None:
                    held.enter_context(locked(arguments.checkpoint))
                    arguments.claim = Claim(arguments.checkpoint)
                found = resuming, choose_seed(arguments, resuming)
        yield comm.bcast(found)


def check_files(rank: int, arguments: argparse.Namespace, step: str) -> bool:
    """Refuse impossible files; tell, on rank 0, whether there is a checkpoint to go on from."""
    if arguments.checkpoint is None and (arguments.resume or arguments.checkpoint_every is not None):
        raise UserError("--resume and --checkpoint-every need the checkpoint's name: add --checkpoint F")
    if arguments.checkpoint_every is not None and arguments.checkpoint_every < 1:
        raise UserError(f"checkpoints every {arguments.checkpoint_every} {step}s make no sense: give at least 1")
    if rank != 0:
        return False
    check_names({"output": arguments.output, "checkpoint": arguments.checkpoint}, given_files(arguments))
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


@contextmanager
def kept(step: str, path: str | None, save: Callable[[], int]) -> Iterator[None]:
    """Write a checkpoint when all ranks are interrupted together; `save` does, and tells how far it is.  Collective."""
    try:
        yield
    except KeyboardInterrupt as error:
        if path is None or not is_of_all(error):
            raise
        reached = save()
        raise interrupt_of_all(_how_far(step, reached, path)) from error


def write(
    comm: Any,
    arguments: argparse.Namespace,
    identity: Mapping[str, Any],
    snapshot: Callable[[int], Mapping[str, NDArray[Any]]],
    n_steps: int,
    *,
    whole: bool = True,
) -> None:
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
    since = comm.bcast(0 if whole or comm.rank != 0 else arguments.claim.steps())
    arrays = snapshot(since)
    with together(comm, f"writing the checkpoint {arguments.checkpoint}"):
        if comm.rank == 0:
            arguments.claim.keep(identity, arrays, since, n_steps)


@contextmanager
def restoring(comm: Any, path: str) -> Iterator[None]:
    """Go on from the arrays of a checkpoint, or refuse it together: what is in them may be anything.  Collective."""
    with together(comm, f"going on from {path}"), as_written(path):
        yield


def read(comm: Any, path: str, identity: Mapping[str, Any], step: str, last: int) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of a checkpoint of `identity` and of its records, which go on from each other.  Collective.

    The one called `step` tells how far it is.

    Raises
    ------
    UserError
        On every rank, if it can't be read, belongs to something else, or is past the last step.
    """
    parts: list[dict[str, NDArray[Any]]] = []
    with together(comm, f"reading the checkpoint {path}"):
        parts = [read_checkpoint(path, identity, step), *read_records(path)]
        reached = int(parts[-1][step])
        if reached > last:
            raise UserError(f"{path} is of {step} {reached}, past the last one: ask for at least {reached} {step}s")
    return parts


def tell_stopped(comm: Any, how_far: str) -> int:
    """Say on rank 0 how far the run has come and how it goes on; return the exit code that says so."""
    if comm.rank == 0:
        print(f"mpi-ustat: stopped{how_far}", file=sys.stderr, flush=True)
    return STOPPED


def tell_stopped_at(comm: Any, step: str, reached: int, path: str) -> int:
    """Say on rank 0 that there is a checkpoint to go on from, and return the exit code that says so."""
    return tell_stopped(comm, _how_far(step, reached, path))


def _how_far(step: str, reached: int, path: str) -> str:
    return f" at {step} {reached}, checkpoint in {path}: go on with --resume"
