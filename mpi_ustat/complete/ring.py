"""The complete statistic of any kernel of pairs: blocks of points go round the workers until every pair has met."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.blocks import pool
from mpi_ustat.kernels.kernel import Kernel, Local, Meeting, PairSum, Points, Whole
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.ring import Ring
from mpi_ustat.mpi.runtime import Course, succeed_with_most
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints, Rows
from mpi_ustat.schemes.meetings import holdings, meeting, n_rounds_complete, one_sample_round, staying
from mpi_ustat.schemes.partition import Ordered, Travelling, block_bounds, travelling
from mpi_ustat.schemes.registry import SCHEMES

Sums = tuple[PairSum, ...]
_Found = tuple[Sums, Meeting | None]


def ring(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the sum of h over all pairs, and the components if the kernel has margins.  Collective.

    The larger sample's blocks stay with the N workers, the smaller one's go round, and each worker evaluates what
    visits it: every pair meets once in N steps. Of one sample, copies of the blocks go half the way round. A rank has
    no more than its own rows, the visitors' and those under way, which move while it evaluates.

    Components are those of the whole layout: what the pairs of a point add up to is kept where the point is, and
    travels with it if it does. Sums of squares about the mean are joined from those of the blocks: with q_b pairs of
    mean h̄_b in block b, Σ (h - h̄)² = Σ_b [Σ (h - h̄_b)² + q_b (h̄_b - h̄)²], in which nothing cancels.

    Raises
    ------
    UserError
        On every rank, if the kernel fails on any, as soon as it does; or if it isn't one of pairs.
    """
    if tuple(kernel.degrees) not in ((1, 1), (2,)):
        meets_all = next(name for name, scheme in SCHEMES.items() if scheme.blocks_travel)
        raise UserError(
            f"the kernel {kernel.name} is not one of pairs, for whose complete statistic there is a ring: "
            f'use scheme="{meets_all}"'
        )
    journey = Journey(samples, n_workers)
    before = sum(sample.bytes_sent for sample in samples)
    tallies = [_Tally() for _ in journey.workers]
    course = Course("blocks met", journey.n_steps * len(journey.workers))
    points = PointTotals(comm, journey) if components and kernel.has_margins else None
    for t in range(journey.n_steps):
        meetings = journey.meet(t)
        found, n_parts = succeed_with_most(
            comm,
            functools.partial(_evaluate_all, kernel, meetings, course, points is not None),
            lambda found: max((len(each[0]) for each in found if each), default=0),
            f"evaluating the kernel {kernel.name}",
            of_data=True,
        )
        for tally, each in zip(tallies, found, strict=True):
            if each:
                tally.add(each[0], None if each[1] is None else each[1].squares)
        if points is not None and n_parts:
            points.add(t, [each[1].points if each and each[1] else () for each in found], n_parts)
    sent = sum(sample.bytes_sent for sample in samples) - before
    everyone = comm.allgather([tally.joined() for tally in tallies])
    whole = [joined for of_rank in everyone for joined in of_rank if joined]
    if not whole:
        return Whole(Local((PairSum(0, 0),) * kernel.n_parts, None), sent)
    sums = tuple(map(pool, zip(*(of_worker for of_worker, _, _ in whole), strict=True)))
    if points is None or min(journey.sizes) < (2 if len(samples) == 2 else 4):
        return Whole(Local(sums, None), sent)
    means = _means(sums)
    squares = sum(
        (own + of_worker[0].n_pairs * np.outer(at - means, at - means) for of_worker, at, own in whole),
        start=np.zeros((len(sums),) * 2),
    )
    whole_components = points.components(means, squares) / kernel.scale**2
    return Whole(Local(sums, whole_components), sent + points.bytes_sent)


class Journey:
    """Who meets whom, and where: one sample's blocks stay at home, another's, or copies of them, travel.

    Attributes
    ----------
    sizes : tuple of int
        Of the samples.
    home, travels : int
        Which sample stays and which travels; the same if there is one.
    n_steps : int
        After which every pair has met.
    workers : range
        Those of this rank.
    bounds : list of ndarray of int64
        Of each sample's blocks.
    """

    def __init__(self, samples: Sequence[Exchange], n_workers: int) -> None:
        self._samples, self._n_workers = samples, n_workers
        self.sizes = tuple(sample.n_rows for sample in samples)
        self.home = staying(self.sizes)
        self.travels = len(samples) - 1 - self.home
        self.n_steps = n_rounds_complete((2,) if len(samples) == 1 else (1, 1), n_workers)
        self.workers = samples[0].workers
        self.bounds = [block_bounds(size, n_workers) for size in self.sizes]
        self._bases = [Ordered(bounds, None) for bounds in self.bounds]

    def holding(self, t: int) -> Ints:
        """Return the travelling block that is with each worker in step t."""
        if len(self.sizes) == 1:
            return one_sample_round(self._n_workers, t)
        found = holdings(self.sizes, self._n_workers, t)[self.travels]
        assert found is not None
        return found

    def meet(self, t: int) -> list[tuple[Points, ...]]:
        """Return the blocks whose pairs each worker evaluates in step t; those of the next begin to move.

        Collective.
        """
        at_home = self._samples[self.home].blocks(self._bases[self.home])
        travels = self._samples[self.travels]
        visitors = travels.visiting_blocks(self._visit(t))
        if t + 1 < self.n_steps:
            travels.prefetch(self._visit(t + 1))
        return self.facing(t, at_home, visitors)

    def facing(self, t: int, at_home: Sequence[Rows], visitors: Sequence[Rows]) -> list[tuple[Rows, ...]]:
        """Return, for each worker, the rows of what is at home and of what visits that belong to its pairs in step t.

        In the order of the samples; in step 0 of one sample a block meets itself, and is alone.
        """
        if len(self.sizes) == 2:
            first, second = (at_home, visitors) if self.home == 0 else (visitors, at_home)
            return list(zip(first, second, strict=True))
        if t == 0:
            return [(own,) for own in at_home]
        return [
            meeting(self._n_workers, t, worker, own, visitor)
            for worker, own, visitor in zip(self.workers, at_home, visitors, strict=True)
        ]

    def _visit(self, t: int) -> Travelling:
        return travelling(self._bases[self.travels], self.holding(t))


