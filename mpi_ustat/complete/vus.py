"""The complete volume under the ROC surface of distributed scores, by a sample sort: every score moves at most once."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.complete.sorting import exchange_runs, splitters
from mpi_ustat.kernels.chain_pairs import ChainPairs
from mpi_ustat.kernels.chains import chained, class_counts, transfer_matrix
from mpi_ustat.kernels.kernel import Local, PairSum, Whole
from mpi_ustat.kernels.middle_class import look_around, margin_sums, side_sums
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams

_STRETCH = 1 << 16  # scores whose counts are sent at a time


def vus(
    comm: Any, samples: Sequence[Exchange], kernel: VUS, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the sum of h over all tuples and its Hoeffding components.  Collective.

    The scores are cut into one range for each rank, with all copies of a score in one range, and every rank receives
    those of its range. What lies in other ranges touches a range's sums through a few whole numbers only: the sizes of
    the classes and the side sums of `margin_sums`, or the transfer matrices of `transfer_matrix`. All is exact, so
    where the ranges lie, and how many there are, changes no bit. O(n log n / P) each, one exchange.

    The margins of K ≥ 4 classes have to be followed through all scores in order, so that not these but the sets of
    classes are shared out (`ChainPairs`): every range's counts go to all ranks, K bytes a score as a rule, and no rank
    holds more than a stretch of them.
    """
    sizes = [sample.n_rows for sample in samples]
    classes, sent = exchange_runs(comm, samples, splitters(comm, samples, comm.size, streams))
    if kernel.n_classes > 3:
        counts = class_counts(classes)
        if components and kernel.finds_components(sizes):
            squares, n_bytes = _squares(comm, counts, kernel)
            return Whole(kernel.local_of_pairs(squares, sizes), sent + n_bytes)
        matrices = comm.allgather(transfer_matrix(counts, shared=kernel.shared))
        whole = functools.reduce(functools.partial(chained, shared=kernel.shared), matrices)
        return Whole(Local((PairSum(whole[0][-1], math.prod(sizes)),), None), sent)
    here = comm.allgather([each.n_points for each in classes])
    below = sum(of_rank[0] for of_rank in here[: comm.rank])
    above = sum(of_rank[2] for of_rank in here[comm.rank + 1 :]) if kernel.n_classes == 3 else 0
    around = look_around(classes, kernel.credits).within(below, above)
    sides = comm.allgather(side_sums(around, kernel.credits, sizes))
    before = sum(left for left, _ in sides[: comm.rank])
    after = sum(right for _, right in sides[comm.rank + 1 :])
    shares = comm.allgather(margin_sums(around, kernel.credits, sizes, before=before, after=after))
    return Whole(kernel.local_of_margins({s: sum(share[s] for share in shares) for s in shares[0]}, sizes), sent)


def _squares(comm: Any, counts: NDArray[np.int64], kernel: VUS) -> tuple[dict[tuple[int, ...], int], int]:
    """Return the sums of squares of all margins, and the bytes sent, from the counts in every rank's range."""
    pairs, sent = ChainPairs(kernel.n_classes, shared=kernel.shared, part=comm.rank, n_parts=comm.size), 0
    for owner, n_scores in enumerate(comm.allgather(counts.shape[1])):
        for start in range(0, n_scores, _STRETCH):
            stretch = None
            if comm.rank == owner:
                stretch = counts[:, start : start + _STRETCH]
                stretch = stretch.astype(np.min_scalar_type(stretch.max()))
                sent += stretch.nbytes * (comm.size - 1)
            pairs.walk(comm.bcast(stretch, root=owner))
    return {s: square for share in comm.allgather(pairs.sums_of_squares()) for s, square in share.items()}, sent
