"""The options that say more about the rows than where they are: weights, counts, clusters, strata and groups."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.influence.analysis import About
from mpi_ustat.influence.counts import repeated
from mpi_ustat.influence.groups import GROUP_WEIGHTS
from mpi_ustat.numerics.types import Floats, Ints
from mpi_ustat.storage.data import Samples
from mpi_ustat.storage.table_files import SUFFIXES, suffix_of

_COLUMNS = {
    "weights": ("weights", "sampling weights: a pair counts with the product of its points'"),
    "counts": ("counts", "how often each row is there, instead of repeating it"),
    "cluster": ("clusters", "whose rows may depend on each other, such as a patient's"),
    "strata": ("strata", "only pairs within a stratum count"),
    "group": ("groups", "the mean of the statistic of each group, such as a query's"),
}
"""Option: what it is called in the library, and its help."""

SAID = (*_COLUMNS, "group_weight", "influence")
"""All options of this module, as arguments."""


def add_said_arguments(parser: Any) -> None:
    """Add the options that `said_columns` and `said` read."""
    group = parser.add_argument_group("rows", "columns about the rows, for statistics over all pairs")
    for option, (_, text) in _COLUMNS.items():
        group.add_argument(f"--{option}", metavar="COL", help=text)
    group.add_argument("--group-weight", choices=GROUP_WEIGHTS, help="what a group weighs in the mean (default one)")
    group.add_argument("--influence", action="store_true", help="write each row's influence on the statistic")


def said_columns(arguments: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return each role (weights, clusters, …) with its column, as `DataSource.said`."""
    given = {name: getattr(arguments, option) for option, (name, _) in _COLUMNS.items()}
    return tuple((name, column) for name, column in given.items() if column is not None)


def said(
    comm: Any, arguments: argparse.Namespace, samples: Samples
) -> tuple[tuple[Floats, ...], tuple[Ints, ...], About]:
    """Return the rows, as often as they are counted, how many each worker has of them, and what is said.  Collective.

    Raises
    ------
    UserError
        If options contradict each other, or a count is none.
    """
    if arguments.group_weight is not None and arguments.group is None:
        raise UserError("--group-weight is what a group weighs: give --group COL, the column of the groups, too")
    if arguments.influence and arguments.output is None:
        raise UserError("--influence writes each row's influence: give --output F.h5, the file, too")
    if arguments.influence and suffix_of(arguments.output) in SUFFIXES:
        raise UserError(
            f"--influence writes each row's influence, for which '{arguments.output}' has no place: end the name of "
            "--output in .h5"
        )
    if arguments.influence and arguments.group is not None:
        raise UserError("--influence is of rows on a statistic of all pairs, not on a mean of groups: leave out one")
    columns = dict(samples.said)
    counts = columns.pop("counts", None)
    about = About(**columns, group_weight=arguments.group_weight or "one", influence=arguments.influence)
    if counts is None:
        return samples.rows, samples.sizes, about
    rows, about = repeated(comm, samples.rows, counts, about)
    sizes = [
        np.add.reduceat(np.append(of_rows, 0).astype(np.int64), np.cumsum(each) - each) * (each > 0)
        for of_rows, each in zip(counts, samples.sizes, strict=True)
    ]
    return tuple(rows), tuple(sizes), about
