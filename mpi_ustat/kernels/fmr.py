"""False-match rates: the share of pairs of embeddings that a verifier would accept."""

from __future__ import annotations

import math

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.similarities import METRIC, SimilarityCounts, at_least

THRESHOLD = Option("threshold", "similarity of a match", 0.5, float, label="the threshold", metavar="S")


class FalseMatchRate(SimilarityCounts):
    """h(a, b) = 1{s(a, b) >= threshold}: the share of pairs of different identities that a verifier would accept.

    Between two sets of impostors (degrees (1, 1)), or among one set of points that are all of different identities
    (degrees (2,)).

    Parameters
    ----------
    threshold : float
        In [-1, 1] for cosines.
    metric, one_sample
        As for `SimilarityCounts`.
    """

    name = "fmr"
    options = (THRESHOLD, METRIC)

    def __init__(self, threshold: float, metric: str = METRIC.default, *, one_sample: bool = False) -> None:
        if not math.isfinite(threshold) or (metric == "cosine" and abs(threshold) > 1.0):
            raise UserError(f"the threshold of a {metric} similarity can't be {threshold}: give a value it can take")
        self.threshold = threshold
        super().__init__((at_least(threshold, metric),), metric, one_sample)
