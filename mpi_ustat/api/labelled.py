"""Statistics of labelled scores: the AUC, several compared, those of several classes, and the VUS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpi_ustat.api.classes import Classes, ordered_classes, two_classes
from mpi_ustat.api.columns import SAID, TEXTS, Columns, columns_of
from mpi_ustat.api.found import SEED, agreed, comparison, curve, statistic
from mpi_ustat.api.results import ComparisonResult, RocResult, StatisticResult
from mpi_ustat.complete.roc import MOST_THRESHOLDS, roc
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.influence.groups import GroupWeight
from mpi_ustat.mpi.interrupts import deferred


@deferred()
def auc(
    y: Any,
    score: Any,
    *,
    pos_label: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    ties: str = "half",
    null: float = 0.5,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate the area under the ROC curve of scores, with its standard error and interval.  Collective.

    The exact U-statistic (nm)⁻¹ Σ_k Σ_l 1{x_k > z_l} + ½ 1{x_k = z_l} over all pairs of a positive and another point,
    from integer counts, in O(n log n).

    Parameters
    ----------
    y : array_like, shape (n,)
        The labels: numbers, truth values or text.
    score : array_like, shape (n,)
        Positive points should have higher ones. A column of NumPy, pandas, Polars, Arrow, or a list.
    pos_label : optional
        The positive label; by default 1 where the labels are 0 and 1, or -1 and 1. Of more than two labels all others
        together are negative.
    sample_weight : array_like, shape (n,), optional
        Not negative; a pair counts with the product.
    groups : array_like, shape (n,), optional
        The AUC is the mean of those of the groups (queries, users).
    group_weight : {"one", "points", "positives", "pairs"}
        What a group weighs in it.
    clusters : array_like, shape (n,), optional
        Points of one cluster (a patient) may depend on each other, which the standard error allows for.
    strata : array_like, shape (n,), optional
        Only pairs within a stratum count.
    ties : {"half", "strict"}
        What a pair of equal scores counts: ½, or 0.
    null : float
        What is tested.
    confidence : float
        Level of the interval.
    interval : {"auto", "logit", "wald"}
        Its kind; auto: on the logit scale.
    comm : mpi4py.MPI.Comm, optional
        Each rank passes its own rows, in the global order; the result has the same bits for every number of ranks. By
        default this process has all.

    Returns
    -------
    StatisticResult
        ``value``, ``stderr``, ``interval``, ``p``; the same on every rank, but only rank 0 has the table of groups.

    Raises
    ------
    UserError
        On every rank, in one sentence: lengths that differ, a missing value, one class only, an unknown label, text for
        scores.

    Examples
    --------
    >>> import numpy as np
    >>> import mpi_ustat
    >>> y = np.arange(1000) % 2
    >>> score = y + np.sin(np.arange(1000.0))
    >>> found = mpi_ustat.auc(y, score)
    >>> print(found)
    AUC of score: 0.8168 ± 0.013, 95 % interval [0.790, 0.841]
    test that it is 0.5: z = 24.68, p = 1.84e-134
    500 points of the class 1, 500 of the other; all pairs
    >>> found.value
    0.816784
    """
    comm = agreed(comm, null=null, pos_label=pos_label)
    said = {"sample_weight": sample_weight, "groups": groups, "clusters": clusters, "strata": strata}
    columns = columns_of(comm, labels=_LABELS, y=y, score=score, **said)
    classes = two_classes(comm, columns["y"].arrays[0], pos_label)
    how = {"ties": ties, "group_weight": group_weight, "confidence": confidence, "interval": interval}
    found = _estimate(comm, "auc", classes, columns, classes.parts(columns["score"].points), **how)
    return statistic(found, _told(classes, columns, "score"), null)


