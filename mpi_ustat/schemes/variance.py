"""The variance of an estimate from estimated Hoeffding components, for any design; and from the values themselves.

All closed forms are linear in the components, so a design has *coefficients*: numbers that depend on sizes and options
alone, such that Var(estimate) = Σ_c coefficient_c · component_c (+ a multiple of U² where the number of workers with a
value is random). Components that are estimated without bias give a variance without bias.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.rng import Stream
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.designs import Aggregate
from mpi_ustat.schemes.registry import COMPLETE, SCHEMES, scheme_of
from mpi_ustat.schemes.scheme import NoClosedForm, Scheme, Table

_ROUNDING = 1e-13
"""Coefficients are the same whose difference is smaller, as a share of them."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """How an estimate was, or would be, made, as far as its variance depends on it. Hashable: nested tuples only.

    Attributes
    ----------
    scheme : str
        A name in `schemes.registry.SCHEMES`, or "complete".
    n_workers, n_rounds : int
        N and T.
    n_pairs : int or None
        B tuples per worker and round, or of all in the scheme "complete"; None: all there are.
    distinct : bool
        Whether the B tuples are drawn without replacement; a block with no more than B then evaluates them all.
    aggregate : {"mean", "pooled"}
        ``mean``: plain mean of the rounds' plain means of local averages. ``pooled``: local averages weighted by the
        number of tuples they stand for, all of the block's also if B are drawn, over all workers and rounds.
    empty : {"refuse", "skip", "zero"}
        What a worker without a tuple does. Pooled, ``zero`` is ``skip``.
    move : {"both", "smaller"}
        prop-swor: whether every round deals all samples or the smallest only.
    block_sizes : nested tuples of int, shape (rounds, K, N), or None
        Sizes of the blocks where they are not as even as possible with longer blocks first: one round of them for
        "as-is", and for other schemes where they stay, all T for "swor" (realised; needed unless one sample, or
        ``empty="zero"``). For "rotation", of the blocks that go round. "fixed-shuffle" has its own.
    holdings : nested tuples of int, shape (T, K, N), or None
        "rotation" of K samples: the block of sample k that worker i holds in round t. None, for K <= 2: worker i has
        block i - t (mod N) of the smaller sample, of equal ones the last, and keeps its block of the other.
    multiplicities : nested tuples of int, shape (T, N, 4), or None
        "prop-swr" of one sample of degree 2: `one_sample.multiplicity_sums` of every block.
    """

    scheme: str
    n_workers: int = 1
    n_rounds: int = 1
    n_pairs: int | None = None
    distinct: bool = False
    aggregate: str = "mean"
    empty: str = "refuse"
    move: str = "both"
    block_sizes: Table | None = None
    holdings: Table | None = None
    multiplicities: tuple[tuple[tuple[int, int, int, int], ...], ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what no scheme is.

        Raises
        ------
        ValueError
            Naming the word and what is allowed; or if several rounds are asked of a scheme that has one.
        """
        for name, allowed in (
            ("scheme", (COMPLETE.name, *SCHEMES)),
            ("aggregate", get_args(Aggregate)),
            ("empty", ("refuse", "skip", "zero")),
            ("move", ("both", "smaller")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        if self.of.as_they_lie and self.n_rounds != 1:
            raise ValueError(f"{self.scheme} has one round, not {self.n_rounds}")

    @property
    def of(self) -> Scheme:
        """The scheme."""
        return scheme_of(self.scheme)


def coefficients(degrees: Sequence[int], sizes: Sequence[int], design: Design) -> tuple[Floats, float]:
    """Return the terms of the variance of an estimate: Var = Σ_c coefficients[c]·component[c] + square·U².

    The formulas and their proofs are in `k_samples` and `one_sample`, and in `swor.of_two_with_zeros` for workers that
    count zero by chance, where square > 0, U being the expectation of the kernel.

    With ``empty="zero"`` and sizes that are fixed, M of the N workers have a tuple and the mean is M/N times that over
    the workers that have one: so is the estimate's expectation, and (M/N)² times its variance is the variance.

    Parameters
    ----------
    degrees : sequence of int
        (1,)*K, or (2,).
    sizes : sequence of int
        n_k, the number of points of each sample.
    design : Design

    Returns
    -------
    (ndarray, shape (c,), float)
        The coefficients, in the order of `components.subsets` for degrees (1,)*K, of ζ₁ and δ for degree (2,); not to
        be written to. And `square`, 0 but under "swor" with ``empty="zero"``. Cached: equal designs cost nothing.

    Raises
    ------
    NoClosedForm
        If there is no closed form: other degrees; under "swor" with ``empty="zero"``, more than two samples; one sample
        under "prop-swr" whose multiplicities are not given.
    ValueError
        If the design is impossible, for instance a worker would have no tuple and that is refused.
    """
    return _coefficients(tuple(map(int, degrees)), tuple(map(int, sizes)), design)


def coefficients_to_complete(degrees: Sequence[int], sizes: Sequence[int], design: Design) -> Floats:
    """Return the terms of the variance of an estimate around U_n, the statistic of all tuples.

    The points are independent, so renaming those of a sample changes no law: of weights that are independent of the
    values and sum to one, E[Û | the points without their names] = U_n. Hence Cov(Û, U_n) = Var(U_n) and

        E (Û - U_n)² = Var(Û) - Var(U_n),

    the coefficients of the design minus those of the complete statistic. Where a seed does the renaming, as in all
    schemes but "as-is", Û has the mean U_n over the seeds, of any points whatever, and this holds of each data set:
    Var(Û | data) is a quadratic form of the values that no renaming changes, as is its estimate by the components'
    unbiased estimates of all the points; both have the same mean under every law, and symmetric unbiased estimates are
    unique. So these coefficients times the components that are estimated from all the points are Var(Û | data).

    Of sampled tuples, of sizes that are left to chance but not to the values, and of blocks that stay where a seed has
    put them (``move="smaller"``, "rotation", "fixed-shuffle") all this holds too; of the last, more rounds may not
    remove everything if the blocks are uneven.

    Parameters
    ----------
    degrees, sizes, design
        As for `coefficients`.

    Returns
    -------
    ndarray, shape (c,)
        Exactly 0 where they differ by rounding only.

    Raises
    ------
    NoClosedForm, ValueError
        As `coefficients` does.
    """
    found, complete = (coefficients(degrees, sizes, each)[0] for each in (design, Design(scheme=COMPLETE.name)))
    more = found - complete
    return np.where(np.abs(more) <= _ROUNDING * np.abs(complete), 0.0, more)


def is_complete(degrees: Sequence[int], sizes: Sequence[int], design: Design) -> bool:
    """Tell whether a design evaluates every tuple, and all with the same weight: the estimate is U_n.

    It is after one rotation, for there every tuple has been met once, if rounds are pooled or blocks are equal.
    """
    scheme, n_workers = design.of, design.n_workers
    if design.n_pairs is not None or scheme.with_replacement:
        return False
    if scheme.all_pairs or n_workers == 1:
        return True
    even = design.block_sizes is None and all(size % n_workers == 0 for size in sizes)
    one_way = tuple(degrees) == (2,) or set(degrees) == {1}
    met = one_way and scheme.n_rounds_complete(degrees, n_workers) == design.n_rounds
    return met and (design.aggregate == "pooled" or even)


@dataclass(frozen=True, eq=False)
class Spread:
    """How the local values of a round lie: all that the variance of the estimate can be told by from them.

    Attributes
    ----------
    counts, means, variances : ndarray, shapes (q,)
        Of the values of each statistic: how many there are, their mean and their variance, with divisor one less; NaN
        of too few.
    n_joint : int
        Workers that have values of all statistics.
    joint_means : ndarray, shape (q,)
        Of those; and the covariance of their values, with divisor one less, if there are two.
    covariance : ndarray, shape (q, q), or of one statistic ()
    """

    counts: Ints
    means: Floats
    variances: Floats
    n_joint: int
    joint_means: Floats
    covariance: Floats

    @classmethod
    def of(cls, values: ArrayLike) -> Spread:
        """Return that of values of shape (N, q), in the unit of the kernel; NaN where a worker has no tuple."""
        local = np.asarray(values, dtype=np.float64)
        if local.ndim != 2:
            raise ValueError(f"values must have shape (workers, statistics), not {local.shape}")
        present = [of_one[~np.isnan(of_one)] for of_one in local.T]
        joint = local[~np.isnan(local).any(axis=1)]
        return cls(
            np.array([len(each) for each in present]),
            np.array([each.mean() if len(each) else np.nan for each in present]),
            np.array([each.var(ddof=1) if len(each) > 1 else np.nan for each in present]),
            len(joint),
            joint.mean(axis=0) if len(joint) else np.full(local.shape[1], np.nan),
            np.cov(joint, rowvar=False) if len(joint) > 1 else np.full((local.shape[1],) * 2, np.nan).squeeze(),
        )


def covariance_from_workers(rounds: Sequence[Spread], *, independent: bool) -> tuple[Floats, float] | None:
    """Return an estimate of the covariance of the means over rounds of the means over workers, from the local values.

    For kernels whose components are unknown. Let U_ti be worker i's value in round t, Ū_t the mean of round t over its
    M workers with a value, Û the mean of the Ū_t. If the values of one round are independent, with one mean but perhaps
    different variances V_i (as blocks of different sizes have),

        E Σ_i (U_ti - Ū_t)² = Σ_i V_i - M Var(Ū_t),     M² Var(Ū_t) = Σ_i V_i,

    so that S_t²/M, S_t² the between-worker variance with divisor M - 1, is an unbiased estimate of Var(Ū_t); V̂₁ is its
    average over rounds. For rounds of one mean U, however dependent,

        E Σ_t (Ū_t - Û)² = Σ_t Var(Ū_t) - T Var(Û),     hence     Var(Û) = E V̂₁ - (1 - 1/T) E S²,

    S² the variance between rounds with divisor T - 1: the law of total variance, where E S² is what rounds that are
    independent given the data add. The estimate V̂ = V̂₁ - (1 - 1/T) S² is therefore unbiased.

    Valid where the blocks of *each* round are disjoint, of independent and identically distributed points, and the
    estimate is the mean of unbiased local values: "as-is", "prop-swor" (either `move`), "rotation" and "fixed-shuffle"
    aggregated by the mean, and "swor" with ``empty="skip"`` (given the sizes, the values are independent); values over
    sampled tuples included. With pooled aggregation, only where all workers have equally many tuples. Not valid for
    "prop-swr", whose workers share points, nor for "swor" with ``empty="zero"``, where the numbers of values that are 0
    are not independent.

    Of several statistics of the same blocks, the same sums of squares, of products, estimate the covariances of every
    two: what they are for V(a + b) - V(a) - V(b), which is twice the covariance.

    Parameters
    ----------
    rounds : sequence of Spread
    independent : bool
        Whether the above holds; otherwise there is no estimate.

    Returns
    -------
    (ndarray, shape (q, q), float) or None
        V̂ and its degrees of freedom, the fewest of all statistics: N - 1 for T = 1. For T > 1, Satterthwaite's
        V̂²/[V̂₁²/(M-1) + ((1-1/T) S²)²/(T-1)] with the smallest M: cautious, for the average over rounds is taken to be
        no better known than one S_t²/M. None if a round has fewer than two values of a statistic, if V̂ <= 0 of one, or
        if the values are not independent.
    """
    if not rounds:
        raise ValueError("there must be a round at least")
    counts, means, variances = (np.array([getattr(each, name) for each in rounds]) for name in _OF_EACH)
    if not independent or counts.min() < 2:
        return None
    of_each = [_dof(*of_one) for of_one in zip(counts.T, means.T, variances.T, strict=True)]
    known = [dof for dof in of_each if dof is not None]
    if len(known) < len(of_each):
        return None
    covariance = np.mean([each.covariance / each.n_joint for each in rounds], axis=0)
    if len(rounds) > 1:
        joint = np.array([each.joint_means for each in rounds])
        covariance -= (1.0 - 1.0 / len(rounds)) * np.cov(joint, rowvar=False)
    return np.atleast_2d(covariance), min(known)


_OF_EACH = ("counts", "means", "variances")


def _dof(counts: Ints, means: Floats, variances: Floats) -> float | None:
    """Return the degrees of freedom of the variance of one statistic, from those of T rounds; None if it is below 0."""
    n_rounds, fewest = len(counts), int(counts.min())
    within = math.fsum((variances / counts).tolist()) / n_rounds
    if n_rounds == 1:
        return fewest - 1.0 if within > 0 else None
    between = (1.0 - 1.0 / n_rounds) * float(np.var(means, ddof=1))
    total = within - between
    return total**2 / (within**2 / (fewest - 1) + between**2 / (n_rounds - 1)) if total > 0 else None


def pilot_rows(stream: Stream, sizes: Sequence[int], most: int = 200) -> tuple[Ints, ...]:
    """Return random rows of each sample for a pilot: min(n_k, most) distinct row numbers, sorted.

    Numbers are drawn with replacement until `most` of them are distinct, and the first `most` distinct ones are kept:
    by symmetry every subset is equally likely. That takes O(most) draws of a large sample, and most·log(most) of one
    that is hardly larger than `most`; never O(n_k).

    Parameters
    ----------
    stream : Stream
    sizes : sequence of int
        n_k.
    most : int
        Rows per sample.
    """
    return tuple(np.arange(size) if size <= most else _distinct(stream, size, most) for size in sizes)


def _distinct(stream: Stream, bound: int, count: int) -> Ints:
    drawn = stream.integers(bound, count)
    while True:
        first = np.unique(drawn, return_index=True)[1]
        if len(first) >= count:
            return np.sort(drawn[np.sort(first)[:count]])
        drawn = np.concatenate([drawn, stream.integers(bound, count)])


@functools.lru_cache(maxsize=128)
def _coefficients(degrees: tuple[int, ...], sizes: tuple[int, ...], design: Design) -> tuple[Floats, float]:
    if len(sizes) != len(degrees):
        raise ValueError(f"{len(sizes)} sample sizes are given for a kernel of {len(degrees)} samples")
    scheme, square = design.of, 0.0
    if degrees == (2,):
        found = scheme.pair_coefficients(sizes[0], design)
    elif set(degrees) == {1}:
        known = design.block_sizes is not None or scheme.random_counts or scheme.all_pairs
        if not known and min(sizes) < design.n_workers:
            if design.empty == "refuse":
                raise ValueError(f"{design.n_workers} workers can't each have a point of samples of {sizes}")
            found = scheme.coefficients_with_empty(sizes, design)
        else:
            found, square = scheme.coefficients(sizes, design), scheme.square(sizes, design)
    else:
        raise NoClosedForm(f"the variance of a kernel of degrees {degrees} has no closed form here")
    found.setflags(write=False)
    return found, square
