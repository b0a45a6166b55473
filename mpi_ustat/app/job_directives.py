"""What a job script asks of SLURM and PBS: the lines that begin with #SBATCH and #PBS."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpi_ustat.errors import UserError

if TYPE_CHECKING:
    from mpi_ustat.app.job import Job

_OURS = {
    "slurm": {
        "--job-name": ("job-name", "J"),
        "--nodes": ("nodes", "N"),
        "--ntasks": ("ntasks", "n"),
        "--ntasks-per-node": ("ntasks-per-node",),
        "--time": ("time", "t"),
        "--partition": ("partition", "p"),
        "--account": ("account", "A"),
        "--memory": ("mem",),
        "--memory-per-cpu": ("mem-per-cpu",),
        "--cpus-per-task": ("cpus-per-task", "c"),
        "--exclusive": ("exclusive",),
        "--array": ("array", "a"),
        "--log": ("output", "o"),
        "--signal-before": ("signal",),
        "--requeue": ("requeue", "open-mode"),
    },
    "pbs": {
        "--job-name": ("N",),
        "--partition": ("q",),
        "--account": ("A",),
        "--array": ("J",),
        "--log": ("o", "j"),
        "--requeue": ("r",),
    },
}
"""What the script says by itself, and the option that says it: a batch system takes the last of two."""


def check_line(line: str, system: str) -> str:
    """Return options for the batch system, without what stands before them in a script.

    Raises
    ------
    UserError
        If they are no options on one line, or options that have one of their own here.
    """
    mark = {"slurm": "#SBATCH", "pbs": "#PBS"}[system]
    options = line.strip().removeprefix(mark).strip()
    if options[:1].isalpha():  # without its dashes, which look like an option of ours
        options = {"slurm": "--", "pbs": "-"}[system] + options
    if not options.startswith("-") or not options.isprintable():
        example = {"slurm": "--qos=high", "pbs": "-M ann@example.org"}[system]
        raise UserError(f"{line!r} is no line of options for the batch system: give one such as {example!r}")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UserError(f"{line!r} has a quotation mark without its other half: add it") from error
    for word in words:
        long = re.match(r"--([\w-]+)", word)
        # -J7, as -J 7; PBS has short options only, and of -l resources of any name.
        name = long[1] if long else word[1:2] if word.startswith("-") else ""
        for own, theirs in _OURS[system].items():
            if name in theirs and not word.startswith("--exclusive="):  # of a user
                raise UserError(f"{word.partition('=')[0]} in {line!r} is said by mpi-ustat batch: give its {own}")
        if system == "pbs" and re.search(r"\b(select|walltime|place)=", word):
            raise UserError(
                f"{word!r} in {line!r} is said by mpi-ustat batch: give its --nodes, --ntasks, --time, --exclusive"
            )
    return options


def directives(job: Job) -> Iterator[str]:
    """Yield the lines."""
    if job.system == "slurm":
        yield from (f"#SBATCH {option}" for option in _for_slurm(job))
    else:
        yield from (f"#PBS {option}" for option in _for_pbs(job))


def _for_slurm(job: Job) -> Iterator[str]:
    options = {
        "job-name": job.name,
        "nodes": job.n_nodes,
        "ntasks": job.n_tasks,
        "ntasks-per-node": job.n_tasks // job.n_nodes if job.per_node else None,
        "cpus-per-task": job.cpus_per_task,
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "mem": job.memory,
        "mem-per-cpu": job.memory_per_cpu,
        "array": job.array,
        "output": job.log,
        "signal": None if job.seconds_before is None else f"B:USR1@{job.seconds_before}",
    }
    for option, value in options.items():
        if value is not None:
            yield f"--{option}={value}"
    if job.exclusive:
        yield "--exclusive"
    if job.requeue:
        # The log goes on where the first attempt left it.
        yield "--requeue"
        yield "--open-mode=append"
    yield from job.more


def _for_pbs(job: Job) -> Iterator[str]:
    per_node = job.n_tasks // job.n_nodes
    cpus = per_node * (job.cpus_per_task or 1)
    yield f"-N {job.name}"
    chunk = f"ncpus={cpus}:mpiprocs={per_node}"
    if job.cpus_per_task is not None:
        chunk += f":ompthreads={job.cpus_per_task}"
    memory = job.memory
    if job.memory_per_cpu is not None:  # PBS counts by the chunk
        memory = f"{int(job.memory_per_cpu[:-1]) * cpus}{job.memory_per_cpu[-1]}"
    if memory is not None:
        chunk += f":mem={memory.lower()}b"
    yield f"-l select={job.n_nodes}:{chunk}"
    # Chunks are nodes.
    place = [*(["scatter"] if job.n_nodes > 1 else []), *(["exclhost"] if job.exclusive else [])]
    if place:
        yield f"-l place={':'.join(place)}"
    if job.time is not None:
        minutes, rest = divmod(job.seconds or 0, 60)
        yield f"-l walltime={minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
    for option, value in (("q", job.partition), ("A", job.account)):
        if value is not None:
            yield f"-{option} {value}"
    if job.array is not None:
        yield f"-J {job.array.for_pbs()}"
        if job.array.at_once is not None:  # what newer ones make of -J 1-20%4, which older ones refuse
            yield f"-W max_run_subjobs={job.array.at_once}"
    if job.requeue or job.array is not None:  # it takes no array that may not be run again
        yield "-r y"
    yield "-j oe"
    if job.log is not None:
        yield f"-o {job.log.replace('%a', '^array_index^')}"
    yield from job.more
