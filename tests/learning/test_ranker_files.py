"""PairwiseRanker's models in files, which are the command line's; and its defaults, which are, too."""

from __future__ import annotations

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shards

pytest.importorskip("sklearn", "1.6")

from mpi_ustat import PairwiseRanker, UserError
from mpi_ustat.app.cli import build_parser, main
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

Array = NDArray[np.float64]

OPTIONS: dict[str, Any] = {"iterations": 30, "batch_pairs": 5, "n_workers": 3, "learning_rate": 0.1, "random_state": 4}
FLAGS = ["--iterations", "30", "--batch-pairs", "5", "--workers", "3", "--learning-rate", "0.1", "--seed", "4"]


def points(labels: tuple[Any, Any]) -> tuple[Array, NDArray[Any]]:
    rng = np.random.default_rng(3)
    y = np.arange(80) % 2
    X = (rng.normal(size=(80, 3)) + 0.6 * y[:, None]) * (1.0, 30.0, 0.1) + (0.0, 500.0, -2.0)
    return X, np.array(labels)[y]


def written(path: Path, X: Array, y: NDArray[Any]) -> Path:
    rows = (f"{label},{','.join(map(repr, row))}\n" for label, row in zip(y.tolist(), X.tolist(), strict=True))
    path.write_text("y,a,b,c\n" + "".join(rows))
    return path


