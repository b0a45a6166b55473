"""Ends a job that makes no progress: a rank that hangs would let the others wait for it for ever."""

from __future__ import annotations

import faulthandler
import linecache
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.launch import end_job
from mpi_ustat.mpi.runtime import AFTER, listening

_PATIENCE = 0.3, 0.25, 2.0
"""Seconds that a rank which waits for others lets them speak first: at least, more for each rank number, at most."""

_LAST_RESORT = 0.5
"""Seconds, after all others have spoken, at which a process ends that can't run Python any more."""

_MOST_SECONDS = 1e8  # three years: clocks count further, but not for ever

_MPI_CALL = re.compile(r"\b_?comm\.\w+\(|\b(Wait|Waitall|Test)\(")


@contextmanager
def watched(comm: Any, seconds: float) -> Iterator[None]:
    """End the job when a rank enters no phase for so many seconds, as long as the context lasts.  Collective.

    Every rank watches itself. One that hangs says so and ends the job. Those that wait for it in a collective call
    make no progress either; they speak a moment later, in case it can't: it may be stopped, its host or its link dead.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    seconds : float
        More than the longest phase may take; 0: for ever.

    Raises
    ------
    UserError
        If that is not a number of seconds.
    """
    if not 0.0 <= seconds <= _MOST_SECONDS:
        raise UserError(f"the timeout is {seconds:g} s: give a number of seconds, 0 for none")
    if seconds == 0.0:
        yield
        return
    watchdog = _Watchdog(comm, seconds)
    with listening(watchdog):
        watchdog.start()
        try:
            yield
        finally:
            watchdog.stop()


class _Watchdog:
    """Told of every phase, it watches the thread that made it from another one.

    That thread runs while the watched one computes in Python, sleeps, reads, or is inside MPI. Only code that keeps
    Python's lock for itself stops it too; then `faulthandler`, which needs no lock, writes where that is and ends the
    process.
    """

    def __init__(self, comm: Any, seconds: float) -> None:
        self._comm, self._seconds = comm, seconds
        self._progress = (time.monotonic(), "start")
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        # Arming faulthandler starts a thread, too much for steps of 200 µs; once in a while will do.
        self._rearm_after, self._armed = seconds / 10, -math.inf
        others = _PATIENCE[-1] if comm.size > 1 else 0.0
        self._last_resort = seconds + self._rearm_after + others + _LAST_RESORT

    def __call__(self, phase: str) -> None:
        now = time.monotonic()
        self._progress = (now, phase)
        if now - self._armed > self._rearm_after:
            self._armed = now
            faulthandler.dump_traceback_later(self._last_resort, exit=True, file=2)

    def start(self) -> None:
        self(self._progress[1])
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        while True:
            progress = self._progress
            if self._over.wait(max(0.0, progress[0] + self._seconds - time.monotonic())):
                return
            if self._progress is not progress:
                continue
            frame = sys._current_frames()[self._watched]
            waits = self._comm.size > 1 and _in_mpi(frame)
            if waits:
                least, each, most = _PATIENCE
                if self._over.wait(min(least + each * self._comm.rank, most)):
                    return
                if self._progress is not progress:
                    continue
            self._end(progress[1], frame, waits)
            return

    def _end(self, phase: str, frame: FrameType, waits: bool) -> None:
        rank = f" on rank {self._comm.rank}" if self._comm.size > 1 else ""
        when = phase if phase.startswith(AFTER) else f"in phase '{phase}'"
        code = frame.f_code
        where = f"{os.path.basename(code.co_filename)}, line {frame.f_lineno}, in {code.co_name}"
        if waits:
            why = "it waits for other ranks, of which one hangs, or a host or a link is dead"
        else:
            why = "give a longer --timeout if it needs longer"
            if phase.startswith("reading "):
                why += ", or check the file: it may be damaged"
        text = f"mpi-ustat: no progress for {self._seconds:g} s{rank} {when} ({where}): {why}\n"
        # One write, past all locks, which the watched thread may hold.
        os.write(2, text.encode(errors="replace"))
        with open(os.devnull, "w") as nowhere:  # MPI may hang too
            faulthandler.dump_traceback_later(_LAST_RESORT, exit=True, file=nowhere)
            end_job(self._comm, 1)


def _in_mpi(frame: FrameType) -> bool:
    """Tell whether a thread is in a call of MPI, as far as the line in its innermost Python frame shows.

    MPI's calls have no frames of their own.
    """
    return _MPI_CALL.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)) is not None
