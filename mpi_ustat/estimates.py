"""What an estimation gives: rounds, the estimate with its error bar, and how biased the shards are as they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpi_ustat.config import EstimateConfig
from mpi_ustat.statistics.intervals import Interval
from mpi_ustat.statistics.kernel import PairSum

Array = NDArray[np.float64]
Value = float | Array


@dataclass(frozen=True)
class Round:
    """What one partition gave, the same on every rank.

    Attributes
    ----------
    sums : tuple of tuple of PairSum
        Each worker's sums of kernel values and numbers of pairs, in worker order, by part of the statistic.
    values : ndarray, shape (N, q)
        Each worker's local values; NaN where it had no pair.
    weights : tuple of int
        Pairs (or tuples) that each worker's points make.
    value : ndarray, shape (q,)
        The round's estimate.
    components : ndarray, shape (c, p, p), or None
        Mean of the workers' estimates of the Hoeffding components; None where no worker had one.
    sizes : tuple of tuple of int
        Each sample's block sizes.
    rows_moved : int
        Rows whose worker is not the one that they started on.
    bytes_moved : int
        Bytes that went from one rank to another.
    multiplicities : tuple
        Of blocks of one sample drawn with replacement: `one_sample.multiplicity_sums` of each.
    """

    sums: tuple[tuple[PairSum, ...], ...]
    values: Array
    weights: tuple[int, ...]
    value: Array
    components: Array | None
    sizes: tuple[tuple[int, ...], ...]
    rows_moved: int
    bytes_moved: int
    multiplicities: tuple[tuple[int, int, int, int], ...] = ()


@dataclass(frozen=True)
class ErrorBar:
    """How far an estimate may be from what it estimates.

    Attributes
    ----------
    covariance : ndarray, shape (q, q), or None
        Estimated covariance of the q statistics, unbiased, so that its diagonal may be negative; None: not known.
    method : str
        Where it comes from: ``components`` (of all that was evaluated), ``pilot`` (of a small complete sample),
        ``workers`` (from how the local values differ), ``sample`` (an estimate of the whole variance at once), or
        ``none``.
    intervals : tuple of Interval
        Of each statistic.
    components : ndarray, shape (c, p, p), or None
        The estimated Hoeffding components that it was made of.
    flags : tuple of str
        What makes it doubtful, in sentences.
    """

    covariance: Array | None
    method: str
    intervals: tuple[Interval, ...]
    components: Array | None
    flags: tuple[str, ...]

    @property
    def stderr(self) -> tuple[float | None, ...]:
        """Standard error of each statistic; None where the estimated variance is not positive."""
        if self.covariance is None:
            return (None,) * len(self.intervals)
        return tuple(float(np.sqrt(v)) if 0.0 < v < np.inf else None for v in np.diagonal(self.covariance))


@dataclass(frozen=True)
class Bias:
    """How far local averages of the shards as they lie are from the complete statistic.

    Attributes
    ----------
    aggregate : str
        ``mean`` of the shards' values, or ``pooled``: weighted by their numbers of pairs.
    difference : float
        Local minus complete.
    stderr : float or None
        What its standard deviation would be if the points lay over the shards by chance.
    z : float or None
        Their quotient: beyond 3 in size, the shards differ from each other by more than chance.
    """

    aggregate: str
    difference: float
    stderr: float | None
    z: float | None


@dataclass(frozen=True)
class Estimate:
    """An estimated U-statistic and what it was made of.

    Attributes
    ----------
    value : float, or ndarray of shape (q,) for q columns
        The estimate, in the unit of the kernel.
    sizes : tuple of int
        Sizes of the samples; `n` and `m` are the first two.
    n_pairs : int
        Pairs (or longer tuples) evaluated, over all workers and rounds.
    per_round : ndarray, shape (T,) or (T, q)
        Each round's value.
    per_worker : ndarray, shape (T, N) or (T, N, q)
        Each worker's local average; NaN where a worker had no pair. Shape (0, 0) when complete.
    pairs_per_worker : ndarray of int, shape (T, N)
        Pairs behind each local average; doubles where those of a round pass 2⁶³.
    empty_workers : int
        Workers, over all rounds, that had no pair.
    rows_moved, bytes_moved : ndarray of int, shape (T,)
        Rows that changed worker in each round, and bytes that went between ranks.
    error : ErrorBar or None
        Its standard error and confidence interval, where they were asked for.
    complete_value : float, ndarray or None
        U_n, where it was computed.
    complete_error : ErrorBar or None
        The error bar of U_n.
    bias : tuple of Bias
        Of the shards as they lie, where that was asked for; of one statistic, not of several.
    route : str or None
        How U_n was found: see `mpi_ustat.routes`.
    complete_bytes_moved : int
        Bytes that went between ranks for U_n.
    seconds : dict of str to float
        Seconds per phase, of the slowest rank.
    n_ranks : int
        P.
    config : EstimateConfig
        What was asked for.
    columns : tuple of str
        Names of the statistics, where there are several.
    """

    value: Any
    sizes: tuple[int, ...]
    n_pairs: int
    per_round: Array
    per_worker: Array
    pairs_per_worker: NDArray[Any]
    empty_workers: int
    rows_moved: NDArray[np.int64]
    bytes_moved: NDArray[np.int64]
    error: ErrorBar | None
    complete_value: Any
    complete_error: ErrorBar | None
    bias: tuple[Bias, ...]
    route: str | None
    complete_bytes_moved: int
    seconds: dict[str, float]
    n_ranks: int
    config: EstimateConfig
    columns: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Size of the first sample, x."""
        return self.sizes[0]

    @property
    def m(self) -> int | None:
        """Size of the second sample, z; None where there is one sample only."""
        return self.sizes[1] if len(self.sizes) > 1 else None

    @property
    def stderr(self) -> Any:
        """Standard error, None where it is not known; a tuple of them for several columns."""
        return self._of(self.error)

    @property
    def interval(self) -> Any:
        """Confidence interval, (lower, upper), None where it is not known; a tuple of them for several columns."""
        if self.error is None:
            return None
        bounds = tuple(None if each.lower is None else (each.lower, each.upper) for each in self.error.intervals)
        return bounds if np.ndim(self.value) else bounds[0]

    @property
    def covariance(self) -> Array | None:
        """Covariance matrix of the statistics, (q, q)."""
        return None if self.error is None else self.error.covariance

    def _of(self, error: ErrorBar | None) -> Any:
        if error is None:
            return None
        return error.stderr if np.ndim(self.value) else error.stderr[0]

    def summary(self) -> dict[str, Any]:
        """Return the estimate as a JSON-able dictionary, without the per-worker values."""
        config = self.config
        by_rounds = not config.complete
        summary = {
            "estimate": _plain(self.value),
            "columns": list(self.columns) or None,
            "stderr": _plain(self.stderr),
            "confidence": config.confidence,
            "interval": _plain(self.interval),
            "interval_method": None if self.error is None else self.error.intervals[0].method,
            "stderr_method": None if self.error is None else self.error.method,
            "covariance": _plain(self.covariance) if np.ndim(self.value) else None,
            "flags": [] if self.error is None else list(self.error.flags),
            "kernel": config.kernel,
            "kernel_options": config.kernel_options,
            "ties": config.ties if config.kernel in ("auc", "vus") else None,
            "complete": config.complete,
            "scheme": config.scheme if by_rounds else None,
            "aggregate": config.aggregate if by_rounds else None,
            "n": self.n,
            "m": self.m,
            "sizes": list(self.sizes),
            "n_workers": config.n_workers,
            "n_ranks": self.n_ranks,
            "n_rounds": config.n_rounds,
            "pairs_per_worker": config.n_pairs,
            "n_pairs": self.n_pairs,
            "empty_workers": self.empty_workers,
            "complete_value": _plain(self.complete_value),
            "complete_stderr": _plain(self._of(self.complete_error)),
            "complete_route": self.route,
            "seed": config.seed,
            "rows_moved": int(self.rows_moved.sum()),
            "bytes_moved": int(self.bytes_moved.sum()) + self.complete_bytes_moved,
            "seconds": self.seconds,
            "per_round": self.per_round.tolist(),
        }
        if self.bias:
            summary["bias"] = [vars(each) for each in self.bias]
        return summary


def _plain(value: Any) -> Any:
    """Return arrays and tuples as lists, which JSON knows."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
