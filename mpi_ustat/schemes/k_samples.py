"""Closed-form variances of distributed U-statistics of K samples, one point of each: VUS, and AUC with K = 2.

Let ``h(X_1, …, X_K) - U = Σ_S g_S(X_k: k ∈ S)`` be the Hoeffding decomposition over the non-empty subsets S of the
samples, σ_S² = Var g_S. An average ``Û = Σ w_τ h(X_τ)`` over tuples τ, whose weights sum to one and are independent of
the values, has

    Var(Û | design) = Σ_S σ_S² Σ_{τ_S} w_S(τ_S)²,     w_S(τ_S) = the weight of all the tuples with the points τ_S on S,

because Û - U = Σ_S Σ_{τ_S} w_S(τ_S) g_S is a sum of pairwise uncorrelated terms (E g_S = 0 given all but one of its
points). Worker i, of weight ω_i, gives each tuple of its block of n_ki points of sample k the weight ω_i/Π_k n_ki, and
so Π_{k∈S} n_ki choices of points of S the weight ω_i/Π_{k∈S} n_ki each: on disjoint blocks the sum over τ_S is
Σ_i ω_i²/Π_{k∈S} n_ki. The rest is two facts. If the T rounds are independent and alike given the data, with
conditional mean M and one-round variance V₁, the law of total variance gives for their average

    Var = Var(M) + E[Var(round | data)]/T = Var(M) + (V₁ - Var(M))/T;

whenever every tuple is as likely as any other to be evaluated, M = U_n and Var(M) = V_n, the variance of the complete
statistic. And the mean over B of a worker's M_i tuples adds ω_i² c_i (σ² - V_i), c_i = `designs.sampling_factor`, σ² =
Σ_S σ_S². The case K = 2 is the paper's: `mpi_ustat.paper.theory`.

Variances are linear in the components. The functions therefore return *coefficients*, one for each subset in the order
of `components.subsets`, such that Var(Û) = coefficients @ σ²; applied to covariance matrices of several parts they give
the covariance matrix of the parts' estimates. With ``distinct`` (B distinct tuples), a block with no more than B tuples
evaluates them all. Sizes are numbers of points; coefficients have no unit. What is impossible raises ValueError: a
block without a tuple that is not skipped, a round that has none at all, T < 1 or B < 1, or sizes that don't fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.inference.components import subsets
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.designs import (
    Aggregate,
    Empty,
    check_rounds,
    check_sizes,
    deal_overlaps,
    deal_starts,
    even_sizes,
    moving_sample,
    round_shares,
    sampling_factor,
    worker_weights,
)


def complete(sizes: Sequence[int], *, n_pairs: int | None = None, distinct: bool = False) -> Floats:
    """Return the coefficients 1/Π_{k∈S} n_k of the complete statistic, or of B tuples drawn from all (Blom 1976).

    Every tuple has the weight 1/Π_k n_k, hence each of the Π_{k∈S} n_k choices τ_S the weight 1/Π_{k∈S} n_k.

    Parameters
    ----------
    sizes : sequence of int, length K
        n_k.
    """
    return blocks(np.asarray(sizes)[:, None], n_pairs=n_pairs, distinct=distinct)


def blocks(
    sizes: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    empty: Empty = "error",
) -> Floats:
    """Return the coefficients Σ_i ω_i² [1/Π_{k∈S} n_ki + c_i (1 - 1/Π_{k∈S} n_ki)] of one round on disjoint blocks.

    So of shards taken as they lie ("as-is"), if the data are independent and identically distributed across them.
    ω_i is 1/N (mean) or Π_k n_ki/Q (pooled), Q their sum. Points of a block that is skipped carry no weight.

    Parameters
    ----------
    sizes : array_like of int, shape (K, N)
        n_ki; zeros are allowed with ``empty="skip"`` only.
    """
    n_ki = check_sizes(sizes, 2)
    tuples, local = _product(n_ki), _local(n_ki)
    omega = worker_weights(tuples, aggregate=aggregate, empty=empty)
    return _one_round(omega, local, tuples, n_pairs, distinct)


def prop_swor(
    sizes: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    move: Literal["both", "smaller"] = "both",
) -> Floats:
    """Return the coefficients when each of T rounds deals every sample to the workers by a fresh uniform permutation.

    Given the data every tuple is as likely as any other to be met, for any sizes, so M = U_n, and

        Var = V_n + (V₁ - V_n)/T,      V₁ as `blocks` gives it.

    If N divides every size, the coefficient of σ_S² is [1 + (N^{|S|-1} - 1)/T]/Π_{k∈S} n_k for complete blocks.

    ``move="smaller"`` deals only the smallest sample r (of equal ones the last) again after the first round. Given the
    data and the blocks of the others, the rounds are independent and alike, and M gives ω_i/(n_r Π_{k≠r} n_ki) to each
    tuple whose points, but the r-th, are in worker i's blocks. A choice τ_S has all the points that are not of sample r
    in the blocks of one worker, so by the principle

        Var(M) = Σ_S σ_S² n_r^{-[r∈S]} Σ_i ω_i²/Π_{k∈S∖r} n_ki       (1 in place of the last sum if S = {r}).

    Parameters
    ----------
    sizes : array_like of int, shape (K, N)
        n_ki >= 1, the same in every round.
    """
    n_ki = check_sizes(sizes, 2)
    check_rounds(n_rounds)
    if move not in ("both", "smaller"):
        raise ValueError(f"move is 'both' or 'smaller', not {move!r}")
    n_k = n_ki.sum(axis=1)
    one_round = blocks(n_ki, n_pairs=n_pairs, distinct=distinct, aggregate=aggregate)
    limit = complete(n_k) if move == "both" else _limit_when_one_moves(n_ki, aggregate)
    return limit + (one_round - limit) / n_rounds


def swor(
    sizes: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
) -> Floats:
    """Return the coefficients under SWOR given the realised block sizes, workers without a tuple being skipped.

    Given the sizes, which points of a sample a block holds is still uniform, so each round has mean U_n given the data
    and the rounds are independent. With r_t the weight of round t, 1/T (mean) or its share of all the tuples (pooled),

        Var = V_n + Σ_t r_t² (V_t - V_n),      V_t as `blocks` gives it.

    Parameters
    ----------
    sizes : array_like of int, shape (T, K, N)
        n_ki of every round; their sums over workers are the n_k in each.
    """
    n_tki = check_sizes(sizes, 3)
    n_k = n_tki[0].sum(axis=1)
    if (n_tki.sum(axis=2) != n_k).any():
        raise ValueError("every round must hold all the points: the sums of the block sizes differ")
    n_kti = n_tki.swapaxes(0, 1)
    tuples, local = _product(n_kti), _local(n_kti)
    omega = worker_weights(tuples, aggregate=aggregate, empty="skip")
    shares = round_shares(tuples, aggregate)[:, 0]
    limit = complete(n_k.tolist())
    rounds = _one_round(omega, local, tuples, n_pairs, distinct)
    found: Floats = limit + (rounds - limit[:, None]) @ shares**2
    return found


def prop_swr(
    n_points: Sequence[int],
    sizes: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
) -> Floats:
    """Return the coefficients when in each round worker i draws n_ki points of sample k with replacement.

    Two given draws of a sample are the same point with probability 1 (the same draw) or 1/n_k, so the expected sum of
    squares of the points' shares of a block is a_ki = 1/n_k + (1 - 1/n_k)/n_ki, independently in each sample. Hence
    the local statistic has V_i = Σ_S σ_S² Π_{k∈S} a_ki, and as the workers are independent given the data, with mean
    U_n,

        Var = V_n + Σ_i ω_i² [V_i - V_n + c_i (σ² - V_i)]/T.

    Parameters
    ----------
    n_points : sequence of int, length K
        n_k, the sizes of the samples that are drawn from.
    sizes : array_like of int, shape (K, N)
        n_ki >= 1.
    distinct : bool
        Whether the B tuples are distinct tuples of *positions* in the block (whose points may repeat).
    """
    n_ki = check_sizes(sizes, 2)
    check_rounds(n_rounds)
    tuples = _product(n_ki)
    omega = worker_weights(tuples, aggregate=aggregate)
    limit = complete(n_points)
    same = 1.0 / np.asarray(n_points, dtype=np.float64)[:, None]
    local = _per_subset(same + (1.0 - same) / n_ki)
    one_round = _one_round(omega, local, tuples, n_pairs, distinct)
    return limit + (one_round - limit * float((omega**2).sum())) / n_rounds


def rotation(
    sizes: ArrayLike,
    holdings: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "pooled",
) -> Floats:
    """Return the coefficients when every sample is cut into blocks once, and the blocks go from worker to worker.

    In round t worker i holds the blocks b_k(t, i). A choice τ_S of points in the blocks b_S has the weight
    ω_ti/Π_{k∈S} n_{k,b_k} from each worker and round that holds all of b_S, and there are Π_{k∈S} n_{k,b_k} such
    choices. With Ω_S(b_S) the sum of ω_ti over those workers and rounds,

        Var = Σ_S σ_S² Σ_{b_S} Ω_S(b_S)²/Π_{k∈S} n_{k,b_k}  +  Σ_ti ω_ti² c_ti (σ² - V_ti).

    Pooled, ω_ti = Π_k n_{k,b_k(t,i)}/Q; the mean has ω_ti = 1/(TN). If N divides every size and the samples are shifted
    by a_k(t), Ω_S depends on the differences d of the shifts alone and the coefficient of σ_S² is
    N^{|S|-1} Φ_S/Π_{k∈S} n_k, Φ_S = Σ_d D_S(d)²/T², D_S(d) = #{t : (a_k(t) - a_{k₀}(t) mod N)_{k∈S} = d}, k₀ the first
    of S. So Φ_S = 1 for single samples, and 1/T if no difference repeats; each pair of samples then meets evenly.

    Parameters
    ----------
    sizes : array_like of int, shape (K, N)
        n_kb >= 1, of the blocks.
    holdings : array_like of int, shape (T, K, N)
        b_k(t, i), in 0..N-1.
    """
    n_kb = check_sizes(sizes, 2)
    held = np.asarray(holdings, dtype=np.int64)
    if held.ndim != 3 or len(held) == 0 or held.shape[1:] != n_kb.shape:
        raise ValueError(f"holdings must have shape (rounds, {n_kb.shape[0]}, {n_kb.shape[1]}), not {held.shape}")
    n_samples, n_blocks = n_kb.shape
    if held.min() < 0 or held.max() >= n_blocks:
        raise ValueError(f"holdings must name blocks 0 to {n_blocks - 1}")
    b_kti = held.swapaxes(0, 1)
    n_kti = n_kb[np.arange(n_samples)[:, None, None], b_kti]
    tuples, local = _product(n_kti), _local(n_kti)
    omega = round_shares(tuples, aggregate) * worker_weights(tuples, aggregate=aggregate)
    exact = np.empty(len(local))
    # For each subset: the number of the combination of its blocks that each round and worker holds.
    groups: dict[tuple[int, ...], Ints] = {(): np.zeros(omega.size, dtype=np.int64)}
    for position, chosen in enumerate(subsets(n_samples)):
        combination = groups[chosen[:-1]] * n_blocks + b_kti[chosen[-1]].ravel()
        _, first, groups[chosen] = np.unique(combination, return_index=True, return_inverse=True)
        weights = np.bincount(groups[chosen], weights=omega.ravel())
        exact[position] = (weights**2 * local[position].ravel()[first]).sum()
    exact += _excess(omega, local, tuples, n_pairs, distinct).sum(axis=1)
    return exact


def fixed_shuffle(
    n_points: Sequence[int],
    n_workers: int,
    n_rounds: int,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
) -> Floats:
    """Return the coefficients of T rounds of "fixed-shuffle", whose partitions are known up to the points' names.

    Worker i gives each choice τ_S in its blocks the weight ω_i/Π_{k∈S} n_ki in every round, as block sizes stay. With
    O_k^d the table of the points of sample k that two workers share in two rounds at the distance d
    (`designs.deal_overlaps`), two workers share Π_{k∈S} O_k^d(i, j) choices, so the coefficient of σ_S² is

        T⁻² Σ_tt' Σ_ij (ω_i/Π_{k∈S} n_ki)(ω_j/Π_{k∈S} n_kj) Π_{k∈S} O_k^{|t-t'|}(i, j)  +  Σ_i ω_i² c_i (1 - V_i)/T.

    Parameters
    ----------
    n_points : sequence of int, length K
        n_k; blocks are as even as possible, and dealt as `schemes.partition.Partition` does.
    """
    check_rounds(n_rounds)
    starts = deal_starts(n_points, n_workers)
    deals = [deal_overlaps(n, n_workers, n_rounds, start) for n, start in zip(n_points, starts, strict=True)]
    n_ki = np.array([np.roll(even_sizes(n, n_workers), start) for n, start in zip(n_points, starts, strict=True)])
    tuples, local = _product(n_ki), _local(n_ki)
    omega = worker_weights(tuples, aggregate=aggregate)
    per_choice = omega * local
    exact = np.zeros(len(local))
    for distance, tables in enumerate(zip(*deals, strict=True)):
        # Two rounds in either order: the tables of the one order are the transposes of the other's.
        times = n_rounds if distance == 0 else 2 * (n_rounds - distance)
        for position, chosen in enumerate(subsets(len(tables))):
            shared = _product([tables[k] for k in chosen])
            exact[position] += times * float(per_choice[position] @ shared @ per_choice[position])
    return exact / n_rounds**2 + _excess(omega, local, tuples, n_pairs, distinct) / n_rounds


def _product(factors: ArrayLike) -> Floats:
    """Return the product over the first axis, as floats: numbers of tuples pass 2⁶³."""
    product: Floats = np.prod(np.asarray(factors, dtype=np.float64), axis=0)
    return product


def _per_subset(values: Floats) -> Floats:
    """Return Π_{k∈S} values[k] for every subset S: shape (K, …) to (2^K - 1, …)."""
    return np.array([_product(values[list(chosen)]) for chosen in subsets(len(values))])


def _local(sizes: Ints) -> Floats:
    """Return 1/Π_{k∈S} n_k, the coefficients of a block's complete statistic: shape (K, …) to (2^K - 1, …).

    An empty side counts as 1 here: such a block has the weight 0.
    """
    return _per_subset(1.0 / np.maximum(sizes, 1))


def _excess(omega: Floats, local: Floats, tuples: Floats, n_pairs: int | None, distinct: bool) -> Floats:
    """Return Σ_i ω_i² c_i (1 - V_i), what drawing B tuples on each worker adds: shape (2^K - 1, …, N) to (…)."""
    factor = sampling_factor(n_pairs, tuples, distinct=distinct)
    added: Floats = (omega**2 * factor * (1.0 - local)).sum(axis=-1)
    return added


def _one_round(omega: Floats, local: Floats, tuples: Floats, n_pairs: int | None, distinct: bool) -> Floats:
    """Return Σ_i ω_i² [V_i + c_i (1 - V_i)], the coefficients of independent workers: shape (2^K - 1, …, N) to (…)."""
    exact: Floats = (omega**2 * local).sum(axis=-1)
    return exact + _excess(omega, local, tuples, n_pairs, distinct)


def _limit_when_one_moves(sizes: Ints, aggregate: Aggregate) -> Floats:
    """Return the coefficients of Var(M) when the smallest sample, of equal ones the last, is dealt again each round."""
    n_k = sizes.sum(axis=1)
    moving = moving_sample(n_k.tolist())
    omega = worker_weights(_product(sizes), aggregate=aggregate)
    inverse = 1.0 / sizes
    inverse[moving] = 1.0
    fixed = (omega**2 * _per_subset(inverse)).sum(axis=1)
    return np.array(
        [
            (1.0 if chosen == (moving,) else share) / (n_k[moving] if moving in chosen else 1.0)
            for chosen, share in zip(subsets(len(n_k)), fixed, strict=True)
        ]
    )
