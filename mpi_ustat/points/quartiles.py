"""Quartiles of distributed columns, exactly those of all their values, without moving one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.mpi.collectives import add_integers
from mpi_ustat.mpi.order_statistics import order_statistics
from mpi_ustat.numerics.orders import doubles_of, whole_numbers
from mpi_ustat.numerics.types import Floats


def quartiles(comm: Any, samples: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return the first and third quartile of each column of all samples together, as numpy.quantile has them.

    Collective.
    """
    d = samples[0].shape[1]
    own = [np.sort(np.concatenate([whole_numbers(rows[:, j]) for rows in samples])) for j in range(d)]
    n = int(add_integers(comm, np.array([len(own[0])]))[0])
    places = [divmod(quarter * (n - 1), 4) for quarter in (1, 3)]
    ranks = np.array([min(first + more, n - 1) for first, _ in places for more in (0, 1)])
    found = doubles_of(order_statistics(comm, own, ranks, "quartiles"))
    first, third = (
        found[:, 2 * i] + remainder / 4.0 * (found[:, 2 * i + 1] - found[:, 2 * i])
        for i, (_, remainder) in enumerate(places)
    )
    return first, third
