"""The influence of points on the AUC: brute force in rational numbers, R's values, and the same bits at every P."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sharding import SPREADS, bounds_of
from survival_data import Survival

from mpi_ustat import SerialComm, estimate
from mpi_ustat.errors import UserError
from mpi_ustat.influence.auc import auc
from mpi_ustat.influence.clusters import Spread, spread
from mpi_ustat.influence.keys import Keys
from mpi_ustat.influence.points import Sample
from mpi_ustat.influence.statistic import Influence, statistic

Array = NDArray[Any]


def own(comm: Any, sample: Sample, spread: str, which: int) -> Sample:
    bounds = bounds_of(comm, len(sample.rows), spread, which)
    mine = slice(bounds[comm.rank], bounds[comm.rank + 1])
    parts = (sample.rows, sample.weights, sample.strata, sample.clusters)
    return Sample(*(None if each is None else each[mine] for each in parts))  # type: ignore[arg-type]


def analysed(
    comm: Any, samples: Sequence[Sample], spread_out: str = "even", ties: str = "half"
) -> tuple[Influence, Spread]:
    """The statistic with the influence of all points, in order."""
    mine = [own(comm, sample, spread_out, k) for k, sample in enumerate(samples)]
    sums, _ = auc(comm, mine, ties)
    found = statistic(comm, mine, sums, 2)
    whole = [np.concatenate(comm.allgather(psi), axis=1) for psi in found.points]
    return Influence(found.value, found.total_weight, whole), spread(comm, mine, found.points)


def exact(x: Sample, z: Sample, tie: Fraction) -> tuple[Fraction, Fraction, list[list[Fraction]]]:
    """θ, Ω and ψ of each point, by looking at every pair."""
    n, m = len(x.rows), len(z.rows)
    weights = [
        [Fraction(1)] * len(s.rows) if s.weights is None else [*map(Fraction, s.weights.tolist())] for s in (x, z)
    ]
    omega = [
        [weights[0][i] * weights[1][j] * int(x.strata is None or x.strata[i] == z.strata[j]) for j in range(m)]  # type: ignore[index]
        for i in range(n)
    ]
    h = [[int(z.rows[j] < x.rows[i]) + tie * int(z.rows[j] == x.rows[i]) for j in range(m)] for i in range(n)]
    total = sum(map(sum, omega), Fraction())
    theta = sum((omega[i][j] * h[i][j] for i in range(n) for j in range(m)), Fraction()) / total
    away = [[omega[i][j] * (h[i][j] - theta) / total for j in range(m)] for i in range(n)]
    return theta, total, [[*map(sum, away)], [*map(sum, zip(*away, strict=True))]]


def drawn(trial: int) -> list[Sample]:
    """Two small samples with ties, weights of which some are 0, strata and clusters, some of one row."""
    rng = np.random.default_rng(trial)
    samples = []
    for size in rng.integers(3, 20, 2).tolist():
        rows = rng.normal(size=size) if trial % 2 else rng.integers(0, 5, size).astype(float)
        weights = (None, rng.exponential(size=size), rng.integers(0, 3, size).astype(float))[trial % 3]
        if weights is not None:
            weights[0] = 0.0
            weights[-1] = 2.0
        strata = None if trial % 4 == 0 else rng.integers(-1, 2, size)
        if strata is not None:
            strata[-1] = 1
        samples.append(Sample(rows, weights, strata, rng.integers(0, 6, size)))
    return samples


@pytest.mark.parametrize("trial", range(24))
def test_value_and_influence_by_looking_at_every_pair(comm: Any, trial: int) -> None:
    samples, ties = drawn(trial), "strict" if trial % 5 == 0 else "half"
    theta, omega, psi = exact(*samples, Fraction(1, 2) if ties == "half" else Fraction())
    found, around = analysed(comm, samples, SPREADS[trial % 3], ties)
    assert_allclose(found.value, float(theta), rtol=1e-15)
    assert found.total_weight == float(omega)
    for got, want in zip(found.points, psi, strict=True):
        assert_allclose(got[0], [*map(float, want)], rtol=1e-12, atol=1e-16)
    assert abs(sum(map(sum, psi), Fraction())) == 0  # ψ of both samples, together and apart
    # Clusters, those of points with weight 0 left out.
    parts: dict[int, list[Fraction]] = {}
    for k, (sample, of_sample) in enumerate(zip(samples, psi, strict=True)):
        for i, each in enumerate(of_sample):
            if sample.weights is None or sample.weights[i] > 0.0:
                parts.setdefault(int(sample.clusters[i]), [Fraction(), Fraction()])[k] += each  # type: ignore[index]
    with_x, with_z = (
        {
            int(c)
            for c, w in zip(s.clusters, s.weights if s.weights is not None else s.rows + 99, strict=True)  # type: ignore[arg-type]
            if w > 0
        }
        for s in samples
    )
    assert around.n_clusters == (len(with_x), len(with_z)) and around.n_in_all == len(with_x | with_z)
    assert_allclose(around.jackknife, float(sum((a + b) ** 2 for a, b in parts.values())), rtol=1e-12, atol=1e-18)
    if min(around.n_clusters) > 1:
        factors = [Fraction(c, c - 1) for c in (len(with_x), len(with_z), len(with_x | with_z))]
        terms = [(a * a, b * b, 2 * a * b) for a, b in parts.values()]
        want = sum(f * sum(each) for f, each in zip(factors, zip(*terms, strict=True), strict=True))
        assert_allclose(around.covariance, float(want), rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("trial", range(6))
def test_the_ranks_change_no_bit(comm: Any, trial: int) -> None:
    rng = np.random.default_rng(trial)
    samples = [
        Sample(
            np.round(rng.normal(size=(size, 2)), 1 + trial % 2 * 9),
            rng.exponential(size=size) if trial % 3 else None,
            rng.integers(0, 4, size) if trial % 2 else None,
            rng.integers(0, 50, size) if trial > 2 else None,
        )
        for size in (211, 157)
    ]
    alone = analysed(SerialComm(), samples)
    for spread_out in SPREADS:
        found = analysed(comm, samples, spread_out)
        for (one, around), (other, around_other) in [(alone, found)]:
            assert one.value.tobytes() == other.value.tobytes()
            assert [each.tobytes() for each in one.points] == [each.tobytes() for each in other.points]
            assert around.covariance.tobytes() == around_other.covariance.tobytes()
            assert around.n_clusters == around_other.n_clusters


def test_without_weights_it_is_the_complete_statistic_and_delongs_variance(comm: Any) -> None:
    rng = np.random.default_rng(1)
    x, z = rng.integers(0, 30, 80) + 5.0, rng.integers(0, 30, 60) + 0.0
    found, around = analysed(comm, [Sample(x), Sample(z)])
    assert found.value[0] == estimate(SerialComm(), x, z, "auc", complete=True).value
    wins = (z < x[:, None]) + 0.5 * (z == x[:, None])
    assert_allclose(
        around.covariance[0, 0], wins.mean(axis=1).var(ddof=1) / 80 + wins.mean(axis=0).var(ddof=1) / 60, rtol=1e-12
    )


def test_weight_two_is_two_copies_of_the_same_value(comm: Any) -> None:
    rng = np.random.default_rng(2)
    x, z = rng.integers(0, 9, 30) + 2.0, rng.integers(0, 9, 25) + 0.0
    copies = rng.integers(0, 4, 30), rng.integers(0, 4, 25)
    weighted, _ = analysed(comm, [Sample(x, copies[0] * 1.0), Sample(z, copies[1] * 1.0)])
    repeated, _ = analysed(comm, [Sample(np.repeat(x, copies[0])), Sample(np.repeat(z, copies[1]))])
    assert weighted.value[0].hex() == repeated.value[0].hex()
    sums = [
        np.add.reduceat(psi[0], np.cumsum(c[c > 0]) - c[c > 0]) for psi, c in zip(repeated.points, copies, strict=True)
    ]
    for got, want, c in zip(weighted.points, sums, copies, strict=True):
        assert_allclose(got[0][c > 0], want, rtol=1e-12, atol=1e-17)
        assert_array_equal(got[0][c == 0], 0.0)


def test_no_pair_counts(comm: Any) -> None:
    x, z = Sample(np.arange(3.0), None, np.array([1, 1, 1])), Sample(np.arange(2.0), None, np.array([2, 3]))
    with pytest.raises(UserError, match="no pair of points counts"):
        analysed(comm, [x, z])


REFERENCES = {
    "auc": "",
    "auc_weighted": "w",
    "auc_cluster": "c",
    "auc_weighted_cluster": "wc",
    "auc_strata": "s",
    "auc_strata_weighted_cluster": "wcs",
    "auc_counts_as_weights": "n",
}


@pytest.mark.parametrize("name", REFERENCES)
def test_values_and_variances_are_those_of_survival_in_r(comm: Any, shared_data: Path, name: str) -> None:
    r, said = Survival(shared_data), REFERENCES[name]
    weights = r["weight"] if "w" in said else r["count"] if "n" in said else None
    strata = Keys.of(r.text("stratum"), "strata").codes if "s" in said else None
    clusters = Keys.of(r["cluster"], "clusters").codes if "c" in said else None
    samples = []
    for label in (1.0, 0.0):
        chosen = r["label"] == label
        samples.append(
            Sample(r["s1"][chosen], *(None if each is None else each[chosen] for each in (weights, strata, clusters)))
        )
    found, around = analysed(comm, samples)
    assert_allclose(found.value[0], r.reference[name]["value"], rtol=1e-14)
    assert_allclose(around.jackknife[0, 0], r.reference[name]["variance"], rtol=1e-12)


def test_the_covariance_of_two_columns_is_delongs_of_proc(comm: Any, shared_data: Path) -> None:
    r = Survival(shared_data)
    both = np.column_stack([r["s1"], r["s2"]])
    found, around = analysed(comm, [Sample(both[r["label"] == label]) for label in (1.0, 0.0)])
    want = r.reference["delong"]
    assert_allclose(found.value, [want["auc1"], want["auc2"]], rtol=1e-14)
    assert_allclose(around.covariance, [[want["var1"], want["cov"]], [want["cov"], want["var2"]]], rtol=1e-12)


def test_strata_without_clusters_have_the_covariance_of_a_stratified_sample(comm: Any) -> None:
    rng = np.random.default_rng(5)
    samples = []
    for size in (41, 29):
        strata = np.concatenate([rng.integers(0, 4, size - 1), [9]])  # one of a single point
        weights = np.where(rng.random(size) < 0.2, 0.0, rng.exponential(size=size))
        samples.append(Sample(np.round(rng.normal(size=(size, 2)), 1), weights, strata))
    whole, around = analysed(SerialComm(), samples)
    want = np.zeros((2, 2))
    for sample, psi in zip(samples, whole.points, strict=True):
        assert sample.weights is not None and sample.strata is not None
        for stratum in np.unique(sample.strata[sample.weights > 0.0]):
            those = psi[:, (sample.strata == stratum) & (sample.weights > 0.0)]
            n = those.shape[1]
            want += np.cov(those) * n if n > 1 else those @ those.T
    assert_allclose(around.covariance, want, rtol=1e-12)
    assert analysed(comm, samples, "uneven")[1].covariance.tobytes() == around.covariance.tobytes()
