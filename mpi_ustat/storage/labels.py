"""Two classes from a label column: which values are labels, and which of them is positive."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

from mpi_ustat.errors import UserError
from mpi_ustat.storage.table import as_number

Label = int | float | str
"""A label's value. Texts that write the same number are one label; True and False are 1 and 0."""

_LISTED_LABELS = 5
_SELF_EXPLANATORY: tuple[set[Label], ...] = ({0, 1}, {-1, 1})


def label_value(text: str) -> Label:
    """Return the label that a text writes: ``1``, ``1.0`` and ``True`` are the same, ``cat`` is itself."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    number = as_number(text)
    if number is None or isnan(number):
        return text
    try:
        return int(text)  # exact beyond 2⁵³
    except ValueError:
        return number


def in_order(labels: Iterable[Label]) -> list[Label]:
    """Return the distinct labels, numbers before texts."""
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))


def show(label: Label) -> str:
    """Return a label as messages and results write it."""
    if isinstance(label, float) and label.is_integer() and abs(label) < 1e15:
        return str(int(label))
    return str(label)


def positive_label(labels: Iterable[Label], positive: str | None, column: str, file: str) -> Label:
    """Decide which of two labels is the positive one, whose rows are the sample x.

    Parameters
    ----------
    labels : iterable of Label
        All labels of the file.
    positive : str or None
        The user's choice; None takes 1 of {0, 1} and of {−1, 1}.
    column, file : str
        Where the labels are, for messages.

    Raises
    ------
    UserError
        If the labels are not two, or it is open which of them is meant.
    """
    found = in_order(labels)
    names = ", ".join(f"'{show(label)}'" for label in found[:_LISTED_LABELS])
    where = f"the label '{column}' of '{file}'"
    if len(found) == 1:
        raise UserError(f"{where} has one value only, {names}: two classes are needed, choose another label column")
    if len(found) > 2:
        more = ", …" if len(found) > _LISTED_LABELS else ""
        raise UserError(
            f"{where} has more than two values ({names}{more}): choose or make a label column with two values"
        )
    if positive is None:
        if set(found) not in _SELF_EXPLANATORY:
            raise UserError(f"{where} has the values {names}: say with --positive which one is the sample x")
        return 1
    chosen = label_value(positive)
    if chosen not in found:
        raise UserError(f"{where} has the values {names}, not '{positive}': give one of them to --positive")
    return chosen
