"""Pictures of descents by iteration: one run, and the paper's figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.drawing import (
    GUEST_LEGEND,
    count,
    legend_below,
    new_panels,
    number,
    set_title,
    tick_digits,
    values,
)
from mpi_ustat.plots.style import BLUE, DASHDOT, DASHED, DOTTED, GREEN, INK, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LOOKS: dict[str, dict[str, Any]] = {"test": {"color": BLUE}, "train": {"color": VERMILION, "ls": DASHED}}

_OF_VALIDATION: dict[str, dict[str, Any]] = {"validation": {"color": GREEN, "ls": DASHDOT}}


def frequency(every: int | None) -> str:
    """Name a repartition frequency; None and 0 are never."""
    return f"$n_r$ = {number(every)}" if every else "never repartitioned"


def described(result: ResultFile) -> str:
    """Return the options that a descent depends on most, but for the repartition frequency, in a line."""
    config = result.config
    steps = f"step {config['learning_rate']:g}, momentum {config['momentum']:g}, λ = {config['l2']:g}"
    return ", ".join([*_spread(result), steps])


def limits(arrays: Iterable[Any], margin: float = 0.08) -> tuple[float, float]:
    """Return the ends of an axis that holds all values, with a margin."""
    flat = np.concatenate([np.ravel(each) for each in arrays])
    low, high = float(np.nanmin(flat)), float(np.nanmax(flat))
    room = margin * (high - low) or 0.05 * abs(high) or 1.0
    return low - room, high + room


def _spread(result: ResultFile) -> list[str]:
    """Return how the pairs of an iteration are spread over workers."""
    config = result.config
    if config.get("exchange") == "scores":
        points = config["batch_points"]
        n_points = "all points" if points is None else f"{count(points, 'point')} of each class a worker"
        return [f"scores exchanged, of {n_points}", f"N = {count(config['n_workers'], 'worker')}", config["optimizer"]]
    pairs = config["batch_pairs"]
    n_pairs = "B = all local pairs" if pairs is None else f"B = {count(pairs, 'pair')} per worker"
    return [f"N = {count(config['n_workers'], 'worker')}", n_pairs, str(config["scheme"])]


def _scale_values(axes: Axes, curves: Iterable[Floats]) -> None:
    """Make the y-axis logarithmic if the values allow it and would be hard to read otherwise."""
    flat = np.concatenate([np.ravel(curve) for curve in curves])
    if flat.min() > 0.0 and flat.max() > 10.0 * flat.min():
        axes.set_yscale("log")
        tick_digits(axes.yaxis, flat.max() / flat.min())


def _curve(result: ResultFile, name: str) -> Floats:
    """Return a curve as it is drawn: 1 − AUC for an AUC."""
    found: Floats = np.asarray(values(result, name), dtype=np.float64)
    return 1.0 - found if name.endswith("_auc") else found


QUANTITIES = {"loss": "loss, penalty included", "auc": "1 − AUC"}
"""What is drawn of a descent, by the names that the file has."""


def draw_learn(result: ResultFile) -> Figure:
    """Return the picture of one descent: loss over 1 − AUC, of training and test points, by iteration.

    What a result lacks (a test set, the AUC of an objective without one) is left out. With validation points there is
    a mark at the iteration whose parameters are kept.
    """
    drawn = [quantity for quantity in QUANTITIES if _evaluated(result, quantity)]
    if not drawn:
        raise UserError("this 'learn' file holds no evaluation to draw: let it evaluate something")
    figure, axes = new_panels(len(drawn), 1, size=(6.4, 2.0 + 1.9 * len(drawn)), sharex=True)
    for each, quantity in zip(axes[:, 0], drawn, strict=True):
        draw_quantity(each, result, quantity)
        each.set_xlabel("")
    axes[-1, 0].set_xlabel("iteration")
    set_title(axes[0, 0], *learn_titles(result))
    figure.align_ylabels()
    return figure


def draw_quantity(axes: Axes, result: ResultFile, quantity: str, *, guest: bool = False) -> None:
    """Draw the curves of one of `QUANTITIES` into a panel; as a guest, with a small legend where it hides least."""
    iteration, kept = values(result, "history/iteration"), result.provenance.get("kept_iteration")
    place = -1 if kept is None else int(np.flatnonzero(iteration == kept)[0])
    curves = _evaluated(result, quantity)
    if not curves:
        raise UserError(f"this 'learn' file holds no evaluation of the {quantity} to draw: let it evaluate some points")
    looks = _LOOKS | _OF_VALIDATION
    for points, curve in curves.items():
        label = f"{points} points, {'at last' if kept is None else 'kept'} {curve[place]:.4g}"
        axes.plot(iteration, curve, label=label, **looks[points])
        if len(curve) <= 60:
            axes.plot(iteration, curve, "o", ms=3.0, color=looks[points]["color"])
    if kept is not None:
        axes.axvline(kept, color=INK, lw=0.9, ls=DOTTED, zorder=1.5, label=f"kept: iteration {number(kept)}")
    _scale_values(axes, curves.values())
    axes.set(xlabel="iteration", ylabel=f"{QUANTITIES[quantity]}\n(dimensionless)")
    axes.legend(**({"loc": "best"} | GUEST_LEGEND if guest else {"loc": "upper right"}))


def learn_titles(result: ResultFile) -> tuple[str, str]:
    """Return the title and subtitle: loss, data, and how often and over what points were spread."""
    config, data = result.config, result.config.get("data", {})
    name = data.get("name") or ", ".join(data.get("files", ()))
    title = f"Learning: {config['loss']} loss" + (f" on {name}" if name else "")
    by_rows = config.get("exchange", "rows") == "rows"
    often = [frequency(config["repartition_every"])] if by_rows else []
    return title, ", ".join([*often, *_spread(result)])


def _evaluated(result: ResultFile, quantity: str) -> dict[str, Floats]:
    """Return the curves that a result has of a quantity, by points."""
    points = [*_LOOKS, *(_OF_VALIDATION if "history/validation_loss" in result.datasets else ())]
    curves = {each: _curve(result, f"history/{each}_{quantity}") for each in points}
    return {each: curve for each, curve in curves.items() if np.isfinite(curve).all()}


def draw_figure4(result: ResultFile) -> Figure:
    """Return the picture of figure 4: a column for each n_r, with the same axes, so that differences would be seen.

    The first row has the whole descent, on a logarithmic axis; the others the test loss and 1 − AUC on axes that hold
    what comes in the second half of the iterations.
    """
    iteration, frequencies = result.scales["evaluation"], result.scales["n_r"]
    preset = str(result.config["preset"]).replace("-", " ")
    title = f"Shuttle, {preset}: what repartitioning every $n_r$ iterations does to learning"
    names = [frequency(int(every)) for every in frequencies]
    loss, auc = ([_Curves(result, quantity, j) for j in range(len(names))] for quantity in ("loss", "auc"))
    if "by_scores/median/test_loss" in result.datasets:
        names.append("scores exchanged")
        for curves, quantity in ((loss, "loss"), (auc, "auc")):
            curves.append(_Curves(result, quantity, folder="by_scores/"))
    size = (2.0 * len(names) + 1.2, 7.0)
    figure, axes = new_panels(3, len(names), title, size=size, sharex=True, sharey="row")
    for column, name, of_loss, of_auc in zip(axes.T, names, loss, auc, strict=True):
        whole, late, ranking = column
        whole.set_title(name, fontsize=9.5, fontweight="normal", loc="center")
        of_loss.draw(whole, iteration)
        of_loss.draw(late, iteration, points=("test",))
        of_auc.draw(ranking, iteration)
        ranking.set_xlabel("iteration")
    settled = iteration >= 0.5 * iteration[-1]
    _scale_values(axes[0, 0], [curve for each in loss for curve in each.whole])
    axes[1, 0].set_ylim(limits([*(band[settled] for each in loss for band in each.test), loss[0].optimum["test"]]))
    late_aucs = [curve[settled] for each in auc for curve in (*each.test, each.train)]
    axes[2, 0].set_ylim(limits([*late_aucs, *auc[0].optimum.values()]))
    for each, label in zip(axes[:, 0], ("loss", "test loss, late", "1 − AUC, late"), strict=True):
        each.set_ylabel(f"{label}\n(dimensionless)")
    figure.align_ylabels()
    note = (
        f"{count(result.config['n_runs'], 'run')} each; {described(result)}. Losses include the penalty.\n"
        "The axes of the lower rows hold the second half of the iterations: "
        "what lies above or below is cut off there."
    )
    if len(names) > len(frequencies):
        points = count(result.config["scores_of_points"], "point")
        note += f"\nScores exchanged: of {points} of each class a worker, over all pairs of them."
    legend_below(figure, axes[0, 0], columns=4, note=note)
    return figure


class _Curves:
    """The curves of a quantity of figure 4, of one way to learn: the j-th n_r, or what is in a folder of its own."""

    def __init__(self, result: ResultFile, quantity: str, j: int | None = None, folder: str = "") -> None:
        def curve(name: str) -> Floats:
            found = _curve(result, f"{folder}{name}_{quantity}")
            return found if j is None else found[j]

        self.test = [curve(f"{part}/test") for part in ("low", "median", "high")]
        self.train = curve("median/train")
        self.optimum = {points: _curve(result, f"optimum/{points}_{quantity}") for points in _LOOKS}

    @property
    def whole(self) -> list[Floats]:
        """All of them."""
        return [*self.test, self.train, *self.optimum.values()]

    def draw(self, axes: Axes, x: NDArray[Any], *, points: Sequence[str] = tuple(_LOOKS)) -> None:
        """Draw the curves."""
        low, median, high = self.test
        for each in points:
            label = "full-batch optimum" if each == "test" else ""
            axes.axhline(float(self.optimum[each]), color=INK, lw=0.9, ls=DOTTED, zorder=2.5, label=label)
            if each == "test":
                axes.fill_between(x, low, high, color=BLUE, alpha=0.28, lw=0, label="test, 95 % of the runs")
            curve = median if each == "test" else self.train
            axes.plot(x, curve, lw=1.3, label=f"{each}, median", **_LOOKS[each])
