"""What a run would take: refused, in one sentence, where no rank has so much memory or nobody so much time."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.launch import ranks_on_this_host

MOST_SECONDS = 30 * 86400.0
"""What would take longer than a month is taken for a mistake."""

_SMALL = 1 << 28
"""Bytes that every machine has: less is not compared."""

_CGROUP = "/sys/fs/cgroup/memory.max"


def refuse_beyond_memory(comm: Any, n_bytes: float, what: str, remedy: str) -> None:
    """Refuse what needs more bytes on a rank than its host has for each.  Collective; all give the same number."""
    if n_bytes <= _SMALL:
        return
    there_are = min(comm.allgather(memory_here() // ranks_on_this_host(comm)))
    if n_bytes > there_are:
        raise UserError(
            f"{what} would take about {n_bytes / 1e9:.3g} GB on every rank, which has {there_are / 1e9:.3g}: {remedy}"
        )


def refuse_beyond_a_month(comm: Any, seconds: float, what: str, remedy: str) -> None:
    """Refuse what takes the slowest rank longer than anybody waits, to judge by a small share of it.  Collective."""
    slowest = max(comm.allgather(seconds))
    if slowest > MOST_SECONDS:
        raise UserError(f"{what} would take about {duration(slowest)}, to judge by the first of it: {remedy}")


def memory_here() -> int:
    """Return the bytes of memory of this host, or of the group of processes that this one is confined to."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError), open(_CGROUP) as file:  # "max" is no number
        found = min(found, int(file.read()))
    return found


def duration(seconds: float) -> str:
    """Return a time in the unit that people would take."""
    for unit, name in ((365.25 * 86400.0, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2.0 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} seconds"
