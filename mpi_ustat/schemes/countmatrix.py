"""How many rows go from each source block to each destination block under a uniformly random partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_ustat.numerics.types import Ints

_LIMIT = 10**9  # totals from which NumPy refuses hypergeometric draws, for want of precision
_FEW = 16  # items that are drawn one by one


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
        Block sizes n_i and c_j, of equal sums; any number of rows (see `hypergeometric` for 10⁹ and more).
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
        left = hypergeometric(halves[..., 0], halves[..., 1], drawn, generator)
        drawn = np.stack([left, drawn - left], axis=2).reshape(len(urns), -1)
    return drawn


def _padded(sizes: Sequence[int] | Ints) -> Ints:
    """Return the sizes followed by zeros up to a power of two, so that halving comes out even."""
    padded = np.zeros(1 << (len(sizes) - 1).bit_length(), dtype=np.int64)
    padded[: len(sizes)] = sizes
    return padded


def hypergeometric(good: Ints, bad: Ints, sample: Ints, generator: np.random.Generator) -> Ints:
    """Draw the numbers of good items among `sample` items drawn without replacement from ``good + bad``.

    Below 10⁹ items the draws are NumPy's. From there on, items are marked independently with probability p = sample /
    (good + bad): G ~ Bin(good, p) good ones and B ~ Bin(bad, p) bad ones. Given how many are marked, all sets of so
    many items are equally likely to be the marked ones. If G + B is too large by e, a uniformly random set of e marked
    items is given back; if it is too small, as many unmarked items are added. By symmetry every set of `sample` items
    is then equally likely, whatever p was rounded to, so that the good ones among them are hypergeometric:

        G - Hypergeometric(G, B, e)   or   G + Hypergeometric(good - G, bad - B, -e).

    e is of the size of √sample: the same is done for it, until NumPy can do it, or a few items are left to draw one by
    one by whole numbers. Binomial draws are added up from draws of fewer than 10⁹ trials, so that all floating-point
    work is of sizes for which NumPy's draws are made; their probabilities carry relative rounding errors of about 10⁻⁷.

    Parameters
    ----------
    good, bad, sample : ndarray of int64
        Of one shape; ``0 <= sample <= good + bad < 2**63``.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of int64
        Of the same shape.
    """
    many = good + bad >= _LIMIT
    if not many.any():
        return generator.hypergeometric(good, bad, sample)
    drawn = generator.hypergeometric(*(np.where(many, 0, each) for each in (good, bad, sample)))
    drawn[many] = [
        _of_many(*each, generator)
        for each in zip(good[many].tolist(), bad[many].tolist(), sample[many].tolist(), strict=True)
    ]
    return drawn


def _of_many(good: int, bad: int, sample: int, generator: np.random.Generator) -> int:
    if good + bad < _LIMIT:
        return int(generator.hypergeometric(good, bad, sample))
    if sample <= _FEW:
        left = good
        for drawn in range(sample):
            left -= int(generator.integers(good + bad - drawn) < left)
        return good - left
    p = sample / (good + bad)
    marked_good, marked_bad = (_binomial(n, p, generator) for n in (good, bad))
    excess = marked_good + marked_bad - sample
    if excess > 0:
        return marked_good - _of_many(marked_good, marked_bad, excess, generator)
    return marked_good + _of_many(good - marked_good, bad - marked_bad, -excess, generator)


def _binomial(n: int, p: float, generator: np.random.Generator) -> int:
    pieces, rest = divmod(n, _LIMIT - 1)
    return int(generator.binomial([_LIMIT - 1] * pieces + [rest], p).sum())
