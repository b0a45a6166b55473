"""The complete statistic of a user's kernel of any degrees: all tuples, shared out among the ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mpi_ustat.parallel.collectives import gather_rows
from mpi_ustat.parallel.exchange import Exchange
from mpi_ustat.parallel.partition import block_bounds
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.parallel.runtime import agree
from mpi_ustat.statistics.exactsum import exact_sum
from mpi_ustat.statistics.kernel import Local, PairSum, n_tuples
from mpi_ustat.statistics.tuples import UserTuples


def tuples(
    comm: Any, samples: Sequence[Exchange], kernel: UserTuples, n_workers: int, streams: Streams
) -> tuple[Local, int]:
    """Return the sum of h over all tuples of the distributed samples, and the bytes that this rank sent.  Collective.

    Every rank gets all rows, which are few where Π C(n_k, d_k) evaluations are possible, and evaluates its share of the
    chunks of the tuples. The chunks' sums are added without rounding before the end, so that neither P nor N matters.
    There are no components.
    """
    blocks = [gather_rows(comm, sample.rows) for sample in samples]
    sizes = [len(block) for block in blocks]
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in samples)
    error: BaseException | None = None
    total = Fraction(0)
    try:
        bounds = block_bounds(kernel.n_chunks(sizes), comm.size)
        chunks = range(int(bounds[comm.rank]), int(bounds[comm.rank + 1]))
        total = exact_sum(np.fromiter(kernel.chunk_sums(blocks, chunks), dtype=np.float64))
    except BaseException as caught:
        error = caught
    everyone = agree(comm, error, total, doing=f"evaluating the kernel {kernel.name}")
    try:
        whole = float(sum(everyone, Fraction(0)))
    except OverflowError:  # refused by the caller
        whole = math.inf
    return Local((PairSum(whole, n_tuples(kernel.degrees, sizes)),), None), sent
