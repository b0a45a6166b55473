"""Objectives that a user names, defines or passes: found, completed by the defaults, and checked at every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.learning import objectives
from mpi_ustat.learning.losses import DEFAULT_LOSS
from mpi_ustat.learning.objectives import LinearRanking, Mahalanobis, PairObjective
from mpi_ustat.numerics.types import Floats
from mpi_ustat.user.guards import read_only, real_numbers
from mpi_ustat.user.importing import load_named


class _Checked(PairObjective):
    """A user's objective, completed by the defaults; what it gets is read-only, what it returns is checked.

    With parameters that are not finite nothing else can be expected of it, and that is the caller's to notice.
    """

    def __init__(self, objective: Any, name: str) -> None:
        self._given = objective
        self.name = name
        self.written = getattr(objective, "_function", objective)  # by the user
        self.phi = getattr(objective, "phi", None)

    def n_parameters(self, n_columns: int) -> int:
        number = self._given.n_parameters(n_columns)
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise UserError(
                f"the objective {self.name} has {number!r} parameters: make n_parameters return one or more"
            )
        return int(number)

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        return self._sums("pairs", parameters, self._given.pairs(*map(read_only, (parameters, x, z))))

    def gradients(self, parameters: Floats, x: Floats, z: Floats) -> Floats:
        own = self._own("gradients")
        if own is None:
            return super().gradients(parameters, x, z)
        # One that is inherited from an objective of ours may overwrite the points, as ours do, for speed.
        ours = getattr(own, "__module__", "") == objectives.__name__
        given = (parameters, x, z) if ours else tuple(map(read_only, (parameters, x, z)))
        return self._array("gradients", own(*given), (len(x), len(parameters)), parameters)

    def block(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        own = self._own("block")
        if own is None:
            return super().block(parameters, x, z)
        return self._sums("block", parameters, own(*map(read_only, (parameters, x, z))))

    def scores(self, parameters: Floats, rows: Floats) -> Floats | None:
        own = self._own("scores")
        found = None if own is None else own(read_only(parameters), read_only(rows))
        return None if found is None else self._array("scores", found, (len(rows),), parameters)

    def score_gradient(self, parameters: Floats, rows: Floats, coefficients: Floats) -> Floats:
        given = map(read_only, (parameters, rows, coefficients))
        return self._array("score_gradient", self._given.score_gradient(*given), parameters.shape, parameters)

    def scored_loss(self, positive: Floats, negative: Floats) -> float | None:
        own = self._own("scored_loss")
        found = None if own is None else own(read_only(positive), read_only(negative))
        return None if found is None else float(self._array("scored_loss", found, (), positive, negative))

    def losses_of_scores(self, positive: Floats, negative: Floats) -> Floats | None:
        own = self._own("losses_of_scores")
        found = None if own is None else own(positive, negative)
        shape = np.broadcast_shapes(positive.shape, negative.shape)
        return None if found is None else self._array("losses_of_scores", found, shape, positive, negative)

    def initial(self, normals: Floats) -> Floats:
        own = self._own("initial")
        if own is None:
            return normals
        return np.array(self._array("initial", own(read_only(normals)), normals.shape, normals))  # ours to step on

    def _own(self, method: str) -> Callable[..., Any] | None:
        """Return the objective's own method; a default that it inherits is better run on what is checked."""
        if getattr(type(self._given), method, None) is getattr(PairObjective, method):
            return None
        found: Callable[..., Any] | None = getattr(self._given, method, None)
        return found

    def _sums(self, method: str, parameters: Floats, found: object) -> tuple[float, Floats]:
        if not isinstance(found, tuple) or len(found) != 2:
            raise UserError(f"{method} of the objective {self.name} must return (summed loss, gradient): mend it")
        loss = float(self._array(f"{method} (the loss)", found[0], (), parameters))
        return loss, self._array(f"{method} (the gradient)", found[1], parameters.shape, parameters)

    def _array(self, what: str, found: object, shape: tuple[int, ...], *given: Floats) -> Floats:
        array = real_numbers(f"{what} of the objective {self.name}", found)
        if array.shape != shape:
            raise UserError(
                f"the objective {self.name} returned shape {array.shape} instead of {shape} from {what}: mend it"
            )
        if not np.isfinite(array).all() and all(np.isfinite(each).all() for each in given):
            raise UserError(
                f"the objective {self.name} returned a value that is not finite from {what}: mend it, the points "
                "that cause it, or take a smaller learning rate"
            )
        return array


class _Function(PairObjective):
    """`pairs` alone, as a function; its attribute `n_parameters`, a number, says p, by default one a column."""

    def __init__(self, function: Callable[[Floats, Floats, Floats], tuple[float, Floats]]) -> None:
        self._function = function

    def n_parameters(self, n_columns: int) -> int:
        number: int = getattr(self._function, "n_parameters", n_columns)
        return number

    def pairs(self, parameters: Floats, x: Floats, z: Floats) -> tuple[float, Floats]:
        return self._function(parameters, x, z)


def checked(objective: Any, name: str | None = None) -> PairObjective:
    """Return a user's objective with defaults for the methods it lacks, and its results checked.

    Parameters
    ----------
    objective : object, class or function
        With `n_parameters` and `pairs`; a class of such, made without arguments; or a function like `pairs`.
    name : str, optional
        What messages and results call it: by default its attribute `name`, or its type's or function's name.

    Raises
    ------
    UserError
        If it is none of these; later, when it returns something of another shape, or not finite.
    """
    if type(objective) in (LinearRanking, Mahalanobis, _Checked):  # not what a user derives from them
        known: PairObjective = objective
        return known
    label = name or getattr(objective, "name", None)
    label = str(label or getattr(objective, "__name__", type(objective).__name__))
    if inspect.isclass(objective):
        try:
            objective = objective()
        except Exception as error:
            raise UserError(
                f"the objective {label} can't be made ({type(error).__name__}: {error}): pass an object, not its class"
            ) from error
        return checked(objective, name)
    if callable(objective) and not hasattr(objective, "pairs"):
        return _Checked(_Function(objective), label)
    for method in ("n_parameters", "pairs"):
        if not callable(getattr(objective, method, None)):
            raise UserError(f"the objective {label} has no method {method}: see mpi_ustat's PairObjective")
    return _Checked(objective, label)


def make_objective(objective: str | Any, *, loss: str = DEFAULT_LOSS, margin: float = 1.0) -> PairObjective:
    """Return the objective of that name, at ``module:name``, or made from what `checked` takes.

    Parameters
    ----------
    objective : str or object
        ``linear``, ``mahalanobis``, ``module:name``, or an objective.
    loss, margin
        Of `LinearRanking`; the others have their own.
    """
    if not isinstance(objective, str):
        return checked(objective)
    if objective == "linear":
        return LinearRanking(loss, margin)
    if objective == "mahalanobis":
        return Mahalanobis()
    found = load_named("objective", objective, ("linear", "mahalanobis"))
    return checked(found, objective)
