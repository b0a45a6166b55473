"""Pictures of the paper's figures, from the result files of their experiments; those of learning are drawn elsewhere.

Theory is drawn as lines, what was measured as points with error bars. A statistic has the same colour in all figures.
Nothing is estimated here: the numbers are the files'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.plots.coverage import draw_coverage
from mpi_ustat.plots.descents import draw_figure4, draw_map
from mpi_ustat.plots.drawing import (
    BAR_STANDARD_ERRORS,
    BLUE,
    DASHED,
    DOTTED,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    legend_below,
    new_panels,
    number,
    set_title,
    style,
    write_note,
)
from mpi_ustat.schemes.registry import scheme_of
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Look:
    """How a statistic is written and drawn, in every figure."""

    symbol: str
    colour: str
    marker: str


_COMPLETE = _Look(r"$U_n$", INK, "*")
_LOCAL = _Look(r"$U_{n,N}$", VERMILION, "s")
_REPARTITIONED = _Look(r"$\widehat{U}_{n,N,T}$", BLUE, "o")
_INCOMPLETE = (  # one for each B, in the order of B
    _Look(r"$\widetilde{U}_{n,N,B,T}$", GREEN, "^"),
    _Look(r"$\widetilde{U}_{n,N,B,T}$", PURPLE, "v"),
    _Look(r"$\widetilde{U}_{n,N,B,T}$", SKY, "P"),
)
_SAMPLED = _Look(r"$\widetilde{U}_B$", ORANGE, "D")

_PANEL_TITLES = {"small": "σ₂² small", "large": "σ₂² not small"}


def check_drawable() -> None:
    """Check, before anything is computed, that the pictures can be drawn.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    with style():
        pass


def draw(result: ResultFile) -> Figure:
    """Return the picture of a figure's result.

    Parameters
    ----------
    result : ResultFile
        Of a kind that `PICTURES` names.

    Raises
    ------
    UserError
        If the result is of another kind or lacks what the picture shows, or matplotlib is not installed.
    """
    if result.kind not in PICTURES:
        known = ", ".join(f"'{kind}'" for kind in PICTURES)
        raise UserError(f"this file holds a result of kind '{result.kind}': give one of kind {known} for this plot")
    try:
        with style():
            return PICTURES[result.kind](result)
    except KeyError as error:
        raise UserError(
            f"this '{result.kind}' file holds no {error} to draw: make it again with this version of mpi_ustat"
        ) from error


def _values(result: ResultFile, name: str) -> NDArray[Any]:
    return result.datasets[name].values


# ---------------------------------------------------------------------------------------------------------------------
# Figure 1: which pairs

_WORKER_COLOURS = (SKY, ORANGE, GREEN, PURPLE, VERMILION, BLUE)
_SEEN_COLOURS = ("#C9DFF0", "#3D87BF", "#0B4273", "#04203A")  # once, twice …: shades of the repartitioned one's blue
_CELL_EDGE = "#D0D0D0"


