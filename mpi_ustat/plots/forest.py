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
from mpi_ustat.wording import count_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DIFFERENCES = 30
_ROOM_FOR_TEXT, _LONG_NAME = 20.0, 14  # points, letters


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
    degrees = f"{count_of(found['rank'], 'degree')} of freedom"
    return f"all equal: χ² = {found['statistic']:.4g}, {degrees}, {p_equals(found['p'])}"


def p_equals(p: float | None) -> str:
    """Return a p-value as it stands in a picture; empty where there is none."""
    return "" if p is None else f"p {told_p(p)}"


def draw_forest(
    axes: Axes, rows: Sequence[Row], *, null: float | None = None, colour: str = BLUE, guest: bool = False
) -> None:
    """Draw rows from the top down, what they are at their right, and the line of the null value.

    As a guest in axes of the user, what they are but for the drawn interval is above each bar, where that has room.
    """
    room = axes.bbox.height / axes.figure.dpi * 72.0 / max(len(rows), 1)  # points, of a row
    for j, row in enumerate(rows):
        value, lower, upper = row["value"], row["lower"], row["upper"]
        bar = None if lower is None else [[max(value - lower, 0.0)], [max(upper - value, 0.0)]]
        axes.errorbar(value, j, xerr=bar, fmt="o", ms=5.5, color=colour, elinewidth=1.6, capsize=3.5, zorder=3)
        text = rounded(value, row["stderr"], None if lower is None or guest else (lower, upper))
        told = "   ".join(filter(None, (text, p_equals(row["p"]))))
        look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        if not guest:
            axes.annotate(told, (1.0, j), (6.0, 0.0), va="center", fontsize=8.0, **look)
        elif room >= _ROOM_FOR_TEXT:
            behind: dict[str, Any] = {"fc": axes.get_facecolor(), "ec": "none", "alpha": 0.8, "pad": 0.8}
            look |= {"ha": "center", "va": "bottom", "fontsize": 7.0, "bbox": behind}
            axes.annotate(told, (0.5, j), (0.0, 5.5), zorder=2.5, **look)
    if null is not None:
        axes.axvline(null, color=INK, ls=DASHED, lw=1.1, zorder=2)
    written = _on_short_lines if guest else on_one_line
    axes.set_yticks(range(len(rows)), [written(row["statistic"]) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.locator_params(axis="x", nbins=6)  # so that long numbers have room


def _on_short_lines(name: str) -> str:
    """Write a name, that of a long difference on two lines."""
    between = "\n- " if len(name) > _LONG_NAME else " - "
    return between.join(on_one_line(part) for part in name.split(" - ", 1))
