"""The volume under the ROC surface: exact totals, exact sums of squares, unbiased components."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpi_ustat import SerialComm
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.inference.components import subsets
from mpi_ustat.kernels import chain_pairs, chains, middle_class, vus
from mpi_ustat.kernels.auc import AUC
from mpi_ustat.kernels.chain_pairs import ChainPairs
from mpi_ustat.kernels.chains import chained, class_counts, transfer_matrix
from mpi_ustat.kernels.middle_class import look_around, margin_sums, scaled_total, side_sums
from mpi_ustat.kernels.vus import VUS
from mpi_ustat.numerics.runs import Runs

Floats = NDArray[np.float64]

TIES = pytest.mark.parametrize("ties", ["strict", "shared"])


def credit(scores: tuple[float, ...], ties: str) -> Fraction:
    """h of one tuple, by its definition."""
    pairs = list(itertools.pairwise(scores))
    if ties == "strict":
        return Fraction(int(all(a < b for a, b in pairs)))
    if any(a > b for a, b in pairs):
        return Fraction(0)
    return Fraction(1, math.prod(math.factorial(len(list(group))) for _, group in itertools.groupby(scores)))


def tensor(blocks: list[Floats], ties: str) -> NDArray[Any]:
    """All values of h, as Fractions."""
    values = [credit(scores, ties) for scores in itertools.product(*(block.tolist() for block in blocks))]
    return np.array(values, dtype=object).reshape([len(block) for block in blocks])


def recurrence(blocks: list[Floats], ties: str) -> Fraction:
    """The VUS value by value, in Fractions: chains that end at or below each value, grown by groups of tied classes."""
    chains = [Fraction(1)] + [Fraction(0)] * len(blocks)
    for value in np.unique(np.concatenate(blocks)):
        counts = [int(np.count_nonzero(block == value)) for block in blocks]
        for k in range(len(blocks), 0, -1):
            for size in range(1, (k if ties == "shared" else 1) + 1):
                chains[k] += chains[k - size] * math.prod(counts[k - size : k]) / math.factorial(size)
    return chains[-1] / math.prod(len(block) for block in blocks)


def tied_blocks(rng: np.random.Generator, sizes: list[int], n_values: int) -> list[Floats]:
    """Random blocks of few distinct values, both infinities among them."""
    values = np.concatenate([[-np.inf], np.arange(n_values - 2.0), [np.inf]])
    return [rng.choice(values, size) for size in sizes]


def free_blocks(rng: np.random.Generator, sizes: list[int]) -> list[Floats]:
    return [rng.normal(0.5 * k, 1, size) for k, size in enumerate(sizes)]


def wine_classes(shared_data: Path, qualities: Iterable[int]) -> list[Floats]:
    """The alcohol of white wines of each of some qualities."""
    file = shared_data / "winequality_white.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in {shared_data}")
    data = np.load(file)
    return [data["X"][data["y"] == each, 10] for each in qualities]


# --- totals


def test_the_example_of_seven_points() -> None:
    blocks = [np.array([1.0, 2, 2]), np.array([2.0, 3]), np.array([2.0, 3, 4])]
    assert Fraction(VUS().block_total(*blocks), 18) == Fraction(5, 18)
    shared = VUS(3, "shared")
    assert Fraction(shared.block_total(*blocks), 18 * shared.scale) == Fraction(14, 27)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 7, 20])
def test_a_constant_score_earns_a_share_of_one_over_k_factorial(n_classes: int) -> None:
    blocks = [np.full(k % 3 + 1, 0.25) for k in range(n_classes)]
    n_tuples = math.prod(map(len, blocks))
    shared = VUS(n_classes, "shared")
    assert shared.scale == math.factorial(n_classes)
    assert shared.block_total(*blocks) == n_tuples
    assert VUS(n_classes).block_total(*blocks) == 0


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_totals_are_those_of_all_tuples(n_classes: int, ties: str) -> None:
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    for n_values in (3, 4, 6):
        for _ in range(4):
            blocks = tied_blocks(rng, rng.integers(1, 6, n_classes).tolist(), n_values)
            expected = tensor(blocks, ties).sum() * kernel.scale
            total, local = kernel.block_total(*blocks), kernel.local(*blocks)
            assert type(total) is int and type(local.sums[0].total) is int
            assert total == expected
            assert local.sums == kernel.block_sums(*blocks) == ((expected, math.prod(map(len, blocks))),)
            assert recurrence(blocks, ties) * math.prod(map(len, blocks)) * kernel.scale == expected
    blocks = free_blocks(rng, [5, 4, 6, 3][:n_classes])
    assert kernel.block_total(*blocks) == tensor(blocks, ties).sum() * kernel.scale


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 4, 6])
def test_sums_over_aligned_tuples(n_classes: int, ties: str) -> None:
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    points = np.array(tied_blocks(rng, [200] * n_classes, 9))
    points[:, :150].sort(axis=0)  # three in four tuples are in weak order
    expected = sum(credit(scores, ties) for scores in zip(*(each.tolist() for each in points), strict=True))
    assert expected > 0
    (pairs,) = kernel.tuple_sums(*points)
    assert pairs == (expected * kernel.scale, 200)
    assert type(pairs.total) is int


@TIES
def test_two_classes_are_the_auc_whose_positives_come_last(ties: str) -> None:
    rng = np.random.default_rng(2)
    auc = AUC("half" if ties == "shared" else "strict")
    vus = VUS(2, ties)
    for blocks in (free_blocks(rng, [40, 50]), tied_blocks(rng, [40, 50], 8)):
        assert Fraction(vus.block_total(*blocks), vus.scale) == Fraction(auc.block_total(*blocks[::-1]), auc.scale)


@TIES
def test_a_block_without_points_has_no_tuple(ties: str) -> None:
    for n_classes, empty in itertools.product((2, 3, 4), range(4)):
        blocks = [np.arange(0.0 if k == empty else 3.0) for k in range(n_classes)]
        if empty < n_classes:
            local = VUS(n_classes, ties).local(*blocks)
            assert local.sums == VUS(n_classes, ties).block_sums(*blocks) == ((0, 0),)
            assert local.components is None


@pytest.mark.parametrize("options", [{"n_classes": 1}, {"n_classes": 21}, {"ties": "half"}], ids=str)
def test_a_kernel_that_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="ties must be|needs 2 to 20 classes"):
        VUS(**options)


# --- large totals


def test_totals_beyond_64_bits_are_exact() -> None:
    # Three classes 0, 1, …, n-1: C(n,3) triples in order, n(n-1)/2 with the lower or the higher pair tied, n all tied.
    n = 2_200_000
    scores = np.arange(float(n))
    rng = np.random.default_rng(1)
    expected = 6 * math.comb(n, 3) + 3 * 2 * math.comb(n, 2) + n
    assert expected > 2**63
    assert VUS(3, "shared").block_total(scores, rng.permutation(scores), scores) == expected
    # Of four, C(n+3, 4) multisets, each of credit Π 1/g!: their number is n⁴/4! by symmetry.
    n = 30_000
    assert VUS(4, "shared").block_total(*[scores[:n]] * 4) == n**4
    assert VUS(4).block_total(*[scores[:n]] * 4) == math.comb(n, 4)


@TIES
def test_real_wine_tasters_qualities_by_alcohol(shared_data: Path, ties: str) -> None:
    for classes in ([5, 7], [5, 6, 7], [4, 5, 6, 7, 8], range(3, 10)):
        blocks = wine_classes(shared_data, classes)
        kernel = VUS(len(blocks), ties)
        found = kernel.block_total(*blocks)
        assert Fraction(found, kernel.scale * math.prod(map(len, blocks))) == recurrence(blocks, ties)


@TIES
@pytest.mark.parametrize("name", ["era", "esl", "lev", "swd"])
def test_real_ordinal_classes_by_the_sum_of_their_attributes(shared_data: Path, name: str, ties: str) -> None:
    file = shared_data / f"ordinal_{name}.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in {shared_data}")
    data = np.load(file)
    blocks = [data["X"][data["y"] == each].sum(axis=1) for each in np.unique(data["y"])]
    assert len(blocks) >= 4
    kernel = VUS(len(blocks), ties)
    found = kernel.block_total(*blocks)
    assert Fraction(found, kernel.scale * math.prod(map(len, blocks))) == recurrence(blocks, ties) > 0


# --- ranges of scores


def cut(blocks: list[Floats], splitters: Floats) -> list[list[Floats]]:
    """The blocks' points in each range of scores."""
    ranges = [np.searchsorted(splitters, block, side="right") for block in blocks]
    return [[block[at == i] for block, at in zip(blocks, ranges, strict=True)] for i in range(len(splitters) + 1)]


