"""Point sums of the parts of the concordance index: pairs that two orders, of times and of risks, put differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.influence.crossings import Crossings
from mpi_ustat.influence.points import PointSums, Sample, grid_of, limbs_of
from mpi_ustat.influence.stretches import Own, Stretch
from mpi_ustat.influence.totals import grid_of_terms
from mpi_ustat.kernels.concordance import counted, in_time, survival_flaws
from mpi_ustat.mpi.runtime import succeed
from mpi_ustat.numerics.limbs import Grid
from mpi_ustat.numerics.orders import whole_numbers
from mpi_ustat.numerics.types import Floats, Ints


class Counted(NamedTuple):
    """What points learn, pairs of equal risk (of points without weights) that this rank has found, and bytes sent."""

    sums: PointSums
    tied: list[int]
    bytes_sent: int


def concordance(
    comm: Any, samples: Sequence[Sample], censoring_weights: str = "none", horizon: float = np.inf
) -> tuple[list[PointSums], int]:
    """Return the points' sums of h_C of each risk, and of h_D, scale 2, and the bytes sent.  Collective.

    `kernels.concordance` says what these are. With Uno's weights ω_ij = w_i w_j G(t_i-)⁻² for the earlier point i, G
    being the Kaplan-Meier estimate of the censoring's survival from all points, whatever their strata, taken as known;
    the sums of h are then over ω_ij / w_i. O(n log n / P) a risk.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of one Sample
        Rows of time, event (0 or 1) and one or more risks.
    censoring_weights : {"none", "uno"}
    horizon : float
        Only pairs whose earlier time is below it count.

    Raises
    ------
    UserError
        On every rank: if a time isn't positive, or an event neither 0 nor 1.
    """
    (sample,) = samples
    found = count(comm, sample, censoring_weights, horizon)
    return [found.sums], found.bytes_sent


def count(comm: Any, sample: Sample, censoring_weights: str, horizon: float) -> Counted:
    """Return the sums of `concordance`, and those of tied pairs.  Collective."""
    rows = np.asarray(sample.rows, dtype=np.float64)
    succeed(comm, lambda: _check(rows), "checking the points")
    time, event = rows[:, 0], rows[:, 1]
    grid = of_events = grid_of(comm, [sample])
    weights = limbs_of(grid, sample)
    strata = [] if sample.strata is None else [sample.strata]
    uno: Floats | None = None
    sent = 0
    if censoring_weights == "uno":
        uno, sent = _uno(comm, time, event == 0.0, weights, grid)
        uno *= counted(in_time(time, event), horizon)
        brought = uno if sample.weights is None else uno * sample.weights
        of_events = grid_of_terms(comm, [brought])
        of_uno = of_events.limbs(brought)
    parts: list[Any] = []
    tied, pairs, comparable = [], None, None
    for risk in rows.T[2:]:
        first = in_time(time, event)
        earlier = [*(weights * counted(first, horizon) if uno is None else of_uno)]
        keys = [*strata, first, whole_numbers(risk)]
        del first
        crossings = Crossings(sample.spread_over(comm), keys, [*weights], earlier)
        is_first = counted(crossings.first, horizon)
        sums = [[2 * a + b for a, b in zip(crossings.crossed, crossings.level, strict=True)]]
        if comparable is None:
            sums.append([2 * each for each in crossings.beyond()])
        told = [
            crossings.home(
                grid.told(behind * is_first + before)[None]
                if uno is None
                else np.array([grid.floats(behind), of_events.floats(before)])
            )
            for behind, before in sums
        ]
        wins, *others = [each[0] if uno is None else uno * each[0] + each[1] for each in told]
        parts.append(wins)
        tied.append(int(crossings.later[0].astype(np.int64) @ crossings.level[1][0]))
        if comparable is None:
            (comparable,) = others
            pairs = grid.told(crossings.home(crossings.in_order()[0]) - weights)
        sent += crossings.bytes_sent
    return Counted(PointSums(np.array([*parts, comparable]), pairs), tied, sent)  # type: ignore[arg-type]


def _check(rows: Floats) -> None:
    found = [(int(np.argmax(flaw.rows)), flaw) for flaw in survival_flaws(rows) if flaw.rows.any()]
    if found:
        _, first = min(found, key=lambda each: each[0])
        raise UserError(f"a point holds {first.what}: {first.remedy}")


def _uno(comm: Any, time: Floats, censored: NDArray[np.bool_], weights: Ints, grid: Grid) -> tuple[Floats, int]:
    """Return G(t-)⁻² of this rank's points, the same bits at every number of ranks, and bytes sent.  Collective.

    G is the product of 1 - (censored at t)/(at risk at t), those who have an event at t being gone: the exponential of
    the exact sum of rounded logarithms.
    """
    k = len(weights)
    stretch = Stretch(comm, [Own(None, time, np.concatenate([weights, weights * censored]))])
    (sums,) = stretch.sums
    below, total = (each[:k] for each in stretch.below(sums))
    leave, at_risk = grid.floats(sums[k:]), grid.floats(total - below - sums[:k] + sums[k:])
    some_stay = leave < at_risk  # else nobody comes after, and no factor is asked for
    logs = np.log1p(-np.divide(leave, at_risk, out=np.zeros_like(leave), where=some_stay))
    of_logs = grid_of_terms(comm, [logs])
    before, _ = stretch.below(of_logs.limbs(logs))
    return stretch.home(0, np.exp(-2.0 * of_logs.floats(before))[None])[0], stretch.bytes_sent
