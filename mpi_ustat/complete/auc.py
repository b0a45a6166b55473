"""The complete AUC of distributed scores, with its components, from integer counts: no pair is looked at.

Whatever the route, both samples' margins follow from how many of one sample lie below, and how many at, each distinct
score of the other. These are whole numbers and are added as such, so nothing depends on the ranks, on the ranges, or on
the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.complete.sorting import exchange_runs, splitters
from mpi_ustat.inference.pilots import pilot
from mpi_ustat.kernels.auc import AUC, FEW_PAIRS
from mpi_ustat.kernels.auc_columns import columns_components, joint_wins, sampled_components
from mpi_ustat.kernels.auc_margins import Margins, auc_local, auc_margins, margins_of_counts
from mpi_ustat.kernels.kernel import Local, PairSum, Whole
from mpi_ustat.mpi.collectives import add_integers, gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import announced
from mpi_ustat.numerics.exactsum import Integers as Counts
from mpi_ustat.numerics.exactsum import exact_dot, products
from mpi_ustat.numerics.lookup import below_and_at
from mpi_ustat.numerics.orders import in_order, twice_middle_places
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats, Ints

_CHUNK = 1 << 20  # scores sorted at a time: 8 MiB


def ranges(
    comm: Any, samples: Sequence[Exchange], kernel: AUC, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the AUC's total and components, every score having gone to the rank of its range.  Collective.

    Pairs whose x and z are on different ranks are known by the ranks: each x beats all z of lower ones. With that
    (`Margins.of_stretch`) the ranks' counts add up to those of the whole samples.

    Returns
    -------
    Whole
        Twice the wins, plus the ties if they count, over all pairs; components of shape (3, 1, 1), or None if a sample
        has a single score.
    """
    (x, z), sent = exchange_runs(comm, samples, splitters(comm, samples, n_workers, streams))
    sizes = comm.allgather((x.n_points, z.n_points))
    z_below = sum(size[1] for size in sizes[: comm.rank])
    x_above = sum(size[0] for size in sizes[comm.rank + 1 :])
    half = kernel.ties == "half"
    if x.counts is None and z.counts is None:
        own = auc_margins(x.values, z.values, half)
    else:
        x = x.distinct()
        below, at = z.below_and_at(x.values)
        own = margins_of_counts(x.counts, below, at, z.n_points, half)
    own = own.of_stretch(x.n_points, z.n_points, half, z_below=z_below, x_above=x_above)
    whole = Margins(*(sum(counts) for counts in zip(*comm.allgather(tuple(own)), strict=True)))
    return Whole(auc_local(whole, samples[0].n_rows, samples[1].n_rows, half), sent)


