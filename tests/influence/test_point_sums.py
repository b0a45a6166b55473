"""What each point adds up to, of every kernel: against sums over all tuples in rational numbers, at every P."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, shard

import mpi_ustat
from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import subsets
from mpi_ustat.influence.clusters import spread as spread_of
from mpi_ustat.influence.front import influence, point_sums
from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.statistic import Influence, statistic
from mpi_ustat.kernels.kernel import Kernel, Meeting, PairSum, Points
from mpi_ustat.kernels.registry import make_kernel
from mpi_ustat.kernels.user_pairs import UserPairs
from mpi_ustat.mpi.runtime import SerialComm

Array = NDArray[Any]
H = Callable[..., list[Fraction]]


def gini(x: Array, z: Array) -> list[Fraction]:
    return [abs(Fraction(x[0]) - Fraction(z[0]))]


def half_square(x: Array, z: Array) -> list[Fraction]:
    return [(Fraction(x[0]) - Fraction(z[0])) ** 2 / 2]


def product(x: Array, z: Array) -> list[Fraction]:
    return [sum((Fraction(a) * Fraction(b) for a, b in zip(x, z, strict=True)), Fraction())]


def auc(x: Array, z: Array) -> list[Fraction]:
    return [Fraction((x > z).item()) + Fraction((x == z).item()) / 2]


def strict_order(*points: Array) -> list[Fraction]:
    return [Fraction(int(all(a < b for a, b in itertools.pairwise(p.item() for p in points))))]


def shared_order(*points: Array) -> list[Fraction]:
    """The share of the ways to break the ties that puts the points in order."""
    scores = [p.item() for p in points]
    if scores != sorted(scores):
        return [Fraction(0)]
    return [Fraction(1, math.prod(math.factorial(scores.count(score)) for score in set(scores)))]


def smooth(x: Points, z: Points) -> Array:
    return np.asarray(np.exp(-np.abs(x[:, :1] - z[:, :1].T)) + 3.0 * (x[:, 1:2] * z[:, 1:2].T > 0.0))


def skew(x: Points, z: Points) -> Array:
    return np.asarray(np.tanh(x[:, :1] - 2.0 * z[:, :1].T) + x[:, 1:2])


def of_function(function: Callable[[Points, Points], Array]) -> H:
    return lambda x, z: [Fraction(function(x[None], z[None]).item())]


def distance(x: Array, z: Array) -> list[Fraction]:
    return [Fraction(float(np.linalg.norm(x - z)))]


def gaussian(x: Array, z: Array) -> list[Fraction]:
    return [Fraction(math.exp(-0.5 * float(np.sum((x - z) ** 2))))]


def match(x: Array, z: Array) -> list[Fraction]:
    return [Fraction(int(x @ z / np.sqrt((x @ x) * (z @ z)) >= 0.3))]


def bins(x: Array, z: Array) -> list[Fraction]:
    s = float(x @ z)
    return [Fraction(int(-2.0 <= s < 0.0)), Fraction(int(0.0 <= s < 1.0)), Fraction(int(1.0 <= s <= 3.0))]


class Case(NamedTuple):
    """A kernel, and h of a tuple of points."""

    kernel: Kernel
    h: H
    n_samples: int
    d: int = 1
    whole: bool = False
    """Whether sums are whole numbers under weights that are."""


CASES = {
    "auc": Case(make_kernel("auc"), auc, 2, whole=True),
    "gini": Case(make_kernel("gini", 1), gini, 1),
    "gini between two": Case(make_kernel("gini", 2), gini, 2),
    "variance": Case(make_kernel("variance", 1), half_square, 1),
    "product": Case(make_kernel("product"), product, 2),
    "product of rows": Case(make_kernel("product"), product, 2, 3),
    "vus of 2": Case(make_kernel("vus", 2), strict_order, 2, whole=True),
    "vus of 3": Case(make_kernel("vus", 3), strict_order, 3, whole=True),
    "vus of 4": Case(make_kernel("vus", 4), strict_order, 4, whole=True),
    "vus of 2 shared": Case(make_kernel("vus", 2, ties="shared"), shared_order, 2, whole=True),
    "vus of 3 shared": Case(make_kernel("vus", 3, ties="shared"), shared_order, 3, whole=True),
    "vus of 4 shared": Case(make_kernel("vus", 4, ties="shared"), shared_order, 4, whole=True),
    "function of two": Case(make_kernel(skew, 2), of_function(skew), 2, 2),
    "function of one": Case(UserPairs(smooth, "smooth"), of_function(smooth), 1, 2),
    "small tiles": Case(UserPairs(smooth, "smooth", tile=2), of_function(smooth), 1, 2),
    "matches": Case(make_kernel("fmr", 2, options={"threshold": 0.3}), match, 2, 3, whole=True),
    "matches in one": Case(make_kernel("fmr", 1, options={"threshold": 0.3}), match, 1, 3, whole=True),
    "histogram": Case(
        make_kernel("similarity-histogram", 1, options={"edges": (-2.0, 0.0, 1.0, 3.0), "metric": "inner"}), bins, 1, 3
    ),
}
DISCREPANCIES = {
    "energy": Case(make_kernel("energy"), distance, 2, 2),
    "energy of numbers": Case(make_kernel("energy"), distance, 2),
    "mmd": Case(make_kernel("mmd"), gaussian, 2, 2),
    "linear mmd": Case(make_kernel("mmd", options={"kernel": "linear"}), product, 2, 2),
}

WEIGHTS = ("none", "counts", "doubles")


def draw(case: Case, seed: int, weights: str, *, strata: bool) -> list[Sample]:
    """Small samples with ties, weights of 0 and strata of one row."""
    rng = np.random.default_rng(seed)
    k, found = case.n_samples, []
    for _ in range(k):
        n = int(rng.integers(4, 30 if k < 3 else 8))
        rows = rng.integers(0, 4, (n, case.d)).astype(np.float64) if seed % 2 else rng.normal(size=(n, case.d)) + 2.0
        if case.d == 3:
            rows += rng.normal(size=rows.shape) / 16.0
        w = {
            "none": None,
            "counts": rng.integers(0, 4, n).astype(np.float64),
            "doubles": rng.exponential(size=n) * rng.integers(0, 4, n),
        }[weights]
        if w is not None:
            w[:2] = 1.0
        s = np.append([-7, -7], rng.integers(-2, 2, n - 2)) if strata else None
        order = rng.permutation(n)
        cut = (rows[:, 0] if case.d == 1 else rows)[order]
        found.append(Sample(cut, None if w is None else w[order], None if s is None else s[order]))
    return found


def here(comm: Any, samples: Sequence[Sample], how: str) -> list[Sample]:
    """This rank's part of samples."""
    return [
        Sample(*(None if a is None else shard(comm, a, how, which) for a in (each.rows, each.weights, each.strata)))
        for which, each in enumerate(samples)
    ]


