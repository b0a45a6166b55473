"""Results in a few lines, rounded to their errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mpi_ustat.api.tables import estimate_rows, several_samples, table
from mpi_ustat.estimation.printed import p_equals
from mpi_ustat.estimation.tidy import Row
from mpi_ustat.inference.hypotheses import p_text
from mpi_ustat.inference.rounded import rounded
from mpi_ustat.storage.results import ResultFile
from mpi_ustat.wording import count_of

_TITLES = {
    "auc": "AUC",
    "vus": "volume under the ROC surface",
    "gini": "Gini mean difference",
    "variance": "variance",
    "kendall": "Kendall's tau-{tau}",
    "concordance": "concordance index",
    "energy": "energy distance",
    "mmd": "squared MMD",
}
_MOST_ROWS = 20


def title(content: ResultFile) -> str:
    """Return the name of an estimate's or a test's statistic, as people say it."""
    kernel = str(content.config.get("kernel", "statistic"))
    options = {"tau": "b"} | (content.config.get("kernel_options") or {})
    return _TITLES.get(kernel, kernel).format_map(options)


def head(content: ResultFile) -> str:
    """Return the line that says most."""
    if content.kind == "estimate" and "estimate" in content.datasets:
        rows, level = estimate_rows(content, "estimate"), _level(content)
        if len(rows) > 1:
            return f"{title(content)}: {len(rows)} values of the same points, with {level} intervals"
        of = f" of {rows[0]['statistic']}" if rows[0]["statistic"] else ""
        return f"{title(content)}{of}: {_number(rows[0], f', {level} interval ')}"
    if content.kind == "test":
        whom = "both" if len(content.datasets["sizes"].values) == 2 else "all"
        return f"test that {whom} samples are of one law: p {p_equals(float(content.datasets['test/p'].values))}"
    if content.kind == "learn":
        n = int(content.datasets["iterations"].values)
        return f"learning by {content.config['loss']} loss: {count_of(n, 'iteration')}"
    if content.kind == "plan":
        return f"plan of {count_of(len(content.datasets['stderr'].values), 'way')} to estimate"
    n = len(content.datasets)
    return f"result of kind {content.kind!r} with {count_of(n, 'array')}"


def lines(content: ResultFile, *, rows: bool = True) -> list[str]:
    """Return the other lines; without `rows` not those that `told_table` has."""
    kinds = {"estimate": _of_estimate, "test": _of_test, "learn": _of_learning, "plan": _of_plan}
    found = list(kinds.get(content.kind, _of_others)(content))
    found = [each for each in found if rows or not each.startswith("  ")]
    return found + [f"beware: {flag}" for flag in content.config.get("flags") or ()]


def told_table(content: ResultFile) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table for a notebook; no rows where the head says all."""
    if content.kind != "estimate" or np.size(content.datasets["estimate"].values) < 2:
        return [], []
    rows = estimate_rows(content)
    shown = [[row["statistic"], _number(row), _p(row)] for row in rows[:_MOST_ROWS]]
    return ["", f"value ± standard error, {_level(content)} interval", "p"], shown


def _of_estimate(content: ResultFile) -> Iterator[str]:
    config = content.config
    if "estimate" in content.datasets and content.datasets["estimate"].values.ndim:
        rows = estimate_rows(content)
        width = max(len(row["statistic"]) for row in rows[:_MOST_ROWS])
        for row in rows[:_MOST_ROWS]:
            against = "" if row["p"] is None else f"   p {p_equals(row['p'])}"
            yield f"  {row['statistic']:<{width}}  {_number(row)}{against}"
        if len(rows) > _MOST_ROWS:
            yield f"  … and {len(rows) - _MOST_ROWS} more: to_frame() has all"
        if config.get("omnibus") and len(estimate_rows(content, "estimate")) > 2:
            yield f"all equal: p {p_equals(config['omnibus']['p'])}"
    else:
        row = estimate_rows(content)[0]
        if row["p"] is not None:
            yield f"test that it is {row['null']:g}: z = {row['z']:.4g}, p {p_equals(row['p'])}"
    how = "all pairs" if config.get("complete") else _rounds(config)
    yield f"{points_text(content)}; {how}"


def _rounds(config: Mapping[str, Any]) -> str:
    return f"{count_of(config['n_rounds'], 'round')} of {count_of(config['n_workers'], 'worker')}"


def points_text(content: ResultFile) -> str:
    """Return how many points of what there are."""
    data, sizes = content.config.get("data") or {}, content.datasets["sizes"].values.tolist()
    if "positive" in data and len(sizes) == 2:
        others = "the rest" if data.get("rest") else "the other"
        return f"{count_of(sizes[0], 'point')} of the class {data['positive']}, {sizes[1]} of {others}"
    if data.get("classes") and len(data["classes"]) == len(sizes):
        named = zip(sizes, data["classes"], strict=True)
        return ", ".join(f"{count_of(n, 'point')} of the class {name}" for n, name in named)
    return f"{' and '.join(map(str, sizes))} points"


def _of_test(content: ResultFile) -> Iterator[str]:
    found, several = content.datasets, "test/several/estimate" in content.datasets
    what = "largest studentised " * several + title(content)
    if several_samples(content):
        samples = f"{len(found['sizes'].values)} samples"
        of_all = f"sum over pairs of {samples} of their {what} times n_k n_l/(2N):"
        what = f"{what} of {samples}" if several else of_all
    which = "all" if content.config.get("exact") else "random"
    blocks = " + ".join(map(str, found["test/n_blocks"].values.tolist()))
    if content.config.get("n_rounds"):
        what += f" by {_rounds(content.config)}"
    yield f"{what} {float(found['estimate'].values):.6g}"
    yield f"{which} {int(found['test/n_permutations'].values)} relabellings of {blocks} blocks; {points_text(content)}"


def _of_learning(content: ResultFile) -> Iterator[str]:
    for points in ("train", "validation", "test"):
        found = [(name, content.datasets.get(f"history/{points}_{name}")) for name in ("auc", "loss")]
        known = [(name, float(each.values[-1])) for name, each in found if each is not None and len(each.values)]
        told = ", ".join(
            f"{name.upper() if name == 'auc' else name} {value:.5g}" for name, value in known if not math.isnan(value)
        )
        if told:
            yield f"{points} points at the last evaluation: {told}"


def _of_plan(content: ResultFile) -> Iterator[str]:
    chosen = int(content.datasets["recommended"].values)
    if chosen < 0:
        yield "none is recommended"
        return
    columns: Any = table(content)
    told = ", ".join(f"{name} {_short(columns[name][chosen])}" for name in ("scheme", "n_rounds", "stderr", "seconds"))
    yield f"recommended: {told}"
    if content.config.get("command"):
        yield str(content.config["command"])


def _of_others(content: ResultFile) -> Iterator[str]:
    if content.provenance.get("command"):
        yield str(content.provenance["command"])
    yield ", ".join(content.datasets)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _level(content: ResultFile) -> str:
    return f"{100 * content.config.get('confidence', 0.95):g} %"


def _number(row: Row, before_interval: str = ", ") -> str:
    """Return a row's value with its error and interval."""
    ends = None if row["lower"] is None else (row["lower"], row["upper"])
    return rounded(row["value"], row["stderr"], ends).replace(", [", f"{before_interval}[")


def _p(row: Row) -> str:
    return "" if row["p"] is None else p_text(row["p"])
