"""Whole numbers of any size in words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_ustat.numerics.wholes import doubles, integers, quotients, total, widened, words_of

numbers = st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63), st.integers(-(2**200), 2**200)))


@given(numbers=numbers, more=st.integers(1, 5))
def test_numbers_come_back_from_words_and_add_up_exactly(numbers: list[int], more: int) -> None:
    words = words_of(numbers)
    assert integers(words) == integers(widened(words, more)) == numbers
    assert total(words) == sum(numbers)
    assert words.any(axis=0).tolist() == [number != 0 for number in numbers]
    assert doubles(words).tolist() == [float(number) for number in numbers]


@pytest.mark.parametrize("number", [2**62 - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_numbers_at_the_edge_of_a_word(number: int) -> None:
    assert integers(words_of([number, 1])) == [number, 1]
    assert total(words_of([number] * 1000)) == 1000 * number


@given(pairs=st.lists(st.tuples(st.integers(-(2**70), 2**70), st.integers(0, 2**66))), scale=st.integers(1, 6))
def test_quotients_are_correctly_rounded(pairs: list[tuple[int, int]], scale: int) -> None:
    above, below = ([each[k] for each in pairs] for k in (0, 1))
    for shift in (0, 40):  # also of numbers that doubles hold
        a, b = [each >> shift for each in above], [each >> shift for each in below]
        found = quotients(words_of(a), words_of(b), scale).tolist()
        for quotient, x, y in zip(found, a, b, strict=True):
            assert np.isnan(quotient) if y == 0 else quotient == float(Fraction(x, scale * y))
