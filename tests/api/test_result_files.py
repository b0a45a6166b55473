"""Result files of every kind are objects with the same faces, and xarray reads them."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpi_ustat
from mpi_ustat.estimation.tidy import tidy
from mpi_ustat.inference.rounded import rounded
from mpi_ustat.storage.results import Dataset, ResultFile, load, save
from mpi_ustat.testing.samples import test_samples as several_samples
from mpi_ustat.testing.stored import file_of_test
from mpi_ustat.testing.test import test as two_samples

RNG = np.random.default_rng(5)
COMMANDS: dict[str, list[Any]] = {
    "estimate": ["estimate", "D", "--label", "y", "--columns", "u,v", "--roc", "--difference"],
    "rounds": ["estimate", "D", "--label", "y", "--columns", "u,v", "--workers", 3, "--rounds", 2, "--seed", 1],
    "groups": ["estimate", "D", "--label", "y", "--columns", "u", "--group", "g"],
    "clusters": ["estimate", "D", "--label", "y", "--columns", "u", "--cluster", "g", "--influence"],
    "test": ["estimate", "D", "--label", "y", "--columns", "u,v", "--kernel", "energy", "--test", "--permutations", 19],
    "learn": ["learn", "D", "--label", "y", "--columns", "u,v", "--iterations", 30],
    "plan": ["plan", "D", "--label", "y", "--columns", "u", "--workers", 4, "--target-stderr", 0.1],
    "predict": ["predict", "F/learn.h5", "D"],
}
FIGURE = ResultFile(
    "fig5",
    {"n_runs": 3},
    {"version": "0"},
    datasets={
        "large/local/variance": Dataset(np.arange(4.0), ("large/local/point",), "", "in groups of groups"),
        "large/local/measured/variance": Dataset(np.arange(2.0), ("large/local/measured/measurement",)),
        "large/runs/local": Dataset(np.arange(6.0).reshape(3, 2), ("run", "round")),
    },
    scales={"run": np.arange(3)},
)
KINDS = (*COMMANDS, "figure")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A result file of every kind."""
    from conftest import run_alone

    from mpi_ustat.app.cli import main

    folder = tmp_path_factory.mktemp("kinds")
    y = np.arange(120) % 2
    rows = np.column_stack([y, RNG.normal(size=(120, 2)) + y[:, None], RNG.integers(0, 5, 120)])
    np.savetxt(folder / "data.csv", rows, delimiter=",", header="y,u,v,g", comments="")
    with pytest.MonkeyPatch.context() as patch:
        run_alone(patch)
        for name, words in COMMANDS.items():
            given = [str(each).replace("D", str(folder / "data.csv"), each == "D") for each in words]
            given = [each.replace("F", str(folder), each.startswith("F")) for each in given]
            output = ["--output", str(folder / f"{name}.h5")]
            assert main([*given, *output]) == 0, name
    save(folder / "figure.h5", FIGURE)
    return {name: folder / f"{name}.h5" for name in KINDS}


@pytest.mark.parametrize("name", KINDS)
def test_files_of_every_kind_have_the_same_faces(files: dict[str, Path], name: str, tmp_path: Path) -> None:
    found = mpi_ustat.load(files[name])

    assert 2 <= len(str(found).splitlines()) <= 12 and str(found) in f"{found}"
    assert all(len(line) < 400 for line in str(found).splitlines())
    assert found._repr_html_().startswith("<div>")
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    mpi_ustat.save(found, tmp_path / "again.h5")
    assert mpi_ustat.load(tmp_path / "again.h5").to_dict() == plain
    pandas = pytest.importorskip("pandas")
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame) and len(frame)
    if name == "groups":
        assert found.to_frame("group")["groups/value"].tolist() == found["groups/value"].tolist()
    if name == "learn":
        assert frame["history/train_loss"].tolist() == found["history/train_loss"].tolist()


@pytest.mark.parametrize("n_samples", [2, 3])
def test_the_frame_of_a_test_is_its_tidy_table(n_samples: int, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    comm, samples = mpi_ustat.SerialComm(), [RNG.normal(0.3 * k, 1.0, 30 + k) for k in range(n_samples)]
    tested = partial(several_samples, comm, samples) if n_samples > 2 else partial(two_samples, comm, *samples)
    known = tested("energy", n_permutations=19, seed=1)
    save(tmp_path / "test.h5", file_of_test(known, {}))

    found = mpi_ustat.load(tmp_path / "test.h5")

    rows = found.to_frame().astype(object)
    assert rows.where(rows.notna(), None).to_dict("records") == tidy(known.summary())
    assert (rows["value"][0], rows["p"][0]) == (known.value, known.p)
    assert len(rows) == {2: 1, 3: 1 + 3}[n_samples]
    assert len(found.to_frame("permutation")) == 19
    of_all = "sum over pairs of 3 samples of their energy distance times n_k n_l/(2N):"
    assert f"{'energy distance' if n_samples == 2 else of_all} {known.value:.6g}" == str(found).splitlines()[1]


@pytest.mark.parametrize("name", KINDS)
def test_xarray_opens_files_of_every_kind(files: dict[str, Path], name: str) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    known, seen = load(files[name]), set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = xarray.open_datatree(files[name], engine="h5netcdf")
    assert mpi_ustat.load(files[name]).kind == known.kind  # also while xarray has the file open
    for place in tree.groups:
        for variable, values in tree[place].to_dataset(inherit=False).data_vars.items():
            path = f"{place}/{variable}".strip("/")
            dataset = known.datasets[path]
            assert values.dims == tuple(dim.rpartition("/")[2] for dim in dataset.dims)
            np.testing.assert_array_equal(values.values, dataset.values)
            seen.add(path)
    tree.close()
    assert seen == {*known.datasets}


def test_a_frame_without_pandas_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(mpi_ustat.UserError, match="needs pandas, which is not installed: install it, or use to_dict"):
        mpi_ustat.gini([1.0, 2.0, 4.0]).to_frame()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((0.8021733, 0.00379), "0.80217 ± 0.0038"),
        ((0.8021733, 0.00379, (0.7946, 0.80961)), "0.80217 ± 0.0038, [0.7946, 0.8096]"),
        ((0.5, 0.0996), "0.500 ± 0.10"),  # the error is rounded before its digits are counted
        ((-0.00001, 0.1), "0.000 ± 0.10"),  # no minus zero
        ((123456789.0, 3e5), "(1.23457 ± 0.0030)e+08"),
        ((0.25, None), "0.25"),
        ((1.0, 1e-40), "1.0 ± 1e-40"),
        ((0.1, float("nan"), (0.05, 0.2)), "0.1, [0.05, 0.2]"),
    ],
)
def test_values_are_rounded_to_their_errors(given: Any, text: str) -> None:
    assert rounded(*given) == text


def test_rounding_changes_a_value_by_little_of_its_error() -> None:
    values = RNG.normal(size=500) * 10.0 ** RNG.integers(-8, 9, 500)
    for value, error in zip(values, np.abs(values) * 10.0 ** RNG.uniform(-6, 3, 500), strict=True):
        numbers, _, power = rounded(value, error).partition(")e")
        told, of_error = (float(each.strip("()")) * 10.0 ** int(power or 0) for each in numbers.split(" ± "))
        assert abs(told - value) <= 0.0051 * error  # half of the place behind the error's second digit
        assert abs(of_error - error) <= 0.051 * error
