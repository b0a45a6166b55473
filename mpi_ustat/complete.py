"""The complete U-statistic of distributed samples: all n·m pairs, exactly, by the route that suits the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.parallel.collectives import send_segments
from mpi_ustat.parallel.exchange import Exchange
from mpi_ustat.parallel.partition import Ordered, block_bounds
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.parallel.runtime import agree, hosted_workers
from mpi_ustat.statistics.exactsum import exact_sum
from mpi_ustat.statistics.kernel import OnePart, as_rows
from mpi_ustat.statistics.kernels import AUC
from mpi_ustat.statistics.rankstat import absolute_difference_sum
from mpi_ustat.statistics.ustat import add

Points = NDArray[np.float64]
_Total = tuple[Any, int]  # scale times the sum over all pairs, and the bytes this rank sent

_SAMPLES_PER_RANGE = 64


@dataclass(frozen=True)
class Complete:
    """A complete statistic.

    Attributes
    ----------
    value : float
        U_n.
    route : {"ranges", "sums", "gather"}
        How it was found.
    bytes_moved : int
        Bytes that went from one rank to another.
    """

    value: float
    route: str
    bytes_moved: int


def complete(comm: Any, x: Exchange, z: Exchange, kernel: OnePart, n_workers: int, streams: Streams) -> Complete:
    """Return U_n, the average of h over all pairs of the distributed samples.  Collective.

    The routes, none of which lets the number of ranks touch the result:

    - ``ranges`` (AUC, Gini): every value moves once, to the one of N score ranges that it lies in; pairs within a range
      are counted there, pairs across ranges follow from the ranges' sizes. O(n log n / P).
    - ``sums`` (product): U_n is the product of the means, whose sums are formed without rounding.
    - ``gather`` (any other): the smaller sample goes to every rank, and each worker pairs its block of the larger one
      with all of it, tile by tile.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    x, z : Exchange
        The samples.
    kernel : Kernel
    n_workers : int
        Ranges, or blocks of the larger sample. Counts and exact sums do not depend on it; floating sums do, in the
        last bits.
    streams : Streams
        Chooses the values that bound the ranges, which affects only the balance of work.
    """
    total, sent = _ROUTES[kernel.complete_route](comm, x, z, kernel, n_workers, streams)
    try:
        value = float(total / (kernel.scale * x.n_rows * z.n_rows))
    except OverflowError:  # of an exact rational sum
        value = math.inf
    return Complete(value, kernel.complete_route, sum(comm.allgather(sent)))


def _by_ranges(comm: Any, x: Exchange, z: Exchange, kernel: OnePart, n_ranges: int, streams: Streams) -> _Total:
    samples = [np.sort(_scalars(sample.rows)) for sample in (x, z)]
    splitters = _splitters(comm, (x, z), n_ranges, streams)
    hosts = block_bounds(n_ranges, comm.size)
    ours = hosted_workers(n_ranges, comm.size, comm.rank)
    sent = 0
    for k, values in enumerate(samples):
        # Side "left" puts all copies of a value into one range, so that ties never cross ranges.
        cuts = np.concatenate([[0], np.searchsorted(values, splitters, side="left"), [len(values)]])
        counts = np.diff(cuts[hosts])
        received = np.concatenate(send_segments(comm, values, counts))
        sent += values.itemsize * (len(values) - int(counts[comm.rank]))
        received.sort()
        samples[k] = received
    if isinstance(kernel, AUC):
        return _count_by_rank(comm, samples[0], samples[1], kernel), sent
    inner = splitters[ours.start : max(ours.stop - 1, ours.start)]
    ranges = list(zip(*(np.split(s, np.searchsorted(s, inner, side="left")) for s in samples), strict=True))
    return _differences_by_range(comm, ranges[: len(ours)], x.n_rows, z.n_rows), sent


def _count_by_rank(comm: Any, x: Points, z: Points, kernel: AUC) -> int:
    """Add up integer counts: pairs within each rank's stretch of the scores, and of its x with all lower z."""
    sizes = comm.allgather((len(x), len(z)))
    z_below = sum(size[1] for size in sizes[: comm.rank])
    return sum(comm.allgather(kernel.sorted_total(x, z) + 2 * len(x) * z_below))