def tallies(blocks: list[Floats], joined: bool) -> list[Runs]:
    if not joined:
        return [Runs(np.sort(block)) for block in blocks]
    found = [np.unique(block, return_counts=True) for block in blocks]
    return [Runs(values, counts) for values, counts in found]


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_transfer_matrices_of_ranges_multiply(n_classes: int, ties: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    for most, piece in ((2**63, 1 << 13), (50, 1 << 13), (2**63, 3)):  # at once, halved for size, halved for length
        monkeypatch.setattr(chains, "_INT64", most)
        monkeypatch.setattr(chains, "_PIECE", piece)
        for n_values in (3, 5, 30):
            blocks = tied_blocks(rng, rng.integers(1, 9, n_classes).tolist(), n_values)
            expected = recurrence(blocks, ties) * math.prod(map(len, blocks)) * kernel.scale
            matrices = [
                transfer_matrix(class_counts(tallies(each, joined)), shared=kernel.shared)
                for each in cut(blocks, np.array([0.0, 2.0, 2.0, 7.0, np.inf]))
                for joined in (len(each[0]) > 3,)
            ]
            whole = matrices[0]
            for matrix in matrices[1:]:
                whole = chained(whole, matrix, shared=kernel.shared)
            assert whole[0][-1] == expected
            assert whole == transfer_matrix(class_counts(tallies(blocks, True)), shared=kernel.shared)
            for a in range(n_classes - 1):  # the other entries are those of fewer classes
                some = blocks[a : a + 2]
                expected = recurrence(some, ties) * math.prod(map(len, some)) * (2 if kernel.shared else 1)
                assert whole[a][a + 2] == expected


def dense_margin_sums(blocks: list[Floats], ties: str, scale: int) -> dict[tuple[int, ...], int]:
    """Sums of squares of all margins of the tensor of scaled values, and its sum."""
    values = tensor(blocks, ties) * scale
    every = range(len(blocks))
    found = {s: (values.sum(axis=tuple(k for k in every if k not in s)) ** 2).sum() for s in subsets(len(blocks))}
    return {(): values.sum(), **found}


LARGE = {"as they are": 1, "in pieces": 10**6, "Python integers": 10**10}
"""By how much `margin_sums` is told that the samples are larger than they are: its arithmetic depends on it."""


@TIES
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("larger", LARGE.values(), ids=LARGE)
def test_sums_of_squares_of_all_margins(
    n_classes: int, ties: str, larger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    for n_values in (3, 5, 12, 0):
        sizes = rng.integers(1, 9, n_classes).tolist()
        blocks = tied_blocks(rng, sizes, n_values) if n_values else free_blocks(rng, sizes)
        expected = dense_margin_sums(blocks, ties, kernel.scale)
        for joined, piece in itertools.product((False, True), (2, 1 << 14)):
            monkeypatch.setattr(middle_class, "_PIECE", piece)
            around = look_around(tallies(blocks, joined), kernel.credits)
            found = margin_sums(around, kernel.credits, [size * larger for size in sizes])
            assert found == expected
            assert all(type(value) is int for value in found.values())


@TIES
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("joined", [False, True])
def test_sums_of_squares_of_ranges_add_up(n_classes: int, ties: str, joined: bool) -> None:
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    for n_values in (3, 8, 0):
        sizes = rng.integers(3, 12, n_classes).tolist()
        blocks = tied_blocks(rng, sizes, n_values) if n_values else free_blocks(rng, sizes)
        expected = dense_margin_sums(blocks, ties, kernel.scale)
        ranges = [tallies(each, joined) for each in cut(blocks, np.array([-np.inf, 0.0, 1.0, 1.0, 4.0]))]
        arounds = []
        for i, each in enumerate(ranges):
            n_below = sum(other[0].n_points for other in ranges[:i])
            n_above = sum(other[2].n_points for other in ranges[i + 1 :]) if n_classes == 3 else 0
            arounds.append(look_around(each, kernel.credits).within(n_below, n_above))
        sides = [side_sums(around, kernel.credits, sizes) for around in arounds]
        shares = [
            margin_sums(
                around,
                kernel.credits,
                sizes,
                before=sum(left for left, _ in sides[:i]),
                after=sum(right for _, right in sides[i + 1 :]),
            )
            for i, around in enumerate(arounds)
        ]
        assert {s: sum(share[s] for share in shares) for s in expected} == expected


@TIES
def test_totals_of_points_repeated_very_often(ties: str) -> None:
    kernel, copies = VUS(3, ties), 10**10
    low, high = (Runs(np.array(scores), np.array([1, 1]) * copies) for scores in ([0.0, 5.0], [5.0, 9.0]))
    around = look_around([low, Runs(np.array([1.0, 5.0])), high], kernel.credits)
    # Three triples in order (0-1-5, 0-1-9, 0-5-9), two with one tie (0-5-5, 5-5-9), one all tied; each copies² times.
    expected = 3 if ties == "strict" else 3 * 6 + 2 * 3 + 1
    assert scaled_total(around, kernel.credits, [2 * copies, 2, 2 * copies]) == expected * copies**2


@pytest.mark.parametrize("shared", [False, True])
def test_transfer_matrices_of_points_repeated_very_often(shared: bool) -> None:
    for counts in (np.diag([2_200_000] * 3), np.diag([0] + [2_200_000] * 3), np.full((4, 3), 10**9)):
        values = [transfer_matrix(column[:, None], shared=shared) for column in counts.T]
        expected = chained(chained(*values[:2], shared=shared), values[2], shared=shared)
        for value in values[3:]:
            expected = chained(expected, value, shared=shared)
        assert transfer_matrix(counts, shared=shared) == expected
        assert expected[0 if len(counts) == 3 else 1][-1] > 2**63


@TIES
@pytest.mark.parametrize("copies", [1, 1000, 10**6, 10**10], ids=str)
def test_points_repeated_very_often(ties: str, copies: int) -> None:
    # With each point c times, a sum of h or h² over tuples of S grows by c^|S|, a margin by c for each class outside.
    rng = np.random.default_rng(4)
    kernel = VUS(3, ties)
    blocks = tied_blocks(rng, [7, 8, 9], 6)
    expected = dense_margin_sums(blocks, ties, kernel.scale)
    classes = [Runs(each.values, each.counts * copies) for each in tallies(blocks, True)]
    found = margin_sums(look_around(classes, kernel.credits), kernel.credits, [size * copies for size in (7, 8, 9)])
    assert found.pop(()) == expected.pop(()) * copies**3
    assert found == {s: value * copies ** (len(s) + 2 * (3 - len(s))) for s, value in expected.items()}


@settings(max_examples=60)
@given(
    blocks=st.lists(
        st.lists(st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 0.5, math.inf]), min_size=1, max_size=6),
        min_size=2,
        max_size=3,
    ),
    ties=st.sampled_from(["strict", "shared"]),
)
def test_sums_of_squares_of_any_blocks(blocks: list[list[float]], ties: str) -> None:
    arrays = [np.array(block) for block in blocks]
    kernel = VUS(len(blocks), ties)
    around = look_around([Runs(np.sort(block)) for block in arrays], kernel.credits)
    expected = dense_margin_sums(arrays, ties, kernel.scale)
    assert margin_sums(around, kernel.credits, list(map(len, blocks))) == expected


