"""The test set put aside and the columns standardised: the same bits on any number of ranks, and what they must be."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard

from mpi_ustat import SerialComm, UserError
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.points.preparation import Standardisation, split, standardisation

Array = NDArray[np.float64]


def joined(comm: Any, rows: Array) -> Array:
    return np.concatenate(comm.allgather(rows))


def numbered(n: int) -> Array:
    return np.column_stack([np.arange(n), np.arange(n) ** 2]).astype(np.float64)


# --- the test set


@pytest.mark.parametrize("spread", ["even", "apart", "uneven"])
def test_every_row_is_in_one_part_and_stays_in_order(comm: Any, spread: str) -> None:
    for n in (2, 17, 100):
        rows = numbered(n)
        train, test = split(comm, shard(comm, rows, spread), 0.3, Streams(4), 0)
        # A rank keeps its own rows.
        own = {row.tobytes() for row in shard(comm, rows, spread)}
        assert {row.tobytes() for row in np.concatenate([train, test])} == own
        all_train, all_test = joined(comm, train), joined(comm, test)
        assert len(all_test) == round(0.3 * n)
        assert sorted([*all_train[:, 0], *all_test[:, 0]]) == list(range(n))
        assert (np.diff(all_train[:, 0]) > 0).all() and (np.diff(all_test[:, 0]) > 0).all()
        alone = split(SerialComm(), rows, 0.3, Streams(4), 0)
        assert [all_train.tobytes(), all_test.tobytes()] == [part.tobytes() for part in alone]


def test_the_split_depends_on_the_seed_and_the_sample() -> None:
    rows = numbered(60)
    chosen = {
        (seed, sample): tuple(split(SerialComm(), rows, 0.5, Streams(seed), sample)[1][:, 0].tolist())
        for seed in (0, 1)
        for sample in (0, 1)
    }
    assert len(set(chosen.values())) == 4
    assert tuple(split(SerialComm(), rows, 0.5, Streams(0), 0)[1][:, 0].tolist()) == chosen[0, 0]


def test_every_set_of_rows_is_equally_likely() -> None:
    from scipy.stats import chi2

    rows, n_runs = numbered(5), 2000
    sets = [tuple(split(SerialComm(), rows, 0.4, Streams(seed), 0)[1][:, 0].tolist()) for seed in range(n_runs)]
    found, counts = np.unique(sets, axis=0, return_counts=True)
    assert len(found) == math.comb(5, 2)
    expected = n_runs / len(found)
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(found) - 1) > 1e-4


@pytest.mark.parametrize(("n", "fraction", "n_test"), [(10, 0.25, 2), (10, 0.05001, 1), (10, 0.9, 9), (2, 0.5, 1)])
def test_the_test_part_is_as_large_as_told(comm: Any, n: int, fraction: float, n_test: int) -> None:
    train, test = split(comm, shard(comm, numbered(n), "even"), fraction, Streams(1), 0)
    assert (len(joined(comm, train)), len(joined(comm, test))) == (n - n_test, n_test)


@pytest.mark.parametrize(("n", "fraction"), [(10, 0.04), (10, 0.96), (1, 0.5), (1, 0.7), (3, 0.01)])
def test_a_part_without_rows_is_refused_on_all_ranks(comm: Any, n: int, fraction: float) -> None:
    with pytest.raises(UserError, match=f"of the {n} points? of the sample 1: choose another one") as caught:
        split(comm, shard(comm, numbered(n), "apart"), fraction, Streams(1), 1)
    assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size


# --- columns


def columns(n: int) -> Array:
    """Columns of very different scales, one of them far from 0."""
    rng = np.random.default_rng(n)
    return rng.normal((0.0, 1e6, -3.0, 0.0), (1.0, 1e-3, 1e4, 1e-9), (n, 4))


def samples_of(comm: Any, spread: str) -> tuple[Array, ...]:
    return tuple(shard(comm, columns(n), spread) for n in (47, 30))


@pytest.mark.parametrize("spread", ["even", "apart", "uneven"])
def test_means_and_deviations_are_the_same_bits_on_any_ranks(comm: Any, spread: str) -> None:
    alone = standardisation(SerialComm(), samples_of(SerialComm(), "even"))
    here = standardisation(comm, samples_of(comm, spread))
    assert here.mean.tobytes() == alone.mean.tobytes()
    assert here.deviation.tobytes() == alone.deviation.tobytes()
    for own, whole in zip(samples_of(comm, spread), samples_of(SerialComm(), "even"), strict=True):
        assert joined(comm, here.apply(own)).tobytes() == alone.apply(whole).tobytes()


def test_means_and_deviations_are_those_of_the_pooled_rows() -> None:
    samples = samples_of(SerialComm(), "even")
    pooled = np.concatenate(samples)
    found = standardisation(SerialComm(), samples)
    exact = [[Fraction(value) for value in column] for column in pooled.T.tolist()]
    for j, column in enumerate(exact):
        mean = sum(column, Fraction(0)) / len(column)
        variance = sum(((value - mean) ** 2 for value in column), Fraction(0)) / len(column)
        assert found.mean[j] == pytest.approx(float(mean), rel=1e-15)
        # The mean is rounded before it is taken away, which matters where it is 10⁹ deviations from 0.
        assert found.deviation[j] == pytest.approx(math.sqrt(variance), rel=1e-12)
    np.testing.assert_allclose(found.mean, pooled.mean(axis=0), rtol=1e-12, atol=1e-12 * pooled.std(axis=0).max())
    np.testing.assert_allclose(found.deviation, pooled.std(axis=0), rtol=1e-12)
    scaled = np.concatenate([found.apply(rows) for rows in samples])
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=1e-9)


def test_other_rows_are_scaled_alike() -> None:
    found = Standardisation(np.array([1.0, -2.0]), np.array([2.0, 1.0]))
    assert found.apply(np.array([[3.0, -2.0], [0.0, 1.0]])).tolist() == [[1.0, 0.0], [-0.5, 3.0]]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 0.7, -1 / 3, 1e-3, 1e300, 5e-324])
def test_a_constant_column_becomes_zeros(comm: Any, value: float) -> None:
    for n, m in ((1, 1), (2, 1), (3, 3), (5, 2), (20, 28), (50, 41)):
        rows = [np.column_stack([np.arange(size), np.full(size, value)]).astype(np.float64) for size in (n, m)]
        own = tuple(shard(comm, each) for each in rows)
        found = standardisation(comm, own)
        assert (found.mean[1], found.deviation[1]) == (value, 1.0)
        assert not any(found.apply(each)[:, 1].any() for each in own)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1e307])
def test_very_large_and_very_small_columns_are_scaled_too(scale: float) -> None:
    rows = np.array([[-1.0], [0.0], [1.0], [4.0]])
    found = standardisation(SerialComm(), (rows[:2] * scale, rows[2:] * scale))
    np.testing.assert_allclose(found.mean / scale, [1.0], rtol=1e-3)  # of 1e-320 three digits are left
    np.testing.assert_allclose(found.deviation / scale, [math.sqrt(3.5)], rtol=1e-3)
