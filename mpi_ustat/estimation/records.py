"""What is kept of each worker's answers: the same numbers to the bit, in little memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.answers import Answers
from mpi_ustat.numerics import wholes
from mpi_ustat.numerics.exactsum import finite_sum, rounded
from mpi_ustat.numerics.types import Floats, Ints

WHOLE = ("totals", "n_pairs", "weights", "evaluations")
"""Answers that are words of whole numbers; the others are kept as they are."""

NAMES = tuple(each.name for each in fields(Answers) if each.name != "scale")


@dataclass(frozen=True, eq=False)
class Record:
    """The answers of all workers in a round.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        By the names of `Answers`; whole numbers in the narrowest of NumPy's integers that hold all of an array.
    scale : int
        The kernel's.
    """

    arrays: Mapping[str, NDArray[Any]]
    scale: int

    @classmethod
    def of(cls, answers: Answers, before: Record | None = None) -> Record:
        """Return the record of answers, in arrays of another record where these hold the same."""
        arrays = {name: getattr(answers, name) for name in NAMES}
        arrays |= {name: narrowed(arrays[name]) for name in WHOLE}
        if before is not None:
            same = (name for name in NAMES if np.array_equal(arrays[name], before.arrays[name]))
            arrays |= {name: before.arrays[name] for name in same}
        return cls(arrays, answers.scale)

    def whole(self, name: str) -> Ints:
        """Return whole numbers as `Answers` have them."""
        return self.arrays[name].astype(np.int64, copy=False)

    @property
    def answers(self) -> Answers:
        """The answers, in arrays of their own where these are narrow."""
        return Answers(**{**self.arrays, **{name: self.whole(name) for name in WHOLE}}, scale=self.scale)


def narrowed(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return int64 in the narrowest type that holds them all.

    Of two such types NumPy's common one holds the numbers of both, so that arrays of different rounds can be stacked.
    """
    least, most = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    for dtype in map(np.dtype, ("i1", "i2", "i4") if least < 0 else ("u1", "u2", "u4")):
        if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
            return numbers.astype(dtype)
    return numbers


def weighted_means(rounds: Sequence[Record | Answers]) -> Floats:
    """Return the averages of the parts over all workers of some rounds, (p,), each worker's weighted by its pairs.

    For averages of sampled pairs: what a worker has stands for all pairs that its points make.
    """
    total = wholes.words_of([sum(wholes.total(_answers(each).weights) for each in rounds)])
    terms = [_weighted_sums(_answers(each), total) for each in rounds]
    return np.array([rounded(sum(of_part)) for of_part in zip(*terms, strict=True)])


def _answers(of_round: Record | Answers) -> Answers:
    return of_round.answers if isinstance(of_round, Record) else of_round


def _weighted_sums(answers: Answers, total: Ints) -> list[Fraction | float]:
    """Return the exact sum over the workers of each part's averages times the worker's share of all pairs."""
    shares = wholes.quotients(answers.weights, np.broadcast_to(total, (len(total), answers.weights.shape[1])))
    return [finite_sum(each) for each in (shares[:, None] * answers.part_means)[answers.has_pairs].T]


def local_values(rounds: Sequence[Record], several: tuple[int, ...]) -> Floats:
    """Return the workers' values in all rounds, (T, N), or of `several` statistics (T, N, q); (0, 0) of no rounds."""
    if not rounds:
        return np.empty((0, 0, *several))
    found = np.empty((len(rounds), rounds[0].arrays["reals"].shape[0], *several))
    for of_round, each in zip(found, rounds, strict=True):
        of_round[...] = each.answers.values.reshape(of_round.shape)
    return found


def evaluations(rounds: Sequence[Record]) -> NDArray[Any]:
    """Return numbers of tuples, (T, N): of int64, or doubles where a round's add up to 2⁶³ or more."""
    if not rounds:
        return np.empty((0, 0), dtype=np.int64)
    kinds = {id(each.arrays["evaluations"]): each.whole("evaluations") for each in rounds}
    large = any(wholes.total(each) >= 2**63 for each in kinds.values())
    numbers = {kind: wholes.doubles(each) if large else each[0] for kind, each in kinds.items()}
    if len(numbers) == 1:
        (only,) = numbers.values()
        return np.broadcast_to(only, (len(rounds), len(only)))
    return np.array([numbers[id(each.arrays["evaluations"])] for each in rounds])
