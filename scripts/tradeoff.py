"""Test loss against seconds and against bytes, of rows that are repartitioned and of scores that are exchanged.

    mpiexec -n 2 python scripts/tradeoff.py "2 ranks, shared memory" results/tradeoff-shared-memory.h5

Two Gaussian classes in 20 dimensions, 1000 points each, a point of each class for each of N = 1000 workers: the setting
in which repartitioning changes what is learnt. Rows are repartitioned at several frequencies; or they stay, and the
scores of all points, or of 200 of each class, meet in every step. `scripts/tradeoff.sh` runs it on shared memory and on
four hosts with limited links, in 20 and in 2000 dimensions, and draws all.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from _bench import alone, shard
from mpi4py import MPI

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.paper.experiments_learning import REPARTITIONS, gaussian_classes, optimum
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import Dataset, ResultFile, save

_MEETING = 200  # points of each class whose scores meet, where not all do
_NAMES = ("seconds", "test_loss", "bytes_moved", "bytes_reduced")


def descent(comm: Any, train: tuple, tests: tuple, config: LearnConfig) -> dict[str, np.ndarray]:
    """Return the curves of a descent.  Collective."""
    learning = Learning(set_up(comm, train, config, tests=tests))
    comm.barrier()
    begin, seconds = time.perf_counter(), []
    for _record in learning.run():
        # The time of the descent, without that of looking at it.
        spent = learning.clock.seconds.get("evaluate", 0.0)
        seconds.append(comm.bcast(time.perf_counter() - begin - spent))
    history = learning.fit().history
    return {"seconds": np.array(seconds)} | {name: history[name] for name in _NAMES[1:]}


def main() -> None:
    """Run every way several times in turn, from other seeds, and write medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", help="what the ranks run on, in words")
    parser.add_argument("output", help="an .h5 file; replaced")
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dimensions", type=int, default=20)
    parser.add_argument("--init", default="normal", help="first weights (default normal)")
    options = parser.parse_args()
    comm, started = MPI.COMM_WORLD, time.time()
    train, test = gaussian_classes(seed=1, run=0, dimensions=options.dimensions)
    own_train, own_test = (tuple(shard(comm, rows) for rows in part) for part in (train, test))
    every: dict[str, Any] = {"iterations": options.iterations, "init": options.init, "l2": 0.002}
    every["eval_every"] = max(1, options.iterations // 60)
    rows = LearnConfig(**every, batch_pairs=10, n_workers=1000, shuffle="permutation", seed=1)
    n_points = (len(train[0]), _MEETING)
    ways = {("n_r", of): {"repartition_every": of or None} for of in REPARTITIONS} | {
        ("points", of): {
            "exchange": "scores",
            "batch_points": None if of == n_points[0] else of // comm.size,
            "n_workers": comm.size,
        }
        for of in n_points
    }
    runs: dict[tuple[str, int], list[dict[str, np.ndarray]]] = {way: [] for way in ways}
    for run in range(options.runs):
        for way, of_way in ways.items():
            config = LearnConfig(**(rows.to_json() | {"seed": 1 + run} | of_way))
            found = descent(comm, own_train, own_test, config)
            runs[way].append(found)
            if comm.rank == 0:
                n_bytes = found["bytes_moved"][-1] + found["bytes_reduced"][-1]
                print(
                    f"{way[0]} = {way[1]:4d}: {found['seconds'][-1]:7.2f} s, {n_bytes / 1e6:8.1f} MB, "
                    f"test loss {found['test_loss'][-1]:.5f}",
                    flush=True,
                )
    best: dict[str, float] = {}
    alone(comm, lambda: best.update(optimum(train, test, rows)))
    if comm.rank == 0:
        print(f"full-batch optimum: test loss {best['test_loss']:.5f}", flush=True)
        datasets = {"optimum/test_loss": Dataset(np.array(best["test_loss"]), (), "")}
        units = {"seconds": "s", "bytes_moved": "bytes", "bytes_reduced": "bytes"}
        for scale, folder in (("n_r", ""), ("points", "by_scores/")):
            of_scale = [found for (kind, _), found in runs.items() if kind == scale]
            for name in _NAMES:
                values = np.array([[of_run[name] for of_run in way] for way in of_scale])
                kept = (scale, "evaluation")
                datasets[f"{folder}{name}"] = Dataset(np.median(values, axis=1), kept, units.get(name, ""))
                if name == "seconds":
                    datasets[f"{folder}runs/seconds"] = Dataset(values, (scale, "run", "evaluation"), "s")
        evaluations = np.minimum(np.arange(datasets["test_loss"].values.shape[1]) * rows.eval_every, options.iterations)
        origin = provenance(
            sys.argv, started=started, wall_seconds=time.time() - started, mpi_library=MPI.Get_library_version(),
            numbers={"n_ranks": comm.size, "n_workers": 1000},
        )  # fmt: skip
        described = rows.to_json() | {"setting": options.setting, "runs": options.runs, "d": options.dimensions}
        del described["repartition_every"]
        scales = {"n_r": np.array(REPARTITIONS), "points": np.array(n_points), "evaluation": evaluations}
        save(options.output, ResultFile("tradeoff", described, origin, datasets, scales), overwrite=True)


if __name__ == "__main__":
    main()
