"""The loss of all pairs of two classes of scores, and what each score adds to it."""

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
from mpi_ustat.mpi.collectives import add_exactly, gather_rows
from mpi_ustat.mpi.runtime import SerialComm, entering
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.types import Floats
from mpi_ustat.scores.power import power_sums
from mpi_ustat.scores.side import Side
from mpi_ustat.scores.tiles import tile_sums

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
    bytes_sent: int


def over_pairs(comm: Any, phi: Loss, high: Side, low: Side, *, want_loss: bool = True) -> LossSums:
    """Return the mean loss over all pairs that count, and its derivatives by the scores.  Collective.

    A loss that is a power of how far a pair falls short of the margin (`Loss.degree`) takes a sort; others look at all
    pairs, spread over the ranks. The same bits at every number of ranks. Without a pair the loss is 0.
    """
    entering("exchange")
    n, m = len(high.scores), len(low.scores)
    finite = bool(np.isfinite(high.scores).all() and np.isfinite(low.scores).all())
    everyone = comm.allgather((n, m, float(low.scores.max(initial=-math.inf)), finite))
    if not all(each[-1] for each in everyone):
        return LossSums(math.nan, np.full(n, math.nan), np.full(m, math.nan), 0)
    gathers = phi.degree is None or sum(n + m for n, m, *_ in everyone) <= MOST_GATHERED
    of_high, of_low, sent = high, low, 0
    mine = [slice(n), slice(m)]
    if gathers and comm.size > 1:
        of_high, of_low = _gathered(comm, high), _gathered(comm, low)
        before = np.array([each[:2] for each in everyone[: comm.rank]], dtype=np.int64).reshape(-1, 2).sum(axis=0)
        mine = [slice(first, first + len(side.scores)) for first, side in zip(before, (high, low), strict=True)]
        sent = (comm.size - 1) * (high.nbytes + low.nbytes)
    loss = Fraction()
    if phi.degree is None:
        slopes, partners, loss = tile_sums(phi, (high, low), (of_high, of_low), want_loss=want_loss)
    else:
        shifted = replace(of_high, scores=of_high.scores - phi.margin)
        of_all = power_sums(SerialComm() if gathers else comm, phi.degree, shifted, of_low)
        slopes = [each[part] for each, part in zip(of_all.slopes, mine, strict=True)]
        partners = of_all.partners if of_all.partners.ndim == 0 else of_all.partners[mine[0]]
        sent += of_all.bytes_sent
        if want_loss:
            loss = _loss(phi, (high, low), slopes, max(each[2] for each in everyone))
    n_pairs, total = add_exactly(comm, [weighted_total(high.weights, np.broadcast_to(partners, n)), loss])
    if not n_pairs:
        return LossSums(0.0, np.zeros(n), np.zeros(m), sent)
    unit = phi.slope_unit / float(n_pairs)
    mean = float(total / n_pairs) if want_loss else math.nan
    return LossSums(mean, -unit * _times(high, slopes[0]), unit * _times(low, slopes[1]), sent)


def of_pairings(
    comm: Any, phi: Loss, sides: Sequence[Side], pairings: Sequence[tuple[int, int]], *, want_loss: bool = True
) -> tuple[float, list[Floats], int]:
    """Return the sum of the mean losses of the pairings, its derivatives by the scores, and the bytes sent.

    Collective.
    """
    total, sent, coefficients = 0.0, 0, [np.zeros(len(side.scores)) for side in sides]
    for a, b in pairings:
        found = over_pairs(comm, phi, sides[a], sides[b], want_loss=want_loss)
        total, sent = total + found.loss, sent + found.bytes_sent
        coefficients[a] += found.high
        coefficients[b] += found.low
    return total, coefficients, sent


def _gathered(comm: Any, side: Side) -> Side:
    """Return the class on all ranks.  Collective."""
    said = {name: each for name, each in vars(side).items() if each is not None}
    return replace(side, **{name: gather_rows(comm, each) for name, each in said.items()})


def _times(side: Side, values: NDArray[Any]) -> NDArray[Any]:
    return values if side.weights is None else side.weights * values


def _loss(phi: Loss, sides: tuple[Side, Side], slopes: list[NDArray[Any]], largest: float) -> Fraction:
    """Return this rank's part of Σ (t - a)₊^degree, which is Σ_j w_j t_j D_j - Σ_i w_i a_i D_i, D being the slopes.

    Counted from the largest t, no term is larger than that of the widest pair that is short of the margin.
    """
    high, low = sides
    a, t = high.scores - phi.margin - largest, low.scores - largest
    return exact_sum(_times(low, t * slopes[1])) - exact_sum(_times(high, a * slopes[0]))
