"""Histograms of the similarities of pairs of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.similarities import METRIC, SimilarityCounts, at_least
from mpi_ustat.numerics.types import Ints


def _numbers(text: str) -> list[float]:
    try:
        return [float(edge) for edge in text.split(",")]
    except ValueError:
        raise UserError(f"the edges are '{text}': give numbers between commas") from None


EDGES = Option(
    "edges",
    "edges of the bins of a similarity histogram",
    tuple(i / 10 - 1.0 for i in range(21)),
    _numbers,
    metavar="E,E[,E…]",
)


class SimilarityHistogram(SimilarityCounts):
    """h_a(x, z) = 1{edges[a] <= s(x, z) < edges[a + 1]}, the last bin closed: p statistics, the shares of p bins.

    Parameters
    ----------
    edges : sequence of float
        p + 1 ascending numbers. Pairs outside are in no bin; cosines that are rounded beyond ±1 are taken for ±1.
    metric, one_sample
        As for `SimilarityCounts`.
    """

    name = "similarity-histogram"
    options = (EDGES, METRIC)

    def __init__(self, edges: Sequence[float], metric: str = METRIC.default, *, one_sample: bool = False) -> None:
        self.edges = tuple(float(edge) for edge in edges)
        if len(self.edges) < 2 or not np.isfinite(self.edges).all() or not (np.diff(self.edges) > 0).all():
            raise UserError("the edges of a histogram must be at least two finite numbers, each larger than the last")
        thresholds = (*self.edges[:-1], math.nextafter(self.edges[-1], math.inf))
        super().__init__([at_least(each, metric) for each in thresholds], metric, one_sample)

    def _bins(self, reached: Ints) -> Ints:
        return reached[..., :-1] - reached[..., 1:]
