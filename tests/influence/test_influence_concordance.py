"""What points learn of concordance: brute force in rational numbers, R's values, and the same bits at every P."""

from __future__ import annotations

import csv
import gzip
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from one_sample_data import analysed, by_pairs, drawn, exact_weights, own, whole
from sharding import SPREADS
from survival_data import Survival

from mpi_ustat import SerialComm, estimate
from mpi_ustat.errors import UserError
from mpi_ustat.influence.concordance import concordance
from mpi_ustat.influence.points import Sample
from mpi_ustat.kernels.concordance import Concordance

Array = NDArray[Any]


def lives(rng: np.random.Generator, n: int) -> Array:
    """Points with ties in times, risks and both, and two columns of risks."""
    times, risks = rng.integers(1, rng.integers(3, 9), n), rng.integers(0, rng.integers(1, 5), n)
    return np.column_stack([times, rng.integers(0, 2, n), risks, rng.normal(size=n)])


def censoring(sample: Sample) -> list[Fraction]:
    """G(t-) of each point, by definition."""
    time, event, weights = sample.rows[:, 0], sample.rows[:, 1], exact_weights(sample)
    n = len(time)
    found = []
    for i in range(n):
        product = Fraction(1)
        for t in sorted({t for t in time if t < time[i]}):
            left = sum((weights[j] for j in range(n) if time[j] == t and not event[j]), Fraction())
            at_risk = left + sum((weights[j] for j in range(n) if time[j] > t), Fraction())
            product *= 1 - left / at_risk if at_risk else 1
        found.append(product)
    return found


def parts(sample: Sample, horizon: float, uno: bool) -> Any:
    """h_C of each risk and h_D of a pair, times the pair's own weight."""
    times, g = sample.rows.tolist(), censoring(sample) if uno else [Fraction(1)] * len(sample.rows)

    def h(i: int, j: int) -> list[Any]:
        for a, b in ((i, j), (j, i)):
            (t, event, *risks), (other, other_event, *others) = times[a], times[b]
            if event and t < horizon and (t < other or (t == other and not other_event)):
                weight = 1 / g[a] ** 2 if g[a] else Fraction(0)
                agree = [int(x > y) + Fraction(1, 2) * (x == y) for x, y in zip(risks, others, strict=True)]
                return [weight * each for each in (*agree, 1)]
        return [0] * (len(times[0]) - 1)

    return h


@pytest.mark.parametrize("uno", [False, True], ids=["harrell", "uno"])
@pytest.mark.parametrize("trial", range(12))
def test_against_all_pairs(comm: Any, trial: int, uno: bool) -> None:
    sample = drawn(trial, lives)
    horizon = 5.0 if trial % 5 == 1 else math.inf
    expected, pairs = by_pairs(sample, parts(sample, horizon, uno))
    for spread_out in SPREADS:
        mine = own(comm, sample, spread_out)
        (found,), _ = concordance(comm, [mine], "uno" if uno else "none", horizon)
        h, p = whole(comm, found.h, len(mine.rows)), whole(comm, found.pairs, len(mine.rows))
        doubled = np.array([[float(2 * each) for each in part] for part in expected])
        if not uno and (sample.weights is None or trial % 3 == 2):
            assert h.dtype == p.dtype == np.int64
            assert_array_equal(h, doubled)
        assert_allclose(h, doubled, rtol=2e-14 if uno else 1e-15, atol=0)
        assert_allclose(p, [*map(float, pairs)], rtol=1e-15, atol=0)


CASES = {
    "harrell": {},
    "harrell_weighted": {"weights": "weight"},
    "harrell_cluster": {"clusters": "cluster"},
    "harrell_strata": {"strata": "stratum"},
    "uno": {"censoring_weights": "uno"},
}


def survival_sample(data: Survival, case: dict[str, str]) -> Sample:
    rows = np.column_stack([data["time"], data["event"], data["risk"]])
    strata = np.unique(data.text("stratum"), return_inverse=True)[1] if "strata" in case else None
    clusters = data["cluster"].astype(np.int64) if "clusters" in case else None
    return Sample(rows, data["weight"] if "weights" in case else None, strata, clusters)


@pytest.mark.parametrize("name", CASES)
def test_against_r(comm: Any, shared_data: Path, name: str) -> None:
    data = Survival(shared_data)
    case, reference = CASES[name], data.reference[name]
    sample = survival_sample(data, case)
    censoring_weights = case.get("censoring_weights", "none")

    def found(ranks: Any, spread_out: str) -> tuple[str, str]:
        result, around = analysed(
            ranks,
            own(ranks, sample, spread_out),
            lambda c, s: concordance(c, s, censoring_weights),
            Concordance(censoring_weights),
        )
        assert result.value[0] == pytest.approx(reference["value"], rel=1e-12)
        assert around.jackknife[0, 0] == pytest.approx(reference["variance"], rel=1e-12)
        return float(result.value[0]).hex(), float(around.jackknife[0, 0]).hex()

    alone = found(SerialComm(), "even")
    assert {found(comm, each) for each in SPREADS} == {alone}


