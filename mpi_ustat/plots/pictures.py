"""Pictures of result files. They show what the files hold; no statistic is computed here.

`draw` turns results into a `Figure`, by the function of their kind, and `save_figure` writes it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpi_ustat.errors import UserError
from mpi_ustat.plots.coverage import draw_coverage
from mpi_ustat.plots.descents import draw_figure4
from mpi_ustat.plots.displays import Display, EstimateDisplay, LearningDisplay, all_there
from mpi_ustat.plots.evaluated_pairs import draw_pairs
from mpi_ustat.plots.plan import draw_plan
from mpi_ustat.plots.relative_variances import draw_relative
from mpi_ustat.plots.repartitioning import draw_map, draw_tradeoff
from mpi_ustat.plots.scaling import draw_scaling
from mpi_ustat.plots.scaling_complete import draw_scaling_complete
from mpi_ustat.plots.style import style
from mpi_ustat.plots.tests_map import draw_tests_map
from mpi_ustat.plots.tests_of_laws import draw_test
from mpi_ustat.plots.variances import draw_corrected, draw_variances
from mpi_ustat.storage.files import write_whole
from mpi_ustat.storage.results import ResultFile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISPLAYS: dict[str, type[EstimateDisplay | LearningDisplay]] = {"estimate": EstimateDisplay, "learn": LearningDisplay}
"""The display of each kind of result that has one of its own."""

PICTURES: dict[str, Callable[[ResultFile], Figure]] = {
    "test": draw_test,
    "tests-map": draw_tests_map,
    "plan": draw_plan,
    "scaling": draw_scaling,
    "scaling-complete": draw_scaling_complete,
    "coverage": draw_coverage,
    "fig1": draw_pairs,
    "fig2": draw_variances,
    "fig3": draw_relative,
    "fig4-as-described": draw_figure4,
    "fig4-as-published": draw_figure4,
    "fig4-map": draw_map,
    "fig5": draw_variances,
    "fig6": draw_corrected,
}
"""The function that draws each other kind of result, inside `style`."""

TOGETHER: dict[str, Callable[[Sequence[ResultFile]], Figure]] = {"tradeoff": draw_tradeoff}
"""The function that draws results of a kind in one picture."""

_SUFFIXES: dict[str, dict[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""The formats, and what has to be left out for the same picture to give the same file."""


def draw(*results: ResultFile) -> Figure:
    """Return the picture of a result, or of several that are drawn together.

    Raises
    ------
    UserError
        If there is none for such a kind, a result lacks what it shows, or matplotlib is not installed.
    """
    kinds = sorted({result.kind for result in results})
    together = TOGETHER.get(kinds[0])
    if len(results) > 1 and (together is None or len(kinds) > 1):
        found = ", ".join(map(repr, kinds))
        raise UserError(f"only files of kind 'tradeoff' are drawn together, these are of kind {found}: give one file")
    if together is None:
        return display_of(results[0]).plot().figure_
    with style(), all_there(kinds[0]):
        return together(results)


def display_of(result: ResultFile) -> Display:
    """Return the display of a result.

    Raises
    ------
    UserError
        If there is no picture of its kind.
    """
    if result.kind in DISPLAYS:
        return DISPLAYS[result.kind](result)
    if result.kind not in PICTURES:
        every = ", ".join((*DISPLAYS, *PICTURES, *TOGETHER))
        raise UserError(f"a result of kind {result.kind!r} has no picture: give one of {every}")
    return Display(result, PICTURES[result.kind])


def check_drawable() -> None:
    """Check, before anything is computed, that the pictures can be drawn.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    with style():
        pass


def save_figure(figure: Figure, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a figure, whole or not at all, in the format that the suffix of `path` names."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise UserError(f"'{os.fspath(path)}' names no picture format: end the name in {', '.join(_SUFFIXES)}")
    content = io.BytesIO()
    with style():
        figure.savefig(content, format=suffix[1:], metadata=_SUFFIXES[suffix])
    write_whole(path, content.getvalue(), overwrite=overwrite)
