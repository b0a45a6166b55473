"""The concordance index of survival times that may be censored, a quotient of two U-statistics, from dominance counts.

Of two points that are *comparable*, i had its event, and t_i < t_j, or t_i = t_j and j was censored. With points in the
order of (time, censored after events), i had an event and j comes later.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import one_sample_components
from mpi_ustat.kernels.kernel import UNIT, Flaw, Kernel, Local, PairSum, Points
from mpi_ustat.kernels.one_sample import FEWEST, sums_across
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.exactsum import exact_dot
from mpi_ustat.numerics.orders import lexicographic_order, run_sums, starts_of_equal, whole_numbers
from mpi_ustat.numerics.types import Flags, Floats, Ints
from mpi_ustat.numerics.weighted_dominance import weighted_inversions

_ROWS = 256  # of a matrix of pairs
_FEW = 1 << 13  # points of which all pairs are looked at for products of several risks

CENSORING_WEIGHTS = Option(
    "censoring_weights",
    "weights against censoring",
    "none",
    choices=("none", "uno"),
    flag="censoring-weights",
)
HORIZON = Option("horizon", "only pairs whose earlier time is below it", math.inf, float)
COLUMNS = Option("columns", "columns of risks, after time and event", 1, int, flag=None)

NO_PAIR = (
    "no pair is comparable: in none did the point with the earlier time have its event, before the horizon; "
    "the concordance wants more events, or a longer horizon"
)


class Concordance(Kernel):
    """1 where of two comparable points the one whose event came first has the higher risk, ½ where the risks are equal.

    Points are (time, event, risk, …). With h_D = 1{comparable} and h_C = h_D (1{risk_i > risk_j} + ½ 1{risk_i =
    risk_j}), each averaged over all pairs, the index is C / D: Harrell's. The parts are the C of each risk, then D;
    what is averaged is pooled before the quotient is taken.

    Parameters
    ----------
    censoring_weights : {"none", "uno"}
        Uno's weigh a pair by G(t_i-)⁻², G the Kaplan-Meier estimate of the censoring's survival, which is of all points
        and not of a pair: only the complete statistic has them.
    horizon : float
    columns : int
        Columns of risks, q, each with an index of its own.

    Raises
    ------
    UserError
        If an option is none of these.
    """

    name = "concordance"
    samples = (1,)
    options = (CENSORING_WEIGHTS, HORIZON, COLUMNS)
    unit = "1"
    of_columns = True
    leading_columns = 2
    by_influence = True
    null = 0.5
    degrees = (2,)
    scale = 2
    complete_route = Route("concordance", "mpi_ustat.complete.concordance:concordance")
    influence_route = "mpi_ustat.influence.concordance:concordance"
    allows_infinite = True
    limits = UNIT
    pooled_only = True
    projection_rows = 20_000

    def __init__(
        self,
        censoring_weights: str = CENSORING_WEIGHTS.default,
        horizon: float = HORIZON.default,
        columns: int = COLUMNS.default,
    ) -> None:
        self.censoring_weights, self.horizon = CENSORING_WEIGHTS.checked(censoring_weights), HORIZON.checked(horizon)
        if not horizon > 0.0:
            raise UserError(f"the horizon must be positive, as times are, not {horizon:g}")
        if columns < 1:
            raise UserError(f"a concordance index needs at least one column of risks, not {columns}")
        self.n_coordinates, self.n_parts = self.leading_columns + columns, columns + 1

    def influence_options(self) -> dict[str, Any]:
        """Return which pairs count, and with which weights."""
        return {"censoring_weights": self.censoring_weights, "horizon": self.horizon}

    def counted_share(self, means: Floats) -> Any:
        """Return the share of comparable pairs."""
        return means[-1]

    def finds_components(self, sizes: Sequence[int]) -> bool:
        """Tell whether components are estimated: products of several risks need all pairs of a block."""
        return (
            super().finds_components(sizes)
            and self.censoring_weights == "none"
            and (self.n_parts == 2 or max(sizes) <= _FEW)
        )

    def flaws(self, points: Points) -> Sequence[Flaw]:
        """Tell of times that are not positive, and events that are neither 0 nor 1."""
        return survival_flaws(points)

    def block_sums(self, block: Points) -> tuple[PairSum, ...]:  # type: ignore[override]
        """Return C of each risk, and D, over all pairs of a block, in O(n log n)."""
        return self._sums(len(block), *self.point_sums(block))

    def tuple_sums(self, first: Points, second: Points) -> tuple[PairSum, ...]:  # type: ignore[override]
        """Return C of each risk, and D, over B aligned pairs."""
        return tuple(PairSum(int(part.sum()), len(first)) for part in self._values(first, second))

    def local(self, block: Points) -> Local:  # type: ignore[override]
        """Return `block_sums`, and ζ₁ and δ of the parts from 4 points on."""
        sums, tied = self.point_sums(block)
        products = self._products(block) if self.finds_components((len(block),)) else None
        return self.local_from(len(block), sums.sum(axis=1).tolist(), point_products(sums, len(block)), tied, products)

    def local_from(
        self, n: int, totals: Sequence[int], products: list[list[int]], tied: Sequence[int], pairs: Floats | None
    ) -> Local:
        """Return the parts' sums, and the components, of n points.

        With S the scale times the parts' totals, q = n(n-1)/2 pairs and U = S/q, centred sums are taken in integers:
        Σ_i (r̄_i - U)² = (n Σ_i S_i² - 4 S²)/(n (n-1)²) and Σ (h - U)² = (q Σ h² - S²)/q, products of parts alike. Of
        the latter, (2h_C)² is 4 or, of tied risks, 1, and h_C h_D = h_C, h_D² = h_D.

        Parameters
        ----------
        totals : sequence of int
            Σ_i S_i: twice S.
        products : list of list of int, (p, p)
            Σ_i of the products of S_i.
        tied : sequence of int
            Comparable pairs of equal risk, of each column.
        pairs : ndarray or None, shape (p - 1, p - 1)
            Σ over pairs of the products of two risks' 2h_C, off the diagonal; None: there are no components.
        """
        p, q = self.n_parts, math.comb(n, 2)
        sums = [total // 2 for total in totals]
        of_parts = tuple(PairSum(total, q) for total in sums)
        if n < FEWEST or pairs is None:
            return Local(of_parts, None)
        rows, squares = np.empty((p, p)), np.empty((p, p))
        for i, j in itertools.product(range(p), repeat=2):
            both = sums[i] * sums[j]
            if i == j < p - 1:
                product = 2 * sums[i] - tied[i]
            else:
                product = 2 * sums[min(i, j)] if p - 1 in (i, j) else int(pairs[i, j])
            rows[i, j] = (n * products[i][j] - 4 * both) / (4 * n * (n - 1) ** 2)
            squares[i, j] = (q * product - both) / (4 * q)
        return Local(of_parts, one_sample_components(n, rows, squares))

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        """Return C of each risk, and D, over the pairs that take a point from each of two disjoint blocks."""
        return sums_across(self, x, y)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the means of the parts over the pairs of each point with the others."""
        (against,) = others
        found = np.empty((len(points), self.n_parts))
        for i in range(0, len(points), _ROWS):
            values = self._values(points[i : i + _ROWS, None], against[None])
            found[i : i + _ROWS] = values.mean(axis=2).T / self.scale
        return found

    def combine(self, means: Floats) -> Floats:
        """Return C / D of each risk; NaN where of several statistics, (p, g), one has no comparable pair.

        Raises
        ------
        UserError
            If there is one statistic and no comparable pair.
        """
        if means.ndim == 1 and means[-1] == 0.0:
            raise UserError(NO_PAIR)
        values = np.full(means[:-1].shape, np.nan)
        np.divide(means[:-1], means[-1], out=values, where=means[-1] > 0.0)
        return values

    def gradient(self, means: Floats) -> Floats:
        """Return the derivatives of the indices by the averages, (q, p): 1/D by C and -C/D² by D."""
        values = self.combine(means)
        return np.asarray(np.column_stack([np.eye(len(values)), -values]) / means[-1])

    def point_sums(self, block: Points) -> tuple[Ints, list[int]]:
        """Return twice the sums of the parts over the pairs of each point, (p, n), and each risk's tied pairs."""
        self._refuse_uno()
        first = in_time(block[:, 0], block[:, 1])
        counts = counted(first, self.horizon)
        found = np.empty((self.n_parts, len(block)), dtype=np.int64)
        tied = []
        for k, risk in enumerate(block.T[2:]):
            second = whole_numbers(np.ascontiguousarray(risk))
            order = lexicographic_order([first, second])
            of_time, of_risk, events = first[order], second[order], counts[order]
            brought = np.array([np.ones(len(order), dtype=np.int64), events])
            if k == 0:
                behind, before = _beyond(brought, starts_of_equal([of_time]), np.arange(min(1, len(order))))
                found[-1, order] = 2 * (behind * events + before)
            by_risk = lexicographic_order([of_risk], stable=True)
            starts = [starts_of_equal([each[by_risk] for each in keys]) for keys in ((of_risk, of_time), (of_risk,))]
            level = np.empty_like(brought)
            level[:, by_risk] = _beyond(brought[:, by_risk], *starts)
            (behind,), (before,) = weighted_inversions(by_risk, brought[:1], brought[1:])
            found[k, order] = (2 * behind + level[0]) * events + 2 * before + level[1]
            tied.append(int(level[1].sum()))
        return found, tied

    def _sums(self, n: int, sums: Ints, tied: Sequence[int]) -> tuple[PairSum, ...]:
        return tuple(PairSum(int(total) // 2, math.comb(n, 2)) for total in sums.sum(axis=1))

    def _values(self, x: Points, y: Points) -> NDArray[np.int8]:
        """Return twice the parts' h of pairs of points that are broadcast against each other, (p, …)."""
        self._refuse_uno()
        times = [in_time(each[..., 0], each[..., 1]) for each in (x, y)]
        x_first = (times[0] < times[1]) & counted(times[0], self.horizon)
        y_first = (times[1] < times[0]) & counted(times[1], self.horizon)
        found = np.empty((self.n_parts, *x_first.shape), dtype=np.int8)
        for k in range(2, self.n_coordinates or 0):
            higher, lower = x[..., k] > y[..., k], x[..., k] < y[..., k]
            found[k - 2] = (1 + higher - lower.astype(np.int8)) * x_first + (
                1 - higher + lower.astype(np.int8)
            ) * y_first
        found[-1] = 2 * (x_first | y_first)
        return found

    def _refuse_uno(self) -> None:
        if self.censoring_weights == "uno":
            raise UserError("Uno's weights are of all points and not of a block: use complete=True, or none of them")

    def _products(self, block: Points) -> Floats:
        """Return the sums over pairs of the products of two risks' 2h_C."""
        q = self.n_parts - 1
        found = np.zeros((q, q))
        for i in range(0, len(block), _ROWS) if q > 1 else ():
            values = self._values(block[i : i + _ROWS, None], block[None])[:q].reshape(q, -1).astype(np.float64)
            found += values @ values.T  # whole numbers
        return found / 2.0


def in_time(time: Floats, event: Floats) -> Ints:
    """Return whole numbers in the order of (time, censored after events): even ones are events."""
    return np.asarray(2 * (whole_numbers(time) - 2**62) + (event == 0.0))


def counted(first: Ints, horizon: float) -> Flags:
    """Tell which points can be the earlier ones of comparable pairs: events before the horizon."""
    return np.asarray((first & 1 == 0) & (first < int(in_time(np.array([horizon]), np.ones(1))[0])))


def survival_flaws(points: Points) -> list[Flaw]:
    """Return what is wrong with rows of time, event and risks."""
    time, event = points[:, 0], points[:, 1]
    return [
        Flaw(~(time > 0.0), "a time that is not positive", "remove or repair that row"),
        Flaw((event != 0.0) & (event != 1.0), "an event that is neither 0 nor 1", "1 is an event, 0 a censored time"),
    ]


def point_products(sums: Ints, n: int) -> list[list[int]]:
    """Return Σ_i of all products of sums of points, (p, p), of n points in all, as exact integers."""
    return [[exact_dot(a, b, 4 * n**2) for b in sums] for a in sums]


def _beyond(brought: Ints, inner: Ints, outer: Ints) -> Ints:
    """Return the first sums over what is behind an inner run in its outer one, the second over what is before."""
    (inner_before, inner_all), (outer_before, outer_all) = (run_sums(brought, starts) for starts in (inner, outer))
    before = outer_before - inner_before
    return np.array([outer_all[0] - before[0] - inner_all[0], before[1]])
