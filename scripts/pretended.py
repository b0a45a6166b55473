"""One rank's own part of a job of many ranks, which aren't there: all but the wire, in CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from completemodel import Complete, RingJob, SortJob
from costmodel import Job
from scipy.spatial.distance import cdist
from scipy.special import ndtr
from standin import DONE, DealingStandIn, SortingStandIn, StandIn, own_of, phases

from mpi_ustat.complete import Complete as Found
from mpi_ustat.complete import complete
from mpi_ustat.complete.sorting import SAMPLES_PER_RANGE, splitters
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.tiled import Tiled
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import AFTER, PhaseClock, entering, listening
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Dealt, Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES


class Distance(Tiled):
    """h(x, z) = |x - z|, of whose mean the energy distance has twice: a kernel whose pairs meet in a ring."""

    name = "distance"
    unit = "unit of the points"

    def matrix(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return the distances of all pairs."""
        return cdist(x, z)


def pretended(rank: int, job: Job, runs: int) -> list[float]:
    """Return the least CPU seconds of a rank's own part of a round: draw, exchange, evaluate, reduce, and in total."""
    rng, bounds = np.random.default_rng(rank), block_bounds(job.n_workers, job.n_ranks)
    own = [rng.normal(size=size) for size in own_of(job.sizes, job.n_ranks, rank)]
    here = slice(bounds[rank], bounds[rank + 1])
    comm = DealingStandIn(job.n_ranks, rank, [np.diff(block_bounds(size, job.n_workers))[here] for size in job.sizes])
    options = {"n_workers": job.n_workers, "n_pairs": job.n_pairs, "shuffle": "matrix", "seed": 1}
    estimation = Estimation(set_up(comm, own, EstimateConfig(**options)), clock=PhaseClock(time.process_time))
    partition = Partition(SCHEMES["prop-swor"], job.sizes, job.n_workers, Streams(1), shuffle="matrix")
    found = []
    for t in range(runs + 1):
        estimation.clock.seconds.clear()
        comm.seconds, moved = 0.0, {}
        began = time.process_time()
        with listening(lambda phase, moved=moved: moved.setdefault(phase, comm.seconds)):
            estimation.step()
        total = time.process_time() - began - comm.seconds
        clock = dict(estimation.clock.seconds)
        in_exchange = moved["evaluate"]
        began = time.process_time()
        for exchange, blocks in zip(estimation.problem.exchanges, partition.round(t), strict=True):
            assert isinstance(blocks, Dealt)
            blocks.workers_of(exchange.first_row, exchange.first_row + len(exchange.rows))
        draw = time.process_time() - began
        exchange_seconds = clock["exchange"] - in_exchange
        reduce = clock["reduce"] - (comm.seconds - in_exchange)
        found.append([draw, exchange_seconds, clock["evaluate"], reduce, total])
    return np.min(found[1:], axis=0).tolist()


def whole_statistic(comm: object, own: Sequence[np.ndarray], job: Complete, seed: int) -> Found:
    """Return the complete statistic of samples of which these are the rank's own rows.  Collective."""
    n_blocks = job.n_workers if isinstance(job, RingJob) else job.n_ranks
    kernel = Distance() if isinstance(job, RingJob) else AUC()
    samples = [Exchange(comm, rows, n_blocks) for rows in own]
    entering("splitters")
    return complete(comm, samples, kernel, n_blocks, Streams(seed))


def own_rows(job: Complete, rank: int) -> list[np.ndarray]:
    """Return a rank's standard normal scores or points."""
    rng, columns = np.random.default_rng(rank), (job.n_columns,) if isinstance(job, RingJob) else ()
    return [rng.standard_normal((size, *columns)) for size in own_of(job.sizes, job.n_ranks, rank)]


def pretended_complete(rank: int, job: Complete, runs: int) -> tuple[Complete, dict[str, float]]:
    """Return a job as this rank has it, and the CPU seconds of its own part by phase, of the run that took least."""
    own, found = own_rows(job, rank), []
    for t in range(runs):
        if isinstance(job, SortJob):
            comm, first, following = _sorting(own, rank, job, t), "agree", _phase_of_sort
            low, high = ndtr(comm.bounds)
            job = replace(job, fullness=float(high - low) * job.n_ranks)
        else:
            comm, first, following = StandIn(job.n_ranks, rank), "reduce", _phase_of_ring
        with phases(comm, first, following) as seconds:
            whole_statistic(comm, own, job, t)
        found.append((job, {name: seconds.get(name, 0.0) for name in job.operations()}))
    return min(found, key=lambda each: sum(each[1].values()))


def _sorting(own: Sequence[np.ndarray], rank: int, job: SortJob, t: int) -> SortingStandIn:
    """Return the communicator of a sort, in which the rank gets what is in the range that the splitters give it."""
    comm = SortingStandIn(job.n_ranks, rank, SAMPLES_PER_RANGE * job.n_ranks)
    samples = [Exchange(comm, rows, job.n_ranks) for rows in own]
    cuts = [-np.inf, *splitters(comm, samples, job.n_ranks, Streams(t)).tolist(), np.inf]
    comm.bounds = cuts[rank], cuts[rank + 1]
    return comm


def _phase_of_sort(phase: str, event: str) -> str:
    if event == "allgather":  # of how many scores came here; of counts; and before, of shapes
        return "agree, before count" if phase in ("sort", "merge") else "agree"
    if event == f"allgather{DONE}" and phase == "agree, before count":
        return "count"
    return {"splitters": "splitters", "exchange": "sort", f"Alltoallv{DONE}": "merge"}.get(event, phase)


def _phase_of_ring(phase: str, event: str) -> str:
    # What is gathered is what the ranks have found; to agree is a small sum, and then blocks move.
    return {"allgather": "reduce", "evaluate": "evaluate"}.get(event, "move" if event.startswith(AFTER) else phase)
