"""The picture of an estimate: by rounds, by workers, by columns, or as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.plots.drawing import count, legend_below, new_panels, set_title, tick_integers
from mpi_ustat.plots.inferred import draw_inferred, has_inference
from mpi_ustat.plots.style import BLUE, GREY, INK, ORANGE, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TO_POPULATION = "standard error to the population"
_TO_COMPLETE = "standard error to $U_n$"
_MOST_DOTS = 20_000  # with more, dots merge into a blot and the range of each round says as much


def draw_estimate(result: ResultFile) -> Figure:
    """Return the picture of an estimate.

    Over several rounds it shows the value of each round, the mean of the rounds so far and, faintly, the values of
    the workers. One round is shown worker by worker, and a value without workers alone. The complete statistic and
    the standard errors, to the population and to the complete statistic, are drawn where the result has them; where it
    has tests or groups, the intervals, differences and p-values of values without workers and of several statistics,
    and the groups.
    """
    values = result.datasets["estimate"].values
    in_parts = "per_round/value" in result.datasets and not values.ndim
    if has_inference(result) and not in_parts:
        return draw_inferred(result, *_titles(result), _quantity(result))
    if values.ndim:
        return _draw_several(result, values)
    if np.isnan(values):
        raise UserError("this file holds no estimate to draw: make it again with this version of mpi_ustat")
    value = float(values)
    rounds, workers = _array(result, "per_round/value"), _array(result, "per_worker/value")
    if rounds is not None and len(rounds) > 1:
        return _draw_rounds(result, value, rounds, workers)
    if workers is not None and workers.size > 1:
        return _draw_workers(result, value, workers.reshape(-1))
    return _draw_value(result, value)


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
        scheme, subtitle = "all pairs", ["complete U-statistic"]
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


def _titled_axes(result: ResultFile, size: tuple[float, float] | None = None) -> tuple[Figure, Axes]:
    """Return a figure under its titles, and its axes."""
    figure, axes = new_panels(1, 1, size=size)
    set_title(axes[0, 0], *_titles(result))
    return figure, axes[0, 0]


def _quantity(result: ResultFile) -> str:
    """Name the value axis, with its unit."""
    unit = result.datasets["estimate"].unit
    name = f"{result.config.get('kernel', '')} U-statistic".strip()
    known = {"": "in units of the kernel", "1": "dimensionless"}
    return f"{name} ({known.get(unit, unit)})"


def _draw_rounds(result: ResultFile, value: float, rounds: NDArray[Any], workers: NDArray[Any] | None) -> Figure:
    figure, axes = _titled_axes(result)
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
    legend_below(figure, axes)
    return figure


def _draw_workers(result: ResultFile, value: float, values: NDArray[Any]) -> Figure:
    figure, axes = _titled_axes(result)
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
    legend_below(figure, axes)
    return figure


def _draw_value(result: ResultFile, value: float) -> Figure:
    figure, axes = _titled_axes(result, (6.4, 2.1))
    axes.set(xlabel=_quantity(result), yticks=[])
    axes.spines["left"].set_visible(False)
    complete, stderr = _number(result, "complete_value"), _number(result, "stderr")
    if complete is not None and complete != value:
        axes.axvline(complete, color=INK, ls="--", lw=1.2, label=f"complete statistic {complete:.5g}")
    note = "" if stderr is None else f" ± {stderr:.2g} ({_TO_POPULATION})"
    look: dict[str, Any] = {"fmt": "o", "ms": 7, "color": BLUE, "elinewidth": 1.6, "capsize": 4}
    axes.errorbar(
        [value], [0.0], xerr=None if stderr is None else [stderr], label=f"estimate {value:.7g}{note}", **look
    )
    above: dict[str, Any] = {"xytext": (0.0, 8.0), "textcoords": "offset points", "ha": "center"}
    axes.annotate(f"{value:.7g}", (value, 0.0), fontweight="bold", **above)
    axes.set_ylim(-1, 1)
    legend_below(figure, axes)
    return figure


def _draw_several(result: ResultFile, values: NDArray[Any]) -> Figure:
    """Draw the estimates of several columns, or shares of several bins, beside each other."""
    places = np.arange(len(values))
    figure, axes = _titled_axes(result)
    axes.set(ylabel=_quantity(result))
    complete, stderr = _array(result, "complete_value"), _array(result, "stderr")
    if complete is not None and not result.config.get("complete"):
        axes.plot(places, complete, "_", ms=16.0, color=INK, label="complete statistic")
    if stderr is not None and not np.isfinite(stderr).any():
        stderr = None
    look: dict[str, Any] = {"fmt": "o", "color": BLUE, "elinewidth": 1.6, "capsize": 4}
    look["label"] = f"estimate ± {_TO_POPULATION}" if stderr is not None else "estimate"
    axes.errorbar(places, values, yerr=None if stderr is None else np.nan_to_num(stderr), **look)
    to_complete = _array(result, "stderr_to_complete")
    if to_complete is not None and (to_complete > 0.0).any():
        thick: dict[str, Any] = {"fmt": "none", "ecolor": VERMILION, "elinewidth": 5.0, "alpha": 0.55, "zorder": 1.5}
        axes.errorbar(places, values, yerr=np.nan_to_num(to_complete), label=f"estimate ± {_TO_COMPLETE}", **thick)
    axes.set_xticks(places, result.config.get("columns") or [f"{place}" for place in places])
    axes.grid(axis="x", visible=False)
    legend_below(figure, axes)
    return figure


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
    """Draw the standard errors and the complete statistic, where there are any."""
    complete = _number(result, "complete_value")
    for name, what, alpha in (("stderr", _TO_POPULATION, 0.18), ("stderr_to_complete", _TO_COMPLETE, 0.4)):
        stderr = _number(result, name)
        if stderr:
            look: dict[str, Any] = {"color": ORANGE, "alpha": alpha, "lw": 0, "zorder": 0.5}
            axes.axhspan(value - stderr, value + stderr, label=f"estimate ± {what}", **look)
    if complete is not None:
        label = f"complete statistic {complete:.5g}"
        axes.axhline(complete, color=INK, ls=(0, (5, 2.5)), lw=1.1, zorder=5, label=label)
