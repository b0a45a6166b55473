"""What the estimators of several ranks must have in common, and how they fail together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from numpy.typing import NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.learning.class_labels import show, union
from mpi_ustat.mpi.runtime import together


class Columns(NamedTuple):
    """The columns of a rank's points.

    Attributes
    ----------
    number : int
    feature_names : list of str or None
        As scikit-learn finds them.
    names : tuple of str or None
        As any data frame has them.
    """

    number: int
    feature_names: list[Any] | None
    names: Sequence[str] | None


def agreed(
    comm: Any, options: Mapping[str, Any], columns: Columns, found: NDArray[Any], n_points: int
) -> tuple[Columns, NDArray[Any]]:
    """Return the columns and the two classes of all ranks, or refuse them, the same on each.  Collective.

    Parameters
    ----------
    options : mapping
        The estimator's parameters.
    columns : Columns
        Of this rank's points, if it has some.
    found : ndarray
        Their distinct labels.
    n_points : int
    """
    everyone = comm.allgather((options, columns, found, n_points))
    differing = [name for name in options if any(each[0][name] != everyone[0][0][name] for each in everyone)]
    if comm.size > 1 and differing:
        raise UserError(f"the ranks' estimators differ in {', '.join(differing)}: give them the same parameters")
    shards = [(theirs, labels) for _, theirs, labels, n in everyone if n]
    if not shards:
        raise UserError("no rank has any points: pass some")
    if any(theirs != shards[0][0] for theirs, _ in shards):
        raise UserError(
            f"the ranks' points have different columns (numbers: {sorted({each[0].number for each in shards})}): pass "
            "the same columns, under the same names, on all"
        )
    classes = union([labels for _, labels in shards])
    if len(classes) < 2:
        raise UserError(f"y has one class only, {show(classes)}: ranking needs points of two")
    if len(classes) > 2:
        raise UserError(
            "Only binary classification is supported. The type of the target is multiclass: y has the labels "
            f"{show(classes)}"
        )
    return shards[0][0], classes


@contextmanager
def fail_together(comm: Any, doing: str) -> Iterator[None]:
    """Fail together where there are others; leave scikit-learn's errors as they are where there are none."""
    if comm.size == 1:
        yield
    else:
        with together(comm, doing):
            yield
