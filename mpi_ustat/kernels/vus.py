"""The volume under the ROC surface (VUS) of K ordered classes, from sorted scores instead of tuples.

For K = 2 and 3 the class in the middle is the pivot (`middle_class`). More classes are counted by transfer matrices
(`chains`), their margins by pairs of chains (`chain_pairs`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import k_sample_components, subsets
from mpi_ustat.kernels.chain_pairs import ChainPairs
from mpi_ustat.kernels.chains import chains_below, class_counts, transfer_matrix
from mpi_ustat.kernels.kernel import UNIT, Kernel, Local, OnePart, PairSum, Points
from mpi_ustat.kernels.middle_class import Credits, look_around, margin_sums, scaled_total
from mpi_ustat.kernels.options import Option
from mpi_ustat.kernels.route import Route
from mpi_ustat.numerics.exactsum import exact_count
from mpi_ustat.numerics.runs import Runs
from mpi_ustat.numerics.types import Floats, Ints

_MOST_CLASSES = 20  # 20! is the last factorial below 2**63
_MOST_WITH_COMPONENTS = 12  # classes: of K there are 2^K components, from 4·2^K numbers at each score
_MOST_BY_BLOCKS = 1 << 14  # of those, over all blocks and rounds: at 0.2 ms each, 3 s beside sums of 0.3 ms a block

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

    def doubts_about(self, value: float) -> list[str]:
        """Say what a VUS of 0 may come from."""
        if value != 0.0 or self.shared:
            return []
        return [
            "no scores of one point of each class rise in the order of the classes: these may be in another order, or "
            'the scores have fewer levels than there are classes, and ties count 0 without ties="shared"'
        ]

    def influence_options(self) -> dict[str, Any]:
        """Return how ties count, as an option."""
        return {"ties": self.ties}

    def block_total(self, *blocks: Points) -> int:
        """Return `scale` times the sum of h over all tuples, in O(n log n) with n = Σ n_k (times K³ for K ≥ 4)."""
        classes = [Runs(np.sort(block)) for block in blocks]
        if self.n_classes > 3:
            return transfer_matrix(class_counts(classes), shared=self.shared)[0][-1]
        return scaled_total(look_around(classes, self.credits), self.credits, [len(block) for block in blocks])

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
        classes = [Runs(np.sort(block)) for block in blocks]
        if self.n_classes <= 3:
            return self.local_of_margins(margin_sums(look_around(classes, self.credits), self.credits, sizes), sizes)
        pairs = ChainPairs(self.n_classes, shared=self.shared)
        pairs.walk(class_counts(classes))
        return self.local_of_pairs(pairs.sums_of_squares(), sizes)

    def projections(self, k: int, points: Points, others: Sequence[Points]) -> Floats:
        """Return the shares of tuples in ascending order among those that each point of class k makes with the others.

        Without ties the chains of lower classes that end below a point go with all those of higher ones that begin
        above it. Shared credit of points that tie is found as any kernel's, score by score.
        """
        others = [*others[:k], points, *others[k + 1 :]]
        if self.shared and len(np.unique(pooled := np.concatenate(others))) < len(pooled):
            scores, places = np.unique(points, return_inverse=True)
            return super().projections(k, scores, others)[places]
        chains = chains_below(others[: k + 1]) * chains_below([-each for each in others[: k - 1 if k else None : -1]])
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

    def _values(self, points: Sequence[Points]) -> Ints:
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
