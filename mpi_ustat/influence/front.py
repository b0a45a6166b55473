"""What every point learns of its pairs, of any kernel that says how it is found."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.kernels.kernel import Kernel


def point_sums(comm: Any, samples: Sequence[Sample], kernel: Kernel) -> tuple[list[PointSums], int]:
    """Return what the points of each sample learn, and the bytes that this rank has sent.  Collective.

    Raises
    ------
    UserError
        If the kernel has no sums of single points.
    """
    module, _, name = kernel.influence_route.partition(":")
    found: tuple[list[PointSums], int] = getattr(importlib.import_module(module), name)(
        comm, samples, **kernel.influence_options()
    )
    return found