def scores_in(path: Path) -> list[float]:
    return [float(line) for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("labels", [(0, 1), ("no", "yes"), (-1.0, 2.0), (False, True)], ids=str)
def test_what_was_saved_is_loaded_to_the_last_bit(
    comm: Any, shared_tmp_path: Path, labels: tuple[Any, Any], standardize: bool
) -> None:
    X, y = points(labels)
    ranker = PairwiseRanker(standardize=standardize, **OPTIONS).fit(*shards(comm, (X, y)), comm=comm)
    if comm.rank == 0:
        ranker.save(shared_tmp_path / "m.h5")
    comm.barrier()
    again = PairwiseRanker.load(shared_tmp_path / "m.h5")
    assert again.get_params() == ranker.get_params()
    assert again.classes_.tolist() == ranker.classes_.tolist()
    for name in ("coef_", "intercept_", "loss_curve_", "n_iter_", "n_features_in_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(ranker, name))
    np.testing.assert_array_equal(again.decision_function(X), ranker.decision_function(X))
    assert again.predict(X).tolist() == ranker.predict(X).tolist()
    assert again.score(X, y) == ranker.score(X, y)
    if comm.rank == 0:
        again.save(shared_tmp_path / "again.h5")
        first, second = (load(shared_tmp_path / name) for name in ("m.h5", "again.h5"))
        assert first.config == second.config
    comm.barrier()


@pytest.mark.parametrize("standardize", [False, True])
def test_the_command_line_writes_the_same_model(tmp_path: Path, alone: None, capsys: Any, standardize: bool) -> None:
    X, y = points((0, 1))
    data = written(tmp_path / "d.csv", X, y)
    words = ["learn", str(data), "--label", "y", "--test-fraction", "0", *FLAGS, "--output", str(tmp_path / "c.h5")]
    assert main([*words, *["--standardize"] * standardize, "--quiet"]) == 0
    ranker = PairwiseRanker(standardize=standardize, **OPTIONS).fit(X, y)
    ranker.save(tmp_path / "m.h5")
    ours, theirs = load(tmp_path / "m.h5"), load(tmp_path / "c.h5")
    assert ours.datasets.keys() == theirs.datasets.keys()
    for name, dataset in ours.datasets.items():
        if "seconds" not in name:
            np.testing.assert_array_equal(dataset.values, theirs.datasets[name].values)
            assert (dataset.dims, dataset.unit) == (theirs.datasets[name].dims, theirs.datasets[name].unit)
    own = {"data", "columns", "threshold", "intercept"}
    assert {name: each for name, each in ours.config.items() if name not in own} == {
        name: each for name, each in theirs.config.items() if name not in own
    }
    loaded = PairwiseRanker.load(tmp_path / "c.h5")
    assert loaded.get_params() == ranker.get_params()
    assert loaded.classes_.tolist() == [0, 1]
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(loaded.coef_, ranker.coef_)
    np.testing.assert_allclose(loaded.intercept_, ranker.intercept_, rtol=1e-12)
    with pytest.warns(UserWarning, match="feature names"):
        assert loaded.predict(X).tolist() == ranker.predict(X).tolist()
    assert main(["info", str(tmp_path / "m.h5")]) == 0


@pytest.mark.parametrize("standardize", [False, True])
def test_predict_scores_what_was_saved(tmp_path: Path, alone: None, capsys: Any, standardize: bool) -> None:
    X, y = points(("no", "yes"))
    ranker = PairwiseRanker(standardize=standardize, **OPTIONS).fit(X, y)
    ranker.save(tmp_path / "m.h5")
    data = written(tmp_path / "d.csv", X, y)
    words = ["predict", str(tmp_path / "m.h5"), str(data), "--columns", "a,b,c", "--label", "y", "--json"]
    assert main([*words, "--output", str(tmp_path / "s.csv")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["positive"] == "yes"
    assert told["auc"] == pytest.approx(ranker.score(X, y), rel=1e-14)
    above = np.array(scores_in(tmp_path / "s.csv")) - told["threshold"]
    np.testing.assert_allclose(above, ranker.decision_function(X), rtol=1e-9, atol=1e-9)
    assert np.array(["no", "yes"])[(above > 0).astype(int)].tolist() == ranker.predict(X).tolist()


def test_a_command_line_that_takes_the_rest_together(tmp_path: Path, alone: None) -> None:
    X, _ = points((0, 1))
    y = np.array(["cat", "owl", "dog", "owl"] * 20)
    words = ["learn", str(written(tmp_path / "d.csv", X, y)), "--label", "y", "--positive", "owl", "--rest", *FLAGS]
    assert main([*words, "--output", str(tmp_path / "c.h5"), "--quiet"]) == 0
    assert PairwiseRanker.load(tmp_path / "c.h5").classes_.tolist() == ["rest", "owl"]
    several = ["learn", str(tmp_path / "d.csv"), "--label", "y", "--classes", "cat,dog,owl", *FLAGS, "--quiet"]
    assert main([*several, "--output", str(tmp_path / "k.h5")]) == 0
    with pytest.raises(UserError, match="ranks 3 classes: a PairwiseRanker has two"):
        PairwiseRanker.load(tmp_path / "k.h5")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "e.h5", ResultFile("estimate"))
    save(tmp_path / "l.h5", ResultFile("learn", {"columns": ["a"]}, {}, {"weights": Dataset(np.ones(2))}))
    with pytest.raises(UserError, match="is a result of kind 'estimate'"):
        PairwiseRanker.load(tmp_path / "e.h5")
    with pytest.raises(UserError, match="damaged or incomplete"):
        PairwiseRanker.load(tmp_path / "l.h5")
    with pytest.raises(UserError, match="there is no file"):
        PairwiseRanker.load(tmp_path / "none.h5")


def test_a_file_is_replaced_only_when_told_and_written_only_of_what_is_fitted(tmp_path: Path) -> None:
    ranker = PairwiseRanker(**OPTIONS)
    with pytest.raises(ValueError, match="not fitted"):
        ranker.save(tmp_path / "m.h5")
    ranker.fit(*points((0, 1))).save(tmp_path / "m.h5")
    with pytest.raises(UserError, match="exists"):
        ranker.save(tmp_path / "m.h5")
    ranker.save(tmp_path / "m.h5", overwrite=True)


def test_the_defaults_are_those_of_the_command_line() -> None:
    words = ["learn", "data.csv"]
    told = vars(build_parser().parse_args(words, argparse.Namespace(invocation=words)))
    told |= {"n_workers": told["workers"], "random_state": told["seed"]}
    told |= {name: int(told[name]) for name in ("batch_pairs", "repartition_every")}  # where there are words for none
    assert told["batch_points"] is None  # so that it can be refused beside --exchange rows; the help says 100
    told["batch_points"] = LearnConfig.batch_points
    parameters = inspect.signature(PairwiseRanker.__init__).parameters
    defaults = {name: each.default for name, each in parameters.items() if name != "self"}
    assert len(defaults) == 18
    assert defaults == {name: told[name] for name in defaults}
