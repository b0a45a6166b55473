"""Losses of all pairs of rows, spread over ranks, as what a booster minimises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.boosters.agreed_shard import agreed_shard
from mpi_ustat.errors import UserError
from mpi_ustat.learning.losses import make_loss
from mpi_ustat.learning.losses.hinge import Hinge
from mpi_ustat.learning.losses.logistic import Logistic
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.losses.squared_hinge import SquaredHinge
from mpi_ustat.learning.objectives import consecutive_pairings
from mpi_ustat.numerics.types import Floats
from mpi_ustat.scores import loss_and_coefficients


class _SlopeOfLogistic(Logistic):
    """In the place of -φ' of the logistic loss φ: φ''(u) = 1/(1 + exp(u)) · 1/(1 + exp(-u))."""

    def slopes(self, u: Floats) -> Floats:
        """Overwrite u by φ''(u)."""
        np.exp(-np.abs(u), out=u)
        u /= (1.0 + u) * (1.0 + u)
        return u


def _curvature(phi: Loss) -> tuple[Loss, float]:
    """Return a loss whose -φ', times a factor, is the second derivative of φ."""
    if isinstance(phi, SquaredHinge):
        return Hinge(phi.margin), 2.0
    if isinstance(phi, Logistic):
        return _SlopeOfLogistic(), 1.0
    raise UserError(f"the loss {phi.name} has no curvature, which boosters step by: use squared-hinge or logistic")


@dataclass(frozen=True)
class PairwiseObjective:
    """A loss of all pairs of rows, as a function that boosters call.  `pairwise_objective` explains the attributes."""

    comm: Any
    phi: Loss
    weights: bool = True
    groups: bool = False

    def __post_init__(self) -> None:
        """Refuse losses that boosters can't step by."""
        _curvature(self.phi)

    def __call__(self, predictions: ArrayLike, data: Any) -> tuple[Floats, Floats]:
        """Return n ∂L/∂s_i and n ∂²L/∂s_i² of this rank's rows, n being the rows of all ranks.  Collective.

        Parameters
        ----------
        predictions : array_like, shape (n_local,)
            Raw ones, for this rank's rows.
        data : xgboost.DMatrix or lightgbm.Dataset
            These rows.

        Raises
        ------
        UserError
            On every rank, if labels, weights or predictions of any can't be used, or there is one class only.
        """
        shard = agreed_shard(self.comm, predictions, data, weighted=self.weights, grouped=self.groups)
        about: dict[str, Any] = {"weights": shard.weights, "groups": shard.groups}
        of_curvature, unit = _curvature(self.phi)
        given = (self.comm, shard.predictions, shard.labels)
        _, gradient = loss_and_coefficients(*given, self.phi, **about)
        second = np.zeros(len(gradient))
        # Of a class in the middle the signs of two pairings differ.
        for pairing in consecutive_pairings(len(shard.classes)):
            second += np.abs(loss_and_coefficients(*given, of_curvature, pairings=[pairing], **about)[1])
        return shard.n_rows * gradient, shard.n_rows * unit * second


def pairwise_objective(
    comm: Any, loss: str | Loss = SquaredHinge.name, *, margin: float = 1.0, weights: bool = True, groups: bool = False
) -> PairwiseObjective:
    """Return an objective for ``xgboost.train(obj=)`` and LightGBM's ``objective``: a loss of all pairs of all ranks.

    With L the mean of φ(s_i - s_j) over the pairs of a row i of the higher class and j of the lower, on whatever ranks,
    its gradient and the diagonal of its Hessian are exact, whatever the number of ranks. Of more than two classes, the
    losses of consecutive ones are added.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks train together, and may have no rows.
    loss : {"squared-hinge", "logistic"} or Loss
        φ. The first takes a sort, the second looks at all pairs twice in each round.
    margin : float
        Of a loss that has one.
    weights : bool
        Whether a pair counts with the product of its rows' weights, where the data set has some.
    groups : bool
        Whether only pairs of one query group count.
    """
    return PairwiseObjective(comm, make_loss(loss, margin), weights, groups)
