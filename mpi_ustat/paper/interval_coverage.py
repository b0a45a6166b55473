"""Do the confidence intervals cover? Estimates of what is known, each with the error bar that a user would get.

A study draws many data sets from one model and estimates on each by several ways, by the library's own `Estimation`;
it keeps whether the intervals hold the truth, and what the program had to say against them. A model with one way to
estimate is a cell; `Outcome` says whether a cell's intervals are what they claim to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.estimation import Estimation
from mpi_ustat.estimation.estimation import run as rounds_of
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.inference.intervals import Interval
from mpi_ustat.influence.analysis import About
from mpi_ustat.kernels.kernel import Points
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Flags, Floats
from mpi_ustat.paper.known_truths import (
    Model,
    Said,
    Sizes,
    gini,
    lognormal_energy,
    normal_columns,
    normal_energy,
    normal_kendall,
    normal_mmd,
    normal_product,
    normal_scores,
    normal_vus,
    rare_difference,
    sites,
    table_kendall,
    two_point,
)
from mpi_ustat.paper.montecarlo import Study, Values
from mpi_ustat.paper.truths_of_said_points import clustered, equal_columns, grouped, stratified, survival, weighted
from mpi_ustat.schemes.partition import block_bounds, bounds_of
from mpi_ustat.schemes.registry import scheme_of

CONFIDENCE = 0.95
_QUANTILE = NormalDist().inv_cdf(0.5 * (1.0 + CONFIDENCE))
LEAST_COVERAGE = 0.935
"""What intervals that are given without a doubt must cover at least."""
FLAGGED = 0.9
"""Or this share of the runs must be flagged."""
PLAIN_COVERAGE = 0.94, 0.96
"""Where all intervals, and plain normal ones, cover so much, flags are of no use …"""
NEEDLESSLY_FLAGGED = 0.1
"""… and at most this share of the runs may have them."""
COMPARED = "for comparison"
"""The verdict on estimators that are wrong, and only shown beside others."""

STATISTICS = ("estimate", "variance", "holds", "wald", "flags", "outside")

Options = dict[str, Any]

#: Ways to estimate, as options of `EstimateConfig`, on ten workers.
ESTIMATORS: dict[str, Options] = {
    "complete": {"complete": True},
    "prop-swor, T = 1": {"scheme": "prop-swor"},
    "prop-swor, T = 4": {"scheme": "prop-swor", "n_rounds": 4},
    "prop-swr, T = 1": {"scheme": "prop-swr"},
    "rotation, T = 4": {"scheme": "rotation", "n_rounds": 4},
    "prop-swor, B = 500": {"scheme": "prop-swor", "n_pairs": 500},
}
_COMPLETE: dict[str, Options] = {"complete": {"complete": True}}
_ONE_ROUND: dict[str, Options] = {"prop-swor, T = 1": {}}
_AS_IS: dict[str, Options] = {
    "as-is": {"scheme": "as-is"},
    "as-is, --reference": {"scheme": "as-is", "reference": True},
    "complete": {"complete": True},
}


@dataclass(frozen=True)
class Group:
    """A model with the ways to estimate its statistic.

    Attributes
    ----------
    label : str
        For people.
    model : Model
    estimators : dict of str to dict
        Options of `EstimateConfig` by a name for people; beside them ``use``, what of that which the model says about
        the points is told to the library.
    n_workers : int
        N, where the options don't say otherwise.
    n_runs : int
        Of a full study: fewer where a run takes long.
    compared : tuple of str
        Estimators that are wrong here, and only shown beside the others.
    """

    label: str
    model: Model
    estimators: dict[str, Options]
    n_workers: int = 10
    n_runs: int = 10_000
    compared: tuple[str, ...] = ()

    def verdict(self, estimator: str, outcome: Outcome) -> str:
        """Return the coverage of an estimator from the outcome of its runs."""
        return COMPARED if estimator in self.compared else outcome.verdict


def _told(label: str, model: Model, *uses: str) -> Group:
    """Return the group of the complete statistic by what is said of the points; without, it is shown beside."""
    told = {f"complete, {use}": {"complete": True, "use": [use]} for use in uses}
    beside = {} if "groups" in uses else _COMPLETE
    return Group(label, model, told | beside, compared=tuple(beside))


def _sampled(n_pairs: int) -> dict[str, Options]:
    return {f"prop-swor, B = {n_pairs}": {"n_pairs": n_pairs}}


def _rounds(scheme: str, *rounds: int, **more: Any) -> dict[str, Options]:
    return {f"{scheme}, T = {t}": {"scheme": scheme, "n_rounds": t, **more} for t in rounds}


def _groups() -> dict[str, Group]:
    rare = [[0.97, 0.012], [0.012, 0.006]]
    full = [[8, 5, 3, 2, 2], [5, 6, 5, 3, 2], [3, 5, 6, 5, 3], [2, 3, 5, 6, 5], [2, 2, 3, 5, 8]]
    common = {
        "two-point-0.1": Group("AUC, two points, ε = 0.1", two_point(0.1), ESTIMATORS),
        "normal-scores": Group("AUC, normal scores", normal_scores(), ESTIMATORS),
        "product-1": Group("product, means 1", normal_product(1.0), ESTIMATORS),
        "gini-normal": Group("Gini, normal", gini("normal"), ESTIMATORS),
        "kendall": Group("Kendall's tau, ρ = 0.5", normal_kendall(0.5), ESTIMATORS),
        "vus": Group("VUS, normal scores", normal_vus(), ESTIMATORS),
        "two-point-0.02": Group("AUC, two points, ε = 0.02", two_point(0.02), ESTIMATORS),
        "product-0": Group("product, means 0", normal_product(0.0), ESTIMATORS),
        "gini-exponential": Group("Gini, exponential", gini("exponential"), ESTIMATORS),
        "gini-lognormal": Group("Gini, lognormal", gini("lognormal"), ESTIMATORS),
    }
    swor = {
        "swor": Group(
            "AUC, normal scores, n = 2000, m = 200, N = 100",
            normal_scores(n=2000, mixed=True),
            _rounds("swor", 1, 4)
            | {"swor, --empty zero": {"scheme": "swor", "empty": "zero"}}
            | {"as-is, --empty skip": {"scheme": "as-is", "empty": "skip"}},
            n_workers=100,
            n_runs=2000,
        )
    }
    few_blocks = {
        f"few-blocks-{m}": Group(
            f"AUC, normal scores, n = 500, m = {m}, N = 50", normal_scores(m=m), _ONE_ROUND, n_workers=50, n_runs=5000
        )
        for m in (50, 51, 60)
    }
    rotation = {
        "rotation": Group(
            "Kendall's tau, ρ = 0.5, n = 200, N = 50",
            normal_kendall(0.5, n=200),
            _rounds("rotation", 1, 5, 26) | _COMPLETE,
            n_workers=50,
            n_runs=1000,
        )
    }
    n = 20_000
    pilots = {
        f"pilot-gini-{law}": Group(
            f"Gini, {law}{', σ = 1.5' * (law == 'lognormal')}, n = 20 000",
            gini(law, n=n, sigma=1.5),
            _sampled(2000) | _COMPLETE,
            n_runs=2000,
        )
        for law in ("lognormal", "normal")
    } | {
        f"pilot-two-point-{epsilon}": Group(
            f"AUC, two points, ε = {epsilon}, n = m = 20 000",
            two_point(epsilon, n, n),
            {name: each for pairs in sampled for name, each in _sampled(pairs).items()} | _COMPLETE,
            n_runs=2000,
        )
        for epsilon, sampled in ((0.01, (40_000, 2000, 700)), (0.1, (40_000,)))
    }
    both = _COMPLETE | _ONE_ROUND
    columns = {
        "difference-rare": Group(
            "AUC, two scores that differ for 0.3 % of 1000 positives", rare_difference(0.003), both, n_runs=5000
        ),
        "difference": Group("AUC, two scores that differ throughout", normal_columns(), both, n_runs=5000),
    }
    tables = {
        "tau-b-rare": Group("tau-b, 2 × 2 table with rare cells, n = 500", table_kendall(rare), both, n_runs=5000),
        "tau-b": Group("tau-b, 5 × 5 table, n = 500", table_kendall(full), both, n_runs=5000),
    }
    classes = {"vus-4": Group("VUS of 4 classes", normal_vus((150, 150, 100, 100)), both, n_runs=1000)}
    energies = {
        "energy-same": ("energy, same law", normal_energy(0.0)),
        "energy": ("energy, normal, shift 1", normal_energy(1.0)),
        "energy-heavy": ("energy, lognormal, σ = 1.5", lognormal_energy(1.5, 0.5)),
        "mmd-same": ("MMD, same law", normal_mmd(0.0)),
        "mmd": ("MMD, normal, shift 1", normal_mmd(1.0)),
    }
    discrepancies = {
        key: Group(f"{label}, n = m = 100, N = 5", model, _ONE_ROUND | _COMPLETE, n_workers=5, n_runs=5000)
        for key, (label, model) in energies.items()
    }
    shards = {
        "as-is": Group("AUC, normal scores, equal sites", sites(0.0), _AS_IS),
        "as-is-sites": Group("AUC, normal scores, sites that differ", sites(1.0), _AS_IS),
        "as-is-sites-half": Group("AUC, normal scores, sites that differ half as much", sites(0.5), _AS_IS),
    }
    said = {
        "clusters": _told("AUC, 60 clusters of 1 to 15 rows, ρ = 0.3 in each class", clustered(), "clusters"),
        "clusters-shared": _told(
            "AUC, 60 clusters of 1 to 15 rows, ρ = 0.3, the same in both classes", clustered(shared=True), "clusters"
        ),
        "weights": _told("AUC, inclusion by score, n = m = 300", weighted(), "weights"),
        "strata": _told("AUC within 20 strata, n = 390, m = 410", stratified(), "strata"),
        "groups": _told("mean AUC of 100 groups", grouped(), "groups"),
        "concordance": Group("concordance, 40 % censored, n = 300", survival(), _COMPLETE),
        "concordance-uno": Group("concordance by Uno, τ = 1, 40 % censored, n = 300", survival("uno", 1.0), _COMPLETE),
    }
    tests = {
        f"test-{name}": Group(f"test of {label}, n = m = 100", model, _COMPLETE)
        for name, label, model in (
            ("0", "two equal AUCs, ρ = 0", equal_columns(0.0)),
            ("0.9", "two equal AUCs, ρ = 0.9", equal_columns(0.9)),
            ("0.99", "two equal AUCs, ρ = 0.99", equal_columns(0.99)),
            ("levels", "two equal AUCs, ρ = 0.5, five levels", equal_columns(0.5, levels=True)),
            ("omnibus", "four equal AUCs, ρ = 0.5", equal_columns(0.5, 4)),
            ("omnibus-levels", "four equal AUCs, ρ = 0.5, five levels", equal_columns(0.5, 4, levels=True)),
        )
    }
    old = common | swor | few_blocks | rotation | pilots | columns | tables | classes | discrepancies | shards
    return old | said | tests  # a group's seed is its place: new ones come last


#: What is studied, by a short name.
GROUPS = _groups()


class Coverage(Study):
    """The study of the intervals of a group's estimators on data sets of its model.

    Its values, each of shape (estimators,): ``estimate`` and its estimated ``variance``, NaN where there is none;
    ``holds``, 1 if the interval that the program gives holds the truth, 0 if not, and NaN where it gives none;
    ``wald``, the same of Wald's interval where it gives another kind, otherwise NaN; ``flags``, the number of reasons
    it gives for doubt; ``outside``, 1 if the interval leaves the range of what is estimated. Of more than two
    columns it is the omnibus test's statistic, with the variance of its χ² law, and ``holds`` is 1 where the test
    accepts that all are equal.

    Parameters
    ----------
    group : Group
    n_runs, seed : int
    """

    def __init__(self, group: Group, n_runs: int, seed: int) -> None:
        self.group, self.n_runs = group, n_runs
        self._streams = Streams(seed)
        self._uses: list[Sequence[str]] = [options.get("use", ()) for options in group.estimators.values()]
        self._configs = [
            EstimateConfig(
                kernel=group.model.kernel,
                kernel_options=group.model.kernel_options,
                seed=seed,
                confidence=CONFIDENCE,
                **{"n_workers": group.n_workers} | {name: each for name, each in options.items() if name != "use"},
            )
            for options in group.estimators.values()
        ]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one run's values by statistic."""
        return dict.fromkeys(STATISTICS, (len(self._configs),))

    def by_all_ranks(self, comm: Any) -> Callable[[range], Values]:
        """Return the function that does runs on all ranks of `comm` together."""

        def do(runs: range) -> Values:
            found = np.array([self._run(comm, run) for run in runs])
            found = found.reshape(len(runs), len(self._configs), len(STATISTICS))
            return {name: found[:, :, i] for i, name in enumerate(STATISTICS)}

        return do

    def _run(self, comm: Any, run: int) -> list[tuple[float, ...]]:
        model = self.group.model
        samples = model.draw(self._streams, run)
        said = {} if model.said is None else model.said(self._streams, run)
        return [
            self._outcome(comm, samples, config, run, {name: said[name] for name in use})
            for config, use in zip(self._configs, self._uses, strict=True)
        ]

    def _outcome(
        self,
        comm: Any,
        samples: Sequence[Points],
        config: EstimateConfig,
        replicate: int,
        said: Said,
    ) -> tuple[float, ...]:
        """Return the `STATISTICS` of one estimate."""
        model, of_workers = self.group.model, None
        if not model.defines(samples):  # refused in a sentence: no interval, and no doubt about it
            return math.nan, math.nan, math.nan, math.nan, 1.0, 0.0
        mine: Sequence[Points]
        if scheme_of(config.scheme).as_they_lie:
            of_workers = model.blocks(self._streams, replicate, config.n_workers)
            mine, of_workers = _as_they_lie(comm, samples, of_workers)
        else:
            mine = [_shard(comm, points) for points in samples]
        shards: dict[str, Any] = {name: [_shard(comm, each) for each in of_all] for name, of_all in said.items()}
        about = About(**shards)
        problem = set_up(
            comm, mine, config, block_sizes=of_workers, replicate=replicate, columns=model.columns, about=about
        )
        estimation = Estimation(problem)
        for _ in rounds_of(estimation):
            pass
        if len(model.columns) > 2:
            return _tested(estimation.result())
        value, variance, given, n_flags = _given(estimation.result())
        wald = math.nan
        if given.method == "logit" and variance is not None:  # Wald's beside it is of the same value and variance
            wald = float(abs(value - model.truth) <= _QUANTILE * math.sqrt(variance))
        low, high = model.range
        outside = given.lower is not None and given.upper is not None and (given.lower < low or given.upper > high)
        return (
            value,
            math.nan if variance is None else variance,
            self._covers(given),
            wald,
            float(n_flags),
            float(outside),
        )

    def _covers(self, each: Interval) -> float:
        if each.lower is None or each.upper is None:
            return math.nan
        return float(each.lower <= self.group.model.truth <= each.upper)


