"""Pictures of result files. They show what the files hold; no statistic is computed here.

Every figure is made without pyplot, in the same style, whatever the user's matplotlib settings are: a `draw_…`
function turns a result into a `Figure`, and `save_figure` writes it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.storage.files import write_whole
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".pdf", ".svg")

# Okabe & Ito's palette, told apart by colour-blind readers; the lines differ in dash pattern too.
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"
INK, GREY = "#222222", "#8C8C8C"
DASHED, DOTTED = (0, (4, 2.5)), (0, (1, 1.5))

_STYLE: dict[str, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "text.color": INK,
    "axes.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "figure.figsize": (6.4, 4.0),  # inches; two fit a page
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.05,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # letters stay letters: searchable, and journals refuse the default
    "svg.hashsalt": "mpi_ustat",  # the same picture gives the same file
}
_UNDATED: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
#: Error bars reach this many standard errors to both sides.
BAR_STANDARD_ERRORS = 2.0
#: Between groups of three digits.
SPACE = "\N{NARROW NO-BREAK SPACE}"

_MOST_DOTS = 20_000  # with more, dots merge into a blot and the range of each round says as much


def save_figure(figure: Figure, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a figure, whole or not at all, in the format that the suffix of `path` names."""
    suffix = _check_suffix(path)
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=suffix[1:], metadata=_UNDATED[suffix])
    write_whole(path, content.getvalue(), overwrite=overwrite)


def draw_estimate(result: ResultFile) -> Figure:
    """Return the picture of an estimate.

    Over several rounds it shows the value of each round, the mean of the rounds so far and, faintly, the values of
    the workers. One round is shown worker by worker, and a value without workers alone. The complete statistic and
    the standard error are drawn where the result has them.
    """
    check_kind(result, "estimate")
    if "estimate" in result.datasets and result.datasets["estimate"].values.ndim:
        return _draw_several(result)
    view = _EstimateView.of(result)
    if view.rounds is not None and len(view.rounds) > 1:
        return _draw_rounds(view, view.rounds)
    if view.workers is not None and view.workers.size > 1:
        return _draw_workers(view, view.workers.reshape(-1))
    return _draw_value(view)


def check_kind(result: ResultFile, *kinds: str) -> None:
    """Refuse a result of another kind than those that a picture is for."""
    if result.kind not in kinds:
        known = " or ".join(f"'{kind}'" for kind in kinds)
        raise UserError(f"this file holds a result of kind {result.kind!r}: give one of kind {known} for this plot")


@dataclass(frozen=True, eq=False)
class _EstimateView:
    """What a picture needs of an estimate, with the optional parts as None."""

    title: str
    subtitle: str
    quantity: str
    estimate: float
    stderr: float | None
    complete: float | None
    rounds: NDArray[Any] | None  # (T,) values per round
    round_weights: NDArray[Any] | None  # (T,) what the estimate weighs them by, None for a plain mean
    workers: NDArray[Any] | None  # (T, N) values per round and worker, NaN for a worker without pairs
    round_ids: NDArray[Any]
    worker_ids: NDArray[Any]

    @classmethod
    def of(cls, result: ResultFile) -> _EstimateView:
        def array(name: str) -> NDArray[Any] | None:
            return result.datasets[name].values if name in result.datasets else None

        def number(name: str) -> float | None:
            values = array(name)
            return None if values is None or np.isnan(values) else float(values)

        estimate = number("estimate")
        if estimate is None:
            raise UserError("this file holds no estimate to draw: make it again with this version of mpi_ustat")
        rounds, workers = array("per_round/value"), array("per_worker/value")
        pooled = result.config.get("aggregate") == "pooled"
        return cls(
            title=_title(result.config),
            subtitle=_subtitle(result.config),
            quantity=_quantity(result),
            estimate=estimate,
            stderr=number("stderr"),
            complete=number("complete_value"),
            rounds=rounds,
            round_weights=array("per_round/n_pairs") if pooled else None,
            workers=workers,
            round_ids=result.scales.get("round", np.arange(0 if rounds is None else len(rounds))),
            worker_ids=result.scales.get("worker", np.arange(0 if workers is None else workers.shape[1])),
        )


def _title(config: dict[str, Any]) -> str:
    """Return the kernel and the scheme."""
    scheme = "all pairs" if config.get("complete") else config.get("scheme")
    return ", ".join(str(name) for name in (config.get("kernel", "U-statistic"), scheme) if name)


def _subtitle(config: dict[str, Any]) -> str:
    """Return N, T and B, as far as they apply."""
    if config.get("complete"):
        return "complete U-statistic"
    parts = []
    if "n_workers" in config:
        parts.append(f"N = {_count(config['n_workers'], 'worker')}")
    if "n_rounds" in config:
        parts.append(f"T = {_count(config['n_rounds'], 'round')}")
    if "n_pairs" in config:
        n_pairs = config["n_pairs"]
        parts.append("B = all local pairs" if n_pairs is None else f"B = {_count(n_pairs, 'pair')} per worker")
    return ", ".join(parts)


