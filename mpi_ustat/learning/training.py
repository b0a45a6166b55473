"""What is to be learnt from: the samples, checked and counted, with the objective and who holds which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.influence.analysis import checked_weights, keys_of
from mpi_ustat.learning.drawn_pairs import DrawnPairs
from mpi_ustat.learning.homes import DrawnPoints, Home, Homes
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.learning.sparse_exchange import exchange_of
from mpi_ustat.learning.state import State
from mpi_ustat.learning.user_objectives import make_objective
from mpi_ustat.mpi.exchange import Exchange, as_they_lie
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import check_same_options, together
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.points.checked import centre
from mpi_ustat.points.sparse import checked_rows
from mpi_ustat.schemes.partition import Blocks, Partition
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.schemes.scheme import Scheme
from mpi_ustat.user.code_digest import code_digest
from mpi_ustat.wording import count_of

# Rows that are paired in so few iterations are not put in order before: each pair's are looked up.
_FEW_ITERATIONS = 2


@dataclass(frozen=True, kw_only=True)
class Training:
    """What all iterations of a descent have in common, on one rank; `set_up` makes it, and explains the rest.

    Attributes
    ----------
    code : ndarray of uint8
        The digest of the objective's code, empty for those of this package.
    exchanges, tests, validation : tuple of Exchange
        This rank's points of each training, test and validation sample.
    partition : Partition or None
        Who holds which rows; None where they stay as they lie.
    sparse : tuple of bool
        Of which samples only the rows are moved that the pairs use.
    homes : Homes or None
        The rows, where they stay and scores travel.
    """

    comm: Any
    config: LearnConfig
    objective: PairObjective
    code: NDArray[np.uint8]
    exchanges: tuple[Exchange, ...]
    tests: tuple[Exchange, ...]
    validation: tuple[Exchange, ...]
    streams: Streams
    partition: Partition | None
    pairs: DrawnPairs
    sparse: tuple[bool, ...]
    pairings: Sequence[tuple[int, int]]
    block_sizes: Sequence[Ints] | None
    homes: Homes | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Points of each training sample."""
        return tuple(each.n_rows for each in self.exchanges)

    @property
    def sets(self) -> dict[str, tuple[Exchange, ...]]:
        """The training set, and the test and the validation set if there are any."""
        others = {"test": self.tests, "validation": self.validation}
        return {"train": self.exchanges} | {name: samples for name, samples in others.items() if samples}

    @cached_property
    def workers(self) -> range:
        """The workers that this rank hosts."""
        return self.exchanges[0].workers

    @property
    def goes_on(self) -> bool:
        """Whether it matters for a round's exchange where the round before had the rows."""
        return scheme_of(self.config.scheme).goes_on(self.config.move)

    @cached_property
    def orders_rows(self) -> bool:
        """Whether so many pairs are taken of the rows of a round that they are first put in order."""
        every = self.config.repartition_every
        return every is None or every > _FEW_ITERATIONS or self.config.move == "smaller"

    def holdings(self, t: int) -> tuple[Blocks, ...]:
        """Return which rows of each sample each worker holds in round t."""
        if self.partition is None:
            samples = {f"sample {k}": exchange for k, exchange in enumerate(self.exchanges)}
            return as_they_lie(self.comm, samples, self.block_sizes, self.config.n_workers)
        return self.partition.round(t)

    def initial(self) -> State:
        """Return the state to begin with."""
        p = self.objective.n_parameters(self.exchanges[0].rows.shape[1])
        zeros = np.zeros(p)
        normals = zeros if self.config.init == "zeros" else self.streams.open("initial parameters").normal(p)
        return State(0, self.objective.initial(normals), np.zeros(p))


