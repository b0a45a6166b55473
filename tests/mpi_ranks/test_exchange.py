"""Rows on the move: every worker gets the rows that the partition gives it, whatever the ranks, and all are counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.collectives import send_segments
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.moves import moves_into
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes import partition as partition_module
from mpi_ustat.schemes.partition import (
    Blocks,
    Dealt,
    Ordered,
    Partition,
    Travelling,
    block_bounds,
    travelling,
)
from mpi_ustat.schemes.registry import SCHEMES

Array = NDArray[Any]

# ---------------------------------------------------------------------------------------------------------------------
# How rows can lie over the ranks, and what they can be


def _holes(n: int, size: int) -> Array:
    """Every second rank is empty, the first among them."""
    bounds = block_bounds(n, max(size // 2, 1))
    return bounds[np.minimum((np.arange(size + 1)) // 2, len(bounds) - 1)] if size > 1 else bounds


SHARDS: dict[str, Callable[[int, int], Array]] = {
    "even shards": block_bounds,
    "uneven shards": lambda n, size: np.rint(n * (np.arange(size + 1) / size) ** 2).astype(np.int64),
    "all rows on the first rank": lambda n, size: np.array([0] + [n] * size),
    "all rows on the last rank": lambda n, size: np.array([0] * size + [n]),
    "every second rank empty": lambda n, size: np.append(_holes(n, size)[:-1], n),
}
"""(rows, ranks) → the bounds of the ranks' shards."""

every_shards = pytest.mark.parametrize("shards", list(SHARDS))

KINDS: dict[str, Callable[[int], Array]] = {
    "float64": lambda n: np.random.default_rng(n).standard_normal(n),
    "float64, 3 columns": lambda n: np.random.default_rng(n).standard_normal((n, 3)),
    "float32, 5 columns": lambda n: np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32),
    "int64": lambda n: np.random.default_rng(n).integers(-(2**62), 2**62, n),
    "int64, 1 column": lambda n: np.random.default_rng(n).integers(-(2**62), 2**62, (n, 1)),
}
"""n → the rows of a whole sample."""


def offsets(comm: Any, shards: str, n: int) -> Array:
    return SHARDS[shards](n, comm.size)


def shard(comm: Any, shards: str, rows: Array) -> Array:
    """Return this rank's rows."""
    bounds = offsets(comm, shards, len(rows))
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


# ---------------------------------------------------------------------------------------------------------------------
# Partitions, and what they mean row by row

N_ROWS = 61


def ordered(n_workers: int, seed: int) -> Ordered:
    order = np.random.default_rng(seed).permutation(N_ROWS)
    return Ordered(block_bounds(N_ROWS, n_workers), order)


def with_repeats(n_workers: int, seed: int) -> Ordered:
    order = np.random.default_rng(seed).integers(0, N_ROWS, N_ROWS)
    return Ordered(block_bounds(N_ROWS, n_workers), order)


def fewer_and_more(n_workers: int, seed: int) -> Ordered:
    """Blocks of random sizes, some empty, that leave out some rows and repeat others."""
    rng = np.random.default_rng(seed)
    order = rng.integers(0, N_ROWS, rng.integers(1, 2 * N_ROWS))
    cuts = np.sort(rng.integers(0, len(order) + 1, n_workers - 1))
    return Ordered(np.concatenate([[0], cuts, [len(order)]]).astype(np.int64), order)


def as_they_lie(n_workers: int, seed: int) -> Ordered:
    return Ordered(block_bounds(N_ROWS, n_workers), None)


def as_they_lie_in_uneven_runs(n_workers: int, seed: int) -> Ordered:
    cuts = np.sort(np.random.default_rng(seed).integers(0, N_ROWS + 1, n_workers - 1))
    return Ordered(np.concatenate([[0], cuts, [N_ROWS]]).astype(np.int64), None)


def dealt(n_workers: int, seed: int) -> Dealt:
    (blocks,) = Partition(SCHEMES["prop-swor"], (N_ROWS,), n_workers, Streams(seed), shuffle="matrix").round(seed)
    assert isinstance(blocks, Dealt)
    return blocks


def dealt_unevenly(n_workers: int, seed: int) -> Dealt:
    """Any worker for any row: some workers get many rows, some may get none."""
    labels = (np.random.default_rng(seed).random(N_ROWS) ** 3 * n_workers).astype(np.uint8)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=n_workers))]).astype(np.int64)
    return Dealt(bounds, lambda first, last: labels[first:last])


