"""Real samples: white wines of two qualities are told apart, halves of one class are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shards

import mpi_ustat

ALONE = mpi_ustat.SerialComm()


def loaded(path: Path) -> tuple[NDArray[np.float64], NDArray[Any]]:
    if not path.exists():
        pytest.skip(f"there is no {path}")
    with np.load(path) as data:
        return data["X"].astype(np.float64), data["y"]


def test_white_wines_of_quality_5_and_6(comm: Any, shared_data: Path) -> None:
    points, quality = loaded(shared_data / "winequality_white.npz")
    points = ((points - points.mean(axis=0)) / points.std(axis=0))[(quality == 5) | (quality == 6)]
    kinds = quality[(quality == 5) | (quality == 6)]
    x, z = points[kinds == 5], points[kinds == 6]
    found = mpi_ustat.test(comm, *shards(comm, (x, z)), "energy", n_permutations=999, seed=1)
    assert found.sizes == (1457, 2198)
    assert found.p == 0.001
    assert found.value > 3 * found.relabelled.max() > 0
    # The same wines with their qualities exchanged at random are of one law.
    mixed = np.random.default_rng(2).permutation(points)
    assert mpi_ustat.test(comm, *shards(comm, (mixed[:1457], mixed[1457:])), n_permutations=999, seed=1).p > 0.01


@pytest.mark.slow
def test_p_of_random_halves_is_uniform(shared_data: Path) -> None:
    from scipy.stats import kstest

    points, anomaly = loaded(shared_data / "shuttle.npz")
    normal = points[anomaly == 0]
    rng, p = np.random.default_rng(3), []
    for i in range(1000):
        some = normal[rng.choice(len(normal), 650, replace=False)]
        p.append(mpi_ustat.test(ALONE, some[:300], some[300:], n_permutations=199, n_workers=64, seed=i).p)
    # p is k/200: uniform on these up to what the steps of 0.005 add.
    assert kstest(np.array(p) - rng.uniform(0, 1 / 200, len(p)), "uniform").pvalue > 1e-4
