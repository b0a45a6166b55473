"""Hoeffding components of two-sample kernels on one block, without its matrix where the kernel allows it.

The matrix h(x_k, z_l) of a block is a two-way layout; its components follow from row means, column means and squares
(`mpi_ustat.inference.components`). Here these are found in O(n log n) for the named kernels and tile by tile for any
other. What is a whole number is counted exactly; what is not is centred before it is squared.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.inference.components import k_sample_components, two_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Local, Meeting, PairSum, Points, Total, as_rows
from mpi_ustat.numerics.exactsum import exact_count, exact_dot
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
    copies = ties = None
    if len(s) and not (starts := starts_of_runs(s)).all():
        first = np.flatnonzero(starts)
        s, copies = s[first], np.diff(first, append=len(s))
    below = np.searchsorted(t, s, side="left")
    if len(s) and len(tied := np.flatnonzero(t[np.minimum(below, len(t) - 1)] == s)):
        ties = np.zeros(len(s), dtype=np.int64)
        ties[tied] = np.searchsorted(t, s[tied], side="right") - below[tied]
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

    Parameters
    ----------
    copies : ndarray of int64, shape (r,), or None
        u, in ascending order of the values; None: 1 each.
    below : ndarray of int64, shape (r,)
    ties : ndarray of int64, shape (r,), or None
        None: 0 each.
    m : int
    half : bool
        Whether ties count one half, rather than nothing.

    Returns
    -------
    Margins
        Exact at any size: sums are Python integers, and n·m and n² stay below 2⁶².
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


def product_components(x: Points, z: Points) -> Floats:
    """Return the components of h(x, z) = x·z, in O(n + m).

    With x' = x - x̄ and z' = z - z̄, x·z - x̄·z̄ = x'·z̄ + x̄·z' + x'·z': row effects, column effects and residuals,
    whose squares are sums of squares of their own,

        SS_rows = m Σ_k (x'_k·z̄)²,   SS_columns = n Σ_l (x̄·z'_l)²,   SS_residual = Σ_kl (x'_k·z'_l)² = Σ_ab S_ab S'_ab,

    with S = Σ_k x'_k x'_kᵀ and S' the same of z. Nothing is subtracted after squaring, so the residual keeps its digits
    however large the means are.

    Parameters
    ----------
    x, z : ndarray, shapes (n,) and (m,), or (n, d) and (m, d)
        n, m >= 2.

    Returns
    -------
    ndarray, shape (3, 1, 1)
    """
    x, z = as_rows(x), as_rows(z)
    mean_x, mean_z = x.mean(axis=0), z.mean(axis=0)
    x, z = x - mean_x, z - mean_z
    rows, columns = x @ mean_z, z @ mean_x
    squares = {
        (0,): len(z) * (rows @ rows),
        (1,): len(x) * (columns @ columns),
        (0, 1): np.vdot(x.T @ x, z.T @ z),
    }
    return k_sample_components((len(x), len(z)), squares)


def gini_components(x: Floats, z: Floats) -> Floats:
    """Return the components of h(x, z) = |x - z| for two *sorted* arrays, in O(n log n).

    h being symmetric, let x̄ >= z̄. With d = x_k - z_l and its parts d⁺, d⁻ >= 0, h = d + 2d⁻ and |d|² = d², so that

        r̄_k - h̄ = x'_k + 2 (ē_k - ē),   c̄_l - h̄ = -z'_l + 2 (ē_l - ē),   e = d⁻,   x' = x - x̄,   z' = z - z̄,
        Σ (h - h̄)² = Σ (d - d̄)² - 4 Σd⁺ Σd⁻/(nm),   Σ (d - d̄)² = m Σ x'² + n Σ z'²,

    the second line because h̄² - d̄² = 4 d̄⁺ d̄⁻. The sums of d⁻ over a row or a column are sums of the sorted values
    beyond its point, centred. Points far from zero, and samples far apart, where Σd⁻ = 0, lose no digits.

    Parameters
    ----------
    x, z : ndarray, shapes (n,) and (m,)
        Sorted in ascending order, finite; n, m >= 2.

    Returns
    -------
    ndarray, shape (3, 1, 1)
    """
    n, m = len(x), len(z)
    centred_x, centre_x, mean_x = _centred(x)
    centred_z, centre_z, mean_z = _centred(z)
    shift = (centre_x - centre_z) + (mean_x - mean_z)
    if shift < 0.0:
        return gini_components(z, x)[[1, 0, 2]]
    above = np.searchsorted(z, x, side="right")  # the z from here on exceed x_k
    below = np.searchsorted(x, z, side="left")  # the x before here are exceeded by z_l
    tail = np.append(np.cumsum(centred_z[::-1])[::-1], 0.0)
    head = np.append(0.0, np.cumsum(centred_x))
    row_excess = (tail[above] - (m - above) * (centred_x + shift)) / m
    column_excess = (below * (centred_z - shift) - head[below]) / n
    mean_excess = float(row_excess.mean())
    rows = centred_x + 2.0 * (row_excess - mean_excess)
    columns = 2.0 * (column_excess - float(column_excess.mean())) - centred_z
    squares = m * (centred_x @ centred_x) + n * (centred_z @ centred_z)
    squares -= 4.0 * n * m * mean_excess * (mean_excess + shift)
    return two_sample_components(n, m, rows @ rows, columns @ columns, squares)


def _centred(values: Floats) -> tuple[Floats, float, float]:
    """Return values minus their mean, and the mean as a value near it and what is missing: rounded less than a mean."""
    centre = float(values[len(values) // 2])
    values = values - centre
    rest = float(values.mean())
    return values - rest, centre, rest


def tiles(
    evaluate: Callable[[Points, Points], Floats], x: Points, z: Points, side: int
) -> Iterator[tuple[slice, slice, Floats]]:
    """Yield the matrix h(x_k, z_l) of a block in square tiles: the rows, the columns, and the values there."""
    for i, j in itertools.product(range(0, len(x), side), range(0, len(z), side)):
        rows, columns = slice(i, i + side), slice(j, j + side)
        yield rows, columns, evaluate(x[rows], z[columns])


def tiled_layout(evaluate: Callable[[Points, Points], Floats], x: Points, z: Points, side: int) -> tuple[Total, Floats]:
    """Return the sum of any kernel over a block, and its components, from one pass over the tiles of its matrix.

    Squares and margins are of h - c, c the mean of the first tile: close enough to h̄ for Σ(h - h̄)² = Σ(h - c)² -
    nm (h̄ - c)² to be a difference without cancellation.

    Parameters
    ----------
    evaluate : callable
        Takes points of shapes (a, d) and (b, d), returns h for all their pairs, shape (a, b).
    x, z : ndarray, shapes (n, d) and (m, d)
        n, m >= 2.
    side : int
        Of the tiles: memory is 8·side² bytes a matrix, besides the margins' n + m numbers.

    Returns
    -------
    (float, ndarray of shape (3, 1, 1))
        The tiles' sums are added without rounding.
    """
    n, m = len(x), len(z)
    sums: list[float] = []
    squares: list[float] = []
    row_sums, column_sums = np.zeros(n), np.zeros(m)
    centre = None
    for rows, columns, values in tiles(evaluate, x, z, side):
        sums.append(float(np.sum(values)))
        if centre is None:
            centre = sums[0] / values.size
        centred = values - centre
        row_sums[rows] += centred.sum(axis=1)
        column_sums[columns] += centred.sum(axis=0)
        squares.append(float(np.vdot(centred, centred)))
    row_means, column_means = row_sums / m, column_sums / n
    off_centre = float(row_means.mean())
    row_means -= off_centre
    column_means -= float(column_means.mean())
    about_mean = add([*squares, -n * m * off_centre**2])
    components = two_sample_components(n, m, row_means @ row_means, column_means @ column_means, about_mean)
    return add(sums), components


class PairMargins:
    """What the values of h on parts of a layout of pairs add up to, part by part.

    Σ (h - h̄)² is put together from the parts' own: with c_t values of mean h̄_t in part t it is
    Σ_t [Σ (h - h̄_t)² + c_t (h̄_t - h̄)²], in which nothing cancels.
    """

    def __init__(self) -> None:
        self._sums: list[float] = []
        self._inside: list[float] = []
        self._sizes: list[int] = []

    def add(self, values: Floats) -> None:
        """Take the values of a part."""
        self._sums.append(float(np.sum(values)))
        self._sizes.append(values.size)
        self._inside.append(float(np.sum((values - self._sums[-1] / values.size) ** 2)))

    def result(self) -> tuple[PairSum, float]:
        """Return the sum of all values with their number, and Σ (h - h̄)²."""
        total, n_pairs = add(self._sums), sum(self._sizes)
        mean = total / n_pairs
        between = [size * (value / size - mean) ** 2 for value, size in zip(self._sums, self._sizes, strict=True)]
        return PairSum(total, n_pairs), add(self._inside + between)


def tiled_margins(evaluate: Callable[[Points, Points], Floats], x: Points, z: Points, side: int) -> Meeting:
    """Return the sum of h over all pairs of two blocks, over those of each point, and Σ (h - h̄)²."""
    rows, columns, found = np.zeros((len(x), 1)), np.zeros((len(z), 1)), PairMargins()
    for i, j, values in tiles(evaluate, x, z, side):
        rows[i, 0] += values.sum(axis=1)
        columns[j, 0] += values.sum(axis=0)
        found.add(values)
    whole, squares = found.result()
    return Meeting((whole,), (rows, columns), np.array([[squares]]))
