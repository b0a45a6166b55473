"""Figures 2, 5 and 6 of the paper: variance against the number of evaluated pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.drawing import count, legend_below, new_panels, number, set_title, values
from mpi_ustat.plots.looks import COMPLETE, INCOMPLETE, LOCAL, REPARTITIONED, SAMPLED, Look, draw_points, sizes
from mpi_ustat.plots.style import DASHED, DOTTED, GREY, INK
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_TITLES = {"small": "σ₂² small", "large": "σ₂² not small"}


def draw_variances(result: ResultFile) -> Figure:
    """Draw the variance of each statistic against the pairs it evaluates: in theory and, where it was, measured."""
    figure, axes = new_panels(1, 2, _title(result), size=(9.0, 5.0))
    for each, panel in zip(axes[0], result.config["panels"], strict=True):
        _draw_panel(each, result, panel)
    _finish(figure, axes[0], axes[0], result)
    return figure


def draw_corrected(result: ResultFile) -> Figure:
    """Draw variances of which the paper prints a formula in error, and under them how far that formula is off.

    The error is the same power of ten as the width of a line, so the curves alone would not show it.
    """
    figure, axes = new_panels(
        2, 2, _title(result), size=(9.0, 6.2), sharex="col", gridspec_kw={"height_ratios": [3.2, 1]}
    )
    for (upper, lower), panel in zip(axes.T, result.config["panels"], strict=True):
        _draw_panel(upper, result, panel)
        label = f"{INCOMPLETE[0].symbol} as the paper prints it"
        for b, look in _incomplete_looks(result, panel):
            n_pairs, corrected = _curve(result, f"{panel}/incomplete {b}")
            _, printed = _curve(result, f"{panel}/printed {b}")
            upper.plot(n_pairs, printed, color=INK, lw=1.0, ls=DASHED, zorder=3, label=label)
            lower.plot(n_pairs, 100.0 * (printed / corrected - 1.0), color=look.colour, ls=DASHED)
            label = ""  # one entry in the legend is enough
        lower.axhline(0.0, color=GREY, lw=0.8)
        lower.margins(y=0.15)
        lower.tick_params(labelbottom=True)
    axes[1, 0].set_ylabel("printed − corrected\n(% of corrected)")
    _finish(figure, axes[0], axes[1], result)
    return figure


def _title(result: ResultFile) -> str:
    config = result.config
    how = "measured" if "n_runs" in config else "in theory"
    return f"Variance under {scheme_of(config['scheme']).title or config['scheme']}, {how}: {sizes(config, 'nmN')}"


def _finish(figure: Figure, upper: Sequence[Axes], lower: Sequence[Axes], result: ResultFile) -> None:
    """Name the axes, and put the legend with what has to be said under them."""
    for each in upper:
        _tick_all_digits(each)
    for each in lower:
        each.set_xlabel("evaluated pairs (number)")
    upper[0].set_ylabel("variance of the statistic (unit of h, squared)")
    legend_below(figure, upper[0], columns=3, note=_measured_note(result) if "n_runs" in result.config else "")


def _tick_all_digits(axes: Axes) -> None:
    """Name 2·10ᵏ, 3·10ᵏ … where the axis spans so little that powers of ten alone would be one tick or none."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axes.get_ylim()
    if high / low < 12.0:
        axes.yaxis.set_major_locator(LogLocator(subs=[float(digit) for digit in range(1, 10)]))
        axes.yaxis.set_major_formatter(_scientific)
        axes.yaxis.set_minor_formatter(NullFormatter())


def _scientific(value: float, position: float) -> str:
    """Write a tick of one digit; the signature is matplotlib's."""
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digit = round(value / 10.0**exponent)
    return rf"$10^{{{exponent}}}$" if digit == 1 else rf"${digit} \times 10^{{{exponent}}}$"


def _measured_note(result: ResultFile) -> str:
    panel = next(iter(result.config["panels"]))
    factor = values(result, f"{panel}/swor_expectation") / values(result, f"{panel}/expectation")
    return (
        f"Lines: theory. Points: {count(result.config['n_runs'], 'run')}, bars ± 2 standard errors.\n"
        f"Workers without a pair contribute 0: the distributed statistics have mean {float(factor):.3f} U, not U, "
        "which is how they can vary less than $U_n$."
    )


