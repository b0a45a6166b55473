"""Ranks that act as one: who hosts which worker, failing together, and a stand-in for MPI when there is none."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import numpy as np

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.mpi.collectives import largest_integers
from mpi_ustat.mpi.interrupts import LocalWork, check, interrupt_of_all
from mpi_ustat.schemes.partition import block_bounds


class SerialComm:
    """The communicator of a process alone, with the methods of `mpi4py.MPI.Comm` that this package calls."""

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
Teller = Callable[[str, int, int, float], None]

AFTER = "after "
"""How the name of a phase begins in which ranks wait for each other, to share how what came before went."""

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
_tellers: ContextVar[tuple[Teller, ...]] = ContextVar("tellers", default=())


def listening(listener: Listener) -> AbstractContextManager[None]:
    """Let a function know of every phase that is entered, by name, as long as the context lasts.

    Phases are entered all over the package, so that who watches over the process, such as a watchdog, can't be handed
    down to all of them. What the function raises is raised where the phase is entered.
    """
    return _with_one_more(_listeners, listener)


def telling(teller: Teller) -> AbstractContextManager[None]:
    """Let a function know how far long computations are, as long as the context lasts.

    It is called with the name of the phase, how many steps are done, of how many, and when the first began.
    """
    return _with_one_more(_tellers, teller)


@contextmanager
def _with_one_more(variable: ContextVar[tuple[Item, ...]], member: Item) -> Iterator[None]:
    token = variable.set((member, *variable.get()))  # the last one hears first
    try:
        yield
    finally:
        variable.reset(token)


def entering(phase: str) -> None:
    """Tell the listeners, if there are any, that a phase begins."""
    for listener in _listeners.get():
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
    KeyboardInterrupt
        On every rank, when any rank was interrupted: that is nobody's mistake.
    """
    entering(f"{AFTER}{doing}")
    outcome = (None if error is None else _describe(error), value)
    outcomes = [outcome] if comm.size == 1 else comm.allgather(outcome)  # what is large is not copied for nobody
    failures = [(rank, failure) for rank, (failure, _) in enumerate(outcomes) if failure is not None]
    if not failures:
        return [found for _, found in outcomes]
    if any(failure == _INTERRUPTED for _, failure in failures):
        raise interrupt_of_all() from error
    rank, (is_users, cause, text) = failures[0]
    # When every rank meets the same thing (a missing file), where it happened is noise.
    anywhere = len({failure for _, failure in failures}) == 1 and len(failures) == comm.size
    anywhere = anywhere or cause == "data" or (of_data and cause != "machine")
    # A user's mistake is told once: what this rank raised says no more, but what that came from may.
    behind = error.__cause__ if isinstance(error, UserError) else error
    if is_users and anywhere:
        raise UserError(text) from behind
    where = "" if anywhere else f" on rank {rank}"
    raise UserError(f"{doing} failed{where}: {text}") from behind


def agree_on_most(comm: Any, error: BaseException | None, number: int = 0, *, doing: str, of_data: bool = False) -> int:
    """Share a local outcome, as `agree`: the largest number of all ranks, or the same error on all of them.

    Collective. Unless something went wrong, no rank reads what each other one says: with 10⁴ of them that takes longer
    than many a step.
    """
    entering(f"{AFTER}{doing}")
    failed, most = largest_integers(comm, np.array([error is not None, number])).tolist()
    if failed:
        agree(comm, error, doing=doing, of_data=of_data)
    return int(most)


@contextmanager
def together(comm: Any, doing: str, *, of_data: bool = False) -> Iterator[None]:
    """Run a local phase so that an error on one rank, of any kind, is raised on all.  Collective.

    Everything inside must be local: a collective call there would wait for the ranks that failed before it.
    """
    with LocalWork() as work:
        entering(doing)
        check()
        yield
    agree_on_most(comm, work.error, doing=doing, of_data=of_data)


def succeed(comm: Any, work: Callable[[], Found], doing: str, *, of_data: bool = False) -> Found:
    """Do local work, as `together`, without entering a phase; return what it returns on this rank.  Collective."""
    return succeed_with_most(comm, work, lambda _: 0, doing, of_data=of_data)[0]


def succeed_with_most(
    comm: Any, work: Callable[[], Found], number: Callable[[Found], int], doing: str, *, of_data: bool = False
) -> tuple[Found, int]:
    """Do local work, as `succeed`, and return the largest `number` of what any rank finds, too.  Collective."""
    error, outcome = locally(functools.partial(_with_more, work, number))
    found, own = outcome or (None, 0)
    return cast(Found, found), agree_on_most(comm, error, own, doing=doing, of_data=of_data)


