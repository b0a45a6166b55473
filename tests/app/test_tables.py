"""`--output` as JSON, CSV or Parquet: tidy tables of what the HDF5 file holds, whole or not at all."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, write_csv
from numpy.testing import assert_array_equal

from mpi_ustat.storage import files
from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]

COLUMNS = ["quantity", "statistic", "value", "stderr", "lower", "upper", "confidence", "stderr_to_complete"]
COMMON = ("t.csv", "--label", "label", "--seed", "1", "--quiet")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    rows = [(*(rng.normal(size=2) + k % 2).tolist(), k % 2, "abc"[k % 3]) for k in range(60)]
    write_csv(tmp_path / "t.csv", rows, "old,new,label,group")


def rows_of(path: str) -> list[dict[str, Any]]:
    """The rows of a CSV file, numbers as such and None for nothing."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


ESTIMATES = {
    "complete": ["--columns", "old,new", "--complete", "--difference"],
    "rounds": ["--columns", "old,new", "--workers", "3", "--rounds", "2", "--reference"],
    "one": ["--columns", "new", "--workers", "3", "--bias-report"],
    "without an error": ["--columns", "new", "--workers", "3", "--rounds", "1", "--no-stderr"],
    "groups": ["--columns", "new", "--complete", "--group", "group"],
    "a test": ["--columns", "old,new", "--kernel", "energy", "--test", "--permutations", "99"],
    "a test of three": ["--columns", "old", "--kernel", "energy", "--test", "--label", "group"],
}


@pytest.mark.parametrize("case", ESTIMATES)
def test_every_format_holds_the_same(here: Here, case: str) -> None:
    for output in ("r.h5", "r.csv", "r.json", "r.parquet"):
        done = here("estimate", *COMMON, *ESTIMATES[case], "--output", output)
        assert (done.returncode, done.stderr) == (0, "")
    stored, rows = load("r.h5"), rows_of("r.csv")
    assert list(rows[0])[: len(COLUMNS) + 3] == [*COLUMNS, "null", "z", "p"]
    estimates = [row for row in rows if row["quantity"] == "estimate"]
    names = [row["statistic"] for row in estimates]
    assert names == (stored.config.get("columns") or [" and ".join(stored.config["data"]["columns"])])

    def agrees(name: str, dataset: str, at: Any = ...) -> None:
        values = np.full(len(names), np.nan)
        if dataset in stored.datasets:
            values = np.atleast_1d(stored.datasets[dataset].values[at])
        assert_array_equal(np.array([row[name] for row in estimates], dtype=np.float64), values)

    agrees("value", "estimate")
    agrees("stderr", "stderr")
    agrees("stderr_to_complete", "stderr_to_complete")
    agrees("lower", "interval", (..., 0))
    agrees("p", "test/p")
    told = json.loads(Path("r.json").read_text())
    assert told["kind"] == stored.kind and told["config"] == stored.config
    assert told["provenance"]["n_ranks"] == 1 and told["estimate"] == stored.datasets["estimate"].values.tolist()
    parquet = pytest.importorskip("pyarrow.parquet").read_table("r.parquet")
    assert parquet.to_pylist() == rows
    assert json.loads(parquet.schema.metadata[b"mpi_ustat"])["config"] == stored.config


def test_what_else_there_is_has_rows_of_its_own(here: Here) -> None:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for case, words in ESTIMATES.items():
        assert here("estimate", *COMMON, *words, "--output", f"{case}.csv").returncode == 0
        found[case] = [(row["quantity"], row["statistic"]) for row in rows_of(f"{case}.csv")]
    estimates = [("estimate", "old"), ("estimate", "new")]
    assert found["complete"] == [*estimates, ("difference", "old - new")]
    both = [(what, name) for what in ("round", "round") for name in ("old", "new")]
    assert found["rounds"] == [*estimates, ("complete", "old"), ("complete", "new"), *both]
    assert found["one"] == [("estimate", "new"), ("complete", "new"), ("bias", "mean"), ("bias", "pooled")]
    assert found["groups"] == [("estimate", "new"), *[("group", "new")] * 3]
    assert [row["group"] for row in rows_of("groups.csv")] == [None, *"abc"]
    assert found["a test of three"][1:] == [("pair", "a, b"), ("pair", "a, c"), ("pair", "b, c")]


def test_a_plan_is_the_table_of_its_choices(here: Here) -> None:
    words = ("plan", "t.csv", "--label", "label", "--columns", "new", "--workers", "4", "--target-stderr", "0.2")
    told = json.loads(here(*words, "--seed", "1", "--output", "p.csv", "--json").stdout)
    rows = rows_of("p.csv")
    assert [row["stderr"] for row in rows] == [each["stderr"] for each in told["choices"]]
    assert [row["recommended"] for row in rows].count("True") == 1


def test_no_table_is_written_over_another_or_by_half(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("estimate", *COMMON, "--columns", "new", "--complete", "--output")
    for output in ("r.csv", "r.json", "r.parquet"):
        assert here(*words, output).returncode == 0
        kept = Path(output).read_bytes()
        assert "exists" in refusal(here(*words, output))
        assert "is also read" in refusal(here("estimate", output, *words[2:], output, "--overwrite"))
        with monkeypatch.context() as full:
            full.setattr(files, "_sync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            assert "the disk is full" in refusal(here(*words, output, "--overwrite"))
        assert Path(output).read_bytes() == kept
    assert sorted(path.name for path in Path().iterdir()) == ["r.csv", "r.json", "r.parquet", "t.csv"]


def test_what_a_table_has_no_place_for_is_refused_before_the_work(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    told = refusal(here("estimate", *COMMON, "--columns", "new", "--complete", "--influence", "--output", "r.csv"))
    assert told.endswith("has no place: end the name of --output in .h5")
    monkeypatch.setattr("mpi_ustat.storage.data.scan", None)
    monkeypatch.setattr("mpi_ustat.storage.table_files.find_spec", lambda name: None)
    told = refusal(here("estimate", *COMMON, "--columns", "new", "--output", "r.parquet"))
    assert told == "Parquet is written by the package pyarrow: pip install 'mpi_ustat[parquet]'"
    for command in ("estimate", "plan"):
        told = refusal(here(command, "t.csv", "--label", "label", "--output", "r.xlsx"))
        assert "end its name in .h5 (in .json, .csv or .parquet for a table, " in told
