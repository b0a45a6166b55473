"""`mpi-ustat batch`: a job script for a cluster."""

from __future__ import annotations

import argparse
import functools
import io
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from mpi_ustat.app.checkpointing import keeps_checkpoints
from mpi_ustat.app.job import INDEX, LAUNCHERS, MPIS, SYSTEMS, Job, seconds
from mpi_ustat.app.job_script import job_script
from mpi_ustat.app.output_files import check_names
from mpi_ustat.app.sample_options import given_files
from mpi_ustat.app.task_array import TaskArray
from mpi_ustat.errors import UserError, brief
from mpi_ustat.storage.files import write_whole

_EPILOG = """\
examples:
  mpi-ustat batch slurm --nodes 2 --ntasks-per-node 32 --time 01:00:00 --venv .venv -- \\
      estimate scores.csv --score s --label y --rounds 10 --output auc.h5 > estimate.sh
  mpi-ustat batch slurm --ntasks 32 --time 04:00:00 --requeue -- \\
      learn data.h5 --label y --checkpoint scorer.checkpoint.h5 --output scorer.h5 > learn.sh
  mpi-ustat batch slurm --ntasks 32 --time 04:00:00 --requeue -- \\
      reproduce fig4 --folder results > fig4.sh
  mpi-ustat batch slurm --ntasks 32 --array 1-20 -- \\
      estimate scores.csv --score s --label y --seed %a --output auc-%a.h5 > replicates.sh

In an array job %a stands for the index of the task, and is its --seed unless the command has one.
"""

_SECONDS_BEFORE = 60


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "batch",
        help="write a job script for SLURM or PBS",
        description="Write a script that runs an mpi-ustat command as a job of a batch system. The ranks of commands "
        "that keep checkpoints (estimate and learn with --checkpoint; reproduce) are told to write one before the time "
        "is over, and a job that is started again goes on from there.",
        usage="mpi-ustat batch {slurm,pbs} [option ...] -- COMMAND ...",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("system", choices=SYSTEMS, help="pbs: OpenPBS, PBS Professional")
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="estimate, learn, plan, … with its options")
    job = parser.add_argument_group("job")
    job.add_argument("--job-name", metavar="NAME", help="default: mpi-ustat and the command")
    job.add_argument("--nodes", type=int, default=1, metavar="N", help="default 1")
    tasks = job.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--ntasks", type=int, metavar="P", help="ranks in all")
    tasks.add_argument("--ntasks-per-node", type=int, metavar="P", help="ranks on each node")
    job.add_argument("--time", metavar="[D-]HH:MM:SS", help="the time limit")
    job.add_argument("--partition", "--queue", metavar="NAME", help="where to queue")
    job.add_argument("--account", metavar="NAME", help="whom to charge")
    job.add_argument("--memory", metavar="M", help="of each node, such as 8G")
    job.add_argument("--memory-per-cpu", metavar="M", help="instead of each core, such as 2G")
    job.add_argument("--cpus-per-task", type=int, metavar="C", help="cores, and threads, of each rank (default 1)")
    job.add_argument("--exclusive", action="store_true", help="nodes that no other job uses")
    job.add_argument(
        "--array",
        metavar="A-B",
        help="many tasks, %%a in the command being the index of each: 1-20, 1-20%%4 (4 at once), 0-100:10, 1,5,8",
    )
    job.add_argument(
        "--log",
        metavar="F",
        help="what is printed goes there, in an existing folder; %%a as above, %%j the job (SLURM)",
    )
    for system, example in (("sbatch", "--qos=high, --mail-type=END, --constraint=ib"), ("qsub", "-M ann@example.org")):
        job.add_argument(
            f"--{system}",
            action="append",
            default=[],
            metavar="LINE",
            help=f"more options for the system, such as {example}; may be repeated",
        )

    start = parser.add_argument_group("start")
    start.add_argument("--launcher", choices=LAUNCHERS, default="mpiexec", help="what starts the ranks")
    start.add_argument("--mpi", choices=MPIS, default="mpich", help="the MPI library there (default mpich)")
    start.add_argument(
        "--setup",
        action="append",
        default=[],
        metavar="LINE",
        help="of shell, such as 'module load mpich'; the job ends if it fails; may be repeated",
    )
    start.add_argument("--venv", metavar="FOLDER", help="virtual environment to activate, after the setup")

    stop = parser.add_argument_group("stop")
    stop.add_argument(
        "--signal-before",
        type=int,
        metavar="SECONDS",
        help=f"when a command that keeps checkpoints is told to stop, before the limit (default {_SECONDS_BEFORE})",
    )
    stop.add_argument("--requeue", action="store_true", help="queue again after a checkpoint, or when a node failed")

    output = parser.add_argument_group("output")
    output.add_argument("--output", metavar="F", help="write the script there (default: to stdout)")
    output.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.set_defaults(run=functools.partial(run_command, commands.choices), serial=True)


