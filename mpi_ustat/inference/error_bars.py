"""Standard errors and confidence intervals of estimates, for every scheme, estimator and kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Bias, ErrorBar, Round
from mpi_ustat.inference.doubts import FIRST_ORDER_RATIO, few_sampled
from mpi_ustat.inference.evidence import Evidence
from mpi_ustat.inference.intervals import Disjoint, Interval, interval
from mpi_ustat.inference.judge import Judge, Projections
from mpi_ustat.kernels.discrepancy import (
    ALIKE,
    LIKE_EQUAL,
    Variance,
    second_order,
)
from mpi_ustat.kernels.kernel import Kernel, Local
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import together
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.designs import sizes_with_empty
from mpi_ustat.schemes.registry import COMPLETE, scheme_of
from mpi_ustat.schemes.scheme import NoClosedForm
from mpi_ustat.schemes.swor import share_with_tuples
from mpi_ustat.schemes.variance import Design, coefficients, covariance_from_workers, pilot_rows

PROJECTED_ON = 100
"""Points of each sample that stand for all of them where a projection is wanted."""

_MOST_NUMBERS = 200_000  # of a sample's projections, and of the coordinates of their points

PILOT_ROWS = 500
"""Rows of each sample that a pilot takes: they give a standard error to 3 to 5 %, and show what makes tails heavy."""


def pilot(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    *,
    most: int = PILOT_ROWS,
    replicate: int = 0,
) -> Local:
    """Return what a complete block of random rows of every sample gives, up to `most` of each.  Collective."""
    blocks = pilot_blocks(comm, samples, streams, most=most, replicate=replicate)
    found = Local((), None)
    with together(comm, f"evaluating the kernel {kernel.name}"):
        found = kernel.local(*blocks)
    return found


def projections(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    *,
    most: Sequence[int],
    replicate: int = 0,
) -> Projections | None:
    """Return the projections of random points of every sample, each on `PROJECTED_ON` others.  Collective.

    Parameters
    ----------
    most : sequence of int
        Points of each sample at most; there are fewer of kernels that are slow, or of many parts or coordinates.

    Returns
    -------
    Projections or None
        The same on every rank; None where a sample has no points to spare, or the degrees are other ones.
    """
    degrees, sizes = kernel.degrees, [sample.n_rows for sample in samples]
    if set(degrees) != {1} and degrees not in ((2,), (2, 2)):
        return None
    n_others = [min(PROJECTED_ON, size // 2) for size in sizes]
    if min(n_others) < 1:
        return None
    width = max(int(np.prod(sample.rows.shape[1:])) for sample in samples)
    limit = max(PILOT_ROWS, min(kernel.projection_rows, _MOST_NUMBERS // max(width, kernel.n_parts)))
    stream = streams.open("projections", replicate=replicate)
    wanted = [min(size, limit, some) + others for size, some, others in zip(sizes, most, n_others, strict=True)]
    chosen = tuple(pilot_rows(stream, [size], some)[0] for size, some in zip(sizes, wanted, strict=True))
    blocks = gathered(comm, samples, chosen)
    others_at = [pilot_rows(stream, [len(rows)], some)[0] for rows, some in zip(chosen, n_others, strict=True)]
    others = [block[at] for block, at in zip(blocks, others_at, strict=True)]
    found, rows, points = [], [], []
    with together(comm, f"evaluating the kernel {kernel.name}"):
        for k, (block, at, numbers) in enumerate(zip(blocks, others_at, chosen, strict=True)):
            kept = np.delete(np.arange(len(block)), at if degrees[k] > 1 else [])  # no point with itself
            found.append(kernel.projections(k, block[kept], others))
            rows.append(numbers[kept])
            points.append(block[kept])
    return Projections(tuple(found), tuple(rows), tuple(points))


def pilot_blocks(
    comm: Any, samples: Sequence[Exchange], streams: Streams, *, most: int, replicate: int = 0
) -> list[Floats]:
    """Return the same random rows of every sample on every rank, up to `most` of each.  Collective."""
    stream = streams.open("pilot", replicate=replicate)
    return gathered(comm, samples, pilot_rows(stream, [sample.n_rows for sample in samples], most))


def gathered(comm: Any, samples: Sequence[Exchange], chosen: Sequence[Ints]) -> list[Floats]:
    """Return these rows of every sample, by ascending global numbers, on every rank.  Collective."""
    blocks = []
    for sample, rows in zip(samples, chosen, strict=True):
        here = rows[(rows >= sample.first_row) & (rows < sample.first_row + len(sample.rows))] - sample.first_row
        blocks.append(gather_rows(comm, sample.rows[here]))
    return blocks


def design_of(config: EstimateConfig, sizes: Sequence[int], rounds: Sequence[Round]) -> Design:
    """Return the design of an estimate over these rounds, or of the complete statistic if there are none."""
    if not rounds:
        return Design(scheme=COMPLETE.name)
    scheme, n_workers, n_rounds = scheme_of(config.scheme), config.n_workers, len(rounds)
    uneven = scheme.as_they_lie or scheme.random_counts
    return Design(
        scheme=scheme.name,
        n_workers=n_workers,
        n_rounds=n_rounds,
        n_pairs=config.n_pairs,
        distinct=config.distinct,
        aggregate=config.aggregate,
        empty=config.empty,
        move=config.move,
        block_sizes=tuple(each.sizes for each in rounds) if uneven else None,
        holdings=scheme.holdings_table(sizes, n_workers, n_rounds),
        multiplicities=tuple(each.multiplicities for each in rounds) if rounds[0].multiplicities else None,
    )


def error_bar(
    kernel: Kernel,
    sizes: Sequence[int],
    design: Design,
    *,
    value: Floats,
    means: Floats,
    components: Floats | None,
    method: str,
    config: EstimateConfig,
    evidence: Evidence | None = None,
    local_values: Floats | None = None,
    variance: float | None = None,
    projected: Projections | None = None,
    names: Sequence[str] | None = None,
    n_sampled: int | None = None,
    disjoint: Disjoint | None = None,
    first_order: tuple[float, ...] | None = None,
    notes: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> ErrorBar:
    """Return the error bar of an estimate of `kernel` made by `design`; pure.

    Parameters
    ----------
    value : ndarray, shape (q,)
        The estimates.
    means : ndarray, shape (p,)
        The averages of the parts that they are made of.
    components : ndarray, shape (c, p, p), or None
        Estimated Hoeffding components, and `method` how they were come by.
    evidence : Evidence, optional
        What the components were estimated from; by default all points.
    local_values : ndarray, shape (T, N, q), optional
        For kernels whose variance has no closed form: what the workers found.
    variance : float, optional
        An estimate of the whole variance, where there is one and no components.
    projected : Projections, optional
        By which tails are judged.
    names : sequence of str, optional
        Of the samples, for people.
    n_sampled : int, optional
        Tuples that were evaluated, where they were sampled.
    disjoint : Disjoint, optional
        Disjoint tuples among those that were, or could be, evaluated.
    first_order : tuple of float, optional
        σ_k² of the statistic, where there are no components.
    notes : sequence of str
        What is known already to rule a normal interval out.
    doubts : sequence of str
        What else is known to make it doubtful.
    """
    covariance, dof, doubts = None, None, [*notes, *doubts]
    evidence = evidence or Evidence(tuple(sizes))
    gradient = kernel.gradient(means)
    means_of_h = np.array_equal(gradient, np.eye(len(means)))
    if components is not None:
        try:
            factors, square = coefficients(kernel.degrees, sizes, design)
        except NoClosedForm:
            components = None
        else:
            parts = np.tensordot(factors, components, axes=1) + square * np.outer(means, means)
            covariance = parts if means_of_h else gradient @ parts @ gradient.T
    if covariance is None and variance is not None:
        covariance, method = np.array([[variance]]), "sample"
    if covariance is None and local_values is not None:
        of_workers = covariance_from_workers(local_values, independent=_independent(design, sizes))
        if of_workers is not None:
            (covariance, dof), method = of_workers, "workers"
    missing: list[str] = []
    if covariance is None:
        method, missing = "none", [_no_variance(kernel, sizes, design)]
    judge = Judge(kernel, tuple(sizes), components, evidence, projected, names, dof, gradient, first_order)
    intervals, of_intervals = [], [judge.dof(each) for each in gradient]
    for j, each in enumerate(value.tolist()):
        at_limit = means_of_h and disjoint is not None and each in kernel.limits and np.isfinite(kernel.limits).all()
        given = (
            Interval(None, None, "none", notes[0])
            if notes
            else interval(
                each,
                None if covariance is None else float(covariance[j, j]),
                config.confidence,
                limits=kernel.limits,
                dof=of_intervals[j],
                method=None if config.interval == "auto" else config.interval,
                disjoint=disjoint if at_limit else None,
            )
        )
        intervals.append(given)
        if at_limit and not notes:
            continue  # exact, whatever the variance
        doubts += missing
        doubts += [given.note] if given.note is not None else []
        if covariance is not None:
            doubts += judge.flags(gradient[j], value=each)
            few = few_sampled(each, n_sampled, kernel.limits, pairs="pairs" if sum(kernel.degrees) == 2 else "tuples")
            doubts += [few] if few is not None else []
    found_doubts = tuple(dict.fromkeys(doubts))
    return ErrorBar(covariance, method, tuple(intervals), components, found_doubts, tuple(of_intervals), judge)


def _no_variance(kernel: Kernel, sizes: Sequence[int], design: Design) -> str:
    """Return the sentence about a variance of which there is no estimate, with what helps."""
    if not kernel.has_own_variance and not kernel.finds_components([4] * len(sizes)):  # of blocks of any size
        remedy = 'take the mean over several workers (scheme="prop-swor", aggregate="mean"), whose values show it'
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
        return share_with_tuples(sizes, degrees, design.n_workers)
    if design.block_sizes is not None:
        of_blocks = np.array(design.block_sizes)
    else:
        of_blocks = np.array([[sizes_with_empty(size, design.n_workers) for size in sizes]])
    enough = of_blocks >= np.array(degrees)[:, None]
    has = enough.all(axis=1).astype(np.float64)
    if scheme.with_replacement and tuple(degrees) == (2,):  # a block may be copies of one point
        has *= 1.0 - np.power(float(sizes[0]), 1.0 - of_blocks[:, 0])
    return float(has.mean())


def own_variance_of_pilot(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, streams: Streams, *, replicate: int = 0
) -> tuple[Variance, Evidence] | None:
    """Return the variance that a pilot's statistic has; None if there are too few points.  Collective."""
    blocks = pilot_blocks(comm, samples, streams, most=PILOT_ROWS, replicate=replicate)
    sizes = tuple(map(len, blocks))
    return None if min(sizes) < 4 else (kernel.own_variance(*blocks), Evidence(sizes))


