"""The picture of a plan: predicted standard error against predicted seconds, a line for each way to estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.plots.drawing import count, legend_below, new_panels, number, set_title
from mpi_ustat.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, VERMILION
from mpi_ustat.schemes.registry import COMPLETE, SCHEMES
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = ((INK, "D"), (VERMILION, "o"), (ORANGE, "s"), (BLUE, "^"))


_COSTS = {"seconds": "predicted time (s)", "bytes_moved": "bytes between ranks, of all of them"}


def draw_plan(result: ResultFile) -> Figure:
    """Return the picture of a plan.

    Every choice is a faint dot; those than which none of the same scheme is both as quick and as exact are joined.
    There is a panel for each cost that some choice has: a single rank sends nothing.
    """
    config = result.config
    costs = [cost for cost in _COSTS if cost == "seconds" or (result.datasets[cost].values > 0).any()]
    figure, grid = new_panels(1, len(costs), "", size=(1.0 + 4.0 * len(costs), 4.3), sharey=True)
    for axes, cost in zip(grid[0], costs, strict=True):
        _draw_choices(axes, result, cost)
        axes.set(xlabel=_COSTS[cost])
    left = grid[0, 0]
    left.set(ylabel="predicted standard error to the population")
    sizes = ", ".join(number(float(size)) for size in config["sizes"])
    set_title(
        left,
        f"What {config['kernel']} can be had for",
        f"{sizes} points; {count(config['n_workers'], 'worker')} on {count(config['n_ranks'], 'rank')}",
    )
    if config["target_stderr"] is not None:
        for axes in grid[0]:
            axes.axhline(config["target_stderr"], color=GREEN, lw=1.0, ls="--", zorder=1.0, label="_")
        left.annotate(
            "wanted", (0.99, config["target_stderr"]), (0, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", color=GREEN, fontsize=8.5,
        )  # fmt: skip
    if config["budget_seconds"] is not None:
        left.axvline(config["budget_seconds"], color=GREEN, lw=1.0, ls="--", zorder=1.0)
    legend_below(figure, left, columns=5 if len(costs) > 1 else 3)
    return figure


def _draw_choices(axes: Axes, result: ResultFile, cost: str) -> None:
    values = {name: result.datasets[name].values for name in ("scheme", "stderr", cost)}
    ways = np.array([str(way) for way in values["scheme"].astype(str)])
    costs, errors = values[cost].astype(float), values["stderr"].astype(float)
    positive = costs > 0.0
    known = [COMPLETE.name, *(each.way(move) for each in SCHEMES.values() if each.in_plans for move in each.moves)]
    looks = dict(zip(known, _LOOKS, strict=False))
    for way in dict.fromkeys(ways.tolist()):
        look: dict[str, Any] = dict(zip(("color", "marker"), looks.get(way, (PURPLE, "v")), strict=True))
        chosen = np.flatnonzero((ways == way) & positive)
        if len(chosen) == 0:
            continue
        chosen = chosen[np.lexsort((errors[chosen], costs[chosen]))]
        axes.plot(costs[chosen], errors[chosen], ls="", ms=3.0, alpha=0.35, label="_", **look)
        best = np.minimum.accumulate(errors[chosen])
        front = chosen[errors[chosen] < np.append(np.inf, best[:-1]) * (1.0 - 1e-9)]
        axes.plot(costs[front], errors[front], lw=1.1, ms=5.0, mec="white", mew=0.5, label=way, **look)
    axes.set(xscale="log", yscale="log")
    chosen_one = int(result.datasets["recommended"].values)
    if chosen_one >= 0 and positive[chosen_one]:
        axes.plot(
            costs[chosen_one], errors[chosen_one], ls="", marker="*", ms=15.0, mfc="none", mec=GREEN, mew=1.6,
            label="recommended", zorder=5.0,
        )  # fmt: skip
