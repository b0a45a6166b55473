"""An exact test that two samples are alike, against its value alone and against permutations of single points.

    mpiexec -n 2 python scripts/bench_tests.py
    mpiexec -n 2 python scripts/bench_tests.py --large 0    # without 2 × 50 000 points

The alternatives run on rank 0 alone, since they hold whole matrices: a loop over permutations of the matrix of
distances, as one writes it, and the tests of dcor and hyppo where they are installed; each once, with fewer
permutations, and the processor's time made that of as many as ours (which is what they are proportional to). Ours are
alternating runs, of which the medians are printed. Of the large samples the test and its value run once each; the
memory is what the test took on top of what was there before it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI
from scipy.spatial.distance import cdist

import mpi_ustat


def by_loop(x: np.ndarray, z: np.ndarray, n_permutations: int) -> float:
    """Return p of the energy distance by permutations of single points, the way one would write it."""
    pooled, n, m = np.concatenate([x, z]), len(x), len(z)
    distances, rng = cdist(pooled, pooled), np.random.default_rng(1)

    def statistic(order: np.ndarray) -> float:
        d = distances[np.ix_(order, order)]
        within = d[:n, :n].sum() / (n * (n - 1)) + d[n:, n:].sum() / (m * (m - 1))
        return 2 * float(d[:n, n:].mean()) - float(within)

    value = statistic(np.arange(n + m))
    return (1 + sum(statistic(rng.permutation(n + m)) >= value for _ in range(n_permutations))) / (n_permutations + 1)


def by_dcor(x: np.ndarray, z: np.ndarray, n_permutations: int) -> float:
    import dcor

    return float(dcor.homogeneity.energy_test(x, z, num_resamples=n_permutations, random_state=1).pvalue)


def by_hyppo(x: np.ndarray, z: np.ndarray, n_permutations: int) -> float:
    from hyppo.ksample import Energy

    return float(Energy().test(x, z, reps=n_permutations, auto=False, random_state=1)[1])


LOOPS: dict[str, tuple[Callable[[np.ndarray, np.ndarray, int], float], int]] = {
    "loop": (by_loop, 99),
    "dcor": (by_dcor, 99),
    "hyppo": (by_hyppo, 19),
}
"""The alternatives, and with how many permutations."""


def two_samples(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two samples that are hardly told apart."""
    generator = np.random.default_rng(1)
    return generator.normal(0.0, 1, (n, d)), generator.normal(0.02, 1, (n, d))


def large(comm: Any, n: int, d: int, n_permutations: int) -> None:
    """Print the test of large samples against its value: time and memory.  Collective."""
    own = tuple(shard(comm, each) for each in two_samples(n, d))
    before = peak_mib(comm)
    test = timed(comm, lambda: mpi_ustat.test(comm, *own, n_permutations=n_permutations, seed=1))
    took = peak_mib(comm) - before
    value = timed(comm, lambda: mpi_ustat.estimate(comm, *own, "energy", complete=True, stderr=False, seed=1))
    if comm.rank == 0:
        print(
            f"2 × {n} points, R = {n_permutations}: test {test:.2f} s, value alone {value:.2f} s ({test / value:.2f})"
        )
        print(f"  {took:.0f} MiB a rank on top of {before:.0f}; a matrix of distances would be {32e-9 * n * n:.0f} GB")


def timed(comm: Any, run: Callable[[], object]) -> float:
    """Return the seconds of the slowest rank.  Collective."""
    comm.barrier()
    start = time.perf_counter()
    run()
    return max(comm.allgather(time.perf_counter() - start))


def main() -> None:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000, help="of each sample")
    parser.add_argument("--coordinates", type=int, default=10)
    parser.add_argument("--permutations", type=int, default=999)
    parser.add_argument("--large", type=int, default=50_000, help="points of each large sample, or 0; R = 9999")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    comm, n, r = MPI.COMM_WORLD, options.points, options.permutations
    x, z = two_samples(n, options.coordinates)
    own = shard(comm, x), shard(comm, z)
    p: dict[str, float] = {}

    def test(name: str, kernel: str = "energy", n_rounds: int | None = None, **of_kernel: Any) -> Callable[[], None]:
        given = {"n_permutations": r, "n_rounds": n_rounds, "kernel_options": of_kernel, "seed": 1}

        def run() -> None:
            p[name] = mpi_ustat.test(comm, *own, kernel, **given).p

        return run

    def value() -> None:
        mpi_ustat.estimate(comm, *own, "energy", complete=True, stderr=False, seed=1)

    contenders = {"value alone": value} | {
        name: test(name, *how, **of_kernel)
        for name, how, of_kernel in (
            ("energy", ("energy",), {}),
            ("energy, T = 8", ("energy", 8), {}),
            ("gaussian", ("mmd",), {"bandwidth": 4.0}),
            ("4 bandwidths", ("mmd",), {"bandwidth": [1.0, 2.0, 4.0, 8.0]}),
        )
    }
    medians = alternate(comm, contenders, options.runs)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, 2 × {n} points of {options.coordinates} coordinates, R = {r}")
    if options.large:
        large(comm, options.large, options.coordinates, 9999)
    for name, (other, fewer) in LOOPS.items():
        if name == "loop" or find_spec(name):

            def run(name: str = name, other: Any = other, fewer: int = fewer) -> None:
                other(x[:50], z[:50], fewer)  # what it imports and compiles is not counted
                start = time.process_time()
                p[name] = other(x, z, fewer)
                medians[f"{name} ({fewer}, scaled)"] = (time.process_time() - start) * r / fewer

            alone(comm, run)
    if comm.rank == 0:
        for name, seconds in medians.items():
            told = f"p = {p[name.split(' (')[0]]:.4f}, " if name.split(" (")[0] in p else ""
            print(f"{name:20s} {seconds:9.3f} s   {told}{seconds / medians['energy']:.2f} times energy")


if __name__ == "__main__":
    main()
