"""The command line: parse, run one command on COMM_WORLD, fail together.

Exit codes: 0 done, 2 a mistake of the user's, 3 a descent that diverged, 75 stopped with a checkpoint to go on from,
130 interrupted, 1 anything else.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, NoReturn

from mpi_ustat.app import console_streams
from mpi_ustat.app.exit_codes import INTERRUPTED
from mpi_ustat.app.hang_detection import watched
from mpi_ustat.app.parser import Parser
from mpi_ustat.app.progress import told, told_in_full
from mpi_ustat.app.signals import handled, hold
from mpi_ustat.app.versions import ShowVersion
from mpi_ustat.errors import DivergedError, UserError, brief
from mpi_ustat.mpi.interrupts import is_of_all
from mpi_ustat.mpi.launch import (
    cores_of_ranks_here,
    end_job,
    forget_shared_memory,
    launched_size,
    leave_mpi,
    leave_together,
    ranks_on_this_host,
    several_wheels,
    world,
)
from mpi_ustat.mpi.runtime import SerialComm

_PATIENCE_WITH_THREADS = 2.0
"""Seconds that threads which are left have to end: those of pools do so by themselves."""


_COMMANDS = {
    "estimate": "estimate a U-statistic",
    "learn": "learn a scorer by pairwise SGD",
    "predict": "score rows by a learnt model",
    "plan": "predict standard errors and seconds of ways to estimate, and choose one",
    "reproduce": "run the experiments behind the paper's figures, or that on the coverage of confidence intervals",
    "doctor": "look at MPI, ranks, cores, threads, network and files, and say what is wrong",
    "batch": "write a job script for SLURM or PBS",
    "info": "print what is in a result file",
    "plot": "draw a result file",
}
"""The commands, each a module, which is loaded when it is needed; what they say of themselves there."""

_SERIAL = ("batch", "info", "plot")
"""Commands that run in one process."""


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets `run`, a function of (comm, arguments).

    Parameters
    ----------
    wanted : str, optional
        The only command whose options are needed; empty: none is. The modules of the others are not loaded.
    """
    parser = Parser(
        prog="mpi-ustat",
        description="U-statistics of data that are spread over MPI processes, whose number changes no result.",
    )
    parser.add_argument("--version", action=ShowVersion, help="print the version (with -v those of all libraries)")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --version: of all libraries")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, summary in _COMMANDS.items():
        if wanted not in (None, name, "batch"):  # which reads the commands of jobs
            commands.add_parser(name, help=summary)
            continue
        import_module(f"mpi_ustat.app.{name}_command").add_parser(commands)
        if name not in _SERIAL:
            command = commands.choices[name]
            command.add_argument(
                "--timeout",
                type=float,
                default=0.0,
                metavar="SECONDS",
                help="end the job when a rank makes no progress for this long (default 0: never)",
            )
            command.add_argument(
                "--verbose", action="store_true", help="tell each phase as it begins, and how far it is, on stderr"
            )
    parser.before = parser.refuse_unknown_first
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by their names."""
    found: dict[str, argparse.ArgumentParser] = next(
        action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on all ranks and return the exit code, the same on all of them.

    Nothing leaves a rank alone: a user's mistake is known to every rank, which all return 2 while rank 0 prints the one
    sentence; anything unforeseen on any rank prints its traceback and takes the whole job down with it, because the
    other ranks would wait for that rank for ever.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    job = _Job()
    try:
        return _run(argv, job)
    except UserError as error:
        from mpi_ustat.app.options_as_flags import in_flags

        return job.leave(2, in_flags(str(error)))
    except DivergedError as error:
        return job.leave(3, str(error))
    except KeyboardInterrupt as error:
        if job.comm.size == 1 or is_of_all(error):
            return job.leave(INTERRUPTED, "interrupted" + "".join(map(str, error.args[1:])))
        _complain(f"rank {job.comm.rank} of {job.comm.size}: interrupted (KeyboardInterrupt)")
        end_job(job.comm, INTERRUPTED)
        return INTERRUPTED
    except BaseException as error:
        # SystemExit would end the process, maybe with success.
        if job.comm.size == 1 and not isinstance(error, SystemExit):
            raise
        rank = f"rank {job.comm.rank} of {job.comm.size}"
        print(f"{rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        if job.comm.size > 1:
            end_job(job.comm, 1)
        return 1


class _Job:
    """The ranks, and which of them speaks for all."""

    def __init__(self) -> None:
        self.comm: Any = SerialComm()
        self.speaks = launched_size()[1] == 0

    def start(self) -> None:
        """Start MPI."""
        self.comm = world()
        self.speaks = self.comm.rank == 0
        forget_shared_memory(self.comm)
        if self.speaks and (warning := several_wheels()):
            _complain(warning)

    def leave(self, code: int, sentence: str = "") -> int:
        """Say why, once for all ranks, and leave with them; a rank that is alone with it says so itself."""
        if self.speaks and sentence:
            _complain(sentence)
        alone = f"{sentence} (on rank {self.comm.rank} only)" if sentence and not self.speaks else ""
        return leave_together(self.comm, code, last_words=lambda: _complain(alone) if alone else None)


def _complain(sentence: str) -> None:
    print(f"mpi-ustat: {brief(sentence)}", file=sys.stderr, flush=True)


def _run(argv: Sequence[str], job: _Job) -> int:
    """Run the command and leave with all ranks; return its exit code."""
    obstacle = None
    if _needs_mpi(argv):
        try:
            job.start()
        except UserError as error:
            if _command(argv) != "doctor":
                raise
            obstacle = str(error)
    comm = job.comm
    arguments = _parse(argv, job.speaks)
    if arguments is None or not (job.speaks or _needs_mpi(argv)):
        return 0
    from mpi_ustat.app.checkpointing import keeps_checkpoints  # not for --help

    arguments.obstacle, arguments.speaks = obstacle, job.speaks
    with handled(stops=keeps_checkpoints(arguments), alone=comm.size == 1), _watched_job(comm, arguments):
        code: int = arguments.run(comm, arguments)
        sys.stdout.flush()
        # Not before all are done: one that hangs in its last step would be waited for where nobody watches.
        return leave_together(comm, code, patience=None)


@contextmanager
def _watched_job(comm: Any, arguments: argparse.Namespace) -> Iterator[None]:
    """Let a command on all ranks share the cores, tell how far it is, and end when it hangs."""
    if "timeout" not in arguments:  # it runs in one process
        yield
        return
    if arguments.verbose and getattr(arguments, "quiet", False):
        raise UserError("--verbose tells more, and --quiet nothing: leave one of them out")
    seldom = getattr(arguments, "json", False)
    how_far = (
        told_in_full(comm) if arguments.verbose else told(comm, quiet=getattr(arguments, "quiet", False), seldom=seldom)
    )
    with _limited_threads(comm, arguments), watched(comm, arguments.timeout), how_far:
        yield


def _command(argv: Sequence[str]) -> str | None:
    return next((word for word in argv if not word.startswith("-")), None)


def _needs_mpi(argv: Sequence[str]) -> bool:
    """Tell whether the words ask for a command that runs on all ranks: help and drawing work where there is no MPI."""
    serial = {"-h", "--help", "--version"}
    return _command(argv) not in (None, *_SERIAL) and serial.isdisjoint(argv)


def _parse(argv: Sequence[str], speaks: bool) -> argparse.Namespace | None:
    """Return the parsed words; None where they only asked for something to be printed (--help, --version)."""
    invocation = argparse.Namespace(invocation=["mpi-ustat", *argv])
    with nullcontext(sys.stdout) if speaks else open(os.devnull, "w") as stream:  # not every rank prints
        original, sys.stdout = sys.stdout, stream
        try:
            wanted = _command(argv) or ""
            parser = build_parser(wanted)
            if wanted == "batch":
                batch_command = import_module("mpi_ustat.app.batch_command")
                batch_command.check_dashes(argv, _COMMANDS)
                argv = batch_command.joined(argv)
            return parser.parse_args(argv, invocation)
        except SystemExit:
            stream.flush()
            return None
        finally:
            sys.stdout = original


def _limited_threads(comm: Any, arguments: argparse.Namespace) -> AbstractContextManager[Any]:
    """Share the host's cores among its ranks, or BLAS would start one thread a core in every one of them."""
    import threadpoolctl

    if arguments.command == "doctor":  # which tells what other programs have
        return nullcontext()
    return threadpoolctl.threadpool_limits(max(1, cores_of_ranks_here(comm) // ranks_on_this_host(comm)))


def console() -> NoReturn:
    """Run `main` as a program of its own, and leave the process with its exit code."""
    console_streams.prepare()
    try:
        code = main()
    except KeyboardInterrupt:  # the second one, while it says that it is interrupted
        code = INTERRUPTED
    hold()  # it is over
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        patience = threading.Timer(_PATIENCE_WITH_THREADS, _leave_threads, (code,))
        patience.daemon = True
        patience.start()
    sys.exit(code)


def _leave_threads(code: int) -> None:
    """Leave the process although threads run, for which Python would wait for ever."""
    _complain("a thread that a kernel has started still runs, and ends with the job: make it a daemon, or join it")
    sys.stdout.flush()
    leave_mpi()
    os._exit(code)