def set_up(
    comm: Any,
    samples: Sequence[Floats],
    config: LearnConfig,
    *,
    tests: Sequence[Floats] = (),
    validation: Sequence[Floats] = (),
    objective: PairObjective | None = None,
    pairings: Sequence[tuple[int, int]] = ((0, 1),),
    block_sizes: Sequence[Ints] | None = None,
    weights: Sequence[ArrayLike] | None = None,
    groups: Sequence[ArrayLike] | None = None,
) -> Training:
    """Check the points and count them.  Collective.

    Parameters
    ----------
    samples : sequence of ndarray, shapes (n_local, d)
        This rank's training points, a sample each: first x, whose points should score higher, then z; or K ordered
        classes, the lowest first.
    tests : sequence of ndarray, optional
        This rank's test points, likewise.
    validation : sequence of ndarray, optional
        This rank's validation points, likewise, by which a descent is stopped early or the best parameters are kept.
    objective : PairObjective, optional
        Instead of the one that `config` names.
    pairings : sequence of pairs of int, optional
        Which samples are paired, ((0, 1),) by default: the loss is summed over the pairings.
    block_sizes : sequence of arrays, optional
        For ``as-is``: the sizes of this rank's workers' blocks of each sample.
    weights, groups : sequence of array_like, optional
        For the exchange of scores: of this rank's training points. Only pairs of one group count.
    """
    check_same_options(comm, config.to_json())
    with together(comm, "making the objective"):
        objective = objective or make_objective(config.objective, loss=config.loss)
        code = _code_of(objective)  # before it can change what it holds
    assert objective is not None
    if not validation and config.early_stopping is not None:
        raise UserError("early_stopping= goes by the loss of validation points, and there are none: set some apart")
    others = {"test": tests, "validation": validation}
    names = [f"{k}" for k in range(len(samples))]
    names += [f"{k} of the {name} set" for name, each in others.items() for k in range(len(each))]
    points = checked_rows(comm, names, [*samples, *tests, *validation])
    if isinstance(points[0], SparseRows):
        _refuse_sparse(config, objective)
    every = [exchange_of(comm, rows, config.n_workers) for rows in points]
    exchanges, apart = tuple(every[: len(samples)]), len(samples) + len(tests)
    of_tests, of_validation = tuple(every[len(samples) : apart]), tuple(every[apart:])
    columns = {each.rows.shape[1] for each in every}
    if len(columns) > 1:
        raise UserError(f"the samples have different numbers of columns, {sorted(columns)}: give them the same")
    sizes = tuple(each.n_rows for each in exchanges)
    for k, size in enumerate(sizes):
        if size == 0:
            raise UserError(f"training sample {k} has no points: every sample needs some")
    for name, of_set in (("test", of_tests), ("validation", of_validation)):
        for k, sample in enumerate(of_set):
            if sample.n_rows == 0:
                raise UserError(f"{name} sample {k} has no points: give every sample some, or leave the {name} set out")
    _refuse_what_no_memory_holds(comm, config, columns.pop())
    streams, homes = Streams(config.seed), None
    if config.exchange == "scores":
        said = (weights, groups)
        homes = _homes(comm, exchanges, config, objective, pairings, said, streams)
    elif weights is not None or groups is not None:
        raise UserError('weights and groups of points need the exchange of scores: use exchange="scores"')
    scheme, partition = scheme_of(config.scheme), None
    if homes is None and not scheme.as_they_lie:
        partition = Partition(
            scheme,
            sizes,
            config.n_workers,
            streams,
            move=config.move,
            shuffle=config.shuffle,
            may_be_empty=config.empty != "refuse",
        )
    sparse = used_sparsely(config, scheme, sizes, pairings) if homes is None else (False,) * len(sizes)
    drawing = range(config.n_workers) if any(sparse) else exchanges[0].workers
    # One draw serves iterations of several rounds, if block sizes don't change with the round.
    uneven = any(size % config.n_workers for size in sizes)
    changing = scheme.random_counts or (scheme.blocks_travel and uneven)
    return Training(
        comm=comm,
        config=config,
        objective=objective,
        code=code,
        exchanges=exchanges,
        tests=of_tests,
        validation=of_validation,
        streams=streams,
        partition=partition,
        pairs=DrawnPairs(config, pairings, streams, drawing, one_round=changing),
        sparse=sparse,
        pairings=pairings,
        block_sizes=block_sizes,
        homes=homes,
    )


