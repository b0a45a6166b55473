"""The picture of scaling: seconds of a round against ranks, measured and predicted, and where they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from mpi_ustat.plots.drawing import count, legend_below, new_panels, set_title
from mpi_ustat.plots.phases import (
    BARS,
    LIGHT,
    WIRE,
    bar_at,
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

_LOOKS = ((INK, "o"), (BLUE, "s"), (GREEN, "D"))  # of the networks: measured ones, and then the assumed one
_FILLS = {
    "draw": (ORANGE, "draw the partition"),
    "group": (SKY, "group rows by worker"),
    "evaluate": (LIGHT, "evaluate pairs"),
    "reduce": (PURPLE, "gather answers"),
    **WIRE,
}
_PRETENDED = "pretended ranks"
_NOTE = (
    "The model is fitted to the CPU seconds of one rank's own part of a round, whose other ranks are pretended; "
    "networks are\n"
    "timed by messages alone. It assumes a core for every rank, as fast as here; rows evenly spread; matrix shuffle; "
    "full\n"
    "bisection bandwidth, no congestion; messages of a rank one after the other. It leaves out reading files, error "
    "bars,\n"
    "imbalance, noise, and memory that is slower where many cores share it."
)


def draw_scaling(result: ResultFile) -> Figure:
    """Return the picture of strong and weak scaling.

    Above, seconds of a round with all local pairs: points where measured, hollow where ranks shared cores; lines where
    predicted, dashed beyond what was measured. Below, the shares of the phases in what is predicted for many ranks.
    """
    config = result.config
    size, large, weak = (_points(config[name]) for name in ("strong", "large", "weak"))
    figure, axes = new_panels(
        2, 2, f"A {DEFAULT_SCHEME} round of the AUC on P ranks, all local pairs", size=(10.6, 8.6)
    )
    workers = f"N = {count(config['n_workers'], 'worker')}"
    set_title(axes[0, 0], "Strong scaling", f"{size} or {large}, {workers}")
    set_title(axes[0, 1], "Weak scaling", f"{weak} on every rank, N = P workers")
    _draw_lines(axes[0, 0], result, "strong", ideal=-1.0)
    _draw_lines(axes[0, 0], result, "large", ideal=None)
    axes[0, 0].set_ylim(bottom=0.3 * float(result.datasets["curves/strong"].values.sum(axis=2).min()))
    for case, beside in (("strong", -26), ("large", 8)):
        text, of_ten = _points(config[case]), result.datasets[f"curves/{case}"].values.sum(axis=2)
        edge = (of_ten.min if beside < 0 else of_ten.max)(axis=0)[result.scales["rank"] == 10]
        axes[0, 0].annotate(text, (10, edge[0]), (0 if beside > 0 else -66, beside), textcoords="offset points")
    _draw_lines(axes[0, 1], result, "weak", ideal=0.0)
    set_title(axes[1, 0], "Where the time goes, strong", f"predicted, {large}, {workers}")
    set_title(axes[1, 1], "Where the time goes, weak", f"predicted, {weak} on every rank")
    _draw_shares(axes[1, 0], result, "large")
    _draw_shares(axes[1, 1], result, "weak")
    name_shares(axes[1, 1])
    legend_below(figure, axes[0, 0], columns=3, note=_NOTE)
    return figure


def _points(size: int) -> str:
    each = power_of_ten(size)
    return f"{each} + {each} points"


def _draw_lines(axes: Axes, result: ResultFile, case: str, *, ideal: float | None) -> None:
    """Draw what was measured in a case, and what is predicted; `ideal` is the power of P that it would follow.

    Without one, nothing was measured.
    """
    ranks, names = result.scales["rank"], result.scales["networks"].astype(str).tolist()
    seconds = result.datasets[f"curves/{case}"].values.sum(axis=2)
    for k, old in enumerate(result.datasets[f"before/{case}"].values if f"before/{case}" in result.datasets else ()):
        label = "before: every rank drew the whole matrix" if k == 0 and ideal is not None else "_"
        axes.plot(ranks, old, color="#B0B0B0", lw=1.1, zorder=1, label=label)
    _draw_pretended(axes, result, case)
    if ideal is not None:
        axes.plot(ranks, seconds[0, 0] * ranks**ideal, color=GREY, ls=DOTTED, lw=1.2, zorder=1, label="ideal")
    for name, of_network, (colour, marker) in zip(names, seconds, _LOOKS, strict=False):
        most, label = 0, "_"
        if ideal is not None:
            most, label = _draw_measured(axes, result, case, name, colour, marker), f"model: {name}"
        one_machine = name == names[0]
        if one_machine and not most:
            continue
        axes.plot(ranks[ranks <= most], of_network[ranks <= most], color=colour, label=label if one_machine else "_")
        if not one_machine:
            beyond = ranks >= max(most, 2)
            axes.plot(ranks[beyond], of_network[beyond], color=colour, ls=DASHED, label=label)
    set_logarithmic(axes, "seconds of a round")
    if ideal is not None:
        _name_oversubscribed(axes, result, case)


def _draw_pretended(axes: Axes, result: ResultFile, case: str) -> None:
    """Draw what one rank's own part took where the others were pretended, with the last network's messages by model."""
    values: dict[str, NDArray[Any]] = {name: dataset.values for name, dataset in result.datasets.items()}
    here = (values["case"].astype(str) == case) & (values["network"].astype(str) == _PRETENDED)
    here &= values["n_pairs"] == 0
    ranks, phases = result.scales["rank"], result.scales["phase"].astype(str).tolist()
    wire = values[f"curves/{case}"][-1][:, [phases.index(name) for name in ("latency", "transfer")]].sum(axis=1)
    found = [
        (p, seconds + wire[ranks == p][0])
        for p, seconds in zip(values["n_ranks"][here].tolist(), values["measured"][here].tolist(), strict=True)
        if p in ranks
    ]
    if found:
        draw_stars(axes, *zip(*found, strict=True), named=True)


def _draw_measured(axes: Axes, result: ResultFile, case: str, network: str, colour: str, marker: str) -> int:
    """Draw the points of a network, hollow where ranks shared cores; return the most ranks that didn't."""
    values: dict[str, NDArray[Any]] = {name: dataset.values for name, dataset in result.datasets.items()}
    here = (values["case"].astype(str) == case) & (values["network"].astype(str) == network) & (values["n_pairs"] == 0)
    alone = values["ranks_per_core"] <= 1.0
    for chosen, face, what in ((here & alone, colour, ""), (here & ~alone, "white", " (oversubscribed)")):
        axes.plot(
            values["n_ranks"][chosen], values["measured"][chosen], ls="", marker=marker, ms=6.0, mfc=face, mec=colour,
            mew=1.3, zorder=4, label=f"measured: {network}{what}" if chosen.any() else "_",
        )  # fmt: skip
    return int(values["n_ranks"][here & alone].max(initial=0))


