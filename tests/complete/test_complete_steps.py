"""Complete statistics in steps: each is progress to the watchdog, and how they are cut and shared changes no bit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import write_csv
from conftest import REPOSITORY, Mpirun
from faulty import VARIABLE
from numpy.typing import NDArray
from sharding import shard, shards

from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.complete import energy as energy_route
from mpi_ustat.complete import tuples as tuples_route
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.kernels.discrepancy import strips
from mpi_ustat.mpi.runtime import announced, in_portions, listening, telling

Floats = NDArray[np.float64]


def distance(x: Floats, z: Floats) -> Floats:
    return np.abs(x[:, 0, None] - z[:, 0])


def area(a: Floats, b: Floats, c: Floats) -> Floats:
    """Of degrees (2, 1)."""
    return np.abs(a[:, 0] - b[:, 0]) * c[:, 0]


area.degrees = (2, 1)  # type: ignore[attr-defined]


def samples(n: int, m: int, columns: int = 1) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, columns)), rng.normal(0.5, 2.0, size=(m, columns))


# --- portions


def test_every_portion_is_shared_in_order(comm: Any) -> None:
    found = in_portions(comm, [10, 20, 30], lambda portion: portion + comm.rank, doing="adding")
    assert list(found) == [[portion + rank for rank in range(comm.size)] for portion in (10, 20, 30)]


def test_a_failure_ends_all_ranks_after_the_portion_it_happened_in(comm: Any) -> None:
    done: list[int] = []

    def evaluate(portion: int) -> None:
        if portion == 1 and comm.rank == comm.size - 1:
            raise ValueError("no such thing")
        done.append(portion)

    with pytest.raises(UserError, match="evaluating failed.*: ValueError: no such thing"):
        for _ in in_portions(comm, range(1000), evaluate, doing="evaluating"):
            pass
    assert done == [0, 1][: 1 if comm.rank == comm.size - 1 else 2]


COURSES: dict[str, tuple[tuple[Floats, ...], Any, str, dict[str, Any]]] = {
    "ring": (samples(90, 70), lambda x, z: np.abs(x - z.T), "blocks met", {}),
    "ring of one sample": (samples(90, 70)[:1], "fmr", "blocks met", {"kernel_options": {"metric": "inner"}}),
    "with weights": (samples(90, 70), lambda x, z: np.abs(x - z.T), "blocks met", {"weights": True}),
    "energy": (samples(300, 200), "energy", "tiles done", {}),
    "tuples": (samples(20, 9), area, "chunks of tuples done", {"tile": 4}),
}


@pytest.mark.parametrize("name", COURSES)
def test_all_loops_of_a_complete_statistic_are_told_as_one(comm: Any, name: str) -> None:
    points, kernel, what, options = COURSES[name]
    own = shards(comm, points)
    if "weights" in options:
        options = {"weights": [np.ones(len(each)) for each in own]}
    heard: list[tuple[int, int]] = []
    with telling(lambda told, done, total, _: heard.append((done, total)) if told == what else None):
        estimate_samples(comm, own, kernel, complete=True, seed=1, **options)
    if not heard:  # fewer blocks than ranks
        assert comm.rank > 0
        return
    (total,) = {total for _, total in heard}
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
    assert heard[-1][0] == total >= (1 if comm.size > 1 else 2)


def test_steps_are_announced_as_they_begin() -> None:
    heard: list[str] = []
    with listening(heard.append):
        counts = [(step, len(heard)) for step in announced("abc", "climb")]
    assert counts == [("a", 1), ("b", 2), ("c", 3)]
    assert heard == ["climb"] * 3
    assert list(announced("abc")) == list("abc")


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("n_chunks", [1, 63, 64, 65, 1000, 2**70])
def test_portions_of_chunks_are_as_many_on_every_rank_and_small(n_chunks: int, n_ranks: int) -> None:
    if n_chunks < 2**70:
        shares = [list(tuples_route._portions(n_chunks, n_ranks, rank)) for rank in range(n_ranks)]
        assert len({len(share) for share in shares}) == 1
        assert list(chain(*chain(*shares))) == list(range(n_chunks))
        assert max(len(portion) for share in shares for portion in share) <= tuples_route._PORTION
    else:  # refused by the first one, and never gone through
        first = next(iter(tuples_route._portions(n_chunks, n_ranks, 0)))
        assert first.start == 0 and first.stop <= tuples_route._PORTION


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (129, 1), (1000, 700), (2000, 10)])
@pytest.mark.parametrize("size", [1, 10**5, 2**28])
def test_portions_of_strips_are_as_many_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, n: int, m: int, n_ranks: int, size: int
) -> None:
    monkeypatch.setattr(energy_route, "_PORTION", size)
    every = strips(n, m)
    n_pairs = (n + m) * (n + m - 1) // 2
    shares = [energy_route._portions(every, n_pairs, n_ranks, rank) for rank in range(n_ranks)]
    assert len({len(share) for share in shares}) == 1
    assert sorted(chain(*chain(*shares))) == sorted(every)
    if size == 2**28:
        assert len(shares[0]) == 1
    elif size == 1 and n > 1 and len(every) >= n_ranks:
        assert all(0 < len(portion) <= 2 for share in shares for portion in share)


@pytest.mark.parametrize("stderr", [True, False])
@pytest.mark.parametrize("kernel", ["energy", "mmd", "tuples"])
def test_portions_change_no_bit(comm: Any, monkeypatch: pytest.MonkeyPatch, kernel: str, stderr: bool) -> None:
    whole = samples(70, 50) if kernel == "tuples" else samples(700, 400)
    kinds: dict[str, Any] = {"tuples": area}
    options = {"complete": True, "stderr": stderr, "seed": 0, "n_workers": 3, "tile": 8}
    rows = tuple(each if kernel != "mmd" else each[:, 0] for each in whole)
    alone = estimate(SerialComm(), *rows, kinds.get(kernel, kernel), **options)
    monkeypatch.setattr(energy_route, "_PORTION", 1)
    monkeypatch.setattr(tuples_route, "_PORTION", 3)
    heard: list[str] = []
    with listening(heard.append):
        here = estimate(comm, *(shard(comm, each) for each in rows), kinds.get(kernel, kernel), **options)
    assert heard.count(f"after evaluating the kernel {here.config.kernel}") > 3
    assert (here.value, here.stderr) == (alone.value, alone.stderr)


# --- progress


def steps(comm: Any, rows: Sequence[Floats], kernel: Any, **options: Any) -> int:
    """How often all ranks together enter the phase of evaluation."""
    heard: list[str] = []
    with listening(heard.append):
        mine = [shard(comm, each) for each in rows]
        estimate_samples(comm, mine, kernel, complete=True, stderr=False, seed=0, **options)
    return sum(comm.allgather(heard.count("evaluate")))


def test_every_step_is_progress(comm: Any) -> None:
    # In each of 5 steps each of 5 workers meets a block; of one sample they are 3.
    assert steps(comm, samples(30, 20), distance, n_workers=5) == 25
    assert steps(comm, samples(300, 20)[:1], "fmr", n_workers=5) == 15
    assert steps(comm, samples(700, 300), "energy") == len(strips(700, 300)) == 15
    # C(12, 2) · 5 = 330 tuples, in chunks of 16.
    assert steps(comm, samples(12, 5), area, tile=4) == 21


def test_columns_and_pieces_of_a_sample_are_progress(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 columns on each rank.
    assert steps(comm, samples(40, 30, 3), "auc", columns=["a", "b", "c"]) >= 3 * comm.size
    monkeypatch.setattr("mpi_ustat.complete.auc._CHUNK", 16)
    assert steps(comm, (samples(400, 1)[0][:, 0], np.zeros(1)), "auc") >= 25


# --- what a watchdog sees

KERNEL = """\
import numpy as np

