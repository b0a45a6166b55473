"""Job scripts for SLURM and PBS, as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from mpi_ustat.app.job import INDEX, Job
from mpi_ustat.app.job_directives import directives


def job_script(job: Job) -> str:
    """Return the job script, with a newline at its end.

    Every word of the command reaches mpi-ustat as it is, whatever characters it has. The script's exit code is that of
    the launcher.
    """
    parts = [_head(job), "\n".join(directives(job)), "", *_environment(job), "", *_command(job), "", *_run(job)]
    return "\n".join(parts) + "\n"


def _head(job: Job) -> str:
    origin = job.origin.replace("\n", "\n# ")
    lines = ["#!/usr/bin/env bash", f"# {origin}"]
    if job.system == "pbs":
        lines.append(
            "# For OpenPBS and PBS Professional. Tested with stand-ins for mpiexec and qsub only: no PBS has run it."
        )
    return "\n".join(lines)


def _environment(job: Job) -> Iterator[str]:
    if job.system == "pbs":
        yield 'cd "$PBS_O_WORKDIR" || exit'
    for line in job.setup:
        # Where `|| exit` would be part of the line, or nothing of the shell's.
        yield f"{{\n{line}\n}} || exit" if "#" in line or line.rstrip()[-1:] in ("&", ";") else f"{line} || exit"
    if job.venv is not None:
        yield f". {shlex.quote(job.venv)}/bin/activate || exit"
    if job.cpus_per_task is None:
        yield "# One thread a rank: the ranks fill the cores."
    yield f"export OMP_NUM_THREADS={job.cpus_per_task or 1}"
    yield "# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:"
    yield "# export HDF5_USE_FILE_LOCKING=FALSE"


def _command(job: Job) -> Iterator[str]:
    if job.array is not None:
        variable = "SLURM_ARRAY_TASK_ID" if job.system == "slurm" else "PBS_ARRAY_INDEX"
        if job.system == "pbs" and len(job.array.parts) > 1:
            yield "# PBS knows no lists: its own index, also that in the name of a log, counts these from 0."
            yield f"indices=({' '.join(map(str, job.array.indices))})"
            variable = "{indices[PBS_ARRAY_INDEX]}"
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
    if job.seconds is not None and job.system == "pbs":
        yield from _warned_by_the_script(launch, job.seconds - job.seconds_before)
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
    cores = job.cpus_per_task or 1
    if job.launcher == "srun":
        # It doesn't take this from the job by itself.
        each = f" --cpus-per-task={cores}" if cores > 1 else ""
        return f"srun --mpi={'pmi2' if job.mpi == 'mpich' else 'pmix'}{each} -n {job.n_tasks}"
    # MPICH finds the hosts of both systems by itself, Open MPI those of SLURM.
    hosts = ' --hostfile "$PBS_NODEFILE"' if job.system == "pbs" and job.mpi == "openmpi" else ""
    # Open MPI keeps a rank to one core unless it is told; MPICH to none.
    each = f" --map-by slot:PE={cores}" if job.mpi == "openmpi" and cores > 1 else ""
    return f"mpiexec{hosts}{each} -n {job.n_tasks}"
