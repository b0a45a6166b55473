"""The complete two-sample Gini mean difference of distributed numbers, with its components, range by range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpi_ustat.complete.sorting import exchange_runs, hosted_ranges, splitters
from mpi_ustat.inference.components import two_sample_components
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import Kernel, Local, PairSum, Whole
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats


def gini(
    comm: Any, samples: Sequence[Exchange], kernel: Kernel, n_workers: int, streams: Streams, *, components: bool = True
) -> Whole:
    """Return Σ_kl |x_k - z_l| and the components of h(x, z) = |x - z|.  Collective.

    Let v be the pooled distinct values, g_j = v_{j+1} - v_j their gaps, F_j and G_j the numbers of x and of z up to
    v_j. A pair is as far apart as the gaps between its points, so

        α = Σ_kl (z_l - x_k)⁺ = Σ_j g_j F_j (m - G_j),    β = Σ_kl (x_k - z_l)⁺ = Σ_j g_j G_j (n - F_j),

    and Σ_kl |x_k - z_l| = α + β. Likewise the sum of a row, of a value v_i of x, is

        Σ_l |v_i - z_l| = Σ_{j<i} g_j G_j + Σ_{j>=i} g_j (m - G_j),

    and a column's is the same with F and n. All these terms are non-negative: nothing cancels, however far from zero
    the numbers lie. The squares follow from β - α = nm (x̄ - z̄), by which Σ (x_k-z_l)² = m Σ (x-x̄)² + n Σ (z-z̄)² +
    (β-α)²/(nm) and

        Σ_kl (h - h̄)² = Σ_kl (x_k-z_l)² - (α+β)²/(nm) = m Σ (x-x̄)² + n Σ (z-z̄)² - 4αβ/(nm).

    Each of the N ranges is summed as one array of distinct values and the ranges' sums are added in their order, so
    that the number of ranks changes no bit. O(n log n / P).

    Returns
    -------
    Whole
        Components of shape (3, 1, 1), or None if a sample has a single number or they are not wanted.
    """
    bounds = splitters(comm, samples, n_workers, streams)
    stretches, sent = exchange_runs(comm, samples, bounds)
    n, m = (sample.n_rows for sample in samples)
    x_ranges, z_ranges = (hosted_ranges(comm, stretch, bounds) for stretch in stretches)
    own = _ranges(comm, x_ranges, z_ranges, n, m)
    sums, before = _in_range_order(comm, [each.sums() for each in own])
    total = add([*sums[:, 0], *sums[:, 1]])
    found = None
    if components and min(n, m) > 1:
        alpha, beta, x_mean, z_mean = add(sums[:, 0]), add(sums[:, 1]), add(sums[:, 6]) / n, add(sums[:, 7]) / m
        own_squares = [
            each.squares(sums, i, total / (n * m), x_mean, z_mean) for i, each in enumerate(own, start=before)
        ]
        rows, columns, of_x, of_z = (add(column) for column in _in_range_order(comm, own_squares)[0].T)
        squares = m * of_x + n * of_z - 4.0 * alpha * (beta / (n * m))
        found = two_sample_components(n, m, rows, columns, squares)
    return Whole(Local((PairSum(total, n * m),), found), sent)


class _Range(NamedTuple):
    """The distinct values of one range, pooled, the gap above each, and the numbers of x and z up to it."""

    x: Runs
    z: Runs
    values: Floats
    gaps: Floats
    f: Floats
    g: Floats
    n: int
    m: int

    def sums(self) -> list[float]:
        """Return the range's shares of α and β, of the sums of rows and columns below and above, and Σ x and Σ z."""
        f, g = self.f, self.g
        below_above = [f * (self.m - g), g * (self.n - f), g, self.m - g, f, self.n - f]
        return [*(float(np.sum(self.gaps * each)) for each in below_above), _weighted(self.x), _weighted(self.z)]

    def squares(self, sums: Floats, i: int, mean: float, x_mean: float, z_mean: float) -> list[float]:
        """Return Σ (r̄ - h̄)², Σ (c̄ - h̄)², Σ (x - x̄)² and Σ (z - z̄)² over the range."""
        found: list[float] = []
        for runs, counts, size, column in ((self.x, self.g, self.m, 2), (self.z, self.f, self.n, 4)):
            below = np.cumsum(np.append(add(sums[:i, column]), self.gaps * counts))[:-1]
            above = np.cumsum(np.append(add(sums[i + 1 :, column + 1]), (self.gaps * (size - counts))[::-1]))[:0:-1]
            margins = (below + above)[look_up(self.values, runs.values, "left")] / size
            found.append(_weighted(runs, (margins - mean) ** 2))
        moments = [_weighted(runs, (runs.values - mean) ** 2) for runs, mean in ((self.x, x_mean), (self.z, z_mean))]
        return [*found, *moments]


def _weighted(runs: Runs, values: Floats | None = None) -> float:
    assert runs.counts is not None
    return float(np.sum(runs.counts * (runs.values if values is None else values)))


def _ranges(comm: Any, x_ranges: list[Runs], z_ranges: list[Runs], n: int, m: int) -> list[_Range]:
    """Return this rank's ranges; each needs to know the numbers of points below it and the first value above it."""
    own = [(x.distinct(), z.distinct()) for x, z in zip(x_ranges, z_ranges, strict=True)]
    facts = [(x.n_points, z.n_points, _lowest(x, z)) for x, z in own]
    everyone = comm.allgather(facts)
    known = [fact for facts_of_rank in everyone for fact in facts_of_rank]
    first = sum(len(facts_of_rank) for facts_of_rank in everyone[: comm.rank])
    found = []
    for j, (x, z) in enumerate(own, start=first):
        values = Runs(np.sort(np.concatenate([x.values, z.values]))).distinct().values
        above = next((fact[2] for fact in known[j + 1 :] if fact[2] is not None), None)
        f = sum(fact[0] for fact in known[:j]) + x.up_to(values).astype(np.float64)
        g = sum(fact[1] for fact in known[:j]) + z.up_to(values).astype(np.float64)
        gaps = np.diff(values, append=values[-1:] if above is None else [above]) if len(values) else values
        found.append(_Range(x, z, values, gaps, f, g, n, m))
    return found


def _lowest(x: Runs, z: Runs) -> float | None:
    return min((float(runs.values[0]) for runs in (x, z) if len(runs.values)), default=None)


def _in_range_order(comm: Any, rows: list[list[float]]) -> tuple[Floats, int]:
    """Return the rows of all ranges, in order, and how many are before this rank's."""
    everyone = comm.allgather(rows)
    return np.array([row for of_rank in everyone for row in of_rank]), sum(map(len, everyone[: comm.rank]))
