"""Keyed random streams: what identifies them, and the laws of what they draw.

Statistical checks refuse a right implementation with probability 10⁻⁶ each; the seeds are fixed, so that what has
passed passes again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from mpi_ustat.numerics import rng
from mpi_ustat.numerics.rng import Stream, Streams, fresh_seed

ERROR = 1e-6
SIGMAS = float(stats.norm.isf(ERROR / 2))
"""How many standard errors a normal estimate strays with probability `ERROR`: 4.89."""

Array = NDArray[Any]

KEY = np.array([10234017061460650124, 15274276623514045242], dtype=np.uint64)
"""The key of seed 2019, purpose "test"."""


PINNED: dict[str, Any] = {
    "raw": [11107339834643123028, 8582514150699399485, 4495305498362547654, 17627598032304056154],
    "integers": [9, 6, 8, 4, 6, 2, 9, 9, 7, 9, 5, 0],
    "wide integers": [834643123028, 150699399485, 498362547654],
    "pairs": [[4, 4, 3, 4, 3, 2], [4, 3, 1, 6, 6, 0]],
    "permutation": [5, 3, 1, 4, 8, 2, 6, 9, 7, 0],
    "uniform": [0.6021300989627428, 0.46525902437879363],
    "normal": [0.05380467864668065, 1.075633796142728, 1.3566007056086962],
}
"""First values of seed 2019, purpose "test", replicate 1, round 2, worker 3."""


def chi_square_p(counts: Array, expected: Array | float | None = None) -> float:
    """Return the p-value of the counts under equal (or the given) expectations."""
    expected = counts.sum() / len(counts) if expected is None else expected
    return float(stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1))


def order_codes(rows: Array) -> Array:
    """Number each row's permutation 0 … n!-1."""
    n = rows.shape[1]
    codes = np.zeros(len(rows), dtype=np.int64)
    for i in range(n):
        codes = codes * (n - i) + (rows[:, i + 1 :] < rows[:, i : i + 1]).sum(axis=1)
    return codes


def feed(monkeypatch: pytest.MonkeyPatch, answers: Iterable[list[int]]) -> None:
    """Let the raw words of every stream be these, call after call."""
    rest = iter(answers)

    def raw(self: Stream, size: int) -> Array:
        words = np.array(next(rest), dtype=np.uint64)
        assert len(words) == size
        return words

    monkeypatch.setattr(Stream, "raw", raw)