def check_dashes(words: Sequence[str], commands: Collection[str]) -> None:
    """Refuse a command line on which the job's command isn't told apart: its options would be taken for ours.

    The sentence says where the two dashes belong, if one of the `commands` is there.
    """
    if "--" in words or not {"-h", "--help"}.isdisjoint(words):
        return
    # After `batch` itself, and not where an option's value may be.
    place = next((j for j, word in enumerate(words) if word in commands and j > words.index("batch") + 1), None)
    shown = "mpi-ustat batch slurm … -- estimate …"
    if place is not None:
        shown = shlex.join(["mpi-ustat", *words[:place], "--", *words[place:]])
    raise UserError(
        "the COMMAND of the job comes after two dashes, so that its options are told from those of the job: "
        f"{brief(shown)}"
    )


def joined(words: Sequence[str]) -> list[str]:
    """Return the words with options for the batch system, which begin with dashes too, joined to what takes them.

    >>> joined(["batch", "slurm", "--sbatch", "--qos=high", "--", "plan", "a.csv"])
    ['batch', 'slurm', '--sbatch=--qos=high', '--', 'plan', 'a.csv']
    """
    whole: list[str] = []
    for word in words:
        if whole and whole[-1] in ("--sbatch", "--qsub") and word.startswith("-") and "--" not in (word, *whole):
            whole[-1] += f"={word}"
        else:
            whole.append(word)
    return whole


def run_command(parsers: Mapping[str, argparse.ArgumentParser], comm: Any, arguments: argparse.Namespace) -> int:
    """Write the script.

    Parameters
    ----------
    parsers : mapping of str to ArgumentParser
        Those of all commands.
    comm : SerialComm
    arguments : argparse.Namespace
    """
    # Not arguments.words: they have lost two dashes that the command may have itself.
    words = arguments.invocation[arguments.invocation.index("--") + 1 :]
    if words[:1] == ["mpi-ustat"]:
        del words[0]
    array = None if arguments.array is None else TaskArray.of(arguments.array)
    other = {"slurm": "qsub", "pbs": "sbatch"}[arguments.system]
    if getattr(arguments, other):
        raise UserError(f"--{other} is not for {arguments.system}: give --{'sbatch' if other == 'qsub' else 'qsub'}")
    words, parsed = _completed(words, parsers, indexed=array is not None)
    if parsed.command == "learn" and arguments.requeue and parsed.checkpoint is None:
        raise UserError("a job that is queued again would learn from the beginning: add --checkpoint F to learn")
    own = {name: getattr(parsed, name, None) for name in ("output", "checkpoint")}
    check_names(own | {"job script": arguments.output}, given_files(parsed), tables=getattr(parsed, "tables", False))
    per_node = arguments.ntasks_per_node is not None
    job = Job(
        system=arguments.system,
        command=("mpi-ustat", *words),
        origin=shlex.join(arguments.invocation),
        name=f"mpi-ustat-{parsed.command}" if arguments.job_name is None else arguments.job_name,
        n_nodes=arguments.nodes,
        n_tasks=arguments.ntasks_per_node * arguments.nodes if per_node else arguments.ntasks,
        per_node=per_node,
        time=arguments.time,
        partition=arguments.partition,
        account=arguments.account,
        memory=arguments.memory,
        memory_per_cpu=arguments.memory_per_cpu,
        cpus_per_task=arguments.cpus_per_task,
        exclusive=arguments.exclusive,
        array=array,
        log=arguments.log,
        more=(*arguments.sbatch, *arguments.qsub),
        launcher=arguments.launcher,
        mpi=arguments.mpi,
        setup=tuple(arguments.setup),
        venv=arguments.venv,
        seconds_before=_seconds_before(parsed, arguments),
        requeue=arguments.requeue,
    )
    script = job_script(job).encode(errors="surrogateescape")
    if arguments.output is None:
        sys.stdout.buffer.write(script)  # whatever the terminal's encoding
        sys.stdout.flush()
    else:
        write_whole(arguments.output, script, overwrite=arguments.overwrite)
        print(arguments.output)
    return 0


