"""The rows where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes import k_samples
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition
from mpi_ustat.schemes.scheme import Scheme, block_sizes, if_empty, of_dealt_pairs, options_of, share_that_counts

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class AsIs(Scheme):
    """The shards as they are, of any sizes; variances are those of points that are over them by chance."""

    name = "as-is"
    summary = "the file cut into N runs, nothing moved"
    as_they_lie = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return even runs of the rows: what there is where nobody says where they are cut."""
        return tuple(Ordered(bounds, None) for bounds in partition.bounds)

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.blocks`."""
        (n_ki,) = block_sizes(sizes, design)
        found = k_samples.blocks(n_ki, empty=if_empty(design), **options_of(design))
        return found * share_that_counts(n_ki.min(axis=0) > 0, design) ** 2

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of one round of `one_sample.prop_swor`."""
        return of_dealt_pairs(block_sizes((n,), design)[0, 0], design)
