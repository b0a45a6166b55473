"""Estimating a U-statistic of samples that are spread over the ranks of a communicator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.complete import Complete, complete
from mpi_ustat.config import EstimateConfig
from mpi_ustat.errors import UserError
from mpi_ustat.parallel.exchange import Exchange, as_they_lie
from mpi_ustat.parallel.partition import Blocks, Partition
from mpi_ustat.parallel.rng import Streams, fresh_seed
from mpi_ustat.parallel.runtime import PhaseClock, agree, together
from mpi_ustat.statistics.kernel import OnePart, PairSum, Points
from mpi_ustat.statistics.kernels import DEFAULT_TILE, BlockFunction, make_kernel
from mpi_ustat.statistics.points import as_points
from mpi_ustat.statistics.ustat import add, complete_sum, incomplete_sum, mean, pool


@dataclass(frozen=True)
class Round:
    """What one partition gave, the same on every rank.

    Attributes
    ----------
    sums : tuple of PairSum
        Each worker's sum of kernel values and number of pairs, in worker order.
    value : float
        The round's estimate.
    rows_moved : int
        Rows whose worker is not the one that they started on.
    bytes_moved : int
        Bytes that went from one rank to another.
    """

    sums: tuple[PairSum, ...]
    value: float
    rows_moved: int
    bytes_moved: int


@dataclass(frozen=True)
class Estimate:
    """An estimated U-statistic and what it was made of.

    Attributes
    ----------
    value : float
        The estimate, in the unit of the kernel.
    n, m : int
        Sizes of the samples x and z.
    n_pairs : int
        Pairs evaluated, over all workers and rounds.
    per_round : ndarray, shape (T,)
        Each round's value.
    per_worker : ndarray, shape (T, N)
        Each worker's local average; NaN where a worker had no pair. Shape (0, 0) when complete.
    pairs_per_worker : ndarray of int, shape (T, N)
        Pairs behind each local average.
    empty_workers : int
        Workers, over all rounds, that had no pair.
    rows_moved, bytes_moved : ndarray of int, shape (T,)
        Rows that changed worker in each round, and bytes that went between ranks.
    complete_value : float or None
        U_n, where it was computed.
    route : {"ranges", "sums", "gather"} or None
        How U_n was found: see `mpi_ustat.complete.complete`.
    complete_bytes_moved : int
        Bytes that went between ranks for U_n.
    seconds : dict of str to float
        Seconds per phase, of the slowest rank.
    n_ranks : int
        P.
    config : EstimateConfig
        What was asked for.
    """

    value: float
    n: int
    m: int
    n_pairs: int
    per_round: NDArray[np.float64]
    per_worker: NDArray[np.float64]
    pairs_per_worker: NDArray[np.int64]
    empty_workers: int
    rows_moved: NDArray[np.int64]
    bytes_moved: NDArray[np.int64]
    complete_value: float | None
    route: str | None
    complete_bytes_moved: int
    seconds: dict[str, float]
    n_ranks: int
    config: EstimateConfig

    def summary(self) -> dict[str, Any]:
        """Return the estimate as a JSON-able dictionary, without the per-worker values."""
        config = self.config
        by_rounds = not config.complete
        return {
            "estimate": self.value,
            "kernel": config.kernel,
            "ties": config.ties if config.kernel == "auc" else None,
            "complete": config.complete,
            "scheme": config.scheme if by_rounds else None,
            "aggregate": config.aggregate if by_rounds else None,
            "n": self.n,
            "m": self.m,
            "n_workers": config.n_workers,
            "n_ranks": self.n_ranks,
            "n_rounds": config.n_rounds,
            "pairs_per_worker": config.n_pairs,
            "n_pairs": self.n_pairs,
            "empty_workers": self.empty_workers,
            "complete_value": self.complete_value,
            "complete_route": self.route,
            "seed": config.seed,
            "rows_moved": int(self.rows_moved.sum()),
            "bytes_moved": int(self.bytes_moved.sum()) + self.complete_bytes_moved,
            "seconds": self.seconds,
            "per_round": self.per_round.tolist(),
        }


@dataclass
class Estimation:
    """The state of one estimation on one rank: the samples, and the rounds so far.

    Construction and all methods are collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    x, z : ndarray
        This rank's points of the two samples.
    config : EstimateConfig
    kernel : Kernel, optional
        Instead of the one that `config.kernel` names.
    block_sizes : pair of arrays, optional
        For ``as-is``: the sizes of the x- and z-blocks of this rank's workers, in worker order.
    replicate : int
        Which of several independent repetitions with the same seed this is.
    """

    comm: Any
    x: Points
    z: Points
    config: EstimateConfig
    kernel: OnePart | None = None
    block_sizes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    replicate: int = 0
    rounds: list[Round] = field(default_factory=list, init=False)
    clock: PhaseClock = field(default_factory=PhaseClock, init=False)

    def __post_init__(self) -> None:
        """Check the points and count them."""
        config = self.config
        with together(self.comm, "checking the points"):
            if self.kernel is None:
                self.kernel = make_kernel(config.kernel, ties=config.ties, tile=config.tile)
            samples = [as_points(self.kernel, name, rows) for name, rows in (("x", self.x), ("z", self.z))]
        self._kernel: OnePart = self.kernel
        self._x, self._z = (Exchange(self.comm, rows, config.n_workers) for rows in samples)
        if self._x.rows.shape[1:] != self._z.rows.shape[1:]:
            raise UserError(
                f"points of shape {self._x.rows.shape[1:]} in x and {self._z.rows.shape[1:]} in z can't be paired: "
                "give both samples the same columns"
            )
        self.n, self.m = self._x.n_rows, self._z.n_rows
        for name, size in (("x", self.n), ("z", self.m)):
            if size == 0:
                raise UserError(f"sample {name} has no points: a U-statistic of two samples needs both")
        self._streams = Streams(config.seed)
        self._partition: Partition | None = None
        if not config.complete and config.scheme != "as-is":
            self._partition = Partition(
                config.scheme,
                (self.n, self.m),
                config.n_workers,
                self._streams,
                move=config.move,
                shuffle=config.shuffle,
                replicate=self.replicate,
            )

    def complete(self) -> Complete:
        """Return the complete statistic U_n."""
        with self.clock("complete"), _quiet_overflow():
            found = complete(self.comm, self._x, self._z, self._kernel, self.config.n_workers, self._streams)
        self._check_finite(found.value)
        return found

    def run_round(self, t: int) -> Round:
        """Partition, exchange, evaluate and reduce round `t`; return it and keep it."""
        with self.clock("partition"):
            x_blocks: Blocks
            z_blocks: Blocks
            if self._partition is None:
                samples = {"x": self._x, "z": self._z}
                x_blocks, z_blocks = as_they_lie(self.comm, samples, self.block_sizes, self.config.n_workers)
            else:
                x_blocks, z_blocks = self._partition.round(t)
        before = self._moved()
        with self.clock("exchange"):
            x, z = self._x.blocks(x_blocks), self._z.blocks(z_blocks)
        moved = self._moved() - before
        error, sums = None, []
        with self.clock("evaluate"), _quiet_overflow():
            try:
                sums = [self._local(t, *blocks) for blocks in zip(self._x.workers, x, z, strict=True)]
            except BaseException as caught:  # travels with the gather, or the other ranks would wait for ever
                error = caught
        with self.clock("reduce"):
            everyone = agree(self.comm, error, (sums, moved), doing=f"evaluating the kernel {self._kernel.name}")
            result = self._reduce(everyone)
        self.rounds.append(result)
        return result

    def result(self, complete: Complete | None = None) -> Estimate:
        """Return the estimate over the rounds run so far, or the `complete` one where there were none."""
        rounds, config = self.rounds, self.config
        if config.complete:
            assert complete is not None
            value, per_round, n_pairs = complete.value, [complete.value], self.n * self.m
        else:
            per_round = [each.value for each in rounds]
            n_pairs = sum(local.n_pairs for each in rounds for local in each.sums)
            if config.aggregate == "pooled":
                value = mean(pool(local for each in rounds for local in each.sums), self._kernel.scale)
            else:
                value = math.fsum(per_round) / len(per_round)
        shape = (len(rounds), config.n_workers if rounds else 0)
        local = [[mean(each, self._kernel.scale) for each in r.sums] for r in rounds]
        pairs = [[each.n_pairs for each in r.sums] for r in rounds]
        return Estimate(
            value=value,
            n=self.n,
            m=self.m,
            n_pairs=n_pairs,
            per_round=np.array(per_round, dtype=np.float64),
            per_worker=np.array(local, dtype=np.float64).reshape(shape),
            pairs_per_worker=np.array(pairs, dtype=np.int64).reshape(shape),
            empty_workers=sum(each.n_pairs == 0 for r in rounds for each in r.sums),
            rows_moved=np.array([r.rows_moved for r in rounds], dtype=np.int64),
            bytes_moved=np.array([r.bytes_moved for r in rounds], dtype=np.int64),
            complete_bytes_moved=0 if complete is None else complete.bytes_moved,
            complete_value=None if complete is None else complete.value,
            route=None if complete is None else complete.route,
            seconds=self.clock.slowest(self.comm),
            n_ranks=self.comm.size,
            config=config,
        )

    def _local(self, t: int, worker: int, x: Points, z: Points) -> PairSum:
        if len(x) == 0 or len(z) == 0:
            return PairSum(0, 0)
        if self.config.n_pairs is None:
            return complete_sum(self._kernel, x, z)
        rows, columns = self._streams.open("pairs", replicate=self.replicate, round=t, worker=worker).pairs(
            len(x), len(z), self.config.n_pairs
        )
        return incomplete_sum(self._kernel, x, z, rows, columns)

    def _reduce(self, everyone: list[tuple[list[PairSum], NDArray[np.int64]]]) -> Round:
        sums = tuple(each for rank_sums, _ in everyone for each in rank_sums)
        kept = [each for each in sums if each.n_pairs]
        if not kept:
            raise UserError("no worker has a pair: repartition (--scheme prop-swor) or use fewer workers")
        if len(kept) < len(sums) and self.config.empty == "refuse":
            empty = [i for i, each in enumerate(sums) if not each.n_pairs]
            raise UserError(
                f"{len(empty)} of {len(sums)} workers have no pair (the first is worker {empty[0]}): repartition "
                "(--scheme prop-swor), use fewer workers, or choose --empty skip or zero"
            )
        scale = self._kernel.scale
        if self.config.aggregate == "pooled":
            value = mean(pool(kept), scale)
        else:
            counted = len(sums) if self.config.empty == "zero" else len(kept)
            value = float(add(mean(each, scale) for each in kept)) / counted
        rows_moved, bytes_moved = np.sum([moved for _, moved in everyone], axis=0).tolist()
        self._check_finite(value)
        return Round(sums, value, rows_moved, bytes_moved)

    def _check_finite(self, value: float) -> None:
        if not math.isfinite(value):
            raise UserError(f"the sum of the kernel {self._kernel.name} over the pairs overflows: rescale the points")

    def _moved(self) -> NDArray[np.int64]:
        samples = (self._x, self._z)
        return np.array([sum(s.rows_moved for s in samples), sum(s.bytes_sent for s in samples)])


def estimate(
    comm: Any,
    x: Points,
    z: Points,
    kernel: str | BlockFunction | OnePart = "auc",
    *,
    ties: str = "half",
    complete: bool = False,
    scheme: str = "prop-swor",
    n_workers: int | None = None,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    aggregate: str = "mean",
    empty: str = "",
    move: str = "both",
    shuffle: str = "auto",
    seed: int | None = None,
    reference: bool = False,
    block_sizes: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    tile: int = DEFAULT_TILE,
) -> Estimate:
    """Estimate E h(X, Z) from two samples spread over the ranks of a communicator.  Collective.

    With one round and all local pairs this is U_{n,N} = N⁻¹ Σ_i U_{R_i}, the mean of the workers' local averages (the
    paper's eq. for the one-round estimator); with T rounds Û_{n,N,T} = T⁻¹ Σ_t U_{n,N}^{(t)}, each over a fresh
    partition; with `n_pairs` = B the local averages are over B sampled pairs (Ũ_{n,N,B} and Ũ_{n,N,B,T}); with
    `complete` it is U_n, over all n·m pairs.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options; any communicator will do, COMM_SELF included.
    x, z : ndarray, shape (n_local,) or (n_local, d)
        This rank's points of the two samples; may be empty on some ranks. The global order is that of the ranks.
    kernel : str, callable or Kernel
        ``auc`` (x being the scores of positives), ``product``, ``gini``, ``module:function``, or a function of two
        blocks, (a, d) and (b, d), that returns h for all their pairs, (a, b).
    ties, complete, scheme, n_rounds, n_pairs, aggregate, empty, move, shuffle, reference, tile
        See `mpi_ustat.config.EstimateConfig`.
    n_workers : int, optional
        N, by default the number of ranks. The result depends on N, never on the number of ranks.
    seed : int, optional
        Drawn by rank 0 when left out; recorded in the result.
    block_sizes : pair of int arrays, optional
        For ``as-is`` with several workers a rank: sizes of the x- and z-blocks of this rank's workers.

    Returns
    -------
    Estimate
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the kernel fails on any rank.
    """
    seed = comm.bcast(fresh_seed() if seed is None and comm.rank == 0 else seed)
    name, made = (kernel, None) if isinstance(kernel, str) else _named(make_kernel(kernel, ties=ties, tile=tile))
    config = EstimateConfig(
        kernel=name,
        ties=ties,
        complete=complete,
        scheme=scheme,
        n_workers=comm.size if n_workers is None else n_workers,
        n_rounds=n_rounds,
        n_pairs=n_pairs,
        aggregate=aggregate,
        empty=empty,
        move=move,
        shuffle=shuffle,
        seed=seed,
        reference=reference,
        tile=tile,
    )
    estimation = Estimation(comm, x, z, config, kernel=made, block_sizes=block_sizes)
    for _ in run(estimation):
        pass
    return estimation.result(estimation.complete() if complete or reference else None)


def _quiet_overflow() -> np.errstate:
    """Leave out NumPy's warnings: sums that overflow are refused, in one sentence."""
    return np.errstate(over="ignore", invalid="ignore")


def _named(kernel: OnePart) -> tuple[str, OnePart]:
    return kernel.name, kernel


def run(estimation: Estimation) -> Iterator[Round]:
    """Yield the rounds that the configuration asks for, none when it asks for the complete statistic.  Collective."""
    if not estimation.config.complete:
        for t in range(estimation.config.n_rounds):
            yield estimation.run_round(t)