def _count(things: int, noun: str) -> str:
    return f"{number(things)} {noun}{'s' * (things != 1)}"


def _quantity(result: ResultFile) -> str:
    """Name the value axis, with its unit."""
    unit = result.datasets["estimate"].unit
    name = f"{result.config.get('kernel', '')} U-statistic".strip()
    known = {"": "in units of the kernel", "1": "dimensionless"}
    return f"{name} ({known.get(unit, unit)})"


def _draw_rounds(view: _EstimateView, rounds: NDArray[Any]) -> Figure:
    with style():
        figure, axes = _titled_axes(view, xlabel="round t (partition number)", ylabel=view.quantity)
        if view.workers is not None and view.workers.shape[1] > 1:
            _draw_worker_spread(axes, view.round_ids, view.workers)
        _draw_references(axes, view)
        few = len(rounds) <= 60
        axes.plot(
            view.round_ids,
            rounds,
            "o",
            ms=4.5 if few else 2.6,
            color=BLUE,
            mec="white",
            mew=0.4 if few else 0.0,
            zorder=3,
            label="value of the round (all workers)",
        )
        axes.plot(
            view.round_ids,
            _running_mean(rounds, view.round_weights),
            color=VERMILION,
            lw=1.9,
            zorder=4,
            label=f"mean of the rounds so far, at last {view.estimate:.5g}",
        )
        _integer_axis(axes, view.round_ids)
        legend_below(figure, axes)
    return figure


def _draw_workers(view: _EstimateView, values: NDArray[Any]) -> Figure:
    present = ~np.isnan(values)
    with style():
        figure, axes = _titled_axes(view, xlabel="worker i (block of the partition)", ylabel=view.quantity)
        few = len(values) <= 200
        if few:  # beyond, the stems would be a hatching
            axes.vlines(
                view.worker_ids[present], view.estimate, values[present], color=GREY, lw=0.9, alpha=0.6, zorder=1.5
            )
        _draw_references(axes, view)
        axes.axhline(view.estimate, color=VERMILION, zorder=2.5, label=f"estimate {view.estimate:.5g}")
        skipped = int(np.count_nonzero(~present))
        note = f" ({_count(skipped, 'worker')} without pairs)" if skipped else ""
        axes.plot(
            view.worker_ids[present],
            values[present],
            "o",
            ms=5.5 if few else 3.0,
            color=BLUE,
            mec="white",
            mew=0.5,
            zorder=3,
            label=f"value of the worker{note}",
            rasterized=len(values) > _MOST_DOTS,
        )
        _integer_axis(axes, view.worker_ids)
        legend_below(figure, axes)
    return figure


