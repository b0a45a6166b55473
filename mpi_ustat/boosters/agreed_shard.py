"""What the ranks' data sets say together: which classes there are, and whether there are weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpi_ustat.boosters.shard import Shard, shard_of
from mpi_ustat.errors import UserError
from mpi_ustat.mpi.runtime import attempt
from mpi_ustat.numerics.types import Floats, Ints


@dataclass(frozen=True)
class AgreedShard:
    """The rows of one rank, with weights, groups and upper bounds where all ranks that have rows have some.

    Attributes
    ----------
    predictions, labels : ndarray, shape (n,)
    weights : ndarray, shape (n,), or None
    groups : ndarray of int64, shape (n,), or None
        The number of each row's query group among those of all ranks; a group lies on one, as it does to XGBoost.
    upper : ndarray, shape (n,), or None
        Upper bounds of times whose lower bounds are the labels.
    classes : ndarray
        The labels that there are on all ranks, ascending.
    n_rows : int
        Of all ranks.
    """

    predictions: Floats
    labels: Floats
    weights: Floats | None
    groups: Ints | None
    upper: Floats | None
    classes: Floats
    n_rows: int


def agreed_shard(comm: Any, predictions: ArrayLike, data: Any, *, weighted: bool, grouped: bool) -> AgreedShard:
    """Return this rank's rows.  Collective; parameters as of `shard_of`.

    Raises
    ------
    UserError
        On every rank, if those of any can't be used, or the ranks' don't go together.
    """
    shard, everyone = attempt(
        comm,
        lambda: shard_of(predictions, data, weighted=weighted, grouped=grouped),
        "reading a booster's predictions",
        share=_told,
    )
    there = [each for each in everyone if each["rows"]]
    for what in ("weights", "bounds of times"):
        if len({each[what] for each in there}) > 1:
            raise UserError(f"the data sets have {what} on some ranks only: set them on all, or on none")

    def where_there(what: str, values: Floats | None) -> Floats | None:
        if not any(each[what] for each in there):
            return None
        return np.empty(0) if values is None else values  # a rank without rows

    before = sum(each["groups"] for each in everyone[: comm.rank])
    return AgreedShard(
        predictions=shard.predictions,
        labels=shard.labels,
        weights=where_there("weights", shard.weights),
        groups=None if shard.groups is None else shard.groups + before,
        upper=where_there("bounds of times", shard.upper),
        classes=np.unique(np.concatenate([np.empty(0), *(each["classes"] for each in there)])),
        n_rows=sum(each["rows"] for each in there),
    )


def _told(shard: Shard) -> dict[str, Any]:
    """Return the facts about a rank's rows that the other ranks need."""
    return {
        "rows": len(shard.predictions),
        "groups": shard.n_groups,
        "weights": shard.weights is not None,
        "bounds of times": shard.upper is not None,
        "classes": np.unique(shard.labels),
    }
