"""The complete statistic: exact values, whatever the order of the rows, the ranks and the number of score ranges."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Mpirun
from numpy.typing import NDArray
from test_route_auc import LAYOUTS, brute_force, exchanges

from mpi_ustat import Estimate, SerialComm, UserError, estimate, estimate_samples
from mpi_ustat import complete as routes
from mpi_ustat.complete import sorting
from mpi_ustat.kernels.gini import Gini
from mpi_ustat.kernels.kernel import Kernel, Local
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.user_pairs import UserKernel
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import block_bounds

Floats = NDArray[np.float64]

SIX_ROWS = ((7.0, 1), (3.0, 0), (3.0, 1), (7.0, 0), (3.0, 1), (1.0, 0))
"""Score and label; the AUC is 11/18: 3·3 pairs, of which 4 are won, 3 tied and 2 lost."""

SEVEN_POINTS = np.array([2.0, 5.0, 9.0]), np.array([1.0, 5.0, 6.0, 8.0])
"""Positives and negatives; the AUC is 13/24."""

ORDERS = list(itertools.permutations(range(6)))


def labelled(comm: Any, rows: list[tuple[float, int]]) -> tuple[Floats, Floats]:
    """This rank's positives and negatives, when the rows of a file are cut into a run for each rank."""
    bounds = block_bounds(len(rows), comm.size)
    own = rows[bounds[comm.rank] : bounds[comm.rank + 1]]
    positives, negatives = ([score for score, label in own if label == wanted] for wanted in (1, 0))
    return np.array(positives), np.array(negatives)


def complete(comm: Any, x: Floats, z: Floats, kernel: Any = "auc", **options: Any) -> Estimate:
    """The complete statistic of samples that every rank knows, each rank taking its part of them."""
    mine = []
    for rows in (x, z):
        bounds = block_bounds(len(rows), comm.size)
        mine.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
    return estimate(comm, mine[0], mine[1], kernel, complete=True, **{"seed": 0, **options})


def distance(x: Floats, z: Floats) -> Floats:
    return np.abs(x - z.T)


# --- small samples


def test_ties_between_classes_count_half_in_every_order_of_the_rows(comm: Any) -> None:
    # On several ranks every 61st of the 720 orders.
    for order in ORDERS if comm.size == 1 else ORDERS[::61]:
        mine = labelled(comm, [SIX_ROWS[i] for i in order])
        half = estimate(comm, *mine, complete=True, stderr=False, seed=0)
        strict = estimate(comm, *mine, complete=True, ties="strict", stderr=False, seed=0)
        assert (half.value, strict.value) == (11 / 18, 4 / 9)
        assert (half.n, half.m, half.n_evaluations) == (3, 3, 9)


@pytest.mark.parametrize("n_workers", [1, 2, 7, 30])
def test_the_number_of_ranges_does_not_matter(comm: Any, n_workers: int) -> None:
    x, z = SEVEN_POINTS
    assert complete(comm, x, z, n_workers=n_workers).value == 13 / 24
    assert complete(comm, z, x, n_workers=n_workers).value == 11 / 24
    assert complete(comm, x, z, ties="strict", n_workers=n_workers).value == 1 / 2
    assert complete(comm, x, z, "gini", n_workers=n_workers).value == 38 / 12
    assert complete(comm, x, z, distance, n_workers=n_workers).value == 38 / 12
    assert complete(comm, x, z, "product", n_workers=n_workers).value == 16 * 20 / 12


