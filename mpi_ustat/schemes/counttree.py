"""How many rows go from each range of a sample to each destination block: a binary tree, of which a rank walks a part.

A node is a range of rows. It has the numbers of its rows in each destination block, which are those of its two halves
together. For example, of 8 rows for 2 workers the root has (4, 4); it may split into (3, 1) for the rows 0 … 3 and
(1, 3) for the rows 4 … 7, by a draw of its own stream of random numbers. A rank with the rows 6 and 7 draws at the root
and at the rows 4 … 7, and nowhere else. So N workers cost it N log₂ S draws where a sample has S ranges at the bottom,
and all ranks have found rows of one S×N matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mpi_ustat.numerics.types import Ints

_LIMIT = 10**9  # trials from which NumPy's binomial draws are not made for
_FEW = 16  # items that are drawn one by one, whatever the number of colours
_ROOT = 1


def walk(
    counts: Ints, first: int, last: int, at_most: int, generator_of: Callable[[int], np.random.Generator]
) -> Iterator[tuple[int, int, Ints]]:
    """Give the bottom ranges that hold some of the rows first … last-1, with their numbers of rows of each block.

    Parameters
    ----------
    counts : ndarray of int64, shape (N,)
        Sizes of the destination blocks, which are together as many as there are rows.
    first, last : int
        ``0 <= first < last <= counts.sum()``.
    at_most : int
        Rows of a range that is not halved any more.
    generator_of : callable
        Opens the stream of a node, by its number: 1 is the root, 2i and 2i + 1 are the halves of i.

    Yields
    ------
    start, stop : int
    of_range : ndarray of int64, shape (N,)
        The law of all of them together is that of `countmatrix.count_matrix`: given what a node has, each way to choose
        the rows of its left half among its rows is equally likely.
    """
    nodes = [(_ROOT, 0, int(counts.sum()), counts)]
    while nodes:
        node, start, stop, of_node = nodes.pop()
        if stop - start <= at_most:
            yield start, stop, of_node
            continue
        middle = (start + stop) // 2
        left = draw_items(of_node, middle - start, generator_of(node))
        if middle < last:
            nodes.append((2 * node + 1, middle, stop, of_node - left))
        if first < middle:
            nodes.append((2 * node, start, middle, left))


def draw_items(urn: Ints, n_items: int, generator: np.random.Generator) -> Ints:
    """Draw items from an urn without replacement; return how many there are of each colour.

    Every item is marked independently with probability p = n_items / (all items): Bin(urn[j], p) of colour j. Given how
    many are marked, all sets of so many items are equally likely to be the marked ones. If they are too many by e, a
    uniformly random set of e marked items is given back; if too few, as many unmarked ones are added. By symmetry every
    set of `n_items` is then equally likely, whatever p was rounded to: the multivariate hypergeometric law. e is of the
    size of √n_items, and drawn in the same way, until few items are left to draw one by one. That is 2 to 3 binomial
    draws a colour, which take a half of the time of one of NumPy's hypergeometric draws, and are made for any totals.

    Parameters
    ----------
    urn : ndarray of int64, shape (N,)
        Items of each colour, fewer than 2⁶³ together.
    n_items : int
        From 0 to all.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of int64, shape (N,)
    """
    total = int(urn.sum())
    if 2 * n_items > total:
        return urn - draw_items(urn, total - n_items, generator)
    if n_items <= max(_FEW, len(urn) // 4):
        return _one_by_one(urn, n_items, generator)
    marked = _binomial(urn, n_items / total, generator)
    excess = int(marked.sum()) - n_items
    if excess > 0:
        return marked - draw_items(marked, excess, generator)
    return marked + draw_items(urn - marked, -excess, generator)


def _one_by_one(urn: Ints, n_items: int, generator: np.random.Generator) -> Ints:
    """Draw items by their numbers, those that were drawn before again."""
    drawn, ends = np.empty(0, dtype=np.int64), np.cumsum(urn)
    while len(drawn) < n_items:
        drawn = np.union1d(drawn, generator.integers(ends[-1], size=n_items - len(drawn)))
    return np.bincount(np.searchsorted(ends, drawn, side="right"), minlength=len(urn))


def _binomial(trials: Ints, p: float, generator: np.random.Generator) -> Ints:
    """Draw numbers of successes, of very many trials piece by piece: of the sizes for which NumPy's draws are made."""
    drawn = generator.binomial(np.minimum(trials, _LIMIT), p)
    for j in np.flatnonzero(trials > _LIMIT).tolist():
        pieces, rest = divmod(int(trials[j]) - _LIMIT, _LIMIT)
        drawn[j] += generator.binomial([_LIMIT] * pieces + [rest], p).sum()
    return drawn
