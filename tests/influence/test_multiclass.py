"""AUCs of several classes: scikit-learn's definitions, and the variance by leaving points out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharding import SPREADS, shards

from mpi_ustat import SerialComm, UserError, estimate_samples
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


def brute_influence(how: str, classes: Any) -> list[Any]:
    """ψ of every point, from the matrices of h: (q, n) for each class."""
    k = len(classes)
    parts = []  # of (influence on one AUC of each class's points)
    for a in range(k):
        for b in [[j for j in range(k) if j != a]] if how == "ovr" else [[j] for j in range(k) if j != a]:
            z = np.concatenate([classes[j][:, a] for j in b])
            x = classes[a][:, a]
            h = (z < x[:, None]) + 0.5 * (z == x[:, None])
            psi = [np.zeros(len(each)) for each in classes]
            psi[a] = (h.mean(axis=1) - h.mean()) / len(x)
            of_z = np.split((h.mean(axis=0) - h.mean()) / len(z), np.cumsum([len(classes[j]) for j in b])[:-1])
            for j, each in zip(b, of_z, strict=True):
                psi[j] = each
            parts.append(((a, *b), psi))
    if how == "ovr":
        each = [psi for _, psi in parts]
        shares = np.array([len(rows) for rows in classes]) / sum(map(len, classes))
        means = [np.full(k, 1 / k), shares]
    else:
        of = dict(parts)
        each = [[(u + v) / 2 for u, v in zip(of[i, j], of[j, i], strict=True)] for i, j in combinations(range(k), 2)]
        means = [np.full(len(each), 1 / len(each))]
    return [
        np.array([*(psi[c] for psi in each), *(sum(w * psi[c] for w, psi in zip(m, each, strict=True)) for m in means)])
        for c in range(k)
    ]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("how", ["ovr", "ovo"])
def test_the_estimate_has_the_variance_of_its_influences(comm: Any, how: str, spread: str) -> None:
    mine = shards(comm, CLASSES, spread)
    found = estimate_samples(comm, mine, complete=True, multiclass=how, columns=["a", "b", "c"], influence=True)
    want = sum(len(p.T) / (len(p.T) - 1) * (p @ p.T) for p in brute_influence(how, CLASSES))
    assert_allclose(found.covariance, want, rtol=1e-10, atol=1e-16)
    assert_allclose(found.values, (of_rest if how == "ovr" else of_two)(CLASSES), rtol=1e-13)
    alone = estimate_samples(SerialComm(), CLASSES, complete=True, multiclass=how)
    assert (alone.values.tobytes(), alone.stderr) == (found.values.tobytes(), found.stderr)
    assert found.columns[0] == {"ovr": "class a", "ovo": "a, b"}[how]
    assert alone.columns[-1] == {"ovr": "weighted", "ovo": "M"}[how]
    assert found.omnibus().rank == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["ovr", "ovo"])
def test_standard_errors_are_those_of_a_bootstrap(how: str) -> None:
    rng, rows, labels = np.random.default_rng(5), np.concatenate(CLASSES), np.repeat(range(3), [25, 40, 31])
    direct = of_rest if how == "ovr" else of_two
    draws = []
    for _ in range(1500):
        picked = rng.integers(0, len(rows), len(rows))
        draws.append(direct([rows[picked][labels[picked] == k] for k in range(3)]))
    found = estimate_samples(SerialComm(), CLASSES, complete=True, multiclass=how)
    # The weighted mean takes the classes' weights as known; they move little.
    assert_allclose(found.stderr, np.std(draws, axis=0, ddof=1), rtol=0.1)  # type: ignore[arg-type]


def test_counts_are_repeated_rows_and_a_cluster_of_one_is_a_point() -> None:
    rng = np.random.default_rng(8)
    counts = [rng.integers(0, 3, len(rows)) for rows in CLASSES]
    found = estimate_samples(SerialComm(), CLASSES, complete=True, multiclass="ovo", counts=counts)
    copies = [np.repeat(rows, times, axis=0) for rows, times in zip(CLASSES, counts, strict=True)]
    want = estimate_samples(SerialComm(), copies, complete=True, multiclass="ovo")
    assert (found.values.tobytes(), found.stderr) == (want.values.tobytes(), want.stderr)
    starts = (0, 25, 65)
    own = [start + np.arange(len(rows)) for start, rows in zip(starts, CLASSES, strict=True)]
    plain = estimate_samples(SerialComm(), CLASSES, complete=True, multiclass="ovr")
    clustered = estimate_samples(SerialComm(), CLASSES, complete=True, multiclass="ovr", clusters=own)
    assert_allclose(clustered.covariance, plain.covariance, rtol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"multiclass": "ovr", "n_rounds": 1}, "for the AUC of all pairs"),
        ({"multiclass": "ovr", "complete": True, "kernel": "vus"}, "for the AUC of all pairs"),
        ({"multiclass": "all", "complete": True}, "choose ovr or ovo"),
        ({"multiclass": "ovr", "complete": True, "columns": ["a"]}, "3 classes and 1 name "),
        ({"multiclass": "ovr", "complete": True, "kernel_options": {"h": 1}}, "no option h"),
    ],
)
def test_what_multiclass_is_not_for_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        estimate_samples(SerialComm(), CLASSES, **options)


def test_a_column_for_each_class_is_wanted() -> None:
    with pytest.raises(UserError, match="3 classes and 2 columns of scores"):
        estimate_samples(SerialComm(), [rows[:, :2] for rows in CLASSES], complete=True, multiclass="ovr")
