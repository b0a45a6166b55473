"""How much of the other class each score beats, where all pairs count: the fast way of `stretches`.

Every score moves once, to the rank of its range, and what it beats comes back. The scores of a rank come in order, and
are looked up in the other class's as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.stretches import splitting_values
from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.limbs import Grid
from mpi_ustat.numerics.types import Floats, Ints

Pair = tuple[NDArray[Any], NDArray[Any]]


class Wins(NamedTuple):
    """What two classes of scores learn of each other.

    Attributes
    ----------
    won, lost : ndarray
        Twice the z that each own x beats, twice the x that each own z is beaten by.
    totals : (number, number)
        The x and the z of all ranks.
    bytes_sent : int
        By this rank.
    """

    won: NDArray[Any]
    lost: NDArray[Any]
    totals: tuple[Any, Any]
    bytes_sent: int


def wins(
    comm: Any, x: Floats, z: Floats, half: bool, grid: Grid | None = None, weights: tuple[Floats, Floats] | None = None
) -> Wins:
    """Return what each own x beats, and each own z is beaten by.  Collective.

    Ties count 1 with `half`. Without weights these are numbers of points; with weights that `grid` holds, their sums,
    as `Grid.told` gives them.
    """
    entering("exchange")
    ways = [_Way(comm, scores) for scores in (x, z)]
    bounds = splitting_values(comm, [way.ordered for way in ways])
    arrived = [way.sent(comm, bounds) for way in ways]
    if weights is None or grid is None:
        found, totals = _counted(comm, arrived[0], arrived[1], half)
    else:
        brought = [way.out(each) for way, each in zip(ways, weights, strict=True)]
        found, totals = _weighted(comm, arrived, brought, half, grid)
    home = ways[0].home(found[0]), ways[1].home(found[1])
    return Wins(*home, totals, sum(way.trip.bytes_sent for way in ways))


class _Way:
    """The way of one class's scores to the ranks of their ranges, and back."""

    trip: Trip

    def __init__(self, comm: Any, scores: Floats) -> None:
        self._order = np.argsort(scores)
        self.ordered = scores[self._order]

    def sent(self, comm: Any, bounds: Floats) -> Floats:
        """Return the scores that come to this rank."""
        cuts = np.searchsorted(self.ordered, bounds, side="left")
        self.trip = Trip(comm, None, np.diff(cuts, prepend=0, append=len(self.ordered)))
        return np.asarray(self.trip.out(self.ordered))

    def out(self, values: Floats) -> Floats:
        """Return what belongs to these scores."""
        return np.asarray(self.trip.out(values[self._order]))

    def home(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what was found for each own score."""
        found = np.empty(len(self._order), dtype=values.dtype)
        found[self._order] = self.trip.back(values)
        return found


def _counted(comm: Any, x: Floats, z: Floats, half: bool) -> tuple[Pair, Pair]:
    sizes = comm.allgather((len(x), len(z)))
    z_lower, x_higher = sum(z for _, z in sizes[: comm.rank]), sum(x for x, _ in sizes[comm.rank + 1 :])
    x_sorted, z_sorted = (x, z) if comm.size == 1 else (np.sort(x), np.sort(z))
    (z_left, z_right), (x_left, x_right) = _places(z_sorted, x), _places(x_sorted, z)
    won = z_left + z_right if half else 2 * z_left
    lost = x_left + x_right if half else 2 * x_right
    n, m = np.array(sizes).sum(axis=0)
    return (won + 2 * z_lower, 2 * (len(x) + x_higher) - lost), (n, m)


def _weighted(comm: Any, scores: list[Floats], weights: list[Floats], half: bool, grid: Grid) -> tuple[Pair, Pair]:
    ordered, cumulative = [], []
    for own, of_own in zip(scores, weights, strict=True):
        order = slice(None) if comm.size == 1 else np.argsort(own)
        ordered.append(own[order])
        sums = np.zeros((grid.n_limbs, len(own) + 1), dtype=np.int64)
        np.cumsum(grid.limbs(of_own[order]), axis=1, out=sums[:, 1:])
        cumulative.append(sums)
    (x, z), (of_x, of_z) = scores, cumulative
    totals = comm.allgather((of_x[:, -1], of_z[:, -1]))
    nothing = np.zeros(grid.n_limbs, dtype=np.int64)
    z_lower = sum((each for _, each in totals[: comm.rank]), nothing)[:, None]
    x_from_here = sum((each for each, _ in totals[comm.rank :]), nothing)[:, None]
    (z_left, z_right), (x_left, x_right) = _places(ordered[1], x), _places(ordered[0], z)
    won = of_z.take(z_left, axis=1) + of_z.take(z_right if half else z_left, axis=1)
    lost = of_x.take(x_right, axis=1) + of_x.take(x_left if half else x_right, axis=1)
    n, m = (grid.told(np.sum([each[k] for each in totals], axis=0)[:, None])[0] for k in (0, 1))
    return (grid.told(won + 2 * z_lower), grid.told(2 * x_from_here - lost)), (n, m)


def _places(ordered: Floats, queries: Floats) -> tuple[Ints, Ints]:
    """Return how many of some sorted values are below each query, and how many up to it."""
    left = np.searchsorted(ordered, queries, side="left")
    right = left.copy()
    if len(ordered):
        tied = np.flatnonzero(ordered[np.minimum(left, len(ordered) - 1)] == queries)
        right[tied] = np.searchsorted(ordered, queries[tied], side="right")
    return left, right
