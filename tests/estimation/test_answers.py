"""What workers found, as arrays: gathered by any number of ranks, and in the words of the kernel's own objects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.aggregation import local_values, part_means
from mpi_ustat.estimation.answers import Found, found_by, gathered
from mpi_ustat.estimation.evaluation import Evaluation
from mpi_ustat.estimation.records import NAMES, Record, narrowed, weighted_means
from mpi_ustat.estimation.round_sums import pooled_means, sums_of
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.blocks import mean, pool
from mpi_ustat.kernels.kernel import Local, PairSum
from mpi_ustat.mpi.runtime import hosted_workers
from mpi_ustat.numerics.types import Ints
from mpi_ustat.numerics.wholes import integers

KERNEL = AUC(columns=2)


def evaluations(n: int, kind: str) -> list[Evaluation]:
    """Return what n workers might find: whole numbers, large ones, doubles; some of them nothing."""
    rng = np.random.default_rng(n)
    found = []
    for i in range(n):
        count = 0 if i % 5 == 3 else int(rng.integers(1, 50)) * (3**90 if kind == "huge" else 1)
        totals: list[Any] = [int(rng.integers(-9, 9)) * count for _ in range(2)]
        if kind == "doubles" and count:
            totals[1] = float(rng.normal())
        sums = (PairSum(totals[0], count), PairSum(totals[1], count))
        components = rng.normal(size=(3, 2, 2)) if kind != "huge" and count and i % 2 else None
        multiplicities = (i, 2**70 + i, 0, 1) if kind == "huge" else None
        found.append(Evaluation(Local(sums, components), count, multiplicities))
    return found


@pytest.mark.parametrize("kind", ["small", "huge", "doubles"])
@pytest.mark.parametrize("n", [1, 3, 14])
def test_all_ranks_get_what_every_worker_found(comm: Any, n: int, kind: str) -> None:
    workers = evaluations(n, kind)
    mine = hosted_workers(n, comm.size, comm.rank)
    own = found_by(KERNEL, workers[mine.start : mine.stop])
    found, moved = gathered(comm, None, own, np.array([comm.rank, 2]), n, doing="trying")
    assert moved.tolist() == [comm.size * (comm.size - 1) // 2, 2 * comm.size]
    answers = found.answers
    assert repr(answers.sums) == repr(tuple(each.local.sums for each in workers))
    assert integers(answers.weights) == integers(answers.evaluations) == [each.n_tuples for each in workers]
    assert answers.has_pairs.tolist() == [each.n_tuples > 0 for each in workers]
    assert np.array_equal(answers.values, [local_values(KERNEL, each.local.sums) for each in workers], equal_nan=True)
    means = [part_means(KERNEL, each.local.sums) for each in workers]
    assert np.array_equal(answers.part_means, means, equal_nan=True)
    assert found.has_components.tolist() == [each.local.components is not None for each in workers]
    for i, each in enumerate(workers):
        assert each.local.components is None or np.array_equal(found.components[i], each.local.components)
    told = integers(found.multiplicities.reshape(len(found.multiplicities), -1))
    assert told == [number for each in workers for number in each.multiplicities or ()]


@pytest.mark.parametrize("kind", ["small", "huge", "doubles"])
def test_averages_over_all_workers_are_those_of_the_objects(kind: str) -> None:
    workers = [evaluations(n, kind) for n in (6, 9)]
    answers = [found_by(KERNEL, each).answers for each in workers]
    everyone = [each for of_round in workers for each in of_round]
    sums = [pool(part) for part in zip(*(each.local.sums for each in everyone), strict=True)]
    assert pooled_means(KERNEL, list(map(sums_of, answers))).tolist() == [mean(each, KERNEL.scale) for each in sums]
    total = sum(each.n_tuples for each in everyone)
    terms = [(each.n_tuples / total, part_means(KERNEL, each.local.sums)) for each in everyone if each.n_tuples]
    expected = [math.fsum(weight * means[k] for weight, means in terms) for k in range(2)]
    assert weighted_means(answers).tolist() == weighted_means(list(map(Record.of, answers))).tolist() == expected


@pytest.mark.parametrize("kind", ["small", "huge", "doubles"])
def test_a_record_has_the_answers_in_less_memory(kind: str) -> None:
    """Also the words of large numbers; and what is the same as in the round before is not there again."""
    answers, before = (found_by(KERNEL, evaluations(n, kind)).answers for n in (9, 14))
    record = Record.of(answers, Record.of(before))
    for name in NAMES:
        found, wanted = getattr(record.answers, name), getattr(answers, name)
        assert (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes()), name
    assert record.answers.scale == answers.scale
    assert record.arrays["totals"].itemsize == (8 if kind == "huge" else 2)
    again = Record.of(found_by(KERNEL, evaluations(9, kind)).answers, record)
    assert all(again.arrays[name] is record.arrays[name] for name in NAMES)


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [([0, 255], "uint8"), ([0, 256], "uint16"), ([-1, 127], "int8"), ([-1, 128], "int16"), ([-(2**31), 2**31], "int64"),
     ([0, 2**32 - 1], "uint32"), ([0, 2**32], "int64"), ([-(2**63), 2**63 - 1], "int64"), ([], "uint8")],
)  # fmt: skip
def test_numbers_are_kept_in_the_narrowest_type_that_holds_them(numbers: list[int], dtype: str) -> None:
    found = narrowed(np.array(numbers, dtype=np.int64))
    assert found.dtype == dtype and found.tolist() == numbers
    for other in ([-1], [2**40], [300]):  # as in a stack of several rounds
        assert np.concatenate([found, narrowed(np.array(other))]).tolist() == [*numbers, *other]


def test_what_fails_on_one_rank_fails_on_all(comm: Any) -> None:
    last = comm.rank == comm.size - 1
    error = ValueError("too bad") if last else None
    own: Found | None = None if last else found_by(KERNEL, [])
    moved: Ints = np.zeros(2, dtype=np.int64)
    with pytest.raises(UserError, match="trying failed: ValueError: too bad"):
        gathered(comm, error, own, moved, 4, doing="trying")
