"""Point sums of the energy distance and the MMD: of the pairs within each sample, and of those across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.influence.pairs import met, pack, tiled
from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.totals import partners
from mpi_ustat.kernels.discrepancy import Discrepancy


def discrepancy(comm: Any, samples: Sequence[Sample], kernel: Discrepancy) -> tuple[list[PointSums], int]:
    """Return Σ_j w_j k_ij of each part, A within x, C within z and D across, and the bytes sent.  Collective.

    A point has no pairs in the part of the other sample. O((n + m)² / P), every pair once.
    """
    x, z = samples
    sent = 0
    sums = [np.zeros((3, len(sample.rows))) for sample in samples]
    counts = [np.zeros((3, len(sample.rows))) for sample in samples]
    for part, of_part in enumerate(([x], [z], [x, z])):
        h, n_bytes = met(comm, pack(of_part), tiled(kernel, of_part), kernel.name)
        pairs, more = partners(comm, of_part)
        for k, own, weights in zip((part,) if part < 2 else (0, 1), h, pairs, strict=True):
            sums[k][part], counts[k][part] = own, weights
        sent += n_bytes + more
    degrees = (2, 0, 1), (0, 2, 1)
    return [PointSums(*each) for each in zip(sums, counts, degrees, strict=True)], sent
