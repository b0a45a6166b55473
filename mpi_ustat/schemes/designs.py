"""The principle of all variances of weighted averages of kernel values, and what their formulas are made of.

Everything rests on one principle. Let ``h(X_k, Z_l) - U = h₁(X_k) + h₂(Z_l) + h₀(X_k, Z_l)`` be the Hoeffding
decomposition of a two-sample kernel, with variances σ₁², σ₂², σ₀². For an average ``Û = Σ w_kl h(X_k, Z_l)`` whose
weights sum to one and are independent of the values (the *design*),

    Var(Û | design) = σ₁² Σ_k w_k.² + σ₂² Σ_l w_.l² + σ₀² Σ_kl w_kl²,     w_k. = Σ_l w_kl,  w_.l = Σ_k w_kl,

because ``Û - U = Σ_k w_k. h₁(X_k) + Σ_l w_.l h₂(Z_l) + Σ_kl w_kl h₀(X_k, Z_l)`` is a sum of terms that are pairwise
uncorrelated: E[h₀ | X] = E[h₀ | Z] = 0. When the design is random, the law of total variance finishes the work; with
weights summing to one the conditional mean is U whatever the design, so Var(Û) = E[Var(Û | design)].

By Cauchy–Schwarz, Σ w_k.² >= 1/n, Σ w_.l² >= 1/m, and Σ w_kl² >= 1/Q if at most Q distinct pairs have a weight.

Pure numbers: no communicator, no files. A variance has the square of the kernel's unit. Sizes, words and numbers that
are impossible raise ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.wording import count_of

Aggregate = Literal["mean", "pooled"]
"""``mean``: plain mean of the workers' values (the paper). ``pooled``: sum of all kernel values over their number."""

Empty = Literal["error", "zero", "skip"]
"""What a worker without a pair does: it is refused, contributes the value 0 (the paper), or is left out of the mean."""


def even_sizes(total: int, n_workers: int) -> Ints:
    """Return the sizes of `total` points cut into `n_workers` blocks as evenly as possible, longer blocks first."""
    if n_workers < 1:
        raise ValueError(f"the number of workers must be at least 1, not {n_workers}")
    if n_workers > total:
        raise ValueError(f"{count_of(total, 'point')} can't be shared by {n_workers} workers: some would get none")
    return sizes_with_empty(total, n_workers)


def sizes_with_empty(total: int, n_workers: int) -> Ints:
    """Return the sizes of `total` points cut into `n_workers` blocks, of which the last are empty if there are few."""
    quotient, remainder = divmod(total, n_workers)
    return quotient + (np.arange(n_workers) < remainder).astype(np.int64)


def check_rounds(n_rounds: int) -> None:
    """Raise ValueError unless `n_rounds` (T) is at least 1."""
    if n_rounds < 1:
        raise ValueError(f"the number of rounds must be at least 1, not {n_rounds}")


def check_sizes(sizes: ArrayLike, ndim: int) -> Ints:
    """Return `sizes` as an integer array of `ndim` dimensions."""
    given = np.asarray(sizes)
    array = given.astype(np.int64)
    if array.ndim != ndim or array.size == 0:
        wanted = count_of(ndim, "dimension")
        raise ValueError(f"block sizes must be a non-empty array of {wanted}, not of shape {array.shape}")
    if (array < 0).any() or (array != given).any():
        raise ValueError("block sizes must be whole numbers that are not negative")
    return array


def sampling_factor(n_pairs: int | None, block_pairs: ArrayLike, *, distinct: bool = False) -> Floats:
    """Return the factor c by which sampling B of a block's M pairs adds c·(σ² - V) to the block's variance V.

    Given the block's M kernel values, with mean U_i and s² = Σ(h - U_i)²/M, the mean of B of them has mean U_i and
    variance s²/B (drawn with replacement, as in the paper) or s²·(M - B)/(B (M - 1)) (B distinct pairs, the
    finite-population correction). And E s² = E h² - E U_i² = σ² - V.

    Parameters
    ----------
    n_pairs : int or None
        B; None means all the pairs, hence c = 0.
    block_pairs : array_like of int
        M, any shape. Blocks with M = 0 get c = 0. With `distinct`, so do blocks with M <= B: they evaluate every pair.
    distinct : bool
        Whether the B pairs are drawn without replacement.

    Returns
    -------
    ndarray
        Shape of `block_pairs`, without unit.
    """
    pairs = np.asarray(block_pairs, dtype=np.float64)
    if n_pairs is None:
        return np.zeros_like(pairs)
    if n_pairs < 1:
        raise ValueError(f"the number of pairs per worker must be at least 1, not {n_pairs}")
    if not distinct:
        return np.where(pairs > 0, 1.0 / n_pairs, 0.0)
    return np.asarray(np.maximum(pairs - n_pairs, 0.0) / (n_pairs * np.maximum(pairs - 1.0, 1.0)))


