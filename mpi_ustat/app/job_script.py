"""Job scripts for SLURM and PBS, as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from mpi_ustat.errors import UserError

SYSTEMS = ("slurm", "pbs")
LAUNCHERS = ("mpiexec", "srun")
MPIS = ("mpich", "openmpi")

INDEX = "%a"
"""Stands, in the words of an array job, for the index of the task, as it does in SLURM's names of log files."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-9]{2}):([0-9]{2})")
_MEMORY = re.compile(r"[1-9][0-9]*[KMGT]")
_MOST_SECONDS_BEFORE = 65535  # SLURM's limit


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a batch system.

    Parameters
    ----------
    system : {"slurm", "pbs"}
        OpenPBS and PBS Professional; Torque's arrays are others.
    command : tuple of str
        The words of the command line, from ``mpi-ustat`` on. In an array job `INDEX` stands for the task's index.
    origin : str
        What wrote the script: its first comment.
    name : str
    n_nodes : int
    n_tasks : int
        Ranks, of all nodes.
    per_node : bool
        Whether every node must have as many of them.
    time : str or None
        The limit: HH:MM:SS or D-HH:MM:SS.
    partition, account : str or None
        Where to queue (PBS: the queue), and whom to charge.
    memory : str or None
        Of each node: a whole number with K, M, G or T.
    array : tuple of int or None
        First and last index of an array job.
    launcher : {"mpiexec", "srun"}
    mpi : {"mpich", "openmpi"}
        The MPI library, on which it depends how srun and mpiexec start ranks.
    setup : tuple of str
        Lines of the shell, as they are.
    venv : str or None
        Folder of a virtual environment.
    seconds_before : int or None
        Seconds before the limit at which the ranks get SIGUSR1; None for a command that doesn't want it.
    requeue : bool
        Whether the system may start the job again, and shall after an exit with code 75.
    """

    system: str
    command: tuple[str, ...]
    origin: str
    name: str = "mpi-ustat"
    n_nodes: int = 1
    n_tasks: int
    per_node: bool = False
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    memory: str | None = None
    array: tuple[int, int] | None = None
    launcher: str = "mpiexec"
    mpi: str = "mpich"
    setup: tuple[str, ...] = ()
    venv: str | None = None
    seconds_before: int | None = None
    requeue: bool = False

    def __post_init__(self) -> None:
        """Refuse what no batch system would run as it is meant.

        Raises
        ------
        UserError
            Naming the option, its value and what is allowed.
        """
        for what, value in (("job name", self.name), ("partition", self.partition), ("account", self.account)):
            if value is not None and not _NAME.fullmatch(value):
                raise UserError(f"the {what} is {value!r}: use letters, digits and _ . , : @ + - only")
        if self.n_nodes < 1:
            raise UserError(f"the number of nodes is {self.n_nodes}: give at least 1")
        if self.n_tasks < self.n_nodes:
            raise UserError(f"{self.n_tasks} tasks can't fill {self.n_nodes} node(s): give at least one task a node")
        limit = None if self.time is None else seconds(self.time)
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            raise UserError(f"the memory is {self.memory!r}: give a whole number with K, M, G or T, such as 8G")
        if self.array is not None and not 0 <= self.array[0] <= self.array[1]:
            raise UserError(f"the array goes from {self.array[0]} to {self.array[1]}: give the smaller index first")
        if self.seconds_before is not None:
            if not 1 <= self.seconds_before <= _MOST_SECONDS_BEFORE:
                raise UserError(
                    f"a signal {self.seconds_before} s before the limit makes no sense: give 1 to "
                    f"{_MOST_SECONDS_BEFORE} s"
                )
            if limit is not None and self.seconds_before >= limit:
                raise UserError(
                    f"a signal {self.seconds_before} s before the limit of {self.time} comes before the job begins: "
                    "ask for more time, or for a later signal"
                )
        if self.system == "pbs":
            self._check_pbs()

    def _check_pbs(self) -> None:
        if self.launcher == "srun":
            raise UserError("srun belongs to SLURM: leave out --launcher srun")
        if self.n_tasks % self.n_nodes:
            raise UserError(
                f"{self.n_tasks} tasks don't spread evenly over {self.n_nodes} nodes: give --ntasks-per-node instead"
            )
        if self.array is not None and self.array[0] == self.array[1]:
            raise UserError("an array of PBS has at least two tasks: give another --array, or leave it out")
        if self.array is not None and self.requeue:
            raise UserError("PBS can't submit one task of an array again: leave out --requeue or --array")
        if self.seconds_before is not None and self.time is None:
            raise UserError("PBS sends no signal before the limit, the script has to count the seconds: add --time")


def seconds(time: str) -> int:
    """Return how long a time limit is.

    Raises
    ------
    UserError
        If it is not written as HH:MM:SS or D-HH:MM:SS, or is 0. Other forms, such as 90 or 01:30, mean one thing to
        SLURM and another to PBS.
    """
    found = _TIME.fullmatch(time)
    days, hours, minutes, rest = (int(part or 0) for part in found.groups()) if found else (0, 0, 60, 0)
    total = rest + 60 * (minutes + 60 * (hours + 24 * days))
    if minutes > 59 or rest > 59 or (days and hours > 23) or total == 0:
        raise UserError(f"the time limit is {time!r}: write it as HH:MM:SS or D-HH:MM:SS, such as 01:30:00")
    return total


def job_script(job: Job) -> str:
    """Return the job script, with a newline at its end.

    Every word of the command reaches mpi-ustat as it is, whatever characters it has. The script's exit code is that of
    the launcher.
    """
    parts = [_head(job), _directives(job), "", *_environment(job), "", *_command(job), "", *_run(job)]
    return "\n".join(parts) + "\n"


def _head(job: Job) -> str:
    origin = job.origin.replace("\n", "\n# ")
    lines = ["#!/usr/bin/env bash", f"# {origin}"]
    if job.system == "pbs":
        lines.append(
            "# For OpenPBS and PBS Professional. Tested with stand-ins for mpiexec and qsub only: no PBS has run it."
        )
    return "\n".join(lines)


def _directives(job: Job) -> str:
    return "\n".join(_slurm_directives(job) if job.system == "slurm" else _pbs_directives(job))


def _slurm_directives(job: Job) -> Iterator[str]:
    options = {
        "job-name": job.name,
        "nodes": job.n_nodes,
        "ntasks": job.n_tasks,
        "ntasks-per-node": job.n_tasks // job.n_nodes if job.per_node else None,
        "time": job.time,
        "partition": job.partition,
        "account": job.account,
        "mem": job.memory,
        "array": None if job.array is None else "-".join(map(str, job.array)),
        "signal": None if job.seconds_before is None else f"B:USR1@{job.seconds_before}",
    }
    for option, value in options.items():
        if value is not None:
            yield f"#SBATCH --{option}={value}"
    if job.requeue:
        # The log goes on where the first attempt left it.
        yield "#SBATCH --requeue"
        yield "#SBATCH --open-mode=append"


def _pbs_directives(job: Job) -> Iterator[str]:
    per_node = job.n_tasks // job.n_nodes
    yield f"#PBS -N {job.name}"
    memory = "" if job.memory is None else f":mem={job.memory.lower()}b"
    yield f"#PBS -l select={job.n_nodes}:ncpus={per_node}:mpiprocs={per_node}{memory}"
    if job.n_nodes > 1:
        # Chunks are nodes.
        yield "#PBS -l place=scatter"
    if job.time is not None:
        minutes, rest = divmod(seconds(job.time), 60)
        yield f"#PBS -l walltime={minutes // 60:02d}:{minutes % 60:02d}:{rest:02d}"
    if job.partition is not None:
        yield f"#PBS -q {job.partition}"
    if job.account is not None:
        yield f"#PBS -A {job.account}"
    if job.array is not None:
        yield f"#PBS -J {job.array[0]}-{job.array[1]}"
    if job.requeue:
        yield "#PBS -r y"
    yield "#PBS -j oe"


def _environment(job: Job) -> Iterator[str]:
    if job.system == "pbs":
        yield 'cd "$PBS_O_WORKDIR" || exit'
    yield from job.setup
    if job.venv is not None:
        yield f". {shlex.quote(job.venv)}/bin/activate || exit"
    yield "# One thread a rank: the ranks fill the cores."
    yield "export OMP_NUM_THREADS=1"
    yield "# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:"
    yield "# export HDF5_USE_FILE_LOCKING=FALSE"


def _command(job: Job) -> Iterator[str]:
    if job.array is not None:
        variable = "SLURM_ARRAY_TASK_ID" if job.system == "slurm" else "PBS_ARRAY_INDEX"
        yield f"index=${variable}"
    yield "command=("
    line: list[str] = []
    for word in job.command:
        if word.startswith("--") and line:
            yield f"    {' '.join(line)}"
            line = []
        line.append(_quoted(word, indexed=job.array is not None))
    yield f"    {' '.join(line)}"
    yield ")"


def _quoted(word: str, *, indexed: bool) -> str:
    """Return a word for the shell, with the task's index in the place of `INDEX` if there is one."""
    if not indexed or INDEX not in word:
        return shlex.quote(word)
    return '"$index"'.join(shlex.quote(part) if part else "" for part in word.split(INDEX))


