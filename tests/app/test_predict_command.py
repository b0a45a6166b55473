"""`mpi-ustat predict`: the scores of a learnt model, in the order of the rows, whoever scored them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import listing, refusal, result_of, write_csv
from conftest import Mpirun
from numpy.typing import NDArray

from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.app.cli import build_parser
from mpi_ustat.app.predict_command import run_command
from mpi_ustat.storage import pieces
from mpi_ustat.storage.results import Dataset, ResultFile, load, save

Array = NDArray[np.float64]
Here = Callable[..., CompletedProcess[str]]

# Quarters and powers of two, of which all sums and products are exact.
WEIGHTS = np.array([0.5, -1.25, 3.0])
MEAN, DEVIATION = np.array([1.0, -2.0, 0.25]), np.array([2.0, 0.25, 8.0])


def model(path: Path, *, scaled: bool = True, columns: tuple[str, ...] = ("a", "b", "c"), **told: Any) -> Path:
    datasets = {"weights": Dataset(WEIGHTS)}
    if scaled:
        datasets |= {"column_mean": Dataset(MEAN), "column_deviation": Dataset(DEVIATION)}
    save(path, ResultFile("learn", {"columns": list(columns), "data": {"positive": "1"}} | told, {}, datasets))
    return path


def points(n_rows: int = 101) -> tuple[Array, Array]:
    rng = np.random.default_rng(n_rows)
    y = (rng.random(n_rows) < 0.4).astype(float)
    X = np.round(4.0 * (rng.normal(size=(n_rows, 3)) + 0.7 * y[:, None])) / 4.0
    X[:10] = X[10:20]  # ties
    return X, y


def scores_of(X: Array, *, scaled: bool = True) -> Array:
    """Row by row, in plain Python."""
    X = (X - MEAN) / DEVIATION if scaled else X
    return np.array([row[0] * WEIGHTS[0] + row[1] * WEIGHTS[1] + row[2] * WEIGHTS[2] for row in X.tolist()])


def read_scores(path: Path) -> Array:
    lines = path.read_text().splitlines()
    assert lines[0] == "score"
    return np.array([float(line) for line in lines[1:]])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    X, y = points()
    rows = [(k, c, int(label), a, b) for k, ((a, b, c), label) in enumerate(zip(X.tolist(), y.tolist(), strict=True))]
    return write_csv(tmp_path / "data.csv", rows, "id,c,y,a,b")


def parsed(*words: object) -> argparse.Namespace:
    given = ["predict", *map(str, words)]
    return build_parser().parse_args(given, argparse.Namespace(invocation=["mpi-ustat", *given]))


@pytest.mark.parametrize("scaled", [True, False])
def test_columns_are_found_by_name_and_scores_are_exact(here: Here, data: Path, tmp_path: Path, scaled: bool) -> None:
    scorer = model(tmp_path / "m.h5", scaled=scaled)
    done = here("predict", scorer, data, "--output", tmp_path / "s.csv", "--json")
    found = result_of(done)
    assert found["n_rows"] == 101
    assert found["columns"] == ["a", "b", "c"]
    assert "auc" not in found
    np.testing.assert_array_equal(read_scores(tmp_path / "s.csv"), scores_of(points()[0], scaled=scaled))


def test_text_and_hdf5_hold_the_same_doubles(here: Here, data: Path, tmp_path: Path) -> None:
    scorer = model(tmp_path / "m.h5", threshold=0.25)
    for name in ("s.csv", "s.h5"):
        assert here("predict", scorer, data, "--output", tmp_path / name, "--quiet").returncode == 0
    stored = load(tmp_path / "s.h5")  # which looks at its seal
    assert stored.kind == "predict"
    assert stored.config["threshold"] == 0.25
    assert stored.datasets["score"].dims == ("row",)
    np.testing.assert_array_equal(read_scores(tmp_path / "s.csv"), stored.datasets["score"].values)
    assert here("info", tmp_path / "s.h5").returncode == 0


def test_hdf5_of_which_a_bit_has_changed_is_refused(here: Here, data: Path, tmp_path: Path) -> None:
    here("predict", model(tmp_path / "m.h5"), data, "--output", tmp_path / "s.h5", "--quiet")
    content = bytearray((tmp_path / "s.h5").read_bytes())
    place = content.index(load(tmp_path / "s.h5").datasets["score"].values[50:53].tobytes())
    content[place] ^= 1
    (tmp_path / "s.h5").write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        load(tmp_path / "s.h5")


@pytest.mark.parametrize("suffix", ["csv", "h5"])
def test_the_same_bytes_on_any_number_of_ranks(
    comm: Any, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, suffix: str
) -> None:
    monkeypatch.setattr(pieces, "_MOST_ROWS", 16)  # 7 pieces
    X, y = points()
    scorer, data, out = (shared_tmp_path / name for name in ("m.h5", "d.npz", f"s.{suffix}"))
    if comm.rank == 0:
        model(scorer, columns=("0", "1", "2"))
        np.savez(data, X=X, y=y)
    comm.barrier()
    assert run_command(comm, parsed(scorer, data, "--label", "y", "--output", out, "--json")) == 0
    comm.barrier()
    expected = scores_of(X)
    if suffix == "csv":
        assert out.read_text() == "score\n" + "".join(f"{score!r}\n" for score in expected.tolist())
    else:
        np.testing.assert_array_equal(load(out).datasets["score"].values, expected)
    if comm.rank == 0:
        told = json.loads(capsys.readouterr().out)
        known = estimate(SerialComm(), expected[y == 1], expected[y == 0], "auc", complete=True)
        assert told["auc"] == known.value
        assert known.error is not None
        assert told["stderr"] == known.error.stderr[0]
        assert tuple(told["interval"]) == known.interval
        assert (told["n"], told["m"], told["positive"]) == (int(y.sum()), int((1 - y).sum()), "1")


def test_a_row_that_cannot_be_read_is_named_and_nothing_is_left(
    comm: Any, shared_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_MOST_ROWS", 16)
    X, y = points()
    X[70, 1] = np.nan
    X[90, 0] = np.inf
    scorer, data, out = (shared_tmp_path / name for name in ("m.h5", "d.npz", "s.csv"))
    if comm.rank == 0:
        model(scorer, columns=("0", "1", "2"))
        np.savez(data, X=X, y=y)
    comm.barrier()
    with pytest.raises(UserError, match=r"^'d.npz', row 70 \(counted from 0\): column '1' is NaN"):
        run_command(comm, parsed(scorer, data, "--output", out))
    comm.barrier()
    assert sorted(os.listdir(shared_tmp_path)) == ["d.npz", "m.h5"]


def test_the_auc_takes_the_models_positives_unless_told(here: Here, data: Path, tmp_path: Path) -> None:
    X, y = points()
    scores = scores_of(X)
    first = result_of(here("predict", model(tmp_path / "m.h5"), data, "--label", "y", "--json"))
    other = result_of(here("predict", tmp_path / "m.h5", data, "--label", "y", "--positive", "0", "--json"))
    wins = np.sign(scores[y == 1][:, None] - scores[y == 0])
    assert first["auc"] == pytest.approx((wins.mean() + 1) / 2, rel=1e-15)
    assert other["auc"] == pytest.approx((1 - wins.mean()) / 2, rel=1e-14)
    assert first["interval"][0] < first["auc"] < first["interval"][1]


def test_one_label_against_all_others(here: Here, tmp_path: Path) -> None:
    X, _ = points()
    kinds = ["cat", "dog", "owl"] * 34
    rows = [(*row, kind) for row, kind in zip(X.tolist(), kinds, strict=False)]
    data = write_csv(tmp_path / "pets.csv", rows, "a,b,c,kind")
    found = result_of(
        here("predict", model(tmp_path / "m.h5"), data, "--label", "kind", "--positive", "dog", "--rest", "--json")
    )
    scores, is_dog = scores_of(X), np.array(kinds[:101]) == "dog"
    wins = np.sign(scores[is_dog][:, None] - scores[~is_dog])
    assert found["auc"] == pytest.approx((wins.mean() + 1) / 2, rel=1e-15)
    assert found["rest"] is True


def test_features_that_libsvm_rows_do_not_mention_are_zeros(here: Here, tmp_path: Path) -> None:
    (tmp_path / "few.svm").write_text("1 1:2\n0 2:4\n")
    scorer = model(tmp_path / "m.h5", columns=("1", "2", "3"), scaled=False)
    assert here("predict", scorer, tmp_path / "few.svm", "--output", tmp_path / "s.csv").returncode == 0
    assert read_scores(tmp_path / "s.csv").tolist() == [1.0, -5.0]


def test_columns_may_have_other_names(here: Here, data: Path, tmp_path: Path) -> None:
    scorer = model(tmp_path / "m.h5", columns=("u", "v", "w"))
    said = refusal(here("predict", scorer, data, "--output", tmp_path / "s.csv"))
    assert said == (
        "'data.csv' lacks the columns u, v, w of the model 'm.h5': give data with these columns; there are "
        "id, c, y, a, b"
    )
    here("predict", scorer, data, "--columns", "a,b,c", "--output", tmp_path / "s.csv")
    np.testing.assert_array_equal(read_scores(tmp_path / "s.csv"), scores_of(points()[0]))
    said = refusal(here("predict", scorer, data, "--columns", "a,b", "--output", tmp_path / "t.csv"))
    assert (
        "2 columns of 'data.csv' are chosen, and the model 'm.h5' has 3 (u, v, w): name as many with --columns" in said
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--output", "s.txt"], "names no format that scores are written in: end its name in .csv or .h5"),
        (["--output", "data.csv", "--overwrite"], "the output file 'data.csv' is also read"),
        (["--output", "m.h5", "--overwrite"], "the output file 'm.h5' is also read"),
        (["--output", "there.csv"], "the output 'there.csv' exists: choose another name or give --overwrite"),
        ([], "nothing is asked for: give --output, a file for the scores, or --label, for their AUC"),
        (["--output", "s.csv", "--label", "id"], "the label 'id' of 'data.csv' has more than two values"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing(
    here: Here, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "m.h5")
    (tmp_path / "there.csv").write_text("precious")
    before = listing(tmp_path)
    assert sentence in refusal(here("predict", "m.h5", "data.csv", *words))
    assert listing(tmp_path) == before


def test_other_results_are_no_models(here: Here, data: Path, tmp_path: Path) -> None:
    save(tmp_path / "e.h5", ResultFile("estimate"))
    said = refusal(here("predict", tmp_path / "e.h5", data, "--output", tmp_path / "s.csv"))
    assert said.endswith("is a result of kind 'estimate': give one that mpi-ustat learn has written")


def test_a_score_beyond_doubles_is_refused(here: Here, tmp_path: Path) -> None:
    data = write_csv(tmp_path / "d.csv", [(1, 2, 3), (1, 2, 1e308)], "a,b,c")
    said = refusal(here("predict", model(tmp_path / "m.h5", scaled=False), data, "--output", tmp_path / "s.csv"))
    assert said.startswith("the score of row 1 of 'd.csv' (counted from 0) is beyond the range of doubles")


def test_what_learn_writes_scores_as_learn_did(mpirun: Mpirun, data: Path, tmp_path: Path) -> None:
    learnt = mpirun(
        2,
        "learn",
        data,
        "--label",
        "y",
        "--columns",
        "a,b,c",
        "--test-fraction",
        0,
        "--standardize",
        "--iterations",
        9,
        "--seed",
        1,
        "--output",
        tmp_path / "m.h5",
        "--json",
    )
    scored = mpirun(2, "predict", tmp_path / "m.h5", data, "--label", "y", "--output", tmp_path / "s.h5", "--json")
    assert result_of(scored)["auc"] == result_of(learnt)["train_auc"]
