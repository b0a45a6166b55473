"""The complete AUC with its components: exact counts by either route, whatever holds the rows."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.complete import Complete, auc, complete
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.kernel import Local
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]
Matrix = NDArray[np.object_]

LAYOUTS = ("even", "first", "last", "every other")


def exchanges(comm: Any, samples: tuple[Floats, ...], n_workers: int, layout: str = "even") -> list[Exchange]:
    """The samples, each rank having its part of them: cut evenly, or over some of the ranks only."""
    holders = {
        "even": list(range(comm.size)),
        "first": [0],
        "last": [comm.size - 1],
        "every other": list(range(0, comm.size, 2)),
    }[layout]
    mine = []
    for rows in samples:
        bounds = block_bounds(len(rows), len(holders))
        i = holders.index(comm.rank) if comm.rank in holders else None
        mine.append(rows[:0] if i is None else rows[bounds[i] : bounds[i + 1]])
    return [Exchange(comm, rows, n_workers) for rows in mine]


def found(comm: Any, samples: tuple[Floats, ...], kernel: AUC, n_workers: int = 3, layout: str = "even") -> Complete:
    return complete(comm, exchanges(comm, samples, n_workers, layout), kernel, n_workers, Streams(5))


def by(route: str, comm: Any, samples: tuple[Floats, ...], kernel: AUC, n_workers: int, layout: str) -> Local:
    """The AUC by a route that may not be the one that would be chosen."""
    return getattr(auc, route)(comm, exchanges(comm, samples, n_workers, layout), kernel, n_workers, Streams(5)).local


def values_of_h(x: Floats, z: Floats, ties: str) -> Matrix:
    """2h of all pairs, in Python's integers."""
    credit = 1 if ties == "half" else 0
    return (2 * (z < x[:, None]) + credit * (z == x[:, None])).astype(object)


def brute_force(a: Matrix, b: Matrix) -> list[Fraction]:
    """var_x, var_z, var_xz of two kernels, or one twice, from the matrices of their values, in rational numbers."""
    n, m = a.shape
    a, b = (np.vectorize(Fraction, otypes=[object])(h) for h in (a, b))
    means = a.sum() / (n * m), b.sum() / (n * m)
    rows = [h.sum(axis=1) / m - mean for h, mean in zip((a, b), means, strict=True)]
    columns = [h.sum(axis=0) / n - mean for h, mean in zip((a, b), means, strict=True)]
    residuals = [
        h - mean - row[:, None] - column for h, mean, row, column in zip((a, b), means, rows, columns, strict=True)
    ]
    ms_residual = (residuals[0] * residuals[1]).sum() / ((n - 1) * (m - 1))
    ms_rows = m * (rows[0] * rows[1]).sum() / (n - 1)
    ms_columns = n * (columns[0] * columns[1]).sum() / (m - 1)
    return [(ms_rows - ms_residual) / m, (ms_columns - ms_residual) / n, ms_residual]


def awkward_samples() -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(20191204)
    inf = np.inf
    cases = [
        (np.zeros(7), np.zeros(5)),
        (np.array([inf, 2.0, -inf, inf]), np.array([inf, 1.0, -inf, -inf, 2.0])),
        (np.array([-0.0, 5e-324, 0.0]), np.array([0.0, -5e-324, -0.0])),
        (np.arange(6.0), np.arange(6.0) + 100.0),
        (np.arange(6.0) + 100.0, np.arange(40.0)),
        (np.array([3.0, 4.0]), np.repeat([1.0, 3.0, 4.0, 5.0], 10)),
        (np.repeat([1.0, 3.0, 4.0, 5.0], 10), np.array([3.0, 4.0])),
    ]
    for n, m, n_values in ((13, 21, 4), (21, 13, 4), (2, 40, 6), (40, 2, 6), (15, 16, 40)):
        cases.append((rng.integers(0, n_values, n).astype(float), rng.integers(0, n_values, m).astype(float)))
        cases.append((rng.normal(1, 1, n), rng.normal(0, 1, m)))
    return cases


# --- one column


@pytest.mark.parametrize("ties", ["half", "strict"])
@pytest.mark.parametrize("route", ["ranges", "minority"])
def test_components_are_those_of_the_matrix_correctly_rounded(comm: Any, route: str, ties: str) -> None:
    for i, samples in enumerate(awkward_samples()):
        h = values_of_h(*samples, ties)
        expected = [float(value / 4) for value in brute_force(h, h)]
        local = by(route, comm, samples, AUC(ties), 1 + i % 5, LAYOUTS[i % 4])
        assert local.sums == ((int(h.sum()), h.size),)
        assert type(local.sums[0].total) is int
        assert local.components is not None
        assert local.components.shape == (3, 1, 1)
        assert local.components.ravel().tolist() == expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(3000, 2000), (150, 4000), (4000, 150)], ids=str)
