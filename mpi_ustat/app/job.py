"""A job of a batch system: what it asks for, and what no batch system would run as it is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpi_ustat.app.job_directives import check_line
from mpi_ustat.app.task_array import TaskArray
from mpi_ustat.errors import UserError
from mpi_ustat.wording import count_of

SYSTEMS = ("slurm", "pbs")
LAUNCHERS = ("mpiexec", "srun")
MPIS = ("mpich", "openmpi")

INDEX = "%a"
"""Stands, in the words of an array job, for the index of the task, as it does in SLURM's names of log files."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@+-]*")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+):([0-9]{2}):([0-9]{2})")
_MEMORY = re.compile(r"[1-9][0-9]*[KMGT]")
_LOG = re.compile(r"[A-Za-z0-9_./%][A-Za-z0-9_./,:@+=%-]*")
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
    memory, memory_per_cpu : str or None
        Of each node or of each of its cores, not both: a whole number with K, M, G or T.
    cpus_per_task : int or None
        Cores, and threads, of each rank; None: 1.
    exclusive : bool
        Whether the nodes are for this job alone.
    array : TaskArray or None
        Of an array job, the indices of its tasks.
    log : str or None
        Where the output goes; `INDEX` stands for the task's index, and other signs of SLURM's for what they mean there.
    more : tuple of str
        Options for the batch system, such as ``--qos=high``: a line each.
    launcher : {"mpiexec", "srun"}
    mpi : {"mpich", "openmpi"}
        The MPI library, on which it depends how srun and mpiexec start ranks.
    setup : tuple of str
        Lines of the shell; the job ends where one fails.
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
    memory_per_cpu: str | None = None
    cpus_per_task: int | None = None
    exclusive: bool = False
    array: TaskArray | None = None
    log: str | None = None
    more: tuple[str, ...] = ()
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
            raise UserError(
                f"{count_of(self.n_tasks, 'task')} can't fill {self.n_nodes} nodes: give at least one task a node"
            )
        limit = self.seconds
        for memory in (self.memory, self.memory_per_cpu):
            if memory is not None and not _MEMORY.fullmatch(memory):
                raise UserError(f"the memory is {memory!r}: give a whole number with K, M, G or T, such as 8G")
        if self.memory is not None and self.memory_per_cpu is not None:
            raise UserError("the memory is given of a node and of a cpu: leave out --memory or --memory-per-cpu")
        if self.cpus_per_task is not None and self.cpus_per_task < 1:
            raise UserError(f"{self.cpus_per_task} cpus a task can't run it: give at least 1")
        self._check_log()
        for line in self.setup:
            if line.rstrip().endswith("\\"):
                raise UserError(f"the line {line!r} of the setup goes on after its end: leave out the last backslash")
        object.__setattr__(self, "more", tuple(check_line(line, self.system) for line in self.more))
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

    @property
    def seconds(self) -> int | None:
        """The limit of time, if there is one."""
        return None if self.time is None else seconds(self.time)

    def _check_log(self) -> None:
        if self.log is None:
            return
        if not _LOG.fullmatch(self.log):
            raise UserError(f"the log is {self.log!r}: use letters, digits, slashes and _ . , : @ + = % - only")
        signs = set(re.findall("%.", self.log))
        if self.array is not None and signs.isdisjoint({INDEX, *(() if self.system == "pbs" else ("%j",))}):
            raise UserError(
                f"all tasks of the array would write the log '{self.log}': put {INDEX}, which stands for the task's "
                "index, into it"
            )
        if self.system == "pbs" and (signs - {INDEX} or (signs and self.array is None)):
            raise UserError(
                f"PBS fills in nothing in the log '{self.log}' but {INDEX}, in an array: leave out the rest"
            )

    def _check_pbs(self) -> None:
        if self.launcher == "srun":
            raise UserError("srun belongs to SLURM: leave out --launcher srun")
        if self.n_tasks % self.n_nodes:
            raise UserError(
                f"{self.n_tasks} tasks don't spread evenly over {self.n_nodes} nodes: give --ntasks-per-node instead"
            )
        if self.array is not None and len(self.array.indices) < 2:
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
