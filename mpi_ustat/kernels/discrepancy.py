"""Two-sample discrepancies with pairs inside the samples as well as across them: energy distance and MMD.

With k(a, b) symmetric and the three averages

    A over the pairs x_i, x_i' (i < i'),      C over the pairs z_j, z_j' (j < j'),      D over all pairs x_i, z_j,

the statistic is A + C - 2D (MMD², k a positive definite function) or its negative (energy distance, k the Euclidean
distance). It is the U-statistic of degrees (2, 2) of

    h(x₁, x₂; z₁, z₂) = k(x₁, x₂) + k(z₁, z₂) - ½ [k(x₁, z₁) + k(x₁, z₂) + k(x₂, z₁) + k(x₂, z₂)],

since every pair of a part is in equally many tuples. It is unbiased, hence may be negative where the population's value
is zero or small, and is reported as it is.

A block is swept tile by tile: memory is the points', a tile and two numbers a point. The tile grid is the block's own
and sums of tiles are exact, so that any number of processes may share the tiles without changing a bit.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.inference.components import one_sample_components, two_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Kernel, PairSum, Points, as_pair, as_rows
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.types import Floats, Ints

_ROWS, _COLUMNS = 128, 512  # a tile of 512 KiB stays in a core's cache
_POINT_BITS = 61  # per-point sums are integers below 2^61, with room for rounding
_PIVOT_POINTS = 32
_VANISHING = 500  # a `point_exponent` beyond which squares of the sums vanish

_WITHIN_X, _WITHIN_Z, _ACROSS = range(3)


LIKE_EQUAL = 12.0
"""Samples of one law show a first-order part of their discrepancy's variance of up to this many times the rest."""

ALIKE = (
    "the first-order part of the variance can't be told from zero: the samples may be alike, and a normal interval "
    "wrong"
)


STANDARDIZE = Option(
    "standardize",
    "each column in units of its standard deviation (sd), or interquartile range (iqr), over both samples together",
    "none",
    choices=("none", "sd", "iqr"),
    bare="sd",
)


class Strip(NamedTuple):
    """Up to 128 points of a sample against those that follow it there (parts 0, 1), or against all z (part 2)."""

    part: int
    start: int


class Variance(NamedTuple):
    """An unbiased estimate of the variance of a statistic, in the square of its unit; it may be negative.

    Attributes
    ----------
    total : float
    first_order : float
        The part of `total` that belongs to the first-order terms of the Hoeffding decomposition. Where the samples'
        distributions are equal they vanish: the statistic then is not normal, and has no normal interval. The estimate
        then is about 0, but not near: it reaches 4 to 12 times `second_order` in one of a hundred simulated samples.
    of_points : (float, float)
        Var u and Var v, whose n-th and m-th parts `first_order` is the sum of.
    of_remainders : (float, float, float)
        δ_A, δ_C and δ_D.
    """

    total: float
    first_order: float
    of_points: tuple[float, float] = (math.nan, math.nan)
    of_remainders: tuple[float, float, float] = (math.nan, math.nan, math.nan)

    @property
    def second_order(self) -> float:
        """The rest, which is estimated well, and never vanishes: the statistic's variance under equality."""
        return self.total - self.first_order

    @property
    def notes(self) -> tuple[str, ...]:
        """What speaks against a normal interval of the statistic of these points."""
        return (ALIKE,) if self.first_order <= LIKE_EQUAL * self.second_order else ()


class Moments(NamedTuple):
    """What strips contribute, to be added over disjoint sets of strips.

    Attributes
    ----------
    totals : three lists of float
        Sums of k over the tiles of each part.
    squares : three lists of float
        Sums of (k - pivot)² over the tiles of each part; empty unless the variance was asked for.
    points : ndarray of int64, shape (2, n + m)
        Each point's sum of k, over the other points of its sample and over the other sample, in units of the grid
        `point_exponent`. Integers can be added in any order.
    """

    totals: tuple[list[float], list[float], list[float]]
    squares: tuple[list[float], list[float], list[float]]
    points: Ints