def _differences_by_range(comm: Any, ranges: list[tuple[Points, Points]], n: int, m: int) -> float:
    """Add up the ranges' shares of Σ|x - z| in the order of the ranges."""
    facts = [(len(x), len(z), _lowest(x, z)) for x, z in ranges]
    everyone = comm.allgather(facts)
    known = [fact for facts_of_rank in everyone for fact in facts_of_rank]
    position = sum(len(facts_of_rank) for facts_of_rank in everyone[: comm.rank])
    shares = []
    for j, (x, z) in enumerate(ranges, start=position):
        above = [fact[2] for fact in known[j + 1 :] if fact[2] is not None]
        if len(x) or len(z):
            shares.append(
                absolute_difference_sum(
                    x,
                    z,
                    x_before=sum(fact[0] for fact in known[:j]),
                    z_before=sum(fact[1] for fact in known[:j]),
                    n=n,
                    m=m,
                    next_value=above[0] if above else None,
                )
            )
    return float(add(share for shares_of_rank in comm.allgather(shares) for share in shares_of_rank))


def _lowest(x: Points, z: Points) -> float | None:
    return min((float(values[0]) for values in (x, z) if len(values)), default=None)


def _splitters(comm: Any, samples: tuple[Exchange, ...], n_ranges: int, streams: Streams) -> Points:
    """Return n_ranges - 1 values that cut the pooled samples into ranges of about equal size.

    They are quantiles of rows drawn by global number, so they don't depend on how the rows lie over the ranks.
    """
    drawn = []
    for k, sample in enumerate(samples):
        size = -(-_SAMPLES_PER_RANGE * n_ranges * sample.n_rows // sum(each.n_rows for each in samples))
        rows = streams.open(f"splitters of sample {k}").integers(sample.n_rows, size)
        own = rows[(rows >= sample.first_row) & (rows < sample.first_row + len(sample.rows))] - sample.first_row
        drawn.append(_scalars(sample.rows)[own])
    pooled = np.sort(np.concatenate(comm.allgather(np.concatenate(drawn))))
    return pooled[block_bounds(len(pooled), n_ranges)[1:-1]]


def _from_sums(comm: Any, x: Exchange, z: Exchange, kernel: OnePart, n_workers: int, streams: Streams) -> _Total:
    sums = []
    for sample in (x, z):
        rows = as_rows(sample.rows)
        sums.append([exact_sum(rows[:, j]) for j in range(rows.shape[1])])
    everyone = comm.allgather(sums)
    columns_x, columns_z = (zip(*(rank[k] for rank in everyone), strict=True) for k in (0, 1))
    return sum(sum(a) * sum(b) for a, b in zip(columns_x, columns_z, strict=True)), 0


def _gather_smaller(comm: Any, x: Exchange, z: Exchange, kernel: OnePart, n_workers: int, streams: Streams) -> _Total:
    small, large = (z, x) if z.n_rows <= x.n_rows else (x, z)
    whole = np.concatenate([rows for rows in comm.allgather(small.rows) if len(rows)])
    before = large.bytes_sent
    blocks = large.blocks(Ordered(block_bounds(large.n_rows, n_workers), None))
    error, totals = None, []
    try:
        totals = [kernel.block_total(*((b, whole) if large is x else (whole, b))) for b in blocks if len(b)]
    except BaseException as caught:
        error = caught
    everyone = agree(comm, error, totals, doing=f"evaluating the kernel {kernel.name}")
    sent = large.bytes_sent - before + (comm.size - 1) * small.rows.nbytes
    return add(total for rank in everyone for total in rank), sent


def _scalars(rows: Points) -> Points:
    return rows.reshape(-1)


_ROUTES: dict[str, Callable[..., _Total]] = {"ranges": _by_ranges, "sums": _from_sums, "gather": _gather_smaller}
