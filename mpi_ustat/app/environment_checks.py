"""Looks at what jobs run on: MPI and its launcher, ranks, cores, threads, network and files; says what is wrong.

Every check is a function of the communicator, collective, that returns a `Finding`, the same on every rank.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mpi_ustat
from mpi_ustat.app.job_leftovers import SHARED, stale_files
from mpi_ustat.mpi.launch import launched_size, library_version, mpi_obstacle, own_cores, several_wheels
from mpi_ustat.storage.files import left_aside
from mpi_ustat.storage.provenance import LIBRARIES, installed_version, short_library_name
from mpi_ustat.wording import count_of

_ENOUGH_BYTES = 100 * 2**20
_MOST_NAMES = 10
_MOST_LEFT = 0.5  # of the shared memory
_PATIENCE = 5.0  # seconds for a file to be locked: on a network file system with a dead lock server it takes for ever
SMALL, LARGE = (8, 200), (4 * 2**20, 5)  # bytes of a message, and how many of them


@dataclass(frozen=True)
class Finding:
    """What was found about something, and, if that is wrong, a sentence that says why and what to do."""

    what: str
    found: str
    problem: str = ""


def examine(
    comm: Any, path: str = ".", *, obstacle: str | None = None, environ: Mapping[str, str] = os.environ
) -> list[Finding]:
    """Return all findings, the same on every rank.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    path : str
        A folder or a file where data or results are to be.
    obstacle : str, optional
        Why MPI can't be used as it was started.
    environ : mapping
    """
    return [
        versions(comm),
        mpi(comm, obstacle),
        launcher(comm, environ),
        ranks(comm),
        threads(comm),
        *network(comm),
        *folder(comm, path),
        *locking(comm, path, environ),
        *leftovers(comm, path),
        *shared_memory(comm),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Software


def versions(comm: Any) -> Finding:
    """Compare the versions of what computes: the same bits come from the same versions only.  Collective."""
    own = {"mpi-ustat": mpi_ustat.__version__, "Python": platform.python_version()}
    own |= {name: installed_version(name) or "missing" for name in LIBRARIES}
    everyone = comm.allgather(own)
    others = [rank for rank, each in enumerate(everyone) if each != everyone[0]]
    problem = ""
    if others:
        differ = ", ".join(
            f"{name} {everyone[others[0]][name]}" for name in own if everyone[others[0]][name] != everyone[0][name]
        )
        problem = f"rank {others[0]} has {differ}, unlike rank 0: install the same versions on all hosts"
    return Finding("versions", ", ".join(f"{name} {version}" for name, version in everyone[0].items()), problem)


def mpi(comm: Any, obstacle: str | None = None) -> Finding:
    """Name the MPI library.  Collective."""
    missing = mpi_obstacle()
    if missing:
        problem = f"no MPI library can be loaded ({missing}): install one, such as pip install 'mpi_ustat[mpich]'"
        return Finding("MPI", "none, so that all runs in one process", problem)
    problem = obstacle or next(filter(None, comm.allgather(several_wheels())), "")
    return Finding("MPI", short_library_name(library_version(comm)) or "not started", problem)


def launcher(comm: Any, environ: Mapping[str, str]) -> Finding:
    """Tell who started the processes.  Collective."""
    known = {"PMI_SIZE": "mpiexec of MPICH or Intel MPI", "OMPI_COMM_WORLD_SIZE": "mpiexec of Open MPI"}
    known["SLURM_STEP_NUM_TASKS"] = "srun"
    names = [name for variable, name in known.items() if variable in environ]
    size, _ = launched_size(environ)
    if not names:
        return Finding("launcher", "none: one process")
    return Finding("launcher", f"{' and '.join(names)}: {count_of(size, 'process')}")


# ---------------------------------------------------------------------------------------------------------------------
# Cores


def _hosts(comm: Any) -> dict[str, tuple[int, int]]:
    """Return the ranks of each host, and the cores that they may use.  Collective."""
    everyone = comm.allgather((os.uname().nodename, own_cores()))
    counts = Counter(host for host, _ in everyone)
    return {
        host: (count, len({core for name, cores in everyone if name == host for core in cores}))
        for host, count in counts.items()
    }


def ranks(comm: Any) -> Finding:
    """Count ranks and cores of every host.  Collective."""
    hosts = _hosts(comm)
    found = ", ".join(
        f"{n_ranks} on {count_of(n_cores, 'core')} of {host}" for host, (n_ranks, n_cores) in hosts.items()
    )
    problem = ""
    for host, (n_ranks, n_cores) in hosts.items():
        if n_ranks > n_cores:
            problem = (
                f"{n_ranks} ranks share {count_of(n_cores, 'core')} of {host}, and those that wait keep the others "
                f"from computing: start at most {n_cores} there"
            )
    return Finding("ranks", found, problem)


def threads(comm: Any) -> Finding:
    """Count the threads that BLAS and OpenMP would use in a program of one's own.  Collective.

    Too many are no mistake: the commands limit themselves.
    """
    import threadpoolctl

    own = max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1)
    hosts = _hosts(comm)
    everyone = comm.allgather((os.uname().nodename, own))
    advice = ""
    for host, n_threads in everyone:
        n_ranks, n_cores = hosts[host]
        if n_threads > 1 and n_threads * n_ranks > n_cores:
            there = f"{count_of(n_ranks, 'rank has', 'ranks have')} {count_of(n_cores, 'core')} of {host}"
            advice = (
                f", of which the commands use as many as there are cores: for programs of your own export "
                f"OMP_NUM_THREADS={max(1, n_cores // n_ranks)} ({there})"
            )
            break
    return Finding("threads", f"{own} per rank for BLAS and OpenMP{advice}")


# ---------------------------------------------------------------------------------------------------------------------
# Network


def network(comm: Any) -> list[Finding]:
    """Time messages to the next rank, all ranks at once.  Collective."""
    if comm.size == 1:
        return []
    latency, seconds = (seconds_of_message(comm, *message) for message in (SMALL, LARGE))
    speed = LARGE[0] / seconds / 1e9
    return [Finding("messages", f"{latency * 1e6:.1f} µs, and {speed:.2g} GB/s, from each rank to the next")]


def seconds_of_message(comm: Any, n_bytes: int, n_messages: int) -> float:
    """Return the median seconds of a message to the next rank, all ranks sending at once.  Collective."""
    sent, received = np.ones(n_bytes, dtype=np.uint8), np.ones(n_bytes, dtype=np.uint8)
    following, preceding = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    comm.barrier()
    seconds = []
    for _ in range(n_messages):
        began = time.perf_counter()
        comm.Sendrecv(sent, dest=following, recvbuf=received, source=preceding)
        seconds.append(time.perf_counter() - began)
    return float(max(comm.allgather(statistics.median(seconds))))


# ---------------------------------------------------------------------------------------------------------------------
# Files


def _folder_of(path: str) -> Path:
    return Path(path) if os.path.isdir(path) else Path(path).parent


def folder(comm: Any, path: str) -> list[Finding]:
    """Tell where the path is, and whether there is room.  Collective."""
    there = comm.allgather((os.uname().nodename, os.path.exists(path)))
    where, problem = _folder_of(path), ""
    missing = [(rank, host) for rank, (host, seen) in enumerate(there) if not seen]
    if missing:
        rank, host = missing[0]
        problem = (
            f"rank {rank} on {host} has no '{path}': give one on a file system that all hosts share"
            if len(missing) < comm.size
            else f"there is no '{path}': create it, or give another folder"
        )
        return [Finding("folder", str(where), problem)]
    return _from_master(comm, lambda: [_room(where)])


def _from_master(comm: Any, find: Any) -> list[Finding]:
    return list(comm.bcast(find() if comm.rank == 0 else None))


def _room(where: Path) -> Finding:
    free = shutil.disk_usage(where).free
    kind = file_system(where)
    found = f"{where}{f' on {kind}' if kind else ''}, {free / 1e9:.1f} GB free"
    problem = ""
    if not os.access(where, os.W_OK | os.X_OK):
        problem = f"'{where}' is read-only: results need another folder"
    elif free < _ENOUGH_BYTES:
        problem = f"the disk of '{where}' is nearly full: free some space, or write elsewhere"
    return Finding("folder", found, problem)


def file_system(where: Path, table: str = "/proc/self/mountinfo") -> str:
    """Return the kind of the file system that a folder is on (ext4, nfs4, lustre …), empty if that can't be found."""
    best, kind = "", ""
    with suppress(OSError):
        real = os.path.realpath(where)
        for line in Path(table).read_text(errors="replace").splitlines():
            words, _, more = line.partition(" - ")
            point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), words.split()[4])
            inside = point == "/" or real == point or real.startswith(f"{point}/")
            if inside and len(point) >= len(best):
                best, kind = point, more.split()[0]
    return kind


