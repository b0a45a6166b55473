"""Tests by rounds: the statistic of workers that met, under labels that stay with them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from sharding import SPREADS, shards

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.met import Met
from mpi_ustat.testing.ring import Ring, lay_ring, offsets

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ALONE = mpi_ustat.SerialComm()


def by_loops(k: Floats, ring: Ring, of_x: NDArray[np.bool_], sign: int) -> float:
    """Return the weighted mean of the discrepancies of two workers, from the whole matrix of k, as one writes it."""
    worker = np.repeat(ring.worker_of, ring.points_of)
    total = weights = 0.0
    for offset, i in itertools.product(ring.offsets, range(ring.n_workers)):
        j = (i + offset) % ring.n_workers
        (xi, zi), (xj, zj) = (
            (np.flatnonzero((worker == w) & of_x), np.flatnonzero((worker == w) & ~of_x)) for w in (i, j)
        )
        means = [float(k[np.ix_(*pair)].mean()) for pair in ((xi, xj), (zi, zj), (xi, zj), (zi, xj))]
        weight = 1 / ((1 / len(xi) + 1 / len(zi)) * (1 / len(xj) + 1 / len(zj)))
        total += weight * sign * (means[0] + means[1] - means[2] - means[3])
        weights += weight
    return total / weights


def labels(ring: Ring, blocks: Ints) -> NDArray[np.bool_]:
    """Return which points are x's if these blocks are those of the sample with fewer."""
    fewer, n_blocks = int(ring.n_blocks[0] > ring.n_blocks[1]), sum(ring.n_blocks)
    sample = ring.sample_of.copy()
    sample[:n_blocks] = 1 - fewer
    sample[blocks] = fewer
    return np.repeat(sample == 0, ring.points_of)


RINGS = [
    lay_ring(10, 10, 2, 7),
    lay_ring(29, 13, 3, 7),  # several blocks of a worker, of which z has fewer
    lay_ring(140, 203, 2, 67),  # rests of 6 and of 1 points, with the last workers
    lay_ring(11, 900, 4),  # most of z is in no block
    Ring((5, 9), 1, (3, 5), 3, (1,)),
]


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: f"{ring.sizes}, N={ring.n_workers}, T={len(ring.offsets)}")
@pytest.mark.parametrize("kernel", [EnergyDistance(), MMD("linear")], ids=lambda kernel: kernel.name)
def test_the_values_are_those_of_relabelled_points(comm: Any, ring: Ring, kernel: Any) -> None:
    points = np.random.default_rng(2).normal(size=(sum(ring.sizes), 2))
    k = np.empty((len(points), len(points)))
    kernel.fill(points, points, k)
    sums = block_sums(comm, points, ring, [kernel])[0]
    form = Met.of(sums, ring, kernel.sign)
    some = np.concatenate([form.own, form.drawn(Streams(1), range(3))])
    expected = [by_loops(k, ring, labels(ring, blocks), kernel.sign) for blocks in some]
    assert form.values(some) == pytest.approx(expected, abs=form.tolerance)
    assert form.tolerance < 1e-8
    assert np.array_equal(sums, block_sums(ALONE, points, ring, [kernel])[0])
    # Who meets whom is all that is evaluated, and each pair once.
    worker = np.repeat(ring.worker_of, ring.points_of)
    assert ring.n_pairs == np.count_nonzero(np.triu(ring.met[np.ix_(worker, worker)]))
    assert ring.points_at.sum(axis=1).tolist() == list(ring.sizes) and ring.points_at.min() >= 1
    assert ring.n_segments == len(ring.worker_of)


def test_all_labellings_are_those_within_workers() -> None:
    ring = RINGS[-1]
    form = Met.of(np.zeros((ring.n_segments,) * 2), ring, -1)
    every = np.concatenate(list(form.every()))
    assert ring.held.tolist() == [[1, 1, 1], [2, 2, 1]]
    assert sorted(map(tuple, every.tolist())) == sorted(itertools.product((0, 1, 2), (3, 4, 5), (6, 7)))
    drawn = form.drawn(Streams(5), range(4000))
    assert np.array_equal(drawn[100:120], form.drawn(Streams(5), range(100, 120)))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == ring.n_relabellings == 18
    assert ((counts - 4000 / 18) ** 2 / (4000 / 18)).sum() < 50  # 17 degrees of freedom: passed once in 25 000


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    ("n", "m", "n_rounds", "n_workers", "options"),
    [(97, 141, 5, None, {}), (300, 61, 2, 20, {"kernel": "mmd", "kernel_options": {"bandwidth": [0.5, 2.0]}})],
)
def test_the_bits_are_the_same_at_every_number_of_ranks(
    comm: Any, n: int, m: int, n_rounds: int, n_workers: int | None, options: dict[str, Any], spread: str
) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(n, 2)), rng.normal(0.2, 1.0, size=(m, 2))
    every = options | {"n_permutations": 299, "n_rounds": n_rounds, "n_workers": n_workers, "seed": 5}
    found = mpi_ustat.test(comm, *shards(comm, (x, z), spread), **every)
    alone = mpi_ustat.test(ALONE, x, z, **every)
    assert (found.value, found.p, found.n_pairs) == (alone.value, alone.p, alone.n_pairs)
    assert np.array_equal(found.relabelled, alone.relabelled)
    assert (found.n_rounds, found.n_workers) == (n_rounds, n_workers or 33)


