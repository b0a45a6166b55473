"""What all workers found in a round together: sums that are exact, so that those of many rounds add up to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.estimation.answers import Answers
from mpi_ustat.kernels.blocks import mean
from mpi_ustat.kernels.kernel import Kernel, PairSum
from mpi_ustat.numerics import wholes
from mpi_ustat.numerics.exactsum import finite_sum, rounded
from mpi_ustat.numerics.types import Floats

Exact = int | Fraction | float
"""A sum of whole numbers, of doubles, or NaN, of doubles that are not finite."""


class PartSum(NamedTuple):
    """The sum of kernel values, times the kernel's scale, over all workers, and the number of pairs it is over."""

    total: Exact
    n_pairs: int


@dataclass(frozen=True)
class RoundSums:
    """What a round's estimate and error bar need of the workers' answers, however many workers there are.

    Attributes
    ----------
    parts : tuple of PartSum
        Of each of the p parts.
    evaluations : int
        Pairs that were evaluated.
    n_empty : int
        Workers whose points make no pair.
    """

    parts: tuple[PartSum, ...]
    evaluations: int
    n_empty: int


def sums_of(answers: Answers) -> RoundSums:
    """Return the sums over all workers; pure."""
    return RoundSums(
        tuple(_part(answers, part) for part in range(answers.reals.shape[1])),
        wholes.total(answers.evaluations),
        int(np.count_nonzero(~answers.has_pairs)),
    )


def pooled_means(kernel: Kernel, rounds: Sequence[RoundSums]) -> Floats:
    """Return the averages of the parts over all pairs of all workers and rounds, shape (p,)."""
    return np.array([mean(_pooled(part), kernel.scale) for part in zip(*(each.parts for each in rounds), strict=True)])


def evaluations_per_round(rounds: Sequence[RoundSums]) -> NDArray[Any]:
    """Return how many pairs were evaluated in each round, (T,): int64, or doubles where any has 2⁶³ or more."""
    counts = [each.evaluations for each in rounds]
    return np.array(counts, dtype=np.int64 if max(counts, default=0) < 2**63 else np.float64)


def _part(answers: Answers, part: int) -> PartSum:
    is_real, totals = answers.is_real[:, part], answers.totals[:, :, part]
    n_pairs = wholes.total(answers.n_pairs[:, :, part])
    if not is_real.any():
        return PartSum(wholes.total(totals), n_pairs)
    return PartSum(finite_sum(np.where(is_real, answers.reals[:, part], wholes.doubles(totals))), n_pairs)


def _pooled(parts: Sequence[PartSum]) -> PairSum:
    total = sum(each.total for each in parts)
    return PairSum(total if isinstance(total, int) else rounded(total), sum(each.n_pairs for each in parts))