def _run(job: Job) -> Iterator[str]:
    launch = f'{_launcher(job)} "${{command[@]}}"'
    if job.seconds_before is None:
        yield launch
        return
    if job.time is not None and job.system == "pbs":
        yield from _warned_by_the_script(launch, seconds(job.time) - job.seconds_before)
        again = 'qsub "$0"'
    else:
        yield from _warned_by_slurm(launch)
        again = 'scontrol requeue "$SLURM_JOB_ID"'
    if job.requeue:
        yield f'[ "$code" -ne 75 ] || {again}'
    yield 'exit "$code"'


def _warned_by_slurm(launch: str) -> Iterator[str]:
    yield "# Before the time limit, up to a minute earlier than asked, SLURM sends this shell SIGUSR1. Passed on by the"
    yield "# launcher it reaches the ranks, which write a checkpoint and leave with exit code 75."
    yield f"{launch} &"
    yield "job=$!"
    yield "trap 'again=yes; kill -USR1 \"$job\"' USR1"
    yield "again=yes"
    yield 'while [ "$again" ]; do # the trap ends `wait`'
    yield "    again="
    yield '    wait "$job"'
    yield "    code=$?"
    yield "done"


def _warned_by_the_script(launch: str, after: int) -> Iterator[str]:
    yield "# PBS gives no warning before the time limit, so `timeout` sends the launcher SIGUSR1. Passed on, it reaches"
    yield "# the ranks, which write a checkpoint and leave with exit code 75. SECONDS: what the lines above have taken."
    yield f'timeout --foreground --preserve-status --signal=USR1 "$(({after} - SECONDS))" \\'
    yield f"    {launch}"
    yield "code=$?"


def _launcher(job: Job) -> str:
    if job.launcher == "srun":
        return f"srun --mpi={'pmi2' if job.mpi == 'mpich' else 'pmix'} -n {job.n_tasks}"
    # MPICH finds the hosts of both systems by itself, Open MPI those of SLURM.
    hosts = ' --hostfile "$PBS_NODEFILE"' if job.system == "pbs" and job.mpi == "openmpi" else ""
    return f"mpiexec{hosts} -n {job.n_tasks}"
