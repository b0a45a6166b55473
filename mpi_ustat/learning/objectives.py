"""Learning objectives: losses h(x, z; θ) of pairs of points, summed over pairs together with their gradients in θ.

One orientation throughout: positives x should score higher than negatives z, so a loss φ(u) of u = s(x) - s(z) falls
in u. (The learning section of the paper prints max(0, 1 + s(x) - s(z)), which wants the opposite.) As kernels do,
objectives sum; what the sums are divided by is the caller's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import add
from mpi_ustat.learning.losses import DEFAULT_LOSS, make_loss
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats

_TILE = 64  # expanded pairs: 64² rows of each sample at a time


class PairObjective(ABC):
    """A loss of pairs with parameters θ; a subclass needs `n_parameters` and `pairs`, the rest is for speed.

    Results may depend on the shapes that a call is given for one worker, never on how many workers a call is for.
    """

    name: str = "pair objective"
    phi: Loss | None = None
    """φ of h(x, z; θ) = φ(s(x) - s(z)), for objectives that have `scores` and `score_gradient`."""
    only_differences: bool = False
    """Whether all points may be shifted alike."""
    takes_sparse: bool = False
    """Whether `scores` and `score_gradient` take `SparseRows` as well."""

    @abstractmethod
    def n_parameters(self, n_columns: int) -> int:
        """Return p, the length of θ for points of d = `n_columns` coordinates."""

    @abstractmethod
    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        """Return Σ_b h(x_b, z_b; θ) and its gradient, shape (p,), for B aligned pairs of shapes (B, d)."""

    def gradients(self, parameters: Floats, x: Floats, z: Floats) -> Floats:
        """Return each worker's Σ_b ∇h(x_b, z_b; θ), shape (W, p), for pairs of shapes (W, B, d).

        Those of this package may overwrite `x` and `z`; what a user's get can't be written to.
        """
        result = np.empty((len(x), len(parameters)))
        for i in range(len(x)):
            result[i] = self.pairs(parameters, x[i], z[i])[1]
        return result

    def block(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
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

    def scores(self, parameters: Floats, rows: Floats) -> Floats | None:
        """Return s(row) for each row, shape (n,), if h depends on s(x) - s(z) only; None if it does not.

        A row's score must not depend on the other rows.
        """
        return None

    def score_gradient(self, parameters: Floats, rows: Floats, coefficients: Floats) -> Floats:
        """Return Σ_i c_i ∂s(row_i)/∂θ, shape (p,), for an objective with `phi`."""
        raise NotImplementedError(f"the objective {self.name} has no score_gradient")

    def scored_loss(self, positive: Floats, negative: Floats) -> float | None:
        """Return the sum of h over all pairs of two samples' scores in O(n log n); None if there is no such way."""
        return None

    def losses_of_scores(self, positive: Floats, negative: Floats) -> Floats | None:
        """Return h of pairs of scores, of shapes that broadcast; None if h needs the points."""
        return None

    def initial(self, normals: Floats) -> Floats:
        """Return the θ to start from, made of p independent standard normals, or of p zeros for a fixed start."""
        return normals


