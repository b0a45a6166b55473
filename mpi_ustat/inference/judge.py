"""What an interval is judged by: components, what they were estimated from, and the projections of some points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpi_ustat.inference.doubts import Tails, flags, tails_dof
from mpi_ustat.inference.evidence import Evidence, satterthwaite, shares
from mpi_ustat.inference.intervals import Difference, difference
from mpi_ustat.inference.tails import differ, kurtosis, middle_ranks, tail_index
from mpi_ustat.kernels.kernel import UNIT, Kernel
from mpi_ustat.numerics.types import Floats, Ints


@dataclass(frozen=True)
class Projections:
    """First-order projections of some points of every sample: the means of the parts over the pairs of each.

    Attributes
    ----------
    of_samples : tuple of ndarray, shapes (a_k, p)
    rows : tuple of ndarray of int64, shapes (a_k,)
        Global numbers of those points.
    points : tuple of ndarray, shapes (a_k,) or (a_k, d)
        The points themselves.
    """

    of_samples: tuple[Floats, ...]
    rows: tuple[Ints, ...]
    points: tuple[Floats, ...] = ()

    def of(self, gradient: Floats) -> list[Floats]:
        """Return those of the statistic with these derivatives by the parts' averages, of each sample's points."""
        parts = np.flatnonzero(gradient)
        return [each[:, parts] @ gradient[parts] for each in self.of_samples]

    def differ(self, gradients: Floats, bounds: Sequence[Sequence[int] | Ints]) -> float:
        """Return the p-value of the tests that blocks of rows have one law: the least, times the number of tests.

        They are F tests of the mean projections, which the first-order part of the statistics is made of, and of the
        ranks of every coordinate and their squared distances from the middle, as blocks on both sides of the middle
        have the same mean projections where h is about distances, yet are far from each other. Each kind has half.

        `bounds` says where the blocks of each sample begin and end.
        """
        groups = [np.searchsorted(each, rows, side="right") for rows, each in zip(self.rows, bounds, strict=True)]
        of_projections = [
            differ(each, of_sample)
            for gradient in gradients
            for each, of_sample in zip(self.of(gradient), groups, strict=True)
        ]
        of_coordinates = [
            differ(values, of_sample)
            for points, of_sample in zip(self.points, groups, strict=True)
            for ranks in map(middle_ranks, points.reshape(len(points), -1).T)
            for values in (ranks, (ranks - ranks.mean()) ** 2)
        ]
        kinds = [each for each in (of_projections, of_coordinates) if each]
        return min(1.0, len(kinds) * min(len(each) * min(each) for each in kinds))


def along(components: Floats, gradient: Floats) -> Floats:
    """Return the components, shape (c,), of the statistic with these derivatives by the parts' averages."""
    parts = np.flatnonzero(gradient)
    some = components[:, parts][:, :, parts]
    return np.asarray(np.einsum("p,cpr,r->c", gradient[parts], some, gradient[parts]))


def tails_matter(
    kernel: Kernel, components: Floats, gradient: Floats, sizes: Sequence[int], rows: Sequence[int]
) -> bool:
    """Tell whether tails can be heavy at all.

    Of h between finite limits, as far apart as w, the projections of a statistic differ from their mean by at most
    r = w Σ|gradient|, so that their kurtosis is at most r²/σ_k². Where that can't pass the limit, none need be looked
    at: of no statistic, nor of the difference of any two.
    """
    width = kernel.limits[1] - kernel.limits[0]
    if not np.isfinite(width):
        return True
    for each in [*gradient, *(a - b for a, b in itertools.combinations(gradient, 2))]:
        first = along(components, each)[: len(sizes)]
        if not (first > 0.0).all():
            return True
        most = ((width * np.abs(each).sum()) ** 2 / first).tolist()
        if Tails(first, sizes, most, rows).heavy(kernel.limits):
            return True
    return False


@dataclass(frozen=True)
class Judge:
    """What intervals are judged by: of a statistic, and of differences between several.

    Attributes
    ----------
    components : ndarray, shape (c, p, p), or None
    names : sequence of str or None
        Of the samples, for people.
    known_dof : float or None
        Degrees of freedom of a variance that no components were needed for.
    gradient : ndarray, shape (q, p)
        Derivatives of the q statistics by the averages of the parts.
    first_order : tuple of float, or None
        σ_k² of the statistic, where they are known without all components.
    """

    kernel: Kernel
    sizes: tuple[int, ...]
    components: Floats | None
    evidence: Evidence
    projected: Projections | None
    names: Sequence[str] | None
    known_dof: float | None
    gradient: Floats
    first_order: tuple[float, ...] | None = None

    def flags(self, gradient: Floats, *, value: float | None = None) -> list[str]:
        """Return the flags against the interval of a statistic with these derivatives by the parts' averages."""
        tails = self._tails(gradient)
        if self.components is None:
            return [] if tails is None else tails.heavy()
        averaged = self.kernel.limits == UNIT and not self.kernel.pooled_only  # and no quotient of averages
        if value is not None and self.evidence.means is not None and averaged:
            value = float(gradient @ np.asarray(self.evidence.means))  # with the components, of the same points
        found = flags(
            self.of(gradient),
            self.sizes,
            self.kernel.degrees,
            value=value,
            limits=self.kernel.limits,
            kurtosis=None if tails is None else tails.kurtosis,
            rows=self.evidence.rows,
            names=self.names,
        )
        if found or self.projected is None or tails is None or np.isfinite(self.kernel.limits).all():
            return list(found)
        return tails.endless(list(map(tail_index, self.projected.of(gradient))))

    def _tails(self, gradient: Floats) -> Tails | None:
        """Return the tails of the projections, where these and the first-order variance are known."""
        first = self.first_order if self.components is None else self.of(gradient)[: len(self.sizes)]
        if self.projected is None or first is None:
            return None
        return Tails(first, self.sizes, list(map(kurtosis, self.projected.of(gradient))), self.evidence.rows)

    def of(self, gradient: Floats) -> Floats:
        """Return the components, shape (c,), of the statistic with these derivatives by the parts' averages."""
        assert self.components is not None
        return along(self.components, gradient)

    def stderr_error(self, gradient: Floats) -> float | None:
        """Return the relative standard error of its standard error, half that of the variance; None if not known."""
        tails = None if self.components is None else self._tails(gradient)
        return None if tails is None or not math.isfinite(tails.error) else tails.error / 2.0

    def dof(self, gradient: Floats) -> float | None:
        """Return the degrees of freedom of its variance, fewer where tails are heavy.

        None if they are taken as infinite, as those of all points without heavy tails are.
        """
        if self.components is None:
            return self.known_dof
        found = math.inf
        if self.evidence.dof:
            found = satterthwaite(self.evidence.dof, shares(self.of(gradient).tolist(), self.sizes))
        if not np.isfinite(self.kernel.limits).all():
            tails = self._tails(gradient)
            found = min(found, tails_dof(tails.error) if tails is not None and math.isfinite(tails.error) else math.inf)
        return found if math.isfinite(found) else self.known_dof

    def difference(
        self, values: Floats, covariance: Floats, confidence: float, a: int, b: int, margin: float | None = None
    ) -> Difference:
        """Return the difference of statistics a and b, with its interval and what speaks against it."""
        gradient = self.gradient[a] - self.gradient[b]
        return difference(
            values,
            covariance,
            confidence,
            a,
            b,
            limits=self.kernel.limits,
            dof=self.dof(gradient),
            flags=self.flags(gradient),
            margin=margin,
        )
