"""Doubles as whole numbers in several int64: sums without rounding, in any order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mpi_ustat.numerics.limbs import ONES, Grid, exponents

RNG = np.random.default_rng(0)
VALUES = {
    "counts": RNG.integers(0, 1000, 40).astype(float),
    "ones": np.ones(40),
    "zeros": np.zeros(5),
    "none": np.empty(0),
    "decimals": np.round(RNG.exponential(size=40) * 100) / 100,
    "many magnitudes": RNG.exponential(size=40) * 10.0 ** RNG.integers(-12, 12, 40),
    "of both signs": RNG.normal(size=40) * 10.0 ** RNG.integers(-5, 6, 40),
    "huge": RNG.exponential(size=40) * 2.0**1000,
    "tiny": RNG.exponential(size=40) * 2.0**-1050,
    "all of them": np.concatenate([RNG.exponential(size=20) * 2.0**900, RNG.exponential(size=20) * 2.0**-900]),
    "largest and smallest": np.array([np.finfo(float).max, 5e-324, 0.0]),
    "whole numbers that pass 2^53": 2.0 ** np.arange(50, 90),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("n_terms", [1, 100, 10**9])
def test_limbs_are_the_values_and_their_sums_exact(name: str, n_terms: int) -> None:
    values = VALUES[name]
    grid = Grid.of([exponents(values)], max(n_terms, len(values)))
    limbs = grid.limbs(values)
    assert (np.abs(limbs) < 2**grid.bits).all()
    assert [grid.fraction(each) for each in limbs.T] == [Fraction(each) for each in values.tolist()]
    sums = np.cumsum(limbs, axis=1)
    exact = [sum(map(Fraction, values[: i + 1].tolist()), Fraction()) for i in range(len(values))]
    assert [grid.fraction(each) for each in sums.T] == exact
    if name != "largest and smallest" and name != "huge":  # whose sums pass the largest double
        for found, want in zip(grid.floats(sums).tolist(), exact, strict=True):
            assert abs(Fraction(found) - want) <= abs(want) / 2**51 + Fraction(5e-324)


def test_whole_numbers_take_one_limb_that_is_the_number() -> None:
    grid = Grid.of([exponents(VALUES["counts"]), exponents(VALUES["ones"]), None], 10**6)
    assert grid.counts and grid.n_limbs == 1
    assert_array_equal(grid.limbs(VALUES["counts"])[0], VALUES["counts"])


def test_sums_of_limbs_have_one_double_however_they_were_formed() -> None:
    values = VALUES["of both signs"]
    grid = Grid.of([exponents(values)], 1000)
    limbs = grid.limbs(values)
    halves = limbs[:, :20].sum(axis=1) + limbs[:, 20:].sum(axis=1)
    backwards = np.cumsum(limbs[:, ::-1], axis=1)[:, -1]
    assert grid.floats(halves).tobytes() == grid.floats(backwards).tobytes()
    there_and_back = np.cumsum(np.concatenate([limbs, -limbs[:, ::-1]], axis=1), axis=1)
    assert (grid.floats(there_and_back)[-1:] == 0.0).all()


def test_exponents_of_whole_numbers_and_of_others() -> None:
    assert exponents(np.array([0.0, 3.0, 8.0])) == (2 - 53, 4, True)
    assert exponents(np.array([0.0, 0.5])) == (-53, 0, False)
    assert exponents(np.zeros(3)) is None


def test_whole_numbers_on_one_rank_and_others_on_another_make_the_same_grid() -> None:
    rng = np.random.default_rng(0)
    for _ in range(1000):
        whole, others = np.array([1.0]), rng.uniform(2.0, 2.0 ** rng.integers(2, 40), 20)
        every = np.concatenate([whole, others])
        grid = Grid.of([exponents(every)], len(every))
        assert Grid.of([exponents(whole), exponents(others), exponents(np.zeros(3))], len(every)) == grid
        sums = grid.limbs(every).sum(axis=1)
        exact = sum(map(Fraction, every.tolist()), Fraction())
        assert grid.fraction(sums) == exact
        assert abs(float(grid.floats(sums[:, None])[0]) / float(exact) - 1.0) < 2.0**-51


def test_ones_are_counts() -> None:
    assert exponents(np.ones(3)) == ONES
    assert Grid.of([ONES, exponents(np.array([0.0, 7.0]))], 100).counts
    assert not Grid.of([ONES, exponents(np.array([0.5]))], 100).counts
