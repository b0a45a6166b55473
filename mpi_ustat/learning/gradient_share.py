"""Whether repartitioning pays for learning: where the variance of local gradients comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.inference.components import two_sample_components
from mpi_ustat.inference.pilots import pilot_blocks
from mpi_ustat.learning.objectives import PairObjective
from mpi_ustat.mpi.exchange import Exchange
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.checked import checked_points
from mpi_ustat.points.rows import as_rows_of_points
from mpi_ustat.schemes.registry import COMPLETE, DEFAULT_SCHEME
from mpi_ustat.schemes.variance import Design, coefficients


@dataclass(frozen=True)
class GradientShare:
    """Where the variance of a pairwise gradient comes from, summed over its coordinates.

    Attributes
    ----------
    points : float
        Variance of the gradient over all n·m pairs: what no repartitioning changes.
    unseen_pairs : float
        What local gradients over all pairs of fixed blocks add, because pairs across workers are never seen;
        repartitioning averages it out.
    sampling : float
        What sampling B pairs a worker adds, in every iteration.
    share : float
        The unseen pairs' share of the whole.
    """

    points: float
    unseen_pairs: float
    sampling: float
    share: float


def gradient_share(
    comm: Any,
    samples: Sequence[Floats],
    objective: PairObjective,
    parameters: Floats,
    *,
    n_workers: int,
    batch_pairs: int | None,
    seed: int,
    most: int = 200,
) -> GradientShare:
    """Return how much of the variance of the local gradients comes from pairs that are never seen.  Collective.

    The gradient of a pair, ∇h(X, Z; θ), is a kernel of several coordinates; with its Hoeffding components, from a pilot
    of `most` rows a sample and added over the coordinates, the variance of the workers' mean gradient is the sum of
    three: V_n of the gradient over all pairs, V₁ - V_n for keeping to N blocks, and what drawing B pairs adds.
    """
    points = checked_points(comm, [str(k) for k in range(len(samples))], samples, as_rows_of_points)
    exchanges = [Exchange(comm, rows, n_workers) for rows in points]
    sizes = tuple(exchange.n_rows for exchange in exchanges)
    if min(sizes) < 2:
        raise UserError("the variance of a gradient is estimated from at least two points of each sample: add points")
    x, z = pilot_blocks(comm, exchanges, Streams(seed), most=most)
    n, m, p = len(x), len(z), len(parameters)
    each = objective.gradients(parameters, np.repeat(x, m, axis=0)[:, None], np.tile(z, (n, 1))[:, None])
    h = each.reshape(n, m, p)
    h = h - h.mean(axis=(0, 1))
    components = sum(
        two_sample_components(
            n, m, np.sum(h[:, :, j].mean(axis=1) ** 2), np.sum(h[:, :, j].mean(axis=0) ** 2), np.sum(h[:, :, j] ** 2)
        )[:, 0, 0]
        for j in range(p)
    )
    whole, local, sampled = (
        float(coefficients((1, 1), sizes, design)[0] @ components)
        for design in (
            Design(scheme=COMPLETE.name),
            Design(scheme=DEFAULT_SCHEME, n_workers=n_workers),
            Design(scheme=DEFAULT_SCHEME, n_workers=n_workers, n_pairs=batch_pairs),
        )
    )
    return GradientShare(whole, local - whole, sampled - local, (local - whole) / sampled if sampled > 0.0 else 0.0)
