"""Discrepancies of two samples, and exact tests that samples are of one law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpi_ustat.api.columns import Columns, columns_of
from mpi_ustat.api.found import agreed, statistic, tested
from mpi_ustat.api.results import StatisticResult, TestedResult
from mpi_ustat.errors import UserError
from mpi_ustat.estimation.estimate import estimate_samples
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.testing.samples import test_samples
from mpi_ustat.testing.test import DEFAULT_PERMUTATIONS, test


@deferred()
def energy_distance(
    x: Any,
    z: Any,
    *,
    alpha: float = 1.0,
    standardize: str = "none",
    confidence: float = 0.95,
    interval: str = "auto",
    comm: Any = None,
) -> StatisticResult:
    """Estimate the energy distance 2E|X-Z|^α - E|X-X'|^α - E|Z-Z'|^α without bias.  Collective.

    Looks at all pairs: 10⁵ points a sample take minutes. Of samples of one law it is about 0 and its interval no use:
    `energy_test` is.

    Parameters
    ----------
    x, z : array_like of shape (n,) or (n, d), frame or mapping
        The points of each sample; of frames the same columns.
    alpha : float
        Above 0, up to 2.
    standardize : {"none", "sd", "iqr"}
        Each column in units of its standard deviation or interquartile range, over both samples.
    confidence, interval, comm
        As in `mpi_ustat.auc`, which also says what is returned and raised.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.energy_distance([0.0, 1.0, 2.0, 4.0], [3.0, 5.0, 6.0, 8.0])
    >>> round(found.value, 4)
    2.9167
    """
    return _discrepancy(comm, "energy", x, z, {"alpha": alpha, "standardize": standardize}, confidence, interval)


@deferred()
def mmd(
    x: Any,
    z: Any,
    *,
    kernel: str = "gaussian",
    bandwidth: float | str = "median",
    standardize: str = "none",
    confidence: float = 0.95,
    interval: str = "auto",
    seed: int = 0,
    comm: Any = None,
) -> StatisticResult:
    """Estimate the squared maximum mean discrepancy without bias.  Collective.

    Parameters
    ----------
    x, z, standardize, confidence, interval, comm
        As in `energy_distance`.
    kernel : {"gaussian", "laplace", "linear"}
    bandwidth : float or "median"
        W of exp(-|x-y|²/2W²) or exp(-|x-y|/W); the median of the distances between up to 1000 points drawn at random.
    seed : int
        Of that draw; recorded in the result.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.mmd([0.0, 1.0, 2.0, 4.0], [3.0, 5.0, 6.0, 8.0], bandwidth=2.0)
    >>> round(found.value, 4)
    0.4092
    """
    options = {"kernel": kernel, "bandwidth": bandwidth, "standardize": standardize}
    return _discrepancy(comm, "mmd", x, z, options, confidence, interval, seed)


@deferred()
def energy_test(
    x: Any,
    z: Any,
    *others: Any,
    alpha: float = 1.0,
    standardize: str = "none",
    n_permutations: int = DEFAULT_PERMUTATIONS,
    n_rounds: int | None = None,
    seed: int = 0,
    comm: Any = None,
) -> TestedResult:
    """Test by the energy distance that samples are of one law; exact for every size and law.  Collective.

    Parameters
    ----------
    x, z, *others : array_like of shape (n,) or (n, d), frame or mapping
        Two samples or more; of more also every two are tested, with Holm's correction.
    alpha, standardize
        As in `energy_distance`.
    n_permutations : int
        Relabellings that are drawn; fewer where there are not as many.
    n_rounds : int, optional
        Of two samples: a cheaper test, as exact, by a part of the pairs that grows with it; by default all pairs.
    seed : int
        Of these; recorded in the result, which it decides on with the points.
    comm : mpi4py.MPI.Comm, optional
        As in `mpi_ustat.auc`.

    Returns
    -------
    TestedResult
        ``value``, ``p``; see `mpi_ustat.test` for how it is made.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.energy_test([0.0, 1.0, 2.0, 4.0], [13.0, 15.0, 16.0, 18.0], seed=1)
    >>> round(found.p, 4)
    0.0286
    """
    return _test(
        comm, "energy", (x, z, *others), {"alpha": alpha, "standardize": standardize}, n_permutations, n_rounds, seed
    )


@deferred()
def mmd_test(
    x: Any,
    z: Any,
    *others: Any,
    kernel: str = "gaussian",
    bandwidth: float | str | Sequence[float] = "median",
    standardize: str = "none",
    n_permutations: int = DEFAULT_PERMUTATIONS,
    n_rounds: int | None = None,
    seed: int = 0,
    comm: Any = None,
) -> TestedResult:
    """Test by the maximum mean discrepancy that samples are of one law; exact for every size and law.  Collective.

    Parameters
    ----------
    x, z, *others, n_permutations, n_rounds, seed, comm
        As in `energy_test`, which also says what is returned.
    kernel, standardize
        As in `mmd`.
    bandwidth : float, "median", or list of float
        Of a list, the largest studentised value counts: as exact, and with power where any has some.

    Examples
    --------
    >>> import mpi_ustat
    >>> found = mpi_ustat.mmd_test([0.0, 1.0, 2.0, 4.0], [13.0, 15.0, 16.0, 18.0], bandwidth=[1.0, 4.0], seed=1)
    >>> round(found.p, 4)
    0.0286
    """
    options = {"kernel": kernel, "bandwidth": bandwidth, "standardize": standardize}
    return _test(comm, "mmd", (x, z, *others), options, n_permutations, n_rounds, seed)


def _discrepancy(
    comm: Any,
    kernel: str,
    x: Any,
    z: Any,
    options: dict[str, Any],
    confidence: float,
    interval: str,
    seed: int = 0,
) -> StatisticResult:
    comm = agreed(comm)
    samples, names = _points(comm, (x, z))
    found = estimate_samples(
        comm,
        samples,
        kernel,
        kernel_options=options,
        complete=True,
        confidence=confidence,
        interval=interval,
        seed=seed,
    )
    return statistic(found, {"columns": names})


def _test(
    comm: Any,
    kernel: str,
    samples: Sequence[Any],
    options: dict[str, Any],
    n_permutations: int,
    n_rounds: int | None,
    seed: int,
) -> TestedResult:
    if n_rounds is not None and len(samples) > 2:
        raise UserError(f"n_rounds is of a test of two samples, not of {len(samples)}: leave it out")
    comm = agreed(comm)
    points, names = _points(comm, samples)
    how: dict[str, Any] = {"n_permutations": n_permutations, "seed": seed, "kernel_options": options}
    found = (
        test(comm, points[0], points[1], kernel, n_rounds=n_rounds, **how)
        if len(points) == 2
        else test_samples(comm, points, kernel, **how)
    )
    return tested(found, {"columns": names})


def _points(comm: Any, samples: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return this rank's points of every sample, and the names of the columns.  Collective."""
    whom = ("x", "z") if len(samples) == 2 else tuple(f"sample {k}" for k in range(len(samples)))
    columns = [
        columns_of(comm, several=(name,), **{name: each})[name] for name, each in zip(whom, samples, strict=True)
    ]
    names = next((each.names for each in columns if each.names), ())
    ordered: list[Columns] = []
    for name, each in zip(whom, columns, strict=True):
        if each.names and len(names) > 1 and set(each.names) != set(names):
            raise UserError(
                f"{whom[0]} has the columns {', '.join(names)} and {name} {', '.join(each.names)}: give them the same"
            )
        by_name = dict(zip(each.names, each.arrays, strict=True)) if len(each.names) > 1 else {}
        ordered.append(Columns(names, [by_name[of] for of in names]) if by_name else each)
    return [np.asarray(each.points) for each in ordered], list(names) if len(names) > 1 else []
