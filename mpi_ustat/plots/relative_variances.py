"""Figure 3 of the paper: variances relative to the complete statistic's, against ε."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.drawing import (
    BAR_STANDARD_ERRORS,
    legend_below,
    new_panels,
    number,
    set_title,
    tick_digits,
    values,
)
from mpi_ustat.plots.looks import COMPLETE, LOCAL, REPARTITIONED, draw_points, sizes
from mpi_ustat.plots.style import DOTTED
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Each statistic with the factor by which its points are moved along ε, so that bars stay apart. The steepest curve's
#: points stay, as moved ones would seem to miss it.
_STATISTICS = (("complete", COMPLETE, 1.17), ("local", LOCAL, 1.0), ("repartitioned", REPARTITIONED, 1 / 1.17))


def draw_relative(result: ResultFile) -> Figure:
    """Draw variances relative to the complete statistic's, of plain and of conditional runs side by side.

    The axis is logarithmic, as ratios are, and holds all points and the upper ends of all bars. What falls below it
    (a bar's end near 0, or a variance of 0 where no run has had a misordered pair) ends in an arrow.
    """
    title = f"Variance of the AUC relative to $U_n$'s: {sizes(result.config, 'nmNT')}"
    figure, axes = new_panels(1, 2, title, size=(9.0, 4.8), sharey=True)
    limits = _limits(result)
    n_runs = number(result.config["n_runs"])
    for each, kind, note in (
        (axes[0, 0], "plain", "runs for each ε"),
        (axes[0, 1], "conditional", "runs, given that a misordered pair exists"),
    ):
        set_title(each, f"{kind.capitalize()} simulation", f"{n_runs} {note}")
        _draw_panel(each, result, kind, limits)
        each.set_xlabel("ε, probability of the rare value (dimensionless)")
    axes[0, 0].set_ylabel("variance / exact variance of $U_n$ (dimensionless)")
    _write_informative(axes[0, 0], result)
    note = (
        "Lines: exact. Points: simulated, side by side at each ε, bars ± 2 standard errors; "
        "an arrow: point or bar goes on below."
    )
    legend_below(figure, axes[0, 0], columns=3, note=note)
    return figure


def _limits(result: ResultFile) -> tuple[float, float]:
    """Return the ends of an axis that holds the curves, the points and the upper ends of the bars."""
    top = max(float(values(result, f"curve/{name}").max()) for name in ("local", "repartitioned"))
    for kind in ("plain", "conditional"):
        for name, _, _ in _STATISTICS:
            ratios, errors = _relative(result, kind, name)
            top = max(top, float(np.nanmax(ratios + BAR_STANDARD_ERRORS * errors)))
    return 0.4, 1.6 * top


def _relative(result: ResultFile, kind: str, name: str) -> tuple[Floats, Floats]:
    start = f"{kind}/{name}"
    return values(result, f"{start}/relative_variance"), values(result, f"{start}/standard_error")


def _draw_panel(axes: Axes, result: ResultFile, kind: str, limits: tuple[float, float]) -> None:
    epsilon, grid = result.scales["epsilon"], values(result, "curve/epsilon")
    axes.set(xscale="log", yscale="log", ylim=limits)
    axes.axhline(1.0, color=COMPLETE.colour, lw=1.1, ls=DOTTED, zorder=1.5)
    notes = {"complete": "", "local": ", T = 1", "repartitioned": f", T = {result.config['n_rounds']}"}
    for name, look, shift in _STATISTICS:
        if name != "complete":
            axes.plot(grid, values(result, f"curve/{name}"), color=look.colour, zorder=2)
        ratios, errors = _relative(result, kind, name)
        draw_points(axes, shift * epsilon, ratios, errors, look, look.symbol + notes[name])
        below = shift * epsilon[ratios - BAR_STANDARD_ERRORS * errors < limits[0]]
        if len(below):  # the layout stumbles over an unclipped line without points
            axes.plot(below, np.full(len(below), limits[0]), "v", color=look.colour, ms=6.0, clip_on=False, zorder=4)
    tick_digits(axes.yaxis)
    axes.set_xticks(epsilon, [np.format_float_positional(each, trim="-") for each in epsilon.astype(float)])
    axes.set_xticks([], minor=True)


def _write_informative(axes: Axes, result: ResultFile) -> None:
    """Write over each ε how many plain runs tell anything: few runs make large bars."""
    counts = values(result, "plain/complete/informative")
    looks: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8, "color": "#555555"}
    for epsilon, count in zip(result.scales["epsilon"], counts, strict=True):
        axes.text(epsilon, 0.985, number(int(count)), transform=axes.get_xaxis_transform(), **looks)
    axes.text(0.5, 0.935, "runs with a misordered pair", transform=axes.transAxes, **looks)
