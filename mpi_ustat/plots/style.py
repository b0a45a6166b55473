"""The style of all pictures, whatever the user's matplotlib settings are, and its colours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpi_ustat.errors import UserError

# Okabe & Ito's palette, told apart by colour-blind readers; the lines differ in dash pattern too.
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7"
INK, GREY = "#222222", "#8C8C8C"
DASHED, DOTTED, DASHDOT = (0, (4, 2.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5))

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
