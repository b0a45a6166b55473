"""Laws of points of which more is said than where they are, of survival times, and of scores that are equally good."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.paper.known_truths import Model, Said, density, normal, phi

_AUC = phi(math.sqrt(0.5))  # of normal scores whose means differ by 1
_CENSORING = 0.612736  # rate that censors 40 % of lifetimes of rate e^r, r normal: E[c/(e^r + c)] = 0.4


def clustered(*, shared: bool = False, n_clusters: int = 60, correlation: float = 0.3) -> Model:
    """Return the AUC of normal scores of rows in clusters: U = Φ(1/√2).

    Clusters have 1, 2, …, 15 rows, over and over; each row is positive with probability 0.4. A score is √ρ times an
    effect of its cluster plus √(1-ρ) times its own normal, plus 1 if it is positive, so that scores of one class in a
    cluster have the correlation ρ. Positives and negatives of a cluster have effects of their own, independent; or the
    same one, if `shared`, which then nearly cancels in the AUC. (Pairs within a cluster then have the AUC
    Φ(1/√(2-2ρ)), which moves the mean by less than 0.001: some 2 % of the pairs are such.)
    """
    cluster = np.repeat(np.arange(n_clusters), 1 + np.arange(n_clusters) % 15)

    def positive(streams: Streams, run: int) -> Any:
        return streams.open("classes", replicate=run).uniform(len(cluster)) < 0.4

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        is_x = positive(streams, run)
        of_x, of_z = (normal(streams, run, f"clusters of {name}", n_clusters)[cluster] for name in "xz")
        effect = of_x if shared else np.where(is_x, of_x, of_z)
        scores = math.sqrt(correlation) * effect
        scores += math.sqrt(1.0 - correlation) * normal(streams, run, "own", len(cluster)) + is_x
        return scores[is_x], scores[~is_x]

    def said(streams: Streams, run: int) -> Said:
        is_x = positive(streams, run)
        return {"clusters": (cluster[is_x], cluster[~is_x])}

    sizes = round(0.4 * len(cluster)), round(0.6 * len(cluster))
    return Model(_AUC, sizes, draw, "auc", said=said)


def weighted(n: int = 300, m: int = 300) -> Model:
    """Return the AUC Φ(1/√2) of normal scores that were included with the probability π(s) = 0.2 + 0.8 Φ(s).

    The points are the first n that are included, with the weights 1/π(s). Of 4 n scores 0.6 (negatives) or more are.
    """

    def included(streams: Streams, run: int, name: str, size: int, shift: float) -> tuple[Points, Points]:
        scores = normal(streams, run, name, 4 * size) + shift
        share = 0.2 + 0.8 * _phi(scores)
        there = np.flatnonzero(streams.open(f"included {name}", replicate=run).uniform(4 * size) < share)[:size]
        return scores[there], 1.0 / share[there]

    def both(streams: Streams, run: int) -> tuple[tuple[Points, Points], tuple[Points, Points]]:
        return included(streams, run, "x", n, 1.0), included(streams, run, "z", m, 0.0)

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return tuple(points for points, _ in both(streams, run))

    def said(streams: Streams, run: int) -> Said:
        return {"weights": tuple(weights for _, weights in both(streams, run))}

    return Model(_AUC, (n, m), draw, "auc", said=said)


def stratified(n_strata: int = 20) -> Model:
    """Return the AUC within strata whose scores are shifted, alike in both classes: U = Φ(1/√2) in each.

    Stratum s has 10 + s positives and 30 - s negatives; shifts are normal.
    """
    strata = tuple(np.repeat(np.arange(n_strata), sizes) for sizes in _sizes_of_strata(n_strata))

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        shifts = normal(streams, run, "shifts", n_strata)
        of_x, of_z = (
            normal(streams, run, name, len(each)) + shifts[each] for name, each in zip("xz", strata, strict=True)
        )
        return of_x + 1.0, of_z

    sizes = len(strata[0]), len(strata[1])
    return Model(_AUC, sizes, draw, "auc", said=lambda streams, run: {"strata": strata})


def _sizes_of_strata(n_strata: int) -> tuple[Any, Any]:
    s = np.arange(n_strata)
    return 10 + s, 30 - s


def grouped(n_groups: int = 100, spread: float = 0.3) -> Model:
    """Return the mean AUC of groups: in each the means of normal scores differ by μ ~ N(1, spread²).

    Z - X has the variance 2 + spread² over the groups: U = Φ(1/√(2 + spread²)). A group has 5 to 20 points of a class.
    """
    g = np.arange(n_groups)
    of_x, of_z = np.repeat(g, 5 + g % 16), np.repeat(g, 5 + 7 * g % 16)

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        means = 1.0 + spread * normal(streams, run, "groups", n_groups)
        return normal(streams, run, "x", len(of_x)) + means[of_x], normal(streams, run, "z", len(of_z))

    sizes = len(of_x), len(of_z)
    truth = phi(1.0 / math.sqrt(2.0 + spread**2))
    return Model(truth, sizes, draw, "auc", said=lambda streams, run: {"groups": (of_x, of_z)})


def survival(weights: str = "none", horizon: float | None = None, n: int = 300) -> Model:
    """Return the concordance index of exponential lifetimes of rate λ = e^r, r normal, the risk; 40 % are censored.

    Censoring is exponential of rate c. A pair of rates λ > λ' is comparable, the earlier time below the horizon τ, if
    of four exponential times that of an event is the first, and before τ: with S = λ + λ' + 2c this has the
    probability (λ + λ')/S · (1 - e^(-Sτ)), and for λ/S · (1 - e^(-Sτ)) it is that of the higher risk. Harrell's index
    tends to the quotient of the means. Uno's weights undo the censoring: the same with c = 0.
    """
    rate = _CENSORING if weights == "none" else 0.0
    u, of_u = _gauss_legendre(0.0, 9.0)  # (r - r')/√2, positive, and (r + r')/√2
    v, of_v = _gauss_legendre(-9.0, 9.0)
    chance = np.outer(density(u) * of_u, density(v) * of_v)
    high, low = (np.exp((v + sign * u[:, None]) * math.sqrt(0.5)) for sign in (1.0, -1.0))
    total = high + low + 2.0 * rate
    first = chance * -np.expm1(-total * (math.inf if horizon is None else horizon)) / total
    truth = float((first * high).sum() / (first * (high + low)).sum())

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        risk = normal(streams, run, "risk", n)
        life, until = (-np.log1p(-streams.open(name, replicate=run).uniform(n)) for name in ("life", "censoring"))
        life, until = life * np.exp(-risk), until / _CENSORING
        return (np.column_stack([np.minimum(life, until), life <= until, risk]),)

    options = {"censoring_weights": weights} | ({} if horizon is None else {"horizon": horizon})
    return Model(truth, (n,), draw, "concordance", options)


def equal_columns(correlation: float, columns: int = 2, *, levels: bool = False, n: int = 100) -> Model:
    """Return normal scores that are equally good, each two of the same correlation in both classes.

    Of two the difference of their AUCs is estimated, which is 0; of more the statistic of the omnibus test, which has
    the mean q - 1. With `levels`, scores are cut at -½, ¼, 1 and 1¾ into five levels.
    """

    def drawn(streams: Streams, run: int, name: str, shift: float) -> Points:
        common = normal(streams, run, f"{name}, common", n)
        own = normal(streams, run, f"{name}, own", n * columns).reshape(n, columns)
        scores = math.sqrt(correlation) * common[:, None] + math.sqrt(1.0 - correlation) * own + shift
        return np.digitize(scores, [-0.5, 0.25, 1.0, 1.75]).astype(np.float64) if levels else scores

    def draw(streams: Streams, run: int) -> tuple[Points, ...]:
        return drawn(streams, run, "x", 1.0), drawn(streams, run, "z", 0.0)

    truth = 0.0 if columns == 2 else columns - 1.0
    return Model(truth, (n, n), draw, "auc", columns=tuple(f"score {k}" for k in range(columns)))


def _gauss_legendre(low: float, high: float) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(100)
    half = 0.5 * (high - low)
    return low + half * (nodes + 1.0), half * weights


_phi: Callable[[Floats], Floats] = np.vectorize(phi, otypes=[np.float64])
