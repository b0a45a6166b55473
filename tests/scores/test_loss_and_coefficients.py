"""Losses over all pairs of scores and their derivatives, against double loops over the pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, shard

from mpi_ustat import SerialComm, UserError
from mpi_ustat.learning.losses import LOSSES
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.scores import loss_and_coefficients, pairs

Floats = NDArray[np.float64]
Phi = Callable[[Fraction], Fraction]

MARGIN = 0.75
POWERS: dict[str, tuple[Phi, Phi]] = {
    "hinge": (lambda u: max(Fraction(MARGIN) - u, Fraction()), lambda u: Fraction(-1 if u < Fraction(MARGIN) else 0)),
    "squared-hinge": (
        lambda u: max(Fraction(MARGIN) - u, Fraction()) ** 2,
        lambda u: -2 * max(Fraction(MARGIN) - u, Fraction()),
    ),
}
"""φ and φ' of a rational number."""


def logistic(u: float) -> tuple[float, float]:
    return math.log1p(math.exp(-u)), -1.0 / (1.0 + math.exp(u))


def data(n: int, decimals: int = 2) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Return scores with ties and margins hit exactly, labels 0 to 2, weights some of which are 0, and groups."""
    generator = np.random.default_rng(n)
    scores = np.round(generator.normal(size=n) * 2**decimals) / 2**decimals
    labels = generator.integers(0, 3, n).astype(float)
    weights = np.where(generator.random(n) < 0.2, 0.0, generator.exponential(size=n))
    return scores, labels, weights, generator.integers(0, 5, n)


def by_pairs(
    name: str, scores: Floats, labels: Floats, weights: Floats | None, groups: NDArray[np.int64] | None
) -> tuple[float, Floats]:
    """Return the loss and the coefficients of consecutive classes by a loop over all pairs."""
    exact = name in POWERS
    number: Callable[[Any], Any] = Fraction if exact else float
    w = [number(1 if weights is None else float(each)) for each in (scores if weights is None else weights)]
    total, coefficients = number(0), [number(0)] * len(scores)
    classes = sorted(set(labels.tolist()))
    for low, high in itertools.pairwise(classes):
        loss, n_pairs, slopes = number(0), number(0), [number(0)] * len(scores)
        for i in np.flatnonzero(labels == high):
            for j in np.flatnonzero(labels == low):
                if groups is not None and groups[i] != groups[j]:
                    continue
                u = number(float(scores[i])) - number(float(scores[j]))
                value, slope = (each(u) for each in POWERS[name]) if exact else logistic(u)
                both = w[i] * w[j]
                n_pairs += both
                loss += both * value
                slopes[i] += both * slope
                slopes[j] -= both * slope
        if n_pairs:
            total += loss / n_pairs
            coefficients = [c + slope / n_pairs for c, slope in zip(coefficients, slopes, strict=True)]
    return float(total), np.array([float(c) for c in coefficients])


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_against_all_pairs(
    comm: Any, monkeypatch: pytest.MonkeyPatch, loss: str, grouped: bool, weighted: bool, gathers: bool, spread: str
) -> None:
    monkeypatch.setattr(pairs, "MOST_GATHERED", 10**6 if gathers else 0)
    scores, labels, w, g = data(47)
    weights, groups = w if weighted else None, g if grouped else None
    told = {
        name: shard(comm, each, spread) for name, each in (("weights", weights), ("groups", groups)) if each is not None
    }
    found, own = loss_and_coefficients(
        comm, shard(comm, scores, spread), shard(comm, labels, spread), loss, margin=MARGIN, **told
    )
    expected, coefficients = by_pairs(loss, scores, labels, weights, groups)
    everyone = gather_rows(comm, own)
    exact = loss == "hinge" and not weighted
    assert found == pytest.approx(expected, rel=1e-14 if loss != "logistic" else 1e-12)
    assert everyone == pytest.approx(coefficients, rel=4e-16 if exact else 1e-12, abs=0.0 if exact else 1e-16)


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_same_bits_at_every_number_of_ranks(
    comm: Any, monkeypatch: pytest.MonkeyPatch, loss: str, grouped: bool, weighted: bool, gathers: bool
) -> None:
    scores, labels, w, g = data(700, decimals=40)
    scores[:3] = [1e9, -1e9, 1e-9]
    options = {name: each for name, each, given in (("weights", w, weighted), ("groups", g, grouped)) if given}
    whole = loss_and_coefficients(SerialComm(), scores, labels, loss, margin=0.3, **options)
    monkeypatch.setattr(pairs, "MOST_GATHERED", 10**6 if gathers else 0)
    own = [shard(comm, each, "uneven") for each in (scores, labels)]
    found = loss_and_coefficients(
        comm, *own, loss, margin=0.3, **{name: shard(comm, each, "uneven") for name, each in options.items()}
    )
    assert found[0] == whole[0]
    assert gather_rows(comm, found[1]).tobytes() == whole[1].tobytes()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_coefficients_are_the_derivatives_of_the_loss(loss: str) -> None:
    scores, labels, weights, groups = data(60, decimals=30)
    step = 1e-6
    found = loss_and_coefficients(SerialComm(), scores, labels, loss, weights=weights, groups=groups)[1]
    for i in range(0, 60, 7):
        moved = [
            loss_and_coefficients(
                SerialComm(), scores + d * (np.arange(60) == i), labels, loss, weights=weights, groups=groups
            )[0]
            for d in (step, -step)
        ]
        assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(found[i], abs=1e-8)


def test_points_far_from_zero_lose_nothing_but_what_their_scores_have_lost() -> None:
    scores, labels, _, _ = data(200)
    for loss in ("hinge", "squared-hinge"):
        here = loss_and_coefficients(SerialComm(), scores, labels, loss)
        far = loss_and_coefficients(SerialComm(), scores + 2.0**30, labels, loss)
        assert far[0] == here[0] and far[1].tobytes() == here[1].tobytes()


def test_weight_two_is_two_copies() -> None:
    scores, labels, _, groups = data(90)
    doubled = np.where(np.arange(90) % 3 == 0, 2, 1)
    for loss in LOSSES:
        for g in (None, groups):
            of_copies = None if g is None else np.repeat(g, doubled)
            weighted = loss_and_coefficients(SerialComm(), scores, labels, loss, weights=doubled, groups=g)
            copied = loss_and_coefficients(
                SerialComm(), np.repeat(scores, doubled), np.repeat(labels, doubled), loss, groups=of_copies
            )
            assert weighted[0] == pytest.approx(copied[0], rel=1e-13)
            assert np.repeat(weighted[1] / doubled, doubled) == pytest.approx(copied[1], rel=1e-12, abs=1e-17)


def test_long_runs_of_partners_are_cut_into_pieces() -> None:
    generator = np.random.default_rng(3)
    scores, labels, groups = generator.normal(size=3000), generator.integers(0, 2, 3000), generator.integers(0, 2, 3000)
    found = loss_and_coefficients(SerialComm(), scores, labels, "logistic", groups=groups)
    n_pairs = [np.sum((groups == g) & (labels == 1)) * np.sum((groups == g) & (labels == 0)) for g in (0, 1)]
    parts = [loss_and_coefficients(SerialComm(), scores[groups == g], labels[groups == g], "logistic") for g in (0, 1)]
    assert found[0] == pytest.approx(np.average([each[0] for each in parts], weights=n_pairs), rel=1e-13)
    for g in (0, 1):
        assert found[1][groups == g] * sum(n_pairs) / n_pairs[g] == pytest.approx(parts[g][1], rel=1e-11)


def test_one_point_of_a_class_and_no_pair_in_any_group(comm: Any) -> None:
    scores, labels = shard(comm, np.array([0.5, 0.0, 0.25])), shard(comm, np.array([1, 0, 0]))
    loss, own = loss_and_coefficients(comm, scores, labels)
    assert loss == 0.625 and gather_rows(comm, own).tolist() == [-1.0, 0.5, 0.5]
    loss, own = loss_and_coefficients(comm, scores, labels, groups=shard(comm, np.array([1, 2, 3])))
    assert loss == 0.0 and not own.any()


def test_a_score_that_is_not_finite_makes_all_nan(comm: Any) -> None:
    for loss in LOSSES:
        scores = shard(comm, np.array([0.5, math.nan, 0.25, 1.0]))
        found, own = loss_and_coefficients(comm, scores, shard(comm, np.array([1, 0, 0, 1])), loss)
        assert math.isnan(found) and np.isnan(own).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labels": [1, 1, 1]}, r"the labels have 1 different value"),
        ({"labels": [1, 0]}, r"the labels \(2,\): give one of each"),
        ({"labels": ["a", "b", "a"]}, "labels must be numbers"),
        ({"weights": [1, -1, 1]}, "weights must be finite and not negative"),
        ({"groups": ["a", "", "b"]}, "the groups has empty cells"),
        ({"pairings": [(0, 2)]}, "pairs of different numbers below 2"),
        ({"loss": "log"}, "there is no loss 'log'"),
    ],
)
def test_what_can_not_be_used_is_refused(options: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"scores": [0.0, 1.0, 2.0], "labels": [0, 1, 1]} | options
    with pytest.raises(UserError, match=sentence):
        loss_and_coefficients(SerialComm(), **given)
