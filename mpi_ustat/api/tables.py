"""Result files as rows of exact numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.tidy import Row, tidy
from mpi_ustat.kernels.registry import options_of
from mpi_ustat.storage.results import ResultFile

_ROWS = {"learn": "evaluation", "plan": "choice"}
"""What the rows of a kind's table are."""


def table(content: ResultFile, dimension: str | None = None) -> list[Row] | dict[str, Any]:
    """Return a result's rows, or its columns; all that are along a dimension, or what says most.

    Raises
    ------
    UserError
        If nothing has the dimension.
    """
    if dimension is None and content.kind == "estimate":
        return estimate_rows(content)
    if dimension is None and content.kind == "test":
        return test_rows(content)
    if dimension == "threshold" and "roc/0/fpr" in content.datasets:
        return _curves(content)
    found = Counter(each.dims[0] for each in content.datasets.values() if each.dims and each.dims[0])
    along = dimension or _ROWS.get(content.kind) or next((name for name, _ in found.most_common(1)), None)
    if along is None or (dimension is None and along not in found):
        return [{name: each.values.item() for name, each in content.datasets.items() if not each.values.ndim}]
    if along not in found:
        ways = sorted({"threshold" if name.startswith("threshold of ") else name for name in found})
        raise UserError(f"nothing in this result is along {along!r}: choose one of {', '.join(ways)}")
    columns = {} if along not in content.scales else {along: content.scales[along]}
    for name, each in content.datasets.items():
        if each.dims and each.dims[0] == along:
            flat = each.values.reshape(len(each.values), -1)
            other = each.dims[1] if each.values.ndim == 2 else ""
            labels = _labels(content, other, flat.shape[1])
            more = {f"{name} ({label})": flat[:, j] for j, label in enumerate(labels)}
            columns |= {name: each.values} if each.values.ndim == 1 else more
    return columns


def estimate_rows(content: ResultFile, quantity: str = "") -> list[Row]:
    """Return the rows of an estimate's values and their differences, or those of one ``quantity``: see `tidy`."""
    names, datasets, config = names_of(content), content.datasets, content.config
    several = bool(datasets["estimate"].values.ndim)

    def found(name: str) -> Any:
        return _known(datasets[name].values.tolist()) if name in datasets else None

    def listed(name: str) -> list[Any]:
        return found(name) if several and name in datasets else [found(name)] * len(names)

    null, of_tests = found("test/null"), zip(listed("test/z"), listed("test/p"), strict=True)
    summary = {
        "estimate": found("estimate"),
        "columns": names,
        "stderr": found("stderr"),
        "interval": listed("interval") if several else found("interval"),
        "stderr_to_complete": found("stderr_to_complete"),
        "confidence": config.get("confidence"),
        "tests": [None if z is None else {"null": null, "z": z, "p": p} for z, p in of_tests],
        "kernel": config.get("kernel", ""),
        "complete": True,
        "differences": config.get("differences") or (),
    }
    return [row for row in tidy(summary) if quantity in ("", row["quantity"])]


def test_rows(content: ResultFile) -> list[Row]:
    """Return the rows of a test: its value and p, and those of every two samples of several; see `tidy`."""
    datasets, of_pairs = content.datasets, ("first", "second", "value", "p", "p_holm")
    summary = {
        "estimate": datasets["estimate"].values.item(),
        "kernel": content.config.get("kernel", ""),
        "complete": True,
        "p": datasets["test/p"].values.item(),
    }
    if several_samples(content):
        values = (datasets[f"test/pairs/{name}"].values.tolist() for name in of_pairs)
        summary["classes"] = (content.config.get("data") or {}).get("classes")
        summary["pairs"] = [dict(zip(of_pairs, each, strict=True)) for each in zip(*values, strict=True)]
    return tidy(summary, names_of(content))


def several_samples(content: ResultFile) -> bool:
    """Tell whether a test is one of several samples, which has tests of every two of them."""
    return "test/pairs/p" in content.datasets


def _curves(content: ResultFile) -> dict[str, Any]:
    """Return the points of the ROC curves, one curve below the other; of several, with what each is of."""
    names = names_of(content)
    several = {"statistic": np.repeat(names, [len(_of_curve(content, j, "fpr")) for j in range(len(names))])}
    columns = {
        name: np.concatenate([_of_curve(content, j, name) for j in range(len(names))])
        for name in ("threshold", "fpr", "tpr", "lower", "upper")
    }
    return (several if len(names) > 1 else {}) | columns


def _of_curve(content: ResultFile, j: int, name: str) -> NDArray[Any]:
    return content.datasets[f"roc/{j}/{name}"].values


def names_of(content: ResultFile) -> list[str]:
    """Return the column or class of each statistic of an estimate; empty where it is not known."""
    n = np.size(content.datasets["estimate"].values)
    edges = edges_of(content)
    if edges is not None:
        return [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges.tolist())]
    if content.datasets["estimate"].values.ndim:
        return _labels(content, "column", n)
    columns = (content.config.get("data") or {}).get("columns") or []
    return [" and ".join(map(str, columns)) if len(columns) <= 2 else ""]


def edges_of(content: ResultFile) -> NDArray[Any] | None:
    """Return the edges of the bins whose shares the statistics are; None where they are none."""
    declared = options_of(content.config.get("kernel", "")).get("edges")
    if declared is None:
        return None
    edges = np.array((content.config.get("kernel_options") or {}).get("edges", declared.default), dtype=np.float64)
    return edges if len(edges) == np.size(content.datasets["estimate"].values) + 1 else None


def _labels(content: ResultFile, dimension: str, n: int) -> list[str]:
    names = content.config.get("columns")
    if dimension == "column" and names:
        if len(names) != n:
            raise ValueError("the result has other columns than it says")
        return list(map(str, names))
    return list(map(str, content.scales.get(dimension, np.arange(n)).tolist()))


def _known(value: Any) -> Any:
    """Return numbers, None for NaN."""
    if isinstance(value, list):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
