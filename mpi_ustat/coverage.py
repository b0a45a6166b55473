"""Do the confidence intervals cover? Estimates of what is known, each with the error bar that a user would get.

A study draws many data sets from one model and estimates on each by several ways, by the library's own `Estimation`;
it keeps whether the intervals hold the truth, and what the program had to say against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpi_ustat.config import EstimateConfig
from mpi_ustat.estimation import Estimation
from mpi_ustat.estimation import run as rounds_of
from mpi_ustat.montecarlo import NormalProduct, TwoPointAUC, Values
from mpi_ustat.parallel.partition import block_bounds
from mpi_ustat.parallel.rng import Streams
from mpi_ustat.parallel.runtime import SerialComm
from mpi_ustat.statistics.intervals import Interval, interval
from mpi_ustat.statistics.kernel import Points
from mpi_ustat.statistics.models import normal_gini, two_point_auc
from mpi_ustat.statistics.registry import make_kernel

N_WORKERS = 10
CONFIDENCE = 0.95
STATISTICS = ("estimate", "variance", "wald", "logit", "flags")

#: The ways to estimate, as options of `EstimateConfig`.
ESTIMATORS: dict[str, dict[str, Any]] = {
    "complete": {"complete": True},
    "prop-swor, T = 1": {"scheme": "prop-swor"},
    "prop-swor, T = 4": {"scheme": "prop-swor", "n_rounds": 4},
    "prop-swr, T = 1": {"scheme": "prop-swr"},
    "rotation, T = 4": {"scheme": "rotation", "n_rounds": 4},
    "prop-swor, B = 500": {"scheme": "prop-swor", "n_pairs": 500},
}


@dataclass(frozen=True)
class Model:
    """A law of the samples under which what a kernel estimates is known.

    Attributes
    ----------
    truth : float
        E h.
    sizes : tuple of int
        Points of each sample.
    draw : callable
        ``draw(streams, run)`` gives the samples of a run.
    kernel : str
    kernel_options : dict
    """

    truth: float
    sizes: tuple[int, ...]
    draw: Callable[[Streams, int], tuple[Points, ...]]
    kernel: str
    kernel_options: dict[str, Any] = field(default_factory=dict)


def two_point(epsilon: float, n: int = 500, m: int = 200) -> Model:
    """Return the two-point AUC: U = 1 - ε² (`mpi_ustat.statistics.models.two_point_auc`)."""
    model = TwoPointAUC(epsilon)
    return Model(two_point_auc(epsilon)[0], (n, m), lambda streams, run: model.draw(streams, run, n, m), "auc")


def normal_scores(shift: float = 1.0, n: int = 500, m: int = 200) -> Model:
    """Return the AUC of normal scores: Z - X is normal with mean -shift and variance 2, so that U = Φ(shift/√2)."""

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return _normal(streams, run, "x", n) + shift, _normal(streams, run, "z", m)

    return Model(_phi(shift / math.sqrt(2.0)), (n, m), draw, "auc")


def normal_product(mean: float, n: int = 500, m: int = 200) -> Model:
    """Return the product of two normal samples of that mean and unit variance: U = mean²."""
    model = NormalProduct(mean, mean)
    return Model(model.mean, (n, m), lambda streams, run: model.draw(streams, run, n, m), "product")


def gini(law: str, n: int = 500) -> Model:
    """Return the Gini mean difference E|X - Y| of one sample.

    ``normal``: X - Y is normal with variance 2, U = 2/√π. ``exponential``: |X - Y| is exponential again, as what is
    left of the longer of two lifetimes when the shorter ends, U = 1. ``lognormal``: with X the larger of the two,
    E|X - Y| = 2 E max - 2 E X, and E max = 2 E[X 1{Y < X}]; under the law with density x/E X times that of X, log X is
    normal with mean 1, whence E[X 1{Y < X}] = √e Φ(1/√2) and U = 2 √e (2 Φ(1/√2) - 1).
    """
    truths = {
        "normal": normal_gini()[0],
        "exponential": 1.0,
        "lognormal": 2.0 * math.exp(0.5) * (2.0 * _phi(math.sqrt(0.5)) - 1.0),
    }

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        if law == "exponential":
            return (-np.log1p(-streams.open("sample x", replicate=run).uniform(n)),)
        points = _normal(streams, run, "x", n)
        return (np.exp(points) if law == "lognormal" else points,)

    return Model(truths[law], (n,), draw, "gini")


def normal_kendall(correlation: float, n: int = 500) -> Model:
    """Return Kendall's tau of a bivariate normal law: U = (2/π) arcsin ρ.

    The difference of two points has the same correlation ρ: up to a factor it is (g, ρ g + √(1-ρ²) g') with independent
    standard normals. The components are the projections of (g, g') on two directions with the angle arccos ρ between
    them. As (g, g') has a uniform direction, their signs differ with probability arccos(ρ)/π, and U is 1 minus twice
    that.
    """

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        x, rest = _normal(streams, run, "x", n), _normal(streams, run, "rest", n)
        return (np.column_stack([x, correlation * x + math.sqrt(1.0 - correlation**2) * rest]),)

    return Model(2.0 / math.pi * math.asin(correlation), (n,), draw, "kendall", {"tau": "a"})


def normal_vus(sizes: tuple[int, int, int] = (200, 200, 100)) -> Model:
    """Return the VUS of three normal classes of means 0, 1 and 2 and unit variances: P(X₀ < X₁ < X₂).

    Given that X₁ = 1 + t, the other two are independent: U = ∫ φ(t) Φ(1 + t) Φ(1 - t) dt. The trapezoidal rule with
    step s errs by the integrand's Fourier transform at multiples of 2π/s. The integrand is entire and grows at most as
    e^(3y²/2) along the line Im t = y, half of y² for each factor; so the error is of the order of
    e^(3y²/2 - 2πy/s) for any y, at best e^(-2π²/(3s²)), which is nothing at s = 1/8. Beyond |t| = 10 there is nothing
    either.
    """
    nodes = np.arange(-80, 81) / 8.0
    truth = math.fsum(_density(t) * _phi(1.0 + t) * _phi(1.0 - t) for t in nodes.tolist()) / 8.0

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return tuple(_normal(streams, run, str(k), size) + float(k) for k, size in enumerate(sizes))

    return Model(truth, sizes, draw, "vus")


#: Where intervals are to cover, by a name for people.
MODELS: dict[str, Callable[[], Model]] = {
    "AUC, two points, ε = 0.1": lambda: two_point(0.1),
    "AUC, normal scores": normal_scores,
    "product, means 1": lambda: normal_product(1.0),
    "Gini, normal": lambda: gini("normal"),
    "Kendall's tau, ρ = 0.5": lambda: normal_kendall(0.5),
    "VUS, normal scores": normal_vus,
}

#: Where the normal limit is far, and the program is to say so: too few deciding points, a degenerate kernel, and tails
#: that leave the variance to a few points.
DOUBTFUL_MODELS: dict[str, Callable[[], Model]] = {
    "AUC, two points, ε = 0.02": lambda: two_point(0.02),
    "product, means 0": lambda: normal_product(0.0),
    "Gini, exponential": lambda: gini("exponential"),
    "Gini, lognormal": lambda: gini("lognormal"),
}


class Coverage:
    """The study of the intervals of all `ESTIMATORS` on data sets of one model.

    Its values, each of shape (estimators,): ``estimate`` and its estimated ``variance``, NaN where there is none;
    ``wald`` and ``logit``, 1 if that interval holds the truth, 0 if not, and NaN where there is no such interval
    (logit: only of kernels with values in [0, 1]); ``flags``, the number of reasons the program gives for doubt.

    Parameters
    ----------
    model : Model
    n_runs, seed : int
    """

    def __init__(self, model: Model, n_runs: int, seed: int) -> None:
        self.model, self.n_runs = model, n_runs
        self._streams = Streams(seed)
        self._bounded = make_kernel(model.kernel, len(model.sizes), options=model.kernel_options).bounded
        self._configs = [
            EstimateConfig(
                kernel=model.kernel,
                kernel_options=model.kernel_options,
                n_workers=N_WORKERS,
                seed=seed,
                confidence=CONFIDENCE,
                **options,
            )
            for options in ESTIMATORS.values()
        ]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one run's values by statistic."""
        return dict.fromkeys(STATISTICS, (len(ESTIMATORS),))

    def by_one_rank(self) -> Callable[[range], Values]:
        """Return the function that does runs on this rank alone."""
        return self.by_all_ranks(SerialComm())

    def by_all_ranks(self, comm: Any) -> Callable[[range], Values]:
        """Return the function that does runs on all ranks of `comm` together."""

        def do(runs: range) -> Values:
            found = np.array([self._run(comm, run) for run in runs])
            found = found.reshape(len(runs), len(ESTIMATORS), len(STATISTICS))
            return {name: found[:, :, i] for i, name in enumerate(STATISTICS)}

        return do

    def _run(self, comm: Any, run: int) -> list[tuple[float, ...]]:
        samples = tuple(_shard(comm, points) for points in self.model.draw(self._streams, run))
        return [self._outcome(comm, samples, config, run) for config in self._configs]

    def _outcome(
        self, comm: Any, samples: tuple[Points, ...], config: EstimateConfig, replicate: int
    ) -> tuple[float, ...]:
        """Return the `STATISTICS` of one estimate."""
        estimation = Estimation(comm, samples, config, replicate=replicate)
        for _ in rounds_of(estimation):
            pass
        estimate = estimation.result(estimation.complete() if config.complete else None)
        error, value = estimate.error, float(estimate.value)
        assert error is not None
        variance = None if error.covariance is None else float(error.covariance[0, 0])
        # The program gives one of the two; the Wald interval beside a logit one is of the same value and variance.
        (given,) = error.intervals
        logit = given if self._bounded else None
        wald = interval(value, variance, CONFIDENCE, bounded=True, method="wald") if self._bounded else given
        return (
            value,
            math.nan if variance is None else variance,
            self._covers(wald),
            self._covers(logit),
            float(len(error.flags)),
        )

    def _covers(self, each: Interval | None) -> float:
        if each is None or each.lower is None or each.upper is None:
            return math.nan
        return float(each.lower <= self.model.truth <= each.upper)


def _shard(comm: Any, points: Points) -> Points:
    bounds = block_bounds(len(points), comm.size)
    return points[bounds[comm.rank] : bounds[comm.rank + 1]]


def _normal(streams: Streams, run: int, name: str, size: int) -> Points:
    return streams.open(f"sample {name}", replicate=run).normal(size)


def _density(t: float) -> float:
    return math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)


def _phi(t: float) -> float:
    """Return the standard normal distribution function."""
    return 0.5 * math.erfc(-t / math.sqrt(2.0))
