"""What a booster's data set says of its rows: labels, weights, query groups, and bounds of survival times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.wording import count_of


@dataclass(frozen=True)
class Shard:
    """The rows of one rank.

    Attributes
    ----------
    predictions, labels : ndarray, shape (n,)
    weights : ndarray, shape (n,), or None
    groups : ndarray of int64, shape (n,), or None
        The number of each row's query group, among those of this rank.
    upper : ndarray, shape (n,), or None
        Upper bounds of times whose lower bounds are the labels.
    """

    predictions: Floats
    labels: Floats
    weights: Floats | None = None
    groups: Ints | None = None
    upper: Floats | None = None

    @property
    def n_groups(self) -> int:
        """Query groups of this rank."""
        return 0 if self.groups is None or not len(self.groups) else int(self.groups[-1]) + 1


def is_dataset(data: Any) -> bool:
    """Tell whether a data set is LightGBM's, whose metrics return three things, or XGBoost's, whose return two."""
    return not hasattr(data, "get_float_info")


def shard_of(predictions: ArrayLike, data: Any, *, weighted: bool, grouped: bool) -> Shard:
    """Return one rank's rows.

    Parameters
    ----------
    predictions : array_like, shape (n,)
        A number for each row.
    data : xgboost.DMatrix or lightgbm.Dataset
        Or anything with the methods of one of them that are called here.
    weighted, grouped : bool
        Whether weights, if there are any, and query groups, which must be there then, are wanted.

    Raises
    ------
    UserError
        If there are several numbers for a row, other than one label or weight, no groups, or numbers are NaN.
    """
    scores = np.asarray(predictions, dtype=np.float64)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim != 1:
        raise UserError(f"the booster predicts {scores.shape[1:]} numbers a row: metrics take one, a score")
    sizes, lower, upper = _group_sizes(data), np.empty(0), np.empty(0)
    if not is_dataset(data):
        lower, upper = (_numbers(data.get_float_info(f"label_{side}_bound")) for side in ("lower", "upper"))
    labels = lower if len(lower) else _numbers(data.get_label())
    weights = _numbers(data.get_weight()) if weighted else np.empty(0)
    if len(weights) and len(weights) != len(scores) and len(weights) == len(sizes):  # XGBoost's, of groups
        if grouped:
            raise UserError(
                "the weights are those of query groups, of which the mean takes none: pass weights=False, or a "
                "weight for each row"
            )
        weights = np.repeat(weights, sizes)
    for what, values in (("labels", labels), ("weights", weights)):
        if len(values) != len(scores) and (len(values) or what == "labels"):
            raise UserError(f"there are {len(values)} {what} for {count_of(len(scores), 'row')}: give one for each")
        if np.isnan(values).any():
            raise UserError(f"the {what} of row {np.isnan(values).argmax()} are NaN: remove or repair that row")
    if np.isnan(scores).any():
        raise UserError(f"the prediction for row {np.isnan(scores).argmax()} is NaN: use a smaller learning rate")
    if grouped and sizes.sum() != len(scores):
        raise UserError("the data set has no query groups: set its qid or group, or pass groups=False")
    return Shard(
        predictions=scores,
        labels=labels,
        weights=weights if len(weights) else None,
        groups=np.repeat(np.arange(len(sizes)), sizes) if grouped else None,
        upper=upper if len(upper) else None,
    )


def _numbers(values: ArrayLike | None) -> Floats:
    return np.empty(0) if values is None else np.asarray(values, dtype=np.float64)


def _group_sizes(data: Any) -> Ints:
    """Return the rows of each query group, in their order."""
    if is_dataset(data):
        sizes = data.get_group()
        return np.empty(0, dtype=np.int64) if sizes is None else np.asarray(sizes, dtype=np.int64)
    starts = np.asarray(data.get_uint_info("group_ptr"), dtype=np.int64)
    return starts[1:] - starts[:-1]
