"""Sums of powers over pairs of scores: exact, and the same bits where scores are dealt to the ranks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sharding import SPREADS, bounds_of, shard

from mpi_ustat import SerialComm
from mpi_ustat.numerics.limbs import Extremes, Grid
from mpi_ustat.scores import power
from mpi_ustat.scores.power import power_sums
from mpi_ustat.scores.side import Side

Floats = NDArray[np.float64]

KINDS = {
    "normal": lambda generator, n: generator.normal(size=n),
    "ties": lambda generator, n: generator.integers(-3, 4, n).astype(float),
    "zeros": lambda generator, n: np.zeros(n),
    "far": lambda generator, n: 1e6 + generator.normal(size=n),
    "tiny": lambda generator, n: 1e-310 * generator.normal(size=n),
    "huge": lambda generator, n: 1e300 * generator.normal(size=n),
}
SIZES = [(0, 3), (3, 0), (1, 1), (7, 40), (40, 7), (60, 61)]


def two(kind: str, sizes: tuple[int, int]) -> list[Floats]:
    generator = np.random.default_rng(list(sizes))
    return [KINDS[kind](generator, n) for n in sizes]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_of_scores_that_are_all_here_are_those_of_dealt_ones(
    comm: Any, kind: str, degree: int, spread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sizes in SIZES:
        whole = two(kind, sizes)
        here = power_sums(SerialComm(), degree, *map(Side, whole))
        with monkeypatch.context() as patched:  # the way of many ranks, also on one
            patched.setattr(power, "_counted", None)
            own = [Side(shard(comm, each, spread, k)) for k, each in enumerate(whole)]
            if comm.size == 1:
                own[0] = Side(own[0].scores, groups=np.zeros(sizes[0], dtype=np.int64))
            found = power_sums(comm, degree, *own)
        for k, each in enumerate(here.slopes):
            bounds = bounds_of(comm, sizes[k], spread, k)
            assert found.slopes[k].tobytes() == each[bounds[comm.rank] : bounds[comm.rank + 1]].tobytes()
        assert np.all(found.partners == here.partners)


@pytest.mark.parametrize("sizes", SIZES)
def test_slopes_are_those_of_all_pairs(sizes: tuple[int, int]) -> None:
    for kind in ("ties", "normal"):
        a, t = (np.round(each * 64) / 64 for each in two(kind, sizes))
        for degree in (1, 2):
            of_a, of_t = power_sums(SerialComm(), degree, Side(a), Side(t)).slopes
            pairs = [[(Fraction(y) - Fraction(x)) ** (degree - 1) if y > x else 0 for y in t] for x in a]
            assert [Fraction(float(each)) for each in of_a] == [sum(row) for row in pairs]
            assert [Fraction(float(each)) for each in of_t] == [sum(row[j] for row in pairs) for j in range(len(t))]


def test_whole_multiples_are_the_sums_of_their_limbs() -> None:
    grid = Grid.of([Extremes(-50, 3, False)], 2**20)
    multiples = np.array([0.0, 1.0, -1.0, 2.0**53 - 1, 1.0 - 2.0**53, 2.0**44, -(2.0**44), 12345678901234.0])
    limbs = grid.whole(multiples)
    assert grid.n_limbs > 1 and (limbs[:-1] >= 0).all() and (limbs[:-1] < 2**grid.bits).all()
    for j, each in enumerate(multiples.tolist()):
        assert grid.fraction(limbs[:, j]) == Fraction(each) * Fraction(2) ** grid.exponent
        assert grid.floats(limbs)[j] == each * 2.0**grid.exponent