class LinearRanking(PairObjective):
    """h(x, z; w) = φ(u), u = w·x - w·z: bipartite ranking by a linear score.

    Parameters
    ----------
    loss : str or Loss
        φ, by name or itself: see `mpi_ustat.learning.losses`.
    margin : float
        c > 0 of a loss that goes by its name and has one.

    Notes
    -----
    `pairs` and `gradients` take u = w·(x - z), `block` and `scored_loss` the difference of two scores: a pair whose u
    is within rounding of the kink may count as active in the one and not in the other. Where sums and products are
    exact, as for small integers, they agree.
    """

    phi: Loss
    only_differences = True
    takes_sparse = True

    def __init__(self, loss: str | Loss = DEFAULT_LOSS, margin: float = 1.0) -> None:
        self.phi = make_loss(loss, margin)
        self.loss, self.margin = self.phi.name, self.phi.margin
        self.name = f"linear-{self.loss}"

    def n_parameters(self, n_columns: int) -> int:
        """Return d: one weight a column (an intercept would cancel in u)."""
        return n_columns

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        """Return Σ_b φ(u_b) and Σ_b φ'(u_b) (x_b - z_b)."""
        back = (z - x)[None]
        u = np.matmul(back, -parameters)
        return float(np.sum(self.phi.values(u[0]))), self._gradients(u, back)[0]

    def gradients(self, parameters: Floats, x: Floats, z: Floats) -> Floats:
        """Return each worker's Σ_b φ'(u_b) (x_b - z_b), shape (W, d); overwrites `x`."""
        back = np.subtract(z, x, out=x)
        return self._gradients(np.matmul(back, -parameters), back)

    def block(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        """Return Σ_kl φ(u_kl) and its gradient: Σ_l b_l z_l - Σ_k a_k x_k, where a and b sum -φ'(u) over partners.

        O((n + m) log(n + m)) for losses that sort, O(n m) of scores alone for others.
        """
        if not len(x) or not len(z):
            return 0.0, np.zeros(len(parameters))
        # Σ a = Σ b, so a common shift changes nothing but what cancels: for columns far from 0, nearly all. It is a
        # point's own coordinates, which keeps integers integers, and a median of three, which one outlier can't be.
        centre = np.partition(z[[0, len(z) // 2, -1]], 1, axis=0)[1]
        x, z = x - centre, z - centre
        loss, a, b = self._score_sums(self.scores(parameters, x), self.scores(parameters, z))
        return loss, b @ z - a @ x

    def scores(self, parameters: Floats, rows: Floats | SparseRows) -> Floats:
        """Return w·row for each row; einsum, unlike BLAS, gives a row the same bits among any others."""
        if isinstance(rows, SparseRows):
            return rows.times(parameters)
        found: Floats = np.einsum("ij,j->i", rows, parameters)
        return found

    def score_gradient(self, parameters: Floats, rows: Floats | SparseRows, coefficients: Floats) -> Floats:
        """Return Σ_i c_i row_i; einsum, unlike BLAS, gives the same bits whatever threads there are."""
        if isinstance(rows, SparseRows):
            return rows.summed(coefficients)
        found: Floats = np.einsum("i,ij->j", coefficients, rows)
        return found

    def scored_loss(self, positive: Floats, negative: Floats) -> float | None:
        """Return Σ_kl φ(s_k - t_l) in O(n log n); None for a loss whose sum over pairs is no shorter."""
        if not self.phi.by_sorting:
            return None
        return self.phi.total(positive, negative) if len(positive) and len(negative) else 0.0

    def losses_of_scores(self, positive: Floats, negative: Floats) -> Floats:
        """Return φ(s - t)."""
        return self.phi.values(positive - negative)

    def _gradients(self, u: Floats, back: Floats) -> Floats:
        """Return Σ_b -φ'(u_b) (z_b - x_b) of each worker; a worker's products are BLAS calls of its own."""
        result: Floats = np.matmul(self.phi.slopes(u)[:, None, :], back)[:, 0, :]
        if self.phi.slope_unit != 1.0:
            result *= self.phi.slope_unit
        return result

    def _score_sums(self, positive: Floats, negative: Floats) -> tuple[float, Floats, Floats]:
        """Return Σ φ over all pairs of scores, and for each score the sum of -φ' over its partners."""
        if not (np.isfinite(positive).all() and np.isfinite(negative).all()):
            return math.nan, np.full(len(positive), math.nan), np.full(len(negative), math.nan)
        return self.phi.sums(positive, negative)


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

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        """Return Σ_b h and its gradient."""
        losses, gradients = self._evaluate(parameters, x[None], z[None])
        return float(np.sum(losses[0])), gradients[0]

    def gradients(self, parameters: Floats, x: Floats, z: Floats) -> Floats:
        """Return each worker's Σ_b 2 y_b L (x_b - z_b)(x_b - z_b)ᵀ over active pairs, shape (W, p)."""
        return self._evaluate(parameters, x, z)[1]

    def initial(self, normals: Floats) -> Floats:
        """Return the identity (its first r rows) plus a hundredth of the normals: at L = 0 all gradients vanish."""
        columns = math.isqrt(len(normals)) if self.rank is None else len(normals) // self.rank
        return np.eye(len(normals) // columns, columns).ravel() + 0.01 * normals

    def _evaluate(self, parameters: Floats, x: Floats, z: Floats) -> tuple[Floats, Floats]:
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
