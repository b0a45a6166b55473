"""Point sums of the AUC: for each score, the weights of the other class below it, and half of those at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of, total_weight
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.influence.wins import wins
from mpi_ustat.kernels.kernel import as_rows
from mpi_ustat.mpi.collectives import add_integers


def auc(comm: Any, samples: Sequence[Sample], ties: str = "half") -> tuple[list[PointSums], int]:
    """Return what positives and negatives learn, scale 2, and the bytes that this rank has sent.  Collective.

    A positive learns twice the weight of the negatives below, and that of those at its score; a negative the same of
    the positives above. O(n log n / P) a column.
    """
    if all(sample.weights is None and sample.strata is None for sample in samples):
        return _counted(comm, samples, ties == "half")
    grid = grid_of(comm, samples)
    weights = [limbs_of(grid, sample) for sample in samples]
    pairs: list[Any] = [grid.told(total_weight(comm, of_sample)[:, None])[0] for of_sample in reversed(weights)]
    found: list[list[Any]] = [[], []]
    sent = 0
    for column in range(as_rows(samples[0].rows).shape[1]):
        own = [
            Own.of(sample.strata, np.ascontiguousarray(as_rows(sample.rows)[:, column]), limbs)
            for sample, limbs in zip(samples, weights, strict=True)
        ]
        stretch = Stretch(comm, own)
        x, z = stretch.sums
        (x_below, x_all), (z_below, z_all) = map(stretch.below, (x, z))
        wins = 2 * z_below, 2 * (x_all - x_below - x)
        tied = (z, x) if ties == "half" else (0, 0)
        for k in (0, 1):
            found[k].append(stretch.home(k, grid.told(wins[k] + tied[k])[None])[0])
            if samples[k].strata is not None and column == 0:
                pairs[k] = stretch.home(k, grid.told((z_all, x_all)[k])[None])[0]
        sent += stretch.bytes_sent
    return [PointSums(np.array(h), p) for h, p in zip(found, pairs, strict=True)], sent


def _counted(comm: Any, samples: Sequence[Sample], half: bool) -> tuple[list[PointSums], int]:
    """Return the same where every point counts once."""
    columns = [as_rows(sample.rows).T for sample in samples]
    won, lost, sent = zip(*(wins(comm, x, z, half) for x, z in zip(*columns, strict=True)), strict=True)
    n, m = add_integers(comm, np.array([len(sample.rows) for sample in samples]))
    return [PointSums(np.array(won), m), PointSums(np.array(lost), n)], sum(sent)