def attempt(
    comm: Any,
    work: Callable[[], Found],
    doing: str,
    *,
    share: Callable[[Found], Any] = lambda found: found,
    of_data: bool = False,
) -> tuple[Found, list[Any]]:
    """Do local work, as `succeed`, and share what it finds.  Collective.

    Returned is what `work` has returned on this rank, and a list of what `share` makes of it on every rank, in rank
    order.
    """
    error, outcome = locally(functools.partial(_with_more, work, share))
    found, shared = outcome or (None, None)
    return cast(Found, found), agree(comm, error, shared, doing=doing, of_data=of_data)


def _with_more(work: Callable[[], Found], more: Callable[[Found], Item]) -> tuple[Found, Item]:
    found = work()
    return found, more(found)


def check_same_options(comm: Any, options: Mapping[str, Any]) -> None:
    """Refuse options that differ between ranks, of which each would have a result of its own.  Collective.

    Parameters
    ----------
    options : mapping
        What JSON can hold, or what has a name.

    Raises
    ------
    UserError
        On every rank.
    """
    if comm.size == 1:
        return
    own = {name: json.dumps(value, sort_keys=True, default=str) for name, value in options.items()}
    first = comm.bcast(own)
    with together(comm, "comparing options"):
        for name in first | own:
            if own.get(name) != first.get(name):
                told = f"{first.get(name)} on rank 0 and {own.get(name)} on rank {comm.rank}"
                raise UserError(f"{name} is {told}: pass the same on every rank")


def locally(work: Callable[[], Found]) -> tuple[BaseException | None, Found | None]:
    """Do local work; return what it raises, which must travel with the next gather, and what it returns.

    For where it travels with another one; else there are `succeed` and `attempt`.
    """
    found = None
    with LocalWork() as done:
        check()
        found = work()
    return done.error, found


def announced(steps: Iterable[Item], phase: str = "evaluate", total: int | None = None) -> Iterator[Item]:
    """Yield the steps of a long computation, each entered as a phase: it makes progress, and says so.

    Who is `telling` hears of those whose number is known: given, or that of a range or a list.
    """
    for step in counted(steps, phase, total):
        entering(phase)
        yield step


def counted(steps: Iterable[Item], phase: str = "evaluate", total: int | None = None) -> Iterator[Item]:
    """Yield the steps of a long computation, of which who is `telling` hears; their own steps are phases."""
    if total is None and isinstance(steps, Sized):
        total = len(steps)
    began = time.monotonic()
    for done, step in enumerate(steps, start=1):
        yield step
        if total is not None:
            for teller in _tellers.get():
                teller(phase, done, total, began)


class Course:
    """How far a long computation is that goes through several loops: who is `telling` hears of them as of one.

    Parameters
    ----------
    what : str
        What is counted ("blocks met").
    total : int
        How many of them there are on this rank, in all loops.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._done, self._total, self._began = what, 0, total, time.monotonic()

    def announced(
        self, steps: Iterable[Item], phase: str = "evaluate", weight: Callable[[Item], int] = lambda step: 1
    ) -> Iterator[Item]:
        """Yield steps, each entered as a phase, of which each counts as much as its weight."""
        for step in steps:
            entering(phase)
            yield step
            self._done += weight(step)
            for teller in _tellers.get():
                teller(self._what, self._done, self._total, self._began)


def in_portions(
    comm: Any, portions: Iterable[Item], evaluate: Callable[[Item], Found], *, doing: str
) -> Iterator[list[Found]]:
    """Yield, portion by portion of a long computation, what the ranks find in theirs, in rank order.  Collective.

    The ranks wait for each other after each portion. Where one of them fails, the others need not come to the end of
    theirs; and one that is quicker waits for the difference in one portion only, or a watchdog would take a slow rank
    for one that hangs.

    Every rank has as many `portions`; `evaluate` is local, and where it fails on any rank, all raise a UserError about
    what it was `doing`.
    """
    for portion in portions:
        yield attempt(comm, functools.partial(evaluate, portion), doing, of_data=True)[1]


_INTERRUPTED = (False, "interrupt", "")


def _describe(error: BaseException) -> tuple[bool, str, str]:
    """Return whether an error is the user's, where it comes from if that is known, and what it says."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
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
