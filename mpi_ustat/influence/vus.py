"""Point sums of the VUS of K ordered classes: for each score, the chains through it, from sums of sums of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of, total_weight
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.influence.totals import grid_of_terms
from mpi_ustat.kernels.kernel import as_rows

Numbers = NDArray[Any]
"""int64 where all products are counts that fit, otherwise doubles."""

_MOST = 1 << 62


def vus(comm: Any, samples: Sequence[Sample], ties: str = "strict") -> tuple[list[PointSums], int]:
    """Return the sums of the points of each class, scale 1 or (``ties="shared"``) K!, and the bytes sent.  Collective.

    The weight of a chain is the product of its points' weights. Let F_a be the weight of the chains of classes 0 … a-1
    below a score, G_b that of classes b … K-1 above it, and c_l the weight of class l at it. A point of class k at the
    score, in a group of b - a tied points of the classes a … b-1, gets

        Σ_{a≤k<b} F_a · Π_{a≤l<b, l≠k} c_l / (b-a)! · G_b,

    where ties are strict with b = a + 1 only. F_{i} grows from a score to the next by Σ_{a<i} F_a Π_{a≤l<i} c_l/(i-a)!,
    and G alike downwards. Sums of doubles are exact, the products rounded; none is negative. O(K³ n log n / P).
    """
    n_classes, shared = len(samples), ties == "shared"
    grid = grid_of(comm, samples)
    limbs = [limbs_of(grid, sample) for sample in samples]
    own = [
        Own(sample.strata, np.ascontiguousarray(as_rows(sample.rows)[:, 0]), each)
        for sample, each in zip(samples, limbs, strict=True)
    ]
    stretch = Stretch(samples[0].spread_over(comm), own)
    at: list[Numbers] = [grid.told(each) for each in stretch.sums]
    wholes: list[Numbers] = [grid.told(stretch.below(each)[1]) for each in stretch.sums]
    most = math.prod(float(grid.floats(total_weight(comm, each)[:, None])[0]) for each in limbs)
    if at[0].dtype.kind == "i" and most * (math.factorial(n_classes) if shared else 1) >= _MOST:
        at, wholes = ([each.astype(np.float64) for each in every] for every in (at, wholes))
    below = _chains(comm, stretch, at, shared=shared, upwards=True)
    above = _chains(comm, stretch, at[::-1], shared=shared, upwards=False)[::-1]
    found = []
    for k in range(n_classes):
        h = np.zeros_like(at[k])
        for a in range(k + 1) if shared else (k,):
            for b in range(k + 1, n_classes + 1) if shared else (k + 1,):
                ways = math.comb(n_classes, a) * math.comb(n_classes - a, b - a) if shared else 1
                h += ways * below[a] * _product([at[j] for j in range(a, b) if j != k], h) * above[b]
        pairs = _product([each for j, each in enumerate(wholes) if j != k], h)
        home = stretch.home(k, np.array([h, pairs]))
        found.append(PointSums(home[:1], home[1]))
    return found, stretch.bytes_sent


def _chains(comm: Any, stretch: Stretch, at: Sequence[Numbers], *, shared: bool, upwards: bool) -> list[Numbers]:
    """Return, for i = 0 … K, the weight of the chains through the first i classes below (or above) each value.

    Times i! where ties share; none for i = K, which nobody asks for.
    """
    found: list[Numbers] = [np.ones_like(at[0])]
    for i in range(1, len(at)):
        growth = np.zeros_like(at[0])
        for a in range(i) if shared else (i - 1,):
            growth += (math.comb(i, a) if shared else 1) * found[a] * _product(at[a:i], growth)
        found.append(_beyond(comm, stretch, growth, upwards=upwards))
    return [*found, np.zeros_like(at[0])]


def _product(factors: Sequence[Numbers], like: Numbers) -> Numbers:
    found = np.ones_like(like)
    for each in factors:
        found *= each
    return found


def _beyond(comm: Any, stretch: Stretch, terms: Numbers, *, upwards: bool) -> Numbers:
    """Return the sums of what there is at lower values (or at higher ones)."""
    grid = None if terms.dtype.kind == "i" else grid_of_terms(comm, [terms])
    limbs = terms[None] if grid is None else grid.limbs(terms)
    below, whole = stretch.below(limbs)
    sums = below if upwards else whole - below - limbs
    return sums[0] if grid is None else grid.floats(sums)
