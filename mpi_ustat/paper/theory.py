"""The paper's variances under the paper's names.

The paper is Vogel, Bellet, Clémençon, Jelassi and Papa, *Trade-offs in Large-Scale Distributed Tuplewise Estimation and
Learning* (ECML PKDD 2019). Its formulas are cases of the coefficients that a scheme object gives (`variance`), and
`mpi_ustat.schemes.k_samples` proves them. Theorems 1 and 2 are `variance_prop_swor`, Theorems 3 and 4 of the supplement
`variance_prop_swr`, and `printed_prop_swr` as printed.

n, m, N, T and B are the arguments `n`, `m`, `n_workers`, `n_rounds` and `n_pairs`; without B all local pairs are
evaluated, and N may divide n and m or not. Other options are those of a `Design`. Variances have the square of the
kernel's unit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpi_ustat.paper.models import Components
from mpi_ustat.schemes.prop_swor import PropSwor
from mpi_ustat.schemes.prop_swr import PropSwr
from mpi_ustat.schemes.registry import COMPLETE
from mpi_ustat.schemes.swor import Swor
from mpi_ustat.schemes.variance import Design, coefficients


def variance(components: Components, n: int, m: int, design: Design, *, expectation: float = 0.0) -> float:
    """Return the variance of the estimator that a design makes: what its scheme's coefficients make of the components.

    Parameters
    ----------
    expectation : float
        U = E h(X, Z), on which the variance depends where workers without a pair contribute 0 by chance (SWOR).

    Raises
    ------
    ValueError
        If the design is impossible, or has no closed form.
    """
    found, square = coefficients((1, 1), (n, m), design)
    return float(found @ components) + square * expectation**2


def variance_complete(components: Components, n: int, m: int) -> float:
    """Return V_n = Var(U_n) = σ₁²/n + σ₂²/m + σ₀²/(nm) (Hoeffding 1948)."""
    return variance(components, n, m, Design(scheme=COMPLETE.name))


def variance_incomplete(components: Components, n: int, m: int, n_pairs: int, *, distinct: bool = False) -> float:
    """Return (1 - 1/B) V_n + σ²/B, the variance of the mean over B pairs drawn from all n·m (Blom 1976).

    Of B distinct pairs it is V_n + (σ² - V_n)(nm - B)/(B (nm - 1)).
    """
    return variance(components, n, m, Design(scheme=COMPLETE.name, n_pairs=n_pairs, distinct=distinct))


def variance_prop_swor(components: Components, n: int, m: int, n_workers: int, **options: Any) -> float:
    """Return the variance under prop-SWOR, which is Theorem 1 (T = 1) and Theorem 2 if N divides n and m.

    They are

        Var(Û_{n,N,T}) = V_n + (N - 1) σ₀²/(n m T),
        Var(Ũ_{n,N,B,T}) = Var(Û_{n,N,T}) + σ²/(N T B) - Var(U_{n,N})/(T B).
    """
    return variance(components, n, m, Design(scheme=PropSwor.name, n_workers=n_workers, **options))


def variance_prop_swr(components: Components, n: int, m: int, n_workers: int, **options: Any) -> float:
    """Return the variance under prop-SWR, V_n + [V_R - V_n + (σ² - V_R)/B]/(N T): Theorems 3 and 4, corrected.

    V_R = Var(U_R) is the variance of the complete statistic on a block of n/N points drawn from n with replacement, and
    m/N from m,

        V_R = σ₁²/n (1 + N(1 - 1/n)) + σ₂²/m (1 + N(1 - 1/m))
            + σ₀²/(nm) (1 + N²(1 - 1/n)(1 - 1/m) + N(2 - 1/n - 1/m)).

    **Erratum.** So the paper prints it for complete blocks, but not for B pairs: see `printed_prop_swr`.
    """
    return variance(components, n, m, Design(scheme=PropSwr.name, n_workers=n_workers, **options))


def printed_prop_swr(
    components: Components, n: int, m: int, n_workers: int, *, n_pairs: int, n_rounds: int = 1
) -> float:
    """Return the paper's printed variance for B pairs a block under prop-SWR, which is wrong, so that it can be shown.

    B pairs of a block add (σ² - V_R)/(N B T), where V_R is the variance of a block of n/N points drawn from *n*. The
    paper subtracts Var(U_{n/N,1}) instead, its complete formula with n/N, m/N and a single worker in place of n, m and
    N, that is a block of n/N points drawn from only n/N. That one has more repeated points, so the printed variance is
    too small. With n = 40, m = 20, N = 5, B = 1, T = 1 and the product kernel of two unit-variance normals with means
    2, the corrected formula gives 2.0410, the printed one 1.8389, and the simulation in
    ``test_printed_prop_swr_incomplete_formula_fails`` agrees with the former and rejects the latter.

    Raises
    ------
    ValueError
        If N does not divide n and m.
    """
    _check_divides(n, m, n_workers)
    rows = n // n_workers, m // n_workers
    block = Design(scheme=PropSwr.name, block_sizes=(((rows[0],), (rows[1],)),))
    right, printed = variance(components, n, m, block), variance(components, *rows, block)
    corrected = variance_prop_swr(components, n, m, n_workers, n_rounds=n_rounds, n_pairs=n_pairs)
    return corrected + (right - printed) / (n_workers * n_pairs * n_rounds)


def variance_swor(
    components: Components, n: int, m: int, n_workers: int, *, expectation: float, **options: Any
) -> float:
    """Return the variance under SWOR, a worker without a pair contributing 0 and N always the divisor.

    The estimator is biased: its mean is U times `swor_bias_factor`.

    Parameters
    ----------
    expectation : float
        U.
    """
    design = Design(scheme=Swor.name, empty="zero", n_workers=n_workers, **options)
    return variance(components, n, m, design, expectation=expectation)


def dominance_gap(components: Components, n: int, m: int, n_workers: int, n_pairs: int, total_pairs: float) -> float:
    """Return Δ = Var(Ũ_{n,N,B,T'}) - Var(Û_{n,N,T}) under prop-SWOR at equal numbers of evaluated pairs.

    Statement. Let K = N B T' = T nm/N be the number of pairs that either estimator evaluates, N dividing n and m. Then

        K Δ = σ₁² (1 - N/n) + σ₂² (1 - N/m) + σ₀² [(1 - N²/(nm))/N + N (N - 1)(B - 1)/(nm)]  >=  0:

    who can pay K pairs has a smaller variance with complete blocks and T repartitions than with B pairs a block and
    the T' = K/(N B) repartitions that cost as many pairs. If σ₀² > 0, equality holds iff B = 1 and nm = N² (a point of
    each class per worker: the two are the same), apart from n = m = N = 1, where any B gives the one value.

    Derivation. By Theorem 2, with V₁ - V_n = (N - 1) σ₀²/(nm) and local variance
    V_R = σ₁² N/n + σ₂² N/m + σ₀² N²/(nm),

        K [Var(Ũ) - V_n] = N B (V₁ - V_n) + σ² - V_R,       K [Var(Û) - V_n] = (nm/N)(V₁ - V_n) = (N - 1) σ₀²/N.

    Subtract and collect: the factor of σ₀² is N (N - 1) B/(nm) + 1 - N²/(nm) - (N - 1)/N, which is the bracket above.
    Every term is non-negative since N <= n, N <= m, B >= 1; the bracket vanishes iff N² = nm and (N - 1)(B - 1) = 0.

    Parameters
    ----------
    n_pairs : int
        B of the incomplete estimator.
    total_pairs : float
        K > 0; T = K N/(nm) and T' = K/(N B) need not be whole numbers for the formula.

    Returns
    -------
    float
        Δ, in the squared unit of the kernel.

    Raises
    ------
    ValueError
        If N does not divide n and m, B < 1 or K <= 0.
    """
    _check_divides(n, m, n_workers)
    if n_pairs < 1 or total_pairs <= 0:
        raise ValueError("the numbers of pairs must be positive")
    slack = 1.0 - n_workers**2 / (n * m)
    bracket = slack / n_workers + n_workers * (n_workers - 1) * (n_pairs - 1) / (n * m)
    own = components.var_x * (1.0 - n_workers / n) + components.var_z * (1.0 - n_workers / m)
    return (own + components.var_xz * bracket) / total_pairs


def variance_standard_error(variance: float, fourth_moment: float, n_runs: int) -> float:
    """Return the standard error of an empirical variance over R runs: √[(μ₄ - σ⁴ (R - 3)/(R - 1))/R].

    Exact for the unbiased (divisor R - 1) variance of independent runs.

    Parameters
    ----------
    variance : float
        σ² of one run.
    fourth_moment : float
        μ₄ = E(value - mean)⁴ of one run.
    n_runs : int
        R >= 2.

    Raises
    ------
    ValueError
        If R < 2.
    """
    if n_runs < 2:
        raise ValueError("an empirical variance needs at least two runs")
    # Empirical moments of a two-point law can make the difference a rounding error below zero.
    return float(np.sqrt(max(fourth_moment - variance**2 * (n_runs - 3) / (n_runs - 1), 0.0) / n_runs))


def _check_divides(n: int, m: int, n_workers: int) -> None:
    if n < 1 or m < 1 or n_workers < 1 or n % n_workers or m % n_workers:
        raise ValueError(f"{n_workers} workers must divide both sample sizes, {n} and {m}")
