"""Random arrangements of labels of which it is given how many there are of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.rng import Stream, Words
from mpi_ustat.numerics.types import Ints, Labels

_FEW_LABELS = 1 << 8
_MOST_LABELS = 1 << 14  # of more, too many places are tied


def arrange(stream: Stream, counts: Ints, out: Labels) -> None:
    """Write ``counts[i]`` times the label i to `out`, all arrangements being equally likely.

    The counts of the N labels are together as many as `out` has places; its type holds the number N.
    """
    if uses_keys(len(out), len(counts)):
        arrange_by_keys(stream, counts, out, _key_bits(len(counts)))
    else:
        order = stream.permutation(len(out))
        out[order] = np.repeat(np.arange(len(counts), dtype=out.dtype), counts)


def uses_keys(n_places: int, n_labels: int) -> bool:
    """Tell whether `arrange` counts keys, or puts all places in order, which takes longer if there are many."""
    return n_places >= 1 << _key_bits(n_labels) and n_labels <= _MOST_LABELS


def _key_bits(n_labels: int) -> int:
    """Return how long keys are: short ones take less time to count, but more places are tied, about N of 2^bits."""
    return 14 if n_labels <= _FEW_LABELS else 16


def arrange_by_keys(stream: Stream, counts: Ints, out: Labels, key_bits: int) -> None:
    """Do the same without sorting, for many places and few labels.

    Every place draws a key of `key_bits` bits, 16 at most. Were the places sorted by key, and those of equal keys put
    in random order, their order would be uniformly random, and the first ``counts[0]`` of them would get the label 0,
    the next ``counts[1]`` the label 1, and so on. How many places have each key says which keys belong to one label
    alone; only the places of the other keys, about N of all 2^key_bits, need an order.
    """
    keys = stream.raw(-(-len(out) // 4)).astype("<u8", copy=False).view("<u2")[: len(out)] >> np.uint16(16 - key_bits)
    of_key = np.bincount(keys, minlength=1 << key_bits)
    before = np.cumsum(of_key) - of_key
    bounds = np.cumsum(counts)[:-1]  # where in the order one label ends and the next begins
    cuts = np.searchsorted(before + of_key, bounds, side="right")  # the key that each bound lies at or in
    within = (cuts < len(of_key)) & (before[np.minimum(cuts, len(of_key) - 1)] < bounds)
    shared = cuts[within]  # in order
    shared = shared[np.diff(shared, prepend=-1) > 0]
    table = np.repeat(np.arange(len(counts), dtype=out.dtype), np.diff(cuts, prepend=0, append=len(of_key)))
    table[shared] = len(counts)
    np.take(table, keys, out=out, mode="clip")
    if len(shared):
        tied = np.flatnonzero(out == len(counts))
        order = _order_by_key(stream, keys[tied])
        n_places = of_key[shared]
        ahead = np.cumsum(n_places) - n_places
        places = np.arange(len(tied)) + np.repeat(before[shared] - ahead, n_places)
        n_labels = np.diff(np.searchsorted(places, bounds), prepend=0, append=len(tied))
        out[tied[order]] = np.repeat(np.arange(len(counts), dtype=out.dtype), n_labels)


def _order_by_key(stream: Stream, keys: NDArray[np.uint16]) -> Ints:
    """Return the order of keys of 16 bits in which equal ones are in random order.

    The random bits below the key, as many as leave room for a place, are drawn again if any are equal, and only then:
    whether orders are kept must not depend on places.
    """
    place_bits = len(keys).bit_length()
    cleared = np.uint64(place_bits)
    high = keys.astype(np.uint64) << np.uint64(48)
    while True:
        words: Words = high | stream.raw(len(keys)) >> np.uint64(16)
        words = words >> cleared << cleared
        order = _by_radix(words, place_bits)
        words = words[order]
        if (words[1:] != words[:-1]).all():
            return order


def _by_radix(words: Words, cleared: int) -> Ints:
    """Return the order of words whose lowest bits are 0: of 16 bits after 16, which NumPy sorts by radix."""
    digits = words.astype("<u8", copy=False).view("<u2").reshape(-1, 4).T[cleared // 16 :]
    order = np.argsort(digits[0], kind="stable")
    for each in digits[1:]:
        order = order[np.argsort(each[order], kind="stable")]
    return order
