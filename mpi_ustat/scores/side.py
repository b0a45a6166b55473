"""Scores of one class."""

from __future__ import annotations

from dataclasses import dataclass

from mpi_ustat.numerics.types import Floats, Ints


@dataclass(frozen=True)
class Side:
    """Scores of one class on one rank, and what is said about their points.

    Attributes
    ----------
    scores : ndarray of float64, shape (n,)
    weights : ndarray of float64, shape (n,), or None
        Finite and not negative; None: each point counts once.
    groups : ndarray of int64, shape (n,), or None
        Only pairs of one group count.
    """

    scores: Floats
    weights: Floats | None = None
    groups: Ints | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all that is known."""
        return sum(each.nbytes for each in (self.scores, self.weights, self.groups) if each is not None)