def test_no_bit_depends_on_the_ranks_the_ranges_or_the_route(comm: Any, sizes: tuple[int, int], layout: str) -> None:
    rng = np.random.default_rng(sizes)
    continuous = rng.normal(0.3, 1, sizes[0]), rng.normal(0, 1, sizes[1])
    for samples in (continuous, tuple(np.round(4 * rows) for rows in continuous)):
        kernel = AUC()
        whole = kernel.local(*samples)
        assert whole.components is not None
        for route, n_workers in (("ranges", 1), ("ranges", 7), ("minority", 3)):
            local = by(route, comm, samples, kernel, n_workers, layout)
            assert local.sums == whole.sums
            assert local.components is not None
            assert local.components.tobytes() == whole.components.tobytes()


def delong(x: Floats, z: Floats) -> float:
    """DeLong's variance: S²/n of the positives' placement values, plus S²/m of the negatives'."""
    of_x = np.array([(np.mean(z < a) + np.mean(z <= a)) / 2 for a in x])
    of_z = np.array([(np.mean(x > b) + np.mean(x >= b)) / 2 for b in z])
    return float(of_x.var(ddof=1) / len(x) + of_z.var(ddof=1) / len(z))


@pytest.mark.parametrize("sizes", [(60, 45), (20, 700), (700, 20)], ids=str)
def test_the_variance_is_delongs_less_the_residual_mean_square(comm: Any, sizes: tuple[int, int]) -> None:
    n, m = sizes
    rng = np.random.default_rng(n)
    x, z = np.round(rng.normal(1, 1, n), 1), np.round(rng.normal(0, 1, m), 1)
    result = found(comm, (x, z), AUC())
    assert result.route == ("ranges" if n == 60 else "minority")
    assert result.local.components is not None
    var_x, var_z, var_xz = result.local.components.ravel()
    variance = var_x / n + var_z / m + var_xz / (n * m)
    assert variance + var_xz / (n * m) == pytest.approx(delong(x, z), rel=1e-12)


def test_components_are_unbiased() -> None:
    # Two uniform samples of one law: Var E[h | x] = Var E[h | z] = 1/12, Var h = 1/4.
    rng = np.random.default_rng(8)
    estimates = []
    for i in range(1200):
        n, m = ((6, 9), (2, 40))[i % 2]
        local = found(SerialComm(), (rng.random(n), rng.random(m)), AUC()).local
        assert local.components is not None
        estimates.append(local.components.ravel())
    for route in (0, 1):  # 1 false alarm in 24,000 by the normal law
        of_route = np.array(estimates[route::2])
        error = of_route.std(axis=0, ddof=1) / np.sqrt(len(of_route))
        assert (np.abs(of_route.mean(axis=0) - 1 / 12) < 4.75 * error).all()


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_a_single_score_has_no_components(comm: Any, ties: str) -> None:
    one, many = np.array([3.0]), np.repeat([1.0, 3.0, 5.0], 8)
    for samples, wins in (((one, many), 16), ((many, one), 16), ((one, one), 0)):
        n_ties = 8 if len(samples[0]) != len(samples[1]) else 1
        for layout in LAYOUTS:
            result = found(comm, samples, AUC(ties), layout=layout)
            total = wins + (n_ties if ties == "half" else 0)
            assert result.local.components is None
            assert result.local.sums[0].total == total
            assert result.value == total / (2 * len(samples[0]) * len(samples[1]))
    for route in ("ranges", "minority"):
        assert by(route, comm, (one, many), AUC(ties), 2, "last").components is None


def test_the_route_depends_on_the_sizes_alone(comm: Any) -> None:
    rng = np.random.default_rng(0)
    few, some, many = rng.random(10), rng.random(11), rng.random(160)
    routes = {
        (len(x), len(z)): found(comm, (x, z), AUC(), layout="last").route
        for x, z in itertools.permutations((few, some, many), 2)
    }
    assert {sizes for sizes, route in routes.items() if route == "minority"} == {(10, 160), (160, 10)}
    assert AUC().route((5_000_000, 10**9)).name == "ranges"
    assert AUC(columns=2).route((100, 100)).name == "minority"


