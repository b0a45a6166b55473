"""From sums to values: of a worker, of a round; pure."""

from __future__ import annotations

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import mean
from mpi_ustat.kernels.kernel import Kernel, PairSum
from mpi_ustat.numerics.exactsum import finite_sum, rounded
from mpi_ustat.numerics.types import Flags, Floats

Sums = tuple[PairSum, ...]


def n_statistics(kernel: Kernel) -> int:
    """Return how many statistics the kernel gives, q."""
    return len(kernel.gradient(np.ones(kernel.n_parts)))


def part_means(kernel: Kernel, sums: Sums) -> Floats:
    """Return the averages of the parts, shape (p,); NaN over no pair."""
    return np.array([float(mean(each, kernel.scale)) for each in sums])


def local_values(kernel: Kernel, sums: Sums) -> Floats:
    """Return a worker's values, shape (q,): NaN where it has no pair, or where its own points don't define them."""
    means = part_means(kernel, sums)
    if len(means) == 1:
        return means  # of one part, which is its own average
    if not np.isnan(means).any():
        try:
            return kernel.combine(means)
        except UserError:
            if not kernel.pooled_only:
                raise
    return np.full(n_statistics(kernel), np.nan)


def mean_of_workers(values: Floats, has_pairs: Flags, *, empty_are_zero: bool = False) -> Floats:
    """Return the mean of the workers' values (N, q) over those that have pairs, or over all, empty ones being 0."""
    kept = values if has_pairs.all() else values[has_pairs]
    counted = len(values) if empty_are_zero else len(kept)
    return np.array([rounded(finite_sum(of_one)) / counted for of_one in kept.T])
