"""What a kernel is: the function h of a U-statistic, with its sums over blocks of points and over sampled tuples.

A generalised U-statistic (Definition 1 of the paper) averages h over all ways to take d_k points from the k-th of K
samples. A kernel sums; what the sums are divided by, and where the points live, is the caller's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import RING, Route
from mpi_ustat.numerics.types import Floats

if TYPE_CHECKING:
    from mpi_ustat.kernels.discrepancy import Variance

Points = Floats
Total = int | float

UNIT = (0.0, 1.0)
"""Limits of a statistic that is a share or a probability."""

_COORDINATES = 128
_ROWS = 256  # of a matrix of projections


class Flaw(NamedTuple):
    """Which rows can't be points: True there, what they hold, and what to do about it."""

    rows: NDArray[np.bool_]
    what: str
    remedy: str


class Data(Protocol):
    """What a kernel can learn of the points of all ranks before it is evaluated.  Its methods are collective."""

    def ends(self) -> tuple[Floats, Floats]:
        """Return the lowest and the highest value of each coordinate."""

    def some(self, most: int) -> Points:
        """Return up to so many random points, of all samples together: by the run's seed, the same on every rank."""


class PairSum(NamedTuple):
    """A sum of kernel values, times the kernel's scale, and the number of pairs (or longer tuples) it is over."""

    total: Total
    n_pairs: int


class Local(NamedTuple):
    """What one block of every sample gives.

    Attributes
    ----------
    sums : tuple of PairSum
        Of each of the p parts of the statistic.
    components : ndarray, shape (c, p, p), or None
        Unbiased estimates of the Hoeffding components of the p parts: variances on the diagonals, covariances beside
        them, in the order of `mpi_ustat.inference.components`. None where the block is too small to have any.
    """

    sums: tuple[PairSum, ...]
    components: Floats | None


@dataclass(frozen=True)
class Whole:
    """What a route finds of distributed samples.

    Attributes
    ----------
    local : Local
        Of the whole samples, the same on all ranks and for every number of them. No components where a sample is too
        small to have any, or where they are not wanted and take time.
    bytes_sent : int
        Bytes that this rank sent to others.
    own_variance : Variance or None
        As of `Kernel.own_variance`.
    """

    local: Local
    bytes_sent: int = 0
    own_variance: Variance | None = None


class Meeting(NamedTuple):
    """What the pairs across two blocks, or inside one, add up to; there is at least one.

    Attributes
    ----------
    sums : tuple of p PairSums
        Of the parts, all over the same pairs.
    points : tuple of ndarray, shape (points, p)
        For each block, the sums of each of its points: the scale times Σ h_a over its pairs.
    squares : ndarray, shape (p, p)
        scale² times Σ (h_a - h̄_a)(h_b - h̄_b) over the pairs, h̄ being their mean.
    """

    sums: tuple[PairSum, ...]
    points: tuple[NDArray[Any], ...]
    squares: Floats


def n_tuples(degrees: Sequence[int], sizes: Sequence[int]) -> int:
    """Return Π_k C(n_k, d_k), the number of tuples of a block."""
    return math.prod(map(math.comb, sizes, degrees))


