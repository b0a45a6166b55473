"""Minimising the loss over all pairs of all points by L-BFGS, from exact values and gradients.

Rank 0 runs SciPy's optimiser, and all ranks evaluate where it asks: they can't drift apart. Values and gradients are
kept, p + 1 numbers each, so that a resumed run finds its way by reading what was evaluated before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import DivergedError
from mpi_ustat.learning.descent import Learning, all_pairs
from mpi_ustat.learning.fit import Optimum
from mpi_ustat.learning.training import Training
from mpi_ustat.numerics.types import Floats

_SCIPYS = "scipy.libs"
"""Where SciPy's wheels have their libraries."""


class _Reached(NamedTuple):
    """Where the optimiser is after an iteration, and why it has ended, if it has."""

    iteration: int
    parameters: Floats
    largest: float
    converged: bool
    ended: str


class _StopError(Exception):
    """A stop was asked for on some rank."""


@dataclass(frozen=True)
class _Evaluated:
    value: float
    gradient: Floats


class FullBatch(Learning):
    """A descent whose iterations are those of L-BFGS over all points, until the gradient is small."""

    def __init__(self, training: Training, stop_requested: Callable[[], bool] = lambda: False) -> None:
        super().__init__(training, stop_requested)
        self._known: list[_Evaluated] = []
        self._reached = _Reached(0, self.state.parameters, np.inf, False, "")

    @property
    def optimum(self) -> Optimum | None:
        """How near the end it is."""
        at = self._reached
        return Optimum(at.converged, at.largest, len(self._known), at.ended)

    @property
    def finished(self) -> bool:
        """Whether there is no next iteration, or none is to be made."""
        return super().finished or self._reached.converged or bool(self._reached.ended)

    def _go_on(self, last: int) -> None:
        every = self.training.config.eval_every
        self._advance(min(last, self.state.iteration + every - self.state.iteration % every))

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state from which `restore` goes on, on any number of ranks.  Collective."""
        p = len(self.state.parameters)
        return super().snapshot() | {
            "evaluated/values": np.array([each.value for each in self._known]),
            "evaluated/gradients": np.array([each.gradient for each in self._known]).reshape(-1, p),
        }

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of a descent with the same data and options."""
        super().restore(snapshot)
        pairs = zip(snapshot["evaluated/values"].tolist(), snapshot["evaluated/gradients"], strict=True)
        self._known = [_Evaluated(value, gradient.copy()) for value, gradient in pairs]
        if self.state.iteration:
            self._advance(self.state.iteration)

    def _advance(self, iteration: int) -> None:
        """Let the optimiser run to an iteration, from the start: what it has asked for before costs nothing."""
        comm = self.training.comm
        if comm.rank == 0:
            reached = self._minimise(iteration)
            comm.bcast(None)
        else:
            while (point := comm.bcast(None)) is not None:
                self._evaluate_at(point)
            reached = None
        self._reached = comm.bcast(reached)
        self.state = replace(self.state, iteration=self._reached.iteration, parameters=self._reached.parameters)

    def _minimise(self, iteration: int) -> _Reached:
        """Run the optimiser on rank 0."""
        from scipy.optimize import minimize

        config, start = self.training.config, self.training.initial().parameters
        path = [start]
        n_asked = 0

        def function(parameters: Floats) -> tuple[float, Floats]:
            nonlocal n_asked
            n_asked += 1
            if n_asked > len(self._known):
                if self.state.stopped:
                    raise _StopError
                self.training.comm.bcast(parameters)
                self._evaluate_at(parameters)
            found = self._known[n_asked - 1]
            return found.value, found.gradient.copy()

        options = {"maxiter": iteration, "gtol": config.tolerance, "ftol": 0.0, "maxfun": 2**31 - 1}
        try:
            with _one_thread():
                found = minimize(
                    function,
                    start,
                    jac=True,
                    method="L-BFGS-B",
                    callback=lambda x: path.append(x.copy()),
                    options=options,
                )
        except _StopError:
            return _Reached(len(path) - 1, path[-1], np.inf, False, "")
        largest = float(np.abs(found.jac).max())
        converged = largest <= config.tolerance
        ended = "" if converged or found.nit >= iteration else f"the optimiser ended ({found.message})"
        return _Reached(int(found.nit), np.asarray(found.x), largest, converged, ended)

    def _evaluate_at(self, parameters: Floats) -> None:
        """Find the objective and its gradient, and keep both.  Collective."""
        training, l2, state = self.training, self.training.config.l2, self.state
        found = all_pairs(training, parameters, 0, self.clock, self.stop_requested, want_loss=True)
        value = found.loss + l2 * float(parameters @ parameters)
        if not np.isfinite(value):
            raise DivergedError(state.iteration)
        self._known.append(_Evaluated(value, found.gradient + (2.0 * l2) * parameters))
        self.state = replace(
            state,
            stopped=state.stopped or found.stopped,
            bytes_moved=state.bytes_moved + found.bytes_sent,
            bytes_reduced=state.bytes_reduced + found.bytes_reduced,
        )


def _one_thread() -> AbstractContextManager[Any]:
    """Keep the BLAS that SciPy's wheels bring to one thread, which several would slow down between evaluations.

    It is loaded with the optimiser, so that no limit which was set before holds for it. NumPy's is left as it is.
    """
    import threadpoolctl

    loaded = threadpoolctl.ThreadpoolController()
    own = [
        each.filepath for each in loaded.lib_controllers if os.path.basename(os.path.dirname(each.filepath)) == _SCIPYS
    ]
    limit: AbstractContextManager[Any] = loaded.select(filepath=own).limit(limits=1)
    return limit
