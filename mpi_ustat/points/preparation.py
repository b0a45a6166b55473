"""What happens to points before anything is learnt from them: a test set is put aside, columns are standardised.

Both give the same bits on any number of ranks: rows are chosen by their global numbers, and sums over rows are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.numerics.exactsum import exact_sum
from mpi_ustat.numerics.rng import Streams
from mpi_ustat.numerics.sparse_rows import SparseRows
from mpi_ustat.numerics.types import Floats
from mpi_ustat.points.quartiles import quartiles
from mpi_ustat.points.rows import column_names
from mpi_ustat.points.sparse import column_moments
from mpi_ustat.wording import count_of, plural

_LISTED_COLUMNS = 10
_LEAST_SCALE = 2.0**-1000

Rows = TypeVar("Rows", Floats, SparseRows)


def same_columns(comm: Any, samples: Sequence[Any]) -> None:
    """Refuse data frames whose columns differ in name or order: points are paired column by column.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : sequence
        Of every sample this rank's points, data frames or arrays. Names of single columns don't matter.

    Raises
    ------
    UserError
        On every rank, if they differ between samples or ranks, or the ranks have different numbers of samples.
    """
    everyone = comm.allgather([column_names(rows) for rows in samples])
    if len(set(map(len, everyone))) > 1:
        raise UserError("the ranks give different numbers of samples: pass as many on every rank, empty ones too")
    found = dict.fromkeys(names for of_rank in everyone for names in of_rank if names and len(names) > 1)
    if len(found) > 1:
        one, other = (", ".join(names[:_LISTED_COLUMNS]) for names in list(found)[:2])
        raise UserError(
            f"the samples' data frames have different columns ({one}; {other}): pass the same, in the same order, for "
            "all samples and on all ranks"
        )


def split(
    comm: Any, rows: Rows, fraction: float, streams: Streams, sample: int, what: str = "test"
) -> tuple[Rows, Rows]:
    """Split one sample into a training and a test part; return this rank's rows of each, in order.  Collective.

    A uniformly random set of round(fraction·n) of the n rows becomes the test part. To split every class apart is to
    stratify. `what` the part is for names its random numbers, and itself in messages.

    Raises
    ------
    UserError
        If a part would be empty.
    """
    counts = comm.allgather(len(rows))
    n, first = sum(counts), sum(counts[: comm.rank])
    n_test = round(fraction * n)
    if not 0 < n_test < n:
        raise UserError(
            f"a {what} fraction of {fraction:g} takes {n_test} of the {count_of(n, 'point')} of the sample {sample}: "
            "choose another one"
        )
    chosen = streams.open(f"{what} set of sample {sample}").permutation(n)[:n_test]
    is_test = np.zeros(len(rows), dtype=np.bool_)
    is_test[chosen[(chosen >= first) & (chosen < first + len(rows))] - first] = True
    return rows[~is_test], rows[is_test]


@dataclass(frozen=True)
class Standardisation:
    """Column means and standard deviations (divisor n); a constant column's deviation is taken for 1.

    Attributes
    ----------
    mean, deviation : ndarray, shape (d,)
    """

    mean: Floats
    deviation: Floats

    def apply(self, rows: Rows) -> Rows:
        """Return the rows with these means taken away, in units of the deviations.

        Sparse rows keep the means, which change no difference of two scores: without them they are not sparse.
        """
        if isinstance(rows, SparseRows):
            return rows.divided(self.deviation)
        return (rows - self.mean) / self.deviation


def standardisation(comm: Any, samples: tuple[Rows, ...]) -> Standardisation:
    """Return the means and deviations of the columns of all samples together.  Collective."""
    if isinstance(samples[0], SparseRows):
        mean, deviation = column_moments(comm, samples)
    else:
        mean, deviation = moments(comm, samples)
    return Standardisation(mean, np.where(deviation > 0.0, deviation, 1.0))


def moments(comm: Any, samples: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """Return the means and deviations of the columns of all samples together, exactly 0 of constants.  Collective."""
    d = samples[0].shape[1]
    n = sum(sum(counts) for counts in comm.allgather([len(rows) for rows in samples]))
    own = np.max([np.abs(rows).max(axis=0, initial=0.0) for rows in samples], axis=0)
    # In units of a power of two near the largest value, squares neither overflow nor vanish; nothing is rounded.
    exponent = np.frexp(np.max(comm.allgather(own), axis=0))[1]
    scaled = tuple(np.ldexp(rows, -exponent) for rows in samples)
    mean = _column_means(comm, scaled, d, n)
    variance = _column_means(comm, tuple((rows - mean) ** 2 for rows in scaled), d, n)
    deviation = np.ldexp(np.sqrt(variance), exponent)
    # A constant column's exact mean is the constant, so its deviation is exactly 0.
    return np.ldexp(mean, exponent), deviation


def column_scales(comm: Any, samples: tuple[Floats, ...], by: str, columns: Sequence[str] = ()) -> Floats:
    """Return the divisors of the columns, from all samples together, the same bits at every P.  Collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or SerialComm
    samples : tuple of ndarray, shapes (n, d)
    by : {"sd", "iqr"}
        Standard deviations (divisor n), or interquartile ranges.
    columns : sequence of str
        Their names, for messages; empty: their numbers.

    Raises
    ------
    UserError
        On every rank, naming the columns whose scale is 0, or no double.
    """
    if by == "iqr":
        first, third = quartiles(comm, samples)
        with np.errstate(over="ignore"):
            scales = third - first
    else:
        scales = moments(comm, samples)[1]
    names = [f"'{name}'" for name in columns] or [str(j) for j in range(len(scales))]
    what = "an interquartile range" if by == "iqr" else "a standard deviation"
    otherwise = ', or use standardize="sd"' if by == "iqr" else ""
    for is_bad, fault, remedy in (
        (scales == 0.0, "of 0", "leave {} out of the columns" + otherwise),
        (~((scales >= _LEAST_SCALE) & (scales < np.inf)), "that doubles don't hold", "rescale {}"),
    ):
        bad = [names[j] for j in np.flatnonzero(is_bad)]
        if bad:
            more = f" and {len(bad) - _LISTED_COLUMNS} more" if len(bad) > _LISTED_COLUMNS else ""
            which = f"{plural(len(bad), 'column')} {', '.join(bad[:_LISTED_COLUMNS])}{more}"
            have, them = ("have", "them") if len(bad) > 1 else ("has", "it")
            raise UserError(f"{which} {have} {what} {fault} over all samples together: {remedy.format(them)}")
    return scales


def _column_means(comm: Any, samples: tuple[Floats, ...], d: int, n: int) -> Floats:
    own = [sum((exact_sum(rows[:, j]) for rows in samples), start=Fraction(0)) for j in range(d)]
    return np.array([float(sum(column, start=Fraction(0)) / n) for column in zip(*comm.allgather(own), strict=True)])
