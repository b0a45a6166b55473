"""Closed-form variances of distributed U-statistics of one sample and degree 2: Gini, variance, Kendall's tau.

Let ``h(X, Y) - U = g(X) + g(Y) + r(X, Y)`` be the Hoeffding decomposition of a symmetric kernel, ζ₁ = Var g and
δ = Var r = Var h - 2ζ₁. For ``Û = Σ_{k<l} w_kl h(X_k, X_l)`` with Σ w = 1 and w_k. = Σ_{l≠k} w_kl,

    Var(Û | design) = ζ₁ Σ_k w_k.² + δ Σ_{k<l} w_kl²,

since the terms of Û - U are pairwise uncorrelated (E[r | X] = 0). The formulas follow as in `k_samples`: rounds that
are independent and alike given the data, with conditional mean U_n, have Var = V_n + (V₁ - V_n)/T. The paper states its
theorems for two samples; these are their counterparts. (It presents Kendall's tau as two samples of degree 1; it is one
sample of degree 2, and its variance is found here.)

Variances are linear in ζ₁ and δ, so the functions return their *coefficients*, shape (2,), as those of `k_samples` do.
With ``distinct`` (B distinct pairs), a block with no more than B pairs evaluates them all. What is
impossible raises ValueError, as there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.designs import (
    Aggregate,
    Empty,
    check_rounds,
    check_sizes,
    deal_overlaps,
    even_sizes,
    round_shares,
    sampling_factor,
    worker_weights,
)

_TOTAL = np.array([2.0, 1.0])  # Var h = 2ζ₁ + δ


def complete(n: int) -> Floats:
    """Return 4/n and 2/(n(n-1)), of the mean over all n(n-1)/2 pairs: V_n (Hoeffding 1948)."""
    if n < 2:
        raise ValueError(f"a pair needs at least two points, not {n}")
    return _local([n])[:, 0]


def prop_swor(
    sizes: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    empty: Empty = "error",
) -> Floats:
    """Return the coefficients when each of T rounds deals the sample to the workers by a fresh uniform permutation.

    One round is Σ ω_i U_i on disjoint blocks, V₁ = Σ ω_i² V_i with V_i = 4ζ₁/n_i + 2δ/(n_i(n_i-1)), and the
    conditional mean given the data is U_n, for any sizes and ω_i = 1/N (mean) or q_i/Q, q_i = n_i(n_i-1)/2 (pooled):

        Var = V_n + (V₁ - V_n)/T + Σ ω_i² c_i (Var h - V_i)/T,     c_i = `designs.sampling_factor`.

    If N divides n, V₁ - V_n = 2δ (N-1)/((n-N)(n-1)). T = 1 is also the variance on shards taken as they lie.

    Parameters
    ----------
    sizes : array_like of int, shape (N,)
        n_i, at least 2 each unless `empty` is "skip".
    empty : {"error", "skip"}
        Whether workers without a pair are refused or left out.
    """
    n_i = check_sizes(sizes, 1)
    check_rounds(n_rounds)
    pairs = n_i * (n_i - 1) // 2
    omega = worker_weights(pairs, aggregate=aggregate, empty=empty)
    limit = complete(int(n_i.sum()))
    one_round = (omega**2 * _drawn(_local(n_i), pairs, n_pairs, distinct)).sum(axis=1)
    found: Floats = limit + (one_round - limit) / n_rounds
    return found


def multiplicity_sums(ids: ArrayLike) -> tuple[int, int, int, int]:
    """Return Σ c_k, Σ c_k², Σ c_k³ and Σ c_k⁴ of the numbers of times c_k that the row ids of a block occur in it."""
    values, times = np.unique(np.unique(ids, return_counts=True)[1], return_counts=True)
    counts = list(zip(values.tolist(), times.tolist(), strict=True))
    first, second, third, fourth = (sum(t * c**power for c, t in counts) for power in (1, 2, 3, 4))
    return first, second, third, fourth


def multiplicities(
    n: int,
    sums: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    empty: Empty = "error",
) -> Floats:
    """Return the coefficients when blocks are drawn with replacement (prop-SWR), pairs of the same point being dropped.

    Keeping the pairs of a point with itself would bias the statistic: its mean would be (1 - 1/n) U + E h(X, X)/n.
    Without them, a block of n₀ draws in which point k appears c_k times has D = (n₀² - Σ c²)/2 pairs, gives the pair k,
    l the weight c_k c_l/D, and has

        V_R = ζ₁ Σ_k [c_k (n₀ - c_k)/D]² + δ [(Σ c²)² - Σ c⁴]/(2 D²),

    a function of the power sums of c alone. Given the patterns of multiplicities, each block is drawn from all the
    relabellings of the points, hence has mean U_n given the data, independently of the others. For weights ω that are
    functions of the patterns (mean: 1/N in each round, 1/T a round; pooled: D/ΣD) therefore, as everywhere,

        Var = V_n + Σ ω² (V_R - V_n) + Σ ω² c (Var h - V_R),      c = `designs.sampling_factor` for B of the D pairs.

    (The expectation over the patterns has no closed form, D being random; given the patterns, none is needed.)

    Parameters
    ----------
    n : int
        Size of the sample that is drawn from.
    sums : array_like of int, shape (T, N, 4)
        `multiplicity_sums` of every block.
    empty : {"error", "skip"}
        Whether a block of only one point, which has no pair, is refused or left out.
    """
    array = np.asarray(sums, dtype=np.float64)
    if array.ndim != 3 or array.shape[2] != 4 or array.size == 0:
        raise ValueError(f"sums of multiplicities must have shape (rounds, workers, 4), not {array.shape}")
    size, squares, cubes, fourths = np.moveaxis(array, 2, 0)
    pairs = (size**2 - squares) / 2.0
    if empty == "error" and (pairs == 0).any():
        raise ValueError("a block drawn with replacement has the same point only, hence no pair")
    omega = round_shares(pairs, aggregate) * worker_weights(pairs, aggregate=aggregate, empty=empty)
    ones = np.maximum(pairs, 1.0)
    first = (size**2 * squares - 2.0 * size * cubes + fourths) / ones**2
    second = (squares**2 - fourths) / (2.0 * ones**2)
    block = np.array([first.ravel(), second.ravel()])
    limit = complete(n)
    drawn = _drawn(block, pairs.ravel(), n_pairs, distinct)
    found: Floats = limit + (omega.ravel() ** 2 * (drawn - limit[:, None])).sum(axis=1)
    return found


def fixed_shuffle(
    n: int,
    n_workers: int,
    n_rounds: int,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    empty: Empty = "error",
) -> Floats:
    """Return the coefficients of T rounds of "fixed-shuffle", whose partitions are known up to the points' names.

    Worker i gives each pair of its block the weight v_i = ω_i/q_i, q_i = n_i(n_i-1)/2, in every round, and each point
    in all v_i (n_i - 1) = 2ω_i/n_i. With O^d the overlaps of two rounds at the distance d (`designs.deal_overlaps`),
    in which two workers share O_ij points and O_ij(O_ij-1)/2 pairs,

        Var = T⁻² Σ_tt' Σ_ij [ζ₁ (2ω_i/n_i)(2ω_j/n_j) O_ij + δ v_i v_j O_ij(O_ij-1)/2] + Σ_i ω_i² c_i (Var h - V_i)/T.

    Parameters
    ----------
    n, n_workers, n_rounds : int
        n, N, T; blocks are as even as possible.
    """
    check_rounds(n_rounds)
    n_i = even_sizes(n, n_workers)
    pairs = n_i * (n_i - 1) // 2
    omega = worker_weights(pairs, aggregate=aggregate, empty=empty)
    per_point, per_pair = 2.0 * omega / n_i, omega / np.maximum(pairs, 1)
    exact = np.zeros(2)
    for distance, shared in enumerate(deal_overlaps(n, n_workers, n_rounds, 0)):
        # Two rounds in either order: the table of the one order is the transpose of the other's.
        times = n_rounds if distance == 0 else 2 * (n_rounds - distance)
        exact[0] += times * float(per_point @ shared @ per_point)
        exact[1] += times * float(per_pair @ (shared * (shared - 1) // 2) @ per_pair)
    local = _local(n_i)
    excess = (omega**2 * (_drawn(local, pairs, n_pairs, distinct) - local)).sum(axis=1)
    found: Floats = exact / n_rounds**2 + excess / n_rounds
    return found


def rotation(
    sizes: ArrayLike,
    n_rounds: int,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
) -> Floats:
    """Return the coefficients of T rounds of rotation, in which worker i pairs its block with a visiting block; pooled.

    Round 0 has the pairs inside the blocks; round s = 1 … ⌊(N-1)/2⌋ the pairs of blocks i and i + s (mod N); for even
    N a last, half round has the pairs of blocks i and i + N/2, i < N/2, of which worker i does the first ⌈n_i/2⌉ rows
    of block i and worker i + N/2 the others. ⌊N/2⌋ + 1 rounds have met every pair once. With Q the number of pairs
    met and c_k those that have point k, each pair has weight 1/Q, so

        Var = ζ₁ Σ_k (c_k/Q)² + δ/Q,

    which is 4ζ₁/n + δ/Q when N divides n: after every round each point is in equally many pairs. (A mean of the
    rounds never becomes U_n: the rounds have different numbers of pairs.)

    Incomplete, B pairs per worker and round, weighted by the pairs they stand for: add Σ (q/Q)² c (Var h - V) over
    workers and rounds, q the worker's pairs and V = 4ζ₁/n_i + 2δ/(n_i(n_i-1)) in round 0, ζ₁/a + ζ₁/b + δ/(a b) for a
    × b points after it. Workers have different numbers of pairs; with `distinct`, those with no more than B evaluate
    them all.

    Parameters
    ----------
    sizes : array_like of int, shape (N,)
        n_i >= 1.
    n_rounds : int
        T <= ⌊N/2⌋ + 1.
    """
    n_i = check_sizes(sizes, 1)
    n_workers = len(n_i)
    check_rounds(n_rounds)
    if n_i.min() == 0:
        raise ValueError("rotation needs at least one point on every worker")
    if n_rounds > n_workers // 2 + 1:
        raise ValueError(f"{n_workers // 2 + 1} rounds meet every pair of {n_workers} blocks: {n_rounds} are too many")
    meetings = n_i - 1
    pairs = [n_i * (n_i - 1) // 2]
    local = [_local(n_i)]
    for shift in range(1, n_rounds):
        right = np.roll(n_i, -shift)
        if 2 * shift < n_workers:
            rows = n_i
            meetings = meetings + right + np.roll(n_i, shift)
        else:
            half = n_workers // 2
            rows = np.concatenate([-(-n_i[:half] // 2), n_i[:half] // 2])
            right = np.concatenate([n_i[half:], n_i[half:]])
            meetings = meetings + np.roll(n_i, shift)
        pairs.append(rows * right)
        ones = np.maximum(rows, 1)
        local.append(np.array([1.0 / ones + 1.0 / right, 1.0 / (ones * right)]))
    met = np.concatenate(pairs)
    total = float(met.sum())
    if total == 0:
        raise ValueError("no pair is met: blocks of one point need at least two rounds")
    exact = np.array([float((n_i * (meetings / total) ** 2).sum()), 1.0 / total])
    blocks = np.concatenate(local, axis=1)
    found: Floats = exact + ((met / total) ** 2 * (_drawn(blocks, met, n_pairs, distinct) - blocks)).sum(axis=1)
    return found


def _local(sizes: ArrayLike) -> Floats:
    """Return 4/n_i and 2/(n_i(n_i-1)), shape (2, N); for a block of fewer than two points, of no use, those of two."""
    n_i = np.maximum(np.asarray(sizes, dtype=np.float64), 2.0)
    return np.array([4.0 / n_i, 2.0 / (n_i * (n_i - 1.0))])


def _drawn(local: Floats, pairs: ArrayLike, n_pairs: int | None, distinct: bool) -> Floats:
    """Return the coefficients of the mean over B of a block's pairs, given those over all of them."""
    return local + sampling_factor(n_pairs, pairs, distinct=distinct) * (_TOTAL[:, None] - local)
