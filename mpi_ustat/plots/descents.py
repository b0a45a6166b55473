"""Pictures of descents: one run, the paper's figure 4, where repartitioning matters, and what it costs.

A repartition frequency n_r has the same colour in all figures. Nothing is computed but 1 − AUC: the numbers are the
files'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.plots.drawing import (
    BAR_STANDARD_ERRORS,
    BLUE,
    DASHED,
    DOTTED,
    GREY,
    INK,
    VERMILION,
    check_kind,
    legend_below,
    new_panels,
    number,
    set_title,
    style,
    write_note,
)
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


Floats = NDArray[np.float64]

_TEST: dict[str, Any] = {"color": BLUE}
_TRAIN: dict[str, Any] = {"color": VERMILION, "ls": DASHED}
_MARKERS = "os^Dv"


def _values(result: ResultFile, name: str) -> NDArray[Any]:
    if name not in result.datasets:
        raise _lacking(result, name)
    return result.datasets[name].values


def _scale(result: ResultFile, name: str) -> NDArray[Any]:
    if name not in result.scales:
        raise _lacking(result, name)
    return result.scales[name]


def _option(result: ResultFile, name: str) -> Any:
    if name not in result.config:
        raise _lacking(result, name)
    return result.config[name]


def _lacking(result: ResultFile, name: str) -> UserError:
    return UserError(
        f"this '{result.kind}' file holds no '{name}' to draw: make it again with this version of mpi_ustat"
    )


def _frequency(every: int | None) -> str:
    """Name a repartition frequency; None and 0 are never."""
    return f"$n_r$ = {number(every)}" if every else "never repartitioned"


def _spread(result: ResultFile) -> list[str]:
    """Return how the pairs of an iteration are spread over workers."""
    pairs = _option(result, "batch_pairs")
    return [
        f"N = {number(_option(result, 'n_workers'))} workers",
        "B = all local pairs" if pairs is None else f"B = {number(pairs)} pairs per worker",
        str(_option(result, "scheme")),
    ]


def _described(result: ResultFile) -> str:
    """Return the options that a descent depends on most, but for the repartition frequency, in a line."""
    parts = [
        *_spread(result),
        f"step {_option(result, 'learning_rate'):g}",
        f"momentum {_option(result, 'momentum'):g}",
        f"λ = {_option(result, 'l2'):g}",
    ]
    return ", ".join(parts)


def _scale_values(axes: Axes, curves: Iterable[Floats]) -> None:
    """Make the y-axis logarithmic if the values allow it and would be hard to read otherwise."""
    values = np.concatenate([np.ravel(curve) for curve in curves])
    if values.min() > 0.0 and values.max() > 10.0 * values.min():
        axes.set_yscale("log")
        _tick_digits(axes.yaxis, values.max() / values.min())


def _tick_digits(axis: Axis, span: float) -> None:
    """Tick a logarithmic axis in plain digits, more of them where its ends are less than a thousandfold apart."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 1000.0 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _limits(values: Iterable[Any], margin: float = 0.08) -> tuple[float, float]:
    """Return the ends of an axis that holds all values, with a margin."""
    flat = np.concatenate([np.ravel(each) for each in values])
    low, high = float(np.nanmin(flat)), float(np.nanmax(flat))
    room = margin * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


# ---------------------------------------------------------------------------------------------------------------------
# One descent


