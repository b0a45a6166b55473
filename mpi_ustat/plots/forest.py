"""Forest plots: values with their intervals and tests, one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.inference.hypotheses import p_text
from mpi_ustat.plots.drawing import on_one_line
from mpi_ustat.plots.style import BLUE, DASHED, INK
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DIFFERENCES = 30


@dataclass(frozen=True)
class Row:
    """A value with its interval and the p-value of its test; NaN where there is none."""

    name: str
    value: float
    lower: float = np.nan
    upper: float = np.nan
    p: float = np.nan


def rows_of_values(result: ResultFile) -> list[Row]:
    """Return the rows of an estimate's values."""
    values = np.atleast_1d(result.datasets["estimate"].values)
    n, missing = len(values), np.full((len(values), 2), np.nan)
    ends = result.datasets["interval"].values.reshape(n, 2) if "interval" in result.datasets else missing
    p = np.atleast_1d(result.datasets["test/p"].values) if "test/p" in result.datasets else missing[:, 0]
    names = result.config.get("columns") or ([str(j) for j in range(n)] if n > 1 else [""])
    table = zip(map(str, names), values.tolist(), *ends.T.tolist(), p.tolist(), strict=True)
    return [Row(name, value, lower, upper, each_p) for name, value, lower, upper, each_p in table]


def rows_of_differences(result: ResultFile) -> list[Row]:
    """Return the rows of the differences between an estimate's values; of very many, those of the smallest p-values."""
    names, rows = result.config.get("columns") or [], []
    for each in result.config.get("differences", ()):
        first, second = (str(names[each[which]]) for which in ("first", "second"))
        lower, upper = (_or_nan(each["interval"].get(end)) for end in ("lower", "upper"))
        test = each.get("test")
        p = _or_nan(test["p"] if test else None)
        rows.append(Row(f"{first} − {second}", each["value"], lower, upper, p))
    if len(rows) <= _MOST_DIFFERENCES:
        return rows
    order = np.argsort([np.inf if np.isnan(row.p) else row.p for row in rows], kind="stable")
    return [rows[j] for j in sorted(order[:_MOST_DIFFERENCES])]


def null_of_differences(result: ResultFile) -> tuple[float, str]:
    """Return the difference that is tested against, and its name."""
    for each in result.config.get("differences", ()):
        if each.get("test") and each["test"].get("one_sided"):
            null = float(each["test"]["null"])
            margin = f"minus the margin, −{-null:g}" if null else "no difference"
            return null, f"{margin}; p one-sided"
    return 0.0, "no difference"


def omnibus_text(result: ResultFile) -> str:
    """Return a line on the test that all of three or more values are equal; empty where there is none."""
    found: Mapping[str, Any] | None = result.config.get("omnibus")
    if not found or np.size(result.datasets["estimate"].values) < 3:
        return ""
    degrees = f"{found['rank']} degree{'s' * (found['rank'] != 1)} of freedom"
    return f"all equal: χ² = {found['statistic']:.4g}, {degrees}, {p_equals(found['p'])}"


def p_equals(p: float) -> str:
    """Return a p-value as it stands in a picture; empty where there is none."""
    text = "" if np.isnan(p) else p_text(p)
    return text and (f"p {text}" if text.startswith("<") else f"p = {text}")


def draw_forest(axes: Axes, rows: Sequence[Row], *, null: float | None = None, colour: str = BLUE) -> None:
    """Draw rows from the top down, what they are at their right, and the line of the null value."""
    for j, row in enumerate(rows):
        bar = None if np.isnan(row.lower) else [[max(row.value - row.lower, 0.0)], [max(row.upper - row.value, 0.0)]]
        axes.errorbar(row.value, j, xerr=bar, fmt="o", ms=5.5, color=colour, elinewidth=1.6, capsize=3.5, zorder=3)
        within = "" if bar is None else f"  [{row.lower:.4g}, {row.upper:.4g}]"
        told = "   ".join(filter(None, (f"{row.value:.4g}{within}", p_equals(row.p))))
        look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(told, (1.0, j), (6.0, 0.0), va="center", fontsize=8.0, **look)
    if null is not None:
        axes.axvline(null, color=INK, ls=DASHED, lw=1.1, zorder=2)
    axes.set_yticks(range(len(rows)), [on_one_line(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else float(value)
