"""Confidence intervals from an estimate and its estimated variance.

The normal law behind every interval is a limit. `interval` refuses where there is none to use; `doubts.flags` says
where the data are too few, or the statistic too close to degenerate, for the limit to be near.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.inference.hypotheses import WaldTest, wald_test
from mpi_ustat.kernels.kernel import UNIT
from mpi_ustat.numerics.types import Ints
from mpi_ustat.wording import count_of

UNLIMITED = (-math.inf, math.inf)


class Disjoint(NamedTuple):
    """Disjoint tuples of points: how many there are, and the chance that each was evaluated."""

    number: int
    chance: float = 1.0


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval, in the unit of the estimate.

    Attributes
    ----------
    lower, upper : float or None
        None where there is no interval.
    method : {"logit", "wald", "exact", "none"}
        exact: one-sided, of a statistic of which every tuple has the largest or the smallest value that there is.
    note : str or None
        Why there is none, or what an exact one rests on.
    """

    lower: float | None
    upper: float | None
    method: str
    note: str | None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Both ends, where there is an interval."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)


def interval(
    value: float,
    variance: float | None,
    confidence: float,
    *,
    limits: tuple[float, float] = UNLIMITED,
    dof: float | None = None,
    method: str | None = None,
    disjoint: Disjoint | None = None,
) -> Interval:
    """Return the confidence interval of an asymptotically normal estimate.

    Wald: u ± q s with s² the variance and q the (1 + confidence)/2 quantile of the normal law, or Student's, cut off at
    the limits of what is estimated. Logit, for averages u of a kernel with values in [0, 1]: by the delta method
    logit u = log(u/(1-u)) has standard error s (d/du) logit u = s/(u(1-u)), and the limits logit u ± q s/(u(1-u)) are
    carried back by t → 1/(1 + e^-t). They stay in (0, 1), and follow the skewness that u has near the ends.

    Exact: if u is the largest value b that a kernel with values in [a, b] has, h = b for all tuples, k disjoint ones
    among them, which are independent. That has at most the probability p^k, p = P(h = b), and E h <= b - (b-a)(1-p). So
    with confidence 1 - α, E h is at least b - (b-a)(1 - α^(1/k)): any smaller E h would make the data, or
    rather their disjoint tuples, less likely than α. Alike at a.

    Of B tuples sampled in a block with k disjoint ones, all have h = b with the probability U^B given the points, or
    less if they are distinct. U is the mean, over the ways to divide the points into k tuples, of the share s of these
    with h = b. So E U^B <= E s^B (Jensen), the probability that B draws out of k independent tuples all have it:
    E p^D, D the number of different ones drawn. Which ones are drawn is negatively associated: E p^D <= [1 - c (1-p)]^k
    with c = 1 - (1-1/k)^B the chance of each, and b - (b-a)(1 - α^(1/k))/c is a bound.

    Parameters
    ----------
    value : float
        u, the estimate.
    variance : float or None
        Its estimated variance, which may be negative: it is unbiased, hence never clipped.
    confidence : float
        Coverage, in (0, 1).
    limits : (float, float)
        a and b, between which h and what is estimated lie.
    dof : float, optional
        Degrees of freedom of `variance`: takes Student's quantile instead of the normal one.
    method : {"logit", "wald"}, optional
        By default "logit" if the limits are 0 and 1, otherwise "wald".
    disjoint : Disjoint, optional
        k and c; without it there is no exact bound.

    Returns
    -------
    Interval
        Without limits, and with a note, where the estimate or its variance is not finite, the variance is not positive,
        or u is not inside (0, 1) though the kernel is bounded or the logit asked for, or outside its limits.
    """
    if not 0.0 < confidence < 1.0:
        raise UserError(f"the confidence must lie between 0 and 1, not {confidence}")
    if method not in (None, "logit", "wald"):
        raise UserError(f"the interval is made by logit or wald, not {method!r}")
    if dof is not None and not dof > 0.0:
        raise UserError(f"the degrees of freedom must be positive, not {dof}")
    low, high = limits
    bounded = limits == UNIT
    method = method or ("logit" if bounded else "wald")
    if not math.isfinite(value):
        return _none("the estimate is not finite")
    if disjoint is not None and value in limits and math.isfinite(high - low):
        return _one_sided(value, confidence, limits, disjoint)
    if variance is None or not math.isfinite(variance):
        return _none("there is no finite estimate of the variance")
    if variance <= 0.0:
        return _none("the estimated variance is not positive")
    if (bounded or method == "logit") and not 0.0 < value < 1.0:
        where = f"exactly {value:g}" if value in (0.0, 1.0) else "outside [0, 1]"
        return _none(f"the estimate is {where}, where a normal approximation has no scale")
    half_width = _quantile(confidence, dof) * math.sqrt(variance)
    if method == "wald":
        lower, upper = max(value - half_width, low), min(value + half_width, high)
        if lower > upper:
            return _none(f"the estimate is outside [{low:g}, {high:g}], by more than its error bar")
        return Interval(lower, upper, "wald", None)
    centre, half_width = math.log(value) - math.log1p(-value), half_width / (value * (1.0 - value))
    return Interval(_expit(centre - half_width), _expit(centre + half_width), "logit", None)


