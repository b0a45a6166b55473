"""What a user's function gets and gives: points that it can't change, real numbers and nothing that only looks so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Floats

_ROUNDING = 1e-5
"""What rounding may make of a kernel in single precision, as a share of its largest value."""

_OF_ARRAYS_AS_NUMBERS = ("truth value of an array", "arrays can be converted to Python scalars")
"""NumPy's words about an array that is taken for a number, as by `if` or `float`."""

_DOUBLE = np.dtype(np.float64)


def read_only(array: Floats) -> Floats:
    """Return the array as one that can't be written to: a view of it, if it can.

    A function that changes its argument changes what it is asked for next, and that depends on the number of ranks.
    """
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def called(name: str, function: Callable[..., Any], points: Sequence[Floats], how: str) -> Any:
    """Return a user's function's values for many points; say `how` to write it, if it was written for single ones.

    Raises
    ------
    UserError
    """
    try:
        return function(*map(read_only, points))
    except (ValueError, TypeError) as error:
        if not any(words in str(error) for words in _OF_ARRAYS_AS_NUMBERS):
            raise
        raise UserError(f"the kernel {name} is not written for many points at once ({error}): {how}") from error


def has_masked(values: object) -> bool:
    """Tell whether an array, or one in a list of such, masks something: NumPy would take what lies under the mask."""
    several = values if isinstance(values, list | tuple) else (values,)
    return any(isinstance(each, np.ma.MaskedArray) and np.ma.is_masked(each) for each in several)


def refuse_asymmetric(name: str, values: Floats, others: Floats) -> None:
    """Refuse a kernel that gave `values` for points of a sample and `others` for the same in another order.

    Rounding is allowed for; values that are not finite are the same if they are both NaN, or the same infinity.
    """
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values) & np.isfinite(others)
        largest = max(float(np.abs(each).max(initial=0.0, where=finite)) for each in (values, others))
        same = (values == others) | (np.isnan(values) & np.isnan(others))
        same |= finite & (np.abs(values - others) <= _ROUNDING * largest)
    if not same.all():
        at = tuple(np.argwhere(~same)[0])
        raise UserError(
            f"the kernel {name} is not symmetric: it gives {values[at]:g} for points of one sample and {others[at]:g} "
            "for the same in another order; average it over the orders, or give it points of two samples"
        )


def real_numbers(what: str, values: Any) -> Floats:
    """Return a user's function's values as doubles; refuse complex and masked numbers, text and objects.

    `what` gave it, for the message ("the kernel h").
    """
    if type(values) is np.ndarray and values.dtype is _DOUBLE:  # nearly always, and it is asked for every tile
        return values
    if type(values) is not np.ndarray and has_masked(values):
        raise UserError(f"{what} returned masked values, which are no numbers: mend it")
    try:
        array: NDArray[Any] = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise UserError(f"{what} returned what is no array ({error}): mend it") from error
    if array.dtype.kind not in "biuf":
        kind = {"c": "complex numbers", "U": "text", "S": "text"}.get(array.dtype.kind, f"the type {array.dtype}")
        raise UserError(f"{what} returned {kind}: mend it to return real numbers")
    return array.astype(np.float64, copy=False)