class Kernel(ABC):
    """What estimation asks of a kernel.

    A statistic may have several parts that are U-statistics themselves, and be a function of their averages: Kendall's
    tau-b is a quotient, an energy distance a sum. Most have one part, and are its average.

    A class declares what it is by the attributes below, has the two abstract methods, and says of the other parts
    whether it has them; then it is registered by its name (`kernels.registry`, or another package's entry point in the
    group ``mpi_ustat.kernels``). `OfMatrix`, `tiled.Tiled` and `tiled.TiledPairs` are classes to begin with.

    Attributes
    ----------
    name : str
    samples : tuple of int
        The numbers of samples K that it can have; empty: any from 2 on.
    options : tuple of Option
        What `of_samples` takes by keyword.
    unit : str
        Of the statistic: "1" if it has none, empty if that depends on the points.
    ties : str
        What ties count, where that is one of the options.
    of_columns : bool
        Whether a point may have several columns, each with a statistic of its own.
    leading_columns : int
        Columns before these, that belong to all of the statistics.
    by_influence : bool
        Whether the error bar of the complete statistic is made of the influence of points, not of components.
    degrees : tuple of int
        d_1 … d_K: how many points of each sample h takes. h is symmetric in those of one sample.
    scale : int
        Totals are `scale` times sums of h: what is a whole number then is summed as Python integers, exactly.
    complete_route : Route
        How the sum over all tuples of distributed samples is found.
    has_components : bool
        Whether `local` estimates the Hoeffding components of blocks that are large enough.
    has_margins : bool
        Whether there are `margins`, from which the ring finds components.
    has_own_variance : bool
        Whether `own_variance` takes the place of components.
    chunk : int
        Tuples of blocks that are evaluated together, one chunk after the other (`n_chunks`, `chunk_sums`); 0: all are.
    function : callable or None
        What a user gave instead of a class.
    tile : int
        Side of the tiles in which a matrix of values is evaluated; 0: there is none.
    allows_infinite : bool
        Whether infinite points have a meaning (they do for comparisons).
    n_coordinates : int or None
        Numbers that make a point: 1, 2, …, or None for any. Points of 1 are passed as arrays of shape (n,).
    limits : (float, float)
        Between which the population's value lies; where both are finite also h, and the values of each part.
    null : float, optional
        The value that means no association, against which it is tested.
    pooled_only : bool
        Whether only sums over all workers and rounds make sense, not averages of local values.
    n_parts : int
        p.
    influence_route : str
        How what each point learns of its tuples is found: the place of a function, as ``module:function``, that is
        imported when it is called for. ``function(comm, samples, **influence_options())``, collective, returns
        `mpi_ustat.influence.points.PointSums` of each sample, and the bytes sent.
    statistic_route : str
        How the statistics are found with the influence of points, where they aren't functions of averages over tuples:
        the place of a function as above, that returns `mpi_ustat.influence.statistic.Influence`; empty: they are.
    projection_rows : int
        Points of each sample whose `projections` cost next to nothing.
    wants_centre : bool
        Whether h of points far from the origin loses digits, and the statistic is the same wherever the origin is.
    standardize : {"none", "sd", "iqr"}
        In what unit the kernel takes each coordinate: of the points, or their standard deviation or interquartile range
        over all samples together. Points are divided by it before the kernel sees them.
    all_columns : bool
        Whether all columns of a file make a point where nobody says which.
    learnt : mapping
        What `fitted` has found, by name: numbers that JSON can hold, for the result.
    """

    name: str
    samples: ClassVar[tuple[int, ...]] = (2,)
    options: ClassVar[tuple[Option, ...]] = ()
    unit: str = ""
    ties: str = ""
    of_columns: bool = False
    leading_columns: int = 0
    by_influence: bool = False
    degrees: tuple[int, ...] = (1, 1)
    scale: int = 1
    complete_route: Route = RING
    influence_route: str = "mpi_ustat.influence.pairs:pairs"
    statistic_route: str = ""
    has_components: bool = True
    has_margins: bool = False
    has_own_variance: bool = False
    chunk: int = 0
    function: Any = None
    tile: int = 0
    allows_infinite: bool = False
    n_coordinates: int | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)
    pooled_only: bool = False
    n_parts: int = 1
    null: float | None = None
    wants_centre: bool = False
    projection_rows: int = 500
    standardize: str = "none"
    all_columns: bool = False
    learnt: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of_samples(cls, n_samples: int, **options: Any) -> Kernel:
        """Return the kernel for one of its numbers of samples; all of its options are given."""
        return cls(**options)

    @classmethod
    def pools(cls, options: Mapping[str, Any]) -> bool:
        """Tell whether a kernel with these options is `pooled_only`."""
        return cls.pooled_only

    @property
    def foreign(self) -> Any:
        """What of it this package hasn't written, whose code a checkpoint remembers; None: nothing."""
        ours = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        return self.function if ours else type(self)

    def route(self, sizes: Sequence[int]) -> Route:
        """Return the way to the complete statistic of samples of these sizes."""
        return self.complete_route

    def finds_components(self, sizes: Sequence[int]) -> bool:
        """Tell whether Hoeffding components are estimated from blocks of these sizes."""
        return self.has_components and min(sizes) >= (4 if self.degrees == (2,) else 2)

    def worth_components(self, n_blocks: int) -> bool:
        """Tell whether so many blocks are to give components: where they take too long, a pilot gives them."""
        return True

    @property
    def bounded(self) -> bool:
        """Whether h, and so the statistic, lies in [0, 1]."""
        return self.limits == UNIT

    @abstractmethod
    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Return the parts' sums over all tuples of one block of each sample."""

    @abstractmethod
    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Return the parts' sums over aligned tuples: Σ d_k arrays of B points, those of the first sample first."""

    def local(self, *blocks: Points) -> Local:
        """Return `block_sums` together with estimates of the Hoeffding components."""
        if self.has_components:
            raise self._lacking("local", "has_components = False")
        return Local(self.block_sums(*blocks), None)

    def margins(self, *blocks: Points) -> Meeting:
        """Return the sums over the pairs across two blocks, or inside one, for each point too."""
        raise self._lacking("margins", "has_margins = False")

    def value_tiles(self, *blocks: Points) -> Iterator[tuple[slice, slice, Floats]]:
        """Yield tiles of all pairs across two blocks, or inside one: rows, columns, and the scale times h, (p, a, b).

        Every pair is in one tile; what is no pair is 0.
        """
        raise UserError(
            f"the kernel {self.name} doesn't give h of single pairs, which the sums of each point under weights and "
            "within strata are made of: write the method value_tiles in its class"
        )

    def influence_options(self) -> dict[str, Any]:
        """Return the keyword arguments of the function of `influence_route`."""
        return {"kernel": self}

    def doubts_about(self, value: float) -> list[str]:
        """Return what speaks against such a value, whatever its error, in sentences."""
        return []

    def counted_share(self, means: Floats) -> Any:
        """Return the share of all pairs that count, from the averages of the parts, (p,) or of several (p, g)."""
        return 1.0

    def own_variance(self, *blocks: Points) -> Variance:
        """Return an estimate of the variance of the statistic of these blocks, of 4 points or more."""
        raise self._lacking("own_variance", "has_own_variance = False")

    def n_chunks(self, sizes: Sequence[int]) -> int:
        """Return the number of chunks of the tuples of blocks of these sizes."""
        raise self._lacking("n_chunks", "chunk = 0")

    def chunk_sums(self, blocks: Sequence[Points], chunks: Iterable[int]) -> Iterator[float]:
        """Yield the sums of h over these chunks of the tuples of the blocks."""
        raise self._lacking("chunk_sums", "chunk = 0")

    def _lacking(self, part: str, otherwise: str) -> UserError:
        return UserError(f"the kernel {self.name} has no method {part}: write it in its class, or declare {otherwise}")

    def cross_sums(self, x: Points, y: Points) -> tuple[PairSum, ...]:
        """Return the parts' sums over all pairs of two blocks of one sample, for kernels of two points of it."""
        raise self._lacking("cross_sums", "degrees of two samples")

    def cross_local(self, x: Points, y: Points) -> Local:
        """Return `cross_sums`, together with estimates of ζ₁ and δ where a kernel finds them across two blocks too."""
        return Local(self.cross_sums(x, y), None)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the means of the parts over the tuples that each of some points makes with the same other points.

        They are h₁(x) = E[h | one of its points is x], the first-order projection, up to the choice of the others. Here
        a point is evaluated at a time, as a block of its own; kernels that know better do better.

        Parameters
        ----------
        k : int
            Number of the sample that the points, (a, d), are of.
        others : sequence of ndarray
            A few points of every sample, for degree 2 of one sample none of them among `points`; those of sample k play
            no part for degrees (1, …, 1).
        """
        found = np.empty((len(points), self.n_parts))
        for i in range(len(points)):
            one = points[i : i + 1]
            blocks = [one if j == k else block for j, block in enumerate(others)]
            sums = self.cross_sums(one, others[0]) if self.degrees == (2,) else self.block_sums(*blocks)
            found[i] = [float(part.total) / (self.scale * part.n_pairs) for part in sums]
        return found

    def flaws(self, points: Points) -> Sequence[Flaw]:
        """Return what is wrong with numbers that are no points of this kernel."""
        return ()

    def fitted(self, data: Data) -> Kernel:
        """Return the kernel with what it takes from the points themselves; itself if that is nothing.  Collective."""
        return self

    def check_points(self, blocks: Sequence[Points], stream: Any) -> None:  # noqa: B027
        """Raise a UserError if a few points show that the kernel is none; `stream` draws among them."""

    def check_range(self, low: Floats, high: Floats) -> None:  # noqa: B027
        """Raise a UserError if h of points between these, in each coordinate, leaves the range of doubles."""

    def evaluations(self, sums: tuple[PairSum, ...]) -> int:
        """Return the number of pairs (or tuples) behind these sums."""
        return sums[0].n_pairs

    def combine(self, means: Floats) -> Floats:
        """Return the statistics, shape (q,), from the averages of the parts, shape (p,)."""
        return means

    def gradient(self, means: Floats) -> Floats:
        """Return the derivatives of `combine`, shape (q, p)."""
        return np.eye(len(means))


class OnePart(Kernel):
    """A kernel whose statistic is the average of h."""

    @abstractmethod
    def block_total(self, *blocks: Any, **_: Any) -> Total:
        """Return scale times the sum of h over all tuples of one block of each sample."""

    @abstractmethod
    def pairs_total(self, *points: Any, **_: Any) -> Total:
        """Return scale times the sum of h over B aligned tuples, given as Σ d_k arrays of B points."""

    def block_sums(self, *blocks: Points) -> tuple[PairSum, ...]:
        """Return the sum over all tuples of the blocks."""
        n_pairs = n_tuples(self.degrees, [len(block) for block in blocks])
        return (PairSum(self.block_total(*blocks) if n_pairs else 0, n_pairs),)

    def tuple_sums(self, *points: Points) -> tuple[PairSum, ...]:
        """Return the sum over aligned tuples."""
        return (PairSum(self.pairs_total(*points), len(points[0])),)


class OfMatrix(OnePart):
    """A kernel of two points, of one sample or of two, that can write h for all pairs of two small blocks."""

    projection_rows = 20_000

    @abstractmethod
    def matrix(self, x: Points, y: Points) -> Floats:
        """Return h for all pairs of two small blocks, (a, b)."""

    def ready(self, x: Points, z: Points) -> tuple[Points, Points]:
        """Return blocks as `matrix` takes parts of them."""
        return x, z

    def value_tiles(self, *blocks: Points) -> Iterator[tuple[slice, slice, Floats]]:
        """Yield matrices, square ones; inside a block, those of the upper triangle."""
        side, within = self.tile or _ROWS, len(blocks) == 1
        x, y = self.ready(blocks[0], blocks[-1])
        for i in range(0, len(x), side):
            rows = x[i : i + side]
            for j in range(i if within else 0, len(y), side):
                own = within and i == j
                h = self.scale * self.matrix(rows, rows if own else y[j : j + side])
                yield slice(i, i + side), slice(j, j + side), (np.triu(h, 1) if own else h)[None]

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the means of the rows, or columns, of matrices."""
        found = np.empty((len(points), 1))
        for i in range(0, len(points), _ROWS):
            some = points[i : i + _ROWS]
            h = self.matrix(others[0], some).T if k else self.matrix(some, others[-1])
            found[i : i + _ROWS, 0] = h.mean(axis=1)
        return found


