"""Pictures as objects, by scikit-learn's conventions: `from_result`, `plot`, `figure_`, `ax_`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from mpi_ustat.errors import UserError
from mpi_ustat.plots.pictures import draw
from mpi_ustat.plots.style import style
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display:
    """The picture of a result.

    Attributes
    ----------
    figure_ : matplotlib.figure.Figure
    ax_ : matplotlib.axes.Axes
    """

    figure_: Figure
    ax_: Axes

    def __init__(self, content: ResultFile) -> None:
        self.content = content

    def plot(self, ax: Axes | None = None) -> Display:
        """Draw it."""
        if ax is not None:
            raise UserError(f"the picture of a result of kind {self.content.kind!r} has several panels: leave out ax=")
        self.figure_ = draw(self.content)
        self.ax_ = self.figure_.axes[0]
        return self

    def _repr_png_(self) -> bytes:
        """Return the picture for notebooks."""
        content = io.BytesIO()
        with style():
            self.figure_.savefig(content, format="png")
        return content.getvalue()


def display_of(content: ResultFile) -> Any:
    """Return the display for a result of whatever kind."""
    return Display(content)
