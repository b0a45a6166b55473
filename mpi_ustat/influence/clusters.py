"""The covariance of statistics from the influence of points, which may lie in clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.influence.keyed import aligned, sums_by_key, union
from mpi_ustat.influence.points import BEYOND_DOUBLES, Sample
from mpi_ustat.mpi.collectives import add_exactly, add_integers
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.types import Floats

_LEAST, _MOST = 2.0**-500, 2.0**480
"""Influence whose largest value lies between these has squares, and sums of them, that doubles hold."""


@dataclass(frozen=True)
class Spread:
    """How the influence of clusters (of points, where there are none) spreads.

    Attributes
    ----------
    jackknife : ndarray, shape (q, q)
        Σ_c Ψ_c Ψ_cᵀ with Ψ_c = Σ_{i∈c} ψ_i, the infinitesimal jackknife's covariance.
    covariance : ndarray, shape (q, q)
        The same with the factors of a small number of clusters: C_x/(C_x - 1) for the parts of sample x, and so on, and
        C/(C - 1) for products of parts of two samples (Obuchowski 1997); NaN for one cluster. Without clusters and
        weights this is DeLong's; within strata that have no clusters it is counted from the means of each stratum's
        samples, with n_s/(n_s - 1), as for any stratified sample (from 0 where n_s is 1): the jackknife counts a pair's
        own variance once too often, by some 8 % with 20 points of a kind in each stratum.
    n_clusters : tuple of int
        Clusters that have a point of each sample.
    n_in_all : int
        Clusters that have any point.
    errors : ndarray, shape (q,), or None
        Relative standard errors of the jackknife's variances, √(Σ_k [Σ_c Ψ_c⁴ - (Σ_c Ψ_c²)²/C_k])/Σ_c Ψ_c², as that of
        `mpi_ustat.inference.doubts.Tails`, k the samples, or with clusters all together; where they were asked for.
    """

    jackknife: Floats
    covariance: Floats
    n_clusters: tuple[int, ...]
    n_in_all: int
    errors: Floats | None = None


def spread(comm: Any, samples: Sequence[Sample], influence: Sequence[Floats], *, errors: bool = False) -> Spread:
    """Return the covariance of q statistics; points of weight 0 are in no cluster.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Sample
    influence : sequence of ndarray, shape (q, n)
        ψ of this rank's points of each sample.
    errors : bool
        Whether to tell those of the variances, too.

    Raises
    ------
    UserError
        On every rank, if squares of influence leave the range of doubles.
    """
    q, k = len(influence[0]), len(samples)
    if samples[0].clusters is None:
        parts, present = [*influence], [_counted(sample) for sample in samples]
        counts = [int(np.count_nonzero(each)) for each in present]
        counts.append(sum(counts))
        crossed = [(i, i) for i in range(k)]
    else:
        parts, counts = _by_cluster(comm, samples, influence)
        crossed = [(i, j) for i in range(k) for j in range(i, k)]
    largest = float(np.max(comm.allgather([float(np.abs(each).max(initial=0.0)) for each in parts])))
    if not (largest == 0.0 or _LEAST <= largest <= _MOST):  # NaN too
        raise UserError(BEYOND_DOUBLES)
    own = [exact_sum(a * b) for i, j in crossed for a in parts[i] for b in parts[j]]
    sums = np.array([float(each) for each in add_exactly(comm, own)]).reshape(len(crossed), q, q)
    *n_clusters, n_in_all = add_integers(comm, np.array(counts)).tolist()
    jackknife, covariance = np.zeros((q, q)), np.zeros((q, q))
    for (i, j), of_two in zip(crossed, sums, strict=True):
        both = of_two if i == j else of_two + of_two.T
        n = n_clusters[i] if i == j else n_in_all
        jackknife += both
        covariance += both * (n / (n - 1) if n > 1 else np.nan)
    if samples[0].clusters is None and samples[0].strata is not None:
        within = [_within_strata(comm, sample, psi) for sample, psi in zip(samples, influence, strict=True)]
        covariance = np.sum(within, axis=0)
    of_variances = None
    if errors:
        alone = samples[0].clusters is None
        units = parts if alone else [np.sum(parts, axis=0)]
        of_variances = _errors(comm, units, n_clusters if alone else [n_in_all], math.frexp(largest)[1])
    return Spread(jackknife, covariance, tuple(n_clusters), n_in_all, of_variances)


def _errors(comm: Any, units: Sequence[Floats], counts: Sequence[int], exponent: int) -> Floats:
    """Return `Spread.errors` of units that are independent, in powers of units of 2^exponent.  Collective."""
    squares = [np.ldexp(each, -exponent) ** 2 for of_units in units for each in of_units]
    found = add_exactly(comm, [exact_sum(each**power) for power in (1, 2) for each in squares])
    second, fourth = np.array([float(each) for each in found]).reshape(2, len(units), -1)
    spread = np.maximum(fourth - second**2 / np.maximum(np.array(counts)[:, None], 1), 0.0).sum(axis=0)
    total = second.sum(axis=0)
    return np.sqrt(spread) / np.where(total > 0.0, total, np.inf)


def _counted(sample: Sample) -> NDArray[np.bool_]:
    return np.ones(len(sample.rows), dtype=bool) if sample.weights is None else sample.weights > 0.0


def _within_strata(comm: Any, sample: Sample, psi: Floats) -> Floats:
    """Return Σ_s n_s/(n_s - 1) Σ_{i∈s} (ψ_i - ψ̄_s)(ψ_i - ψ̄_s)ᵀ, (q, q).  Collective."""
    there, q = _counted(sample), len(psi)
    assert sample.strata is not None
    own = psi[:, there]
    products = [a * b for a in own for b in own]
    _, sums = sums_by_key(comm, sample.strata[there], [*products, *own, np.ones(own.shape[1])])
    squares, totals, n = sums[: q * q].reshape(q, q, -1), sums[q * q : -1], sums[-1]
    centred = squares - totals[:, None] * totals / n
    of_strata = np.where(n > 1.0, centred * (n / np.maximum(n - 1.0, 1.0)), squares).reshape(q * q, -1)
    return np.array([float(each) for each in add_exactly(comm, [exact_sum(each) for each in of_strata])]).reshape(q, q)


def _by_cluster(comm: Any, samples: Sequence[Sample], influence: Sequence[Floats]) -> tuple[list[Floats], list[int]]:
    """Return, for the clusters that come here, the sums of each sample's points, (q, C), and how many there are.

    A cluster's points are added as whole numbers, so that sums don't depend on the ranks.
    """
    found = []
    for sample, psi in zip(samples, influence, strict=True):
        there = _counted(sample)
        assert sample.clusters is not None
        found.append(sums_by_key(comm, sample.clusters[there], psi[:, there], exact=False))
    every = union(found)
    return [*aligned(every, found)], [*(len(keys) for keys, _ in found), len(every)]