def mask_raw(monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    """Leave few random bits in the raw words, so that many agree."""
    full = Stream.raw
    monkeypatch.setattr(Stream, "raw", lambda self, size: full(self, size) & np.uint64(mask))


def mask_halves(monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    """Leave few random bits in the 32-bit words, so that many agree, but all 64 in the words that break ties."""
    full = rng._halves
    monkeypatch.setattr(rng, "_halves", lambda words: full(words) & np.uint64(mask))


# --- what identifies a stream


NAMES: list[dict[str, Any]] = [
    {"purpose": purpose, "replicate": replicate, "round": round, "worker": worker}
    for purpose in ("permute", "pairs")
    for replicate in (0, 1, 2)
    for round in (0, 1, 7)
    for worker in (0, 1, 99)
]


@pytest.mark.parametrize("order_seed", [0, 1, 2])
def test_streams_do_not_depend_on_the_order_of_opening(order_seed: int) -> None:
    straight = Streams(5)
    expected = [straight.open(**name).raw(9) for name in NAMES]
    shuffled = Streams(5)
    for i in np.random.default_rng(order_seed).permutation(len(NAMES)):
        assert np.array_equal(shuffled.open(**NAMES[i]).raw(9), expected[i])


def test_a_stream_opened_again_starts_again_whatever_was_drawn_before() -> None:
    streams = Streams(5)
    expected = streams.open("a", round=3).raw(12)
    alone = Streams(5).generator("a", round=3).integers(0, 2**31, 5, dtype=np.int32)
    for i in range(1, 8):
        streams.open("a", round=3).raw(i)  # leaves a part of Philox's buffer of four
        assert np.array_equal(streams.open("a", round=3).raw(12), expected)
        streams.generator("a", round=3).integers(0, 2**31, i, dtype=np.int32)  # leaves a half word
        assert np.array_equal(streams.open("a", round=3).raw(12), expected)
        streams.open("b").permutation(i)
        streams.generator("b").integers(0, 2**31, i, dtype=np.int32)
        assert np.array_equal(streams.generator("a", round=3).integers(0, 2**31, 5, dtype=np.int32), alone)


def test_streams_differ_in_every_word_when_any_part_of_their_name_differs() -> None:
    base = {"purpose": "a", "replicate": 1, "round": 2, "worker": 3}
    names = [base]
    names += [{**base, key: 4} for key in ("replicate", "round", "worker")]
    names += [{**base, key: 0} for key in ("replicate", "round", "worker")]
    names += [
        {**base, **dict(zip(("replicate", "round", "worker"), ids, strict=True))} for ids in ((2, 1, 3), (1, 3, 2))
    ]
    names += [{**base, key: 2**40} for key in ("replicate", "round", "worker")]
    names += [{**base, "purpose": purpose} for purpose in ("b", "ab", "permute sample 0", "permute sample 1", "é")]
    drawn = [Streams(2).open(**name).raw(64) for name in names]
    drawn += [Streams(seed).open(**base).raw(64) for seed in (0, 1, 3, 2**32, 2**32 + 2, 2**63 - 1)]
    words = np.concatenate(drawn)
    # ~1300 different words: two of 64 random bits agree with probability 5·10⁻¹⁴.
    assert len(np.unique(words)) == len(words)


def test_neighbouring_streams_are_uncorrelated() -> None:
    size = 50_000
    base = Streams(8).open("a").uniform(size)
    neighbours = [
        Streams(8).open("a", worker=1),
        Streams(8).open("a", round=1),
        Streams(8).open("a", replicate=1),
        Streams(8).open("b"),
        Streams(9).open("a"),
    ]
    for stream in neighbours:
        assert abs(np.corrcoef(base, stream.uniform(size))[0, 1]) < SIGMAS / math.sqrt(size)


def test_ids_are_words_of_the_counter_so_that_streams_never_overlap() -> None:
    streams = Streams(2019)
    for replicate, round, worker in itertools.product((0, 5), (0, 6), (0, 7)):
        own = streams.open("test", replicate=replicate, round=round, worker=worker).raw(10)
        philox = np.random.Philox(key=KEY, counter=np.array([0, worker, round, replicate], dtype=np.uint64))
        assert np.array_equal(own, philox.random_raw(10))


def test_the_generator_stands_on_the_same_stream() -> None:
    philox = np.random.Philox(key=KEY, counter=np.array([0, 7, 6, 5], dtype=np.uint64))
    own = Streams(2019).generator("test", replicate=5, round=6, worker=7).hypergeometric(50, 60, 30, 20)
    assert np.array_equal(own, np.random.Generator(philox).hypergeometric(50, 60, 30, 20))


def test_first_values_are_what_they_have_always_been() -> None:
    def stream() -> Stream:
        return Streams(2019).open("test", replicate=1, round=2, worker=3)

    assert stream().raw(4).tolist() == PINNED["raw"]
    assert stream().integers(10, 12).tolist() == PINNED["integers"]
    assert stream().integers(10**12, 3).tolist() == PINNED["wide integers"]
    assert [each.tolist() for each in stream().pairs(5, 7, 6)] == PINNED["pairs"]
    assert stream().permutation(10).tolist() == PINNED["permutation"]
    assert stream().uniform(2).tolist() == PINNED["uniform"]
    # The last bits of log, sqrt, cos and sin are the machine's.
    assert stream().normal(3).tolist() == pytest.approx(PINNED["normal"], rel=1e-13)


def test_a_fresh_seed_fits_63_bits_and_is_fresh() -> None:
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) == 20  # 20 of 2⁶³ agree with probability 2·10⁻¹⁷
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) >= 2**53  # fails with probability 2⁻²⁰⁰


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        Streams(-1)


# --- permutations


@given(n=st.one_of(st.integers(0, 70), st.sampled_from([127, 128, 129, 255, 256, 257, 4095, 4096, 4097])))
def test_a_permutation_holds_every_index_once(n: int) -> None:
    permutation = Streams(n).open("a").permutation(n)
    assert permutation.dtype == np.int64
    assert np.array_equal(np.sort(permutation), np.arange(n))


