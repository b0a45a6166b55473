"""Learning objectives: losses h(x, z; θ) of pairs of points, summed over pairs together with their gradients in θ.

One orientation throughout: positives x should score higher than negatives z, so a loss φ(u) of u = s(x) - s(z) falls
in u. (The learning section of the paper prints max(0, 1 + s(x) - s(z)), which wants the opposite.) As kernels do,
objectives sum; what the sums are divided by is the caller's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import add

Array = NDArray[np.float64]

#: The surrogate losses φ of linear ranking.
LOSSES = ("hinge", "squared-hinge", "logistic")

_TILE = 64  # expanded pairs: 64² rows of each sample at a time
_SCORE_TILE = 128  # matrices of 128 KiB stay in a core's cache
_LARGEST_EXPONENT = 700.0  # exp of it is finite, and 1/(1 + exp) of it is 0 beside any other term


class PairObjective(ABC):
    """A loss of pairs with parameters θ; a subclass needs `n_parameters` and `pairs`, the rest is for speed.

    Results may depend on the shapes that a call is given for one worker, never on how many workers a call is for.
    """

    name: str = "pair objective"

    @abstractmethod
    def n_parameters(self, n_columns: int) -> int:
        """Return p, the length of θ for points of d = `n_columns` coordinates."""

    @abstractmethod
    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        """Return Σ_b h(x_b, z_b; θ) and its gradient, shape (p,), for B aligned pairs of shapes (B, d)."""

    def gradients(self, parameters: Array, x: Array, z: Array) -> Array:
        """Return each worker's Σ_b ∇h(x_b, z_b; θ), shape (W, p), for pairs of shapes (W, B, d).

        Those of this package may overwrite `x` and `z`; what a user's get can't be written to.
        """
        result = np.empty((len(x), len(parameters)))
        for i in range(len(x)):
            result[i] = self.pairs(parameters, x[i], z[i])[1]
        return result

    def block(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        """Return Σ_kl h(x_k, z_l; θ) and its gradient over all pairs of two blocks, in bounded memory."""
        losses: list[float] = []
        gradient = np.zeros(len(parameters))
        for i in range(0, len(x), _TILE):
            for j in range(0, len(z), _TILE):
                a, b = x[i : i + _TILE], z[j : j + _TILE]
                loss, part = self.pairs(parameters, np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1)))
                losses.append(loss)
                gradient += part
        return float(add(losses)), gradient

    def scores(self, parameters: Array, rows: Array) -> Array | None:
        """Return s(row) for each row, shape (n,), if h depends on s(x) - s(z) only; None if it does not.

        A row's score must not depend on the other rows.
        """
        return None

    def scored_loss(self, positive: Array, negative: Array) -> float | None:
        """Return the sum of h over all pairs of two samples' scores in O(n log n); None if there is no such way."""
        return None

    def losses_of_scores(self, positive: Array, negative: Array) -> Array | None:
        """Return h of pairs of scores, of shapes that broadcast; None if h needs the points."""
        return None

    def initial(self, normals: Array) -> Array:
        """Return the θ to start from, made of p independent standard normals, or of p zeros for a fixed start."""
        return normals


