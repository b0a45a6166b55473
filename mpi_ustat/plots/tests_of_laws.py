"""The picture of a test that samples are of one law: the values of relabelled samples, and theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.plots.drawing import count, legend_below, new_panels, number, set_title, values
from mpi_ustat.plots.forest import p_equals
from mpi_ustat.plots.style import BLUE, DASHED, INK, VERMILION
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BINS = 60


def draw_test(result: ResultFile) -> Figure:
    """Return the picture: a histogram of the relabelled values, the value of the samples and the 5 % to its right."""
    figure, panels = new_panels(1, 1)
    axes = panels[0, 0]
    value, p = float(values(result, "estimate")), float(values(result, "test/p"))
    counts, edges = _histogram(result)
    n, exact = int(values(result, "test/n_permutations")), bool(result.config.get("exact"))
    axes.stairs(counts, edges, fill=True, color=BLUE, alpha=0.55, label=f"{'all ' * exact}{count(n, 'relabelling')}")
    critical = dict(zip(result.scales["level"].tolist(), values(result, "test/quantile").tolist(), strict=True))
    if 0.95 in critical:
        axes.axvline(critical[0.95], color=INK, ls=DASHED, lw=1.1, label=f"95 % of them, up to {critical[0.95]:.4g}")
    axes.axvline(value, color=VERMILION, lw=1.9, label=f"the samples as they are, {value:.5g}")
    unit = result.datasets["estimate"].unit
    known = {"": "in units of the kernel", "1": "dimensionless"}
    kernel = result.config.get("kernel", "")
    several = "test/several/estimate" in result.datasets
    what = "largest studentised U-statistic" if several else f"U-statistic ({known.get(unit, unit)})"
    n_samples = len(values(result, "test/n_blocks"))
    if n_samples > 2:
        what = f"statistic of {n_samples} samples"
    axes.set(xlabel=f"{kernel} {what}".strip(), ylabel="relabellings")
    axes.yaxis.set_major_formatter(lambda each, _: number(each))
    of_each = " + ".join(number(each) for each in values(result, "test/n_blocks").tolist())
    size = count(int(values(result, "test/block_size")), "point")
    whom = "both" if n_samples == 2 else f"all {n_samples}"
    set_title(axes, f"{kernel}: are {whom} samples of one law? {p_equals(p)}", f"{of_each} blocks of {size}")
    legend_below(figure, axes)
    return figure


def _histogram(result: ResultFile) -> tuple[NDArray[Any], NDArray[Any]]:
    if "test/relabelled" in result.datasets:
        relabelled = values(result, "test/relabelled")
        return np.histogram(relabelled, bins=min(_MOST_BINS, max(8, len(relabelled) // 20)))
    counts, edges = values(result, "test/count"), values(result, "test/edge")
    step = -(-len(counts) // _MOST_BINS)
    starts = np.arange(0, len(counts), step)
    return np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
