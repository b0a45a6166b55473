"""`mpi-ustat doctor`: say whether anything is wrong with what jobs run on."""

from __future__ import annotations

import argparse
import json
from typing import Any

from mpi_ustat.app.environment_checks import Finding, examine

_EPILOG = """\
examples:
  mpiexec -n 4 mpi-ustat doctor
  srun -n 64 mpi-ustat doctor /scratch/results
"""


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "doctor",
        help="look at MPI, ranks, cores, threads, network and files, and say what is wrong",
        description="Look at what a job started like this one runs on: MPI and its launcher, ranks and cores, threads, "
        "messages, the folder of data or results. Exit code 0 if all is well, 2 if not.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", nargs="?", default=".", metavar="PATH", help="a folder or file (default: here)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints.  Collective."""
    findings = examine(comm, arguments.path, obstacle=arguments.obstacle)
    well = not any(each.problem for each in findings)
    if comm.rank == 0 and arguments.speaks:
        print(_as_json(findings) if arguments.json else "\n".join(_lines(findings)), flush=True)
    return 0 if well else 2


def _as_json(findings: list[Finding]) -> str:
    return json.dumps({"well": not any(each.problem for each in findings), "findings": [vars(f) for f in findings]})


def _lines(findings: list[Finding]) -> list[str]:
    """Return a table of what was found, with what is wrong below each."""
    return [
        line
        for each in findings
        for line in (f"{each.what:<18}{each.found}", *[f"{'':<16}! {each.problem}"] * bool(each.problem))
    ]
