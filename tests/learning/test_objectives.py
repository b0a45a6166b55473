"""Pair losses and their gradients, against finite differences and against all pairs one by one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.learning.losses import LOSSES
from mpi_ustat.learning.objectives import (
    LinearRanking,
    Mahalanobis,
    PairObjective,
    consecutive_pairings,
)
from mpi_ustat.learning.user_objectives import checked, make_objective

Array = NDArray[np.float64]


class Absolute(PairObjective):
    """h = |w·(x - z) - v|, with parameters (w, v)."""

    name = "absolute"

    def n_parameters(self, n_columns: int) -> int:
        return n_columns + 1

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        residual = (x - z) @ parameters[:-1] - parameters[-1]
        sign = np.sign(residual)
        return float(np.abs(residual).sum()), np.append(sign @ (x - z), -sign.sum())


OBJECTIVES: dict[str, Callable[[], PairObjective]] = {
    **{loss: partial(LinearRanking, loss) for loss in LOSSES},
    "wide margin": lambda: LinearRanking("squared-hinge", margin=2.5),
    "mahalanobis": Mahalanobis,
    "mahalanobis, rank 2": lambda: Mahalanobis(threshold=1.5, rank=2),
    "user's": Absolute,
    "user's, checked": lambda: checked(Absolute()),
}
every_objective = pytest.mark.parametrize("make", OBJECTIVES.values(), ids=OBJECTIVES.keys())


def points(rng: np.random.Generator, *shape: int) -> Array:
    """Return random points whose last column is also fit for a class."""
    found = rng.normal(size=shape)
    found[..., -1] = rng.integers(0, 2, size=shape[:-1])
    return found


def parameters_of(objective: PairObjective, rng: np.random.Generator, n_columns: int) -> Array:
    return objective.initial(rng.normal(size=objective.n_parameters(n_columns)))


def all_pairs(x: Array, z: Array) -> tuple[Array, Array]:
    return np.repeat(x, len(z), axis=0), np.tile(z, (len(x), 1))


def phi(loss: str, u: float, margin: float) -> tuple[float, float]:
    """Return φ(u) and φ'(u)."""
    if loss == "logistic":
        return math.log1p(math.exp(-u)), -1.0 / (1.0 + math.exp(u))
    short = max(0.0, margin - u)
    return (short, -1.0 if u < margin else 0.0) if loss == "hinge" else (short**2, -2.0 * short)


def one_by_one(objective: LinearRanking, w: Array, x: Array, z: Array) -> tuple[float, Array]:
    """Return loss and gradient over all pairs by their definition."""
    loss, gradient = [], np.zeros(len(w))
    for a in x:
        for b in z:
            value, slope = phi(objective.loss, float(w @ (a - b)), objective.margin)
            loss.append(value)
            gradient += slope * (a - b)
    return math.fsum(loss), gradient


# --- gradients


@every_objective
def test_the_gradient_is_the_derivative_of_the_loss(make: Callable[[], PairObjective]) -> None:
    rng = np.random.default_rng(1)
    objective = make()
    x, z = points(rng, 30, 4), points(rng, 30, 4)  # no pair is within 1e-6 of a kink
    theta = parameters_of(objective, rng, 4)
    _, gradient = objective.pairs(theta, x, z)
    assert gradient.shape == (objective.n_parameters(4),)
    for j, step in enumerate(1e-6 * np.eye(len(theta))):
        slope = (objective.pairs(theta + step, x, z)[0] - objective.pairs(theta - step, x, z)[0]) / 2e-6
        assert gradient[j] == pytest.approx(slope, rel=1e-6, abs=1e-6)


@every_objective
@pytest.mark.parametrize(("n", "m"), [(7, 5), (1, 1), (70, 130), (0, 3), (3, 0)])
def test_a_block_is_the_sum_over_all_its_pairs(make: Callable[[], PairObjective], n: int, m: int) -> None:
    rng = np.random.default_rng(2)
    objective = make()
    x, z = points(rng, n, 4), points(rng, m, 4)
    theta = parameters_of(objective, rng, 4)
    loss, gradient = objective.block(theta, x, z)
    expected_loss, expected = objective.pairs(theta, *all_pairs(x, z))
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-11 * (1 + n * m))


