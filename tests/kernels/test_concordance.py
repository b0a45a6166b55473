"""The concordance index of one block: by definition, its components over all pairs, and the distributed route."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sharding import SPREADS, shard

from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.complete.concordance import concordance as route
from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.concordance import Concordance
from mpi_ustat.kernels.kernel import PairSum
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams

Array = NDArray[Any]


def drawn(seed: int, n: int, risks: int = 1) -> Array:
    rng = np.random.default_rng([seed, n, risks])
    columns = [rng.integers(1, 7, n), rng.integers(0, 2, n), *rng.integers(-2, 3, (risks, n))]
    return np.column_stack(columns).astype(float)


def h(p: Array, q: Array, horizon: float = math.inf) -> list[Fraction]:
    """h_C of each risk, and h_D."""
    for (t, event, *risks), (other, other_event, *others) in ((p, q), (q, p)):
        if event and t < horizon and (t < other or (t == other and not other_event)):
            return [Fraction(int(a > b)) + Fraction(int(a == b), 2) for a, b in zip(risks, others, strict=True)] + [
                Fraction(1)
            ]
    return [Fraction(0)] * (len(p) - 1)


def totals(pairs: Any, horizon: float, n_parts: int) -> list[Fraction]:
    return [2 * sum(each) for each in zip(*(h(p, q, horizon) for p, q in pairs), strict=True)] or [
        Fraction(0)
    ] * n_parts


@pytest.mark.parametrize("horizon", [math.inf, 4.0])
@pytest.mark.parametrize("risks", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_sums_over_pairs(n: int, risks: int, horizon: float) -> None:
    kernel, block, other = Concordance(horizon=horizon, columns=risks), drawn(1, n, risks), drawn(2, 7, risks)
    inside = totals(itertools.combinations(block, 2), horizon, risks + 1)
    assert kernel.block_sums(block) == tuple(PairSum(total, math.comb(n, 2)) for total in inside)
    across = totals(itertools.product(block, other), horizon, risks + 1)
    assert kernel.cross_sums(block, other) == tuple(PairSum(total, 7 * n) for total in across)
    aligned = [*itertools.product(block, other)]
    if aligned:
        first, second = (np.array(each) for each in zip(*aligned, strict=True))
        assert kernel.tuple_sums(first, second) == kernel.cross_sums(block, other)
        means = [[sum(part) / 7 for part in zip(*(h(p, q, horizon) for q in other), strict=True)] for p in block]
        assert_allclose(kernel.projections(0, block, [other]), np.array(means, dtype=float), rtol=1e-15)


@pytest.mark.parametrize("risks", [1, 3])
@pytest.mark.parametrize("n", [4, 30])
def test_components(n: int, risks: int) -> None:
    block = drawn(3, n, risks)
    values = np.zeros((risks + 1, n, n))
    for i, j in itertools.permutations(range(n), 2):
        values[:, i, j] = [float(each) for each in h(block[i], block[j])]
    rows = values.sum(axis=2) / (n - 1)
    rows -= rows.mean(axis=1, keepdims=True)
    pairs = values[:, *np.triu_indices(n, 1)]
    pairs -= pairs.mean(axis=1, keepdims=True)
    local = Concordance(columns=risks).local(block)
    assert local.components is not None
    assert_allclose(local.components, one_sample_components(n, rows @ rows.T, pairs @ pairs.T), atol=1e-14)


def test_index_and_its_derivatives() -> None:
    kernel, means = Concordance(columns=2), np.array([0.3, 0.2, 0.4])
    assert_allclose(kernel.combine(means), [0.75, 0.5])
    step = 1e-6
    slopes = [(kernel.combine(means + step * e) - kernel.combine(means - step * e)) / (2 * step) for e in np.eye(3)]
    assert_allclose(kernel.gradient(means), np.transpose(slopes), rtol=1e-8)
    of_groups = kernel.combine(np.array([[0.3, 0.0], [0.2, 0.0], [0.4, 0.0]]))
    assert_allclose(of_groups, [[0.75, np.nan], [0.5, np.nan]])
    with pytest.raises(UserError, match="no pair is comparable"):
        kernel.combine(np.zeros(3))


@pytest.mark.parametrize("risks", [1, 2])
@pytest.mark.parametrize("n", [2, 3, 300])
def test_route_gives_what_one_block_does(comm: Any, n: int, risks: int) -> None:
    block, kernel = drawn(4, n, risks), Concordance(horizon=6.0, columns=risks)
    expected = kernel.local(block)
    for spread in SPREADS:
        exchange = Exchange(comm, shard(comm, block, spread), 3)
        found = route(comm, [exchange], kernel, 3, Streams(1)).local
        assert found.sums == expected.sums
        if risks == 1:
            assert (found.components is None) == (expected.components is None)
            assert_array_equal(found.components, expected.components)


def test_estimates_come_near_the_complete_value(comm: Any) -> None:
    rng = np.random.default_rng(6)
    n = 600
    risk = rng.normal(size=n)
    times, censored = rng.exponential(size=n) * np.exp(-risk), 2.0 * rng.exponential(size=n)
    block = np.column_stack([np.minimum(times, censored), times <= censored, risk]).astype(float)
    mine = shard(comm, block)
    complete = estimate(comm, mine, None, "concordance", complete=True)
    alone = estimate(SerialComm(), block, None, "concordance", complete=True)
    assert (complete.value, complete.stderr) == (alone.value, alone.stderr)
    for options in ({}, {"n_pairs": 500}):
        some = estimate(comm, mine, None, "concordance", n_workers=5, n_rounds=4, aggregate="pooled", seed=1, **options)
        assert not some.flags
        assert abs(some.value - complete.value) < 4 * some.stderr < 0.3


def test_uno_is_of_all_points_only() -> None:
    block = drawn(5, 30)
    with pytest.raises(UserError, match="complete"):
        estimate(SerialComm(), block, None, "concordance", n_workers=2, aggregate="pooled",
                 kernel_options={"censoring_weights": "uno"})  # fmt: skip
    whole = estimate(SerialComm(), block, None, "concordance", complete=True,
                     kernel_options={"censoring_weights": "uno"})  # fmt: skip
    assert 0.0 < whole.value < 1.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"horizon": 0.0}, "the horizon must be positive"),
        ({"horizon": math.nan}, "the horizon must be positive"),
        ({"columns": 0}, "at least one column of risks, not 0"),
        ({"censoring_weights": "ipcw"}, "must be none or uno, not 'ipcw'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Concordance(**options)


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        (0, 0.0, "row 31 of the sample x, counted from 0, holds a time that is not positive"),
        (1, 0.5, "row 31 of the sample x, counted from 0, holds an event that is neither 0 nor 1"),
    ],
)
def test_what_is_no_survival_is_refused(comm: Any, column: int, value: float, sentence: str) -> None:
    block = drawn(7, 40)
    block[31, column] = value
    for options in ({"complete": True}, {"n_workers": 2, "aggregate": "pooled"}):
        with pytest.raises(UserError, match=sentence):
            estimate(comm, shard(comm, block), None, "concordance", seed=1, **options)  # type: ignore[arg-type]