def travelled(n_workers: int, seed: int) -> Travelling:
    return travelling(ordered(n_workers, seed), np.random.default_rng(seed).permutation(n_workers))


def travelled_in_uneven_runs(n_workers: int, seed: int) -> Travelling:
    base = as_they_lie_in_uneven_runs(n_workers, seed)
    return travelling(base, np.random.default_rng(seed).permutation(n_workers))


def travelled_and_dealt(n_workers: int, seed: int) -> Travelling:
    return travelling(dealt(n_workers, seed), np.random.default_rng(seed).permutation(n_workers))


PARTITIONS: dict[str, Callable[[int, int], Blocks]] = {
    "permutation": ordered,
    "draws with replacement": with_repeats,
    "blocks of any size": fewer_and_more,
    "rows as they lie": as_they_lie,
    "rows as they lie in uneven runs": as_they_lie_in_uneven_runs,
    "dealt by matrix": dealt,
    "dealt unevenly": dealt_unevenly,
    "travelling": travelled,
    "travelling, dealt by matrix": travelled_and_dealt,
    "travelling in uneven runs": travelled_in_uneven_runs,
}

every_partition = pytest.mark.parametrize("kind", list(PARTITIONS))


def members(blocks: Blocks) -> list[Array]:
    """Return the row numbers of each worker's block, in the block's order."""
    bounds = blocks.bounds
    if isinstance(blocks, Travelling):
        at_home = members(blocks.base)
        return [at_home[block] for block in blocks.holding]
    if isinstance(blocks, Dealt):
        labels = blocks.workers_of(0, N_ROWS)
        return [np.flatnonzero(labels == i) for i in range(len(bounds) - 1)]
    order = np.arange(N_ROWS) if blocks.order is None else blocks.order
    return [order[bounds[i] : bounds[i + 1]] for i in range(len(bounds) - 1)]


def owner(bounds: Array, rows: Array) -> Array:
    """Return whose run of rows each row is in."""
    return np.searchsorted(bounds, rows, side="right") - 1


# ---------------------------------------------------------------------------------------------------------------------
# Every worker gets its rows


@pytest.mark.parametrize("n_workers", [1, 3, 4, 10])
@every_shards
@every_partition
def test_every_worker_gets_the_rows_that_the_partition_gives_it(
    comm: Any, kind: str, shards: str, n_workers: int
) -> None:
    for make_rows in KINDS.values():
        rows = make_rows(N_ROWS)
        exchange = Exchange(comm, shard(comm, shards, rows), n_workers)
        partition = PARTITIONS[kind](n_workers, 5)
        blocks = exchange.blocks(partition)
        assert len(blocks) == len(exchange.workers)
        wanted = members(partition)
        for worker, block in zip(exchange.workers, blocks, strict=True):
            assert block.dtype == rows.dtype and block.shape == (len(wanted[worker]), *rows.shape[1:])
            assert block.tobytes() == rows[wanted[worker]].tobytes()
        # Every worker is hosted by one rank, in order.
        hosted = comm.allgather(list(exchange.workers))
        assert [worker for workers in hosted for worker in workers] == list(range(n_workers))


@every_shards
@every_partition
def test_every_round_starts_from_the_original_rows(comm: Any, kind: str, shards: str) -> None:
    rows = KINDS["float64, 3 columns"](N_ROWS)
    exchange = Exchange(comm, shard(comm, shards, rows), 5)
    for seed in range(6):
        partition = PARTITIONS[kind](5, seed)
        wanted = members(partition)
        for worker, block in zip(exchange.workers, exchange.blocks(partition), strict=True):
            assert np.array_equal(block, rows[wanted[worker]])
        assert np.array_equal(exchange.rows, shard(comm, shards, rows))


@pytest.mark.parametrize("shards", ["even shards", "uneven shards"])
def test_partitions_of_different_kinds_can_follow_each_other(comm: Any, shards: str) -> None:
    rows = KINDS["float64"](N_ROWS)
    exchange = Exchange(comm, shard(comm, shards, rows), 5)
    kinds = list(PARTITIONS)
    wrong = []
    for seed, i in enumerate(np.random.default_rng(0).integers(0, len(kinds), 40)):
        partition = PARTITIONS[kinds[i]](5, seed)
        wanted = members(partition)
        for worker, block in zip(exchange.workers, exchange.blocks(partition), strict=True):
            if not np.array_equal(block, rows[wanted[worker]]):
                wrong.append(f"worker {worker} in round {seed}: {kinds[i]}")
    assert not wrong


