"""Forest plots: values with their intervals and tests, one below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.estimation.printed import p_equals as told_p
from mpi_ustat.estimation.tidy import Row
from mpi_ustat.inference.rounded import rounded
from mpi_ustat.plots.drawing import on_one_line
from mpi_ustat.plots.style import BLUE, DASHED, INK
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DIFFERENCES = 30


def surest(rows: Sequence[Row]) -> list[Row]:
    """Return rows of differences; of very many, those of the smallest p-values."""
    if len(rows) <= MOST_DIFFERENCES:
        return list(rows)
    order = np.argsort([np.inf if row["p"] is None else row["p"] for row in rows], kind="stable")
    return [rows[j] for j in sorted(order[:MOST_DIFFERENCES])]


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


def p_equals(p: float | None) -> str:
    """Return a p-value as it stands in a picture; empty where there is none."""
    return "" if p is None else f"p {told_p(p)}"


def draw_forest(axes: Axes, rows: Sequence[Row], *, null: float | None = None, colour: str = BLUE) -> None:
    """Draw rows from the top down, what they are at their right, and the line of the null value."""
    for j, row in enumerate(rows):
        value, lower, upper = row["value"], row["lower"], row["upper"]
        bar = None if lower is None else [[max(value - lower, 0.0)], [max(upper - value, 0.0)]]
        axes.errorbar(value, j, xerr=bar, fmt="o", ms=5.5, color=colour, elinewidth=1.6, capsize=3.5, zorder=3)
        text = rounded(value, row["stderr"], None if lower is None else (lower, upper))
        told = "   ".join(filter(None, (text, p_equals(row["p"]))))
        look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(told, (1.0, j), (6.0, 0.0), va="center", fontsize=8.0, **look)
    if null is not None:
        axes.axvline(null, color=INK, ls=DASHED, lw=1.1, zorder=2)
    axes.set_yticks(range(len(rows)), [on_one_line(row["statistic"]) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=6)  # so that long numbers have room
