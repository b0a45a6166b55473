"""Standard errors and confidence intervals of estimates, for every scheme, estimator and kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Bias, ErrorBar, Round
from mpi_ustat.inference.doubts import FIRST_ORDER_RATIO, few_sampled
from mpi_ustat.inference.evidence import Evidence
from mpi_ustat.inference.intervals import Disjoint, Interval, interval
from mpi_ustat.inference.judge import Judge, Projections
from mpi_ustat.kernels.discrepancy import ALIKE, LIKE_EQUAL, Variance, second_order
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.numerics.types import Floats
from mpi_ustat.schemes.designs import sizes_with_empty
from mpi_ustat.schemes.registry import COMPLETE, DEFAULT_SCHEME, scheme_of
from mpi_ustat.schemes.scheme import NoClosedForm
from mpi_ustat.schemes.variance import (
    Design,
    Spread,
    coefficients,
    coefficients_to_complete,
    covariance_from_workers,
    is_complete,
)


def design_of(config: EstimateConfig, sizes: Sequence[int], rounds: Sequence[Round]) -> Design:
    """Return the design of an estimate over these rounds, or of the complete statistic if there are none."""
    if not rounds:
        return Design(scheme=COMPLETE.name)
    scheme, n_workers, n_rounds = scheme_of(config.scheme), config.n_workers, len(rounds)
    block_sizes = None
    if scheme.as_they_lie or scheme.random_counts:
        block_sizes = tuple(tuple(tuple(of_sample.tolist()) for of_sample in each.sizes) for each in rounds)
    return Design(
        scheme=scheme.name,
        n_workers=n_workers,
        n_rounds=n_rounds,
        n_pairs=config.n_pairs,
        distinct=config.distinct,
        aggregate=config.aggregate,
        empty=config.empty,
        move=config.move,
        block_sizes=block_sizes,
        holdings=scheme.holdings_table(sizes, n_workers, n_rounds),
        multiplicities=tuple(each.multiplicities for each in rounds) if rounds[0].multiplicities else None,
    )


@dataclass(frozen=True)
class Findings:
    """What is known about an estimate besides its value.

    Attributes
    ----------
    means : ndarray, shape (p,)
        The averages of the parts that it is made of.
    components : ndarray, shape (c, p, p), or None
        Estimated Hoeffding components, and `method` where they come from.
    evidence : Evidence or None
        What the components were estimated from; None: all points.
    spreads : sequence of Spread
        For kernels whose variance has no closed form: how the workers' values differ in each round.
    variance : float or None
        An estimate of the whole variance, where there is one and no components.
    projected : Projections or None
        By which tails are judged.
    names : sequence of str or None
        Of the samples, for people.
    n_sampled : int or None
        Tuples that were evaluated, where they were sampled.
    disjoint : Disjoint or None
        Disjoint tuples among those that were, or could be, evaluated.
    first_order : tuple of float or None
        σ_k² of the statistic, where there are no components.
    notes : sequence of str
        What is known already to rule a normal interval out.
    doubts : sequence of str
        What else is known to make it doubtful.
    """

    means: Floats
    components: Floats | None = None
    method: str = "none"
    evidence: Evidence | None = None
    spreads: Sequence[Spread] = ()
    variance: float | None = None
    projected: Projections | None = None
    names: Sequence[str] | None = None
    n_sampled: int | None = None
    disjoint: Disjoint | None = None
    first_order: tuple[float, ...] | None = None
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()


def error_bar(
    kernel: Kernel,
    sizes: Sequence[int],
    design: Design,
    value: Floats,
    found: Findings,
    config: EstimateConfig,
) -> ErrorBar:
    """Return the error bar of estimates `value`, shape (q,), of `kernel` made by `design`; pure."""
    sizes = tuple(sizes)
    gradient = kernel.gradient(found.means)
    means_of_h = np.array_equal(gradient, np.eye(len(found.means)))
    covariance, method, dof = _covariance(kernel, sizes, design, found, None if means_of_h else gradient)
    to_complete = covariance_to_complete(kernel, sizes, design, found, gradient)
    if method != found.method:
        found = replace(found, components=None)
    doubts = [*found.notes, *found.doubts]
    evidence = found.evidence or Evidence(sizes)
    judge = Judge(
        kernel, sizes, found.components, evidence, found.projected, found.names, dof, gradient, found.first_order
    )
    intervals, of_intervals = [], [judge.dof(each) for each in gradient]
    for j, each in enumerate(value.tolist()):
        doubts += kernel.doubts_about(each)
        disjoint = found.disjoint if means_of_h and each in kernel.limits and np.isfinite(kernel.limits).all() else None
        if found.notes:
            intervals.append(Interval(None, None, "none", found.notes[0]))
        else:
            intervals.append(
                interval(
                    each,
                    None if covariance is None else float(covariance[j, j]),
                    config.confidence,
                    limits=kernel.limits,
                    dof=of_intervals[j],
                    method=None if config.interval == "auto" else config.interval,
                    disjoint=disjoint,
                )
            )
            if disjoint is not None:
                continue  # exact, whatever the variance
        doubts += [_no_variance(kernel, sizes, design)] if covariance is None else []
        doubts += [note for note in [intervals[-1].note] if note is not None]
        if covariance is not None:
            doubts += judge.flags(gradient[j], value=each)
            what = "pairs" if sum(kernel.degrees) == 2 else "tuples"
            few = few_sampled(each, found.n_sampled, kernel.limits, pairs=what)
            doubts += [few] if few is not None else []
    unique = tuple(dict.fromkeys(doubts))
    return ErrorBar(
        covariance, method, tuple(intervals), found.components, unique, tuple(of_intervals), to_complete, judge
    )


def _covariance(
    kernel: Kernel, sizes: Sequence[int], design: Design, found: Findings, gradient: Floats | None
) -> tuple[Floats | None, str, float | None]:
    """Return the statistics' covariance, where it comes from, and its degrees of freedom if it is the workers'."""
    if found.components is not None:
        with suppress(NoClosedForm):
            factors, square = coefficients(kernel.degrees, sizes, design)
            parts = np.tensordot(factors, found.components, axes=1) + square * np.outer(found.means, found.means)
            return parts if gradient is None else gradient @ parts @ gradient.T, found.method, None
    if found.variance is not None:
        return np.array([[found.variance]]), "sample", None
    if found.spreads:
        of_workers = covariance_from_workers(found.spreads, independent=_independent(design, sizes))
        if of_workers is not None:
            return of_workers[0], "workers", of_workers[1]
    return None, "none", None


def covariance_to_complete(
    kernel: Kernel, sizes: Sequence[int], design: Design, found: Findings, gradient: Floats
) -> Floats | None:
    """Return the covariance of the statistics around U_n (`coefficients_to_complete`), None where it is not known.

    Exactly 0 if the estimate is U_n. Not known without components or a closed form; of shards as they lie, which no
    seed has dealt: of given points they have but one value, which is not U_n, and their law is not chance; and where
    workers without a tuple count 0, so that the mean is not U_n. Of functions of means to the first order.
    """
    if is_complete(kernel.degrees, sizes, design):
        return np.zeros((len(gradient), len(gradient)))
    biased = expectation_factor(design, sizes, kernel.degrees) != 1.0
    if found.components is None or biased or (design.of.as_they_lie and design.n_workers > 1):
        return None
    with suppress(NoClosedForm):
        factors = coefficients_to_complete(kernel.degrees, sizes, design)
        of_gradient: Floats = gradient @ np.tensordot(factors, found.components, axes=1) @ gradient.T
        return of_gradient
    return None


def _no_variance(kernel: Kernel, sizes: Sequence[int], design: Design) -> str:
    """Return the sentence about a variance of which there is no estimate, with what helps."""
    if not kernel.has_own_variance and not kernel.finds_components([4] * len(sizes)):  # of blocks of any size
        several = f'(scheme="{DEFAULT_SCHEME}", aggregate="mean")'
        remedy = f"take the mean over several workers {several}, whose values show it"
    elif design.of.all_pairs or min(sizes) < 2:
        remedy = "more points are needed"
    else:
        remedy = "use complete=True or more workers"
    return f"there is no estimate of this kernel's variance here: {remedy}"


def _independent(design: Design, sizes: Sequence[int]) -> bool:
    """Tell whether the blocks of each round are disjoint and the estimate a mean of local values."""
    if design.of.all_pairs or design.of.with_replacement or design.empty == "zero":
        return False
    if design.aggregate == "mean":
        return True
    if design.block_sizes is None:
        return all(size % design.n_workers == 0 for size in sizes)
    return all(len(set(of_sample)) == 1 for of_round in design.block_sizes for of_sample in of_round)


def expectation_factor(design: Design, sizes: Sequence[int], degrees: Sequence[int]) -> float:
    """Return p: workers without a tuple count 0, the estimate has the mean p U, and p is the share of those with one.

    Where the block sizes are random, its mean.
    """
    scheme = design.of
    if design.empty != "zero" or design.aggregate == "pooled" or scheme.all_pairs:
        return 1.0
    if scheme.random_counts and len(sizes) > 1:
        return scheme.share_with_tuples(sizes, degrees, design.n_workers)
    if design.block_sizes is not None:
        of_blocks = np.array(design.block_sizes)
    else:
        of_blocks = np.array([[sizes_with_empty(size, design.n_workers) for size in sizes]])
    enough = of_blocks >= np.array(degrees)[:, None]
    has = enough.all(axis=1).astype(np.float64)
    if scheme.with_replacement and tuple(degrees) == (2,):  # a block may be copies of one point
        has *= 1.0 - np.power(float(sizes[0]), 1.0 - of_blocks[:, 0])
    return float(has.mean())


def own_variance_notes(found: Variance, sizes: Sequence[int], rounds: Sequence[Round]) -> list[str]:
    """Return the flags against a normal interval of a discrepancy by rounds, from the variance of a pilot's.

    Its first-order part must be told from zero in the pilot, and pass what the remainders add in the workers' blocks:
    in small ones a discrepancy is not normal, and neither is the mean of a few.
    """
    first = found.of_points[0] / sizes[0] + found.of_points[1] / sizes[1]
    kinds = {id(each.sizes): each.sizes for each in rounds}
    of_rounds = [each.sizes for each in rounds] if len(kinds) > 1 else list(kinds.values())
    blocks = np.array(of_rounds, dtype=np.float64)  # (T, 2, N)
    enough = (blocks >= 2).all(axis=1)
    rest = second_order(found.of_remainders, blocks[:, 0][enough], blocks[:, 1][enough])
    told = found.first_order > LIKE_EQUAL * found.second_order and first > FIRST_ORDER_RATIO * rest
    return [] if told else [ALIKE]


def bias(
    kernel: Kernel,
    sizes: Sequence[int],
    design: Design,
    values: Mapping[str, Floats],
    complete: Any,
    found: Findings,
) -> tuple[Bias, ...]:
    """Return how far local averages of shards are from the complete statistic, by the way of aggregation; pure.

    If the points lie over the shards by chance, Var(local - U_n) = V_local - V_n (`coefficients_to_complete`).
    """
    biases = []
    for aggregate, value in values.items():
        difference = float(value[0] - np.atleast_1d(complete)[0])
        stderr = None
        if found.components is not None:
            by_chance = replace(design, aggregate=aggregate, empty="skip")
            factors, gradient = coefficients_to_complete(kernel.degrees, sizes, by_chance), kernel.gradient(found.means)
            variance = float((gradient @ np.tensordot(factors, found.components, axes=1) @ gradient.T)[0, 0])
            stderr = math.sqrt(variance) if variance > 0.0 else None
        biases.append(Bias(aggregate, difference, stderr, None if stderr is None else difference / stderr))
    return tuple(biases)
