"""What is to be estimated: the kernel, the samples, checked and counted, and who holds which rows of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mpi_ustat.complete import Complete, complete, fixed_blocks
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.aggregation import n_statistics
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.influence.analysis import About
from mpi_ustat.kernels.kernel import Kernel, Points, n_tuples
from mpi_ustat.kernels.registry import make_kernel
from mpi_ustat.mpi.exchange import Exchange, as_they_lie
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import check_same_options, together
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.fitting import fit
from mpi_ustat.points.rows import as_points, column_names
from mpi_ustat.schemes.partition import Blocks, Partition
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, scheme_of
from mpi_ustat.schemes.scheme import Scheme
from mpi_ustat.wording import count_of


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What all rounds of an estimation have in common, on one rank; `set_up` makes it, and explains the rest.

    Attributes
    ----------
    exchanges : tuple of Exchange
        This rank's points of each sample, and the means to bring them to the workers.
    partition : Partition or None
        Who holds which rows; None where they stay as they lie.
    learnt : dict
        What was taken from the points before anything was evaluated, by name: see `points.fitting`.
    on_every_rank : bool
        Whether every rank is to keep what each worker found, or the master alone, which writes it.
    """

    comm: Any
    config: EstimateConfig
    kernel: Kernel
    exchanges: tuple[Exchange, ...]
    streams: Streams
    partition: Partition | None
    names: tuple[str, ...]
    block_sizes: Sequence[Ints] | None
    columns: tuple[str, ...]
    replicate: int
    workers_given: bool
    about: About
    learnt: dict[str, Any]
    on_every_rank: bool

    @cached_property
    def scheme(self) -> Scheme:
        """How the points lie over the workers."""
        return scheme_of(self.config.scheme)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Points of each sample."""
        return tuple(exchange.n_rows for exchange in self.exchanges)

    @cached_property
    def single_rotation(self) -> bool:
        """Whether blocks of one sample meet each other."""
        return self.scheme.blocks_travel and self.kernel.degrees == (2,)

    @cached_property
    def with_copies(self) -> bool:
        """Whether blocks of one sample have rows several times."""
        return self.scheme.with_replacement and self.kernel.degrees == (2,)

    @cached_property
    def keeps_records(self) -> bool:
        """Whether this rank keeps what each worker finds in a round.

        All that goes on from there is made of sums over the workers, but for the weights of sampled averages, which
        only the last round tells: the master looks after these. Shards as they lie have one round.
        """
        config, is_master = self.config, self.comm.rank == 0
        if self.scheme.as_they_lie:
            return True
        if config.per_worker:
            return self.on_every_rank or is_master
        return is_master and config.n_pairs is not None and (config.stderr or config.aggregate == "pooled")

    @property
    def unit(self) -> str:
        """What the kernel takes, for people: a pair of points, or a longer tuple."""
        return "pair" if sum(self.kernel.degrees) == 2 or self.kernel.statistic_route else "tuple"

    @property
    def n_statistics(self) -> int:
        """How many statistics the kernel gives, q."""
        return n_statistics(self.kernel)

    def holdings(self, t: int) -> tuple[Blocks, ...]:
        """Return which rows of each sample each worker holds in round t."""
        if self.partition is None:
            samples = dict(zip(self.names, self.exchanges, strict=True))
            return as_they_lie(self.comm, samples, self.block_sizes, self.config.n_workers)
        return self.partition.round(t)

    def complete(self, *, components: bool) -> Complete:
        """Return the complete statistic U_n, with its Hoeffding components where the kernel has them.  Collective."""
        fixed = None if self.workers_given else fixed_blocks(self.kernel, self.sizes)
        n_blocks, exchanges = self.config.n_workers, self.exchanges
        if fixed is not None:
            n_blocks, exchanges = fixed, tuple(Exchange(self.comm, each.rows, fixed) for each in exchanges)
        with quiet_overflow():
            return complete(self.comm, exchanges, self.kernel, n_blocks, self.streams, components=components)

    def check_finite(self, value: Any) -> None:
        """Refuse sums that overflow."""
        if not np.isfinite(value).all():
            raise UserError(f"the sum of the kernel {self.kernel.name} over the pairs overflows: rescale the points")


def set_up(
    comm: Any,
    samples: Sequence[Points],
    config: EstimateConfig,
    *,
    kernel: Kernel | None = None,
    block_sizes: Sequence[Ints] | None = None,
    replicate: int = 0,
    columns: Sequence[str] = (),
    names: Sequence[str] = (),
    workers_given: bool = True,
    about: About | None = None,
    coordinates: Sequence[str] = (),
    on_every_rank: bool = True,
) -> Problem:
    """Check the points and count them.  Collective.

    Parameters
    ----------
    samples : sequence of ndarray
        This rank's points of each sample.
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
    about : About, optional
        What is said about the points beside where they are.
    coordinates : sequence of str
        Names of the columns that make a point, for messages; empty: those of data frames, or numbers.
    on_every_rank : bool
        Whether every rank is to have `Estimate.per_worker` and `evaluations`, or the master alone.
    """
    names = tuple(names or sample_names(len(samples)))
    check_same_options(comm, vars(config))
    with together(comm, "checking the points"):
        if kernel is None:
            kernel = make_kernel(
                config.kernel,
                len(samples),
                ties=config.ties,
                tile=config.tile,
                columns=max(1, len(columns)),
                options=config.kernel_options,
            )
    assert kernel is not None
    rows = checked_points(comm, names, samples, functools.partial(as_points, kernel))
    exchanges = tuple(Exchange(comm, each, config.n_workers) for each in rows)
    _check_shapes(names, exchanges, kernel)
    streams = Streams(config.seed)
    if kernel.standardize != "none" and not coordinates:
        of_ranks = comm.allgather(column_names(samples[0]))
        coordinates = next((of_rank for of_rank in of_ranks if of_rank and len(of_rank) > 1), ())
    kernel, exchanges, learnt = fit(
        comm, exchanges, kernel, streams, config.n_workers, replicate=replicate, columns=coordinates
    )
    if kernel.pooled_only and config.aggregate == "mean" and not config.complete:
        raise UserError(f'the kernel {kernel.name} has no mean of local values: use aggregate="pooled"')
    sizes, scheme = tuple(each.n_rows for each in exchanges), scheme_of(config.scheme)
    _refuse_what_no_memory_holds(comm, config, kernel, sizes)
    partition = None
    if not config.complete and not scheme.as_they_lie:
        _check_partition(config, scheme, kernel, sizes)
        partition = Partition(
            scheme,
            sizes,
            config.n_workers,
            streams,
            move=config.move,
            shuffle=config.shuffle,
            replicate=replicate,
            may_be_empty=config.empty != "refuse",
        )
    return Problem(
        comm=comm,
        config=config,
        kernel=kernel,
        exchanges=exchanges,
        streams=streams,
        partition=partition,
        names=names,
        block_sizes=block_sizes,
        columns=tuple(columns),
        replicate=replicate,
        workers_given=workers_given,
        about=About() if about is None else about,
        learnt=learnt,
        on_every_rank=on_every_rank,
    )


def sample_names(n_samples: int) -> tuple[str, ...]:
    """Return the names of the samples in messages and results: x and z, or sample 0, sample 1, …."""
    return ("x", "z")[:n_samples] if n_samples <= 2 else tuple(f"{k} (of {n_samples})" for k in range(n_samples))


def quiet_overflow() -> np.errstate:
    """Leave NumPy's warnings out: sums that overflow are refused, in one sentence."""
    return np.errstate(over="ignore", invalid="ignore")


