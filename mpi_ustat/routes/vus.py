"""The complete volume under the ROC surface of distributed scores, by a sample sort: every score moves at most once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from mpi_ustat.parallel.exchange import Exchange
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.routes.sorting import exchange_runs, splitters
from mpi_ustat.statistics.kernel import Local, PairSum
from mpi_ustat.statistics.vus import (
    VUS,
    Tally,
    chained,
    class_counts,
    look_around,
    margin_sums,
    side_sums,
    transfer_matrix,
)


def vus(comm: Any, samples: Sequence[Exchange], kernel: VUS, n_workers: int, streams: Streams) -> tuple[Local, int]:
    """Return the sum of h over all tuples and, for K = 2 and 3, its Hoeffding components.  Collective.

    The scores are cut into one range for each rank, with all copies of a score in one range, and every rank receives
    those of its range. What lies in other ranges touches a range's sums through a few whole numbers only: the sizes of
    the classes and the side sums of `margin_sums`, or the transfer matrices of `transfer_matrix`. All is exact, so
    where the ranges lie, and how many there are, changes no bit. O(n log n / P) each, one exchange.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Exchange, length K
        The scores of the classes, the lowest class first.
    kernel : VUS
    n_workers : int
        Of no account.
    streams : Streams
        Choose the scores that bound the ranges, which affects only the balance of work.

    Returns
    -------
    local : Local
        Of the whole samples.
    n_bytes : int
        What this rank sent to others.
    """
    sizes = [sample.n_rows for sample in samples]
    runs, sent = exchange_runs(comm, samples, splitters(comm, samples, comm.size, streams))
    classes = [Tally(each.values, each.cumulative) for each in runs]
    if kernel.n_classes > 3:
        matrices = comm.allgather(transfer_matrix(class_counts(classes), shared=kernel.shared))
        whole = functools.reduce(functools.partial(chained, shared=kernel.shared), matrices)
        return Local((PairSum(whole[0][-1], math.prod(sizes)),), None), sent
    here = comm.allgather([each.size for each in classes])
    below = sum(of_rank[0] for of_rank in here[: comm.rank])
    above = sum(of_rank[2] for of_rank in here[comm.rank + 1 :]) if kernel.n_classes == 3 else 0
    around = look_around(classes, kernel.credits).within(below, above)
    sides = comm.allgather(side_sums(around, kernel.credits, sizes))
    before = sum(left for left, _ in sides[: comm.rank])
    after = sum(right for _, right in sides[comm.rank + 1 :])
    shares = comm.allgather(margin_sums(around, kernel.credits, sizes, before=before, after=after))
    return kernel.local_of_margins({s: sum(share[s] for share in shares) for s in shares[0]}, sizes), sent
