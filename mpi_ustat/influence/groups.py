"""The statistic of each group, as per query or per user, and their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.influence.keyed import aligned, sums_by_key, union
from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.mpi.collectives import add_exactly, add_integers
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.types import Floats, Ints

GroupWeight = Literal["one", "points", "positives", "pairs"]
"""What a group weighs in the mean: 1, the weight of its points, of those of its first sample, or of its pairs."""
GROUP_WEIGHTS: tuple[str, ...] = get_args(GroupWeight)


@dataclass(frozen=True)
class Groups:
    """Groups on this rank.

    Attributes
    ----------
    codes : ndarray of int64, shape (G,)
        Which groups they are.
    parts : ndarray, shape (p, G)
        The parts of the statistic within each; NaN where it has no pair.
    points : ndarray, shape (K, G)
        Weight of the points of each sample.
    pairs : ndarray, shape (G,)
        Weight of the pairs.
    """

    codes: Ints
    parts: Floats
    points: Floats
    pairs: Floats

    def weights(self, by: GroupWeight) -> Floats:
        """Return the weight of each group in the mean."""
        weights = {"one": np.ones(len(self.codes)), "points": self.points.sum(axis=0), "positives": self.points[0]}
        return self.pairs if by == "pairs" else weights[by]


@dataclass(frozen=True)
class GroupMean:
    """The mean of a statistic over groups.

    Attributes
    ----------
    value : ndarray, shape (q,)
        θ = Σ a_g θ_g / Σ a_g.
    covariance : ndarray, shape (q, q)
        G/(G - 1) Σ (a_g (θ_g - θ))² / (Σ a)², groups being drawn from a population of groups; NaN for one group.
    n_groups, n_undefined : int
        Groups in the mean, and groups without a pair, or whose values are not defined, which are left out.
    """

    value: Floats
    covariance: Floats
    n_groups: int
    n_undefined: int


def groups(comm: Any, samples: Sequence[Sample], sums: Sequence[PointSums], scale: int) -> Groups:
    """Return the groups that belong to this rank, from the point sums within strata, which are the groups.  Collective.

    A statistic of one sample counts each of its pairs at both points.
    """
    if sums[0].pairs.ndim > 1:
        raise UserError("a statistic whose parts are over pairs of their own has no groups: use it without them")
    found = []
    for k, sample in enumerate(samples):
        weights = sample.weights_or_ones
        known = [weights] if k else [weights, weights * sums[0].pairs, *(weights * each for each in sums[0].h)]
        found.append(sums_by_key(comm, _strata(sample), known, apart=not sample.together))
    codes = union(found)
    points = aligned(codes, [(each, own[:1]) for each, own in found])[:, 0]
    ((pairs, *parts),) = aligned(codes, [(found[0][0], found[0][1][1:])])
    means = [np.divide(part, scale * pairs, out=np.full(len(codes), np.nan), where=pairs > 0.0) for part in parts]
    return Groups(codes, np.array(means), points, pairs / (2.0 if len(samples) == 1 else 1.0))


def _strata(sample: Sample) -> Ints:
    if sample.strata is None:
        raise UserError("the points are in no groups")
    return sample.strata


def mean(comm: Any, found: Groups, values: Floats, by: GroupWeight) -> GroupMean:
    """Return the mean over all groups that have a pair, of values (q, G) of this rank's.  Collective.

    Raises
    ------
    UserError
        If no group has a pair.
    """
    there = (found.pairs > 0.0) & np.isfinite(values).all(axis=0)
    weights, values = found.weights(by)[there], values[:, there]
    n, n_undefined = add_integers(comm, np.array([there.sum(), (~there).sum()])).tolist()
    total, *sums = add_exactly(comm, [exact_sum(weights), *(exact_sum(weights * each) for each in values)])
    if not total:
        raise UserError(
            f"none of the {n_undefined} groups has a pair: each has points of one kind only, choose larger ones"
        )
    theta = np.array([float(each / total) for each in sums])
    away = weights * (values - theta[:, None])
    squares = [float(each / total**2) for each in add_exactly(comm, [exact_sum(a * b) for a in away for b in away])]
    covariance = np.array(squares).reshape(len(theta), -1) * (n / (n - 1) if n > 1 else np.nan)
    return GroupMean(theta, covariance, n, n_undefined)
