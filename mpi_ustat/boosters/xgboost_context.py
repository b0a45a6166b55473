"""XGBoost's tracker and collective under mpiexec, as a context that all ranks leave together."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.collectives import on_any_rank
from mpi_ustat.mpi.launch import leave_together, ranks_on_this_host
from mpi_ustat.mpi.runtime import agree, attempt, succeed

_SECONDS_TO_END = 10


@contextmanager
def xgboost_context(
    comm: Any, *, host: str | None = None, timeout: int = 300, patience: float | None = 60.0
) -> Iterator[None]:
    """Let XGBoost train over the ranks of a communicator, as long as the context lasts.  Collective.

    Rank 0 starts XGBoost's tracker, and every rank joins its collective, under the number that it has in `comm`. One
    rank alone needs neither, and trains as ever.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    host : str, optional
        The address of rank 0's host that the others reach. By default 127.0.0.1 if all ranks are on one host, otherwise
        what XGBoost finds.
    timeout : int
        Seconds that XGBoost waits for ranks to join, and a rank for another one in a collective operation.
    patience : float or None
        Seconds that a rank that fails waits for the others to leave, before it ends the job; None: no end.

    Raises
    ------
    UserError
        On every rank, if it can't be started, or if what is done in the context fails on any rank: XGBoost lets the
        others fail in their next step, and the sentence is about the rank that failed first.
    """
    found = succeed(comm, _parts_of_xgboost, "importing XGBoost")
    if comm.size == 1:
        yield
        return
    here = host or ("127.0.0.1" if ranks_on_this_host(comm) == comm.size else None)
    tracker: list[Any] = []

    def start() -> dict[str, Any]:
        if comm.rank > 0:
            return {}
        tracker.append(found.tracker(comm.size, here, sortby="task", timeout=timeout))
        tracker[0].start()
        return dict(tracker[0].worker_args())

    error: BaseException | None = None
    try:
        arguments = attempt(comm, start, "starting XGBoost's tracker")[1][0]
        joined = found.context(**arguments, dmlc_task_id=f"{comm.rank:08d}", dmlc_timeout=timeout)
        try:
            succeed(comm, joined.__enter__, "joining XGBoost's collective")
            yield
        except BaseException as failure:
            error = failure
        try:
            joined.__exit__()  # breaks the connections, on which others that wait for this rank fail, too
        except found.error as failure:
            error = error or failure
        _leave(comm, error, patience)
    finally:
        for each in tracker:
            with suppress(found.error):
                each.wait_for(timeout=_SECONDS_TO_END)
            with suppress(found.error):
                each.free()


class _Parts(NamedTuple):
    """What is used of XGBoost."""

    tracker: Any
    context: Any
    error: type[Exception]


def _parts_of_xgboost() -> _Parts:
    try:
        from xgboost.collective import CommunicatorContext
        from xgboost.core import XGBoostError
        from xgboost.tracker import RabitTracker
    except ImportError as error:
        raise UserError(
            f"XGBoost 2.1 or later can't be imported ({error}): pip install 'mpi_ustat[boosters]'"
        ) from error
    return _Parts(RabitTracker, CommunicatorContext, XGBoostError)


def _leave(comm: Any, error: BaseException | None, patience: float | None) -> None:
    """Wait for the other ranks, and raise on all what went wrong first on any.  Collective."""

    def last_words() -> None:
        traceback.print_exception(error, file=sys.stderr)

    leave_together(comm, 0, patience=None if error is None else patience, last_words=last_words)
    first = None if _is_of_another_rank(error) else error
    any_first = on_any_rank(comm, first is not None)
    agree(comm, first if any_first else error, doing="training with XGBoost")


def _is_of_another_rank(error: BaseException | None) -> bool:
    """Tell whether an error is XGBoost's about a rank that it can't reach, so that another one has failed before."""
    return error is not None and type(error).__name__ == "XGBoostError" and "src/collective/" in str(error)
