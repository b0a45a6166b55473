"""How long a complete statistic takes: parts of the rows of each rank are timed, larger and larger ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_ustat.complete import complete
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import attempt
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats

LONG_ENOUGH = 0.02  # seconds after which a block needs no larger one to be timed
REPEATS = 3

_MEASURED_ROWS = 1 << 17  # of each rank and sample
_FEWEST_ROWS = 4  # with fewer there is no pair within a sample, or no error bar


@dataclass(frozen=True)
class TimedPart:
    """What the complete statistic of a part of the rows took.

    Attributes
    ----------
    share : float
        Of the rows of each rank.
    sizes : tuple of int
        Rows of each sample, of all ranks.
    seconds : float
        Of the slowest rank.
    bytes_moved : float
        From one rank to another.
    """

    share: float
    sizes: tuple[int, ...]
    seconds: float
    bytes_moved: float


def timed_parts(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    n_blocks: Callable[[Sequence[int]], int],
    *,
    smallest: int,
    growth: float = 4.0,
    components: bool = True,
) -> Iterator[TimedPart]:
    """Yield what parts of the rows take, larger and larger ones.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Exchange
    kernel : Kernel
    streams : Streams
    n_blocks : callable
        Into how many blocks samples of given sizes are cut.
    smallest : int
        Rows of each rank and sample, of the first part.
    growth : float
        How many times as large as the one before the next is.
    components : bool
        Whether they are wanted.
    """
    largest = max(comm.allgather(max(len(each.rows) for each in samples)))
    limit, repeats, share = float(smallest), REPEATS, 0.0
    fewest = max(_FEWEST_ROWS, *kernel.degrees)
    while share < 1.0 and limit <= 4 * _MEASURED_ROWS:
        share = min(1.0, limit / largest)
        numbers = [max(math.ceil(share * n), min(n, fewest)) for n in (len(each.rows) for each in samples)]
        rows = [each.rows[:n] for each, n in zip(samples, numbers, strict=True)]
        sizes = tuple(np.sum(comm.allgather([len(each) for each in rows]), axis=0).tolist())
        blocks = n_blocks(sizes)
        parts, moved = [Exchange(comm, each, blocks) for each in rows], [0.0]

        def run(parts: list[Exchange] = parts, moved: list[float] = moved, blocks: int = blocks) -> None:
            moved[0] = float(complete(comm, parts, kernel, blocks, streams, components=components).bytes_moved)

        seconds = slowest(comm, kernel, run, repeats)
        yield TimedPart(share, sizes, seconds, moved[0])
        repeats = 1 if seconds > LONG_ENOUGH else REPEATS
        limit *= growth


def slowest(comm: Any, kernel: Kernel, run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Return the median over repeats of the slowest rank's seconds.  Collective."""

    def timed() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    seconds = []
    for _ in range(repeats):
        comm.barrier()
        # One rank's points may be the only ones that the kernel fails on.
        _, taken = attempt(comm, timed, f"evaluating the kernel {kernel.name}", of_data=True)
        seconds.append(max(taken))
    return float(np.median(seconds))


def some(rows: Floats, n_rows: int) -> Floats:
    """Return so many of the rows, the first ones again and again if there are fewer: for timing alone."""
    if len(rows) >= n_rows:
        return rows[:n_rows]
    source = rows if len(rows) else np.ones((1, *rows.shape[1:]))
    return np.take(source, np.arange(n_rows) % len(source), axis=0)
