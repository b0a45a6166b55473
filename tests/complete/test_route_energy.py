"""Energy distance and MMD of distributed samples: those of the whole samples, to the bit, at any number of ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from references import sums_and_variance

from mpi_ustat.complete.energy import energy
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import Discrepancy, strips
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams

Floats = NDArray[np.float64]

KERNELS = [EnergyDistance(), MMD(bandwidth=0.8), MMD("linear"), MMD("laplace"), EnergyDistance(0.5)]
IDS = ["energy", "gaussian", "linear", "laplace", "root"]


def distributed(comm: Any, points: Floats, n_workers: int, shares: str) -> Exchange:
    """A sample of which each rank holds a run of rows: of about equal lengths, or all on the last rank."""
    cuts = [len(points) * rank // comm.size for rank in range(comm.size + 1)]
    if shares == "last":
        cuts = [0] * comm.size + [len(points)]
    return Exchange(comm, points[cuts[comm.rank] : cuts[comm.rank + 1]], n_workers)


def both(comm: Any, x: Floats, z: Floats, kernel: Discrepancy, n_workers: int, shares: tuple[str, str]) -> Any:
    samples = [distributed(comm, points, n_workers, share) for points, share in zip((x, z), shares, strict=True)]
    streams = Streams(0)
    without = energy(comm, samples, kernel, n_workers, streams, components=False)
    found = energy(comm, samples, kernel, n_workers, streams)
    assert without.local == found.local and found.local.components is None and without.own_variance is None
    here = sum(sample.rows.nbytes for sample in samples) * (comm.size - 1)
    variance = found.own_variance
    assert without.bytes_sent == here
    assert found.bytes_sent == here + (0 if variance is None or comm.size == 1 else 16 * (len(x) + len(z)))
    return found.local.sums, variance


@pytest.mark.parametrize("kernel", KERNELS, ids=IDS)
@pytest.mark.parametrize("shares", [("even", "even"), ("even", "last"), ("last", "last")], ids="-".join)
def test_the_bits_are_those_of_the_whole_samples(comm: Any, kernel: Discrepancy, shares: tuple[str, str]) -> None:
    rng = np.random.default_rng(1)
    for n, m, d, n_workers in ((37, 401, 3, 5), (300, 129, 1, 1), (7, 4, 2, 3)):
        x, z = rng.normal(size=(n, d)), rng.normal(0.3, 1.2, size=(m, d))
        found = both(comm, x, z, kernel, n_workers, shares)
        assert found == sums_and_variance(kernel, x, z)
        assert found == both(SerialComm(), x, z, kernel, 1, ("even", "even"))
        assert found[1] is not None


def test_points_of_one_number(comm: Any) -> None:
    x, z = np.array([0.0, 1.0, 5.0]), np.array([1.0, 2.0])
    sums, variance = both(comm, x, z, MMD("linear"), 2, ("even", "even"))
    assert ([tuple(each) for each in sums], variance) == ([(5, 3), (2, 1), (18, 6)], None)
    means = np.array([each.total / each.n_pairs for each in sums])
    assert MMD("linear").combine(means) == pytest.approx([-7 / 3], rel=1e-15)
    assert both(comm, x, z[:, None], MMD("linear"), 2, ("even", "last"))[0] == sums


def test_one_point(comm: Any) -> None:
    sums, variance = both(comm, np.array([3.0]), np.arange(5.0), EnergyDistance(), 1, ("last", "even"))
    assert ([tuple(each) for each in sums], variance) == ([(0, 0), (20, 10), (7, 5)], None)


def test_distances_that_overflow_have_no_value_on_any_rank(comm: Any) -> None:
    x, z = np.arange(-100.0, 100.0)[:, None] * [1e160, 1.0], np.arange(6.0)[:, None] * [1.0, 1.0]
    samples = [distributed(comm, points, 2, "even") for points in (x, z)]
    found = energy(comm, samples, EnergyDistance(), 2, Streams(0))
    sums, variance = found.local.sums, found.own_variance
    assert [math.isnan(each.total) for each in sums] == [True, False, True]
    assert variance is not None and math.isnan(variance.total)


def test_points_of_two_spaces_are_refused_on_every_rank(comm: Any) -> None:
    samples = [distributed(comm, points, 2, "even") for points in (np.zeros((9, 2)), np.zeros((8, 3)))]
    with pytest.raises(UserError, match="2 and 3 coordinates: pass points of one space"):
        energy(comm, samples, EnergyDistance(), 2, Streams(0))


def test_an_error_on_one_rank_is_raised_on_all(comm: Any) -> None:
    class Broken(EnergyDistance):
        def fill(self, left: Floats, right: Floats, out: Floats) -> None:
            if comm.rank == comm.size - 1:
                raise MemoryError("no room")
            super().fill(left, right, out)

    samples = [distributed(comm, points, 2, "even") for points in (np.zeros((900, 2)), np.zeros((900, 2)))]
    with pytest.raises(UserError, match="evaluating the kernel energy failed.*: MemoryError: no room"):
        energy(comm, samples, Broken(), 2, Streams(0))


@pytest.mark.parametrize(("n", "m"), [(20000, 20000), (5000, 100), (300, 20000)])
def test_the_pairs_are_shared_evenly(n: int, m: int) -> None:
    from mpi_ustat.complete.energy import _dealt

    def pairs(strip: Any) -> int:
        size, rows = (m if strip.part == 1 else n), min(128, (m if strip.part == 1 else n) - strip.start)
        return rows * m if strip.part == 2 else rows * (size - strip.start) - math.comb(rows + 1, 2)

    every = strips(n, m)
    assert sum(map(pairs, every)) == math.comb(n, 2) + math.comb(m, 2) + n * m
    for n_ranks in (1, 2, 3, 7):
        shares = [_dealt(every, n_ranks, rank) for rank in range(n_ranks)]
        assert sorted(strip for share in shares for strip in share) == sorted(every)
        loads = [sum(map(pairs, share)) for share in shares]
        assert max(loads) - min(loads) <= 2 * 128 * max(n, m)
