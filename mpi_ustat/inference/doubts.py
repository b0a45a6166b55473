"""The signs that the normal law behind an interval is far: few points, heavy tails, statistics close to degenerate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.inference.components import subsets
from mpi_ustat.inference.evidence import shares
from mpi_ustat.inference.intervals import UNLIMITED
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

DEGENERATE = (
    "the first-order part of the variance can't be told from zero: the statistic may be degenerate, "
    "and a normal interval wrong"
)


@dataclass(frozen=True)
class Tails:
    """The means of h over the pairs of each point of a sample, of which the first-order part of a variance is made.

    For each sample there are σ_k², which has no share in the variance if it is estimated below 0, n_k, by which the
    shares ω_k ∝ σ_k²/n_k are, κ_k, and the number of points (`rows`) that σ_k² was estimated from.
    """

    first_order: ArrayLike
    sizes: Sequence[int]
    kurtosis: Sequence[float]
    rows: ArrayLike

    @property
    def shares(self) -> Floats | None:
        """ω_k, None without a first-order variance."""
        return shares(np.asarray(self.first_order).tolist(), self.sizes)

    @property
    def error(self) -> float:
        """The relative standard error of the estimated first-order variance, √(Σ_k ω_k² (κ_k - 1)/n_k)."""
        if self.shares is None:
            return math.inf
        seen = np.asarray(self.rows, dtype=np.float64)
        return math.sqrt(max(float((self.shares**2 * (np.asarray(self.kurtosis) - 1.0) / seen).sum()), 0.0))

    def heavy(self, limits: tuple[float, float] = UNLIMITED, most: float | None = None) -> list[str]:
        """Return the sentence about heavy tails of `flags`, if `error` passes `most` or what the limits allow.

        None without a first-order variance, which is flagged as that.
        """
        most = most or (VARIANCE_ERROR_LIMITED if np.isfinite(limits).all() else VARIANCE_ERROR)
        if self.shares is None or self.error <= most:
            return []
        return [heavy_tails(self.error)]

    def endless(self, indices: Sequence[float]) -> list[str]:
        """Return the sentence about tails so heavy that their own estimated weight, `kurtosis`, is far too small.

        Looked at where that is large already (`VARIANCE_ERROR`), by the `tails.tail_index` of samples of `FEW_ROWS`
        points or more that have a tenth or more of the first-order variance.
        """
        if self.shares is None or not self.error > VARIANCE_ERROR:
            return []
        seen = zip(self.shares.tolist(), indices, np.asarray(self.rows), strict=True)
        largest = max((index for share, index, n in seen if share >= 0.1 and n >= FEW_ROWS), default=0.0)
        if largest <= TAIL_INDEX:
            return []
        return [
            f"heavy tails: they fall off like a power law of index {largest:.1f}, from 0.5 on there is no variance, "
            "and a normal interval covers the value too seldom"
        ]


def heavy_tails(error: float) -> str:
    """Return the sentence about heavy tails by the relative standard error of the variance."""
    how_large = f"about {100.0 * error:.0f} %" if math.isfinite(error) else "more than a double holds"
    return (
        f"heavy tails: the relative standard error of the estimated variance is {how_large}, and a normal interval "
        "covers the value too seldom"
    )


def tails_dof(error: float) -> float:
    """Return the degrees of freedom 1/e² of a variance whose relative standard error e passes `VARIANCE_ERROR`.

    Satterthwaite's would be 2/e². Half of it makes up for what that leaves out: that e is estimated from the same
    points, too small where the largest are missing, and that the estimate itself is too small then. Simulated: see
    `TAILS_ERROR`.
    """
    return 1.0 / error**2 if error > VARIANCE_ERROR else math.inf


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
        most, tails = None, Tails(found[:k], sizes, kurtosis, seen)
        if limits == UNIT and value is not None:
            most = VARIANCE_ERROR_LOGIT
        elif not np.isfinite(limits).all() and (seen >= sizes).all():
            points = 0.0 if tails.shares is None else 1.0 / float((tails.shares**2 / seen).sum())
            most = TAILS_ERROR if points >= FEW_ROWS else TAILS_ERROR_OF_FEW
        sentences += tails.heavy(limits, most)
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
                    f"about {points:.1f} points of the sample {name} decide how far the estimate is from "
                    f"{'0' if value < 0.5 else '1'}: fewer than {FEW_POINTS:g} are too few for a normal interval"
                )
    return tuple(sentences)


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
