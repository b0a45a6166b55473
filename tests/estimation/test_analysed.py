"""Estimates of points of which more is said: weights, counts, clusters, strata, groups, influence; tests of values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sharding import SPREADS, shards

from mpi_ustat import Estimate, SerialComm, UserError, estimate, estimate_samples
from mpi_ustat.inference.intervals import interval

RNG = np.random.default_rng(8)
X, Z = np.round(RNG.normal(size=120) + 1.0, 1), np.round(RNG.normal(size=150), 1)
WEIGHTS = RNG.exponential(size=120), RNG.exponential(size=150)
CLUSTERS = RNG.integers(0, 40, 120), RNG.integers(0, 40, 150)
COUNTS = RNG.integers(0, 3, 120), RNG.integers(0, 3, 150)
NAMES = tuple(np.array([f"site {each % 7}" for each in of.tolist()]) for of in CLUSTERS)

SAID: dict[str, dict[str, Any]] = {
    "weights": {"weights": WEIGHTS},
    "clusters": {"clusters": CLUSTERS},
    "clusters called by text": {"clusters": tuple(of.astype(str) for of in CLUSTERS)},
    "strata": {"strata": NAMES},
    "all of them": {"weights": WEIGHTS, "clusters": CLUSTERS, "strata": NAMES},
    "groups": {"groups": CLUSTERS},
    "weighted groups called by text": {"groups": NAMES, "weights": WEIGHTS, "group_weight": "pairs"},
    "influence": {"influence": True},
    "counts": {"counts": COUNTS},
    "counts and clusters": {"counts": COUNTS, "clusters": CLUSTERS},
}


def run(comm: Any, spread: str = "even", **said: Any) -> Estimate:
    """The complete AUC of this rank's points, with what is said about them."""
    own = {name: shards(comm, each, spread) if isinstance(each, tuple) else each for name, each in said.items()}
    return estimate(comm, *shards(comm, (X, Z), spread), complete=True, seed=1, **own)


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("spread", SPREADS)
def test_the_ranks_change_no_bit(comm: Any, name: str, spread: str) -> None:
    alone, here = run(SerialComm(), **SAID[name]), run(comm, spread, **SAID[name])
    assert alone.error is not None and here.error is not None and here.covariance is not None
    assert (here.value, here.stderr, here.interval, here.flags) == (
        alone.value,
        alone.stderr,
        alone.interval,
        alone.flags,
    )
    if here.analysis is None or alone.analysis is None:
        assert name.startswith("counts")
        return
    assert here.analysis.total_weight == alone.analysis.total_weight
    assert here.analysis.effective_sizes == alone.analysis.effective_sizes
    for k, psi in enumerate(here.analysis.influence):
        whole = np.concatenate(comm.allgather(psi), axis=1)
        assert whole.tobytes() == alone.analysis.influence[k].tobytes()
    if here.analysis.groups is not None and comm.rank == 0:
        table, other = here.analysis.groups.table, alone.analysis.groups.table  # type: ignore[union-attr]
        assert table is not None and other is not None
        assert table.names.tolist() == other.names.tolist()
        assert table.values.tobytes() == other.values.tobytes()


def test_counts_are_the_rows_repeated() -> None:
    found = run(SerialComm(), counts=COUNTS)
    copies = [np.repeat(rows, times) for rows, times in zip((X, Z), COUNTS, strict=True)]
    want = estimate(SerialComm(), *copies, complete=True, seed=1)
    assert (found.value, found.stderr, found.interval, found.sizes) == (
        want.value,
        want.stderr,
        want.interval,
        want.sizes,
    )
    assert run(SerialComm(), weights=tuple(c * 1.0 for c in COUNTS)).value == want.value
    rounds = estimate(SerialComm(), X, Z, counts=COUNTS, n_workers=3, n_rounds=2, seed=4)
    assert rounds.value == estimate(SerialComm(), *copies, n_workers=3, n_rounds=2, seed=4).value


