"""Results as objects, of this session or of a file of any kind: as text, in notebooks, as dictionaries and frames."""

from __future__ import annotations

import html
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.api.tables import estimate_rows, table
from mpi_ustat.api.told import head, lines, told_table
from mpi_ustat.errors import UserError
from mpi_ustat.storage import results as files
from mpi_ustat.storage.provenance import provenance
from mpi_ustat.storage.results import ResultFile
from mpi_ustat.storage.table_files import other_suffix

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mpi_ustat.plots.displays import Display


class Result:
    """What a computation has found: a mapping of names to arrays, with what they mean.

    Attributes
    ----------
    content : ResultFile
        Arrays with units, descriptions and named dimensions; `mpi_ustat.save` writes it.
    """

    def __init__(self, content: ResultFile) -> None:
        self.content = content

    @property
    def kind(self) -> str:
        """What made it: "estimate", "test", "learn" …."""
        return self.content.kind

    @property
    def config(self) -> dict[str, Any]:
        """The options."""
        return self.content.config

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, command and time of a result that came from a file."""
        return self.content.provenance

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the array of that name."""
        return self.content.datasets[name].values

    def __contains__(self, name: object) -> bool:
        return name in self.content.datasets

    def __iter__(self) -> Iterator[str]:
        return iter(self.content.datasets)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the arrays."""
        return tuple(self.content.datasets)

    def __str__(self) -> str:
        return "\n".join([head(self.content), *lines(self.content)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {head(self.content)}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        name, *rest = map(html.escape, [head(self.content), *lines(self.content, rows=False)])
        columns, rows = told_table(self.content)
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(each)}</td>' for each in row)}</tr>" for row in rows)
        header = "".join(f"<th>{html.escape(each)}</th>" for each in columns)
        shown = f"<table><thead><tr>{header}</tr></thead><tbody>{cells}</tbody></table>" if rows else ""
        return f"<div><strong>{name}</strong>{shown}<pre>{chr(10).join(rest)}</pre></div>"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it: exact numbers, None for what is not known."""
        found: dict[str, Any] = {"kind": self.kind}
        for name, dataset in self.content.datasets.items():
            *folders, last = name.split("/")
            inner = found
            for folder in folders:
                inner = inner.setdefault(folder, {})
            inner[last] = _plain(np.asarray(dataset.values).tolist())
        scales = {name: _plain(np.asarray(each).tolist()) for name, each in self.content.scales.items()}
        more = {"scales": scales, "config": self.config, "provenance": self.provenance}
        return found | {name: _plain(each) for name, each in more.items()}

    def to_frame(self, dimension: str | None = None) -> Any:
        """Return a pandas DataFrame with exact numbers.

        Parameters
        ----------
        dimension : str, optional
            The rows: ``group``, ``worker``, …, and ``threshold`` of ROC curves. By default statistics and their
            differences, a test and those of every two samples, evaluations, choices of a plan, or what most of the
            arrays are along.

        Raises
        ------
        UserError
            If pandas is not installed, or nothing has that dimension.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError("to_frame needs pandas, which is not installed: install it, or use to_dict()") from error
        return pandas.DataFrame(table(self.content, dimension))

    def plot(self, ax: Axes | None = None) -> Display:
        """Draw its picture, into `ax` where it is one of a single panel; return the display, with `figure_` and `ax_`.

        Raises
        ------
        UserError
            If there is no picture of its kind, or matplotlib is not installed.
        """
        from mpi_ustat.plots.pictures import display_of

        return display_of(self.content).plot(ax)


class StatisticResult(Result):
    """One statistic with its error: `value ± stderr`.

    The standard error and the interval are about the population that the points are a sample of.
    """

    @property
    def value(self) -> float:
        """The statistic."""
        return float(self["estimate"])

    @property
    def stderr(self) -> float | None:
        """Its standard error; None where it is not known."""
        return self._number("stderr")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its confidence interval, at the level `config["confidence"]`; None where there is none."""
        if "interval" not in self or np.isnan(self["interval"]).any():
            return None
        lower, upper = self["interval"].tolist()
        return lower, upper

    @property
    def null(self) -> float | None:
        """The value of no association that is tested; None where nothing is."""
        return self._number("test/null")

    @property
    def z(self) -> float | None:
        """(value - null) / stderr."""
        return self._number("test/z")

    @property
    def p(self) -> float | None:
        """The two-sided p-value of that test."""
        return self._number("test/p")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Points of each sample."""
        return tuple(self["sizes"].tolist())

    @property
    def flags(self) -> tuple[str, ...]:
        """What makes the value or its error doubtful, in sentences."""
        return tuple(self.config.get("flags", ()))

    def __float__(self) -> float:
        return self.value

    def _number(self, name: str) -> float | None:
        if name not in self or np.isnan(self[name]):
            return None
        return float(self[name])


class RocResult(StatisticResult):
    """A ROC curve with its band, and the AUC as `value`.

    ``to_frame("threshold")`` is the curve, ``to_frame()`` the AUC.
    """

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """Descending, from above all scores, shape (k,); points count as positive that are at or above."""
        return self["roc/0/threshold"]

    @property
    def fpr(self) -> NDArray[np.float64]:
        """False positive rates."""
        return self["roc/0/fpr"]

    @property
    def tpr(self) -> NDArray[np.float64]:
        """True positive rates."""
        return self["roc/0/tpr"]

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower end of a simultaneous band of the population's curve, at `fpr`; it keeps its value up to the next."""
        return self["roc/0/lower"]

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper end of the band, at `fpr`; before it the same from the one before on."""
        return self["roc/0/upper"]


class ComparisonResult(Result):
    """Several statistics of the same points, and the differences of every two of them.

    `to_frame` and `to_dict` have all of it; `result["covariance"]` is the covariance.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """What each statistic is of: a column, a class."""
        return tuple(self.config["columns"])

    @property
    def values(self) -> NDArray[np.float64]:
        """The statistics, shape (q,)."""
        return self["estimate"]

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Their standard errors, shape (q,); NaN where one is not known."""
        return self["stderr"]

    @property
    def interval(self) -> NDArray[np.float64]:
        """Their confidence intervals, shape (q, 2)."""
        return self["interval"]

    @property
    def differences(self) -> list[dict[str, Any]]:
        """The differences of every two, with the keys ``statistic``, ``value``, ``stderr``, ``lower``, …, ``p``."""
        return estimate_rows(self.content, "difference")

    @property
    def p_all_equal(self) -> float | None:
        """The p-value of the test that all are equal; None where there is none."""
        found = self.config.get("omnibus")
        return None if found is None else float(found["p"])


class TestedResult(Result):
    """An exact test that samples are of one law."""

    __test__ = False

    @property
    def value(self) -> float:
        """The discrepancy of the samples; of more than two the sum over pairs of them, times n_k n_l/(2N)."""
        return float(self["estimate"])

    @property
    def p(self) -> float:
        """The p-value."""
        return float(self["test/p"])


def result_of(content: ResultFile) -> Result:
    """Return the object for a content of whatever kind."""
    if content.kind == "estimate" and "estimate" in content.datasets:
        of_one = RocResult if "roc/0/fpr" in content.datasets else StatisticResult
        return (ComparisonResult if content.datasets["estimate"].values.ndim else of_one)(content)
    return (TestedResult if content.kind == "test" else Result)(content)


def load(path: str | os.PathLike[str]) -> Result:
    """Return the content of a result file of any kind.

    Returns
    -------
    Result
        Of one statistic a `StatisticResult`, of several a `ComparisonResult`, of a test a `TestedResult`.

    Raises
    ------
    UserError
        If it is missing, damaged, or not written by this package.
    """
    return result_of(files.load(path))


def save(result: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a result as an HDF5 file, which `load`, `mpi-ustat info` and `mpi-ustat plot` read.

    Parameters
    ----------
    result : Result, Estimate, TestResult or Fit
        Of several ranks one calls: results are the same on all.
    path : path-like
        Its name ends in .h5.
    overwrite : bool
        Whether to replace a file that is there.

    Raises
    ------
    UserError
        If it can't be written there, or is no result.
    """
    from mpi_ustat.api.contents import content_of

    if suffix := other_suffix(os.fspath(path), files.SUFFIXES):
        raise UserError(
            f"'{path}' would be an HDF5 file, not what '{suffix}' says: end its name in .h5; to_frame() makes tables"
        )
    content = content_of(result)
    if not content.provenance:
        found = provenance((), started=time.time(), wall_seconds=0.0)
        versions = {name: each for name, each in found.items() if name.endswith("version") or name == "git_commit"}
        content = replace(content, provenance=versions)
    files.save(path, content, overwrite=overwrite)


def _plain(value: Any) -> Any:
    """Return numbers that are none as None, and what NumPy has as Python's."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
