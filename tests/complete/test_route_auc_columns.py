"""AUCs of several columns of many scores: sums as counted, covariances but for the second order of a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharding import SPREADS, shards

from mpi_ustat import SerialComm
from mpi_ustat.complete.auc import minority
from mpi_ustat.complete.auc_columns import columns
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def drawn(n: int, m: int, decimals: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [np.round(rng.normal(size=(size, 3)) @ [[1, 0.9, 0], [0, 0.4, 0], [0, 0, 1]] + shift, decimals)
            for size, shift in ((n, 0.7), (m, 0.0))]  # fmt: skip


def found(comm: Any, route: Any, samples: Any, ties: str) -> Any:
    return route(comm, [Exchange(comm, rows, 4) for rows in samples], AUC(ties, 3), 4, Streams(1)).local


@pytest.mark.parametrize("ties", ["half", "strict"])
@pytest.mark.parametrize("decimals", [1, 9])
def test_sums_are_those_of_the_other_route_and_components_nearly(comm: Any, ties: str, decimals: int) -> None:
    samples = drawn(600, 900, decimals)
    exact = found(SerialComm(), minority, samples, ties)
    alone = found(SerialComm(), columns, samples, ties)
    for spread in SPREADS:
        here = found(comm, columns, shards(comm, samples, spread), ties)
        assert here.sums == exact.sums
        assert here.components.tobytes() == alone.components.tobytes()
    # The second order is from 500 points of each class: some percent off, of which 1/m reaches the first.
    assert_allclose(alone.components[2], exact.components[2], atol=0.1 * np.abs(exact.components[2]).max())
    assert_allclose(alone.components[:2], exact.components[:2], atol=0.1 * np.abs(exact.components[2]).max() / 600)


def test_with_all_points_in_the_sample_nothing_is_off() -> None:
    samples = drawn(300, 400, 1)
    exact, other = (found(SerialComm(), route, samples, "half").components for route in (minority, columns))
    assert_allclose(other, exact, rtol=1e-10, atol=1e-14)


def test_many_pairs_go_this_way() -> None:
    kernel = AUC("half", 2)
    assert kernel.route((10_000, 10_000)).name == "columns"
    assert kernel.route((1_000, 10_000)).name == "minority"
    assert kernel.route((1_000, 10_000_000)).name == "minority"


def test_a_rare_class_goes_to_every_rank_and_its_second_order_to_a_sample(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = drawn(40, 900, 1)
    exact = found(SerialComm(), minority, samples, "half")
    monkeypatch.setattr("mpi_ustat.complete.auc.FEW_PAIRS", 1000)
    for order in (samples, samples[::-1]):
        here = found(comm, minority, shards(comm, order), "half")
        alone = found(SerialComm(), minority, order, "half")
        assert here.sums == alone.sums and here.components.tobytes() == alone.components.tobytes()
    assert here.sums != exact.sums  # the other way round
    near = found(comm, minority, shards(comm, samples), "half")
    assert near.sums == exact.sums
    assert_allclose(near.components, exact.components, atol=0.1 * np.abs(exact.components[2]).max())
