"""The complete mean of products of distributed points, with its components, from sums over each sample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mpi_ustat.inference.components import k_sample_components
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Whole, as_rows
from mpi_ustat.mpi.collectives import sum_over_workers
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import Ordered, block_bounds


def sums(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return Σ_kl x_k·z_l, a rational number without any rounding, and the components of h(x, z) = x·z.  Collective.

    With x' = x - x̄ and z' = z - z̄, x·z - x̄·z̄ = x'·z̄ + x̄·z' + x'·z': row effects, column effects and residuals, which
    are orthogonal, so that

        SS_rows = m Σ_k (x'_k·z̄)²,   SS_columns = n Σ_l (x̄·z'_l)²,   SS_residual = Σ_kl (x'_k·z'_l)² = Σ_ab S_ab S'_ab,

    with S = Σ_k x'_k x'_kᵀ and S' the same of z. Each worker sums its block of the global order; rows move only if they
    are not with their worker already. O((n + m) d² / P).

    Returns
    -------
    Whole
        Components of shape (3, 1, 1), or None if a sample has a single point or they are not wanted.
    """
    own = [[exact_sum(column) for column in as_rows(sample.rows).T] for sample in samples]
    everyone = comm.allgather(own)
    totals = [[sum(column, Fraction()) for column in zip(*(rank[k] for rank in everyone), strict=True)] for k in (0, 1)]
    n, m = (sample.n_rows for sample in samples)
    total: Any = sum((a * b for a, b in zip(*totals, strict=True)), Fraction())
    part = PairSum(total, n * m)
    if not components or min(n, m) < 2:
        return Whole(Local((part,), None))
    means = [np.array([float(each / sample.n_rows) for each in of]) for of, sample in zip(totals, samples, strict=True)]
    before = sum(sample.bytes_sent for sample in samples)
    (of_x, x_scatter), (of_z, z_scatter) = (
        _scatter(comm, sample, n_workers, *centre_and_direction)
        for sample, centre_and_direction in zip(samples, (means, means[::-1]), strict=True)
    )
    squares = {(0,): m * of_x, (1,): n * of_z, (0, 1): float(np.sum(x_scatter * z_scatter))}
    local = Local((part,), k_sample_components((n, m), squares))
    return Whole(local, sum(sample.bytes_sent for sample in samples) - before)


def _scatter(comm: Any, sample: Exchange, n_workers: int, centre: Floats, direction: Floats) -> tuple[float, Floats]:
    """Return Σ (y·direction)² and Σ y yᵀ over all points y of a sample, centred."""
    d = len(centre)
    found = []
    for block in announced(sample.blocks(Ordered(block_bounds(sample.n_rows, n_workers), None))):
        y = as_rows(block) - centre
        along = np.einsum("ij,j->i", y, direction)
        found.append(np.append(np.sum(along * along), y.T @ y))
    whole, _ = sum_over_workers(comm, np.array(found).reshape(-1, 1 + d * d), n_workers)
    return float(whole[0]), whole[1:]