def test_sums_of_squares_beyond_64_bits_are_exact() -> None:
    # With three classes 0, 1, …, n-1 the margins are polynomials of the points.
    n = 40_000
    scores = np.arange(float(n))
    kernel = VUS(3, "shared")
    found = margin_sums(look_around([Runs(scores)] * 3, kernel.credits), kernel.credits, [n] * 3)
    j = np.arange(n).astype(object)
    up, down = n - 1 - j, j
    middle = 6 * down * up + 3 * (down + up) + 1
    lower = 6 * (up * (up - 1) // 2) + 3 * up + 3 * up + 1  # y and z above x; y at x; y and z at the same above; all
    assert found[()] == middle.sum() == lower.sum() == 6 * math.comb(n, 3) + 6 * math.comb(n, 2) + n
    assert found[1,] == (middle**2).sum() > 2**63
    assert found[0,] == found[2,] == (lower**2).sum() > 2**63
    assert found[0, 1] == found[1, 2] == (down * (6 * up + 3) ** 2 + (3 * up + 1) ** 2).sum()
    gaps = np.arange(1, n).astype(object)  # z - x, of which there are n - gap
    assert found[0, 2] == ((n - gaps) * (6 * (gaps - 1) + 6) ** 2).sum() + n
    assert found[0, 1, 2] == 36 * math.comb(n, 3) + 2 * 9 * math.comb(n, 2) + n


ARITHMETIC = {
    "as it is": {},
    "short pieces": {"_PIECE": 3},
    "limbs of few bits": {"_BITS": 26, "_NARROW": 2},
    "Python integers": {"_BITS": 0, "_SHORT": 4},
}
"""What `ChainPairs` is told of its arithmetic."""


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5])
@pytest.mark.parametrize("constants", ARITHMETIC.values(), ids=ARITHMETIC)
def test_pairs_of_chains_are_the_sums_of_squares_of_all_margins(
    n_classes: int, ties: str, constants: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in constants.items():
        monkeypatch.setattr(chain_pairs, name, value)
    rng = np.random.default_rng(n_classes)
    kernel = VUS(n_classes, ties)
    for n_values in (4, 0):
        sizes = rng.integers(1, 6, n_classes).tolist()
        blocks = tied_blocks(rng, sizes, n_values) if n_values else free_blocks(rng, sizes)
        expected = dense_margin_sums(blocks, ties, kernel.scale)
        expected[()] **= 2
        ranges = cut(blocks, np.array([-np.inf, 0.0, 1.0, 1.0, 4.0]))
        for n_parts in (1, 7):
            found: dict[tuple[int, ...], int] = {}
            for part in range(n_parts):
                pairs = ChainPairs(n_classes, shared=kernel.shared, part=part, n_parts=n_parts)
                for each in ranges:
                    pairs.walk(class_counts(tallies(each, True)).astype(np.uint8))
                share = pairs.sums_of_squares()
                assert not set(share) & set(found)
                found |= share
            assert found == expected
            assert all(type(value) is int for value in found.values())


def test_the_work_is_shared_out_evenly() -> None:
    sizes = [len(ChainPairs(7, shared=False, part=part, n_parts=4).sums_of_squares()) for part in range(4)]
    assert sum(sizes) == 128
    assert max(sizes) < 64


# --- components


def exact_components(values: NDArray[Any]) -> list[Fraction]:
    """F8 by its definition, in Fractions: interactions d_Q, mean squares, Möbius inversion."""
    every = tuple(range(values.ndim))
    sizes = values.shape

    def mean(s: tuple[int, ...]) -> NDArray[Any]:
        axes = tuple(k for k in every if k not in s)
        return values.sum(axis=axes, keepdims=True) / Fraction(math.prod(sizes[k] for k in axes))

    squares = {}
    for q in subsets(values.ndim):
        inner = [s for size in range(len(q) + 1) for s in itertools.combinations(q, size)]
        interaction = sum((-1) ** (len(q) - len(s)) * mean(s) for s in inner)
        outside = math.prod(sizes[k] for k in every if k not in q)
        squares[q] = outside * (interaction**2).sum() / math.prod(sizes[k] - 1 for k in q)
    return [
        sum((-1) ** (len(q) - len(s)) * squares[q] for q in squares if set(s) <= set(q))
        / math.prod(sizes[k] for k in every if k not in s)
        for s in subsets(values.ndim)
    ]


@TIES
@pytest.mark.parametrize(
    "sizes", [[2, 2], [6, 5], [2, 2, 2], [5, 6, 4], [2, 9, 3], [3, 2, 3, 4], [2, 3, 2, 2, 3]], ids=str
)
def test_components_are_those_of_the_tensor(sizes: list[int], ties: str) -> None:
    rng = np.random.default_rng(sizes)
    kernel = VUS(len(sizes), ties)
    for blocks in (tied_blocks(rng, sizes, 4), tied_blocks(rng, sizes, 9), free_blocks(rng, sizes)):
        components = kernel.local(*blocks).components
        assert components is not None and components.shape == (2 ** len(sizes) - 1, 1, 1)
        # A dozen sums and quotients of mean squares, which lie in [0, Π n]: far fewer than 100 roundings.
        np.testing.assert_allclose(
            components[:, 0, 0],
            np.array(exact_components(tensor(blocks, ties)), dtype=float),
            rtol=0,
            atol=100 * 2.0**-53 * math.prod(sizes),
        )


def test_more_than_twelve_classes_have_no_components() -> None:
    blocks = [np.array([k, k + 1.0]) for k in range(13)]
    assert VUS(13).local(*blocks) == (VUS(13).block_sums(*blocks), None)
    local = VUS(12).local(*blocks[:12])
    assert local.sums == VUS(12).block_sums(*blocks[:12])
    assert local.components is not None and len(local.components) == 4095


def test_many_blocks_of_many_classes_leave_components_to_a_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a block of 12 classes take a second, and its sum a millisecond."""
    assert VUS(3).worth_components(10**9)
    assert VUS(12).worth_components(4) and not VUS(12).worth_components(5)
    rng = np.random.default_rng(0)
    samples = [rng.normal(0.5 * k, 1.0, 40) for k in range(4)]
    monkeypatch.setattr(vus, "_MOST_BY_BLOCKS", 64)
    for n_rounds, method in ((2, "components"), (3, "pilot")):
        result = estimate_samples(SerialComm(), samples, "vus", n_workers=2, n_rounds=n_rounds, seed=0)
        assert result.error is not None and result.error.method == method
        assert (result.error.components is not None) and (result.stderr is not None)


def test_nothing_varies_where_all_tuples_are_in_order() -> None:
    # The sums, of 40320² · 5¹⁵ and more, cancel.
    local = VUS(8, "shared").local(*(np.arange(5.0) + 10 * k for k in range(8)))
    assert local.sums[0].total == 40320 * 5**8
    assert local.components is not None and not local.components.any()


def test_components_are_floats_where_the_number_of_tuples_passes_64_bits() -> None:
    rng = np.random.default_rng(4)
    local = VUS(5).local(*(rng.normal(0.7 * k, 1, 8000) for k in range(5)))
    assert local.sums[0].n_pairs > 2**64
    assert local.components is not None and local.components.dtype == np.float64
    assert 0 < local.components[:5, 0, 0].sum() < 0.25


def product_of_strangers(blocks: list[Floats], ties: str) -> Fraction:
    """The mean of h h' over all pairs of tuples without a common point, value by value."""
    n_classes, most = len(blocks), len(blocks) if ties == "shared" else 1
    pairs = {(0, 0): Fraction(1)}  # by the classes that the two have points of, at or below the value
    for value in np.unique(np.concatenate(blocks)):
        counts = [int(np.count_nonzero(block == value)) for block in blocks]
        grown: dict[tuple[int, int], Fraction] = {}
        for (a, b), number in pairs.items():
            for i, j in itertools.product(*(range(each, min(each + most, n_classes) + 1) for each in (a, b))):
                ways = math.prod(counts[a:i]) * math.prod(counts[k] - (a <= k < i) for k in range(b, j))
                if ways:
                    share = Fraction(ways, math.factorial(i - a) * math.factorial(j - b))
                    grown[i, j] = grown.get((i, j), Fraction(0)) + number * share
        pairs = grown
    return pairs[n_classes, n_classes] / math.prod(len(block) * (len(block) - 1) for block in blocks)


def check_variance(blocks: list[Floats], ties: str) -> None:
    """Compare Σ σ̂_S²/Π_S n_k with U² less an unbiased estimate of θ²: symmetric in the points, both are the same."""
    kernel, sizes = VUS(len(blocks), ties), [len(block) for block in blocks]
    local = kernel.local(*blocks)
    assert local.components is not None
    variance = (local.components[:, 0, 0] / [math.prod(sizes[k] for k in s) for s in subsets(len(blocks))]).sum()
    square = Fraction(local.sums[0].total, kernel.scale * math.prod(sizes)) ** 2
    assert variance > 0
    assert variance == pytest.approx(float(square - product_of_strangers(blocks, ties)), rel=1e-9)


@TIES
@pytest.mark.parametrize("n_classes", [3, 4, 5, 7])
def test_the_variance_is_the_square_less_the_product_of_strangers(n_classes: int, ties: str) -> None:
    rng = np.random.default_rng(n_classes)
    sizes = rng.integers(20, 40, n_classes).tolist()
    for blocks in (free_blocks(rng, sizes), [np.round(block) for block in free_blocks(rng, sizes)]):
        check_variance(blocks, ties)


@TIES
def test_the_variance_of_real_wine_tasters_qualities_by_alcohol(shared_data: Path, ties: str) -> None:
    blocks = wine_classes(shared_data, range(3, 10))
    check_variance(blocks, ties)


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_a_class_of_one_point_has_no_components(n_classes: int, ties: str) -> None:
    rng = np.random.default_rng(5)
    for lone in range(n_classes):
        blocks = free_blocks(rng, [1 if k == lone else 4 for k in range(n_classes)])
        local = VUS(n_classes, ties).local(*blocks)
        assert local.components is None
        assert local.sums == VUS(n_classes, ties).block_sums(*blocks)


LAWS = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.1, 0.1, 0.2, 0.6]])
"""Four classes with the scores 0, 1, 2, 3: probabilities."""


