"""The picture of an estimate with tests, differences or groups: how sure its values are, and what they are means of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.plots.drawing import on_one_line, set_title
from mpi_ustat.plots.forest import (
    draw_forest,
    null_of_differences,
    omnibus_text,
    p_equals,
    rows_of_differences,
    rows_of_values,
)
from mpi_ustat.plots.groups import draw_groups, height
from mpi_ustat.plots.style import INK, PURPLE
from mpi_ustat.storage.ranked_groups import RankedGroups, ranked_groups
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_MOST_GROUPED = 4  # statistics whose groups are drawn


def has_inference(result: ResultFile) -> bool:
    """Return whether there is more to an estimate than its value and standard error."""
    return any(name in result.datasets for name in ("test/z", "groups/value", "total_weight"))


def draw_inferred(result: ResultFile, title: str, subtitle: str, quantity: str) -> Figure:
    """Return the picture: a forest plot, of several statistics with their differences, and the groups of each."""
    from matplotlib.figure import Figure

    rows, grouped = rows_of_values(result), ranked_groups(result)[:_MOST_GROUPED]
    if len(rows) == 1 and grouped:
        figure = Figure(figsize=(6.4, height(grouped[0])))
        _draw_grouped(figure, result, 0, grouped[0], title, quantity)
        return figure
    differences = rows_of_differences(result)
    inches = [1.55 + 0.25 * len(rows)] + [1.45 + 0.23 * len(differences)] * bool(differences)
    parts = [sum(inches)] + ([max(map(height, grouped))] if grouped else [])
    width = max(7.4 if len(rows) > 1 else 6.4, 3.9 * len(grouped))
    figure = Figure(figsize=(width, sum(parts)))
    rooms = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=parts)[:, 0]
    panels = rooms[0].subplots(len(inches), 1, squeeze=False, height_ratios=inches)[:, 0]
    _draw_values(panels[0], result, quantity)
    set_title(panels[0], title, subtitle)
    if differences:
        _draw_differences(panels[1], result)
    if grouped:
        beside = rooms[1].subfigures(1, len(grouped), squeeze=False)[0]
        for j, groups in enumerate(grouped):
            _draw_grouped(beside[j], result, j, groups, on_one_line(rows[j].name), quantity)
    return figure


def _draw_differences(axes: Axes, result: ResultFile) -> None:
    rows, several = rows_of_differences(result), len(result.config["differences"])
    null, name = null_of_differences(result)
    draw_forest(axes, rows, null=null, colour=PURPLE)
    some = f", the {len(rows)} of {several} with the smallest p" if len(rows) < several else ""
    set_title(axes, f"differences{some}", omnibus_text(result))
    axes.set_xlabel("difference of the two; dashed: " + name)


def _draw_values(axes: Axes, result: ResultFile, quantity: str) -> None:
    rows = rows_of_values(result)
    tested = "test/null" in result.datasets and not np.isnan(result.datasets["test/null"].values)
    null = float(result.datasets["test/null"].values) if tested else None
    draw_forest(axes, rows, null=null)
    notes = [f"bars: {_level(result)} interval"] if any(not np.isnan(row.lower) for row in rows) else []
    notes += [f"dashed: null value {null:g}"] if null is not None else []
    if "complete_value" in result.datasets and not result.config.get("complete"):
        complete = np.atleast_1d(result.datasets["complete_value"].values)
        axes.plot(complete, np.arange(len(complete)), "|", ms=14.0, color=INK, zorder=4)
        notes.append("tick: complete statistic")
    axes.set_xlabel(quantity + ("\n" + "; ".join(notes) if notes else ""))


def _draw_grouped(
    figure: FigureBase, result: ResultFile, j: int, groups: RankedGroups, title: str, quantity: str
) -> None:
    rows = rows_of_values(result)
    row, ends, about = rows[j], None, f"line: mean of groups, {rows[j].value:.4g}"
    if not np.isnan(row.lower):
        ends = np.array([row.lower, row.upper])
        about += f"; band: {_level(result)} interval"
        if len(rows) == 1:  # of several a forest plot says so
            about += f", [{row.lower:.4g}, {row.upper:.4g}]"
    if len(rows) == 1 and "test/null" in result.datasets:
        about += f"\nagainst {float(result.datasets['test/null'].values):g}: {p_equals(row.p)}" * (not np.isnan(row.p))
    draw_groups(figure, groups, row.value, ends, title, about, quantity)


def _level(result: ResultFile) -> str:
    return f"{100 * result.config.get('confidence', 0.95):g} %"