@pytest.mark.parametrize("bits", [0x0, 0x1, 0xFF], ids=["no bits", "1 bit", "8 bits"])
def test_a_permutation_with_many_ties_holds_every_index_once(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    mask_halves(monkeypatch, bits)
    for n in (1, 2, 3, 100, 1001):
        assert np.array_equal(np.sort(Streams(n).open("a").permutation(n)), np.arange(n))


def test_a_permutation_is_written_to_the_array_given() -> None:
    out = np.full(9, -1, dtype=np.int64)
    assert Streams(3).open("a").permutation(9, out=out) is out
    assert np.array_equal(out, Streams(3).open("a").permutation(9))


@pytest.mark.parametrize("n", [1, 2, 5, 64, 65])
@pytest.mark.parametrize("bits", [0xFFFFFFFF, 0x3], ids=["few ties", "many ties"])
def test_permutations_made_together_are_those_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch, bits: int, n: int
) -> None:
    mask_halves(monkeypatch, bits)
    streams = Streams(16)
    together = streams.permutations("a", n, range(2, 6), 3)
    assert together.shape == (4, 3, n)
    for i, t in itertools.product(range(4), range(3)):
        alone = streams.open("a", replicate=2 + i, round=t).permutation(n)
        assert together[i, t].tolist() == alone.tolist()


