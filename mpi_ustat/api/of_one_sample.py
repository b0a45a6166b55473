"""Statistics of one sample: concordance index, Kendall's tau, Gini mean difference, variance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mpi_ustat.api.columns import SAID, TEXTS, Columns, columns_of
from mpi_ustat.api.found import SEED, agreed, statistic
from mpi_ustat.api.results import StatisticResult
from mpi_ustat.estimation.estimate import estimate
from mpi_ustat.influence.groups import GroupWeight
from mpi_ustat.mpi.interrupts import deferred


@deferred()
def concordance(
    time: Any,
    event: Any,
    risk: Any,
    *,
    censoring_weights: str = "none",
    horizon: float = math.inf,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    null: float | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate the concordance index of a risk with survival times that may be censored.  Collective.

    Of two points that can be compared, the probability that the one whose event came first has the higher risk
    (Harrell's C); equal risks count ½.

    Parameters
    ----------
    time : array_like, shape (n,)
        Positive, until the event or the end of observation.
    event : array_like, shape (n,)
        1 or True where the event was seen, 0 where not.
    risk : array_like, shape (n,)
        Higher ones should have their events earlier.
    censoring_weights : {"none", "uno"}
        Uno's, by the Kaplan-Meier estimate of censoring.
    horizon : float
        Only pairs whose earlier time is below it count.
    sample_weight, groups, group_weight, clusters, strata, null, confidence, interval, comm
        As in `mpi_ustat.auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.concordance([5.0, 3.0, 9.0, 7.0], [1, 1, 0, 1], risk=[0.6, 0.9, 0.1, 0.7])
    >>> round(found.value, 4)
    0.8333
    """
    options = {"censoring_weights": censoring_weights, "horizon": horizon}
    said = (sample_weight, groups, clusters, strata)
    given = {"time": time, "event": event, "risk": risk}
    return _single(comm, "concordance", given, ("risk",), options, said, group_weight, null, confidence, interval)


@deferred()
def kendall(
    a: Any,
    b: Any,
    *,
    tau: str = "b",
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    null: float | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate Kendall's rank correlation of two columns.  Collective.

    Parameters
    ----------
    a, b : array_like, shape (n,)
    tau : {"b", "a"}
        b allows for ties.
    sample_weight, groups, group_weight, clusters, strata, null, confidence, interval, comm
        As in `mpi_ustat.auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.kendall([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    >>> round(found.value, 4)
    0.6
    """
    said = (sample_weight, groups, clusters, strata)
    return _single(
        comm, "kendall", {"a": a, "b": b}, ("a", "b"), {"tau": tau}, said, group_weight, null, confidence, interval
    )


@deferred()
def gini(
    values: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    null: float | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate Gini's mean difference E|X - X'|.  Collective.

    Parameters
    ----------
    values : array_like, shape (n,)
    sample_weight, groups, group_weight, clusters, strata, null, confidence, interval, comm
        As in `mpi_ustat.auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> mpi_ustat.gini([1.0, 2.0, 4.0]).value
    2.0
    """
    said = (sample_weight, groups, clusters, strata)
    return _single(comm, "gini", {"values": values}, ("values",), {}, said, group_weight, null, confidence, interval)


@deferred()
def variance(
    values: Any,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    group_weight: GroupWeight = "one",
    clusters: Any = None,
    strata: Any = None,
    null: float | None = None,
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate the variance, with a standard error that takes no law for granted.  Collective.

    Parameters
    ----------
    values : array_like, shape (n,)
    sample_weight, groups, group_weight, clusters, strata, null, confidence, interval, comm
        As in `mpi_ustat.auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> mpi_ustat.variance([1.0, 2.0, 4.0, 5.0]).value
    3.3333333333333335
    """
    said = (sample_weight, groups, clusters, strata)
    return _single(
        comm, "variance", {"values": values}, ("values",), {}, said, group_weight, null, confidence, interval
    )


def _single(
    comm: Any,
    kernel: str,
    given: dict[str, Any],
    named_by: Sequence[str],
    options: dict[str, Any],
    said: Sequence[Any],
    group_weight: GroupWeight,
    null: float | None,
    confidence: float,
    interval: str,
) -> StatisticResult:
    """Return a statistic of one sample, whose points are rows of what is given.  Collective."""
    comm = agreed(comm, null=null)
    about = dict(zip(SAID, said, strict=True))
    columns = columns_of(comm, labels=TEXTS, **given, **about)
    points = Columns((), [columns[what].arrays[0] for what in given]).points
    of_points: dict[str, Any] = {option: [columns[what].arrays[0]] for what, option in SAID.items() if what in columns}
    found = estimate(
        comm,
        points,
        None,
        kernel,
        kernel_options=options,
        complete=True,
        group_weight=group_weight,
        confidence=confidence,
        interval=interval,
        seed=SEED,
        **of_points,
    )
    names = [columns[what].names[0] if columns[what].names else what for what in named_by]
    return statistic(found, {"columns": names, "n_rows": found.n}, null)