@pytest.mark.parametrize("name", ["lung", "flchain"])
def test_real_data_against_r(comm: Any, shared_data: Path, name: str) -> None:
    data = Survival(shared_data)
    path = data.folder / {"lung": "lung.csv", "flchain": "flchain.csv.gz"}[name]
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        lines = list(csv.DictReader(file))
    time, event = ("time", "status") if name == "lung" else ("futime", "death")
    rows = np.array([[float(line[key]) for key in (time, event, "age")] for line in lines])
    rows[:, 1] -= name == "lung"  # 1: censored, 2: dead
    sample = own(comm, Sample(rows), "even")
    reference = data.reference[f"{name}_age"]
    result, around = analysed(comm, sample, concordance, Concordance())
    assert result.value[0] == pytest.approx(reference["value"], rel=1e-12)
    assert around.jackknife[0, 0] == pytest.approx(reference["variance"], rel=1e-12)
    counts = reference["counts"]
    (sums,), _ = concordance(comm, [sample])
    twice = [sum(each) for each in zip(*comm.allgather(sums.h.sum(axis=1).tolist()), strict=True)]
    assert twice == [
        4 * counts["concordant"] + 2 * counts["tied.x"],
        4 * (counts["concordant"] + counts["discordant"] + counts["tied.x"]),
    ]


def test_counts_are_repeated_rows(comm: Any) -> None:
    rng = np.random.default_rng(5)
    rows, counts = lives(rng, 40), rng.integers(0, 4, 40)
    for censoring_weights in ("none", "uno"):
        kernel = Concordance(censoring_weights, columns=2)
        results = [
            analysed(comm, own(comm, sample, "even"), lambda c, s, w=censoring_weights: concordance(c, s, w), kernel)[0]
            for sample in (Sample(rows, counts.astype(float)), Sample(np.repeat(rows, counts, axis=0)))
        ]
        assert_allclose(results[0].value, results[1].value, rtol=1e-14)


def test_bits_are_the_same_at_every_number_of_ranks(comm: Any) -> None:
    rng = np.random.default_rng(8)
    n = 3000
    rows = np.column_stack([rng.integers(1, 400, n), rng.random(n) < 0.6, rng.integers(0, 90, n)]).astype(float)
    sample = Sample(rows, rng.exponential(size=n), rng.integers(0, 3, n), rng.integers(0, 500, n))

    def bits(ranks: Any, spread_out: str, censoring_weights: str) -> tuple[str, ...]:
        mine = own(ranks, sample, spread_out)
        result, around = analysed(
            ranks, mine, lambda c, s: concordance(c, s, censoring_weights, 350.0), Concordance(censoring_weights)
        )
        psi = whole(ranks, result.points[0], len(mine.rows))
        return result.value.tobytes().hex(), around.covariance.tobytes().hex(), psi.tobytes().hex()

    for censoring_weights in ("none", "uno"):
        alone = bits(SerialComm(), "even", censoring_weights)
        assert {bits(comm, each, censoring_weights) for each in SPREADS} == {alone}


@pytest.mark.parametrize("censoring_weights", ["none", "uno"])
def test_all_points_equal(comm: Any, censoring_weights: str) -> None:
    sample = own(comm, Sample(np.tile([3.0, 1.0, 2.0], (50, 1))), "even")
    with pytest.raises(UserError, match="no pair is comparable"):
        analysed(comm, sample, lambda c, s: concordance(c, s, censoring_weights), Concordance())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ([0.0, 1.0, 2.0], "a point holds a time that is not positive"),
        ([-1.0, 1.0, 2.0], "a point holds a time that is not positive"),
        ([1.0, 2.0, 2.0], "an event that is neither 0 nor 1"),
    ],
)
def test_what_is_no_survival_is_refused_on_all_ranks(comm: Any, row: list[float], sentence: str) -> None:
    rows = np.tile([1.0, 1.0, 0.5], (20, 1))
    rows[13] = row
    with pytest.raises(UserError, match=sentence):
        concordance(comm, [own(comm, Sample(rows), "even")])


def test_complete_by_the_library(comm: Any) -> None:
    rng = np.random.default_rng(4)
    rows = lives(rng, 60)[:, :3]
    mine = own(comm, Sample(rows), "uneven")
    result = estimate(comm, mine.rows, None, "concordance", complete=True)
    psi, _ = analysed(comm, mine, concordance, Concordance())
    assert result.value == psi.value[0]
