"""AUCs of several classes: scikit-learn's definitions, and the variance by leaving points out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharding import SPREADS, shards

from mpi_ustat import SerialComm
from mpi_ustat.influence.multiclass import every_two, one_against_rest
from mpi_ustat.influence.points import Sample

RNG = np.random.default_rng(4)
CLASSES = [np.round(RNG.normal(size=(size, 3)) + np.eye(3)[k], 1) for k, size in enumerate((25, 40, 31))]


def wins(x: Any, z: Any) -> float:
    return float(((z < x[:, None]) + 0.5 * (z == x[:, None])).mean())


def of_rest(classes: Any) -> list[float]:
    values = [wins(classes[k][:, k], np.concatenate([classes[j][:, k] for j in range(3) if j != k])) for k in range(3)]
    sizes = [len(each) for each in classes]
    return [*values, float(np.mean(values)), float(np.average(values, weights=sizes))]


def of_two(classes: Any) -> list[float]:
    values = [
        (wins(classes[i][:, i], classes[j][:, i]) + wins(classes[j][:, j], classes[i][:, j])) / 2
        for i, j in combinations(range(3), 2)
    ]
    return [*values, float(np.mean(values))]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("function", "direct"), [(one_against_rest, of_rest), (every_two, of_two)])
def test_values_and_influences_are_those_of_each_pair_of_classes(
    comm: Any, function: Any, direct: Any, spread: str
) -> None:
    found = function(comm, [Sample(rows) for rows in shards(comm, CLASSES, spread)])
    assert_allclose(found.value, direct(CLASSES), rtol=1e-13)
    whole = [np.concatenate(comm.allgather(psi), axis=1) for psi in found.points]
    alone = function(SerialComm(), [Sample(rows) for rows in CLASSES])
    assert alone.value.tobytes() == found.value.tobytes()
    assert [each.tobytes() for each in alone.points] == [each.tobytes() for each in whole]
    # The influence is the derivative by a point's weight, here with the classes' weights in the last mean held fixed.
    for k, i in ((0, 3), (1, 7), (2, 0)):
        weights = [np.ones(len(rows)) for rows in CLASSES]
        weights[k][i] += 1e-6
        moved = function(SerialComm(), [Sample(r, w) for r, w in zip(CLASSES, weights, strict=True)])
        last = len(found.value) if function is every_two else -1
        assert_allclose((moved.value - alone.value)[:last] / 1e-6, alone.points[k][:last, i], rtol=1e-4, atol=1e-8)


def test_scikit_learns_values() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores = np.exp(np.concatenate(CLASSES))
    scores /= scores.sum(axis=1, keepdims=True)
    labels = np.repeat(np.arange(3), [len(each) for each in CLASSES])
    samples = [Sample(scores[labels == k]) for k in range(3)]
    rest, two = one_against_rest(SerialComm(), samples).value, every_two(SerialComm(), samples).value
    for value, how in ((rest[3], ("ovr", "macro")), (rest[4], ("ovr", "weighted")), (two[3], ("ovo", "macro"))):
        assert_allclose(value, metrics.roc_auc_score(labels, scores, multi_class=how[0], average=how[1]), rtol=1e-12)
