"""The experiment that asks whether the confidence intervals cover, and the tables of its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats
from mpi_ustat.paper.experiments import Experiment, Summary
from mpi_ustat.paper.interval_coverage import COMPARED, CONFIDENCE, ESTIMATORS, GROUPS, Coverage, Group, Outcome
from mpi_ustat.paper.montecarlo import Study, Values
from mpi_ustat.storage.results import Dataset, ResultFile

_KEPT = 1000  # runs whose values are in the file: enough to see a law, where all of them would take ten megabytes
_NOT_RUN = -2
_SHARES = {
    "coverage": "share of the intervals that hold the truth",
    "unflagged": "share of the unflagged runs whose interval holds the truth",
    "flagged": "share of the runs with a reason to doubt",
    "missing": "share of the runs without an interval",
    "outside": "share of the runs whose interval leaves the range of what is estimated",
}


def coverage(*, seed: int, n_runs: int | None = None, quick: bool = False, cells: Sequence[str] = ()) -> Experiment:
    """Return the experiment: for each model R data sets, and on each several ways to estimate, with their intervals.

    Parameters
    ----------
    seed : int
        Of the first of all groups of `mpi_ustat.paper.interval_coverage.GROUPS`; those after it have the next ones.
    n_runs : int, optional
        R of every group instead of its own; the standard error of a coverage of 95 % is 0.22/√R.
    quick : bool
        A tenth of a group's own runs.
    cells : sequence of str
        Patterns of names of groups, such as ``gini*``; none: all.

    Raises
    ------
    UserError
        If a pattern fits no group.
    """
    chosen = _chosen(cells)
    runs = {name: n_runs or GROUPS[name].n_runs // (10 if quick else 1) for name in chosen}
    covers = {
        name: Coverage(group, runs[name], seed + i) for i, (name, group) in enumerate(GROUPS.items()) if name in chosen
    }
    studies: dict[str, Study] = dict(covers.items())
    options = {
        "figure": "coverage",
        "seed": seed,
        "confidence": CONFIDENCE,
        "groups": {name: _described(GROUPS[name], runs[name]) for name in chosen},
    }
    title = "Do the confidence intervals cover?"
    return Experiment("coverage", title, options, studies, _summary)


def _chosen(patterns: Sequence[str]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in GROUPS):
            raise UserError(f"no cells are called {pattern}: there are {', '.join(GROUPS)}")
    return [name for name in GROUPS if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


def _described(group: Group, n_runs: int) -> dict[str, Any]:
    return {
        "label": group.label,
        "kernel": group.model.kernel,
        "kernel_options": group.model.kernel_options,
        "sizes": list(group.model.sizes),
        "n_workers": group.n_workers,
        "n_runs": n_runs,
        "estimators": group.estimators,
    }


def _summary(values: Mapping[str, Values]) -> Summary:
    cells = [(name, j) for name in values for j in range(len(GROUPS[name].estimators))]
    runs = [{statistic: of_runs[:, j] for statistic, of_runs in values[name].items()} for name, j in cells]
    outcomes = [Outcome.of(each["holds"], each["flags"], each["outside"], each["wald"]) for each in runs]
    verdicts = [
        GROUPS[name].verdict(list(GROUPS[name].estimators)[j], outcome)
        for (name, j), outcome in zip(cells, outcomes, strict=True)
    ]

    def column(numbers: Sequence[Any], unit: str, description: str) -> Dataset:
        return Dataset(np.array(numbers), ("cell",), unit, description)

    wald = [each["wald"][~np.isnan(each["wald"])] for each in runs]
    shares = {
        name: column([getattr(outcome, name) for outcome in outcomes], "1", text) for name, text in _SHARES.items()
    }
    datasets = {
        "truth": column([GROUPS[name].model.truth for name, _ in cells], "", "what is estimated"),
        "mean": column([each["estimate"].mean() for each in runs], "", "mean of the estimates"),
        "variance": column([each["estimate"].var(ddof=1) for each in runs], "", "variance of the estimates"),
        "mean_variance": column([_mean(each["variance"]) for each in runs], "", "mean of the estimated variances"),
        "n_runs": column([outcome.n_runs for outcome in outcomes], "", "runs"),
        "n_unflagged": column([outcome.n_unflagged for outcome in outcomes], "", "runs without a reason to doubt"),
        **shares,
        "wald": column([_mean(each) for each in wald], "1", "coverage of Wald's interval, where another is given"),
        "verdict": column(verdicts, "", "whether the intervals are what they claim"),
        "runs/holds": _by_run(
            [np.where(np.isnan(each["holds"]), -1.0, each["holds"]) for each in runs],
            "1: the interval holds the truth; 0: it does not; -1: there is none; -2: no such run",
        ),
        "runs/flags": _by_run([each["flags"] for each in runs], "number of reasons to doubt; -2: no such run"),
    }
    for name in ("estimate", "variance"):
        kept = np.full((len(runs), min(_KEPT, max(outcome.n_runs for outcome in outcomes))), np.nan)
        for row, each in zip(kept, runs, strict=True):
            row[: len(each[name])] = each[name][: len(row)]
        datasets[f"runs/{name}"] = Dataset(kept, ("cell", "kept"), "", f"{name} of each of the first runs")
    labels = [f"{name}: {list(GROUPS[name].estimators)[j]}" for name, j in cells]
    return datasets, {"cell": np.array(labels)}


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else np.nan


def _by_run(values: Sequence[Floats], description: str) -> Dataset:
    found = np.full((len(values), max(map(len, values))), _NOT_RUN, dtype=np.int8)
    for row, each in zip(found, values, strict=True):
        row[: len(each)] = each
    return Dataset(found, ("cell", "run"), "", description)


def merged(old: ResultFile, new: ResultFile) -> ResultFile:
    """Return a result with the groups of two, those of the newer where both have one, in the order of all groups.

    Raises
    ------
    UserError
        If they are of other options than the groups.
    """
    if any(old.config.get(name) != new.config.get(name) for name in ("figure", "seed", "confidence")):
        raise UserError("the two files are not of one study: make them with the same --seed")
    sources = [old, new]
    names = [name for name in GROUPS if any(name in each.config["groups"] for each in sources)]
    source = {name: 1 if name in new.config["groups"] else 0 for name in names}
    places = [
        (source[name], at)
        for name in names
        for at, cell in enumerate(sources[source[name]].scales["cell"].tolist())
        if cell.partition(": ")[0] == name
    ]

    def together(arrays: Sequence[Any]) -> Any:
        fill = _NOT_RUN if arrays[0].dtype.kind == "i" else np.nan
        widths = [each.shape[1:] for each in arrays]
        if arrays[0].ndim == 2:
            longest = max(max(widths))
            arrays = [np.pad(each, [(0, 0), (0, longest - each.shape[1])], constant_values=fill) for each in arrays]
        return np.array([arrays[which][at] for which, at in places])

    datasets = {
        name: Dataset(together([each.datasets[name].values for each in sources]), of.dims, of.unit, of.description)
        for name, of in new.datasets.items()
    }
    config = new.config | {"groups": {name: sources[source[name]].config["groups"][name] for name in names}}
    provenance = old.provenance | {"merged_command": new.provenance.get("command", "")}
    return ResultFile(new.kind, config, provenance, datasets, {"cell": together([e.scales["cell"] for e in sources])})


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def has_verdicts(result: ResultFile) -> bool:
    """Tell whether a result of kind "coverage" has cells, as those of earlier versions have not."""
    return "verdict" in result.datasets


def cells_of(result: ResultFile) -> dict[str, list[dict[str, Any]]]:
    """Return the datasets of each cell of a result of kind "coverage", by group."""
    if not has_verdicts(result):
        raise UserError("an earlier version wrote this coverage file: make it again (mpi-ustat reproduce coverage)")
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in result.config["groups"]}
    columns = {name: each.values.tolist() for name, each in result.datasets.items() if "/" not in name}
    for i, cell in enumerate(result.scales["cell"].tolist()):
        name, _, estimator = str(cell).partition(": ")
        groups[name].append({"estimator": estimator} | {column: each[i] for column, each in columns.items()})
    return groups


def coverage_table(result: ResultFile) -> str:
    """Return the coverage of a result of kind "coverage" as tables in Markdown.

    The first has the groups of the common estimators, a row for each. A cell has the coverage in per cent of the
    interval that the program gives, that of Wald's interval where it gives another, and in brackets the share of the
    runs that it flags; a dagger if the cell fails. The second has a row for each cell of the other groups. The last
    lines count the cells that pass, and name those that fail; what is shown for comparison does neither.
    """
    groups, config = cells_of(result), result.config["groups"]
    common = [name for name in groups if config[name]["estimators"] == ESTIMATORS]
    lines: list[str] = []
    if common:
        lines += ["Coverage in per cent: given interval / Wald's, where it is another (runs flagged); † fails", ""]
        lines += [f"| model | {' | '.join(ESTIMATORS)} |", f"|---|{'---|' * len(ESTIMATORS)}"]
        lines += [f"| {config[name]['label']} | {' | '.join(map(_short, groups[name]))} |" for name in common]
        lines.append("")
    others = [name for name in groups if name not in common]
    if others:
        lines += [f"| model | estimator | {' | '.join(_LONG)} |", "|---|---|" + "---|" * len(_LONG)]
        for name in others:
            for i, cell in enumerate(groups[name]):
                label = config[name]["label"] if i == 0 else ""
                lines.append(f"| {label} | {cell['estimator']} | {' | '.join(_long(cell))} |")
        lines.append("")
    all_cells = [(name, cell) for name, each in groups.items() for cell in each if cell["verdict"] != COMPARED]
    failed = [f"{name}, {cell['estimator']}: {cell['verdict']}" for name, cell in all_cells if fails(cell)]
    lines.append(f"{len(all_cells) - len(failed)} of {len(all_cells)} cells pass.")
    return "\n".join(lines + failed)


_LONG = ("runs", "intervals cover", "unflagged cover", "flagged", "no interval", "out of range", "verdict")


def fails(cell: Mapping[str, Any]) -> bool:
    """Tell whether the intervals of a cell are not what they claim to be."""
    return cell["verdict"] not in ("pass", COMPARED)


def _short(cell: Mapping[str, Any]) -> str:
    wald = "" if np.isnan(cell["wald"]) else f" / {_percent(cell['wald'])}"
    return f"{_percent(cell['coverage'])}{wald} ({_percent(cell['flagged'], 0)}){' †' * fails(cell)}"


def _long(cell: Mapping[str, Any]) -> list[str]:
    shares = [_percent(cell[name]) for name in ("coverage", "unflagged", "flagged", "missing", "outside")]
    return [f"{cell['n_runs']}", *shares, cell["verdict"]]


def _percent(share: float, digits: int = 1) -> str:
    return "–" if np.isnan(share) else f"{100.0 * share:.{digits}f}"
