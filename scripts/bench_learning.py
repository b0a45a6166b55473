"""An iteration of pairwise SGD against a literal implementation of the paper, on data of Shuttle's shape.

    mpiexec -n 2 python scripts/bench_learning.py

N = 100 workers, B = 100 pairs each, hinge loss, momentum, 36469 + 2809 training and 9117 + 702 test points, 9 columns,
evaluation every 25 iterations. The literal one, on rank 0 alone, is a Python loop over the workers: draws of indices,
fancy indexing and a product for each, permutes whole arrays to repartition, and broadcasts all test pairs to evaluate.
Printed: medians of alternating measurements of the time of an iteration, and the ratio.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up

SIZES = {"z": 36469, "x": 2809, "z_test": 9117, "x_test": 702}
N_WORKERS, PAIRS, EVALUATE_EVERY, L2, STEP, MOMENTUM = 100, 100, 25, 0.05, 0.01, 0.9


class Literal:
    """The paper's algorithm, as it is written."""

    def __init__(self, data: dict[str, np.ndarray], repartition_every: int) -> None:
        self.x, self.z = data["x"].copy(), data["z"].copy()
        self.x_test, self.z_test = data["x_test"], data["z_test"]
        self.every = repartition_every
        self.rng = np.random.default_rng(1)

    def run(self, iterations: int) -> None:
        """Do that many iterations from fresh weights."""
        w = self.rng.normal(size=self.x.shape[1])
        step: Any = 0.0
        for t in range(iterations):
            if t % self.every == 0:
                self.x = self.x[self.rng.permutation(len(self.x))]
                self.z = self.z[self.rng.permutation(len(self.z))]
                blocks = list(zip(np.array_split(self.x, N_WORKERS), np.array_split(self.z, N_WORKERS), strict=True))
            if t % EVALUATE_EVERY == 0:
                self.evaluate(w)
            gradients = []
            for x, z in blocks:
                k = self.rng.integers(len(x), size=PAIRS)
                l = self.rng.integers(len(z), size=PAIRS)  # noqa: E741
                difference = x[k] - z[l]
                active = difference @ w < 1.0
                gradients.append(-(active[:, None] * difference).mean(axis=0))
            gradient = np.mean(gradients, axis=0) + 2 * L2 * w
            step = MOMENTUM * step + STEP * gradient
            w = w - step

    def evaluate(self, w: np.ndarray) -> tuple[float, float]:
        """Return loss and AUC over all test pairs."""
        positive, negative = self.x_test @ w, self.z_test @ w
        difference = positive[None, :] - negative[:, None]
        return float(np.maximum(0.0, 1.0 - difference).mean() + L2 * w @ w), float((difference > 0).mean())


def main() -> None:
    """Print one line for each way to repartition."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=500, help="of ours in a measurement; a fifth for the other")
    parser.add_argument("--measurements", type=int, default=5)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(0)
    data = {name: rng.normal(1.0 if name.startswith("x") else 0.0, 1.0, (n, 9)) for name, n in SIZES.items()}
    own = {name: shard(comm, values) for name, values in data.items()}
    literal_iterations = max(EVALUATE_EVERY, options.iterations // 5)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}; milliseconds an iteration, {options.measurements} measurements each")
    for every, move in ((25, "both"), (1, "both"), (1, "smaller")):

        def ours(every: int = every, move: str = move) -> None:
            config = LearnConfig(
                l2=L2, learning_rate=STEP, momentum=MOMENTUM, batch_pairs=PAIRS, repartition_every=every, move=move,
                n_workers=N_WORKERS, iterations=options.iterations, eval_every=EVALUATE_EVERY, seed=1,
            )  # fmt: skip
            learning = Learning(set_up(comm, (own["x"], own["z"]), config, tests=(own["x_test"], own["z_test"])))
            for _ in learning.run():
                pass

        def literal(every: int = every) -> None:
            alone(comm, lambda: Literal(data, every).run(literal_iterations))

        seconds = alternate(comm, {"ours": ours, "literal": literal}, options.measurements)
        mine, theirs = 1e3 * seconds["ours"] / options.iterations, 1e3 * seconds["literal"] / literal_iterations
        peak = peak_mib(comm)
        if comm.rank == 0:
            print(
                f"n_r = {every:2d}, move={move:7s}: literal {theirs:.2f}, ours {mine:.3f}, {theirs / mine:.1f} times "
                f"as fast; peak {peak:.0f} MiB a rank",
                flush=True,
            )


if __name__ == "__main__":
    main()
