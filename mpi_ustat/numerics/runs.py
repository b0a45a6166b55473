"""Numbers in ascending order, equal ones joined or not, and how many of them lie around others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpi_ustat.numerics.lookup import below_and_at, look_up
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Floats, Ints


@dataclass(frozen=True)
class Runs:
    """Numbers in ascending order, equal ones joined or not.

    Attributes
    ----------
    values : ndarray, shape (r,)
        Ascending.
    counts : ndarray of int64, shape (r,), or None
        How often each of the values occurs, which then are distinct; None: the values as they are, repeats and all.
    """

    values: Floats
    counts: Ints | None = None

    @property
    def n_points(self) -> int:
        """Numbers, repeats included."""
        return len(self.values) if self.counts is None else int(self._cumulative[-1])

    def distinct(self) -> Runs:
        """Return the same numbers, equal ones joined (0 and -0 are equal)."""
        if self.counts is not None:
            return self
        starts = np.flatnonzero(starts_of_runs(self.values))
        return Runs(self.values[starts], np.diff(starts, append=len(self.values)))

    def below(self, queries: Floats) -> Ints:
        """Return how many of the numbers are less than each of some ascending queries."""
        return self._points_of(look_up(self.values, queries, "left"))

    def up_to(self, queries: Floats) -> Ints:
        """Return how many of the numbers are at most each of some ascending queries."""
        return self._points_of(look_up(self.values, queries, "right"))

    def below_and_at(self, queries: Floats) -> tuple[Ints, Ints | None]:
        """Return how many are less than each of some ascending queries, and how many equal; None: none equals any."""
        below, at = below_and_at(self.values, queries)
        if self.counts is None or at is None:
            return self._points_of(below), at
        points_below = self._points_of(below)
        return points_below, self._points_of(below + at) - points_below

    def cut(self, splitters: Floats) -> list[Runs]:
        """Return the numbers below the first splitter, those from it to below the next, and so on."""
        cuts = np.searchsorted(self.values, splitters, side="left")
        counts = [None] * (len(cuts) + 1) if self.counts is None else np.split(self.counts, cuts)
        return [Runs(*piece) for piece in zip(np.split(self.values, cuts), counts, strict=True)]

    @cached_property
    def _cumulative(self) -> Ints:
        """How many of the numbers have one of the first i values, shape (r + 1,), where equal ones are joined."""
        assert self.counts is not None
        return np.append(0, np.cumsum(self.counts))

    def _points_of(self, places: Ints) -> Ints:
        return places if self.counts is None else self._cumulative[places]
