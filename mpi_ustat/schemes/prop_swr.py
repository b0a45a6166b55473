"""Blocks that are drawn with replacement: the paper's proportional sampling with replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes import k_samples, one_sample
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition
from mpi_ustat.schemes.scheme import NoClosedForm, Scheme, block_sizes, if_empty, options_of

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design


class PropSwr(Scheme):
    """Every worker draws as many points as a prop-swor block has, with replacement, from the whole of each sample."""

    name = "prop-swr"
    title = "prop-SWR"
    summary = "each worker's points drawn with replacement from the whole of each sample"
    with_replacement = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return round `t`."""
        blocks = []
        for k, (size, bounds) in enumerate(zip(partition.sizes, partition.bounds, strict=True)):
            draws = [
                partition.open(f"draw from sample {k}", t, worker=i).integers(size, n_rows)
                for i, n_rows in enumerate(np.diff(bounds).tolist())
            ]
            blocks.append(Ordered(bounds, np.concatenate(draws)))
        return tuple(blocks)

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.prop_swr`."""
        (n_ki,) = block_sizes(sizes, design)
        return k_samples.prop_swr(sizes, n_ki, n_rounds=design.n_rounds, **options_of(design))

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of `one_sample.multiplicities`: they depend on how often each point was drawn."""
        given = design.multiplicities
        if given is None:
            raise NoClosedForm(
                f"the variance of one sample under {self.name} depends on how often each point was drawn"
            )
        if np.shape(given)[:2] != (design.n_rounds, design.n_workers):
            raise ValueError(f"multiplicities are given for {np.shape(given)[:2]} rounds and workers")
        pairless = any(size**2 == squares for row in given for size, squares, _, _ in row)
        if pairless and design.empty == "zero" and design.aggregate == "mean":
            raise NoClosedForm("the variance has no closed form when draws of one point only, at random, count zero")
        options, sums = options_of(design) | {"empty": if_empty(design)}, np.array(given, dtype=np.float64)
        return one_sample.multiplicities(n, sums, **options)