def draw_learn(result: ResultFile) -> Figure:
    """Return the picture of one descent: loss over 1 − AUC, of training and test points, by iteration.

    What a result lacks (a test set, the AUC of an objective without one) is left out.

    Parameters
    ----------
    result : ResultFile
        Of kind "learn".

    Raises
    ------
    UserError
        If the result is of another kind or lacks the curves, or matplotlib is not installed.
    """
    check_kind(result, "learn")
    iteration = _values(result, "history/iteration")
    quantities = (("loss, penalty included\n(dimensionless)", "loss"), ("1 − AUC\n(dimensionless)", "auc"))
    drawn = [(label, curves) for label, name in quantities if (curves := _history(result, name))]
    if not drawn:
        raise UserError("this 'learn' file holds no evaluation to draw: let it evaluate something")
    with style():
        figure, axes = new_panels(len(drawn), 1, "", size=(6.4, 2.0 + 1.9 * len(drawn)), sharex=True)
        for each, (label, curves) in zip(axes[:, 0], drawn, strict=True):
            for name, values in curves.items():
                look = _TEST if name == "test" else _TRAIN
                each.plot(iteration, values, label=f"{name} points, at last {values[-1]:.4g}", **look)
                if len(values) <= 60:
                    each.plot(iteration, values, "o", ms=3.0, color=look["color"])
            _scale_values(each, curves.values())
            each.set_ylabel(label)
            each.legend(loc="upper right")
        axes[-1, 0].set_xlabel("iteration")
        subtitle = ", ".join([_frequency(_option(result, "repartition_every")), *_spread(result)])
        set_title(axes[0, 0], _learn_title(result), subtitle)
        figure.align_ylabels()
    return figure


def _learn_title(result: ResultFile) -> str:
    data = result.config.get("data", {})
    name = data.get("name") or ", ".join(data.get("files", ()))
    return f"Learning: {_option(result, 'loss')} loss" + (f" on {name}" if name else "")


def _history(result: ResultFile, quantity: str) -> dict[str, Floats]:
    """Return the loss or 1 − AUC of the test and of the training points, without what was never evaluated."""
    found = {name: _values(result, f"history/{name}_{quantity}") for name in ("test", "train")}
    return {
        name: 1.0 - values if quantity == "auc" else values
        for name, values in found.items()
        if np.isfinite(values).all()
    }


# ---------------------------------------------------------------------------------------------------------------------
# Figure 4


def draw_figure4(result: ResultFile) -> Figure:
    """Return the picture of figure 4: a column for each n_r, with the same axes, so that differences would be seen.

    The first row has the whole descent, on a logarithmic axis; the others the test loss and 1 − AUC on axes that hold
    what comes in the second half of the iterations.

    Parameters
    ----------
    result : ResultFile
        Of kind "fig4-as-described" or "fig4-as-published".

    Raises
    ------
    UserError
        If the result is of another kind or lacks what the picture shows, or matplotlib is not installed.
    """
    check_kind(result, "fig4-as-described", "fig4-as-published")
    iteration, frequencies = _scale(result, "evaluation"), _scale(result, "n_r")
    preset = str(_option(result, "preset")).replace("-", " ")
    title = f"Shuttle, {preset}: what repartitioning every $n_r$ iterations does to learning"
    loss, auc = _Curves(result, "loss"), _Curves(result, "auc")
    with style():
        figure, axes = new_panels(
            3,
            len(frequencies),
            title,
            size=(2.0 * len(frequencies) + 1.2, 7.0),
            sharex=True,
            sharey="row",
        )
        for j, every in enumerate(frequencies):
            whole, late, ranking = axes[:, j]
            whole.set_title(_frequency(int(every)), fontsize=9.5, fontweight="normal", loc="center")
            loss.draw(whole, iteration, j)
            loss.draw(late, iteration, j, parts=("test",))
            auc.draw(ranking, iteration, j)
            ranking.set_xlabel("iteration")
        settled = iteration >= 0.5 * iteration[-1]
        _scale_values(axes[0, 0], [*loss.test, *loss.train, *loss.optimum.values()])
        axes[1, 0].set_ylim(_limits([each[:, settled] for each in loss.test] + [loss.optimum["test"]]))
        axes[2, 0].set_ylim(_limits([each[:, settled] for each in (*auc.test, *auc.train)] + [*auc.optimum.values()]))
        for each, label in zip(axes[:, 0], ("loss", "test loss, late", "1 − AUC, late"), strict=True):
            each.set_ylabel(f"{label}\n(dimensionless)")
        figure.align_ylabels()
        legend_below(figure, axes[0, 0], columns=4)
        write_note(
            figure,
            f"{number(_option(result, 'n_runs'))} runs each; {_described(result)}. Losses include the penalty.\n"
            "The axes of the lower rows hold the second half of the iterations: "
            "what lies above or below is cut off there.",
        )
    return figure


