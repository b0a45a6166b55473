"""Gradients over all pairs of points whose scores alone travel, and the optimum that they lead to.

    mpiexec -n 2 python scripts/bench_scores.py                  # needs Shuttle, which river brings
    mpiexec -n 2 python scripts/bench_scores.py --libsvm w8a.libsvm.gz

A step of `learn --exchange scores --batch-points all` on Shuttle's training points, against NumPy on rank 0, which
compares all pairs of scores in tiles. With a LIBSVM file: the ranker that L-BFGS finds over all pairs (squared hinge,
to a gradient of 10⁻⁶), against scikit-learn's `LinearSVC` on the differences of 10⁵ pairs drawn at random, both from
sparse rows, with the test AUC of both. Printed are medians of alternating runs and ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np
import threadpoolctl
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI

from mpi_ustat import SerialComm, learn
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.points.preparation import split, standardisation
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.data import DataSource, read_samples

_TILE = 512


def tiled_step(x: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean hinge loss from the matrix of all pairs, a tile of it at a time."""
    s, t = x @ w, z @ w
    a, b = np.zeros(len(s)), np.zeros(len(t))
    for i in range(0, len(s), _TILE):
        for j in range(0, len(t), _TILE):
            short = s[i : i + _TILE, None] - t[None, j : j + _TILE] < 1.0
            a[i : i + _TILE] += short.sum(axis=1)
            b[j : j + _TILE] += short.sum(axis=0)
    return (b @ z - a @ x) / (len(s) * len(t))


def steps(comm: Any, runs: int) -> None:
    """Compare a step."""
    x, z = shuttle_points()
    config = LearnConfig(exchange="scores", batch_points=None, n_workers=comm.size, iterations=10**6, seed=1)
    learning = Learning(set_up(comm, (shard(comm, x), shard(comm, z)), config))
    w = learning.state.parameters

    def ours() -> None:
        for _ in range(20):
            learning.step()

    found = alternate(comm, {"ours": ours, "tiles": lambda: alone(comm, lambda: tiled_step(x, z, w))}, runs)
    if comm.rank == 0:
        ours_ms, tiles_ms = 1e3 * found["ours"] / 20, 1e3 * found["tiles"]
        print(f"a step over all pairs of {len(x)} + {len(z)} points, {x.shape[1]} columns")
        print(f"  mpi_ustat, rows stay       {ours_ms:9.2f} ms   {ours_ms / tiles_ms:.4f} of its time")
        print(f"  NumPy, pairs in tiles      {tiles_ms:9.2f} ms", flush=True)


def shuttle_points() -> tuple[np.ndarray, np.ndarray]:
    """Return four fifths of Shuttle's anomalies and normal points, standardised."""
    serial, streams = SerialComm(), Streams(1)
    samples = read_samples(serial, DataSource(path="shuttle"), 1)
    x, z = (split(serial, rows, 0.2, streams, k)[0] for k, rows in enumerate((samples.x, samples.z)))
    scaling = standardisation(serial, (x, z))
    return scaling.apply(x), scaling.apply(z)


def optimum(comm: Any, path: str, runs: int, l2: float) -> None:
    """Compare the ranker of a penalty λ‖w‖²."""
    from sklearn.datasets import load_svmlight_file
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import LinearSVC

    rows, labels = load_svmlight_file(path)
    positive = labels > 0
    test = np.random.default_rng(1).random(len(labels)) < 0.2
    x, z = rows[positive & ~test], rows[~positive & ~test]
    generator = np.random.default_rng(2)
    n_pairs = 10**5
    kept: dict[str, np.ndarray] = {}
    cpu: dict[str, list[float]] = {"ours": [], "pairs": []}

    def ours() -> None:
        start = time.process_time()
        fit = learn(
            comm, own_rows(comm, x), own_rows(comm, z), loss="squared-hinge", l2=l2, exchange="scores",
            batch_points=None, optimizer="lbfgs", iterations=10**4, eval_every=10**4, init="zeros", seed=1,
        )  # fmt: skip
        assert fit.optimum is not None
        assert fit.optimum.reached
        cpu["ours"].append(sum(comm.allgather(time.process_time() - start)))
        kept["ours"], kept["evaluations"] = fit.parameters, np.array(fit.optimum.evaluations)

    def pairs() -> None:
        start = time.process_time()
        i, j = (generator.integers(each.shape[0], size=n_pairs) for each in (x, z))
        sign = np.where(np.arange(n_pairs) % 2, 1.0, -1.0)
        # LinearSVC minimises ‖w‖²/2 + C Σ φ: ours is the mean loss with λ‖w‖².
        svc = LinearSVC(
            C=1.0 / (2.0 * l2 * n_pairs), loss="squared_hinge", fit_intercept=False, tol=1e-6, max_iter=10**5
        )
        svc.fit((x[i] - z[j]).multiply(sign[:, None]).tocsr(), sign)
        cpu["pairs"].append(time.process_time() - start)
        kept["pairs"] = svc.coef_[0]

    before = peak_mib(comm)
    ours()
    peak = peak_mib(comm) - before
    found = alternate(comm, {"ours": ours, "pairs": lambda: alone(comm, pairs)}, runs)
    if comm.rank == 0:
        aucs = {name: roc_auc_score(positive[test], rows[test] @ kept[name]) for name in ("ours", "pairs")}
        print(f"squared hinge, {x.shape[0]} + {z.shape[0]} points, {rows.shape[1]} columns, λ = {l2:g}")
        ratio = found["ours"] / found["pairs"]
        name = f"mpi_ustat, all pairs, {kept['evaluations']} evaluations"
        print(f"  {name:42s} {found['ours']:7.2f} s   test AUC {aucs['ours']:.5f}   {ratio:.3f} of its time")
        print(f"  {'LinearSVC, 10^5 differences':42s} {found['pairs']:7.2f} s   test AUC {aucs['pairs']:.5f}")
        used = {name: statistics.median(each) for name, each in cpu.items()}
        ratio = used["ours"] / used["pairs"]
        print(f"  seconds of processors, all ranks' together: {used['ours']:.2f} and {used['pairs']:.2f}, {ratio:.3f}")
        print(f"  {peak:.0f} MiB added to the peak by our first run", flush=True)


def own_rows(comm: Any, rows: Any) -> Any:
    """Return this rank's share of the rows of a sparse matrix."""
    bounds = block_bounds(rows.shape[0], comm.size)
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libsvm", metavar="FILE")
    parser.add_argument("--l2", type=float, nargs="+", default=[1e-5, 1e-4, 1e-3], metavar="λ", help="of --libsvm")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    threadpoolctl.threadpool_limits(max(1, (os.cpu_count() or 1) // comm.size))  # of BLAS, as the command line does
    if comm.rank == 0:
        print(f"{comm.size} rank(s), {machine()}, medians of {options.runs} alternating runs", flush=True)
    if options.libsvm:
        for l2 in options.l2:
            optimum(comm, options.libsvm, options.runs, l2)
    else:
        steps(comm, options.runs)


if __name__ == "__main__":
    main()