def weight_of(sample: Sample, i: int) -> Fraction:
    return Fraction(1) if sample.weights is None else Fraction(float(sample.weights[i]))


def by_definition(samples: Sequence[Sample], h: H, n_parts: int) -> list[tuple[Array, Array]]:
    """For the points of each sample, Σ ω h of each part and Σ ω over the tuples, without its own weight; Fractions."""
    rows = [each.rows.reshape(len(each.rows), -1) for each in samples]
    sizes = [len(each) for each in rows]
    found = [(np.full((n_parts, n), Fraction(), dtype=object), np.full(n, Fraction(), dtype=object)) for n in sizes]
    one = len(samples) == 1
    tuples = itertools.combinations(range(sizes[0]), 2) if one else itertools.product(*map(range, sizes))
    for places in tuples:
        of = [(0, i) for i in places] if one else list(enumerate(places))
        strata = [samples[k].strata for k, _ in of]
        if len({0 if s is None else int(s[i]) for s, (_, i) in zip(strata, of, strict=True)}) > 1:
            continue
        values = h(*(rows[k][i] for k, i in of))
        for point in range(len(of)):
            others = math.prod(
                (weight_of(samples[k], i) for j, (k, i) in enumerate(of) if j != point), start=Fraction(1)
            )
            k, i = of[point]
            for a, value in enumerate(values):
                found[k][0][a, i] += others * value
            found[k][1][i] += others
    return found


