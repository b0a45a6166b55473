"""The influence of every point on the complete statistic of any kernel that says what its points add up to."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpi_ustat.influence.points import PointSums, Sample
from mpi_ustat.influence.statistic import Influence, statistic
from mpi_ustat.kernels.kernel import Kernel


def influence(comm: Any, samples: Sequence[Sample], kernel: Kernel) -> Influence:
    """Return the complete statistic and the influence of each own point, the same bits at every P.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence of Sample
        As many as the kernel has. Points far from the origin lose digits where the kernel `wants_centre`.
    kernel : Kernel

    Raises
    ------
    UserError
        If no pair counts, or the kernel has no sums of single points.
    """
    if kernel.statistic_route:
        found: Influence = _called(kernel.statistic_route, comm, samples, kernel)
        return found
    sums, sent = point_sums(comm, samples, kernel)
    return replace(statistic(comm, samples, sums, kernel.scale, (kernel.combine, kernel.gradient)), bytes_sent=sent)


def point_sums(comm: Any, samples: Sequence[Sample], kernel: Kernel) -> tuple[list[PointSums], int]:
    """Return the two sums of each point of each sample, and the bytes that this rank has sent.  Collective."""
    found: tuple[list[PointSums], int] = _called(kernel.influence_route, comm, samples, kernel)
    return found


def _called(route: str, comm: Any, samples: Sequence[Sample], kernel: Kernel) -> Any:
    module, _, name = route.partition(":")
    return getattr(importlib.import_module(module), name)(comm, samples, **kernel.influence_options())
