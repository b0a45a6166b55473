"""Test loss against seconds and against bytes, for several repartition frequencies, on the ranks it is started with.

    mpiexec -n 2 python scripts/tradeoff.py "2 ranks, shared memory" results/tradeoff-shared-memory.h5

Two Gaussian classes in 20 dimensions, 1000 points each, a point of each class for each of N = 1000 workers: the setting
in which repartitioning changes what is learnt. `scripts/tradeoff.sh` runs it on shared memory and on four hosts with
limited links, and draws both.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from _bench import shard
from mpi4py import MPI

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.paper.experiments_learning import REPARTITIONS, gaussian_classes
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import Dataset, ResultFile, save


def main() -> None:
    """Run every frequency several times in turn, from other seeds, and write medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", help="what the ranks run on, in words")
    parser.add_argument("output", help="an .h5 file; replaced")
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    comm, started = MPI.COMM_WORLD, time.time()
    train, test = gaussian_classes(seed=1, run=0)
    own_train, own_test = (tuple(shard(comm, rows) for rows in part) for part in (train, test))
    runs: dict[str, list[np.ndarray]] = {"seconds": [], "test_loss": [], "bytes_moved": [], "bytes_reduced": []}
    for run in range(options.runs):
        for values in runs.values():
            values.append([])  # type: ignore[arg-type]
        for every in REPARTITIONS:
            config = LearnConfig(
                l2=0.002, batch_pairs=10, n_workers=1000, shuffle="permutation", iterations=options.iterations,
                eval_every=max(1, options.iterations // 60), repartition_every=every or None, seed=1 + run,
            )  # fmt: skip
            learning = Learning(set_up(comm, own_train, config, tests=own_test))
            comm.barrier()
            begin = time.perf_counter()
            evaluated, seconds = 0.0, []
            for _record in learning.run():
                # The time of the descent, without that of looking at it.
                spent = learning.clock.seconds.get("evaluate", 0.0)
                seconds.append(comm.bcast(time.perf_counter() - begin - spent))
                evaluated = spent
            history = learning.fit().history
            runs["seconds"][-1].append(seconds)
            for name in ("test_loss", "bytes_moved", "bytes_reduced"):
                runs[name][-1].append(history[name])
            if comm.rank == 0:
                print(
                    f"n_r = {every or 'never'}: {seconds[-1]:.2f} s (evaluation {evaluated:.2f} s), "
                    f"{history['bytes_moved'][-1] / 1e6:.0f} MB of rows, test loss {history['test_loss'][-1]:.4f}",
                    flush=True,
                )
    if comm.rank == 0:
        units = {"seconds": "s", "bytes_moved": "bytes", "bytes_reduced": "bytes"}
        datasets = {
            name: Dataset(np.median(np.array(values), axis=0), ("n_r", "evaluation"), units.get(name, ""))
            for name, values in runs.items()
        }
        datasets["runs/seconds"] = Dataset(np.array(runs["seconds"]), ("run", "n_r", "evaluation"), "s")
        evaluations = np.minimum(
            np.arange(datasets["test_loss"].values.shape[1]) * config.eval_every, config.iterations
        )
        origin = provenance(
            sys.argv, started=started, wall_seconds=time.time() - started, mpi_library=MPI.Get_library_version(),
            numbers={"n_ranks": comm.size, "n_workers": 1000},
        )  # fmt: skip
        described = config.to_json() | {"setting": options.setting, "runs": options.runs}
        del described["repartition_every"]
        scales = {"n_r": np.array(REPARTITIONS), "evaluation": evaluations}
        save(options.output, ResultFile("tradeoff", described, origin, datasets, scales), overwrite=True)


if __name__ == "__main__":
    main()
