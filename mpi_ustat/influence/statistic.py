"""A complete statistic and the influence of every point on it, from what the points have learnt of their pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.influence.points import PointSums, Sample, weighted_total

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Influence:
    """A statistic of all pairs that count, and what each point has to do with it.

    Attributes
    ----------
    value : ndarray, shape (q,)
        θ of q statistics.
    total_weight : float
        Ω, the sum of ω_ij over the pairs that count.
    points : list of ndarray, shape (q, n)
        ψ of this rank's points of each sample.
    """

    value: Floats
    total_weight: float
    points: list[Floats]


def statistic(
    comm: Any,
    samples: Sequence[Sample],
    sums: Sequence[PointSums],
    scale: int = 1,
    combine: tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]] | None = None,
    both_ends: bool | None = None,
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
        If no pair counts.
    """
    first, weights = sums[0], samples[0].weights
    own = [weighted_total(weights, each) for each in (*first.h, np.broadcast_to(first.pairs, first.h.shape[1:]))]
    totals = [sum(of_ranks, Fraction()) for of_ranks in zip(*comm.allgather(own), strict=True)]
    *wins, pairs = totals
    if pairs == 0:
        raise UserError("no pair of points counts: none is of two points of one stratum with positive weights")
    means = np.array([float(each / (scale * pairs)) for each in wins])
    if len(samples) == 1:
        pairs /= 2  # each pair was counted at both of its points
    omega = float(pairs)
    points = []
    for sample, told in zip(samples, sums, strict=True):
        psi = (told.h / scale - means[:, None] * told.pairs) / omega
        points.append(psi if sample.weights is None else psi * sample.weights)
    if combine is None:
        return Influence(means, omega, points)
    value, gradient = combine[0](means), combine[1](means)
    return Influence(value, omega, [_times(gradient, psi) for psi in points])


def _times(gradient: Floats, psi: Floats) -> Floats:
    """Return gradient @ psi, each number a sum in one order however many points there are."""
    found = np.zeros((len(gradient), psi.shape[1]))
    for row, out in zip(gradient, found, strict=True):
        for factor, part in zip(row, psi, strict=True):
            out += factor * part
    return found
