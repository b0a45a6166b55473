"""The ROC curve of scores that are spread over the ranks: exact counts at thresholds of which every rank knows all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_ustat.inference.roc_band import roc_band
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.order_statistics import counts_at_most, order_statistics
from mpi_ustat.numerics.orders import doubles_of, whole_numbers
from mpi_ustat.numerics.types import Floats, Ints

MOST_THRESHOLDS = 10_000


@dataclass(frozen=True)
class RocCurve:
    """A ROC curve, the same on every rank.

    Attributes
    ----------
    threshold : ndarray, shape (k,)
        Descending, from infinity.
    true_positives, false_positives : ndarray of int, shape (k,)
        Positives and negatives with a score of at least the threshold.
    tpr, fpr : ndarray, shape (k,)
        Their shares.
    lower, upper : ndarray, shape (k,)
        A simultaneous band of the population's curve: `mpi_ustat.inference.roc_band.roc_band`.
    """

    threshold: Floats
    true_positives: Ints
    false_positives: Ints
    tpr: Floats
    fpr: Floats
    lower: Floats
    upper: Floats


def roc(
    comm: Any, x: Floats, z: Floats, *, confidence: float = 0.95, most_thresholds: int = MOST_THRESHOLDS
) -> RocCurve:
    """Return the ROC curve.  Collective.

    The thresholds are values of the scores. Of samples of up to half of `most_thresholds` they are all; of larger ones
    equally many from rank to rank, so that the exact curve is nowhere further from the line through the points than
    2/most_thresholds in either direction, but for ties.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    x, z : ndarray, shape (n_local,)
        This rank's scores of positives and negatives; there is one of each on some rank.
    confidence : float
        Of the band.
    most_thresholds : int
    """
    samples = [np.sort(whole_numbers(np.asarray(each, dtype=np.float64))) for each in (x, z)]
    n, m = add_integers(comm, np.array([len(each) for each in samples])).tolist()
    chosen = [
        order_statistics(comm, [own], _places(size, most_thresholds // 2), "thresholds")[0]
        for own, size in zip(samples, (n, m), strict=True)
    ]
    thresholds = np.unique(np.concatenate(chosen))[::-1]
    below = counts_at_most(comm, samples, [thresholds - 1] * 2)  # none is the lowest integer, which would be NaN's
    true, false = (np.concatenate([[0], size - each]) for size, each in zip((n, m), below, strict=True))
    tpr, fpr = true / n, false / m
    lower, upper = roc_band(fpr, tpr, n, m, confidence)
    return RocCurve(np.concatenate([[np.inf], doubles_of(thresholds)]), true, false, tpr, fpr, lower, upper)


def _places(size: int, most: int) -> Ints:
    """Return the places of order statistics, the first and the last among them."""
    return np.arange(size) if size <= most else np.unique(np.linspace(0, size - 1, most).round().astype(np.int64))
