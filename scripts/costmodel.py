"""What a prop-swor round of the AUC costs on any number of ranks: operations counted, seconds fitted; pure.

A round of samples of n_k rows over N workers on P ≤ N ranks, by the matrix shuffle and with rows evenly spread, takes

    draw      a (rows shuffled) + b (entries)  each rank shuffles the ranges that hold its rows, n/P of n rows, but
                                               never less than a range of some 2¹⁹ or 64N; N entries are drawn at each
                                               node of the tree of ranges above them, or a whole S×N matrix if small
    group     c n/P + d (pieces)               rows are brought in order of their workers, piece by piece, or row by row
                                               (c') where pieces are short
    latency   α (messages)                     P - 1 in the Alltoallv of rows, log₂ P in what tells how many
    transfer  β (bytes sent)                   (P-1)/P of what a rank has
    evaluate  ⌈N/P⌉ (e + f r log₂ r)           r rows a worker, all pairs; or ⌈N/P⌉ (e' + g B), B sampled pairs
    reduce    h N                              every rank reads what all N workers say

seconds on the slowest rank, summed over the samples. Not all shrinks with P: a range's rows, N entries a level, and N
answers remain. Latency grows with P.

The constants of the processor, a … h, are fitted to rounds that were timed; the network's, α and β, are measured by
messages alone, so that rounds over a network check both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import numpy as np
from costs import Counts, Equation, Fit, Network, Traffic, gathered, least_squares, predicted, together, told

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.moves import SHORT_RUN, steps_and_chunks
from mpi_ustat.numerics.arrangement import uses_keys
from mpi_ustat.numerics.types import Ints
from mpi_ustat.schemes.partition import block_bounds, bottom_rows, draws_whole_matrix, source_blocks

PHASES = ("draw", "group", "latency", "transfer", "evaluate", "reduce")
"""What a round's predicted seconds are made of."""

_ANSWER_BYTES = {"all": 88, "sampled": 64}  # a row of words for a worker; with components, or without


@dataclass(frozen=True)
class Job:
    """A round, and what it runs on.

    Attributes
    ----------
    sizes : tuple of int
        Rows of each sample, n_k, on all ranks together.
    n_workers : int
        N.
    n_ranks : int
        P, at most N.
    n_pairs : int or None
        Pairs sampled by each worker, B; None: all its pairs.
    row_bytes : int
        Of one row.

    Raises
    ------
    UserError
        If a rank would have no worker, or a worker no row.
    """

    sizes: tuple[int, ...]
    n_workers: int
    n_ranks: int
    n_pairs: int | None = None
    row_bytes: int = 8

    def __post_init__(self) -> None:
        """Refuse what can't be run."""
        if not 1 <= self.n_ranks <= self.n_workers:
            raise UserError(
                f"{self.n_ranks} ranks can't share {self.n_workers} workers: give from 1 to {self.n_workers} ranks"
            )
        if not self.sizes or min(self.sizes) < self.n_workers:
            raise UserError(f"{self.n_workers} workers can't each have a row of samples of {self.sizes}: use fewer")


@dataclass(frozen=True)
class CostModel:
    """Seconds that one operation takes on one core.

    Attributes
    ----------
    keyed_row, permuted_row : float
        Of shuffling a row's label, by keys that are counted or, for more than 2¹⁴ workers and for parts of fewer than
        2¹⁶ rows (2¹⁴ for up to 256 workers), by sorting; a.
    matrix_entry, tree_entry : float
        Of drawing an entry of the whole count matrix, or a count at a node of the tree; b.
    grouped_row : float
        Of bringing a row (of `Job.row_bytes`) in order of workers, and taking in another; c.
    scattered_row : float
        More, of a row that is put in its place by itself; c'.
    piece : float
        Of starting to copy the rows of a worker or for a rank in a chunk; d.
    worker, sampling_worker : float
        Of a worker's evaluation beside its rows or pairs, for all pairs or sampled ones; e.
    comparison : float
        Of sorting and ranking one of r rows, divided by log₂ r; f.
    pair : float
        Of a sampled pair; g.
    answer, sampled_answer : float
        Of gathering and adding what a worker found, for all pairs (with components) or sampled ones; h.
    """

    keyed_row: float
    permuted_row: float
    matrix_entry: float
    tree_entry: float
    grouped_row: float
    scattered_row: float
    piece: float
    worker: float
    sampling_worker: float
    comparison: float
    pair: float
    answer: float
    sampled_answer: float

    def predict(self, job: Job, network: Network, *, ranks_per_core: float = 1.0) -> dict[str, float]:
        """Return the seconds of a round in each of `PHASES`.

        Parameters
        ----------
        job : Job
        network : Network
        ranks_per_core : float
            Ranks that share a core: each computes so many times as long.
        """
        seconds = predicted(asdict(self), operations(job), together(traffic(job).values()), network, ranks_per_core)
        return {phase: seconds[phase] for phase in PHASES}


CONSTANTS = tuple(each.name for each in fields(CostModel))
"""The names of the constants of the processor."""


