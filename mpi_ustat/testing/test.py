"""The library's way to test whether two samples are alike: `test`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import configured, one_or_two
from mpi_ustat.estimation.printed import as_text, learnt_rows, p_equals, seconds_row, sizes_text
from mpi_ustat.estimation.problem import Problem, set_up
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.kernel import Kernel, Points, as_rows
from mpi_ustat.kernels.registry import KERNELS, find_kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.mpi.collectives import gather_rows
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.limits import refuse_beyond_memory
from mpi_ustat.mpi.runtime import PhaseClock
from mpi_ustat.numerics.types import Floats
from mpi_ustat.testing.block_sums import block_sums
from mpi_ustat.testing.blocks import Layout, lay_out
from mpi_ustat.testing.labellings import alike, relabelled_values
from mpi_ustat.testing.relabelled import Relabelling, p_value
from mpi_ustat.testing.several import Listed, Several, listed, together

DEFAULT_PERMUTATIONS = 9999
MOST_PERMUTATIONS = 10_000_000
LEAST_PERMUTATIONS = 19
"""With fewer p is never 5 % or less."""

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """What a test has found that two samples are of one law; the same on every rank.

    Attributes
    ----------
    value : float
        The discrepancy, as of `estimate` with `complete`: unbiased, and about 0 for samples of one law. Of several
        kernels, the largest studentised one, in the unit 1.
    p : float
        The share of labellings of the blocks whose value is as large: for samples of one law it is α or less with the
        probability α at most, for every α, size and law.
    n_permutations : int
        Labellings that were evaluated.
    exact : bool
        Whether these were all that there are. Otherwise they were drawn, and the one that is there counts beside them.
    relabelled : ndarray, shape (n_permutations,)
        Their values.
    sizes : tuple of int
        n and m.
    n_blocks : tuple of int
        Blocks of each sample.
    block_size : int
        Points in each block.
    rests : tuple of int
        Points of each sample that are in none, and never change their label.
    kernel : str
    kernel_options : dict
    learnt : dict
        What was taken from all points beforehand, whatever samples they are of: a bandwidth, scales of columns.
    seed : int
    unit : str
        Of the value.
    seconds : dict
        Of the phases, each on the rank that took longest.
    bytes_moved : int
        Bytes that went from one rank to another.
    n_ranks : int
    several : Several or None
        What each kernel has found, where an option has a list of values.
    """

    __test__: ClassVar[bool] = False  # for pytest, whom the name would make curious
    whom: ClassVar[str] = "both samples"

    value: float
    p: float
    n_permutations: int
    exact: bool
    relabelled: Floats = field(repr=False)
    sizes: tuple[int, ...]
    n_blocks: tuple[int, ...]
    block_size: int
    rests: tuple[int, ...]
    kernel: str
    kernel_options: dict[str, Any]
    learnt: dict[str, Any]
    seed: int
    unit: str
    seconds: dict[str, float] = field(repr=False)
    bytes_moved: int
    n_ranks: int
    several: Several | None = None

    def quantile(self, level: float) -> float:
        """Return the lowest relabelled value that a share of `level` of them does not exceed."""
        return float(np.quantile(self.relabelled, level, method="inverted_cdf"))

    @property
    def quantiles(self) -> dict[float, float]:
        """Those of `QUANTILES`."""
        return {level: self.quantile(level) for level in QUANTILES}

    def summary(self) -> dict[str, Any]:
        """Return everything but the relabelled values, as JSON can hold it; the value is called `estimate`."""
        apart = ("value", "relabelled", "several")
        found = {name: value for name, value in vars(self).items() if name not in apart}
        if self.several is not None:
            found["several"] = vars(self.several)
        return (
            {"estimate": self.value}
            | found
            | {"quantiles": {f"{level:g}": each for level, each in self.quantiles.items()}}
        )

    def rows(self, classes: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        """Return the rows of the table; `classes` are names of the samples, where they have any."""
        how = "all" if self.exact else "random"
        joint = " and " if len(self.sizes) == 2 else ", "
        of_each, rests = (joint.join(map(str, each)) for each in (self.n_blocks, self.rests))
        rest = "" if not any(self.rests) else f"; {rests} points keep their label"
        options = "".join(f", {name} {value}" for name, value in self.kernel_options.items())
        levels = ", ".join(f"{each:.6g} ({100 * level:g} %)" for level, each in self.quantiles.items())
        return [
            ("estimate", repr(self.value) + (", the largest studentised" if self.several else "")),
            ("test", f"that {self.whom} are of one law: p {p_equals(self.p)}"),
            ("permutations", f"{how} {self.n_permutations}, of {of_each} blocks of {self.block_size} point(s){rest}"),
            *([] if self.several is None else self.several.rows()),
            ("relabelled", levels),
            ("kernel", self.kernel + options),
            *learnt_rows(self.learnt),
            ("points", sizes_text(self.sizes, classes)),
            ("moved", f"{self.bytes_moved} bytes between {self.n_ranks} rank(s)"),
            ("seed", str(self.seed)),
        ]

    def __str__(self) -> str:
        """Return a short table."""
        return as_text([*self.rows(), seconds_row(self.seconds)])


@deferred()
def test(
    comm: Any,
    x: Points,
    z: Points,
    kernel: str | Kernel = "energy",
    *,
    n_permutations: int = DEFAULT_PERMUTATIONS,
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
    n_workers : int, optional
        Blocks of both samples together, about; by default 128 to 255 of the smaller sample, and as many of the larger
        as are of their size, up to 512 in all. Fewer lose power, more cost time.
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
    check_options(kernel, n_permutations, n_workers)
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
    return carried_out(problem, n_permutations, n_workers, PhaseClock(), lists)


def check_options(kernel: object, n_permutations: int, n_workers: int | None) -> None:
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
    for name, number in (("number of permutations", n_permutations), ("number of workers", n_workers)):
        if number is not None and (isinstance(number, bool) or not hasattr(number, "__index__")):
            raise UserError(f"the {name} is {number!r}: give a whole number")
    if not LEAST_PERMUTATIONS <= n_permutations <= MOST_PERMUTATIONS:
        raise UserError(
            f"the number of permutations is {n_permutations}: give from {LEAST_PERMUTATIONS}, with which p can be "
            f"0.05, to {MOST_PERMUTATIONS}"
        )


def carried_out(
    problem: Problem, n_permutations: int, n_workers: int | None, clock: PhaseClock, lists: Listed | None = None
) -> TestResult:
    """Return the test of two samples that are set up, with the first of `lists` as an option.  Collective."""
    comm, kernel = problem.comm, cast(Discrepancy, problem.kernel)  # as `check_options` has found
    n, m = problem.sizes
    layout = lay_out(n, m, None if n_workers is None else int(n_workers))
    kernels = [kernel] if lists is None else lists.kernels(kernel, problem.config.kernel_options)
    if len(kernels) > 1:
        held = len(kernels) * (50.0 * sum(layout.n_blocks) ** 2 + 40.0 * int(n_permutations))
        refuse_beyond_memory(comm, held, f"the sums of {len(kernels)} kernels over pairs of blocks", "give fewer")
    with clock("gather"):
        points = spread(problem, layout)
    sent = (comm.size - 1) * sum(sample.rows.nbytes for sample in problem.exchanges)
    with clock("sweep"):
        sums = block_sums(comm, points, layout, kernels)
    with np.errstate(over="ignore"):  # all relabelled sums are below that of the absolute values
        problem.check_finite(np.append(sums, [np.abs(each).sum() for each in sums]))
    with clock("relabel"):
        exact = layout.n_relabellings <= int(n_permutations)
        forms = alike(comm, lambda: [Relabelling.of(each, layout, kernel.sign) for each in sums])
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
        kernel_options=dict(problem.config.kernel_options)
        | ({} if lists is None else {lists.option: list(lists.values)}),
        learnt=problem.learnt,
        seed=problem.config.seed,
        seconds=clock.slowest(comm),
        bytes_moved=sum(comm.allgather(sent)),
        n_ranks=comm.size,
    )


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
    estimates = [value_of(each, layout, kernel) for each, kernel in zip(sums, kernels, strict=True)]
    own = np.array([float(form.values(form.own)[0]) for form in forms])
    if lists is None:
        p = p_value(float(own[0]), relabelled[0], forms[0].tolerance, exact=exact)
        return {"value": estimates[0], "p": p, "relabelled": relabelled[0], "unit": kernels[0].unit}
    found = together(own, relabelled, np.array([form.tolerance for form in forms]), exact=exact)
    value = float(found.own.max())
    return {
        "value": value,
        "p": p_value(value, found.relabelled, found.tolerance, exact=exact),
        "relabelled": found.relabelled,
        "unit": "1",
        "several": Several.of(lists, kernels, estimates, found),
    }


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