def _one_sided(value: float, confidence: float, limits: tuple[float, float], disjoint: Disjoint) -> Interval:
    low, high = limits
    # 1 - α^(1/k), which keeps its digits for large k.
    reach = (high - low) * min(1.0, -math.expm1(math.log1p(-confidence) / disjoint.number) / disjoint.chance)
    ones = count_of(disjoint.number, "disjoint one")
    note = f"every tuple has the value {value:g}, of {ones}: an exact one-sided bound"
    ends = (high - reach, high) if value == high else (low, low + reach)
    return Interval(*ends, "exact", note)


def disjoint_tuples(
    degrees: Sequence[int], sizes: Sequence[Sequence[int] | Ints], n_pairs: int | None = None
) -> Disjoint:
    """Return the disjoint tuples inside disjoint blocks, and the least chance that `n_pairs` sampled in each hit one.

    At least one block has a tuple; all tuples are evaluated by default. `sizes` are those of each sample's blocks.
    """
    numbers = np.min([np.asarray(each) // d for each, d in zip(sizes, degrees, strict=True)], axis=0)
    kinds = np.unique(numbers).tolist()
    chance = 1.0 if n_pairs is None else min(1.0 - (1.0 - 1.0 / k) ** n_pairs for k in kinds if k)
    return Disjoint(int(numbers.sum()), chance)


def _none(note: str) -> Interval:
    return Interval(None, None, "none", note)


def _quantile(confidence: float, dof: float | None) -> float:
    """Return the q with P(|T| <= q) = confidence."""
    sign, tail = 1.0, 0.5 + 0.5 * confidence
    if tail == 1.0:  # rounded: the other tail has more digits
        sign, tail = -1.0, 0.5 * (1.0 - confidence)
    if dof is None or math.isinf(dof):
        return sign * NormalDist().inv_cdf(tail)
    from scipy.special import stdtrit

    return sign * float(stdtrit(dof, tail))


def _expit(t: float) -> float:
    """Return 1/(1 + e^-t) without overflow."""
    return 1.0 / (1.0 + math.exp(-t)) if t >= 0.0 else math.exp(t) / (1.0 + math.exp(t))


@dataclass(frozen=True)
class Difference:
    """The difference of two statistics of the same points.

    Attributes
    ----------
    first, second : int
        Their numbers, from 0.
    value : float
        The first minus the second.
    stderr : float or None
        None if the estimated variance is not positive.
    interval : Interval
    flags : tuple of str
        What makes them doubtful, in sentences.
    test : WaldTest or None
        That it is 0, or with a margin at most minus that; None where there is no interval.
    """

    first: int
    second: int
    value: float
    stderr: float | None
    interval: Interval
    flags: tuple[str, ...] = ()
    test: WaldTest | None = None


def difference(
    values: ArrayLike,
    covariance: ArrayLike,
    confidence: float,
    first: int = 0,
    second: int = 1,
    *,
    limits: tuple[float, float] = UNLIMITED,
    dof: float | None = None,
    flags: Sequence[str] = (),
    margin: float | None = None,
) -> Difference:
    """Return the paired difference of two of q statistics, with its standard error and Wald interval.

    Var(U_a - U_b) = V_aa + V_bb - 2 V_ab: what both owe to the same points cancels.

    Parameters
    ----------
    values, covariance : array_like, shapes (q,) and (q, q)
        The statistics, and their estimated covariance with `dof` degrees of freedom.
    confidence : float
        Coverage of the interval, in (0, 1).
    first, second : int
        a and b.
    limits : (float, float)
        Of the statistics; that of their difference is no larger than what is between them.
    flags : sequence of str
        What is known to make it doubtful.
    margin : float, optional
        Tested is, one-sided, that the first is worse than the second by this or more, instead of that they are equal.
    """
    u, v = np.asarray(values, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if not (0 <= first < len(u) and 0 <= second < len(u) and first != second):
        raise UserError(f"statistics {first} and {second} of {len(u)} have no difference: name two, counted from 0")
    value = float(u[first] - u[second])
    variance = float(v[first, first] + v[second, second] - 2.0 * v[first, second])
    stderr = math.sqrt(variance) if 0.0 < variance < math.inf else None
    span = limits[1] - limits[0]
    within = interval(value, variance, confidence, limits=(-span, span), dof=dof)
    notes = [] if within.note is None else [within.note]
    test = None
    if stderr is not None and within.bounds is not None:
        test = wald_test(value, stderr, 0.0 if margin is None else -margin, dof=dof, one_sided=margin is not None)
    return Difference(first, second, value, stderr, within, tuple(dict.fromkeys([*notes, *flags])), test)
