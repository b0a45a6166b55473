"""The test of K samples: that of two where K is 2, exact, by labels of the blocks of all; and of every two of them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, shards

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import MOST_BLOCKS, Layout, lay_out_all
from mpi_ustat.testing.omnibus import Omnibus, holm

Floats = NDArray[np.float64]
ALONE = SerialComm()


def statistic(k: list[list[Fraction]], samples: list[list[int]], sign: int) -> Fraction:
    """Return the sum over pairs of samples of weights times discrepancies, as the definition says, by loops."""
    n_points, found = sum(map(len, samples)), Fraction(0)
    for own, other in itertools.combinations(samples, 2):
        within = [
            sum(k[i][j] for i, j in itertools.permutations(each, 2)) / (len(each) * (len(each) - 1))
            for each in (own, other)
        ]
        across = sum(k[i][j] for i in own for j in other) / (len(own) * len(other))
        found += Fraction(len(own) * len(other), 2 * n_points) * sign * (within[0] + within[1] - 2 * across)
    return found


def values_of(kernel: Discrepancy, points: Floats) -> list[list[Fraction]]:
    out = np.empty((len(points), len(points)))
    kernel.fill(points, points, out)
    return [[Fraction(each) for each in row] for row in out.tolist()]


def every(points: list[int], counts: list[int]) -> Iterator[list[list[int]]]:
    """Yield all ways to share points out."""
    if not counts:
        yield []
        return
    for first in itertools.combinations(points, counts[0]):
        for others in every([each for each in points if each not in first], counts[1:]):
            yield [list(first), *others]


@pytest.mark.parametrize(
    "layout",
    [
        Layout((3, 2, 4), 1, (3, 2, 4)),
        Layout((7, 10, 5), 2, (2, 3, 2)),
        Layout((5, 3, 2, 2), 1, (2, 3, 2, 1)),
        Layout((4, 5), 1, (4, 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [EnergyDistance(), MMD(bandwidth=0.7)], ids=["energy", "mmd"])
def test_the_values_are_those_of_relabelled_points(layout: Layout, kernel: Discrepancy) -> None:
    points = np.random.default_rng(2).normal(size=(sum(layout.sizes), 2))
    form = Omnibus.of(block_sums(ALONE, points, layout, [kernel])[0], layout, kernel.sign)
    labellings = np.concatenate(list(form.every()))
    assert len(labellings) == layout.n_relabellings == len(np.unique(labellings, axis=0))
    n_blocks, b = sum(layout.n_blocks), layout.block_size
    starts = n_blocks * b + np.cumsum([0, *layout.rests])
    by_count = sorted(range(len(layout.sizes)), key=lambda k: layout.n_blocks[k])
    k = values_of(kernel, points)

    def by_loops(order: list[int]) -> float:
        samples: list[list[int]] = [[] for _ in layout.sizes]
        blocks = iter(order)
        for sample in by_count:
            for block in itertools.islice(blocks, layout.n_blocks[sample]):
                samples[sample] += range(block * b, block * b + b)
        for sample, (start, stop) in enumerate(itertools.pairwise(starts.tolist())):
            samples[sample] += range(start, stop)
        assert tuple(map(len, samples)) == layout.sizes
        return float(statistic(k, samples, kernel.sign))

    some = labellings[:: -(-len(labellings) // 25)]
    assert form.values(some) == pytest.approx([by_loops(each) for each in some.tolist()], abs=form.tolerance)
    assert form.tolerance < 1e-9
    drawn = form.drawn(Streams(4), range(5))
    assert np.array_equal(np.sort(drawn, axis=1), np.tile(np.arange(n_blocks), (5, 1)))
    own = form.own[0].tolist()
    firsts = np.cumsum([0, *layout.n_blocks]).tolist()
    assert own == [block for sample in by_count for block in range(firsts[sample], firsts[sample + 1])]


def groups(sizes: tuple[int, ...], shift: float = 0.2, seed: int = 1) -> tuple[Floats, ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(shift * k, 1.0, size=(n, 2)) for k, n in enumerate(sizes))


def test_of_tiny_samples_all_labellings_are_taken(comm: Any) -> None:
    samples = groups((2, 3, 3), shift=0.9)
    found = mpi_ustat.test_samples(comm, shards(comm, samples), "energy", seed=1)
    k = values_of(EnergyDistance(), np.concatenate(samples))
    values = np.array([float(statistic(k, each, -1)) for each in every(list(range(8)), [2, 3, 3])])
    own = float(statistic(k, [[0, 1], [2, 3, 4], [5, 6, 7]], -1))
    assert found.exact and found.n_permutations == len(values) == math.factorial(8) // (2 * 6 * 6)
    assert np.sort(found.relabelled) == pytest.approx(np.sort(values), abs=1e-12)
    assert found.value == pytest.approx(own, abs=1e-12)
    assert found.p == np.mean(values >= own - 1e-10)
    assert "all 560, of 2, 3, 3 blocks of 1 point" in str(found)
    for pair, (i, j) in zip(found.pairs, itertools.combinations(range(3), 2), strict=True):
        two = mpi_ustat.estimate(ALONE, samples[i], samples[j], "energy", complete=True, stderr=False)
        points = [place for place, sample in enumerate([0, 0, 1, 1, 1, 2, 2, 2]) if sample in (i, j)]
        sizes = [len(samples[i]), len(samples[j])]
        weight = len(points) / (sizes[0] * sizes[1] / 2)
        others = np.array([weight * float(statistic(k, each, -1)) for each in every(points, sizes)])
        assert (pair.first, pair.second, pair.exact) == (i, j, True)
        assert pair.n_permutations == len(others) == math.comb(sum(sizes), sizes[0])
        assert pair.value == pytest.approx(two.value, abs=1e-13)
        assert pair.p == np.mean(others >= two.value - 1e-10)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(
    ("sizes", "kernel", "n_workers"),
    [((97, 141, 60), "energy", None), ((20, 20, 20, 21), "mmd", None), ((300, 61, 800), "energy", 50)],
)
def test_the_bits_are_the_same_at_every_number_of_ranks(
    comm: Any, sizes: tuple[int, ...], kernel: str, n_workers: int | None, spread: str
) -> None:
    samples = groups(sizes)
    options: dict[str, Any] = {"n_permutations": 199, "n_workers": n_workers, "seed": 5}
    if kernel == "mmd":
        options["kernel_options"] = {"bandwidth": "median", "standardize": "sd"}
    found = mpi_ustat.test_samples(comm, shards(comm, samples, spread), kernel, **options)
    alone = mpi_ustat.test_samples(ALONE, samples, kernel, **options)
    assert (found.value, found.p, found.pairs, found.n_blocks) == (alone.value, alone.p, alone.pairs, alone.n_blocks)
    assert np.array_equal(found.relabelled, alone.relabelled)
    assert found.kernel_options == options.get("kernel_options", {})
    assert json.loads(json.dumps(found.summary()))["pairs"][1]["second"] == 2


@pytest.mark.parametrize("sizes", [(4, 6), (97, 141), (300, 61), (500, 500), (333, 5000)])
@pytest.mark.parametrize("kernel", ["energy", "mmd"])
def test_of_two_samples_it_is_the_test_of_two(sizes: tuple[int, int], kernel: str) -> None:
    x, z = groups(sizes, shift=0.1)
    two = mpi_ustat.test(ALONE, x, z, kernel, n_permutations=999, seed=3)
    found = mpi_ustat.test_samples(ALONE, (x, z), kernel, n_permutations=999, seed=3)
    weight = sizes[0] * sizes[1] / (2 * sum(sizes))
    assert (found.p, found.n_blocks, found.rests, found.exact) == (two.p, two.n_blocks, two.rests, two.exact)
    assert found.value == pytest.approx(weight * two.value, abs=1e-12)
    assert np.sort(found.relabelled) == pytest.approx(np.sort(weight * two.relabelled), abs=1e-9)
    (pair,) = found.pairs
    assert (pair.value, pair.p, pair.p_holm, pair.n_permutations) == (two.value, two.p, two.p, two.n_permutations)


def test_pairs_are_tested_by_the_blocks_of_all() -> None:
    """The pair's p is the share of its own labellings, of the discrepancies of its points alone."""
    samples = groups((60, 75, 90), shift=0.25)
    found = mpi_ustat.test_samples(ALONE, samples, n_permutations=1999, seed=2)
    for pair in found.pairs:
        two = mpi_ustat.test(ALONE, samples[pair.first], samples[pair.second], n_permutations=1999, seed=9)
        assert pair.value == pytest.approx(two.value, abs=1e-13)
        deviation = math.sqrt(2 * max(two.p, 0.002) * (1 - two.p) / 2000)
        assert abs(pair.p - two.p) < 4.5 * deviation + 1e-3
    p = [pair.p for pair in found.pairs]
    assert [pair.p_holm for pair in found.pairs] == holm(np.array(p)).tolist()


