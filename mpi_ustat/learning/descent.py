"""Minimising a pairwise loss by stochastic gradient descent over data that are spread over the ranks.

Each iteration every worker averages the gradient over pairs of its own points, the averages are averaged over the
workers, and all ranks take the same step. Pairs of points on different workers are never seen, unless the data are
repartitioned now and then (the paper's Section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import DivergedError, UserError, brief
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.estimation.table import as_text
from mpi_ustat.learning.losses import DEFAULT_LOSS
from mpi_ustat.learning.monitoring import Monitor
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.learning.table import fit_rows, last_values, parameters_row
from mpi_ustat.learning.user_objectives import make_objective
from mpi_ustat.mpi.collectives import Status, reduction_bytes, starts_of, sum_over_workers
from mpi_ustat.mpi.exchange import Exchange, as_they_lie
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import PhaseClock, agree, locally, together
from mpi_ustat.numerics.rng import Streams, fresh_seed
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.preparation import same_columns
from mpi_ustat.points.rows import as_rows_of_points
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, bounds_of
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, scheme_of
from mpi_ustat.user.code_digest import code_digest

Array = NDArray[np.float64]

_MOST_ITERATIONS_DRAWN = 64
_MOST_PAIRS_DRAWN = 1 << 22

_LOSSES = ("train_loss", "train_auc", "test_loss", "test_auc")
_COUNTERS = ("bytes_moved", "bytes_reduced", "rows_moved")

# Rows that are paired in so few iterations are not put in order before: each pair's are looked up.
_FEW_ITERATIONS = 2


@dataclass(frozen=True)
class Record:
    """One evaluation; losses include the penalty, and are NaN on ranks other than 0.

    Attributes
    ----------
    iteration : int
        Steps taken.
    train_loss, train_auc, test_loss, test_auc : float
        NaN where there is no test set or the objective has no scores.
    seconds : dict of str to float
        This rank's seconds so far by phase: repartition, gradient, reduce, evaluate.
    bytes_moved, bytes_reduced : int
        Bytes this rank has sent so far to exchange rows, and to average gradients.
    rows_moved : int
        Rows this rank has seen changing worker: of a sample of which few rows are used between repartitions at every
        iteration, only those that are used.
    """

    iteration: int
    train_loss: float
    train_auc: float
    test_loss: float
    test_auc: float
    seconds: dict[str, float]
    bytes_moved: int
    bytes_reduced: int
    rows_moved: int


@dataclass(frozen=True)
class State:
    """What an iteration changes: with the data and the options it determines everything that follows.

    Attributes
    ----------
    iteration : int
        Steps taken.
    parameters, velocity : ndarray, shape (p,)
        θ and v.
    stopped : bool
        Whether a stop was asked for.
    """

    iteration: int
    parameters: Array
    velocity: Array
    stopped: bool = False

    def after(self, gradient: Array, config: LearnConfig, *, stopped: bool) -> State:
        """Return the state after the step along an average gradient of the loss, to which the penalty's is added."""
        if config.l2:
            gradient = gradient + (2.0 * config.l2) * self.parameters
        velocity = config.momentum * self.velocity + gradient
        rate = config.learning_rate / (1.0 + config.decay * self.iteration)
        return State(self.iteration + 1, self.parameters - rate * velocity, velocity, stopped)


class _Counted(NamedTuple):
    """What a rank has counted: the bytes and rows of each exchange, bytes reduced, and workers without a pair."""

    moved: list[tuple[int, int]]
    bytes_reduced: int
    empty_workers: int


