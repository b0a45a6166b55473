"""AUCs of more than two classes, of which each has a column of scores: one against the rest, and every two.

Points are in K samples, one a class, with K columns. Every AUC is one of two samples made of these, and so has an
influence of every point; means of AUCs have the means of the influences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from mpi_ustat.influence.auc import auc
from mpi_ustat.influence.points import Sample
from mpi_ustat.influence.statistic import Influence, statistic
from mpi_ustat.mpi.collectives import add_exactly
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.types import Floats


def one_against_rest(comm: Any, classes: Sequence[Sample], ties: str = "half") -> Influence:
    """Return the K AUCs of each class against all others, their mean, and that weighted by the classes' weights.

    Collective. The weights of the classes are taken as known.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    classes : sequence of K Sample
        With rows (n_k, K); column k scores class k.
    ties : {"half", "strict"}
    """
    n_classes = len(classes)
    each = []
    for k in range(n_classes):
        rest = [j for j in range(n_classes) if j != k]
        found = _auc(comm, [_column(classes[k], k), _joined([_column(classes[j], k) for j in rest])], ties)
        lengths = np.cumsum([len(classes[j].rows) for j in rest])[:-1]
        points = dict(zip([k, *rest], [found.points[0], *np.split(found.points[1], lengths, axis=1)], strict=True))
        each.append(replace(found, points=[points[j] for j in range(n_classes)]))
    totals = add_exactly(comm, [_weight(sample) for sample in classes])
    shares = [float(total / sum(totals)) for total in totals]
    means = np.array([[1.0 / n_classes] * n_classes, shares])
    return _with_means(each, means, 2)


def every_two(comm: Any, classes: Sequence[Sample], ties: str = "half") -> Influence:
    """Return A(i, j) of every two classes i < j, and their mean, M of Hand and Till (2001).  Collective.

    A(i, j) = (A(i | j) + A(j | i))/2: of the points of both classes, A(i | j) is the AUC of the scores for class i, the
    points of which should have the higher ones.

    Parameters
    ----------
    comm, classes, ties
        As of `one_against_rest`.
    """
    each = []
    for i, j in combinations(range(len(classes)), 2):
        first = _auc(comm, [_column(classes[i], i), _column(classes[j], i)], ties)
        second = _auc(comm, [_column(classes[j], j), _column(classes[i], j)], ties)
        points = [np.zeros((1, len(sample.rows))) for sample in classes]
        points[i] = 0.5 * (first.points[0] + second.points[1])
        points[j] = 0.5 * (first.points[1] + second.points[0])
        sent = first.bytes_sent + second.bytes_sent
        each.append(Influence(0.5 * (first.value + second.value), first.total_weight, points, sent))
    return _with_means(each, np.full((1, len(each)), 1.0 / len(each)), 1)


def _auc(comm: Any, samples: Sequence[Sample], ties: str) -> Influence:
    sums, sent = auc(comm, samples, ties)
    return replace(statistic(comm, samples, sums, 2), bytes_sent=sent)


def _with_means(each: Sequence[Influence], means: Floats, times: int) -> Influence:
    """Return several statistics, and weighted means of them (rows of `means`); each pair is in so many of them."""
    values = np.concatenate([one.value for one in each])
    points = []
    for k in range(len(each[0].points)):
        psi = np.concatenate([one.points[k] for one in each])
        points.append(np.concatenate([psi, *(_weighted(row, psi) for row in means)]))
    averages = [float(sum(a * v for a, v in zip(row, values.tolist(), strict=True))) for row in means]
    total = sum(one.total_weight for one in each) / times
    return Influence(np.append(values, averages), total, points, sum(one.bytes_sent for one in each))


def _weighted(weights: Floats, psi: Floats) -> Floats:
    """Return weights @ psi as one row, added in one order however many points there are."""
    total = np.zeros((1, psi.shape[1]))
    for a, row in zip(weights, psi, strict=True):
        total += a * row
    return total


def _column(sample: Sample, k: int) -> Sample:
    return replace(sample, rows=np.ascontiguousarray(sample.rows[:, k]))


def _joined(samples: Sequence[Sample]) -> Sample:
    parts = [(s.rows, s.weights, s.strata, s.clusters) for s in samples]
    return Sample(*(None if each[0] is None else np.concatenate(each) for each in zip(*parts, strict=True)))  # type: ignore[arg-type]


def _weight(sample: Sample) -> Fraction:
    """Return the weight of this rank's points, exactly."""
    return Fraction(len(sample.rows)) if sample.weights is None else exact_sum(sample.weights)
