"""How the paper's statistics are written and drawn: each in the same way in all figures.

Theory is drawn as lines, what was measured as points with error bars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.drawing import BAR_STANDARD_ERRORS, number
from mpi_ustat.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Look:
    """How a statistic is written and drawn."""

    symbol: str
    colour: str
    marker: str


COMPLETE = Look(r"$U_n$", INK, "*")
LOCAL = Look(r"$U_{n,N}$", VERMILION, "s")
REPARTITIONED = Look(r"$\widehat{U}_{n,N,T}$", BLUE, "o")
INCOMPLETE = tuple(  # one for each B, in the order of B
    Look(r"$\widetilde{U}_{n,N,B,T}$", colour, marker) for colour, marker in ((GREEN, "^"), (PURPLE, "v"), (SKY, "P"))
)
SAMPLED = Look(r"$\widetilde{U}_B$", ORANGE, "D")

_SIZES = {"n": "n", "m": "m", "N": "n_workers", "T": "n_rounds"}


def sizes(config: dict[str, Any], symbols: str) -> str:
    """Write sizes by their symbols, such as "nmN"."""
    return ", ".join(f"{symbol} = {number(config[_SIZES[symbol]])}" for symbol in symbols)


def draw_points(axes: Axes, x: Floats, y: Floats, errors: Floats, look: Look, label: str) -> None:
    """Draw measured values with error bars of two standard errors."""
    drawn: dict[str, Any] = {"color": look.colour, "ls": "", "marker": look.marker, "mec": "white", "mew": 0.4}
    drawn["ms"] = 7.5 if look.marker == "*" else 4.5  # small: a bar may not hide behind its point
    drawn["zorder"] = 5 if look is LOCAL else 4  # it is one point, where others have some too
    axes.errorbar(x, y, yerr=BAR_STANDARD_ERRORS * errors, elinewidth=1.2, capsize=2.5, label=label, **drawn)
