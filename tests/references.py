"""Numbers that tests compare with, and that the program has no need of."""

from __future__ import annotations

from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.discrepancy import Discrepancy, Variance, estimate_variance, finite, pair_sums, strips, sweep
from mpi_ustat.kernels.kernel import PairSum, Points, as_pair
from mpi_ustat.paper.models import OneSampleComponents


def sums_and_variance(kernel: Discrepancy, x: Points, z: Points) -> tuple[tuple[PairSum, ...], Variance | None]:
    """Return the sums of a discrepancy over all pairs and, where n, m >= 4, the estimated variance of the statistic.

    In one process and one sweep: what the distributed route must find.
    """
    x, z = as_pair(x, z)
    n, m = len(x), len(z)
    variance = min(n, m) >= 4
    moments = sweep(kernel, x, z, strips(n, m), variance=variance)
    totals, squares = ([finite(add(tiles)) for tiles in each] for each in (moments.totals, moments.squares))
    found = estimate_variance(kernel, x, z, totals, squares, moments.points) if variance else None
    return pair_sums(totals, n, m), found


def normal_half_square(sd: float = 1.0) -> tuple[float, OneSampleComponents]:
    """Return the mean and components of h(x, y) = (x - y)²/2 for a normal sample: the sample variance as a U-statistic.

    The factor ½ matters: (x - y)² estimates twice the variance. h₁(x) = [(x - μ)² + s²]/2, so

        U = s²,   ζ₁ = Var(X²)/4 = s⁴/2,   Var h = Var((X - Y)²)/4 = 2 s⁴,   δ = Var h - 2 ζ₁ = s⁴,

    and 4ζ₁/n + 2δ/(n(n-1)) = 2 s⁴/(n - 1), as it must be.

    Raises
    ------
    ValueError
        If the standard deviation is negative.
    """
    if sd < 0:
        raise ValueError("a standard deviation is not negative")
    return sd**2, OneSampleComponents(zeta1=sd**4 / 2.0, delta=sd**4)