def as_rows(points: Points) -> Points:
    """Return points as rows, shape (n, d): single numbers become rows of one column."""
    return points[:, None] if points.ndim == 1 else points


def as_pair(x: Points, z: Points) -> tuple[Points, Points]:
    """Return two samples as contiguous rows, which are to have as many coordinates."""
    x, z = (np.ascontiguousarray(as_rows(points)) for points in (x, z))
    if len(x) and len(z) and x.shape[1] != z.shape[1]:
        raise UserError(
            f"the points of the two samples have {x.shape[1]} and {z.shape[1]} coordinates: pass points of one space"
        )
    return x, z


@np.errstate(over="ignore")
def refuse_close(low: Floats, high: Floats, least: float) -> None:
    """Refuse points that all lie within less than `least` of each other, but not in one place."""
    if 0.0 < float(np.max(high - low, initial=0.0)) < least:
        raise UserError(f"the points are within {least:.0e} of each other, and squares vanish: rescale the points")


def inner_products(left: Points, right: Points, out: Floats) -> None:
    """Write the inner products of all pairs of (a, d) and (b, d) points into an array of shape (a, b).

    128 coordinates at a time: the products of more are summed in parts by a BLAS, and in others when it uses other
    numbers of threads, so that last bits would depend on how many ranks share a machine.
    """
    np.matmul(left[:, :_COORDINATES], right[:, :_COORDINATES].T, out=out)
    for j in range(_COORDINATES, left.shape[1], _COORDINATES):
        out += left[:, j : j + _COORDINATES] @ right[:, j : j + _COORDINATES].T
