"""Which ranks keep what each worker found, and that nothing but the arrays of it depends on that."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.kernels.tuples import make_user_kernel
from mpi_ustat.mpi import limits
from mpi_ustat.schemes.partition import block_bounds

CASES: dict[str, dict[str, Any]] = {
    "all pairs": {},
    "sampled pairs": {"n_pairs": 5, "aggregate": "pooled"},
    "sampled, sizes by chance": {"n_pairs": 5, "scheme": "swor", "n_workers": 9},
    "values of workers tell the variance": {},
    "shards": {"scheme": "as-is", "n_rounds": 1, "reference": True},
}


def median_is_above_mean(a: Any, b: Any, c: Any) -> Any:
    """Return whether the median of three points is above their mean: of a kernel without closed form."""
    points = np.stack([a, b, c])[:, :, 0]
    return (np.median(points, axis=0) > points.mean(axis=0)).astype(np.float64)


median_is_above_mean.degrees = (3,)  # type: ignore[attr-defined]


def bits(found: Estimate) -> list[Any]:
    """Return all of an estimate but what each worker found."""
    assert found.error is not None
    numbers = [found.values, found.per_round, found.evaluations_per_round, found.rows_moved, found.error.covariance]
    told = found.n_evaluations, found.empty_workers, found.stderr, found.interval, found.flags, found.bias
    return [None if each is None else each.tobytes() for each in numbers] + [repr(told)]


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_the_same_whoever_keeps_what_each_worker_found(comm: Any, case: str) -> None:
    options = {"n_workers": 6, "n_rounds": 3, **CASES[case]}
    rng, found, samples = np.random.default_rng(2), [], []
    for n_rows in (60, 31):
        rows, bounds = rng.normal(size=n_rows), block_bounds(n_rows, comm.size)
        samples.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
    kernel = None
    if case.startswith("values"):
        kernel, samples = make_user_kernel(median_is_above_mean, 1), samples[:1]
    blocks = None
    if case == "shards":
        mine = block_bounds(6, comm.size)
        n_mine = int(mine[comm.rank + 1] - mine[comm.rank])
        blocks = [np.diff(block_bounds(len(each), n_mine)) for each in samples]
    for per_worker, on_every_rank in ((True, True), (True, False), (False, True)):
        config = EstimateConfig(seed=1, per_worker=per_worker, **options)
        problem = set_up(comm, samples, config, kernel=kernel, block_sizes=blocks, on_every_rank=on_every_rank)
        estimation = Estimation(problem)
        list(run(estimation))
        found.append(bits(result := estimation.result()))
        has = per_worker and (on_every_rank or comm.rank == 0 or case == "shards")
        assert (
            result.per_worker.shape
            == result.evaluations.shape
            == ((config.n_rounds, config.n_workers) if has else (0, 0))
        )
        assert not has or result.evaluations.sum() == result.n_evaluations == result.evaluations_per_round.sum()
    assert found[0] == found[1] == found[2]
    if case.startswith("values"):
        assert result.error is not None and result.error.method == "workers"


def test_what_would_not_fit_is_refused_by_the_name_of_the_option(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """10⁴ workers and 10⁴ rounds: with what each worker found some 5 GB; without, nothing to speak of."""
    monkeypatch.setattr(limits, "memory_here", lambda: 2 * 10**9)
    monkeypatch.setattr(limits, "ranks_on_this_host", lambda comm: 1)
    rows = np.arange(10_000.0) if comm.rank == 0 else np.empty(0)
    config = EstimateConfig(n_workers=10_000, n_rounds=10_000, seed=1)
    told = "what 10000 worker(s) find in 10000 round(s) would take about 4.8"
    with pytest.raises(UserError, match=rf"{re.escape(told)}.*\(per_worker=False\), or ask for fewer n_rounds="):
        set_up(comm, (rows, rows), config)
    set_up(comm, (rows, rows), replace(config, per_worker=False))


def test_what_all_rounds_share_is_there_once() -> None:
    rng = np.random.default_rng(1)
    found = estimate(SerialComm(), rng.normal(size=40), rng.normal(size=30), n_workers=10, n_rounds=50, seed=1)
    assert found.evaluations.strides[0] == 0 and not found.evaluations.flags.writeable
    assert (found.evaluations == 12).all() and found.evaluations.shape == (50, 10)
