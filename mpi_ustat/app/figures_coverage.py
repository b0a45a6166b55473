"""The picture of coverage: how often intervals hold the truth, for each model and each way to estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpi_ustat.app.figures import (
    BAR_STANDARD_ERRORS,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    VERMILION,
    legend_below,
    new_panels,
    number,
    set_title,
    write_note,
)
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = ((INK, "D"), (VERMILION, "s"), (BLUE, "o"), (ORANGE, "P"), (PURPLE, "^"), (GREEN, "v"))  # of the estimators
_BAND = 1.0  # per cent to both sides of the level: what coverage is asked to keep to
_BESIDE = 0.2  # a row's two intervals are drawn so far from its middle


def draw_coverage(result: ResultFile) -> Figure:
    """Return the picture of a result of kind "coverage". To be called inside `style`.

    A row for each estimator, under the name of its model; models that are to be doubted are in a panel of their own,
    which has another axis.
    """
    config = result.config
    level = 100.0 * config["confidence"]
    runs, workers = number(config["n_runs"]), config["n_workers"]
    title = f"Coverage of {level:g} % intervals: {runs} data sets for each model, N = {workers} workers"
    figure, axes = new_panels(1, 2, title, size=(9.0, 8.0))
    labels, doubtful = list(config["models"]), config["doubtful"]
    groups = [label for label in labels if label not in doubtful], doubtful
    texts = (
        ("Where intervals are to cover", f"the band is {level:g} ± {_BAND:g} %"),
        ("Where the program is to raise doubts", "another axis; the band is the same"),
    )
    most = max(map(len, groups))
    for each, group, (heading, subtitle) in zip(axes[0], groups, texts, strict=True):
        set_title(each, heading, subtitle)
        _draw_group(each, result, [labels.index(label) for label in group], most)
        each.set_xlabel("intervals that hold the truth (%)")
    first = axes[0, 0]
    for face, label in ((GREY, "the interval the program gives"), ("white", "Wald, where it gives logit")):
        first.plot([], [], "o", mfc=face, mec=GREY, ms=5.0, label=label)
    legend_below(figure, first, columns=4)
    write_note(
        figure,
        f"Bars: ± {BAR_STANDARD_ERRORS:g} standard errors. "
        "Flagged: runs in which the program names a reason for doubt.",
    )
    return figure


def _draw_group(axes: Axes, result: ResultFile, models: Sequence[int], most: int) -> None:
    """Draw the models with these numbers, one under the other, on an axis with room for the largest group."""
    names = [str(name) for name in result.scales["estimator"].tolist()]
    flagged = result.datasets["flagged"].values
    labels = list(result.config["models"])
    rows = len(names) + 2.0  # the first of them for the model's name
    level = 100.0 * result.config["confidence"]
    axes.axvspan(level - _BAND, level + _BAND, color=GREEN, alpha=0.14, lw=0, zorder=0.5)
    axes.axvline(level, color=INK, lw=0.8, zorder=1.0)
    for place, model in enumerate(models):
        top = place * rows
        first = top + 1.2
        axes.text(0.0, top, f" {labels[model]}", transform=axes.get_yaxis_transform(), va="center", fontweight="bold")
        bounded = not np.isnan(result.datasets["logit/coverage"].values[model]).all()
        kinds = (("wald", -_BESIDE, False), ("logit", _BESIDE, True)) if bounded else (("wald", 0.0, True),)
        for j, name in enumerate(names):
            for kind, beside, given in kinds:
                label = name if given and place == 0 else ""
                _draw_share(axes, result, kind, (model, j), first + j + beside, given=given, label=label)
            axes.text(
                1.01, first + j, f"{100.0 * flagged[model, j]:.0f} %", transform=axes.get_yaxis_transform(),
                va="center", fontsize=7.0, color="#555555",
            )  # fmt: skip
    axes.annotate(
        "flagged", (1.01, 1.0), (0.0, 3.0), xycoords="axes fraction", textcoords="offset points", fontsize=7.0,
        color="#555555",
    )  # fmt: skip
    axes.set(ylim=(most * rows - 0.8, -1.0), yticks=[])
    axes.spines["left"].set_visible(False)


def _draw_share(
    axes: Axes, result: ResultFile, kind: str, where: tuple[int, int], y: float, *, given: bool, label: str
) -> None:
    colour, marker = _LOOKS[where[1] % len(_LOOKS)]
    share, error = (result.datasets[f"{kind}/{part}"].values[where] for part in ("coverage", "standard_error"))
    axes.errorbar(
        100.0 * share,
        y,
        xerr=100.0 * BAR_STANDARD_ERRORS * error,
        color=colour,
        ls="",
        marker=marker,
        ms=4.5,
        mfc=colour if given else "white",
        mec=colour,
        mew=0.9,
        elinewidth=1.1,
        zorder=4 if given else 3,
        label=label,
    )
