"""The variance of any weighted average of kernel values, and of the partition designs that are fixed in advance.

Everything rests on one principle. Let ``h(X_k, Z_l) - U = h₁(X_k) + h₂(Z_l) + h₀(X_k, Z_l)`` be the Hoeffding
decomposition of a two-sample kernel, with variances σ₁², σ₂², σ₀². For an average ``Û = Σ w_kl h(X_k, Z_l)`` whose
weights sum to one and are independent of the values (the *design*),

    Var(Û | design) = σ₁² Σ_k w_k.² + σ₂² Σ_l w_.l² + σ₀² Σ_kl w_kl²,     w_k. = Σ_l w_kl,  w_.l = Σ_k w_kl,

because ``Û - U = Σ_k w_k. h₁(X_k) + Σ_l w_.l h₂(Z_l) + Σ_kl w_kl h₀(X_k, Z_l)`` is a sum of terms that are pairwise
uncorrelated: E[h₀ | X] = E[h₀ | Z] = 0. When the design is random, the law of total variance finishes the work; with
weights summing to one the conditional mean is U whatever the design, so Var(Û) = E[Var(Û | design)].

By Cauchy–Schwarz, Σ w_k.² >= 1/n, Σ w_.l² >= 1/m, and Σ w_kl² >= 1/Q if at most Q distinct pairs have a weight.

Pure numbers: no communicator, no files. Units: a variance has the square of the kernel's unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.types import Floats, Ints

Aggregate = Literal["mean", "pooled"]
"""``mean``: plain mean of the workers' values (the paper). ``pooled``: sum of all kernel values over their number."""

Empty = Literal["error", "zero", "skip"]
"""What a worker without a pair does: it is refused, contributes the value 0 (the paper), or is left out of the mean."""


@dataclass(frozen=True)
class Components:
    """Hoeffding components of a two-sample kernel of degrees (1, 1).

    Attributes
    ----------
    var_x : float
        σ₁² = Var(E[h(X, Z) | X]).
    var_z : float
        σ₂² = Var(E[h(X, Z) | Z]).
    var_xz : float
        σ₀² = Var(h) - σ₁² - σ₂².

    Notes
    -----
    True components are not negative. Unbiased estimates of them can be, and are accepted: clipping one would bias the
    standard error made from them.
    """

    var_x: float
    var_z: float
    var_xz: float

    @property
    def total(self) -> float:
        """σ² = Var(h(X, Z)) = σ₀² + σ₁² + σ₂²."""
        return self.var_x + self.var_z + self.var_xz


def even_sizes(total: int, n_workers: int) -> Ints:
    """Return the sizes of `total` points cut into `n_workers` blocks as evenly as possible, longer blocks first.

    Raises
    ------
    ValueError
        If there is no worker, or some worker would get no point.
    """
    if n_workers < 1:
        raise ValueError(f"the number of workers must be at least 1, not {n_workers}")
    if n_workers > total:
        raise ValueError(f"{total} points can't be shared by {n_workers} workers: some would get none")
    return sizes_with_empty(total, n_workers)


def sizes_with_empty(total: int, n_workers: int) -> Ints:
    """Return the sizes of `total` points cut into `n_workers` blocks, of which the last are empty if there are few."""
    quotient, remainder = divmod(total, n_workers)
    return quotient + (np.arange(n_workers) < remainder).astype(np.int64)


def check_rounds(n_rounds: int) -> None:
    """Raise ValueError unless `n_rounds` (T) is at least 1."""
    if n_rounds < 1:
        raise ValueError(f"the number of rounds must be at least 1, not {n_rounds}")


def check_sizes(sizes: ArrayLike, ndim: int) -> Ints:
    """Return `sizes` as an integer array of `ndim` dimensions.

    Raises
    ------
    ValueError
        If the shape is another one, the array is empty, or a size is negative or not a whole number.
    """
    given = np.asarray(sizes)
    array = given.astype(np.int64)
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"block sizes must be a non-empty array of {ndim} dimension(s), not of shape {array.shape}")
    if (array < 0).any() or (array != given).any():
        raise ValueError("block sizes must be whole numbers that are not negative")
    return array


