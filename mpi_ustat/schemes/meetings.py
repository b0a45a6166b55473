"""Which block of each sample is where in each round, when whole blocks travel: pure functions of a few whole numbers.

Every sample is cut into N blocks once. Each pair of blocks of two samples meets equally often, as long as that can be,
and so each pair of points: the designs are Latin squares (Blom, Biometrika 63, 1976). The scheme `rotation` has rounds
of them, and the complete statistic goes through all of them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints, Rows

_SWAPS = 64  # tries per round and sample: more gain little


def n_rounds_complete(degrees: Sequence[int], n_workers: int) -> int:
    """Return after how many rounds every tuple of points has met exactly once.

    For K samples of which the kernel takes one point each, N^(K-1); for one sample of which it takes two, ⌊N/2⌋ + 1.
    """
    return n_workers // 2 + 1 if tuple(degrees) == (2,) else int(n_workers) ** (len(degrees) - 1)


def staying(sizes: Sequence[int]) -> int:
    """Return which sample's blocks never move: the largest, the first of equal ones."""
    return int(np.argmax(sizes))


def holdings(sizes: Sequence[int], n_workers: int, t: int) -> tuple[Ints | None, ...]:
    """Return which block of round 0 each worker has in round `t`, of samples that a kernel takes one point of each.

    Let samples 1 … K-1 be those that move. In round t worker i has block i - a_k(t) of sample k, and block i of the
    sample that stays (a_0 = 0), in a group of N elements. Then T rounds meet each combination of a block of sample k
    and one of sample l as often as a_k(t) - a_l(t) takes the value that it stands for, on all N workers: evenly, when
    these differences are distinct.

    - K = 2: a_1(t) = t modulo N. Worker i's block moves to worker i + 1.
    - K = 3: (t, 2t) for odd N; (t, 2t + [t >= N/2]) for even N. The second is a permutation of 0 … N-1, and for even
      N its difference to the first, t + [t >= N/2], is distinct for t < N - 1; no two permutations of a cyclic group
      of even order differ by a third, since all elements of the group add up to N/2, and not to 0.
    - K >= 4: a_k(t) = k·t in the product of the fields GF(q) of the prime powers q that N is made of, if all are at
      least K: then k - l is a unit, and the differences (k - l)·t are distinct.
    - K >= 4 and other N: a_1 … a_{K-1} are permutations of 0 … N-1 that a hill climb has found, from a fixed start
      by random swaps, to minimise Σ_{k<l} Σ_d #{t : a_k(t) - a_l(t) = d}²; their N rounds are in an order in which
      the first T, for every T, meet few combinations twice.

    Round t = rN + s, with r = r_2 + r_3 N + …, adds the offsets r_k to a_2 … a_{K-1} of round s. As a_1 is a
    permutation, each (a_1, …, a_{K-1}) comes once in N^(K-1) rounds: each combination of K blocks meets exactly once.

    Parameters
    ----------
    sizes : sequence of int
        Of the K samples: the one that stays is `staying(sizes)`.
    n_workers : int
        N.
    t : int
        0 <= t < N^(K-1).

    Returns
    -------
    tuple of ndarray of int64, shape (N,), or None
        For each sample, the block that each worker has; None for the sample that stays.
    """
    stays = staying(sizes)
    radices, moves = _design(len(sizes), n_workers)
    offset, place = divmod(t, n_workers)
    found: list[Ints | None] = []
    for move in moves[:, place].tolist():
        blocks = _difference(np.arange(n_workers), np.int64(move), radices)
        if found:
            offset, extra = divmod(offset, n_workers)
            blocks = _difference(blocks, np.int64(extra), radices)
        found.append(blocks)
    found.insert(stays, None)
    return tuple(found)


def one_sample_round(n_workers: int, t: int) -> Ints:
    """Return which block visits each worker in round `t`, of a sample that a kernel takes two points of.

    Worker i has block i at home and is visited by block i + t modulo N. Round 0 is for the pairs inside the blocks.
    Blocks {i, j}, i ≠ j, meet when t is the shorter way round the ring from one to the other: on one worker if it is
    shorter than N/2, on both if it is N/2, and then each does half of their pairs (`meeting`). So rounds 0 … ⌊N/2⌋
    meet every pair of points exactly once.

    Parameters
    ----------
    n_workers : int
        N.
    t : int
        0 <= t <= ⌊N/2⌋.
    """
    return (np.arange(n_workers) + t) % n_workers