@pytest.mark.parametrize("loss", LOSSES)
def test_pairs_and_block_follow_the_definition(loss: str) -> None:
    rng = np.random.default_rng(3)
    objective = LinearRanking(loss, margin=0.75)
    w, x, z = rng.normal(size=3), rng.normal(size=(6, 3)), rng.normal(size=(9, 3))
    expected_loss, expected = one_by_one(objective, w, x, z)
    for found_loss, found in (objective.block(w, x, z), objective.pairs(w, *all_pairs(x, z))):
        assert found_loss == pytest.approx(expected_loss, rel=1e-13)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(
    x=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12),
    z=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12),
    w=st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
    loss=st.sampled_from(["hinge", "squared-hinge"]),
)
def test_ties_and_kinks_are_treated_alike_and_exactly(
    x: list[tuple[int, int]], z: list[tuple[int, int]], w: tuple[int, int], loss: str
) -> None:
    objective = LinearRanking(loss)
    rows, columns, theta = np.array(x, dtype=float), np.array(z, dtype=float), np.array(w, dtype=float)
    expected_loss, expected = one_by_one(objective, theta, rows, columns)
    a, b = all_pairs(rows, columns)
    for found_loss, found in (objective.block(theta, rows, columns), objective.pairs(theta, a, b)):
        assert found_loss == expected_loss
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(objective.gradients(theta, a[None].copy(), b[None].copy())[0], expected)


def test_the_first_steps_of_a_worked_example() -> None:
    x, z = np.tile([3.0, 0.0], (4, 1)), np.tile([1.0, 1.0], (4, 1))
    objective = make_objective("linear", loss="hinge")
    w, v, seen = np.zeros(2), np.zeros(2), {}
    for t in range(1, 21):
        gradient = objective.block(w, x, z)[1] / 16
        if t == 1:
            np.testing.assert_array_equal(gradient, [-2.0, 1.0])
        v = 0.9 * v + gradient
        w = w - v / 1024
        seen[t] = w
    np.testing.assert_array_equal(seen[1], [0.001953125, -0.0009765625])
    np.testing.assert_allclose(seen[20], [0.236214646314749, -0.118107323157374], rtol=1e-13)


# --- workers


@every_objective
@pytest.mark.parametrize(("batch", "n_columns"), [(100, 10), (1, 4), (7, 3), (33, 2)])
def test_a_worker_has_the_same_bits_among_any_others(
    make: Callable[[], PairObjective], batch: int, n_columns: int
) -> None:
    rng = np.random.default_rng(4)
    objective = make()
    if getattr(objective, "rank", None) == 2 and n_columns == 2:
        pytest.skip("a rank above the number of coordinates")
    x, z = points(rng, 50, batch, n_columns), points(rng, 50, batch, n_columns)
    theta = parameters_of(objective, rng, n_columns)
    together = objective.gradients(theta, x.copy(), z.copy())
    for i in range(50):
        alone = objective.pairs(theta, x[i], z[i])[1]
        np.testing.assert_allclose(together[i], alone, rtol=1e-11, atol=1e-11)
    for hosted in (1, 2, 3):
        for i in range(0, 50, hosted):
            part = objective.gradients(theta, x[i : i + hosted].copy(), z[i : i + hosted].copy())
            np.testing.assert_array_equal(part, together[i : i + hosted])


@every_objective
def test_pairs_and_block_leave_their_points_alone_and_no_worker_is_fine(make: Callable[[], PairObjective]) -> None:
    rng = np.random.default_rng(5)
    objective = make()
    x, z = points(rng, 8, 4), points(rng, 8, 4)
    theta = parameters_of(objective, rng, 4)
    kept = x.copy(), z.copy(), theta.copy()
    objective.pairs(theta, x, z)
    objective.block(theta, x, z)
    for before, after in zip(kept, (x, z, theta), strict=True):
        np.testing.assert_array_equal(before, after)
    assert objective.gradients(theta, np.empty((0, 8, 4)), np.empty((0, 8, 4))).shape == (0, len(theta))