def test_pairs_that_are_relabelled_together_are_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = groups((40, 50, 40, 50))
    together = mpi_ustat.test_samples(ALONE, samples, n_permutations=199, seed=2)
    monkeypatch.setattr("mpi_ustat.testing.samples._VALUES", 1)
    assert mpi_ustat.test_samples(ALONE, samples, n_permutations=199, seed=2).pairs == together.pairs


def test_holm() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.6, 0.02])) == pytest.approx([1.0, 1.0, 0.06])
    assert holm(np.array([0.3])).tolist() == [0.3]


LAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "t3": lambda rng, n: rng.standard_t(3, size=n),
    "four values": lambda rng, n: rng.integers(0, 4, size=n).astype(np.float64),
}


@pytest.mark.parametrize(("law", "sizes", "n_workers"), [("t3", (25, 41, 67), 30), ("four values", (12, 12, 12), None)])
def test_alike_samples_are_told_apart_no_more_often_than_the_level(
    law: str, sizes: tuple[int, ...], n_workers: int | None
) -> None:
    from scipy.stats import binom

    rng, n_sets = np.random.default_rng(6), 400
    given: dict[str, Any] = {"n_permutations": 99, "n_workers": n_workers}
    found = [mpi_ustat.test_samples(ALONE, [LAWS[law](rng, n) for n in sizes], seed=i, **given) for i in range(n_sets)]
    p = np.array([each.p for each in found])
    least = np.array([min(pair.p_holm for pair in each.pairs) for each in found])
    for level in (0.05, 0.2, 0.5):
        low, high = binom.ppf([1e-5, 1 - 1e-5], n_sets, level)
        assert np.count_nonzero(p <= level) <= high
        assert np.count_nonzero(least <= level) <= high
        if law == "t3":  # with a density there are no ties, and the test is not conservative
            assert np.count_nonzero(p <= level) >= low


