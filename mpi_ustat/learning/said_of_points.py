"""Weights and groups as a classifier's `fit` gets them: for the points of all classes, on each rank."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.multiplicity import are_weights
from mpi_ustat.numerics.types import Flags
from mpi_ustat.user.guards import has_masked
from mpi_ustat.wording import count_of


class SaidOfPoints(NamedTuple):
    """What is said of this rank's points, in their order; None: nothing.

    Attributes
    ----------
    weights, groups : ndarray, shape (n_local,), or None
    """

    weights: NDArray[Any] | None
    groups: NDArray[Any] | None

    @classmethod
    def of(cls, n_points: int, sample_weight: ArrayLike | None, groups: ArrayLike | None) -> Self:
        """Return them, or refuse what can't be said of so many points."""
        found: list[NDArray[Any] | None] = []
        for name, given in (("sample_weight", sample_weight), ("groups", groups)):
            if has_masked(given):
                raise UserError(f"{name} has masked values: remove these points, or fill them in")
            array = None if given is None else np.asarray(given)
            if array is not None and array.shape != (n_points,):
                points = count_of(n_points, "point")
                raise UserError(f"{name} has shape {array.shape}: give one for each of the {points}")
            found.append(array)
        weights = found[0]
        if weights is not None and weights.dtype.kind not in "biuf":
            raise UserError(f"sample_weight has the type {weights.dtype}: pass real numbers")
        weights = None if weights is None else weights.astype(np.float64)
        if weights is not None and not are_weights(weights).all():
            raise UserError("sample_weight must be finite and not negative: correct it, or remove these points")
        return cls(weights, found[1])

    def agreed(self, comm: Any, n_points: int) -> Self:
        """Return them as they are on all ranks: with nothing of no points, where others have some.  Collective."""
        everyone = comm.allgather((n_points, [each is not None for each in self]))
        of_points = [said for n, said in everyone if n]
        if any(said != of_points[0] for said in of_points):
            raise UserError("some ranks pass sample_weight or groups and others don't: pass them on all")
        if n_points or not of_points:
            return self
        return type(self)(*(np.empty(0) if there else None for there in of_points[0]))

    def of_samples(self, *members: Flags) -> list[list[NDArray[Any]] | None]:
        """Return the weights, and the groups, of the points of each sample."""
        return [None if said is None else [said[each] for each in members] for said in self]

    def refuse_weightless(self, comm: Any, *members: Flags) -> None:
        """Refuse weights that leave a class without a point.  Collective."""
        there = self.weights is not None and [bool((self.weights[each] > 0.0).any()) for each in members]
        count = [any(of_ranks) for of_ranks in zip(*comm.allgather(there or [True] * len(members)), strict=True)]
        if not any(count):
            raise UserError("sample_weight is zero for all points: some must count")
        if not all(count):
            raise UserError("sample_weight leaves points of one class only: ranking needs points of two")
