"""Estimates over rounds: the same bits at every number of ranks, the values of brute force, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shards

from mpi_ustat import Estimate, SerialComm, UserError, estimate
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.mpi.runtime import hosted_workers
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES

Floats = NDArray[np.float64]

N_WORKERS = 10
SEED = 20190916


# --- samples, and ways to spread them over ranks


def scores(n: int, m: int) -> tuple[Floats, Floats]:
    """Two samples of numbers, half of them with all their bits, half of them on a grid, so that there are ties."""
    rng = np.random.default_rng([n, m])
    x, z = rng.normal(0.4, 1.0, n), rng.normal(0.0, 1.0, m)
    return tuple(np.where(rng.random(len(v)) < 0.5, np.round(v, 1), v) for v in (x, z))


def vectors(n: int, m: int, d: int = 5) -> tuple[Floats, Floats]:
    rng = np.random.default_rng([n, m, d])
    return rng.normal(0.4, 1.0, (n, d)), rng.normal(0.0, 1.0, (m, d))


def hosted_shards(
    comm: Any, samples: tuple[Floats, Floats], sizes: tuple[list[int], list[int]]
) -> tuple[list[Floats], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rows of the workers that this rank hosts, and these workers' block sizes."""
    hosted = hosted_workers(len(sizes[0]), comm.size, comm.rank)
    local, local_sizes = [], []
    for rows, each in zip(samples, sizes, strict=True):
        bounds = np.concatenate([[0], np.cumsum(each)])
        local.append(rows[bounds[hosted.start] : bounds[hosted.stop]])
        local_sizes.append(np.array(each[hosted.start : hosted.stop], dtype=np.int64))
    return local, (local_sizes[0], local_sizes[1])


# --- kernels


def laplace(x: Floats, z: Floats) -> Floats:
    return np.exp(-np.abs(x - z.T))


def gaussian(x: Floats, z: Floats) -> Floats:
    """A kernel of vectors, whose inner products are BLAS's."""
    squares = np.einsum("ij,ij->i", x, x)[:, None] + np.einsum("ij,ij->i", z, z)[None, :]
    return np.exp(-0.1 * (squares - 2.0 * x @ z.T))


KERNELS: dict[str, tuple[Any, dict[str, Any], Callable[..., tuple[Floats, Floats]]]] = {
    "auc, ties half": ("auc", {"ties": "half"}, scores),
    "auc, ties strict": ("auc", {"ties": "strict"}, scores),
    "product": ("product", {}, scores),
    "product of vectors": ("product", {}, vectors),
    "gini": ("gini", {}, scores),
    "user's": (laplace, {"tile": 3}, scores),
    "user's of vectors": (gaussian, {}, vectors),
}

MODES: dict[str, dict[str, Any]] = {
    "complete": {"complete": True},
    "permutation": {"n_rounds": 3, "shuffle": "permutation"},
    "matrix": {"n_rounds": 3, "shuffle": "matrix"},
    "incomplete": {"n_rounds": 2, "n_pairs": 17},
    "incomplete by matrix": {"n_pairs": 5, "shuffle": "matrix", "aggregate": "pooled"},
    "pooled, with reference": {"n_rounds": 2, "aggregate": "pooled", "reference": True},
    "the smaller sample only": {"n_rounds": 3, "move": "smaller"},
    "swor": {"n_rounds": 2, "scheme": "swor"},
    "prop-swr": {"n_rounds": 2, "scheme": "prop-swr"},
    "fixed-shuffle": {"n_rounds": 3, "scheme": "fixed-shuffle"},
}


def matrix_of_values(name: str, x: Floats, z: Floats) -> Floats:
    """Brute force: h for every pair, shape (n, m)."""
    kernel, options, _ = KERNELS[name]
    if kernel == "auc":
        return (z < x[:, None]) + (0.5 if options["ties"] == "half" else 0.0) * (z == x[:, None])
    if kernel == "product":
        return np.array([[math.fsum(np.atleast_1d(a * b)) for b in z] for a in x])
    if kernel == "gini":
        return np.abs(x[:, None] - z)
    if kernel is laplace:
        return np.array([[math.exp(-abs(a - b)) for b in z] for a in x])
    return np.array([[math.exp(-0.1 * math.fsum((a - b) ** 2)) for b in z] for a in x])


