"""Point sums of the AUC: for each score, the weights of the other class below it, and half of those at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.influence.wins import wins
from mpi_ustat.kernels.kernel import as_rows


def auc(comm: Any, samples: Sequence[Sample], ties: str = "half") -> tuple[list[PointSums], int]:
    """Return the sums of positives and of negatives, scale 2, and the bytes that this rank has sent.  Collective.

    A positive learns twice the weight of the negatives below, and that of those at its score; a negative the same of
    the positives above. O(n log n / P) a column.
    """
    half = ties == "half"
    return _of_all(comm, samples, half) if samples[0].strata is None else _within_strata(comm, samples, half)


def _of_all(comm: Any, samples: Sequence[Sample], half: bool) -> tuple[list[PointSums], int]:
    """Return it where all pairs count."""
    columns = [np.ascontiguousarray(as_rows(sample.rows).T) for sample in samples]
    grid, weights = None, None
    if any(sample.weights is not None for sample in samples):
        grid, weights = grid_of(comm, samples), (samples[0].weights_or_ones, samples[1].weights_or_ones)
    found = [wins(comm, x, z, half, grid, weights) for x, z in zip(*columns, strict=True)]
    n, m = found[0].totals
    sums = [PointSums(np.array([each.won for each in found]), m), PointSums(np.array([each.lost for each in found]), n)]
    return sums, sum(each.bytes_sent for each in found)


def _within_strata(comm: Any, samples: Sequence[Sample], half: bool) -> tuple[list[PointSums], int]:
    grid = grid_of(comm, samples)
    weights = [limbs_of(grid, sample) for sample in samples]
    pairs: list[Any] = []
    found: list[list[Any]] = [[], []]
    sent = 0
    for column in range(as_rows(samples[0].rows).shape[1]):
        own = [
            Own(sample.strata, np.ascontiguousarray(as_rows(sample.rows)[:, column]), limbs)
            for sample, limbs in zip(samples, weights, strict=True)
        ]
        stretch = Stretch(samples[0].spread_over(comm), own)
        for k, others in enumerate(stretch.sums[::-1]):
            beaten, whole = stretch.below(others)
            if column == 0:
                pairs.append(stretch.home(k, grid.told(whole)[None])[0])
            if k == 1:  # instead of those below, those above
                np.subtract(whole, beaten, out=beaten)
                beaten -= others
            del whole
            beaten *= 2
            if half:
                beaten += others
            found[k].append(stretch.home(k, grid.told(beaten)[None])[0])
        sent += stretch.bytes_sent
    return [PointSums(np.array(h), p) for h, p in zip(found, pairs, strict=True)], sent
