"""AUCs of more than two classes, each of which has a column of scores, as one kernel of a sample a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.auc import AUC, TIES
from mpi_ustat.kernels.kernel import UNIT, Kernel, PairSum, Points
from mpi_ustat.wording import count_of

MULTICLASS = ("ovr", "ovo")
"""One class against the rest, and every two classes (Hand and Till 2001)."""


class MulticlassAUC(Kernel):
    """The AUCs of K classes, and their means: of each class against all others, or of every two.

    Points are rows of K scores; column k scores class k. Only all pairs, by the influence of points, make it.
    """

    name = AUC.name
    unit = "1"
    has_components = False
    by_influence = True
    allows_infinite = True
    limits = UNIT
    null = 0.5

    def __init__(self, how: str, n_classes: int, ties: str = "") -> None:
        if how not in MULTICLASS:
            raise UserError(f"multiclass is {how!r}: choose {' or '.join(MULTICLASS)}")
        self.ties = TIES.checked(ties or TIES.default)
        self.how = how
        self.degrees = (1,) * n_classes
        self.n_coordinates = n_classes
        self.n_parts = len(self.statistics(tuple(map(str, range(n_classes)))))
        self.statistic_route = "mpi_ustat.influence.multiclass:" + {"ovr": "one_against_rest", "ovo": "every_two"}[how]

    def influence_options(self) -> dict[str, Any]:
        """Return how ties count, as an option."""
        return {"ties": self.ties}

    def statistics(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the statistics of classes with these names."""
        if self.how == "ovr":
            return (*(f"class {name}" for name in classes), "macro", "weighted")
        return (*(f"{a}, {b}" for a, b in combinations(classes, 2)), "M")

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Refuse: there are no sums of blocks."""
        raise UserError("AUCs of several classes are of all pairs: use complete=True")

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Refuse, as `block_sums` does."""
        return self.block_sums(*points)


def multiclass_auc(
    comm: Any, how: str, classes: Sequence[Any], ties: str = "", options: Mapping[str, Any] | None = None
) -> MulticlassAUC:
    """Return the kernel for this rank's rows of every class.  Collective.

    Raises
    ------
    UserError
        If there is one class only, or not a column for each, or the kernel has another option than ties.
    """
    other = [name for name in options or () if name not in ("ties", "multiclass")]
    if other:
        raise UserError(f"the AUC of several classes has no option {other[0]}: leave it out")
    n_classes = len(classes)
    if n_classes < 2:
        raise UserError("multiclass is of two or more samples, one a class: give all of them")
    own = {np.shape(rows)[1] if np.ndim(rows) > 1 else 1 for rows in classes if len(rows)}
    found = min(set().union(*comm.allgather(own)) - {n_classes}, default=None)
    if found is not None:
        columns = count_of(found, "column")
        raise UserError(
            f"there are {n_classes} classes and {columns} of scores: give one column for each class, in the classes' "
            "order (columns=)"
        )
    return MulticlassAUC(how, n_classes, ties or (options or {}).get("ties", ""))
