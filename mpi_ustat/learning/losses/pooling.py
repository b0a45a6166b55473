"""Two samples of scores in one order: what sums over all pairs that are nearer than a margin are made of.

Such sums are of max(0, t_l - a_k), or its square, with a_k = s_k - c for a positive's score s, t a negative's, c the
margin. Each pair's t_l - a_k > 0 is made of the gaps d_j between neighbours v_j, v_{j+1} of the pooled order that lie
between the two. All terms are then non-negative: nothing cancels, however far from 0 or apart the scores lie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpi_ustat.numerics.lookup import look_up
from mpi_ustat.numerics.types import Floats, Ints


class Pooled(NamedTuple):
    """The pooled order of a and t, t first in a tie, which is the kink, where the slope is 0.

    Attributes
    ----------
    a_order, t_order : ndarray of int64
        What sorts the positives' and the negatives' scores.
    a_place, t_place : ndarray of int64
        Where the sorted ones are in the pooled order.
    n_above, n_below : ndarray of int64
        The partners of each sorted a, t_l > a_k, and of each sorted t, a_k < t_l.
    gaps : ndarray of float64, length n + m - 1
        d_j.
    f, h : ndarray of float64, length n + m - 1
        F_j, the number of a up to v_j, and H_j, that of t after it.
    """

    a_order: Ints
    t_order: Ints
    a_place: Ints
    t_place: Ints
    n_above: Ints
    n_below: Ints
    gaps: Floats
    f: Floats
    h: Floats


def pool(positive: Floats, negative: Floats, margin: float) -> Pooled:
    """Return the pooled order of two samples of finite scores, neither of which is empty."""
    n, m = len(positive), len(negative)
    a_order, t_order = np.argsort(positive), np.argsort(negative)
    t = negative[t_order]
    centre = t[m // 2]  # a score, so that differences of integers stay exact
    t = t - centre
    a = positive[a_order] - centre - margin
    below = look_up(a, t, "left")
    above = m - look_up(t, a, "right")
    t_place, a_place = np.arange(m) + below, np.arange(n) + m - above
    pooled, from_a = np.empty(n + m), np.zeros(n + m)
    pooled[t_place] = t
    pooled[a_place] = a
    from_a[a_place] = 1.0
    f = np.cumsum(from_a)[:-1]
    return Pooled(a_order, t_order, a_place, t_place, above, below, np.diff(pooled), f, f + (m - np.arange(1.0, n + m)))


class Partners(NamedTuple):
    """Of each positive, the negatives that are too near to it, or above it: they are the largest.

    Attributes
    ----------
    a : ndarray of float64
        a_k, ascending, counted from the largest t: no term of a sum is then larger than that of its largest pair.
    from_above : ndarray of float64
        t, descending, counted from the largest.
    counts : ndarray of int64
        How many of these are partners of a_k.
    """

    a: Floats
    from_above: Floats
    counts: Ints


def partners(positive: Floats, negative: Floats, margin: float) -> Partners:
    """Return the partners of each positive among the negatives, neither of which is empty."""
    ascending, negatives = _ascending(positive), _ascending(negative)
    centre = negatives[-1]
    t, a = negatives - centre, ascending - centre - margin
    return Partners(a, t[::-1], len(t) - look_up(t, a, "right"))


def first_sums(values: Floats, counts: Ints) -> Floats:
    """Return the sums of the first so many values, for each of the counts."""
    sums = np.empty(len(values) + 1)
    sums[0] = 0.0
    np.cumsum(values, out=sums[1:])
    return sums[counts]


def _ascending(values: Floats) -> Floats:
    return values if bool((values[1:] >= values[:-1]).all()) else np.sort(values)
