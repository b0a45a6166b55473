"""The pairs that a descent samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.state import Layout
from mpi_ustat.mpi.collectives import starts_of
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints

_MOST_ITERATIONS_DRAWN = 64
_MOST_PAIRS_DRAWN = 1 << 22


class DrawnPairs:
    """Draws the pairs of `workers`, for many iterations at once: opening a stream costs as much as a hundred draws.

    For iterations of `one_round` only, if block sizes change with the round.
    """

    def __init__(
        self,
        config: LearnConfig,
        pairings: Sequence[tuple[int, int]],
        streams: Streams,
        workers: range,
        *,
        one_round: bool,
    ) -> None:
        self.batch, self.workers = config.batch_pairs or 0, workers
        self._pairings, self._streams = pairings, streams
        fits = _MOST_PAIRS_DRAWN // max(1, self.batch * config.n_workers)
        self.length = 1 if one_round else max(1, min(_MOST_ITERATIONS_DRAWN, fits))
        self._drawn: list[tuple[Any, Ints, Ints] | None] = [None] * len(pairings)

    def of_iteration(self, pairing: int, iteration: int, round_: int, layout: Layout) -> tuple[Ints, Ints]:
        """Return the places of the pairs' points in each sample's blocks, (useful workers, B)."""
        chunk, j = divmod(iteration, self.length)
        drawn = self._drawn[pairing]
        key = (chunk, round_ if self.length == 1 else 0)
        if drawn is None or drawn[0] != key:
            useful, workers = layout.drawn_for, self.workers
            x_sizes, z_sizes = (layout.sizes[k] for k in self._pairings[pairing])
            rows, columns = (np.empty((len(useful), self.length * self.batch), dtype=np.int64) for _ in range(2))
            starts = [starts_of(sizes[workers.start : workers.stop]).tolist() for sizes in (x_sizes, z_sizes)]
            for place, i in enumerate(useful.tolist()):
                worker, first = workers.start + i, (starts[0][i], starts[1][i])
                stream = self._streams.open(f"pairs of pairing {pairing}", round=chunk, worker=worker)
                stream.write_pairs(int(x_sizes[worker]), int(z_sizes[worker]), rows[place], columns[place], first)
            drawn = self._drawn[pairing] = (key, rows, columns)
        some = slice(j * self.batch, (j + 1) * self.batch)
        return drawn[1][:, some], drawn[2][:, some]