def bits(result: Estimate) -> dict[str, Any]:
    """All of an estimate that must not depend on the number of ranks, to the last bit."""
    arrays = ("per_round", "per_worker", "evaluations", "rows_moved")
    return {
        "value": result.value.hex(),
        "complete_value": None if result.complete_value is None else result.complete_value.hex(),
        **{name: getattr(result, name).tobytes() for name in arrays},
        **{name: getattr(result, name) for name in ("n", "m", "n_evaluations", "empty_workers", "route", "config")},
    }


# --- the same bits at every number of ranks


SHARDS = (((47, 23), "uneven"), ((10, 61), "apart"), ((40, 30), "even"))
"""Sizes of the samples, of which 10 divides none, one, or both, and ways to spread them."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_the_number_of_ranks_and_the_shards_change_no_bit(comm: Any, name: str, mode: str) -> None:
    kernel, options, draw = KERNELS[name]
    options = {**options, **MODES[mode], "n_workers": N_WORKERS, "seed": SEED}
    # In turns: every kernel and every mode gets all of them.
    sizes, spread = SHARDS[(list(KERNELS).index(name) + list(MODES).index(mode)) % len(SHARDS)]
    samples = draw(*sizes)
    alone = bits(estimate(SerialComm(), *samples, kernel, **options))
    here = bits(estimate(comm, *shards(comm, samples, spread), kernel, **options))
    assert here == alone
    assert comm.allgather(here) == [alone] * comm.size


@pytest.mark.parametrize(("sizes", "spread"), [((1, 1), "apart"), ((3, 7), "uneven"), ((40, 39), "even")], ids=str)
def test_a_partition_in_as_many_blocks_as_can_be_changes_no_bit_either(
    comm: Any, sizes: tuple[int, int], spread: str
) -> None:
    samples = scores(*sizes)
    for kernel, mode in itertools.product(("auc", laplace), MODES.values()):
        options = {**mode, "n_workers": min(sizes), "seed": 3}
        alone = estimate(SerialComm(), *samples, kernel, **options)
        assert bits(estimate(comm, *shards(comm, samples, spread), kernel, **options)) == bits(alone)


@pytest.mark.parametrize("name", KERNELS)
def test_as_is_blocks_give_the_same_bits_at_every_number_of_ranks(comm: Any, name: str) -> None:
    kernel, options, draw = KERNELS[name]
    sizes = ([1, 4, 2, 9, 3, 1, 5, 2, 2, 8], [3, 1, 1, 2, 7, 4, 1, 1, 6, 2])
    samples = draw(37, 28)
    blocks = (np.array(sizes[0]), np.array(sizes[1]))
    for more in ({}, {"n_pairs": 6}, {"aggregate": "pooled"}):
        asked = {**options, **more, "scheme": "as-is", "n_workers": N_WORKERS, "seed": SEED}
        alone = estimate(SerialComm(), *samples, kernel, block_sizes=blocks, **asked)
        local, local_sizes = hosted_shards(comm, samples, sizes)
        here = estimate(comm, *local, kernel, block_sizes=local_sizes, **asked)
        assert bits(here) == bits(alone)
        assert here.rows_moved.tolist() == here.bytes_moved.tolist() == [0]


def test_an_empty_shard_need_not_know_how_many_columns_the_others_have(comm: Any) -> None:
    samples = vectors(12, 9)
    for kernel, mode in itertools.product(("product", gaussian), MODES.values()):
        x, z = shards(comm, samples, "apart")
        x, z = (rows if len(rows) else np.empty(0) for rows in (x, z))
        options = {**mode, "n_workers": 4, "seed": 8}
        here = estimate(comm, x, z, kernel, **options)
        assert bits(here) == bits(estimate(SerialComm(), *samples, kernel, **options))


def test_whole_numbers_and_lists_are_points_too(comm: Any) -> None:
    x, z = [3, 1, 4, 1, 5], [2, 7, 1]
    mine = (x, z) if comm.rank == 0 else ([], [])
    here = estimate(comm, *mine, "gini", n_workers=3, seed=0)
    alone = estimate(SerialComm(), np.array(x, dtype=float), np.array(z, dtype=float), "gini", n_workers=3, seed=0)
    assert bits(here) == bits(alone)


@pytest.mark.parametrize("name", [name for name, (_, _, draw) in KERNELS.items() if draw is scores])
def test_a_single_column_is_the_same_as_a_flat_array(comm: Any, name: str) -> None:
    kernel, options, _ = KERNELS[name]
    samples = scores(23, 17)
    columns = [rows[:, None] for rows in shards(comm, samples, "even")]
    for mode in MODES.values():
        asked = {**options, **mode, "n_workers": 5, "seed": 4}
        alone = estimate(SerialComm(), *samples, kernel, **asked)
        assert bits(estimate(comm, *columns, kernel, **asked)) == bits(alone)


def test_the_callers_arrays_stay_as_they_are_and_may_be_read_only(comm: Any) -> None:
    for kernel, mode in itertools.product(("auc", laplace), MODES.values()):
        x, z = (rows.copy() for rows in shards(comm, scores(31, 24), "even"))
        before = x.tobytes(), z.tobytes()
        x.flags.writeable = z.flags.writeable = False
        estimate(comm, x, z, kernel, **mode, n_workers=6, seed=1)
        assert (x.tobytes(), z.tobytes()) == before


# --- the values


def members(blocks: Blocks, n_rows: int) -> list[NDArray[np.int64]]:
    """The row numbers of each worker's block."""
    if isinstance(blocks, Ordered):
        assert blocks.order is not None
        return [blocks.order[i:j].copy() for i, j in itertools.pairwise(blocks.bounds.tolist())]
    workers = blocks.workers_of(0, n_rows)
    return [np.flatnonzero(workers == i) for i in range(len(blocks.bounds) - 1)]