def theta(samples: Sequence[Sample], sums: Sequence[tuple[Array, Array]]) -> tuple[list[Fraction], Fraction]:
    """The parts of the statistic, and the weight of all tuples."""
    weights = [weight_of(samples[0], i) for i in range(len(samples[0].rows))]
    h, pairs = sums[0]
    whole = sum((w * p for w, p in zip(weights, pairs, strict=True)), Fraction())
    parts = [sum((w * v for w, v in zip(weights, row, strict=True)), Fraction()) / whole for row in h]
    return parts, whole / (2 if len(samples) == 1 else 1)


def gathered(comm: Any, own: Array) -> Array:
    """The points of all ranks."""
    return np.concatenate(comm.allgather(own), axis=-1)


def floats(values: Any) -> Array:
    return np.asarray(values).astype(np.float64)


@pytest.mark.parametrize("strata", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", CASES)
def test_points_learn_the_sums_of_their_tuples(name: str, weights: str, strata: bool) -> None:
    case = CASES[name]
    for seed in range(4):
        samples = draw(case, seed, weights, strata=strata)
        told = point_sums(SerialComm(), samples, case.kernel)[0]
        expected = by_definition(samples, case.h, case.kernel.n_parts)
        for own, (h, pairs), sample in zip(told, expected, samples, strict=True):
            found, of_pairs = own.h, np.broadcast_to(own.pairs, own.h.shape[1:])
            if case.whole and weights != "doubles":
                np.testing.assert_array_equal(found, floats(h * case.kernel.scale))
                np.testing.assert_array_equal(of_pairs, floats(pairs))
                continue
            size = np.abs(floats(h)).max() if "product" in name or "function of two" in name else 0.0
            np.testing.assert_allclose(found, floats(h * case.kernel.scale), rtol=1e-14, atol=1e-14 * size)
            np.testing.assert_allclose(of_pairs, floats(pairs), rtol=2e-15)
            assert found.shape == (case.kernel.n_parts, len(sample.rows))


@pytest.mark.parametrize("name", [*CASES, *DISCREPANCIES])
def test_influence_has_the_same_bits_at_every_number_of_ranks(comm: Any, name: str) -> None:
    case = (CASES | DISCREPANCIES)[name]
    for seed, weights, strata in ((0, "none", False), (1, "doubles", False), (2, "doubles", True), (3, "counts", True)):
        samples = draw(case, seed, weights, strata=strata)
        alone = influence(SerialComm(), samples, case.kernel)
        own = here(comm, samples, SPREADS[seed % 3])
        found = influence(comm, own, case.kernel)
        assert found.value.tobytes() == alone.value.tobytes()
        assert found.total_weight == alone.total_weight
        for psi, whole in zip(found.points, alone.points, strict=True):
            assert gathered(comm, psi).tobytes() == whole.tobytes()
        both = [spread_of(*each) for each in ((comm, own, found.points), (SerialComm(), samples, alone.points))]
        assert both[0].covariance.tobytes() == both[1].covariance.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_influence_is_the_derivative_by_the_logarithm_of_a_weight(name: str) -> None:
    case = CASES[name]
    samples = draw(case, 1, "doubles", strata=True)
    found = influence(SerialComm(), samples, case.kernel)
    parts, whole = theta(samples, sums := by_definition(samples, case.h, case.kernel.n_parts))
    np.testing.assert_allclose(found.value, floats(parts), rtol=1e-14)
    np.testing.assert_allclose(found.total_weight, float(whole), rtol=1e-14)
    step = Fraction(1, 10**20)
    for k, sample in enumerate(samples):
        h, pairs = sums[k]
        for i in range(len(sample.rows)):
            # One point's weight changes only the tuples that it is in.
            more = weight_of(sample, i) * step
            moved = [(part * whole + more * h[a, i]) / (whole + more * pairs[i]) - part for a, part in enumerate(parts)]
            np.testing.assert_allclose(
                found.points[k][:, i], floats([each / step for each in moved]), rtol=1e-12, atol=1e-14
            )
    for psi in found.points:
        np.testing.assert_allclose(psi.sum(axis=1), 0.0, atol=1e-13)


@pytest.mark.parametrize("name", DISCREPANCIES)
@pytest.mark.parametrize(("weights", "strata"), [("none", False), ("counts", False), ("doubles", True)])
def test_discrepancies_of_weighted_points(name: str, weights: str, strata: bool) -> None:
    case = DISCREPANCIES[name]
    samples = draw(case, 2, weights, strata=strata)
    found = influence(SerialComm(), samples, case.kernel)

    x, z = samples
    of_x, of_z, across = ([x], [z], [x, z])
    sums = [by_definition(of_part, case.h, 1) for of_part in (of_x, of_z, across)]
    (a, c, d), wholes = zip(
        *(
            (parts[0], whole)
            for parts, whole in (theta(of, own) for of, own in zip((of_x, of_z, across), sums, strict=True))
        ),
        strict=True,
    )
    sign = case.kernel.sign  # type: ignore[attr-defined]
    scale = max(map(abs, floats([a, c, d])))
    np.testing.assert_allclose(found.value, float(sign * (a + c - 2 * d)), rtol=1e-13, atol=1e-13 * scale)
    for k, (within, mean) in enumerate(((sums[0], a), (sums[1], c))):
        (h_own, p_own), (h_across, p_across) = within[0], sums[2][k]
        w = [weight_of(samples[k], i) for i in range(len(samples[k].rows))]
        expected = [
            sign
            * w[i]
            * ((h_own[0, i] - mean * p_own[i]) / wholes[k] - 2 * (h_across[0, i] - d * p_across[i]) / wholes[2])
            for i in range(len(w))
        ]
        np.testing.assert_allclose(found.points[k][0], floats(expected), rtol=1e-11, atol=1e-13 * scale)


@pytest.mark.parametrize("name", [*CASES, *DISCREPANCIES])
def test_without_weights_it_is_the_complete_statistic(comm: Any, name: str) -> None:
    case = (CASES | DISCREPANCIES)[name]
    rng = np.random.default_rng(7)
    sizes = (200, 160, 120, 80)[: case.n_samples]
    rows = [rng.normal(size=(n, case.d)) * 2.0 + 1.0 + k for k, n in enumerate(sizes)]
    samples = [Sample(each[:, 0] if case.d == 1 else each) for each in rows]
    own = here(comm, samples, "uneven")
    found = influence(comm, own, case.kernel)
    complete = mpi_ustat.estimate_samples(comm, [each.rows for each in own], kernel=case.kernel, complete=True)
    if case.whole:
        assert found.value.tolist() == np.atleast_1d(complete.value).tolist()
    np.testing.assert_allclose(found.value, np.atleast_1d(complete.value), rtol=1e-13)
    variances = np.diag(spread_of(comm, own, found.points).covariance)
    np.testing.assert_allclose(np.sqrt(variances), np.atleast_1d(complete.stderr), rtol=0.05)


@pytest.mark.parametrize("name", CASES)
def test_covariance_has_the_terms_of_higher_order_too_often(name: str) -> None:
    """The unbiased variance is Σ_S σ_S / Π_{k∈S} n_k; the covariance of influence counts each term |S| times.

    Of one sample, where V = 4ζ₁/n + 2δ/(n(n-1)), it is 4/n [ζ₁ (n-2)²/(n-1)² + δ (n-2)/(n-1)²].
    """
    case = CASES[name]
    rng = np.random.default_rng(11)
    sizes = (40, 30, 20, 10)[: case.n_samples]
    rows = [rng.normal(size=(n, case.d)) * 2.0 + 1.0 + k for k, n in enumerate(sizes)]
    points = [each[:, 0] if case.d == 1 else each for each in rows]
    samples = [Sample(each) for each in points]
    found = spread_of(SerialComm(), samples, influence(SerialComm(), samples, case.kernel).points).covariance

    components = case.kernel.local(*points).components
    assert components is not None
    if case.n_samples == 1:
        (n,), (zeta, delta) = sizes, components
        expected = 4 / n * (zeta * (n - 2) ** 2 + delta * (n - 2)) / (n - 1) ** 2
    else:
        every = zip(subsets(case.n_samples), components, strict=True)
        expected = sum(len(s) * part / math.prod(sizes[k] for k in s) for s, part in every)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * float(np.max(np.abs(expected))))