_DRIVER = """\
import itertools, json, sys
import numpy as np
from mpi4py import MPI
from mpi_ustat import estimate
from mpi_ustat.schemes.partition import block_bounds

comm = MPI.COMM_WORLD
rows = [(7.0, 1), (3.0, 0), (3.0, 1), (7.0, 0), (3.0, 1), (1.0, 0)]
seven = [(2.0, 1), (5.0, 1), (9.0, 1), (1.0, 0), (5.0, 0), (6.0, 0), (8.0, 0)]

def auc(rows, **options):
    bounds = block_bounds(len(rows), comm.size)
    own = rows[bounds[comm.rank]:bounds[comm.rank + 1]]
    x, z = (np.array([score for score, label in own if label == wanted]) for wanted in (1, 0))
    return estimate(comm, x, z, complete=True, seed=0, **options).value

found = {
    "six": [auc(list(order)) for order in list(itertools.permutations(rows))[::59]],
    "seven": [auc(seven), auc(seven[::-1]), auc(seven, n_workers=3)],
}
if comm.rank == 0:
    print(json.dumps(found))
"""


@pytest.mark.parametrize("n_ranks", [5, 12, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 7, 8))])
def test_more_ranks_than_rows_or_cores_find_the_same(mpirun: Mpirun, tmp_path: Path, n_ranks: int) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(_DRIVER)
    done = mpirun(n_ranks, program=("-m", "mpi4py", str(driver)))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["six"] == [11 / 18] * len(ORDERS[::59])
    assert found["seven"] == [13 / 24] * 3


@pytest.mark.parametrize(
    ("n_ranks", "n_positives", "expected"),
    [(6, 3, 11 / 18), pytest.param(12, 3, 13 / 24, marks=pytest.mark.slow)],
)
def test_a_file_with_fewer_rows_than_ranks(
    mpirun: Mpirun, tmp_path: Path, n_ranks: int, n_positives: int, expected: float
) -> None:
    file = tmp_path / "rows.csv"
    seven = [(score, 1) for score in SEVEN_POINTS[0]] + [(score, 0) for score in SEVEN_POINTS[1]]
    rows = SIX_ROWS if n_ranks == 6 else seven
    file.write_text("score,label\n" + "".join(f"{score},{label}\n" for score, label in rows))
    done = mpirun(n_ranks, "estimate", file, "--label", "label", "--complete", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["estimate"], result["n"], result["n_ranks"]) == (expected, n_positives, n_ranks)


def test_one_pair(comm: Any) -> None:
    for x, z, expected in ((1.0, 0.0, 1.0), (0.0, 0.0, 0.5), (0.0, 1.0, 0.0), (0.0, -0.0, 0.5)):
        assert complete(comm, np.array([x]), np.array([z])).value == expected


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_infinite_scores_compare_as_usual(comm: Any, ties: str) -> None:
    x, z = np.array([np.inf, 2.0, -np.inf]), np.array([np.inf, 1.0, -np.inf])
    assert complete(comm, x, z, ties=ties).value == (5 / 9 if ties == "half" else 4 / 9)
    everything_is_infinite = complete(comm, x[[0, 0, 2]], z[[0, 2, 2]], ties=ties).value
    assert everything_is_infinite == ((4 + 4 / 2) / 9 if ties == "half" else 4 / 9)


def exact(kernel: str, x: Floats, z: Floats) -> Fraction:
    """Brute force over all pairs, in rational numbers."""
    h = {
        "auc": lambda a, b: Fraction((b < a) * 2 + (b == a), 2),
        "strict": lambda a, b: Fraction(int(b < a)),
        "gini": lambda a, b: abs(Fraction(a) - Fraction(b)),
        "product": lambda a, b: Fraction(a) * Fraction(b),
    }[kernel]
    return sum((h(a, b) for a, b in itertools.product(x.tolist(), z.tolist())), Fraction()) / (len(x) * len(z))


def awkward_samples() -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(20190916)
    cases = [
        (np.zeros(9), np.zeros(5)),
        (np.zeros(30), np.array([0.0])),
        (np.array([5.0]), np.arange(40.0)),
        (np.arange(40.0), np.array([-3.0])),
        (np.arange(20.0) - 100, np.arange(20.0) + 100),
        (np.array([5e-324, 0.0, -5e-324]), np.array([-0.0, 5e-324])),
        (1e9 + rng.random(25), 1e9 + rng.random(31)),
    ]
    for n, m, n_values in ((13, 50, 3), (50, 13, 3), (40, 41, 12), (60, 7, 1000)):
        cases.append((rng.integers(0, n_values, n).astype(float), rng.integers(0, n_values, m).astype(float)))
        cases.append((rng.normal(size=n), rng.standard_cauchy(m)))
    return cases


