"""Losses of labelled scores: the library's face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.influence.keys import shared
from mpi_ustat.learning.losses import DEFAULT_LOSS, make_loss
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.objectives import consecutive_pairings
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.runtime import attempt
from mpi_ustat.numerics.multiplicity import WEIGHTS_MUST, are_weights
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.scores.pairs import of_pairings
from mpi_ustat.scores.side import Side
from mpi_ustat.wording import count_of


@deferred()
def loss_and_coefficients(
    comm: Any,
    scores: ArrayLike,
    labels: ArrayLike,
    loss: str | Loss = DEFAULT_LOSS,
    *,
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    pairings: Sequence[tuple[int, int]] | None = None,
    margin: float = 1.0,
) -> tuple[float, Floats]:
    """Return the mean loss over all pairs of points of the ranks, and its derivative by each own score.  Collective.

    With ω_ij = w_i w_j for pairs that count, and 0 otherwise,

        L = Σ_ij ω_ij φ(s_i - s_j) / Σ_ij ω_ij,   c_i = ∂L/∂s_i

    over the points i of the higher class and j of the lower. Scores travel, 8 bytes a point, and nothing else: the
    gradient of L by what the scores are made of is Σ_i c_i ∂s_i, over the points of all ranks.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options.
    scores : array_like, shape (n_local,)
        Of this rank's points.
    labels : array_like, shape (n_local,)
        Numbers or booleans; points of the larger of two labels should score higher. More than two labels are ordered
        classes.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss
        φ. The first two take O(n log n), others look at all pairs.
    groups : array_like, shape (n_local,), optional
        Numbers or text: only pairs of one group count.
    weights : array_like, shape (n_local,), optional
        Finite and not negative.
    pairings : sequence of (int, int), optional
        Which classes are paired, counted from the lowest, the higher one first: the losses of the pairings are added.
        By default consecutive classes.
    margin : float
        c of a loss that goes by its name and has one.

    Returns
    -------
    loss : float
        L, the same on every rank; NaN if a score isn't finite.
    coefficients : ndarray, shape (n_local,)
        c of this rank's points; the same bits however the points are dealt to the ranks in their order.

    Raises
    ------
    UserError
        On every rank, if what any rank passes can't be used, or there are not two labels.
    """
    phi = make_loss(loss, margin)

    def checked() -> tuple[Floats, NDArray[Any], Floats | None]:
        s, y = np.asarray(scores, dtype=np.float64), np.asarray(labels)
        w = None if weights is None else np.asarray(weights, dtype=np.float64)
        for name, each in (("labels", y), ("weights", w), ("groups", None if groups is None else np.asarray(groups))):
            if s.ndim != 1 or (each is not None and each.shape != s.shape):
                shape = None if each is None else each.shape
                raise UserError(
                    f"the scores have shape {s.shape}, the {name} {shape}: give one of each for every point"
                )
        if y.dtype.kind not in "biuf" or (y.dtype.kind == "f" and np.isnan(y).any()):
            raise UserError("labels must be numbers, without NaN: number the classes, the lowest first")
        if w is not None and not are_weights(w).all():
            raise UserError(WEIGHTS_MUST)
        return s, y.astype(np.float64), w

    (s, y, w), everyone = attempt(
        comm, checked, "checking the scores", share=lambda found: np.unique(found[1]).tolist()
    )
    classes = sorted({each for of_rank in everyone for each in of_rank})
    if len(classes) < 2:
        raise UserError(f"the labels have {count_of(len(classes), 'different value')}: there must be two or more")
    keys = None if groups is None else shared(comm, np.asarray(groups), "the groups").codes
    members = [np.flatnonzero(y == each) for each in classes]
    sides = [Side(s[of], None if w is None else w[of], _some(keys, of)) for of in members]
    total, of_classes, _ = of_pairings(comm, phi, sides, _checked(pairings, len(classes)))
    coefficients = np.zeros(len(s))
    for places, each in zip(members, of_classes, strict=True):
        coefficients[places] = each
    return total, coefficients


def _checked(pairings: Sequence[tuple[int, int]] | None, n_classes: int) -> Sequence[tuple[int, int]]:
    pairs = consecutive_pairings(n_classes) if pairings is None else pairings
    if any(a == b or not (0 <= a < n_classes and 0 <= b < n_classes) for a, b in pairs):
        raise UserError(f"the pairings are {pairings}: give pairs of different numbers below {n_classes}")
    return pairs


def _some(keys: Ints | None, places: Ints) -> Ints | None:
    return None if keys is None else keys[places]
