"""A complete statistic of weighted, clustered, stratified or grouped points, with its standard error and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.inference.doubts import VARIANCE_ERROR, heavy_tails
from mpi_ustat.influence.clusters import Spread, spread
from mpi_ustat.influence.front import influence, point_sums
from mpi_ustat.influence.groups import GROUP_WEIGHTS, Groups, GroupWeight, groups, mean
from mpi_ustat.influence.keyed import strata_together
from mpi_ustat.influence.keys import Keys, shared, texts_on_master
from mpi_ustat.influence.points import Sample
from mpi_ustat.kernels.kernel import Kernel
from mpi_ustat.mpi.collectives import add_exactly
from mpi_ustat.mpi.runtime import succeed, together
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.multiplicity import WEIGHTS_MUST, are_weights
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.rows import BadRowError
from mpi_ustat.wording import count_of

FEW_CLUSTERS = 30
"""Fewer clusters of a kind than this, or points by their effective number, make a standard error doubtful."""


@dataclass(frozen=True)
class About:
    """What is said about the points beside where they are, an array a sample, of this rank's points.

    Attributes
    ----------
    weights : sequence of array_like, optional
        Sampling weights, not negative; a point of weight 0 is not there.
    clusters : sequence of array_like, optional
        Numbers or text; points of one cluster may depend on each other.
    strata : sequence of array_like, optional
        Only pairs of one stratum count.
    groups : sequence of array_like, optional
        The statistic is the mean of those of the groups.
    group_weight : {"one", "points", "positives", "pairs"}
        What a group weighs in that mean.
    influence : bool
        Whether the influence of every point is wanted, which takes time where nothing else is said.
    """

    weights: Sequence[ArrayLike] | None = None
    clusters: Sequence[ArrayLike] | None = None
    strata: Sequence[ArrayLike] | None = None
    groups: Sequence[ArrayLike] | None = None
    group_weight: GroupWeight = "one"
    influence: bool = False

    def __post_init__(self) -> None:
        """Refuse weights of groups that there are none of."""
        if self.group_weight not in GROUP_WEIGHTS:
            raise UserError(f"group_weight is {self.group_weight!r}: choose {', '.join(GROUP_WEIGHTS)}")

    def __bool__(self) -> bool:
        """Tell whether anything is said that changes the estimate or its error bar."""
        return any(each is not None for each in (self.weights, self.clusters, self.strata, self.groups))


@dataclass(frozen=True)
class GroupTable:
    """The groups, in the order of their names.

    Attributes
    ----------
    names : ndarray, shape (G,)
        Numbers or text.
    values : ndarray, shape (G, q)
        NaN of groups without a pair.
    points : ndarray, shape (G, K)
        Weight of the points of each sample.
    pairs : ndarray, shape (G,)
        Weight of the pairs.
    """

    names: NDArray[Any]
    values: Floats
    points: Floats
    pairs: Floats


@dataclass(frozen=True)
class InGroups:
    """What there is of groups: how many have a pair, how many have none, what they weigh; the table on rank 0 only."""

    n_groups: int
    n_undefined: int
    weight: GroupWeight
    table: GroupTable | None = field(repr=False)


@dataclass(frozen=True)
class InClusters:
    """How many clusters there are, and how many of them have points of each sample."""

    n_clusters: int
    with_points_of: tuple[int, ...]


@dataclass(frozen=True)
class Analysis:
    """A complete statistic of points that something is said about, the same on every rank but for what it says.

    Attributes
    ----------
    value : ndarray, shape (q,)
    covariance : ndarray, shape (q, q)
        See `clusters.Spread`, and `groups.GroupMean` where there are groups.
    dof : float or None
        Degrees of freedom of it: groups, or clusters of the kind that has fewest, less one; None: there are neither.
    total_weight : float
        Ω, of the pairs that count.
    effective_sizes : tuple of float
        (Σ w)² / Σ w² of each sample.
    influence : list of ndarray, shape (q, n)
        ψ of this rank's points of each sample; empty where there are groups.
    bytes_sent : int
        By this rank.
    flags : tuple of str
        What makes the standard error doubtful.
    clusters : InClusters or None
    groups : InGroups or None
    """

    value: Floats
    covariance: Floats
    dof: float | None
    total_weight: float
    effective_sizes: tuple[float, ...]
    influence: list[Floats]
    bytes_sent: int
    flags: tuple[str, ...]
    clusters: InClusters | None = None
    groups: InGroups | None = None


def analyse(comm: Any, rows: Sequence[NDArray[Any]], kernel: Kernel, about: About, names: Sequence[str]) -> Analysis:
    """Return the complete statistic and its covariance.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    rows : sequence of ndarray
        This rank's points of each sample, checked.
    kernel : Kernel
    about : About
    names : sequence of str
        Of the samples, for messages.

    Raises
    ------
    UserError
        On every rank: if something is said about other points than there are, or what can't be; if no pair counts.
    """
    if about.groups is not None and (about.strata is not None or about.clusters is not None):
        raise UserError("the statistics of groups have no strata or clusters beside the groups: leave these out")
    if about.groups is not None and kernel.statistic_route:
        raise UserError("AUCs of several classes have no groups: leave these out")
    samples, keys = _samples(comm, rows, about, names)
    effective = _effective_sizes(comm, samples)
    if about.groups is not None:
        texts = texts_on_master(comm, keys.pop("groups"))
        moved = 0
        if kernel.influence_route != Kernel.influence_route:  # that one depends on the order of rows
            samples, moved = strata_together(comm, samples)
        sums, sent = point_sums(comm, samples, kernel)
        found = groups(comm, samples, sums, kernel.scale)
        del samples, sums
        values = kernel.combine(found.parts)
        found = replace(found, pairs=found.pairs * np.nan_to_num(kernel.counted_share(found.parts)))
        of_groups = mean(comm, found, values, about.group_weight)
        n = of_groups.n_groups
        few = f"only {count_of(n, 'group has', 'groups have')} a pair: a standard error wants {FEW_CLUSTERS} or more"
        return Analysis(
            value=of_groups.value,
            covariance=of_groups.covariance,
            dof=n - 1.0,
            total_weight=float(add_exactly(comm, [exact_sum(found.pairs)])[0]),
            effective_sizes=effective,
            influence=[],
            bytes_sent=moved + sent,
            flags=(few,) if n < FEW_CLUSTERS else (),
            groups=InGroups(n, of_groups.n_undefined, about.group_weight, _table(comm, found, values, texts)),
        )
    whole = influence(comm, samples, kernel)
    around = spread(comm, samples, whole.points, errors=kernel.has_own_variance)
    clustered = None if about.clusters is None else InClusters(around.n_in_all, around.n_clusters)
    return Analysis(
        value=whole.value,
        covariance=around.covariance,
        dof=None if clustered is None else float(min(clustered.with_points_of) - 1),
        total_weight=whole.total_weight * (1.0 if whole.means is None else float(kernel.counted_share(whole.means))),
        effective_sizes=effective,
        influence=whole.points,
        bytes_sent=whole.bytes_sent,
        flags=(*_flags(names, clustered, effective, weighted=about.weights is not None), *_tails(around)),
        clusters=clustered,
    )


def _samples(
    comm: Any, rows: Sequence[NDArray[Any]], about: About, names: Sequence[str]
) -> tuple[list[Sample], dict[str, Keys]]:
    """Return the samples with what is said about them, strata or groups being one, and the keys.  Collective."""
    weights = None if about.weights is None else checked_weights(comm, rows, about.weights, names)
    keys = {
        what: keys_of(comm, rows, given, what, names)
        for what, given in (("clusters", about.clusters), ("strata", about.strata), ("groups", about.groups))
        if given is not None
    }
    codes = {what: np.split(of.codes, np.cumsum([len(each) for each in rows])[:-1]) for what, of in keys.items()}
    strata, clusters = codes.get("groups", codes.get("strata")), codes.get("clusters")
    samples = [
        Sample(
            each,
            None if weights is None else weights[k],
            None if strata is None else strata[k],
            None if clusters is None else clusters[k],
        )
        for k, each in enumerate(rows)
    ]
    return samples, keys


def _tails(around: Spread) -> list[str]:
    """Return the sentence about heavy tails, of statistics whose variance is judged without components."""
    error = 0.0 if around.errors is None else float(around.errors.max())
    return [heavy_tails(error)] if error > VARIANCE_ERROR else []


def _flags(
    names: Sequence[str], clusters: InClusters | None, effective: Sequence[float], *, weighted: bool
) -> list[str]:
    """Return the reasons to doubt the standard error."""

    def few(name: str, n: float) -> str:
        if clusters is not None:
            return f"only {count_of(n, 'cluster has', 'clusters have')} a point of the sample {name}"
        if weighted:
            return f"the weights of the sample {name} are worth {n:.1f} points of equal weight"
        return f"the sample {name} has only {count_of(round(n), 'point')}"

    return [
        f"{few(name, n)}: a standard error wants {FEW_CLUSTERS} or more"
        for name, n in zip(names, effective if clusters is None else clusters.with_points_of, strict=True)
        if n < FEW_CLUSTERS
    ]


def checked_weights(
    comm: Any, rows: Sequence[NDArray[Any]], given: Sequence[ArrayLike], names: Sequence[str]
) -> list[Floats]:
    """Return the weights of the rows as doubles.  Collective."""

    def checked(name: str, weights: ArrayLike) -> Floats:
        w = _fitting(points[name], weights, "weights", name)
        if w.dtype.kind not in "biuf":
            raise UserError(f"the weights of the sample {name} must be numbers, not {w.dtype}")
        w = w.astype(np.float64)
        bad = np.flatnonzero(~are_weights(w))
        if len(bad):
            raise BadRowError(int(bad[0]), name, f"a weight of {w[bad[0]]:g}", WEIGHTS_MUST)
        return w + 0.0

    with together(comm, "checking the weights"):
        _refuse_other_number(rows, given, "weights")
    points = dict(zip(names, rows, strict=True))
    weights = checked_points(comm, names, given, checked, "checking the weights")
    for name, *of_ranks in zip(names, *comm.allgather([bool(w.any()) for w in weights]), strict=True):
        if not any(of_ranks):
            raise UserError(f"all weights of the sample {name} are 0: some points must count")
    return weights


def _refuse_other_number(rows: Sequence[NDArray[Any]], given: Sequence[ArrayLike], what: str) -> None:
    if len(given) != len(rows):
        raise UserError(f"there are {len(rows)} samples and {what} of {len(given)}: give an array for each")


def _fitting(points: NDArray[Any], said: ArrayLike, what: str, name: str) -> NDArray[Any]:
    found = np.asarray(said)
    if found.shape != (len(points),):
        raise UserError(
            f"the {what} of the sample {name} have shape {found.shape}: give one for each of its {len(points)} points"
        )
    return found


def keys_of(
    comm: Any, rows: Sequence[NDArray[Any]], given: Sequence[ArrayLike], what: str, names: Sequence[str]
) -> Keys:
    """Return the keys of the points of all samples, one sample after the other.  Collective."""

    def joined() -> NDArray[Any]:
        _refuse_other_number(rows, given, what)
        parts = [_fitting(points, said, what, name) for points, said, name in zip(rows, given, names, strict=True)]
        return np.concatenate([part for part in parts if len(part)] or parts)

    joined_names = succeed(comm, joined, f"checking the {what}")
    return shared(comm, joined_names, what)


def _effective_sizes(comm: Any, samples: Sequence[Sample]) -> tuple[float, ...]:
    """Return (Σ w)² / Σ w² of each sample.  Collective."""
    own: list[Fraction] = []
    for sample in samples:
        weights = sample.weights
        own += [Fraction(len(sample.rows))] * 2 if weights is None else [exact_sum(weights), exact_sum(weights**2)]
    sums = add_exactly(comm, own)
    return tuple(float(total**2 / squares) for total, squares in zip(sums[::2], sums[1::2], strict=True))


def _table(comm: Any, found: Groups, values: Floats, texts: Mapping[int, str]) -> GroupTable | None:
    """Return the table of all groups on rank 0, which has the texts.  Collective."""
    everyone = comm.gather((found.codes, values, found.points, found.pairs))
    if everyone is None:
        return None
    codes, all_values, points, pairs = (np.concatenate([each[k] for each in everyone], axis=-1) for k in range(4))
    names = np.array([texts[code] for code in codes.tolist()], dtype=object) if texts else codes.view(np.float64)
    order = np.argsort(names, kind="stable")
    return GroupTable(names[order], all_values.T[order], points.T[order], pairs[order])
