"""The volume under the ROC surface (VUS) of K ordered classes, from sorted scores instead of tuples.

Every number here is an integer, found exactly: sums over ranges of scores, blocks or ranks may be joined in any way.

For K = 2 and 3 the class in the middle is the pivot: given the numbers of lower and higher points around each of its
points, all margins of the kernel and their sums of squares are sums of products of prefix sums (`margin_sums`). More
classes are counted by transfer matrices (`transfer_matrix`), their margins by pairs of chains (`ChainPairs`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import k_sample_components, subsets
from mpi_ustat.kernels.chain_pairs import ChainPairs
from mpi_ustat.kernels.kernel import UNIT, Array, Kernel, Local, OnePart, PairSum, Points
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.rankstat import exact_count, starts_of_runs

Counts = NDArray[Any]
"""int64; Python integers (dtype object) where products of two counts might not fit into 64 bits."""

Matrix = list[list[int]]

_MOST_CLASSES = 20  # 20! is the last factorial below 2**63
_MOST_WITH_COMPONENTS = 12  # classes: of K there are 2^K components, from 4·2^K numbers at each score
_MOST_BY_BLOCKS = 1 << 14  # of those, over all blocks and rounds: at 0.2 ms each, 3 s beside sums of 0.3 ms a block
_INT64 = 1 << 63
_PIECE = 1 << 14  # scores whose sums are found at a time: what comes in between stays in a core's cache


TIES = Option("ties", "VUS strict or shared", "strict", choices=("strict", "shared"))


class VUS(OnePart):
    """h(x_1, …, x_K) = 1{x_1 < x_2 < … < x_K}: U_n estimates the probability that scores come in their classes' order.

    With ``ties="shared"`` a tuple that is in weak order gets Π 1/g! over its groups of g equal points, which is its
    probability of the strict order when ties are broken at random; otherwise ties count 0. K = 2 is the AUC, the last
    class having the positives. Totals are 1 (strict) or K! times the sum of h, whole numbers.

    Parameters
    ----------
    n_classes : int
        K, at least 2 and at most 20. Sample k has the scores of class k, the lowest class first.
    ties : {"strict", "shared"}

    Raises
    ------
    UserError
        If there is no such treatment of ties, or the number of classes is out of range.
    """

    name = "vus"
    samples = ()
    options = (TIES,)
    unit = "1"
    complete_route = Route("vus", "mpi_ustat.complete.vus:vus")
    influence_route = "mpi_ustat.influence.vus:vus"
    allows_infinite = True
    n_coordinates = 1
    limits = UNIT

    def __init__(self, n_classes: int = 3, ties: str = TIES.default) -> None:
        if not 2 <= n_classes <= _MOST_CLASSES:
            raise UserError(f"a VUS needs 2 to {_MOST_CLASSES} classes, not {n_classes}")
        self.ties = TIES.checked(ties)
        self.n_classes = n_classes
        self.degrees = (1,) * n_classes
        self.scale = math.factorial(n_classes) if self.shared else 1
        self.projection_rows = super().projection_rows if self.shared else 20_000

    @classmethod
    def of_samples(cls, n_samples: int, **options: Any) -> Kernel:
        """Return the kernel of so many classes."""
        return cls(n_samples, **options)

    @property
    def shared(self) -> bool:
        """Whether tied tuples get a share of the credit."""
        return self.ties == "shared"

    @property
    def credits(self) -> Credits:
        """What tuples of up to three points get, times `scale`."""
        return Credits(self.scale, self.scale // 2, self.scale // 6) if self.shared else Credits(1, 0, 0)

    def influence_options(self) -> dict[str, Any]:
        """Return what ties count."""
        return {"ties": self.ties}

    def block_total(self, *blocks: Points) -> int:
        """Return `scale` times the sum of h over all tuples, in O(n log n) with n = Σ n_k (times K³ for K ≥ 4)."""
        classes = [Tally(np.sort(block)) for block in blocks]
        if self.n_classes > 3:
            return transfer_matrix(class_counts(classes), shared=self.shared)[0][-1]
        return _total(look_around(classes, self.credits), self.credits, [len(block) for block in blocks])

    def pairs_total(self, *points: Points) -> int:
        """Return `scale` times the sum of h over B aligned tuples, given as K arrays of B scores."""
        return exact_count(self._values(points), self.scale)

    def local(self, *blocks: Points) -> Local:
        """Return the sum over all tuples, and estimates of the Hoeffding components.

        That takes O(n log n) with n = Σ n_k, times 2^K for K ≥ 4. No component is estimated from blocks with fewer than
        two points of a class, nor of more than 12 classes.
        """
        sizes = [len(block) for block in blocks]
        if min(sizes) == 0:
            return Local((PairSum(0, 0),), None)
        if not self.finds_components(sizes):
            return Local(self.block_sums(*blocks), None)
        classes = [Tally(np.sort(block)) for block in blocks]
        if self.n_classes <= 3:
            return self.local_of_margins(margin_sums(look_around(classes, self.credits), self.credits, sizes), sizes)
        pairs = ChainPairs(self.n_classes, shared=self.shared)
        pairs.walk(class_counts(classes))
        return self.local_of_pairs(pairs.sums_of_squares(), sizes)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Array:
        """Return the shares of tuples in ascending order among those that each point of class k makes with the others.

        Without ties the chains of lower classes that end below a point go with all those of higher ones that begin
        above it. Shared credit of points that tie is found as any kernel's, score by score.
        """
        others = [*others[:k], points, *others[k + 1 :]]
        if self.shared and len(np.unique(pooled := np.concatenate(others))) < len(pooled):
            scores, places = np.unique(points, return_inverse=True)
            return super().projections(k, scores, others)[places]
        chains = _chains_below(others[: k + 1]) * _chains_below([-each for each in others[: k - 1 if k else None : -1]])
        return (chains / math.prod(len(each) for j, each in enumerate(others) if j != k))[:, None]

    def finds_components(self, sizes: Sequence[int]) -> bool:
        """Tell whether Hoeffding components are estimated from blocks of these sizes."""
        return self.n_classes <= _MOST_WITH_COMPONENTS and min(sizes) >= 2

    def worth_components(self, n_blocks: int) -> bool:
        """Tell whether so many blocks are to give components: 2^K each, or next to nothing for K = 2 and 3."""
        return self.n_classes <= 3 or n_blocks << self.n_classes <= _MOST_BY_BLOCKS

    def local_of_pairs(self, squares: Mapping[tuple[int, ...], int], sizes: Sequence[int]) -> Local:
        """Return the `Local` of samples of these sizes from the numbers of their `ChainPairs`."""
        return self.local_of_margins({**squares, (): math.isqrt(squares[()])}, sizes)

    def local_of_margins(self, margins: Mapping[tuple[int, ...], int], sizes: Sequence[int]) -> Local:
        """Return the `Local` of samples of these sizes from their `margin_sums`."""
        total = PairSum(margins[()], math.prod(sizes))
        if not self.finds_components(sizes):
            return Local((total,), None)
        return Local((total,), k_sample_components(sizes, _sums_of_squares(margins, sizes, self.scale)))

    def _values(self, points: Sequence[Points]) -> NDArray[np.int64]:
        """Return `scale` times h of arrays of scores, one for each class, that broadcast together."""
        h: Any = np.int64(self.scale)
        run: Any = np.int64(1)
        for lower, higher in itertools.pairwise(points):
            if self.shared:
                # The divisions are exact: the runs so far, of g_1, g_2, … points, are of at most K points together,
                # and Π g! divides K!.
                run = np.where(lower == higher, run + 1, 1)
                h = h // run * (lower <= higher)
            else:
                h = h * (lower < higher)
        return np.asarray(h, dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# The classes around the middle one


class Credits(NamedTuple):
    """What h gives, times the kernel's scale: Credits(1, 0, 0), or (K!, K!/2, K!/6) where ties share."""

    in_order: int
    one_tie: int
    all_tied: int


