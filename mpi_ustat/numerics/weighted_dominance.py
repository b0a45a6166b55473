"""Sums of weights over the points that lie behind and below each point of the plane, in O(n log n) and without a loop.

The points are places 0 … n-1, in which they stand in a first order, each with a rank in a second one. A pair is
*inverted* when the earlier of the two has the higher rank.

Points are taken in the order of their ranks and told apart by the bits of their places, the highest first. Two whose
places agree in all higher bits, a *group*, and differ in this one are in the order of the places as the bits say, and
in that of the ranks as they stand. So a point with bit 0 is inverted with those of bit 1 before it, and one with bit 1
with those of bit 0 behind it: sums that run along the groups give both. Then each group is parted by the bit, which
keeps the order of the ranks in both halves (a wavelet matrix). All groups of a bit have the same size, because places
are filled up to a power of two, and all are done in a few operations on whole arrays.
"""

from __future__ import annotations

import numpy as np

from mpi_ustat.numerics.types import Integers, Ints

_CHUNK_BITS = 15
"""Groups of so many places are done to the end one after the other: their arrays stay in a core's cache."""


def weighted_inversions(order: Integers, later: Ints, earlier: Ints) -> tuple[Ints, Ints]:
    """Return for each place the sums of weights over the places that it is inverted with, later ones and earlier ones.

    Parameters
    ----------
    order : ndarray of int, shape (n,)
        The places in the order of their ranks: a permutation of 0 … n-1.
    later : ndarray of int, shape (k, n)
        What each place counts where it is the later one of a pair. Sums over all places of it must fit in its dtype.
    earlier : ndarray of int, shape (l, n)
        What each counts where it is the earlier one.

    Returns
    -------
    ndarray of the dtype of `later`, shape (k, n)
        Σ_j later_j over the places j > i of lower rank.
    ndarray of the dtype of `earlier`, shape (l, n)
        Σ_j earlier_j over the places j < i of higher rank.
    """
    n = len(order)
    bits = max(n - 1, 0).bit_length()
    found = np.zeros_like(later), np.zeros_like(earlier)
    if n < 2:
        return found
    size = 1 << bits
    places: Integers = np.arange(size, dtype=np.int32 if size < 2**31 else np.int64)
    places[:n] = order
    weights = [_padded(each, order, size) for each in (*later, *earlier)]
    sums = [np.zeros(size, dtype=each.dtype) for each in weights]
    state: list[Integers] = [places, *weights, *sums]
    k, n_sums = len(later), len(later) + len(earlier)
    whole = max(bits - _CHUNK_BITS, 0)
    other = [np.empty_like(each) for each in state]
    for bit in range(bits - 1, bits - 1 - whole, -1):
        _part(state, other, bit, k)
        state, other = other, state
    step = size >> whole
    for start in range(0, size, step):
        own, spare = [each[start : start + step] for each in state], [each[start : start + step] for each in other]
        if not _ascending(own[0]):
            for bit in range(bits - 1 - whole, -1, -1):
                _part(own, spare, bit, k)
                own, spare = spare, own
        there = own[0] < n
        chosen = slice(None) if there.all() else there
        for out, of_chunk in zip((*found[0], *found[1]), own[1 + n_sums :], strict=True):
            out[own[0][chosen]] = of_chunk[chosen]
    return found


def _padded(weights: Ints, order: Integers, size: int) -> Integers:
    """Return weights in the order of the ranks, and zeros, as int32 where all sums of them are."""
    total = int(np.abs(weights).sum())
    found: Integers = np.zeros(size, dtype=np.int32 if total < 2**31 else np.int64)
    found[: len(order)] = weights[order]
    return found


def _ascending(places: Integers) -> bool:
    return bool((places[1:] > places[:-1]).all())


def _part(state: list[Integers], out: list[Integers], bit: int, k: int) -> None:
    """Count the pairs that differ in a bit, and part the groups by it: first come all halves with bit 0."""
    places = state[0]
    half, middle = 1 << bit, len(places) // 2
    ones = (places & half).astype(np.bool_)
    at_one, at_zero = np.flatnonzero(ones), np.flatnonzero(~ones)
    for each, parted in zip(state, out, strict=True):
        np.take(each, at_zero, out=parted[:middle], mode="clip")
        np.take(each, at_one, out=parted[middle:], mode="clip")
    # Where the k-th of zeros stands at p, p - k ones stand before it, and the same the other way round.
    at_zero -= np.arange(middle)
    at_one -= np.arange(middle)
    n_sums = len(state) // 2
    for i in range(1, n_sums + 1):
        behind = i <= k
        counted = out[i][middle:] if behind else out[i][:middle]
        running = np.zeros(middle + 1, dtype=counted.dtype)
        np.cumsum(counted, out=running[1:], dtype=counted.dtype)
        sums = (out[n_sums + i][:middle] if behind else out[n_sums + i][middle:]).reshape(-1, half)
        if behind:
            sums += running[at_zero].reshape(-1, half)
            sums -= running[:-1:half, None]
        else:
            sums -= running[at_one].reshape(-1, half)
            sums += running[half::half, None]
