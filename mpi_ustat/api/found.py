"""What the statistics of the front door return, made of estimates and tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpi_ustat.api.results import ComparisonResult, RocResult, StatisticResult, TestedResult
from mpi_ustat.complete.roc import RocCurve
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.stored import file_of_estimate
from mpi_ustat.mpi.runtime import SerialComm, check_same_options
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.stored import file_of_test

SEED = 0
"""Complete statistics are the same for every seed, but which blocks tell how well their errors are known is drawn."""


def agreed(comm: Any, **options: Any) -> Any:
    """Return the communicator, by default that of this process, its ranks' options compared.  Collective.

    Those of estimates are compared where these are made.
    """
    comm = SerialComm() if comm is None else comm
    check_same_options(comm, options)
    return comm


def statistic(found: Estimate, data: Mapping[str, Any], null: float | None = None) -> StatisticResult:
    """Return one statistic, tested against a value, by default the kernel's of no association."""
    return StatisticResult(file_of_estimate(found, data, (), found.tests(null)))


def curve(found: Estimate, data: Mapping[str, Any], null: float, drawn: RocCurve) -> RocResult:
    """Return an AUC with the ROC curve."""
    return RocResult(file_of_estimate(found, data, (), found.tests(null), (), (drawn,)))


def comparison(found: Estimate, data: Mapping[str, Any], null: float | None, margin: float | None) -> ComparisonResult:
    """Return several statistics and their differences; with a margin these are tested one-sided."""
    return ComparisonResult(file_of_estimate(found, data, tuple(found.differences(margin)), found.tests(null)))


def tested(found: TestResult, data: Mapping[str, Any]) -> TestedResult:
    """Return a test that samples are of one law."""
    return TestedResult(file_of_test(found, data))
