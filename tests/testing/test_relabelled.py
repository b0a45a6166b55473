"""The statistic under other labels: that of the points so labelled."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout
from mpi_ustat.testing.relabelled import Relabelling, p_value

Floats = NDArray[np.float64]


def chosen(layout: Layout) -> int:
    return 0 if layout.n_blocks[0] <= layout.n_blocks[1] else 1


def members(layout: Layout, blocks: list[int], sample: int) -> tuple[list[int], list[int]]:
    """Return the points of x and of z if these blocks are those of the chosen sample; its rest is always its own."""
    b, n_blocks, n_rest = layout.block_size, sum(layout.n_blocks), layout.rests[0]
    rests = range(n_blocks * b, n_blocks * b + n_rest), range(n_blocks * b + n_rest, sum(layout.sizes))
    others = [block for block in range(n_blocks) if block not in blocks]
    own, other = ([block * b + i for block in each for i in range(b)] for each in (blocks, others))
    x, z = (own, other) if sample == 0 else (other, own)
    return x + list(rests[0]), z + list(rests[1])


def by_loops(kernel: Discrepancy, points: Floats, x: list[int], z: list[int]) -> float:
    """Return the statistic as a double loop over the points finds it, in rational numbers."""

    def k(i: int, j: int) -> Fraction:
        out = np.empty((1, 1))
        kernel.fill(points[i : i + 1], points[j : j + 1], out)
        return Fraction(float(out[0, 0]))

    within = [
        sum(k(i, j) for i, j in itertools.permutations(each, 2)) / (len(each) * (len(each) - 1)) for each in (x, z)
    ]
    across = sum(k(i, j) for i in x for j in z) / (len(x) * len(z))
    return float(kernel.sign * (within[0] + within[1] - 2 * across))


@pytest.mark.parametrize(
    "layout",
    [
        Layout((3, 4), 1, (3, 4)),
        Layout((5, 3), 1, (5, 3)),
        Layout((7, 10), 2, (3, 4)),
        Layout((11, 8), 3, (3, 2)),
        Layout((2, 60), 1, (2, 40)),  # so few that entries are gathered
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "kernel", [EnergyDistance(), MMD(bandwidth=0.7), MMD("linear")], ids=["energy", "gaussian", "linear"]
)
def test_the_values_are_those_of_relabelled_points(layout: Layout, kernel: Discrepancy) -> None:
    points = np.random.default_rng(2).normal(size=(sum(layout.sizes), 2))
    forms = Relabelling.of(block_sums(SerialComm(), points, layout, [kernel])[0], layout, kernel.sign)
    labellings = np.concatenate(list(forms.every()))
    assert len(labellings) == layout.n_relabellings
    some = labellings[:: -(-len(labellings) // 40)]
    expected = [by_loops(kernel, points, *members(layout, blocks, chosen(layout))) for blocks in some.tolist()]
    assert forms.values(some) == pytest.approx(expected, abs=forms.tolerance)
    own = by_loops(kernel, points, *members(layout, forms.own[0].tolist(), chosen(layout)))
    assert forms.values(forms.own)[0] == pytest.approx(own, abs=forms.tolerance)
    assert forms.tolerance < 1e-10
    x, _ = members(layout, forms.own[0].tolist(), chosen(layout))
    b, (n_x, _) = layout.block_size, layout.n_blocks
    assert x[: b * n_x] == list(range(b * n_x))


def test_of_few_values_ties_are_ties() -> None:
    layout = Layout((8, 10), 2, (4, 5))
    points = np.random.default_rng(3).integers(0, 3, size=(18, 2)) * np.sqrt([2.0, 3.0])
    kernel = EnergyDistance()
    forms = Relabelling.of(block_sums(SerialComm(), points, layout, [kernel])[0], layout, kernel.sign)
    labellings = np.concatenate(list(forms.every()))
    values = forms.values(labellings)
    expected = np.array([by_loops(kernel, points, *members(layout, each, 0)) for each in labellings.tolist()])
    gaps = np.diff(np.sort(expected))
    assert not np.any((gaps > 1e-14) & (gaps < 1e-6))  # values are equal, or far apart
    for value, exactly in zip(values, expected, strict=True):
        count = p_value(float(value), values, forms.tolerance, exact=True) * len(values)
        assert round(count) == np.count_nonzero(expected >= exactly - 1e-9)


def test_values_that_only_rounding_tells_apart_count_as_equal() -> None:
    # All blocks are of the same two points, whose distances have no exact sum; so all labellings have one value.
    layout = Layout((40, 60), 2, (20, 30))
    points = np.tile(np.array([[0.1, 0.2], [0.7, 1.9]]), (50, 1))
    kernel = EnergyDistance()
    sums = block_sums(SerialComm(), points, layout, [kernel])[0]
    noise = np.random.default_rng(4).normal(size=sums.shape) * 2.0**-50
    forms = Relabelling.of(sums * (1 + noise + noise.T), layout, kernel.sign)
    values = forms.values(forms.drawn(Streams(1), range(500)))
    assert len(np.unique(values)) > 1
    assert p_value(float(forms.values(forms.own)[0]), values, forms.tolerance, exact=False) == 1.0
    assert forms.tolerance < 1e-9


def test_points_that_are_all_equal_have_no_say() -> None:
    layout = Layout((4, 5), 1, (4, 5))
    forms = Relabelling.of(np.zeros((11, 11)), layout, -1)
    assert forms.values(forms.drawn(Streams(1), range(9))).tolist() == [0.0] * 9


def test_labellings_are_uniform_and_each_its_own() -> None:
    layout = Layout((2, 3), 1, (2, 3))
    forms = Relabelling.of(np.ones((7, 7)) - np.eye(7), layout, -1)
    drawn = forms.drawn(Streams(5), range(5000))
    assert np.array_equal(drawn[100:120], forms.drawn(Streams(5), range(100, 120)))
    found, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    assert found.tolist() == [list(pair) for pair in itertools.combinations(range(5), 2)]
    assert ((counts - 500) ** 2 / 500).sum() < 37  # 9 degrees of freedom: passed once in 40 000


def test_p_counts_the_labelling_that_is_there_once() -> None:
    others = np.array([0.0, 1.0, 2.0, 3.0])
    assert p_value(2.0, others, 0.0, exact=True) == 2 / 4
    assert p_value(2.0, others, 0.0, exact=False) == 3 / 5
    assert p_value(2.0 + 1e-12, others, 1e-11, exact=False) == 3 / 5
    assert p_value(5.0, others, 0.0, exact=False) == 1 / 5
