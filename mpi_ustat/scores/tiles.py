"""Sums over all pairs of scores of a loss that no order shortens: every rank takes the pairs of its own points.

A point's sum runs over its partners in the order of all points, in pieces of a fixed length: its bits depend neither on
the ranks nor on the other points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.limbs import Grid, exponents
from mpi_ustat.numerics.orders import running
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.scores.side import Side

_PIECE = 256
_PAIRS = 1 << 15  # at a time: what the cache of a core holds


def tile_sums(
    phi: Loss, own: tuple[Side, Side], whole: tuple[Side, Side], *, want_loss: bool
) -> tuple[list[Floats], Floats]:
    """Return the sums of this rank's points `own` over their partners among `whole`.

    Returns
    -------
    slopes : list of ndarray
        Σ_j w_j (-φ'), in the loss's unit, of each own point of both classes.
    losses : ndarray, shape (n,)
        Σ_j w_j φ of each own point that is to score higher; 0 where it isn't wanted.
    """
    of_high, losses = _sums(phi, own[0], whole[1], 1.0, want_loss=want_loss)
    of_low, _ = _sums(phi, own[1], whole[0], -1.0, want_loss=False)
    return [of_high, of_low], losses


def partner_weights(own: Side, others: Side) -> NDArray[Any]:
    """Return the weight of the partners of each point, rounded once."""
    starts, stops, order = _partners(own, others)
    if others.weights is None:
        return stops - starts
    grid = Grid.of([exponents(others.weights)], len(others.weights))
    sums = running(grid.limbs(others.weights[order]))
    return grid.told(sums[:, stops] - sums[:, starts])


def _partners(own: Side, others: Side) -> tuple[Ints, Ints, Any]:
    """Return where the partners of each point begin and end, and the order of the others in which they do."""
    if own.groups is None or others.groups is None:
        return np.zeros(len(own.scores), dtype=np.int64), np.full(len(own.scores), len(others.scores)), slice(None)
    order = np.argsort(others.groups, kind="stable")
    in_order = others.groups[order]
    starts, stops = (np.searchsorted(in_order, own.groups, side=side) for side in ("left", "right"))
    return starts, stops, order


def _sums(phi: Loss, own: Side, others: Side, sign: float, *, want_loss: bool) -> tuple[Floats, Floats]:
    """Return of each own point the sums of slopes and of losses over its partners."""
    starts, stops, order = _partners(own, others)
    scores, weights = others.scores[order], None if others.weights is None else others.weights[order]
    whole = own.groups is None
    pieces: Iterator[_Rectangle | _Runs] = _rectangles(len(own.scores), len(scores)) if whole else _runs(starts, stops)
    slopes, losses = np.zeros(len(own.scores)), np.zeros(len(own.scores))
    for piece in announced(list(pieces)):
        u = sign * (own.scores[piece.points] - scores[piece.partners])
        of_weights = None if weights is None else weights[piece.partners]
        if want_loss:
            piece.add(losses, phi.values(u), of_weights)
        piece.add(slopes, phi.slopes(u), of_weights)
    return slopes, losses


class _Rectangle(NamedTuple):
    """All pairs of some consecutive points and partners."""

    points: Any
    partners: Any

    def add(self, sums: Floats, of_pairs: Floats, weights: Floats | None) -> None:
        """Add what belongs to the pairs to the sums of their points."""
        sums[self.points[0]] += (of_pairs if weights is None else of_pairs * weights).sum(axis=1)


def _rectangles(n: int, m: int) -> Iterator[_Rectangle]:
    for i in range(0, n, _PAIRS // _PIECE):
        for j in range(0, m, _PIECE):
            yield _Rectangle((slice(i, i + _PAIRS // _PIECE), None), (None, slice(j, j + _PIECE)))


class _Runs(NamedTuple):
    """The pairs of points with runs of partners, one run after the other."""

    points: Ints
    partners: Ints
    owners: Ints
    begin: Ints

    def add(self, sums: Floats, of_pairs: Floats, weights: Floats | None) -> None:
        """Add what belongs to the pairs to the sums of their points."""
        of_runs = np.add.reduceat(of_pairs if weights is None else of_pairs * weights, self.begin)
        np.add.at(sums, self.owners, of_runs)


def _runs(starts: Ints, stops: Ints) -> Iterator[_Runs]:
    """Yield the runs of partners from a start to a stop, in pieces, some at a time."""
    n_pieces = -(-(stops - starts) // _PIECE)
    owners = np.repeat(np.arange(len(starts)), n_pieces)
    first = starts[owners] + _PIECE * (np.arange(len(owners)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces))
    lengths = np.minimum(stops[owners] - first, _PIECE)
    of_batch = (np.cumsum(lengths) - lengths) // _PAIRS
    for some in np.split(np.arange(len(owners)), np.flatnonzero(np.diff(of_batch)) + 1):
        if len(some):
            begin = np.cumsum(lengths[some]) - lengths[some]
            partners = np.arange(lengths[some].sum()) + np.repeat(first[some] - begin, lengths[some])
            yield _Runs(np.repeat(owners[some], lengths[some]), partners, owners[some], begin)
