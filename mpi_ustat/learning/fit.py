"""What a descent gives: its evaluations, and what was learnt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import brief
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.estimation.printed import as_text
from mpi_ustat.learning.printed import fit_rows, last_values, parameters_row
from mpi_ustat.numerics.types import Floats

LOSSES = ("train_loss", "train_auc", "test_loss", "test_auc")
OF_VALIDATION = ("validation_loss", "validation_auc")
COUNTERS = ("bytes_moved", "bytes_reduced", "rows_moved")


@dataclass(frozen=True)
class Record:
    """One evaluation; losses include the penalty, and are NaN on ranks other than 0.

    Attributes
    ----------
    iteration : int
        Steps taken.
    train_loss, train_auc, test_loss, test_auc, validation_loss, validation_auc : float
        NaN where there is no such set or the objective has no scores.
    seconds : dict of str to float
        This rank's seconds so far by phase: repartition, gradient, reduce, evaluate.
    bytes_moved, bytes_reduced : int
        Bytes this rank has sent so far to exchange rows, and to average gradients.
    rows_moved : int
        Rows this rank has seen changing worker: of a sample of which few rows are used between repartitions at every
        iteration, only those that are used.
    """

    iteration: int
    train_loss: float
    train_auc: float
    test_loss: float
    test_auc: float
    seconds: dict[str, float]
    bytes_moved: int
    bytes_reduced: int
    rows_moved: int
    validation_loss: float = math.nan
    validation_auc: float = math.nan


@dataclass(frozen=True)
class Optimum:
    """How near to the optimum all points have brought a descent.

    Attributes
    ----------
    reached : bool
        Whether no component of the gradient is larger than the tolerance.
    largest : float
        The largest component of the gradient in size.
    evaluations : int
        How often the loss and its gradient were evaluated.
    ended : str
        Why the optimiser ended before that, if it did.
    """

    reached: bool
    largest: float
    evaluations: int
    ended: str = ""


@dataclass(frozen=True, repr=False)
class Fit:
    """What was learnt, the same on every rank; `print` shows it as a short table.

    Attributes
    ----------
    parameters : ndarray, shape (p,)
        θ after the last step, or after that of the lowest validation loss, if this is what is kept.
    iterations : int
        Steps taken.
    stopped : bool
        Whether a stop was asked for before the last step.
    empty_workers : int
        Workers without a pair, over all partitions; those that the option `empty` let through.
    history : dict of str to ndarray
        By evaluation: ``iteration``, ``train_loss``, ``train_auc``, ``test_loss``, ``test_auc``, ``bytes_moved``,
        ``bytes_reduced``, ``rows_moved`` (of all ranks), and ``seconds/<phase>`` (of the slowest rank); with validation
        points also ``validation_loss`` and ``validation_auc``.
    config : LearnConfig
    sizes : tuple of int
        Points of each training sample.
    n_ranks : int
        P.
    optimum : Optimum or None
        Of ``lbfgs``.
    sampled_pairs : dict of str to int or None
        How many pairs the losses of ``train`` and ``test`` are averages of, in each pairing; None: all pairs.
    kept : int or None
        With validation points: the iteration whose `parameters` these are.
    """

    parameters: Floats
    iterations: int
    stopped: bool
    empty_workers: int
    history: dict[str, NDArray[Any]]
    config: LearnConfig
    sizes: tuple[int, ...]
    n_ranks: int
    optimum: Optimum | None = None
    sampled_pairs: dict[str, int | None] = field(default_factory=dict)
    kept: int | None = None

    def __str__(self) -> str:
        return as_text([*fit_rows(self), parameters_row(self)])

    def __repr__(self) -> str:
        shown = {"parameters": self.parameters.tolist(), "iterations": self.iterations, "sizes": self.sizes}
        shown |= {name: value for name, value in last_values(self).items() if not math.isnan(value)}
        return brief(f"Fit({', '.join(f'{name}={each!r}' for name, each in shown.items())})")


def history_of(everyone: Sequence[Sequence[Record]], *, validated: bool = False) -> dict[str, NDArray[Any]]:
    """Return the curves of all ranks' evaluations, as `Fit` has them."""
    losses = (*LOSSES, *OF_VALIDATION) if validated else LOSSES
    history: dict[str, NDArray[Any]] = {
        name: np.array([getattr(record, name) for record in everyone[0]]) for name in ("iteration", *losses)
    }
    for name in COUNTERS:
        history[name] = np.sum([[getattr(record, name) for record in rank] for rank in everyone], axis=0)
    for phase in ("repartition", "gradient", "reduce", "evaluate"):
        each = [[record.seconds.get(phase, 0.0) for record in rank] for rank in everyone]
        history[f"seconds/{phase}"] = np.max(each, axis=0)
    return history


def records_of(history: Mapping[str, NDArray[Any]], *, counted: bool) -> list[Record]:
    """Return a rank's evaluations; what the curves sum over the ranks, or is their largest, only if it is `counted`."""
    records = []
    for i, iteration in enumerate(history["iteration"].tolist()):
        phases = {name.removeprefix("seconds/"): float(each[i]) for name, each in history.items() if "/" in name}
        values: dict[str, Any] = {
            name: float(history[name][i]) for name in (*LOSSES, *OF_VALIDATION) if name in history
        }
        values |= {name: int(history[name][i]) if counted else 0 for name in COUNTERS}
        records.append(Record(iteration=int(iteration), seconds=phases if counted else {}, **values))
    return records