def test_of_few_workers_all_labellings_are_taken() -> None:
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(7, 1)), rng.normal(2.0, 1.0, size=(7, 1))
    found = mpi_ustat.test(ALONE, x, z, n_rounds=3, seed=1)
    assert found.exact and found.n_permutations == 2**7
    assert found.p == np.mean(found.relabelled >= found.value - 1e-12)
    assert "rounds            3: 84 pairs of points (92.3 %), of those of 7 workers that met" in str(found)


def test_alike_samples_are_told_apart_as_often_as_the_level() -> None:
    rng, n_sets = np.random.default_rng(4), 300
    p = np.empty(n_sets)
    for i in range(n_sets):
        x, z = rng.standard_t(3, size=(41, 1)), rng.standard_t(3, size=(67, 1))
        p[i] = mpi_ustat.test(ALONE, x, z, n_rounds=2, n_workers=17, n_permutations=59, seed=i).p
    for level in (0.05, 0.2, 0.5):
        assert binom.ppf(1e-5, n_sets, level) <= np.sum(p <= level) <= binom.ppf(1 - 1e-5, n_sets, level)


def test_the_value_is_unbiased_whatever_the_sizes_of_workers() -> None:
    rng, kernel = np.random.default_rng(5), MMD("linear")
    ring, values = lay_ring(23, 60, 2, 8), []
    for _ in range(600):
        x, z = rng.exponential(size=(23, 2)), rng.exponential(size=(60, 2)) + np.array([0.5, 0.0])
        sums = block_sums(ALONE, ring.arranged((x, z), Streams(1)), ring, [kernel])[0]
        form = Met.of(sums, ring, kernel.sign)
        values.append(form.values(form.own)[0])
    assert np.mean(values) == pytest.approx(0.25, abs=4.5 * np.std(values) / np.sqrt(len(values)))


def test_offsets_have_few_sums_in_common() -> None:
    def rings_of_four(n: int, some: tuple[int, ...]) -> int:
        both = [*some, *(-each for each in some)]
        return sum((a + b + c + d) % n == 0 for a, b, c, d in itertools.product(both, repeat=4))

    for n, t in ((33, 3), (129, 5), (129, 16), (64, 31), (7, 3)):
        found = offsets(n, t)
        assert len(set(found)) == t and min(found) >= 1 and max(found) <= (n - 1) // 2
    trivial = 3 * 10**2 - 3 * 10  # a, -a, b, -b in any order
    assert rings_of_four(129, offsets(129, 5)) == trivial
    assert rings_of_four(129, offsets(129, 12)) < 0.6 * rings_of_four(129, tuple(range(1, 13)))


@pytest.mark.parametrize(
    ("m", "options", "text"),
    [
        (20, {"n_rounds": 0}, "9 workers can meet in 1 to 4 rounds, not 0"),
        (
            20,
            {"n_rounds": 5},
            r"9 workers can meet in 1 to 4 rounds, not 5: use other rounds \(n_rounds=\), more workers",
        ),
        (20, {"n_rounds": 1.0}, "the number of rounds is 1.0: give a whole number"),
        (20, {"n_rounds": 1, "n_workers": 11}, "11 workers can't each have a point of both samples, .*smaller has 10"),
        (20, {"n_rounds": 1, "n_workers": 2}, "a test by rounds is of 3 to 1024 workers, not 2"),
        (5, {"n_rounds": 1}, r"5 workers can be relabelled in 16 ways only, and p is 0.062 at least"),
    ],
)
def test_what_can_not_be_tested_is_refused(comm: Any, m: int, options: dict[str, Any], text: str) -> None:
    samples = np.arange(min(m, 10) * 1.0), np.arange(m * 1.0)
    with pytest.raises(UserError, match=text):
        mpi_ustat.test(comm, *shards(comm, samples), **options)