def test_a_row_has_the_same_score_among_any_others() -> None:
    rng = np.random.default_rng(6)
    rows, w = rng.normal(size=(101, 9)), rng.normal(size=9)
    scores = LinearRanking().scores(w, rows)
    for start, stop in ((0, 1), (3, 50), (100, 101)):
        np.testing.assert_array_equal(LinearRanking().scores(w, rows[start:stop]), scores[start:stop])


# --- losses of scores

scores = st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(min_value=-1e6, max_value=1e6)), max_size=15).map(
    lambda values: np.array(values, dtype=np.float64)
)


@settings(max_examples=200)
@given(
    positive=scores, negative=scores, loss=st.sampled_from(["hinge", "squared-hinge"]), margin=st.sampled_from([1, 0.3])
)
def test_the_loss_of_sorted_scores_is_that_of_all_pairs(
    positive: Array, negative: Array, loss: str, margin: float
) -> None:
    power = 1 if loss == "hinge" else 2
    expected = sum(
        (max(Fraction(0), Fraction(margin) - Fraction(s) + Fraction(t)) ** power for s in positive for t in negative),
        Fraction(0),
    )
    found = LinearRanking(loss, margin).scored_loss(positive, negative)
    # A score less a median and the margin is rounded, by half a unit in the last place of 2e6.
    rounding = 1e-9 * len(positive) * len(negative)
    slack = rounding if power == 1 else 2 * math.sqrt(rounding * rounding * float(expected) + 1e-30) + rounding**2
    assert found == pytest.approx(float(expected), rel=1e-12, abs=slack)


@pytest.mark.parametrize("margin", [1.0, 0.3])  # 0.3 is rounded away beside the offset
@pytest.mark.parametrize("offset", [0.0, 2.0**40, -(2.0**40)])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge"])
def test_scores_and_columns_far_from_0_lose_nothing(loss: str, offset: float, margin: float) -> None:
    rng = np.random.default_rng(7)
    grid = 2.0**-10  # exact beside the offset
    x, z = (np.round(rng.normal(size=(n, 2)) / grid) * grid for n in (40, 60))
    w = np.array([1.0, -0.5])
    objective = LinearRanking(loss, margin)
    expected_loss, expected = one_by_one(objective, w, x, z)
    found_loss, found = objective.block(w, x + offset, z + offset)
    assert found_loss == pytest.approx(expected_loss, rel=1e-13)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    scored = objective.scored_loss(x @ w + offset, z @ w + offset)
    assert scored == pytest.approx(expected_loss, rel=1e-13)


def test_one_far_score_does_not_drown_the_others() -> None:
    positive, negative = np.array([0.25, 1e17]), np.array([0.5, 0.125, -1e17])
    assert LinearRanking().scored_loss(positive, negative) == 1.25 + 0.875


def test_the_logistic_loss_holds_at_both_ends() -> None:
    objective = LinearRanking("logistic")
    w = np.array([1.0])
    with np.errstate(all="raise", under="ignore"):
        for u, loss, slope in ((1000.0, 0.0, 0.0), (-1000.0, 1000.0, -1.0), (0.0, math.log(2), -0.5)):
            x, z = np.array([[u]]), np.array([[0.0]])
            for found_loss, found in (objective.pairs(w, x, z), objective.block(w, x, z)):
                assert found_loss == loss
                assert found[0] == pytest.approx(slope * u, abs=1e-300)
        x = np.array([[40.0]])
        assert objective.pairs(w, x, 0 * x)[0] == pytest.approx(math.exp(-40.0), rel=1e-15)
        assert objective.pairs(w, x, 0 * x)[1][0] == pytest.approx(-40.0 * math.exp(-40.0), rel=1e-14)
    assert objective.scored_loss(np.array([1.0]), np.array([0.0])) is None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_not_finite_shows(loss: str) -> None:
    objective = LinearRanking(loss)
    w, x, z = np.array([math.nan, 1.0]), np.ones((3, 2)), np.zeros((3, 2))
    for found, gradient in (objective.pairs(w, x, z), objective.block(w, x, z)):
        assert math.isnan(found) and np.isnan(gradient).all()
    assert np.isnan(objective.gradients(w, x[None], z[None])).all()
    if loss != "logistic":
        assert math.isnan(objective.scored_loss(np.array([1.0, math.inf]), np.array([0.0])) or 0.0)


