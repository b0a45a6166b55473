"""A deal by the place in the order, the same in each round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes import k_samples, one_sample
from mpi_ustat.schemes.designs import deal_order, deal_starts, even_sizes
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, bounds_of
from mpi_ustat.schemes.scheme import Scheme, if_empty, options_of, share_that_counts

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class FixedShuffle(Scheme):
    """Round 0 is a prop-swor permutation; from each round to the next row g of the order is dealt to worker g mod N.

    So the repartitioning of data-processing engines does it, without drawing anything. It is soon periodic. The k-th of
    samples of equal sizes is dealt from worker k⌊N/2⌋ on, or the samples would travel together for ever and the same
    pairs meet in every round.
    """

    name = "fixed-shuffle"
    summary = "a deterministic deal of the rows that each round had"

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return round `t`, from the last one that was asked for if that was not later."""
        sizes, n_workers, samples = partition.sizes, partition.n_workers, range(len(partition.sizes))
        done, orders = partition.kept.get("dealt", (t + 1, []))
        if done > t:
            done, orders = 0, [partition.permute(k, 0).copy() for k in samples]
        starts = deal_starts(sizes, n_workers)
        deals = [deal_order(size, n_workers, start) for size, start in zip(sizes, starts, strict=True)]
        for _ in range(done, t):
            orders = [order[deal] for order, deal in zip(orders, deals, strict=True)]
        partition.kept["dealt"] = t, orders
        # Sizes don't change from round to round.
        bounds = [bounds_of(np.roll(np.diff(partition.bounds[k]), starts[k])) for k in samples]
        return tuple(map(Ordered, bounds, orders))

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.fixed_shuffle`."""
        return k_samples.fixed_shuffle(sizes, design.n_workers, design.n_rounds, **options_of(design))

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of `one_sample.fixed_shuffle`."""
        options = options_of(design) | {"empty": if_empty(design)}
        found = one_sample.fixed_shuffle(n, design.n_workers, design.n_rounds, **options)
        return found * share_that_counts(even_sizes(n, design.n_workers) > 1, design) ** 2