def assert_small_permutations_are_uniform(n: int, draws: int) -> None:
    stream = Streams(17).open("a")
    drawn = np.array([stream.permutation(n) for _ in range(draws)])
    assert chi_square_p(np.bincount(order_codes(drawn), minlength=math.factorial(n))) > ERROR


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_small_permutations_are_uniform(n: int) -> None:
    assert_small_permutations_are_uniform(n, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_small_permutations_are_uniform_in_many_draws(n: int) -> None:
    assert_small_permutations_are_uniform(n, 200_000)


@pytest.mark.parametrize("n", [3, 4])
def test_first_permutations_of_consecutive_rounds_are_uniform(n: int) -> None:
    streams = Streams(18)
    drawn = np.array([streams.open("a", round=t).permutation(n) for t in range(15_000)])
    assert chi_square_p(np.bincount(order_codes(drawn), minlength=math.factorial(n))) > ERROR


@pytest.mark.parametrize("n", [3, 4, 5])
def test_small_permutations_are_uniform_when_most_words_tie(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    mask_halves(monkeypatch, 0x3)
    assert_small_permutations_are_uniform(n, 15_000)


@pytest.mark.parametrize("n", [3, 4])
def test_small_permutations_are_uniform_when_the_words_that_break_ties_tie(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    mask_raw(monkeypatch, 0x0000000100000001)  # keys of 1 bit, then tie-breakers of 2 bits
    assert_small_permutations_are_uniform(n, 10_000)


def groups_of_a_large_permutation(group: int, groups: int) -> Array:
    """Return the places that groups of neighbouring indices take in one large permutation."""
    permutation = Streams(19).open("a").permutation(group * groups)
    places = np.empty_like(permutation)
    places[permutation] = np.arange(len(permutation))
    return places.reshape(groups, group)


@pytest.mark.parametrize("group", [4, 5])
def test_neighbouring_indices_of_a_large_permutation_come_in_every_order_equally_often(group: int) -> None:
    codes = order_codes(groups_of_a_large_permutation(group, 200_000))
    assert chi_square_p(np.bincount(codes, minlength=math.factorial(group))) > ERROR


@pytest.mark.parametrize("group", [4, 5])
def test_neighbouring_indices_come_in_every_order_equally_often_when_every_word_ties(
    monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    # 10⁶ indices on 4 words: a group has tied members nearly always, which their numbers would put in ascending order.
    mask_halves(monkeypatch, 0x3)
    codes = order_codes(groups_of_a_large_permutation(group, 200_000))
    assert chi_square_p(np.bincount(codes, minlength=math.factorial(group))) > ERROR


def test_every_index_is_equally_likely_to_be_in_every_part_of_a_large_permutation() -> None:
    n, parts = 120_000, 12
    permutation = Streams(20).open("a").permutation(n)
    size = n // parts
    table = np.bincount(permutation // size * parts + np.repeat(np.arange(parts), size), minlength=parts**2)
    # Both margins are fixed: X²·(n-1)/n has (parts-1)² degrees of freedom.
    statistic = np.sum((table - size / parts) ** 2) / (size / parts) * (n - 1) / n
    assert stats.chi2.sf(statistic, (parts - 1) ** 2) > ERROR


# --- integers


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 1000])
def test_integers_below_a_small_bound_are_uniform(bound: int) -> None:
    drawn = Streams(21).open("a").integers(bound, 200_001)
    assert drawn.dtype == np.int64 and drawn.shape == (200_001,)
    counts = np.bincount(drawn, minlength=bound)
    assert len(counts) == bound
    assert bound == 1 or chi_square_p(counts) > ERROR


@pytest.mark.parametrize("bound", [3 * 2**30, 3 * 2**61], ids=["3·2^30", "3·2^61"])
def test_integers_below_a_bound_that_does_not_divide_the_words_are_unbiased(bound: int) -> None:
    # Without rejection one residue in three (32 bits), or the first two thirds (64 bits), come up too often by half.
    drawn = Streams(22).open("a").integers(bound, 60_000)
    assert drawn.min() >= 0 and drawn.max() < bound
    assert chi_square_p(np.bincount(drawn % 3, minlength=3)) > ERROR
    assert chi_square_p(np.bincount(drawn // (bound // 3), minlength=3)) > ERROR


@pytest.mark.parametrize("bound", [2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**62, 2**63 - 1])
def test_integers_below_a_large_bound_are_uniform(bound: int) -> None:
    drawn = Streams(23).open("a").integers(bound, 20_000)
    assert drawn.min() >= 0 and drawn.max() < bound
    assert stats.kstest(drawn / bound, "uniform").pvalue > ERROR
    assert chi_square_p(np.bincount(drawn & 15, minlength=16)) > ERROR


def test_words_that_would_favour_a_value_are_drawn_again_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2³² mod 3 = 1: only the word 0 is rejected. The first word holds 0 and 2³¹, whose value is ⌊3·2³¹/2³²⌋ = 1.
    feed(monkeypatch, [[0x80000000_00000000], [0xABCDEF01_00000000], [0xFFFFFFFF]])
    assert Streams(0).open("a").integers(3, 2).tolist() == [2, 1]


def test_wide_words_that_would_favour_a_value_are_drawn_again_until_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bound = 3 * 2**61  # the words from 2·bound = 6·2⁶¹ on are rejected
    feed(monkeypatch, [[6 * 2**61, 6 * 2**61 - 1], [2**64 - 1], [5]])
    assert Streams(0).open("a").integers(bound, 2).tolist() == [5, bound - 1]


@pytest.mark.parametrize("bound", [-1, 0, 2**63])
def test_a_bound_without_integers_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match="bound"):
        Streams(0).open("a").integers(bound, 1)


def test_index_pairs_are_uniform_over_all_pairs() -> None:
    n, m = 3, 5
    rows, columns = Streams(24).open("a").pairs(n, m, 100_000)
    assert rows.dtype == columns.dtype == np.int64
    counts = np.bincount(rows * m + columns, minlength=n * m)
    assert len(counts) == n * m and chi_square_p(counts) > ERROR


@pytest.mark.parametrize(
    ("n", "m"), [(3 * 2**30, 3 * 2**30), (2**32, 3), (2**32 + 1, 3), (3, 2**33), (3 * 2**61, 3 * 2**30)]
)
def test_index_pairs_of_large_samples_are_unbiased_and_independent(n: int, m: int) -> None:
    rows, columns = Streams(25).open("a").pairs(n, m, 60_000)
    for drawn, bound in ((rows, n), (columns, m)):
        assert drawn.min() >= 0 and drawn.max() < bound
    residues = np.bincount(rows % 3 * 3 + columns % 3, minlength=9)
    thirds = np.bincount((rows / n * 3).astype(int) * 3 + (columns / m * 3).astype(int), minlength=9)
    # The residues of bounds that 3 doesn't divide are uniform up to 10⁻⁹.
    assert chi_square_p(residues) > ERROR
    assert chi_square_p(thirds) > ERROR


@pytest.mark.parametrize(("n", "m"), [(1, 2), (28, 364), (3 * 2**30, 2**32), (2**32 + 1, 5)])
def test_pairs_may_be_counted_from_elsewhere(n: int, m: int) -> None:
    rows, columns = (np.empty(1000, dtype=np.int64) for _ in range(2))
    Streams(26).open("a").write_pairs(n, m, rows, columns, (7, 2**33))
    expected = Streams(26).open("a").pairs(n, m, 1000)
    assert np.array_equal(rows - 7, expected[0]) and np.array_equal(columns - 2**33, expected[1])


def test_a_rejected_row_keeps_the_column_of_its_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, [[0x80000000_00000000, 0x00000000_80000000], [0xFFFFFFFF], [0x40000000]])
    rows, columns = Streams(0).open("a").pairs(3, 5, 2)
    assert rows.tolist() == [2, 1]  # ⌊3·(1-2⁻³²)⌋, ⌊3/2⌋
    assert columns.tolist() == [2, 1]  # ⌊5/2⌋, ⌊5/4⌋


# --- doubles


def test_uniform_doubles_are_uniform() -> None:
    drawn = Streams(26).open("a").uniform(100_000)
    assert drawn.min() >= 0.0 and drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > ERROR
    assert np.array_equal(drawn * 2.0**53 % 1, np.zeros(len(drawn)))
    assert chi_square_p(np.bincount((drawn * 2.0**53).astype(np.int64) & 255, minlength=256)) > ERROR


def test_uniform_doubles_reach_0_but_not_1(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, [[0, 2**64 - 1, 2**63]])
    assert Streams(0).open("a").uniform(3).tolist() == [0.0, 1.0 - 2.0**-53, 0.5]


def test_normal_doubles_are_normal() -> None:
    size = 100_001
    drawn = Streams(27).open("a").normal(size)
    assert drawn.shape == (size,)
    assert stats.kstest(drawn, "norm").pvalue > ERROR
    # Mean, and excesses of the 2nd, 3rd and 4th moments over 1, 0 and 3: their variances are those of z, z², z³ and z⁴.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(drawn**power) - moment) < SIGMAS * math.sqrt(variance / size)
    half = (size + 1) // 2  # both halves come from the same radii and angles
    cosines, sines = drawn[: half - 1], drawn[half:]
    for power in (1, 2):
        correlation = np.corrcoef(cosines**power, sines**power)[0, 1]
        assert abs(correlation) < SIGMAS / math.sqrt(half)


def test_normal_doubles_are_finite_at_the_extremes_of_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, [[0, 2**64 - 1, 0, 0]])
    assert Streams(0).open("a").normal(4).tolist() == pytest.approx([0.0, math.sqrt(106 * math.log(2)), 0.0, 0.0])


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_every_draw_has_the_size_asked_for(size: int) -> None:
    stream = Streams(0).open("a")
    assert len(stream.raw(size)) == len(stream.uniform(size)) == len(stream.normal(size)) == size
    assert len(stream.integers(7, size)) == len(stream.integers(2**40, size)) == len(stream.permutation(size)) == size
    assert [len(each) for each in stream.pairs(3, 4, size)] == [size, size]


@pytest.mark.parametrize(("n", "m"), [(10, 7), (2**31 + 1, 3 * 2**30 + 5), (2**16, 2**31 + 3), (2**32 + 1, 5)])
@pytest.mark.parametrize("part", [8, 100, 1000])
def test_pairs_in_parts_are_those_drawn_at_once(n: int, m: int, part: int) -> None:
    """Also where a good part of the words are drawn again, and another stream is opened in between."""
    streams = Streams(5)
    stream = streams.open("pairs", worker=3)
    rows, columns = stream.pairs(n, m, 300)
    after = stream.raw(3).tolist()
    again = streams.open("pairs", worker=3)
    parts = []
    for k, found in enumerate(again.pairs_in_parts(n, m, 300, part)):
        parts.append(found)
        assert len(found[0]) == (300 if max(n, m) > 2**32 else min(part, 300 - k * part))
        if k == 1:
            streams.open("something else").raw(5)
    assert np.concatenate([each[0] for each in parts]).tolist() == rows.tolist()
    assert np.concatenate([each[1] for each in parts]).tolist() == columns.tolist()
    if len(parts) > 1:
        assert again.raw(3).tolist() == after
