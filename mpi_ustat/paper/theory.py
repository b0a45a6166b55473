"""Closed-form variances of distributed two-sample U-statistics, for every partition scheme and estimator.

The source is Vogel, Bellet, Clémençon, Jelassi and Papa, *Trade-offs in Large-Scale Distributed Tuplewise Estimation
and Learning* (ECML PKDD 2019), "the paper" below: Theorems 1 and 2 for prop-SWOR, Theorems 3 and 4 (supplementary)
for prop-SWR. `variance` is the front of everything here; the other functions are the formulas it is made of.

Two facts prove nearly all of them. The first is the principle of `mpi_ustat.schemes.designs`: given the weights,
the variance is σ₁² Σ w_k.² + σ₂² Σ w_.l² + σ₀² Σ w_kl². The second: if the T rounds are independent and alike given
the data, with conditional mean M and one-round variance V₁, the law of total variance gives for their average

    Var = Var(M) + E[Var(round | data)]/T = Var(M) + (V₁ - Var(M))/T.                                             (R)

Whenever every pair is as likely as any other to be evaluated, M = U_n and Var(M) = V_n, the variance of the complete
statistic. Sampling B pairs on worker i, whose weight is ω_i, adds ω_i² c (σ² - V_i)/T (`designs.sampling_factor`).

The symbols n, m, N, T, B are the arguments `n`, `m`, `n_workers`, `n_rounds`, `n_pairs`. Variances have the square of
the kernel's unit; sizes are numbers of points.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.schemes.designs import (
    Aggregate,
    Components,
    Empty,
    check_rounds,
    check_sizes,
    even_sizes,
    local_variance,
    one_round_variance,
    refuse_too_many_pairs,
    sampling_factor,
    variance_assignments,
    variance_complete,
    variance_rotation,
    weight_variance,
    worker_weights,
)
from mpi_ustat.schemes.swor import swor_bias_factor, variance_swor, variance_swor_realised

__all__ = [
    "Aggregate",
    "Components",
    "Empty",
    "Scheme",
    "dominance_gap",
    "even_sizes",
    "prop_swr_block_variance",
    "swor_bias_factor",
    "variance",
    "variance_as_is",
    "variance_assignments",
    "variance_complete",
    "variance_incomplete",
    "variance_prop_swor",
    "variance_prop_swr",
    "variance_rotation",
    "variance_standard_error",
    "variance_swor",
    "variance_swor_realised",
]

Scheme = Literal["complete", "as-is", "prop-swor", "swor", "prop-swr", "fixed-shuffle", "rotation"]
"""Partition schemes, and "complete" for the statistic on the undivided samples."""


def variance_incomplete(components: Components, n: int, m: int, n_pairs: int, *, distinct: bool = False) -> float:
    """Return Blom's variance of the incomplete statistic Ũ_B: B pairs drawn uniformly from all the n·m.

    With replacement Var = (1 - 1/B) V_n + σ²/B (Blom 1976). B distinct pairs: V_n + (σ² - V_n)(nm - B)/(B (nm - 1)).
    Proof at `designs.sampling_factor`.

    Raises
    ------
    ValueError
        If a sample is empty, B < 1, or more distinct pairs are asked for than there are.
    """
    complete = variance_complete(components, n, m)
    refuse_too_many_pairs(n_pairs, n * m, distinct=distinct)
    return complete + float(sampling_factor(n_pairs, n * m, distinct=distinct)) * (components.total - complete)


def variance_prop_swor(
    components: Components,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    move: Literal["both", "smaller"] = "both",
) -> float:
    """Return the variance under prop-SWOR: each round deals each sample to the workers by a fresh uniform permutation.

    One round is Σ ω_i U_i on disjoint blocks, so V₁ = Σ ω_i² V_i with V_i = σ₁²/n_i + σ₂²/m_i + σ₀²/(n_i m_i); ω_i =
    1/N for the mean, n_i m_i/Q with Q = Σ n_i m_i when pooled. Given the data, U_i has mean U_n by symmetry, for any
    sizes, so (R) gives

        Var = V_n + (V₁ - V_n)/T + Σ ω_i² c_i (σ² - V_i)/T,      c_i = 1/B with replacement.

    If N divides n and m, V₁ = σ₁²/n + σ₂²/m + N σ₀²/(nm) and these are Theorems 1 (T = 1) and 2 of the paper:

        Var(Û_{n,N,T}) = V_n + (N - 1) σ₀²/(n m T),
        Var(Ũ_{n,N,B,T}) = Var(Û_{n,N,T}) + σ²/(N T B) - Var(U_{n,N})/(T B).

    ``move="smaller"`` deals only the smaller sample again after the first round (z if sizes are equal). Given the
    data and the fixed blocks, rounds are still independent and alike, with conditional mean M; say z moves:

        mean:    M = N⁻¹ Σ_i (n_i m)⁻¹ Σ_{k∈i, l} h_kl:       Var(M) = N⁻² Σ (1/n_i)(σ₁² + σ₀²/m) + σ₂²/m,
        pooled:  M = Q⁻¹ Σ_i (m_i/m) Σ_{k∈i, l} h_kl:         Var(M) = (Σ n_i m_i²/Q²)(σ₁² + σ₀²/m) + σ₂²/m,

    by the principle, and (R) holds with this Var(M). M = U_n, hence nothing is lost, iff the fixed sample's blocks are
    equal (mean) or the moved sample's are (pooled).

    Parameters
    ----------
    sizes_x, sizes_z : array_like of int, shape (N,)
        n_i and m_i, the same in every round; their sums are n and m.

    Raises
    ------
    ValueError
        If a block is empty, shapes differ, or T or B is impossible.
    """
    n_i, m_i = _both_sizes(sizes_x, sizes_z)
    check_rounds(n_rounds)
    n, m = int(n_i.sum()), int(m_i.sum())
    refuse_too_many_pairs(n_pairs, n_i * m_i, distinct=distinct)
    omega = worker_weights(n_i * m_i, aggregate=aggregate)
    if move == "both":
        limit = variance_complete(components, n, m)
    elif move == "smaller":
        # ω_i/n_i is the weight of one fixed point, also after averaging over all the deals of the other sample.
        if m <= n:
            share = float((omega**2 / n_i).sum())
            limit = weight_variance(components, share, 1.0 / m, share / m)
        else:
            share = float((omega**2 / m_i).sum())
            limit = weight_variance(components, 1.0 / n, share, share / n)
    else:
        raise ValueError(f"move is 'both' or 'smaller', not {move!r}")
    local = local_variance(components, n_i, m_i)
    one_round = float((omega**2 * local).sum())
    factor = sampling_factor(n_pairs, n_i * m_i, distinct=distinct)
    excess = float((omega**2 * factor * (components.total - local)).sum())
    return limit + (one_round - limit + excess) / n_rounds


def variance_as_is(
    components: Components,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    *,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    empty: Empty = "error",
) -> float:
    """Return the variance on shards taken as they lie: Σ ω_i² [V_i + c_i (σ² - V_i)], one round, any sizes.

    Provided that the data are independent and identically distributed across shards; the layout is fixed. Points of a
    skipped shard (``empty="skip"``) are lost: they carry no weight.

    Parameters
    ----------
    sizes_x, sizes_z : array_like of int, shape (N,)
        n_i and m_i; zeros are allowed with ``empty="skip"`` only.

    Raises
    ------
    ValueError
        If a shard has no pair and `empty` is not "skip", if none has, or if B is impossible.
    """
    n_i, m_i = check_sizes(sizes_x, 1), check_sizes(sizes_z, 1)
    if n_i.shape != m_i.shape:
        raise ValueError(f"both samples need one block per worker, not {len(n_i)} and {len(m_i)} blocks")
    refuse_too_many_pairs(n_pairs, n_i * m_i, distinct=distinct)
    return float(one_round_variance(components, n_i, m_i, n_pairs, distinct, aggregate, empty))


def prop_swr_block_variance(components: Components, n: int, m: int, sizes_x: ArrayLike, sizes_z: ArrayLike) -> Floats:
    """Return Var(U_R,i), the variance of the complete statistic on blocks drawn from the samples with replacement.

    A point drawn c_k times out of n_i has weight c_k/n_i, and E Σ_k (c_k/n_i)² = 1/n + (1 - 1/n)/n_i =: a(n, n_i):
    two given draws are the same point with probability 1 (the same draw, n_i of n_i²) or 1/n. The two samples are
    drawn independently, so by the principle

        Var(U_R,i) = σ₁² a(n, n_i) + σ₂² a(m, m_i) + σ₀² a(n, n_i) a(m, m_i).

    With n_i = n/N, a = (1 + N (1 - 1/n))/n.

    Parameters
    ----------
    sizes_x, sizes_z : array_like of int
        n_i and m_i, at least 1; they broadcast and need not sum to n and m.
    """
    a_x = 1.0 / n + (1.0 - 1.0 / n) / np.asarray(sizes_x, dtype=np.float64)
    a_z = 1.0 / m + (1.0 - 1.0 / m) / np.asarray(sizes_z, dtype=np.float64)
    block: Floats = components.var_x * a_x + components.var_z * a_z + components.var_xz * a_x * a_z
    return block


def variance_prop_swr(
    components: Components,
    n: int,
    m: int,
    sizes_x: ArrayLike,
    sizes_z: ArrayLike,
    *,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate = "mean",
    printed: bool = False,
) -> float:
    """Return the variance under prop-SWR: in each round worker i draws n_i and m_i points with replacement.

    Given the data, the workers' statistics are independent with mean U_n, hence

        Var = V_n + Σ ω_i² (V_R,i - V_n)/T + Σ ω_i² c_i (σ² - V_R,i)/T,      V_R,i = `prop_swr_block_variance`.

    For complete blocks of n/N and m/N points this is what the paper prints (Theorems 3 and 4), V_n + (V_R - V_n)/(N T).

    **Erratum.** The incomplete formulas are printed with the wrong local variance: B pairs of a block U_R add (σ² -
    Var(U_R))/(N B T), where Var(U_R) is the variance of a block of n/N points drawn from *n* (V_R above). The paper
    subtracts Var(U_{n/N,1}) instead, its complete formula with n/N, m/N and a single worker in place of n, m and N,
    that is a block of n/N points drawn from only n/N. That one has more repeated points, so the printed variance is
    too small. ``printed=True`` gives the printed formula, so that the error can be shown. With n = 40, m = 20, N = 5,
    B = 1, T = 1 and the product kernel of two unit-variance normals with means 2, the corrected formula gives 2.0410,
    the printed one 1.8389, and the simulation in ``test_printed_prop_swr_incomplete_formula_fails`` agrees with the
    former and rejects the latter.

    Parameters
    ----------
    n, m : int
        Sizes of the samples that are drawn from.
    sizes_x, sizes_z : array_like of int, shape (N,)
        n_i and m_i, the numbers of draws, at least 1.
    distinct : bool
        Whether the B pairs are distinct pairs of *positions* in the block (whose points may repeat).
    printed : bool
        Whether to give the paper's printed formula. It is defined for equal blocks of n/N and m/N points, averaged.

    Raises
    ------
    ValueError
        If a block is empty, shapes differ, T or B is impossible, or `printed` is asked where the paper prints nothing.
    """
    n_i, m_i = _both_sizes(sizes_x, sizes_z)
    check_rounds(n_rounds)
    refuse_too_many_pairs(n_pairs, n_i * m_i, distinct=distinct)
    omega = worker_weights(n_i * m_i, aggregate=aggregate)
    complete = variance_complete(components, n, m)
    block = prop_swr_block_variance(components, n, m, n_i, m_i)
    sampled = block
    if printed:
        n_workers = len(n_i)
        if distinct or (n_i * n_workers != n).any() or (m_i * n_workers != m).any():
            raise ValueError("the printed formula needs blocks of n/N and m/N points and pairs drawn with replacement")
        sampled = prop_swr_block_variance(components, int(n_i[0]), int(m_i[0]), n_i, m_i)
    factor = sampling_factor(n_pairs, n_i * m_i, distinct=distinct)
    one_round_excess = omega**2 * (block - complete + factor * (components.total - sampled))
    return complete + float(one_round_excess.sum()) / n_rounds


def dominance_gap(components: Components, n: int, m: int, n_workers: int, n_pairs: int, total_pairs: float) -> float:
    """Return Δ = Var(Ũ_{n,N,B,T'}) - Var(Û_{n,N,T}) under prop-SWOR at equal numbers of evaluated pairs.

    Statement. Let K = N B T' = T nm/N be the number of pairs that either estimator evaluates, N dividing n and m. Then

        K Δ = σ₁² (1 - N/n) + σ₂² (1 - N/m) + σ₀² [(1 - N²/(nm))/N + N (N - 1)(B - 1)/(nm)]  >=  0:

    who can pay K pairs has a smaller variance with complete blocks and T repartitions than with B pairs a block and
    the T' = K/(N B) repartitions that cost as many pairs. If σ₀² > 0, equality holds iff B = 1 and nm = N² (a point of
    each class per worker: the two are the same), apart from n = m = N = 1, where any B gives the one value.

    Derivation. By Theorem 2, with V₁ - V_n = (N - 1) σ₀²/(nm) and local variance
    V_R = σ₁² N/n + σ₂² N/m + σ₀² N²/(nm),

        K [Var(Ũ) - V_n] = N B (V₁ - V_n) + σ² - V_R,       K [Var(Û) - V_n] = (nm/N)(V₁ - V_n) = (N - 1) σ₀²/N.

    Subtract and collect: the factor of σ₀² is N (N - 1) B/(nm) + 1 - N²/(nm) - (N - 1)/N, which is the bracket above.
    Every term is non-negative since N <= n, N <= m, B >= 1; the bracket vanishes iff N² = nm and (N - 1)(B - 1) = 0.

    Parameters
    ----------
    n_pairs : int
        B of the incomplete estimator.
    total_pairs : float
        K > 0; T = K N/(nm) and T' = K/(N B) need not be whole numbers for the formula.

    Returns
    -------
    float
        Δ, in the squared unit of the kernel.

    Raises
    ------
    ValueError
        If N does not divide n and m, B < 1 or K <= 0.
    """
    if n < 1 or m < 1 or n_workers < 1 or n % n_workers or m % n_workers:
        raise ValueError(f"{n_workers} workers must divide both sample sizes, {n} and {m}")
    if n_pairs < 1 or total_pairs <= 0:
        raise ValueError("the numbers of pairs must be positive")
    slack = 1.0 - n_workers**2 / (n * m)
    bracket = slack / n_workers + n_workers * (n_workers - 1) * (n_pairs - 1) / (n * m)
    return weight_variance(components, 1.0 - n_workers / n, 1.0 - n_workers / m, bracket) / total_pairs


def variance_standard_error(variance: float, fourth_moment: float, n_runs: int) -> float:
    """Return the standard error of an empirical variance over R runs: √[(μ₄ - σ⁴ (R - 3)/(R - 1))/R].

    Exact for the unbiased (divisor R - 1) variance of independent runs.

    Parameters
    ----------
    variance : float
        σ² of one run.
    fourth_moment : float
        μ₄ = E(value - mean)⁴ of one run.
    n_runs : int
        R >= 2.

    Raises
    ------
    ValueError
        If R < 2.
    """
    if n_runs < 2:
        raise ValueError("an empirical variance needs at least two runs")
    # Empirical moments of a two-point law can make the difference a rounding error below zero.
    return float(np.sqrt(max(fourth_moment - variance**2 * (n_runs - 3) / (n_runs - 1), 0.0) / n_runs))


def variance(
    components: Components,
    *,
    scheme: Scheme,
    n: int | None = None,
    m: int | None = None,
    n_workers: int | None = None,
    n_rounds: int = 1,
    n_pairs: int | None = None,
    distinct: bool = False,
    aggregate: Aggregate | None = None,
    move: Literal["both", "smaller"] = "both",
    empty: Empty = "error",
    sizes_x: ArrayLike | None = None,
    sizes_z: ArrayLike | None = None,
    assignments: tuple[ArrayLike, ArrayLike] | None = None,
    expectation: float | None = None,
    printed: bool = False,
) -> float:
    """Return the variance of one of the paper's estimators under a partition scheme.

    Parameters
    ----------
    components : Components
        σ₁², σ₂², σ₀².
    scheme : str
        "complete" (no partition: U_n, or with `n_pairs` Blom's Ũ_B), "as-is", "prop-swor", "swor", "prop-swr",
        "fixed-shuffle" or "rotation".
    n, m, n_workers : int, optional
        Sample sizes and N; blocks are cut as evenly as possible. Not needed where `sizes_x` and `sizes_z` say it all.
    n_rounds : int
        T.
    n_pairs : int, optional
        B per worker and round; None evaluates all the local pairs.
    distinct : bool
        Whether the B pairs are drawn without replacement.
    aggregate : {"mean", "pooled"}, optional
        By default the mean, for rotation pooled.
    move : {"both", "smaller"}
        prop-swor: which samples are dealt again after the first round.
    empty : {"error", "zero", "skip"}
        Workers without a pair, under "as-is" (error, skip) and "swor" (zero; or skip, given the realised sizes).
    sizes_x, sizes_z : array_like of int, optional
        Block sizes, shape (N,); for "swor" with ``empty="skip"`` the realised ones, shape (T, N).
    assignments : pair of array_like, optional
        "fixed-shuffle": who holds which point, shapes (T, n) and (T, m) (`designs.variance_assignments`).
    expectation : float, optional
        "swor" with ``empty="zero"``: U.
    printed : bool
        "prop-swr": the paper's printed incomplete formula, which is wrong (`variance_prop_swr`).

    Raises
    ------
    ValueError
        If something the scheme needs is missing, an option does not belong to it, or sizes are impossible.
    """
    if scheme not in get_args(Scheme):
        raise ValueError(f"unknown scheme {scheme!r}: choose one of {', '.join(get_args(Scheme))}")
    foreign = {
        "move": move != "both" and scheme != "prop-swor",
        "empty": empty != "error" and scheme not in ("as-is", "swor"),
        "assignments": assignments is not None and scheme != "fixed-shuffle",
        "expectation": expectation is not None and (scheme, empty) != ("swor", "zero"),
        "printed": printed and scheme != "prop-swr",
        "n_rounds": n_rounds != 1 and scheme in ("complete", "as-is"),
    }
    for option, wrong in foreign.items():
        if wrong:
            raise ValueError(f"{option} does not apply to scheme {scheme!r} with empty={empty!r}")

    if scheme == "complete":
        n, m = _need("n", n), _need("m", m)
        if n_pairs is None:
            return variance_complete(components, n, m)
        return variance_incomplete(components, n, m, n_pairs, distinct=distinct)
    if scheme == "swor" and empty != "skip":
        if empty != "zero":
            raise ValueError("swor leaves workers without a pair: choose empty='zero' or empty='skip'")
        if expectation is None:
            raise ValueError("swor with empty='zero' needs the expectation of the kernel")
        if aggregate == "pooled":
            raise ValueError("pooling skips the workers without a pair: choose empty='skip'")
        return variance_swor(
            components,
            _need("n", n),
            _need("m", m),
            _need("n_workers", n_workers),
            expectation=expectation,
            n_rounds=n_rounds,
            n_pairs=n_pairs,
            distinct=distinct,
        )
    if scheme == "swor":
        if sizes_x is None or sizes_z is None:
            raise ValueError("swor with empty='skip' needs the realised block sizes, sizes_x and sizes_z")
        return variance_swor_realised(
            components, sizes_x, sizes_z, n_pairs=n_pairs, distinct=distinct, aggregate=aggregate or "mean"
        )
    if scheme == "fixed-shuffle":
        if assignments is None:
            raise ValueError("fixed-shuffle needs the assignments of every round")
        return variance_assignments(
            components,
            *assignments,
            _need("n_workers", n_workers),
            aggregate=aggregate or "mean",
            n_pairs=n_pairs,
            distinct=distinct,
        )

    blocks_x = _blocks("n", n, n_workers, sizes_x)
    blocks_z = _blocks("m", m, n_workers, sizes_z)
    if scheme == "rotation":
        return variance_rotation(
            components,
            blocks_x,
            blocks_z,
            n_rounds,
            aggregate=aggregate or "pooled",
            n_pairs=n_pairs,
            distinct=distinct,
        )
    aggregate = aggregate or "mean"
    if scheme == "as-is":
        return variance_as_is(
            components, blocks_x, blocks_z, n_pairs=n_pairs, distinct=distinct, aggregate=aggregate, empty=empty
        )
    if scheme == "prop-swor":
        return variance_prop_swor(
            components,
            blocks_x,
            blocks_z,
            n_rounds=n_rounds,
            n_pairs=n_pairs,
            distinct=distinct,
            aggregate=aggregate,
            move=move,
        )
    return variance_prop_swr(
        components,
        _need("n", n),
        _need("m", m),
        blocks_x,
        blocks_z,
        n_rounds=n_rounds,
        n_pairs=n_pairs,
        distinct=distinct,
        aggregate=aggregate,
        printed=printed,
    )


def _need(name: str, value: int | None) -> int:
    if value is None:
        raise ValueError(f"{name} is needed for this scheme")
    return value


def _blocks(name: str, total: int | None, n_workers: int | None, sizes: ArrayLike | None) -> Ints:
    """Return the given block sizes, or `total` points cut evenly."""
    if sizes is None:
        return even_sizes(_need(name, total), _need("n_workers", n_workers))
    blocks = check_sizes(sizes, 1)
    if n_workers is not None and n_workers != len(blocks):
        raise ValueError(f"{len(blocks)} block sizes are given for {n_workers} workers")
    return blocks


def _both_sizes(sizes_x: ArrayLike, sizes_z: ArrayLike) -> tuple[Ints, Ints]:
    n_i, m_i = check_sizes(sizes_x, 1), check_sizes(sizes_z, 1)
    if n_i.shape != m_i.shape:
        raise ValueError(f"both samples need one block per worker, not {len(n_i)} and {len(m_i)} blocks")
    if min(n_i.min(), m_i.min()) == 0:
        raise ValueError("a worker has no pair: use fewer workers")
    return n_i, m_i
