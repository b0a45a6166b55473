"""Tuples of any number of points from any number of samples (Definition 1 of the paper): all of them, or some.

A tuple takes d_k different points of sample k, in no order. There are M = Π_k C(n_k, d_k), numbered from 0: digit k of
the number, in base C(n_k, d_k) and with the last sample's digit fastest, is the number of a combination of d_k points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.blocks import add
from mpi_ustat.kernels.kernel import UNIT, Kernel, OnePart, Points, Total, as_rows, n_tuples
from mpi_ustat.kernels.route import Route
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.user_pairs import UserKernel, UserPairs, checked_values
from mpi_ustat.numerics.rankstat import starts_of_runs
from mpi_ustat.numerics.rng import Stream
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.user.guards import called, real_numbers, refuse_asymmetric

TupleFunction = Callable[..., Floats]

DEFAULT_CHUNK = 1 << 14  # tuples evaluated at a time: bounds memory, and is no rank's business
_CHECKED = 64  # tuples of which the order of the points is changed, to see whether it matters
_LARGEST = 2**63 - 1


class UserTuples(OnePart):
    """A kernel of any degrees, given as a function of aligned points.

    Parameters
    ----------
    function : callable
        Takes Σ d_k arrays of B points, (B, d), d_1 of the first sample first; returns h of the B tuples, shape (B,).
        It must not depend on the order of the points of one sample, which `check_points` tries.
    degrees : tuple of int
        d_1 … d_K.
    name : str
        What messages and results call it.
    chunk : int
        Tuples that are evaluated at a time.
    """

    complete_route = Route("tuples", "mpi_ustat.complete.tuples:tuples", by_tuples=True)
    has_components = False
    allows_infinite = True

    def __init__(
        self, function: TupleFunction, degrees: tuple[int, ...], name: str, chunk: int = DEFAULT_CHUNK
    ) -> None:
        if chunk < 1:
            raise UserError(f"tuples must be evaluated at least 1 at a time, not {chunk}")
        self.function = function
        self.degrees = degrees
        self.name = name
        self.chunk = chunk
        if getattr(function, "bounded", False):
            self.limits = UNIT

    def block_total(self, *blocks: Points) -> Total:
        """Return the sum of h over all Π C(n_k, d_k) tuples, chunk by chunk; the chunks are added without rounding."""
        return add(self.chunk_sums(blocks, range(self.n_chunks([len(block) for block in blocks]))))

    def n_chunks(self, sizes: Sequence[int]) -> int:
        """Return the number of chunks of the tuples of blocks of these sizes."""
        return -(-n_tuples(self.degrees, sizes) // self.chunk)

    def chunk_sums(self, blocks: Sequence[Points], chunks: Iterable[int]) -> Iterator[float]:
        """Yield the sums of h over these chunks of the tuples of the blocks."""
        points = [as_rows(block) for block in blocks]
        of_sample = np.repeat(np.arange(len(blocks)), self.degrees).tolist()
        numbering = _Numbering([len(block) for block in blocks], self.degrees)
        for chunk in chunks:
            indices = numbering.chunk(chunk, self.chunk)
            yield self._chunk_sum(
                [np.take(points[k], index, axis=0) for k, index in zip(of_sample, indices, strict=True)]
            )

    def pairs_total(self, *points: Points) -> Total:
        """Return Σ_b h over aligned tuples."""
        rows = [as_rows(each) for each in points]
        return add(
            self._chunk_sum([each[i : i + self.chunk] for each in rows]) for i in range(0, len(rows[0]), self.chunk)
        )

    def _chunk_sum(self, points: list[Points]) -> float:
        return float(np.sum(self._values(points)))

    def check_points(self, blocks: Sequence[Points], stream: Stream) -> None:
        """Refuse a function that depends on the order of the points of one sample, by a few tuples of few points."""
        sizes = [len(block) for block in blocks]
        sources = [as_rows(block) for block, degree in zip(blocks, self.degrees, strict=True) for _ in range(degree)]
        places = sample_tuples(stream, sizes, self.degrees, _CHECKED)
        points = [np.take(source, place, axis=0) for source, place in zip(sources, places, strict=True)]
        values = self._raw(points)
        for order in _other_orders(self.degrees):
            others = self._raw([points[j] for j in order])
            if values.shape != others.shape or values.ndim != 1:
                return  # which its evaluation refuses
            refuse_asymmetric(self.name, values, others)

    def _raw(self, points: Sequence[Points]) -> Floats:
        """Return the function's values for aligned points, chunk by chunk, finite or not."""
        chunks = [[each[i : i + self.chunk] for each in points] for i in range(0, _CHECKED, self.chunk)]
        return np.concatenate(
            [np.atleast_1d(real_numbers(f"the kernel {self.name}", self._called(chunk))) for chunk in chunks]
        )

    def _values(self, points: Sequence[Points]) -> Floats:
        return checked_values(self.name, self._called(points), (len(points[0]),), self._how)

    def _called(self, points: Sequence[Points]) -> Any:
        return called(self.name, self.function, points, self._how)

    @property
    def _how(self) -> str:
        order = sum(self.degrees)
        return (
            f"it gets {order} arrays of B points, (B, columns) each, and returns h of each of the B tuples, (B,), as "
            "np.median(np.stack(points)[:, :, 0], axis=0) does of *points; np.where takes the place of if, and "
            f"np.vectorize(h, signature='{','.join(['(d)'] * order)}->()') calls an h of {order} points each time, "
            "slowly"
        )


