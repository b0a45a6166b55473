"""What error bars rest on: blocks or a pilot, degrees of freedom, and what is flagged because of it."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard

from mpi_ustat import SerialComm, estimate
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.inference.doubts import few_sampled
from mpi_ustat.inference.evidence import (
    Evidence,
    block_dof,
    cross_dof,
    knows_more,
    mean_by_dof,
    of_blocks,
    redrawn,
    satterthwaite,
    shares,
)
from mpi_ustat.inference.intervals import UNLIMITED, Disjoint, disjoint_tuples, interval
from mpi_ustat.inference.tails import differ, kurtosis, middle_ranks, tail_index
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.fmr import FalseMatchRate
from mpi_ustat.kernels.gini import Gini, OneSampleGini
from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import UNIT, Points
from mpi_ustat.kernels.product import Product
from mpi_ustat.kernels.variance import Variance
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.planning.plan import choose
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.swor import share_with_tuples, swor_bias_factor

SERIAL = SerialComm()
Floats = NDArray[np.float64]


def bivariate(n: int, seed: int = 0, correlation: float = 0.5) -> Floats:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.column_stack([x, correlation * x + math.sqrt(1.0 - correlation**2) * rng.normal(size=n)])


# ---------------------------------------------------------------------------------------------------------------------
# Degrees of freedom


def test_the_degrees_of_freedom_of_a_block_grow_with_it_and_with_the_other_sample() -> None:
    assert block_dof((1, 1), (1, 9)) == block_dof((2,), (3,)) == cross_dof(1, 5) == ()
    assert block_dof((1, 1), (10**6 + 1, 10**6 + 1)) == pytest.approx((1e6, 1e6), rel=1e-4)
    assert block_dof((2,), (4,)) == pytest.approx((3 / 9,))
    assert block_dof((1, 1, 1), (5, 4, 8)) == pytest.approx((4 / 2.5**2, 3 / (1 + 4 * 0.325) ** 2, 7 / 2.8**2))
    few, more = block_dof((1, 1), (10, 2)), block_dof((1, 1), (10, 20))
    assert few[0] < more[0] and few[1] < more[1]


def test_estimates_are_weighted_by_what_they_know_and_blocks_add_up() -> None:
    for n_parts in (1, 9):  # few numbers are added in one call, many one after the other
        components = np.array([np.full((3, n_parts, n_parts), value) for value in (1.0, 4.0)])
        assert mean_by_dof(components, np.array([(1.0, 9.0), (2.0, 8.0)])) == pytest.approx(
            np.full_like(components[0], 3)
        )
        assert np.array_equal(mean_by_dof(components, np.array([(2.0,), (2.0,)])), components.mean(axis=0))
    told = of_blocks(np.array([(1.5, 2.5), (0, 0), (1.0, 1.0)]), [np.array([3, 1, 4]), np.array([5, 9, 2])])
    assert told is not None and told.rows == (7, 7)
    assert told.dof == pytest.approx((2.5, 2.5**2 / (1.5**2 / 2.5 + 1.0)))
    assert of_blocks(np.zeros((2, 1)), [np.array([1, 1])]) is None
    assert knows_more((50.0, 50.0), (400.0, 10.0)) and not knows_more((50.0, 50.0), (400.0, 40.0))


def test_blocks_of_other_class_shares_know_less_than_the_sum() -> None:
    """Two blocks, one with few x and one with few z: their mean is known as badly as the estimate from the few."""
    dof = np.array([block_dof((1, 1), sizes) for sizes in ((400, 8), (8, 400))])
    told = of_blocks(dof, [np.array([400, 8]), np.array([8, 400])])
    assert told is not None
    rng = np.random.default_rng(0)
    for k in (0, 1):
        variances = [rng.chisquare(of_block[k], (40_000, 1, 1)) / of_block[k] for of_block in dof]
        joined = mean_by_dof(np.array(variances), dof)
        assert 2.0 / joined.var() == pytest.approx(told.dof[k], rel=0.05)


def test_blocks_drawn_with_replacement_know_the_sample_and_no_more() -> None:
    """The variance of 60 draws from each of many normal samples of 40, as an estimate of the population's."""
    n, drawn = 40, 60
    (dof,) = redrawn(Evidence((drawn,), (drawn - 1.0,)), (n,)).dof
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(20_000, n))
    draws = np.take_along_axis(samples, rng.integers(0, n, (20_000, drawn)), axis=1)
    assert 2.0 * np.mean(draws.var(axis=1)) ** 2 / np.var(draws.var(axis=1)) == pytest.approx(dof, rel=0.05)
    x, z = rng.normal(size=200), rng.normal(size=200)
    told = [estimate(SERIAL, x, z, "gini", scheme=scheme, seed=0).error for scheme in ("prop-swr", "prop-swor")]
    assert [each.method for each in told if each is not None] == ["components"] * 2
    few, many = (each.judge.evidence.dof for each in told if each is not None)
    assert few == pytest.approx([1.0 / (1.0 / each + 1.0 / 199.0) for each in many])


