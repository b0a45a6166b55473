"""ROC curves with their bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.api.tables import estimate_rows
from mpi_ustat.inference.rounded import rounded
from mpi_ustat.plots.drawing import GUEST_LEGEND, level, on_one_line, values
from mpi_ustat.plots.style import BLUE, DASHDOT, DASHED, DOTTED, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_DASHES = ("-", DASHED, DASHDOT, DOTTED)
_LONG_NAME = 14  # letters
_MOST_BANDS = 3  # of more, none is told from the others


def has_roc(result: ResultFile) -> bool:
    """Return whether the result has ROC curves."""
    return "roc/0/fpr" in result.datasets


def draw_roc(axes: Axes, result: ResultFile, *, guest: bool = False) -> None:
    """Draw the curve of each column, its band, and in the legend its AUC; as a guest in axes that may be small."""
    rows, positive = estimate_rows(result, "estimate"), (result.config.get("data") or {}).get("positive")
    for j, row in enumerate(rows):
        fpr, tpr, lower, upper = (values(result, f"roc/{j}/{name}") for name in ("fpr", "tpr", "lower", "upper"))
        look: dict[str, Any] = {"color": _COLOURS[j % len(_COLOURS)], "ls": _DASHES[j // len(_COLOURS) % len(_DASHES)]}
        name = f"{on_one_line(row['statistic'])}: " if row["statistic"] else ""
        if guest and len(name) > _LONG_NAME:
            name = f"{name.rstrip()}\n"
        axes.plot(fpr, tpr, lw=1.5, zorder=3, label=f"{name}AUC {rounded(row['value'], row['stderr'])}", **look)
        if len(rows) <= _MOST_BANDS:  # between two points the lower end is that of the left one, the upper of the right
            steps = np.repeat(fpr, 2)[1:-1], np.repeat(lower[:-1], 2), np.repeat(upper[1:], 2)
            axes.fill_between(*steps, color=look["color"], alpha=0.15, lw=0, zorder=1)
    if len(rows) <= _MOST_BANDS:  # an entry for all bands, so it has the colour of none where there are several
        label = f"{level(result)} band" if guest else f"band of {level(result)}, of the whole curve"
        colour = _COLOURS[0] if len(rows) == 1 else GREY
        axes.fill_between([], [], color=colour, alpha=0.15 if len(rows) == 1 else 0.35, lw=0, label=label)
    axes.plot([0, 1], [0, 1], color=INK, ls=DOTTED, lw=1.0, zorder=2, label="chance")
    of = "" if positive is None else f" (positive: {on_one_line(str(positive))})"
    axes.set(xlabel="false positive rate", ylabel=f"true positive rate{of}", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
    axes.set_aspect("equal")
    below = all(row["value"] < 0.5 for row in rows)  # then the curves are in the usual corner
    look = {"loc": "upper left" if below else "lower right", "frameon": True, "framealpha": 0.8, "edgecolor": "none"}
    axes.legend(**look, **(GUEST_LEGEND if guest else {}))
