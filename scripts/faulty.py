"""The command mpi-ustat with a fault on purpose, to test that jobs fail as one.

    MPI_USTAT_FAULT=exchange:2:1:hang mpiexec -n 4 python scripts/faulty.py estimate …

The variable, phase:count:rank:kind, makes a rank fail when it enters a phase for the count-th time, the first being 1.
The kinds are in `KINDS`, the phases in `PHASES`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import mock

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.launch import launched_size
from mpi_ustat.mpi.runtime import listening

VARIABLE = "MPI_USTAT_FAULT"

PHASES: dict[str, Callable[[str], bool]] = {
    "load": lambda name: name.startswith("reading ") and "checkpoint" not in name,
    "partition": lambda name: name in ("partition", "repartition"),
    "exchange": lambda name: name in ("exchange", "repartition"),
    "evaluate": lambda name: name in ("evaluate", "gradient"),
    "reduce": lambda name: name == "reduce",
    "checkpoint": lambda name: name.startswith("writing ") and ("checkpoint" in name or name.endswith(".partial.h5")),
    "write": lambda name: name.startswith("writing ") and not PHASES["checkpoint"](name),
}
"""Which of the names that `mpi_ustat.mpi.runtime.entering` hears belong to a phase."""


@dataclass(frozen=True)
class Fault:
    """At the `count`-th entry into `phase`, `rank` meets something of a `kind`."""

    phase: str
    count: int
    rank: int
    kind: str


@contextmanager
def faults(rank: int, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Let happen on a rank what the environment asks for, as long as the context lasts."""
    fault = parse(environ.get(VARIABLE, ""))
    seen = 0
    with ExitStack() as until_the_end:

        def entered(name: str) -> None:
            nonlocal seen
            if rank == fault.rank and PHASES[fault.phase](name):
                seen += 1
                if seen == fault.count:
                    KINDS[fault.kind](until_the_end)

        until_the_end.enter_context(listening(entered))
        yield


def parse(text: str) -> Fault:
    """Return the fault that a text like ``exchange:2:1:hang`` describes.

    Raises
    ------
    UserError
        If it describes none.
    """
    words = text.split(":")
    if len(words) != 4 or not (words[1].isdecimal() and words[2].isdecimal()):
        raise UserError(f"{VARIABLE} is '{text}': give it as phase:count:rank:kind")
    for word, known in ((words[0], PHASES), (words[3], KINDS)):
        if word not in known:
            raise UserError(f"{VARIABLE} is '{text}': '{word}' is none of {', '.join(known)}")
    return Fault(words[0], int(words[1]), int(words[2]), words[3])


def _raise(_: ExitStack) -> None:
    raise RuntimeError("a fault on purpose")


def _exit(_: ExitStack) -> None:
    sys.exit(0)


def _hang(_: ExitStack) -> None:
    while True:
        time.sleep(1.0)


def _hold(_: ExitStack) -> None:
    """Hang like code that never gives Python's lock back: no other thread of Python runs any more."""
    while True:
        ctypes.PyDLL(None).sleep(3600)


def _stop(_: ExitStack) -> None:
    """Hang like a host that has died: nothing of this process runs any more."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _kill(_: ExitStack) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _full(until_the_end: ExitStack) -> None:
    """Let the disk be full from now on: it takes what is written, and turns out to have no room when that is synced."""

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    until_the_end.enter_context(mock.patch.object(os, "fsync", no_room))


def _readonly(until_the_end: ExitStack) -> None:
    """Let no file be opened for writing from now on, as after a disk error."""
    original = os.open

    def refused(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return original(path, flags, *arguments, **options)

    until_the_end.enter_context(mock.patch.object(os, "open", refused))


KINDS: dict[str, Callable[[ExitStack], None]] = {
    "raise": _raise,
    "exit": _exit,
    "hang": _hang,
    "hold": _hold,
    "stop": _stop,
    "kill": _kill,
    "full": _full,
    "readonly": _readonly,
}
"""An exception, sys.exit(0), three ways to hang, SIGKILL, a full disk, a read-only one."""


def main() -> NoReturn:
    """Run the command; signals that come while it is loaded are held back."""
    from mpi_ustat.__main__ import console

    with faults(launched_size()[1]):
        console()


if __name__ == "__main__":
    main()
