"""Linear scorers as result files keep them: what `learn` writes and what scores other points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.preparation import Standardisation
from mpi_ustat.storage.results import Dataset, ResultFile, as_written


@dataclass(frozen=True)
class LinearModel:
    """A linear scorer of points.

    Attributes
    ----------
    weights : ndarray, shape (d,)
        w.
    columns : tuple of str
        The names of the columns, or their numbers where they have none.
    scaling : Standardisation or None
        What is done to the columns before.
    threshold : float or None
        Above it a score is called positive, if the model says.
    labels : tuple
        Of the classes, the one that scores lowest first.
    data : mapping
        What the model's file tells of the data that it was learnt from.
    """

    weights: Floats
    columns: tuple[str, ...]
    scaling: Standardisation | None = None
    threshold: float | None = None
    labels: tuple[Any, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, rows: Any) -> Floats:
        """Return the score of each row of an array or of `SparseRows`, which doesn't depend on the other rows."""
        if isinstance(rows, SparseRows):
            return LinearRanking().scores(self.unscaled_weights, rows) - self.shift
        rows = rows if self.scaling is None else self.scaling.apply(rows)
        return LinearRanking().scores(self.weights, rows)

    @property
    def unscaled_weights(self) -> Floats:
        """The weights of the columns as given."""
        return self.weights if self.scaling is None else self.weights / self.scaling.deviation

    @property
    def shift(self) -> float:
        """How much lower scores are than those of the columns as given."""
        return 0.0 if self.scaling is None else float(self.unscaled_weights @ self.scaling.mean)


def file_of(
    fit: Fit,
    columns: Sequence[str],
    labels: Sequence[Any],
    data: Mapping[str, Any],
    *,
    scaling: Standardisation | None = None,
    threshold: float | None = None,
    intercept: float | None = None,
) -> ResultFile:
    """Return a descent's linear scorer as the content of a result file, which `model_of` reads.

    Parameters
    ----------
    fit : Fit
    columns : sequence of str
        The columns' names.
    labels : sequence
        Of the classes, the one that is to score lowest first; as JSON has them.
    data : mapping
        What is told of the points.
    scaling : Standardisation, optional
        What was done to the columns.
    threshold : float, optional
        Above it a score is called positive.
    intercept : float, optional
        What is to be added to the score of the columns as given for its sign to be its class, where that is known to
        the last bit.
    """
    datasets = {
        "weights": Dataset(fit.parameters, ("parameter",), "", "learnt parameters"),
        "iterations": Dataset(np.array(fit.iterations), (), "", "steps taken"),
        "empty_workers": Dataset(np.array(fit.empty_workers), (), "", "workers without a pair, over all partitions"),
    }
    if scaling is not None:
        datasets["column_mean"] = Dataset(scaling.mean, ("column",), "", "taken away from each column")
        datasets["column_deviation"] = Dataset(scaling.deviation, ("column",), "", "each column was divided by")
    aucs = dict.fromkeys(("train_auc", "test_auc", "validation_auc"), "1")
    units = aucs | {"bytes_moved": "bytes", "bytes_reduced": "bytes", "rows_moved": "rows"}
    for name, values in fit.history.items():
        unit = "s" if name.startswith("seconds/") else units.get(name, "")
        datasets[f"history/{name}"] = Dataset(values, ("evaluation",), unit)
    if fit.optimum is not None:
        for name, value, comment in (
            ("reached", np.array(fit.optimum.reached), "whether no component of the gradient is above the tolerance"),
            ("largest", np.array(fit.optimum.largest), "largest component of the gradient in size"),
            ("evaluations", np.array(fit.optimum.evaluations), "of the loss and its gradient"),
        ):
            datasets[f"optimum/{name}"] = Dataset(value, (), "", comment)
    config = fit.config.to_json() | {
        "data": dict(data),
        "columns": list(columns),
        "labels": list(labels),
        "sizes": list(fit.sizes),
        "sampled_pairs": fit.sampled_pairs,
        "threshold": threshold,
        **({} if intercept is None else {"intercept": intercept}),
    }
    return ResultFile("learn", config, {} if fit.kept is None else {"kept_iteration": fit.kept}, datasets, {})


def model_of(result: ResultFile, name: str) -> LinearModel:
    """Return the linear scorer that a result file holds; `name` is the file's, for messages."""
    if result.kind != "learn":
        raise UserError(f"'{name}' is a result of kind '{result.kind}': give one that mpi-ustat learn has written")
    with as_written(name):
        datasets, config = result.datasets, result.config
        weights = np.asarray(datasets["weights"].values, dtype=np.float64)
        columns = tuple(map(str, config["columns"]))
        scaling = None
        if "column_mean" in datasets:
            mean, deviation = (datasets[f"column_{what}"].values for what in ("mean", "deviation"))
            scaling = Standardisation(mean.astype(np.float64), deviation.astype(np.float64))
        shapes = {weights.shape} | ({scaling.mean.shape, scaling.deviation.shape} if scaling else set())
        if shapes != {(len(columns),)}:
            raise ValueError("the model has other columns than it says")
        threshold = config.get("threshold")
        threshold = None if threshold is None else float(threshold)
        labels, data = tuple(config.get("labels", ())), config.get("data", {})
        return LinearModel(weights, columns, scaling, threshold, labels, data)