@pytest.mark.parametrize("name", ["auc", "gini between two", "product of rows", "vus of 3 shared", "matches"])
def test_a_count_is_as_good_as_copies(name: str) -> None:
    """Between samples: a point makes no pair with its own copies."""
    case = CASES[name]
    samples = draw(case, 3, "counts", strata=False)
    times = [each.weights.astype(int) for each in samples if each.weights is not None]
    copies = [Sample(np.repeat(each.rows, many, axis=0)) for each, many in zip(samples, times, strict=True)]
    one, other = (influence(SerialComm(), each, case.kernel) for each in (samples, copies))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-15)
    for psi, of_copies, many in zip(one.points, other.points, times, strict=True):
        np.testing.assert_allclose(
            np.repeat(psi / np.maximum(many, 1), many, axis=1), of_copies, rtol=1e-12, atol=1e-16
        )


def by_matrix(samples: Sequence[Sample], h: Array) -> tuple[float, list[Array]]:
    """θ and ψ of a kernel of pairs from the matrix of all h."""
    weights, strata = ([getattr(each, what) for each in (samples[0], samples[-1])] for what in ("weights", "strata"))
    omega = np.outer(*weights) * np.equal.outer(*strata)
    if len(samples) == 1:
        omega = np.triu(omega, 1)
    value = float((omega * h).sum() / omega.sum())
    away = omega * (h - value) / omega.sum()
    return value, [away.sum(1) + away.sum(0)] if len(samples) == 1 else [away.sum(1), away.sum(0)]