@pytest.mark.parametrize("kernel", ["auc", "strict", "gini", "product"])
def test_every_kernel_against_all_pairs_in_rational_numbers(comm: Any, kernel: str) -> None:
    options = {"ties": "strict", "kernel": "auc"} if kernel == "strict" else {"kernel": kernel}
    for x, z in awkward_samples():
        expected = exact(kernel, x, z)
        for n_workers in (1, 5) if comm.size == 1 else (5,):
            result = complete(comm, x, z, n_workers=n_workers, **options)
            if kernel == "gini":
                assert result.value == pytest.approx(float(expected), rel=1e-14, abs=0)
            else:  # correctly rounded
                assert result.value == float(expected)
            assert result.n_evaluations == len(x) * len(z)
            assert result.per_round.tolist() == [result.value]
            assert result.complete_value == result.value


def test_the_product_is_rounded_once(comm: Any) -> None:
    x = np.array([1e16, 1.0, -1e16, 3.0] * 3)
    assert complete(comm, x, np.array([2.0**-30, 7.0]), "product").value == float(
        Fraction(12) * (Fraction(7) + Fraction(1, 2**30)) / 24
    )
    vectors = np.array([[1e16, 1.0], [1.0, 1.0], [-1e16, 1.0]])
    assert complete(comm, vectors, vectors[1:2], "product").value == (1 + 3) / 3


# --- large samples


def test_heavy_ties_are_counted_exactly(comm: Any) -> None:
    x = np.repeat([2.0, 1.0], 35000)
    z = np.repeat([2.0, 1.0], [14000, 56000])
    for n_workers in (1, comm.size, 10):
        result = complete(comm, x, z, n_workers=n_workers)
        assert (result.value, result.n_evaluations) == (0.65, 4_900_000_000)
    assert complete(comm, x, z, ties="strict").value == 35000 * 56000 / 70000**2


def test_interleaved_scores_are_counted_exactly(comm: Any) -> None:
    x = np.arange(100_000.0)
    rng = np.random.default_rng(2)
    for positives in (x, rng.permutation(x)):
        result = complete(comm, positives, rng.permutation(x + 0.5))
        assert (result.value, result.n_evaluations) == (99_999 / 200_000, 10**10)


_MEMORY = """\
import json, resource, sys
import numpy as np
from mpi4py import MPI
from mpi_ustat import estimate
from mpi_ustat.schemes.partition import block_bounds

def distance(x, z):
    return np.abs(x - z.T)

comm = MPI.COMM_WORLD
size, kernel, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
bounds = block_bounds(size, comm.size)
x = np.arange(float(size))[bounds[comm.rank]:bounds[comm.rank + 1]]
result = estimate(comm, x, x + 0.5, distance if kernel == "distance" else kernel, seed=0, **options)
peaks = comm.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
if comm.rank == 0:
    print(json.dumps({"value": result.value, "n_pairs": result.n_evaluations, "peak": max(peaks)}))
"""

GIBIBYTE = 2**20  # in the kibibytes of getrusage