def weight_variance(components: Components, sum_x: float, sum_z: float, sum_pairs: float) -> float:
    """Return σ₁² Σ w_k.² + σ₂² Σ w_.l² + σ₀² Σ w_kl², the principle of this module, from the three sums of squares."""
    return float(components.var_x * sum_x + components.var_z * sum_z + components.var_xz * sum_pairs)


def variance_complete(components: Components, n: int, m: int) -> float:
    """Return V_n = Var(U_n) = σ₁²/n + σ₂²/m + σ₀²/(nm), the complete statistic's variance (Hoeffding 1948).

    The principle with w_kl = 1/(nm).

    Raises
    ------
    ValueError
        If a sample is empty.
    """
    if n < 1 or m < 1:
        raise ValueError(f"both samples need at least one point, not {n} and {m}")
    return weight_variance(components, 1.0 / n, 1.0 / m, 1.0 / (n * m))


def local_variance(components: Components, sizes_x: ArrayLike, sizes_z: ArrayLike) -> Floats:
    """Return V_i = σ₁²/n_i + σ₂²/m_i + σ₀²/(n_i m_i), the complete statistic's variance on a block of distinct points.

    The principle with w_kl = 1/(n_i m_i). Sizes broadcast; a block with an empty side has no statistic and gives NaN.
    """
    n_i, m_i = np.broadcast_arrays(np.asarray(sizes_x, dtype=np.float64), np.asarray(sizes_z, dtype=np.float64))
    ok = (n_i > 0) & (m_i > 0)
    n_ok, m_ok = np.where(ok, n_i, 1.0), np.where(ok, m_i, 1.0)
    value = components.var_x / n_ok + components.var_z / m_ok + components.var_xz / (n_ok * m_ok)
    return np.where(ok, value, np.nan)


def sampling_factor(n_pairs: int | None, block_pairs: ArrayLike, *, distinct: bool = False) -> Floats:
    """Return the factor c by which sampling B of a block's M pairs adds c·(σ² - V) to the block's variance V.

    Given the block's M kernel values, with mean U_i and s² = Σ(h - U_i)²/M, the mean of B of them has mean U_i and
    variance s²/B (drawn with replacement, as in the paper) or s²·(M - B)/(B (M - 1)) (B distinct pairs, the
    finite-population correction). And E s² = E h² - E U_i² = σ² - V.

    Parameters
    ----------
    n_pairs : int or None
        B; None means all the pairs, hence c = 0.
    block_pairs : array_like of int
        M, any shape. Blocks with M = 0 get c = 0. With `distinct`, so do blocks with M <= B: they evaluate every pair.
    distinct : bool
        Whether the B pairs are drawn without replacement.

    Returns
    -------
    ndarray
        Shape of `block_pairs`, without unit.

    Raises
    ------
    ValueError
        If B < 1.
    """
    pairs = np.asarray(block_pairs, dtype=np.float64)
    if n_pairs is None:
        return np.zeros_like(pairs)
    if n_pairs < 1:
        raise ValueError(f"the number of pairs per worker must be at least 1, not {n_pairs}")
    if not distinct:
        return np.where(pairs > 0, 1.0 / n_pairs, 0.0)
    return np.asarray(np.maximum(pairs - n_pairs, 0.0) / (n_pairs * np.maximum(pairs - 1.0, 1.0)))


def refuse_too_many_pairs(n_pairs: int | None, block_pairs: ArrayLike, *, distinct: bool) -> None:
    """Raise ValueError if B distinct pairs are asked of a non-empty block that has fewer than B."""
    pairs = np.asarray(block_pairs)
    if distinct and n_pairs is not None and ((pairs > 0) & (pairs < n_pairs)).any():
        raise ValueError(f"{n_pairs} distinct pairs can't be drawn from a block of {int(pairs[pairs > 0].min())}")