@dataclass(frozen=True)
class _Layout:
    """Which workers have pairs, under block bounds of each sample.

    Attributes
    ----------
    bounds : list of ndarray of int64, shapes (N + 1,)
    sizes : ndarray of int64, shape (samples, N)
    n_contributing, n_empty : int
        Workers whose averages are averaged, and those without a pair.
    useful, drawn_for : ndarray of int
        Workers with pairs: of those hosted here, and of those whose pairs are drawn here, counted from the first.
    bounds_of_pairs : ndarray of int64, shape (N + 1,)
        The blocks of rows that the pairs of one iteration are.
    """

    bounds: list[NDArray[np.int64]]
    sizes: NDArray[np.int64]
    n_contributing: int
    n_empty: int
    useful: NDArray[np.intp]
    drawn_for: NDArray[np.intp]
    bounds_of_pairs: NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Fit:
    """What was learnt, the same on every rank; `print` shows it as a short table.

    Attributes
    ----------
    parameters : ndarray, shape (p,)
        θ after the last step.
    iterations : int
        Steps taken.
    stopped : bool
        Whether a stop was asked for before the last step.
    empty_workers : int
        Workers without a pair, over all partitions; those that the option `empty` let through.
    history : dict of str to ndarray
        By evaluation: ``iteration``, ``train_loss``, ``train_auc``, ``test_loss``, ``test_auc``, ``bytes_moved``,
        ``bytes_reduced``, ``rows_moved`` (of all ranks), and ``seconds/<phase>`` (of the slowest rank).
    config : LearnConfig
    sizes : tuple of int
        Points of each training sample.
    n_ranks : int
        P.
    sampled_pairs : dict of str to int or None
        How many pairs the losses of ``train`` and ``test`` are averages of, in each pairing; None: all pairs.
    """

    parameters: Array
    iterations: int
    stopped: bool
    empty_workers: int
    history: dict[str, NDArray[Any]]
    config: LearnConfig
    sizes: tuple[int, ...]
    n_ranks: int
    sampled_pairs: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return as_text([*fit_rows(self), parameters_row(self)])

    def __repr__(self) -> str:
        shown = {"parameters": self.parameters.tolist(), "iterations": self.iterations, "sizes": self.sizes}
        shown |= {name: value for name, value in last_values(self).items() if not math.isnan(value)}
        return brief(f"Fit({', '.join(f'{name}={each!r}' for name, each in shown.items())})")


