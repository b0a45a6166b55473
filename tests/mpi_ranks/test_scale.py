"""What only large samples need, at sizes made small: drawing beyond NumPy's limit, exchanging in steps and in pieces.

Statistical checks refuse a right implementation with probability 10⁻⁶ each; the seeds are fixed, so that what has
passed passes again.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from mpi_ustat.mpi import collectives, moves
from mpi_ustat.mpi.collectives import gather_on_master, gather_rows, send_segments
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.moves import by_worker, copy_runs, grouped, steps_and_chunks, take_runs
from mpi_ustat.mpi.ring import Ring
from mpi_ustat.mpi.runtime import SerialComm, hosted_workers
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes import partition as partition_module
from mpi_ustat.schemes.partition import Blocks, Dealt, Partition, block_bounds
from mpi_ustat.schemes.registry import SCHEMES

ERROR = 1e-6
Array = NDArray[Any]

# ---------------------------------------------------------------------------------------------------------------------
# Drawing beyond NumPy's limit


def test_rows_of_a_sample_of_4_thousand_million_can_be_dealt_out_anywhere() -> None:
    size, first = 4 * 10**9, 3_123_456_789
    (dealt,) = Partition(SCHEMES["prop-swor"], (size,), 8, Streams(1)).round(0)
    assert isinstance(dealt, Dealt) and dealt.bounds[-1] == size
    labels = dealt.workers_of(first, first + 20_000)
    counts = np.bincount(labels, minlength=8)
    assert len(labels) == 20_000 and stats.chisquare(counts).pvalue > ERROR
    assert np.array_equal(dealt.workers_of(first + 5000, first + 6000), labels[5000:6000])


# ---------------------------------------------------------------------------------------------------------------------
# Labels of a source block


@pytest.mark.parametrize(
    ("n_workers", "n_rows"), [(1, 9), (256, 999), (257, 0), (1000, 1), (1000, 5000), (65536, 70_000)]
)
def test_rows_are_grouped_by_worker_in_order(n_workers: int, n_rows: int) -> None:
    labels = np.random.default_rng(7).integers(0, n_workers, n_rows).astype(np.min_scalar_type(n_workers))
    order = by_worker(labels, n_workers)
    assert order.dtype == np.int64 and np.array_equal(order, np.argsort(labels, kind="stable"))


@pytest.mark.parametrize("n_rows", [0, 1, 5000])
@pytest.mark.parametrize("dtype", ["f8", ">f8", "f4", "f2", "g", "c16", "i8", "u2", "?", "S3", "M8[s]"])
def test_rows_of_any_kind_are_grouped_to_the_bit(dtype: str, n_rows: int) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 300, n_rows).astype(np.uint16)
    rows = np.frombuffer(rng.bytes(n_rows * np.dtype(dtype).itemsize), dtype)
    found, order = grouped(rows, labels, 300)
    found = found if order is None else found[order]
    assert found.dtype == rows.dtype
    assert found.tobytes() == rows[np.argsort(labels, kind="stable")].tobytes()  # also zeros' signs, and which NaN


def test_workers_of_some_rows_are_those_they_have_among_all_also_in_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "bottom_rows", lambda n_workers: 4)
    monkeypatch.setattr(partition_module, "draws_whole_matrix", lambda size, n_workers: False)
    (dealt,) = Partition(SCHEMES["prop-swor"], (40,), 3, Streams(2), shuffle="matrix").round(3)
    assert isinstance(dealt, Dealt)
    everyone = dealt.workers_of(0, 40)
    assert np.bincount(everyone).tolist() == [14, 13, 13]
    for first in range(0, 41, 3):
        for last in range(first, 41, 4):
            assert np.array_equal(dealt.workers_of(first, last), everyone[first:last])


# ---------------------------------------------------------------------------------------------------------------------
# Steps


def partitions(n: int, n_workers: int) -> list[Blocks]:
    return [
        Partition(SCHEMES["prop-swor"], (n,), n_workers, Streams(7), shuffle=shuffle).round(t)[0]
        for shuffle in ("matrix", "permutation")
        for t in range(2)
    ]


def shard(comm: Any, rows: Array) -> Array:
    """Return this rank's rows, of ranks of which some have few rows, or none, and others many."""
    bounds = np.rint(len(rows) * (np.arange(comm.size + 1) / comm.size) ** 3).astype(np.int64)
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


ROWS = {
    "float64": np.random.default_rng(0).standard_normal(211),
    "float32, 3 columns": np.random.default_rng(0).standard_normal((211, 3)).astype(np.float32),
    "int64, 1 column": np.random.default_rng(0).integers(-(2**62), 2**62, (211, 1)),
}


