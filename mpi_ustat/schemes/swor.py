"""Closed-form variances under SWOR: all the n + m points dealt together, so that each block's class counts are random.

A block can lack a class. As in the paper it then contributes the value 0 (`variance_swor`: the estimator is biased),
or it is left out (`variance_swor_realised`). Notation and proofs as in `mpi_ustat.paper.theory`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes import k_samples
from mpi_ustat.schemes.designs import (
    Aggregate,
    Components,
    check_rounds,
    check_sizes,
    even_sizes,
    local_variance,
    one_round_variance,
    sampling_factor,
    variance_complete,
)
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, block_bounds
from mpi_ustat.schemes.scheme import NoClosedForm, Scheme, block_sizes, of_dealt_pairs, options_of

if TYPE_CHECKING:
    from mpi_ustat.schemes.variance import Design

_NEVER = 1e-20  # a chance that no probability is changed by


class Swor(Scheme):
    """The points of all samples permuted together and cut into N blocks, whose class counts are hypergeometric."""

    name = "swor"
    title = "SWOR"
    summary = "the points of all samples spread together, so that blocks have random numbers of each"
    empty = "skip"
    random_counts = True

    def round(self, partition: Partition, t: int) -> tuple[Blocks, ...]:
        """Return round `t`."""
        pooled = partition.open("permute all samples", t).permutation(sum(partition.sizes))
        cuts = block_bounds(len(pooled), partition.n_workers)
        blocks, first = [], 0
        for size in partition.sizes:
            ours = np.flatnonzero((pooled >= first) & (pooled < first + size))
            blocks.append(Ordered(np.searchsorted(ours, cuts).astype(np.int64), pooled[ours] - first))
            first += size
        return tuple(blocks)

    def coefficients(self, sizes: tuple[int, ...], design: Design) -> Floats:
        """Return those of `k_samples.swor`, given the block sizes, or of `variance_swor` if empty workers count 0."""
        if _zeros_count(design):
            return _with_zeros(sizes, design)[0]
        if design.block_sizes is None:
            raise ValueError("swor needs the realised block sizes")
        return k_samples.swor(block_sizes(sizes, design, design.n_rounds), **options_of(design))

    def square(self, sizes: tuple[int, ...], design: Design) -> float:
        """Return that of `variance_swor`."""
        return _with_zeros(sizes, design)[1] if _zeros_count(design) else 0.0

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of prop-swor, which it is of one sample."""
        return of_dealt_pairs(even_sizes(n, design.n_workers), design)


def _zeros_count(design: Design) -> bool:
    return design.empty == "zero" and design.aggregate == "mean"


def _with_zeros(sizes: tuple[int, ...], design: Design) -> tuple[Floats, float]:
    if len(sizes) != 2:
        raise NoClosedForm(f"swor with workers that count zero has no closed form for {len(sizes)} samples")
    return _unconditional(*sizes, design.n_workers, design.n_rounds, design.n_pairs, design.distinct)


@functools.lru_cache(maxsize=128)  # apart from the realised sizes, which differ from run to run and play no part
def _unconditional(
    n: int, m: int, n_workers: int, n_rounds: int, n_pairs: int | None, distinct: bool
) -> tuple[Floats, float]:
    def variance(components: Components, expectation: float) -> float:
        return variance_swor(
            components,
            n,
            m,
            n_workers,
            expectation=expectation,
            n_rounds=n_rounds,
            n_pairs=n_pairs,
            distinct=distinct,
        )

    units = np.eye(3).tolist()
    return np.array([variance(Components(*unit), 0.0) for unit in units]), variance(Components(0.0, 0.0, 0.0), 1.0)


def swor_bias_factor(n: int, m: int, n_workers: int) -> float:
    """Return p = E[Û]/U under SWOR with empty blocks counted as zero: the mean probability that a worker has a pair.

    A block of s of the n + m points lacks a class with probability p₀ = [C(m, s) + C(n, s)]/C(n + m, s); p = 1 - p₀,
    averaged over the two block sizes when N does not divide n + m.

    Raises
    ------
    ValueError
        If a sample is empty or N > n + m.
    """
    kinds, numbers = np.unique(_swor_sizes(n, m, n_workers), return_counts=True)
    return 1.0 - float(np.average([sum(_lacks(n, m, int(s))) for s in kinds], weights=numbers))