@pytest.mark.parametrize("n_blocks", [None, 9, 40, 4096])
def test_the_blocks_hold_what_the_samples_have(n_blocks: int | None) -> None:
    for sizes in [(20, 30, 40), (5, 700, 9000), (1000, 1000, 1000, 4097), (64,) * 40, (30001, 2, 40), (500,) * 128]:
        if n_blocks is not None and not len(sizes) <= n_blocks <= sum(sizes):
            continue
        found = lay_out_all(sizes, n_blocks)
        assert min(found.n_blocks) >= 1 and min(found.rests) >= 0
        assert sum(found.n_blocks) <= MOST_BLOCKS
        assert found.n_blocks[int(np.argmin(sizes))] >= min(16, *sizes, (n_blocks or 4096) // len(sizes))
        end = segment = 0
        for group in found.groups:
            assert (group.first, group.start) == (segment, end)
            segment, end = segment + group.n_segments, group.stop
        assert end == sum(sizes)
    assert lay_out_all((1000, 1000, 1000)).n_blocks == (90, 90, 90)
    assert lay_out_all((100, 30, 2000)).n_blocks == (100, 30, 382)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kernel": "auc"}, "the kernel auc is no discrepancy"),
        ({"kernel_options": {"bandwidth": 1.0}}, "the kernel energy has no option bandwidth"),
        ({"kernel": "mmd", "kernel_options": {"bandwidth": [1.0, 1.0]}}, "bandwidth 1.0 is there twice"),
        ({"samples": (np.arange(5.0),)}, "a test is of 2 to 128 samples, not 1: give fewer"),
        ({"samples": (np.arange(5.0), np.arange(1.0), np.arange(6.0))}, r"sample 1 \(of 3\) has only 1 point"),
        ({"samples": (np.arange(5.0), np.arange(5.0), np.array([1.0, np.nan]))}, r"row 1 of the sample 2 \(of 3\)"),
        ({"samples": (np.arange(9.0), np.arange(5.0), np.zeros((4, 2)))}, "can't be paired"),
        ({"n_workers": 2}, "from 3 to 4096 blocks of all samples, not 2"),
        ({"n_workers": 31}, "31 blocks can't each have one of 30 points"),
        ({"n_workers": 3}, r"1, 1, 1 blocks can be relabelled in 6 ways only, and p is 0.17 at least: use more blocks"),
        ({"n_permutations": 18}, "the number of permutations is 18"),
    ],
)
def test_what_can_not_be_tested_is_refused_on_every_rank(comm: Any, change: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"samples": (np.arange(10.0),) * 3} | change
    own = shards(comm, given.pop("samples"))
    with pytest.raises(UserError, match=text):
        mpi_ustat.test_samples(comm, own, **given)


