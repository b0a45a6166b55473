"""Pictures of where repartitioning matters to learning, and of what it costs.

A repartition frequency n_r has the same colour in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.descents import described, frequency, limits
from mpi_ustat.plots.drawing import (
    BAR_STANDARD_ERRORS,
    count,
    legend_below,
    new_panels,
    number,
    set_title,
    tick_digits,
    values,
)
from mpi_ustat.plots.style import DASHED, DOTTED, GREEN, GREY, INK
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MARKERS = "os^Dv"
_SCORES = ("-", DASHED)
_OPTIMUM = "full-batch optimum"
_END = {"lw": 1.1, "ms": 7.0, "mec": "white", "mew": 0.5, "markevery": [-1]}
"""The look of a descent, which ends where its mark is."""


def draw_map(result: ResultFile) -> Figure:
    """Return the picture of the excess test loss against the points that a worker has, a line for each n_r."""
    config, frequencies, workers = result.config, result.scales["n_r"], result.scales["N"]
    points, excess, errors = (values(result, name) for name in ("points_per_worker", "excess", "excess_standard_error"))
    looks = _looks(frequencies)
    figure, axes = new_panels(1, 1, size=(6.8, 5.0))
    (each,) = axes[0]
    each.set_xscale("log")
    each.axhline(0.0, color=GREY, lw=0.9)
    for j, every in enumerate(frequencies):
        shift = 1.035 ** (j - 0.5 * (len(frequencies) - 1))  # side by side, or bars would hide each other
        look = looks[int(every)] | {"ms": 5.0, "mec": "white", "mew": 0.4, "elinewidth": 1.1, "capsize": 2.0}
        bars = BAR_STANDARD_ERRORS * errors[:, j]
        each.errorbar(shift * points, excess[:, j], yerr=bars, label=frequency(int(every)), **look)
    each.set_xticks(points, [f"{number(p)}\nN = {number(n)}" for p, n in zip(points, workers, strict=True)])
    each.set_xticks([], minor=True)
    each.set(xlabel="points of each class per worker (number)", ylabel="test loss above the optimum's (dimensionless)")
    set_title(
        each,
        "Where repartitioning changes what is learnt",
        f"two Gaussian classes in {count(config['d'], 'dimension')}, {config['shift']:g} apart, "
        f"{count(config['n'], 'training point')} each",
    )
    note = (
        f"After {count(config['iterations'], 'iteration')} of {count(config['pairs'], 'pair')} in all; means of "
        f"{count(config['n_runs'], 'run')}, bars ± {BAR_STANDARD_ERRORS:g} standard errors.\n"
        "Every run draws its own data, the same for all points of the picture."
    )
    legend_below(figure, each, columns=5, note=note)
    return figure


def _looks(frequencies: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return how each n_r is drawn: from dark (often) to light (seldom), never dashed."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    ordered = sorted({int(every) for every in frequencies}, key=lambda every: every or np.inf)
    shades = [to_hex(colormaps["plasma"](shade)) for shade in np.linspace(0.0, 0.82, len(ordered))]
    return {
        every: {"color": shade, "ls": "-" if every else DASHED, "marker": _MARKERS[k % len(_MARKERS)]}
        for k, (every, shade) in enumerate(zip(ordered, shades, strict=True))
    }


def draw_tradeoff(results: Sequence[ResultFile]) -> Figure:
    """Return the picture of the test loss against seconds and against bytes, a row for each result.

    Axes are common to all rows, so that the settings can be compared.
    """
    looks = _looks(int(every) for result in results for every in result.scales["n_r"])
    title, size = "Test loss against what it costs to get there", (8.6, 1.9 + 2.7 * len(results))
    figure, axes = new_panels(len(results), 2, title, size=size, sharex="col", sharey=True)
    for row, result in zip(axes, results, strict=True):
        _draw_setting(row, result, looks)
    axes[0, 0].set_ylim(limits(_after(0.1, result, values(result, "test_loss")) for result in results))
    for k, each in enumerate(axes[0]):
        after = [_after(0.05, result, cost) for result in results for cost in _all_costs(result, k)]
        costs = np.concatenate([np.ravel(each) for each in after])
        if costs.max() > 0:
            each.set_xlim(0.7 * costs[costs > 0].min(), 1.4 * costs.max())
    low, high = axes[0, 0].get_xlim()
    tick_digits(axes[0, 0].xaxis, high / low)
    axes[-1, 0].set_xlabel("time of the descent (s)")
    axes[-1, 1].set_xlabel("sent by all ranks (bytes)")
    legend_below(figure, axes[0, 0], columns=5, note=_tradeoff_note(results))
    return figure


def _draw_setting(row: Sequence[Axes], result: ResultFile, looks: Mapping[int, Mapping[str, Any]]) -> None:
    """Draw the two panels of a setting. The start, which nothing was spent for, has no place on a logarithmic axis."""
    losses = values(result, "test_loss")
    for each, cost in zip(row, _costs(result), strict=True):
        spent = cost[:, 1:] > 0
        if not spent.any():
            each.text(0.5, 0.5, "nothing was sent", transform=each.transAxes, ha="center", color=GREY)
            continue
        each.set_xscale("log")
        for j, every in enumerate(map(int, result.scales["n_r"])):
            look = dict(looks[every]) | _END
            look["zorder"] = 2.0 + 0.5 / max(1, every)  # seldom repartitioned ones swing most: beneath
            each.plot(cost[j, 1:][spent[j]], losses[j, 1:][spent[j]], label=frequency(every), **look)
        if "optimum/test_loss" in result.datasets:
            each.axhline(float(values(result, "optimum/test_loss")), color=INK, lw=0.9, ls=DOTTED, label=_OPTIMUM)
    _draw_scores(row, result)
    row[0].set_ylabel("test loss, penalty included\n(dimensionless)")
    set_title(row[0], str(result.config["setting"]))


def _draw_scores(row: Sequence[Axes], result: ResultFile) -> None:
    """Draw the descents whose scores were exchanged, if there are any."""
    if "points" not in result.scales:
        return
    points, losses = result.scales["points"], values(result, "by_scores/test_loss")
    for each, cost in zip(row, _costs(result, "by_scores/"), strict=True):
        for j, n in enumerate(map(int, points)):
            label = "scores, all points" if n == points.max() else f"scores, {number(n)} of each class"
            look: dict[str, Any] = {
                "color": GREEN,
                "ls": _SCORES[j % len(_SCORES)],
                "marker": "P" if j == 0 else "X",
            } | _END
            spent = cost[j, 1:] > 0
            each.plot(cost[j, 1:][spent], losses[j, 1:][spent], label=label, zorder=2.6, **look)


def _costs(result: ResultFile, folder: str = "") -> tuple[Floats, Floats]:
    """Return seconds and bytes, (way, evaluation) each."""
    moved, reduced = (values(result, f"{folder}bytes_{name}") for name in ("moved", "reduced"))
    return values(result, f"{folder}seconds"), moved + reduced


def _all_costs(result: ResultFile, k: int) -> list[Floats]:
    """Return the seconds or the bytes of all descents of a setting, (way, evaluation) each."""
    folders = ["", "by_scores/"] if "points" in result.scales else [""]
    return [_costs(result, folder)[k] for folder in folders]


def _after(share: float, result: ResultFile, curves: Floats) -> Floats:
    """Return the (n_r, evaluation) values after a share of the iterations: the start would take all of an axis."""
    iterations = result.scales["evaluation"]
    return curves[:, iterations >= share * iterations[-1]]


def _tradeoff_note(results: Sequence[ResultFile]) -> str:
    """Describe the descents, in one line if all are of the same."""
    lines = []
    for result in results:
        runs = result.config["runs"]
        how = f"medians of {number(runs)} runs" if runs > 1 else "one run"
        lines.append(f"{count(result.config['iterations'], 'iteration')}, {how}; {described(result)}.")
    lines = list(dict.fromkeys(lines))
    lines.append("A mark is where a descent ends. What lies above the axis is of the first tenth of the iterations.")
    return "\n".join(lines)
