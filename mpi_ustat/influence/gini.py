"""Point sums of Gini's mean difference, between two samples or within one: the distances to all partners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.influence.totals import grid_of_terms, partners
from mpi_ustat.kernels.kernel import as_rows


@np.errstate(over="ignore", invalid="ignore")  # such sums are refused
def gini(comm: Any, samples: Sequence[Sample]) -> tuple[list[PointSums], int]:
    """Return Σ_j w_j |v_i - v_j| of one sample or two, and the bytes that this rank has sent.  Collective.

    A point is separated by a gap between sorted values from the partners beyond it, so with the weights W(≤) of the
    partners up to the gap and W(>) above it

        Σ_j w_j |v_i - v_j| = Σ_{gaps below v_i} gap·W(≤) + Σ_{gaps above v_i} gap·W(>).

    No term is negative: nothing cancels, however far from 0 the numbers lie. The terms are rounded, their sums exact.
    O(n log n / P).
    """
    pairs, sent = partners(comm, samples)
    grid = grid_of(comm, samples)
    own = [Own(of.strata, np.ascontiguousarray(as_rows(of.rows)[:, 0]), limbs_of(grid, of)) for of in samples]
    stretch = Stretch(samples[0].spread_over(comm), own)
    gaps = stretch.gaps()
    found = []
    for k in range(len(samples)):
        brought = stretch.sums[len(samples) - 1 - k]
        below, whole = stretch.below(brought)
        terms = gaps * grid.floats(below + brought), gaps * grid.floats(whole - below - brought)
        of_terms = grid_of_terms(comm, terms)
        (to_left, _), (not_right, right) = (stretch.below(of_terms.limbs(each)) for each in terms)
        h = of_terms.floats(to_left + right - not_right)
        found.append(PointSums(stretch.home(k, h[None]), pairs[k]))
    return found, sent + stretch.bytes_sent
