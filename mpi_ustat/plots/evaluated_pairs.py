"""Figure 1 of the paper: which pairs each statistic evaluates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats
from mpi_ustat.plots.drawing import count, new_panels, set_title, values
from mpi_ustat.plots.looks import COMPLETE, LOCAL, REPARTITIONED
from mpi_ustat.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WORKER_COLOURS = (SKY, ORANGE, GREEN, PURPLE, VERMILION, BLUE)
_SEEN_COLOURS = ("#C9DFF0", "#3D87BF", "#0B4273", "#04203A")  # once, twice …: shades of the repartitioned one's blue
_CELL_EDGE = "#D0D0D0"


def draw_pairs(result: ResultFile) -> Figure:
    """Draw the grid of all pairs four times, coloured where a statistic evaluates a pair.

    Points are drawn in the order of their workers in round 0. In it the pairs of one partition are blocks along the
    diagonal, and those of further rounds fall outside: the picture of what repartitioning does. (In the order of the
    samples a single partition would look as scattered as several.)
    """
    workers, sampled = values(result, "worker"), values(result, "sampled")
    x_order = np.argsort(workers[0].max(axis=1), kind="stable")
    z_order = np.argsort(workers[0].max(axis=0), kind="stable")
    workers, sampled = workers[:, x_order][:, :, z_order], sampled[np.ix_(x_order, z_order)]
    n_rounds, n, m = workers.shape
    n_workers, present, seen = workers.max() + 1, workers[0] >= 0, np.count_nonzero(workers >= 0, axis=0)

    title = f"Which of the {n} × {m} pairs four statistics evaluate"
    figure, axes = new_panels(2, 2, title, size=(7.4, 6.8))
    complete, local, incomplete, repartitioned = axes.reshape(-1)
    _draw_cells(complete, np.broadcast_to(_rgb("#B5B5B5"), (n, m, 3)))
    _title_pairs(complete, COMPLETE.symbol, "complete", np.ones((n, m)))

    paint = np.array([_rgb("white"), *(_rgb(colour) for colour in _WORKER_COLOURS)])
    tint = 1.0 - 0.22 * (1.0 - paint)
    which = np.where(present, workers[0] % len(_WORKER_COLOURS) + 1, 0)
    _draw_cells(local, paint[which])
    _title_pairs(local, LOCAL.symbol, "within the workers", present)

    _draw_cells(incomplete, np.where(sampled[:, :, np.newaxis] > 0, paint[which], tint[which]))
    _write_counts(incomplete, sampled, INK)
    phrase = f"B = {count(sampled.sum() // n_workers, 'draw')} per worker"
    _title_pairs(incomplete, r"$\widetilde{U}_{n,N,B}$", phrase, sampled)

    shades = np.array([_rgb("white"), *(_rgb(colour) for colour in _SEEN_COLOURS)])
    _draw_cells(repartitioned, shades[np.minimum(seen, len(_SEEN_COLOURS))])
    _write_counts(repartitioned, seen, "white")
    _title_pairs(repartitioned, REPARTITIONED.symbol, f"over T = {count(n_rounds, 'partition')}", seen)

    for each in (local, incomplete, repartitioned):
        _outline_blocks(each, workers[0])
    for each in axes[-1]:
        each.set_xlabel(f"{count(n, 'point')} of X, by their first worker")
    for each in axes[:, 0]:
        each.set_ylabel(f"{count(m, 'point')} of Z, likewise")
    _legend_of_pairs(figure, n_workers, int(seen.max()))
    return figure


def _rgb(colour: str) -> Floats:
    from matplotlib.colors import to_rgb

    return np.array(to_rgb(colour))


def _draw_cells(axes: Axes, colours: Floats) -> None:
    """Draw a cell for each pair; `colours` is (n, m, 3)."""
    n, m, _ = colours.shape
    axes.pcolormesh(np.arange(n + 1), np.arange(m + 1), colours.swapaxes(0, 1), edgecolors=_CELL_EDGE, lw=0.6)
    axes.set(xticks=[], yticks=[], xlim=(0, n), ylim=(m, 0), aspect="equal")
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(True)


def _title_pairs(axes: Axes, symbol: str, phrase: str, counts: NDArray[Any]) -> None:
    """Title a grid with its statistic and the pairs in it; `counts` says how often each is evaluated."""
    distinct, total = int(np.count_nonzero(counts)), int(counts.sum())
    again = f" in {count(total, 'evaluation')} (2: twice)" if total > distinct else ""
    set_title(axes, f"{symbol}  {phrase}", f"{count(distinct, 'distinct pair')}{again}")


def _write_counts(axes: Axes, counts: NDArray[Any], colour: str) -> None:
    """Write into the cells how often a pair is evaluated, where it is more than once."""
    for row, column in np.argwhere(counts > 1):
        text = str(counts[row, column])
        axes.text(row + 0.5, column + 0.54, text, ha="center", va="center", color=colour, fontsize=8)


def _outline_blocks(axes: Axes, workers: NDArray[Any]) -> None:
    """Outline each worker's block of a partition whose points are in the order of their workers."""
    from matplotlib.patches import Rectangle

    for i in range(int(workers.max()) + 1):
        rows, columns = np.nonzero(workers == i)
        x, z = rows.min(), columns.min()
        size = rows.max() + 1 - x, columns.max() + 1 - z
        axes.add_patch(Rectangle((x, z), *size, fill=False, ec=INK, lw=1.3, zorder=3, clip_on=False))


def _legend_of_pairs(figure: Figure, n_workers: int, most_seen: int) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(fc=_WORKER_COLOURS[i % len(_WORKER_COLOURS)], ec=_CELL_EDGE, label=f"worker {i}")
        for i in range(n_workers)
    ]
    handles += [
        Patch(fc=colour, ec=_CELL_EDGE, label=f"in {times} partition{'s' if times > 1 else ''}")
        for times, colour in zip(range(1, most_seen + 1), _SEEN_COLOURS, strict=False)
    ]
    handles.append(Patch(fill=False, ec=INK, lw=1.3, label="block of the first partition"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
