"""Estimates with their intervals, differences, groups and ROC curves: how sure they are, and what they are means of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.api.tables import estimate_rows
from mpi_ustat.plots.drawing import level, on_one_line, set_title
from mpi_ustat.plots.forest import draw_forest, null_of_differences, omnibus_text, p_equals, surest
from mpi_ustat.plots.groups import draw_groups, height
from mpi_ustat.plots.roc import draw_roc, has_roc
from mpi_ustat.plots.style import INK, PURPLE, VERMILION
from mpi_ustat.storage.ranked_groups import RankedGroups, ranked_groups
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_MOST_GROUPED = 4  # statistics whose groups are drawn
_ROC = 4.6  # inches


def draw_inferred(result: ResultFile, title: str, subtitle: str, quantity: str) -> Figure:
    """Return the picture: ROC curves, values with their intervals, differences, and groups, as far as there are any."""
    from matplotlib.figure import Figure

    rows, differences = estimate_rows(result, "estimate"), surest(estimate_rows(result, "difference"))
    grouped = ranked_groups(result)[:_MOST_GROUPED]
    if len(rows) == 1 and grouped:
        figure = Figure(figsize=(6.4, height(grouped[0])))
        _draw_grouped(figure, result, 0, grouped[0], title, quantity)
        return figure
    inches: list[float] = [_ROC] * has_roc(result)
    if len(rows) > 1 or not has_roc(result):
        inches += [1.55 + 0.25 * len(rows)] + [1.45 + 0.23 * len(differences)] * bool(differences)
    parts = [sum(inches)] + ([max(map(height, grouped))] if grouped else [])
    width = max(5.4 if len(inches) == 1 and has_roc(result) else 7.4, 3.9 * len(grouped))
    figure = Figure(figsize=(width, sum(parts)))
    rooms = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=parts)[:, 0]
    panels = list(rooms[0].subplots(len(inches), 1, squeeze=False, height_ratios=inches)[:, 0])
    set_title(panels[0], title, subtitle)
    if has_roc(result):
        draw_roc(panels.pop(0), result)
    if panels:
        draw_values(panels.pop(0), result, quantity)
    if panels:
        draw_differences(panels[0], result)
    if grouped:
        beside = rooms[1].subfigures(1, len(grouped), squeeze=False)[0]
        for j, groups in enumerate(grouped):
            _draw_grouped(beside[j], result, j, groups, on_one_line(rows[j]["statistic"]), quantity)
    return figure


def draw_differences(axes: Axes, result: ResultFile, *, guest: bool = False) -> None:
    """Draw the differences of every two statistics with their intervals and p-values; as a guest without a title."""
    every = estimate_rows(result, "difference")
    rows, (null, name) = surest(every), null_of_differences(result)
    draw_forest(axes, rows, null=null, colour=PURPLE, guest=guest)
    some = f", the {len(rows)} of {len(every)} with the smallest p" if len(rows) < len(every) else ""
    bars, dashed = f"bars: {level(result)} interval", f"dashed: {name}"
    if guest:
        axes.set_xlabel("\n".join([f"differences{some}", bars, dashed]))
        return
    set_title(axes, f"differences{some}", omnibus_text(result))
    axes.set_xlabel(f"difference of the two; {bars}; {dashed}")


def draw_values(axes: Axes, result: ResultFile, quantity: str, *, guest: bool = False) -> None:
    """Draw the values with their intervals, and the value that is tested."""
    rows = estimate_rows(result, "estimate")
    tested = "test/null" in result.datasets and not np.isnan(result.datasets["test/null"].values)
    null = float(result.datasets["test/null"].values) if tested else None
    draw_forest(axes, rows, null=null, guest=guest)
    notes = [f"bars: {level(result)} interval"] if any(row["lower"] is not None for row in rows) else []
    notes += [f"dashed: null value {null:g}"] if null is not None else []
    to_complete = [row["stderr_to_complete"] or 0.0 for row in rows]
    if any(to_complete):
        thick: dict[str, Any] = {"fmt": "none", "ecolor": VERMILION, "elinewidth": 5.0, "alpha": 0.55, "zorder": 2.5}
        axes.errorbar([row["value"] for row in rows], range(len(rows)), xerr=to_complete, **thick)
        notes.append("thick: ± standard error to $U_n$")
    if "complete_value" in result.datasets and not result.config.get("complete"):
        complete = np.atleast_1d(result.datasets["complete_value"].values)
        axes.plot(complete, np.arange(len(complete)), "|", ms=14.0, color=INK, zorder=4)
        notes.append("tick: complete statistic")
    of_line = 1 if guest else 2
    lines = ["; ".join(notes[k : k + of_line]) for k in range(0, len(notes), of_line)]
    axes.set_xlabel("\n".join([quantity, *lines]))


def _draw_grouped(
    figure: FigureBase, result: ResultFile, j: int, groups: RankedGroups, title: str, quantity: str
) -> None:
    rows = estimate_rows(result, "estimate")
    row, ends, about = rows[j], None, f"line: mean of groups, {rows[j]['value']:.4g}"
    if row["lower"] is not None:
        ends = np.array([row["lower"], row["upper"]])
        about += f"; band: {level(result)} interval"
        if len(rows) == 1:  # of several a forest plot says so
            about += f", [{row['lower']:.4g}, {row['upper']:.4g}]"
    if len(rows) == 1 and row["p"] is not None:
        about += f"\nagainst {row['null']:g}: {p_equals(row['p'])}"
    draw_groups(figure, groups, row["value"], ends, title, about, quantity)