@pytest.mark.parametrize("n_workers", [4, 7])
@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize("sources", [1, 3, 0])
def test_the_blocks_are_the_same_bits_at_every_number_of_ranks(
    comm: Any, monkeypatch: pytest.MonkeyPatch, shuffle: str, n_workers: int, sources: int
) -> None:
    monkeypatch.setattr(partition_module, "source_blocks", lambda size, n_workers: sources)
    monkeypatch.setattr(partition_module, "draws_whole_matrix", lambda size, n_workers: sources > 0)
    monkeypatch.setattr(partition_module, "bottom_rows", lambda n_workers: 10)
    rows = KINDS["float64, 3 columns"](N_ROWS)
    rows[::7, 0], rows[1::7, 1], rows[2::7, 2] = np.nan, -0.0, np.inf
    many = Exchange(comm, shard(comm, "uneven shards", rows), n_workers)
    one = Exchange(SerialComm(), rows, n_workers)
    partitions = [Partition(SCHEMES["prop-swor"], (N_ROWS,), n_workers, Streams(9), shuffle=shuffle) for _ in range(2)]
    seen = set()
    for t in range(4):
        ours, theirs = (each.blocks(p.round(t)[0]) for each, p in zip((many, one), partitions, strict=True))
        for worker, block in zip(many.workers, ours, strict=True):
            assert block.tobytes() == theirs[worker].tobytes()
        seen.add(b"".join(block.tobytes() for block in theirs))
    assert len(seen) == 4


@pytest.mark.parametrize("repartitions", [1, 10])
@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@every_shards
def test_no_id_is_lost_or_doubled(comm: Any, shards: str, shuffle: str, repartitions: int) -> None:
    exchange = Exchange(comm, shard(comm, shards, np.arange(1, 1001)), 10)
    partition = Partition(SCHEMES["prop-swor"], (1000,), 10, Streams(1), shuffle=shuffle)
    for t in range(repartitions):
        blocks = exchange.blocks(partition.round(t)[0])
    ids = np.concatenate([np.concatenate(part) for part in comm.allgather(blocks) if part])
    assert ids.sum() == 500_500 and (ids**2).sum() == 333_833_500
    assert np.array_equal(np.sort(ids), np.arange(1, 1001))
    assert not np.array_equal(ids, np.arange(1, 1001))


def test_repartitioned_rows_can_be_repartitioned_again_and_none_is_lost(comm: Any) -> None:
    mine = shard(comm, "uneven shards", np.arange(1, 1001))
    for t in range(10):
        shuffle = ("permutation", "matrix")[t % 2]
        partition = Partition(SCHEMES["prop-swor"], (1000,), 7, Streams(2), shuffle=shuffle)
        blocks = Exchange(comm, mine, 7).blocks(partition.round(t)[0])
        mine = np.concatenate([np.empty(0, np.int64), *blocks])
    ids = np.concatenate(comm.allgather(mine))
    assert len(ids) == 1000 and ids.sum() == 500_500 and (ids**2).sum() == 333_833_500


def test_strided_rows_are_brought_whole(comm: Any) -> None:
    whole = KINDS["float64, 3 columns"](2 * N_ROWS)
    rows = whole[::2, 1]
    partition = ordered(4, 0)
    exchange = Exchange(comm, shard(comm, "even shards", whole[::2])[:, 1], 4)
    for worker, block in zip(exchange.workers, exchange.blocks(partition), strict=True):
        assert np.array_equal(block, rows[members(partition)[worker]])


def test_the_same_blocks_again_move_nothing(comm: Any) -> None:
    rows = KINDS["float64"](N_ROWS)
    exchange = Exchange(comm, shard(comm, "even shards", rows), 4)
    partition = ordered(4, 0)
    first = [block.copy() for block in exchange.blocks(partition)]
    counts = exchange.bytes_sent, exchange.rows_moved
    assert all(np.array_equal(a, b) for a, b in zip(first, exchange.blocks(partition), strict=True))
    assert (exchange.bytes_sent, exchange.rows_moved) == counts