def _given(estimate: Estimate) -> tuple[float, float | None, Interval, int]:
    """Return the results that a user would see: value and variance, the interval, and how many reasons for doubt.

    Of several columns it is about the difference of the first two.
    """
    error = estimate.error
    assert error is not None
    if not estimate.columns:
        variance = None if error.covariance is None else float(error.covariance[0, 0])
        return float(estimate.value), variance, error.intervals[0], len(error.flags)
    paired = next(iter(estimate.differences()))
    variance = None if paired.stderr is None else paired.stderr**2
    return paired.value, variance, paired.interval, len({*error.flags, *paired.flags})


def _tested(estimate: Estimate) -> tuple[float, ...]:
    """Return the `STATISTICS` of the test that several columns are equal: its acceptance is what "holds"."""
    found = estimate.omnibus()
    if found is None:
        return math.nan, math.nan, math.nan, math.nan, float(len(estimate.flags)), 0.0
    accepted = float(found.p >= 1.0 - CONFIDENCE)
    return found.statistic, 2.0 * found.rank, accepted, math.nan, float(len(estimate.flags)), 0.0


def _shard(comm: Any, points: Points) -> Points:
    bounds = block_bounds(len(points), comm.size)
    return points[bounds[comm.rank] : bounds[comm.rank + 1]]


