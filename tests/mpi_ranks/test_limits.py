"""What nobody means: sizes that no memory holds and times that nobody waits are refused; long waits are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpi_ustat import SerialComm, UserError, estimate, learn
from mpi_ustat.app.progress import told, told_in_full
from mpi_ustat.errors import brief
from mpi_ustat.mpi import limits
from mpi_ustat.mpi.limits import duration, refuse_beyond_a_month, refuse_beyond_memory
from mpi_ustat.mpi.runtime import announced, entering, telling


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape)


TOO_LARGE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "rounds": (
        lambda comm: estimate(comm, scores(9), scores(8), n_workers=2, n_rounds=10**12, seed=0),
        r"what 2 workers find in 1000000000000 rounds would take about .* GB .* ask for fewer n_rounds=",
    ),
    "columns": (
        lambda comm: estimate(comm, scores(2, 9000), scores(2, 9000), columns=["c"] * 9000, complete=True, seed=0),
        "the covariance of 9000 statistics would take about .* choose fewer columns, or stderr=False",
    ),
    "distinct pairs": (
        lambda comm: estimate(
            comm, scores(30000), scores(30000), n_pairs=5 * 10**8, distinct=True, n_workers=1, seed=0
        ),
        "the numbers of 500000000 tuples .* ask for fewer n_pairs=",
    ),
    "a tile": (
        lambda comm: estimate(comm, scores(30000), scores(30000), lambda x, z: x - z.T, tile=10**9, seed=0),
        "a tile of [0-9]+ by [0-9]+ pairs would take .* use a smaller tile=",
    ),
    "iterations": (
        lambda comm: learn(comm, scores(9, 2), scores(8, 2), iterations=10**12, seed=0),
        "the curves of 1000000000000 iterations, evaluated every 25 would take .* eval_every=",
    ),
    "a batch": (
        lambda comm: learn(comm, scores(9, 2), scores(8, 2), batch_pairs=10**10, seed=0),
        r"10000000000 pairs for each of [0-9]+ workers? would take .* ask for fewer batch_pairs=",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_no_memory_holds_is_refused_before_it_is_begun(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(limits, "memory_here", lambda: 4 * 10**9)
    make, message = TOO_LARGE[name]
    with pytest.raises(UserError, match=message):
        make(comm)


def test_each_rank_has_its_share_of_its_hosts_memory(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_here", lambda: 10**12 * comm.size if comm.rank else 10**11 * comm.size)
    refuse_beyond_memory(comm, 0.9e11, "that", "take less")
    with pytest.raises(UserError, match="that would take about 110 GB on every rank, which has 100: take less"):
        refuse_beyond_memory(comm, 1.1e11, "that", "take less")
    monkeypatch.setattr(limits, "memory_here", lambda: 1)
    refuse_beyond_memory(comm, 1e6, "what every machine has", "take less")


def test_the_slowest_rank_counts(comm: Any) -> None:
    last = comm.rank == comm.size - 1
    refuse_beyond_a_month(comm, 86400.0, "that", "take less")
    with pytest.raises(UserError, match="that would take about 100 days, to judge by the first of it: take less"):
        refuse_beyond_a_month(comm, 8.64e6 if last else 0.0, "that", "take less")


def test_memory_is_that_of_the_group_if_it_is_confined(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "_CGROUP", str(file))
    whole = limits.memory_here()
    assert whole > 10**8
    for text, expected in (("max\n", whole), ("1000000\n", 10**6), (str(10**18), whole)):
        file.write_text(text)
        assert limits.memory_here() == expected


def test_durations() -> None:
    found = [duration(each) for each in (0.5, 119, 121, 7000, 7201, 172801, 6.4e7, 1e12)]
    assert found == [
        "0.5 seconds", "119 seconds", "2.02 minutes", "117 minutes", "2 hours", "2 days", "2.03 years",
        "3.17e+04 years",
    ]  # fmt: skip


def test_long_words_and_texts_lose_their_middle() -> None:
    assert brief("no column 'a b'") == "no column 'a b'"
    assert brief(f"no column '{'9' * 5000}': choose") == f"no column '{'9' * 49} … {'9' * 23}': choose"
    text = "word " * 1000 + "the remedy"
    assert len(brief(text)) < 800
    assert brief(text).endswith("the remedy")


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("seldom", "expected"), [(False, [1, 2, 3, 4]), (True, [1, 3])])
def test_long_computations_tell_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seldom: bool, expected: list[int]
) -> None:
    clock = Clock()
    for module in ("mpi_ustat.app.progress", "mpi_ustat.mpi.runtime"):
        monkeypatch.setattr(f"{module}.time", clock)
    with told(SerialComm(), seldom=seldom):
        for _ in announced(range(5)):
            clock.now += 50.0  # of 250: the first line says so at once
        assert list(announced(iter("ab"))) == ["a", "b"]  # of a number that is not known
        for _ in announced(range(9)):
            clock.now += 0.5
    lines = capsys.readouterr().err.splitlines()
    told_of = [f"evaluate {done} of 5, about {duration(250 - 50 * done)} to go" for done in expected]
    assert [line for line in lines if "to go" in line] == told_of
    clock.now += 1000.0
    with told(SerialComm(), quiet=True):
        for _ in announced(range(5)):
            clock.now += 50.0
    assert capsys.readouterr().err == ""


def test_in_full_each_phase_is_told_as_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    for module in ("mpi_ustat.app.progress", "mpi_ustat.mpi.runtime"):
        monkeypatch.setattr(f"{module}.time", clock)
    with told_in_full(SerialComm()):
        for _ in announced(range(3), "climb"):
            clock.now += 1.25
        for _ in range(4):  # again and again, but a line a second at most
            for phase in ("read", "after read", "read", "write"):
                entering(phase)
            clock.now += 0.5
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert first.strip().startswith("1 rank, the first on ")
    assert [line.strip() for line in lines] == [
        "0.000 s climb",
        "climb 1 of 3, about 2.5 seconds to go",
        "climb 2 of 3, about 1.25 seconds to go",
        "climb 3 of 3",
        "3.750 s read",
        "3.750 s write",
        "4.750 s read",
        "4.750 s write",
    ]
    assert last.strip().startswith("5.750 s done; the first rank has had ")


def quintuple(*points: np.ndarray) -> np.ndarray:
    return sum(points)[:, 0]


quintuple.degrees = (5,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"complete": True}, {"n_workers": 1}, {"n_workers": 1, "n_rounds": 3}], ids=str)
def test_tuples_beyond_a_month_are_refused(comm: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    n = 2000  # 2.6e14 tuples
    own = scores(n)[n * comm.rank // comm.size : n * (comm.rank + 1) // comm.size]
    with pytest.raises(UserError, match=r"tuples on a rank would take about .* sample some of them \(n_pairs=\)"):
        estimate(comm, own, None, quintuple, seed=0, **options)
    few = estimate(comm, own[:10], None, quintuple, seed=0, n_workers=1, n_pairs=100)
    assert np.isfinite(few.value)


@pytest.mark.parametrize("options", [{"n_pairs": 2**63 - 1}, {"n_pairs": 2**40, "n_rounds": 10**6}], ids=str)
def test_sampled_pairs_beyond_a_month_are_refused(comm: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"sampled pairs on a rank would take about .* years, .* fewer n_pairs="):
        estimate(comm, scores(300), scores(200), "auc", n_workers=comm.size, seed=0, **options)


def test_both_passes_over_sampled_pairs_and_workers_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, int, int]] = []
    monkeypatch.setattr("mpi_ustat.estimation.evaluation._PART", 256)
    with telling(lambda what, done, total, _: heard.append((what, done, total))):
        estimate(SerialComm(), scores(300), scores(200), "auc", n_pairs=1000, n_workers=2, seed=4, stderr=False)
    of_worker = [(what, done, 4) for what in ("draw", "evaluate") for done in (1, 2, 3, 4)]
    assert heard == [*of_worker, ("worker", 1, 2), *of_worker, ("worker", 2, 2)]


@pytest.mark.parametrize("kernel", ["auc", "product", "gini"])
def test_pairs_that_are_drawn_in_parts_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    x, z = scores(300), scores(200)
    options = {"n_pairs": 5000, "n_workers": 2, "n_rounds": 2, "seed": 4, "stderr": False}
    monkeypatch.setattr("mpi_ustat.kernels.blocks._CHUNK", 64)
    whole = estimate(SerialComm(), x, z, kernel, **options)
    monkeypatch.setattr("mpi_ustat.estimation.evaluation._PART", 256)
    parts = estimate(SerialComm(), x, z, kernel, **options)
    assert parts.per_worker.tobytes() == whole.per_worker.tobytes()
    assert parts.value == whole.value
