"""The cost model of complete statistics: what is counted is what the program does, and constants are found again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from completemodel import RingJob, SortJob, fullest
from costs import CLUSTER, Equation, Network, added, gathered, least_squares, predicted, told

from mpi_ustat.complete.sorting import SAMPLES_PER_RANGE
from mpi_ustat.errors import UserError

SORT, RING = SortJob((2**20, 2**20), 16, 2.0), RingJob((4800, 9600), 4, 12)


def test_a_sort_is_counted_by_hand() -> None:
    # 2¹⁶ scores of each sample on each rank, whose log₂ is 16; 64·16 = 2¹⁰ scores drawn for the splitters.
    # Twice the average comes here: 2¹⁷ of each sample.
    assert SORT.operations() == {
        "splitters": {"drawn": 2**10, "compared": 2**10 * 10},
        "sort": {"compared": 2 * 2**16 * 16, "part": 2 * 16},
        "merge": {"compared": 2 * 2**17 * 17, "part": 2 * 16},
        "count": {"looked_up": 2**17},
        "agree": {"start": 1, "object": 5 * 16},
    }
    alone = SortJob((2**20, 2**10), 1).operations()
    assert not alone["merge"] and alone["count"] == {"looked_up": 2**10}  # the fewer are looked up in the more


def test_a_ring_is_counted_by_hand() -> None:
    # In 12 steps 3 workers a rank meet blocks of 400 and 800 points.
    assert RING.operations() == {
        "evaluate": {"pair": 12 * 3 * 400 * 800, "meeting": 36},
        "move": {"step": 12, "entry": 144},
        "reduce": {"answer": 12, "object": 6 * 4},
    }


def test_messages_of_collectives() -> None:
    assert gathered(16, 1000) == (4, 1000 * 15 / 16)
    assert gathered(1000, 10**6) == (999, 10**6 * 0.999)  # a ring
    assert told(16, 8) == (4, 8 * 4 * 8)
    assert told(16, 1000) == (15, 15_000)
    assert added(16, 1000) == (8, 2 * 1000 * 15 / 16)
    for one_rank in (gathered(1, 1000), told(1, 8), told(1, 1000), added(1, 1000)):
        assert one_rank == (0, 0)
    assert SortJob((100, 100), 1).traffic() == RingJob((100, 100), 1, 4).traffic() == (0.0, 0.0)


def test_scores_move_once_and_blocks_in_all_steps_but_one() -> None:
    # Beside the scores, of which 15/16 leave, there go numbers that don't grow with them.
    for twice in (1, 2):
        _, sent = SortJob((twice * 2**20, twice * 2**20), 16).traffic()
        _, less = SortJob((twice * 2**19, twice * 2**19), 16).traffic()
        assert sent - less == pytest.approx(twice * 2**20 / 16 * 8 * 15 / 16)
    _, sent = RING.traffic()
    _, without = RingJob((4800, 9600), 4, 12, n_columns=9).traffic()
    assert sent - without == 11 * 400 * 8


@pytest.mark.parametrize("job", [SORT, RING])
def test_predictions_are_counts_times_constants(job: Any) -> None:
    constants = dict(zip(job.constants, 1.0 + np.arange(len(job.constants)), strict=True))
    network = Network(100.0, 10.0)
    seconds = predicted(constants, job.operations(), job.traffic(), network, 3.0)
    assert tuple(seconds) == job.phases
    messages, sent = job.traffic()
    assert (seconds.pop("latency"), seconds.pop("transfer")) == (100.0 * messages, 10.0 * sent)
    for phase, counts in job.operations().items():
        assert seconds[phase] == pytest.approx(3.0 * sum(constants[name] * count for name, count in counts.items()))


SORTS = [SortJob((n, n), p) for n in (10**5, 10**6, 10**7) for p in (1, 4, 300)]
RINGS = [RingJob((10**5,) * 2, p, n) for p, n in ((1, 4), (1, 50), (4, 16), (10, 200), (100, 3000), (300, 300))]


@pytest.mark.parametrize("jobs", [SORTS, RINGS])
def test_constants_are_found_again(jobs: list[Any]) -> None:
    names = jobs[0].constants
    made = {name: 10.0**-k for k, name in enumerate(names)}
    equations = []
    for job in jobs:
        seconds = predicted(made, job.operations(), (0.0, 0.0), CLUSTER)
        whole = sum(seconds.values())
        equations += [Equation(counts, seconds[phase], whole) for phase, counts in job.operations().items()]
    found = least_squares(names, equations)
    assert found.constants == pytest.approx(made, rel=1e-6)
    assert found.error < 1e-10


def test_the_fullest_rank_has_what_falls_between_two_splitters() -> None:
    rng, n_ranks, k = np.random.default_rng(4), 16, SAMPLES_PER_RANGE
    drawn = np.sort(rng.random((2000, k * n_ranks)), axis=1)
    cuts = np.pad(drawn[:, k::k], ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    largest = n_ranks * np.diff(cuts, axis=1).max(axis=1)
    # The quantile is off by less than a hundredth, and the mean of 2000 by 0.002.
    assert fullest(n_ranks) == pytest.approx(largest.mean(), abs=0.01 + 4 * largest.std() / np.sqrt(2000))
    assert fullest(1) == 1.0 < fullest(2) < fullest(1000) < fullest(10_000) < 1.6


def test_refusals() -> None:
    with pytest.raises(UserError, match="17 ranks can't each have a score of samples of \\(16, 20\\)"):
        SortJob((16, 20), 17)
    with pytest.raises(UserError, match="13 ranks can't share 12 blocks"):
        RingJob((100, 100), 13, 12)
    with pytest.raises(UserError, match="0 ranks"):
        RingJob((100, 100), 0, 12)


# ---------------------------------------------------------------------------------------------------------------------
# One rank of many that aren't there


@pytest.fixture
def pretended() -> Any:
    pytest.importorskip("mpi4py")
    import pretended

    return pretended


@pytest.mark.parametrize("job", [SortJob((6000, 5000), 7), RingJob((130, 140), 5, 13, 3)])
def test_ranks_say_as_many_objects_as_are_counted(job: Any, pretended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    heard = pretended.StandIn.allgather
    monkeypatch.setattr(pretended.StandIn, "allgather", lambda comm, said: calls.append(1) or heard(comm, said))
    _, seconds = pretended.pretended_complete(2, job, 1)
    in_sort = 2 if isinstance(job, SortJob) else 0  # in which ranges are looked for once more, ahead of it
    counted = sum(counts.get("object", 0) for counts in job.operations().values())
    assert (len(calls) - in_sort) * job.n_ranks == counted
    assert list(seconds) == list(job.operations())
    assert all(each > 0.0 for each in seconds.values())


def test_a_block_leaves_the_rank_in_each_step_but_the_last(pretended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = pretended.StandIn.Isend
    monkeypatch.setattr(
        pretended.StandIn, "Isend", lambda comm, rows, *where: sent.append(rows[0].nbytes) or send(comm, rows, *where)
    )
    job = RingJob((200, 190), 5, 10, 3)
    pretended.pretended_complete(2, job, 1)
    moves = 2 * (10 - 1)
    # The sums go home as well where the blocks have come to the end.
    assert moves <= len(sent) <= moves + 2
    assert sum(sent[:moves]) == (10 - 1) * 19 * 8 * (3 + 1)


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_a_pretended_rank_gets_what_lies_in_its_range(rank: int, pretended: Any) -> None:
    n_ranks, job = 8, SortJob((80_000, 80_000), 8)
    own = pretended.own_rows(job, rank)
    comm = pretended._sorting(own, rank, job, 0)
    samples = [pretended.Exchange(comm, rows, n_ranks) for rows in own]
    from mpi_ustat.complete.sorting import exchange_runs, splitters

    cuts = splitters(comm, samples, n_ranks, pretended.Streams(0))
    stretches, _ = exchange_runs(comm, samples, cuts)
    low, high = comm.bounds
    for stretch in stretches:
        assert low <= stretch.values[0] and stretch.values[-1] <= high
        assert (np.diff(stretch.values) >= 0.0).all()
        # 1/8 of all; of 64·8 drawn scores the share between two splitters is off by 1/8 (one standard deviation).
        assert abs(stretch.n_points / 10_000 - 1.0) < 0.7


def test_a_whole_statistic_is_that_of_all_rows(comm: Any, pretended: Any) -> None:
    job = SortJob((500, 400), comm.size)
    own = pretended.own_rows(job, comm.rank)
    x, z = (np.concatenate(each) for each in zip(*comm.allgather(own), strict=True))
    assert pretended.whole_statistic(comm, own, job, 1).value == np.mean(x[:, None] > z)
    ring = RingJob((50, 40), comm.size, 4, 2)
    points = pretended.own_rows(ring, comm.rank)
    x, z = (np.concatenate(each) for each in zip(*comm.allgather(points), strict=True))
    distances = np.linalg.norm(x[:, None] - z, axis=2)
    assert pretended.whole_statistic(comm, points, ring, 1).value == pytest.approx(distances.mean(), rel=1e-12)