def true_components(laws: NDArray[np.float64], ties: str) -> tuple[float, list[float]]:
    """The mean of h and its Hoeffding components, for classes of few scores with known probabilities."""
    points = [np.arange(float(laws.shape[1]))] * len(laws)
    values = tensor(points, ties).astype(float)
    every = range(len(laws))
    weights = [law.reshape([-1 if i == k else 1 for i in every]) for k, law in enumerate(laws)]

    def expectation(array: NDArray[np.float64], over: tuple[int, ...]) -> NDArray[np.float64]:
        for k in over:
            array = (array * weights[k]).sum(axis=k, keepdims=True)
        return array

    theta = expectation(values, tuple(every))
    parts, components = {(): theta}, []
    for s in subsets(len(laws)):
        inner = [r for size in range(len(s)) for r in itertools.combinations(s, size)]
        outside = tuple(k for k in every if k not in s)
        parts[s] = expectation(values, outside) - sum(parts[r] for r in inner)
        components.append(expectation(parts[s] ** 2, s).item())
    return theta.item(), components


def close(draws: NDArray[np.float64], truth: float, z: float = 5.0) -> bool:
    """Whether a mean agrees with its expectation; wrongly "no" with probability 6·10⁻⁷ where it is normal."""
    return abs(draws.mean() - truth) <= z * draws.std(ddof=1) / math.sqrt(len(draws))