@every_shards
def test_an_exchange_knows_where_its_rows_are(comm: Any, shards: str) -> None:
    exchange = Exchange(comm, shard(comm, shards, KINDS["int64"](N_ROWS)), 4)
    assert exchange.n_rows == N_ROWS
    assert exchange.first_row == offsets(comm, shards, N_ROWS)[comm.rank]


# ---------------------------------------------------------------------------------------------------------------------
# What is counted


@pytest.mark.parametrize("n_workers", [2, 4, 10])
@every_shards
@pytest.mark.parametrize("kind", [kind for kind in PARTITIONS if not kind.endswith("uneven runs")])
def test_bytes_and_rows_are_counted_as_one_by_one(comm: Any, kind: str, shards: str, n_workers: int) -> None:
    rows = KINDS["float32, 5 columns"](N_ROWS)
    shard_bounds, hosts = offsets(comm, shards, N_ROWS), block_bounds(n_workers, comm.size)
    home = block_bounds(N_ROWS, n_workers)
    exchange = Exchange(comm, shard(comm, shards, rows), n_workers)
    sent = moved = 0
    for seed in range(3):
        partition = PARTITIONS[kind](n_workers, seed)
        exchange.blocks(partition)
        base = partition.base if isinstance(partition, Travelling) else partition
        for worker, block in enumerate(members(base)):
            ranks = owner(shard_bounds, block)
            if owner(hosts, np.array(worker)) != comm.rank:
                sent += 20 * int(np.count_nonzero(ranks == comm.rank))
            moved += int(np.count_nonzero(owner(home, block) != worker))
        if isinstance(partition, Travelling):  # the blocks of the base move on
            for worker, block in enumerate(partition.holding.tolist()):
                size = len(members(base)[block])
                if owner(hosts, np.array(block)) == comm.rank != owner(hosts, np.array(worker)):
                    sent += 20 * size
                moved += size if block != worker else 0
    assert exchange.bytes_sent == sent
    assert sum(comm.allgather(exchange.rows_moved)) == moved


def test_nothing_is_sent_for_rows_that_lie_right(comm: Any) -> None:
    n_workers = 2 * comm.size
    exchange = Exchange(comm, shard(comm, "even shards", np.arange(24 * comm.size)), n_workers)
    blocks = exchange.blocks(Ordered(block_bounds(24 * comm.size, n_workers), None))
    assert [block.tolist() for block in blocks] == [list(range(12 * i, 12 * i + 12)) for i in exchange.workers]
    assert exchange.bytes_sent == exchange.rows_moved == 0


