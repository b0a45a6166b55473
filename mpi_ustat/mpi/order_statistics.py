"""Order statistics of numbers that are spread over the ranks: exact, and without moving one of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.types import Ints


def order_statistics(comm: Any, samples: Sequence[Ints], places: Ints, phase: str) -> Ints:
    """Return the numbers at these places of the order of all ranks' numbers, for each sample.  Collective.

    All are searched for together, by halving the range of 64 bits; how many numbers are at most its middle is counted
    exactly, so that the number of ranks makes no difference. O(k log n) a rank and 64 small messages.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray of int64
        This rank's numbers, ascending; of all ranks there are as many as the places need.
    places : ndarray of int, shape (k,)
        From 0.
    phase : str
        What this is called where progress is told.

    Returns
    -------
    ndarray of int64, shape (samples, k)
    """
    if comm.size == 1:
        return np.array([own[places] for own in samples])
    shape, ends = (len(samples), len(places)), np.iinfo(np.int64)
    low, high = (np.full(shape, end, dtype=np.int64) for end in (ends.min, ends.max))
    for _ in announced(range(64), phase):
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, without an overflow
        enough = counts_at_most(comm, samples, middle) > places
        low, high = np.where(enough, low, middle + ~enough), np.where(enough, middle, high)
    return high


def counts_at_most(comm: Any, samples: Sequence[Ints], numbers: Sequence[Ints] | Ints) -> Ints:
    """Return how many of all ranks' numbers of each sample are at most each of its `numbers`.  Collective."""
    here = [np.searchsorted(own, at, side="right") for own, at in zip(samples, numbers, strict=True)]
    return add_integers(comm, np.array(here))
