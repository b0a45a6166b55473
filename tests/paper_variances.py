"""The variances of two-sample estimators, found scheme by scheme: what the package's coefficients are compared with.

The package has one set of formulas, of K samples and linear in the components (`mpi_ustat.schemes.k_samples`). These
are older, for two samples, and each is written for its scheme; `test_theory` holds them against enumeration. Σ w_k.²,
Σ w_.l² and Σ w_kl² are the sums of squares of `mpi_ustat.schemes.designs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.paper.theory import Components
from mpi_ustat.schemes.designs import check_sizes, even_sizes, round_shares, sampling_factor, worker_weights

Array = NDArray[Any]


def weight_variance(components: Components, sum_x: float, sum_z: float, sum_pairs: float) -> float:
    """Return σ₁² Σ w_k.² + σ₂² Σ w_.l² + σ₀² Σ w_kl²."""
    return float(components.var_x * sum_x + components.var_z * sum_z + components.var_xz * sum_pairs)


def variance_complete(components: Components, n: int, m: int) -> float:
    """Return V_n = σ₁²/n + σ₂²/m + σ₀²/(nm)."""
    return weight_variance(components, 1.0 / n, 1.0 / m, 1.0 / (n * m))


def local_variance(components: Components, sizes_x: ArrayLike, sizes_z: ArrayLike) -> Array:
    """Return V_i = σ₁²/n_i + σ₂²/m_i + σ₀²/(n_i m_i); an empty side, whose block has no weight, counts as 1."""
    n_i, m_i = np.maximum(sizes_x, 1.0), np.maximum(sizes_z, 1.0)
    local: Array = components.var_x / n_i + components.var_z / m_i + components.var_xz / (n_i * m_i)
    return local


def variance_incomplete(components: Components, n: int, m: int, n_pairs: int, *, distinct: bool = False) -> float:
    """Return Blom's V_n + c (σ² - V_n): (1 - 1/B) V_n + σ²/B for B pairs with replacement."""
    complete = variance_complete(components, n, m)
    return complete + float(sampling_factor(n_pairs, n * m, distinct=distinct)) * (components.total - complete)


def one_round(components: Components, n_i: Array, m_i: Array, *, empty: Any = "error", **options: Any) -> Array:
    """Return Σ_i ω_i² [V_i + c_i (σ² - V_i)] over the last axis."""
    omega = worker_weights(n_i * m_i, aggregate=options.pop("aggregate", "mean"), empty=empty)
    local = local_variance(components, n_i, m_i)
    factor = sampling_factor(options.pop("n_pairs", None), n_i * m_i, **options)
    found: Array = (omega**2 * (local + factor * (components.total - local))).sum(axis=-1)
    return found


def variance_prop_swor(
    components: Components, n_i: Array, m_i: Array, *, n_rounds: int = 1, move: str = "both", **options: Any
) -> float:
    """Return Var(M) + (V₁ - Var(M))/T, M the mean of a round given the data and what doesn't move.

    With ω_i/n_i the weight of a fixed x-point, Var(M) = (Σ ω_i²/n_i)(σ₁² + σ₀²/m) + σ₂²/m if z moves.
    """
    n, m = int(n_i.sum()), int(m_i.sum())
    omega = worker_weights(n_i * m_i, aggregate=options.get("aggregate", "mean"))
    if move == "both":
        limit = variance_complete(components, n, m)
    elif m <= n:
        share = float((omega**2 / n_i).sum())
        limit = weight_variance(components, share, 1.0 / m, share / m)
    else:
        share = float((omega**2 / m_i).sum())
        limit = weight_variance(components, 1.0 / n, share, share / n)
    return limit + (float(one_round(components, n_i, m_i, **options)) - limit) / n_rounds


def variance_drawn_block(components: Components, n: int, m: int, sizes_x: ArrayLike, sizes_z: ArrayLike) -> Array:
    """Return V_R of blocks drawn with replacement: E Σ_k (c_k/n_i)² = 1/n + (1 - 1/n)/n_i in place of 1/n_i."""
    a_x = 1.0 / n + (1.0 - 1.0 / n) / np.asarray(sizes_x, dtype=np.float64)
    a_z = 1.0 / m + (1.0 - 1.0 / m) / np.asarray(sizes_z, dtype=np.float64)
    block: Array = components.var_x * a_x + components.var_z * a_z + components.var_xz * a_x * a_z
    return block


