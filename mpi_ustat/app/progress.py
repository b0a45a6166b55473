"""Progress on the master's stderr: a bar on a terminal, otherwise a plain line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

_SECONDS_BETWEEN_LINES = 10.0


def progress(comm: Any, items: Iterable[Item], total: int, what: str, *, quiet: bool = False) -> Iterator[Item]:
    """Yield `items`, showing on rank 0 how many of `total` are done.

    Under mpiexec stderr is a pipe, where a bar would print thousands of lines: there one plain line is written, at most
    every 10 seconds, so that short runs print none.
    """
    if quiet or comm.rank != 0:
        yield from items
    elif sys.stderr.isatty():
        yield from tqdm(items, total=total, unit=what, leave=False)
    else:
        last = time.monotonic()
        for done, item in enumerate(items, start=1):
            yield item
            if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                print(f"{what} {done} of {total}", file=sys.stderr, flush=True)
