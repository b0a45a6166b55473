"""Progress on the master's stderr: a bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from mpi_ustat.mpi.launch import library_version
from mpi_ustat.mpi.limits import duration
from mpi_ustat.mpi.runtime import AFTER, listening, telling
from mpi_ustat.wording import count_of

Item = TypeVar("Item")

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BEFORE_THE_FIRST = 1.0
_LONG = 120.0
"""Seconds: who has to wait longer hears it at the start."""


def progress(
    comm: Any, items: Iterable[Item], total: int | None, what: str, *, quiet: bool = False, seldom: bool = False
) -> Iterator[Item]:
    """Yield `items`, showing on rank 0 how many are done, of `total`, if it is known.

    Under mpiexec stderr is a pipe, where a bar would print thousands of lines: there one plain line is written, at most
    every 10 seconds, so that short runs print none; `seldom`, for a program that reads the result, every minute.
    """
    if quiet or comm.rank != 0:
        yield from items
    elif sys.stderr.isatty() and not seldom:
        from tqdm import tqdm

        yield from tqdm(items, total=total, unit=what, leave=False)
    else:
        teller = _Lines(seldom)
        began = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            teller(what, done, total, began)


def told(comm: Any, *, quiet: bool = False, seldom: bool = False) -> AbstractContextManager[None]:
    """Show on rank 0, as long as the context lasts, how far computations of many steps are, if they take long."""
    return nullcontext() if quiet or comm.rank != 0 else telling(_Lines(seldom))


@contextmanager
def told_in_full(comm: Any) -> Iterator[None]:
    """Show on rank 0, as long as the context lasts, each phase as it begins and how far it is, every second."""
    if comm.rank != 0:
        yield
        return
    began = time.monotonic()
    library = library_version(comm).splitlines()[:1] or ["no MPI library"]
    print(f"{'':>9}   {count_of(comm.size, 'rank')}, the first on {os.uname().nodename}; {library[0]}", file=sys.stderr)
    with listening(_Phases(began)), telling(_Lines(False, between=1.0)):
        yield
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    seconds = f"{time.monotonic() - began:9.3f}"
    print(f"{seconds} s done; the first rank has had {peak / 1e6:.0f} MB of memory", file=sys.stderr, flush=True)


class _Phases:
    """Writes when a phase begins: one that comes again and again, once a second at most."""

    def __init__(self, began: float) -> None:
        self._began, self._phase = began, ""
        self._told: dict[str, float] = {}

    def __call__(self, phase: str) -> None:
        now, before = time.monotonic(), self._phase
        if phase.startswith(AFTER) or phase == before:
            return
        self._phase = phase
        if now - self._told.get(phase, -math.inf) >= 1.0:
            self._told[phase] = now
            print(f"{now - self._began:9.3f} s {phase}", file=sys.stderr, flush=True)


class _Lines:
    """Writes how much is done, and how long the rest will take: now and then, and first when that is long."""

    def __init__(self, seldom: bool, between: float = _SECONDS_BETWEEN_LINES) -> None:
        self._last = 0.0
        self._between = between * (6.0 if seldom else 1.0)

    def __call__(self, what: str, done: int, total: int | None, began: float) -> None:
        now = time.monotonic()
        to_go = 0.0 if total is None else (now - began) / done * (total - done)
        first = self._last < began and now - began > _SECONDS_BEFORE_THE_FIRST and to_go > _LONG
        if first or now - max(began, self._last) >= self._between:
            self._last = now
            rest = "" if total is None else f" of {total}"
            rest += f", about {duration(to_go)} to go" if to_go else ""
            print(f"{what} {done}{rest}", file=sys.stderr, flush=True)
