"""The tree of counts: its law, that of the whole count matrix, also of more rows than NumPy's draws are made for.

Statistical checks refuse a right implementation with probability 10⁻⁶ each; the seeds are fixed, so that what has
passed passes again.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints
from mpi_ustat.schemes import counttree
from mpi_ustat.schemes import partition as partition_module
from mpi_ustat.schemes.countmatrix import count_matrix
from mpi_ustat.schemes.counttree import draw_items, walk
from mpi_ustat.schemes.partition import Dealt, Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES

ERROR = 1e-6


def tree(counts: list[int], at_most: int, replicate: int, first: int = 0, last: int | None = None) -> dict[int, Ints]:
    """Return the counts of the bottom ranges that hold these rows, by where these start."""
    streams, sizes = Streams(3), np.array(counts)
    stop = sum(counts) if last is None else last
    found = walk(sizes, first, stop, at_most, lambda node: streams.generator("t", worker=node, replicate=replicate))
    return {start: each for start, _, each in found}


def all_tables(rows: tuple[int, ...], columns: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Return all matrices of counts with these margins, by brute force."""
    of_row = [[row for row in itertools.product(range(n + 1), repeat=len(columns)) if sum(row) == n] for n in rows]
    return [
        table
        for table in itertools.product(*of_row)
        if all(sum(column) == c for column, c in zip(zip(*table, strict=True), columns, strict=True))
    ]


@pytest.mark.parametrize("few", [0, 16])
def test_all_matrices_of_4_ranges_and_3_blocks_are_drawn_with_their_probabilities(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(counttree, "_FEW", few)
    rows, columns, draws = (2, 2, 2, 2), (4, 3, 1), 4000
    found = Counter(tuple(tuple(each.tolist()) for each in tree([4, 3, 1], 2, r).values()) for r in range(draws))
    tables = all_tables(rows, columns)
    assert len(tables) > 30 and set(found) <= set(tables)
    margins = Fraction(math.prod(map(math.factorial, rows + columns)), math.factorial(8))
    law = [margins / math.prod(math.factorial(c) for row in table for c in row) for table in tables]
    assert sum(law) == 1
    expected = np.array([float(draws * p) for p in law])
    assert expected.min() > 5
    assert stats.chisquare([found[table] for table in tables], expected).pvalue > ERROR


def test_the_counts_of_the_tree_have_the_law_of_the_whole_matrix() -> None:
    sizes, draws = [400, 350, 250], 1000
    drawn = np.array([list(tree(sizes, 250, r).values()) for r in range(draws)])
    generator = np.random.default_rng(4)
    whole = np.array([count_matrix([250] * 4, sizes, generator) for _ in range(draws)])
    assert drawn.shape == whole.shape
    for i, j in itertools.product(range(4), range(3)):
        cuts = np.unique(np.quantile(whole[:, i, j], np.arange(1, 8) / 8))
        tables = [np.bincount(np.searchsorted(cuts, each[:, i, j]), minlength=len(cuts) + 1) for each in (drawn, whole)]
        assert stats.chi2_contingency(tables).pvalue > ERROR
    # And how counts of two ranges of four hang together, wherever the tree has parted them.
    for one, other in ((0, 1), (0, 3)):
        found = np.corrcoef(drawn[:, one, 0], drawn[:, other, 0])[0, 1]
        assert abs(np.arctanh(found) - np.arctanh(-1 / 3)) < 5 / math.sqrt(draws)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=9).filter(any), at_most=st.integers(1, 50), data=st.data()
)
def test_a_rank_finds_rows_of_the_matrix_that_all_find(counts: list[int], at_most: int, data: st.DataObject) -> None:
    total, whole = sum(counts), tree(counts, at_most, 0)
    assert sum(whole.values()).tolist() == counts
    bounds = [*whole, total]
    assert [int(each.sum()) for each in whole.values()] == np.diff(bounds).tolist()
    assert max(np.diff(bounds)) <= at_most and min(each.min() for each in whole.values()) >= 0
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first + 1, total))
    some = tree(counts, at_most, 0, first, last)
    assert list(some) == [a for a, b in itertools.pairwise(bounds) if a < last and first < b]
    assert all(np.array_equal(each, whole[start]) for start, each in some.items())