def worker_weights(block_pairs: ArrayLike, *, aggregate: Aggregate = "mean", empty: Empty = "error") -> Floats:
    """Return the weights ω_i of the local statistics in one round's value Σ ω_i U_i; each row sums to one.

    Parameters
    ----------
    block_pairs : array_like of int, shape (..., N)
        M_i = n_i m_i, the number of pairs each worker holds.
    aggregate : {"mean", "pooled"}
        ω_i = 1/N, or M_i / Σ M.
    empty : {"error", "skip"}
        With "skip", workers without a pair get weight 0 and the others share the weight.
    """
    pairs = np.asarray(block_pairs, dtype=np.float64)
    ok = pairs > 0
    if empty not in ("error", "skip"):
        raise ValueError(f"weights are defined for empty='error' or 'skip', not {empty!r}")
    if empty == "error" and not ok.all():
        raise ValueError("a worker has no pair: use fewer workers, or skip the workers without a pair")
    if not ok.any(axis=-1).all():
        raise ValueError("a round has no pair at all")
    if aggregate == "mean":
        raw = ok.astype(np.float64)
    elif aggregate == "pooled":
        raw = pairs
    else:
        raise ValueError(f"aggregate is 'mean' or 'pooled', not {aggregate!r}")
    weights: Floats = raw / raw.sum(axis=-1, keepdims=True)
    return weights


def round_shares(pairs: ArrayLike, aggregate: Aggregate) -> Floats:
    """Return the weight of each round, shape (T, 1): 1/T, or its share of all the pairs, given those of each worker."""
    per_round = np.asarray(pairs, dtype=np.float64).sum(axis=1, keepdims=True)
    if aggregate == "mean":
        per_round = np.ones_like(per_round)
    shares: Floats = per_round / per_round.sum()
    return shares


def moving_sample(sizes: Sequence[int]) -> int:
    """Return which sample moves if only one does: the smallest, of equal ones the last."""
    return len(sizes) - 1 - int(np.argmin(sizes[::-1]))


def deal_starts(sizes: Sequence[int], n_workers: int) -> tuple[int, ...]:
    """Return the worker from which "fixed-shuffle" deals each sample out.

    The k-th sample starts at worker k⌊N/2⌋ if an earlier one has the same size, or the two would travel together for
    ever and the same pairs would meet in every round; otherwise at worker 0.
    """
    return tuple(k * (n_workers // 2) % n_workers if size in sizes[:k] else 0 for k, size in enumerate(sizes))


def deal_order(size: int, n_workers: int, start: int) -> Ints:
    """Return the places, worker after worker, when place g is dealt to worker (g + start) mod N."""
    return np.concatenate([np.arange((i - start) % n_workers, size, n_workers) for i in range(n_workers)])


def deal_overlaps(size: int, n_workers: int, n_rounds: int, start: int) -> Iterator[Ints]:
    """Yield, for d = 0 … T-1, how many points worker i holds in some round and worker j d rounds later.

    Each round of "fixed-shuffle" applies the same permutation of places, `deal_order`, to the round before it, and
    keeps the blocks' sizes. So the table depends on the two rounds through their distance only, and not on the random
    order of round 0, which renames the points: O(T (n + N²)) in all.

    Yields
    ------
    ndarray of int, shape (N, N)
        The first is diagonal, with the block sizes.
    """
    block = np.repeat(np.arange(n_workers), np.roll(even_sizes(size, n_workers), start))
    deal = deal_order(size, n_workers, start)
    places = np.arange(size)
    for _ in range(n_rounds):
        yield _overlap(block[places], block, n_workers)
        places = places[deal]


def _overlap(first: Ints, second: Ints, n_workers: int) -> Ints:
    counts = np.bincount(first * n_workers + second, minlength=n_workers * n_workers)
    return counts.reshape(n_workers, n_workers)
