"""Small samples of pairs of one sample, their statistics by looking at every pair, and what ranks find of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sharding import bounds_of

from mpi_ustat.influence.clusters import Spread, spread
from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.statistic import Influence, statistic
from mpi_ustat.kernels.kernel import Kernel

Array = NDArray[Any]
Sums = tuple[list[list[Fraction]], list[Fraction]]


def drawn(trial: int, rows: Callable[[np.random.Generator, int], Array]) -> Sample:
    """A small sample with weights of which some are 0, strata, some of one row, and clusters."""
    rng = np.random.default_rng(trial)
    size = int(rng.integers(4, 26))
    weights = (None, rng.exponential(size=size), rng.integers(0, 3, size).astype(float))[trial % 3]
    if weights is not None:
        weights[0], weights[1:3] = 0.0, 2.0
    strata = None if trial % 4 == 0 else rng.integers(-1, 2, size)
    if strata is not None:
        strata[1:3], strata[3] = 1, 7
    return Sample(rows(rng, size), weights, strata, rng.integers(0, 6, size))


def own(comm: Any, sample: Sample, spread_out: str) -> Sample:
    bounds = bounds_of(comm, len(sample.rows), spread_out, 1)
    mine = slice(bounds[comm.rank], bounds[comm.rank + 1])
    parts = (sample.rows, sample.weights, sample.strata, sample.clusters)
    return Sample(*(None if each is None else each[mine] for each in parts))  # type: ignore[arg-type]


def exact_weights(sample: Sample) -> list[Fraction]:
    if sample.weights is None:
        return [Fraction(1)] * len(sample.rows)
    return [*map(Fraction, sample.weights.tolist())]


def by_pairs(sample: Sample, h: Callable[[int, int], list[Any]]) -> Sums:
    """Σ_j w_j h_ij of each part and Σ_j w_j of each point, h being symmetric."""
    n, weights = len(sample.rows), exact_weights(sample)
    together = [
        [j for j in range(n) if j != i and (sample.strata is None or sample.strata[i] == sample.strata[j])]
        for i in range(n)
    ]
    values = [[(weights[j], h(i, j)) for j in together[i]] for i in range(n)]
    n_parts = len(h(0, 1))
    sums = [[sum((w * part[k] for w, part in of_point), Fraction()) for of_point in values] for k in range(n_parts)]
    return sums, [sum((w for w, _ in of_point), Fraction()) for of_point in values]


def whole(comm: Any, values: Any, n: int) -> Array:
    """The values of all ranks' points, along the last axis."""
    return np.concatenate(comm.allgather(np.broadcast_to(values, (*np.shape(values)[:-1], n))), axis=-1)


def analysed(
    comm: Any, sample: Sample, sums: Callable[[Any, list[Sample]], tuple[list[PointSums], int]], kernel: Kernel
) -> tuple[Influence, Spread]:
    found, _ = sums(comm, [sample])
    result = statistic(comm, [sample], found, kernel.scale, (kernel.combine, kernel.gradient))
    return result, spread(comm, [sample], result.points)