class _Curves:
    """The curves of a quantity of figure 4, by n_r: as they are for the loss, 1 − AUC for the AUC."""

    def __init__(self, result: ResultFile, quantity: str) -> None:
        def get(part: str, points: str) -> Floats:
            values = np.asarray(_values(result, f"{part}/{points}_{quantity}"), dtype=np.float64)
            return 1.0 - values if quantity == "auc" else values

        self.test = [get(part, "test") for part in ("low", "median", "high")]
        self.train = [get("median", "train")]
        self.optimum = {points: get("optimum", points) for points in ("test", "train")}

    def draw(self, axes: Axes, x: NDArray[Any], j: int, *, parts: Sequence[str] = ("test", "train")) -> None:
        """Draw the curves of the j-th n_r."""
        low, median, high = (each[j] for each in self.test)
        for points in parts:
            colour = (_TEST if points == "test" else _TRAIN)["color"]
            axes.axhline(
                float(self.optimum[points]), color=INK, lw=0.9, ls=DOTTED, zorder=2.5,
                label="full-batch optimum" if points == "test" else "",
            )  # fmt: skip
            if points == "test":
                axes.fill_between(x, low, high, color=colour, alpha=0.28, lw=0, label="test, 95 % of the runs")
                axes.plot(x, median, lw=1.3, label="test, median", **_TEST)
            else:
                axes.plot(x, self.train[0][j], lw=1.3, label="train, median", **_TRAIN)


# ---------------------------------------------------------------------------------------------------------------------
# Where repartitioning matters


def draw_map(result: ResultFile) -> Figure:
    """Return the picture of the excess test loss against the points that a worker has, a line for each n_r.

    Parameters
    ----------
    result : ResultFile
        Of kind "fig4-map".

    Raises
    ------
    UserError
        If the result is of another kind or lacks what the picture shows, or matplotlib is not installed.
    """
    check_kind(result, "fig4-map")
    points, excess = _values(result, "points_per_worker"), _values(result, "excess")
    errors, frequencies = _values(result, "excess_standard_error"), _scale(result, "n_r")
    with style():
        from matplotlib.ticker import NullLocator

        looks = _looks(frequencies)
        figure, axes = new_panels(1, 1, "", size=(6.8, 5.0))
        (each,) = axes[0]
        each.set_xscale("log")
        each.axhline(0.0, color=GREY, lw=0.9)
        for j, every in enumerate(frequencies):
            shift = 1.035 ** (j - 0.5 * (len(frequencies) - 1))  # side by side, or bars would hide each other
            each.errorbar(
                shift * points,
                excess[:, j],
                yerr=BAR_STANDARD_ERRORS * errors[:, j],
                ms=5.0,
                mec="white",
                mew=0.4,
                elinewidth=1.1,
                capsize=2.0,
                label=_frequency(int(every)),
                **looks[int(every)],
            )
        workers = _scale(result, "N")
        each.set_xticks(points, [f"{number(p)}\nN = {number(n)}" for p, n in zip(points, workers, strict=True)])
        each.xaxis.set_minor_locator(NullLocator())
        each.set(
            xlabel="points of each class per worker (number)",
            ylabel="test loss above the optimum's (dimensionless)",
        )
        set_title(
            each,
            "Where repartitioning changes what is learnt",
            f"two Gaussian classes in {_option(result, 'd')} dimensions, {_option(result, 'shift'):g} apart, "
            f"{number(_option(result, 'n'))} training points each",
        )
        legend_below(figure, each, columns=5)
        write_note(
            figure,
            f"After {number(_option(result, 'iterations'))} iterations of {number(_option(result, 'pairs'))} pairs "
            f"in all; means of {number(_option(result, 'n_runs'))} runs, "
            f"bars ± {BAR_STANDARD_ERRORS:g} standard errors.\n"
            "Every run draws its own data, the same for all points of the picture.",
        )
    return figure


