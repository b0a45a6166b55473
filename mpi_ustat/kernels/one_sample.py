"""Symmetric kernels h(x, y) of two points of one sample, whose blocks also meet each other."""

from __future__ import annotations

import numpy as np

from mpi_ustat.kernels.kernel import Kernel, Local, OfMatrix, PairSum, Points, Total
from mpi_ustat.numerics.types import Floats

FEWEST = 4
"""Points that a block needs for components of one sample."""


def sums_across(kernel: Kernel, x: Points, y: Points) -> tuple[PairSum, ...]:
    """Return the sums over the pairs across two disjoint blocks: those inside both together, less those inside each."""
    whole, *inside = (kernel.block_sums(block) for block in (np.concatenate([x, y]), x, y))
    return tuple(
        PairSum(union.total - sum(part.total for part in parts), len(x) * len(y))
        for union, *parts in zip(whole, *inside, strict=True)
    )


class OneSampleKernel(OfMatrix):
    """A kernel of two points of one sample, whose blocks also meet each other.

    Attributes
    ----------
    across : OnePart
        The same h as a kernel of two samples, for the pairs with one point in each of two disjoint blocks.
    """

    samples = (1,)
    degrees = (2,)
    across: OfMatrix

    def pairs_total(self, x: Points, y: Points) -> Total:
        """Return scale times the sum of h over aligned pairs."""
        return self.across.pairs_total(x, y)

    def cross_total(self, x: Points, y: Points) -> Total:
        """Return scale times the sum of h over the pairs that take a point from each of two disjoint blocks."""
        return self.across.block_total(x, y)

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        """Return the sum over those pairs, with their number."""
        return (PairSum(self.cross_total(x, y), len(x) * len(y)),)

    def cross_local(self, x: Points, y: Points) -> Local:
        """Return `cross_sums`, and ζ₁ and δ of the layout that the two blocks make, where there is one.

        Its rows and columns are effects of one law: ζ₁ is the mean of var_x and var_z, δ is var_xz.
        """
        sums, found = self.across.local(x, y)
        return Local(sums, None if found is None else np.array([(found[0] + found[1]) / 2.0, found[2]]))

    def ready(self, x: Points, z: Points) -> tuple[Points, Points]:
        """Return blocks as `matrix` takes parts of them."""
        return self.across.ready(x, z)

    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs of two blocks."""
        return self.across.matrix(x, y)


def centred(x: Points) -> Points:
    """Return x - x̄, rounded in the last bits of differences between points, however far from 0 they lie."""
    differences = x - x[0]
    return np.asarray(differences - differences.mean())
