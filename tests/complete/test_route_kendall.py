"""Kendall's tau of distributed points: the bits of one process, however points and ties lie over the ranks."""

from __future__ import annotations

import csv
import gzip
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import SerialComm, UserError
from mpi_ustat.complete import kendall as route
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import Local, PairSum
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Array = NDArray[Any]


def distributed(comm: Any, whole: Array, variant: str = "b", *, bounds: Any = None, n_workers: int = 3) -> Local:
    """The route's result, each rank passing its part of points that all know; checks that the ranks agree."""
    found = route.kendall(comm, [exchange(comm, whole, bounds)], Kendall(variant), n_workers, Streams(1))
    local, sent = found.local, found.bytes_sent
    results = comm.allgather((local.sums, None if local.components is None else local.components.tobytes(), sent))
    assert len({result[:2] for result in results}) == 1
    assert all(type(bytes_sent) is int and bytes_sent >= 0 for *_, bytes_sent in results)
    if comm.size == 1:
        assert sent == 0
    return local


def exchange(comm: Any, whole: Array, bounds: Any = None) -> Exchange:
    bounds = block_bounds(len(whole), comm.size) if bounds is None else bounds
    return Exchange(comm, whole[bounds[comm.rank] : bounds[comm.rank + 1]], 3)


def check(comm: Any, whole: Array, variant: str = "b", **options: Any) -> None:
    """The result is that of the block of all points, which other tests know to be right, and of one process."""
    found = distributed(comm, whole, variant, **options)
    for expected in (Kendall(variant).local(whole), distributed(SerialComm(), whole, variant)):
        assert found.sums == expected.sums
        assert all(type(each.total) is int for each in found.sums)
        assert (found.components is None) == (expected.components is None)
        if found.components is not None:
            assert np.array_equal(found.components, expected.components)


def value(local: Local) -> float:
    return float(Kendall("b").combine(np.array([each.total / each.n_pairs for each in local.sums]))[0])


@pytest.mark.parametrize("n_values", [1, 2, 30, 10**9])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 50, 1009])
def test_any_number_of_points_and_ties(comm: Any, n: int, n_values: int) -> None:
    rng = np.random.default_rng(n + n_values)
    whole = rng.integers(0, n_values, (n, 2)).astype(float)
    check(comm, whole, "a", n_workers=10)
    check(comm, whole)
    whole[rng.random((n, 2)) < 0.1] = math.inf
    whole[rng.random((n, 2)) < 0.1] = -math.inf
    check(comm, whole)


@pytest.mark.parametrize("holder", ["first", "last"])
def test_all_points_on_one_rank(comm: Any, holder: str) -> None:
    whole = np.round(np.random.default_rng(3).normal(size=(501, 2)), 1)
    bounds = [0] + [501] * comm.size if holder == "first" else [0] * comm.size + [501]
    check(comm, whole, bounds=bounds)


def shapes(n: int) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, n))
    i = np.arange(n)
    return {
        "smooth": np.column_stack([x, x + y]),
        "rounded": np.round(np.column_stack([x, x + y]), 1),
        "sorted": np.column_stack([i, i]).astype(float),
        "reversed": np.column_stack([i, -i]).astype(float),
        "x constant": np.column_stack([np.zeros(n), y]),
        "y constant": np.column_stack([x, np.zeros(n)]),
        "x of two values": np.column_stack([x > 0, y]).astype(float),
        "y of two values": np.column_stack([x, y > 1]).astype(float),
        "nearly all equal": np.column_stack([x > 2, y > 2.5]).astype(float),
        "zeros of both signs": np.column_stack([np.where(x > 0, 0.0, -0.0), np.where(y > 0, 0.0, -0.0)]),
    }


SHAPES = shapes(6000)


@pytest.mark.parametrize("shape", list(SHAPES))
def test_larger_samples_of_all_shapes(comm: Any, shape: str) -> None:
    check(comm, SHAPES[shape])
    check(comm, SHAPES[shape], bounds=[0, *np.linspace(100, 5000, comm.size - 1).astype(int), 6000])


@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_work_is_balanced_however_many_values_agree(comm: Any, shape: str) -> None:
    """No rank has more than 1.5 times its share of the points by x (9 standard errors of 512 draws a rank) or by y."""
    sample, n = exchange(comm, SHAPES[shape]), len(SHAPES[shape])
    drawn = route._drawn(comm, sample, Streams(5))
    x, y, _ = route._share_by_x(comm, sample, drawn)
    assert len(x) == len(y) <= 1.5 * n / comm.size
    _, told = route._rank(x, y, np.sort(drawn[:, 1])[block_bounds(len(drawn), comm.size)[1:-1]])
    by_y = np.diff(route._cuts(comm.allgather(told), n), axis=1)
    assert (by_y >= 0).all() and by_y.sum() == n
    assert by_y.sum(axis=0).max() <= 1.5 * n / comm.size


@pytest.mark.parametrize("n_lists", [1, 2, 3, 5, 8])
def test_merging_counts_inversions_between_lists(n_lists: int) -> None:
    rng = np.random.default_rng(n_lists)
    lists = [np.sort(rng.integers(0, 9, size)).astype(float) for size in rng.integers(0, 12, n_lists)]
    merged, places, inversions = route._merge(lists)
    ends = np.concatenate(lists)
    assert np.array_equal(merged, np.sort(ends)) and np.array_equal(merged[places], ends)
    assert np.array_equal(places, np.argsort(np.argsort(ends, kind="stable")))
    for i, number in enumerate(inversions.tolist()):
        assert number == np.count_nonzero(ends[:i] > ends[i]) + np.count_nonzero(ends[i + 1 :] < ends[i])


def test_an_error_on_one_rank_reaches_all(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("order_pairs", "_merge", "point_sums"):
        with monkeypatch.context() as patch:
            if comm.rank == comm.size - 1:
                patch.setattr(route, name, lambda *_: 1 // 0)
            with pytest.raises(UserError, match="ZeroDivisionError"):
                distributed(comm, SHAPES["rounded"])


# --- known values


def test_five_points_with_ties(comm: Any) -> None:
    whole = np.array([[1.0, 2.0], [1.0, 1.0], [2.0, 2.0], [3.0, 4.0], [3.0, 4.0]])
    assert distributed(comm, whole, "a").sums == (PairSum(7, 10),)
    assert value(distributed(comm, whole)) == pytest.approx(7 / 8, rel=1e-15)


def test_200000_points_of_three_kinds(comm: Any) -> None:
    n = 200_000
    i = np.arange(n)
    whole = np.column_stack([i >= n // 2, (i >= n // 2) | (i % 2 == 1)]).astype(float)
    local = distributed(comm, whole)
    assert Fraction(local.sums[0].total, local.sums[0].n_pairs) == Fraction(50_000, 199_999)
    assert value(local) == pytest.approx(1 / math.sqrt(3), rel=1e-15)


def test_carat_and_price_of_the_diamonds(comm: Any, shared_data: Path) -> None:
    with gzip.open(shared_data / "diamonds.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    whole = np.array([[float(row["carat"]), float(row["price"])] for row in rows])
    assert value(distributed(comm, whole)) == pytest.approx(0.834105, abs=5e-7)