def _draw_pairs(result: ResultFile) -> Figure:
    """Draw the grid of all pairs four times, coloured where a statistic evaluates a pair.

    Points are drawn in the order of their workers in round 0. In it the pairs of one partition are blocks along the
    diagonal, and those of further rounds fall outside: the picture of what repartitioning does. (In the order of the
    samples a single partition would look as scattered as several.)
    """
    workers, sampled = _values(result, "worker"), _values(result, "sampled")
    x_order = np.argsort(workers[0].max(axis=1), kind="stable")
    z_order = np.argsort(workers[0].max(axis=0), kind="stable")
    workers, sampled = workers[:, x_order][:, :, z_order], sampled[np.ix_(x_order, z_order)]
    n_rounds, n, m = workers.shape
    n_workers, present, seen = workers.max() + 1, workers[0] >= 0, np.count_nonzero(workers >= 0, axis=0)

    title = f"Which of the {n} × {m} pairs four statistics evaluate"
    figure, axes = new_panels(2, 2, title, size=(7.4, 6.8))
    complete, local, incomplete, repartitioned = axes.reshape(-1)
    _draw_cells(complete, np.broadcast_to(_rgb("#B5B5B5"), (n, m, 3)))
    _title_pairs(complete, _COMPLETE.symbol, "complete", np.ones((n, m)))

    paint = np.array([_rgb("white"), *(_rgb(colour) for colour in _WORKER_COLOURS)])
    tint = 1.0 - 0.22 * (1.0 - paint)
    which = np.where(present, workers[0] % len(_WORKER_COLOURS) + 1, 0)
    _draw_cells(local, paint[which])
    _title_pairs(local, _LOCAL.symbol, "within the workers", present)

    _draw_cells(incomplete, np.where(sampled[:, :, np.newaxis] > 0, paint[which], tint[which]))
    _write_counts(incomplete, sampled, INK)
    phrase = f"B = {sampled.sum() // n_workers} draws per worker"
    _title_pairs(incomplete, r"$\widetilde{U}_{n,N,B}$", phrase, sampled)

    shades = np.array([_rgb("white"), *(_rgb(colour) for colour in _SEEN_COLOURS)])
    _draw_cells(repartitioned, shades[np.minimum(seen, len(_SEEN_COLOURS))])
    _write_counts(repartitioned, seen, "white")
    _title_pairs(repartitioned, _REPARTITIONED.symbol, f"over T = {n_rounds} partitions", seen)

    for each in (local, incomplete, repartitioned):
        _outline_blocks(each, workers[0])
    for each in axes[-1]:
        each.set_xlabel(f"{n} points of X, by their first worker")
    for each in axes[:, 0]:
        each.set_ylabel(f"{m} points of Z, likewise")
    _legend_of_pairs(figure, n_workers, int(seen.max()))
    return figure


def _rgb(colour: str) -> Floats:
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(colour))


def _draw_cells(axes: Axes, colours: Floats) -> None:
    """Draw a cell for each pair; `colours` is (n, m, 3)."""
    n, m, _ = colours.shape
    axes.pcolormesh(np.arange(n + 1), np.arange(m + 1), colours.swapaxes(0, 1), edgecolors=_CELL_EDGE, lw=0.6)
    axes.set(xticks=[], yticks=[], xlim=(0, n), ylim=(m, 0), aspect="equal")
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)


def _title_pairs(axes: Axes, symbol: str, phrase: str, counts: NDArray[Any]) -> None:
    """Title a grid with its statistic and the pairs in it; `counts` says how often each is evaluated."""
    distinct, total = np.count_nonzero(counts), int(counts.sum())
    again = f" in {total} evaluations (2: twice)" if total > distinct else ""
    set_title(axes, f"{symbol}  {phrase}", f"{distinct} distinct pairs{again}")


def _write_counts(axes: Axes, counts: NDArray[Any], colour: str) -> None:
    """Write into the cells how often a pair is evaluated, where it is more than once."""
    for row, column in np.argwhere(counts > 1):
        text = str(counts[row, column])
        axes.text(row + 0.5, column + 0.54, text, ha="center", va="center", color=colour, fontsize=8)


def _outline_blocks(axes: Axes, workers: NDArray[Any]) -> None:
    """Outline each worker's block of a partition whose points are in the order of their workers."""
    from matplotlib.patches import Rectangle

    for i in range(int(workers.max()) + 1):
        rows, columns = np.nonzero(workers == i)
        x, z = rows.min(), columns.min()
        size = rows.max() + 1 - x, columns.max() + 1 - z
        axes.add_patch(Rectangle((x, z), *size, fill=False, ec=INK, lw=1.3, zorder=3, clip_on=False))


