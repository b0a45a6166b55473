"""What a point may be: double precision, without rounding what was given, and with a value for the kernel."""

from __future__ import annotations

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
        If they are not numbers, would be rounded, have the wrong number of dimensions, or the kernel has no value for
        one of them; the message names the sample and the row, counted from 0 on this rank.
    """
    given = _real(sample, rows)
    wanted = kernel.n_coordinates
    columns = given.shape[1] if given.ndim == 2 else 1
    if len(given) and wanted is not None and columns != wanted:
        what = "single numbers" if wanted == 1 else f"points of {wanted} numbers"
        remedy = "choose one column" if wanted == 1 else f"choose {wanted} columns"
        raise UserError(f"the kernel {kernel.name} compares {what} but sample {sample} has {columns} columns: {remedy}")
    points = _doubles(sample, given)
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
    points = _doubles(sample, _real(sample, rows))
    _refuse_rows(sample, np.isinf(points), "an infinite value", "remove or repair that row")
    return as_rows(points)


def _real(sample: str, rows: ArrayLike) -> NDArray[Any]:
    given = np.asarray(rows)
    if given.dtype.kind not in "biuf":
        raise UserError(f"sample {sample} has the type {given.dtype}: pass real numbers")
    if given.ndim not in (1, 2):
        raise UserError(f"sample {sample} has {given.ndim} dimensions: pass an array of shape (n,) or (n, d)")
    return given


def _doubles(sample: str, given: NDArray[Any]) -> Points:
    points = given.astype(np.float64, copy=False)
    _refuse_rows(sample, rounded_integers(given), "an integer that no double equals", "rescale the points")
    _refuse_rows(sample, np.isnan(points), "NaN", "remove or repair that row")
    return points


def rounded_integers(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which values are integers that have no equal double: rounding would make ties of different values."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize <= 4:
        return np.zeros(values.shape, dtype=np.bool_)
    large = values > EXACT_INTEGERS
    if values.dtype.kind == "i":
        large |= values < -EXACT_INTEGERS
    for place in np.argwhere(large):
        # Python's integers: casting 2⁶³ back is undefined in NumPy, and differs between processors.
        large[tuple(place)] = not is_float64(int(values[tuple(place)]))
    return large


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
