"""A prop-swor round of very many scores against the movement of as many by a known permutation; memory per rank.

    mpiexec -n 4 python scripts/bench_scale.py

One round of ours draws the partition (by matrix), groups, packs, exchanges and unpacks. The bare round packs by a
precomputed permutation, exchanges with one Alltoallv and unpacks by a precomputed permutation, on buffers kept from run
to run. Printed: medians of alternating runs, the ratio, the bare Alltoallv, and the peak memory of a rank after our
rounds and before the bare ones, beside 2.5 times its shard and 128 MiB.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from _bench import alternate, machine, peak_mib
from mpi4py import MPI

from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES


class BareRound:
    """take, Alltoallv, take by indices that are known: every rank sends as many rows to each as an even deal would."""

    def __init__(self, comm: Any, rows: np.ndarray) -> None:
        rng = np.random.default_rng(comm.rank)
        self.comm, self.rows = comm, rows
        self.send_counts = np.diff(block_bounds(len(rows), comm.size))
        self.receive_counts = np.array(comm.alltoall(self.send_counts.tolist()))
        self.send_index = rng.permutation(len(rows))
        self.packed, self.received = np.empty_like(rows), np.empty(self.receive_counts.sum())
        self.place_index, self.out = rng.permutation(len(self.received)), np.empty_like(self.received)

    def exchange(self) -> None:
        """Do the Alltoallv alone."""
        self.comm.Alltoallv([self.packed, self.send_counts], [self.received, self.receive_counts])

    def __call__(self) -> None:
        np.take(self.rows, self.send_index, out=self.packed, mode="clip")
        self.exchange()
        np.take(self.received, self.place_index, out=self.out, mode="clip")


def main() -> None:
    """Print one line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**8, help="float64 scores on all ranks together")
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 100, 1000])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    scores = np.random.default_rng(comm.rank).random(int(np.diff(block_bounds(options.rows, comm.size))[comm.rank]))
    shard = max(comm.allgather(scores.nbytes)) / 2**20
    allowed = 2.5 * shard + 128
    if comm.rank == 0:
        print(
            f"{machine()}; P = {comm.size}, {options.rows} float64 scores, {shard:.0f} MiB a rank, {options.runs} runs"
        )

    def round_of(n_workers: int, rounds: Any) -> Any:
        sample = Exchange(comm, scores, n_workers)
        partition = Partition(SCHEMES["prop-swor"], (options.rows,), n_workers, Streams(1))
        return lambda: sample.bring(partition.round(next(rounds))[0])

    rounds = iter(range(10**9))
    peaks = {}
    for n_workers in options.workers:
        run = round_of(n_workers, rounds)
        for _ in range(2):
            run()
        peaks[n_workers] = peak_mib(comm)
        del run
    bare = BareRound(comm, scores)
    for n_workers in options.workers:
        contenders = {"ours": round_of(n_workers, rounds), "bare": bare, "Alltoallv": bare.exchange}
        medians = alternate(comm, contenders, options.runs)
        del contenders
        if comm.rank == 0:
            print(
                f"N = {n_workers:5d}: prop-swor round {medians['ours']:.2f} s, by a known permutation "
                f"{medians['bare']:.2f} s, ratio {medians['ours'] / medians['bare']:.2f}; bare Alltoallv "
                f"{medians['Alltoallv']:.2f} s; peak {peaks[n_workers]:.0f} MiB a rank so far, allowed {allowed:.0f}"
            )


if __name__ == "__main__":
    main()
