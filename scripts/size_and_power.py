"""How often `mpi_ustat.test` rejects: samples of one law (size), and of two (power, beside labels of single points).

    mpiexec -n 2 python scripts/size_and_power.py size --sets 10000
    mpiexec -n 2 python scripts/size_and_power.py size-by-rounds --sets 2000
    mpiexec -n 2 python scripts/size_and_power.py power --sets 2000
    mpiexec -n 2 python scripts/size_and_power.py power-of-three --sets 500
    python scripts/size_and_power.py quantiles
    mpiexec -n 2 python scripts/size_and_power.py map --sets 400 --output results/tests-map.h5

The map is of what a second buys: the power of tests by N workers and T rounds, and of complete tests of the first so
many points of each sample, with the processor's seconds that sums over pairs of blocks take (the median; labellings and
dealing out cost all tests the same). A file of it is drawn by `mpi-ustat plot`.

Printed: tables in Markdown. Data sets are dealt out to the ranks, each of which tests its own alone; they, and hence
the tables, are the same for every number of ranks. With R = 199 permutations the levels 5 % and 1 % are attained
exactly where nothing ties. An exact binomial test of the size passes up to the limit that is printed in 999 of 1000
tables of so many cells, if the size is the level. The reference of the power is a loop that exchanges the labels of
single points, of the same data sets, with the whole matrix of k in memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy.spatial.distance import cdist
from scipy.stats import binom

import mpi_ustat
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import Dataset, ResultFile, save
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout, lay_out
from mpi_ustat.testing.relabelled import p_value
from mpi_ustat.testing.ring import Ring, lay_ring
from mpi_ustat.testing.test import form_of

R = 199
LEVELS = (0.05, 0.01)
ALONE = mpi_ustat.SerialComm()

Draw = Callable[[np.random.Generator, int], np.ndarray]

LAWS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=(n, 1)),
    "t, 3 degrees of freedom": lambda rng, n: rng.standard_t(3, size=(n, 1)),
    "exponential": lambda rng, n: rng.exponential(size=(n, 1)),
    "four values": lambda rng, n: rng.integers(0, 4, size=(n, 1)).astype(np.float64),
    "normal, 10 dimensions": lambda rng, n: rng.normal(size=(n, 10)),
}
Size = tuple[int, int, int | None, int | None]
SIZES: dict[str, list[Size]] = {
    "size": [(20, 20, None, None), (100, 100, 64, None), (103, 250, 64, None), (64, 1001, 40, None)],
    "size-by-rounds": [(20, 20, None, 2), (100, 100, 33, 3), (206, 451, 65, 8), (40, 301, 33, 5)],
}
"""Points of each sample, workers, rounds."""

OTHERS: dict[str, Draw] = {
    "shift by 0.15": lambda rng, n: rng.normal(0.15, 1.0, size=(n, 2)),
    "scale 1.25": lambda rng, n: rng.normal(0.0, 1.25, size=(n, 2)),
    "1 in 10 shifted by 1.5": lambda rng, n: rng.normal(size=(n, 2)) + 1.5 * (rng.random((n, 1)) < 0.1),
}
KERNELS: dict[str, dict[str, float]] = {"energy": {}, "mmd": {"bandwidth": 1.0}}
N_BLOCKS = (32, 64, None)
N, M = 256, 256

THREE = [(100, 0.0), (100, 0.0), (150, 0.2)]
"""Points and means of three normal samples of 2 coordinates."""

NEARER: dict[str, Draw] = {
    "shift by 0.075": lambda rng, n: rng.normal(0.075, 1.0, size=(n, 2)),
    "scale 1.1": lambda rng, n: rng.normal(0.0, 1.1, size=(n, 2)),
}
MAPPED = 2048
FEWER = [MAPPED, 1448, 1024, 724, 512, 362]
ROUNDS = {33: (1, 2, 4, 8), 65: (1, 2, 4, 8, 16), 129: (4, 16)}
"""T for each N of the map."""


def p_of(
    x: np.ndarray,
    z: np.ndarray,
    seed: int,
    kernel: str = "energy",
    n_blocks: int | None = None,
    n_rounds: int | None = None,
) -> float:
    """Return the p-value of the test by blocks."""
    options = {"kernel_options": KERNELS[kernel], "n_workers": n_blocks, "n_rounds": n_rounds, "seed": seed}
    return mpi_ustat.test(ALONE, x, z, kernel, n_permutations=R, **options).p


def p_of_points(x: np.ndarray, z: np.ndarray, rng: np.random.Generator, kernel: str) -> float:
    """Return the p-value of the test that exchanges the labels of single points."""
    pooled, n, m = np.concatenate([x, z]), len(x), len(z)
    k = -cdist(pooled, pooled) if kernel == "energy" else np.exp(-0.5 * cdist(pooled, pooled, "sqeuclidean"))
    np.fill_diagonal(k, 0.0)
    labels = np.array([np.arange(n + m) < n] + [rng.permutation(n + m) < n for _ in range(R)], dtype=np.float64)
    inside, all_of_x = np.einsum("ij,ij->i", labels @ k, labels), labels @ k.sum(axis=1)
    outside = k.sum() - 2 * all_of_x + inside
    values = inside / (n * (n - 1)) + outside / (m * (m - 1)) - 2 * (all_of_x - inside) / (n * m)
    return float(np.mean(values >= values[0] - 1e-12))


def shared(comm: Any, n_sets: int, p_values: Callable[[int], list[float]]) -> np.ndarray:
    """Return the p-values of all data sets, (sets, columns), each found on one rank.  Collective."""
    own = [(i, p_values(i)) for i in range(comm.rank, n_sets, comm.size)]
    found = sorted(pair for of_rank in comm.allgather(own) for pair in of_rank)
    return np.array([p for _, p in found])


def named(size: Size) -> str:
    """Return the head of a column."""
    n, m, workers, rounds = size
    by_rounds = "" if rounds is None else f", T = {rounds}"
    word = "blocks" if rounds is None else "workers"
    return f"{n} + {m}, {'default' if workers is None else f'{workers} {word}'}{by_rounds}"


def table_of_sizes(comm: Any, n_sets: int, table: str) -> None:
    """Print how often samples of one law are told apart."""
    sizes = SIZES[table]
    n_cells = len(LAWS) * len(sizes)
    limits = [int(binom.ppf(1 - 0.001 / n_cells, n_sets, level)) / n_sets for level in LEVELS]
    head = " | ".join(map(named, sizes))
    say(comm, f"| law | {head} |\n|---{'|---' * len(sizes)}|")
    for a, (law, draw) in enumerate(LAWS.items()):
        cells = []
        for b in range(len(sizes)):

            def of_set(i: int, draw: Draw = draw, a: int = a, b: int = b) -> list[float]:
                n, m, blocks, rounds = sizes[b]
                rng = np.random.default_rng([a, b, i])
                return [p_of(draw(rng, n), draw(rng, m), i, n_blocks=blocks, n_rounds=rounds)]

            p = shared(comm, n_sets, of_set)
            rates = [float(np.mean(p <= level)) for level in LEVELS]
            above = any(rate > limit for rate, limit in zip(rates, limits, strict=True))
            cells.append(", ".join(f"{100 * rate:.2f}" for rate in rates) + " above!" * above)
        say(comm, f"| {law} | {' | '.join(cells)} |")
    told = ", ".join(f"{100 * limit:.2f}" for limit in limits)
    say(comm, f"\n% at the levels of 5 and 1 %, {n_sets} data sets a cell; limits {told}")


def table_of_powers(comm: Any, n_sets: int) -> None:
    """Print how often samples of two laws are told apart."""
    head = " | ".join("default" if blocks is None else f"{blocks} blocks" for blocks in N_BLOCKS)
    say(comm, f"| kernel | alternative | single points | {head} |\n|---|---|---{'|---' * len(N_BLOCKS)}|")
    for a, kernel in enumerate(KERNELS):
        for b, (name, draw) in enumerate(OTHERS.items()):

            def of_set(i: int, kernel: str = kernel, draw: Draw = draw, a: int = a, b: int = b) -> list[float]:
                rng = np.random.default_rng([100 + a, b, i])
                x, z = rng.normal(size=(N, 2)), draw(rng, M)
                return [p_of_points(x, z, rng, kernel), *(p_of(x, z, i, kernel, blocks) for blocks in N_BLOCKS)]

            rejected = shared(comm, n_sets, of_set) <= LEVELS[0]
            apart = rejected.astype(float) - rejected[:, :1]
            cells = [f"{100 * rejected[:, 0].mean():.1f}"]
            for j in range(1, rejected.shape[1]):
                stderr = apart[:, j].std() / np.sqrt(n_sets)
                cells.append(
                    f"{100 * rejected[:, j].mean():.1f} ({100 * apart[:, j].mean():+.1f} ± {100 * stderr:.1f})"
                )
            say(comm, f"| {kernel} | {name} | {' | '.join(cells)} |")
    say(comm, f"\n% at the level of 5 %, {n_sets} data sets of {N} + {M} points of 2 coordinates a row")


def p_of_three(samples: list[np.ndarray], rng: np.random.Generator) -> float:
    """Return the p-value of the energy statistic of samples by labels of single points, from its definition."""
    pooled, sizes = np.concatenate(samples), np.array(list(map(len, samples)))
    distances, own = cdist(pooled, pooled), np.repeat(np.eye(len(sizes)), sizes, axis=0)
    values = []
    for order in [np.arange(len(pooled)), *(rng.permutation(len(pooled)) for _ in range(R))]:
        sums = own[order].T @ distances @ own[order]
        within = np.diag(sums) / (sizes * (sizes - 1))
        every = 2 * sums / np.outer(sizes, sizes) - within - within[:, None]
        values.append((np.triu(np.outer(sizes, sizes) * every, 1)).sum() / (2 * len(pooled)))
    return float(np.mean(np.array(values) >= values[0] - 1e-12))


def table_of_three(comm: Any, n_sets: int) -> None:
    """Print how often three samples, of which one is of another law, are told apart."""

    def of_set(i: int) -> list[float]:
        rng = np.random.default_rng([300, i])
        samples = [rng.normal(shift, 1.0, size=(n, 2)) for n, shift in THREE]
        test = partial(mpi_ustat.test_samples, ALONE, samples, n_permutations=R, seed=i)
        return [p_of_three(samples, rng), test(n_workers=48).p, test().p]

    rejected = (shared(comm, n_sets, of_set) <= LEVELS[0]).astype(float)
    apart = rejected - rejected[:, :1]
    cells = [
        f"{100 * rate:.1f} ({100 * more:+.1f} ± {100 * stderr:.1f})"
        for rate, more, stderr in np.transpose(
            [rejected.mean(axis=0), apart.mean(axis=0), apart.std(axis=0) / n_sets**0.5]
        )
    ]
    say(comm, "| samples | single points | 48 blocks | default |\n|---|---|---|---|")
    say(comm, f"| {', '.join(f'{n} at {shift:g}' for n, shift in THREE)} | {' | '.join(cells)} |")
    say(comm, f"\n% at the level of 5 %, {n_sets} data sets")


def p_and_seconds(layout: Layout, x: np.ndarray, z: np.ndarray, seed: int) -> tuple[float, float]:
    """Return the p-value of the test over this layout, and the processor's seconds of its sums."""
    kernel, streams = EnergyDistance(), Streams(seed)
    points = layout.arranged((x, z), streams)
    start = time.process_time()
    sums = block_sums(ALONE, points, layout, [kernel])[0]
    seconds = time.process_time() - start
    form = form_of(sums, layout, kernel.sign)
    others = form.values(form.drawn(streams, range(R)))
    return p_value(float(form.values(form.own)[0]), others, form.tolerance, exact=False), seconds


