"""The values of statistics under all labellings of the blocks, or random ones that the ranks share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.runtime import announced, succeed
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.testing.blocks import Layout

_RELABELLING = "relabelling the blocks"
Found = TypeVar("Found")


class Form(Protocol):
    """A statistic as a function of labels, as `Relabelling` is."""

    @property
    def layout(self) -> Layout:
        """How samples lie over blocks."""

    @property
    def own(self) -> Ints:
        """All that is labelled as it is."""

    @property
    def tolerance(self) -> float:
        """How far apart rounding may put values that are equal."""

    @property
    def at_once(self) -> int:
        """How many labellings are evaluated together."""

    def values(self, blocks: Ints) -> Floats:
        """Return the values of several labellings."""

    def every(self) -> Iterator[Ints]:
        """Yield all labellings, so many at once."""

    def drawn(self, streams: Streams, numbers: range) -> Ints:
        """Return the random labellings of these numbers."""


def relabelled_values(comm: Any, forms: Sequence[Form], streams: Streams, n_permutations: int | None) -> Floats:
    """Return the values of each form, shape (K, R), under R random labellings or, None, all of them.  Collective.

    All forms are of the same labels: of one layout.
    """
    if n_permutations is None:
        return alike(comm, lambda: _every(forms), _RELABELLING)
    return _drawn(comm, forms, streams, n_permutations)


def alike(comm: Any, work: Callable[[], Found], doing: str = _RELABELLING) -> Found:
    """Do the same work on every rank, of which one may lack the memory for it.  Collective."""
    return succeed(comm, work, doing)


def _every(forms: Sequence[Form]) -> Floats:
    return np.concatenate([_values(forms, some) for some in announced(forms[0].every(), "relabel")], axis=1)


def _values(forms: Sequence[Form], blocks: Ints) -> Floats:
    return np.array([form.values(blocks) for form in forms])


def _drawn(comm: Any, forms: Sequence[Form], streams: Streams, n_permutations: int) -> Floats:
    step = forms[0].at_once
    found = np.zeros((len(forms), n_permutations))

    def portions() -> Iterator[range]:
        """Yield a step of each rank at a time; a rank's last may be empty."""
        for start in range(0, n_permutations, step * comm.size):
            first = min(start + step * comm.rank, n_permutations)
            yield range(first, min(first + step, n_permutations))

    def evaluated(numbers: range) -> None:
        if numbers:
            found[:, numbers.start : numbers.stop] = _values(forms, forms[0].drawn(streams, numbers))

    total = math.ceil(n_permutations / (step * comm.size))
    steps = announced(portions(), "relabel", total)
    for numbers in steps:
        succeed(comm, functools.partial(evaluated, numbers), _RELABELLING, of_data=True)
    # Each value is one rank's, and 0 elsewhere: as integers the bits of doubles add up to themselves.
    return add_integers(comm, found.view(np.int64)).view(np.float64)