PARTITIONS: dict[str, dict[str, str]] = {
    "permutation": {"scheme": "prop-swor", "shuffle": "permutation"},
    "matrix": {"scheme": "prop-swor", "shuffle": "matrix"},
    "the smaller sample only": {"scheme": "prop-swor", "move": "smaller"},
    "swor": {"scheme": "swor"},
    "prop-swr": {"scheme": "prop-swr"},
    "fixed-shuffle": {"scheme": "fixed-shuffle"},
}


@pytest.mark.parametrize("how", PARTITIONS)
@pytest.mark.parametrize("n_pairs", [None, 17])
@pytest.mark.parametrize("name", KERNELS)
def test_every_workers_value_is_the_average_over_its_pairs(name: str, n_pairs: int | None, how: str) -> None:
    kernel, options, draw = KERNELS[name]
    n, m, n_rounds = 47, 23, 3
    samples = draw(n, m)
    h = matrix_of_values(name, *samples)
    options = {**options, **PARTITIONS[how], "n_rounds": n_rounds, "n_pairs": n_pairs, "seed": SEED}
    averaged, pooled = (
        estimate(SerialComm(), *samples, kernel, n_workers=N_WORKERS, aggregate=aggregate, **options)
        for aggregate in ("mean", "pooled")
    )

    streams = Streams(SEED)
    drawn = {**PARTITIONS[how], "scheme": SCHEMES[PARTITIONS[how]["scheme"]]}
    partition = Partition(sizes=(n, m), n_workers=N_WORKERS, streams=streams, **drawn)
    values = np.full((n_rounds, N_WORKERS), np.nan)
    counts, weights = (np.zeros((n_rounds, N_WORKERS), dtype=int) for _ in range(2))
    for t in range(n_rounds):
        of_x, of_z = (members(b, size) for b, size in zip(partition.round(t), (n, m), strict=True))
        if how != "prop-swr":
            assert sorted(np.concatenate(of_x).tolist()) == list(range(n))
            assert sorted(np.concatenate(of_z).tolist()) == list(range(m))
        for i, (rows, columns) in enumerate(zip(of_x, of_z, strict=True)):
            local = h[np.ix_(rows, columns)].ravel()
            weights[t, i] = len(local)
            if n_pairs is not None and len(local):
                k, j = streams.open("pairs", round=t, worker=i).pairs(len(rows), len(columns), n_pairs)
                local = h[rows[k], columns[j]]
            counts[t, i] = len(local)
            if len(local):
                values[t, i] = float(Fraction(math.fsum(local)) / len(local))

    for result in (averaged, pooled):
        assert np.array_equal(result.evaluations, counts)
        assert result.n_evaluations == counts.sum()
        assert (result.n, result.m, result.complete_value) == (n, m, None)
        assert result.empty_workers == np.count_nonzero(counts == 0)
        if kernel == "auc":
            np.testing.assert_array_equal(result.per_worker, values)
        np.testing.assert_allclose(result.per_worker, values, rtol=0, atol=1e-13)
    of_rounds = np.nanmean(values, axis=1)  # swor's worker without a pair is left out
    np.testing.assert_allclose(averaged.per_round, of_rounds, rtol=0, atol=1e-13)
    np.testing.assert_allclose(averaged.value, of_rounds.mean(), rtol=0, atol=1e-13)
    values[np.isnan(values)] = 0.0
    np.testing.assert_allclose(pooled.per_round, np.average(values, axis=1, weights=weights), rtol=0, atol=1e-13)
    np.testing.assert_allclose(pooled.value, np.average(values, weights=weights), rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", KERNELS)
def test_one_worker_alone_has_all_pairs(name: str) -> None:
    kernel, options, draw = KERNELS[name]
    samples = draw(19, 13)
    result = estimate(SerialComm(), *samples, kernel, n_workers=1, n_rounds=2, reference=True, seed=0, **options)
    expected = matrix_of_values(name, *samples).mean()
    assert result.complete_value == pytest.approx(expected, rel=1e-13)
    assert result.per_round.tolist() == pytest.approx([expected] * 2, rel=1e-13)
    assert result.n_evaluations == 2 * 19 * 13


def test_each_round_has_a_partition_of_its_own(comm: Any) -> None:
    result = estimate(comm, *shards(comm, scores(60, 50), "even"), "gini", n_workers=5, n_rounds=6, seed=1)
    assert len(set(result.per_round.tolist())) == 6
    first = estimate(comm, *shards(comm, scores(60, 50), "even"), "gini", n_workers=5, n_rounds=2, seed=1)
    assert first.per_round.tobytes() == result.per_round[:2].tobytes()


def test_pairs_are_sampled_uniformly_with_replacement() -> None:
    """The kernel's value 4^(4k+l) tells which pair (k, l) it is of; a sum of three shows them as digits to base 4."""
    from scipy.stats import chi2

    x, z = 4.0 ** (4 * np.arange(3)), 4.0 ** np.arange(4)
    n_rounds, n_pairs, n_cells = 2000, 3, 12
    result = estimate(SerialComm(), x, z, "product", n_workers=1, n_rounds=n_rounds, n_pairs=n_pairs, seed=5)
    sums = np.round(result.per_round * n_pairs).astype(np.int64)
    drawn = (sums[:, None] >> (2 * np.arange(n_cells))) & 3
    assert (drawn.sum(axis=1) == n_pairs).all()
    expected = n_rounds * n_pairs / n_cells
    statistic = ((drawn.sum(axis=0) - expected) ** 2 / expected).sum()
    assert 1e-6 < chi2.sf(statistic, n_cells - 1) < 1 - 1e-6
    # Without replacement no round would have a pair twice; with it 1 - 11·10/12² of them do.
    share = 1 - 11 * 10 / 12**2
    repeats = np.count_nonzero(drawn.max(axis=1) > 1)
    assert abs(repeats - n_rounds * share) < 5 * math.sqrt(n_rounds * share * (1 - share))


def test_moved_rows_and_bytes_are_counted(comm: Any) -> None:
    n, m, d, n_workers = 47, 23, 5, 10
    samples = vectors(n, m, d)
    result = estimate(
        comm, *shards(comm, samples, "even"), "product", n_workers=n_workers, n_rounds=3, shuffle="permutation", seed=2
    )
    partition = Partition(SCHEMES["prop-swor"], (n, m), n_workers, Streams(2), shuffle="permutation")
    rows_moved, bytes_moved = [], []
    for t in range(3):
        workers = between_ranks = 0
        for blocks, size in zip(partition.round(t), (n, m), strict=True):
            home = np.repeat(np.arange(n_workers), np.diff(block_bounds(size, n_workers)))
            rank_of_row = np.repeat(np.arange(comm.size), np.diff(block_bounds(size, comm.size)))
            for i, rows in enumerate(members(blocks, size)):
                host = next(r for r in range(comm.size) if i in hosted_workers(n_workers, comm.size, r))
                workers += np.count_nonzero(home[rows] != i)
                between_ranks += np.count_nonzero(rank_of_row[rows] != host)
        rows_moved.append(workers)
        bytes_moved.append(8 * d * between_ranks)
    assert result.rows_moved.tolist() == rows_moved
    assert result.bytes_moved.tolist() == bytes_moved
    assert (min(bytes_moved) > 0) == (comm.size > 1)


def test_the_summary_says_what_was_done(comm: Any) -> None:
    mine = shards(comm, scores(20, 16), "even")
    result = estimate(comm, *mine, ties="strict", n_workers=4, n_rounds=3, n_pairs=5, aggregate="pooled", seed=9)
    summary = result.summary()
    assert {
        "estimate": result.value,
        "kernel": "auc",
        "ties": "strict",
        "scheme": "prop-swor",
        "aggregate": "pooled",
        "complete": False,
        "n": 20,
        "m": 16,
        "n_workers": 4,
        "n_ranks": comm.size,
        "n_rounds": 3,
        "n_pairs": 60,
        "seed": 9,
        "per_round": result.per_round.tolist(),
        "bytes_moved": int(result.bytes_moved.sum()),
    }.items() <= summary.items()
    assert {"partition", "exchange", "evaluate", "reduce"} <= summary["seconds"].keys()
    assert all(seconds >= 0 for seconds in summary["seconds"].values())
    assert comm.allgather(summary) == [summary] * comm.size
    assert estimate(comm, *mine, "gini", seed=0, n_workers=2).summary()["ties"] is None


def test_a_kernel_that_is_made_has_the_ties_it_was_made_with(comm: Any) -> None:
    mine = shards(comm, scores(30, 20), "even")
    named = estimate(comm, *mine, kernel_options={"ties": "strict"}, n_workers=2, seed=0)
    made = estimate(comm, *mine, AUC("strict"), n_workers=2, seed=0)
    assert named.config.ties == made.config.ties == "strict"
    assert named.value == made.value < estimate(comm, *mine, n_workers=2, seed=0).value  # some of these scores tie
    with pytest.raises(UserError, match="ties is 'half', which the kernel auc was not made with: leave it out"):
        estimate(comm, *mine, AUC("strict"), ties="half", n_workers=2, seed=0)
    with pytest.raises(UserError, match="ties is 'half', and 'strict' among the kernel's options: give one of them"):
        estimate(comm, *mine, ties="half", kernel_options={"ties": "strict"}, n_workers=2, seed=0)


# --- as is


def two_ranks(comm: Any, **options: Any) -> Estimate:
    """Worker 0 has positives 1, 2 and negatives 3, 4; worker 1 has 10 and 5, 6, 7."""
    samples = np.array([1.0, 2.0, 10.0]), np.array([3.0, 4.0, 5.0, 6.0, 7.0])
    local, sizes = hosted_shards(comm, samples, ([2, 1], [2, 3]))
    return estimate(comm, *local, "auc", n_workers=2, block_sizes=sizes, seed=0, **options)


def test_local_means_pooled_pairs_and_all_pairs_are_three_statistics(comm: Any) -> None:
    mean = two_ranks(comm, scheme="as-is")
    pooled = two_ranks(comm, scheme="as-is", aggregate="pooled")
    complete = two_ranks(comm, complete=True)
    assert (mean.value, pooled.value, complete.value) == (1 / 2, 3 / 7, 1 / 3)
    assert (mean.n_evaluations, pooled.n_evaluations, complete.n_evaluations) == (7, 7, 15)
    assert mean.per_worker.tolist() == pooled.per_worker.tolist() == [[0.0, 1.0]]
    told = [tuple(each.summary()[key] for key in ("scheme", "aggregate", "complete")) for each in (mean, pooled)]
    assert told == [("as-is", "mean", False), ("as-is", "pooled", False)]
    assert [complete.summary()[key] for key in ("scheme", "aggregate", "complete")] == [None, None, True]


def test_as_is_takes_each_ranks_arrays_for_one_workers(comm: Any) -> None:
    x, z = np.arange(3.0) + comm.rank, np.full(2 + comm.rank, 1.5)
    result = estimate(comm, x, z, scheme="as-is", seed=0)
    assert result.config.n_workers == comm.size
    expected = [np.mean(z[0] < np.arange(3.0) + rank) for rank in range(comm.size)]
    assert result.per_worker.tolist() == [expected]
    assert result.evaluations.tolist() == [[3 * (2 + rank) for rank in range(comm.size)]]
    with pytest.raises(UserError, match=rf"use {comm.size} workers or pass block_sizes"):
        estimate(comm, x, z, scheme="as-is", n_workers=comm.size + 1, seed=0)


@pytest.mark.parametrize("change", ["too small", "too large", "too many"])
def test_block_sizes_that_are_not_the_ranks_are_refused(comm: Any, change: str) -> None:
    local, (x_sizes, z_sizes) = hosted_shards(comm, scores(20, 16), ([2] * 10, [1] * 4 + [2] * 6))
    if comm.rank == comm.size - 1:
        if change == "too many":
            x_sizes, z_sizes = np.append(x_sizes, 0), np.append(z_sizes, 0)
        else:
            x_sizes = x_sizes + (1 if change == "too large" else -1)
    with pytest.raises(UserError):
        estimate(comm, *local, scheme="as-is", n_workers=10, block_sizes=(x_sizes, z_sizes), seed=0)


def test_a_worker_without_pairs_is_refused_or_skipped_and_counted(comm: Any) -> None:
    samples = np.array([1.0, 5.0, 3.0]), np.array([2.0, 4.0, 3.0, 0.0])
    local, sizes = hosted_shards(comm, samples, ([2, 0, 0, 1], [2, 1, 0, 1]))
    options: dict[str, Any] = {"n_workers": 4, "scheme": "as-is", "block_sizes": sizes, "seed": 0}
    with pytest.raises(UserError, match=r"^2 of 4 workers have no pair \(the first is worker 1\): .*prop-swor.*skip"):
        estimate(comm, *local, **options)
    result = estimate(comm, *local, empty="skip", **options)
    assert result.value == (2 / 4 + 1) / 2
    assert result.empty_workers == result.summary()["empty_workers"] == 2
    assert result.evaluations.tolist() == [[4, 0, 0, 1]]
    np.testing.assert_array_equal(result.per_worker, [[0.5, np.nan, np.nan, 1.0]])
    assert estimate(comm, *local, empty="skip", aggregate="pooled", **options).value == 3 / 5
    assert estimate(comm, *local, empty="zero", **options).value == (2 / 4 + 1) / 4


def test_nothing_is_left_when_all_workers_are_skipped(comm: Any) -> None:
    samples = np.array([1.0]), np.array([2.0])
    local, sizes = hosted_shards(comm, samples, ([1, 0], [0, 1]))
    with pytest.raises(UserError, match="no worker has a pair"):
        estimate(comm, *local, n_workers=2, scheme="as-is", block_sizes=sizes, empty="skip", seed=0)


def test_samples_that_lie_on_different_ranks_leave_no_worker_without_pairs(comm: Any) -> None:
    mine = shards(comm, scores(50, 50), "apart")
    if comm.size > 1:
        with pytest.raises(UserError, match="no worker has a pair: repartition"):
            estimate(comm, *mine, scheme="as-is", seed=0)
    result = estimate(comm, *mine, n_rounds=2, n_workers=comm.size, seed=0)
    assert result.evaluations.min() >= (50 // comm.size) ** 2
    assert result.empty_workers == 0


# --- the seed


def test_a_seed_left_out_is_drawn_once_and_recorded(comm: Any) -> None:
    mine = shards(comm, scores(40, 40), "even")
    first, second = (estimate(comm, *mine, "gini", n_workers=8) for _ in range(2))
    seeds = comm.allgather((first.config.seed, second.config.seed))
    assert len(set(seeds)) == 1
    assert first.config.seed != second.config.seed
    assert 0 <= first.config.seed < 2**63
    assert first.summary()["seed"] == first.config.seed
    again = estimate(comm, *mine, "gini", n_workers=8, seed=first.config.seed)
    assert bits(again) == bits(first)


@pytest.mark.parametrize("n_pairs", [None, 20])
def test_seeds_differ(comm: Any, n_pairs: int | None) -> None:
    mine = shards(comm, scores(40, 40), "even")
    values = [estimate(comm, *mine, "gini", n_workers=4, n_pairs=n_pairs, seed=seed).per_worker for seed in (0, 1)]
    assert not np.any(values[0] == values[1])


# --- points without a value


@pytest.mark.parametrize("kernel", ["auc", "product", "gini"])
@pytest.mark.parametrize("complete", [False, True])
def test_a_nan_on_one_rank_is_refused_on_all(comm: Any, kernel: str, complete: bool) -> None:
    for row in (0, -1):
        x, z = np.arange(3.0), np.arange(4.0)
        if comm.rank == comm.size - 1:
            z[row] = np.nan
        with pytest.raises(UserError) as caught:
            estimate(comm, x, z, kernel, complete=complete, seed=0)
        assert str(caught.value).startswith(
            f"row {4 * (comm.size - 1) + row % 4} of the sample z, counted from 0, holds NaN: "
        )
        assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size


@pytest.mark.parametrize("kernel", ["product", "gini"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinite_points_are_refused_where_differences_and_products_have_no_value(
    comm: Any, kernel: str, bad: float
) -> None:
    x = np.array([1.0, bad if comm.rank == comm.size - 1 else 0.0])
    for complete in (False, True):
        with pytest.raises(
            UserError,
            match=rf"^row {2 * comm.size - 1} of the sample x, counted from 0, .*infinite value.*kernel {kernel}",
        ):
            estimate(comm, x, np.arange(2.0), kernel, complete=complete, seed=0)


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_infinite_scores_compare_as_usual(comm: Any, ties: str) -> None:
    samples = np.array([np.inf, 2.0, -np.inf]), np.array([np.inf, 1.0, -np.inf])
    h = matrix_of_values(f"auc, ties {ties}", *samples)
    mine = shards(comm, samples, "even")
    whole = estimate(comm, *mine, ties=ties, n_workers=1, seed=0)
    assert whole.value == h.mean() == (5 / 9 if ties == "half" else 4 / 9)
    sampled = estimate(comm, *mine, ties=ties, n_workers=3, n_rounds=3, n_pairs=1000, seed=0)
    # Each of the three workers has one pair in a round: the nine local values are values of h.
    assert set(sampled.per_worker.ravel().tolist()) <= set(h.ravel().tolist())


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("empty", ["x", "z"])
def test_a_sample_without_points_is_refused(comm: Any, empty: str, complete: bool) -> None:
    samples = {"x": np.arange(3.0), "z": np.arange(3.0), empty: np.empty(0)}
    with pytest.raises(UserError, match=f"sample {empty} has no points"):
        estimate(comm, samples["x"], samples["z"], complete=complete, seed=0)


def test_more_workers_than_points_of_the_smaller_sample_are_refused(comm: Any) -> None:
    mine = shards(comm, scores(30, 7), "even")
    with pytest.raises(UserError, match=r"\b8 workers .* sample of 7\b.*use at most 7 workers"):
        estimate(comm, *mine, n_workers=8, seed=0)
    assert estimate(comm, *mine, n_workers=7, seed=0).evaluations.min() >= 4


@pytest.mark.parametrize("kernel", ["auc", "gini"])
def test_kernels_of_numbers_refuse_vectors(comm: Any, kernel: str) -> None:
    with pytest.raises(UserError, match=rf"the kernel {kernel} .* the sample x has 5 columns"):
        estimate(comm, *vectors(4, 4), kernel, seed=0)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("columns", [(2, 3), (1, 2), (2, 1), (0, 2)], ids=str)
def test_vectors_of_different_lengths_have_no_product(comm: Any, columns: tuple[int, int], complete: bool) -> None:
    """0 columns stand for a flat array."""
    x, z = (np.ones((4, d)) if d else np.ones(4) for d in columns)
    with pytest.raises(UserError):
        estimate(comm, x, z, "product", complete=complete, seed=0)


def test_ranks_that_hold_points_of_different_kinds_are_refused(comm: Any) -> None:
    d = 2 if comm.rank == 0 else 3
    x, z = np.ones((4, d)), np.ones((4, 2))
    if comm.size == 1:
        assert estimate(comm, x, z, "product", seed=0).value == 2.0
        return
    with pytest.raises(UserError, match="the ranks hold rows of different kinds"):
        estimate(comm, x, z, "product", seed=0)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("n_pairs", [None, 4])
@pytest.mark.parametrize(
    ("kernel", "x", "z"),
    [
        ("product", [1e200] * 4, [1e200] * 4),
        ("product", [1e200, -1e200] * 2, [1e200] * 4),  # ∞ of some workers and -∞ of others
        ("gini", [1.5e308] * 4, [-1.5e308] * 4),
    ],
)
def test_a_sum_that_overflows_is_refused(
    comm: Any, kernel: str, x: list[float], z: list[float], n_pairs: int | None
) -> None:
    mine = shards(comm, (np.array(x), np.array(z)), "even")
    with pytest.raises(UserError, match="overflow"):
        estimate(comm, *mine, kernel, n_workers=4, n_pairs=n_pairs, seed=0)


def test_local_values_near_the_largest_double_are_averaged_or_refused(comm: Any) -> None:
    large = np.full(4, 1e154) if comm.rank == 0 else np.empty(0)
    try:
        value = estimate(comm, large, large, "product", n_workers=4, n_rounds=2, seed=0).value
    except UserError:
        return
    assert value == pytest.approx(1e308)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "acu"}, "there is no kernel 'acu'"),
        ({"kernel": "no_such_module_here:f"}, "no_such_module_here:f can't be imported"),
        ({"kernel": "math:no_such_function"}, "math:no_such_function can't be imported"),
        ({"ties": "third"}, "ties must be half or strict, not 'third'"),
        ({"scheme": "swap"}, "scheme is 'swap'"),
        ({"aggregate": "median"}, "aggregate is 'median'"),
        ({"empty": "ignore"}, "empty is 'ignore'"),
        ({"shuffle": "cards"}, "shuffle is 'cards'"),
        ({"n_workers": 0}, "number of workers is 0"),
        ({"n_rounds": 0}, "number of rounds is 0"),
        ({"n_pairs": 0}, "number of pairs per worker is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "below 2\\^63"),
        ({"tile": 0}, "tile side is 0"),
        ({"scheme": "as-is", "n_rounds": 2}, "one partition only"),
    ],
    ids=str,
)
def test_options_that_cannot_be_meant_are_refused(comm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        estimate(comm, np.arange(4.0), np.arange(4.0), **{"seed": 0, **options})


# --- a kernel that fails


def refuses_nine(x: Floats, z: Floats) -> Floats:
    if 9.0 in x:
        raise ZeroDivisionError("nine is not for me")
    return x - z.T


def leaves_at_nine(x: Floats, z: Floats) -> Floats:
    if 9.0 in x:
        raise SystemExit("leaving")
    return x - z.T


def wrong_shape_at_nine(x: Floats, z: Floats) -> Floats:
    return (x - z.T)[:, : (0 if 9.0 in x else None)]


def infinite_at_nine(x: Floats, z: Floats) -> Floats:
    return np.where(x == 9.0, np.inf, x - z.T)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (refuses_nine, "ZeroDivisionError: nine is not for me"),
        (leaves_at_nine, "SystemExit: leaving"),
        (wrong_shape_at_nine, r"wrong_shape_at_nine returned shape \(\d+, 0\) instead of"),
        (infinite_at_nine, "infinite_at_nine returned a value that is not finite"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_kernel_that_fails_on_one_rank_fails_on_all(comm: Any, kernel: Any, message: str, complete: bool) -> None:
    # The largest point is in one block, so that one rank meets it.
    x, z = np.arange(10.0), np.arange(4.0)
    mine = shards(comm, (x, z), "even")
    with pytest.raises(UserError, match=message) as caught:
        estimate(comm, *mine, kernel, n_workers=4, complete=complete, seed=0)
    assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size
    with pytest.raises(UserError) as alone:  # the same sentence, whichever rank met it
        estimate(SerialComm(), x, z, kernel, n_workers=4, complete=complete, seed=0)
    assert str(caught.value) == str(alone.value)
    # The communicator is in order afterwards.
    assert estimate(comm, *mine, complete=True, seed=0).value == (4 * 10 - 10 + 2) / 40


# --- inside another program


def test_halves_of_a_communicator_estimate_different_things_at_once(comm: Any) -> None:
    half = comm.Split(comm.rank % 2, comm.rank)
    try:
        kernel = ("gini", "auc")[comm.rank % 2]
        for k in range(1 + comm.rank % 2 * 4):  # the halves are out of step
            samples = scores(30 + k, 20 + comm.rank % 2)
            for mode in MODES.values():
                here = estimate(half, *shards(half, samples, "uneven"), kernel, n_workers=7, seed=k, **mode)
                assert bits(here) == bits(estimate(SerialComm(), *samples, kernel, n_workers=7, seed=k, **mode))
                assert here.n_ranks == half.size
    finally:
        half.Free()


def test_a_rank_may_estimate_alone(comm: Any) -> None:
    mpi = pytest.importorskip("mpi4py.MPI", exc_type=ImportError)
    if comm.rank == comm.size - 1:
        samples = scores(30, 20)
        here = estimate(mpi.COMM_SELF, *samples, "gini", n_workers=7, n_rounds=2, seed=1)
        assert bits(here) == bits(estimate(SerialComm(), *samples, "gini", n_workers=7, n_rounds=2, seed=1))
    assert comm.allreduce(1) == comm.size


def test_the_order_of_ranks_is_the_communicators(comm: Any) -> None:
    samples = scores(30, 20)
    backwards = comm.Split(0, -comm.rank)
    try:
        assert backwards.rank == comm.size - 1 - comm.rank
        here = estimate(backwards, *shards(backwards, samples, "even"), "gini", n_workers=4, seed=1)
    finally:
        backwards.Free()
    assert bits(here) == bits(estimate(SerialComm(), *samples, "gini", n_workers=4, seed=1))


def test_messages_of_the_calling_program_are_left_alone(comm: Any) -> None:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    request = comm.isend(("theirs", comm.rank), dest=right, tag=0)
    for mode in MODES.values():
        estimate(comm, *shards(comm, scores(20, 20), "even"), "gini", n_workers=4, seed=1, **mode)
    assert comm.recv(source=left) == ("theirs", left)
    request.wait()
