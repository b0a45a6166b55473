"""Seconds of a prop-swor round of the AUC on 1, 2, 4 ranks, and what the cost model makes of them.

    mpiexec -n 2 python scripts/scaling.py measure "shared memory" results/scaling-shared-2.h5
    python scripts/scaling.py fit results/scaling-*-?.h5 --output results/scaling.h5

`measure` times rounds, whole and by phases: of a strong scaling (the same samples on any number of ranks), of a weak
one (as many rows on every rank, a worker a rank), and of other sizes, workers and pairs, to tell the constants apart.
`fit` fits the constants of the processor to the rounds over shared memory that had a core for every rank, predicts all
rounds that were measured, and rounds on up to 10 000 ranks. `scripts/scaling.sh` does it all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from _bench import machine
from costmodel import CONSTANTS, PHASES, CostModel, Job, TimedRound, fit
from costs import CLUSTER, Network
from mpi4py import MPI
from pretended import pretended

from mpi_ustat.app.environment_checks import LARGE, SMALL, seconds_of_message
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.mpi.launch import cores_of_ranks_here
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Dealt, Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

STRONG, WEAK, LARGE_STRONG = 10**7, 10**6, 10**9  # rows of each of two samples; WEAK: on every rank
WORKERS = 10_000  # of the strong scaling: as many as there are ranks at most
PAIRS = 1000
SHARED = "shared memory"
PRETENDED = "pretended ranks"
MEASURED = ("draw", "exchange", "evaluate", "reduce", "total")


class Cell(NamedTuple):
    """A round to be measured; `case` is strong, weak, or nothing for those that only serve the fit."""

    case: str
    job: Job


def cells(n_ranks: int, share: float = 1.0) -> list[Cell]:
    """Return the rounds to be measured on so many ranks, or rounds of a share of their rows and workers."""

    def some(number: float) -> int:
        return max(n_ranks, round(share * number))

    def both(case: str, sizes: tuple[int, int], n_workers: int, pairs: int = PAIRS) -> Iterator[Cell]:
        for n_pairs in (None, pairs):
            yield Cell(case, Job(sizes, n_workers, n_ranks, n_pairs))

    found = [*both("strong", (some(STRONG),) * 2, some(WORKERS))]
    found += both("weak", (n_ranks * some(WEAK),) * 2, n_ranks)
    for sizes in ((4e6, 4e6), (1e6, 1e6), (2e6, 2e5)):
        for n_workers in (100, 1000, 10_000):
            # Workers with few pairs and with many: else a pair could not be told from the rest of their work.
            pairs = 10 * PAIRS if n_workers < 10_000 else PAIRS // 10
            found += both("", (some(sizes[0]), some(sizes[1])), some(n_workers), pairs)
    # So many workers that rows are shuffled without keys.
    found += both("", (some(4e6),) * 2, some(20_000), PAIRS // 10)
    return found


class Round:
    """Runs and times rounds of one cell.  Collective."""

    def __init__(self, comm: MPI.Comm, samples: Sequence[np.ndarray], job: Job) -> None:
        own = [samples[k][: np.diff(block_bounds(size, comm.size))[comm.rank]] for k, size in enumerate(job.sizes)]
        options = {"n_workers": job.n_workers, "n_pairs": job.n_pairs, "shuffle": "matrix", "seed": 1}
        self.comm, self.estimation = comm, Estimation(set_up(comm, own, EstimateConfig(**options)))
        self.partition = Partition(SCHEMES["prop-swor"], job.sizes, job.n_workers, Streams(1), shuffle="matrix")

    def seconds(self, t: int) -> list[float]:
        """Return the seconds of round t in all of `MEASURED`."""
        clock = self.estimation.clock.seconds
        clock.clear()
        self.comm.barrier()
        began = time.perf_counter()
        self.estimation.step()
        clock["total"] = time.perf_counter() - began
        self.comm.barrier()
        began = time.perf_counter()
        for exchange, blocks in zip(self.estimation.problem.exchanges, self.partition.round(t), strict=True):
            assert isinstance(blocks, Dealt)
            blocks.workers_of(exchange.first_row, exchange.first_row + len(exchange.rows))
        clock["draw"] = time.perf_counter() - began
        everyone = self.comm.allgather([clock[name] for name in MEASURED])
        # Ranks that come early to the reduction wait there for the last one, whose time it is.
        by_name = zip(MEASURED, np.transpose(everyone).tolist(), strict=True)
        return [min(each) if name == "reduce" else max(each) for name, each in by_name]


def measure(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Time all kinds of rounds, several of each, and write medians.  Collective."""
    started = time.time()
    cores = options.cores or cores_of_ranks_here(comm)
    jobs = cells(comm.size, options.share)
    longest = max(-(-size // comm.size) for _, job in jobs for size in job.sizes)
    samples = [np.random.default_rng([k, comm.rank]).normal(size=longest) for k in range(2)]
    seconds, shares, messages = [], [], []
    for _, job in jobs:
        rounds = Round(comm, samples, job)
        # The first round fills memory that the next ones find ready, as in any run of several rounds; rounds of other
        # sizes in between would have it filled again.
        rounds.seconds(0)
        began = np.array([time.process_time(), time.perf_counter()])
        seconds.append([rounds.seconds(t) for t in range(1, options.runs + 1)])
        computed, took = np.array([time.process_time(), time.perf_counter()]) - began
        shares.append(min(comm.allgather(computed / took)))
        if comm.size > 1:
            messages.append(timed_messages(comm))
    if comm.rank > 0:
        return
    network = network_of(messages)
    medians = np.median(seconds, axis=1)
    datasets = {name: Dataset(medians[:, k], ("round",), "s") for k, name in enumerate(MEASURED)}
    datasets["runs/total"] = Dataset(np.array(seconds)[:, :, MEASURED.index("total")], ("round", "run"), "s")
    undisturbed = "1 where no other process took the core of a rank, which computes or polls"
    datasets["core_share"] = Dataset(np.array(shares), ("round",), "1", undisturbed)
    datasets |= of_jobs([cell.case for cell in jobs], [cell.job for cell in jobs])
    config = {
        "network": options.network, "latency": network.latency, "seconds_per_byte": network.seconds_per_byte,
        "ranks_per_core": max(1.0, comm.size / cores), "machine": machine(),
    }  # fmt: skip
    save(options.output, ResultFile("rounds", config, origin(started, comm.size), datasets), overwrite=True)
    print(
        f"{options.network}, {comm.size} rank(s), {cores} core(s): {time.time() - started:.0f} s; each rank had "
        f"{100 * np.median(shares):.0f} % of a core, in one kind of round {100 * min(shares):.0f} %"
    )
    if comm.size > 1:
        print(f"  {1e6 * network.latency:.1f} µs a message, {1e-6 / network.seconds_per_byte:.0f} MB/s")


def timed_messages(comm: MPI.Comm) -> list[float]:
    """Return the seconds of a short message and of a long one to the next rank.  Collective."""
    return [seconds_of_message(comm, *message) for message in (SMALL, LARGE)]


def network_of(messages: Sequence[Sequence[float]]) -> Network:
    """Return the network of such messages, of which a rank alone has none."""
    if not messages:
        return Network()
    latency, of_large = np.median(messages, axis=0).tolist()
    return Network(latency, (of_large - latency) / LARGE[0])


def pretend(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Time the own part of one rank of many, and write it in the form of `measure`."""
    started, runs = time.time(), options.runs
    cases = []
    for p in options.ranks:
        cases.append(Cell("weak", Job((p * WEAK,) * 2, p, p)))
        cases.append(Cell("weak", Job((p * WEAK,) * 2, p, p, PAIRS)))
        if p >= 100:
            cases.append(Cell("large", Job((LARGE_STRONG,) * 2, WORKERS, p)))
    more = [(100, 10**8, 100), (10, 10**7, 1000), (4, 10**7, 10_000), (100, 10**8, 20_000), (2, 10**7, 100)]
    for p, size, n_workers in more:  # they tell the constants apart
        cases += [Cell("", Job((size,) * 2, n_workers, p, n_pairs)) for n_pairs in (None, 10 * PAIRS)]
    for p, n_workers in ((2, 1000), (2, 4000)):
        cases += [Cell("", Job((2 * 10**6, 2 * 10**5), n_workers, p, n_pairs)) for n_pairs in (None, PAIRS)]
    found = []
    for cell in cases:
        found.append(pretended(cell.job.n_ranks // 3, cell.job, runs))
        job = cell.job
        told = ", ".join(f"{name} {1e3 * value:.1f}" for name, value in zip(MEASURED, found[-1], strict=True))
        of_job = f"{job.sizes[0]:.0e} N = {job.n_workers} P = {job.n_ranks} B = {job.n_pairs}"
        print(f"{cell.case:6s} {of_job}: {told} ms", flush=True)
    datasets = {name: Dataset(np.array(found)[:, k], ("round",), "s") for k, name in enumerate(MEASURED)}
    datasets |= of_jobs([cell.case for cell in cases], [cell.job for cell in cases])
    config = {
        "network": PRETENDED, "latency": 0.0, "seconds_per_byte": 0.0, "ranks_per_core": 1.0, "machine": machine(),
    }  # fmt: skip
    save(options.output, ResultFile("rounds", config, origin(started, 1), datasets), overwrite=True)


def origin(started: float, n_ranks: int) -> dict[str, str | int | float]:
    """Return where a result comes from."""
    library = MPI.Get_library_version()
    seconds = time.time() - started
    numbers = {"n_ranks": n_ranks, "seed": 1}
    return provenance(sys.argv, started=started, wall_seconds=seconds, mpi_library=library, numbers=numbers)


def of_jobs(cases: Sequence[str], jobs: Sequence[Job]) -> dict[str, Dataset]:
    """Return what tells rounds apart, as datasets."""
    return {
        "case": Dataset(np.array(cases), ("round",), description="strong or weak scaling; empty: for the fit alone"),
        "sizes": Dataset(np.array([job.sizes for job in jobs]), ("round", "sample"), "rows"),
        "n_workers": Dataset(np.array([job.n_workers for job in jobs]), ("round",), "1"),
        "n_pairs": Dataset(np.array([job.n_pairs or 0 for job in jobs]), ("round",), "1", "0: all local pairs"),
        "n_ranks": Dataset(np.array([job.n_ranks for job in jobs]), ("round",), "1"),
    }


def read(result: ResultFile) -> list[tuple[str, TimedRound]]:
    """Return case and seconds of each round in a file that `measure` wrote."""
    values = {name: dataset.values.tolist() for name, dataset in result.datasets.items()}
    network = Network(result.config["latency"], result.config["seconds_per_byte"])
    names = ("case", "sizes", "n_workers", "n_ranks", "n_pairs", *MEASURED)
    return [
        (case, TimedRound(Job(tuple(sizes), n_workers, n_ranks, n_pairs or None), network, *seconds))
        for case, sizes, n_workers, n_ranks, n_pairs, *seconds in zip(*(values[name] for name in names), strict=True)
    ]


def analyse(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Fit the constants, predict the rounds that were measured and others, and write all of it."""
    started = time.time()
    files = [load(file) for file in options.files]
    rounds = [(file.config, case, each) for file in files for case, each in read(file)]
    fitted = np.array([is_fitted(config) for config, *_ in rounds])
    found = fit([each for (*_, each), chosen in zip(rounds, fitted, strict=True) if chosen])
    model = CostModel(**found.constants)
    predicted = [
        model.predict(each.job, each.network, ranks_per_core=config["ranks_per_core"]) for config, _, each in rounds
    ]
    total = np.array([sum(each.values()) for each in predicted])
    measured = np.array([each.total for *_, each in rounds])
    datasets = of_jobs([case for _, case, _ in rounds], [each.job for *_, each in rounds])
    datasets |= {
        "network": Dataset(np.array([config["network"] for config, *_ in rounds]), ("round",)),
        "ranks_per_core": Dataset(np.array([config["ranks_per_core"] for config, *_ in rounds]), ("round",), "1"),
        "fitted": Dataset(fitted, ("round",), description="whether the constants were fitted to this round"),
        "measured": Dataset(measured, ("round",), "s"),
        "predicted": Dataset(total, ("round",), "s"),
        "predicted_phases": Dataset(np.array([list(each.values()) for each in predicted]), ("round", "phase"), "s"),
        "constants": Dataset(np.array([found.constants[name] for name in CONSTANTS]), ("constant",), "s"),
        "standard_errors": Dataset(np.array([found.standard_errors[name] for name in CONSTANTS]), ("constant",), "s"),
    }
    before = None if options.before is None else load(options.before)
    known = networks(files) if before is None else networks_of(before)
    grid = np.unique(np.concatenate([[1, 2, 4], np.rint(np.logspace(1, np.log10(WORKERS), 13))]).astype(int))
    datasets["latency"] = Dataset(np.array([each.latency for each in known.values()]), ("networks",), "s")
    per_byte = np.array([each.seconds_per_byte for each in known.values()])
    datasets["seconds_per_byte"] = Dataset(per_byte, ("networks",), "s/byte")
    for case, size, n_workers in (("strong", STRONG, WORKERS), ("large", LARGE_STRONG, WORKERS), ("weak", WEAK, 0)):
        curves = [[curve(model, size, n_workers, p, each) for p in grid.tolist()] for each in known.values()]
        datasets[f"curves/{case}"] = Dataset(np.array(curves), ("networks", "rank", "phase"), "s")
        if before is not None:
            seconds = before.datasets[f"curves/{case}"].values.sum(axis=2)
            datasets[f"before/{case}"] = Dataset(seconds, ("networks", "rank"), "s", "of an earlier version")
    scales = {
        "phase": np.array(PHASES), "constant": np.array(CONSTANTS), "networks": np.array(list(known)), "rank": grid,
    }  # fmt: skip
    config = {"strong": STRONG, "large": LARGE_STRONG, "weak": WEAK, "n_workers": WORKERS, "fit_error": found.error}
    save(options.output, ResultFile("scaling", config, origin(started, 1), datasets, scales), overwrite=True)
    print(f"constants (root mean square error of a phase {100 * found.error:.1f} % of its round):")
    for name in CONSTANTS:
        print(f"  {name:16s}{1e9 * found.constants[name]:10.2f} ± {1e9 * found.standard_errors[name]:.2f} ns")
    for name, network in known.items():
        print(f"  {name}: {1e6 * network.latency:.1f} µs, {1e-6 / network.seconds_per_byte:.0f} MB/s")
    for (config, case, each), seconds in zip(rounds, total.tolist(), strict=True):
        job = each.job
        print(
            f"{config['network']:24s} P = {job.n_ranks}  {case:6s} {job.sizes!s:20s} N = {job.n_workers:5d}  "
            f"B = {job.n_pairs or 'all':5}  predicted {seconds:6.3f} s, measured {each.total:6.3f}, "
            f"ratio {seconds / each.total:.2f}"
        )
    for name in dict.fromkeys(config["network"] for config, *_ in rounds):
        for p in sorted({each.job.n_ranks for *_, each in rounds}):
            of_group = [name == config["network"] and p == each.job.n_ranks for config, _, each in rounds]
            ratios = (total / measured)[of_group]
            if len(ratios):
                low, middle, high = np.percentile(ratios, (0, 50, 100))
                print(f"{name}, P = {p}: predicted / measured {middle:.2f}, from {low:.2f} to {high:.2f}")


def networks_of(result: ResultFile) -> dict[str, Network]:
    """Return the networks of an earlier result of `analyse`, whose messages are the same."""
    numbers = (result.datasets[name].values.tolist() for name in ("latency", "seconds_per_byte"))
    names = result.scales["networks"].astype(str).tolist()
    return {name: Network(*each) for name, *each in zip(names, *numbers, strict=True)}


def is_fitted(config: dict[str, float | str]) -> bool:
    """Tell whether the rounds of a file are among those fitted: over shared memory or none, a core for every rank."""
    return config["network"] in (SHARED, PRETENDED) and config["ranks_per_core"] == 1


def networks(files: Sequence[ResultFile]) -> dict[str, Network]:
    """Return each network as its fewest ranks have measured it, which share cores least; and the one assumed."""
    found: dict[str, tuple[int, Network]] = {}
    for file in files:
        n_ranks, name = int(file.provenance["n_ranks"]), str(file.config["network"])
        if n_ranks > 1 and n_ranks < found.get(name, (n_ranks + 1,))[0]:
            found[name] = n_ranks, Network(file.config["latency"], file.config["seconds_per_byte"])
    return {name: network for name, (_, network) in found.items()} | {"assumed: 2 µs, 100 Gbit/s": CLUSTER}


def curve(model: CostModel, size: int, n_workers: int, n_ranks: int, network: Network) -> list[float]:
    """Return the predicted seconds of each phase; without a number of workers, of a weak scaling with P of them."""
    sizes = (size, size) if n_workers else (size * n_ranks,) * 2
    return list(model.predict(Job(sizes, n_workers or n_ranks, n_ranks), network).values())


def main() -> None:
    """Measure, or fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure", help="time rounds on the ranks it is started with")
    command.add_argument("network", help=f"what the ranks send over, in words; '{SHARED}' is what is fitted")
    command.add_argument("output", help="an .h5 file; replaced")
    command.add_argument("--runs", type=int, default=3)
    command.add_argument("--cores", type=int, help="that all ranks share (default: those of this rank's host)")
    command.add_argument("--share", type=float, default=1.0, help="of all rows and workers, for a trial")
    command.set_defaults(run=measure)
    command = commands.add_parser("pretend", help="time the own part of one rank of many, which aren't there")
    command.add_argument("output", help="an .h5 file; replaced")
    command.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 10, 100, 1000, 10_000], help="numbers of ranks")
    command.add_argument("--runs", type=int, default=5)
    command.set_defaults(run=pretend)
    command = commands.add_parser("fit", help="fit the cost model to what was measured")
    command.add_argument("files", nargs="+")
    command.add_argument("--output", required=True, help="an .h5 file; replaced")
    command.add_argument("--before", help="result of fit of an earlier version: its networks, and its curves in grey")
    command.set_defaults(run=analyse)
    options = parser.parse_args()
    options.run(MPI.COMM_WORLD, options)


if __name__ == "__main__":
    main()
