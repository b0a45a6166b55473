"""The models of `PairwiseRanker` in files, which are the command line's."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.learning.class_labels import show
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.linear_model import file_of, model_of
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.preparation import Standardisation
from mpi_ustat.storage.results import ResultFile, as_written, load, save


class StoredRanker:
    """What `PairwiseRanker` has to do with files."""

    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    loss_curve_: Floats
    feature_names_in_: NDArray[Any]
    n_features_in_: int
    n_iter_: int
    standardize: bool
    random_state: Any
    _names: Sequence[str] | None
    _file: ResultFile

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to an HDF5 file, as the output of ``mpi-ustat learn`` is, for `load` and ``predict``.

        Ranks have the same model: one of them is to call.

        Parameters
        ----------
        path : path_like
        overwrite : bool
            Whether a file that is there is replaced.

        Raises
        ------
        UserError
            If the file can't be written, or the labels are neither numbers nor texts.
        """
        if not hasattr(self, "_file"):
            raise UserError("the ranker is not fitted, there is nothing to save: call fit before")
        if not all(isinstance(label, bool | int | float | str) for label in self.classes_.tolist()):
            raise UserError(f"the labels {show(self.classes_)} have no place in a file: use numbers or texts")
        save(path, self._file, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return a fitted estimator from a file of `save`, or of ``mpi-ustat learn`` of two classes.

        Its parameters are those of the descent, as far as the class has them; `classes_` are in the file's order, the
        one that scores higher second, ``"rest"`` those which were taken together.

        Parameters
        ----------
        path : path_like

        Raises
        ------
        UserError
            If it is no such file, or damaged.
        """
        name, found = os.fspath(path), load(path)
        with as_written(name):
            known = found.config | {"standardize": found.config.get("data", {}).get("standardize")}
            ranker = cls(**{each: known[each] for each in inspect.signature(cls).parameters if each in known})
            ranker.random_state = found.config.get("seed")
            ranker._take(found, name)
        return ranker

    def _model_file(self, fit: Fit, scaling: Standardisation | None, threshold: float) -> ResultFile:
        """Return the model as a result file; the threshold is that of scores of the columns as given."""
        columns = self._names or [str(j) for j in range(self.n_features_in_)]
        labels = self.classes_.tolist()
        data = {
            "positive": str(labels[1]),
            "n_x": fit.sizes[0],
            "n_z": fit.sizes[1],
            "columns": list(columns),
            "standardize": self.standardize,
        }
        shift = 0.0 if scaling is None else float((fit.parameters / scaling.deviation) @ scaling.mean)
        thresholds = {"threshold": threshold - shift, "intercept": 0.0 - threshold}
        return file_of(fit, columns, labels, data, scaling=scaling, **thresholds)

    def _take(self, found: ResultFile, name: str = "") -> None:
        """Be fitted as a result file says; `name` is the file's, for messages."""
        model = model_of(found, name)
        if len(model.labels) != 2 or model.threshold is None:
            raise UserError(f"'{name}' ranks {len(model.labels)} classes: a PairwiseRanker has two, give another file")
        self._file = found
        self.coef_ = model.unscaled_weights[None, :]
        self.intercept_ = np.array([found.config.get("intercept", 0.0 - (model.threshold + model.shift))])
        self.n_iter_ = int(found.datasets["iterations"].values)
        self.loss_curve_ = found.datasets["history/train_loss"].values
        if name:
            self.classes_ = np.array(model.labels)
            self.n_features_in_ = len(model.columns)
            self._names = None
            if model.columns != tuple(map(str, range(len(model.columns)))):
                self._names = model.columns
                self.feature_names_in_ = np.array(model.columns, dtype=object)
