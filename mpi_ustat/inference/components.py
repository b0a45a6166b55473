"""Unbiased estimates of Hoeffding components from the sums of squares of one complete block of kernel values.

The values of h on a block of n_1 × … × n_K points are a random-effects layout without replication. Its mean squares
have expectations that are sums of components with known factors, so the components follow by subtraction. An estimate
may be negative and is kept: a clipped one would bias every standard error made from it.

Every sum of squares may be a p × p matrix of sums of cross-products, for p kernels on the same points: the components
are then covariance matrices. All formulas are linear in the sums, so what holds for squares holds for products.

Units: the square of the kernel's.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.numerics.types import Floats


@functools.cache
def subsets(k: int) -> tuple[tuple[int, ...], ...]:
    """Return the non-empty subsets of {0, …, k-1} by size and then lexicographically: the order of components."""
    return tuple(chosen for size in range(1, k + 1) for chosen in itertools.combinations(range(k), size))


@functools.cache
def _supersets(k: int) -> tuple[tuple[NDArray[np.intp], Floats], ...]:
    """Return the places in `subsets` (k) of the sets Q that contain each S of them, in order, and (-1)^{|Q|-|S|}."""
    place = {s: i for i, s in enumerate(subsets(k))}
    found = []
    for s in place:
        others = [each for each in range(k) if each not in s]
        more = [each for size in range(len(others) + 1) for each in itertools.combinations(others, size)]
        signs = np.array([(-1.0) ** len(each) for each in more])
        found.append((np.array([place[tuple(sorted(s + each))] for each in more]), signs[:, None, None]))
    return tuple(found)


def k_sample_components(sizes: Sequence[int], squares: Mapping[tuple[int, ...], ArrayLike]) -> Floats:
    """Return the components of K samples, one point of each, from the analysis of variance of a complete block.

    Let h - θ = Σ_S g_S be the Hoeffding decomposition, σ_S² = Var g_S. The Q-interaction of the block, d_Q =
    Σ_{R⊆Q} (-1)^{|Q|-|R|} h̄_R with h̄_R the mean over the points of the samples outside R, is a linear map of h that
    takes means over samples outside Q and centres over those inside. It therefore takes g_S to 0 unless S ⊇ Q (a
    function without the variable k ∈ Q is centred away), and g_S with S ⊇ Q to its mean over the samples of S∖Q,
    centred over Q. As g_S has mean 0 given all but one of its variables, that mean has variance σ_S²/Π_{S∖Q} n_k at
    each Q-tuple, uncorrelated from tuple to tuple, and centring leaves Π_Q (n_k - 1) degrees of freedom. With
    SS_Q = Π_{k∉Q} n_k · Σ d_Q² and MS_Q = SS_Q/Π_Q (n_k - 1), hence

        E MS_Q = Σ_{S⊇Q} σ_S² Π_{k∉S} n_k,

    which Möbius inversion over the sets that contain S solves:

        σ̂_S² = Σ_{Q⊇S} (-1)^{|Q|-|S|} MS_Q / Π_{k∉S} n_k.

    Parameters
    ----------
    sizes : sequence of int, length K
        n_k >= 2.
    squares : mapping from the tuples of `subsets` (K) to float or array, shape (p, p)
        SS_Q.

    Returns
    -------
    ndarray, shape (2^K - 1, p, p)
        σ̂_S², in the order of `subsets`; unbiased.
    """
    if min(sizes) < 2:
        raise ValueError(f"components need at least two points of each sample, not {tuple(sizes)}")
    every = subsets(len(sizes))
    # By floats: NumPy 1 makes objects of integers beyond 64 bits.
    mean_squares = np.array([_matrix(squares[q]) / float(math.prod(sizes[k] - 1 for k in q)) for q in every])
    components = np.empty_like(mean_squares)
    for i, (s, (larger, signs)) in enumerate(zip(every, _supersets(len(sizes)), strict=True)):
        # One after the other: the last bits of a sum depend on its order.
        signed = np.add.accumulate(signs * mean_squares[larger])[-1] + 0.0
        components[i] = signed / float(math.prod(size for k, size in enumerate(sizes) if k not in s))
    return components


def two_sample_components(n: int, m: int, rows: ArrayLike, columns: ArrayLike, squares: ArrayLike) -> Floats:
    """Return var_x, var_z, var_xz of a two-sample kernel from the row means, column means and squares of a block.

    The case K = 2 of `k_sample_components`, with SS_rows = m·rows, SS_columns = n·columns and SS_residual = squares -
    SS_rows - SS_columns:

        var_xz = MS_residual,   var_x = (MS_rows - MS_residual)/m,   var_z = (MS_columns - MS_residual)/n.

    Put into Var U_n = var_x/n + var_z/m + var_xz/(nm) they give S_r²/n + S_c²/m - MS_residual/(nm), S_r² and S_c² the
    sample variances of row and column means. (DeLong's variance of an AUC leaves out the last term: it is too large
    by var_xz/(nm) in expectation.)

    Parameters
    ----------
    n, m : int
        Rows (points of x) and columns (points of z), at least 2 each.
    rows : float or array, shape (p, p)
        Σ_k (r̄_ka - h̄_a)(r̄_kb - h̄_b) over row means.
    columns : float or array, shape (p, p)
        The same over column means.
    squares : float or array, shape (p, p)
        Σ_kl (h_a - h̄_a)(h_b - h̄_b) over all pairs.
    """
    ss_rows, ss_columns = m * _matrix(rows), n * _matrix(columns)
    residual = _matrix(squares) - ss_rows - ss_columns
    return k_sample_components((n, m), {(0,): ss_rows, (1,): ss_columns, (0, 1): residual})


def one_sample_components(n: int, rows: ArrayLike, squares: ArrayLike) -> Floats:
    """Return ζ₁ and δ, shape (2, p, p), of a symmetric kernel of one sample and degree 2, from all its pairs.

    Let h(X_i, X_j) - θ = g(X_i) + g(X_j) + r(X_i, X_j), ζ₁ = Var g, δ = Var r, with uncorrelated terms. Fitting
    a + b_i + b_j, Σ b = 0, to the C(n,2) values by least squares, the normal equations give a = U and (n-2) b_i =
    (n-1)(r̄_i - U), r̄_i the mean of h over the pairs of point i; the fit explains

        SS = (n-2) Σ b_i² = (n-1)²/(n-2) · Σ_i (r̄_i - U)²      with n - 1 degrees of freedom,

    and leaves squares - SS with C(n,2) - n = n(n-3)/2. The fit absorbs g, so the residual is that of r alone, whose
    values are uncorrelated and of variance δ: E (squares - SS) = δ n(n-3)/2. Of SS, r contributes δ (n-1), and
    g gives b_i = g_i - ḡ, hence (n-2)(n-1) ζ₁; their cross term has mean 0. Therefore, without bias,

        δ̂ = (squares - SS)/(n(n-3)/2),     ζ̂₁ = [SS/(n-1) - δ̂]/(n-2).

    Parameters
    ----------
    n : int
        Points, at least 4.
    rows : float or array, shape (p, p)
        Σ_i (r̄_ia - U_a)(r̄_ib - U_b), r̄_i = Σ_{j≠i} h_ij/(n-1).
    squares : float or array, shape (p, p)
        Σ_{i<j} (h_a - U_a)(h_b - U_b).
    """
    if n < 4:
        raise ValueError(f"components of one sample need at least four points, not {n}")
    explained = (n - 1) ** 2 / (n - 2) * _matrix(rows)
    delta = (_matrix(squares) - explained) / (n * (n - 3) / 2)
    zeta1 = (explained / (n - 1) - delta) / (n - 2)
    return np.array([zeta1, delta])


def from_swr_blocks(empirical: Floats, sizes: Sequence[int]) -> Floats:
    """Return the population's components from those of the empirical law, for two samples.

    On a block drawn with replacement, the layout's points are independent draws from the n and m given ones, so its
    components estimate without bias those of h under the two empirical laws: e₁ = Σ_k (r̄_k - h̄)²/n, e₂ = Σ_l (c̄_l -
    h̄)²/m, e₀ = Σ_kl (h - r̄_k - c̄_l + h̄)²/(nm) of the complete n × m layout. By the expectations of its mean squares
    (`k_sample_components`),

        E e₀ = σ₀² (1-1/n)(1-1/m),   E e₁ = (1-1/n)(σ₁² + σ₀²/m),   E e₂ = (1-1/m)(σ₂² + σ₀²/n),

    and solving for σ² gives

        σ̂₀² = e₀/((1-1/n)(1-1/m)),   σ̂₁² = e₁/(1-1/n) - σ̂₀²/m,   σ̂₂² = e₂/(1-1/m) - σ̂₀²/n.

    n and m, at least 2 each, are the `sizes` of the whole samples, not of the blocks; `empirical` has e₁, e₂, e₀.
    """
    n, m = sizes
    if min(n, m) < 2:
        raise ValueError(f"components need at least two points of each sample, not {(n, m)}")
    e1, e2, e0 = empirical
    var_xz = e0 / ((1 - 1 / n) * (1 - 1 / m))
    return np.array([e1 / (1 - 1 / n) - var_xz / m, e2 / (1 - 1 / m) - var_xz / n, var_xz])


def _matrix(values: ArrayLike) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    return matrix if matrix.ndim else matrix.reshape(1, 1)
