"""Statistics of arrays and columns: what they take, that they are those of the library, and that ranks don't matter."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpi_ustat
from mpi_ustat.errors import UserError

RNG = np.random.default_rng(7)
N = 241
Y = RNG.integers(0, 2, N)
SCORE = np.round(Y + RNG.normal(size=N), 1)  # with ties
OTHER = np.round(0.5 * Y + RNG.normal(size=N), 1)
LABELS = np.array(["dog", "cat"])[Y]
CLASS = np.array(["low", "mid", "high"])[RNG.integers(0, 3, N)]
GROUP = np.array([f"g{j}" for j in RNG.integers(0, 9, N)])
WEIGHT = RNG.integers(1, 4, N)
OWN = slice(0, 20)
TIME, EVENT = RNG.exponential(size=N) + 0.01, RNG.integers(0, 2, N)


def columns(kind: str) -> dict[str, Any]:
    """Return the same labels and scores as columns of a library's frame."""
    given = {"label": LABELS, "new": SCORE, "old": OTHER}
    if kind == "numpy":
        return {**given, "both": np.column_stack([SCORE, OTHER])}
    if kind == "list":
        return {name: each.tolist() for name, each in given.items()} | {"both": {"new": SCORE, "old": list(OTHER)}}
    module = importlib.import_module(pytest.importorskip(kind).__name__)
    frame = module.table(given) if kind == "pyarrow" else module.DataFrame(given)
    some = frame.select(["new", "old"]) if hasattr(frame, "select") else frame[["new", "old"]]
    return {name: frame[name] for name in given} | {"both": some}


@pytest.mark.parametrize("kind", ["numpy", "list", "pandas", "polars", "pyarrow"])
def test_columns_of_all_kinds_give_the_same(kind: str) -> None:
    given = columns(kind)
    higher = (SCORE[Y == 1][:, None] > SCORE[Y == 0]).mean() + 0.5 * (SCORE[Y == 1][:, None] == SCORE[Y == 0]).mean()

    found = mpi_ustat.auc(given["label"], given["new"], pos_label="cat")
    compared = mpi_ustat.compare_auc(given["label"], given["both"], pos_label="cat")

    assert found.value == pytest.approx(higher, abs=1e-15)
    assert compared.values.tolist() == [found.value, mpi_ustat.auc(LABELS, OTHER, pos_label="cat").value]
    assert compared.names == (("score 0", "score 1") if kind == "numpy" else ("new", "old"))
    assert mpi_ustat.auc(given["label"], given["new"], pos_label="dog").value == pytest.approx(1.0 - higher, abs=1e-15)
    if kind in ("pandas", "polars"):
        assert str(found).startswith("AUC of new: ")


def test_statistics_are_those_of_the_library() -> None:
    comm, of = mpi_ustat.SerialComm(), [Y == 1, Y == 0]

    found = mpi_ustat.auc(Y, SCORE, sample_weight=WEIGHT, clusters=GROUP, null=0.7)
    known = mpi_ustat.estimate(
        comm,
        *(SCORE[each] for each in of),
        "auc",
        complete=True,
        weights=[WEIGHT[each] for each in of],
        clusters=[GROUP[each] for each in of],
    )
    assert (found.value, found.stderr, found.interval) == (known.value, known.stderr, known.interval)
    (test,) = known.tests(0.7)
    assert test is not None
    assert (found.null, found.z, found.p) == (0.7, test.z, test.p)

    rows, both = np.column_stack([TIME, EVENT, SCORE]), np.column_stack([SCORE, OTHER])
    for one, kernel, points, options in (
        (mpi_ustat.concordance(TIME, EVENT, SCORE, horizon=2.0), "concordance", rows, {"horizon": 2.0}),
        (mpi_ustat.kendall(SCORE, OTHER, tau="a"), "kendall", both, {"tau": "a"}),
        (mpi_ustat.gini(SCORE), "gini", SCORE, {}),
        (mpi_ustat.variance(SCORE), "variance", SCORE, {}),
    ):
        known = mpi_ustat.estimate(comm, points, None, kernel, complete=True, kernel_options=options, seed=0)
        assert (one.value, one.stderr, one.interval) == (known.value, known.stderr, known.interval), kernel


