"""Who holds which rows in which round: sizes, the law of the assignment, and what is refused.

Statistical checks refuse a right implementation with probability 10⁻⁶ each; the seeds are fixed, so that what has
passed passes again.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes import partition as partition_module
from mpi_ustat.schemes.countmatrix import count_matrix
from mpi_ustat.schemes.partition import Blocks, Dealt, Ordered, Partition, Travelling, block_bounds
from mpi_ustat.schemes.registry import SCHEMES, scheme_of

ERROR = 1e-6
Array = NDArray[Any]


def labels_of(blocks: Blocks) -> Array:
    """Return the worker of every row."""
    if isinstance(blocks, Travelling):
        return np.argsort(blocks.holding)[labels_of(blocks.base)]
    n = int(blocks.bounds[-1])
    if isinstance(blocks, Dealt):
        return blocks.workers_of(0, n).astype(np.int64)
    labels = np.full(n, -1)
    order = np.arange(n) if blocks.order is None else blocks.order
    labels[order] = np.repeat(np.arange(len(blocks.bounds) - 1), np.diff(blocks.bounds))
    return labels


# --- block bounds


@given(total=st.one_of(st.integers(0, 500), st.integers(0, 2**62)), parts=st.integers(1, 600))
def test_blocks_cover_all_rows_in_runs_of_nearly_equal_length(total: int, parts: int) -> None:
    bounds = block_bounds(total, parts).tolist()
    assert len(bounds) == parts + 1 and bounds[0] == 0 and bounds[-1] == total
    lengths = np.diff(bounds).tolist()
    assert set(lengths) <= {total // parts, total // parts + 1}
    assert lengths == sorted(lengths, reverse=True)


# --- the law of prop-swor


VARIANTS = {
    "permutation": ("permutation", None, None),
    "matrix": ("matrix", None, None),
    "matrix of 3 source blocks": ("matrix", 3, None),
    "tree": ("matrix", 0, 2),
}
"""Shuffle, number of source blocks (0: a tree) and rows shuffled at once; None leaves it to the code, which takes one
for samples as small as here, and all of them."""

every_variant = pytest.mark.parametrize("variant", VARIANTS)


@functools.cache
def repartitions(
    variant: str, sizes: tuple[int, ...], n_workers: int, rounds: int, replicate: int = 0
) -> tuple[Array, ...]:
    """Return, for each sample, the workers of its points (columns) in each round (rows)."""
    shuffle, sources, at_once = VARIANTS[variant]
    with pytest.MonkeyPatch.context() as patch:
        if at_once:
            patch.setattr(partition_module, "_BOTTOM_ROWS", at_once)
            patch.setattr(partition_module, "_ROWS_PER_DRAW", 0)
        if sources:
            patch.setattr(partition_module, "source_blocks", lambda size, n_workers: sources)
        patch.setattr(partition_module, "draws_whole_matrix", lambda size, n_workers: sources != 0)
        partition = Partition(SCHEMES["prop-swor"], sizes, n_workers, Streams(6), shuffle=shuffle, replicate=replicate)
        drawn = [[labels_of(blocks) for blocks in partition.round(t)] for t in range(rounds)]
    return tuple(np.array(labels) for labels in zip(*drawn, strict=True))


ROUNDS, POINTS, WORKERS = 3_000, 6, 3


def six_and_six(variant: str, replicate: int = 0) -> tuple[Array, ...]:
    return repartitions(variant, (POINTS, POINTS), WORKERS, ROUNDS, replicate)


def meetings_p(first: Array, second: Array) -> float:
    """Return the p-value of how often each row of one sample shares a worker with each of the other.

    Σ(K_kl - R/N)²/(Rλ) has (n-1)(m-1) degrees of freedom, λ = nm(1/N)(1-1/N)/((n-1)(m-1)), when the two assignments
    are independent and uniform.
    """
    (rounds, n), m = first.shape, second.shape[1]
    meetings = (first[:, :, None] == second[:, None, :]).sum(axis=0)
    share = 1 / WORKERS
    scale = n * m * share * (1 - share) / ((n - 1) * (m - 1))
    statistic = np.sum((meetings - rounds * share) ** 2) / (rounds * scale)
    return float(stats.chi2.sf(statistic, (n - 1) * (m - 1)))


@every_variant
def test_every_point_is_in_every_worker_equally_often(variant: str) -> None:
    for labels in six_and_six(variant):
        counts = np.array([(labels == worker).sum(axis=0) for worker in range(WORKERS)])
        expected = ROUNDS / WORKERS
        # The block sizes are fixed in each round: not the plain X² but X²·(n-1)/n is χ².
        statistic = np.sum((counts - expected) ** 2 / expected) * (POINTS - 1) / POINTS
        assert stats.chi2.sf(statistic, (POINTS - 1) * (WORKERS - 1)) > ERROR


@every_variant
def test_every_cross_pair_is_together_in_a_third_of_the_rounds(variant: str) -> None:
    assert meetings_p(*six_and_six(variant)) > ERROR


@every_variant
def test_all_90_assignments_of_6_points_to_3_workers_are_equally_likely(variant: str) -> None:
    for labels in six_and_six(variant):
        counts = np.unique(labels @ WORKERS ** np.arange(POINTS), return_counts=True)[1]
        assert len(counts) == 90
        assert stats.chisquare(counts).pvalue > ERROR


@every_variant
def test_the_rounds_are_independent(variant: str) -> None:
    for labels in six_and_six(variant):
        assert meetings_p(labels[0::2], labels[1::2]) > ERROR


def test_replicates_are_independent() -> None:
    for first, second in zip(six_and_six("permutation"), six_and_six("permutation", replicate=1), strict=True):
        assert meetings_p(first, second) > ERROR


@pytest.mark.parametrize("variant", ["permutation", "matrix of 3 source blocks", "tree"])
def test_all_assignments_are_equally_likely_when_the_workers_do_not_divide_the_sample(variant: str) -> None:
    (labels,) = repartitions(variant, (7,), 3, 2500)
    counts = np.unique(labels @ 3 ** np.arange(7), return_counts=True)[1]
    assert len(counts) == math.factorial(7) // (math.factorial(3) * 2 * 2)  # 210
    assert stats.chisquare(counts).pvalue > ERROR


# --- rounds are functions of their number


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize("scheme", ["prop-swor", "rotation"])
def test_a_round_needs_none_of_the_rounds_before_it(shuffle: str, scheme: str) -> None:
    def make(seed: int = 3, replicate: int = 0) -> Partition:
        return Partition(SCHEMES[scheme], (40, 23), 4, Streams(seed), shuffle=shuffle, replicate=replicate)

    def labels(partition: Partition, t: int) -> list[list[int]]:
        return [labels_of(blocks).tolist() for blocks in partition.round(t)]

    partition = make()
    in_order = [labels(partition, t) for t in range(5)]
    assert [labels(make(), t) for t in (4, 0, 3)] == [in_order[t] for t in (4, 0, 3)]
    assert labels(partition, 2) == in_order[2]
    others = [labels(make(seed=4), 0), labels(make(replicate=1), 0)]
    # Two of ~10²¹ assignments of the larger sample agree with a probability that can be forgotten.
    different = {str(each[0]) for each in in_order + others}
    assert len(different) == (7 if scheme == "prop-swor" else 4)  # x stays during a rotation of 4 rounds


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize(("sizes", "n_workers"), [((6, 6), 3), ((7, 11), 3), ((5, 5), 5), ((9, 4), 4), ((8, 3), 1)])
def test_block_sizes_are_those_of_the_bounds_and_differ_by_at_most_one(
    shuffle: str, sizes: tuple[int, ...], n_workers: int
) -> None:
    for blocks, size in zip(
        Partition(SCHEMES["prop-swor"], sizes, n_workers, Streams(1), shuffle=shuffle).round(2), sizes, strict=True
    ):
        assert blocks.bounds.tolist() == block_bounds(size, n_workers).tolist()
        assert np.bincount(labels_of(blocks), minlength=n_workers).tolist() == np.diff(blocks.bounds).tolist()


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
def test_samples_of_equal_size_are_spread_differently(shuffle: str) -> None:
    x, z = Partition(SCHEMES["prop-swor"], (60, 60), 4, Streams(1), shuffle=shuffle).round(0)
    assert labels_of(x).tolist() != labels_of(z).tolist()


# --- rotation


def meetings_of(sizes: tuple[int, ...], n_workers: int, rounds: range, shuffle: str = "permutation") -> Array:
    """Return how often each row of one sample shares a worker with each of the other."""
    partition = Partition(SCHEMES["rotation"], sizes, n_workers, Streams(4), shuffle=shuffle)
    together = np.zeros(sizes, dtype=np.int64)
    for t in rounds:
        x, z = (labels_of(blocks) for blocks in partition.round(t))
        together += x[:, None] == z[None, :]
    return together


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize("sizes", [(12, 8), (8, 12), (12, 12)])
def test_rotation_lets_every_point_meet_equally_many_others_and_every_pair_once(
    shuffle: str, sizes: tuple[int, int]
) -> None:
    for n_rounds in range(1, 5):
        together = meetings_of(sizes, 4, range(n_rounds), shuffle)
        assert together.max() == 1
        assert set(together.sum(axis=1)) == {n_rounds * sizes[1] // 4}
        assert set(together.sum(axis=0)) == {n_rounds * sizes[0] // 4}
    assert (together == 1).all()


@pytest.mark.parametrize("sizes", [(11, 7), (6, 13), (9, 9), (4, 4)])
def test_a_whole_rotation_of_uneven_blocks_lets_every_pair_meet_once(sizes: tuple[int, int]) -> None:
    for cycle in (0, 1, 5):
        assert (meetings_of(sizes, 4, range(4 * cycle, 4 * cycle + 4)) == 1).all()


@pytest.mark.parametrize("sizes", [(7, 6, 5), (4, 4, 4), (3, 4, 3, 5)])
def test_a_whole_rotation_lets_every_tuple_of_points_meet_once(sizes: tuple[int, ...]) -> None:
    n_workers = 3
    partition = Partition(SCHEMES["rotation"], sizes, n_workers, Streams(4))
    together = np.zeros(sizes, dtype=np.int64)
    for t in range(n_workers ** (len(sizes) - 1)):
        first, *others = np.ix_(*(labels_of(blocks) for blocks in partition.round(t)))
        together += functools.reduce(np.logical_and, [each == first for each in others])
    assert (together == 1).all()


@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
def test_rotation_starts_from_a_prop_swor_partition_and_from_another_one_in_every_cycle(shuffle: str) -> None:
    sizes, n_workers = (40, 23), 4
    rotation, swor = (
        Partition(SCHEMES[scheme], sizes, n_workers, Streams(5), shuffle=shuffle)
        for scheme in ("rotation", "prop-swor")
    )
    for t in (0, 4, 8):
        for blocks, expected in zip(rotation.round(t), swor.round(t), strict=True):
            assert labels_of(blocks).tolist() == labels_of(expected).tolist()


def test_the_blocks_of_a_cycle_are_the_same_objects() -> None:
    partition = Partition(SCHEMES["rotation"], (9, 20, 20), 4, Streams(5))
    rounds = [partition.round(t) for t in range(16)]
    z, x, y = rounds[0]
    assert isinstance(x, Ordered)  # the largest, the first of equal ones, stays
    for blocks in rounds:
        assert blocks[1] is x
        for travels, first in ((blocks[0], z), (blocks[2], y)):
            assert isinstance(travels, Travelling) and isinstance(first, Travelling)
            assert travels.base is first.base
            assert np.diff(travels.bounds).tolist() == np.diff(first.base.bounds)[travels.holding].tolist()
    assert partition.round(16)[1] is not x


@pytest.mark.parametrize("n_workers", [1, 2, 5, 6])
@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
def test_one_sample_is_at_home_and_visits(n_workers: int, shuffle: str) -> None:
    partition = Partition(SCHEMES["rotation"], (17,), n_workers, Streams(5), shuffle=shuffle)
    swor = Partition(SCHEMES["prop-swor"], (17,), n_workers, Streams(5), shuffle=shuffle)
    length = n_workers // 2 + 1
    for t in range(2 * length):
        home, visiting = partition.round(t)
        assert isinstance(visiting, Travelling) and visiting.base is home
        assert visiting.holding.tolist() == [(i + t % length) % n_workers for i in range(n_workers)]
        if t % length == 0:
            assert labels_of(home).tolist() == labels_of(swor.round(t)[0]).tolist()


# --- dealing by source blocks


@pytest.mark.parametrize(("size", "n_workers", "sources"), [(23, 4, 1), (23, 4, 3), (24, 5, 8), (17, 3, 17)])
def test_the_workers_of_some_rows_are_those_they_have_among_all_rows(
    monkeypatch: pytest.MonkeyPatch, size: int, n_workers: int, sources: int
) -> None:
    monkeypatch.setattr(partition_module, "source_blocks", lambda size, n_workers: sources)
    (dealt,) = Partition(SCHEMES["prop-swor"], (size,), n_workers, Streams(2), shuffle="matrix").round(3)
    assert isinstance(dealt, Dealt)
    everyone = dealt.workers_of(0, size).tolist()
    for first, last in itertools.combinations(range(size + 1), 2):
        assert dealt.workers_of(first, last).tolist() == everyone[first:last]


@pytest.mark.parametrize("sources", [1, 3])
def test_no_rows_have_no_workers_wherever_they_are(monkeypatch: pytest.MonkeyPatch, sources: int) -> None:
    monkeypatch.setattr(partition_module, "source_blocks", lambda size, n_workers: sources)
    (dealt,) = Partition(SCHEMES["prop-swor"], (20,), 4, Streams(2), shuffle="matrix").round(0)
    assert isinstance(dealt, Dealt)
    assert [len(dealt.workers_of(i, i)) for i in range(21)] == [0] * 21


def test_more_than_256_workers_can_be_dealt_to() -> None:
    (dealt,) = Partition(SCHEMES["prop-swor"], (3000,), 300, Streams(2), shuffle="matrix").round(0)
    assert np.bincount(labels_of(dealt)).tolist() == [10] * 300


@given(size=st.integers(1, 10**9), n_workers=st.integers(1, 10**5))
def test_source_blocks_are_a_power_of_two_near_the_cheapest_number_and_none_is_empty(size: int, n_workers: int) -> None:
    sources = partition_module.source_blocks(size, n_workers)
    assert sources.bit_count() == 1 and sources <= size
    cheapest = math.sqrt(max(size / (64 * n_workers), 1))
    assert cheapest / 1.4143 <= sources <= cheapest * 1.4143


# --- the count matrix


@st.composite
def margins(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Sizes of source and destination blocks with equal sums, zeros among them."""
    sources = draw(st.lists(st.one_of(st.integers(0, 4), st.integers(0, 10**6)), min_size=1, max_size=12))
    total = sum(sources)
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=11)))
    return sources, np.diff([0, *cuts, total]).tolist()


