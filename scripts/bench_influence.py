"""Statistics of weighted, clustered, grouped and censored points, against what finds the value alone on one machine.

    mpiexec -n 2 python scripts/bench_influence.py

All start from arrays in memory: ours from each rank's shard, the others, on rank 0 alone, from the whole. Cases:

- ``weighted``: AUC of weighted scores with the standard error of clusters, against scikit-learn's `roc_auc_score` with
  `sample_weight`, which gives none;
- ``groups``: the AUC of each group and their mean, against `roc_auc_score` group by group (a single run on a tenth of
  the groups, times ten), with pandas' `groupby.apply` where it is installed, and against one `lexsort` in NumPy;
- ``concordance``: with standard error, against lifelines' `concordance_index`, which gives none. Where lifelines isn't
  installed the line is left out, saying so (a single run on a tenth of the rows, times ten);
- ``columns`` and ``rare``: AUCs of three columns of scores with their covariance, against three runs of a column each.

Printed are medians of alternating runs, ratios, and how many times the bytes of a rank's shard the peak memory of our
first run adds. That is a process's peak: run a case alone to see its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from _bench import alone, alternate, machine, peak_mib, shard
from mpi4py import MPI
from sklearn.metrics import roc_auc_score

from mpi_ustat import estimate

TENTH = 10


def compare(
    comm: Any,
    title: str,
    ours: Callable[[], object],
    others: Mapping[str, Callable[[], object]],
    runs: int,
    own_bytes: int,
    tenths: Mapping[str, Callable[[], object]] | None = None,
) -> None:
    """Time all and print the comparison; of `tenths`, a single run each, ten times the seconds.  Collective."""
    found: dict[str, object] = {}
    peaks: list[float] = []

    def here() -> None:
        found["mpi_ustat"] = ours()
        peaks.append(peak_mib(comm))

    def on_rank_0(name: str, run: Callable[[], object]) -> Callable[[], None]:
        return lambda: alone(comm, lambda: found.update({name: run()}))

    before = peak_mib(comm)
    medians = alternate(comm, {"mpi_ustat": here} | {name: on_rank_0(name, run) for name, run in others.items()}, runs)
    for name, run in (tenths or {}).items():
        start = time.perf_counter()
        on_rank_0(name, run)()
        medians[name] = TENTH * (time.perf_counter() - start)
    own = max(comm.allgather(own_bytes)) / 2**20
    if comm.rank == 0:
        print(title)
        for name, seconds in medians.items():
            ratio = "" if name == "mpi_ustat" else f"   ours {medians['mpi_ustat'] / seconds:.3f} of its time"
            print(f"  {name:40s} {1e3 * seconds:10.1f} ms   {found[name]}{ratio}")
        print(f"  {(peaks[0] - before) / own:.1f} times the shard of {own:.1f} MiB added to the peak", flush=True)


def two_classes(n: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Return labels, two fifths of which are positive, and normal scores."""
    generator = np.random.default_rng(1)
    positive = generator.random(n) < 0.4
    return positive, generator.normal(size=n) + positive, generator


