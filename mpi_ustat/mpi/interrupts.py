"""Interrupts (Ctrl-C) of ranks that act together: one that leaves alone lets the others wait for ever.

So an interrupt is raised where it arrives only while a rank is busy with local work whose failure travels to the others
anyway; elsewhere it waits for the next such place. A second one is raised wherever it arrives.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from mpi_ustat.errors import UserError

_ON_ALL_RANKS = "on all ranks"

_local = False  # busy with local work
_pending = False


def receive(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt here, or keep it for the next local work."""
    global _pending
    # On its way out of local work an interrupt would miss those who pass it on.
    leaving = frame is not None and frame.f_code is LocalWork.__exit__.__code__
    if _pending or (_local and not leaving):
        _pending = False
        raise KeyboardInterrupt
    _pending = True


def check() -> None:
    """Raise the interrupt that has come meanwhile, if there is one; to be called in local work only."""
    global _pending
    if _pending:
        _pending = False
        raise KeyboardInterrupt


def forget() -> None:
    """Forget an interrupt that has come and was not raised."""
    global _pending
    _pending = False


@contextmanager
def deferred() -> Iterator[None]:
    """Let interrupts wait for local work, as long as the context lasts; one that is left is raised at its end.

    Only where Python's own handler is there: whoever has put another one in its place knows what it does.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        check()


def interrupt_of_all(detail: str = "") -> KeyboardInterrupt:
    """Return an interrupt that is raised on all ranks at the same place; `detail` ends a sentence about it."""
    return KeyboardInterrupt(_ON_ALL_RANKS, *[detail] * bool(detail))


def is_of_all(error: BaseException) -> bool:
    """Tell whether an interrupt is raised on all ranks at the same place."""
    return error.args[:1] == (_ON_ALL_RANKS,)


class LocalWork:
    """A context that keeps what is raised in it, to travel to the other ranks with the next gather.

    A process that user code forks in it, and that comes out of it too, ends there: it must not take part in anything.
    MPI can't be finalised in it: a rank that did so alone would wait for the others as they for it.
    """

    __slots__ = ("_finalize", "_mpi", "_outer", "_process", "error")
    _mpi: Any

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> LocalWork:
        global _local
        self._process, self._outer = os.getpid(), _local
        self._mpi = sys.modules.get("mpi4py.MPI")
        if self._mpi is not None:
            self._finalize, self._mpi.Finalize = self._mpi.Finalize, _refuse_to_finalize
        _local = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        global _local, _pending
        _local = self._outer
        if self._mpi is not None:
            self._mpi.Finalize = self._finalize
        if os.getpid() != self._process:
            _leave_child(error)
        if _pending:
            _pending, error = False, KeyboardInterrupt()
        self.error = error
        return True


def _refuse_to_finalize() -> NoReturn:
    raise UserError("MPI.Finalize is called by code that runs inside the job: leave it out, mpi4py calls it at the end")


def _leave_child(error: BaseException | None) -> None:
    """End a process that was forked, without what its parent does at its end, such as leaving MPI."""
    code: Any = 0
    with suppress(Exception):
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code
            if not isinstance(code, int):
                code = 1
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
    os._exit(code & 0xFF)