def meeting(n_workers: int, t: int, worker: int, home: Rows, visitor: Rows) -> tuple[Rows, Rows]:
    """Return the rows at home and the visiting rows all of whose pairs are `worker`'s in round `t` > 0 of one sample.

    All of them, but when the way round the ring is N/2: then blocks i < N/2 and j = i + N/2 meet on both workers, and
    worker i pairs the first ⌈n_i/2⌉ rows of block i with block j, worker j the others.
    """
    if 2 * t < n_workers:
        return home, visitor
    if worker < t:
        return home[: -(-len(home) // 2)], visitor
    return home, visitor[-(-len(visitor) // 2) :]


@functools.lru_cache(maxsize=16)
def _design(n_samples: int, n_workers: int) -> tuple[tuple[int, ...], Ints]:
    """Return the radices of the group's labels, and a_k(t), shape (K - 1, N), as labels."""
    t = np.arange(n_workers)
    cyclic = (n_workers,)
    if n_samples <= 3:
        later = 2 * t >= n_workers if n_workers % 2 == 0 else np.zeros_like(t)
        return cyclic, np.stack([t, (2 * t + later) % n_workers])[: n_samples - 1]
    powers = _prime_powers(n_workers)
    if all(p**e >= n_samples for p, e in powers):
        return tuple(p for p, e in powers for _ in range(e)), _multiples(n_samples, powers)
    return cyclic, _in_even_order(_climb(n_samples, n_workers))


def _difference(a: Ints, b: Ints | np.int64, radices: Sequence[int]) -> Ints:
    """Return a - b in the product of cyclic groups whose elements are labelled by numbers of mixed radix."""
    result, weight = np.zeros_like(a), 1
    for radix in radices:
        result += (a // weight - b // weight) % radix * weight
        weight *= radix
    return result


def _prime_powers(number: int) -> list[tuple[int, int]]:
    """Return the primes and exponents that a number is the product of."""
    powers = []
    for p in range(2, number + 1):
        e = 0
        while number % p == 0:
            number, e = number // p, e + 1
        if e:
            powers.append((p, e))
    return powers


def _multiples(n_samples: int, powers: Sequence[tuple[int, int]]) -> Ints:
    """Return k·t for k = 1 … K-1, in each field of a product of fields."""
    n_workers = math.prod(p**e for p, e in powers)
    t, result, weight = np.arange(n_workers), np.zeros((n_samples - 1, n_workers), dtype=np.int64), 1
    for p, e in powers:
        places = p ** np.arange(e)
        digits = t[:, None] // (weight * places) % p
        polynomial = _primitive_polynomial(p, e)
        for k in range(1, n_samples):
            product = np.zeros_like(digits)
            for factor in (k // places % p)[::-1]:  # Horner's rule
                product = (_times_x(product, polynomial) + factor * digits) % p
            result[k - 1] += weight * (product @ places)
        weight *= p**e
    return result


def _primitive_polynomial(p: int, e: int) -> Ints:
    """Return c_0 … c_{e-1} such that the powers of x modulo x^e + Σ c_j x^j are all p^e - 1 non-zero polynomials.

    Every non-zero element then has an inverse: the polynomials modulo this one are the field GF(p^e).
    """
    one = np.eye(1, e, dtype=np.int64)
    for label in range(1, p**e):
        polynomial = label // p ** np.arange(e) % p
        if polynomial[0] == 0:
            continue  # x divides it
        power = _times_x(one, polynomial) % p
        order = 1
        while not np.array_equal(power, one):
            power, order = _times_x(power, polynomial) % p, order + 1
        if order == p**e - 1:
            return polynomial
    raise AssertionError("every finite field has a primitive element")


def _times_x(elements: Ints, polynomial: Ints) -> Ints:
    """Return x times polynomials, shape (number, e), modulo x^e + Σ c_j x^j; digits are not reduced."""
    shifted = np.roll(elements, 1, axis=1)
    shifted[:, 0] = 0
    return shifted - elements[:, -1:] * polynomial


def _climb(n_samples: int, n_workers: int) -> Ints:
    """Return K - 1 permutations with nearly distinct differences modulo N, found by swaps that don't make it worse."""
    streams, n_moving = Streams(0), n_samples - 1
    moves = [
        streams.open("rotation: start", worker=k, round=n_workers).permutation(n_workers).tolist()
        for k in range(n_moving)
    ]
    pairs = list(itertools.permutations(range(n_moving), 2))
    counts = {
        (k, j): np.bincount(np.subtract(moves[k], moves[j]) % n_workers, minlength=n_workers).tolist() for k, j in pairs
    }
    n_swaps = _SWAPS * n_workers * n_moving
    drawn = streams.open("rotation: swaps", worker=n_moving, round=n_workers).integers(n_workers, 2 * n_swaps).tolist()
    for swap in range(n_swaps):
        k, (a, b) = swap % n_moving, drawn[2 * swap : 2 * swap + 2]
        worse, done = 0, []
        for j, other in enumerate(moves):
            if j == k:
                continue
            # Σ count² grows by 2·count + 1 when a count does.
            for old, new in (
                (moves[k][a] - other[a], moves[k][b] - other[a]),
                (moves[k][b] - other[b], moves[k][a] - other[b]),
            ):
                count = counts[k, j]
                worse += 1 - 2 * count[old % n_workers]
                count[old % n_workers] -= 1
                worse += 1 + 2 * count[new % n_workers]
                count[new % n_workers] += 1
                done.append((j, old, new))
        if worse <= 0:
            moves[k][a], moves[k][b] = moves[k][b], moves[k][a]
            for j, old, new in done:
                counts[j, k][-old % n_workers] -= 1
                counts[j, k][-new % n_workers] += 1
        else:
            for j, old, new in done:
                counts[k, j][old % n_workers] += 1
                counts[k, j][new % n_workers] -= 1
    return np.array(moves, dtype=np.int64)


def _in_even_order(moves: Ints) -> Ints:
    """Return the rounds, columns of `moves`, in an order whose every next round repeats as few differences as can be.

    Round 0 is where all blocks are at home: the moves are shifted so.
    """
    n_moving, n_rounds = moves.shape
    moves = (moves - moves[:, :1]) % n_rounds
    pairs = list(itertools.combinations(range(n_moving), 2))
    differences = np.array([(moves[k] - moves[j]) % n_rounds for k, j in pairs])
    met = np.zeros((len(pairs), n_rounds), dtype=np.int64)
    order, left = [], np.ones(n_rounds, dtype=bool)
    rows = np.arange(len(pairs))[:, None]
    for _ in range(n_rounds):
        repeats = met[rows, differences].sum(axis=0)
        chosen = int(np.argmin(np.where(left, repeats, np.iinfo(np.int64).max)))
        met[rows[:, 0], differences[:, chosen]] += 1
        left[chosen] = False
        order.append(chosen)
    return moves[:, order]
