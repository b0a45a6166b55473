"""Confidence intervals from an estimate and its estimated variance, and the signs that they can't be trusted.

The normal law behind every interval is a limit. `interval` refuses where there is none to use; `flags` says where the
data are too few, or the statistic too close to degenerate, for the limit to be near.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import subsets
from mpi_ustat.inference.evidence import shares
from mpi_ustat.kernels.kernel import UNIT
from mpi_ustat.numerics.types import Floats

FIRST_ORDER_RATIO = 6.0
"""A first-order part of the variance below this many times the rest is not told from zero.

If it is zero and the rest comes from one product g(x) k(z), n·m times its estimate is (A - 2) σ₀², A of the law χ² with
2 degrees of freedom, and the rest σ₀²: the ratio passes 6 with probability P(A > 8) = 1.8 %. A rest made of several
products passes it less often.
"""

FEW_POINTS = 10.0
"""Fewer effective points than this on the losing side: a count with a relative standard error above 1/√10 = 32 %."""

VARIANCE_ERROR = 1.0 / 6.0
"""Largest relative standard error of the estimated variance: that of the variance of 72 normal observations.

Beyond it an interval takes Student's t (`tails_dof`), or is flagged, where the variance was estimated from a pilot.
"""

TAILS_ERROR, TAILS_ERROR_OF_FEW, FEW_ROWS = 0.55, 0.3, 200
"""The relative standard error beyond which Student's t is of no help either, and that of fewer points than the last.

Simulated of Gini's mean difference: of exponential and lognormal points (σ = 0.5, 1), n = 500 to 20 000, 94 to 96 % of
the intervals cover; with σ = 1.5 and n = 500, 92 %, and 90 % of those that are not flagged. Samples of fewer points
hide their tails.
"""

FEWEST_ROWS = 40
"""Fewer points of one sample than this hide how long the tail is even of a light one, for h without finite limits.

Simulated of normal points: of Gini's mean difference 94 % of the intervals cover at n = 50, 92 % at 30, 91 % at 15; of
the variance 93, 89 and 88 %.
"""

TAIL_INDEX = 0.58
"""The index of a tail (`tails.tail_index`) beyond which the estimated error of the variance can't be trusted either.

