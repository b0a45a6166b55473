"""Rows that stay where they are while their scores travel, and the gradients that come of it.

The loss of a scorer is a function of its scores, so that its gradient is Σ_i c_i ∂s_i with c_i = ∂L/∂s_i, which needs
the scores of all points but the rows of one's own only (`mpi_ustat.scores`): no pair is unseen, and nothing has to be
repartitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.auc import auc
from mpi_ustat.influence.points import Sample
from mpi_ustat.influence.statistic import statistic
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import Ordered, block_bounds
from mpi_ustat.scores.meeting import Meeting
from mpi_ustat.scores.pairs import of_pairings
from mpi_ustat.scores.side import Side

_MOST_ITERATIONS_DRAWN = 64
_MOST_POINTS_DRAWN = 1 << 22


@dataclass(frozen=True)
class Home:
    """The rows of one sample that this rank's workers have, block after block, and what is said about them.

    The global order is cut into N runs, a worker each: whoever gave rows of another's run has sent them there once.
    """

    rows: Any  # Floats or SparseRows
    bounds: Ints
    weights: Floats | None
    groups: Ints | None

    @classmethod
    def of(cls, exchange: Exchange, *said: Exchange | None) -> Home:
        """Bring the rows, and their weights and groups, to the workers.  Collective."""
        bounds = block_bounds(exchange.n_rows, exchange.n_workers)
        at_home = Ordered(bounds, None)
        brought: list[NDArray[Any] | None] = []
        for each in (exchange, *said):
            if each is not None:
                each.bring(at_home)
            brought.append(None if each is None else each.put_in_order())
        own = bounds[exchange.workers.start : exchange.workers.stop + 1]
        rows, weights, groups = brought
        assert rows is not None
        return cls(rows, own - own[0], weights, groups)

    @cached_property
    def blocks(self) -> list[Any]:
        """The rows of each worker."""
        return [self.rows[start:stop] for start, stop in _runs(self.bounds)]

    def some(self, places: Ints | None) -> tuple[Any, Side]:
        """Return the rows at these places, or all, and what is known of them but their scores."""
        if places is None:
            return self.rows, Side(np.empty(0), self.weights, self.groups)
        weights = None if self.weights is None else self.weights.take(places)
        groups = None if self.groups is None else self.groups.take(places)
        return self.rows.take(places, axis=0), Side(np.empty(0), weights, groups)


class DrawnPoints:
    """Draws the points of an iteration, uniformly with replacement from each worker's block, for many at once."""

    def __init__(self, streams: Streams, n_points: int, workers: range, homes: Sequence[Home], n_workers: int) -> None:
        self._streams, self._n_points, self._workers, self._homes = streams, n_points, workers, homes
        self._length = max(1, min(_MOST_ITERATIONS_DRAWN, _MOST_POINTS_DRAWN // (n_points * n_workers)))
        self._chunk = -1
        self._drawn: list[Ints] = []

    def of_iteration(self, iteration: int) -> list[tuple[Ints, Ints]]:
        """Return, of each sample, the places of its points, and where those of each worker begin."""
        chunk, j = divmod(iteration, self._length)
        if chunk != self._chunk:
            self._drawn = [self._draw(k, home, chunk) for k, home in enumerate(self._homes)]
            self._chunk = chunk
        found = []
        for home, drawn in zip(self._homes, self._drawn, strict=True):
            counts = np.where(np.diff(home.bounds) > 0, self._n_points, 0)
            found.append((drawn[:, j].ravel(), np.concatenate([[0], np.cumsum(counts)])))
        return found

    def _draw(self, k: int, home: Home, chunk: int) -> Ints:
        parts = []
        for worker, first, n in zip(self._workers, home.bounds, np.diff(home.bounds), strict=False):
            if n:
                stream = self._streams.open(f"points of sample {k}", round=chunk, worker=worker)
                parts.append(first + stream.integers(int(n), self._length * self._n_points))
        return np.array(parts, dtype=np.int64).reshape(-1, self._length, self._n_points)


class Found(NamedTuple):
    """What the scores of an iteration say.

    Attributes
    ----------
    loss : float
        The mean loss, summed over the pairings; NaN where it isn't wanted, or a score is not finite.
    gradients : ndarray, shape (hosted workers, p)
        Each worker's part of the gradient, of which the sum is.
    bytes_sent : int
        Of scores and what comes back for them, by this rank.
    """

    loss: float
    gradients: Floats
    bytes_sent: int


@dataclass(frozen=True)
class Homes:
    """The samples of a descent whose rows stay.

    Attributes
    ----------
    samples : sequence of Home
    pairings : sequence of pairs of int
        Which samples are paired, the one to score higher first.
    drawn : DrawnPoints or None
        The points of each iteration; None: all.
    meeting : Meeting or None
        Of the points of an iteration; None: each iteration's is another one.
    """

    samples: Sequence[Home]
    pairings: Sequence[tuple[int, int]]
    drawn: DrawnPoints | None
    meeting: Meeting | None

    @classmethod
    def of(
        cls, comm: Any, samples: Sequence[Home], pairings: Sequence[tuple[int, int]], drawn: DrawnPoints | None
    ) -> Homes:
        """Return them, and find out how many points the other ranks have.  Collective."""
        sides = [Side(np.empty(len(home.rows)), home.weights, home.groups) for home in samples]
        if drawn is not None:
            sides = [Side(np.empty(len(places))) for places, _ in drawn.of_iteration(0)]
        varies = drawn is not None and any(home.weights is not None for home in samples)
        return cls(samples, pairings, drawn, None if varies else Meeting(comm, sides))

    @property
    def said(self) -> bool:
        """Whether the points have weights or groups, so that not all pairs count alike."""
        return any(home.weights is not None or home.groups is not None for home in self.samples)

    def loss_and_auc(self, comm: Any, objective: PairObjective, parameters: Floats) -> tuple[float, float]:
        """Return the sum of the pairings' losses and the mean of their AUCs, over the pairs that count.  Collective."""
        assert objective.phi is not None
        sides = []
        for home in self.samples:
            scores = objective.scores(parameters, home.rows)
            assert scores is not None
            sides.append(Side(scores, home.weights, home.groups))
        of_all = self.meeting if self.drawn is None else None
        loss, _, _ = of_pairings(comm, objective.phi, sides, self.pairings, meeting=of_all)
        samples = [Sample(side.scores, side.weights, side.groups) for side in sides]
        aucs = []
        for a, b in self.pairings:
            pair = (samples[a], samples[b])
            aucs.append(float(statistic(comm, pair, auc(comm, pair)[0], scale=2).value[0]))
        return loss, float(np.mean(aucs))

    def gradient(
        self,
        comm: Any,
        objective: PairObjective,
        parameters: Floats,
        iteration: int,
        *,
        want_loss: bool,
        attempt: Callable[[Callable[[], object]], object],
    ) -> Found:
        """Return the loss and its gradient over the pairs of an iteration's points.  Collective.

        What is local goes through `attempt`, which catches errors: the scores of a rank where it failed are NaN, so
        that no rank waits for it.
        """
        assert objective.phi is not None
        places = None if self.drawn is None else self.drawn.of_iteration(iteration)
        taken = [home.some(None if places is None else places[k][0]) for k, home in enumerate(self.samples)]
        bounds = [home.bounds if places is None else places[k][1] for k, home in enumerate(self.samples)]
        scores = [np.full(len(rows), np.nan) for rows, _ in taken]

        def score() -> None:
            for own, (rows, _) in zip(scores, taken, strict=True):
                found = objective.scores(parameters, rows)
                assert found is not None
                own[:] = found

        attempt(score)
        sides = [Side(own, side.weights, side.groups) for own, (_, side) in zip(scores, taken, strict=True)]
        total, coefficients, sent = of_pairings(
            comm, objective.phi, sides, self.pairings, want_loss=want_loss, meeting=self.meeting
        )
        gradients = np.zeros((len(self.samples[0].bounds) - 1, len(parameters)))

        def add() -> None:
            for home, (rows, _), cuts, each in zip(self.samples, taken, bounds, coefficients, strict=True):
                for i, (start, stop) in enumerate(_runs(cuts)):
                    if stop > start:
                        block = home.blocks[i] if places is None else rows[start:stop]
                        gradients[i] += objective.score_gradient(parameters, block, each[start:stop])

        attempt(add)
        return Found(total, gradients, sent)


def _runs(cuts: Ints) -> Iterator[tuple[int, int]]:
    return zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