# --- metric learning


def test_the_metric_loss_of_two_points() -> None:
    objective = Mahalanobis()
    theta = objective.initial(np.zeros(4))
    np.testing.assert_array_equal(theta, [1.0, 0.0, 0.0, 1.0])
    x, same, other = np.array([[0.0, 0.0, 7.0]]), np.array([[1.0, 2.0, 7.0]]), np.array([[1.0, 1.0, 3.0]])
    loss, gradient = objective.pairs(theta, x, same)
    assert loss == 1.0 + (5.0 - 2.0)
    np.testing.assert_array_equal(gradient, [2.0, 4.0, 4.0, 8.0])
    loss, gradient = objective.pairs(theta, x, other)
    assert loss == 1.0 - (2.0 - 2.0)
    np.testing.assert_array_equal(gradient, [-2.0, -2.0, -2.0, -2.0])
    assert objective.pairs(theta, x, x)[0] == 0.0
    near = objective.pairs(theta, x, np.array([[1.0, 0.0, 7.0]]))  # at the kink
    assert near[0] == 0.0 and not near[1].any()
    assert objective.scores(theta, x) is None


def test_a_metric_of_low_rank_starts_from_a_projection() -> None:
    objective = Mahalanobis(rank=2)
    assert objective.n_parameters(4) == 6
    np.testing.assert_array_equal(objective.initial(np.zeros(6)).reshape(2, 3), np.eye(2, 3))
    assert not np.array_equal(objective.initial(np.ones(6)), objective.initial(np.zeros(6)))


# --- several classes


def test_consecutive_classes_are_paired_the_higher_first() -> None:
    assert consecutive_pairings(2) == [(1, 0)]
    assert consecutive_pairings(4) == [(1, 0), (2, 1), (3, 2)]
    with pytest.raises(UserError, match="at least 2"):
        consecutive_pairings(1)


# --- users' objectives


class Reusing(Absolute):
    """Returns the same array each time."""

    def __init__(self) -> None:
        self.buffer = np.empty(5)

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        loss, self.buffer[:] = super().pairs(parameters, x, z)
        return loss, self.buffer


@pytest.mark.parametrize("objective", [Reusing(), checked(Reusing())])
def test_an_objective_may_reuse_its_array(objective: PairObjective) -> None:
    rng = np.random.default_rng(8)
    theta, x, z = rng.normal(size=5), rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 6, 4))
    for i, found in enumerate(objective.gradients(theta, x, z)):
        np.testing.assert_array_equal(found, Absolute().pairs(theta, x[i], z[i])[1])


class Whole:
    """Has every method, and is no PairObjective."""

    name = "whole"

    def __init__(self) -> None:
        self._inner = LinearRanking("squared-hinge")

    def __getattr__(self, method: str) -> Any:
        return getattr(self._inner, method)


def test_an_objective_of_ones_own_keeps_its_faster_methods() -> None:
    rng = np.random.default_rng(9)
    w, x, z = rng.normal(size=3), rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    own, wrapped = LinearRanking("squared-hinge"), make_objective(Whole())
    assert wrapped.name == "whole" and wrapped.n_parameters(3) == 3
    s, t = own.scores(w, x), own.scores(w, z)
    np.testing.assert_array_equal(wrapped.scores(w, x), s)
    assert wrapped.scored_loss(s, t) == own.scored_loss(s, t)
    assert wrapped.block(w, x, z)[0] == own.block(w, x, z)[0]
    np.testing.assert_array_equal(
        wrapped.gradients(w, x[None].copy(), z[None, :4].copy()), own.gradients(w, x[None].copy(), z[None, :4].copy())
    )


