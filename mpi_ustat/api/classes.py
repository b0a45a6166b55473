"""Classes from labels in an array: which of two is positive, and in which order several are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.types import Flags, Ints
from mpi_ustat.storage.labels import MOST_CLASSES, Label, in_order, label_value, show
from mpi_ustat.wording import count_of

_SELF_EXPLANATORY: tuple[set[Label], ...] = ({0, 1}, {-1, 1})
_LISTED = 5


@dataclass(frozen=True)
class Classes:
    """Samples of labelled rows.

    Attributes
    ----------
    members : tuple of ndarray of bool, shape (n_local,)
        For each sample, which of this rank's rows are in it.
    told : dict
        What result files tell of them.
    """

    members: tuple[Flags, ...]
    told: dict[str, Any]

    def parts(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the values of each sample's rows."""
        return [values[of] for of in self.members]


def two_classes(comm: Any, y: NDArray[Any], pos_label: Any) -> Classes:
    """Return the positives, and all others.  Collective.

    Parameters
    ----------
    y : ndarray, shape (n_local,)
    pos_label : object
        None takes 1 of {0, 1} and of {-1, 1}. Of more than two labels one is against all others.

    Raises
    ------
    UserError
        If there is one label only, or it is open which is positive.
    """
    wanted = None if pos_label is None else _label(pos_label)
    own, codes = _distinct(y)
    census = _census(comm, own, codes, [] if wanted is None else [wanted])
    names = _listed(census)
    if len(census) < 2:
        held = f"one value only, {names}" if census else "no rows"
        raise UserError(f"y has {held}: two classes are needed")
    if wanted is None:
        if set(census) not in _SELF_EXPLANATORY:
            several = f"more than two values ({names})" if len(census) > 2 else f"the values {names}"
            against = ", against all others" if len(census) > 2 else ""
            raise UserError(f"y has {several}: say with pos_label= which one is positive{against}")
        wanted = 1
    if wanted not in census:
        raise UserError(f"y has the values {names}, not {_listed([wanted])}: give one of them as pos_label=")
    positive = np.isin(codes, [code for code, label in enumerate(own) if label == wanted])
    n = comm.allgather((int(positive.sum()), len(y)))
    n_x, n_rows = (sum(each) for each in zip(*n, strict=True))
    told = {"positive": show(wanted), "n_x": n_x, "n_z": n_rows - n_x, "n_rows": n_rows}
    told |= {"rest": True} if len(census) > 2 else {}
    return Classes((positive, ~positive), told)


def ordered_classes(comm: Any, y: NDArray[Any], classes: Sequence[Any] | None, *, any_order: bool = False) -> Classes:
    """Return a sample a class, the lowest first.  Collective.

    Parameters
    ----------
    y : ndarray, shape (n_local,)
    classes : sequence, optional
        Their order; it may leave labels out. By default that of numbers, and with `any_order` the alphabet.

    Raises
    ------
    UserError
        If there are fewer than two or too many, one is not in `y` or given twice, or their order is open.
    """
    chosen = [] if classes is None else [_label(each) for each in classes]
    own, codes = _distinct(y)
    census = _census(comm, own, codes, chosen)
    names = _listed(census)
    for label in chosen:
        if label not in census:
            raise UserError(f"y has the values {names}, not {_listed([label])}: give some of them as classes=")
        if chosen.count(label) > 1:
            raise UserError(f"the class {_listed([label])} is given twice: name each class once")
    if classes is None:
        chosen = in_order(census)
        if not any_order and any(isinstance(label, str) for label in chosen):
            raise UserError(f"y has the values {names}: say their order with classes=, the lowest first")
    if len(chosen) < 2:
        raise UserError(f"y gives {count_of(len(chosen), 'class')}: two or more are needed")
    if len(chosen) > MOST_CLASSES:
        raise UserError(f"y has more than {MOST_CLASSES} values: choose classes with classes=, or other labels")
    members = tuple(np.isin(codes, [code for code, each in enumerate(own) if each == label]) for label in chosen)
    counts = [sum(of_ranks) for of_ranks in zip(*comm.allgather([int(each.sum()) for each in members]), strict=True)]
    return Classes(members, {"classes": [show(each) for each in chosen], "n_of_classes": counts})


def _label(value: Any) -> Label:
    """Return the label that a value of whatever type is: 1, 1.0, True and "1" are the same."""
    plain = value.item() if isinstance(value, np.generic) else value
    return label_value(str(plain))


def _distinct(y: NDArray[Any]) -> tuple[list[Label], Ints]:
    """Return the labels that there are, and which of them each row has."""
    if y.dtype.kind in "biuf" and len(y):
        low, high = y.min(), y.max()
        top = y == high
        if (top | (y == low)).all():  # nearly always, and without sorting
            return [_label(low), _label(high)], top.astype(np.int64)
    texts = y if y.dtype.kind in "biufSU" else np.array([str(each) for each in y], dtype=np.str_)
    values, codes = np.unique(texts, return_inverse=True)
    plain = [each.decode() if isinstance(each, bytes) else each for each in values.tolist()]
    return [_label(each) for each in plain], codes.reshape(-1)


def _census(comm: Any, own: Sequence[Label], codes: Ints, chosen: Sequence[Label]) -> Counter[Label]:
    """Return how many rows of all have each label, of those chosen and the lowest few.  Collective."""
    counts: Counter[Label] = Counter()
    for label, count in zip(own, np.bincount(codes, minlength=len(own)).tolist(), strict=True):
        counts[label] += count
    few = {*in_order(counts)[: MOST_CLASSES + 1], *(label for label in chosen if label in counts)}
    census: Counter[Label] = Counter()
    for of_rank in comm.allgather({label: counts[label] for label in few if counts[label]}):
        census.update(of_rank)
    return census


def _listed(labels: Sequence[Label] | Counter[Label]) -> str:
    """Return labels as messages write them."""
    ordered = in_order(labels)
    more = ", …" if len(ordered) > _LISTED else ""
    return (
        ", ".join(show(each) if not isinstance(each, str) else f"'{show(each)}'" for each in ordered[:_LISTED]) + more
    )
