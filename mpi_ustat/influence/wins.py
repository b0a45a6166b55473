"""How much of the other class each score beats, where all pairs count: the fast way of `stretches`.

Every score moves once, to the rank of its range, where both classes are sorted together, and what it beats comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.stretches import splitting_values
from mpi_ustat.influence.trips import Trip
from mpi_ustat.mpi.runtime import entering
from mpi_ustat.numerics.limbs import Grid
from mpi_ustat.numerics.orders import Merged, placed, running
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats

_DRAWN_OF = 64  # of so many scores one is looked at to part them
_MANY = 16  # ranges

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
    """Return how much each own x beats, and how much each own z is beaten by.  Collective.

    Ties count 1 with `half`. Without weights these are numbers of points; with weights that `grid` holds, their sums,
    as `Grid.told` gives them.
    """
    entering("exchange")
    classes = x, z
    trips = parted(comm, classes)
    arrived = [np.asarray(trip.out(each)) for trip, each in zip(trips, classes, strict=True)]
    if weights is None or grid is None:
        found, totals = _counted(comm, arrived[0], arrived[1], half)
    else:
        brought = [np.asarray(trip.out(each)) for trip, each in zip(trips, weights, strict=True)]
        found, totals = _weighted(comm, arrived, brought, half, grid)
    won, lost = (trip.back(each) for trip, each in zip(trips, found, strict=True))
    return Wins(won, lost, totals, sum(trip.bytes_sent for trip in trips))


def parted(comm: Any, classes: Sequence[Floats]) -> list[Trip]:
    """Return the ways of the scores of each class to the ranks of their ranges; equal ones meet.  Collective."""
    bounds = splitting_values(comm, [_some(each) for each in classes]) if comm.size > 1 else np.empty(0)
    return [Trip(comm, _ranges(each, bounds)) for each in classes]


def _some(scores: Floats) -> Floats:
    """Return the same share of the scores of every rank, drawn by chance and sorted; none of a rank without any."""
    if not len(scores):
        return scores
    rows = Streams(0).open("scores of a range").integers(len(scores), -(-len(scores) // _DRAWN_OF))
    return np.sort(scores[rows])


def _ranges(scores: Floats, bounds: Floats) -> NDArray[Any]:
    """Return in which range each score is, of those that begin at the bounds."""
    if len(bounds) >= _MANY:
        return np.searchsorted(bounds, scores, side="right")
    found = np.zeros(len(scores), dtype=np.uint8)
    for bound in bounds:
        found += scores >= bound
    return found


def _counted(comm: Any, x: Floats, z: Floats, half: bool) -> tuple[Pair, Pair]:
    sizes = comm.allgather((len(x), len(z)))
    z_lower, x_higher = sum(z for _, z in sizes[: comm.rank]), sum(x for x, _ in sizes[comm.rank + 1 :])
    orders, (z_below, x_below), (z_up_to, x_up_to) = Merged.of(x, z)
    won = z_below + (z_up_to if half else z_below) + 2 * z_lower
    lost = 2 * (len(x) + x_higher) - (x_below if half else x_up_to) - x_up_to
    n, m = np.array(sizes).sum(axis=0)
    return (placed(won, orders[0]), placed(lost, orders[1])), (n, m)


def _weighted(comm: Any, scores: list[Floats], weights: list[Floats], half: bool, grid: Grid) -> tuple[Pair, Pair]:
    orders, (z_below, x_below), (z_up_to, x_up_to) = Merged.of(*scores)
    of_x, of_z = (running(grid.limbs(own[order])) for own, order in zip(weights, orders, strict=True))
    totals = comm.allgather((of_x[:, -1], of_z[:, -1]))
    nothing = np.zeros(grid.n_limbs, dtype=np.int64)
    z_lower = sum((each for _, each in totals[: comm.rank]), nothing)[:, None]
    x_from_here = sum((each for each, _ in totals[comm.rank :]), nothing)[:, None]
    won = of_z.take(z_below, axis=1) + of_z.take(z_up_to if half else z_below, axis=1) + 2 * z_lower
    lost = 2 * x_from_here - of_x.take(x_up_to, axis=1) - of_x.take(x_below if half else x_up_to, axis=1)
    n, m = (grid.told(np.sum([each[k] for each in totals], axis=0)[:, None])[0] for k in (0, 1))
    return (placed(grid.told(won), orders[0]), placed(grid.told(lost), orders[1])), (n, m)
