"""Kendall's tau of distributed points, with its standard error, against SciPy's `kendalltau` on all of them.

    mpiexec -n 2 python scripts/bench_kendall.py

Both start from arrays in memory: ours from each rank's shard, SciPy's, on rank 0 alone, from the whole. Points are
correlated normal, once without ties and once rounded so that both columns have them. Printed for each: medians of
alternating runs, the ratio, and both values. (Without ties tau-a and tau-b agree; SciPy has tau-b.)
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI

from mpi_ustat.complete.kendall import kendall
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def tau_and_error(comm: MPI.Comm, rows: np.ndarray, variant: str) -> tuple[float, float]:
    """Return tau of the points of all ranks and its standard error."""
    kernel, sample = Kendall(variant), Exchange(comm, rows, comm.size)
    local = kendall(comm, [sample], kernel, comm.size, Streams(1)).local
    means = np.array([each.total / each.n_pairs for each in local.sums])
    weights, n = kernel.gradient(means), sample.n_rows
    zeta1, delta = (float((weights @ each @ weights.T)[0, 0]) for each in local.components)
    return float(kernel.combine(means)[0]), math.sqrt(4 * zeta1 / n + 2 * delta / (n * (n - 1)))


def main() -> None:
    """Print both times and their ratio for points without and with ties."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10**6)
    parser.add_argument("--decimals", type=int, default=2, help="of the points with ties")
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        from scipy.stats import kendalltau  # half a second of import, which the other ranks don't need

        print(f"{machine()}; P = {comm.size}, {options.points} points, {options.runs} runs each")
    x, y = np.random.default_rng(1).normal(size=(2, options.points))
    smooth = np.column_stack([x, 0.5 * x + y])
    for name, variant, whole in (
        ("tau-a without ties", "a", smooth),
        (f"tau-b, {options.decimals} decimals", "b", np.round(smooth, options.decimals)),
    ):
        own = shard(comm, whole)
        columns = np.ascontiguousarray(whole.T) if comm.rank == 0 else None
        values: dict[str, str] = {}

        def ours(own: np.ndarray = own, variant: str = variant, values: dict[str, str] = values) -> None:
            values["mpi_ustat"] = "{!r} ± {:.2g}".format(*tau_and_error(comm, own, variant))

        def theirs(columns: np.ndarray | None = columns, values: dict[str, str] = values) -> None:
            alone(comm, lambda: values.update({"scipy": repr(float(kendalltau(*columns).statistic))}))

        medians = alternate(comm, {"mpi_ustat": ours, "scipy": theirs}, options.runs)
        if comm.rank == 0:
            for contender, seconds in medians.items():
                print(f"{name:20s} {contender:10s} {1e3 * seconds:8.1f} ms   {values[contender]}")
            print(f"{name:20s} ratio {medians['mpi_ustat'] / medians['scipy']:.2f}")
    peak = peak_mib(comm)
    if comm.rank == 0:
        print(f"peak {peak:.0f} MiB a rank, the whole sample among it")


if __name__ == "__main__":
    main()
