"""Points as the ranks give them, and what a kernel makes of them, checked by all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.inference.pilots import pilot_blocks
from mpi_ustat.kernels.kernel import Kernel, Points, as_rows
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.mpi.runtime import attempt, together
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.rows import BadRowError

_FEW = 30  # points of a sample that stand for all: their pairs fit into a tile

_FAR = 16.0  # from here on, in typical distances from the centre, products of coordinates lose more than two digits


def checked_points(
    comm: Any,
    names: Sequence[str],
    samples: Sequence[ArrayLike],
    convert: Callable[[str, ArrayLike], Points],
    doing: str = "checking the points",
) -> list[Points]:
    """Return this rank's points of every sample, as `convert` makes them of its name and rows.  Collective.

    Raises
    ------
    UserError
        On every rank, if `convert` refuses the rows of any. The first bad row of all is named by its number in the
        global order, counted from 0: the sentence is the same for every number of ranks.
    """
    points: list[Points] = []

    def converted() -> list[tuple[int, tuple[str, ...]]]:
        """Return, of each sample, the number of rows, or of the first bad one."""
        found: list[tuple[int, tuple[str, ...]]] = []
        for name, rows in zip(names, samples, strict=True):
            try:
                points.append(convert(name, rows))
                found.append((len(points[-1]), ()))
            except BadRowError as bad:
                found.append((bad.row, bad.facts))
        return found

    _, everyone = attempt(comm, converted, doing)
    for of_ranks in zip(*everyone, strict=True):
        before = 0
        for number, facts in of_ranks:
            before += number
            if facts:
                raise UserError(str(BadRowError(before, *facts)))
    return points


def check_kernel(comm: Any, samples: Sequence[Exchange], kernel: Kernel) -> None:
    """Refuse a kernel that a few points show to be wrong, or points out of its range.  Collective.

    Raises
    ------
    UserError
        On every rank, the same for every number of ranks.
    """
    if type(kernel).check_range is not Kernel.check_range:
        kernel.check_range(*ends(comm, samples))
    if type(kernel).check_points is not Kernel.check_points:
        blocks = [_with_extremes(comm, sample, some) for sample, some in zip(samples, _few(comm, samples), strict=True)]
        with together(comm, f"evaluating the kernel {kernel.name}"), np.errstate(over="ignore", invalid="ignore"):
            kernel.check_points(blocks, Streams(0).open("order of points"))


@np.errstate(over="ignore", invalid="ignore")  # beyond the range of doubles products are refused
def centre(comm: Any, samples: Sequence[Exchange]) -> Floats | None:
    """Return an origin that is near the points, or None if 0 is near enough.  Collective.

    It is made of coordinates of points, so that differences of whole numbers stay exact. A coordinate that is not far
    from 0 keeps its origin, and all points their bits.
    """
    some = np.concatenate([as_rows(block) for block in _few(comm, samples)])
    middle = np.sort(some, axis=0)[len(some) // 2]
    far = np.abs(middle) > _FAR * np.median(np.abs(some - middle), axis=0)
    return np.where(far, middle, 0.0) if far.any() else None


def _few(comm: Any, samples: Sequence[Exchange]) -> list[Points]:
    """Return the same few points of every sample on every rank, whatever seed and ranks.  Collective."""
    return pilot_blocks(comm, samples, Streams(0), most=_FEW)


def _with_extremes(comm: Any, sample: Exchange, some: Points) -> Points:
    """Return some points of a sample with those lowest and highest in the first coordinate added.  Collective.

    Of points that are nearly all equal, some drawn at random may all be.
    """
    own = as_rows(sample.rows)[:, 0]
    ends = sorted({int(own.argmin()), int(own.argmax())}) if len(own) else []
    of_ranks = gather_rows(comm, sample.rows[ends])
    first = as_rows(of_ranks)[:, 0]
    for end in (first.argmin(), first.argmax()):
        if not (some == of_ranks[end]).reshape(len(some), -1).all(axis=1).any():
            some = np.concatenate([some, of_ranks[end][None]])
    return some


def ends(comm: Any, samples: Sequence[Exchange]) -> tuple[Floats, Floats]:
    """Return the lowest and the highest value of each coordinate over all samples.  Collective."""
    rows = [as_rows(sample.rows) for sample in samples if len(sample.rows)]
    own = [(each.min(axis=0), each.max(axis=0)) for each in rows]
    low, high = zip(*(pair for of_rank in comm.allgather(own) for pair in of_rank), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)