@TIES
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_components_are_unbiased(n_classes: int, ties: str) -> None:
    rng = np.random.default_rng(20260101 + n_classes)
    theta, truth = true_components(LAWS[:n_classes], ties)
    assert min(truth) > (1e-3 if n_classes < 4 else 5e-4)
    sizes = [4, 3, 5, 3][:n_classes]
    kernel = VUS(n_classes, ties)
    n_runs = 2500 if n_classes < 4 else 250
    samples = [rng.choice(4, (n_runs, size), p=law).astype(float) for size, law in zip(sizes, LAWS, strict=False)]
    locals_ = [kernel.local(*blocks) for blocks in zip(*samples, strict=True)]
    means = np.array([each.sums[0].total / (kernel.scale * each.sums[0].n_pairs) for each in locals_])
    components = np.array([each.components for each in locals_])[:, :, 0, 0]
    assert close(means, theta)
    for found, true in zip(components.T, truth, strict=True):
        assert close(found, true)


def test_the_variance_of_the_vus_of_normal_classes_is_estimated_without_bias() -> None:
    rng = np.random.default_rng(7)
    sizes, n_runs = [8, 6, 10], 3000
    kernel = VUS()
    means, variances = np.empty(n_runs), np.empty(n_runs)
    factors = [math.prod(sizes[k] for k in s) for s in subsets(3)]
    for i in range(n_runs):
        local = kernel.local(*(rng.normal(shift, 1, size) for shift, size in zip((0, 0.7, 1.5), sizes, strict=True)))
        means[i] = local.sums[0].total / local.sums[0].n_pairs
        assert local.components is not None
        variances[i] = (local.components[:, 0, 0] / factors).sum()
    # The s.e. of the empirical variance is √[(μ₄ - σ⁴)/R]; it and the mean of the estimates may be correlated, so their
    # s.e. are added: wrongly refused with probability below 6·10⁻⁷.
    squares = (means - means.mean()) ** 2
    errors = [each.std(ddof=1) / math.sqrt(n_runs) for each in (squares, variances)]
    assert abs(means.var(ddof=1) - variances.mean()) <= 5 * sum(errors)
    assert sum(errors) < 0.05 * variances.mean()


@pytest.mark.parametrize(
    ("samples", "doubtful"),
    [
        ([np.zeros(3)] * 3, True),
        ([np.array([0.0, 1.0])] * 3, True),
        ([np.full(3, 2.0), np.full(3, 1.0), np.full(3, 0.0)], True),
        ([np.full(3, 0.0), np.full(3, 1.0), np.full(3, 2.0)], False),
    ],
    ids=["a constant", "two levels", "the other way round", "in order"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_vus_of_zero_says_what_it_may_come_from(samples: list[Any], doubtful: bool, weighted: bool) -> None:
    about = {"weights": [np.ones(len(each)) for each in samples]} if weighted else {}
    strict = estimate_samples(SerialComm(), samples, "vus", complete=True, **about)
    told = [flag for flag in strict.flags if "fewer levels than there are classes" in flag]
    assert (strict.value, bool(told)) == (0.0 if doubtful else 1.0, doubtful)
    shared = estimate_samples(SerialComm(), samples, "vus", complete=True, kernel_options={"ties": "shared"}, **about)
    assert not any("fewer levels" in flag for flag in shared.flags)
