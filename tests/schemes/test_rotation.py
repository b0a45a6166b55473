"""Where blocks are in each round of a rotation: who meets whom how often, by enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.paper.models import OneSampleComponents
from mpi_ustat.schemes import meetings as designs
from mpi_ustat.schemes import one_sample
from mpi_ustat.schemes.meetings import holdings, meeting, n_rounds_complete, one_sample_round, staying
from mpi_ustat.schemes.partition import block_bounds
from mpi_ustat.schemes.rotation import Rotation

Array = NDArray[Any]


def blocks_of(n_samples: int, n_workers: int, t: int) -> Array:
    """Return the block of each sample (rows) that each worker has in round t; sample 0 stays."""
    found = holdings([2] + [1] * (n_samples - 1), n_workers, t)
    moving = [blocks for blocks in found[1:] if blocks is not None]
    assert found[0] is None and len(moving) == n_samples - 1
    return np.array([np.arange(n_workers), *moving])


def meetings(n_samples: int, n_workers: int, n_rounds: int, k: int, j: int) -> Array:
    """Return how often block b of sample k and block c of sample j are on one worker, shape (N, N)."""
    counts = np.zeros((n_workers, n_workers), dtype=np.int64)
    for t in range(n_rounds):
        blocks = blocks_of(n_samples, n_workers, t)
        np.add.at(counts, (blocks[k], blocks[j]), 1)
    return counts


# --- samples of which the kernel takes one point each


@pytest.mark.parametrize("n_samples", [2, 3, 4, 5])
@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 6, 8, 9, 15])
def test_every_round_deals_every_block_to_one_worker_and_round_0_leaves_all_at_home(
    n_samples: int, n_workers: int
) -> None:
    home = list(range(n_workers))
    assert blocks_of(n_samples, n_workers, 0).tolist() == [home] * n_samples
    for t in range(min(n_workers ** (n_samples - 1), 200)):
        for blocks in blocks_of(n_samples, n_workers, t):
            assert blocks.dtype == np.int64 and sorted(blocks.tolist()) == home


def test_of_two_samples_a_block_moves_on_to_the_next_worker() -> None:
    for t in range(5):
        _, visiting = blocks_of(2, 5, t)
        assert visiting.tolist() == [(i - t) % 5 for i in range(5)]


@pytest.mark.parametrize(
    ("sizes", "stays"), [((9, 4), 0), ((4, 9), 1), ((5, 5), 0), ((3, 7, 7), 1), ((2, 2, 2), 0), ((1, 2, 3), 2)]
)
def test_the_largest_sample_stays_and_of_equal_ones_the_first(sizes: tuple[int, ...], stays: int) -> None:
    found = holdings(sizes, 3, 1)
    assert staying(sizes) == stays
    assert [k for k, each in enumerate(found) if each is None] == [stays]
    assert len(found) == len(sizes)


@pytest.mark.parametrize("n_workers", [*range(1, 13), 17])
def test_two_samples_meet_evenly_after_every_number_of_rounds(n_workers: int) -> None:
    for n_rounds in range(1, n_workers + 1):
        counts = meetings(2, n_workers, n_rounds, 0, 1)
        assert counts.max() == 1 and set(counts.sum(axis=0)) == set(counts.sum(axis=1)) == {n_rounds}


EVEN = [(3, n) for n in (1, 3, 5, 7, 9, 15)] + [(4, n) for n in (4, 5, 7, 8, 9, 11, 20, 35)] + [(5, 5), (5, 9), (6, 63)]
"""(K, N) for which N rounds let every two blocks of two samples meet once."""


@pytest.mark.parametrize(("n_samples", "n_workers"), EVEN)
def test_any_two_blocks_of_two_samples_meet_once_in_n_rounds(n_samples: int, n_workers: int) -> None:
    for k, j in itertools.combinations(range(n_samples), 2):
        assert meetings(n_samples, n_workers, n_workers, k, j).tolist() == np.ones((n_workers, n_workers)).tolist()


@pytest.mark.parametrize("n_workers", [2, 4, 6, 8, 10, 30])
def test_three_samples_on_an_even_number_of_workers_meet_twice_only_in_the_last_round(n_workers: int) -> None:
    for k, j in itertools.combinations(range(3), 2):
        assert meetings(3, n_workers, n_workers - 1, k, j).max() == 1
        counts = meetings(3, n_workers, n_workers, k, j)
        # Two moving samples: one difference comes twice and one never, the least that a cyclic group allows.
        assert (counts**2).sum() == n_workers * (n_workers + (2 if k else 0))


def test_no_three_permutations_of_an_even_cyclic_group_do_better() -> None:
    for n_workers in (2, 4, 6):
        least = min(
            sum(c**2 for c in Counter((a - t) % n_workers for t, a in enumerate(second)).values())
            for second in itertools.permutations(range(n_workers))
        )
        assert least == n_workers + 2


HILLY = [(4, 2), (4, 3), (4, 6), (4, 10), (4, 14), (4, 30), (5, 6), (5, 12), (6, 12)]


@pytest.mark.parametrize(("n_samples", "n_workers"), HILLY)
def test_elsewhere_samples_meet_nearly_evenly(n_samples: int, n_workers: int) -> None:
    total = 0
    for k, j in itertools.combinations(range(n_samples), 2):
        counts = meetings(n_samples, n_workers, n_workers, k, j)
        assert set(counts.sum(axis=0)) == set(counts.sum(axis=1)) == {n_workers}
        if k == 0:
            assert counts.max() == 1
        else:
            total += int((counts**2).sum())
    n_pairs = (n_samples - 1) * (n_samples - 2) // 2
    # Permutations at random have 2 - 1/N, on average; no design has less than 1.
    assert total / (n_workers**2 * n_pairs) < (1.4 if n_workers > n_samples else 2.01)


@pytest.mark.parametrize("n_workers", [30, 42])
def test_few_rounds_of_a_hill_climb_meet_no_combination_twice(n_workers: int) -> None:
    for k, j in itertools.combinations(range(4), 2):
        assert meetings(4, n_workers, n_workers // 2, k, j).max() == 1


def test_a_climb_ends_higher_than_no_swap_leads_from() -> None:
    n = 10
    moves = designs._climb(4, n)

    def height(moves: Array) -> int:
        return sum(
            int((np.bincount((moves[k] - moves[j]) % n, minlength=n) ** 2).sum())
            for k, j in itertools.combinations(range(len(moves)), 2)
        )

    for k in range(3):
        for a, b in itertools.combinations(range(n), 2):
            other = moves.copy()
            other[k, [a, b]] = other[k, [b, a]]
            assert height(other) >= height(moves)


COMPLETE = [(1, 4), (2, 1), (2, 2), (2, 5), (2, 6), (3, 2), (3, 3), (3, 4), (3, 6), (4, 2), (4, 3), (4, 4), (4, 5)]


@pytest.mark.parametrize(("n_samples", "n_workers"), [*COMPLETE, (4, 6), (5, 3)])
def test_every_combination_of_blocks_meets_exactly_once(n_samples: int, n_workers: int) -> None:
    n_rounds = n_rounds_complete((1,) * n_samples, n_workers)
    assert n_rounds == n_workers ** (n_samples - 1)
    met = {
        combination for t in range(n_rounds) for combination in zip(*blocks_of(n_samples, n_workers, t), strict=True)
    }
    assert len(met) == n_workers**n_samples  # as many as there are (worker, round): none came twice


def test_a_round_of_a_huge_rotation_is_found_at_once() -> None:
    t = 1000**4 - 1
    assert n_rounds_complete((1,) * 5, 1000) == 1000**4
    assert all(sorted(row) == list(range(1000)) for row in blocks_of(5, 1000, t).tolist())


@pytest.mark.parametrize(("p", "e"), [(2, 1), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (5, 2), (7, 1)])
def test_multiples_are_those_of_a_field(p: int, e: int) -> None:
    q = p**e
    table = np.vstack([np.zeros(q, dtype=np.int64), designs._multiples(q, [(p, e)])])
    assert np.array_equal(table, table.T)  # commutative
    assert table[1].tolist() == list(range(q))
    radices = (p,) * e
    for a, b in itertools.product(range(q), repeat=2):
        difference = designs._difference(np.array(a), np.array(b), radices)
        assert np.array_equal(table[difference], designs._difference(table[a], table[b], radices))  # distributive
    assert (np.sort(table[1:], axis=1) == np.arange(q)).all()  # no zero divisors


def excess(n_workers: int, n_rounds: int, block: int, means: tuple[Fraction, ...]) -> Fraction:
    """Return how much the variance of the product of K points exceeds that of all tuples; unit variances.

    σ_S² = Π_{k∉S} μ_k², and T rounds have Σ_S σ_S²/Π_S n_k · N^{|S|-1} Φ_S, where Φ_S counts, for two (worker, round)
    drawn at random, how often they have the same blocks of all samples of S: N times that share.
    """
    n_samples, total = len(means), Fraction()
    rounds = np.concatenate([blocks_of(n_samples, n_workers, t) for t in range(n_rounds)], axis=1)
    for size in range(1, n_samples + 1):
        for subset in itertools.combinations(range(n_samples), size):
            counts = np.unique(rounds[list(subset)], axis=1, return_counts=True)[1].tolist()
            phi = Fraction(sum(count**2 for count in counts), n_workers * n_rounds**2)
            sigma = math.prod((means[k] ** 2 for k in range(n_samples) if k not in subset), start=Fraction(1))
            total += sigma / (n_workers * block) ** size * (n_workers ** (size - 1) * phi - 1)
    return total


def test_the_excess_variance_of_three_samples() -> None:
    means = Fraction(1), Fraction(1, 2), Fraction(7, 10)
    assert excess(5, 5, 2, means) == Fraction(40, 10_000)  # the third-order term alone: (N - 1)/Π n_k
    assert excess(5, 25, 2, means) == 0


@pytest.mark.parametrize(("n_workers", "n_samples"), [(2, 2), (5, 2), (4, 3), (3, 4)])
def test_no_variance_is_left_over_when_all_rounds_are_done(n_workers: int, n_samples: int) -> None:
    means = tuple(Fraction(k + 1, 3) for k in range(n_samples))
    n_rounds = n_rounds_complete((1,) * n_samples, n_workers)
    assert excess(n_workers, n_rounds, 3, means) == 0 < excess(n_workers, n_rounds - 1, 3, means)


def assert_variance(values: Array, variance: float) -> None:
    """Check a variance against that of independent draws, within 5 standard errors: refuses wrongly once in 10⁶."""
    centred = values - values.mean()
    found = float((centred**2).mean())
    error = math.sqrt(float((centred**4).mean() - found**2) / len(values))
    assert abs(found - variance) < 5 * error


@pytest.mark.parametrize(("n_workers", "n_rounds"), [(4, 3), (5, 5), (6, 6)])
def test_simulated_variances_of_three_samples_are_those_of_the_formula(n_workers: int, n_rounds: int) -> None:
    runs, block, means = 40_000, 2, (1.0, 0.5, 0.7)
    rng = np.random.default_rng(1948)
    blocks = [mean + rng.standard_normal((runs, n_workers, block)).mean(axis=2) for mean in means]
    values = np.zeros(runs)
    for t in range(n_rounds):
        held = blocks_of(3, n_workers, t)
        values += np.prod([each[:, at] for each, at in zip(blocks, held, strict=True)], axis=0).mean(axis=1)
    complete = math.prod(mean**2 + 1 / (n_workers * block) for mean in means) - math.prod(mean**2 for mean in means)
    expected = complete + float(excess(n_workers, n_rounds, block, tuple(map(Fraction, ("1", "1/2", "7/10")))))
    assert_variance(values / n_rounds, expected)


# --- one sample of which the kernel takes two points


def pairs_of(bounds: Array, t: int) -> Counter[tuple[int, int]]:
    """Return how often each pair of points is evaluated in round t, on blocks of points with these bounds."""
    n_workers = len(bounds) - 1
    blocks = [np.arange(bounds[i], bounds[i + 1]) for i in range(n_workers)]
    visiting = one_sample_round(n_workers, t).tolist()
    found: Counter[tuple[int, int]] = Counter()
    for i in range(n_workers):
        if t == 0:
            assert visiting[i] == i
            found.update(itertools.combinations(blocks[i].tolist(), 2))
        else:
            a, b = meeting(n_workers, t, i, blocks[i], blocks[visiting[i]])
            found.update((min(pair), max(pair)) for pair in itertools.product(a.tolist(), b.tolist()))
    return found


@pytest.mark.parametrize("n_workers", range(1, 10))
@pytest.mark.parametrize("sizes", ["equal", "differ by one", "any", "some empty"])
def test_every_pair_of_points_of_one_sample_meets_exactly_once(n_workers: int, sizes: str) -> None:
    bounds = {
        "equal": np.arange(n_workers + 1) * 3,
        "differ by one": block_bounds(2 * n_workers + n_workers // 2, n_workers),
        "any": np.append(0, np.cumsum(np.arange(n_workers) ** 2 % 5 + 1)),
        "some empty": np.append(0, np.cumsum(np.arange(n_workers) % 3)),
    }[sizes]
    n_rounds = n_rounds_complete((2,), n_workers)
    assert n_rounds == n_workers // 2 + 1
    met: Counter[tuple[int, int]] = Counter()
    for t in range(n_rounds):
        met += pairs_of(bounds, t)
    assert met == Counter(itertools.combinations(range(int(bounds[-1])), 2))


@pytest.mark.parametrize("n_workers", range(1, 10))
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_after_every_round_every_point_is_in_equally_many_pairs(n_workers: int, size: int) -> None:
    bounds = np.arange(n_workers + 1) * size
    for t in range(n_rounds_complete((2,), n_workers)):
        shares: Counter[int] = Counter()
        for pair, times in pairs_of(bounds, t).items():
            shares.update(dict.fromkeys(pair, times))
        assert len({shares[point] for point in range(n_workers * size)}) == 1


@pytest.mark.parametrize(("n_workers", "n_rounds"), [(4, 1), (4, 2), (4, 3), (5, 2), (6, 4)])
def test_simulated_variances_of_one_sample_are_those_of_the_theory(n_workers: int, n_rounds: int) -> None:
    runs, mean = 40_000, 0.5
    bounds = block_bounds(3 * n_workers - 1, n_workers)
    points = mean + np.random.default_rng(1948).standard_normal((runs, bounds[-1]))
    blocks = [np.arange(bounds[i], bounds[i + 1]) for i in range(n_workers)]
    total, n_pairs = np.zeros(runs), 0
    for t in range(n_rounds):
        for i, visiting in enumerate(one_sample_round(n_workers, t).tolist()):
            if t == 0:
                inside = points[:, blocks[i]]
                total += (inside.sum(axis=1) ** 2 - (inside**2).sum(axis=1)) / 2
                n_pairs += math.comb(len(blocks[i]), 2)
            else:
                a, b = meeting(n_workers, t, i, blocks[i], blocks[visiting])
                total += points[:, a].sum(axis=1) * points[:, b].sum(axis=1)
                n_pairs += len(a) * len(b)
    components = OneSampleComponents(zeta1=mean**2, delta=1.0)  # of x·y
    assert_variance(total / n_pairs, one_sample.rotation(np.diff(bounds), n_rounds) @ components)


def test_the_halves_of_the_last_round_are_those_of_the_theory() -> None:
    # Worker i < N/2 pairs the first ⌈n_i/2⌉ rows of block i with block j = i + N/2, worker j the others.
    home, visitor = np.arange(5), np.arange(10, 17)
    a, b = meeting(4, 2, 1, home, visitor)
    assert (a.tolist(), b.tolist()) == ([0, 1, 2], visitor.tolist())
    a, b = meeting(4, 2, 3, visitor, home)
    assert (a.tolist(), b.tolist()) == (visitor.tolist(), [3, 4])


@pytest.mark.parametrize("degrees", [(3,), (2, 1), (2, 2), (1, 1, 2)])
def test_other_kernels_are_refused(degrees: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="rotation is for kernels of one point of each sample or two of one sample"):
        Rotation().n_rounds_complete(degrees, 4)