def test_a_list_of_bandwidths_is_one_test_of_all_samples_and_of_every_two(comm: Any) -> None:
    rng = np.random.default_rng(12)
    samples = [rng.normal(shift, 1.0, size=(n, 1)) for n, shift in ((3, 0.0), (2, 0.5), (3, 1.0))]
    own, widths = [shards(comm, (each,))[0] for each in samples], [0.3, 1.0, 3.0]
    options: dict[str, Any] = {"n_permutations": 1000, "seed": 2}
    found = mpi_ustat.test_samples(comm, own, "mmd", kernel_options={"bandwidth": widths}, **options)
    ones = [mpi_ustat.test_samples(ALONE, samples, "mmd", kernel_options={"bandwidth": w}, **options) for w in widths]
    assert found.exact and found.n_permutations == 560
    every = np.array([(each.relabelled - each.relabelled.mean()) / each.relabelled.std() for each in ones])
    value = max((each.value - each.relabelled.mean()) / each.relabelled.std() for each in ones)
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.relabelled == pytest.approx(every.max(axis=0), abs=1e-9)
    assert found.p == np.mean(every.max(axis=0) >= value - 1e-9)
    assert found.several is not None and found.kernel_options == {"bandwidth": widths}
    assert found.several.estimates == tuple(each.value for each in ones)
    for pair in found.pairs:
        if math.comb(len(samples[pair.first]) + len(samples[pair.second]), len(samples[pair.first])) < 20:
            continue  # so few that `test` refuses them
        two = [samples[pair.first], samples[pair.second]]
        alone = mpi_ustat.test(ALONE, *two, "mmd", kernel_options={"bandwidth": widths}, **options)
        assert (pair.p, pair.value) == pytest.approx((alone.p, alone.value), abs=1e-9)
    alone_all = mpi_ustat.test_samples(ALONE, samples, "mmd", kernel_options={"bandwidth": widths}, **options)
    assert (found.value, found.p, found.pairs) == (alone_all.value, alone_all.p, alone_all.pairs)
    assert "0.3: " in str(found) and "the largest studentised, of 3 samples" in str(found)
