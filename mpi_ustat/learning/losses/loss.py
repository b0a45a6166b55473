"""What a loss is: a function φ of the difference of two scores, with its slope and its sums over all pairs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import add
from mpi_ustat.numerics.types import Floats

_TILE = 128  # matrices of 128 KiB stay in a core's cache


class Loss(ABC):
    """φ(u) of u = s(x) - s(z), which falls in u: positives x should score higher than negatives z.

    A subclass needs `name`, `values` and `slopes`; one whose sum over all pairs is shorter than the pairs says so
    (`by_sorting`) and has `total` and `sums`.

    Parameters
    ----------
    margin : float
        c > 0, the u from which a pair costs nothing, if φ has one.
    """

    name: ClassVar[str]
    by_sorting: ClassVar[bool] = False
    """Whether `total` takes O(n log n)."""
    degree: ClassVar[int | None] = None
    """The d of φ(u) = max(0, c - u)^d, 1 or 2, if φ is such a power; -φ' then is `slope_unit` (c - u)^(d-1)."""
    slope_unit: ClassVar[float] = 1.0
    """What `slopes` are counted in: a factor of all of them, which is applied to their sums."""

    def __init__(self, margin: float = 1.0) -> None:
        if not (margin > 0 and math.isfinite(margin)):
            raise UserError(f"the margin must be positive and finite, not {margin}")
        self.margin = float(margin)

    @abstractmethod
    def values(self, u: Floats) -> Floats:
        """Return φ(u)."""

    @abstractmethod
    def slopes(self, u: Floats) -> Floats:
        """Return -φ'(u) in units of `slope_unit`; may overwrite u. NaN must remain NaN."""

    def total(self, positive: Floats, negative: Floats) -> float:
        """Return Σ_kl φ(s_k - t_l) over all pairs of scores."""
        return self.sums(positive, negative)[0]

    def sums(self, positive: Floats, negative: Floats) -> tuple[float, Floats, Floats]:
        """Return Σ φ over all pairs of finite scores, and for each score the sum of -φ' over its partners."""
        losses: list[float] = []
        a, b = np.zeros(len(positive)), np.zeros(len(negative))
        for i in range(0, len(positive), _TILE):
            for j in range(0, len(negative), _TILE):
                u = positive[i : i + _TILE, None] - negative[None, j : j + _TILE]
                losses.append(float(np.sum(self.values(u))))
                slopes = self.slopes(u)
                a[i : i + _TILE] += slopes.sum(axis=1)
                b[j : j + _TILE] += slopes.sum(axis=0)
        return float(add(losses)), self.slope_unit * a, self.slope_unit * b