@pytest.mark.parametrize("n_workers", [1, 4, 7, 30])
@pytest.mark.parametrize(("step", "chunk", "piece"), [(80, 5, 0), (80, 50, 2), (40, 1, 0), (1000, 20, 0)])
def test_an_exchange_in_many_steps_brings_the_same_blocks(
    comm: Any, monkeypatch: pytest.MonkeyPatch, step: int, chunk: int, piece: int, n_workers: int
) -> None:
    for rows in ROWS.values():
        for blocks in partitions(len(rows), n_workers)[:2]:
            in_one, in_steps = (Exchange(comm, shard(comm, rows), n_workers) for _ in range(2))
            wanted = Exchange(SerialComm(), rows, n_workers).blocks(blocks)
            in_one.bring(blocks)
            with monkeypatch.context() as patch:
                for name, value in (
                    ("_STEP_BYTES", step),
                    ("_MOST_STEPS", 100),
                    ("_CHUNK_ROWS", chunk),
                    ("_PIECE_ROWS", piece),
                ):
                    patch.setattr(moves, name, value)
                in_steps.bring(blocks)
                assert (in_steps.bytes_sent, in_steps.rows_moved) == (in_one.bytes_sent, in_one.rows_moved)
                for worker, block in zip(in_steps.workers, in_steps.current, strict=True):
                    assert block.tobytes() == wanted[worker].tobytes()
                in_steps.bring(as_they_lie(len(rows), n_workers))
                for worker, block in zip(in_steps.workers, in_steps.blocks(blocks), strict=True):  # into used buffers
                    assert block.tobytes() == wanted[worker].tobytes()


def as_they_lie(n: int, n_workers: int) -> Blocks:
    return partition_module.Ordered(block_bounds(n, n_workers), None)


def test_steps_are_small_beside_the_rows_and_chunks_fit_into_fast_memory() -> None:
    for n_workers in (1, 10, 1000, 10**5):
        for n_rows in (0, 1, 10**4, 10**6, 25 * 10**6, 10**9):
            for bytes_of_row in (1, 8, 72, 8000):
                n_steps, n_chunks = steps_and_chunks(n_rows, bytes_of_row, n_workers)
                assert n_steps >= 1 and n_chunks >= 1
                assert n_rows * bytes_of_row / n_steps <= max(1 << 24, n_rows * bytes_of_row / 12)
                assert n_rows / (n_steps * n_chunks) <= max(1 << 17, n_workers << 8)
                # Of so many workers that they get a few rows of a chunk, pieces cost more than slow memory.
                assert n_rows * bytes_of_row / (n_steps * n_chunks) <= max(1 << 20, bytes_of_row * (n_workers << 8))
    assert steps_and_chunks(2**21, 8, 10) == (1, 16)
    assert steps_and_chunks(24 * 2**20, 8, 10) == steps_and_chunks(25 * 10**6, 8, 10) == (12, 16)


def test_an_exchange_by_matrix_takes_little_more_memory_than_its_blocks(
    comm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "_STEP_BYTES", 1 << 16)
    monkeypatch.setattr(moves, "_CHUNK_ROWS", 1 << 11)
    monkeypatch.setattr(moves, "_MOST_STEPS", 100)
    n_rows = comm.size << 18
    exchange = Exchange(comm, np.arange(1 << 18, dtype=np.float64), 4)
    blocks = Partition(SCHEMES["prop-swor"], (n_rows,), 4, Streams(0)).round(0)[0]
    tracemalloc.start()
    try:
        exchange.bring(blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    own = exchange.put_in_order().nbytes  # of 4 workers at 3 ranks, one has twice as many as others
    assert own <= peak < 1.1 * own + 0.4 * exchange.rows.nbytes


# ---------------------------------------------------------------------------------------------------------------------
# Pieces


class SmallInts:
    """A communicator of an MPI whose counts and displacements are integers of a few bits, as MPI 3.1's are of 32."""

    def __init__(self, comm: Any, most: int) -> None:
        self._comm, self._most = comm, most

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._comm, name)
        if name not in ("Alltoallv", "Allgatherv", "Gatherv", "Bcast", "Isend", "Irecv"):
            return attribute

        def checked(*args: Any) -> Any:
            for spec in args:
                if isinstance(spec, np.ndarray):
                    assert len(spec) <= self._most
                # Numbers of workers are sent as what they are; rows and doubles count.
                if isinstance(spec, list) and not _of_integers(spec[-1]):
                    if isinstance(spec[1], tuple):
                        assert max(map(np.max, spec[1])) <= self._most
                    else:  # the displacements that MPI finds end below the sum
                        assert np.sum(spec[1]) <= self._most
            return attribute(*args)

        return checked


def _of_integers(datatype: Any) -> bool:
    from mpi4py import MPI

    return bool(datatype == MPI.INT64_T)


