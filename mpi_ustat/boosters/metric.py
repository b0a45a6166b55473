"""Metrics of what a booster predicts for rows that are spread over ranks: over all pairs, the same on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.boosters.agreed_shard import AgreedShard, agreed_shard
from mpi_ustat.boosters.shard import is_dataset
from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.influence.groups import GroupWeight
from mpi_ustat.mpi.runtime import succeed
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.wording import count_of

KERNELS = {"auc": "auc_exact", "vus": "auc_exact_vus", "concordance": "auc_exact_concordance"}
"""The metrics that there are, and what they are called in a booster's log: XGBoost maximises what begins with auc."""


@dataclass(frozen=True)
class Metric:
    """A statistic of all pairs of predictions, as a function that boosters call.  `metric` explains the attributes."""

    comm: Any
    kernel: str = "auc"
    weights: bool = True
    groups: bool = False
    group_weight: GroupWeight = "one"
    name: str = ""
    ties: str = ""
    kernel_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no metric, and names that XGBoost can't read in its own log."""
        if self.kernel not in KERNELS:
            meant = did_you_mean(str(self.kernel), KERNELS)
            raise UserError(
                f"there is no metric {self.kernel!r} of predictions{meant}: use one of {', '.join(KERNELS)}"
            )
        if any(c.isspace() or c in "-:" for c in self.name):
            raise UserError(f"the metric's name {self.name!r} has a blank, '-' or ':': XGBoost's log can't hold it")

    def __call__(self, predictions: ArrayLike, data: Any) -> tuple[str, float] | tuple[str, float, bool]:
        """Return name and value, for LightGBM also that higher is better; the same on all ranks.  Collective.

        Parameters
        ----------
        predictions : array_like, shape (n,)
            For this rank's rows.
        data : xgboost.DMatrix or lightgbm.Dataset
            These rows.

        Raises
        ------
        UserError
            On every rank, if labels, weights or predictions of any can't be used, or no pair counts.
        """
        name, value = self.name or KERNELS[self.kernel], self.value(predictions, data)
        return (name, value, True) if is_dataset(data) else (name, value)

    def value(self, predictions: ArrayLike, data: Any) -> float:
        """Return the value alone.  Collective; parameters and errors as above."""
        shard = agreed_shard(self.comm, predictions, data, weighted=self.weights, grouped=self.groups)
        samples, chosen = self._samples(shard)

        def of_samples(values: Floats | Ints | None) -> list[Any] | None:
            return None if values is None else [values[each] for each in chosen]

        found = estimate_samples(
            self.comm,
            samples,
            self.kernel,
            complete=True,
            stderr=False,
            ties=self.ties,
            kernel_options=self.kernel_options,
            weights=of_samples(shard.weights),
            groups=of_samples(shard.groups),
            group_weight=self.group_weight,
            seed=0,  # draws nothing
        )
        return float(found.values[0])

    def _samples(self, shard: AgreedShard) -> tuple[list[Floats], list[Flags]]:
        """Return the points of each sample, and which rows they are of.  Collective."""
        if self.kernel == "concordance":
            points = succeed(self.comm, lambda: _survival(shard), "reading a booster's times")
            return [points], [np.ones(len(points), dtype=np.bool_)]
        classes = shard.classes
        if len(classes) < 2 or (self.kernel == "auc" and len(classes) > 2):
            wanted = "two" if self.kernel == "auc" else "two or more"
            n = count_of(len(classes), "value")
            raise UserError(f"the labels of all ranks have {n}: the {self.kernel} is of {wanted}")
        ordered = classes[::-1] if self.kernel == "auc" else classes  # positives first, but the lowest class first
        chosen = [shard.labels == each for each in ordered]
        return [shard.predictions[each] for each in chosen], chosen


def metric(
    comm: Any,
    kernel: str = "auc",
    *,
    weights: bool = True,
    groups: bool = False,
    group_weight: GroupWeight = "one",
    name: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
) -> Metric:
    """Return a metric for ``xgboost.train(custom_metric=)`` and LightGBM's ``feval``.

    Its value is the statistic of the predictions for all rows of all ranks, over all pairs, the same bits on every
    rank: early stopping stops all of them at the same iteration.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks evaluate the metric, each of its own rows, of which it may have none.
    kernel : {"auc", "vus", "concordance"}
        The AUC of two classes, of which the greater label is the positive one; the volume under the ROC surface of
        classes in the order of their labels; or Harrell's concordance index of survival times. Those are the labels as
        XGBoost's ``survival:cox`` takes them, negative where a time is censored, and predictions are risks; or the
        bounds of its ``survival:aft``, of which an infinite upper one says that a time is censored, and predictions
        are times.
    weights : bool
        Whether a pair counts with the product of its rows' weights, where the data set has some.
    groups : bool
        Whether the value is the mean of those of the data set's query groups, which lie on one rank each; groups
        without a pair are left out.
    group_weight : {"one", "points", "positives", "pairs"}
        What a group weighs in that mean.
    name : str, optional
        By default `KERNELS` has it. XGBoost maximises only what begins with "auc", unless it is told to.
    ties : str, optional
        What ties count: see `mpi_ustat.estimate`.
    kernel_options : mapping, optional
        Others of the kernel, such as the concordance's ``horizon``.
    """
    return Metric(comm, kernel, weights, groups, group_weight, name, ties, dict(kernel_options or {}))


def auc(comm: Any, **options: Any) -> Metric:
    """Return the `metric` of the AUC, with its options."""
    return metric(comm, "auc", **options)


def _survival(shard: AgreedShard) -> Floats:
    """Return times, whether they are those of events, and risks, shape (n, 3)."""
    if shard.upper is None:
        return np.column_stack([np.abs(shard.labels), shard.labels > 0.0, shard.predictions])
    event = shard.upper == shard.labels
    other = ~(event | np.isposinf(shard.upper))
    if other.any():
        raise UserError(
            f"the time of row {other.argmax()} lies in an interval: the concordance takes times that are known or "
            "censored on the right"
        )
    return np.column_stack([shard.labels, event, -shard.predictions])
