"""Points that are there several times, given once with their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.influence.analysis import About
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import attempt
from mpi_ustat.numerics.multiplicity import COUNTS_MUST, are_counts
from mpi_ustat.numerics.types import Ints
from mpi_ustat.wording import count_of


def repeated(
    comm: Any, samples: Sequence[ArrayLike], counts: Sequence[ArrayLike], about: About
) -> tuple[list[NDArray[Any]], About]:
    """Return each row as often as it is there, and so what is said about it.  Collective.

    Raises
    ------
    UserError
        If a count is not a whole number, or negative; if there are other counts than rows; or if no memory holds them.
    """
    if about.influence:
        raise UserError("the influence of points that are counted several times is not told: use weights=")

    def checked() -> tuple[list[NDArray[Any]], list[Ints]]:
        rows = [np.asarray(each) for each in samples]
        if len(counts) != len(rows):
            raise UserError(f"there are {len(rows)} samples and counts of {len(counts)}: give an array for each")
        times = []
        for each, of_rows in zip(rows, counts, strict=True):
            given = np.asarray(of_rows)
            if given.shape != each.shape[:1]:
                raise UserError(
                    f"counts of shape {given.shape} for {count_of(len(each), 'point')}: give one for each point"
                )
            numbers = given.dtype.kind in "biuf"
            if not numbers or not are_counts(given).all():
                # One sentence, whatever is wrong: which count a rank meets first depends on the number of ranks.
                raise PlacedError(f"{COUNTS_MUST}: give other weights as weights=")
            times.append(given.astype(np.int64))
        return rows, times

    (rows, times), bytes_of_ranks = attempt(comm, checked, "checking the counts", share=_bytes)
    refuse_beyond_memory(comm, 3.0 * max(bytes_of_ranks), "every row as often as it is counted", "use weights=")

    def as_often(said: Sequence[ArrayLike] | None) -> list[NDArray[Any]] | None:
        return None if said is None else [np.repeat(each, n, axis=0) for each, n in zip(said, times, strict=True)]

    return as_often(rows) or [], About(
        as_often(about.weights),
        as_often(about.clusters),
        as_often(about.strata),
        as_often(about.groups),
        about.group_weight,
    )


def _bytes(found: tuple[list[NDArray[Any]], list[Ints]]) -> float:
    rows, times = found
    return float(sum(n.sum() * (each.nbytes / max(len(each), 1)) for each, n in zip(rows, times, strict=True)))
