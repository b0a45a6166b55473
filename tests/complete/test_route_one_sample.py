"""The variance and Gini's mean difference of a distributed sample: exact values, the same bits on any ranks."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import SerialComm
from mpi_ustat.complete import one_sample
from mpi_ustat.kernels.gini import OneSampleGini
from mpi_ustat.kernels.kernel import Local
from mpi_ustat.kernels.one_sample import OneSampleKernel
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]

ROUTES: dict[str, tuple[Callable[..., tuple[Local, int]], OneSampleKernel]] = {
    "variance": (one_sample.variance, Variance()),
    "gini": (one_sample.gini, OneSampleGini()),
}
every_route = pytest.mark.parametrize("name", list(ROUTES))

RNG = np.random.default_rng(8)
SAMPLES: dict[str, Floats] = {
    "two": np.array([3.0, -1.5]),
    "three": np.array([3.0, -1.5, 7.25]),
    "four": np.array([4.0, -3.0, 0.0, -1.0]),
    "constant": np.full(23, 0.1),
    "signed zeros": np.array([0.0, -0.0, 0.0, -0.0, 1.0, 0.0]),
    "ties": RNG.integers(0, 4, 57).astype(float),
    "normal": RNG.normal(size=201),
    "heavy tail": RNG.standard_cauchy(150),
    "far away": 2.0**30 + RNG.integers(-400, 400, 90) / 16,
    "neighbouring doubles": 1e9 + RNG.integers(0, 4, 31) * 2.0**-23,
    "two clusters": np.concatenate([RNG.normal(size=40), 1e12 + RNG.integers(0, 9, 40)]),
    "sorted": np.arange(100.0) ** 2,
}
every_sample = pytest.mark.parametrize("sample", list(SAMPLES))


def shard(comm: Any, x: Floats, *, empty: bool = False) -> Floats:
    """This rank's run of the sample; with `empty`, none on the first rank, and the last has twice its share."""
    bounds = block_bounds(len(x), comm.size)
    if empty and comm.size > 1:
        bounds = np.append(0, np.delete(block_bounds(len(x), comm.size), -2))
    return x[bounds[comm.rank] : bounds[comm.rank + 1]]


def run(comm: Any, name: str, rows: Floats, n_workers: int) -> Local:
    route, kernel = ROUTES[name]
    found = route(comm, [Exchange(comm, rows, n_workers)], kernel, n_workers, Streams(3))
    assert found.bytes_sent >= 0 and (comm.size > 1 or found.bytes_sent == 0)
    return found.local


def bits(local: Local) -> tuple[Any, ...]:
    total, n_pairs = local.sums[0]
    components = None if local.components is None else local.components.tobytes()
    return float(total).hex(), n_pairs, components


@every_route
@every_sample
def test_the_whole_sample_is_one_block_on_any_ranks(comm: Any, name: str, sample: str) -> None:
    x = SAMPLES[sample]
    block = ROUTES[name][1].local(x)
    for n_workers in (1, 3, 4, 10):
        local = run(comm, name, shard(comm, x), n_workers)
        assert bits(local) == bits(run(SerialComm(), name, x, n_workers))
        assert bits(local) == bits(run(comm, name, shard(comm, x, empty=True), n_workers))
        assert len(set(comm.allgather(bits(local)))) == 1
        assert local.sums[0].n_pairs == math.comb(len(x), 2)
        assert local.sums[0].total == pytest.approx(block.sums[0].total, rel=1e-13, abs=0)
        assert (local.components is None) == (block.components is None)
        if local.components is not None and block.components is not None:
            assert local.components.shape == (2, 1, 1)
            scale = float(np.abs(block.components).max())
            assert local.components == pytest.approx(block.components, rel=1e-9, abs=1e-12 * scale)


@every_sample
def test_against_all_pairs_in_rational_numbers(sample: str) -> None:
    x = SAMPLES[sample]
    pairs = [Fraction(a) - Fraction(b) for a, b in itertools.combinations(x.tolist(), 2)]
    squares = float(sum((each * each for each in pairs), Fraction(0)) / 2)
    distances = float(sum(map(abs, pairs), Fraction(0)))
    for n_workers in (1, 6):
        assert run(SerialComm(), "variance", x, n_workers).sums[0].total == pytest.approx(squares, rel=1e-15, abs=0)
        assert run(SerialComm(), "gini", x, n_workers).sums[0].total == pytest.approx(distances, rel=1e-14, abs=0)


