"""The library's way to test whether several samples are alike: `test_samples`."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from mpi_ustat.estimation.estimate import configured
from mpi_ustat.estimation.printed import p_equals
from mpi_ustat.estimation.problem import Problem, set_up
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.kernel import Kernel, Points
from mpi_ustat.kernels.registry import make_kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.runtime import PhaseClock, check_same_options
from mpi_ustat.numerics.types import Floats
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout, lay_out_all
from mpi_ustat.testing.labellings import Form, alike, relabelled_values
from mpi_ustat.testing.omnibus import Omnibus, holm, weights
from mpi_ustat.testing.relabelled import Relabelling
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.several import Found, Listed, found_by, listed
from mpi_ustat.testing.test import (
    DEFAULT_PERMUTATIONS,
    check_options,
    check_sums,
    kernels_of,
    spread,
    told,
    value_of,
    with_all,
    with_first,
)

_VALUES = 1 << 24  # of pairs that are relabelled together


@dataclass(frozen=True)
class PairTest:
    """What the test of two of several samples has found.

    Attributes
    ----------
    first, second : int
        The samples, from 0.
    value : float
        Their discrepancy; of several kernels the largest studentised one.
    p : float
        Of the blocks of these two samples relabelled.
    p_holm : float
        Corrected for how many pairs of samples there are: among those of one law, none has α or less with the
        probability 1 - α at least.
    n_permutations : int
    exact : bool
        Whether these are all labellings.
    """

    first: int
    second: int
    value: float
    p: float
    p_holm: float
    n_permutations: int
    exact: bool


@dataclass(frozen=True, kw_only=True)
class SamplesTest(TestResult):
    """What a test has found that several samples are of one law; the same on every rank.

    As `TestResult`, with the value Q = Σ_{k<l} n_k n_l / (2N) T_kl of the discrepancies T_kl of every two samples.

    Attributes
    ----------
    pairs : tuple of PairTest
        Of every two samples.
    """

    __test__: ClassVar[bool] = False
    whom: ClassVar[str] = "all samples"

    pairs: tuple[PairTest, ...]

    def summary(self) -> dict[str, Any]:
        """Return everything but the relabelled values, as JSON can hold it; the value is called `estimate`."""
        return super().summary() | {"pairs": [asdict(each) for each in self.pairs]}

    def rows(self, classes: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """Return the rows of the table; `classes` are names of the samples, where they have any."""
        (name, value), *others = super().rows(classes)
        return [(name, f"{value}, of {len(self.sizes)} samples"), *others, *self._of_pairs(classes)]

    def _of_pairs(self, classes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        names = [each.removeprefix("of the class ") for each in classes] or [str(k) for k in range(len(self.sizes))]
        for j, pair in enumerate(self.pairs):
            whom = f"{names[pair.first]}, {names[pair.second]}: {pair.value:.6g}"
            told = f"{whom}, p {p_equals(pair.p)}, Holm {p_equals(pair.p_holm)}"
            yield "" if j else "pairs", told


class _Tested(NamedTuple):
    exact: bool
    found: Found


@deferred()
def test_samples(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | Kernel = "energy",
    *,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    n_workers: int | None = None,
    seed: int | None = None,
    kernel_options: Mapping[str, Any] | None = None,
) -> SamplesTest:
    """Test that K samples, spread over the ranks of a communicator, are of one law.  Collective.

    As `test`, with all samples over blocks of one size, and the statistic

        Q = Σ_{k<l} n_k n_l / (2N) T_kl,

    T_kl the unbiased discrepancies of every two samples (`mpi_ustat.testing.omnibus`). From the same sums over pairs of
    blocks comes a test of every two samples, which relabels their blocks alone, with Holm's correction.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray, shape (n_local,) or (n_local, d)
        This rank's points of each sample.
    kernel : {"energy", "mmd"} or Discrepancy
    n_permutations : int
        R, at least 19.
    n_workers : int, optional
        Blocks of all samples together, about; by default 256/K to 512/K of the smallest, and up to 512 in all.
    seed : int, optional
    kernel_options : mapping, optional
        Options of the kernel, by name. The bandwidth of the MMD may be a list, as of `test`: Q and the value of every
        two samples are then the largest studentised ones.

    Returns
    -------
    SamplesTest
        The same bits on every rank, and for every number of them. Of two samples p is that of `test`.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the kernel fails on any rank.
    """
    check_options(kernel, n_permutations, n_workers)
    lists = listed(kernel, kernel_options)
    options = with_first(kernel_options, lists)
    made = of_samples(kernel, len(samples), options)
    config, _ = configured(
        comm,
        samples,
        made,
        n_workers=None,
        seed=seed,
        ties="",
        kernel_options=None,
        tile=DEFAULT_TILE,
        complete=True,
        stderr=False,
    )
    problem = set_up(comm, samples, config, kernel=made, workers_given=False)
    return samples_tested(problem, options, n_permutations, n_workers, PhaseClock(), lists)


def of_samples(kernel: str | Kernel, n_samples: int, options: Mapping[str, Any] | None) -> Kernel:
    """Return the kernel of every two of so many samples.

    Raises
    ------
    UserError
        If there is no such kernel, or an option is not its own.
    """
    made = copy.copy(make_kernel(kernel, options=options))
    made.degrees = (2,) * n_samples
    return made


def samples_tested(
    problem: Problem,
    options: Mapping[str, Any],
    n_permutations: int,
    n_workers: int | None,
    clock: PhaseClock,
    lists: Listed | None = None,
) -> SamplesTest:
    """Return the test of samples that are set up, with the first of `lists` among the kernel's options.  Collective."""
    comm, given = problem.comm, {"n_permutations": n_permutations, "n_workers": n_workers, "kernel_options": lists}
    check_same_options(comm, given)
    layout = lay_out_all(problem.sizes, None if n_workers is None else int(n_workers))
    problem = replace(problem, config=replace(problem.config, kernel_options=dict(options)))
    kernels = kernels_of(problem, lists, layout, n_permutations)
    with clock("gather"):
        points = spread(problem, layout)
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in problem.exchanges)
    with clock("sweep"):
        sums = block_sums(comm, points, layout, kernels)
    check_sums(problem, sums)
    with clock("relabel"):
        forms = alike(comm, lambda: [Omnibus.of(each, layout, kernels[0].sign) for each in sums])
        (whole,) = _tested(problem, [forms], n_permutations, lists)
        values = [_values(each, layout, kernels[0]) for each in sums]
        pairs = _pairs(problem, sums, layout, n_permutations, lists)
    weight = weights(layout.sizes)
    estimates = [sum(weight[pair] * value for pair, value in each.items()) + 0.0 for each in values]
    if lists is None:
        pairs = tuple(replace(pair, value=values[0][pair.first, pair.second]) for pair in pairs)
    return SamplesTest(
        **told(whole.found, kernels, estimates, lists),
        n_permutations=len(whole.found.relabelled),
        exact=whole.exact,
        sizes=layout.sizes,
        n_blocks=layout.n_blocks,
        block_size=layout.block_size,
        rests=layout.rests,
        kernel=problem.config.kernel,
        kernel_options=with_all(options, lists),
        learnt=problem.learnt,
        seed=problem.config.seed,
        seconds=clock.slowest(comm),
        bytes_moved=sum(comm.allgather(sent)),
        n_ranks=comm.size,
        n_pairs=math.comb(sum(layout.sizes), 2),
        pairs=pairs,
    )


