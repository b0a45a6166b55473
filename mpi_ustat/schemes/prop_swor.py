"""Each sample spread afresh in each round: the paper's proportional sampling without replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes import k_samples
from mpi_ustat.schemes.designs import moving_sample, sizes_with_empty
from mpi_ustat.schemes.partition import Blocks, Partition
from mpi_ustat.schemes.scheme import Scheme, block_sizes, of_dealt_pairs, options_of, share_that_counts

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class PropSwor(Scheme):
    """Each sample over N blocks whose sizes differ by at most one, all assignments being equally likely.

    With ``move="smaller"`` the other samples stay where round 0 put them, which moves fewer rows for the same variance
    where N divides their sizes.
    """

    name = "prop-swor"
    title = "prop-SWOR"
    summary = "each sample spread uniformly over the workers, afresh in each round, in equal blocks"
    moves = ("both", "smaller")
    in_plans = True
    spreads_afresh = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return round `t`, of which every sample, or the smallest, has a permutation of its own."""
        samples = range(len(partition.sizes))
        if partition.move == "both":
            return tuple([partition.spread(k, t) for k in samples])
        moving = moving_sample(partition.sizes)
        if not partition.kept:
            partition.kept.update({k: partition.spread(k, 0) for k in samples if k != moving})
        return tuple([partition.spread(k, t) if k == moving else partition.kept[k] for k in samples])

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.prop_swor`."""
        options = options_of(design) | {"move": design.move}
        return k_samples.prop_swor(block_sizes(sizes, design)[0], n_rounds=design.n_rounds, **options)

    def coefficients_with_empty(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.swor`: given its block sizes it deals each sample so, and here they are fixed."""
        if design.move != "both":
            return super().coefficients_with_empty(sizes, design)
        n_ki = np.array([sizes_with_empty(size, design.n_workers) for size in sizes])
        rounds = np.repeat(n_ki[np.newaxis], design.n_rounds, axis=0)
        found = k_samples.swor(rounds, **options_of(design))
        return found * share_that_counts(n_ki.min(axis=0) > 0, design) ** 2

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of `one_sample.prop_swor`."""
        return of_dealt_pairs(block_sizes((n,), design)[0, 0], design)
