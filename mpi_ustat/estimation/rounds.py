"""The state of an estimation, and the step to the next: partition, exchange, evaluate and reduce a round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpi_ustat.complete.tuples import refuse_endless
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.aggregation import mean_of_workers
from mpi_ustat.estimation.answers import Found, found_by, gathered
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Round
from mpi_ustat.estimation.evaluation import Evaluation, evaluate
from mpi_ustat.estimation.problem import Problem, quiet_overflow
from mpi_ustat.estimation.records import Record, weighted_means
from mpi_ustat.estimation.round_sums import pooled_means, sums_of
from mpi_ustat.inference.evidence import block_dof, cross_dof, mean_by_dof
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.mpi.limits import refuse_beyond_a_month
from mpi_ustat.mpi.runtime import PhaseClock, counted, locally, together
from mpi_ustat.numerics import wholes
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.partition import Blocks, Ordered, Travelling
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.schemes.variance import Spread
from mpi_ustat.wording import plural

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
            lambda: found_by(
                kernel,
                [of_worker(problem, t, worker, each, partition) for worker, each in counted(jobs, "worker")],
            )
        )
    with clock("reduce"):
        doing = f"evaluating the kernel {kernel.name}"
        everyone, moved = gathered(problem.comm, error, found, moved, config.n_workers, doing=doing)
        result = _reduce(problem, t, everyone, moved, partition, state.rounds[-1] if t else None)
    return State((*state.rounds, result), in_place=True)


def of_worker(
    problem: Problem,
    t: int,
    worker: int,
    blocks: tuple[Points, ...],
    partition: tuple[Blocks, ...],
    config: EstimateConfig | None = None,
) -> Evaluation:
    """Return a worker's sums; of one sample in rotation in its block, and then across it and a visitor."""
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


def dof_of_blocks(problem: Problem, t: int, sizes: Sequence[Ints]) -> Floats:
    """Return the degrees of freedom of the components of each worker's blocks in round t, (N, …); 0 for no components.

    Blocks have few different sizes, mostly one after another.
    """
    across = problem.single_rotation and t > 0
    lengths = np.stack(sizes)
    first = np.flatnonzero(np.append(True, (np.diff(lengths) != 0).any(axis=0)))
    runs = list(zip(*lengths[:, first].tolist(), strict=True))
    found = {n: cross_dof(n[0], n[0]) if across else block_dof(problem.kernel.degrees, n) for n in set(runs)}
    n_values = max(map(len, found.values()))
    of_runs = np.array([found[n] or (0.0,) * n_values for n in runs]).reshape(len(runs), n_values)
    return np.repeat(of_runs.T, np.diff(np.append(first, lengths.shape[1])), axis=1).T


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
    problem: Problem, t: int, found: Found, moved: Ints, partition: tuple[Blocks, ...], before: Round | None
) -> Round:
    config, kernel, answers = problem.config, problem.kernel, found.answers
    has_pairs = answers.has_pairs
    if not has_pairs.any():
        raise UserError(f'no worker has a {problem.unit}: repartition (scheme="{DEFAULT_SCHEME}") or use fewer workers')
    if config.empty == "refuse" and not has_pairs.all():
        without = int(np.count_nonzero(~has_pairs))
        raise UserError(
            f"{without} of {len(has_pairs)} workers {plural(without, 'has', 'have')} no {problem.unit} (the first is "
            f'worker {np.argmin(has_pairs)}): repartition (scheme="{DEFAULT_SCHEME}"), use fewer workers, or choose '
            'empty="skip" or "zero"'
        )
    if not kernel.pooled_only:
        problem.check_finite(answers.values[has_pairs])
    sizes = tuple(np.diff(blocks.bounds) for blocks in partition[: len(problem.sizes)])
    if before is not None:
        sizes = before.sizes if all(map(np.array_equal, sizes, before.sizes)) else sizes
    sums, record = sums_of(answers), None
    if problem.keeps_records:
        record = Record.of(answers, None if before is None else before.record)
    if config.aggregate == "pooled":
        sampled = config.n_pairs is not None
        value = kernel.combine(weighted_means([answers]) if sampled else pooled_means(kernel, [sums]))
    else:
        value = mean_of_workers(answers.values, has_pairs, empty_are_zero=config.empty == "zero")
    problem.check_finite(value)
    dof = dof_of_blocks(problem, t, sizes)
    known = found.has_components & dof.any(axis=1)
    rows_moved, bytes_moved = moved.tolist()
    with quiet_overflow():
        spread = Spread.of(answers.values) if config.stderr else None
    return Round(
        sums=sums,
        record=record,
        value=value,
        components=mean_by_dof(found.components_of(known), dof[known]) if known.any() else None,
        sizes=sizes,
        rows_moved=rows_moved,
        bytes_moved=bytes_moved,
        multiplicities=multiplicities_of(found.multiplicities),
        spread=spread,
    )


def multiplicities_of(words: Ints) -> tuple[tuple[int, int, int, int], ...]:
    """Return the sums of `one_sample.multiplicity_sums` of each worker's block, if there are any."""
    numbers = iter(wholes.integers(words.reshape(len(words), -1)))
    return tuple(zip(numbers, numbers, numbers, numbers, strict=True))


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
