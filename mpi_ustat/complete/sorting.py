"""Sorting distributed numbers: each goes to the rank that hosts its range of values, and is sorted there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import add_integers, gather_rows, send_segments
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import entering, hosted_workers
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import block_bounds

SAMPLES_PER_RANGE = 64
"""Numbers that are drawn for each range, of which one in so many is a splitter."""


def splitters(comm: Any, samples: Sequence[Exchange], n_ranges: int, streams: Streams) -> Floats:
    """Return n_ranges - 1 values that cut the pooled samples into ranges of about equal size.  Collective.

    They are quantiles of rows drawn by global number, so they don't depend on how the rows lie over the ranks.
    """
    drawn = []
    for k, sample in enumerate(samples):
        size = -(-SAMPLES_PER_RANGE * n_ranges * sample.n_rows // sum(each.n_rows for each in samples))
        rows = streams.open(f"splitters of sample {k}").integers(sample.n_rows, size)
        own = rows[(rows >= sample.first_row) & (rows < sample.first_row + len(sample.rows))] - sample.first_row
        drawn.append(sample.rows.reshape(-1)[own])
    pooled = np.sort(gather_rows(comm, np.concatenate(drawn)))
    return pooled[block_bounds(len(pooled), n_ranges)[1:-1]]


def exchange_runs(comm: Any, samples: Sequence[Exchange], splitters: Floats) -> tuple[list[Runs], int]:
    """Bring every number to the rank that hosts its range, in order, and return the bytes sent.  Collective.

    Ranges are hosted as workers are, in contiguous runs. A splitter belongs to the range above it, so that all copies
    of a number come to one rank. They come joined, as (value, count), if that lessens what the fullest rank receives: a
    run takes 16 bytes, a number 8. A column of one value then needs 16 bytes from each rank.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Exchange
        Of single numbers, without NaN.
    splitters : ndarray, shape (N - 1,)
        Ascending.

    Returns
    -------
    list of Runs
        Of each sample, the numbers in this rank's ranges. On all ranks they are joined, or on none; which one depends
        on the number of ranks, so sums that are rounded should be taken over `Runs.distinct`.
    int
        Bytes that this rank sent to others.
    """
    entering("exchange")
    hosts = block_bounds(len(splitters) + 1, comm.size)
    own = [np.sort(sample.rows.reshape(-1)) for sample in samples]
    loads = [_loads(values, _cuts(values, splitters, hosts)) for values in own]
    fullest = add_integers(comm, np.array(loads)).max(axis=2)
    stretches, sent = [], 0
    for values, (n_values, n_runs) in zip(own, fullest.tolist(), strict=True):
        runs = Runs(values).distinct() if 2 * n_runs < n_values else Runs(values)
        stretch, n_bytes = _send(comm, runs, np.diff(_cuts(runs.values, splitters, hosts)))
        stretches.append(stretch)
        sent += n_bytes
    return stretches, sent


def hosted_ranges(comm: Any, stretch: Runs, splitters: Floats) -> list[Runs]:
    """Cut what an exchange brought to this rank into the ranges that it hosts, in order; none if it hosts none."""
    ours = hosted_workers(len(splitters) + 1, comm.size, comm.rank)
    return stretch.cut(splitters[ours.start : max(ours.stop - 1, ours.start)])[: len(ours)]


def _cuts(values: Floats, splitters: Floats, hosts: Ints) -> Ints:
    # Side "left" puts all copies of a value into one range, so that ties never cross ranges.
    return np.concatenate([[0], np.searchsorted(values, splitters, side="left"), [len(values)]])[hosts]


def _loads(values: Floats, cuts: Ints) -> Ints:
    """Return how many values, and how many distinct ones, go to each rank, shape (2, P)."""
    n_values = np.diff(cuts)
    repeats = np.flatnonzero(~starts_of_runs(values))  # all copies of a value go to one rank
    return np.stack([n_values, n_values - np.diff(np.searchsorted(repeats, cuts))])


def _send(comm: Any, runs: Runs, n_each: Ints) -> tuple[Runs, int]:
    """Send the first n_each[0] runs to rank 0, and so on; return what comes here, in order, and the bytes sent."""
    if comm.size == 1:
        return runs, 0
    away = len(runs.values) - int(n_each[comm.rank])
    values = np.concatenate(send_segments(comm, runs.values, n_each))
    if runs.counts is None:
        values.sort()
        return Runs(values), 8 * away
    counts = np.concatenate(send_segments(comm, runs.counts, n_each))
    order = np.argsort(values)
    starts = np.flatnonzero(starts_of_runs(values[order]))
    return Runs(values[order[starts]], np.add.reduceat(counts[order], starts)), 16 * away
