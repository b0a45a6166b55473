"""The paper's estimation figures as experiments: what is simulated, and what is made of it.

An experiment is a set of simulations with a summary; its result file holds the value of every run beside the
variances, their standard errors and the theory they are compared with. Figures only draw what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.config import SimulationConfig
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.paper import theory
from mpi_ustat.paper.models import (
    Components,
    normal_product,
    two_point_auc,
    two_point_auc_informative,
    two_point_auc_relative_variance,
)
from mpi_ustat.paper.montecarlo import Simulation, Study, Values
from mpi_ustat.schemes.partition import Ordered, Partition
from mpi_ustat.schemes.registry import SCHEMES
from mpi_ustat.schemes.swor import swor_bias_factor
from mpi_ustat.schemes.variance import Design
from mpi_ustat.storage.results import Dataset

Summary = tuple[dict[str, Dataset], dict[str, NDArray[Any]]]
"""A result's datasets and scales."""

#: ε of the two-point model in the third figure.
EPSILONS = (0.00016, 0.0008, 0.004, 0.02, 0.1, 0.5)

#: Means of the normal product kernel in figures 2, 5 and 6: σ₂² = mean_x², σ₁² = mean_z², σ₀² = 1. With a small σ₂² the
#: pairs that workers never see matter; without, the smaller sample's own variance hides them.
PANELS: dict[str, dict[str, float]] = {
    "small": {"mean_x": 0.03, "mean_z": 1.0},
    "large": {"mean_x": 1.0, "mean_z": 1.0},
}
_SCHEMES = {"fig1": "prop-swor", "fig2": "prop-swor", "fig5": "swor", "fig6": "prop-swr"}
_SIZES: dict[str, int] = {"n": 100_000, "m": 200, "n_workers": 100}
_PAIRS = (10, 100)  # B; a worker of those figures has 2000 local pairs


@dataclass(frozen=True)
class Experiment:
    """What one figure needs.

    Attributes
    ----------
    name : str
        ``fig1`` …
    title : str
        One line for people.
    config : dict
        The options, JSON-able: two experiments of equal `config` give equal datasets.
    studies : dict of str to Study
        What is simulated, by label.
    summarise : callable
        From the values of all runs, by label, to the result's datasets and scales.
    """

    name: str
    title: str
    config: dict[str, Any]
    studies: dict[str, Study]
    summarise: Callable[[Mapping[str, Values]], Summary]


def make_experiment(
    name: str, *, quick: bool = False, n_runs: int | None = None, seed: int = 1, move: str = "both"
) -> Experiment:
    """Return the experiment of a figure of the paper.

    Parameters
    ----------
    name : {"fig1", "fig2", "fig3", "fig5", "fig6"}
    quick : bool
        A tenth of the runs: a picture of the same shape in a tenth of the time.
    n_runs : int, optional
        Instead of the paper's number of runs (fig3: 5000, fig5: 500).
    seed : int
    move : {"both", "smaller"}
        Which samples fig3's repartitions move.
    """
    if name == "fig1":
        title = "Which pairs four statistics evaluate"
        return Experiment(name, title, {"figure": name, "seed": seed}, {}, lambda values: (_evaluated_pairs(seed), {}))
    if name in ("fig2", "fig6"):
        scheme = _SCHEMES[name]
        title = f"Variances under {scheme}, in theory"
        return Experiment(
            name,
            title,
            {"figure": name, "scheme": scheme, "panels": PANELS, **_SIZES},
            {},
            lambda values: (_theory_curves(scheme), {}),
        )
    if name == "fig3":
        runs = n_runs or (500 if quick else 5000)
        return _fig3(runs, seed, move)
    return _fig5(n_runs or (50 if quick else 500), 5 if quick else 20, seed)


def _simulated(
    title: str,
    config: dict[str, Any],
    simulations: Mapping[str, SimulationConfig],
    summary: Callable[[Mapping[str, SimulationConfig], Mapping[str, Values]], Summary],
) -> Experiment:
    studies: dict[str, Study] = {label: Simulation(each) for label, each in simulations.items()}
    return Experiment(config["figure"], title, config, studies, partial(summary, simulations))


# ---------------------------------------------------------------------------------------------------------------------
# Figure 1: which pairs


