"""Numbers as people read them: a value to the digits that its error leaves it.

One rule, everywhere: the error has two significant digits, the value one decimal more than these, the ends of an
interval as many as these: ``0.80217 ± 0.0038, [0.7946, 0.8096]``. Numbers that are very large or small
share a power of ten.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

_PLAIN = (1e-4, 1e7)
"""Between these sizes numbers are written without a power of ten."""
_DIGITS = 15
"""Significant digits that a double has for sure."""


def rounded(value: float, error: float | None = None, ends: tuple[float, float] | None = None) -> str:
    """Return a value with its error and interval, rounded to the error.

    Parameters
    ----------
    value : float
    error : float, optional
        Its standard error; None, 0 or not finite: there is none to round by, and the value has six significant digits,
        or all that it has where it is a whole number.
    ends : (float, float), optional
        Of its interval.

    Examples
    --------
    >>> rounded(0.8021733, 0.00379, (0.794611, 0.809601))
    '0.80217 ± 0.0038, [0.7946, 0.8096]'
    >>> rounded(1234.56, 23.4)
    '1234.6 ± 23'
    >>> rounded(8.02173e-9, 3.8e-12)
    '(8.02173 ± 0.0038)e-09'
    >>> rounded(0.5)
    '0.5'
    """
    bounds = () if ends is None else ends
    if error is None or not (math.isfinite(error) and error > 0.0 and math.isfinite(value)):
        return _value_alone(value) + _interval([_value_alone(each) for each in bounds])
    largest = max(abs(value), error)
    power = 0 if _PLAIN[0] <= largest < _PLAIN[1] else math.floor(math.log10(largest))
    error_text = f"{error:.1e}"  # rounded once: 0.0996 is 0.10
    place = 1 - int(error_text.partition("e")[2]) + power
    if place > _DIGITS - 1 - math.floor(math.log10(largest)) + power:  # the error is less than rounding
        return f"{value!r} ± {error:.2g}{_interval([repr(each) for each in bounds])}"
    numbers = f"{_to(value, place + 1, power)} ± {_to(float(error_text), place, power)}"
    within = _interval([_to(each, place, power) for each in bounds])
    return f"{numbers}{within}" if power == 0 else f"({numbers}{within})e{power:+03d}"


def _value_alone(value: float) -> str:
    whole = math.isfinite(value) and value == int(value) and abs(value) < _PLAIN[1]
    return str(int(value)) if whole else f"{value:.6g}"


def _interval(ends: list[str]) -> str:
    return f", [{ends[0]}, {ends[1]}]" if ends else ""


def _to(number: float, place: int, power: int) -> str:
    """Return a number over a power of ten with so many decimals; before the point with fewer than 0."""
    if not math.isfinite(number):
        return f"{number:g}"
    with localcontext(prec=800):  # of doubles all digits
        scaled = Decimal(number).scaleb(-power).quantize(Decimal(1).scaleb(-place))
        scaled = scaled if scaled else abs(scaled)  # no -0
        return f"{scaled:f}"
