"""Standard errors and confidence intervals of estimates, for every scheme, estimator and kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.config import EstimateConfig
from mpi_ustat.estimates import Bias, ErrorBar, Round
from mpi_ustat.parallel.collectives import gather_rows
from mpi_ustat.parallel.exchange import Exchange
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.parallel.rotation import holdings
from mpi_ustat.parallel.runtime import together
from mpi_ustat.statistics.intervals import Interval, flags, interval
from mpi_ustat.statistics.kernel import Kernel, Local
from mpi_ustat.statistics.standard_error import Design, NoClosedForm, coefficients, pilot_rows, variance_from_workers
from mpi_ustat.statistics.tails import row_kurtosis

Array = NDArray[np.float64]

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


def tails(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, streams: Streams, *, replicate: int = 0
) -> tuple[float, ...] | None:
    """Return the kurtosis of the row means of each sample, on up to `PILOT_ROWS` random rows of each.  Collective.

    None for bounded kernels, which have no heavy tails, and for those whose values can't be had as a matrix.
    """
    if kernel.bounded or kernel.n_parts > 1 or kernel.degrees not in ((1, 1), (2,)):
        return None
    blocks = pilot_blocks(comm, samples, streams, most=PILOT_ROWS, replicate=replicate)
    found: tuple[float, ...] | None = None
    with together(comm, f"evaluating the kernel {kernel.name}"):
        found = row_kurtosis(kernel, blocks)
    return found


def pilot_blocks(
    comm: Any, samples: Sequence[Exchange], streams: Streams, *, most: int, replicate: int = 0
) -> list[Array]:
    """Return the same random rows of every sample on every rank, up to `most` of each.  Collective."""
    stream = streams.open("pilot", replicate=replicate)
    chosen = pilot_rows(stream, [sample.n_rows for sample in samples], most)
    blocks = []
    for sample, rows in zip(samples, chosen, strict=True):
        here = rows[(rows >= sample.first_row) & (rows < sample.first_row + len(sample.rows))] - sample.first_row
        blocks.append(gather_rows(comm, sample.rows[here]))
    return blocks


def rotation_table(
    sizes: Sequence[int], n_workers: int, n_rounds: int
) -> tuple[tuple[tuple[int, ...], ...], ...] | None:
    """Return the holdings of a rotation as a `Design` wants them; None where it knows them itself."""
    if len(sizes) <= 2:
        return None
    here = tuple(range(n_workers))
    return tuple(
        tuple(here if blocks is None else tuple(blocks.tolist()) for blocks in holdings(sizes, n_workers, t))
        for t in range(n_rounds)
    )


def design_of(config: EstimateConfig, sizes: Sequence[int], rounds: Sequence[Round]) -> Design:
    """Return the design of an estimate over these rounds, or of the complete statistic if there are none."""
    if not rounds:
        return Design(scheme="complete")
    scheme, n_workers, n_rounds = config.scheme, config.n_workers, len(rounds)
    block_sizes = None
    if scheme in ("as-is", "swor"):
        block_sizes = tuple(each.sizes for each in rounds)
    table = rotation_table(sizes, n_workers, n_rounds) if scheme == "rotation" else None
    return Design(
        scheme=scheme,
        n_workers=n_workers,
        n_rounds=n_rounds,
        n_pairs=config.n_pairs,
        distinct=config.distinct,
        aggregate=config.aggregate,
        empty=config.empty,
        move=config.move,
        block_sizes=block_sizes,
        holdings=table,
        multiplicities=tuple(each.multiplicities for each in rounds) if rounds[0].multiplicities else None,
    )


def error_bar(
    kernel: Kernel,
    sizes: Sequence[int],
    design: Design,
    *,
    value: Array,
    means: Array,
    components: Array | None,
    method: str,
    config: EstimateConfig,
    local_values: Array | None = None,
    variance: float | None = None,
    kurtosis: Sequence[float] | None = None,
    notes: Sequence[str] = (),
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
    local_values : ndarray, shape (T, N, q), optional
        For kernels whose variance has no closed form: what the workers found.
    variance : float, optional
        An estimate of the whole variance, where there is one and no components.
    kurtosis : sequence of float, optional
        Of each sample's row means.
    notes : sequence of str
        What is known already to rule a normal interval out.
    """
    covariance, dof, doubts = None, None, list(notes)
    if components is not None:
        try:
            factors, square = coefficients(kernel.degrees, sizes, design)
        except NoClosedForm:
            components = None
        else:
            parts = np.tensordot(factors, components, axes=1) + square * np.outer(means, means)
            gradient = kernel.gradient(means)
            covariance = gradient @ parts @ gradient.T
    if covariance is None and variance is not None:
        covariance, method = np.array([[variance]]), "sample"
    if covariance is None and local_values is not None:
        found = [
            variance_from_workers(local_values[:, :, j], independent=_independent(design, sizes))
            for j in range(len(value))
        ]
        if all(each is not None for each in found):
            known = [each for each in found if each is not None]
            covariance = np.diag([each[0] for each in known])
            dof, method = min(each[1] for each in known), "workers"
    if covariance is None:
        method = "none"
        remedy = "more points are needed" if design.scheme == "complete" else "use --complete or more workers"
        if kernel.complete_route == "tuples":  # of which components are never known
            remedy = "take the mean over several workers (--scheme prop-swor --aggregate mean), whose values show it"
        doubts.append(f"there is no estimate of this kernel's variance here: {remedy}")
    chosen = None if config.interval == "auto" else config.interval
    intervals = tuple(
        Interval(None, None, "none", notes[0])
        if notes
        else interval(
            float(value[j]),
            None if covariance is None else float(covariance[j, j]),
            config.confidence,
            bounded=kernel.bounded,
            dof=dof,
            method=chosen,
        )
        for j in range(len(value))
    )
    doubts += [each.note for each in intervals if each.note is not None]
    if components is not None and covariance is not None:
        gradient = kernel.gradient(means)
        for j in range(len(value)):
            of_one = np.einsum("p,cpr,r->c", gradient[j], components, gradient[j])
            doubts += flags(
                of_one, sizes, kernel.degrees, value=float(value[j]), bounded=kernel.bounded, kurtosis=kurtosis
            )
    return ErrorBar(covariance, method, intervals, components, tuple(dict.fromkeys(doubts)))


def _independent(design: Design, sizes: Sequence[int]) -> bool:
    """Tell whether the blocks of each round are disjoint and the estimate a mean of local values."""
    if design.scheme in ("complete", "prop-swr") or design.empty == "zero":
        return False
    if design.aggregate == "mean":
        return True
    if design.block_sizes is None:
        return all(size % design.n_workers == 0 for size in sizes)
    return all(len(set(of_sample)) == 1 for of_round in design.block_sizes for of_sample in of_round)


def bias(
    kernel: Kernel,
    sizes: Sequence[int],
    design: Design,
    values: Mapping[str, Array],
    complete: Any,
    means: Array,
    components: Array | None,
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
            whole, _ = coefficients(kernel.degrees, sizes, Design(scheme="complete"))
            gradient = kernel.gradient(means)
            variance = float((gradient @ np.tensordot(local - whole, components, axes=1) @ gradient.T)[0, 0])
            stderr = math.sqrt(variance) if variance > 0.0 else None
        found.append(Bias(aggregate, difference, stderr, None if stderr is None else difference / stderr))
    return tuple(found)