def test_objectives_are_found_by_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_objectives.py").write_text(
        "class Pairs:\n"
        "    def n_parameters(self, n_columns): return 1\n"
        "    def pairs(self, parameters, x, z): return 1.0 * len(x), parameters * 0 + len(x)\n"
        "class Needs(Pairs):\n"
        "    def __init__(self, more): pass\n"
        "made = Pairs()\n"
        "def function(parameters, x, z): return 0.0, 0 * parameters\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        for path in ("mine_objectives:Pairs", "mine_objectives:made"):
            found = make_objective(path)
            assert found.name == path and found.n_parameters(5) == 1
            loss, gradient = found.block(np.ones(1), np.ones((70, 5)), np.ones((3, 5)))
            assert (loss, gradient.tolist()) == (210.0, [210.0])
            assert found.scores(np.ones(1), np.ones((2, 5))) is None
            assert found.scored_loss(np.ones(1), np.ones(1)) is None
            assert found.initial(np.ones(1)).tolist() == [1.0]
        function = make_objective("mine_objectives:function")
        assert function.n_parameters(4) == 4
        assert function.pairs(np.ones(4), np.ones((2, 4)), np.ones((2, 4)))[1].tolist() == [0.0] * 4
        for name, message in (("Needs", "can't be made"), ("number", "no method"), ("absent", "can't be imported")):
            with pytest.raises(UserError, match=message):
                make_objective(f"mine_objectives:{name}")
    finally:
        sys.modules.pop("mine_objectives", None)
    linear = make_objective("linear", loss="logistic")
    assert isinstance(linear, LinearRanking) and linear.loss == "logistic"
    assert make_objective(linear) is linear
    assert isinstance(make_objective("mahalanobis"), Mahalanobis)
    wrapped = make_objective(Absolute())
    assert checked(wrapped) is wrapped


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearRanking("huber"), "no loss 'huber'"),
        (lambda: LinearRanking(margin=0.0), "margin"),
        (lambda: LinearRanking(margin=math.inf), "margin"),
        (lambda: Mahalanobis(threshold=0.5), "threshold"),
        (lambda: Mahalanobis(rank=0), "rank"),
        (lambda: Mahalanobis().n_parameters(1), "class"),
        (lambda: Mahalanobis(rank=3).n_parameters(3), "at most 2"),
        (lambda: make_objective("liner"), "no objective 'liner'"),
        (lambda: make_objective("no.such.module:f"), "can't be imported"),
        (lambda: make_objective(3), "no method n_parameters"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (1.0, "summed loss, gradient"),
        ((1.0, np.zeros(3)), r"bad returned shape \(3,\) instead of \(2,\)"),
        ((np.zeros(4), np.zeros(2)), "the loss"),
        ((math.nan, np.zeros(2)), "not finite"),
        ((1.0, np.array([0.0, math.inf])), "not finite"),
        ((1.0, "no"), "returned text"),
    ],
)
def test_wrong_returns_of_an_objective_are_named(returned: object, message: str) -> None:
    class Bad:
        name = "bad"

        def n_parameters(self, n_columns: int) -> int:
            return 2

        def pairs(self, parameters: Array, x: Array, z: Array) -> object:
            return returned

    objective, theta, x = make_objective(Bad()), np.zeros(2), np.zeros((4, 2))
    for call in (
        lambda: objective.pairs(theta, x, x),
        lambda: objective.block(theta, x, x),
        lambda: objective.gradients(theta, x[None], x[None]),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_wrong_returns_of_the_other_methods_are_named() -> None:
    class Bad(Absolute):
        name = "bad"

        def n_parameters(self, n_columns: int) -> int:
            return 0

        def scores(self, parameters: Array, rows: Array) -> Array:
            return np.zeros(len(rows) + 1)

        def gradients(self, parameters: Array, x: Array, z: Array) -> Array:
            return np.zeros(2)

        def initial(self, normals: Array) -> Array:
            return np.zeros(1)

        def scored_loss(self, positive: Array, negative: Array) -> float:
            return math.nan

    objective, theta, x = make_objective(Bad()), np.zeros(3), np.zeros((1, 4, 2))
    for call in (
        lambda: objective.n_parameters(2),
        lambda: objective.scores(theta, x[0]),
        lambda: objective.gradients(theta, x, x),
        lambda: objective.initial(theta),
        lambda: objective.scored_loss(theta, theta),
    ):
        with pytest.raises(UserError, match="the objective bad"):
            call()


def test_parameters_that_are_not_finite_are_left_to_the_caller() -> None:
    objective = checked(Absolute())
    loss, _ = objective.pairs(np.array([math.nan, 0.0]), np.ones((2, 1)), np.zeros((2, 1)))
    assert math.isnan(loss)
