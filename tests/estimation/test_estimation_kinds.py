"""Statistics of one sample and of several, with parts and columns: every kernel and scheme against brute force."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard

from mpi_ustat import Estimate, SerialComm, UserError, estimate, estimate_samples, learn
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.kernels.registry import KERNELS
from mpi_ustat.kernels.tuples import sample_tuples
from mpi_ustat.mpi.runtime import hosted_workers
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.schemes.partition import Blocks, Ordered, Partition, Travelling, block_bounds
from mpi_ustat.schemes.registry import scheme_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Samples = tuple[Floats, ...]

N_WORKERS = 4
N_ROUNDS = 3
SEED = 20190916
N_PAIRS = 5


# --- samples


def numbers(*sizes: int) -> Samples:
    """Samples of numbers, half of them with all their bits, half of them on a grid, so that there are ties."""
    rng = np.random.default_rng(sizes)
    drawn = [rng.normal(0.4 * k, 1.0, size) for k, size in enumerate(sizes)]
    return tuple(np.where(rng.random(len(v)) < 0.5, np.round(v), v) for v in drawn)


def vectors(*sizes: int, d: int = 3) -> Samples:
    rng = np.random.default_rng([*sizes, d])
    return tuple(rng.normal(0.3 * k, 1.0, (size, d)) for k, size in enumerate(sizes))


def pairs_of_numbers(n: int) -> Samples:
    """Points (x, y) with ties in both columns."""
    rng = np.random.default_rng(n)
    x = rng.integers(0, 6, n)
    return (np.column_stack([x, x + rng.integers(0, 7, n)]).astype(np.float64),)


def survival_times(n: int) -> Samples:
    """Points (time, event, risk) with ties in all columns."""
    rng = np.random.default_rng([n, 2])
    return (np.column_stack([rng.integers(1, 7, n), rng.random(n) < 0.6, rng.integers(0, 5, n)]).astype(np.float64),)


# --- kernels, written anew: h of aligned tuples, of shape (B,), or (p, B) for p parts


def h_auc(x: Floats, z: Floats) -> Floats:
    return ((z < x) + 0.5 * (z == x)).T


def h_auc_strict(x: Floats, z: Floats) -> Floats:
    return (z < x) * 1.0


def h_vus_strict(*classes: Floats) -> Floats:
    return np.all([a < b for a, b in itertools.pairwise(classes)], axis=0) * 1.0


def h_vus_shared(*classes: Floats) -> Floats:
    """The probability of the strict order when ties are broken at random: over all orders of the K points."""
    found = []
    for places in itertools.permutations(range(len(classes))):
        ordered = [
            (a < b) | ((a == b) & (i < j)) for (a, i), (b, j) in itertools.pairwise(zip(classes, places, strict=True))
        ]
        found.append(np.all(ordered, axis=0))
    return np.mean(found, axis=0)


def h_gini(x: Floats, y: Floats) -> Floats:
    return np.abs(x - y)


def h_variance(x: Floats, y: Floats) -> Floats:
    return (x - y) ** 2 / 2


def h_tau_a(p: Floats, q: Floats) -> Floats:
    return np.sign(p[:, 0] - q[:, 0]) * np.sign(p[:, 1] - q[:, 1])


def h_tau_b(p: Floats, q: Floats) -> Floats:
    return np.array([h_tau_a(p, q), p[:, 0] != q[:, 0], p[:, 1] != q[:, 1]], dtype=np.float64)


def tau_b(means: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return means[:1] / np.sqrt(means[1:2] * means[2:])


def h_concordance(p: Floats, q: Floats) -> Floats:
    """Right order and comparable, of the time below the horizon that has its event."""

    def first(a: Floats, b: Floats) -> Floats:
        before = (a[:, 0] < b[:, 0]) | ((a[:, 0] == b[:, 0]) & (b[:, 1] == 0))
        counts = before & (a[:, 1] == 1) & (a[:, 0] < 5)
        return counts * np.array([(1 + np.sign(a[:, 2] - b[:, 2])) / 2, np.ones(len(a))])

    return first(p, q) + first(q, p)


def quotient(means: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return means[:1] / means[1:]


def h_product(x: Floats, z: Floats) -> Floats:
    return x * z if x.ndim == 1 else (x * z).sum(axis=1)


def discrepancy(k: Callable[[Floats, Floats], Floats]) -> Callable[..., Floats]:
    def h(x1: Floats, x2: Floats, z1: Floats, z2: Floats) -> Floats:
        return np.array([k(x1, x2), k(z1, z2), np.mean([k(x, z) for x in (x1, x2) for z in (z1, z2)], axis=0)])

    return h


def distance(a: Floats, b: Floats) -> Floats:
    return np.sqrt(((a - b) ** 2).sum(axis=1))


def gaussian(a: Floats, b: Floats) -> Floats:
    return np.exp(-((a - b) ** 2).sum(axis=1) / (2 * 1.5**2))


def mmd(means: Floats) -> Floats:
    return means[:1] + means[1:2] - 2 * means[2:]


def cosine(a: Floats, b: Floats) -> Floats:
    return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))


def h_fmr(a: Floats, b: Floats) -> Floats:
    return (cosine(a, b) >= 0.3) * 1.0


EDGES = [-1.0, -0.2, 0.3, 1.0]


def h_histogram(a: Floats, b: Floats) -> Floats:
    similarities = np.clip(cosine(a, b), -1.0, 1.0)
    above = [similarities >= edge for edge in EDGES[:-1]]
    return np.array([above[0] & ~above[1], above[1] & ~above[2], above[2]], dtype=np.float64)


# --- users' kernels


def laplace(x: Floats, z: Floats) -> Floats:
    return np.exp(-np.abs(x - z.T))


def laplace_of_one(x: Floats, y: Floats) -> Floats:
    return np.exp(-np.abs(x - y.T))


def between(x: Floats, y: Floats, z: Floats) -> Floats:
    """Two points of the first sample and one of the second: how far it is from their mean."""
    return np.abs((x + y) / 2 - z)[:, 0]


def triple(x: Floats, y: Floats, z: Floats) -> Floats:
    """One point of each of three samples."""
    return (x * y - z)[:, 0]


def third(x: Floats, y: Floats, z: Floats) -> Floats:
    """Three points of one sample: their range."""
    return (np.maximum(np.maximum(x, y), z) - np.minimum(np.minimum(x, y), z))[:, 0]


for function, degrees in ((laplace_of_one, (2,)), (between, (2, 1)), (triple, (1, 1, 1)), (third, (3,))):
    function.degrees = degrees  # type: ignore[attr-defined]


def columns(function: Callable[..., Floats]) -> Callable[..., Floats]:
    """Give a user's function the rows of one number that it takes."""
    return lambda *points: function(*(each[:, None] for each in points))