def _evaluated_pairs(seed: int) -> dict[str, Dataset]:
    """Mark the pairs of 12 × 8 points over 4 workers that each statistic evaluates, and how often."""
    n, m, n_workers, n_rounds, n_pairs = 12, 8, 4, 3, 3
    streams = Streams(seed)
    partition = Partition(SCHEMES[_SCHEMES["fig1"]], (n, m), n_workers, streams, shuffle="permutation")
    workers = np.full((n_rounds, n, m), -1)
    sampled = np.zeros((n, m), dtype=np.int64)
    for t in range(n_rounds):
        x, z = partition.round(t)
        if not (isinstance(x, Ordered) and isinstance(z, Ordered)) or x.order is None or z.order is None:
            raise TypeError("a permutation partition gives the order of all rows")
        for i in range(n_workers):
            rows, columns = x.order[slice(*x.bounds[i : i + 2])], z.order[slice(*z.bounds[i : i + 2])]
            workers[t][np.ix_(rows, columns)] = i
            if t == 0:
                row, column = streams.open("pairs", round=t, worker=i).pairs(len(rows), len(columns), n_pairs)
                np.add.at(sampled, (rows[row], columns[column]), 1)
    dims = ("round", "x", "z")
    return {
        "worker": Dataset(workers, dims, description="worker that sees the pair in a round; -1: none"),
        "sampled": Dataset(sampled, dims[1:], description=f"draws of a pair in round 0, B = {n_pairs} a worker"),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Figures 2 and 6: theory


def _theory_curves(scheme: str) -> dict[str, Dataset]:
    datasets: dict[str, Dataset] = {}
    for panel, means in PANELS.items():
        mean, components = normal_product(**means)
        for label, (pairs, variances) in _curves(scheme, mean, components).items():
            curve = f"{panel}/{label}"  # each has points of its own, so that no dimension is shared
            datasets[f"{curve}/n_pairs"] = Dataset(pairs, (f"{curve}/point",), description="pairs evaluated")
            datasets[f"{curve}/variance"] = Dataset(variances, (f"{curve}/point",), description="exact variance")
    return datasets


def _curves(scheme: str, mean: float, components: Components) -> dict[str, tuple[Floats, Floats]]:
    """Return (pairs evaluated, variance) of each statistic as its T or B grows, by the statistic's label."""
    n, m, n_workers = _SIZES["n"], _SIZES["m"], _SIZES["n_workers"]
    rounds = np.unique(np.round(np.geomspace(1, n_workers, 25)).astype(int))
    of = SCHEMES[scheme]
    # As in the paper: where workers can lack a class by chance, they contribute 0.
    design = Design(scheme=scheme, n_workers=n_workers, empty="zero" if of.random_counts else of.empty)

    def variances(n_pairs: int | None = None) -> Floats:
        designs = [replace(design, n_rounds=int(t), n_pairs=n_pairs) for t in rounds]
        return np.array([theory.variance(components, n, m, each, expectation=mean) for each in designs])

    found = {"complete": (np.array([n * m]), np.array([theory.variance_complete(components, n, m)]))}
    totals = np.unique(np.round(np.geomspace(n_workers * min(_PAIRS), n * m, 40)).astype(int))
    found["sampled"] = (
        totals.astype(float),
        np.array([theory.variance_incomplete(components, n, m, int(b)) for b in totals]),
    )
    found["local"] = rounds * float(n * m / n_workers), variances()
    for b in _PAIRS:
        pairs = rounds * float(n_workers * b)
        found[f"incomplete {b}"] = pairs, variances(b)
        if of.with_replacement:
            printed = [theory.printed_prop_swr(components, n, m, n_workers, n_pairs=b, n_rounds=int(t)) for t in rounds]
            found[f"printed {b}"] = pairs, np.array(printed)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Figure 3: the two-point AUC


def _fig3(n_runs: int, seed: int, move: str) -> Experiment:
    simulations = {}
    for kind, conditional in (("plain", False), ("conditional", True)):
        for i, epsilon in enumerate(EPSILONS):
            simulations[f"{kind} {i}"] = SimulationConfig(
                model="two-point-auc",
                epsilon=epsilon,
                conditional=conditional,
                n=5000,
                m=50,
                n_workers=10,
                n_rounds=4,
                move=move,
                n_runs=n_runs,
                seed=seed + i + len(EPSILONS) * conditional,
            )
    config = {"figure": "fig3", "n_runs": n_runs, "seed": seed, "move": move, "epsilon": list(EPSILONS)}
    config |= {"n": 5000, "m": 50, "n_workers": 10, "n_rounds": 4}
    return _simulated("Variance of the AUC relative to the complete statistic's", config, simulations, _fig3_summary)


def _fig3_summary(simulations: Mapping[str, SimulationConfig], values: Mapping[str, Values]) -> Summary:
    statistics = {"complete": "U_n", "local": "U_{n,N}", "repartitioned": "Û_{n,N,T}"}
    datasets: dict[str, Dataset] = {}
    for kind in ("plain", "conditional"):
        configs = [simulations[f"{kind} {i}"] for i in range(len(EPSILONS))]
        runs = [values[f"{kind} {i}"] for i in range(len(EPSILONS))]
        complete, local = (np.stack([run[name] for run in runs]) for name in ("complete", "local"))
        datasets[f"{kind}/runs/complete"] = Dataset(complete, ("epsilon", "run"), "1", "U_n of each run")
        datasets[f"{kind}/runs/local"] = Dataset(
            local, ("epsilon", "run", "round"), "1", "U_{n,N} of each run's rounds"
        )
        chances = np.array([_chance(config) for config in configs])
        datasets[f"{kind}/probability"] = Dataset(chances, ("epsilon",), "1", "of the event that runs are drawn given")
        columns = {"complete": complete, "local": local[:, :, 0], "repartitioned": local.mean(axis=2)}
        for name, column in columns.items():
            estimates = [
                _variance(1.0 - each, chance) for each, chance in zip(column, chances, strict=True)
            ]  # 1 - U is 0 where nothing is misordered, also outside the event
            exact = np.array([_exact_complete(config) for config in configs])
            for part, index, what in (
                ("relative_variance", 0, "variance"),
                ("standard_error", 1, "its standard error"),
            ):
                datasets[f"{kind}/{name}/{part}"] = Dataset(
                    np.array([each[index] for each in estimates]) / exact,
                    ("epsilon",),
                    "1",
                    f"simulated {what} of {statistics[name]}, over the exact variance of U_n",
                )
    informative = np.count_nonzero(datasets["plain/runs/complete"].values < 1.0, axis=1)
    datasets["plain/complete/informative"] = Dataset(informative, ("epsilon",), "runs", "runs with a misordered pair")
    for name, n_rounds in (("local", 1), ("repartitioned", 4)):
        configs = [simulations[f"plain {i}"] for i in range(len(EPSILONS))]
        datasets[f"exact/{name}"] = Dataset(
            np.array([two_point_auc_relative_variance(c.epsilon, c.n, c.m, c.n_workers, n_rounds) for c in configs]),
            ("epsilon",),
            "1",
            f"exact variance of {statistics[name]}, over that of U_n",
        )
    grid = np.geomspace(EPSILONS[0], EPSILONS[-1], 60)
    datasets["curve/epsilon"] = Dataset(grid, ("point",), "1", "ε of the curves")
    for name, n_rounds in (("local", 1), ("repartitioned", 4)):
        c = simulations["plain 0"]
        ratios = [two_point_auc_relative_variance(float(e), c.n, c.m, c.n_workers, n_rounds) for e in grid]
        datasets[f"curve/{name}"] = Dataset(np.array(ratios), ("point",), "1", "exact relative variance")
    return datasets, {"epsilon": np.array(EPSILONS)}


def _chance(config: SimulationConfig) -> float:
    return two_point_auc_informative(config.epsilon, config.n, config.m) if config.conditional else 1.0


def _exact_complete(config: SimulationConfig) -> float:
    return theory.variance_complete(two_point_auc(config.epsilon)[1], config.n, config.m)


def _variance(values: Floats, chance: float) -> tuple[float, float]:
    """Return the variance of a variable that is 0 but for an event, and its standard error, from draws given the event.

    With P the event's known probability and D the draws, Var = P E[D²] - P² E[D]². The standard error is that of the
    mean of P D² - 2 P² E[D] D, the delta method; for P = 1 and the unbiased variance it is the usual one from the
    fourth central moment, √[(μ₄ - σ⁴(R-3)/(R-1))/R].
    """
    n_runs = len(values)
    mean = float(values.mean())
    if chance == 1.0:
        centred = values - mean
        variance = float(np.sum(centred**2)) / (n_runs - 1)
        return variance, theory.variance_standard_error(variance, float(np.mean(centred**4)), n_runs)
    influence = chance * values**2 - 2.0 * chance**2 * mean * values
    variance = chance * float(np.mean(values**2)) - chance**2 * mean**2
    return variance, float(np.std(influence, ddof=1)) / np.sqrt(n_runs)


# ---------------------------------------------------------------------------------------------------------------------
# Figure 5: SWOR, simulated


def _fig5(n_runs: int, n_rounds: int, seed: int) -> Experiment:
    n, m, n_workers = _SIZES["n"], _SIZES["m"], _SIZES["n_workers"]
    totals = tuple(round(float(b)) for b in np.geomspace(n_workers * min(_PAIRS), 3 * n * m // n_workers, 5))
    simulations = {
        panel: SimulationConfig(
            model="normal-product",
            mean_x=means["mean_x"],
            mean_z=means["mean_z"],
            n=n,
            m=m,
            n_workers=n_workers,
            n_rounds=n_rounds,
            scheme=_SCHEMES["fig5"],
            empty="zero",
            pairs=_PAIRS,
            total_pairs=totals,
            n_runs=n_runs,
            seed=seed + i,
        )
        for i, (panel, means) in enumerate(PANELS.items())
    }
    config: dict[str, Any] = {"figure": "fig5", "scheme": _SCHEMES["fig5"], "n_runs": n_runs, "n_rounds": n_rounds}
    config |= {"seed": seed, "panels": PANELS, "pairs": list(_PAIRS), "total_pairs": list(totals), **_SIZES}
    title = f"Variances under {SCHEMES[_SCHEMES['fig5']].title}, simulated"
    return _simulated(title, config, simulations, _fig5_summary)


def _fig5_summary(simulations: Mapping[str, SimulationConfig], values: Mapping[str, Values]) -> Summary:
    datasets = _theory_curves(_SCHEMES["fig5"])
    for panel, config in simulations.items():
        runs = values[panel]
        for name, dims in (
            ("complete", ()),
            ("local", ("round",)),
            ("incomplete", ("B", "round")),
            ("sampled", ("b",)),
        ):
            datasets[f"{panel}/runs/{name}"] = Dataset(
                runs[name], ("run", *dims), "", "value of each run (of each round, before averaging)"
            )
        n_rounds = np.unique(np.round(np.geomspace(1, config.n_rounds, 5)).astype(int))
        per_round = config.n * config.m / config.n_workers
        points = {
            "complete": [(config.n * config.m, runs["complete"])],
            "sampled": [(b, runs["sampled"][:, j]) for j, b in enumerate(config.total_pairs)],
            "local": [(t * per_round, runs["local"][:, :t].mean(axis=1)) for t in n_rounds],
        }
        for j, b in enumerate(config.pairs):
            points[f"incomplete {b}"] = [
                (t * b * config.n_workers, runs["incomplete"][:, j, :t].mean(axis=1)) for t in n_rounds
            ]
        for label, each in points.items():
            estimates = [_variance(column, 1.0) for _, column in each]
            where = (f"{panel}/{label}/measured/measurement",)
            for part, column, description in (
                ("n_pairs", [pairs for pairs, _ in each], "pairs evaluated (of workers that have some)"),
                ("variance", [estimate[0] for estimate in estimates], "simulated variance"),
                ("standard_error", [estimate[1] for estimate in estimates], "standard error of the variance"),
                ("mean", [column.mean() for _, column in each], "mean over the runs"),
            ):
                datasets[f"{panel}/{label}/measured/{part}"] = Dataset(
                    np.array(column, dtype=np.float64), where, "", description
                )
        mean, _ = normal_product(**PANELS[panel])
        factor = swor_bias_factor(config.n, config.m, config.n_workers)
        datasets[f"{panel}/expectation"] = Dataset(np.array(mean), description="U")
        datasets[f"{panel}/swor_expectation"] = Dataset(
            np.array(factor * mean), description="mean of the statistics: workers without a pair contribute 0"
        )
    scales: dict[str, NDArray[Any]] = {"B": np.array(_PAIRS), "b": np.array(simulations["small"].total_pairs)}
    return datasets, scales