@dataclass(frozen=True, eq=False)
class Tally:
    """The scores of one class.

    Attributes
    ----------
    values : ndarray of float64, shape (D,)
        In ascending order.
    cumulative : ndarray of int64, shape (D + 1,), optional
        ``cumulative[i]`` points have one of the first i values, which are distinct; None: every entry is one point.
    """

    values: Points
    cumulative: NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.values) if self.cumulative is None else int(self.cumulative[-1])

    def count(self, scores: Points, side: Literal["left", "right"]) -> NDArray[np.int64]:
        """Return how many points lie below each score (left), or at or below it (right)."""
        entries = np.searchsorted(self.values, scores, side=side)
        return entries if self.cumulative is None else self.cumulative[entries]

    def below_and_at(self, scores: Points) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Return how many points lie below each score and how many at it, None if there are none at any."""
        left = np.searchsorted(self.values, scores, side="left")
        below = left if self.cumulative is None else self.cumulative[left]
        if len(self.values) == 0:
            return below, None
        found = self.values[np.minimum(left, len(self.values) - 1)] == scores
        if not found.any():
            return below, None
        at = np.zeros_like(below)
        at[found] = self.count(scores[found], side="right") - below[found]
        return below, at


class Around(NamedTuple):
    """What lies around the points of the middle class, in ascending order of these.

    Attributes
    ----------
    values : ndarray of float64, shape (D,)
        The points.
    copies : ndarray of int, shape (D,), or None
        How many points have each value, the values being distinct; None: every entry is one point.
    counts : tuple of 2 or 4 ndarrays of int, shape (D,)
        Points of the lower class below each value, and of the higher class above it; and, unless no tie earns a
        credit, of the lower class and of the higher class at it.
    """

    values: Points
    copies: Counts | None
    counts: tuple[Counts, ...]

    def piece(self, start: int, stop: int) -> Around:
        """Return a run of entries."""
        cut = slice(start, stop)
        copies = None if self.copies is None else self.copies[cut]
        return Around(self.values[cut], copies, tuple(each[cut] for each in self.counts))

    def joined(self) -> Around:
        """Return the distinct values with the numbers of their copies."""
        if self.copies is not None:
            return self
        starts = np.flatnonzero(starts_of_runs(self.values))
        copies = np.diff(starts, append=len(self.values))
        return Around(self.values[starts], copies, tuple(each[starts] for each in self.counts))

    def within(self, n_below: int, n_above: int) -> Around:
        """Return what lies around the points when there are so many more lower and higher points further away."""
        below, above, *ties = self.counts
        return self._replace(counts=(below + n_below, above + n_above, *ties))


def look_around(classes: Sequence[Tally], credits: Credits) -> Around:
    """Return how many points of the first and third class lie around each of the second.

    Two classes are taken for three, the third being a single point above everything: h and its margins are the same.
    """
    lower, middle = classes[:2]
    higher = classes[2] if len(classes) == 3 else Tally(np.array([np.nan]))  # NaN is sorted after infinity
    values = middle.values
    copies = None if middle.cumulative is None else np.diff(middle.cumulative)
    if credits.one_tie == 0:
        above = higher.size - higher.count(values, side="right")
        return Around(values, copies, (lower.count(values, side="left"), above))
    below, tied_below = lower.below_and_at(values)
    under, tied_above = higher.below_and_at(values)
    if tied_below is None and tied_above is None:
        return Around(values, copies, (below, higher.size - under))
    tied_below, tied_above = (np.zeros_like(below) if at is None else at for at in (tied_below, tied_above))
    return Around(values, copies, (below, higher.size - under - tied_above, tied_below, tied_above))


def side_sums(around: Around, credits: Credits, sizes: Sequence[int]) -> tuple[int, int]:
    """Return Σ L and Σ R over the points of the middle class, which `margin_sums` of neighbouring ranges want."""
    sums = _Sums(credits, sizes, around)
    below, above, *ties = map(sums.whole, around.counts)
    left, right = credits.in_order * below, credits.in_order * above
    if ties:
        left, right = left + credits.one_tie * ties[0], right + credits.one_tie * ties[1]
    if around.copies is not None:
        left, right = left * around.copies, right * around.copies
    return int(left.sum()), int(right.sum())  # at most α times the product of two sizes: see `_Sums`


def margin_sums(
    around: Around, credits: Credits, sizes: Sequence[int], *, before: int = 0, after: int = 0
) -> dict[tuple[int, ...], int]:
    """Return the sums of squares of all margins of h over two or three classes, exactly, from a range of scores.

    The margin m_S is the sum of the scaled h over the points of the classes outside S, a function of one point of each
    class in S. All sums are sums over the points y of the middle class, here over the distinct values v of them, d in
    number: with lt lower points below v, ex at v, gt higher points above v and ez at v, and with α, β, γ the credits
    (in order, one tie, all tied),

        R = α gt + β ez   is the sum of h over the higher class for y = v and an x below v, R' = β gt + γ ez for x = v;
        L = α lt + β ex   is that over the lower class for a z above v, and L' = β lt + γ ex for z = v.

    So m_2 = lt R + ex R', m_12 = R (lt times) and R' (ex times), m_23 likewise, and q = Σ_xz h² = α² lt gt + β² (lt ez
    + ex gt) + γ² ex ez. Summing them or their squares gives the total, Σ m_2², Σ m_12², Σ m_23², Σ m_123² = Σ d q.

    m_13² counts pairs of points of the middle class: two at v < v' both lie between the same x and z in L_v R_v' ways
    (x is then below v', and z above v), two at the same v in q ways: Σ m_13² = Σ d² q + 2 Σ_{v<v'} d_v L_v d_v' R_v'.

    m_1 falls as x rises: below v, but not below its predecessor, it is S_v = Σ_{v'≥v} d R; at v it is Y_v = S_{v+1} +
    d R'; above, S_{v+1}. Adding up squares by these steps instead of by x (Abel),

        Σ m_1² = Σ_v [lt (S_v² - Y_v²) + (lt + ex)(Y_v² - S_{v+1}²)]
               = Σ_v d [lt (R - R')(S_v + Y_v) + (lt + ex) R' (Y_v + S_{v+1})],

    a sum over the middle class again; Σ m_3² is its mirror image. No values need be joined where no tie earns a credit
    (ex = ez = 0): each copy of a value may then be taken for a value of its own.

    Parameters
    ----------
    around : Around
        Of a range of scores, its numbers being those of the whole samples.
    credits : Credits
    sizes : sequence of int, length K = 2 or 3
        Of the whole samples.
    before, after : int
        Σ L over the points of the middle class below the range, and Σ R over those above it.

    Returns
    -------
    dict
        S to Σ m_S² for the non-empty subsets S of {0, …, K-1}, and () to the total, m_∅. The sums over disjoint
        ranges add up to those of the whole.
    """
    if len(around.counts) > 2:
        around = around.joined()
    pieces = [around.piece(i, i + _PIECE) for i in range(0, len(around.values), _PIECE)] or [around]
    margins: dict[tuple[int, ...], int] = {}
    sides = [side_sums(piece, credits, sizes) for piece in pieces]
    after += sum(right for _, right in sides)
    for piece, (left, right) in zip(pieces, sides, strict=True):
        after -= right
        found = _untied_margin_sums if piece.copies is None else _tied_margin_sums
        for s, value in found(piece, credits, _Sums(credits, sizes, piece), before, after).items():
            margins[s] = margins.get(s, 0) + value
        before += left
    return margins if len(sizes) == 3 else {s: value for s, value in margins.items() if 2 not in s}


def _untied_margin_sums(
    around: Around, credits: Credits, sums: _Sums, before: int, after: int
) -> dict[tuple[int, ...], int]:
    alpha = credits.in_order
    below, above = map(sums.whole, around.counts)
    left, right = alpha * below, alpha * above
    both = below * right
    to_left, to_right = np.cumsum(left), np.cumsum(right)
    twice_before = 2 * (to_left + before) - left
    twice_after = 2 * (right.sum() - to_right + after) + right
    one, three, two, low, high = map(sums.split, (left, right, both, twice_before, twice_after))
    total = sums.dot(one, three) // alpha
    return {
        (): total,
        (0,): sums.dot(two, high),
        (1,): sums.dot(two, two),
        (2,): sums.dot(two, low),
        (0, 1): sums.dot(two, three),
        (0, 2): sums.dot(one, high),
        (1, 2): sums.dot(two, one),
        (0, 1, 2): alpha * total,
    }


def _tied_margin_sums(
    around: Around, credits: Credits, sums: _Sums, before: int, after: int
) -> dict[tuple[int, ...], int]:
    alpha, beta, gamma = credits
    assert around.copies is not None
    nothing = np.zeros_like(around.copies)
    d, lt, gt, ex, ez = map(sums.whole, (around.copies, *around.counts, nothing, nothing)[:5])
    right, right_tied = alpha * gt + beta * ez, beta * gt + gamma * ez
    left, left_tied = alpha * lt + beta * ex, beta * lt + gamma * ex
    from_here, up_to_here = d * right, d * left
    behind = from_here.sum() - np.cumsum(from_here) + after  # S of the next value
    ahead = np.cumsum(up_to_here) - up_to_here + before
    at_x, at_z = behind + d * right_tied, ahead + d * left_tied
    both = lt * right + ex * right_tied
    squares = alpha**2 * lt * gt + beta**2 * (lt * ez + ex * gt) + gamma**2 * ex * ez

    def dot(*pairs: tuple[Counts, Counts]) -> int:
        return sum(sums.dot([d * part for part in sums.split(a)], sums.split(b)) for a, b in pairs)

    ones = np.ones_like(d)
    return {
        (): dot((both, ones)),
        (0,): dot((lt * (right - right_tied), behind + from_here + at_x), ((lt + ex) * right_tied, at_x + behind)),
        (1,): dot((both, both)),
        (2,): dot((gt * (left - left_tied), ahead + up_to_here + at_z), ((gt + ez) * left_tied, at_z + ahead)),
        (0, 1): dot((lt * right, right), (ex * right_tied, right_tied)),
        (0, 2): dot((d, squares), (2 * left, behind)),
        (1, 2): dot((gt * left, left), (ez * left_tied, left_tied)),
        (0, 1, 2): dot((squares, ones)),
    }


class _Sums:
    """Exact sums of products a·b of counts, weighted by numbers of points that add up to at most n.

    Where the sum could pass 2⁶³, a and b are split into limbs of w bits with n·2^(2w) ≤ 2⁶², and the sums of products
    of limbs are joined as Python integers. Every a and b here is at most twice the product of two sizes and of the
    square of the largest credit; where that could pass 2⁶³ itself, the counts are Python integers from the start.
    """

    def __init__(self, credits: Credits, sizes: Sequence[int], around: Around) -> None:
        alpha = credits.in_order
        self._huge = 2 * alpha**2 * max(sizes) ** 2 >= _INT64
        points = len(around.values) if around.copies is None else int(around.copies.sum())
        self._width = (62 - points.bit_length()) // 2
        # No sum here is above (α Π n)²: each is a part of some Σ m_S².
        if self._huge or (alpha * math.prod(sizes)) ** 2 < _INT64:
            self._width = 0

    def whole(self, counts: Counts) -> Counts:
        """Return the counts in a type that holds products of two of them."""
        return counts.astype(object) if self._huge else counts

    def split(self, values: Counts) -> list[Counts]:
        """Return the limbs of non-negative integers, low ones first."""
        if self._width == 0:
            return [values]
        n_limbs = max(1, -(-int(values.max(initial=0)).bit_length() // self._width))
        mask = (1 << self._width) - 1
        return [(values >> (i * self._width)) & mask for i in range(n_limbs)]

    def dot(self, a: list[Counts], b: list[Counts]) -> int:
        """Return Σ a·b."""
        return sum(
            int((left * right).sum() if self._huge else left @ right) << (self._width * (i + j))
            for i, left in enumerate(a)
            for j, right in enumerate(b)
        )


def _chains_below(classes: Sequence[Points]) -> Array:
    """Return, for each point of the last class, the number of ascending chains of points of all before it below it."""
    chains: Array = np.ones(len(classes[0]))
    for lower, higher in itertools.pairwise(classes):
        order = np.argsort(lower)
        below = np.concatenate([[0.0], np.cumsum(chains[order])])
        chains = below[np.searchsorted(lower[order], higher, side="left")]
    return chains


def _total(around: Around, credits: Credits, sizes: Sequence[int]) -> int:
    """Return the scaled sum of h, each entry of `around` being one point."""
    alpha, beta, gamma = credits
    below, above, *ties = map(_Sums(credits, sizes, around).whole, around.counts)
    terms = alpha * below * above
    if ties:
        terms += beta * (below * ties[1] + ties[0] * above) + gamma * ties[0] * ties[1]
    return sum(terms.tolist()) if terms.dtype == object else exact_count(terms, alpha * max(sizes) ** 2)


# ---------------------------------------------------------------------------------------------------------------------
# From margins to components


def _sums_of_squares(
    margins: Mapping[tuple[int, ...], int], sizes: Sequence[int], scale: int
) -> dict[tuple[int, ...], float]:
    """Return SS_Q of `k_sample_components` from the sums of squares of margins, each rounded once.

    The means over the classes outside S, m̄_S = m_S/Π_{k∉S} n_k, have the uncorrected sums of squares T_S = Π_{k∉S} n_k
    · Σ m̄_S² = Σ m_S²/Π_{k∉S} n_k, which are sums of those of the orthogonal interactions, T_Q = Σ_{S⊆Q} SS_S. Hence
    SS_Q = Σ_{S⊆Q} (-1)^{|Q|-|S|} T_S; the numerators over Π n_k are whole numbers.
    """
    n_classes = len(sizes)
    numerators = {s: margins[s] * math.prod(sizes[k] for k in s) for s in subsets(n_classes)}
    numerators[()] = margins[()] ** 2
    for k in range(n_classes):
        for s in subsets(n_classes):
            if k in s:
                numerators[s] -= numerators[tuple(each for each in s if each != k)]
    denominator = math.prod(sizes) * scale**2
    return {s: numerators[s] / denominator for s in subsets(n_classes)}


# ---------------------------------------------------------------------------------------------------------------------
# Any number of classes


def class_counts(classes: Sequence[Tally]) -> NDArray[np.int64]:
    """Return how many points of each class have each distinct score, shape (K, D), scores in ascending order."""
    scores = np.unique(np.concatenate([each.values for each in classes]))
    return np.array([np.diff(each.count(scores, side="right"), prepend=0) for each in classes])


def transfer_matrix(counts: NDArray[np.int64], *, shared: bool) -> Matrix:
    """Return what a range of scores contributes to chains that enter it with a classes done and leave it with b.

    Let E[a][b] be the sum of credits over the choices of a point of each of the classes a+1 … b in the range that are
    in order (E[a][a] = 1). A chain through two neighbouring ranges leaves the first with some number of classes done,
    and no tie crosses the border, so the matrix of both ranges is the product E·E'. A range of a single score v, of
    which class l has c_l points, has E[a][b] = Π_{a<l≤b} c_l/(b - a)!; strictly it has c_{a+1} for b = a + 1, nothing
    for b > a + 1. Multiplied by (b - a)! (shared) all entries are whole numbers, T = (b - a)!·E, and products get
    binomial factors, see `chained`.

    Many scores are done at once: I_b(v), the entry of the scores below v, grows by

        Σ_{j=1}^{b-a} C(b-a, j) I_{b-j}(v) Π_{b-j<l≤b} c_l(v)         (strict: I_{b-1}(v) c_b(v))

    from v to the next score, which needs only I of smaller b: one cumulative sum over the scores for each b. A range
    whose entries might pass 2⁶³ is halved.

    Parameters
    ----------
    counts : ndarray of int64, shape (K, D)
        Points of each class with each score, in ascending order of the scores.
    shared : bool
        Whether ties share the credit.

    Returns
    -------
    list of K + 1 lists of K + 1 int
        Upper triangular; ``[0][K]`` is the scaled sum of h over all tuples in the range.
    """
    n_classes, n_scores = counts.shape
    sizes = [max(size, 1) for size in counts.sum(axis=1).tolist()]
    matrix = [[int(a == b) for b in range(n_classes + 1)] for a in range(n_classes + 1)]
    if n_scores == 1:
        for a in range(n_classes):
            for b in range(a + 1, n_classes + 1 if shared else a + 2):
                matrix[a][b] = math.prod(counts[a:b, 0].tolist())
    elif n_scores > _PIECE or (n_scores and (math.factorial(n_classes) if shared else 1) * math.prod(sizes) >= _INT64):
        half = n_scores // 2
        return chained(
            transfer_matrix(counts[:, :half], shared=shared),
            transfer_matrix(counts[:, half:], shared=shared),
            shared=shared,
        )
    elif n_scores:
        for a in range(n_classes):
            before: list[Any] = [1]  # I_a, I_{a+1}, …
            for b in range(a + 1, n_classes + 1):
                growth, product = np.zeros(n_scores, dtype=np.int64), np.ones(n_scores, dtype=np.int64)
                for j in range(1, b - a + 1 if shared else 2):
                    product = product * counts[b - j]
                    growth += (math.comb(b - a, j) if shared else 1) * before[b - a - j] * product
                after = np.cumsum(growth)
                matrix[a][b] = int(after[-1])
                before.append(after - growth)
    return matrix


def chained(low: Matrix, high: Matrix, *, shared: bool) -> Matrix:
    """Return the transfer matrix of two neighbouring ranges: T[a][c] = Σ_b C(c-a, b-a) low[a][b] high[b][c].

    The binomial factor is (c-a)!/((b-a)! (c-b)!), from the factorials in T; strictly it is 1.
    """
    size = len(low)
    return [
        [
            sum((math.comb(c - a, b - a) if shared else 1) * low[a][b] * high[b][c] for b in range(a, c + 1))
            for c in range(size)
        ]
        for a in range(size)
    ]