@pytest.mark.parametrize("name", ["function of two", "function of one", "matches", "matches in one", "energy"])
def test_blocks_that_go_round(comm: Any, name: str) -> None:
    case = (CASES | DISCREPANCIES)[name]
    rng = np.random.default_rng(13)
    samples = []
    for n in (700, 620)[: case.n_samples]:
        rows, weights = rng.normal(size=(n, case.d)), rng.exponential(size=n) * (rng.random(n) < 0.9)
        samples.append(Sample(rows, weights, rng.integers(0, 3, n)))
    alone = influence(SerialComm(), samples, case.kernel)
    for how in ("even", "uneven", "apart"):
        found = influence(comm, here(comm, samples, how), case.kernel)
        assert found.value.tobytes() == alone.value.tobytes()
        for psi, whole in zip(found.points, alone.points, strict=True):
            assert gathered(comm, psi).tobytes() == whole.tobytes()
    x, z = samples[0], samples[-1]

    def distances(a: Sample, b: Sample) -> Array:
        return np.linalg.norm(a.rows[:, None] - b.rows, axis=2)

    if name == "energy":
        parts = [by_matrix(of, distances(of[0], of[-1])) for of in ([x], [z], [x, z])]
        value = 2 * parts[2][0] - parts[0][0] - parts[1][0]
        points = [2 * parts[2][1][k] - parts[k][1][0] for k in (0, 1)]
    elif "matches" in name:
        units = [each.rows / np.linalg.norm(each.rows, axis=1)[:, None] for each in (x, z)]
        value, points = by_matrix(samples, (units[0] @ units[1].T >= 0.3).astype(np.float64))
    else:
        value, points = by_matrix(samples, (skew if name == "function of two" else smooth)(x.rows, z.rows))
    np.testing.assert_allclose(alone.value, value, rtol=1e-12)
    for psi, expected in zip(alone.points, points, strict=True):
        np.testing.assert_allclose(psi[0], expected, rtol=1e-9, atol=1e-12 * float(np.abs(expected).max()))


def test_nothing_cancels_far_from_zero() -> None:
    near = np.array([0.0, 1.0, 3.0, 7.0, 7.0])
    weights = np.array([0.5, 0.25, 3.0, 1.0, 2.0])
    for name in ("gini", "variance"):
        case = CASES[name]
        at_home, away = (
            influence(SerialComm(), [Sample(values, weights)], case.kernel) for values in (near, near + 2.0**50)
        )
        np.testing.assert_allclose(away.value, at_home.value, rtol=1e-15)
        np.testing.assert_allclose(away.points[0], at_home.points[0], rtol=1e-14, atol=1e-16)


