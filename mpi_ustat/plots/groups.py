"""The picture of groups: all of them by value, the lowest and the highest by name, their distribution and mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.plots.drawing import count, number, on_one_line, set_title
from mpi_ustat.plots.style import BLUE, GREEN, INK, ORANGE, VERMILION
from mpi_ustat.storage.ranked_groups import RankedGroups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

NAMED = 10
"""How many of the lowest, and of the highest, are named."""
_MOST_DOTS = 2000  # with more, a line of so many points looks the same


def height(groups: RankedGroups) -> float:
    """Return the inches that `draw_groups` needs."""
    return 1.5 + sum(_heights(groups))


def draw_groups(
    figure: FigureBase,
    groups: RankedGroups,
    mean: float,
    interval: NDArray[Any] | None,
    title: str,
    about: str,
    quantity: str,
) -> None:
    """Draw groups into a figure or a part of one, in panels over one axis of values.

    Parameters
    ----------
    figure : Figure or SubFigure
    groups : RankedGroups
    mean : float
        Of the groups, as the file has it.
    interval : ndarray of two, or None
        Of that mean.
    title, about : str
        A title, and under it a line on the mean and its interval.
    quantity : str
        The name of the axis of values.
    """
    from matplotlib.ticker import MaxNLocator

    heights = _heights(groups)
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    if _all_named(groups):
        _draw_named(panels[0], groups, groups.highest(len(groups.values)), BLUE)
        panels[0].set_ylabel(f"all {count(len(groups.values), 'group')} (points)")
    else:
        _draw_ends(panels[0], groups, groups.highest(NAMED), GREEN, "highest")
        _draw_all(panels[1], groups)
        _draw_ends(panels[2], groups, groups.lowest(NAMED), VERMILION, "lowest")
    if len(groups.values):
        counts, edges = np.histogram(groups.values, bins=min(40, max(5, len(groups.values) // 3)))
        panels[-1].stairs(counts, edges, fill=True, color=BLUE, alpha=0.55)
    panels[-1].set(xlabel=quantity, ylabel="groups")
    panels[-1].yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    panels[-1].yaxis.set_major_formatter(lambda value, _: number(value))
    for axes in panels:
        if interval is not None and np.isfinite(interval).all():
            axes.axvspan(*interval, color=ORANGE, alpha=0.25, lw=0, zorder=0.5)
        axes.axvline(mean, color=VERMILION, lw=1.3, zorder=2.5)
    missing = f"\n{count(groups.n_undefined, 'group')} without a pair left out" if groups.n_undefined else ""
    set_title(panels[0], title, about + missing)


def _all_named(groups: RankedGroups) -> bool:
    return len(groups.values) <= 2 * NAMED


def _heights(groups: RankedGroups) -> list[float]:
    named = 0.17 * min(len(groups.values), NAMED)
    return [max(0.17 * len(groups.values), 0.5), 0.9] if _all_named(groups) else [named, 2.0, named, 0.9]


def _draw_named(axes: Axes, groups: RankedGroups, places: Sequence[int] | NDArray[Any], colour: str) -> None:
    """Draw groups from the top down, with their names and numbers of points."""
    rows = np.arange(len(places))
    axes.plot(groups.values[places], rows, "o", ms=4.5, color=colour, mec="white", mew=0.4, zorder=3)
    labels = [f"{on_one_line(groups.name(place))} ({number(groups.points[place])})" for place in places]
    axes.set_yticks(rows, labels, fontsize=7.5)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


def _draw_ends(axes: Axes, groups: RankedGroups, places: NDArray[Any], colour: str, which: str) -> None:
    _draw_named(axes, groups, places, colour)
    axes.set_ylabel(f"{which} {len(places)} (points)")
    tied = groups.tied_with(places[-1])
    if tied > np.count_nonzero(groups.values[places] == groups.values[places[-1]]):
        note = f"{count(tied, 'group')} have {groups.values[places[-1]]:.4g};\nthose of most pairs are named"
        look: dict[str, Any] = {"fontsize": 7.5, "color": INK, "va": "center", "zorder": 4}
        look["bbox"] = {"color": "white", "alpha": 0.85, "pad": 1.0}
        left = which == "highest"
        look |= {"ha": "left" if left else "right", "xycoords": "axes fraction"}
        axes.annotate(note, (0.02 if left else 0.98, 0.5), **look)


def _draw_all(axes: Axes, groups: RankedGroups) -> None:
    """Draw the values of all groups in their order, as dots or, of very many, as a line."""
    ordered, n = np.sort(groups.values), len(groups.values)
    if n <= _MOST_DOTS:
        axes.plot(ordered, np.arange(1, n + 1), "o", ms=3.0 if n <= 200 else 1.8, mew=0, color=BLUE, zorder=3)
    else:
        ranks = np.linspace(0, n - 1, _MOST_DOTS).round().astype(np.int64)
        axes.plot(ordered[ranks], ranks + 1, color=BLUE, zorder=3)
    axes.set(ylabel=f"all {count(n, 'group')}, by rank")
    axes.yaxis.set_major_formatter(lambda value, _: number(value))
