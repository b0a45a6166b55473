"""The complete energy distance or MMD of distributed samples: every rank sweeps its share of the tiles of all pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from mpi_ustat.kernels.discrepancy import (
    Discrepancy,
    Strip,
    estimate_variance,
    finite,
    n_tiles,
    pair_sums,
    strips,
    sweep,
)
from mpi_ustat.kernels.kernel import Local, Whole, as_pair
from mpi_ustat.mpi.collectives import add_integers, gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import Course, in_portions
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

_PORTION = 1 << 31  # coordinates of pairs that a rank goes through before it waits for the others: a second or so


def energy(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Discrepancy,
    n_workers: int,
    streams: Streams,
    *,
    components: bool = True,
) -> Whole:
    """Return the sums over all pairs, and from 4 points a sample on the estimated variance.  Collective.

    Without `components` there is no variance, and the work is five sixths.

    Both samples go to every rank, O((n + m) d) memory, for O((n + m)² d / P) work: the pairs are cut into strips of a
    grid that depends on the samples alone, which are dealt out to the ranks and swept in portions. Sums of tiles are
    added as rational numbers and each point's sums as integers on a grid, so neither the number of ranks nor that of
    workers changes a bit: the result is that of one sweep over the whole samples.

    Raises
    ------
    UserError
        On every rank, if the points of the samples have different numbers of coordinates.
    """
    variance = components and min(sample.n_rows for sample in samples) >= 4
    x, z = as_pair(*(gather_rows(comm, sample.rows) for sample in samples))
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in samples)
    points = np.zeros((2, len(x) + len(z) if variance else 0), dtype=np.int64)

    def tiles(strip: Strip) -> int:
        return n_tiles(strip, len(x), len(z))

    def swept(portion: list[Strip]) -> list[Fraction | float]:
        moments = sweep(kernel, x, z, course.announced(portion, weight=tiles), variance=variance)
        np.add(points, moments.points, out=points)
        return [_exact(each) for each in (*moments.totals, *moments.squares)]

    work = math.comb(len(x) + len(z), 2) * max(x.shape[1], z.shape[1], 8)
    portions = _portions(strips(len(x), len(z)), work, comm.size, comm.rank)
    course = Course("tiles done", sum(map(tiles, itertools.chain.from_iterable(portions))))
    found = [*in_portions(comm, portions, swept, doing=f"evaluating the kernel {kernel.name}")]
    joined = [_rounded(sum(each)) for each in zip(*(own for of_ranks in found for own in of_ranks), strict=True)]
    sums = pair_sums(joined[:3], len(x), len(z))
    if not variance:
        return Whole(Local(sums, None), sent)
    points = add_integers(comm, points)
    sent += points.nbytes if comm.size > 1 else 0
    return Whole(Local(sums, None), sent, estimate_variance(kernel, x, z, joined[:3], joined[3:], points))


def _dealt(every: list[Strip], n_ranks: int, rank: int) -> list[Strip]:
    """Return a rank's share of strips that are sorted by their pairs: dealt to and fro, all shares cost the same."""
    period = 2 * n_ranks
    return [strip for i, strip in enumerate(every) if min(i % period, period - 1 - i % period) == rank]


def _portions(every: list[Strip], work: int, n_ranks: int, rank: int) -> list[list[Strip]]:
    """Return a rank's share of the strips in portions, as many on every rank and of about the same cost."""
    n_portions = max(1, min(work // (n_ranks * _PORTION), len(every) // n_ranks))
    own = _dealt(every, n_ranks, rank)
    return [own[start:stop] for start, stop in pairwise(block_bounds(len(own), n_portions).tolist())]


def _exact(tiles: list[float]) -> Fraction | float:
    """Return the exact sum of tiles, NaN if one has overflowed."""
    try:
        return exact_sum(np.array(tiles, dtype=np.float64))
    except ValueError:
        return np.nan


def _rounded(total: Fraction | float) -> float:
    try:
        return finite(float(total))
    except OverflowError:
        return np.nan