def designs() -> list[tuple[int, Layout]]:
    """Return how many points of each sample are tested, and how."""
    complete = [(points, lay_out(points, points)) for points in FEWER]
    return complete + [(MAPPED, lay_ring(MAPPED, MAPPED, t, n)) for n, every in ROUNDS.items() for t in every]


def map_of_tests(comm: Any, n_sets: int, output: str | None) -> None:
    """Print, and write, how often samples of two laws are told apart by tests of several prices."""
    started, every, rejected, seconds = time.time(), designs(), [], []
    for b, (name, draw) in enumerate(NEARER.items()):

        def of_set(i: int, draw: Draw = draw, b: int = b) -> list[float]:
            rng = np.random.default_rng([200, b, i])
            x, z = rng.normal(size=(MAPPED, 2)), draw(rng, MAPPED)
            found = [p_and_seconds(layout, x[:points], z[:points], i) for points, layout in every]
            return [each for pair in found for each in pair]

        found = shared(comm, n_sets, of_set)
        rejected.append((found[:, 0::2] <= LEVELS[0]).mean(axis=0))
        seconds.append(np.median(found[:, 1::2], axis=0))
        say(comm, f"{name}: done")
    power, price = np.array(rejected), np.median(seconds, axis=0)
    say(comm, f"| test | pairs | ms | {' | '.join(NEARER)} |\n|---|---|---{'|---' * len(NEARER)}|")
    for j, (points, layout) in enumerate(every):
        what = (
            f"N = {layout.n_workers}, T = {len(layout.offsets)}" if isinstance(layout, Ring) else f"{points} + {points}"
        )
        told = " | ".join(f"{100 * each:.1f}" for each in power[:, j])
        say(comm, f"| {what} | {layout.n_pairs} | {1000 * price[j]:.2f} | {told} |")
    say(
        comm,
        f"\n% at the level of 5 %, {n_sets} data sets a row, {MAPPED} + {MAPPED} points where no other number is told",
    )
    if comm.rank or output is None:
        return
    rings = [layout if isinstance(layout, Ring) else None for _, layout in every]
    of = ("design",)
    datasets = {
        "points": Dataset(np.array([points for points, _ in every]), of, "points", "of each sample that are tested"),
        "n_workers": Dataset(
            np.array([0 if ring is None else ring.n_workers for ring in rings]), of, "", "0: all pairs"
        ),
        "n_rounds": Dataset(
            np.array([0 if ring is None else len(ring.offsets) for ring in rings]), of, "", "0: all pairs"
        ),
        "n_pairs": Dataset(np.array([layout.n_pairs for _, layout in every]), of, "", "pairs of points"),
        "seconds": Dataset(price, of, "s", "of a processor, of the sums over pairs of blocks; the median"),
        "power": Dataset(power, ("alternative", "design"), "1", "share of data sets that are told apart"),
    }
    config = {
        "alternatives": list(NEARER),
        "n_sets": n_sets,
        "n_permutations": R,
        "level": LEVELS[0],
        "kernel": "energy",
    }
    config |= {"n_points": MAPPED, "d": 2}
    origin = provenance(
        sys.argv, started=started, wall_seconds=time.time() - started, mpi_library=MPI.Get_library_version(),
        numbers={"n_ranks": comm.size, "n_workers": comm.size},
    )  # fmt: skip
    scales = {"design": np.arange(len(every)), "alternative": np.arange(len(NEARER))}
    save(output, ResultFile("tests-map", config, origin, datasets, scales), overwrite=True)