def _looks(frequencies: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return how each n_r is drawn: from dark (often) to light (seldom), never dashed."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    ordered = sorted({int(every) for every in frequencies}, key=lambda every: every or np.inf)
    shades = np.linspace(0.0, 0.82, len(ordered))
    return {
        every: {
            "color": to_hex(colormaps["plasma"](shade)),
            "ls": "-" if every else DASHED,
            "marker": _MARKERS[k % len(_MARKERS)],
        }
        for k, (every, shade) in enumerate(zip(ordered, shades, strict=True))
    }


# ---------------------------------------------------------------------------------------------------------------------
# What it costs


def draw_tradeoff(results: Sequence[ResultFile]) -> Figure:
    """Return the picture of the test loss against seconds and against bytes, a row for each result.

    Axes are common to all rows, so that the settings can be compared.

    Parameters
    ----------
    results : sequence of ResultFile
        Of kind "tradeoff".

    Raises
    ------
    UserError
        If a result is of another kind or lacks what the picture shows, or matplotlib is not installed.
    """
    for result in results:
        check_kind(result, "tradeoff")
    frequencies = [int(every) for result in results for every in _scale(result, "n_r")]
    with style():
        looks = _looks(frequencies)
        figure, axes = new_panels(
            len(results),
            2,
            "Test loss against what it costs to get there",
            size=(8.6, 1.9 + 2.7 * len(results)),
            sharex="col",
            sharey=True,
        )
        for row, result in zip(axes, results, strict=True):
            _draw_setting(row, result, looks)
        axes[0, 0].set_ylim(_limits(_after(0.1, result, _values(result, "test_loss")) for result in results))
        for k, each in enumerate(axes[0]):
            costs = np.concatenate([np.ravel(_after(0.05, result, _costs(result)[k])) for result in results])
            if costs.max() > 0:
                each.set_xlim(0.7 * costs[costs > 0].min(), 1.4 * costs.max())
        low, high = axes[0, 0].get_xlim()
        _tick_digits(axes[0, 0].xaxis, high / low)
        for each, label in zip(
            axes[-1], ("time of the descent (s)", "rows moved and gradients reduced, all ranks (bytes)"), strict=True
        ):
            each.set_xlabel(label)
        legend_below(figure, axes[0, 0], columns=5)
        write_note(figure, _tradeoff_note(results))
    return figure


def _draw_setting(row: Sequence[Axes], result: ResultFile, looks: Mapping[int, Mapping[str, Any]]) -> None:
    """Draw the two panels of a setting. The start, which nothing was spent for, has no place on a logarithmic axis."""
    losses = _values(result, "test_loss")
    for each, cost in zip(row, _costs(result), strict=True):
        spent = cost[:, 1:] > 0
        if not spent.any():
            each.text(0.5, 0.5, "nothing was sent", transform=each.transAxes, ha="center", color=GREY)
            continue
        each.set_xscale("log")
        for j, every in enumerate(_scale(result, "n_r")):
            each.plot(
                cost[j, 1:][spent[j]],
                losses[j, 1:][spent[j]],
                lw=1.1,
                ms=7.0,
                mec="white",
                mew=0.5,
                markevery=[-1],
                label=_frequency(int(every)),
                zorder=2.0 + 0.5 / max(1, int(every)),  # seldom repartitioned ones swing most: beneath
                **looks[int(every)],
            )
    row[0].set_ylabel("test loss, penalty included\n(dimensionless)")
    set_title(row[0], str(_option(result, "setting")))


def _costs(result: ResultFile) -> tuple[Floats, Floats]:
    """Return seconds and bytes, (n_r, evaluation) each."""
    sent: Floats = _values(result, "bytes_moved") + _values(result, "bytes_reduced")
    return _values(result, "seconds"), sent


def _after(share: float, result: ResultFile, values: Floats) -> Floats:
    """Return the (n_r, evaluation) values after a share of the iterations: the start would take all of an axis."""
    iterations = _scale(result, "evaluation")
    return values[:, iterations >= share * iterations[-1]]


def _tradeoff_note(results: Sequence[ResultFile]) -> str:
    """Describe the descents, in one line if all are of the same."""
    lines = []
    for result in results:
        runs = _option(result, "runs")
        how = f"medians of {number(runs)} runs" if runs > 1 else "one run"
        lines.append(f"{number(_option(result, 'iterations'))} iterations, {how}; {_described(result)}.")
    lines = list(dict.fromkeys(lines))
    lines.append("A mark is where a descent ends. What lies above the axis is of the first tenth of the iterations.")
    return "\n".join(lines)