def _legend_of_pairs(figure: Figure, n_workers: int, most_seen: int) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(fc=_WORKER_COLOURS[i % len(_WORKER_COLOURS)], ec=_CELL_EDGE, label=f"worker {i}")
        for i in range(n_workers)
    ]
    handles += [
        Patch(fc=colour, ec=_CELL_EDGE, label=f"in {times} partition{'s' if times > 1 else ''}")
        for times, colour in zip(range(1, most_seen + 1), _SEEN_COLOURS, strict=False)
    ]
    handles.append(Patch(fill=False, ec=INK, lw=1.3, label="block of the first partition"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


# ---------------------------------------------------------------------------------------------------------------------
# Figures 2, 5 and 6: variance against the number of evaluated pairs


def _draw_variances(result: ResultFile) -> Figure:
    """Draw the variance of each statistic against the pairs it evaluates: in theory and, where it was, measured."""
    figure, axes = new_panels(1, 2, _variances_title(result), size=(9.0, 5.0))
    for each, panel in zip(axes[0], result.config["panels"], strict=True):
        _draw_panel(each, result, panel)
    _finish_variances(figure, axes[0], axes[0], result)
    return figure


def _draw_corrected(result: ResultFile) -> Figure:
    """Draw variances of which the paper prints a formula in error, and under them how far that formula is off.

    The error is the same power of ten as the width of a line, so the curves alone would not show it.
    """
    figure, axes = new_panels(
        2, 2, _variances_title(result), size=(9.0, 6.2), sharex="col", gridspec_kw={"height_ratios": [3.2, 1]}
    )
    for (upper, lower), panel in zip(axes.T, result.config["panels"], strict=True):
        _draw_panel(upper, result, panel)
        label = f"{_INCOMPLETE[0].symbol} as the paper prints it"
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
    _finish_variances(figure, axes[0], axes[1], result)
    return figure


_SIZES = (("n", "n"), ("m", "m"), ("N", "n_workers"))


def _variances_title(result: ResultFile) -> str:
    config = result.config
    scheme = scheme_of(config["scheme"]).title or config["scheme"]
    sizes = ", ".join(f"{symbol} = {number(config[name])}" for symbol, name in _SIZES)
    how = "measured" if "n_runs" in config else "in theory"
    return f"Variance under {scheme}, {how}: {sizes}"


def _finish_variances(figure: Figure, upper: Sequence[Axes], lower: Sequence[Axes], result: ResultFile) -> None:
    """Name the axes, and put the legend with what has to be said under them."""
    for each in upper:
        _tick_all_digits(each)
    for each in lower:
        each.set_xlabel("evaluated pairs (number)")
    upper[0].set_ylabel("variance of the statistic (unit of h, squared)")
    legend_below(figure, upper[0], columns=3)
    if "n_runs" in result.config:
        write_note(figure, _measured_note(result))


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
    factor = _values(result, f"{panel}/swor_expectation") / _values(result, f"{panel}/expectation")
    return (
        f"Lines: theory. Points: {number(result.config['n_runs'])} runs, bars ± 2 standard errors.\n"
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

    draw_points = _draw_measured if measured else _draw_exact
    _, variance = _curve(result, f"{panel}/complete")
    axes.axhline(float(variance[0]), color=_COMPLETE.colour, lw=1.1, ls=DOTTED, zorder=1.5)
    draw_points(axes, result, f"{panel}/complete", _COMPLETE, f"{_COMPLETE.symbol}, all pairs")
    draw_points(axes, result, f"{panel}/local", _LOCAL, f"{_LOCAL.symbol}, one partition (T = 1)", slice(0, 1))
    followed = [("local", _REPARTITIONED, f"{_REPARTITIONED.symbol}, T partitions")]
    followed += [
        (f"incomplete {b}", look, f"{look.symbol}, B = {number(b)} draws per worker")
        for b, look in _incomplete_looks(result, panel)
    ]
    for name, look, label in (*followed, ("sampled", _SAMPLED, f"{_SAMPLED.symbol}, draws from all, undistributed")):
        band = name == "sampled"  # the others' yardstick hides behind them if it is no wider
        axes.plot(
            *_curve(result, f"{panel}/{name}"),
            color=look.colour,
            lw=5.0 if band else 1.8,
            alpha=0.45 if band else 1.0,
            solid_capstyle="butt",
            zorder=1.8 if band else 2.0,
            label="" if measured else label,
        )
        if measured:
            rest = slice(1, None) if name == "local" else slice(None)
            draw_points(axes, result, f"{panel}/{name}", look, label, rest)
    if not measured:
        _draw_ends(axes, result, panel, followed)


def _draw_exact(axes: Axes, result: ResultFile, name: str, look: _Look, label: str, part: slice = slice(None)) -> None:
    """Draw exact values as points."""
    n_pairs, variance = _curve(result, name)
    size = 12.0 if look.marker == "*" else 6.0
    axes.plot(
        n_pairs[part],
        variance[part],
        look.marker,
        color=look.colour,
        ms=size,
        mec="white",
        mew=0.6,
        zorder=4,
        label=label,
    )


def _draw_measured(
    axes: Axes, result: ResultFile, name: str, look: _Look, label: str, part: slice = slice(None)
) -> None:
    n_pairs, variance = _curve(result, f"{name}/measured")
    errors = _values(result, f"{name}/measured/standard_error")
    _draw_points(axes, n_pairs[part], variance[part], errors[part], look, label)


def _draw_points(axes: Axes, x: Floats, y: Floats, errors: Floats, look: _Look, label: str) -> None:
    """Draw measured values with error bars of two standard errors."""
    axes.errorbar(
        x,
        y,
        yerr=BAR_STANDARD_ERRORS * errors,
        color=look.colour,
        ls="",
        marker=look.marker,
        ms=7.5 if look.marker == "*" else 4.5,  # small: a bar may not hide behind its point
        mec="white",
        mew=0.4,
        elinewidth=1.2,
        capsize=2.5,
        zorder=5 if look is _LOCAL else 4,  # it is one point, where others have some too
        label=label,
    )


def _draw_ends(axes: Axes, result: ResultFile, panel: str, followed: Sequence[tuple[str, _Look, str]]) -> None:
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
    return _values(result, f"{name}/n_pairs"), _values(result, f"{name}/variance")


def _incomplete_looks(result: ResultFile, panel: str) -> list[tuple[int, _Look]]:
    """Return each B that the file has curves for, with its look."""
    start, end = f"{panel}/incomplete ", "/variance"
    found = sorted(
        int(name[len(start) : -len(end)])
        for name in result.datasets
        if name.startswith(start) and name.endswith(end) and "/measured/" not in name
    )
    return [(b, _INCOMPLETE[i % len(_INCOMPLETE)]) for i, b in enumerate(found)]


# ---------------------------------------------------------------------------------------------------------------------
# Figure 3: relative variance against ε


def _draw_relative(result: ResultFile) -> Figure:
    """Draw variances relative to the complete statistic's, of plain and of conditional runs side by side.

    The axis is logarithmic, as ratios are, and holds all points and the upper ends of all bars. What falls below it
    (a bar's end near 0, or a variance of 0 where no run has had a misordered pair) ends in an arrow.
    """
    config = result.config
    sizes = ", ".join(f"{symbol} = {number(config[name])}" for symbol, name in (*_SIZES, ("T", "n_rounds")))
    figure, axes = new_panels(1, 2, f"Variance of the AUC relative to $U_n$'s: {sizes}", size=(9.0, 4.8), sharey=True)
    limits = _relative_limits(result)
    n_runs = number(config["n_runs"])
    for each, kind, title, subtitle in (
        (axes[0, 0], "plain", "Plain simulation", f"{n_runs} runs for each ε"),
        (axes[0, 1], "conditional", "Conditional simulation", f"{n_runs} runs, given that a misordered pair exists"),
    ):
        set_title(each, title, subtitle)
        _draw_relative_panel(each, result, kind, limits)
        each.set_xlabel("ε, probability of the rare value (dimensionless)")
    axes[0, 0].set_ylabel("variance / exact variance of $U_n$ (dimensionless)")
    _write_informative(axes[0, 0], result)
    legend_below(figure, axes[0, 0], columns=3)
    write_note(
        figure,
        "Lines: exact. Points: simulated, side by side at each ε, bars ± 2 standard errors; "
        "an arrow: point or bar goes on below.",
    )
    return figure


#: Each statistic with the factor by which its points are moved along ε, so that bars stay apart. The steepest curve's
#: points stay, as moved ones would seem to miss it.
_RELATIVE = (("complete", _COMPLETE, 1.17), ("local", _LOCAL, 1.0), ("repartitioned", _REPARTITIONED, 1 / 1.17))


def _relative_limits(result: ResultFile) -> tuple[float, float]:
    """Return the ends of an axis that holds the curves, the points and the upper ends of the bars."""
    top = max(float(_values(result, f"curve/{name}").max()) for name in ("local", "repartitioned"))
    for kind in ("plain", "conditional"):
        for name, _, _ in _RELATIVE:
            values, errors = _relative(result, kind, name)
            top = max(top, float(np.nanmax(values + BAR_STANDARD_ERRORS * errors)))
    return 0.4, 1.6 * top


def _relative(result: ResultFile, kind: str, name: str) -> tuple[Floats, Floats]:
    start = f"{kind}/{name}"
    return _values(result, f"{start}/relative_variance"), _values(result, f"{start}/standard_error")


def _draw_relative_panel(axes: Axes, result: ResultFile, kind: str, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    epsilon, grid = result.scales["epsilon"], _values(result, "curve/epsilon")
    axes.set(xscale="log", yscale="log", ylim=limits)
    axes.axhline(1.0, color=_COMPLETE.colour, lw=1.1, ls=DOTTED, zorder=1.5)
    notes = {"complete": "", "local": ", T = 1", "repartitioned": f", T = {result.config['n_rounds']}"}
    for name, look, shift in _RELATIVE:
        if name != "complete":
            axes.plot(grid, _values(result, f"curve/{name}"), color=look.colour, zorder=2)
        values, errors = _relative(result, kind, name)
        _draw_points(axes, shift * epsilon, values, errors, look, look.symbol + notes[name])
        below = shift * epsilon[values - BAR_STANDARD_ERRORS * errors < limits[0]]
        if len(below):  # the layout stumbles over an unclipped line without points
            axes.plot(below, np.full(len(below), limits[0]), "v", color=look.colour, ms=6.0, clip_on=False, zorder=4)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(epsilon, [_plain(float(each)) for each in epsilon])
    axes.xaxis.set_minor_locator(NullLocator())


def _plain(value: float) -> str:
    """Write a number without an exponent."""
    return np.format_float_positional(value, trim="-")


def _write_informative(axes: Axes, result: ResultFile) -> None:
    """Write over each ε how many plain runs tell anything: few runs make large bars."""
    counts = _values(result, "plain/complete/informative")
    looks: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8, "color": "#555555"}
    for epsilon, count in zip(result.scales["epsilon"], counts, strict=True):
        axes.text(epsilon, 0.985, number(int(count)), transform=axes.get_xaxis_transform(), **looks)
    axes.text(0.5, 0.935, "runs with a misordered pair", transform=axes.transAxes, **looks)


PICTURES: dict[str, Callable[[ResultFile], Figure]] = {
    "coverage": draw_coverage,
    "fig1": _draw_pairs,
    "fig2": _draw_variances,
    "fig3": _draw_relative,
    "fig4-as-described": draw_figure4,
    "fig4-as-published": draw_figure4,
    "fig4-map": draw_map,
    "fig5": _draw_variances,
    "fig6": _draw_corrected,
}
"""The function that draws each kind of result."""
