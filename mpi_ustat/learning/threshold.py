"""Where a score is cut into two classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import gather_on_master
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.types import Floats


def youden_threshold(positive: Floats, negative: Floats, weights: Sequence[Floats] | None = None) -> float:
    """Return the threshold t with the largest balanced accuracy, where s > t is called positive.

    Balanced accuracy, half of the share of positives with s > t plus the share of negatives with s ≤ t, does not
    depend on how many points the classes have; its largest value is Youden's index J, as (1 + J)/2. It can change at
    scores only, so t is the middle between two neighbouring ones. Among equally good places the widest gap is taken, of
    equally wide ones the lowest. Where no gap is better than calling all points the same, or there is none, t is the
    largest score.

    Parameters
    ----------
    positive, negative : ndarray, shapes (n,) and (m,)
        Finite scores, in any order, n, m ≥ 1.
    weights : pair of ndarray, shapes (n,) and (m,), optional
        What each point counts, not negative, 1 by default.
    """
    if weights is not None:  # points that count nothing are no place to cut at
        positive, negative = (scores[w > 0.0] for scores, w in zip((positive, negative), weights, strict=True))
    values = np.unique(np.concatenate([positive, negative]))
    lower, upper = values[:-1], values[1:]
    if weights is None:
        n, m = len(positive), len(negative)
        caught = n - np.searchsorted(np.sort(positive), upper)
        spared = np.searchsorted(np.sort(negative), upper)
    else:
        (below, n), (spared, m) = (
            _weight_below(scores, w[w > 0.0], upper) for scores, w in zip((positive, negative), weights, strict=True)
        )
        caught = n - below
    # J·n·m, in integers where the weights are.
    merit = m * caught + n * spared - n * m
    if not len(merit) or merit.max() < 0:
        return float(values[-1])
    best = np.flatnonzero(merit == merit.max())
    a, b = lower[best], upper[best]
    chosen = int(np.argmax(0.5 * b - 0.5 * a))
    low, high = float(a[chosen]), float(b[chosen])
    middle = 0.5 * low + 0.5 * high
    return middle if low <= middle < high else low


def threshold_of_all(comm: Any, positive: Floats, negative: Floats, weights: Sequence[Floats] | None = None) -> float:
    """Return `youden_threshold` of the scores of all ranks, of which these are this rank's.  Collective."""
    scores = [gather_on_master(comm, each) for each in (positive, negative)]
    counted = None if weights is None else [gather_on_master(comm, each) for each in weights]
    threshold = 0.0
    with together(comm, "choosing the threshold"):
        if comm.rank == 0:
            threshold = youden_threshold(scores[0], scores[1], counted)
    return float(comm.bcast(threshold))


def _weight_below(scores: Floats, weights: Floats, values: Floats) -> tuple[Any, Any]:
    """Return the weight of the scores below each value, and that of all."""
    order = np.argsort(scores, kind="stable")
    running = np.concatenate([[0.0], np.cumsum(weights[order])])
    return running[np.searchsorted(scores[order], values)], running[-1]