def _evaluate_all(
    kernel: Kernel, meetings: Iterable[tuple[Points, ...]], course: Course, margins: bool
) -> list[_Found | None]:
    """Return the values of `_evaluate` for each of this rank's workers."""
    return [_evaluate(kernel, blocks, margins) for blocks in course.announced(meetings)]


def _evaluate(kernel: Kernel, blocks: tuple[Points, ...], margins: bool) -> _Found | None:
    """Return the sums over the pairs of the blocks, with their margins if wanted; None if they have no pair."""
    sizes = [len(block) for block in blocks]
    n_pairs = math.comb(sizes[0], 2) if len(sizes) == 1 else math.prod(sizes)
    if not n_pairs:
        return None
    if margins:
        meeting = kernel.margins(*blocks)
        return meeting.sums, meeting
    across = len(blocks) > len(kernel.degrees)
    return (kernel.cross_sums if across else kernel.block_sums)(*blocks), None


class _Tally:
    """What the pairs of one worker add up to, and their squares about the mean."""

    def __init__(self) -> None:
        self._sums: list[Sums] = []
        self._n_pairs = 0
        self._means: Any = 0.0
        self._squares: Any = 0.0

    def add(self, sums: Sums, squares: Floats | None) -> None:
        """Join the pairs of one meeting."""
        self._sums.append(sums)
        if squares is not None:
            self._n_pairs += sums[0].n_pairs
            share = sums[0].n_pairs / self._n_pairs
            away = _means(sums) - self._means
            self._squares = self._squares + squares + np.outer(away, away) * (1.0 - share) * sums[0].n_pairs
            self._means = self._means + share * away

    def joined(self) -> tuple[Sums, Any, Any] | None:
        """Return sums, means and squares about these means; None without any pair."""
        if not self._sums:
            return None
        return tuple(map(pool, zip(*self._sums, strict=True))), self._means, self._squares


class PointTotals:
    """What each point's pairs add up to: sums of the points at home, and sums that travel with the visitors."""

    def __init__(self, comm: Any, journey: Journey) -> None:
        self._comm, self._journey = comm, journey
        self._at_home: list[Floats] = []
        self._travelling: Ring | None = None

    @property
    def bytes_sent(self) -> int:
        """Bytes of sums that this rank has sent."""
        return 0 if self._travelling is None else self._travelling.bytes_sent

    def add(self, t: int, found: Iterable[tuple[Rows, ...]], n_parts: int) -> None:
        """Add what the meetings of step t have found.  Collective."""
        journey = self._journey
        if self._travelling is None:
            mine = slice(journey.workers.start, journey.workers.stop)
            at_home, travelling = (np.diff(journey.bounds[k])[mine].tolist() for k in (journey.home, journey.travels))
            self._at_home = [np.zeros((size, n_parts)) for size in at_home]
            self._travelling = Ring(self._comm, np.zeros((sum(travelling), n_parts)), journey.bounds[journey.travels])
        visiting = self._moved(journey.holding(t))
        for targets, sums in zip(journey.facing(t, self._at_home, visiting), found, strict=True):
            for target, own in zip(targets, sums, strict=False):
                target += own
        if t + 1 < journey.n_steps:  # on their way while the next step is evaluated
            self._travelling.start(journey.holding(t + 1))

    def components(self, means: Floats, squares: Floats) -> Floats:
        """Return the components of the whole layout, from the means and squares of all pairs.  Collective."""
        sizes = self._journey.sizes
        if len(sizes) == 1:
            (n,) = sizes
            (both,) = self.totals()
            return one_sample_components(n, self._squares(both, n - 1, means), squares)
        n, m = sizes
        of_x, of_z = self.totals(self._journey.n_steps - 1)
        return two_sample_components(n, m, self._squares(of_x, m, means), self._squares(of_z, n, means), squares)

    def totals(self, t: int = 0) -> list[list[Floats]]:
        """Return the sums of each sample's blocks; of the one that travels, of those that visit in step t.  Collective.

        At step 0 each block is with its own worker.
        """
        journey = self._journey
        visiting = self._moved(journey.holding(t))
        if len(journey.sizes) == 1:
            return [[own + other for own, other in zip(self._at_home, visiting, strict=True)]]
        return [self._at_home, visiting] if journey.home == 0 else [visiting, self._at_home]

    def _moved(self, holding: Ints) -> list[Floats]:
        """Return the sums of the visitors that `holding` wants here."""
        assert self._travelling is not None
        self._travelling.start(holding)
        self._travelling.finish()
        return self._travelling.blocks

    def _squares(self, blocks: Sequence[Floats], n_partners: int, means: Floats) -> Floats:
        """Return Σ (r̄_a - h̄_a)(r̄_b - h̄_b) over the points of all blocks, added in the order of the workers."""
        centred = [block / n_partners - means for block in blocks]
        own = [each.T @ each for each in centred]
        return np.asarray(sum(each for of_rank in self._comm.allgather(own) for each in of_rank))


def _means(sums: Sums) -> Floats:
    return np.array([each.total / each.n_pairs for each in sums])
