"""How the sum of a kernel over all tuples of distributed samples is found: what a kernel registers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_ROWS_PER_BLOCK = 1 << 14
_MOST_BLOCKS = 1 << 12


def ranges_of_rows(sizes: Sequence[int]) -> int:
    """Return into how many ranges samples are sorted where nobody says it: each has many rows."""
    return min(max(sum(sizes) // _ROWS_PER_BLOCK, 1), _MOST_BLOCKS)


def blocks_of_a_ring(sizes: Sequence[int]) -> int:
    """Return into how many blocks samples are cut for the ring where nobody says it.

    N blocks meet N others, so that their side grows with their number: neither the calls of a kernel nor what one takes
    get too many or too long. Twelve shares evenly among few ranks.
    """
    wanted = min(max(math.isqrt(min(sizes)) // 3, 1), _MOST_BLOCKS)
    return wanted if wanted < 12 else wanted - wanted % 12


@dataclass(frozen=True)
class Route:
    """A way to a complete statistic.

    Attributes
    ----------
    name : str
        What results call it.
    function : str or callable
        ``function(comm, samples, kernel, n_workers, streams, components=…)``, collective, returns a `kernel.Whole`; or
        the place of one, as ``module:function``, which is imported when it is called for. It gets an `Exchange` of each
        sample; N, into how many ranges or blocks they are cut, and streams, which may change how work is balanced and
        last bits of floating sums, never more; and whether components are wanted, which it may find anyway.
    n_blocks : callable, optional
        Into how many ranges or blocks samples of these sizes are cut where nobody says it, for floating sums that
        depend on it in their last bits; None: it changes no bit.
    by_tuples : bool
        Whether every tuple is looked at, which nobody wants to do twice.
    """

    name: str
    function: str | Callable[..., Any]
    n_blocks: Callable[[Sequence[int]], int] | None = None
    by_tuples: bool = False

    def load(self) -> Callable[..., Any]:
        """Return the function."""
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found


RING = Route("ring", "mpi_ustat.complete.ring:ring", blocks_of_a_ring, by_tuples=True)
"""Of any kernel of pairs: blocks of points go round the workers until every pair has met."""