def _homes(
    comm: Any,
    exchanges: Sequence[Exchange],
    config: LearnConfig,
    objective: PairObjective,
    pairings: Sequence[tuple[int, int]],
    said: tuple[Sequence[ArrayLike] | None, Sequence[ArrayLike] | None],
    streams: Streams,
) -> Homes:
    """Return the rows where they stay, with what is said about them.  Collective."""
    if objective.phi is None:
        raise UserError(
            f'the objective {objective.name} has no loss phi of a difference of scores: learn it with exchange="rows"'
        )
    weights, groups = said
    if groups is not None and config.batch_points is not None:
        raise UserError("groups need all points in every step: use batch_points=None")
    rows, names = [each.rows for each in exchanges], [str(k) for k in range(len(exchanges))]
    of_points: list[list[Exchange | None]] = [[None] * len(rows), [None] * len(rows)]
    if weights is not None:
        checked = checked_weights(comm, rows, weights, names)
        of_points[0] = [Exchange(comm, each, config.n_workers) for each in checked]
    if groups is not None:
        codes = keys_of(comm, rows, groups, "groups", names).codes
        cuts = np.cumsum([len(each) for each in rows])[:-1]
        of_points[1] = [Exchange(comm, each, config.n_workers) for each in np.split(codes, cuts)]
    homes = [Home.of(*of_sample) for of_sample in zip(exchanges, *of_points, strict=True)]
    origin = None
    if objective.only_differences and not isinstance(rows[0], SparseRows):  # which lie around 0
        origin = centre(comm, exchanges)
    if origin is not None:  # a common shift changes nothing but what cancels
        homes = [replace(home, rows=home.rows - origin) for home in homes]
    drawn = None
    if config.batch_points is not None:
        drawn = DrawnPoints(streams, config.batch_points, exchanges[0].workers, homes, config.n_workers)
    return Homes.of(comm, homes, pairings, drawn)


def used_sparsely(
    config: LearnConfig, scheme: Scheme, sizes: Sequence[int], pairings: Sequence[tuple[int, int]]
) -> tuple[bool, ...]:
    """Tell of which samples so few rows are used between repartitions that only those are to be moved.

    Every rank draws the pairs of all workers then, so all know which rows travel. Samples that stay, or move as they
    are, are moved whole; of one that is in no pairing no row is used, and it may as well be moved as any other.
    """
    may_be = config.repartition_every == 1 and config.batch_pairs is not None and len(pairings) == 1
    may_be = may_be and not scheme.goes_on(config.move)
    used = config.n_workers * (config.batch_pairs or 0)
    return tuple(may_be and k in pairings[0] and used < size / 2 for k, size in enumerate(sizes))


def _refuse_sparse(config: LearnConfig, objective: PairObjective) -> None:
    if config.exchange == "rows":
        raise UserError(
            'sparse rows stay where they are: use exchange="scores", or make arrays of them with .toarray()'
        )
    if not objective.takes_sparse:
        raise UserError(f"the objective {objective.name} takes no sparse rows: make arrays of them with .toarray()")


def _refuse_what_no_memory_holds(comm: Any, config: LearnConfig, n_columns: int) -> None:
    """Refuse sizes that nobody means, before the time that they would take.  Collective."""
    batch_pairs = config.batch_pairs if config.exchange == "rows" else None
    batch = -(-config.n_workers // comm.size) * (batch_pairs or 0)
    what = f"{count_of(config.batch_pairs, 'pair')} for each of {count_of(config.n_workers, 'worker')}"
    refuse_beyond_memory(comm, batch * (32.0 + 24.0 * n_columns), what, "ask for fewer batch_pairs= or n_workers=")
    what = f"the curves of {count_of(config.iterations, 'iteration')}, evaluated every {config.eval_every}"
    held = 1500.0 * (config.iterations // config.eval_every)
    refuse_beyond_memory(comm, held, what, "ask for fewer iterations=, or a larger eval_every=")


def _code_of(objective: PairObjective) -> NDArray[np.uint8]:
    written = getattr(objective, "written", None)
    code = "" if written is None else code_digest(written, objective.name)
    return np.frombuffer(bytes.fromhex(code), dtype=np.uint8)