def minority(
    comm: Any, samples: Sequence[Exchange], kernel: AUC, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return the AUC's total and components, the smaller sample having gone to every rank.  Collective.

    Each rank sorts its rows of the larger sample, in pieces that fit a cache, and looks the smaller sample's scores up
    in them. The larger sample's rows never move. With several columns of scores each has its own total, and the
    components are covariances between the columns, shape (3, q, q): see `_columns`.

    Returns
    -------
    Whole
        As of `ranges`.
    """
    swapped = samples[0].n_rows > samples[1].n_rows
    few, many = samples[::-1] if swapped else samples
    # -z beats -x exactly where x beats z: with signs changed, the smaller sample is the first.
    sign = -1.0 if swapped else 1.0
    whole = sign * gather_rows(comm, few.rows)
    if kernel.n_coordinates == 1:
        local, n_counts = _one_column(comm, whole, sign, many, kernel.ties == "half")
    else:
        many_pairs = math.prod(sample.n_rows for sample in samples) > FEW_PAIRS
        second = pilot(comm, samples, kernel, Streams(0)).components if components and many_pairs else None
        local, n_counts = _columns(comm, whole, sign, many, kernel.ties == "half", components, second)
    if swapped and local.components is not None:
        local = local._replace(components=local.components[[1, 0, 2]])
    return Whole(local, (few.rows.nbytes + 8 * n_counts) * (comm.size - 1))


# ---------------------------------------------------------------------------------------------------------------------
# One column


def _one_column(comm: Any, x: Floats, sign: float, many: Exchange, half: bool) -> tuple[Local, int]:
    """Return the AUC of the whole sample x against z = sign · the distributed one, and the counts each rank sends."""
    x.sort()
    runs, m = Runs(x).distinct(), many.n_rows
    counts = add_integers(comm, _count(runs.values, sign, many.rows))
    return auc_local(margins_of_counts(runs.counts, counts[0], counts[1], m, half), len(x), m, half), counts.size


def _count(values: Floats, sign: float, rows: Floats) -> Ints:
    """Return how many of sign · rows lie below, and how many at, each of some ascending values; shape (2, r)."""
    below, ties = counts = np.zeros((2, len(values)), dtype=np.int64)
    size = max(_CHUNK, 16 * len(values))
    memory = np.empty(min(size, len(rows)))
    for start in announced(range(0, len(rows), size)):
        chunk = rows[start : start + size]
        chunk = np.multiply(chunk, sign, out=memory[: len(chunk)])
        chunk.sort()
        of_chunk, at = below_and_at(chunk, values)
        below += of_chunk
        if at is not None:
            ties += at
    return counts


# ---------------------------------------------------------------------------------------------------------------------
# Several columns


class _Column(NamedTuple):
    """One column of scores, x of all ranks and z of this one.

    Attributes
    ----------
    row_sums, column_sums : ndarray of int64
        R of all x and C of these z.
    wins, ties : int
        Of all pairs.
    n_codes : int
        Numbers that each rank sent.
    """

    row_sums: Ints
    column_sums: Ints
    wins: int
    ties: int
    n_codes: int


def _columns(
    comm: Any, x: Floats, sign: float, many: Exchange, half: bool, components: bool, second: Floats | None
) -> tuple[Local, int]:
    """Return the AUCs of q columns of the whole sample x against z = sign · the distributed one, and what is sent.

    Covariances are made of counts of every two columns (`kernels.auc_columns`), to which each rank's z contribute; of
    many pairs with the second-order component of a pilot, as in `complete.auc_columns`.
    """
    n, m = len(x), many.n_rows
    z = np.multiply(many.rows.T, sign, order="C").T  # a column's scores side by side
    columns = [_column(comm, x[:, a], z[:, a], half) for a in announced(range(x.shape[1]))]
    totals = [2 * column.wins + (column.ties if half else 0) for column in columns]
    sums, n_counts = tuple(PairSum(total, n * m) for total in totals), sum(column.n_codes for column in columns)
    if min(n, m) < 2 or not components:
        return Local(sums, None), n_counts
    of_columns = added(comm, products([column.column_sums for column in columns], 2 * n), 4 * n * n * m)
    of_rows = products([column.row_sums for column in columns], 2 * m)
    if second is not None:
        return Local(sums, sampled_components(n, m, totals, of_rows, of_columns, second[2])), n_counts
    squares = added(comm, joint_wins(x, z, half, announced), 4 * n * m)
    return Local(sums, columns_components(n, m, totals, of_rows, of_columns, squares)), n_counts


def added(comm: Any, counts: Counts, largest: int) -> Counts:
    """Return the sum over the ranks of whole numbers, none of which passes `largest`.  Collective."""
    if largest < 2**63:
        return add_integers(comm, counts)
    return np.sum([each.astype(object) for each in comm.allgather(counts)], axis=0)


def _column(comm: Any, x: Floats, z: Floats, half: bool) -> _Column:
    """Return the margins of a column; a z is counted at its place among the distinct x: between two, or at one."""
    order, ordered = in_order(x)
    starts = np.flatnonzero(starts_of_runs(ordered))
    values, copies = ordered[starts], np.diff(starts, append=len(x))
    of_z = twice_middle_places(values, z)
    found = add_integers(comm, np.bincount(of_z, minlength=2 * len(values) + 1))
    below, at = np.cumsum(found)[:-1:2], found[1::2]
    most = len(x) * int(found.sum())
    above = len(x) - np.concatenate([[0], np.cumsum(copies)])
    of_places = np.empty(len(found), dtype=np.int64)
    of_places[::2], of_places[1::2] = 2 * above, 2 * above[1:] + half * copies
    return _Column(
        row_sums=np.repeat(2 * below + half * at, copies)[np.argsort(order)],
        column_sums=of_places[of_z],
        wins=exact_dot(copies, below, most),
        ties=exact_dot(copies, at, most),
        n_codes=len(found),
    )
