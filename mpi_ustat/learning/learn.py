"""The library's way to learn: `learn` and `learn_samples`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.losses import DEFAULT_LOSS
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.training import set_up
from mpi_ustat.learning.user_objectives import make_objective
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.numerics.rng import fresh_seed
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.preparation import same_columns


@deferred()
def learn(
    comm: Any,
    x: Floats,
    z: Floats,
    objective: str | PairObjective = "linear",
    *,
    x_test: Floats | None = None,
    z_test: Floats | None = None,
    x_validation: Floats | None = None,
    z_validation: Floats | None = None,
    loss: str = DEFAULT_LOSS,
    l2: float = 0.0,
    learning_rate: float = 0.01,
    decay: float = 0.0,
    momentum: float = 0.9,
    batch_pairs: int | None = 100,
    iterations: int = 1000,
    init: str = "normal",
    n_workers: int | None = None,
    repartition_every: int | None = 25,
    scheme: str = LearnConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    empty: str = "",
    seed: int | None = None,
    eval_every: int = 25,
    monitor_pairs: int = 450_000,
    exchange: str = "rows",
    batch_points: int | None = 100,
    optimizer: str = "sgd",
    tolerance: float = LearnConfig.tolerance,
    weights: Sequence[ArrayLike] | None = None,
    groups: Sequence[ArrayLike] | None = None,
    early_stopping: int | None = None,
    keep: str = "best",
) -> Fit:
    """Minimise the average loss of pairs of points from two samples spread over the ranks.  Collective.

    With h the loss of a pair, the goal is θ ↦ E h(X, Z; θ) + λ‖θ‖²; iteration t takes the step

        g_t = N⁻¹ Σ_i B⁻¹ Σ_{(k,l) drawn by worker i} ∇h(X_k, Z_l; θ) + 2λθ,   v ← μv + g_t,   θ ← θ - η_t v

    (the paper's Section 4, with momentum).

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
        All its ranks call with the same options.
    x, z : ndarray or SciPy sparse matrix, shape (n_local, d)
        This rank's points; under linear ranking x should score higher. Sparse ones (of the test set too) go with
        ``exchange="scores"``, and are never made an array.
    objective : str or PairObjective
        ``linear``, ``module:name`` (see `mpi_ustat.learning.user_objectives.make_objective`), or an object with
        `n_parameters` and `pairs`, such as `mpi_ustat.learning.objectives.Mahalanobis`.
    x_test, z_test : ndarray, optional
        This rank's test points.
    x_validation, z_validation : ndarray, optional
        This rank's validation points, which no step sees, and by whose loss a descent may end and parameters be kept.
    loss : {"hinge", "squared-hinge", "logistic"}
        The surrogate φ(s(x) - s(z)) of linear ranking.
    l2 : float
        λ of the penalty λ‖θ‖², whose gradient is 2λθ.
    learning_rate, decay : float
        The step of iteration t is learning_rate/(1 + decay·t).
    momentum : float
        μ: v ← μv + g, θ ← θ - step·v.
    batch_pairs : int or None
        Pairs sampled per worker and iteration, uniformly with replacement, B; None: all local pairs.
    iterations : int
        Steps.
    init : {"normal", "zeros"}
        Initial parameters.
    n_workers : int, optional
        Logical workers, N, by default the number of ranks.
    repartition_every : int or None
        Iterations between repartitions, n_r; None: never.
    scheme, move, shuffle, empty : str
        As in `mpi_ustat.estimate`.
    seed : int, optional
        The common seed of all ranks; drawn by rank 0 when left out.
    eval_every : int
        Iterations between evaluations; the last step is always evaluated.
    monitor_pairs : int
        Pairs on which a loss is monitored that has no way over all pairs in O(n log n); a test loss that depends on
        scores only is monitored over all pairs up to 2·10⁷.
    exchange : {"rows", "scores"}
        What travels. With ``scores`` rows stay where they are: in each step the scores of `batch_points` points of
        each class a worker meet, 8 bytes each, and what comes back makes the gradient over *all* pairs of these
        points. Then g_t is that gradient, and `batch_pairs`, `repartition_every`, `scheme`, `move`, `shuffle` and
        `empty` mean nothing.
    batch_points : int or None
        For ``scores``: drawn uniformly with replacement from each worker's block; None: all points, always.
    optimizer : {"sgd", "lbfgs"}
        ``lbfgs`` (with ``scores``, all points) is SciPy's L-BFGS-B on the exact objective; an iteration is one of its.
    tolerance : float
        For ``lbfgs``: it ends when no component of the gradient is larger.
    weights : sequence of array_like, optional
        For ``scores``, an array a sample: weights of this rank's training points, not negative.
    groups : sequence of array_like, optional
        For ``scores`` of all points: numbers or text; only pairs of one group count.
    early_stopping : int or None
        End once so many evaluations in turn found no lower loss of the validation points than before (with the penalty,
        as `Fit.history` has it); None: never.
    keep : {"best", "last"}
        With validation points, whether the parameters are those of the evaluation with the lowest loss of these, or of
        the last step, as they are without.

    Returns
    -------
    Fit
        The same on every rank.

    Raises
    ------
    UserError
        On every rank, if the options or the points of any rank can't be used, or the objective fails on any.
    DivergedError
        On every rank, if the parameters leave the range of doubles.
    """
    tests, validation = (
        _set_apart(comm, name, x_apart, z_apart)
        for name, x_apart, z_apart in (("test", x_test, z_test), ("validation", x_validation, z_validation))
    )
    return learn_samples(
        comm,
        (x, z),
        objective,
        tests=tests,
        validation=validation,
        loss=loss,
        l2=l2,
        learning_rate=learning_rate,
        decay=decay,
        momentum=momentum,
        batch_pairs=batch_pairs,
        iterations=iterations,
        init=init,
        n_workers=n_workers,
        repartition_every=repartition_every,
        scheme=scheme,
        move=move,
        shuffle=shuffle,
        empty=empty,
        seed=seed,
        eval_every=eval_every,
        monitor_pairs=monitor_pairs,
        exchange=exchange,
        batch_points=batch_points,
        optimizer=optimizer,
        tolerance=tolerance,
        weights=weights,
        groups=groups,
        early_stopping=early_stopping,
        keep=keep,
    )


def _set_apart(comm: Any, name: str, x: Floats | None, z: Floats | None) -> list[Floats]:
    """Return the points of a set that no step sees, or none.  Collective."""
    there = comm.allgather([each is not None for each in (x, z)])
    if len({each for pair in there for each in pair}) > 1:
        raise UserError(
            f"a {name} set has points of both samples: pass x_{name} and z_{name} on every rank, or neither"
        )
    return [each for each in (x, z) if each is not None]


@deferred()
def learn_samples(
    comm: Any,
    samples: Sequence[Floats],
    objective: str | PairObjective = "linear",
    *,
    tests: Sequence[Floats] = (),
    validation: Sequence[Floats] = (),
    pairings: Sequence[tuple[int, int]] = ((0, 1),),
    loss: str = DEFAULT_LOSS,
    l2: float = 0.0,
    learning_rate: float = 0.01,
    decay: float = 0.0,
    momentum: float = 0.9,
    batch_pairs: int | None = 100,
    iterations: int = 1000,
    init: str = "normal",
    n_workers: int | None = None,
    repartition_every: int | None = 25,
    scheme: str = LearnConfig.scheme,
    move: str = "both",
    shuffle: str = "auto",
    empty: str = "",
    seed: int | None = None,
    eval_every: int = 25,
    monitor_pairs: int = 450_000,
    exchange: str = "rows",
    batch_points: int | None = 100,
    optimizer: str = "sgd",
    tolerance: float = LearnConfig.tolerance,
    weights: Sequence[ArrayLike] | None = None,
    groups: Sequence[ArrayLike] | None = None,
    early_stopping: int | None = None,
    keep: str = "best",
) -> Fit:
    """Like `learn`, for any number of samples and `pairings` of them, over which the loss is summed.  Collective.

    Multipartite ranking of K ordered classes pairs consecutive ones:
    ``pairings=mpi_ustat.learning.objectives.consecutive_pairings(K)``, with the lowest class first.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of ndarray, shapes (n_local, d)
        This rank's points of each sample.
    tests, validation : sequence of ndarray
        This rank's test and validation points of each, or none.
    pairings : sequence of pairs of int
        Which samples are paired, the first of two to score higher.
    objective, loss, l2, learning_rate, decay, momentum, batch_pairs, iterations, init, n_workers, repartition_every, \
    scheme, move, shuffle, empty, seed, eval_every, monitor_pairs, exchange, batch_points, optimizer, tolerance, \
    weights, groups, early_stopping, keep
        As in `learn`, which also says what is returned and raised.
    """
    same_columns(comm, (*samples, *tests, *validation))
    seed = comm.bcast(fresh_seed() if seed is None and comm.rank == 0 else seed)
    made = make_objective(objective, loss=loss)
    config = LearnConfig(
        objective=objective if isinstance(objective, str) else made.name,
        loss=loss,
        n_workers=comm.size if n_workers is None else n_workers,
        seed=seed,
        l2=l2,
        learning_rate=learning_rate,
        decay=decay,
        momentum=momentum,
        batch_pairs=batch_pairs,
        repartition_every=repartition_every,
        scheme=scheme,
        move=move,
        shuffle=shuffle,
        empty=empty,
        iterations=iterations,
        init=init,
        eval_every=eval_every,
        monitor_pairs=monitor_pairs,
        exchange=exchange,
        batch_points=batch_points,
        optimizer=optimizer,
        tolerance=tolerance,
        early_stopping=early_stopping,
        keep=keep,
    )
    training = set_up(
        comm,
        samples,
        config,
        tests=tests,
        validation=validation,
        objective=made,
        pairings=pairings,
        weights=weights,
        groups=groups,
    )
    learning = begun(training)
    for _ in learning.run():
        pass
    return learning.fit()