def _other_orders(degrees: Sequence[int]) -> Iterator[list[int]]:
    """Yield permutations of points, each of those of one sample, of which all others are made: a swap and a cycle."""
    places, first = list(range(sum(degrees))), 0
    for degree in degrees:
        own = places[first : first + degree]
        for moved in ([*own[1::-1], *own[2:]], [*own[1:], own[0]])[: degree - 1]:
            yield [*places[:first], *moved, *places[first + degree :]]
        first += degree


def make_user_kernel(function: Callable[..., Any], name: str, tile: int = DEFAULT_TILE) -> Kernel:
    """Return the kernel that a user's function stands for.

    The function may have two attributes. ``degrees``, the tuple d_1 … d_K, says how many points of how many samples it
    takes: without it, or as (1, 1), it is a function of two blocks as `UserKernel` takes it, as (2,) one of two blocks
    of the same sample (`UserPairs`), anything else one of aligned points (`UserTuples`). ``bounded`` says whether its
    values lie in [0, 1]. Aligned points are evaluated tile² at a time.
    """
    degrees = getattr(function, "degrees", (1, 1))
    whole = isinstance(degrees, tuple) and all(type(degree) is int and degree > 0 for degree in degrees)
    if not whole or not degrees:
        raise UserError(
            f"the kernel {name} has degrees {degrees!r}: give a tuple of the numbers of points it takes, like (1, 1)"
        )
    if degrees == (1, 1):
        return UserKernel(function, name, tile)
    if degrees == (2,):
        return UserPairs(function, name, tile)
    return UserTuples(function, degrees, name, tile * tile)


def sample_tuples(
    stream: Stream, sizes: Sequence[int], degrees: Sequence[int], size: int, *, distinct: bool = False
) -> tuple[Ints, ...]:
    """Draw tuples of points, uniformly.

    With replacement (the paper) the tuples are independent, and uniform over all M; the points of one tuple differ. The
    j-th of a sample's points is uniform on the n_k - j + 1 that are left, whose number r among them becomes an index
    by stepping over the smaller of those taken.

    Distinct tuples are drawn until there are B different ones. That set is uniform among those of B tuples, since the
    procedure treats all tuples alike: renaming them by a permutation of all M changes the law of no draw. For B > M/2
    the M - B tuples to leave out are drawn instead.

    Parameters
    ----------
    sizes, degrees : sequence of int, length K
        n_k and d_k.
    size : int
        B.
    distinct : bool
        Whether the tuples are drawn without replacement; they come in no random order then.

    Returns
    -------
    tuple of Σ d_k ndarrays of int64, shape (B,)
        Ints of points, d_1 of the first sample first.
    """
    count = n_tuples(degrees, sizes)
    if size > (count if distinct else size * min(count, 1)):
        what = f"{size} {'distinct ' if distinct else ''}tuples"
        raise UserError(f"{what} can't be drawn from a block that has {count}: draw fewer, or use fewer workers")
    if not distinct:
        return _with_replacement(stream, sizes, degrees, size)
    if count <= _LARGEST:
        return _Numbering(sizes, degrees).tuples(_different_numbers(stream, count, size))
    return tuple(_different_columns(stream, sizes, degrees, size))