def variance_prop_swr(
    components: Components,
    n: int,
    m: int,
    n_i: Array,
    m_i: Array,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Any = "mean",
    printed: bool = False,
) -> float:
    """Return V_n + Σ ω_i² [V_R - V_n + c_i (σ² - V_R)]/T; the paper prints the last V_R of n/N points of only n/N."""
    omega = worker_weights(n_i * m_i, aggregate=aggregate)
    complete, block = variance_complete(components, n, m), variance_drawn_block(components, n, m, n_i, m_i)
    sampled = variance_drawn_block(components, int(n_i[0]), int(m_i[0]), n_i, m_i) if printed else block
    factor = sampling_factor(n_pairs, n_i * m_i, distinct=distinct)
    excess = omega**2 * (block - complete + factor * (components.total - sampled))
    return complete + float(excess.sum()) / n_rounds


def variance_swor(
    components: Components,
    n: int,
    m: int,
    n_workers: int,
    *,
    expectation: float,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance under SWOR where workers without a pair count 0: from the law of the classes, by counting.

    p² V_n + (V₁ - p² V_n)/T, V₁ = N⁻² {Σ_i E ok_i [V_i + c (σ² - V_i)] + U² Var(Σ_i ok_i)}.
    """
    sizes = even_sizes(n + m, n_workers).tolist()
    every = {s: math.comb(n + m, s) for s in set(sizes)}

    def within(s: int) -> tuple[Fraction, float]:
        """Return P(ok) and E ok [V + c (σ² - V)] of a block of s points."""
        number = [(k, math.comb(m, k) * math.comb(n, s - k)) for k in range(1, min(m, s - 1) + 1) if s - k <= n]
        ok, expected = Fraction(sum(c for _, c in number), every[s]), 0.0
        for k, c in number:
            local = float(local_variance(components, s - k, k))
            factor = float(sampling_factor(n_pairs, k * (s - k), distinct=distinct))
            expected += float(Fraction(c, every[s])) * (local + factor * (components.total - local))
        return ok, expected

    def both_lack(s: int, r: int) -> Fraction:
        alike = Fraction(math.comb(n, s + r) + math.comb(m, s + r), math.comb(n + m, s + r))
        mixed = math.comb(n, s) * math.comb(m, r) + math.comb(m, s) * math.comb(n, r)
        return alike + Fraction(mixed, every[s] * math.comb(n + m - s, r))

    found = {s: within(s) for s in every}
    lack = {s: 1 - ok for s, (ok, _) in found.items()}
    ok_share = sum((found[s][0] for s in sizes), start=Fraction(0)) / n_workers
    spread = sum((lack[s] * (1 - lack[s]) for s in sizes), start=Fraction(0))
    for s in every:
        for r in every:
            couples = sizes.count(s) * (sizes.count(r) - (s == r))
            if couples:
                spread += couples * (both_lack(s, r) - lack[s] * lack[r])
    first = (sum(found[s][1] for s in sizes) + expectation**2 * float(spread)) / n_workers**2
    limit = float(ok_share) ** 2 * variance_complete(components, n, m)
    return limit + (first - limit) / n_rounds


def variance_swor_realised(components: Components, sizes_x: ArrayLike, sizes_z: ArrayLike, **options: Any) -> float:
    """Return V_n + T⁻² Σ_t (V_t - V_n), given the sizes, shape (T, N), workers without a pair being skipped."""
    n_i, m_i = check_sizes(sizes_x, 2), check_sizes(sizes_z, 2)
    complete = variance_complete(components, int(n_i[0].sum()), int(m_i[0].sum()))
    rounds = one_round(components, n_i, m_i, empty="skip", **options)
    return complete + float((rounds - complete).sum()) / len(n_i) ** 2


def variance_assignments(
    components: Components,
    assignments: tuple[ArrayLike, ArrayLike],
    n_workers: int,
    *,
    aggregate: Any = "mean",
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance over T fixed partitions, given the holder of each point in each round, (T, n) and (T, m).

    With v_i^t = ω_i^t/(n_i^t m_i^t) the weight of each pair that worker i holds in round t,

        Σ w_kl² = Σ_tt' Σ_ij |X_i^t ∩ X_j^t'| |Z_i^t ∩ Z_j^t'| v_i^t v_j^t',
        Σ w_k.² = Σ_tt' Σ_ij |X_i^t ∩ X_j^t'| v_i^t m_i^t v_j^t' m_j^t',       and the same for z.
    """
    # Entry (t, i, k): whether worker i has point k in round t.
    has_x, has_z = (np.asarray(rows)[:, None, :] == np.arange(n_workers)[:, None] for rows in assignments)
    n_ti, m_ti = has_x.sum(axis=2), has_z.sum(axis=2)
    omega = round_shares(n_ti * m_ti, aggregate) * worker_weights(n_ti * m_ti, aggregate=aggregate)
    weights = np.einsum("ti,tik,til->kl", omega / (n_ti * m_ti), has_x, has_z)
    value = weight_variance(
        components, (weights.sum(axis=1) ** 2).sum(), (weights.sum(axis=0) ** 2).sum(), (weights**2).sum()
    )
    return value + _excess(components, n_ti, m_ti, omega, n_pairs, distinct)


def variance_rotation(
    components: Components,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    n_rounds: int,
    *,
    aggregate: Any = "pooled",
    n_pairs: int | None = None,
    distinct: bool = False,
) -> float:
    """Return the variance of T <= N rounds of rotation: in round t worker i pairs its x-block with z-block i - t.

    Each pair of points has at most one weight. Pooled, each of the Q = Σ_i n_i R_i pairs has weight 1/Q; a point of
    x-block i is in R_i = Σ_{t<T} m_{i-t} pairs, a point of z-block j in C_j = Σ_{t<T} n_{j+t}, hence

        Var = [σ₁² Σ n_i R_i² + σ₂² Σ m_j C_j²] / Q² + σ₀²/Q.

    The mean of the T N local values gives a pair the weight 1/(T N n_i m_j), hence

        Var = σ₁² N⁻² Σ 1/n_i + σ₂² N⁻² Σ 1/m_j + σ₀² (T N)⁻² Σ_t Σ_i 1/(n_i m_{i-t}).
    """
    n_i, m_i = check_sizes(sizes_x, 1), check_sizes(sizes_z, 1)
    n_workers = len(n_i)
    shifts = np.arange(n_rounds)[:, None]
    visiting = m_i[(np.arange(n_workers) - shifts) % n_workers]
    pairs = n_i * visiting
    omega = round_shares(pairs, aggregate) * worker_weights(pairs, aggregate=aggregate)
    if aggregate == "pooled":
        hosts, total = n_i[(np.arange(n_workers) + shifts) % n_workers].sum(axis=0), float(pairs.sum())
        sum_x = float((n_i * visiting.sum(axis=0) ** 2).sum()) / total**2
        sum_z = float((m_i * hosts**2).sum()) / total**2
        sum_pairs = 1.0 / total
    else:
        sum_x, sum_z = float((1.0 / n_i).sum()) / n_workers**2, float((1.0 / m_i).sum()) / n_workers**2
        sum_pairs = float((1.0 / pairs).sum()) / (n_rounds * n_workers) ** 2
    value = weight_variance(components, sum_x, sum_z, sum_pairs)
    return value + _excess(components, n_i, visiting, omega, n_pairs, distinct)


def _excess(components: Components, n_i: Array, m_i: Array, omega: Array, n_pairs: int | None, distinct: bool) -> float:
    """Return Σ ω² c (σ² - V): what drawing B pairs on each block adds."""
    factor = sampling_factor(n_pairs, n_i * m_i, distinct=distinct)
    return float((omega**2 * factor * (components.total - local_variance(components, n_i, m_i))).sum())


def variance(
    components: Components,
    *,
    scheme: str,
    n: int = 0,
    m: int = 0,
    n_workers: int = 1,
    sizes_x: Sequence[int] | Any = None,
    sizes_z: Sequence[int] | Any = None,
    **options: Any,
) -> float:
    """Return the variance under a scheme: blocks are as even as can be, unless their sizes are given."""
    if scheme == "complete":
        n_pairs = options.pop("n_pairs", None)
        return (
            variance_incomplete(components, n, m, n_pairs, **options)
            if n_pairs
            else variance_complete(components, n, m)
        )
    if scheme == "fixed-shuffle":
        return variance_assignments(components, options.pop("assignments"), n_workers, **options)
    if scheme == "swor" and options.pop("empty") == "zero":
        return variance_swor(components, n, m, n_workers, **options)
    if scheme == "swor":
        return variance_swor_realised(components, sizes_x, sizes_z, **options)
    n_i = even_sizes(n, n_workers) if sizes_x is None else np.asarray(sizes_x)
    m_i = even_sizes(m, n_workers) if sizes_z is None else np.asarray(sizes_z)
    if scheme == "rotation":
        return variance_rotation(components, n_i, m_i, options.pop("n_rounds", 1), **options)
    if scheme == "as-is":
        return float(one_round(components, n_i, m_i, **options))
    if scheme == "prop-swor":
        return variance_prop_swor(components, n_i, m_i, **options)
    assert scheme == "prop-swr"
    return variance_prop_swr(components, n, m, n_i, m_i, **options)
