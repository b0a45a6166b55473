"""Sums over pairs of blocks: those of a double loop, the same bits at every number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.kernels.mmd import MMD
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout

Floats = NDArray[np.float64]
KERNELS: list[list[Discrepancy]] = [
    [EnergyDistance(), EnergyDistance(0.5)],
    [MMD(bandwidth=0.8), MMD(bandwidth=2.0)],
    [MMD("laplace"), MMD("laplace", 0.3), MMD("linear")],
]

LAYOUTS = [
    Layout((9, 7), 1, (9, 7)),
    Layout((9, 8), 2, (4, 3)),
    Layout((700, 40), 1, (30, 40)),  # a rest of two pieces
    Layout((33, 301), 7, (4, 42)),
    Layout((160, 91), 40, (3, 2)),
    Layout((430, 270), 129, (3, 2)),
    Layout((1100, 530), 250, (4, 2)),
    Layout((620, 640), 300, (2, 2)),
    Layout((1300, 650), 600, (2, 1)),
]


def by_loops(kernel: Discrepancy, points: Floats, layout: Layout) -> Floats:
    """Return B from the whole matrix of k, with blocks told point by point."""
    n_blocks = sum(layout.n_blocks)
    block = np.repeat(np.arange(n_blocks + 2), [layout.block_size] * n_blocks + list(layout.rests))
    k = np.empty((len(points), len(points)))
    kernel.fill(points, points, k)
    np.fill_diagonal(k, 0.0)
    found = np.zeros((n_blocks + 2, n_blocks + 2))
    np.add.at(found, (block[:, None], block[None, :]), k)
    return found


@pytest.mark.parametrize(
    ("layout", "kernels"),
    list(zip(LAYOUTS, KERNELS * 3, strict=True)),
    ids=["-".join(map(str, layout.sizes)) for layout in LAYOUTS],
)
def test_the_sums_are_those_of_all_pairs(comm: Any, layout: Layout, kernels: list[Discrepancy]) -> None:
    points = np.random.default_rng(1).normal(size=(sum(layout.sizes), 2))
    found = block_sums(comm, points, layout, kernels)
    assert np.array_equal(found, found.transpose(0, 2, 1))
    for kernel, sums in zip(kernels, found, strict=True):
        expected = by_loops(kernel, points, layout)
        assert sums == pytest.approx(expected, rel=1e-11, abs=1e-9)
        assert np.array_equal(sums, block_sums(SerialComm(), points, layout, [kernel])[0])


def test_overflow_is_told_by_what_is_no_number(comm: Any) -> None:
    points = np.array([[-1.7e308], [1.7e308], [0.0], [1.0]])
    found = block_sums(comm, points, Layout((2, 2), 1, (2, 2)), [EnergyDistance()])
    assert np.isfinite(found[0]).sum() == 36 - 10  # also the squares of what is far from the others
