"""The complete AUC of distributed scores against scikit-learn's `roc_auc_score` on all of them.

    mpiexec -n 2 python scripts/bench_auc.py

Both start from arrays in memory: ours from each rank's shard, scikit-learn's, on rank 0 alone, from the whole. Printed:
medians of alternating runs, the ratio, and both values.
"""

from __future__ import annotations

import argparse

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI
from sklearn.metrics import roc_auc_score

from mpi_ustat import estimate


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=int, default=10**6)
    parser.add_argument("--positive-share", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=11)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    generator = np.random.default_rng(1)
    n = int(options.scores * options.positive_share)
    positives, negatives = generator.normal(1, 1, n), generator.normal(0, 1, options.scores - n)
    x, z = shard(comm, positives), shard(comm, negatives)
    labels, scores = np.repeat([1, 0], [n, options.scores - n]), np.concatenate([positives, negatives])
    values: dict[str, float] = {}

    def ours() -> None:
        values["mpi_ustat"] = estimate(comm, x, z, complete=True, seed=1).value

    def theirs() -> None:
        alone(comm, lambda: values.update({"scikit-learn": roc_auc_score(labels, scores)}))

    medians = alternate(comm, {"mpi_ustat": ours, "scikit-learn": theirs}, options.runs)
    peak = peak_mib(comm)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, {options.scores} scores, {n} positive, {options.runs} runs each")
        for name, seconds in medians.items():
            print(f"{name:13s} {1e3 * seconds:8.1f} ms   AUC {values[name]!r}")
        print(f"ratio 1/{medians['scikit-learn'] / medians['mpi_ustat']:.1f}, peak {peak:.0f} MiB a rank")


if __name__ == "__main__":
    main()
