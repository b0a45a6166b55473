"""The ROC curve of scores that are spread over the ranks: exact counts at thresholds of which every rank knows all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_ustat.inference.roc_band import roc_band
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.orders import whole_numbers
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
    samples = [np.sort(whole_numbers(np.ascontiguousarray(each, dtype=np.float64))) for each in (x, z)]
    n, m = add_integers(comm, np.array([len(each) for each in samples])).tolist()
    chosen = [
        _order_statistics(comm, own, _places(size, most_thresholds // 2))
        for own, size in zip(samples, (n, m), strict=True)
    ]
    thresholds = np.unique(np.concatenate(chosen))[::-1]
    at_least = _counts(comm, samples, thresholds - 1)  # none is the lowest integer, which would be NaN's
    true, false = (np.concatenate([[0], size - below]) for size, below in zip((n, m), at_least, strict=True))
    tpr, fpr = true / n, false / m
    lower, upper = roc_band(fpr, tpr, n, m, confidence)
    bits = thresholds ^ ((thresholds >> 63) & np.int64(2**63 - 1))  # back to doubles
    return RocCurve(np.concatenate([[np.inf], bits.view(np.float64)]), true, false, tpr, fpr, lower, upper)


def _places(size: int, most: int) -> Ints:
    """Return the places of order statistics, the first and the last among them."""
    return np.arange(size) if size <= most else np.unique(np.linspace(0, size - 1, most).round().astype(np.int64))


def _order_statistics(comm: Any, own: Ints, places: Ints) -> Ints:
    """Return the numbers at these places of the order of all ranks' numbers, of which each has its own in order.

    All are searched for together, by halving the range of 64 bits; how many numbers are below is counted exactly, so
    that the number of ranks makes no difference.  Collective.
    """
    if comm.size == 1:
        return own[places]
    ends = np.iinfo(np.int64)
    low, high = (np.full(len(places), end, dtype=np.int64) for end in (ends.min, ends.max))
    for _ in announced(range(64), "thresholds"):
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, without an overflow
        above = _counts(comm, [own], middle)[0] > places
        high = np.where(above, middle, high)
        low = np.where(above, low, middle + ~above)
    return high


def _counts(comm: Any, samples: Sequence[Ints], numbers: Ints) -> Ints:
    """Return how many of all ranks' numbers of each sample are at most each of some numbers.  Collective."""
    return add_integers(comm, np.array([np.searchsorted(own, numbers, side="right") for own in samples]))
