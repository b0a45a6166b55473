"""How many rows go from each source block to each destination block under a uniformly random partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_ustat.numerics.types import Ints


def count_matrix(
    sources: Sequence[int] | Ints, destinations: Sequence[int] | Ints, generator: np.random.Generator
) -> Ints:
    """Draw the random matrix C of block-to-block counts.

    C has the law of the counts when Σ sources rows are permuted uniformly and cut into the destination blocks: the
    multivariate hypergeometric law with both margins fixed,

        P(C) = Π_i n_i! Π_j c_j! / (n! Π_ij C_ij!).

    Given C, spreading each source block's rows over their destinations uniformly makes every assignment of rows to
    blocks equally likely: P(C)·Π_i Π_j C_ij!/n_i! = Π_j c_j!/n!, which does not depend on the assignment.

    Parameters
    ----------
    sources, destinations : sequence of int
        Block sizes n_i and c_j, of equal sums below 10⁹, from which on NumPy refuses hypergeometric draws, for want of
        precision; `counttree` knows no such limit.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (len(sources), len(destinations))

    Notes
    -----
    The source blocks are halved again and again; a group's counts are split between its halves by a multivariate
    hypergeometric draw, itself made by halving the destinations, for all groups at once: as many draws as C has
    entries, in log₂(sources)·log₂(destinations) calls.
    """
    sizes, counts = _padded(sources), _padded(destinations)[None, :]
    while len(counts) < len(sizes):
        groups = len(counts)
        first_half = sizes.reshape(groups, 2, -1).sum(axis=2)[:, 0]
        left = _draw_without_replacement(counts, first_half, generator)
        counts = np.stack([left, counts - left], axis=1).reshape(2 * groups, -1)
    return counts[: len(sources), : len(destinations)]


def _draw_without_replacement(urns: Ints, sizes: Ints, generator: np.random.Generator) -> Ints:
    """From each urn, a row of counts by colour, draw that many items; return the drawn counts by colour."""
    drawn, width = sizes[:, None], urns.shape[1]
    while width > 1:
        width //= 2
        halves = urns.reshape(len(urns), -1, 2, width).sum(axis=3)
        left = generator.hypergeometric(halves[..., 0], halves[..., 1], drawn)
        drawn = np.stack([left, drawn - left], axis=2).reshape(len(urns), -1)
    return drawn


def _padded(sizes: Sequence[int] | Ints) -> Ints:
    """Return the sizes followed by zeros up to a power of two, so that halving comes out even."""
    padded = np.zeros(1 << (len(sizes) - 1).bit_length(), dtype=np.int64)
    padded[: len(sizes)] = sizes
    return padded
