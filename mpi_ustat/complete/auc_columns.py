"""The complete AUCs of several columns of many scores: every column by ranges, covariances from the scores' counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.complete.auc import added
from mpi_ustat.inference.pilots import pilot
from mpi_ustat.influence.wins import wins
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.auc_columns import sampled_components
from mpi_ustat.kernels.kernel import Local, PairSum, Whole
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.exactsum import exact_count, products
from mpi_ustat.numerics.rng import Streams


def columns(
    comm: Any, samples: Sequence[Exchange], kernel: AUC, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the columns' totals, and components of shape (3, q, q).  Collective.

    The AUCs and their first-order components are exact: each score learns how many of the other class it beats, R_k of
    a positive and C_l of a negative (`influence.wins`), and these are multiplied where the point is. With r̄_k = R_k/m,

        cov(r̄_a, r̄_b) estimates σ₁²_ab + σ₀²_ab/m,

    alike for the negatives. The second-order component σ₀² would take a count over all pairs for each two columns. It
    is σ₀²/(nm) of a variance, a share of about 1/m, so for many points those of a sample do (`pilot`).

    Returns
    -------
    Whole
        Twice the wins, plus the ties if they count, over all pairs of each column.
    """
    n, m = (sample.n_rows for sample in samples)
    by_column = (np.ascontiguousarray(sample.rows.T) for sample in samples)
    found = [wins(comm, x, z, kernel.ties == "half") for x, z in zip(*by_column, strict=True)]
    of_x, of_z = [each.won for each in found], [each.lost for each in found]
    sent = sum(each.bytes_sent for each in found)
    own = [exact_count(each, 2 * m) for each in of_x]
    whole = [sum(of_ranks) for of_ranks in zip(*comm.allgather(own), strict=True)]
    sums = tuple(PairSum(total, n * m) for total in whole)
    if not components:
        return Whole(Local(sums, None), sent)
    rows = added(comm, products(of_x, 2 * m), 4 * m * m * n)
    cols = added(comm, products(of_z, 2 * n), 4 * n * n * m)
    second = pilot(comm, samples, kernel, Streams(0)).components  # the same sample whatever the seed
    assert second is not None
    return Whole(Local(sums, sampled_components(n, m, whole, rows, cols, second[2])), sent)
