"""Ranks that act as one: who hosts which worker, failing together, and a stand-in for MPI when there is none."""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.parallel.partition import block_bounds


class SerialComm:
    """The communicator of a process alone, with the methods of `mpi4py.MPI.Comm` that this package calls.

    It lets everything run, at one rank, where no MPI library can be loaded.
    """

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Return at once."""

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """Return `obj`."""
        return obj

    def gather(self, obj: Any, root: int = 0) -> list[Any]:
        """Return `[obj]`."""
        return [obj]

    def allgather(self, obj: Any) -> list[Any]:
        """Return `[obj]`."""
        return [obj]

    def Abort(self, errorcode: int = 0) -> None:
        """Leave the process at once with `errorcode`."""
        os._exit(errorcode)


def hosted_workers(n_workers: int, size: int, rank: int) -> range:
    """Return the workers that `rank` of `size` ranks hosts: a contiguous run; run lengths differ by at most one."""
    bounds = block_bounds(n_workers, size)
    return range(int(bounds[rank]), int(bounds[rank + 1]))


Item = TypeVar("Item")
Found = TypeVar("Found")

Listener = Callable[[str], None]

AFTER = "after "
"""How the name of a phase begins in which ranks wait for each other, to share how what came before went."""

_listeners: list[Listener] = []

_SECONDS_TO_PASS_ON = 0.2
"""A launcher that ends a job may lose what a rank has written just before."""


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let a function know of every phase that this process enters, by name, as long as the context lasts.

    Phases are entered all over the package, so that who watches over the process, such as a watchdog, can't be handed
    down to all of them. What the function raises is raised where the phase is entered.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def entering(phase: str) -> None:
    """Tell the listeners, if there are any, that a phase begins."""
    for listener in _listeners:
        listener(phase)


def agree(comm: Any, error: BaseException | None, value: Any = None, *, doing: str, of_data: bool = False) -> list[Any]:
    """Share a local outcome: the values of all ranks, in rank order, or the same error on all of them.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    error : BaseException or None
        What went wrong on this rank.
    value : object
        What this rank contributes when nothing went wrong.
    doing : str
        What the ranks were doing, for the message ("reading the data").
    of_data : bool
        Whether what goes wrong lies in the data or in what is made of them, which other numbers of ranks would meet on
        other ranks: then the message doesn't name the rank, unless memory or a file failed there.

    Raises
    ------
    UserError
        On every rank, when any rank reports an error; the text is that of the lowest such rank.
    """
    if _listeners:
        entering(f"{AFTER}{doing}")
    outcomes = comm.allgather((None if error is None else _describe(error), value))
    failures = [(rank, outcome[0]) for rank, outcome in enumerate(outcomes) if outcome[0] is not None]
    if not failures:
        return [outcome[1] for outcome in outcomes]
    rank, (is_users, cause, text) = failures[0]
    # When every rank meets the same thing (a missing file), where it happened is noise.
    anywhere = len({failure for _, failure in failures}) == 1 and len(failures) == comm.size
    anywhere = anywhere or cause == "data" or (of_data and cause != "machine")
    if is_users and anywhere:
        raise UserError(text) from error
    where = "" if anywhere else f" on rank {rank}"
    raise UserError(f"{doing} failed{where}: {text}") from error


@contextmanager
def together(comm: Any, doing: str, *, of_data: bool = False) -> Iterator[None]:
    """Run a local phase so that an error on one rank is raised on all.  Collective.

    Everything inside must be local: a collective call there would wait for the ranks that failed before it. Even
    SystemExit and KeyboardInterrupt are agreed on, because a rank that leaves alone lets the others wait for ever.
    """
    error: BaseException | None = None
    try:
        entering(doing)
        yield
    except BaseException as caught:
        error = caught
    agree(comm, error, doing=doing, of_data=of_data)


def announced(steps: Iterable[Item], phase: str = "evaluate") -> Iterator[Item]:
    """Yield the steps of a long computation, each entered as a phase: it makes progress, and says so."""
    for step in steps:
        if _listeners:
            entering(phase)
        yield step


def in_portions(
    comm: Any, portions: Iterable[Item], evaluate: Callable[[Item], Found], *, doing: str
) -> Iterator[list[Found]]:
    """Yield, portion by portion of a long computation, what the ranks find in theirs, in rank order.  Collective.

    The ranks wait for each other after each portion. Where one of them fails, the others need not come to the end of
    theirs; and one that is quicker waits for the difference in one portion only, or a watchdog would take a slow rank
    for one that hangs.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    portions : iterable
        This rank's; as many on every rank.
    evaluate : callable
        Local.
    doing : str
        What it does, for the message.

    Raises
    ------
    UserError
        On every rank, when `evaluate` fails on any.
    """
    for portion in portions:
        error: BaseException | None = None
        found: Found | None = None
        try:
            found = evaluate(portion)
        except BaseException as caught:
            error = caught
        yield agree(comm, error, found, doing=doing, of_data=True)


def _describe(error: BaseException) -> tuple[bool, str, str]:
    """Return whether an error is the user's, where it comes from if that is known, and what it says."""
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception:  # a user kernel's exception may be broken itself, and this rank must not leave alone
        text = ""
    if isinstance(error, UserError):
        return True, "data" if isinstance(error, PlacedError) else "", text
    if isinstance(error, ValueError | TypeError) and "read-only" in text:  # NumPy's words
        return False, "", f"it changes an array that it was given ({text}): let it work on a copy"
    cause = "machine" if isinstance(error, MemoryError | OSError) else ""
    return False, cause, f"{name}: {text.splitlines()[0]}" if text else name