def share_with_tuples(sizes: Sequence[int], degrees: Sequence[int], n_workers: int) -> float:
    """Return the mean share of workers with at least d_k points of every sample k, all points being dealt together.

    For two samples of degree 1 it is `swor_bias_factor`.

    Parameters
    ----------
    sizes, degrees : sequence of int, length K
        n_k and d_k.
    n_workers : int
    """
    if tuple(degrees) == (1, 1):
        return swor_bias_factor(sizes[0], sizes[1], n_workers)
    kinds, numbers = np.unique(even_sizes(sum(sizes), n_workers), return_counts=True)
    return float(np.average([_has_enough(sizes, degrees, int(s)) for s in kinds], weights=numbers))


def _has_enough(sizes: Sequence[int], degrees: Sequence[int], s: int) -> float:
    """Return the probability that a block of s points has at least d_k of every sample.

    Its counts have the law of independent C_k ~ Bin(n_k, s/n), given that they add up to s: both are ∝ Π_k C(n_k, c_k).
    So it is P(Σ C_k = s, all C_k >= d_k)/P(Σ C_k = s), of laws of sums that are convolutions, which take O(K s) where
    what is less likely than `_NEVER` is left out.
    """
    total = sum(sizes)
    if s == total:
        return float(all(n >= degree for n, degree in zip(sizes, degrees, strict=True)))
    every, enough, first = np.ones(1), np.ones(1), 0
    for n, degree in zip(sizes, degrees, strict=True):
        counts, probability = _binomial(n, s / total)
        every = np.convolve(every, probability)
        enough = np.convolve(enough, np.where(counts >= degree, probability, 0.0))
        first += int(counts[0])
    return float(enough[s - first] / every[s - first])


