"""Sums over all points of a stratum, which every point of it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.influence.points import BEYOND_DOUBLES, Sample, grid_of, limbs_of
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.numerics.limbs import Extremes, Grid, exponents
from mpi_ustat.numerics.types import Floats, Ints

_BEYOND = Extremes(0, 1 << 20, False)


class Totals:
    """What the points of every stratum bring together.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Sample
    brought : sequence of ndarray of int64, shape (k, n)
        Of each sample, what its points bring as limbs.

    Attributes
    ----------
    bytes_sent : int
        Bytes that this rank has sent to others.
    """

    def __init__(self, comm: Any, samples: Sequence[Sample], brought: Sequence[Ints]) -> None:
        self._stretch: Stretch | None = None
        if samples[0].strata is None:
            self._sums = [add_integers(comm, each.sum(axis=1))[:, None] for each in brought]
        else:
            every = zip(samples, brought, strict=True)
            own = [Own(of.strata, np.zeros(len(of.rows)), each) for of, each in every]
            self._stretch = Stretch(samples[0].spread_over(comm), own)
            self._sums = self._stretch.sums

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank has sent to others."""
        return 0 if self._stretch is None else self._stretch.bytes_sent

    def at(self, k: int, of: int) -> Ints:
        """Return the sums over sample `of` at each own point of sample k, (·, n), or (·, 1).  Collective."""
        return self._sums[of] if self._stretch is None else self._stretch.home(k, self._sums[of])


def partners(comm: Any, samples: Sequence[Sample]) -> tuple[list[NDArray[Any]], int]:
    """Return the weights of the points that each point makes pairs with, (n,) or (1,), and the bytes sent.  Collective.

    They are of the other sample, or the others of its own if there is one.
    """
    grid = grid_of(comm, samples)
    limbs = [limbs_of(grid, sample) for sample in samples]
    totals = Totals(comm, samples, limbs)
    if len(samples) == 1:
        found = [grid.told(totals.at(0, 0) - limbs[0])]
    else:
        found = [grid.told(totals.at(k, 1 - k)) for k in (0, 1)]
    return found, totals.bytes_sent


def grid_of_terms(comm: Any, terms: Sequence[Floats]) -> Grid:
    """Return how terms of all ranks, each (n,), of which all may be added, are written as limbs.  Collective.

    Raises
    ------
    UserError
        On every rank, if any of them is no finite number.
    """
    own = [(exponents(each) if np.isfinite(each).all() else _BEYOND, len(each)) for each in terms]
    known = [each for of_rank in comm.allgather(own) for each in of_rank]
    if any(extremes == _BEYOND for extremes, _ in known):
        raise UserError(BEYOND_DOUBLES)
    return Grid.of([extremes for extremes, _ in known], sum(n for _, n in known))


def weighted(sample: Sample, values: Floats) -> Floats:
    """Return w_i v_i."""
    return values if sample.weights is None else values * sample.weights
