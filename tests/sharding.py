"""How tests deal the rows of a sample to the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from mpi_ustat.schemes.partition import block_bounds

Rows = TypeVar("Rows", bound=Any)

SPREADS = ("even", "uneven", "apart")


def bounds_of(comm: Any, n_rows: int, spread: str = "even", which: int = 0) -> list[int]:
    """Return where the ranks' rows begin and end.

    `even` deals about equally many to each rank, `uneven` cuts at random (another way for each sample `which`), `apart`
    puts all rows of a sample on one rank, of each sample on another one.
    """
    if spread == "even":
        return block_bounds(n_rows, comm.size).tolist()
    if spread == "uneven":
        cuts = np.random.default_rng([n_rows, comm.size, which]).integers(0, n_rows + 1, comm.size - 1)
        return [0, *sorted(cuts.tolist()), n_rows]
    assert spread == "apart", spread
    owner = which % comm.size
    return [0 if rank <= owner else n_rows for rank in range(comm.size + 1)]


def shard(comm: Any, rows: Rows, spread: str = "even", which: int = 0) -> Rows:
    """Return this rank's rows of one sample."""
    bounds = bounds_of(comm, len(rows), spread, which)
    return rows[bounds[comm.rank] : bounds[comm.rank + 1]]


def shards(comm: Any, samples: Sequence[Rows], spread: str = "even") -> tuple[Rows, ...]:
    """Return this rank's rows of each sample."""
    return tuple(shard(comm, rows, spread, which) for which, rows in enumerate(samples))
