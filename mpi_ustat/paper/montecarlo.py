"""Monte-Carlo experiments: many independent runs of the estimators on samples drawn from a model.

The runs can be spread over the ranks, each run on one rank with N logical workers; or each run can be spread over all
ranks, with real exchanges. Randomness is keyed by the run, so that both ways, and any number of ranks, give the same
numbers, and an interrupted experiment goes on from the runs it has.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import SimulationConfig
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.estimation import run as rounds_of
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.kernel import OnePart, Points
from mpi_ustat.kernels.product import Product
from mpi_ustat.mpi.runtime import SerialComm, attempt
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Flags, Floats
from mpi_ustat.paper.models import Components, normal_product, two_point_auc
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.registry import scheme_of

#: Values of one or several runs by statistic; the first axis is the run.
Values = dict[str, Floats]

_SECONDS_PER_CHUNK = 1.0
_BATCH_WORDS = 1 << 15  # words of permutations in flight: 256 KiB, which a core keeps close


class Model(Protocol):
    """A law of (X, Z) with a kernel whose mean and components are known."""

    kernel: OnePart
    mean: float
    components: Components

    def draw(self, streams: Streams, run: int, n: int, m: int) -> tuple[Points, Points]:
        """Return the samples x (n,) and z (m,) of a run."""


class TwoPointAUC:
    """X is 2, or 0 with probability ε; Z is -1, or 1 with probability ε; h(x, z) = 1{z < x} (the paper's third figure).

    Only a pair of the rare values X = 0 and Z = 1 is misordered. With `conditional`, samples are drawn given that both
    occur, an event of probability `two_point_auc_informative(epsilon, n, m)`: without it a small ε leaves nearly all
    runs without any misordered pair.
    """

    def __init__(self, epsilon: float, *, conditional: bool = False) -> None:
        self.kernel: OnePart = AUC("strict")
        self.mean, self.components = two_point_auc(epsilon)
        self.epsilon = epsilon
        self.conditional = conditional

    def draw(self, streams: Streams, run: int, n: int, m: int) -> tuple[Points, Points]:
        """Return the samples x (n,) and z (m,) of a run."""
        rare_x, rare_z = self.rare(streams, "x", run, n), self.rare(streams, "z", run, m)
        return np.where(rare_x, 0.0, 2.0), np.where(rare_z, 1.0, -1.0)

    def rare(self, streams: Streams, sample: str, run: int, size: int) -> Flags:
        """Tell which points of a sample have the rare value; the probability is exact to 2⁻⁶⁴."""
        stream = streams.open(f"sample {sample}", replicate=run)
        below = np.uint64(min(math.floor(self.epsilon * 2.0**64), 2**64 - 1))
        rare = stream.raw(size) < below
        if self.conditional:
            # The place of the first is geometric, truncated at the size; those after it are independent again.
            u = float(stream.uniform(1)[0])
            some = -math.expm1(size * math.log1p(-self.epsilon))
            first = min(int(math.log1p(-u * some) / math.log1p(-self.epsilon)), size - 1)
            rare[:first], rare[first] = False, True
        return rare


class NormalProduct:
    """X and Z are normal of unit variance with given means; h(x, z) = x·z."""

    def __init__(self, mean_x: float, mean_z: float) -> None:
        self.kernel: OnePart = Product()
        self.mean, self.components = normal_product(mean_x, mean_z)
        self.mean_x, self.mean_z = mean_x, mean_z

    def draw(self, streams: Streams, run: int, n: int, m: int) -> tuple[Points, Points]:
        """Return the samples x (n,) and z (m,) of a run."""
        x = streams.open("sample x", replicate=run).normal(n)
        z = streams.open("sample z", replicate=run).normal(m)
        return x + self.mean_x, z + self.mean_z


def make_model(config: SimulationConfig) -> Model:
    """Return the model that the configuration names."""
    if config.model == "two-point-auc":
        return TwoPointAUC(config.epsilon, conditional=config.conditional)
    return NormalProduct(config.mean_x, config.mean_z)


class Study(ABC):
    """Independent runs of something, each keyed by its number."""

    n_runs: int

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one run's values by statistic."""

    def by_one_rank(self) -> Callable[[range], Values]:
        """Return the function that does runs on this rank alone."""
        return self.by_all_ranks(SerialComm())

    @abstractmethod
    def by_all_ranks(self, comm: Any) -> Callable[[range], Values]:
        """Return the function that does runs on all ranks of `comm` together."""


def run_study(comm: Any, study: Study, *, start: int = 0, spread: str = "runs") -> Iterator[tuple[range, Values]]:
    """Yield the runs from number `start` on, chunk by chunk, in order.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    study : Study
    start : int
        Number of the first run: those before it are known already.
    spread : {"runs", "workers"}
        Whether each run is done by one rank, or by all ranks together through real exchanges. The numbers are the
        same.

    Yields
    ------
    runs : range
        Numbers of the runs of the chunk.
    values : dict of str to ndarray
        Values by statistic, the first axis being the run.
    """
    if spread not in ("runs", "workers"):
        raise UserError(f"the spread is {spread!r}: use runs or workers")
    one_run = study.by_one_rank() if spread == "runs" else study.by_all_ranks(comm)
    size = comm.size if spread == "runs" else 1
    while start < study.n_runs:
        began = time.perf_counter()
        chunk = range(start, min(start + size, study.n_runs))
        yield chunk, _spread_over_ranks(comm, one_run, chunk) if spread == "runs" else one_run(chunk)
        start = chunk.stop
        # Chunks of about a second: progress is seen and kept, at little cost.
        if comm.bcast(time.perf_counter() - began < _SECONDS_PER_CHUNK / 2):
            size *= 2


def _spread_over_ranks(comm: Any, one_run: Callable[[range], Values], chunk: range) -> Values:
    bounds = block_bounds(len(chunk), comm.size) + chunk.start
    own = range(int(bounds[comm.rank]), int(bounds[comm.rank + 1]))
    _, parts = attempt(comm, lambda: one_run(own), "simulating")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Simulation(Study):
    """The study of the estimators on samples drawn from a model.

    Its values: ``complete``, U_n; ``local`` (T,), each round's mean of the workers' complete local averages, when
    `config.local`; ``incomplete`` (len(pairs), T), the same over B sampled pairs a worker; ``sampled``
    (len(total_pairs),), the undistributed incomplete statistic over that many pairs of all n·m.
    """

    def __init__(self, config: SimulationConfig) -> None:
        self.config = config
        self.n_runs = config.n_runs

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one run's values by statistic."""
        config = self.config
        found: dict[str, tuple[int, ...]] = {"complete": ()}
        if config.local:
            found["local"] = (config.n_rounds,)
        if config.pairs:
            found["incomplete"] = (len(config.pairs), config.n_rounds)
        if config.total_pairs:
            found["sampled"] = (len(config.total_pairs),)
        return found

    def by_one_rank(self) -> Callable[[range], Values]:
        """Return the function that does runs on this rank alone, by the fast way where there is one."""
        config, model = self.config, make_model(self.config)
        divides = config.n % config.n_workers == 0 and config.m % config.n_workers == 0
        rounds_only = config.local and not config.pairs and not config.total_pairs
        permuted = scheme_of(config.scheme).spreads_afresh and config.shuffle == "permutation"
        if isinstance(model, TwoPointAUC) and divides and permuted and rounds_only and config.n < 2**24:
            return _Batches(self, model)
        return super().by_one_rank()

    def by_all_ranks(self, comm: Any) -> Callable[[range], Values]:
        """Return the function that does runs with the estimators of `estimation.estimation`, on all ranks of `comm`."""
        model, streams = make_model(self.config), Streams(self.config.seed)
        return lambda runs: self.joined([self._estimates(comm, model, streams, run) for run in runs], np.stack)

    def joined(self, parts: Sequence[Values], how: Callable[[list[Floats]], Floats]) -> Values:
        """Return the values of some runs as one, of no run as arrays of no row."""
        return {
            name: how([part[name] for part in parts]) if parts else np.empty((0, *shape))
            for name, shape in self.shapes().items()
        }

    def _estimates(self, comm: Any, model: Model, streams: Streams, run: int) -> Values:
        config = self.config
        x, z = model.draw(streams, run, config.n, config.m)
        # Every rank draws the whole samples, which are small beside what the estimation takes.
        own = [rows[slice(*block_bounds(len(rows), comm.size)[comm.rank : comm.rank + 2])] for rows in (x, z)]

        def estimation(n_pairs: int | None) -> Estimation:
            problem = set_up(comm, own, config.estimate_config(n_pairs), kernel=model.kernel, replicate=run)
            return Estimation(problem)

        def rounds(n_pairs: int | None) -> list[float]:
            return [float(each.value[0]) for each in rounds_of(estimation(n_pairs))]

        def sampled(n_pairs: int) -> float:
            rows, columns = streams.open("sampled pairs", replicate=run).pairs(config.n, config.m, n_pairs)
            return model.kernel.pairs_total(x[rows], z[columns]) / (model.kernel.scale * n_pairs)

        values = {"complete": np.array(estimation(None).complete().value)}
        if config.local:
            values["local"] = np.array(rounds(None))
        if config.pairs:
            values["incomplete"] = np.array([rounds(n_pairs) for n_pairs in config.pairs])
        if config.total_pairs:
            values["sampled"] = np.array([sampled(n_pairs) for n_pairs in config.total_pairs])
        return values


def simulate(
    comm: Any, config: SimulationConfig, *, start: int = 0, spread: str = "runs"
) -> Iterator[tuple[range, Values]]:
    """Yield the runs of a `Simulation`: see `run_study`.  Collective."""
    return run_study(comm, Simulation(config), start=start, spread=spread)


class _Batches:
    """Runs of the two-point model, several at once, with all their rounds as one array.

    For schemes that spread samples afresh, by permutation, over equal blocks; the permutations, and so all numbers, are
    those of `Partition`. The misordered pairs of a block are the product of the numbers of its rare points.
    """

    def __init__(self, study: Simulation, model: TwoPointAUC) -> None:
        config = self.config = study.config
        self.study, self.model, self.streams = study, model, Streams(config.seed)
        fixed = "" if config.move == "both" else "x" if config.m <= config.n else "z"
        self.rounds = {name: 1 if fixed == name else config.n_rounds for name in "xz"}
        self.batch = max(1, _BATCH_WORDS // (self.rounds["x"] * config.n + self.rounds["z"] * config.m))

    def __call__(self, runs: range) -> Values:
        parts = [self._batch(runs[i : i + self.batch]) for i in range(0, len(runs), self.batch)]
        return self.study.joined(parts, np.concatenate)

    def _batch(self, runs: range) -> Values:
        config, scale = self.config, self.model.kernel.scale
        (rare_x, blocks_x), (rare_z, blocks_z) = (
            self._rare_points(k, name, size, runs) for k, (name, size) in enumerate((("x", config.n), ("z", config.m)))
        )
        pairs, all_pairs = config.n * config.m // config.n_workers**2, config.n * config.m
        totals = scale * (pairs - blocks_x * blocks_z)  # whole numbers, exact as doubles
        pooled = config.aggregate == "pooled"
        # The sums and quotients of `estimation`, rounded in the same places.
        terms = (totals if pooled else totals / (scale * pairs)).tolist()
        sums = np.array([[math.fsum(workers) for workers in rounds] for rounds in terms])
        return {
            "complete": scale * (all_pairs - rare_x * rare_z) / (scale * all_pairs),
            "local": sums / (scale * pairs * config.n_workers if pooled else config.n_workers),
        }

    def _rare_points(self, k: int, name: str, size: int, runs: range) -> tuple[Floats, Floats]:
        """Return how many rare points the sample, (runs,), and its blocks, (runs, rounds, workers), have."""
        rare = np.stack([self.model.rare(self.streams, name, run, size) for run in runs])
        orders = self.streams.permutations(f"permute sample {k}", size, runs, self.rounds[name])
        ordered = np.empty(orders.shape, dtype=np.float32)
        for values, order, out in zip(rare.astype(np.float32), orders, ordered, strict=True):
            np.take(values, order, out=out, mode="clip")
        block = size // self.config.n_workers
        blocks = ordered.reshape(*orders.shape[:2], self.config.n_workers, block)
        counts = blocks @ np.ones(block, dtype=np.float32)  # exact: whole numbers below 2^24
        return np.count_nonzero(rare, axis=1).astype(np.float64), counts.astype(np.float64)
