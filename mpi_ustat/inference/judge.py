"""What an interval is judged by: components, what they were estimated from, and the projections of some points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.inference.evidence import Evidence, satterthwaite, shares
from mpi_ustat.inference.intervals import (
    Difference,
    difference,
    endless_tails,
    flags,
    heavy_tails,
    tails_dof,
    variance_error,
)
from mpi_ustat.inference.tails import differ, kurtosis, middle_ranks, tail_index
from mpi_ustat.kernels.kernel import UNIT, Array, Kernel

Ints = NDArray[np.int64]


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

    of_samples: tuple[Array, ...]
    rows: tuple[Ints, ...]
    points: tuple[Array, ...] = ()

    def of(self, gradient: Array) -> list[Array]:
        """Return those of the statistic with these derivatives by the parts' averages, of each sample's points."""
        parts = np.flatnonzero(gradient)
        return [each[:, parts] @ gradient[parts] for each in self.of_samples]

    def kurtosis(self, gradient: Array) -> tuple[float, ...]:
        """Return the kurtosis of `of`."""
        return tuple(map(kurtosis, self.of(gradient)))

    def tail_indices(self, gradient: Array) -> tuple[float, ...]:
        """Return the tail indices of `of`."""
        return tuple(map(tail_index, self.of(gradient)))

    def differ(self, gradients: Array, bounds: Sequence[Sequence[int]]) -> float:
        """Return the p-value of the tests that blocks of rows have one law: the least, times the number of tests.

        They are F tests of the mean projections, which the first-order part of the statistics is made of, and of the
        ranks of every coordinate and their squared distances from the middle, as blocks on both sides of the middle
        have the same mean projections where h is about distances, yet are far from each other. Each kind has half.

        Parameters
        ----------
        gradients : ndarray, shape (q, p)
            Derivatives of the statistics by the parts' averages.
        bounds : sequence of K sequences of int, length N + 1
            Where the blocks of each sample begin and end.
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


def along(components: Array, gradient: Array) -> Array:
    """Return the components, shape (c,), of the statistic with these derivatives by the parts' averages."""
    parts = np.flatnonzero(gradient)
    some = components[:, parts][:, :, parts]
    return np.asarray(np.einsum("p,cpr,r->c", gradient[parts], some, gradient[parts]))


def tails_matter(kernel: Kernel, components: Array, gradient: Array, sizes: Sequence[int], rows: Sequence[int]) -> bool:
    """Tell whether tails can be heavy at all.

    Of h between finite limits, as far apart as w, the projections of a statistic differ from their mean by at most
    r = w Σ|gradient|, so that their kurtosis is at most r²/σ_k². Where that can't pass the limit, none need be looked
    at. Of several statistics there are differences, which have small σ_k²: these are always looked at.
    """
    width = kernel.limits[1] - kernel.limits[0]
    if len(gradient) > 1 or not np.isfinite(width):
        return True
    first = along(components, gradient[0])[: len(sizes)]
    if not (first > 0.0).all():
        return True
    most = ((width * np.abs(gradient[0]).sum()) ** 2 / first).tolist()
    return bool(heavy_tails(first, sizes, most, rows=rows, limits=kernel.limits))


@dataclass(frozen=True)
class Judge:
    """What intervals are judged by: of a statistic, and of differences between several.

    Attributes
    ----------
    kernel : Kernel
    sizes : tuple of int
    components : ndarray, shape (c, p, p), or None
    evidence : Evidence
    projected : Projections or None
    names : sequence of str or None
    known_dof : float or None
        Degrees of freedom of a variance that no components were needed for.
    gradient : ndarray, shape (q, p)
        Derivatives of the q statistics by the averages of the parts.
    first_order : tuple of float, or None
        σ_k² of the statistic, where they are known without all components.
    """

    kernel: Kernel
    sizes: tuple[int, ...]
    components: Array | None
    evidence: Evidence
    projected: Projections | None
    names: Sequence[str] | None
    known_dof: float | None
    gradient: Array
    first_order: tuple[float, ...] | None = None

    def flags(self, gradient: Array, *, value: float | None = None) -> list[str]:
        """Return what speaks against the interval of a statistic with these derivatives by the parts' averages."""
        tails = None if self.projected is None else self.projected.kurtosis(gradient)
        if self.components is None:
            if tails is None or self.first_order is None:
                return []
            return heavy_tails(self.first_order, self.sizes, tails, rows=self.evidence.rows)
        averaged = self.kernel.limits == UNIT and not self.kernel.pooled_only  # and no quotient of averages
        if value is not None and self.evidence.means is not None and averaged:
            value = float(gradient @ np.asarray(self.evidence.means))  # with the components, of the same points
        found = flags(
            along(self.components, gradient),
            self.sizes,
            self.kernel.degrees,
            value=value,
            limits=self.kernel.limits,
            kurtosis=tails,
            rows=self.evidence.rows,
            names=self.names,
        )
        return list(found) or self._endless_tails(gradient)

    def _endless_tails(self, gradient: Array) -> list[str]:
        if self.projected is None or np.isfinite(self.kernel.limits).all():
            return []
        first, tails = self.of(gradient)[: len(self.sizes)], self.projected.kurtosis(gradient)
        indices = self.projected.tail_indices(gradient)
        return endless_tails(first, self.sizes, tails, indices, rows=self.evidence.rows)

    def of(self, gradient: Array) -> Array:
        """Return the components, shape (c,), of the statistic with these derivatives by the parts' averages."""
        assert self.components is not None
        return along(self.components, gradient)

    def stderr_error(self, gradient: Array) -> float | None:
        """Return the relative standard error of its standard error, half that of the variance; None if not known."""
        error = self._variance_error(gradient) / 2.0
        return error if math.isfinite(error) else None

    def _variance_error(self, gradient: Array) -> float:
        """Return the relative standard error of its estimated variance; infinite if not known."""
        if self.components is None or self.projected is None:
            return math.inf
        first = self.of(gradient)[: len(self.sizes)]
        return variance_error(first, self.sizes, self.projected.kurtosis(gradient), self.evidence.rows)

    def dof(self, gradient: Array) -> float | None:
        """Return the degrees of freedom of its variance, fewer where tails are heavy.

        None if they are taken as infinite, as those of all points without heavy tails are.
        """
        if self.components is None:
            return self.known_dof
        found = math.inf
        if self.evidence.dof:
            found = satterthwaite(self.evidence.dof, shares(self.of(gradient).tolist(), self.sizes))
        if not np.isfinite(self.kernel.limits).all():
            error = self._variance_error(gradient)
            found = min(found, tails_dof(error) if math.isfinite(error) else math.inf)
        return found if math.isfinite(found) else self.known_dof

    def difference(self, values: Array, covariance: Array, confidence: float, a: int, b: int) -> Difference:
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
        )