def measured(mpirun: Mpirun, folder: Path, n_ranks: int, size: int, kernel: str, **options: Any) -> dict[str, Any]:
    """The estimate over 0, 1, … and 0.5, 1.5, …, and the peak memory of the rank that took most."""
    driver = folder / "memory.py"
    driver.write_text(_MEMORY)
    done = mpirun(n_ranks, size, kernel, json.dumps(options), program=("-m", "mpi4py", str(driver)), timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mean_distance(size: int) -> float:
    """Σ|k - l - ½| over all k and l below `size`, by the differences d = k - l, over the number of pairs."""
    d = np.arange(1 - size, size)
    return math.fsum(((size - np.abs(d)) * np.abs(d - 0.5)).tolist()) / size**2


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_ten_thousand_million_pairs_need_little_memory(mpirun: Mpirun, tmp_path: Path, n_ranks: int) -> None:
    size = 100_000
    result = measured(mpirun, tmp_path, n_ranks, size, "auc", complete=True)
    assert (result["value"], result["n_pairs"]) == (99_999 / 200_000, size**2)
    assert result["peak"] < GIBIBYTE
    result = measured(mpirun, tmp_path, n_ranks, size, "gini", complete=True)
    assert result["value"] == pytest.approx(mean_distance(size), rel=1e-13)
    assert result["peak"] < GIBIBYTE


@pytest.mark.parametrize("options", [{"complete": True}, {"n_workers": 1}], ids=["complete", "one worker"])
def test_a_users_kernel_is_evaluated_in_little_memory(mpirun: Mpirun, tmp_path: Path, options: dict[str, Any]) -> None:
    size = 20_000  # the matrix of all values would take 3.2 GB
    result = measured(mpirun, tmp_path, 2, size, "distance", **options)
    assert result["value"] == pytest.approx(mean_distance(size), rel=1e-13)
    assert result["n_pairs"] == size**2
    assert result["peak"] < GIBIBYTE


@pytest.mark.slow
def test_a_users_kernel_of_ten_thousand_million_pairs(mpirun: Mpirun, tmp_path: Path) -> None:
    result = measured(mpirun, tmp_path, 2, 100_000, "distance", complete=True)
    assert result["value"] == pytest.approx(mean_distance(100_000), rel=1e-13)
    assert result["peak"] < GIBIBYTE


# --- a kernel of the user's


def whole_numbers() -> tuple[Floats, Floats, float]:
    """Two samples of 500 whole numbers, and their mean distance."""
    rng = np.random.default_rng(1)
    x, z = (rng.integers(-1000, 1000, 500).astype(float) for _ in range(2))
    return x, z, float(np.abs(x[:, None] - z).sum()) / 500**2


def test_tile_sizes_change_no_bit_where_sums_are_exact(comm: Any) -> None:
    x, z, expected = whole_numbers()
    for tile in (7, 4096):
        assert complete(comm, x, z, distance, tile=tile, n_workers=4).value == expected
        options = {"n_workers": 4, "tile": tile, "seed": 0}
        rounds = estimate(comm, *(x, z) if comm.rank == 0 else (x[:0], z[:0]), distance, **options)
        sorts = estimate(SerialComm(), x, z, "gini", **options)
        assert rounds.per_worker.tobytes() == sorts.per_worker.tobytes()


def test_a_tile_may_be_a_single_pair() -> None:
    x, z, _ = whole_numbers()
    x, z = x[:60], z[:50]
    assert complete(SerialComm(), x, z, distance, tile=1).value == float(np.abs(x[:, None] - z).sum()) / 3000


@pytest.mark.parametrize("sizes", [(5, 40), (40, 5), (1, 9), (9, 1)], ids=str)
def test_whichever_sample_is_smaller_x_comes_first(comm: Any, sizes: tuple[int, int]) -> None:
    def difference(x: Floats, z: Floats) -> Floats:
        assert x.ndim == z.ndim == 2
        return x - z.T

    rng = np.random.default_rng(sizes)
    x, z = (rng.integers(0, 100, size).astype(float) for size in sizes)
    for n_workers in (1, 3, 50):
        result = complete(comm, x, z + 1000, difference, n_workers=n_workers)
        assert result.value == pytest.approx(x.mean() - z.mean() - 1000, rel=1e-13)


def test_the_bytes_between_ranks_are_counted(comm: Any) -> None:
    x, z = np.arange(1000.0), np.arange(1000.0) + 0.5
    auc = complete(comm, x, z, n_workers=4)
    product = complete(comm, x, z, "product", stderr=False)
    user = complete(comm, x, z[:10], distance, n_workers=comm.size, stderr=False)
    if comm.size == 1:
        assert (auc.complete_bytes_moved, user.complete_bytes_moved) == (0, 0)
    else:  # the scores are sorted already: nearly all stay; and the ten points go to all others
        assert 0 < auc.complete_bytes_moved < 8 * 2000
        assert user.complete_bytes_moved == 8 * 10 * (comm.size - 1)
    assert product.complete_bytes_moved == 0
    assert (auc.route, product.route, user.route) == ("ranges", "sums", "ring")
    assert auc.summary()["bytes_moved"] == auc.complete_bytes_moved


def test_a_sum_that_overflows_is_refused(comm: Any) -> None:
    with np.errstate(over="ignore"), pytest.raises(UserError, match="overflow"):
        complete(comm, np.full(4, 1.5e308), np.full(4, -1.5e308), "gini")
    assert complete(comm, np.full(4, 1e200), np.full(4, 1e-200), "product").value == pytest.approx(1.0)
    with pytest.raises(UserError, match="overflow"):
        complete(comm, np.full(4, 1e200), np.full(4, 1e200), "product")


# --- components


def whole(comm: Any, x: Floats, z: Floats, kernel: Kernel, n_workers: int = 3, layout: str = "even") -> Local:
    """The sums and components of two samples that lie over the ranks in some way."""
    samples = exchanges(comm, (x, z), n_workers, layout)
    return routes.complete(comm, samples, kernel, n_workers, Streams(5)).local


def matrix(kernel: Kernel, x: Floats, z: Floats) -> NDArray[np.object_]:
    """h of all pairs, in rational numbers."""
    a, b = (np.vectorize(Fraction, otypes=[object])(rows.reshape(len(rows), -1)) for rows in (x, z))
    if isinstance(kernel, Product):
        return a @ b.T
    return np.abs(a - b.T)


@pytest.mark.parametrize("kernel", [Gini(), Product()], ids=lambda kernel: kernel.name)
def test_components_are_those_of_the_matrix(comm: Any, kernel: Kernel) -> None:
    for i, (x, z) in enumerate(awkward_samples()):
        x, z = x[:25], z[:20]
        components = whole(comm, x, z, kernel, 1 + i % 4, LAYOUTS[i % 4]).components
        if min(len(x), len(z)) < 2:
            assert components is None
            continue
        h = matrix(kernel, x, z)
        expected = [float(value) for value in brute_force(h, h)]
        assert components is not None
        assert components.ravel() == pytest.approx(expected, rel=1e-9, abs=1e-12 * sum(map(abs, expected)))


def test_components_keep_their_digits_far_from_zero_and_from_each_other(comm: Any) -> None:
    rng = np.random.default_rng(9)
    x, z = 1e9 + rng.integers(0, 2**20, 30) / 2**20, 1e9 + rng.integers(0, 2**20, 21) / 2**20
    for gap in (0.0, 0.875, 1e6):  # exact sums and differences: the same numbers less 10⁹ are as good
        expected = [float(value) for value in brute_force(*[matrix(Gini(), x - 1e9, z - 1e9 - gap)] * 2)]
        components = whole(comm, x, z - gap, Gini()).components
        assert components is not None
        assert components.ravel() == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert components.ravel()[2] == pytest.approx(0.0, abs=1e-12)  # all x above all z: |x - z| = x - z
    expected = [float(value) for value in brute_force(*[matrix(Product(), x, z)] * 2)]
    components = whole(comm, x, z, Product()).components
    assert components is not None
    assert components.ravel() == pytest.approx(expected, rel=1e-6)


def test_components_of_vectors(comm: Any) -> None:
    rng = np.random.default_rng(10)
    x, z = rng.normal(1, 1, (17, 3)), rng.normal(0.5, 2, (11, 3))
    expected = [float(value) for value in brute_force(*[matrix(Product(), x, z)] * 2)]
    for n_workers, layout in ((1, "last"), (4, "even"), (20, "every other")):
        components = whole(comm, x, z, Product(), n_workers, layout).components
        assert components is not None
        assert components.ravel() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kernel", [Gini(), Product(), UserKernel(distance, "distance", 50)], ids=lambda k: k.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_bit_of_the_components_depends_on_the_ranks(comm: Any, kernel: Kernel, layout: str) -> None:
    rng = np.random.default_rng(11)
    x, z = rng.normal(0.3, 1, 1003), rng.standard_t(3, 877)
    for samples in ((x, z), (np.round(x), np.round(z, 1))):
        for n_workers in (1, 7):
            alone = whole(SerialComm(), *samples, kernel, n_workers)
            local = whole(comm, *samples, kernel, n_workers, layout)
            assert local.sums == alone.sums
            assert local.components is not None
            assert alone.components is not None
            assert local.components.tobytes() == alone.components.tobytes()


TRUE_COMPONENTS = {
    # X, Z uniform on [0, 1]: E[|x - Z|] = x² - x + ½, E (X - Z)² = 1/6.
    "gini": (1 / 180, 1 / 180, 2 / 45),
    # E X = E Z = ½, Var X = Var Z = 1/12.
    "product": (1 / 48, 1 / 48, 1 / 144),
    "distance": (1 / 180, 1 / 180, 2 / 45),
}


@pytest.mark.parametrize("kernel", [Gini(), Product(), UserKernel(distance, "distance")], ids=lambda k: k.name)
def test_components_are_unbiased(kernel: Kernel) -> None:
    rng = np.random.default_rng(13)
    estimates = []
    for _ in range(600):
        components = whole(SerialComm(), rng.random(8), rng.random(5), kernel, 3).components
        assert components is not None
        estimates.append(components.ravel())
    error = np.std(estimates, axis=0, ddof=1) / np.sqrt(len(estimates))
    # One false alarm in 50,000 by the normal law.
    assert (np.abs(np.mean(estimates, axis=0) - TRUE_COMPONENTS[kernel.name]) < 4.75 * error).all()


def test_components_that_are_not_wanted(comm: Any) -> None:
    x, z = np.arange(8.0), np.arange(9.0)
    for kernel in (Gini(), Product(), UserKernel(distance, "distance")):
        samples = exchanges(comm, (x, z), 2)
        without = routes.complete(comm, samples, kernel, 2, Streams(5), components=False)
        assert without.local.components is None
        assert without.local.sums == whole(comm, x, z, kernel, 2).sums


# --- sorting


def sorted_everywhere(comm: Any, x: Floats, n_ranges: int, layout: str) -> tuple[list[Any], Floats, int]:
    """What comes to each rank, the splitters, and the bytes sent by all."""
    samples = exchanges(comm, (x,), n_ranges, layout)
    splitters = sorting.splitters(comm, samples, n_ranges, Streams(5))
    (stretch,), sent = sorting.exchange_runs(comm, samples, splitters)
    pieces = sorting.hosted_ranges(comm, stretch, splitters)
    assert sum(piece.n_points for piece in pieces) == stretch.n_points
    everyone = comm.allgather((stretch, pieces))
    assert len([piece for _, of_rank in everyone for piece in of_rank]) == n_ranges
    return [stretch for stretch, _ in everyone], splitters, sum(comm.allgather(sent))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_are_sorted_over_the_ranks(comm: Any, layout: str) -> None:
    rng = np.random.default_rng(15)
    for x in (rng.normal(size=1000), np.round(rng.normal(size=1000), 1), rng.normal(size=3), np.full(5, np.inf)):
        for n_ranges in (1, 4, 9):
            stretches, splitters, _ = sorted_everywhere(comm, x, n_ranges, layout)
            alone = sorted_everywhere(SerialComm(), x, n_ranges, "even")[1]
            assert splitters.tolist() == alone.tolist()
            distinct = [stretch.distinct() for stretch in stretches]
            values, counts = np.unique(x, return_counts=True)
            assert np.concatenate([each.values for each in distinct]).tolist() == values.tolist()
            assert np.concatenate([each.counts for each in distinct]).tolist() == counts.tolist()


def test_distinct_numbers_travel_as_they_are(comm: Any) -> None:
    x = np.random.default_rng(16).normal(size=4000)
    stretches, _, sent = sorted_everywhere(comm, x, comm.size, "even")
    assert all(stretch.counts is None for stretch in stretches)
    assert max(stretch.n_points for stretch in stretches) < 1.7 * len(x) / comm.size
    assert sent < 8 * len(x)


def test_repeated_numbers_fill_no_rank(comm: Any) -> None:
    rng = np.random.default_rng(17)
    for x in (np.full(20_000, 0.1), np.where(rng.random(20_000) < 0.9, 0.0, rng.random(20_000))):
        stretches, _, sent = sorted_everywhere(comm, x, comm.size, "even")
        assert sum(stretch.n_points for stretch in stretches) == len(x)
        n_runs = [len(stretch.values) for stretch in stretches]
        assert max(n_runs) <= len(np.unique(x))
        assert sent <= 16 * comm.size * len(np.unique(x))
        assert all(stretch.counts is not None for stretch in stretches)


def test_ranks_among_sorted_numbers() -> None:
    x = np.array([1.0, 1.0, 2.0, 4.0, 4.0, 4.0])
    queries = np.array([0.0, 1.0, 1.5, 2.0, 4.0, 5.0])
    for runs in (sorting.Runs(x), sorting.Runs(x).distinct()):
        assert runs.below(queries).tolist() == [int((x < query).sum()) for query in queries]
        assert runs.up_to(queries).tolist() == [int((x <= query).sum()) for query in queries]
        assert [piece.n_points for piece in runs.cut(np.array([1.0, 4.0]))] == [0, 3, 3]
        assert runs.n_points == 6


# --- without a number of workers


def centred_product(x: Floats, z: Floats) -> Floats:
    return (x - 0.1) * (z - 0.3).T


UNSAID: dict[str, tuple[int, tuple[int, ...], Any, dict[str, Any]]] = {
    "auc": (2, (), "auc", {}),
    "gini": (2, (), "gini", {}),
    "product": (2, (3,), "product", {}),
    "a user's": (2, (), centred_product, {}),
    "energy": (2, (2,), "energy", {}),
    "mmd": (2, (), "mmd", {}),
    "vus": (4, (), "vus", {}),
    "one-sample gini": (1, (), "gini", {}),
    "variance": (1, (), "variance", {}),
    "kendall": (1, (2,), "kendall", {}),
    "fmr": (1, (3,), "fmr", {"kernel_options": {"threshold": 0.2}}),
}


@pytest.mark.parametrize("name", UNSAID)
@pytest.mark.parametrize("how", ["complete", "reference", "complete, large"])
def test_the_ranks_change_no_bit_where_nobody_says_how_many_workers(
    comm: Any, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    """N is then the number of ranks, which a complete statistic and its standard error must not depend on."""
    if "large" in how:
        monkeypatch.setattr("mpi_ustat.kernels.route._ROWS_PER_BLOCK", 16)
    n_samples, width, kernel, options = UNSAID[name]
    rng = np.random.default_rng(4)
    samples = [rng.normal(size=(97 + 11 * k, *width)) ** 3 for k in range(n_samples)]

    def value_of(comm: Any) -> tuple[Any, ...]:
        mine = []
        for rows in samples:
            bounds = block_bounds(len(rows), comm.size)
            mine.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
        wanted = {"reference": True} if how == "reference" else {"complete": True}
        found = estimate_samples(comm, mine, kernel, seed=3, **wanted, **options)
        if how == "reference":
            return found.complete_value, None if found.complete_error is None else found.complete_error.stderr
        return found.value, found.stderr

    assert value_of(comm) == value_of(SerialComm())
