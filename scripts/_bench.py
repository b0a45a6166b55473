"""What the benchmarks share: alternating timed runs, medians, and a line about the machine."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np


def alternate(comm: Any, contenders: Mapping[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Run the contenders in turn, after a warm-up each, and return each one's median seconds.  Collective.

    Machines are noisy and drift; alternating gives all contenders the same weather. A run's time is that of its
    slowest rank.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(runs + 1):
        for name, run in contenders.items():
            comm.barrier()
            start = time.perf_counter()
            run()
            took = max(comm.allgather(time.perf_counter() - start))
            if i > 0:
                seconds[name].append(took)
    return {name: statistics.median(each) for name, each in seconds.items()}


def alone(comm: Any, run: Callable[[], object]) -> None:
    """Run something on rank 0 while the other ranks sleep, not poll: it has the machine to itself.  Collective."""
    if comm.rank == 0:
        run()
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


def machine() -> str:
    """Describe the processor: sort-based numbers need AVX2 or AVX-512."""
    core = "numpy._core" if int(np.__version__.split(".")[0]) > 1 else "numpy.core"
    features = [name for name, has in import_module(f"{core}._multiarray_umath").__cpu_features__.items() if has]
    wanted = [name for name in ("AVX2", "AVX512F", "AVX512_SKX", "ASIMD") if name in features]
    return f"{platform.machine()}, {os.cpu_count()} cores, {' '.join(wanted) or 'no AVX2'}, numpy {np.__version__}"


def peak_mib(comm: Any) -> float:
    """Return the largest peak resident memory of any rank so far, in MiB.  Collective."""
    return float(max(comm.allgather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)))


def shard(comm: Any, values: np.ndarray) -> np.ndarray:
    """Return a copy of this rank's contiguous share of an array that all ranks hold."""
    return np.array_split(values, comm.size)[comm.rank].copy()
