"""The complete statistic of a user's kernel of any degrees: all tuples, shared out among the ranks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Points, Whole, n_tuples
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.limits import refuse_beyond_a_month
from mpi_ustat.mpi.runtime import Course, in_portions, together
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.rng import Streams

_PORTION = 64  # chunks that a rank evaluates before it waits for the others: a million tuples or so


def tuples(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the sum of h over all tuples of the distributed samples.  Collective.

    Every rank gets all rows, which are few where Π C(n_k, d_k) evaluations are possible, and evaluates its share of the
    chunks of the tuples, in portions. The chunks' sums are added without rounding before the end, so that neither P nor
    N matters. There are no components.
    """
    blocks = [gather_rows(comm, sample.rows) for sample in samples]
    sizes = [len(block) for block in blocks]
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in samples)

    def total(chunks: range) -> Fraction:
        return exact_sum(np.fromiter(kernel.chunk_sums(blocks, course.announced(chunks)), dtype=np.float64))

    n_chunks = kernel.n_chunks(sizes)
    refuse_endless(comm, kernel, blocks, -(-n_chunks // comm.size))
    portions = _portions(n_chunks, comm.size, comm.rank)
    first, after = _share(n_chunks, comm.size, comm.rank)
    course = Course("chunks of tuples done", after - first)
    found = in_portions(comm, portions, total, doing=f"evaluating the kernel {kernel.name}")
    exact = sum((each for of_ranks in found for each in of_ranks), Fraction(0))
    try:
        whole = float(exact)
    except OverflowError:  # refused by the caller
        whole = math.inf
    return Whole(Local((PairSum(whole, n_tuples(kernel.degrees, sizes)),), None), sent)


def refuse_endless(comm: Any, kernel: Kernel, blocks: Sequence[Points], n_chunks: int) -> None:
    """Refuse more chunks of tuples than anybody waits for, to judge by the first one of these blocks.  Collective."""
    seconds = 0.0
    with together(comm, f"evaluating the kernel {kernel.name}"):
        count = n_tuples(kernel.degrees, [len(block) for block in blocks])
        if n_chunks > _PORTION and 0 < count < 2**63:
            began = time.perf_counter()
            next(iter(kernel.chunk_sums(blocks, [0])))
            seconds = (time.perf_counter() - began) * n_chunks
    what = f"{n_chunks * kernel.chunk:.2g} tuples on a rank"
    refuse_beyond_a_month(comm, seconds, what, "sample some of them (n_pairs=), take fewer points, or more ranks")


def _n_portions(n_chunks: int, n_ranks: int) -> int:
    # Python's integers: there may be more chunks than an array has room for, which the first one then refuses.
    return max(1, -(-n_chunks // (n_ranks * _PORTION)))


def _share(n_chunks: int, n_ranks: int, rank: int) -> tuple[int, int]:
    """Return a rank's first chunk, and the one after its last."""
    return n_chunks * rank // n_ranks, n_chunks * (rank + 1) // n_ranks


def _portions(n_chunks: int, n_ranks: int, rank: int) -> Iterator[range]:
    """Yield a rank's portions of the chunks; all ranks have as many."""
    first, after = _share(n_chunks, n_ranks, rank)
    n_portions = _n_portions(n_chunks, n_ranks)
    for i in range(n_portions):
        yield range(*(first + (after - first) * j // n_portions for j in (i, i + 1)))