def locking(comm: Any, path: str, environ: Mapping[str, str]) -> list[Finding]:
    """Try to lock a file there as HDF5 does.  Collective."""
    return _from_master(comm, lambda: [_locked(path, environ)] if os.path.exists(path) else [])


def _locked(path: str, environ: Mapping[str, str]) -> Finding:
    outcome: list[OSError | None] = []

    def lock() -> None:
        try:
            with open(path, "rb") if os.path.isfile(path) else tempfile.TemporaryFile(dir=path) as file:
                fcntl.flock(file, (fcntl.LOCK_SH if os.path.isfile(path) else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            outcome.append(None)
        except OSError as error:
            outcome.append(error)

    attempt = threading.Thread(target=lock, daemon=True)
    attempt.start()
    attempt.join(_PATIENCE)
    switch = environ.get("HDF5_USE_FILE_LOCKING", "")
    off = switch.upper() in ("FALSE", "0", "BEST_EFFORT")
    remedy = "export HDF5_USE_FILE_LOCKING=FALSE, and let no program write a file that another one reads"
    if not outcome:
        return Finding("HDF5 locks", "no answer", "" if off else f"locking a file at '{path}' hangs: {remedy}")
    error = outcome[0]
    if error is None:
        return Finding("HDF5 locks", f"work{f', but HDF5_USE_FILE_LOCKING={switch}' if off else ''}")
    if isinstance(error, BlockingIOError):
        problem = f"another process writes '{path}': wait until it is done"
        return Finding("HDF5 locks", "work", problem)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:  # nothing is written there anyway
        return Finding("HDF5 locks", "not tried, as nothing can be written there")
    found = f"don't work ({error.strerror})"
    return Finding("HDF5 locks", found, "" if off else f"files at '{path}' can't be locked: {remedy}")


def leftovers(comm: Any, path: str) -> list[Finding]:
    """Look for hidden files of writes that were interrupted.  Collective."""
    return _from_master(comm, lambda: _leftovers(left_aside(_folder_of(path))))


def _leftovers(found: Sequence[tuple[Path, bool | None]]) -> list[Finding]:
    stale = sorted(str(path) for path, used in found if used is False)
    elsewhere = sorted(str(path) for path, used in found if used is None)
    problem = ""
    if stale:
        problem = f"processes that were killed have left {' '.join(stale)}: remove what is not needed"
    elif elsewhere:
        problem = f"processes on another host have left {' '.join(elsewhere)}: remove them if those don't run any more"
    return [Finding("unfinished files", str(len(stale) + len(elsewhere)), problem)] if problem else []


def shared_memory(comm: Any) -> list[Finding]:
    """Look on every host for what jobs leave that are killed as they start, or with their launcher.  Collective.

    It is in nobody's way, unless it takes much of the memory that there is for it.
    """
    hosts = comm.allgather(os.uname().nodename)
    first = hosts.index(hosts[comm.rank]) == comm.rank
    found = []
    for host, (paths, filled) in zip(hosts, comm.allgather(_left_here() if first else ([], False)), strict=True):
        if paths:
            names = " ".join(map(str, paths[:_MOST_NAMES]))
            more = f" and {len(paths) - _MOST_NAMES} more" if len(paths) > _MOST_NAMES else ""
            left = f"{count_of(len(paths), 'file')} on {host}, which no process uses: remove {names}{more}"
            problem = f"they fill the memory that ranks on {host} share: remove them" if filled else ""
            found.append(Finding("left by jobs", left, problem))
    return found


def _left_here() -> tuple[list[Path], bool]:
    """Return the files that are left on this host, the latest first, and whether they take too much of its memory."""
    paths = stale_files()
    shared = [path for path in paths if path.parent == SHARED]
    with suppress(OSError):
        room = os.statvfs(SHARED)
        taken = sum(path.stat().st_size for path in shared)
        return paths, bool(shared) and taken > _MOST_LEFT * room.f_blocks * room.f_frsize
    return paths, False
