"""Point sums of any kernel of pairs: blocks of points go round the workers until every pair has met."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mpi_ustat.complete.ring import Journey, PointTotals
from mpi_ustat.errors import UserError
from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.totals import partners
from mpi_ustat.influence.trips import Trip
from mpi_ustat.kernels.kernel import Kernel, as_rows
from mpi_ustat.kernels.route import blocks_of_a_ring
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import Course, succeed_with_most
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.partition import block_bounds, bounds_of

Evaluate = Callable[..., tuple[Floats, ...]]
"""Takes the rows of two blocks, or of one, and returns for each the scale times Σ_j w_j h_ij of its points, (n, p)."""


def pairs(comm: Any, samples: Sequence[Sample], kernel: Kernel) -> tuple[list[PointSums], int]:
    """Return the scale times Σ_j w_j h_ij of all points, and the bytes that this rank has sent.  Collective.

    Every pair is evaluated once, in tiles whose places depend on the samples alone, as does the order in which a
    point's sums are added: the number of ranks changes no bit.

    Raises
    ------
    UserError
        On every rank, if the kernel fails on any; or if it doesn't say what each point of a block adds up to.
    """
    if tuple(kernel.degrees) not in ((1, 1), (2,)):
        raise UserError(
            f"the kernel {kernel.name} is not one of pairs, and has no sums of its own for each point: "
            "there are no influence values"
        )
    plain = all(sample.weights is None and sample.strata is None for sample in samples)
    if plain and kernel.has_margins:
        packed = [sample.rows for sample in samples]
        evaluate: Evaluate = functools.partial(_margins, kernel)
    else:
        packed, evaluate = pack(samples), tiled(kernel, samples)
    h, sent = met(comm, packed, evaluate, kernel.name)
    of_pairs, sent_too = partners(comm, samples)
    return [PointSums(*each) for each in zip(h, of_pairs, strict=True)], sent + sent_too


def _margins(kernel: Kernel, *blocks: Floats) -> tuple[Floats, ...]:
    return kernel.margins(*blocks).points


def pack(samples: Sequence[Sample]) -> list[Floats]:
    """Return rows that travel with their weights and strata, whose 64 bits are taken for a double's."""
    found = []
    for sample in samples:
        n = len(sample.rows)
        weights = np.ones(n) if sample.weights is None else sample.weights
        strata = np.zeros(n, dtype=np.int64) if sample.strata is None else sample.strata
        found.append(np.column_stack([as_rows(sample.rows).astype(np.float64), weights, strata.view(np.float64)]))
    return found


def tiled(kernel: Kernel, samples: Sequence[Sample]) -> Evaluate:
    """Return the function that evaluates packed rows in the kernel's tiles.

    Raises
    ------
    UserError
        If it has none.
    """
    if type(kernel).value_tiles is Kernel.value_tiles:
        kernel.value_tiles()
    as_numbers, grouped = samples[0].rows.ndim == 1, samples[0].strata is not None

    def evaluate(*blocks: Floats) -> tuple[Floats, ...]:
        points = [np.ascontiguousarray(block[:, 0] if as_numbers else block[:, :-2]) for block in blocks]
        weights = [block[:, -2].copy() for block in blocks]
        strata = [block[:, -1].copy().view(np.int64) for block in blocks]
        found: list[Floats] = []
        for rows, columns, h in kernel.value_tiles(*points):
            if not found:
                found = [np.zeros((len(block), len(h))) for block in blocks]
            if grouped:
                h = np.where(strata[0][rows, None] == strata[-1][columns], h, 0.0)
            found[0][rows] += (h * weights[-1][columns]).sum(axis=2).T
            found[-1][columns] += (h * weights[0][rows, None]).sum(axis=1).T
        return tuple(found)

    return evaluate


def met(comm: Any, packed: Sequence[Floats], evaluate: Evaluate, name: str) -> tuple[list[Floats], int]:
    """Return the sums over the pairs of each own point, (p, n) of each sample, and the bytes sent.  Collective.

    The blocks are those of the `ring` of complete statistics.
    """
    sizes = map(sum, zip(*comm.allgather([len(rows) for rows in packed]), strict=True))
    n_workers = blocks_of_a_ring([*sizes])
    samples = [Exchange(comm, rows, n_workers) for rows in packed]
    journey = Journey(samples, n_workers)
    sums, n_parts = PointTotals(comm, journey), 0
    course = Course("blocks met", journey.n_steps * len(journey.workers))
    for t in range(journey.n_steps):
        meetings = journey.meet(t)
        found, most = succeed_with_most(
            comm,
            functools.partial(_evaluated, evaluate, course.announced(meetings)),
            lambda found: max((own[0].shape[1] for own in found if own), default=0),
            f"evaluating the kernel {name}",
            of_data=True,
        )
        n_parts = max(n_parts, most)
        if n_parts:
            sums.add(t, found, n_parts)
    sent = sum(sample.bytes_sent for sample in samples)
    if not n_parts:
        return [np.zeros((1, len(rows))) for rows in packed], sent
    home = []
    for sample, blocks in zip(samples, sums.totals(), strict=True):
        found_home, n_bytes = _come_home(comm, sample, np.concatenate([*blocks, np.empty((0, n_parts))]), n_workers)
        home.append(found_home)
        sent += n_bytes
    return home, sent + sums.bytes_sent


def _evaluated(evaluate: Evaluate, meetings: Iterable[tuple[Floats, ...]]) -> list[tuple[Floats, ...]]:
    """Return the sums of the points of each meeting; nothing where there is no pair."""
    return [evaluate(*blocks) if _any_pair(blocks) else () for blocks in meetings]


def _any_pair(blocks: Sequence[Floats]) -> bool:
    return len(blocks[0]) > 1 if len(blocks) == 1 else min(map(len, blocks)) > 0


def _come_home(comm: Any, sample: Exchange, sums: Floats, n_workers: int) -> tuple[Floats, int]:
    """Return, for this rank's rows, (p, n), the sums of those of its workers' blocks that ranks have.  Collective."""
    homes = bounds_of(comm.allgather(len(sample.rows)))
    bounds = block_bounds(sample.n_rows, n_workers)
    start, stop = bounds[sample.workers.start], bounds[sample.workers.stop]
    within = np.clip(homes, start, stop)
    trip = Trip(comm, None, within[1:] - within[:-1])
    return np.ascontiguousarray(trip.out(sums).T), trip.bytes_sent