@dataclass(frozen=True)
class Kind:
    """A kernel with samples for it, and what it is by brute force."""

    kernel: Any
    samples: Samples
    degrees: tuple[int, ...]
    h: Callable[..., Floats]
    options: dict[str, Any] = field(default_factory=dict)
    combine: Callable[[Floats], Floats] = lambda means: means
    exact: bool = False
    """Whether sums of h are exact in doubles, so that the quotients are correctly rounded."""

    @property
    def pooled_only(self) -> bool:
        return self.combine in (tau_b, quotient)

    def weights(self, sizes: Sequence[int]) -> Floats:
        """Return how many terms each part is the average of, in a block of these sizes; one number if all alike."""
        if self.degrees == (2, 2):
            return np.array([math.comb(sizes[0], 2), math.comb(sizes[1], 2), math.prod(sizes)], dtype=np.float64)
        return np.array([self.n_tuples(sizes)], dtype=np.float64)

    def n_tuples(self, sizes: Sequence[int]) -> int:
        return math.prod(math.comb(size, degree) for size, degree in zip(sizes, self.degrees, strict=True))


def _options(**kernel_options: Any) -> dict[str, Any]:
    return {"kernel_options": kernel_options}


KINDS: dict[str, Kind] = {
    "auc": Kind("auc", numbers(17, 11), (1, 1), h_auc, exact=True),
    "auc strict": Kind("auc", numbers(17, 11), (1, 1), h_auc_strict, {"ties": "strict"}, exact=True),
    "auc of columns": Kind("auc", vectors(17, 11, d=2), (1, 1), h_auc, {"columns": ("a", "b")}, exact=True),
    "vus": Kind("vus", numbers(9, 7, 8), (1, 1, 1), h_vus_strict, exact=True),
    "vus shared": Kind("vus", numbers(9, 7, 8), (1, 1, 1), h_vus_shared, {"ties": "shared"}),
    "vus of two": Kind("vus", numbers(9, 13), (1, 1), h_vus_shared, {"ties": "shared"}),
    "vus of four": Kind("vus", numbers(7, 5, 6, 5), (1,) * 4, h_vus_strict, exact=True),
    "vus of four shared": Kind("vus", numbers(7, 5, 6, 5), (1,) * 4, h_vus_shared, {"ties": "shared"}),
    "gini of one": Kind("gini", numbers(17), (2,), h_gini),
    "gini of two": Kind("gini", numbers(17, 11), (1, 1), h_gini),
    "variance": Kind("variance", numbers(18), (2,), h_variance),
    "kendall a": Kind("kendall", pairs_of_numbers(17), (2,), h_tau_a, _options(tau="a"), exact=True),
    "kendall b": Kind("kendall", pairs_of_numbers(19), (2,), h_tau_b, combine=tau_b),
    "concordance": Kind(
        "concordance", survival_times(19), (2,), h_concordance, _options(horizon=5.0), quotient, exact=True
    ),
    "product": Kind("product", numbers(11, 17), (1, 1), h_product),
    "product of vectors": Kind("product", vectors(12, 8), (1, 1), h_product),
    "energy": Kind("energy", vectors(13, 9), (2, 2), discrepancy(distance), combine=lambda means: -mmd(means)),
    "mmd": Kind("mmd", vectors(9, 13), (2, 2), discrepancy(gaussian), _options(bandwidth=1.5), mmd),
    "mmd linear": Kind("mmd", vectors(13, 9), (2, 2), discrepancy(h_product), _options(kernel="linear"), mmd),
    "fmr of one": Kind("fmr", vectors(17), (2,), h_fmr, _options(threshold=0.3), exact=True),
    "fmr of two": Kind("fmr", vectors(17, 11), (1, 1), h_fmr, _options(threshold=0.3), exact=True),
    "histogram of one": Kind("similarity-histogram", vectors(18), (2,), h_histogram, _options(edges=EDGES), exact=True),
    "histogram of two": Kind(
        "similarity-histogram", vectors(17, 11), (1, 1), h_histogram, _options(edges=EDGES), exact=True
    ),
    "user's (1, 1)": Kind(laplace, numbers(17, 11), (1, 1), lambda x, z: np.exp(-np.abs(x - z)), {"tile": 3}),
    "user's (2,)": Kind(laplace_of_one, numbers(17), (2,), lambda x, z: np.exp(-np.abs(x - z)), {"tile": 3}),
    "user's (2, 1)": Kind(between, numbers(11, 9), (2, 1), columns(between), {"tile": 3}),
    "user's (1, 1, 1)": Kind(triple, numbers(9, 7, 8), (1, 1, 1), columns(triple), {"tile": 3}),
    "user's (3,)": Kind(third, numbers(17), (3,), columns(third), {"tile": 3}),
}

