"""Ascending chains through ordered classes of scores, counted: by transfer matrices, and up to each point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats, Ints

Matrix = list[list[int]]

_INT64 = 1 << 63
_PIECE = 1 << 14  # scores whose sums are found at a time: what comes in between stays in a core's cache


def class_counts(classes: Sequence[Runs]) -> Ints:
    """Return how many points of each class have each distinct score, shape (K, D), scores in ascending order."""
    scores = np.unique(np.concatenate([each.values for each in classes]))
    return np.array([np.diff(each.up_to(scores), prepend=0) for each in classes])


def transfer_matrix(counts: Ints, *, shared: bool) -> Matrix:
    """Return the contribution of a range of scores to chains that enter it with a classes done and leave it with b.

    Let E[a][b] be the sum of credits over the choices of a point of each of the classes a+1 … b in the range that are
    in order (E[a][a] = 1). A chain through two neighbouring ranges leaves the first with some number of classes done,
    and no tie crosses the border, so the matrix of both ranges is the product E·E'. A range of a single score v, of
    which class l has c_l points, has E[a][b] = Π_{a<l≤b} c_l/(b - a)!; strictly it has c_{a+1} for b = a + 1, nothing
    for b > a + 1. Multiplied by (b - a)! (shared) all entries are whole numbers, T = (b - a)!·E, and products get
    binomial factors, see `chained`.

    Many scores are done at once: I_b(v), the entry of the scores below v, grows by

        Σ_{j=1}^{b-a} C(b-a, j) I_{b-j}(v) Π_{b-j<l≤b} c_l(v)         (strict: I_{b-1}(v) c_b(v))

    from v to the next score, which needs only I of smaller b: one cumulative sum over the scores for each b. A range
    whose entries might pass 2⁶³ is halved. ``[0][K]`` is the scaled sum of h over all tuples in the range.
    """
    n_classes, n_scores = counts.shape
    sizes = [max(size, 1) for size in counts.sum(axis=1).tolist()]
    matrix = [[int(a == b) for b in range(n_classes + 1)] for a in range(n_classes + 1)]
    if n_scores == 1:
        for a in range(n_classes):
            for b in range(a + 1, n_classes + 1 if shared else a + 2):
                matrix[a][b] = math.prod(counts[a:b, 0].tolist())
    elif n_scores > _PIECE or (n_scores and (math.factorial(n_classes) if shared else 1) * math.prod(sizes) >= _INT64):
        half = n_scores // 2
        return chained(
            transfer_matrix(counts[:, :half], shared=shared),
            transfer_matrix(counts[:, half:], shared=shared),
            shared=shared,
        )
    elif n_scores:
        for a in range(n_classes):
            before: list[Any] = [1]  # I_a, I_{a+1}, …
            for b in range(a + 1, n_classes + 1):
                growth, product = np.zeros(n_scores, dtype=np.int64), np.ones(n_scores, dtype=np.int64)
                for j in range(1, b - a + 1 if shared else 2):
                    product = product * counts[b - j]
                    growth += (math.comb(b - a, j) if shared else 1) * before[b - a - j] * product
                after = np.cumsum(growth)
                matrix[a][b] = int(after[-1])
                before.append(after - growth)
    return matrix


def chained(low: Matrix, high: Matrix, *, shared: bool) -> Matrix:
    """Return the transfer matrix of two neighbouring ranges: T[a][c] = Σ_b C(c-a, b-a) low[a][b] high[b][c].

    The binomial factor is (c-a)!/((b-a)! (c-b)!), from the factorials in T; strictly it is 1.
    """
    size = len(low)
    return [
        [
            sum((math.comb(c - a, b - a) if shared else 1) * low[a][b] * high[b][c] for b in range(a, c + 1))
            for c in range(size)
        ]
        for a in range(size)
    ]


def chains_below(classes: Sequence[Points]) -> Floats:
    """Return, for each point of the last class, the number of ascending chains of points of all before it below it."""
    chains: Floats = np.ones(len(classes[0]))
    for lower, higher in itertools.pairwise(classes):
        order = np.argsort(lower)
        below = np.concatenate([[0.0], np.cumsum(chains[order])])
        chains = below[np.searchsorted(lower[order], higher, side="left")]
    return chains
