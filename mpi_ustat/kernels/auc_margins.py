"""The counts that the AUC of one block and its Hoeffding components follow from, in O(n log n), without rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.kernels.kernel import Local, PairSum
from mpi_ustat.numerics.exactsum import exact_count, exact_dot
from mpi_ustat.numerics.lookup import below_and_at
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.types import Floats, Ints


class Margins(NamedTuple):
    """Counts of the pairs of an AUC, and squares of its margins, in units of half a win.

    With R_k = 2·#{z < x_k} + #{z = x_k} and C_l = 2·#{x > z_l} + #{x = z_l}, where pairs that tie are left out of both
    unless they count one half.

    Attributes
    ----------
    wins, ties : int
        #{(k, l): z_l < x_k} and #{(k, l): z_l = x_k}.
    row_squares, column_squares : int
        Σ_k R_k² and Σ_l C_l².
    """

    wins: int
    ties: int
    row_squares: int
    column_squares: int

    def of_stretch(self, n: int, m: int, half: bool, *, z_below: int, x_above: int) -> Margins:
        """Return those of n x and m z, themselves a stretch of the pooled order, each pair counted where its x is.

        Each x beats all the z below the stretch, each z loses to all the x above it; the stretch has all the copies of
        its values. Those of all stretches add up to those of the whole samples.
        """
        total = 2 * self.wins + (self.ties if half else 0)
        return Margins(
            self.wins + n * z_below,
            self.ties,
            self.row_squares + 4 * z_below * total + 4 * z_below**2 * n,
            self.column_squares + 4 * x_above * total + 4 * x_above**2 * m,
        )


def auc_margins(x: Floats, z: Floats, half: bool) -> Margins:
    """Return the counts and squared margins of an AUC, for two *sorted* arrays without NaN.

    The shorter one's distinct values are looked up in the other. For a shorter z the order is turned round: -z beats -x
    exactly where x beats z.
    """
    swapped = len(x) > len(z)
    s, t = (z, x) if swapped else (x, z)
    copies = None
    if len(s) and not (starts := starts_of_runs(s)).all():
        first = np.flatnonzero(starts)
        s, copies = s[first], np.diff(first, append=len(s))
    below, ties = below_and_at(t, s)
    if not swapped:
        return margins_of_counts(copies, below, ties, len(t), half)
    above = len(t) - (below if ties is None else below + ties)
    copies, ties = (each if each is None else each[::-1] for each in (copies, ties))
    turned = margins_of_counts(copies, above[::-1], ties, len(t), half)
    return turned._replace(row_squares=turned.column_squares, column_squares=turned.row_squares)


def margins_of_counts(copies: Ints | None, below: Ints, ties: Ints | None, m: int, half: bool) -> Margins:
    """Return the margins from how many of the m values z lie below, and how many at, each of the distinct x.

    Let the value v_i occur u_i times, with w_i larger x. R = 2·below + ties. Every z with D_l = #{x > z_l} has
    D_l² = Σ (2j-1) over j <= D_l; the j with w_i < j <= w_i + u_i, for which the j-th largest x is v_i, add up to
    (w_i+u_i)² - w_i² = u_i (2w_i+u_i). So Σ_l D_l² = Σ_i u_i (2w_i+u_i) below_i, the same with D' = #{x >= z_l} and
    below + ties, and, as C = D + D' gives C² = 2D² + 2D'² - (D'-D)²,

        Σ_l C_l² = Σ_i 2u_i (2w_i+u_i) R_i - Σ_i u_i² ties_i,

    or with R = 2·below and without the last sum where ties count nothing.
    Exact at any size: sums are Python integers, and n·m and n² stay below 2⁶².
    The `copies` u come in ascending order of the values; None stands for 1 each, and for no ties.
    """
    r = 2 * below if ties is None or not half else 2 * below + ties
    n_ties = tied_squares = 0
    if copies is None:
        n = len(below)
        wins = exact_count(below, m)
        rows = exact_dot(r, r, 4 * m * m)
        columns = exact_dot(np.arange(4 * n - 2, 0, -4), r, 8 * n * m)
        if ties is not None:
            n_ties = tied_squares = exact_count(ties, m)
    else:
        n = int(copies.sum())
        wins = exact_dot(copies, below, n * m)
        rows = exact_dot(copies * r, r, 4 * n * m * m)
        columns = 2 * exact_dot(copies * (2 * (n - np.cumsum(copies)) + copies), r, 2 * n * n * m)
        if ties is not None:
            n_ties, tied_squares = exact_dot(copies, ties, n * m), exact_dot(copies * copies, ties, n * n * m)
    return Margins(wins, n_ties, rows, columns - (tied_squares if half else 0))


def auc_local(counts: Margins, n: int, m: int, half: bool) -> Local:
    """Return the sum of 2h and the components of n × m points, none if a sample has one, from `Margins`."""
    total, squares = (times * counts.wins + (counts.ties if half else 0) for times in (2, 4))
    if min(n, m) < 2:
        return Local((PairSum(total, n * m),), None)
    found = count_components(n, m, total**2, counts.row_squares, counts.column_squares, squares)
    return Local((PairSum(total, n * m),), np.array(found).reshape(3, 1, 1))  # each rounded once


def count_components(n: int, m: int, total_square: Any, rows: Any, columns: Any, squares: Any) -> tuple[Any, Any, Any]:
    """Return the components of a kernel with values in ½ℤ, or the covariance components of two.

    With T the sum of the 2h, R, C their row and column sums and Q the sum of their squares, over the common denominator
    4nm: SS_rows = n ΣR² - T², SS_columns = m ΣC² - T², SS_residual = nm Q - n ΣR² - m ΣC² + T². Integers up to the
    quotients of `two_sample_components`, which Python rounds correctly; arrays of integers, if all are below 2⁵³.
    """
    between_rows, between_columns = n * rows - total_square, m * columns - total_square
    residual = n * m * squares - total_square - between_rows - between_columns
    denominator = 4 * n * m * (n - 1) * (m - 1)
    return (
        ((m - 1) * between_rows - residual) / (m * denominator),
        ((n - 1) * between_columns - residual) / (n * denominator),
        residual / denominator,
    )