def test_runs_of_the_global_order_take_no_memory_for_all_rows(comm: Any) -> None:
    n = comm.size << 18
    bounds = np.rint(n * (np.arange(comm.size + 1) / comm.size) ** 2).astype(np.int64)
    exchange = Exchange(comm, np.ones(int(np.diff(bounds)[comm.rank]), dtype=np.int8), comm.size)
    tracemalloc.start()
    try:
        exchange.bring(Ordered(block_bounds(n, comm.size), None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * (1 << 18)


# ---------------------------------------------------------------------------------------------------------------------
# Blocks that travel


@pytest.mark.parametrize("prefetch", [False, True], ids=["one at a time", "prefetched"])
@pytest.mark.parametrize("shuffle", ["permutation", "matrix"])
@pytest.mark.parametrize("n_workers", [1, 2, 4, 7])
@every_shards
def test_rotating_blocks_are_the_same_bits_at_every_number_of_ranks(
    comm: Any, shards: str, n_workers: int, shuffle: str, prefetch: bool
) -> None:
    samples = [KINDS["float64, 3 columns"](N_ROWS), KINDS["float64"](23), KINDS["float64"](30)]
    exchanges = [Exchange(comm, shard(comm, shards, rows), n_workers) for rows in samples]
    sizes = [len(rows) for rows in samples]
    partition, oracle = (
        Partition(SCHEMES["rotation"], sizes, n_workers, Streams(9), shuffle=shuffle) for _ in range(2)
    )
    bases = [
        Exchange(SerialComm(), rows, n_workers).blocks(base)
        for rows, base in zip(samples, oracle.round(0), strict=True)
    ]
    rounds = [partition.round(t) for t in range(min(n_workers**2, 12))]
    for t, of_samples in enumerate(rounds):
        for exchange, blocks, base in zip(exchanges, of_samples, bases, strict=True):
            holding = blocks.holding if isinstance(blocks, Travelling) else np.arange(n_workers)
            wanted = [base[holding[i]] for i in exchange.workers]
            found = exchange.blocks(blocks)
            if prefetch and t + 1 < len(rounds):
                exchange.prefetch(rounds[t + 1][exchanges.index(exchange)])
            assert [block.tobytes() for block in found] == [block.tobytes() for block in wanted]
            together = np.concatenate([exchange.rows[:0], *wanted])
            places = np.random.default_rng(t).integers(0, max(len(together), 1), 5 * (len(together) > 0))
            assert np.array_equal(exchange.rows_at(places), together[places])
            if t % 2:
                assert exchange.put_in_order().tobytes() == together.tobytes()
                assert np.array_equal(exchange.rows_at(places), together[places])
            assert [block.tobytes() for block in exchange.current] == [block.tobytes() for block in wanted]


@pytest.mark.parametrize("prefetch", [False, True], ids=["one at a time", "prefetched"])
def test_a_rotation_moves_one_sample_to_the_neighbours(comm: Any, prefetch: bool) -> None:
    n_workers, m = comm.size, 6 * comm.size
    x, z = (Exchange(comm, shard(comm, "uneven shards", np.arange(n)), n_workers) for n in (100, m))
    partition = Partition(SCHEMES["rotation"], (100, m), n_workers, Streams(2))
    for t in range(n_workers):
        before = x.bytes_sent, x.rows_moved, z.bytes_sent, z.rows_moved
        of_x, of_z = partition.round(t)
        x.bring(of_x)
        z.bring(of_z)
        moved = np.subtract((x.bytes_sent, x.rows_moved, z.bytes_sent, z.rows_moved), before).tolist()
        if prefetch:
            z.prefetch(partition.round(t + 1)[1])  # a new cycle after the last: nothing to prefetch
        if t and n_workers > 1:  # m/N rows to one neighbour
            assert moved == [0, 0, 8 * 6, 6]
    assert x.blocks(partition.round(0)[0])[0] is x.current[0]  # the blocks that stay are the same object


def test_visitors_come_while_the_blocks_at_home_stay(comm: Any) -> None:
    rows, n_workers = KINDS["float32, 5 columns"](N_ROWS), 6
    for shuffle in ("permutation", "matrix"):
        exchange = Exchange(comm, shard(comm, "uneven shards", rows), n_workers)
        partition = Partition(SCHEMES["rotation"], (N_ROWS,), n_workers, Streams(3), shuffle=shuffle)
        for t in range(9):  # two cycles of ⌊N/2⌋ + 1 rounds, and one round
            home, visiting = partition.round(t)
            assert isinstance(visiting, Travelling)
            own, visitors = exchange.blocks(home), exchange.visiting_blocks(visiting)
            if (t + 1) % 4:
                exchange.prefetch(partition.round(t + 1)[1])
            rows_of = members(home)
            for worker, at_home, visitor in zip(exchange.workers, own, visitors, strict=True):
                assert np.array_equal(at_home, rows[rows_of[worker]])
                assert np.array_equal(visitor, rows[rows_of[(worker + t % 4) % n_workers]])
                assert at_home is exchange.current[worker - exchange.workers.start]


def test_blocks_that_travel_can_be_given_up_at_any_time(comm: Any) -> None:
    rows, n_workers = KINDS["int64"](N_ROWS), 5
    exchange = Exchange(comm, shard(comm, "uneven shards", rows), n_workers)
    base = ordered(n_workers, 0)
    steps: list[Blocks] = [travelling(base, (np.arange(n_workers) - t) % n_workers) for t in range(n_workers)]
    others: list[Blocks] = [ordered(n_workers, 1), base, dealt(n_workers, 2), travelled(n_workers, 3)]
    for other in others:
        exchange.bring(steps[1])
        exchange.prefetch(steps[2])  # under way, and not waited for
        for partition in (other, steps[3], steps[0], base, steps[4]):
            wanted = members(partition)
            for worker, block in zip(exchange.workers, exchange.blocks(partition), strict=True):
                assert np.array_equal(block, rows[wanted[worker]])
            exchange.prefetch(other)


# ---------------------------------------------------------------------------------------------------------------------
# What the ranks may hold


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        (np.zeros((4, 2)), np.zeros((4, 3))),
        (np.zeros(4), np.zeros((4, 1))),
        (np.zeros(4), np.zeros(4, dtype=np.float32)),
        (np.zeros(4), np.zeros(4, dtype=np.int64)),
    ],
    ids=["columns", "dimensions", "float32", "int64"],
)
def test_rows_of_different_kinds_are_refused_on_every_rank(comm: Any, usual: Array, odd: Array) -> None:
    if comm.size == 1:
        pytest.skip("one rank can't differ from others")
    for odd_rank in range(comm.size):
        with pytest.raises(UserError, match="different kinds") as caught:
            Exchange(comm, odd if comm.rank == odd_rank else usual, 4)
        assert len(set(comm.allgather(str(caught.value)))) == 1
        assert usual.dtype.str in str(caught.value) and odd.dtype.str in str(caught.value)


