"""Kendall's tau of distributed points: all pairs, exactly, by two sorts over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpi_ustat.kernels.kendall import Kendall
from mpi_ustat.kernels.kernel import Whole
from mpi_ustat.kernels.pair_counts import (
    PairOrder,
    at_places,
    counts_from,
    order_pairs,
    point_sums,
    run_sizes,
)
from mpi_ustat.mpi.collectives import send_segments
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import attempt, entering
from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Flags as Flags
from mpi_ustat.numerics.types import Floats
from mpi_ustat.numerics.types import Ints as Integers
from mpi_ustat.schemes.partition import block_bounds

_SAMPLES_PER_RANGE = 512

_Key = tuple[float, ...]
_Runs = Mapping[_Key, int]  # the first and the last of a rank's runs of equal values: value and length
_Result = TypeVar("_Result")
_Facts = TypeVar("_Facts")


class _Told(NamedTuple):
    """What a rank tells the others of its range of x: the runs at its ends, and where it would cut its y."""

    x_runs: _Runs
    runs: _Runs
    y_start: Integers
    y_stop: Integers
    size: int


def kendall(
    comm: Any,
    samples: Sequence[Exchange],
    kernel: Kendall,
    n_workers: int,
    streams: Streams,
    *,
    components: bool = True,
) -> Whole:
    """Return the parts of Kendall's tau over all pairs of distributed points, and their components.  Collective.

    Every point moves once, to the rank that has its range of the order by (x, y, number of the row). There the
    discordant pairs inside the range are counted. A pair from two ranges is discordant when the point of the lower
    range has the larger y; so the ranges' sorted y, without x, move once more, to the rank that has their range of the
    order by (y, range of x), where sorted lists are merged. What was counted for each y goes back to its point, for the
    sums of squares. O(n/P log n) time and O(n/P) memory on each rank, also when values are heavily tied: both orders
    are cut at places, not at values, and runs of equal values that are cut are counted together.

    Everything is an integer, hence the same at every number of ranks.
    """
    (sample,) = samples
    n = sample.n_rows
    if n < 2:
        return Whole(kernel.local_from(n, [0] * (kernel.n_parts + 1)))
    drawn = _drawn(comm, sample, streams)
    x, y, sent = _share_by_x(comm, sample, drawn)
    y_values = np.sort(drawn[:, 1])[block_bounds(len(drawn), comm.size)[1:-1]]
    (order, discordant), told = _work(comm, "ranking the points", lambda: _rank(x, y, y_values))
    x_equal, equal = (
        at_places(_run_sizes(starts, runs, comm.rank), order.places)
        for starts, runs in ((order.x_starts, [t.x_runs for t in told]), (order.starts, [t.runs for t in told]))
    )
    across, y_equal, sent_by_y = _compare_ranges(comm, order.y, np.diff(_cuts(told, n), axis=1))

    def total() -> tuple[None, list[int]]:
        counts = counts_from(n, discordant + across, x_equal, y_equal, equal)
        return None, point_sums(n, kernel.n_parts, counts)

    _, sums = _work(comm, "summing over the points", total)
    whole = kernel.local_from(n, [sum(of_ranks) for of_ranks in zip(*sums, strict=True)])
    return Whole(whole, sent + sent_by_y)


def _work(comm: Any, doing: str, function: Callable[[], tuple[_Result, _Facts]]) -> tuple[_Result, list[_Facts]]:
    """Return a local function's result here and its facts on all ranks; an error is raised on all.  Collective."""

    def work() -> tuple[_Result, _Facts]:
        entering(doing)
        return function()

    (result, _), facts = attempt(comm, work, doing, share=itemgetter(1))
    return result, facts


def _drawn(comm: Any, sample: Exchange, streams: Streams) -> Floats:
    """Return the rows (x, y, number) of points drawn by number, in order.  Collective."""
    if comm.size == 1:
        return np.empty((0, 3))
    numbers = streams.open("splitters of kendall").integers(sample.n_rows, _SAMPLES_PER_RANGE * comm.size)
    first = sample.first_row
    own = numbers[(numbers >= first) & (numbers < first + len(sample.rows))]
    everyone = np.concatenate(comm.allgather(np.column_stack([sample.rows[own - first], own])))
    return everyone[np.lexsort(everyone.T[::-1])]


def _share_by_x(comm: Any, sample: Exchange, drawn: Floats) -> tuple[Floats, Floats, int]:
    """Bring every point to the rank of its range by (x, y, number); return x and y of this rank's, and bytes sent."""
    if comm.size == 1:
        return sample.rows[:, 0], sample.rows[:, 1], 0
    x, y = np.ascontiguousarray(sample.rows.T)
    ranges = np.zeros(len(x), dtype=np.uint16)
    for x_bound, y_bound, number in drawn[block_bounds(len(drawn), comm.size)[1:-1]].tolist():
        beyond = x > x_bound
        tied = np.flatnonzero(x == x_bound)
        beyond[tied] = (y[tied] > y_bound) | ((y[tied] == y_bound) & (tied + sample.first_row >= number))
        ranges += beyond
    counts = np.bincount(ranges, minlength=comm.size)
    rows, sent = _send_rows(comm, np.take(sample.rows, np.argsort(ranges, kind="stable"), axis=0), counts)
    return rows[:, 0], rows[:, 1], sent


def _send_rows(comm: Any, rows: Floats, counts: Integers) -> tuple[Floats, int]:
    """Send the first counts[0] rows to rank 0, and so on; return what comes here, and bytes sent.  Collective."""
    width = rows.shape[1]
    received = np.concatenate(send_segments(comm, rows.ravel(), width * counts)).reshape(-1, width)
    return received, 8 * width * (len(rows) - int(counts[comm.rank]))


