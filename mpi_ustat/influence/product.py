"""Point sums of the product of two samples: a point times the sum of the other sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.totals import Totals, grid_of_terms, partners, weighted
from mpi_ustat.kernels.kernel import as_rows


@np.errstate(over="ignore", invalid="ignore")  # such sums are refused
def product(comm: Any, samples: Sequence[Sample]) -> tuple[list[PointSums], int]:
    """Return x_i · Σ_j w_j z_j and the same of z, and the bytes that this rank has sent.  Collective.

    Sums are exact but for the products of weights and coordinates.
    """
    pairs, sent = partners(comm, samples)
    terms = [[weighted(sample, column) for column in as_rows(sample.rows).T] for sample in samples]
    grid = grid_of_terms(comm, [column for of_sample in terms for column in of_sample])
    totals = Totals(comm, samples, [np.concatenate([grid.limbs(column) for column in each]) for each in terms])
    found = []
    for k, sample in enumerate(samples):
        of_others = np.split(totals.at(k, 1 - k), len(terms[k]))
        h = np.zeros(len(sample.rows))
        for own, limbs in zip(as_rows(sample.rows).T, of_others, strict=True):
            h += own * grid.floats(limbs)
        found.append(PointSums(h[None], pairs[k]))
    return found, sent + totals.bytes_sent
