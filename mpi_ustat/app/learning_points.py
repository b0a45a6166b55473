"""What `mpi-ustat learn` learns from: points out of files, some set apart, standardised."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpi_ustat.app.sample_options import file_options, load_samples
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.config import LearnConfig
from mpi_ustat.influence.keys import shared
from mpi_ustat.learning.objectives import consecutive_pairings
from mpi_ustat.mpi.fingerprint import fingerprint
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Ints
from mpi_ustat.points.preparation import Standardisation, split, standardisation
from mpi_ustat.points.sparse import checked_rows
from mpi_ustat.schemes.registry import DEFAULT_SCHEME, scheme_of
from mpi_ustat.storage.data import DataSource, Samples

TEST_FRACTION = 0.2
"""Of each class, unless the test points have a file of their own."""

Parts = tuple[Any, ...]
"""Of each sample this rank's points of a set; of a set that there isn't, none."""


def add_points_arguments(data: Any) -> None:
    """Add to the options of files those that `points_of` reads beside them."""
    data.add_argument(
        "--classes", metavar="L[,L…]", help="its values in order, the lowest first: each is to score above those below"
    )
    data.add_argument(
        "--test-fraction", type=float, metavar="F", help=f"of each class; 0: no test set (default {TEST_FRACTION:g})"
    )
    data.add_argument("--test-data", metavar="FILE", help="the test points, with the same columns and label")
    data.add_argument(
        "--validation-fraction",
        type=float,
        default=0.0,
        metavar="F",
        help="of each class of what is no test set, for --early-stopping and --keep best (default 0)",
    )
    data.add_argument("--weights", metavar="COL", help="of the training points, with --exchange scores")
    data.add_argument(
        "--group", metavar="COL", help="only pairs of a group count, such as a query's; with --batch-points all"
    )
    data.add_argument("--standardize", action="store_true", help="bring columns to mean 0, deviation 1 in training")


@dataclass(frozen=True)
class LearningPoints:
    """The points of a rank.

    Attributes
    ----------
    train, tests, validation : tuple of ndarray
        Of each sample.
    scaling : Standardisation or None
        What was done to the columns.
    loaded : Samples
        As they were read: names, and where they come from.
    block_sizes : tuple of ndarray or None
        Of the workers' blocks, if the file's rows lie as they did.
    preparation : dict
        What was done to what was read, for results.
    digest : str
        Of the points.
    said : dict
        ``weights`` and ``groups`` of the training points, of each sample, if they have any.
    """

    train: Parts
    tests: Parts
    validation: Parts
    scaling: Standardisation | None
    loaded: Samples
    block_sizes: tuple[Ints, ...] | None
    preparation: dict[str, Any]
    digest: str
    said: dict[str, Parts]

    @property
    def pairings(self) -> list[tuple[int, int]]:
        """Which samples are paired, the first of two to score higher."""
        return [(0, 1)] if "classes" not in self.loaded.description else consecutive_pairings(len(self.train))

    @property
    def classes(self) -> tuple[str, ...]:
        """What each sample is, where that is known."""
        described = self.loaded.description
        if "classes" in described:
            return tuple(f"of the class '{each}'" for each in described["classes"])
        return f"of the class '{described['positive']}'", "of the rest" if described.get("rest") else ""


def check_fractions(arguments: argparse.Namespace, config: LearnConfig) -> None:
    """Refuse parts of the data that can't be set apart."""
    if arguments.test_data is not None and arguments.test_fraction is not None:
        raise UserError("--test-data are the test points: leave out --test-fraction, which takes some of the others")
    for what, fraction in (("test", _test_fraction(arguments)), ("validation", arguments.validation_fraction)):
        if not 0.0 <= fraction < 1.0:
            raise UserError(f"the {what} fraction is {fraction}: give a number of at least 0 and below 1")
        if config.exchange == "rows" and scheme_of(config.scheme).as_they_lie and fraction > 0.0:
            raise UserError(
                f"{config.scheme} keeps the file's blocks, a {what} set breaks them: use "
                f"--{what}-fraction 0 or {DEFAULT_SCHEME}"
            )
    if config.early_stopping is not None and not arguments.validation_fraction:
        raise UserError(
            "--early-stopping goes by the loss of validation points: set some apart by --validation-fraction"
        )


def _test_fraction(arguments: argparse.Namespace) -> float:
    given: float | None = arguments.test_fraction
    return (0.0 if arguments.test_data is not None else TEST_FRACTION) if given is None else given


def points_of(comm: Any, arguments: argparse.Namespace, config: LearnConfig) -> LearningPoints:
    """Read this rank's points, and set some apart.  Collective."""
    given = file_options(arguments)
    classes = None if arguments.classes is None else tuple(each.strip() for each in arguments.classes.split(","))
    columns, sparse = given["columns"] or ("all",), config.exchange == "scores"
    said = tuple((what, of) for what, of in (("weights", arguments.weights), ("groups", arguments.group)) if of)
    source = DataSource(**given | {"columns": columns}, finite=True, sparse=sparse, classes=classes, said=said)
    loaded = load_samples(comm, source, config.n_workers)
    train, about = _checked(comm, loaded), dict(loaded.said)
    tests: Parts = ()
    preparation: dict[str, Any] = {"test_fraction": _test_fraction(arguments), "standardize": arguments.standardize}
    if arguments.test_data is not None:
        of_test = load_samples(comm, _same_columns(source, arguments.test_data, loaded), config.n_workers)
        tests = _checked(comm, of_test)
        preparation["test_data"] = of_test.description["files"]
    # Only rows that stay where they lie care where in the file they were.
    blocks = loaded.sizes if scheme_of(config.scheme).as_they_lie else ()
    said_of_all: list[Any] = [shared(comm, np.concatenate(each), what).codes for what, each in about.items()]
    digest = fingerprint(comm, (*train, *(each.astype(float) for each in blocks), *tests, *said_of_all))
    streams = Streams(config.seed)

    def set_apart(fraction: float, what: str) -> tuple[Parts, Parts]:
        for name, of_samples in about.items():
            about[name] = tuple(split(comm, each, fraction, streams, k, what)[0] for k, each in enumerate(of_samples))
        parts = [split(comm, rows, fraction, streams, k, what) for k, rows in enumerate(train)]
        return tuple(part[0] for part in parts), tuple(part[1] for part in parts)

    validation: Parts = ()
    whole = True
    if preparation["test_fraction"] > 0.0:
        (train, tests), whole = set_apart(preparation["test_fraction"], "test"), False
    if arguments.validation_fraction > 0.0:
        (train, validation), whole = set_apart(arguments.validation_fraction, "validation"), False
        preparation["validation_fraction"] = arguments.validation_fraction
    scaling = None
    if arguments.standardize:
        scaling = standardisation(comm, train)
        apply: Callable[[Any], Any] = scaling.apply
        train, tests, validation = (tuple(map(apply, part)) for part in (train, tests, validation))
    sizes = loaded.sizes if whole else None
    return LearningPoints(train, tests, validation, scaling, loaded, sizes, preparation, digest, about)


def _checked(comm: Any, samples: Samples) -> Parts:
    names = "xz" if "classes" not in samples.description else samples.names
    return tuple(checked_rows(comm, names, samples.rows))


def _same_columns(source: DataSource, path: str, loaded: Samples) -> DataSource:
    """Return where points of the same columns and classes are."""
    described = loaded.description
    return replace(
        source,
        path=path,
        label=described["label"],
        positive=described["positive"],
        columns=loaded.columns,
        said=(),
        columns_of="the training points",
    )
