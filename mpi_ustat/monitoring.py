"""Loss and AUC of a scorer over distributed points, the same bits on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.config import LearnConfig
from mpi_ustat.parallel.collectives import gather_on_master
from mpi_ustat.parallel.exchange import Exchange
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.parallel.runtime import agree
from mpi_ustat.statistics.objectives import PairObjective
from mpi_ustat.statistics.rankstat import count_wins

Array = NDArray[np.float64]


class Monitor:
    """Loss and AUC over all pairs where scores are enough for that, otherwise over a fixed sample of pairs.

    Rank 0 gathers the scores, one number a point, and computes on them; each row's score is the same bits wherever the
    row lies. Without scores it gathers, once, the points of the sampled pairs.
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
        self._points: dict[str, list[tuple[Array, Array]]] = {}
        self._samples_pairs: bool | None = None
        self._lengths: dict[str, list[int]] = {}
        self._cuts: NDArray[np.int64] | None = None

    def evaluate(self, sets: Mapping[str, Sequence[Exchange]], parameters: Array) -> dict[str, tuple[float, float]]:
        """Return (loss, AUC) of each set, of all pairings together, on rank 0; NaN on other ranks.  Collective."""
        own = self._agreed(lambda: self._own_scores(sets, parameters))
        scored = own is not None
        scores = self._on_master(own) if own is not None else {}
        if self._samples_pairs is None:
            one = np.zeros(1)
            self._samples_pairs = not scored or self._agreed(lambda: self._objective.scored_loss(one, one)) is None
        pairs = {name: self._sampled_points(name, each) if self._samples_pairs else [] for name, each in sets.items()}

        def on_master() -> dict[str, tuple[float, float]]:
            if self._comm.rank != 0:
                return dict.fromkeys(sets, (math.nan, math.nan))
            return {name: self._loss_and_auc(parameters, scores.get(name), pairs[name]) for name in sets}

        return self._agreed(on_master)

    def _own_scores(self, sets: Mapping[str, Sequence[Exchange]], parameters: Array) -> list[Array] | None:
        """Return the scores of this rank's rows, sample after sample of all sets; None if the objective has none."""
        scores = [self._objective.scores(parameters, sample.rows) for samples in sets.values() for sample in samples]
        found = [each for each in scores if each is not None]
        self._lengths = {name: [len(sample.rows) for sample in samples] for name, samples in sets.items()}
        return found if len(found) == len(scores) else None

    def _on_master(self, own: list[Array]) -> dict[str, list[Array]]:
        """Return on rank 0 the scores of all rows by set and sample, sorted: sums over pairs need no other order."""
        if self._cuts is None:
            everyone = self._comm.allgather(self._lengths)
            sizes = [each for lengths in everyone for each in (n for samples in lengths.values() for n in samples)]
            self._cuts = np.cumsum(sizes)[:-1]
        received = np.split(gather_on_master(self._comm, np.concatenate(own)), self._cuts)
        if self._comm.rank != 0:
            return {}
        of_ranks = iter(zip(*(received[i :: len(own)] for i in range(len(own))), strict=True))
        parts = list(zip(*of_ranks, strict=True))
        scores = iter(np.sort(np.concatenate(each)) for each in parts)
        return {name: [next(scores) for _ in samples] for name, samples in self._lengths.items()}

    def _loss_and_auc(
        self, parameters: Array, scores: Sequence[Array] | None, pairs: Sequence[tuple[Array, Array]]
    ) -> tuple[float, float]:
        loss, auc = 0.0, 0.0 if scores is not None else math.nan
        for p, (a, b) in enumerate(self._pairings):
            if scores is not None:
                wins, ties = count_wins(scores[a], scores[b])
                auc += (2 * wins + ties) / (2 * len(scores[a]) * len(scores[b])) / len(self._pairings)
            total = None
            if scores is not None and not self._samples_pairs:
                total, n_pairs = self._objective.scored_loss(scores[a], scores[b]), len(scores[a]) * len(scores[b])
            if total is None:
                total, n_pairs = self._objective.pairs(parameters, *pairs[p])[0], len(pairs[p][0])
            loss += total / n_pairs
        return loss, auc

    def _agreed(self, compute: Callable[[], Any]) -> Any:
        """Return what this rank computes; a failure on any rank is raised on all.  Collective."""
        error: BaseException | None = None
        result = None
        try:
            result = compute()
        except BaseException as caught:
            error = caught
        agree(self._comm, error, doing=f"evaluating the objective {self._objective.name}")
        return result

    def _sampled_points(self, which: str, samples: Sequence[Exchange]) -> list[tuple[Array, Array]]:
        """Return on rank 0 the points of the sampled pairs, a pair of arrays for each pairing."""
        if which not in self._points:
            points = []
            for p, (a, b) in enumerate(self._pairings):
                sides = self._streams.open(f"monitored pairs of pairing {p}, {which}").pairs(
                    samples[a].n_rows, samples[b].n_rows, self._config.monitor_pairs
                )
                x, z = (_rows_on_master(self._comm, samples[k], rows) for k, rows in zip((a, b), sides, strict=True))
                points.append((x, z))
            self._points[which] = points
        return self._points[which]


def _rows_on_master(comm: Any, sample: Exchange, rows: NDArray[np.int64]) -> Array:
    """Return the rows of these global numbers, in this order, on rank 0; nothing elsewhere.  Collective."""
    distinct, place = np.unique(rows, return_inverse=True)
    last = sample.first_row + len(sample.rows)
    own = distinct[(distinct >= sample.first_row) & (distinct < last)] - sample.first_row
    parts = comm.gather(sample.rows[own])
    return np.concatenate([part for part in parts if len(part)])[place] if comm.rank == 0 else sample.rows[:0]