def test_satterthwaites_degrees_of_freedom_are_between_the_fewest_and_all() -> None:
    assert satterthwaite((10.0, 40.0), shares([1.0, 0.0], (5, 5))) == pytest.approx(10.0)
    assert satterthwaite((10.0, 40.0), shares([1.0, 1.0], (5, 5))) == pytest.approx(1 / (0.25 / 10 + 0.25 / 40))
    assert satterthwaite((10.0, 40.0), shares([-1.0, 0.0], (5, 5))) == 10.0


@pytest.mark.parametrize("m", [50, 51, 60])
def test_a_few_blocks_that_happen_to_be_large_enough_do_not_decide_alone(m: int) -> None:
    """Of 51 points over 50 workers one block has two; its components alone gave a standard error of 0.01 to 0.08."""
    rng = np.random.default_rng(m)
    x, z = rng.normal(1.0, 1.0, 500), rng.normal(0.0, 1.0, m)
    whole = estimate(SERIAL, x, z, "auc", complete=True, seed=0)
    found = [estimate(SERIAL, x, z, "auc", n_workers=50, seed=seed) for seed in range(8)]
    assert {each.error.method for each in found if each.error is not None} == {"pilot"}
    for each in found:
        assert each.stderr == found[0].stderr and whole.stderr < each.stderr < 1.3 * whole.stderr
    # Large blocks are as good as a pilot, and are there anyway.
    assert estimate(SERIAL, x, z, "auc", n_workers=5, seed=0).summary()["stderr_method"] == "components"


def test_sizes_of_blocks_differ_by_one_and_their_components_stay_unbiased() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=23), rng.normal(size=13)
    whole = estimate(SERIAL, x, z, "product", complete=True, seed=0)
    asked = EstimateConfig(kernel="product", n_workers=3, seed=0)
    found = []
    for replicate in range(400):
        estimation = Estimation(set_up(SERIAL, (x, z), asked, replicate=replicate))
        for _ in run(estimation):
            pass
        found.append(estimation.state.rounds[0].components)
    mean, error = np.mean(found, axis=0).ravel(), np.std(found, axis=0).ravel() / 20.0
    assert whole.error is not None and whole.error.components is not None
    # 3 components: a deviation of 4.5 standard errors has probability 2e-5.
    assert (np.abs(mean - whole.error.components.ravel()) < 4.5 * error).all()


