"""The experiment that asks whether the confidence intervals cover, and the table of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.app.experiments import Experiment
from mpi_ustat.coverage import CONFIDENCE, DOUBTFUL_MODELS, ESTIMATORS, MODELS, N_WORKERS, Coverage, Model
from mpi_ustat.montecarlo import Study, Values
from mpi_ustat.storage.results import Dataset, ResultFile

INTERVALS = ("wald", "logit")

_KEPT = 1000  # runs whose values are in the file: enough to see a law, where all of them would take ten megabytes
_WHERE = ("model", "estimator")


def coverage(*, n_runs: int, seed: int) -> Experiment:
    """Return the experiment: for each model R data sets, and on each all ways to estimate, with their intervals.

    Parameters
    ----------
    n_runs : int
        R; the standard error of a coverage of 95 % is 0.22/√R.
    seed : int
        Of the first model; those after it have the next ones.
    """
    models = {label: make() for label, make in (MODELS | DOUBTFUL_MODELS).items()}
    covers = {label: Coverage(model, n_runs, seed + i) for i, (label, model) in enumerate(models.items())}
    studies: dict[str, Study] = dict(covers.items())
    options = {
        "figure": "coverage",
        "n_runs": n_runs,
        "seed": seed,
        "n_workers": N_WORKERS,
        "confidence": CONFIDENCE,
        "models": {label: _described(model) for label, model in models.items()},
        "doubtful": list(DOUBTFUL_MODELS),
        "estimators": ESTIMATORS,
    }
    title = "Do the confidence intervals cover?"
    return Experiment("coverage", title, options, studies, lambda values: _summary(models, values))


def _described(model: Model) -> dict[str, Any]:
    return {"kernel": model.kernel, "kernel_options": model.kernel_options, "sizes": list(model.sizes)}


def _summary(
    models: Mapping[str, Model], values: Mapping[str, Values]
) -> tuple[dict[str, Dataset], dict[str, NDArray[Any]]]:
    runs = {name: np.stack([values[label][name] for label in models]) for name in next(iter(values.values()))}
    runs = {name: each.swapaxes(1, 2) for name, each in runs.items()}  # (model, estimator, run)
    datasets = {
        "truth": Dataset(np.array([model.truth for model in models.values()]), ("model",), "", "what is estimated"),
        "mean": Dataset(runs["estimate"].mean(axis=2), _WHERE, "", "mean of the estimates"),
        "variance": Dataset(runs["estimate"].var(axis=2, ddof=1), _WHERE, "", "variance of the estimates"),
        "mean_variance": Dataset(runs["variance"].mean(axis=2), _WHERE, "", "mean of the estimated variances"),
        "flagged": Dataset((runs["flags"] > 0.0).mean(axis=2), _WHERE, "1", "share of the runs with a reason to doubt"),
        "runs/flags": Dataset(runs["flags"].astype(np.uint8), (*_WHERE, "run"), "", "number of reasons to doubt"),
    }
    for kind in INTERVALS:
        given = ~np.isnan(runs[kind])
        count = given.sum(axis=2)
        held = np.nansum(runs[kind], axis=2)
        share = np.where(count > 0, held / np.maximum(count, 1), np.nan)
        error = np.sqrt(share * (1.0 - share) / np.maximum(count, 1))
        outcomes = np.where(given, runs[kind], -1.0).astype(np.int8)
        datasets |= {
            f"{kind}/coverage": Dataset(share, _WHERE, "1", "share of the intervals that hold the truth"),
            f"{kind}/standard_error": Dataset(error, _WHERE, "1", "binomial standard error of that share"),
            f"{kind}/intervals": Dataset(count, _WHERE, "", "runs with such an interval"),
            f"runs/{kind}": Dataset(
                outcomes, (*_WHERE, "run"), "", "1: the interval holds the truth; 0: it does not; -1: there is none"
            ),
        }
    for name in ("estimate", "variance"):
        kept = Dataset(runs[name][:, :, :_KEPT], (*_WHERE, "kept"), "", f"{name} of each of the first runs")
        datasets[f"runs/{name}"] = kept
    scales: dict[str, NDArray[Any]] = {"model": np.array(list(models)), "estimator": np.array(list(ESTIMATORS))}
    return datasets, scales


def coverage_table(result: ResultFile) -> str:
    """Return the coverage of a result of kind "coverage" as two tables in Markdown.

    A row for each model, a column for each estimator. A cell has the coverage in per cent of the Wald interval, that of
    the logit interval (a dash where there is none), and in brackets the share of runs that the program flags. That of
    the interval that the program gives is in bold.
    """
    config, n_runs = result.config, result.config["n_runs"]
    level = 100.0 * config["confidence"]
    error = 100.0 * np.sqrt(config["confidence"] * (1.0 - config["confidence"]) / n_runs)
    names = [str(name) for name in result.scales["estimator"].tolist()]
    header = [f"| model | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    rows = dict(zip(config["models"], _rows(result), strict=True))
    clear = [row for label, row in rows.items() if label not in config["doubtful"]]
    doubtful = [rows[label] for label in config["doubtful"]]
    return "\n".join(
        [
            f"Coverage of {level:g} % intervals in per cent, Wald / logit (runs flagged); the given interval in bold; "
            f"{n_runs} runs, standard error {error:.1f}. Runs without an interval are flagged, and left out of its "
            "coverage.",
            "",
            *header,
            *clear,
            "",
            "Where the normal limit is far:",
            "",
            *header,
            *doubtful,
        ]
    )


def _rows(result: ResultFile) -> list[str]:
    wald, logit = (result.datasets[f"{kind}/coverage"].values for kind in INTERVALS)
    flagged = result.datasets["flagged"].values
    return [
        f"| {label} | {' | '.join(_cell(*each) for each in zip(*of_model, strict=True))} |"
        for label, *of_model in zip(result.config["models"], wald, logit, flagged, strict=True)
    ]


def _cell(wald: float, logit: float, flagged: float) -> str:
    bounded = not np.isnan(logit)
    shown = [f"{100.0 * wald:.1f}", f"{100.0 * logit:.1f}" if bounded else "–"]
    shown[bounded] = f"**{shown[bounded]}**"
    return f"{' / '.join(shown)} ({100.0 * flagged:.0f})"