def test_the_larger_sample_is_sorted_piece_by_piece(comm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, z = rng.integers(0, 9, 3).astype(float), rng.integers(0, 9, 1000).astype(float)
    whole = AUC().local(x, z), AUC().local(z, x)
    monkeypatch.setattr(auc, "_CHUNK", 7)  # pieces of 16 scores for each of three
    pieces = [by("minority", comm, samples, AUC(), 2, "even") for samples in ((x, z), (z, x))]
    for piece, expected in zip(pieces, whole, strict=True):
        assert piece.sums == expected.sums
        assert piece.components is not None
        assert expected.components is not None
        assert piece.components.tolist() == expected.components.tolist()


def test_what_each_rank_sends_is_counted(comm: Any) -> None:
    rng = np.random.default_rng(4)
    x, z = rng.random(8), rng.random(400)
    assert found(comm, (x, z), AUC()).bytes_moved == (comm.size - 1) * 8 * (8 + comm.size * 2 * 8)
    tied = np.zeros(4000), np.ones(4000)
    assert found(comm, tied, AUC()).bytes_moved <= 2 * 16 * comm.size


def test_samples_are_left_as_they_were(comm: Any) -> None:
    rng = np.random.default_rng(6)
    for sizes in ((50, 60), (5, 600), (600, 5)):
        samples = exchanges(comm, (rng.random(sizes[0]), rng.random(sizes[1])), 2)
        before = [sample.rows.copy() for sample in samples]
        complete(comm, samples, AUC(), 2, Streams(5))
        for rows, sample in zip(before, samples, strict=True):
            assert sample.rows.tolist() == rows.tolist()


# --- several columns


@pytest.mark.parametrize("ties", ["half", "strict"])
@pytest.mark.parametrize("sizes", [(9, 14), (14, 9), (2, 30), (30, 2)], ids=str)
def test_columns_covary_as_their_matrices_do(comm: Any, sizes: tuple[int, int], ties: str) -> None:
    rng = np.random.default_rng(sizes)
    quality = np.array([1.0, 0.5, 0.0])
    x, z = rng.normal(quality, 1, (sizes[0], 3)), rng.normal(0, 1, (sizes[1], 3))
    x[:, 1], z[:, 1] = np.round(x[:, 1]), np.round(z[:, 1])
    x[:, 2], z[:, 2] = np.round(x[:, 1] + x[:, 2]), np.round(z[:, 1] + z[:, 2])
    x[0, 2] = z[0, 2] = np.inf
    matrices = [values_of_h(x[:, a], z[:, a], ties) for a in range(3)]
    expected = np.empty((3, 3, 3))
    for a, b in itertools.product(range(3), repeat=2):
        expected[:, a, b] = [float(value / 4) for value in brute_force(matrices[a], matrices[b])]
    for layout in LAYOUTS:
        result = found(comm, (x, z), AUC(ties, columns=3), layout=layout)
        assert result.route == "minority"
        assert result.local.sums == tuple((int(h.sum()), h.size) for h in matrices)
        assert isinstance(result.value, np.ndarray)
        assert result.value.tolist() == [float(Fraction(int(h.sum()), 2 * h.size)) for h in matrices]
        assert result.local.components is not None
        assert result.local.components.tolist() == expected.tolist()


def test_columns_are_the_same_at_every_number_of_ranks(comm: Any) -> None:
    rng = np.random.default_rng(12)
    common = rng.normal(size=(1500, 1))
    scores = np.hstack([common + rng.normal(size=(1500, 2)), np.round(2 * common)])
    for n in (200, 1300):
        x, z = scores[:n] + 0.3, scores[n:]
        kernel = AUC(columns=3)
        whole = kernel.local(x, z)
        result = found(comm, (x, z), kernel)
        assert result.local.sums == whole.sums
        assert whole.components is not None
        assert result.local.components is not None
        assert result.local.components.tobytes() == whole.components.tobytes()
        single = found(comm, (x[:, 1].copy(), z[:, 1].copy()), AUC())
        assert single.local.components is not None
        assert result.local.components[:, 1, 1].tolist() == single.local.components.ravel().tolist()


def test_columns_of_a_single_row_have_no_components(comm: Any) -> None:
    x, z = np.array([[1.0, 2.0]]), np.array([[0.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
    for samples, expected in (((x, z), [1 / 2, 5 / 6]), ((z, x), [1 / 2, 1 / 6])):
        result = found(comm, samples, AUC(columns=2))
        assert result.local.components is None
        assert isinstance(result.value, np.ndarray)
        assert result.value.tolist() == expected