From 1/2 on there is no variance at all; the rest is for the error of the index. Simulated, Gini's mean difference of
lognormal points, n = 5000: with σ = 1.5 the index is 0.49 and 94 % of the intervals cover, with σ = 2 0.72 and 91 %.
"""

VARIANCE_ERROR_LIMITED = 1.0 / 4.0
"""The same for kernels with values in a finite interval: a variance that 16 points make up."""

VARIANCE_ERROR_LOGIT = 1.0 / math.sqrt(FEW_POINTS)
"""The same for averages of values in [0, 1], whose logit intervals are longer where few points decide: 10 of them."""

UNLIMITED = (-math.inf, math.inf)

DEGENERATE = (
    "the first-order part of the variance is not told from zero: the statistic may be degenerate, "
    "and a normal interval wrong"
)


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

    Raises
    ------
    UserError
        If `confidence` is not in (0, 1), `method` is another word, or `dof` is not positive.
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
    note = f"every tuple has the value {value:g}, of {disjoint.number} disjoint ones: an exact one-sided bound"
    ends = (high - reach, high) if value == high else (low, low + reach)
    return Interval(*ends, "exact", note)


def disjoint_tuples(degrees: Sequence[int], sizes: Sequence[Sequence[int]], n_pairs: int | None = None) -> Disjoint:
    """Return the disjoint tuples inside disjoint blocks, and the least chance that `n_pairs` sampled in each hit one.

    Parameters
    ----------
    degrees : sequence of int, length K
    sizes : sequence of K sequences of int
        Each sample's block sizes; at least one block has a tuple.
    n_pairs : int, optional
        Tuples sampled in each block; None: all are evaluated.
    """
    numbers = [min(map(operator.floordiv, of_block, degrees)) for of_block in zip(*sizes, strict=True)]
    chance = 1.0 if n_pairs is None else min(1.0 - (1.0 - 1.0 / k) ** n_pairs for k in numbers if k)
    return Disjoint(sum(numbers), chance)


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


def flags(
    components: ArrayLike,
    sizes: Sequence[int],
    degrees: Sequence[int],
    *,
    value: float | None = None,
    limits: tuple[float, float] = UNLIMITED,
    kurtosis: Sequence[float] | None = None,
    rows: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each reason to doubt the normal approximation of a U-statistic.

    Four reasons are looked for; three compare estimates, so that they are found, or missed, by chance near the border.
    What the data can't show in the few points that the variance was estimated from is judged by these, not by all.

    - *Nearly degenerate.* The limit is normal only by the first-order terms, Σ_k σ_k²/n_k of the variance (4ζ₁/n for
      one sample of degree 2). They must be `FIRST_ORDER_RATIO` times the rest of the variance of U_n.
    - *Few deciding points*, of a kernel in [0, 1]. Near an end, U = 1 - q or q with a small q that few points make up.
      The means of 1 - h (or h) over the pairs of a point have mean q and variance σ_k² over the sample, so that their
      (Σ w)²/Σ w² = n_k q²/(q² + σ_k²) points count, Kish's effective sample size: all n_k if they share q evenly, and j
      if j points have all of it. Each sample needs `FEW_POINTS`.
    - *Heavy tails.* The variance S_k² of the row means of n_k points has the relative variance (κ_k - 1)/n_k, κ_k their
      kurtosis (in the limit; normal: κ = 3, 2/n). So that of Σ_k S_k²/n_k, with shares ω_k ∝ σ_k²/n_k, is Σ_k ω_k²
      (κ_k - 1)/n_k. Its root must not pass `TAILS_ERROR`, as intervals take account of it (`tails_dof`), of few points
      `TAILS_ERROR_OF_FEW`; `VARIANCE_ERROR` where a pilot stands for more points, whose tails it may not have seen;
      `VARIANCE_ERROR_LIMITED` where h has finite limits; `VARIANCE_ERROR_LOGIT` of an average between 0 and 1.
      Not judged where the first-order part, which it is about, is not told from zero.
    - *Few points* of one sample, fewer than `FEWEST_ROWS`, where h has no finite limits.

    Parameters
    ----------
    components : array_like, shape (c,) or (c, 1, 1)
        Estimated Hoeffding components of the statistic, in the order of `mpi_ustat.inference.components`.
    sizes : sequence of int, length K
        n_k.
    degrees : sequence of int, length K
        (1, …, 1) or (2,). Other degrees have no such components, and no flags.
    value : float, optional
        The estimate; without it deciding points are not counted.
    limits : (float, float)
        Between which h lies.
    kurtosis : sequence of float, length K, optional
        E(r - Er)⁴/Var(r)² of each sample's row means; without it tails are not judged.
    rows : sequence of int, length K, optional
        Points that the components were estimated from, by default all.
    names : sequence of str, length K, optional
        What to call the samples, after that word.

    Returns
    -------
    tuple of str
        Empty if there is no reason.
    """
    degrees, k = tuple(degrees), len(sizes)
    found = np.asarray(components, dtype=np.float64).ravel()
    seen = np.asarray(sizes if rows is None else rows, dtype=np.float64)
    if degrees == (2,):
        first, rest = 4.0 * found[:1] / seen, 2.0 * float(found[1]) / (seen[0] * (seen[0] - 1.0))
    elif degrees == (1,) * k and len(found) == 2**k - 1:
        first, rest = found[:k] / seen, _higher_order(found, seen.tolist())
    else:
        return ()
    sentences = []
    if not float(first.sum()) > max(FIRST_ORDER_RATIO * rest, 0.0):
        sentences.append(DEGENERATE)
    elif kurtosis is not None:
        most = None
        if limits == UNIT and value is not None:
            most = VARIANCE_ERROR_LOGIT
        elif not np.isfinite(limits).all() and (seen >= sizes).all():
            of_samples = shares(found[:k].tolist(), sizes)
            points = 0.0 if of_samples is None else 1.0 / float((of_samples**2 / seen).sum())
            most = TAILS_ERROR if points >= FEW_ROWS else TAILS_ERROR_OF_FEW
        sentences += heavy_tails(found[:k], sizes, kurtosis, rows=seen, limits=limits, most=most)
    if degrees == (2,) and not np.isfinite(limits).all() and seen[0] < FEWEST_ROWS:
        sentences.append(
            f"the variance was estimated from {seen[0]:.0f} points: fewer than {FEWEST_ROWS} are too few for a normal "
            "interval"
        )
    if limits == UNIT and value is not None:
        names = names or [str(number) for number in range(1, k + 1)]
        for name, points in zip(names, _deciding_points(value, found[:k], seen).tolist(), strict=True):
            if points < FEW_POINTS:
                sentences.append(
                    f"about {points:.1f} points of sample {name} decide how far the estimate is from "
                    f"{'0' if value < 0.5 else '1'}: fewer than {FEW_POINTS:g} are too few for a normal interval"
                )
    return tuple(sentences)


def heavy_tails(
    first_order: ArrayLike,
    sizes: Sequence[int],
    kurtosis: Sequence[float],
    *,
    rows: ArrayLike | None = None,
    limits: tuple[float, float] = UNLIMITED,
    most: float | None = None,
) -> list[str]:
    """Return the sentence about heavy tails of `flags`, if `variance_error` passes `most` or what the limits allow."""
    error = variance_error(first_order, sizes, kurtosis, rows)
    if shares(np.asarray(first_order).tolist(), sizes) is None:
        return []  # no first-order variance: flagged as that
    if error <= (most or (VARIANCE_ERROR_LIMITED if np.isfinite(limits).all() else VARIANCE_ERROR)):
        return []
    how_large = f"of about {100.0 * error:.0f} %" if math.isfinite(error) else "that no double holds"
    return [
        f"heavy tails: the estimated variance has a relative standard error {how_large}, "
        "and a normal interval covers too little"
    ]