def by_class(comm: Any, positive: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return this rank's shares of the positives' values and of the negatives'."""
    return shard(comm, values[positive]), shard(comm, values[~positive])


def weighted(comm: Any, n: int, runs: int) -> None:
    """Compare the weighted AUC."""
    positive, scores, generator = two_classes(n)
    weights, clusters = generator.exponential(size=n), generator.integers(0, n // 10, n)
    x, z = by_class(comm, positive, scores)
    w, c = by_class(comm, positive, weights), by_class(comm, positive, clusters)

    def ours() -> object:
        found = estimate(comm, x, z, complete=True, weights=w, clusters=c)
        return found.value, found.stderr

    others = {"roc_auc_score, sample_weight": lambda: roc_auc_score(positive, scores, sample_weight=weights)}
    own = sum(each.nbytes for each in (x, z, *w, *c))
    compare(comm, f"{n} weighted scores in {n // 10} clusters", ours, others, runs, own)


def groups(comm: Any, n: int, runs: int) -> None:
    """Compare the mean of the AUCs of groups."""
    positive, scores, generator = two_classes(n)
    of = generator.integers(0, n // 10, n)
    x, z = by_class(comm, positive, scores)
    g = by_class(comm, positive, of)

    def ours() -> object:
        found = estimate(comm, x, z, complete=True, groups=g)
        return found.value, found.stderr

    some = of < n // 10 // TENTH
    few = of[some], scores[some], positive[some]
    tenths: dict[str, Callable[[], object]] = {"roc_auc_score group by group": lambda: by_loop(*few)}
    if find_spec("pandas"):
        tenths["pandas groupby.apply"] = lambda: by_pandas(*few)
    others = {"lexsort": lambda: by_lexsort(of, scores, positive)}
    own = sum(each.nbytes for each in (x, z, *g))
    compare(comm, f"{n} scores in {n // 10} groups", ours, others, runs, own, tenths)


def by_loop(of: np.ndarray, scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the mean AUC of the groups that have both classes, one after the other."""
    order = np.argsort(of, kind="stable")
    cuts = np.flatnonzero(np.diff(of[order])) + 1
    pairs = zip(np.split(positive[order], cuts), np.split(scores[order], cuts), strict=True)
    return float(np.mean([roc_auc_score(y, s) for y, s in pairs if y.any() and not y.all()]))


def by_pandas(of: np.ndarray, scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the same by pandas."""
    import pandas

    frame = pandas.DataFrame({"of": of, "s": scores, "y": positive})
    each = frame.groupby("of")[["s", "y"]].apply(
        lambda group: roc_auc_score(group.y, group.s) if 0 < group.y.sum() < len(group) else np.nan
    )
    return float(each.mean())


def by_lexsort(of: np.ndarray, scores: np.ndarray, positive: np.ndarray) -> float:
    """Return the same from a single sort, without any loop."""
    order = np.lexsort((scores, of))
    of, scores, negative = of[order], scores[order], (~positive[order]).astype(float)
    new_group = np.append(True, of[1:] != of[:-1])
    new_run = new_group | np.append(True, scores[1:] != scores[:-1])
    firsts, starts = np.flatnonzero(new_group), np.flatnonzero(new_run)
    run, group = np.cumsum(new_run) - 1, np.cumsum(new_group) - 1
    at = np.add.reduceat(negative, starts)
    below = np.cumsum(at) - at
    beaten = below[run] - below[run[firsts]][group] + 0.5 * at[run]
    won = np.add.reduceat(beaten * (1 - negative), firsts)
    m = np.add.reduceat(negative, firsts)
    pairs = m * (np.diff(firsts, append=len(of)) - m)
    return float((won[pairs > 0] / pairs[pairs > 0]).mean())


def concordance(comm: Any, n: int, runs: int) -> None:
    """Compare Harrell's index."""
    generator = np.random.default_rng(1)
    risk = generator.normal(size=n)
    lives, censored = generator.exponential(np.exp(-risk)), generator.exponential(1.5, n)
    times, events = np.minimum(lives, censored), lives <= censored
    rows = shard(comm, np.column_stack([times, events, risk]))

    def ours() -> object:
        found = estimate(comm, rows, kernel="concordance", complete=True)
        return found.value, found.stderr

    tenths: dict[str, Callable[[], object]] = {}
    few = n // TENTH
    if find_spec("lifelines"):
        from lifelines.utils import concordance_index

        tenths["lifelines' concordance_index"] = lambda: concordance_index(times[:few], -risk[:few], events[:few])
    elif comm.rank == 0:
        print("lifelines isn't installed: nothing to compare concordance with")
    compare(comm, f"concordance of {n} rows", ours, {}, runs, rows.nbytes, tenths)


def columns(comm: Any, n: int, m: int, runs: int) -> None:
    """Compare the AUCs of three columns with those of each."""
    generator = np.random.default_rng(1)
    x, z = shard(comm, generator.normal(1, 1, (n, 3))), shard(comm, generator.normal(0, 1, (m, 3)))
    alone_x, alone_z = (np.ascontiguousarray(each.T) for each in (x, z))

    def ours() -> object:
        found = estimate(comm, x, z, complete=True, columns=("a", "b", "c"))
        return float(found.value[0]), float(found.stderr[0])

    singly = "three runs of a column"
    found: dict[str, object] = {}

    def three() -> None:
        each = [estimate(comm, a, b, complete=True) for a, b in zip(alone_x, alone_z, strict=True)]
        found[singly] = each[0].value, each[0].stderr

    peaks: list[float] = []

    def here() -> None:
        found["mpi_ustat"] = ours()
        peaks.append(peak_mib(comm))

    before, own = peak_mib(comm), (x.nbytes + z.nbytes) / 2**20
    medians = alternate(comm, {"mpi_ustat": here, singly: three}, runs)
    if comm.rank == 0:
        print(f"{n} and {m} points, three columns of scores")
        for name, seconds in medians.items():
            print(f"  {name:40s} {1e3 * seconds:10.1f} ms   {found[name]}")
        print(f"  ours {medians['mpi_ustat'] / medians[singly]:.2f} of their time")
        print(f"  {(peaks[0] - before) / own:.1f} times the shard of {own:.1f} MiB added to the peak", flush=True)


def main() -> None:
    """Print the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comm = MPI.COMM_WORLD
    cases: dict[str, Callable[[int, int], None]] = {
        "weighted": lambda n, runs: weighted(comm, n, runs),
        "groups": lambda n, runs: groups(comm, n, runs),
        "concordance": lambda n, runs: concordance(comm, n, runs),
        "columns": lambda n, runs: columns(comm, n * 2 // 5, n * 3 // 5, runs),
        "rare": lambda n, runs: columns(comm, max(2, n * 2211 // 567498), n, runs),
    }
    parser.add_argument("--case", choices=cases, action="append", help="repeatable; default: all")
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if comm.rank == 0:
        print(f"{machine()}; P = {comm.size}", flush=True)
    for case in options.case or cases:
        cases[case](options.rows, options.runs)


if __name__ == "__main__":
    main()
