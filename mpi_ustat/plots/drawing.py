"""What the pictures share: panels, titles, legends, ticks and ways to write numbers.

Figures are made without pyplot. All of this is to be called inside `mpi_ustat.plots.style.style`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.storage.results import ResultFile
from mpi_ustat.storage.texts import shown
from mpi_ustat.wording import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Error bars reach this many standard errors to both sides.
BAR_STANDARD_ERRORS = 2.0
#: How legends are in axes of the user, which may be small.
GUEST_LEGEND: dict[str, Any] = {"fontsize": "x-small", "handlelength": 1.4, "labelspacing": 0.3, "borderaxespad": 0.3}
#: Between groups of three digits.
SPACE = "\N{NARROW NO-BREAK SPACE}"


def values(result: ResultFile, name: str) -> NDArray[Any]:
    """Return the values of a dataset."""
    return result.datasets[name].values


def level(result: ResultFile) -> str:
    """Write the level of a result's intervals."""
    return f"{100 * result.config.get('confidence', 0.95):g} %"


def new_panels(
    n_rows: int, n_columns: int, title: str = "", *, size: tuple[float, float] | None = None, **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure under a title and its axes, (n_rows, n_columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=11.5, fontweight="bold")
    return figure, axes


def set_title(axes: Axes, title: str, subtitle: str = "") -> None:
    """Set a title and, between it and the axes, a line in regular weight, or several."""
    axes.set_title(title, pad=20.0 + 13.0 * subtitle.count("\n") if subtitle else 6.0)
    axes.annotate(subtitle, (0.0, 1.0), (0.0, 6.0), xycoords="axes fraction", textcoords="offset points")


def legend_below(figure: Figure, axes: Axes, *, columns: int = 2, note: str = "") -> None:
    """Put the legend outside the data, where it can hide nothing; the layout keeps room for a note over its entries."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D) and handle.get_marker() == "o":
            # The dots of a crowd are too small to show a colour.
            handle.set_markersize(max(handle.get_markersize(), 4.0))
            handle.set_alpha(1.0)
    if note:
        legend.set_title(note)
        legend.get_title().set(fontsize=8.5, multialignment="left")


def tick_integers(axes: Axes, ids: NDArray[Any]) -> None:
    """Tick whole numbers of the x-axis only, and leave the same margin for few and for many points."""
    from matplotlib.ticker import MaxNLocator

    first, last = float(np.min(ids)), float(np.max(ids))
    margin = max(0.4, 0.02 * (last - first))
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    axes.grid(axis="x", visible=False)


def tick_digits(axis: Axis, span: float = 1.0) -> None:
    """Tick a logarithmic axis in plain digits, more of them where its ends are less than a thousandfold apart."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 1000.0 else (1.0,)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def number(value: float) -> str:
    """Write a whole number with groups of three digits, any other shortly."""
    return f"{value:,.0f}".replace(",", SPACE) if float(value).is_integer() else f"{value:.4g}"


def count(things: int, noun: str) -> str:
    """Write how many things there are."""
    return f"{number(things)} {plural(things, noun)}"


def on_one_line(name: str, longest: int = 28) -> str:
    """Write a name out of a file so that it takes little room and none of it is read as a formula."""
    text = shown(name)
    return (text if len(text) <= longest else f"{text[: longest - 1]}…").replace("$", r"\$")
