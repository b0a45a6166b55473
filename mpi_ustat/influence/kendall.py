"""Point sums of the parts of Kendall's tau: concordant less discordant pairs, and those untied in either column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.crossings import Crossings
from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.numerics.orders import whole_numbers


def kendall(comm: Any, samples: Sequence[Sample], tau: str = "b") -> tuple[list[PointSums], int]:
    """Return the points' sums of h_C, or of h_C, h_A and h_B (`kernels.kendall`), and the bytes sent.  Collective.

    Of the weight that isn't tied with a point in either column, what isn't discordant is concordant. O(n log n / P).
    """
    (sample,) = samples
    grid = grid_of(comm, samples)
    weights = limbs_of(grid, sample)
    x, y = np.ascontiguousarray(np.asarray(sample.rows, dtype=np.float64).T)
    strata = [] if sample.strata is None else [sample.strata]
    keys = [*strata, whole_numbers(x), whole_numbers(y)]
    found = Crossings(sample.spread_over(comm), keys, [*weights], [*weights])
    in_stratum, in_x = found.in_order()
    discordant, in_y = sum(found.crossed), sum(found.level) + found.later
    signs = in_stratum - in_x - in_y + found.later - 2 * discordant
    parts = [signs] if tau == "a" else [signs, in_stratum - in_x, in_stratum - in_y]
    told = found.home(np.array([grid.told(each) for each in parts]))
    pairs = grid.told(found.home(in_stratum) - weights)
    return [PointSums(told, pairs)], found.bytes_sent
