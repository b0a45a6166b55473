"""mpi_ustat inside a program that has its own communicator, its own points on each rank, and its own main loop.

mpiexec -n 4 python docs/examples/embedding.py

The program: 4000 walkers exchange money, each with a neighbour on its ring; ranks hold runs of walkers. Every so many
steps the inequality of their wealth is measured, Gini's mean difference of all walkers over twice their mean. The
numbers are the same for any number of ranks.
"""

import numpy as np
from mpi4py import MPI

import mpi_ustat

N_WALKERS, N_STEPS, EVERY = 4000, 200, 50


def main(world: MPI.Comm) -> None:
    comm = world.Dup()  # a library that talks on a communicator of its own can't take the program's messages
    mine = np.array_split(np.arange(N_WALKERS), comm.size)[comm.rank]
    wealth = np.ones(len(mine))
    for step in range(1, N_STEPS + 1):
        # the same stream of shares on every rank, of which each takes its own walkers'
        shares = np.random.default_rng([7, step]).random(N_WALKERS)[mine]
        wealth = step_of_the_program(comm, wealth, shares)
        if step % EVERY == 0:
            gini = mpi_ustat.gini(wealth, comm=comm)  # collective: every rank passes its own points
            mean = comm.allreduce(float(wealth.sum())) / N_WALKERS
            if comm.rank == 0:
                print(f"step {step:3}: Gini index {gini.value / (2 * mean):.4f} ± {gini.stderr / (2 * mean):.4f}")
    comm.Free()


def step_of_the_program(comm: MPI.Comm, wealth: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Each walker passes a share of half its wealth on to the next one on the ring."""
    passed = 0.5 * shares * wealth
    last = passed[-1:].copy() if len(passed) else passed
    received = np.empty(1)
    comm.Sendrecv(last, dest=(comm.rank + 1) % comm.size, recvbuf=received, source=(comm.rank - 1) % comm.size)
    return wealth - passed + np.concatenate([received, passed[:-1]])


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
