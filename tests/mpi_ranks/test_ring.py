"""Blocks on the move: every worker has the block that it should, and the old blocks stay until the move is finished."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.mpi.ring import Ring
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.schemes.partition import block_bounds

Array = NDArray[Any]

SIZES: dict[str, Callable[[int], Array]] = {
    "equal blocks": lambda n: np.full(n, 4),
    "blocks that differ by one": lambda n: np.diff(block_bounds(3 * n + n // 2, n)),
    "blocks of any size": lambda n: np.arange(n) ** 2 % 7 + 1,
    "empty blocks among others": lambda n: np.arange(n) % 3,
    "empty blocks": lambda n: np.zeros(n, dtype=np.int64),
}
"""N → the sizes of the N blocks."""

KINDS: dict[str, Callable[[int], Array]] = {
    "float64": lambda n: np.random.default_rng(n).standard_normal(n),
    "float32, 3 columns": lambda n: np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32),
    "int64, 1 column": lambda n: np.random.default_rng(n).integers(-(2**62), 2**62, (n, 1)),
}

every_size = pytest.mark.parametrize("sizes", list(SIZES))
every_number = pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 5, 9])


def make(comm: Any, rows: Array, sizes: Array) -> tuple[Ring, list[Array], range]:
    """Return a ring of blocks of the rows, all blocks as they are, and this rank's workers."""
    bounds = np.append(0, np.cumsum(sizes))
    workers = hosted_workers(len(sizes), comm.size, comm.rank)
    mine = rows[bounds[workers.start] : bounds[workers.stop]].copy()
    return Ring(comm, mine, bounds), np.split(rows, bounds[1:-1]), workers


def same(found: list[Array], wanted: list[Array]) -> bool:
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(found, wanted, strict=True)
    )


def shifts(n_workers: int) -> list[Array]:
    """Every worker's block moves on to the next, all the way round."""
    return [(np.arange(n_workers) - t) % n_workers for t in range(1, n_workers + 1)]


def permutations(n_workers: int) -> list[Array]:
    rng = np.random.default_rng(n_workers)
    return [rng.permutation(n_workers) for _ in range(8)]


every_route = pytest.mark.parametrize("route", [shifts, permutations])


@every_size
@every_number
@every_route
def test_every_worker_gets_its_block(
    comm: Any, sizes: str, n_workers: int, route: Callable[[int], list[Array]]
) -> None:
    lengths = SIZES[sizes](n_workers)
    for kind in KINDS.values():
        ring, blocks, workers = make(comm, kind(int(lengths.sum())), lengths)
        assert same(ring.blocks, [blocks[i] for i in workers])
        for holding in route(n_workers):
            wanted = [blocks[holding[i]] for i in workers]
            before, places = [block.copy() for block in ring.blocks], ring.blocks
            ring.start(holding)
            assert same(places, before) and same(ring.blocks, before)  # the old ones are there till the new ones are
            ring.finish()
            assert same(ring.blocks, wanted)
            assert ring.holding.tolist() == holding.tolist()
            assert ring.sizes.tolist() == [len(block) for block in wanted]
            rows, order = ring.stored
            together = np.concatenate([rows[:0], *wanted])
            assert (rows if order is None else rows[order]).tobytes() == together.tobytes()


@every_size
def test_a_move_can_be_changed_repeated_and_skipped(comm: Any, sizes: str) -> None:
    lengths = SIZES[sizes](5)
    ring, blocks, workers = make(comm, KINDS["float64"](int(lengths.sum())), lengths)
    first, second = permutations(5)[:2]
    ring.finish()
    ring.start(first)
    ring.start(second)  # on the way to another
    ring.start(second)
    assert ring.holding.tolist() == first.tolist()
    ring.finish()
    ring.finish()
    assert same(ring.blocks, [blocks[second[i]] for i in workers])
    counts = ring.bytes_sent, ring.rows_moved
    ring.start(second)
    ring.finish()
    assert same(ring.blocks, [blocks[second[i]] for i in workers])
    assert (ring.bytes_sent, ring.rows_moved) == counts


