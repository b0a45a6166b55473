"""What a statistic takes from all points before it is evaluated: units of coordinates, a bandwidth, an origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.inference.pilots import pooled_rows
from mpi_ustat.kernels.kernel import Kernel, Points, as_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.checked import centre, check_kernel, ends
from mpi_ustat.points.preparation import column_scales


@dataclass(frozen=True)
class PointsOfAll:
    """What a kernel can learn of the points: the `Data` of `Kernel.fitted`.  All methods are collective."""

    comm: Any
    samples: Sequence[Exchange]
    streams: Streams
    replicate: int = 0

    def ends(self) -> tuple[Floats, Floats]:
        """Return the lowest and the highest value of each coordinate."""
        return ends(self.comm, self.samples)

    def some(self, most: int) -> Points:
        """Return up to so many random points, of all samples together."""
        stream = self.streams.open("points to fit", replicate=self.replicate)
        return np.concatenate(pooled_rows(self.comm, self.samples, stream, most=most))


class Fitted(NamedTuple):
    """A kernel that has learnt what it wants of the points, these as it takes them, and what was learnt, by name."""

    kernel: Kernel
    samples: tuple[Exchange, ...]
    learnt: dict[str, Any]


def fit(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    streams: Streams,
    n_workers: int,
    *,
    replicate: int = 0,
    columns: Sequence[str] = (),
) -> Fitted:
    """Scale the points, fit the kernel to them, check both, and put the origin near.  Collective.

    Parameters
    ----------
    samples : sequence of Exchange
        As given.
    n_workers : int
        N.
    columns : sequence of str
        Names of the coordinates, for messages; empty: their numbers.

    Raises
    ------
    UserError
        On every rank, the same for every number of ranks.
    """
    learnt: dict[str, Any] = {}

    def changed(samples: Sequence[Exchange], shift: Floats | float, scale: Floats | float) -> tuple[Exchange, ...]:
        rows = [((as_rows(each.rows) - shift) / scale).reshape(each.rows.shape) for each in samples]
        return tuple(Exchange(comm, each, n_workers) for each in rows)

    if kernel.standardize != "none":
        scales = column_scales(comm, tuple(as_rows(each.rows) for each in samples), kernel.standardize, columns)
        samples = changed(samples, 0.0, scales)
        learnt["scales"] = scales.tolist()
    kernel = kernel.fitted(PointsOfAll(comm, samples, streams, replicate))
    check_kernel(comm, samples, kernel)
    if kernel.wants_centre and (origin := centre(comm, samples)) is not None:
        samples = changed(samples, origin, 1.0)
    return Fitted(kernel, tuple(samples), learnt | dict(kernel.learnt))
