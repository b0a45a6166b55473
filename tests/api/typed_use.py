"""What type checkers infer of the front door: mypy reads this file, and nothing runs it."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import mpi_ustat

found = mpi_ustat.auc([0, 1, 1], [0.1, 0.4, 0.3])
assert_type(found.value, float)
assert_type(found.stderr, float | None)
assert_type(mpi_ustat.kendall([1, 2], [2, 1]).value, float)
assert_type(mpi_ustat.roc_curve([0, 1], [0.1, 0.4]).value, float)
assert_type(mpi_ustat.energy_test([1.0], [2.0]).p, float)
assert_type(mpi_ustat.compare_auc([0, 1], {"a": [1, 2], "b": [2, 1]}).values, NDArray[np.float64])
assert_type(mpi_ustat.load("auc.h5"), mpi_ustat.Result)
assert_type(mpi_ustat.RocDisplay.from_result(found), mpi_ustat.RocDisplay)