def endless_tails(
    first_order: ArrayLike,
    sizes: Sequence[int],
    kurtosis: Sequence[float],
    indices: Sequence[float],
    *,
    rows: Sequence[int],
) -> list[str]:
    """Return the sentence about tails so heavy that their own estimated weight, `kurtosis`, is far too small.

    Looked at where that is large already (`VARIANCE_ERROR`), in samples of `FEW_ROWS` points or more that have a tenth
    or more of the first-order variance.

    Parameters
    ----------
    first_order, sizes, kurtosis, rows
        As of `variance_error`.
    indices : sequence of float
        `tails.tail_index` of each sample's row means.
    """
    of_samples = shares(np.asarray(first_order).tolist(), sizes)
    if of_samples is None or not variance_error(first_order, sizes, kurtosis, rows) > VARIANCE_ERROR:
        return []
    seen = zip(of_samples.tolist(), indices, rows, strict=True)
    largest = max((index for share, index, n in seen if share >= 0.1 and n >= FEW_ROWS), default=0.0)
    if largest <= TAIL_INDEX:
        return []
    return [
        f"heavy tails: they fall off by a power law of index about {largest:.1f}, where there is no variance from 0.5 "
        "on, and a normal interval covers too little"
    ]


def tails_dof(error: float) -> float:
    """Return the degrees of freedom 1/e² of a variance whose relative standard error e passes `VARIANCE_ERROR`.

    Satterthwaite's would be 2/e². Half of it makes up for what that leaves out: that e is estimated from the same
    points, too small where the largest are missing, and that the estimate itself is too small then. Simulated: see
    `TAILS_ERROR`.
    """
    return 1.0 / error**2 if error > VARIANCE_ERROR else math.inf


def variance_error(
    first_order: ArrayLike, sizes: Sequence[int], kurtosis: Sequence[float], rows: ArrayLike | None = None
) -> float:
    """Return the relative standard error of the estimated first-order variance, √(Σ_k ω_k² (κ_k - 1)/n_k).

    Parameters
    ----------
    first_order : array_like, shape (K,)
        σ_k². An estimate below 0 has no share.
    sizes : sequence of int
        n_k, by which the shares ω_k ∝ σ_k²/n_k are.
    kurtosis : sequence of float
        κ_k.
    rows : array_like, shape (K,), optional
        Points that σ_k² was estimated from, by default n_k.
    """
    of_samples = shares(np.asarray(first_order).tolist(), sizes)
    if of_samples is None:
        return math.inf
    seen = np.asarray(sizes if rows is None else rows, dtype=np.float64)
    return math.sqrt(max(float((of_samples**2 * (np.asarray(kurtosis) - 1.0) / seen).sum()), 0.0))


def few_sampled(value: float, n_pairs: int | None, limits: tuple[float, float], *, pairs: str = "pairs") -> str | None:
    """Return why sampled pairs are too few for a normal interval of an average of values in [0, 1]; None if not.

    Of B independent values with mean 1 - q (or q), an effective number B q²/E (1-h)² >= B q decides, since h in [0, 1]
    has E (1-h)² <= q.
    """
    if limits != UNIT or n_pairs is None:
        return None
    deciding = n_pairs * min(value, 1.0 - value)
    if not deciding < FEW_POINTS:
        return None
    return (
        f"about {deciding:.1f} of {n_pairs} sampled {pairs} decide how far the estimate is from "
        f"{'0' if value < 0.5 else '1'}: fewer than {FEW_POINTS:g} are too few for a normal interval"
    )


def _higher_order(components: Floats, sizes: Sequence[float]) -> float:
    """Return Σ_{|S| >= 2} σ_S²/Π_S n_k."""
    return sum(
        float(component) / math.prod(sizes[k] for k in s)
        for s, component in zip(subsets(len(sizes)), components, strict=True)
        if len(s) > 1
    )


def _deciding_points(value: float, first_order: Floats, sizes: Floats) -> Floats:
    distance = min(value, 1.0 - value)
    if distance <= 0.0:
        return np.zeros_like(sizes)
    # An estimated component below 0 says that the points share evenly.
    return np.asarray(sizes / (1.0 + np.maximum(first_order, 0.0) / distance**2))


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
    """

    first: int
    second: int
    value: float
    stderr: float | None
    interval: Interval
    flags: tuple[str, ...] = ()


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
) -> Difference:
    """Return the paired difference of two of q statistics, with its standard error and Wald interval.

    Var(U_a - U_b) = V_aa + V_bb - 2 V_ab: what both owe to the same points cancels.

    Parameters
    ----------
    values : array_like, shape (q,)
    covariance : array_like, shape (q, q)
        Estimated covariance matrix of the values.
    confidence : float
        Coverage of the interval, in (0, 1).
    first, second : int
        a and b.
    limits : (float, float)
        Of the statistics; that of their difference is no larger than what is between them.
    dof : float, optional
        Degrees of freedom of the covariance.
    flags : sequence of str
        What is known to make it doubtful.

    Raises
    ------
    UserError
        If there are no two such statistics, or `confidence` is not in (0, 1).
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
    return Difference(first, second, value, stderr, within, tuple(dict.fromkeys([*notes, *flags])))