ROTATIONS: dict[str, tuple[tuple[Points, ...], Any, dict[str, Any], int]] = {
    "tau-a": ((bivariate(200),), "kendall", {"kernel_options": {"tau": "a"}}, 26),
    "tau-b": ((np.round(bivariate(120)),), "kendall", {}, 16),
    "gini of one sample": ((bivariate(700)[:, 0],), "gini", {}, 6),
    "variance": ((bivariate(90)[:, 0],), "variance", {}, 6),
    "gini of two": ((bivariate(70)[:, 0], bivariate(50, 1)[:, 0]), "gini", {}, 10),
    "auc": ((bivariate(70)[:, 0] + 1.0, bivariate(50, 1)[:, 0]), "auc", {}, 10),
    "fmr": ((bivariate(60), bivariate(50, 1)), "fmr", {"kernel_options": {"threshold": 0.5}}, 6),
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_the_last_round_of_a_rotation_has_the_complete_statistics_error_bar(comm: Any, name: str) -> None:
    samples, kernel, options, last = ROTATIONS[name]
    mine = [shard(comm, rows) for rows in samples]
    second = mine[1] if len(mine) > 1 else None
    n_workers = 10 if len(mine) > 1 and last == 10 else 6 if len(mine) > 1 else 2 * (last - 1)
    for seed in (1, 2):
        rotated = estimate(
            comm, mine[0], second, kernel, scheme="rotation", n_rounds=last, n_workers=n_workers, seed=seed, **options
        )
        whole = estimate(comm, mine[0], second, kernel, complete=True, seed=seed, **options)
        assert rotated.value == pytest.approx(whole.value, rel=1e-12)
        assert rotated.stderr == pytest.approx(whole.stderr, rel=1e-9)
        assert rotated.interval == pytest.approx(whole.interval, rel=1e-9)


def test_all_rounds_of_a_rotation_of_one_sample_count(comm: Any) -> None:
    """Pairs across two blocks make a layout of two samples, whose rows and columns tell ζ₁, and whose rest tells δ."""
    x = bivariate(4000, 3)[:, 0]

    def distance(a: Floats, b: Floats) -> Floats:
        return np.abs(a - b.T)

    distance.degrees = (2,)  # type: ignore[attr-defined]
    for kernel in ("gini", distance):
        result = estimate(comm, shard(comm, x), None, kernel, scheme="rotation", n_rounds=4, n_workers=8, seed=0)
        whole = estimate(comm, shard(comm, x), None, "gini", complete=True, seed=0)
        assert result.error is not None and result.error.method == "components"
        assert result.stderr == pytest.approx(whole.stderr, rel=0.02)


# ---------------------------------------------------------------------------------------------------------------------
# Workers without a pair


def test_swor_leaves_workers_without_a_pair_out(comm: Any) -> None:
    rng = np.random.default_rng(1)
    x, z = (shard(comm, rows) for rows in (rng.normal(1.0, 1.0, 2000), rng.normal(0.0, 1.0, 200)))
    whole = estimate(comm, x, z, "auc", complete=True, seed=0)
    for n_rounds in (1, 4):
        found = estimate(comm, x, z, "auc", scheme="swor", n_workers=100, n_rounds=n_rounds, seed=1)
        assert found.config.empty == "skip" and found.empty_workers > 0 and found.flags == ()
        assert abs(found.value - whole.value) < 4 * found.stderr


def counting_zero(scheme: str) -> dict[str, Any]:
    return {"scheme": scheme, "n_workers": 100, "empty": "zero", "seed": 1}


@pytest.mark.parametrize("stderr", [True, False])
@pytest.mark.parametrize("scheme", ["swor", "as-is"])
def test_counting_empty_workers_as_zero_is_never_silent(scheme: str, stderr: bool) -> None:
    rng = np.random.default_rng(2)
    x, z = rng.normal(1.0, 1.0, 900), rng.normal(0.0, 1.0, 40)
    options = counting_zero(scheme)
    if scheme == "as-is":
        options["block_sizes"] = [np.diff(block_bounds(len(rows), 100)) for rows in (x, z)]
    result = estimate(SERIAL, x, z, "auc", stderr=stderr, **options)
    factor = swor_bias_factor(900, 40, 100) if scheme == "swor" else 0.4
    assert result.expectation_factor == pytest.approx(factor)
    assert result.interval is None
    assert any(f"{factor:.6g} times the statistic" in flag for flag in result.flags)
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["flags"] == list(result.flags) and summary["expectation_factor"] == pytest.approx(factor)
    # A pooled average leaves them out, whatever is said.
    assert estimate(SERIAL, x, z, "auc", aggregate="pooled", **options).expectation_factor == 1.0


@pytest.mark.parametrize(
    ("sizes", "degrees"), [((5, 3), (1, 1)), ((3, 2, 4), (1, 1, 1)), ((4, 3), (2, 1)), ((7, 1, 1, 1), (1, 1, 1, 1))]
)
def test_the_share_of_workers_with_a_tuple_by_enumeration(sizes: tuple[int, ...], degrees: tuple[int, ...]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    has = [
        all(np.count_nonzero(labels[list(block)] == k) >= degree for k, degree in enumerate(degrees))
        for size in (len(labels) // 2, -(-len(labels) // 2))
        for block in itertools.combinations(range(len(labels)), size)
    ]
    halves = np.array_split(has, 2) if len(labels) % 2 == 0 else [has[: math.comb(len(labels), len(labels) // 2)]]
    halves = halves if len(labels) % 2 == 0 else [*halves, has[len(halves[0]) :]]
    assert share_with_tuples(sizes, degrees, 2) == pytest.approx(np.mean([np.mean(half) for half in halves]))


def test_the_share_of_workers_with_a_tuple_of_large_samples_by_inclusion_and_exclusion() -> None:
    """Blocks of 100 000 points, of which three classes have 20 to 50 in all of the ten million."""
    sizes, total, s = (10**7 - 100, 20, 30, 50), 10**7, 10**5

    def lacks(count: int) -> float:
        return math.exp(math.fsum(math.log1p(-s / (total - i)) for i in range(count)))

    rare = [sum(chosen) for k in range(4) for chosen in itertools.combinations(sizes[1:], k)]
    signs = [(-1) ** k for k in range(4) for _ in itertools.combinations(sizes[1:], k)]
    expected = math.fsum(sign * lacks(count) for sign, count in zip(signs, rare, strict=True))
    assert share_with_tuples(sizes, (1, 1, 1, 1), 100) == pytest.approx(expected, rel=1e-9)
    assert share_with_tuples((3000, 1500, 1500), (1, 1, 1), 10) <= 1.0
    assert share_with_tuples((3, 2, 4), (1, 1, 1), 1) == 1.0


# ---------------------------------------------------------------------------------------------------------------------
# Flags


def flagged(result: Any, words: str) -> bool:
    return any(words in flag for flag in result.flags)


def test_what_a_pilot_saw_is_judged_by_its_rows() -> None:
    rng = np.random.default_rng(0)
    sampled: dict[str, Any] = {"n_workers": 10, "n_pairs": 2000, "seed": 1}
    heavy, light = rng.lognormal(0.0, 1.5, 20_000), rng.normal(size=20_000)
    assert flagged(estimate(SERIAL, heavy, None, "gini", **sampled), "heavy tails")
    # With all points seen, Student's t makes up for tails that are not heavier than that.
    (dof,) = estimate(SERIAL, heavy, None, "gini", complete=True, seed=1).error.dof  # type: ignore[union-attr]
    assert dof is not None and dof < 36.0
    for way in (sampled, {"complete": True, "seed": 1}):
        assert estimate(SERIAL, light, None, "gini", **way).flags == ()
    x, z = (np.where(rng.uniform(size=20_000) < 0.01, *values) for values in ((1.5, 3.0), (2.0, 1.0)))
    few = estimate(SERIAL, x, z, "auc", **sampled | {"n_pairs": 40_000})
    assert flagged(few, "points of the sample x decide")
    assert estimate(SERIAL, x, z, "auc", complete=True, seed=1).flags == ()


def test_few_deciding_sampled_pairs_are_told() -> None:
    assert few_sampled(0.5, 19, UNIT) is not None and few_sampled(0.5, 20, UNIT) is None
    assert few_sampled(1e-4, 99_000, UNIT) is not None and few_sampled(1 - 1e-4, 101_000, UNIT) is None
    assert few_sampled(0.5, None, UNIT) is few_sampled(0.5, 3, UNLIMITED) is None
    rng = np.random.default_rng(0)
    x, z = (np.where(rng.uniform(size=2000) < 0.1, *values) for values in ((1.5, 3.0), (2.0, 1.0)))
    found = [estimate(SERIAL, x, z, "auc", n_workers=4, n_pairs=100, seed=seed) for seed in range(4)]
    imperfect = [each for each in found if 0.976 < each.value < 1.0]
    assert imperfect and all(flagged(each, "of 400 sampled pairs decide") for each in imperfect)


@pytest.mark.parametrize("way", [{"complete": True}, {"n_workers": 4}], ids=["complete", "rounds"])
def test_a_difference_that_few_points_make_is_flagged(comm: Any, way: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(1.0, 1.0, 1000), rng.normal(0.0, 1.0, 1000)
    other = x.copy()
    other[[5, 400, 900]] -= 3.0
    three = [np.column_stack([x, other, x + rng.normal(size=1000)]), np.column_stack([z, z, z + rng.normal(size=1000)])]
    mine = [shard(comm, rows) for rows in three]
    result = estimate(comm, *mine, "auc", columns=("a", "b", "c"), seed=0, **way)
    few, much, _ = result.differences()
    assert (few.first, few.second) == (0, 1) and any("heavy tails" in flag for flag in few.flags)
    assert much.flags == () and result.flags == ()
    alone = estimate(SERIAL, *three, "auc", columns=("a", "b", "c"), seed=0, **way)
    assert [each.flags for each in alone.differences()] == [each.flags for each in result.differences()]


def test_tau_b_of_a_table_with_rare_cells_is_flagged() -> None:
    rng = np.random.default_rng(0)
    rare = rng.multinomial(500, [0.97, 0.012, 0.012, 0.006])
    table = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], rare, axis=0)
    for way in ({"complete": True}, {"n_workers": 5}):
        assert flagged(estimate(SERIAL, rng.permutation(table), None, "kendall", seed=0, **way), "heavy tails")
        assert estimate(SERIAL, np.round(bivariate(500)), None, "kendall", seed=0, **way).flags == ()


DISCREPANCIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "energy": ("energy", {}),
    "mmd": ("mmd", {"kernel_options": {"bandwidth": 1.0}}),
}


@pytest.mark.parametrize("name", DISCREPANCIES)
def test_discrepancies_by_rounds_are_flagged_where_samples_may_be_alike(comm: Any, name: str) -> None:
    kernel, options = DISCREPANCIES[name]
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=100), rng.normal(size=100)
    for seed in range(3):
        alike = estimate(comm, shard(comm, x), shard(comm, z), kernel, n_workers=5, seed=seed, **options)
        assert flagged(alike, "may be alike")
    apart = estimate(comm, shard(comm, x + 2.0), shard(comm, z), kernel, n_workers=5, seed=0, **options)
    assert not flagged(apart, "may be alike")
    assert apart.flags == estimate(SERIAL, x + 2.0, z, kernel, n_workers=5, seed=0, **options).flags


def test_heavy_tails_of_an_energy_distance_are_seen() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.lognormal(0.0, 1.5, 300), 20.0 + rng.lognormal(0.0, 1.5, 300)
    for way in ({"complete": True}, {"n_workers": 5}):
        assert flagged(estimate(SERIAL, x, z, "energy", seed=0, **way), "heavy tails")
        light = estimate(SERIAL, np.log(x), np.log(z), "energy", seed=0, **way)
        assert not flagged(light, "heavy tails")


def test_a_statistic_without_a_first_order_part_has_no_tails_of_it() -> None:
    rng = np.random.default_rng(0)
    alike = [estimate(SERIAL, *rng.normal(size=(2, 40)), "energy", complete=True, seed=0) for _ in range(20)]
    assert sum(flagged(each, "may be alike") for each in alike) > 15
    assert not any(flagged(each, "inf %") for each in alike)


def test_the_index_of_a_tail_is_that_of_its_law() -> None:
    """Points at the quantiles of a law, of which none is left to chance."""
    p = (np.arange(200_000) + 0.5) / 200_000
    for index in (0.2, 0.5, 0.6):
        assert tail_index((1.0 - p) ** -index) == pytest.approx(index, abs=0.03)
    assert tail_index(-np.log1p(-p)) == pytest.approx(0.0, abs=0.01)
    assert tail_index(p) == pytest.approx(-1.0, abs=0.01)
    assert tail_index(1e300 * (1.0 - p) ** -0.5) == pytest.approx(0.5, abs=0.02)
    assert tail_index(np.ones(100)) == tail_index(np.arange(5.0)) == 0.0


def test_tails_that_hide_their_weight_are_told_by_their_index() -> None:
    """The estimated kurtosis of laws that have none is small unless the largest points happen to be there."""
    rng = np.random.default_rng(0)

    def share(kernel: str, draw: Any, n_runs: int = 40) -> float:
        found = [estimate(SERIAL, draw(), None, kernel, complete=True, seed=0) for _ in range(n_runs)]
        return sum(flagged(each, "heavy tails") for each in found) / n_runs

    assert share("variance", lambda: rng.lognormal(0.0, 1.0, 1000)) > 0.9  # of 51 %
    assert share("variance", lambda: rng.standard_t(2.5, 2000)) > 0.8  # of 51 %, 66 % of whose intervals cover
    assert share("gini", lambda: rng.lognormal(0.0, 2.0, 2000)) > 0.8  # of 30 %
    assert share("gini", lambda: rng.lognormal(0.0, 1.0, 1000)) < 0.1  # 95 % cover
    assert share("variance", lambda: rng.normal(size=500)) == share("gini", lambda: rng.exponential(size=500)) == 0.0


def test_a_few_points_of_one_sample_hide_the_longest_tail() -> None:
    """Of normal points, n = 30, the intervals of 92 % (Gini) and 89 % (variance) cover."""
    rng = np.random.default_rng(0)
    for kernel, way in itertools.product(("gini", "variance"), ({"complete": True}, {"n_workers": 3})):
        assert flagged(estimate(SERIAL, rng.normal(size=30), None, kernel, seed=0, **way), "estimated from 30 points")
        enough = estimate(SERIAL, rng.normal(size=60), None, kernel, seed=0, complete=True)
        assert not flagged(enough, "estimated from")
    limited = estimate(SERIAL, bivariate(30), None, "kendall", kernel_options={"tau": "a"}, complete=True, seed=0)
    assert not flagged(limited, "estimated from")


SHARDS: dict[str, Any] = {
    "auc": "auc",
    "gini": "gini",
    "energy": "energy",
    "user": lambda a, b: np.abs(a - b.T),
}


@pytest.mark.parametrize("name", SHARDS)
def test_shards_that_differ_by_more_than_chance_are_told(comm: Any, name: str) -> None:
    """Every site shifts its scores by a constant of its own: local values agree, and are not the statistic of all."""
    rng = np.random.default_rng(0)
    sites = np.repeat(np.arange(10), 50)
    x, z = rng.normal(1.0, 1.0, 500), rng.normal(0.0, 1.0, 500)
    bounds = block_bounds(500, 10)
    own = [np.diff(bounds)[block_bounds(10, comm.size)[comm.rank] : block_bounds(10, comm.size)[comm.rank + 1]]] * 2

    def mine(rows: Floats) -> Floats:
        first, last = block_bounds(10, comm.size)[comm.rank : comm.rank + 2]
        return rows[bounds[first] : bounds[last]]

    options: dict[str, Any] = {"scheme": "as-is", "n_workers": 10, "block_sizes": own, "seed": 0}
    alike = estimate(comm, mine(x), mine(z), SHARDS[name], **options)
    assert not flagged(alike, "shards differ")
    shifted = estimate(comm, mine(x + 0.3 * sites), mine(z + 0.3 * sites), SHARDS[name], **options)
    assert flagged(shifted, "the shards differ by more than chance")


@pytest.mark.parametrize(("kernel", "options"), [("variance", {}), ("gini", {}), ("kendall", {"tau": "a"})])
def test_shards_on_both_sides_of_the_middle_are_told(kernel: str, options: dict[str, Any]) -> None:
    """Sorted data: projections of halves have the same means, and the halves' values are far from that of all."""
    way: dict[str, Any] = {"scheme": "as-is", "n_workers": 2, "block_sizes": [np.array([100, 100])], "seed": 0}
    for seed in range(10):
        points = bivariate(200, seed) if kernel == "kendall" else np.random.default_rng(seed).normal(size=200)
        in_order = points[np.argsort(points if points.ndim == 1 else points[:, 0])]
        lies = [estimate(SERIAL, each, None, kernel, kernel_options=options, **way) for each in (points, in_order)]
        assert [flagged(each, "shards differ") for each in lies] == [False, True]


def test_middle_ranks_are_scipys() -> None:
    from scipy.stats import rankdata

    values = np.random.default_rng(0).integers(0, 5, 30).astype(np.float64)
    assert np.array_equal(middle_ranks(values), rankdata(values) - 0.5)


def test_the_f_test_of_groups_is_scipys() -> None:
    from scipy.stats import f_oneway

    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=60), rng.integers(0, 4, 60)
    expected = f_oneway(*(values[groups == g] for g in range(4))).pvalue
    assert differ(values, groups) == pytest.approx(expected, rel=1e-10)
    assert differ(values, np.zeros(60, dtype=np.int64)) == differ(values, np.arange(60)) == 1.0
    assert differ(np.repeat([1.0, 2.0], 5), np.repeat([0, 1], 5)) == 0.0
    assert differ(np.full(30, 0.1), np.arange(30) // 10) == 1.0  # their mean is rounded to another number
    assert kurtosis(np.full(5, 3.0)) == 1.0


def test_a_plan_tells_how_uncertain_its_pilot_is() -> None:
    rng = np.random.default_rng(0)
    config = EstimateConfig(kernel="gini", n_workers=2, seed=0)
    light = choose(SERIAL, (rng.normal(size=3000), rng.normal(size=3000)), config)
    heavy = choose(SERIAL, (rng.lognormal(0.0, 1.5, 3000), rng.lognormal(0.0, 1.5, 3000)), config)
    assert light.flags == () and light.uncertainty is not None and 0.0 < light.uncertainty < 0.05
    assert any("heavy tails" in flag for flag in heavy.flags)
    assert heavy.uncertainty is not None and heavy.uncertainty > 2.0 * light.uncertainty
    assert heavy.summary()["flags"] == list(heavy.flags)


# ---------------------------------------------------------------------------------------------------------------------
# Ranges and exact bounds


@pytest.mark.parametrize("limits", [(0.0, math.inf), (-1.0, 1.0), UNIT, (0.0, 2.0)])
def test_no_interval_leaves_the_range_of_what_is_estimated(limits: tuple[float, float]) -> None:
    for value, variance in itertools.product((-0.1, 0.02, 0.5, 0.98), (1e-6, 1e-3, 10.0)):
        found = interval(value, variance, 0.95, limits=limits, method="wald")
        if found.lower is None or found.upper is None:
            assert value < limits[0] and found.note
        else:
            assert limits[0] <= found.lower <= found.upper <= limits[1]


def test_an_exact_bound_is_missed_with_at_most_the_probability_that_is_left() -> None:
    """Two points of each class, scores 0 or 1 with P(x = 1) = p and P(z = 0) = q: all values of U, by enumeration."""
    for p, q in itertools.product((0.3, 0.6, 0.9), repeat=2):
        theta = p * q
        perfect = {None: 0.0, 1: 0.0, 3: 0.0}  # by B
        for scores in itertools.product((0, 1), repeat=4):
            chance = math.prod(p if s else 1 - p for s in scores[:2]) * math.prod(1 - q if s else q for s in scores[2:])
            share = np.mean([x > z for x in scores[:2] for z in scores[2:]])
            for n_pairs in perfect:
                perfect[n_pairs] += chance * (float(share == 1.0) if n_pairs is None else float(share**n_pairs))
        for n_pairs, probability in perfect.items():
            disjoint = disjoint_tuples((1, 1), ((2,), (2,)), n_pairs)
            assert disjoint.number == 2
            for confidence in (0.5, 0.9, 0.95, 0.99):
                found = interval(1.0, None, confidence, limits=UNIT, disjoint=disjoint)
                assert (found.method, found.upper) == ("exact", 1.0) and found.lower is not None
                if found.lower > theta:  # the interval misses θ, whenever all pairs are won
                    assert probability <= (1.0 - confidence) * (1 + 1e-12)


def test_exact_bounds_are_those_of_independent_pairs() -> None:
    one = interval(1.0, 0.0, 0.95, limits=UNIT, disjoint=Disjoint(20))
    assert (one.lower, one.upper) == (pytest.approx(0.05 ** (1 / 20)), 1.0)
    none = interval(0.0, 0.0, 0.95, limits=UNIT, disjoint=Disjoint(20))
    assert (none.lower, none.upper) == (0.0, pytest.approx(1 - 0.05 ** (1 / 20)))
    tau = interval(-1.0, 0.0, 0.95, limits=(-1.0, 1.0), disjoint=Disjoint(20))
    assert (tau.lower, tau.upper) == (-1.0, pytest.approx(1 - 2 * 0.05 ** (1 / 20)))
    assert interval(0.5, 0.01, 0.95, limits=UNIT, disjoint=Disjoint(20)).method == "logit"
    assert interval(0.0, 0.0, 0.95, limits=(0.0, math.inf), disjoint=Disjoint(20)).method == "none"
    assert disjoint_tuples((1, 1), ((3, 2), (2, 5))) == (4, 1.0)
    assert disjoint_tuples((2,), ((5, 4),), 3) == (4, 1 - (1 / 2) ** 3)
    assert interval(1.0, 0.0, 0.95, limits=UNIT, disjoint=Disjoint(9, 1e-9)).lower == 0.0


@pytest.mark.parametrize("way", [{"complete": True}, {"n_workers": 4}, {"n_workers": 4, "n_pairs": 50}], ids=str)
def test_perfect_separation_gives_a_bound_and_no_warnings(comm: Any, way: dict[str, Any]) -> None:
    x, z = np.arange(100.0, 120.0), np.arange(30.0)
    for first, second, value in ((x, z, 1.0), (z, x, 0.0)):
        result = estimate(comm, shard(comm, first), shard(comm, second), "auc", seed=0, **way)
        assert result.value == value and result.flags == () and result.summary()["interval_method"] == "exact"
        bound = 0.05 ** (1 / 20)
        expected = (bound, 1.0) if value else (0.0, 1.0 - bound)
        assert result.interval == pytest.approx(expected, abs=2e-3)


def test_what_an_error_is_about_is_told() -> None:
    result = estimate(SERIAL, np.arange(9.0), np.arange(3.0, 9.0), "auc", complete=True)
    assert result.summary()["stderr_against"] == "population"


PROJECTED: dict[str, tuple[Any, tuple[Points, ...]]] = {
    "auc": (AUC(), (np.arange(9.0) % 5, np.arange(7.0) % 4)),
    "auc, strict": (AUC("strict"), (np.arange(9.0) % 5, np.arange(7.0) % 4)),
    "auc, columns": (AUC(columns=2), (bivariate(9), bivariate(7, 1))),
    "gini": (Gini(), (bivariate(9)[:, 0], bivariate(7, 1)[:, 0])),
    "product": (Product(), (bivariate(9), bivariate(7, 1))),
    "fmr": (FalseMatchRate(0.5), (bivariate(9), bivariate(7, 1))),
    "vus": (VUS(3), tuple(bivariate(6, k)[:, 0] + k for k in range(3))),
    "vus, strict ties": (VUS(4), tuple((np.arange(6.0) + 2 * k) % 7 for k in range(4))),
    "vus, shared ties": (VUS(3, "shared"), tuple((np.arange(6.0) + 2 * k) % 7 for k in range(3))),
    "vus, shared": (VUS(4, "shared"), tuple(bivariate(5, k)[:, 0] + k for k in range(4))),
    "gini of one": (OneSampleGini(), (bivariate(12)[:, 0],)),
    "variance": (Variance(), (bivariate(12)[:, 0],)),
    "tau-a": (Kendall("a"), (np.round(bivariate(12)),)),
    "tau-b": (Kendall("b"), (np.round(bivariate(12)),)),
    "fmr of one": (FalseMatchRate(0.5, one_sample=True), (bivariate(12),)),
}


@pytest.mark.parametrize("name", PROJECTED)
def test_projections_are_means_over_the_tuples_of_a_point(name: str) -> None:
    """Against the kernel's sums over single tuples, of points and others that are different ones for degree 2."""
    kernel, samples = PROJECTED[name]
    for k in range(len(samples)):
        points, others = samples[k], list(samples)
        if kernel.degrees == (2,):
            points, others = points[:5], [points[5:]]
        found = kernel.projections(k, points, others)
        for point, mean in zip(points, found, strict=True):
            choices = [others[0]] if kernel.degrees == (2,) else [o for j, o in enumerate(others) if j != k]
            values = []
            for chosen in itertools.product(*choices):
                rows = [point, *chosen] if kernel.degrees == (2,) else [*chosen[:k], point, *chosen[k:]]
                sums = kernel.tuple_sums(*(np.asarray(row)[None] for row in rows))
                values.append([part.total / kernel.scale for part in sums])
            assert mean == pytest.approx(np.mean(values, axis=0), rel=1e-12, abs=1e-15)


def test_projections_of_tied_scores_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, calls = VUS(4, "shared"), []
    whole = kernel.block_sums
    monkeypatch.setattr(kernel, "block_sums", lambda *blocks: calls.append(blocks) or whole(*blocks))
    points, others = np.arange(3000.0) % 7, [np.arange(5.0) + k for k in range(4)]
    found = kernel.projections(1, points, others)
    assert len(calls) == 7 and (found == found[:7][np.arange(3000) % 7]).all()


def test_estimates_of_many_blocks_are_joined_one_after_the_other() -> None:
    """Those of a thousand columns take 24 MB each."""
    rng = np.random.default_rng(2)
    estimates, dof = [rng.normal(size=(3, 200, 200)) for _ in range(20)], [(float(9 + k % 3),) for k in range(20)]
    tracemalloc.start()
    found = mean_by_dof(estimates, np.array(dof))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(np.average(estimates, axis=0, weights=[each for (each,) in dof]), rel=1e-12)
    assert peak < 3 * estimates[0].nbytes


def test_points_that_decide_are_counted_where_the_components_come_from() -> None:
    """Drawn with replacement, blocks have another average than the pilot, which here is all points, as complete has."""
    told = set()
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, z = np.where(rng.random(500) < 0.08, 0.0, 2.0), np.where(rng.random(200) < 0.08, 1.0, -1.0)
        whole = estimate(SERIAL, x, z, "auc", complete=True, seed=seed)
        drawn = estimate(SERIAL, x, z, "auc", scheme="prop-swr", n_workers=10, seed=seed)
        assert drawn.error is not None and drawn.error.method == "pilot"
        deciding = [[each for each in found.flags if "decide" in each] for found in (whole, drawn)]
        assert deciding[0] == deciding[1]
        told.add(bool(deciding[0]))
    assert told == {False, True}
