"""The paper's learning experiment, twice, and a map of where repartitioning matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.descent import Learning
from mpi_ustat.learning.training import set_up
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.paper.experiments import Experiment, Summary
from mpi_ustat.paper.montecarlo import Study, Values
from mpi_ustat.points.preparation import split, standardisation
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.storage.data import DataSource, read_samples
from mpi_ustat.storage.results import Dataset

Arrays = tuple[Floats, Floats]  # x, z

#: n_r of figure 4; 0 stands for never.
REPARTITIONS = (1, 5, 25, 125, 0)
_SCHEMES = {"as-described": "prop-swor", "as-published": "prop-swr"}
PRESETS = tuple(_SCHEMES)
_MEETING_POINTS = 100
"""Of each class and worker whose scores meet in a step of figure 4: as many as are paired where rows travel."""

_CURVES = ("train_loss", "train_auc", "test_loss", "test_auc")

_MAP_WORKERS = (10, 50, 100, 200, 500, 1000)
_MAP_PAIRS = 10_000  # of all workers in an iteration


class Descents(Study):
    """A study of descents with several repartition frequencies; runs differ by their seed.

    Parameters
    ----------
    config : LearnConfig
        The options; run r has the seed config.seed + r.
    repartitions : sequence of int
        n_r to compare, 0 for never.
    n_runs : int
    data : callable
        ``data(run)`` gives the training and the test samples, (x, z) each.
    last_only : bool
        Keep the last evaluation instead of all.
    others : sequence of mapping
        Options of further ways to compare, after these.
    """

    def __init__(
        self,
        config: LearnConfig,
        repartitions: Sequence[int],
        n_runs: int,
        data: Callable[[int], tuple[Arrays, Arrays]],
        *,
        last_only: bool = False,
        others: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.config, self.n_runs, self.data, self.last_only = config, n_runs, data, last_only
        self.ways = (*({"repartition_every": every or None} for every in repartitions), *others)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one run's values by statistic: (way, evaluation), or (way,) of the last one."""
        evaluations = -(-self.config.iterations // self.config.eval_every) + 1
        shape = (len(self.ways), *(() if self.last_only else (evaluations,)))
        return dict.fromkeys(_CURVES, shape)

    def by_all_ranks(self, comm: Any) -> Callable[[range], Values]:
        """Return the function that does runs on all ranks of `comm` together."""
        return lambda runs: self._do(comm, runs)

    def _do(self, comm: Any, runs: range) -> Values:
        values: Values = {name: np.empty((len(runs), *shape)) for name, shape in self.shapes().items()}
        for r, run in enumerate(runs):
            train, test = (tuple(_shard(comm, rows) for rows in part) for part in self.data(run))
            for j, way in enumerate(self.ways):
                config = replace(self.config, seed=self.config.seed + run, **way)
                learning = Learning(set_up(comm, train, config, tests=test))
                for _ in learning.run():
                    pass
                history = learning.fit().history
                for name in _CURVES:
                    values[name][r, j] = history[name][-1] if self.last_only else history[name]
        return values


def _shard(comm: Any, rows: Floats) -> Floats:
    bounds = block_bounds(len(rows), comm.size)
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


def optimum(train: Arrays, test: Arrays, config: LearnConfig, *, learning_rate: float = 0.01) -> dict[str, float]:
    """Return the losses after 2000 steps of full-batch descent: the floor of the training loss, which is convex.

    The step must suit the data: too large a one circles around the optimum, and stochastic descents end below it.
    """
    iterations = 2000
    options = replace(
        config,
        n_workers=1,
        scheme=DEFAULT_SCHEME,  # one worker that has all rows, each once
        batch_pairs=None,
        repartition_every=None,
        iterations=iterations,
        eval_every=iterations,
        decay=0.0,
        learning_rate=learning_rate,
        init="zeros",
    )
    learning = Learning(set_up(SerialComm(), train, options, tests=test))
    for _ in learning.run():
        pass
    return {name: float(values[-1]) for name, values in learning.fit().history.items() if name in _CURVES}


# ---------------------------------------------------------------------------------------------------------------------
# Figure 4


def figure4(preset: str, *, n_runs: int, seed: int, iterations: int = 750) -> Experiment:
    """Return the experiment of figure 4: Shuttle, N = 100, B = 100, step 0.01, momentum 0.9, hinge loss.

    Parameters
    ----------
    preset : {"as-described", "as-published"}
        ``as-described`` is what the paper says: 80 % of the rows for training, prop-swor, penalty 0.05‖w‖² (gradient
        0.1 w). ``as-published`` is what the authors' public scripts do: the training rows are those at the mirrored
        places of the test rows, a fifth of the data that overlaps the test set; workers draw their rows with
        replacement; the gradient of the penalty is 0.05 w; and a constant column is appended, and penalised.
    n_runs, seed, iterations : int
    """
    published = preset == "as-published"
    config = LearnConfig(
        l2=0.025 if published else 0.05,
        learning_rate=0.01,
        momentum=0.9,
        batch_pairs=100,
        n_workers=100,
        scheme=_SCHEMES[preset],
        shuffle="permutation",
        iterations=iterations,
        eval_every=25,
        seed=seed,
    )
    data: list[tuple[Arrays, Arrays]] = []

    def shuttle(run: int) -> tuple[Arrays, Arrays]:
        if not data:
            data.append(_shuttle_as_published(seed) if published else _shuttle_as_described(seed))
        return data[0]

    others = [{"exchange": "scores", "batch_points": _MEETING_POINTS}]
    study = Descents(config, REPARTITIONS, n_runs, shuttle, others=others)

    def summarise(values: Mapping[str, Values]) -> Summary:
        datasets = {}
        for name, found in values["descents"].items():
            unit = "1" if name.endswith("auc") else ""
            *_, scores = np.moveaxis(found, 1, 0)
            for folder, runs, way in (("", found[:, :-1], ("n_r",)), ("by_scores/", scores, ())):
                kept = (*way, "evaluation")
                datasets[f"{folder}runs/{name}"] = Dataset(runs, ("run", *kept), unit, "of each run")
                for label, quantile in (("median", 0.5), ("low", 0.025), ("high", 0.975)):
                    datasets[f"{folder}{label}/{name}"] = Dataset(
                        np.quantile(runs, quantile, axis=0), kept, unit, f"{quantile:g} quantile of the runs"
                    )
        for name, value in optimum(*shuttle(0), config).items():
            datasets[f"optimum/{name}"] = Dataset(np.array(value), description="at the end of a full-batch descent")
        iterations = np.arange(datasets["median/test_loss"].values.shape[1]) * config.eval_every
        return datasets, {"n_r": np.array(REPARTITIONS), "evaluation": np.minimum(iterations, config.iterations)}

    options = {"figure": "fig4", "preset": preset, "n_runs": n_runs, **config.to_json()}
    options["scores_of_points"] = _MEETING_POINTS
    title = f"Learning on Shuttle, {preset.replace('-', ' ')}"
    return Experiment(f"fig4-{preset}", title, options, {"descents": study}, summarise)


def _load_shuttle() -> Arrays:
    samples = read_samples(SerialComm(), DataSource(path="shuttle"), 1)
    return samples.x, samples.z


def _shuttle_as_described(seed: int) -> tuple[Arrays, Arrays]:
    streams = Streams(seed)
    (x, x_test), (z, z_test) = (split(SerialComm(), rows, 0.2, streams, k) for k, rows in enumerate(_load_shuttle()))
    return _standardised((x, z), (x_test, z_test))


def _shuttle_as_published(seed: int) -> tuple[Arrays, Arrays]:
    streams = Streams(seed)
    train, test = [], []
    for k, rows in enumerate(_load_shuttle()):
        chosen = streams.open(f"test set of sample {k}").permutation(len(rows))[: int(0.2 * len(rows))]
        test.append(rows[chosen])
        train.append(rows[-1 - chosen])  # what indexing with ~chosen does
    (x, z), (x_test, z_test) = _standardised((train[0], train[1]), (test[0], test[1]))
    return (_with_constant(x), _with_constant(z)), (_with_constant(x_test), _with_constant(z_test))


def _standardised(train: Arrays, test: Arrays) -> tuple[Arrays, Arrays]:
    scaling = standardisation(SerialComm(), train)
    x, z, x_test, z_test = (scaling.apply(rows) for rows in (*train, *test))
    return (x, z), (x_test, z_test)


def _with_constant(rows: Floats) -> Floats:
    return np.column_stack([rows, np.ones(len(rows))])


# ---------------------------------------------------------------------------------------------------------------------
# Where repartitioning matters


_POINTS, _DIMENSIONS, _SHIFT = 1000, 20, 1.5


def gaussian_classes(*, seed: int, run: int, dimensions: int = _DIMENSIONS) -> tuple[Arrays, Arrays]:
    """Return 1000 training and 5000 test points of each of two unit Gaussians in 20 dimensions, 1.5 apart."""
    streams = Streams(seed)

    def draw(name: str, size: int, mean: float) -> Floats:
        points = streams.open(name, replicate=run).normal(size * dimensions).reshape(size, dimensions)
        points[:, 0] += mean
        return points

    return (draw("x", _POINTS, _SHIFT), draw("z", _POINTS, 0.0)), (
        draw("x test", 5000, _SHIFT),
        draw("z test", 5000, 0.0),
    )


def repartition_map(*, n_runs: int, seed: int, iterations: int = 3000) -> Experiment:
    """Return the experiment that maps excess test loss over n_r and points per worker.

    Two Gaussian classes in 20 dimensions, 1.5 apart along one axis, 1000 training points each, over 10 to 1000 workers:
    the fewer points a worker has, the fewer of all pairs it sees between repartitions. An iteration draws 10⁴ pairs
    in all, whatever N is, so that only the partition makes the difference.
    """
    common = LearnConfig(
        l2=0.002,
        learning_rate=0.01,
        momentum=0.9,
        batch_pairs=1,
        n_workers=1,
        shuffle="permutation",
        iterations=iterations,
        eval_every=iterations,
        seed=seed,
    )

    def gaussians(run: int) -> tuple[Arrays, Arrays]:
        return gaussian_classes(seed=seed, run=run)

    studies: dict[str, Study] = {
        f"N = {n_workers}": Descents(
            replace(common, n_workers=n_workers, batch_pairs=_MAP_PAIRS // n_workers),
            REPARTITIONS,
            n_runs,
            gaussians,
            last_only=True,
        )
        for n_workers in _MAP_WORKERS
    }

    def summarise(values: Mapping[str, Values]) -> Summary:
        losses = np.stack([values[label]["test_loss"] for label in studies])  # (N, run, n_r)
        floor = np.array([optimum(*gaussians(run), common, learning_rate=0.05)["test_loss"] for run in range(n_runs)])
        excess = losses - floor[None, :, None]
        dims = ("N", "run", "n_r")
        spread = excess.std(axis=1, ddof=1) / np.sqrt(n_runs) if n_runs > 1 else np.zeros_like(excess[:, 0])
        return {
            "runs/test_loss": Dataset(losses, dims, "", "test loss at the last iteration"),
            "runs/optimum": Dataset(floor, ("run",), "", "test loss at the end of a full-batch descent"),
            "excess": Dataset(excess.mean(axis=1), ("N", "n_r"), "", "mean over the runs of test loss less optimum"),
            "excess_standard_error": Dataset(spread, ("N", "n_r"), "", "standard error of that mean"),
            "points_per_worker": Dataset(_POINTS / np.array(_MAP_WORKERS), ("N",), "points", "of each class"),
        }, {"N": np.array(_MAP_WORKERS), "n_r": np.array(REPARTITIONS)}

    options = {
        "figure": "fig4-map",
        "n_runs": n_runs,
        "n": _POINTS,
        "d": _DIMENSIONS,
        "shift": _SHIFT,
        "pairs": _MAP_PAIRS,
    }
    title = "Where repartitioning changes what is learnt"
    return Experiment("fig4-map", title, options | common.to_json(), studies, summarise)