def _draw_panel(axes: Axes, result: ResultFile, panel: str) -> None:
    """Draw all statistics of one choice of the variance components."""
    means = result.config["panels"][panel]
    subtitle = f"σ₁² = {means['mean_z'] ** 2:.4g}, σ₂² = {means['mean_x'] ** 2:.4g}, σ₀² = 1"
    set_title(axes, _PANEL_TITLES.get(panel, panel), subtitle)
    axes.set(xscale="log", yscale="log")
    measured = f"{panel}/complete/measured/variance" in result.datasets

    _, variance = _curve(result, f"{panel}/complete")
    axes.axhline(float(variance[0]), color=COMPLETE.colour, lw=1.1, ls=DOTTED, zorder=1.5)
    _draw_points(axes, result, f"{panel}/complete", COMPLETE, f"{COMPLETE.symbol}, all pairs")
    _draw_points(axes, result, f"{panel}/local", LOCAL, f"{LOCAL.symbol}, one partition (T = 1)", slice(0, 1))
    followed = [("local", REPARTITIONED, f"{REPARTITIONED.symbol}, T partitions")]
    followed += [
        (f"incomplete {b}", look, f"{look.symbol}, B = {count(b, 'draw')} per worker")
        for b, look in _incomplete_looks(result, panel)
    ]
    for name, look, label in (*followed, ("sampled", SAMPLED, f"{SAMPLED.symbol}, draws from all, undistributed")):
        band = name == "sampled"  # the others' yardstick hides behind them if it is no wider
        line: dict[str, Any] = {"lw": 5.0, "alpha": 0.45, "zorder": 1.8} if band else {"lw": 1.8, "zorder": 2.0}
        line |= {"color": look.colour, "solid_capstyle": "butt", "label": "" if measured else label}
        axes.plot(*_curve(result, f"{panel}/{name}"), **line)
        if measured:
            rest = slice(1, None) if name == "local" else slice(None)
            _draw_points(axes, result, f"{panel}/{name}", look, label, rest)
    if not measured:
        _draw_ends(axes, result, panel, followed)


def _draw_points(axes: Axes, result: ResultFile, name: str, look: Look, label: str, part: slice = slice(None)) -> None:
    """Draw what was measured of a series with error bars, or its exact values if nothing was."""
    if f"{name}/measured/variance" in result.datasets:
        n_pairs, variance = _curve(result, f"{name}/measured")
        errors = values(result, f"{name}/measured/standard_error")
        draw_points(axes, n_pairs[part], variance[part], errors[part], look, label)
        return
    n_pairs, variance = _curve(result, name)
    drawn: dict[str, Any] = {"ms": 12.0 if look.marker == "*" else 6.0, "mec": "white", "mew": 0.6, "zorder": 4}
    axes.plot(n_pairs[part], variance[part], look.marker, color=look.colour, label=label, **drawn)


def _draw_ends(axes: Axes, result: ResultFile, panel: str, followed: Sequence[tuple[str, Look, str]]) -> None:
    """Mark where the curves that are followed along T begin and end."""
    for name, look, _ in followed:
        n_pairs, variance = _curve(result, f"{panel}/{name}")
        for end, face in ((0, "white"), (-1, look.colour)):
            axes.plot(n_pairs[[end]], variance[[end]], "o", ms=5.0, mfc=face, mec=look.colour, mew=1.3, zorder=3)
    n_workers = number(result.config["n_workers"])
    for face, label in (("white", "T = 1, where a curve begins"), (GREY, f"T = N = {n_workers}, where it ends")):
        axes.plot([], [], "o", ms=5.0, mfc=face, mec=GREY, mew=1.3, label=label)


def _curve(result: ResultFile, name: str) -> tuple[Floats, Floats]:
    """Return (pairs, variance) of a series."""
    return values(result, f"{name}/n_pairs"), values(result, f"{name}/variance")


def _incomplete_looks(result: ResultFile, panel: str) -> list[tuple[int, Look]]:
    """Return each B that the file has curves for, with its look."""
    start, end = f"{panel}/incomplete ", "/variance"
    found = sorted(
        int(name[len(start) : -len(end)])
        for name in result.datasets
        if name.startswith(start) and name.endswith(end) and "/measured/" not in name
    )
    return [(b, INCOMPLETE[i % len(INCOMPLETE)]) for i, b in enumerate(found)]
