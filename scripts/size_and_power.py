"""How often `mpi_ustat.test` rejects: samples of one law (size), and of two (power, beside labels of single points).

    mpiexec -n 2 python scripts/size_and_power.py size --sets 10000
    mpiexec -n 2 python scripts/size_and_power.py power --sets 2000

Printed: tables in Markdown. Data sets are dealt out to the ranks, each of which tests its own alone; they, and hence
the tables, are the same for every number of ranks. With R = 199 permutations the levels 5 % and 1 % are attained
exactly where nothing ties. An exact binomial test of the size passes up to the limit that is printed in 999 of 1000
tables of so many cells, if the size is the level. The reference of the power is a loop that exchanges the labels of
single points, of the same data sets, with the whole matrix of k in memory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy.spatial.distance import cdist
from scipy.stats import binom

import mpi_ustat

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
SIZES: list[tuple[int, int, int | None]] = [(20, 20, None), (100, 100, 64), (103, 250, 64), (64, 1001, 40)]

OTHERS: dict[str, Draw] = {
    "shift by 0.15": lambda rng, n: rng.normal(0.15, 1.0, size=(n, 2)),
    "scale 1.25": lambda rng, n: rng.normal(0.0, 1.25, size=(n, 2)),
    "1 in 10 shifted by 1.5": lambda rng, n: rng.normal(size=(n, 2)) + 1.5 * (rng.random((n, 1)) < 0.1),
}
KERNELS: dict[str, dict[str, float]] = {"energy": {}, "mmd": {"bandwidth": 1.0}}
N_BLOCKS = (32, 64, None)
N, M = 256, 256


def p_of(x: np.ndarray, z: np.ndarray, seed: int, kernel: str = "energy", n_blocks: int | None = None) -> float:
    """Return the p-value of the test by blocks."""
    options = {"kernel_options": KERNELS[kernel], "n_workers": n_blocks, "seed": seed}
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


def table_of_sizes(comm: Any, n_sets: int) -> None:
    """Print how often samples of one law are told apart."""
    n_cells = len(LAWS) * len(SIZES)
    limits = [int(binom.ppf(1 - 0.001 / n_cells, n_sets, level)) / n_sets for level in LEVELS]
    head = " | ".join(f"{n} + {m}, {'default' if blocks is None else f'{blocks} blocks'}" for n, m, blocks in SIZES)
    say(comm, f"| law | {head} |\n|---{'|---' * len(SIZES)}|")
    for a, (law, draw) in enumerate(LAWS.items()):
        cells = []
        for b, (n, m, blocks) in enumerate(SIZES):

            def of_set(i: int, draw: Draw = draw, a: int = a, b: int = b) -> list[float]:
                n, m, blocks = SIZES[b]
                rng = np.random.default_rng([a, b, i])
                return [p_of(draw(rng, n), draw(rng, m), i, n_blocks=blocks)]

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


def say(comm: Any, text: str) -> None:
    """Print on rank 0."""
    if comm.rank == 0:
        print(text, flush=True)


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["size", "power"])
    parser.add_argument("--sets", type=int, default=10_000, help="data sets a cell")
    options = parser.parse_args()
    {"size": table_of_sizes, "power": table_of_powers}[options.table](MPI.COMM_WORLD, options.sets)


if __name__ == "__main__":
    main()
