"""Columns as users have them: of NumPy, pandas, Polars, Arrow and others, of which none is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import attempt
from mpi_ustat.numerics.multiplicity import WEIGHTS_MUST, are_weights
from mpi_ustat.numerics.types import Flags
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.rows import BadRowError, column_names
from mpi_ustat.user.guards import has_masked

SAID = {"sample_weight": "weights", "groups": "groups", "clusters": "clusters", "strata": "strata"}
"""Arguments about points, and what `mpi_ustat.estimate` calls them."""

TEXTS = ("groups", "clusters", "strata")
"""Those whose values may be text."""

_REPAIR = "remove or fill in that row"


class Columns(NamedTuple):
    """Columns of one argument, the rows of this rank.

    Attributes
    ----------
    names : tuple of str
        As the caller's frame or series has them; empty where nothing has a name.
    arrays : list of ndarray, shape (n,)
    """

    names: tuple[str, ...]
    arrays: list[NDArray[Any]]

    @property
    def points(self) -> NDArray[Any]:
        """All of them, shape (n,) of one and (n, d) of several."""
        return self.arrays[0] if len(self.arrays) == 1 else np.column_stack(self.arrays)


def columns_of(
    comm: Any, *, several: Sequence[str] = (), labels: Sequence[str] = (), **given: Any
) -> dict[str, Columns]:
    """Return the columns of a function's arguments, all with one row a point.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    several : sequence of str
        Arguments that may have several columns; the others have one.
    labels : sequence of str
        Arguments whose values may be text; the others are numbers.
    **given : object
        The arguments by name; of `SAID` None is left out.

    Raises
    ------
    UserError
        On every rank, if one can't be made columns of one length, holds text where numbers are meant, or misses
        a value.
    """
    named = {what: values for what, values in given.items() if values is not None or what not in SAID}

    def local() -> dict[str, Columns]:
        found = {what: _read(what, values) for what, values in named.items()}
        for what, columns in found.items():
            if what not in several and len(columns.arrays) > 1:
                raise UserError(f"{what} has {len(columns.arrays)} columns: choose one of them")
        lengths = {what: len(each.arrays[0]) for what, each in found.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{what} has {n}" for what, n in lengths.items())
            raise UserError(f"the numbers of rows differ ({told}): give each a value for every point")
        return found

    found, of_ranks = attempt(comm, local, "reading the columns", share=_outline)
    found = _agreed(comm, found, of_ranks)
    for what, columns in found.items():
        check = _labels if what in labels else _numbers
        names = [f"column {name} of {what}" for name in columns.names] if len(columns.arrays) > 1 else [what]
        names = names or [f"column {j} of {what}" for j in range(len(columns.arrays))]
        columns.arrays[:] = checked_points(comm, names, columns.arrays, check, f"reading {what}")
    return found


def _outline(found: Mapping[str, Columns]) -> dict[str, tuple[int, tuple[str, ...], int]]:
    return {what: (len(each.arrays), each.names, len(each.arrays[0])) for what, each in found.items()}


def _agreed(comm: Any, found: dict[str, Columns], of_ranks: Sequence[Mapping[str, Any]]) -> dict[str, Columns]:
    """Return the columns with the names that the ranks with rows have, which must be the same."""
    for what in dict.fromkeys(name for of_rank in of_ranks for name in of_rank):  # the same on every rank
        outlines = [of_rank.get(what) for of_rank in of_ranks]
        if None in outlines:
            raise UserError(
                f"{what} is given on some ranks only: pass it on all of them, with no rows where there are none"
            )
        there = [each for each in outlines if each]
        known = {each[:2] for each in there if each[2]} or {each[:2] for each in there[:1]}
        if len(known) > 1:
            told = " and ".join(f"{n} ({', '.join(names) or 'without names'})" for n, names in sorted(known))
            raise UserError(f"the ranks have different columns of {what}: {told}; pass the same ones everywhere")
        ((n, names),) = known
        own, empty = found[what], [np.empty(0)] * n
        found[what] = Columns(names, own.arrays if len(own.arrays) == n else empty)
    return found


def _read(what: str, values: Any) -> Columns:
    """Return the columns of whatever has some."""
    _refuse_unread(what, values)
    if isinstance(values, Mapping):
        return Columns(tuple(map(str, values)), _one_length(what, [_array(what, each) for each in values.values()]))
    names = column_names(values)
    if names is None and not hasattr(values, "__array__") and hasattr(values, "__arrow_c_stream__"):
        values = _by_arrow(what, values)
        names = column_names(values)
    for of_frame in ("items", "get_columns", "itercolumns"):  # of pandas, Polars, pyarrow
        if names is not None and hasattr(values, of_frame):
            several = getattr(values, of_frame)()
            arrays = [_array(what, each[1] if of_frame == "items" else each) for each in several]
            return Columns(names, _one_length(what, arrays))
    array = _array(what, values)
    own = getattr(values, "name", None)
    name = () if own is None or callable(own) or own == "" else (str(own),)
    if array.ndim == 2 and array.shape[1]:
        return Columns(name if array.shape[1] == 1 else (), [np.ascontiguousarray(each) for each in array.T])
    if array.ndim != 1:
        raise UserError(
            f"{what} has {array.ndim} dimensions: pass columns, as arrays of shape (n,) or (n, d) or a frame"
        )
    return Columns(name, [array])


def _refuse_unread(what: str, values: Any) -> None:
    """Refuse what has no rows yet, before it is asked for anything: that alone makes Polars warn."""
    name = type(values).__name__
    if any(hasattr(values, way) for way in ("__array__", "__arrow_c_stream__")) and name != "LazyFrame":
        return
    if callable(getattr(values, "collect", None)):
        raise UserError(f"{what} is of the type {name}, which is not computed yet: pass what its collect() returns")
    if values is None:
        raise UserError(f"{what} is None: pass a value for every point")
    if isinstance(values, Iterator | Set | ValuesView):
        raise UserError(f"{what} is of the type {name}, whose rows can't be counted: pass a list of its values")


def _by_arrow(what: str, values: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise UserError(
            f"{what} is a {type(values).__name__}, which is read by pyarrow: install it, or pass arrays"
        ) from error
    table = pyarrow.table(values)
    return table


def _one_length(what: str, arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    if not arrays:
        raise UserError(f"{what} has no columns: give at least one")
    if len({each.shape for each in arrays}) > 1 or arrays[0].ndim != 1:
        raise UserError(f"the columns of {what} are of different shapes: give each a value for every point")
    return arrays


def _array(what: str, values: Any) -> NDArray[Any]:
    _refuse_unread(what, values)
    if has_masked(values):
        raise UserError(f"{what} has masked values: remove these points, or fill them in")
    try:
        return np.asarray(values)
    except Exception as error:  # whatever the other library raises
        cause = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UserError(f"{what} can't be made a NumPy array ({cause[0]}): pass an array of numbers") from None


def _labels(what: str, values: Any) -> NDArray[Any]:
    """Return values of any type, none of them missing."""
    _refuse_missing(what, values)
    return np.asarray(values)


def _numbers(what: str, values: Any) -> NDArray[Any]:
    """Return values that are numbers, none of them missing."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        _refuse_missing(what, array)
        if all(isinstance(each, Real | np.bool_) for each in array):
            array = np.array(array.tolist()) if len(array) else np.empty(0)
    if array.dtype.kind not in "biuf":
        kinds = {"O": "text or objects", "U": "text", "S": "text", "T": "text", "c": "complex numbers"}
        kind = kinds.get(array.dtype.kind, f"values of the type {array.dtype}")
        raise UserError(f"{what} holds {kind}: pass real numbers")
    _refuse_missing(what, array)
    if what == "sample_weight":
        bad = ~are_weights(array)
        if bad.any():
            raise BadRowError(int(bad.argmax()), what, f"{array[bad.argmax()]:g}", WEIGHTS_MUST, "")
    return array


def _refuse_missing(what: str, array: NDArray[Any]) -> None:
    missing = _missing(array)
    if missing.any():
        kind = "NaN" if array.dtype.kind == "f" else "no value"
        raise BadRowError(int(missing.argmax()), what, kind, _REPAIR, "")


def _missing(array: NDArray[Any]) -> Flags:
    """Tell where there is none: NaN, NaT, None, pandas' NA."""
    if array.dtype.kind in "fc":
        return np.isnan(array)
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind != "O":
        return np.zeros(len(array), dtype=np.bool_)
    return np.fromiter((each is None or _is_nan(each) for each in array), dtype=np.bool_, count=len(array))


def _is_nan(value: object) -> bool:
    """Tell whether a value isn't equal to itself, or doesn't know: pandas' NA."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True