def test_more_chains_than_an_int64_counts(comm: Any) -> None:
    rng = np.random.default_rng(5)
    scores = [rng.integers(0, 40, 4000).astype(np.float64) + 3 * k for k in range(6)]
    samples = [Sample(each) for each in scores]
    kernel = make_kernel("vus", 6, ties="shared")
    found = influence(comm, here(comm, samples, "even"), kernel)
    complete = kernel.block_sums(*scores)[0]
    exact = Fraction(complete.total) / (kernel.scale * complete.n_pairs)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.value, float(exact), rtol=1e-13)


class Bare(Kernel):
    """A kernel of pairs that has sums of blocks only."""

    name = "bare"

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        raise AssertionError

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        raise AssertionError


class WithMargins(Bare):
    """One with sums of points too, h = x + z."""

    name = "with margins"
    has_margins = True

    def margins(self, *blocks: Points) -> Meeting:
        x, z = blocks
        h = np.add.outer(x, z)
        return Meeting((PairSum(float(h.sum()), h.size),), (h.sum(1)[:, None], h.sum(0)[:, None]), np.zeros((1, 1)))


def test_what_a_kernel_must_have(comm: Any) -> None:
    x, z = np.arange(5.0), np.arange(4.0)
    plain = here(comm, [Sample(x), Sample(z)], "even")
    weighted = here(comm, [Sample(x, x), Sample(z, z)], "even")
    np.testing.assert_allclose(influence(comm, plain, WithMargins()).value, 3.5)
    for samples, kernel, sentence in (
        (plain, Bare(), "the kernel bare doesn't give h of single pairs.*write the method value_tiles"),
        (weighted, WithMargins(), "the kernel with margins doesn't give h of single pairs"),
    ):
        with pytest.raises(UserError, match=sentence):
            influence(comm, samples[: len(kernel.degrees)], kernel)
    alone = here(comm, [Sample(x, strata=np.arange(5)), Sample(z, strata=np.arange(10, 14))], "even")
    with pytest.raises(UserError, match="no pair of points counts"):
        influence(comm, alone, make_kernel("product"))


def holed(x: Points, z: Points) -> Array:
    return np.where(x[:, :1] + z[:, :1].T == 7.0, np.nan, 1.0)


def test_a_kernel_that_fails_on_one_rank_fails_on_all(comm: Any) -> None:
    samples = here(comm, [Sample(np.arange(5.0)), Sample(np.arange(5.0), np.ones(5))], "even")
    with pytest.raises(UserError, match="the kernel holed returned a value that is not finite"):
        influence(comm, samples, make_kernel(holed, 2))


@pytest.mark.parametrize(
    ("name", "scale"), [("gini", 1.7e308), ("variance", 1e200), ("product", 1e305), ("product", 1e160)]
)
@pytest.mark.filterwarnings("error")
def test_sums_beyond_the_range_of_doubles_are_refused_on_all_ranks(comm: Any, name: str, scale: float) -> None:
    case = CASES[name]
    samples = [Sample(np.array([0.0, 1.0, -1.0, 0.5]) * scale, np.full(4, 1e10))] * case.n_samples
    with pytest.raises(UserError, match="leave the range of doubles"):
        influence(comm, here(comm, samples, "even"), case.kernel)


def test_a_part_is_summed_where_its_points_are() -> None:
    x, z = Sample(np.zeros(2)), Sample(np.zeros(2))
    told = [
        PointSums(np.array([[0.0, 0.0], [3.0, 5.0]]), np.array([[0.0, 0.0], [2.0, 2.0]]), (0, 1)),
        PointSums(np.array([[7.0, 7.0], [4.0, 4.0]]), np.array([[1.0, 1.0], [2.0, 2.0]]), (2, 1)),
    ]
    found: Influence = statistic(SerialComm(), [x, z], told)
    assert found.value.tolist() == [7.0, 2.0]
    assert found.total_weight == 4.0
    assert found.points[0].tolist() == [[0.0, 0.0], [-0.25, 0.25]]
