"""What the library's functions return, as the content of a result file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.stored import file_of_estimate
from mpi_ustat.learning.fit import Fit
from mpi_ustat.learning.linear_model import file_of
from mpi_ustat.storage.results import ResultFile
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.stored import file_of_test


def content_of(found: Any, data: Mapping[str, Any] | None = None) -> ResultFile:
    """Return the content of a result file for what a function of this package has returned.

    Raises
    ------
    UserError
        If it is something else.
    """
    found = getattr(found, "content", found)  # a `Result` has one
    if isinstance(found, ResultFile):
        return found
    if isinstance(found, Estimate):
        return file_of_estimate(found, data or {}, tuple(found.differences()), found.tests())
    if isinstance(found, TestResult):
        return file_of_test(found, data or {})
    if isinstance(found, Fit):
        columns = [str(j) for j in range(np.size(found.parameters))]
        return file_of(found, columns, (), data or {})
    raise UserError(
        f"this is a {type(found).__name__} and no result: give what a function of this package has returned"
    )
