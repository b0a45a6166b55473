"""The picture of complete statistics on many ranks: seconds against ranks, and where they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.plots.drawing import legend_below, new_panels, number, set_title, values
from mpi_ustat.plots.style import BLUE, DASHED, DOTTED, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION
from mpi_ustat.schemes.registry import DEFAULT_SCHEME
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mpi_ustat.numerics.types import Floats

_COLOURS = (BLUE, INK)  # of the numbers of scores
_YELLOW, _LIGHT = "#F0E442", "#C4C4C4"
_WIRE = {"latency": (VERMILION, "messages: latency"), "transfer": (_YELLOW, "messages: bytes")}
_OF_AUC = {
    "splitters": (GREEN, "find splitters"),
    "sort": (ORANGE, "sort own scores"),
    "merge": (SKY, "sort what came"),
    "count": (_LIGHT, "look up and count"),
    "agree": (PURPLE, "read what ranks say"),
    **_WIRE,
}
_OF_RING = {
    "evaluate": (_LIGHT, "evaluate pairs"),
    "move": (SKY, "move blocks"),
    "agree": (PURPLE, "agree in each step"),
    "reduce": (GREEN, "gather answers"),
    **_WIRE,
}
_BARS = (10, 100, 1000, 10_000)  # ranks whose seconds are taken apart
_NOTE = (
    "The model is fitted to the CPU seconds of one rank's own part, whose other ranks are pretended, and predicts the "
    "messages for a\n"
    "network of 2 µs and 100 Gbit/s for each rank. It assumes a core for every rank, as fast as here; rows evenly "
    "spread; full bisection\n"
    "bandwidth, no congestion; messages of a rank one after the other. It leaves out reading files, imbalance, noise, "
    "and memory that\n"
    "is slower where many cores share it."
)


def draw_scaling_complete(result: ResultFile) -> Figure:
    """Return the picture of the complete AUC, by sorting, and of pairs in a ring.

    Above, seconds: lines predicted, stars where one rank's own part was timed. Below, the shares of the phases.
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
    set_title(axes[1, 0], "Where the time goes: AUC", f"left {_power(totals[0])}, right {_power(totals[-1])} scores")
    ranks = result.scales["rank"]
    _draw_shares(axes[1, 0], ranks, values(result, "auc/curves"), result.scales["auc phase"].astype(str), _OF_AUC)
    set_title(axes[1, 1], "Where the time goes: ring", points)
    ring = values(result, "ring/curves")[None]
    _draw_shares(axes[1, 1], result.scales["ring rank"], ring, result.scales["ring phase"].astype(str), _OF_RING)
    legend_below(figure, axes[0, 0], columns=3, note=_NOTE)
    return figure


def _power(total: int) -> str:
    exponent = round(np.log10(total))
    return f"$10^{{{exponent}}}$" if total == 10**exponent else number(total)


def _draw_seconds(axes: Axes, result: ResultFile) -> None:
    ranks = result.scales["rank"]
    sizes, n_ranks = values(result, "auc/sizes").sum(axis=1), values(result, "auc/n_ranks")
    pretended = _pretended(result, "auc")
    for k, total in enumerate(result.scales["total"].tolist()):
        colour, scores = _COLOURS[k % len(_COLOURS)], f"{_power(total)} scores"
        auc, of_round = (values(result, f"{name}/curves")[k].sum(axis=1) for name in ("auc", "round"))
        axes.plot(ranks, auc, color=colour, label=f"complete AUC, {scores}")
        axes.plot(ranks, of_round, color=colour, ls=DASHED, label=f"a round, {scores}")
        axes.plot(ranks, auc[0] * ranks[0] / ranks, color=GREY, ls=DOTTED, lw=1.2, label="ideal" if k == 0 else "_")
        here = pretended & (sizes == total)
        label = "one rank timed, messages by model" if k == 0 else "_"
        _draw_stars(axes, n_ranks[here], _own_and_wire(result, "auc")[here], label)
    _logarithmic(axes)


def _draw_ring(axes: Axes, result: ResultFile) -> None:
    ranks, seconds = result.scales["ring rank"], values(result, "ring/curves").sum(axis=1)
    axes.plot(ranks, seconds, color=BLUE)
    axes.plot(ranks, seconds[0] * ranks[0] / ranks, color=GREY, ls=DOTTED, lw=1.2)
    here = _pretended(result, "ring")
    _draw_stars(axes, values(result, "ring/n_ranks")[here], _own_and_wire(result, "ring")[here], "_")
    _logarithmic(axes)


def _pretended(result: ResultFile, name: str) -> Floats:
    """Return which jobs are those of the curves, of which one rank's own part was timed."""
    return values(result, f"{name}/pretended") & (values(result, f"{name}/case").astype(str) == "whole")


def _own_and_wire(result: ResultFile, name: str) -> Floats:
    return values(result, f"{name}/computing") + values(result, f"{name}/wire")


def _draw_stars(axes: Axes, ranks: Floats, seconds: Floats, label: str) -> None:
    axes.plot(ranks, seconds, ls="", marker="*", ms=9.0, color=VERMILION, zorder=5, label=label)


def _logarithmic(axes: Axes) -> None:
    axes.set(xscale="log", yscale="log", xlabel="ranks P", ylabel="seconds")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: number(value))


def _draw_shares(
    axes: Axes, ranks: Floats, curves: Floats, phases: Floats, fills: Mapping[str, tuple[str, str]]
) -> None:
    """Draw the share of each phase as bars, side by side for each of the curves, under the seconds of the whole."""
    order = phases.tolist()
    for place, p in enumerate(_BARS):
        at = int(np.flatnonzero(ranks == p)[0])
        for k, seconds in enumerate(curves[:, at]):
            x, total, bottom = place + 0.42 * (k - (len(curves) - 1) / 2), float(seconds.sum()), 0.0
            for phase, (colour, name) in fills.items():
                share = 100.0 * float(seconds[order.index(phase)]) / total
                label = name if place == 0 and k == 0 else "_"
                axes.bar(x, share, 0.38, bottom=bottom, color=colour, lw=0, label=label)
                bottom += share
            axes.text(x, 101.0, f"{number(float(f'{total:.2g}'))} s", ha="center", va="bottom", fontsize=7.0)
    axes.set_xticks(range(len(_BARS)), [f"P = {number(p)}" for p in _BARS])
    axes.tick_params(axis="x", length=0.0)
    axes.set(ylabel="share (%)", ylim=(0.0, 108.0))
    axes.grid(axis="x", visible=False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0, fontsize=7.5
    )
