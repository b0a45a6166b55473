"""The surrogate losses of ranking, each a class in a file of its own, by name."""

from __future__ import annotations

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.learning.losses.hinge import Hinge
from mpi_ustat.learning.losses.logistic import Logistic
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.learning.losses.squared_hinge import SquaredHinge

LOSSES: dict[str, type[Loss]] = {each.name: each for each in (Hinge, SquaredHinge, Logistic)}
"""Those that options name; another one is added by putting its class here."""

DEFAULT_LOSS = Hinge.name


def make_loss(loss: str | Loss, margin: float = 1.0) -> Loss:
    """Return the loss of a name, with that margin, or the loss itself.

    Raises
    ------
    UserError
        If there is no such loss.
    """
    if isinstance(loss, Loss):
        return loss
    if loss not in LOSSES:
        raise UserError(f"there is no loss {loss!r}{did_you_mean(loss, LOSSES)}: use one of {', '.join(LOSSES)}")
    return LOSSES[loss](margin)
