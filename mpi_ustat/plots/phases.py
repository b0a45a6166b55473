"""Seconds on many ranks, and the phases that they are made of: what the pictures of scaling share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.plots.drawing import number
from mpi_ustat.plots.style import VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from mpi_ustat.numerics.types import Floats, Ints

BARS = (10, 100, 1000, 10_000)
"""Ranks whose seconds are taken apart."""

LIGHT = "#C4C4C4"
"""Of the phase that is the work itself."""

WIRE = {"latency": (VERMILION, "messages: latency"), "transfer": ("#F0E442", "messages: bytes")}
"""The phases of messages, which lie above all others: their colours and names."""

_STEP, _WIDTH = 0.4, 0.36


def power_of_ten(total: int) -> str:
    """Write a number shortly, as a formula where it is a power of ten."""
    exponent = round(np.log10(total))
    return f"$10^{{{exponent}}}$" if total == 10**exponent else number(total)


def set_logarithmic(axes: Axes, seconds: str) -> None:
    """Give the axes of ranks and seconds their scales and names."""
    axes.set(xscale="log", yscale="log", xlabel="ranks P", ylabel=seconds)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: number(value))


def draw_stars(axes: Axes, ranks: ArrayLike, seconds: ArrayLike, *, named: bool) -> None:
    """Draw what one rank's own part took, where the others were pretended, with messages by model."""
    label = "one rank timed, messages by model" if named else "_"
    axes.plot(ranks, seconds, ls="", marker="*", ms=9.0, color=VERMILION, zorder=5, label=label)


def bar_at(place: int, k: int, n_curves: int) -> tuple[float, float]:
    """Return where a bar begins and ends."""
    middle = place + _STEP * (k - (n_curves - 1) / 2)
    return middle - _WIDTH / 2, middle + _WIDTH / 2


def draw_shares(
    axes: Axes, ranks: Ints, curves: Floats, phases: Sequence[str], fills: Mapping[str, tuple[str, str]], ylabel: str
) -> None:
    """Draw the share of each phase as bars, side by side for each of the curves, under the seconds of the whole.

    Parameters
    ----------
    axes : Axes
    ranks : ndarray of int, shape (r,)
        `BARS` among them.
    curves : ndarray, shape (c, r, len(phases))
        Seconds.
    phases : sequence of str
    fills : mapping
        Of the phases from below: their colours and names.
    ylabel : str
    """
    for place, p in enumerate(BARS):
        at = int(np.flatnonzero(ranks == p)[0])
        for k, seconds in enumerate(curves[:, at]):
            total, bottom = float(seconds.sum()), 0.0
            x = sum(bar_at(place, k, len(curves))) / 2
            for phase, (colour, name) in fills.items():
                share = 100.0 * float(seconds[phases.index(phase)]) / total
                label = name if place == 0 and k == 0 else "_"
                axes.bar(x, share, _WIDTH, bottom=bottom, color=colour, lw=0, label=label)
                bottom += share
            axes.text(x, 101.0, f"{number(float(f'{total:.2g}'))} s", ha="center", va="bottom", fontsize=7.0)
    axes.set_xticks(range(len(BARS)), [f"P = {number(p)}" for p in BARS])
    axes.tick_params(axis="x", length=0.0)
    axes.set(ylabel=ylabel, ylim=(0.0, 108.0))
    axes.grid(axis="x", visible=False)


def name_shares(axes: Axes) -> None:
    """Name the phases beside their bars, in the order in which they lie."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0, fontsize=7.5
    )
