"""The AUCs of q columns of scores of the same points: their covariances, from counts of every two columns.

With 2h = 1{z < x} + 1{z <= x}, or 2·1{z < x} where ties count nothing, R_k = Σ_l 2h_kl and C_l = Σ_k 2h_kl, the
covariances take Σ_k R_ak R_bk, Σ_l C_al C_bl and Σ_kl (2h_a)(2h_b) of columns a and b (`count_components`). The
first two are products of a matrix with itself; so is the third where pairs are few, and otherwise it is four counts of
the pairs whose x exceeds z, strictly or not, in both columns. All are whole numbers, exact at any size.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.kernels.auc_margins import count_components
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.dominance import count_dominated
from mpi_ustat.numerics.exactsum import Integers, exact_count, gram, products
from mpi_ustat.numerics.types import Floats, Ints

Steps = Callable[[Iterable[Any]], Iterable[Any]]

_EXACT = 2**53  # whole numbers up to here are doubles
_EXACT_SINGLE = 2**22  # sums of so many products of 0, 1 and 2 are exact in single precision
_TILE = 1 << 22  # comparisons at a time: matrices of 16 MiB


def auc_columns_components(x: Points, z: Points, half: bool) -> Floats:
    """Return the components, shape (3, q, q), of the AUCs of q columns of the same points, each rounded once."""
    (n, q), m = x.shape, len(z)
    margins = [column_margins(x[:, a], z[:, a], half) for a in range(q)]
    rows, columns = zip(*margins, strict=True)
    totals = [exact_count(each, 2 * m) for each in rows]
    return columns_components(n, m, totals, products(rows, 2 * m), products(columns, 2 * n), joint_wins(x, z, half))


def column_margins(x: Floats, z: Floats, half: bool) -> tuple[Ints, Ints]:
    """Return R and C of one column of scores."""
    x_sorted, z_sorted = np.sort(x), np.sort(z)
    if not half:
        return 2 * np.searchsorted(z_sorted, x, "left"), 2 * (len(x) - np.searchsorted(x_sorted, z, "right"))
    rows = np.searchsorted(z_sorted, x, "left") + np.searchsorted(z_sorted, x, "right")
    below = np.searchsorted(x_sorted, z, "left") + np.searchsorted(x_sorted, z, "right")
    return rows, 2 * len(x) - below


def joint_wins(x: Points, z: Points, half: bool, steps: Steps = iter) -> Integers:
    """Return Σ_kl (2h_a)(2h_b) for all columns a and b, shape (q, q).

    What the `steps` of a long computation pass through may announce them, such as `mpi.runtime.announced`.
    """
    (n, q), m = x.shape, len(z)
    # Nanoseconds, roughly: to compare two points in all columns and multiply; and of one count (see `count_dominated`).
    of_tiles = 2.2 * n * m * q
    of_count = 10_000.0 + n * m if n * m <= 1 << 14 else 600_000.0 + 250.0 * (n + m)
    if of_tiles <= q * (q + 1) / 2 * of_count:
        return _by_tiles(x, z, half, steps)
    columns = [_ranked(x[:, a], z[:, a], half) for a in range(q)]
    found = np.empty((q, q), dtype=np.int64 if 4 * n * m < 2**63 else object)
    for a, b in steps(list(itertools.combinations_with_replacement(range(q), 2))):
        found[a, b] = found[b, a] = _joint(columns[a], columns[b])
    return found


def _by_tiles(x: Points, z: Points, half: bool, steps: Steps) -> Integers:
    """Compare all points in all columns, a tile of pairs at a time: Σ_kl (2h_a)(2h_b) is a product of matrices."""
    (n, q), m = x.shape, len(z)
    found = np.zeros((q, q), dtype=np.int64)
    across = max(1, min(m, _EXACT_SINGLE, _TILE // q))
    down = max(1, min(_EXACT_SINGLE, _TILE // q) // across)
    starts = [(i, j) for i in range(0, n, down) for j in range(0, m, across)]
    of_x, of_z = (np.ascontiguousarray(each.T) for each in (x, z))  # a column's scores side by side
    for i, j in steps(starts):
        a, b = of_x[:, i : i + down, None], of_z[:, None, j : j + across]
        twice = np.less(b, a).astype(np.float32)
        twice += np.less_equal(b, a) if half else twice
        found += gram(twice.reshape(q, -1)).astype(np.int64)
    return found


class _Ranked(NamedTuple):
    """One column: twice the dense ranks of x and z, and the offsets of `_joint`."""

    x: Ints
    z: Ints
    offsets: tuple[int, ...]


def _ranked(x: Floats, z: Floats, half: bool) -> _Ranked:
    """Return a column's ranks: z < x iff 2r_z < 2r_x, and z <= x iff 2r_z < 2r_x + 1, also for infinite values."""
    ranks = np.unique(np.concatenate([x, z]), return_inverse=True)[1]
    of_x, of_z = ranks[: len(x)], ranks[len(x) :]
    ties = half and len(np.intersect1d(of_x, of_z)) > 0
    return _Ranked(2 * of_x, 2 * of_z, (0, 1) if ties else (0, 0))


def _joint(a: _Ranked, b: _Ranked) -> int:
    """Return Σ_kl (2h_a)(2h_b), 2h = 1{2r_z < 2r_x + first offset} + 1{2r_z < 2r_x + second offset}."""
    terms = Counter(itertools.product(a.offsets, b.offsets))
    return sum(times * count_dominated(a.z, b.z, a.x + i, b.x + j) for (i, j), times in terms.items())


def columns_components(
    n: int, m: int, totals: list[int], rows: Integers, columns: Integers, squares: Integers
) -> Floats:
    """Return `auc_margins.count_components` of every two columns, shape (3, q, q), each rounded once."""
    q = len(totals)
    if 4 * n**2 * m**2 * (max(n, m) + 2) < _EXACT:  # then so is every whole number in it, and quotients are as Python's
        total = np.array(totals, dtype=np.int64)
        return np.array(count_components(n, m, np.outer(total, total), rows, columns, squares))
    components = np.empty((3, q, q))
    for a, b in itertools.combinations_with_replacement(range(q), 2):
        counts = (int(each[a, b]) for each in (rows, columns, squares))
        components[:, a, b] = components[:, b, a] = count_components(n, m, totals[a] * totals[b], *counts)
    return components


def sampled_components(n: int, m: int, totals: Sequence[int], rows: Any, columns: Any, second: Floats) -> Floats:
    """Return the components (3, q, q) from Σ_k R_ak R_bk, Σ_l C_al C_bl, the totals T_a, and σ₀² from elsewhere.

    r̄ = R/(2m) has the covariance (n ΣR_a R_b - T_a T_b)/(4 n m² (n-1)), whole numbers up to the quotient.
    """
    found = np.empty((3, *second.shape))
    for a, b in itertools.combinations_with_replacement(range(len(totals)), 2):
        product = totals[a] * totals[b]
        of_rows = (n * int(rows[a, b]) - product) / (4 * n * m * m * (n - 1))
        of_columns = (m * int(columns[a, b]) - product) / (4 * m * n * n * (m - 1))
        found[:, a, b] = found[:, b, a] = of_rows - second[a, b] / m, of_columns - second[a, b] / n, second[a, b]
    return found
