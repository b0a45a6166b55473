"""The library's way to estimate: `estimate` and `estimate_samples`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.by_default import asks_for_rounds, refuse_a_long_wait
from mpi_ustat.estimation.config import EstimateConfig
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.estimation import Estimation, run
from mpi_ustat.estimation.problem import set_up
from mpi_ustat.influence.analysis import About
from mpi_ustat.influence.counts import repeated
from mpi_ustat.influence.groups import GroupWeight
from mpi_ustat.kernels.kernel import Kernel, Points
from mpi_ustat.kernels.multiclass import multiclass_auc
from mpi_ustat.kernels.registry import DEFAULT_KERNEL, make_kernel
from mpi_ustat.kernels.tiled import DEFAULT_TILE
from mpi_ustat.kernels.user_pairs import BlockFunction
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.numerics.types import Ints
from mpi_ustat.points.preparation import same_columns
from mpi_ustat.wording import count_of


@deferred()
def estimate(
    comm: Any,
    x: Points,
    z: Points | None = None,
    kernel: str | BlockFunction | Kernel = DEFAULT_KERNEL,
    *,
    n_workers: int | None = None,
    n_rounds: int | None = None,
    n_pairs: int | None = None,
    distinct: bool = False,
    complete: bool | None = None,
    scheme: str = "",
    move: str = "",
    shuffle: str = "",
    aggregate: str = "",
    empty: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    weights: Sequence[ArrayLike] | None = None,
    counts: Sequence[ArrayLike] | None = None,
    clusters: Sequence[ArrayLike] | None = None,
    strata: Sequence[ArrayLike] | None = None,
    groups: Sequence[ArrayLike] | None = None,
    group_weight: GroupWeight = "one",
    influence: bool = False,
    block_sizes: Sequence[Ints] | None = None,
    seed: int | None = None,
    reference: bool = False,
    stderr: bool = True,
    confidence: float = 0.95,
    interval: str = "auto",
    per_worker: bool = True,
    tile: int = DEFAULT_TILE,
) -> Estimate:
    """Estimate a U-statistic of one or two samples spread over the ranks of a communicator.  Collective.

    By itself this is the complete statistic U_n, over all pairs. Any of the options `n_workers`, `n_rounds`, `n_pairs`,
    `distinct`, `scheme`, `move`, `shuffle`, `aggregate`, `empty`, `block_sizes` and `reference` asks for one of the
    paper's estimators by rounds: with one round and all local pairs U_{n,N} = N⁻¹ Σ_i U_{R_i}, the mean of the workers'
    local averages; with T rounds Û_{n,N,T} = T⁻¹ Σ_t U_{n,N}^{(t)}, each over a fresh partition; with `n_pairs` = B the
    local averages are over B sampled pairs (Ũ_{n,N,B} and Ũ_{n,N,B,T}).

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options; any communicator will do, COMM_SELF included.
    x : ndarray, shape (n_local,) or (n_local, d)
        This rank's points; may be empty on some ranks. The global order is that of the ranks.
    z : ndarray, optional
        This rank's points of the second sample; None for statistics of one sample.
    kernel : str, callable or Kernel
        A name in `mpi_ustat.kernels.registry`, ``module:function``, or a function as `tuples.make_user_kernel` takes
        it: of two blocks, (a, d) and (b, d), returning h for all their pairs, (a, b); with an attribute ``degrees``, of
        any number of points of any number of samples.
    n_workers : int, optional
        Logical workers, N, by default the number of ranks. The result depends on N, never on the number of ranks; the
        complete statistic in its last bits, and only where N is given.
    n_rounds : int, optional
        Partitions averaged over, T; of estimates by rounds 1 by default.
    n_pairs : int or None
        Pairs (or longer tuples) sampled per worker and round, uniformly, B; None: all local pairs.
    distinct : bool
        Sample B different ones, instead of independent ones.
    complete : bool, optional
        All pairs or tuples; then scheme, n_rounds, n_pairs and aggregate play no part. False: by rounds. By default all
        pairs, where no option is about rounds; a kernel that has to look at each of them is then timed on a few, and
        what would take more than a minute is refused.
    scheme : {"prop-swor", "rotation", "swor", "prop-swr", "fixed-shuffle", "as-is"}, by default the first
        How the points lie over the workers in each round: see `mpi_ustat.schemes.partition.Partition`; ``as-is``
        leaves them where they are.
    move : {"both", "smaller"}, by default the first
        For prop-swor: whether every round spreads both samples afresh, or the smaller one only.
    shuffle : {"auto", "permutation", "matrix"}, by default the first
        How prop-swor draws its partitions: see `mpi_ustat.schemes.partition.Partition`.
    aggregate : {"mean", "pooled"}, by default "pooled" under rotation and for Kendall's tau-b, otherwise "mean"
        Mean of the workers' local averages (the paper), or one average over all local pairs; of sampled pairs, the
        local averages weighted by the numbers of local pairs.
    empty : {"refuse", "skip", "zero"}, by default "skip" under swor and "refuse" otherwise
        What to do about a worker whose block has no pair: refuse; leave it out and count it; or let its local average
        be 0 and count it, as the paper does under ``swor``, which biases the mean towards 0 by the share of such
        workers: then there is no interval. In a pooled average ``zero`` is ``skip``.
    ties : {"half", "strict", "shared"}, by default "strict" for the VUS and "half" otherwise
        What a tie counts in the AUC (half, strict) or the VUS (strict, shared).
    kernel_options : mapping, optional
        Other options of the kernel, by name; `ties` may be one of them, but not another than above.
    columns : sequence of str, optional
        For the AUC: the names of the columns, each of which is a score of its own.
    weights : sequence of array_like, optional
        Of `complete` statistics: for each sample the sampling weights of this rank's points, not negative. A pair
        counts with the product of its points' weights.
    counts : sequence of array_like, optional
        For each sample how often each of this rank's points is there: the same as giving its row so often.
    clusters : sequence of array_like, optional
        Of `complete` statistics: for each sample the clusters of this rank's points, numbers or text. Points of one
        cluster (a patient, a user) may depend on each other, which the standard error allows for.
    strata : sequence of array_like, optional
        Of `complete` statistics: only pairs within a stratum count.
    groups : sequence of array_like, optional
        Of `complete` statistics: the estimate is the mean of the statistics of the groups (queries, users).
    group_weight : {"one", "points", "positives", "pairs"}
        What a group weighs in that mean.
    influence : bool
        Also return each own point's influence on the `complete` statistic, as ``analysis.influence``.
    block_sizes : sequence of int arrays, optional
        For ``as-is`` with several workers a rank: for each sample, the sizes of the blocks of this rank's workers.
    seed : int, optional
        The common seed of all ranks; drawn by rank 0 when left out, and recorded in the result.
    reference : bool
        Also compute the complete statistic, for comparison; under ``as-is`` also how biased the local averages are.
    stderr : bool
        Also estimate the standard error.
    confidence : float
        Level of the confidence interval, between 0 and 1.
    interval : {"auto", "logit", "wald"}
        Its kind; auto: on the logit scale for kernels with values in [0, 1].
    per_worker : bool
        Whether to keep what each worker found in each round, as `Estimate.per_worker` and `evaluations`: of N workers
        and T rounds, N·T numbers of each on every rank. Without, all else is the same, to the bit.
    tile : int
        Side of the tiles in which a user kernel is evaluated.

    Returns
    -------
    Estimate
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the kernel fails on any rank; or if
        all pairs take long, and nobody has asked for them.
    """
    return estimate_samples(
        comm,
        one_or_two(comm, x, z),
        kernel,
        n_workers=n_workers,
        n_rounds=n_rounds,
        n_pairs=n_pairs,
        distinct=distinct,
        complete=complete,
        scheme=scheme,
        move=move,
        shuffle=shuffle,
        aggregate=aggregate,
        empty=empty,
        ties=ties,
        kernel_options=kernel_options,
        columns=columns,
        weights=weights,
        counts=counts,
        clusters=clusters,
        strata=strata,
        groups=groups,
        group_weight=group_weight,
        influence=influence,
        block_sizes=block_sizes,
        seed=seed,
        reference=reference,
        stderr=stderr,
        confidence=confidence,
        interval=interval,
        per_worker=per_worker,
        tile=tile,
    )


@deferred()
def estimate_samples(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel = DEFAULT_KERNEL,
    *,
    n_workers: int | None = None,
    n_rounds: int | None = None,
    n_pairs: int | None = None,
    distinct: bool = False,
    complete: bool | None = None,
    scheme: str = "",
    move: str = "",
    shuffle: str = "",
    aggregate: str = "",
    empty: str = "",
    ties: str = "",
    kernel_options: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    weights: Sequence[ArrayLike] | None = None,
    counts: Sequence[ArrayLike] | None = None,
    clusters: Sequence[ArrayLike] | None = None,
    strata: Sequence[ArrayLike] | None = None,
    groups: Sequence[ArrayLike] | None = None,
    group_weight: GroupWeight = "one",
    influence: bool = False,
    multiclass: str | None = None,
    block_sizes: Sequence[Ints] | None = None,
    seed: int | None = None,
    reference: bool = False,
    stderr: bool = True,
    confidence: float = 0.95,
    interval: str = "auto",
    per_worker: bool = True,
    tile: int = DEFAULT_TILE,
) -> Estimate:
    """Estimate a U-statistic of any number of samples spread over the ranks of a communicator.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray
        This rank's points of each sample: for the AUC the scores of positives first, for the VUS the lowest class.
    kernel, n_workers, n_rounds, n_pairs, distinct, complete, scheme, move, shuffle, aggregate, empty, ties, \
    kernel_options, columns, weights, counts, clusters, strata, groups, group_weight, influence, block_sizes, seed, \
    reference, stderr, confidence, interval, per_worker, tile
        As in `estimate`, which also says what is returned and raised.
    multiclass : {"ovr", "ovo"}, optional
        For the `complete` AUC of K samples, one a class, whose points are rows of K scores, one a class in their order:
        the AUC of each class against all others, their mean ("macro") and the one weighted by the classes' weights
        ("weighted"); or A(i, j) of every two classes and their mean, M of Hand and Till (2001). `columns` are the
        names of the classes, otherwise 0, 1, ….
    """
    about = About(weights, clusters, strata, groups, group_weight, influence)
    options: dict[str, Any] = {
        "n_workers": n_workers,
        "n_rounds": n_rounds,
        "n_pairs": n_pairs,
        "distinct": distinct,
        "scheme": scheme,
        "move": move,
        "shuffle": shuffle,
        "aggregate": aggregate,
        "empty": empty,
        "reference": reference,
    }
    undecided = complete is None
    if complete is None:
        complete = block_sizes is None and not asks_for_rounds(options)
    if counts is not None:
        samples, about = repeated(comm, samples, counts, about)
    if multiclass is not None:
        if kernel != DEFAULT_KERNEL or not complete:
            raise UserError("multiclass is for the AUC of all pairs: use kernel='auc' with complete=True")
        same_columns(comm, samples)
        of_classes = multiclass_auc(comm, multiclass, samples, ties, kernel_options)
        classes = tuple(columns or map(str, range(len(samples))))
        if len(classes) != len(samples):
            names = count_of(len(classes), "name")
            raise UserError(f"there are {len(samples)} classes and {names} of them in columns=")
        kernel, ties, columns = of_classes, of_classes.ties, of_classes.statistics(classes)
        kernel_options = None
    config, made = configured(
        comm,
        samples,
        kernel,
        n_columns=0 if multiclass is not None else len(columns or ()),
        seed=seed,
        ties=ties,
        kernel_options=kernel_options,
        tile=tile,
        complete=complete,
        stderr=stderr,
        confidence=confidence,
        interval=interval,
        per_worker=per_worker,
        **options,
    )
    if multiclass is not None:
        config = replace(config, kernel_options={"multiclass": multiclass})
    problem = set_up(
        comm,
        samples,
        config,
        kernel=made,
        block_sizes=block_sizes,
        columns=columns or (),
        workers_given=n_workers is not None,
        about=about,
    )
    if complete and undecided:
        refuse_a_long_wait(problem)
    estimation = Estimation(problem)
    for _ in run(estimation):
        pass
    return estimation.result()


def one_or_two(comm: Any, x: Points, z: Points | None) -> tuple[Points, ...]:
    """Return the samples that there are, the same number on every rank.  Collective."""
    if len(set(comm.allgather(z is not None))) > 1:
        raise UserError(
            "a second sample is given on some ranks only: pass z on every rank (it may be empty), or on none"
        )
    return (x,) if z is None else (x, z)


def configured(
    comm: Any,
    samples: Sequence[Points],
    kernel: str | BlockFunction | Kernel,
    *,
    n_columns: int = 0,
    n_workers: int | None,
    seed: int | None,
    ties: str,
    kernel_options: Mapping[str, Any] | None,
    tile: int,
    **options: Any,
) -> tuple[EstimateConfig, Kernel | None]:
    """Return the configuration that the arguments ask for, and the kernel if it is more than a name.  Collective."""
    same_columns(comm, samples)
    seed = comm.bcast(fresh_seed() if seed is None and comm.rank == 0 else seed)
    made, name = None, kernel
    if not isinstance(kernel, str):
        made = make_kernel(kernel, len(samples), tile=tile, columns=max(1, n_columns), options=kernel_options)
        name = made.name
        if ties not in ("", None, made.ties):
            raise UserError(f"ties is {ties!r}, which the kernel {name} was not made with: leave it out")
        ties = made.ties
    chosen = {name: value for name, value in options.items() if value is not None and value != ""}
    config = EstimateConfig(
        kernel=str(name),
        n_workers=comm.size if n_workers is None else n_workers,
        seed=seed,
        ties=ties,
        kernel_options=dict(kernel_options or {}),
        tile=tile,
        **chosen,
    )
    return config, made
