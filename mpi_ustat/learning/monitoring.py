"""Loss and AUC of a scorer over distributed points, the same bits on any number of ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.kernels.blocks import add
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.mpi.collectives import gather_on_master
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import announced, succeed
from mpi_ustat.numerics.rankstat import count_wins
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints

_MOST_TEST_PAIRS = 20_000_000
"""All pairs of a test set are evaluated up to so many, a third of a second of one core an evaluation."""

_TILE = 128  # scores of each side: the tiles, and so the bits, don't depend on the ranks
_EXPANDED = 1 << 28  # bytes of the points of sampled pairs that are laid side by side at a time


class Monitor:
    """Loss and AUC over all pairs where scores are enough for that, otherwise over a fixed sample of pairs.

    Rank 0 gathers the scores, one number a point; each row's score is the same bits wherever the row lies. A loss with
    an O(n log n) sum over all pairs (`PairObjective.scored_loss`) is taken there. One that is only known pair by pair
    (`PairObjective.losses_of_scores`) is taken over `LearnConfig.monitor_pairs` sampled pairs of scores; of a
    test or validation set, over all its pairs, by all ranks, up to `_MOST_TEST_PAIRS` of them. An objective without
    either has rank 0 gather, once, the points of the sampled pairs.
    """

    def __init__(
        self,
        comm: Any,
        objective: PairObjective,
        config: LearnConfig,
        pairings: Sequence[tuple[int, int]],
        streams: Streams,
    ) -> None:
        self._comm, self._objective, self._config = comm, objective, config
        self._pairings, self._streams = pairings, streams
        self._points: dict[str, list[_SampledPoints]] = {}
        self._places: dict[tuple[str, int], tuple[Ints, Ints]] = {}
        self._way = ""
        self._lengths: dict[str, list[int]] = {}
        self._cuts: Ints | None = None

    def sampled(self, sets: Mapping[str, Sequence[Exchange]], parameters: Floats) -> dict[str, int | None]:
        """Return, for each set, how many pairs of each pairing its loss is an average of; None: all.  Collective."""
        if not self._way:
            self._find_way(scored=self._agreed(lambda: self._own_scores(sets, parameters)) is not None)
        return {name: self._config.monitor_pairs if self._samples(name, each) else None for name, each in sets.items()}

    def evaluate(self, sets: Mapping[str, Sequence[Exchange]], parameters: Floats) -> dict[str, tuple[float, float]]:
        """Return (loss, AUC) of each set, of all pairings together, on rank 0; NaN on other ranks.  Collective."""
        own = self._agreed(lambda: self._own_scores(sets, parameters))
        scores = self._on_master(own) if own is not None else {}
        if not self._way:
            self._find_way(scored=own is not None)
        pairs: dict[str, list[_SampledPoints]] = {}
        losses: dict[str, list[float]] = {}
        if self._way == "points":
            pairs = {name: self._sampled_points(name, each) for name, each in sets.items()}
        elif self._way == "pairs of scores":
            losses = {name: self._pairwise(scores.get(name)) for name in sets if not self._samples(name, sets[name])}

        def on_master() -> dict[str, tuple[float, float]]:
            if self._comm.rank != 0:
                return dict.fromkeys(sets, (math.nan, math.nan))
            return {
                name: self._loss_and_auc(name, parameters, scores.get(name), pairs.get(name), losses.get(name))
                for name in sets
            }

        return self._agreed(on_master)

    def _find_way(self, *, scored: bool) -> None:
        """Find what the loss is made of.  Collective."""
        one, objective = np.zeros(1), self._objective

        def way() -> str:
            if scored and objective.scored_loss(one, one) is not None:
                return "scores"
            return "pairs of scores" if scored and objective.losses_of_scores(one, one) is not None else "points"

        self._way = self._agreed(way)

    def _samples(self, which: str, samples: Sequence[Exchange]) -> bool:
        """Tell whether the loss of a set is an average over sampled pairs."""
        if self._way == "scores":
            return False
        if self._way == "points" or which == "train":
            return True
        return sum(samples[a].n_rows * samples[b].n_rows for a, b in self._pairings) > _MOST_TEST_PAIRS

    def _own_scores(self, sets: Mapping[str, Sequence[Exchange]], parameters: Floats) -> list[Floats] | None:
        """Return the scores of this rank's rows, sample after sample of all sets; None if the objective has none."""
        scores = [self._objective.scores(parameters, sample.rows) for samples in sets.values() for sample in samples]
        found = [each for each in scores if each is not None]
        self._lengths = {name: [len(sample.rows) for sample in samples] for name, samples in sets.items()}
        return found if len(found) == len(scores) else None

    def _on_master(self, own: list[Floats]) -> dict[str, list[Floats]]:
        """Return on rank 0 the scores of all rows by set and sample, in the order of the rows."""
        if self._cuts is None:
            everyone = self._comm.allgather(self._lengths)
            sizes = [each for lengths in everyone for each in (n for samples in lengths.values() for n in samples)]
            self._cuts = np.cumsum(sizes)[:-1]
        received = np.split(gather_on_master(self._comm, np.concatenate(own)), self._cuts)
        if self._comm.rank != 0:
            return {}
        of_ranks = iter(zip(*(received[i :: len(own)] for i in range(len(own))), strict=True))
        parts = list(zip(*of_ranks, strict=True))
        scores = iter(np.concatenate(each) for each in parts)
        return {name: [next(scores) for _ in samples] for name, samples in self._lengths.items()}

    def _pairwise(self, scores: Sequence[Floats] | None) -> list[float]:
        """Return on rank 0 the loss over all pairs of each pairing, of scores that it has.  Collective."""
        everyone: Sequence[Floats] = self._comm.bcast(scores)

        def own() -> list[list[float]]:
            rank, size = self._comm.rank, self._comm.size
            return [_tile_sums(self._objective, everyone[a], everyone[b], rank, size) for a, b in self._pairings]

        found: list[list[list[float]]] = self._comm.allgather(self._agreed(own))
        return [float(add(itertools.chain.from_iterable(of_ranks))) for of_ranks in zip(*found, strict=True)]

    def _loss_and_auc(
        self,
        which: str,
        parameters: Floats,
        scores: Sequence[Floats] | None,
        pairs: Sequence[_SampledPoints] | None,
        totals: Sequence[float] | None,
    ) -> tuple[float, float]:
        loss, auc = 0.0, 0.0 if scores is not None else math.nan
        ordered = None if scores is None else [np.sort(each) for each in scores]  # as sums over all pairs want them
        for p, (a, b) in enumerate(self._pairings):
            if ordered is not None:
                wins, ties = count_wins(ordered[a], ordered[b])
                auc += (2 * wins + ties) / (2 * len(ordered[a]) * len(ordered[b])) / len(self._pairings)
            if pairs is not None:
                loss += pairs[p].loss(self._objective, parameters) / self._config.monitor_pairs
                continue
            assert scores is not None
            assert ordered is not None
            n_pairs = len(ordered[a]) * len(ordered[b])
            total = totals[p] if totals is not None else self._objective.scored_loss(ordered[a], ordered[b])
            if total is None:
                i, j = self._sampled_places(which, p, len(scores[a]), len(scores[b]))
                of_pairs = self._objective.losses_of_scores(scores[a].take(i), scores[b].take(j))
                assert of_pairs is not None
                total, n_pairs = float(np.sum(of_pairs)), self._config.monitor_pairs
            loss += total / n_pairs
        return loss, auc

    def _agreed(self, compute: Callable[[], Any]) -> Any:
        """Return this rank's result; a failure on any rank is raised on all.  Collective."""
        doing = f"evaluating the objective {self._objective.name}"
        return succeed(self._comm, compute, doing, of_data=True)

    def _sampled_places(self, which: str, pairing: int, n: int, m: int) -> tuple[Ints, Ints]:
        """Return the global row numbers of the monitored pairs, the same at every evaluation."""
        if (which, pairing) not in self._places:
            stream = self._streams.open(f"monitored pairs of pairing {pairing}, {which}")
            self._places[which, pairing] = stream.pairs(n, m, self._config.monitor_pairs)
        return self._places[which, pairing]

    def _sampled_points(self, which: str, samples: Sequence[Exchange]) -> list[_SampledPoints]:
        """Return on rank 0 the points of the sampled pairs of each pairing.  Collective the first time."""
        if which not in self._points:
            points = []
            for p, (a, b) in enumerate(self._pairings):
                sides = self._sampled_places(which, p, samples[a].n_rows, samples[b].n_rows)
                found = (_rows_on_master(self._comm, samples[k], rows) for k, rows in zip((a, b), sides, strict=True))
                points.append(_SampledPoints(*found))
            self._points[which] = points
            self._places.clear()
        return self._points[which]


