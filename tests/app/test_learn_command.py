"""`mpi-ustat learn` as its users run it: exact weights, what is printed and written, and how it fails."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import listing, processes_left, refusal, result_of, write_csv
from conftest import Mpirun
from numpy.typing import NDArray

from mpi_ustat import SerialComm, UserError, learn
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.points.preparation import split
from mpi_ustat.storage.data import DataSource, read_samples
from mpi_ustat.storage.results import load

Array = NDArray[np.float64]

KEYS = {
    "weights",
    "columns",
    "train_loss",
    "train_auc",
    "test_loss",
    "test_auc",
    "iterations",
    "n",
    "m",
    "n_workers",
    "n_ranks",
    "scheme",
    "repartition_every",
    "seed",
    "column_mean",
    "column_deviation",
    "bytes_moved",
    "bytes_reduced",
    "rows_moved",
    "seconds",
}

Here = Callable[..., CompletedProcess[str]]

COMMAND = ("learn",)


def table(n_rows: int = 90) -> Array:
    """Columns a, b, c on different scales, and the class."""
    rng = np.random.default_rng(n_rows)
    y = (rng.random(n_rows) < 0.4).astype(float)
    X = rng.normal(size=(n_rows, 3)) + 0.7 * y[:, None]
    return np.column_stack([X * (1.0, 20.0, 0.1) + (0.0, 300.0, -1.0), y])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "data.csv", [(*row[:3], int(row[3])) for row in table().tolist()], "a,b,c,y")


def hinge(w: Array, x: Array, z: Array, l2: float) -> float:
    margins = (x @ w)[:, None] - z @ w
    return float(np.maximum(0.0, 1.0 - margins).mean() + l2 * (w @ w))


def area(w: Array, x: Array, z: Array) -> float:
    s, t = x @ w, z @ w
    return float(((t < s[:, None]) + 0.5 * (t == s[:, None])).mean())


# --- exact weights


EXACT = ["--label", "y", "--loss", "hinge", "--learning-rate", 1 / 1024, "--momentum", 0.9, "--init", "zeros"]
EXACT += ["--test-fraction", 0, "--workers", 4, "--json"]
STEPS = {
    1: (0.001953125, -0.0009765625),
    2: (0.0056640625, -0.00283203125),
    10: (0.0808223820488281, -0.0404111910244141),
    20: (0.236214646314749, -0.118107323157374),
}


@pytest.fixture
def eight(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "eight.csv", [(3, 0, 1), (1, 1, 0)] * 4, "a,b,y")


@pytest.mark.parametrize("options", [[], ["--batch-pairs", "all"], ["--repartition-every", "never"]], ids=str)
def test_the_steps_are_those_computed_by_hand(here: Here, eight: Path, options: list[str]) -> None:
    for t, expected in STEPS.items():
        result = result_of(here(eight, *EXACT, *options, "--iterations", t))
        np.testing.assert_allclose(result["weights"], expected, rtol=0, atol=1e-12)
        assert result["train_loss"] == pytest.approx(1 - 2.5 * expected[0], abs=1e-12)
        assert (result["iterations"], result["train_auc"]) == (t, 1.0)
        assert result["test_loss"] is result["test_auc"] is None


@pytest.mark.parametrize("ranks", [(2, 4, 2, 4), (4, 2, 4, 2)], ids=str)
def test_the_steps_are_the_same_in_several_ranks_and_in_pieces(
    mpirun: Mpirun, here: Here, tmp_path: Path, eight: Path, ranks: tuple[int, ...]
) -> None:
    # From one of these iterations to the next on other ranks.
    for n_ranks, (t, expected) in zip(ranks, STEPS.items(), strict=True):
        options = [*EXACT, "--seed", 1, "--iterations", t]
        checkpointing = ["--checkpoint", tmp_path / "run.ck", "--checkpoint-every", t]
        resume = ["--resume"] if t > 1 else []
        result = result_of(mpirun(n_ranks, "learn", eight, *options, *checkpointing, *resume))
        np.testing.assert_allclose(result["weights"], expected, rtol=0, atol=1e-12)
        assert result["n_ranks"] == n_ranks
        assert result["weights"] == result_of(here(eight, *options))["weights"]


# --- results


OPTIONS = ["--label", "y", "--workers", 5, "--batch-pairs", 9, "--repartition-every", 2, "--iterations", 23]
OPTIONS += ["--standardize", "--l2", 0.02, "--learning-rate", 0.1, "--eval-every", 10, "--seed", 12]


def test_the_number_of_ranks_changes_nothing_but_what_moved(
    mpirun: Mpirun, here: Here, tmp_path: Path, data: Path
) -> None:
    results, curves = [], []
    for n_ranks in (0, 2, 3, 4):
        options = [data, *OPTIONS, "--json", "--output", tmp_path / f"{n_ranks}.h5"]
        result = result_of(mpirun(n_ranks, "learn", *options) if n_ranks else here(*options))
        assert result.pop("n_ranks") == max(n_ranks, 1)
        assert (result.pop("bytes_moved") > 0, result.pop("bytes_reduced") > 0) == (n_ranks > 1,) * 2
        del result["seconds"]
        results.append(result)
        datasets = load(tmp_path / f"{n_ranks}.h5").datasets
        curves.append(
            {
                name: each.values.tobytes()
                for name, each in datasets.items()
                if "bytes" not in name and "seconds" not in name
            }
        )
        assert {"weights", "history/train_loss", "history/test_auc", "column_mean"} <= curves[-1].keys()
    assert results[1:] == results[:1] * 3
    assert curves[1:] == curves[:1] * 3


def test_the_data_are_split_standardised_and_learnt_from_as_the_library_does(here: Here, data: Path) -> None:
    result = result_of(here(data, *OPTIONS, "--test-fraction", 0.3, "--json"))
    rows = table()
    train, tests = [], []
    for k, label in enumerate((1, 0)):
        kept, aside = split(SerialComm(), rows[rows[:, 3] == label, :3], 0.3, Streams(12), k)
        train.append(kept)
        tests.append(aside)
    # The shares of the classes are kept, and what scales the columns are the training rows alone.
    n, m = (int(np.count_nonzero(rows[:, 3] == label)) for label in (1, 0))
    assert [len(each) for each in tests] == [round(0.3 * n), round(0.3 * m)]
    assert (result["n"], result["m"]) == tuple(len(each) for each in train) == (n - len(tests[0]), m - len(tests[1]))
    pooled = np.concatenate(train)
    np.testing.assert_allclose(result["column_mean"], pooled.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(result["column_deviation"], pooled.std(axis=0), rtol=1e-12)
    mean, deviation = np.array(result["column_mean"]), np.array(result["column_deviation"])
    (x, z), (x_test, z_test) = ([(each - mean) / deviation for each in part] for part in (train, tests))

    options = {"n_workers": 5, "batch_pairs": 9, "repartition_every": 2, "iterations": 23, "l2": 0.02, "seed": 12}
    fit = learn(SerialComm(), x, z, x_test=x_test, z_test=z_test, **options, learning_rate=0.1, eval_every=10)
    assert result["weights"] == fit.parameters.tolist()
    for name in ("train_loss", "train_auc", "test_loss", "test_auc"):
        assert result[name] == fit.history[name][-1]
    w = fit.parameters
    assert result["train_loss"] == pytest.approx(hinge(w, x, z, 0.02), rel=1e-12)
    assert result["test_loss"] == pytest.approx(hinge(w, x_test, z_test, 0.02), rel=1e-12)
    assert result["train_auc"] == pytest.approx(area(w, x, z), abs=1e-12)
    assert result["test_auc"] == pytest.approx(area(w, x_test, z_test), abs=1e-12)


def test_every_option_gets_to_the_library(here: Here, data: Path) -> None:
    rows = table()
    x, z = (rows[rows[:, 3] == label][:, [2, 0]] for label in (0, 1))
    given: dict[str, Any] = {
        "loss": "logistic",
        "l2": 0.25,
        "learning_rate": 0.125,
        "decay": 0.5,
        "momentum": 0.75,
        "batch_pairs": 11,
        "repartition_every": 4,
        "scheme": "prop-swor",
        "move": "smaller",
        "shuffle": "matrix",
        "empty": "skip",
        "n_workers": 6,
        "iterations": 9,
        "init": "zeros",
        "eval_every": 4,
        "seed": 77,
    }
    spelled = {"n_workers": "workers"}
    options = [
        word for name, value in given.items() for word in (f"--{spelled.get(name, name).replace('_', '-')}", value)
    ]
    columns = ["--label", "y", "--positive", "0", "--columns", "c,a", "--test-fraction", 0]
    result = result_of(here(data, *columns, *options, "--json"))
    fit = learn(SerialComm(), x, z, **given)
    assert result["weights"] == fit.parameters.tolist()
    assert result["train_loss"] == fit.history["train_loss"][-1]
    assert (result["columns"], result["n"], result["m"]) == (["c", "a"], len(x), len(z))
    assert result["column_mean"] is result["column_deviation"] is None
    # Words for no number.
    result = result_of(here(data, *columns, *options, "--batch-pairs", "all", "--repartition-every", "never", "--json"))
    fit = learn(SerialComm(), x, z, **given | {"batch_pairs": None, "repartition_every": None})
    assert (result["weights"], result["repartition_every"]) == (fit.parameters.tolist(), None)
    for change in ({"scheme": "swor"}, {"scheme": "prop-swr"}, {"scheme": "fixed-shuffle"}):
        found = here(data, *columns, *options, "--scheme", change["scheme"], "--move", "both", "--json")
        assert (
            result_of(found)["weights"]
            == learn(SerialComm(), x, z, **given | {"move": "both"} | change).parameters.tolist()
        )


def test_the_defaults_are_those_that_help_tells(mpirun: Mpirun, here: Here, data: Path) -> None:
    result = result_of(mpirun(2, "learn", data, "--label", "y", "--json"))
    assert result.keys() >= KEYS
    assert (result["n_workers"], result["n_ranks"], result["iterations"]) == (2, 2, 1000)
    assert (result["scheme"], result["repartition_every"]) == ("prop-swor", 25)
    spelled = ["--loss", "hinge", "--l2", 0, "--learning-rate", 0.01, "--decay", 0, "--momentum", 0.9]
    spelled += ["--batch-pairs", 100, "--iterations", 1000, "--init", "normal", "--eval-every", 25, "--workers", 2]
    spelled += ["--test-fraction", 0.2, "--repartition-every", 25, "--seed", result["seed"]]
    assert result_of(here(data, "--label", "y", *spelled, "--json"))["weights"] == result["weights"]
    assert {"repartition", "gradient", "reduce", "evaluate"} == result["seconds"].keys()


def test_the_seed_is_drawn_once_and_recorded(mpirun: Mpirun, here: Here, tmp_path: Path, data: Path) -> None:
    options = [data, "--label", "y", "--workers", 6, "--iterations", 5, "--json"]
    first = result_of(mpirun(3, "learn", *options, "--output", tmp_path / "run.h5"))
    again = result_of(here(*options, "--seed", first["seed"]))
    assert (again["weights"], again["test_loss"]) == (first["weights"], first["test_loss"])
    file = load(tmp_path / "run.h5")
    assert file.provenance["seed"] == file.config["seed"] == first["seed"]
    assert result_of(here(*options))["seed"] != first["seed"]


def test_a_single_column_is_learnt_from(here: Here, data: Path) -> None:
    result = result_of(here(data, *OPTIONS, "--columns", "b", "--json"))
    assert len(result["weights"]) == len(result["column_mean"]) == 1
    rows = table()
    x, z = (rows[rows[:, 3] == label, 1] for label in (1, 0))
    expected = area(np.array(result["weights"]), x[:, None], z[:, None])
    whole = result_of(here(data, *OPTIONS, "--columns", "1", "--test-fraction", 0, "--json"))
    assert whole["train_auc"] == pytest.approx(
        expected if whole["weights"][0] * result["weights"][0] > 0 else 1 - expected
    )


# --- constant columns, workers without a class, what diverges


@pytest.mark.parametrize("value", [1.0, 0.1, 0.7])
def test_a_constant_column_becomes_zeros_and_keeps_its_weight(here: Here, tmp_path: Path, value: float) -> None:
    # 48 times 0.1, rounded, divided by 48 is not 0.1.
    rows = [(*row[:2], value, int(row[3])) for row in table(48).tolist()]
    file = write_csv(tmp_path / "constant.csv", rows, "a,b,c,y")
    for more in (["--test-fraction", 0], []):
        options = [file, "--label", "y", "--standardize", "--iterations", 40, "--workers", 2, "--seed", 0, *more]
        zeros = result_of(here(*options, "--init", "zeros", "--json"))  # and nothing on stderr
        assert zeros["weights"][2] == 0.0
        assert all(zeros["weights"][:2])
        assert (zeros["column_mean"][2], zeros["column_deviation"][2]) == (value, 1.0)
        kept = {
            result_of(here(*options, "--iterations", t, "--init", "normal", "--json"))["weights"][2] for t in (1, 40)
        }
        assert len(kept) == 1


def test_a_constant_column_is_no_reason_for_a_warning(mpirun: Mpirun, tmp_path: Path) -> None:
    rows = [(*row[:2], 5, int(row[3])) for row in table(40).tolist()]
    file = write_csv(tmp_path / "constant.csv", rows, "a,b,c,y")
    result = result_of(mpirun(2, "learn", file, "--label", "y", "--standardize", "--init", "zeros", "--json"))
    assert result["weights"][2] == 0.0 and all(result["weights"][:2])


def test_a_worker_without_a_class_is_refused_or_dealt_with_as_told(mpirun: Mpirun, here: Here, tmp_path: Path) -> None:
    rows = table(40).tolist()
    positives, negatives = ([row for row in rows if row[3] == label] for label in (1, 0))
    # Of two halves the first has no negative.
    rows = [*positives[:20], *negatives, *positives[20:]]
    assert len(positives) > 20 > len(negatives)
    file = write_csv(tmp_path / "sorted.csv", [(*row[:3], int(row[3])) for row in rows], "a,b,c,y")
    options = [file, "--label", "y", "--seed", 3, "--iterations", 1, "--init", "zeros", "--learning-rate", 1]
    as_is = [*options, "--workers", 2, "--scheme", "as-is", "--test-fraction", 0, "--batch-pairs", "all"]
    told = refusal(mpirun(2, "learn", *as_is))
    assert "1 of 2 workers has no pair (the first is worker 0)" in told and "prop-swor" in told
    assert refusal(here(*as_is)) == told
    second = np.array(rows[20:])
    x, z = (second[second[:, 3] == label, :3] for label in (1, 0))
    gradient = z.mean(axis=0) - x.mean(axis=0)  # at 0 every pair has a loss
    for empty, share in (("skip", 1.0), ("zero", 0.5)):
        for done in (mpirun(2, "learn", *as_is, "--empty", empty, "--json"), here(*as_is, "--empty", empty, "--json")):
            np.testing.assert_allclose(result_of(done)["weights"], -share * gradient, rtol=1e-12)
    # Dealt anew, both workers have pairs.
    dealt = result_of(mpirun(2, "learn", *options, "--json"))
    assert (dealt["scheme"], dealt["iterations"]) == ("prop-swor", 1)
    # A test set would break the blocks.
    assert "--test-fraction 0" in refusal(here(*as_is, "--test-fraction", 0.2))


@pytest.mark.parametrize("n_ranks", [0, 3])
def test_a_descent_that_diverges_says_when_and_writes_nothing(
    mpirun: Mpirun, here: Here, tmp_path: Path, data: Path, n_ranks: int
) -> None:
    options = [data, "--label", "y", "--learning-rate", 1e308, "--output", tmp_path / "model.h5", "--seed", 1, "--json"]
    done = mpirun(n_ranks, "learn", *options) if n_ranks else here(*options)
    assert (done.returncode, done.stdout) == (3, "")
    ours = [line for line in done.stderr.splitlines() if line.startswith("mpi-ustat: ")]
    assert len(ours) == 1 and ours[0].startswith("mpi-ustat: diverged at iteration ")
    assert "Traceback" not in done.stderr and "Warning" not in done.stderr
    if not n_ranks:
        assert done.stderr.splitlines() == ours
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_loss_that_overflows_is_no_crash(here: Here, data: Path) -> None:
    options = ["--learning-rate", 1e200, "--iterations", 1, "--l2", 0.1, "--seed", 1, "--json"]
    done = here(data, "--label", "y", *options)
    assert done.returncode in (0, 3)
    assert "Warning" not in done.stderr
    if done.returncode == 0:
        weights = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["weights"]
        assert max(map(abs, weights)) > 1e150


# --- what is printed and written


def test_the_output_file_holds_weights_and_curves(mpirun: Mpirun, tmp_path: Path, data: Path) -> None:
    output = tmp_path / "model.h5"
    result = result_of(mpirun(2, "learn", data, *OPTIONS, "--output", output, "--json"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv", "model.h5"]
    file = load(output)
    values = {name: dataset.values for name, dataset in file.datasets.items()}
    assert file.kind == "learn"
    assert values["weights"].tolist() == result["weights"]
    assert values["iterations"] == result["iterations"] == 23
    assert values["column_mean"].tolist() == result["column_mean"]
    assert values["column_deviation"].tolist() == result["column_deviation"]
    assert values["history/iteration"].tolist() == [0, 10, 20, 23]
    for name in ("train_loss", "train_auc", "test_loss", "test_auc", "bytes_moved", "bytes_reduced", "rows_moved"):
        assert values[f"history/{name}"].shape == (4,)
        assert values[f"history/{name}"][-1] == result[name]
        assert file.datasets[f"history/{name}"].dims == ("evaluation",)
    for phase, seconds in result["seconds"].items():
        assert values[f"history/seconds/{phase}"][-1] == seconds > 0
        assert file.datasets[f"history/seconds/{phase}"].unit == "s"
    expected = {"loss": "hinge", "l2": 0.02, "n_workers": 5, "batch_pairs": 9, "repartition_every": 2, "seed": 12}
    assert (expected | {"columns": ["a", "b", "c"], "iterations": 23}).items() <= file.config.items()
    assert {"test_fraction": 0.2, "standardize": True}.items() <= file.config["data"].items()
    origin = file.provenance
    assert (origin["n_ranks"], origin["n_workers"], origin["seed"]) == (2, 5, 12)
    assert origin["command"].startswith("mpi-ustat learn ")
    assert not any(str(tmp_path) in str(value) for value in (*origin.values(), *file.config.values()))


def test_an_existing_file_is_replaced_when_told(here: Here, tmp_path: Path, data: Path) -> None:
    output = tmp_path / "model.h5"
    output.write_text("precious")
    assert "exists" in refusal(here(data, *OPTIONS, "--output", output))
    assert output.read_text() == "precious"
    result = result_of(here(data, *OPTIONS, "--output", output, "--overwrite", "--json"))
    assert load(output).datasets["weights"].values.tolist() == result["weights"]


def test_a_table_for_people(mpirun: Mpirun, here: Here, tmp_path: Path, data: Path) -> None:
    done = mpirun(2, "learn", data, *OPTIONS, "--output", tmp_path / "model.h5")
    assert (done.returncode, done.stderr) == (0, "")
    told = dict(line.split(maxsplit=1) for line in done.stdout.replace("train ", "train-").splitlines())
    assert told["iterations"] == "23, 5 workers on 2 ranks"
    assert told["repartitioned"] == "every 2 iterations, prop-swor"
    result = result_of(here(data, *OPTIONS, "--json"))
    assert told["train-loss"] == f"{result['train_loss']:.6g}"
    assert told["weights"] == " ".join(f"{c}={w:.6g}" for c, w in zip("abc", result["weights"], strict=True))
    assert told["seed"] == "12"


def test_quiet_prints_nothing(here: Here, data: Path) -> None:
    done = here(data, *OPTIONS, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- failing together


DATA = ["rows.csv", "--label", "y", "--columns", "s,t"]

FAILURES: dict[str, tuple[list[str], str]] = {
    "missing file": (["missing.csv", "--label", "y"], "there is no file 'missing.csv'"),
    "no data": ([], "DATA is missing: give it"),
    "no label": (["rows.csv"], "no label column of 'rows.csv' is chosen"),
    "unknown column": (["rows.csv", "--label", "y", "--columns", "s,height"], "'rows.csv' has no column 'height'"),
    "text column": (["rows.csv", "--label", "y"], "'rows.csv', line 2: column 'word' has 'w0'"),
    "nan": (["nan.csv", "--label", "y"], "'nan.csv', line 13: column 't' is NaN"),
    "infinite": (["infinite.csv", "--label", "y"], "holds an infinite value"),
    "infinite, standardised": (["infinite.csv", "--label", "y", "--standardize"], "infinite"),
    "ragged": (["ragged.csv", "--label", "y"], "'ragged.csv', line 13"),
    "one class": (["one_class.csv", "--label", "y"], "has one value only, '1'"),
    "third label": (["third.csv", "--label", "y"], "has more than two values ('0', '1', '2')"),
    "unknown positive": ([*DATA, "--positive", "yes"], "has the values '0', '1', not 'yes'"),
    "unknown loss": ([*DATA, "--loss", "hinges"], "invalid choice: 'hinges'"),
    "unknown scheme": ([*DATA, "--scheme", "rotate"], "invalid choice: 'rotate'"),
    "unknown init": ([*DATA, "--init", "ones"], "invalid choice: 'ones'"),
    "unknown option": ([*DATA, "--momentun", "0.9"], "there is no option --momentun"),
    "not a number": ([*DATA, "--l2", "small"], "--l2 is 'small': give a number"),
    "no pairs": ([*DATA, "--batch-pairs", "0"], "the number of pairs per worker is 0"),
    "some pairs": ([*DATA, "--batch-pairs", "some"], "--batch-pairs is 'some': give a whole number or all"),
    "rarely": (
        [*DATA, "--repartition-every", "rarely"],
        "--repartition-every is 'rarely': give a whole number or never",
    ),
    "repartition every 0": ([*DATA, "--repartition-every", "0"], "between repartitions is 0"),
    "no iterations": ([*DATA, "--iterations", "0"], "the iterations is 0"),
    "no evaluations": ([*DATA, "--eval-every", "0"], "the eval every is 0"),
    "no workers": ([*DATA, "--workers", "0"], "the number of workers is 0"),
    "too many workers": ([*DATA, "--workers", "6"], "6 workers can't each have a point of a sample of 5"),
    "negative rate": ([*DATA, "--learning-rate", "-1"], "the learning rate is -1.0"),
    "rate nan": ([*DATA, "--learning-rate", "nan"], "the learning rate is nan"),
    "infinite rate": ([*DATA, "--learning-rate", "inf"], "the learning rate is inf"),
    "negative penalty": ([*DATA, "--l2", "-0.1"], "the l2 is -0.1"),
    "momentum 1": ([*DATA, "--momentum", "1"], "the momentum is 1.0: give a number of at least 0 and below 1"),
    "negative decay": ([*DATA, "--decay", "-1"], "the decay is -1.0"),
    "negative seed": ([*DATA, "--seed", "-1"], "the seed is -1"),
    "all for testing": ([*DATA, "--test-fraction", "1"], "the test fraction is 1.0: give a number of at least 0"),
    "negative fraction": ([*DATA, "--test-fraction", "-0.1"], "the test fraction is -0.1"),
    "fraction nan": ([*DATA, "--test-fraction", "nan"], "the test fraction is nan"),
    "too small a fraction": ([*DATA, "--test-fraction", "0.01"], "takes 0 of the 6 points of the sample 0"),
    "move without prop-swor": ([*DATA, "--scheme", "swor", "--move", "smaller"], "moves all samples"),
    "as-is with rounds": ([*DATA, "--scheme", "as-is", "--repartition-every", "5"], "as-is has one partition only"),
    "no such folder": ([*DATA, "--output", "nowhere/out.h5"], "the folder of 'nowhere/out.h5' does not exist"),
    "no such folder, nor data": (["missing.csv", "--label", "y", "--output", "nowhere/out.h5"], "'nowhere' or choose"),
    "existing output": ([*DATA, "--output", "precious.h5"], "the output 'precious.h5' exists"),
    "a folder as output": ([*DATA, "--output", "."], "is a folder"),
}


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A folder with the files that the failures are about."""
    good = [(float(k), (k * k) % 7, k % 2, f"w{k}") for k in range(12)]
    write_csv(tmp_path / "rows.csv", good, "s,t,y,word")
    rows = [row[:3] for row in good]
    write_csv(tmp_path / "nan.csv", [*rows[:-1], (3.0, "NaN", 1)], "s,t,y")
    write_csv(tmp_path / "infinite.csv", [*rows[:-1], ("-inf", 2, 1)], "s,t,y")
    write_csv(tmp_path / "ragged.csv", [*rows[:-1], (1.0, 1)], "s,t,y")
    write_csv(tmp_path / "one_class.csv", [(s, t, 1) for s, t, _ in rows], "s,t,y")
    write_csv(tmp_path / "third.csv", [*rows[:-1], (3.0, 1, 2)], "s,t,y")
    (tmp_path / "precious.h5").write_text("precious")
    return tmp_path


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FAILURES)
def test_a_users_mistake_is_told_in_one_sentence(
    faulty: Path, here: Here, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arguments, sentence = FAILURES[name]
    monkeypatch.chdir(faulty)
    before = listing(faulty)
    done = here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("mpi-ustat: ")
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    assert listing(faulty) == before


@pytest.mark.parametrize(
    ("name", "n_ranks"),
    [
        ("nan", 4),
        ("infinite", 2),
        ("unknown loss", 3),
        ("too small a fraction", 3),
        ("too many workers", 2),
        ("existing output", 3),
    ],
)
def test_several_ranks_fail_together(mpirun: Mpirun, faulty: Path, name: str, n_ranks: int) -> None:
    arguments, sentence = FAILURES[name]
    marker = f"run-of-{faulty.name}-{os.getpid()}"
    before = listing(faulty)
    program = ("-X", f"marker={marker}", "-m", "mpi_ustat")
    done = mpirun(n_ranks, "learn", *arguments, program=program, cwd=faulty)
    assert sentence in refusal(done)
    assert "abort" not in done.stderr.lower()
    assert listing(faulty) == before
    assert processes_left(marker) == []


# --- Shuttle, as the paper describes it


N_WORKERS, N_PAIRS, N_ITERATIONS = 100, 100, 750
STEP, MOMENTUM, L2 = 0.01, 0.9, 0.05


@pytest.fixture(scope="module")
def shuttle(request: pytest.FixtureRequest) -> tuple[list[object], Array, Array]:
    """The arguments that name the data, outliers and inliers."""
    source, arguments = DataSource("shuttle", columns=("all",)), ["shuttle"]
    try:
        samples = read_samples(SerialComm(), source, 1)
    except UserError:
        folder: Path = request.getfixturevalue("shared_data")
        file = folder / "shuttle.npz"
        if not file.is_file():
            pytest.skip(f"the Shuttle data are neither in the package river nor at {file}")
        arguments = [str(file), "--label", "y", "--positive", "1"]
        samples = read_samples(SerialComm(), DataSource(str(file), label="y", positive="1", columns=("all",)), 1)
    return arguments, samples.x, samples.z


def prepared(x: Array, z: Array) -> list[Array]:
    """Training and test outliers, training and test inliers, as the command splits them for seed 0, standardised."""
    parts = [part for k, rows in enumerate((x, z)) for part in split(SerialComm(), rows, 0.2, Streams(0), k)]
    pooled = np.concatenate(parts[::2])
    return [(rows - pooled.mean(axis=0)) / pooled.std(axis=0) for rows in parts]


def regularised(w: Array, x: Array, z: Array) -> float:
    """Σ max(0, 1 - (s - t)) over all pairs: each s has the t above s - 1 as partners."""
    s, t = np.sort(x @ w), np.sort(z @ w)
    sums = np.append(np.cumsum(t[::-1])[::-1], 0.0)
    first = np.searchsorted(t, s - 1.0)
    return float(((1.0 - s) * (len(t) - first) + sums[first]).sum() / (len(s) * len(t)) + L2 * (w @ w))


def literal(seed: int, parts: list[Array], repartition_every: int | None) -> float:
    """The test loss that the paper's algorithm, written from its description, ends with."""
    rng = np.random.default_rng(seed)
    train_x, test_x, train_z, test_z = parts
    w, velocity = rng.normal(size=train_x.shape[1]), np.zeros(train_x.shape[1])
    workers = np.arange(N_WORKERS)[:, None]
    for t in range(N_ITERATIONS):
        if t == 0 or (repartition_every and t % repartition_every == 0):
            blocks = []
            for rows in (train_x, train_z):
                cuts = np.linspace(0, len(rows), N_WORKERS + 1).astype(int)
                blocks.append((rng.permutation(len(rows)), cuts[:-1], np.diff(cuts)))
        chosen = []
        for order, starts, sizes in blocks:
            inside = (rng.random((N_WORKERS, N_PAIRS)) * sizes[workers]).astype(int)
            chosen.append(order[starts[workers] + inside])
        differences = train_x[chosen[0]] - train_z[chosen[1]]
        active = differences @ w < 1.0
        gradient = -(active[:, :, None] * differences).mean(axis=(0, 1)) + 2 * L2 * w
        velocity = MOMENTUM * velocity + gradient
        w = w - STEP * velocity
    return regularised(w, test_x, test_z)


@pytest.mark.parametrize(
    ("every", "n_runs"),
    [(None, 3), pytest.param(None, 12, marks=pytest.mark.slow), pytest.param(1, 8, marks=pytest.mark.slow)],
)
def test_shuttle_is_learnt_as_the_paper_describes(
    here: Here, shuttle: tuple[list[object], Array, Array], every: int | None, n_runs: int
) -> None:
    """From one split to another the loss varies more than from one run to another, so there is one split."""
    arguments, x, z = shuttle
    parts = prepared(x, z)
    options: dict[str, Any] = {"l2": L2, "learning_rate": STEP, "momentum": MOMENTUM, "repartition_every": every}
    options |= {"n_workers": N_WORKERS, "batch_pairs": N_PAIRS, "iterations": N_ITERATIONS, "eval_every": N_ITERATIONS}
    fits = [
        learn(SerialComm(), parts[0], parts[2], x_test=parts[1], z_test=parts[3], seed=seed, **options)
        for seed in range(n_runs)
    ]
    assert {fit.sizes for fit in fits} == {(2809, 36469)}
    ours = np.array([fit.history["test_loss"][-1] for fit in fits])
    assert ours[0] == pytest.approx(regularised(fits[0].parameters, parts[1], parts[3]), rel=1e-10)
    reference = np.array([literal(seed, parts, every) for seed in range(n_runs)])
    # Runs end within 3e-4 of each other, whatever they start from, and so do the reference's.
    assert ours.std(ddof=1) < 3e-4 and reference.std(ddof=1) < 3e-4
    # Seven standard errors of the difference: the spread of a few runs is itself uncertain.
    assert abs(ours.mean() - reference.mean()) < 7 * math.sqrt((ours.var(ddof=1) + reference.var(ddof=1)) / n_runs)
    if every is None:
        spelled = ["--standardize", "--workers", N_WORKERS, "--batch-pairs", N_PAIRS, "--l2", L2, "--seed", 0]
        spelled += ["--iterations", N_ITERATIONS, "--learning-rate", STEP, "--repartition-every", "never"]
        result = result_of(here(*arguments, *spelled, "--json"))
        # Means and deviations are rounded otherwise, which moves a pair over the kink here and there.
        assert result["test_loss"] == pytest.approx(ours[0], abs=1e-5)
        assert result["test_auc"] > 0.98
        assert (result["n"], result["m"]) == (2809, 36469)


@pytest.mark.slow
def test_the_optimum_of_shuttle_is_the_floor(here: Here, shuttle: tuple[list[object], Array, Array]) -> None:
    from scipy.optimize import minimize

    arguments, x, z = shuttle
    options = [*arguments, "--standardize", "--l2", L2, "--test-fraction", 0, "--eval-every", 1, "--seed", 0, "--json"]
    full = ["--workers", 1, "--batch-pairs", "all", "--repartition-every", "never", "--iterations", 600]
    full += ["--learning-rate", 1 / (2 * L2), "--decay", 1, "--momentum", 0]
    floor = result_of(here(*options, *full))["train_loss"]
    pooled = np.concatenate([x, z])
    x, z = ((rows - pooled.mean(axis=0)) / pooled.std(axis=0) for rows in (x, z))
    least = minimize(regularised, np.zeros(9), args=(x, z), method="Powell", options={"xtol": 1e-6, "ftol": 1e-10})
    assert floor == pytest.approx(least.fun, rel=5e-3)
    stochastic = ["--workers", N_WORKERS, "--iterations", N_ITERATIONS, "--repartition-every", "never"]
    assert least.fun * (1 - 1e-6) < result_of(here(*options, *stochastic))["train_loss"] < 1.05 * least.fun