def table_of_quantiles() -> None:
    """Print upper quantiles of relabelled values, in standard deviations, of one data set: normal's are 1.64, 2.33."""
    rng, kernel, n = np.random.default_rng(1), EnergyDistance(), MAPPED // 2
    x, z = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    layouts: dict[str, Layout] = {"all pairs": lay_out(n, n)}
    for workers, rounds in ((33, 4), (33, 8), (65, 16), (129, 16)):
        ring = lay_ring(n, n, rounds, workers)
        name = f"N = {workers}, T = {rounds}"
        layouts |= {name: ring, f"{name}, consecutive": replace(ring, offsets=tuple(range(1, rounds + 1)))}
    say(ALONE, "| who meets | 95 % | 99 % | above 2.33 (%) |\n|---|---|---|---|")
    for name, layout in layouts.items():
        streams = Streams(3)
        sums = block_sums(ALONE, layout.arranged((x, z), streams), layout, [kernel])[0]
        form = form_of(sums, layout, kernel.sign)
        values = np.concatenate([form.values(form.drawn(streams, range(i, i + 1000))) for i in range(0, 10_000, 1000)])
        values = (values - values.mean()) / values.std()
        low, high = np.quantile(values, [0.95, 0.99])
        say(ALONE, f"| {name} | {low:.2f} | {high:.2f} | {100 * np.mean(values > 2.326):.1f} |")


def say(comm: Any, text: str) -> None:
    """Print on rank 0."""
    if comm.rank == 0:
        print(text, flush=True)


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*SIZES, "power", "power-of-three", "map", "quantiles"])
    parser.add_argument("--sets", type=int, default=10_000, help="data sets a cell")
    parser.add_argument("--output", help="of the map: an .h5 file; replaced")
    options = parser.parse_args()
    if options.table == "map":
        map_of_tests(MPI.COMM_WORLD, options.sets, options.output)
    elif options.table == "quantiles":
        table_of_quantiles()
    elif options.table in ("power", "power-of-three"):
        {"power": table_of_powers, "power-of-three": table_of_three}[options.table](MPI.COMM_WORLD, options.sets)
    else:
        table_of_sizes(MPI.COMM_WORLD, options.sets, options.table)


if __name__ == "__main__":
    main()
