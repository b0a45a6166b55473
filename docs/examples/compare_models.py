"""Which of two models ranks tumours better, and is the simple one good enough?

python docs/examples/compare_models.py [FILE]
mpiexec -n 4 python docs/examples/compare_models.py     # each rank takes a run of rows; the same numbers
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from mpi4py import MPI

import mpi_ustat


def main(path: Path, comm: MPI.Comm) -> None:
    frame = pd.read_csv(path)
    rows = np.array_split(np.arange(len(frame)), comm.size)[comm.rank]
    mine = frame.iloc[rows]
    found = mpi_ustat.compare_auc(mine["malignant"], mine[["logistic", "forest"]], comm=comm)
    if comm.rank == 0:
        print(found)
    (difference,) = found.differences
    if comm.rank == 0 and difference["p"] > 0.05:
        print("The models can't be told apart on these tumours.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("tumours.csv"), MPI.COMM_WORLD)
