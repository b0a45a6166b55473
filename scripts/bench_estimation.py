"""The simulation behind the paper's third figure against a literal implementation of the paper.

    mpiexec -n 2 python scripts/bench_estimation.py

The literal one, on rank 0 alone, is a Python loop over the workers: whole arrays are shuffled in every round and
comparisons are broadcast. Both give U_n, U_{n,N} and Û_{n,N,T} of samples of the two-point model, n = 5000, m = 50,
N = 10, T = 4. Printed for each ε: medians of alternating measurements of the time of a run, and their ratio.
"""

from __future__ import annotations

import argparse

import numpy as np
from _bench import alone, alternate, machine, peak_mib
from mpi4py import MPI

from mpi_ustat.estimation.config import SimulationConfig
from mpi_ustat.paper.experiments import EPSILONS
from mpi_ustat.paper.montecarlo import simulate

N, M, N_WORKERS, N_ROUNDS = 5000, 50, 10, 4


def literal_run(rng: np.random.Generator, epsilon: float) -> tuple[float, float, float]:
    """Return U_n, U_{n,N} and Û_{n,N,T} of one run, as the paper describes them."""
    x = np.where(rng.random(N) < epsilon, 0.0, 2.0)
    z = np.where(rng.random(M) < epsilon, 1.0, -1.0)
    complete = (x[:, None] > z[None, :]).mean()
    rounds = []
    for _ in range(N_ROUNDS):
        rng.shuffle(x)
        rng.shuffle(z)
        local = []
        for i in range(N_WORKERS):
            x_i = x[i * N // N_WORKERS : (i + 1) * N // N_WORKERS]
            z_i = z[i * M // N_WORKERS : (i + 1) * M // N_WORKERS]
            local.append((x_i[:, None] > z_i[None, :]).mean())
        rounds.append(np.mean(local))
    return float(complete), float(rounds[0]), float(np.mean(rounds))


def main() -> None:
    """Print one line for each ε and way of moving."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--runs", type=int, default=2000, help="runs of ours in a measurement; a tenth for the other")
    parser.add_argument("--measurements", type=int, default=5)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(1)
    literal_runs = max(1, options.runs // 10)
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}; milliseconds a run, {options.measurements} measurements each")
    for epsilon in options.epsilons:

        def ours(move: str, epsilon: float = epsilon) -> None:
            config = SimulationConfig(
                model="two-point-auc", epsilon=epsilon, n=N, m=M, n_workers=N_WORKERS, n_rounds=N_ROUNDS,
                move=move, n_runs=options.runs, seed=1,
            )  # fmt: skip
            for _ in simulate(comm, config):
                pass

        def literal(epsilon: float = epsilon) -> None:
            alone(comm, lambda: [literal_run(rng, epsilon) for _ in range(literal_runs)])

        contenders = {"both": lambda: ours("both"), "smaller": lambda: ours("smaller"), "literal": literal}
        seconds = alternate(comm, contenders, options.measurements)
        per_run = {name: 1e3 * each / options.runs for name, each in seconds.items()}
        per_run["literal"] = 1e3 * seconds["literal"] / literal_runs
        gains = {name: per_run["literal"] / per_run[name] for name in ("both", "smaller")}
        peak = peak_mib(comm)
        if comm.rank == 0:
            print(
                f"epsilon {epsilon:7.5f}: literal {per_run['literal']:.3f}; ours {per_run['both']:.3f}, "
                f"{gains['both']:.1f} times as fast; with move=smaller {per_run['smaller']:.3f}, "
                f"{gains['smaller']:.1f} times; peak {peak:.0f} MiB a rank",
                flush=True,
            )


if __name__ == "__main__":
    main()
