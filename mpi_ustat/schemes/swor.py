"""Closed-form variances under SWOR: all the n + m points dealt together, so that each block's class counts are random.

A block can lack a class. As in the paper it then contributes the value 0 (`of_two_with_zeros`: the estimator is
biased), or it is left out (`k_samples.swor`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes import k_samples
from mpi_ustat.schemes.designs import check_rounds, even_sizes, sampling_factor
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
        """Return those of `k_samples.swor`, given the block sizes, or of `of_two_with_zeros`."""
        if _zeros_count(design):
            return _with_zeros(sizes, design)[0]
        if design.block_sizes is None:
            raise ValueError("swor needs the realised block sizes")
        return k_samples.swor(block_sizes(sizes, design, design.n_rounds), **options_of(design))

    def square(self, sizes: tuple[int, ...], design: Design) -> float:
        """Return that of `of_two_with_zeros`."""
        return _with_zeros(sizes, design)[1] if _zeros_count(design) else 0.0

    def share_with_tuples(self, sizes: Sequence[int], degrees: Sequence[int], n_workers: int) -> float:
        """Return that of `share_with_tuples`."""
        return share_with_tuples(sizes, degrees, n_workers)

    def pair_coefficients(self, n: int, design: Design) -> Floats:
        """Return those of prop-swor, which it is of one sample."""
        return of_dealt_pairs(even_sizes(n, design.n_workers), design)


def _zeros_count(design: Design) -> bool:
    return design.empty == "zero" and design.aggregate == "mean"


def _with_zeros(sizes: tuple[int, ...], design: Design) -> tuple[Floats, float]:
    if len(sizes) != 2:
        raise NoClosedForm(f"swor with workers that count zero has no closed form for {len(sizes)} samples")
    return of_two_with_zeros(*sizes, design.n_workers, design.n_rounds, design.n_pairs, design.distinct)


@functools.lru_cache(maxsize=128)  # apart from the realised sizes, which differ from run to run and play no part
def of_two_with_zeros(
    n: int, m: int, n_workers: int, n_rounds: int = 1, n_pairs: int | None = None, distinct: bool = False
) -> tuple[Floats, float]:
    """Return the coefficients, and that of U², if a worker without a pair contributes 0 and N is always the divisor.

    All n + m points are dealt together to N blocks of s = (n + m)/N points (sizes that differ by one if N does not
    divide), so n₁ ~ Hypergeometric(n + m, n, s) of a block belong to x. Let ok_i = 1{worker i has both classes}, p =
    P(ok). Given the design, Û has mean U·N⁻¹ Σ ok_i and variance N⁻² Σ ok_i V_i, so by the law of total variance

        V₁ = N⁻² Σ_i E[ok_i V_i] + U² Var(N⁻¹ Σ ok_i)
           = {σ₁² E[ok/n₁] + σ₂² E[ok/m₁] + σ₀² E[ok/(n₁ m₁)]}/N + U² [p(1 - p) + (N - 1)(p₁₁ - p²)]/N   (equal blocks),

    with p₁₁ = P(ok₁ ok₂), from P(both lack a class). Given the data the conditional mean is p U_n, by symmetry, so
    Var = p² V_n + (V₁ - p² V_n)/T, and sampling B pairs adds N⁻² Σ_i E[ok_i c_i (σ² - V_i)]/T. The estimator is
    *biased*, with mean p U (`swor_bias_factor`), and a larger |U| means a larger variance; the "swor" cells of
    ``test_variance_of_every_cell`` simulate it, bias included.
    """
    check_rounds(n_rounds)
    kinds, numbers = np.unique(_swor_sizes(n, m, n_workers), return_counts=True)
    one_round, drawn = np.zeros(3), np.zeros(3)
    for s, number in zip(kinds.tolist(), numbers.tolist(), strict=True):
        counts, probability = _hypergeometric(n, m, s)
        ok = (counts > 0) & (counts < s)
        n_i, m_i, probability = counts[ok], s - counts[ok], probability[ok]
        local = np.array([1.0 / n_i, 1.0 / m_i, 1.0 / (n_i * m_i)])
        factor = sampling_factor(n_pairs, n_i * m_i, distinct=distinct)
        one_round += number * (probability * local).sum(axis=1)
        drawn += number * (probability * factor * (1.0 - local)).sum(axis=1)
    limit = swor_bias_factor(n, m, n_workers) ** 2 * np.array([1.0 / n, 1.0 / m, 1.0 / (n * m)])
    square = _variance_of_ok_share(n, m, kinds, numbers) / n_rounds
    return limit + (one_round / n_workers**2 - limit + drawn / n_workers**2) / n_rounds, square


def swor_bias_factor(n: int, m: int, n_workers: int) -> float:
    """Return p = E[Û]/U under SWOR with empty blocks counted as zero: the mean probability that a worker has a pair.

    A block of s of the n + m points lacks a class with probability p₀ = [C(m, s) + C(n, s)]/C(n + m, s); p = 1 - p₀,
    averaged over the two block sizes when N does not divide n + m.
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
