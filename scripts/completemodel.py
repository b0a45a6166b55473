"""What complete statistics cost on any number of ranks: the AUC by sorting, pairs in a ring; operations counted; pure.

The AUC of samples of n_k scores on P ranks, n = Σ n_k, by ranges, one a rank:

    splitters  a 64P + b 64P log₂ 64P         every rank draws, and puts in order, the scores that cut the ranges
    sort       Σ_k b r log₂ r + d P           each rank's r = n_k/P scores, which are cut into P pieces
    merge      Σ_k b r' log₂ r' + d P         those that came, P ordered pieces: r' of them, n_k/P on average
    count      f r'                           each score of the one sample is looked up among those of the other
    agree      g 5P                           numbers of rows, counts: objects that every rank reads of every other
    latency    α (messages)                   3(P - 1) in the Alltoallv of two samples and the gather of splitters
    transfer   β (bytes)                      8 n/P, and 8 · 64P

All pairs of two samples by a ring of N blocks on P ≤ N ranks, in N steps:

    evaluate   p nm/P + e N²/P                pairs, and meetings of two blocks
    move       s N + t N²                     steps; in each every rank works out where all blocks are
    reduce     h N + g 6P                     what each worker found, and shapes
    latency    α (messages)                   in each step of a block and its sums to the next rank, and of agreeing
    transfer   β (bytes)                      m/N rows and sums a step

seconds on the slowest rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import starmap

from costs import WIRE, Counts, Traffic, added, gathered, together, told
from scipy.special import gammaincinv

from mpi_ustat.complete.sorting import SAMPLES_PER_RANGE
from mpi_ustat.errors import UserError

# What pickled objects take: a shape, a dtype and a number; some whole numbers; what a worker found; squares of the sums
# of points. And two numbers that say that all is well.
_SHAPE_BYTES, _COUNTS_BYTES, _ANSWER_BYTES, _SQUARES_BYTES = 28, 48, 200, 176
_OUTCOME_BYTES = 16


@dataclass(frozen=True)
class SortJob:
    """The complete AUC of samples of these `sizes` on `n_ranks`.

    `fullness` is how many scores come to the rank, beside the average; by default to the fullest of all ranks.
    """

    sizes: tuple[int, ...]
    n_ranks: int
    fullness: float = math.nan

    phases = ("splitters", "sort", "merge", "count", "agree", *WIRE)
    constants = ("start", "drawn", "compared", "part", "looked_up", "object")

    def __post_init__(self) -> None:
        """Refuse what can't be run."""
        if not 1 <= self.n_ranks <= min(self.sizes):
            raise UserError(f"{self.n_ranks} ranks can't each have a score of samples of {self.sizes}: use fewer")
        if math.isnan(self.fullness):
            object.__setattr__(self, "fullness", fullest(self.n_ranks))

    def operations(self) -> dict[str, Counts]:
        """Return how often a rank does what each constant is the cost of, by phase.

        The constants are seconds: `start` of a statistic whatever its size; `drawn` of drawing a score for the
        splitters; `compared` of sorting one of r scores, divided by log₂ r; `part` of one rank's piece of a sample;
        `looked_up` of looking up a score where both samples are in order; `object` of reading what a rank says.
        """
        p = self.n_ranks
        rows = [size / p for size in self.sizes]
        drawn = SAMPLES_PER_RANGE * p
        came = [self.fullness * each for each in rows]
        return {
            "splitters": {"drawn": drawn, "compared": _compared(drawn)},
            "sort": {"compared": sum(map(_compared, rows)), "part": p * len(rows)},
            "merge": {"compared": sum(map(_compared, came)), "part": p * len(rows)} if p > 1 else {},
            "count": {"looked_up": min(came)},
            "agree": {"start": 1, "object": (len(rows) + 3) * p},
        }

    def traffic(self) -> Traffic:
        """Return the messages and bytes that a rank sends."""
        p = self.n_ranks
        if p == 1:
            return 0.0, 0.0
        drawn = [gathered(p, 8 * p), gathered(p, 8 * SAMPLES_PER_RANGE * p)]
        loads = added(p, 16 * len(self.sizes) * p)
        scores = [(p - 1, 8 * size / p * (p - 1) / p) for size in self.sizes]
        said = [_pickled(p, each) for each in [_SHAPE_BYTES] * len(self.sizes) + [_COUNTS_BYTES] * 3]
        return together([*drawn, loads, *scores, *[told(p, 16)] * len(self.sizes), *said])


@dataclass(frozen=True)
class RingJob:
    """All pairs of two samples of points of `n_columns`, in a ring of `n_workers` blocks on `n_ranks`."""

    sizes: tuple[int, ...]
    n_ranks: int
    n_workers: int
    n_columns: int = 10

    phases = ("evaluate", "move", "reduce", *WIRE)
    constants = ("pair", "meeting", "step", "entry", "object", "answer")

    def __post_init__(self) -> None:
        """Refuse what can't be run."""
        if not 1 <= self.n_ranks <= self.n_workers <= min(self.sizes):
            raise UserError(
                f"{self.n_ranks} ranks can't share {self.n_workers} blocks of samples of {self.sizes}: use fewer"
            )

    def operations(self) -> dict[str, Counts]:
        """Return how often the busiest rank does what each constant is the cost of, by phase.

        The constants are seconds: `pair` of evaluating one; `meeting` of two blocks, whatever their sizes; `step` of
        what a rank does in a step, and `entry` for each of N blocks; `object` of reading what a rank says; `answer` of
        what a worker found.
        """
        n, p = self.n_workers, self.n_ranks
        meetings = n * -(-n // p)
        return {
            "evaluate": {"pair": meetings * math.prod(size / n for size in self.sizes), "meeting": meetings},
            "move": {"step": n, "entry": n * n},
            "reduce": {"answer": n, "object": 6 * p},
        }

    def traffic(self) -> Traffic:
        """Return the messages and bytes that a rank sends; a block leaves it in each step but the last."""
        n, p = self.n_workers, self.n_ranks
        if p == 1:
            return 0.0, 0.0
        rows = min(self.sizes) / n
        moves = (2 * (n - 1), (n - 1) * rows * 8 * (self.n_columns + 1))
        said = [_SHAPE_BYTES, _SHAPE_BYTES, _ANSWER_BYTES * n / p, _SQUARES_BYTES, _SQUARES_BYTES, _COUNTS_BYTES]
        return together([moves, *[added(p, _OUTCOME_BYTES)] * n, *(_pickled(p, each) for each in said)])


Complete = SortJob | RingJob


def fullest(n_ranks: int) -> float:
    """Return about how many scores are expected on the fullest rank, beside the average.

    Between two splitters there are as many drawn scores for every rank, k = `SAMPLES_PER_RANGE`. What lies between two
    neighbours of them has an exponential law, and so the whole a gamma law of shape k. The largest of P such is about
    its quantile at (P - 3/8)/(P + 1/4) (Blom).
    """
    if n_ranks == 1:
        return 1.0
    return float(gammaincinv(SAMPLES_PER_RANGE, (n_ranks - 0.375) / (n_ranks + 0.25))) / SAMPLES_PER_RANGE


def _compared(rows: float) -> float:
    return rows * math.log2(max(rows, 2.0))


def _pickled(n_ranks: int, n_bytes: float) -> Traffic:
    """Return the messages and bytes of gathering an object of each rank, before which come their lengths."""
    return together(starmap(gathered, [(n_ranks, 4 * n_ranks), (n_ranks, n_bytes * n_ranks)]))
