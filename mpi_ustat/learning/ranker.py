"""The scikit-learn face of pairwise learning: a binary classifier that learns to rank, over one rank or many."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.learning.agreed_estimators import Columns, agreed, fail_together
from mpi_ustat.learning.class_labels import n_rows_of, refuse_masked, show
from mpi_ustat.learning.losses import DEFAULT_LOSS
from mpi_ustat.learning.objectives import LinearRanking
from mpi_ustat.learning.optimizers import begun
from mpi_ustat.learning.ranker_files import StoredRanker
from mpi_ustat.learning.said_of_points import SaidOfPoints
from mpi_ustat.learning.threshold import threshold_of_all
from mpi_ustat.learning.training import set_up
from mpi_ustat.mpi.collectives import on_any_rank
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.runtime import SerialComm
from mpi_ustat.numerics.rankstat import count_wins
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.preparation import standardisation
from mpi_ustat.points.rows import column_names, refuse_rounded
from mpi_ustat.points.sparse import as_sparse_rows, is_sparse
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, scheme_of
from mpi_ustat.wording import count_of

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError(
        f"PairwiseRanker needs scikit-learn 1.6 or later ({error}): install it with pip install 'mpi_ustat[sklearn]'"
    ) from error

_OF_DESCENT = (
    *("loss", "l2", "learning_rate", "decay", "momentum", "batch_pairs", "repartition_every", "scheme", "iterations"),
    *("init", "eval_every", "exchange", "batch_points", "optimizer", "tolerance"),
)
"""The parameters that are the descent's."""


