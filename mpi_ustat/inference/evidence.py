"""How well the Hoeffding components behind a standard error are known: degrees of freedom, and which source to take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpi_ustat.numerics.types import Floats, Ints

_SECOND_ORDER = 4.0
"""The ratio of second-order to first-order components for which degrees of freedom are counted: a cautious guess, as
they must not depend on the values, whose components would be biased by a choice that does."""

_FEW_NUMBERS = 64

Dof = tuple[float, ...]


@dataclass(frozen=True)
class Evidence:
    """What components were estimated from.

    Attributes
    ----------
    rows : tuple of int
        Points of each sample.
    dof : tuple of float
        Degrees of freedom of each sample; (): those of the whole samples, which are the most there are.
    means : tuple of float, or None
        Averages of the kernel's parts over the same points, if they are known.
    """

    rows: tuple[int, ...]
    dof: Dof = ()
    means: tuple[float, ...] | None = None


def block_dof(degrees: Sequence[int], sizes: Sequence[int]) -> Dof:
    """Return the effective degrees of freedom of the components of one complete block, for each sample's.

    The mean of h over the pairs of one of n_k points is its effect, of variance σ_k², plus what the second order leaves
    of about σ₀² Σ_{l≠k} 1/n_l (degree 2: δ/(n-2)), which is subtracted again. So the estimate of σ_k² has the relative
    variance 2 (1 + r)²/(n_k - 1), r the ratio of the two: as many as (n_k - 1)/(1 + r)² degrees of freedom. r is taken
    for components of a ratio of `_SECOND_ORDER`. () for a block that is too small for components.
    """
    if tuple(degrees) == (2,):
        n = sizes[0]
        return () if n < 4 else ((n - 1) / (1.0 + _SECOND_ORDER / (n - 2)) ** 2,)
    if min(sizes) < 2:
        return ()
    rest = [sum(1.0 / other for j, other in enumerate(sizes) if j != k) for k in range(len(sizes))]
    return tuple((n - 1) / (1.0 + _SECOND_ORDER * of_others) ** 2 for n, of_others in zip(sizes, rest, strict=True))


def cross_dof(n: int, m: int) -> Dof:
    """Return those of ζ₁ from the pairs across two blocks of one sample.

    Rows and columns tell it alike; half of both, as every block has the rows of one worker and the columns of another.
    """
    of_both = block_dof((1, 1), (n, m))
    return (sum(of_both) / 2.0,) if of_both else ()


def of_blocks(dof: Floats, sizes: Sequence[Ints]) -> Evidence | None:
    """Return the evidence in the mean of disjoint blocks, `mean_by_dof`; None if none has components.

    With the weights w of blocks whose estimates of one σ_k² have the relative variances 2/dof, their mean has 2 Σ
    w²/dof/(Σ w)². So the degrees of freedom of a sample add up only where they are what blocks are weighted by. `dof`,
    (N, K), has the `block_dof` of every block, or 0; `sizes` each sample's block sizes, (N,).
    """
    known = dof.any(axis=1)
    if not known.any():
        return None
    of_known = dof[known]
    weights = of_known.min(axis=1)
    spread = (weights[:, None] ** 2 / of_known).sum(axis=0)
    return Evidence(
        tuple(int(of_sample[known].sum()) for of_sample in sizes), tuple((weights.sum() ** 2 / spread).tolist())
    )


def on_average(rounds: Sequence[Evidence]) -> Evidence:
    """Return the evidence in rounds: no more than in one of them, as they look at the same points again."""
    rows = tuple(sum(of_sample) // len(rounds) for of_sample in zip(*(each.rows for each in rounds), strict=True))
    return Evidence(rows, tuple(math.fsum(each) / len(rounds) for each in zip(*(e.dof for e in rounds), strict=True)))


def redrawn(told: Evidence, sizes: Sequence[int]) -> Evidence:
    """Return the evidence about the population in blocks drawn with replacement out of samples of these sizes.

    Their points are independent draws from the sample, whose variance has the relative variance 2/(n_k - 1) about the
    population's; theirs about the sample's adds to it.
    """
    dof = tuple(1.0 / (1.0 / each + 1.0 / (size - 1)) for each, size in zip(told.dof, sizes, strict=True))
    return Evidence(told.rows, dof)


def mean_by_dof(components: Sequence[Floats] | Floats, dof: Floats) -> Floats:
    """Return the mean of estimates (c, p, p), weighted by the degrees of freedom (n, K) of the least known sample.

    The weights depend on sizes alone, so that what is unbiased remains so.
    """
    weights = dof.min(axis=1)
    equal = bool((weights == weights[0]).all())
    # One after the other, in either way: the last bits of a sum depend on its order.
    if components[0].size <= _FEW_NUMBERS:
        terms = np.asarray(components)
        total = np.add.accumulate(terms if equal else terms * weights[:, None, None, None])[-1] + 0.0
    else:
        total = np.zeros_like(components[0])
        for each, weight in zip(components, weights.tolist(), strict=True):
            total += each if equal else each * weight
    return np.asarray(total / (len(components) if equal else sum(weights.tolist())))


def knows_more(pilot: Dof, blocks: Dof) -> bool:
    """Tell whether a pilot knows components that much better than blocks do that it is worth its rows.

    The relative variance of the estimated variance is about 2 Σ_k ω_k²/dof_k, with shares ω_k that are not known
    beforehand. It must be twice that of the pilot: what was evaluated anyway is preferred.
    """
    return sum(1.0 / each for each in blocks) > 2.0 * sum(1.0 / each for each in pilot)


def shares(components: Sequence[float], sizes: Sequence[int]) -> Floats | None:
    """Return ω_k, the share of each sample in the first-order variance Σ_k σ_k²/n_k; None if that is not positive."""
    first = np.maximum(np.asarray(components[: len(sizes)], dtype=np.float64), 0.0) / np.asarray(sizes)
    total = float(first.sum())
    return first / total if total > 0.0 else None


def satterthwaite(dof: Dof, of_samples: Floats | None) -> float:
    """Return the degrees of freedom 1/Σ_k ω_k²/dof_k of a variance of such shares; without them, the fewest."""
    return min(dof) if of_samples is None else 1.0 / float(np.sum(of_samples**2 / np.asarray(dof)))