@pytest.mark.parametrize(("few", "limit"), [(0, 10**9), (2, 3)])
@pytest.mark.parametrize(
    ("good", "bad", "sample"),
    [(3, 4, 3), (5, 2, 6), (2, 7, 5), (6, 6, 4), (1, 8, 4), (4, 0, 3), (0, 5, 2), (4, 5, 9), (4, 5, 0), (1, 5, 1)],
)
def test_items_of_two_colours_are_hypergeometric(
    monkeypatch: pytest.MonkeyPatch, good: int, bad: int, sample: int, few: int, limit: int
) -> None:
    monkeypatch.setattr(counttree, "_FEW", few)
    monkeypatch.setattr(counttree, "_LIMIT", limit)
    draws, of_all, generator = 2000, math.comb(good + bad, sample), np.random.default_rng(3)
    law = {
        k: Fraction(math.comb(good, k) * math.comb(bad, sample - k), of_all)
        for k in range(max(0, sample - bad), min(good, sample) + 1)
    }
    assert sum(law.values()) == 1
    urn = np.array([good, bad])
    found = np.bincount([draw_items(urn, sample, generator)[0] for _ in range(draws)], minlength=good + 1)
    assert set(np.flatnonzero(found).tolist()) <= law.keys()
    if len(law) > 1:
        observed = np.array([found[k] for k in law])
        expected = draws * np.array([float(p) for p in law.values()])
        frequent = expected >= 5  # of the others χ² is no good approximation
        observed, expected = (np.append(each[frequent], each[~frequent].sum()) for each in (observed, expected))
        kept = expected > 0
        assert stats.chisquare(observed[kept], expected[kept]).pvalue > ERROR


@pytest.mark.parametrize(
    ("good", "bad", "sample"),
    [
        (3 * 10**9, 2 * 10**9, 10**9),
        (7 * 10**11, 3 * 10**11, 5 * 10**11),
        (6 * 10**12, 10**12, 10**6),
        (5 * 10**9, 10**5, 4 * 10**9),
    ],
)
def test_items_of_thousands_of_millions_have_the_moments_and_deciles_of_the_law(
    good: int, bad: int, sample: int
) -> None:
    total, draws, generator = good + bad, 400, np.random.default_rng(5)
    urn = np.array([good, bad])
    found = np.array([int(draw_items(urn, sample, generator)[0]) - good * sample // total for _ in range(draws)])
    mean = float(Fraction(good * sample, total) - good * sample // total)
    spread = math.sqrt(Fraction(sample * good * bad * (total - sample), total**2 * (total - 1)))
    # Skewness and lattice shift the deciles by less than 1/spread of the spread, which is 60 at least.
    z = (found - mean) / spread
    assert abs(z.mean()) < 5 / math.sqrt(draws)
    assert abs((z**2).mean() - 1) < 5 * math.sqrt(2 / draws)
    counts = np.bincount(np.searchsorted(stats.norm.ppf(np.arange(1, 10) / 10), z), minlength=10)
    assert stats.chisquare(counts).pvalue > ERROR


def test_a_rank_of_ten_thousand_finds_its_rows_among_ten_million_million() -> None:
    n, n_workers, first = 10**13, 10**4, 1_234_567_890_123
    sizes = np.diff(block_bounds(n, n_workers))
    streams = Streams(1)
    ((start, stop, of_range), *more) = walk(
        sizes, first, first + 1, 10**6, lambda node: streams.generator("t", worker=node)
    )
    assert start <= first < stop <= start + 10**6 and not more
    assert of_range.sum() == stop - start and of_range.min() >= 0
    assert stats.chisquare(of_range).pvalue > ERROR  # so few of all rows are as if drawn with replacement


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 7])
def test_workers_are_the_same_at_every_number_of_ranks(n_ranks: int) -> None:
    size, n_workers = 1_400_000, 9000  # of which every rank would draw a matrix of 9000 entries or more
    assert not partition_module.draws_whole_matrix(size, n_workers)
    (dealt,) = Partition(SCHEMES["prop-swor"], (size,), n_workers, Streams(2), shuffle="matrix").round(1)
    assert isinstance(dealt, Dealt)
    whole = dealt.workers_of(0, size)
    assert np.array_equal(np.bincount(whole, minlength=n_workers), np.diff(dealt.bounds))
    of_ranks = [dealt.workers_of(*each) for each in itertools.pairwise(block_bounds(size, n_ranks).tolist())]
    assert np.array_equal(np.concatenate(of_ranks), whole)


def test_which_way_a_sample_is_drawn_depends_on_its_size_and_the_workers_alone() -> None:
    whole = partition_module.draws_whole_matrix
    assert whole(10**7, 100) and whole(10**6, 8192) and whole(10**9 - 1, 2)
    assert not whole(10**8, 100) and not whole(10**6, 8193) and not whole(10**9, 2)
