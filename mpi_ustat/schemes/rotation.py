"""Blocks that travel from worker to worker, so that the same points never meet twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats, Ints, Rows
from mpi_ustat.schemes import k_samples, meetings, one_sample
from mpi_ustat.schemes.designs import moving_sample
from mpi_ustat.schemes.partition import Blocks, Partition, travelling
from mpi_ustat.schemes.prop_swor import PropSwor
from mpi_ustat.schemes.scheme import Scheme, Table, block_sizes, options_of
from mpi_ustat.wording import count_of

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class Rotation(Scheme):
    """Round 0 is a prop-swor partition, whose blocks then travel from worker to worker, but the largest sample's.

    When every tuple of points has met, the next round has a prop-swor partition of its own, and so on. Of one sample,
    each block visits itself in round 0, for the pairs inside it; in the others a worker evaluates the pairs that
    `meetings.meeting` gives it.
    """

    name = "rotation"
    summary = "one such partition, whose smaller blocks then move from worker to worker"
    aggregate = "pooled"
    in_plans = True
    blocks_travel = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return round `t`: of one sample the blocks at home and those visiting."""
        sizes, n_workers = partition.sizes, partition.n_workers
        single = len(sizes) == 1
        length = meetings.n_rounds_complete((2,) if single else (1,) * len(sizes), n_workers)
        cycle, place = divmod(t, length)
        if partition.kept.get("cycle") != cycle:
            bases = tuple(partition.spread(k, cycle * length) for k in range(len(sizes)))
            partition.kept.update(cycle=cycle, bases=bases)
        bases = partition.kept["bases"]
        if single:
            return bases[0], travelling(bases[0], meetings.one_sample_round(n_workers, place))
        holding = meetings.holdings(sizes, n_workers, place)
        return tuple(
            base if of_base is None else travelling(base, of_base) for base, of_base in zip(bases, holding, strict=True)
        )

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.rotation`."""
        held = _held(sizes, design)
        return k_samples.rotation(block_sizes(sizes, design)[0], held, **options_of(design))

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of `one_sample.rotation`."""
        options = options_of(design)
        if options.pop("aggregate") != "pooled":
            raise ValueError("rotation of one sample must be pooled: its rounds have different numbers of pairs")
        n_i = block_sizes((n,), design)[0, 0]
        return one_sample.rotation(n_i, design.n_rounds, **options)

    def n_rounds_complete(self, degrees: Sequence[int], n_workers: int) -> int:
        """Return the number of rounds of one rotation."""
        if tuple(degrees) != (2,) and set(degrees) != {1}:
            raise UserError(
                f"{self.name} is for kernels of one point of each sample or two of one sample, not of "
                f'{" and ".join(map(str, degrees))} points: use scheme="{PropSwor.name}"'
            )
        return meetings.n_rounds_complete(degrees, n_workers)

    def meeting(self, n_workers: int, t: int, worker: int, home: Rows, visitor: Rows) -> tuple[Rows, Rows]:
        """Return all rows, or half of them where two blocks meet on two workers."""
        return meetings.meeting(n_workers, t, worker, home, visitor)

    def holdings_table(self, sizes: Sequence[int], n_workers: int, n_rounds: int) -> Table | None:
        """Return which block of each sample each worker has in each round; of two samples it is known."""
        if len(sizes) <= 2:
            return None
        here = tuple(range(n_workers))
        return tuple(
            tuple(
                here if blocks is None else tuple(blocks.tolist()) for blocks in meetings.holdings(sizes, n_workers, t)
            )
            for t in range(n_rounds)
        )


def _held(sizes: tuple[int, ...], design: Design) -> Ints:
    """Return the blocks that each worker holds in each round of a design, shape (T, K, N)."""
    n_workers, n_rounds = design.n_workers, design.n_rounds
    if design.holdings is not None:
        held = np.array(design.holdings, dtype=np.int64)
        if held.shape != (n_rounds, len(sizes), n_workers):
            raise ValueError(f"holdings have shape {held.shape}, not {(n_rounds, len(sizes), n_workers)}")
        return held
    if len(sizes) > 2:
        raise ValueError(f"rotation of {len(sizes)} samples needs its holdings")
    if n_rounds > n_workers:
        every = count_of(n_workers, "rotation meets", "rotations meet")
        raise ValueError(f"{every} every pair: {n_rounds} rounds are too many")
    workers = np.arange(n_workers)
    held = np.broadcast_to(workers, (n_rounds, len(sizes), n_workers)).copy()
    held[:, moving_sample(sizes)] = (workers - np.arange(n_rounds)[:, None]) % n_workers
    return held
