"""What a point may be: double precision, without rounding what was given, and with a value for the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.kernels.kernel import Flaw, Kernel, Points, as_rows
from mpi_ustat.numerics.types import Flags
from mpi_ustat.user.guards import has_masked
from mpi_ustat.wording import count_of

#: Up to here all integers are doubles.
EXACT_INTEGERS = 2**53


class BadRowError(PlacedError):
    """A row that is no point.

    Attributes
    ----------
    row : int
        Its number among this rank's rows of the sample.
    facts : tuple of str
        The sample, what the row holds, what to do about it, and what a sample is called, if it is none.
    """

    def __init__(self, row: int, *facts: str) -> None:
        sample, what, remedy, noun = facts if len(facts) > 3 else (*facts, "the sample ")
        super().__init__(f"row {row} of {noun}{sample}, counted from 0, holds {what}: {remedy}")
        self.row, self.facts = row, facts


def as_points(kernel: Kernel, sample: str, rows: ArrayLike) -> Points:
    """Return one rank's points of a sample as doubles, shape (n,) for kernels of single numbers.

    Raises
    ------
    BadRowError
        For the first row that would be rounded, is masked, or for which the kernel has no value.
    UserError
        If they are not numbers, or have the wrong number of dimensions; the message names the sample.
    """
    given = _real(sample, rows)
    wanted = kernel.n_coordinates
    columns = given.shape[1] if given.ndim == 2 else 1
    if len(given) and wanted is not None and columns != wanted:
        what = "single numbers" if wanted == 1 else f"points of {wanted} numbers"
        remedy = "choose one column" if wanted == 1 else f"choose {wanted} columns"
        found = count_of(columns, "column")
        raise UserError(f"the kernel {kernel.name} compares {what} but the sample {sample} has {found}: {remedy}")
    no_value = None if kernel.allows_infinite else f", for which the kernel {kernel.name} has no value"
    points = _doubles(sample, rows, given, no_value, kernel.flaws)
    return points.reshape(-1) if wanted == 1 else points


def as_rows_of_points(sample: str, rows: ArrayLike) -> Points:
    """Return one rank's points of a sample as finite doubles, shape (n, d).

    Raises
    ------
    BadRowError, UserError
        As `as_points` does, and if a value is infinite.
    """
    return as_rows(_doubles(sample, rows, _real(sample, rows), ""))


def _real(sample: str, rows: ArrayLike) -> NDArray[Any]:
    """Return numbers as an array, a masked one where something is masked."""
    masked = has_masked(rows)
    given: NDArray[Any] = np.ma.asarray(rows) if masked else np.asarray(rows)
    if given.dtype.kind not in "biuf":
        raise UserError(f"the sample {sample} has the type {given.dtype}: pass real numbers")
    if given.ndim not in (1, 2):
        raise UserError(f"the sample {sample} has {given.ndim} dimensions: pass an array of shape (n,) or (n, d)")
    return given


def _doubles(
    sample: str,
    rows: ArrayLike,
    given: NDArray[Any],
    infinite: str | None,
    more: Callable[[Points], Sequence[Flaw]] | None = None,
) -> Points:
    """Return numbers as doubles; `infinite` says why infinite ones are refused, None that they are not."""
    with np.errstate(over="ignore"):  # infinite is what is refused
        points = np.asarray(given).astype(np.float64, copy=False)
    repair = "remove or repair that row"
    flaws: list[tuple[NDArray[np.bool_], str, str]] = [
        (*_rounded_points(rows, np.asarray(given), points), "rescale the points")
    ]
    if isinstance(given, np.ma.MaskedArray):
        flaws.append((np.ma.getmaskarray(given), "a masked value", repair))
    if given.dtype.kind == "f" and not np.isfinite(points).all():
        flaws.append((np.isnan(points), "NaN", repair))
        if infinite is not None:
            flaws.append((np.isinf(points), f"an infinite value{infinite}", repair))
    if more is not None and len(points):
        flaws.extend(more(points))
    found = [(int(np.argwhere(bad)[0][0]), what, remedy) for bad, what, remedy in flaws if bad.any()]
    if found:
        row, what, remedy = min(found, key=lambda flaw: flaw[0])
        raise BadRowError(row, sample, what, remedy)
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
    bad, what = _rounded_points(rows, given, points)
    if bad.any():
        raise UserError(str(BadRowError(int(np.argwhere(bad)[0][0]), sample, what, "rescale the points")))


def _rounded_points(rows: ArrayLike, given: NDArray[Any], points: Points) -> tuple[Flags, str]:
    """Return where points became others as doubles, and what they were."""
    bad = rounded(given)
    what = "a number that no double equals" if given.dtype.kind == "f" else "an integer that no double equals"
    if given.dtype.kind == "O" or (given.dtype.kind == "f" and not isinstance(rows, np.ndarray)):
        suspects = np.argwhere(np.abs(points) >= EXACT_INTEGERS)
        elements = _elements(rows) if len(suspects) else np.empty(0)
        for place in map(tuple, suspects.tolist()):
            if isinstance(elements[place], Integral) and not is_float64(int(elements[place])):
                bad[place], what = True, "an integer that no double equals"
    return bad, what


def _elements(rows: Any) -> NDArray[Any]:
    """Return the values of a list or a data frame as they are; columns of data frames have types of their own."""
    for columns in ("items", "get_columns", "itercolumns"):  # of pandas, polars, pyarrow
        if column_names(rows) and hasattr(rows, columns):
            found = [each[1] if columns == "items" else each for each in getattr(rows, columns)()]
            return np.stack([np.asarray(each).astype(object) for each in found], axis=1)
    return np.asarray(rows, dtype=object)


def rounded(values: NDArray[Any]) -> Flags:
    """Tell which numbers have no equal double: integers, and floats of more bits."""
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            wide: Flags = (values.astype(np.float64) != values) & ~np.isnan(values)
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