class Discrepancy(Kernel):
    """A + C - 2D, or with the sign -1 its negative, for a symmetric k of two points."""

    degrees = (2, 2)
    n_parts = 3
    projection_rows = 5000
    limits = (0.0, math.inf)
    complete_route = Route("energy", "mpi_ustat.complete.energy:energy", by_tuples=True)
    influence_route = "mpi_ustat.influence.discrepancy:discrepancy"
    has_components = False
    has_own_variance = True
    all_columns = True
    sign = 1

    def evaluations(self, sums: tuple[PairSum, ...]) -> int:
        """Return the number of pairs behind these sums: of all three parts."""
        return sum(part.n_pairs for part in sums)

    @abstractmethod
    def fill(self, left: Points, right: Points, out: Floats) -> None:
        """Write k of all pairs of (a, d) and (b, d) points into a contiguous array of shape (a, b)."""

    @classmethod
    def fill_each(
        cls, kernels: Sequence[Self], left: Points, right: Points, out: Floats, spare: Floats
    ) -> Iterator[Floats]:
        """Yield k of all pairs by several kernels of this class, one after the other, in arrays that are used again.

        A class whose kernels have work in common does that once; `spare` is a second array like `out` for it.
        """
        for kernel in kernels:
            kernel.fill(left, right, out)
            yield out

    @abstractmethod
    def aligned(self, left: Points, right: Points) -> Floats:
        """Return k of aligned pairs of (B, d) points, shape (B,)."""

    @abstractmethod
    def bound(self, low: Floats, high: Floats) -> float:
        """Return a bound of |k| over points whose d coordinates lie between `low` and `high`."""

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused
    def combine(self, means: Floats) -> Floats:
        """Return the statistic, shape (1,), from A, C and D."""
        within_x, within_z, across = means
        return np.array([self.sign * (within_x + within_z - 2.0 * across) + 0.0])  # not -0

    def gradient(self, means: Floats) -> Floats:
        """Return the derivatives of the statistic by A, C and D, shape (1, 3)."""
        return self.sign * np.array([[1.0, 1.0, -2.0]])

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the share of each point in A, C and D, as derivatives: twice a mean within its sample, one across.

        With the derivatives of the statistic they make u(x) = 2 (a - d), and v(z), of `estimate_variance`.
        """
        rows = as_rows(points)
        found = np.zeros((len(rows), 3))
        for part, other, times in ((k, others[k], 2.0), (_ACROSS, others[1 - k], 1.0)):
            columns = as_rows(other)
            for i in range(0, len(rows), _ROWS):
                tile = np.empty((len(rows[i : i + _ROWS]), len(columns)))
                self.fill(rows[i : i + _ROWS], columns, tile)
                found[i : i + _ROWS, part] = times * tile.mean(axis=1)
        return found

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Return the sums of k within x, within z and across."""
        x, z = as_pair(*blocks)
        totals = sweep(self, x, z, strips(len(x), len(z)), variance=False).totals
        return pair_sums([finite(add(tiles)) for tiles in totals], len(x), len(z))

    def value_tiles(self, *blocks: Points) -> Iterator[tuple[slice, slice, Floats]]:
        """Yield k of the pairs across two blocks, or inside one: of any one of the three parts."""
        x, z = as_pair(blocks[0], blocks[-1])
        within = len(blocks) == 1
        for i in range(0, len(x), _ROWS):
            rows = x[i : i + _ROWS]
            for j in range(i if within else 0, len(z), _ROWS):
                columns = z[j : j + _ROWS]
                tile = np.empty((len(rows), len(columns)))
                self.fill(rows, columns, tile)
                yield slice(i, i + _ROWS), slice(j, j + _ROWS), (np.triu(tile, 1) if within and i == j else tile)[None]

    def own_variance(self, *blocks: Points) -> Variance:
        """Return an estimate of the variance of the discrepancy of two blocks of 4 points or more."""
        x, z = as_pair(*blocks)
        moments = sweep(self, x, z, strips(len(x), len(z)), variance=True)
        totals, squares = ([float(add(tiles)) for tiles in part] for part in (moments.totals, moments.squares))
        return estimate_variance(self, x, z, totals, squares, moments.points)

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Return the sums of k over B pairs of x, B pairs of z and the 4B values across that these points give."""
        x1, x2, z1, z2 = (as_rows(each) for each in points)
        across = add(float(self.aligned(x, z).sum()) for x in (x1, x2) for z in (z1, z2))
        within = (PairSum(float(self.aligned(*pair).sum()), len(x1)) for pair in ((x1, x2), (z1, z2)))
        return (*within, PairSum(across, 4 * len(x1)))


def squared(differences: Points) -> Floats:
    """Return the squared lengths of rows."""
    return np.asarray(np.einsum("ij,ij->i", differences, differences))


def strips(n: int, m: int) -> list[Strip]:
    """Return the strips of a block of n and m points, those with most pairs first: they partition all its pairs."""
    within = [(part, start, size - start) for part, size in ((0, n), (1, m)) for start in range(0, size, _ROWS)]
    across = [(_ACROSS, start, m) for start in range(0, n, _ROWS)]
    return [Strip(part, start) for part, start, _ in sorted(within + across, key=lambda strip: -strip[2])]


def n_tiles(strip: Strip, n: int, m: int) -> int:
    """Return into how many tiles a strip of a block of n and m points is cut."""
    return sum(1 for _ in _column_tiles(strip, (n, m, m)[strip.part]))


def _column_tiles(strip: Strip, n_columns: int) -> Iterator[tuple[int, int]]:
    """Yield where the tiles of a strip begin and end; within a sample the first is the square on the diagonal."""
    first = 0
    if strip.part != _ACROSS:
        first = min(strip.start + _ROWS, n_columns)
        yield strip.start, first
    for begin in range(first, n_columns, _COLUMNS):
        yield begin, min(begin + _COLUMNS, n_columns)


@np.errstate(over="ignore", invalid="ignore")
def sweep(kernel: Discrepancy, x: Points, z: Points, chosen: Iterable[Strip], *, variance: bool) -> Moments:
    """Return the contributions of some strips of a block to its sums and, with `variance`, to its sums of squares.

    Pivot and grid are those of the whole block, x and z, whatever strips are chosen.
    """
    n, m = len(x), len(z)
    pairs_of = ((x, x), (z, z), (x, z))
    moments = Moments(([], [], []), ([], [], []), np.zeros((2, n + m if variance else 0), dtype=np.int64))
    exponent = point_exponent(kernel, x, z) if variance else None
    pivots = _pivots(kernel, x, z) if variance else (0.0, 0.0, 0.0)
    buffer, row_buffer = np.empty(_ROWS * _COLUMNS), np.empty(_ROWS)
    column_buffer = np.empty(max(n, m))
    for strip in chosen:
        left, right = pairs_of[strip.part]
        rows = left[strip.start : strip.start + _ROWS]
        row_sums, of_tile = np.zeros(len(rows)), row_buffer[: len(rows)]
        column_sums = column_buffer[: len(right)]
        for begin, end in _column_tiles(strip, len(right)):
            tile = buffer[: len(rows) * (end - begin)].reshape(len(rows), end - begin)
            diagonal = strip.part != _ACROSS and begin == strip.start
            share = 0.5 if diagonal else 1.0  # the square on the diagonal has each pair twice
            kernel.fill(rows, right[begin:end], tile)
            if diagonal:
                np.fill_diagonal(tile, 0.0)
            np.add.reduce(tile, axis=1, out=of_tile)
            moments.totals[strip.part].append(share * float(of_tile.sum()))
            if exponent is None:
                continue
            row_sums += of_tile
            np.add.reduce(tile, axis=0, out=column_sums[begin:end])
            tile -= pivots[strip.part]
            if diagonal:
                np.fill_diagonal(tile, 0.0)
            moments.squares[strip.part].append(share * float(np.einsum("ij,ij->i", tile, tile).sum()))
        if exponent is None:
            continue
        stop = strip.start + len(rows)
        if strip.part == _ACROSS:
            _add_on_grid(moments.points[1, strip.start : stop], row_sums, exponent)
            _add_on_grid(moments.points[1, n:], column_sums, exponent)
        else:
            own = moments.points[0, :n] if strip.part == _WITHIN_X else moments.points[0, n:]
            _add_on_grid(own[strip.start : stop], row_sums, exponent)
            _add_on_grid(own[stop:], column_sums[stop:], exponent)
    return moments


def _add_on_grid(points: Ints, sums: Floats, exponent: int) -> None:
    points += np.rint(np.ldexp(sums, exponent)).astype(np.int64)


def point_exponent(kernel: Discrepancy, x: Points, z: Points) -> int | None:
    """Return e such that a point's sums times 2^e are integers below 2^61; None where distances may overflow.

    A strip's share is rounded by at most half a unit, which is 2^-61 of the largest sum a point could have.
    """
    pooled = [points for points in (x, z) if len(points)]
    low, high = (np.array([extreme(each, axis=0) for each in pooled]) for extreme in (np.min, np.max))
    bound = max(len(x), len(z)) * kernel.bound(low.min(axis=0), high.max(axis=0))
    return _POINT_BITS - math.frexp(bound)[1] if math.isfinite(bound) else None


def _pivots(kernel: Discrepancy, x: Points, z: Points) -> tuple[float, ...]:
    """Return a value near the mean of k for each part.

    Sums of squares about it lose no digits when they are moved to the mean, however far from 0 all values are.
    """
    some = [points[:: -(-len(points) // _PIVOT_POINTS)] for points in (x, z)]
    pairs = [(points[::2], points[1::2]) for points in some] + [(some[0], some[1])]
    means = []
    for left, right in pairs:
        values = np.empty((len(left), len(right)))
        kernel.fill(left, right, values)
        mean = float(values.mean())
        means.append(mean if math.isfinite(mean) else 0.0)
    return tuple(means)


def pair_sums(totals: Sequence[float], n: int, m: int) -> tuple[PairSum, ...]:
    """Return the sums over the pairs within x, within z and across."""
    counts = (math.comb(n, 2), math.comb(m, 2), n * m)
    return tuple(PairSum(total, count) for total, count in zip(totals, counts, strict=True))


def finite(total: float) -> float:
    """Return a sum, NaN for one that has overflowed."""
    return total if math.isfinite(total) else math.nan


def estimate_variance(
    kernel: Discrepancy, x: Points, z: Points, totals: Sequence[float], squares: Sequence[float], points: Ints
) -> Variance:
    """Return an unbiased estimate of Var(A + C - 2D) from the moments of all strips; n, m >= 4.

    Let k(x, x') = EA + a(x) + a(x') + r_A(x, x'), alike for z, and k(x, z) = ED + d(x) + e(z) + r_D(x, z) be the
    Hoeffding decompositions, δ the variances of the remainders r. All terms below are uncorrelated, because a remainder
    has mean 0 given one of its points:

        A + C - 2D - θ = (1/n) Σ u(x_i) + (1/m) Σ v(z_j) + r̄_A + r̄_C - 2 r̄_D,      u = 2(a - d),  v = 2(c - e),
        Var = Var(u)/n + Var(v)/m + 2δ_A/(n(n-1)) + 2δ_C/(m(m-1)) + 4δ_D/(nm).

    With ā_i the mean of k(x_i, ·) over the other x and d̄_i over z, let u_i = 2(n-1)/(n-2)·(ā_i - A) - 2(d̄_i - D). As
    ā_i - A = (n-2)/(n-1)·(a_i - ā) + r̄_i - r̄_A, r̄_i the mean of n - 1 remainders, u_i is u(x_i) - ū and two terms of
    remainders uncorrelated with it and each other. Two r̄_i share one remainder: their variance less their covariance
    is δ_A/(n-1) - δ_A/(n-1)² = δ_A (n-2)/(n-1)². Hence the sample variance S_u² has the mean

        E S_u² = Var(u) + 4δ_A/(n-2) + 4δ_D/m,

    and with unbiased estimates of δ_A (`one_sample_components`), δ_D (`two_sample_components`) and δ_C

        V̂ = first_order + 2δ̂_A/(n(n-1)) + 2δ̂_C/(m(m-1)) + 4δ̂_D/(nm),
        first_order = [S_u² - 4δ̂_A/(n-2) - 4δ̂_D/m]/n + [S_v² - 4δ̂_C/(m-2) - 4δ̂_D/n]/m

    are unbiased. If both distributions are equal, u = v = 0: θ̂ then is of the order 1/n, not 1/√n, and its limit is a
    weighted sum of centred χ² variables.

    Parameters
    ----------
    totals, squares, points
        Of `Moments`, added over all strips.
    """
    n, m = len(x), len(z)
    exponent = point_exponent(kernel, x, z)
    if exponent is None or exponent > _VANISHING or not np.isfinite([*totals, *squares]).all():
        return Variance(math.nan, math.nan)
    of_points = np.ldexp(points.astype(np.float64), -exponent)
    a, c = of_points[0, :n] / (n - 1), of_points[0, n:] / (m - 1)
    d, e = of_points[1, :n] / m, of_points[1, n:] / n
    centred_squares = [
        square - count * (total / count - pivot) ** 2
        for square, (total, count), pivot in zip(squares, pair_sums(totals, n, m), _pivots(kernel, x, z), strict=True)
    ]
    delta_a, delta_c = (
        float(one_sample_components(size, _spread(means), square)[1, 0, 0])
        for size, means, square in ((n, a, centred_squares[_WITHIN_X]), (m, c, centred_squares[_WITHIN_Z]))
    )
    delta_d = float(two_sample_components(n, m, _spread(d), _spread(e), centred_squares[_ACROSS])[2, 0, 0])
    u = 2.0 * (n - 1) / (n - 2) * (a - a.mean()) - 2.0 * (d - d.mean())
    v = 2.0 * (m - 1) / (m - 2) * (c - c.mean()) - 2.0 * (e - e.mean())
    of_x = _spread(u) / (n - 1) - 4.0 * delta_a / (n - 2) - 4.0 * delta_d / m
    of_z = _spread(v) / (m - 1) - 4.0 * delta_c / (m - 2) - 4.0 * delta_d / n
    first_order = of_x / n + of_z / m
    deltas = (delta_a, delta_c, delta_d)
    return Variance(first_order + second_order(deltas, n, m), first_order, (of_x, of_z), deltas)


def second_order(deltas: Sequence[float], n: ArrayLike, m: ArrayLike) -> float:
    """Return the part of the variance that the remainders make, 2δ_A/(n(n-1)) + 2δ_C/(m(m-1)) + 4δ_D/(nm).

    With arrays of sizes, the variance of the mean over independent blocks of these.
    """
    n, m = np.asarray(n, dtype=np.float64), np.asarray(m, dtype=np.float64)
    of_blocks = 2.0 * deltas[0] / (n * (n - 1)) + 2.0 * deltas[1] / (m * (m - 1)) + 4.0 * deltas[2] / (n * m)
    return float(np.sum(of_blocks)) / float(np.size(of_blocks)) ** 2


def _spread(values: Floats) -> float:
    """Return the sum of squares about the mean."""
    return float(np.sum((values - values.mean()) ** 2))