def _with_replacement(stream: Stream, sizes: Sequence[int], degrees: Sequence[int], size: int) -> tuple[Ints, ...]:
    if tuple(degrees) == (1, 1):
        return stream.pairs(sizes[0], sizes[1], size)
    return tuple(
        index for n, degree in zip(sizes, degrees, strict=True) for index in _different_points(stream, n, degree, size)
    )


def _different_points(stream: Stream, n: int, degree: int, size: int) -> list[Ints]:
    taken: list[Ints] = []
    for j in range(degree):
        index = stream.integers(n - j, size)
        for other in np.sort(taken, axis=0) if taken else []:
            index += index >= other
        taken.append(index)
    return taken


def _different_numbers(stream: Stream, count: int, size: int) -> Ints:
    """Draw a set of different numbers below `count`, in ascending order."""
    if 2 * size > count:
        chosen = np.ones(count, dtype=np.bool_)
        chosen[_different_numbers(stream, count, count - size)] = False
        return np.flatnonzero(chosen)
    found = np.empty(0, dtype=np.int64)
    while len(found) < size:
        found = np.concatenate([found, stream.integers(count, size - len(found))])
        found.sort()  # np.unique hashes, which takes ten times as long
        found = found[starts_of_runs(found)]
    return found


def _different_columns(stream: Stream, sizes: Sequence[int], degrees: Sequence[int], size: int) -> Ints:
    """Draw a set of different tuples whose numbers may pass 2⁶³, shape (Σ d_k, size)."""
    found = np.empty((sum(degrees), 0), dtype=np.int64)
    cuts = np.cumsum(degrees)[:-1]
    while found.shape[1] < size:
        drawn = np.array(_with_replacement(stream, sizes, degrees, size - found.shape[1]))
        sets = [np.sort(points, axis=0) for points in np.split(drawn, cuts)]
        found = np.unique(np.concatenate([found, np.concatenate(sets)], axis=1), axis=1)
    return found


class _Numbering:
    """The tuples of blocks of given sizes, by number."""

    def __init__(self, sizes: Sequence[int], degrees: Sequence[int]) -> None:
        self.count = n_tuples(degrees, sizes)
        if self.count > _LARGEST:
            raise UserError(f"{self.count} tuples are too many to go through: draw some of them instead")
        self._bases = [math.comb(n, degree) for n, degree in zip(sizes, degrees, strict=True)]
        self._tables = [_binomials(n, degree) if self.count else [] for n, degree in zip(sizes, degrees, strict=True)]

    def chunk(self, number: int, size: int) -> tuple[Ints, ...]:
        """Return the tuples of a chunk, of which each but the last has `size`."""
        first = number * size
        return self.tuples(np.arange(first, min(first + size, self.count), dtype=np.int64))

    def tuples(self, numbers: Ints) -> tuple[Ints, ...]:
        """Return the tuples of these numbers."""
        columns: list[Ints] = []
        for base, tables in zip(reversed(self._bases), reversed(self._tables), strict=True):
            numbers, digits = np.divmod(numbers, base)
            columns[:0] = _combinations(digits, tables)
        return tuple(columns)


def _binomials(n: int, degree: int) -> list[Ints]:
    """Return C(c, j) for c = 0 … n-1, in a table for each j = 1 … degree; what passes 2⁶³ - 1 is cut down to it."""
    tables = [np.arange(n, dtype=np.int64)]
    for j in range(2, degree + 1):
        if 2 * degree <= n:  # then none is larger than C(n, degree)
            tables.append(np.cumsum(tables[-1]) - tables[-1])  # C(c, j) = Σ_{b<c} C(b, j-1)
        else:
            tables.append(np.array([min(math.comb(c, j), _LARGEST) for c in range(n)], dtype=np.int64))
    return tables


def _combinations(numbers: Ints, tables: list[Ints]) -> list[Ints]:
    """Return the combinations of these numbers, points ascending.

    In the combinatorial number system c_1 < … < c_d has the number Σ_j C(c_j, j): c_d is the largest c with C(c, d) at
    most the number, and the rest is the number of c_1 < … < c_{d-1}.
    """
    points: list[Ints] = []
    for table in reversed(tables[1:]):
        point = np.searchsorted(table, numbers, side="right") - 1
        numbers = numbers - table[point]
        points.insert(0, point)
    return [numbers, *points]