@dataclass
class Learning:
    """The state of one descent on one rank.  Construction and `run` are collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray, shapes (n_local, d)
        This rank's training points, a sample each: first x, whose points should score higher, then z; or K ordered
        classes, the lowest first.
    config : LearnConfig
    tests : sequence of ndarray, optional
        This rank's test points, likewise.
    objective : PairObjective, optional
        Instead of the one that `config` names.
    pairings : sequence of pairs of int, optional
        Which samples are paired, ((0, 1),) by default: the loss is summed over the pairings.
    block_sizes : sequence of arrays, optional
        For ``as-is``: the sizes of this rank's workers' blocks of each sample.
    stop_requested : callable
        Asked after every step; when it says yes on any rank, all ranks stop after that step.
    """

    comm: Any
    samples: Sequence[Array]
    config: LearnConfig
    tests: Sequence[Array] = ()
    objective: PairObjective | None = None
    pairings: Sequence[tuple[int, int]] = ((0, 1),)
    block_sizes: Sequence[NDArray[np.int64]] | None = None
    stop_requested: Callable[[], bool] = lambda: False
    records: list[Record] = field(default_factory=list, init=False)
    clock: PhaseClock = field(default_factory=PhaseClock, init=False)

    def __post_init__(self) -> None:
        """Check the points, count them, and draw the initial parameters."""
        comm, config = self.comm, self.config
        with together(comm, "making the objective"):
            self._objective = self.objective or make_objective(config.objective, loss=config.loss)
            self._code = _code_of(self._objective)  # before it can change what it holds
        names = [*(f"{k}" for k in range(len(self.samples))), *(f"{k} of the test set" for k in range(len(self.tests)))]
        points = checked_points(comm, names, [*self.samples, *self.tests], as_rows_of_points)
        samples, tests = points[: len(self.samples)], points[len(self.samples) :]
        self._exchanges = [Exchange(comm, rows, config.n_workers) for rows in samples]
        self._tests = [Exchange(comm, rows, config.n_workers) for rows in tests]
        columns = {each.rows.shape[1] for each in (*self._exchanges, *self._tests)}
        if len(columns) > 1:
            raise UserError(f"the samples have different numbers of columns, {sorted(columns)}: give them the same")
        self.sizes = tuple(each.n_rows for each in self._exchanges)
        for k, size in enumerate(self.sizes):
            if size == 0:
                raise UserError(f"training sample {k} has no points: every sample needs some")
        for k, test in enumerate(self._tests):
            if test.n_rows == 0:
                raise UserError(f"test sample {k} has no points: give every sample some, or leave the test set out")
        self._refuse_what_no_memory_holds()
        self._streams = Streams(config.seed)
        self._partition: Partition | None = None
        scheme = scheme_of(config.scheme)
        if not scheme.as_they_lie:
            self._partition = Partition(
                scheme,
                self.sizes,
                config.n_workers,
                self._streams,
                move=config.move,
                shuffle=config.shuffle,
                may_be_empty=config.empty != "refuse",
            )
        self._workers = self._exchanges[0].workers
        every = config.repartition_every
        self._goes_on = scheme.goes_on(config.move)
        self._orders_rows = every is None or every > _FEW_ITERATIONS or config.move == "smaller"
        self._sparse = [self._used_sparsely(k) for k in range(len(self.sizes))]
        self._drawing = range(config.n_workers) if any(self._sparse) else self._workers
        self._round: int | None = None  # whose rows are here
        self._resumed = False
        self._layout: _Layout | None = None
        self._empty_workers = 0
        n_parameters = self._objective.n_parameters(columns.pop())
        self.state = State(0, self._initial(n_parameters), np.zeros(n_parameters))
        # One draw serves iterations of several rounds, if block sizes don't change with the round.
        uneven = any(size % config.n_workers for size in self.sizes)
        changing = scheme.random_counts or (scheme.blocks_travel and uneven)
        self._pairs = _Pairs(config, len(self.pairings), self._streams, one_round=changing)
        self._monitor = Monitor(comm, self._objective, config, self.pairings, self._streams)
        self._bytes_reduced = 0
        self._fetched: dict[int, Array] = {}
        self._before = np.zeros(3, dtype=np.int64)

    def _refuse_what_no_memory_holds(self) -> None:
        """Refuse sizes that nobody means, before the time that they would take.  Collective."""
        config, comm = self.config, self.comm
        d = self._exchanges[0].rows.shape[1]
        batch = -(-config.n_workers // comm.size) * (config.batch_pairs or 0)
        what = f"{config.batch_pairs} pairs for each of {config.n_workers} worker(s)"
        refuse_beyond_memory(comm, batch * (32.0 + 24.0 * d), what, "ask for fewer batch_pairs= or n_workers=")
        what = f"the curves of {config.iterations} iterations, evaluated every {config.eval_every}"
        held = 1500.0 * (config.iterations // config.eval_every)
        refuse_beyond_memory(comm, held, what, "ask for fewer iterations=, or a larger eval_every=")

    def run(self, until: int | None = None) -> Iterator[Record]:
        """Step on to iteration `until` (by default the last); yield an evaluation now and then.  Collective.

        Raises
        ------
        DivergedError
            On every rank, when the parameters are not finite any more.
        UserError
            On every rank, when a worker has no pair and that is not allowed, or the objective fails on any rank.
        """
        last = self.config.iterations if until is None else min(until, self.config.iterations)
        with np.errstate(over="ignore", invalid="ignore"):
            if not self.records or self._evaluation_is_missing():
                yield self._evaluate()
            while self.state.iteration < last and not self.stopped:
                self.state = self._step()
                if not np.isfinite(self.state.parameters).all():
                    raise DivergedError(self.state.iteration)
                at_end = self.state.iteration == self.config.iterations or self.stopped
                if self.state.iteration % self.config.eval_every == 0 or at_end:
                    yield self._evaluate()

    def fit(self) -> Fit:
        """Return what was learnt so far.  Collective."""
        everyone = self.comm.allgather(self.records)
        history: dict[str, NDArray[Any]] = {
            name: np.array([getattr(record, name) for record in everyone[0]]) for name in ("iteration", *_LOSSES)
        }
        for name in _COUNTERS:
            history[name] = np.sum([[getattr(record, name) for record in rank] for rank in everyone], axis=0)
        for phase in ("repartition", "gradient", "reduce", "evaluate"):
            each = [[record.seconds.get(phase, 0.0) for record in rank] for rank in everyone]
            history[f"seconds/{phase}"] = np.max(each, axis=0)
        return Fit(
            parameters=self.state.parameters.copy(),
            iterations=self.state.iteration,
            stopped=self.stopped,
            empty_workers=self._empty_workers,
            history=history,
            config=self.config,
            sizes=self.sizes,
            n_ranks=self.comm.size,
            sampled_pairs=self._monitor.sampled(self._sets, self.state.parameters),
        )

    @property
    def stopped(self) -> bool:
        """Whether a stop was asked for."""
        return self.state.stopped

    @property
    def _sets(self) -> dict[str, list[Exchange]]:
        return {"train": self._exchanges} | ({"test": self._tests} if self._tests else {})

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return what `restore` needs to go on from here, on any number of ranks.  Collective."""
        counted = self._counted()
        if self._round is not None and self.state.iteration == self._round * (self.config.repartition_every or 0):
            counted = self._counted_before  # the step that was interrupted will be counted again
        counters = self.comm.allgather(self._counters(counted))
        return {
            "iteration": np.array(self.state.iteration),
            "parameters": self.state.parameters.copy(),
            "velocity": self.state.velocity.copy(),
            "counters": np.sum(counters, axis=0),
            "empty_workers": np.array(counted.empty_workers),
            **({"code": self._code} if len(self._code) else {}),
            **{f"history/{name}": values for name, values in self.fit().history.items()},
        }

    def restore(self, snapshot: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of a descent with the same data and options.

        Partitions and draws are functions of the iteration and need no replay. Evaluations that a whole run would not
        have made, at the last step of an interrupted one, are dropped.

        Raises
        ------
        UserError
            If the objective is the user's, and its code was another.
        """
        if not np.array_equal(snapshot.get("code", ()), self._code):
            raise UserError(
                f"the snapshot belongs to a descent with another code of the objective {self._objective.name}: go on "
                "with the same, or start afresh"
            )
        self.state = State(int(snapshot["iteration"]), snapshot["parameters"].copy(), snapshot["velocity"].copy())
        self._round, self._resumed, self._empty_workers = None, True, int(snapshot["empty_workers"])
        history = {name.removeprefix("history/"): values for name, values in snapshot.items() if "history/" in name}
        evaluated = history["iteration"]
        kept = np.flatnonzero((evaluated % self.config.eval_every == 0) | (evaluated == self.config.iterations))
        # What is summed over the ranks, or the largest of them, goes on on rank 0.
        mine = self.comm.rank == 0
        self._before = snapshot["counters"] if mine else np.zeros(3, dtype=np.int64)
        for i in kept.tolist():
            phases = {name.removeprefix("seconds/"): float(each[i]) for name, each in history.items() if "/" in name}
            values: dict[str, Any] = {name: float(history[name][i]) for name in _LOSSES}
            values |= {name: int(history[name][i]) if mine else 0 for name in _COUNTERS}
            record = Record(iteration=int(history["iteration"][i]), seconds=phases if mine else {}, **values)
            self.records.append(record)
        self.clock.seconds = dict(self.records[-1].seconds) if self.records else {}

    def _evaluation_is_missing(self) -> bool:
        """Tell whether the run that this one goes on from was interrupted in the evaluation that was due."""
        iteration = self.state.iteration
        return iteration > self.records[-1].iteration and iteration % self.config.eval_every == 0

    def _moved(self) -> list[tuple[int, int]]:
        """Return the bytes and rows that each exchange has moved."""
        return [(each.bytes_sent, each.rows_moved) for each in self._exchanges]

    def _counted(self) -> _Counted:
        return _Counted(self._moved(), self._bytes_reduced, self._empty_workers)

    def _counters(self, counted: _Counted) -> NDArray[np.int64]:
        """Return this rank's bytes moved, bytes reduced and rows moved, with those before a resume."""
        n_bytes, n_rows = map(sum, zip(*counted.moved, strict=True))
        return np.array([n_bytes, counted.bytes_reduced, n_rows], dtype=np.int64) + self._before

    def _initial(self, n_parameters: int) -> Array:
        if self.config.init == "zeros":
            return self._objective.initial(np.zeros(n_parameters))
        return self._objective.initial(self._streams.open("initial parameters").normal(n_parameters))

    def _used_sparsely(self, k: int) -> bool:
        """Tell whether so few rows of a sample are used between repartitions that only those are to be moved.

        Every rank draws the pairs of all workers then, so all know which rows travel.
        """
        config = self.config
        if config.repartition_every != 1 or config.batch_pairs is None or len(self.pairings) > 1:
            return False
        if k not in self.pairings[0]:
            return False  # no row of it is used, and it may as well be moved as any other
        if self._goes_on:
            return False  # samples stay, or move as they are
        return config.n_workers * config.batch_pairs < self.sizes[k] / 2

    def _step(self) -> State:
        """Return the state after the next step.  Collective."""
        state, config = self.state, self.config
        with self.clock("repartition"):
            layout = self._repartition()
        gradients = np.zeros((len(self._workers), len(state.parameters)))
        with self.clock("gradient"):
            error, _ = locally(lambda: self._add_gradients(gradients, layout))
        with self.clock("reduce"):
            own = Status.FAILED if error is not None else Status.STOP if self.stop_requested() else Status.FINE
            total, worst = sum_over_workers(self.comm, gradients, config.n_workers, own)
            if worst is Status.FAILED:
                agree(self.comm, error, doing=f"evaluating the objective {self._objective.name}", of_data=True)
            gradient = total / layout.n_contributing
            self._bytes_reduced += reduction_bytes(self.comm.size, len(gradients), config.n_workers, len(gradient))
        return state.after(gradient, config, stopped=worst is Status.STOP)

    def _repartition(self) -> _Layout:
        """Bring the rows of the round that the iteration belongs to; after a resume, those of that round at once."""
        every, iteration = self.config.repartition_every, self.state.iteration
        wanted = 0 if every is None else iteration // every
        if wanted == self._round and self._layout is not None:
            return self._layout
        # A run that goes on in the midst of a round brings back what was counted before it.
        again = self._resumed and iteration > 0 and (every is None or iteration % every > 0)
        before = self._counted_before = self._counted()
        resumed, self._resumed, self._round = self._resumed, False, wanted
        if resumed and not again and wanted and self._partition is not None:
            self._take_up(self._partition.round(wanted - 1))
        blocks: Sequence[Blocks]
        if self._partition is None:
            samples = {f"sample {k}": exchange for k, exchange in enumerate(self._exchanges)}
            blocks = as_they_lie(self.comm, samples, self.block_sizes, self.config.n_workers)
        else:
            blocks = self._partition.round(wanted)
        bounds = [partition.bounds for partition in blocks]
        layout = self._layout
        if layout is None or any(a is not b for a, b in zip(layout.bounds, bounds, strict=True)):
            layout = self._layout = self._lay_out(bounds)
        self._empty_workers += 0 if again else layout.n_empty
        places = self._draw(0, layout) if any(self._sparse) else ()
        try:
            for k, (exchange, partition) in enumerate(zip(self._exchanges, blocks, strict=True)):
                if self._sparse[k] and isinstance(partition, Ordered) and partition.order is not None:
                    order = partition.order.take(places[self.pairings[0].index(k)].ravel(), mode="clip")
                    exchange.bring(Ordered(layout.bounds_of_pairs, order))
                    self._fetched[k] = exchange.put_in_order()
                else:
                    exchange.bring(partition)
        finally:
            if again:
                self._uncount(before.moved)
        return layout

    def _take_up(self, blocks: Sequence[Blocks]) -> None:
        """Bring the rows to where the round before had them, if it matters what moves from there."""
        if not self._goes_on:
            return
        before = self._moved()
        try:
            for k, (exchange, partition) in enumerate(zip(self._exchanges, blocks, strict=True)):
                if not self._sparse[k]:
                    exchange.bring(partition)
        finally:
            self._uncount(before)

    def _uncount(self, moved: list[tuple[int, int]]) -> None:
        """Go back to what exchanges had moved: what a resume brings back was counted before it."""
        for exchange, (n_bytes, n_rows) in zip(self._exchanges, moved, strict=True):
            exchange.bytes_sent, exchange.rows_moved = n_bytes, n_rows

    def _lay_out(self, bounds: list[NDArray[np.int64]]) -> _Layout:
        """Find the workers that have pairs."""
        sizes = np.array([np.diff(each) for each in bounds])
        n_pairs = np.array([sizes[a] * sizes[b] for a, b in self.pairings])
        useful: NDArray[np.bool_] = np.all(n_pairs > 0, axis=0)
        if not useful.all() and self.config.empty == "refuse":
            raise UserError(
                f"{np.count_nonzero(~useful)} of {len(useful)} workers have no pair (the first is worker "
                f'{int(np.argmin(useful))}): use scheme="{DEFAULT_SCHEME}", fewer workers, or empty="skip" or "zero"'
            )
        if not useful.any():
            raise UserError(f'no worker has a pair: use scheme="{DEFAULT_SCHEME}" or fewer workers')
        n_useful = int(np.count_nonzero(useful))
        hosted, drawn_for = (useful[some.start : some.stop] for some in (self._workers, self._drawing))
        return _Layout(
            bounds,
            sizes,
            n_contributing=len(useful) if self.config.empty == "zero" else n_useful,
            n_empty=len(useful) - n_useful,
            useful=np.flatnonzero(hosted),
            drawn_for=np.flatnonzero(drawn_for),
            bounds_of_pairs=bounds_of(useful * (self.config.batch_pairs or 0)),
        )

    def _add_gradients(self, gradients: Array, layout: _Layout) -> None:
        """Add to each worker's row the average gradient over its pairs."""
        useful = layout.useful
        if useful.size == 0:
            return
        for p, (a, b) in enumerate(self.pairings):
            x, z = self._exchanges[a], self._exchanges[b]
            if self.config.batch_pairs is None:
                for i in useful.tolist():
                    x_i, z_i = x.current[i], z.current[i]
                    _, total = self._objective.block(self.state.parameters, x_i, z_i)
                    gradients[i] += total / (len(x_i) * len(z_i))
                continue
            shape = (len(useful), self.config.batch_pairs, -1)
            if self._orders_rows:
                x.put_in_order()  # once, for all iterations to come
                z.put_in_order()
            drawn = zip((a, b), self._draw(p, layout), strict=True)
            x_pairs, z_pairs = (self._points(k, places, layout).reshape(shape) for k, places in drawn)
            averages = self._objective.gradients(self.state.parameters, x_pairs, z_pairs) / self.config.batch_pairs
            if len(useful) == len(gradients):
                gradients += averages
            else:
                gradients[useful] += averages

    def _draw(self, pairing: int, layout: _Layout) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of the iteration's pairs, (workers, B), in the order of each sample's blocks."""
        x_sizes, z_sizes = (layout.sizes[k] for k in self.pairings[pairing])
        return self._pairs.of_iteration(
            pairing, self.state.iteration, self._round or 0, self._drawing, x_sizes, z_sizes, layout.drawn_for
        )

    def _points(self, k: int, places: NDArray[np.int64], layout: _Layout) -> Array:
        """Return this rank's points at these places of a sample's blocks."""
        if k in self._fetched:
            return self._fetched[k]
        if self._drawing is not self._workers:
            first = np.searchsorted(layout.drawn_for, [self._workers.start, self._workers.stop])
            places = places[first[0] : first[1]] - layout.bounds[k][self._workers.start]
        return self._exchanges[k].rows_at(places.ravel())

    def _evaluate(self) -> Record:
        with self.clock("evaluate"):
            parameters = self.state.parameters
            penalty = self.config.l2 * float(parameters @ parameters)
            found = {"test": (math.nan, math.nan)} | self._monitor.evaluate(self._sets, parameters)
            (train_loss, train_auc), (test_loss, test_auc) = found["train"], found["test"]
        record = Record(
            iteration=self.state.iteration,
            train_loss=train_loss + penalty,
            train_auc=train_auc,
            test_loss=test_loss + penalty,
            test_auc=test_auc,
            seconds=dict(self.clock.seconds),
            **dict(zip(_COUNTERS, self._counters(self._counted()).tolist(), strict=True)),
        )
        self.records.append(record)
        return record


def _code_of(objective: PairObjective) -> NDArray[np.uint8]:
    """Return the digest of an objective's code, empty for those of this package."""
    written = getattr(objective, "written", None)
    code = "" if written is None else code_digest(written, objective.name)
    return np.frombuffer(bytes.fromhex(code), dtype=np.uint8)


class _Pairs:
    """Draws the workers' pairs, for many iterations at once: opening a stream costs as much as a hundred draws."""

    def __init__(self, config: LearnConfig, n_pairings: int, streams: Streams, *, one_round: bool) -> None:
        self.batch = config.batch_pairs or 0
        self._streams = streams
        fits = _MOST_PAIRS_DRAWN // max(1, self.batch * config.n_workers)
        self.length = 1 if one_round else max(1, min(_MOST_ITERATIONS_DRAWN, fits))
        self._drawn: list[tuple[Any, NDArray[np.int64], NDArray[np.int64]] | None] = [None] * n_pairings

    def of_iteration(
        self,
        pairing: int,
        iteration: int,
        round_: int,
        workers: range,
        x_sizes: NDArray[np.int64],
        z_sizes: NDArray[np.int64],
        useful: NDArray[np.intp],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of the pairs' points in the rows of the given workers, (useful workers, B)."""
        chunk, j = divmod(iteration, self.length)
        drawn = self._drawn[pairing]
        key = (chunk, round_ if self.length == 1 else 0)
        if drawn is None or drawn[0] != key:
            rows, columns = (np.empty((len(useful), self.length * self.batch), dtype=np.int64) for _ in range(2))
            starts = [starts_of(sizes[workers.start : workers.stop]).tolist() for sizes in (x_sizes, z_sizes)]
            for place, i in enumerate(useful.tolist()):
                worker, first = workers.start + i, (starts[0][i], starts[1][i])
                stream = self._streams.open(f"pairs of pairing {pairing}", round=chunk, worker=worker)
                stream.write_pairs(int(x_sizes[worker]), int(z_sizes[worker]), rows[place], columns[place], first)
            drawn = self._drawn[pairing] = (key, rows, columns)
        some = slice(j * self.batch, (j + 1) * self.batch)
        return drawn[1][:, some], drawn[2][:, some]


@deferred()
def learn(
    comm: Any,
    x: Array,
    z: Array,
    objective: str | PairObjective = "linear",
    *,
    x_test: Array | None = None,
    z_test: Array | None = None,
    loss: str = DEFAULT_LOSS,
    l2: float = 0.0,
    learning_rate: float = 0.01,
    decay: float = 0.0,
    momentum: float = 0.9,
    batch_pairs: int | None = 100,
    iterations: int = 1000,
    init: str = "normal",
    n_workers: int | None = None,
    repartition_every: int | None = 25,
    scheme: str = LearnConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    empty: str = "",
    seed: int | None = None,
    eval_every: int = 25,
    monitor_pairs: int = 450_000,
) -> Fit:
    """Minimise the average loss of pairs of points from two samples spread over the ranks.  Collective.

    With h the loss of a pair, the goal is θ ↦ E h(X, Z; θ) + λ‖θ‖²; iteration t takes the step

        g_t = N⁻¹ Σ_i B⁻¹ Σ_{(k,l) drawn by worker i} ∇h(X_k, Z_l; θ) + 2λθ,   v ← μv + g_t,   θ ← θ - η_t v

    (the paper's Section 4, with momentum).

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options.
    x, z : ndarray, shape (n_local, d)
        This rank's points; under linear ranking x should score higher.
    objective : str or PairObjective
        ``linear``, ``module:name`` (see `mpi_ustat.learning.user_objectives.make_objective`), or an object with
        `n_parameters` and `pairs`, such as `mpi_ustat.learning.objectives.Mahalanobis`.
    x_test, z_test : ndarray, optional
        This rank's test points.
    loss : {"hinge", "squared-hinge", "logistic"}
        The surrogate φ(s(x) - s(z)) of linear ranking.
    l2 : float
        λ of the penalty λ‖θ‖², whose gradient is 2λθ.
    learning_rate, decay : float
        The step of iteration t is learning_rate/(1 + decay·t).
    momentum : float
        μ: v ← μv + g, θ ← θ - step·v.
    batch_pairs : int or None
        Pairs sampled per worker and iteration, uniformly with replacement, B; None: all local pairs.
    iterations : int
        Steps.
    init : {"normal", "zeros"}
        Initial parameters.
    n_workers : int, optional
        Logical workers, N, by default the number of ranks.
    repartition_every : int or None
        Iterations between repartitions, n_r; None: never.
    scheme, move, shuffle, empty : str
        As in `mpi_ustat.estimate`.
    seed : int, optional
        The common seed of all ranks; drawn by rank 0 when left out.
    eval_every : int
        Iterations between evaluations; the last step is always evaluated.
    monitor_pairs : int
        Pairs on which a loss is monitored that has no way over all pairs in O(n log n); a test loss that depends on
        scores only is monitored over all pairs up to 2·10⁷.

    Returns
    -------
    Fit
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the objective fails on any.
    DivergedError
        On every rank, if the parameters leave the range of doubles.
    """
    given = dict(locals())
    samples, tests = ((given.pop(f"x{which}"), given.pop(f"z{which}")) for which in ("", "_test"))
    there = comm.allgather([each is not None for each in tests])
    if len({each for pair in there for each in pair}) > 1:
        raise UserError("a test set has points of both samples: pass x_test and z_test on every rank, or neither")
    return _learn(samples=samples, tests=() if x_test is None else tests, pairings=((0, 1),), **given)


@deferred()
def learn_samples(
    comm: Any,
    samples: Sequence[Array],
    objective: str | PairObjective = "linear",
    *,
    tests: Sequence[Array] = (),
    pairings: Sequence[tuple[int, int]] = ((0, 1),),
    loss: str = DEFAULT_LOSS,
    l2: float = 0.0,
    learning_rate: float = 0.01,
    decay: float = 0.0,
    momentum: float = 0.9,
    batch_pairs: int | None = 100,
    iterations: int = 1000,
    init: str = "normal",
    n_workers: int | None = None,
    repartition_every: int | None = 25,
    scheme: str = LearnConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    empty: str = "",
    seed: int | None = None,
    eval_every: int = 25,
    monitor_pairs: int = 450_000,
) -> Fit:
    """Like `learn`, for any number of samples and `pairings` of them, over which the loss is summed.  Collective.

    Multipartite ranking of K ordered classes pairs consecutive ones:
    ``pairings=mpi_ustat.learning.objectives.consecutive_pairings(K)``, with the lowest class first.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray, shapes (n_local, d)
        This rank's points of each sample.
    tests : sequence of ndarray
        This rank's test points of each, or none.
    pairings : sequence of pairs of int
        Which samples are paired, the first of two to score higher.
    objective, loss, l2, learning_rate, decay, momentum, batch_pairs, iterations, init, n_workers, repartition_every, \
    scheme, move, shuffle, empty, seed, eval_every, monitor_pairs
        As in `learn`, which also says what is returned and raised.
    """
    return _learn(**locals())


def _learn(
    comm: Any,
    samples: Sequence[Array],
    objective: str | PairObjective,
    *,
    tests: Sequence[Array],
    pairings: Sequence[tuple[int, int]],
    loss: str,
    n_workers: int | None,
    seed: int | None,
    **options: Any,
) -> Fit:
    same_columns(comm, (*samples, *tests))
    seed = comm.bcast(fresh_seed() if seed is None and comm.rank == 0 else seed)
    made = make_objective(objective, loss=loss)
    config = LearnConfig(
        objective=objective if isinstance(objective, str) else made.name,
        loss=loss,
        n_workers=comm.size if n_workers is None else n_workers,
        seed=seed,
        **options,
    )
    learning = Learning(comm, samples, config, tests=tests, objective=made, pairings=pairings)
    for _ in learning.run():
        pass
    return learning.fit()
