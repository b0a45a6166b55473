"""XGBoost and LightGBM themselves, on shards that differ; skipped where they are not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import shard

from mpi_ustat import SerialComm, UserError, boosters

pytest.importorskip("sklearn")

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

Array = NDArray[Any]
Mpirun = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def xgboost() -> Any:
    return pytest.importorskip("xgboost", reason="XGBoost is not installed")


@pytest.fixture
def lightgbm() -> Any:
    return pytest.importorskip("lightgbm", reason="LightGBM is not installed")


def drifting() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Training and validation rows in an order in which features and shares of positives change.

    Columns have few values, so that XGBoost cuts them at the same places however they are spread.
    """
    table = load_breast_cancer()
    X = np.argsort(np.argsort(table.data, axis=0, kind="stable"), axis=0) // 30
    y = np.where(np.random.default_rng(0).random(len(X)) < 0.15, 1 - table.target, table.target)  # not too easy
    order = np.argsort(X[:, 9] + X[:, 0], kind="stable")
    X, y = X[order].astype(float), y[order]
    held = np.arange(len(X)) % 2 == 0
    return (X[~held], y[~held]), (X[held], y[held])


def test_a_dmatrix_is_read_as_it_is(comm: Any, xgboost: Any) -> None:
    rng = np.random.default_rng(3)
    scores, labels, weights = rng.integers(0, 9, 60) / 8, rng.integers(0, 2, 60), rng.random(60).astype(np.float32)
    own = [shard(comm, each, "uneven") for each in (scores, labels, weights)]
    data = xgboost.DMatrix(np.zeros((len(own[0]), 1)), label=own[1], weight=own[2])
    expected = roc_auc_score(labels, scores, sample_weight=weights)
    assert boosters.auc(comm).value(own[0], data) == pytest.approx(expected, abs=1e-12)
    queries = xgboost.DMatrix(np.zeros((len(own[0]), 1)), label=own[1], qid=np.arange(len(own[0])) // 15)
    of_groups = [
        roc_auc_score(own[1][i : i + 15], own[0][i : i + 15])
        for i in range(0, len(own[0]), 15)
        if 0 < own[1][i : i + 15].mean() < 1
    ]
    expected = np.mean(np.concatenate(comm.allgather(of_groups)))
    assert boosters.auc(comm, groups=True).value(own[0], queries) == pytest.approx(expected, abs=1e-12)
    times = np.arange(1.0, 61.0)
    time, upper = shard(comm, times), shard(comm, np.where(labels, times, np.inf))
    data = xgboost.DMatrix(np.zeros((len(time), 1)), label_lower_bound=time, label_upper_bound=upper)
    assert boosters.metric(comm, "concordance").value(time, data) == 1.0


def trained(xgboost: Any, comm: Any, rows: Any, *callbacks: Any) -> tuple[Any, dict[str, Any], Any]:
    train, valid = (xgboost.DMatrix(*(shard(comm, each) for each in part)) for part in rows)
    log: dict[str, Any] = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "base_score": 0.5, "eval_metric": "auc", "nthread": 1, "max_depth": 3},
        train,
        60,
        evals=[(valid, "valid")],
        custom_metric=boosters.auc(comm),
        early_stopping_rounds=4,
        evals_result=log,
        verbose_eval=False,
        callbacks=list(callbacks),
    )
    return booster, log["valid"], valid


def test_xgboost_stops_everywhere_where_one_process_stops(comm: Any, xgboost: Any) -> None:
    alone = trained(xgboost, SerialComm(), drifting())
    with boosters.xgboost_context(comm):
        assert xgboost.collective.get_rank() == comm.rank
        booster, log, valid = trained(xgboost, comm, drifting())
        predictions = booster.predict(valid)  # by all trees
        value = boosters.auc(comm).value(predictions, valid)
    assert not xgboost.collective.is_distributed()
    assert booster.best_iteration == alone[0].best_iteration < booster.num_boosted_rounds() - 1 < 59
    assert len(set(comm.allgather(tuple(log["auc_exact"])))) == 1
    assert log["auc_exact"] == pytest.approx(alone[1]["auc_exact"], abs=2e-6)  # its log has six digits
    assert alone[1]["auc_exact"] == pytest.approx(alone[1]["auc"], abs=1e-6)
    everyone = comm.allgather((valid.get_label(), predictions))
    # XGBoost's own is the mean of the ranks', weighted by their pairs.
    pairs = [y.sum() * (1.0 - y).sum() for y, _ in everyone]
    assert log["auc"][-1] == pytest.approx(np.average([roc_auc_score(*each) for each in everyone], weights=pairs))
    assert comm.size == 1 or abs(log["auc"][-1] - log["auc_exact"][-1]) > 0.01
    labels, scores = map(np.concatenate, zip(*everyone, strict=True))
    assert value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_what_fails_on_one_rank_fails_on_all(comm: Any, xgboost: Any) -> None:
    class Failing(xgboost.callback.TrainingCallback):  # type: ignore[misc]
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch == 2 and comm.rank == comm.size - 1:
                raise ValueError("no more")
            return False

    with pytest.raises(Exception, match="no more") as caught, boosters.xgboost_context(comm):
        trained(xgboost, comm, drifting(), Failing())
    if comm.size > 1:
        sentence = f"training with XGBoost failed on rank {comm.size - 1}: ValueError: no more"
        assert comm.allgather(str(caught.value)) == [sentence] * comm.size
        assert isinstance(caught.value, UserError)
    with boosters.xgboost_context(comm):  # and it can be started again
        trained(xgboost, comm, drifting())


