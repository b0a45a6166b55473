"""The command line: parse, run one command on COMM_WORLD, fail together.

Exit codes: 0 done, 2 a mistake of the user's, 3 a descent that diverged, 75 stopped with a checkpoint to go on from,
130 interrupted, 1 anything else.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

from mpi_ustat.app import (
    batch_command,
    console_streams,
    doctor_command,
    estimate_command,
    info_command,
    learn_command,
    plan_command,
    plot_command,
    predict_command,
    reproduce_command,
)
from mpi_ustat.app.checkpointing import INTERRUPTED, keeps_checkpoints
from mpi_ustat.app.hang_detection import watched
from mpi_ustat.app.options_as_flags import in_flags
from mpi_ustat.app.progress import told, told_in_full
from mpi_ustat.app.sample_options import whole_number
from mpi_ustat.app.signals import handled, hold
from mpi_ustat.app.versions import ShowVersion
from mpi_ustat.errors import DivergedError, UserError, brief, did_you_mean
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


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are ordinary user errors, so that one rank prints them for all."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # No option, but a value: also a list of numbers that begins with a negative one.
        self._negative_number_matcher = re.compile(r"-[\d.][\d.,eE+-]*$")
        self.register("type", int, whole_number)

        self.before: Callable[[Sequence[str]], None] = lambda words: None
        """Is called with the words before they are parsed, some of which may bring options with them."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return what the words mean, and those that mean nothing."""
        self.before(args or ())
        meant, rest = super().parse_known_args(args, namespace)
        if rest and self._subparsers is None:
            self.error(f"'{rest[0]}' stands where nothing takes it: give the files next to each other, options apart")
        return meant, rest

    def _parse_optional(self, arg_string: str) -> Any:
        found = super()._parse_optional(arg_string)
        # Of all of them argparse would complain at the end, after what is missing because of the wrong spelling.
        first = found[0] if isinstance(found, list) else found  # from Python 3.12 on all that it may be
        if first is not None and first[0] is None and self._subparsers is None:
            self._refuse_option(arg_string)
        return found

    def _refuse_option(self, word: str) -> NoReturn:
        option = word.partition("=")[0]
        self.error(f"there is no option {option}{did_you_mean(option, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets `run`, a function of (comm, arguments)."""
    parser = _Parser(
        prog="mpi-ustat",
        description="U-statistics over data spread across MPI processes. Under mpiexec every process is a worker.",
    )
    parser.add_argument("--version", action=ShowVersion, help="print the version (with -v those of all libraries)")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --version: of all libraries")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for ranked in (
        estimate_command,
        learn_command,
        predict_command,
        plan_command,
        reproduce_command,
        doctor_command,
    ):
        ranked.add_parser(commands)
    for command in commands.choices.values():
        command.add_argument(
            "--timeout",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="end the job when a rank makes no progress for so long (default 0: never)",
        )
        command.add_argument(
            "--verbose", action="store_true", help="tell each phase as it begins, and how far it is, on stderr"
        )
    for serial in (batch_command, info_command, plot_command):
        serial.add_parser(commands)
    parser.before = functools.partial(_refuse_unknown, parser)
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by their names."""
    found: dict[str, argparse.ArgumentParser] = next(
        action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return found


def _refuse_unknown(parser: _Parser, words: Sequence[str]) -> None:
    """Refuse an option before the command that is none: nothing else could be found missing without it."""
    known = parser._option_string_actions
    for word in itertools.takewhile(lambda word: word.startswith("-"), words):
        if not any(option.startswith(word) for option in known):
            parser._refuse_option(word)


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
    return _command(argv) not in (None, "batch", "info", "plot") and serial.isdisjoint(argv)


def _parse(argv: Sequence[str], speaks: bool) -> argparse.Namespace | None:
    """Return what the words mean; None when all they wanted has been printed (--help, --version)."""
    invocation = argparse.Namespace(invocation=["mpi-ustat", *argv])
    with nullcontext(sys.stdout) if speaks else open(os.devnull, "w") as stream:  # not every rank prints
        original, sys.stdout = sys.stdout, stream
        try:
            parser = build_parser()
            if _command(argv) == "batch":
                batch_command.check_dashes(argv, commands_of(parser))
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
