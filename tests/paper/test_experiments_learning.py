"""The learning experiments: what their floor is, and that their runs are the library's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.learning.training import set_up
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.paper.experiments_learning import Descents, gaussian_classes, optimum

CONFIG = LearnConfig(l2=0.05, batch_pairs=20, n_workers=10, iterations=40, eval_every=20, seed=3)


@pytest.mark.parametrize("scheme", ["prop-swor", "prop-swr"])
def test_the_floor_is_the_optimum_over_all_rows_whatever_the_scheme(scheme: str) -> None:
    (x, z), test = gaussian_classes(seed=1, run=0)
    x, z = x[:120], z[:150]
    config = replace(CONFIG, scheme=scheme)
    floor = optimum((x, z), test, config, learning_rate=0.05)
    objective = LinearRanking()

    def loss(w: np.ndarray) -> float:
        return objective.block(w, x, z)[0] / (len(x) * len(z)) + 0.05 * float(w @ w)

    # A convex function whose value is no lower anywhere around a point has its minimum there, to first order: the
    # floor is no higher than the loss at the end of any descent, nor than near it.
    learning = Learning(set_up(SerialComm(), (x, z), replace(config, iterations=300, eval_every=300)))
    for _ in learning.run():
        pass
    w = learning.state.parameters
    rng = np.random.default_rng(0)
    around = [w, *(w + scale * rng.normal(size=len(w)) for scale in (1e-3, 1e-2, 1e-1) for _ in range(20))]
    assert floor["train_loss"] <= min(map(loss, around)) + 1e-9
    assert floor["train_loss"] >= min(map(loss, around)) - 0.05  # and of the same problem


def test_a_study_is_the_librarys_descents_with_seeds_that_follow_each_other() -> None:
    data = gaussian_classes(seed=1, run=0)
    train, test = (tuple(rows[:100] for rows in part) for part in data)
    study = Descents(CONFIG, (5, 0), 2, lambda run: (train, test))  # type: ignore[arg-type, return-value]
    values = study.by_one_rank()(range(1, 2))
    assert {name: each.shape for name, each in values.items()} == {
        name: (1, *shape) for name, shape in study.shapes().items()
    }
    for j, every in enumerate((5, None)):
        config = replace(CONFIG, seed=CONFIG.seed + 1, repartition_every=every)
        learning = Learning(set_up(SerialComm(), train, config, tests=test))
        for _ in learning.run():
            pass
        for name, each in values.items():
            assert each[0, j].tobytes() == learning.fit().history[name].tobytes()
