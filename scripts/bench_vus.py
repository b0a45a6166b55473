"""The complete VUS of distributed scores of three classes, with its components, against NumPy on all of them.

    mpiexec -n 2 python scripts/bench_vus.py

Both start from arrays in memory: ours from each rank's shard; NumPy's, on rank 0 alone, from the whole, which it sorts
and looks up in each other, for the value without standard error. Printed: medians of alternating runs, the ratio, both
values, and the standard error.
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI

from mpi_ustat.complete.vus import vus
from mpi_ustat.inference.components import subsets
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


def by_numpy(low: np.ndarray, middle: np.ndarray, high: np.ndarray, ties: str) -> float:
    """Return the VUS of three classes: for each score of the middle one, the scores below times those above."""
    low, middle, high = np.sort(low), np.sort(middle), np.sort(high)
    below, under = np.searchsorted(low, middle), np.searchsorted(high, middle, side="right")
    total = int(below @ (len(high) - under))
    if ties == "shared":
        tied_low = np.searchsorted(low, middle, side="right") - below
        tied_high = under - np.searchsorted(high, middle)
        half = int(tied_low @ (len(high) - under)) + int(below @ tied_high)
        total = Fraction(6 * total + 3 * half + int(tied_low @ tied_high), 6)
    return float(Fraction(total, len(low) * len(middle) * len(high)))


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=int, default=10**6, help="of each class")
    parser.add_argument("--ties", choices=("strict", "shared"), default="strict")
    parser.add_argument("--decimals", type=int, help="round the scores, so that they tie")
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    generator = np.random.default_rng(1)
    classes = [generator.normal(shift, 1, options.scores) for shift in (0.0, 0.7, 1.5)]
    if options.decimals is not None:
        classes = [np.round(each, options.decimals) for each in classes]
    shards = [shard(comm, each) for each in classes]
    kernel = VUS(3, options.ties)
    factors = [math.prod(len(classes[k]) for k in s) for s in subsets(3)]
    found: dict[str, tuple[float, ...]] = {}

    def ours() -> None:
        samples = [Exchange(comm, each, comm.size) for each in shards]
        local = vus(comm, samples, kernel, comm.size, Streams(1)).local
        total, n_tuples = local.sums[0]
        variance = float((local.components[:, 0, 0] / factors).sum())
        found["mpi_ustat"] = (total / (kernel.scale * n_tuples), math.sqrt(variance))

    def theirs() -> None:
        alone(comm, lambda: found.update(NumPy=(by_numpy(*classes, options.ties),)))

    medians = alternate(comm, {"mpi_ustat": ours, "NumPy": theirs}, options.runs)
    peak = peak_mib(comm)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, {options.scores} scores of each of 3 classes, {options.runs} runs each")
        for name, seconds in medians.items():
            error = "".join(f" ± {each:.2e}" for each in found[name][1:])
            print(f"{name:10s} {1e3 * seconds:8.1f} ms   VUS {found[name][0]!r}{error}")
        print(f"ratio 1/{medians['NumPy'] / medians['mpi_ustat']:.1f}, peak {peak:.0f} MiB a rank")


if __name__ == "__main__":
    main()