def test_the_variance_does_not_depend_on_workers_or_the_order_of_rows(comm: Any) -> None:
    x = SAMPLES["heavy tail"]
    expected = bits(run(comm, "variance", shard(comm, x), 1))
    for n_workers in (2, 5, 40):
        assert bits(run(comm, "variance", shard(comm, x[::-1]), n_workers)) == expected


@every_route
def test_samples_without_a_pair(comm: Any, name: str) -> None:
    for x in (np.empty(0), np.ones(1)):
        local = run(comm, name, shard(comm, x), 2)
        assert local.components is None
        assert local.sums == ((0, 0),)


@every_route
def test_more_workers_than_points(comm: Any, name: str) -> None:
    x = SAMPLES["four"]
    local = run(comm, name, shard(comm, x), 50)
    assert local.sums[0].total / 6 == pytest.approx(ROUTES[name][1].block_total(x) / 6, rel=1e-15)
    assert bits(local) == bits(run(SerialComm(), name, x, 50))


def test_known_values(comm: Any) -> None:
    far = np.array([1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6])
    assert run(comm, "variance", shard(comm, far), 2).sums[0].total / 6 == 14 / 3
    assert run(comm, "gini", shard(comm, np.array([-3.0, -1.0, 0.0, 4.0])), 2).sums[0].total / 6 == 11 / 3


def test_a_long_ladder(comm: Any) -> None:
    """0 … n-1: mean distance (n+1)/3, variance n(n+1)/12, mean distances of point i from i(i+1)/2 and so on."""
    n = 100_000
    local = run(comm, "gini", shard(comm, np.random.default_rng(9).permutation(n).astype(float)), 7)
    total, n_pairs = local.sums[0]
    assert total / n_pairs == pytest.approx((n + 1) / 3, rel=1e-14)
    i = np.arange(n, dtype=np.float64)
    row_means = (i * (i + 1) + (n - 1 - i) * (n - i)) / (2 * (n - 1))
    explained = (n - 1) ** 2 / (n - 2) * float(np.sum((row_means - (n + 1) / 3) ** 2))
    # Σ_{i<j} (j-i)² = n²(n²-1)/12, and U² on each pair.
    around = n**2 * (n**2 - 1) / 12 - n_pairs * ((n + 1) / 3) ** 2
    delta = (around - explained) / (n * (n - 3) / 2)
    assert local.components is not None
    assert local.components.ravel() == pytest.approx([(explained / (n - 1) - delta) / (n - 2), delta], rel=1e-9)
    local = run(comm, "variance", shard(comm, np.arange(float(n))), 7)
    assert local.sums[0].total / n_pairs == pytest.approx(n * (n + 1) / 12, rel=1e-15)


def test_values_that_pass_the_largest_double(comm: Any) -> None:
    x = np.array([1e200, -1e200, 3.0, 5.0, 7.0])
    local = run(comm, "variance", shard(comm, x), 2)
    assert local.sums[0].total == math.inf
    assert local.components is not None and np.isnan(local.components).all()
    local = run(comm, "variance", shard(comm, x / 1e90), 2)  # only the fourth powers do
    assert local.sums[0].total == pytest.approx(Variance().block_total(x / 1e90), rel=1e-14)
    assert local.components is not None and not np.isfinite(local.components).any()
    assert run(comm, "variance", shard(comm, np.array([1e200, -1e200])), 1).sums[0].total == math.inf


def test_the_bytes_between_ranks_are_counted(comm: Any) -> None:
    x = np.random.default_rng(10).normal(size=1000)
    for name, route, kernel in ((name, *ROUTES[name]) for name in ROUTES):
        sent = route(comm, [Exchange(comm, shard(comm, x), 4)], kernel, 4, Streams(3)).bytes_sent
        everything = sum(comm.allgather(sent))
        if name == "variance" or comm.size == 1:
            assert everything == 0
        else:
            assert 0 < everything < 16 * 1000


def test_prices_of_diamonds(comm: Any, shared_data: Path) -> None:
    with gzip.open(shared_data / "diamonds.csv.gz", "rt", encoding="utf-8", newline="") as file:
        price = np.array([float(row["price"]) for row in csv.DictReader(file)])
    local = run(comm, "gini", shard(comm, price), 5)
    assert local.sums[0].total / local.sums[0].n_pairs == pytest.approx(4012.470272, abs=5e-7)
    local = run(comm, "variance", shard(comm, price), 5)
    assert local.sums[0].total / local.sums[0].n_pairs == pytest.approx(price.var(ddof=1), rel=1e-12)
    whole = Variance().local(price).components
    assert local.components == pytest.approx(whole, rel=1e-10)
