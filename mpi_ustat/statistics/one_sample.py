"""Closed-form variances of distributed U-statistics of one sample and degree 2: Gini, variance, Kendall's tau.

Let ``h(X, Y) - U = g(X) + g(Y) + r(X, Y)`` be the Hoeffding decomposition of a symmetric kernel, ζ₁ = Var g and
δ = Var r = Var h - 2ζ₁. For ``Û = Σ_{k<l} w_kl h(X_k, X_l)`` with Σ w = 1 and w_k. = Σ_{l≠k} w_kl,

    Var(Û | design) = ζ₁ Σ_k w_k.² + δ Σ_{k<l} w_kl²,

since the terms of Û - U are pairwise uncorrelated (E[r | X] = 0). The formulas follow as in
`mpi_ustat.statistics.theory`: rounds that are independent and alike given the data, with conditional mean U_n, have
Var = V_n + (V₁ - V_n)/T. The paper states its theorems for two samples; these are their counterparts. (It presents
Kendall's tau as two samples of degree 1; it is one sample of degree 2, and its variance is found here.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.statistics.designs import (
    Aggregate,
    Floats,
    check_rounds,
    check_sizes,
    refuse_too_many_pairs,
    sampling_factor,
    worker_weights,
)


@dataclass(frozen=True)
class OneSampleComponents:
    """Hoeffding components of a symmetric kernel of one sample and degree 2.

    Attributes
    ----------
    zeta1 : float
        ζ₁ = Var(E[h(X, Y) | X]).
    delta : float
        δ = Var(h) - 2ζ₁. Unbiased estimates of either may be negative.
    """

    zeta1: float
    delta: float

    @property
    def total(self) -> float:
        """Var(h(X, Y)) = 2ζ₁ + δ."""
        return 2.0 * self.zeta1 + self.delta


def variance_complete(components: OneSampleComponents, n: int) -> float:
    """Return V_n = 4ζ₁/n + 2δ/(n(n-1)), the variance of the mean over all n(n-1)/2 pairs (Hoeffding 1948).

    Raises
    ------
    ValueError
        If n < 2.
    """
    if n < 2:
        raise ValueError(f"a pair needs at least two points, not {n}")
    return float(_block_variance(components, n))


def variance_prop_swor(
    components: OneSampleComponents,
    sizes: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
) -> float:
    """Return the variance when each of T rounds deals the sample to the workers by a fresh uniform permutation.

    One round is Σ ω_i U_i on disjoint blocks, V₁ = Σ ω_i² V_i with V_i = 4ζ₁/n_i + 2δ/(n_i(n_i-1)), and the
    conditional mean given the data is U_n, for any sizes and ω_i = 1/N (mean) or q_i/Q, q_i = n_i(n_i-1)/2 (pooled):

        Var = V_n + (V₁ - V_n)/T + Σ ω_i² c_i (Var h - V_i)/T,     c_i = `designs.sampling_factor`.

    If N divides n, V₁ - V_n = 2δ (N-1)/((n-N)(n-1)). T = 1 is also the variance on shards taken as they lie.

    Parameters
    ----------
    sizes : array_like of int, shape (N,)
        n_i, at least 2 each.

    Raises
    ------
    ValueError
        If a block has no pair, or T or B is impossible.
    """
    n_i = check_sizes(sizes, 1)
    check_rounds(n_rounds)
    pairs = n_i * (n_i - 1) // 2
    if pairs.min() == 0:
        raise ValueError("a worker has no pair: every block needs at least two points")
    refuse_too_many_pairs(n_pairs, pairs, distinct=distinct)
    omega = worker_weights(pairs, aggregate=aggregate)
    complete = variance_complete(components, int(n_i.sum()))
    local = _block_variance(components, n_i)
    factor = sampling_factor(n_pairs, pairs, distinct=distinct)
    one_round = float((omega**2 * (local + factor * (components.total - local))).sum())
    return complete + (one_round - complete) / n_rounds


def variance_prop_swr(components: OneSampleComponents, n: int, draws: ArrayLike) -> float:
    """Return the variance when blocks are drawn with replacement and pairs of the same point are dropped.

    Keeping the pairs of a point with itself would bias the statistic: its mean would be (1 - 1/n) U + E h(X, X)/n.
    Without them, a block in which point k appears c_k times has D = (n₀² - Σ c²)/2 pairs, gives the pair k, l the
    weight c_k c_l/D, and has

        V_R = ζ₁ Σ_k [c_k (n₀ - c_k)/D]² + δ [(Σ c²)² - Σ c⁴]/(2 D²).

    Given its pattern of multiplicities, a block is drawn from all the relabellings of the points, hence has mean U_n
    given the data, independently of the others: with V̄_R the mean over the N T blocks, Var = V_n + (V̄_R - V_n)/(N
    T).

    Parameters
    ----------
    n : int
        Size of the sample that is drawn from.
    draws : array_like of int, shape (N T, n₀)
        The row ids, in 0..n-1, that were drawn for each worker and round; the variance is given their multiplicities.

    Raises
    ------
    ValueError
        If the shape or an id is not as said, or all the draws of a block are the same point.
    """
    ids = np.asarray(draws, dtype=np.int64)
    if ids.ndim != 2 or ids.size == 0 or ids.min() < 0 or ids.max() >= n:
        raise ValueError(f"draws must have shape (blocks, points) and name rows 0 to {n - 1}")
    block = [_multiplicity_variance(components, np.unique(row, return_counts=True)[1]) for row in ids]
    complete = variance_complete(components, n)
    return complete + (float(np.mean(block)) - complete) / len(ids)


def variance_rotation(
    components: OneSampleComponents,
    sizes: ArrayLike,
    n_rounds: int,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance of T rounds of rotation, in which worker i pairs its block with a visiting block; pooled.

    Round 0 has the pairs inside the blocks; round s = 1 … ⌊(N-1)/2⌋ the pairs of blocks i and i + s (mod N); for even
    N a last, half round has the pairs of blocks i and i + N/2, i < N/2, of which worker i does the first ⌈n_i/2⌉ rows
    of block i and worker i + N/2 the others. ⌊N/2⌋ + 1 rounds have met every pair once. With Q the number of pairs
    met and c_k those that have point k, each pair has weight 1/Q, so

        Var = ζ₁ Σ_k (c_k/Q)² + δ/Q,

    which is 4ζ₁/n + δ/Q when N divides n: after every round each point is in equally many pairs. (A mean of the
    rounds never becomes U_n: the rounds have different numbers of pairs.)

    Incomplete, B pairs per worker and round, weighted by the pairs they stand for: add Σ (q/Q)² c (Var h - V) over
    workers and rounds, q the worker's pairs and V = 4ζ₁/n_i + 2δ/(n_i(n_i-1)) in round 0, ζ₁/a + ζ₁/b + δ/(a b) for a
    × b points after it.

    Parameters
    ----------
    sizes : array_like of int, shape (N,)
        n_i >= 1.
    n_rounds : int
        T <= ⌊N/2⌋ + 1.

    Raises
    ------
    ValueError
        If a block is empty, no pair is met, or T or B is impossible.
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
    # A block of one point has no pair and no variance: the 2 only keeps its unused entry finite.
    local = [_block_variance(components, np.maximum(n_i, 2))]
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
        local.append(components.zeta1 / ones + components.zeta1 / right + components.delta / (ones * right))
    met = np.concatenate(pairs)
    total = float(met.sum())
    if total == 0:
        raise ValueError("no pair is met: blocks of one point need at least two rounds")
    refuse_too_many_pairs(n_pairs, met, distinct=distinct)
    exact = components.zeta1 * float((n_i * (meetings / total) ** 2).sum()) + components.delta / total
    factor = sampling_factor(n_pairs, met, distinct=distinct)
    excess = ((met / total) ** 2 * factor * (components.total - np.concatenate(local))).sum()
    return float(exact + excess)


def _block_variance(components: OneSampleComponents, sizes: ArrayLike) -> Floats:
    """Return V_i = 4ζ₁/n_i + 2δ/(n_i(n_i-1)) for blocks of at least two points."""
    n_i = np.asarray(sizes, dtype=np.float64)
    return np.asarray(4.0 * components.zeta1 / n_i + 2.0 * components.delta / (n_i * (n_i - 1.0)))


def _multiplicity_variance(components: OneSampleComponents, counts: NDArray[np.int64]) -> float:
    """Return V_R of a block whose points appear `counts` times."""
    c = counts.astype(np.float64)
    size, squares = c.sum(), (c**2).sum()
    pairs = (size**2 - squares) / 2.0
    if pairs == 0:
        raise ValueError("a block drawn with replacement has the same point only, hence no pair")
    first = ((c * (size - c) / pairs) ** 2).sum()
    second = (squares**2 - (c**4).sum()) / (2.0 * pairs**2)
    return float(components.zeta1 * first + components.delta * second)
