"""What signals mean to a command: to stop with a checkpoint, an interrupt on all ranks, or what they always mean.

They are held back while it starts: MPI replaces some handlers (MPICH that of SIGUSR1, its network layer UCX that of
SIGHUP), can't be interrupted, and what a signal means is known only when the arguments are.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

_STOPS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP)
_HELD = (*_STOPS, signal.SIGINT)

_asked = False


def hold() -> None:
    """Hold signals back until `handled`; they are not lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)


def stop_requested() -> bool:
    """Tell whether a signal has asked for a stop: a handler runs between MPI calls only, so ranks share that."""
    return _asked


def _ask(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True


@contextmanager
def handled(*, stops: bool, alone: bool) -> Iterator[None]:
    """Let signals mean what they do to a command, as long as the context lasts.

    Parameters
    ----------
    stops : bool
        Whether the command keeps checkpoints: then SIGUSR1, SIGTERM and SIGHUP ask for a stop, otherwise they end it.
        An ignored SIGHUP or SIGINT (nohup, the background) stays so.
    alone : bool
        Whether there are no other ranks, who would wait for one that is interrupted.
    """
    from mpi_ustat.mpi.interrupts import deferred, forget

    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked = False
    wanted: dict[int, Any] = dict.fromkeys(_STOPS, _ask) if stops else {}
    if not stops or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        wanted[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)  # which MPI may have replaced
    previous = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    # Alone, with nothing to keep whole, it may be interrupted wherever it is.
    with nullcontext() if alone and not stops else deferred():
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
            yield
        finally:
            forget()  # what came after the last work is done
            for number, handler in previous.items():
                signal.signal(number, handler)
