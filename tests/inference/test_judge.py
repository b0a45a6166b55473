"""When tails are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from mpi_ustat.inference.judge import tails_matter
from mpi_ustat.kernels.auc import AUC


@pytest.mark.parametrize(
    ("correlation", "n", "matter"), [(0.5, 1000, False), (0.999, 1000, True), (0.5, 100, True), (1.0, 10**6, True)]
)
def test_tails_matter_where_those_of_a_difference_can(correlation: float, n: int, matter: bool) -> None:
    # Of a difference, between -1 and 1, the kurtosis is at most 4/σ²; σ² = 0.2 (1 - correlation).
    alike = 0.1 * np.array([[1.0, correlation], [correlation, 1.0]])
    components = np.array([alike, alike, 0.1 * np.eye(2)])
    assert tails_matter(AUC(columns=2), components, np.eye(2), (n, n), (n, n)) == matter
    assert not tails_matter(AUC(columns=1), components[:, :1, :1], np.eye(1), (1000, 1000), (1000, 1000))