def operations(job: Job) -> dict[str, Counts]:
    """Return how often the busiest rank does what each constant of `CostModel` is the cost of, by phase.

    The phases are draw, group, evaluate and reduce.
    """
    n_workers, n_ranks = job.n_workers, job.n_ranks
    draw = dict.fromkeys(("keyed_row", "permuted_row", "matrix_entry", "tree_entry"), 0.0)
    group = dict.fromkeys(("grouped_row", "scattered_row", "piece"), 0.0)
    hosted = -(-n_workers // n_ranks)
    comparisons = 0.0
    for size in job.sizes:
        longest = -(-size // n_ranks)
        rows, entries, largest = _shuffled(size, n_workers, n_ranks)
        draw["keyed_row" if uses_keys(largest, n_workers) else "permuted_row"] += rows
        draw["matrix_entry" if draws_whole_matrix(size, n_workers) else "tree_entry"] += entries
        n_steps, n_chunks = steps_and_chunks(longest, job.row_bytes, n_workers)
        group["grouped_row"] += longest
        chunks = n_steps * n_chunks
        if n_chunks > 1:
            group["piece"] += chunks * (n_ranks - 1)  # taken for another rank
        if longest < SHORT_RUN * chunks * n_workers and hosted > 1:
            group["scattered_row"] += longest
        elif hosted > 1 or chunks > 1:
            group["piece"] += chunks * n_workers  # placed; what comes for one worker in one chunk lies together
        comparisons += size / n_workers * math.log2(size / n_workers)
    if job.n_pairs is None:
        evaluate: Counts = {"worker": hosted, "comparison": hosted * comparisons}
    else:
        evaluate = {"sampling_worker": hosted, "pair": hosted * job.n_pairs}
    reduce: Counts = {"answer" if job.n_pairs is None else "sampled_answer": n_workers}
    return {"draw": draw, "group": group, "evaluate": evaluate, "reduce": reduce}


def traffic(job: Job) -> dict[str, Traffic]:
    """Return the messages and the bytes that a rank sends to bring rows to their workers, and to gather the answers.

    Rows go in steps, with an Alltoallv each, after an Alltoall that says how many they will be, in log₂ P messages
    where that is short. Ranks agree twice around the gather of answers, which takes ⌈log₂ P⌉ messages, or P - 1 where
    it is long.
    """
    others = job.n_ranks - 1
    share = others / job.n_ranks
    rows: list[Traffic] = []
    for size in job.sizes:
        longest = -(-size // job.n_ranks)
        n_steps, n_chunks = steps_and_chunks(longest, job.row_bytes, job.n_workers)
        rows.append((n_steps * others, share * longest * job.row_bytes))
        rows.append(told(job.n_ranks, 8 * n_steps * n_chunks * -(-job.n_workers // job.n_ranks)))
    answers = gathered(job.n_ranks, job.n_workers * _ANSWER_BYTES["all" if job.n_pairs is None else "sampled"])
    return {"group": together(rows), "reduce": together([(2 * others.bit_length(), 0.0), answers])}


def _shuffled(size: int, n_workers: int, n_ranks: int) -> tuple[int, int, int]:
    """Return the rows of all parts that hold rows of a rank, the entries it draws, and the rows of the largest part.

    Of the rank with most of each.
    """
    shards = block_bounds(size, n_ranks)
    if not draws_whole_matrix(size, n_workers):
        return _walked(size, shards, n_workers)
    sources = block_bounds(size, source_blocks(size, n_workers))
    first, last = _overlapping(sources, shards)
    entries = (len(sources) - 1) * n_workers
    return int((sources[last] - sources[first]).max()), entries, int(np.diff(sources).max())


def _walked(size: int, shards: Ints, n_workers: int) -> tuple[int, int, int]:
    """Return the same of a tree: its bottom ranges, and a draw for each worker at all nodes above those of a rank."""
    ranges, depth = np.array([0, size]), 0
    while np.diff(ranges).max() > bottom_rows(n_workers):
        middles = (ranges[:-1] + ranges[1:]) // 2
        ranges, depth = np.sort(np.concatenate([ranges, middles])), depth + 1
    first, last = _overlapping(ranges, shards)
    nodes = sum(((last - 1 >> up) - (first >> up) + 1 for up in range(1, depth + 1)), np.zeros(1, dtype=np.int64))
    return int((ranges[last] - ranges[first]).max()), int(nodes.max()) * n_workers, int(np.diff(ranges).max())


def _overlapping(blocks: Ints, shards: Ints) -> tuple[Ints, Ints]:
    """Return the first block that holds rows of each shard, and the one after the last."""
    return np.searchsorted(blocks, shards[:-1], side="right") - 1, np.searchsorted(blocks, shards[1:], side="left")


# ---------------------------------------------------------------------------------------------------------------------
# Fitting


@dataclass(frozen=True)
class TimedRound:
    """Seconds that a round took.

    Attributes
    ----------
    job : Job
    network : Network
        Its messages, timed alone.
    draw : float
        Of drawing the partition, timed alone.
    exchange : float
        Of drawing it, grouping and sending.
    evaluate, reduce : float
    total : float
    """

    job: Job
    network: Network
    draw: float
    exchange: float
    evaluate: float
    reduce: float
    total: float


def fit(rounds: Sequence[TimedRound]) -> Fit:
    """Fit the constants of the processor, none negative, by least squares.

    Each round gives four equations: for its draw, its exchange (less the time of its messages), its evaluation and its
    reduction (less the same).

    Parameters
    ----------
    rounds : sequence of TimedRound
        One rank a core.

    Raises
    ------
    UserError
        If the rounds don't tell all constants apart, or one took no time.
    """
    equations = []
    for each in rounds:
        counts = operations(each.job)
        sending = {
            phase: messages * each.network.latency + sent * each.network.seconds_per_byte
            for phase, (messages, sent) in traffic(each.job).items()
        }
        for parts, taken in (
            (counts["draw"], each.draw),
            (counts["draw"] | counts["group"], each.exchange - sending["group"]),
            (counts["evaluate"], each.evaluate),
            (counts["reduce"], each.reduce - sending["reduce"]),
        ):
            equations.append(Equation(parts, taken, each.total))
    return least_squares(CONSTANTS, equations)