def _binomial(n: int, chance: float) -> tuple[Ints, Floats]:
    """Return the values of Bin(n, chance) with a probability that counts, and these."""
    # By Bernstein's inequality, P(|C - μ| >= t) <= 2 exp(-t²/(2μ + 2t/3)).
    reach = math.sqrt(-2.0 * n * chance * math.log(_NEVER)) - math.log(_NEVER)
    counts = np.arange(max(0, math.floor(n * chance - reach)), min(n, math.ceil(n * chance + reach)) + 1)
    k = counts[:-1].astype(np.float64)
    logs = np.concatenate(([0.0], np.cumsum(np.log((n - k) / (k + 1.0) * chance / (1.0 - chance)))))
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def variance_swor(
    components: Components,
    n: int,
    m: int,
    n_workers: int,
    *,
    expectation: float,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance under SWOR, a worker without a pair contributing 0 and N always the divisor (the paper).

    All n + m points are dealt together to N blocks of s = (n + m)/N points (sizes that differ by one if N does not
    divide), so n₁ ~ Hypergeometric(n + m, n, s) of a block belong to x. Let ok_i = 1{worker i has both classes}, p =
    P(ok). Given the design, Û has mean U·N⁻¹ Σ ok_i and variance N⁻² Σ ok_i V_i, so by the law of total variance

        V₁ = N⁻² Σ_i E[ok_i V_i] + U² Var(N⁻¹ Σ ok_i)
           = {σ₁² E[ok/n₁] + σ₂² E[ok/m₁] + σ₀² E[ok/(n₁ m₁)]}/N + U² [p(1 - p) + (N - 1)(p₁₁ - p²)]/N   (equal blocks),

    with p₁₁ = P(ok₁ ok₂), from P(both lack a class). Given the data the conditional mean is p U_n, by symmetry, so
    Var = p² V_n + (V₁ - p² V_n)/T, and sampling B pairs adds N⁻² Σ_i E[ok_i c_i (σ² - V_i)]/T. The estimator is
    *biased*, with mean p U (`swor_bias_factor`), and a larger |U| means a larger variance; the "swor" cells of
    ``test_variance_of_every_cell`` simulate it, bias included.

    Parameters
    ----------
    expectation : float
        U = E h(X, Z).
    distinct : bool
        Whether pairs are drawn without replacement; a block with no more than B pairs then evaluates them all.

    Raises
    ------
    ValueError
        If a sample is empty, N > n + m, or T or B is impossible.
    """
    check_rounds(n_rounds)
    sizes = _swor_sizes(n, m, n_workers)
    kinds, numbers = np.unique(sizes, return_counts=True)
    within = np.zeros(len(kinds))
    sampled = np.zeros(len(kinds))
    for j, s in enumerate(kinds):
        counts, probability = _hypergeometric(n, m, int(s))
        pairs = counts * (s - counts)
        ok = pairs > 0
        local = local_variance(components, counts[ok], s - counts[ok])
        factor = sampling_factor(n_pairs, pairs[ok], distinct=distinct)
        within[j] = (probability[ok] * local).sum()
        sampled[j] = (probability[ok] * factor * (components.total - local)).sum()
    between = _variance_of_ok_share(n, m, kinds, numbers)
    limit = swor_bias_factor(n, m, n_workers) ** 2 * variance_complete(components, n, m)
    one_round = float((numbers * within).sum()) / n_workers**2 + expectation**2 * between
    excess = float((numbers * sampled).sum()) / n_workers**2
    return limit + (one_round - limit + excess) / n_rounds


def variance_swor_realised(
    components: Components,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
) -> float:
    """Return the variance under SWOR given the realised block sizes, workers without a pair being skipped.

    Given the sizes, which points of each class a block holds is still uniform, so each round has mean U_n given the
    data and the rounds are independent: Var = V_n + T⁻² Σ_t (V_t - V_n), V_t = Σ_i ω_i² [V_i + c_i (σ² - V_i)] over the
    M_t workers with a pair, ω_i = 1/M_t (mean) or n_i m_i/Q_t (pooled). The average of the rounds is unbiased.

    Parameters
    ----------
    sizes_x, sizes_z : array_like of int, shape (T, N)
        n_i and m_i of every round; each row sums to n, respectively m.
    distinct : bool
        Whether pairs are drawn without replacement; a block with no more than B pairs then evaluates them all.

    Raises
    ------
    ValueError
        If a round has no pair at all, rows have different sums, shapes differ, or B is impossible.
    """
    n_i, m_i = check_sizes(sizes_x, 2), check_sizes(sizes_z, 2)
    if n_i.shape != m_i.shape:
        raise ValueError(f"both samples need sizes of shape (T, N), not {n_i.shape} and {m_i.shape}")
    totals_x, totals_z = np.unique(n_i.sum(axis=1)), np.unique(m_i.sum(axis=1))
    if len(totals_x) > 1 or len(totals_z) > 1:
        raise ValueError("every round must hold all the points: the rows of the block sizes have different sums")
    complete = variance_complete(components, int(totals_x[0]), int(totals_z[0]))
    rounds = one_round_variance(components, n_i, m_i, n_pairs, distinct, aggregate, "skip")
    return complete + float((rounds - complete).sum()) / len(n_i) ** 2


def _swor_sizes(n: int, m: int, n_workers: int) -> Ints:
    if n < 1 or m < 1:
        raise ValueError(f"both samples need at least one point, not {n} and {m}")
    return even_sizes(n + m, n_workers)


def _hypergeometric(n: int, m: int, s: int) -> tuple[Ints, Floats]:
    """Return the support and probabilities of the number of x-points among s of n + m points drawn without replacement.

    From the ratio of neighbouring probabilities, summed in logarithms and normalised: no factorial of a large number.
    """
    counts = np.arange(max(0, s - m), min(n, s) + 1)
    k = counts[:-1].astype(np.float64)
    steps = np.log((n - k) * (s - k)) - np.log((k + 1.0) * (m - s + k + 1.0))
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _probability_of(count: int, n: int, m: int, s: int) -> float:
    counts, probability = _hypergeometric(n, m, s)
    inside = counts[0] <= count <= counts[-1]
    return float(probability[count - counts[0]]) if inside else 0.0


def _lacks(n: int, m: int, s: int) -> tuple[float, float]:
    """Return the probabilities that a block of s points has no z-point, and that it has no x-point."""
    return _probability_of(s, n, m, s), _probability_of(0, n, m, s)


def _variance_of_ok_share(n: int, m: int, kinds: Ints, numbers: Ints) -> float:
    """Return Var(N⁻¹ Σ_i ok_i) for `numbers[j]` blocks of `kinds[j]` points.

    Computed for the complements, that a block lacks a class, which have the same covariances.
    """
    lack = [sum(_lacks(n, m, int(s))) for s in kinds]
    total = 0.0
    for j, s in enumerate(kinds):
        total += int(numbers[j]) * lack[j] * (1.0 - lack[j])
        for k, r in enumerate(kinds):
            couples = int(numbers[j]) * (int(numbers[k]) - (j == k))
            if couples:
                total += couples * (_both_lack(n, m, int(s), int(r)) - lack[j] * lack[k])
    return total / int(numbers.sum()) ** 2


def _both_lack(n: int, m: int, s: int, r: int) -> float:
    """Return the probability that two blocks, of s and r points, both lack a class: xx, zz, xz or zx."""
    same = sum(_lacks(n, m, s + r))
    all_x, all_z = _lacks(n, m, s)
    # Given that the first block took s x-points, the second is drawn from the other n - s and all m; and the reverse.
    x_then_z = all_x * _lacks(n - s, m, r)[1] if all_x else 0.0
    z_then_x = all_z * _lacks(n, m - s, r)[0] if all_z else 0.0
    return same + x_then_z + z_then_x
