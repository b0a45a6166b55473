"""The complete AUC of distributed scores with its standard error, against what finds it on one machine.

    mpiexec -n 2 python scripts/bench_auc.py

All start from arrays in memory: ours from each rank's shard, the others, on rank 0 alone, from the whole. Against
scikit-learn's `roc_auc_score`, which has no standard error, and DeLong's variance by the algorithm of Sun and Xu (IEEE
Signal Processing Letters 21, 2014), from midranks in NumPy: once without any loop, and once (a single run) with the
loop over runs of ties that its Python implementations have. Printed for a balanced and a rare class: medians of
alternating runs, ratios, values, standard errors, and the peak memory of a rank.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI
from sklearn.metrics import roc_auc_score

from mpi_ustat import estimate


def midranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of the values, from 1 on, tied ones sharing the mean of theirs."""
    order = np.argsort(values)
    ascending = values[order]
    starts = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1]))
    counts = np.diff(starts, append=len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    return ranks


def midranks_by_loop(values: np.ndarray) -> np.ndarray:
    """Return the same, value by value."""
    order = np.argsort(values)
    ascending = values[order]
    shared, i = np.empty(len(values)), 0
    while i < len(values):
        j = i
        while j < len(values) and ascending[j] == ascending[i]:
            j += 1
        shared[i:j] = (i + j + 1) / 2
        i = j
    ranks = np.empty(len(values))
    ranks[order] = shared
    return ranks


def delong(x: np.ndarray, z: np.ndarray, ranked: Callable[[np.ndarray], np.ndarray] = midranks) -> tuple[float, float]:
    """Return the AUC and DeLong's standard error of it."""
    n, m = len(x), len(z)
    pooled = ranked(np.concatenate([x, z]))
    of_x = (pooled[:n] - ranked(x)) / m
    of_z = 1.0 - (pooled[n:] - ranked(z)) / n
    return float(of_x.mean()), math.sqrt(of_x.var(ddof=1) / n + of_z.var(ddof=1) / m)


def compare(comm: Any, n_scores: int, positive_share: float, runs: int) -> None:
    """Time all three on normal scores and print the comparison on rank 0."""
    generator = np.random.default_rng(1)
    n = int(n_scores * positive_share)
    positives, negatives = generator.normal(1, 1, n), generator.normal(0, 1, n_scores - n)
    x, z = shard(comm, positives), shard(comm, negatives)
    labels, scores = np.repeat([1, 0], [n, n_scores - n]), np.concatenate([positives, negatives])
    found: dict[str, tuple[float, float | None]] = {}
    peaks: list[float] = []

    def ours() -> None:
        estimated = estimate(comm, x, z, complete=True, seed=1)
        found["mpi_ustat"] = estimated.value, estimated.stderr
        peaks.append(peak_mib(comm))

    def on_rank_0(name: str, run: Callable[[], tuple[float, float | None]]) -> Callable[[], None]:
        return lambda: alone(comm, lambda: found.update({name: run()}))

    before = peak_mib(comm)
    contenders = {
        "mpi_ustat": ours,
        "scikit-learn": on_rank_0("scikit-learn", lambda: (roc_auc_score(labels, scores), None)),
        "DeLong": on_rank_0("DeLong", lambda: delong(positives, negatives)),
    }
    medians = alternate(comm, contenders, runs)
    looping = {"DeLong, loop": on_rank_0("DeLong, loop", lambda: delong(positives, negatives, midranks_by_loop))}
    medians |= alternate(comm, looping, 1)
    if comm.rank == 0:
        print(f"{n_scores} scores, {n} positive, {runs} runs each")
        for name, seconds in medians.items():
            value, error = found[name]
            ratio = "" if name == "mpi_ustat" else f"   1/{seconds / medians['mpi_ustat']:.0f}"
            print(f"  {name:13s} {1e3 * seconds:8.1f} ms   AUC {value!r}, stderr {error}{ratio}")
        print(f"  peak {peaks[0]:.0f} MiB a rank after the first of our runs, {before:.0f} before", flush=True)


def main() -> None:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=int, help="one comparison of this many scores")
    parser.add_argument("--positive-share", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}", flush=True)
    cases = [(10**6, 0.5), (10**7, 0.01)] if options.scores is None else [(options.scores, options.positive_share)]
    for n_scores, share in cases:
        compare(comm, n_scores, share, options.runs)


if __name__ == "__main__":
    main()
