"""The descent by the optimiser that the options name."""

from __future__ import annotations

from collections.abc import Callable

from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.full_batch import FullBatch
from mpi_ustat.learning.training import Training

_OPTIMIZERS: dict[str, type[Learning]] = {"sgd": Learning, "lbfgs": FullBatch}


def begun(training: Training, stop_requested: Callable[[], bool] = lambda: False) -> Learning:
    """Return the descent that `training.config` asks for."""
    return _OPTIMIZERS[training.config.optimizer](training, stop_requested)
