"""The statistic of those workers of a ring that have met, under other labels of their blocks. Pure numbers.

With X_i and Z_i the numbers of points of each sample at worker i, f_i = X_i/(X_i + Z_i), g ∈ {0, 1} telling which
segments are x's, and B the sums of k over the pairs of every two segments whose workers i and j have met,

    T_g = Σ_{s,t} (g_s - f_i)(g_t - f_j) B_st / Σ_{i,j} h_i h_j,   h_i = X_i Z_i / (X_i + Z_i),

or its negative. The share of i and j is h_i h_j times the mean of k across their points of x, plus that of z, less the
two means across x of one and z of the other: of points drawn from two laws it has the expectation of the discrepancy,
so that T is an incomplete U-statistic of workers, as unbiased as the complete one of points, and weighted by what each
share is worth. Points of one law have shares without first-order terms, whatever pairs have met: at each worker the sum
of (g_s - f_i) · points of s is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, islice, pairwise, product
from typing import cast

import numpy as np

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import bounds_of
from mpi_ustat.testing.relabelled import OnGrid, Relabelling
from mpi_ustat.testing.ring import Ring


class Met(Relabelling):
    """T_g as a function of which blocks are those of the sample that has fewer; labels stay with their worker."""

    @classmethod
    def of(cls, sums: Floats, layout: Ring, sign: int) -> Met:  # type: ignore[override]
        """Return T as a form of finite sums over pairs of segments; it is the same of 1-g and 1-f as of g and f."""
        chosen, n_blocks = _chosen(layout), sum(layout.n_blocks)
        points, worker = layout.points_of.astype(np.float64), layout.worker_of
        counts = np.outer(points, points) * layout.met[np.ix_(worker, worker)]
        n_pairs = float(counts.sum())
        centred = sums - float(sums.sum()) / n_pairs * counts
        at = layout.points_at
        weights = at[0] * at[1] / at.sum(axis=0)
        total = float((weights * layout.met * weights[:, None]).sum())
        labels = (layout.sample_of == chosen) * 1.0
        labels[:n_blocks] = 0.0
        constant = labels - (at[chosen] / at.sum(axis=0))[worker]
        of_all = (centred * constant).sum(axis=1)
        return cls(
            layout,
            sign * float((constant * of_all).sum()) / total,
            OnGrid.of(sign * 2.0 * of_all[:n_blocks] / total),
            OnGrid.of(centred[:n_blocks, :n_blocks]),
            sign / total,
            float(np.abs(sums).sum()) / n_pairs,
        )

    @property
    def _ring(self) -> Ring:
        return cast(Ring, self.layout)

    @property
    def own(self) -> Ints:
        """The blocks of the sample with fewer, as they are labelled, shape (1, s)."""
        n_blocks = sum(self.layout.n_blocks)
        return np.flatnonzero(self._ring.sample_of[:n_blocks] == _chosen(self._ring))[None]

    def every(self) -> Iterator[Ints]:
        """Yield all labellings, the one that is there included, so many at once."""
        ring = self._ring
        bounds, counts = bounds_of(ring.held.sum(axis=0)).tolist(), ring.held[_chosen(ring)].tolist()
        of_worker = [
            list(combinations(range(*ends), count)) for ends, count in zip(pairwise(bounds), counts, strict=True)
        ]
        every = product(*of_worker)
        while some := list(islice(every, self.at_once)):
            yield np.fromiter(chain.from_iterable(chain.from_iterable(some)), dtype=np.int64).reshape(len(some), -1)

    def drawn(self, streams: Streams, numbers: range) -> Ints:
        """Return the random labellings of these numbers: an order of all blocks is one of those of each worker."""
        n_blocks = sum(self.layout.n_blocks)
        orders = streams.permutations("relabelled blocks", n_blocks, numbers, 1)[:, 0]
        by_worker = np.argsort(orders + n_blocks * self._ring.worker_of[:n_blocks], axis=1)
        return by_worker[:, self.own[0]]


def _chosen(layout: Ring) -> int:
    return 0 if layout.n_blocks[0] <= layout.n_blocks[1] else 1