@pytest.fixture(params=[1, 7, 40, 150])
def narrow(request: pytest.FixtureRequest, comm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A communicator that takes no larger counts than a few, and the package told so."""
    monkeypatch.setattr(collectives, "_LARGEST_COUNT", request.param)
    return SmallInts(comm, request.param)


@pytest.mark.parametrize("n_workers", [1, 4, 7])
def test_exchanges_in_pieces_bring_the_same_blocks(narrow: Any, n_workers: int) -> None:
    for rows in ROWS.values():
        exchange = Exchange(narrow, shard(narrow, rows), n_workers)
        one = Exchange(SerialComm(), rows, n_workers)
        for blocks in partitions(len(rows), n_workers):
            wanted = one.blocks(blocks)
            for worker, block in zip(exchange.workers, exchange.blocks(blocks), strict=True):
                assert block.tobytes() == wanted[worker].tobytes()


def test_the_communicator_of_small_integers_refuses_large_counts(comm: Any) -> None:
    if comm.size == 1:
        pytest.skip("one rank sends nothing")
    with pytest.raises(AssertionError):
        gather_rows(SmallInts(comm, 7), np.zeros(8))
    comm.barrier()


@pytest.mark.parametrize("n_workers", [2, 5])
def test_blocks_in_pieces_go_round(narrow: Any, n_workers: int) -> None:
    bounds = block_bounds(97, n_workers)
    rows = np.random.default_rng(0).standard_normal((97, 2))
    workers = hosted_workers(n_workers, narrow.size, narrow.rank)
    ring = Ring(narrow, rows[bounds[workers.start] : bounds[workers.stop]].copy(), bounds)
    for t in range(1, n_workers + 2):
        holding = (np.arange(n_workers) + t) % n_workers
        ring.start(holding)
        ring.finish()
        for worker, block in zip(workers, ring.blocks, strict=True):
            assert block.tobytes() == rows[bounds[holding[worker]] : bounds[holding[worker] + 1]].tobytes()


@pytest.mark.parametrize("lengths", [(9, 0, 17, 3), (0, 0, 0, 1), (30, 30, 30, 30), (0, 0, 0, 0)])
def test_rows_are_gathered_in_pieces(narrow: Any, lengths: Sequence[int]) -> None:
    ends = np.cumsum(lengths[: narrow.size])
    whole = np.random.default_rng(0).standard_normal((int(ends[-1]), 3))
    own = np.split(whole, ends[:-1])[narrow.rank]
    assert gather_rows(narrow, own).tobytes() == whole.tobytes()
    assert gather_rows(narrow, own[:, 1]).tobytes() == whole[:, 1].tobytes()
    gathered = gather_on_master(narrow, own[:, 0].copy())
    assert gathered.tobytes() == (whole if narrow.rank == 0 else own)[:, 0].tobytes()


def test_segments_arrive_in_pieces(narrow: Any) -> None:
    def segment(source: int, destination: int) -> Array:
        return 100.0 * source + 10.0 * destination + np.arange((3 * source + 5 * destination) % 13)

    outgoing = [segment(narrow.rank, destination) for destination in range(narrow.size)]
    arrived = send_segments(narrow, np.concatenate(outgoing), [len(each) for each in outgoing])
    assert [each.tolist() for each in arrived] == [segment(rank, narrow.rank).tolist() for rank in range(narrow.size)]


def test_many_rows_of_which_no_rank_has_many_go_in_one_call(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_LARGEST_COUNT", 5 * comm.size)
    monkeypatch.setattr(collectives, "post", None)  # what goes in pieces fails
    arrived = send_segments(SmallInts(comm, 5 * comm.size), np.full(5 * comm.size, comm.rank), [5] * comm.size)
    assert [each.tolist() for each in arrived] == [[rank] * 5 for rank in range(comm.size)]


@pytest.mark.parametrize("longest", [4, 400])
def test_runs_come_to_their_places_one_by_one_or_by_rows(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_CHUNK_ROWS", 7)
    rng = np.random.default_rng(longest)
    for n_runs in range(9):
        counts, order = rng.integers(0, longest, n_runs), rng.permutation(n_runs)
        gaps = rng.integers(0, 2, n_runs)  # some runs lie side by side
        places = np.empty(n_runs, dtype=np.int64)
        places[order] = np.cumsum((counts + gaps)[order]) - counts[order]
        rows = rng.normal(size=(int(counts.sum()), 2))
        found, wanted = (np.zeros((int((counts + gaps).sum()), 2)) for _ in range(2))
        for run, place in zip(np.split(rows, np.cumsum(counts)), places.tolist(), strict=False):
            wanted[place : place + len(run)] = run
        copy_runs(rows, counts, found, places)
        assert np.array_equal(found, wanted)
        taken, shuffled = np.zeros_like(wanted), rng.permutation(len(rows))
        take_runs(rows[shuffled], np.argsort(shuffled), slice(None), counts, taken, places)
        assert np.array_equal(taken, wanted)