def test_the_interval_of_clusters_is_students_with_the_fewer_less_one() -> None:
    found = run(SerialComm(), clusters=CLUSTERS)
    dof = min(len(np.unique(each)) for each in CLUSTERS) - 1
    assert found.error is not None and found.error.dof == (float(dof),) and found.covariance is not None
    want = interval(float(found.value), float(found.covariance[0, 0]), 0.95, limits=(0.0, 1.0), dof=dof)
    assert found.interval == want.bounds
    assert found.flags == ()


def test_few_clusters_or_weights_worth_little_are_flagged() -> None:
    assert "only 7 clusters have a point of the sample x" in run(SerialComm(), clusters=NAMES).flags[0]
    heavy = np.ones(120)
    heavy[0] = 1000.0
    assert (
        "the weights of the sample x are worth 1.3 points" in run(SerialComm(), weights=(heavy, np.ones(150))).flags[0]
    )
    assert "only 7 groups" in run(SerialComm(), groups=NAMES).flags[0]
    few = estimate(SerialComm(), X[:8], Z, complete=True, strata=(NAMES[0][:8], NAMES[1]))
    assert few.flags[0].startswith("the sample x has only 8 points: a standard error wants 30 or more")


def test_one_cluster_has_no_standard_error() -> None:
    found = run(SerialComm(), clusters=(np.zeros(120), np.zeros(150)))
    assert found.interval is None and found.stderr is None and found.tests(0.5) == (None,)
    assert any("one cluster only" in flag for flag in found.flags)


def test_the_influence_of_points_adds_up_to_nothing_and_is_a_derivative() -> None:
    found = run(SerialComm(), influence=True)
    assert found.analysis is not None and found.error is not None and found.error.method == "components"
    psi = found.analysis.influence
    assert abs(sum(each.sum() for each in psi)) < 1e-14
    more = np.ones(120)
    more[5] += 1e-6
    moved = run(SerialComm(), weights=(more, np.ones(150)))
    assert_allclose((float(moved.value) - float(found.value)) / 1e-6, psi[0][0, 5], rtol=1e-4)


