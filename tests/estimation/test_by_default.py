"""What is estimated where nobody says it: all pairs, unless an option is about rounds, or it would take long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sharding import shards

from mpi_ustat import UserError, estimate_samples
from mpi_ustat.complete.timing import TimedPart
from mpi_ustat.estimation import by_default

RNG = np.random.default_rng(11)
X, Z, Y = (np.round(RNG.normal(size=size) + k, 1) for k, size in enumerate((23, 31, 18)))
POINTS = RNG.normal(size=(29, 2))
TIMES = np.column_stack([RNG.exponential(size=29), RNG.integers(0, 2, 29), POINTS[:, 0]])


def sum_of_three(x: Any, y: Any, z: Any) -> Any:
    return (x + y + z)[:, 0]


sum_of_three.degrees = (3,)  # type: ignore[attr-defined]

STATISTICS: dict[str, tuple[tuple[Any, ...], Any, bool]] = {
    "auc": ((X, Z), "auc", False),
    "vus": ((X, Z, Y), "vus", False),
    "gini of two": ((X, Z), "gini", False),
    "gini": ((X,), "gini", False),
    "variance": ((X,), "variance", False),
    "product": ((X, Z), "product", False),
    "kendall": ((POINTS,), "kendall", False),
    "concordance": ((TIMES,), "concordance", False),
    "energy": ((POINTS, POINTS[:20] + 1.0), "energy", True),
    "mmd": ((POINTS, POINTS[:20] + 1.0), "mmd", True),
    "fmr": ((POINTS,), "fmr", True),
    "pairs of a user": ((X, Z), lambda x, z: np.abs(x - z.T), True),
    "triples of a user": ((X,), sum_of_three, True),
}
"""Samples, the kernel, and whether it looks at every pair."""


@pytest.mark.parametrize("name", STATISTICS)
def test_it_is_the_complete_statistic(comm: Any, name: str) -> None:
    samples, kernel, _ = STATISTICS[name]
    own = shards(comm, samples)
    found = estimate_samples(comm, own, kernel, seed=1)
    want = estimate_samples(comm, own, kernel, seed=1, complete=True)
    assert (found.value, found.stderr, found.interval) == (want.value, want.stderr, want.interval)
    assert found.config == want.config and found.config.complete


ROUNDS: dict[str, dict[str, Any]] = {
    "workers": {"n_workers": 1},
    "rounds": {"n_rounds": 1},
    "pairs": {"n_pairs": 5},
    "different pairs": {"n_pairs": 5, "distinct": True},
    "scheme": {"scheme": "prop-swor"},
    "aggregate": {"aggregate": "mean"},
    "empty": {"empty": "refuse"},
    "move": {"move": "both"},
    "shuffle": {"shuffle": "auto"},
    "reference": {"reference": True},
    "not complete": {"complete": False},
}


@pytest.mark.parametrize("name", ROUNDS)
def test_an_option_about_rounds_asks_for_them_even_if_it_is_the_default(comm: Any, name: str) -> None:
    found = estimate_samples(comm, shards(comm, (X, Z)), seed=1, **ROUNDS[name])
    n_workers = ROUNDS[name].get("n_workers", comm.size)
    assert not found.config.complete
    assert found.per_worker.shape == (1, n_workers)


def test_with_rounds_it_is_all_pairs_if_that_is_said(comm: Any) -> None:
    found = estimate_samples(comm, shards(comm, (X, Z)), seed=1, complete=True, n_workers=3, n_rounds=2)
    assert found.config.complete and found.per_worker.size == 0


@pytest.mark.parametrize("name", STATISTICS)
def test_what_takes_long_is_refused_unless_it_is_asked_for(
    comm: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_default, "_MOST_SECONDS", 0.0)
    monkeypatch.setattr(by_default, "_FEW", 1)
    samples, kernel, by_pairs = STATISTICS[name]
    own = shards(comm, samples)
    if not by_pairs:
        assert estimate_samples(comm, own, kernel, seed=1).config.complete
        return
    with pytest.raises(UserError, match="every (pair|tuple), and all .* would take about .*: give complete=True"):
        estimate_samples(comm, own, kernel, seed=1)
    assert estimate_samples(comm, own, kernel, seed=1, complete=True).config.complete


def test_groups_have_fewer_pairs_than_can_be_told_beforehand(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_default, "_MOST_SECONDS", 0.0)
    monkeypatch.setattr(by_default, "_FEW", 1)
    own, strata = shards(comm, (X, Z)), shards(comm, (np.arange(23) % 2, np.arange(31) % 2))
    kernel = STATISTICS["pairs of a user"][1]
    assert estimate_samples(comm, own, kernel, seed=1, strata=strata).config.complete
    with pytest.raises(UserError, match="would take about"):
        estimate_samples(comm, own, kernel, seed=1, weights=[np.ones(len(each)) for each in own])


@pytest.mark.parametrize("seconds", [59.0, 61.0])
@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("fmr", math.comb(29, 2) / math.comb(10, 2)),
        ("energy", math.comb(49, 2) / math.comb(20, 2)),
        ("pairs of a user", 23 * 31 / 100),
        ("triples of a user", math.comb(23, 3) / math.comb(10, 3)),
    ],
)
def test_it_is_predicted_from_the_number_of_pairs(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str, pairs: float, seconds: float
) -> None:
    samples, kernel, _ = STATISTICS[name]

    def parts(comm: Any, given: Sequence[Any], *others: Any, **options: Any) -> list[TimedPart]:
        return [TimedPart(0.1, (10,) * len(given), seconds / pairs, 0.0)]

    monkeypatch.setattr(by_default, "timed_parts", parts)
    monkeypatch.setattr(by_default, "_FEW", 1)
    own = shards(comm, samples)
    if seconds < 60.0:
        assert estimate_samples(comm, own, kernel, seed=1).config.complete
        return
    with pytest.raises(UserError, match="would take about 61 seconds"):
        estimate_samples(comm, own, kernel, seed=1)


def test_samples_of_very_different_sizes_have_tuples_in_every_part(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_six(*points: Any) -> Any:
        return sum(points)[:, 0]

    of_six.degrees = (1, 5)  # type: ignore[attr-defined]
    monkeypatch.setattr(by_default, "_MOST_SECONDS", 0.0)
    own = shards(comm, (np.arange(20_000.0), np.arange(5.0)))
    with pytest.raises(UserError, match=r"every tuple, and all 2e\+04 would take"):
        monkeypatch.setattr(by_default, "_FEW", 1)
        estimate_samples(comm, own, of_six, seed=1)
    assert estimate_samples(comm, own, of_six, seed=1, complete=True).config.complete


def test_blocks_are_shared_among_the_ranks_where_there_are_several(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(12).normal(size=(1500, 1))  # 12 blocks, of ten points there is one
    one = TimedPart(0.1, (10,), 61.0 * math.comb(10, 2) / math.comb(1500, 2), 0.0)
    monkeypatch.setattr(by_default, "timed_parts", lambda *given, **options: [one])
    own = shards(comm, (points,))
    if comm.size > 1:
        assert estimate_samples(comm, own, "fmr", seed=1).config.complete
        return
    with pytest.raises(UserError, match="would take about 61 seconds"):
        estimate_samples(comm, own, "fmr", seed=1)