def _seconds_before(parsed: argparse.Namespace, arguments: argparse.Namespace) -> int | None:
    """Return how long before the limit the ranks are told to stop; None if they are not."""
    unasked = parsed.command == "reproduce"  # which always keeps what it has
    if not keeps_checkpoints(parsed):
        if arguments.signal_before is not None:
            raise UserError(
                "--signal-before is for estimate and learn with --checkpoint, and for reproduce: other commands don't "
                "stop on a signal"
            )
        return None
    if arguments.signal_before is not None:
        return int(arguments.signal_before)
    # Where no warning can be given, or comes before the start, only those who asked for a checkpoint are told so.
    limit = None if arguments.time is None else seconds(arguments.time)
    hopeless = limit <= _SECONDS_BEFORE if limit is not None else arguments.system == "pbs"
    return None if unasked and hopeless else _SECONDS_BEFORE


def _completed(
    words: Sequence[str], parsers: Mapping[str, argparse.ArgumentParser], *, indexed: bool
) -> tuple[list[str], argparse.Namespace]:
    """Return the words of the job's command, with what a job needs besides, and what they mean.

    The command is parsed, for its mistakes to be found before it has waited in a queue; that of an array for two of its
    tasks, whose seeds and files must differ.
    """
    ranked = {name: parser for name, parser in parsers.items() if not parser.get_default("serial")}
    if not words or words[0] not in ranked:
        raise UserError(f"{' '.join(words[:1])!r} is nothing to run as a job: give one of {', '.join(ranked)}")
    words = list(words)

    def parsed(index: str, **known: None) -> argparse.Namespace:
        own = [word.replace(INDEX, index) if indexed else word for word in words[1:]]
        try:
            with redirect_stdout(io.StringIO()):
                return ranked[words[0]].parse_args(own, argparse.Namespace(command=words[0], **known))
        except SystemExit:
            raise UserError(
                f"the command of the job would print its help and end: leave --help out (mpi-ustat {words[0]} --help "
                "prints it)"
            ) from None

    def add(*options: str) -> None:
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = options

    meant = parsed("1")
    # What is known before, a default doesn't replace.
    if indexed and hasattr(meant, "seed") and parsed("1", seed=None).seed is None:
        add("--seed", INDEX)
    if getattr(meant, "checkpoint", None) is not None and not meant.resume:
        add("--resume")
    meant = parsed("1")
    if indexed:
        another = vars(parsed("2"))
        for name in ("seed", "output", "checkpoint", "folder"):
            value = getattr(meant, name, None)
            if value is None and name == "folder" and words[0] == "reproduce" and not meant.cells:
                value = another[name] = "results"  # its default
            if value is not None and value == another[name]:
                raise UserError(
                    f"all tasks of the array would have the {name} {value}: put {INDEX}, which stands for the task's "
                    "index, into it"
                )
    return words, meant
