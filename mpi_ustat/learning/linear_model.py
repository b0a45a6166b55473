"""Linear scorers as result files keep them: what `learn` writes and what scores other points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.preparation import Standardisation
from mpi_ustat.storage.results import ResultFile, as_written


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
    data : mapping
        What the model's file tells of the data that it was learnt from.
    """

    weights: Floats
    columns: tuple[str, ...]
    scaling: Standardisation | None = None
    threshold: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def scores(self, rows: Floats) -> Floats:
        """Return the score of each row, which doesn't depend on the other rows."""
        rows = rows if self.scaling is None else self.scaling.apply(rows)
        return LinearRanking().scores(self.weights, rows)


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
        data = config.get("data", {})
        return LinearModel(weights, columns, scaling, None if threshold is None else float(threshold), data)
