"""Estimating a U-statistic of samples that are spread over the ranks of a communicator."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.complete import Complete, complete, fixed_blocks
from mpi_ustat.complete.tuples import refuse_endless
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.averages import local_values, mean_of_workers, n_statistics, part_means, pooled_means
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Bias, ErrorBar, Estimate, Round, biased_note
from mpi_ustat.estimation.worker import Evaluation, evaluate
from mpi_ustat.inference.components import from_swr_blocks
from mpi_ustat.inference.error_bars import Findings, bias, design_of, error_bar, expectation_factor, own_variance_notes
from mpi_ustat.inference.evidence import (
    Dof,
    Evidence,
    block_dof,
    cross_dof,
    join,
    knows_more,
    of_blocks,
    on_average,
    redrawn,
)
from mpi_ustat.inference.intervals import Disjoint, disjoint_tuples
from mpi_ustat.inference.judge import Projections, tails_matter
from mpi_ustat.inference.pilots import PILOT_ROWS, own_variance_of_pilot, pilot, projections
from mpi_ustat.kernels.kernel import Kernel, Local, Points, as_rows, n_tuples
from mpi_ustat.kernels.registry import make_kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.user_pairs import BlockFunction
from mpi_ustat.mpi.exchange import Exchange, as_they_lie
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.limits import refuse_beyond_a_month, refuse_beyond_memory
from mpi_ustat.mpi.runtime import PhaseClock, agree, counted, locally, together
from mpi_ustat.numerics.rng import Streams, fresh_seed
from mpi_ustat.points.checked import centre, check_kernel, checked_points
from mpi_ustat.points.preparation import same_columns
from mpi_ustat.points.rows import as_points
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, Travelling
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.schemes.rotation import meeting

Array = NDArray[np.float64]

_MANY_PAIRS = 1 << 32
"""So many sampled pairs on a rank are tried on a few before they are begun."""

_FEW_PAIRS = 1 << 14

SHARDS_LEVEL = 0.01
"""Shards of one law are said to differ with this probability."""


@dataclass
class Estimation:
    """The state of one estimation on one rank: the samples, and the rounds so far.

    Construction and all methods are collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray
        This rank's points of each sample.
    config : EstimateConfig
    kernel : Kernel, optional
        Instead of the one that `config.kernel` names.
    block_sizes : sequence of arrays, optional
        For ``as-is``: for each sample, the sizes of the blocks of this rank's workers, in worker order.
    replicate : int
        Which of several independent repetitions with the same seed this is.
    columns : sequence of str
        Names of the statistics, where there are several.
    names : sequence of str
        What messages call the samples, instead of `sample_names`.
    workers_given : bool
        Whether somebody has chosen N, which then is also that of the complete statistic's blocks. Otherwise it is the
        number of ranks, which no complete statistic may depend on.
    """

    comm: Any
    samples: Sequence[Points]
    config: EstimateConfig
    kernel: Kernel | None = None
    block_sizes: Sequence[NDArray[np.int64]] | None = None
    replicate: int = 0
    columns: Sequence[str] = ()
    names: Sequence[str] = ()
    workers_given: bool = True
    rounds: list[Round] = field(default_factory=list, init=False)
    _under_way: bool = field(default=False, init=False)
    clock: PhaseClock = field(default_factory=PhaseClock, init=False)

    def __post_init__(self) -> None:
        """Check the points and count them."""
        config, names = self.config, self.names or sample_names(len(self.samples))
        self.names = names
        with together(self.comm, "checking the points"):
            if self.kernel is None:
                self.kernel = make_kernel(
                    config.kernel,
                    len(self.samples),
                    ties=config.ties,
                    tile=config.tile,
                    columns=max(1, len(self.columns)),
                    options=config.kernel_options,
                )
        assert self.kernel is not None
        self._kernel: Kernel = self.kernel
        samples = checked_points(self.comm, names, self.samples, functools.partial(as_points, self._kernel))
        self.exchanges = [Exchange(self.comm, rows, config.n_workers) for rows in samples]
        shapes = [exchange.rows.shape[1:] for exchange in self.exchanges]
        for name, shape in zip(names, shapes, strict=True):
            if shape != shapes[0]:
                raise UserError(
                    f"points of shape {shapes[0]} in {names[0]} and {shape} in {name} can't be paired: "
                    "give all samples the same columns"
                )
        self.sizes = tuple(exchange.n_rows for exchange in self.exchanges)
        for name, size, degree in zip(names, self.sizes, self._kernel.degrees, strict=True):
            if size < degree:
                has = {0: "no points", 1: "only 1 point"}.get(size, f"only {size} points")
                raise UserError(f"sample {name} has {has}: the kernel {self._kernel.name} takes {degree} of it")
        check_kernel(self.comm, self.exchanges, self._kernel)
        if self._kernel.wants_centre and (origin := centre(self.comm, self.exchanges)) is not None:
            moved = [(as_rows(rows) - origin).reshape(rows.shape) for rows in samples]
            self.exchanges = [Exchange(self.comm, rows, config.n_workers) for rows in moved]
        if self._kernel.pooled_only and config.aggregate == "mean" and not config.complete:
            raise UserError(f'the kernel {self._kernel.name} has no mean of local values: use aggregate="pooled"')
        self._refuse_what_no_memory_holds()
        self._streams = Streams(config.seed)
        self._partition: Partition | None = None
        self._scheme = scheme_of(config.scheme)
        self._single_rotation = self._scheme.blocks_travel and self._kernel.degrees == (2,)
        self._with_copies = self._scheme.with_replacement and self._kernel.degrees == (2,)
        if not config.complete and not self._scheme.as_they_lie:
            self._partition = self._make_partition()

    @property
    def unit(self) -> str:
        """What the kernel takes, for people: a pair of points, or a longer tuple."""
        return "pair" if sum(self._kernel.degrees) == 2 else "tuple"

    @property
    def n_statistics(self) -> int:
        """How many statistics the kernel gives, q."""
        return n_statistics(self._kernel)

    def _refuse_what_no_memory_holds(self) -> None:
        """Refuse sizes that nobody means, before the time that they would take.  Collective."""
        config, kernel, comm = self.config, self._kernel, self.comm
        p, n_workers = kernel.n_parts, config.n_workers
        if (
            config.stderr and p > 1
        ):  # components while they are found, of each worker while these are gathered, of rounds
            gathered = n_workers * (1 if comm.size == 1 else 3)  # packed on their way
            per_part = 90.0 if config.complete else 60.0 + 24.0 * (gathered + config.n_rounds)
            refuse_beyond_memory(
                comm, per_part * p**2, f"the covariance of {p} statistics", "choose fewer columns, or stderr=False"
            )
        if kernel.tile:
            side = min(kernel.tile, *self.sizes)
            refuse_beyond_memory(comm, 24.0 * side**2, f"a tile of {side} by {side} pairs", "use a smaller tile=")
        if config.complete:
            return
        held = config.n_rounds * (2000.0 + n_workers * (100.0 + 300.0 * p))
        what = f"what {n_workers} worker(s) find in {config.n_rounds} round(s)"
        refuse_beyond_memory(comm, held, what, "ask for fewer n_rounds= or n_workers=")
        if config.n_pairs is not None and (config.distinct or kernel.degrees != (1, 1)):
            there_are = n_tuples(kernel.degrees, [-(-n // n_workers) for n in self.sizes])
            tuples = min(config.n_pairs, there_are) if config.distinct else config.n_pairs
            what = f"the numbers of {tuples} tuples that are drawn together"
            refuse_beyond_memory(comm, 16.0 * tuples * (1 + sum(kernel.degrees)), what, "ask for fewer n_pairs=")

    def _refuse_endless_pairs(
        self, t: int, of_workers: Sequence[tuple[Points, ...]], partition: tuple[Blocks, ...]
    ) -> None:
        """Refuse more sampled pairs than anybody waits for, to judge by a few of a worker's.  Collective."""
        config, exchange = self.config, self.exchanges[0]
        pairs = (config.n_pairs or 0) * config.n_rounds * -(-config.n_workers // self.comm.size)
        if pairs < _MANY_PAIRS or config.distinct:
            return
        seconds, few = 0.0, replace(config, n_pairs=_FEW_PAIRS)
        with together(self.comm, f"evaluating the kernel {self._kernel.name}"), _quiet_overflow():
            began = time.perf_counter()
            for worker, blocks in zip(exchange.workers[:1], of_workers, strict=False):
                self._local(t, worker, blocks, partition, few)
                seconds = (time.perf_counter() - began) * pairs / _FEW_PAIRS
        what = f"{pairs:.3g} sampled {self.unit}s on a rank"
        refuse_beyond_a_month(self.comm, seconds, what, "ask for fewer n_pairs= or n_rounds=")

    def _make_partition(self) -> Partition:
        config, scheme, sizes = self.config, self._scheme, self.sizes
        most = scheme.n_rounds_complete(self._kernel.degrees, config.n_workers)
        if most is not None:
            if config.n_rounds > most:
                raise UserError(
                    f"after {most} rounds {scheme.name} over {config.n_workers} workers has met all pairs, so that "
                    f"{config.n_rounds} are too many: use complete=True, or at most {most} rounds"
                )
            if self._single_rotation and config.aggregate == "mean":
                raise UserError(f'{scheme.name} of one sample has no mean of local values: use aggregate="pooled"')
        if self._with_copies and config.distinct:
            raise UserError(
                "distinct pairs of one sample are not drawn from blocks with repeats: leave out distinct=True"
            )
        if scheme.with_replacement and max(self._kernel.degrees) > 1 and not self._with_copies:
            raise UserError(
                f"drawn with replacement, a point would be paired with itself by the kernel {self._kernel.name}: "
                'use scheme="prop-swor"'
            )
        if not scheme.random_counts and config.empty == "refuse":
            for size, degree in zip(sizes, self._kernel.degrees, strict=True):
                if size < degree * config.n_workers:
                    points = "a point" if degree == 1 else f"{degree} points"
                    raise UserError(
                        f"{config.n_workers} workers can't each have {points} of a sample of {size}: use at most "
                        f"{size // degree} workers (n_workers=)"
                    )
        return Partition(
            scheme,
            sizes,
            config.n_workers,
            self._streams,
            move=config.move,
            shuffle=config.shuffle,
            replicate=self.replicate,
            may_be_empty=config.empty != "refuse",
        )

    def complete(self) -> Complete:
        """Return the complete statistic U_n."""
        with self.clock("complete"), _quiet_overflow():
            found = self._complete(components=self.config.stderr)
        self._check_finite(found.value)
        return found

    def _complete(self, *, components: bool) -> Complete:
        fixed = None if self.workers_given else fixed_blocks(self._kernel, self.sizes)
        n_blocks, exchanges = self.config.n_workers, self.exchanges
        if fixed is not None:
            n_blocks, exchanges = fixed, [Exchange(self.comm, each.rows, fixed) for each in exchanges]
        return complete(self.comm, exchanges, self._kernel, n_blocks, self._streams, components=components)

    def run_round(self, t: int) -> Round:
        """Partition, exchange, evaluate and reduce round `t`; return it and keep it."""
        if t and not self._under_way and self._scheme.goes_on(self.config.move):
            with self.clock("exchange"):  # after a resume: what stays, or goes on from there, has moved before
                self._bring(self._blocks(t - 1))
        self._under_way = True
        with self.clock("partition"):
            partition = self._blocks(t)
        before = self._moved()
        with self.clock("exchange"):
            blocks = self._bring(partition)
            self._prefetch(t + 1)
        moved = self._moved() - before
        of_workers = list(zip(*blocks, strict=True))
        jobs = list(zip(self.exchanges[0].workers, of_workers, strict=True))
        if self._kernel.chunk and self.config.n_pairs is None and not self.rounds:
            chunks = [self._kernel.n_chunks([len(each) for each in of_one]) for of_one in of_workers]
            largest = of_workers[int(np.argmax(chunks))] if chunks else ()
            refuse_endless(self.comm, self._kernel, largest, sum(chunks) * self.config.n_rounds)
        if not self.rounds:
            self._refuse_endless_pairs(t, of_workers, partition)
        with self.clock("evaluate"), _quiet_overflow():
            error, found = locally(
                lambda: [self._local(t, worker, each, partition) for worker, each in counted(jobs, "worker")]
            )
        with self.clock("reduce"):
            doing = f"evaluating the kernel {self._kernel.name}"
            everyone = agree(self.comm, error, (found, moved), doing=doing, of_data=True)
            result = self._reduce(t, everyone, partition)
        self.rounds.append(result)
        return result

    def result(self, complete: Complete | None = None) -> Estimate:
        """Return the estimate over the rounds run so far, or the `complete` one where there were none."""
        rounds, config, kernel = self.rounds, self.config, self._kernel
        if config.complete:
            assert complete is not None
            value, per_round = np.atleast_1d(complete.value), [np.atleast_1d(complete.value)]
            n_evaluations = kernel.evaluations(complete.local.sums)
        else:
            per_round = [each.value for each in rounds]
            n_evaluations = sum(kernel.evaluations(sums) for each in rounds for sums in each.sums)
            if config.aggregate == "pooled":
                value = kernel.combine(self._pooled_means())
            else:
                value = np.array([math.fsum(of_one) / len(of_one) for of_one in zip(*per_round, strict=True)])
        shape = (len(rounds), config.n_workers if rounds else 0)
        several = (len(value),) if len(value) > 1 else ()
        evaluations = [[kernel.evaluations(sums) for sums in r.sums] for r in rounds]
        error = complete_error = None
        if config.stderr:
            with self.clock("stderr"), _quiet_overflow():
                complete_error = None if complete is None else self._complete_error(complete)
                error = complete_error if config.complete else self._error(value)
        return Estimate(
            value=value if several else float(value[0]),
            sizes=self.sizes,
            n_evaluations=n_evaluations,
            per_round=np.array(per_round, dtype=np.float64).reshape(len(per_round), *several),
            per_worker=np.array([r.values for r in rounds], dtype=np.float64).reshape(*shape, *several),
            evaluations=_whole_numbers(evaluations).reshape(shape),
            empty_workers=sum(weight == 0 for r in rounds for weight in r.weights),
            rows_moved=np.array([r.rows_moved for r in rounds], dtype=np.int64),
            bytes_moved=np.array([r.bytes_moved for r in rounds], dtype=np.int64),
            error=error,
            complete_bytes_moved=0 if complete is None else complete.bytes_moved,
            complete_value=None if complete is None else complete.value,
            complete_error=complete_error,
            expectation_factor=self._expectation_factor(),
            bias=self._bias(complete) if complete and rounds and self._scheme.as_they_lie and not several else (),
            route=None if complete is None else complete.route,
            seconds=self.clock.slowest(self.comm),
            n_ranks=self.comm.size,
            config=config,
            columns=tuple(self.columns) if several else (),
            unit=self.unit,
        )

    # -----------------------------------------------------------------------------------------------------------------
    # A round

    def _blocks(self, t: int) -> tuple[Blocks, ...]:
        if self._partition is None:
            samples = dict(zip(self.names, self.exchanges, strict=True))
            return as_they_lie(self.comm, samples, self.block_sizes, self.config.n_workers)
        return self._partition.round(t)

    def _bring(self, partition: tuple[Blocks, ...]) -> list[list[Points]]:
        """Return the blocks of this rank's workers, of every sample; of one sample in rotation also the visitors."""
        if self._single_rotation:
            home, travelling = partition
            assert isinstance(travelling, Travelling)
            (exchange,) = self.exchanges
            return [exchange.blocks(home), exchange.visiting_blocks(travelling)]
        return [exchange.blocks(each) for exchange, each in zip(self.exchanges, partition, strict=True)]

    def _prefetch(self, t: int) -> None:
        """Let the blocks that will rotate into round `t` travel while this rank computes."""
        if self._scheme.blocks_travel and t < self.config.n_rounds and self._partition is not None:
            coming = self._partition.round(t)
            for exchange, each in zip(self.exchanges * (1 + self._single_rotation), coming, strict=True):
                if isinstance(each, Travelling):
                    exchange.prefetch(each)

    def _local(
        self,
        t: int,
        worker: int,
        blocks: tuple[Points, ...],
        partition: tuple[Blocks, ...],
        config: EstimateConfig | None = None,
    ) -> Evaluation:
        """Return what a worker finds; of one sample in rotation in its block, and then across it and a visitor."""
        across = self._single_rotation and t > 0
        if across:
            home, visitor = blocks
            blocks = meeting(self.config.n_workers, t, worker, home, visitor)
        elif self._single_rotation:
            blocks = blocks[:1]
        return evaluate(
            self._kernel,
            config or self.config,
            blocks,
            lambda: self._streams.open("pairs", replicate=self.replicate, round=t, worker=worker),
            across=across,
            ids=_row_numbers(partition[0], worker) if self._with_copies else None,
        )

    def _reduce(
        self, t: int, everyone: list[tuple[list[Evaluation], NDArray[np.int64]]], partition: tuple[Blocks, ...]
    ) -> Round:
        config, kernel = self.config, self._kernel
        found = [each for of_rank, _ in everyone for each in of_rank]
        weights = tuple(each.n_tuples for each in found)
        empty = [i for i, weight in enumerate(weights) if not weight]
        if len(empty) == len(weights):
            raise UserError(f'no worker has a {self.unit}: repartition (scheme="prop-swor") or use fewer workers')
        if empty and config.empty == "refuse":
            raise UserError(
                f"{len(empty)} of {len(weights)} workers have no {self.unit} (the first is worker {empty[0]}): "
                'repartition (scheme="prop-swor"), use fewer workers, or choose empty="skip" or "zero"'
            )
        values = np.array([local_values(kernel, each.local.sums) for each in found])
        if not kernel.pooled_only:
            self._check_finite(values[[weight > 0 for weight in weights]])
        sizes = tuple(tuple(np.diff(blocks.bounds).tolist()) for blocks in partition[: len(self.sizes)])
        rows_moved, bytes_moved = np.sum([moved for _, moved in everyone], axis=0).tolist()
        sums = tuple(each.local.sums for each in found)
        if config.aggregate == "pooled":
            value = kernel.combine(pooled_means(kernel, sums, weights if config.n_pairs is not None else None))
        else:
            value = mean_of_workers(values, weights, empty_are_zero=config.empty == "zero")
        self._check_finite(value)
        return Round(
            sums=sums,
            values=values,
            weights=weights,
            value=value,
            components=join([each.local.components for each in found], self._dof(t, sizes)),
            sizes=sizes,
            rows_moved=rows_moved,
            bytes_moved=bytes_moved,
            multiplicities=tuple(each.multiplicities for each in found if each.multiplicities is not None),
        )

    def _pooled_means(self) -> Array:
        """Return the averages of the parts over all workers and rounds."""
        sums = [of_worker for each in self.rounds for of_worker in each.sums]
        weights = [weight for each in self.rounds for weight in each.weights]
        return pooled_means(self._kernel, sums, weights if self.config.n_pairs is not None else None)

    # -----------------------------------------------------------------------------------------------------------------
    # Error bars

    def _components(self) -> tuple[Array | None, str, Evidence | None]:
        """Return the Hoeffding components of the whole, where they come from and what from.  Collective.

        They come from all that was evaluated, unless a pilot knows them much better. After the last round of a
        rotation, which has U_n, they come from where the complete statistic has them, but for kernels that would have
        to look at all pairs again: of these, the blocks' tell nearly as much.
        """
        if self._has_met_all and not self._kernel.route(self.sizes).by_tuples:
            with _quiet_overflow():
                found = self._complete(components=True)
            return found.local.components, "components", Evidence(self.sizes)
        known = [
            (each.components, told)
            for t, each in enumerate(self.rounds)
            if each.components is not None and (told := of_blocks(self._dof(t, each.sizes), each.sizes)) is not None
        ]
        if known:
            rows, blocks = self._pilot_rows, on_average([told for _, told in known])
            if self._scheme.with_replacement:
                blocks = redrawn(blocks, self.sizes)
            whole = self._has_met_all and rows == self.sizes  # the complete statistic's, at the price of a pilot
            better = whole or knows_more(block_dof(self._kernel.degrees, rows), blocks.dof)
            if not self._kernel.finds_components(rows) or not better:
                local = join([each for each, _ in known], [told.dof for _, told in known])
                if local is not None and self._scheme.with_replacement:
                    local = from_swr_blocks(local, self.sizes)
                return local, "components", blocks
        return self._of_pilot()

    @property
    def _has_met_all(self) -> bool:
        """Whether the rounds of a rotation have evaluated every tuple."""
        config = self.config
        return (
            config.n_pairs is None
            and config.aggregate == "pooled"
            and self._scheme.n_rounds_complete(self._kernel.degrees, config.n_workers) == len(self.rounds)
        )

    def _dof(self, t: int, sizes: Sequence[Sequence[int]]) -> list[Dof]:
        """Return the degrees of freedom of the components of each worker's blocks in round t."""
        if self._single_rotation and t > 0:
            return [cross_dof(n, n) for n in sizes[0]]
        return [block_dof(self._kernel.degrees, of_worker) for of_worker in zip(*sizes, strict=True)]

    def _expectation_factor(self) -> float:
        design = design_of(self.config, self.sizes, self.rounds)
        return expectation_factor(design, self.sizes, self._kernel.degrees)

    @property
    def _pilot_rows(self) -> tuple[int, ...]:
        return tuple(min(size, PILOT_ROWS) for size in self.sizes)

    def _of_pilot(self) -> tuple[Array | None, str, Evidence]:
        """Return what `_components` does, of a pilot.  Collective."""
        rows = self._pilot_rows
        dof = () if rows == self.sizes else block_dof(self._kernel.degrees, rows)
        if self._pilot is None:
            return None, "pilot", Evidence(rows, dof)
        means = tuple(part_means(self._kernel, self._pilot.sums).tolist())
        return self._pilot.components, "pilot", Evidence(rows, dof, means)

    @cached_property
    def _pilot(self) -> Local | None:
        """What a pilot gives, if the kernel has components.  Collective the first time."""
        if not self._kernel.finds_components(self._pilot_rows):
            return None
        return pilot(self.comm, self.exchanges, self._kernel, self._streams, replicate=self.replicate)

    def _projections(self, rows: Sequence[int]) -> Projections | None:
        """Return the projections by which intervals are judged, on up to so many points.  Collective."""
        return projections(self.comm, self.exchanges, self._kernel, self._streams, most=rows, replicate=self.replicate)

    def _tails(self, components: Array | None, means: Array, rows: Sequence[int]) -> Projections | None:
        """Return the projections by which tails are judged, if they can matter.  Collective."""
        kernel = self._kernel
        if components is None or not tails_matter(kernel, components, kernel.gradient(means), self.sizes, rows):
            return None
        return self._projections(rows)

    def _error(self, value: Array) -> ErrorBar:
        config, kernel, rounds = self.config, self._kernel, self.rounds
        means, design = self._pooled_means(), design_of(self.config, self.sizes, self.rounds)
        notes, doubts = biased_note(self._expectation_factor()), []
        components, method, evidence, first_order = None, "none", None, None
        if kernel.has_own_variance:
            of_pilot = own_variance_of_pilot(self.comm, self.exchanges, kernel, self._streams, replicate=self.replicate)
            if of_pilot is not None:
                found, evidence = of_pilot
                first_order = found.of_points
                doubts += own_variance_notes(found, self.sizes, rounds)
        else:
            components, method, evidence = self._components()
        rows = self.sizes if evidence is None else evidence.rows
        if self._scheme.as_they_lie:
            projected = self._projections(self.sizes)
            doubts += [] if projected is None else self._shards_differ(projected, means)
        elif first_order is not None:
            projected = self._projections(rows)
        else:
            projected = self._tails(components, means, rows)
        sampled = None
        if config.n_pairs is not None:
            sampled = sum(kernel.evaluations(of_worker) for each in rounds for of_worker in each.sums)
        known = Findings(
            means,
            components,
            method,
            evidence,
            local_values=np.array([each.values for each in rounds]),
            projected=projected,
            names=self.names,
            n_sampled=sampled,
            disjoint=self._disjoint(),
            first_order=first_order,
            notes=notes,
            doubts=doubts,
        )
        return error_bar(kernel, self.sizes, design, value, known, config)

    def _disjoint(self) -> Disjoint | None:
        """Return the disjoint tuples in one round's blocks, which must be of different points."""
        if self._scheme.with_replacement:
            return None
        return max(disjoint_tuples(self._kernel.degrees, each.sizes, self.config.n_pairs) for each in self.rounds)

    def _shards_differ(self, projected: Projections, means: Array) -> list[str]:
        """Return the sentence about shards that differ from each other by more than chance, if they do."""
        if self.config.n_workers == 1:
            return []
        bounds = [[0, *accumulate(of_sample)] for of_sample in self.rounds[0].sizes]
        chance = projected.differ(self._kernel.gradient(means), bounds)
        if chance >= SHARDS_LEVEL:
            return []
        return [
            f"the shards differ by more than chance (p = {chance:.1g}): an average of their values is not the "
            'statistic of all points; use complete=True, or scheme="prop-swor"'
        ]

    def _complete_error(self, complete: Complete) -> ErrorBar:
        kernel = self._kernel
        means = part_means(kernel, complete.local.sums)
        components, method, evidence = complete.local.components, "components", Evidence(self.sizes)
        if components is None and complete.variance is None:
            components, method, evidence = self._of_pilot()
        if complete.first_order is not None:
            projected = self._projections(evidence.rows)
        else:
            projected = self._tails(components, means, evidence.rows)
        found = Findings(
            means,
            components,
            method,
            evidence,
            projected=projected,
            names=self.names,
            disjoint=disjoint_tuples(kernel.degrees, [(size,) for size in self.sizes]),
            variance=complete.variance,
            first_order=complete.first_order,
            notes=complete.notes,
        )
        design = design_of(self.config, self.sizes, ())
        return error_bar(kernel, self.sizes, design, np.atleast_1d(complete.value), found, self.config)

    def _bias(self, complete: Complete) -> tuple[Bias, ...]:
        """Return how far the shards' averages are from U_n."""
        (of_round,) = self.rounds
        values = {"pooled": self._kernel.combine(self._pooled_means())}
        if not self._kernel.pooled_only:
            values = {"mean": mean_of_workers(of_round.values, of_round.weights)} | values
        design = design_of(self.config, self.sizes, self.rounds)
        means = part_means(self._kernel, complete.local.sums)
        found = Findings(means, complete.local.components)
        return bias(self._kernel, self.sizes, design, values, complete.value, found)

    def _check_finite(self, value: Any) -> None:
        if not np.isfinite(value).all():
            raise UserError(f"the sum of the kernel {self._kernel.name} over the pairs overflows: rescale the points")

    def _moved(self) -> NDArray[np.int64]:
        return np.array([sum(getattr(s, name) for s in self.exchanges) for name in ("rows_moved", "bytes_sent")])


def sample_names(n_samples: int) -> tuple[str, ...]:
    """Return what messages and results call the samples: x and z, or sample 0, sample 1, …."""
    return ("x", "z")[:n_samples] if n_samples <= 2 else tuple(f"{k} (of {n_samples})" for k in range(n_samples))


def run(estimation: Estimation) -> Iterator[Round]:
    """Yield the rounds that are still to do, none when the complete statistic is asked for.  Collective."""
    if not estimation.config.complete:
        for t in range(len(estimation.rounds), estimation.config.n_rounds):
            yield estimation.run_round(t)


@deferred()
def estimate(
    comm: Any,
    x: Points,
    z: Points | None = None,
    kernel: str | BlockFunction | Kernel = "auc",
    *,
    n_workers: int | None = None,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    complete: bool = False,
    scheme: str = EstimateConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    aggregate: str = "",
    empty: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    block_sizes: Sequence[NDArray[np.int64]] | None = None,
    seed: int | None = None,
    reference: bool = False,
    stderr: bool = True,
    confidence: float = 0.95,
    interval: str = "auto",
    tile: int = DEFAULT_TILE,
) -> Estimate:
    """Estimate a U-statistic of one or two samples spread over the ranks of a communicator.  Collective.

    With one round and all local pairs this is U_{n,N} = N⁻¹ Σ_i U_{R_i}, the mean of the workers' local averages (the
    paper's eq. for the one-round estimator); with T rounds Û_{n,N,T} = T⁻¹ Σ_t U_{n,N}^{(t)}, each over a fresh
    partition; with `n_pairs` = B the local averages are over B sampled pairs (Ũ_{n,N,B} and Ũ_{n,N,B,T}); with
    `complete` it is U_n, over all pairs.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options; any communicator will do, COMM_SELF included.
    x : ndarray, shape (n_local,) or (n_local, d)
        This rank's points; may be empty on some ranks. The global order is that of the ranks.
    z : ndarray, optional
        This rank's points of the second sample; None for statistics of one sample.
    kernel : str, callable or Kernel
        A name in `mpi_ustat.kernels.registry`, ``module:function``, or a function as `tuples.make_user_kernel` takes
        it: of two blocks, (a, d) and (b, d), returning h for all their pairs, (a, b); with an attribute ``degrees``, of
        any number of points of any number of samples.
    n_workers : int, optional
        Logical workers, N, by default the number of ranks. The result depends on N, never on the number of ranks; the
        complete statistic in its last bits, and only where N is given.
    n_rounds : int
        Partitions averaged over, T.
    n_pairs : int or None
        Pairs (or longer tuples) sampled per worker and round, uniformly, B; None: all local pairs.
    distinct : bool
        Sample B different ones, instead of independent ones.
    complete : bool
        All pairs or tuples; then scheme, n_rounds, n_pairs and aggregate play no part.
    scheme : {"prop-swor", "rotation", "swor", "prop-swr", "fixed-shuffle", "as-is"}
        How the points lie over the workers in each round: see `mpi_ustat.schemes.partition.Partition`; ``as-is``
        leaves them where they are.
    move : {"both", "smaller"}
        For prop-swor: whether every round spreads both samples afresh, or the smaller one only.
    shuffle : {"auto", "permutation", "matrix"}
        How prop-swor draws its partitions: see `mpi_ustat.schemes.partition.Partition`.
    aggregate : {"mean", "pooled"}, by default "pooled" under rotation and for Kendall's tau-b, otherwise "mean"
        Mean of the workers' local averages (the paper), or one average over all local pairs; of sampled pairs, the
        local averages weighted by the numbers of local pairs.
    empty : {"refuse", "skip", "zero"}, by default "skip" under swor and "refuse" otherwise
        What to do about a worker whose block has no pair: refuse; leave it out and count it; or let its local average
        be 0 and count it, as the paper does under ``swor``, which biases the mean towards 0 by the share of such
        workers: then there is no interval. In a pooled average ``zero`` is ``skip``.
    ties : {"half", "strict", "shared"}, by default "strict" for the VUS and "half" otherwise
        What a tie counts in the AUC (half, strict) or the VUS (strict, shared).
    kernel_options : mapping, optional
        Other options of the kernel, by name; `ties` may be one of them, but not another than above.
    columns : sequence of str, optional
        For the AUC: the names of the columns, each of which is a score of its own.
    block_sizes : sequence of int arrays, optional
        For ``as-is`` with several workers a rank: for each sample, the sizes of the blocks of this rank's workers.
    seed : int, optional
        The common seed of all ranks; drawn by rank 0 when left out, and recorded in the result.
    reference : bool
        Also compute the complete statistic, for comparison; under ``as-is`` also how biased the local averages are.
    stderr : bool
        Also estimate the standard error.
    confidence : float
        Level of the confidence interval, between 0 and 1.
    interval : {"auto", "logit", "wald"}
        Its kind; auto: on the logit scale for kernels with values in [0, 1].
    tile : int
        Side of the tiles in which a user kernel is evaluated.

    Returns
    -------
    Estimate
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the kernel fails on any rank.
    """
    given = dict(locals())
    return _estimate(samples=one_or_two(comm, given.pop("x"), given.pop("z")), **given)


@deferred()
def estimate_samples(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel = "auc",
    *,
    n_workers: int | None = None,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    complete: bool = False,
    scheme: str = EstimateConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    aggregate: str = "",
    empty: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    block_sizes: Sequence[NDArray[np.int64]] | None = None,
    seed: int | None = None,
    reference: bool = False,
    stderr: bool = True,
    confidence: float = 0.95,
    interval: str = "auto",
    tile: int = DEFAULT_TILE,
) -> Estimate:
    """Estimate a U-statistic of any number of samples spread over the ranks of a communicator.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray
        This rank's points of each sample: for the AUC the scores of positives first, for the VUS the lowest class.
    kernel, n_workers, n_rounds, n_pairs, distinct, complete, scheme, move, shuffle, aggregate, empty, ties, \
    kernel_options, columns, block_sizes, seed, reference, stderr, confidence, interval, tile
        As in `estimate`, which also says what is returned and raised.
    """
    return _estimate(**locals())


def one_or_two(comm: Any, x: Points, z: Points | None) -> tuple[Points, ...]:
    """Return the samples that there are, the same number on every rank.  Collective."""
    if len(set(comm.allgather(z is not None))) > 1:
        raise UserError(
            "a second sample is given on some ranks only: pass z on every rank (it may be empty), or on none"
        )
    return (x,) if z is None else (x, z)


def configured(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel,
    *,
    columns: Sequence[str] | None = None,
    n_workers: int | None,
    seed: int | None,
    ties: str,
    kernel_options: Mapping[str, Any] | None,
    tile: int,
    **options: Any,
) -> tuple[EstimateConfig, Kernel | None]:
    """Return what a caller's arguments ask for, and the kernel if it is more than a name.  Collective."""
    same_columns(comm, samples)
    seed = comm.bcast(fresh_seed() if seed is None and comm.rank == 0 else seed)
    made, name = None, kernel
    if not isinstance(kernel, str):
        made = make_kernel(kernel, len(samples), tile=tile, columns=max(1, len(columns or ())), options=kernel_options)
        name = made.name
        if ties not in ("", None, made.ties):
            raise UserError(f"ties is {ties!r}, which the kernel {name} was not made with: leave it out")
        ties = made.ties
    config = EstimateConfig(
        kernel=str(name),
        n_workers=comm.size if n_workers is None else n_workers,
        seed=seed,
        ties=ties,
        kernel_options=dict(kernel_options or {}),
        tile=tile,
        **options,
    )
    return config, made


def _estimate(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel,
    *,
    columns: Sequence[str] | None,
    block_sizes: Sequence[NDArray[np.int64]] | None,
    n_workers: int | None,
    **options: Any,
) -> Estimate:
    config, made = configured(comm, samples, kernel, columns=columns, n_workers=n_workers, **options)
    estimation = Estimation(
        comm,
        samples,
        config,
        kernel=made,
        block_sizes=block_sizes,
        columns=columns or (),
        workers_given=n_workers is not None,
    )
    for _ in run(estimation):
        pass
    return estimation.result(estimation.complete() if config.complete or config.reference else None)


def _row_numbers(blocks: Blocks, worker: int) -> NDArray[np.int64]:
    """Return the row numbers of a worker's block."""
    assert isinstance(blocks, Ordered)
    assert blocks.order is not None
    return blocks.order[blocks.bounds[worker] : blocks.bounds[worker + 1]]


def _whole_numbers(values: Sequence[Sequence[int]]) -> NDArray[Any]:
    """Return numbers of tuples as an array: of int64, or of doubles where a row adds up to 2⁶³ or more."""
    return np.array(values, dtype=np.int64 if max(map(sum, values), default=0) < 2**63 else np.float64)


def _quiet_overflow() -> np.errstate:
    """Leave out NumPy's warnings: sums that overflow are refused, in one sentence."""
    return np.errstate(over="ignore", invalid="ignore")