class _Side(NamedTuple):
    """One side of sampled pairs: the distinct rows, and each pair's place in them."""

    rows: Floats
    places: Ints


class _SampledPoints(NamedTuple):
    """The points of sampled pairs."""

    x: _Side
    z: _Side

    def loss(self, objective: PairObjective, parameters: Floats) -> float:
        """Return the sum of h over the pairs; wide points are laid side by side some pairs at a time."""
        n_pairs = len(self.x.places)
        some = max(1, _EXPANDED // max(1, 2 * self.x.rows[:1].nbytes))
        return float(
            add(
                objective.pairs(parameters, *(side.rows[side.places[i : i + some]] for side in self))[0]
                for i in range(0, n_pairs, some)
            )
        )


def _tile_sums(objective: PairObjective, positive: Floats, negative: Floats, rank: int, size: int) -> list[float]:
    """Return a rank's share of the sums of h over the tiles of all pairs of two samples' scores."""
    across = -(-len(negative) // _TILE)
    n_tiles = -(-len(positive) // _TILE) * across
    sums = []
    for tile in announced(range(n_tiles * rank // size, n_tiles * (rank + 1) // size)):
        i, j = (_TILE * k for k in divmod(tile, across))
        found = objective.losses_of_scores(positive[i : i + _TILE, None], negative[None, j : j + _TILE])
        assert found is not None
        sums.append(float(np.sum(found)))
    return sums


def _rows_on_master(comm: Any, sample: Exchange, rows: Ints) -> _Side:
    """Return the rows of these global numbers on rank 0; nothing elsewhere.  Collective."""
    distinct, place = np.unique(rows, return_inverse=True)
    last = sample.first_row + len(sample.rows)
    own = distinct[(distinct >= sample.first_row) & (distinct < last)] - sample.first_row
    parts = comm.gather(sample.rows[own])
    if comm.rank != 0:
        return _Side(sample.rows[:0], place[:0])
    return _Side(np.concatenate([part for part in parts if len(part)]), place)
