"""Looking up ascending numbers in ascending numbers: as `numpy.searchsorted`, whatever way it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest

from mpi_ustat.numerics import lookup
from mpi_ustat.numerics.lookup import below_and_at, look_up
from mpi_ustat.numerics.runs import Runs

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


def cases() -> Iterator[Any]:
    rng = np.random.default_rng(11)
    for n, m in ((0, 0), (0, 90), (90, 0), (1, 50), (50, 1), (70, 70), (400, 60), (60, 900), (33, 3000)):
        yield rng.normal(size=n), rng.normal(size=m)
        yield rng.integers(0, 5, n).astype(float), rng.integers(0, 5, m).astype(float)
        yield rng.integers(-9, 9, n), rng.integers(-9, 9, m)
        yield rng.random(n) < 0.5, rng.random(m) < 0.5
        yield rng.choice([-np.inf, -1e308, -0.0, 0.0, 5e-324, np.inf], n), rng.choice([-np.inf, 0.0, -0.0, np.inf], m)
        yield np.full(n, 1.0), np.full(m, 1.0)
        yield rng.normal(size=n) + 1e3, rng.normal(size=m)  # all beyond the others
        yield np.append(rng.normal(size=n), [2.0] * 500), np.append(rng.normal(size=m), [2.0] * 300)
    yield np.array([np.nan]), rng.normal(size=100)


@pytest.mark.parametrize("sparse", [0, 2, 10**6])  # always halving in blocks, either, always merging
@pytest.mark.parametrize("block", [1, 7, 64])
def test_look_up_is_searchsorted(block: int, sparse: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_FEW", 5)
    monkeypatch.setattr(lookup, "_BLOCK", block)
    monkeypatch.setattr(lookup, "_SPARSE", sparse)
    for numbers, queries in cases():
        numbers, queries = np.sort(numbers), np.sort(queries)
        for side in SIDES:
            found = look_up(numbers, queries, side)
            assert found.dtype == np.int64 and np.array_equal(found, np.searchsorted(numbers, queries, side))


def test_look_up_of_many_as_it_is() -> None:
    rng = np.random.default_rng(3)
    for n, m in ((50_000, 70_000), (9000, 200_000), (3, 40_000)):
        for decimals in (2, 12):
            numbers, queries = (np.sort(rng.normal(size=size).round(decimals)) for size in (n, m))
            for side in SIDES:
                assert np.array_equal(look_up(numbers, queries, side), np.searchsorted(numbers, queries, side))


def test_below_and_at_are_counts_of_pairs() -> None:
    ties = 0
    for numbers, queries in cases():
        numbers, queries = np.sort(numbers), np.sort(queries)
        below, at = below_and_at(numbers, queries)
        assert below.tolist() == [int(np.count_nonzero(numbers < query)) for query in queries]
        equal = [int(np.count_nonzero(numbers == query)) for query in queries]
        assert (at is None) == (not any(equal)) and (at is None or at.tolist() == equal)
        ties += at is not None
    assert ties > 10


def test_runs_count_points_joined_or_not() -> None:
    rng = np.random.default_rng(5)
    for levels in (3, 10**6):
        points, queries = (np.sort(rng.integers(0, levels, 200) / 4.0) for _ in range(2))
        apart = Runs(points)
        joined = apart.distinct()
        assert joined.distinct() is joined and joined.counts is not None and joined.counts.sum() == 200
        for runs in (apart, joined):
            assert runs.n_points == 200
            assert runs.below(queries).tolist() == [int(np.count_nonzero(points < query)) for query in queries]
            assert runs.up_to(queries).tolist() == [int(np.count_nonzero(points <= query)) for query in queries]
            below, at = runs.below_and_at(queries)
            assert np.array_equal(below, runs.below(queries))
            assert np.array_equal(below + (0 if at is None else at), runs.up_to(queries))
            assert [piece.n_points for piece in runs.cut(np.array([points[50]]))] == [
                int(np.count_nonzero(points < points[50])), int(np.count_nonzero(points >= points[50]))
            ]  # fmt: skip