class PairwiseRanker(StoredRanker, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Binary classifier whose linear score is learnt from pairs of points of different classes.

    With x a point of the class ``classes_[1]`` and z one of ``classes_[0]``, stochastic gradient descent minimises

        E φ(w·x - w·z) + λ‖w‖²

    (the paper's Section 4), a surrogate of 1 - AUC. What is learnt is an order of the points; where the classes meet is
    decided afterwards, by the threshold on the training points' scores that `youden_threshold` describes.

    Parameters
    ----------
    loss : {"hinge", "squared-hinge", "logistic"}
        φ: max(0, 1 - u), its square, or log(1 + exp(-u)).
    l2 : float
        λ.
    learning_rate, decay : float
        The step of iteration t is learning_rate/(1 + decay·t).
    momentum : float
        μ: v ← μv + g, w ← w - step·v.
    batch_pairs : int or None
        Pairs sampled per worker and iteration; None: all pairs of the worker's points.
    repartition_every : int or None
        Iterations between repartitions of the points over the workers; None: never.
    scheme : str
        How points lie over the workers: a name in `mpi_ustat.schemes.registry.SCHEMES`. ``as-is`` makes each rank's
        points those of one worker, and goes with ``repartition_every=None``.
    n_workers : int or None
        Logical workers, at most as many as the smaller class has points. None: the number of ranks, or the size of
        the smaller class if that is less. What is learnt depends on it, not on the number of ranks.
    iterations : int
        Steps.
    init : {"normal", "zeros"}
        Initial weights.
    standardize : bool
        Learn from columns of mean 0 and deviation 1, as the penalty and the step size presume; `coef_` and
        `intercept_` are always those of the columns as given.
    eval_every : int
        Iterations between the entries of `loss_curve_`.
    exchange : {"rows", "scores"}
        What travels between ranks. With ``scores`` points stay, all pairs of the points of a step count, points may be
        weighted, grouped, and sparse, and `batch_pairs`, `repartition_every` and `scheme` mean nothing.
    batch_points : int or None
        For ``scores``: points of each class per worker and step; None: all.
    optimizer : {"sgd", "lbfgs"}
        ``lbfgs``, for ``scores`` of all points, goes to the optimum, and ends there.
    tolerance : float
        For ``lbfgs``: the largest component of the gradient at which it ends.
    random_state : int, RandomState or None
        An int is the seed that `mpi_ustat.learn` takes; otherwise the seed is drawn from the generator, or from
        NumPy's global one. On several ranks that of rank 0 counts.

    Attributes
    ----------
    classes_ : ndarray, shape (2,)
        The labels in ascending order; the second is that of the points which should score higher.
    coef_ : ndarray, shape (1, n_features_in_)
        w, for the columns as given.
    intercept_ : ndarray, shape (1,)
        Minus the threshold: the predicted class is ``classes_[1]`` where w·x + intercept_ > 0.
    n_features_in_ : int
        Columns.
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Names of the columns, where they all have one.
    n_iter_ : int
        Steps taken.
    loss_curve_ : ndarray, shape (n_evaluations,)
        Training loss, with the penalty, before the first step, after every `eval_every` steps, and after the last.

    See Also
    --------
    mpi_ustat.learn : The same descent, and other objectives.

    Notes
    -----
    All parameters are those of ``mpi-ustat learn``, with its defaults, and but for `standardize` and `random_state`
    those of `mpi_ustat.learn`. Columns of different scales want `standardize`. Weights of classes would change nothing:
    they multiply all pairs by the same number.

    `score` is the AUC, not the accuracy that scikit-learn's classifiers have: the AUC is what is learnt, and what
    ``GridSearchCV`` should choose by.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from mpi_ustat import PairwiseRanker
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> round(PairwiseRanker(standardize=True, random_state=0).fit(X, y).score(X, y), 2)
    1.0
    """

    def __init__(
        self,
        *,
        loss: str = DEFAULT_LOSS,
        l2: float = 0.0,
        learning_rate: float = 0.01,
        decay: float = 0.0,
        momentum: float = 0.9,
        batch_pairs: int | None = 100,
        repartition_every: int | None = 25,
        scheme: str = DEFAULT_SCHEME,
        n_workers: int | None = None,
        iterations: int = 1000,
        init: str = "normal",
        standardize: bool = False,
        eval_every: int = 25,
        exchange: str = LearnConfig.exchange,
        batch_points: int | None = LearnConfig.batch_points,
        optimizer: str = LearnConfig.optimizer,
        tolerance: float = LearnConfig.tolerance,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.loss = loss
        self.l2 = l2
        self.learning_rate = learning_rate
        self.decay = decay
        self.momentum = momentum
        self.batch_pairs = batch_pairs
        self.repartition_every = repartition_every
        self.scheme = scheme
        self.n_workers = n_workers
        self.iterations = iterations
        self.init = init
        self.standardize = standardize
        self.eval_every = eval_every
        self.exchange = exchange
        self.batch_points = batch_points
        self.optimizer = optimizer
        self.tolerance = tolerance
        self.random_state = random_state

    @deferred()
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        comm: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn from the points of all ranks.  Collective.

        For the same points, in the order of the ranks, `n_workers` and `random_state`, every number of ranks learns
        the same, to the last bit, except under ``scheme="as-is"``.

        Parameters
        ----------
        X : array_like or SciPy sparse matrix, shape (n_local, d)
            This rank's points. A rank may have none, as long as another has some. Sparse ones go with
            ``exchange="scores"``, and are standardised by their deviations only.
        y : array_like, shape (n_local,)
            Their labels, two different ones over all ranks.
        comm : mpi4py.MPI.Comm or SerialComm, optional
            All its ranks call with estimators of the same parameters. None: this process alone, without MPI.

        sample_weight : array_like, shape (n_local,), optional
            With ``exchange="scores"``: a pair weighs what the product of its points' weights is, and the threshold is
            that of weighted points. Columns are standardised over all points alike.
        groups : array_like, shape (n_local,), optional
            With ``exchange="scores", batch_points=None``: numbers or text; only pairs of one group count.

        Returns
        -------
        PairwiseRanker
            The estimator, fitted alike on every rank.

        Raises
        ------
        UserError
            A ValueError, on every rank, if parameters or the points of any rank can't be used. Without other ranks
            scikit-learn's own errors are raised as they are.
        DivergedError
            On every rank, if the weights leave the range of doubles.
        """
        comm = SerialComm() if comm is None else comm
        with fail_together(comm, "checking the points"):
            rows, labels = self._shard(X, y, comm.size)
            said = SaidOfPoints.of(len(rows), sample_weight, groups)
            found = np.unique(labels)
            seed = self._seed()
        rows = self._agree(comm, rows, found)
        seed = comm.bcast(seed)
        said = said.agreed(comm, len(rows))
        members = [labels == each for each in self.classes_[::-1]]
        said.refuse_weightless(comm, *members)
        positive, negative = (rows[each] for each in members)
        config = self._config(comm, (len(positive), len(negative)), seed)

        samples, scaling = (positive, negative), None
        if self.standardize:
            scaling = standardisation(comm, samples)
            samples = scaling.apply(positive), scaling.apply(negative)
        w, g = said.of_samples(*members)
        learning = begun(set_up(comm, samples, config, weights=w, groups=g))
        for _ in learning.run():
            pass
        fit = learning.fit()
        if fit.optimum is not None and not fit.optimum.reached:
            warnings.warn(
                f"the gradient is still {fit.optimum.largest:.3g} ({fit.optimum.ended or 'after all iterations'}): ask "
                "for more iterations, or a larger tolerance",
                ConvergenceWarning,
                stacklevel=3,
            )

        # The means only move the scores, and the threshold is looked for where the scores are: they need no part here.
        weights = fit.parameters if scaling is None else fit.parameters / scaling.deviation
        s, t = (LinearRanking().scores(weights, each) for each in (positive, negative))
        threshold = threshold_of_all(comm, s, t, w)
        self._take(self._model_file(fit, scaling, threshold))
        return self

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return w·x + intercept_ for each point, shape (n,): positive where ``classes_[1]`` is predicted.

        Parameters
        ----------
        X : array_like or SciPy sparse matrix, shape (n, d)
        """
        check_is_fitted(self)
        refuse_masked(X=X)
        rows = self._rows(X, validate_data(self, X, dtype=np.float64, order="C", reset=False, accept_sparse="csr"))
        names = column_names(X)
        if None not in (names, self._names) and names != self._names:
            raise UserError(
                f"X has the columns {', '.join(names or ())}: pass those of the fit, in the same order: "
                f"{', '.join(self._names or ())}"
            )
        return LinearRanking().scores(self.coef_[0], rows) + self.intercept_[0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the predicted label of each point, shape (n,).

        Parameters
        ----------
        X : array_like or SciPy sparse matrix, shape (n, d)
        """
        above = self.decision_function(X) > 0.0
        predicted: NDArray[Any] = self.classes_[above.astype(np.intp)]
        return predicted

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: None = None) -> float:
        """Return the AUC of the scores: the share of pairs in which ``classes_[1]`` scores higher, ties being half.

        It is not the accuracy, which the score of other classifiers is.

        Parameters
        ----------
        X : array_like or SciPy sparse matrix, shape (n, d)
        y : array_like, shape (n,)
            Labels, of both classes.
        sample_weight : None
            For scikit-learn's signature; points can't be weighted.

        Raises
        ------
        UserError
            If there are weights, labels that the estimator wasn't fitted with, or points of one class only.
        """
        if sample_weight is not None:
            raise UserError("the AUC of weighted points is not offered: leave out sample_weight")
        refuse_masked(y=y)
        decisions = self.decision_function(X)
        labels = column_or_1d(y)
        check_consistent_length(decisions, labels)
        found = np.unique(labels)
        if not np.isin(found, self.classes_).all():
            raise UserError(f"y has the labels {show(found)}: use those of the fit, {show(self.classes_)}")
        if len(found) < 2:
            raise UserError(f"y has one class only, {show(found)}: the AUC needs points of both")
        negative, positive = (np.sort(decisions[labels == each]) for each in self.classes_)
        wins, ties = count_wins(positive, negative)
        return (2 * wins + ties) / (2 * len(positive) * len(negative))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = self.exchange == "scores"
        return tags

    def _shard(self, X: ArrayLike, y: ArrayLike, n_ranks: int) -> tuple[Any, NDArray[Any]]:
        """Return this rank's points and labels, checked as far as they can be without the other ranks'."""
        if n_ranks > 1 and n_rows_of(X) == 0:
            # scikit-learn refuses no points, and who has none need not know the columns.
            if y is not None and n_rows_of(y) > 0:
                raise UserError("X has no points but y has labels: pass a label for each point")
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit, as scikit-learn does
            self._names = None
            return np.empty((0, 0)), np.empty(0)
        refuse_masked(X=X, y=y)
        if is_sparse(X) and self.exchange != "scores":
            raise UserError('sparse points stay where they are: use exchange="scores", or pass X.toarray()')
        rows, labels = validate_data(self, X, y, dtype=np.float64, order="C", accept_sparse="csr")
        check_classification_targets(labels)
        self._names = column_names(X)
        return self._rows(X, rows), labels

    @staticmethod
    def _rows(X: Any, rows: Any) -> Any:
        """Return the points that scikit-learn has checked, if none of them was rounded."""
        if is_sparse(X):
            return as_sparse_rows("X", X)
        refuse_rounded("X", X, np.asarray(X), rows)
        return rows

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _agree(self, comm: Any, rows: Any, found: NDArray[Any]) -> Any:
        """Set what all ranks have in common, classes and columns; return the points, with columns if none.  Collective.

        Every rank sees the same and raises the same.
        """
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        names = getattr(self, "feature_names_in_", None)
        own = Columns(rows.shape[1], None if names is None else list(names), self._names)
        columns, self.classes_ = agreed(comm, options, own, found, len(rows))
        self.n_features_in_, feature_names, self._names = columns
        if feature_names is not None:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        rows = rows if len(rows) else np.empty((0, columns.number))
        if on_any_rank(comm, isinstance(rows, SparseRows)) and not isinstance(rows, SparseRows):
            return SparseRows.of_dense(rows)
        return rows

    def _config(self, comm: Any, own_sizes: tuple[int, int], seed: int) -> LearnConfig:
        """Return the options of the descent, the same on all ranks.  Collective."""
        sizes = np.sum(comm.allgather(own_sizes), axis=0)
        smaller = int(sizes.min())
        at_most = comm.size if scheme_of(self.scheme).as_they_lie else min(comm.size, smaller)
        config = LearnConfig(
            n_workers=at_most if self.n_workers is None else self.n_workers,
            seed=seed,
            **{name: getattr(self, name) for name in _OF_DESCENT},
        )
        if config.n_workers > smaller:
            raise UserError(
                f"there are {config.n_workers} workers but {count_of(smaller, 'point')} of class "
                f"{show(self.classes_[[1 - int(sizes.argmin())]])}: use at most {count_of(smaller, 'worker')}"
            )
        return config
