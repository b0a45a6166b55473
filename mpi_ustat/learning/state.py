"""The state of a descent: what an iteration changes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.numerics.types import Floats, Ints, Places


@dataclass(frozen=True)
class Layout:
    """Which workers have pairs, under block bounds of each sample.

    Attributes
    ----------
    bounds : list of ndarray of int64, shapes (N + 1,)
    sizes : ndarray of int64, shape (samples, N)
    n_contributing, n_empty : int
        Workers whose averages are averaged, and those without a pair.
    useful, drawn_for : ndarray of int
        Workers with pairs: of those hosted here, and of those whose pairs are drawn here, counted from the first.
    bounds_of_pairs : ndarray of int64, shape (N + 1,)
        The blocks of rows that the pairs of one iteration are.
    """

    bounds: list[Ints]
    sizes: Ints
    n_contributing: int
    n_empty: int
    useful: Places
    drawn_for: Places
    bounds_of_pairs: Ints


@dataclass(frozen=True)
class Placement:
    """Which rows are here: those of a round and, of samples that are used sparsely, of its iteration's pairs alone."""

    round: int
    layout: Layout
    of_pairs: dict[int, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """What an iteration changes: with the data and the options it determines everything that follows.

    Attributes
    ----------
    iteration : int
        Steps taken.
    parameters, velocity : ndarray, shape (p,)
        θ and v.
    stopped : bool
        Whether a stop was asked for.
    bytes_moved, bytes_reduced, rows_moved : int
        See `Record`. What a run that goes on has to bring back was counted before, and is not again.
    empty_workers : int
        Workers without a pair, over all partitions.
    placement : Placement or None
        Whose rows are here; None in the beginning and after a resume.
    """

    iteration: int
    parameters: Floats
    velocity: Floats
    stopped: bool = False
    bytes_moved: int = 0
    bytes_reduced: int = 0
    rows_moved: int = 0
    empty_workers: int = 0
    placement: Placement | None = None

    def after(
        self, gradient: Floats, config: LearnConfig, *, stopped: bool, bytes_reduced: int = 0, bytes_moved: int = 0
    ) -> State:
        """Return the state after the step along an average gradient of the loss, to which the penalty's is added."""
        if config.l2:
            gradient = gradient + (2.0 * config.l2) * self.parameters
        velocity = config.momentum * self.velocity + gradient
        rate = config.learning_rate / (1.0 + config.decay * self.iteration)
        return State(
            self.iteration + 1,
            self.parameters - rate * velocity,
            velocity,
            stopped,
            self.bytes_moved + bytes_moved,
            self.bytes_reduced + bytes_reduced,
            self.rows_moved,
            self.empty_workers,
            self.placement,
        )

    @property
    def counters(self) -> Ints:
        """Bytes moved, bytes reduced and rows moved: `fit.COUNTERS`."""
        return np.array([self.bytes_moved, self.bytes_reduced, self.rows_moved], dtype=np.int64)
