"""Tests against values and of equality: laws known in closed form, and their size by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from mpi_ustat.inference.hypotheses import omnibus, p_text, wald_test


def test_two_sided_and_one_sided_by_the_normal_law_and_students() -> None:
    found = wald_test(0.7, 0.1, 0.5)
    assert_allclose((found.z, found.p), (2.0, math.erfc(math.sqrt(2.0))), rtol=1e-12)
    assert_allclose(wald_test(0.5, 0.1, 0.7).p, found.p, rtol=1e-12)
    assert_allclose(wald_test(0.7, 0.1, 0.5, one_sided=True).p, found.p / 2.0, rtol=1e-12)
    assert_allclose(wald_test(0.5, 0.1, 0.7, one_sided=True).p, 1.0 - found.p / 2.0, rtol=1e-12)
    assert_allclose(wald_test(3.0, 1.0, 0.0, dof=1.0).p, 1.0 - 2.0 / math.pi * math.atan(3.0), rtol=1e-12)
    assert wald_test(0.5, 0.1, 0.5).p == 1.0


def test_two_equal_statistics_are_the_square_of_their_difference() -> None:
    covariance = np.array([[2.0, 0.7], [0.7, 1.0]])
    found = omnibus([1.0, 3.0], covariance)
    assert found is not None and found.rank == 1
    z = wald_test(2.0, math.sqrt(1.6), 0.0)
    assert_allclose((found.statistic, found.p), (z.z**2, z.p), rtol=1e-12)
    with_dof = omnibus([1.0, 3.0], covariance, dof=7.0)
    assert with_dof is not None
    assert_allclose(with_dof.p, wald_test(2.0, math.sqrt(1.6), 0.0, dof=7.0).p, rtol=1e-12)


def test_the_order_of_the_statistics_and_a_copy_of_one_change_nothing() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 6))
    values, covariance = rng.normal(size=4), root @ root.T
    found = omnibus(values, covariance)
    order = [2, 0, 3, 1]
    other = omnibus(values[order], covariance[np.ix_(order, order)])
    twice = [0, 1, 2, 3, 3]
    copied = omnibus(values[twice], covariance[np.ix_(twice, twice)])
    assert found is not None and other is not None and copied is not None
    assert_allclose([other.statistic, copied.statistic], found.statistic, rtol=1e-8)
    assert found.rank == other.rank == copied.rank == 3


def test_nothing_is_tested_where_nothing_varies() -> None:
    assert omnibus([1.0, 1.0], np.ones((2, 2))) is None
    assert omnibus([1.0], [[1.0]]) is None
    assert omnibus([1.0, 2.0, 3.0], np.diag([1.0, 1.0, np.nan])) is None
    assert omnibus([1.0, 2.0, 4.0], np.eye(3), dof=1.0) is None


@pytest.mark.parametrize("dof", [None, 12])
def test_the_size_of_the_omnibus_test_is_its_level(dof: int | None) -> None:
    """4000 draws under the hypothesis: the share below 5 % is Binomial; 4 standard errors, error probability 6e-5."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    covariance, runs, found = root @ root.T, 4_000, 0
    for _ in range(runs):
        values = root @ rng.normal(size=4)
        known = covariance if dof is None else stats.wishart.rvs(dof, covariance / dof, random_state=rng)
        told = omnibus(values, known, dof=dof)
        assert told is not None
        found += told.p < 0.05
    assert abs(found / runs - 0.05) < 4 * math.sqrt(0.05 * 0.95 / runs)


def test_tiny_p_values_are_printed_as_such() -> None:
    assert p_text(wald_test(1.0, 1e-3, 0.0).p) == "< 1e-300"
    assert p_text(0.04321) == "0.0432"
