"""The picture of coverage: how often intervals hold the truth, for each model and each way to estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.paper.experiments_coverage import cells_of, fails
from mpi_ustat.paper.interval_coverage import FLAGGED, LEAST_COVERAGE, PLAIN_COVERAGE
from mpi_ustat.plots.drawing import BAR_STANDARD_ERRORS, legend_below, new_panels, set_title
from mpi_ustat.plots.style import BLUE, GREEN, GREY, INK, ORANGE, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = 3
_LEFT = 84.0  # per cent; what covers less is drawn there, with its number
_SMALL = 6.5
_PALE = "#555555"


def draw_coverage(result: ResultFile) -> Figure:
    """Return the picture of coverage: a row for each cell under the name of its group, in three columns."""
    groups = {result.config["groups"][name]["label"]: cells for name, cells in cells_of(result).items()}
    columns = _dealt(groups)
    most = max(sum(map(_rows, column.values())) for column in columns)
    title = f"Coverage of {100.0 * result.config['confidence']:g} % intervals"
    figure, axes = new_panels(1, len(columns), title, size=(4.6 * len(columns), 1.6 + 0.155 * most))
    for each, column in zip(axes[0], columns, strict=True):
        set_title(each, "")
        _draw_column(each, column, most)
        each.set_xlabel("intervals that hold the truth (%)")
    first = axes[0, 0]
    for colour, face, label in (
        (BLUE, BLUE, "unflagged intervals, where they are 10 % or more"),
        (GREY, "white", "all intervals"),
        (ORANGE, "none", "Wald's, where it is not the one that is given"),
    ):
        first.plot([], [], "o" if face != "none" else "|", mfc=face, mec=colour, color=colour, ls="", label=label)
    note = (
        f"Bars: ± {BAR_STANDARD_ERRORS:g} standard errors. Beside: runs in which the program names a reason for doubt; "
        "red where the cell fails."
    )
    legend_below(figure, first, columns=3, note=note)
    return figure


def _rows(cells: Sequence[Any]) -> float:
    return len(cells) + 1.6


def _dealt(groups: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the groups in their order in `_PANELS` columns at most, the highest of which is as low as can be.

    Columns are filled up to a height; it starts at the mean and grows until so many are enough.
    """
    limit = max(sum(map(_rows, groups.values())) / _PANELS, *map(_rows, groups.values()))
    while True:
        columns: list[dict[str, list[dict[str, Any]]]] = [{}]
        for label, cells in groups.items():
            if sum(map(_rows, columns[-1].values())) + _rows(cells) > limit:
                columns.append({})
            columns[-1][label] = cells
        if len(columns) <= _PANELS:
            return columns
        limit += 0.2


def _draw_column(axes: Axes, groups: Mapping[str, list[dict[str, Any]]], most: float) -> None:
    axes.axvspan(*(100.0 * end for end in PLAIN_COVERAGE), color=GREEN, alpha=0.14, lw=0, zorder=0.5)
    axes.axvline(100.0 * LEAST_COVERAGE, color=INK, lw=0.8, ls=":", zorder=1.0)
    side = axes.get_yaxis_transform()
    y, places, names = 0.0, [], []
    for label, cells in groups.items():
        axes.text(-0.42, y, label, transform=side, va="center", fontweight="bold", fontsize=7.5)
        for cell in cells:
            y += 1.0
            places.append(y)
            names.append(cell["estimator"])
            _draw_cell(axes, cell, y)
            colour = VERMILION if fails(cell) else _PALE
            axes.text(
                1.01, y, f"{100.0 * cell['flagged']:.0f} %", transform=side, va="center", fontsize=_SMALL, color=colour
            )
        y += 1.6
    axes.set(ylim=(most - 0.6, -1.0), xlim=(_LEFT, 100.4), yticks=places)
    axes.set_yticklabels(names, fontsize=_SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def _draw_cell(axes: Axes, cell: Mapping[str, Any], y: float) -> None:
    if cell["wald"] >= 0.01 * _LEFT:
        axes.plot(100.0 * cell["wald"], y, "|", color=ORANGE, ms=6.0, mew=1.2, zorder=2)
    counts = {"coverage": (1.0 - cell["missing"]) * cell["n_runs"], "unflagged": cell["n_unflagged"]}
    beyond = []
    for name, face, colour in (("coverage", "white", GREY), ("unflagged", BLUE, BLUE)):
        share = cell[name]
        if name == "unflagged" and cell["flagged"] >= FLAGGED:
            continue  # those few are not judged
        if 100.0 * share < _LEFT:
            axes.plot(_LEFT, y, "<", mfc=face, mec=colour, ms=4.0, zorder=4, clip_on=False)
            beyond.append(f"{100.0 * share:.0f}")
        elif share <= 1.0:  # there are such runs
            error = 100.0 * BAR_STANDARD_ERRORS * np.sqrt(share * (1.0 - share) / counts[name])
            look: dict[str, Any] = {"color": colour, "mfc": face, "mec": colour}
            axes.errorbar(100.0 * share, y, xerr=error, ls="", marker="o", ms=3.6, elinewidth=1.0, zorder=4, **look)
    if beyond:
        axes.text(_LEFT + 0.3, y, " / ".join(dict.fromkeys(beyond)), fontsize=_SMALL, va="center", color=_PALE)
