"""Minimising a pairwise loss by stochastic gradient descent over data that are spread over the ranks.

Each iteration every worker averages the gradient over pairs of its own points, the averages are averaged over the
workers, and all ranks take the same step. Pairs of points on different workers are never seen, unless the data are
repartitioned now and then (the paper's Section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import DivergedError, UserError
from mpi_ustat.learning.fit import COUNTERS, Fit, Record, history_of, records_of
from mpi_ustat.learning.monitoring import Monitor
from mpi_ustat.learning.placement import placed, points_at
from mpi_ustat.learning.state import State
from mpi_ustat.learning.training import Training
from mpi_ustat.mpi.collectives import Status, reduction_bytes, sum_over_workers
from mpi_ustat.mpi.runtime import PhaseClock, agree, locally
from mpi_ustat.numerics.types import Floats


def step(training: Training, state: State, clock: PhaseClock, stop_requested: Callable[[], bool]) -> State:
    """Return the state after the next step.  Collective."""
    config, comm = training.config, training.comm
    with clock("repartition"):
        state = placed(training, state)
    assert state.placement is not None
    gradients = np.zeros((len(training.workers), len(state.parameters)))
    with clock("gradient"):
        error, _ = locally(lambda: add_gradients(training, state, gradients))
    with clock("reduce"):
        own = Status.FAILED if error is not None else Status.STOP if stop_requested() else Status.FINE
        total, worst = sum_over_workers(comm, gradients, config.n_workers, own)
        if worst is Status.FAILED:
            agree(comm, error, doing=f"evaluating the objective {training.objective.name}", of_data=True)
        gradient = total / state.placement.layout.n_contributing
        reduced = reduction_bytes(comm.size, len(gradients), config.n_workers, len(gradient))
    return state.after(gradient, config, stopped=worst is Status.STOP, bytes_reduced=reduced)


def add_gradients(training: Training, state: State, gradients: Floats) -> None:
    """Add to each worker's row the average gradient over its pairs."""
    assert state.placement is not None
    placement, layout, objective = state.placement, state.placement.layout, training.objective
    useful, batch = layout.useful, training.config.batch_pairs
    if useful.size == 0:
        return
    for p, (a, b) in enumerate(training.pairings):
        x, z = training.exchanges[a], training.exchanges[b]
        if batch is None:
            for i in useful.tolist():
                x_i, z_i = x.current[i], z.current[i]
                _, total = objective.block(state.parameters, x_i, z_i)
                gradients[i] += total / (len(x_i) * len(z_i))
            continue
        shape = (len(useful), batch, -1)
        if training.orders_rows:
            x.put_in_order()  # once, for all iterations to come
            z.put_in_order()
        drawn = training.pairs.of_iteration(p, state.iteration, placement.round, layout)
        x_pairs, z_pairs = (
            points_at(training, placement, k, places).reshape(shape) for k, places in zip((a, b), drawn, strict=True)
        )
        averages = objective.gradients(state.parameters, x_pairs, z_pairs) / batch
        if len(useful) == len(gradients):
            gradients += averages
        else:
            gradients[useful] += averages


