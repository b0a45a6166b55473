"""The library's way to test whether two samples are alike: `test`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import configured, one_or_two
from mpi_ustat.estimation.problem import Problem, set_up
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.kernel import Kernel, Points, as_rows
from mpi_ustat.kernels.registry import KERNELS, find_kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import PhaseClock, check_same_options
from mpi_ustat.numerics.types import Floats
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout, lay_out
from mpi_ustat.testing.labellings import alike, relabelled_values
from mpi_ustat.testing.met import Met
from mpi_ustat.testing.relabelled import Relabelling
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.ring import Ring, lay_ring
from mpi_ustat.testing.several import Found, Listed, Several, found_by, listed

DEFAULT_PERMUTATIONS = 9999
MOST_PERMUTATIONS = 10_000_000
LEAST_PERMUTATIONS = 19
"""With fewer p is never 5 % or less."""


@deferred()
def test(
    comm: Any,
    x: Points,
    z: Points,
    kernel: str | Kernel = "energy",
    *,
    n_permutations: int = DEFAULT_PERMUTATIONS,
    n_rounds: int | None = None,
    n_workers: int | None = None,
    seed: int | None = None,
    kernel_options: Mapping[str, Any] | None = None,
) -> TestResult:
    """Test that two samples, spread over the ranks of a communicator, are of one law.  Collective.

    Each sample is spread uniformly over blocks of equally many points. If all points are independent and of one law,
    the blocks of both samples are exchangeable: with the statistic T and its values T_g where others of the blocks are
    called x's, R of them drawn at random,

        p = (1 + #{T_g ≥ T}) / (R + 1)

    is exact for all sizes, laws and kernels, and takes no more data than the sums over pairs of blocks do, of which T
    is made anyway (Domingo-Enrich, Dwivedi and Mackey, arXiv 2502.07672). Where there are no more than R ways to
    relabel, all of them are taken: p = #{T_g ≥ T}/all.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options.
    x, z : ndarray, shape (n_local,) or (n_local, d)
        This rank's points of each sample; may be empty on some ranks. The global order is that of the ranks.
    kernel : {"energy", "mmd"} or Discrepancy
        Any object of a subclass of `mpi_ustat.kernels.discrepancy.Discrepancy`.
    n_permutations : int
        R, at least 19.
    n_rounds : int, optional
        T: a cheaper test. N workers on a ring hold blocks of both samples, and in each round those meet who are so
        many places apart, another number each round; only pairs of points whose workers have met are evaluated, some
        2T/N of all. The statistic is the mean discrepancy of two that met, and labels are exchanged within workers,
        which leaves that mean's pairs as they are: p is exact all the same (`mpi_ustat.testing.ring`, `…testing.met`).
        From 1 to (N-1)/2; by default all pairs are taken.
    n_workers : int, optional
        Blocks of both samples together, about; by default 128 to 255 of the smaller sample, and as many of the larger
        as are of their size, up to 512 in all. Fewer lose power, more cost time. With `n_rounds` N, by default 33 to
        129, by the size of the smaller sample.
    seed : int, optional
        The common seed of all ranks; drawn by rank 0 when left out, and recorded in the result. It alone decides on
        blocks and labellings, whatever the number of ranks.
    kernel_options : mapping, optional
        Options of the kernel, by name. The bandwidth of the MMD may be a list, with which the statistic is the largest
        studentised one (`mpi_ustat.testing.several`): as exact, and of power where any of them has some.

    Returns
    -------
    TestResult
        The same bits on every rank, and for every number of them.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the kernel fails on any rank.
    """
    check_options(kernel, n_permutations, n_workers, n_rounds)
    samples, lists = one_or_two(comm, x, z), listed(kernel, kernel_options)
    config, made = configured(
        comm,
        samples,
        kernel,
        n_workers=None,
        seed=seed,
        ties="",
        kernel_options=with_first(kernel_options, lists),
        tile=DEFAULT_TILE,
        complete=True,
        stderr=False,
    )
    problem = set_up(comm, samples, config, kernel=made, workers_given=False)
    return carried_out(problem, n_permutations, n_workers, PhaseClock(), lists, n_rounds)


def check_options(
    kernel: object, n_permutations: int, n_workers: int | None = None, n_rounds: int | None = None
) -> None:
    """Refuse kernels that are no discrepancies, and numbers that can't be meant, before anything is read.

    Raises
    ------
    UserError
    """
    kind = find_kernel(kernel) if isinstance(kernel, str) else type(kernel)
    if kind is None or not issubclass(kind, Discrepancy):
        name = kernel if isinstance(kernel, str) else getattr(kernel, "name", getattr(kernel, "__name__", "given"))
        ours = " or ".join(name for name, each in KERNELS.items() if issubclass(each, Discrepancy))
        raise UserError(
            f"the kernel {name} is no discrepancy of two samples, so that nothing can be tested: use {ours}, or a "
            "subclass of Discrepancy"
        )
    for name, number in (
        ("number of permutations", n_permutations),
        ("number of workers", n_workers),
        ("number of rounds", n_rounds),
    ):
        if number is not None and (isinstance(number, bool) or not hasattr(number, "__index__")):
            raise UserError(f"the {name} is {number!r}: give a whole number")
    if not LEAST_PERMUTATIONS <= n_permutations <= MOST_PERMUTATIONS:
        raise UserError(
            f"the number of permutations is {n_permutations}: give from {LEAST_PERMUTATIONS}, with which p can be "
            f"0.05, to {MOST_PERMUTATIONS}"
        )


def carried_out(
    problem: Problem,
    n_permutations: int,
    n_workers: int | None,
    clock: PhaseClock,
    lists: Listed | None = None,
    n_rounds: int | None = None,
) -> TestResult:
    """Return the test of two samples that are set up, with the first of `lists` as an option.  Collective."""
    comm, kernel = problem.comm, cast(Discrepancy, problem.kernel)  # as `check_options` has found
    given = {"n_permutations": n_permutations, "n_workers": n_workers, "n_rounds": n_rounds}
    check_same_options(comm, given | {"kernel_options": lists})
    n, m = problem.sizes
    wanted = None if n_workers is None else int(n_workers)
    layout = lay_out(n, m, wanted) if n_rounds is None else lay_ring(n, m, int(n_rounds), wanted)
    kernels = kernels_of(problem, lists, layout, n_permutations)
    with clock("gather"):
        points = spread(problem, layout)
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in problem.exchanges)
    with clock("sweep"):
        sums = block_sums(comm, points, layout, kernels)
    check_sums(problem, sums)
    with clock("relabel"):
        exact = layout.n_relabellings <= int(n_permutations)
        forms = alike(comm, lambda: [form_of(each, layout, kernel.sign) for each in sums])
        values = relabelled_values(comm, forms, problem.streams, None if exact else int(n_permutations))
        found = alike(comm, lambda: _found(forms, kernels, sums, values, lists, exact=exact))
    return TestResult(
        **found,
        n_permutations=values.shape[1],
        exact=exact,
        sizes=(n, m),
        n_blocks=layout.n_blocks,
        block_size=layout.block_size,
        rests=layout.rests,
        kernel=problem.config.kernel,
        kernel_options=with_all(problem.config.kernel_options, lists),
        learnt=problem.learnt,
        seed=problem.config.seed,
        seconds=clock.slowest(comm),
        bytes_moved=sum(comm.allgather(sent)),
        n_ranks=comm.size,
        **_extent(layout),
    )


def _extent(layout: Layout) -> dict[str, Any]:
    if isinstance(layout, Ring):
        return {"n_pairs": layout.n_pairs, "n_rounds": len(layout.offsets), "n_workers": layout.n_workers}
    return {"n_pairs": math.comb(sum(layout.sizes), 2)}


def form_of(sums: Floats, layout: Layout, sign: int) -> Relabelling:
    """Return the statistic of two samples as a form of finite sums over pairs of blocks."""
    return Met.of(sums, layout, sign) if isinstance(layout, Ring) else Relabelling.of(sums, layout, sign)


def with_all(options: Mapping[str, Any], lists: Listed | None) -> dict[str, Any]:
    """Return a kernel's options with the list where there is one."""
    return dict(options) | ({} if lists is None else {lists.option: list(lists.values)})


def kernels_of(problem: Problem, lists: Listed | None, layout: Layout, n_permutations: int) -> list[Discrepancy]:
    """Return the kernel of a test, or those of a list, if there is memory for what they find.  Collective."""
    kernel = cast(Discrepancy, problem.kernel)  # as `check_options` has found
    if lists is None:
        return [kernel]
    kernels = lists.kernels(kernel, problem.config.kernel_options)
    held = len(kernels) * (50.0 * sum(layout.n_blocks) ** 2 + 40.0 * int(n_permutations))
    refuse_beyond_memory(problem.comm, held, f"the sums of {len(kernels)} kernels over pairs of blocks", "give fewer")
    return kernels


def check_sums(problem: Problem, sums: Floats) -> None:
    """Refuse sums of any kernel that are not finite, or may not be under other labels.  Collective."""
    with np.errstate(over="ignore"):  # all relabelled sums are below that of the absolute values
        problem.check_finite(np.append(sums, [np.abs(each).sum() for each in sums]))


def with_first(options: Mapping[str, Any] | None, lists: Listed | None) -> dict[str, Any]:
    """Return a kernel's options with one value where there is a list."""
    return dict(options or {}) | ({} if lists is None else {lists.option: lists.first})


def _found(
    forms: Sequence[Relabelling],
    kernels: Sequence[Discrepancy],
    sums: Floats,
    relabelled: Floats,
    lists: Listed | None,
    *,
    exact: bool,
) -> dict[str, Any]:
    """Return the value of the statistic with its p-value, and those under other labels."""
    layout = forms[0].layout
    found = found_by(forms, relabelled, listed=lists is not None, exact=exact)
    if isinstance(layout, Ring):
        estimates = found.own.tolist()
    else:
        estimates = [value_of(each, layout, kernel) for each, kernel in zip(sums, kernels, strict=True)]
    return told(found, kernels, estimates, lists)


def told(
    found: Found, kernels: Sequence[Discrepancy], estimates: Sequence[float], lists: Listed | None
) -> dict[str, Any]:
    """Return attributes of a result: the estimate of one kernel, or the largest studentised one of several."""
    result = {"value": estimates[0], "p": found.p, "relabelled": found.relabelled, "unit": kernels[0].unit}
    if lists is None or found.together is None:
        return result
    several = Several.of(lists, kernels, estimates, found.together)
    return result | {"value": found.value, "unit": "1", "several": several}


def value_of(sums: Floats, layout: Layout, kernel: Discrepancy) -> float:
    """Return the discrepancy of two samples as they are labelled, from sums over pairs of blocks."""
    of_x, of_z = layout.place(0), layout.place(1)
    n, m = layout.sizes
    totals = [(of_x, of_x, n * (n - 1)), (of_z, of_z, m * (m - 1)), (of_x, of_z, n * m)]
    means = [float(sums[np.ix_(rows, columns)].sum()) / n_pairs for rows, columns, n_pairs in totals]
    return float(kernel.combine(np.array(means))[0])


def spread(problem: Problem, layout: Layout) -> Points:
    """Return the points of all ranks, in the order of the blocks.  Collective."""
    samples = [as_rows(gather_rows(problem.comm, sample.rows)) for sample in problem.exchanges]
    doing = "spreading the points over blocks"
    return alike(problem.comm, lambda: layout.arranged(samples, problem.streams), doing)
