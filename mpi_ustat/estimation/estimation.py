"""Estimating a U-statistic of samples that are spread over the ranks of a communicator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mpi_ustat.complete import Complete
from mpi_ustat.estimation.analysed import analysed, influence, refuse_rounds
from mpi_ustat.estimation.estimates import Estimate, Round
from mpi_ustat.estimation.problem import Problem, quiet_overflow
from mpi_ustat.estimation.records import evaluations, local_values
from mpi_ustat.estimation.round_sums import evaluations_per_round
from mpi_ustat.estimation.rounds import State, step
from mpi_ustat.estimation.uncertainty import Uncertainty
from mpi_ustat.mpi.runtime import PhaseClock


@dataclass
class Estimation:
    """One estimation on one rank: what is asked, how far it is, and what it took.  All methods are collective."""

    problem: Problem
    state: State = field(default_factory=State)
    clock: PhaseClock = field(default_factory=PhaseClock)

    def step(self) -> Round:
        """Do the next round, and return it."""
        self.state = step(self.problem, self.state, self.clock)
        return self.state.rounds[-1]

    def complete(self) -> Complete:
        """Return the complete statistic U_n."""
        with self.clock("complete"):
            found = self.problem.complete(components=self.problem.config.stderr)
        self.problem.check_finite(found.value)
        return found

    def result(self) -> Estimate:
        """Return the estimate over the rounds so far, or the complete one; beside it U_n, where that is asked for."""
        problem, rounds, config, kernel = self.problem, self.state.rounds, self.problem.config, self.problem.kernel
        if problem.about or kernel.statistic_route or (config.complete and config.stderr and kernel.by_influence):
            return analysed(problem, self.clock)
        refuse_rounds(problem)
        complete = self.complete() if config.complete or config.reference else None
        uncertainty = Uncertainty(problem, rounds)
        records = [each.record for each in rounds if each.record is not None] if config.per_worker else []
        if config.complete:
            assert complete is not None
            value, per_round = np.atleast_1d(complete.value), [np.atleast_1d(complete.value)]
            n_evaluations = kernel.evaluations(complete.local.sums)
        else:
            per_round = [each.value for each in rounds]
            n_evaluations = sum(each.sums.evaluations for each in rounds)
            if config.aggregate == "pooled":
                value = kernel.combine(uncertainty.means)
            else:
                value = np.array([math.fsum(of_one) / len(of_one) for of_one in zip(*per_round, strict=True)])
        several = (len(value),) if len(value) > 1 else ()
        error = complete_error = None
        if config.stderr:
            with self.clock("stderr"), quiet_overflow():
                complete_error = None if complete is None else uncertainty.of_complete(complete)
                error = complete_error if config.complete else uncertainty.of_rounds(value)
        biased = complete is not None and rounds and problem.scheme.as_they_lie and not several
        return Estimate(
            value=value if several else float(value[0]),
            sizes=problem.sizes,
            n_evaluations=n_evaluations,
            per_round=np.array(per_round, dtype=np.float64).reshape(len(per_round), *several),
            per_worker=local_values(records, several),
            evaluations=evaluations(records),
            evaluations_per_round=evaluations_per_round([each.sums for each in rounds]),
            empty_workers=sum(r.sums.n_empty for r in rounds),
            rows_moved=np.array([r.rows_moved for r in rounds], dtype=np.int64),
            bytes_moved=np.array([r.bytes_moved for r in rounds], dtype=np.int64),
            error=error,
            complete_bytes_moved=0 if complete is None else complete.bytes_moved,
            complete_value=None if complete is None else complete.value,
            complete_error=complete_error,
            expectation_factor=uncertainty.expectation_factor,
            bias=uncertainty.bias(complete) if complete is not None and biased else (),
            route=None if complete is None else complete.route,
            seconds=self.clock.slowest(problem.comm),
            n_ranks=problem.comm.size,
            config=config,
            columns=problem.columns if several else (),
            unit=problem.unit,
            analysis=influence(problem, self.clock) if problem.about.influence else None,
            learnt=problem.learnt,
        )


def run(estimation: Estimation) -> Iterator[Round]:
    """Yield the rounds that are still to do, none when the complete statistic is asked for.  Collective."""
    config = estimation.problem.config
    while not config.complete and len(estimation.state.rounds) < config.n_rounds:
        yield estimation.step()