@given(sizes=margins(), seed=st.integers(0, 1000))
def test_a_count_matrix_has_the_block_sizes_as_its_margins(sizes: tuple[list[int], list[int]], seed: int) -> None:
    sources, destinations = sizes
    counts = count_matrix(sources, destinations, np.random.default_rng(seed))
    assert counts.shape == (len(sources), len(destinations)) and counts.min() >= 0
    assert counts.sum(axis=1).tolist() == sources
    assert counts.sum(axis=0).tolist() == destinations


def test_a_count_matrix_of_the_largest_total_has_the_block_sizes_as_its_margins() -> None:
    sources, destinations = block_bounds(10**9 - 1, 7), block_bounds(10**9 - 1, 11)
    counts = count_matrix(np.diff(sources), np.diff(destinations), np.random.default_rng(0))
    assert np.array_equal(counts.sum(axis=1), np.diff(sources))
    assert np.array_equal(counts.sum(axis=0), np.diff(destinations))


def all_matrices(sources: tuple[int, ...], destinations: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Return all matrices of counts with these margins, by brute force."""
    rows = [
        [row for row in itertools.product(range(n + 1), repeat=len(destinations)) if sum(row) == n] for n in sources
    ]
    return [
        matrix
        for matrix in itertools.product(*rows)
        if all(sum(column) == c for column, c in zip(zip(*matrix, strict=True), destinations, strict=True))
    ]


@pytest.mark.parametrize(
    ("sources", "destinations"),
    [
        ((2, 2), (2, 2)),
        ((2, 3), (2, 2, 1)),
        ((1, 2, 2), (3, 2)),
        ((3, 1, 2), (2, 2, 2)),
        ((1, 2, 1, 1, 1), (4, 2)),
        ((3, 0, 3), (1, 2, 3)),
    ],
)
def test_count_matrices_have_the_law_of_uniform_partitions(
    sources: tuple[int, ...], destinations: tuple[int, ...]
) -> None:
    draws = 4000
    generator = np.random.default_rng(11)
    drawn = Counter(tuple(map(tuple, count_matrix(sources, destinations, generator).tolist())) for _ in range(draws))
    matrices = all_matrices(sources, destinations)
    assert set(drawn) <= set(matrices)
    factorials = math.prod(map(math.factorial, sources + destinations))
    law = np.array(
        [
            factorials / math.factorial(sum(sources)) / math.prod(math.factorial(c) for row in matrix for c in row)
            for matrix in matrices
        ]
    )
    assert math.isclose(law.sum(), 1, rel_tol=1e-12)
    assert draws * law.min() > 20  # so that χ² is a good approximation
    assert stats.chisquare([drawn[matrix] for matrix in matrices], draws * law).pvalue > ERROR


@pytest.mark.parametrize(("sources", "destinations"), [((7,), (3, 0, 4)), ((3, 0, 4), (7,)), ((5,), (5,))])
def test_a_single_source_or_destination_leaves_one_matrix(
    sources: tuple[int, ...], destinations: tuple[int, ...]
) -> None:
    (expected,) = all_matrices(sources, destinations)
    assert count_matrix(sources, destinations, np.random.default_rng(0)).tolist() == [list(row) for row in expected]


def test_every_count_of_large_blocks_is_hypergeometric() -> None:
    sources, destinations, draws = np.array([300, 500, 400]), np.array([700, 200, 300]), 1500
    generator = np.random.default_rng(12)
    counts = np.array([count_matrix(sources, destinations, generator) for _ in range(draws)])
    for i, j in itertools.product(range(3), repeat=2):
        law = stats.hypergeom(1200, sources[i], destinations[j])
        cuts = np.unique(law.ppf(np.arange(1, 10) / 10))  # deciles, as far as a whole number can be one
        observed = np.bincount(np.searchsorted(cuts, counts[:, i, j], side="left"), minlength=len(cuts) + 1)
        expected = draws * np.diff(np.concatenate([[0], law.cdf(cuts), [1]]))
        assert stats.chisquare(observed, expected).pvalue > ERROR


# --- choosing the shuffle, and refusals


def test_auto_deals_samples_of_2_to_the_17_rows_and_more_by_matrix() -> None:
    x, z = Partition(SCHEMES["prop-swor"], (2**17, 2**17 - 1), 4, Streams(0)).round(0)
    assert isinstance(x, Dealt)
    assert isinstance(z, Ordered)
    assert partition_module._use_matrix("auto", 10**12)


@pytest.mark.parametrize("sizes", [(100, 6), (6, 100)])
def test_more_workers_than_points_of_the_smaller_sample_are_refused_naming_both_numbers(
    sizes: tuple[int, ...],
) -> None:
    with pytest.raises(UserError, match=r"^7 workers .* sample of 6: use at most 6 workers"):
        Partition(SCHEMES["prop-swor"], sizes, 7, Streams(0))


def test_an_unknown_scheme_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(UserError, match="'swap': use .*prop-swor"):
        scheme_of("swap")


def test_an_unknown_shuffle_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(UserError, match="'riffle': use auto, permutation or matrix"):
        Partition(SCHEMES["prop-swor"], (6, 6), 3, Streams(0), shuffle="riffle")