def worker_weights(block_pairs: ArrayLike, *, aggregate: Aggregate = "mean", empty: Empty = "error") -> Floats:
    """Return the weights ω_i of the local statistics in one round's value Σ ω_i U_i; each row sums to one.

    Parameters
    ----------
    block_pairs : array_like of int, shape (..., N)
        M_i = n_i m_i, the number of pairs each worker holds.
    aggregate : {"mean", "pooled"}
        ω_i = 1/N, or M_i / Σ M.
    empty : {"error", "skip"}
        With "skip", workers without a pair get weight 0 and the others share the weight.

    Raises
    ------
    ValueError
        If a worker has no pair and `empty` is "error"; if a round has no pair at all; if an option is unknown.
    """
    pairs = np.asarray(block_pairs, dtype=np.float64)
    ok = pairs > 0
    if empty not in ("error", "skip"):
        raise ValueError(f"weights are defined for empty='error' or 'skip', not {empty!r}")
    if empty == "error" and not ok.all():
        raise ValueError("a worker has no pair: use fewer workers, or skip the workers without a pair")
    if not ok.any(axis=-1).all():
        raise ValueError("a round has no pair at all")
    if aggregate == "mean":
        raw = ok.astype(np.float64)
    elif aggregate == "pooled":
        raw = pairs
    else:
        raise ValueError(f"aggregate is 'mean' or 'pooled', not {aggregate!r}")
    weights: Floats = raw / raw.sum(axis=-1, keepdims=True)
    return weights


def one_round_variance(
    components: Components,
    sizes_x: Ints,
    sizes_z: Ints,
    n_pairs: int | None,
    distinct: bool,
    aggregate: Aggregate,
    empty: Empty,
) -> Floats:
    """Return Σ_i ω_i² [V_i + c_i (σ² - V_i)], the variance of one round on disjoint blocks of given sizes.

    Parameters
    ----------
    sizes_x, sizes_z : ndarray of int, shape (..., N)
        n_i and m_i.

    Returns
    -------
    ndarray, shape (...)

    Raises
    ------
    ValueError
        As `worker_weights` and `sampling_factor`.
    """
    pairs = sizes_x * sizes_z
    omega = worker_weights(pairs, aggregate=aggregate, empty=empty)
    local = np.nan_to_num(local_variance(components, sizes_x, sizes_z))
    factor = sampling_factor(n_pairs, pairs, distinct=distinct)
    total: Floats = (omega**2 * (local + factor * (components.total - local))).sum(axis=-1)
    return total