def area(a, b, c):
    return np.abs(a[:, 0] - b[:, 0]) * c[:, 0]

area.degrees = (2, 1)

def distance(x, z):
    return np.abs(x[:, 0, None] - z[:, 0])
"""


@pytest.mark.parametrize("kernel", ["energy", "own:area", "own:distance"])
def test_a_rank_that_hangs_in_a_step_is_told_from_the_others(mpirun: Mpirun, tmp_path: Path, kernel: str) -> None:
    (tmp_path / "own.py").write_text(KERNEL)
    write_csv(tmp_path / "data.csv", [(k * 0.7 % 1.0, k % 2) for k in range(40)], "s,y")
    words = ["estimate", "data.csv", "--label", "y", "--columns", "s", "--kernel", kernel, "--complete", "--tile", 4]
    words += ["--workers", 2]
    env = {VARIABLE: "evaluate:2:1:hang", "PYTHONPATH": str(tmp_path)}
    faulty = [REPOSITORY / "scripts" / "faulty.py"]
    done = mpirun(2, *words, "--timeout", 4, "--json", program=faulty, cwd=tmp_path, env=env)
    assert done.returncode == 1 and '"value"' not in done.stdout
    assert "no progress for 4 s on rank 1 in phase 'evaluate' (faulty.py, line " in done.stderr