def _draw_value(view: _EstimateView) -> Figure:
    with style():
        figure, axes = _titled_axes(view, xlabel=view.quantity, ylabel="", size=(6.4, 2.1))
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        if view.complete is not None and view.complete != view.estimate:
            axes.axvline(view.complete, color=INK, ls="--", lw=1.2, label=f"complete statistic {view.complete:.5g}")
        note = "" if view.stderr is None else f" ± {view.stderr:.2g} (one standard error)"
        axes.errorbar(
            [view.estimate],
            [0.0],
            xerr=None if view.stderr is None else [view.stderr],
            fmt="o",
            ms=7,
            color=BLUE,
            elinewidth=1.6,
            capsize=4,
            label=f"estimate {view.estimate:.7g}{note}",
        )
        axes.annotate(
            f"{view.estimate:.7g}",
            (view.estimate, 0.0),
            (0.0, 8.0),
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
        axes.set_ylim(-1, 1)
        legend_below(figure, axes)
    return figure


def _draw_several(result: ResultFile) -> Figure:
    """Draw the estimates of several columns, or shares of several bins, beside each other."""
    values = result.datasets["estimate"].values
    places = np.arange(len(values))
    with style():
        figure, axes = _new_figure(xlabel="", ylabel=_quantity(result))
        set_title(axes, _title(result.config), _subtitle(result.config))
        if "complete_value" in result.datasets and not result.config.get("complete"):
            complete = result.datasets["complete_value"].values
            axes.plot(places, complete, "_", ms=16.0, color=INK, label="complete statistic")
        errors = result.datasets["stderr"].values if "stderr" in result.datasets else np.full(len(values), np.nan)
        known = np.isfinite(errors).any()
        axes.errorbar(
            places,
            values,
            yerr=np.nan_to_num(errors) if known else None,
            fmt="o",
            color=BLUE,
            elinewidth=1.6,
            capsize=4,
            label="estimate ± one standard error" if known else "estimate",
        )
        names = result.config.get("columns") or [f"{place}" for place in places]
        axes.set_xticks(places, names)
        axes.grid(axis="x", visible=False)
        legend_below(figure, axes)
    return figure


def _draw_worker_spread(axes: Axes, round_ids: NDArray[Any], workers: NDArray[Any]) -> None:
    """Show the values of the workers behind those of the rounds: as dots, or as ranges when there are too many."""
    if workers.size > _MOST_DOTS:
        low, high = np.nanmin(workers, axis=1), np.nanmax(workers, axis=1)
        label = "range of the workers' values"
        axes.fill_between(round_ids, low, high, color=GREY, alpha=0.22, lw=0, zorder=1, label=label)
        return
    where = np.broadcast_to(np.asarray(round_ids)[:, np.newaxis], workers.shape)
    axes.plot(
        where.reshape(-1),
        workers.reshape(-1),
        "o",
        ms=2.2,
        color=GREY,
        alpha=0.45,
        mew=0,
        zorder=1,
        label="value of a worker",
        rasterized=workers.size > 2000,
    )


def _draw_references(axes: Axes, view: _EstimateView) -> None:
    if view.stderr is not None:
        axes.axhspan(
            view.estimate - view.stderr,
            view.estimate + view.stderr,
            color=ORANGE,
            alpha=0.18,
            lw=0,
            zorder=0.5,
            label="estimate ± one standard error",
        )
    if view.complete is not None:
        label = f"complete statistic {view.complete:.5g}"
        axes.axhline(view.complete, color=INK, ls=(0, (5, 2.5)), lw=1.1, zorder=5, label=label)


def _running_mean(values: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
    shares = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    return np.asarray(np.cumsum(values * shares) / np.cumsum(shares))


def _titled_axes(
    view: _EstimateView, *, xlabel: str, ylabel: str, size: tuple[float, float] | None = None
) -> tuple[Figure, Axes]:
    figure, axes = _new_figure(xlabel=xlabel, ylabel=ylabel, size=size)
    set_title(axes, view.title, view.subtitle)
    return figure, axes


def _new_figure(*, xlabel: str, ylabel: str, size: tuple[float, float] | None = None) -> tuple[Figure, Axes]:
    """Return an empty figure with one pair of axes. To be called, like all drawing, inside `style`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def number(value: float) -> str:
    """Write a whole number with groups of three digits, any other shortly."""
    return f"{value:,.0f}".replace(",", SPACE) if float(value).is_integer() else f"{value:.4g}"


def new_panels(
    n_rows: int, n_columns: int, title: str, *, size: tuple[float, float], **options: Any
) -> tuple[Figure, NDArray[Any]]:
    """Return a figure under a title and its axes, (n_rows, n_columns). To be called inside `style`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=11.5, fontweight="bold")
    return figure, axes


def set_title(axes: Axes, title: str, subtitle: str = "") -> None:
    """Set a title and, between it and the axes, a line in regular weight."""
    axes.set_title(title, pad=20.0 if subtitle else 6.0)
    axes.annotate(subtitle, (0.0, 1.0), (0.0, 6.0), xycoords="axes fraction", textcoords="offset points")


def _integer_axis(axes: Axes, ids: NDArray[Any]) -> None:
    """Tick whole numbers only, and leave the same margin for few and for many points."""
    from matplotlib.ticker import MaxNLocator

    first, last = float(np.min(ids)), float(np.max(ids))
    margin = max(0.4, 0.02 * (last - first))
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True))
    axes.grid(axis="x", visible=False)


def legend_below(figure: Figure, axes: Axes, *, columns: int = 2) -> None:
    """Put the legend outside the data, where it can hide nothing."""
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D) and handle.get_marker() == "o":
            # The dots of a crowd are too small to show a colour.
            handle.set_markersize(max(handle.get_markersize(), 4.0))
            handle.set_alpha(1.0)


def write_note(figure: Figure, note: str) -> None:
    """Write a note over the legend's entries, where the layout keeps room for it."""
    legend = figure.legends[0]
    legend.set_title(note)
    legend.get_title().set(fontsize=8.5, multialignment="left")


@contextmanager
def style() -> Iterator[None]:
    """Set this module's style, over matplotlib's defaults, for as long as the context lasts."""
    try:
        import matplotlib.style
    except ImportError as error:
        message = "figures need matplotlib, which is not installed: run pip install 'mpi_ustat[plot]'"
        raise UserError(message) from error
    with matplotlib.style.context(["default", _STYLE]):
        yield


def _check_suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"'{os.fspath(path)}' names no picture format: end the name in {', '.join(SUFFIXES)}")
    return suffix
