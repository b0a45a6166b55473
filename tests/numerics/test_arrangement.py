"""Random arrangements of labels: how many there are of each, and that all arrangements are equally likely.

Statistical checks refuse a right implementation with probability 10⁻⁶ each; the seeds are fixed, so that what has
passed passes again.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from mpi_ustat.numerics import arrangement
from mpi_ustat.numerics.arrangement import _order_by_key, arrange, arrange_by_keys
from mpi_ustat.numerics.rng import Stream, Streams

ERROR = 1e-6
Array = NDArray[Any]


def stream(number: int = 0, seed: int = 4) -> Stream:
    return Streams(seed).open("test", worker=number)


def arranged(counts: list[int], key_bits: int | None, number: int, seed: int = 4) -> Array:
    out = np.full(sum(counts), 255, dtype=np.uint8)
    if key_bits is None:
        arrange(stream(number, seed), np.array(counts), out)
    else:
        arrange_by_keys(stream(number, seed), np.array(counts), out, key_bits)
    return out


@pytest.mark.parametrize("key_bits", [None, 0, 1, 3, 16])
def test_there_are_as_many_of_each_label_as_asked_for(key_bits: int | None) -> None:
    rng = np.random.default_rng(1)
    for number in range(200):
        n_places, n_labels = int(rng.integers(1, 200)), int(rng.integers(1, 9))
        counts = np.diff(np.sort(rng.integers(0, n_places + 1, n_labels - 1)), prepend=0, append=n_places)
        found = np.bincount(arranged(counts.tolist(), key_bits, number), minlength=n_labels)
        assert np.array_equal(found, counts)


@pytest.mark.parametrize("counts", [[2, 2, 1], [0, 3, 2, 0], [1, 1, 1, 1]], ids=str)
@pytest.mark.parametrize("key_bits", [None, 0, 1, 2, 16])
def test_all_arrangements_are_equally_likely(counts: list[int], key_bits: int | None) -> None:
    codes = {
        each: i for i, each in enumerate(sorted(set(itertools.permutations(np.repeat(range(4), [*counts, 0][:4])))))
    }
    n_draws = 150 * len(codes)
    found = np.bincount(
        [codes[tuple(arranged(counts, key_bits, number, seed=5).tolist())] for number in range(n_draws)],
        minlength=len(codes),
    )
    assert len(codes) > 9 and stats.chisquare(found).pvalue > ERROR


@pytest.mark.parametrize("n_labels", [1, 3, 256, 257, 1000, 2**14, 2**14 + 1])
def test_labels_of_many_places_lie_anywhere(n_labels: int) -> None:
    n_places = 2**16 + 11
    counts = np.random.default_rng(n_labels).multinomial(n_places, np.full(n_labels, 1 / n_labels))
    labels = np.full(n_places, 2**16 - 1, dtype=np.uint16)
    arrange(stream(), counts, labels)
    assert np.array_equal(np.bincount(labels, minlength=n_labels), counts)
    # Given the counts, the sum of labels over half the places has a known mean and variance.
    mean, variance = labels.mean(), labels.astype(np.float64).var(ddof=1)
    half = n_places // 2
    deviation = labels[:half].astype(np.float64).sum() - half * mean
    spread = np.sqrt(half * (n_places - half) / n_places * variance)
    assert abs(deviation) <= stats.norm.isf(ERROR / 2) * spread
    # So has the number of neighbours with one label: Var of a count of rare matches is below its mean.
    matches, expected = np.count_nonzero(labels[1:] == labels[:-1]), (counts * (counts - 1)).sum() / n_places
    assert n_labels == 1 or abs(matches - expected) <= stats.norm.isf(ERROR / 2) * np.sqrt(expected) + 1


def test_equal_random_bits_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def coarse(self: Stream, size: int) -> Array:
        drawn.append(size)
        return np.random.default_rng(len(drawn)).integers(0, 2**64, size, dtype=np.uint64) & np.uint64(0x7 << 61)

    monkeypatch.setattr(Stream, "raw", coarse)
    labels = arranged([2, 2, 1], 0, 0)
    assert drawn[0] == 2 and len(drawn) > 2 and set(drawn[1:]) == {5}
    assert np.array_equal(np.bincount(labels), [2, 2, 1])


class Given:
    """Stands in for a stream: gives the lists of random bits that it is told, just above the places of three keys."""

    def __init__(self, *lists: tuple[int, ...]) -> None:
        self.left = list(lists)

    def raw(self, size: int) -> Array:
        return np.array(self.left.pop(0), dtype=np.uint64) << np.uint64(16 + 2)


def test_orders_are_drawn_again_when_random_bits_are_equal_and_only_then() -> None:
    for drawn in itertools.product(range(6), repeat=3):
        given = Given(drawn, (2, 0, 1))
        order = _order_by_key(given, np.zeros(3, dtype=np.uint16))
        assert len(given.left) == (len(set(drawn)) == 3)
        assert order.tolist() == np.argsort(drawn if given.left else (2, 0, 1)).tolist()


def test_few_places_and_very_many_labels_are_permuted(monkeypatch: pytest.MonkeyPatch) -> None:
    permuted: list[int] = []
    permutation = Stream.permutation

    def noted(self: Stream, n: int, out: Array | None = None) -> Array:
        permuted.append(n)
        return permutation(self, n, out)

    monkeypatch.setattr(Stream, "permutation", noted)
    monkeypatch.setattr(arrangement, "_key_bits", lambda n_labels: 3)
    monkeypatch.setattr(arrangement, "_MOST_LABELS", 3)
    for counts in ([3, 4], [2, 2, 3, 3], [4, 4]):
        arranged(counts, None, 0)
    assert permuted == [7, 10]
