"""Point sums of the variance: half the squares of the differences from all other points, from sums of powers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.influence.totals import Totals, grid_of_terms, weighted
from mpi_ustat.kernels.kernel import as_rows


@np.errstate(over="ignore", invalid="ignore")  # such sums are refused
def variance(comm: Any, samples: Sequence[Sample]) -> tuple[list[PointSums], int]:
    """Return Σ_j w_j ½(v_i - v_j)², and the bytes that this rank has sent.  Collective.

    With c near the mean of the stratum, d = v - c, W = Σ w, D = Σ w d and Q = Σ w d²,

        Σ_j w_j ½(v_i - v_j)² = ½(W d_i² + Q) - d_i D.

    D is of the size of the rounding of c, so that nothing cancels, however far from 0 the numbers lie.
    """
    (sample,) = samples
    values = as_rows(sample.rows)[:, 0]
    of_weights = grid_of(comm, samples)
    weights = limbs_of(of_weights, sample)
    terms = weighted(sample, values)
    grid = grid_of_terms(comm, [terms])
    totals = Totals(comm, samples, [np.concatenate([weights, grid.limbs(terms)])])
    sent = totals.bytes_sent
    of_stratum, sums = np.split(totals.at(0, 0), [len(weights)])
    total = of_weights.floats(of_stratum)
    away = values - np.divide(grid.floats(sums), total, out=np.zeros(total.shape), where=total > 0.0)
    powers = weighted(sample, away), weighted(sample, away**2)
    grids = [grid_of_terms(comm, [each]) for each in powers]
    limbs = [grid.limbs(each) for grid, each in zip(grids, powers, strict=True)]
    totals = Totals(comm, samples, [np.concatenate(limbs)])
    first, second = np.split(totals.at(0, 0), [len(limbs[0])])
    h = (total * away**2 + grids[1].floats(second)) / 2.0 - away * grids[0].floats(first)
    pairs = of_weights.told(of_stratum - weights)
    return [PointSums(h[None], pairs)], sent + totals.bytes_sent
