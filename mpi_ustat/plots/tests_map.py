"""The picture of what a second buys: the power of tests by rounds, and of complete tests of fewer points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.plots.drawing import count, legend_below, new_panels, number, set_title, tick_digits, values
from mpi_ustat.plots.style import BLUE, DASHED, GREEN, INK, ORANGE, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_tests_map(result: ResultFile) -> Figure:
    """Return the picture: power against the processor's seconds, a panel for each alternative, a line for each N."""
    workers, rounds, seconds = (values(result, name) for name in ("n_workers", "n_rounds", "seconds"))
    power, config = values(result, "power"), result.config
    figure, panels = new_panels(1, len(power), size=(4.6 * len(power), 3.9), sharey=True)
    for axes, name, of_alternative in zip(panels[0], config["alternatives"], power, strict=True):
        stderr = np.sqrt(of_alternative * (1.0 - of_alternative) / config["n_sets"])
        for n, colour in zip(np.unique(workers).tolist(), (INK, BLUE, VERMILION, GREEN, ORANGE), strict=False):
            place = np.flatnonzero(workers == n)
            place = place[np.argsort(seconds[place])]
            line = {"color": colour, "ls": "-" if n else DASHED, "marker": "o", "ms": 3.5, "elinewidth": 0.8}
            label = f"{count(n, 'worker')}, T rounds" if n else "all pairs, of fewer points"
            milliseconds, per_cent = 1000.0 * seconds[place], 100.0 * of_alternative[place]
            axes.errorbar(milliseconds, per_cent, 100.0 * stderr[place], label=label, **line)
            texts = (rounds if n else values(result, "points"))[place].tolist()
            for x, y, text in zip(milliseconds, per_cent, texts, strict=True):
                axes.annotate(number(text), (x, y), (4, -9), textcoords="offset points", fontsize=6.5, color=colour)
        axes.set(xscale="log", xlabel="processor's milliseconds of the sums")
        tick_digits(axes.xaxis)
        set_title(axes, name, f"{config['kernel']}, {count(config['n_points'], 'point')} of each sample")
    panels[0, 0].set_ylabel(f"told apart at {100 * config['level']:g} % (%)")
    note = (
        f"Beside the marks: T, or points of each sample. Bars: a standard error, {count(config['n_sets'], 'data set')}."
    )
    legend_below(figure, panels[0, 0], columns=4, note=note)
    return figure
