"""Counts of every two columns of scores: whole numbers, by whichever way they are found."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpi_ustat import SerialComm
from mpi_ustat.complete import complete
from mpi_ustat.kernels import auc_columns
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.auc_columns import columns_components, joint_wins
from mpi_ustat.kernels.auc_margins import count_components
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def scores(n: int, q: int, digits: int) -> np.ndarray:
    found = np.round(np.random.default_rng([n, q, digits]).normal(size=(n, q)), digits)
    if n:
        found[0, 0] = np.inf
    return found


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize(("n", "m", "q"), [(0, 4, 2), (4, 0, 2), (7, 5, 4), (90, 40, 3), (150, 160, 2)])
def test_joint_wins_are_those_of_the_matrices(
    monkeypatch: pytest.MonkeyPatch, n: int, m: int, q: int, half: bool
) -> None:
    for digits in (0, 9):
        x, z = scores(n, q, digits), scores(m, q, digits)
        twice = [
            (b < a).astype(int) + ((b <= a) if half else (b < a)) for a, b in zip(x.T[:, :, None], z.T, strict=True)
        ]
        expected = [[int((a * b).sum()) for b in twice] for a in twice]
        steps: list[Any] = []

        def counted(each: Any, steps: list[Any] = steps) -> list[Any]:
            steps.extend(each)
            return list(each)

        assert joint_wins(x, z, half, counted).tolist() == expected
        for tile in (1, 11, 1 << 22):  # smaller than a row, than a column, than all
            monkeypatch.setattr(auc_columns, "_TILE", tile)
            assert auc_columns._by_tiles(x, z, half, iter).tolist() == expected
        ranked = [auc_columns._ranked(x[:, a], z[:, a], half) for a in range(q)]
        assert [[auc_columns._joint(a, b) for b in ranked] for a in ranked] == expected
        assert bool(steps) == (n * m > 0)


@pytest.mark.parametrize("sizes", [(2, 2), (20, 13), (700, 650), (900, 3), (3000, 2000)], ids=str)
def test_components_of_arrays_are_those_of_integers(sizes: tuple[int, int]) -> None:
    n, m = sizes
    rng = np.random.default_rng(sizes)
    totals = rng.integers(0, 2 * n * m, 3, endpoint=True).tolist()
    rows, columns, squares = (
        np.tril(each) + np.tril(each, -1).T
        for each in (
            rng.integers(0, 4 * n * m * m, (3, 3)),
            rng.integers(0, 4 * m * n * n, (3, 3)),
            rng.integers(0, 4 * n * m, (3, 3)),
        )
    )
    found = columns_components(n, m, totals, rows, columns, squares)
    for a, b in itertools.product(range(3), repeat=2):
        counts = (int(each[a, b]) for each in (rows, columns, squares))
        assert found[:, a, b].tolist() == list(count_components(n, m, totals[a] * totals[b], *counts))


def test_without_components_no_two_columns_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("columns are compared")

    x, z = scores(9, 3, 1), scores(8, 3, 1)
    samples = [Exchange(SerialComm(), rows, 2) for rows in (x, z)]
    with_error = complete(SerialComm(), samples, AUC(columns=3), 2, Streams(0))
    monkeypatch.setattr("mpi_ustat.complete.auc.joint_wins", refuse)
    without = complete(SerialComm(), samples, AUC(columns=3), 2, Streams(0), components=False)
    assert without.local.components is None
    assert without.local.sums == with_error.local.sums
