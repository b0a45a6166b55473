"""A complete statistic and the influence of every point on it, from what the points have learnt of their pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.influence.points import BEYOND_DOUBLES, PointSums, Sample, weighted_total
from mpi_ustat.numerics.types import Floats


@dataclass(frozen=True)
class Influence:
    """A statistic of all pairs that count, and what each point has to do with it.

    Attributes
    ----------
    value : ndarray, shape (q,)
        θ of q statistics.
    total_weight : float
        Ω, the sum of ω_ij over the pairs that count; of the last part, where each is over pairs of its own.
    points : list of ndarray, shape (q, n)
        ψ of this rank's points of each sample.
    bytes_sent : int
        Bytes that this rank has sent to others, in finding the point sums.
    means : ndarray, shape (p,), or None
        Averages of the parts that the statistics are made of.
    """

    value: Floats
    total_weight: float
    points: list[Floats]
    bytes_sent: int = 0
    means: Floats | None = None


@np.errstate(over="ignore", invalid="ignore")
def statistic(
    comm: Any,
    samples: Sequence[Sample],
    sums: Sequence[PointSums],
    scale: int = 1,
    combine: tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]] | None = None,
) -> Influence:
    """Return θ and ψ_i = w_i (h_i - θ p_i) / Ω, the same bits at every number of ranks.  Collective.

    Products of a weight and a point's sum are rounded, whole numbers not; their sums are exact.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Sample
    sums : sequence of PointSums
        Of each sample.
    scale : int
        What h is multiplied by.
    combine : pair of callables, optional
        The statistics as a function of the averages of the parts, and its derivatives, shape (q, p).

    Raises
    ------
    UserError
        On every rank, if no pair counts, or sums are beyond the range of doubles.
    """
    of_parts = [_first(sums, part) for part in range(len(sums[0].h))]
    in_common = sums[0].pairs.ndim < 2  # the parts are over the same pairs
    added = [(k, sums[k].h[a]) for a, (k, _) in enumerate(of_parts)]
    for a, (k, _) in enumerate(of_parts[:1] if in_common else of_parts):
        pairs = sums[k].pairs if in_common else sums[k].pairs[a]
        added.append((k, np.broadcast_to(pairs, sums[k].h.shape[1:])))
    try:
        own = [weighted_total(samples[k].weights, each) for k, each in added]
    except ValueError:  # of sums that are not finite
        own = None
    everyone = comm.allgather(own)
    if any(each is None for each in everyone):
        raise UserError(BEYOND_DOUBLES)
    totals = [sum(of_ranks, Fraction()) for of_ranks in zip(*everyone, strict=True)]
    wins, counted = totals[: len(of_parts)], totals[len(of_parts) :]
    if not all(counted):
        raise UserError(
            "no pair of points counts: none is of two points of one stratum with positive weights; "
            "choose strata that have some"
        )
    means = np.array([float(each / (scale * pairs)) for each, pairs in zip(wins, cycle(counted), strict=False)])
    # A pair is counted at each of its points in the sample.
    omega = np.array([float(pairs / n) for pairs, (_, n) in zip(counted, of_parts, strict=False)])
    points = []
    for sample, told in zip(samples, sums, strict=True):
        psi = (told.h / scale - means[:, None] * told.pairs) / omega[:, None]
        points.append(psi if sample.weights is None else psi * sample.weights)
    if combine is None:
        return Influence(means, float(omega[-1]), points)
    value, gradient = combine[0](means), combine[1](means)
    return Influence(value, float(omega[-1]), [_times(gradient, psi) for psi in points], means=means)


def _first(sums: Sequence[PointSums], part: int) -> tuple[int, int]:
    """Return the first sample that has points of a part, and how many of it are in one of its tuples."""
    if sums[0].degrees is None:
        return 0, 2 if len(sums) == 1 else 1
    return next((k, degree) for k, told in enumerate(sums) if (degree := (told.degrees or ())[part]))


def _times(gradient: Floats, psi: Floats) -> Floats:
    """Return gradient @ psi, each number a sum in one order however many points there are."""
    found = np.zeros((len(gradient), psi.shape[1]))
    for row, out in zip(gradient, found, strict=True):
        for factor, part in zip(row, psi, strict=True):
            out += factor * part
    return found
