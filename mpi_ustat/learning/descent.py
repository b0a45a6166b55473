"""Minimising a pairwise loss by stochastic gradient descent over data that are spread over the ranks.

Each iteration every worker averages the gradient over pairs of its own points, the averages are averaged over the
workers, and all ranks take the same step. Pairs of points on different workers are never seen, unless the data are
repartitioned now and then (the paper's Section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import DivergedError, UserError
from mpi_ustat.learning.fit import COUNTERS, Fit, Optimum, Record, history_of, records_of
from mpi_ustat.learning.monitoring import Monitor
from mpi_ustat.learning.placement import placed, points_at
from mpi_ustat.learning.state import State
from mpi_ustat.learning.stopping import Evaluated, Validation
from mpi_ustat.learning.training import Training
from mpi_ustat.mpi.collectives import Status, reduction_bytes, sum_over_workers
from mpi_ustat.mpi.runtime import PhaseClock, agree, locally
from mpi_ustat.numerics.types import Floats


def step(training: Training, state: State, clock: PhaseClock, stop_requested: Callable[[], bool]) -> State:
    """Return the state after the next step.  Collective."""
    config = training.config
    if training.homes is not None:
        found = all_pairs(training, state.parameters, state.iteration, clock, stop_requested)
        return state.after(
            found.gradient,
            config,
            stopped=found.stopped,
            bytes_reduced=found.bytes_reduced,
            bytes_moved=found.bytes_sent,
        )
    with clock("repartition"):
        state = placed(training, state)
    assert state.placement is not None
    gradients = np.zeros((len(training.workers), len(state.parameters)))
    with clock("gradient"):
        error, _ = locally(lambda: add_gradients(training, state, gradients))
    total, stopped, reduced = _reduced(training, gradients, error, clock, stop_requested)
    gradient = total / state.placement.layout.n_contributing
    return state.after(gradient, config, stopped=stopped, bytes_reduced=reduced)


class OfAllPairs(NamedTuple):
    """The loss over all pairs of a step's points, and its gradient, the same on every rank.

    Attributes
    ----------
    loss : float
        NaN where it isn't wanted.
    gradient : ndarray, shape (p,)
        Without the penalty's.
    stopped : bool
        Whether a stop was asked for on any rank.
    bytes_sent, bytes_reduced : int
        By this rank: scores and what comes back for them, and gradients.
    """

    loss: float
    gradient: Floats
    stopped: bool
    bytes_sent: int
    bytes_reduced: int


def all_pairs(
    training: Training,
    parameters: Floats,
    iteration: int,
    clock: PhaseClock,
    stop_requested: Callable[[], bool],
    *,
    want_loss: bool = False,
) -> OfAllPairs:
    """Return the loss and the gradient of a step whose scores are exchanged.  Collective."""
    assert training.homes is not None
    errors: list[BaseException] = []

    def attempt(compute: Callable[[], object]) -> None:
        error, _ = locally(compute)
        errors.extend([error] if error is not None else [])

    with clock("gradient"):
        loss, gradients, sent = training.homes.gradient(
            training.comm, training.objective, parameters, iteration, want_loss=want_loss, attempt=attempt
        )
    error = errors[0] if errors else None
    total, stopped, reduced = _reduced(training, gradients, error, clock, stop_requested)
    return OfAllPairs(loss, total, stopped, sent, reduced)


def _reduced(
    training: Training,
    gradients: Floats,
    error: BaseException | None,
    clock: PhaseClock,
    stop_requested: Callable[[], bool],
) -> tuple[Floats, bool, int]:
    """Return the sum of the workers' gradients, whether to stop, and the bytes sent; an error is all ranks'.

    Collective.
    """
    comm, n_workers = training.comm, training.config.n_workers
    with clock("reduce"):
        own = Status.FAILED if error is not None else Status.STOP if stop_requested() else Status.FINE
        total, worst = sum_over_workers(comm, gradients, n_workers, own)
        if worst is Status.FAILED:
            agree(comm, error, doing=f"evaluating the objective {training.objective.name}", of_data=True)
    return total, worst is Status.STOP, reduction_bytes(comm.size, len(gradients), n_workers, len(total))


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
        self._validation = Validation(training.config)
        self._monitor = Monitor(training.comm, training.objective, training.config, training.pairings, training.streams)

    @property
    def optimum(self) -> Optimum | None:
        """How near the end an optimiser has come that knows; None for others."""
        return None

    @property
    def finished(self) -> bool:
        """Whether there is no next step, or none is to be taken."""
        iteration = self.state.iteration
        at_end = self.state.stopped or iteration >= self.training.config.iterations
        return at_end or self._validation.is_over(iteration)

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
            while self.state.iteration < last and not self.finished:
                self._go_on(last)
                if self.state.iteration % config.eval_every == 0 or self.finished:
                    yield self._evaluate()

    def _go_on(self, last: int) -> None:
        """Go on towards iteration `last`, not past the next evaluation.  Collective."""
        self.step()
        if not np.isfinite(self.state.parameters).all():
            raise DivergedError(self.state.iteration)

    def fit(self) -> Fit:
        """Return the result so far.  Collective."""
        state, training = self.state, self.training
        at_end = state.iteration >= training.config.iterations or (self.finished and not state.stopped)
        kept = self._validation.kept(at_end=at_end)
        return Fit(
            parameters=(state if kept is None else kept).parameters.copy(),
            iterations=state.iteration,
            stopped=state.stopped,
            empty_workers=state.empty_workers,
            history=history_of(training.comm.allgather(self.records), validated=bool(training.validation)),
            config=training.config,
            sizes=training.sizes,
            n_ranks=training.comm.size,
            optimum=self.optimum,
            sampled_pairs=self._monitor.sampled(training.sets, state.parameters),
            kept=None if not training.validation else state.iteration if kept is None else kept.iteration,
        )

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return the state from which `restore` goes on, on any number of ranks.  Collective."""
        state, code = self.state, self.training.code
        return {
            "iteration": np.array(state.iteration),
            "parameters": state.parameters.copy(),
            "velocity": state.velocity.copy(),
            "counters": np.sum(self.training.comm.allgather(state.counters), axis=0),
            "empty_workers": np.array(state.empty_workers),
            **({"code": code} if len(code) else {}),
            **self._validation.snapshot(),
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
        last = None
        if training.validation and self.records and self.records[-1].iteration == self.state.iteration:
            last = Evaluated(self.state.iteration, self.records[-1].validation_loss, self.state.parameters.copy())
        self._validation.restore(snapshot, last)

    def _evaluation_is_missing(self) -> bool:
        """Tell whether the run that this one goes on from was interrupted in the evaluation that was due."""
        iteration = self.state.iteration
        due = iteration % self.training.config.eval_every == 0 or self.finished
        return due and iteration > self.records[-1].iteration

    def _evaluate(self) -> Record:
        state = self.state
        with self.clock("evaluate"):
            penalty = self.training.config.l2 * float(state.parameters @ state.parameters)
            found = dict.fromkeys(("test", "validation"), (math.nan, math.nan))
            found |= self._monitor.evaluate(self.training.sets, state.parameters)
            homes = self.training.homes
            if homes is not None and homes.said and np.isfinite(state.parameters).all():
                found["train"] = homes.loss_and_auc(self.training.comm, self.training.objective, state.parameters)
            (train_loss, train_auc), (test_loss, test_auc) = found["train"], found["test"]
            validation_loss, validation_auc = found["validation"]
            validation_loss += penalty
            if self.training.validation:
                loss = self.training.comm.bcast(validation_loss)
                self._validation.take(Evaluated(state.iteration, loss, state.parameters.copy()))
        record = Record(
            iteration=state.iteration,
            train_loss=train_loss + penalty,
            train_auc=train_auc,
            test_loss=test_loss + penalty,
            test_auc=test_auc,
            validation_loss=validation_loss,
            validation_auc=validation_auc,
            seconds=dict(self.clock.seconds),
            bytes_moved=state.bytes_moved,
            bytes_reduced=state.bytes_reduced,
            rows_moved=state.rows_moved,
        )
        self.records.append(record)
        return record
