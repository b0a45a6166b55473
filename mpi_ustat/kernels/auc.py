"""The area under the ROC curve of two samples of scores, from ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.auc_columns import auc_columns_components
from mpi_ustat.kernels.auc_margins import auc_local, auc_margins
from mpi_ustat.kernels.kernel import UNIT, Local, OnePart, PairSum, Points, as_rows
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.rankstat import count_wins
from mpi_ustat.numerics.types import Floats

_RARE = 16  # a class is rare if the other is this many times as large …
FEW_PAIRS = 1 << 26  # a second-order component that is found in more pairs is of no weight
_MOST_GATHERED = 1 << 22  # … and it has no more scores than this, 32 MiB on every rank

TIES = Option("ties", "what a tie counts: AUC half or strict", "half", choices=("half", "strict"))
COLUMNS = Option("columns", "scores of each point", 1, int, flag=None)
RANGES = Route("ranges", "mpi_ustat.complete.auc:ranges")
MINORITY = Route("minority", "mpi_ustat.complete.auc:minority")
OF_COLUMNS = Route("columns", "mpi_ustat.complete.auc_columns:columns")


class AUC(OnePart):
    """h(x, z) = 1{z < x} + ½·1{z = x}: U_n is the area under the ROC curve, x being the scores of the positives.

    With ``ties="strict"`` ties count 0, the paper's kernel (Section 2, eq. for the AUC).

    Several scores of the same points are `columns`, each with an AUC and a part of its own: points have shape (n, q).
    """

    name = "auc"
    options = (TIES, COLUMNS)
    unit = "1"
    of_columns = True
    scale = 2
    complete_route = RANGES
    influence_route = "mpi_ustat.influence.auc:auc"
    allows_infinite = True
    limits = UNIT
    null = 0.5
    projection_rows = 20_000

    def __init__(self, ties: str = TIES.default, columns: int = COLUMNS.default) -> None:
        if columns < 1:
            raise UserError(f"an AUC needs at least one column of scores, not {columns}")
        self.ties = TIES.checked(ties)
        self.n_coordinates = self.n_parts = columns

    def route(self, sizes: Sequence[int]) -> Route:
        """Return the route: a rare class, or the columns of few pairs, go to every rank."""
        rare = _RARE * min(sizes) <= max(sizes) and min(sizes) <= _MOST_GATHERED
        if rare or (self.n_coordinates != 1 and math.prod(sizes) <= FEW_PAIRS):
            return MINORITY
        return RANGES if self.n_coordinates == 1 else OF_COLUMNS

    def influence_options(self) -> dict[str, Any]:
        """Return how ties count, as an option."""
        return {"ties": self.ties}

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Return each column's sum over all pairs of the blocks."""
        x, z = blocks
        return tuple(PairSum(self.block_total(a, b), len(x) * len(z)) for a, b in _columns(x, z))

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Return each column's sum over aligned pairs."""
        x, z = points
        return tuple(PairSum(self.pairs_total(a, b), len(x)) for a, b in _columns(x, z))

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` and the components, from integer counts."""
        x, z = blocks
        n, m, half = len(x), len(z), self.ties == "half"
        if min(n, m) < 2:
            return Local(self.block_sums(x, z), None)
        if x.ndim > 1:
            return Local(self.block_sums(x, z), auc_columns_components(x, z, half))
        return auc_local(auc_margins(np.sort(x), np.sort(z), half), n, m, half)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the shares of the others, of the other class, that each point wins against (k = 0) or loses to."""
        half, against = self.ties == "half", as_rows(others[1 - k])
        found = np.empty((len(points), self.n_parts))
        for j, scores in enumerate(as_rows(points).T):
            ordered = np.sort(against[:, j])
            below, up_to = (np.searchsorted(ordered, scores, side=side) for side in ("left", "right"))
            wins = below if k == 0 else len(ordered) - up_to
            found[:, j] = (wins + (0.5 * (up_to - below) if half else 0.0)) / len(ordered)
        return found

    def block_total(self, x: Points, z: Points) -> int:
        """Return twice the number of pairs won, plus the number tied, in O(n log n)."""
        return self.sorted_total(np.sort(x), np.sort(z))

    def sorted_total(self, x: Points, z: Points) -> int:
        """Return `block_total` of blocks that are sorted already."""
        wins, ties = count_wins(x, z)
        return 2 * wins + (ties if self.ties == "half" else 0)

    def pairs_total(self, x: Points, z: Points) -> int:
        """Return twice the number of pairs won, plus the number tied."""
        wins = 2 * int(np.count_nonzero(z < x))
        return wins + int(np.count_nonzero(z == x)) if self.ties == "half" else wins


def _columns(x: Points, z: Points) -> Iterator[tuple[Points, Points]]:
    return zip(as_rows(x).T, as_rows(z).T, strict=True)