def variance_assignments(
    components: Components,
    assignments_x: ArrayLike,
    assignments_z: ArrayLike,
    n_workers: int,
    *,
    aggregate: Aggregate = "mean",
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance of an estimator over T fixed partitions, from who holds which point in each round.

    With v_i^t = ω_i^t / (n_i^t m_i^t) the weight of each pair that worker i holds in round t (mean: 1/(T N n_i m_i);
    pooled over rounds and workers: 1/ΣΣ n_i m_i), w_kl = Σ_t Σ_i v_i^t 1{k ∈ X_i^t, l ∈ Z_i^t}, hence

        Σ w_kl² = Σ_tt' Σ_ij |X_i^t ∩ X_j^t'| |Z_i^t ∩ Z_j^t'| v_i^t v_j^t',
        Σ w_k.² = Σ_tt' Σ_ij |X_i^t ∩ X_j^t'| v_i^t m_i^t v_j^t' m_j^t',       and the same for z,

    and Var = σ₁² Σ w_k.² + σ₂² Σ w_.l² + σ₀² Σ w_kl². With B pairs per worker and round, drawn independently, add
    Σ_ti (ω_i^t)² c_i^t (σ² - V_i^t), V_i^t = `local_variance` and c = `sampling_factor`.

    One N × N table of overlaps of each sample is in memory at a time: O(T² (n + m + N²)) work. This is the variance of
    the scheme "fixed-shuffle", whose partitions are known once the sizes are: its first, random, permutation renames
    the points, which changes no overlap.

    Parameters
    ----------
    assignments_x, assignments_z : array_like of int, shapes (T, n) and (T, m)
        Entry (t, k) is the worker that holds point k in round t.

    Raises
    ------
    ValueError
        If the shapes or entries don't fit, a worker has no pair in some round, or B is impossible.
    """
    x, z = _check_assignments(assignments_x, n_workers), _check_assignments(assignments_z, n_workers)
    if len(x) != len(z):
        raise ValueError(f"both samples need the same number of rounds, not {len(x)} and {len(z)}")
    sizes_x = np.array([np.bincount(row, minlength=n_workers) for row in x])
    sizes_z = np.array([np.bincount(row, minlength=n_workers) for row in z])
    pairs = sizes_x * sizes_z
    omega = round_shares(pairs, aggregate) * worker_weights(pairs, aggregate=aggregate)
    per_pair = omega / pairs
    per_x, per_z = omega / sizes_x, omega / sizes_z
    sum_x = sum_z = sum_pairs = 0.0
    for t in range(len(pairs)):
        for u in range(t + 1):
            x_table, z_table = (_overlap(rows[t], rows[u], n_workers) for rows in (x, z))
            times = 1 if u == t else 2  # the table of (u, t) is the transpose of the table of (t, u)
            sum_x += times * float(per_x[t] @ x_table @ per_x[u])
            sum_z += times * float(per_z[t] @ z_table @ per_z[u])
            sum_pairs += times * float(per_pair[t] @ (x_table * z_table) @ per_pair[u])
    value = weight_variance(components, sum_x, sum_z, sum_pairs)
    return value + _sampling_excess(components, sizes_x, sizes_z, omega, n_pairs, distinct)


def variance_rotation(
    components: Components,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    n_rounds: int,
    *,
    aggregate: Aggregate = "pooled",
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance of T rounds of rotation: in round t worker i pairs its x-block with z-block i - t (mod N).

    Proof from the principle. T <= N rotations meet distinct pairs of blocks, so each pair of points has at most one
    weight. Pooled, each of the Q = Σ_i n_i R_i pairs has weight 1/Q; a point of x-block i is in R_i = Σ_{t<T} m_{i-t}
    pairs, a point of z-block j in C_j = Σ_{t<T} n_{j+t}, hence

        Var = [σ₁² Σ n_i R_i² + σ₂² Σ m_j C_j²] / Q² + σ₀²/Q.

    The mean of the T N local values gives a pair the weight 1/(T N n_i m_j), hence

        Var = σ₁² N⁻² Σ 1/n_i + σ₂² N⁻² Σ 1/m_j + σ₀² (T N)⁻² Σ_t Σ_i 1/(n_i m_{i-t}).

    When N divides n and m both are σ₁²/n + σ₂²/m + σ₀² N/(n m T), which attains the lower bound of any weighted average
    on Q = n m T/N distinct pairs (prop-SWOR has N + T - 1 in place of N). Pooled at T = N is U_n for any sizes. Such
    equireplicate designs go back to Blom (Biometrika 63, 1976), who took them from Latin squares.

    Incomplete: add Σ_ti (ω_i^t)² c (σ² - V_i^t), V_i^t the variance on the pair of blocks (i, i - t).

    Parameters
    ----------
    sizes_x, sizes_z : array_like of int, shape (N,)
        n_i and m_i.
    n_rounds : int
        T <= N: N rounds have met every pair.

    Raises
    ------
    ValueError
        If T > N, a block is empty, or B is impossible.
    """
    n_i, m_i = check_sizes(sizes_x, 1), check_sizes(sizes_z, 1)
    n_workers = len(n_i)
    check_rounds(n_rounds)
    if len(m_i) != n_workers:
        raise ValueError(f"both samples need one block per worker, not {n_workers} and {len(m_i)} blocks")
    if n_rounds > n_workers:
        raise ValueError(f"{n_workers} rotations meet every pair: {n_rounds} rounds are too many")
    if min(n_i.min(), m_i.min()) == 0:
        raise ValueError("rotation needs at least one point of both samples on every worker")
    # Entry (t, i): the size of the z-block that visits worker i in round t.
    visiting = m_i[(np.arange(n_workers) - np.arange(n_rounds)[:, None]) % n_workers]
    pairs = n_i * visiting
    omega = round_shares(pairs, aggregate) * worker_weights(pairs, aggregate=aggregate)
    if aggregate == "pooled":
        hosts = n_i[(np.arange(n_workers) + np.arange(n_rounds)[:, None]) % n_workers].sum(axis=0)
        total = float(pairs.sum())
        sum_x = float((n_i * visiting.sum(axis=0).astype(np.float64) ** 2).sum()) / total**2
        sum_z = float((m_i * hosts.astype(np.float64) ** 2).sum()) / total**2
        sum_pairs = 1.0 / total
    else:
        sum_x = float((1.0 / n_i).sum()) / n_workers**2
        sum_z = float((1.0 / m_i).sum()) / n_workers**2
        sum_pairs = float((1.0 / pairs).sum()) / (n_rounds * n_workers) ** 2
    value = weight_variance(components, sum_x, sum_z, sum_pairs)
    return value + _sampling_excess(components, n_i, visiting, omega, n_pairs, distinct)


def round_shares(pairs: ArrayLike, aggregate: Aggregate) -> Floats:
    """Return the weight of each round, shape (T, 1): 1/T, or its share of all the pairs, given those of each worker."""
    per_round = np.asarray(pairs, dtype=np.float64).sum(axis=1, keepdims=True)
    if aggregate == "mean":
        per_round = np.ones_like(per_round)
    shares: Floats = per_round / per_round.sum()
    return shares


def _sampling_excess(
    components: Components, sizes_x: Ints, sizes_z: Ints, omega: Floats, n_pairs: int | None, distinct: bool
) -> float:
    """Return Σ ω² c (σ² - V): what drawing B pairs on each block adds, for blocks of distinct points."""
    pairs = sizes_x * sizes_z
    refuse_too_many_pairs(n_pairs, pairs, distinct=distinct)
    excess = components.total - np.nan_to_num(local_variance(components, sizes_x, sizes_z))
    return float((omega**2 * sampling_factor(n_pairs, pairs, distinct=distinct) * excess).sum())


def moving_sample(sizes: Sequence[int]) -> int:
    """Return which sample moves if only one does: the smallest, of equal ones the last."""
    return len(sizes) - 1 - int(np.argmin(sizes[::-1]))


def deal_starts(sizes: Sequence[int], n_workers: int) -> tuple[int, ...]:
    """Return the worker from which "fixed-shuffle" deals each sample out.

    The k-th sample starts at worker k⌊N/2⌋ if an earlier one has the same size, or the two would travel together for
    ever and the same pairs would meet in every round; otherwise at worker 0.
    """
    return tuple(k * (n_workers // 2) % n_workers if size in sizes[:k] else 0 for k, size in enumerate(sizes))


def deal_order(size: int, n_workers: int, start: int) -> Ints:
    """Return the places, worker after worker, when place g is dealt to worker (g + start) mod N."""
    return np.concatenate([np.arange((i - start) % n_workers, size, n_workers) for i in range(n_workers)])


def deal_overlaps(size: int, n_workers: int, n_rounds: int, start: int) -> Iterator[Ints]:
    """Yield, for d = 0 … T-1, how many points worker i holds in some round and worker j d rounds later.

    Each round of "fixed-shuffle" applies the same permutation of places, `deal_order`, to the round before it, and
    keeps the blocks' sizes. So the table depends on the two rounds through their distance only, and not on the random
    order of round 0, which renames the points: O(T (n + N²)) in all.

    Yields
    ------
    ndarray of int, shape (N, N)
        The first is diagonal, with the block sizes.

    Raises
    ------
    ValueError
        If some worker would get no point.
    """
    block = np.repeat(np.arange(n_workers), np.roll(even_sizes(size, n_workers), start))
    deal = deal_order(size, n_workers, start)
    places = np.arange(size)
    for _ in range(n_rounds):
        yield _overlap(block[places], block, n_workers)
        places = places[deal]


def _check_assignments(assignments: ArrayLike, n_workers: int) -> Ints:
    holder = np.asarray(assignments, dtype=np.int64)
    if holder.ndim != 2 or holder.size == 0:
        raise ValueError(f"assignments must have shape (rounds, points), not {holder.shape}")
    if holder.min() < 0 or holder.max() >= n_workers:
        raise ValueError(f"assignments must name workers 0 to {n_workers - 1}")
    return holder


def _overlap(first: Ints, second: Ints, n_workers: int) -> Ints:
    counts = np.bincount(first * n_workers + second, minlength=n_workers * n_workers)
    return counts.reshape(n_workers, n_workers)