STATISTICS: dict[str, Callable[..., Any]] = {
    "auc": lambda of, comm: mpi_ustat.auc(LABELS[of], SCORE[of], pos_label="cat", comm=comm),
    "auc of groups": lambda of, comm: mpi_ustat.auc(
        Y[of], SCORE[of], groups=GROUP[of], sample_weight=WEIGHT[of], comm=comm
    ),
    "compare_auc": lambda of, comm: mpi_ustat.compare_auc(Y[of], {"a": SCORE[of], "b": OTHER[of]}, comm=comm),
    "multiclass_auc": lambda of, comm: mpi_ustat.multiclass_auc(
        CLASS[of], np.column_stack([SCORE, OTHER, -SCORE])[of], comm=comm
    ),
    "vus": lambda of, comm: mpi_ustat.vus(CLASS[of], SCORE[of], classes=["low", "mid", "high"], comm=comm),
    "concordance": lambda of, comm: mpi_ustat.concordance(TIME[of], EVENT[of], SCORE[of], comm=comm),
    "kendall": lambda of, comm: mpi_ustat.kendall(SCORE[of], OTHER[of], comm=comm),
    "variance": lambda of, comm: mpi_ustat.variance(SCORE[of], comm=comm),
    "energy_distance": lambda of, comm: mpi_ustat.energy_distance(SCORE[of], OTHER[of], comm=comm),
    "mmd_test": lambda of, comm: mpi_ustat.mmd_test(
        SCORE[of], OTHER[of], n_permutations=99, n_rounds=3, seed=1, comm=comm
    ),
    "energy_test": lambda of, comm: mpi_ustat.energy_test(
        SCORE[of], OTHER[of], OTHER[of] + 1, n_permutations=99, seed=1, comm=comm
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_shards_give_the_bits_of_one_process(comm: Any, name: str) -> None:
    bounds = [*[0, 0, 5, 130][: comm.size], N]  # the first of several ranks has no rows, the second few
    own = slice(bounds[comm.rank], bounds[comm.rank + 1])

    found, known = STATISTICS[name](own, comm), STATISTICS[name](slice(None), None)

    apart = ["seconds", "bytes_moved", "complete_bytes_moved", "config", "kind", "provenance"]
    apart += ["groups", "scales"] * (comm.rank > 0)  # the table of groups is on rank 0
    assert {key: each for key, each in found.to_dict().items() if key not in apart} == {
        key: each for key, each in known.to_dict().items() if key not in apart
    }
    assert str(found) == str(known)


def test_a_mistake_on_one_rank_is_told_on_all(comm: Any) -> None:
    rows = slice(comm.rank * 50, comm.rank * 50 + 50)
    score = SCORE[rows].copy()
    if comm.rank == comm.size - 1:
        score[3] = np.nan
    with pytest.raises(UserError) as told:
        mpi_ustat.auc(Y[rows], score, comm=comm)
    assert (
        str(told.value)
        == f"row {50 * (comm.size - 1) + 3} of score, counted from 0, holds NaN: remove or fill in that row"
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mpi_ustat.auc(Y, SCORE[1:]), r"y has 241, score has 240\): give each a value for every point"),
        (lambda: mpi_ustat.auc(Y, GROUP), "score holds text: pass real numbers"),
        (lambda: mpi_ustat.auc(np.ones(N), SCORE), "y has one value only, 1: two classes are needed"),
        (lambda: mpi_ustat.auc([], []), "y has no rows"),
        (lambda: mpi_ustat.auc(LABELS, SCORE), "y has the values 'cat', 'dog': say with pos_label="),
        (lambda: mpi_ustat.auc(CLASS, SCORE), "say with pos_label= which one is positive, against all others"),
        (lambda: mpi_ustat.auc(Y, SCORE, pos_label=3), "y has the values 0, 1, not 3: give one of them as pos_label="),
        (lambda: mpi_ustat.auc([0, None, 1], [1, 2, 3]), "row 1 of y, counted from 0, holds no value"),
        (lambda: mpi_ustat.auc(Y, np.ma.masked_less(SCORE, 0)), "score has masked values"),
        (lambda: mpi_ustat.auc(Y, np.column_stack([SCORE, OTHER])), "score has 2 columns: choose one of them"),
        (lambda: mpi_ustat.auc(Y, 3.0), "score has 0 dimensions"),
        (lambda: mpi_ustat.auc(Y, SCORE + 1j), "score holds complex numbers"),
        (lambda: mpi_ustat.auc(Y, SCORE, sample_weight=-WEIGHT), "row 0 of sample_weight, counted from 0, holds -"),
        (lambda: mpi_ustat.compare_auc(Y, SCORE), r"give two or more to compare, or use auc\(\)"),
        (lambda: mpi_ustat.vus(CLASS, SCORE), "say their order with classes=, the lowest first"),
        (lambda: mpi_ustat.vus(CLASS, SCORE, classes=["low", "top"]), "not 'top': give some of them as classes="),
        (lambda: mpi_ustat.energy_test({"a": SCORE, "b": SCORE}, {"a": SCORE, "c": SCORE}), "give them the same"),
        (lambda: mpi_ustat.energy_test(SCORE, OTHER, SCORE, n_rounds=2), "a test of two samples, not of 3: leave it"),
        (
            lambda: mpi_ustat.auc(Y, iter(SCORE)),
            "score is of the type iterator, whose rows can't be counted: pass a li",
        ),
        (lambda: mpi_ustat.compare_auc(Y, {"a": SCORE, "b": map(float, SCORE)}), "scores is of the type map, whose"),
        (lambda: mpi_ustat.auc({*Y}, SCORE), "y is of the type set, whose rows can't be counted: pass a list"),
        (lambda: mpi_ustat.save(3, "x.h5"), "this is a int and no result"),
    ],
)
def test_mistakes_are_told_in_a_sentence(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as told:
        call()
    assert "\n" not in str(told.value)


@pytest.mark.filterwarnings("error")
def test_a_lazy_frame_is_to_be_collected() -> None:
    lazy = pytest.importorskip("polars").DataFrame({"new": SCORE, "old": OTHER}).lazy()
    with pytest.raises(
        UserError, match=r"scores is of the type LazyFrame, which is not computed yet: pass what its collect\(\)"
    ):
        mpi_ustat.compare_auc(Y, lazy)


def test_nullable_and_categorical_columns() -> None:
    pandas = pytest.importorskip("pandas")
    score, label = pandas.Series(SCORE).astype("Float64"), pandas.Series(LABELS).astype("category")
    assert mpi_ustat.auc(label, score, pos_label="cat").value == mpi_ustat.auc(Y, SCORE).value
    with pytest.raises(UserError, match="row 4 of score, counted from 0, holds"):
        mpi_ustat.auc(label, score.where(score.index != 4), pos_label="cat")


@pytest.mark.parametrize("module", ["api.labelled", "api.of_one_sample", "api.of_laws", "inference.rounded"])
def test_examples_of_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"mpi_ustat.{module}"))
    assert found.attempted > 0 and found.failed == 0