class Learning:
    """One descent on one rank: what there is to learn from, how far it is, and its evaluations.

    `stop_requested` is asked after every step; when it says yes on any rank, all ranks stop after that step.
    """

    def __init__(self, training: Training, stop_requested: Callable[[], bool] = lambda: False) -> None:
        self.training, self.stop_requested = training, stop_requested
        self.state = training.initial()
        self.records: list[Record] = []
        self.clock = PhaseClock()
        self._monitor = Monitor(training.comm, training.objective, training.config, training.pairings, training.streams)

    def step(self) -> None:
        """Take the next step.  Collective."""
        self.state = step(self.training, self.state, self.clock, self.stop_requested)

    def run(self, until: int | None = None) -> Iterator[Record]:
        """Step on to iteration `until` (by default the last); yield an evaluation now and then.  Collective.

        A DivergedError on every rank says that the parameters are not finite any more.
        """
        config = self.training.config
        last = config.iterations if until is None else min(until, config.iterations)
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.records or self._evaluation_is_missing():
                yield self._evaluate()
            while self.state.iteration < last and not self.state.stopped:
                self.step()
                if not np.isfinite(self.state.parameters).all():
                    raise DivergedError(self.state.iteration)
                at_end = self.state.iteration == config.iterations or self.state.stopped
                if self.state.iteration % config.eval_every == 0 or at_end:
                    yield self._evaluate()

    def fit(self) -> Fit:
        """Return what was learnt so far.  Collective."""
        state, training = self.state, self.training
        return Fit(
            parameters=state.parameters.copy(),
            iterations=state.iteration,
            stopped=state.stopped,
            empty_workers=state.empty_workers,
            history=history_of(training.comm.allgather(self.records)),
            config=training.config,
            sizes=training.sizes,
            n_ranks=training.comm.size,
            sampled_pairs=self._monitor.sampled(training.sets, state.parameters),
        )

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what `restore` needs to go on from here, on any number of ranks.  Collective."""
        state, code = self.state, self.training.code
        return {
            "iteration": np.array(state.iteration),
            "parameters": state.parameters.copy(),
            "velocity": state.velocity.copy(),
            "counters": np.sum(self.training.comm.allgather(state.counters), axis=0),
            "empty_workers": np.array(state.empty_workers),
            **({"code": code} if len(code) else {}),
            **{f"history/{name}": values for name, values in self.fit().history.items()},
        }

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of a descent with the same data and options.

        Partitions and draws are functions of the iteration and need no replay. Evaluations that a whole run would not
        have made, at the last step of an interrupted one, are dropped. Another code of a user's objective is refused.
        """
        training, config = self.training, self.training.config
        if not np.array_equal(snapshot.get("code", ()), training.code):
            raise UserError(
                f"the snapshot belongs to a descent with another code of the objective {training.objective.name}: go "
                "on with the same, or start afresh"
            )
        # What is summed over the ranks, or the largest of them, goes on on rank 0.
        mine = training.comm.rank == 0
        counters = zip(COUNTERS, snapshot["counters"].tolist() if mine else (0, 0, 0), strict=True)
        self.state = State(
            int(snapshot["iteration"]),
            snapshot["parameters"].copy(),
            snapshot["velocity"].copy(),
            empty_workers=int(snapshot["empty_workers"]),
            **dict(counters),
        )
        history = {name.removeprefix("history/"): values for name, values in snapshot.items() if "history/" in name}
        evaluated = history["iteration"]
        kept = (evaluated % config.eval_every == 0) | (evaluated == config.iterations)
        self.records += records_of({name: values[kept] for name, values in history.items()}, counted=mine)
        self.clock.seconds = dict(self.records[-1].seconds) if self.records else {}

    def _evaluation_is_missing(self) -> bool:
        """Tell whether the run that this one goes on from was interrupted in the evaluation that was due."""
        iteration = self.state.iteration
        return iteration > self.records[-1].iteration and iteration % self.training.config.eval_every == 0

    def _evaluate(self) -> Record:
        state = self.state
        with self.clock("evaluate"):
            penalty = self.training.config.l2 * float(state.parameters @ state.parameters)
            found = {"test": (math.nan, math.nan)} | self._monitor.evaluate(self.training.sets, state.parameters)
            (train_loss, train_auc), (test_loss, test_auc) = found["train"], found["test"]
        record = Record(
            iteration=state.iteration,
            train_loss=train_loss + penalty,
            train_auc=train_auc,
            test_loss=test_loss + penalty,
            test_auc=test_auc,
            seconds=dict(self.clock.seconds),
            bytes_moved=state.bytes_moved,
            bytes_reduced=state.bytes_reduced,
            rows_moved=state.rows_moved,
        )
        self.records.append(record)
        return record
