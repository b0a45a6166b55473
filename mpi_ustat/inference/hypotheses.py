"""Tests of an estimate against a value, of differences, and of several statistics being equal, by the normal law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_SMALLEST = 1e-300
_NEGLIGIBLE = 1e-10  # of the largest eigenvalue of a covariance


@dataclass(frozen=True)
class WaldTest:
    """A test of one number.

    Attributes
    ----------
    null : float
        The value under the hypothesis.
    z : float
        (estimate - null) / standard error.
    p : float
        Two-sided, or one-sided where the hypothesis is that the number is at most `null`.
    one_sided : bool
    """

    null: float
    z: float
    p: float
    one_sided: bool = False


@dataclass(frozen=True)
class Omnibus:
    """A test of several statistics being equal.

    Attributes
    ----------
    statistic : float
        (Lθ)ᵀ (L Cov Lᵀ)⁺ (Lθ) with the rows of L being differences of neighbours.
    rank : int
        Of the covariance: the degrees of freedom of the χ² law.
    p : float
        By that law, or by Hotelling's where the covariance has few degrees of freedom.
    """

    statistic: float
    rank: int
    p: float


def wald_test(
    value: float, stderr: float, null: float, *, dof: float | None = None, one_sided: bool = False
) -> WaldTest:
    """Return the test that the number behind an estimate is `null`; one-sided: that it is at most that.

    Parameters
    ----------
    value, stderr, null : float
        In one unit; the standard error is positive.
    dof : float, optional
        Degrees of freedom of the standard error, for Student's law.
    """
    from scipy.stats import norm, t

    z = (value - null) / stderr
    law = norm if dof is None else t(dof)
    p = float(law.sf(z)) if one_sided else min(1.0, 2.0 * float(law.sf(abs(z))))
    return WaldTest(null, z, p, one_sided)


def omnibus(values: ArrayLike, covariance: ArrayLike, *, dof: float | None = None) -> Omnibus | None:
    """Return the test that q statistics with this covariance are equal; None if nothing in it varies.

    With dof degrees of freedom d, T² (d - r + 1)/(d r) has the law F of r and d - r + 1 (Hotelling 1931).

    Parameters
    ----------
    values : array_like, shape (q,)
    covariance : array_like, shape (q, q)
    dof : float, optional
    """
    from scipy.stats import chi2, f

    u, v = np.asarray(values, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if len(u) < 2 or not np.isfinite(v).all():
        return None
    away, between = np.diff(u), np.diff(np.diff(v, axis=0), axis=1)
    sizes, directions = np.linalg.eigh(between)
    there = sizes > _NEGLIGIBLE * max(float(sizes.max()), 0.0)
    rank = int(there.sum())
    if not rank or (sizes < -_NEGLIGIBLE * float(sizes.max())).any():
        return None
    along = directions.T @ away
    if (np.abs(along[~there]) > math.sqrt(_NEGLIGIBLE) * float(np.abs(away).max())).any():
        return None  # they differ where nothing varies: no law says how much
    statistic = float(np.sum(along[there] ** 2 / sizes[there]))
    if dof is None:
        return Omnibus(statistic, rank, float(chi2.sf(statistic, rank)))
    rest = dof - rank + 1.0
    return None if rest <= 0.0 else Omnibus(statistic, rank, float(f.sf(statistic * rest / (dof * rank), rank, rest)))


def p_text(p: float) -> str:
    """Return a p-value for people."""
    return f"< {_SMALLEST:g}" if p < _SMALLEST else f"{p:.3g}"
