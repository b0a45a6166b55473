"""When a descent ends early, and which of its parameters are kept: what the loss of validation points says.

That is the loss that `Record.validation_loss` has: of all their pairs where the training loss is, and with the penalty.
What counts are evaluations after every `eval_every` iterations, so that a run that was interrupted, and evaluated where
a whole one would not have, goes on to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.numerics.types import Floats


@dataclass(frozen=True)
class Evaluated:
    """Parameters, and what they give the validation points, the same on every rank."""

    iteration: int
    loss: float
    parameters: Floats

    def better_than(self, other: Evaluated | None) -> bool:
        """Tell whether the loss is lower than the other one's, if there is one."""
        return other is None or self.loss < other.loss


class Validation:
    """What the validation points have told of a descent so far."""

    def __init__(self, config: LearnConfig) -> None:
        self._config = config
        self._best: Evaluated | None = None
        self._last: Evaluated | None = None

    def take(self, evaluated: Evaluated) -> None:
        """Take note of an evaluation."""
        self._last = evaluated
        if evaluated.iteration % self._config.eval_every == 0 and evaluated.better_than(self._best):
            self._best = evaluated

    def is_over(self, iteration: int) -> bool:
        """Tell whether so many evaluations were not better than the best one that the descent ends here."""
        patience = self._config.early_stopping
        if patience is None or self._best is None:
            return False
        return iteration - self._best.iteration >= patience * self._config.eval_every

    def kept(self, *, at_end: bool) -> Evaluated | None:
        """Return the best evaluation, that of the last step too if it is `at_end`; None if the last one is kept."""
        if self._config.keep == "last":
            return None
        return self._last if at_end and self._last is not None and self._last.better_than(self._best) else self._best

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state that `restore` takes."""
        if self._best is None:
            return {}
        best = self._best
        return {
            "best/iteration": np.array(best.iteration),
            "best/loss": np.array(best.loss),
            "best/parameters": best.parameters.copy(),
        }

    def restore(self, snapshot: Mapping[str, NDArray[Any]], last: Evaluated | None) -> None:
        """Go on from a snapshot, and the last evaluation if it was of the last step."""
        self._last = last
        if "best/iteration" in snapshot:
            iteration, loss, parameters = (snapshot[f"best/{name}"] for name in ("iteration", "loss", "parameters"))
            self._best = Evaluated(int(iteration), float(loss), parameters.copy())
