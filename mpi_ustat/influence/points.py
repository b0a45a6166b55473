"""What is known of this rank's points: weights as limbs, groups as whole numbers, and what each learns of its pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.limbs import ONES, Grid, exponents
from mpi_ustat.numerics.types import Floats, Ints

BEYOND_DOUBLES = "sums over the points leave the range of doubles: rescale the points, or their weights"


@dataclass(frozen=True)
class Sample:
    """Points of one sample on one rank, and what is said about them.

    Attributes
    ----------
    rows : ndarray, shape (n,) or (n, d)
    weights : ndarray, shape (n,), or None
        Finite and not negative; None: each point counts once.
    strata : ndarray of int64, shape (n,), or None
        Only pairs of one stratum count.
    clusters : ndarray of int64, shape (n,), or None
        Points of one cluster may depend on each other.
    together : bool
        Whether all points of a stratum, of all samples, are on one rank.
    """

    rows: NDArray[Any]
    weights: Floats | None = None
    strata: Ints | None = None
    clusters: Ints | None = None
    together: bool = False

    def spread_over(self, comm: Any) -> Any:
        """Return the communicator of the ranks that the points of one stratum may lie on."""
        return SerialComm() if self.together else comm

    @property
    def weights_or_ones(self) -> Floats:
        """The weights, or as many ones."""
        return np.ones(len(self.rows)) if self.weights is None else self.weights


@dataclass(frozen=True)
class PointSums:
    """What the points of one sample learn of the pairs that they are in.

    Attributes
    ----------
    h : ndarray, shape (q, n)
        `scale` times Σ_j w_j h_ij, of q statistics or parts; whole numbers where nothing is weighted, or by counts.
        Of pairs that have weights ω_ij of their own, Σ_j (ω_ij / w_i) h_ij.
    pairs : ndarray, shape (n,), (1,) or ()
        Σ_j w_j; of tuples of K points, the sum of the products of the others' weights. Of shape (q, n) where each of
        the q statistics is over pairs of its own.
    degrees : tuple of int, optional
        How many points of this sample are in a tuple of each of the q; None: in all of them 2 if there is one sample,
        or 1 of each.
    """

    h: NDArray[Any]
    pairs: NDArray[Any]
    degrees: tuple[int, ...] | None = None


def grid_of(comm: Any, samples: Sequence[Sample]) -> Grid:
    """Return how the weights of all ranks are written as limbs.  Collective."""
    own = [exponents(sample.weights) if sample.weights is not None else ONES for sample in samples]
    everyone = comm.allgather((own, sum(len(sample.rows) for sample in samples)))
    return Grid.of([each for of_rank, _ in everyone for each in of_rank], sum(n for _, n in everyone))


def limbs_of(grid: Grid, sample: Sample) -> Ints:
    """Return the weights of a sample as limbs, (n_limbs, n)."""
    if sample.weights is not None:
        return grid.limbs(sample.weights)
    n = len(sample.rows)
    return np.broadcast_to(np.int64(1), (1, n)) if grid.counts else grid.limbs(np.ones(n))


def total_weight(comm: Any, limbs: Ints) -> Ints:
    """Return the sum of limbs over the points of all ranks, (n_limbs,).  Collective."""
    return add_integers(comm, limbs.sum(axis=1))


def weighted_total(weights: Floats | None, values: NDArray[Any]) -> Fraction:
    """Return Σ w_i v_i over this rank's points: of doubles only each product is rounded, of integers nothing."""
    if values.dtype.kind == "i" and (weights is None or np.array_equal(weights, np.rint(weights))):
        whole = values if weights is None else _products(weights, values)
        if whole is not None:
            return Fraction(_sum_integers(whole))
    return exact_sum(values.astype(np.float64) if weights is None else weights * values)


def _products(weights: Floats, values: Ints) -> Ints | None:
    largest = int(weights.max(initial=0.0)) * int(np.abs(values).max(initial=0))
    return weights.astype(np.int64) * values if largest < 2**62 else None


def _sum_integers(values: Ints) -> int:
    """Return the exact sum of integers below 2^62 in size."""
    low = values & ((1 << 31) - 1)
    return (int((values >> 31).sum()) << 31) + int(low.sum())
