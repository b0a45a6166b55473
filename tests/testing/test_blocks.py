"""How samples lie over the blocks of a test."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress

import numpy as np
import pytest

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.testing.blocks import MOST_BLOCKS, Layout, lay_out

SIZES = [2, 3, 5, 10, 19, 20, 63, 64, 65, 100, 127, 1000, 4097, 30001]


def laid_out(n: int, m: int, n_blocks: int | None) -> Layout | None:
    """Return what `lay_out` returns, None where it refuses."""
    with suppress(UserError):
        return lay_out(n, m, n_blocks)
    return None


@pytest.mark.parametrize("n_blocks", [None, 6, 7, 20, 64, 333, 4096])
def test_the_blocks_hold_what_the_samples_have(n_blocks: int | None) -> None:
    for n, m in itertools.product(SIZES, repeat=2):
        found = laid_out(n, m, n_blocks)
        if found is None:
            assert math.comb(n + m, n) < 20 or n + m < (n_blocks or 0) or n_blocks in (6, 7)
            continue
        assert found.sizes == (n, m) and min(found.n_blocks) >= 1 and min(found.rests) >= 0
        assert found.n_relabellings == math.comb(sum(found.n_blocks), found.n_blocks[0]) >= 20
        assert sum(found.n_blocks) <= MOST_BLOCKS
        smaller = found.n_blocks[n > m]
        if n_blocks is None:
            assert smaller == min(n, m) or 128 <= smaller <= 255
            assert sum(found.n_blocks) >= min(256, n + m)
        else:
            assert smaller >= min(16, n_blocks // 2, n, m)
        # Every point is in one segment, and the segments follow each other.
        end = segment = 0
        for group in found.groups:
            assert (group.first, group.start) == (segment, end)
            segment, end = segment + group.n_segments, group.stop
        assert end == n + m
        assert segment == sum(found.n_blocks) + sum(len(bounds) - 1 for bounds in found.pieces)


def test_samples_of_equal_sizes_have_as_many_blocks_as_asked_for() -> None:
    assert lay_out(1000, 1000, 64) == Layout((1000, 1000), 31, (32, 32))
    assert lay_out(1000, 3000, 64) == Layout((1000, 3000), 62, (16, 48))
    assert lay_out(20, 20) == Layout((20, 20), 1, (20, 20))
    assert lay_out(20000, 20000) == Layout((20000, 20000), 156, (128, 128))


def test_what_is_too_much_of_a_large_sample_keeps_its_label() -> None:
    assert lay_out(100, 100_000) == Layout((100, 100_000), 1, (100, 412))
    assert lay_out(100_000, 100, 64) == Layout((100_000, 100), 6, (48, 16))


def test_the_order_is_of_each_sample_its_own_and_uniform() -> None:
    layout = Layout((5, 4), 2, (2, 1))
    at = np.zeros((9, 9))
    for seed in range(2000):
        x, z = np.arange(5.0)[:, None], np.arange(5.0, 9.0)[:, None]
        order = layout.arranged((x, z), Streams(seed))[:, 0].astype(np.int64)
        assert sorted(order.tolist()) == list(range(9))
        of_x = order < 5
        assert of_x.tolist() == [True] * 4 + [False] * 2 + [True] + [False] * 2
        at[np.arange(9), order] += 1
    expected = np.where(at > 0, 2000 / np.where(np.arange(9) < 5, 5, 4), 0.0)
    chi2 = ((at - expected) ** 2 / np.where(expected > 0, expected, 1)).sum()
    assert chi2 < 70  # 16 + 9 degrees of freedom: passed once in 10^5


@pytest.mark.parametrize(
    ("sizes", "n_blocks", "text"),
    [
        ((10, 20), 31, "31 blocks can't each have one of 30 points: use at most 30 workers"),
        ((10, 20), 1, "from 2 to 4096 blocks of both samples, not 1"),
        ((9000, 9000), 5000, "from 2 to 4096 blocks of both samples, not 5000"),
        ((10, 10), 4, r"2 blocks of x and 2 of z can be relabelled in 6 ways only, and p is 0.17 at .*more blocks"),
        ((2, 3), None, r"2 blocks of x and 3 of z can be relabelled in 10 ways only.*: use more points"),
    ],
)
def test_what_makes_no_test_is_refused(sizes: tuple[int, int], n_blocks: int | None, text: str) -> None:
    with pytest.raises(UserError, match=text):
        lay_out(*sizes, n_blocks)
