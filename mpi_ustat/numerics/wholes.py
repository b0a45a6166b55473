"""Whole numbers of any size as arrays of int64 words, which are kept, sent and added without making objects of them.

A number is Σ_k word_k 2^(62 k), all words but the last in 0 … 2⁶² - 1; the last has the sign. Numbers below 2⁶² in size
take one word, which is the number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_ustat.numerics.types import Floats, Ints

_BITS = 62
_MASK = (1 << _BITS) - 1
_EXACT = 1 << 53  # up to here doubles hold whole numbers


def words_of(numbers: Sequence[int], least: int = 1) -> Ints:
    """Return numbers as words, shape (words, n), as many as the largest needs, at least so many."""
    try:
        low = np.array(numbers, dtype=np.int64)
        if not len(low) or (low.min() >= -_MASK and low.max() <= _MASK):
            return widened(low[None], least)
    except OverflowError:
        pass
    whole = [int(each) for each in numbers]
    n_words = max(least, *(each.bit_length() // _BITS + 1 for each in whole))
    digits = [[each >> _BITS * k & _MASK for each in whole] for k in range(n_words - 1)]
    return np.array([*digits, [each >> _BITS * (n_words - 1) for each in whole]], dtype=np.int64)


def widened(words: Ints, n_words: int) -> Ints:
    """Return the same numbers in at least so many words."""
    while len(words) < n_words:
        words = np.concatenate([words[:-1], words[-1:] & _MASK, words[-1:] >> _BITS])
    return words


def integers(words: Ints) -> list[int]:
    """Return the numbers of words of shape (words, n) as Python's."""
    found: list[int] = words[-1].tolist()
    for digits in words[-2::-1].tolist():
        found = [(high << _BITS) + low for high, low in zip(found, digits, strict=True)]
    return found


def total(words: Ints) -> int:
    """Return the exact sum of all numbers of words of shape (words, …)."""
    halves = [(int((each >> 31).sum()) << 31) + int((each & (1 << 31) - 1).sum()) for each in words]
    return sum(each << _BITS * k for k, each in enumerate(halves))


def doubles(words: Ints) -> Floats:
    """Return numbers of shape (words, …) as the nearest doubles; infinite beyond their range."""
    if len(words) == 1 and np.abs(words).max(initial=0) <= _EXACT:
        return np.asarray(words[0], dtype=np.float64)
    return np.array([_float(each) for each in integers(words.reshape(len(words), -1))]).reshape(words.shape[1:])


def quotients(numerators: Ints, divisors: Ints, factor: int = 1) -> Floats:
    """Return numbers of words (words, n) over the factor times others, correctly rounded; NaN over zero."""
    known = divisors.any(axis=0)
    found = np.full(known.shape, np.nan)
    small = len(numerators) == len(divisors) == 1
    if small and np.abs(numerators).max(initial=0) <= _EXACT and divisors.max(initial=0) <= _EXACT // factor:
        np.divide(numerators[0], factor * divisors[0], out=found, where=known)
    else:
        pairs = zip(integers(numerators[:, known]), integers(divisors[:, known]), strict=True)
        found[known] = [a / (factor * b) for a, b in pairs]
    return found


def _float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
