"""What points learn of Kendall's tau: brute force in rational numbers, SciPy's values, and the same bits at every P."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from one_sample_data import analysed, by_pairs, drawn, own, whole
from scipy import stats
from sharding import SPREADS

from mpi_ustat import SerialComm
from mpi_ustat.influence.kendall import kendall
from mpi_ustat.influence.points import Sample
from mpi_ustat.kernels.kendall import Kendall

Array = NDArray[Any]


def pairs_of(rng: np.random.Generator, n: int) -> Array:
    values = rng.integers(-1, rng.integers(1, 4), (n, 2)).astype(float)
    values[values[:, 1] == 0.0, 1] = -0.0
    return values + (rng.random((n, 1)) < rng.choice([0.0, 0.3])) * rng.normal(size=(n, 2))


@pytest.mark.parametrize("trial", range(12))
def test_against_all_pairs(comm: Any, trial: int) -> None:
    sample = drawn(trial, pairs_of)
    points = sample.rows.tolist()

    def h(i: int, j: int) -> list[int]:
        signs = [int(a > b) - int(a < b) for a, b in zip(points[i], points[j], strict=True)]
        return [signs[0] * signs[1], *map(abs, signs)]

    expected, pairs = by_pairs(sample, h)
    for spread_out in SPREADS:
        mine = own(comm, sample, spread_out)
        (found,), _ = kendall(comm, [mine])
        sums, p = whole(comm, found.h, len(mine.rows)), whole(comm, found.pairs, len(mine.rows))
        if sample.weights is None or trial % 3 == 2:
            assert sums.dtype == p.dtype == np.int64
            assert_array_equal(sums, expected)
        assert_allclose(sums, [[*map(float, part)] for part in expected], rtol=1e-15, atol=0)
        assert_allclose(p, [*map(float, pairs)], rtol=1e-15, atol=0)
        (of_a,), _ = kendall(comm, [mine], "a")
        assert_array_equal(of_a.h, found.h[:1])


def test_against_scipy(comm: Any) -> None:
    sample = Sample(np.random.default_rng(1).integers(0, 30, (500, 2)).astype(float))
    found, _ = analysed(comm, own(comm, sample, "uneven"), kendall, Kendall("b"))
    assert found.value[0] == pytest.approx(stats.kendalltau(*sample.rows.T).statistic, rel=1e-13)


def test_bits_are_the_same_at_every_number_of_ranks(comm: Any) -> None:
    rng = np.random.default_rng(8)
    n = 2000
    sample = Sample(rng.integers(0, 99, (n, 2)).astype(float), rng.exponential(size=n), rng.integers(0, 3, n))

    def bits(ranks: Any, spread_out: str) -> tuple[str, ...]:
        mine = own(ranks, sample, spread_out)
        result, around = analysed(ranks, mine, kendall, Kendall("b"))
        psi = whole(ranks, result.points[0], len(mine.rows))
        return result.value.tobytes().hex(), around.covariance.tobytes().hex(), psi.tobytes().hex()

    assert {bits(comm, each) for each in SPREADS} == {bits(SerialComm(), "even")}
