"""Pictures as objects, by scikit-learn's conventions: `from_result`, `plot`, `figure_`, `ax_`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import mpi_ustat
from mpi_ustat.api.contents import content_of
from mpi_ustat.complete.roc import MOST_THRESHOLDS
from mpi_ustat.errors import UserError
from mpi_ustat.plots.descents import QUANTITIES, draw_learn, draw_quantity
from mpi_ustat.plots.drawing import GUEST_LEGEND, new_panels
from mpi_ustat.plots.estimate import draw_estimate, draw_panel
from mpi_ustat.plots.forest import MOST_DIFFERENCES
from mpi_ustat.plots.inferred import draw_differences
from mpi_ustat.plots.roc import draw_roc, has_roc
from mpi_ustat.plots.style import style
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display:
    """The picture of a result of any kind.

    Parameters
    ----------
    content : ResultFile
        What `Result.content` is.
    draw : callable, optional
        The function that draws all of it.

    Attributes
    ----------
    figure_ : matplotlib.figure.Figure
    ax_ : matplotlib.axes.Axes
        The first panel; `axes_` has all of them.
    """

    figure_: Figure
    ax_: Axes
    axes_: list[Axes]

    def __init__(self, content: ResultFile, draw: Callable[[ResultFile], Figure] | None = None) -> None:
        self.content, self._draw = content, draw

    @classmethod
    def from_result(cls, result: Any, *, ax: Axes | None = None) -> Self:
        """Draw a result: what a function of this package returns, or `mpi_ustat.load`.

        Parameters
        ----------
        result : Result, Estimate, TestResult or Fit
        ax : matplotlib.axes.Axes, optional
            Where to; by default a figure of its own, which pyplot doesn't know.

        Raises
        ------
        UserError
            If it isn't what the display shows, or matplotlib is not installed.
        """
        return cls(content_of(result)).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw it, into `ax` in the style that is set there, or in a figure of its own; return the display.

        Axes of the user get no title, and have their texts inside.
        """
        with all_there(self.content.kind):
            if ax is None:
                with style():
                    self.figure_ = self._figure()
                self.axes_ = self.figure_.axes
            else:
                self._panel(ax)
                figure: Any = ax.figure
                self.figure_, self.axes_ = figure, [ax]
        self.ax_ = self.axes_[0]
        return self

    def _figure(self) -> Figure:
        """Return the whole picture."""
        if self._draw is not None:
            return self._draw(self.content)
        figure, panels = new_panels(1, 1)
        self._panel(panels[0, 0])
        return figure

    def _panel(self, axes: Axes) -> None:
        """Draw what fits into axes of the user."""
        raise UserError(f"the picture of a result of kind {self.content.kind!r} has several panels: leave out ax=")

    def _repr_png_(self) -> bytes:
        """Return the picture for notebooks."""
        content = io.BytesIO()
        with style():
            self.figure_.savefig(content, format="png")
        return content.getvalue()


class EstimateDisplay(Display):
    """An estimate: its values with their intervals, or its rounds; in a figure of its own with all that belongs to it.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.gini([1.0, 2.0, 4.0, 3.0])
    >>> display = mpi_ustat.EstimateDisplay.from_result(found)
    >>> display.ax_.get_title(loc="left")
    'gini, all pairs'
    """

    def __init__(self, content: ResultFile) -> None:
        super().__init__(_of_kind(content, "estimate"), draw_estimate)

    def _panel(self, axes: Axes) -> None:
        draw_panel(axes, self.content, guest=True)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(**GUEST_LEGEND)


class DifferenceDisplay(Display):
    """The differences of every two statistics of the same points, with their intervals and p-values."""

    def __init__(self, content: ResultFile) -> None:
        super().__init__(_of_kind(content, "estimate"))
        if not content.config.get("differences"):
            raise UserError("this result has no differences: compare columns by compare_auc(), or --difference")

    def _figure(self) -> Figure:
        rows = min(len(self.content.config["differences"]), MOST_DIFFERENCES)
        figure, panels = new_panels(1, 1, size=(7.4, 1.45 + 0.23 * rows))
        draw_differences(panels[0, 0], self.content)
        return figure

    def _panel(self, axes: Axes) -> None:
        draw_differences(axes, self.content, guest=True)


class RocDisplay(Display):
    """ROC curves with their simultaneous bands, and the AUCs."""

    def __init__(self, content: ResultFile) -> None:
        super().__init__(_of_kind(content, "estimate"))
        if not has_roc(content):
            raise UserError("this result has no ROC curve: make one by roc_curve(), or estimate --roc")

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        score: Any,
        *,
        name: str | None = None,
        ax: Axes | None = None,
        pos_label: Any = None,
        null: float = 0.5,
        confidence: float = 0.95,
        most_thresholds: int = MOST_THRESHOLDS,
        comm: Any = None,
    ) -> Self:
        """Draw the ROC curve of scores.

        Parameters
        ----------
        y, score, pos_label, null, confidence, most_thresholds, comm
            As in `mpi_ustat.roc_curve`.
        name : str, optional
            Of the curve in the legend; by default that of the column.
        ax : matplotlib.axes.Axes, optional
            As in `from_result`.
        """
        content = mpi_ustat.roc_curve(
            y,
            score,
            pos_label=pos_label,
            null=null,
            confidence=confidence,
            most_thresholds=most_thresholds,
            comm=comm,
        ).content
        if name is not None:
            data = content.config["data"] | {"columns": [str(name)]}
            content = replace(content, config=content.config | {"data": data})
        return cls(content).plot(ax)

    def _figure(self) -> Figure:
        figure, panels = new_panels(1, 1, size=(5.4, 5.2))
        draw_roc(panels[0, 0], self.content)
        return figure

    def _panel(self, axes: Axes) -> None:
        draw_roc(axes, self.content, guest=True)


class LearningDisplay(Display):
    """A descent by iteration: the loss, and in a figure of its own also 1 - AUC."""

    def __init__(self, content: ResultFile) -> None:
        super().__init__(_of_kind(content, "learn"), draw_learn)

    def _panel(self, axes: Axes) -> None:
        draw_quantity(axes, self.content, next(iter(QUANTITIES)), guest=True)


@contextmanager
def all_there(kind: str) -> Iterator[None]:
    """Say what a file lacks of what its picture shows."""
    try:
        yield
    except KeyError as error:
        raise UserError(
            f"this {kind!r} file holds no {error} to draw: make it again with this version of mpi_ustat"
        ) from error


def _of_kind(content: ResultFile, kind: str) -> ResultFile:
    if content.kind != kind:
        raise UserError(f"a result of kind {content.kind!r} can't be drawn so: give one of kind {kind!r}")
    return content