def own_variance_notes(found: Variance, sizes: Sequence[int], rounds: Sequence[Round]) -> list[str]:
    """Return what speaks against a normal interval of a discrepancy by rounds, from the variance of a pilot's.

    Its first-order part must be told from zero in the pilot, and pass what the remainders add in the workers' blocks:
    in small ones a discrepancy is not normal, and neither is the mean of a few.
    """
    first = found.of_points[0] / sizes[0] + found.of_points[1] / sizes[1]
    blocks = np.array([each.sizes for each in rounds], dtype=np.float64)  # (T, 2, N)
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
    means: Floats,
    components: Floats | None,
) -> tuple[Bias, ...]:
    """Return how far local averages of shards are from the complete statistic, by the way of aggregation; pure.

    If the points lie over the shards by chance, U_n is the mean of the local average given the points, whatever its
    weights; so the covariance of the two is V_n = Var(U_n), and Var(local - U_n) = V_local - V_n.
    """
    found = []
    for aggregate, value in values.items():
        difference = float(value[0] - np.atleast_1d(complete)[0])
        stderr = None
        if components is not None:
            local, _ = coefficients(kernel.degrees, sizes, replace(design, aggregate=aggregate, empty="skip"))
            whole, _ = coefficients(kernel.degrees, sizes, Design(scheme=COMPLETE.name))
            gradient = kernel.gradient(means)
            variance = float((gradient @ np.tensordot(local - whole, components, axes=1) @ gradient.T)[0, 0])
            stderr = math.sqrt(variance) if variance > 0.0 else None
        found.append(Bias(aggregate, difference, stderr, None if stderr is None else difference / stderr))
    return tuple(found)
