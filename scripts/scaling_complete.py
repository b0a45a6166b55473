"""Seconds of complete statistics on 1, 2, 4 ranks and on one of many, and what the cost model makes of them.

    python scripts/scaling_complete.py pretend results/scaling-complete-pretended.h5
    mpiexec -n 2 python scripts/scaling_complete.py measure results/scaling-complete-2.h5
    python scripts/scaling_complete.py fit results/scaling-complete-pretended.h5 results/scaling-complete-?.h5 \\
        --rounds results/scaling.h5 --output results/scaling-complete.h5

The statistics are the AUC, by sorting, and the mean distance of two samples of points, by a ring. `pretend` times the
own part of one rank of up to 10 000; `measure` whole statistics on the ranks that there are. `fit` fits the constants
of the processor to what was pretended, predicts what was measured, and 10⁹ and 10¹⁰ scores on 10 to 10 000 ranks
beside a round of them, whose constants are in the result of `scaling.py fit`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from _bench import machine
from completemodel import Complete, RingJob, SortJob
from costmodel import PHASES, CostModel, Job
from costs import CLUSTER, Equation, Fit, Network, least_squares, predicted
from mpi4py import MPI
from pretended import own_rows, pretended_complete, whole_statistic
from scaling import PRETENDED, SHARED, WORKERS, network_of, origin, timed_messages
from standin import Watched

from mpi_ustat.kernels.route import blocks_of_a_ring
from mpi_ustat.mpi.launch import cores_of_ranks_here
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

STATISTICS: dict[str, type[SortJob] | type[RingJob]] = {"auc": SortJob, "ring": RingJob}
TOTALS = (10**9, 10**10)  # scores of both classes together
POINTS = 300_000  # of each sample, whose pairs meet in a ring
MOST_RANKS = 10_000
CLOCKS = ("wall", "cpu", "computing")  # of which the last is "cpu" less MPI's calls, in which a rank polls


class Cell(NamedTuple):
    """What is to be timed, so many times; `case` is empty where it only serves the fit or the check."""

    case: str
    job: Complete
    runs: int


def whole_sort(total: int, n_ranks: int) -> SortJob:
    """Return the AUC of so many scores, half of each class."""
    return SortJob((total // 2,) * 2, n_ranks)


def whole_ring(n_ranks: int) -> RingJob:
    """Return the ring of `POINTS`, in as many blocks as there are by default or more, as many on every rank."""
    sizes = (POINTS, POINTS)
    return RingJob(sizes, n_ranks, n_ranks * -(-blocks_of_a_ring(sizes) // n_ranks))


def pretended_cells() -> list[Cell]:
    """Return what one rank of many does its part of."""
    found = [
        Cell("whole", whole_sort(total, p), 3)
        for total, ranks in zip(TOTALS, ((100, 1000, 10_000), (1000, 10_000)), strict=True)
        for p in ranks
    ]
    for p, rows in ((1, 10**6), (1, 4 * 10**6), (2, 10**6), (2, 4 * 10**6), (10, 10**6), (100, 10**5), (1000, 10**4)):
        found.append(Cell("", SortJob((p * rows,) * 2, p), 6))
    found.append(Cell("", SortJob((10**8,) * 2, 10_000), 6))
    for p, n_workers, n, runs in (
        (1, 12, 4000, 2), (1, 48, 4000, 2), (2, 48, 6000, 2), (10, 100, 15_000, 2), (100, 100, 30_000, 2),
        (100, 300, 30_000, 2), (500, 1000, 30_000, 1), (2000, 2000, 100_000, 1),
    ):  # fmt: skip
        found.append(Cell("", RingJob((n, n), p, n_workers), runs))
    return [*found, Cell("whole", whole_ring(1000), 2)]


def measured_cells(n_ranks: int, share: float) -> list[Cell]:
    """Return what is measured on so many ranks, or a share of its rows."""

    def some(number: float) -> int:
        return max(64, round(share * number))

    sorts = [SortJob((some(n), some(m)), n_ranks) for n, m in ((1e6, 1e6), (4e6, 4e6), (1e7, 1e7), (4e6, 1e6))]
    rings = [RingJob((some(n),) * 2, n_ranks, n_workers) for n, n_workers in ((5000, 24), (8000, 48))]
    return [*(Cell("", job, 3) for job in sorts), *(Cell("", job, 2) for job in rings)]


def pretend(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Time the own part of one rank of many, and write its phases."""
    started, cells, found = time.time(), [], []
    for cell in pretended_cells():
        job, seconds = pretended_complete(cell.job.n_ranks // 3, cell.job, cell.runs)
        cells.append(cell._replace(job=job))
        found.append(seconds)
        told = ", ".join(f"{name} {1e3 * value:.1f}" for name, value in found[-1].items())
        print(f"{job}: {1e3 * sum(found[-1].values()):.1f} ms: {told}", flush=True)
    datasets = {}
    for name, these in by_statistic(cells).items():
        seconds = np.array([list(found[i].values()) for i in these])
        datasets |= of_jobs(name, [cells[i] for i in these])
        datasets[f"{name}/own"] = Dataset(seconds, (f"{name} job", f"{name} phase"), "s", "CPU seconds of one rank")
    config = {"network": PRETENDED, "ranks_per_core": 1.0, "machine": machine(), **asdict(Network())}
    save(options.output, ResultFile("complete", config, origin(started, 1), datasets), overwrite=True)


def measure(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Time whole statistics, and write the least seconds, of the clock and of a processor.  Collective."""
    started, cells = time.time(), measured_cells(comm.size, options.share)
    cores = options.cores or cores_of_ranks_here(comm)
    seconds, messages = [], []
    for cell in cells:
        own = own_rows(cell.job, comm.rank)
        if comm.size > 1:
            messages.append(timed_messages(comm))
        runs = [np.max(comm.allgather(timed(comm, own, cell.job, t)), axis=0) for t in range(cell.runs + 1)]
        seconds.append(np.min(runs[1:], axis=0))
    if comm.rank > 0:
        return
    network, datasets = network_of(messages), {}
    for name, these in by_statistic(cells).items():
        datasets |= of_jobs(name, [cells[i] for i in these])
        for k, clock in enumerate(CLOCKS):
            values = np.array([seconds[i][k] for i in these])
            datasets[f"{name}/{clock}"] = Dataset(values, (f"{name} job",), "s", "of the slowest rank, the least run")
    config = {
        "network": SHARED, "ranks_per_core": max(1.0, comm.size / cores), "machine": machine(), **asdict(network),
    }  # fmt: skip
    save(options.output, ResultFile("complete", config, origin(started, comm.size), datasets), overwrite=True)
    for cell, (wall, cpu, _) in zip(cells, seconds, strict=True):
        per_core = f", {sum(cell.job.sizes) / wall / min(comm.size, cores):.3g} scores a second and core"
        print(f"{cell.job}: {wall:.4f} s, {cpu:.4f} of a processor{per_core if isinstance(cell.job, SortJob) else ''}")


def timed(comm: MPI.Comm, own: Sequence[np.ndarray], job: Complete, seed: int) -> list[float]:
    """Return the seconds of this rank, of the clock and of its processor, also without MPI's calls.  Collective."""
    comm.barrier()
    watched, began = Watched(comm), (time.perf_counter(), time.process_time())
    whole_statistic(watched, own, job, seed)
    wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    return [wall, cpu, cpu - watched.seconds]


def by_statistic(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Return which cells are of which statistic."""
    return {
        name: [i for i, cell in enumerate(cells) if isinstance(cell.job, kind)] for name, kind in STATISTICS.items()
    }


def of_jobs(name: str, cells: Sequence[Cell]) -> dict[str, Dataset]:
    """Return what tells jobs of a statistic apart, as datasets."""
    along, jobs = (f"{name} job",), [asdict(cell.job) for cell in cells]
    found = {
        "case": Dataset(np.array([cell.case for cell in cells]), along, "", "empty: for the fit or the check alone")
    }
    for key in jobs[0]:
        dims = (*along, "sample") if key == "sizes" else along
        found[key] = Dataset(np.array([job[key] for job in jobs]), dims, "1")
    return {f"{name}/{key}": dataset for key, dataset in found.items()}


class Timed(NamedTuple):
    """A job of a file, and its seconds: `own` by phase where pretended, else those of `CLOCKS`."""

    case: str
    job: Complete
    config: dict[str, Any]
    own: list[float] | None
    wall: float
    cpu: float
    computing: float


def read(name: str, file: ResultFile) -> list[Timed]:
    """Return the jobs of a statistic in a file that `pretend` or `measure` wrote."""
    prefix = f"{name}/"
    values = {
        key.removeprefix(prefix): each.values.tolist() for key, each in file.datasets.items() if key.startswith(prefix)
    }
    found = []
    for i, case in enumerate(values["case"]):
        row = {key: each[i] for key, each in values.items()}
        own, clocks = row.pop("own", None), [row.pop(clock, np.nan) for clock in CLOCKS]
        options = {key: tuple(value) if key == "sizes" else value for key, value in row.items() if key != "case"}
        found.append(Timed(case, STATISTICS[name](**options), file.config, own, *clocks))
    return found


def fitted(jobs: Sequence[Timed]) -> Fit:
    """Fit the constants to the phases of what was pretended."""
    equations = []
    for each in jobs:
        if each.own is not None:
            counts = each.job.operations().values()
            whole = sum(each.own)
            equations += [Equation(one, taken, whole) for one, taken in zip(counts, each.own, strict=True)]
    return least_squares(jobs[0].job.constants, equations)


def seconds_of(found: Fit, job: Complete, network: Network, ranks_per_core: float = 1.0) -> list[float]:
    """Return the predicted seconds of each phase."""
    seconds = predicted(found.constants, job.operations(), job.traffic(), network, ranks_per_core)
    return [seconds[phase] for phase in job.phases]


def analyse(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Fit the constants, predict what was measured and more, and write all of it."""
    started = time.time()
    files = [load(file) for file in options.files]
    datasets: dict[str, Dataset] = {}
    scales: dict[str, np.ndarray] = {"total": np.array(TOTALS), "phase": np.array(PHASES)}
    errors, fits = {}, {}
    for name, kind in STATISTICS.items():
        jobs = [each for file in files for each in read(name, file)]
        fits[name] = found = fitted(jobs)
        errors[f"{name}_fit_error"] = found.error
        datasets |= predictions(name, jobs, found)
        scales |= {f"{name} phase": np.array(kind.phases), f"{name} constant": np.array(kind.constants)}
    scales["rank"] = ranks = np.rint(np.logspace(1, np.log10(MOST_RANKS), 13)).astype(int)
    scales["ring rank"] = all_ranks = np.append([1, 2, 5], ranks)
    curves = [[seconds_of(fits["auc"], whole_sort(total, p), CLUSTER) for p in ranks.tolist()] for total in TOTALS]
    datasets["auc/curves"] = Dataset(np.array(curves), ("total", "rank", "auc phase"), "s", "complete AUC")
    model = CostModel(*load(options.rounds).datasets["constants"].values.tolist())
    rounds = [[model.predict(Job((total // 2,) * 2, WORKERS, p), CLUSTER) for p in ranks.tolist()] for total in TOTALS]
    values = np.array([[list(each.values()) for each in row] for row in rounds])
    datasets["round/curves"] = Dataset(values, ("total", "rank", "phase"), "s", "prop-swor round, all local pairs")
    ring = [seconds_of(fits["ring"], whole_ring(p), CLUSTER) for p in all_ranks.tolist()]
    datasets["ring/curves"] = Dataset(np.array(ring), ("ring rank", "ring phase"), "s", "mean distance, by a ring")
    config = {"n_workers": WORKERS, "points": POINTS, "columns": whole_ring(1).n_columns, **errors}
    save(options.output, ResultFile("scaling-complete", config, origin(started, 1), datasets, scales), overwrite=True)
    print("| scores | ranks | complete AUC (s) | scores a second and core | a round (s) |\n|---|---|---|---|---|")
    for k, total in enumerate(TOTALS):
        for i, p in enumerate(ranks.tolist()):
            auc, of_round = (float(datasets[f"{name}/curves"].values[k, i].sum()) for name in ("auc", "round"))
            print(f"| {total:.3g} | {p} | {auc:.3g} | {total / auc / p:.2e} | {of_round:.3g} |")
    print("| ranks | ring (s) |\n|---|---|")
    for p, seconds in zip(all_ranks.tolist(), ring, strict=True):
        print(f"| {p} | {sum(seconds):.3g} |")


def predictions(name: str, jobs: Sequence[Timed], found: Fit) -> dict[str, Dataset]:
    """Print and return, as datasets, the constants, and what was measured beside what is predicted."""
    print(f"{name}: root mean square error of a phase {100 * found.error:.1f} % of its job")
    for key, value in found.constants.items():
        print(f"  {key:10s}{1e9 * value:10.2f} ± {1e9 * found.standard_errors[key]:.2f} ns")
    whole, taken, computing = [], [], []
    print(
        "| ranks | N | rows of a sample | computing: predicted (s) | measured | ratio | in all: predicted | measured |"
    )
    print("|---" * 8 + "|")
    for each in jobs:
        config = each.config
        network = Network(config["latency"], config["seconds_per_byte"])
        whole.append(sum(seconds_of(found, each.job, network, config["ranks_per_core"])))
        computing.append(sum(seconds_of(found, each.job, Network())))
        taken.append([each.wall, each.cpu, each.computing] if each.own is None else [np.nan, np.nan, sum(each.own)])
        ranks = f"one of {each.job.n_ranks}" if each.own is not None else f"{each.job.n_ranks}"
        n_blocks = each.job.n_workers if isinstance(each.job, RingJob) else each.job.n_ranks
        sizes = ", ".join(f"{size:.3g}" for size in dict.fromkeys(each.job.sizes))
        clock = f"{whole[-1]:.3g} | {each.wall:.3g}" if each.own is None else "| "
        own = taken[-1][-1]
        said = f"{computing[-1]:.3g} | {own:.3g} | {computing[-1] / own:.2f} | {clock}"
        print(f"| {ranks} | {n_blocks} | {sizes} | {said} |")
    ratios = np.array(computing) / np.array(taken)[:, -1]
    for what, these in (
        ("pretended", [each.own is not None for each in jobs]),
        ("measured", [each.own is None for each in jobs]),
    ):
        print(
            what
            + ": predicted over measured {1:.2f}, from {0:.2f} to {2:.2f}".format(
                *np.percentile(ratios[these], (0, 50, 100))
            )
        )
    along = (f"{name} job",)
    wire = [sum(seconds_of(found, each.job, CLUSTER)[-2:]) for each in jobs]
    datasets = of_jobs(name, [Cell(each.case, each.job, 0) for each in jobs])
    of_all = {
        **{clock: Dataset(np.array(taken)[:, k], along, "s") for k, clock in enumerate(CLOCKS)},
        "predicted": Dataset(np.array(whole), along, "s", "by the clock"),
        "predicted_computing": Dataset(np.array(computing), along, "s"),
        "wire": Dataset(np.array(wire), along, "s", "predicted of the messages on the assumed network"),
        "pretended": Dataset(np.array([each.own is not None for each in jobs]), along),
        "ranks_per_core": Dataset(np.array([each.config["ranks_per_core"] for each in jobs]), along, "1"),
        "constants": Dataset(np.array(list(found.constants.values())), (f"{name} constant",), "s"),
        "standard_errors": Dataset(np.array(list(found.standard_errors.values())), (f"{name} constant",), "s"),
    }
    return datasets | {f"{name}/{key}": each for key, each in of_all.items()}


def main() -> None:
    """Pretend, measure, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pretend", help="time the own part of one rank of many, which aren't there")
    command.add_argument("output", help="an .h5 file; replaced")
    command.set_defaults(run=pretend)
    command = commands.add_parser("measure", help="time whole statistics on the ranks it is started with")
    command.add_argument("output", help="an .h5 file; replaced")
    command.add_argument("--cores", type=int, help="that all ranks share (default: those of this rank's host)")
    command.add_argument("--share", type=float, default=1.0, help="of all rows, for a trial")
    command.set_defaults(run=measure)
    command = commands.add_parser("fit", help="fit the cost model to what was pretended")
    command.add_argument("files", nargs="+")
    command.add_argument("--rounds", required=True, help="result of scaling.py fit")
    command.add_argument("--output", required=True, help="an .h5 file; replaced")
    command.set_defaults(run=analyse)
    options = parser.parse_args()
    options.run(MPI.COMM_WORLD, options)


if __name__ == "__main__":
    main()