def _name_oversubscribed(axes: Axes, result: ResultFile, case: str) -> None:
    """Write beside the hollow points, which lie together, what they are."""
    values = {name: dataset.values for name, dataset in result.datasets.items()}
    shared = (values["case"].astype(str) == case) & (values["n_pairs"] == 0) & (values["ranks_per_core"] > 1.0)
    if shared.any():
        top = (float(values["n_ranks"][shared].max()), float(values["measured"][shared].max()))
        axes.annotate("oversubscribed", top, (7, 0), textcoords="offset points", va="center", fontsize=7.5)


def _draw_shares(axes: Axes, result: ResultFile, case: str) -> None:
    """Draw shares for each network between machines, whose line is under its bars."""
    seconds = result.datasets[f"curves/{case}"].values[1:]  # (networks, rank, phase)
    draw_shares(
        axes,
        result.scales["rank"],
        seconds,
        result.scales["phase"].astype(str).tolist(),
        _FILLS,
        "share of the round (%)",
    )
    for place in range(len(BARS)):
        for k in range(len(seconds)):
            ends = bar_at(place, k, len(seconds))
            axes.plot(ends, [-2.5, -2.5], color=_LOOKS[k + 1][0], ls=DASHED, lw=2.0, clip_on=False)
    axes.tick_params(axis="x", pad=9.0)
    axes.spines["bottom"].set_visible(False)
