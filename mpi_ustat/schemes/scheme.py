"""What a partition scheme is: who holds which rows in each round, and what variance that gives an estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mpi_ustat.numerics.types import Flags, Floats, Ints, Rows
from mpi_ustat.schemes import one_sample
from mpi_ustat.schemes.designs import Empty, even_sizes

if TYPE_CHECKING:
    from mpi_ustat.schemes.partition import Blocks, Partition
    from mpi_ustat.schemes.variance import Design

Table = tuple[tuple[tuple[int, ...], ...], ...]


class NoClosedForm(ValueError):  # noqa: N818 - the absence of a formula, which has a remedy, rather than an error
    """There is no closed form of the variance for these degrees and this design."""


class Scheme(ABC):
    """How points lie over the workers in each round; it has no state, a `Partition` keeps what rounds share.

    A subclass needs `name`, `summary`, `round`, `coefficients` and `pair_coefficients`; what it has of the rest it says
    by overriding it. The program asks for these, and never for a name.
    """

    title: ClassVar[str] = ""
    """The name as the paper prints it, if it is another."""
    aggregate: ClassVar[str] = "mean"
    """The default, "mean" or "pooled"; the one to plan with if "pooled"."""
    empty: ClassVar[str] = "refuse"
    """What a worker without a pair does by default: "refuse", "skip" or "zero"."""
    moves: ClassVar[tuple[str, ...]] = ("both",)
    """Which samples a round can spread afresh: "both", "smaller"."""
    in_plans: ClassVar[bool] = False
    """Whether it is among what a plan compares."""
    all_pairs: ClassVar[bool] = False
    """Whether it is no partition, but the statistic of all pairs."""
    as_they_lie: ClassVar[bool] = False
    """Whether rows stay where they are: there is one round, and the sizes of blocks are the shards'."""
    blocks_travel: ClassVar[bool] = False
    """Whether a round takes whole blocks on from the round before, which can travel ahead; of one sample of which a
    kernel takes two points, it has two `Blocks`: those at home, and those visiting (see `meeting`)."""
    with_replacement: ClassVar[bool] = False
    """Whether a point may be in a block several times, and in several blocks: workers are not independent then."""
    spreads_afresh: ClassVar[bool] = False
    """Whether all that a round does is to spread each sample, or each that moves, anew (`Partition.spread`)."""
    random_counts: ClassVar[bool] = False
    """Whether the numbers of points of each sample in a block are left to chance, and may be 0."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What options and files call it."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What it is, in a line."""

    @abstractmethod
    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return the blocks of every sample in round `t`: a function of the partition's options and `t` alone."""

    @abstractmethod
    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of the variance of a kernel that takes one point of each of K samples (`variance.coefficients`).

        Raises
        ------
        NoClosedForm
            If there are none for this design.
        """

    @abstractmethod
    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of the variance of a kernel that takes two points of one sample: of ζ₁ and δ.

        Raises
        ------
        NoClosedForm
            If there are none for this design.
        """

    def square(self, sizes: tuple[int, ...], design: Design) -> float:
        """Return the coefficient of U², where the number of workers that count is random (of K samples)."""
        return 0.0

    def share_with_tuples(self, sizes: Sequence[int], degrees: Sequence[int], n_workers: int) -> float:
        """Return the mean share of workers with a tuple, where the numbers of points in blocks are left to chance."""
        raise NotImplementedError(f"{type(self).__name__} has random counts, and needs share_with_tuples")

    def coefficients_with_empty(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return `coefficients` where there are more workers than points, and some blocks of no point."""
        raise NoClosedForm(f"{design.n_workers} workers can't each have a point: there is no closed form then")

    def n_rounds_complete(self, degrees: Sequence[int], n_workers: int) -> int | None:
        """Return after how many rounds all tuples have met, each once, and no more make sense; None if never.

        Raises
        ------
        UserError
            If the scheme is not for kernels of these degrees.
        """
        return None

    def holdings_table(self, sizes: Sequence[int], n_workers: int, n_rounds: int) -> Table | None:
        """Return the `holdings` of a `Design`, where blocks travel and it doesn't know them itself."""
        return None

    def meeting(self, n_workers: int, t: int, worker: int, home: Rows, visitor: Rows) -> tuple[Rows, Rows]:
        """Return the rows at home and those visiting, of one sample, all of whose pairs are the worker's in round t."""
        return home, visitor

    def goes_on(self, move: str) -> bool:
        """Tell whether what moves in a round depends on where the round before had the rows."""
        return self.blocks_travel or move != "both"

    def way(self, move: str) -> str:
        """Return the name for people, with the samples that move if not all do."""
        return self.name if move == "both" else f"{self.name}, {move}"


def options_of(design: Design) -> dict[str, Any]:
    """Return the options of how tuples are drawn and averaged, as closed forms take them."""
    return {"n_pairs": design.n_pairs, "distinct": design.distinct, "aggregate": design.aggregate}


def if_empty(design: Design) -> Empty:
    """Return the treatment of workers without a tuple, as closed forms of the mean over those with one have it."""
    return "error" if design.empty == "refuse" else "skip"


def share_that_counts(has_tuples: Flags, design: Design) -> float:
    """Return the factor of the mean over workers with a tuple that makes it the mean over all, others counting 0."""
    return float(has_tuples.mean()) if design.empty == "zero" and design.aggregate == "mean" else 1.0


def block_sizes(sizes: tuple[int, ...], design: Design, n_rounds: int = 1) -> Ints:
    """Return the design's block sizes, shape (n_rounds, K, N)."""
    if design.block_sizes is None:
        return np.array([[even_sizes(size, design.n_workers) for size in sizes]] * n_rounds)
    given = np.array(design.block_sizes, dtype=np.int64)
    if given.shape != (n_rounds, len(sizes), design.n_workers):
        raise ValueError(f"block sizes have shape {given.shape}, not {(n_rounds, len(sizes), design.n_workers)}")
    if not design.of.with_replacement and (given.sum(axis=2) != sizes).any():
        raise ValueError(f"the block sizes of some round don't add up to the {sizes} points")
    return given


def of_dealt_pairs(n_i: Ints, design: Design) -> Floats:
    """Return the coefficients of rounds that deal one sample afresh to blocks of these sizes, or of one round."""
    options = options_of(design) | {"n_rounds": design.n_rounds, "empty": if_empty(design)}
    return one_sample.prop_swor(n_i, **options) * share_that_counts(n_i > 1, design) ** 2