def _rank(x: Floats, y: Floats, y_values: Floats) -> tuple[tuple[PairOrder, Integers], _Told]:
    """Return the order of this rank's points and the discordant pairs of each, in the order of y, among them."""
    order = order_pairs(x, y)
    y_start, y_stop = (np.searchsorted(order.y, y_values, side=side) for side in ("left", "right"))
    x_runs, runs = _end_runs(order.x_starts, [end[:1] for end in order.ends]), _end_runs(order.starts, order.ends)
    return (order, order.discordant()), _Told(x_runs, runs, y_start, y_stop, len(x))


def _end_runs(starts: Flags, ends: Sequence[_Key]) -> _Runs:
    """Return the lengths of the first and the last run of sorted values, by value: those that other ranks may share."""
    if not ends:
        return {}
    places = np.flatnonzero(starts)
    first = int(places[1]) if len(places) > 1 else len(starts)
    return {ends[0]: first, ends[1]: len(starts) - int(places[-1])}


def _run_sizes(starts: Flags, everyone: Sequence[_Runs], rank: int) -> Integers:
    """Return `run_sizes` of a rank's stretch of values that lie sorted over the ranks.

    A run that is cut is the last one of a rank, all of some others, and the first one of another.
    """
    more = [sum(runs.get(value, 0) for r, runs in enumerate(everyone) if r != rank) for value in everyone[rank]]
    return run_sizes(starts, (more[0], more[1] if len(more) > 1 else 0)) if more else run_sizes(starts)


def _cuts(told: Sequence[_Told], n: int) -> Integers:
    """Return where every rank's sorted y are cut for the ranges of y, shape (P, P + 1).

    With v a drawn value, the cut is in the run of v where the order by (y, range of x) has the range's share of the n
    points, or at that end of the run that is nearer to it: ranges are balanced however many values are equal.
    """
    start, stop = np.array([t.y_start for t in told]), np.array([t.y_stop for t in told])
    targets = block_bounds(n, len(told))[1:-1]
    in_run = targets - start.sum(axis=0) - _before(stop - start)
    inner = start + np.clip(in_run, 0, stop - start)
    sizes = np.array([t.size for t in told])
    return np.column_stack([np.zeros_like(sizes), inner, sizes])


def _compare_ranges(comm: Any, y: Floats, sizes: Integers) -> tuple[Integers, Integers, int]:
    """Count each point's discordant pairs with points of other ranges of x, and all points of its y.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    y : ndarray
        Of this rank's range of x, sorted.
    sizes : ndarray of int, shape (P, P)
        How many of each range of x, a row, are in each range of y.

    Returns
    -------
    across, y_equal : ndarray of int
        In the order of y.
    int
        Bytes this rank sent to others.
    """
    lists = send_segments(comm, y, sizes[comm.rank])
    lengths = np.ascontiguousarray(sizes[:, comm.rank])
    # Of the points in other ranges of y, discordant are those of a higher range of x below, of a lower one above.
    below, above = sizes[:, : comm.rank].sum(axis=1), sizes[:, comm.rank + 1 :].sum(axis=1)
    beyond = _before(below[::-1])[::-1] + _before(above)

    def merge() -> tuple[tuple[Flags, Integers, Integers], tuple[_Runs, bool]]:
        merged, places, across = _merge(lists)
        across += np.repeat(beyond, lengths)
        starts = starts_of_runs(merged)
        ends = [(float(merged[place]),) for place in (0, -1)] if len(merged) else []
        return (starts, places, across), (_end_runs(starts, ends), bool(starts.all()))

    (starts, places, across), told = _work(comm, "merging the ranges", merge)
    runs = [each for each, _ in told]
    y_equal = at_places(_run_sizes(starts, runs, comm.rank), places)
    if comm.size == 1:
        return across, y_equal, 0
    found = [across]
    cut = len({value for each in runs for value in each}) < sum(len(each) for each in runs)
    if cut or not all(distinct for _, distinct in told):  # otherwise every y_equal is 1, and known
        found.append(np.broadcast_to(y_equal, across.shape))
    home, sent = _send_rows(comm, np.column_stack(found).astype(np.float64), lengths)
    across, *others = home.T.astype(np.int64)
    return across, others[0] if others else y_equal, 8 * (len(y) - int(lengths[comm.rank])) + sent


def _merge(lists: Sequence[Floats]) -> tuple[Floats, Integers, Integers]:
    """Merge sorted lists, of equal values those of earlier lists first, by halves.

    Returns
    -------
    ndarray
        The values, ascending.
    places : ndarray of int
        For each value of the lists, put end to end, its place among them.
    inversions : ndarray of int
        For each, how many values of later lists are lower, and of earlier lists higher.
    """
    if len(lists) == 1:
        n = len(lists[0])
        return lists[0], np.arange(n), np.zeros(n, dtype=np.int64)
    half = len(lists) // 2
    (early, early_places, early_counts), (late, late_places, late_counts) = _merge(lists[:half]), _merge(lists[half:])
    lower = look_up(late, early, "left")
    higher = len(early) - np.cumsum(np.bincount(lower, minlength=len(late) + 1))[:-1]
    in_early, in_late = np.arange(len(early)) + lower, np.arange(len(late)) + len(early) - higher
    merged = np.empty(len(early) + len(late))
    merged[in_early], merged[in_late] = early, late
    return (
        merged,
        np.concatenate([in_early[early_places], in_late[late_places]]),
        np.concatenate([early_counts + lower[early_places], late_counts + higher[late_places]]),
    )


def _before(counts: Integers) -> Integers:
    """Return for each number the sum of those before it, along the first axis."""
    return np.asarray(np.cumsum(counts, axis=0) - counts)
