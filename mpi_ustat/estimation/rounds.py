"""The state of an estimation, and the step to the next: partition, exchange, evaluate and reduce a round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpi_ustat.complete.tuples import refuse_endless
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.aggregation import local_values, mean_of_workers, pooled_means
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Round
from mpi_ustat.estimation.evaluation import Evaluation, evaluate
from mpi_ustat.estimation.problem import Problem, quiet_overflow
from mpi_ustat.inference.evidence import Dof, block_dof, cross_dof, join
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.mpi.limits import refuse_beyond_a_month
from mpi_ustat.mpi.runtime import PhaseClock, agree, counted, locally, together
from mpi_ustat.numerics.types import Ints
from mpi_ustat.schemes.partition import Blocks, Ordered, Travelling
from mpi_ustat.schemes.registry import DEFAULT_SCHEME

_MANY_PAIRS = 1 << 32
"""So many sampled pairs on a rank are tried on a few before they are begun."""

_FEW_PAIRS = 1 << 14


@dataclass(frozen=True)
class State:
    """How far an estimation is; with the problem it determines everything that follows.

    Attributes
    ----------
    rounds : tuple of Round
        Those so far.
    in_place : bool
        Whether the rows lie on this rank as the last of them had it: not so after a resume.
    """

    rounds: tuple[Round, ...] = ()
    in_place: bool = False


def step(problem: Problem, state: State, clock: PhaseClock) -> State:
    """Return the state after the next round.  Collective."""
    t, config, kernel = len(state.rounds), problem.config, problem.kernel
    if t and not state.in_place and problem.scheme.goes_on(config.move):
        with clock("exchange"):  # after a resume: what stays, or goes on from there, has moved before
            _bring(problem, problem.holdings(t - 1))
    with clock("partition"):
        partition = problem.holdings(t)
    before = _moved(problem)
    with clock("exchange"):
        blocks = _bring(problem, partition)
        _prefetch(problem, t + 1)
    moved = _moved(problem) - before
    of_workers = list(zip(*blocks, strict=True))
    jobs = list(zip(problem.exchanges[0].workers, of_workers, strict=True))
    if not t:
        _refuse_endless_tuples(problem, of_workers)
        _refuse_endless_pairs(problem, t, of_workers, partition)
    with clock("evaluate"), quiet_overflow():
        error, found = locally(
            lambda: [of_worker(problem, t, worker, each, partition) for worker, each in counted(jobs, "worker")]
        )
    with clock("reduce"):
        everyone = agree(
            problem.comm, error, (found, moved), doing=f"evaluating the kernel {kernel.name}", of_data=True
        )
        result = _reduce(problem, t, everyone, partition)
    return State((*state.rounds, result), in_place=True)


def of_worker(
    problem: Problem,
    t: int,
    worker: int,
    blocks: tuple[Points, ...],
    partition: tuple[Blocks, ...],
    config: EstimateConfig | None = None,
) -> Evaluation:
    """Return what a worker finds; of one sample in rotation in its block, and then across it and a visitor."""
    across = problem.single_rotation and t > 0
    if across:
        home, visitor = blocks
        blocks = problem.scheme.meeting(problem.config.n_workers, t, worker, home, visitor)
    elif problem.single_rotation:
        blocks = blocks[:1]
    return evaluate(
        problem.kernel,
        config or problem.config,
        blocks,
        lambda: problem.streams.open("pairs", replicate=problem.replicate, round=t, worker=worker),
        across=across,
        ids=_row_numbers(partition[0], worker) if problem.with_copies else None,
    )


def dof_of_blocks(problem: Problem, t: int, sizes: Sequence[Sequence[int]]) -> list[Dof]:
    """Return the degrees of freedom of the components of each worker's blocks in round t."""
    if problem.single_rotation and t > 0:
        return [cross_dof(n, n) for n in sizes[0]]
    return [block_dof(problem.kernel.degrees, each) for each in zip(*sizes, strict=True)]


def _bring(problem: Problem, partition: tuple[Blocks, ...]) -> list[list[Points]]:
    """Return the blocks of this rank's workers, of every sample; of one sample in rotation also the visitors."""
    if problem.single_rotation:
        home, travelling = partition
        assert isinstance(travelling, Travelling)
        (exchange,) = problem.exchanges
        return [exchange.blocks(home), exchange.visiting_blocks(travelling)]
    return [exchange.blocks(each) for exchange, each in zip(problem.exchanges, partition, strict=True)]