def _check_shapes(names: Sequence[str], exchanges: Sequence[Exchange], kernel: Kernel) -> None:
    """Refuse points of different shapes, and fewer than the kernel takes."""
    shapes = [exchange.rows.shape[1:] for exchange in exchanges]
    for name, shape in zip(names, shapes, strict=True):
        if shape != shapes[0]:
            raise UserError(
                f"points of shape {shapes[0]} in {names[0]} and {shape} in {name} can't be paired: "
                "give all samples the same columns"
            )
    for name, exchange, degree in zip(names, exchanges, kernel.degrees, strict=True):
        if (size := exchange.n_rows) < degree:
            has = f"only {count_of(size, 'point')}" if size else "no points"
            raise UserError(f"the sample {name} has {has}: the kernel {kernel.name} takes {degree} of it")


def _refuse_what_no_memory_holds(comm: Any, config: EstimateConfig, kernel: Kernel, sizes: Sequence[int]) -> None:
    """Refuse sizes that nobody means, before the time that they would take.  Collective."""
    p, n_workers = kernel.n_parts, config.n_workers
    if config.stderr and p > 1:  # components while they are found, of each worker while these are gathered, of rounds
        gathered = n_workers * (1 if comm.size == 1 else 3)  # packed on their way
        per_part = 90.0 if config.complete else 60.0 + 24.0 * (gathered + config.n_rounds)
        refuse_beyond_memory(
            comm, per_part * p**2, f"the covariance of {p} statistics", "choose fewer columns, or stderr=False"
        )
    if kernel.tile:
        side = min(kernel.tile, *sizes)
        refuse_beyond_memory(comm, 24.0 * side**2, f"a tile of {side} by {side} pairs", "use a smaller tile=")
    if config.complete:
        return
    what = f"what {count_of(n_workers, 'worker finds', 'workers find')} in {count_of(config.n_rounds, 'round')}"
    for records in (False, True) if config.per_worker else (False,):
        held = _bytes_of_rounds(config, kernel, len(sizes), records=records)
        remedy = "leave out what each of them finds (per_worker=False), or " if records else ""
        refuse_beyond_memory(comm, held, what, f"{remedy}ask for fewer n_rounds= or n_workers=")
    if config.n_pairs is not None and (config.distinct or kernel.degrees != (1, 1)):
        there_are = n_tuples(kernel.degrees, [-(-n // n_workers) for n in sizes])
        tuples = min(config.n_pairs, there_are) if config.distinct else config.n_pairs
        what = f"the numbers of {tuples} tuples that are drawn together"
        refuse_beyond_memory(comm, 16.0 * tuples * (1 + sum(kernel.degrees)), what, "ask for fewer n_pairs=")


def _bytes_of_rounds(config: EstimateConfig, kernel: Kernel, n_samples: int, *, records: bool) -> float:
    """Return the bytes that the rounds of an estimation take at most, with or without what each worker finds.

    That is a double for each of its sums and values, and what is made of them in the end. Sums are kept of sampled
    pairs in any case. Of blocks that differ from round to round, so are the sizes, which the error bar needs in tuples.
    """
    p, q, scheme = kernel.n_parts, n_statistics(kernel), scheme_of(config.scheme)
    a_worker = 16.0 * (p + 2 * q) if records else 8.0 * p if config.n_pairs is not None else 0.0
    if scheme.random_counts:
        a_worker += 16.0 * n_samples
    if scheme.with_replacement and kernel.degrees == (2,):
        a_worker += 250.0  # four of Python's integers
    of_one = config.n_workers * (300.0 + 300.0 * p)  # while it is evaluated and gathered
    return of_one + config.n_rounds * (5000.0 + 200.0 * p + 16.0 * q**2 + config.n_workers * a_worker)


def _check_partition(config: EstimateConfig, scheme: Scheme, kernel: Kernel, sizes: Sequence[int]) -> None:
    """Refuse what a scheme can't do with a kernel, or with so few points."""
    most = scheme.n_rounds_complete(kernel.degrees, config.n_workers)
    if most is not None:
        if config.n_rounds > most:
            raise UserError(
                f"after {count_of(most, 'round')} {scheme.name} over {count_of(config.n_workers, 'worker')} has met "
                f"all pairs, so that {config.n_rounds} are too many: use complete=True, or at most "
                f"{count_of(most, 'round')}"
            )
        if scheme.blocks_travel and kernel.degrees == (2,) and config.aggregate == "mean":
            raise UserError(f'{scheme.name} of one sample has no mean of local values: use aggregate="pooled"')
    if scheme.with_replacement and kernel.degrees == (2,) and config.distinct:
        raise UserError("distinct pairs of one sample are not drawn from blocks with repeats: leave out distinct=True")
    if scheme.with_replacement and max(kernel.degrees) > 1 and kernel.degrees != (2,):
        raise UserError(
            f"drawn with replacement, a point would be paired with itself by the kernel {kernel.name}: "
            f'use scheme="{DEFAULT_SCHEME}"'
        )
    if not scheme.random_counts and config.empty == "refuse":
        for size, degree in zip(sizes, kernel.degrees, strict=True):
            if size < degree * config.n_workers:
                points = "a point" if degree == 1 else f"{degree} points"
                raise UserError(
                    f"{config.n_workers} workers can't each have {points} of a sample of {size}: use at most "
                    f"{count_of(size // degree, 'worker')} (n_workers=)"
                )
