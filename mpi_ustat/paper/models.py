"""Models whose Hoeffding components are known in closed form: what simulations and figures are compared with.

Two-sample models give `Components` (σ₁², σ₂², σ₀²), one-sample models `OneSampleComponents` (ζ₁, δ).
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Components(NamedTuple):
    """Hoeffding components of a two-sample kernel of degrees (1, 1).

    Attributes
    ----------
    var_x : float
        σ₁² = Var(E[h(X, Z) | X]).
    var_z : float
        σ₂² = Var(E[h(X, Z) | Z]).
    var_xz : float
        σ₀² = Var(h) - σ₁² - σ₂².

    Notes
    -----
    True components are not negative. Unbiased estimates of them can be, and are accepted: clipping one would bias the
    standard error made from them.
    """

    var_x: float
    var_z: float
    var_xz: float

    @property
    def total(self) -> float:
        """σ² = Var(h(X, Z)) = σ₀² + σ₁² + σ₂²."""
        return self.var_x + self.var_z + self.var_xz


class OneSampleComponents(NamedTuple):
    """Hoeffding components of a symmetric kernel of one sample and degree 2.

    Attributes
    ----------
    zeta1 : float
        ζ₁ = Var(E[h(X, Y) | X]).
    delta : float
        δ = Var(h) - 2ζ₁. Unbiased estimates of either may be negative.
    """

    zeta1: float
    delta: float

    @property
    def total(self) -> float:
        """Var(h(X, Y)) = 2ζ₁ + δ."""
        return 2.0 * self.zeta1 + self.delta


def two_point_auc(epsilon: float) -> tuple[float, Components]:
    """Return the mean and components of h(x, z) = 1{z < x} in the two-point model of the paper's third figure.

    X is 2 with probability q and otherwise 0; Z is 1 with probability p and otherwise -1; p = 1 - q = ε. The only
    misordered pair is X = 0, Z = 1, so with the independent indicators A = 1{X = 0} and C = 1{Z = 1}, both of mean ε,

        h = 1 - A C,   U = 1 - ε²,   σ₁² = ε² Var(A) = ε³ (1 - ε) = σ₂²,   σ₀² = Var(A) Var(C) = ε² (1 - ε)².

    Parameters
    ----------
    epsilon : float
        ε in [0, 1].

    Returns
    -------
    (float, Components)
        U, and the components; without unit.

    Raises
    ------
    ValueError
        If ε is not a probability.
    """
    _check_probability(epsilon)
    first = epsilon**3 * (1.0 - epsilon)
    return 1.0 - epsilon**2, Components(var_x=first, var_z=first, var_xz=epsilon**2 * (1.0 - epsilon) ** 2)


def two_point_auc_relative_variance(epsilon: float, n: int, m: int, n_workers: int, n_rounds: int = 1) -> float:
    """Return Var(Û_{n,N,T})/Var(U_n) of the two-point AUC under prop-SWOR, N dividing n and m.

    Theorem 2 divided by V_n = ε³(1-ε)(1/n + 1/m) + ε²(1-ε)²/(nm), with ε²(1-ε)/(nm) cancelled:

        1 + (N - 1)/T · (1 - ε)/(ε (n + m) + 1 - ε).

    At n = 5000, m = 50, N = 10, ε = 0.00016 it is 5.978 for T = 1 and 2.244 for T = 4.

    Raises
    ------
    ValueError
        If ε is not in [0, 1), where the model is degenerate, N does not divide both sizes, or T < 1.
    """
    _check_probability(epsilon)
    if epsilon == 1.0:
        raise ValueError("with ε = 1 the statistic is constant and has no relative variance")
    if n < 1 or m < 1 or n_workers < 1 or n % n_workers or m % n_workers:
        raise ValueError(f"{n_workers} workers must divide both sample sizes, {n} and {m}")
    if n_rounds < 1:
        raise ValueError(f"the number of rounds must be at least 1, not {n_rounds}")
    return 1.0 + (n_workers - 1) / n_rounds * (1.0 - epsilon) / (epsilon * (n + m) + 1.0 - epsilon)


def two_point_auc_informative(epsilon: float, n: int, m: int) -> float:
    """Return the probability that a run of the two-point AUC model has a misordered pair at all, so that U_n < 1.

    1 - U_n = A C/(nm) with independent A ~ Bin(n, ε) and C ~ Bin(m, ε), the numbers of X = 0 and of Z = 1; the
    probability is [1 - (1-ε)ⁿ][1 - (1-ε)ᵐ]. Where it is small, simulate given A, C >= 1 and weigh the moments by it:
    for any of the statistics D = 1 - Û, Var(D) = P E[D² | A, C >= 1] - P² E[D | A, C >= 1]².

    Raises
    ------
    ValueError
        If ε is not a probability or a sample is empty.
    """
    _check_probability(epsilon)
    if n < 1 or m < 1:
        raise ValueError(f"both samples need at least one point, not {n} and {m}")
    if epsilon == 1.0:
        return 1.0
    # expm1/log1p keep the digits of a small ε.
    return math.expm1(n * math.log1p(-epsilon)) * math.expm1(m * math.log1p(-epsilon))


def normal_product(mean_x: float, mean_z: float, sd_x: float = 1.0, sd_z: float = 1.0) -> tuple[float, Components]:
    """Return the mean and components of h(x, z) = x z for independent X and Z (normal, though only two moments matter).

    x z - μ_x μ_z = μ_z (x - μ_x) + μ_x (z - μ_z) + (x - μ_x)(z - μ_z), hence

        U = μ_x μ_z,   σ₁² = μ_z² s_x²,   σ₂² = μ_x² s_z²,   σ₀² = s_x² s_z².

    The paper's second, fifth and sixth figures use unit variances: a small mean makes σ₁² or σ₂² small beside σ₀².

    Raises
    ------
    ValueError
        If a standard deviation is negative.
    """
    if sd_x < 0 or sd_z < 0:
        raise ValueError("a standard deviation is not negative")
    components = Components(var_x=(mean_z * sd_x) ** 2, var_z=(mean_x * sd_z) ** 2, var_xz=(sd_x * sd_z) ** 2)
    return mean_x * mean_z, components


def normal_gini(sd: float = 1.0) -> tuple[float, OneSampleComponents]:
    """Return the mean and components of h(x, y) = |x - y| for a normal sample: Gini's mean difference.

    X - Y is normal with variance 2 s², so U = 2 s/√π and Var h = 2 s² - 4 s²/π. With x in units of s and φ, Φ the
    standard normal density and distribution, h₁(x) = E|x - Y| = 2 φ(x) + x (2Φ(x) - 1), whose variance is (Lomnicki
    1952)

        ζ₁ = s² [1/3 + (2√3 - 4)/π],     δ = Var h - 2 ζ₁.

    Raises
    ------
    ValueError
        If the standard deviation is negative.
    """
    if sd < 0:
        raise ValueError("a standard deviation is not negative")
    zeta1 = 1.0 / 3.0 + (2.0 * math.sqrt(3.0) - 4.0) / math.pi
    variance = 2.0 - 4.0 / math.pi
    mean = 2.0 * sd / math.sqrt(math.pi)
    return mean, OneSampleComponents(zeta1=zeta1 * sd**2, delta=(variance - 2.0 * zeta1) * sd**2)


def _check_probability(epsilon: float) -> None:
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"ε is a probability, not {epsilon}")