def _as_they_lie(comm: Any, samples: Sequence[Points], sizes: Sizes) -> tuple[list[Points], Sizes]:
    """Return the rows of this rank's workers in shards of these sizes, and the sizes of their shards."""
    first, last = block_bounds(len(sizes[0]), comm.size)[comm.rank : comm.rank + 2]
    ends = [bounds_of(each) for each in sizes]
    rows = [points[end[first] : end[last]] for points, end in zip(samples, ends, strict=True)]
    return rows, tuple(each[first:last] for each in sizes)


# ---------------------------------------------------------------------------------------------------------------------
# The verdict


@dataclass(frozen=True)
class Outcome:
    """What became of a cell's runs, as shares of them.

    Attributes
    ----------
    n_runs : int
    coverage : float
        Share of the given intervals that hold the truth, those of flagged runs too; NaN without any.
    n_unflagged : int
        Runs that the program says nothing against.
    unflagged : float
        Share of those whose interval holds the truth; a run without an interval holds nothing. NaN without any.
    flagged, missing, outside : float
        Shares of all runs that are flagged, that have no interval, and whose interval leaves the statistic's range.
    doubted : float
        Share of all runs that have an interval and are flagged.
    plain : float
        Share of the plain normal (Wald's) intervals that hold the truth, which flags are about.
    """

    n_runs: int
    coverage: float
    n_unflagged: int
    unflagged: float
    flagged: float
    missing: float
    outside: float
    doubted: float
    plain: float

    @classmethod
    def of(
        cls,
        holds: Floats,
        flags: Floats,
        outside: Floats,
        wald: Floats,
    ) -> Outcome:
        """Return the outcome of the runs of a cell, of which `Coverage` tells all this."""
        plain = np.where(np.isnan(wald), holds, wald)
        given, clear = ~np.isnan(holds), flags == 0.0
        held = holds == 1.0
        return cls(
            n_runs=len(holds),
            coverage=_share(held[given]),
            n_unflagged=int(clear.sum()),
            unflagged=_share(held[clear]),
            flagged=_share(~clear),
            missing=_share(~given),
            outside=_share(outside == 1.0),
            doubted=_share(given & ~clear),
            plain=_share(plain[~np.isnan(plain)] == 1.0),
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the intervals; empty if they are what they claim to be.

        Nine of ten runs are flagged, or those that are not cover 93.5 %, but for two binomial standard errors; no
        interval leaves the range of what is estimated; and where these, and plain ones, cover 95 ± 1 % anyhow, at most
        one run in ten has an interval that is flagged, again but for two standard errors.
        """
        found = []
        allowed = 2.0 * _error(LEAST_COVERAGE, self.n_unflagged)
        if self.flagged < FLAGGED and not self.unflagged >= LEAST_COVERAGE - allowed:
            found.append("covers too little unflagged")
        if self.outside:
            found.append("leaves the range")
        needless = NEEDLESSLY_FLAGGED + 2.0 * _error(NEEDLESSLY_FLAGGED, self.n_runs)
        low, high = PLAIN_COVERAGE
        if low <= min(self.coverage, self.plain) and max(self.coverage, self.plain) <= high and self.doubted > needless:
            found.append("flagged needlessly")
        return tuple(found)

    @property
    def verdict(self) -> str:
        """``pass``, or what is wrong."""
        return "; ".join(self.faults) or "pass"


def _share(runs: Flags) -> float:
    return float(runs.mean()) if len(runs) else math.nan


def _error(share: float, count: int) -> float:
    """Return the binomial standard error of a share."""
    return math.sqrt(share * (1.0 - share) / max(count, 1))