def _prefetch(problem: Problem, t: int) -> None:
    """Let the blocks that will rotate into round t travel while this rank computes."""
    if problem.scheme.blocks_travel and t < problem.config.n_rounds and problem.partition is not None:
        coming = problem.partition.round(t)
        for exchange, each in zip(problem.exchanges * (1 + problem.single_rotation), coming, strict=True):
            if isinstance(each, Travelling):
                exchange.prefetch(each)


def _reduce(
    problem: Problem, t: int, everyone: list[tuple[list[Evaluation], Ints]], partition: tuple[Blocks, ...]
) -> Round:
    config, kernel = problem.config, problem.kernel
    found = [each for of_rank, _ in everyone for each in of_rank]
    weights = tuple(each.n_tuples for each in found)
    empty = [i for i, weight in enumerate(weights) if not weight]
    if len(empty) == len(weights):
        raise UserError(f'no worker has a {problem.unit}: repartition (scheme="{DEFAULT_SCHEME}") or use fewer workers')
    if empty and config.empty == "refuse":
        raise UserError(
            f"{len(empty)} of {len(weights)} workers have no {problem.unit} (the first is worker {empty[0]}): "
            f'repartition (scheme="{DEFAULT_SCHEME}"), use fewer workers, or choose empty="skip" or "zero"'
        )
    values = np.array([local_values(kernel, each.local.sums) for each in found])
    if not kernel.pooled_only:
        problem.check_finite(values[[weight > 0 for weight in weights]])
    sizes = tuple(tuple(np.diff(blocks.bounds).tolist()) for blocks in partition[: len(problem.sizes)])
    rows_moved, bytes_moved = np.sum([moved for _, moved in everyone], axis=0).tolist()
    sums = tuple(each.local.sums for each in found)
    if config.aggregate == "pooled":
        value = kernel.combine(pooled_means(kernel, sums, weights if config.n_pairs is not None else None))
    else:
        value = mean_of_workers(values, weights, empty_are_zero=config.empty == "zero")
    problem.check_finite(value)
    return Round(
        sums=sums,
        values=values,
        weights=weights,
        value=value,
        components=join([each.local.components for each in found], dof_of_blocks(problem, t, sizes)),
        sizes=sizes,
        rows_moved=rows_moved,
        bytes_moved=bytes_moved,
        multiplicities=tuple(each.multiplicities for each in found if each.multiplicities is not None),
    )


def _refuse_endless_tuples(problem: Problem, of_workers: Sequence[tuple[Points, ...]]) -> None:
    """Refuse more tuples than anybody waits for.  Collective."""
    kernel = problem.kernel
    if kernel.chunk and problem.config.n_pairs is None:
        chunks = [kernel.n_chunks([len(each) for each in of_one]) for of_one in of_workers]
        largest = of_workers[int(np.argmax(chunks))] if chunks else ()
        refuse_endless(problem.comm, kernel, largest, sum(chunks) * problem.config.n_rounds)


def _refuse_endless_pairs(
    problem: Problem, t: int, of_workers: Sequence[tuple[Points, ...]], partition: tuple[Blocks, ...]
) -> None:
    """Refuse more sampled pairs than anybody waits for, to judge by a few of a worker's.  Collective."""
    config, comm, exchange = problem.config, problem.comm, problem.exchanges[0]
    pairs = (config.n_pairs or 0) * config.n_rounds * -(-config.n_workers // comm.size)
    if pairs < _MANY_PAIRS or config.distinct:
        return
    seconds, few = 0.0, replace(config, n_pairs=_FEW_PAIRS)
    with together(comm, f"evaluating the kernel {problem.kernel.name}"), quiet_overflow():
        began = time.perf_counter()
        for worker, blocks in zip(exchange.workers[:1], of_workers, strict=False):
            of_worker(problem, t, worker, blocks, partition, few)
            seconds = (time.perf_counter() - began) * pairs / _FEW_PAIRS
    what = f"{pairs:.3g} sampled {problem.unit}s on a rank"
    refuse_beyond_a_month(comm, seconds, what, "ask for fewer n_pairs= or n_rounds=")


def _row_numbers(blocks: Blocks, worker: int) -> Ints:
    """Return the row numbers of a worker's block."""
    assert isinstance(blocks, Ordered)
    assert blocks.order is not None
    return blocks.order[blocks.bounds[worker] : blocks.bounds[worker + 1]]


def _moved(problem: Problem) -> Ints:
    return np.array([sum(getattr(s, name) for s in problem.exchanges) for name in ("rows_moved", "bytes_sent")])