def test_a_rank_that_fails_alone_ends_the_job(mpirun: Mpirun, xgboost: Any, tmp_path: Path) -> None:
    program = tmp_path / "alone.py"
    program.write_text(
        "from mpi4py import MPI\nfrom mpi_ustat import boosters\ncomm = MPI.COMM_WORLD\n"
        "with boosters.xgboost_context(comm, patience=0.5):\n"
        "    assert comm.rank == 1, 'rank 0 leaves'\n    comm.bcast(None)\n"
    )
    done = mpirun(2, program=(str(program),))
    assert done.returncode != 0
    assert "AssertionError: rank 0 leaves" in done.stderr


def test_lightgbm_stops_by_what_all_ranks_predict(comm: Any, lightgbm: Any) -> None:
    (X, y), valid = drifting()

    def fitted(comm: Any) -> Any:
        rows = lightgbm.Dataset(X, y, free_raw_data=False)
        held = lightgbm.Dataset(*(shard(comm, each) for each in valid), reference=rows)
        return lightgbm.train(
            {"objective": "binary", "metric": "None", "num_threads": 1, "verbose": -1, "deterministic": True},
            rows,
            80,
            valid_sets=[held],
            feval=boosters.auc(comm),
            callbacks=[lightgbm.early_stopping(4, verbose=False)],
        )

    found, alone = fitted(comm), fitted(SerialComm())
    assert found.best_iteration == alone.best_iteration < 76
    expected = roc_auc_score(valid[1], found.predict(valid[0], num_iteration=found.best_iteration))
    assert found.best_score["valid_0"]["auc_exact"] == pytest.approx(expected, abs=1e-12)
    assert len(set(comm.allgather(found.best_score["valid_0"]["auc_exact"]))) == 1


def test_the_booster_libraries_are_imported_only_when_they_are_needed() -> None:
    code = "import sys, mpi_ustat.boosters; print({'xgboost', 'lightgbm', 'mpi4py.MPI'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_a_pairwise_objective_trains_as_in_one_process(comm: Any, xgboost: Any) -> None:
    def fitted(comm: Any) -> tuple[list[float], Any]:
        train, valid = (xgboost.DMatrix(*(shard(comm, each) for each in part)) for part in drifting())
        log: dict[str, Any] = {}
        parameters = {"base_score": 0.0, "nthread": 1, "max_depth": 3, "disable_default_eval_metric": True}
        booster = xgboost.train(
            parameters,
            train,
            12,
            obj=boosters.pairwise_objective(comm),
            evals=[(train, "train"), (valid, "valid")],
            custom_metric=boosters.auc(comm),
            evals_result=log,
            verbose_eval=False,
        )
        return [*log["train"]["auc_exact"], *log["valid"]["auc_exact"]], booster

    alone, _ = fitted(SerialComm())
    with boosters.xgboost_context(comm):
        found, _ = fitted(comm)
    assert len(set(comm.allgather(tuple(found)))) == 1
    assert found == pytest.approx(alone, abs=1e-3)
    assert alone[11] > alone[0] and alone[11] > 0.9


def test_a_pairwise_objective_of_lightgbm(lightgbm: Any) -> None:
    (X, y), (X_valid, y_valid) = drifting()
    parameters = {"objective": boosters.pairwise_objective(SerialComm(), "logistic"), "num_threads": 1, "verbose": -1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), 20)
    assert roc_auc_score(y_valid, booster.predict(X_valid)) > 0.8