SCHEMES = ("prop-swor", "rotation", "swor", "prop-swr", "fixed-shuffle", "as-is")
DRAWS: dict[str, dict[str, Any]] = {
    "all": {},
    "sampled": {"n_pairs": N_PAIRS},
    "distinct": {"n_pairs": N_PAIRS, "distinct": True},
}


def admits(kind: Kind, scheme: str) -> bool:
    if scheme == "rotation":
        return set(kind.degrees) == {1} or kind.degrees == (2,)
    return scheme != "prop-swr" or max(kind.degrees) == 1 or kind.degrees == (2,)


CASES = [(name, scheme) for name, kind in KINDS.items() for scheme in SCHEMES if admits(kind, scheme)]


def test_every_named_kernel_is_among_the_kinds() -> None:
    assert {kind.kernel for kind in KINDS.values() if isinstance(kind.kernel, str)} == set(KERNELS)


# --- brute force: who has which tuples


def as_is_sizes(kind: Kind) -> list[list[int]]:
    """Block sizes as uneven as can be, none too small for a tuple."""
    found = []
    for k, (rows, degree) in enumerate(zip(kind.samples, kind.degrees, strict=True)):
        rest = len(rows) - 2 * degree
        smaller = max(degree, rest // 3)
        sizes = [degree, smaller, rest - smaller, degree]
        found.append(sizes[k:] + sizes[:k])
    return found


def members(blocks: Blocks, n_rows: int) -> list[Ints]:
    """Return the row numbers of each worker's block."""
    if isinstance(blocks, Travelling):
        of_base = members(blocks.base, n_rows)
        return [of_base[block] for block in blocks.holding.tolist()]
    assert isinstance(blocks, Ordered)
    order = np.arange(n_rows) if blocks.order is None else blocks.order
    return [order[i:j].copy() for i, j in itertools.pairwise(blocks.bounds.tolist())]


def all_tuples(sizes: Sequence[int], degrees: Sequence[int]) -> tuple[Ints, ...]:
    """Return the places of all tuples, one array for each point of a tuple."""
    of_samples = [
        list(itertools.combinations(range(size), degree)) for size, degree in zip(sizes, degrees, strict=True)
    ]
    joined = [sum(each, ()) for each in itertools.product(*of_samples)]
    return tuple(np.array(joined, dtype=np.int64).reshape(len(joined), sum(degrees)).T)


def drawn_tuples(draws: Any, sizes: Sequence[int], degrees: Sequence[int], ids: Ints | None, distinct: bool) -> Any:
    """Return the places of sampled tuples; of a block with `ids` those of two different rows only."""
    if ids is None:
        return sample_tuples(draws, sizes, degrees, N_PAIRS, distinct=distinct)
    kept: list[tuple[int, int]] = []
    while len(kept) < N_PAIRS:
        drawn = zip(*sample_tuples(draws, sizes, degrees, N_PAIRS), strict=True)
        kept += [(int(i), int(j)) for i, j in drawn if ids[i] != ids[j]]
    return tuple(np.array(kept[:N_PAIRS]).T)


@dataclass
class Expected:
    """What the workers find, by round and worker: averages of the parts (NaN without a tuple), and numbers of terms."""

    means: Floats
    counts: Ints
    weights: Floats


def brute_force(kind: Kind, scheme: str, n_pairs: int | None = None, distinct: bool = False) -> Expected:
    sizes = tuple(len(rows) for rows in kind.samples)
    streams = Streams(SEED)
    n_rounds = 1 if scheme == "as-is" else N_ROUNDS
    if scheme != "as-is":
        partition = Partition(scheme_of(scheme), sizes, N_WORKERS, streams)
    means, counts, weights = [], [], []
    for t in range(n_rounds):
        if scheme == "as-is":
            cuts = [np.cumsum([0, *each]) for each in as_is_sizes(kind)]
            held = [[np.arange(i, j) for i, j in itertools.pairwise(each.tolist())] for each in cuts]
        else:
            rounds = partition.round(t)
            held = [members(blocks, size) for blocks, size in zip(rounds, sizes * len(rounds), strict=False)]
        for i in range(N_WORKERS):
            rows, degrees = [each[i] for each in held], kind.degrees
            ids = rows[0] if scheme == "prop-swr" and degrees == (2,) else None
            if scheme == "rotation" and degrees == (2,):
                home, visitor = rows
                if t == 0:
                    assert home.tolist() == visitor.tolist()
                    rows = [home]
                else:
                    degrees = (1, 1)
                    if 2 * t == N_WORKERS:  # both meet: each does half of the rows of the first block
                        half = -(-len(home if i < t else visitor) // 2)
                        rows = [home[:half], visitor] if i < t else [home, visitor[half:]]
            lengths = [len(each) for each in rows]
            places = all_tuples(lengths, degrees)
            if ids is not None:
                different = ids[places[0]] != ids[places[1]]
                places = tuple(each[different] for each in places)
            n_tuples = len(places[0])
            of_part = np.array([float(n_tuples)])
            if kind.degrees == (2, 2) and n_pairs is None and n_tuples:
                of_part = kind.weights(lengths)
            if n_tuples and n_pairs is not None and not (distinct and n_pairs >= n_tuples):
                draws = streams.open("pairs", round=t, worker=i)
                places = drawn_tuples(draws, lengths, degrees, ids, distinct)
            of_sample = np.repeat(np.arange(len(rows)), degrees).tolist()
            points = [
                kind.samples[min(k, len(sizes) - 1)][rows[k][at]] for k, at in zip(of_sample, places, strict=True)
            ]
            values = np.atleast_2d(kind.h(*points))
            found = [math.fsum(part) / len(part) if len(part) else math.nan for part in values]
            means.append(found)
            counts.append(len(places[0]))
            weights.append(np.broadcast_to(of_part, (len(found),)))
    shape = (n_rounds, N_WORKERS)
    return Expected(
        np.array(means).reshape(*shape, -1), np.array(counts).reshape(shape), np.array(weights).reshape(*shape, -1)
    )


def run(comm: Any, kind: Kind, scheme: str | None = None, spread: str = "even", **options: Any) -> Estimate:
    """Estimate from the samples as they are spread over the ranks of `comm`; without a scheme, completely."""
    samples = [shard(comm, rows, spread, k) for k, rows in enumerate(kind.samples)]
    arguments: dict[str, Any] = {"n_workers": N_WORKERS, "seed": SEED, **kind.options, **options}
    if scheme is None:
        arguments |= {"complete": True}
    elif scheme == "as-is":
        sizes = as_is_sizes(kind)
        samples = [hosted_rows(comm, rows, each) for rows, each in zip(kind.samples, sizes, strict=True)]
        hosted = hosted_workers(N_WORKERS, comm.size, comm.rank)
        arguments |= {
            "scheme": scheme,
            "block_sizes": [np.array(each[hosted.start : hosted.stop], dtype=np.int64) for each in sizes],
        }
    else:
        arguments |= {"scheme": scheme, "n_rounds": N_ROUNDS}
    return estimate_samples(comm, samples, kind.kernel, **arguments)


def hosted_rows(comm: Any, rows: Floats, sizes: Sequence[int]) -> Floats:
    """Return the rows of the workers that this rank hosts."""
    bounds, hosted = np.cumsum([0, *sizes]), hosted_workers(len(sizes), comm.size, comm.rank)
    return rows[bounds[hosted.start] : bounds[hosted.stop]]


# --- the values


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("name", "scheme"), CASES)
def test_every_workers_value_is_the_average_over_its_tuples(name: str, scheme: str, draw: str) -> None:
    kind, options = KINDS[name], DRAWS[draw]
    if scheme == "prop-swr" and draw == "distinct" and kind.degrees == (2,):
        with pytest.raises(UserError, match="distinct pairs of one sample .* leave out distinct=True"):
            run(SerialComm(), kind, scheme, **options)
        return
    expected = brute_force(kind, scheme, **options)
    local = np.array([[kind.combine(means) for means in of_round] for of_round in expected.means])
    mean_too = not kind.pooled_only and not (scheme == "rotation" and kind.degrees == (2,))
    for aggregate in ("mean", "pooled") if mean_too else ("pooled",):
        result = run(SerialComm(), kind, scheme, aggregate=aggregate, stderr=False, **options)
        q = local.shape[-1]
        got = result.per_worker if q > 1 else result.per_worker[..., None]
        if kind.exact:
            np.testing.assert_array_equal(got, local)
        assert_close(got, local)
        assert result.sizes == tuple(len(rows) for rows in kind.samples)
        if kind.degrees != (2, 2):
            np.testing.assert_array_equal(result.evaluations, expected.counts)
            assert result.n_evaluations == expected.counts.sum()
        assert result.empty_workers == np.count_nonzero(expected.counts == 0)
        if aggregate == "mean":
            per_round = np.nanmean(local, axis=1)  # swor's worker without a tuple is left out
            value = per_round.mean(axis=0)
        else:
            totals = np.nan_to_num(expected.means) * expected.weights
            per_round = np.array(
                [kind.combine(a / b) for a, b in zip(totals.sum(axis=1), expected.weights.sum(axis=1), strict=True)]
            )
            value = kind.combine(totals.sum(axis=(0, 1)) / expected.weights.sum(axis=(0, 1)))
        assert_close(result.per_round.reshape(per_round.shape), per_round)
        assert np.shape(result.value) == ((q,) if q > 1 else ())
        assert_close(np.atleast_1d(result.value), value)


def complete_value(kind: Kind) -> Floats:
    sizes = [len(rows) for rows in kind.samples]
    of_sample = np.repeat(np.arange(len(sizes)), kind.degrees).tolist()
    places = all_tuples(sizes, kind.degrees)
    values = np.atleast_2d(kind.h(*(kind.samples[k][at] for k, at in zip(of_sample, places, strict=True))))
    return kind.combine(np.array([math.fsum(part) / len(part) for part in values]))


@pytest.mark.parametrize("name", KINDS)
def test_the_complete_value_is_the_average_over_all_tuples(comm: Any, name: str) -> None:
    kind, expected = KINDS[name], complete_value(KINDS[name])
    for spread in ("even", "apart"):
        result = run(comm, kind, spread=spread)
        if kind.exact:
            assert np.atleast_1d(result.value).tolist() == expected.tolist()
        assert_close(np.atleast_1d(result.value), expected)
        assert (
            np.shape(result.value)
            == np.shape(result.complete_value)
            == (() if len(expected) == 1 else (len(expected),))
        )
        assert np.all(result.value == result.complete_value)
        assert result.per_worker.shape[:2] == (0, 0) and result.config.complete
    assert run(comm, kind, "prop-swor", reference=True, stderr=False).complete_value == pytest.approx(
        expected if len(expected) > 1 else float(expected[0]), rel=1e-12, abs=1e-13
    )


def test_known_values() -> None:
    """Small samples whose statistics are known as fractions."""

    def complete(samples: Sequence[Any], kernel: str, **options: Any) -> float:
        arrays = [np.array(each, dtype=np.float64) for each in samples]
        return float(estimate_samples(SerialComm(), arrays, kernel, complete=True, seed=0, **options).value)

    x, y = [1, 1, 2, 3, 3], [2, 1, 2, 4, 4]
    points = np.column_stack([x, y])
    assert complete([points], "kendall", kernel_options={"tau": "a"}) == 7 / 10
    assert complete([points], "kendall") == pytest.approx(7 / 8, rel=1e-15)
    assert complete([[-3, -1, 0, 4]], "gini") == 11 / 3
    assert complete([[1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6]], "variance") == 14 / 3
    classes = [[1, 2, 2], [2, 3], [2, 3, 4]]
    assert complete(classes, "vus") == 5 / 18
    assert complete(classes, "vus", ties="shared") == 14 / 27
    assert complete([[0, 1, 5], [1, 2]], "mmd", kernel_options={"kernel": "linear"}) == pytest.approx(-7 / 3, rel=1e-15)


# --- the same bits at every number of ranks


def bits(result: Estimate) -> dict[str, Any]:
    """All of an estimate that must not depend on the number of ranks, to the last bit."""

    def of(value: Any) -> Any:
        return None if value is None else (np.shape(value), np.asarray(value, dtype=np.float64).tobytes())

    arrays = ("value", "complete_value", "per_round", "per_worker", "covariance")
    counts = ("evaluations", "rows_moved")
    error = result.error
    return {
        **{name: of(getattr(result, name)) for name in arrays},
        **{name: getattr(result, name).tolist() for name in counts},
        **{
            name: getattr(result, name)
            for name in ("sizes", "n_evaluations", "empty_workers", "route", "config", "bias")
        },
        "error": None if error is None else (error.stderr, error.method, error.intervals, error.flags),
        "complete error": None if result.complete_error is None else result.complete_error.stderr,
    }


SPREADS = ("even", "uneven", "apart")


@functools.cache
def bits_alone(name: str, scheme: str | None, options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return bits(run(SerialComm(), KINDS[name], scheme, **dict(options)))


@pytest.mark.parametrize(("name", "scheme"), [*CASES, *((name, None) for name in KINDS)])
def test_the_number_of_ranks_and_the_shards_change_no_bit(comm: Any, name: str, scheme: str | None) -> None:
    kind = KINDS[name]
    # In turns: every kernel and every scheme gets all of them.
    turn = list(KINDS).index(name) + (0 if scheme is None else SCHEMES.index(scheme))
    draw = list(DRAWS)[turn % 3]
    if scheme is None or (scheme == "prop-swr" and kind.degrees == (2,)):
        draw = "all"
    options = {**DRAWS[draw], "reference": scheme == "as-is" and draw == "all"}
    alone = bits_alone(name, scheme, tuple(options.items()))
    here = bits(run(comm, kind, scheme, SPREADS[turn // 3 % 3], **options))
    assert here == alone
    assert comm.allgather(here) == [alone] * comm.size


@pytest.mark.parametrize("name", ["kendall b", "vus", "vus of four", "user's (1, 1, 1)", "energy", "histogram of one"])
def test_fewer_or_more_workers_than_ranks_change_no_bit(comm: Any, name: str) -> None:
    kind = KINDS[name]
    for n_workers, scheme in ((1, "prop-swor"), (2, "swor"), (3, "prop-swor"), (5, "prop-swor")):
        if any(len(rows) < n_workers * d for rows, d in zip(kind.samples, kind.degrees, strict=True)):
            continue
        options: dict[str, Any] = {"n_workers": n_workers, "empty": "skip"}
        alone = bits_alone(name, scheme, tuple(options.items()))
        assert bits(run(comm, kind, scheme, "uneven", **options)) == alone


# --- what is refused


THREE, FOUR = numbers(12, 12, 12), numbers(12, 12, 12, 12)
REFUSED: dict[str, tuple[Samples, Any, dict[str, Any], str]] = {
    "rotation beyond all pairs": (
        numbers(12, 12),
        "auc",
        {"scheme": "rotation", "n_rounds": 4},
        "after 3 rounds rotation over 3 workers has met all pairs, so that 4 are too many: use complete=True",
    ),
    "rotation of one sample beyond all pairs": (
        numbers(12),
        "gini",
        {"scheme": "rotation", "n_rounds": 3},
        "after 2 rounds .* 3 are too many",
    ),
    "rotation of three samples beyond all triples": (
        THREE,
        "vus",
        {"scheme": "rotation", "n_rounds": 10},
        "after 9 rounds .* 10 are too many",
    ),
    "rotation of pairs on both sides": (
        numbers(12, 12),
        "energy",
        {"scheme": "rotation"},
        "rotation is for kernels of one point of each sample or two of one .* use scheme=.prop-swor.",
    ),
    "mean over rotations of one sample": (
        numbers(12),
        "gini",
        {"scheme": "rotation", "aggregate": "mean"},
        "rotation of one sample has no mean of local values: use aggregate=.pooled.",
    ),
    "mean of quotients": (
        pairs_of_numbers(12),
        "kendall",
        {"aggregate": "mean"},
        "the kernel kendall has no mean of local values: use aggregate=.pooled.",
    ),
    "energy with replacement": (
        numbers(12, 12),
        "energy",
        {"scheme": "prop-swr"},
        "drawn with replacement, a point would be paired with itself by the kernel energy: use scheme=.prop-swor.",
    ),
    "distinct pairs of copies": (
        numbers(12),
        "gini",
        {"scheme": "prop-swr", "n_pairs": 3, "distinct": True},
        "leave out distinct=True",
    ),
    "one sample too few": (numbers(12), "auc", {}, r"the kernel auc is for 2 samples, not 1: two are x and z"),
    "one sample too many": (THREE, "product", {}, r"the kernel product is for 2 samples, not 3"),
    "one class": (numbers(12), "vus", {}, r"the kernel vus is for 2 or more samples, not 1"),
    "a user's samples": (numbers(12), between, {}, r"the kernel between is for 2 samples, not 1"),
    "points for a triple": (numbers(2), third, {"n_workers": 1}, "the sample x has only 2 points: .* third takes 3"),
    "points for a pair": (numbers(1), "variance", {"complete": True}, "the sample x has only 1 point: .* takes 2"),
    "points for an energy": (numbers(5, 1), "energy", {"complete": True}, "the sample z has only 1 point:"),
    "points for workers": (
        numbers(5),
        "variance",
        {},
        r"3 workers can't each have 2 points of a sample of 5: use at most 2 workers",
    ),
    "an option": (
        numbers(12, 12),
        "mmd",
        {"kernel_options": {"gamma": 1.0}},
        "the kernel mmd has no option gamma: it has kernel, bandwidth",
    ),
    "an option of none": (
        numbers(12, 12),
        "product",
        {"kernel_options": {"bandwidth": 1.0}},
        "the kernel product has no option bandwidth: it has none",
    ),
    "what an option is": (pairs_of_numbers(9), "kendall", {"kernel_options": {"tau": "c"}}, "a or b, not 'c'"),
    "ties of another kernel": (numbers(12, 12), "auc", {"ties": "shared"}, "half or strict, not 'shared'"),
    "ties of the VUS": (THREE, "vus", {"ties": "half"}, "strict or shared, not 'half'"),
    "columns": (vectors(12, d=3), "kendall", {}, "kendall compares points of 2 numbers but sample x has 3 columns"),
    "columns of a kernel without": (
        vectors(12, 12, d=2),
        "product",
        {"columns": ("a", "b")},
        "the kernel product gives one estimate, not one for each of 2 columns",
    ),
    "a constant column": (
        (np.column_stack([np.ones(12), np.arange(12.0)]),),
        "kendall",
        {},
        "tau-b is not defined: all pairs of column x that were looked at are tied",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_on_every_rank_in_a_sentence(comm: Any, what: str) -> None:
    samples, kernel, options, message = REFUSED[what]
    mine = [shard(comm, rows, "even", k) for k, rows in enumerate(samples)]
    with pytest.raises(UserError, match=message) as caught:
        estimate_samples(comm, mine, kernel, **{"n_workers": 3, "seed": 0, **options})
    assert comm.allgather(str(caught.value)) == [str(caught.value)] * comm.size
    assert "\n" not in str(caught.value)


def test_as_many_rounds_of_rotation_as_there_are_are_taken() -> None:
    for name in ("auc", "gini of one", "vus", "kendall b", "product"):
        kind = KINDS[name]
        most = N_WORKERS ** (len(kind.degrees) - 1) if kind.degrees != (2,) else N_WORKERS // 2 + 1
        samples = kind.samples
        options: dict[str, Any] = {"scheme": "rotation", "n_workers": N_WORKERS, "n_rounds": most, "seed": 1}
        result = estimate_samples(SerialComm(), samples, kind.kernel, **options, **kind.options)
        assert result.value == pytest.approx(float(complete_value(kind)[0]), rel=1e-13)


def test_a_second_sample_on_some_ranks_only_is_refused(comm: Any) -> None:
    x = np.arange(6.0)
    if comm.size == 1:
        assert estimate(comm, x, None, "gini", seed=0).m is None
        return
    with pytest.raises(UserError, match="a second sample is given on some ranks only"):
        estimate(comm, x, x if comm.rank == 0 else None, "gini", seed=0)


def test_a_block_of_copies_of_one_row_has_no_pair() -> None:
    """Two draws with replacement may be the same row twice: no pair of different rows can be sampled there."""
    (x,) = numbers(6)
    met = 0
    for seed in range(12):
        options: dict[str, Any] = {"scheme": "prop-swr", "n_workers": 3, "seed": seed, "empty": "skip", "stderr": False}
        whole = estimate(SerialComm(), x, kernel="gini", **options)
        sampled = estimate(SerialComm(), x, kernel="gini", n_pairs=4, **options)
        assert np.isnan(sampled.per_worker).tolist() == np.isnan(whole.per_worker).tolist()
        met += whole.empty_workers
    assert met > 0


def test_copies_of_a_row_are_left_out_also_where_rounding_decides() -> None:
    """No two rows have a cosine of 1, but a row and its copy do, up to rounding: it must be the same both times."""
    (x,) = vectors(40, d=7)
    options: dict[str, Any] = {"kernel_options": {"threshold": 1.0}, "n_workers": 4, "n_rounds": 20, "stderr": False}
    result = estimate(SerialComm(), x, kernel="fmr", scheme="prop-swr", seed=0, **options)
    assert not result.per_worker.any()


def test_ranks_that_give_different_numbers_of_samples_are_refused(comm: Any) -> None:
    samples = numbers(6, 6, 6)[: 3 if comm.rank == 0 else 2]
    if comm.size == 1:
        assert estimate_samples(comm, samples, "vus", seed=0).sizes == (6, 6, 6)
        return
    with pytest.raises(UserError, match="different numbers of samples"):
        estimate_samples(comm, samples, "vus", seed=0)


def test_options_of_a_kernel_may_be_numpys() -> None:
    samples = vectors(12, 9)
    for kernel, options in (
        ("similarity-histogram", {"edges": np.linspace(-1.0, 1.0, 5)}),
        ("fmr", {"threshold": np.float32(0.25)}),
    ):
        result = estimate(SerialComm(), *samples, kernel, seed=0, kernel_options=options)
        written = json.dumps(result.config.to_json(), allow_nan=False)
        assert EstimateConfig(**json.loads(written)) == result.config
        assert json.dumps(result.summary(), allow_nan=False)


# --- scores that drift from worker to worker


N_DRIFTED = 4


def drifted(step: float, seed: int = 4) -> tuple[list[Floats], list[Floats]]:
    """Scores of positives and negatives on four workers, in each of which all are shifted by another multiple."""
    rng = np.random.default_rng(seed)
    shifts = step * np.arange(N_DRIFTED)
    return [rng.normal(1.47, 1.0, 300) + s for s in shifts], [rng.normal(0.0, 1.0, 200) + s for s in shifts]


def exact_auc(x: Floats, z: Floats) -> float:
    return int(np.count_nonzero(z[:, None] < x)) / (len(x) * len(z))


def estimate_drifted(comm: Any, x: list[Floats], z: list[Floats], **options: Any) -> Estimate:
    hosted = hosted_workers(N_DRIFTED, comm.size, comm.rank)
    mine = [np.concatenate([np.empty(0), *each[hosted.start : hosted.stop]]) for each in (x, z)]
    if options.get("scheme") == "as-is":
        options["block_sizes"] = [np.array([len(b) for b in each[hosted.start : hosted.stop]]) for each in (x, z)]
    return estimate(comm, *mine, "auc", n_workers=N_DRIFTED, seed=6, **options)


def test_drift_between_workers_biases_local_averages_and_is_told(comm: Any) -> None:
    x, z = drifted(0.9)
    exact = exact_auc(np.concatenate(x), np.concatenate(z))
    local = float(np.mean([exact_auc(*both) for both in zip(x, z, strict=True)]))
    assert exact == pytest.approx(0.77, abs=0.01) and local == pytest.approx(0.85, abs=0.01)

    assert estimate_drifted(comm, x, z, complete=True).value == exact
    assert estimate_drifted(comm, x, z, scheme="rotation", n_rounds=N_DRIFTED).value == exact
    repartitioned = estimate_drifted(comm, x, z, n_rounds=3)
    assert abs(repartitioned.value - exact) < 0.005 and repartitioned.bias == ()

    pooled = estimate_drifted(comm, x, z, scheme="as-is", aggregate="pooled", reference=True)
    assert pooled.value == pytest.approx(local, rel=1e-14) and pooled.complete_value == exact
    for bias in pooled.bias:  # blocks of equal sizes: both aggregates are the same
        assert bias.difference == pytest.approx(local - exact, rel=1e-12)
        assert bias.stderr is not None and bias.z == pytest.approx(bias.difference / bias.stderr)
        assert bias.z > 10.0
    assert [bias.aggregate for bias in pooled.bias] == ["mean", "pooled"]
    told = pooled.summary()["bias"]
    assert [each["z"] for each in told] == [each.z for each in pooled.bias]


@pytest.mark.parametrize("seed", range(5))
def test_without_drift_the_bias_is_within_chance(seed: int) -> None:
    """A degenerate statistic: its tails are heavier than the normal law's, and 4 is passed once in a thousand."""
    rng = np.random.default_rng(seed)
    x, z = (np.concatenate(each) for each in drifted(0.9, seed))
    rng.shuffle(x)
    rng.shuffle(z)
    # Any way to cut shuffled scores: here into blocks of different sizes, of which the aggregates differ.
    cuts = [np.array([150, 450, 900]), np.array([250, 300, 600])]
    blocks = [np.split(each, cut) for each, cut in zip((x, z), cuts, strict=True)]
    result = estimate_drifted(SerialComm(), *blocks, scheme="as-is", reference=True)
    assert result.value != result.complete_value
    assert len({bias.difference for bias in result.bias}) == 2
    assert all(bias.z is not None and abs(bias.z) < 4.0 for bias in result.bias)


# --- more workers than points


@pytest.mark.parametrize("empty", ["skip", "zero"])
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "prop-swor"},
        {"scheme": "prop-swor", "shuffle": "matrix"},
        {"scheme": "prop-swor", "move": "smaller", "n_pairs": 2},
        {"scheme": "rotation"},
        {"scheme": "prop-swr"},
        {"scheme": "fixed-shuffle"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_workers_without_a_point_are_left_out_and_counted(comm: Any, options: dict[str, Any], empty: str) -> None:
    x, z = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([1.0, 32.0, 1024.0])

    def estimated(comm: Any) -> Estimate:
        mine = []
        for rows in (x, z):
            bounds = block_bounds(len(rows), comm.size)
            mine.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
        return estimate(comm, *mine, "product", n_workers=7, n_rounds=2, empty=empty, seed=5, **options)

    found, alone = estimated(comm), estimated(SerialComm())
    assert (found.value, found.stderr, found.per_worker.tobytes()) == (
        *(alone.value, alone.stderr),
        alone.per_worker.tobytes(),
    )
    present = ~np.isnan(found.per_worker)
    if options["scheme"] == "rotation":  # the visitors come to others in the second round, and values are pooled
        expected = found.per_worker[present].mean()
    else:
        assert present.sum(axis=1).tolist() == [3, 3]
        expected = np.nansum(found.per_worker, axis=1).mean() / (3 if empty == "skip" else 7)
    assert found.value == pytest.approx(expected, rel=1e-14)
    assert (found.evaluations == 0).sum() == (~present).sum()
    with pytest.raises(UserError, match="7 workers can't each have a point"):
        estimate(SerialComm(), x, z, "product", n_workers=7, seed=5, **{"n_rounds": 1} | options)


@pytest.mark.parametrize("scheme", ["prop-swor", "rotation", "prop-swr", "fixed-shuffle"])
def test_a_descent_leaves_out_workers_without_a_point(comm: Any, scheme: str) -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))

    def learnt(comm: Any) -> tuple[list[float], int]:
        mine = []
        for rows in samples:
            bounds = block_bounds(len(rows), comm.size)
            mine.append(rows[bounds[comm.rank] : bounds[comm.rank + 1]])
        options: dict[str, Any] = {"scheme": scheme, "repartition_every": 2, "iterations": 4, "batch_pairs": 3}
        fit = learn(comm, *mine, n_workers=7, empty="skip", seed=1, **options)
        return fit.parameters.tolist(), fit.empty_workers

    found = learnt(comm)
    assert found == learnt(SerialComm())
    assert found[1] >= 2 * 3