@deferred()
def compare_auc(
    y: Any,
    scores: Any,
    *,
    pos_label: Any = None,
    margin: float | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    ties: str = "half",
    null: float = 0.5,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> ComparisonResult:
    """Estimate the AUCs of several scores of the same points, and test their paired differences.  Collective.

    Parameters
    ----------
    y : array_like, shape (n,)
        The labels.
    scores : frame, mapping of str to array_like, or array_like of shape (n, q)
        A column a score; its name becomes that in the tables and pictures.
    margin : float, optional
        Differences are then tested one-sided: that the first is worse than the second by this or more.
    pos_label, sample_weight, groups, group_weight, clusters, strata, ties, null, confidence, interval, comm
        As in `auc`, which also says what is raised.

    Returns
    -------
    ComparisonResult
        ``names``, ``values``, ``stderr``, ``interval``, ``differences``, ``p_all_equal``.

    Examples
    --------
    >>> import mpi_ustat
    >>> scores = {"old": [0.9, 0.2, 0.3, 0.4, 0.8, 0.1], "new": [0.9, 0.2, 0.7, 0.3, 0.8, 0.1]}
    >>> found = mpi_ustat.compare_auc([1, 0, 1, 0, 1, 0], scores)
    >>> found.values.round(4).tolist()
    [0.8889, 1.0]
    >>> found.differences[0]["statistic"]
    'old - new'
    """
    comm = agreed(comm, null=null, margin=margin, pos_label=pos_label)
    said = {"sample_weight": sample_weight, "groups": groups, "clusters": clusters, "strata": strata}
    columns = columns_of(comm, several=("scores",), labels=_LABELS, y=y, scores=scores, **said)
    classes, names = two_classes(comm, columns["y"].arrays[0], pos_label), _names(columns["scores"], "score")
    if len(names) < 2:
        raise UserError("scores has one column: give two or more to compare, or use auc()")
    how = {"ties": ties, "group_weight": group_weight, "confidence": confidence, "interval": interval}
    found = _estimate(comm, "auc", classes, columns, classes.parts(columns["scores"].points), columns=names, **how)
    return comparison(found, _told(classes, columns, "scores"), null, margin)


@deferred()
def multiclass_auc(
    y: Any,
    scores: Any,
    *,
    multiclass: str = "ovr",
    classes: Sequence[Any] | None = None,
    sample_weight: Any = None,
    clusters: Any = None,
    strata: Any = None,
    ties: str = "half",
    null: float = 0.5,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> ComparisonResult:
    """Estimate AUCs of more than two classes, each of which has a column of scores.  Collective.

    Parameters
    ----------
    y : array_like, shape (n,)
        The labels.
    scores : frame, mapping of str to array_like, or array_like of shape (n, K)
        Column k scores the k-th class; such as what `predict_proba` gives.
    multiclass : {"ovr", "ovo"}
        Each class against all others, their mean (macro) and weighted mean; or every two classes and their mean, M of
        Hand and Till (2001).
    classes : sequence, optional
        The labels in the order of the columns; by default ascending, as scikit-learn's ``classes_``.
    sample_weight, clusters, strata, ties, null, confidence, interval, comm
        As in `auc`, which also says what is raised.

    Returns
    -------
    ComparisonResult

    Examples
    --------
    >>> import mpi_ustat
    >>> scores = [[0.8, 0.1, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]]
    >>> mpi_ustat.multiclass_auc(["a", "b", "c", "a", "b", "c"], scores).names
    ('class a', 'class b', 'class c', 'macro', 'weighted')
    """
    comm = agreed(comm, null=null, classes=classes)
    said = {"sample_weight": sample_weight, "clusters": clusters, "strata": strata}
    columns = columns_of(comm, several=("scores",), labels=_LABELS, y=y, scores=scores, **said)
    found_classes = ordered_classes(comm, columns["y"].arrays[0], classes, any_order=True)
    how = {"ties": ties, "confidence": confidence, "interval": interval, "multiclass": multiclass}
    samples, names = found_classes.parts(columns["scores"].points), found_classes.told["classes"]
    found = _estimate(comm, "auc", found_classes, columns, samples, columns=names, **how)
    return comparison(found, _told(found_classes, columns, "scores"), null, None)


@deferred()
def vus(
    y: Any,
    score: Any,
    *,
    classes: Sequence[Any] | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    ties: str = "strict",
    null: float | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate the volume under the ROC surface of scores of ordered classes.  Collective.

    The probability that scores of one point of each class come in the order of the classes; 1/K! by chance.

    Parameters
    ----------
    y : array_like, shape (n,)
        The labels.
    score : array_like, shape (n,)
        Higher classes should have higher ones.
    classes : sequence, optional
        The labels, the lowest first; by default numbers in ascending order.
    ties : {"strict", "shared"}
        What equal scores of different classes count: 0, or 1/g! for g of them.
    sample_weight, groups, group_weight, clusters, strata, null, confidence, interval, comm
        As in `auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> y = ["low", "high", "mid", "low", "high", "mid"]
    >>> found = mpi_ustat.vus(y, [1, 9, 4, 2, 7, 8], classes=["low", "mid", "high"])
    >>> found.value
    0.75
    """
    comm = agreed(comm, null=null, classes=classes)
    said = {"sample_weight": sample_weight, "groups": groups, "clusters": clusters, "strata": strata}
    columns = columns_of(comm, labels=_LABELS, y=y, score=score, **said)
    found_classes = ordered_classes(comm, columns["y"].arrays[0], classes)
    how = {"ties": ties, "group_weight": group_weight, "confidence": confidence, "interval": interval}
    found = _estimate(comm, "vus", found_classes, columns, found_classes.parts(columns["score"].points), **how)
    return statistic(found, _told(found_classes, columns, "score"), null)


@deferred()
def roc_curve(
    y: Any,
    score: Any,
    *,
    pos_label: Any = None,
    null: float = 0.5,
    confidence: float = 0.95,
    most_thresholds: int = MOST_THRESHOLDS,
    comm: Any = None,
) -> RocResult:
    """Find the ROC curve of scores, with a simultaneous band of the population's curve and the AUC.  Collective.

    Counts are exact at every threshold. Up to half of `most_thresholds` points a class all of their scores are
    thresholds; of more, equally many from rank to rank.

    Parameters
    ----------
    y, score, pos_label, null, comm
        As in `auc`, which also says what is raised.
    confidence : float
        Of the AUC's interval, and that the band holds the whole curve.
    most_thresholds : int
        At least 2.

    Returns
    -------
    RocResult
        ``fpr``, ``tpr``, ``thresholds``, ``lower``, ``upper``; ``value``, ``stderr`` and ``interval`` of the AUC.

    Examples
    --------
    >>> import mpi_ustat
    >>> curve = mpi_ustat.roc_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> curve.fpr.tolist(), curve.tpr.tolist(), curve.thresholds.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0], [inf, 0.8, 0.4, 0.35, 0.1])
    """
    if not (isinstance(most_thresholds, int) and most_thresholds >= 2):
        raise UserError(f"most_thresholds is {most_thresholds!r}: give a whole number of at least 2")
    comm = agreed(comm, null=null, pos_label=pos_label, most_thresholds=most_thresholds)
    columns = columns_of(comm, labels=_LABELS, y=y, score=score)
    classes = two_classes(comm, columns["y"].arrays[0], pos_label)
    x, z = classes.parts(columns["score"].points)
    found = _estimate(comm, "auc", classes, columns, (x, z), confidence=confidence)
    drawn = roc(comm, x, z, confidence=confidence, most_thresholds=most_thresholds)
    return curve(found, _told(classes, columns, "score"), null, drawn)


_LABELS = ("y", *TEXTS)


def _estimate(
    comm: Any, kernel: str, classes: Classes, given: dict[str, Columns], samples: Sequence[Any], **options: Any
) -> Estimate:
    """Return a complete estimate with a sample a class, and with what is said about the points.  Collective."""
    of_points = ((option, given[what].arrays[0]) for what, option in SAID.items() if what in given)
    said: dict[str, Any] = {option: classes.parts(values) for option, values in of_points}
    return estimate_samples(comm, samples, kernel, complete=True, seed=SEED, **said, **options)


def _names(columns: Columns, what: str) -> tuple[str, ...]:
    return columns.names or tuple(f"{what} {j}" for j in range(len(columns.arrays)))


def _told(classes: Classes, columns: dict[str, Columns], what: str) -> dict[str, Any]:
    label = {"label": columns["y"].names[0]} if columns["y"].names else {}
    return classes.told | label | {"columns": list(columns[what].names) or ([what] if what == "score" else [])}
