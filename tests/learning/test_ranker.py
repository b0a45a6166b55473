"""The scikit-learn estimator: its conventions, its threshold, and the same bits on any number of ranks."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard, shards

pytest.importorskip("sklearn", minversion="1.6")

from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mpi_ustat
from mpi_ustat import DivergedError, PairwiseRanker, UserError, learn
from mpi_ustat.learning.threshold import youden_threshold
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.points.preparation import standardisation

Array = NDArray[np.float64]


def two_clouds(n: int = 60, m: int = 90, seed: int = 0) -> tuple[Array, NDArray[Any]]:
    """Return overlapping classes in columns of different location and scale, in mixed order."""
    generator = np.random.default_rng(seed)
    y = generator.permutation(np.repeat(["yes", "no"], [n, m]))
    X = generator.normal(size=(n + m, 3)) + np.outer(y == "yes", [1.0, -0.5, 0.0])
    return X * [1.0, 100.0, 0.01] + [0.0, 7.0, -3.0], y


def learnt(ranker: PairwiseRanker) -> tuple[bytes, ...]:
    return tuple(a.tobytes() for a in (ranker.coef_, ranker.intercept_, ranker.loss_curve_, ranker.classes_))


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own."""
    path = os.pathsep.join(filter(None, [str(Path(mpi_ustat.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)


def raises_everywhere(comm: Any, fit: Any, kind: type[Exception] = ValueError) -> str:
    """Return the message with which `fit` fails on all ranks, which must be one."""
    with pytest.raises(kind) as caught:
        fit()
    (message,) = set(comm.allgather(str(caught.value)))
    return str(message)


# ---------------------------------------------------------------------------------------------------------------------
# One process


def _not_of_rows(estimator: Any) -> dict[str, str]:
    """Return the checks that pass weights, which only the exchange of scores takes."""
    reason = "weights of points need the exchange of scores, and are refused without it"
    checks = ("pandas_series", "not_an_array", "list", "not_overwritten", "shape")
    names = [f"check_sample_weights_{each}" for each in checks]
    names += ["check_sample_weight_equivalence_on_dense_data"]
    return {} if estimator.exchange == "scores" else dict.fromkeys(names, reason)


@parametrize_with_checks(
    [
        PairwiseRanker(),
        PairwiseRanker(loss="squared-hinge", batch_pairs=None, iterations=200),
        PairwiseRanker(
            loss="squared-hinge",
            exchange="scores",
            batch_points=None,
            optimizer="lbfgs",
            tolerance=1e-8,
            l2=1e-3,
            init="zeros",
            standardize=False,
        ),
    ],
    expected_failed_checks=_not_of_rows,
)
def test_keeps_the_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_works_in_pipelines_and_searches() -> None:
    X, y = two_clouds()
    pipeline = make_pipeline(StandardScaler(), PairwiseRanker(random_state=0, iterations=100))
    grid = {"pairwiseranker__l2": [0.0, 100.0], "pairwiseranker__loss": ["hinge", "logistic"]}
    search = GridSearchCV(pipeline, grid, scoring="roc_auc", cv=3, error_score="raise").fit(X, y)
    own = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, y)
    np.testing.assert_allclose(own.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"], rtol=1e-12)
    assert search.best_score_ > 0.75
    assert set(search.predict(X)) == {"yes", "no"}


def test_needs_no_mpi() -> None:
    code = """
import sys
sys.modules["mpi4py"] = None
import numpy as np
from mpi_ustat import PairwiseRanker
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
generator = np.random.default_rng(0)
y = np.repeat([0, 1], 40)
X = generator.normal(size=(80, 2)) + y[:, None]
pipeline = make_pipeline(StandardScaler(), PairwiseRanker(random_state=0, iterations=50))
print(GridSearchCV(pipeline, {"pairwiseranker__l2": [0.0, 0.1]}, cv=2, error_score="raise").fit(X, y).score(X, y))
assert not [name for name in sys.modules if name.startswith("mpi4py.")]
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.7


def test_importing_everything_does_not_need_scikit_learn() -> None:
    assert "PairwiseRanker" not in mpi_ustat.__all__
    code = "import sys; sys.modules['sklearn'] = None\nfrom mpi_ustat import *\nfrom mpi_ustat import PairwiseRanker"
    done = python(code)
    assert done.returncode == 1 and "PairwiseRanker needs scikit-learn" in done.stderr.splitlines()[-1]


def test_the_score_is_the_auc() -> None:
    X, y = two_clouds()
    X = np.round(X[:, :1], 1)  # so that scores tie
    ranker = PairwiseRanker(random_state=0, iterations=50).fit(X, y)
    decisions = ranker.decision_function(X)
    assert len(np.unique(decisions)) < len(y)
    assert ranker.score(X, y) == pytest.approx(roc_auc_score(y == "yes", decisions), rel=1e-13)


def test_the_score_refuses_what_it_has_no_value_for() -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(random_state=0, iterations=5).fit(X, y)
    with pytest.raises(UserError, match="sample_weight"):
        ranker.score(X, y, sample_weight=np.ones(len(y)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="one class only, 'no'"):
        ranker.score(X[y == "no"], y[y == "no"])
    with pytest.raises(UserError, match="labels 'maybe', 'yes': use those of the fit, 'no', 'yes'"):
        ranker.score(X, np.where(y == "no", "maybe", y))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        ranker.score(X, y[1:])


def test_a_clone_and_a_pickle_are_the_same() -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(loss="logistic", l2=0.01, n_workers=3, iterations=30, random_state=5).fit(X, y)
    twin = clone(ranker)
    assert twin.get_params() == ranker.get_params() and not hasattr(twin, "coef_")
    assert learnt(twin.fit(X, y)) == learnt(ranker)
    again = pickle.loads(pickle.dumps(ranker))
    assert learnt(again) == learnt(ranker)
    np.testing.assert_array_equal(again.predict(X), ranker.predict(X))


def test_the_decision_is_linear_in_the_columns_as_given() -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(random_state=0, iterations=50, standardize=True).fit(X, y)
    assert ranker.coef_.shape == (1, 3) and ranker.intercept_.shape == (1,)
    np.testing.assert_allclose(ranker.decision_function(X), X @ ranker.coef_[0] + ranker.intercept_[0], rtol=1e-12)
    # The weights are those of the standardised columns, in units of these.
    x, z = X[y == "yes"], X[y == "no"]
    scaling = standardisation(SerialComm(), (x, z))
    fit = learn(SerialComm(), scaling.apply(x), scaling.apply(z), iterations=50, seed=0)
    np.testing.assert_array_equal(ranker.coef_[0], fit.parameters / scaling.deviation)
    np.testing.assert_array_equal(ranker.loss_curve_, fit.history["train_loss"])
    assert ranker.n_iter_ == 50
    raw = PairwiseRanker(random_state=0, iterations=50).fit(X, y)
    np.testing.assert_array_equal(raw.coef_[0], learn(SerialComm(), x, z, iterations=50, seed=0).parameters)


def test_a_constant_column_has_no_weight() -> None:
    X, y = two_clouds()
    X[:, 2] = 0.1
    ranker = PairwiseRanker(random_state=0, iterations=20, init="zeros", standardize=True)
    assert ranker.fit(X, y).coef_[0, 2] == 0.0


def test_random_states() -> None:
    X, y = two_clouds()

    def weights(random_state: Any) -> bytes:
        return bytes(PairwiseRanker(iterations=5, random_state=random_state).fit(X, y).coef_.tobytes())

    assert weights(3) == weights(np.int64(3)) != weights(4)
    assert weights(np.random.RandomState(3)) == weights(np.random.RandomState(3))
    generator = np.random.RandomState(3)
    assert weights(generator) != weights(generator)
    with pytest.raises(ValueError, match="seed"):
        weights(-1)


def test_ranks_as_well_as_logistic_regression(shared_data: Path) -> None:
    """Real data with rare positives, where the order is what matters: the ranker is at most 0.005 behind."""
    for name in ("mammography", "annthyroid"):
        with np.load(shared_data / f"{name}.npz") as data:
            X, y = data["X"], data["y"]
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
        reference = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train, y_train)
        expected = roc_auc_score(y_test, reference.decision_function(test))
        ranker = PairwiseRanker(random_state=0, standardize=True).fit(train, y_train)
        assert ranker.score(test, y_test) > expected - 0.005, name
        # The threshold makes sense of them too, where most points are negative.
        assert balanced_accuracy_score(y_test, ranker.predict(test)) > 0.8, name


# ---------------------------------------------------------------------------------------------------------------------
# The threshold

few_scores = st.lists(st.integers(-6, 6).map(float), min_size=1, max_size=12)
any_scores = st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=8)


def balanced_accuracy(positive: Array, negative: Array, threshold: float) -> float:
    return float(np.mean(positive > threshold) + np.mean(negative <= threshold)) / 2


@given(positive=few_scores | any_scores, negative=few_scores | any_scores)
def test_no_threshold_is_better(positive: list[float], negative: list[float]) -> None:
    x, z = np.array(positive), np.array(negative)
    chosen = youden_threshold(x, z)
    best = max(balanced_accuracy(x, z, t) for t in [-np.inf, *x, *z])
    assert balanced_accuracy(x, z, chosen) == pytest.approx(best, abs=1e-12)


def test_the_threshold_by_hand() -> None:
    def threshold(positive: list[float], negative: list[float]) -> float:
        return youden_threshold(np.array(positive, dtype=float), np.array(negative, dtype=float))

    assert threshold([3, 5], [-2, 1]) == 2.0  # between separate classes
    assert threshold([1, 4, 5, 6], [0, 2]) == 3.0  # J is 3/4 there, 1/2 between 0 and 1
    assert threshold([1, 9], [0, 4]) == 6.5  # J is 1/2 twice: the wider gap
    assert threshold([2, 6], [0, 4]) == 1.0  # of gaps as wide, the lower
    assert threshold([1], [1]) == 1.0  # nothing tells the classes apart
    assert threshold([0], [1]) == 1.0  # the wrong way round, all the same is better
    assert threshold([1], [np.nextafter(1.0, 0.0)]) == np.nextafter(1.0, 0.0)  # no double lies between
    assert threshold([1e308], [-1e308]) == 0.0


def test_the_prediction_is_that_of_the_threshold() -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(random_state=0, iterations=50).fit(X, y)
    scores = ranker.decision_function(X) - ranker.intercept_[0]
    best = max(balanced_accuracy(scores[y == "yes"], scores[y == "no"], t) for t in scores)
    assert balanced_accuracy_score(y, ranker.predict(X)) == pytest.approx(best, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Several ranks


@pytest.mark.parametrize(
    "options",
    [
        {"batch_pairs": 10},
        {"loss": "logistic", "batch_pairs": None, "l2": 0.01, "decay": 0.1},
        {"loss": "squared-hinge", "scheme": "swor", "init": "normal", "standardize": False, "learning_rate": 1e-6},
        {"scheme": "prop-swr", "repartition_every": 1},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_the_same_bits_on_any_number_of_ranks(comm: Any, options: dict[str, Any]) -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(n_workers=5, iterations=30, random_state=1, **options)
    alone = clone(ranker).fit(X, y)
    ranker.fit(*shards(comm, (X, y)), comm=comm)
    assert learnt(ranker) == learnt(alone)
    np.testing.assert_array_equal(ranker.predict(X), alone.predict(X))


def test_shards_may_be_empty_or_lack_a_class(comm: Any) -> None:
    X, y = two_clouds()
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    ranker = PairwiseRanker(n_workers=2, iterations=20, random_state=1)
    alone = clone(ranker).fit(X, y)
    # The last rank has nothing; where there are three, no rank has both classes.
    cut = int(np.count_nonzero(y == "no")) if comm.size >= 3 else len(y)
    bounds = [0, cut, len(y), len(y), len(y)] if comm.size > 1 else [0, len(y)]
    mine = slice(bounds[comm.rank], bounds[comm.rank + 1])
    for nothing in (X[:0], X[:0, :0], []):
        points: Any = X[mine] if mine.start < mine.stop else nothing
        ranker.fit(points, y[mine], comm=comm)
        assert learnt(ranker) == learnt(alone)
        assert ranker.n_features_in_ == 3
        assert ranker.score(X, y) == alone.score(X, y)


def test_labels_of_different_widths_agree(comm: Any) -> None:
    X = np.arange(8.0)[:, None]
    y = np.array(["a", "a", "b", "b", "bcd", "bcd", "bcd", "bcd"])
    own_X, own_y = shards(comm, (X[2:], y[2:]))
    ranker = PairwiseRanker(n_workers=1, iterations=5, random_state=0)
    ranker.fit(own_X, np.array(own_y.tolist()), comm=comm)
    assert ranker.classes_.tolist() == ["b", "bcd"]


def test_the_number_of_workers(comm: Any) -> None:
    X, y = two_clouds(n=3, m=9)
    own = shards(comm, (X, y))
    by_default = PairwiseRanker(iterations=5, random_state=0).fit(*own, comm=comm)
    explicit = PairwiseRanker(iterations=5, random_state=0, n_workers=min(3, comm.size)).fit(*own, comm=comm)
    assert learnt(by_default) == learnt(explicit)
    message = raises_everywhere(comm, lambda: PairwiseRanker(n_workers=4).fit(*own, comm=comm), UserError)
    assert message == "there are 4 workers but 3 points of class 'yes': use at most 3 workers"


def test_as_is_takes_ranks_for_workers(comm: Any) -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(
        scheme="as-is", repartition_every=None, iterations=20, init="zeros", standardize=True, random_state=0
    )
    ranker.fit(*shards(comm, (X, y)), comm=comm)
    assert len(set(comm.allgather(learnt(ranker)))) == 1
    assert ranker.score(X, y) > 0.7


def test_the_seed_is_that_of_rank_0(comm: Any) -> None:
    X, y = two_clouds()
    ranker = PairwiseRanker(iterations=5, n_workers=2, random_state=comm.rank + 7).fit(*shards(comm, (X, y)), comm=comm)
    assert learnt(ranker) == learnt(PairwiseRanker(iterations=5, n_workers=2, random_state=7).fit(X, y))
    PairwiseRanker(iterations=5).fit(*shards(comm, (X, y)), comm=comm)


def test_what_no_rank_can_mend(comm: Any) -> None:
    X, y = two_clouds()
    own_X, own_y = shards(comm, (X, y))

    def message(labels: Any, points: Any = own_X, **options: Any) -> str:
        return raises_everywhere(comm, lambda: PairwiseRanker(**options).fit(points, labels, comm=comm))

    assert "y has one class only, 'no'" in message(np.full(len(own_y), "no"))
    assert "Only binary" in message(shard(comm, np.arange(len(y)) % 3))
    assert "iterations" in message(own_y, iterations=0)
    assert "use one of hinge" in message(own_y, loss="square")
    assert "as-is" in message(own_y, scheme="as-is")
    if comm.size > 1:
        assert message([], X[:0]) == "no rank has any points: pass some"
    raises_everywhere(
        comm, lambda: PairwiseRanker(learning_rate=1e308, l2=1.0).fit(own_X, own_y, comm=comm), DivergedError
    )


def test_what_is_wrong_on_one_rank_is_raised_on_all(comm: Any) -> None:
    X, y = two_clouds()
    own_X, own_y = shards(comm, (X, y))
    last = comm.rank == comm.size - 1

    def message(points: Any, labels: Any, **options: Any) -> str:
        return raises_everywhere(comm, lambda: PairwiseRanker(**options).fit(points, labels, comm=comm))

    assert "NaN" in message(np.where(last, np.nan, own_X), own_y)
    assert "inconsistent" in message(own_X, own_y[last:])
    assert "None" in message(own_X, None if last else own_y)
    if comm.size == 1:
        return
    assert "2, 3" in message(own_X[:, last:], own_y)
    assert "labels are of different kinds (number, text)" in message(own_X, np.ones(len(own_y)) if last else own_y)
    assert "differ in iterations, l2" in message(own_X, own_y, iterations=10 + last, l2=1.0 * last)
    assert "X has no points" in message(own_X[:0] if last else own_X, own_y)


def test_column_names_are_those_of_the_ranks_with_points(comm: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = two_clouds()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    whole = slice(None) if comm.rank == 0 else slice(0)
    ranker = PairwiseRanker(n_workers=1, iterations=5, random_state=0).fit(frame[whole], y[whole], comm=comm)
    assert ranker.feature_names_in_.tolist() == ["a", "b", "c"]
    ranker.fit(X[whole], y[whole], comm=comm)
    assert not hasattr(ranker, "feature_names_in_")


def test_masked_values_are_refused() -> None:
    rows, labels = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    masked_rows, masked_labels = (np.ma.masked_equal(each, each.flat[3]) for each in (rows, labels))
    fitted = PairwiseRanker(iterations=2).fit(rows, labels)
    refused: dict[str, list[Any]] = {
        "X": [lambda: fitted.fit(masked_rows, labels), lambda: fitted.predict(masked_rows)],
        "y": [lambda: fitted.fit(rows, masked_labels), lambda: fitted.score(rows, masked_labels)],
    }
    for name, calls in refused.items():
        for call in calls:
            with pytest.raises(UserError, match=f"^{name} has masked values"):
                call()


# ---------------------------------------------------------------------------------------------------------------------
# Scores that travel

OPTIMUM: dict[str, Any] = {
    "loss": "squared-hinge",
    "exchange": "scores",
    "batch_points": None,
    "optimizer": "lbfgs",
    "l2": 0.01,
    "random_state": 3,
}


def test_has_the_defaults_of_learn() -> None:
    mine = inspect.signature(PairwiseRanker).parameters
    theirs = inspect.signature(learn).parameters
    for name in ("exchange", "batch_points", "optimizer", "tolerance", "batch_pairs", "loss", "l2", "eval_every"):
        assert mine[name].default == theirs[name].default, name


@pytest.mark.parametrize("options", [OPTIMUM, {"exchange": "scores", "iterations": 20, "random_state": 3}], ids=str)
@pytest.mark.parametrize("standardize", [False, True])
def test_learns_the_same_of_sparse_points_on_any_number_of_ranks(
    comm: Any, options: dict[str, Any], standardize: bool
) -> None:
    X, y = two_clouds()
    X = np.where(np.abs(X) > 1.0, X, 0.0)
    options = options | {"n_workers": 4, "standardize": standardize}
    dense = PairwiseRanker(**options).fit(X, y)
    whole = PairwiseRanker(**options).fit(sparse.csr_array(X), y)
    cuts = np.linspace(0, len(y), comm.size + 1).astype(int)
    mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
    found = PairwiseRanker(**options).fit(sparse.csc_matrix(X[mine]), y[mine], comm)
    assert learnt(found) == learnt(whole)
    assert whole.coef_ == pytest.approx(dense.coef_, rel=1e-6, abs=1e-6)
    assert found.decision_function(sparse.csr_matrix(X)) == pytest.approx(found.decision_function(X), rel=1e-12)
    assert list(found.predict(sparse.coo_array(X))) == list(found.predict(X))
    assert found.score(sparse.csr_array(X), y) == pytest.approx(roc_auc_score(y == "yes", found.decision_function(X)))


def test_a_weight_is_how_often_a_point_is_there_and_pairs_are_of_one_group(comm: Any) -> None:
    X, y = two_clouds(30, 45)
    X = StandardScaler().fit_transform(X)
    generator = np.random.default_rng(1)
    times, groups = generator.integers(0, 4, len(y)), generator.choice(["a", "b", "c"], len(y))
    again = np.repeat(np.arange(len(y)), times)
    cuts = np.linspace(0, len(y), comm.size + 1).astype(int)
    mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
    options = OPTIMUM | {"standardize": False, "tolerance": 1e-8, "n_workers": 2}
    found = PairwiseRanker(**options).fit(X[mine], y[mine], comm, sample_weight=times[mine], groups=groups[mine])
    wanted = PairwiseRanker(**options).fit(X[again], y[again], groups=groups[again])
    assert found.coef_ == pytest.approx(wanted.coef_, rel=1e-6)
    assert found.intercept_ == pytest.approx(wanted.intercept_, rel=1e-6)
    other = PairwiseRanker(**options).fit(X[again], y[again])
    assert np.abs(other.coef_ - wanted.coef_).max() > 1e-3


def test_the_weighted_threshold_is_that_of_repeated_scores() -> None:
    generator = np.random.default_rng(4)
    for _ in range(200):
        scores = [generator.integers(0, 6, n).astype(float) for n in (5, 7)]
        weights = [generator.integers(0, 3, n).astype(float) for n in (5, 7)]
        repeated = [np.repeat(s, w.astype(int)) for s, w in zip(scores, weights, strict=True)]
        if all(len(each) for each in repeated):
            assert youden_threshold(scores[0], scores[1], weights) == youden_threshold(repeated[0], repeated[1])


def test_an_optimum_that_is_not_reached_is_told() -> None:
    X, y = two_clouds()
    with pytest.warns(ConvergenceWarning, match="the gradient is still .* ask for more iterations"):
        PairwiseRanker(**OPTIMUM | {"iterations": 2}).fit(X, y)


@pytest.mark.parametrize(
    ("options", "said", "sentence"),
    [
        ({}, {"sample_weight": np.ones(150)}, 'use exchange="scores"'),
        (OPTIMUM, {"sample_weight": np.ones(3)}, r"sample_weight has shape \(3,\): give one for each"),
        (OPTIMUM, {"sample_weight": np.full(150, -1.0)}, "sample_weight must be finite and not negative"),
        (OPTIMUM, {"sample_weight": ["a"] * 150}, "sample_weight has the type"),
        (OPTIMUM, {"groups": np.ma.masked_array(np.ones(150), np.ones(150))}, "groups has masked values"),
        ({"exchange": "scores"}, {"groups": np.ones(150)}, "groups need all points in every step"),
    ],
)
def test_what_can_not_be_said_of_points_is_refused(
    options: dict[str, Any], said: dict[str, Any], sentence: str
) -> None:
    X, y = two_clouds()
    with pytest.raises(UserError, match=sentence):
        PairwiseRanker(**options).fit(X, y, **said)


def test_sparse_points_need_the_exchange_of_scores() -> None:
    X, y = two_clouds()
    with pytest.raises(UserError, match='use exchange="scores", or pass X.toarray'):
        PairwiseRanker().fit(sparse.csr_array(X), y)
    assert not PairwiseRanker().__sklearn_tags__().input_tags.sparse
    assert PairwiseRanker(exchange="scores").__sklearn_tags__().input_tags.sparse
    large = sparse.csr_array(np.where(X > 0, 2**53 + 1, 0))
    with pytest.raises(UserError, match="an integer that no double equals"):
        PairwiseRanker(**OPTIMUM).fit(large, y)
