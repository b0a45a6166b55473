"""Complete statistics by a ring: every pair once, and the same bits at every number of ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.complete.ring import ring
from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.kernel import Kernel, Local, Meeting, PairSum, Points, as_rows
from mpi_ustat.kernels.similarity_histogram import SimilarityHistogram
from mpi_ustat.kernels.user_pairs import UserKernel, UserPairs
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Array = NDArray[Any]


def absolute(x: Points, z: Points) -> Array:
    """Distances, and a part that tells x from z."""
    return np.stack([np.abs(x[:, :1] - z[:, :1].T), 1e6 + x[:, :1] - 2.0 * z[:, 1:2].T], axis=2)


def symmetric(x: Points, z: Points) -> Array:
    return np.stack([np.abs(x[:, :1] - z[:, :1].T), 1e6 + x[:, 1:2] * z[:, 1:2].T], axis=2)


def counted(x: Points, z: Points) -> Array:
    """Three whole numbers, two of which are bins."""
    difference = np.floor(x[:, :1] - z[:, 1:2].T)
    return np.stack([difference == 0, difference == 1, difference], axis=2).astype(np.int64)


class Matrix(Kernel):
    """A kernel with margins, of p parts and a scale, whose blocks are whole matrices: (a, d), (b, d) → (a, b, p)."""

    name = "matrix"
    has_margins = True

    def __init__(self, function: Callable[[Points, Points], Array], degrees: tuple[int, ...], scale: int = 1) -> None:
        self.function, self.degrees, self.scale = function, degrees, scale

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        return self.margins(*blocks)[0]

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        raise NotImplementedError

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        return self.block_sums(x, y)

    def margins(self, *blocks: Points) -> Meeting:
        x, z = as_rows(blocks[0]), as_rows(blocks[-1])
        values = self.scale * self.function(x, z)
        if len(blocks) == 1:
            chosen = np.triu(np.ones(values.shape[:2], dtype=bool), 1)
            kept = np.where(chosen[..., None], values, 0)
            points: tuple[Array, ...] = (kept.sum(axis=1) + kept.sum(axis=0),)
            pairs = values[chosen]
        else:
            points, pairs = (values.sum(axis=1), values.sum(axis=0)), values.reshape(-1, values.shape[2])
        centred = pairs - pairs.mean(axis=0)
        sums = tuple(PairSum(total, len(pairs)) for total in pairs.sum(axis=0).tolist())
        return Meeting(sums, points, centred.T @ centred)


class Without(Matrix):
    """The same without margins."""

    has_margins = False


def whole(kernel: Matrix, *samples: Points) -> Local:
    """All pairs at once: sums and components from the definitions."""
    values = kernel.function(samples[0], samples[-1]).astype(np.float64)
    p = values.shape[2]
    if len(samples) == 2:
        n, m = values.shape[:2]
        mean = values.mean(axis=(0, 1))
        rows, columns = values.mean(axis=1) - mean, values.mean(axis=0) - mean
        centred = (values - mean).reshape(-1, p)
        sums = tuple(PairSum(float(total), n * m) for total in kernel.scale * values.sum(axis=(0, 1)))
        found = None
        if min(n, m) > 1:
            found = two_sample_components(n, m, rows.T @ rows, columns.T @ columns, centred.T @ centred)
        return Local(sums, found)
    n = len(values)
    pairs = np.array([values[i, j] for i, j in itertools.combinations(range(n), 2)]).reshape(-1, p)
    mean = pairs.mean(axis=0)
    of_points = np.array([np.delete(values[i], i, axis=0).mean(axis=0) - mean for i in range(n)])
    centred = pairs - mean
    found = one_sample_components(n, of_points.T @ of_points, centred.T @ centred) if n > 3 else None
    return Local(tuple(PairSum(float(total), len(pairs)) for total in kernel.scale * pairs.sum(axis=0)), found)


def points(n: int, d: int = 2) -> Array:
    return np.random.default_rng(n).standard_normal((n, d)) * 3.0


def run(
    comm: Any, kernel: Kernel, samples: list[Array], n_workers: int, shards: str = "even", **options: Any
) -> tuple[Local, int, list[Exchange]]:
    """Find the complete statistic of samples that every rank knows, each rank having its part of them."""
    exchanges = []
    for rows in samples:
        bounds = block_bounds(len(rows), comm.size)
        if shards == "all on the last":
            bounds = np.array([0] * comm.size + [len(rows)])
        exchanges.append(Exchange(comm, rows[bounds[comm.rank] : bounds[comm.rank + 1]], n_workers))
    found = ring(comm, exchanges, kernel, n_workers, Streams(0), **options)
    return found.local, found.bytes_sent, exchanges


def same_bits(a: Local, b: Local) -> bool:
    if a.sums != b.sums or (a.components is None) != (b.components is None):
        return False
    return a.components is None or b.components is None or a.components.tobytes() == b.components.tobytes()


WORKERS = [1, 2, 4, 5, 9]


@pytest.mark.parametrize("n_workers", WORKERS)
@pytest.mark.parametrize("sizes", [(23, 10), (10, 23), (12, 12), (2, 3), (1, 6), (5, 1)], ids=str)
def test_two_samples_give_what_all_pairs_at_once_give(comm: Any, sizes: tuple[int, int], n_workers: int) -> None:
    for function, scale in ((absolute, 1), (absolute, 3), (counted, 2)):
        kernel = Matrix(function, (1, 1), scale)
        samples = [points(sizes[0]), points(sizes[1]) + 1.0]
        local, _, _ = run(comm, kernel, samples, n_workers)
        expected = whole(kernel, *samples)
        for found, wanted in zip(local.sums, expected.sums, strict=True):
            assert found.n_pairs == wanted.n_pairs == math.prod(sizes)
            if function is counted:
                assert isinstance(found.total, int) and found.total == wanted.total
            assert found.total == pytest.approx(wanted.total, rel=1e-13)
        if min(sizes) < 2:
            assert local.components is None
        else:
            assert local.components is not None and expected.components is not None
            # The second part of `absolute` is near 10⁶ and varies by about 10: differences of means keep 10 digits.
            assert local.components == pytest.approx(expected.components, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("n_workers", WORKERS)
@pytest.mark.parametrize("size", [40, 23, 8, 4, 3, 2])
def test_one_sample_gives_what_all_pairs_at_once_give(comm: Any, size: int, n_workers: int) -> None:
    for scale in (1, 3):
        kernel = Matrix(symmetric, (2,), scale)
        local, _, _ = run(comm, kernel, [points(size)], n_workers)
        expected = whole(kernel, points(size))
        for found, wanted in zip(local.sums, expected.sums, strict=True):
            assert found.n_pairs == wanted.n_pairs == math.comb(size, 2)
            assert found.total == pytest.approx(wanted.total, rel=1e-13)
        if size < 4:
            assert local.components is None
        else:
            assert local.components is not None and expected.components is not None
            assert local.components == pytest.approx(expected.components, rel=1e-8, abs=1e-8)


KERNELS: dict[str, Kernel] = {
    "two parts": Matrix(absolute, (1, 1)),
    "counts": Matrix(counted, (1, 1), 2),
    "without margins": Without(absolute, (1, 1)),
    "a user's function": UserKernel(lambda x, z: np.hypot(*(x[:, None] - z[None]).T).T, "distance", tile=3),
    "similarities": SimilarityHistogram([-1.0, 0.0, 0.5, 1.0]),
    "one sample, two parts": Matrix(symmetric, (2,)),
    "one sample, without margins": Without(symmetric, (2,)),
    "a user's function, one sample": UserPairs(lambda x, z: np.hypot(*(x[:, None] - z[None]).T).T, "distance", tile=3),
    "similarities in one sample": FalseMatchRate(0.3, one_sample=True),
}


@pytest.mark.parametrize("n_workers", WORKERS)
@pytest.mark.parametrize("kind", list(KERNELS))
def test_the_bits_are_the_same_at_every_number_of_ranks(comm: Any, kind: str, n_workers: int) -> None:
    kernel = KERNELS[kind]
    samples = [points(37), points(29) + 1.0][: len(kernel.degrees)]
    local, _, _ = run(comm, kernel, samples, n_workers, "all on the last")
    alone, sent, _ = run(SerialComm(), kernel, samples, n_workers)
    assert same_bits(local, alone) and sent == 0
    assert (local.components is None) == isinstance(kernel, Without)
    assert len({(repr(each.sums), str(each.components)) for each in comm.allgather(local)}) == 1
    others, _, _ = run(comm, kernel, samples, n_workers, components=False)
    assert others == Local(local.sums, None)


def test_kernels_of_the_package_count_every_pair(comm: Any) -> None:
    x, z = points(31), points(17)

    def cosines(a: Array, b: Array) -> Array:
        return (a @ b.T) / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)

    for n_workers in (1, 4, 5):
        local, _, _ = run(comm, FalseMatchRate(0.3), [x, z], n_workers)
        assert local.sums == (PairSum(int((cosines(x, z) >= 0.3).sum()), 31 * 17),)
        local, _, _ = run(comm, FalseMatchRate(0.3, one_sample=True), [x], n_workers)
        assert local.sums == (PairSum(int((np.triu(cosines(x, x), 1) >= 0.3).sum()), 31 * 15),)


def test_single_numbers_stay_single_numbers(comm: Any) -> None:
    class Distance(UserPairs):
        n_coordinates = 1

        def cross_total(self, x: Points, y: Points) -> float:
            assert x.ndim == y.ndim == 1
            return float(np.abs(x[:, None] - y).sum())

    values = np.random.default_rng(0).integers(0, 50, 21).astype(np.float64)
    local, _, _ = run(comm, Distance(lambda x, y: np.abs(x - y.T), "distance"), [values], 4)
    assert local.sums == (PairSum(float(np.abs(values[:, None] - values).sum()) / 2, 210),)


def test_a_neighbour_gets_a_block_of_the_smaller_sample_at_every_step(comm: Any) -> None:
    n_workers = comm.size
    samples = [points(9 * n_workers), points(4 * n_workers)]
    for ordered in (samples, samples[::-1]):
        for kernel, parts in ((Without(absolute, (1, 1)), 0), (Matrix(absolute, (1, 1)), 2)):
            _, sent, exchanges = run(comm, kernel, ordered, n_workers)
            assert sent == (n_workers - 1) * 4 * 8 * (2 + parts)  # points of two coordinates, and their sums
            assert sum(comm.allgather(sum(each.rows_moved for each in exchanges))) == (n_workers - 1) * 4 * n_workers
    steps = n_workers // 2
    _, sent, _ = run(comm, Without(symmetric, (2,)), samples[:1], n_workers)
    assert sent == steps * 9 * 8 * 2
    _, sent, _ = run(comm, Matrix(symmetric, (2,)), samples[:1], n_workers)
    assert sent == steps * 9 * 8 * (2 + 2) + (9 * 8 * 2 if steps else 0)  # the sums go home at the end


@pytest.mark.parametrize("one_sample", [False, True])
def test_a_kernel_that_fails_on_one_worker_fails_everywhere(comm: Any, one_sample: bool) -> None:
    samples = [points(40), points(20)][: 1 if one_sample else 2]
    where = float(samples[0][-1, 0])

    class Fails(Matrix):
        calls = 0

        def margins(self, *blocks: Points) -> Any:
            self.calls += 1
            if self.calls > 2 and (blocks[0][:, 0] == where).any():
                raise RuntimeError("it doesn't like this point")
            return super().margins(*blocks)

    for _ in range(3):
        kernel = Fails(symmetric if one_sample else absolute, (2,) if one_sample else (1, 1))
        with pytest.raises(UserError, match=r"evaluating the kernel matrix failed.*doesn't like this point"):
            run(comm, kernel, samples, 8)
        kernel.calls = -1000  # blocks that were under way disturb nobody
        local, _, _ = run(comm, kernel, samples, 8)
        alone, _, _ = run(SerialComm(), kernel, samples, 8)
        assert same_bits(local, alone)


def test_a_sample_of_one_point_has_no_pair(comm: Any) -> None:
    for kernel in (Matrix(symmetric, (2,)), Without(symmetric, (2,))):
        local, _, _ = run(comm, kernel, [points(1)], 3)
        assert local == Local((PairSum(0, 0),), None)


@pytest.mark.parametrize("degrees", [(1, 1, 1), (2, 1), (3,)])
def test_kernels_of_other_tuples_are_refused(comm: Any, degrees: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="matrix is not one of pairs"):
        run(comm, Matrix(absolute, degrees), [points(5)] * len(degrees), 2)
