"""Pairwise objectives of boosters: gradient and diagonal Hessian against the double loop over all pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, bounds_of
from standins import Dataset, Matrix

from mpi_ustat import SerialComm, UserError
from mpi_ustat.boosters import pairwise_objective

Array = NDArray[Any]
Derivative = Callable[[float], float]

DERIVATIVES: dict[str, tuple[Derivative, Derivative]] = {
    "squared-hinge": (lambda u: -2.0 * max(0.0, 1.0 - u), lambda u: 2.0 * (u < 1.0)),
    "logistic": (lambda u: -1.0 / (1.0 + math.exp(u)), lambda u: 1.0 / (2.0 + math.exp(u) + math.exp(-u))),
}
"""φ' and φ'', by name."""

SIZES = np.array([9, 1, 14, 6, 11])  # of query groups


def rows(n_classes: int = 2) -> dict[str, Array]:
    """Scores with ties, and margins that are hit exactly."""
    rng = np.random.default_rng(n_classes)
    n = int(SIZES.sum())
    scores, labels = rng.integers(-3, 4, n) / 2.0, rng.integers(0, n_classes, n).astype(float)
    return {"scores": scores, "label": labels, "weight": rng.integers(1, 9, n) / 4.0}


def by_definition(name: str, of: dict[str, Array], weights: Array, groups: Array) -> tuple[Array, Array]:
    """Return n times the gradient of the summed mean losses, and the diagonal of their Hessian."""
    s, y = of["scores"], of["label"]
    n, (slope, curvature) = len(s), DERIVATIVES[name]
    gradient, second = np.zeros(n), np.zeros(n)
    classes = np.unique(y)
    for low, high in itertools.pairwise(classes):
        pairs = [(i, j) for i in range(n) for j in range(n) if (y[i], y[j]) == (high, low) and groups[i] == groups[j]]
        total = sum(weights[i] * weights[j] for i, j in pairs)
        for i, j in pairs:
            share = n * weights[i] * weights[j] / total
            gradient[i] += share * slope(s[i] - s[j])
            gradient[j] -= share * slope(s[i] - s[j])
            second[[i, j]] += share * curvature(s[i] - s[j])
    return gradient, second


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("weighted", "grouped"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("loss", DERIVATIVES)
def test_gradient_and_hessian_are_those_of_all_pairs(
    comm: Any, loss: str, weighted: bool, grouped: bool, n_classes: int
) -> None:
    of_all = rows(n_classes)
    ends = np.cumsum(SIZES)
    of_groups = np.repeat(np.arange(len(SIZES)), SIZES) if grouped else np.zeros(ends[-1])
    weights = of_all["weight"] if weighted else np.ones(ends[-1])
    expected = by_definition(loss, of_all, weights, of_groups)
    cuts = bounds_of(comm, len(SIZES), "uneven")
    bounds = [0 if cut == 0 else int(ends[cut - 1]) for cut in cuts]
    own = slice(bounds[comm.rank], bounds[comm.rank + 1])
    mine = {name: each[own] for name, each in of_all.items()}
    objective = pairwise_objective(comm, loss, weights=weighted, groups=grouped)
    found = objective(mine["scores"], Matrix(**mine, group=SIZES[cuts[comm.rank] : cuts[comm.rank + 1]]))
    for each, exact in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, exact[own], rtol=1e-12, atol=1e-13)
    alone = pairwise_objective(SerialComm(), loss, weights=weighted, groups=grouped)
    for each, whole in zip(found, alone(of_all["scores"], Dataset(**of_all, group=SIZES)), strict=True):
        assert each.tobytes() == whole[own].tobytes()


@pytest.mark.parametrize("spread", SPREADS)
def test_scores_far_apart_have_no_overflow(comm: Any, spread: str) -> None:
    scores, labels = np.array([1e5, -1e5, 0.0, 800.0, -800.0]), np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    bounds = bounds_of(comm, len(scores), spread)
    own = slice(bounds[comm.rank], bounds[comm.rank + 1])
    with np.errstate(all="raise", under="ignore"):
        gradient, second = pairwise_objective(comm, "logistic")(scores[own], Matrix(label=labels[own]))
    expected = 5 / 6 * np.array([3.0, -2.0, -2.0, 3.0, -2.0])  # every pair is misordered by far
    assert gradient == pytest.approx(expected[own])
    assert second == pytest.approx(np.zeros(len(second)))


def test_what_has_no_curvature_is_refused() -> None:
    with pytest.raises(UserError, match="hinge has no curvature"):
        pairwise_objective(SerialComm(), "hinge")


def test_one_class_is_refused_on_all_ranks(comm: Any) -> None:
    with pytest.raises(UserError, match="two or more") as caught:
        pairwise_objective(comm)(np.arange(3.0), Matrix(label=np.ones(3)))
    assert len(set(comm.allgather(str(caught.value)))) == 1
