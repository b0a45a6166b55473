"""Result files as rows of exact numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.storage.results import ResultFile

Row = dict[str, Any]

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
        return [*statistic_rows(content), *difference_rows(content)]
    found = Counter(each.dims[0] for each in content.datasets.values() if each.dims and each.dims[0])
    along = dimension or _ROWS.get(content.kind) or next((name for name, _ in found.most_common(1)), None)
    if along is None or (dimension is None and along not in found):
        return [{name: each.values.item() for name, each in content.datasets.items() if not each.values.ndim}]
    if along not in found:
        raise UserError(f"nothing in this result is along {along!r}: choose one of {', '.join(sorted(found))}")
    columns = {} if along not in content.scales else {along: content.scales[along]}
    for name, each in content.datasets.items():
        if each.dims and each.dims[0] == along:
            flat = each.values.reshape(len(each.values), -1)
            other = each.dims[1] if each.values.ndim == 2 else ""
            labels = _labels(content, other, flat.shape[1])
            more = {f"{name} ({label})": flat[:, j] for j, label in enumerate(labels)}
            columns |= {name: each.values} if each.values.ndim == 1 else more
    return columns


def _labels(content: ResultFile, dimension: str, n: int) -> list[str]:
    if dimension == "column" and len(content.config.get("columns") or ()) == n:
        return list(map(str, content.config["columns"]))
    return list(map(str, content.scales.get(dimension, np.arange(n)).tolist()))


def names_of(content: ResultFile) -> list[str]:
    """Return what each statistic of an estimate is of: its column or class; empty where that is not known."""
    n = np.size(content.datasets["estimate"].values)
    if n > 1:
        return _labels(content, "column", n)
    columns = (content.config.get("data") or {}).get("columns") or []
    return [" and ".join(map(str, columns)) if len(columns) <= 2 else ""]


def statistic_rows(content: ResultFile) -> Iterator[Row]:
    """Yield a row for each statistic of an estimate."""
    values = np.atleast_1d(content.datasets["estimate"].values)

    def found(name: str, width: int = 1) -> Any:
        each = content.datasets.get(name)
        return np.full((len(values), width), math.nan) if each is None else each.values.reshape(-1, width)

    stderr, ends, z, p = found("stderr"), found("interval", 2), found("test/z"), found("test/p")
    null = float(content.datasets["test/null"].values) if "test/null" in content.datasets else math.nan
    for j, (name, value) in enumerate(zip(names_of(content), values.tolist(), strict=True)):
        lower, upper = ends[j].tolist()
        yield _row(name, value, stderr[j, 0], lower, upper, null, z[j, 0], p[j, 0])


def difference_rows(content: ResultFile) -> Iterator[Row]:
    """Yield a row for each difference of two statistics."""
    names = content.config.get("columns") or ()
    for each in content.config.get("differences") or ():
        name = f"{names[each['first']]} - {names[each['second']]}"
        within, test = each["interval"], each.get("test") or {}
        of_test = (test.get(what) for what in ("null", "z", "p"))
        yield _row(name, each["value"], each["stderr"], within["lower"], within["upper"], *of_test)


def _row(name: str, *numbers: Any) -> Row:
    columns = ("value", "stderr", "lower", "upper", "null", "z", "p")
    return {"statistic": name} | {
        column: math.nan if each is None else float(each) for column, each in zip(columns, numbers, strict=True)
    }
