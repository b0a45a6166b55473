"""What a point may be: double precision, without rounding what was given, and with a value for the kernel."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.statistics.kernel import Kernel, Points, as_rows

#: Up to here all integers are doubles.
EXACT_INTEGERS = 2**53


def as_points(kernel: Kernel, sample: str, rows: ArrayLike) -> Points:
    """Return one rank's points of a sample as doubles, shape (n,) for kernels of single numbers.

    Raises
    ------
    UserError
        If they are not numbers, no double equals one of them, they have the wrong number of dimensions, or the kernel
        has no value for one of them; the message names the sample and the row, counted from 0 on this rank.
    """
    given = _real(sample, rows)
    wanted = kernel.n_coordinates
    columns = given.shape[1] if given.ndim == 2 else 1
    if len(given) and wanted is not None and columns != wanted:
        what = "single numbers" if wanted == 1 else f"points of {wanted} numbers"
        remedy = "choose one column" if wanted == 1 else f"choose {wanted} columns"
        raise UserError(f"the kernel {kernel.name} compares {what} but sample {sample} has {columns} columns: {remedy}")
    points = _doubles(sample, rows, given)
    if not kernel.allows_infinite:
        what = f"an infinite value, for which the kernel {kernel.name} has no value"
        _refuse_rows(sample, np.isinf(points), what, "remove or repair that row")
    return points.reshape(-1) if wanted == 1 else points


def as_rows_of_points(sample: str, rows: ArrayLike) -> Points:
    """Return one rank's points of a sample as finite doubles, shape (n, d).

    Raises
    ------
    UserError
        As `as_points` does, and if a value is infinite.
    """
    points = _doubles(sample, rows, _real(sample, rows))
    _refuse_rows(sample, np.isinf(points), "an infinite value", "remove or repair that row")
    return as_rows(points)


def _real(sample: str, rows: ArrayLike) -> NDArray[Any]:
    given = np.asarray(rows)
    if given.dtype.kind not in "biuf":
        raise UserError(f"sample {sample} has the type {given.dtype}: pass real numbers")
    if given.ndim not in (1, 2):
        raise UserError(f"sample {sample} has {given.ndim} dimensions: pass an array of shape (n,) or (n, d)")
    return given


def _doubles(sample: str, rows: ArrayLike, given: NDArray[Any]) -> Points:
    with np.errstate(over="ignore"):  # infinite is what is refused
        points = given.astype(np.float64, copy=False)
    refuse_rounded(sample, rows, given, points)
    _refuse_rows(sample, np.isnan(points), "NaN", "remove or repair that row")
    return points


def refuse_rounded(sample: str, rows: ArrayLike, given: NDArray[Any], points: Points) -> None:
    """Refuse points that became others as doubles, which would make ties of different values.

    Parameters
    ----------
    sample : str
        For the message.
    rows : array_like
        The points as they were passed: among the columns of a data frame, or the elements of a list, may be integers
        that NumPy has made doubles of by itself, because there are fractions beside them.
    given, points : ndarray
        The same as an array, and as doubles.

    Raises
    ------
    UserError
        If there is one; the message names the sample and the row.
    """
    bad = rounded(given)
    what = "a number that no double equals" if given.dtype.kind == "f" else "an integer that no double equals"
    suspects = np.argwhere(np.abs(points) >= EXACT_INTEGERS)
    if len(suspects) and given.dtype.kind in "fO" and (given.dtype.kind == "O" or not isinstance(rows, np.ndarray)):
        elements = _elements(rows)
        for place in map(tuple, suspects.tolist()):
            if isinstance(elements[place], Integral) and not is_float64(int(elements[place])):
                bad[place], what = True, "an integer that no double equals"
    _refuse_rows(sample, bad, what, "rescale the points")


def _elements(rows: Any) -> NDArray[Any]:
    """Return what a list or a data frame holds as it is; the columns of data frames have types of their own."""
    for columns in ("items", "get_columns", "itercolumns"):  # of pandas, polars, pyarrow
        if column_names(rows) and hasattr(rows, columns):
            found = [each[1] if columns == "items" else each for each in getattr(rows, columns)()]
            return np.stack([np.asarray(each).astype(object) for each in found], axis=1)
    return np.asarray(rows, dtype=object)


def rounded(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which numbers have no equal double: integers, and floats of more bits."""
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            wide: NDArray[np.bool_] = (values.astype(np.float64) != values) & ~np.isnan(values)
        return wide
    if values.dtype.kind not in "iu" or values.dtype.itemsize <= 4:
        return np.zeros(values.shape, dtype=np.bool_)
    large = values > EXACT_INTEGERS
    if values.dtype.kind == "i":
        large |= values < -EXACT_INTEGERS
    for place in np.argwhere(large):
        # Python's integers: casting 2⁶³ back is undefined in NumPy, and differs between processors.
        large[tuple(place)] = not is_float64(int(values[tuple(place)]))
    return large


def column_names(rows: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns; None if there are none, or it is no data frame."""
    names = getattr(rows, "column_names", None) or getattr(rows, "columns", ())  # of pyarrow; of pandas and polars
    if isinstance(rows, np.ndarray) or isinstance(names, str) or callable(names) or not np.iterable(names):
        return None
    return tuple(map(str, names)) or None


def is_float64(integer: int) -> bool:
    """Return whether float64 holds an integer exactly."""
    try:
        return int(float(integer)) == integer
    except OverflowError:
        return False


def _refuse_rows(sample: str, bad: NDArray[np.bool_], what: str, remedy: str) -> None:
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise UserError(f"row {row} of sample {sample} holds {what}: {remedy}")
