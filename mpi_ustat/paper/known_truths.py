"""Laws of samples under which what a kernel estimates is known, to see whether confidence intervals hold it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.kernels.kernel import Points
from mpi_ustat.kernels.registry import KERNELS
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.paper.models import normal_gini, two_point_auc
from mpi_ustat.paper.montecarlo import NormalProduct, TwoPointAUC
from mpi_ustat.schemes.partition import block_bounds

Sizes = tuple[Ints, ...]
Said = dict[str, tuple[NDArray[Any], ...]]

#: What is added to the scores of each of ten sites: ten normal quantiles, dealt so that neighbours differ.
SITES = (0.13, -1.04, 0.67, -0.39, 1.64, -0.13, -1.64, 0.39, 1.04, -0.67)


@dataclass(frozen=True)
class Model:
    """A law of the samples under which what a kernel estimates is known.

    Attributes
    ----------
    truth : float
        E h, or what the statistic tends to; of two columns the difference of the two.
    sizes : tuple of int
        Points of each sample; about so many where `said` is given, as classes may be drawn, too.
    draw : callable
        ``draw(streams, run)`` gives the samples of a run.
    kernel : str
    kernel_options : dict
    columns : tuple of str
        Of points with several scores, of which the difference is estimated.
    shards : callable, optional
        ``shards(streams, run, n_workers)`` gives the sizes of the shards that a run's points lie in, of each sample; by
        default they are equal.
    varies : bool
        Whether the statistic is defined only where every coordinate takes more than one value.
    said : callable, optional
        ``said(streams, run)`` gives what is said about the points of a run: arrays for each sample under the names
        ``weights``, ``clusters``, ``strata`` or ``groups``, of which estimators choose.
    """

    truth: float
    sizes: tuple[int, ...]
    draw: Callable[[Streams, int], tuple[Points, ...]]
    kernel: str
    kernel_options: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    shards: Callable[[Streams, int, int], Sizes] | None = None
    varies: bool = False
    said: Callable[[Streams, int], Said] | None = None

    def defines(self, samples: Sequence[Points]) -> bool:
        """Tell whether the statistic is defined for the samples; the program refuses others."""
        return not self.varies or all(bool(np.all(points.min(axis=0) < points.max(axis=0))) for points in samples)

    @property
    def range(self) -> tuple[float, float]:
        """Where what is estimated lies."""
        return (-1.0, 1.0) if self.columns else KERNELS[self.kernel].limits

    def blocks(self, streams: Streams, run: int, n_workers: int) -> Sizes:
        """Return the sizes of the shards of a run."""
        if self.shards is not None:
            return self.shards(streams, run, n_workers)
        return tuple(np.diff(block_bounds(size, n_workers)) for size in self.sizes)


# ---------------------------------------------------------------------------------------------------------------------
# Two samples


def two_point(epsilon: float, n: int = 500, m: int = 200) -> Model:
    """Return the two-point AUC: U = 1 - ε² (`mpi_ustat.paper.models.two_point_auc`)."""
    model = TwoPointAUC(epsilon)
    return Model(two_point_auc(epsilon)[0], (n, m), lambda streams, run: model.draw(streams, run, n, m), "auc")


def normal_scores(shift: float = 1.0, n: int = 500, m: int = 200, *, mixed: bool = False) -> Model:
    """Return the AUC of normal scores: Z - X is normal with mean -shift and variance 2, so that U = Φ(shift/√2).

    With `mixed`, shards are pieces of one file in which the n + m rows of both classes lie in random order, so that a
    shard may lack a class. Which rows lie where says nothing of their scores: U is the same.
    """

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return normal(streams, run, "x", n) + shift, normal(streams, run, "z", m)

    def shards(streams: Streams, run: int, n_workers: int) -> Sizes:
        is_x = streams.open("order of the file", replicate=run).permutation(n + m) < n
        of_x = np.add.reduceat(is_x.astype(np.int64), block_bounds(n + m, n_workers)[:-1])
        return of_x, np.diff(block_bounds(n + m, n_workers)) - of_x

    return Model(phi(shift / math.sqrt(2.0)), (n, m), draw, "auc", shards=shards if mixed else None)


def sites(scale: float, shift: float = 1.0, n: int = 500, m: int = 200) -> Model:
    """Return the AUC of normal scores from sites that differ: `scale` times `SITES` is added to all scores of a site.

    Sites are blocks of rows, one for each of ten workers, of n_i and m_j points. What U_n estimates is its mean over
    the points' law at given sites, that of the mixture of the sites: Σ_ij n_i m_j Φ((shift + s_i - s_j)/√2)/(n m). A
    site's own AUC is Φ(shift/√2) at all of them, and so is what the mean of the shards as they lie estimates.
    """
    of_x, of_z = (np.diff(block_bounds(size, len(SITES))).tolist() for size in (n, m))
    offsets = [scale * site for site in SITES]
    truth = math.fsum(
        a * b * phi((shift + s - t) / math.sqrt(2.0)) / (n * m)
        for a, s in zip(of_x, offsets, strict=True)
        for b, t in zip(of_z, offsets, strict=True)
    )

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        x = normal(streams, run, "x", n) + shift + np.repeat(offsets, of_x)
        return x, normal(streams, run, "z", m) + np.repeat(offsets, of_z)

    return Model(truth, (n, m), draw, "auc")


def rare_difference(share: float, n: int = 1000, m: int = 1000) -> Model:
    """Return the difference of two scores' AUCs that differ only for few positives, each with probability `share`.

    The first score is normal, of mean 1 for positives and 0 for negatives. The second is the same, but for those few a
    draw from the negatives' law, which wins half of its pairs: the difference is share · (Φ(1/√2) - 1/2).
    """

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        x, z, other = (normal(streams, run, name, size) for name, size in (("x", n), ("z", m), ("other", n)))
        rare = streams.open("which differ", replicate=run).uniform(n) < share
        return np.column_stack([x + 1.0, np.where(rare, other, x + 1.0)]), np.column_stack([z, z])

    truth = share * (phi(math.sqrt(0.5)) - 0.5)
    return Model(truth, (n, m), draw, "auc", columns=("first", "second"))


def normal_columns(n: int = 500, m: int = 200, shifts: tuple[float, float] = (1.0, 0.8)) -> Model:
    """Return the difference of the AUCs of two normal scores of correlation ½ in both classes: Φ(a/√2) - Φ(b/√2)."""

    def columns(streams: Streams, run: int, name: str, size: int) -> Points:
        first, rest = normal(streams, run, name, size), normal(streams, run, f"{name}, rest", size)
        return np.column_stack([first, 0.5 * first + math.sqrt(0.75) * rest])

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return columns(streams, run, "x", n) + np.array(shifts), columns(streams, run, "z", m)

    truth = phi(shifts[0] / math.sqrt(2.0)) - phi(shifts[1] / math.sqrt(2.0))
    return Model(truth, (n, m), draw, "auc", columns=("first", "second"))


def normal_product(mean: float, n: int = 500, m: int = 200) -> Model:
    """Return the product of two normal samples of that mean and unit variance: U = mean²."""
    model = NormalProduct(mean, mean)
    return Model(model.mean, (n, m), lambda streams, run: model.draw(streams, run, n, m), "product")


def normal_energy(shift: float, n: int = 100, m: int = 100) -> Model:
    """Return the energy distance of N(0, 1) and N(shift, 1), 2 E|X - Z| - E|X - X'| - E|Z - Z'|.

    X - Z is normal with mean -shift and variance 2: E|X - Z| = (2/√π) e^(-shift²/4) + shift (2 Φ(shift/√2) - 1), and
    without a shift 2/√π.
    """
    across = 2.0 / math.sqrt(math.pi) * math.exp(-0.25 * shift**2) + shift * (2.0 * phi(shift / math.sqrt(2.0)) - 1.0)
    truth = 2.0 * across - 4.0 / math.sqrt(math.pi) if shift else 0.0
    return Model(truth, (n, m), _shifted(shift, n, m), "energy")


def normal_mmd(shift: float, n: int = 100, m: int = 100) -> Model:
    """Return the squared MMD of N(0, 1) and N(shift, 1), with the Gaussian kernel of bandwidth 1.

    The mean of e^(-D²/2) for D of law N(a, 2) is e^(-a²/6)/√3, as that of a normal density of variance 1 is the density
    at 0 of N(a, 3), √(2π) apart. So MMD² = (2/√3) (1 - e^(-shift²/6)).
    """
    truth = -2.0 / math.sqrt(3.0) * math.expm1(-(shift**2) / 6.0)
    options = {"kernel": "gaussian", "bandwidth": 1.0}
    return Model(truth, (n, m), _shifted(shift, n, m), "mmd", options)


def lognormal_energy(sigma: float, shift: float, n: int = 100, m: int = 100) -> Model:
    """Return the energy distance of e^(sigma g) and e^(shift + sigma g'), g and g' standard normal.

    E|X - Z| = E X + E Z - 2 E min(X, Z), and E min is the sum of E[X; X < Z] = e^(σ²/2) Φ((shift - σ²)/(σ√2)), under
    the law of density x/E X, where log X has mean σ², and of E[Z; Z < X] = e^(shift + σ²/2) Φ((-shift - σ²)/(σ√2)).
    Within a sample the same with shift 0, times the scale: 2 e^(σ²/2) (1 - 2 Φ(-σ/√2)), and e^shift times that.
    """
    mean, scale, root = math.exp(0.5 * sigma**2), math.exp(shift), sigma * math.sqrt(2.0)
    least = mean * phi((shift - sigma**2) / root) + scale * mean * phi((-shift - sigma**2) / root)
    across = mean * (1.0 + scale) - 2.0 * least
    within = 2.0 * mean * (1.0 - 2.0 * phi(-sigma / math.sqrt(2.0))) * (1.0 + scale)

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        x, z = normal(streams, run, "x", n), normal(streams, run, "z", m)
        return np.exp(sigma * x), np.exp(shift + sigma * z)

    return Model(2.0 * across - within, (n, m), draw, "energy")


def _shifted(shift: float, n: int, m: int) -> Callable[[Streams, int], tuple[Points, ...]]:
    return lambda streams, run: (normal(streams, run, "x", n), normal(streams, run, "z", m) + shift)


# ---------------------------------------------------------------------------------------------------------------------
# One sample, and three


def gini(law: str, n: int = 500, sigma: float = 1.0) -> Model:
    """Return the Gini mean difference E|X - Y| of one sample.

    ``normal``: X - Y is normal with variance 2, U = 2/√π. ``exponential``: |X - Y| is exponential again, as what is
    left of the longer of two lifetimes when the shorter ends, U = 1. ``lognormal``, e^(σ g): with X the larger of the
    two, E|X - Y| = 2 E max - 2 E X, and E max = 2 E[X 1{Y < X}]; under the law with density x/E X times that of X,
    log X is normal with mean σ², whence E[X 1{Y < X}] = e^(σ²/2) Φ(σ/√2) and U = 2 e^(σ²/2) (2 Φ(σ/√2) - 1).
    """
    truths = {
        "normal": normal_gini()[0],
        "exponential": 1.0,
        "lognormal": 2.0 * math.exp(0.5 * sigma**2) * (2.0 * phi(sigma * math.sqrt(0.5)) - 1.0),
    }

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        if law == "exponential":
            return (-np.log1p(-streams.open("sample x", replicate=run).uniform(n)),)
        points = normal(streams, run, "x", n)
        return (np.exp(sigma * points) if law == "lognormal" else points,)

    return Model(truths[law], (n,), draw, "gini")


def normal_kendall(correlation: float, n: int = 500) -> Model:
    """Return Kendall's tau of a bivariate normal law: U = (2/π) arcsin ρ.

    The difference of two points has the same correlation ρ: up to a factor it is (g, ρ g + √(1-ρ²) g') with independent
    standard normals. The components are the projections of (g, g') on two directions with the angle arccos ρ between
    them. As (g, g') has a uniform direction, their signs differ with probability arccos(ρ)/π, and U is 1 minus twice
    that.
    """

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        x, rest = normal(streams, run, "x", n), normal(streams, run, "rest", n)
        return (np.column_stack([x, correlation * x + math.sqrt(1.0 - correlation**2) * rest]),)

    return Model(2.0 / math.pi * math.asin(correlation), (n,), draw, "kendall", {"tau": "a"})


def table_kendall(table: Sequence[Sequence[float]], n: int = 500) -> Model:
    """Return Kendall's tau-b of points that fall into the cells of a table with these weights.

    With p the cells' probabilities, C = Σ p_ij p_kl sign(i - k) sign(j - l), and A = 1 - Σ_i p_i.² and
    B = 1 - Σ_j p_.j² the chances that two points differ in the row and in the column, tau-b tends to C/√(AB).
    """
    p = np.asarray(table, dtype=np.float64)
    p = p / p.sum()
    rows, columns = (np.sign(np.subtract.outer(k, k)) for k in map(np.arange, p.shape))
    concordance = float(np.einsum("ij,kl,ik,jl->", p, p, rows, columns))
    differ = [1.0 - float((p.sum(axis=axis) ** 2).sum()) for axis in (1, 0)]
    ends = np.cumsum(p)[:-1]

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        cell = np.searchsorted(ends, streams.open("sample x", replicate=run).uniform(n), side="right")
        return (np.column_stack(np.divmod(cell, p.shape[1])).astype(np.float64),)

    return Model(concordance / math.sqrt(math.prod(differ)), (n,), draw, "kendall", {"tau": "b"}, varies=True)


def normal_vus(sizes: tuple[int, ...] = (200, 200, 100)) -> Model:
    """Return the VUS of K >= 3 normal classes of means 0, 1, …, K-1 and unit variances: P(X₀ < X₁ < … < X_{K-1}).

    F_k(t) = P(X₀ < … < X_k < t) is Φ(t) for k = 0, and ∫_{-∞}^t φ(u - k) F_{k-1}(u) du from there on; U = F_{K-1}(∞).
    The trapezoidal rule of step s, less s²/12 times the difference of the integrand's slopes at the ends, errs by a
    multiple of s⁴/720: at s = 1/64 by less than 10⁻¹⁰. The slope of φ(u - k) F_{k-1}(u) is
    φ(u - k) (F_{k-1}'(u) - (u - k) F_{k-1}(u)).
    """
    step = 1.0 / 64.0
    t = np.arange(-10.0, len(sizes) + 9.0, step)
    below, slope = np.array([phi(each) for each in t.tolist()]), density(t)  # F_k and its derivative
    for k in range(1, len(sizes)):
        below, slope = _integral(density(t - k) * below, density(t - k) * (slope - (t - k) * below), step)

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return tuple(normal(streams, run, str(k), size) + float(k) for k, size in enumerate(sizes))

    return Model(float(below[-1]), sizes, draw, "vus")


def _integral(f: Floats, slope: Floats, step: float) -> tuple[Floats, Floats]:
    """Return the integral of f from its first place to each one, by the corrected trapezoidal rule, and f."""
    sums = np.concatenate([[0.0], np.cumsum(0.5 * step * (f[1:] + f[:-1]))])
    return sums - step**2 / 12.0 * (slope - slope[0]), f


def normal(streams: Streams, run: int, name: str, size: int) -> Points:
    """Return standard normal numbers of a run, under the name of what they are for."""
    return streams.open(f"sample {name}", replicate=run).normal(size)


def density(t: Floats) -> Floats:
    """Return the standard normal density."""
    return np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)


def phi(t: float) -> float:
    """Return the standard normal distribution function."""
    return 0.5 * math.erfc(-t / math.sqrt(2.0))