REFUSED: dict[str, tuple[Callable[[int, int], dict[str, Any]], str]] = {
    "negative": (
        lambda n, m: {"weights": (np.full(n, -1.0), np.ones(m))},
        "row 0 of the sample x, counted from 0, holds a weight of -1: .* not negative",
    ),
    "nan": (
        lambda n, m: {"weights": (np.ones(n), np.full(m, np.nan))},
        "row 0 of the sample z, counted from 0, holds a weight of nan",
    ),
    "all zero": (lambda n, m: {"weights": (np.ones(n), np.zeros(m))}, "all weights of the sample z are 0"),
    "text": (lambda n, m: {"weights": (np.ones(n), np.array(["a"] * m))}, "weights of the sample z must be numbers"),
    "fewer": (lambda n, m: {"weights": (np.ones(n + 1), np.ones(m))}, "weights of the sample x have shape"),
    "one array of weights": (lambda n, m: {"weights": (np.ones(n),)}, "2 samples and weights of 1"),
    "none": (
        lambda n, m: {"clusters": (["a"] * n, np.array(["None"] * (m - 1) + [None], dtype=object))},
        "^clusters has empty cells",
    ),
    "one array": (lambda n, m: {"clusters": (np.ones(n),)}, "2 samples and clusters of 1"),
    "empty cell": (lambda n, m: {"strata": (np.array(["a"] * n), np.array([""] * m))}, "^strata has empty cells"),
    "missing cell": (lambda n, m: {"groups": (np.ones(n), np.full(m, np.nan))}, "^groups has empty cells"),
    "no pair": (lambda n, m: {"strata": (np.zeros(n), np.ones(m))}, "no pair of points counts"),
    "no group": (lambda n, m: {"groups": (np.zeros(n), np.ones(m))}, "none of the 2 groups has a pair"),
    "both": (lambda n, m: {"groups": (np.zeros(n), np.ones(m)), "clusters": (np.zeros(n), np.ones(m))}, "leave these"),
    "half": (lambda n, m: {"counts": (np.full(n, 0.5), np.ones(m))}, "counts must be whole numbers"),
    "less than none": (lambda n, m: {"counts": (np.full(n, -1), np.ones(m))}, "counts must be whole numbers"),
    "too many": (lambda n, m: {"counts": (np.full(n, 10**12), np.ones(m))}, "use weights="),
    "weight of groups": (
        lambda n, m: {"groups": (np.zeros(n), np.zeros(m)), "group_weight": "size"},
        "group_weight is 'size'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_told_in_one_sentence(comm: Any, name: str) -> None:
    make, message = REFUSED[name]
    x, z = shards(comm, (X, Z))
    with pytest.raises(UserError, match=message):
        estimate(comm, x, z, complete=True, **make(len(x), len(z)))


def test_rounds_are_refused(comm: Any) -> None:
    x, z = shards(comm, (X, Z))
    for said in ({"weights": (np.ones(len(x)), np.ones(len(z)))}, {"influence": True}):
        with pytest.raises(UserError, match="use complete=True"):
            estimate(comm, x, z, n_rounds=1, **said)


# --- tests


def test_tests_are_those_of_the_standard_error() -> None:
    found = run(SerialComm())
    (test,) = found.tests(0.5)
    assert test is not None and isinstance(found.stderr, float)
    assert_allclose(test.z, (float(found.value) - 0.5) / found.stderr)
    assert_allclose(test.p, math.erfc(abs(test.z) / math.sqrt(2.0)), rtol=1e-9)


def test_differences_have_tests_and_all_columns_one() -> None:
    columns = [
        np.column_stack([each, each + RNG.normal(size=len(each)), RNG.normal(size=len(each))]) for each in (X, Z)
    ]
    found = estimate(SerialComm(), *columns, complete=True, columns=("a", "b", "c"), seed=1)
    each = {(d.first, d.second): d for d in found.differences()}
    for d in each.values():
        assert d.test is not None and d.stderr is not None
        assert_allclose(d.test.z, d.value / d.stderr)
    (worse,) = [d for d in found.differences(margin=0.3) if (d.first, d.second) == (0, 1)]
    assert worse.test is not None and worse.stderr is not None and worse.test.one_sided
    assert_allclose(worse.test.z, (worse.value + 0.3) / worse.stderr)
    whole = found.omnibus()
    assert whole is not None and whole.rank == 2
    assert whole.statistic >= max(d.test.z**2 for d in each.values() if d.test is not None) * (1 - 1e-9)


def test_what_is_printed_and_the_summary() -> None:
    text = str(run(SerialComm(), clusters=CLUSTERS, weights=WEIGHTS))
    assert "clusters          40 (" in text and "worth" in text and "all that count, of weight" in text
    text = str(run(SerialComm(), groups=CLUSTERS))
    assert "the mean of" in text and "each with the weight one" in text
    json.dumps(run(SerialComm(), groups=CLUSTERS).summary(), allow_nan=False)


# --- groups of other kernels


@pytest.mark.parametrize("name", ["kendall", "gini", "variance", "concordance"])
def test_groups_of_one_sample_are_what_each_gives_alone(comm: Any, name: str) -> None:
    """A group of ties has no tau-b, and is left out."""
    rng = np.random.default_rng(6)
    rows: Any = rng.integers(1, 9, (150, 3)).astype(float)
    rows[:, 1] = rows[:, 1] > 4.0
    rows = {"kendall": rows[:, ::2], "concordance": rows}.get(name, rows[:, 0])
    of_group = rng.integers(0, 12, 150)
    of_group[0], of_group[1] = 50, 51  # alone
    rows[of_group == 3] = rows[of_group == 3][0]
    found = estimate_samples(comm, shards(comm, (rows,)), name, complete=True, groups=shards(comm, (of_group,)))
    values = []
    for group in range(12):
        try:
            alone = estimate(SerialComm(), rows[of_group == group], kernel=name, complete=True, stderr=False)
        except UserError:
            continue
        values.append(float(alone.value))
    assert_allclose(float(found.value), np.mean(values), rtol=1e-12)
    assert found.analysis is not None and found.analysis.groups is not None
    assert (found.analysis.groups.n_groups, found.analysis.groups.n_undefined) == (len(values), 14 - len(values))
    assert_allclose(found.stderr, np.std(values, ddof=1) / math.sqrt(len(values)), rtol=1e-10)


def test_energy_has_no_groups(comm: Any) -> None:
    x, z = shards(comm, (X, Z))
    with pytest.raises(UserError, match="no groups"):
        estimate(comm, x, z, "energy", complete=True, groups=shards(comm, CLUSTERS))
    found = estimate(comm, x, z, "energy", complete=True, weights=shards(comm, WEIGHTS))
    assert any("samples are of one law" in flag for flag in found.flags)


@pytest.mark.parametrize("c", [0.0, 1e6, 1e9])
@pytest.mark.parametrize("said", ["weights", "clusters", "strata"])
def test_where_the_origin_is_does_not_matter_to_a_discrepancy(comm: Any, said: str, c: float) -> None:
    """The linear MMD of {0, 1, 5} and {1, 2} is -7/3, their energy distance -2/3."""
    x, z = c + np.array([0.0, 1.0, 5.0]), c + np.array([1.0, 2.0])
    about = {"weights": ([1.0] * 3, [1.0] * 2), "clusters": ([0, 1, 2], [3, 4]), "strata": ([0] * 3, [0] * 2)}[said]
    own = {said: shards(comm, tuple(map(np.array, about)))}
    for kernel, options, expected in (("mmd", {"kernel": "linear"}, -7 / 3), ("energy", {}, -2 / 3)):
        found = estimate(comm, *shards(comm, (x, z)), kernel, complete=True, seed=0, kernel_options=options, **own)
        assert found.value == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("scale", [1e-150, 1e100, 1e150])
def test_influence_whose_squares_leave_the_range_of_doubles_is_refused_on_every_rank(comm: Any, scale: float) -> None:
    own = shards(comm, (scale * X, scale * Z))
    with pytest.raises(UserError, match="leave the range of doubles: rescale the points"):
        estimate(comm, *own, "mmd", complete=True, kernel_options={"kernel": "linear"}, weights=shards(comm, WEIGHTS))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("clustered", [False, True])
def test_heavy_tails_of_weighted_discrepancies_are_told(comm: Any, spread: str, clustered: bool) -> None:
    """The relative standard error of Σ Ψ² is √(Σ_k [Σ Ψ⁴ - (Σ Ψ²)²/n_k])/Σ Ψ²."""
    rng = np.random.default_rng(4)
    samples = np.exp(2.0 * rng.normal(size=120) + 1.0), np.exp(2.0 * rng.normal(size=150))
    own, weights = shards(comm, samples, spread), shards(comm, WEIGHTS, spread)
    said: dict[str, Any] = {"clusters": shards(comm, CLUSTERS, spread)} if clustered else {}
    found = estimate(comm, *own, "energy", complete=True, seed=0, weights=weights, influence=True, **said)
    alone = estimate(
        SerialComm(),
        *samples,
        "energy",
        complete=True,
        seed=0,
        weights=WEIGHTS,
        influence=True,
        **({"clusters": CLUSTERS} if clustered else {}),
    )
    assert found.flags == alone.flags
    assert alone.analysis is not None
    units = [psi[0] for psi in alone.analysis.influence]
    if clustered:
        units = [sum(np.bincount(of, psi, minlength=40) for of, psi in zip(CLUSTERS, units, strict=True))]
        assert all(np.bincount(np.concatenate(CLUSTERS), minlength=40) > 0)
    squares = [each**2 for each in units]
    spreads = sum(np.sum(each**2) - np.sum(each) ** 2 / len(each) for each in squares)
    error = math.sqrt(spreads) / sum(map(np.sum, squares))
    assert error > 1.0 / 6.0
    (told,) = [flag for flag in found.flags if flag.startswith("heavy tails")]
    assert f"is about {100.0 * error:.0f} %" in told