class _Phase:
    """A context that times itself; a class, because a generator's overhead is felt in steps of 200 µs."""

    __slots__ = ("_now", "_phase", "_seconds", "_start")

    def __init__(self, seconds: dict[str, float], phase: str, now: Callable[[], float]) -> None:
        self._seconds, self._phase, self._now = seconds, phase, now

    def __enter__(self) -> None:
        self._start = self._now()
        if _listeners:
            entering(self._phase)

    def __exit__(self, *raised: object) -> None:
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + self._now() - self._start


class PhaseClock:
    """Seconds spent in each named phase on this rank."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.seconds: dict[str, float] = {}

    def __call__(self, phase: str) -> _Phase:
        """Return a context that adds the time spent inside to `phase`."""
        return _Phase(self.seconds, phase, self._now)

    def slowest(self, comm: Any) -> dict[str, float]:
        """Return, for each phase, the seconds of the rank that took longest.  Collective."""
        everyone = comm.allgather(self.seconds)
        phases = dict.fromkeys(phase for seconds in everyone for phase in seconds)
        return {phase: max(seconds.get(phase, 0.0) for seconds in everyone) for phase in phases}


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
    """Refuse to run when the launcher started several processes that MPI took for strangers.

    With the launcher of another MPI every process becomes a job of its own, of size 1, and all of them would do the
    whole work and write the same file.

    Raises
    ------
    UserError
        If the launcher announced more than one process and `comm` has only one.
    """
    size, _ = launched_size(environ)
    if comm.size == 1 and size > 1:
        raise UserError(
            f"the launcher started {size} processes but MPI sees 1: use the mpiexec that belongs to the MPI library "
            "mpi4py loads (python -m mpi4py --mpi-lib-version names it; under SLURM try srun --mpi=pmi2 or --mpi=pmix)"
        )


def mpi_obstacle() -> str:
    """Return why no MPI library can be loaded; nothing if one can, which it then is."""
    try:
        with warnings.catch_warnings():
            # mpi4py warns of a launcher that isn't the library's in its own words; `check_launcher` refuses it.
            warnings.simplefilter("ignore", RuntimeWarning)
            from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def world() -> Any:
    """Return MPI's COMM_WORLD, or a `SerialComm` when no MPI library can be loaded.

    Raises
    ------
    UserError
        If several processes were launched and no MPI library can be loaded, or the launcher is another MPI's.
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

    comm = MPI.COMM_WORLD
    check_launcher(comm)
    return comm


def ranks_on_this_host(comm: Any) -> int:
    """Return how many ranks of `comm` share this host.  Collective."""
    own = os.uname().nodename
    return int(comm.allgather(own).count(own))


def cores_of_ranks_here(comm: Any) -> int:
    """Return how many cores the ranks of `comm` on this host may use together, as the launcher bound them.  Collective.

    Without binding, every rank may use all of them.
    """
    own = (os.uname().nodename, own_cores())
    return len({core for host, cores in comm.allgather(own) if host == own[0] for core in cores})


def own_cores() -> list[int]:
    """Return the numbers of the cores that this process may use, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def library_version(comm: Any) -> str:
    """Return what the MPI library says of itself; nothing for a `SerialComm`."""
    if isinstance(comm, SerialComm):
        return ""
    from mpi4py import MPI

    return str(MPI.Get_library_version())


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


def leave_together(comm: Any, code: int, *, patience: float | None = 5.0) -> int:
    """Return `code` once all ranks have come here; end the job if some don't come.  Collective.

    All ranks should leave for the same reason. Should one of them leave alone, the others would wait for it inside a
    collective call for ever; so after `patience` seconds, if there is a limit, the job is aborted: with `code`, or 1
    where that would mean success.
    """
    if comm.size > 1:
        request = comm.Ibarrier()
        if patience is None:
            request.Wait()
            return code
        deadline = time.monotonic() + patience
        while not request.Test():
            if time.monotonic() > deadline:
                comm.Abort(code or 1)
            time.sleep(0.001)
    return code


@functools.cache
def keep_freed_memory() -> None:
    """Make the C library keep freed memory for the next array instead of giving it back, page by page.

    GNU's malloc returns the top of its heap to the system, and faults it in again, whenever twice the largest block
    freed so far lies idle there; temporaries of 100 KiB then cost more than what is done with them. Freeing one block
    just below its limit for such blocks (32 MiB, never touched) raises that mark for the life of the process. Other
    libraries don't mind.
    """
    np.empty(31 << 20, dtype=np.uint8)
