"""A number that tells distributed data apart, whatever the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)


def fingerprint(comm: Any, samples: Sequence[Floats | SparseRows]) -> str:
    """Return a 64-bit hash, in hexadecimal, of the rows of all samples in their global order.  Collective.

    Each row's bytes are mixed with its global number, and the results are added modulo 2⁶⁴, which any split over ranks
    does alike. It recognises data; it does not protect against forgery.
    """
    total = len(samples)
    for k, rows in enumerate(samples):
        counts = comm.allgather(len(rows))
        first = sum(counts[: comm.rank])
        mixed = _mix(np.arange(first, first + len(rows), dtype=np.uint64) + np.uint64((k + 1) * int(_GOLDEN) % 2**64))
        if isinstance(rows, SparseRows):
            mixed = _mixed_numbers(mixed, rows)
        else:
            words = np.ascontiguousarray(rows).view(np.uint64).reshape(len(rows), -1 if len(rows) else 1)
            for j in range(words.shape[1]):
                mixed = _mix(mixed ^ (words[:, j] + np.uint64(j * int(_GOLDEN) % 2**64)))
        own = int(np.sum(mixed, dtype=np.uint64))
        total = (total + sum(comm.allgather(own))) % 2**64
    return f"{total:016x}"


def _mixed_numbers(rows: NDArray[np.uint64], sparse: SparseRows) -> NDArray[np.uint64]:
    """Return words of rows mixed with the number of columns, and each number mixed with its row's and its column."""
    of_rows = _mix(rows ^ np.uint64(sparse.n_columns))
    words = np.ascontiguousarray(sparse.values).view(np.uint64) + sparse.columns.astype(np.uint64) * _GOLDEN
    return np.concatenate([of_rows, _mix(np.repeat(of_rows, sparse.lengths) ^ words)])


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words with every bit depending on all bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        for shift, factor in _ROUNDS:
            words = (words ^ (words >> shift)) * factor
    return words ^ (words >> _LAST_SHIFT)
