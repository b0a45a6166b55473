"""Classes from a label column: which values are labels, which of two is positive, and in which order several are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.storage.texts import as_number, brief, is_rounded, shown

Label = int | float | str
"""A label's value. Texts that write the same number are one label; True and False are 1 and 0."""

MOST_CLASSES = 32
"""Classes that a statistic can have; a label column with more values is taken for something else."""

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
        return text if is_rounded(number, text) else number


def in_order(labels: Iterable[Label]) -> list[Label]:
    """Return the distinct labels, numbers before texts."""
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))


def show(label: Label) -> str:
    """Return a label as messages and results write it."""
    if isinstance(label, float) and label.is_integer() and abs(label) < 1e15:
        return str(int(label))
    return shown(str(label))


def _listed(labels: Sequence[Label]) -> str:
    """Return labels as messages write them: the first ones, long ones by their beginning."""
    more = ", …" if len(labels) > _LISTED_LABELS else ""
    return ", ".join(f"'{brief(show(label))}'" for label in labels[:_LISTED_LABELS]) + more


def positive_label(
    labels: Iterable[Label], positive: str | None, column: str, file: str, *, rest: bool = False
) -> Label:
    """Decide which of two labels is the positive one, whose rows are the sample x.

    Parameters
    ----------
    labels : iterable of Label
        All labels of the file.
    positive : str or None
        The user's choice; None takes 1 of {0, 1} and of {−1, 1}.
    column, file : str
        Where the labels are, for messages.
    rest : bool
        Whether all other labels together are the sample z.

    Raises
    ------
    UserError
        If the labels are not two, or more with `rest`, or it is open which of them is meant.
    """
    found = in_order(labels)
    names, where = _listed(found), f"the label '{brief(column)}' of '{file}'"
    if len(found) == 1:
        raise UserError(f"{where} has one value only, {names}: two classes are needed, choose another label column")
    if rest and positive is None:
        raise UserError(f"{where} has the values {names}: say with positive= which one is the sample x, not the rest")
    if len(found) > 2 and not rest:
        raise UserError(
            f"{where} has more than two values ({names}): choose or make a label column with two values, "
            "take one against all others with rest=True, or estimate each of them with multiclass="
        )
    if positive is None:
        if set(found) not in _SELF_EXPLANATORY:
            raise UserError(f"{where} has the values {names}: say with positive= which one is the sample x")
        return 1
    chosen = label_value(positive)
    if chosen not in found:
        meant = did_you_mean(positive, map(show, found))
        raise UserError(
            f"{where} has the values {names}, not '{brief(positive)}'{meant}: give one of them to positive="
        )
    return chosen


def ordered_labels(
    labels: Iterable[Label], classes: Sequence[str], column: str, file: str, *, by_name: bool = False
) -> list[Label]:
    """Return the labels of the samples in order, the lowest class first.

    Parameters
    ----------
    labels : iterable of Label
        All labels of the file.
    classes : sequence of str
        The user's choice, which may leave labels out; empty: all, which must be numbers, in ascending order.
    column, file : str
        Where the labels are, for messages.
    by_name : bool
        Whether texts too are in ascending order where none is given.

    Raises
    ------
    UserError
        If there are fewer than two or too many, one is not in the file or given twice, or their order is open.
    """
    found = in_order(labels)
    names, where = _listed(found), f"the label '{brief(column)}' of '{file}'"
    chosen = [label_value(text) for text in classes] or found
    for label in chosen:
        if label not in found:
            meant = did_you_mean(show(label), map(show, found))
            raise UserError(
                f"{where} has the values {names}, not {_listed([label])}{meant}: give some of them to classes="
            )
        if chosen.count(label) > 1:
            raise UserError(f"the class {_listed([label])} is given twice: name each class once")
    if len(chosen) < 2:
        raise UserError(f"{where} gives one class only: two or more are needed, choose another label column")
    if len(chosen) > MOST_CLASSES:
        raise UserError(f"{where} has more than {MOST_CLASSES} values: choose classes with classes=, or another column")
    if not classes and not by_name and any(isinstance(label, str) for label in chosen):
        raise UserError(f"{where} has the values {names}: say their order with classes=, the lowest first")
    return chosen
