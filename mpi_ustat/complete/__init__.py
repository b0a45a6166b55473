"""Complete statistics of distributed samples: over all tuples, exactly, each kernel by the route that suits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.kernels.blocks import mean
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Whole
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams


@dataclass(frozen=True)
class Complete:
    """A complete statistic, the same on every rank.

    Attributes
    ----------
    local : Local
        The parts' sums over all tuples, and the Hoeffding components of the whole samples; no components where a
        sample is too small to have any.
    value : float or ndarray, shape (q,)
        U_n; of a kernel of several parts, what it combines their averages to.
    route : str
        How it was found.
    bytes_moved : int
        Bytes that went from one rank to another.
    variance : float or None
        An unbiased estimate of the variance of U_n, where the route has one instead of components.
    notes : tuple of str
        What is doubtful about the variance.
    first_order : tuple of float, or None
        σ_k² of the statistic, where the route has them instead of components.
    """

    local: Local
    value: float | NDArray[np.float64]
    route: str
    bytes_moved: int
    variance: float | None = None
    notes: tuple[str, ...] = ()
    first_order: tuple[float, ...] | None = None


def complete(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kernel,
    n_workers: int,
    streams: Streams,
    *,
    components: bool = True,
) -> Complete:
    """Return U_n, the average of h over all tuples of the distributed samples, and its components.  Collective.

    The routes, none of which lets the number of ranks touch the result:

    - ``ranges`` (AUC, Gini): every value moves once, to the one of N score ranges that it lies in; pairs within a range
      are counted there, pairs across ranges follow from the ranges' sizes. O(n log n / P).
    - ``minority`` (AUC of a rare class, or of several columns): the smaller sample goes to every rank, which counts
      its own rows of the larger one against it.
    - ``sums`` (product): U_n is the product of the means, whose sums are formed without rounding.
    - ``ring`` (any other kernel of pairs): blocks of points go round the workers until every pair has met.
    - ``energy``, ``gini`` and ``variance`` (of one sample), ``kendall``, ``tuples``, ``vus``: see their modules.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Exchange
        None of them empty.
    kernel : Kernel
    n_workers : int
        Ranges, or blocks of the samples. Counts and exact sums do not depend on it; floating sums do, in the last
        bits: see `fixed_blocks`.
    streams : Streams
        Chooses the values that bound the ranges, which affects only the balance of work and, of floating sums, the last
        bits.
    components : bool
        Whether the components are wanted. Some routes find them anyway.
    """
    route = kernel.route([sample.n_rows for sample in samples])
    found: Whole = route.load()(comm, samples, kernel, n_workers, streams, components=components)
    means = [_mean(part, kernel.scale) for part in found.local.sums]
    combined = np.array(means) if len(means) == 1 else kernel.combine(np.array(means))
    value = float(combined[0]) if len(combined) == 1 else combined
    whole = Complete(found.local, value, route.name, sum(comm.allgather(found.bytes_sent)))
    own = found.own_variance
    if own is None:
        return whole
    return replace(whole, variance=own.total, notes=own.notes, first_order=own.of_points)


def fixed_blocks(kernel: Kernel, sizes: Sequence[int]) -> int | None:
    """Return into how many ranges or blocks the samples are cut where nobody says it: never by the number of ranks.

    None: it changes no bit.
    """
    n_blocks = kernel.route(sizes).n_blocks
    return None if n_blocks is None else n_blocks(sizes)


def _mean(part: PairSum, scale: int) -> float:
    try:
        return float(mean(part, scale))
    except OverflowError:  # of an exact rational sum
        return math.inf
