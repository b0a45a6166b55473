"""Complete statistics of distributed samples: over all tuples, exactly, each kernel by the route that suits it."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.blocks import mean
from mpi_ustat.kernels.discrepancy import ALIKE, LIKE_EQUAL, Discrepancy
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams

_ROUTES = {
    "energy": "energy.energy",
    "gini": "one_sample.gini",
    "kendall": "kendall.kendall",
    "ranges": "gini.gini",
    "ring": "ring.ring",
    "sums": "sums.sums",
    "tuples": "tuples.tuples",
    "variance": "one_sample.variance",
    "vus": "vus.vus",
}
"""Module and function of each route, but the AUC's: ``function(comm, samples, kernel, n_workers, streams)`` returns a
`Local` and the bytes that this rank sent. They are imported when they are called for."""

_COMPONENTS_COST = {"ranges", "ring", "sums", "vus"}
"""Routes that take less time without components, as does the AUC of several columns; their functions have a keyword
for it."""

_ROUNDED = {"gini", "ranges", "ring", "sums"}
"""Routes of which floating sums depend on the number of ranges or blocks in their last bits; the AUC adds integers."""

_ROWS_PER_BLOCK = 1 << 14
_MOST_BLOCKS = 1 << 12


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
    route, variance = kernel.complete_route, None
    notes: tuple[str, ...] = ()
    first_order: tuple[float, ...] | None = None
    if isinstance(kernel, AUC):
        from mpi_ustat.complete.auc import choose

        route = choose(kernel, *(sample.n_rows for sample in samples))
    if isinstance(kernel, Discrepancy) and components:
        from mpi_ustat.complete.energy import energy_with_variance

        sums, found, sent = energy_with_variance(comm, samples, kernel, n_workers, streams)
        local = Local(sums, None)
        if found is not None:
            variance, first_order = found.total, found.of_points
            if found.first_order <= LIKE_EQUAL * found.second_order:
                notes = (ALIKE,)
    else:
        local, sent = _function(kernel, route, components)(comm, samples, kernel, n_workers, streams)
    means = [_mean(part, kernel.scale) for part in local.sums]
    combined = np.array(means) if len(means) == 1 else kernel.combine(np.array(means))
    value = float(combined[0]) if len(combined) == 1 else combined
    return Complete(local, value, route, sum(comm.allgather(sent)), variance, notes, first_order)


def fixed_blocks(kernel: Kernel, sizes: Sequence[int]) -> int | None:
    """Return into how many ranges or blocks the samples are cut where nobody says it: never by the number of ranks.

    None: it changes no bit. Sorting takes ranges of many rows. In the ring N blocks meet N others, so that their side
    grows with their number: neither the calls of a kernel nor what one takes get too many or too long. Twelve shares
    evenly among few ranks.
    """
    if isinstance(kernel, AUC) or kernel.complete_route not in _ROUNDED:
        return None
    if kernel.complete_route != "ring":
        return min(max(sum(sizes) // _ROWS_PER_BLOCK, 1), _MOST_BLOCKS)
    wanted = min(max(math.isqrt(min(sizes)) // 3, 1), _MOST_BLOCKS)
    return wanted if wanted < 12 else wanted - wanted % 12


def _function(kernel: Kernel, route: str, components: bool) -> Callable[..., tuple[Local, int]]:
    module, name = ("auc", route) if isinstance(kernel, AUC) else _ROUTES[route].split(".")
    function: Callable[..., tuple[Local, int]] = getattr(importlib.import_module(f"mpi_ustat.complete.{module}"), name)
    if components or (kernel.n_parts == 1 if isinstance(kernel, AUC) else route not in _COMPONENTS_COST):
        return function
    return functools.partial(function, components=False)


def _mean(part: PairSum, scale: int) -> float:
    try:
        return float(mean(part, scale))
    except OverflowError:  # of an exact rational sum
        return math.inf
