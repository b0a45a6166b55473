"""Predictions of a plan against the runs that they are about.

    mpiexec -n 2 python scripts/bench_plan.py

Normal scores, 200000 + 50000, and a user's kernel on 2000 + 2000; N = 20 workers. For several choices of each plan:
predicted and measured seconds, by alternating predictions and runs, and predicted and reported standard errors.
Printed: medians, and the medians of the ratios of run to prediction.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from _bench import machine, shard
from mpi4py import MPI

from mpi_ustat import estimate
from mpi_ustat.planning.plan import Choice, Plan, plan

N_WORKERS = 20
WAYS = (("complete", "both", 1), ("prop-swor", "both", 4), ("prop-swor", "smaller", 4), ("rotation", "both", 4))
PAIRS = (None, 1000)


def distance(x: np.ndarray, z: np.ndarray) -> Any:
    """Return |x - z| for all pairs: a kernel that has to look at every pair."""
    return np.abs(x - z.T)


def chosen(found: Plan) -> list[Choice]:
    """Return the choices that are compared."""
    return [
        choice
        for choice in found.choices
        if (choice.scheme, choice.move, choice.n_rounds) in WAYS and choice.n_pairs in PAIRS
    ]


def main() -> None:
    """Print a line for each kernel and choice, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=int, default=10)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(0)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, N = {N_WORKERS}; {options.measurements} predictions and runs")
    ratios, errors = [], []
    for name, kernel, n, m in (("auc", "auc", 50_000, 200_000), ("a user's", distance, 2000, 2000)):
        x, z = (shard(comm, rng.normal(mean, 1.0, size)) for mean, size in ((1.0, n), (0.0, m)))
        predicted: dict[tuple[Any, ...], list[float]] = {}
        measured: dict[tuple[Any, ...], list[float]] = {}
        stderr: dict[tuple[Any, ...], tuple[float, float]] = {}
        for _ in range(options.measurements):
            found = plan(comm, x, z, kernel, n_workers=N_WORKERS, seed=1)
            for choice in chosen(found):
                key = (choice.scheme, choice.move, choice.n_rounds, choice.n_pairs)
                way = dict(zip(("scheme", "move", "n_rounds", "n_pairs"), key, strict=True))
                way = {"complete": True} if choice.scheme == "complete" else way
                comm.barrier()
                began = time.perf_counter()
                result = estimate(comm, x, z, kernel, n_workers=N_WORKERS, seed=2, **way)
                seconds = max(comm.allgather(time.perf_counter() - began))
                predicted.setdefault(key, []).append(choice.seconds)
                measured.setdefault(key, []).append(seconds)
                stderr[key] = choice.stderr, result.stderr
        for key, known in predicted.items():
            of_runs = [run / forecast for run, forecast in zip(measured[key], known, strict=True)]
            ratios.append(float(np.median(of_runs)))
            errors.append(stderr[key][1] / stderr[key][0])
            if comm.rank == 0:
                scheme, move, n_rounds, n_pairs = key
                print(
                    f"{name:9s}{scheme + (', ' + move if move != 'both' else ''):20s} T = {n_rounds}, "
                    f"B = {n_pairs or 'all'!s:5s}: predicted {1e3 * np.median(known):7.2f} ms, run "
                    f"{1e3 * np.median(measured[key]):7.2f} ms, ratio {ratios[-1]:.2f}; "
                    f"standard error ratio {errors[-1]:.3f}",
                    flush=True,
                )
    if comm.rank == 0:
        print(f"median ratio: seconds {np.median(ratios):.2f}, standard errors {np.median(errors):.3f}")


if __name__ == "__main__":
    main()
