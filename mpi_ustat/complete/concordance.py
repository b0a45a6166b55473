"""The concordance index of distributed points: all pairs, exactly, by dominance in two orders over the ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.concordance import count
from mpi_ustat.influence.points import Sample, weighted_total
from mpi_ustat.kernels.concordance import Concordance, point_products
from mpi_ustat.kernels.kernel import Local, PairSum, Whole
from mpi_ustat.mpi.collectives import add_exactly
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def concordance(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Concordance,
    n_workers: int,
    streams: Streams,
    *,
    components: bool = True,
) -> Whole:
    """Return the parts of the index over all pairs of distributed points, and of one risk components.  Collective.

    Whole numbers, hence the same at every number of ranks; with Uno's weights, which give no components, doubles.
    """
    (sample,) = samples
    n = sample.n_rows
    found = count(comm, Sample(sample.rows), kernel.censoring_weights, kernel.horizon)
    sums = found.sums.h
    if kernel.censoring_weights == "uno":
        totals = add_exactly(comm, [weighted_total(None, part) for part in sums])
        parts = tuple(PairSum(float(total / 2), math.comb(n, 2)) for total in totals)
        return Whole(Local(parts, None), found.bytes_sent)
    everyone = comm.allgather((sums.sum(axis=1).tolist(), point_products(sums, n), found.tied))
    totals, products, tied = (np.array([each[k] for each in everyone], dtype=object).sum(axis=0) for k in range(3))
    pairs = np.zeros((1, 1)) if kernel.n_parts == 2 else None
    return Whole(kernel.local_from(n, totals.tolist(), products.tolist(), tied.tolist(), pairs), found.bytes_sent)
