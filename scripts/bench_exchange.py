"""One prop-swor round (partition and exchange) against the bare movement of as many rows by a known index.

    mpiexec -n 2 python scripts/bench_exchange.py

The bare round is `np.take` by a precomputed index, Alltoallv, `np.take` by a precomputed index, on buffers kept from
run to run, as ours are; it neither draws a permutation nor plans. Printed: medians of alternating runs, and the ratio.
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
    """take, Alltoallv, take: every row, also those that stay, goes through the exchange."""

    def __init__(self, comm: Any, rows: np.ndarray, n_rows: int) -> None:
        bounds = block_bounds(n_rows, comm.size)
        order = np.random.default_rng(0).permutation(n_rows)
        owner = np.searchsorted(bounds, order, side="right") - 1
        destination = np.searchsorted(bounds, np.arange(n_rows), side="right") - 1
        sent = np.flatnonzero(owner == comm.rank)
        self.comm, self.rows = comm, rows
        self.send_index = order[sent] - bounds[comm.rank]
        self.send_counts = np.bincount(destination[sent], minlength=comm.size) * rows.shape[1]
        sources = owner[bounds[comm.rank] : bounds[comm.rank + 1]]
        self.receive_counts = np.bincount(sources, minlength=comm.size) * rows.shape[1]
        self.place_index = np.empty(len(sources), dtype=np.int64)
        self.place_index[np.argsort(sources, kind="stable")] = np.arange(len(sources))
        self.packed, self.received = np.empty_like(rows), np.empty((len(sources), rows.shape[1]))
        self.out = np.empty_like(self.received)

    def __call__(self) -> None:
        np.take(self.rows, self.send_index, axis=0, out=self.packed, mode="clip")
        self.comm.Alltoallv([self.packed, self.send_counts], [self.received, self.receive_counts])
        np.take(self.received, self.place_index, axis=0, out=self.out, mode="clip")


def main() -> None:
    """Print one line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6, help="rows of both samples together")
    parser.add_argument("--columns", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 10, 100])
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    n = options.rows // 2
    local = np.diff(block_bounds(n, comm.size))[comm.rank]
    generator = np.random.default_rng(comm.rank)
    x, z = (generator.normal(size=(local, options.columns)) for _ in range(2))
    bare = BareRound(comm, np.concatenate([x, z]), 2 * n)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}, {2 * n} rows x {options.columns} float64, {options.runs} runs each")
    for n_workers in options.workers:
        samples = [Exchange(comm, rows, n_workers) for rows in (x, z)]
        partition = Partition(SCHEMES["prop-swor"], (n, n), n_workers, Streams(1))
        rounds = iter(range(10**9))

        def ours(samples=samples, partition=partition, rounds=rounds) -> None:
            for sample, blocks in zip(samples, partition.round(next(rounds)), strict=True):
                sample.blocks(blocks)

        medians = alternate(comm, {"prop-swor": ours, "bare": bare}, options.runs)
        peak = peak_mib(comm)
        if comm.rank == 0:
            print(
                f"N = {n_workers:4d}: prop-swor round {1e3 * medians['prop-swor']:6.1f} ms, bare round "
                f"{1e3 * medians['bare']:6.1f} ms, ratio {medians['prop-swor'] / medians['bare']:.2f}, "
                f"peak {peak:.0f} MiB a rank"
            )


if __name__ == "__main__":
    main()
