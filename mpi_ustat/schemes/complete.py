"""All pairs: no partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes import k_samples, one_sample
from mpi_ustat.schemes.as_is import AsIs

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class Complete(AsIs):
    """The statistic of all pairs or tuples, or of B of them, as one worker finds it that has all the points."""

    name = "complete"
    summary = "all pairs, once"
    all_pairs = True

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.complete`."""
        return k_samples.complete(sizes, n_pairs=design.n_pairs, distinct=design.distinct)

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of `one_sample.prop_swor` of one block."""
        return one_sample.prop_swor((n,), n_pairs=design.n_pairs, distinct=design.distinct)
