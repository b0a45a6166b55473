"""What a few random rows of every sample tell, on every rank alike: components, variances, projections."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mpi_ustat.inference.evidence import Evidence
from mpi_ustat.inference.judge import Projections
from mpi_ustat.kernels.discrepancy import Variance
from mpi_ustat.kernels.kernel import Kernel, Local
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.rng import Stream, Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.variance import pilot_rows

PROJECTED_ON = 100
"""Points of each sample that stand for all of them where a projection is wanted."""

_MOST_NUMBERS = 200_000  # of a sample's projections, and of the coordinates of their points

PILOT_ROWS = 500
"""Rows of each sample that a pilot takes: they give a standard error to 3 to 5 %, and show what makes tails heavy."""


def pilot(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    *,
    most: int = PILOT_ROWS,
    replicate: int = 0,
) -> Local:
    """Return the sums of a complete block of random rows of every sample, up to `most` of each.  Collective."""
    blocks = pilot_blocks(comm, samples, streams, most=most, replicate=replicate)
    found = Local((), None)
    with together(comm, f"evaluating the kernel {kernel.name}"):
        found = kernel.local(*blocks)
    return found


def projections(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    *,
    most: Sequence[int],
    replicate: int = 0,
) -> Projections | None:
    """Return the projections of random points of every sample, each on `PROJECTED_ON` others.  Collective.

    There are `most` of each sample, fewer of kernels that are slow, or of many parts or coordinates; None where a
    sample has no points to spare, or the degrees are other ones. The same on every rank.
    """
    degrees, sizes = kernel.degrees, [sample.n_rows for sample in samples]
    if set(degrees) != {1} and degrees not in ((2,), (2, 2)):
        return None
    n_others = [min(PROJECTED_ON, size // 2) for size in sizes]
    if min(n_others) < 1:
        return None
    width = max(int(np.prod(sample.rows.shape[1:])) for sample in samples)
    limit = max(PILOT_ROWS, min(kernel.projection_rows, _MOST_NUMBERS // max(width, kernel.n_parts)))
    stream = streams.open("projections", replicate=replicate)
    wanted = [min(size, limit, some) + others for size, some, others in zip(sizes, most, n_others, strict=True)]
    chosen = tuple(pilot_rows(stream, [size], some)[0] for size, some in zip(sizes, wanted, strict=True))
    blocks = _gathered(comm, samples, chosen)
    others_at = [pilot_rows(stream, [len(rows)], some)[0] for rows, some in zip(chosen, n_others, strict=True)]
    others = [block[at] for block, at in zip(blocks, others_at, strict=True)]
    found, rows, points = [], [], []
    with together(comm, f"evaluating the kernel {kernel.name}"):
        for k, (block, at, numbers) in enumerate(zip(blocks, others_at, chosen, strict=True)):
            kept = np.delete(np.arange(len(block)), at if degrees[k] > 1 else [])  # no point with itself
            found.append(kernel.projections(k, block[kept], others))
            rows.append(numbers[kept])
            points.append(block[kept])
    return Projections(tuple(found), tuple(rows), tuple(points))


def pilot_blocks(
    comm: Any, samples: Sequence[Exchange], streams: Streams, *, most: int, replicate: int = 0
) -> list[Floats]:
    """Return the same random rows of every sample on every rank, up to `most` of each.  Collective."""
    stream = streams.open("pilot", replicate=replicate)
    return _gathered(comm, samples, pilot_rows(stream, [sample.n_rows for sample in samples], most))


def pooled_rows(comm: Any, samples: Sequence[Exchange], stream: Stream, *, most: int) -> list[Floats]:
    """Return the same random rows of all samples together, up to `most`, those of each apart, on every rank.

    Collective. Every set of rows is equally likely, whatever samples they are of.
    """
    bounds = np.cumsum([0, *(sample.n_rows for sample in samples)])
    (chosen,) = pilot_rows(stream, [int(bounds[-1])], most)
    of_samples = [chosen[(chosen >= low) & (chosen < high)] - low for low, high in pairwise(bounds.tolist())]
    return _gathered(comm, samples, of_samples)


def _gathered(comm: Any, samples: Sequence[Exchange], chosen: Sequence[Ints]) -> list[Floats]:
    """Return these rows of every sample, by ascending global numbers, on every rank.  Collective."""
    blocks = []
    for sample, rows in zip(samples, chosen, strict=True):
        here = rows[(rows >= sample.first_row) & (rows < sample.first_row + len(sample.rows))] - sample.first_row
        blocks.append(gather_rows(comm, sample.rows[here]))
    return blocks


def own_variance_of_pilot(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, streams: Streams, *, replicate: int = 0
) -> tuple[Variance, Evidence] | None:
    """Return the variance that a pilot's statistic has; None if there are too few points.  Collective."""
    blocks = pilot_blocks(comm, samples, streams, most=PILOT_ROWS, replicate=replicate)
    sizes = tuple(map(len, blocks))
    return None if min(sizes) < 4 else (kernel.own_variance(*blocks), Evidence(sizes))
