"""The complete VUS of distributed scores: the same bits as of the whole samples, wherever the scores lie."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat import estimate_samples
from mpi_ustat.complete import vus as route
from mpi_ustat.complete.vus import vus
from mpi_ustat.kernels.kernel import Local
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]
Bounds = Callable[[int, int], NDArray[np.int64]]

TIES = pytest.mark.parametrize("ties", ["strict", "shared"])


def first_and_last(total: int, parts: int) -> NDArray[np.int64]:
    """All on the first and the last rank: those between have nothing."""
    return np.array([0] + [total // 3 if parts > 1 else total] * (parts - 1) + [total])


def complete(
    comm: Any,
    kernel: VUS,
    blocks: list[Floats],
    *,
    bounds: Bounds = block_bounds,
    n_workers: int = 3,
    seed: int = 0,
    components: bool = True,
) -> tuple[Local, int]:
    """Run the route on samples that every rank knows, each rank taking its part of them."""
    samples = []
    for block in blocks:
        cuts = bounds(len(block), comm.size)
        samples.append(Exchange(comm, block[cuts[comm.rank] : cuts[comm.rank + 1]], n_workers))
    found = vus(comm, samples, kernel, n_workers, Streams(seed), components=components)
    return found.local, found.bytes_sent


def check(comm: Any, kernel: VUS, blocks: list[Floats], **options: Any) -> int:
    """Compare with the kernel on the whole samples, bit by bit; return the bytes sent by all ranks."""
    local, sent = complete(comm, kernel, blocks, **options)
    whole = kernel.local(*blocks)
    assert local.sums == whole.sums
    assert type(local.sums[0].total) is int
    if whole.components is None:
        assert local.components is None
    else:
        assert local.components is not None and local.components.tobytes() == whole.components.tobytes()
    return sum(comm.allgather(sent))


def samples_of(kind: str, sizes: list[int]) -> list[Floats]:
    rng = np.random.default_rng(len(sizes))
    blocks = [rng.normal(0.6 * k, 1, size) for k, size in enumerate(sizes)]
    return {
        "free": blocks,
        "some ties": [np.round(block, 1) for block in blocks],
        "heavy ties": [np.round(block) for block in blocks],
        "infinite": [np.where(np.abs(block) > 1, np.copysign(np.inf, block), block) for block in blocks],
        "one class of ties": [np.round(block) if k == 1 else block for k, block in enumerate(blocks)],
        "one score": [np.zeros_like(block) for block in blocks],
        "separated": [block + 100 * k for k, block in enumerate(blocks)],
        "separated, in the wrong order": [block - 100 * k for k, block in enumerate(blocks)],
    }[kind]


KINDS = (
    "free",
    "some ties",
    "heavy ties",
    "infinite",
    "one class of ties",
    "one score",
    "separated",
    "separated, in the wrong order",
)


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_distributed_scores_give_the_bits_of_the_whole(comm: Any, kind: str, n_classes: int, ties: str) -> None:
    kernel = VUS(n_classes, ties)
    blocks = samples_of(kind, [61, 47, 83, 30, 29][:n_classes])
    check(comm, kernel, blocks)
    check(comm, kernel, blocks, bounds=first_and_last, n_workers=7, seed=1)


@TIES
@pytest.mark.parametrize("sizes", [[1, 1, 1], [2, 2, 2], [1, 40, 3], [30, 1, 2], [3, 2, 50], [2, 3], [4, 1]], ids=str)
def test_ranks_without_scores(comm: Any, sizes: list[int], ties: str) -> None:
    kernel = VUS(len(sizes), ties)
    for kind in ("free", "heavy ties"):
        for bounds in (block_bounds, first_and_last):
            check(comm, kernel, samples_of(kind, sizes), bounds=bounds, n_workers=1)


@TIES
def test_large_sums_are_exact(comm: Any, ties: str) -> None:
    # Sums of squares of 22000 scores pass 64 bits, of 9000 in each of 4 classes the total does where ties share.
    for kind in ("free", "some ties"):
        blocks = samples_of(kind, [9000, 7000, 6000])
        check(comm, VUS(3, ties), blocks)
    local, _ = complete(comm, VUS(4, ties), [np.arange(30_000.0)] * 4)
    assert local.sums[0].total == (30_000**4 if ties == "shared" else math.comb(30_000, 4))


@TIES
def test_components_of_many_classes_are_found_when_they_are_wanted(comm: Any, ties: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(route, "_STRETCH", 7)
    blocks = samples_of("some ties", [20, 13, 31, 11])
    check(comm, VUS(4, ties), blocks)
    local, _ = complete(comm, VUS(4, ties), blocks, components=False)
    assert local == (VUS(4, ties).block_sums(*blocks), None)
    many = [np.arange(3.0) + k for k in range(13)]
    assert complete(comm, VUS(13, ties), many)[0] == (VUS(13, ties).block_sums(*many), None)


def test_the_value_of_seven_points(comm: Any) -> None:
    blocks = [np.array([1.0, 2, 2]), np.array([2.0, 3]), np.array([2.0, 3, 4])]
    strict, shared = (complete(comm, VUS(3, ties), blocks)[0].sums[0] for ties in ("strict", "shared"))
    assert (strict.total, strict.n_pairs) == (5, 18)
    assert (27 * shared.total, shared.n_pairs) == (14 * 6 * 18, 18)


def test_only_scores_of_other_ranges_are_sent_and_repeated_ones_once(comm: Any) -> None:
    rng = np.random.default_rng(3)
    scores = [rng.permutation(np.arange(1000.0) + k / 3) for k in range(3)]
    ordered = check(comm, VUS(), [np.sort(block) for block in scores])
    shuffled = check(comm, VUS(), scores)
    constant = check(comm, VUS(3, "shared"), [np.zeros(1000)] * 3)
    if comm.size == 1:
        assert (ordered, shuffled, constant) == (0, 0, 0)
    else:
        assert 0 < ordered < shuffled <= 8 * 3000
        assert constant <= 16 * 3 * (comm.size - 1)


@TIES
def test_real_wine_qualities_by_alcohol(comm: Any, shared_data: Path, ties: str) -> None:
    file = shared_data / "winequality_white.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in {shared_data}")
    data = np.load(file)
    alcohol, quality = data["X"][:, 10], data["y"]
    for classes in ([5, 7], [5, 6, 7], range(3, 10)):
        check(comm, VUS(len(classes), ties), [alcohol[quality == each] for each in classes])


def test_the_standard_error_of_seven_classes_is_the_same_for_every_seed(comm: Any, shared_data: Path) -> None:
    file = shared_data / "winequality_white.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in {shared_data}")
    data = np.load(file)
    alcohol, quality = data["X"][:, 10], data["y"]
    mine = [np.array_split(alcohol[quality == each], comm.size)[comm.rank] for each in range(3, 10)]
    found = [estimate_samples(comm, mine, "vus", complete=True, seed=seed) for seed in (0, 1)]
    assert [each.error and each.error.method for each in found] == ["components"] * 2
    assert found[0].stderr == found[1].stderr == pytest.approx(0.0013581775250770453, rel=1e-14)
    within = estimate_samples(comm, mine, "vus", scheme="prop-swor", n_workers=2, n_rounds=2, seed=1)
    assert within.error is not None and within.error.method == "components"


@TIES
@pytest.mark.parametrize("name", ["era", "esl", "lev", "swd"])
def test_real_ordinal_classes(comm: Any, shared_data: Path, name: str, ties: str) -> None:
    file = shared_data / f"ordinal_{name}.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in {shared_data}")
    data = np.load(file)
    blocks = [data["X"][data["y"] == each].sum(axis=1) for each in np.unique(data["y"])]
    check(comm, VUS(len(blocks), ties), blocks)
    check(comm, VUS(3, ties), blocks[-3:], bounds=first_and_last)


def test_what_to_do_with_more_classes_than_have_components(comm: Any) -> None:
    mine = [np.array_split(np.arange(8.0) + 6 * k, comm.size)[comm.rank] for k in range(13)]
    error = estimate_samples(comm, mine, "vus", complete=True, seed=0).error
    assert error is not None and error.method == "none"
    assert any("take the mean over several workers" in each for each in error.flags)
    error = estimate_samples(comm, mine, "vus", scheme="prop-swor", n_workers=2, n_rounds=2, seed=0).error
    assert error is not None and error.method == "workers"
