"""Point sums of the AUC: for each score, the weights of the other class below it, and half of those at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.kernels.kernel import as_rows


def auc(comm: Any, samples: Sequence[Sample], ties: str = "half") -> tuple[list[PointSums], int]:
    """Return what positives and negatives learn, scale 2, and the bytes that this rank has sent.  Collective.

    A positive learns twice the weight of the negatives below, and that of those at its score; a negative the same of
    the positives above. O(n log n / P) a column.
    """
    grid = grid_of(comm, samples)
    weights = [limbs_of(grid, sample) for sample in samples]
    found: list[list[Any]] = [[], []]
    pairs: list[Any] = [None, None]
    sent = 0
    for column in range(as_rows(samples[0].rows).shape[1]):
        own = [
            Own.of(sample.strata, np.ascontiguousarray(as_rows(sample.rows)[:, column]), limbs)
            for sample, limbs in zip(samples, weights, strict=True)
        ]
        stretch = Stretch(comm, own)
        x, z = stretch.sums
        z_below, z_all = stretch.below(z)
        x_below, x_all = stretch.below(x)
        tied = 1 if ties == "half" else 0
        of_values = (2 * z_below + tied * z, z_all), (2 * (x_all - x_below - x) + tied * x, x_all)
        for k, (wins, others) in enumerate(of_values):
            both = [wins, others] if pairs[k] is None else [wins]
            home = stretch.home(k, np.concatenate([_told(grid, each) for each in both]))
            found[k].append(_heard(grid, home[0]))
            if pairs[k] is None:
                pairs[k] = _heard(grid, home[1])
        sent += stretch.bytes_sent
    return [PointSums(np.array(h), p) for h, p in zip(found, pairs, strict=True)], sent


def _told(grid: Any, sums: Any) -> Any:
    """Return sums of limbs as one whole number each, or as the bits of a double; (1, r)."""
    return sums if grid.counts else grid.floats(sums).view(np.int64)[None]


def _heard(grid: Any, sums: Any) -> Any:
    return sums if grid.counts else sums.view(np.float64)