def test_an_empty_shard_takes_the_kind_of_the_others(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("one rank has no others")
    rows = KINDS["float32, 5 columns"](N_ROWS)
    for empty_rank in range(comm.size):
        others = [rank for rank in range(comm.size) if rank != empty_rank]
        bounds = block_bounds(N_ROWS, len(others))
        mine = np.empty(0)
        if comm.rank != empty_rank:
            i = others.index(comm.rank)
            mine = rows[bounds[i] : bounds[i + 1]]
        exchange = Exchange(comm, mine, 4)
        assert exchange.rows.dtype == np.float32 and exchange.rows.shape == (len(mine), 5)
        partition = ordered(4, 1)
        for worker, block in zip(exchange.workers, exchange.blocks(partition), strict=True):
            assert np.array_equal(block, rows[members(partition)[worker]])


def test_samples_without_any_row_have_empty_blocks(comm: Any) -> None:
    exchange = Exchange(comm, np.empty((0, 3)), 4)
    blocks = exchange.blocks(Ordered(np.zeros(5, dtype=np.int64), np.empty(0, dtype=np.int64)))
    assert exchange.n_rows == 0
    assert [block.shape for block in blocks] == [(0, 3)] * len(exchange.workers)


# ---------------------------------------------------------------------------------------------------------------------
# Segments


def test_segments_arrive_from_every_rank_in_order(comm: Any) -> None:
    def segment(source: int, destination: int) -> Array:
        length = (3 * source + 5 * destination) % 4
        return 100.0 * source + 10.0 * destination + np.arange(length)

    outgoing = [segment(comm.rank, destination) for destination in range(comm.size)]
    arrived = send_segments(comm, np.concatenate(outgoing), [len(each) for each in outgoing])
    assert [each.tolist() for each in arrived] == [segment(rank, comm.rank).tolist() for rank in range(comm.size)]


# ---------------------------------------------------------------------------------------------------------------------
# The plan, alone


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Orders with repeats, and bounds of what each rank has and wants, empty ranks among them."""
    n_ranks = draw(st.integers(1, 5))
    n_rows = draw(st.integers(1, 30))
    order = draw(st.lists(st.integers(0, n_rows - 1), max_size=40))

    def cut(total: int) -> list[int]:
        inner = draw(st.lists(st.integers(0, total), min_size=n_ranks - 1, max_size=n_ranks - 1))
        return [0, *sorted(inner), total]

    return tuple(np.array(each, dtype=np.int64) for each in (order, cut(n_rows), cut(len(order))))  # type: ignore[return-value]


@given(exchanges())
def test_plans_send_each_rank_the_rows_it_wants_and_put_them_in_order(case: tuple[Array, Array, Array]) -> None:
    order, offsets, destinations = case
    ranks = range(len(offsets) - 1)
    plans = [moves_into(order, offsets, destinations, rank) for rank in ranks]
    wanted = [order[destinations[rank] : destinations[rank + 1]].tolist() for rank in ranks]
    packets: dict[tuple[int, int], list[int]] = {}
    for rank, part in enumerate(plans):
        own = range(int(offsets[rank]), int(offsets[rank + 1]))
        expected = [[g for g in wanted[to] if g in own] if to != rank else [] for to in ranks]
        assert part.send_counts.tolist() == [len(rows) for rows in expected]
        assert (part.send_rows + offsets[rank]).tolist() == [g for rows in expected for g in rows]
        packets |= {(rank, to): expected[to] for to in ranks}
    for rank, part in enumerate(plans):
        received = [packets[source, rank] for source in ranks]
        assert part.receive_counts.tolist() == [len(rows) for rows in received]
        have = [*range(offsets[rank], offsets[rank + 1]), *(g for rows in received for g in rows)]
        assert [have[place] for place in part.placement] == wanted[rank]
