"""The cost model of a round: operations counted by hand, constants found again, and what must grow or shrink."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from costmodel import CONSTANTS, PHASES, CostModel, Job, TimedRound, fit, operations, traffic
from costs import Network

from mpi_ustat.errors import UserError

JOB = Job((2**20, 2**20), n_workers=16, n_ranks=2)

MODEL = CostModel(
    keyed_row=3e-9,
    permuted_row=9e-9,
    matrix_entry=6e-7,
    tree_entry=2e-7,
    grouped_row=4e-9,
    scattered_row=6e-9,
    piece=1e-6,
    worker=1.5e-5,
    sampling_worker=2e-5,
    comparison=8e-10,
    pair=6e-9,
    answer=9e-6,
    sampled_answer=5e-6,
)
TCP = Network(3e-5, 1e-8)


def test_operations_are_those_counted_by_hand() -> None:
    # S = √(2²⁰ / (64·16)) = 32 source blocks of 2¹⁵ rows, enough for keys of 14 bits. Of each sample a rank has 2¹⁹
    # rows, 4 MiB: one step, in 4 chunks of 2¹⁷ rows, each with 16 pieces to place, of which 16/2 come from the other
    # rank, and one to take for that.
    counts = operations(JOB)
    draw = {"keyed_row": 2 * 2**19, "permuted_row": 0, "matrix_entry": 2 * 32 * 16, "tree_entry": 0}
    assert counts["draw"] == draw
    group = {"grouped_row": 2 * 2**19, "scattered_row": 0, "piece": 2 * 4 * (16 + 1)}
    assert counts["group"] == group
    # A worker has 2¹⁶ rows of each sample, whose log₂ is 16.
    assert counts["evaluate"] == {"worker": 8, "comparison": 8 * 2 * 2**16 * 16}
    assert counts["reduce"] == {"answer": 16}


def test_sampled_pairs_are_counted_instead_of_comparisons() -> None:
    counts = operations(replace(JOB, n_pairs=100))
    assert counts["evaluate"] == {"sampling_worker": 8, "pair": 800}
    assert counts["reduce"] == {"sampled_answer": 16}
    assert counts["draw"] == operations(JOB)["draw"]


def test_messages_are_those_counted_by_hand() -> None:
    # An Alltoall says how many rows will come of each sample for the 16 workers from each of 4 chunks, an Alltoallv
    # brings them: half of 4 MiB.
    # Ranks agree, gather the answers of 8 workers, and agree again.
    found = traffic(JOB)
    assert found == {"group": (4, 2 * (2**21 + 4 * 4 * 16)), "reduce": (3, 8 * 88)}
    assert traffic(replace(JOB, n_ranks=1)) == {"group": (0, 0), "reduce": (0, 0)}
    # 8 MiB more than fits a step: two of them, and three Alltoallv with 3 other ranks.
    messages, _ = traffic(Job((3 * 2**22,), n_workers=16, n_ranks=4))["group"]
    assert messages == 3 * 3
    # 10⁴ answers are gathered in a ring.
    assert traffic(Job((10**6,), n_workers=10_000, n_ranks=1000))["reduce"][0] == 2 * 10 + 999


def test_many_rows_for_few_workers_have_keys() -> None:
    counts = operations(Job((2**26,), n_workers=16, n_ranks=4))["draw"]  # S = 256, blocks of 2¹⁸
    assert counts == {"keyed_row": 2**24, "permuted_row": 0, "matrix_entry": 256 * 16, "tree_entry": 0}


def test_a_rank_draws_at_the_nodes_above_its_rows() -> None:
    # 1024 ranges of 2²⁰ rows, in a tree of 10 levels; of 32 ranks each has 5 nodes on its way, and 31 of its own.
    found = [operations(Job((2**30,), n_workers=2**14, n_ranks=p))["draw"] for p in (1, 32, 1024)]
    assert [each["tree_entry"] for each in found] == [n_nodes * 2**14 for n_nodes in (1023, 36, 10)]
    assert not any(each["matrix_entry"] for each in found)


def test_messages_that_tell_little_take_few_steps_and_short_runs_no_pieces() -> None:
    # A worker a rank: 8 bytes to each of 1000 ranks, in 10 messages; one chunk, packed and placed at once.
    job = Job((10**6,), n_workers=1000, n_ranks=1000)
    assert traffic(job)["group"] == (999 + 10, 0.999 * 8000 + 8 * 10 * 500)
    assert operations(job)["group"] == {"grouped_row": 1000, "scattered_row": 0, "piece": 0}
    # 5000 workers a rank, with 200 rows each of 2: half of a run is less than the row by row takes.
    several = operations(Job((2 * 10**6,), n_workers=10_000, n_ranks=2))["group"]
    assert several == {"grouped_row": 10**6, "scattered_row": 10**6, "piece": 0}


def test_a_prediction_is_operations_times_constants() -> None:
    seconds = MODEL.predict(JOB, TCP)
    assert list(seconds) == list(PHASES)
    assert seconds == pytest.approx(
        {
            "draw": 2**20 * 3e-9 + 1024 * 6e-7,
            "group": 2**20 * 4e-9 + 136 * 1e-6,
            "latency": 7 * 3e-5,
            "transfer": (2**22 + 512 + 704) * 1e-8,
            "evaluate": 8 * 1.5e-5 + 2**24 * 8e-10,
            "reduce": 16 * 9e-6,
        },
        rel=1e-12,
    )


def test_ranks_that_share_a_core_compute_longer_and_send_as_long() -> None:
    alone, shared = MODEL.predict(JOB, TCP), MODEL.predict(JOB, TCP, ranks_per_core=2.0)
    for phase in PHASES:
        times = 1.0 if phase in ("latency", "transfer") else 2.0
        assert shared[phase] == pytest.approx(times * alone[phase], rel=1e-12)


def test_a_rank_never_shuffles_less_than_a_range() -> None:
    # 2048 ranges of 488 281 rows or one more.
    part = 10**9 // 2048
    job = {p: operations(Job((10**9,), n_workers=1000, n_ranks=p))["draw"]["keyed_row"] for p in (1, 32, 1000)}
    assert job[1] == 10**9 and abs(job[32] - 10**9 / 32) <= 64
    assert 2 * part <= job[1000] <= 4 * (part + 1)  # 10⁶ rows, which straddle three or four


def test_phases_shrink_and_grow_with_ranks_as_they_must() -> None:
    # Of powers of two, or ranks could straddle more source blocks than fewer ranks do.
    predicted = [MODEL.predict(Job((2**27, 2**24), n_workers=4096, n_ranks=1 << k), TCP) for k in range(13)]
    for fewer, more in pairwise(predicted):
        for phase in ("draw", "evaluate"):
            assert more[phase] <= fewer[phase]
        assert more["latency"] > fewer["latency"]
        assert more["reduce"] == fewer["reduce"]
    for fewer, more in pairwise(predicted[1:]):
        assert more["transfer"] < fewer["transfer"]


@pytest.mark.parametrize("field", CONSTANTS)
def test_no_phase_gets_quicker_when_a_constant_grows(field: str) -> None:
    slower, used = replace(MODEL, **{field: 2.0 * getattr(MODEL, field)}), False
    for n_pairs in (None, 100):
        more = [
            Job((size, size), n_workers, 4, n_pairs)
            for size, n_workers in ((2**26, 16), (10**6, 10_000), (10**6, 20_000))
        ]
        for job in (replace(JOB, n_pairs=n_pairs), *more):
            before, after = MODEL.predict(job, TCP), slower.predict(job, TCP)
            assert all(after[phase] >= before[phase] for phase in PHASES)
            used |= any(after[phase] > before[phase] for phase in PHASES)
    assert used


def jobs() -> list[Job]:
    return [
        Job(sizes, n_workers, n_ranks, n_pairs)
        for sizes in ((10**7, 10**7), (4 * 10**6, 4 * 10**6), (10**6, 10**6), (2 * 10**6, 2 * 10**5))
        for n_workers in (100, 1000, 10_000, 20_000)
        for n_ranks in (1, 2)
        for n_pairs in (None, 100, 10_000)
    ]


def timed(job: Job, errors: np.ndarray) -> TimedRound:
    """Return a round as the model has it, but for errors of each phase, as shares of the whole."""
    parts = MODEL.predict(job, Network())
    sending = {
        phase: messages * TCP.latency + sent * TCP.seconds_per_byte for phase, (messages, sent) in traffic(job).items()
    }
    total = sum(parts.values()) + sum(sending.values())
    draw, exchange, evaluate, reduce = total * errors + [
        parts["draw"],
        parts["draw"] + parts["group"] + sending["group"],
        parts["evaluate"],
        parts["reduce"] + sending["reduce"],
    ]
    return TimedRound(job, TCP, draw, exchange, evaluate, reduce, total)


def test_exact_rounds_give_the_constants_exactly() -> None:
    found = fit([timed(job, np.zeros(4)) for job in jobs()])
    assert found.constants == pytest.approx(asdict(MODEL), rel=1e-8)
    assert found.error < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_noisy_rounds_give_the_constants_within_their_standard_errors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = fit([timed(job, 0.02 * rng.standard_normal(4)) for job in jobs()])
    assert found.error == pytest.approx(0.02, rel=0.2)
    for name in CONSTANTS:
        true, error = getattr(MODEL, name), found.standard_errors[name]
        assert 0.0 < error < 0.2 * true
        assert abs(found.constants[name] - true) < 4.0 * error


def test_constants_are_never_negative() -> None:
    rounds = [replace(timed(job, np.zeros(4)), reduce=0.0) for job in jobs()]
    found = fit(rounds)
    assert found.constants["answer"] == 0.0
    assert np.isnan(found.standard_errors["answer"])
    assert found.constants["worker"] == pytest.approx(MODEL.worker, rel=1e-6)


def test_refusals() -> None:
    with pytest.raises(UserError, match="17 ranks can't share 16 workers: give from 1 to 16 ranks"):
        replace(JOB, n_ranks=17)
    with pytest.raises(UserError, match="0 ranks"):
        replace(JOB, n_ranks=0)
    with pytest.raises(UserError, match="16 workers can't each have a row"):
        replace(JOB, sizes=(100, 15))
    rounds = [timed(job, np.zeros(4)) for job in jobs()]
    with pytest.raises(UserError, match="took no time"):
        fit([replace(rounds[0], total=0.0), *rounds[1:]])
    with pytest.raises(UserError, match=r"no job tells what costs sampling_worker, pair, sampled_answer:"):
        fit([each for each in rounds if each.job.n_pairs is None])
    with pytest.raises(UserError, match="don't tell the constants apart"):
        fit([each for each in rounds if each.job.n_pairs != 100])
    with pytest.raises(UserError, match="no job tells"):
        fit([])
