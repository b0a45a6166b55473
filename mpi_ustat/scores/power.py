"""Sums over all pairs (a, t) with t > a of powers of t - a, by one sort: what hinge losses are made of.

Such a sum is made of W, the weight of the partners of a point, and S, the sum of their values, over all of what lies
on one side of it in the order of all points. Both are added as whole numbers (`numerics.limbs`), so that nothing
depends on the ranks: W without rounding, values rounded once, to 2^-53 of the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.numerics.limbs import ONES, Extremes, Grid, exponents
from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.orders import placed, running
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.scores.ranges import beyond
from mpi_ustat.scores.side import Side

_SMALLEST = 2.0**-900  # below it no grid is laid
_MANTISSA_BITS = 53


class PowerSums(NamedTuple):
    """What the points learn of their partners.

    Attributes
    ----------
    slopes : list of ndarray
        Of each a Σ_{t > a} w_t (t - a)^(degree - 1), and of each t Σ_{a < t} w_a (t - a)^(degree - 1).
    partners : ndarray, shape (n,) or ()
        The weight of all t that an a is paired with, whether above it or not.
    bytes_sent : int
        By this rank.
    """

    slopes: list[NDArray[Any]]
    partners: NDArray[Any]
    bytes_sent: int


def power_sums(comm: Any, degree: int, a: Side, t: Side) -> PowerSums:
    """Return the sums over all ranks.  Collective.  `degree` is 1 or 2."""
    if comm.size == 1 and all(side.weights is None and side.groups is None for side in (a, t)):
        return PowerSums(_counted(degree, a.scores, t.scores), np.asarray(len(t.scores)), 0)
    terms = _terms(comm, degree, (a, t))
    if a.groups is None or t.groups is None:
        slopes, all_t, sent = beyond(comm, (a.scores, t.scores), terms.brought, terms.told)
        return PowerSums(slopes, np.asarray(terms.weights(all_t)), sent)
    stretch = Stretch(comm, [Own(side.groups, side.scores, terms.of(k)) for k, side in enumerate((a, t))])
    of_a, of_t = stretch.sums
    (a_below, _), (t_below, t_all) = map(stretch.below, (of_a, of_t))
    slopes = [
        stretch.home(0, terms.told(t_all - t_below - of_t, stretch.values, 1)[None])[0],
        stretch.home(1, terms.told(a_below, stretch.values, -1)[None])[0],
    ]
    return PowerSums(slopes, stretch.home(0, terms.weights(t_all)[None])[0], stretch.bytes_sent)


def _counted(degree: int, a: Floats, t: Floats) -> list[NDArray[Any]]:
    """Return the slopes of points that count once each and are all here: the same bits, in fewer steps."""
    orders = np.argsort(a), np.argsort(t)
    a, t = a[orders[0]], t[orders[1]]
    # The i-th of a and the j-th of t are a pair where j is not below up_to[i], the number of t that are not above a.
    if len(a) <= len(t):
        up_to = look_up(t, a, "right")
        below = np.cumsum(np.bincount(up_to, minlength=len(t) + 1))[: len(t)]
    else:
        below = look_up(a, t, "left")
        up_to = np.cumsum(np.bincount(below, minlength=len(a) + 1))[: len(a)]
    above: Ints = len(t) - up_to
    found: list[NDArray[Any]] = [above, below]
    if degree > 1:
        largest = max((float(np.abs(each[[0, -1]]).max()) for each in (a, t) if len(each)), default=0.0)
        grid = _grid_below(largest, len(a) + len(t))
        of_a, of_t = (grid.whole(np.rint(each / 2.0**grid.exponent)) for each in (a, t))
        sums_a, sums_t = map(running, (of_a, of_t))
        found = [
            grid.floats(sums_t[:, -1:] - sums_t.take(up_to, axis=1) - above * of_a),
            grid.floats(below * of_t - sums_a.take(below, axis=1)),
        ]
    return [placed(each, order) for each, order in zip(found, orders, strict=True)]


@dataclass(frozen=True)
class _Terms:
    """What the points bring to the sums, as limbs, and what is made of the sums.

    Attributes
    ----------
    sizes : tuple of int
        Points of each class on this rank.
    grid : Grid
        Of the weights.
    moments : Grid or None
        Of the values, times the weights; None: these aren't asked for.
    brought : list of ndarray of int64, shape (k, n), or None
        Of each class; None: a one each.
    exact : bool
        Whether nothing is weighted.
    """

    sizes: tuple[int, int]
    grid: Grid
    moments: Grid | None
    brought: list[Ints] | None
    exact: bool

    def of(self, k: int) -> Ints:
        """Return the sums that the points of one class send."""
        return np.ones((1, self.sizes[k]), dtype=np.int64) if self.brought is None else self.brought[k]

    def weights(self, sums: Ints) -> NDArray[Any]:
        """Return W."""
        return self.grid.told(sums[: self.grid.n_limbs])

    def told(self, sums: Ints, values: Floats, sign: int) -> NDArray[Any]:
        """Return W, or `sign` (S - W·value), of values whose partners bring these sums."""
        if self.moments is None:
            return self.weights(sums)
        moments = sums[self.grid.n_limbs :]
        if self.exact:
            return self.moments.floats(sign * (moments - sums[0] * self.moments.limbs(_rounded(self.moments, values))))
        return sign * (self.moments.floats(moments) - self.weights(sums) * values)


def _terms(comm: Any, degree: int, sides: tuple[Side, Side]) -> _Terms:
    """Return the sums that the points send.  Collective."""
    sizes = (len(sides[0].scores), len(sides[1].scores))
    exact = all(side.weights is None for side in sides)
    if exact and degree == 1:
        return _Terms(sizes, Grid(), None, None, exact)
    weights = [np.ones(n) if side.weights is None else side.weights for side, n in zip(sides, sizes, strict=True)]
    known = [ONES if side.weights is None else exponents(side.weights) for side in sides]
    largest = max(
        float(np.abs(w * side.scores).max(initial=0.0)) if degree > 1 else 0.0
        for w, side in zip(weights, sides, strict=True)
    )
    everyone = comm.allgather((known, largest, sum(sizes)))
    n_terms = sum(n for _, _, n in everyone)
    grid = Grid.of([each for of_rank, _, _ in everyone for each in of_rank], n_terms)
    limbs = [grid.limbs(w) for w in weights]
    if degree == 1:
        return _Terms(sizes, grid, None, limbs, exact)
    moments = _grid_below(max(each for _, each, _ in everyone), n_terms)
    of_values = [moments.limbs(_rounded(moments, w * side.scores)) for w, side in zip(weights, sides, strict=True)]
    return _Terms(sizes, grid, moments, [np.concatenate(each) for each in zip(limbs, of_values, strict=True)], exact)


def _grid_below(largest: float, n_terms: int) -> Grid:
    """Return a grid of 53 bits below a number; a limb times the number of terms, or the sum of two such, fits int64."""
    highest = math.frexp(max(largest, _SMALLEST))[1]
    return Grid.of([Extremes(highest - _MANTISSA_BITS, highest, False)], 4 * n_terms)


def _rounded(grid: Grid, values: Floats) -> Floats:
    unit = 2.0**grid.exponent
    return np.rint(values / unit) * unit