def _of_two(sums: Floats, layout: Layout, pair: tuple[int, int]) -> tuple[Floats, Layout]:
    """Return the sums over pairs of the blocks of two samples, and how these lie over them."""
    (own, rest), (others, other_rest) = ((each[:-1], each[-1]) for each in map(layout.place, pair))
    place = np.concatenate([own, others, [rest, other_rest]])
    sizes, n_blocks = (tuple(each[k] for k in pair) for each in (layout.sizes, layout.n_blocks))
    return sums[np.ix_(place, place)], Layout(sizes, layout.block_size, n_blocks)


def _values(sums: Floats, layout: Layout, kernel: Discrepancy) -> dict[tuple[int, int], float]:
    """Return the discrepancies of every two samples."""
    every = combinations(range(len(layout.sizes)), 2)
    return {pair: value_of(*_of_two(sums, layout, pair), kernel) for pair in every}


def _tested(
    problem: Problem, of_each: Sequence[Sequence[Form]], n_permutations: int, lists: Listed | None
) -> list[_Tested]:
    """Return the results of statistics that have the same labellings, each a form for each kernel.  Collective."""
    forms = [form for each in of_each for form in each]
    exact = forms[0].layout.n_relabellings <= int(n_permutations)
    values = relabelled_values(problem.comm, forms, problem.streams, None if exact else int(n_permutations))
    of_forms = values.reshape(len(of_each), -1, values.shape[1])
    return [
        _Tested(exact, found_by(each, others, listed=lists is not None, exact=exact))
        for each, others in zip(of_each, of_forms, strict=True)
    ]


def _pairs(
    problem: Problem, sums: Floats, layout: Layout, n_permutations: int, lists: Listed | None
) -> tuple[PairTest, ...]:
    """Return the tests of every two samples, from the sums over pairs of their blocks.  Collective."""
    sign = cast(Discrepancy, problem.kernel).sign
    every = list(combinations(range(len(layout.sizes)), 2))
    # Samples with as many blocks have the same labellings, which are drawn once.
    alike_pairs: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for pair in every:
        alike_pairs.setdefault(tuple(sorted(layout.n_blocks[k] for k in pair)), []).append(pair)
    together = max(1, _VALUES // (len(sums) * int(n_permutations)))

    def of_pairs(pairs: Sequence[tuple[int, int]]) -> list[list[Relabelling]]:
        return [[Relabelling.of(*_of_two(each, layout, pair), sign) for each in sums] for pair in pairs]

    tested: dict[tuple[int, int], _Tested] = {}
    for pairs in alike_pairs.values():
        for start in range(0, len(pairs), together):
            some = pairs[start : start + together]
            forms = alike(problem.comm, partial(of_pairs, some))
            tested |= zip(some, _tested(problem, forms, n_permutations, lists), strict=True)
    corrected = holm(np.array([tested[pair].found.p for pair in every])).tolist()
    return tuple(
        PairTest(*pair, each.found.value, each.found.p, p_holm, len(each.found.relabelled), each.exact)
        for (pair, each), p_holm in zip(((pair, tested[pair]) for pair in every), corrected, strict=True)
    )
