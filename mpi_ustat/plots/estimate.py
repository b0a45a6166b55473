"""The picture of an estimate: by rounds, by workers, by columns, or as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.api.tables import edges_of
from mpi_ustat.api.told import points_text
from mpi_ustat.errors import UserError
from mpi_ustat.plots.drawing import count, legend_below, level, new_panels, set_title, tick_integers
from mpi_ustat.plots.inferred import draw_inferred, draw_values
from mpi_ustat.plots.style import BLUE, GREY, INK, ORANGE, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_EDGES = 30
_MOST_DOTS = 20_000  # with more, dots merge into a blot and the range of each round says as much


def draw_estimate(result: ResultFile) -> Figure:
    """Return the picture of an estimate.

    Over several rounds it shows the value of each round, the mean of the rounds so far and, faintly, the values of the
    workers; of one round those. A histogram is drawn between its edges. All other estimates are drawn with their
    intervals, tests, differences, groups and ROC curves, as far as the result has them.
    """
    if _by_intervals(result):
        return draw_inferred(result, *_titles(result), _quantity(result))
    figure, axes = new_panels(1, 1)
    set_title(axes[0, 0], *_titles(result))
    draw_panel(axes[0, 0], result)
    legend_below(figure, axes[0, 0])
    return figure


def draw_panel(axes: Axes, result: ResultFile, *, guest: bool = False) -> None:
    """Draw an estimate into one panel: what `draw_estimate` does without differences, groups and ROC curves."""
    if _by_intervals(result):
        draw_values(axes, result, _quantity(result), guest=guest)
        return
    edges = edges_of(result)
    if edges is not None:
        _draw_histogram(axes, result, edges)
        return
    value, rounds, workers = float(result.datasets["estimate"].values), *_parts(result)
    if rounds is not None and len(rounds) > 1:
        _draw_rounds(axes, result, value, rounds, workers)
    elif workers is not None:
        _draw_workers(axes, result, value, workers.reshape(-1))


def _by_intervals(result: ResultFile) -> bool:
    """Return whether it is drawn as values with intervals."""
    estimate = result.datasets["estimate"].values
    if np.isnan(estimate).all():
        raise UserError("this file holds no estimate to draw: make it again with this version of mpi_ustat")
    if edges_of(result) is not None:
        return False
    rounds, workers = _parts(result)
    in_parts = (rounds is not None and len(rounds) > 1) or (workers is not None and workers.size > 1)
    return bool(estimate.ndim) or not in_parts


def _parts(result: ResultFile) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    return _array(result, "per_round/value"), _array(result, "per_worker/value")


def _array(result: ResultFile, name: str) -> NDArray[Any] | None:
    return result.datasets[name].values if name in result.datasets else None


def _number(result: ResultFile, name: str) -> float | None:
    values = _array(result, name)
    return None if values is None or np.isnan(values) else float(values)


def _titles(result: ResultFile) -> tuple[str, str]:
    """Return kernel and scheme, and N, T and B, as far as they apply."""
    config = result.config
    scheme, subtitle = config.get("scheme"), []
    if config.get("complete"):
        scheme, subtitle = "all pairs", [points_text(result) if "sizes" in result.datasets else "complete U-statistic"]
    else:
        if "n_workers" in config:
            subtitle.append(f"N = {count(config['n_workers'], 'worker')}")
        if "n_rounds" in config:
            subtitle.append(f"T = {count(config['n_rounds'], 'round')}")
        if "n_pairs" in config:
            n_pairs = config["n_pairs"]
            subtitle.append("B = all local pairs" if n_pairs is None else f"B = {count(n_pairs, 'pair')} per worker")
    title = ", ".join(str(name) for name in (config.get("kernel", "U-statistic"), scheme) if name)
    return title, ", ".join(subtitle)


def _quantity(result: ResultFile) -> str:
    """Name the value axis, with its unit."""
    unit = result.datasets["estimate"].unit
    name = f"{result.config.get('kernel', '')} U-statistic".strip()
    known = {"": "in units of the kernel", "1": "dimensionless"}
    return f"{name} ({known.get(unit, unit)})"


def _draw_rounds(
    axes: Axes, result: ResultFile, value: float, rounds: NDArray[Any], workers: NDArray[Any] | None
) -> None:
    axes.set(xlabel="round t (partition number)", ylabel=_quantity(result))
    ids = result.scales.get("round", np.arange(len(rounds)))
    if workers is not None and workers.shape[1] > 1:
        _draw_worker_spread(axes, ids, workers)
    _draw_references(axes, result, value)
    look: dict[str, Any] = {"ms": 4.5, "mew": 0.4} if len(rounds) <= 60 else {"ms": 2.6, "mew": 0.0}
    axes.plot(ids, rounds, "o", color=BLUE, mec="white", zorder=3, label="value of the round (all workers)", **look)
    weights = np.ones(len(rounds))
    if result.config.get("aggregate") == "pooled" and "per_round/n_pairs" in result.datasets:
        weights = result.datasets["per_round/n_pairs"].values.astype(float)
    mean = np.cumsum(rounds * weights) / np.cumsum(weights)
    axes.plot(ids, mean, color=VERMILION, lw=1.9, zorder=4, label=f"mean of the rounds so far, at last {value:.5g}")
    tick_integers(axes, ids)


def _draw_workers(axes: Axes, result: ResultFile, value: float, values: NDArray[Any]) -> None:
    axes.set(xlabel="worker i (block of the partition)", ylabel=_quantity(result))
    ids = result.scales.get("worker", np.arange(len(values)))
    present, few = ~np.isnan(values), len(values) <= 200
    if few:  # beyond, the stems would be a hatching
        axes.vlines(ids[present], value, values[present], color=GREY, lw=0.9, alpha=0.6, zorder=1.5)
    _draw_references(axes, result, value)
    axes.axhline(value, color=VERMILION, zorder=2.5, label=f"estimate {value:.5g}")
    skipped = int(np.count_nonzero(~present))
    note = f" ({count(skipped, 'worker')} without pairs)" if skipped else ""
    look: dict[str, Any] = {"ms": 5.5 if few else 3.0, "color": BLUE, "mec": "white", "mew": 0.5}
    look["rasterized"] = len(values) > _MOST_DOTS
    axes.plot(ids[present], values[present], "o", zorder=3, label=f"value of the worker{note}", **look)
    tick_integers(axes, ids)


def _draw_histogram(axes: Axes, result: ResultFile, edges: NDArray[Any]) -> None:
    """Draw shares of the bins of a histogram between their edges, with their intervals."""
    shares = result.datasets["estimate"].values
    axes.stairs(shares, edges, fill=True, color=BLUE, alpha=0.4, label="share of the pairs")
    if "interval" in result.datasets:
        ends = result.datasets["interval"].values
        bars = np.nan_to_num(np.abs(ends.T - shares))
        look: dict[str, Any] = {"fmt": "none", "ecolor": INK, "elinewidth": 1.2, "capsize": 2.5}
        axes.errorbar((edges[:-1] + edges[1:]) / 2.0, shares, yerr=bars, label=f"{level(result)} interval", **look)
    complete = _array(result, "complete_value")
    if complete is not None and not result.config.get("complete"):
        axes.stairs(complete, edges, color=VERMILION, lw=1.2, label="complete statistic")
    between = f"{count(len(shares), 'bin')} between {edges[0]:g} and {edges[-1]:g}"
    axes.set(xlabel=f"similarity: {between}", ylabel="share of the pairs")
    if len(edges) <= _MOST_EDGES:
        axes.set_xticks(edges, [f"{edge:g}" for edge in edges], rotation=90 if len(edges) > 12 else 0)
    axes.grid(axis="x", visible=False)


def _draw_worker_spread(axes: Axes, ids: NDArray[Any], workers: NDArray[Any]) -> None:
    """Show the values of the workers behind those of the rounds: as dots, or as ranges when there are too many."""
    if workers.size > _MOST_DOTS:
        low, high = np.nanmin(workers, axis=1), np.nanmax(workers, axis=1)
        label = "range of the workers' values"
        axes.fill_between(ids, low, high, color=GREY, alpha=0.22, lw=0, zorder=1, label=label)
        return
    where = np.broadcast_to(np.asarray(ids)[:, np.newaxis], workers.shape).reshape(-1)
    look: dict[str, Any] = {"ms": 2.2, "color": GREY, "alpha": 0.45, "mew": 0, "rasterized": workers.size > 2000}
    axes.plot(where, workers.reshape(-1), "o", zorder=1, label="value of a worker", **look)


def _draw_references(axes: Axes, result: ResultFile, value: float) -> None:
    """Draw the interval, the standard error to the complete statistic and that itself, where there are any."""
    complete, to_complete = _number(result, "complete_value"), _number(result, "stderr_to_complete")
    look: dict[str, Any] = {"color": ORANGE, "lw": 0, "zorder": 0.5}
    interval = _array(result, "interval")
    if interval is not None and not np.isnan(interval).any():
        axes.axhspan(*interval, label=f"{level(result)} interval, for the population's value", alpha=0.18, **look)
    if to_complete:
        label = "estimate ± standard error to $U_n$"
        axes.axhspan(value - to_complete, value + to_complete, label=label, alpha=0.4, **look)
    if complete is not None:
        label = f"complete statistic {complete:.5g}"
        axes.axhline(complete, color=INK, ls=(0, (5, 2.5)), lw=1.1, zorder=5, label=label)
