"""The estimate of points of which more is said than where they are: weights, clusters, strata, groups."""

from __future__ import annotations

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimates import ErrorBar, Estimate
from mpi_ustat.estimation.printed import INFLUENCE
from mpi_ustat.estimation.problem import Problem, quiet_overflow
from mpi_ustat.inference.evidence import Evidence
from mpi_ustat.inference.intervals import Interval, interval
from mpi_ustat.inference.judge import Judge
from mpi_ustat.influence.analysis import Analysis, analyse
from mpi_ustat.mpi.runtime import PhaseClock

ALIKE = "the variance is of first order only: too small, and a normal interval wrong, where the samples are of one law"
"""What is true of any discrepancy between samples, and not told from its weighted points."""


def analysed(problem: Problem, clock: PhaseClock) -> Estimate:
    """Return the complete statistic, from what every point learns of its pairs, with its error bar.  Collective.

    Raises
    ------
    UserError
        If it isn't the complete statistic that is asked for.
    """
    config, comm = problem.config, problem.comm
    refuse_rounds(problem)
    found = influence(problem, clock)
    several = (len(found.value),) if len(found.value) > 1 else ()
    value = found.value if several else float(found.value[0])
    error = _error_bar(found, problem) if config.stderr else None
    nothing = np.empty((0, 0, *several))
    none_moved = np.empty(0, dtype=np.int64)
    return Estimate(
        value=value,
        sizes=problem.sizes,
        n_evaluations=0,
        per_round=found.value.reshape(1, *several),
        per_worker=nothing,
        evaluations=np.empty((0, 0), dtype=np.int64),
        evaluations_per_round=np.empty(0, dtype=np.int64),
        empty_workers=0,
        rows_moved=none_moved,
        bytes_moved=none_moved,
        error=error,
        complete_value=value,
        complete_error=error,
        bias=(),
        route=INFLUENCE,
        complete_bytes_moved=sum(comm.allgather(found.bytes_sent)),
        seconds=clock.slowest(comm),
        n_ranks=comm.size,
        config=config,
        columns=problem.columns if several else (),
        unit=problem.unit,
        analysis=found,
        learnt=problem.learnt,
    )


def refuse_rounds(problem: Problem) -> None:
    """Refuse to look at the influence of points in rounds.

    Raises
    ------
    UserError
    """
    about = problem.about
    if problem.config.complete or not (about or about.influence):
        return
    raise UserError(
        "weights, clusters, strata, groups and influence are for the statistic over all pairs: use complete=True"
    )


def influence(problem: Problem, clock: PhaseClock) -> Analysis:
    """Return the complete statistic with the influence of every point.  Collective."""
    with clock("influence"), quiet_overflow():
        rows = [each.rows for each in problem.exchanges]
        found = analyse(problem.comm, rows, problem.kernel, problem.about, problem.names)
    problem.check_finite(found.value)
    return found


def _error_bar(found: Analysis, problem: Problem) -> ErrorBar:
    """Return the error bar: by the normal law, or Student's where clusters are counted."""
    config, kernel = problem.config, problem.kernel
    flags, intervals = list(found.flags), []
    if kernel.has_own_variance:
        flags.append(ALIKE)
    of_what = "cluster" if found.groups is None else "group"
    for value, variance in zip(found.value.tolist(), np.diagonal(found.covariance).tolist(), strict=True):
        flags += kernel.doubts_about(value)
        if np.isfinite(variance):
            method = None if config.interval == "auto" else config.interval
            within = interval(value, variance, config.confidence, limits=kernel.limits, dof=found.dof, method=method)
        else:
            within = Interval(None, None, "none", f"there is one {of_what} only: a standard error wants several")
        intervals.append(within)
        flags += [] if within.note is None else [within.note]
    q = len(found.value)
    judge = Judge(kernel, problem.sizes, None, Evidence(problem.sizes), None, problem.names, found.dof, np.eye(q), None)
    covariance = found.covariance if np.isfinite(found.covariance).all() else None
    unique = tuple(dict.fromkeys(flags))
    dofs, of_all_pairs = (found.dof,) * q, np.zeros((q, q))
    return ErrorBar(covariance, INFLUENCE, tuple(intervals), None, unique, dofs, of_all_pairs, judge)