def test_differences_and_their_common_test_are_those_of_the_library() -> None:
    both = np.column_stack([SCORE, OTHER, SCORE + OTHER])
    found = mpi_ustat.compare_auc(Y, {"new": SCORE, "old": OTHER, "sum": SCORE + OTHER})
    known = mpi_ustat.estimate(mpi_ustat.SerialComm(), both[Y == 1], both[Y == 0], "auc", columns=list("abc"), seed=0)
    for own, each in zip(found.differences, known.differences(), strict=True):
        assert each.test is not None
        assert (own["value"], own["stderr"], own["p"]) == (each.value, each.stderr, each.test.p)
        assert (own["lower"], own["upper"]) == (each.interval.lower, each.interval.upper)
    omnibus = known.omnibus()
    assert omnibus is not None and found.p_all_equal == omnibus.p


DIFFERENT: dict[str, Callable[[Any, int], object]] = {
    "ties": lambda comm, rank: mpi_ustat.auc(Y[OWN], SCORE[OWN], ties="strict" if rank else "half", comm=comm),
    "confidence": lambda comm, rank: mpi_ustat.auc(Y[OWN], SCORE[OWN], confidence=0.9 + 0.05 * (rank > 0), comm=comm),
    "n_permutations": lambda comm, rank: mpi_ustat.test(
        comm, SCORE[OWN], SCORE[OWN], "energy", n_permutations=99 + rank, seed=1
    ),
    "learning_rate": lambda comm, rank: mpi_ustat.learn(
        comm, SCORE[OWN, None], SCORE[OWN, None], iterations=2, learning_rate=0.1 + rank, n_workers=1
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_options_that_differ_between_ranks_are_refused_on_all(comm: Any, name: str) -> None:
    if comm.size == 1:
        DIFFERENT[name](comm, 0)
        return
    with pytest.raises(UserError, match=f"{name} is .* on rank 0 and .*: pass the same on every rank"):
        DIFFERENT[name](comm, comm.rank)


@pytest.mark.parametrize("first", [True, False])
def test_columns_of_some_ranks_only_are_refused_on_all(comm: Any, first: bool) -> None:
    weights = np.ones(20) if (comm.rank == 0) == first else None
    if comm.size == 1:
        mpi_ustat.auc(Y[OWN], SCORE[OWN], sample_weight=weights, comm=comm)
        return
    with pytest.raises(UserError, match="sample_weight is given on some ranks only"):
        mpi_ustat.auc(Y[OWN], SCORE[OWN], sample_weight=weights, comm=comm)


def test_a_result_is_not_saved_under_the_name_of_a_table(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="end its name in .h5; to_frame"):
        mpi_ustat.save(mpi_ustat.gini(SCORE[OWN]), tmp_path / "gini.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["null", "margin", "pos_label"])
def test_what_is_asked_of_an_estimate_must_be_the_same_on_all_ranks(comm: Any, option: str) -> None:
    asked: dict[str, Any] = {"null": 0.5, "margin": 0.1, "pos_label": 1}
    scores = {"one": SCORE, "other": SCORE[::-1]}
    if comm.rank == comm.size - 1:
        asked[option] = 0
    if comm.size == 1:
        mpi_ustat.compare_auc(Y, scores, comm=comm, **asked)
        return
    with pytest.raises(UserError, match=f"{option} is .* on rank 0 and 0 on rank {comm.size - 1}: pass the same on"):
        mpi_ustat.compare_auc(Y, scores, comm=comm, **asked)


@pytest.mark.parametrize("call", ["auc", "vus", "roc_curve", "gini", "kendall"])
def test_no_hypothesis_differs_between_ranks(comm: Any, call: str) -> None:
    given = {"gini": (SCORE,), "kendall": (Y, SCORE)}.get(call, (Y, SCORE))
    function, null = getattr(mpi_ustat, call), 0.25 + comm.rank
    if comm.size == 1:
        assert "test that it is 0.25" in str(function(*given, null=null, comm=comm))
        return
    with pytest.raises(UserError, match="null is 0.25 on rank 0 and"):
        function(*given, null=null, comm=comm)
