"""The data of a power study, and what came of it; power_study.sh has the jobs between the two.

python power_study.py make 20      # sample-1.csv … sample-20.csv: two samples whose means are 0.4 apart
python power_study.py collect      # of power-1.h5 …: how often the energy test saw it
"""

import sys
from pathlib import Path

import numpy as np

import mpi_ustat

SIZES, SHIFT = (60, 60), 0.4


def make(number: int) -> None:
    for task in range(1, number + 1):
        rng = np.random.default_rng(task)
        points = np.concatenate([rng.normal(size=(SIZES[0], 2)), rng.normal(size=(SIZES[1], 2)) + SHIFT])
        rows = np.column_stack([np.repeat([0, 1], SIZES), points.round(4)])
        np.savetxt(f"sample-{task}.csv", rows, fmt="%g", delimiter=",", header="group,u,v", comments="")


def collect() -> None:
    p = np.array([mpi_ustat.load(path).p for path in Path().glob("power-*.h5")])
    power = (p <= 0.05).mean()
    print(f"{len(p)} runs: power {power:.2f} ± {np.sqrt(power * (1 - power) / len(p)):.2f} at level 0.05")


if __name__ == "__main__":
    make(int(sys.argv[2])) if sys.argv[1] == "make" else collect()
