"""The complete energy distance of distributed points, with its variance, against scipy's `cdist` in chunks of rows.

    mpiexec -n 2 python scripts/bench_energy.py

Both start from arrays in memory: ours from each rank's shard, scipy's, on rank 0 alone, from the whole. dcor and hyppo
hold whole matrices of distances, 3.2 GB each at 20000 points. Printed: medians of alternating runs, the ratio, both
values, and the memory that ours took on top of what was there before it.
"""

from __future__ import annotations

import argparse

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI
from scipy.spatial.distance import cdist

from mpi_ustat.complete.energy import energy
from mpi_ustat.kernels.energy import EnergyDistance
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def total_distance(left: np.ndarray, right: np.ndarray, chunk: int = 500) -> float:
    """Return the sum of the distances of all pairs, the way one would write it."""
    return sum(float(cdist(left[i : i + chunk], right).sum()) for i in range(0, len(left), chunk))


def main() -> None:
    """Print the times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20000, help="of each sample")
    parser.add_argument("--coordinates", type=int, default=10)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    generator = np.random.default_rng(1)
    n = options.points
    x, z = (generator.normal(shift, 1, (n, options.coordinates)) for shift in (0.0, 0.1))
    samples = [Exchange(comm, shard(comm, points), comm.size) for points in (x, z)]
    kernel, streams = EnergyDistance(), Streams(1)
    values: dict[str, float] = {}

    def value(sums: tuple) -> float:
        return float(kernel.combine(np.array([each.total / each.n_pairs for each in sums]))[0])

    def ours() -> None:
        found = energy(comm, samples, kernel, comm.size, streams)
        values["with variance"] = value(found.local.sums)
        values["variance"] = found.own_variance.total

    def without() -> None:
        values["without"] = value(energy(comm, samples, kernel, comm.size, streams, components=False).local.sums)

    def theirs() -> None:
        def run() -> None:
            within = total_distance(x, x) + total_distance(z, z)
            values["scipy"] = 2 * total_distance(x, z) / n**2 - within / (n * (n - 1))

        alone(comm, run)

    before = peak_mib(comm)
    ours()
    took = peak_mib(comm) - before
    medians = alternate(comm, {"with variance": ours, "without": without, "scipy": theirs}, options.runs)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, 2 × {n} points of {options.coordinates} coordinates, {options.runs} runs")
        for name, seconds in medians.items():
            print(f"{name:13s} {seconds:8.3f} s   energy distance {values[name]!r}")
        ratio = medians["scipy"] / medians["with variance"]
        print(
            f"ratio 1/{ratio:.1f}, stderr {values['variance'] ** 0.5:.3g}, {took:.0f} MiB a rank on top of {before:.0f}"
        )


if __name__ == "__main__":
    main()
