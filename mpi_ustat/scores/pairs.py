"""The loss of all pairs of classes of scores, and what each score adds to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.influence.points import weighted_total
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.mpi.collectives import add_exactly
from mpi_ustat.mpi.runtime import SerialComm, entering
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.types import Floats
from mpi_ustat.scores.meeting import Meeting
from mpi_ustat.scores.power import power_sums
from mpi_ustat.scores.side import Side
from mpi_ustat.scores.tiles import partner_weights, tile_sums

MOST_GATHERED = 1 << 17
"""Scores of so many points are gathered by all ranks; more go to the ranks of their ranges, each once."""


class LossSums(NamedTuple):
    """What the scores of two classes, one of which is to score higher, make of a loss.

    Attributes
    ----------
    loss : float
        The mean of φ(s_i - t_j) over the pairs of all ranks; NaN where it isn't wanted, or a score is not finite.
    high, low : ndarray, shapes (n,) and (m,)
        The derivative of that mean by the score of each of this rank's points; NaN if any score is not finite.
    bytes_sent : int
        By this rank.
    """

    loss: float
    high: Floats
    low: Floats
    bytes_sent: int = 0


def of_pairings(
    comm: Any,
    phi: Loss,
    sides: Sequence[Side],
    pairings: Sequence[tuple[int, int]],
    *,
    want_loss: bool = True,
    meeting: Meeting | None = None,
) -> tuple[float, list[Floats], int]:
    """Return the sum of the pairings' mean losses, its derivatives by the scores, and the bytes sent.  Collective.

    A loss that is a power of how far a pair falls short of the margin (`Loss.degree`) takes a sort; others look at all
    pairs, spread over the ranks. The same bits at every number of ranks. Without a pair a loss is 0.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    phi : Loss
    sides : sequence of Side
        The classes of scores on this rank.
    pairings : sequence of pairs of int
        Which classes are paired, the one to score higher first.
    want_loss : bool
        Otherwise the loss is NaN.
    meeting : Meeting, optional
        Of these classes, for who calls often.
    """
    entering("exchange")
    meeting = meeting or Meeting(comm, sides)
    coefficients = [np.zeros(len(side.scores)) for side in sides]
    total, sent = 0.0, 0
    if phi.degree is None or meeting.n_points <= MOST_GATHERED:
        wholes, sent = meeting.all_of(sides)
        found = [
            _among(
                comm, phi, (sides[a], sides[b]), (wholes[a], wholes[b]), (meeting.mine[a], meeting.mine[b]), want_loss
            )
            for a, b in pairings
        ]
    else:
        found = [_by_ranges(comm, phi, sides[a], sides[b], want_loss) for a, b in pairings]
    for (a, b), each in zip(pairings, found, strict=True):
        total, sent = total + each.loss, sent + each.bytes_sent
        coefficients[a] += each.high
        coefficients[b] += each.low
    return total, coefficients, sent


def _among(
    comm: Any,
    phi: Loss,
    own: tuple[Side, Side],
    whole: tuple[Side, Side],
    mine: tuple[slice, slice],
    want_loss: bool,
) -> LossSums:
    """Return it of scores that are all here: no message, but for the parts of a loss that looks at all pairs."""
    high, low = whole
    if not (np.isfinite(high.scores).all() and np.isfinite(low.scores).all()):
        return _undefined(own)
    loss: Fraction | None = None
    if phi.degree is not None:
        found = power_sums(SerialComm(), phi.degree, _shifted(high, phi), low)
        partners, slopes = found.partners, [each[part] for each, part in zip(found.slopes, mine, strict=True)]
        if want_loss:
            loss = _loss(phi, whole, found.slopes, float(low.scores.max(initial=-math.inf)))
    else:
        partners = partner_weights(high, low)
        slopes, losses = tile_sums(phi, own, whole, want_loss=want_loss)
        if want_loss:
            loss = add_exactly(comm, [exact_sum(_times(own[0], losses))])[0]
    return _means(phi, own, slopes, _n_pairs(high, partners), loss)


def _by_ranges(comm: Any, phi: Loss, high: Side, low: Side, want_loss: bool) -> LossSums:
    """Return it of scores each of which goes to the rank of its range.  Collective."""
    assert phi.degree is not None
    finite = bool(np.isfinite(high.scores).all() and np.isfinite(low.scores).all())
    everyone = comm.allgather((finite, float(low.scores.max(initial=-math.inf))))
    if not all(each for each, _ in everyone):
        return _undefined((high, low))
    found = power_sums(comm, phi.degree, _shifted(high, phi), low)
    own = [_n_pairs(high, found.partners)]
    if want_loss:
        own.append(_loss(phi, (high, low), found.slopes, max(largest for _, largest in everyone)))
    n_pairs, *loss = add_exactly(comm, own)
    means = _means(phi, (high, low), found.slopes, n_pairs, loss[0] if want_loss else None)
    return means._replace(bytes_sent=found.bytes_sent)


def _means(
    phi: Loss, own: tuple[Side, Side], slopes: Sequence[NDArray[Any]], n_pairs: Fraction, loss: Fraction | None
) -> LossSums:
    """Return the means of which these are the sums."""
    high, low = own
    if not n_pairs:
        return LossSums(0.0, np.zeros(len(high.scores)), np.zeros(len(low.scores)))
    unit = phi.slope_unit / float(n_pairs)
    mean = math.nan if loss is None else float(loss / n_pairs)
    return LossSums(mean, -unit * _times(high, slopes[0]), unit * _times(low, slopes[1]))


def _undefined(own: tuple[Side, Side]) -> LossSums:
    high, low = own
    return LossSums(math.nan, np.full(len(high.scores), math.nan), np.full(len(low.scores), math.nan))


def _shifted(high: Side, phi: Loss) -> Side:
    return replace(high, scores=high.scores - phi.margin)


def _n_pairs(high: Side, partners: NDArray[Any]) -> Fraction:
    """Return the weight of the pairs of these points, each of which has partners of some weight, or all of the same."""
    return weighted_total(high.weights, np.broadcast_to(partners, len(high.scores)))


def _times(side: Side, values: NDArray[Any]) -> NDArray[Any]:
    return values if side.weights is None else side.weights * values


def _loss(phi: Loss, sides: tuple[Side, Side], slopes: Sequence[NDArray[Any]], largest: float) -> Fraction:
    """Return these points' part of Σ (t - a)₊^degree, which is Σ_j w_j t_j D_j - Σ_i w_i a_i D_i, D being the slopes.

    Counted from the largest t, no term is larger than that of the widest pair that is short of the margin.
    """
    high, low = sides
    a, t = high.scores - phi.margin - largest, low.scores - largest
    return exact_sum(_times(low, t * slopes[1])) - exact_sum(_times(high, a * slopes[0]))
