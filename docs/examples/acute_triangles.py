"""A kernel of three points: how often is a triangle of three tumours, in radius and texture, acute?

mpiexec -n 4 python docs/examples/acute_triangles.py

For points of a round normal law in the plane it is 1 in 4; the more stretched a cloud is, the rarer.
"""

from pathlib import Path

import numpy as np
from mpi4py import MPI

import mpi_ustat


def acute(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Tell of triangles whether their largest angle is below 90 degrees; corners (rows, 2), one value a row."""
    sides = np.sort([((p - q) ** 2).sum(axis=1) for p, q in ((a, b), (b, c), (c, a))], axis=0)
    return (sides[2] < sides[0] + sides[1]).astype(float)


acute.degrees = (3,)  # three points of one sample; the order of the points does not matter


def main(comm: MPI.Comm) -> None:
    table = np.genfromtxt(Path(__file__).with_name("tumours.csv"), delimiter=",", names=True)
    points = np.column_stack([table["radius"], table["texture"]])
    normal = np.random.default_rng(1).normal(size=points.shape)
    for name, cloud in (("tumours", points), ("normal points", normal)):
        mine = np.array_split(cloud, comm.size)[comm.rank]
        # 30 million triangles: sampled, 20 000 on each of 8 logical workers, in 4 rounds
        found = mpi_ustat.estimate(comm, mine, None, acute, n_workers=8, n_rounds=4, n_pairs=20_000, seed=1)
        if comm.rank == 0:
            print(f"{name}: {found.value:.4f} ± {found.stderr:.4f}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
