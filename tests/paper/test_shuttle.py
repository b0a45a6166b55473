"""The Shuttle data: complete AUCs that are known, and the real thing end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Mpirun

from mpi_ustat import SerialComm, UserError, estimate
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.storage.data import DataSource, Samples, read_samples
from mpi_ustat.storage.results import load

AUCS = (0.974596, 0.512770, 0.695379, 0.513518, 0.279911, 0.514894, 0.023218, 0.784299, 0.984480)
"""Complete AUC of each feature, ties counted half, outliers positive."""


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest) -> tuple[str, list[str], list[str]]:
    """Where the data are, what names their label, and what their columns are called."""
    try:
        read_samples(SerialComm(), DataSource("shuttle"), 1)
    except UserError:
        folder: Path = request.getfixturevalue("shared_data")
        file = folder / "shuttle.npz"
        if not file.is_file():
            pytest.skip(f"the Shuttle data are neither in the package river nor at {file}")
        return str(file), ["--label", "y", "--positive", "1"], [str(j) for j in range(9)]
    return "shuttle", [], [f"f{j}" for j in range(1, 10)]


def read(comm: Any, source: tuple[str, list[str], list[str]]) -> Samples:
    path, label, columns = source
    options = {"label": label[1], "positive": label[3]} if label else {}
    return read_samples(comm, DataSource(path, columns=tuple(columns), **options), comm.size)


def test_the_complete_aucs_of_all_features(comm: Any, source: tuple[str, list[str], list[str]]) -> None:
    samples = read(comm, source)
    results = [estimate(comm, samples.x[:, j], samples.z[:, j], complete=True, seed=0) for j in range(9)]
    assert [result.value for result in results] == pytest.approx(list(AUCS), abs=1e-6)
    assert {(result.n, result.m, result.n_evaluations) for result in results} == {(3511, 45586, 3511 * 45586)}

    whole = read(SerialComm(), source)
    if comm.rank == 0:
        metrics = pytest.importorskip("sklearn.metrics")
        labels = np.repeat([1, 0], [len(whole.x), len(whole.z)])
        for j, result in enumerate(results):
            area = metrics.roc_auc_score(labels, np.concatenate([whole.x[:, j], whole.z[:, j]]))
            assert abs(result.value - area) < 1e-12


def test_the_ranks_share_the_rows(comm: Any, source: tuple[str, list[str], list[str]]) -> None:
    samples, whole = read(comm, source), read(SerialComm(), source)
    own = np.diff(block_bounds(49097, comm.size))[comm.rank]
    assert len(samples.x) + len(samples.z) == own
    for part, all_rows in ((samples.x, whole.x), (samples.z, whole.z)):
        assert np.concatenate(comm.allgather(part)).tobytes() == all_rows.tobytes()


def test_rounds_on_several_ranks_are_those_of_one(comm: Any, source: tuple[str, list[str], list[str]]) -> None:
    samples, whole = read(comm, source), read(SerialComm(), source)
    for j, kernel in ((8, "auc"), (0, "gini")):
        for shuffle in ("permutation", "matrix"):
            options = {"n_workers": 10, "n_rounds": 2, "shuffle": shuffle, "seed": 1}
            here = estimate(comm, samples.x[:, j], samples.z[:, j], kernel, **options)
            alone = estimate(SerialComm(), whole.x[:, j], whole.z[:, j], kernel, **options)
            assert here.per_worker.tobytes() == alone.per_worker.tobytes()
            assert here.value.hex() == alone.value.hex()
            assert here.rows_moved.tolist() == alone.rows_moved.tolist()


def test_the_main_job(mpirun: Mpirun, tmp_path: Path, source: tuple[str, list[str], list[str]]) -> None:
    path, label, columns = source
    output = tmp_path / "shuttle.h5"
    options = ["--score", columns[8], *label, "--rounds", 10, "--seed", 0, "--reference"]
    done = mpirun(4, "estimate", path, *options, "--output", output, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["complete_value"] == pytest.approx(AUCS[8], abs=1e-6)
    # The spread of ten rounds tells how far their mean may be from the complete value.
    error = np.std(result["per_round"], ddof=1) / np.sqrt(10)
    assert 0 < error < 1e-3
    assert abs(result["estimate"] - result["complete_value"]) < 6 * error
    assert (result["n_ranks"], result["n_workers"], result["scheme"]) == (4, 4, "prop-swor")
    # Three of four rows change the rank, in every round.
    assert result["bytes_moved"] >= 8 * 0.74 * 49097 * 10
    datasets = load(output).datasets
    assert datasets["per_worker/value"].values.shape == (10, 4)
    assert float(datasets["estimate"].values) == result["estimate"]
