"""`--no-per-worker`: nothing of a single worker is kept, and all else has the same bits; with checkpoints too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from commands import refusal, write_csv

from mpi_ustat.storage.results import load

Here = Callable[..., CompletedProcess[str]]
COMMAND = ("estimate",)
WITHOUT = "--no-per-worker"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(8)
    rows = [(*rng.normal(size=2).tolist(), int(k % 3 == 0)) for k in range(67)]
    return write_csv(tmp_path / "data.csv", rows, "a,b,y")


OPTIONS = ["--label", "y", "--workers", 5, "--seed", 4, "--rounds", 3]
CASES: dict[str, list[Any]] = {
    "all pairs": ["--columns", "a", *OPTIONS],
    "several scores": ["--columns", "a,b", *OPTIONS, "--difference"],
    "sampled pairs": ["--columns", "a", *OPTIONS, "--pairs", 9, "--aggregate", "pooled"],
    "random sizes, sampled": ["--columns", "a", *OPTIONS, "--scheme", "swor", "--workers", 30, "--pairs", 3],
    "no components": ["--columns", "a,b", *OPTIONS, "--kernel", "energy"],
    "combined parts": ["--columns", "a,b", "--kernel", "kendall", "--workers", 5, "--seed", 4, "--rounds", 3],
    "shards": ["--columns", "a", "--label", "y", "--workers", 5, "--bias-report", "--seed", 4],
}


def content(file: Path) -> tuple[dict[str, bytes], dict[str, Any], set[str]]:
    """Return all numbers but times, the options, and the dimensions that have coordinates."""
    result = load(file)
    datasets = {name: each for name, each in result.datasets.items() if not name.startswith("seconds/")}
    return {name: each.values.tobytes() for name, each in datasets.items()}, result.config, set(result.scales)


@pytest.mark.parametrize("case", CASES)
def test_all_else_is_the_same_to_the_bit(here: Here, tmp_path: Path, data: Path, case: str) -> None:
    options = [data, *CASES[case], "--output"]
    told = [here(*options, tmp_path / "all.h5").stdout, here(*options, tmp_path / "sums.h5", WITHOUT).stdout]
    datasets, config, scales = content(tmp_path / "all.h5")
    assert config["per_worker"] is True and {"per_worker/value", "per_worker/n_pairs"} <= datasets.keys()
    kept = {name: each for name, each in datasets.items() if not name.startswith("per_worker/")}
    assert content(tmp_path / "sums.h5") == (kept, config | {"per_worker": False}, scales - {"worker"})
    first, second = ([line for line in each.splitlines() if "sec" not in line and ".h5" not in line] for each in told)
    assert first == second and len(first) > 3
    told_of_file = here(tmp_path / "sums.h5", command=("info",)).stdout
    assert [line.split()[-1] for line in told_of_file.splitlines() if line.split()[:1] == ["per_worker"]] == ["no"]


@pytest.mark.parametrize("case", ["several scores", "random sizes, sampled", "no components"])
def test_a_run_goes_on_without_values_of_workers(here: Here, tmp_path: Path, data: Path, case: str) -> None:
    """Also from a checkpoint that has them; but not the other way round."""
    options = [data, *CASES[case]]
    assert here(*options, WITHOUT, "--output", tmp_path / "whole.h5").returncode == 0
    for name, before in (("with.ck", []), ("sums.ck", [WITHOUT])):
        checkpoint = ["--checkpoint", tmp_path / name, "--checkpoint-every", 1]
        assert here(*options, "--rounds", 2, *before, *checkpoint).returncode == 0
        out = tmp_path / f"{name}.h5"
        assert here(*options, *checkpoint, "--resume", WITHOUT, "--output", out).returncode == 0
        found, wanted = content(out), content(tmp_path / "whole.h5")
        for name_of in (name for name in wanted[0] if not name.endswith("_moved")):
            assert found[0][name_of] == wanted[0][name_of], name_of
    if case != "random sizes, sampled":  # whose averages are kept in any case
        told = refusal(here(*options, "--rounds", 4, "--checkpoint", tmp_path / "sums.ck", "--resume"))
        assert told.endswith("a run without values of each worker: go on with --no-per-worker")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--complete"], "--complete takes all pairs, once: leave out --no-per-worker"),
        ([], "--no-per-worker is of rounds: leave it out, or give --rounds or another option about them"),
    ],
)
def test_all_pairs_have_no_workers_values(here: Here, data: Path, options: list[str], told: str) -> None:
    assert refusal(here(data, "--columns", "a", "--label", "y", WITHOUT, *options)) == told
