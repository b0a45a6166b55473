"""A small network trained with PyTorch to rank: each rank keeps its rows, and only scores and gradients travel.

    mpiexec -n 4 python scripts/example_torch.py
    mpiexec -n 4 python scripts/example_torch.py $MPI_USTAT_DATA/mammography.npz --label y

By default on the Shuttle data, which come with river; a path is that of any file that `mpi-ustat` reads. It needs
`pip install '.[mpich,data,torch]'`. In each step every rank scores some of its points of each class; the loss is over
all pairs of them, also those of two ranks. Printed: the loss on the way, and the AUC of a test set, with its interval,
before and after.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch
from mpi4py import MPI

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.points.preparation import split, standardisation
from mpi_ustat.storage.data import DataSource, read_samples
from mpi_ustat.torch import pairwise_loss, sum_gradients


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="shuttle")
    parser.add_argument("--label", help="the label column; of Shuttle it is known")
    parser.add_argument("--loss", default="squared-hinge", help="hinge, squared-hinge or logistic")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-points", type=int, default=100, metavar="B", help="of each class, a step and a rank")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Read, train, and tell the AUC of the test set."""
    comm, options = MPI.COMM_WORLD, arguments()
    torch.set_num_threads(1)  # the ranks share the cores

    samples = read_samples(comm, DataSource(path=options.data, label=options.label, columns=("all",)), comm.size)
    parts = [split(comm, rows, 0.2, Streams(options.seed), k) for k, rows in enumerate((samples.x, samples.z))]
    scale = standardisation(comm, tuple(train for train, _ in parts))
    (x, x_test), (z, z_test) = (
        [torch.tensor(scale.apply(rows), dtype=torch.float32) for rows in part] for part in parts
    )

    torch.manual_seed(options.seed)  # the same network on every rank
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    generator = np.random.default_rng([options.seed, comm.rank])  # other points on every rank

    def tell(when: str) -> None:
        with torch.no_grad():
            scores = [net(rows).double().numpy().ravel() for rows in (x_test, z_test)]
        auc = mpi_ustat.estimate(comm, *scores, "auc", complete=True)
        low, high = auc.interval
        if comm.rank == 0:
            print(f"test AUC {when}: {auc.value:.5f} ± {auc.stderr:.5f}, [{low:.5f}, {high:.5f}]", flush=True)

    tell("before")
    start = time.perf_counter()
    for step in range(1, options.steps + 1):
        of_classes = [
            rows[generator.choice(len(rows), min(options.batch_points, len(rows)), replace=False)] for rows in (x, z)
        ]
        labels = torch.cat([torch.ones(len(of_classes[0])), torch.zeros(len(of_classes[1]))])
        optimizer.zero_grad()
        loss = pairwise_loss(net(torch.cat(of_classes)), labels, comm, options.loss)
        loss.backward()
        sum_gradients(net.parameters(), comm)
        optimizer.step()
        if comm.rank == 0 and step % max(1, options.steps // 4) == 0:
            print(f"step {step}: loss of the batch {loss.item():.5f}", flush=True)
    seconds = time.perf_counter() - start
    tell("after")
    if comm.rank == 0:
        print(f"{options.steps} steps in {seconds:.1f} s on {comm.size} rank(s)")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:  # the same on every rank
        if MPI.COMM_WORLD.rank == 0:
            print(f"example_torch.py: error: {error}", file=sys.stderr)
        sys.exit(2)