@every_number
@every_route
def test_bytes_and_rows_are_counted_block_by_block(
    comm: Any, n_workers: int, route: Callable[[int], list[Array]]
) -> None:
    lengths = SIZES["blocks of any size"](n_workers)
    ring, _, workers = make(comm, KINDS["float32, 3 columns"](int(lengths.sum())), lengths)
    rank_of = np.repeat(np.arange(comm.size), np.diff(block_bounds(n_workers, comm.size)))
    holding, sent, moved = np.arange(n_workers), 0, 0
    for following in route(n_workers):
        for block, size in enumerate(lengths.tolist()):
            here, there = (int(np.flatnonzero(each == block)[0]) for each in (holding, following))
            if rank_of[here] == comm.rank != rank_of[there]:
                sent += 12 * size
            if here != there and there in workers:
                moved += size
        ring.start(following)
        ring.finish()
        holding = following
        assert (ring.bytes_sent, ring.rows_moved) == (sent, moved)


def test_a_shift_between_ranks_sends_each_neighbour_one_block(comm: Any) -> None:
    ring, _, _ = make(comm, KINDS["float64"](6 * comm.size), np.full(comm.size, 6))
    for t, holding in enumerate(shifts(comm.size), start=1):
        ring.start(holding)
        ring.finish()
        assert ring.bytes_sent == (0 if comm.size == 1 else t * 8 * 6)
        assert sum(comm.allgather(ring.rows_moved)) == (0 if comm.size == 1 else t * 6 * comm.size)


@pytest.mark.parametrize("n_workers", [4, 7, 12])
def test_little_more_memory_is_taken_than_the_blocks_need(comm: Any, n_workers: int) -> None:
    ring, _, workers = make(comm, KINDS["float64"](5 * n_workers), np.full(n_workers, 5))
    for holding in [*shifts(n_workers), *shifts(n_workers)]:
        ring.start(holding)
        ring.finish()
    base = ring.blocks[0].base
    assert base is not None
    assert len(base) == 5 * (len(workers) + (comm.size > 1))


def test_blocks_that_never_leave_their_rank_are_not_copied() -> None:
    rows = np.arange(40.0)
    ring = Ring(SerialComm(), rows, block_bounds(40, 7))
    for holding in permutations(7):
        ring.start(holding)
        ring.finish()
        assert all(np.shares_memory(rows, block) for block in ring.blocks)
    assert ring.bytes_sent == 0


@every_number
def test_what_is_written_into_a_block_travels_with_it(comm: Any, n_workers: int) -> None:
    lengths = SIZES["blocks of any size"](n_workers)
    ring, _, workers = make(comm, np.zeros(int(lengths.sum())), lengths)
    for holding in shifts(n_workers):
        for worker, block in zip(workers, ring.blocks, strict=True):
            block *= 2.0  # not commutative: the order shows
            block += worker
        ring.start(holding)
        ring.finish()
    # Block j has been to workers j, j + 1, …, and is at home again.
    for worker, block in zip(workers, ring.blocks, strict=True):
        value = 0.0
        for step in range(n_workers):
            value = 2.0 * value + (worker + step) % n_workers
        assert block.tolist() == [value] * int(lengths[worker])


def test_a_ring_forgotten_while_blocks_move_disturbs_nobody(comm: Any) -> None:
    size = 1 << 16  # too large to be buffered by MPI
    for attempt in range(4):
        n_workers = 2 * comm.size
        rows = np.repeat(np.arange(n_workers, dtype=np.float64) + attempt, size)
        ring, blocks, workers = make(comm, rows, np.full(n_workers, size))
        ring.start(shifts(n_workers)[-2])
        if attempt % 2 == 0:
            del ring
            gc.collect()
            continue
        ring.finish()
        holding = shifts(n_workers)[-2]
        assert same(ring.blocks, [blocks[holding[i]] for i in workers])


def test_rings_on_the_same_communicator_do_not_mix_their_blocks(comm: Any) -> None:
    lengths = SIZES["blocks of any size"](6)
    first, blocks, workers = make(comm, KINDS["float64"](int(lengths.sum())), lengths)
    second, others, _ = make(comm, KINDS["float64"](int(lengths.sum()) + 1)[1:], lengths)
    for a, b in zip(permutations(6), shifts(6) + shifts(6), strict=False):
        first.start(a)
        second.start(b)
        second.finish()
        first.finish()
        assert same(first.blocks, [blocks[a[i]] for i in workers])
        assert same(second.blocks, [others[b[i]] for i in workers])
