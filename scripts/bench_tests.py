"""An exact test that two samples are alike, against its value alone and against permutations of single points.

    mpiexec -n 2 python scripts/bench_tests.py
    mpiexec -n 2 python scripts/bench_tests.py --points 20000 --permutations 9999

The alternatives run on rank 0 alone, up to --most points of each sample, since they hold whole matrices: a loop over
permutations of the matrix of distances, as one writes it, and the tests of dcor and hyppo where they are installed.
Printed: medians of alternating runs, p-values (which differ by what R random permutations leave to chance),
and the memory that ours took on top of what was there before it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec

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


def main() -> None:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000, help="of each sample")
    parser.add_argument("--coordinates", type=int, default=10)
    parser.add_argument("--permutations", type=int, default=999)
    parser.add_argument("--most", type=int, default=5000, help="points of each sample that the others are given")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    comm, generator, n = MPI.COMM_WORLD, np.random.default_rng(1), options.points
    x, z = (generator.normal(shift, 1, (n, options.coordinates)) for shift in (0.0, 0.02))
    own = shard(comm, x), shard(comm, z)
    p: dict[str, float] = {}

    def ours() -> None:
        p["ours"] = mpi_ustat.test(comm, *own, n_permutations=options.permutations, seed=1).p

    def value() -> None:
        mpi_ustat.estimate(comm, *own, "energy", complete=True, stderr=False, seed=1)

    def other(name: str, test: Callable[[np.ndarray, np.ndarray, int], float]) -> Callable[[], None]:
        def run() -> None:
            p[name] = test(x, z, options.permutations)

        return lambda: alone(comm, run)

    before = peak_mib(comm)
    ours()
    took = peak_mib(comm) - before
    contenders = {"value alone": value, "ours": ours}
    if n <= options.most:
        contenders["loop"] = other("loop", by_loop)
        contenders |= {
            name: other(name, test) for name, test in (("dcor", by_dcor), ("hyppo", by_hyppo)) if find_spec(name)
        }
    medians = alternate(comm, contenders, options.runs)
    if comm.rank == 0:
        what = f"2 × {n} points of {options.coordinates} coordinates, R = {options.permutations}, {options.runs} runs"
        print(f"{machine()}; P = {comm.size}, {what}; {took:.0f} MiB a rank on top of {before:.0f}")
        for name, seconds in medians.items():
            told = f"p = {p[name]:.4f}, {seconds / medians['ours']:.2f} times ours" if name in p else ""
            print(f"{name:12s} {seconds:9.3f} s   {told}")
        print(f"ours is {medians['ours'] / medians['value alone']:.2f} times the value alone")


if __name__ == "__main__":
    main()
