"""The command line: parse, run one command on COMM_WORLD, fail together.

Exit codes: 0 done, 2 a mistake of the user's, 3 a descent that diverged, 75 stopped with a checkpoint to go on from, 1
anything else.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import mpi_ustat
from mpi_ustat.app import estimate_command, learn_command, reproduce_command
from mpi_ustat.errors import DivergedError, UserError
from mpi_ustat.parallel.runtime import SerialComm, launched_size, leave_together, ranks_on_this_host, world


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are ordinary user errors, so that one rank prints them for all."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets `run`, a function of (comm, arguments)."""
    parser = _Parser(
        prog="mpi-ustat",
        description="U-statistics over data spread across MPI processes. Under mpiexec every process is a worker.",
    )
    parser.add_argument("--version", action="version", version=f"mpi-ustat {mpi_ustat.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    estimate_command.add_parser(commands)
    learn_command.add_parser(commands)
    reproduce_command.add_parser(commands)

    info = commands.add_parser("info", help="print what is in a result file")
    info.add_argument("file", metavar="F.h5")
    info.set_defaults(run=_info, serial=True)

    plot = commands.add_parser("plot", help="draw a result file")
    plot.add_argument("files", metavar="F.h5", nargs="+", help="one; trade-offs of several settings go together")
    plot.add_argument("--output", metavar="PICTURE", help="a .png, .pdf or .svg file (default: F.png)")
    plot.add_argument("--overwrite", action="store_true", help="replace an existing picture")
    plot.set_defaults(run=_plot, serial=True)
    return parser


def _info(comm: Any, arguments: argparse.Namespace) -> int:
    from mpi_ustat.app.info import describe
    from mpi_ustat.storage.results import load

    print(describe(load(arguments.file)))
    return 0


def _plot(comm: Any, arguments: argparse.Namespace) -> int:
    from mpi_ustat.app.figures import draw_estimate, save_figure
    from mpi_ustat.app.figures_learning import draw_learn, draw_tradeoff
    from mpi_ustat.app.figures_paper import PICTURES, draw
    from mpi_ustat.storage.results import load

    files, target = arguments.files, arguments.output
    if target is None:
        if len(files) > 1:
            raise UserError("a picture of several files cannot take the name of one: add --output PICTURE")
        target = f"{os.path.splitext(files[0])[0]}.png"
    results = [load(file) for file in files]
    pictures = {"estimate": draw_estimate, "learn": draw_learn, **dict.fromkeys(PICTURES, draw)}
    kinds = {result.kind for result in results}
    if kinds == {"tradeoff"}:
        figure = draw_tradeoff(results)
    elif len(results) > 1:
        found = ", ".join(f"'{kind}'" for kind in sorted(kinds))
        raise UserError(f"only files of kind 'tradeoff' are drawn together, these are of kind {found}: give one file")
    elif results[0].kind in pictures:
        figure = pictures[results[0].kind](results[0])
    else:
        raise UserError(
            f"a result of kind '{results[0].kind}' has no picture: give one of {', '.join(pictures)}, tradeoff"
        )
    save_figure(figure, target, overwrite=arguments.overwrite)
    print(target)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on all ranks and return the exit code, the same on all of them.

    Nothing leaves a rank alone: a user's mistake is known to every rank, which all return 2 while rank 0 prints the one
    sentence; anything unforeseen on any rank prints its traceback and takes the whole job down with it, because the
    other ranks would wait for that rank for ever.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    comm: Any = SerialComm()
    speaks = launched_size()[1] == 0
    try:
        if _needs_mpi(argv):
            comm = world()
            speaks = comm.rank == 0
            arguments = _parse(argv, speaks)
            with _limited_threads(comm):
                code: int = arguments.run(comm, arguments)
        else:
            arguments = _parse(argv, speaks)
            code = arguments.run(comm, arguments) if speaks else 0
    except UserError as error:
        if speaks:
            print(f"mpi-ustat: {error}", file=sys.stderr, flush=True)
        return leave_together(comm, 2)
    except DivergedError as error:
        if speaks:
            print(f"mpi-ustat: {error}", file=sys.stderr, flush=True)
        return leave_together(comm, 3)
    except SystemExit as leaving:  # --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    except BrokenPipeError:
        # The reader of our output has gone (head, less): that is no error of ours.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 0
    except BaseException:
        if comm.size == 1:
            raise
        print(f"rank {comm.rank} of {comm.size}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        comm.Abort(1)
        return 1
    return code


def _needs_mpi(argv: Sequence[str]) -> bool:
    """Tell whether the words ask for a command that runs on all ranks: help and drawing work where there is no MPI."""
    serial = {"-h", "--help", "--version"}
    command = next((word for word in argv if not word.startswith("-")), None)
    return command not in (None, "info", "plot") and serial.isdisjoint(argv)


def _parse(argv: Sequence[str], speaks: bool) -> argparse.Namespace:
    invocation = argparse.Namespace(invocation=["mpi-ustat", *argv])
    if speaks:
        return build_parser().parse_args(argv, invocation)
    # --help would be printed by every rank.
    original, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    try:
        return build_parser().parse_args(argv, invocation)
    finally:
        sys.stdout.close()
        sys.stdout = original


def _limited_threads(comm: Any) -> Any:
    """Share the host's cores among its ranks, or BLAS would start one thread a core in every one of them."""
    import threadpoolctl

    return threadpoolctl.threadpool_limits(max(1, (os.cpu_count() or 1) // ranks_on_this_host(comm)))


def console() -> NoReturn:
    """Run `main` and leave the process with its exit code."""
    sys.exit(main())
