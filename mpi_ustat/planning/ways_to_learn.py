"""What a step of each way to learn costs in this job: rows that are repartitioned, or scores that are exchanged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.learning.training import set_up
from mpi_ustat.numerics.types import Floats

EVALUATIONS = 100
"""How often L-BFGS looks at all points, about, until it is at the optimum."""

_STEPS = 50  # with two repartitions, where every 25th step has one
_LONG_ENOUGH = 1.0
_DRAWN = 10  # points of each class: with as many of the other a hundred pairs


@dataclass(frozen=True)
class WayToLearn:
    """A way to learn, and what a step of it costs.

    Attributes
    ----------
    options : dict
        Of `mpi_ustat.learn`, where they differ from its defaults.
    seconds : float
        Of a step, with its share of a repartition; of the slowest rank.
    n_bytes : float
        That all ranks send in a step.
    unseen : bool
        Whether there are pairs that no step sees, unless rows move.
    """

    options: dict[str, Any]
    seconds: float
    n_bytes: float
    unseen: bool


def ways_to_learn(comm: Any, samples: Sequence[Floats], config: LearnConfig) -> list[WayToLearn]:
    """Return the ways to learn, each measured over up to 50 steps.  Collective."""
    rows: list[dict[str, Any]] = [{"repartition_every": every} for every in (None, 25, 1)]
    scores: list[dict[str, Any]] = [{"exchange": "scores", "batch_points": points} for points in (_DRAWN, None)]
    return [_measured(comm, samples, replace(config, **options), options) for options in (*rows, *scores)]


def recommended(ways: Sequence[WayToLearn], iterations: int, loss: str, *, unseen_matter: bool) -> dict[str, Any]:
    """Return the options to learn with: the optimum over all points, if it takes no longer than so many steps of rows.

    Otherwise the scores of drawn points, all pairs of which count, or rows: whichever has the shorter step. Rows are
    repartitioned in every step if unseen pairs matter, otherwise every 25.
    """

    def way(**options: Any) -> WayToLearn:
        return next(each for each in ways if options.items() <= each.options.items())

    rows = way(repartition_every=1 if unseen_matter else 25)
    drawn, everything = way(batch_points=_DRAWN), way(batch_points=None)
    if everything.seconds * EVALUATIONS <= iterations * min(rows.seconds, drawn.seconds):
        smooth = LinearRanking(loss).phi.degree != 1
        return everything.options | ({"optimizer": "lbfgs"} if smooth else {})
    return min(rows, drawn, key=lambda each: each.seconds).options


def _measured(comm: Any, samples: Sequence[Floats], config: LearnConfig, options: dict[str, Any]) -> WayToLearn:
    learning = Learning(set_up(comm, samples, config))
    learning.step()  # with what is done once
    before = _sent(comm, learning)
    comm.barrier()
    start, n_steps = time.perf_counter(), 0
    while n_steps < _STEPS:
        learning.step()
        n_steps += 1
        if n_steps in (2, 10) and comm.bcast(time.perf_counter() - start) > _LONG_ENOUGH:
            break
    seconds = max(comm.allgather(time.perf_counter() - start)) / n_steps
    unseen = config.exchange == "rows" and config.repartition_every != 1
    return WayToLearn(options, seconds, (_sent(comm, learning) - before) / n_steps, unseen)


def _sent(comm: Any, learning: Learning) -> int:
    return sum(comm.allgather(learning.state.bytes_moved + learning.state.bytes_reduced))
