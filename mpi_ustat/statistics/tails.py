"""How heavy the tails are that a standard error has to be estimated from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpi_ustat.statistics.kernel import Array, Kernel, Points


def row_kurtosis(kernel: Kernel, blocks: Sequence[Points]) -> tuple[float, ...] | None:
    """Return E(r - Er)⁴/Var(r)² of each sample's row means r, the means of h over the pairs of a point; pure.

    Parameters
    ----------
    kernel : Kernel
        Of two samples of degree 1, or one of degree 2.
    blocks : sequence of ndarray
        Some points of each sample: all their pairs are evaluated at once.

    Returns
    -------
    tuple of float, or None
        None where the kernel offers no matrix of its values, or is of other degrees.
    """
    if kernel.degrees == (1, 1):
        h = kernel.matrix(*blocks)
        return None if h is None else (_kurtosis(h.mean(axis=1)), _kurtosis(h.mean(axis=0)))
    if kernel.degrees != (2,):
        return None
    (block,) = blocks
    h = kernel.matrix(block, block)
    if h is None:
        return None
    np.fill_diagonal(h, 0.0)
    return (_kurtosis(h.sum(axis=1) / (len(block) - 1)),)


def _kurtosis(values: Array) -> float:
    """Return the kurtosis; that of a constant is 1, the smallest there is."""
    centred = values - values.mean()
    largest = float(np.abs(centred).max(initial=0.0))
    if largest == 0.0:
        return 1.0
    squares = (centred / largest) ** 2  # in units that can't overflow
    return float(np.mean(squares**2) / np.mean(squares) ** 2)
