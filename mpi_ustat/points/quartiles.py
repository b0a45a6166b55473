"""Quartiles of distributed columns, exactly those of all their values, without moving one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.numerics.types import Floats

_SIGN = np.uint64(1) << np.uint64(63)


def quartiles(comm: Any, samples: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the first and third quartile of each column of all samples together, as numpy.quantile has them.

    Collective. The k-th smallest value is found by halving the range of doubles 64 times, for all columns at once: each
    time the ranks add up how many of their values are not larger. O(n log n / P), 64 small messages.
    """
    d = samples[0].shape[1]
    own = [np.sort(np.concatenate([_keys(rows[:, j]) for rows in samples])) for j in range(d)]
    n = int(add_integers(comm, np.array([len(own[0])]))[0])
    places = [divmod(quarter * (n - 1), 4) for quarter in (1, 3)]
    ranks = np.array([min(first + more, n - 1) for first, _ in places for more in (0, 1)])
    low = np.zeros((d, len(ranks)), dtype=np.uint64)
    high = np.full((d, len(ranks)), ~np.uint64(0))
    for _ in range(64):
        middle = low + (high - low) // np.uint64(2)
        here = np.array([np.searchsorted(keys, at, side="right") for keys, at in zip(own, middle, strict=True)])
        enough = add_integers(comm, here.astype(np.int64).ravel()).reshape(middle.shape) > ranks
        high, low = np.where(enough, middle, high), np.where(enough, low, np.minimum(middle + np.uint64(1), high))
    found = _values(high)
    first, third = (
        found[:, 2 * i] + remainder / 4.0 * (found[:, 2 * i + 1] - found[:, 2 * i])
        for i, (_, remainder) in enumerate(places)
    )
    return first, third


def _keys(values: Floats) -> NDArray[np.uint64]:
    """Return whole numbers in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # no -0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _values(keys: NDArray[np.uint64]) -> Floats:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