class LinearRanking(PairObjective):
    """h(x, z; w) = φ(u), u = w·x - w·z: bipartite ranking by a linear score.

    ===============  ======================  ==================
    loss             φ(u)                    φ'(u)
    ===============  ======================  ==================
    hinge            max(0, c - u)           -1{u < c}
    squared-hinge    max(0, c - u)²          -2 max(0, c - u)
    logistic         log(1 + exp(-u))        -1/(1 + exp(u))
    ===============  ======================  ==================

    Parameters
    ----------
    loss : {"hinge", "squared-hinge", "logistic"}
        φ. The hinge has subgradient 0 at its kink u = c.
    margin : float
        c > 0; the logistic loss has none.

    Notes
    -----
    `pairs` and `gradients` take u = w·(x - z), `block` and `scored_loss` the difference of two scores: a pair whose u
    is within rounding of the kink may count as active in the one and not in the other. Where sums and products are
    exact, as for small integers, they agree.
    """

    def __init__(self, loss: str = "hinge", margin: float = 1.0) -> None:
        if loss not in LOSSES:
            raise UserError(f"there is no loss {loss!r}: use one of {', '.join(LOSSES)}")
        if not (margin > 0 and math.isfinite(margin)):
            raise UserError(f"the margin must be positive and finite, not {margin}")
        self.loss = loss
        self.margin = float(margin)
        self.name = f"linear-{loss}"

    def n_parameters(self, n_columns: int) -> int:
        """Return d: one weight a column (an intercept would cancel in u)."""
        return n_columns

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        """Return Σ_b φ(u_b) and Σ_b φ'(u_b) (x_b - z_b)."""
        back = (z - x)[None]
        u = np.matmul(back, -parameters)
        return float(np.sum(self._losses(u[0]))), self._gradients(u, back)[0]

    def gradients(self, parameters: Array, x: Array, z: Array) -> Array:
        """Return each worker's Σ_b φ'(u_b) (x_b - z_b), shape (W, d); overwrites `x`."""
        back = np.subtract(z, x, out=x)
        return self._gradients(np.matmul(back, -parameters), back)

    def block(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        """Return Σ_kl φ(u_kl) and its gradient: Σ_l b_l z_l - Σ_k a_k x_k, where a and b sum -φ'(u) over partners.

        O((n + m) log(n + m)) for the hinges, O(n m) of scores alone for the logistic loss.
        """
        if not len(x) or not len(z):
            return 0.0, np.zeros(len(parameters))
        # Σ a = Σ b, so a common shift changes nothing but what cancels: for columns far from 0, nearly all. It is a
        # point's own coordinates, which keeps integers integers, and a median of three, which one outlier can't be.
        centre = np.partition(z[[0, len(z) // 2, -1]], 1, axis=0)[1]
        x, z = x - centre, z - centre
        loss, a, b = self._score_sums(self.scores(parameters, x), self.scores(parameters, z))
        return loss, b @ z - a @ x

    def scores(self, parameters: Array, rows: Array) -> Array:
        """Return w·row for each row; einsum, unlike BLAS, gives a row the same bits among any others."""
        found: Array = np.einsum("ij,j->i", rows, parameters)
        return found

    def scored_loss(self, positive: Array, negative: Array) -> float | None:
        """Return Σ_kl φ(s_k - t_l) in O(n log n); None for the logistic loss, whose sum over pairs is no shorter."""
        if self.loss == "logistic":
            return None
        return _hinge_loss(
            _ascending(positive), _ascending(negative), self.margin, squared=self.loss == "squared-hinge"
        )

    def losses_of_scores(self, positive: Array, negative: Array) -> Array:
        """Return φ(s - t)."""
        return self._losses(positive - negative)

    def _losses(self, u: Array) -> Array:
        if self.loss == "logistic":
            return np.log1p(np.exp(-np.abs(u))) - np.minimum(u, 0.0)
        short = np.maximum(self.margin - u, 0.0)
        return short if self.loss == "hinge" else short * short

    def _slopes(self, u: Array) -> Array:
        """Overwrite u by -φ'(u), halved for the squared hinge."""
        if self.loss == "hinge":
            if math.isnan(u.max(initial=-math.inf)):  # NaN < c is False: the gradient would be 0 and training stall
                return np.where(np.isnan(u), u, u < self.margin)
            np.copyto(u, u < self.margin)
        elif self.loss == "squared-hinge":
            np.subtract(self.margin, u, out=u)
            np.maximum(u, 0.0, out=u)
        else:
            np.minimum(u, _LARGEST_EXPONENT, out=u)
            np.exp(u, out=u)
            u += 1.0
            np.divide(1.0, u, out=u)
        return u

    def _gradients(self, u: Array, back: Array) -> Array:
        """Return Σ_b -φ'(u_b) (z_b - x_b) of each worker; a worker's products are BLAS calls of its own."""
        result: Array = np.matmul(self._slopes(u)[:, None, :], back)[:, 0, :]
        if self.loss == "squared-hinge":
            result *= 2.0
        return result

    def _score_sums(self, positive: Array, negative: Array) -> tuple[float, Array, Array]:
        """Return Σ φ over all pairs of scores, and for each score the sum of -φ' over its partners."""
        if not (np.isfinite(positive).all() and np.isfinite(negative).all()):
            return math.nan, np.full(len(positive), math.nan), np.full(len(negative), math.nan)
        if not len(positive) or not len(negative):
            return 0.0, np.zeros(len(positive)), np.zeros(len(negative))
        if self.loss != "logistic":
            return _hinge_sums(positive, negative, self.margin, squared=self.loss == "squared-hinge")
        losses: list[float] = []
        a, b = np.zeros(len(positive)), np.zeros(len(negative))
        for i in range(0, len(positive), _SCORE_TILE):
            for j in range(0, len(negative), _SCORE_TILE):
                u = positive[i : i + _SCORE_TILE, None] - negative[None, j : j + _SCORE_TILE]
                losses.append(float(np.sum(self._losses(u))))
                slopes = self._slopes(u)
                a[i : i + _SCORE_TILE] += slopes.sum(axis=1)
                b[j : j + _SCORE_TILE] += slopes.sum(axis=0)
        return float(add(losses)), a, b


def _ascending(values: Array) -> Array:
    return values if bool((values[1:] >= values[:-1]).all()) else np.sort(values)


def _hinge_loss(positive: Array, negative: Array, margin: float, *, squared: bool) -> float:
    """Return Σ_kl max(0, t_l - a_k) or Σ_kl max(0, t_l - a_k)², with a_k = s_k - c, of sorted scores.

    The partners of a_k are the largest t: with their number and sums, from a cumulative sum of t and of t² from above,
    the k-th sum is Σt - #·a_k or Σt² - 2 a_k Σt + #·a_k². Scores count from the largest t: none of the terms is larger
    than the sum's largest pair, t_max - a_k, so nothing cancels, however far from 0 or apart the scores lie.
    """
    if not len(positive) or not len(negative):
        return 0.0
    centre = negative[-1]
    t, a = negative - centre, positive - centre - margin
    partners = len(t) - np.searchsorted(t, a, side="right")
    from_above = t[::-1]
    sums = _first_sums(from_above, partners)
    if not squared:
        return float(np.sum(sums - partners * a))
    squares = _first_sums(from_above * from_above, partners)
    return float(np.sum(squares - 2.0 * a * sums + partners * (a * a)))


def _first_sums(values: Array, counts: NDArray[np.int64]) -> Array:
    """Return the sums of the first so many values, for each of the counts."""
    sums = np.empty(len(values) + 1)
    sums[0] = 0.0
    np.cumsum(values, out=sums[1:])
    return sums[counts]


def _hinge_sums(positive: Array, negative: Array, margin: float, *, squared: bool) -> tuple[float, Array, Array]:
    """Return Σ_kl max(0, t_l - a_k) or Σ_kl max(0, t_l - a_k)², with a_k = s_k - c, and the slopes' sums.

    Each pair's t_l - a_k > 0 is made of the gaps d_j between neighbours v_j, v_{j+1} of the pooled order that lie
    between the two. With F_j the number of a up to v_j, H_j the number of t after it, and A_j, Q_j the sums of
    v_j - a_k and of its square over the a_k up to v_j,

        Σ_kl max(0, t_l - a_k) = Σ_j d_j F_j H_j,   A_{j+1} = A_j + d_j F_j,   Q_{j+1} = Q_j + d_j (2 A_j + d_j F_j),

    and the sum of squares is that of Q over the places of t. All terms are non-negative: nothing cancels, however far
    from 0 the scores lie.
    """
    n, m = len(positive), len(negative)
    a_order, t_order = np.argsort(positive), np.argsort(negative)
    t = negative[t_order]
    centre = t[m // 2]  # a score, so that differences of integers stay exact
    t = t - centre
    a = positive[a_order] - centre - margin
    below = np.searchsorted(a, t, side="left")  # the partners of t_l, a_k < t_l; a tie is the kink, which has slope 0
    beyond = m - np.searchsorted(t, a, side="right")  # the partners of a_k
    t_place, a_place = np.arange(m) + below, np.arange(n) + m - beyond  # in the pooled order, t first in a tie
    pooled, from_a = np.empty(n + m), np.zeros(n + m)
    pooled[t_place] = t
    pooled[a_place] = a
    from_a[a_place] = 1.0
    gaps = np.diff(pooled)
    f = np.cumsum(from_a)[:-1]
    h = f + (m - np.arange(1.0, n + m))
    a_slopes, t_slopes = np.empty(n), np.empty(m)
    if not squared:
        a_slopes[a_order] = beyond
        t_slopes[t_order] = below
        return float(np.sum(gaps * (f * h))), a_slopes, t_slopes
    before, after, squares = np.zeros(n + m), np.zeros(n + m), np.zeros(n + m)
    np.cumsum(gaps * f, out=before[1:])
    np.cumsum((gaps * h)[::-1], out=after[-2::-1])
    np.cumsum(gaps * (2.0 * before[:-1] + gaps * f), out=squares[1:])
    a_slopes[a_order] = 2.0 * after[a_place]
    t_slopes[t_order] = 2.0 * before[t_place]
    return float(np.sum(squares[t_place])), a_slopes, t_slopes


class Mahalanobis(PairObjective):
    """h(x, z; L) = max(0, 1 + y (‖L(x - z)‖² - b)), y = 1 for points of the same class, -1 otherwise: metric learning.

    The last column of a point is its class. Same pairs should be nearer than b - 1 in squared distance, different ones
    farther than b + 1 (the loss of Shalev-Shwartz, Singer and Ng, ICML 2004, in the factor L of M = LᵀL). Active pairs,
    those with h > 0, have the gradient 2 y L (x - z)(x - z)ᵀ.

    Parameters
    ----------
    threshold : float
        b ≥ 1. At 1, same pairs only have no loss at distance 0; 2, the default, leaves them a radius of 1.
    rank : int, optional
        Rows r of L, by default as many as points have coordinates. θ is L row by row.
    """

    name = "mahalanobis"

    def __init__(self, threshold: float = 2.0, rank: int | None = None) -> None:
        if not (threshold >= 1 and math.isfinite(threshold)):
            raise UserError(f"the threshold must be at least 1 and finite, not {threshold}")
        if rank is not None and rank < 1:
            raise UserError(f"the rank must be at least 1, not {rank}")
        self.threshold = float(threshold)
        self.rank = rank

    def n_parameters(self, n_columns: int) -> int:
        """Return r (d - 1)."""
        if n_columns < 2:
            raise UserError("points of metric learning need coordinates and, in the last column, their class")
        if self.rank is not None and self.rank >= n_columns:
            raise UserError(f"rank {self.rank} is above the number of coordinates: use at most {n_columns - 1}")
        return (self.rank or n_columns - 1) * (n_columns - 1)

    def pairs(self, parameters: Array, x: Array, z: Array) -> tuple[float, Array]:
        """Return Σ_b h and its gradient."""
        losses, gradients = self._evaluate(parameters, x[None], z[None])
        return float(np.sum(losses[0])), gradients[0]

    def gradients(self, parameters: Array, x: Array, z: Array) -> Array:
        """Return each worker's Σ_b 2 y_b L (x_b - z_b)(x_b - z_b)ᵀ over active pairs, shape (W, p)."""
        return self._evaluate(parameters, x, z)[1]

    def initial(self, normals: Array) -> Array:
        """Return the identity (its first r rows) plus a hundredth of the normals: at L = 0 all gradients vanish."""
        columns = math.isqrt(len(normals)) if self.rank is None else len(normals) // self.rank
        return np.eye(len(normals) // columns, columns).ravel() + 0.01 * normals

    def _evaluate(self, parameters: Array, x: Array, z: Array) -> tuple[Array, Array]:
        differences = x[..., :-1] - z[..., :-1]
        y = np.where(x[..., -1] == z[..., -1], 1.0, -1.0)
        factor = parameters.reshape(-1, differences.shape[-1])
        images = np.matmul(differences, factor.T)
        losses = np.maximum(1.0 + y * (np.sum(images * images, axis=-1) - self.threshold), 0.0)
        images *= (2.0 * y * (losses > 0.0))[..., None]
        gradients = np.matmul(images.swapaxes(1, 2), differences)
        return losses, gradients.reshape(len(x), len(parameters))


def consecutive_pairings(n_samples: int) -> list[tuple[int, int]]:
    """Return (1, 0), (2, 1), …: each of K ordered classes, lowest first, against the class just below it.

    The objective of multipartite ranking is the sum of the pairwise one over these pairings. A score that ranks every
    pair of consecutive classes optimally ranks all K, where an optimal score exists (Clémençon, Robbiano and Vayatis,
    Ranking data with ordinal labels, Machine Learning 91, 2013). Two samples x and z, as everywhere else with the
    positives first, have the one pairing (0, 1).
    """
    if n_samples < 2:
        raise UserError(f"ranking needs at least 2 classes, not {n_samples}")
    return [(k + 1, k) for k in range(n_samples - 1)]
