"""The groups of an estimate's result file, from the lowest statistic to the highest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.storage.results import ResultFile


@dataclass(frozen=True)
class RankedGroups:
    """The groups that have a value, and how many have none.

    Attributes
    ----------
    names : ndarray, shape (G,)
        Numbers or texts.
    values, points, pairs : ndarray, shape (G,)
        The statistic of each, and the weight of its points and pairs.
    n_undefined : int
        Groups without a pair.
    """

    names: NDArray[Any]
    values: Floats
    points: Floats
    pairs: Floats
    n_undefined: int

    def lowest(self, n: int) -> Ints:
        """Return which n groups have the lowest values, the lowest first; of equal values those of most pairs."""
        return self._first(self.values, n)

    def highest(self, n: int) -> Ints:
        """Return which n groups have the highest values, the highest first; of equal values those of most pairs."""
        return self._first(-self.values, n)

    def tied_with(self, place: int) -> int:
        """Return how many groups have the value of the one at a place."""
        return int(np.count_nonzero(self.values == self.values[place]))

    def name(self, place: int) -> str:
        """Return the name of the group at a place."""
        name = self.names[place]
        return f"{float(name):.15g}" if self.names.dtype.kind == "f" else str(name)

    def _first(self, keys: Floats, n: int) -> Ints:
        n = min(n, len(keys))
        if not n:
            return np.empty(0, dtype=np.int64)
        near = np.flatnonzero(keys <= np.partition(keys, n - 1)[n - 1])
        return near[np.lexsort((near, -self.pairs[near], keys[near]))][:n].astype(np.int64)


def ranked_groups(result: ResultFile) -> list[RankedGroups]:
    """Return the groups of a result, by each of its statistics; none if there are no groups in it."""
    if "groups/value" not in result.datasets:
        return []
    values, points, pairs = (result.datasets[f"groups/{name}"].values for name in ("value", "points", "pairs"))
    names = result.scales.get("group", np.arange(len(values)))
    found = []
    for each in values.reshape(len(values), -1).T:
        there = ~np.isnan(each)
        of_all = points.reshape(len(values), -1).sum(axis=1)
        missing = int(np.count_nonzero(~there))
        found.append(RankedGroups(names[there], each[there], of_all[there], pairs[there], missing))
    return found
