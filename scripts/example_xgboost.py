"""XGBoost over the ranks of an MPI job whose shards differ, stopped early by the exact AUC of all of them.

    mpiexec -n 4 python scripts/example_xgboost.py TRAIN VALID

TRAIN and VALID are files in LIBSVM's format. Their rows are dealt to the ranks in the order of one feature (--by, as
a9a's five age groups), so that what a rank holds has features and a share of positives of its own, as a branch's or a
year's data has. One process, without mpiexec, must find the same best iteration by the exact AUC.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import xgboost
from sklearn.datasets import load_svmlight_files
from sklearn.metrics import roc_auc_score

from mpi_ustat import UserError, boosters
from mpi_ustat.mpi.launch import world

PARAMETERS = {
    "objective": "binary:logistic",
    "base_score": 0.5,
    "learning_rate": 0.5,
    "max_depth": 6,
    "subsample": 1.0,
    "nthread": 1,
    "eval_metric": "auc",  # XGBoost's own, for comparison
}


def shard(comm: Any, rows: Any, labels: Any, features: list[int]) -> xgboost.DMatrix:
    """Return this rank's rows of those in the order of the first of some features that is not 0."""
    key = np.argmax(np.asarray(rows[:, features].todense()) > 0, axis=1)
    order = np.argsort(key, kind="stable")
    mine = np.sort(order[comm.rank * len(order) // comm.size : (comm.rank + 1) * len(order) // comm.size])
    return xgboost.DMatrix(rows[mine], label=labels[mine] > 0)


def train(comm: Any, train: Any, valid: Any, stop_by: str, loss: str | None) -> tuple[Any, dict[str, Any]]:
    log: dict[str, Any] = {}
    stop = xgboost.callback.EarlyStopping(rounds=10, metric_name=stop_by, data_name="valid", maximize=True)
    booster = xgboost.train(
        PARAMETERS,
        train,
        num_boost_round=300,
        obj=boosters.pairwise_objective(comm, loss) if loss else None,
        evals=[(valid, "valid")],
        custom_metric=boosters.auc(comm),
        callbacks=[stop],
        evals_result=log,
        verbose_eval=False,
    )
    return booster, log["valid"]


def main(comm: Any) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("valid")
    parser.add_argument("--by", default="1-5", help="first and last of the features, counted from 1 (default 1-5)")
    parser.add_argument("--pairwise", metavar="LOSS", help="minimise this loss of all pairs of all ranks instead")
    options = parser.parse_args()
    first, last = map(int, options.by.split("-"))
    features = list(range(first - 1, last))
    x, y, x_valid, y_valid = load_svmlight_files([options.train, options.valid])

    with boosters.xgboost_context(comm):
        matrices = [shard(comm, *each, features) for each in ((x, y), (x_valid, y_valid))]
        rates = comm.gather((matrices[0].num_row(), float(matrices[0].get_label().mean())))
        booster, log = train(comm, *matrices, "auc_exact", options.pairwise)
        other, _ = train(comm, *matrices, "auc", options.pairwise)
        predictions = booster.predict(matrices[1], iteration_range=(0, booster.best_iteration + 1))
        exact = boosters.auc(comm).value(predictions, matrices[1])
        everyone = comm.gather((matrices[1].get_label(), predictions))

    if comm.rank == 0:
        labels, scores = map(np.concatenate, zip(*everyone, strict=True))
        best = booster.best_iteration
        print("training rows      ", ", ".join(f"{n} ({rate:.1%} positive)" for n, rate in rates))
        print("by XGBoost's AUC   ", f"best iteration {other.best_iteration}, {log['auc'][other.best_iteration]:.6f}")
        print("by the exact AUC   ", f"best iteration {best}, {exact:.6f}; XGBoost's own there {log['auc'][best]:.6f}")
        print("scikit-learn's AUC ", f"{roc_auc_score(labels, scores):.6f} of the gathered predictions")


if __name__ == "__main__":
    try:
        main(world())
    except UserError as error:
        sys.exit(f"{error}")
