"""The picture of complete statistics on many ranks: seconds against ranks, and where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi_ustat.plots.drawing import legend_below, new_panels, number, set_title, values
from mpi_ustat.plots.phases import (
    LIGHT,
    WIRE,
    draw_shares,
    draw_stars,
    name_shares,
    power_of_ten,
    set_logarithmic,
)
from mpi_ustat.plots.style import BLUE, DASHED, DOTTED, GREEN, GREY, INK, ORANGE, PURPLE, SKY
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mpi_ustat.numerics.types import Floats

_COLOURS = (BLUE, INK)  # of the numbers of scores
_OF_AUC = {
    "splitters": (GREEN, "find splitters"),
    "sort": (ORANGE, "sort own scores"),
    "merge": (SKY, "sort what came"),
    "count": (LIGHT, "look up and count"),
    "agree": (PURPLE, "read what ranks say"),
    **WIRE,
}
_OF_RING = {
    "evaluate": (LIGHT, "evaluate pairs"),
    "move": (SKY, "move blocks"),
    "reduce": (GREEN, "gather answers"),
    **WIRE,
}
_NOTE = (
    "The model is fitted to the CPU seconds of one rank's own part, whose other ranks are pretended, and predicts\n"
    "those of the rank with most scores, and messages on a network of 2 µs and 100 Gbit/s for each rank. It assumes\n"
    "a core for every rank, as fast as here; rows evenly spread; full bisection bandwidth, no congestion; messages\n"
    "of a rank one after the other. It leaves out reading files, noise, and memory slower where cores share it."
)


def draw_scaling_complete(result: ResultFile) -> Figure:
    """Return the picture of the complete AUC, by sorting, and of pairs in a ring.

    Above, seconds: lines predicted, stars where the own part of a rank in the middle was timed, which has more scores
    than others or fewer. Below, the shares of the phases.
    """
    config, totals = result.config, result.scales["total"].tolist()
    points = f"{number(config['points'])} + {number(config['points'])} points of {config['columns']} coordinates"
    figure, axes = new_panels(2, 2, "Complete statistics on P ranks", size=(11.4, 8.8))
    set_title(
        axes[0, 0], "AUC by sorting", f"beside a {DEFAULT_SCHEME} round, N = {number(config['n_workers'])} workers"
    )
    _draw_seconds(axes[0, 0], result)
    set_title(axes[0, 1], "All pairs in a ring", points)
    _draw_ring(axes[0, 1], result)
    set_title(
        axes[1, 0],
        "Where the time goes: AUC",
        f"left {power_of_ten(totals[0])}, right {power_of_ten(totals[-1])} scores",
    )
    set_title(axes[1, 1], "Where the time goes: ring", points)
    for place, name, of_ranks, curves, fills in (
        (axes[1, 0], "auc", "rank", values(result, "auc/curves"), _OF_AUC),
        (axes[1, 1], "ring", "ring rank", values(result, "ring/curves")[None], _OF_RING),
    ):
        phases = result.scales[f"{name} phase"].astype(str).tolist()
        draw_shares(place, result.scales[of_ranks], curves, phases, fills, "share (%)")
        name_shares(place)
    legend_below(figure, axes[0, 0], columns=3, note=_NOTE)
    return figure


def _draw_seconds(axes: Axes, result: ResultFile) -> None:
    ranks = result.scales["rank"]
    sizes, n_ranks = values(result, "auc/sizes").sum(axis=1), values(result, "auc/n_ranks")
    pretended = _pretended(result, "auc")
    for k, total in enumerate(result.scales["total"].tolist()):
        colour, scores = _COLOURS[k % len(_COLOURS)], f"{power_of_ten(total)} scores"
        auc, of_round = (values(result, f"{name}/curves")[k].sum(axis=1) for name in ("auc", "round"))
        axes.plot(ranks, auc, color=colour, label=f"complete AUC, {scores}")
        axes.plot(ranks, of_round, color=colour, ls=DASHED, label=f"a round, {scores}")
        axes.plot(ranks, auc[0] * ranks[0] / ranks, color=GREY, ls=DOTTED, lw=1.2, label="ideal" if k == 0 else "_")
        here = pretended & (sizes == total)
        draw_stars(axes, n_ranks[here], _own_and_wire(result, "auc")[here], named=k == 0)
    set_logarithmic(axes, "seconds")


def _draw_ring(axes: Axes, result: ResultFile) -> None:
    ranks, seconds = result.scales["ring rank"], values(result, "ring/curves").sum(axis=1)
    axes.plot(ranks, seconds, color=BLUE)
    axes.plot(ranks, seconds[0] * ranks[0] / ranks, color=GREY, ls=DOTTED, lw=1.2)
    here = _pretended(result, "ring")
    draw_stars(axes, values(result, "ring/n_ranks")[here], _own_and_wire(result, "ring")[here], named=False)
    set_logarithmic(axes, "seconds")


def _pretended(result: ResultFile, name: str) -> Floats:
    """Return which jobs are those of the curves, of which one rank's own part was timed."""
    return values(result, f"{name}/pretended") & (values(result, f"{name}/case").astype(str) == "whole")


def _own_and_wire(result: ResultFile, name: str) -> Floats:
    return values(result, f"{name}/computing") + values(result, f"{name}/wire")
